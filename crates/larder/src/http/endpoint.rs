//! Which [`Endpoint`] a request is for: the one place where routes get the names that `/metrics` has for them.
//!
//! The path of a request -> [`of`] before its handler runs; a handler that knows better puts its endpoint among the
//! extensions of the response, as the Python index does by [`of_python`]: its paths have no prefix that would tell.

use http::Method;

use super::python::route::Route;
use crate::metrics::{Endpoint, Surface};

fn is_read(method: &Method) -> bool {
    !matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

/// Of what the router answers on a listener of the `surface`: the main one is of the house.
pub(super) fn of(surface: Surface, method: &Method, path: &str) -> Endpoint {
    if surface == Surface::Admin {
        return match path {
            path if path.starts_with("/admin/run-job/") => Endpoint::AdminJob,
            path if path.starts_with("/admin/settings") => Endpoint::AdminSettings,
            _ => Endpoint::AdminOther,
        };
    }
    let is_read = is_read(method);
    match path {
        "/" | "/docs" | "/docs/" | "/docs/aur" | "/openapi.json" | "/robots.txt"
        | "/favicon.ico" => Endpoint::Page,
        "/livez" | "/healthz" | "/readyz" | "/ready" | "/version" => Endpoint::Health,
        "/metrics" | "/rpc/metrics" => Endpoint::Metrics,
        "/articles" => Endpoint::ArticleList,
        "/actions" if *method == Method::POST => Endpoint::ActionRun,
        "/actions" => Endpoint::ActionList,
        "/rpc/stats" | "/rpc/olddoc.html" => Endpoint::AurPage,
        _ => match path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default() {
            "+tokens" if is_read => Endpoint::Tokens,
            "+tokens" => Endpoint::TokensWrite,
            "article" => match *method {
                Method::DELETE => Endpoint::ArticleDelete,
                _ if !is_read => Endpoint::ArticleWrite,
                _ if path.ends_with("/history") => Endpoint::ArticleHistory,
                _ if path.ends_with("/diff") => Endpoint::ArticleDifference,
                _ => Endpoint::Article,
            },
            "rpc" | "api" if path.contains("/swagger") || path.ends_with("/openapi.json") => {
                Endpoint::AurPage
            }
            "rpc" | "rpc.php" | "api" => Endpoint::Rpc,
            first => {
                let dump = first.strip_suffix(".sha256").unwrap_or(first);
                let is_dump = dump.ends_with(".gz");
                if is_dump { Endpoint::Dump } else { Endpoint::Other }
            }
        },
    }
}

/// Of what the Python index answers; `route` is None for a path that it has no place for.
pub(super) fn of_python(
    method: &Method,
    route: Option<&Route>,
    posted: impl FnOnce() -> Posted,
) -> Endpoint {
    let is_read = is_read(method) && method.as_str() != "PUSH";
    let one_of = |read, write| if is_read { read } else { write };
    match route {
        None => Endpoint::PythonOther,
        Some(Route::Root | Route::User { .. }) => one_of(Endpoint::User, Endpoint::UserWrite),
        Some(Route::Status | Route::Api { .. }) => Endpoint::PythonStatus,
        Some(Route::AuthCheck) => Endpoint::AuthCheck,
        Some(Route::Login) => Endpoint::Login,
        Some(Route::Search) => Endpoint::Search,
        Some(Route::Stage { .. }) if *method == Method::POST => match posted() {
            Posted::Form => Endpoint::Upload,
            Posted::Xml => Endpoint::Search,
            Posted::Json => Endpoint::Push,
        },
        Some(Route::Stage { .. }) if method.as_str() == "PUSH" => Endpoint::Push,
        Some(Route::Stage { .. }) => one_of(Endpoint::Index, Endpoint::IndexWrite),
        Some(Route::Retention { .. }) => Endpoint::IndexWrite,
        Some(Route::File { .. } | Route::ExternalFile { .. }) => {
            one_of(Endpoint::File, Endpoint::FileWrite)
        }
        Some(Route::FileYank { .. }) => Endpoint::FileWrite,
        Some(Route::SimpleList { .. }) => Endpoint::SimpleList,
        Some(Route::SimpleProject { .. } | Route::Refresh { .. }) => Endpoint::SimplePage,
        Some(Route::Project { .. } | Route::ProjectStatus { .. }) => {
            one_of(Endpoint::Project, Endpoint::ProjectWrite)
        }
        Some(Route::Version { .. }) => one_of(Endpoint::Version, Endpoint::VersionWrite),
        Some(Route::Yank { .. }) => Endpoint::VersionWrite,
        Some(Route::Documentation { .. }) => Endpoint::Documentation,
        Some(Route::ToxResults { .. }) => Endpoint::ToxResults,
    }
}

/// What the body of a POST to an index is, by its `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posted {
    /// A form: an upload.
    Form,
    /// A call by XML-RPC.
    Xml,
    /// JSON, whatever it says it is: a push.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, path: &str, expected: Endpoint) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        assert_eq!(of(Surface::House, &method, path), expected, "{method} {path}");
    }

    #[test]
    fn endpoints_of_paths() {
        check("GET", "/", Endpoint::Page);
        check("GET", "/docs/aur", Endpoint::Page);
        check("GET", "/readyz", Endpoint::Health);
        check("GET", "/rpc", Endpoint::Rpc);
        check("POST", "/rpc.php/", Endpoint::Rpc);
        check("GET", "/api/v6/info/x", Endpoint::Rpc);
        check("GET", "/rpc/metrics", Endpoint::Metrics);
        check("GET", "/rpc/swagger/", Endpoint::AurPage);
        check("GET", "/packages-meta-v1.json.gz.sha256", Endpoint::Dump);
        check("GET", "/article/a/b", Endpoint::Article);
        check("GET", "/article/a/history", Endpoint::ArticleHistory);
        check("POST", "/article/a/0", Endpoint::ArticleWrite);
        check("DELETE", "/article/a", Endpoint::ArticleDelete);
        check("GET", "/articles", Endpoint::ArticleList);
        check("OPTIONS", "/actions", Endpoint::ActionList);
        check("DELETE", "/+tokens/x", Endpoint::TokensWrite);
        check("GET", "/wp-login.php", Endpoint::Other);
        check("GET", "*", Endpoint::Other);
        let method = Method::GET;
        assert_eq!(of(Surface::Admin, &method, "/admin/settings/x"), Endpoint::AdminSettings);
        assert_eq!(of(Surface::Admin, &method, "/rpc"), Endpoint::AdminOther);
    }

    #[test]
    fn endpoints_of_the_python_index() {
        let check = |method: &str, path: &str, expected: Endpoint| {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let endpoint = of_python(&method, Route::parse(path).as_ref(), || Posted::Form);
            assert_eq!(endpoint, expected, "{method} {path}");
        };
        check("GET", "/u", Endpoint::User);
        check("PUT", "/u", Endpoint::UserWrite);
        check("GET", "/u/i/+simple/p/", Endpoint::SimplePage);
        check("POST", "/u/i/", Endpoint::Upload);
        check("PUSH", "/u/i/", Endpoint::Push);
        check("PATCH", "/u/i/", Endpoint::IndexWrite);
        check("HEAD", "/u/i/+f/a/b/c", Endpoint::File);
        check("POST", "/u/i/p/1.0/+yank", Endpoint::VersionWrite);
        check("GET", "/u/i/+nothing", Endpoint::PythonOther);
    }
}
