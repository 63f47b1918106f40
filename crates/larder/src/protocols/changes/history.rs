//! `/aur/history`: who maintained packages and when, for one package or many.
//!
//! names, and maybe since when -> the records of the history -> the history of each. An AUR helper asks before an update for
//! all packages that it would build, and gets those that changed hands lately.

use std::borrow::Cow;
use std::sync::Arc;

use axum::response::Response;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use reply::Reply;
use serde_json::{Map, Value, json};
use store::Records;

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};
use crate::published::aur_published::AurPublished;
use crate::published::changes::aur_history;
use crate::routes::Route;

/// Names in one question, and bytes of one.
const NAMES_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 255;

/// Days that can be asked for: a hundred years.
const DAYS_MAX: i64 = 36_500;

/// `GET /aur/history/{package}`.
pub(crate) async fn show_package_history(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let name = route.text("{package}")?;
    let history = History::open(app).await?;
    let Some((spelled, package)) = history.package(&name).await? else {
        let detail = format!("no package `{name}` was seen here");
        return Err(HttpError::not_found(detail));
    };
    answer(head, &package.render(&spelled, history.began_at)).await
}

/// `GET /aur/history`.
pub(crate) async fn list_package_histories(
    app: &Arc<App>,
    head: &Parts,
) -> Result<Response, HttpError> {
    let question = Question::parse(head.uri.query(), Timestamp::now())?;
    let history = History::open(app).await?;
    let mut results = Vec::new();
    for name in &question.names {
        let Some((spelled, package)) = history.package(name).await? else { continue };
        let is_wanted = question.since.is_none_or(|since| {
            package.changed_hands_at().is_some_and(|changed_at| changed_at >= since)
        });
        if is_wanted {
            results.push(package.render(&spelled, history.began_at));
        }
    }
    let known_since = history.began_at.as_second();
    answer(
        head,
        &json!({"KnownSince": known_since, "resultcount": results.len(), "results": results}),
    )
    .await
}

async fn answer(head: &Parts, body: &Value) -> Result<Response, HttpError> {
    let conditions = Conditions::of(&head.method, &head.headers);
    let reply = Reply::tagged("application/json", body.to_string());
    let mut response = respond(reply, StatusCode::OK, conditions).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// The history, as it can be asked now.
struct History {
    records: Records,
    /// The packages that it has taken in.
    published: Arc<AurPublished>,
    began_at: Timestamp,
}

impl History {
    /// # Errors
    /// 503 while the history lacks packages that are served: it would report one that has just changed hands as safe.
    async fn open(app: &App) -> Result<History, HttpError> {
        let published = noted(app).await.ok_or_else(|| {
            let detail = "the history has not taken in the packages that are served now";
            HttpError::unavailable(detail, 1)
        })?;
        let Some(records) = app.changes.aur_records.borrow().clone() else {
            return Err(HttpError::unavailable("the history of packages is not loaded yet", 1));
        };
        let began_at = aur_history::began_at(&records).await.map_err(unreadable)?;
        Ok(History { records, published, began_at })
    }

    /// The history of a package, with its name in the AUR's spelling. A package that exists is found in any case of letters; a
    /// deleted one only in its own.
    async fn package<'name>(
        &self,
        name: &'name str,
    ) -> Result<Option<(Cow<'name, str>, aur_history::PackageHistory)>, HttpError> {
        let facts = self.published.snapshot.facts_of(name);
        let spelled: Cow<'name, str> = match &facts {
            Some(facts) => facts.name.clone().into(),
            None => name.into(),
        };
        let package = aur_history::package(&self.records, &spelled, facts.as_ref()).await;
        Ok(package.map_err(unreadable)?.map(|package| (spelled, package)))
    }
}

/// The history of packages that are served.
pub(crate) struct Histories(History);

impl Histories {
    /// # Errors
    /// 503 while packages are served that the history has not taken in.
    pub(crate) async fn open(app: &App) -> Result<Histories, HttpError> {
        History::open(app).await.map(Histories)
    }

    /// The history, if it already has these packages; a page does not wait for that.
    pub(crate) async fn now(app: &App, published: &Arc<AurPublished>) -> Option<Histories> {
        let last = app.changes.aur_noted.subscribe().borrow().clone();
        let records = app.changes.aur_records.borrow().clone();
        let records = records.filter(|_| last.as_ptr() == Arc::as_ptr(published))?;
        let began_at = aur_history::began_at(&records).await.map_err(unreadable).ok()?;
        Some(Histories(History { records, published: published.clone(), began_at }))
    }

    /// The packages that the history has taken in.
    pub(crate) fn published(&self) -> &Arc<AurPublished> {
        &self.0.published
    }

    /// The members of the answer about a package.
    pub(crate) async fn members(&self, name: &str) -> Result<Map<String, Value>, HttpError> {
        let found = self.0.package(name).await?;
        let rendered = found.map(|(spelled, package)| package.render(&spelled, self.0.began_at));
        Ok(match rendered {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        })
    }
}

