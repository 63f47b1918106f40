//! Reads an OSV record: its identifier, its times, and the versions of the ecosystem's packages that it affects.

use std::borrow::Cow;

use jiff::Timestamp;
use pep440_rs::Version as Pep440;
use serde::Deserialize;

use super::affected::{Event, Range, Versions};
use super::{ECOSYSTEM, OsvError, PARTS_MAX, is_id};
use crate::{ProjectName, Version};

/// The used part of a record.
pub(super) struct Record {
    pub(super) id: String,
    pub(super) modified: Timestamp,
    pub(super) is_withdrawn: bool,
    pub(super) affected: Vec<(ProjectName, Versions)>,
    /// Why the first part that is left out cannot be read.
    pub(super) problem: Option<OsvError>,
}

#[derive(Deserialize)]
struct WireRecord<'text> {
    #[serde(borrow)]
    id: Cow<'text, str>,
    #[serde(borrow)]
    modified: Cow<'text, str>,
    #[serde(borrow, default)]
    withdrawn: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    affected: Option<Vec<WireAffected<'text>>>,
}

#[derive(Deserialize)]
struct WireAffected<'text> {
    #[serde(borrow, default)]
    package: Option<WirePackage<'text>>,
    #[serde(borrow, default)]
    ranges: Option<Vec<WireRange<'text>>>,
    #[serde(borrow, default)]
    versions: Option<Vec<Cow<'text, str>>>,
}

#[derive(Deserialize)]
struct WirePackage<'text> {
    #[serde(borrow, default)]
    ecosystem: Cow<'text, str>,
    #[serde(borrow, default)]
    name: Cow<'text, str>,
}

#[derive(Deserialize)]
struct WireRange<'text> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'text, str>,
    #[serde(borrow, default)]
    events: Option<Vec<WireEvent<'text>>>,
}

#[derive(Deserialize)]
struct WireEvent<'text> {
    #[serde(borrow, default)]
    introduced: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    fixed: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    last_affected: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    limit: Option<Cow<'text, str>>,
}

/// Reads a record; `None` if none of its packages is of the ecosystem. A package, a range or a version that cannot be read is
/// left out, as long as another one is left: an error in one must not make the others harmless.
pub(super) fn read(json: &[u8]) -> Result<Option<Record>, OsvError> {
    // serde skips unused texts without checking UTF-8, but the whole record is passed on.
    let text = std::str::from_utf8(json).map_err(|error| OsvError::Form(error.to_string()))?;
    let wire: WireRecord<'_> =
        serde_json::from_str(text).map_err(|error| OsvError::Form(error.to_string()))?;
    let parts = wire.affected.unwrap_or_default();
    let count = parts.iter().map(WireAffected::count).sum();
    if count > PARTS_MAX {
        return Err(OsvError::TooLarge { count });
    }
    let mut affected = Vec::new();
    let mut problem = None;
    let mut is_of_ecosystem = false;
    for part in parts {
        let Some(package) = part.package.filter(|it| is_ecosystem(&it.ecosystem)) else { continue };
        is_of_ecosystem = true;
        let Ok(project) = ProjectName::normalize(&package.name) else {
            let expected = "the name of a project";
            problem.get_or_insert(bad("affected.package.name", &package.name, expected));
            continue;
        };
        let (versions, problem_of_part) = versions(part.ranges, part.versions);
        // A part without versions affects nothing. But a part whose versions all cannot be read is left out.
        if problem_of_part.is_none() || !versions.is_empty() {
            affected.push((project, versions));
        }
        problem = problem.or(problem_of_part);
    }
    if !is_of_ecosystem {
        return Ok(None);
    }
    if let Some(problem) = problem.take_if(|_| affected.is_empty()) {
        return Err(problem);
    }
    if !is_id(&wire.id) {
        return Err(bad("id", &wire.id, "an identifier of letters, digits, `-`, `.`, `_` and `:`"));
    }
    let time = |member, text: &str| -> Result<Timestamp, OsvError> {
        text.parse().map_err(|_| bad(member, text, "a time such as 2026-01-31T23:59:59Z"))
    };
    let modified = time("modified", &wire.modified)?;
    let is_withdrawn = match &wire.withdrawn {
        Some(withdrawn) => time("withdrawn", withdrawn).map(|_| true)?,
        None => false,
    };
    Ok(Some(Record { id: wire.id.into_owned(), modified, is_withdrawn, affected, problem }))
}

/// `PyPI`, or `PyPI:` with a suffix, in any case.
pub fn is_ecosystem(name: &str) -> bool {
    name.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case(ECOSYSTEM))
}

impl WireAffected<'_> {
    /// The package, its events and its versions.
    fn count(&self) -> usize {
        let ranges = self.ranges.iter().flatten();
        let events: usize = ranges.map(|range| 1 + range.events.as_ref().map_or(0, Vec::len)).sum();
        1 + events + self.versions.as_ref().map_or(0, Vec::len)
    }
}

/// The versions that can be read, and why the first of the others cannot.
fn versions(
    ranges: Option<Vec<WireRange<'_>>>,
    named: Option<Vec<Cow<'_, str>>>,
) -> (Versions, Option<OsvError>) {
    let mut versions = Versions::default();
    let mut problem = None;
    let named = named.unwrap_or_default();
    for range in ranges.unwrap_or_default() {
        // The versions of a range of git commits are listed one by one.
        if !matches!(&*range.kind, "ECOSYSTEM" | "SEMVER") {
            continue;
        }
        match ranges_of(range.events.unwrap_or_default()) {
            Ok(ranges) => versions.ranges.extend(ranges),
            // Versions that cannot be compared are listed one by one, too.
            Err(_) if !named.is_empty() => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    for version in named {
        if version.len() > Version::BYTES_MAX {
            problem = problem.or_else(|| Some(bad("affected.versions", &version, "a version")));
            continue;
        }
        match version.parse() {
            Ok(version) => versions.single.push(version),
            Err(_) => versions.texts.push(version.into()),
        }
    }
    (versions, problem)
}

fn ranges_of(wire: Vec<WireEvent<'_>>) -> Result<Vec<Range>, OsvError> {
    let (mut events, mut limits, mut is_limited) = (Vec::new(), Vec::new(), true);
    for event in wire {
        let WireEvent { introduced, fixed, last_affected, limit } = event;
        if let Some(version) = introduced {
            let version = match &*version {
                "0" => None,
                version => Some(bound(version)?),
            };
            events.push((version, Event::Introduced));
        }
        if let Some(version) = fixed {
            events.push((Some(bound(&version)?), Event::Fixed));
        }
        if let Some(version) = last_affected {
            events.push((Some(bound(&version)?), Event::LastAffected));
        }
        match limit.as_deref() {
            Some("*") => is_limited = false,
            Some(limit) => limits.push(bound(limit)?),
            None => {}
        }
    }
    let limit = limits.into_iter().max().filter(|_| is_limited);
    Ok(Range::between(events, limit.as_ref()))
}

fn bound(text: &str) -> Result<Pep440, OsvError> {
    let fit = Some(text).filter(|text| text.len() <= Version::BYTES_MAX);
    let version = fit.and_then(|text| text.parse().ok());
    version.ok_or_else(|| bad("affected.ranges.events", text, "a version of PEP 440"))
}

fn bad(member: &'static str, value: &str, expected: &'static str) -> OsvError {
    OsvError::Value { member, value: record::excerpt(value, 100).into(), expected }
}
