//! `/+osv/v1/…`: known malware and vulnerabilities, in the shape of OSV's API (<https://google.github.io/osv.dev/api/>).
//!
//! body -> [`Query`] -> [`Sought`] -> [`pypi::osv::Advisories::affecting`] -> identifiers, or whole records read from the
//! bundle. Until the first bundle is read, the answer is 503, so that no package seems harmless.
//!
//! An answer has a bounded size. The rest is left for the next request, which sends `next_page_token` as `page_token`; it is
//! the identifier of the last record that was sent, so it holds when a new bundle is published in between.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use account::Principal;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use percent_encoding::percent_decode_str;
use pypi::osv::{Advisories, Advisory, ECOSYSTEM, RECORD_BYTES_MAX, is_ecosystem, is_id};
use pypi::{ProjectName, Version};
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::front::body;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::published::advisories::ServedBundle;
use crate::routes::Route;

/// Size of a body, and values in it.
const BODY_BYTES_MAX: usize = 512 << 10;
const VALUES_MAX: usize = 20_000;

/// Queries in a batch, as in OSV's API.
const QUERIES_MAX: usize = 1000;

/// Identifiers in the answer to a batch, to one query of it, and comparisons of versions for all of them.
const BATCH_IDS_MAX: usize = 5000;
const QUERY_IDS_MAX: usize = 1000;
const COMPARISONS_MAX: usize = 50_000;

/// Whole records in one answer, and their size; one record may be larger.
const RECORDS_MAX: usize = 200;
const RECORDS_BYTES_MAX: u64 = RECORD_BYTES_MAX;

/// Prefix of the identifier in a token, so that a token without an identifier is not empty.
const TOKEN_PREFIX: &str = "after:";

/// A query. Members that are not known are passed over, as by OSV.
#[derive(Deserialize)]
struct Query<'text> {
    #[serde(borrow, default)]
    commit: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    version: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    package: Option<Package<'text>>,
    #[serde(borrow, default)]
    page_token: Option<Cow<'text, str>>,
}

#[derive(Deserialize)]
struct Package<'text> {
    #[serde(borrow, default)]
    name: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    ecosystem: Option<Cow<'text, str>>,
    #[serde(borrow, default)]
    purl: Option<Cow<'text, str>>,
}

#[derive(Deserialize)]
struct Batch<'text> {
    #[serde(borrow, default)]
    queries: Vec<Query<'text>>,
}

/// The package that a query is about.
struct Sought {
    /// `None` for a commit, or for a package of another ecosystem: no records are known for these.
    project: Option<ProjectName>,
    version: Option<Version>,
    /// Only records after this identifier.
    after: String,
}

/// Why there is no result.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    /// gRPC's code, as OSV answers it.
    code: u8,
    message: String,
    retry_after_seconds: Option<u32>,
}

impl Refusal {
    fn invalid(message: impl Into<String>) -> Refusal {
        let (status, code) = (StatusCode::BAD_REQUEST, 3);
        Refusal { status, code, message: message.into(), retry_after_seconds: None }
    }

    fn not_found() -> Refusal {
        let (status, code) = (StatusCode::NOT_FOUND, 5);
        Refusal { status, code, message: "Bug not found.".to_owned(), retry_after_seconds: None }
    }
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Refusal {
        let (status, message, retry_after_seconds) = error.into_facts();
        let code = match status.as_u16() {
            413 | 429 => 8,
            503 => 14,
            status if status < 500 => 3,
            _ => 13,
        };
        Refusal { status, code, message, retry_after_seconds }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"code": self.code, "message": self.message}).to_string();
        let mut response = answer(self.status, body);
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn answer(status: StatusCode, body: impl Into<Body>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")];
    (status, headers, body.into()).into_response()
}

/// `POST /+osv/v1/query`: the whole records that affect a package.
pub(crate) async fn query(app: &App, head: &Parts, body: Body) -> Response {
    let answering = async {
        let served = served(app)?;
        let body = received(app, head, body).await?;
        let sought =
            body::parsed(app, body.len(), move || parsed(&body).and_then(Sought::of)).await?;
        let read = move || whole_records(&served, &sought);
        app.python.reading_advisories.run(read).await
    };
    answered(answering.await)
}

/// `POST /+osv/v1/querybatch`: the identifiers of the records that affect each of many packages.
pub(crate) async fn query_batch(app: &App, head: &Parts, body: Body) -> Response {
    let answering = async {
        let served = served(app)?;
        let body = received(app, head, body).await?;
        let sought = body::parsed(app, body.len(), move || sought_by_batch(&body)).await?;
        let finding = move || identifiers(&served.bundle.advisories, &sought).into_bytes();
        Ok(app.python.reading_advisories.run(finding).await)
    };
    answered(answering.await)
}

