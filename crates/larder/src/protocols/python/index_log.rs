//! `/{user}/{index}/+log`: who did what to an index, newest first, for those who may read it.
//!
//! A line about a project is for those who may read the project, which a limited token may not. A reader gets no name of an index
//! that they may not see.

use account::{Portion, Principal};
use axum::response::Response;
use http::StatusCode;
use pypi::devpi::View;
use pypi::index_log::{Doer, LogLine};
use pypi::{ProjectName, Stage, StageName};
use record::{Serial, excerpt};
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::reply;
use super::rights::unreadable;
use crate::front::error::HttpError;

/// Lines of an answer, if none are asked for, and at most.
const LINES: usize = 50;
const LINES_MAX: usize = 200;

/// A part of a log.
pub(crate) struct LogPage<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) project: Option<ProjectName>,
    pub(crate) lines: Vec<(Serial, &'a LogLine)>,
    /// The lines before this one are the next part.
    pub(crate) next: Option<Serial>,
}

/// The part of the log that the query asks for, as far as its sender may read it.
pub(crate) async fn page<'a>(
    ask: &'a Ask,
    stage: &str,
    principal: &Principal,
) -> Result<LogPage<'a>, ApiError> {
    let found = ask.stored.index.stage(stage).ok_or_else(|| HttpError::unknown_stage(stage))?;
    if !found.may_read(principal, Portion::Unnamed) {
        return Err(unreadable(principal, found, Portion::Unnamed).into());
    }
    let before =
        ask.parameter("before").map(|text| number("before", &text, u64::MAX)).transpose()?;
    let limit = ask.parameter("limit").map(|text| number("limit", &text, LINES_MAX as u64));
    let limit = limit.transpose()?.map_or(LINES, |limit| limit as usize);
    let project = ask.parameter("project").filter(|name| !name.is_empty());
    let project = project.map(|name| {
        let none = |_| ApiError::bad_request(format!("`{name}` is no name of a project"));
        ProjectName::normalize(&name).map_err(none)
    });
    let project = project.transpose()?;
    let is_seen = |line: &LogLine| {
        let is_asked = project.is_none() || line.deed.project == project;
        is_asked && found.may_read(principal, line.portion())
    };
    let log = ask.stored.logs.log(stage);
    let lines = log.into_iter().flat_map(|log| log.lines(before.map(Serial)));
    let mut seen = lines.filter(|(_, line)| is_seen(line));
    let lines: Vec<_> = seen.by_ref().take(limit).collect();
    let next = seen.next().and_then(|_| lines.last()).map(|(serial, _)| *serial);
    Ok(LogPage { stage: found, project, lines, next })
}

fn number(name: &str, text: &str, max: u64) -> Result<u64, ApiError> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| {
        let text = excerpt(text, 100);
        ApiError::bad_request(format!(
            "`{text}` is no value of the parameter `{name}`: expected a whole number from 1 to {max}"
        ))
    })
}

/// The index that a release was pushed from, if the viewer may see it.
pub(crate) fn source<'a>(ask: &Ask, view: View<'_>, line: &'a LogLine) -> Option<&'a StageName> {
    let from = line.deed.from.as_ref()?;
    ask.stored.index.stage(from.as_str()).is_some_and(|stage| view.sees(stage)).then_some(from)
}

/// `GET /{user}/{index}/+log`
pub(crate) async fn show_index_log(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let LogPage { lines, next, .. } = page(ask, stage, &principal).await?;
    let view = ask.view(&principal);
    let items: Vec<Value> =
        lines.iter().map(|(serial, line)| item(*serial, line, source(ask, view, line))).collect();
    let result = json!({"items": items, "next": next.map(|serial| serial.0)});
    Ok(reply::result(StatusCode::OK, "log", result, None))
}

fn item(serial: Serial, line: &LogLine, from: Option<&StageName>) -> Value {
    let deed = &line.deed;
    let mut item = Map::new();
    item.insert("serial".to_owned(), serial.0.into());
    item.insert("time".to_owned(), line.at.to_string().into());
    item.insert("what".to_owned(), deed.what.as_str().into());
    let through = match line.by {
        Doer::User(_) | Doer::Nobody => None,
        Doer::Command => Some("command"),
        Doer::Server => Some("server"),
    };
    for (member, value) in [
        ("by", line.by.user()),
        ("through", through),
        ("project", deed.project.as_ref().map(ProjectName::as_str)),
        ("version", deed.version.as_deref()),
        ("file", deed.file.as_deref()),
        ("from", from.map(StageName::as_str)),
        ("reason", deed.reason.as_deref().filter(|reason| !reason.is_empty())),
    ] {
        if let Some(value) = value {
            item.insert(member.to_owned(), value.into());
        }
    }
    if !deed.names.is_empty() {
        item.insert("names".to_owned(), deed.names.iter().map(|name| &**name).collect());
    }
    if deed.more > 0 {
        item.insert("more".to_owned(), deed.more.into());
    }
    item.into()
}
