//! Everything we answer, on one page; `docs/urls.md` is the same table for users.
//!
//! request -> router -> handler of a surface -> [`reply::Reply`] -> [`respond`] -> response

mod actions;
pub mod admin;
pub(crate) mod article;
mod aur;
mod auth;
mod body;
pub mod dumps;
mod error;
mod health;
mod negotiation;
mod outside;
mod pages;
mod parts;
mod people;
mod python;
mod respond;
mod serial;
mod tokens;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Method, StatusCode};
use net::{ClientAddress, Peer, Routes, Shortcut, Shortened};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::endpoint::{Endpoint, Place, Surface, Tree};
use crate::metrics::Stopwatch;
use crate::security;

use people::Site;

pub use error::HttpError;
pub use pages::Example;
pub use python::OpenZips;

/// What the main listener answers: the table, and before it the way of nearly all requests, which
/// needs none of the router's futures.
pub fn routes(app: Arc<App>) -> Routes {
    let shortcut = Shortcuts {
        questions: app.config.aur.enabled.then(|| aur::Questions(app.clone())),
        articles: app.config.article.enabled.then(|| article::Reads(app.clone())),
        pages: app.config.python.enabled.then(|| python::Pages(app.clone())),
        app: app.clone(),
    };
    Routes { router: router(app), shortcut: Some(Arc::new(shortcut)) }
}

/// The ways of nearly all requests.
struct Shortcuts {
    questions: Option<aur::Questions>,
    articles: Option<article::Reads>,
    pages: Option<python::Pages>,
    app: Arc<App>,
}

impl Shortcut for Shortcuts {
    fn answer(&self, head: &Parts, peer: &Peer) -> Option<Shortened> {
        let stopwatch = Stopwatch::start_sampled();
        // Each looks at the path first.
        let question = self.questions.as_ref().and_then(|it| caught(|| it.answer(head, peer)));
        let article = || self.articles.as_ref().and_then(|it| caught(|| it.answer(head, peer)));
        let page = || self.pages.as_ref().and_then(|it| caught(|| it.answer(head, peer)));
        let (endpoint, answer) = if let Some(answer) = question {
            (Endpoint::AnswerQuestion, answer)
        } else if let Some(answer) = article() {
            (Endpoint::ReadArticle, answer)
        } else {
            (Endpoint::ShowSimplePage, page()?)
        };
        match answer {
            Shortened::Now(ref response) | Shortened::Finished(ref response) => {
                self.app.metrics.responded(endpoint, response.status(), stopwatch);
                Some(answer)
            }
            Shortened::Later(making) => {
                let app = self.app.clone();
                Some(Shortened::Later(Box::pin(async move {
                    let making = AssertUnwindSafe(making).catch_unwind();
                    let response = making.await.unwrap_or_else(panicked);
                    app.metrics.responded(endpoint, response.status(), stopwatch);
                    response
                })))
            }
        }
    }
}

/// What a shortcut finds; its panic becomes the answer that a panic of a route's handler becomes.
fn caught(find: impl FnOnce() -> Option<Shortened>) -> Option<Shortened> {
    // The compiler does not see that no answer is given by halves: a panic loses it whole.
    let found = catch_unwind(AssertUnwindSafe(find));
    found.unwrap_or_else(|cause| Some(Shortened::Now(panicked(cause))))
}

/// The table.
fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        // For people.
        .route("/", get(actions::index).post(actions::posted_to_root))
        .route("/docs", get(pages::documentation))
        .route("/docs/", get(pages::documentation))
        .route("/docs/aur", get(pages::aur))
        .route("/openapi.json", get(pages::openapi))
        .route("/robots.txt", get(pages::robots))
        .route("/favicon.ico", get(pages::favicon))
        // Operations.
        .route("/livez", get(health::alive))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/ready", get(health::ready))
        .route("/version", get(health::version));
    // Tokens, for programs of users.
    router = router
        .route("/+tokens", any(tokens::collection))
        .route("/+tokens/{id}", any(tokens::single));
    if app.config.metrics.enabled {
        router = router
            .route("/metrics", get(health::metrics))
            .route("/rpc/metrics", get(health::metrics));
    }
    if app.config.article.enabled {
        router = router
            .route("/articles", get(article::list))
            .route("/article", any(article::no_name))
            .route("/article/", any(article::no_name))
            .route("/article/{*rest}", any(article::answer));
    }
    if app.config.actions.enabled {
        router = router.route("/actions", any(actions::answer));
    }
    let guarded = middleware::from_fn_with_state(app.clone(), auth::refuse_foreign_pages);
    let router = if app.config.python.enabled {
        router.fallback(python::answer)
    } else {
        router.fallback(error::not_found)
    };
    // For the routes above, and whatever else is asked for. Those below change nothing, and any page may ask them.
    let mut router = router.layer(guarded);
    if app.config.aur.enabled {
        router = router
            // Questions; these handlers answer every method.
            .route("/rpc", any(aur::answer))
            .route("/rpc/", any(aur::answer))
            .route("/rpc.php", any(aur::answer))
            .route("/rpc.php/", any(aur::answer))
            .route("/rpc/{*rest}", any(aur::answer))
            .route("/api", any(aur::answer))
            .route("/api/", any(aur::answer))
            .route("/api/{*rest}", any(aur::answer))
            // goaurrpc's old paths of documentation.
            .route("/rpc/swagger", get(pages::aur))
            .route("/rpc/swagger/", get(pages::aur))
            .route("/rpc/olddoc.html", get(pages::aur))
            .route("/rpc/openapi.json", get(pages::openapi))
            .route("/rpc/stats", get(pages::statistics))
            .route("/api/swagger", get(pages::aur))
            .route("/api/swagger/", get(pages::aur))
            .route("/api/openapi.json", get(pages::openapi));
        for name in dumps::FILE_NAMES {
            router = router
                .route(&format!("/{name}"), get(dumps::file))
                .route(&format!("/{name}.sha256"), get(dumps::digest));
        }
    } else {
        // None of these names can belong to a user, so they hide nothing of the Python index.
        let questions = [
            "/rpc",
            "/rpc/",
            "/rpc/{*rest}",
            "/rpc.php",
            "/rpc.php/",
            "/api",
            "/api/",
            "/api/{*rest}",
        ];
        let dumps = dumps::FILE_NAMES.iter();
        let dumps = dumps.flat_map(|name| [format!("/{name}"), format!("/{name}.sha256")]);
        for path in questions.map(str::to_owned).into_iter().chain(dumps) {
            router = router.route(&path, any(aur::is_off));
        }
    }
    // For the routes above; one that is added later would not have it.
    let router = router.method_not_allowed_fallback(error::wrong_method);
    finish(router, app, Surface::House)
}

