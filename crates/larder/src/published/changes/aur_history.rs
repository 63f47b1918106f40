//! The history of the AUR's packages, kept across restarts: who maintained each and when, from differences between snapshots.
//!
//! a published snapshot -> [`aur::Snapshot::differences`] from the one before -> one commit: the changes, and the new
//! [`PackageHistory`] of each package -> the feed. The history has its own database in the data directory, and its own serials:
//! each change has one. If it is deleted, the history begins anew, and clients that follow start over.
//!
//! | key | body |
//! | --- | --- |
//! | `state` | what the history is called, when it began, the last serial, whether all packages were noted |
//! | `package/{name}` | what is known of a package, also of one that is gone |
//! | `change/{serial modulo the bound}` | a change, which a later one replaces |

mod package;
mod record;

use std::path::Path;
use std::sync::Arc;

use ::record::{
    Batch, ChangeKind, Expected, Key, Record, Serial, UnreadableReason, read_body, write_body,
};
use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};
use state::side_files::AUR_HISTORY;
use store::records::OpenError;
use store::{CommitError, DatabaseLocation, ReadError, Records, RecordsOptions};

pub(crate) use package::PackageHistory;

use self::record::{StoredChange, StoredState};
use super::{Draft, Feed, Subject};
use crate::published::aur_published::AurPublished;

/// Packages that are written in one commit.
const PACKAGES_AT_ONCE: usize = 1_000;

const STATE_KEY: &str = "state";

/// The history, and the snapshot that it has last taken in.
pub(crate) struct AurHistory {
    records: Records,
    changes_max: usize,
    state: StoredState,
    taken: Option<Arc<AurPublished>>,
}

impl AurHistory {
    /// Opens the history in the data directory, or begins one. Nothing is read yet.
    pub(crate) async fn open(data_dir: &Path, changes_max: usize) -> anyhow::Result<AurHistory> {
        // A directory that somebody has removed under the server is not made again.
        anyhow::ensure!(data_dir.is_dir(), "the data directory {} is gone", data_dir.display());
        let location = DatabaseLocation::Sqlite(data_dir.join(AUR_HISTORY));
        // The lock of the data directory keeps other processes away.
        let options =
            RecordsOptions { readers_max: 2, poll_interval: None, ..RecordsOptions::default() };
        let records = Records::open(&location, options).await?;
        match AurHistory::state(&records).await {
            Ok(state) => {
                let state = state.map_or_else(StoredState::begin, Ok)?;
                Ok(AurHistory { records, changes_max, state, taken: None })
            }
            Err(error) => {
                records.close().await;
                Err(error)
            }
        }
    }

    /// The stored state; `None` before the first snapshot was noted.
    async fn state(records: &Records) -> anyhow::Result<Option<StoredState>> {
        let found = records.record(&key(STATE_KEY)?).await?;
        let read =
            |body: bytes::Bytes| read_body(&body, record::FORM).context("the state of the history");
        found.and_then(|record| record.body).map(read).transpose()
    }

    /// Its records, to ask about a package.
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// Compares the served snapshot with the last one, and tells `feed` the differences. After an error the next call compares
    /// with what is in the database.
    pub(crate) async fn take(
        &mut self,
        next: Arc<AurPublished>,
        feed: &Feed,
    ) -> anyhow::Result<()> {
        let differences = match self.taken.take() {
            Some(before) if next.is_merged_from(&before) => Vec::new(),
            Some(before) => next.snapshot.differences(&before.snapshot),
            None => Box::pin(self.load(&next, feed)).await?,
        };
        let now = Timestamp::now();
        for differences in differences.chunks(PACKAGES_AT_ONCE) {
            let drafts = self.note(differences, now).await?;
            feed.push(Serial(self.state.last), drafts);
        }
        self.taken = Some(next);
        Ok(())
    }

