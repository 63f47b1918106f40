//! [`Link`]: how a follower is connected to its primary, and how far behind it is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use record::Serial;
use tokio::sync::watch;

use crate::frame::Hello;

/// For how long a quiet connection counts as up to date: the primary says sooner that it is alive.
const QUIET_MAX: Duration = Duration::from_secs(15);

/// The state of a follower's connection, for its pages and metrics.
#[derive(Debug)]
pub struct Link {
    /// The URL that it follows.
    pub url: String,
    state: Mutex<LinkState>,
    /// The dump of the AUR's packages that the other server has, while it is connected.
    aur_dump: watch::Sender<Option<u64>>,
}

/// What is known at one moment.
#[derive(Clone, Debug, Default)]
pub struct LinkState {
    /// Since when it is connected.
    pub connected_since: Option<Timestamp>,
    /// Why it is not.
    pub trouble: Option<String>,
    /// The serial of this store.
    pub serial: Serial,
    /// The serial of the primary, as it was told last.
    pub primary_serial: Serial,
    /// When the other server was heard last.
    pub heard_at: Option<Timestamp>,
    /// When the last records were written.
    pub written_at: Option<Timestamp>,
    /// Where clients write, if the other server knows better than this one.
    pub primary_url: Option<String>,
    /// How often it has connected.
    pub connections: u64,
    /// Records that it has written since its start.
    pub records: u64,
    /// Records that have arrived since its start, whether they are written or not.
    pub received: u64,
    /// Why it must read everything anew, while it does.
    pub starts_over: Option<String>,
    heard: Option<Instant>,
    /// When it had everything.
    in_sync: Option<(Timestamp, Instant)>,
    /// The dump of the AUR's packages that is served here, by the other server's number.
    aur_dump: Option<u64>,
    /// The one that the other server has.
    aur_dump_there: Option<u64>,
    /// When both were the same.
    aur_in_sync: Option<Instant>,
}

