//! [`follow()`]: takes the primary's records, in order, for as long as the server runs.
//!
//! Each connection asks for some records that were taken before as well. They must be as they were, or have been written again
//! since: otherwise the other server has another history, because it was restored from an older backup or is another store, and
//! everything has to be read anew. A server that is behind this one cannot be compared, and is not followed until it has caught up.
//! Records up to a [`Frame::Whole`] are one transaction; if the connection breaks in between, the next one goes on where it was.
//!
//! A copy of a part goes on from its last state instead. It keeps the digest of what was readable then as a record of its own
//! ([`VIEW_KEY`]), in the transaction of that state, and says it when it connects: the primary knows by it whether the records since
//! then are enough. Users are sent anew for each connection, as the primary makes these records; so they are not compared.

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use record::{Key, Record, Serial};
use serde::{Deserialize, Serialize};
use store::records::Replica;
use store::{CommitError, Records, StoreIdentity};
use twox_hash::XxHash3_64;

use crate::frame::{Frame, Hello, PartialCopy, Whole};
use crate::link::Link;
use crate::note::FollowerNote;
use crate::pace::{Failures, Pace};
use crate::primary::{PartState, Primary, PrimaryError, PrimaryStore, RecordStream};

/// Records that are compared when a connection is made, unless the last commit has more.
const COMPARED_MAX: usize = 256;

/// The key of the record with the digest of what a copy of a part has. No primary has it.
const VIEW_KEY: &str = "store/view";

/// Whether the record is made for a follower, and not one of the primary's.
fn is_made(key: &Key) -> bool {
    key.as_str() == VIEW_KEY || key.after("user").is_some()
}

/// How often the highest serial of the primary is written into the note, at most.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Primary(#[from] PrimaryError),
    /// This store does not take what came.
    #[error("the records cannot be written: {0}")]
    Local(#[from] CommitError),
    /// The other server has another history.
    #[error("{0}")]
    OtherHistory(String),
    /// The other server is not to be followed, but may be later.
    #[error("{0}")]
    NotNow(String),
}

impl Failure {
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Failure::Primary(error) => error.is_lasting(),
            Failure::NotNow(_) => true,
            Failure::Local(_) | Failure::OtherHistory(_) => false,
        }
    }
}

/// A record that was taken, as far as it is compared.
#[derive(Clone, Debug)]
struct TakenRecord {
    key: Key,
    serial: Serial,
    content: u64,
}

impl TakenRecord {
    fn of(record: &Record) -> TakenRecord {
        let mut hasher = XxHash3_64::new();
        hasher.write(&[u8::from(record.body.is_some())]);
        hasher.write(record.body.as_deref().unwrap_or_default());
        record.blobs.iter().for_each(|digest| hasher.write(digest.as_bytes()));
        TakenRecord { key: record.key.clone(), serial: record.serial, content: hasher.finish() }
    }
}

/// Writes what comes, and remembers the last of it.
pub(crate) struct ReplicaWriter {
    replica: Replica,
    latest: VecDeque<TakenRecord>,
    /// `latest` has all records after this serial that were taken.
    complete_after: Serial,
    /// The last record that was taken; without a key, all of that serial were.
    at: (Serial, Option<Key>),
    /// Records since the last whole state.
    records: u64,
    /// What a copy of a part is at.
    held: Option<PartState>,
}

impl ReplicaWriter {
    /// Goes on from what is in `records`.
    pub(crate) async fn new(records: &Records) -> Result<ReplicaWriter, Failure> {
        let replica = records.replica().await?;
        let held = held(records, replica.serial()).await?;
        let mut compared_max = COMPARED_MAX;
        let (mut latest, complete_after) = loop {
            let (mut latest, complete_after) = records.latest(compared_max).await?;
            if held.is_some() {
                // Of what was deleted, the primary sends only what is news.
                latest.retain(|record| record.body.is_some() && !is_made(&record.key));
            }
            if !latest.is_empty() || complete_after == Serial::ZERO {
                break (latest, complete_after);
            }
            // The last commit alone may have more.
            compared_max *= 8;
        };
        latest.sort_by(|one, other| (one.serial, &one.key).cmp(&(other.serial, &other.key)));
        let at = (replica.serial(), None);
        let latest = latest.iter().map(TakenRecord::of).collect();
        Ok(ReplicaWriter { replica, latest, complete_after, at, records: 0, held })
    }

