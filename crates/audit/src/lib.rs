//! The audit log: whom a policy served or refused which file, when, from which address, and by which rule.
//!
//! request -> [`Audit::note`], which never waits -> a bounded queue -> one thread -> lines of JSON in segments below the data
//! directory -> [`Log::query`], newest first. Entries that find the queue full are counted and left out. The oldest segments
//! are deleted when the log exceeds its size, or when they are too old.

mod pending;
mod writer;

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use prometheus::IntCounter;
use resources::turns::Turns;
use serde_json::{Value, json};

use self::writer::Writer;

pub use self::pending::PendingEntries;

/// Entries that wait to be written.
const QUEUE_MAX: usize = 4096;

/// The log is divided into this many segments or more. The oldest segment is removed as a whole, and a segment is read into
/// memory as a whole.
const SEGMENTS: u64 = 16;
const SEGMENT_BYTES_MIN: u64 = 4096;
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// Bytes that one query reads at most; the next page continues from there.
const LOOKED_AT_BYTES_MAX: usize = 16 << 20;

/// Queries that read at once; further ones wait.
const QUERIES_MAX: usize = 2;

/// Entries on one page.
const PAGE_MAX: usize = 1000;
const PAGE: usize = 100;

/// How long a query waits until earlier entries are written.
const WRITE_PATIENCE: Duration = Duration::from_secs(20);

/// How often a query looks whether the queue has room again.
const ROOM_LOOK: Duration = Duration::from_millis(10);

/// Longest text of an entry, in characters.
const TEXT_CHARS_MAX: usize = 500;

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A policy refused something.
    Refused,
    /// Something was served where a policy counts.
    Served,
    /// Something was served that a rule refuses, because of an exception.
    Excepted,
    /// A file with a warning was served.
    Warned,
    /// Somebody changed a policy.
    Changed,
    /// Somebody pushed a file of a mirror into a stage.
    Approved,
    /// A CI job got a token to upload with.
    Minted,
}

impl Event {
    const ALL: [Event; 7] = [
        Event::Refused,
        Event::Served,
        Event::Excepted,
        Event::Warned,
        Event::Changed,
        Event::Approved,
        Event::Minted,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Event::Refused => "refused",
            Event::Served => "served",
            Event::Excepted => "excepted",
            Event::Warned => "warned",
            Event::Changed => "changed",
            Event::Approved => "approved",
            Event::Minted => "minted",
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it happened.
    pub at: Timestamp,
    /// The kind of event.
    pub event: Event,
    /// The index whose policy decided.
    pub index: String,
    /// The requested path.
    pub path: String,
    /// The file, or the version.
    pub what: String,
    /// The rule that refuses it.
    pub rule: Option<&'static str>,
    /// Why.
    pub reason: String,
    /// The user, if the request had credentials.
    pub who: Option<String>,
    /// The client's address.
    pub client: String,
}

impl Entry {
    /// Cuts texts to their maximum length, so that the queue's memory is bounded, too.
    fn cut(mut self) -> Entry {
        for text in [&mut self.path, &mut self.what, &mut self.reason] {
            text.truncate(record::excerpt(text, TEXT_CHARS_MAX).len());
            text.shrink_to_fit();
        }
        self
    }

