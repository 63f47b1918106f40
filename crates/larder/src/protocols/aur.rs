//! `/rpc` and its aliases: questions about packages.
//!
//! The path, the query and the body become [`aur::Params`] by aurweb's rules; the `aur` crate knows what they mean.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use account::Principal;
use aur::{Answer, Body, Outcome, Params, PathParams, Query, QueryError, SearchContext, Version};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use net::{Answered, MadeForOne};
use resources::cpu_pool::PoolError;

use super::changes::Histories;
use crate::app::rate_limit::Decision;
use crate::app::{App, Aur};
use crate::front::body::{self, Shape};
use crate::front::error::HttpError;
use crate::front::loaded::no_packages;
use crate::front::negotiation::essence;
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond, respond_now, takes_long};
use crate::routes::path::{decoded_lossily, segments};

/// A question with parameters that upstream does not have is cancelled after this much CPU time of its thread; time in which
/// other threads run does not count.
const COMPUTING_MAX: Duration = Duration::from_millis(500);

/// Answers with more packages than this are made by few threads at once: many such questions together keep nothing else waiting.
const AT_ONCE_PACKAGES_MAX: usize = 250;

/// Answers of at least this size are made in memory that later ones reuse.
const LARGE_BYTES: usize = 64 << 10;

/// Most fields of a multipart form: the names of the largest batch, and some.
const FORM_FIELDS_MAX: usize = 10_000;

/// Values in JSON at most, counted by commas and brackets; texts of other forms may have some of these, too.
const VALUES_MAX: usize = 20_000;

/// How deep the JSON of a question may be nested: two levels have a meaning.
const DEPTH_MAX: usize = 32;

/// Answers all paths under `/rpc`, `/rpc.php` and `/api` without an endpoint of their own.
pub(crate) async fn answer_question(
    app: &Arc<App>,
    head: &Parts,
    body: axum::body::Body,
) -> Result<Response, HttpError> {
    let path = head.uri.path();
    let asked = match Path::parse(path) {
        Path::Question(asked) => asked,
        Path::Redirect(target) => return Ok(redirect(target, head.uri.query())),
        Path::Unknown => return Err(HttpError::nothing_at(path)),
    };
    if head.method == Method::POST {
        return post(app, head, asked, body).await;
    }
    Ok(match read(app, head, asked) {
        QuestionOutcome::Done(response) => response,
        QuestionOutcome::Long(finished) => finished.respond(&app.aur).await,
        QuestionOutcome::Large(question) => {
            question.finish(app, head).await?.respond(&app.aur).await
        }
        QuestionOutcome::Refined(question) => {
            question.finish(app, head).await?.respond(&app.aur).await
        }
    })
}

/// Whether a GET asks nothing: then people read how to ask.
pub(crate) fn is_without_question(head: &Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    is_read
        && matches!(Path::parse(head.uri.path()), Path::Question(asked) if asked.is_without_question(head))
}

/// Whether a path is that of a question by GET, as nearly all are: the same as with the table.
pub(crate) fn is_question(path: &str) -> bool {
    path == "/rpc" || path.starts_with("/rpc/v") || path == "/rpc/" || path == "/rpc.php"
}

/// Answers a question by GET; `None` if the path is no question.
pub(crate) fn answer_question_now(app: &Arc<App>, head: &Parts) -> Option<Answered> {
    let Path::Question(asked) = Path::parse(head.uri.path()) else { return None };
    if asked.is_without_question(head) {
        return None;
    }
    Some(match read(app, head, asked) {
        QuestionOutcome::Done(response) => Answered::Now(response),
        QuestionOutcome::Long(finished) => {
            let app = app.clone();
            Answered::Later(Box::pin(async move { finished.respond(&app.aur).await }))
        }
        QuestionOutcome::Large(question) => {
            let (app, head) = (app.clone(), head.clone());
            Answered::Later(Box::pin(async move {
                finished(&app.aur, question.finish(&app, &head)).await
            }))
        }
        QuestionOutcome::Refined(question) => {
            let (app, head) = (app.clone(), head.clone());
            Answered::Later(Box::pin(async move {
                finished(&app.aur, question.finish(&app, &head)).await
            }))
        }
    })
}

