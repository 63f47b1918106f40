//! [`Policy`]: which files a stage or a mirror gives out, and [`Judge`], which decides it for every way to a file.
//!
//! settings of a stage -> [`Policy`] -> [`Judge::of`] the stages that answer for a project -> for each [`Candidate`] either
//! nothing, or why it is [`FileRefusal`] -> [`HiddenFiles`], a page's remark about hidden files; [`RefusedFiles`] and [`VisibleProjects`], the visible
//! parts of a project and of a list of projects.
//!
//! Pages, JSON and downloads all ask the same judge, so they cannot disagree. A file has to pass the policy of the stage
//! that was asked and the policy of the stage that holds it. Time is an argument; nothing here reads a clock.

mod hidden_files;
mod judge;
mod project_advisories;
mod rule;
mod visible_projects;
mod warnings;

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::osv::AffectedVersions;
use crate::{FileKind, Filename, Project, ProjectName, StageName, Version};

pub use self::hidden_files::{HiddenFiles, HiddenGroup};
pub use self::judge::Judge;
pub(crate) use self::judge::refusal_in_json;
pub use self::project_advisories::Measure;
use self::project_advisories::ProjectAdvisories;
pub use self::rule::{Exception, NamePattern, Pin, ProjectPlace, Quarantine, Rule, RuleError};
pub(crate) use self::rule::{OPERATORS, time};
pub use self::visible_projects::{
    NameRules, RefusedFiles, VisibleProjects, shown_versions, shows_all, shows_any, shows_version,
};
pub use self::warnings::Warnings;

/// Longest cool-down: a hundred years.
pub(crate) const COOLDOWN_DAYS_MAX: u32 = 36_500;

/// The files that a stage or a mirror refuses to give out. Empty, it refuses nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Files that are younger than this are refused, in days.
    pub cooldown_days: Option<u32>,
    /// Files that were uploaded at this time or later are refused.
    pub cutoff: Option<Timestamp>,
    /// Projects to which neither the cool-down nor the cut-off applies.
    pub cooldown_except: Vec<NamePattern>,
    /// If there are any, everything else is refused.
    pub allow: Vec<Rule>,
    /// Files that are refused.
    pub deny: Vec<Rule>,
    /// Files that are refused until somebody has examined them, with the reason that installers show.
    pub quarantine: Vec<Quarantine>,
    /// The measure for known malware.
    pub malware: Measure,
    /// The measure for known vulnerabilities.
    pub vulnerabilities: Measure,
    /// Files that are given out for a time although the rules above refuse them, for emergencies.
    pub exceptions: Vec<Exception>,
}

/// Why a file is given out although a policy refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedException {
    /// The stage whose policy has the exception.
    pub stage: StageName,
    /// The rule that would refuse the file.
    pub rule: RuleName,
    /// The exception, as it was set.
    pub exception: String,
}

/// Why a file is given out with a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWarning {
    /// The stage whose policy warns.
    pub stage: StageName,
    /// The rule.
    pub rule: RuleName,
    /// The reason.
    pub reason: String,
}

/// When a file was uploaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UploadTime<'file> {
    /// At this time.
    At(Timestamp),
    /// At the time that an upstream wrote, which may be invalid.
    Written(&'file str),
    /// Not known.
    Unknown,
}

/// A release file that is about to be shown or given out.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'file> {
    /// Its project.
    pub project: &'file ProjectName,
    /// Its name.
    pub filename: &'file str,
    /// Its version; `None`: as its name says.
    pub version: Option<&'file str>,
    /// When it was uploaded.
    pub uploaded: UploadTime<'file>,
    /// When it was first seen here; it counts if nobody says when the file was uploaded.
    pub first_seen: Option<Timestamp>,
}

/// The rules of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleName {
    /// `policy_quarantine`, or the status of the project.
    Quarantine,
    /// `policy_deny`.
    Deny,
    /// `policy_malware`.
    Malware,
    /// `policy_vulnerabilities`.
    Vulnerabilities,
    /// `policy_allow`.
    Allow,
    /// `policy_cutoff`.
    Cutoff,
    /// `policy_cooldown_days`.
    Cooldown,
}

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRefusal {
    /// The stage whose policy refuses it.
    pub stage: StageName,
    /// The rule.
    pub rule: RuleName,
    /// The reason in words that fit several files: `younger than 7 days`.
    pub reason: String,
    /// When it will be given out if nothing changes; `None`: never.
    pub until: Option<Timestamp>,
}

