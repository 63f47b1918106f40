//! `/+manage/releases/{user}/{index}` and `…/{project}`: yanking, pushing and removing releases and their files.
//!
//! form -> an operation -> the page again. A user who may read an index may push from it. Versions that a
//! policy hides, and names of files, are shown only to users who may remove them.

use std::sync::Arc;

use account::{Portion, Principal};
use jiff::Timestamp;
use operations::releases::{
    DeleteFile, DeleteProject, DeleteRelease, FilePlace, SetProjectStatus, YankFile, YankRelease,
};
use pypi::change::push::{PushContent, PushOrder, PushOrderError, PushTarget};
use pypi::change::remove::RemovalExtent;
use pypi::change::yank;
use pypi::policy::{shown_versions, shows_any};
use pypi::{
    FileRole, Project, ProjectName, ProjectStatus, ReleaseFile, Stage, StageName, StatusMarker,
    Version,
};
use state::stored::Stored;

use super::*;
use crate::front::display::{self, Time};
use crate::front::parameters::parameter;
use crate::protocols::python::{PushOutcome, SentUpload};
use crate::routes::Route;

/// Most versions, and most files of one, on a page.
const VERSIONS_MAX: usize = 200;
const FILES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "manage_releases.html")]
struct ReleasesPage {
    site: Site,
    stage: String,
    stage_path: String,
    query: String,
    projects: Vec<String>,
    is_more: bool,
    form: String,
    /// Names that the index keeps without any release, which the reader may release.
    held: Vec<String>,
}

#[derive(Template)]
#[template(path = "manage_release.html")]
struct ReleasePage {
    site: Site,
    form: String,
    stage: String,
    stage_path: String,
    name: String,
    versions: Vec<VersionLine>,
    is_more: bool,
    chosen: Option<ChosenVersion>,
    status: Vec<(&'static str, bool)>,
    reason: String,
    may_remove: bool,
    is_volatile: bool,
    said: FormNotice,
}

/// A version of the project.
struct VersionLine {
    version: String,
    query: String,
    files: String,
    yanked: &'static str,
    is_chosen: bool,
}

/// The version whose forms are on the page.
struct ChosenVersion {
    version: String,
    is_yanked: bool,
    reason: String,
    files: Vec<FileLine>,
    more_files: usize,
}

struct FileLine {
    name: String,
    about: String,
    at: Time,
    is_yanked: bool,
    reason: String,
}

/// The names in a path below this page's.
struct ReleasePath {
    stage: StageName,
    project: Option<ProjectName>,
}

impl ReleasePath {
    fn of(route: &Route) -> Result<ReleasePath, HttpError> {
        let project = route.raw("{project}");
        let project = (!project.is_empty()).then(|| route.project()).transpose()?;
        Ok(ReleasePath { stage: route.stage()?, project })
    }

    fn stage_path(&self) -> String {
        in_path(self.stage.as_str())
    }

    /// The stage, for a user who may read it; for others it does not exist.
    fn stage<'stored>(
        &self,
        stored: &'stored Stored,
        principal: &Principal,
    ) -> Result<&'stored Arc<Stage>, HttpError> {
        let portion = match &self.project {
            Some(project) => Portion::Project(project.as_str()),
            None => Portion::Unnamed,
        };
        let missing = || HttpError::unknown_stage(self.stage.as_str());
        let stage = stored.index.stage(self.stage.as_str()).ok_or_else(missing)?;
        if !stage.may_read(principal, portion) {
            return Err(missing());
        }
        match stage.config().is_mirror() {
            true => Err(HttpError::not_found(format!(
                "{} is a mirror: its releases cannot be changed here",
                self.stage
            ))),
            false => Ok(stage),
        }
    }

    /// The project of the stage itself, as far as the asker may see it.
    fn project<'stored>(
        &self,
        stage: &'stored Arc<Stage>,
        principal: &Principal,
    ) -> Result<VisibleProject<'stored>, HttpError> {
        let name = self.project.as_ref().map_or("", |name| name.as_str());
        let missing =
            || HttpError::not_found(format!("{} has no project `{name}` of its own", self.stage));
        let named = self.project.as_ref().ok_or_else(missing)?;
        let project = stage.project(name).ok_or_else(missing)?;
        let may_remove = stage.may_remove(principal, Portion::Project(name));
        let versions = match may_remove {
            true => project.versions(),
            false => shown_versions(stage, named, project, Timestamp::now()).ok_or_else(missing)?,
        };
        Ok(VisibleProject { project, versions, may_remove })
    }
}