    /// Begins the feed, and compares the snapshot with what was last noted of each package. The first time it notes all
    /// packages and reports no difference.
    async fn load(
        &mut self,
        next: &Arc<AurPublished>,
        feed: &Feed,
    ) -> anyhow::Result<Vec<aur::Difference>> {
        // A failed attempt may have committed more than this state says.
        if let Some(state) = AurHistory::state(&self.records).await? {
            self.state = state;
        }
        let mut known = std::collections::HashSet::new();
        let mut changes: Vec<StoredChange> = Vec::new();
        let mut differences = Vec::new();
        let is_whole = self.state.is_whole;
        let snapshot = &next.snapshot;
        let mut take = |record: Record| {
            let Some(body) = &record.body else { return };
            if record.key.after("change").is_some() {
                changes.extend(read_body::<StoredChange>(body, record::FORM).ok());
            }
            let Some(name) = record.key.after("package") else { return };
            let Ok(package) = read_body::<PackageHistory>(body, record::FORM) else { return };
            match (package.gone_since, is_whole) {
                (Some(_), _) => return,
                (None, true) => differences.extend(snapshot.difference_from(package.facts(name))),
                (None, false) => {}
            }
            known.insert(name.to_owned());
        };
        self.records.read_after(Serial::ZERO, &mut take).await?;
        changes.sort_by_key(|change| change.serial);
        // Changes left over from a run with another bound are not part of the history.
        let mut oldest = self.state.last;
        let mut kept: Vec<StoredChange> = Vec::new();
        for change in changes.into_iter().rev() {
            if change.serial == oldest && oldest > 0 && kept.len() < self.changes_max {
                oldest -= 1;
                kept.push(change);
            }
        }
        kept.reverse();
        let drafts = kept.into_iter().map(draft).collect();
        feed.load(&self.state.history, Serial(oldest), Serial(self.state.last), drafts);
        if is_whole {
            let is_new = |facts: &aur::Facts| !known.contains(&facts.name);
            differences.extend(snapshot.all_facts().filter(is_new).map(|facts| aur::Difference {
                before: None,
                after: Some(facts),
                fields: Vec::new(),
            }));
            return Ok(differences);
        }
        let mut batch = Batch::new();
        for facts in snapshot.all_facts().filter(|facts| !known.contains(&facts.name)) {
            batch =
                put(batch, &package_key(&facts.name)?, write_body(&PackageHistory::known(&facts)));
            if batch.writes.len() >= PACKAGES_AT_ONCE {
                self.records.commit(std::mem::take(&mut batch)).await?;
            }
        }
        self.state.is_whole = true;
        batch = put(batch, &key(STATE_KEY)?, write_body(&self.state));
        self.records.commit(batch).await?;
        Ok(Vec::new())
    }

    /// Commits the differences, and the new history of these packages.
    async fn note(
        &mut self,
        differences: &[aur::Difference],
        now: Timestamp,
    ) -> anyhow::Result<Vec<Draft>> {
        let mut batch = Batch::new();
        let mut state = self.state.clone();
        let mut drafts = Vec::with_capacity(differences.len());
        for (at, difference) in differences.iter().enumerate() {
            let (before, after) = (difference.before.as_ref(), difference.after.as_ref());
            let Some(name) = after.or(before).map(|facts| facts.name.as_str()) else { continue };
            let Some(kind) = ChangeKind::of(before.is_some(), after.is_some()) else { continue };
            let key_of_package = package_key(before.map_or(name, |before| &before.name))?;
            let found = self.records.record(&key_of_package).await?.and_then(|record| record.body);
            let found =
                found.and_then(|body| read_body::<PackageHistory>(&body, record::FORM).ok());
            let mut package = match (found, before) {
                (Some(found), _) => found,
                (None, Some(before)) => PackageHistory::known(before),
                (None, None) => PackageHistory::default(),
            };
            package.take(after, now);
            state.last += 1;
            let change = StoredChange {
                v: record::FORM,
                serial: state.last,
                at: now,
                kind: kind.into(),
                name: name.to_owned(),
                fields: difference.fields.clone(),
                before: before.map(|before| told(before, &difference.fields, after.is_none())),
                after: after.map(|after| told(after, &difference.fields, before.is_none())),
            };
            batch = put(batch, &key_of_package, write_body(&package));
            // If there are more changes than the history holds, only the last ones are stored.
            if differences.len() - at <= self.changes_max {
                let place = change.serial % self.changes_max as u64;
                batch = put(batch, &key(&format!("change/{place}"))?, write_body(&change));
            }
            drafts.push(draft(change));
        }
        batch = put(batch, &key(STATE_KEY)?, write_body(&state));
        self.records.commit(batch).await?;
        self.state = state;
        Ok(drafts)
    }
}

