//! Who may do what to a stage: checked when a request comes, before a body is sent, and again, by the same functions, on the
//! [`Basis`](state::stored::Basis) of each write. A refusal names its cause if that reveals nothing: what a token lacks, or the
//! list that a user is not on.

use std::sync::Arc;

use account::{Object, Portion, Principal, Scope};
use pypi::{FileLookup, ProjectName, ResolutionOrder, Stage, StageConfig, StageName, may_own};
use state::stored::Stored;

use super::ask::Ask;
use super::reply;
use super::route::FilePath;
use super::write::Refused;
use crate::app::App;
use crate::http::auth;
use crate::http::error::HttpError;

/// The part of a stage that a request is about: a token may be limited to some projects.
#[derive(Clone, Copy)]
pub(super) enum About<'ask> {
    /// The stage itself, its list of projects, all projects together.
    Whole,
    /// The project that a path or a body names. None: no project can be called so.
    Project(Option<&'ask ProjectName>),
    /// The project of the file below `+f`.
    File(&'ask FilePath),
    /// A project that a body will name.
    NotYetKnown,
}

/// The project of a [`About`].
pub(super) enum OfProject {
    Whole,
    Project(ProjectName),
    /// Unknown: the name is not read yet, or not valid, or there is no such file.
    Unnamed,
}

impl About<'_> {
    /// The project, as of this stage.
    pub(super) fn of(self, stage: &Stage) -> OfProject {
        let project = match self {
            About::Whole => return OfProject::Whole,
            About::NotYetKnown => None,
            About::Project(name) => name.cloned(),
            About::File(path) => match path.place().map(|(it, name)| stage.file(it, name)) {
                Some(FileLookup::Found { project, .. })
                | Some(FileLookup::CoreMetadata { project, .. })
                | Some(FileLookup::Provenance { project, .. }) => Some(project),
                Some(FileLookup::Gone | FileLookup::Absent) | None => None,
            },
        };
        project.map_or(OfProject::Unnamed, OfProject::Project)
    }
}

impl OfProject {
    pub(super) fn portion(&self) -> Portion<'_> {
        match self {
            OfProject::Whole => Portion::Whole,
            OfProject::Project(name) => Portion::Project(name.as_str()),
            OfProject::Unnamed => Portion::Unnamed,
        }
    }
}

/// Whether the principal may create, change and remove the stage.
pub(in crate::http) fn may_keep(app: &App, principal: &Principal, stage: &StageName) -> bool {
    let keepers = &app.config.python.restrict_modify;
    if keepers.entries().is_empty() {
        return may_own(stage, principal);
    }
    keepers.admits(principal, Scope::PythonAdmin, whole(stage))
}

fn whole(stage: &StageName) -> Object<'_> {
    Object::Index(stage.as_str(), Portion::Whole)
}

/// Refuses a base that a limited token adds, and that is outside of its limits: it would be read through the stage.
/// `before`: how the stage is configured, if it is there.
pub(super) fn check_bases(
    principal: &Principal,
    before: Option<&StageConfig>,
    after: &StageConfig,
) -> Result<(), Refused> {
    let old = before.map_or(&[][..], |config| config.bases());
    let added = after.bases().iter().filter(|base| !old.contains(base));
    match added.into_iter().find_map(|base| principal.lack(Scope::PythonRead, whole(base))) {
        None => Ok(()),
        Some(lack) => Err(Refused::forbidden(format_args!("no permission to add a base: {lack}"))),
    }
}

/// Refuses senders who may not create, change or remove the stage; `verb` says which of these.
pub(super) fn check_keeper(
    ask: &Ask,
    principal: &Principal,
    stage: &StageName,
    verb: &str,
) -> Result<(), Refused> {
    if may_keep(&ask.app, principal, stage) {
        return Ok(());
    }
    let cause = cause(ask, principal, Scope::PythonAdmin, whole(stage), || keepers(ask, stage));
    let text = format!("no permission to {verb} index {stage}{cause}");
    Err(Refused::forbidden(text))
}

/// Those who may change a stage, as a part of a sentence.
fn keepers(ask: &Ask, stage: &StageName) -> String {
    match ask.app.config.python.restrict_modify.entries().is_empty() {
        true => format!("only `{}` and administrators may", stage.user()),
        false => "only whom `python.restrict_modify` names and administrators may".to_owned(),
    }
}

/// The stage, if the sender may remove releases from it; `purpose` is for the refusal.
pub(super) fn remover<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
    about: About<'_>,
    purpose: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    let project = about.of(found);
    if found.may_remove(principal, project.portion()) {
        return Ok(found);
    }
    let object = found.object(project.portion());
    let list = || not_listed(principal, "acl_upload", found.name());
    let cause = cause(ask, principal, Scope::PythonAdmin, object, list);
    Err(Refused::from(reply::forbidden(ask, purpose, &cause)))
}

