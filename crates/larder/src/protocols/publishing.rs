//! Trusted publishing: where clients ask for the audience, exchange the identity of a CI job for an upload token, and discover
//! both (PEP 807, a draft).
//!
//! `{"token": "<JWT>"}` -> [`Issuers::verify`](issuers::Issuers::verify) -> [`MintUploadToken`] -> `{"success": true, …}`
//!
//! The paths, members and codes of errors are the public index's, because its clients ask for them below the host of the URL that
//! they upload to. An answer that refuses is also a problem (RFC 9457), as PEP 807 wants it.

use account::Principal;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use issuers::TokenRefusal;
use jiff::Timestamp;
use operations::publishing::{MintUploadToken, MintedToken};
use operations::{Refusal, Rule, carry_out};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::negotiation::named_weight;
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::front::{auth, body, outside, serial};

/// Size of the request for a token: a token in JSON.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The media type of PEP 807.
const PYTP: &str = "application/vnd.pypi.pytp.v1+json";

/// The one kind of tokens that this server makes, in the words of PEP 807.
const MULTI_USE: &str = "multi-use-token";

#[derive(Deserialize)]
struct Wish {
    token: String,
    #[serde(default)]
    features: Vec<String>,
}

/// Why there is no answer, in the public index's words.
struct Failure {
    status: StatusCode,
    code: &'static str,
    description: String,
    retry_after_seconds: Option<u32>,
}

impl Failure {
    fn new(code: &'static str, description: impl Into<String>) -> Failure {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Failure { status, code, description: description.into(), retry_after_seconds: None }
    }

    fn not_enabled() -> Failure {
        let description = "trusted publishing is not set up here: `publishing.issuers` of the configuration is empty";
        Failure { status: StatusCode::FORBIDDEN, ..Failure::new("not-enabled", description) }
    }

    fn into_response(self, head: &Parts) -> Response {
        let body = json!({
            "message": "Token request failed",
            "errors": [{"code": self.code, "description": self.description}],
            "title": "Token request failed",
            "status": self.status.as_u16(),
            "detail": self.description,
        });
        let media_type = if asks_for_pytp(head) { "application/problem+json" } else { JSON };
        let mut response = answer(self.status, media_type, &body);
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let (status, description, retry_after_seconds) = error.into_facts();
        let code = if status.is_server_error() { "unavailable" } else { "invalid-payload" };
        Failure { status, code, description, retry_after_seconds }
    }
}

impl From<TokenRefusal> for Failure {
    fn from(refused: TokenRefusal) -> Failure {
        match &refused {
            TokenRefusal::Invalid(_)
            | TokenRefusal::UnknownIssuer(_)
            | TokenRefusal::Answer(_)
            | TokenRefusal::NotAdmitted(_) => Failure::new("invalid-token", refused.to_string()),
            // Why keys cannot be fetched is for the operator, in the log.
            TokenRefusal::Unavailable { issuer, retry_after_seconds, .. } => Failure {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "unavailable",
                description: format!("the keys of the issuer {issuer} cannot be fetched now"),
                retry_after_seconds: Some(*retry_after_seconds),
            },
        }
    }
}

const JSON: &str = "application/json";