    fn line(&self, id: u64) -> String {
        let mut line = json!({
            "id": id,
            "at": self.at.to_string(),
            "event": self.event.as_str(),
            "index": self.index,
            "path": self.path,
            "what": self.what,
            "rule": self.rule,
            "reason": self.reason,
            "who": self.who,
            "client": self.client,
        })
        .to_string();
        line.push('\n');
        line
    }
}

/// Whether this machine's clock may be trusted.
type ClockCheck = Arc<dyn Fn() -> bool + Send + Sync>;

enum Job {
    Write(Box<Entry>),
    /// Tells when everything before it is written.
    Tell(SyncSender<()>),
}

/// The log of a running server.
pub struct Audit {
    log: Log,
    lost: IntCounter,
    is_clock_right: ClockCheck,
    queries: Turns,
    /// The queue of the thread, which is started for the first entry, or for existing ones.
    queue: OnceLock<Option<SyncSender<Job>>>,
}

impl Audit {
    /// Writes to `log`; `lost` counts entries that were left out. Nothing is deleted for its age while `is_clock_right` says no.
    pub fn new(
        log: Log,
        lost: IntCounter,
        is_clock_right: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Audit {
        let audit = Audit::of(log, lost, Arc::new(is_clock_right));
        // Existing entries become too old even if none is added.
        if audit.log.is_on() && audit.log.directory.is_dir() {
            audit.queue();
        }
        audit
    }

    fn of(log: Log, lost: IntCounter, is_clock_right: ClockCheck) -> Audit {
        let (queries, queue) = (Turns::new(QUERIES_MAX), OnceLock::new());
        Audit { log, lost, is_clock_right, queries, queue }
    }

    fn queue(&self) -> Option<&SyncSender<Job>> {
        let start = || Writer::start(&self.log, &self.lost, &self.is_clock_right);
        self.queue.get_or_init(start).as_ref()
    }

    /// Notes an entry. This does not wait: if the queue is full, the entry is left out and counted.
    pub fn note(&self, entry: Entry) {
        if !self.log.is_on() {
            return;
        }
        let Some(queue) = self.queue() else {
            self.lost.inc();
            return;
        };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            queue.try_send(Job::Write(entry.cut().into()))
        {
            self.lost.inc();
        }
    }

    /// How many entries were left out since the start.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// The turns of queries: each reads some segments into memory.
    pub fn queries(&self) -> &Turns {
        &self.queries
    }

    /// The entries that the query selects, after `shown` has removed what the reader may not see, including all that were noted
    /// before. Blocks.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn query(&self, query: &Query, shown: impl Fn(&mut Value)) -> io::Result<EntryPage> {
        if let Some(Some(queue)) = self.queue.get() {
            let (told, written) = sync_channel(1);
            let until = Instant::now() + WRITE_PATIENCE;
            let mut job = Job::Tell(told);
            while let Err(TrySendError::Full(unsent)) = queue.try_send(job) {
                if Instant::now() >= until {
                    break;
                }
                job = unsent;
                std::thread::sleep(ROOM_LOOK);
            }
            // If the thread does not answer in time, the query reads what is written.
            _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        self.log.query(query, Timestamp::now(), shown)
    }
}

/// A selection of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    index: Option<String>,
    event: Option<String>,
    rule: Option<String>,
    who: Option<String>,
    client: Option<String>,
    what: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    before: Option<u64>,
    limit: Option<usize>,
}

/// A page of entries, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryPage {
    /// The lines as JSON, as they were written.
    pub entries: Vec<Value>,
    /// `before` of the next page; `None` if there is none.
    pub next: Option<u64>,
}

impl Query {
    /// The names of a query's parameters.
    pub const NAMES: [&str; 10] =
        ["index", "event", "rule", "who", "client", "what", "since", "until", "before", "limit"];

    /// A query with these names and values.
    ///
    /// # Errors
    /// An unknown name or an invalid value, in words.
    pub fn of<T: AsRef<str>>(pairs: impl IntoIterator<Item = (T, T)>) -> Result<Query, String> {
        let mut query = Query::default();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            let expected =
                |what: &str| format!("`{name}` cannot be `{value}`: {what} was expected");
            let text = || Some(value.to_owned());
            let time = || {
                let day = value.parse::<jiff::civil::Date>().ok();
                let day = day.filter(|_| value.len() == "2026-01-31".len());
                let day = day.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok());
                let time = day.map(|day| day.timestamp()).or_else(|| value.parse().ok());
                time.ok_or_else(|| expected("a time as 2026-01-31 or 2026-01-31T23:59:59Z"))
            };
            let number = |max: u64| {
                let number = value.parse().ok().filter(|number| (1..=max).contains(number));
                number.ok_or_else(|| expected(&format!("a whole number from 1 to {max}")))
            };
            match name {
                "index" => query.index = text(),
                "event" if Event::ALL.iter().any(|event| event.as_str() == value) => {
                    query.event = text();
                }
                "event" => {
                    return Err(expected("`refused`, `served`, `excepted`, `warned` or `changed`"));
                }
                "rule" => query.rule = text(),
                "who" => query.who = text(),
                "client" => query.client = text(),
                "what" => query.what = text(),
                "since" => query.since = Some(time()?),
                "until" => query.until = Some(time()?),
                "before" => query.before = Some(number(u64::MAX)?),
                "limit" => query.limit = usize::try_from(number(PAGE_MAX as u64)?).ok(),
                _ => {
                    let names = Query::NAMES.join(", ");
                    return Err(format!("`{name}` is unknown: one of {names} was expected"));
                }
            }
        }
        Ok(query)
    }

    /// This query, limited to one index.
    pub fn about(self, index: &str) -> Query {
        Query { index: Some(index.to_owned()), ..self }
    }

    fn matches(&self, entry: &Value, oldest: Timestamp) -> bool {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let is = |wanted: &Option<String>, key| {
            wanted.as_ref().is_none_or(|wanted| *wanted == text(key))
        };
        // An index matches both as the one that decided and as the one that was asked.
        let is_of_index = self.index.as_ref().is_none_or(|index| {
            let asked = text("path").strip_prefix('/').and_then(|path| path.strip_prefix(&**index));
            *index == text("index") || asked.is_some_and(|it| it.is_empty() || it.starts_with('/'))
        });
        let Ok(at) = text("at").parse::<Timestamp>() else { return false };
        is_of_index
            && is(&self.event, "event")
            && is(&self.rule, "rule")
            && is(&self.who, "who")
            && is(&self.client, "client")
            && self.what.as_ref().is_none_or(|what| text("what").contains(&**what))
            && at >= self.since.map_or(oldest, |since| since.max(oldest))
            && self.until.is_none_or(|until| at < until)
    }
}

