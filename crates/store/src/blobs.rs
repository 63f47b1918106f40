//! Blobs: bytes under their digest, in a directory or in an object store.
//!
//! chunks -> [`Upload`] (hashed, spooled) -> [`SpooledBlob`] (complete, can be looked into) -> [`Blob`]
//! (durable, so that a record may name it) -> [`BlobReader`]. What no record names is swept.
//!
//! - A blob that [`SpooledBlob::persist`] or [`BlobStore::put`] has returned survives `kill -9` and power loss.
//! - A blob is there whole or not at all; an upload that fails or is dropped leaves nothing.
//! - Putting bytes that are there already is fine, and makes their age new; so does
//!   [`BlobStore::touch`], which is for records that name a blob without its bytes being at hand.
//!   A writer stores or touches the blobs of a record shortly before it commits the record, so no sweep takes them.
//! - Memory is bounded: a few chunks of 256 KiB for each upload and each reader; for an upload to an
//!   object store two parts of 8 MiB (larger ones for blobs above 80 GB).
//! - No bytes are ever changed in place.
//!
//! Bytes are compared with their digest when a blob is read whole: one that is damaged is an error and never taken
//! for whole ([`BlobReader::read_range`]). [`BlobStore::verify`] hashes any blob again, [`BlobStore::damaged`] tells
//! what was found. A store whose blobs are [bound](BlobStore::bind) to it writes nothing into those of another one.

mod damage;
mod directory;
mod error;
mod highest_serial;
mod identity;
mod location;
mod object;
mod reader;
mod s3_settings;
mod spool;
mod sweep;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;

pub use self::error::{BlobError, FailureKind};
pub use self::identity::{StoreIdentity, StoreIdentityError};
pub use self::location::{BlobLocation, LocationError};
pub use self::object::{BlobStream, ObjectCache, Trimmed};
pub use self::reader::BlobReader;
pub use self::sweep::SweepReport;

use self::damage::DamageLog;
use self::directory::Directory;
use self::error::blocking;
use self::object::Objects;
use self::reader::Source;
use self::spool::{CHUNK_BYTES, Spool, SpooledFile};

/// What `VERSION` says, in a directory and in an object store.
const LAYOUT: &str = "larder blobs 1\n";

/// The blobs. Clones are cheap and share everything.
#[derive(Clone)]
pub struct BlobStore {
    backend: Backend,
    spool: Arc<Path>,
    damage: Arc<DamageLog>,
}

#[derive(Clone)]
enum Backend {
    Directory(Arc<Directory>),
    Objects(Arc<Objects>),
}

/// Bytes that are kept: durable, and named by their digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The SHA-256 of the bytes.
    pub digest: Digest,
    /// How many there are.
    pub size_bytes: u64,
}

/// One line of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobEntry {
    /// The blob's name; what is stored under it has not been hashed again.
    pub digest: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// When it was last put or touched, by the clock of the file system or of the object store.
    pub touched_at: SystemTime,
}

/// Whether a blob is what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its bytes have its digest.
    Whole,
    /// There is no such blob.
    Missing,
    /// Its bytes have another digest: some are lost or changed.
    Damaged {
        /// The digest of the bytes that are there.
        found: Digest,
    },
}

impl BlobStore {
    /// Opens the blobs at `location`, which is prepared if it is new. For an object store, settings
    /// come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
    /// `AWS_ENDPOINT_URL` (another store than Amazon's), `AWS_ALLOW_HTTP=true` (one without TLS) and
    /// so on; without credentials there, the machine's own role is asked for.
    ///
    /// `spool_directory` is where uploads to an object store are gathered, and must not be on another
    /// machine's disk; a directory gathers them within itself. What killed processes left there is
    /// removed; what other processes use stays.
    ///
    /// # Errors
    /// [`BlobError::Layout`] if another layout is there; [`BlobError::Settings`]; otherwise what the
    /// disk or the object store says. A prepared directory on a read-only disk is opened for reading.
    pub async fn open(
        location: &BlobLocation,
        spool_directory: &Path,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_with_settings(location, spool_directory, environment()).await
    }

