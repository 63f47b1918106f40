//! `/{user}/{index}/+log` for people: who did what to an index, newest first.

use askama::Template;
use axum::response::Response;
use pypi::index_log::{Deed, DeedKind, Doer, LogLine};
use pypi::{Stage, StageName};

use crate::front::display::{Time, in_path};
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::index_log::{page as page_of_log, source};

#[derive(Template)]
#[template(path = "index_log.html")]
struct LogPage<'a> {
    site: Site,
    name: &'a str,
    path: String,
    /// The project whose lines are shown, if it is but one.
    project: &'a str,
    lines: Vec<Line<'a>>,
    /// The query of the next page.
    older: Option<String>,
    is_first: bool,
}

struct Line<'a> {
    who: &'a str,
    did: &'static str,
    /// The project, and what of it: a version, or a file.
    project: Option<&'a str>,
    of_it: &'a str,
    /// Whether the project is there now.
    is_there: bool,
    from: Option<&'a str>,
    /// What else there is to say.
    rest: String,
    reason: &'a str,
    at: Time,
}

/// Who did it, as a page names them.
pub(super) fn who(line: &LogLine) -> &str {
    match &line.by {
        Doer::User(name) => name.as_str(),
        Doer::Nobody => "somebody without a user",
        Doer::Command => "a command on the server’s machine",
        Doer::Server => "the server",
    }
}

/// `GET /{user}/{index}/+log`, as a page.
pub(crate) async fn show_index_log(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let found = page_of_log(ask, stage, &principal).await?;
    let view = ask.view(&principal);
    let project = found.project.as_ref().map_or("", |name| name.as_str());
    let lines = found.lines.iter();
    let lines =
        lines.map(|(_, line)| Line::of(found.stage, line, source(ask, view, line))).collect();
    let older = found.next.map(|next| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !project.is_empty() {
            query.append_pair("project", project);
        }
        query.append_pair("before", &next.0.to_string()).finish()
    });
    let page = LogPage {
        name: found.stage.name().as_str(),
        path: in_path(found.stage.name().as_str()),
        project,
        lines,
        older,
        is_first: ask.parameter("before").is_none(),
        site: ask.site(),
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

impl<'a> Line<'a> {
    fn of(stage: &Stage, line: &'a LogLine, from: Option<&'a StageName>) -> Line<'a> {
        let deed = &line.deed;
        let project = deed.project.as_ref().map(|name| name.as_str());
        Line {
            who: who(line),
            did: did(deed),
            project,
            of_it: deed.version.as_deref().or(deed.file.as_deref()).unwrap_or_default(),
            is_there: project.is_some_and(|name| stage.project(name).is_some()),
            from: from.map(StageName::as_str),
            rest: rest(deed),
            reason: deed.reason.as_deref().unwrap_or_default(),
            at: Time(line.at),
        }
    }
}

fn did(deed: &Deed) -> &'static str {
    match deed.what {
        DeedKind::Created => "made this index",
        DeedKind::Settings => "changed settings",
        DeedKind::Yanked => "yanked",
        DeedKind::Unyanked => "took back the yank of",
        DeedKind::Status => "set the status of",
        DeedKind::Removed => "removed",
        DeedKind::Retention => "removed old versions",
        DeedKind::Pushed => "pushed",
    }
}

fn rest(deed: &Deed) -> String {
    let more = match deed.more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = || format!("{}{more}", deed.names.join(", "));
    match deed.what {
        DeedKind::Status => format!(" to {}", names()),
        DeedKind::Settings | DeedKind::Retention => format!(": {}", names()),
        _ => String::new(),
    }
}