impl Link {
    /// A link that has not been made.
    pub fn new(url: String, serial: Serial, primary_serial: Serial) -> Link {
        let state = LinkState { serial, primary_serial, ..LinkState::default() };
        Link { url, state: Mutex::new(state), aur_dump: watch::Sender::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now.
    pub fn state(&self) -> LinkState {
        self.lock().clone()
    }

    /// Notes the serial that this store begins with.
    pub(crate) fn begins_at(&self, serial: Serial) {
        let mut state = self.lock();
        state.serial = serial;
        state.primary_serial = state.primary_serial.max(serial);
    }

    /// Notes that the other server answers. Whether this one has everything is not known before there is a state.
    pub(crate) fn connected(&self, hello: &Hello) {
        let mut state = self.lock();
        let (theirs, now) = (Serial(hello.serial), Timestamp::now());
        state.connected_since = Some(now);
        (state.heard_at, state.heard) = (Some(now), Some(Instant::now()));
        state.trouble = None;
        state.connections += 1;
        state.primary_url.clone_from(&hello.primary_url);
        // A follower knows more of the primary than it has, and says so later. A primary may have fallen back.
        let known = if hello.is_follower { state.primary_serial } else { state.serial };
        state.primary_serial = theirs.max(known);
    }

    /// Notes how far the primary is.
    pub(crate) fn heard(&self, primary_serial: Serial) {
        heard(&mut self.lock(), primary_serial);
    }

    /// Notes that so many records have arrived.
    pub(crate) fn received(&self, records: u64) {
        self.lock().received += records;
    }

    /// Notes that this store is at `serial`, by so many records.
    pub(crate) fn wrote(&self, serial: Serial, records: u64, primary_serial: Serial) {
        let mut state = self.lock();
        state.serial = serial;
        state.records += records;
        state.written_at = Some(Timestamp::now());
        heard(&mut state, primary_serial);
    }

    /// Notes that the connection is gone, and why.
    pub fn lost(&self, trouble: String) {
        let mut state = self.lock();
        state.connected_since = None;
        state.trouble = Some(trouble);
        drop(state);
        self.aur_dump.send_if_modified(|dump| dump.take().is_some());
    }

    /// Notes which dump of the AUR's packages the other server has.
    pub fn announced(&self, dump: Option<u64>) {
        self.lock().compare_dumps(|state| state.aur_dump_there = dump);
        self.aur_dump.send_if_modified(|before| std::mem::replace(before, dump) != dump);
    }

    /// Watches which dump of the AUR's packages the other server has; `None` while that is not known, or if it has none.
    pub fn aur_dump(&self) -> watch::Receiver<Option<u64>> {
        self.aur_dump.subscribe()
    }

    /// Notes that this server has what the other one has in that dump.
    pub fn has_aur_dump(&self, dump: u64) {
        self.lock().compare_dumps(|state| state.aur_dump = Some(dump));
    }

    /// Notes that everything is read anew, and why.
    pub fn start_over(&self, why: String) {
        self.lock().starts_over = Some(why);
    }
}

fn heard(state: &mut LinkState, primary_serial: Serial) {
    let now = (Timestamp::now(), Instant::now());
    state.primary_serial = primary_serial.max(state.serial);
    (state.heard_at, state.heard) = (Some(now.0), Some(now.1));
    if state.serial == state.primary_serial {
        state.in_sync = Some(now);
    }
}

impl LinkState {
    /// How many commits of the primary it lacks, as far as it knows.
    pub fn serials_behind(&self) -> u64 {
        self.primary_serial.0.saturating_sub(self.serial.0)
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.connected_since.is_some()
    }

    /// When it had everything that the primary had.
    pub fn in_sync_at(&self) -> Option<Timestamp> {
        self.in_sync.map(|(at, _)| at)
    }

    fn compare_dumps(&mut self, change: impl FnOnce(&mut LinkState)) {
        change(self);
        if self.has_latest_dump() {
            self.aur_in_sync = Some(Instant::now());
        }
    }

    fn has_latest_dump(&self) -> bool {
        self.aur_dump.is_some() && self.aur_dump == self.aur_dump_there
    }

    fn is_heard(&self) -> bool {
        self.is_connected() && self.heard.is_some_and(|at| at.elapsed() < QUIET_MAX)
    }

    /// For how long it may lack changes of the AUR's packages: zero while it is connected and lacks none. `None` if it never had what
    /// the other server has.
    pub fn aur_lag(&self) -> Option<Duration> {
        let in_sync = self.aur_in_sync?;
        let is_current = self.is_heard() && self.has_latest_dump();
        Some(if is_current { Duration::ZERO } else { in_sync.elapsed() })
    }

    /// For how long it may lack something: zero while it is connected and lacks nothing. `None` if it never had everything.
    pub fn lag(&self) -> Option<Duration> {
        match self.in_sync {
            Some(_) if self.is_heard() && self.serials_behind() == 0 => Some(Duration::ZERO),
            in_sync => in_sync.map(|(_, at)| at.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn hello(serial: u64, is_follower: bool) -> Hello {
        Hello { is_follower, ..testing::hello(serial) }
    }

    #[test]
    fn a_link_knows_how_far_behind_it_is() {
        let link = Link::new("http://primary".to_owned(), Serial(3), Serial(5));
        assert_eq!((link.state().serials_behind(), link.state().lag()), (2, None));
        link.connected(&hello(6, false));
        assert_eq!((link.state().serials_behind(), link.state().lag()), (3, None));
        link.wrote(Serial(6), 3, Serial(6));
        assert_eq!((link.state().serials_behind(), link.state().lag()), (0, Some(Duration::ZERO)));
        link.heard(Serial(7));
        let lag = link.state().lag().expect("it had everything once");
        assert!(lag > Duration::ZERO && link.state().serials_behind() == 1);
        link.lost("gone".to_owned());
        assert!(!link.state().is_connected());
        assert_eq!(link.state().trouble.as_deref(), Some("gone"));
    }

    #[test]
    fn a_link_knows_whether_the_packages_are_those_of_the_primary() {
        let link = Link::new("http://primary".to_owned(), Serial(3), Serial(5));
        let told = link.aur_dump();
        link.connected(&hello(6, false));
        link.announced(Some(7));
        assert_eq!((*told.borrow(), link.state().aur_lag()), (Some(7), None));
        link.has_aur_dump(7);
        assert_eq!(link.state().aur_lag(), Some(Duration::ZERO));
        link.announced(Some(8));
        assert!(link.state().aur_lag() > Some(Duration::ZERO));
        link.has_aur_dump(8);
        assert_eq!(link.state().aur_lag(), Some(Duration::ZERO));
        link.lost("gone".to_owned());
        assert!(told.borrow().is_none() && link.state().aur_lag() > Some(Duration::ZERO));
    }

    #[test]
    fn a_primary_that_fell_back_has_no_more_than_it_says() {
        let link = Link::new("http://primary".to_owned(), Serial(3), Serial(100));
        // A follower does not know yet, and then says what it knows.
        link.connected(&hello(4, true));
        assert_eq!(link.state().primary_serial, Serial(100));
        link.wrote(Serial(4), 1, Serial(9));
        assert_eq!((link.state().serials_behind(), link.state().lag().is_some()), (5, false));
        link.connected(&hello(6, false));
        assert_eq!(link.state().serials_behind(), 2);
        link.wrote(Serial(6), 2, Serial(6));
        assert_eq!((link.state().serials_behind(), link.state().lag()), (0, Some(Duration::ZERO)));
        // It cannot have less than this store, as long as it has the same history.
        link.connected(&hello(2, false));
        assert_eq!(link.state().primary_serial, Serial(6));
    }
}
