//! Shared by all pages for people: where their links lead; headers that say what a browser may load and run and forbid frames;
//! caching; and the page for an error.
//!
//! If programs get something else at the same path, a handler first asks [`wants_page`]. It fills a template that extends
//! `layout.html` and has a field `site`, and gives it to [`send`].

use std::sync::{Arc, LazyLock};

use account::{Object, Principal, Scope};
use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use config::SiteLink;
use futures_util::FutureExt as _;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    RETRY_AFTER, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use markup::Target;
use reply::Reply;
use serde::Deserialize;

use super::assets::SCRIPT;
use super::auth::LoggedIn;
use super::auth::session::vary_by_cookie;
use super::error::HttpError;
use super::negotiation::names_first;
use super::outside::{self, root_url};
use super::respond::{Conditions, respond, respond_kept};
use super::site_files::{PageFile, SiteFiles};
use crate::app::App;
use crate::app::brand::Brand;
use crate::front::request::Parts;
use crate::published::finished_pages::MadeOf;

const HTML: &str = "text/html; charset=utf-8";

/// What a browser may do on a page. The one script is named by its digest, not by its path: this server also has files of
/// strangers.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; style-src 'self'; script-src '{}'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        SCRIPT.integrity
    );
    HeaderValue::try_from(policy).expect("digests are ASCII")
});

/// Bytes of a path and query that a browser returns to after logging in.
const PLACE_BYTES_MAX: usize = 2_000;

/// An error that is made a page has a short text; a longer body is something else.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Who a page was made for, which decides who may cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Everybody: nothing but the header of the page depends on the reader.
    Everybody,
    /// Readers with the same rights: the page shows, or leaves out, something that only some may read.
    Reader,
}

/// The URL of this server as the client sees it, which links and commands on a page begin with, and the contents of the
/// navigation, and who is logged in.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Without a slash at the end.
    root_url: String,
    shows: Shows,
    /// The path and query of the request; `None` if a browser cannot return there.
    place: Option<String>,
    logged_in: Option<LoggedIn>,
    brand: Arc<Brand>,
    /// Set for a page of a static site, which no server is asked for.
    file: Option<PageFile>,
}

/// The parts of this server that the reader can go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shows {
    pub(crate) packages: bool,
    pub(crate) projects: bool,
    pub(crate) articles: bool,
}

impl Site {
    /// Takes the site's root from the head of a request.
    pub(crate) fn of(app: &App, head: &Parts) -> Site {
        Site::below(app, head, root_url(app, head))
    }

    /// This server as a browser sees it; `None` if the client is not a browser.
    pub(crate) fn of_browser(app: &App, head: &Parts) -> Option<Site> {
        wants_page(&head.headers).then(|| Site::of(app, head))
    }

    /// This site, for a page that a browser does not return to after logging in.
    pub(crate) fn without_place(self) -> Site {
        Site { place: None, ..self }
    }

    /// This site, for a page that is never cached and is for this user.
    pub(crate) fn for_user(self, principal: &Principal) -> Site {
        Site { logged_in: Some(LoggedIn::as_user(principal.clone())), ..self }
    }

    /// The name of the user who is logged in. An answer with it is theirs alone, and is not kept.
    pub(crate) fn user(&self) -> Option<&str> {
        let principal = self.logged_in.as_ref()?.principal();
        principal.user_name().map(|name| name.as_str())
    }

    /// The link to the account of the user who is logged in, else for logging in.
    pub(crate) fn account(&self) -> String {
        match self.logged_in {
            Some(_) => format!("{}/+account", self.prefix()),
            None => self.log_in(),
        }
    }

    /// Whether everybody gets the page as it is made for this reader, as far as its header is concerned.
    fn is_for_everybody(&self) -> bool {
        self.logged_in.is_none()
    }

    /// The link for logging in, which leads back here.
    pub(crate) fn log_in(&self) -> String {
        let encoded = |place: &String| -> String {
            form_urlencoded::byte_serialize(place.as_bytes()).collect()
        };
        let next = self.place.as_ref().map(encoded);
        let next = next.map_or_else(String::new, |next| format!("?next={next}"));
        format!("{}/+account/login{next}", self.prefix())
    }

