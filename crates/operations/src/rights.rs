//! Who may do what to an index or an article: checked when a request comes, before a body is read, and again, by the same
//! functions, on the [`Basis`] of each decision. A refusal names its cause if that reveals nothing: what a token lacks, or the
//! list that a user is not on.

use std::sync::Arc;

use account::{Object, Portion, Principal, Restriction, Scope};
use article::ArticleName;
use pypi::{
    ChangeError, Directory, FileLookup, ProjectName, Stage, StageConfig, StageName, may_own,
};

use crate::{Basis, Denied, Refusal, Right, Rules};

/// The part of an index that a wish is about: a token may be limited to some projects.
#[derive(Clone, Copy, Debug)]
pub enum IndexPart<'wish> {
    /// The index itself, its list of projects, all projects together.
    Whole,
    /// The project of this name; `None` if no project can be called so.
    Project(Option<&'wish ProjectName>),
    /// The project of this file; `None` if no file can be there.
    File(Option<(Directory, &'wish str)>),
    /// A project that a body will name.
    NotYetKnown,
}

/// The project of an [`IndexPart`], as of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectScope {
    /// The index as a whole.
    Whole,
    /// This project.
    Project(ProjectName),
    /// Unknown: the name is not read yet, or not valid, or there is no such file.
    Unnamed,
}

impl IndexPart<'_> {
    /// The project, as of this index.
    pub fn of(self, stage: &Stage) -> ProjectScope {
        let project = match self {
            IndexPart::Whole => return ProjectScope::Whole,
            IndexPart::NotYetKnown => None,
            IndexPart::Project(name) => name.cloned(),
            IndexPart::File(place) => match place.map(|(it, name)| stage.file(it, name)) {
                Some(FileLookup::Found { project, .. })
                | Some(FileLookup::CoreMetadata { project, .. })
                | Some(FileLookup::Provenance { project, .. }) => Some(project),
                Some(FileLookup::Gone | FileLookup::Absent) | None => None,
            },
        };
        project.map_or(ProjectScope::Unnamed, ProjectScope::Project)
    }
}

impl ProjectScope {
    /// The part of the index that a right is asked for.
    pub fn portion(&self) -> Portion<'_> {
        match self {
            ProjectScope::Whole => Portion::Whole,
            ProjectScope::Project(name) => Portion::Project(name.as_str()),
            ProjectScope::Unnamed => Portion::Unnamed,
        }
    }
}

/// The index as a whole.
fn whole(stage: &StageName) -> Object<'_> {
    Object::Index(stage.as_str(), Portion::Whole)
}

/// The refusal of a right that this principal lacks; `otherwise` says who has it.
fn denied(
    principal: &Principal,
    right: Right,
    (scope, object): (Scope, Object<'_>),
    otherwise: String,
) -> Refusal {
    let (by, lack) = (principal.called(), principal.lack(scope, object));
    Refusal::Denied(Box::new(Denied { right, by, lack, otherwise }))
}

/// The refusal of a token that lacks a right which its user has.
pub(crate) fn lacking(principal: &Principal, right: Right, lack: Restriction) -> Refusal {
    let (by, otherwise) = (principal.called(), String::new());
    Refusal::Denied(Box::new(Denied { right, by, lack: Some(lack), otherwise }))
}

/// ```ci` is not in `acl_upload` of team/dev``
pub fn not_listed(principal: &Principal, list: &str, stage: &StageName) -> String {
    let name = principal.user_name().map_or("nobody", |name| name.as_str());
    format!("`{name}` is not in `{list}` of {stage}")
}

/// The index with this name.
///
/// # Errors
/// [`ChangeError::NoStage`].
pub fn stage<'basis>(
    basis: &'basis Basis,
    name: &StageName,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let found = basis.stored.index.stage(name.as_str());
    Ok(found.ok_or_else(|| ChangeError::NoStage(name.clone()))?)
}

/// Whether the principal may create, change and remove the index.
pub fn may_keep(rules: &Rules, principal: &Principal, stage: &StageName) -> bool {
    match rules.is_restricted() {
        true => rules.restrict_modify.admits(principal, Scope::PythonAdmin, whole(stage)),
        false => may_own(stage, principal),
    }
}

