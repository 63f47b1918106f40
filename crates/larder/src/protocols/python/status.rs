//! The server's status, and whether a client may read a URL, for a proxy that asks first.

use account::{Object, Scope};
use axum::response::{IntoResponse, Response};
use following::LinkState;
use http::StatusCode;
use http::header::{HeaderName, USER_AGENT};
use jiff::Timestamp;
use net::ListenAddress;
use pypi::ResolutionOrder;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::error::ApiError;
use super::names::{Names, settled};
use super::rights::{IndexPart, admit, admit_to_file};
use super::{SERVER_VERSION_TEXT, reply};
use crate::front::error::HttpError;
use crate::front::outside::prefix;
use crate::front::target::{below, in_one_spelling};
use crate::routes::Endpoint;

const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// `GET /+status`
pub(crate) async fn show_server_status(ask: &Ask) -> Result<Response, ApiError> {
    let app = &ask.app;
    let sees_all = app.config.python.devpi_defaults
        || ask.principal().await?.is_administrator(Scope::ServerAdmin, Object::Server);
    // Only administrators see the address that it listens at.
    let (host, port) = match app.config.listen.first().filter(|_| sees_all) {
        Some(ListenAddress::Tcp(address)) => (address.ip().to_string(), address.port()),
        Some(ListenAddress::Unix(path)) => (format!("unix:{}", path.display()), 0),
        None => (String::new(), 0),
    };
    let serial = ask.stored.serial.0;
    let identity = ask.stored.identity.as_ref().and_then(|value| value.to_str().ok());
    let counts = app.python.pages.counts();
    // A write is seen once it is in every page: what devpi's plugins are told later, is told at once here.
    let seen_at = app.live_store.seen_at().map(seconds);
    let mut result = json!({
        // Clients have no use for the path on the disk.
        "serverdir": "",
        "uuid": identity,
        "versioninfo": {"devpi-server": SERVER_VERSION_TEXT, "larder": env!("CARGO_PKG_VERSION")},
        "server-code": "larder",
        "host": host,
        "port": port,
        "outside-url": app.config.public_url,
        "serial": serial,
        "last-commit-timestamp": seen_at,
        "event-serial": serial,
        "event-serial-timestamp": seen_at,
        "event-serial-in-sync-at": seen_at,
        "metrics": [
            ["larder_python_pages_rendered_total", "counter", counts.rendered],
            ["larder_python_lists_rendered_total", "counter", counts.rendered_lists],
            ["larder_python_pages", "gauge", counts.pages],
            ["larder_python_page_bytes", "gauge", counts.page_bytes],
        ],
        "role": "MASTER",
        "polling_replicas": {},
    });
    if let (Some(following), Some(members)) = (&app.following, result.as_object_mut()) {
        members.extend(of_replica(
            &following.link.state(),
            &following.primary_url(&app.config),
            identity,
        ));
    }
    Ok(reply::result(StatusCode::OK, "status", result, None))
}

/// What devpi's replicas say, with its names of today and of before.
fn of_replica(state: &LinkState, primary_url: &str, identity: Option<&str>) -> Map<String, Value> {
    let at = |time: Option<Timestamp>| json!(time.map(seconds));
    let mut members = Map::new();
    members.insert("role".to_owned(), json!("REPLICA"));
    for name in ["master", "primary"] {
        let mut insert = |what: &str, value: Value| members.insert(what.replace("{}", name), value);
        insert("{}-url", json!(primary_url));
        insert("{}-uuid", json!(identity));
        insert("{}-serial", json!(state.primary_serial.0));
        insert("{}-serial-timestamp", at(state.heard_at));
        insert("{}-contacted-at", at(state.heard_at));
        insert("update-from-{}-at", at(state.written_at));
    }
    members.insert("replica-in-sync-at".to_owned(), at(state.in_sync_at()));
    members.insert("replication-errors".to_owned(), json!({}));
    members
}

/// Seconds since 1970, with a fraction.
fn seconds(time: Timestamp) -> f64 {
    time.as_microsecond() as f64 / 1e6
}

