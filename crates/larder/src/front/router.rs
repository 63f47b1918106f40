//! From the path of a request to its place in the table, as this server is configured, and to the names in the path as types.

use std::borrow::Cow;

use account::UserName;
use article::ArticleName;
use axum::response::{IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderValue, StatusCode};
use pypi::{ProjectName, StageName};

use super::error::HttpError;
use crate::app::App;
use crate::routes::path::decoded;
use crate::routes::{Endpoint, Place, Route, Surface, Tree};

/// The route of a path in the main tree, if its surface is served. The AUR's is there in any case, to say so.
pub(crate) fn route(app: &App, path: &str) -> Option<Route> {
    let route = Route::find(Tree::Main, path, None)?;
    (is_served(app, route.place) && !is_of_user(app, route.place, path)).then_some(route)
}

fn is_served(app: &App, place: &Place) -> bool {
    let config = &app.config;
    match place.first() {
        Endpoint::ShowMetrics => config.metrics.enabled,
        Endpoint::QueryOsv | Endpoint::QueryOsvBatch | Endpoint::ShowOsvRecord => {
            config.python.enabled
        }
        endpoint => match endpoint.surface() {
            Surface::Article => config.article.enabled,
            Surface::Action => config.actions.enabled,
            _ => true,
        },
    }
}

/// The place of a path whose slash at the end is one too many: links of wikis and bookmarks end so, and aurweb takes them.
pub(crate) fn without_slash(app: &App, path: &str) -> Option<&'static Place> {
    let path = path.strip_suffix('/')?.trim_end_matches('/');
    let is_page =
        |found: &&Place| matches!(found.first().route(), "page" | "feed" | "search" | "history");
    route(app, path).map(|route| route.place).filter(is_page)
}

/// The names in a path, as types. A name that is not valid is answered with 400.
impl Route {
    /// The name that stands for `placeholder`, percent-decoded.
    pub(crate) fn text(&self, placeholder: &str) -> Result<Cow<'_, str>, HttpError> {
        decoded(self.raw(placeholder)).map_err(|_| HttpError::not_utf8(self.path()))
    }

    pub(crate) fn user(&self) -> Result<UserName, HttpError> {
        self.text("{user}")?.parse::<UserName>().map_err(HttpError::bad_request)
    }

    pub(crate) fn stage(&self) -> Result<StageName, HttpError> {
        let name = format!("{}/{}", self.text("{user}")?, self.text("{index}")?);
        name.parse::<StageName>().map_err(HttpError::bad_request)
    }

    pub(crate) fn project(&self) -> Result<ProjectName, HttpError> {
        ProjectName::normalize(&self.text("{project}")?).map_err(HttpError::bad_request)
    }

    pub(crate) fn article(&self) -> Result<ArticleName, HttpError> {
        ArticleName::parse(&self.text("{article}")?).map_err(HttpError::bad_request)
    }
}

/// Whether a page's path begins with the name of a user. Such users were made before the page existed; their indexes keep their
/// URLs.
fn is_of_user(app: &App, place: &Place, path: &str) -> bool {
    let is_later = matches!(
        place.first(),
        Endpoint::ShowPackageBase
            | Endpoint::ShowMaintainer
            | Endpoint::FeedPackages
            | Endpoint::ShowStatus
    );
    if !is_later || !app.config.python.enabled {
        return false;
    }
    let name = path.split('/').nth(1).and_then(|name| name.parse::<UserName>().ok());
    let stored = app.live_store.snapshot();
    name.zip(stored).is_some_and(|(name, stored)| stored.accounts.user(&name).is_some())
}

/// Every method that any place has.
pub(crate) const EVERY_METHOD: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// 204 with the methods of a place. Load balancers ask so whether the server is there.
pub(crate) fn options(place: &'static Place) -> Response {
    let allow = match place.allow() {
        _ if place.takes_every_method() => HeaderValue::from_static(EVERY_METHOD),
        allow if allow.ends_with("OPTIONS") => HeaderValue::from_static(allow),
        allow => HeaderValue::try_from(format!("{allow}, OPTIONS")).expect("methods are ASCII"),
    };
    (StatusCode::NO_CONTENT, [(ALLOW, allow)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table and the way that requests take agree.
    #[tokio::test]
    async fn every_place_of_the_main_tree_is_found_by_a_path_of_it() {
        let (app, _directory) = App::for_test().await;
        for wanted in Place::all().iter().filter(|place| place.tree == Tree::Main) {
            let path = wanted.path.replace(['{', '}'], "");
            let found = route(&app, &path).expect(wanted.path).place;
            match found.first() {
                Endpoint::ReadArticle => {}
                endpoint => assert_eq!(endpoint, wanted.first(), "{path}"),
            }
        }
        for path in [
            "/x",
            "/article/{article}/diff",
            "/article",
            "/rpc/x",
            "/api/",
            "/+tokens/x/y",
            "/+tokens/",
            "/rpc.php/x",
            "",
        ] {
            let found = route(&app, path).map(|route| route.place.path);
            let expected = match path {
                "/article" | "/api/" => Some(path),
                "/rpc/x" => Some("/rpc/{**}"),
                "/article/{article}/diff" => Some("/article/{article}"),
                _ => None,
            };
            assert_eq!(found, expected, "{path}");
        }
    }
}
