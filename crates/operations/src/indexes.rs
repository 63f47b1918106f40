//! Indexes of the Python surface: made, changed and deleted.

use std::collections::HashSet;

use account::{AclEntry, GroupName};
use pypi::change::stage as change;
use pypi::index_log::{Deed, DeedKind};
use pypi::{ConfigEdit, StageConfig, StageName};

use crate::audit_notes::entries_of_change;
use crate::publishing::{check_publishers, entries_of_publishers};
use crate::rights::{check_bases, check_keeper};
use crate::{Basis, Decided, Name, Operation, Refusal, Right, Rule};

/// Refuses senders who may not do this to the index.
fn check(basis: &Basis, stage: &StageName, verb: &'static str) -> Result<(), Refusal> {
    check_keeper(basis, stage, Right::KeepIndex { verb, stage: stage.clone() })
}

/// Makes an index, or a mirror. The outcome is its configuration.
#[derive(Clone, Debug)]
pub struct CreateIndex {
    /// Its name; its user must exist.
    pub stage: StageName,
    /// Its settings.
    pub edit: ConfigEdit,
}

impl CreateIndex {
    /// Refuses senders who may not make the index.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit(basis: &Basis, stage: &StageName) -> Result<(), Refusal> {
        check(basis, stage, "create")
    }
}

impl Operation for CreateIndex {
    const NAME: Name = Name::CreateIndex;

    type Outcome = StageConfig;

    fn decide(&self, basis: &Basis) -> Result<Decided<StageConfig>, Refusal> {
        let CreateIndex { stage, edit } = self;
        CreateIndex::admit(basis, stage)?;
        let user = stage.user_name();
        if basis.stored.accounts.user(&user).is_none() {
            return Err(pypi::ChangeError::NoUser(user).into());
        }
        let (batch, config) = change::create(&basis.stored.index, stage, edit)?;
        check_bases(basis.principal(), None, &config)?;
        check_publishers(&basis.rules, None, &config)?;
        let mut noted = entries_of_change(basis, stage, None, config.policy.as_deref());
        noted.extend(entries_of_publishers(basis, stage, None, Some(&config)));
        let deed = Deed::new(DeedKind::Created);
        Ok(Decided::new(batch, config).noting(noted).logging(stage, deed))
    }
}

/// Changes the settings of an index. The outcome is its configuration.
#[derive(Clone, Debug)]
pub struct ChangeIndex {
    /// Its name.
    pub stage: StageName,
    /// What changes.
    pub edit: ConfigEdit,
    /// Whether it is an error if nothing changes.
    pub is_noop_an_error: bool,
    /// The settings that the change was made from, if it holds for no others.
    pub seen: Option<StageConfig>,
}

impl ChangeIndex {
    /// Refuses senders who may not change the index.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit(basis: &Basis, stage: &StageName) -> Result<(), Refusal> {
        basis.stored.index.stage_to_change(stage)?;
        check(basis, stage, "modify")
    }
}

impl Operation for ChangeIndex {
    const NAME: Name = Name::ChangeIndex;

    type Outcome = StageConfig;

    fn decide(&self, basis: &Basis) -> Result<Decided<StageConfig>, Refusal> {
        let ChangeIndex { stage, edit, is_noop_an_error, seen } = self;
        check(basis, stage, "modify")?;
        let index = &basis.stored.index;
        let before = index.stage(stage.as_str()).map(|stage| stage.config());
        if seen.is_some() && before != seen.as_ref() {
            return Err(Rule::SettingsChanged.into());
        }
        let (batch, config) = change::modify(index, stage, edit, *is_noop_an_error)?;
        check_bases(basis.principal(), before, &config)?;
        check_publishers(&basis.rules, before, &config)?;
        let policy = before.and_then(|before| before.policy.as_deref());
        let mut noted = entries_of_change(basis, stage, policy, config.policy.as_deref());
        noted.extend(entries_of_publishers(basis, stage, before, Some(&config)));
        let changed = before.map(|before| StageConfig::differing(before, &config));
        let deed = Deed::new(DeedKind::Settings).naming(changed.unwrap_or_default());
        Ok(Decided::new(batch, config).noting(noted).logging(stage, deed))
    }
}

/// What the lists of rights of an index name that is not there (yet): groups without members, and users who do not exist. A line
/// for each.
pub fn names_of_nobody(accounts: &account::Snapshot, config: &StageConfig) -> Vec<String> {
    let results = config.upload().and_then(|it| it.acl_toxresult_upload.as_ref());
    let lists = [
        ("acl_read", Some(&config.acl_read)),
        ("acl_upload", config.upload().map(|it| &it.acl_upload)),
        ("acl_toxresult_upload", results),
    ];
    let groups: HashSet<&GroupName> = accounts.users().flat_map(|user| &user.groups).collect();
    let mut lines = Vec::new();
    for (list, entry) in lists.iter().flat_map(|(name, list)| {
        list.iter().flat_map(|list| list.entries()).map(move |entry| (*name, entry))
    }) {
        match entry {
            AclEntry::Group(group) if !groups.contains(group) => {
                lines.push(format!("{list} names the group `{group}`, and no user is in it"));
            }
            AclEntry::User(user) if accounts.user(user).is_none() => {
                lines.push(format!("{list} names the user `{user}`, who does not exist"));
            }
            _ => {}
        }
    }
    lines
}

/// Deletes an index with everything in it.
#[derive(Clone, Debug)]
pub struct DeleteIndex {
    /// Its name.
    pub stage: StageName,
    /// Whether it goes even if it is not volatile.
    pub force: bool,
}

impl DeleteIndex {
    /// Refuses senders who may not delete the index.
    ///
    /// # Errors
    /// [`Refusal::Denied`].
    pub fn admit(basis: &Basis, stage: &StageName) -> Result<(), Refusal> {
        basis.stored.index.stage_to_change(stage)?;
        check(basis, stage, "delete")
    }
}

impl Operation for DeleteIndex {
    const NAME: Name = Name::DeleteIndex;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let (index, stage) = (&basis.stored.index, &self.stage);
        check(basis, stage, "delete")?;
        let batch = change::delete(index, stage, self.force)?;
        let before = index.stage(stage.as_str()).map(|it| it.config());
        let policy = before.and_then(|before| before.policy.as_deref());
        let mut noted = entries_of_change(basis, stage, policy, None);
        noted.extend(entries_of_publishers(basis, stage, before, None));
        Ok(Decided::new(batch, ()).noting(noted))
    }
}

/// Removes what reached indexes while they were being deleted, so that nothing names its blobs any more. The outcome is how many
/// records.
#[derive(Clone, Copy, Debug)]
pub struct SweepLeftovers;

impl Operation for SweepLeftovers {
    const NAME: Name = Name::SweepLeftovers;

    type Outcome = usize;

    fn decide(&self, basis: &Basis) -> Result<Decided<usize>, Refusal> {
        if !basis.sender().is_on_the_machine() {
            return Err(Rule::OnlyTheServer.into());
        }
        let batch = change::sweep_leftovers(&basis.stored.index);
        let records = batch.as_ref().map_or(0, |batch| batch.writes.len());
        Ok(Decided::new(batch, records))
    }
}
