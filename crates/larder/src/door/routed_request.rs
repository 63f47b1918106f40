//! [`RoutedRequest`]: what a request to the main listener asks for, as the table, the configuration and the request itself say.

use article::Target;
use axum::response::{IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::request::Parts;
use crate::front::router::{EVERY_METHOD, options, route, without_slash};
use crate::front::{cors, serial};
use crate::protocols::{actions, articles, aur, python};
use crate::routes::{Endpoint, Place, Route, Surface, Tree};

/// The endpoint of a request, and what answers it.
pub(super) struct RoutedRequest {
    pub(super) endpoint: Endpoint,
    pub(super) target: RouteTarget,
}

/// What answers a request.
pub(super) enum RouteTarget {
    /// The handler of its endpoint.
    Handler(Route),
    /// The Python index, which finds the endpoint by itself.
    Python,
    /// No handler: this is the answer.
    Answer(Response),
}

impl RoutedRequest {
    /// What a request asks for.
    pub(super) fn of(app: &App, head: &Parts) -> RoutedRequest {
        let (method, path) = (&head.method, head.uri.path());
        if path == "*" {
            return RoutedRequest::answered(Endpoint::FindNothing, about_server(method));
        }
        let Some(mut route) = route(app, path) else {
            return match without_slash(app, path) {
                // A browser follows no redirect of a preflight.
                Some(found) if *method == Method::OPTIONS => {
                    RoutedRequest::answered(found.first(), Ok(options(found)))
                }
                Some(found) => {
                    let path = path.trim_end_matches('/');
                    let answer = aur::redirect(path, head.uri.query());
                    RoutedRequest::answered(found.first(), Ok(answer))
                }
                None => RoutedRequest::elsewhere(app, head),
            };
        };
        let first = route.place.first();
        if first.surface() == Surface::Aur && !app.aur.is_on() {
            return RoutedRequest::answered(first, Ok(aur::is_off(app)));
        }
        if first == Endpoint::ReadArticle {
            match place_of_article(head) {
                Ok(place) => route.place = place,
                Err(error) => return RoutedRequest::answered(first, Err(error)),
            }
        }
        let place = route.place;
        let Some(endpoint) = place.endpoint(method) else {
            // An upload that lacks the index in its URL is told so.
            if path == "/" && method == Method::POST && app.config.python.enabled {
                return RoutedRequest::elsewhere(app, head);
            }
            let answer = match *method {
                Method::OPTIONS => Ok(options(place)),
                _ => Err(HttpError::method_not_allowed(method, path, place.allow())),
            };
            return RoutedRequest::answered(place.first(), answer);
        };
        // A page reads what is wrong only if its preflight is answered.
        let says_more =
            matches!(endpoint, Endpoint::MissArticleName | Endpoint::MissAttachmentName)
                && cors::announced_method(head).is_none();
        match endpoint {
            _ if method == Method::OPTIONS && !says_more => {
                RoutedRequest::answered(endpoint, Ok(options(place)))
            }
            Endpoint::ShowHome if actions::endpoint::is_in_query(app, head) => RoutedRequest {
                endpoint: Endpoint::RunActions,
                target: RouteTarget::Handler(route),
            },
            Endpoint::ShowHome if python::wants_users(app, &head.headers) => {
                RoutedRequest::elsewhere(app, head)
            }
            _ => RoutedRequest { endpoint, target: RouteTarget::Handler(route) },
        }
    }

    /// Paths that are not in the main tree are of the Python index, if it is served.
    fn elsewhere(app: &App, head: &Parts) -> RoutedRequest {
        if app.config.python.enabled {
            return RoutedRequest { endpoint: Endpoint::FindNoRoute, target: RouteTarget::Python };
        }
        RoutedRequest::answered(Endpoint::FindNothing, Err(HttpError::nothing_at(head.uri.path())))
    }

    fn answered(endpoint: Endpoint, answer: Result<Response, HttpError>) -> RoutedRequest {
        let answer = answer.unwrap_or_else(HttpError::into_response);
        RoutedRequest { endpoint, target: RouteTarget::Answer(answer) }
    }

    /// Whether the answer waits for the state that the client has seen. The Python index waits by itself.
    pub(super) fn waits(&self) -> bool {
        matches!(self.target, RouteTarget::Handler(_)) && serial::is_awaited_by(self.endpoint)
    }
}

/// The place of a path below `/article/`: where the name of an article ends is not for the table to say.
fn place_of_article(head: &Parts) -> Result<&'static Place, HttpError> {
    let path = head.uri.path();
    // A slash at the end makes a folder, which may have any name.
    let is_reading = matches!(head.method, Method::GET | Method::HEAD);
    let target = match is_reading && path.ends_with('/') {
        true => Target::Latest,
        false => articles::parse_path(path)?.target,
    };
    let pattern = match target {
        Target::Latest => "/article/{article}",
        Target::Version(_) => "/article/{article}/{version}",
        Target::History => "/article/{article}/history",
        Target::Diff => "/article/{article}/diff",
    };
    Ok(Place::named(Tree::Main, pattern).expect("the table has these paths"))
}

/// The answer to the target `*`, which is the server as a whole and not a path (RFC 9110, 9.3.7).
fn about_server(method: &Method) -> Result<Response, HttpError> {
    if *method == Method::OPTIONS {
        let allow = [(ALLOW, HeaderValue::from_static(EVERY_METHOD))];
        return Ok((StatusCode::NO_CONTENT, allow).into_response());
    }
    Err(HttpError::bad_request(format!("`*` is a target of OPTIONS alone, and not of `{method}`")))
}