    fn has(&self, record: &Record) -> bool {
        let (serial, key) = &self.at;
        match key {
            Some(key) => (record.serial, &record.key) <= (*serial, key),
            None => record.serial <= *serial,
        }
    }

    /// The serial after which to ask for records: some that were taken are to come again, and all that were not.
    fn asks_after(&self) -> Serial {
        match &self.at {
            // Some records of that commit may be missing.
            (serial, Some(_)) => self.complete_after.min(Serial(serial.0.saturating_sub(1))),
            (_, None) => self.complete_after,
        }
    }

    async fn take(&mut self, record: Record) -> Result<(), CommitError> {
        self.records += 1;
        // Of the last commit, all are remembered.
        while self.latest.len() >= COMPARED_MAX
            && let Some(first) = self.latest.pop_front_if(|first| first.serial < record.serial)
        {
            self.complete_after = first.serial;
        }
        self.latest.push_back(TakenRecord::of(&record));
        self.at = (record.serial, Some(record.key.clone()));
        self.replica.take(record).await
    }

    /// Takes the state that a copy of a part has reached.
    async fn hold(&mut self, serial: Serial, view: &str) -> Result<(), CommitError> {
        if self.held.as_ref().is_none_or(|held| held.view != view) {
            let body = record::write_body(&View { v: FORM, view: view.to_owned() });
            let key = Key::new(VIEW_KEY).expect("a constant without control characters");
            let record = Record { key, serial, body: Some(body), blobs: Vec::new() };
            self.replica.take(record).await?;
        }
        self.held = Some(PartState { serial, view: view.to_owned() });
        Ok(())
    }

    /// Reads a frame, and takes what is new in it.
    pub(crate) async fn next(&mut self, session: &mut Session) -> Result<Event, Failure> {
        match session.reading.next().await? {
            Frame::Records(records) => {
                let before = self.records;
                for record in records {
                    if session.hello.part.is_some() && is_made(&record.key) {
                        self.replica.take(record).await?;
                    } else if !self.has(&record) {
                        session.expected.remove(&record.key);
                        self.take(record).await?;
                    } else if record.serial > session.compared_after && !session.confirms(&record) {
                        return Err(self.other_history(&record.key));
                    }
                }
                Ok(Event::Taken { records: self.records - before })
            }
            Frame::Whole(whole) => {
                let serial = Serial(whole.serial);
                self.check_whole(session, serial)?;
                if let Some(view) = &whole.view {
                    self.hold(serial, view).await?;
                }
                self.replica.finish(serial).await?;
                self.at = (serial, None);
                Ok(Event::Whole { whole, records: std::mem::take(&mut self.records) })
            }
            Frame::Alive(whole) => Ok(Event::Alive(whole)),
            Frame::End(end) if end.starts_over => Err(Failure::OtherHistory(end.reason)),
            Frame::End(end) => Err(Failure::NotNow(end.reason)),
            Frame::Hello(_) => {
                let flaw = "it told its name twice".to_owned();
                Err(PrimaryError::Flawed { url: session.url.clone(), flaw }.into())
            }
        }
    }

    fn check_whole(&self, session: &Session, serial: Serial) -> Result<(), Failure> {
        if serial < self.at.0 {
            let (found, seen) = (serial, self.at.0);
            return Err(Failure::OtherHistory(format!(
                "it is at serial {found}, and was at serial {seen}: it fell back to an older state"
            )));
        }
        match session.expected.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.other_history(key)),
        }
    }

    fn other_history(&self, key: &Key) -> Failure {
        let at = self.at.0;
        Failure::OtherHistory(format!(
            "its record `{key}` is not as it was: up to serial {at} it has another history than before"
        ))
    }

    /// Forgets what is no whole state, and lets go of the database.
    pub(crate) async fn forget(&mut self) {
        self.replica.forget().await;
    }
}

#[derive(Serialize, Deserialize)]
struct View {
    v: u32,
    view: String,
}

/// The form of [`View`].
const FORM: u32 = 1;

/// What a copy of a part is at; `None` for any other store.
async fn held(records: &Records, serial: Serial) -> Result<Option<PartState>, Failure> {
    let key = Key::new(VIEW_KEY).expect("a constant without control characters");
    let found = records.record(&key).await;
    let found = found.map_err(|error| Failure::NotNow(error.to_string()))?;
    let Some(body) = found.and_then(|record| record.body) else { return Ok(None) };
    // The primary does not know a digest that cannot be read, so everything is read anew.
    let view = record::read_body::<View>(&body, FORM).map(|read| read.view).unwrap_or_default();
    Ok(Some(PartState { serial, view }))
}