impl RuleName {
    /// Its name in answers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleName::Quarantine => "quarantine",
            RuleName::Deny => "deny",
            RuleName::Malware => "malware",
            RuleName::Vulnerabilities => "vulnerabilities",
            RuleName::Allow => "allow",
            RuleName::Cutoff => "cutoff",
            RuleName::Cooldown => "cooldown",
        }
    }
}

impl FileRefusal {
    /// A refusal because the project has the status `quarantined` (PEP 792) in this stage.
    pub fn by_status(stage: &StageName, project: &Project) -> FileRefusal {
        let reason = project.status().and_then(|status| status.reason.as_deref());
        FileRefusal::by_upstream(stage, reason)
    }

    /// A refusal because the upstream of this mirror says that the project is quarantined.
    pub fn by_upstream(stage: &StageName, reason: Option<&str>) -> FileRefusal {
        FileRefusal {
            stage: stage.clone(),
            rule: RuleName::Quarantine,
            reason: quarantined(reason.unwrap_or_default()),
            until: None,
        }
    }

    /// The stricter of two refusals: the one that lasts longer.
    fn or_stricter(self, other: FileRefusal) -> FileRefusal {
        match (self.until, other.until) {
            (None, _) => self,
            (_, None) => other,
            (Some(own), Some(others)) if others > own => other,
            _ => self,
        }
    }
}

/// Follows the name of the file: `… is refused by the policy of root/pypi: younger than 7 days, until …`.
impl fmt::Display for FileRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "refused by the policy of {}: {}", self.stage, self.reason)?;
        match self.until {
            Some(until) => write!(formatter, ", until {}", seconds(until)),
            None => Ok(()),
        }
    }
}

/// `2026-01-31T23:59:59Z`, rounded up: at that time it is over.
fn seconds(time: Timestamp) -> String {
    let has_rest = time.subsec_nanosecond() > 0;
    let rounded = time.checked_add(SignedDuration::from_secs(i64::from(has_rest))).unwrap_or(time);
    rounded.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn quarantined(reason: &str) -> String {
    match reason {
        "" => "quarantined".to_owned(),
        reason => format!("quarantined: {reason}"),
    }
}

impl<'file> Candidate<'file> {
    fn kind(&self) -> FileKind {
        Filename::of_upstream(self.filename).map_or(FileKind::Other, |name| name.kind())
    }

    /// The version, if it is one that can be compared.
    fn version(&self) -> Option<Version> {
        match self.version {
            Some(text) => Version::parse(text).ok(),
            None => Filename::of_upstream(self.filename).ok()?.split(Some(self.project))?.version,
        }
    }

    /// When its age begins.
    fn since(&self) -> Option<Timestamp> {
        match self.uploaded {
            UploadTime::At(at) => Some(at),
            UploadTime::Written(text) => text.parse().ok().or(self.first_seen),
            UploadTime::Unknown => self.first_seen,
        }
    }
}

impl Policy {
    /// Whether the policy refuses nothing.
    pub fn is_empty(&self) -> bool {
        *self == Policy::default()
    }

    /// The exceptions that have not ended.
    fn exceptions_at(&self, now: Timestamp) -> impl Iterator<Item = &Exception> {
        self.exceptions.iter().filter(move |exception| now < exception.until)
    }

    /// The part of the policy about a project at this time, with what the records say about it.
    fn on(
        &self,
        project: &ProjectName,
        now: Timestamp,
        affected: Option<Arc<[AffectedVersions]>>,
    ) -> ProjectPolicy<'_> {
        let is_excepted = self.cooldown_except.iter().any(|pattern| pattern.matches(project));
        ProjectPolicy {
            cooldown_days: self.cooldown_days.filter(|_| !is_excepted),
            cutoff: self.cutoff.filter(|_| !is_excepted),
            allow: (!self.allow.is_empty())
                .then(|| self.allow.iter().filter(|rule| rule.may_match(project)).collect()),
            deny: self.deny.iter().filter(|rule| rule.may_match(project)).collect(),
            quarantine: self.quarantine.iter().filter(|it| it.rule.may_match(project)).collect(),
            advised: ProjectAdvisories::of(self, affected),
            exceptions: self.exceptions_at(now).filter(|it| it.rule.may_match(project)).collect(),
        }
    }
}

