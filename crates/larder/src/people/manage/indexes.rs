//! Making, changing and deleting indexes and mirrors: settings, quarantine, old versions.

use std::sync::Arc;

use account::Portion;
use jiff::Timestamp;
use operations::indexes::{
    ChangeIndex, CreateIndex, DeleteIndex, names_of_nobody, uncovered_by_policy,
};
use operations::rights::may_keep;
use pypi::change::retention::{Removal, RetentionRule};
use pypi::devpi::{IndexConfig, View};
use pypi::{ConfigEdit, ProjectName, ResolutionOrder, StageConfig};
use serde_json::Map;

use super::index_settings::{Group, Kind, changes_of, config_of, edit_of, groups, people};
use super::*;
use crate::front::display;
use crate::protocols::python::rights::check_reader;
use crate::routes::Route;

/// Most versions that a page about old ones lists.
const REMOVALS_MAX: usize = 500;

#[derive(Template)]
#[template(path = "manage_index.html")]
struct IndexPage {
    site: Site,
    form: String,
    name: String,
    path: String,
    is_mirror: bool,
    is_volatile: bool,
    /// Whether the index is no mirror and the reader may see its releases: the owner of an index may lack the right to read it.
    has_releases: bool,
    groups: Vec<Group>,
    /// Users and groups that can be chosen for lists of rights.
    people: Vec<String>,
    /// What the form would change, if the user has asked.
    preview: Option<Vec<String>>,
    /// Indexes that inherit from this one, whose files from elsewhere its policy does not judge.
    uncovered: Vec<String>,
    quarantine: Vec<String>,
    /// What the lists of rights name that is not there.
    nobody: Vec<String>,
    /// Why the upstream fails that was just set.
    trouble: Option<String>,
    retention: Option<Retention>,
    said: FormNotice,
}

/// What a retention rule removes, or removed.
struct Retention {
    is_dry: bool,
    versions: String,
    days: String,
    size: String,
    removals: Vec<String>,
    is_more: bool,
}

impl Retention {
    fn of(removals: &[Removal], is_dry: bool, versions: &str, days: &str) -> Retention {
        let lines = removals.iter().take(REMOVALS_MAX).map(|removal| {
            let files = display::count(removal.filenames.len(), "file", "files");
            let size = display::size(removal.size_bytes);
            format!("{} {} ({files}, {size})", removal.project, removal.version)
        });
        Retention {
            is_dry,
            versions: versions.to_owned(),
            days: days.to_owned(),
            size: display::size(removals.iter().map(|removal| removal.size_bytes).sum()),
            removals: lines.collect(),
            is_more: removals.len() > REMOVALS_MAX,
        }
    }
}

/// `POST /+manage/indexes`
pub(crate) async fn create_index(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let fields = &posted.fields;
    let name = fields.one("name")?.trim();
    let config = config_of(fields)?;
    let unproved = match changes_rights(&config) {
        true => forms::proved_again(app, &posted, "own").await.err(),
        false => None,
    };
    let wish = match (name.split('/').count(), unproved) {
        (_, Some(error)) => Err(error),
        (2, None) => new_index(name, &config),
        _ => {
            let detail =
                "The name of an index is that of a user and one of its own, such as team/dev.";
            Err(HttpError::unusable(detail))
        }
    };
    let made = wish.as_ref().ok().cloned();
    let answer = carry_out(app, head, &posted, wish).await;
    let (said, status) = FormNotice::of(&answer, "The index is made.");
    let sender = (&posted.session, &posted.principal);
    let Some(CreateIndex { stage, edit }) = made.filter(|_| answer.is_done()) else {
        return super::page(app, head, sender, said, status, Some(fields)).await;
    };
    let place = format!("/+manage/indexes/{}", in_path(stage.as_str()));
    let trouble = python::trouble_of_upstream(app, &stage, &edit).await;
    let shown = IndexPageState { said, trouble, ..IndexPageState::default() };
    let mut response = match shown.trouble.is_some() {
        // Nothing keeps it for the next page.
        true => page(app, head, stage, sender, shown, status).await?,
        false => forms::see_other(app, head, &place),
    };
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}

