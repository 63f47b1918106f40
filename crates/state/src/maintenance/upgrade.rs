//! [`upgrade()`]: what the first start of this version would change in a store and its data directory.
//!
//! a configuration -> [`UpgradeReport`]: what stands in the way, and each change with what it means for going back. Nothing is
//! written, not even a lock, so a server of another version may run meanwhile.

use std::collections::BTreeMap;

use anyhow::bail;
use config::Config;
use record::Serial;
use serde::Serialize;
use store::{
    BlobLocation, DatabaseLocation, Intake, OpenError, ReadError, Records, RecordsOptions, Store,
};

use super::{Progress, existing_blobs, require};
use crate::identity::{self, StoreMatch};
use crate::setup;
use crate::side_files::{self, AUR_HISTORY, AUR_HISTORY_FILES, AUR_HISTORY_WHAT, UnusableFile};
use crate::stored::Stored;
use crate::text::counted;

/// The kinds of records that this version knows: the first segments of their keys.
const KINDS: [&str; 11] = [
    "article",
    "attachments",
    "identity",
    "python",
    "secret",
    "session",
    "store",
    "token",
    "token-use",
    "upload-token",
    "user",
];

/// Most records that cannot be read which are named.
const UNREADABLE_MAX: usize = 20;

const NAMES_STAY: &str = "needs nothing, as an earlier version ignores it";
const BACKUP_ONLY: &str =
    "an earlier version refuses the new layout, so only a backup from before the change leads back";

/// Something that the first start would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What, and how.
    pub change: String,
    /// What it means for going back to the version before.
    pub going_back: String,
}

/// The outcome of a look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct UpgradeReport {
    /// Live records that were read; 0 if they could not be.
    pub records: u64,
    /// Why this version would not start, or what it would leave out.
    pub obstacles: Vec<String>,
    /// What it would change.
    pub changes: Vec<Change>,
}

impl UpgradeReport {
    fn change(&mut self, change: String, going_back: &str) {
        self.changes.push(Change { change, going_back: going_back.to_owned() });
    }
}

/// Looks at the store and the data directory of `config`.
///
/// # Errors
/// There is no store, or its database cannot be reached: then nothing is known.
pub async fn upgrade(config: &Config, progress: &Progress) -> anyhow::Result<UpgradeReport> {
    let looked = look(config, progress).await;
    progress.end();
    looked
}

async fn look(config: &Config, progress: &Progress) -> anyhow::Result<UpgradeReport> {
    let (database, location) = (config.database(), config.blobs());
    if let DatabaseLocation::Sqlite(path) = &database {
        require(path.try_exists(), || database.to_string())?;
    }
    if let BlobLocation::Directory(path) = &location {
        require(path.try_exists(), || path.display().to_string())?;
    }
    let mut report = UpgradeReport::default();
    let records = match Records::open_at_rest(&database, options()).await {
        Ok(records) => Some(records),
        Err(OpenError::OlderLayout { found: 0, .. }) => bail!("there are no records in {database}"),
        Err(OpenError::OlderLayout { found, known, .. }) => {
            let change = format!(
                "the records in {database} have layout {found}: they would be migrated to layout {known}, and can be \
                 looked at only then"
            );
            report.change(change, BACKUP_ONLY);
            None
        }
        Err(error @ OpenError::Unavailable { .. }) => return Err(error.into()),
        Err(error) => {
            report.obstacles.push(error.to_string());
            None
        }
    };
    let blobs = existing_blobs(&location, &config.data_dir.join("spool")).await;
    match (records, blobs) {
        (Some(records), Ok(blobs)) => {
            let store = Store { records, blobs };
            let looked = look_at_store(&store, &database, &location, progress, &mut report).await;
            store.close().await;
            looked?;
        }
        (records, blobs) => {
            report.obstacles.extend(blobs.err().map(|error| format!("{error:#}")));
            if let Some(records) = records {
                records.close().await;
            }
        }
    }
    look_at_side_files(config, &mut report).await?;
    Ok(report)
}