/// Refuses senders who may not create, change and remove the index; `right` is what the refusal names.
///
/// # Errors
/// [`Refusal::Denied`].
pub(crate) fn check_keeper(basis: &Basis, stage: &StageName, right: Right) -> Result<(), Refusal> {
    if basis.sender().is_on_the_machine() || may_keep(&basis.rules, basis.principal(), stage) {
        return Ok(());
    }
    let otherwise = match basis.rules.is_restricted() {
        true => "only whom `python.restrict_modify` names and administrators may".to_owned(),
        false => format!("only `{}` and administrators may", stage.user()),
    };
    let what = (Scope::PythonAdmin, whole(stage));
    Err(denied(basis.principal(), right, what, otherwise))
}

/// The index, if the sender may have files fetched ahead for it.
///
/// # Errors
/// [`Refusal::Denied`], [`ChangeError::NoStage`].
pub fn prefetcher<'basis>(
    basis: &'basis Basis,
    name: &StageName,
) -> Result<&'basis Arc<Stage>, Refusal> {
    check_keeper(basis, name, Right::Remove("fetching files ahead"))?;
    stage(basis, name)
}

/// Refuses a base that a limited token adds, and that is outside of its limits: it would be read through the index. `before`:
/// how the index is configured, if it is there.
pub(crate) fn check_bases(
    principal: &Principal,
    before: Option<&StageConfig>,
    after: &StageConfig,
) -> Result<(), Refusal> {
    let old = before.map_or(&[][..], |config| config.bases());
    let mut added = after.bases().iter().filter(|base| !old.contains(base));
    match added.find_map(|base| principal.lack(Scope::PythonRead, whole(base))) {
        None => Ok(()),
        Some(lack) => Err(lacking(principal, Right::AddBase, lack)),
    }
}

/// The index, if `may` says that the sender has the right to its part. `list` is devpi's list of those who have it.
fn admitted<'basis>(
    basis: &'basis Basis,
    name: &StageName,
    portion: Portion<'_>,
    (right, scope, list): (Right, Scope, &str),
    may: impl FnOnce(&Stage, &Principal, Portion<'_>) -> bool,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let (stage, principal) = (stage(basis, name)?, basis.principal());
    if basis.sender().is_on_the_machine() || may(stage, principal, portion) {
        return Ok(stage);
    }
    let what = (scope, stage.object(portion));
    Err(denied(principal, right, what, not_listed(principal, list, name)))
}

/// An operation that takes the right to remove and change what is in an index.
pub trait NeedsRemover {
    /// What the right is for, in a refusal.
    const PURPOSE: &'static str;
}

/// The index, if the sender may remove and change what is in it, as this operation does.
///
/// # Errors
/// [`ChangeError::NoStage`], [`Refusal::Denied`].
pub fn remover<'basis, O: NeedsRemover>(
    basis: &'basis Basis,
    name: &StageName,
    about: IndexPart<'_>,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let project = about.of(stage(basis, name)?);
    let right = (Right::Remove(O::PURPOSE), Scope::PythonAdmin, "acl_upload");
    admitted(basis, name, project.portion(), right, Stage::may_remove)
}

/// The index, if the sender may read the part that the wish is about. Its bases do not count.
///
/// # Errors
/// [`ChangeError::NoStage`], [`Refusal::Denied`].
pub fn reader<'basis>(
    basis: &'basis Basis,
    name: &StageName,
    about: IndexPart<'_>,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let project = about.of(stage(basis, name)?);
    let right = (Right::ReadIndex(name.clone()), Scope::PythonRead, "acl_read");
    admitted(basis, name, project.portion(), right, Stage::may_read)
}

/// The index, if the sender may read it and add test results to it.
///
/// # Errors
/// As [`reader`].
pub fn tester<'basis>(
    basis: &'basis Basis,
    name: &StageName,
    about: IndexPart<'_>,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let project = about.of(reader(basis, name, about)?);
    let right = (Right::AddToxResult, Scope::PythonUpload, "acl_toxresult_upload");
    admitted(basis, name, project.portion(), right, Stage::may_upload_tox_results)
}