/// Whether the error says that the files are of no use, so that the history can only begin anew. A disk that is full or read-only
/// is no such reason, nor is a file of a later version.
pub(crate) fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let opening = cause.downcast_ref::<OpenError>();
        let reading = cause.downcast_ref::<ReadError>();
        let writing = cause.downcast_ref::<CommitError>();
        opening.is_some_and(OpenError::is_damage)
            || matches!(reading, Some(ReadError::Damaged { .. } | ReadError::Rewound(_)))
            || matches!(writing, Some(CommitError::Rewound(_)))
            || cause.is::<UnreadableReason>()
    })
}

/// Since when anything is known.
pub(crate) async fn began_at(records: &Records) -> anyhow::Result<Timestamp> {
    let state = records.record(&key(STATE_KEY)?).await?.and_then(|record| record.body);
    Ok(match state {
        Some(state) => read_body::<StoredState>(&state, record::FORM)?.began_at,
        None => Timestamp::now(),
    })
}

/// The history of a package. `facts`: its facts in the snapshot that was noted last, if it is there. A package without a record
/// counts as new.
pub(crate) async fn package(
    records: &Records,
    name: &str,
    facts: Option<&aur::Facts>,
) -> anyhow::Result<Option<PackageHistory>> {
    let Ok(key_of_package) = package_key(name) else { return Ok(None) };
    let body = records.record(&key_of_package).await?.and_then(|record| record.body);
    Ok(match (body, facts) {
        (Some(body), facts) => {
            let mut package: PackageHistory = read_body(&body, record::FORM)?;
            if let Some(facts) = facts {
                package.learn(facts);
            }
            Some(package)
        }
        (None, Some(facts)) => {
            let mut package = PackageHistory::default();
            package.take(Some(facts), Timestamp::now());
            Some(package)
        }
        (None, None) => None,
    })
}

/// The values that a change tells besides names of fields: the maintainer, the version and the last packager, if they differ or
/// `is_all`.
fn told(facts: &aur::Facts, fields: &[String], is_all: bool) -> serde_json::Map<String, Value> {
    let mut told = serde_json::Map::new();
    for (field, value, is_known) in [
        ("Maintainer", json!(facts.maintainer), true),
        ("Version", json!(facts.version), true),
        ("LastPackager", json!(facts.last_packager), facts.knows_last_packager()),
    ] {
        if is_known && (is_all || fields.iter().any(|name| name == field)) {
            told.insert(field.to_owned(), value);
        }
    }
    told
}

fn draft(change: StoredChange) -> Draft {
    let mut draft = Draft::new(
        Serial(change.serial),
        change.kind.into(),
        "package",
        change.name,
        Subject::Open,
    );
    draft.at = Some(change.at);
    draft.fields = change.fields;
    for (name, told) in [("before", change.before), ("after", change.after)] {
        if let Some(told) = told.filter(|told| !told.is_empty()) {
            draft.more.insert(name.to_owned(), Value::Object(told));
        }
    }
    draft
}

fn key(text: &str) -> anyhow::Result<Key> {
    Key::new(text).with_context(|| format!("`{}` cannot be noted", text.escape_debug()))
}

fn package_key(name: &str) -> anyhow::Result<Key> {
    key(&format!("package/{name}"))
}

fn put(batch: Batch, key: &Key, body: bytes::Bytes) -> Batch {
    batch.put(key.clone(), Expected::Anything, body, Vec::new())
}