/// The stage, if the sender may create, change and remove it.
pub(super) fn keeper<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
    purpose: &str,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    if may_keep(&ask.app, principal, found.name()) {
        return Ok(found);
    }
    let object = whole(found.name());
    let cause = cause(ask, principal, Scope::PythonAdmin, object, || keepers(ask, found.name()));
    Err(Refused::from(reply::forbidden(ask, purpose, &cause)))
}

/// The stage, if the sender may read it and add test results to it.
pub(super) fn tester<'stored>(
    ask: &Ask,
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
    about: About<'_>,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = readable(stored, principal, stage, about)?;
    let project = about.of(found);
    if found.may_upload_tox_results(principal, project.portion()) {
        return Ok(found);
    }
    let object = found.object(project.portion());
    let list = || not_listed(principal, "acl_toxresult_upload", found.name());
    let cause = cause(ask, principal, Scope::PythonUpload, object, list);
    let text = format_args!(
        "No permission to upload tox results{cause}. You can use the devpi test --no-upload option to skip the upload."
    );
    Err(Refused::forbidden(text))
}

/// The stage itself, if the sender may read it; its bases do not count.
pub(super) fn readable<'stored>(
    stored: &'stored Stored,
    principal: &Principal,
    stage: &str,
    about: About<'_>,
) -> Result<&'stored Arc<Stage>, Refused> {
    let found = stored.index.stage(stage).ok_or_else(|| no_stage(stage))?;
    let project = about.of(found);
    match found.may_read(principal, project.portion()) {
        true => Ok(found),
        false => Err(unreadable(principal, found, project.portion()).into()),
    }
}

/// Refuses senders who may not read all of these stages. The refusal names no base.
pub(super) fn check_reader(
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
pub(super) fn refused_reader(
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
pub(super) fn check_file_reader(
    stored: &Stored,
    principal: &Principal,
    stage: &Stage,
    about: About<'_>,
) -> Result<(), HttpError> {
    let project = about.of(stage);
    match stage.may_read_file(&stored.index, principal, project.portion()) {
        true => Ok(()),
        false => Err(unreadable(principal, stage, project.portion())),
    }
}

/// The answer to principals who may not read this stage.
pub(super) fn unreadable(principal: &Principal, stage: &Stage, portion: Portion<'_>) -> HttpError {
    let (list, object) = (not_listed(principal, "acl_read", stage.name()), stage.object(portion));
    auth::denied(principal, Scope::PythonRead, object, "read this index", &list)
}

/// ``: `ci` is not in `acl_upload` of team/dev``, or what a token lacks. Where the server answers as devpi does,
/// devpi's messages are unchanged; devpi has no tokens.
pub(super) fn cause(
    ask: &Ask,
    principal: &Principal,
    scope: Scope,
    object: Object<'_>,
    list: impl FnOnce() -> String,
) -> String {
    if principal.identity().is_none() {
        return String::new();
    }
    if let Some(lack) = principal.lack(scope, object) {
        return format!(": {lack}");
    }
    if ask.app.config.python.devpi_defaults { String::new() } else { format!(": {}", list()) }
}

/// The refusal for a token that may only add files, if a file with this name has other contents.
pub(super) fn no_replacing(filename: &str) -> String {
    let lack = account::Lack::Scope(Scope::PythonAdmin);
    format!("no permission to replace {filename}: it is there with other contents, and {lack}")
}

/// ```ci` is not in `acl_upload` of team/dev``
pub(super) fn not_listed(principal: &Principal, list: &str, stage: &StageName) -> String {
    let name = principal.user_name().map_or("nobody", |name| name.as_str());
    format!("`{name}` is not in `{list}` of {stage}")
}

/// Refuses senders who may not read all of these stages.
pub(super) async fn admit(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    about: About<'_>,
) -> Result<(), HttpError> {
    let Some(own) = order.stages().first() else { return Ok(()) };
    if order.stages().iter().all(|stage| stage.config().is_public()) {
        return Ok(());
    }
    check_reader(&ask.principal().await?, order, about.of(own).portion())
}

/// Refuses a client that may not read a file of the stage.
pub(super) async fn admit_to_file(
    ask: &Ask,
    stage: &Stage,
    about: About<'_>,
) -> Result<(), HttpError> {
    if stage.config().is_public() {
        return Ok(());
    }
    check_file_reader(&ask.stored, &ask.principal().await?, stage, about)
}

/// The stage does not exist.
pub(super) fn no_stage(stage: &str) -> Refused {
    HttpError::unknown_stage(stage).into()
}
