//! The URL that this server has outside, as a trusted proxy says; other clients are not believed.

use http::HeaderMap;
use http::header::{HOST, HeaderName};

use crate::app::App;
use crate::front::request::Parts;

const X_OUTSIDE_URL: HeaderName = HeaderName::from_static("x-outside-url");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The start of this server's URLs, without a trailing slash: what a trusted proxy says, else what is configured, else what the
/// request says.
pub(crate) fn root_url(app: &App, head: &Parts) -> String {
    if let Some(url) = outside_url(app, head) {
        return url.to_owned();
    }
    if let Some(url) = &app.config.public_url {
        return url.clone();
    }
    let own = if head.peer.tls { "https" } else { "http" };
    let scheme = outside_scheme(app, head).unwrap_or(own);
    let host = head.headers.get(HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(|authority| authority.as_str()));
    let prefix = outside_prefix(app, head).unwrap_or_default();
    format!("{scheme}://{}{prefix}", host.unwrap_or("localhost"))
}

/// The path of the URL that this server has outside, which paths on this server begin with for clients; mostly empty.
pub(crate) fn root_path(app: &App, head: &Parts) -> String {
    // Asked for each request: the URL as a whole is not made for it.
    let path = match outside_url(app, head).or(app.config.public_url.as_deref()) {
        Some(url) => prefix(url),
        None => outside_prefix(app, head).unwrap_or_default(),
    };
    path.to_owned()
}

/// The path of a URL, without a slash at its end.
pub(crate) fn prefix(url: &str) -> &str {
    let below = url.split_once("://").map_or(url, |(_, below)| below);
    below.find('/').map_or("", |at| below[at..].trim_end_matches('/'))
}

/// The URL in `X-Outside-URL`, without slashes at its end, where a trusted proxy sent one.
pub(crate) fn outside_url<'head>(app: &App, head: &'head Parts) -> Option<&'head str> {
    let url = only(&head.headers, &X_OUTSIDE_URL)?;
    let is_believed = is_of_proxy(app, head) && is_url(url);
    is_believed.then(|| url.trim_end_matches('/'))
}

/// The path in `X-Forwarded-Prefix`, without slashes at its end, where a trusted proxy sent one.
fn outside_prefix<'head>(app: &App, head: &'head Parts) -> Option<&'head str> {
    let prefix = only(&head.headers, &X_FORWARDED_PREFIX)?;
    let is_believed = is_of_proxy(app, head) && is_path(prefix);
    is_believed.then(|| prefix.trim_end_matches('/'))
}

/// The scheme in `X-Forwarded-Proto`, where a trusted proxy sent one.
pub(crate) fn outside_scheme<'head>(app: &App, head: &'head Parts) -> Option<&'head str> {
    let scheme = only(&head.headers, &X_FORWARDED_PROTO)?;
    (is_of_proxy(app, head) && matches!(scheme, "http" | "https")).then_some(scheme)
}

/// Whether a trusted proxy sent the request.
pub(crate) fn is_of_proxy(app: &App, head: &Parts) -> bool {
    app.limits.trusted.contains(head.peer.address)
}

/// The value of a header that comes once; of several values, nobody knows which is the proxy's.
fn only<'head>(headers: &'head HeaderMap, name: &HeaderName) -> Option<&'head str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Whether links can begin with this.
fn is_url(text: &str) -> bool {
    let has_scheme = text.starts_with("http://") || text.starts_with("https://");
    has_scheme && text.bytes().all(is_plain) && reqwest::Url::parse(text).is_ok()
}

/// Whether a path of this server can begin with this. Browsers take `//` for the beginning of a host.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//") && text.bytes().all(is_plain)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"<>\\^`{|}?#".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_links_can_begin_with() {
        for url in ["http://h", "https://h.example:8443/pre/", "http://[::1]:80", "http://u@h/"] {
            assert!(is_url(url), "{url}");
        }
        for text in [
            "",
            "h.example",
            "ftp://h/",
            "javascript://h/%0aalert(1)",
            "http://",
            "http://h/\"><script>",
            "http://h/ x",
            "http://h/?x",
            "http://h/#x",
            "http://h:port/",
        ] {
            assert!(!is_url(text), "{text}");
        }
        assert!(is_path("/pkg") && is_path("/a/b/"));
        for text in ["", "pkg", "//evil.example", "/a b", "/\"x", "/a?b", "https://h/pkg"] {
            assert!(!is_path(text), "{text}");
        }
    }

    #[test]
    fn the_path_of_a_url() {
        for (url, path) in [
            ("http://h", ""),
            ("http://h/", ""),
            ("https://h:1/pre/", "/pre"),
            ("https://h/a/b", "/a/b"),
            ("http://[::1]:80", ""),
        ] {
            assert_eq!(prefix(url), path, "{url}");
        }
    }
}
