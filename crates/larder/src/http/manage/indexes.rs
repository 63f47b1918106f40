//! Making, changing and deleting indexes and mirrors: settings, quarantine, old versions.

use std::sync::Arc;

use pypi::StageConfig;

use super::*;
use crate::http::words;

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
    settings: Vec<Setting>,
    quarantine: Vec<String>,
    retention: Option<Retention>,
    said: Said,
}

/// A setting that the index has, as a field of the form.
struct Setting {
    key: String,
    text: String,
    kind: Kind,
}

/// How a setting is edited, by what its JSON is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Yes or no.
    Flag,
    /// An item a line.
    List,
    /// A text of some lines.
    Long,
    /// A line.
    Line,
    /// JSON, for what may be anything.
    Json,
}

impl Setting {
    fn of(key: &str, value: &Value) -> Setting {
        let (text, kind) = match value {
            value if key == "custom_data" => (value.to_string(), Kind::Json),
            Value::Bool(is_on) => ((if *is_on { "yes" } else { "no" }).to_owned(), Kind::Flag),
            Value::Array(items) => {
                let items = items
                    .iter()
                    .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                (items.collect::<Vec<_>>().join("\n"), Kind::List)
            }
            Value::String(text) => {
                // A field of one line would take the ends of lines out.
                let is_long = key == "description" || text.contains(['\r', '\n']);
                let kind = if is_long { Kind::Long } else { Kind::Line };
                (text.clone(), kind)
            }
            other => (other.to_string(), Kind::Line),
        };
        Setting { key: key.to_owned(), text, kind }
    }

    /// The value of a field, as the API takes it.
    fn value(&self, text: &str) -> Result<Value, HttpError> {
        Ok(match self.kind {
            Kind::Flag => json!(text == "yes"),
            Kind::List => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                json!(lines.collect::<Vec<_>>())
            }
            Kind::Long | Kind::Line => json!(text),
            Kind::Json => serde_json::from_str(text).map_err(|error| {
                HttpError::unusable(format!("the value of `{}` is not JSON: {error}", self.key))
            })?,
        })
    }
}

/// The changes of a form to these settings.
///
/// # Errors
/// 409 if somebody else has changed the same settings since the page was loaded; 422 for a value that has to be JSON and is
/// not.
fn edit_of(
    fields: &forms::Fields,
    current: &serde_json::Map<String, Value>,
) -> Result<Value, HttpError> {
    // A browser sends ends of lines in its own way.
    let plain = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n");
    let mut edit = serde_json::Map::new();
    for key in fields.names().filter_map(|name| name.strip_prefix("was.")) {
        // Only changed fields are sent. So changes by others in the meantime stay, and values that a page does not show, such
        // as credentials in a URL.
        let was = fields.maybe(&format!("was.{key}"))?.map(plain);
        let is = fields.maybe(&format!("is.{key}"))?.map(plain);
        let Some((was, is)) = was.zip(is).filter(|(was, is)| was != is) else { continue };
        let setting = current.get(key).map(|value| Setting::of(key, value));
        let Some(setting) = setting.filter(|setting| plain(&setting.text) == was) else {
            let key: String = key.chars().take(80).collect();
            let detail = format!(
                "Somebody else changed `{}` since you loaded the page. This is how the settings are now: look at them, and change yours again.",
                key.escape_debug()
            );
            return Err(HttpError::refused(StatusCode::CONFLICT, detail));
        };
        edit.insert(key.to_owned(), setting.value(&is)?);
    }
    Ok(Value::Object(edit))
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
    fn of(result: &Value, versions: &str, days: &str) -> Retention {
        let removals = result["removals"].as_array().map(Vec::as_slice).unwrap_or_default();
        let lines = removals.iter().take(REMOVALS_MAX).map(|removal| {
            let text = |key: &str| removal[key].as_str().unwrap_or_default().to_owned();
            let files = removal["files"].as_array().map_or(0, Vec::len);
            let files = words::count(files, "file", "files");
            let size = words::size(removal["size"].as_u64().unwrap_or_default());
            format!("{} {} ({files}, {size})", text("project"), text("version"))
        });
        Retention {
            is_dry: result["dry_run"].as_bool().unwrap_or_default(),
            versions: versions.to_owned(),
            days: days.to_owned(),
            size: words::size(result["size"].as_u64().unwrap_or_default()),
            removals: lines.collect(),
            is_more: removals.len() > REMOVALS_MAX,
        }
    }
}

