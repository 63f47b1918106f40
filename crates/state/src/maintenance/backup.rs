//! [`backup()`]: copies a store, as of one moment, into a directory that can be served as it is.
//!
//! records of one moment -> `records.db.new` -> the blobs that they name -> a check that all are there -> `backup.json`, which
//! announces the next backup -> `records.db`. Until the last step the previous backup stays whole, and its blobs are not copied
//! again.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::Config;
use following::FollowerNote;
use jiff::Timestamp;
use record::Serial;
use serde::{Deserialize, Serialize};
use source::DataDirLock;
use store::{
    BlobStore, DatabaseLocation, OpenError, Records, RecordsOptions, Store, StoreIdentity,
};

use super::copy::{CopiedBlobs, CopyMode, carry};
use super::{Progress, locations, open_existing};
use crate::identity;
use crate::named_blobs::NamedBlobs;

/// The file that describes a backup, within its directory.
pub(crate) const MARKER_FILE_NAME: &str = "backup.json";

/// The form of that file that this version writes, and the only one that it reads.
const MARKER_FORM: u32 = 1;

/// How often records are copied again because a blob that they named was swept before it was copied.
const ATTEMPTS_MAX: u32 = 4;

/// The outcome of a backup.
#[derive(Clone, Debug)]
pub struct BackupReport {
    /// The moment, as the store's serial.
    pub serial: Serial,
    /// Records, deleted ones included.
    pub records: u64,
    /// The blobs that they name. The backup has everything but the lost ones.
    pub blobs: CopiedBlobs,
}

/// [`MARKER_FILE_NAME`].
#[derive(Serialize, Deserialize)]
struct Marker {
    v: u32,
    serial: u64,
    /// The serial before, for as long as the records themselves may still be the earlier ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaces: Option<u64>,
    /// The name of the store that was backed up.
    identity: String,
    taken_at: Timestamp,
    /// The place of the records, without a password.
    source: String,
    records: u64,
    blobs: u64,
    blobs_bytes: u64,
    /// Blobs that are named, and that the store did not have any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<String>,
}

/// The backup that a directory holds.
struct EarlierBackup {
    serial: Serial,
    identity: StoreIdentity,
}

/// Copies the store of `config` into `directory`, which becomes a data directory. With `is_verifying`,
/// blobs of an earlier backup there are hashed again, and replaced if they are damaged.
///
/// # Errors
/// What cannot be read or written, with its place; a directory that holds anything but an earlier backup
/// of the same store. The earlier backup is whole then. Blobs that the store itself has lost are no error
/// here but [`CopiedBlobs::lost`].
pub async fn backup(
    config: &Config,
    directory: &Path,
    is_verifying: bool,
    progress: &Progress,
) -> anyhow::Result<BackupReport> {
    FollowerNote::refuse_part(&config.data_dir, "be backed up")?;
    let source = open_existing(config).await?;
    let made = into_directory(config, &source, directory, is_verifying, progress).await;
    progress.end();
    source.close().await;
    made
}

async fn into_directory(
    config: &Config,
    source: &Store,
    directory: &Path,
    is_verifying: bool,
    progress: &Progress,
) -> anyhow::Result<BackupReport> {
    let (database, place) = locations(directory);
    let (file, blob_directory) = (super::file_of(&database), super::directory_of(&place));
    if file.is_some_and(|file| Some(file) == super::file_of(&config.database()))
        || blob_directory.is_some_and(|it| Some(it) == super::directory_of(&config.blobs()))
    {
        bail!("`{}` is the store itself: a backup needs another directory", directory.display());
    }
    // Only the owner may read it: it has passwords' hashes and private packages.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot create `{}`", directory.display()))?;
    // No server may run on the directory, and no two backups may write it at once.
    let _lock = DataDirLock::acquire(directory)?;
    let name = name(&source.records).await?;
    let earlier = earlier(directory, &database).await?;
    if let Some(earlier) = earlier.as_ref().filter(|earlier| earlier.identity != name) {
        bail!(
            "`{}` holds a backup of the store {}, but this store is {name}",
            directory.display(),
            earlier.identity
        );
    }
    if let Some(found) = source.blobs.identity().await?.filter(|found| *found != name) {
        bail!(
            "the records are those of the store {name}, but the blobs belong to the store {found}"
        );
    }
    let target = BlobStore::open(&place, directory)
        .await
        .with_context(|| format!("cannot open the blobs in `{place}`"))?;
    identity::claim(&target, &name, None, &place).await?;
    let new = directory.join("records.db.new");
    let mut blobs = CopiedBlobs::default();
    let mut named = NamedBlobs::default();
    for attempt in 1..=ATTEMPTS_MAX {
        progress.begin("copying records");
        named = copy_records(&source.records, &new).await?;
        if let Some(earlier) = earlier.as_ref().filter(|earlier| earlier.serial > named.serial) {
            bail!(
                "`{}` holds a backup of serial {}, but the store is at {} only: it was set back",
                directory.display(),
                earlier.serial,
                named.serial
            );
        }
        let manner = CopyMode { is_verifying: is_verifying && attempt == 1, touched_after: None };
        let before = blobs;
        blobs = carry(&source.blobs, &target, &named, manner, progress).await?;
        blobs.copied += before.copied;
        blobs.copied_bytes += before.copied_bytes;
        // A blob that was deleted and swept before it was copied is not lost: newer records do not name it.
        if blobs.lost.is_empty() || blobs.name_losses(&source.records).await? {
            break;
        }
    }
    let report = BackupReport { serial: named.serial, records: named.records, blobs };
    let marker = Marker {
        v: MARKER_FORM,
        serial: report.serial.0,
        replaces: earlier.map(|earlier| earlier.serial.0),
        identity: name.to_string(),
        taken_at: Timestamp::now(),
        source: config.database().to_string(),
        records: report.records,
        blobs: report.blobs.there,
        blobs_bytes: report.blobs.there_bytes,
        lost: report.blobs.lost.iter().map(|loss| loss.digest.to_string()).collect(),
    };
    let directory = directory.to_owned();
    tokio::task::spawn_blocking(move || put_in_place(&directory, &new, &marker)).await??;
    Ok(report)
}

