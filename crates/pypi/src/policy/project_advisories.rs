//! [`ProjectAdvisories`]: what the records of malware and vulnerabilities say about the files of one project, and [`Measure`]: how a
//! policy reacts.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Candidate, Policy, RuleName};
use crate::Version;
use crate::osv::{Advisories, AffectedVersions};

/// Records that a reason names; of further ones it says how many they are.
const NAMED_MAX: usize = 3;

/// How a policy treats files that a record names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Nothing.
    #[default]
    Off,
    /// They are given out, with an entry in the audit log.
    Warn,
    /// They are refused.
    Refuse,
}

impl Measure {
    const ALL: [Measure; 3] = [Measure::Off, Measure::Warn, Measure::Refuse];

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Measure::Off => "off",
            Measure::Warn => "warn",
            Measure::Refuse => "refuse",
        }
    }

    /// The measure with this name.
    pub(crate) fn named(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

/// The two rules that ask the records, in the order in which they count.
const RULES: [RuleName; 2] = [RuleName::Malware, RuleName::Vulnerabilities];

impl Policy {
    /// Whether it depends on what the records say.
    pub(crate) fn asks_advisories(&self) -> bool {
        RULES.iter().any(|rule| self.measure(*rule) > Measure::Off)
    }

    /// The measure for files that this rule finds.
    fn measure(&self, rule: RuleName) -> Measure {
        match rule {
            RuleName::Malware => self.malware,
            RuleName::Vulnerabilities => self.vulnerabilities,
            _ => Measure::Off,
        }
    }

    /// Whether these records make the policy refuse every file of the project with this name.
    pub(super) fn refuses_whole(&self, advisories: &Advisories, project: &str) -> bool {
        let affected = advisories.of_project(project).map(|it| &**it).unwrap_or_default();
        affected.iter().any(|it| it.is_whole() && self.measure(rule_of(it)) == Measure::Refuse)
    }
}

/// The rule that such a record is for.
fn rule_of(affected: &AffectedVersions) -> RuleName {
    match affected.advisory().is_malware() {
        true => RuleName::Malware,
        false => RuleName::Vulnerabilities,
    }
}

/// What the records say about one project, and the measures of the policy.
#[derive(Clone, Debug)]
pub(super) struct ProjectAdvisories {
    affected: Arc<[AffectedVersions]>,
    measures: [(RuleName, Measure); 2],
    /// Why the whole project is refused as malware, if it is.
    whole: Option<Box<str>>,
}

impl ProjectAdvisories {
    /// `None` if this policy has nothing to do with them.
    pub(super) fn of(
        policy: &Policy,
        affected: Option<Arc<[AffectedVersions]>>,
    ) -> Option<ProjectAdvisories> {
        let affected = affected.filter(|_| policy.asks_advisories())?;
        let refuses_malware = policy.malware == Measure::Refuse;
        let whole = affected
            .iter()
            .filter(|it| refuses_malware && it.is_whole() && rule_of(it) == RuleName::Malware);
        let whole = reason(RuleName::Malware, whole).map(Into::into);
        let measures = RULES.map(|rule| (rule, policy.measure(rule)));
        Some(ProjectAdvisories { affected, measures, whole })
    }

    /// Why all files of the project are malware that is refused, if they are.
    pub(super) fn whole(&self) -> Option<&str> {
        self.whole.as_deref()
    }

    /// The first rule with this measure whose records name the file, and the reason. A version that cannot be compared
    /// counts as named by all records of the project.
    pub(super) fn found(
        &self,
        file: &Candidate<'_>,
        wanted: Measure,
    ) -> Option<(RuleName, String)> {
        let mut rules = self.measures.iter().filter(|(_, measure)| *measure == wanted).peekable();
        rules.peek()?;
        let version = file.version();
        let version = version.as_ref().and_then(Version::as_pep440);
        rules.find_map(|(rule, _)| {
            let of_rule = self.affected.iter().filter(|it| rule_of(it) == *rule);
            let naming = of_rule.filter(|it| version.is_none_or(|version| it.has(version)));
            Some((*rule, reason(*rule, naming)?))
        })
    }
}

/// `known malware: MAL-2026-1`; `None` without a record.
fn reason<'record>(
    rule: RuleName,
    records: impl Iterator<Item = &'record AffectedVersions>,
) -> Option<String> {
    let mut ids: Vec<&str> = records.map(|it| it.advisory().id()).collect();
    // They are in order; a record may be there twice.
    ids.dedup();
    let what = match (rule, ids.len()) {
        (_, 0) => return None,
        (RuleName::Malware, _) => "known malware",
        (_, 1) => "known vulnerability",
        _ => "known vulnerabilities",
    };
    let mut text = format!("{what}: {}", ids[..ids.len().min(NAMED_MAX)].join(", "));
    if ids.len() > NAMED_MAX {
        _ = write!(text, " and {} more", ids.len() - NAMED_MAX);
    }
    Some(text)
}

#[cfg(test)]
pub(in crate::policy) mod tests;