/// A project, and the part of it that the reader may see.
struct VisibleProject<'stored> {
    project: &'stored Arc<Project>,
    versions: Vec<&'stored str>,
    may_remove: bool,
}

/// `GET /+manage/releases/{user}/{index}`
pub(crate) async fn list_releases(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let named = ReleasePath::of(route)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    let stored = app.stored()?;
    let stage = named.stage(&stored, &principal)?;
    let query = typed_parameter(head, "q", 200);
    let wanted = [query.to_lowercase().replace(['_', '.'], "-")];
    let now = Timestamp::now();
    let found = stage.names_with(&wanted).filter(|name| {
        let portion = Portion::Project(name);
        stage.may_read(&principal, portion)
            && (stage.may_remove(&principal, portion) || shows_any(stage, name, now))
    });
    let mut found = found.map(str::to_owned);
    let held = stage.held_names().filter(|name| {
        name.as_str().contains(&wanted[0])
            && stage.may_remove(&principal, Portion::Project(name.as_str()))
    });
    let page = ReleasesPage {
        site: Site::of(app, head),
        stage: named.stage.to_string(),
        stage_path: named.stage_path(),
        query,
        projects: found.by_ref().take(LINES_MAX).collect(),
        is_more: found.next().is_some(),
        form: forms::token(app, &session)?,
        held: held.take(LINES_MAX).map(ToString::to_string).collect(),
    };
    Ok(page::send_once(&page, head, StatusCode::OK).await)
}

/// `GET /+manage/releases/{user}/{index}/{project}`, with `?version=` for the forms of one.
pub(crate) async fn show_release(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let named = ReleasePath::of(route)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    let version = parameter(head, "version");
    let sender = (&session, &principal);
    page(app, head, &named, sender, version.as_deref(), FormNotice::default(), StatusCode::OK).await
}

async fn page(
    app: &Arc<App>,
    head: &Parts,
    named: &ReleasePath,
    (session, principal): (&SessionText, &Principal),
    version: Option<&str>,
    said: FormNotice,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let stored = app.stored()?;
    let stage = named.stage(&stored, principal)?;
    let VisibleProject { project, versions, may_remove } = named.project(stage, principal)?;
    let name = named.project.as_ref().map(ToString::to_string).unwrap_or_default();
    let chosen = match version.filter(|version| versions.contains(version)) {
        Some(version) => Some(ChosenVersion::of(project, version, may_remove)),
        None if version.is_some() && said.done.is_empty() && said.problem.is_empty() => {
            let version = record::excerpt(version.unwrap_or_default(), 80);
            let detail = format!("{} has no version `{version}` of {name}", named.stage);
            return Err(HttpError::not_found(detail));
        }
        None => None,
    };
    let mut sorted: Vec<(Option<Version>, &str)> =
        versions.iter().map(|text| (Version::parse(text).ok(), *text)).collect();
    sorted.sort_by(|one, other| other.cmp(one));
    let lines = sorted.iter().take(VERSIONS_MAX).map(|(_, text)| VersionLine {
        query: form_urlencoded::Serializer::new(String::new())
            .append_pair("version", text)
            .finish(),
        // A number would tell of files that a policy hides.
        files: match may_remove {
            true => display::count(files_of(project, text).count(), "file", "files"),
            false => String::new(),
        },
        yanked: match files_of(project, text)
            .filter(|it| may_remove && project.yanked(it).is_some())
            .count()
        {
            0 if project.release(text).is_some_and(|it| it.yanked().is_some()) => "yanked",
            0 => "",
            some if some == files_of(project, text).count() => "yanked",
            _ => "some files yanked",
        },
        is_chosen: chosen.as_ref().is_some_and(|chosen| chosen.version == *text),
        version: (*text).to_owned(),
    });
    let (marker, reason) = match project.status() {
        Some(status) => (status.marker.as_str(), status.reason.as_deref().unwrap_or_default()),
        None => ("active", ""),
    };
    let markers = ["active", "archived", "deprecated", "quarantined"];
    let page = ReleasePage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        stage: named.stage.to_string(),
        stage_path: named.stage_path(),
        is_more: versions.len() > VERSIONS_MAX,
        versions: lines.collect(),
        chosen,
        status: markers.map(|name| (name, name == marker)).to_vec(),
        reason: reason.to_owned(),
        may_remove,
        is_volatile: stage.config().volatile,
        name,
        said,
    };
    Ok(page::send_once(&page, head, status).await)
}