    /// The link for writing the article at this path; `None` if the path is not an article's.
    pub(crate) fn write(&self) -> Option<String> {
        let name = self.place.as_ref()?.strip_prefix("/article/")?;
        let is_name = !name.is_empty() && !name.contains('?');
        let is_page = name.ends_with("/history") || name.ends_with("/diff");
        // The bytes of a version are there.
        let last = name.rsplit('/').next().unwrap_or_default();
        let is_version = last.bytes().all(|byte| byte.is_ascii_digit());
        (is_name && !is_page && !is_version).then(|| format!("{}/+edit/{name}", self.prefix()))
    }

    /// Below this URL.
    pub(crate) fn below(app: &App, head: &Parts, root_url: impl Into<String>) -> Site {
        let config = &app.config;
        let logged_in = LoggedIn::of(app, head);
        let readers = &config.article.acl_read;
        let reads = |by: &LoggedIn| by.is_on(readers, Scope::ArticleRead, Object::Articles(""));
        let shows = Shows {
            packages: app.aur.is_on(),
            projects: config.python.enabled,
            articles: config.article.enabled
                && (app.articles.is_open || logged_in.as_ref().is_some_and(reads)),
        };
        Site { place: place(head), logged_in, ..Site::at(root_url, shows, app.pages.brand.clone()) }
    }

    fn at(root_url: impl Into<String>, shows: Shows, brand: Arc<Brand>) -> Site {
        let root_url: String = root_url.into();
        let root_url = root_url.trim_end_matches('/').to_owned();
        Site { root_url, shows, place: None, logged_in: None, brand, file: None }
    }

    /// A static site, for the page that is its file `own`.
    pub(crate) fn in_files(app: &App, site: &Arc<SiteFiles>, own: &str) -> Site {
        let shows = Shows { articles: true, ..Shows::default() };
        let file = PageFile { site: site.clone(), own: own.to_owned() };
        Site { file: Some(file), ..Site::at("", shows, app.pages.brand.clone()) }
    }

    /// Whether the page is a file of a static site: it has nothing that a server would have to answer.
    pub(crate) fn is_files(&self) -> bool {
        self.file.is_some()
    }

    /// The link to what this server has at `path`.
    pub(crate) fn to(&self, path: &str) -> String {
        match &self.file {
            None => format!("{}{path}", self.prefix()),
            // The site has whatever its pages lead to.
            Some(file) => file.to(path).unwrap_or_else(|| "#".to_owned()),
        }
    }