/// What a connection brought.
pub(crate) enum Event {
    /// This many records have arrived; they are not durable yet.
    Taken { records: u64 },
    /// The store has reached this state, with this many new records, and all of it is durable.
    Whole { whole: Whole, records: u64 },
    /// There is nothing new.
    Alive(Whole),
}

/// A connection.
pub(crate) struct Session {
    url: String,
    pub(crate) hello: Hello,
    reading: RecordStream,
    /// Records that were taken before are compared from here on.
    compared_after: Serial,
    /// Those that have not come again.
    expected: HashMap<Key, TakenRecord>,
}

impl Session {
    /// Connects, and asks for what comes after what `taker` has, which is of the store `own`, if that is settled.
    pub(crate) async fn open(
        primary: &Primary,
        taker: &ReplicaWriter,
        known: &PrimaryStore,
        own: Option<(&str, Option<PartialCopy>)>,
    ) -> Result<Session, Failure> {
        let held = taker.held.as_ref();
        let (hello, reading) = primary.records(taker.asks_after(), known, held).await?;
        if hello.identity.parse::<StoreIdentity>().is_err() {
            return Err(primary.flawed("the name of its store is none").into());
        }
        let found = &hello.identity;
        if let Some((own, _)) = own.filter(|(own, _)| own != found) {
            let why = format!("it has the store {found}, and had the store {own}");
            return Err(Failure::OtherHistory(why));
        }
        let is_begun = own.is_some() || !known.identity.is_empty();
        let part = own.map_or(known.part, |(_, part)| part);
        if is_begun && part.is_some() != hello.part.is_some() {
            // No copy is lost, and no secret comes, because the groups of a user have changed.
            let (has, opens) = match part {
                Some(_) => ("only what a user may read", "everything"),
                None => ("everything", "only what its user may read"),
            };
            return Err(Failure::NotNow(format!(
                "this copy has {has}, and the token opens {opens}: use another token, or begin with an empty data directory"
            )));
        }
        if own.is_some_and(|(_, part)| part != hello.part) {
            return Err(Failure::OtherHistory("who may read its articles has changed".to_owned()));
        }
        let (theirs, generation) = (hello.generation, known.generation);
        if *found == known.identity && theirs < generation {
            return Err(Failure::NotNow(format!(
                "it is a primary of generation {theirs}, and this copy is of generation {generation}: a follower of it was \
                 promoted since, and is to be followed"
            )));
        }
        // It may only have to catch up: until then it has records that were written again since.
        let (found, seen) = (Serial(hello.serial), taker.at.0);
        if hello.is_follower && found < seen {
            return Err(Failure::NotNow(format!(
                "it is a follower itself, and at serial {found} behind serial {seen} of this server"
            )));
        }
        Ok(Session::of(primary.url(), taker, hello, reading))
    }

    fn of(url: &str, taker: &ReplicaWriter, hello: Hello, reading: RecordStream) -> Session {
        let compared_after = taker.complete_after;
        // The last one of a key counts.
        let known = taker.latest.iter().filter(|taken| taken.serial > compared_after);
        let expected = known.map(|taken| (taken.key.clone(), taken.clone())).collect();
        Session { url: url.to_owned(), hello, reading, compared_after, expected }
    }

    /// Whether the record is as it was.
    fn confirms(&mut self, record: &Record) -> bool {
        let found = TakenRecord::of(record);
        self.expected
            .remove(&record.key)
            .is_some_and(|known| known.serial == found.serial && known.content == found.content)
    }
}