fn sought_by_batch(body: &[u8]) -> Result<Vec<Sought>, Refusal> {
    let batch: Batch<'_> = parsed(body)?;
    if batch.queries.len() > QUERIES_MAX {
        let count = batch.queries.len();
        return Err(Refusal::invalid(format!(
            "Too many queries: {count}, at most {QUERIES_MAX} were expected."
        )));
    }
    batch.queries.into_iter().map(Sought::of).collect()
}

/// `GET /+osv/v1/vulns/{id}`: a whole record.
pub(crate) async fn show_record(app: &App, route: &Route) -> Response {
    let answering = async {
        let served = served(app)?;
        let place = served.bundle.advisories.by_id(&route.name("{id}")).map(Advisory::place);
        let place = place.ok_or_else(Refusal::not_found)?;
        app.python.reading_advisories.run(move || record(&served, place)).await
    };
    answered(answering.await)
}

fn answered(outcome: Result<Vec<u8>, Refusal>) -> Response {
    outcome.map_or_else(Refusal::into_response, |body| answer(StatusCode::OK, body))
}

fn served(app: &App) -> Result<Arc<ServedBundle>, Refusal> {
    app.python.advisories.served().ok_or_else(|| {
        let message = "no OSV records are loaded: `advisories.source` says where they come from, and `larder import-osv` brings some";
        HttpError::unavailable(message, 60).into()
    })
}

async fn received(app: &App, head: &Parts, body: Body) -> Result<body::HeldBody, Refusal> {
    // Everybody may ask and gets the same answer.
    let sender = Principal::default();
    let mut body = body::whole(app, head, &sender, body, BODY_BYTES_MAX)
        .await
        .map_err(|error| Refusal::from(HttpError::from(error)))?;
    body.measured(VALUES_MAX).map_err(|error| Refusal::from(HttpError::from(error)))?;
    Ok(body)
}

fn parsed<'body, T: Deserialize<'body>>(body: &'body [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("the body is no query: {error}")))
}

impl Sought {
    fn of(query: Query<'_>) -> Result<Sought, Refusal> {
        let after = match query.page_token.as_deref() {
            None | Some("") => "",
            Some(token) => token
                .strip_prefix(TOKEN_PREFIX)
                .filter(|id| id.is_empty() || is_id(id))
                .ok_or_else(|| Refusal::invalid("`page_token` is not one of this server."))?,
        };
        let mut sought = Sought { project: None, version: None, after: after.to_owned() };
        let mut version = query.version.filter(|version| !version.is_empty());
        let Some(package) = query.package else {
            return match query.commit {
                Some(_) => Ok(sought),
                None => Err(Refusal::invalid("Invalid query: a `package` was expected.")),
            };
        };
        let name = match (package.purl, package.name) {
            (Some(_), name) if name.is_some() || package.ecosystem.is_some() => {
                return Err(Refusal::invalid(
                    "`purl` was given with `name` or `ecosystem`; one of both was expected.",
                ));
            }
            (Some(purl), _) => {
                let purl = Purl::parse(&purl).ok_or_else(|| {
                    Refusal::invalid(
                        "`purl` is no package URL; one such as pkg:pypi/name@1.0 was expected.",
                    )
                })?;
                if version.is_some() && purl.version.is_some() {
                    return Err(Refusal::invalid("There are two versions, one in the `purl`."));
                }
                version = version.or(purl.version.map(Cow::Owned));
                if !purl.is_of_ecosystem {
                    return Ok(sought);
                }
                Cow::Owned(purl.name)
            }
            (None, Some(name)) if !name.is_empty() => {
                let ecosystem = package.ecosystem.unwrap_or_default();
                if ecosystem.is_empty() {
                    return Err(Refusal::invalid("Invalid query: `ecosystem` is missing."));
                }
                if !is_ecosystem(&ecosystem) {
                    return Ok(sought);
                }
                name
            }
            (None, _) => return Err(Refusal::invalid("Invalid query: `name` is missing.")),
        };
        // An invalid name is answered as any unknown package: nothing is known of it. But a record may affect all versions, so
        // for an invalid version there is no answer.
        sought.project = ProjectName::normalize(&name).ok();
        if let Some(version) = version {
            sought.version = Some(Version::parse(&version).map_err(|_| {
                let shown = record::excerpt(&version, 100);
                Refusal::invalid(format!("`{shown}` is no version; one such as 1.0 was expected."))
            })?);
        }
        Ok(sought)
    }