    /// Opens the blobs at `location` as [`BlobStore::open`] left them; nothing is created or tidied up.
    ///
    /// # Errors
    /// Those of [`BlobStore::open`], and [`BlobError::Absent`] if the place was never prepared.
    pub async fn open_existing(
        location: &BlobLocation,
        spool_directory: &Path,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_existing_with_settings(location, spool_directory, environment()).await
    }

    /// As [`BlobStore::open`], with `settings` in place of the environment. Only names that begin
    /// with `AWS_` and that are known count.
    ///
    /// # Errors
    /// Those of [`BlobStore::open`].
    pub async fn open_with_settings(
        location: &BlobLocation,
        spool_directory: &Path,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_as(location, spool_directory, settings, false).await
    }

    /// As [`BlobStore::open_existing`], with `settings` in place of the environment.
    ///
    /// # Errors
    /// Those of [`BlobStore::open_existing`].
    pub async fn open_existing_with_settings(
        location: &BlobLocation,
        spool_directory: &Path,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_as(location, spool_directory, settings, true).await
    }

    async fn open_as(
        location: &BlobLocation,
        spool_directory: &Path,
        settings: impl IntoIterator<Item = (String, String)>,
        must_exist: bool,
    ) -> Result<BlobStore, BlobError> {
        let damage = Arc::<DamageLog>::default();
        match location {
            BlobLocation::Directory(path) => {
                let (path, log) = (path.clone(), damage.clone());
                let directory = blocking(move || Directory::open(&path, must_exist, log)).await?;
                let spool = directory.spool_directory().into();
                Ok(BlobStore { backend: Backend::Directory(Arc::new(directory)), spool, damage })
            }
            BlobLocation::S3 { bucket, prefix } => {
                let objects = Objects::open(bucket, prefix, settings, must_exist).await?;
                let spool: Arc<Path> = spool_directory.into();
                let store = BlobStore {
                    backend: Backend::Objects(Arc::new(objects)),
                    spool: spool.clone(),
                    damage,
                };
                if !must_exist {
                    blocking(move || spool::remove_stale(&spool, false)).await?;
                }
                Ok(store)
            }
        }
    }

    /// The cache beside the blobs, which processes share; none if the blobs are in a directory.
    pub fn cache(&self) -> Option<ObjectCache> {
        match &self.backend {
            Backend::Directory(_) => None,
            Backend::Objects(objects) => Some(ObjectCache::of(objects)),
        }
    }

    fn spool_directory(&self) -> Arc<Path> {
        Arc::clone(&self.spool)
    }