/// Whether a setting is a list of rights: a right that is given this way outlasts the session.
fn is_list_of_rights(key: impl AsRef<str>) -> bool {
    ["acl_", "trusted_publishers"].iter().any(|start| key.as_ref().starts_with(start))
}

/// The index that a form describes.
fn new_index(name: &str, config: &Value) -> Result<CreateIndex, HttpError> {
    let stage = name.parse().map_err(HttpError::bad_request)?;
    let edit = ConfigEdit::parse(config).map_err(HttpError::bad_request)?;
    Ok(CreateIndex { stage, edit })
}

/// A change of the settings of an index.
fn edited(
    stage: &StageName,
    edit: &Value,
    seen: Option<StageConfig>,
) -> Result<ChangeIndex, HttpError> {
    let edit = ConfigEdit::parse(edit).map_err(HttpError::bad_request)?;
    Ok(ChangeIndex { stage: stage.clone(), edit, is_noop_an_error: false, seen })
}

/// `GET /+manage/indexes/{user}/{index}`
pub(crate) async fn show_index(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    let sender = (&session, &principal);
    page(app, head, route.stage()?, sender, IndexPageState::default(), StatusCode::OK).await
}

/// The settings of an index, for somebody who may change them: as they are stored, and as the page shows them.
fn settings(
    app: &App,
    principal: &Principal,
    name: &StageName,
) -> Result<(StageConfig, Map<String, Value>), HttpError> {
    let stored = app.stored()?;
    let missing = || HttpError::unknown_stage(name.as_str());
    let stage = stored.index.stage(name.as_str()).ok_or_else(missing)?;
    if !may_keep(&app.rules, principal, name) {
        let who = match app.rules.is_restricted() {
            false => format!("the user who owns `{name}`"),
            true => "whom `python.restrict_modify` names".to_owned(),
        };
        let detail = format!("only {who} and administrators may change this index");
        let may_know = stage.may_read(principal, account::Portion::Whole);
        return Err(if may_know { HttpError::forbidden(detail) } else { missing() });
    }
    let shows_all = app.rules.devpi_defaults;
    let view = View { snapshot: &stored.index, principal, shows_all };
    let shown = IndexConfig { stage, has_projects: false, now: Timestamp::now(), view };
    let mut settings = json!(shown).as_object().cloned().unwrap_or_default();
    // devpi leaves it out while everybody may read.
    let readers = || stage.config().acl_read.entries().iter().map(ToString::to_string).collect();
    settings.entry("acl_read").or_insert_with(readers);
    Ok((stage.config().clone(), settings))
}

/// What a page shows beside the index: what came of the last form.
#[derive(Default)]
struct IndexPageState<'fields> {
    said: FormNotice,
    retention: Option<Retention>,
    preview: Option<Vec<String>>,
    /// The settings of that preview.
    config: Option<StageConfig>,
    trouble: Option<String>,
    /// The form, if it was not carried out.
    typed: Option<&'fields forms::Fields>,
}

