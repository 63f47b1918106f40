//! [`promote()`]: a copy of a primary becomes the primary.
//!
//! It says first what is lost: commits that the primary was known to have and the copy lacks, and blobs that were never fetched.
//! The new primary has the name of the old one, and a higher generation, by which the two know each other.

use anyhow::{Context as _, bail};
use config::Config;
use following::{FollowerNote, generation};
use record::Serial;
use source::DataDirLock;
use store::{BlobStore, DatabaseLocation, Records, RecordsOptions};

use crate::named_blobs::NamedBlobs;

/// What a promotion does, or would do.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// What the copy knows of its primary.
    pub note: FollowerNote,
    /// The serial of the copy.
    pub serial: Serial,
    /// Blobs that its records name.
    pub blobs: u64,
    /// Those of them that are not here.
    pub blobs_missing: u64,
    /// The generation of the new primary; `None` if nothing was changed.
    pub generation: Option<u64>,
}

impl Promotion {
    /// Commits that the primary was known to have, and the copy lacks.
    pub fn commits_lost(&self) -> u64 {
        self.note.primary_serial.saturating_sub(self.serial.0)
    }
}

/// Makes the copy of `config` a primary, if it `is_meant`; otherwise only looks.
///
/// # Errors
/// There is no copy, or a server is running on it; files that cannot be read or written.
pub async fn promote(config: &Config, is_meant: bool) -> anyhow::Result<Promotion> {
    let data_dir = &config.data_dir;
    let Some(note) = FollowerNote::read(data_dir)? else {
        bail!(
            "`{}` holds no copy of another server: there is nothing to promote",
            data_dir.display()
        );
    };
    FollowerNote::refuse_part(data_dir, "become a primary")?;
    let _lock = DataDirLock::acquire(data_dir)?;
    if note.has_new_copy {
        bail!(
            "`{}` has a new copy that is not in its place yet: start the follower once, or remove `records.db.new` and \
             set `has_new_copy` in `{}` to false to promote the old one",
            data_dir.display(),
            following::NOTE_FILE_NAME
        );
    }
    let database = config.database();
    if let DatabaseLocation::Sqlite(path) = &database
        && !path.exists()
    {
        bail!("there are no records in {database}");
    }
    let blobs = BlobStore::open_existing(&config.blobs(), &data_dir.join("spool")).await;
    let blobs = blobs.with_context(|| format!("cannot open the blobs in `{}`", config.blobs()))?;
    let options = RecordsOptions { poll_interval: None, ..RecordsOptions::default() };
    let records = Records::open(&database, options).await?;
    let promoted = carry_out(&records, &blobs, note, is_meant).await;
    records.close().await;
    let promotion = promoted?;
    if promotion.generation.is_some() {
        FollowerNote::remove(data_dir)?;
    }
    Ok(promotion)
}

async fn carry_out(
    records: &Records,
    blobs: &BlobStore,
    note: FollowerNote,
    is_meant: bool,
) -> anyhow::Result<Promotion> {
    let named = NamedBlobs::read(records).await?;
    let mut blobs_missing = 0;
    for (digest, _) in named.blobs() {
        blobs_missing += u64::from(!blobs.contains(digest).await?);
    }
    let (serial, blobs) = (named.serial, named.count());
    let mut generation = None;
    if is_meant {
        let (batch, number) = generation::raise(records).await?;
        records.commit(batch).await?;
        generation = Some(number);
    }
    Ok(Promotion { note, serial, blobs, blobs_missing, generation })
}