/// Answers all questions to the AUR if its packages are not served: it says so, so that clients take the AUR neither for empty
/// nor for down.
pub(crate) fn is_off(app: &App) -> Response {
    let detail = match app.aur.lacks_source {
        true if app.following.is_some() => {
            "this server has no packages of the AUR: the primary that it follows has given it none; its operator can \
             name a source for them with `--aur-source FILE|URL` (`aur.source` in the configuration)"
        }
        true => {
            "this server has no packages of the AUR: it was started without a source for them, and keeps no earlier \
             dump; its operator can name one with `--aur-source FILE|URL` (`aur.source` in the configuration)"
        }
        false => {
            "this server has no packages of the AUR: its operator has switched them off (`aur.enabled = false` in the \
             configuration)"
        }
    };
    HttpError::not_found(detail).into_response()
}

/// What is known of a question beside its parameters.
struct QuestionContext {
    speaks_6: bool,
    decision: Decision,
    asked_at: Instant,
}

/// An answer that only has to be sent.
struct FinishedAnswer {
    answer: Answer,
    status: StatusCode,
    conditions: Conditions,
    decision: Decision,
}

/// Marks the body of a large answer as not shared with other answers.
fn mark(response: &mut Response, is_large: bool) {
    if is_large {
        response.extensions_mut().insert(MadeForOne);
    }
}

impl FinishedAnswer {
    /// Whether the answer is in memory that is used again when it has been sent.
    fn is_large(&self) -> bool {
        self.answer.reply.body.len() >= LARGE_BYTES
    }

    fn takes_long(&self) -> bool {
        takes_long(&self.answer.reply, &self.conditions)
    }

    fn respond_now(self, aur: &Aur) -> Response {
        let is_large = self.is_large();
        let mut response = respond_now(self.answer.reply, self.status, &self.conditions);
        mark(&mut response, is_large);
        aur.rate_limiter.insert_headers(&self.decision, response.headers_mut());
        response
    }

    async fn respond(self, aur: &Aur) -> Response {
        let is_large = self.is_large();
        let mut response = respond(self.answer.reply, self.status, self.conditions).await;
        mark(&mut response, is_large);
        aur.rate_limiter.insert_headers(&self.decision, response.headers_mut());
        response
    }
}

/// The response that `finishing` makes, or its refusal.
async fn finished(
    aur: &Aur,
    finishing: impl Future<Output = Result<FinishedAnswer, HttpError>>,
) -> Response {
    match finishing.await {
        Ok(finished) => finished.respond(aur).await,
        Err(error) => error.into_response(),
    }
}

/// The outcome of a GET.
enum QuestionOutcome {
    Done(Response),
    /// Encoding the answer takes so long that another thread does it.
    Long(FinishedAnswer),
    /// The answer has many packages.
    Large(Box<LargeQuestion>),
    /// Finding the answer may take long.
    Refined(Box<RefinedQuestion>),
}

/// Facts about packages that a snapshot does not have, by the packages' names.
type PackageFacts = BTreeMap<String, serde_json::Map<String, serde_json::Value>>;

/// A question whose answer has many packages.
struct LargeQuestion {
    query: Query,
    context: QuestionContext,
}

impl LargeQuestion {
    /// Answers it when it is its turn.
    async fn finish(self, app: &Arc<App>, head: &Parts) -> Result<FinishedAnswer, HttpError> {
        let LargeQuestion { query, context } = self;
        let (published, results_max) = (app.packages()?, app.aur.results_max.load(Relaxed));
        let making = app.aur.large.run(move || published.snapshot.answer(&query, results_max));
        let answer = making.await;
        Ok(told(app, head, context, answer, Conditions::of(&head.method, &head.headers)))
    }
}

/// A question with parameters that upstream does not have.
struct RefinedQuestion {
    params: Params,
    context: QuestionContext,
}

impl RefinedQuestion {
    /// Answers it on a thread for computations.
    async fn finish(self, app: &Arc<App>, head: &Parts) -> Result<FinishedAnswer, HttpError> {
        let RefinedQuestion { params, context } = self;
        let conditions = Conditions::of(&head.method, &head.headers);
        if !params.may_add() {
            let snapshot = app.packages()?.snapshot.clone();
            let known = Arc::default();
            let (answer, _) =
                RefinedQuestion::answer(app, params, &context, snapshot, known).await?;
            return Ok(told(app, head, context, answer, conditions));
        }
        // First finds the names of the packages, then the facts about them.
        let histories = Histories::open(app).await?;
        let snapshot = histories.published().snapshot.clone();
        let known = Arc::default();
        let asking =
            RefinedQuestion::answer(app, params.clone(), &context, snapshot.clone(), known);
        let (answer, names) = asking.await?;
        if names.is_empty() {
            return Ok(told(app, head, context, answer, conditions));
        }
        let mut known = PackageFacts::new();
        for name in names {
            let members = histories.members(&name).await?;
            known.insert(name, members);
        }
        let (answer, _) =
            RefinedQuestion::answer(app, params, &context, snapshot, Arc::new(known)).await?;
        Ok(told(app, head, context, answer, conditions))
    }

