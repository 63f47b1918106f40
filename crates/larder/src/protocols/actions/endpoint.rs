//! `/actions` and `/?{"actions":…}`: many calls in one request.
//!
//! query or body -> [`Calls`] -> [`Context::run`], one after the other -> one response. A single call's result is
//! the body; several are an object by name. What they do is in [`super`].

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super as actions;
use super::request::{Call, Calls, RequestPart};
use super::{ActionResult, Context, Failure};
use crate::app::App;
use crate::front::auth::Claim;
use crate::front::body::{BodyError, Shape};
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};
use crate::front::{auth, body, serial};
use reply::Reply;

const JSON: &str = "application/json";

/// Values in one request at most: except for lists of names, arguments are few.
const VALUES_MAX: usize = 50_000;

/// Bytes that a text takes in a list of arguments, besides its own; a list may double to grow.
const ARGUMENT_BYTES: usize = 72;

/// base64url, whether padded or not.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `GET /actions`
pub(crate) async fn list_actions(app: &App, head: &Parts) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    respond(actions::listing(app), StatusCode::OK, conditions).await
}

/// `POST /actions`
pub(crate) async fn run_actions(
    app: &Arc<App>,
    head: &Parts,
    body: Body,
) -> Result<Response, HttpError> {
    let body = received(app, head, body).await?;
    Ok(run(app, head, &body, RequestPart::Whole, "").await)
}

/// `GET /` with actions [in its query](is_in_query).
pub(crate) async fn run_actions_of_query(
    app: &Arc<App>,
    head: &Parts,
) -> Result<Response, HttpError> {
    let query = head.uri.query().unwrap_or_default();
    let given = actions_in(query).ok_or_else(|| HttpError::bad_request("the query has no actions"));
    let (json, form) = given??;
    let has_plus = head.uri.query().is_some_and(|query| query.contains('+'));
    let hint = match has_plus && form == RequestPart::Whole {
        true => "; `+` is a plus in this query, a space is %20",
        false => "",
    };
    Ok(run(app, head, &json, form, hint).await)
}

/// Whether the query of a request to `/` has actions.
pub(crate) fn is_in_query(app: &App, head: &Parts) -> bool {
    app.config.actions.enabled && actions_in(head.uri.query().unwrap_or_default()).is_some()
}

/// The body, with memory for what its arguments become.
async fn received(app: &App, head: &Parts, body: Body) -> Result<body::HeldBody, HttpError> {
    // Invalid credentials count as anonymous here: each action decides itself how to answer them.
    let sender = auth::identified(app, &head.headers).await?.unwrap_or_default();
    let bytes_max = app.config.actions.body_bytes_max;
    let mut body = body::whole(app, head, &sender, body, bytes_max).await?;
    let values = Shape::of(&body).values();
    let calls_max = app.config.actions.per_request_max;
    // A body that is no valid request is refused for that reason first; parsing calls builds no values.
    if values > VALUES_MAX && Calls::parse(&body, RequestPart::Whole, calls_max).is_ok() {
        return Err(BodyError::TooMany { values_max: VALUES_MAX }.into());
    }
    let bytes = body.len() + values.min(VALUES_MAX) * ARGUMENT_BYTES;
    body.hold(bytes)?;
    Ok(body)
}

/// JSON, and what part of a request it is.
pub(crate) type GivenJson<'query> = (Cow<'query, [u8]>, RequestPart);

/// The JSON in a query, if it has any.
fn actions_in(query: &str) -> Option<Result<GivenJson<'_>, HttpError>> {
    if query.starts_with('{') || query.get(..3).is_some_and(|it| it.eq_ignore_ascii_case("%7b")) {
        // Some clients know only `name=value` and send the name alone with its sign.
        let query = query.strip_suffix('=').unwrap_or(query);
        return Some(Ok((percent_decode_str(query).into(), RequestPart::Whole)));
    }
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (name, value) = pairs.find(|(name, _)| matches!(name.as_ref(), "b64" | "actions"))?;
    if name == "actions" {
        return Some(Ok((Cow::Owned(value.into_owned().into_bytes()), RequestPart::Inner)));
    }
    Some(match BASE64URL.decode(value.as_bytes()) {
        Ok(json) => Ok((Cow::Owned(json), RequestPart::Whole)),
        Err(error) => {
            let detail = format!("`b64` is not base64url of the JSON of a request: {error}");
            Err(HttpError::bad_request(detail))
        }
    })
}

