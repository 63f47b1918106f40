//! [`Archives`]: release files that people look into. Each is read once, and the result is cached.
//!
//! digest and filename -> the blob's file -> [`pypi::archive`] on a thread that may take long -> members, or the beginning of
//! one. Few are read at a time, on threads of low priority, and few may wait: beyond that the answer is “not now”. The cache is
//! bounded in bytes, and so is what waiting comparisons hold: only a few run at once ([`Archives::comparison`]).

use std::path::Path;
use std::sync::Arc;

use pypi::Filename;
use pypi::archive::{self, ArchiveError, Contents, ContentsLimits, MemberText};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use rawzip::FileReader;
use record::Digest;
use resources::turns::{ThreadShare, Turn};
use store::BlobStore;

use super::open_zips::{OpenZipError, copied, local};

/// Memory for lists of members, and for texts of members, in bytes.
const LISTS_BYTES_MAX: u64 = 8 << 20;
const TEXTS_BYTES_MAX: u64 = 4 << 20;

/// Bytes that an entry takes besides its texts, roughly.
const ENTRY_BYTES: u64 = 300;

/// Archives that may wait to be read.
const WAITING_MAX: usize = 64;

/// Comparisons that go on at once: each may hold two lists of members, or two texts.
const COMPARED_AT_ONCE: usize = 8;

/// Bytes at most of an archive in an object store, which is copied to the disk to be read.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// The result of reading, or why the archive cannot be read.
type ArchiveLook<T> = Arc<Result<T, String>>;

/// Release files that people look into.
pub(crate) struct Archives {
    lists: Cache<Key, ArchiveLook<Contents>, Weights>,
    texts: Cache<Key, ArchiveLook<Option<MemberText>>, Weights>,
    share: ThreadShare,
    comparisons: ThreadShare,
}

/// A release file, of this server or of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArchiveFile {
    pub(crate) digest: Digest,
    /// Says what kind of archive it is.
    pub(crate) filename: Filename,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    file: ArchiveFile,
    what: ArchivePart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ArchivePart {
    Members { has_digests: bool },
    Member(usize),
}

#[derive(Clone)]
struct Weights;

