//! [`Readable`]: the indexes that somebody may read, and their records as that reader may have them.
//!
//! An index counts as readable if its bases are, too: without them, its pages would show something else. Its records hold more than
//! readers see: the credentials of `mirror_url`, and names of other indexes, as bases and in the logs of files. [`Readable::shown`]
//! leaves out what this reader does not see.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use account::{Portion, Principal};
use bytes::Bytes;
use record::{Digest, Key, Record, Serial};
use serde_json::Value;

use crate::record::{Subject, write_stage};
use crate::{ResolutionOrder, Snapshot, Stage, StageKind, StageName};

/// The stages that a reader may read, with all that they show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readable(BTreeMap<StageName, ShownStage>);

/// What a reader sees of a stage, beside its own records.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownStage {
    /// The bases that exist.
    bases: Vec<StageName>,
    /// The last commit that may have changed who reads it.
    rights_serial: Serial,
}

impl Readable {
    /// What `principal` may read. Their rights have been the same since the serial `rights_of`, except those of everybody.
    pub fn of(snapshot: &Snapshot, principal: &Principal, rights_of: Serial) -> Readable {
        let shown = |stage: &&std::sync::Arc<Stage>| {
            let order = ResolutionOrder::of(snapshot, stage.name().as_str())?;
            if !order.admits(principal, Portion::Whole) {
                return None;
            }
            let is_open = order.stages().iter().all(|stage| stage.config().is_public());
            let configs = order.stages().iter().map(|stage| stage.config_serial());
            let missing = order.missing().iter().map(|name| snapshot.config_serial(name.as_str()));
            let rights_of = if is_open { Serial::ZERO } else { rights_of };
            let rights_serial = configs.chain(missing).fold(rights_of, Serial::max);
            let exists = |base: &&StageName| snapshot.stage(base.as_str()).is_some();
            let bases = stage.config().bases().iter().filter(exists).cloned().collect();
            Some((stage.name().clone(), ShownStage { bases, rights_serial }))
        };
        Readable(snapshot.stages().filter_map(|stage| shown(&stage)).collect())
    }

    /// Whether the stage with this name is among them.
    pub fn contains(&self, stage: &str) -> bool {
        self.0.contains_key(stage)
    }

    /// The users whose stages they are.
    pub fn users(&self) -> BTreeSet<account::UserName> {
        self.0.keys().map(StageName::user_name).collect()
    }

    /// The last commit that may have changed who reads this stage; `None` if the reader may not.
    pub fn rights_serial(&self, stage: &str) -> Option<Serial> {
        self.0.get(stage).map(|shown| shown.rights_serial)
    }

    /// A stage that was there and not readable, and is readable now, or the other way round; or that shows more of its bases. Nobody
    /// who has the records of `self` gets all that is readable then by the records that were written since.
    pub fn differs(&self, before: &Snapshot, after: (&Readable, &Snapshot)) -> Option<StageName> {
        let (readable, snapshot) = after;
        let is_taken = |(name, shown): &(&StageName, &ShownStage)| {
            let Some(stage) = snapshot.stage(name.as_str()) else { return false };
            match readable.0.get(*name) {
                None => true,
                Some(now) => {
                    let is_written = stage.config_serial() > before.config_serial(name.as_str());
                    !is_written && now.bases.iter().any(|base| !shown.bases.contains(base))
                }
            }
        };
        let is_given = |name: &&StageName| {
            !self.0.contains_key(*name) && before.stage(name.as_str()).is_some()
        };
        let taken = self.0.iter().find(is_taken).map(|(name, _)| name);
        taken.or_else(|| readable.0.keys().find(is_given)).cloned()
    }

    /// The names of these stages, with their bases, as far as they have records up to `up_to`: a line each.
    pub fn names(&self, snapshot: &Snapshot, up_to: Serial) -> String {
        let mut names = String::new();
        for (name, shown) in &self.0 {
            if snapshot.stage(name.as_str()).is_some_and(|stage| stage.has_record_up_to(up_to)) {
                let _ = write!(names, "{name}:");
                shown.bases.iter().for_each(|base| _ = write!(names, " {base}"));
                names.push('\n');
            }
        }
        names
    }