async fn run(app: &Arc<App>, head: &Parts, json: &[u8], form: RequestPart, hint: &str) -> Response {
    let limits = &app.config.actions;
    let Calls(calls) = match Calls::parse(json, form, limits.per_request_max) {
        Ok(calls) => calls,
        Err(error) => {
            let detail = format!("{error}{hint}");
            return HttpError::bad_request(detail).into_response();
        }
    };
    let client = body::client(app, head).key();
    let may_write = head.method == Method::POST;
    let results_bytes_max = limits.results_bytes_max;
    let context = Context::new(app.clone(), client, Claim::of(&head.headers), may_write);
    let mut response = answered(head, &context, &calls, results_bytes_max).await;
    if let Some(serial) = context.serial() {
        serial::insert(response.headers_mut(), serial);
    }
    response
}

/// Runs the calls.
async fn answered(
    head: &Parts,
    context: &Context,
    calls: &[Call<'_>],
    results_bytes_max: usize,
) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    if let [call] = calls {
        let outcome = within(results_bytes_max, 0, context.run(call).await);
        return match outcome {
            Ok(result) => send(head, result, conditions).await,
            Err(failure) => failed(&call.name, &failure),
        };
    }
    let mut body = BytesMut::new();
    for call in calls {
        let outcome = within(results_bytes_max, body.len(), context.run(call).await);
        body.put_u8(if body.is_empty() { b'{' } else { b',' });
        body.put_slice(serde_json::Value::from(call.name.as_str()).to_string().as_bytes());
        match outcome {
            Ok(result) => {
                body.put_slice(b":{\"result\":");
                body.put_slice(&result);
            }
            Err(failure) => {
                body.put_slice(b":{\"error\":");
                body.put_slice(problem(&call.name, &failure).as_bytes());
            }
        }
        body.put_u8(b'}');
        // A long request lets others of its thread go first.
        tokio::task::yield_now().await;
    }
    body.put_u8(b'}');
    send(head, body.freeze(), conditions).await
}

/// The outcome, if the results together stay within the bound.
fn within(results_bytes_max: usize, so_far: usize, outcome: ActionResult) -> ActionResult {
    let result = outcome?;
    if so_far.saturating_add(result.len()) > results_bytes_max {
        return Err(Failure::refused(format!(
            "with {} bytes more, the results of this request would have more than {results_bytes_max}, the most \
             there may be; it was run",
            result.len()
        )));
    }
    Ok(result)
}

async fn send(head: &Parts, body: Bytes, conditions: Conditions) -> Response {
    let reply = if head.method == Method::POST {
        Reply::untagged(JSON, body)
    } else {
        Reply::tagged(JSON, body)
    };
    let mut response = respond(reply, StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The failure of a call in the form that errors have everywhere, and whose it is.
fn problem(action: &str, failure: &Failure) -> String {
    let mut problem = json!({
        "type": "about:blank",
        "title": failure.status.canonical_reason().unwrap_or("Error"),
        "status": failure.status.as_u16(),
        "detail": failure.message,
    });
    for (name, value) in &failure.members {
        problem[name] = value.clone();
    }
    problem["action"] = action.into();
    if let Some(seconds) = failure.retry_after_seconds {
        problem["retry_after_seconds"] = seconds.into();
    }
    problem.to_string()
}

fn failed(action: &str, failure: &Failure) -> Response {
    let mut response = (failure.status, problem(action, failure)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = failure.retry_after_seconds {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}
