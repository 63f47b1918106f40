//! Stages ("indexes" to devpi's clients): made, shown, changed and removed.

use account::{Object, Portion, Scope};
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use operations::indexes::{
    ChangeIndex, CreateIndex, DeleteIndex, names_of_nobody, said_of_uncovered, uncovered_by_policy,
};
use pypi::devpi::{self, IndexConfig};
use pypi::{ChangeError, ConfigEdit, StageConfig, StageName};

use super::ask::Ask;
use super::error::ApiError;
use super::reply;
use super::rights::unreadable;
use super::write::json_body;
use crate::app::App;
use crate::front::auth;
use crate::front::body::{Json, JsonBound};
use crate::front::error::HttpError;

/// A configuration: two texts of 64 KiB and lists of a thousand items, with the projects that old clients send back.
const BOUND: JsonBound = JsonBound { bytes_max: 512 << 10, values_max: 20_000 };

/// `/+api`, `/{user}/+api`, and `/{user}/{index}/+api` for a `stage`.
pub(crate) async fn show_api(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let found = ask.stored.index.stage(stage);
    if found.is_none() && !stage.is_empty() {
        return Ok(reply::refused(ask, &HttpError::unknown_stage(stage)));
    }
    let config = devpi::api_config(ask.root_url(), &principal, found.map(|stage| &**stage));
    Ok(reply::result(StatusCode::OK, "apiconfig", config, None))
}

pub(crate) fn named(stage: &str) -> Result<StageName, ApiError> {
    stage.parse().map_err(ApiError::bad_request)
}

/// `GET /{user}/{index}`, as JSON.
pub(crate) async fn show_index(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let missing = || HttpError::unknown_stage(stage);
    let found = ask.stored.index.stage(stage).ok_or_else(missing)?;
    let principal = ask.principal().await?;
    if !found.may_read(&principal, Portion::Whole) && !found.may_modify(&principal) {
        return Err(unreadable(&principal, found, Portion::Whole).into());
    }
    let has_projects = !ask.has_flag("no_projects");
    let config = IndexConfig {
        stage: found,
        has_projects,
        now: Timestamp::now(),
        view: ask.view(&principal),
    };
    Ok(reply::result(StatusCode::OK, "indexconfig", config, None))
}

async fn parsed_edit(ask: &Ask, body: Body) -> Result<(ConfigEdit, Json), ApiError> {
    let principal = ask.principal().await?;
    auth::admit_to_disk(&ask.app, &principal).await?;
    let json = json_body(ask, &principal, body, BOUND).await?;
    let edit = ConfigEdit::parse(&json.value).map_err(ApiError::bad_request);
    Ok((edit?, json))
}

/// The configuration after an edit, with a message if it does not do all that the sender may expect: rights of names that nobody
/// has, an upstream that fails, indexes that a policy does not cover. Others than administrators do not learn who is there.
async fn configuration(
    ask: &Ask,
    stage: &StageName,
    edit: &ConfigEdit,
    config: StageConfig,
) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let knows_all = principal.is_administrator(Scope::UserAdmin, Object::Server);
    let mut warnings = match knows_all {
        true => names_of_nobody(&ask.stored.accounts, &config),
        false => Vec::new(),
    };
    if edit.names("policy_") {
        let index = &ask.app.stored()?.index;
        let sees = |heir: &pypi::Stage| heir.may_read(&principal, Portion::Whole);
        let uncovered = uncovered_by_policy(index, stage, &config, sees);
        warnings.extend(said_of_uncovered(stage, uncovered));
    }
    let trouble = trouble_of_upstream(&ask.app, stage, edit).await;
    warnings.extend(trouble.map(|trouble| format!("the upstream of {stage} fails: {trouble}")));
    let message = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok(reply::result(StatusCode::OK, "indexconfig", config, message.as_deref()))
}

/// Why the upstream of a mirror fails, if the edit that was carried out has a setting of mirrors. It is asked once, for a bounded
/// time. `None` as well if it is not to be asked.
pub(crate) async fn trouble_of_upstream(
    app: &App,
    stage: &StageName,
    edit: &ConfigEdit,
) -> Option<String> {
    if !edit.names("mirror_") {
        return None;
    }
    let mirrors = &app.python.mirrors;
    let mirror = mirrors.of(app.stored().ok()?.index.stage(stage.as_str())?)?;
    mirrors.try_upstream(&mirror).await.map(|trouble| trouble.to_string())
}

/// `PUT /{user}/{index}`
pub(crate) async fn create_index(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    let (stage, asked) = (named(stage)?, ask.asked().await?);
    let user = stage.user_name();
    if ask.stored.accounts.user(&user).is_none() {
        return Err(ChangeError::NoUser(user).into());
    }
    // As with devpi, the first refusal says that the index exists already, if the sender may know.
    let (there, principal) = (ask.stored.index.stage(stage.as_str()), asked.principal());
    let sees =
        |it: &pypi::Stage| it.may_read(principal, Portion::Whole) || it.may_modify(principal);
    if there.is_some_and(|it| sees(it)) {
        return Err(ChangeError::StageExists(stage).into());
    }
    CreateIndex::admit(&asked, &stage)?;
    let (edit, _json) = parsed_edit(ask, body).await?;
    let creating = CreateIndex { stage, edit };
    let config = ask.carry_out(&creating).await?;
    configuration(ask, &creating.stage, &creating.edit, config).await
}

/// `PATCH /{user}/{index}`
pub(crate) async fn modify_index(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    let stage = named(stage)?;
    ChangeIndex::admit(&ask.asked().await?, &stage)?;
    let (edit, _json) = parsed_edit(ask, body).await?;
    let is_noop_an_error = ask.has_flag("error_on_noop");
    let changing = ChangeIndex { stage, edit, is_noop_an_error, seen: None };
    let config = ask.carry_out(&changing).await?;
    configuration(ask, &changing.stage, &changing.edit, config).await
}

/// `DELETE /{user}/{index}`
pub(crate) async fn delete_index(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let (stage, force) = (named(stage)?, ask.has_flag("force"));
    DeleteIndex::admit(&ask.asked().await?, &stage)?;
    let deleting = DeleteIndex { stage, force };
    ask.carry_out(&deleting).await?;
    ask.app.python.prefetches.forget(&deleting.stage);
    let text = format!("index {} deleted", deleting.stage);
    Ok(reply::message(StatusCode::CREATED, &text))
}
