//! Who may read a stage, with its bases, and its files. Rights to change something are checked where that is decided, in the
//! crate `operations`.

use account::{Object, Portion, Principal, Scope};
use operations::rights::not_listed;
use pypi::{ResolutionOrder, Stage};
use state::stored::Stored;

use super::ask::Ask;
use super::error::ApiError;
use crate::front::auth;
use crate::front::error::HttpError;

pub(crate) use operations::rights::IndexPart;

/// Refuses senders who may not read all of these stages. The refusal names no base.
pub(crate) fn check_reader(
    principal: &Principal,
    order: &ResolutionOrder<'_>,
    portion: Portion<'_>,
) -> Result<(), HttpError> {
    if order.admits(principal, portion) {
        return Ok(());
    }
    Err(refused_reader(principal, order.stages().first().map(|own| &***own), portion))
}

/// The answer to senders who may not read a stage, or one of its bases.
pub(crate) fn refused_reader(
    principal: &Principal,
    own: Option<&Stage>,
    portion: Portion<'_>,
) -> HttpError {
    match own {
        Some(own) if !own.may_read(principal, portion) => unreadable(principal, own, portion),
        own => {
            let reason = "it has a base that they may not read";
            let object = own.map_or(Object::Index("", portion), |own| own.object(portion));
            auth::denied(principal, Scope::PythonRead, object, "read this index", reason)
        }
    }
}

/// Refuses a client that may not read a file of `stage`: see [`Stage::may_read_file`].
pub(crate) fn check_file_reader(
    stored: &Stored,
    principal: &Principal,
    stage: &Stage,
    about: IndexPart<'_>,
) -> Result<(), HttpError> {
    let project = about.of(stage);
    match stage.may_read_file(&stored.index, principal, project.portion()) {
        true => Ok(()),
        false => Err(unreadable(principal, stage, project.portion())),
    }
}

/// The answer to principals who may not read this stage.
pub(crate) fn unreadable(principal: &Principal, stage: &Stage, portion: Portion<'_>) -> HttpError {
    let (list, object) = (not_listed(principal, "acl_read", stage.name()), stage.object(portion));
    auth::denied(principal, Scope::PythonRead, object, "read this index", &list)
}

/// Refuses senders who may not read all of these stages.
pub(crate) async fn admit(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    about: IndexPart<'_>,
) -> Result<(), HttpError> {
    let Some(own) = order.stages().first() else { return Ok(()) };
    if order.stages().iter().all(|stage| stage.config().is_public()) {
        return Ok(());
    }
    check_reader(&ask.principal().await?, order, about.of(own).portion())
}

/// Refuses a client that may not read a file of the stage.
pub(crate) async fn admit_to_file(
    ask: &Ask,
    stage: &Stage,
    about: IndexPart<'_>,
) -> Result<(), HttpError> {
    if stage.config().is_public() {
        return Ok(());
    }
    check_file_reader(&ask.stored, &ask.principal().await?, stage, about)
}

/// The stage does not exist.
pub(crate) fn no_stage(stage: &str) -> ApiError {
    HttpError::unknown_stage(stage).into()
}