    /// Whether there can be something at `path`: a static site has only its files.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.file.as_ref().is_none_or(|file| file.to(path).is_some())
    }

    /// The link to the article at this path.
    pub(crate) fn article(&self, path: &str) -> String {
        self.to(&format!("/article/{path}"))
    }

    /// The link to the list of articles that this query asks for.
    pub(crate) fn list(&self, query: &str) -> String {
        self.to(&format!("/articles?{query}"))
    }

    /// The link to what an article leads to, at a path that begins with `prefix`; `None` if a static site does not have it.
    pub(crate) fn placed(&self, target: Target, prefix: &str) -> Option<Target> {
        let Some(file) = &self.file else { return Some(target) };
        let placed = |path: &str| file.to(path.strip_prefix(prefix).unwrap_or(path));
        match target {
            Target::Missing(_) => None,
            Target::Page(path) => placed(&path).map(Target::Page),
            Target::Picture(path) => placed(&path).map(|path| match import::is_picture(&path) {
                true => Target::Picture(path),
                false => Target::Page(path),
            }),
        }
    }

    /// What a browser may do on a page of a static site, which has no header for it. What is loaded comes from the site; `file:` is
    /// for browsers that read it from a disk.
    pub(crate) fn policy(&self) -> Option<&'static str> {
        let policy = "default-src 'none'; style-src 'self' file:; script-src 'self' file:; img-src 'self' file:; base-uri 'none'; \
                      form-action 'none'";
        self.is_files().then_some(policy)
    }

    /// The name of this site.
    pub(crate) fn title(&self) -> &str {
        &self.brand.title
    }

    /// A sentence about it.
    pub(crate) fn line(&self) -> Option<&str> {
        self.brand.line.as_deref()
    }

    /// The path of its logo.
    pub(crate) fn logo(&self) -> Option<String> {
        let logo = self.brand.logo.as_ref()?;
        match &self.file {
            Some(file) => file.site.logo.as_ref().map(|logo| file.file(logo)),
            None => Some(format!("{}/{}", self.prefix(), logo.path)),
        }
    }

    /// Labels and targets of the links in the footer.
    pub(crate) fn links(&self) -> Vec<(&str, String)> {
        let target = |link: &SiteLink| match (link.url.starts_with('/'), &self.file) {
            (true, Some(file)) => file.to(&link.url),
            (true, None) => Some(format!("{}{}", self.prefix(), link.url)),
            (false, _) => Some(link.url.clone()),
        };
        let links = self.brand.links.iter();
        links.filter_map(|link| Some((link.label.as_str(), target(link)?))).collect()
    }

    /// The parts of this server that the reader can go to.
    pub(crate) fn shows(&self) -> Shows {
        self.shows
    }

    /// The path of the style sheet of all pages.
    pub(crate) fn style(&self) -> String {
        match &self.file {
            Some(file) => file.file(&file.site.style),
            None => format!("{}/{}", self.prefix(), self.brand.style.path),
        }
    }

    /// The path of the script of all pages.
    pub(crate) fn script(&self) -> String {
        match &self.file {
            Some(file) => file.file(&file.site.script),
            None => format!("{}/{}", self.prefix(), SCRIPT.path),
        }
    }

    /// The digest of the script, without which a browser does not run it; `None` for a file, as browsers compare none on a disk.
    pub(crate) fn script_integrity(&self) -> Option<&'static str> {
        (!self.is_files()).then_some(&*SCRIPT.integrity)
    }

    /// The path of the icon.
    pub(crate) fn icon(&self) -> String {
        match &self.file {
            Some(file) => file.file(&file.site.icon),
            None => format!("{}/favicon.ico", self.prefix()),
        }
    }

    /// The version of this server.
    pub(crate) fn version(&self) -> &'static str {
        version::VERSION
    }

    /// The start of every URL of this server, without a trailing slash.
    pub(crate) fn root_url(&self) -> &str {
        &self.root_url
    }

    /// The path of [`Site::root_url`], without scheme and host, so that links stay on the host that was asked.
    pub(crate) fn prefix(&self) -> &str {
        outside::prefix(&self.root_url)
    }

    /// The host, with the port if it is not the usual one.
    pub(crate) fn host(&self) -> &str {
        let host = self.after_scheme().split('/').next().unwrap_or_default();
        host.rsplit('@').next().unwrap_or_default()
    }

    fn after_scheme(&self) -> &str {
        self.root_url.split_once("://").map_or(self.root_url.as_str(), |(_, rest)| rest)
    }
}

/// The path and query of a request, if a browser can return there after logging in.
fn place(head: &Parts) -> Option<String> {
    let is_safe = matches!(head.method, Method::GET | Method::HEAD);
    let place = head.uri.path_and_query().map_or(head.uri.path(), |it| it.as_str());
    let is_own = head.uri.path().starts_with("/+account");
    (is_safe && !is_own && place.len() <= PLACE_BYTES_MAX).then(|| place.to_owned())
}

/// Inserts the headers of every page.
pub(crate) fn insert_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    // For browsers that do not know `frame-ancestors`.
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

/// Sends a page: 304 if the client has it, compressed if the client accepts that, on another thread if it is long.
pub(crate) async fn send(page: &impl Template, head: &Parts, audience: Audience) -> Response {
    match page.render() {
        Ok(html) => respond_long(Reply::tagged(HTML, html), head, audience).await,
        Err(error) => HttpError::unrendered(&error).into_response(),
    }
}

async fn respond_long(reply: Reply, head: &Parts, audience: Audience) -> Response {
    let conditions = Conditions::of(&head.method, &head.headers);
    finished(respond(reply, StatusCode::OK, conditions).await, audience)
}

/// Sends a page that must not be cached: it is about one user, or has the token of a form.
pub(crate) async fn send_once(page: &impl Template, head: &Parts, status: StatusCode) -> Response {
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => return HttpError::unrendered(&error).into_response(),
    };
    let conditions = Conditions::of(&head.method, &head.headers);
    let mut response = respond(Reply::untagged(HTML, html), status, conditions).await;
    insert_headers(response.headers_mut());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The place of a page in the cache: its URL, and what it is made of.
pub(crate) struct PageCacheKey {
    url: String,
    made_of: MadeOf,
}