/// Takes out of an entry who asked, and where, if they asked an index that `may_read` does not admit. Who changed an index that it
/// admits, or approved a file for it, is not taken out, whatever they asked for to do that.
pub fn anonymise(entry: &mut Value, may_read: impl Fn(&str) -> bool) {
    let is_change = entry["event"] == "changed" || entry["event"] == "approved";
    let changed = entry["index"].as_str().filter(|_| is_change);
    if changed.is_some_and(&may_read) {
        return;
    }
    let asked = entry["path"].as_str().unwrap_or_default();
    let mut names = asked
        .split('/')
        .skip(1)
        .map(|name| percent_encoding::percent_decode_str(name).decode_utf8().unwrap_or_default());
    let (user, index) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    if may_read(&format!("{user}/{index}")) {
        return;
    }
    for key in ["path", "who", "client"] {
        if !entry[key].is_null() {
            entry[key] = "".into();
        }
    }
}

/// The segments on disk.
#[derive(Clone, Debug)]
pub struct Log {
    /// Their directory; it is made for the first entry.
    pub directory: PathBuf,
    /// Most bytes of all segments together; 0: nothing is noted.
    pub bytes_max: u64,
    /// Entries are removed after this many days.
    pub days_max: u32,
}

impl Log {
    fn is_on(&self) -> bool {
        self.bytes_max > 0
    }

    /// How large a segment gets before the next one begins.
    fn segment_bytes(&self) -> u64 {
        (self.bytes_max / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    fn oldest(&self, now: Timestamp) -> Timestamp {
        let age = SignedDuration::from_hours(24 * i64::from(self.days_max));
        now.checked_sub(age).unwrap_or(Timestamp::MIN)
    }

    /// The segments by the number of their first entry, oldest first.
    fn segments(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut segments = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let first = name.strip_suffix(".jsonl").and_then(|first| first.parse().ok());
            // To open a pipe would take until somebody writes into it.
            segments.extend(first.filter(|_| path.is_file()).map(|first| (first, path.clone())));
        }
        segments.sort_unstable();
        Ok(segments)
    }

    /// A page of the entries that the query means. What `shown` takes out of an entry, no filter finds. Blocks.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn query(
        &self,
        query: &Query,
        now: Timestamp,
        shown: impl Fn(&mut Value),
    ) -> io::Result<EntryPage> {
        let (oldest, limit) = (self.oldest(now), query.limit.unwrap_or(PAGE));
        let mut segments = self.segments()?;
        segments.retain(|(first, _)| query.before.is_none_or(|before| *first < before));
        let mut entries: Vec<Value> = Vec::new();
        let mut looked_at = 0;
        for (position, (first, path)) in segments.iter().enumerate().rev() {
            let text = match read_segment(path) {
                // The segment was deleted meanwhile, because it was too old.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            // A line that a crash has cut off is no entry.
            let lines = text.split(|byte| *byte == b'\n').rev();
            let found = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            for mut entry in found {
                shown(&mut entry);
                let id = entry["id"].as_u64().unwrap_or(0);
                let is_before = query.before.is_none_or(|before| id < before);
                if !is_before || !query.matches(&entry, oldest) {
                    continue;
                }
                if entries.len() == limit {
                    let next = entries.last().and_then(|last| last["id"].as_u64());
                    return Ok(EntryPage { entries, next });
                }
                entries.push(entry);
            }
            looked_at += text.len();
            if looked_at > LOOKED_AT_BYTES_MAX && position > 0 {
                return Ok(EntryPage { entries, next: Some(*first) });
            }
        }
        Ok(EntryPage { entries, next: None })
    }
}

/// A segment, or as much of its end as is read into memory.
fn read_segment(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = resources::files::open(path)?;
    let bytes = file.metadata()?.len();
    // The last entries that were written at once may go beyond the size of a segment.
    file.seek(SeekFrom::Start(bytes.saturating_sub(2 * SEGMENT_BYTES_MAX)))?;
    let mut text = Vec::new();
    file.take(2 * SEGMENT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
