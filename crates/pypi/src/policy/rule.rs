//! [`Rule`]: which files a line of a policy means, by name, version and kind.
//!
//! | text | means |
//! | --- | --- |
//! | `requests` | all files of the project |
//! | `acme-*` | all projects whose names begin so; `*` alone: all |
//! | `requests>=2,<3` | these versions (PEP 440) |
//! | `*@sdist` | this kind of file: `wheel`, `sdist`, `egg` or `other` |
//! | `requests-2.1.0.tar.gz` | this file |

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use pep440_rs::VersionSpecifiers;
use record::excerpt;
use url::Url;

use super::Candidate;
use crate::project_name::normalized;
use crate::upstream::place_of_project;
use crate::{FileKind, Filename, ProjectName, StageName};

/// Longest rule and longest reason, in bytes.
const RULE_BYTES_MAX: usize = 500;
const REASON_BYTES_MAX: usize = 1000;

/// Longest URL of another place, in bytes.
const PLACE_BYTES_MAX: usize = 500;

/// The first characters of a version specifier.
pub(crate) const OPERATORS: [char; 5] = ['<', '>', '=', '!', '~'];

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

/// The names of some projects: one, or all that begin in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// Normalized.
    start: Box<str>,
    is_prefix: bool,
}

/// The files that a rule means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(RuleTarget);

/// The projects that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleSubject<'rule> {
    /// The one with this name.
    Project(&'rule str),
    /// Projects whose names begin so.
    Start(&'rule str),
    /// The one of the file whose normalized name this is.
    File(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleTarget {
    /// The file with this name.
    File(Box<str>),
    Files {
        name: NamePattern,
        versions: Option<VersionSpecifiers>,
        kind: Option<Kind>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Wheel,
    Sdist,
    Egg,
    Other,
}

/// Files that are kept away from everybody, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// Which files.
    pub rule: Rule,
    /// Why; may be empty.
    pub reason: Box<str>,
}

/// Files that are given out although the policy refuses them, until a certain time, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Which files.
    pub rule: Rule,
    /// When it ends.
    pub until: Timestamp,
    /// Why; never empty.
    pub reason: Box<str>,
}

/// Projects that come only from one base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which projects.
    pub projects: NamePattern,
    /// The base.
    pub base: StageName,
}

/// Another place of a project: the URL of its page there (PEP 708).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectPlace {
    /// The project's normalized name.
    pub project: Box<str>,
    /// The URL, in the form in which such URLs are compared.
    pub url: Box<str>,
}

impl Kind {
    const ALL: [(Kind, &'static str); 4] = [
        (Kind::Wheel, "wheel"),
        (Kind::Sdist, "sdist"),
        (Kind::Egg, "egg"),
        (Kind::Other, "other"),
    ];

    fn of(kind: FileKind) -> Kind {
        match kind {
            FileKind::Wheel => Kind::Wheel,
            FileKind::Sdist => Kind::Sdist,
            FileKind::Egg => Kind::Egg,
            _ => Kind::Other,
        }
    }
}

impl NamePattern {
    /// Whether this project is meant.
    pub fn matches(&self, project: &ProjectName) -> bool {
        self.matches_name(project.as_str())
    }

    /// Whether the project with this normalized name is meant.
    pub(crate) fn matches_name(&self, project: &str) -> bool {
        match self.is_prefix {
            true => project.starts_with(&*self.start),
            false => *project == *self.start,
        }
    }
}

impl FromStr for NamePattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<NamePattern, RuleError> {
        let shown = || excerpt(text, 200);
        if let Some(start) = text.strip_suffix('*') {
            let is_start =
                |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.');
            if !start.chars().all(is_start) {
                let text = format!("`{}` is no start of a project's name and `*`", shown());
                return Err(RuleError(text));
            }
            return Ok(NamePattern { start: normalized(start).into(), is_prefix: true });
        }
        let name = ProjectName::normalize(text).map_err(|error| RuleError(error.to_string()))?;
        Ok(NamePattern { start: name.as_str().into(), is_prefix: false })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.start, if self.is_prefix { "*" } else { "" })
    }
}

impl Rule {
    /// Whether it may mean a file of this project.
    pub(super) fn may_match(&self, project: &ProjectName) -> bool {
        match &self.0 {
            // A file's name begins with its project's.
            RuleTarget::File(filename) => normalized(filename).starts_with(project.as_str()),
            RuleTarget::Files { name, .. } => name.matches(project),
        }
    }

