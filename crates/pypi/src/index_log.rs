//! [`IndexLogs`]: who did what to each stage, and when: the last [`LINES_MAX`] lines of each.
//!
//! an operation's [`Deed`], and who asked for it -> [`LogLine`] -> [`IndexLogs::write`], part of the batch that does it -> a record
//! -> [`IndexLogs::apply`]. So a line is there if and only if its commit is.
//!
//! A stage has a fixed number of records for its log, `index-log/{user}/{index}/{slot}`, and the oldest lines are written over: the log
//! grows neither in the store nor in memory. Which slot a line gets means nothing; lines are in the order of their serials. Uploads
//! are not logged: a file's own record says who brought it, and when.

use std::sync::Arc;

use account::{Portion, UserName};
use imbl::OrdMap;
use jiff::Timestamp;
use record::{
    Expected, Key, Record, Serial, UnreadableReason, UnreadableRecord, Write, check_form,
    read_body, write_body,
};
use serde::{Deserialize, Serialize};

use crate::{ProjectName, StageName};

/// The first segment of the keys of these records.
pub const KIND: &str = "index-log";

/// Lines of one stage at most.
pub const LINES_MAX: usize = 1_000;

/// A full log's new line replaces one of this many oldest, so that writers at the same time seldom choose the same.
const OLDEST: usize = 64;

/// Names in one line at most; the rest is counted.
const NAMES_MAX: usize = 20;

/// Bytes of a reason at most.
const REASON_BYTES_MAX: usize = 1_000;

const FORM: u32 = 1;

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeedKind {
    /// Made the stage.
    Created,
    /// Changed settings of the stage: the names are theirs.
    Settings,
    /// Yanked a release or a file.
    Yanked,
    /// Took a yank back.
    Unyanked,
    /// Set the status of a project: the name is the status.
    Status,
    /// Removed a project, a release or a file.
    Removed,
    /// Removed old versions by a rule: the names are those of releases.
    Retention,
    /// Pushed a release into the stage.
    Pushed,
}

impl DeedKind {
    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeedKind::Created => "created",
            DeedKind::Settings => "settings",
            DeedKind::Yanked => "yanked",
            DeedKind::Unyanked => "unyanked",
            DeedKind::Status => "status",
            DeedKind::Removed => "removed",
            DeedKind::Retention => "retention",
            DeedKind::Pushed => "pushed",
        }
    }
}

/// What was done, and to what of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// What was done.
    pub what: DeedKind,
    /// The project; `None` for the stage, or for several projects.
    pub project: Option<ProjectName>,
    /// The version; `None` for all of the project, or for a file.
    pub version: Option<Box<str>>,
    /// The name of the file.
    pub file: Option<Box<str>>,
    /// The stage that a release was pushed from.
    pub from: Option<StageName>,
    /// Names, as [`DeedKind`] says.
    pub names: Box<[Box<str>]>,
    /// How many names more there were.
    pub more: usize,
    /// The reason that was given; may be empty.
    pub reason: Option<Box<str>>,
}

impl Deed {
    /// A deed about the whole stage.
    pub fn new(what: DeedKind) -> Deed {
        Deed {
            what,
            project: None,
            version: None,
            file: None,
            from: None,
            names: Box::default(),
            more: 0,
            reason: None,
        }
    }

    /// A deed about a project.
    pub fn of(what: DeedKind, project: &ProjectName) -> Deed {
        Deed { project: Some(project.clone()), ..Deed::new(what) }
    }

    /// About this version.
    #[must_use]
    pub fn version(self, version: &str) -> Deed {
        Deed { version: Some(version.into()), ..self }
    }

    /// About this file.
    #[must_use]
    pub fn file(self, filename: &str) -> Deed {
        Deed { file: Some(filename.into()), ..self }
    }

    /// From this stage.
    #[must_use]
    pub fn from(self, stage: &StageName) -> Deed {
        Deed { from: Some(stage.clone()), ..self }
    }