    /// The store that the blobs belong to, as it is named beside them now; none if nobody has named it yet.
    ///
    /// # Errors
    /// [`BlobError::Away`] if what is there is no name; otherwise what the disk or the object store says.
    pub async fn identity(&self) -> Result<Option<StoreIdentity>, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.identity()).await
            }
            Backend::Objects(objects) => objects.identity().await,
        }
    }

    /// Names the store that the blobs belong to, durably: if nobody has named it yet, or, `is_replacing`, in place of
    /// whatever name is there.
    ///
    /// # Errors
    /// [`BlobError::Away`] if another store is named there; otherwise what the disk or the object store says.
    pub async fn adopt(
        &self,
        identity: &StoreIdentity,
        is_replacing: bool,
    ) -> Result<(), BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let (directory, identity) = (Arc::clone(directory), identity.clone());
                blocking(move || directory.adopt(&identity, is_replacing)).await
            }
            Backend::Objects(objects) => objects.adopt(identity, is_replacing).await,
        }
    }

    /// From now on, for all clones, whatever is put, touched, listed or swept must be among the blobs of the store
    /// `identity`: where its name is not found, that is [`BlobError::Away`], and nothing is acknowledged. In a
    /// directory this is looked at before and after each write, in an object store beside each.
    ///
    /// # Errors
    /// [`BlobError::Away`] if they are not its blobs now.
    pub async fn bind(&self, identity: &StoreIdentity) -> Result<(), BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let (directory, identity) = (Arc::clone(directory), identity.clone());
                blocking(move || directory.bind(&identity)).await
            }
            Backend::Objects(objects) => objects.bind(identity).await,
        }
    }

    /// That the blobs are those of the store that they are bound to.
    ///
    /// # Errors
    /// [`BlobError::Away`]; otherwise what the disk or the object store says.
    pub async fn check_identity(&self) -> Result<(), BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.check_identity()).await
            }
            Backend::Objects(objects) => objects.check_identity().await,
        }
    }

    /// The blobs that this process has found missing or damaged, and not whole since: by digest, at most 10,000.
    pub fn damaged(&self) -> Vec<(Digest, Verdict)> {
        self.damage.all()
    }

    /// Notes what a blob that a record names was found to be.
    pub fn note(&self, digest: Digest, verdict: Verdict) {
        self.damage.note(digest, verdict);
    }

    /// Begins an upload of at most `bytes_max` bytes. Nothing is written yet.
    pub fn begin(&self, bytes_max: u64) -> Upload {
        Upload {
            store: self.clone(),
            bytes_max,
            size_bytes: 0,
            pending: Vec::new(),
            spool: None,
            is_broken: false,
        }
    }

    /// Keeps `bytes`, durably. For bytes that are in memory anyway; others are better
    /// [uploaded](BlobStore::begin).
    ///
    /// # Errors
    /// What the disk or the object store says; nothing is left behind.
    pub async fn put(&self, bytes: Bytes) -> Result<Blob, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || {
                    directory.check_identity()?;
                    let mut spool = Spool::create(directory.spool_directory())?;
                    spool.write(&bytes)?;
                    let spooled = spool.finish();
                    let blob = Blob { digest: spooled.digest, size_bytes: spooled.size_bytes };
                    directory.persist(spooled)?;
                    Ok(blob)
                })
                .await
            }
            Backend::Objects(objects) => {
                let hashed = bytes.clone();
                let digest = blocking(move || Ok(Digest::of(&hashed))).await?;
                let size_bytes = bytes.len() as u64;
                persist_object(objects, digest, object::Upload::Memory(bytes)).await?;
                Ok(Blob { digest, size_bytes })
            }
        }
    }

    /// Makes the blob's age new, so that no sweep takes it within its grace; says whether it is there.
    /// Touch a blob before you commit a record that names it, unless you have just put it.
    ///
    /// # Errors
    /// What the disk or the object store says.
    pub async fn touch(&self, digest: Digest) -> Result<bool, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.touch(&digest)).await
            }
            Backend::Objects(objects) => {
                let task = tokio::spawn(Arc::clone(objects).touch(digest));
                task.await.unwrap_or_else(|error| Err(BlobError::task(error)))
            }
        }
    }

    /// Opens a blob for reading; none if there is no such blob.
    ///
    /// # Errors
    /// [`BlobError::Damaged`] if it has no bytes, but should have; otherwise what the disk or the object store says.
    pub async fn open_blob(&self, digest: Digest) -> Result<Option<BlobReader>, BlobError> {
        let damage = Arc::clone(&self.damage);
        let reader = match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || {
                    let place = || directory.path(&digest).display().to_string().into();
                    Ok(directory.open_blob(&digest)?.map(|(file, stamp)| BlobReader {
                        digest,
                        size_bytes: stamp.size_bytes,
                        source: Source::File(Arc::new(file), place(), stamp),
                        damage,
                    }))
                })
                .await?
            }
            Backend::Objects(objects) => {
                let size_bytes = objects.size_bytes(&digest).await?;
                if size_bytes.is_none() {
                    objects.check_identity().await?;
                }
                size_bytes.map(|size_bytes| BlobReader {
                    digest,
                    size_bytes,
                    source: Source::Object(Arc::clone(objects)),
                    damage,
                })
            }
        };
        reader.map(BlobReader::check_empty).transpose()
    }

    /// All bytes of a blob; none if there is no such blob.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] if it has more than `bytes_max` bytes, and nothing was read; otherwise
    /// what the disk or the object store says.
    pub async fn bytes(&self, digest: Digest, bytes_max: u64) -> Result<Option<Bytes>, BlobError> {
        match self.open_blob(digest).await? {
            Some(reader) => Ok(Some(reader.bytes(bytes_max).await?)),
            None => Ok(None),
        }
    }

    /// Whether there is such a blob. It may be swept the next moment: see [`BlobStore::touch`].
    ///
    /// # Errors
    /// What the disk or the object store says.
    pub async fn contains(&self, digest: Digest) -> Result<bool, BlobError> {
        Ok(self.size_bytes(digest).await?.is_some())
    }

    /// A blob's size in bytes; none if there is no such blob.
    ///
    /// # Errors
    /// What the disk or the object store says.
    pub async fn size_bytes(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.size_bytes(&digest)).await
            }
            Backend::Objects(objects) => objects.size_bytes(&digest).await,
        }
    }

    /// The file that is the blob, or would be if there were such a blob; none in an object store.
    /// It must not be written to.
    pub fn local_path(&self, digest: Digest) -> Option<PathBuf> {
        match &self.backend {
            Backend::Directory(directory) => Some(directory.path(&digest)),
            Backend::Objects(_) => None,
        }
    }

    /// Hashes a blob again. Nothing is changed.
    ///
    /// # Errors
    /// What the disk or the object store says.
    pub async fn verify(&self, digest: Digest) -> Result<Verdict, BlobError> {
        let found = match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.rehash(&digest)).await?
            }
            Backend::Objects(objects) => Arc::clone(objects).rehash(digest).await?,
        };
        let verdict = match found {
            // Whether it should be there, only the records know.
            None => return Ok(Verdict::Missing),
            Some(found) if found == digest => Verdict::Whole,
            Some(found) => Verdict::Damaged { found },
        };
        self.damage.note(digest, verdict);
        Ok(verdict)
    }

    /// All blobs, in no particular order, in bounded memory. One that is put or swept during the
    /// listing may or may not be in it. The stream fails with what the disk or the object store says.
    pub fn list(&self) -> BoxStream<'static, Result<BlobEntry, BlobError>> {
        let batches = self.list_batches();
        batches.map_ok(|batch| futures_util::stream::iter(batch).map(Ok)).try_flatten().boxed()
    }

    /// All blobs, some at a time.
    fn list_batches(&self) -> BoxStream<'static, Result<Vec<BlobEntry>, BlobError>> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                let list = move |first| {
                    let directory = Arc::clone(&directory);
                    blocking(move || directory.list(first))
                };
                futures_util::stream::iter(0..=u8::MAX).then(list).boxed()
            }
            Backend::Objects(objects) => Arc::clone(objects).list().boxed(),
        }
    }
}

