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

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use resources::turns::joined;
use serde_json::{Value, json};
use state::security;

use super::openapi;
use crate::app::App;
use crate::app::live_settings::LiveSetting;
use crate::front::auth;
use crate::front::error::HttpError;
use crate::front::parameters::parameter;
use crate::front::request::Parts;
use crate::routes::trees::Admin;
use crate::routes::{Endpoint, InTree, Route, Tree};
use crate::tasks::rescue::rescue;

/// The answer to a request to this listener, and the endpoint that gave it.
pub(crate) async fn answer(app: &Arc<App>, head: &Parts) -> (Endpoint, Response) {
    let path = head.uri.path();
    let Some(route) = Route::find(Tree::Admin, path, None) else {
        let nothing = HttpError::nothing_at(path);
        return (Endpoint::FindNothingForAdmins, nothing.into_response());
    };
    let found = route.place.endpoint(&head.method);
    let endpoint = found.unwrap_or(route.place.first());
    let outcome = match (admitted(app, head, endpoint).await, found) {
        (Err(error), _) => Err(error),
        (Ok(false), _) => Ok(text(StatusCode::UNAUTHORIZED, "Unauthorized")),
        (Ok(true), Some(found)) => handle(app, head, found, &route).await,
        (Ok(true), None) => {
            Err(HttpError::method_not_allowed(&head.method, path, route.place.allow()))
        }
    };
    (endpoint, outcome.unwrap_or_else(HttpError::into_response))
}

/// Whether the request may be answered: all but the OpenAPI document need the key.
async fn admitted(app: &App, head: &Parts, endpoint: Endpoint) -> Result<bool, HttpError> {
    auth::refuse_foreign_pages(app, head, endpoint)?;
    let is_admitted = endpoint == Endpoint::ShowAdminOpenapi || has_key(app, head).await?;
    if !is_admitted {
        auth::failed(app, Some("admin key"), "admin_key");
    }
    Ok(is_admitted)
}

async fn handle(
    app: &Arc<App>,
    head: &Parts,
    endpoint: Endpoint,
    route: &Route,
) -> Result<Response, HttpError> {
    let InTree::Admin(endpoint) = endpoint.in_tree() else {
        return Err(HttpError::nothing_at(route.path()));
    };
    let name = route.name("{name}");
    Ok(match endpoint {
        Admin::RunJob => run_job(app, head, &name).await,
        Admin::ListSettings => list_settings(app),
        Admin::ReadSetting => read_setting(app, &name),
        Admin::ChangeSetting => change_setting(app, head, &name).await,
        Admin::ShowAdminOpenapi => openapi::show_admin_openapi(head).await,
        Admin::FindNothingForAdmins => return Err(HttpError::nothing_at(route.path())),
    })
}

async fn has_key(app: &App, head: &Parts) -> Result<bool, HttpError> {
    let given = head.headers.get("APIKey").map(|value| value.as_bytes());
    let (Some(key), Some(given)) = (&app.config.admin.key, given) else { return Ok(false) };
    let client = security::client().key();
    let checked = app.limits.passwords.check_key("admin key", given, client, || key.matches(given));
    checked.map_err(|error| auth::check_refused(app, error))
}

async fn run_job(app: &Arc<App>, head: &Parts, name: &str) -> Response {
    match name {
        "rescue" => {
            let directory = parameter(head, "directory").map(|path| path.into_owned().into());
            let app = app.clone();
            // If the client goes away, the work still ends.
            match joined(tokio::spawn(async move { rescue(&app, directory).await })).await {
                Ok(rescued) => {
                    tracing::warn!("{rescued}");
                    text(StatusCode::ACCEPTED, rescued.to_string())
                }
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
            }
        }
        "reload-data" => match app.aur.reload().await {
            Ok(true) => text(StatusCode::ACCEPTED, "Successfully reloaded data"),
            Ok(false) => text(StatusCode::ACCEPTED, "Reload skipped. Data has not changed"),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
        },
        "wipe-ratelimits" => {
            let removed = app.aur.rate_limiter.wipe();
            text(StatusCode::ACCEPTED, format!("Wiped rate-limits ({removed} entries removed)"))
        }
        "cleanup-ratelimits" => {
            app.aur.rate_limiter.clean_up(Instant::now());
            text(StatusCode::ACCEPTED, "Cleaned up rate-limits")
        }
        // There is no cache of search results to wipe or clean up.
        "wipe-cache" => text(StatusCode::ACCEPTED, "Wiped search-cache (0 entries removed)"),
        "cleanup-cache" => text(StatusCode::ACCEPTED, "Cleaned up search-cache"),
        _ => text(StatusCode::BAD_REQUEST, "Job not found"),
    }
}

fn list_settings(app: &App) -> Response {
    let mut settings = serde_json::Map::new();
    for setting in SETTINGS {
        settings.insert(setting.title.to_owned(), setting.value(app));
    }
    settings.insert("AdminAPIKey".to_owned(), json!("********"));
    let body = serde_json::to_string_pretty(&settings).unwrap_or_default();
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
}

fn read_setting(app: &App, name: &str) -> Response {
    let Some(setting) = Setting::named(name) else { return no_setting() };
    let text_of = format!("Current setting for '{}' is '{}'", setting.title, setting.shown(app));
    text(StatusCode::OK, text_of)
}

fn no_setting() -> Response {
    text(StatusCode::BAD_REQUEST, "Setting not found")
}

async fn change_setting(app: &App, head: &Parts, name: &str) -> Response {
    let Some(setting) = Setting::named(name) else { return no_setting() };
    let current = setting.shown(app);
    let pairs = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let Some(value) =
        pairs.filter(|(key, _)| key == "value").map(|(_, value)| value.into_owned()).last()
    else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "Need new value: ?value=...");
    };
    match setting.change(app, &value).await {
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
    /// Its name in a path.
    name: &'static str,
    /// Its name in goaurrpc's configuration.
    title: &'static str,
    kind: Kind,
}

enum Kind {
    /// Can be changed, to 0 only if the flag says so.
    Live(LiveSetting, bool),
    /// A setting that cannot be changed: its value, and why.
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
    fn named(name: &str) -> Option<Setting> {
        SETTINGS.into_iter().find(|setting| setting.name == name)
    }

    /// Its value as text.
    fn shown(&self, app: &App) -> String {
        let value = self.value(app);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }

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
