//! [`follow()`]: takes the primary's records, in order, for as long as the server runs.
//!
//! Each connection asks for some records that were taken before as well. They must be as they were, or have been written again
//! since: otherwise the other server has another history, because it was restored from an older backup or is another store, and
//! everything has to be read anew. Records up to a [`Frame::Whole`] are one transaction; if the connection breaks in between, the
//! next one goes on where it was.

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use record::{Key, Record, Serial};
use store::records::Replica;
use store::{CommitError, Records};
use twox_hash::XxHash3_64;

use crate::frame::{Frame, Hello, Whole};
use crate::link::Link;
use crate::note::FollowerNote;
use crate::primary::{Primary, PrimaryError, Reading};

/// Records that are compared when a connection is made.
const COMPARED_MAX: usize = 256;

/// How often the highest serial of the primary is written into the note, at most.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// How soon a broken connection is made again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { first: Duration::from_millis(100), max: Duration::from_secs(15) }
    }
}

impl Pace {
    /// The pause after so many failures in a row, shortened at random by up to half, so that followers which lost their primary
    /// together do not come back together.
    pub(crate) fn pause(self, failures: u32, is_lasting: bool) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let longest = if is_lasting { self.max } else { doubled.min(self.max) };
        let mut chance = [0; 2];
        // If there are no random bytes, the pause is not shortened.
        let _ = getrandom::fill(&mut chance);
        longest - longest.mul_f64(f64::from(u16::from_le_bytes(chance)) / f64::from(u16::MAX) / 2.0)
    }
}

/// Why following ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other server has another history: everything has to be read anew.
    StartOver(String),
}

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
struct Taken {
    key: Key,
    serial: Serial,
    content: u64,
}

impl Taken {
    fn of(record: &Record) -> Taken {
        let mut hasher = XxHash3_64::new();
        hasher.write(&[u8::from(record.body.is_some())]);
        hasher.write(record.body.as_deref().unwrap_or_default());
        record.blobs.iter().for_each(|digest| hasher.write(digest.as_bytes()));
        Taken { key: record.key.clone(), serial: record.serial, content: hasher.finish() }
    }
}

/// Writes what comes, and remembers the last of it.
pub(crate) struct Taker {
    replica: Replica,
    latest: VecDeque<Taken>,
    /// `latest` has all records after this serial that were taken.
    complete_after: Serial,
    /// The last record that was taken; without a key, all of that serial were.
    at: (Serial, Option<Key>),
    /// Records since the last whole state.
    records: u64,
}

impl Taker {
    /// Goes on from what is in `records`.
    pub(crate) async fn new(records: &Records) -> Result<Taker, CommitError> {
        let replica = records.replica().await?;
        let (mut latest, complete_after) = records.latest(COMPARED_MAX).await?;
        latest.sort_by(|one, other| (one.serial, &one.key).cmp(&(other.serial, &other.key)));
        let at = (replica.serial(), None);
        let latest = latest.iter().map(Taken::of).collect();
        Ok(Taker { replica, latest, complete_after, at, records: 0 })
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
        if self.latest.len() == COMPARED_MAX
            && let Some(first) = self.latest.pop_front()
        {
            self.complete_after = first.serial;
        }
        self.latest.push_back(Taken::of(&record));
        self.at = (record.serial, Some(record.key.clone()));
        self.records += 1;
        self.replica.take(record).await
    }

    /// Reads frames until there is a state of the store, which is durable then.
    pub(crate) async fn next_whole(&mut self, session: &mut Session) -> Result<Event, Failure> {
        loop {
            match session.reading.next().await? {
                Frame::Records(records) => {
                    for record in records {
                        if !self.has(&record) {
                            session.expected.remove(&record.key);
                            self.take(record).await?;
                        } else if record.serial > session.compared_after
                            && !session.confirms(&record)
                        {
                            return Err(self.other_history(&record.key));
                        }
                    }
                }
                Frame::Whole(whole) => {
                    let serial = Serial(whole.serial);
                    self.check_whole(session, serial)?;
                    self.replica.finish(serial).await?;
                    self.at = (serial, None);
                    let records = std::mem::take(&mut self.records);
                    return Ok(Event::Whole { whole, records });
                }
                Frame::Alive(whole) => return Ok(Event::Alive(whole)),
                Frame::End(end) => return Err(Failure::NotNow(end.reason)),
                Frame::Hello(_) => {
                    let flaw = "it told its name twice".to_owned();
                    let url = session.url.clone();
                    return Err(PrimaryError::Flawed { url, flaw }.into());
                }
            }
        }
    }