    /// Computes an answer with the facts in `known`, and the names of packages whose facts are needed.
    async fn answer(
        app: &Arc<App>,
        params: Params,
        context: &QuestionContext,
        snapshot: aur::Snapshot,
        known: Arc<PackageFacts>,
    ) -> Result<(Answer, BTreeSet<String>), HttpError> {
        let (speaks_6, results_max) = (context.speaks_6, app.aur.results_max.load(Relaxed));
        let search = move |is_over: &dyn Fn() -> bool| {
            let wanted = RefCell::new(BTreeSet::new());
            let added = |name: &str, field: &'static str| {
                let member = known.get(name).map(|members| members.get(field));
                if member.is_none() {
                    wanted.borrow_mut().insert(name.to_owned());
                }
                member.flatten().map(serde_json::Value::to_string)
            };
            let outside = SearchContext { is_over, added: &added };
            let answer = Answer::to_refined(params, &snapshot, speaks_6, results_max, &outside);
            (answer, wanted.into_inner())
        };
        search_in_turn(app, search).await
    }
}

/// Runs a search that may take long on a thread for computations, when it is its turn. `search` is given a function that says
/// whether it has computed for longer than [`COMPUTING_MAX`].
pub(crate) async fn search_in_turn<T: Send + 'static>(
    app: &App,
    search: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, HttpError> {
    let place = app.aur.refined.enter().map_err(|waiting| {
        app.metrics.cpu_pool.refused.inc();
        HttpError::uncomputed(PoolError::Full { waiting })
    })?;
    let turn = app.aur.refined.turns.take().await;
    let searching = app.limits.cpu_pool.run(move || {
        let _taken = (place, turn);
        let started_at = computed();
        search(&|| computed().saturating_sub(started_at) > COMPUTING_MAX)
    });
    searching.await.map_err(HttpError::uncomputed)
}

/// How long this thread has computed.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Answers a GET; never waits.
fn read(app: &App, head: &Parts, asked: AskedByPath) -> QuestionOutcome {
    let context = match admit(app, head, &asked) {
        Ok(context) => context,
        Err(response) => return QuestionOutcome::Done(*response),
    };
    let from_path = asked.params;
    let params = Params::from_query(from_path, head.uri.query());
    if params.are_refined() {
        return QuestionOutcome::Refined(Box::new(RefinedQuestion { params, context }));
    }
    match finish(app, head, context, params) {
        Ok(Ok(finished)) if finished.takes_long() => QuestionOutcome::Long(finished),
        Ok(Ok(finished)) => QuestionOutcome::Done(finished.respond_now(&app.aur)),
        Ok(Err(large)) => QuestionOutcome::Large(Box::new(large)),
        Err(error) => QuestionOutcome::Done(error.into_response()),
    }
}

async fn post(
    app: &Arc<App>,
    head: &Parts,
    asked: AskedByPath,
    body: axum::body::Body,
) -> Result<Response, HttpError> {
    let context = match admit(app, head, &asked) {
        Ok(context) => context,
        Err(response) => return Ok(*response),
    };
    let from_path = asked.params;
    let query = head.uri.query();
    let content_type =
        head.headers.get(CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or(""));
    let bytes_max = app.config.limits.body_bytes_max;
    let mut body = body::whole(app, head, &Principal::Anonymous, body, bytes_max).await?;
    check_count(body.iter().filter(|byte| **byte == b'&').count())?;
    // A form may be JSON that does not say so. A body that is nested too deep is not read as JSON.
    let may_be_json = is_json(content_type) || matches!(body.first(), Some(b'{' | b'['));
    let is_too_deep = may_be_json && Shape::of(&body).depth > DEPTH_MAX;
    if !is_too_deep {
        body.measured(VALUES_MAX)?;
    }
    let (body, _held) = body.into_parts();
    let body = if is_too_deep { Bytes::from_static(b"[") } else { body };
    let params = if is_multipart(content_type) {
        let boundary = multer::parse_boundary(content_type).map_err(|error| {
            HttpError::bad_request(format!("the multipart form could not be read: {error}"))
        })?;
        let fields = multipart_fields(body, boundary).await?;
        Params::from_body(from_path, query, Body::Fields(&fields))
    } else if is_json(content_type) {
        Params::from_body(from_path, query, Body::Json(&body))
    } else {
        Params::from_body(from_path, query, Body::Form(&body))
    };
    if params.are_refined() {
        return Ok(RefinedQuestion { params, context }
            .finish(app, head)
            .await?
            .respond(&app.aur)
            .await);
    }
    Ok(match finish(app, head, context, params)? {
        Ok(finished) => finished.respond(&app.aur).await,
        Err(large) => large.finish(app, head).await?.respond(&app.aur).await,
    })
}

