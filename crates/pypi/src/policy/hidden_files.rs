//! [`HiddenFiles`]: what a page leaves out because of a policy, in words and numbers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FileRefusal, seconds};
use crate::StageName;

/// Groups with different reasons: each file of a project may have other vulnerabilities.
const GROUPS_MAX: usize = 100;

/// The reason of files beyond these groups.
const OTHER_REASONS: &str = "other reasons";

/// The files that a page leaves out because of a policy. A page with a million of them needs no more memory than one with a
/// hundred groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenFiles {
    groups: Vec<HiddenGroup>,
    files: u64,
}

/// Files that are hidden for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenGroup {
    /// The stage whose policy hides them.
    pub stage: StageName,
    /// Why.
    pub reason: String,
    /// How many they are.
    pub files: u64,
    /// When the first of them will be shown; `None` if never.
    pub until: Option<Timestamp>,
}

impl HiddenFiles {
    /// Adds a file that is left out.
    pub fn add(&mut self, refused: &FileRefusal) {
        self.files += 1;
        let is_same =
            |it: &HiddenGroup, reason: &str| it.stage == refused.stage && it.reason == reason;
        let found = self.groups.iter().position(|it| is_same(it, &refused.reason));
        let is_full = found.is_none() && self.groups.len() >= GROUPS_MAX;
        let reason = if is_full { OTHER_REASONS } else { &refused.reason };
        let found = found
            .or_else(|| self.groups.iter().position(|it| is_full && is_same(it, OTHER_REASONS)));
        let Some(group) = found.map(|at| &mut self.groups[at]) else {
            self.groups.push(HiddenGroup {
                stage: refused.stage.clone(),
                reason: reason.to_owned(),
                files: 1,
                until: refused.until,
            });
            return;
        };
        group.files += 1;
        group.until = [group.until, refused.until].into_iter().flatten().min();
    }

    /// How many files are left out.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// When the first of the files will be shown, so that the page is out of date then.
    pub fn until(&self) -> Option<Timestamp> {
        self.groups.iter().filter_map(|group| group.until).min()
    }

    /// The groups, in the order in which they were found.
    pub fn groups(&self) -> &[HiddenGroup] {
        &self.groups
    }

    /// A sentence for each group: `3 files are hidden by the policy of root/pypi: younger than 7 days`.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.groups.iter().map(|group| {
            let are = if group.files == 1 { "file is" } else { "files are" };
            let HiddenGroup { stage, reason, files, .. } = group;
            format!("{files} {are} hidden by the policy of {stage}: {reason}")
        })
    }

    /// The groups as JSON.
    pub fn to_json(&self) -> Value {
        let groups = self.groups.iter().map(|group| {
            let mut object = json!({
                "files": group.files,
                "index": group.stage.as_str(),
                "reason": group.reason,
            });
            if let Some(until) = group.until {
                object["until"] = seconds(until).into();
            }
            object
        });
        groups.collect()
    }
}
