//! The simple pages: from memory where they are finished, and made once where they are not.

pub(crate) mod mirrored;

use ::reply::Encoding;
use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_MATCH, USER_AGENT, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use memchr::memchr;
use net::Answered;
use pypi::{Links, NoPage, Page, PageForm, PageRequest, ProjectName, ResolutionOrder};
use resources::turns::ThreadShare;
use state::stored::Stored;

use super::ask::{Ask, is_installer};
use super::error::ApiError;
use super::names::Project;
use super::rights::{IndexPart, admit, refused_reader};
use super::{insert_headers, reply};
use crate::app::{App, Python};
use crate::front::conditional::check_expected;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::negotiation::{
    accepted_encoding, has_any, has_known_tag, media_ranges, named_weight,
};
use crate::front::request::Parts;
use crate::front::respond::{Conditions, LINKS_ALONE, respond_now};
use crate::front::serial;
use crate::front::turns::turn;

/// With this header, whatever its value, links are absolute.
pub(crate) const X_DEVPI_ABSOLUTE_URLS: HeaderName =
    HeaderName::from_static("x-devpi-absolute-urls");

/// For pages whose form `Accept` names. Most installers name it, and can share a cache.
const VARIES_BY_ACCEPT: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

/// How the media types of pages begin.
const SIMPLE: &str = "application/vnd.pypi.simple.";
const HTML: &str = "text/html";
const XHTML: &str = "application/xhtml+xml";

/// Room for the headers of a page and those of devpi, so that their map does not grow.
const HEADERS_MAX: usize = 14;

/// An upload must be visible at once, so caches revalidate each time; the answer is mostly 304.
const PUBLIC: HeaderValue = HeaderValue::from_static("max-age=0, must-revalidate");
const PRIVATE: HeaderValue = HeaderValue::from_static("private, max-age=0, must-revalidate");

/// The stage and the project of a path that needs no closer look, as nearly all pages are asked for.
pub(crate) fn simple_page(path: &str) -> Option<(&str, &str)> {
    let plus = memchr(b'+', path.as_bytes())?;
    let project = path[plus..].strip_prefix("+simple/")?.strip_suffix('/')?;
    let stage = path[..plus].strip_prefix('/')?.strip_suffix('/')?;
    let is_plain = ProjectName::is_normalized(project)
        && stage.bytes().filter(|byte| *byte == b'/').count() == 1
        && !stage.contains('%');
    is_plain.then_some((stage, project))
}

/// Answers with a finished page of a project that everybody may read.
pub(crate) fn show_simple_page_now(
    app: &App,
    head: &Parts,
    stage: &str,
    project: &str,
) -> Option<Answered> {
    let closer =
        [&serial::X_LARDER_SERIAL, &serial::X_DEVPI_SERIAL, &X_DEVPI_ABSOLUTE_URLS, &IF_MATCH];
    if has_any(&head.headers, closer) {
        return None;
    }
    let stored = app.live_store.snapshot()?;
    let wanted = NegotiatedForm::of(&head.headers).ok()?;
    let request = PageRequest { stage, project, form: wanted.form, depth: 4 };
    let response = match app.python.pages.ready(&stored.index, request) {
        Some(page) => respond_if_open(&head.headers, &stored, &page, &wanted)?,
        None => mirrored::page_now(&app.python.mirrors, &head.headers, &stored, request, &wanted)?,
    };
    Some(Answered::Finished(response))
}

/// The response with a page that everybody may read, if it is there in the client's encoding.
fn respond_if_open(
    request: &HeaderMap,
    stored: &Stored,
    page: &Page,
    wanted: &NegotiatedForm,
) -> Option<Response> {
    let encoding = accepted_encoding(request);
    let is_at_hand = page.is_public() && page.body().has(encoding);
    is_at_hand.then(|| respond(request, stored, page, wanted, encoding))
}

/// The form of a page that a client wants.
struct NegotiatedForm {
    form: PageForm,
    content_type: &'static str,
    /// `Accept` leaves the form to us, and it depends on the `User-Agent`.
    varies_by_agent: bool,
}

impl NegotiatedForm {
    /// HTML in the form that suits the client.
    fn html(form: PageForm) -> NegotiatedForm {
        NegotiatedForm { form, content_type: PageForm::Html.content_type(), varies_by_agent: true }
    }

    fn json() -> NegotiatedForm {
        let content_type = PageForm::Json.content_type();
        NegotiatedForm { form: PageForm::Json, content_type, varies_by_agent: false }
    }

