//! The store as a whole: backed up, restored, verified, and swept of blobs that no record names.
//!
//! a [`Store`] -> [`backup()`] -> a data directory -> [`restore()`] -> another store, serials and all; a store -> [`verify()`]
//! -> faults by name; a store -> [`sweep()`] -> free space; a configuration -> [`upgrade()`] -> what a start would change. Servers
//! may run on the store meanwhile, but not on one that is being restored. Of a record, only the blobs that it names are read here,
//! and no record is ever changed.

mod adopt;
mod backup;
mod copy;
mod flaw;
mod migrate;
mod progress;
mod promote;
mod restore;
mod sweep;
mod upgrade;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::Config;
use futures_util::stream::BoxStream;
use record::Digest;
use store::blobs::BlobEntry;
use store::{
    BlobError, BlobLocation, BlobStore, DatabaseLocation, OpenError, Records, RecordsOptions, Store,
};

use crate::setup;

pub use adopt::{Adoption, adopt};
pub use backup::{BackupReport, backup};
pub use copy::{CopiedBlobs, Loss};
pub use migrate::{Layout, layout, migrate};
pub use progress::Progress;
pub use promote::{Promotion, promote};
pub use restore::{RestoreReport, restore};
pub use sweep::{ReadRecords, SweepOutcome, SweepPlan, sweep};
pub use upgrade::{Change, UpgradeReport, upgrade};
pub use verify::{Fault, VerifyReport, verify};

/// Blobs that are copied or hashed at once.
const AT_ONCE_MAX: usize = 8;

/// Opens the store of `config` to read it. Nothing is created and no record can be written.
///
/// # Errors
/// What cannot be opened, with its place: also if there is no store yet, or one of an earlier layout.
pub async fn open_existing(config: &Config) -> anyhow::Result<Store> {
    let spool = config.data_dir.join("spool");
    open_at(&config.database(), &config.blobs(), &spool).await
}

/// Opens the store that a backup is, or any other data directory with records and blobs in it.
///
/// # Errors
/// As [`open_existing`].
pub(crate) async fn open_directory(directory: &Path) -> anyhow::Result<Store> {
    let (database, blobs) = locations(directory);
    open_at(&database, &blobs, directory).await
}

/// Where a data directory has its records and its blobs by default.
pub fn locations(directory: &Path) -> (DatabaseLocation, BlobLocation) {
    let database = DatabaseLocation::Sqlite(directory.join("records.db"));
    (database, BlobLocation::Directory(directory.join("blobs")))
}

async fn open_at(
    database: &DatabaseLocation,
    blobs: &BlobLocation,
    spool: &Path,
) -> anyhow::Result<Store> {
    // Opening would create the database, and a typo in a path must not make a new store.
    if let DatabaseLocation::Sqlite(path) = database {
        require(path.try_exists(), || database.to_string())?;
    }
    if let BlobLocation::Directory(path) = blobs {
        require(path.try_exists(), || path.display().to_string())?;
    }
    let records = match Records::open_read_only(database, RecordsOptions::default()).await {
        Err(OpenError::OlderLayout { found: 0, .. }) => bail!("there are no records in {database}"),
        Err(error @ OpenError::OlderLayout { .. }) => {
            return Err(anyhow::Error::from(error).context("`larder migrate` brings it forward"));
        }
        opened => opened.map_err(|error| setup::with_reason(database, error.into()))?,
    };
    let blobs = existing_blobs(blobs, spool).await?;
    Ok(Store { records, blobs })
}

/// Opens the blobs at a place that has some, or once had.
async fn existing_blobs(blobs: &BlobLocation, spool: &Path) -> anyhow::Result<BlobStore> {
    BlobStore::open_existing(blobs, spool)
        .await
        .with_context(|| format!("cannot open the blobs in `{blobs}`"))
}

fn require(exists: std::io::Result<bool>, place: impl Fn() -> String) -> anyhow::Result<()> {
    if exists.with_context(|| format!("cannot look for `{}`", place()))? {
        Ok(())
    } else {
        bail!(
            "there is no store: `{}` does not exist. Is that the one that you mean? `larder init` makes a new one",
            place()
        )
    }
}

/// The path of a database's file, if it is one, as the system names it.
fn file_of(database: &DatabaseLocation) -> Option<PathBuf> {
    match database {
        DatabaseLocation::Sqlite(path) => path.canonicalize().ok(),
        DatabaseLocation::Postgres(_) => None,
    }
}

/// The path of a directory of blobs, if it is one, as the system names it.
fn directory_of(blobs: &BlobLocation) -> Option<PathBuf> {
    match blobs {
        BlobLocation::Directory(path) => path.canonicalize().ok(),
        BlobLocation::S3 { .. } => None,
    }
}

/// The blobs of a portion of those that records name.
fn listed(
    blobs: &BlobStore,
    portion: Option<u8>,
) -> BoxStream<'static, Result<BlobEntry, BlobError>> {
    portion.map_or_else(|| blobs.list(), |first| blobs.list_part(first))
}

/// The name of a blob in messages.
fn blob_name(digest: &Digest) -> String {
    format!("the blob {digest}")
}