/// Uploads in a task of its own: if the caller goes away, the upload still ends or is aborted, and
/// leaves no parts in the object store.
async fn persist_object(
    objects: &Arc<Objects>,
    digest: Digest,
    upload: object::Upload,
) -> Result<(), BlobError> {
    let task = tokio::spawn(Arc::clone(objects).persist(digest, upload));
    task.await.unwrap_or_else(|error| Err(BlobError::task(error)))
}

/// The variables of the environment that are text.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()))
        .collect()
}

/// The error for a `VERSION` that is not ours.
fn unknown_layout(place: String, found: &[u8]) -> BlobError {
    let found = String::from_utf8_lossy(&found[..found.len().min(80)]).trim_end().to_owned();
    BlobError::Layout { place, found, expected: LAYOUT.trim_end() }
}

/// Bytes on their way in. Dropping it leaves nothing.
pub struct Upload {
    store: BlobStore,
    bytes_max: u64,
    size_bytes: u64,
    /// Bytes that are not in the spool yet; fewer than a chunk.
    pending: Vec<u8>,
    /// None before the first chunk, and after a failure.
    spool: Option<Spool>,
    is_broken: bool,
}

impl Upload {
    /// Takes the next bytes, of any number. They are gathered to chunks of 256 KiB, which are hashed
    /// and written away from the runtime's threads.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] as soon as the bytes are more than allowed; otherwise what the disk
    /// says. After an error nothing is left of the upload, and every later call is
    /// [`BlobError::Abandoned`]; so it is after a call whose future was dropped before its end.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), BlobError> {
        if self.is_broken {
            return Err(BlobError::Abandoned);
        }
        let size_bytes = self.size_bytes.saturating_add(bytes.len() as u64);
        if size_bytes > self.bytes_max {
            self.is_broken = true;
            self.spool = None;
            self.pending = Vec::new();
            return Err(BlobError::TooLarge { bytes_max: self.bytes_max });
        }
        self.size_bytes = size_bytes;
        let missing = CHUNK_BYTES - self.pending.len();
        if bytes.len() >= missing {
            // What is written in whole chunks is in few large pieces in the system's cache: it is sent from there with less work.
            self.pending.extend_from_slice(&bytes.split_to(missing));
            let chunks = bytes.split_to(bytes.len() / CHUNK_BYTES * CHUNK_BYTES);
            self.spool(chunks).await?;
        }
        // Copied, because a small piece may be a slice that keeps a large buffer in memory.
        self.pending.extend_from_slice(&bytes);
        Ok(())
    }

    /// Moves the pending bytes, and `bytes` after them, to the spool.
    async fn spool(&mut self, bytes: Bytes) -> Result<(), BlobError> {
        // Until they are down: an abandoned future must not leave a hole.
        self.is_broken = true;
        let mut pending = std::mem::take(&mut self.pending);
        let spool = self.spool.take();
        let (store, directory) = (self.store.clone(), self.store.spool_directory());
        let (spool, pending) = blocking(move || {
            let mut spool = match spool {
                Some(spool) => spool,
                None => {
                    if let Backend::Directory(directory) = &store.backend {
                        directory.check_identity()?;
                    }
                    Spool::create(&directory)?
                }
            };
            spool.write(&pending)?;
            spool.write(&bytes)?;
            pending.clear();
            Ok((spool, pending))
        })
        .await?;
        self.spool = Some(spool);
        self.pending = pending;
        self.is_broken = false;
        Ok(())
    }

    /// How many bytes were taken so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// All bytes are there.
    ///
    /// # Errors
    /// Those of [`Upload::write`].
    pub async fn stage(mut self) -> Result<SpooledBlob, BlobError> {
        if self.is_broken {
            return Err(BlobError::Abandoned);
        }
        self.spool(Bytes::new()).await?;
        let spool = self.spool.take().ok_or(BlobError::Abandoned)?;
        let file = spool.finish();
        let (digest, size_bytes) = (file.digest, file.size_bytes);
        Ok(SpooledBlob { digest, size_bytes, store: self.store, file })
    }
}

