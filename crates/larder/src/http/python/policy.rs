//! Files that a policy refuses: judged here for downloads, and answered with the reason.
//!
//! 403, never 401: installers go on to another index or stop at once, and nobody is asked for a password. The reason is in
//! the body and in the reason phrase, which is all that pip shows.

use axum::response::Response;
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use jiff::Timestamp;
use pypi::{FileLookup, Judge, ProjectName, Refused, Stage};
use serde_json::Map;

use super::ask::Ask;
use super::reply;
use crate::http::error::HttpError;

/// Why what was found in a stage itself is not given out; `None` if it is.
pub(super) fn refusal_of_own(stage: &Stage, found: &FileLookup) -> Option<Refused> {
    let (FileLookup::Found { file, project, is_quarantined }
    | FileLookup::CoreMetadata { file, project, is_quarantined }
    | FileLookup::Provenance { file, project, is_quarantined }) = found
    else {
        return None;
    };
    if *is_quarantined && file.role() == pypi::FileRole::Release {
        let project = stage.project(project.as_str())?;
        return Some(Refused::by_status(stage.name(), project));
    }
    // The only check for stages without a policy.
    stage.config().policy.as_ref()?;
    judge(stage, stage, project)?.refusal_of_own(stage.name(), file)
}

/// The judge of what `asked` gives out of `holder` now.
pub(super) fn judge<'stages>(
    asked: &'stages Stage,
    holder: &'stages Stage,
    project: &'stages ProjectName,
) -> Option<Judge<'stages>> {
    Judge::between(asked, holder, project, Timestamp::now())
}

/// The answer to a request for a file, or for a version, that is refused.
pub(super) fn refused(ask: &Ask, what: &str, refused: &Refused) -> Response {
    ask.app.metrics.python.policy_refused(refused.rule);
    let text = format!("{what} is {refused}");
    let mut members = Map::new();
    members.insert("index".to_owned(), refused.stage.as_str().into());
    members.insert("rule".to_owned(), refused.rule.as_str().into());
    members.insert("reason".to_owned(), refused.reason.as_str().into());
    if let Some(until) = refused.until {
        members.insert("until".to_owned(), until.to_string().into());
    }
    let mut response = reply::failure(ask, HttpError::forbidden(&text).with(members));
    reply::set_reason(&mut response, &text);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
