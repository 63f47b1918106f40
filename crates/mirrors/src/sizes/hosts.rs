//! [`Hosts`]: which servers of files are not asked for sizes now.
//!
//! a host and a time -> whether it may be asked; its answer -> for how long it is left alone. The circuit breaker of pages and
//! files is a different one: a server that refuses HEAD may well send files.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Url;

/// Hosts that are remembered.
const HOSTS_MAX: usize = 1_000;

/// The pause after the first failure. Each further one in a row doubles it, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(60);
/// The longest pause, and the one of a host that refuses HEAD.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// After this many refused files in a row, a host counts as refusing all.
const REFUSALS_MAX: u32 = 3;

/// How hosts answered lately. Times are since any fixed moment.
#[derive(Default)]
pub(super) struct Hosts {
    troubled: HashMap<Box<str>, Trouble>,
}

#[derive(Clone, Copy, Default)]
struct Trouble {
    failures: u32,
    refusals: u32,
    pause_ends_at: Duration,
}

impl Hosts {
    /// Whether this host may be asked.
    pub(super) fn may_be_asked(&self, host: &str, now: Duration) -> bool {
        self.troubled.get(host).is_none_or(|it| now >= it.pause_ends_at)
    }

    /// The host has answered, whatever it said of the file.
    pub(super) fn answered(&mut self, host: &str) {
        self.troubled.remove(host);
    }

    /// The host does not support HEAD.
    pub(super) fn knows_no_head(&mut self, host: &str, now: Duration) {
        self.change(host, now, |it| it.pause_ends_at = now + PAUSE_MAX);
    }

    /// The host refuses this file, or HEAD.
    pub(super) fn refused(&mut self, host: &str, now: Duration) {
        self.change(host, now, |it| {
            it.refusals = it.refusals.saturating_add(1);
            if it.refusals >= REFUSALS_MAX {
                it.pause_ends_at = now + PAUSE_MAX;
            }
        });
    }

    /// The host has not answered, or cannot now.
    pub(super) fn failed(&mut self, host: &str, now: Duration) {
        self.change(host, now, |it| {
            let pause = PAUSE_MIN * 2_u32.pow(it.failures.min(6));
            it.failures = it.failures.saturating_add(1);
            it.pause_ends_at = now + pause.min(PAUSE_MAX);
        });
    }

    fn change(&mut self, host: &str, now: Duration, change: impl FnOnce(&mut Trouble)) {
        if !self.troubled.contains_key(host) && self.troubled.len() >= HOSTS_MAX {
            self.troubled.retain(|_, it| now < it.pause_ends_at);
            if self.troubled.len() >= HOSTS_MAX {
                self.troubled.clear();
            }
        }
        change(self.troubled.entry(host.into()).or_default());
    }
}

/// The host of a file's URL, with its port.
pub(super) fn host_of(url: &Url) -> Box<str> {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_host_that_knows_no_head_is_left_alone_for_an_hour() {
        let mut hosts = Hosts::default();
        hosts.knows_no_head("a:443", seconds(10));
        assert!(!hosts.may_be_asked("a:443", seconds(3_609)));
        assert!(
            hosts.may_be_asked("a:443", seconds(3_610)) && hosts.may_be_asked("b:443", seconds(10))
        );
    }

    #[test]
    fn a_host_that_refuses_three_files_in_a_row_refuses_head() {
        let mut hosts = Hosts::default();
        for _ in 0..2 {
            hosts.refused("a:443", seconds(1));
            hosts.refused("a:443", seconds(1));
            assert!(hosts.may_be_asked("a:443", seconds(1)));
            hosts.answered("a:443");
        }
        for _ in 0..3 {
            hosts.refused("a:443", seconds(1));
        }
        assert!(!hosts.may_be_asked("a:443", seconds(3_600)));
        assert!(hosts.may_be_asked("a:443", seconds(3_601)), "it may have changed");
        hosts.refused("a:443", seconds(3_601));
        assert!(!hosts.may_be_asked("a:443", seconds(3_602)), "it has not");
    }

    #[test]
    fn pauses_after_failures_double_up_to_an_hour() {
        let mut hosts = Hosts::default();
        for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            hosts.failed("a:443", seconds(0));
            assert!(!hosts.may_be_asked("a:443", seconds(pause - 1)), "{pause}");
            assert!(hosts.may_be_asked("a:443", seconds(pause)), "{pause}");
        }
        hosts.answered("a:443");
        hosts.failed("a:443", seconds(0));
        assert!(hosts.may_be_asked("a:443", seconds(60)));
    }

    #[test]
    fn so_many_hosts_are_remembered() {
        let mut hosts = Hosts::default();
        for number in 0..3 * HOSTS_MAX {
            hosts.failed(&format!("h{number}:443"), seconds(0));
            assert!(hosts.troubled.len() <= HOSTS_MAX);
        }
    }

    #[test]
    fn the_port_belongs_to_the_host() {
        let check = |url: &str, host: &str| {
            assert_eq!(&*host_of(&Url::parse(url).expect("a URL")), host);
        };
        check("https://files.example/x", "files.example:443");
        check("http://files.example:8080/x", "files.example:8080");
    }
}
