//! Logging a command line in by a browser: the device authorization grant of RFC 8628, as `larder login` asks for it.
//!
//! `POST /+tokens/device` -> two codes -> a person approves the user code at `/+account/device`, which makes a token
//! ([`crate::people::account`]) -> `POST /+tokens/device/token` with the device code -> the text of that token
//!
//! Nothing is kept of a log-in before it is approved. The token is one of the person's, on their page, and ends when it says.

use account::{DEVICE_LOG_IN_SECONDS, DeviceLogIn, LoginSecret, Principal};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::outside::root_url;
use crate::front::request::Parts;
use crate::front::{auth, body};

/// Size of a request: a form with a device code.
const BODY_BYTES_MAX: usize = 4 << 10;

/// How often a program asks, in seconds.
const INTERVAL_SECONDS: u32 = 3;

/// The kind of grant, as the program names it.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn secret(app: &App) -> Result<LoginSecret, HttpError> {
    let none = || HttpError::unavailable("the store has no secret to sign log-ins with", 5);
    app.stored()?.accounts.login_secret().cloned().ok_or_else(none)
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

/// `POST /+tokens/device`: a log-in begins.
pub(crate) fn begin(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let (secret, now) = (secret(app)?, Timestamp::now());
    let log_in = DeviceLogIn::begin(auth::random()?, now);
    let root = root_url(app, head);
    let user_code = secret.user_code(&log_in);
    let page = format!("{root}/+account/device");
    Ok(answer(
        StatusCode::OK,
        &json!({
            "device_code": secret.device_code(&log_in),
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": format!("{page}?code={user_code}"),
            "expires_in": log_in.ends_at().as_second() - now.as_second(),
            "interval": INTERVAL_SECONDS,
        }),
    ))
}

/// `POST /+tokens/device/token`: the token, if somebody has approved the log-in.
pub(crate) async fn ask(app: &App, head: &Parts, body: Body) -> Result<Response, HttpError> {
    body::check_coding(&head.headers, &body)?;
    let bytes = body::whole(app, head, &Principal::Anonymous, body, BODY_BYTES_MAX).await?;
    let fields = || form_urlencoded::parse(&bytes);
    let field = |wanted: &str| fields().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let refused = |error: &str, about: &str| {
        let body = json!({"error": error, "error_description": about});
        Ok(answer(StatusCode::BAD_REQUEST, &body))
    };
    if field("grant_type").as_deref() != Some(GRANT) {
        return refused("unsupported_grant_type", &format!("`grant_type={GRANT}` was expected"));
    }
    let (secret, now) = (secret(app)?, Timestamp::now());
    let log_in = field("device_code").and_then(|code| secret.log_in_of_device(&code));
    let Some(log_in) = log_in else {
        return refused("invalid_grant", "the device code is not one of this server");
    };
    if log_in.ends_at() <= now {
        let minutes = DEVICE_LOG_IN_SECONDS / 60;
        let about = format!("nobody approved the log-in within {minutes} minutes: begin again");
        return refused("expired_token", &about);
    }
    let text = secret.device_token_text(&log_in);
    let stored = app.stored()?;
    let token = stored.accounts.token_by_text(&text).filter(|token| !token.is_expired(now));
    let Some(token) = token else {
        return refused("authorization_pending", "nobody has approved the log-in yet");
    };
    let mut body = json!({
        "access_token": text.reveal(),
        "token_type": "Bearer",
        "user": token.user.as_str(),
        "scope": token.scopes.to_string().replace(',', " "),
    });
    if let Some(expires_at) = token.expires_at {
        body["expires_in"] = json!(expires_at.as_second() - now.as_second());
    }
    Ok(answer(StatusCode::OK, &body))
}