    fn varies(&self) -> HeaderValue {
        if self.varies_by_agent { reply::VARIES } else { VARIES_BY_ACCEPT }
    }

    /// The form with the highest weight in `Accept`; HTML by default. An error if `Accept` names only versions of the API that
    /// do not exist here.
    fn of(headers: &HeaderMap) -> Result<NegotiatedForm, ()> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let accept = text(ACCEPT).unwrap_or("*/*");
        let html = || {
            let is_installer = text(USER_AGENT).is_some_and(is_installer);
            if is_installer { PageForm::Html } else { PageForm::Human }
        };
        let mut best: Option<(f32, NegotiatedForm)> = None;
        let mut has_other = false;
        for (media_type, weight) in media_ranges(accept) {
            let is_one_of = |text: &str, names: &[&str]| {
                names.iter().any(|name| text.eq_ignore_ascii_case(name))
            };
            let start = media_type.get(..SIMPLE.len());
            let is_simple = start.is_some_and(|start| start.eq_ignore_ascii_case(SIMPLE));
            let wanted = match is_simple.then(|| &media_type[SIMPLE.len()..]) {
                Some(version) if is_one_of(version, &["v1+json", "latest+json"]) => {
                    NegotiatedForm::json()
                }
                Some(version) if is_one_of(version, &["v1+html", "latest+html"]) => {
                    NegotiatedForm {
                        form: PageForm::Html,
                        content_type: "application/vnd.pypi.simple.v1+html",
                        varies_by_agent: false,
                    }
                }
                Some(_) => continue,
                // Who takes anything but HTML gets JSON.
                None if media_type == "*/*" && named_weight(accept, HTML) == Some(0.0) => {
                    NegotiatedForm::json()
                }
                None if is_one_of(media_type, &[HTML, "text/*", "*/*", XHTML]) => {
                    NegotiatedForm::html(html())
                }
                None => {
                    has_other = true;
                    continue;
                }
            };
            if weight > 0.0 && best.as_ref().is_none_or(|(other, _)| weight > *other) {
                best = Some((weight, wanted));
            }
        }
        match best {
            Some((_, wanted)) => Ok(wanted),
            None if has_other => Ok(NegotiatedForm::html(html())),
            None => Err(()),
        }
    }
}

/// `/{user}/{index}/+simple/{project}/`
pub(crate) async fn show_simple_page(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    if !project.as_sent.is_ascii() {
        return Ok(reply::refusal(
            ask,
            StatusCode::BAD_REQUEST,
            "unicode project names not allowed",
        ));
    }
    let Some(name) = &project.name else { return Ok(no_project(ask, project)) };
    let has_slash = ask.path.ends_with('/');
    if !project.is_normalized() {
        let start = ask.path.trim_end_matches('/');
        let start = start.rfind('/').map_or("", |at| &start[..at]);
        let slash = if has_slash { "/" } else { "" };
        return Ok(reply::redirect(ask, &format!("{start}/{name}{slash}")));
    }
    // People are sent to where the page's links are right by themselves.
    let is_simple =
        ["/+simple/", "/%2Bsimple/", "/simple/"].iter().any(|word| ask.path.contains(word));
    let Ok(wanted) = NegotiatedForm::of(&ask.head.headers) else { return Ok(not_acceptable(ask)) };
    if is_simple && !has_slash && wanted.form == PageForm::Human {
        return Ok(reply::redirect(ask, &format!("{}/", ask.path)));
    }
    page(ask, stage, Some(name), wanted).await
}

fn no_project(ask: &Ask, project: &Project) -> Response {
    let text = format!("The project {} does not exist.", project.as_sent);
    reply::refusal(ask, StatusCode::NOT_FOUND, &text)
}

/// `POST` of `…/refresh`: redirects to the page. A stage is always fresh; upstreams of mirrors are asked again.
pub(crate) async fn refresh_page(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    let Some(order) = ResolutionOrder::of(&ask.stored.index, stage) else {
        return Ok(reply::refused(ask, &HttpError::unknown_stage(stage)));
    };
    let Some(name) = &project.name else { return Ok(no_project(ask, project)) };
    if order.has_mirror() {
        admit(ask, &order, IndexPart::Project(Some(name))).await?;
        mirrored::refresh(&ask.app.python.mirrors, &order, name).await?;
    }
    Ok(reply::redirect(ask, &format!("/{}/+simple/{name}/", in_path(stage))))
}