impl PageCacheKey {
    /// The place of a page that everybody may see. `None` with a query: there are too many different ones. `None` also for a
    /// user who is logged in, whose name the page has.
    pub(crate) fn of(head: &Parts, site: &Site, made_of: MadeOf) -> Option<PageCacheKey> {
        let is_kept = head.uri.query().is_none() && site.is_for_everybody();
        is_kept.then(|| PageCacheKey::at(site.root_url(), head.uri.path(), made_of))
    }

    /// The place of the page at `path`, with any query.
    pub(crate) fn at(root_url: &str, path: &str, made_of: MadeOf) -> PageCacheKey {
        PageCacheKey { url: format!("{root_url} {path}"), made_of }
    }

    /// The page, if it is at hand.
    pub(crate) fn find(&self, app: &App, head: &Parts, audience: Audience) -> Option<Response> {
        let conditions = Conditions::of(&head.method, &head.headers);
        Some(finished(self.find_plain(app, &conditions)?, audience))
    }

    /// The kept response without the headers of pages, for feeds.
    pub(crate) fn find_plain(&self, app: &App, conditions: &Conditions) -> Option<Response> {
        let page = app.pages.finished.find(&self.url, &self.made_of)?;
        app.metrics.pages_from_memory.inc();
        Some(respond_kept(&page, conditions))
    }

    /// Sends a page as [`send`] does, and keeps it.
    pub(crate) async fn send(
        self,
        app: &App,
        page: &impl Template,
        head: &Parts,
        audience: Audience,
    ) -> Response {
        match page.render() {
            Ok(html) => {
                let conditions = Conditions::of(&head.method, &head.headers);
                let reply = Reply::tagged(HTML, html);
                finished(self.send_plain(app, reply, conditions).await, audience)
            }
            Err(error) => HttpError::unrendered(&error).into_response(),
        }
    }

    /// Sends a body without the headers of pages, and keeps it.
    pub(crate) async fn send_plain(
        self,
        app: &App,
        reply: Reply,
        conditions: Conditions,
    ) -> Response {
        match app.pages.finished.keep(self.url, self.made_of, &reply) {
            Some(page) => respond_kept(&page, &conditions),
            None => respond(reply, StatusCode::OK, conditions).await,
        }
    }
}

/// A page may be cached, but has to be revalidated, because what it shows can change at any time.
fn finished(mut response: Response, audience: Audience) -> Response {
    insert_headers(response.headers_mut());
    insert_caching(response.headers_mut(), audience);
    response
}

/// Says who may cache an answer: only those it was made for.
pub(crate) fn insert_caching(headers: &mut HeaderMap, audience: Audience) {
    let caching = match audience {
        Audience::Everybody => "no-cache",
        Audience::Reader => "private, no-cache",
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    // Every page has the name of the user who is logged in.
    let varies_by = "Accept, Accept-Encoding, Authorization, Cookie, X-Devpi-Auth";
    headers.insert(VARY, HeaderValue::from_static(varies_by));
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    site: &'a Site,
    status: u16,
    title: &'a str,
    detail: &'a str,
    /// What the reader can do.
    advice: &'a str,
    retry_after_seconds: Option<u32>,
}

/// What the reader can do about an error of this kind.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            "Something in the address or the form is not what is expected here. Change it, and try again."
        }
        StatusCode::UNAUTHORIZED => {
            "Log in with the password of your user; then you come back here."
        }
        StatusCode::FORBIDDEN => {
            "Your user may not do this. Ask whoever runs this server, or the owner of what you want to see, for the right."
        }
        StatusCode::NOT_FOUND => {
            "Look at the address for a typing mistake, or search for what you want. If a link on this server led here, what it \
             named has gone. What not everybody may see is there only for those who are logged in."
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            "Programs ask for this in another way; the documentation says how. For people there is nothing here."
        }
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => {
            "Somebody else was first. Look at what is there now, and decide anew."
        }
        StatusCode::GONE => {
            "It was there, and somebody deleted it. Where there is a history, earlier versions can still be read."
        }
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::URI_TOO_LONG => "Send less at a time.",
        StatusCode::TOO_MANY_REQUESTS => {
            "Too much came from your address in a short time. Wait, and try again."
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => {
            "This does not last. Wait a moment, and load the page again; the status page says how things are."
        }
        _ if status.is_server_error() => {
            "This is not your fault. Try again; if it stays so, tell whoever runs this server, who finds more in the log."
        }
        _ => "",
    }
}