/// Follows the primary until its history turns out to be another one, and returns how that was seen. To be dropped when the server
/// stops.
pub async fn follow(
    records: &Records,
    primary: &Primary,
    link: &Link,
    (data_dir, identity, part): (PathBuf, String, Option<PartialCopy>),
    pace: Pace,
) -> String {
    let mut noting = NoteWriter::new(data_dir, primary.url(), &identity, part);
    let mut failures = Failures::new(pace);
    let mut taker = None;
    loop {
        let failure = match &mut taker {
            Some(taker) => {
                let state = (taker, &mut noting, &mut failures);
                one_connection(records, primary, link, state, &identity).await
            }
            None => match ReplicaWriter::new(records).await {
                Ok(new) => {
                    link.begins_at(new.replica.serial());
                    noting.written.get_or_insert(link.state().primary_serial);
                    taker = Some(new);
                    continue;
                }
                Err(failure) => failure,
            },
        };
        if let Failure::OtherHistory(why) = failure {
            if let Some(mut taker) = taker {
                taker.forget().await;
            }
            return format!("{}: {why}", primary.url());
        }
        link.lost(failure.to_string());
        let pause = failures.failed(&failure, failure.is_lasting());
        noting.write(link.state().primary_serial).await;
        // What came of a state that is not whole was readable then, and may not be any more.
        let is_forgotten = part.is_some() || matches!(failure, Failure::Local(_));
        if is_forgotten && let Some(mut taker) = taker.take() {
            taker.forget().await;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Connects and follows until that fails; returns why.
async fn one_connection(
    records: &Records,
    primary: &Primary,
    link: &Link,
    (taker, noting, failures): (&mut ReplicaWriter, &mut NoteWriter, &mut Failures),
    identity: &str,
) -> Failure {
    let generation = match crate::generation::of(records).await {
        Ok(generation) => generation,
        Err(error) => return Failure::NotNow(format!("{error:#}")),
    };
    let part = noting.part;
    let known = PrimaryStore { identity: identity.to_owned(), generation, part };
    let mut session = match Session::open(primary, taker, &known, Some((identity, part))).await {
        Ok(session) => session,
        Err(failure) => return failure,
    };
    link.connected(&session.hello);
    noting.write(link.state().primary_serial).await;
    let mut has_taken = false;
    loop {
        let whole = match taker.next(&mut session).await {
            Ok(Event::Taken { records }) => {
                link.received(records);
                has_taken |= records > 0;
                continue;
            }
            Ok(Event::Whole { whole, records }) => {
                link.wrote(Serial(whole.serial), records, Serial(whole.primary_serial));
                if records > 0 {
                    failures.progressed();
                }
                has_taken = false;
                whole
            }
            Ok(Event::Alive(whole)) => {
                link.heard(Serial(whole.primary_serial));
                failures.progressed();
                whole
            }
            Err(failure) => {
                // The next connection goes on after what was taken, unless that cannot be written.
                if has_taken && !matches!(failure, Failure::Local(_)) {
                    failures.progressed();
                }
                return failure;
            }
        };
        link.announced(whole.aur_dump);
        if failures.are_over() {
            tracing::info!(url = primary.url(), "the primary is followed again");
        }
        noting.heard(Serial(whole.primary_serial)).await;
    }
}

/// Writes the serial of the primary into the note, so that `larder promote` knows it.
struct NoteWriter {
    data_dir: PathBuf,
    url: String,
    identity: String,
    part: Option<PartialCopy>,
    written: Option<Serial>,
    tried_at: Option<Instant>,
    is_failing: bool,
}

impl NoteWriter {
    fn new(data_dir: PathBuf, url: &str, identity: &str, part: Option<PartialCopy>) -> NoteWriter {
        let (url, identity) = (url.to_owned(), identity.to_owned());
        let (written, tried_at) = (None, None);
        NoteWriter { data_dir, url, identity, part, written, tried_at, is_failing: false }
    }

    /// Writes it if it has changed, and not often.
    async fn heard(&mut self, serial: Serial) {
        if self.tried_at.is_none_or(|at| at.elapsed() >= NOTE_INTERVAL) {
            self.write(serial).await;
        }
    }

    async fn write(&mut self, serial: Serial) {
        if self.written == Some(serial) {
            return;
        }
        self.tried_at = Some(Instant::now());
        let note = FollowerNote::new(&self.url, &self.identity, serial.0).of_part(self.part);
        let data_dir = self.data_dir.clone();
        let writing = tokio::task::spawn_blocking(move || note.write(&data_dir));
        let written = writing.await.map_err(anyhow::Error::from).flatten();
        match written {
            Ok(()) => self.written = Some(serial),
            // Once is enough: the disk may be full for long.
            Err(error) if !self.is_failing => tracing::warn!("{error:#}"),
            Err(error) => tracing::debug!("{error:#}"),
        }
        self.is_failing = self.written != Some(serial);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use store::records::{PagePosition, PageSize};

    use super::*;
    use crate::testing::{FakePrimary, IDENTITY, commit, frames, hello, records, until};

    /// A connection on which so many frames come, in pages of 100 records.
    async fn connection(source: &Records, taker: &ReplicaWriter, frames_max: usize) -> Session {
        let mut place = PagePosition::after(taker.asks_after());
        let mut frames = Vec::new();
        loop {
            let size = PageSize { records_max: 100, bytes_max: 1 << 20 };
            let page = source.page_after(&place, size).await.expect("a page");
            frames.push(Frame::Records(page.records));
            place = page.next;
            if page.is_last {
                let serial = page.serial.0;
                frames.push(Frame::Whole(Whole::at(serial)));
                break;
            }
        }
        frames.truncate(frames_max);
        let bytes: Vec<_> = frames.iter().map(|frame| Ok(frame.encode())).collect();
        let hello = hello(0);
        let reading = RecordStream::of("http://primary", futures_util::stream::iter(bytes).boxed());
        Session::of("http://primary", taker, hello, reading)
    }

    async fn next_whole(taker: &mut ReplicaWriter, session: &mut Session) -> Result<u64, Failure> {
        loop {
            match taker.next(session).await? {
                Event::Whole { records, .. } => return Ok(records),
                Event::Taken { .. } => {}
                Event::Alive(_) => panic!("nobody said so"),
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_breaks_anywhere_loses_nothing() {
        let ((source, _one), (target, _other)) = (records().await, records().await);
        // Commits with more records than a page has, and than are compared.
        commit(&source, 0..1_500, "first").await;
        commit(&source, 700..1_000, "second").await;
        let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
        for round in 0..60 {
            let frames_max = [1, 2, 3, 5, 100][round % 5];
            let mut session = connection(&source, &taker, frames_max).await;
            match next_whole(&mut taker, &mut session).await {
                Ok(_) => {
                    let all = source.records_after(Serial::ZERO).await.expect("read");
                    assert_eq!(target.records_after(Serial::ZERO).await, Ok(all), "{round}");
                    commit(&source, round * 20..round * 20 + 400, "later").await;
                }
                Err(Failure::Primary(PrimaryError::Unreachable { .. })) => {}
                Err(failure) => panic!("{round}: {failure}"),
            }
            if round % 3 == 0 {
                commit(&source, round..round + 2, "meanwhile").await;
            }
        }
        assert!(target.serial().await.expect("a serial") > Serial(5));
    }

    #[tokio::test]
    async fn another_history_is_noticed_wherever_it_began() {
        for common in [0, 1, 20, 40] {
            let ((source, _one), (target, _other), (fork, _third)) =
                (records().await, records().await, records().await);
            for number in 0..40 {
                commit(&source, number..number + 3, "theirs").await;
                let body = if number < common { "theirs" } else { "ours" };
                commit(&fork, number..number + 3, body).await;
            }
            let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
            let mut session = connection(&source, &taker, 100).await;
            next_whole(&mut taker, &mut session).await.expect("a state");
            let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
            // It has gone further than what it lost.
            commit(&fork, 100..110, "more").await;
            let mut session = connection(&fork, &taker, 100).await;
            let found = next_whole(&mut taker, &mut session).await;
            let is_other = matches!(found, Err(Failure::OtherHistory(_)));
            assert_eq!(is_other, common < 40, "{common}");
        }
    }

    #[tokio::test]
    async fn another_history_is_noticed_after_a_commit_of_many_records() {
        let ((source, _one), (target, _other), (fork, _third)) =
            (records().await, records().await, records().await);
        commit(&source, 0..1_000, "theirs").await;
        commit(&fork, 0..1_000, "ours").await;
        let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
        let mut session = connection(&source, &taker, 100).await;
        next_whole(&mut taker, &mut session).await.expect("a state");
        commit(&fork, 2_000..2_001, "more").await;
        for mut taker in [taker, ReplicaWriter::new(&target).await.expect("a taker")] {
            let mut session = connection(&fork, &taker, 100).await;
            let found = next_whole(&mut taker, &mut session).await;
            assert!(matches!(found, Err(Failure::OtherHistory(_))), "{found:?}");
        }
    }

    /// All of a store, as frames.
    async fn all(source: &Records) -> Vec<Frame> {
        let (records, Serial(serial)) = source.records_after(Serial::ZERO).await.expect("read");
        vec![Frame::Records(records), Frame::Whole(Whole::at(serial))]
    }

    #[tokio::test]
    async fn a_follower_that_is_behind_has_no_other_history() {
        let ((source, _one), (target, _other)) = (records().await, records().await);
        commit(&source, 0..3, "first").await;
        let behind = all(&source).await;
        // What the other follower still has at its old serial.
        commit(&source, 0..2, "second").await;
        let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
        let mut session = connection(&source, &taker, 100).await;
        next_whole(&mut taker, &mut session).await.expect("a state");
        for is_follower in [true, false] {
            let hello = Hello { is_follower, ..hello(1) };
            let server = FakePrimary::with(vec![frames(hello, &behind)]).await;
            let known = PrimaryStore { identity: IDENTITY.to_owned(), ..PrimaryStore::default() };
            let own = Some((IDENTITY, None));
            let opened = Session::open(&server.primary, &taker, &known, own).await;
            let failure = match opened {
                Err(failure) => failure,
                Ok(mut session) => {
                    next_whole(&mut taker, &mut session).await.expect_err("another history")
                }
            };
            match is_follower {
                true => assert!(matches!(failure, Failure::NotNow(_)), "{failure}"),
                false => assert!(matches!(failure, Failure::OtherHistory(_)), "{failure}"),
            }
        }
    }

    #[tokio::test]
    async fn another_store_is_noticed_before_its_generation() {
        let (target, _directory) = records().await;
        let of = |identity: &str, generation: u64| {
            let identity = identity.to_owned();
            frames(Hello { identity, generation, ..hello(1) }, &[])
        };
        let taker = ReplicaWriter::new(&target).await.expect("a taker");
        let known = PrimaryStore { identity: IDENTITY.to_owned(), generation: 2, part: None };
        let server =
            FakePrimary::with(vec![of(IDENTITY, 1), of("9876543210", 1), of("?", 2)]).await;
        for expected in ["was promoted since", "had the store", "the name of its store is none"] {
            let own = Some((IDENTITY, None));
            let opened = Session::open(&server.primary, &taker, &known, own).await;
            let failure = opened.err().expect("refused").to_string();
            assert!(failure.contains(expected), "{failure}");
        }
        assert!(server.asked()[0].contains(&format!("identity={IDENTITY}&generation=2")));
    }

    #[tokio::test]
    async fn only_records_that_are_stored_make_the_pause_short_again() {
        let (source, _one) = records().await;
        commit(&source, 0..3, "theirs").await;
        let server = FakePrimary::with(vec![frames(hello(1), &all(&source).await)]).await;
        let pace = Pace { first: Duration::from_millis(1), max: Duration::from_secs(3_600) };
        for takes_records in [false, true] {
            let mut failures = Failures::new(pace);
            for _ in 0..9 {
                let (target, place) = records().await;
                let link = Link::new(String::new(), Serial::ZERO, Serial::ZERO);
                let mut noting =
                    NoteWriter::new(place.path().to_owned(), "http://primary", IDENTITY, None);
                let mut taker = ReplicaWriter::new(&target).await.expect("a taker");
                if !takes_records {
                    // A store that somebody else has written to takes no records of the primary.
                    commit(&target, 7..8, "ours").await;
                }
                let state = (&mut taker, &mut noting, &mut failures);
                let failure =
                    one_connection(&target, &server.primary, &link, state, IDENTITY).await;
                assert_eq!(matches!(failure, Failure::Local(_)), !takes_records, "{failure}");
                let pause = failures.failed(&failure, false);
                assert!(!takes_records || pause <= pace.first, "{pause:?}");
            }
            let has_grown = failures.failed(&"", false) >= pace.first * 256;
            assert_eq!(has_grown, !takes_records);
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_is_tried_again() {
        let (source, _one) = records().await;
        commit(&source, 0..3, "theirs").await;
        let server = FakePrimary::with(vec![frames(hello(1), &all(&source).await)]).await;
        let (target, place) = records().await;
        let (file, away) = (place.path().join("records.db"), place.path().join("away.db"));
        std::fs::rename(&file, &away).expect("renamed");
        let link = Link::new(String::new(), Serial::ZERO, Serial::ZERO);
        let names = (place.path().to_owned(), IDENTITY.to_owned(), None);
        let pace = Pace { first: Duration::from_millis(1), max: Duration::from_millis(5) };
        let following = follow(&target, &server.primary, &link, names, pace);
        let trying = async {
            until(|| link.state().trouble.is_some()).await;
            assert!(server.asked().is_empty());
            std::fs::rename(&away, &file).expect("renamed");
            until(|| link.state().serial == Serial(1)).await;
        };
        tokio::select! {
            why = following => panic!("{why}"),
            () = trying => {}
        }
    }
}