/// The part of a policy that is about one project: a policy may have a thousand rules, and a project 40,000 files.
#[derive(Clone, Debug)]
struct ProjectPolicy<'policy> {
    cooldown_days: Option<u32>,
    cutoff: Option<Timestamp>,
    allow: Option<Vec<&'policy Rule>>,
    deny: Vec<&'policy Rule>,
    quarantine: Vec<&'policy Quarantine>,
    advised: Option<ProjectAdvisories>,
    exceptions: Vec<&'policy Exception>,
}

impl ProjectPolicy<'_> {
    /// Why the whole project is refused, as quarantined or malware; `None` if it is not, or a file of it is excepted.
    fn whole_quarantine(&self) -> Option<&str> {
        if !self.exceptions.is_empty() {
            return None;
        }
        let quarantine = self.quarantine.iter().find(|it| it.rule.is_whole());
        let reason = quarantine.map(|it| &*it.reason);
        reason.or_else(|| self.advised.as_ref()?.whole())
    }

    /// The exception that is about the file.
    fn exception(&self, file: &Candidate<'_>) -> Option<&Exception> {
        self.exceptions.iter().copied().find(|it| it.rule.matches(file, false))
    }

    /// The rule that refuses the file, the reason, and until when; `None` for a file with an exception.
    fn refusal(
        &self,
        file: &Candidate<'_>,
        now: Timestamp,
    ) -> Option<(RuleName, String, Option<Timestamp>)> {
        if !self.exceptions.is_empty() && self.exception(file).is_some() {
            return None;
        }
        self.refusal_by_rule(file, now)
    }

    /// The rule that refuses the file, the reason, and until when. Permanent rules come first.
    fn refusal_by_rule(
        &self,
        file: &Candidate<'_>,
        now: Timestamp,
    ) -> Option<(RuleName, String, Option<Timestamp>)> {
        let for_ever = |rule, reason: String| Some((rule, reason, None));
        // A version that cannot be compared matches every rule that refuses, and none that allows.
        if let Some(found) = self.quarantine.iter().find(|it| it.rule.matches(file, true)) {
            return for_ever(RuleName::Quarantine, quarantined(&found.reason));
        }
        if let Some(rule) = self.deny.iter().find(|rule| rule.matches(file, true)) {
            return for_ever(RuleName::Deny, format!("denied by `{rule}`"));
        }
        let found = self.advised.as_ref().and_then(|it| it.found(file, Measure::Refuse));
        if let Some((rule, reason)) = found {
            return for_ever(rule, reason);
        }
        if let Some(allow) = &self.allow
            && !allow.iter().any(|rule| rule.matches(file, false))
        {
            return for_ever(RuleName::Allow, "not on the list of what is allowed".to_owned());
        }
        if self.cutoff.is_none() && self.cooldown_days.is_none() {
            return None;
        }
        let since = file.since();
        if let Some(cutoff) = self.cutoff
            && since.is_none_or(|since| since >= cutoff)
        {
            let reason = format!("uploaded after {}", seconds(cutoff));
            return for_ever(RuleName::Cutoff, reason);
        }
        let days = self.cooldown_days?;
        // In words only for a file that is refused: most are not.
        let reason = || {
            let unit = if days == 1 { "day" } else { "days" };
            format!("younger than {days} {unit}")
        };
        let Some(since) = since else {
            let reason = format!("perhaps {}, as nobody says when it was uploaded", reason());
            return for_ever(RuleName::Cooldown, reason);
        };
        let span = SignedDuration::from_hours(24 * i64::from(days));
        let until = since.checked_add(span).unwrap_or(Timestamp::MAX);
        (now < until).then(|| (RuleName::Cooldown, reason(), Some(until)))
    }
}

#[cfg(test)]
mod tests;
