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
use operations::Basis;
use operations::pushes::{Order, PushRelease, check_withheld};
use operations::rights::reader;
use pypi::change::push::{PushAction, PushOrder, PushSource, PushTarget};
use pypi::{ProjectName, StageName};
use serde_json::{Value, json};

use super::ask::Ask;
use super::refused::Refused;
use super::reply;
use super::rights::About;
use super::write::json_body;
use crate::front::auth;
use crate::front::body::JsonBound;

/// An order: names, and a URL with a user and a password.
const BOUND: JsonBound = JsonBound { bytes_max: 32 << 10, values_max: 100 };

/// `PUSH /{user}/{index}`, and POST with JSON.
pub(crate) async fn push_release(ask: &Ask, stage: &str, body: Body) -> Result<Response, Refused> {
    let (source, asked) = (ask.stage_name(stage)?, ask.asked().await?);
    reader(&asked, &source, About::NotYetKnown)?;
    let json = json_body(ask, asked.principal(), body, BOUND).await?;
    let order = PushOrder::parse(json.value, &source).map_err(Refused::bad_request)?;
    let (status, actions) = push(ask, &source, &order).await?;
    Ok(reply::result(status, "actionlog", actions, None))
}

/// Pushes a release. The actions say how each went; the status is 502 if another server did not take all of it.
pub(crate) async fn push(
    ask: &Ask,
    source: &StageName,
    order: &PushOrder,
) -> Result<(StatusCode, Value), Refused> {
    let bad = |error| Refused::bad_request(error);
    // The body may have taken long: the right to read is checked again.
    let name = ProjectName::normalize(&order.name).ok();
    let about = About::Project(name.as_ref());
    // A mirror's releases are looked for elsewhere, and of others nobody gets to know by a push.
    let has_release = |basis: &Basis| match reader(basis, source, about) {
        Ok(from) if !from.config().is_mirror() => {
            PushSource::find(&basis.stored.index, source, &order.name, &order.version).is_ok()
        }
        _ => true,
    };
    let basis = ask.basis_with(has_release).await?;
    let from = reader(&basis, source, about)?;
    if from.config().is_mirror() {
        return mirrored::push(ask, from, order, order.content().map_err(bad)?).await;
    }
    let index = &basis.stored.index;
    let found = PushSource::find(index, source, &order.name, &order.version)?;
    let content = order.content().map_err(bad)?;
    check_withheld(&basis, &found, content)?;
    let files = found.files(content, &order.name)?;
    match order.target().map_err(bad)? {
        PushTarget::Stage(target) => {
            auth::admit_to_disk(&ask.app, basis.principal()).await?;
            let (source, name) = (source.clone(), order.name.clone());
            let version = order.version.clone();
            let order = Order { source, target, name, version, content };
            Ok(done(ask.carry_out(&PushRelease(order)).await?))
        }
        PushTarget::External { url, username, password, register_project } => {
            let release = external::Release::find(ask, &found, order, files).await?;
            let target = external::Target::new(&ask.app.limits.egress, &url, &username, &password)?;
            let principal = basis.principal();
            let project = about.of(found.stage);
            let object = found.stage.object(project.portion());
            external::release(ask, principal, object, &release, &target, register_project).await
        }
    }
}

/// What a push into an index did.
fn done(actions: Vec<PushAction>) -> (StatusCode, Value) {
    (StatusCode::OK, json!(actions))
}
