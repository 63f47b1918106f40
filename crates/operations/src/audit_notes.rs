//! What the audit log notes of decisions: changes of policies, approvals, and files that are given out where a policy counts.

use account::UserName;
use audit::{Entry, Event};
use jiff::Timestamp;
use pypi::policy::{Exception, FileWarning, GrantedException, RuleName};
use pypi::upstream::UpstreamFile;
use pypi::{Judge, Policy, ProjectName, ReleaseFile, Stage, StageName};
use record::Digest;

use crate::{Basis, Sender};

/// Who is named in entries, and whether served files are noted at all.
#[derive(Clone, Copy, Debug)]
pub struct Noter<'request> {
    /// The time of the request, or of the decision.
    pub now: Timestamp,
    /// The requested path.
    pub path: &'request str,
    /// The user, if known.
    pub who: Option<&'request UserName>,
    /// The client's address.
    pub client: &'request str,
    /// Whether files that no rule refuses are noted.
    pub notes_served: bool,
}

impl Noter<'_> {
    /// An entry about something of an index.
    pub fn entry(
        &self,
        event: Event,
        index: &StageName,
        what: &str,
        rule: Option<RuleName>,
        reason: String,
    ) -> Entry {
        Entry {
            at: self.now,
            event,
            index: index.to_string(),
            path: self.path.to_owned(),
            what: what.to_owned(),
            rule: rule.map(RuleName::as_str),
            reason,
            who: self.who.map(ToString::to_string),
            client: self.client.to_owned(),
        }
    }

    /// The entries for a file of `holder` that `asked` gives out where a policy counts: by an exception or with a warning
    /// always, otherwise if the log is configured so.
    pub fn given(
        &self,
        asked: &Stage,
        holder: &Stage,
        project: &ProjectName,
        given: ServedFile<'_>,
    ) -> Vec<Entry> {
        let judge = Judge::between(asked, holder, project, self.now);
        let Some(judge) = judge.filter(|judge| self.notes_served || judge.may_note()) else {
            return Vec::new();
        };
        let candidate = match given {
            ServedFile::Own(file) => judge.own(file),
            ServedFile::Upstreams(file) => judge.upstreams(file),
        };
        let (what, mut entries) = (candidate.filename, Vec::new());
        if let Some(FileWarning { stage, rule, reason }) = judge.warning(holder.name(), &candidate)
        {
            entries.push(self.entry(Event::Warned, &stage, what, Some(rule), reason));
        }
        match judge.exception(holder.name(), &candidate) {
            Some(GrantedException { stage, rule, exception }) => {
                entries.push(self.entry(Event::Excepted, &stage, what, Some(rule), exception));
            }
            None if self.notes_served => {
                entries.push(self.entry(Event::Served, asked.name(), what, None, String::new()));
            }
            None => {}
        }
        entries
    }
}

/// A file that is given out.
#[derive(Clone, Copy, Debug)]
pub enum ServedFile<'file> {
    /// Of a stage.
    Own(&'file ReleaseFile),
    /// Of an upstream's page.
    Upstreams(&'file UpstreamFile),
}

impl Basis {
    /// Calls `note` with the sender of this decision.
    pub fn noting(&self, note: impl FnOnce(&Noter<'_>) -> Vec<Entry>) -> Vec<Entry> {
        let (path, client) = match self.sender() {
            Sender::Client { address, path, .. } => (path.as_str(), address.to_string()),
            Sender::Command | Sender::Server => ("", String::new()),
        };
        let (who, notes_served) = (self.principal().user_name(), self.rules.notes_served);
        note(&Noter { now: self.now, path, who, client: &client, notes_served })
    }
}

/// The entries for files of a mirror that the sender pushes into an index: by that, they are approved.
pub(crate) fn entries_of_approved<'files>(
    basis: &Basis,
    mirror: &StageName,
    target: &StageName,
    files: impl Iterator<Item = (&'files str, Digest)>,
) -> Vec<Entry> {
    basis.noting(|noter| {
        files
            .map(|(filename, digest)| {
                let reason = format!("pushed from {mirror}, SHA-256 {digest}");
                noter.entry(Event::Approved, target, filename, None, reason)
            })
            .collect()
    })
}

/// The entries for a change to the policy of an index: none if the policy stays the same. `None` if the index does not exist, or
/// has no policy.
pub(crate) fn entries_of_change(
    basis: &Basis,
    stage: &StageName,
    before: Option<&Policy>,
    after: Option<&Policy>,
) -> Vec<Entry> {
    let (before, after) = (before.cloned().unwrap_or_default(), after.cloned().unwrap_or_default());
    let mut said = Vec::new();
    let is_new = |exception: &&Exception| !before.exceptions.contains(exception);
    said.extend(after.exceptions.iter().filter(is_new).map(|it| format!("exception set: {it}")));
    let is_gone = |exception: &&Exception| !after.exceptions.contains(exception);
    let gone = before.exceptions.iter().filter(is_gone);
    said.extend(gone.map(|it| format!("exception removed: {it}")));
    let changed = [
        ("policy_cooldown_days", before.cooldown_days != after.cooldown_days),
        ("policy_cutoff", before.cutoff != after.cutoff),
        ("policy_cooldown_except", before.cooldown_except != after.cooldown_except),
        ("policy_allow", before.allow != after.allow),
        ("policy_deny", before.deny != after.deny),
        ("policy_quarantine", before.quarantine != after.quarantine),
        ("policy_malware", before.malware != after.malware),
        ("policy_vulnerabilities", before.vulnerabilities != after.vulnerabilities),
    ];
    let changed = changed.iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| *name);
    let changed: Vec<&str> = changed.collect();
    if !changed.is_empty() {
        said.push(format!("its rules were changed: {}", changed.join(", ")));
    }
    basis.noting(|noter| {
        said.into_iter()
            .map(|reason| noter.entry(Event::Changed, stage, "policy", None, reason))
            .collect()
    })
}
