//! Finds connections that hold something up, and since when.
//!
//! The sweep of a listener compares two looks at a connection's [`Progress`] through a [`Watch`]. No request reads a clock:
//! time exists only at the sweep.

use std::time::{Duration, Instant};

use super::Limits;
use super::progress::{Phase, Progress};

impl Phase {
    fn timeout(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::Leave | Self::Handler | Self::Source => None,
            Self::Write(_) | Self::Window(_) | Self::Closing(_) => Some(limits.write_stall_timeout),
            Self::Body(..) => Some(limits.body_timeout),
            Self::Handshake | Self::Head(_) => Some(limits.header_timeout),
            Self::Idle(_) => Some(limits.idle_timeout),
        }
    }
}

/// What the sweep does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepVerdict {
    /// Leave it alone.
    Keep,
    /// Let it finish and close.
    Close,
    /// Drop it: the client holds it up.
    Cut,
}

/// The sweep's memory of one connection.
#[derive(Debug)]
pub(super) struct Watch {
    phase: Phase,
    since: Instant,
}

impl Watch {
    /// Starts watching a new connection.
    pub(super) fn new(now: Instant) -> Self {
        Self { phase: Phase::Head(0), since: now }
    }

    /// Whether at the last look the connection had waited for a request for at least `patience`.
    pub(super) fn has_idled(&self, now: Instant, patience: Duration) -> bool {
        matches!(self.phase, Phase::Idle(_))
            && now.saturating_duration_since(self.since) >= patience
    }

    /// Whether the look at that time found the connection in another phase than the one before, or was the first.
    pub(super) fn has_moved(&self, looked_at: Instant) -> bool {
        self.since >= looked_at
    }

    /// When the connection is to be closed or cut, if nothing moves.
    pub(super) fn due_at(&self, limits: &Limits) -> Option<Instant> {
        self.since.checked_add(self.phase.timeout(limits)?)
    }

    /// What to do with the connection now.
    pub(super) fn check(
        &mut self,
        progress: &Progress,
        limits: &Limits,
        now: Instant,
    ) -> SweepVerdict {
        let phase = Phase::of(progress);
        if phase != self.phase {
            *self = Self { phase, since: now };
        }
        match phase.timeout(limits) {
            Some(timeout) if now.saturating_duration_since(self.since) >= timeout => match phase {
                Phase::Idle(_) => SweepVerdict::Close,
                _ => SweepVerdict::Cut,
            },
            _ => SweepVerdict::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::progress::{HandlerGuard, WaitFlag};

    /// The verdicts at 0, 1, 2 .. seconds, where `act` says what happens just before each look.
    #[track_caller]
    fn check(act: impl Fn(&Arc<Progress>, u64), verdicts: &str) {
        let limits = Limits {
            header_timeout: Duration::from_secs(2),
            body_timeout: Duration::from_secs(3),
            write_stall_timeout: Duration::from_secs(4),
            idle_timeout: Duration::from_secs(5),
            ..Limits::default()
        };
        let progress = Arc::new(Progress::default());
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let found = (0..verdicts.len() as u64)
            .map(|second| {
                act(&progress, second);
                match watch.check(&progress, &limits, start + Duration::from_secs(second)) {
                    SweepVerdict::Keep => '.',
                    SweepVerdict::Close => {
                        progress.close();
                        'c'
                    }
                    SweepVerdict::Cut => 'X',
                }
            })
            .collect::<String>();
        assert_eq!(found, verdicts);
    }

    fn answer(progress: &Arc<Progress>) {
        progress.record_read();
        progress.record_request(false);
        drop(HandlerGuard::new(progress).responds());
        progress.record_write();
    }

    #[test]
    fn a_client_that_sends_nothing_is_cut_after_the_header_timeout() {
        check(|_, _| (), "..X");
    }

    #[test]
    fn the_handshake_and_the_first_head_have_a_timeout_each() {
        check(|progress, second| progress.record_handshake(second < 2), "....X");
        check(|progress, _| progress.record_handshake(true), "..X");
    }

    #[test]
    fn a_head_that_trickles_in_is_cut_after_the_header_timeout() {
        check(
            |progress, _| {
                progress.record_read();
            },
            "..X",
        );
    }

    #[test]
    fn an_idle_connection_is_closed_and_then_cut() {
        check(
            |progress, second| {
                if second == 0 {
                    answer(progress);
                }
            },
            ".....c....X",
        );
    }

    #[test]
    fn requests_keep_a_connection_open() {
        check(|progress, _| answer(progress), "................");
    }

    #[test]
    fn half_a_second_head_is_cut() {
        check(
            |progress, second| {
                if second == 0 {
                    answer(progress);
                    progress.record_read();
                }
            },
            "..X",
        );
    }

    #[test]
    fn http2_frames_between_requests_are_no_head() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_request(true);
                    drop(HandlerGuard::new(progress).responds());
                }
                progress.record_read();
            },
            ".....c",
        );
    }

    #[test]
    fn a_working_handler_is_left_alone() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_request(false);
                    std::mem::forget(HandlerGuard::new(progress));
                }
            },
            "................",
        );
    }

    #[test]
    fn a_body_that_does_not_come_is_cut_after_the_body_timeout() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_request(false);
                    std::mem::forget(HandlerGuard::new(progress));
                    WaitFlag::for_client().set(progress, true);
                }
                progress.record_read();
            },
            "...X",
        );
    }

    #[test]
    fn a_large_body_that_keeps_coming_is_not_cut_and_a_trickle_is() {
        let upload = |bytes: usize| {
            move |progress: &Arc<Progress>, second: u64| {
                if second == 0 {
                    progress.record_request(false);
                    std::mem::forget(HandlerGuard::new(progress));
                    WaitFlag::for_client().set(progress, true);
                }
                progress.record_body_received(bytes);
            }
        };
        check(upload(40_000), "................");
        check(upload(1_000), "...X");
    }

    #[test]
    fn a_reader_without_progress_is_cut_and_a_slow_one_is_not() {
        let stalled = |progress: &Arc<Progress>, _| progress.record_write_blocked(true);
        check(stalled, "....X");
        let slow = |progress: &Arc<Progress>, second: u64| {
            if second.is_multiple_of(3) {
                progress.record_write();
            }
            progress.record_write_blocked(true);
        };
        check(slow, "................");
    }

    #[test]
    fn a_window_that_stays_shut_is_cut() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_request(true);
                    std::mem::forget(HandlerGuard::new(progress).responds());
                    progress.record_body_sent(10);
                }
                // Pings and their answers are no progress of the body.
                progress.record_read();
                progress.record_write();
            },
            "....X",
        );
    }

    #[test]
    fn a_body_that_we_are_slow_to_make_is_not_the_clients_fault() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_request(false);
                    let mut responding = HandlerGuard::new(progress).responds();
                    responding.is_not_ready(true);
                    std::mem::forget(responding);
                }
            },
            "................",
        );
    }

    #[test]
    fn after_a_body_the_connection_is_idle() {
        check(
            |progress, second| {
                if second == 0 {
                    progress.record_read();
                    progress.record_request(false);
                    let handling = HandlerGuard::new(progress);
                    progress.record_read();
                    drop(handling.responds());
                }
            },
            ".....c",
        );
    }
}
