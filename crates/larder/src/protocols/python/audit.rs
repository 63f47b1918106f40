//! The audit log of policies, for administrators, and of one index for those who may change it.

use std::borrow::Cow;
use std::sync::Arc;

use account::Portion;
use audit::{EntryPage, Query, anonymise};
use axum::response::Response;
use http::StatusCode;
use operations::{Basis, rights};
use serde_json::{Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::reply;
use crate::app::App;
use crate::front::error::HttpError;

/// `GET /+audit`, and `GET /{user}/{index}/+audit` for a `stage`.
pub(crate) async fn show_audit(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let pairs = form_urlencoded::parse(ask.head.uri.query().unwrap_or_default().as_bytes());
    let found = entries(&ask.app, &ask.asked().await?, stage, pairs).await?;
    let lost = ask.app.python.audit.lost();
    let result = json!({"items": found.entries, "next": found.next, "lost": lost});
    Ok(reply::result(StatusCode::OK, "audit", result, None))
}

/// The entries that this query asks for; of one index, if `stage` is not empty.
pub(crate) async fn entries<'query>(
    app: &Arc<App>,
    basis: &Basis,
    stage: &str,
    query: impl Iterator<Item = (Cow<'query, str>, Cow<'query, str>)>,
) -> Result<EntryPage, ApiError> {
    let found = match stage {
        "" => None,
        name => {
            let found = basis.stored.index.stage(name);
            Some(&**found.ok_or_else(|| HttpError::unknown_stage(name))?)
        }
    };
    rights::check_auditor(basis, found)?;
    let query = Query::of(query).map_err(ApiError::bad_request)?;
    let query = if stage.is_empty() { query } else { query.about(stage) };
    let (app, stored, principal) = (app.clone(), basis.stored.clone(), basis.principal().clone());
    let turns = app.python.audit.queries().clone();
    // A user who may change a base sees that its files were requested through an index that they may not read, but not by whom.
    let (is_everything, asked) = (stage.is_empty(), stage.to_owned());
    let may_read = move |name: &str| {
        let found = stored.index.stage(name);
        is_everything
            || name == asked
            || found.is_some_and(|found| found.may_read(&principal, Portion::Whole))
    };
    let shown = move |entry: &mut Value| anonymise(entry, &may_read);
    let found = turns.run(move || app.python.audit.query(&query, shown)).await;
    Ok(found.map_err(|error| {
        tracing::error!(%error, "the audit log cannot be read");
        HttpError::unavailable("the audit log cannot be read now; it has been logged", 5)
    })?)
}
