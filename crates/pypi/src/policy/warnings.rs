//! [`Warnings`]: the files that a page shows although a policy warns of them, in words.

use super::FileWarning;
use crate::StageName;

/// Groups with different reasons: each file of a project may have other vulnerabilities.
const GROUPS_MAX: usize = 100;

/// The files of a page that policies warn of. A page with a million of them needs no more memory than one with a hundred
/// groups.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    groups: Vec<Group>,
    /// The number of files beyond these groups.
    others: u64,
}

/// Files with the same warning.
#[derive(Clone, Debug)]
struct Group {
    stage: StageName,
    reason: String,
    /// The name of the first of them.
    first: Box<str>,
    files: u64,
}

impl Warnings {
    /// Adds a file that is given out with a warning.
    pub fn add(&mut self, filename: &str, warned: FileWarning) {
        let FileWarning { stage, reason, .. } = warned;
        let is_full = self.groups.len() >= GROUPS_MAX;
        match self.groups.iter_mut().find(|it| it.stage == stage && it.reason == reason) {
            Some(group) => group.files += 1,
            None if is_full => self.others += 1,
            None => self.groups.push(Group { stage, reason, first: filename.into(), files: 1 }),
        }
    }

    /// A sentence for each group:
    /// `foo-1.0.tar.gz and 2 others are served with a warning by the policy of root/pypi: known vulnerability: PYSEC-2026-1`.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let groups = self.groups.iter().map(|group| {
            let Group { stage, reason, first, files } = group;
            let what = match files - 1 {
                0 => format!("{first} is"),
                1 => format!("{first} and another file are"),
                others => format!("{first} and {others} others are"),
            };
            format!("{what} served with a warning by the policy of {stage}: {reason}")
        });
        let others = Some(self.others).filter(|it| *it > 0);
        groups.chain(others.map(|it| format!("{it} more files are served with a warning")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RuleName;
    use crate::testing::stage_name;

    #[test]
    fn files_with_one_warning_are_one_sentence_and_sentences_are_bounded() {
        let warned = |reason: &str| FileWarning {
            stage: stage_name("alice/dev"),
            rule: RuleName::Vulnerabilities,
            reason: reason.to_owned(),
        };
        let mut warnings = Warnings::default();
        assert_eq!(warnings.sentences().count(), 0);
        let sentence = |warnings: &Warnings| warnings.sentences().next().expect("a sentence");
        for (name, expected) in
            [("a", "a is"), ("b", "a and another file are"), ("c", "a and 2 others are")]
        {
            warnings.add(name, warned("old"));
            let expected =
                format!("{expected} served with a warning by the policy of alice/dev: old");
            assert_eq!(sentence(&warnings), expected);
        }
        for number in 0..GROUPS_MAX + 1 {
            warnings.add("d", warned(&number.to_string()));
        }
        assert_eq!(warnings.sentences().count(), GROUPS_MAX + 1);
        let last = warnings.sentences().last();
        assert_eq!(last.as_deref(), Some("2 more files are served with a warning"));
    }
}