    /// The records that affect it, after those that were sent before.
    fn found<'own>(&'own self, known: &'own Advisories) -> impl Iterator<Item = &'own Advisory> {
        let project = self.project.as_ref();
        let found = project
            .map(|project| known.affecting(project, self.version.as_ref()))
            .into_iter()
            .flatten();
        found.filter(|advisory| *advisory.id() > *self.after)
    }
}

/// The parts of a package URL that are used.
struct Purl {
    is_of_ecosystem: bool,
    name: String,
    version: Option<String>,
}

impl Purl {
    /// `pkg:pypi/name@1.0?…#…`
    fn parse(text: &str) -> Option<Purl> {
        let rest = text.strip_prefix("pkg:")?.trim_start_matches('/');
        let rest = rest.split(['?', '#']).next()?;
        let (kind, path) = rest.split_once('/')?;
        let decoded = |text: &str| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
        let last = path.rsplit('/').next()?;
        let (name, version) = match last.split_once('@') {
            Some((name, version)) => (name, Some(decoded(version)?)),
            None => (last, None),
        };
        let name = decoded(name).filter(|name| !name.is_empty())?;
        let is_of_ecosystem = kind.eq_ignore_ascii_case(ECOSYSTEM);
        Some(Purl { is_of_ecosystem, name, version: version.filter(|it| !it.is_empty()) })
    }
}

/// The answer to a batch.
fn identifiers(known: &Advisories, all: &[Sought]) -> String {
    let mut text = String::from("{\"results\":[");
    let (mut room, mut compared) = (BATCH_IDS_MAX, 0);
    for (position, sought) in all.iter().enumerate() {
        text.push_str(if position == 0 { "{" } else { ",{" });
        let compared_before = compared;
        if compared <= COMPARISONS_MAX {
            compared += sought.project.as_ref().map_or(0, |project| known.comparisons(project));
        }
        // The first query with comparisons is answered in any case, so that a batch always gets on.
        if room == 0 || compared_before > 0 && compared > COMPARISONS_MAX {
            push_token(&mut text, &sought.after);
            text.push('}');
            continue;
        }
        let room_of_query = room.min(QUERY_IDS_MAX);
        let (mut count, mut last) = (0, None);
        for advisory in sought.found(known) {
            if count == room_of_query {
                text.push_str("],");
                push_token(&mut text, last.unwrap_or_default());
                break;
            }
            text.push_str(if count == 0 { "\"vulns\":[" } else { "," });
            // Identifiers and times need no escapes.
            text.push_str("{\"id\":\"");
            text.push_str(advisory.id());
            text.push_str("\",\"modified\":\"");
            text.push_str(&advisory.modified().to_string());
            text.push_str("\"}");
            (count, last) = (count + 1, Some(advisory.id()));
        }
        if count > 0 && !text.ends_with('"') {
            text.push(']');
        }
        room -= count;
        text.push('}');
    }
    text.push_str("]}");
    text
}

fn push_token(text: &mut String, after: &str) {
    text.push_str("\"next_page_token\":\"");
    text.push_str(TOKEN_PREFIX);
    text.push_str(after);
    text.push('"');
}

/// The answer to a query. This blocks.
fn whole_records(served: &ServedBundle, sought: &Sought) -> Result<Vec<u8>, Refusal> {
    let (mut body, mut count, mut bytes, mut last) = (b"{".to_vec(), 0, 0, "");
    for advisory in sought.found(&served.bundle.advisories) {
        bytes += served.bundle.record_bytes(advisory);
        if count == RECORDS_MAX || count > 0 && bytes > RECORDS_BYTES_MAX {
            let mut token = String::from("],");
            push_token(&mut token, last);
            body.extend_from_slice(token.as_bytes());
            body.push(b'}');
            return Ok(body);
        }
        body.extend_from_slice(if count == 0 { b"\"vulns\":[" } else { b"," });
        body.append(&mut record(served, advisory.place())?);
        (count, last) = (count + 1, advisory.id());
    }
    body.extend_from_slice(if count == 0 { b"}" } else { b"]}" });
    Ok(body)
}

/// A whole record. This blocks.
fn record(served: &ServedBundle, place: u32) -> Result<Vec<u8>, Refusal> {
    served.bundle.record(place).map_err(|error| {
        if !served.has_failed.swap(true, Relaxed) {
            tracing::error!(%error, "an OSV record cannot be read any more from the bundle");
        }
        HttpError::internal("the record cannot be read; it has been logged").into()
    })
}

#[cfg(test)]
mod tests;