/// `POST /+manage/indexes`
pub(in crate::http) async fn create_index(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let fields = &posted.fields;
    let name = fields.one("name")?.trim();
    let mut config = json!({});
    for key in ["bases", "acl_read", "acl_upload"] {
        let words = fields.words(key)?;
        if !words.is_empty() {
            config[key] = json!(words);
        }
    }
    let title = fields.maybe("title")?.unwrap_or_default().trim();
    if !title.is_empty() {
        config["title"] = json!(title);
    }
    let mirror_url = fields.maybe("mirror_url")?.unwrap_or_default().trim();
    if !mirror_url.is_empty() {
        config["type"] = json!("mirror");
        config["mirror_url"] = json!(mirror_url);
    }
    let path = format!("/{}", name.split('/').map(in_path).collect::<Vec<_>>().join("/"));
    let unproved = match config.as_object().is_some_and(|it| it.keys().any(is_list_of_rights)) {
        true => forms::proved_again(app, &posted, "own").await.err(),
        false => None,
    };
    let answer = match (name.split('/').count(), unproved) {
        (_, Some(error)) => Answer::refused(error),
        (2, None) => call(app, head, &posted.principal, (Method::PUT, &path), Some(&config)).await,
        _ => {
            let detail =
                "The name of an index is that of a user and one of its own, such as team/dev.";
            Answer::refused(HttpError::unusable(detail))
        }
    };
    if answer.is_done() {
        let mut response = forms::see_other(app, head, &format!("/+manage/indexes{path}"));
        seen(app, head, &mut response, &posted, answer.serial);
        return Ok(response);
    }
    let (said, status) = Said::of(&answer, "");
    super::page(app, head, (&posted.session, &posted.principal), said, status).await
}

/// Whether a setting is a list of rights: a right that is given this way outlasts the session.
fn is_list_of_rights(key: impl AsRef<str>) -> bool {
    key.as_ref().starts_with("acl_")
}

/// The path of the index that a request is about, and its name.
fn named(head: &Parts) -> Result<(String, String), HttpError> {
    super::named(head, "/+manage/indexes/")
}

/// `GET /+manage/indexes/{user}/{index}`
pub(in crate::http) async fn show_index(
    app: &Arc<App>,
    head: &Parts,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let (session, principal) = forms::logged_in(app, head).await?;
    let sender = (&session, &principal);
    page(app, head, sender, (Said::default(), None), StatusCode::OK).await
}

/// The settings of an index, for somebody who may change them: as they are stored, and as the page shows them.
async fn settings(
    app: &Arc<App>,
    head: &Parts,
    principal: &Principal,
    (path, name): (&str, &str),
) -> Result<(StageConfig, serde_json::Map<String, Value>), HttpError> {
    let stored = auth::stored(app)?;
    let missing = || HttpError::unknown_stage(name);
    let stage = stored.index.stage(name).ok_or_else(missing)?;
    if !python::may_keep(app, principal, stage.name()) {
        let who = match app.config.python.restrict_modify.entries().is_empty() {
            true => format!("the user who owns `{name}`"),
            false => "whom `python.restrict_modify` names".to_owned(),
        };
        let detail = format!("only {who} and administrators may change this index");
        let may_know = stage.may_read(principal, account::Portion::Whole);
        return Err(if may_know { HttpError::forbidden(detail) } else { missing() });
    }
    let path = format!("/{path}?no_projects");
    let answer = call(app, head, principal, (Method::GET, &path), None).await;
    match answer.value.get("result") {
        Some(Value::Object(settings)) if answer.is_done() => {
            let mut settings = settings.clone();
            // Settings that every index has are shown as empty fields.
            for key in ["title", "description"] {
                settings.entry(key).or_insert_with(|| json!(""));
            }
            Ok((stage.config().clone(), settings))
        }
        _ => Err(HttpError::refused(answer.status, answer.message)),
    }
}

async fn page(
    app: &Arc<App>,
    head: &Parts,
    (session, principal): (&SessionText, &Principal),
    (said, retention): (Said, Option<Retention>),
    status: StatusCode,
) -> Result<Response, HttpError> {
    let (path, name) = named(head)?;
    let (config, settings) = settings(app, head, principal, (&path, &name)).await?;
    let may_read = auth::stored(app)?
        .index
        .stage(&name)
        .is_some_and(|stage| stage.may_read(principal, account::Portion::Unnamed));
    let is_own = |key: &str| !matches!(key, "type" | "projects" | "policy_quarantine");
    let quarantine = settings.get("policy_quarantine").and_then(Value::as_array);
    let quarantine = quarantine.into_iter().flatten().filter_map(Value::as_str);
    let page = IndexPage {
        site: Site::of(app, head),
        form: forms::token(app, session)?,
        is_mirror: config.is_mirror(),
        has_releases: may_read && !config.is_mirror(),
        is_volatile: settings.get("volatile").is_none_or(|it| it == true),
        quarantine: quarantine.map(str::to_owned).collect(),
        settings: settings
            .iter()
            .filter(|(key, _)| is_own(key))
            .map(|(key, value)| Setting::of(key, value))
            .collect(),
        name,
        path,
        retention,
        said,
    };
    Ok(people::send_once(&page, head, status).await)
}

