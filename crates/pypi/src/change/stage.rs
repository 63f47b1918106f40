//! Making, changing and removing stages.

use std::sync::Arc;

use account::UserName;
use record::{Batch, Expected, Serial};

use super::draft::Draft;
use crate::record::{stage_key, write_stage};
use crate::{ChangeError, ConfigEdit, ConfigError, Snapshot, Stage, StageConfig, StageName};

/// Makes a stage and returns its configuration. Its user must exist when the batch is committed.
///
/// # Errors
/// [`ChangeError::StageExists`], [`ChangeError::StageUnreadable`], [`ChangeError::Config`].
pub fn create(
    snapshot: &Snapshot,
    name: &StageName,
    edit: &ConfigEdit,
) -> Result<(Batch, StageConfig), ChangeError> {
    if snapshot.stage(name.as_str()).is_some() {
        return Err(ChangeError::StageExists(name.clone()));
    }
    // A stage cannot be its own base before it exists.
    let mut config =
        StageConfig::create(name, edit, &|base| base != name && exists(snapshot, name, base))?
            .with_strangers_adding_test_results(snapshot.strangers_add_test_results());
    if config.mirror().is_some_and(|settings| settings.mirror_url.is_none()) {
        let text =
            "a mirror needs `mirror_url`: the URL of its upstream's list of projects".to_owned();
        return Err(ConfigError::Value(text).into());
    }
    let mut draft = Draft::default();
    let mut expected = Expected::Absent;
    if let Some(former) = snapshot.trace(name.as_str()) {
        former.check_readable()?;
        // An upload may have reached an earlier stage of this name after its deletion was decided. The deletion is visible now,
        // and so is everything before it.
        for (project_name, project) in former.project_traces() {
            draft.erase_project(former, project_name, project);
        }
        if former.config_serial() > Serial::ZERO {
            expected = Expected::At(former.config_serial());
            config = config.made_after(Some(former.config_serial().0));
        }
    }
    draft.write(stage_key(name), expected, Some(write_stage(name, &config)?), Vec::new());
    draft.check(account::user_key(&name.user_name()), Expected::Present);
    Ok((draft.finish(), config))
}

/// Changes the configuration of a stage and returns the new one; without a batch if nothing changes.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::StageUnreadable`], [`ChangeError::Config`];
/// [`ChangeError::NoChange`] if nothing changes and `is_noop_an_error`.
pub fn modify(
    snapshot: &Snapshot,
    name: &StageName,
    edit: &ConfigEdit,
    is_noop_an_error: bool,
) -> Result<(Option<Batch>, StageConfig), ChangeError> {
    let stage = snapshot.stage_to_change(name)?;
    let config = stage.config().edited(name, edit, &|base| exists(snapshot, name, base))?;
    if config == *stage.config() {
        return if is_noop_an_error { Err(ChangeError::NoChange) } else { Ok((None, config)) };
    }
    let expected = Expected::At(stage.config_serial());
    let body = write_stage(name, &config)?;
    let batch = Batch::new().put(stage_key(name), expected, body, Vec::new());
    Ok((Some(batch), config))
}

/// Removes a stage with everything in it.
///
/// # Errors
/// [`ChangeError::NoStage`], [`ChangeError::StageUnreadable`]; [`ChangeError::StageNonVolatile`] unless
/// `force`.
pub fn delete(snapshot: &Snapshot, name: &StageName, force: bool) -> Result<Batch, ChangeError> {
    let stage = snapshot.stage_to_change(name)?;
    if !stage.config().volatile && !force {
        return Err(ChangeError::StageNonVolatile(name.clone()));
    }
    let mut draft = Draft::default();
    erase(&mut draft, stage);
    Ok(draft.finish())
}

/// Removes every stage of a user, as part of removing the user; writes nothing if there are no stages.
///
/// # Errors
/// [`ChangeError::StageUnreadable`]; [`ChangeError::UserHasNonVolatile`] unless `force`.
pub fn delete_of_user(
    snapshot: &Snapshot,
    user: &UserName,
    force: bool,
) -> Result<Batch, ChangeError> {
    let mut draft = Draft::default();
    for stage in snapshot.traces_of(user.as_str()) {
        stage.check_readable()?;
    }
    for stage in snapshot.stages_of(user.as_str()) {
        if !stage.config().volatile && !force {
            let (user, index) = (user.to_string(), stage.name().index().to_owned());
            return Err(ChangeError::UserHasNonVolatile { user, index });
        }
        erase(&mut draft, stage);
    }
    Ok(draft.finish())
}

/// Removes what reached a stage during its deletion and now belongs to no stage; `None` if there is nothing.
/// Otherwise these records, and with them their blobs, would stay until the stage is made again. The contents of a
/// stage whose record cannot be read belong to that stage and stay.
pub fn sweep_leftovers(snapshot: &Snapshot) -> Option<Batch> {
    let is_no_more = |stage: &&Arc<Stage>| !stage.exists() && stage.check_readable().is_ok();
    let mut draft = Draft::default();
    for stage in snapshot.traces().filter(is_no_more) {
        let mut own = Draft::default();
        for (name, project) in stage.project_traces() {
            own.erase_project(stage, name, project);
        }
        if !own.is_empty() {
            draft.check_stage(stage);
            draft.append(own);
        }
    }
    (!draft.is_empty()).then(|| draft.finish())
}

fn erase(draft: &mut Draft, stage: &Stage) {
    for (name, project) in stage.project_traces() {
        draft.erase_project(stage, name, project);
    }
    let expected = Expected::At(stage.config_serial());
    draft.write(stage_key(stage.name()), expected, None, Vec::new());
}

/// Whether a stage may be a base of `own`: it exists, or is `own` itself.
fn exists(snapshot: &Snapshot, own: &StageName, base: &StageName) -> bool {
    own == base || snapshot.stage(base.as_str()).is_some()
}