async fn page(
    app: &Arc<App>,
    head: &Parts,
    name: StageName,
    (session, principal): (&SessionText, &Principal),
    shown: IndexPageState<'_>,
    status: StatusCode,
) -> Result<Response, HttpError> {
    let (config, settings) = settings(app, principal, &name)?;
    let stored = app.stored()?;
    let may_read = stored
        .index
        .stage(name.as_str())
        .is_some_and(|stage| stage.may_read(principal, account::Portion::Unnamed));
    let quarantine = settings.get("policy_quarantine").and_then(Value::as_array);
    let quarantine = quarantine.into_iter().flatten().filter_map(Value::as_str);
    let sees = |heir: &pypi::Stage| heir.may_read(principal, Portion::Whole);
    let foreseen = shown.config.as_ref().unwrap_or(&config);
    let uncovered = uncovered_by_policy(&stored.index, &name, foreseen, sees);
    let page = IndexPage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        is_mirror: config.is_mirror(),
        has_releases: may_read && !config.is_mirror(),
        is_volatile: settings.get("volatile").is_none_or(|it| it == true),
        quarantine: quarantine.map(str::to_owned).collect(),
        // Others than administrators do not learn who is there.
        nobody: match principal.is_administrator(Scope::UserAdmin, Object::Server) {
            true => names_of_nobody(&stored.accounts, &config),
            false => Vec::new(),
        },
        people: people(&stored.accounts, principal),
        groups: groups(&config, &settings, shown.typed, !app.rules.issuers.is_empty()),
        preview: shown.preview,
        uncovered: uncovered.take(LINES_MAX).map(ToString::to_string).collect(),
        trouble: shown.trouble,
        path: in_path(name.as_str()),
        name: name.to_string(),
        retention: shown.retention,
        said: shown.said,
    };
    Ok(page::send_once(&page, head, status).await)
}

/// `POST /+manage/indexes/{user}/{index}`, by what its field `do` names.
pub(crate) async fn change_index(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let stage = route.stage()?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (fields, principal) = (&posted.fields, &posted.principal);
    // The right to see the page is checked first: without it, nothing is changed.
    let (seen_config, current) = settings(app, principal, &stage)?;
    let (mut retention, mut trouble) = (None, None);
    let what = fields.one("do")?;
    let (answer, done) = match what {
        "settings" | "quarantine" | "release" => {
            let (edit, seen, done) = match what {
                "settings" => {
                    (edit_of(fields, &current), Some(seen_config), "The settings are changed.")
                }
                _ => {
                    let (operation, done) = operation(fields, what)?;
                    (Ok(json!([operation])), None, done)
                }
            };
            // Nothing is changed yet, so no password is asked for.
            let is_preview = what == "settings" && fields.maybe("preview")?.is_some();
            if let (true, Ok(edit)) = (is_preview, &edit) {
                let (answer, config) = would(app, &posted, head, edited(&stage, edit, seen));
                let (said, status) = FormNotice::of(&answer, "");
                let preview = answer.is_done().then(|| changes_of(edit, &current));
                let typed = Some(fields);
                let shown =
                    IndexPageState { said, preview, config, typed, ..IndexPageState::default() };
                let sender = (&posted.session, &posted.principal);
                return page(app, head, stage, sender, shown, status).await;
            }
            let unproved = match edit.as_ref().is_ok_and(changes_rights) {
                true => forms::proved_again(app, &posted, "own").await.err(),
                false => None,
            };
            let wish = match unproved {
                Some(error) => Err(error),
                None => edit.and_then(|edit| edited(&stage, &edit, seen)),
            };
            let edit = wish.as_ref().ok().map(|wish| wish.edit.clone());
            let answer = carry_out(app, head, &posted, wish).await;
            if let Some(edit) = edit.filter(|_| answer.is_done()) {
                trouble = python::trouble_of_upstream(app, &stage, &edit).await;
            }
            (answer, done)
        }
        "refresh" => {
            let project: Result<ProjectName, _> = fields.one("project")?.trim().parse();
            let refreshing = async {
                let project = project.map_err(HttpError::unusable)?;
                let stored = app.stored()?;
                let order = ResolutionOrder::of(&stored.index, stage.as_str());
                let order = order.ok_or_else(|| HttpError::unknown_stage(stage.as_str()))?;
                check_reader(principal, &order, Portion::Project(project.as_str()))?;
                python::refresh(&app.python.mirrors, &order, &project).await
            };
            (Answer::of(refreshing.await).0, "Upstream was asked again.")
        }
        "look" | "remove" => {
            let (versions, days) = (fields.one("versions")?.trim(), fields.one("days")?.trim());
            let is_dry = what == "look";
            let removing = async {
                let rule = RetentionRule {
                    versions: number("versions", versions)?,
                    days: number("days", days)?,
                };
                let own = (!rule.is_empty()).then_some(rule);
                let sender = posted.sender(head);
                let removing =
                    python::remove_old_versions(app, &sender, stage.clone(), own, is_dry);
                removing.await.map_err(python::error_of)
            };
            let (mut answer, removed) = Answer::of(removing.await);
            if let Some(done) = removed {
                answer.serial = done.seen;
                retention = Some(Retention::of(&done.outcome.1, is_dry, versions, days));
            }
            (answer, if is_dry { "" } else { "The old versions are removed." })
        }
        "delete" => {
            let force = fields.maybe("force")?.is_some();
            let typed = (stage.as_str(), "To delete the index, type its name");
            let deleting = DeleteIndex { stage: stage.clone(), force };
            let answer = remove_typed(app, head, &posted, typed, &deleting).await;
            if answer.is_done() {
                app.python.prefetches.forget(&stage);
                let mut response = forms::see_other(app, head, "/+manage");
                seen(app, head, &mut response, &posted, answer.serial);
                return Ok(response);
            }
            (answer, "")
        }
        _ => return Err(forms::asks_nothing()),
    };
    let (said, status) = FormNotice::of(&answer, done);
    let sender = (&posted.session, &posted.principal);
    // What was typed stays, unless somebody else has changed the same.
    let keeps = what == "settings" && !answer.is_done() && status != StatusCode::CONFLICT;
    let typed = keeps.then_some(fields);
    let shown = IndexPageState { said, retention, trouble, typed, ..IndexPageState::default() };
    let mut response = match page(app, head, route.stage()?, sender, shown, status).await {
        // The sender gave up the right to see the page.
        Err(_) if answer.is_done() => forms::see_other(app, head, "/+manage"),
        shown => shown?,
    };
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}

