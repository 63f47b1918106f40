//! [`rescue()`]: writes what a running server has in memory into a new store.
//!
//! the published state -> its records, serials and all -> a new `records.db`; the blobs that they name, from memory or from the
//! store -> a new directory of blobs. It is for a database that was damaged or lost while the server ran: then acknowledged
//! writes may be left in memory alone. Nothing of the damaged store is changed.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::{Digest, Key, Record, Serial};
use source::DataDirLock;
use state::identity;
use state::maintenance;
use state::named_blobs::NamedBlobs;
use state::stored::{IDENTITY_KEY, Stored};
use state::text::counted;
use store::{BlobStore, Records, RecordsOptions, StoreIdentity};

use crate::app::App;

/// Blobs that are copied at once.
const AT_ONCE_MAX: usize = 8;

/// Blobs that are named one by one.
const NAMED_MAX: usize = 100;

/// The outcome of a rescue.
#[derive(Clone, Debug)]
pub(crate) struct RescueReport {
    /// The new data directory.
    pub directory: PathBuf,
    /// The serial of the state.
    pub serial: Serial,
    /// Records that were written.
    pub records: u64,
    /// Blobs that they name and that are there.
    pub blobs: u64,
    /// Blobs that they name and that could not be had.
    pub lost: Vec<Digest>,
}

impl std::fmt::Display for RescueReport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RescueReport { directory, serial, records, blobs, lost } = self;
        let (records, blobs) = (counted(*records, "record"), counted(*blobs, "blob"));
        let directory = directory.display();
        write!(formatter, "rescued {records} of serial {serial} and {blobs} into `{directory}`")?;
        if !lost.is_empty() {
            write!(formatter, "; {} lost:", counted(lost.len() as u64, "blob"))?;
            for digest in lost.iter().take(NAMED_MAX) {
                write!(formatter, " {digest}")?;
            }
        }
        Ok(())
    }
}

/// Writes what is published into `directory`, a data directory that must not have records yet; by default a new one
/// in the data directory.
///
/// # Errors
/// Nothing was loaded yet; what cannot be written. Blobs that cannot be read are counted in [`RescueReport::lost`] and are no error.
pub(crate) async fn rescue(app: &App, directory: Option<PathBuf>) -> anyhow::Result<RescueReport> {
    let stored = app.live_store.snapshot_full().context("the store was never loaded")?;
    let directory = directory.unwrap_or_else(|| free(&app.config.data_dir, stored.serial));
    if !directory.is_absolute() && !directory.starts_with(&app.config.data_dir) {
        bail!("`{}` is a relative path: an absolute one was expected", directory.display());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(|| format!("cannot create `{}`", directory.display()))?;
    let _lock = DataDirLock::acquire(&directory)?;
    let (database, location) = maintenance::locations(&directory);
    if directory.join("records.db").exists() {
        bail!("`{}` has records already: another directory is needed", directory.display());
    }
    let name = stored.identity.as_ref().and_then(|name| name.to_str().ok());
    let name: StoreIdentity = name.context("the store has no name")?.parse()?;
    let blobs = BlobStore::open(&location, &directory).await?;
    identity::claim(&blobs, &name, None, &location).await?;
    let records = Records::open(&database, RecordsOptions::default()).await?;
    let written = write(&stored, &name, &records).await;
    let named = match written {
        Ok(_) => NamedBlobs::read(&records).await.map_err(anyhow::Error::from),
        Err(_) => Ok(NamedBlobs::default()),
    };
    // Readable from a disk that cannot be written, too.
    if let Err(error) = records.close_for_reading().await {
        tracing::debug!(%error, "the write-ahead log of the rescued records cannot be removed");
    }
    let (count, named) = (written?, named?);
    let copies = futures_util::stream::iter(named.blobs());
    let copies = copies.map(|(digest, _)| {
        let blobs = &blobs;
        async move {
            match copy(app, blobs, digest).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::error!(%digest, "a blob cannot be rescued: {error:#}");
                    Some(digest)
                }
            }
        }
    });
    let mut lost: Vec<Digest> =
        copies.buffer_unordered(AT_ONCE_MAX).filter_map(std::future::ready).collect().await;
    lost.sort_unstable();
    let blobs = named.count() - lost.len() as u64;
    Ok(RescueReport { directory, serial: stored.serial, records: count, blobs, lost })
}

/// A directory that is not there yet.
fn free(data_dir: &Path, serial: Serial) -> PathBuf {
    let names = (1..).map(|number| match number {
        1 => format!("rescued-{serial}"),
        number => format!("rescued-{serial}-{number}"),
    });
    let mut paths = names.map(|name| data_dir.join(name));
    paths.find(|path| !path.exists()).expect("there are more names than directories")
}

/// Writes the records of `stored` into the empty `target`; returns how many there are.
async fn write(stored: &Stored, name: &StoreIdentity, target: &Records) -> anyhow::Result<u64> {
    let identity = Record {
        key: Key::new(IDENTITY_KEY)?,
        serial: Serial(1),
        body: Some(Bytes::from(name.to_string())),
        blobs: Vec::new(),
    };
    let mut restore = target.restore().await?;
    let mut count = 0;
    let all = std::iter::once(identity).chain(stored.records());
    for record in all {
        restore.take(record).await?;
        count += 1;
    }
    restore.finish(stored.serial).await?;
    Ok(count)
}

/// Brings one blob over, from memory if it is there.
async fn copy(app: &App, target: &BlobStore, digest: Digest) -> anyhow::Result<()> {
    if let Some(content) = app.articles.contents.at_hand(&digest) {
        let bytes = content.body().identity().clone();
        target.put(bytes).await?;
        return Ok(());
    }
    if let Some(bytes) = app.python.small_files.at_hand(&digest) {
        target.put(bytes).await?;
        return Ok(());
    }
    let reader = app.store.blobs.open_blob(digest).await?.context("it is missing")?;
    let mut upload = target.begin(u64::MAX);
    let mut chunks = reader.read();
    while let Some(chunk) = chunks.try_next().await? {
        upload.write(chunk).await?;
    }
    let staged = upload.stage().await?;
    if staged.digest != digest {
        bail!("its bytes have the digest {}", staged.digest);
    }
    staged.persist().await?;
    Ok(())
}