fn answer(status: StatusCode, media_type: &'static str, body: &Value) -> Response {
    let headers = [(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

/// Whether the client speaks PEP 807.
fn asks_for_pytp(head: &Parts) -> bool {
    let accepted = head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.filter_map(|accept| named_weight(accept, PYTP)).any(|weight| weight > 0.0)
}

fn succeeded(head: &Parts, body: &Value) -> Response {
    answer(StatusCode::OK, if asks_for_pytp(head) { PYTP } else { JSON }, body)
}

/// `GET /_/oidc/audience`: for whom identities have to be.
pub(crate) fn show_audience(app: &App, head: &Parts) -> Response {
    match app.logins.issuers.are_named() {
        true => succeeded(head, &json!({"audience": app.logins.issuers.audience()})),
        false => {
            let missing = Failure { status: StatusCode::NOT_FOUND, ..Failure::not_enabled() };
            missing.into_response(head)
        }
    }
}

/// `GET /.well-known/pytp?discover=%2Fteam%2Fdev%2F`: whether trusted publishing works for that URL, and where.
pub(crate) fn discover(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let path = parameter(head, "discover");
    let path = path.ok_or_else(|| HttpError::bad_request("`discover=PATH` was expected"))?;
    let below = path.strip_prefix(&*outside::root_path(app, head)).unwrap_or(&path);
    let stored = app.stored()?;
    let stage = stored.index.stage(below.trim_matches('/'));
    if !app.logins.issuers.are_named() || stage.is_none_or(|stage| stage.config().is_mirror()) {
        let shown = record::excerpt(&path, 200);
        return Err(HttpError::not_found(format!("no trusted publishing at `{shown}`")));
    }
    let root = outside::root_url(app, head);
    let found = json!({
        "audience-endpoint": format!("{root}/_/oidc/audience"),
        "token-mint-endpoint": format!("{root}/_/oidc/mint-token"),
        "features": [MULTI_USE],
        "default-features": [MULTI_USE],
    });
    Ok(answer(StatusCode::OK, PYTP, &found))
}

/// `POST /_/oidc/mint-token`: an upload token for the identity of a CI job.
pub(crate) async fn mint_upload_token(app: &App, head: &Parts, body: Body) -> Response {
    match mint(app, head, body).await {
        Ok(response) => {
            app.metrics.upload_token("minted");
            response
        }
        Err(failure) => {
            let is_ours = failure.status.is_server_error();
            app.metrics.upload_token(if is_ours { "unavailable" } else { "refused" });
            failure.into_response(head)
        }
    }
}

async fn mint(app: &App, head: &Parts, body: Body) -> Result<Response, Failure> {
    if !app.logins.issuers.are_named() {
        return Err(Failure::not_enabled());
    }
    let wish = wish(app, head, body).await?;
    let verified =
        app.logins.issuers.verify(&wish.token, Timestamp::now()).await.map_err(|refused| {
            app.logins.security.mint_refused(None, &refused.to_string(), None);
            Failure::from(refused)
        })?;
    let called = verified.identity().name();
    let wish = MintUploadToken { verified, secret: auth::random()? };
    let sender = auth::sender(Principal::Anonymous, head);
    let done = carry_out(&mut app.keeper(), &sender, &wish).await;
    let done = done.map_err(|refusal| refused(app, &called, refusal))?;
    let MintedToken { text, token, admits } = &done.outcome;
    tracing::info!(
        identity = called,
        token = %token.id,
        indexes = admits.len(),
        "a CI job got an upload token"
    );
    let body = json!({
        "success": true,
        "token": text.reveal(),
        "expires": token.expires_at.as_second(),
    });
    let mut response = succeeded(head, &body);
    serial::insert(response.headers_mut(), done.seen);
    Ok(response)
}

async fn wish(app: &App, head: &Parts, body: Body) -> Result<Wish, Failure> {
    body::check_coding(&head.headers, &body)?;
    let bytes = body::whole(app, head, &Principal::Anonymous, body, BODY_BYTES_MAX).await;
    let bytes = bytes.map_err(HttpError::from)?;
    let wish: Wish = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new("invalid-payload", format!("`{{\"token\": \"<JWT>\"}}` was expected: {error}"))
    })?;
    let unknown = wish.features.iter().find(|feature| **feature != MULTI_USE);
    match unknown {
        None => Ok(wish),
        Some(feature) => {
            let shown = record::excerpt(feature, 80);
            let text = format!("the feature `{shown}` is not known: `{MULTI_USE}` was expected");
            Err(Failure::new("invalid-payload", text))
        }
    }
}

/// A refused mint, logged and in the public index's words.
fn refused(app: &App, called: &str, refusal: Refusal) -> Failure {
    let (code, nearest) = match &refusal {
        Refusal::Rule(Rule::NoPublisher(refusal)) => {
            let nearest = refusal.nearest.as_deref().map(|(index, publisher, mismatch)| {
                format!("the publisher `{publisher}` of {index}: {mismatch}")
            });
            ("invalid-publisher", nearest)
        }
        Refusal::Rule(Rule::Mint(account::MintError::Replayed)) => ("invalid-reuse-token", None),
        Refusal::Rule(Rule::Mint(_)) => {
            let failure = HttpError::unavailable(&refusal, 60);
            app.logins.security.mint_refused(Some(called), &refusal.to_string(), None);
            return failure.into();
        }
        _ => return HttpError::from(refusal).into(),
    };
    let text = refusal.to_string();
    app.logins.security.mint_refused(Some(called), &text, nearest.as_deref());
    Failure::new(code, text)
}