/// What would come of a change, without carrying it out, and the settings after it.
fn would(
    app: &App,
    posted: &forms::PostedForm,
    head: &Parts,
    wish: Result<ChangeIndex, HttpError>,
) -> (Answer, Option<StageConfig>) {
    let decided = wish.and_then(|wish| {
        let basis = app.basis(posted.sender(head))?;
        Ok(wish.decide(&basis)?.outcome)
    });
    Answer::of(decided)
}

/// What the fields of a form say of the quarantine, as the API writes it, and the message afterwards.
fn operation(fields: &forms::Fields, what: &str) -> Result<(String, &'static str), HttpError> {
    let field = |name: &str| Ok::<_, HttpError>(fields.one(name)?.trim());
    Ok(match what {
        "quarantine" => {
            let (project, version) = (field("project")?, field("version")?);
            let what = match version {
                "" => project.to_owned(),
                version => format!("{project}=={version}"),
            };
            let operation = format!("policy_quarantine+={what} {}", field("reason")?);
            (operation, "It is in quarantine: nobody gets it from here.")
        }
        _ => {
            let item = fields.one("item")?.split(' ').next().unwrap_or_default();
            (format!("policy_quarantine-={item}"), "It is no longer in quarantine.")
        }
    })
}

/// Whether an edit changes a list of rights.
fn changes_rights(edit: &Value) -> bool {
    match edit {
        Value::Object(settings) => settings.keys().any(is_list_of_rights),
        Value::Array(operations) => {
            operations.iter().filter_map(Value::as_str).any(is_list_of_rights)
        }
        _ => false,
    }
}

/// A whole number in a field; None if the field is empty.
fn number(name: &str, text: &str) -> Result<Option<u32>, HttpError> {
    if text.is_empty() {
        return Ok(None);
    }
    let text = record::excerpt(text, 80);
    let wrong = format!("'{name}' was expected to be a whole number, not {}", text.escape_debug());
    text.parse().map(Some).map_err(|_| HttpError::bad_request(wrong))
}
