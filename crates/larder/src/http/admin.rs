//! The admin listener: goaurrpc's endpoints under a key that has no default.
//!
//! - `/admin/run-job/{reload-data|wipe-ratelimits|cleanup-ratelimits|wipe-cache|cleanup-cache}`, and `rescue`, which
//!   goaurrpc has not
//! - `/admin/settings`, `/admin/settings/{name}`
//! - `/admin/openapi.json`, without a key
//!
//! Texts are goaurrpc's, as scripts read them. Settings changed here last until the next start.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::error::{wrong_method, wrong_method_beside_post};
use super::{auth, pages};
use crate::app::App;
use crate::live_settings::LiveSetting;
use crate::rescue::rescue;
use crate::security;

/// The routes; all but the OpenAPI document need the key.
pub(super) fn routes(app: Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route(
            "/admin/run-job/{name}",
            get(run_job).post(run_job).fallback(wrong_method_beside_post),
        )
        .route("/admin/settings", get(all_settings))
        .route("/admin/settings/", get(all_settings))
        .route(
            "/admin/settings/{name}",
            get(setting).post(setting).fallback(wrong_method_beside_post),
        )
        .route_layer(middleware::from_fn_with_state(app, check_key))
        .route("/admin/openapi.json", get(pages::admin_openapi))
        .method_not_allowed_fallback(wrong_method)
}

async fn check_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get("APIKey").map(|value| value.as_bytes());
    let checked = match (&app.config.admin.key, given) {
        (Some(key), Some(given)) => {
            let client = security::client().key();
            app.passwords.check_key("admin key", given, client, || key.matches(given))
        }
        _ => Ok(false),
    };
    match checked {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            auth::failed(&app, Some("admin key"), "admin_key");
            text(StatusCode::UNAUTHORIZED, "Unauthorized")
        }
        Err(error) => auth::check_refused(&app, error).into_response(),
    }
}

