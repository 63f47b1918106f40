//! Who may do what to a stage: judged when a request comes, so that nobody sends a body in vain, and judged again,
//! by the same functions, on the [`Basis`](crate::stored::Basis) of each write. A refusal names its cause where that
//! tells nothing new: what a token lacks, or the list that a user is not on.

use std::sync::Arc;

use account::{Principal, Scope};
use http::StatusCode;
use pypi::{ResolutionOrder, Stage, StageName, may_own};

use super::ask::Ask;
use super::project::no_stage;
use super::reply;
use super::write::{Refused, rule};
use crate::http::auth;
use crate::http::error::HttpError;
use crate::stored::Stored;

/// Whether this is somebody who may make, change and remove the stage.
pub(super) fn may_keep(ask: &Ask, principal: &Principal, stage: &StageName) -> bool {
    let keepers = &ask.app.config.python.restrict_modify;
    if keepers.entries().is_empty() {
        return may_own(stage, principal);
    }
    keepers.admits(principal, Scope::PythonAdmin)
}

/// Refuses whoever may not make, change and remove the stage; `verb` says which.
pub(super) fn check_keeper(
    ask: &Ask,
    principal: &Principal,
    stage: &StageName,
    verb: &str,
) -> Result<(), Refused> {
    if may_keep(ask, principal, stage) {
        return Ok(());
    }
    let cause = cause(ask, principal, Scope::PythonAdmin, || keepers(ask, stage));
    let text = format!("no permission to {verb} index {stage}{cause}");
    Err(rule(StatusCode::FORBIDDEN, text))
}

/// Who keeps a stage, in words.
fn keepers(ask: &Ask, stage: &StageName) -> String {
    match ask.app.config.python.restrict_modify.entries().is_empty() {
        true => format!("only `{}` and administrators may", stage.user()),
        false => "only whom `python.restrict_modify` names and administrators may".to_owned(),
    }
}

/// The stage, for somebody who may remove from it; `purpose` is what for.
pub(super) fn remover<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
    purpose: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    if found.may_remove(principal) {
        return Ok(found);
    }
    let list = || not_listed(principal, "acl_upload", found.name());
    let cause = cause(ask, principal, Scope::PythonAdmin, list);
    Err(Refused::from(reply::forbidden(ask, purpose, &cause)))
}

/// The stage, for somebody who may remove old versions from it by a rule.
pub(super) fn retainer<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    if may_keep(ask, principal, found.name()) {
        return Ok(found);
    }
    let cause = cause(ask, principal, Scope::PythonAdmin, || keepers(ask, found.name()));
    Err(Refused::from(reply::forbidden(ask, "removing old versions", &cause)))
}

/// The stage, for somebody who may read it and add test results to it.
pub(super) fn tester<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = readable(stored, principal, stage)?;
    if found.may_upload_tox_results(principal) {
        return Ok(found);
    }
    let list = || not_listed(principal, "acl_toxresult_upload", found.name());
    let cause = cause(ask, principal, Scope::PythonUpload, list);
    let text = format_args!(
        "No permission to upload tox results{cause}. You can use the devpi test --no-upload option to skip the upload."
    );
    Err(rule(StatusCode::FORBIDDEN, text))
}

/// The stage itself, for somebody who may read it; its bases do not count.
pub(super) fn readable<'stored>(
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    match found.may_read(principal) {
        true => Ok(found),
        false => Err(unreadable(principal, found).into()),
    }
}

/// Refuses whoever may not read all that these stages show. No base is named.
pub(super) fn check_reader(
    principal: &Principal,
    order: &ResolutionOrder<'_>,
) -> Result<(), HttpError> {
    if order.admits(principal) {
        return Ok(());
    }
    Err(refused_reader(principal, order.stages().first().map(|own| &***own)))
}

/// The answer to somebody who may not read a stage, or one of its bases.
pub(super) fn refused_reader(principal: &Principal, own: Option<&Stage>) -> HttpError {
    match own {
        Some(own) if !own.may_read(principal) => unreadable(principal, own),
        _ => {
            let reason = "it has a base that they may not read";
            auth::denied(principal, Scope::PythonRead, "read this index", reason)
        }
    }
}

/// The answer to somebody who may not read this stage.
pub(super) fn unreadable(principal: &Principal, stage: &Stage) -> HttpError {
    let list = not_listed(principal, "acl_read", stage.name());
    auth::denied(principal, Scope::PythonRead, "read this index", &list)
}

/// ``: `ci` is not in `acl_upload` of team/dev``, or what a token lacks. devpi's own words stay as they are where the
/// server is to be devpi's twin; a token is none of devpi's.
pub(super) fn cause(
    ask: &Ask,
    principal: &Principal,
    scope: Scope,
    list: impl FnOnce() -> String,
) -> String {
    if principal.identity().is_none() {
        return String::new();
    }
    if !principal.has_scope(scope) {
        return format!(": this token lacks the scope `{}`", scope.as_str());
    }
    if ask.app.config.python.devpi_defaults { String::new() } else { format!(": {}", list()) }
}

/// What somebody is told whose token may add files, where a file of this name has other contents.
pub(super) fn no_replacing(filename: &str) -> String {
    format!(
        "no permission to replace {filename}: it is there with other contents, and this token lacks the scope `{}`",
        Scope::PythonAdmin.as_str()
    )
}

/// ```ci` is not in `acl_upload` of team/dev``
pub(super) fn not_listed(principal: &Principal, list: &str, stage: &StageName) -> String {
    let name = principal.user_name().map_or("nobody", |name| name.as_str());
    format!("`{name}` is not in `{list}` of {stage}")
}
