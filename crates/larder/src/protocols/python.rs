//! The Python index: devpi's URL space, and the URLs of installers and uploaders.
//!
//! path -> [`names::Names`] -> a handler, which the [door](crate::door) calls -> response, each with devpi's headers. All
//! requests that no other surface answers come here: `/{user}/{index}/…` has no prefix.

pub(crate) mod ask;
pub(crate) mod audit;
pub(crate) mod documentation;
pub(crate) mod downloads;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod index_log;
pub(crate) mod integrity;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod prefetch;
pub(crate) mod project;
pub(crate) mod public_json;
pub(crate) mod push;
pub(crate) mod refusals;
pub(crate) mod reply;
pub(crate) mod rights;
pub(crate) mod search;
pub(crate) mod simple;
pub(crate) mod stages;
pub(crate) mod status;
pub(crate) mod tox_results;
pub(crate) mod upload;
pub(crate) mod upstream_names;
pub(crate) mod users;
pub(crate) mod write;
pub(crate) mod yank;

use http::header::{ACCEPT, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use state::stored::Stored;

use crate::app::App;
use crate::front::serial::{X_DEVPI_SERIAL, X_LARDER_SERIAL};

pub(crate) use self::audit::entries as audit_entries;
pub(crate) use self::prefetch::{
    LOCK_BYTES_MAX, last as last_prefetch, start as start_prefetch, stop as stop_prefetch,
};
pub(crate) use self::push::{PushOutcome, SentUpload, push};
pub(crate) use self::refusals::error_of;
pub(crate) use self::simple::mirrored::refresh;
pub(crate) use self::stages::trouble_of_upstream;
pub(crate) use self::yank::remove_old_versions;

/// The version of devpi's protocol; devpi's client refuses any other.
const API_VERSION: HeaderValue = HeaderValue::from_static("2");
/// The server whose behaviour this is.
const SERVER_VERSION_TEXT: &str = "6.20.3";
const SERVER_VERSION: HeaderValue = HeaderValue::from_static(SERVER_VERSION_TEXT);

const X_DEVPI_API_VERSION: HeaderName = HeaderName::from_static("x-devpi-api-version");
const X_DEVPI_SERVER_VERSION: HeaderName = HeaderName::from_static("x-devpi-server-version");
const X_DEVPI_UUID: HeaderName = HeaderName::from_static("x-devpi-uuid");
const X_DEVPI_MASTER_UUID: HeaderName = HeaderName::from_static("x-devpi-master-uuid");
const X_DEVPI_PRIMARY_UUID: HeaderName = HeaderName::from_static("x-devpi-primary-uuid");

/// Whether the client is pip or another installer: some of them name HTML first, as browsers do.
pub(crate) fn is_installer(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    agent.is_some_and(ask::is_installer)
}

/// Whether a request for `/` is from devpi's client, rather than from a browser.
pub(crate) fn wants_users(app: &App, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    app.config.python.enabled && accept.is_some_and(ask::wants_json)
}

/// The headers that devpi sends with every response.
pub(crate) fn insert_headers(headers: &mut HeaderMap, stored: &Stored) {
    headers.insert(X_DEVPI_API_VERSION, API_VERSION);
    headers.insert(X_DEVPI_SERVER_VERSION, SERVER_VERSION);
    if let Some(identity) = &stored.identity {
        for name in [X_DEVPI_UUID, X_DEVPI_MASTER_UUID, X_DEVPI_PRIMARY_UUID] {
            headers.insert(name, identity.clone());
        }
    }
    if !headers.contains_key(X_DEVPI_SERIAL) {
        let serial = stored.serial_header();
        headers.insert(X_DEVPI_SERIAL, serial.clone());
        headers.insert(X_LARDER_SERIAL, serial);
    }
}