/// Nothing is followed: the look is at one moment.
fn options() -> RecordsOptions {
    RecordsOptions { poll_interval: None, ..RecordsOptions::default() }
}

async fn look_at_store(
    store: &Store,
    database: &DatabaseLocation,
    location: &BlobLocation,
    progress: &Progress,
    report: &mut UpgradeReport,
) -> anyhow::Result<()> {
    progress.begin("reading records");
    let mut intake = Intake::new(Stored::default());
    let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
    let read = store.records.read_after(Serial::ZERO, |record| {
        progress.step();
        if record.body.is_some() {
            report.records += 1;
            let kind = record.key.as_str().split('/').next().unwrap_or_default();
            if !KINDS.contains(&kind) {
                *unknown.entry(kind.to_owned()).or_default() += 1;
            }
        }
        intake.take(record);
    });
    let serial = match read.await {
        Err(error @ (ReadError::Damaged { .. } | ReadError::Rewound(_))) => {
            report.obstacles.push(error.to_string());
            return Ok(());
        }
        serial => serial?,
    };
    let troubles = intake.finish(serial).1.troubles;
    let more = troubles.len().saturating_sub(UNREADABLE_MAX) as u64;
    let named = troubles.iter().take(UNREADABLE_MAX);
    report.obstacles.extend(named.map(|trouble| format!("{trouble}: it would be left out")));
    if more > 0 {
        report.obstacles.push(format!("{} more cannot be read", counted(more, "record")));
    }
    report.obstacles.extend(unknown.into_iter().map(|(kind, count)| {
        let records = counted(count, "record");
        format!("{records} below `{kind}/`, which this version does not know: left out, and kept")
    }));
    for key in setup::lacking(&store.records).await? {
        report.change(format!("the record `{key}` is missing: it would be made"), NAMES_STAY);
    }
    match identity::standing(store, database, location).await {
        Ok(StoreMatch::Named(_)) => {}
        Ok(StoreMatch::Nameless) => {
            let change = format!(
                "the blobs in `{location}` do not say whose they are: the store's name would be written beside them"
            );
            report.change(change, NAMES_STAY);
        }
        Ok(StoreMatch::Doubtful(census)) => report.obstacles.push(format!(
            "the blobs in `{location}` do not say whose they are ({census}): they would be served, and never swept"
        )),
        Err(error) => report.obstacles.push(format!("{error:#}")),
    }
    Ok(())
}

/// Files beside the store, which a server makes anew where it cannot use them.
async fn look_at_side_files(config: &Config, report: &mut UpgradeReport) -> anyhow::Result<()> {
    const MOVE_BACK: &str = "stop the server and rename it back";
    let looked_at = config.clone();
    let unfit = tokio::task::spawn_blocking(move || side_files::unfit(&looked_at)).await?;
    for UnusableFile { what, path, flaw } in &unfit {
        let path = path.display();
        let change = format!("`{path}` ({what}) is of no use ({flaw}): it would be set aside");
        report.change(change, MOVE_BACK);
    }
    let history = config.data_dir.join(AUR_HISTORY);
    let is_unfit = unfit
        .iter()
        .any(|unfit| AUR_HISTORY_FILES.iter().any(|name| unfit.path == config.data_dir.join(name)));
    if is_unfit || !history.exists() {
        return Ok(());
    }
    let location = DatabaseLocation::Sqlite(history);
    match Records::open_at_rest(&location, options()).await {
        Ok(records) => records.close().await,
        // An empty file is begun like a new one.
        Err(OpenError::OlderLayout { found: 0, .. }) => {}
        Err(OpenError::OlderLayout { found, known, .. }) => {
            let change = format!(
                "{AUR_HISTORY_WHAT} in {location} has layout {found}: it would be migrated to layout {known}"
            );
            report.change(change, BACKUP_ONLY);
        }
        Err(error) if error.is_damage() => {
            let change =
                format!("{AUR_HISTORY_WHAT} is of no use ({error}): it would be set aside");
            report.change(change, MOVE_BACK);
        }
        Err(error) => report.obstacles.push(format!("{AUR_HISTORY_WHAT} stays as it is: {error}")),
    }
    Ok(())
}