/// The published state of the AUR, as soon as the history has it; `None` if that takes too long.
async fn noted(app: &App) -> Option<Arc<AurPublished>> {
    let mut noted = app.changes.aur_noted.subscribe();
    let catching_up = async {
        loop {
            let last = noted.borrow_and_update().clone();
            let served = app.aur.snapshot_full();
            let is_last = |served: &Arc<AurPublished>| Arc::as_ptr(served) == last.as_ptr();
            if let Some(served) = served.filter(is_last) {
                return Some(served);
            }
            noted.changed().await.ok()?;
        }
    };
    let mut failing = app.changes.aur_failing.subscribe();
    tokio::select! {
        biased;
        found = catching_up => found,
        // It may fail for long: nobody waits for it.
        _ = failing.wait_for(Option::is_some) => None,
        () = tokio::time::sleep(app.config.store.wait_for_serial) => None,
    }
}

fn unreadable(error: anyhow::Error) -> HttpError {
    tracing::error!(error = format!("{error:#}"), "the history of packages cannot be read");
    HttpError::unavailable("the history of packages cannot be read now; it has been logged", 5)
}

/// A question about many packages.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    /// Each once, in their order.
    names: Vec<String>,
    /// Only packages that changed hands then or later.
    since: Option<Timestamp>,
}

impl Question {
    fn parse(query: Option<&str>, now: Timestamp) -> Result<Question, HttpError> {
        let (mut names, mut since) = (Vec::new(), None);
        let mut seen = std::collections::HashSet::new();
        for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let wrong = |expected: &str| {
                let detail =
                    format!("`{value}` is no value of the parameter `{key}`: expected {expected}");
                HttpError::bad_request(detail)
            };
            let found = match &*key {
                "name" => {
                    if value.is_empty() || value.len() > NAME_BYTES_MAX {
                        let expected =
                            format!("the name of a package, of at most {NAME_BYTES_MAX} bytes");
                        return Err(wrong(&expected));
                    }
                    if seen.insert(value.to_string()) {
                        names.push(value.into_owned());
                    }
                    continue;
                }
                "maintained_since" => {
                    let seconds = value.parse().ok().and_then(|it| Timestamp::from_second(it).ok());
                    let time = seconds.or_else(|| value.parse().ok());
                    time.ok_or_else(|| {
                        wrong("Unix seconds, or a time such as 2026-01-02T03:04:05Z")
                    })?
                }
                "min_age_days" => {
                    let days = value.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
                    let expected = format!("a whole number from 1 to {DAYS_MAX}");
                    let days = days.ok_or_else(|| wrong(&expected))?;
                    now - SignedDuration::from_hours(24 * days)
                }
                _ => {
                    let expected = "name, maintained_since, min_age_days";
                    let detail =
                        format!("the parameter `{key}` is unknown, expected any of: {expected}");
                    return Err(HttpError::bad_request(detail));
                }
            };
            if since.replace(found).is_some() {
                let detail = "`maintained_since` and `min_age_days` are given together, or one of them twice: expected \
                              one of them, once";
                return Err(HttpError::bad_request(detail));
            }
        }
        if names.len() > NAMES_MAX {
            let count = names.len();
            let detail =
                format!("there are {count} names: expected `name=` at most {NAMES_MAX} times");
            return Err(HttpError::bad_request(detail));
        }
        Ok(Question { names, since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two weeks after the beginning of time, the names that are asked for and since which second.
    #[track_caller]
    fn check(query: &str, expected: Result<(&[&str], Option<i64>), &str>) {
        let now = Timestamp::from_second(14 * 86_400).expect("a time");
        let found = Question::parse(Some(query), now);
        match (found, expected) {
            (Ok(found), Ok((names, since))) => {
                assert_eq!(found.names, names, "{query}");
                assert_eq!(found.since.map(Timestamp::as_second), since, "{query}");
            }
            (Err(error), Err(says)) => {
                assert!(error.detail().contains(says), "{query}: {}", error.detail());
            }
            (found, _) => panic!("{query}: {found:?}"),
        }
    }

    #[test]
    fn questions_are_checked() {
        check("name=a&name=b&name=a", Ok((&["a", "b"], None)));
        check("name=a&min_age_days=7", Ok((&["a"], Some(7 * 86_400))));
        check("maintained_since=5&name=a", Ok((&["a"], Some(5))));
        check("name=a&maintained_since=1970-01-01T00:00:06Z", Ok((&["a"], Some(6))));
        check("", Ok((&[], None)));
        check(&"name=a&".repeat(NAMES_MAX + 1), Ok((&["a"], None)));
        let many: String = (0..=NAMES_MAX).map(|number| format!("name={number}&")).collect();
        check(&many, Err("there are 201 names"));
        check("name=", Err("`` is no value of the parameter `name`"));
        check("name=a&min_age_days=0", Err("expected a whole number from 1 to 36500"));
        check("name=a&maintained_since=yesterday", Err("expected Unix seconds"));
        check("name=a&min_age_days=1&maintained_since=1", Err("are given together"));
        check("names=a", Err("`names` is unknown"));
    }
}