    fn check_whole(&self, session: &mut Session, serial: Serial) -> Result<(), Failure> {
        if serial < self.at.0 {
            let (found, seen) = (serial, self.at.0);
            // The other follower may only have to catch up.
            if session.hello.is_follower {
                return Err(Failure::NotNow(format!(
                    "it is a follower itself, and at serial {found} behind serial {seen} of this server"
                )));
            }
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

/// What a connection brought.
pub(crate) enum Event {
    /// The store is at this state, by so many records.
    Whole { whole: Whole, records: u64 },
    /// There is nothing new.
    Alive(Whole),
}

/// A connection.
pub(crate) struct Session {
    url: String,
    pub(crate) hello: Hello,
    reading: Reading,
    /// Records that were taken before are compared from here on.
    compared_after: Serial,
    /// Those that have not come again.
    expected: HashMap<Key, Taken>,
}

impl Session {
    /// Connects, and asks for what comes after what `taker` has.
    pub(crate) async fn open(
        primary: &Primary,
        taker: &Taker,
        generation: u64,
    ) -> Result<Session, Failure> {
        let (hello, reading) = primary.records(taker.asks_after(), generation).await?;
        Ok(Session::of(primary.url(), taker, hello, reading))
    }

    fn of(url: &str, taker: &Taker, hello: Hello, reading: Reading) -> Session {
        let compared_after = taker.complete_after;
        // The last one of a key counts.
        let known = taker.latest.iter().filter(|taken| taken.serial > compared_after);
        let expected = known.map(|taken| (taken.key.clone(), taken.clone())).collect();
        Session { url: url.to_owned(), hello, reading, compared_after, expected }
    }

    /// Whether the record is as it was.
    fn confirms(&mut self, record: &Record) -> bool {
        let found = Taken::of(record);
        self.expected
            .remove(&record.key)
            .is_some_and(|known| known.serial == found.serial && known.content == found.content)
    }
}

/// Follows the primary until its history turns out to be another one. To be dropped when the server stops.
///
/// # Errors
/// If the records cannot be followed at all.
pub async fn follow(
    records: &Records,
    primary: &Primary,
    link: &Link,
    (data_dir, identity): (PathBuf, String),
    pace: Pace,
) -> Result<Ended, CommitError> {
    let mut taker = Taker::new(records).await?;
    link.begins_at(taker.replica.serial());
    let mut noting = Noting::new(data_dir, primary.url(), &identity);
    let mut failures = 0;
    loop {
        let failure = one_connection(records, primary, link, (&mut taker, &mut noting), &identity);
        let (failure, was_connected) = failure.await;
        if was_connected {
            failures = 0;
        }
        failures += 1;
        if let Failure::OtherHistory(why) = failure {
            taker.forget().await;
            return Ok(Ended::StartOver(format!("{}: {why}", primary.url())));
        }
        if link.lost(failure.to_string()) {
            tracing::warn!(error = %failure, "the primary is not followed now; what was read before is served");
        }
        noting.write(link.state().primary_serial).await;
        if let Failure::Local(_) = failure {
            taker.forget().await;
            taker = Taker::new(records).await?;
        }
        tokio::time::sleep(pace.pause(failures, failure.is_lasting())).await;
    }
}

/// Connects and follows until that fails; returns why, and whether the other server answered.
async fn one_connection(
    records: &Records,
    primary: &Primary,
    link: &Link,
    (taker, noting): (&mut Taker, &mut Noting),
    identity: &str,
) -> (Failure, bool) {
    let generation = match crate::generation::of(records).await {
        Ok(generation) => generation,
        Err(error) => return (Failure::NotNow(format!("{error:#}")), false),
    };
    let mut session = match Session::open(primary, taker, generation).await {
        Ok(session) => session,
        Err(failure) => return (failure, false),
    };
    let hello = &session.hello;
    if hello.generation < generation {
        let found = hello.generation;
        return (
            Failure::NotNow(format!(
                "it is a primary of generation {found}, and this copy is of generation {generation}: a follower of it was \
                 promoted since, and is to be followed"
            )),
            false,
        );
    }
    if hello.identity != identity {
        let found = &hello.identity;
        let why = format!("it has the store {found}, and had the store {identity}");
        return (Failure::OtherHistory(why), false);
    }
    let was_lost = link.state().trouble.is_some();
    link.connected(Serial(hello.serial), hello.primary_url.clone());
    noting.write(Serial(hello.serial)).await;
    if was_lost {
        tracing::info!(url = primary.url(), "the primary is followed again");
    }
    loop {
        match taker.next_whole(&mut session).await {
            Ok(Event::Whole { whole, records }) => {
                link.wrote(Serial(whole.serial), records, Serial(whole.primary_serial));
                noting.heard(Serial(whole.primary_serial)).await;
            }
            Ok(Event::Alive(whole)) => {
                link.heard(Serial(whole.primary_serial));
                noting.heard(Serial(whole.primary_serial)).await;
            }
            Err(failure) => return (failure, true),
        }
    }
}

/// Writes the highest serial of the primary into the note, so that `larder promote` knows it.
struct Noting {
    data_dir: PathBuf,
    url: String,
    identity: String,
    written: Option<(Serial, Instant)>,
}

impl Noting {
    fn new(data_dir: PathBuf, url: &str, identity: &str) -> Noting {
        Noting { data_dir, url: url.to_owned(), identity: identity.to_owned(), written: None }
    }

    /// Writes it if it has changed, and not often.
    async fn heard(&mut self, serial: Serial) {
        match self.written {
            Some((_, at)) if at.elapsed() < NOTE_INTERVAL => {}
            _ => self.write(serial).await,
        }
    }

    async fn write(&mut self, serial: Serial) {
        if self.written.is_some_and(|(written, _)| written >= serial) {
            return;
        }
        let note = FollowerNote::new(&self.url, &self.identity, serial.0);
        let data_dir = self.data_dir.clone();
        let writing = tokio::task::spawn_blocking(move || {
            // What an earlier run has heard counts, too.
            match FollowerNote::read(&data_dir)? {
                Some(known)
                    if known.identity == note.identity
                        && known.primary_serial >= note.primary_serial =>
                {
                    Ok(())
                }
                _ => note.write(&data_dir),
            }
        });
        match writing.await {
            Ok(Ok(())) => self.written = Some((serial, Instant::now())),
            Ok(Err(error)) => tracing::warn!("{error:#}"),
            Err(error) => tracing::warn!(%error, "the note of the follower cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use record::{Batch, Expected};
    use store::DatabaseLocation;
    use store::records::{PageSize, Place, RecordsOptions};

    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let pace = Pace::default();
        for failures in [1, 2, 7, 8, 9, 100, u32::MAX] {
            let longest = (pace.first * (1 << (failures - 1).min(16))).min(pace.max);
            for _ in 0..50 {
                let found = pace.pause(failures, false);
                assert!(found <= longest && found >= longest / 2, "{failures}: {found:?}");
                assert!(pace.pause(failures, true) >= pace.max / 2);
            }
        }
    }

    async fn records() -> (Records, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let location = DatabaseLocation::Sqlite(directory.path().join("records.db"));
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        (records, directory)
    }

    /// A commit of so many records; earlier ones of the same names are overwritten.
    async fn commit(records: &Records, names: std::ops::Range<usize>, body: &str) {
        let batch = names.fold(Batch::new(), |batch, number| {
            let key = Key::new(&format!("n/{number:05}")).expect("a key");
            batch.put(key, Expected::Anything, format!("{body} {number}"), Vec::new())
        });
        records.commit(batch).await.expect("committed");
    }

    /// A connection on which so many frames come, in pages of 100 records.
    async fn connection(source: &Records, taker: &Taker, frames_max: usize) -> Session {
        let mut place = Place::after(taker.asks_after());
        let mut frames = Vec::new();
        loop {
            let size = PageSize { records_max: 100, bytes_max: 1 << 20 };
            let page = source.page_after(&place, size).await.expect("a page");
            frames.push(Frame::Records(page.records));
            place = page.next;
            if page.is_last {
                let serial = page.serial.0;
                frames.push(Frame::Whole(Whole { serial, primary_serial: serial }));
                break;
            }
        }
        frames.truncate(frames_max);
        let bytes: Vec<_> = frames.iter().map(|frame| Ok(frame.encode())).collect();
        let hello = Hello {
            identity: "0123456789".to_owned(),
            generation: 0,
            serial: 0,
            is_follower: false,
            primary_url: None,
            version: String::new(),
        };
        let reading = Reading::of("http://primary", futures_util::stream::iter(bytes).boxed());
        Session::of("http://primary", taker, hello, reading)
    }

    #[tokio::test]
    async fn a_connection_that_breaks_anywhere_loses_nothing() {
        let ((source, _one), (target, _other)) = (records().await, records().await);
        // Commits with more records than a page has, and than are compared.
        commit(&source, 0..1_500, "first").await;
        commit(&source, 700..1_000, "second").await;
        let mut taker = Taker::new(&target).await.expect("a taker");
        for round in 0..60 {
            let frames_max = [1, 2, 3, 5, 100][round % 5];
            let mut session = connection(&source, &taker, frames_max).await;
            match taker.next_whole(&mut session).await {
                Ok(Event::Whole { .. }) => {
                    let all = source.records_after(Serial::ZERO).await.expect("read");
                    assert_eq!(target.records_after(Serial::ZERO).await, Ok(all), "{round}");
                    commit(&source, round * 20..round * 20 + 400, "later").await;
                }
                Ok(Event::Alive(_)) => panic!("nobody said so"),
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
            let mut taker = Taker::new(&target).await.expect("a taker");
            let mut session = connection(&source, &taker, 100).await;
            assert!(matches!(taker.next_whole(&mut session).await, Ok(Event::Whole { .. })));
            let mut taker = Taker::new(&target).await.expect("a taker");
            // It has gone further than what it lost.
            commit(&fork, 100..110, "more").await;
            let mut session = connection(&fork, &taker, 100).await;
            let found = taker.next_whole(&mut session).await;
            let is_other = matches!(found, Err(Failure::OtherHistory(_)));
            assert_eq!(is_other, common < 40, "{common}");
        }
    }
}
