//! What policies leave of projects: [`RefusedFiles`] of one project, version by version, and [`VisibleProjects`], those with
//! something left. [`all_hidden`] says why nothing is.
//!
//! Policies decide, and owners who put a project into quarantine. As on pages, the nearest file with a name counts.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::rule::{Rule, RuleSubject};
use super::{FileRefusal, HiddenFiles, Judge, Policy};
use crate::inherit::{ProjectView, ResolutionOrder};
use crate::osv::{Advisories, AdvisoryStamp};
use crate::{FileRole, Project, ProjectName, Stage, StageName};

/// The refused files of a project, and why.
#[derive(Clone, Debug, Default)]
pub struct RefusedFiles<'snapshot> {
    hidden: HiddenFiles,
    /// For each version with release files: why the first one is refused, if all of them are.
    versions: HashMap<&'snapshot str, Option<FileRefusal>>,
}

impl<'snapshot> RefusedFiles<'snapshot> {
    /// Judges the files that the stages have themselves; `None` if no policy or quarantine applies.
    pub fn of(
        view: &ProjectView<'snapshot>,
        judge: Option<&Judge<'_>>,
    ) -> Option<RefusedFiles<'snapshot>> {
        if judge.is_none() && !is_any_quarantined(view) {
            return None;
        }
        let mut shown = RefusedFiles::default();
        for (version, refused) in judged(view, judge) {
            refused.iter().for_each(|refused| shown.hidden.add(refused));
            match shown.versions.entry(version) {
                Entry::Vacant(entry) => _ = entry.insert(refused),
                Entry::Occupied(mut entry) if refused.is_none() => _ = entry.insert(None),
                Entry::Occupied(_) => {}
            }
        }
        Some(shown)
    }

    /// The files that are left out.
    pub fn hidden(&self) -> &HiddenFiles {
        &self.hidden
    }

    /// Why a version is not shown: it has release files, and all of them are refused.
    pub fn refusal_of(&self, version: &str) -> Option<&FileRefusal> {
        self.versions.get(version)?.as_ref()
    }
}

/// What hides a whole project; `None` if a part is visible. A version without release files is visible.
pub(crate) fn all_hidden(view: &ProjectView<'_>, judge: Option<&Judge<'_>>) -> Option<HiddenFiles> {
    if judge.is_none() && !is_any_quarantined(view) {
        return None;
    }
    let mut hidden = HiddenFiles::default();
    for (_, refused) in judged(view, judge) {
        hidden.add(&refused?);
    }
    let has_file = |version: &str| {
        let mut files = view.parts().iter().flat_map(|part| part.project.files_of(version));
        files.any(|file| file.role() == FileRole::Release)
    };
    let mut versions = view.parts().iter().flat_map(|part| part.project.versions());
    (!hidden.is_empty() && versions.all(has_file)).then_some(hidden)
}

/// Whether nothing of the project with this name can be hidden in a stage, so that no file has to be judged.
pub fn shows_all(stage: &Stage, name: &str) -> bool {
    stage.config().policy.is_none() && !stage.is_quarantined(name)
}

/// Whether a stage itself shows anything of its project with this name.
pub fn shows_any(stage: &Arc<Stage>, name: &str, now: Timestamp) -> bool {
    shows_all(stage, name) || {
        let found = stage.project_entry(name);
        found.is_some_and(|(name, project)| shown_versions(stage, name, project, now).is_some())
    }
}

/// The versions of a project that a stage itself shows; `None` if all of it is hidden.
pub fn shown_versions<'snapshot>(
    stage: &'snapshot Arc<Stage>,
    name: &ProjectName,
    project: &'snapshot Arc<Project>,
    now: Timestamp,
) -> Option<Vec<&'snapshot str>> {
    let mut versions = project.versions();
    if shows_all(stage, name.as_str()) {
        return Some(versions);
    }
    let view = ProjectView::alone(stage, project);
    let judge = Judge::between(stage, stage, name, now);
    if let Some(shown) = RefusedFiles::of(&view, judge.as_ref()) {
        versions.retain(|version| shown.refusal_of(version).is_none());
    }
    (!versions.is_empty()).then_some(versions)
}

