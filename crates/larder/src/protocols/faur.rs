//! `/packages?names=…`: questions of faur's clients, such as aura.
//!
//! names or words, and what they are -> [`aur::Snapshot::faur`] -> a bare array of records. Without `names` the path is a page.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use aur::{FaurBy, QueryError, SearchContext};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use reply::Reply;

use super::aur::search_in_turn;
use crate::app::App;
use crate::front::body;
use crate::front::error::HttpError;
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};

/// Names in one question: as many as an answer has records.
const NAMES_MAX: usize = 5_000;

/// Whether a client of faur asks, and not a person.
pub(crate) fn is_asked(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    query.contains("names=") && parameter(head, "names").is_some()
}

/// `GET /packages?names=…`: a question that counts towards the rate limit, as those of `/rpc` do.
pub(crate) async fn list_packages(app: &Arc<App>, head: &Parts) -> Response {
    let client = body::client(app, head);
    let decision = app.aur.rate_limiter.check(client.key(), Instant::now());
    let answered = if decision.allowed {
        answer(app, head).await
    } else {
        app.metrics.rpc_rate_limited.inc();
        app.metrics.refused(QueryError::RateLimited);
        let detail = format!("there were {} questions, the most in a window", decision.limit);
        Err(HttpError::refused(StatusCode::TOO_MANY_REQUESTS, detail))
    };
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    app.aur.rate_limiter.insert_headers(&decision, response.headers_mut());
    response
}

async fn answer(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    let (names, by) = parse(head.uri.query().unwrap_or_default())?;
    let snapshot = app.packages()?.snapshot.clone();
    let results_max = app.aur.results_max.load(Relaxed);
    let search = move |is_over: &dyn Fn() -> bool| {
        let outside = SearchContext { is_over, ..SearchContext::NOTHING };
        snapshot.faur(&names, by, results_max, &outside)
    };
    let found = search_in_turn(app, search).await?;
    let json = found.map_err(HttpError::bad_request)?;
    let conditions = Conditions::of(&head.method, &head.headers);
    Ok(respond(Reply::tagged("application/json", json), StatusCode::OK, conditions).await)
}

/// The names, each once, and what they are.
fn parse(query: &str) -> Result<(Vec<String>, FaurBy), HttpError> {
    let mut by = FaurBy::Name;
    for (_, value) in form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "by") {
        by = match &*value {
            "prov" => FaurBy::Provides,
            "desc" => FaurBy::Words,
            _ => {
                let detail =
                    format!("`{value}` is no value of the parameter `by`: expected prov or desc");
                return Err(HttpError::bad_request(detail));
            }
        };
    }
    // aura sends names as they are, and none has a space. Between words a plus is one.
    let query = match by {
        FaurBy::Words => Cow::Borrowed(query),
        FaurBy::Name | FaurBy::Provides => Cow::Owned(query.replace('+', "%2B")),
    };
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    let given = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "names");
    for (_, value) in given {
        for name in value.split(',').filter(|name| !name.is_empty()) {
            if seen.insert(name.to_owned()) {
                names.push(name.to_owned());
            }
        }
    }
    if names.len() > NAMES_MAX {
        let count = names.len();
        let detail = format!("there are {count} names: expected at most {NAMES_MAX}");
        return Err(HttpError::bad_request(detail));
    }
    Ok((names, by))
}