fn files_of<'project>(
    project: &'project Project,
    version: &'project str,
) -> impl Iterator<Item = &'project ReleaseFile> {
    project.files_of(version).filter(|file| file.role() == FileRole::Release)
}

impl ChosenVersion {
    fn of(project: &Project, version: &str, may_remove: bool) -> ChosenVersion {
        let yanked = project.release(version).and_then(|release| release.yanked());
        let files: Vec<_> = files_of(project, version).filter(|_| may_remove).collect();
        let lines = files.iter().take(FILES_MAX).map(|file| FileLine {
            name: file.filename().to_owned(),
            about: display::size(file.size_bytes()),
            at: Time(file.uploaded_at()),
            is_yanked: file.yanked().is_some(),
            reason: file.yanked().unwrap_or_default().to_owned(),
        });
        ChosenVersion {
            version: version.to_owned(),
            is_yanked: yanked.is_some(),
            reason: yanked.unwrap_or_default().to_owned(),
            files: lines.collect(),
            more_files: files.len().saturating_sub(FILES_MAX),
        }
    }
}

/// `POST /+manage/releases/{user}/{index}/{project}`, by what its field `do` names.
pub(crate) async fn change_release(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let named = ReleasePath::of(route)?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (ChangeAnswer { answer, is_partial }, done) = change(app, head, &named, &posted).await?;
    let (said, status) = FormNotice::of(&answer, done);
    let said = FormNotice { is_partial, ..said };
    let sender = (&posted.session, &posted.principal);
    let version = posted.fields.maybe("version")?;
    let mut response = match page(app, head, &named, sender, version, said, status).await {
        // Its last release is gone, or the user may not see it any more.
        Err(_) if answer.is_done() => {
            forms::see_other(app, head, &format!("/+manage/releases/{}", named.stage_path()))
        }
        shown => shown?,
    };
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}

/// What came of a form.
struct ChangeAnswer {
    answer: Answer,
    /// Whether another server took some files of a push, and not all.
    is_partial: bool,
}

impl From<Answer> for ChangeAnswer {
    fn from(answer: Answer) -> ChangeAnswer {
        ChangeAnswer { answer, is_partial: false }
    }
}

