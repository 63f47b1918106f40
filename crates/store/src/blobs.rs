//! Blobs: bytes under their digest, in a directory or in an object store.
//!
//! chunks -> [`Upload`] (hashed, spooled) -> [`SpooledBlob`] (complete, can be looked into) -> [`Blob`] (durable, so that a
//! record may name it) -> [`BlobReader`]. Blobs that no record names are swept.
//!
//! - A blob that [`SpooledBlob::persist`] or [`BlobStore::put`] has returned survives `kill -9` and power loss.
//! - A blob exists whole or not at all; an upload that fails or is dropped leaves nothing.
//! - Putting bytes that are already stored is allowed, and makes the blob young again. [`BlobStore::touch`] does that without
//!   the bytes, for a record that names a blob which is stored already. A writer stores or touches the blobs of a record
//!   shortly before it commits the record, so no sweep takes them.
//! - Memory is bounded: a few chunks of 256 KiB for each upload and each reader; for an upload to an
//!   object store two parts of 8 MiB (larger ones for blobs above 80 GB).
//! - No bytes are ever changed in place.
//!
//! When a blob is read whole, its bytes are compared with its digest; a damaged one is an error ([`BlobReader::read_range`]).
//! [`BlobStore::verify`] hashes any blob again, [`BlobStore::damaged`] tells what was found. A store whose blobs are
//! [bound](BlobStore::bind) to it writes nothing into those of another one.

mod damage;
mod directory;
mod error;
mod highest_serial;
mod identity;
mod location;
mod object;
mod origin;
mod reader;
mod s3_settings;
mod spool;
mod sweep;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;

pub use self::error::{BlobError, FailureKind};
pub use self::identity::{StoreIdentity, StoreIdentityError};
pub use self::location::{BlobLocation, LocationError};
pub use self::object::{BlobStream, ObjectCache, TrimReport};
pub use self::origin::Origin;
pub use self::reader::BlobReader;
pub use self::sweep::SweepReport;

use self::damage::DamageLog;
use self::directory::Directory;
use self::error::blocking;
use self::object::Objects;
use self::reader::Source;
use self::spool::{CHUNK_BYTES, Spool, SpooledFile};

/// The content of `VERSION`, in a directory and in an object store.
const LAYOUT: &str = "larder blobs 1\n";

/// Objects that are read at once for one caller.
const READ_AT_ONCE: usize = 8;

/// The blobs. Clones are cheap and share everything.
#[derive(Clone)]
pub struct BlobStore {
    backend: Backend,
    spool: Arc<Path>,
    damage: Arc<DamageLog>,
    origin: Arc<OnceLock<Arc<dyn Origin>>>,
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
    /// The blob's name; its bytes have not been hashed again.
    pub digest: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// When it was last put or touched, by the clock of the file system or of the object store.
    pub touched_at: SystemTime,
}

