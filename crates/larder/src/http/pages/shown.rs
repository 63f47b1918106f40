//! Parts that many pages of packages show: days, and names that link to a page.

use std::time::SystemTime;

use jiff::Timestamp;

use crate::http::people;

/// A day with its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Day {
    /// For programs.
    pub(super) iso: String,
    /// As `2026-01-02`.
    pub(super) day: String,
    /// As `2026-01-02 03:04`.
    pub(super) minute: String,
}

impl Day {
    /// `None` if it is no valid time.
    pub(super) fn of(seconds: i64) -> Option<Day> {
        let time = Timestamp::from_second(seconds).ok()?;
        Some(Day {
            iso: time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            day: time.strftime("%Y-%m-%d").to_string(),
            minute: time.strftime("%Y-%m-%d %H:%M").to_string(),
        })
    }

    pub(super) fn of_time(time: SystemTime) -> Day {
        let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        Day::of(time.as_second()).unwrap_or_default()
    }
}

/// Something with a page.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// Its name in a path.
    pub(super) path: String,
}

impl From<String> for Named {
    fn from(name: String) -> Named {
        Named { path: people::in_path(&name), name }
    }
}
