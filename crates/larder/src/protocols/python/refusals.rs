//! Refused operations in devpi's words: the status, the text and the form of each, in one place.

use account::change::{DeleteUserError, NoUser};
use axum::response::Response;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use operations::{Denied, Kind, Refusal, Right, Rule};
use pypi::ChangeError;

use super::ask::Ask;
use super::error::ApiError;
use super::{policy, reply};
use crate::front::error::HttpError;
use crate::front::refusals::status;

/// What senders without it, or with a token that lacks the right, are told.
const PUSH_OUTSIDE_NEEDS: &str =
    "to push to another server, a user and a password, or a token for uploads, are needed";

/// The answer to a request without success.
pub(crate) async fn answer(ask: &Ask, refused: ApiError) -> Response {
    let refusal = match refused {
        ApiError::Answer(response) => return *response,
        ApiError::Said(status, text) => return reply::message(status, &text),
        ApiError::Failure(error) => return reply::failure(ask, error),
        ApiError::Operation(refusal) => refusal,
    };
    match refusal {
        Refusal::Withheld { what, refused } => policy::refused(ask, &what, &refused).await,
        Refusal::Denied(denied) => {
            let cause = cause(ask, &denied);
            match &denied.right {
                Right::Remove(purpose) => reply::forbidden(ask, purpose, &cause),
                Right::PushOutside if denied.by.is_none() || denied.lack.is_some() => {
                    let lack =
                        denied.lack.as_ref().map_or_else(String::new, |it| format!(": {it}"));
                    let text = format!("{PUSH_OUTSIDE_NEEDS}{lack}");
                    challenged(reply::message(StatusCode::UNAUTHORIZED, &text))
                }
                // devpi's answer to everybody who may not push.
                Right::Push(_) => challenged(reply::message(
                    StatusCode::UNAUTHORIZED,
                    &text_of_denied(ask, &denied),
                )),
                Right::ReadIndex(_) => reply::failure(ask, Refusal::Denied(denied).into()),
                _ => reply::message(StatusCode::FORBIDDEN, &text_of_denied(ask, &denied)),
            }
        }
        Refusal::Rule(rule) => {
            let (status, text) = words_of_rule(&rule);
            let mut response = match &rule {
                Rule::Index(ChangeError::NoStage(stage)) => {
                    return reply::failure(ask, HttpError::unknown_stage(stage.as_str()));
                }
                _ => reply::message(status, &text),
            };
            // The file that is in the way of a push or an upload.
            if matches!(rule, Rule::Index(ChangeError::FileExists { .. })) {
                reply::set_reason(&mut response, &text);
            }
            response
        }
        refusal => reply::failure(ask, refusal.into()),
    }
}

/// The answer to an upload without success: older clients show nothing of it but the reason phrase.
pub(crate) async fn answer_to_upload(ask: &Ask, refused: ApiError) -> Result<Response, ApiError> {
    let (status, text) = match refused {
        ApiError::Said(status, text) => (status, text),
        ApiError::Operation(Refusal::Rule(rule)) => words_of_rule(&rule),
        ApiError::Operation(Refusal::Denied(denied)) => words_of_uploader(ask, &denied).await?,
        refused => return Err(refused),
    };
    let response = reply::upload_refusal(ask, status, &text);
    Ok(if status == StatusCode::UNAUTHORIZED { challenged(response) } else { response })
}

/// What a sender is told who may not upload. One whose credentials are refused counts as anonymous, as some indexes let everybody
/// upload; the text says why they are refused.
async fn words_of_uploader(ask: &Ask, denied: &Denied) -> Result<(StatusCode, String), HttpError> {
    if denied.by.is_some() {
        return Ok((StatusCode::FORBIDDEN, text_of_denied(ask, denied)));
    }
    let reason = match ask.identified().await? {
        Err(reason) => Some(reason.clone()),
        // They held when the request came.
        Ok(_) => ask.basis().await?.ended().map(ToString::to_string),
    };
    // Clients look for the word in the reason phrase.
    let needed = || "to upload, a user and a password or a token are needed".to_owned();
    let text = format!("Unauthorized: {}", reason.unwrap_or_else(needed));
    Ok((StatusCode::UNAUTHORIZED, text))
}

/// Why a form of this surface is refused: a page says it.
pub(crate) fn error_of(refused: ApiError) -> HttpError {
    match refused {
        ApiError::Failure(error) => error,
        ApiError::Said(status, text) => HttpError::refused(status, text),
        ApiError::Operation(refusal) => refusal.into(),
        ApiError::Answer(response) => {
            let status = response.status();
            HttpError::refused(status, status.canonical_reason().unwrap_or_default())
        }
    }
}

/// Asks for a user and a password.
fn challenged(mut response: Response) -> Response {
    let challenge = HeaderValue::from_static("Basic realm=\"pypi\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// The status and the text of a rule.
fn words_of_rule(rule: &Rule) -> (StatusCode, String) {
    match rule {
        Rule::NoUser(NoUser(user)) | Rule::DeleteUser(DeleteUserError::NoUser(NoUser(user))) => {
            (status(Kind::NotFound), format!("no user '{user}'"))
        }
        // What a request can say of it.
        Rule::NoRetention => {
            let text = format!("{rule}, or send {{\"versions\": …}} or {{\"days\": …}}");
            (status(rule.kind()), text)
        }
        Rule::Index(ChangeError::NameHeld(_)) => {
            (status(rule.kind()), format!("{rule}, which `release_name=1` releases"))
        }
        rule => (status(rule.kind()), rule.to_string()),
    }
}

/// `: ` and why a right is lacking. Where the server answers as devpi does, devpi's messages are unchanged; devpi has no tokens.
fn cause(ask: &Ask, denied: &Denied) -> String {
    match &denied.lack {
        None if ask.app.config.python.devpi_defaults => String::new(),
        _ => denied.cause(),
    }
}

/// The text for a sender who lacks a right.
fn text_of_denied(ask: &Ask, denied: &Denied) -> String {
    let cause = cause(ask, denied);
    match (&denied.right, &denied.by) {
        (Right::Push(target), Some(name)) => {
            format!("user '{name}' cannot upload to '{target}'{cause}")
        }
        (Right::Push(target), None) => format!("user None cannot upload to '{target}'"),
        (Right::Replace(filename), _) => {
            let lack = denied.lack.as_ref().map(ToString::to_string).unwrap_or_default();
            format!(
                "no permission to replace {filename}: it is there with other contents, and {lack}"
            )
        }
        (Right::AddToxResult, _) => format!(
            "{}{cause}. You can use the devpi test --no-upload option to skip the upload.",
            denied.right
        ),
        (Right::User(error), None) if !ask.app.config.python.devpi_defaults => {
            format!("{error}: a user and a password, or a token, are needed")
        }
        (right, _) => format!("{right}{cause}"),
    }
}
