//! [`AffectedVersions`]: the versions of one project that a record affects.

use std::sync::Arc;

use pep440_rs::Version as Pep440;

use super::Advisory;
use crate::Version;

/// The versions of a project that a record is about.
#[derive(Debug)]
pub(crate) struct AffectedVersions {
    advisory: Arc<Advisory>,
    versions: Versions,
}

/// Some versions.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// Ranges of versions; in [`AffectedVersions`] ascending, with a gap between one and the next.
    pub(super) ranges: Vec<Range>,
    /// Versions outside of all ranges.
    pub(super) single: Vec<Pep440>,
    /// Versions that PEP 440 cannot parse.
    pub(super) texts: Vec<Box<str>>,
}

impl Versions {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.single.is_empty() && self.texts.is_empty()
    }
}

/// All versions from one to another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    /// The first; `None`: there is no first.
    pub(super) from: Option<Pep440>,
    pub(super) to: RangeEnd,
}

/// The end of a range.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RangeEnd {
    Never,
    Before(Pep440),
    With(Pep440),
}

impl RangeEnd {
    /// A comparable position between versions: behind all of them, or before or behind one.
    fn place(&self) -> (bool, Option<&Pep440>, bool) {
        match self {
            RangeEnd::Never => (true, None, false),
            RangeEnd::Before(version) => (false, Some(version), false),
            RangeEnd::With(version) => (false, Some(version), true),
        }
    }
}

/// What happened in a version: events of the same version count in this order.
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
                RangeEnd::Never => true,
                RangeEnd::Before(end) => version < end,
                RangeEnd::With(end) => version <= end,
            }
    }

    fn is_empty(&self) -> bool {
        self.from.as_ref().is_some_and(|from| !self.has(from))
    }

    /// An equal set of versions as ascending ranges that do not touch each other.
    fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by(|one, other| one.from.cmp(&other.from));
        let mut merged: Vec<Range> = Vec::new();
        for range in ranges {
            let touched = merged.last_mut().filter(|last| match (&last.to, &range.from) {
                (RangeEnd::Never, _) | (_, None) => true,
                (RangeEnd::Before(end) | RangeEnd::With(end), Some(from)) => from <= end,
            });
            match touched {
                Some(last) if last.to.place() < range.to.place() => last.to = range.to,
                Some(_) => {}
                None => merged.push(range),
            }
        }
        merged
    }

    /// The ranges between these events, cut off at the greatest limit. The version `None` comes before all others.
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
                    ranges.extend(version.map(|to| Range { from, to: RangeEnd::Before(to) }));
                }
                (Event::LastAffected, Some(from)) => {
                    ranges.extend(version.map(|to| Range { from, to: RangeEnd::With(to) }));
                }
            }
        }
        ranges.extend(open.map(|from| Range { from, to: RangeEnd::Never }));
        if let Some(limit) = limit {
            for range in &mut ranges {
                let is_within = match &range.to {
                    RangeEnd::Never => false,
                    RangeEnd::Before(end) => end <= limit,
                    RangeEnd::With(end) => end < limit,
                };
                if !is_within {
                    range.to = RangeEnd::Before(limit.clone());
                }
            }
        }
        ranges
    }
}

impl AffectedVersions {
    pub(super) fn of(advisory: Arc<Advisory>, versions: Versions) -> AffectedVersions {
        let Versions { ranges, mut single, mut texts } = versions;
        let ranges = Range::merged(ranges);
        single.sort();
        single.dedup();
        single.retain(|version| !is_in(&ranges, version));
        texts.sort();
        texts.dedup();
        let mut versions = Versions { ranges, single, texts };
        versions.ranges.shrink_to_fit();
        versions.single.shrink_to_fit();
        versions.texts.shrink_to_fit();
        AffectedVersions { advisory, versions }
    }

    /// The record.
    pub(crate) fn advisory(&self) -> &Advisory {
        &self.advisory
    }

    /// How much memory it takes at most, in bytes.
    pub(super) fn weight(&self) -> usize {
        let Versions { ranges, single, texts } = &self.versions;
        let bounds = ranges.iter().flat_map(|range| {
            let to = match &range.to {
                RangeEnd::Never => None,
                RangeEnd::Before(version) | RangeEnd::With(version) => Some(version),
            };
            range.from.iter().chain(to)
        });
        let versions: usize = bounds.chain(single).map(weight_of).sum();
        let texts: usize = texts.iter().map(|text| ENTRY_BYTES + text.len()).sum();
        ENTRY_BYTES + ranges.len() * ENTRY_BYTES + versions + texts
    }

    /// How many comparisons it takes to find a version.
    pub(super) fn comparisons(&self) -> usize {
        let Versions { ranges, single, texts } = &self.versions;
        let of = |count: usize| count.checked_ilog2().map_or(0, |log| log as usize + 1);
        1 + of(ranges.len()) + of(single.len()).max(of(texts.len()))
    }

    /// Whether every version is meant.
    pub(crate) fn is_whole(&self) -> bool {
        let first = self.versions.ranges.first();
        first.is_some_and(|range| range.from.is_none() && range.to == RangeEnd::Never)
    }

    /// Whether the record says that this version is affected.
    pub(super) fn names(&self, version: &Version) -> bool {
        match version.as_pep440() {
            Some(version) => self.has(version),
            None => {
                let texts = &self.versions.texts;
                self.is_whole() || texts.binary_search_by(|it| (**it).cmp(version.as_str())).is_ok()
            }
        }
    }

    /// Whether the record says that this version is affected, which can be compared.
    pub(crate) fn has(&self, version: &Pep440) -> bool {
        let Versions { ranges, single, .. } = &self.versions;
        is_in(ranges, version) || single.binary_search(version).is_ok()
    }
}

/// Whether a version is in one of these ranges, which are merged.
fn is_in(ranges: &[Range], version: &Pep440) -> bool {
    let begun =
        ranges.partition_point(|range| range.from.as_ref().is_none_or(|from| from <= version));
    begun > 0 && ranges[begun - 1].has(version)
}

/// Bytes that a range, a version or a text takes besides its content.
const ENTRY_BYTES: usize = 160;

/// Memory for a byte of a version's text: one letter and a dot may be a part with its own allocation.
const VERSION_BYTES_PER_BYTE: usize = 32;

fn weight_of(version: &Pep440) -> usize {
    ENTRY_BYTES + VERSION_BYTES_PER_BYTE * version.to_string().len()
}