/// `POST` where only pages are: some upload to the URL that they install from.
pub(crate) fn no_uploads(ask: &Ask, stage: &str) -> Response {
    let url = format!("{}/{}/", ask.root_url(), in_path(stage));
    let text = format!("nothing can be uploaded to the pages of {stage}: its uploads go to {url}");
    reply::upload_refusal(ask, StatusCode::NOT_FOUND, &text)
}

/// `/{user}/{index}/+simple/`
pub(crate) async fn list_projects(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let Ok(wanted) = NegotiatedForm::of(&ask.head.headers) else { return Ok(not_acceptable(ask)) };
    page(ask, stage, None, wanted).await
}

async fn page(
    ask: &Ask,
    stage: &str,
    project: Option<&ProjectName>,
    wanted: NegotiatedForm,
) -> Result<Response, ApiError> {
    let depth = ask.path.matches('/').count().saturating_sub(1);
    let depth = u8::try_from(depth).unwrap_or(u8::MAX);
    let name = project.map_or("", ProjectName::as_str);
    let request = PageRequest { stage, project: name, form: wanted.form, depth };
    let (pages, index) = (&ask.app.python.pages, &ask.stored.index);
    let encoding = accepted_encoding(&ask.head.headers);
    let page = match pages.ready(index, request).filter(|page| page.body().has(encoding)) {
        Some(page) => Ok(page),
        None => {
            // These pages have no mirror among their stages.
            if let Some(order) = ResolutionOrder::of(index, stage).filter(|it| it.has_mirror()) {
                return Ok(mirrored::page(ask, &order, project, request, &wanted).await?);
            }
            let _turn = turn(making(&ask.app.python, project)).await?;
            // Making a page may take long: other tasks of this thread move to another.
            tokio::task::block_in_place(|| {
                pages.page(index, request).inspect(|page| {
                    page.body().form(encoding);
                })
            })
        }
    };
    let page = match page {
        Ok(page) => page,
        // Senders who may not read the stage do not learn whether the project exists.
        Err(none @ NoPage::NoProject(_)) => {
            if let Some(order) = ResolutionOrder::of(index, stage) {
                admit(ask, &order, IndexPart::Project(project)).await?;
            }
            return Ok(reply::refusal(ask, StatusCode::NOT_FOUND, &none.to_string()));
        }
        Err(none) => return Ok(reply::refusal(ask, StatusCode::NOT_FOUND, &none.to_string())),
    };
    if !page.is_public() {
        let principal = ask.principal().await?;
        if !page.admits(&principal, request) {
            let own = index.stage(stage).map(|own| &**own);
            return Err(refused_reader(&principal, own, request.portion()).into());
        }
    }
    if ask.head.headers.contains_key(X_DEVPI_ABSOLUTE_URLS) {
        let _turn = turn(making(&ask.app.python, project)).await?;
        return Ok(tokio::task::block_in_place(|| absolute(ask, &page, request, &wanted)));
    }
    Ok(checked(ask, &page, &wanted, encoding)?)
}

/// The turns to make the page of a project, or the list.
fn making<'app>(python: &'app Python, project: Option<&ProjectName>) -> &'app ThreadShare {
    if project.is_some() { &python.making_pages } else { &python.making_lists }
}

/// The page with absolute links, made for this request. Takes long.
fn absolute(ask: &Ask, page: &Page, request: PageRequest<'_>, wanted: &NegotiatedForm) -> Response {
    let links = Links::Absolute(ask.root_url());
    let PageRequest { stage, project, form, .. } = request;
    let now = Timestamp::now();
    let rendering = || pypi::render(&ask.stored.index, stage, project, form, links, now);
    let reply = match rendering() {
        Ok(rendered) => rendered.reply,
        Err(none) => return reply::refusal(ask, StatusCode::NOT_FOUND, &none.to_string()),
    };
    let conditions = Conditions::of(&ask.head.method, &ask.head.headers);
    let mut response = respond_now(reply, StatusCode::OK, &conditions);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(wanted.content_type));
    headers.insert(VARY, wanted.varies());
    headers.insert(CACHE_CONTROL, if page.is_public() { PUBLIC } else { PRIVATE });
    response
}

/// [`respond`], for a request that may expect another page.
fn checked(
    ask: &Ask,
    page: &Page,
    wanted: &NegotiatedForm,
    encoding: Encoding,
) -> Result<Response, HttpError> {
    let request = &ask.head.headers;
    check_expected(request, |tags| page.reply().is_matched_by(tags), None)?;
    Ok(respond(request, &ask.stored, page, wanted, encoding))
}