/// Carries out what a form asks for; returns the message afterwards, too.
async fn change(
    app: &Arc<App>,
    head: &Parts,
    named: &ReleasePath,
    posted: &PostedForm,
) -> Result<(ChangeAnswer, &'static str), HttpError> {
    let (fields, principal) = (&posted.fields, &posted.principal);
    let stored = app.stored()?;
    let stage = named.stage.clone();
    let missing = || HttpError::bad_request("the path names no project");
    let project = named.project.clone().ok_or_else(missing)?;
    let force = fields.maybe("force")?.is_some();
    // Nothing else is left of the project.
    if fields.one("do")? == "release-name" {
        named.stage(&stored, principal)?;
        let releasing = DeleteProject { stage, project, extent: RemovalExtent::Name, force: true };
        return Ok((remove(app, head, posted, &releasing).await.into(), "The name is released."));
    }
    // The right to see the page is checked first: without it, nothing is changed, and nothing of the project is told.
    let seen = named.project(named.stage(&stored, principal)?, principal)?;
    let version = || match fields.maybe("version")?.unwrap_or_default() {
        "" => Err(HttpError::bad_request("the form lacks the field `version`")),
        version => Ok(version.to_owned()),
    };
    let file = || {
        let file = seen.project.file(fields.one("file")?).filter(|_| seen.may_remove);
        let file = file.ok_or_else(|| HttpError::not_found("this file is no longer there"))?;
        let (directory, filename) = (file.directory(), file.filename().to_owned());
        Ok::<_, HttpError>(FilePlace { directory, filename })
    };
    let reason = || {
        let reason = fields.maybe("reason")?.unwrap_or_default().trim();
        yank::check_reason(reason).map_err(HttpError::bad_request)?;
        Ok::<_, HttpError>(reason.to_owned())
    };
    Ok(match fields.one("do")? {
        "yank" => {
            let (version, reason) = (version()?, Some(reason()?));
            let yanking = YankRelease { stage, project, version, reason };
            let answer = carry_out(app, head, posted, Ok(yanking)).await;
            (answer.into(), "The release is yanked.")
        }
        "unyank" => {
            let yanking = YankRelease { stage, project, version: version()?, reason: None };
            let answer = remove(app, head, posted, &yanking).await;
            (answer.into(), "The release is no longer yanked.")
        }
        "yank-file" => {
            let yanking = YankFile { stage, file: file()?, reason: Some(reason()?) };
            let answer = carry_out(app, head, posted, Ok(yanking)).await;
            (answer.into(), "The file is yanked.")
        }
        "unyank-file" => {
            let yanking = YankFile { stage, file: file()?, reason: None };
            let answer = remove(app, head, posted, &yanking).await;
            (answer.into(), "The file is no longer yanked.")
        }
        "remove-file" => {
            let deleting = DeleteFile { stage, file: file()?, force };
            let typed = (fields.one("file")?, "To remove the file, type its name");
            let answer = remove_typed(app, head, posted, typed, &deleting).await;
            (answer.into(), "The file is removed.")
        }
        "remove" => {
            let version = version()?;
            let deleting = DeleteRelease { stage, project, version: version.clone(), force };
            let typed = (&*version, "To remove the release, type its version");
            let answer = remove_typed(app, head, posted, typed, &deleting).await;
            (answer.into(), "The release is removed.")
        }
        "remove-project" => {
            let extent = match fields.maybe("release_name")? {
                Some(_) => RemovalExtent::ContentsAndName,
                None => RemovalExtent::Contents,
            };
            let deleting = DeleteProject { stage, project: project.clone(), extent, force };
            let typed = (project.as_str(), "To remove the project, type its name");
            let answer = remove_typed(app, head, posted, typed, &deleting).await;
            (answer.into(), "The project is removed.")
        }
        "status" => {
            let marker = fields.one("status")?;
            let (status, done) = match StatusMarker::parse(marker) {
                _ if marker == "active" => (None, "The project has no status any more."),
                Some(marker) => {
                    let reason = Some(reason()?.into());
                    (Some(ProjectStatus { marker, reason }), "The status is set.")
                }
                None => {
                    let expected =
                        "'status' was expected to be active, archived, quarantined or deprecated";
                    return Err(HttpError::bad_request(expected));
                }
            };
            let setting = SetProjectStatus { stage, project, status };
            (carry_out(app, head, posted, Ok(setting)).await.into(), done)
        }
        "push" => {
            let order = pushed(fields, project.to_string(), version()?)?;
            let changed: ChangeAnswer =
                match python::push(app, &posted.sender(head), &stage, &order).await {
                    Ok(PushOutcome::Here(done)) => Answer::done(done.seen).into(),
                    Ok(PushOutcome::Elsewhere { is_whole: true, .. }) => {
                        Answer::done(Serial::ZERO).into()
                    }
                    Ok(PushOutcome::Elsewhere { log, .. }) => partial(&log),
                    Err(refused) => Answer::refused(python::error_of(refused)).into(),
                };
            (changed, "The release is pushed.")
        }
        _ => return Err(forms::asks_nothing()),
    })
}

/// The order of a push: to an index of this server, or to an upload API elsewhere.
fn pushed(fields: &forms::Fields, name: String, version: String) -> Result<PushOrder, HttpError> {
    let text = |field: &str| Ok::<_, HttpError>(fields.maybe(field)?.unwrap_or_default());
    let target = text("target")?.trim();
    let target = match target.contains("://") {
        true => Ok(PushTarget::External {
            url: target.to_owned(),
            username: text("user")?.trim().to_owned(),
            password: text("password")?.to_owned(),
            register_project: false,
        }),
        false => target.parse().map(PushTarget::Stage).map_err(|_| PushOrderError::Target),
    };
    let content = match text("content")? {
        "no_docs" => PushContent::NoDocs,
        "only_docs" => PushContent::OnlyDocs,
        _ => PushContent::Everything,
    };
    Ok(PushOrder { name, version, content: Ok(content), target })
}

/// What came of a push of which another server did not take all: what it said of each file that it refused.
fn partial(log: &[SentUpload]) -> ChangeAnswer {
    let (taken, failed): (Vec<_>, Vec<_>) = log.iter().partition(|sent| sent.is_taken());
    let texts: Vec<_> = failed.into_iter().take(20).map(ToString::to_string).collect();
    let message = format!("The other server did not take all of it: {}", texts.join("; "));
    let answer = Answer { status: StatusCode::BAD_GATEWAY, message, serial: Serial::ZERO };
    ChangeAnswer { answer, is_partial: !taken.is_empty() }
}