async fn run_job(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    match name.as_str() {
        "rescue" => {
            let query = request.uri().query().unwrap_or_default();
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let directory = pairs.find(|(key, _)| key == "directory");
            let directory = directory.map(|(_, value)| value.into_owned().into());
            // Whoever asked may go away: what was begun is finished.
            match tokio::spawn(async move { rescue(&app, directory).await }).await {
                Ok(Ok(rescued)) => {
                    tracing::warn!("{rescued}");
                    text(StatusCode::ACCEPTED, rescued.to_string())
                }
                Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        "reload-data" => match app.reload().await {
            Ok(true) => text(StatusCode::ACCEPTED, "Successfully reloaded data"),
            Ok(false) => text(StatusCode::ACCEPTED, "Reload skipped. Data has not changed"),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
        },
        "wipe-ratelimits" => {
            let removed = app.rate_limiter.wipe();
            text(StatusCode::ACCEPTED, format!("Wiped rate-limits ({removed} entries removed)"))
        }
        "cleanup-ratelimits" => {
            app.rate_limiter.clean_up(Instant::now());
            text(StatusCode::ACCEPTED, "Cleaned up rate-limits")
        }
        // There is no cache of search results to wipe or clean up.
        "wipe-cache" => text(StatusCode::ACCEPTED, "Wiped search-cache (0 entries removed)"),
        "cleanup-cache" => text(StatusCode::ACCEPTED, "Cleaned up search-cache"),
        _ => text(StatusCode::BAD_REQUEST, "Job not found"),
    }
}

async fn all_settings(State(app): State<Arc<App>>) -> Response {
    let mut settings = serde_json::Map::new();
    for setting in SETTINGS {
        settings.insert(setting.title.to_owned(), setting.value(&app));
    }
    settings.insert("AdminAPIKey".to_owned(), json!("********"));
    let body = serde_json::to_string_pretty(&settings).unwrap_or_default();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
}

async fn setting(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let Some(setting) = SETTINGS.into_iter().find(|setting| setting.name == name) else {
        return text(StatusCode::BAD_REQUEST, "Setting not found");
    };
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let current = shown(&setting.value(&app));
    if request.method() != Method::POST {
        return text(
            StatusCode::OK,
            format!("Current setting for '{}' is '{current}'", setting.title),
        );
    }
    let pairs = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let Some(value) =
        pairs.filter(|(key, _)| key == "value").map(|(_, value)| value.into_owned()).last()
    else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "Need new value: ?value=...");
    };
    match setting.change(&app, &value).await {
        Ok(()) => {
            let changed = format!("Changed '{}' from '{current}' to '{value}'", setting.title);
            tracing::info!(
                setting = setting.title,
                from = current,
                to = value,
                "changed a setting"
            );
            text(StatusCode::ACCEPTED, changed)
        }
        Err(problem) => text(StatusCode::INTERNAL_SERVER_ERROR, problem),
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (
        status,
        [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")],
        body.into(),
    )
        .into_response()
}

/// One of goaurrpc's settings.
struct Setting {
    /// In a path.
    name: &'static str,
    /// In goaurrpc's configuration.
    title: &'static str,
    kind: Kind,
}

enum Kind {
    /// Can be changed, to 0 only if the flag says so.
    Live(LiveSetting, bool),
    /// Cannot be changed: what is shown, and why.
    Fixed(fn(&App) -> Value, &'static str),
}

const NO_CACHE: Kind =
    Kind::Fixed(|_| json!(0), "there is nothing to set: searches are fast enough without a cache");

/// goaurrpc's settings, in its order.
const SETTINGS: [Setting; 9] = [
    Setting {
        name: "aur-file-location",
        title: "AurFileLocation",
        kind: Kind::Fixed(
            |app| {
                app.config.aur.source.as_ref().map_or_else(String::new, ToString::to_string).into()
            },
            "the source is set in the configuration, as aur.source, and needs a restart",
        ),
    },
    Setting {
        name: "max-results",
        title: "MaxResults",
        kind: Kind::Live(LiveSetting::ResultsMax, false),
    },
    Setting {
        name: "refresh-interval",
        title: "RefreshInterval",
        kind: Kind::Live(LiveSetting::Refresh, false),
    },
    Setting {
        name: "rate-limit",
        title: "RateLimit",
        kind: Kind::Live(LiveSetting::RateLimit, true),
    },
    Setting {
        name: "rate-limit-cleanup-interval",
        title: "RateLimitCleanupInterval",
        kind: Kind::Fixed(
            |_| json!(0),
            "there is nothing to set: the memory of the rate limit is bounded without cleaning",
        ),
    },
    Setting {
        name: "rate-limit-time-window",
        title: "RateLimitTimeWindow",
        kind: Kind::Live(LiveSetting::RateLimitWindow, false),
    },
    Setting { name: "cache-cleanup-interval", title: "CacheCleanupInterval", kind: NO_CACHE },
    Setting { name: "cache-expiration-time", title: "CacheExpirationTime", kind: NO_CACHE },
    Setting {
        name: "enable-search-cache",
        title: "EnableSearchCache",
        kind: Kind::Fixed(
            |_| json!(false),
            "there is nothing to set: searches are fast enough without a cache",
        ),
    },
];

impl Setting {
    fn value(&self, app: &App) -> Value {
        match self.kind {
            Kind::Live(setting, _) => setting.value(app).into(),
            Kind::Fixed(value, _) => value(app),
        }
    }

    async fn change(&self, app: &App, value: &str) -> Result<(), String> {
        let (setting, may_be_0) = match self.kind {
            Kind::Live(setting, may_be_0) => (setting, may_be_0),
            Kind::Fixed(_, reason) => return Err(reason.to_owned()),
        };
        match value.parse::<u32>() {
            Ok(0) if !may_be_0 => Err("Value can not be 0".to_owned()),
            Ok(number) => setting.set(app, number.into()).await,
            Err(_) => Err(format!("'{value}' is not a whole number from 0 to {}", u32::MAX)),
        }
    }
}
