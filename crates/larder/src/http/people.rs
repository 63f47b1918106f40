//! What all pages for people have: where their links lead, the headers that say what a browser may load and run for them
//! and that no other page shows them in a frame, and the page that a browser gets for an error.

use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::FutureExt as _;
use http::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::outside::root_url;
use crate::app::App;

/// Of a page without scripts. Styles are in the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// An error that is made a page has a short text; a longer body is something else.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The URL of this server as the client sees it. Links and commands on a page begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Without a slash at the end.
    root_url: String,
}

impl Site {
    /// As the head of a request has it.
    pub(super) fn of(app: &App, head: &Parts) -> Site {
        Site::at(root_url(app, &head.uri, &head.headers, &head.extensions))
    }

    /// The same for a browser; none for other clients.
    pub(super) fn of_browser(app: &App, head: &Parts) -> Option<Site> {
        is_browser(&head.headers).then(|| Site::of(app, head))
    }

    /// Below this URL.
    pub(super) fn at(root_url: impl Into<String>) -> Site {
        let root_url: String = root_url.into();
        Site { root_url: root_url.trim_end_matches('/').to_owned() }
    }

    /// What every URL of this server begins with, without a slash at the end.
    pub(super) fn root_url(&self) -> &str {
        &self.root_url
    }

    /// The path of [`Site::root_url`], without scheme and host, so that links stay on the host that was asked.
    pub(super) fn prefix(&self) -> &str {
        let below = self.after_scheme();
        below.find('/').map_or("", |at| &below[at..])
    }

    /// The host, with the port if it is not the usual one.
    pub(super) fn host(&self) -> &str {
        let host = self.after_scheme().split('/').next().unwrap_or_default();
        host.rsplit('@').next().unwrap_or_default()
    }

    fn after_scheme(&self) -> &str {
        self.root_url.split_once("://").map_or(self.root_url.as_str(), |(_, rest)| rest)
    }
}

/// Inserts the headers of a page without scripts.
pub(super) fn insert_headers(headers: &mut HeaderMap) {
    insert_with(headers, HeaderValue::from_static(POLICY));
}

/// Inserts the headers of a page with the policy that [`policy`] made for it.
pub(super) fn insert_with(headers: &mut HeaderMap, policy: HeaderValue) {
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    // For browsers that do not know `frame-ancestors`.
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

/// The policy for a page with this script of ours: it runs, by its digest, and asks this server. It is made of the script
/// alone, not of the page: nothing that gets into a page is allowed to run by that.
pub(super) fn policy(script: &str) -> HeaderValue {
    let digest = BASE64_STANDARD.encode(Sha256::digest(script));
    let policy = format!("{POLICY}; script-src 'sha256-{digest}'; connect-src 'self'");
    HeaderValue::try_from(policy).expect("digests are ASCII")
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    site: &'a Site,
    status: u16,
    title: &'a str,
    detail: &'a str,
}

/// The page for an error; without a template for it, its text.
pub(super) fn error_page(site: &Site, status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let page = ErrorPage { site, status: status.as_u16(), title, detail };
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "the page of an error cannot be rendered");
        String::new()
    })
}

/// Whether a page for people is what is wanted most: browsers name HTML first, and programs do not.
fn is_browser(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.starts_with("text/html"))
}

/// What of an error's body is shown to people.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// The response to a browser: an error with a text for programs becomes a page with the same text.
pub(super) fn for_browser(site: &Site, response: Response) -> Response {
    let status = response.status();
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|content_type| content_type.as_bytes() == b"application/problem+json");
    if !is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    // It is whole: errors are made in memory.
    let read = axum::body::to_bytes(body, ERROR_BYTES_MAX).now_or_never();
    let Some(Ok(bytes)) = read else { return status.into_response() };
    let Ok(problem) = serde_json::from_slice::<Problem>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    insert_headers(&mut head.headers);
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    head.headers.append(VARY, HeaderValue::from_static("Accept"));
    Response::from_parts(head, Body::from(error_page(site, status, &problem.detail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_named_by_their_digests() {
        // Of the empty text, as every table of SHA-256 has it.
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        let named = policy("");
        let named = named.to_str().expect("text");
        assert_eq!(named, format!("{POLICY}; script-src {empty}; connect-src 'self'"));
        assert_ne!(policy("\n1"), policy(""));
    }

    #[test]
    fn where_links_lead() {
        let check = |url: &str, host: &str, prefix: &str| {
            let site = Site::at(url);
            assert_eq!((site.host(), site.prefix()), (host, prefix), "{url}");
        };
        check("http://127.0.0.1:8080", "127.0.0.1:8080", "");
        check("https://pkgs.example/", "pkgs.example", "");
        check("https://pkgs.example/a/b", "pkgs.example", "/a/b");
        check("http://[::1]:80", "[::1]:80", "");
        check("http://user@h.example/x/", "h.example", "/x");
    }

    #[test]
    fn browsers_name_html_first() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::try_from(accept).expect("a value"));
            assert_eq!(is_browser(&headers), expected, "{accept}");
        };
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true);
        check("text/html", true);
        check("*/*", false);
        check("application/json", false);
        // pip.
        check("application/vnd.pypi.simple.v1+json, text/html; q=0.01", false);
        assert!(!is_browser(&HeaderMap::new()));
    }
}
