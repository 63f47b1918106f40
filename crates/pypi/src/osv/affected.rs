//! [`Affected`]: the versions of one project that one record is about.

use std::sync::Arc;

use pep440_rs::Version as Pep440;

use super::Advisory;
use crate::Version;

/// The versions of a project that a record is about.
#[derive(Debug)]
pub(crate) struct Affected {
    advisory: Arc<Advisory>,
    versions: Versions,
}

/// Some versions.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// Ranges of them.
    pub(super) ranges: Vec<Range>,
    /// Those that are in none of the ranges.
    pub(super) single: Vec<Pep440>,
    /// Those that PEP 440 cannot parse.
    pub(super) texts: Vec<Box<str>>,
}

/// All versions from one to another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    /// The first; `None`: there is no first.
    pub(super) from: Option<Pep440>,
    pub(super) to: End,
}

/// Where a range ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Never,
    Before(Pep440),
    With(Pep440),
}

/// What happened in a version: those of the same version count in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Introduced,
    Fixed,
    LastAffected,
}

impl Range {
    fn has(&self, version: &Pep440) -> bool {
        self.from.as_ref().is_none_or(|from| version >= from)
            && match &self.to {
                End::Never => true,
                End::Before(end) => version < end,
                End::With(end) => version <= end,
            }
    }

    /// The ranges between these events, none of which is at the greatest limit or above; without a limit there is none.
    /// `None` as a version is before all others.
    pub(super) fn between(
        mut events: Vec<(Option<Pep440>, Event)>,
        limit: Option<&Pep440>,
    ) -> Vec<Range> {
        events.sort();
        let mut ranges = Vec::new();
        let mut open: Option<Option<Pep440>> = None;
        for (version, event) in events {
            match (event, open.take()) {
                (Event::Introduced, None) => open = Some(version),
                (Event::Introduced, still) => open = still,
                (_, None) => {}
                // Nothing is before the first version.
                (_, Some(_)) if version.is_none() => {}
                (Event::Fixed, Some(from)) => {
                    ranges.extend(version.map(|to| Range { from, to: End::Before(to) }));
                }
                (Event::LastAffected, Some(from)) => {
                    ranges.extend(version.map(|to| Range { from, to: End::With(to) }));
                }
            }
        }
        ranges.extend(open.map(|from| Range { from, to: End::Never }));
        if let Some(limit) = limit {
            for range in &mut ranges {
                let is_within = match &range.to {
                    End::Never => false,
                    End::Before(end) => end <= limit,
                    End::With(end) => end < limit,
                };
                if !is_within {
                    range.to = End::Before(limit.clone());
                }
            }
        }
        ranges
    }
}

impl Affected {
    pub(super) fn of(advisory: Arc<Advisory>, mut versions: Versions) -> Affected {
        let ranges = &versions.ranges;
        versions.single.retain(|version| !ranges.iter().any(|range| range.has(version)));
        versions.single.sort();
        versions.single.dedup();
        versions.texts.sort();
        versions.texts.dedup();
        versions.ranges.shrink_to_fit();
        versions.single.shrink_to_fit();
        versions.texts.shrink_to_fit();
        Affected { advisory, versions }
    }

    /// The record.
    pub(crate) fn advisory(&self) -> &Advisory {
        &self.advisory
    }

    /// How many versions are kept.
    pub(super) fn bounds(&self) -> usize {
        let Versions { ranges, single, texts } = &self.versions;
        1 + 2 * ranges.len() + single.len() + texts.len()
    }

    /// Whether every version is meant.
    pub(crate) fn is_whole(&self) -> bool {
        self.versions.ranges.iter().any(|range| range.from.is_none() && range.to == End::Never)
    }

    /// Whether the record says that this version is affected.
    pub(super) fn names(&self, version: &Version) -> bool {
        match version.as_pep440() {
            Some(version) => self.has(version),
            None => {
                self.is_whole() || self.versions.texts.iter().any(|it| **it == *version.as_str())
            }
        }
    }

    /// Whether the record says that this version is affected, which can be compared.
    pub(crate) fn has(&self, version: &Pep440) -> bool {
        let Versions { ranges, single, .. } = &self.versions;
        ranges.iter().any(|range| range.has(version)) || single.binary_search(version).is_ok()
    }
}