/// The name of a store.
async fn name(records: &Records) -> anyhow::Result<StoreIdentity> {
    match identity::of_records(records).await? {
        Some(identity) => Ok(identity),
        None => bail!("the store was never initialized: there is nothing to back up"),
    }
}

/// The backup in `directory`, if there is one.
///
/// # Errors
/// Also if there are records which are no backup, or were written to since they were one.
async fn earlier(
    directory: &Path,
    database: &DatabaseLocation,
) -> anyhow::Result<Option<EarlierBackup>> {
    let DatabaseLocation::Sqlite(path) = database else { return Ok(None) };
    if !path.try_exists().with_context(|| format!("cannot look for `{}`", path.display()))? {
        return Ok(None);
    }
    let marker_path = directory.join(MARKER_FILE_NAME);
    let marker = match std::fs::read(&marker_path) {
        Ok(marker) => marker,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "`{}` holds records that are no backup: nothing of it is touched",
            directory.display()
        ),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", marker_path.display()));
        }
    };
    let marker: Marker = serde_json::from_slice(&marker)
        .with_context(|| format!("`{}` is not what a backup writes", marker_path.display()))?;
    if marker.v != MARKER_FORM {
        bail!(
            "`{}` has the form {}, but {MARKER_FORM} was expected",
            marker_path.display(),
            marker.v
        );
    }
    // Opened for writing only if its last user left a log, which then goes into the file, or if it must be migrated: a writer
    // has to wait for readers.
    let [_, log, ..] = files(path);
    let opened = match std::fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0) {
        true => Records::open(database, RecordsOptions::default()).await,
        false => Records::open_read_only(database, RecordsOptions::default()).await,
    };
    let records = match opened {
        Err(OpenError::OlderLayout { .. }) => {
            Records::open(database, RecordsOptions::default()).await?
        }
        opened => opened?,
    };
    let found = async { anyhow::Ok((records.serial().await?, name(&records).await?)) }.await;
    // The backup needs no log again. If somebody is reading it, that fails, which does no harm.
    if let Err(error) = records.close_for_reading().await {
        tracing::debug!(%error, "the write-ahead log of the earlier backup cannot be removed");
    }
    let (serial, identity) = found?;
    if serial.0 != marker.serial && Some(serial.0) != marker.replaces {
        bail!(
            "`{}` was written to since it was a backup of serial {}: it is at serial {serial} now, \
             and nothing of it is touched",
            directory.display(),
            marker.serial
        );
    }
    Ok(Some(EarlierBackup { serial, identity }))
}

/// An SQLite file, and the files beside it while it is open or written.
fn files(path: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    })
}

/// Copies all records of one moment into a new file; returns the blobs that they name.
async fn copy_records(source: &Records, path: &Path) -> anyhow::Result<NamedBlobs> {
    for file in files(path) {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove `{}`", file.display()));
            }
            _ => {}
        }
    }
    let is_there = source.copy_file(path).await;
    let is_there =
        is_there.with_context(|| format!("cannot copy the records to `{}`", path.display()))?;
    let location = DatabaseLocation::Sqlite(path.to_owned());
    let target = Records::open(&location, RecordsOptions::default()).await?;
    let copied = async {
        if !is_there {
            source.copy_into(&target).await?;
        }
        anyhow::Ok(NamedBlobs::read(&target).await?)
    };
    let copied = copied.await;
    let closed = target.close_for_reading().await;
    let copied = copied?;
    closed.with_context(|| format!("cannot finish `{}`", path.display()))?;
    Ok(copied)
}

/// Makes the new records the backup's. Blocks.
fn put_in_place(directory: &Path, new: &Path, marker: &Marker) -> anyhow::Result<()> {
    let current = directory.join("records.db");
    let [new_file, new_log, ..] = files(new);
    let [_, log, memory, _] = files(&current);
    // SQLite would take a log that is left here for the new file's.
    for log in [&new_log, &log] {
        if std::fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0) {
            bail!("`{}` is in use: another process has it open", log.display());
        }
    }
    let place = || -> io::Result<()> {
        for leftover in [&new_log, &log, &memory] {
            match std::fs::remove_file(leftover) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&new_file)?.sync_all()?;
        let mut file = tempfile::Builder::new()
            .prefix(".backup-")
            .permissions(std::fs::Permissions::from_mode(0o640))
            .tempfile_in(directory)?;
        serde_json::to_writer_pretty(&mut file, marker)?;
        writeln!(file)?;
        file.as_file().sync_all()?;
        file.persist(directory.join(MARKER_FILE_NAME))?;
        File::open(directory)?.sync_all()?;
        std::fs::rename(&new_file, &current)?;
        File::open(directory)?.sync_all()
    };
    place().with_context(|| format!("cannot put the backup into `{}`", directory.display()))
}