/// `POST /+manage/indexes/{user}/{index}`, by what its field `do` names.
pub(in crate::http) async fn change_index(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let (path, name) = named(head)?;
    let posted = forms::posted(app, head, body, FORM_BYTES_MAX).await?;
    let (fields, principal) = (&posted.fields, &posted.principal);
    let url = format!("/{path}");
    // The right to see the page is checked first: without it, nothing is changed.
    let (seen_config, current) = settings(app, head, principal, (&path, &name)).await?;
    let patch = |edit: Value| {
        let url = url.clone();
        async move { call(app, head, principal, (Method::PATCH, &url), Some(&edit)).await }
    };
    let mut retention = None;
    let (answer, done) = match fields.one("do")? {
        "settings" => {
            let answer = match edit_of(fields, &current) {
                Ok(edit) => {
                    let mut keys = edit.as_object().into_iter().flat_map(|edit| edit.keys());
                    let unproved = match keys.any(is_list_of_rights) {
                        true => forms::proved_again(app, &posted, "own").await.err(),
                        false => None,
                    };
                    let mut head = head.clone();
                    head.extensions.insert(python::AsSeen(seen_config));
                    let call = call(app, &head, principal, (Method::PATCH, &url), Some(&edit));
                    match unproved {
                        Some(error) => Answer::refused(error),
                        None => call.await,
                    }
                }
                Err(error) => Answer::refused(error),
            };
            (answer, "The settings are changed.")
        }
        "set" => {
            let (key, value) = (fields.one("key")?.trim(), fields.one("value")?.trim());
            let how = fields.one("how")?;
            let operation = match how {
                "add" => format!("{key}+={value}"),
                "remove" => format!("{key}-={value}"),
                "drop" => format!("{key}-="),
                _ => format!("{key}={value}"),
            };
            let unproved = match is_list_of_rights(&operation) {
                true => forms::proved_again(app, &posted, "own").await.err(),
                false => None,
            };
            let answer = match unproved {
                Some(error) => Answer::refused(error),
                None => patch(json!([operation])).await,
            };
            (answer, "The setting is changed.")
        }
        "quarantine" => {
            let (project, version) = (fields.one("project")?.trim(), fields.one("version")?.trim());
            let reason = fields.one("reason")?.trim();
            let what = match version {
                "" => project.to_owned(),
                version => format!("{project}=={version}"),
            };
            let operation = format!("policy_quarantine+={what} {reason}");
            (patch(json!([operation])).await, "It is in quarantine: nobody gets it from here.")
        }
        "release" => {
            let item = fields.one("item")?.split(' ').next().unwrap_or_default();
            let operation = format!("policy_quarantine-={item}");
            (patch(json!([operation])).await, "It is no longer in quarantine.")
        }
        "refresh" => {
            let project = fields.one("project")?.trim();
            let project: Result<pypi::ProjectName, _> = project.parse();
            let answer = match project {
                Ok(project) => {
                    let url = format!("{url}/+simple/{project}/refresh");
                    let answer = call(app, head, principal, (Method::POST, &url), None).await;
                    match answer.status {
                        // On to the page that is new.
                        StatusCode::FOUND => Answer { status: StatusCode::OK, ..answer },
                        _ => answer,
                    }
                }
                Err(error) => Answer::refused(HttpError::unusable(error.to_string())),
            };
            (answer, "Upstream was asked again.")
        }
        how @ ("look" | "remove") => {
            let (versions, days) = (fields.one("versions")?.trim(), fields.one("days")?.trim());
            let mut rule = json!({});
            for (key, text) in [("versions", versions), ("days", days)] {
                if !text.is_empty() {
                    rule[key] = text.parse::<u64>().map_or_else(|_| json!(text), |it| json!(it));
                }
            }
            let dry = if how == "look" { "?dry_run" } else { "" };
            let url = format!("{url}/+retention{dry}");
            let answer = call(app, head, principal, (Method::POST, &url), Some(&rule)).await;
            if answer.is_done() {
                retention = Some(Retention::of(&answer.value["result"], versions, days));
            }
            (answer, if how == "look" { "" } else { "The old versions are removed." })
        }
        "delete" => {
            let typed = "To delete the index, type its name";
            match super::delete(app, head, &posted, &url, (&name, typed)).await? {
                Deletion::Done(response) => return Ok(response),
                Deletion::Refused(answer) => (answer, ""),
            }
        }
        _ => return Err(HttpError::bad_request("the form does not say what to do")),
    };
    let (said, status) = Said::of(&answer, done);
    let sender = (&posted.session, &posted.principal);
    let mut response = match page(app, head, sender, (said, retention), status).await {
        // The sender gave up the right to see the page.
        Err(_) if answer.is_done() => forms::see_other(app, head, "/+manage"),
        shown => shown?,
    };
    seen(app, head, &mut response, &posted, answer.serial);
    Ok(response)
}