/// The routes of the admin listener.
pub fn admin_router(app: Arc<App>) -> Router {
    let guarded = middleware::from_fn_with_state(app.clone(), auth::refuse_foreign_pages);
    let router = admin::routes(app.clone()).fallback(error::not_found).layer(guarded);
    finish(router, app, Surface::Admin)
}

/// What every listener has: errors in one form, counting, and survival of a handler's panic.
fn finish(router: Router<Arc<App>>, app: Arc<App>, surface: Surface) -> Router {
    router
        .layer(CatchPanicLayer::custom(panicked))
        // Around the panics, so that they are counted as what they become.
        .layer(middleware::from_fn_with_state((app.clone(), surface), count))
        .with_state(app)
}

async fn count(
    State((app, surface)): State<(Arc<App>, Surface)>,
    request: Request,
    next: Next,
) -> Response {
    let stopwatch = Stopwatch::start();
    let endpoint = endpoint_of(surface, request.method(), request.uri().path());
    let peer = request.extensions().get::<Peer>().map_or(ClientAddress::Unix, |peer| peer.address);
    let client = ClientAddress::resolve(peer, request.headers(), &app.trusted);
    let is_browsed = surface != Surface::Admin && people::is_browser(request.headers());
    let site = is_browsed.then(|| Site::of_request(&app, &request));
    let mut response = security::of_request(client, next.run(request)).await;
    if let Some(site) = site {
        response = people::for_browser(&site, response).await;
    }
    let endpoint = response.extensions().get().copied().unwrap_or(endpoint);
    app.metrics.responded(endpoint, response.status(), stopwatch);
    response
}

/// What the router answers on a listener of the `surface`: the main one is of the house. A handler that knows better puts its
/// endpoint among the extensions of the response.
fn endpoint_of(surface: Surface, method: &Method, path: &str) -> Endpoint {
    let (tree, otherwise) = match surface {
        Surface::Admin => (Tree::Admin, Endpoint::FindNothingForAdmins),
        _ => (Tree::Main, Endpoint::FindNothing),
    };
    let pattern = match path.strip_prefix('/').unwrap_or_default().split_once('/') {
        Some(("rpc" | "api", _)) if Place::named(tree, path).is_none() => "/rpc",
        Some(("article", rest)) if rest.ends_with("/history") => "/article/{article}/history",
        Some(("article", rest)) if rest.ends_with("/diff") => "/article/{article}/diff",
        Some(("article", _)) if *method == Method::POST => "/article/{article}/{version}",
        Some(("article", _)) => "/article/{article}",
        _ => path,
    };
    let names = || path.split('/').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let place = Place::named(tree, pattern).or_else(|| Place::find(tree, &names(), Some(method)));
    place.map_or(otherwise, |place| place.endpoint(method).unwrap_or_else(|| place.first()))
}

fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let cause = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(cause, "a request handler panicked");
    HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error; it has been logged")
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::Service as _;

    use super::*;
    use crate::config::Config;

    async fn panicking() -> StatusCode {
        panic!("a handler that panics")
    }

    #[test]
    fn a_shortcut_that_panics_answers_500() {
        let Some(Shortened::Now(response)) = caught(|| panic!("a shortcut that panics")) else {
            panic!("no answer");
        };
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert!(caught(|| None).is_none());
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_counted_as_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let store = crate::setup::open(&config).await.expect("a store");
        let (app, _requests) = App::new(config, store).expect("an app");
        let app = Arc::new(app);
        let table = Router::new().route("/docs", get(panicking));
        let mut router = finish(table, app.clone(), Surface::House);
        let request = Request::get("/docs").body(Body::empty()).expect("a request");
        let response = router.call(request).await.expect("routers do not fail");
        assert_eq!(response.status(), 500);
        let metrics = String::from_utf8(app.metrics.render()).expect("text");
        let line = "larder_http_requests_total{status=\"500\",surface=\"house\"} 1\n";
        assert!(metrics.contains(line), "{metrics}");
    }
}