/// Refuses senders who may not read the audit log of this index; without one, of all.
///
/// # Errors
/// [`Refusal::Denied`].
pub fn check_auditor(basis: &Basis, stage: Option<&Stage>) -> Result<(), Refusal> {
    let (what, may, otherwise) = match stage {
        None => {
            let may = basis.principal().is_administrator(Scope::ServerAdmin, Object::Server);
            ((Scope::ServerAdmin, Object::Server), may, "it is for administrators")
        }
        Some(stage) => {
            let what = (Scope::PythonAdmin, whole(stage.name()));
            (what, stage.may_modify(basis.principal()), "it is for those who may change the index")
        }
    };
    match stage {
        _ if may => return Ok(()),
        Some(stage) => _ = reader(basis, stage.name(), IndexPart::Whole)?,
        None => {}
    }
    let right = Right::Remove("reading the audit log");
    Err(denied(basis.principal(), right, what, otherwise.to_owned()))
}

/// Refuses senders who may not upload into the index; `right` says whether by an upload or a push.
///
/// # Errors
/// [`ChangeError::NoStage`], [`Refusal::Denied`].
pub fn uploader<'basis>(
    basis: &'basis Basis,
    name: &StageName,
    portion: Portion<'_>,
    right: Right,
) -> Result<&'basis Arc<Stage>, Refusal> {
    let may = match right {
        Right::Push(_) => Stage::may_push,
        _ => Stage::may_upload,
    };
    admitted(basis, name, portion, (right, Scope::PythonUpload, "acl_upload"), may)
}

/// Refuses senders who may not push a project of the index to another server. Without credentials, nobody makes this server send
/// anything.
///
/// # Errors
/// [`Refusal::Denied`].
pub fn check_pusher_outside(
    basis: &Basis,
    stage: &Stage,
    portion: Portion<'_>,
) -> Result<(), Refusal> {
    let (principal, what) = (basis.principal(), (Scope::PythonUpload, stage.object(portion)));
    let is_somebody = principal.user_name().is_some();
    if is_somebody && basis.rules.push_outside.admits(principal, what.0, what.1) {
        return Ok(());
    }
    let otherwise = not_in(principal, "python.acl_push_outside");
    Err(denied(principal, Right::PushOutside, what, otherwise))
}

/// Refuses everybody but administrators a look at something of the whole server.
///
/// # Errors
/// [`Refusal::Denied`].
pub fn check_administrator(
    principal: &Principal,
    scope: Scope,
    sight: &'static str,
) -> Result<(), Refusal> {
    match principal.is_administrator(scope, Object::Server) {
        true => Ok(()),
        false => {
            let what = (scope, Object::Server);
            Err(denied(principal, Right::SeeAll(sight), what, String::new()))
        }
    }
}

/// The refusal of a token that may only add files, if a file with this name has other contents.
pub(crate) fn no_replacing(principal: &Principal, filename: &str) -> Refusal {
    let lack = Restriction::Scope(Scope::PythonAdmin);
    lacking(principal, Right::Replace(filename.to_owned()), lack)
}

/// Refuses senders who may not write the article.
///
/// # Errors
/// [`Refusal::Ended`], [`Refusal::Denied`].
pub fn check_article_writer(basis: &Basis, name: &ArticleName) -> Result<(), Refusal> {
    if basis.sender().is_on_the_machine() {
        return Ok(());
    }
    let principal = basis.valid_principal()?;
    let what = (Scope::ArticleWrite, Object::Article(name.as_str()));
    if basis.rules.article_writers.admits(principal, what.0, what.1) {
        return Ok(());
    }
    let otherwise = not_in(principal, "article.acl_write");
    Err(denied(principal, Right::WriteArticle(name.clone()), what, otherwise))
}

/// Refuses senders who may not read the article.
///
/// # Errors
/// [`Refusal::Ended`], [`Refusal::Denied`].
pub(crate) fn check_article_reader(basis: &Basis, name: &ArticleName) -> Result<(), Refusal> {
    let principal = basis.valid_principal()?;
    let what = (Scope::ArticleRead, Object::Article(name.as_str()));
    if basis.rules.article_readers.admits(principal, what.0, what.1) {
        return Ok(());
    }
    let otherwise = not_in(principal, "article.acl_read");
    Err(denied(principal, Right::ReadArticle(name.clone()), what, otherwise))
}

fn not_in(principal: &Principal, list: &str) -> String {
    let name = principal.user_name().map_or("nobody", |name| name.as_str());
    format!("`{name}` is not in `{list}`")
}