/// The context of a question whose client may ask it; otherwise the refusal.
fn admit(app: &App, head: &Parts, asked: &AskedByPath) -> Result<QuestionContext, Box<Response>> {
    let asked_at = Instant::now();
    let client = body::client(app, head);
    let decision = app.aur.rate_limiter.check(client.key(), asked_at);
    if !decision.allowed {
        app.metrics.rpc_rate_limited.inc();
        app.metrics.refused(QueryError::RateLimited);
        // A body stays unread, so a version in a form is unknown.
        let answer = Answer::rate_limited(given_version(&asked.params, head.uri.query()));
        let status = StatusCode::TOO_MANY_REQUESTS;
        let conditions = Conditions::of(&head.method, &head.headers);
        let finished = FinishedAnswer { answer, status, conditions, decision };
        return Err(Box::new(finished.respond_now(&app.aur)));
    }
    Ok(QuestionContext { speaks_6: asked.speaks_6, decision, asked_at })
}

/// Answers the question from the current snapshot, unless the answer is large.
fn finish(
    app: &App,
    head: &Parts,
    context: QuestionContext,
    params: Params,
) -> Result<Result<FinishedAnswer, LargeQuestion>, HttpError> {
    let published = app.aur.snapshot().ok_or_else(no_packages)?;
    let conditions = Conditions::of(&head.method, &head.headers);
    let params = if conditions.wants_gzip() { params.outlined() } else { params };
    let results_max = app.aur.results_max.load(Relaxed);
    let (snapshot, speaks_6) = (&published.snapshot, context.speaks_6);
    let answer = Answer::at_once(params, snapshot, speaks_6, results_max, AT_ONCE_PACKAGES_MAX);
    drop(published);
    Ok(match answer {
        Ok(answer) => Ok(told(app, head, context, answer, conditions)),
        Err(query) => Err(LargeQuestion { query, context }),
    })
}

/// Counts an answer, and gives it its status.
fn told(
    app: &App,
    head: &Parts,
    asked: QuestionContext,
    answer: Answer,
    conditions: Conditions,
) -> FinishedAnswer {
    let status = match answer.outcome {
        Outcome::Answered(question) => {
            app.metrics.answered(&head.method, question, answer.reply.body.len());
            StatusCode::OK
        }
        Outcome::Refused { error, version, asked: question } => {
            app.metrics.refused(error);
            if let Some(question) = question {
                app.metrics.found_too_many(&head.method, question, answer.reply.body.len());
            }
            let is_bad = error.is_malformed() || (version == Version::V6 && asked.speaks_6);
            if is_bad { StatusCode::BAD_REQUEST } else { StatusCode::OK }
        }
    };
    app.metrics.rpc_duration.observe(asked.asked_at.elapsed().as_secs_f64());
    FinishedAnswer { answer, status, conditions, decision: asked.decision }
}

/// The parts of a question that are in its path.
struct AskedByPath {
    params: PathParams,
    speaks_6: bool,
}

impl AskedByPath {
    /// Whether neither the path nor the query asks anything.
    fn is_without_question(&self, head: &Parts) -> bool {
        self.params.version.is_none() && head.uri.query().is_none_or(str::is_empty)
    }
}

/// What a path asks.
enum Path<'a> {
    Question(AskedByPath),
    /// A redirect to this path without its trailing slashes.
    Redirect(&'a str),
    Unknown,
}