fn respond(
    request: &HeaderMap,
    stored: &Stored,
    page: &Page,
    wanted: &NegotiatedForm,
    encoding: Encoding,
) -> Response {
    let is_known = has_known_tag(request, |tags| page.reply().is_known_by(tags));
    let body = if is_known { Body::empty() } else { page.body().form(encoding).clone().into() };
    let mut response = Response::new(body);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    // A copy takes less time than to insert each header.
    let sent_in = (!is_known).then_some(encoding);
    *headers = head(stored, wanted, sent_in, page.is_public()).clone();
    if let Ok(tag) = HeaderValue::from_str(page.tag(encoding)) {
        headers.insert(ETAG, tag);
    }
    response
}

/// All headers of a page but the value of its tag; `sent_in` is `None` for a 304.
fn head<'stored>(
    stored: &'stored Stored,
    wanted: &NegotiatedForm,
    sent_in: Option<Encoding>,
    is_public: bool,
) -> &'stored HeaderMap {
    stored.heads.of(kind_of_head(wanted, sent_in, is_public), || {
        let mut headers = HeaderMap::with_capacity(HEADERS_MAX);
        if let Some(encoding) = sent_in {
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            if wanted.form != PageForm::Json {
                headers.insert(CONTENT_SECURITY_POLICY, LINKS_ALONE);
            }
            if let Some(name) = encoding.header_value() {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(wanted.content_type));
        headers.insert(ETAG, HeaderValue::from_static(""));
        headers.insert(VARY, wanted.varies());
        headers.insert(CACHE_CONTROL, if is_public { PUBLIC } else { PRIVATE });
        insert_headers(&mut headers, stored);
        headers
    })
}

/// The number of a head among the [`Heads`](state::stored::AnswerHeads) of a state: those with the same number are equal.
fn kind_of_head(wanted: &NegotiatedForm, sent_in: Option<Encoding>, is_public: bool) -> usize {
    let form = match (wanted.form, wanted.varies_by_agent) {
        (PageForm::Json, _) => 0,
        (_, true) => 1,
        (_, false) => 2,
    };
    let sent = sent_in.map_or(0, |encoding| 1 + encoding as usize);
    (form * 4 + sent) * 2 + usize::from(is_public)
}

fn not_acceptable(ask: &Ask) -> Response {
    let text = format!(
        "`{}` is not served: application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html and \
         text/html are",
        ask.accept()
    );
    reply::refusal(ask, StatusCode::NOT_ACCEPTABLE, &text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use config::Config;
    use state::stored::AnswerHeads;

    use super::*;

    #[test]
    fn each_head_is_that_of_its_page() {
        let stored = Stored::of_server(&Config::default());
        let forms = || {
            let html =
                NegotiatedForm { varies_by_agent: false, ..NegotiatedForm::html(PageForm::Html) };
            [NegotiatedForm::json(), NegotiatedForm::html(PageForm::Human), html]
        };
        let sent = [None, Some(Encoding::Identity), Some(Encoding::Gzip), Some(Encoding::Zstd)];
        let mut kinds = HashSet::new();
        // Twice, so that each head is found again.
        for (wanted, sent_in) in
            forms().iter().chain(&forms()).flat_map(|it| sent.map(|sent| (it, sent)))
        {
            for is_public in [true, false] {
                kinds.insert(kind_of_head(wanted, sent_in, is_public));
                let head = head(&stored, wanted, sent_in, is_public);
                assert_eq!(head[CONTENT_TYPE], wanted.content_type);
                assert_eq!(head[VARY], wanted.varies());
                assert_eq!(head[CACHE_CONTROL], if is_public { PUBLIC } else { PRIVATE });
                let encoding = head.get(CONTENT_ENCODING).map(|name| name.to_str().expect("text"));
                assert_eq!(encoding, sent_in.and_then(Encoding::header_value));
                let has_policy = sent_in.is_some() && wanted.form != PageForm::Json;
                assert_eq!(head.contains_key(CONTENT_SECURITY_POLICY), has_policy);
            }
        }
        assert_eq!(
            kinds.len(),
            AnswerHeads::KINDS,
            "each has a number of its own, and none is left"
        );
        assert!(kinds.iter().all(|kind| *kind < AnswerHeads::KINDS), "{kinds:?}");
    }
}