/// Bytes that are complete, but not kept yet. Dropping it leaves nothing.
pub struct SpooledBlob {
    /// The SHA-256 of the bytes.
    pub digest: Digest,
    /// How many there are.
    pub size_bytes: u64,
    store: BlobStore,
    file: SpooledFile,
}

impl SpooledBlob {
    /// The bytes as a local file, open for reading, at its start: for a look inside before they are
    /// kept. It stays readable after this is kept or dropped. Using it blocks.
    ///
    /// # Errors
    /// What the disk says.
    pub fn file(&self) -> Result<File, BlobError> {
        let path = self.file.file.path();
        File::open(path).map_err(|error| BlobError::io("open", path, error))
    }

    /// Keeps the bytes, durably. If they are there already, their age is made new.
    ///
    /// Should this future be dropped before its end, the blob may be kept or not; nothing else is
    /// left behind.
    ///
    /// # Errors
    /// What the disk or the object store says; nothing is left behind.
    pub async fn persist(self) -> Result<Blob, BlobError> {
        let SpooledBlob { digest, size_bytes, store, file } = self;
        match &store.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.persist(file)).await?;
            }
            Backend::Objects(objects) => {
                // Opened anew: the upload may go on after the spool's name is gone.
                let path = file.file.path().to_owned();
                let opened = blocking(move || {
                    File::open(&path).map_err(|error| BlobError::io("open", &path, error))
                });
                let upload = object::Upload::File(Arc::new(opened.await?), size_bytes);
                persist_object(objects, digest, upload).await?;
            }
        }
        Ok(Blob { digest, size_bytes })
    }
}
