//! Pushes: a release of a stage, into another stage or to another server's index.
//!
//! A push into a stage is one commit, or nothing; no byte is copied, since files are named by their content. A push from a mirror
//! ([`mirrored`]) fetches the files first. An external push ([`external`]) is one upload after another, and the answer says how each went. As with devpi, the release is looked for
//! first, then the target, and then the right to push there is checked.

mod external;
mod mirrored;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use operations::pushes::{Order, PushRelease, check_withheld};
use operations::rights::{check_pusher_outside, reader};
use operations::{Basis, Done, Sender, carry_out};
use pypi::change::push::{PushAction, PushOrder, PushSource, PushTarget};
use pypi::{ProjectName, StageName};
use serde_json::json;

use super::ask::Ask;
use super::error::ApiError;
use super::reply;
use super::rights::IndexPart;
use super::write::json_body;
use crate::app::App;
use crate::front::auth;
use crate::front::body::JsonBound;

pub(crate) use self::external::SentUpload;

/// An order: names, and a URL with a user and a password.
const BOUND: JsonBound = JsonBound { bytes_max: 32 << 10, values_max: 100 };

/// `PUSH /{user}/{index}`, and POST with JSON.
pub(crate) async fn push_release(ask: &Ask, stage: &str, body: Body) -> Result<Response, ApiError> {
    let (source, asked) = (ask.stage_name(stage)?, ask.asked().await?);
    reader(&asked, &source, IndexPart::NotYetKnown)?;
    let json = json_body(ask, asked.principal(), body, BOUND).await?;
    let order = PushOrder::parse(json.value, &source).map_err(ApiError::bad_request)?;
    let (status, actions) = match push(&ask.app, &ask.sender().await?, &source, &order).await? {
        PushOutcome::Here(done) => (StatusCode::OK, json!(ask.done(done))),
        PushOutcome::Elsewhere { is_whole: true, log } => (StatusCode::OK, json!(log)),
        PushOutcome::Elsewhere { is_whole: false, log } => (StatusCode::BAD_GATEWAY, json!(log)),
    };
    Ok(reply::result(status, "actionlog", actions, None))
}

/// What came of a push.
pub(crate) enum PushOutcome {
    /// Into an index of this server: its actions.
    Here(Done<Vec<PushAction>>),
    /// To another server.
    Elsewhere {
        /// Whether that took all of it.
        is_whole: bool,
        /// What was sent, in order.
        log: Vec<SentUpload>,
    },
}

/// Pushes a release.
pub(crate) async fn push(
    app: &App,
    sender: &Sender,
    source: &StageName,
    order: &PushOrder,
) -> Result<PushOutcome, ApiError> {
    let content = || order.content.clone().map_err(ApiError::bad_request);
    // The body may have taken long: the right to read is checked again.
    let name = ProjectName::normalize(&order.name).ok();
    let about = IndexPart::Project(name.as_ref());
    // A mirror's releases are looked for elsewhere, and of others nobody gets to know by a push.
    let has_release = |basis: &Basis| match reader(basis, source, about) {
        Ok(from) if !from.config().is_mirror() => {
            PushSource::find(&basis.stored.index, source, &order.name, &order.version).is_ok()
        }
        _ => true,
    };
    let basis = app.basis_with(sender, has_release).await?;
    let from = reader(&basis, source, about)?;
    if from.config().is_mirror() {
        return mirrored::push(app, sender, from, order, content()?).await;
    }
    let index = &basis.stored.index;
    let found = PushSource::find(index, source, &order.name, &order.version)?;
    let content = content()?;
    check_withheld(&basis, &found, content)?;
    let files = found.files(content, &order.name)?;
    match order.target.clone().map_err(ApiError::bad_request)? {
        PushTarget::Stage(target) => {
            auth::admit_to_disk(app, basis.principal()).await?;
            let (source, name) = (source.clone(), order.name.clone());
            let version = order.version.clone();
            let order = Order { source, target, name, version, content };
            Ok(PushOutcome::Here(carry_out(&mut app.keeper(), sender, &PushRelease(order)).await?))
        }
        PushTarget::External { url, username, password, register_project } => {
            let release = external::Release::find(app, &found, order, files).await?;
            let target = external::Target::new(&app.limits.egress, &url, &username, &password)?;
            let project = about.of(found.stage);
            check_pusher_outside(&basis, found.stage, project.portion())?;
            external::release(app, &basis, &release, &target, register_project).await
        }
    }
}