impl Path<'_> {
    fn parse(path: &str) -> Path<'_> {
        let trimmed = path.trim_end_matches('/');
        let mut segments = segments(trimmed).skip(1);
        let first = segments.next().unwrap_or_default();
        let is_api = first == "api";
        let Some(version) = segments.next() else {
            // One trailing slash is ignored; more are a mistake.
            return if path.len() > trimmed.len() + 1 {
                Path::Redirect(trimmed)
            } else {
                let params = PathParams::default();
                Path::Question(AskedByPath { params, speaks_6: is_api })
            };
        };
        let Some(version) = version.strip_prefix('v').filter(|_| first != "rpc.php") else {
            return Path::Unknown;
        };
        let mut parts = [""; 5];
        let mut count = 0;
        for segment in segments {
            let Some(part) = parts.get_mut(count) else { return Path::Unknown };
            *part = segment;
            count += 1;
        }
        let decode = |text| Some(decoded_lossily(text).into_owned());
        let mut params = PathParams { version: decode(version), ..PathParams::default() };
        match (&parts[..count], version) {
            (&[type_], _) => params.type_ = decode(type_),
            (&[type_, arg], _) => {
                (params.type_, params.arg) = (decode(type_), decode(arg));
            }
            (&[type_, by, arg], "6") => {
                (params.type_, params.by, params.arg) = (decode(type_), decode(by), decode(arg));
            }
            (&[type_, by, mode, arg], "6") => {
                (params.type_, params.by) = (decode(type_), decode(by));
                (params.mode, params.arg) = (decode(mode), decode(arg));
            }
            _ => return Path::Unknown,
        }
        if path.len() > trimmed.len() {
            return Path::Redirect(trimmed);
        }
        Path::Question(AskedByPath { params, speaks_6: is_api || version == "6" })
    }
}

/// 307 to a path on this server.
pub(crate) fn redirect(path: &str, query: Option<&str>) -> Response {
    let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    match HeaderValue::from_str(&target) {
        Ok(target) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target)]).into_response(),
        Err(_) => HttpError::not_found(format!("nothing is at `{path}/`")).into_response(),
    }
}

/// The version in path or query, for an error that names it.
fn given_version(path: &PathParams, query: Option<&str>) -> Option<i64> {
    let text = path.version.clone().or_else(|| {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        pairs.filter(|(key, _)| key == "v").last().map(|(_, value)| value.into_owned())
    });
    text.and_then(|text| text.trim().parse().ok())
}

fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type);
    essence.eq_ignore_ascii_case("application/json")
        || essence.rsplit_once('+').is_some_and(|(_, suffix)| suffix.eq_ignore_ascii_case("json"))
}

fn is_multipart(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case("multipart/form-data")
}

/// Whether a form or JSON has more parts than are taken, counted before any is built.
fn check_count(count: usize) -> Result<(), HttpError> {
    if count > FORM_FIELDS_MAX {
        let detail =
            format!("the body has more than {FORM_FIELDS_MAX} fields, the most that is accepted");
        return Err(HttpError::too_large(detail));
    }
    Ok(())
}

/// The parameters that are texts, and no files.
const TEXTS: [&str; 6] = ["v", "type", "by", "arg", "arg[]", "callback"];

/// The text fields of a multipart form. As in aurweb, a field without its end and a file are left out.
async fn multipart_fields(
    body: Bytes,
    boundary: String,
) -> Result<Vec<(String, String)>, HttpError> {
    use multer::Error::{IncompleteFieldData, IncompleteHeaders, IncompleteStream};
    let bad = |error: multer::Error| {
        HttpError::bad_request(format!("the multipart form could not be read: {error}"))
    };
    let stream = futures_util::stream::once(async move { Ok::<_, std::convert::Infallible>(body) });
    let mut form = multer::Multipart::new(stream, boundary);
    let mut fields = Vec::new();
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) | Err(IncompleteHeaders | IncompleteStream) => break,
            Err(error) => return Err(bad(error)),
        };
        check_count(fields.len() + 1)?;
        let name = field.name().unwrap_or_default().to_owned();
        if field.file_name().is_some() && TEXTS.contains(&name.as_str()) {
            let detail = format!("`{name}` is a file: expected a text");
            return Err(HttpError::unusable(detail));
        }
        match field.bytes().await {
            Ok(value) => fields.push((name, String::from_utf8_lossy(&value).into_owned())),
            Err(IncompleteFieldData { .. } | IncompleteStream) => break,
            Err(error) => return Err(bad(error)),
        }
    }
    Ok(fields)
}