/// Whether the request is a proxy's, about a URL. A browser sends no such header with a preflight.
pub(crate) fn names_url(ask: &Ask) -> bool {
    ask.head.headers.contains_key(X_ORIGINAL_URI)
}

/// `/+authcheck`, with the URL in `X-Original-URI`: 200 if the client may read it. 401 for an anonymous client, so that
/// a browser asks for a password, but 403 for devpi's client, which would log out.
///
/// The URL is checked by every path that it may mean: as it is, and below the prefix of each outside URL of this server. A
/// client that may not read one of them is refused, so a header that a client sends through a proxy can only make the answer
/// stricter.
pub(crate) async fn check_access(ask: &Ask) -> Result<Response, ApiError> {
    let forbidden = |cause: &str| {
        let cause = if ask.app.config.python.devpi_defaults { "" } else { cause };
        Ok(reply::forbidden(ask, "reading this", cause))
    };
    let mut uris = ask.head.headers.get_all(X_ORIGINAL_URI).iter();
    let uri = match (uris.next(), uris.next()) {
        (None, _) => return Ok(StatusCode::OK.into_response()),
        // Bytes beyond ASCII are legal in a query; in a name they become a character that no name has.
        (Some(uri), None) => String::from_utf8_lossy(uri.as_bytes()),
        // One of them is the proxy's, but nobody knows which.
        (Some(_), Some(_)) => return forbidden(": `X-Original-URI` was sent twice"),
    };
    let path = in_one_spelling(path_of(&uri));
    let public_url = ask.app.config.public_url.as_deref().unwrap_or_default();
    let readings = ["", public_url, ask.root_url()].map(|root| {
        let inner = below(&path, &in_one_spelling(prefix(root))).unwrap_or(&path);
        Some(settled(ask, Names::parse(&in_one_spelling(inner), None)?))
    });
    if readings.iter().all(Option::is_none) {
        return forbidden(": `X-Original-URI` is no path of the index");
    }
    let is_client = ask.header(USER_AGENT).is_some_and(|agent| agent.starts_with("devpi-client"));
    for (at, names) in readings.iter().enumerate() {
        let Some(names) = names.as_ref().filter(|_| !readings[..at].contains(&readings[at])) else {
            continue;
        };
        match may_read(ask, names).await {
            Ok(()) => {}
            Err(error) if is_client => return forbidden(&format!(": {}", error.detail())),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(StatusCode::OK.into_response())
}

/// The path of a URL, which some proxies send whole.
fn path_of(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let whole = ["http://", "https://"].iter().find_map(|scheme| path.strip_prefix(scheme));
    whole.map_or(path, |rest| rest.find('/').map_or("/", |at| &rest[at..]))
}

/// Checks whether the sender may read what is at a path. If it does not exist, the next handler says so.
async fn may_read(ask: &Ask, names: &Names) -> Result<(), HttpError> {
    let Some(name) = names.stage() else { return Ok(()) };
    let index = &ask.stored.index;
    let is_file = matches!(
        names.place.first(),
        Endpoint::DownloadFile
            | Endpoint::YankFile
            | Endpoint::FindExternalFile
            | Endpoint::FindUpstreamFile
    );
    if is_file {
        return match index.stage(name) {
            Some(stage) => admit_to_file(ask, stage, IndexPart::File(names.file.place())).await,
            None => Ok(()),
        };
    }
    let about = match names.project.as_sent.is_empty() {
        true => IndexPart::Whole,
        false => IndexPart::Project(names.project.name.as_ref()),
    };
    match ResolutionOrder::of(index, name) {
        Some(order) => admit(ask, &order, about).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn the_path_of_a_url() {
        let check = |uri: &str, path: &str| assert_eq!(path_of(uri), path, "{uri}");
        check("/u/i/?x=1", "/u/i/");
        check("http://h/u/i#x", "/u/i");
        check("https://h:1?x", "/");
        check("/u/i/p/1/+doc/http://h/+api", "/u/i/p/1/+doc/http://h/+api");
        check("/u/i/?next=http://h/+api", "/u/i/");
    }
}
