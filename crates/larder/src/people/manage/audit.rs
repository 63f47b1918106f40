//! `/+manage/audit`: the audit log of policies, for administrators, and of one index for those who may change it.
//!
//! query -> the entries that programs get at `/+audit`, or at `/{user}/{index}/+audit` -> a page, with the same rights and filters.

use ::audit::Query;

use super::*;
use crate::front::display::visible_name;

/// The events that can be chosen.
const EVENTS: [&str; 6] = ["refused", "excepted", "warned", "approved", "changed", "served"];

#[derive(Template)]
#[template(path = "manage_audit.html")]
struct AuditPage {
    site: Site,
    is_administrator: bool,
    index: String,
    event: String,
    /// The names of the other filters, with labels and the chosen values.
    filters: Vec<(&'static str, &'static str, String)>,
    entries: Vec<Line>,
    /// The query of the page of older entries.
    older: Option<String>,
    lost: String,
    problem: String,
}

impl AuditPage {
    fn events(&self) -> [&'static str; 6] {
        EVENTS
    }

    fn is_chosen(&self, event: &str) -> bool {
        self.event == event
    }

    fn has_filters(&self) -> bool {
        self.filters.iter().any(|(_, _, value)| !value.is_empty())
    }
}

/// An entry of the log.
#[derive(Default)]
struct Line {
    at: String,
    event: String,
    index: String,
    path: String,
    what: String,
    rule: String,
    reason: String,
    who: String,
    client: String,
    /// Whether who asked, and where, is taken out for this reader.
    is_hidden: bool,
}

impl Line {
    fn of(entry: &Value) -> Line {
        let text = |key: &str| visible_name(entry[key].as_str().unwrap_or_default());
        Line {
            at: text("at").chars().take("2026-01-31T23:59:59".len()).collect(),
            event: text("event"),
            index: text("index"),
            path: text("path"),
            what: text("what"),
            rule: text("rule"),
            reason: text("reason"),
            who: text("who"),
            client: text("client"),
            is_hidden: entry["path"].as_str() == Some(""),
        }
    }
}

/// `GET /+manage/audit`
pub(crate) async fn show_audit(app: &Arc<App>, head: &Parts) -> Result<Response, HttpError> {
    check_on(app, head)?;
    let (_, principal) = forms::logged_in(app, head).await?;
    let query = head.uri.query().unwrap_or_default();
    // A form sends the fields that are empty, too.
    let chosen: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.trim().to_owned()))
        .filter(|(name, value)| !value.is_empty() && Query::NAMES.contains(&name.as_str()))
        .collect();
    let value = |wanted: &str| {
        let found = chosen.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let is_administrator = principal.is_administrator(Scope::ServerAdmin, Object::Server);
    let index = value("index");
    let encoded = |skipped: &[&str]| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(chosen.iter().filter(|(name, _)| !skipped.contains(&name.as_str())));
        query
    };
    // Administrators may read the whole log; others that of an index which they may change.
    let (stage, skipped): (&str, &[&str]) = match is_administrator {
        true => ("", &[]),
        false => (index.as_str(), &["index"]),
    };
    let outcome = match is_administrator || index.contains('/') {
        true => {
            let basis = app.basis(auth::sender(principal, head))?;
            let query = encoded(skipped).finish();
            let query = form_urlencoded::parse(query.as_bytes());
            let found = python::audit_entries(app, &basis, stage, query).await;
            found.map(Some).map_err(python::error_of)
        }
        false => Ok(None),
    };
    let (answer, found) = Answer::of(outcome);
    let found = found.flatten();
    let entries = found.as_ref().map(|found| found.entries.as_slice()).unwrap_or_default();
    let older = found
        .as_ref()
        .and_then(|found| found.next)
        .map(|next| encoded(&["before"]).append_pair("before", &next.to_string()).finish());
    let filters = [
        ("what", "Part of a file's name"),
        ("who", "Who asked"),
        ("rule", "Rule"),
        ("client", "Address"),
        ("since", "Since, such as 2026-01-31"),
        ("until", "Until"),
    ];
    let page = AuditPage {
        site: Site::of(app, head),
        is_administrator,
        event: value("event"),
        filters: filters.map(|(name, label)| (name, label, value(name))).into(),
        entries: entries.iter().map(Line::of).collect(),
        older,
        lost: Some(app.python.audit.lost())
            .filter(|lost| *lost > 0)
            .map_or_else(String::new, |lost| {
                page::separated(usize::try_from(lost).unwrap_or(usize::MAX))
            }),
        problem: if answer.is_done() { String::new() } else { answer.message.clone() },
        index,
    };
    let status = if answer.is_done() { StatusCode::OK } else { answer.status };
    Ok(page::send_once(&page, head, status).await)
}