impl Weighter<Key, ArchiveLook<Contents>> for Weights {
    fn weight(&self, key: &Key, looked: &ArchiveLook<Contents>) -> u64 {
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

impl Weighter<Key, ArchiveLook<Option<MemberText>>> for Weights {
    fn weight(&self, key: &Key, looked: &ArchiveLook<Option<MemberText>>) -> u64 {
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
pub(crate) enum LookError {
    /// The store does not have it.
    Missing,
    /// This many requests are waiting already.
    Busy(usize),
    /// The store or the disk failed.
    Failed(String),
}

/// A cache of this many bytes, in one part: in one of several parts, a long list would have no room.
fn cache<T: Clone>(bytes_max: u64) -> Cache<Key, T, Weights>
where
    Weights: Weighter<Key, T>,
{
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(200)
        .weight_capacity(bytes_max)
        .build();
    match options {
        Ok(options) => Cache::with_options(
            options,
            Weights,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ),
        // This fails only without a capacity, and one is given.
        Err(_) => Cache::with_weighter(200, bytes_max, Weights),
    }
}

impl Archives {
    /// Lets at most half of the machine's `cores` read archives.
    pub(crate) fn new(cores: usize) -> Archives {
        Archives {
            lists: cache(LISTS_BYTES_MAX),
            texts: cache(TEXTS_BYTES_MAX),
            share: ThreadShare::half(cores, 2 * WAITING_MAX),
            comparisons: ThreadShare::new(COMPARED_AT_ONCE, WAITING_MAX),
        }
    }

    /// The members of a file, with the digests of their bytes if they are wanted.
    ///
    /// # Errors
    /// [`LookError`]
    pub(crate) async fn members(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        has_digests: bool,
    ) -> Result<ArchiveLook<Contents>, LookError> {
        let key = Key { file: file.clone(), what: ArchivePart::Members { has_digests } };
        let reading = self.read(blobs, directory, file, move |reader, file_bytes, filename| {
            let limits = ContentsLimits::default();
            archive::members(reader, file_bytes, filename, &limits, has_digests)
                .map(Option::unwrap_or_default)
        });
        self.lists.get_or_insert_async(&key, reading).await
    }

    /// The beginning of the member with this number; `None` if the archive has no such file.
    ///
    /// # Errors
    /// [`LookError`]
    pub(crate) async fn member(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        number: usize,
    ) -> Result<ArchiveLook<Option<MemberText>>, LookError> {
        let limits = ContentsLimits::default();
        if number >= limits.members_max {
            return Ok(Arc::new(Ok(None)));
        }
        // A list that is there says what need not be looked for.
        let listed = [false, true].into_iter().find_map(|has_digests| {
            let what = ArchivePart::Members { has_digests };
            self.lists.get(&Key { file: file.clone(), what })
        });
        if let Some(Ok(contents)) = listed.as_deref()
            && !contents.is_cut
            && contents.members.get(number).is_none_or(|member| !member.is_file)
        {
            return Ok(Arc::new(Ok(None)));
        }
        let key = Key { file: file.clone(), what: ArchivePart::Member(number) };
        let reading = self.read(blobs, directory, file, move |reader, file_bytes, filename| {
            archive::member(reader, file_bytes, filename, &limits, number)
        });
        self.texts.get_or_insert_async(&key, reading).await
    }

    /// A place for a comparison, as soon as one is free; a request that waits for it has read nothing yet.
    ///
    /// # Errors
    /// [`LookError::Busy`]
    pub(crate) async fn comparison(&self) -> Result<(Turn, Turn), LookError> {
        let place = self.comparisons.enter().map_err(LookError::Busy)?;
        Ok((place, self.comparisons.turns.take().await))
    }

    /// Waits for a turn and calls `work`.
    ///
    /// # Errors
    /// [`LookError::Busy`]
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LookError> {
        let _place = self.share.enter().map_err(LookError::Busy)?;
        Ok(self.share.turns.take().await.run_apart(work).await)
    }

    async fn read<T: Send + 'static>(
        &self,
        blobs: &BlobStore,
        directory: &Path,
        file: &ArchiveFile,
        work: impl FnOnce(FileReader, u64, &Filename) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<ArchiveLook<T>, LookError> {
        let ArchiveFile { digest, filename } = file.clone();
        if !archive::is_archive(&filename) {
            return Ok(Arc::new(Err("files of this kind are not opened".to_owned())));
        }
        let _place = self.share.enter().map_err(LookError::Busy)?;
        let turn = self.share.turns.take().await;
        let opened = match local(blobs, digest).await {
            Ok(Some(opened)) => Ok((opened, turn)),
            Ok(None) => copied(blobs, directory, digest, COPY_BYTES_MAX, turn).await,
            Err(error) => Err(error),
        };
        let (opened, turn) = match opened {
            Ok(opened) => opened,
            Err(OpenZipError::Missing) => return Err(LookError::Missing),
            Err(OpenZipError::Large(bytes)) => {
                return Ok(Arc::new(Err(format!(
                    "it has {bytes} bytes, and at most {COPY_BYTES_MAX} are copied from the object store"
                ))));
            }
            Err(OpenZipError::Broken(error)) => return Ok(Arc::new(Err(error.to_string()))),
            Err(OpenZipError::Failed(error)) => return Err(LookError::Failed(error)),
        };
        let looking = move || {
            let file_bytes = opened.metadata().map_err(ArchiveError::Io)?.len();
            work(FileReader::from(opened), file_bytes, &filename)
        };
        match turn.run_apart(looking).await {
            Ok(found) => Ok(Arc::new(Ok(found))),
            Err(ArchiveError::Io(error)) => Err(LookError::Failed(error.to_string())),
            Err(error) => Ok(Arc::new(Err(error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use archive::ContentsMember;
    use store::BlobLocation;

    use super::*;

    fn file(text: &str) -> ArchiveFile {
        let filename = Filename::parse("foo-1.0.tar.gz").expect("a filename");
        ArchiveFile { digest: Digest::of(text.as_bytes()), filename }
    }

    fn listed(members: usize, is_cut: bool) -> ArchiveLook<Contents> {
        let member = |number: usize| ContentsMember {
            name: format!("foo-1.0/{number:0100}"),
            size_bytes: 1,
            is_file: number > 0,
            link: None,
            digest: Some(Digest::of(b"x")),
        };
        Arc::new(Ok(Contents { members: (0..members).map(member).collect(), is_cut }))
    }

    fn list_of(file: &ArchiveFile) -> Key {
        Key { file: file.clone(), what: ArchivePart::Members { has_digests: true } }
    }

    #[test]
    fn the_longest_lists_are_kept() {
        let archives = Archives::new(64);
        let key = list_of(&file("long"));
        archives.lists.insert(key.clone(), listed(ContentsLimits::default().members_max, false));
        assert!(archives.lists.get(&key).is_some());
    }

    #[tokio::test]
    async fn what_is_known_not_to_be_there_is_not_looked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let location = BlobLocation::Directory(directory.path().to_owned());
        let blobs = BlobStore::open(&location, directory.path()).await.expect("a store");
        let archives = Archives::new(2);
        let whole = file("whole");
        archives.lists.insert(list_of(&whole), listed(3, false));
        let looked = async |file: &ArchiveFile, number: usize| {
            archives.member(&blobs, directory.path(), file, number).await
        };
        // These are not in the store, so looking there would fail.
        for number in [0, 3, 19_999, 20_000, usize::MAX] {
            assert_eq!(looked(&whole, number).await.expect("no error").as_ref(), &Ok(None));
        }
        assert!(matches!(looked(&whole, 1).await, Err(LookError::Missing)));
        let cut = file("cut");
        archives.lists.insert(list_of(&cut), listed(3, true));
        assert!(matches!(looked(&cut, 3).await, Err(LookError::Missing)));
        assert!(archives.texts.is_empty());
    }
}