    /// With these names, of which only the first are kept.
    #[must_use]
    pub fn naming(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Deed {
        let mut names = names.into_iter().map(|name| Box::from(name.as_ref()));
        let kept = names.by_ref().take(NAMES_MAX).collect();
        Deed { names: kept, more: names.count(), ..self }
    }

    /// For this reason, of which only the start is kept if it is long.
    #[must_use]
    pub fn because(self, reason: Option<&str>) -> Deed {
        let start = |reason: &str| reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].into();
        Deed { reason: reason.map(start), ..self }
    }
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doer {
    /// A user.
    User(UserName),
    /// A client without a user: nobody in particular, or a job of a CI system.
    Nobody,
    /// Somebody who ran a command on the machine.
    Command,
    /// The server itself.
    Server,
}

impl Doer {
    /// The user, if it was one.
    pub fn user(&self) -> Option<&str> {
        match self {
            Doer::User(name) => Some(name.as_str()),
            Doer::Nobody | Doer::Command | Doer::Server => None,
        }
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was decided.
    pub at: Timestamp,
    /// Who did it.
    pub by: Doer,
    /// What was done.
    pub deed: Deed,
}

impl LogLine {
    /// What of the stage one must be allowed to read to see this line.
    pub fn portion(&self) -> Portion<'_> {
        self.deed.project.as_ref().map_or(Portion::Whole, |it| Portion::Project(it.as_str()))
    }
}

/// The log of one stage.
#[derive(Clone, Debug, Default)]
pub struct IndexLog {
    lines: OrdMap<Serial, (u16, Arc<LogLine>)>,
    slots: OrdMap<u16, Serial>,
}

impl IndexLog {
    /// The line of this commit.
    pub fn at(&self, serial: Serial) -> Option<&LogLine> {
        self.lines.get(&serial).map(|(_, line)| &**line)
    }

    /// The lines before a commit, or all, newest first.
    pub fn lines(&self, before: Option<Serial>) -> impl Iterator<Item = (Serial, &LogLine)> {
        let end = before.unwrap_or(Serial(u64::MAX));
        self.lines.range(..end).rev().map(|(serial, (_, line))| (*serial, &**line))
    }

    /// The last line that says this of a project, or of one of its versions. `None` if the log does not reach back so far.
    pub fn last(
        &self,
        what: DeedKind,
        project: &ProjectName,
        version: Option<&str>,
    ) -> Option<&LogLine> {
        self.lines(None).map(|(_, line)| line).find(|line| {
            let deed = &line.deed;
            deed.what == what
                && deed.project.as_ref() == Some(project)
                && deed.version.as_deref() == version
                && deed.file.is_none()
        })
    }

    fn apply(&mut self, slot: u16, serial: Serial, line: Option<LogLine>) {
        if let Some(before) = self.slots.remove(&slot) {
            self.lines.remove(&before);
        }
        if let Some(line) = line {
            self.slots.insert(slot, serial);
            self.lines.insert(serial, (slot, Arc::new(line)));
        }
    }

    /// The slot of the next line.
    fn next_slot(&self, seed: u64) -> u16 {
        let slots_max = LINES_MAX as u64;
        if self.slots.len() < LINES_MAX {
            let mut slots =
                (0..slots_max).map(|step| ((seed % slots_max + step) % slots_max) as u16);
            return slots.find(|slot| !self.slots.contains_key(slot)).unwrap_or_default();
        }
        let mut oldest = self.lines.values();
        oldest.nth((seed % OLDEST as u64) as usize).map_or(0, |(slot, _)| *slot)
    }
}

/// The logs of all stages as of one serial. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct IndexLogs {
    /// Only stages with lines. A stage that was deleted may have one that came at that moment.
    stages: OrdMap<StageName, Arc<IndexLog>>,
}

impl IndexLogs {
    /// The logs after `records`, and the records that cannot be read. Those of other kinds are ignored.
    #[must_use]
    pub fn apply(&self, records: &[Record]) -> (IndexLogs, Vec<UnreadableRecord>) {
        let (mut next, mut troubles) = (self.clone(), Vec::new());
        for record in records {
            let Some(rest) = record.key.after(KIND) else { continue };
            if let Err(reason) = next.apply_one(rest, record) {
                troubles.push(UnreadableRecord::of(record, reason));
            }
        }
        (next, troubles)
    }

    fn apply_one(&mut self, rest: &str, record: &Record) -> Result<(), UnreadableReason> {
        let names = rest.rsplit_once('/');
        let names = names.and_then(|(stage, slot)| Some((stage.parse().ok()?, slot.parse().ok()?)));
        let (stage, slot): (StageName, u16) = names.ok_or(UnreadableReason::Key)?;
        let line = record.body.as_deref().map(read_line).transpose();
        let mut log = self.stages.get(&stage).map(|log| IndexLog::clone(log)).unwrap_or_default();
        log.apply(slot, record.serial, line.as_ref().ok().cloned().flatten());
        match log.lines.is_empty() {
            true => self.stages.remove(&stage),
            false => self.stages.insert(stage, Arc::new(log)),
        };
        line.map(|_| ())
    }

