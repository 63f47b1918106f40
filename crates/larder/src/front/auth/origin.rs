//! Requests that a page of another origin makes a browser send.
//!
//! A browser adds the password that it remembers to every request that a page causes, also to those of foreign pages. But it
//! names the page's origin: in `Sec-Fetch-Site`, or, if it is older or the page came without TLS, in `Origin`. Other clients
//! send neither.

use http::header::{HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method};

use crate::app::App;
use crate::front::cors::Page;
use crate::front::error::HttpError;
use crate::front::outside::outside_url;
use crate::front::request::Parts;
use crate::routes::{Endpoint, Surface};

/// The relation of the page that caused a request to this server.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The endpoints that change nothing whatever the method, so that pages of any origin may ask them.
const ASKED_BY_ALL: [Endpoint; 3] =
    [Endpoint::AnswerQuestion, Endpoint::QueryOsv, Endpoint::QueryOsvBatch];

/// Refuses with 403 requests that a page of another origin makes a browser send, unless they change nothing, or the configuration
/// names the origin and the page sent them with its own token. `endpoint`: what
/// would answer.
pub(crate) fn refuse_foreign_pages(
    app: &App,
    request: &Parts,
    endpoint: Endpoint,
) -> Result<(), HttpError> {
    let head = &request.headers;
    let is_safe = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_listed = || {
        let page = Page::of(app, head).filter(|_| endpoint.surface() != Surface::Admin);
        page.is_some_and(|page| page.may_write())
    };
    if !is_safe && !ASKED_BY_ALL.contains(&endpoint) && !is_listed() {
        let text = |name: HeaderName| head.get(name).and_then(|value| value.to_str().ok());
        // HTTP/2 has the host in the URL.
        let authority = request.uri.authority().map(Authority::as_str);
        let outside = outside_url(app, request);
        let own = [text(HOST).or(authority), outside, app.config.public_url.as_deref()];
        if let Some(foreign) = foreign_origin(head, &own) {
            let own = own.into_iter().flatten().collect::<Vec<_>>().join("` or `");
            let detail =
                format!("a page of another origin may not write here: {foreign}, expected `{own}`");
            return Err(HttpError::forbidden(detail));
        }
    }
    Ok(())
}

/// The origin of the page that made a request, if it is not one of `own`: hosts, or URLs with one.
fn foreign_origin(head: &HeaderMap, own: &[Option<&str>]) -> Option<String> {
    let shown = |name: HeaderName| {
        let value = String::from_utf8_lossy(head.get(&name)?.as_bytes());
        Some(record::escaped_excerpt(&value, 256))
    };
    let origin = shown(ORIGIN);
    match (shown(SEC_FETCH_SITE), &origin) {
        // `none`: a person caused the request, not a page.
        (Some(site), _) if matches!(site.as_str(), "same-origin" | "none") => None,
        (Some(site), _) => {
            let origin = origin.as_deref().unwrap_or("unknown");
            Some(format!("it came with `Sec-Fetch-Site: {site}` from the origin `{origin}`"))
        }
        (None, Some(origin)) => {
            let is_own = own.iter().flatten().any(|own| is_origin_of(origin, own));
            (!is_own).then(|| format!("it came from the origin `{origin}`"))
        }
        (None, None) => None,
    }
}

/// Whether an origin is that of `own`, a host or a URL with one. Its scheme may differ: a proxy may have ended TLS.
fn is_origin_of(origin: &str, own: &str) -> bool {
    let Some((scheme, origin)) = origin.split_once("://") else { return false };
    let own = own.split_once("://").map_or(own, |(_, rest)| rest);
    let own = own.split('/').next().unwrap_or_default();
    let port_of_scheme = if scheme == "https" { 443 } else { 80 };
    let place = |text: &str| {
        let authority: Authority = text.parse().ok()?;
        let port = authority.port_u16().unwrap_or(port_of_scheme);
        Some((authority.host().to_ascii_lowercase(), port))
    };
    place(origin).is_some_and(|origin| place(own) == Some(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &[(HeaderName, &'static str)], is_foreign: bool) {
        let headers =
            head.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value)));
        let own = [Some("larder.example"), Some("http://inside:8080/larder"), None];
        let found = foreign_origin(&headers.collect(), &own);
        assert_eq!(found.is_some(), is_foreign, "{head:?}: {found:?}");
    }

    #[test]
    fn pages_of_other_origins() {
        check(&[], false);
        check(&[(SEC_FETCH_SITE, "same-origin")], false);
        check(&[(SEC_FETCH_SITE, "none")], false);
        check(&[(SEC_FETCH_SITE, "same-origin"), (ORIGIN, "https://inside")], false);
        check(&[(SEC_FETCH_SITE, "cross-site")], true);
        check(&[(SEC_FETCH_SITE, "same-site"), (ORIGIN, "https://larder.example")], true);
        check(&[(SEC_FETCH_SITE, "\"")], true);
        for own in [
            "https://larder.example",
            "http://larder.example",
            "https://LARDER.example:443",
            "http://larder.example:80",
            "http://inside:8080",
        ] {
            check(&[(ORIGIN, own)], false);
        }
        for other in [
            "null",
            "",
            "larder.example",
            "https://larder.example.evil.example",
            "https://evil.example",
            "https://larder.example:8443",
            "http://inside",
            "http://inside:80",
            "https://larder.example@evil.example",
            "https://evil.example/larder.example",
        ] {
            check(&[(ORIGIN, other)], true);
        }
    }
}