    /// The record of `snapshot` as this reader may have it; `None` if they may not, or if it is not the latest one.
    pub fn shown(&self, snapshot: &Snapshot, record: &Record) -> Option<Record> {
        let subject = Subject::of(&record.key)?.ok()?;
        let stage =
            snapshot.stage(subject.stage()).filter(|it| self.contains(it.name().as_str()))?;
        let body = record.body.as_ref()?;
        let body = match subject {
            Subject::Stage { .. } if stage.config_serial() != record.serial => return None,
            Subject::Stage { .. } => self.shown_config(stage)?,
            Subject::Project { .. } | Subject::Version { .. } => body.clone(),
            Subject::File { .. } => self.shown_file(stage.name(), body)?,
        };
        Some(Record { body: Some(body), ..record.clone() })
    }

    fn shown_config(&self, stage: &Stage) -> Option<Bytes> {
        let mut config = stage.config().clone();
        match &mut config.kind {
            StageKind::Stage(settings) => {
                settings.bases.retain(|base| self.0.contains_key(base));
                settings.base_pins.retain(|pin| self.0.contains_key(&pin.base));
            }
            StageKind::Mirror(settings) => {
                let url = settings.mirror_url.take();
                settings.mirror_url = url.map(|url| without_user(&url));
            }
        }
        write_stage(stage.name(), &config).ok()
    }

    /// The log of a file may name the stages that it was pushed from.
    fn shown_file(&self, own: &StageName, body: &Bytes) -> Option<Bytes> {
        let mut file: Value = serde_json::from_slice(body).ok()?;
        let Some(log) = file.get_mut("log").and_then(Value::as_array_mut) else {
            return Some(body.clone());
        };
        let is_seen = |entry: &Value| {
            let named = ["source", "target"].iter().filter_map(|member| entry.get(member));
            let mut named = named.map(|name| name.as_str().unwrap_or_default());
            named.all(|name| name == own.as_str() || self.contains(name))
        };
        log.retain(is_seen);
        serde_json::to_vec(&file).ok().map(Bytes::from)
    }
}

/// A URL without a user and a password in it.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// The stage that a record of this surface belongs to; `None` for other records.
pub fn stage_of_record(key: &Key) -> Option<&str> {
    Some(Subject::of(key)?.ok()?.stage())
}

impl Snapshot {
    /// Whether there is a record with this key, as far as it can be read.
    pub fn has_record(&self, key: &Key) -> bool {
        let Some(Ok(subject)) = Subject::of(key) else { return false };
        let Some(stage) = self.stage(subject.stage()) else { return false };
        let project = |name: &str| stage.project_trace(name);
        match subject {
            Subject::Stage { .. } => true,
            Subject::Project { project: name, .. } => {
                project(name).is_some_and(|project| project.status.is_some())
            }
            Subject::Version { project: name, version, .. } => {
                project(name).is_some_and(|project| project.release(version).is_some())
            }
            Subject::File { project: name, filename, .. } => {
                project(name).is_some_and(|project| project.has_file_record(filename))
            }
        }
    }
}

impl Stage {
    /// Whether it has a record of that serial or an older one, and so was there then.
    pub fn has_record_up_to(&self, serial: Serial) -> bool {
        self.config_serial() <= serial
            || self.project_traces().any(|(_, project)| project.has_record_up_to(serial))
    }

    /// Whether a record of this stage names the blob.
    pub fn names_blob(&self, digest: &Digest) -> bool {
        self.project_traces().any(|(_, project)| project.names_blob(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_loses_who_logs_in() {
        let check = |url: &str, expected: &str| assert_eq!(without_user(url), expected);
        check("https://u:p@host/simple/", "https://host/simple/");
        check("https://u@host?x=a@b", "https://host?x=a@b");
        check("https://host/a@b/", "https://host/a@b/");
        check("https://u:p@q@host", "https://host");
    }
}
