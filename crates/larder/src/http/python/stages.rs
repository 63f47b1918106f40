//! Stages ("indexes" to devpi's clients): made, shown, changed and removed.

use account::{Portion, Principal};
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use pypi::change::stage as change;
use pypi::devpi::{self, IndexConfig};
use pypi::{ChangeError, ConfigEdit, StageConfig, StageName};

use super::ask::Ask;
use super::rights::{check_bases, check_keeper, unreadable};
use super::write::{Refused, committed_and_noted, json_body, refused};
use super::{policy, reply};
use crate::http::auth;
use crate::http::body::{Json, JsonBound};
use crate::http::error::HttpError;

/// A configuration: two texts of 64 KiB and lists of a thousand items, with the projects that old clients send back.
const BOUND: JsonBound = JsonBound { bytes_max: 512 << 10, values_max: 20_000 };

/// `/+api`, `/{user}/+api`, and `/{user}/{index}/+api` for a `stage`.
pub(super) async fn show_api(ask: &Ask, stage: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let found = ask.stored.index.stage(stage);
    if found.is_none() && !stage.is_empty() {
        return Ok(reply::refused(ask, &HttpError::unknown_stage(stage)));
    }
    let config = devpi::api_config(&ask.root_url, &principal, found.map(|stage| &**stage));
    Ok(reply::result(StatusCode::OK, "apiconfig", config, None))
}

pub(super) fn named(stage: &str) -> Result<StageName, Refused> {
    stage.parse().map_err(|error: pypi::StageNameError| Refused::bad_request(error))
}

/// `GET /{user}/{index}`, as JSON.
pub(super) async fn show_index(ask: &Ask, stage: &str) -> Result<Response, Refused> {
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

/// The settings that a form was made from: the form is applied only if they are still the same.
#[derive(Clone)]
pub(in crate::http) struct AsSeen(pub(in crate::http) StageConfig);

async fn parsed_edit(
    ask: &Ask,
    principal: &Principal,
    body: Body,
) -> Result<(ConfigEdit, Json), Refused> {
    auth::admit_to_disk(&ask.app, principal).await?;
    let json = json_body(ask, principal, body, BOUND).await?;
    let edit = ConfigEdit::parse(&json.value).map_err(Refused::bad_request);
    Ok((edit?, json))
}

/// `PUT /{user}/{index}`
pub(super) async fn create_index(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name = named(stage)?;
    let user = name.user_name();
    if ask.stored.accounts.user(&user).is_none() {
        return Err(Refused::unknown_user(&user));
    }
    // As with devpi, the first refusal says that the index exists already, if the sender may know.
    let there = ask.stored.index.stage(name.as_str());
    let sees =
        |it: &pypi::Stage| it.may_read(&principal, Portion::Whole) || it.may_modify(&principal);
    if there.is_some_and(|it| sees(it)) {
        return Err(refused(ChangeError::StageExists(name)));
    }
    check_keeper(ask, &principal, &name, "create")?;
    let (edit, _json) = parsed_edit(ask, &principal, body).await?;
    let config: StageConfig = committed_and_noted(ask, |basis| {
        check_keeper(ask, basis.principal(), &name, "create")?;
        let stored = basis.stored();
        if stored.accounts.user(&user).is_none() {
            return Err(Refused::unknown_user(&user));
        }
        let (mut batch, config) = change::create(&stored.index, &name, &edit).map_err(refused)?;
        check_bases(basis.principal(), None, &config)?;
        // The user must not be deleted meanwhile.
        batch = batch.check(account::user_key(&user), record::Expected::Present);
        let after = config.policy.as_deref();
        let noted = policy::entries_of_change(ask, basis.principal(), &name, None, after);
        Ok((Some(batch), noted, config))
    })
    .await?;
    Ok(reply::result(StatusCode::OK, "indexconfig", config, None))
}

/// `PATCH /{user}/{index}`
pub(super) async fn modify_index(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name = named(stage)?;
    ask.stored.index.stage_to_change(&name).map_err(refused)?;
    check_keeper(ask, &principal, &name, "modify")?;
    let (edit, _json) = parsed_edit(ask, &principal, body).await?;
    let is_noop_an_error = ask.has_flag("error_on_noop");
    let config = committed_and_noted(ask, |basis| {
        check_keeper(ask, basis.principal(), &name, "modify")?;
        let index = &basis.stored().index;
        let before = index.stage(name.as_str()).map(|stage| stage.config());
        if let Some(AsSeen(seen)) = ask.head.extensions.get()
            && before != Some(seen)
        {
            let text = "somebody else changed the settings at this moment: look at them, and change yours again";
            return Err(Refused::rule(StatusCode::CONFLICT, text));
        }
        let (batch, config) =
            change::modify(index, &name, &edit, is_noop_an_error).map_err(refused)?;
        check_bases(basis.principal(), before, &config)?;
        let before = before.and_then(|before| before.policy.as_deref());
        let after = config.policy.as_deref();
        let noted = policy::entries_of_change(ask, basis.principal(), &name, before, after);
        Ok((batch, noted, config))
    })
    .await?;
    Ok(reply::result(StatusCode::OK, "indexconfig", config, None))
}

/// `DELETE /{user}/{index}`
pub(super) async fn delete_index(ask: &Ask, stage: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let name = named(stage)?;
    ask.stored.index.stage_to_change(&name).map_err(refused)?;
    check_keeper(ask, &principal, &name, "delete")?;
    let force = ask.has_flag("force");
    committed_and_noted(ask, |basis| {
        check_keeper(ask, basis.principal(), &name, "delete")?;
        let index = &basis.stored().index;
        let batch = change::delete(index, &name, force).map_err(refused)?;
        let before = index.stage(name.as_str()).and_then(|it| it.config().policy.as_deref());
        let noted = policy::entries_of_change(ask, basis.principal(), &name, before, None);
        Ok((Some(batch), noted, ()))
    })
    .await?;
    ask.app.prefetches.forget(&name);
    Ok(reply::message(StatusCode::CREATED, &format!("index {name} deleted")))
}
