//! [`Archives`]: the release files that people look into: each is read once, and what was read is kept for a while.
//!
//! digest and filename -> the blob's file -> [`pypi::archive`] on a thread that may take long -> members, or the beginning of one.
//! Few are read at a time, and few may wait: beyond that the answer is “not now”. What is kept is bounded in bytes.

use std::path::Path;
use std::sync::Arc;

use markup::{Comparison, TooLong, compare};
use pypi::Filename;
use pypi::archive::{self, ArchiveError, Contents, ContentsLimits, MemberText};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rawzip::FileReader;
use record::Digest;
use store::BlobStore;

use crate::open_zips::{Unopened, copied, local};
use crate::turns::Share;

/// Memory for lists of members, and for texts of members, in bytes.
const LISTS_BYTES_MAX: u64 = 8 << 20;
const TEXTS_BYTES_MAX: u64 = 4 << 20;

/// What an entry of these takes beside its texts, roughly, in bytes.
const ENTRY_BYTES: u64 = 300;

/// Archives that may wait to be read.
const WAITING_MAX: usize = 64;

/// Most bytes of an archive in an object store, which is copied to the disk to be read.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// What was read, or why the archive does not allow it.
type Looked<T> = Arc<Result<T, String>>;

/// Release files that people look into.
pub(crate) struct Archives {
    lists: Cache<Key, Looked<Contents>, Weights>,
    texts: Cache<Key, Looked<Option<MemberText>>, Weights>,
    share: Share,
}

/// A release file, whoever has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArchiveFile {
    pub(crate) digest: Digest,
    /// Says what kind of archive it is.
    pub(crate) filename: Filename,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    file: ArchiveFile,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Members { has_digests: bool },
    Member(usize),
}

#[derive(Clone)]
struct Weights;

impl Weighter<Key, Looked<Contents>> for Weights {
    fn weight(&self, key: &Key, looked: &Looked<Contents>) -> u64 {
        let bytes = match &**looked {
            Ok(contents) => contents
                .members
                .iter()
                .map(|member| {
                    let link = member.link.as_ref().map_or(0, String::capacity);
                    size_of_val(member) + member.name.capacity() + link
                })
                .sum(),
            Err(reason) => reason.len(),
        };
        (bytes + key.file.filename.as_str().len()) as u64 + ENTRY_BYTES
    }
}

impl Weighter<Key, Looked<Option<MemberText>>> for Weights {
    fn weight(&self, key: &Key, looked: &Looked<Option<MemberText>>) -> u64 {
        let bytes = match &**looked {
            Ok(Some(text)) => text.name.capacity() + text.bytes.capacity(),
            Ok(None) => 0,
            Err(reason) => reason.len(),
        };
        (bytes + key.file.filename.as_str().len()) as u64 + ENTRY_BYTES
    }
}

/// Why an archive is not looked into.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The store does not have it.
    Missing,
    /// So many wait already.
    Busy(usize),
    /// The store or the disk failed.
    Failed(String),
}

impl Archives {
    /// For a machine with so many cores: at most half of them read archives.
    pub(crate) fn new(cores: usize) -> Archives {
        Archives {
            lists: Cache::with_weighter(200, LISTS_BYTES_MAX, Weights),
            texts: Cache::with_weighter(200, TEXTS_BYTES_MAX, Weights),
            share: Share::half(cores, 2 * WAITING_MAX),
        }
    }

    /// The members of a file, with the digests of their bytes if they are wanted.
    ///
    /// # Errors
    /// [`Unread`]
    pub(crate) async fn members(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        has_digests: bool,
    ) -> Result<Looked<Contents>, Unread> {
        let key = Key { file: file.clone(), what: What::Members { has_digests } };
        let reading = self.read(blobs, directory, file, move |reader, file_bytes, filename| {
            let limits = ContentsLimits::default();
            archive::members(reader, file_bytes, filename, &limits, has_digests)
                .map(Option::unwrap_or_default)
        });
        self.lists.get_or_insert_async(&key, reading).await
    }

    /// The beginning of the member with this number; none if there is no such file in it.
    ///
    /// # Errors
    /// [`Unread`]
    pub(crate) async fn member(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        number: usize,
    ) -> Result<Looked<Option<MemberText>>, Unread> {
        let key = Key { file: file.clone(), what: What::Member(number) };
        let reading = self.read(blobs, directory, file, move |reader, file_bytes, filename| {
            let limits = ContentsLimits::default();
            archive::member(reader, file_bytes, filename, &limits, number)
        });
        self.texts.get_or_insert_async(&key, reading).await
    }

    /// Two texts, compared when it is their turn.
    ///
    /// # Errors
    /// [`Unread::Busy`]; the inner error if they are too long.
    pub(crate) async fn compared(
        &self,
        old: String,
        new: String,
    ) -> Result<Result<Comparison, TooLong>, Unread> {
        let _place = self.share.enter().map_err(Unread::Busy)?;
        Ok(self.share.turns.run(move || compare(&old, &new)).await)
    }

    async fn read<T: Send + 'static>(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        work: impl FnOnce(FileReader, u64, &Filename) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<Looked<T>, Unread> {
        let ArchiveFile { digest, filename } = file.clone();
        if !archive::is_archive(&filename) {
            return Ok(Arc::new(Err("files of this kind are not opened".to_owned())));
        }
        let _place = self.share.enter().map_err(Unread::Busy)?;
        let turn = self.share.turns.take().await;
        let opened = match local(blobs, digest).await {
            Ok(Some(opened)) => Ok((opened, turn)),
            Ok(None) => copied(blobs, directory, digest, COPY_BYTES_MAX, turn).await,
            Err(error) => Err(error),
        };
        let (opened, turn) = match opened {
            Ok(opened) => opened,
            Err(Unopened::Missing) => return Err(Unread::Missing),
            Err(Unopened::Large(bytes)) => {
                return Ok(Arc::new(Err(format!(
                    "it has {bytes} bytes, and at most {COPY_BYTES_MAX} are copied from the object store"
                ))));
            }
            Err(Unopened::Broken(error)) => return Ok(Arc::new(Err(error.to_string()))),
            Err(Unopened::Failed(error)) => return Err(Unread::Failed(error)),
        };
        let looking = move || {
            let file_bytes = opened.metadata().map_err(ArchiveError::Io)?.len();
            work(FileReader::from(opened), file_bytes, &filename)
        };
        match turn.run(looking).await {
            Ok(found) => Ok(Arc::new(Ok(found))),
            Err(ArchiveError::Io(error)) => Err(Unread::Failed(error.to_string())),
            Err(error) => Ok(Arc::new(Err(error.to_string()))),
        }
    }
}