/// Whether a blob is what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobVerdict {
    /// Its bytes have its digest.
    Whole,
    /// The blob does not exist.
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
    /// Uploads to an object store are spooled in `spool_directory`, which must not be on another machine's disk; a directory
    /// has its own spools. Spools of killed processes are removed; those of other running processes stay.
    ///
    /// # Errors
    /// [`BlobError::Layout`] if the place has another layout; [`BlobError::Settings`]; otherwise the error of the disk or the
    /// object store. A prepared directory on a read-only disk is opened for reading.
    pub async fn open(
        location: &BlobLocation,
        spool_directory: &Path,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_with(location, spool_directory, environment(), false).await
    }

    /// Opens the blobs at `location` as [`BlobStore::open`] left them; nothing is created or tidied up.
    ///
    /// # Errors
    /// Those of [`BlobStore::open`], and [`BlobError::Absent`] if the place was never prepared.
    pub async fn open_existing(
        location: &BlobLocation,
        spool_directory: &Path,
    ) -> Result<BlobStore, BlobError> {
        BlobStore::open_with(location, spool_directory, environment(), true).await
    }

    /// [`BlobStore::open`], or [`BlobStore::open_existing`] if it must exist, with `settings` instead of the environment. Unknown
    /// names, and those that do not begin with `AWS_`, are ignored.
    ///
    /// # Errors
    /// Those of [`BlobStore::open`] and [`BlobStore::open_existing`].
    pub async fn open_with(
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
                let backend = Backend::Directory(Arc::new(directory));
                Ok(BlobStore { backend, spool, damage, origin: Arc::default() })
            }
            BlobLocation::S3 { bucket, prefix } => {
                let objects = Objects::open(bucket, prefix, settings, must_exist).await?;
                let spool: Arc<Path> = spool_directory.into();
                let store = BlobStore {
                    backend: Backend::Objects(Arc::new(objects)),
                    spool: spool.clone(),
                    damage,
                    origin: Arc::default(),
                };
                if !must_exist {
                    blocking(move || spool::remove_stale(&spool, false)).await?;
                }
                Ok(store)
            }
        }
    }

    /// The cache beside the blobs, which processes share; `None` if the blobs are in a directory.
    pub fn cache(&self) -> Option<ObjectCache> {
        match &self.backend {
            Backend::Directory(_) => None,
            Backend::Objects(objects) => Some(ObjectCache::of(objects)),
        }
    }

    fn spool_directory(&self) -> Arc<Path> {
        Arc::clone(&self.spool)
    }

    /// The store that the blobs belong to, by the name beside them now; `None` if they have no name yet.
    ///
    /// # Errors
    /// [`BlobError::Away`] if the file or object has no valid name; otherwise the error of the disk or the object store.
    pub async fn identity(&self) -> Result<Option<StoreIdentity>, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.identity()).await
            }
            Backend::Objects(objects) => objects.identity().await,
        }
    }

    /// Durably names the store that the blobs belong to, if they have no name yet, or if `is_replacing`, whatever name they
    /// have.
    ///
    /// # Errors
    /// [`BlobError::Away`] if another store is named there; otherwise the error of the disk or the object store.
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

    /// From now on, for all clones, every put, touch, listing and sweep first checks that the blobs belong to the store
    /// `identity`. If they do not, it fails with [`BlobError::Away`], and no write is acknowledged. A directory is checked
    /// before and after each write, an object store during each.
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

    /// Checks that the blobs belong to the store that they are bound to.
    ///
    /// # Errors
    /// [`BlobError::Away`]; otherwise the error of the disk or the object store.
    pub async fn check_identity(&self) -> Result<(), BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.check_identity()).await
            }
            Backend::Objects(objects) => objects.check_identity().await,
        }
    }

    /// What time it is where the blobs are: that of a file or an object which was written just now.
    ///
    /// # Errors
    /// [`BlobError::Away`]; the error of the disk or the object store.
    pub async fn now(&self) -> Result<SystemTime, BlobError> {
        self.check_identity().await?;
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || Spool::create(directory.spool_directory())?.written_at()).await
            }
            Backend::Objects(objects) => objects.now().await,
        }
    }

    /// The blobs that this process has found missing or damaged, and not whole since: by digest, at most 10,000.
    pub fn damaged(&self) -> Vec<(Digest, BlobVerdict)> {
        self.damage.all()
    }

    /// Notes the verdict about a blob that a record names.
    pub fn note(&self, digest: Digest, verdict: BlobVerdict) {
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
    /// Errors of the disk or the object store; nothing is left behind.
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

    /// Renews the blob's age, so that no sweep removes it within its grace; returns whether the blob exists. Touch a blob
    /// before you commit a record that names it, unless you have just put it.
    ///
    /// # Errors
    /// Errors of the disk or the object store.
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

    /// Opens a blob for reading; `None` if it does not exist, here and where blobs [come from](BlobStore::fetch_from).
    ///
    /// # Errors
    /// [`BlobError::Damaged`] if it has no bytes, but should have; otherwise the error of the disk or the object store.
    pub async fn open_blob(&self, digest: Digest) -> Result<Option<BlobReader>, BlobError> {
        let Some(origin) = self.origin.get() else { return self.open_here(digest).await };
        let here = match self.damage.is_damaged(&digest) {
            true => None,
            false => self.open_here(digest).await?,
        };
        match here {
            None if origin.fetch(self, digest).await? => self.open_here(digest).await,
            here => Ok(here),
        }
    }

    async fn open_here(&self, digest: Digest) -> Result<Option<BlobReader>, BlobError> {
        let damage = Arc::clone(&self.damage);
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || opened_file(&directory, &damage, digest)).await
            }
            Backend::Objects(objects) => {
                let size_bytes = objects.size_bytes(&digest).await?;
                if size_bytes.is_none() {
                    objects.check_identity().await?;
                }
                let source = Source::Object(Arc::clone(objects));
                let reader =
                    size_bytes.map(|size_bytes| BlobReader { digest, size_bytes, source, damage });
                reader.map(BlobReader::check_empty).transpose()
            }
        }
    }

    /// All bytes of a blob; `None` if it does not exist.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] if it has more than `bytes_max` bytes, and nothing was read; otherwise the error of the disk or
    /// the object store.
    pub async fn bytes(&self, digest: Digest, bytes_max: u64) -> Result<Option<Bytes>, BlobError> {
        match self.open_blob(digest).await? {
            Some(reader) => Ok(Some(reader.bytes(bytes_max).await?)),
            None => Ok(None),
        }
    }

    /// The first bytes of some blobs, at most `bytes_max` of each, in their order; `None` for one that does not exist. All files are
    /// read in one go: to wake a thread for each takes longer than to read it.
    ///
    /// # Errors
    /// For each blob, as [`BlobReader::read_range`].
    pub async fn beginnings(
        &self,
        digests: Vec<Digest>,
        bytes_max: usize,
    ) -> Vec<Result<Option<Bytes>, BlobError>> {
        let files = match &self.backend {
            Backend::Directory(directory) => {
                let (directory, damage) = (Arc::clone(directory), Arc::clone(&self.damage));
                let (wanted, has_origin) = (digests.clone(), self.origin.get().is_some());
                let read = move |digest: &Digest| {
                    // The origin has it whole.
                    if has_origin && damage.is_damaged(digest) {
                        return None;
                    }
                    let opened = opened_file(&directory, &damage, *digest).transpose()?;
                    Some(opened.and_then(|blob| blob.beginning_of_file(bytes_max)))
                };
                let reading = blocking(move || Ok(wanted.iter().map(read).collect()));
                reading.await.unwrap_or_default()
            }
            Backend::Objects(_) => Vec::new(),
        };
        let mut files = files.into_iter();
        let all = digests.into_iter().map(|digest| {
            let file: Option<Result<Bytes, BlobError>> = files.next().flatten();
            async move {
                match file {
                    Some(bytes) => bytes.map(Some),
                    None => self.beginning(digest, bytes_max).await,
                }
            }
        });
        let all: Vec<_> = all.collect();
        futures_util::stream::iter(all).buffered(READ_AT_ONCE).collect().await
    }

    async fn beginning(
        &self,
        digest: Digest,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, BlobError> {
        let Some(blob) = self.open_blob(digest).await? else { return Ok(None) };
        let join = |mut all: BytesMut, chunk: Bytes| async move {
            all.extend_from_slice(&chunk);
            Ok(all)
        };
        let bytes = blob.read_range(0..bytes_max as u64).try_fold(BytesMut::new(), join).await?;
        Ok(Some(bytes.freeze()))
    }

    /// Whether the blob exists. It may be swept the next moment: see [`BlobStore::touch`].
    ///
    /// # Errors
    /// The error of the disk or the object store.
    pub async fn contains(&self, digest: Digest) -> Result<bool, BlobError> {
        Ok(self.size_bytes(digest).await?.is_some())
    }

    /// A blob's size in bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of the disk or the object store.
    pub async fn size_bytes(&self, digest: Digest) -> Result<Option<u64>, BlobError> {
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.size_bytes(&digest)).await
            }
            Backend::Objects(objects) => objects.size_bytes(&digest).await,
        }
    }

    /// The path of the blob's file, whether it exists or not; `None` in an object store. The file must not be written to.
    pub fn local_path(&self, digest: Digest) -> Option<PathBuf> {
        match &self.backend {
            Backend::Directory(directory) => Some(directory.path(&digest)),
            Backend::Objects(_) => None,
        }
    }

    /// Hashes a blob again. Nothing is changed.
    ///
    /// # Errors
    /// Errors of the disk or the object store.
    pub async fn verify(&self, digest: Digest) -> Result<BlobVerdict, BlobError> {
        let found = match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.rehash(&digest)).await?
            }
            Backend::Objects(objects) => Arc::clone(objects).rehash(digest).await?,
        };
        let verdict = match found {
            // Only the records know whether it should exist.
            None => return Ok(BlobVerdict::Missing),
            Some(found) if found == digest => BlobVerdict::Whole,
            Some(found) => BlobVerdict::Damaged { found },
        };
        self.damage.note(digest, verdict);
        Ok(verdict)
    }

    /// All blobs, in no particular order, in bounded memory. One that is put or swept during the listing may or may not be in
    /// it. The stream fails with the error of the disk or the object store.
    pub fn list(&self) -> BoxStream<'static, Result<BlobEntry, BlobError>> {
        let batches = self.list_batches();
        batches.map_ok(|batch| futures_util::stream::iter(batch).map(Ok)).try_flatten().boxed()
    }

    /// The blobs whose digests begin with this byte; otherwise as [`BlobStore::list`].
    pub fn list_part(&self, first: u8) -> BoxStream<'static, Result<BlobEntry, BlobError>> {
        let batches = match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                let list = blocking(move || directory.list(first));
                futures_util::stream::once(list).boxed()
            }
            Backend::Objects(objects) => {
                Arc::clone(objects).list(&format!("sha256/{first:02x}")).boxed()
            }
        };
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
            Backend::Objects(objects) => Arc::clone(objects).list("sha256").boxed(),
        }
    }
}

