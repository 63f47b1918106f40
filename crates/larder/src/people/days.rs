//! Parts that many pages of packages show: days, and names that link to a page.

use std::time::SystemTime;

use jiff::Timestamp;

use crate::front::display::{self, name_in_path};

/// A day with its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Day {
    /// For programs.
    pub(crate) iso: String,
    /// As `2026-01-02`.
    pub(crate) day: String,
    /// As `2026-01-02 03:04`.
    pub(crate) minute: String,
}

impl Day {
    /// `None` if it is no valid time.
    pub(crate) fn of(seconds: i64) -> Option<Day> {
        let time = Timestamp::from_second(seconds).ok()?;
        Some(Day {
            iso: time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            day: time.strftime("%Y-%m-%d").to_string(),
            minute: time.strftime("%Y-%m-%d %H:%M").to_string(),
        })
    }

    /// The minute as HTML: see [`display::ago`].
    pub(crate) fn minute_ago(&self) -> String {
        display::ago(&self.iso, &format!("{} UTC", self.minute))
    }

    pub(crate) fn of_time(time: SystemTime) -> Day {
        let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        Day::of(time.as_second()).unwrap_or_default()
    }
}

/// Something with a page.
#[derive(Clone, Debug)]
pub(crate) struct PageLink {
    pub(crate) name: String,
    /// Its name in a path.
    pub(crate) path: String,
}

impl From<String> for PageLink {
    fn from(name: String) -> PageLink {
        PageLink { path: name_in_path(&name), name }
    }
}