/// Whether a stage itself shows this version of a project: like [`shown_versions`], but only the version's own files are
/// judged.
pub fn shows_version(
    stage: &Arc<Stage>,
    name: &ProjectName,
    project: &Arc<Project>,
    version: &str,
    now: Timestamp,
) -> bool {
    let files = project.files_of(version).filter(|file| file.role() == FileRole::Release);
    let mut files = files.peekable();
    if files.peek().is_none() {
        return true;
    }
    let judge = Judge::between(stage, stage, name, now);
    let is_refused = |file| {
        judge.as_ref().is_some_and(|judge| judge.refusal_of_own(stage.name(), file).is_some())
    };
    !project.is_quarantined() && !files.all(is_refused)
}

fn is_any_quarantined(view: &ProjectView<'_>) -> bool {
    view.parts().iter().any(|part| part.project.is_quarantined())
}

/// The version of each release file that counts, and why it is refused.
fn judged<'view, 'snapshot: 'view>(
    view: &'view ProjectView<'snapshot>,
    judge: Option<&'view Judge<'_>>,
) -> impl Iterator<Item = (&'snapshot str, Option<FileRefusal>)> + 'view {
    let mut seen = HashSet::new();
    let is_alone = view.parts().len() == 1;
    let files = view.parts().iter().flat_map(|part| {
        let files: &'snapshot Arc<Project> = part.project;
        files.release_files().map(move |file| (part, file))
    });
    let counting = files.filter(move |(_, file)| is_alone || seen.insert(file.filename()));
    counting.map(move |(part, file)| {
        let stage = part.stage.name();
        let refused = match part.project.is_quarantined() {
            true => Some(FileRefusal::by_status(stage, part.project)),
            false => judge.and_then(|judge| judge.refusal_of_own(stage, file)),
        };
        (file.version(), refused)
    })
}

/// Which of the stages' own projects have a visible part.
#[derive(Clone, Debug)]
pub struct VisibleProjects<'snapshot> {
    hidden: HashSet<&'snapshot str>,
    /// Projects that only bases have, and that are pinned to others.
    elsewhere: HashSet<&'snapshot str>,
    until: Option<Timestamp>,
    judged: Option<AdvisoryStamp>,
}

impl<'snapshot> VisibleProjects<'snapshot> {
    /// The projects that these stages show at this time.
    pub fn of(order: &ResolutionOrder<'snapshot>, now: Timestamp) -> VisibleProjects<'snapshot> {
        let mut listed = VisibleProjects {
            hidden: HashSet::new(),
            elsewhere: HashSet::new(),
            until: None,
            // Taken first: if the records change meanwhile, this is out of date.
            judged: order.asked_advisories().map(AdvisoryStamp::by),
        };
        if order.has_pins() {
            let names = order.project_names();
            listed.elsewhere = names.filter(|name| order.project(name).is_none()).collect();
        }
        let doubtful: Vec<&str> = match order.has_policy() {
            true => order.project_names().collect(),
            false => {
                let names = order.stages().iter().flat_map(|stage| stage.quarantined_names());
                names.map(|name| name.as_str()).collect()
            }
        };
        let policies = order.stages().iter().filter_map(|stage| stage.config().policy.as_deref());
        let exceptions = policies.flat_map(|policy| policy.exceptions_at(now));
        listed.until = exceptions.map(|exception| exception.until).min();
        for name in doubtful {
            let (Some(view), Some(whole)) = (order.project(name), order.project_name(name)) else {
                continue;
            };
            let judge = Judge::of(order, whole, now);
            if let Some(hidden) = all_hidden(&view, judge.as_ref()) {
                let until = [listed.until, hidden.until()];
                listed.until = until.into_iter().flatten().min();
                listed.hidden.insert(name);
            }
        }
        listed
    }

    /// Their names, ascending, each once; `order` are the stages.
    pub fn names(
        &self,
        order: &ResolutionOrder<'snapshot>,
    ) -> impl Iterator<Item = &'snapshot str> {
        order.project_names().filter(|name| !self.hides(name))
    }