    /// The projects that it is about.
    pub(super) fn named(&self) -> RuleSubject<'_> {
        match &self.0 {
            RuleTarget::File(filename) => RuleSubject::File(normalized(filename)),
            RuleTarget::Files { name, .. } if name.is_prefix => RuleSubject::Start(&name.start),
            RuleTarget::Files { name, .. } => RuleSubject::Project(&name.start),
        }
    }

    /// Whether it means all files of a project.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.0, RuleTarget::Files { versions: None, kind: None, .. })
    }

    /// Whether it means this file. `unknown` is the answer for a version that cannot be compared.
    pub(super) fn matches(&self, file: &Candidate<'_>, unknown: bool) -> bool {
        match &self.0 {
            RuleTarget::File(filename) => **filename == *file.filename,
            RuleTarget::Files { name, versions, kind } => {
                name.matches(file.project)
                    && kind.is_none_or(|kind| kind == Kind::of(file.kind()))
                    && versions.as_ref().is_none_or(|versions| {
                        let version = file.version();
                        let version = version.as_ref().and_then(|version| version.as_pep440());
                        version.map_or(unknown, |version| versions.contains(version))
                    })
            }
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let text = text.trim();
        let shown = || excerpt(text, 200);
        if text.len() > RULE_BYTES_MAX {
            let text =
                format!("`{}…` is too long: at most {RULE_BYTES_MAX} bytes were expected", shown());
            return Err(RuleError(text));
        }
        let is_file = |name: &Filename| name.split(None).is_some_and(|it| it.version.is_some());
        if !text.contains(OPERATORS)
            && let Ok(filename) = Filename::parse(text)
            && is_file(&filename)
        {
            return Ok(Rule(RuleTarget::File(text.into())));
        }
        let (rest, kind) = match text.rsplit_once('@') {
            Some((rest, wanted)) => {
                let found = Kind::ALL.iter().find(|(_, name)| *name == wanted.trim());
                let (kind, _) = found.ok_or_else(|| {
                    RuleError(format!(
                        "`{}` names no kind of file: `wheel`, `sdist`, `egg` or `other` was expected after `@`",
                        shown()
                    ))
                })?;
                (rest, Some(*kind))
            }
            None => (text, None),
        };
        let at = rest.find(OPERATORS).unwrap_or(rest.len());
        let name: NamePattern = rest[..at].trim().parse()?;
        let versions = match rest[at..].trim() {
            "" => None,
            versions => Some(versions.parse::<VersionSpecifiers>().map_err(|_| {
                RuleError(format!(
                    "`{}` has no versions as PEP 440 writes them; `name>=1.0,<2` was expected",
                    shown()
                ))
            })?),
        };
        Ok(Rule(RuleTarget::Files { name, versions, kind }))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RuleTarget::File(filename) => formatter.write_str(filename),
            RuleTarget::Files { name, versions, kind } => {
                write!(formatter, "{name}")?;
                for (position, versions) in versions.iter().flat_map(|it| it.iter()).enumerate() {
                    let comma = if position == 0 { "" } else { "," };
                    write!(formatter, "{comma}{versions}")?;
                }
                match Kind::ALL.iter().find(|(it, _)| Some(*it) == *kind) {
                    Some((_, name)) => write!(formatter, "@{name}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl FromStr for Quarantine {
    type Err = RuleError;

    /// The rule is the text before the first space, the reason is the rest.
    fn from_str(text: &str) -> Result<Quarantine, RuleError> {
        let text = text.trim();
        let (rule, reason) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let reason = checked_reason(rule, reason.trim())?;
        Ok(Quarantine { rule: rule.parse()?, reason: reason.into() })
    }
}

/// A reason that is shown on one line.
fn checked_reason<'text>(rule: &str, reason: &'text str) -> Result<&'text str, RuleError> {
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        let text = format!(
            "the reason for `{}` was expected to be one line of at most {REASON_BYTES_MAX} bytes",
            excerpt(rule, 200)
        );
        return Err(RuleError(text));
    }
    Ok(reason)
}

/// A time with its zone, or a day, which begins in UTC.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    let day = |text: &str| {
        let day: jiff::civil::Date = text.parse().ok()?;
        Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    // Only a text of this length is a day: a time without a zone is refused.
    let is_day = text.len() == "2026-01-31".len();
    if is_day { day(text) } else { text.parse().ok() }
}

impl FromStr for Pin {
    type Err = RuleError;

    /// `NAME=user/index`, `PREFIX*=user/index`.
    fn from_str(text: &str) -> Result<Pin, RuleError> {
        let (projects, base) = text.split_once('=').unwrap_or((text, ""));
        let base = base.trim().parse().map_err(|_| {
            RuleError(format!(
                "`{}` pins no project to a base: `NAME=user/index` or `PREFIX*=user/index` was expected",
                excerpt(text, 200)
            ))
        })?;
        Ok(Pin { projects: projects.trim().parse()?, base })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.projects, self.base)
    }
}

impl FromStr for ProjectPlace {
    type Err = RuleError;

    /// `NAME=URL`.
    fn from_str(text: &str) -> Result<ProjectPlace, RuleError> {
        let refused = || {
            RuleError(format!(
                "`{}` names no place of a project: `NAME=URL` was expected, with the http or https URL of the project's page, \
                 of at most {PLACE_BYTES_MAX} bytes",
                excerpt(text, 200)
            ))
        };
        let (project, url) = text.split_once('=').ok_or_else(refused)?;
        let url = url.trim();
        let place = Url::parse(url).ok().filter(|_| url.len() <= PLACE_BYTES_MAX);
        let place = place.as_ref().and_then(|base| place_of_project(base, url));
        let project = ProjectName::normalize(project.trim());
        let project = project.map_err(|error| RuleError(error.to_string()))?;
        Ok(ProjectPlace { project: project.as_str().into(), url: place.ok_or_else(refused)? })
    }
}

impl fmt::Display for ProjectPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.project, self.url)
    }
}

impl FromStr for Exception {
    type Err = RuleError;

    /// `RULE until TIME REASON`.
    fn from_str(text: &str) -> Result<Exception, RuleError> {
        let text = text.trim();
        let mut rest = text;
        let mut word = || {
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            rest = after.trim_start();
            word
        };
        let (rule, until, end) = (word(), word(), word());
        let end = Some(end).filter(|_| until == "until").and_then(time);
        let Some(end) = end.filter(|_| !rest.is_empty()) else {
            return Err(RuleError(format!(
                "`{}` is no exception: `RULE until DAY REASON` was expected, as `foo==1.2 until 2026-01-31 approved by alice`",
                excerpt(text, 200)
            )));
        };
        let reason = checked_reason(rule, rest)?;
        Ok(Exception { rule: rule.parse()?, until: end, reason: reason.into() })
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} until {} {}", self.rule, self.until, self.reason)
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.reason {
            "" => write!(formatter, "{}", self.rule),
            reason => write!(formatter, "{} {reason}", self.rule),
        }
    }
}