    /// The log of a stage; `None` if there is no line.
    pub fn log(&self, stage: &str) -> Option<&IndexLog> {
        self.stages.get(stage).map(|log| &**log)
    }

    /// The write of a line. Writers at the same time should have different seeds.
    pub fn write(&self, stage: &StageName, line: &LogLine, seed: u64) -> Write {
        let log = self.stages.get(stage);
        let slot = log.map_or((seed % LINES_MAX as u64) as u16, |log| log.next_slot(seed));
        let before = log.and_then(|log| log.slots.get(&slot));
        Write {
            key: key(stage, slot),
            expected: before.map_or(Expected::Absent, |serial| Expected::At(*serial)),
            body: Some(write_line(line)),
            blobs: Vec::new(),
        }
    }

    /// The writes that remove the log of a stage.
    pub fn erase(&self, stage: &StageName) -> impl Iterator<Item = Write> {
        let slots = self.stages.get(stage).into_iter().flat_map(|log| log.slots.keys());
        slots.map(|slot| Write {
            key: key(stage, *slot),
            // A line that came meanwhile goes as well.
            expected: Expected::Anything,
            body: None,
            blobs: Vec::new(),
        })
    }

    /// The records of all lines. Applied to no logs they give the same ones.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.stages.iter().flat_map(|(stage, log)| {
            log.lines.iter().map(move |(serial, (slot, line))| Record {
                key: key(stage, *slot),
                serial: *serial,
                body: Some(write_line(line)),
                blobs: Vec::new(),
            })
        })
    }
}

fn key(stage: &StageName, slot: u16) -> Key {
    Key::new(&format!("{KIND}/{stage}/{slot}")).expect("names are checked")
}

#[derive(Serialize, Deserialize)]
struct WireLine {
    v: u32,
    at_unix_microseconds: i64,
    what: DeedKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Box<str>>,
    /// `command` or `server`, if it was no client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    through: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    project: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "<[Box<str>]>::is_empty")]
    names: Box<[Box<str>]>,
    #[serde(default, skip_serializing_if = "is_zero")]
    more: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Box<str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn read_line(body: &[u8]) -> Result<LogLine, UnreadableReason> {
    let wire: WireLine = read_body(body, FORM)?;
    check_form(wire.v, FORM)?;
    let at = Timestamp::from_microsecond(wire.at_unix_microseconds);
    let user = wire.by.map(|by| by.parse()).transpose();
    let project = wire.project.map(|name| ProjectName::normalize(&name)).transpose();
    let from = wire.from.map(|name| name.parse()).transpose();
    Ok(LogLine {
        at: at.map_err(|_| UnreadableReason::Member("at_unix_microseconds"))?,
        by: match (user.map_err(|_| UnreadableReason::Member("by"))?, wire.through.as_deref()) {
            (Some(user), _) => Doer::User(user),
            (None, Some("command")) => Doer::Command,
            (None, Some("server")) => Doer::Server,
            (None, _) => Doer::Nobody,
        },
        deed: Deed {
            what: wire.what,
            project: project.map_err(|_| UnreadableReason::Member("project"))?,
            version: wire.version,
            file: wire.file,
            from: from.map_err(|_| UnreadableReason::Member("from"))?,
            names: wire.names,
            more: wire.more,
            reason: wire.reason,
        },
    })
}

fn write_line(line: &LogLine) -> bytes::Bytes {
    let LogLine { at, by, deed } = line;
    let through = match by {
        Doer::User(_) | Doer::Nobody => None,
        Doer::Command => Some("command"),
        Doer::Server => Some("server"),
    };
    write_body(&WireLine {
        v: FORM,
        at_unix_microseconds: at.as_microsecond(),
        what: deed.what,
        by: by.user().map(Into::into),
        through: through.map(Into::into),
        project: deed.project.as_ref().map(|name| name.as_str().into()),
        version: deed.version.clone(),
        file: deed.file.clone(),
        from: deed.from.as_ref().map(|name| name.as_str().into()),
        names: deed.names.clone(),
        more: deed.more,
        reason: deed.reason.clone(),
    })
}

#[cfg(test)]
mod tests;
