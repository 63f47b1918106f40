//! Indexes of the Python surface: made, changed and deleted.

use std::collections::HashSet;

use account::{AclEntry, GroupName};
use pypi::change::stage as change;
use pypi::index_log::{Deed, DeedKind};
use pypi::{ConfigEdit, Policy, ResolutionOrder, StageConfig, StageName};

use crate::audit_notes::entries_of_change;
use crate::publishing::{check_publishers, entries_of_publishers};
use crate::rights::{check_bases, check_keeper};
use crate::{Basis, Decided, Name, Operation, Refusal, Right, Rule};

/// Most indexes that a warning about a policy names.
const UNCOVERED_NAMED_MAX: usize = 10;

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

/// The indexes that inherit from this one and show files of other bases, which the policy in `config` does not judge; of those
/// that `sees` admits. There are none if it has no policy, or is a mirror: the policy of a mirror counts wherever its files are
/// shown.
pub fn uncovered_by_policy<'snapshot>(
    index: &'snapshot pypi::Snapshot,
    name: &StageName,
    config: &StageConfig,
    sees: impl Fn(&pypi::Stage) -> bool,
) -> impl Iterator<Item = &'snapshot StageName> {
    let has_age = |policy: &Policy| policy.cooldown_days.is_some() || policy.cutoff.is_some();
    let policy = config.policy.as_deref().filter(|_| !config.is_mirror()).cloned();
    let is_aged = policy.as_ref().is_some_and(has_age);
    let judges = move |stage: &pypi::Stage| {
        let policy = stage.config().policy.as_deref();
        policy.is_some_and(|policy| !is_aged || has_age(policy))
    };
    let name = name.clone();
    let heirs = policy.into_iter().flat_map(|_| index.stages());
    let heirs = heirs.filter(move |heir| {
        let order = ResolutionOrder::of(index, heir.name().as_str());
        let Some((_, bases)) = order.as_ref().and_then(|it| it.stages().split_first()) else {
            return false;
        };
        bases.iter().any(|base| *base.name() == name)
            && bases.iter().any(|base| *base.name() != name && !judges(base))
            && !judges(heir)
            && sees(heir)
    });
    heirs.map(|heir| heir.name())
}

/// A sentence about [`uncovered_by_policy`]; `None` if there are none.
pub fn said_of_uncovered<'all>(
    name: &StageName,
    mut uncovered: impl Iterator<Item = &'all StageName>,
) -> Option<String> {
    let named: Vec<&str> =
        uncovered.by_ref().take(UNCOVERED_NAMED_MAX).map(|it| it.as_str()).collect();
    let more = match uncovered.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    (!named.is_empty()).then(|| {
        format!(
            "the policy of {name} judges what is asked for there, and its own files; it does not judge what {named}{more} \
             shows of other bases: set it there, too, or on the mirror"
        )
    })
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