/// A blob of a directory, opened on this thread; `None` if it does not exist.
fn opened_file(
    directory: &Directory,
    damage: &Arc<DamageLog>,
    digest: Digest,
) -> Result<Option<BlobReader>, BlobError> {
    let Some((file, stamp)) = directory.open_blob(&digest)? else { return Ok(None) };
    let place = directory.path(&digest).display().to_string().into();
    let source = Source::File(Arc::new(file), place, stamp);
    let (size_bytes, damage) = (stamp.size_bytes, Arc::clone(damage));
    BlobReader { digest, size_bytes, source, damage }.check_empty().map(Some)
}

/// Uploads in a separate task: if the caller is dropped, the upload still ends or is aborted, and leaves no parts in the object
/// store.
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
    /// Takes the next bytes, of any number, gathers them to chunks of 256 KiB, and hashes and writes these on other threads
    /// than the runtime's.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] as soon as there are more bytes than allowed; otherwise the disk's error. After an error, or a
    /// call whose future was dropped before its end, nothing is left of the upload, and every later call is
    /// [`BlobError::Abandoned`].
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
            // Whole chunks become few large pieces in the system's cache, which take less work to send.
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
    /// Errors of the disk.
    pub fn file(&self) -> Result<File, BlobError> {
        let path = self.file.file.path();
        File::open(path).map_err(|error| BlobError::io("open", path, error))
    }

    /// Keeps the bytes, durably. If they are there already, renews their age.
    ///
    /// Should this future be dropped before its end, the blob may be kept or not; nothing else is
    /// left behind.
    ///
    /// # Errors
    /// Errors of the disk or the object store; nothing is left behind.
    pub async fn persist(self) -> Result<Blob, BlobError> {
        let SpooledBlob { digest, size_bytes, store, file } = self;
        match &store.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.persist(file)).await?;
            }
            Backend::Objects(objects) => {
                // A second open file, because the upload may go on after the spool's name is gone.
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