/// The page for an error; without a template for it, its text.
pub(crate) fn error_page(
    site: &Site,
    status: StatusCode,
    detail: &str,
    retry_after_seconds: Option<u32>,
) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let advice = advice(status);
    let status = status.as_u16();
    let page = ErrorPage { site, status, title, detail, advice, retry_after_seconds };
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "the page of an error cannot be rendered");
        String::new()
    })
}

/// A number with a comma after each thousand.
pub(crate) fn separated(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whether the client prefers a page for people: browsers name HTML first, and programs do not.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| names_first(accept, "text/html"))
}

/// Says that browsers get another answer at this URL, so that a cache does not give one answer to all clients.
pub(crate) fn insert_vary(headers: &mut HeaderMap) {
    let known = headers.get(VARY).and_then(|known| known.to_str().ok());
    let names = |known: &str| known.split(',').any(|it| it.trim().eq_ignore_ascii_case("accept"));
    let varies_by = match known {
        None | Some("") => HeaderValue::from_static("Accept"),
        Some("Accept-Encoding") => HeaderValue::from_static("Accept, Accept-Encoding"),
        Some(known) if names(known) => return,
        Some(known) => match HeaderValue::try_from(format!("Accept, {known}")) {
            Ok(value) => value,
            Err(_) => return,
        },
    };
    headers.insert(VARY, varies_by);
}

/// Whether this is an error in the form for programs: browsers get a page for it.
pub(crate) fn is_problem(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let is_problem =
        content_type.is_some_and(|value| value.as_bytes() == b"application/problem+json");
    is_problem && (response.status().is_client_error() || response.status().is_server_error())
}

/// The parts of an error's body that people see.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Challenges with a scheme that browsers do not know, so that they ignore it and show the page with a link to our form. With
/// `Basic` they would open their own window for the password.
pub(crate) fn ask_by_form(site: &Site, response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED && site.place.is_some() {
        let challenge = HeaderValue::from_static("Cookie realm=\"larder\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}

/// The response to a browser: an error with a text for programs becomes a page with the same text.
pub(crate) fn for_browser(site: &Site, response: Response) -> Response {
    let status = response.status();
    if !is_problem(&response) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // An error's body is complete at once: it was made in memory.
    let read = axum::body::to_bytes(body, ERROR_BYTES_MAX).now_or_never();
    let Some(Ok(bytes)) = read else { return status.into_response() };
    let Ok(problem) = serde_json::from_slice::<Problem>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    insert_headers(&mut head.headers);
    vary_by_cookie(&mut head.headers);
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|seconds| seconds.parse().ok());
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    Response::from_parts(head, Body::from(error_page(site, status, &problem.detail, retry_after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_links_lead() {
        let check = |url: &str, host: &str, prefix: &str| {
            let site = Site::at(
                url,
                Shows::default(),
                Arc::new(Brand::of(&config::Config::default()).expect("a brand")),
            );
            assert_eq!((site.host(), site.prefix()), (host, prefix), "{url}");
        };
        check("http://127.0.0.1:8080", "127.0.0.1:8080", "");
        check("https://pkgs.example/", "pkgs.example", "");
        check("https://pkgs.example/a/b", "pkgs.example", "/a/b");
        check("http://[::1]:80", "[::1]:80", "");
        check("http://user@h.example/x/", "h.example", "/x");
    }

    #[test]
    fn numbers_have_separators() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (100_000, "100,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(separated(number), text);
        }
    }

    #[test]
    fn browsers_name_html_first() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::try_from(accept).expect("a value"));
            assert_eq!(wants_page(&headers), expected, "{accept}");
        };
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true);
        check("text/html", true);
        check("*/*", false);
        check("application/json", false);
        check("Text/HTML;q=0.9, */*;q=0.8", true);
        check("application/json;q=0, text/html", true);
        check("text/html;q=0, */*", false);
        check("text/html;q=0.1, application/json", false);
        check("text/htmlx", false);
        // pip.
        check("application/vnd.pypi.simple.v1+json, text/html; q=0.01", false);
        assert!(!wants_page(&HeaderMap::new()));
    }
}