    /// Whether the stages' own part of this project is hidden.
    pub fn hides(&self, name: &str) -> bool {
        self.hidden.contains(name) || self.elsewhere.contains(name)
    }

    /// How many projects are hidden.
    pub fn hidden(&self) -> usize {
        self.hidden.len()
    }

    /// The records that decided what is visible, if a policy asks them.
    pub(crate) fn judged(&self) -> Option<&AdvisoryStamp> {
        self.judged.as_ref()
    }

    /// When the first hidden one becomes visible, or an exception ends.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// What policies say about whole projects by their names alone: for lists of upstreams, whose pages are not read.
#[derive(Debug)]
pub struct NameRules<'policy>(Vec<PolicyNames<'policy>>);

#[derive(Debug)]
struct PolicyNames<'policy> {
    policy: &'policy Policy,
    /// The records that count, if the policy asks them.
    advisories: Option<Arc<Advisories>>,
    refused: Names<'policy>,
    allowed: Option<Names<'policy>>,
    excepted: Names<'policy>,
}

#[derive(Debug, Default)]
struct Names<'policy> {
    whole: HashSet<&'policy str>,
    starts: Vec<&'policy str>,
    /// Normalized names of files.
    files: Vec<String>,
}

impl<'policy> Names<'policy> {
    fn of(rules: impl Iterator<Item = &'policy Rule>) -> Names<'policy> {
        let mut names = Names::default();
        rules.for_each(|rule| names.add(rule.named()));
        names
    }

    fn add(&mut self, named: RuleSubject<'policy>) {
        match named {
            RuleSubject::Project(name) => _ = self.whole.insert(name),
            RuleSubject::Start(start) => self.starts.push(start),
            RuleSubject::File(filename) => self.files.push(filename),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.whole.contains(name)
            || self.starts.iter().any(|start| name.starts_with(start))
            || self.files.iter().any(|filename| filename.starts_with(name))
    }
}

impl<'policy> NameRules<'policy> {
    /// The rules of the stage that is asked, and of the mirror.
    pub fn of(
        order: &ResolutionOrder<'policy>,
        mirror: &StageName,
        now: Timestamp,
    ) -> NameRules<'policy> {
        let is_counting = |(at, stage): &(usize, &&Arc<Stage>)| *at == 0 || stage.name() == mirror;
        let stages = order.stages().iter().enumerate().filter(is_counting);
        let rules = stages.filter_map(|(_, stage)| {
            let policy: &'policy Policy = stage.config().policy.as_deref()?;
            let quarantined = policy.quarantine.iter().map(|it| &it.rule);
            let refusing = policy.deny.iter().chain(quarantined).filter(|rule| rule.is_whole());
            Some(PolicyNames {
                policy,
                advisories: policy
                    .asks_advisories()
                    .then(|| stage.advisories().current())
                    .flatten(),
                refused: Names::of(refusing),
                allowed: (!policy.allow.is_empty()).then(|| Names::of(policy.allow.iter())),
                excepted: Names::of(policy.exceptions_at(now).map(|it| &it.rule)),
            })
        });
        NameRules(rules.collect())
    }

    /// Whether no file of a project with this name is given out.
    pub fn refuse(&self, name: &str) -> bool {
        self.0.iter().any(|policy| {
            let is_allowed = policy.allowed.as_ref().is_none_or(|allowed| allowed.has(name));
            let is_known = || {
                let advisories = policy.advisories.as_deref();
                advisories.is_some_and(|it| policy.policy.refuses_whole(it, name))
            };
            (policy.refused.has(name) || !is_allowed || is_known()) && !policy.excepted.has(name)
        })
    }
}
