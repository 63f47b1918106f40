//! [`restore()`]: a backup, or any other data directory, brought into an empty store.
//!
//! the blobs that its records name -> (all there) -> the records with their serials, in one transaction.
//! If it is interrupted, the store is still empty, and blobs that have arrived are not copied again.

use std::path::Path;

use anyhow::{Context, bail};
use config::Config;
use record::Serial;
use source::DataDirLock;
use store::{BlobStore, Records, RecordsOptions, RestoreError, Store};

use super::copy::{CopiedBlobs, CopyMode, carry};
use super::{Progress, open_directory};
use crate::identity;
use crate::named_blobs::NamedBlobs;
use crate::setup;

/// The outcome of a restore.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// The serial that the store is at now.
    pub serial: Serial,
    /// Records, deleted ones included; zero if nothing was restored because of losses.
    pub records: u64,
    /// The blobs that the backup names.
    pub blobs: CopiedBlobs,
    /// Whether the records were restored.
    pub is_done: bool,
}

/// Copies the backup in `directory` into the store of `config`, which must be empty. If the directory lacks a blob that its
/// records name, it is restored only if `is_loss_allowed`.
///
/// # Errors
/// A file that cannot be read or written; a store that is not empty, with its serial. The store has not changed then.
pub async fn restore(
    config: &Config,
    directory: &Path,
    is_loss_allowed: bool,
    progress: &Progress,
) -> anyhow::Result<RestoreReport> {
    let source = open_directory(directory).await?;
    let restored = from_store(config, &source, is_loss_allowed, progress).await;
    progress.end();
    source.close().await;
    restored
}

async fn from_store(
    config: &Config,
    source: &Store,
    is_loss_allowed: bool,
    progress: &Progress,
) -> anyhow::Result<RestoreReport> {
    setup::create_data_dir(&config.data_dir)?;
    let _lock = DataDirLock::acquire(&config.data_dir)?;
    let location = config.database();
    let records = Records::open(&location, RecordsOptions::default()).await?;
    let not_empty = |error: RestoreError| match error {
        RestoreError::NotEmpty { found } => anyhow::anyhow!(
            "the store in {location} is not empty: it is at serial {found}; nothing was changed"
        ),
        error => anyhow::Error::from(error).context(format!("cannot restore into {location}")),
    };
    let restoring = async {
        // Before the work, not after it. Dropped, it leaves nothing.
        records.restore().await.map(drop).map_err(not_empty)?;
        let (blobs, spool) = (config.blobs(), config.data_dir.join("spool"));
        let target = BlobStore::open(&blobs, &spool)
            .await
            .with_context(|| format!("cannot open the blobs in `{blobs}`"))?;
        bring(config, source, &target, &records, is_loss_allowed, progress, not_empty).await
    };
    let restored = restoring.await;
    records.close().await;
    restored
}

async fn bring(
    config: &Config,
    source: &Store,
    target: &BlobStore,
    records: &Records,
    is_loss_allowed: bool,
    progress: &Progress,
    not_empty: impl Fn(RestoreError) -> anyhow::Error,
) -> anyhow::Result<RestoreReport> {
    progress.begin("reading records");
    let named = NamedBlobs::read(&source.records).await?;
    if named.serial == Serial::ZERO {
        bail!("there is nothing in the backup");
    }
    // The restored store gets the name in the backup. The target's blobs must have that name, or none.
    let Some(name) = identity::of_records(&source.records).await? else {
        bail!("there is nothing in the backup: its records are of no store");
    };
    identity::claim(target, &name, Some(&named), &config.blobs()).await?;
    // Blobs of an earlier attempt may be old enough for another server's sweep.
    let manner =
        CopyMode { is_verifying: false, touched_after: Some(config.store.sweep_grace / 4) };
    let mut blobs = carry(&source.blobs, target, &named, manner, progress).await?;
    if !blobs.lost.is_empty() {
        blobs.name_losses(&source.records).await?;
    }
    let is_done = blobs.lost.is_empty() || is_loss_allowed;
    let mut serial = Serial::ZERO;
    if is_done {
        // The administrator wants these records, even if the blobs know later ones. This comes before the records, so that no
        // start finds them with the higher serial.
        target.reset_serial(&name, named.serial).await?;
        progress.begin("copying records");
        serial = source.records.copy_into(records).await.map_err(not_empty)?;
    }
    let records = if is_done { named.records } else { 0 };
    Ok(RestoreReport { serial, records, blobs, is_done })
}
