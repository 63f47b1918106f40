//! The mirror of the demonstration, and its upstream: a little index in this process, on a port of the loopback interface,
//! which plays the internet.
//!
//! [`RELEASES`] -> pages and wheels in memory -> served -> the stage `root/pypi`, which mirrors them, as a base of [`DEV`]. The
//! port is in the stage's `mirror_url`; a later start takes the same one, unless another program has it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use config::DEMO_UPSTREAM_HOST as HOST;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use operations::carry_out;
use operations::indexes::{ChangeIndex, CreateIndex};
use pypi::{ConfigEdit, StageName};
use record::Digest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::packages::{DEV, Release};
use super::root;
use crate::app::App;

/// The stage that mirrors the upstream.
pub(super) const MIRROR: &str = "root/pypi";

const SPICES: &str = "HEAT = {\"saffron\": 0, \"pepper\": 3, \"chili\": 9}\n";
const SOUP: &str = "from larder_spices import HEAT\n\n\nif __name__ == \"__main__\":\n    print(f\"Soup with {', '.join(HEAT)}\")\n";
const STRANGER: &str = "raise SystemExit(\"this is a stranger's package\")\n";

const RELEASES: [Release; 4] = [
    Release {
        stage: MIRROR,
        name: "larder-spices",
        version: "1.0",
        summary: "How hot spices are",
        requires: &[],
        module: SPICES,
    },
    Release {
        stage: MIRROR,
        name: "larder-spices",
        version: "1.1",
        summary: "How hot spices are",
        requires: &[],
        module: SPICES,
    },
    Release {
        stage: MIRROR,
        name: "larder-soup",
        version: "2.0",
        summary: "Cooks a soup",
        requires: &["larder-spices>=1.1"],
        module: SOUP,
    },
    // One of our own names, with a higher version: no stage with its own `larder-hello` shows it.
    Release {
        stage: MIRROR,
        name: "larder-hello",
        version: "99.0",
        summary: "Of a stranger who took the name on the internet",
        requires: &[],
        module: STRANGER,
    },
];

/// The answers: content type and body, by path.
type Answers = BTreeMap<String, (&'static str, Bytes)>;

fn answers() -> anyhow::Result<Answers> {
    const JSON: &str = "application/vnd.pypi.simple.v1+json";
    let meta = json!({"api-version": "1.1"});
    let mut answers = Answers::new();
    let mut projects: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for release in &RELEASES {
        let (filename, wheel) = (release.filename(), Bytes::from(release.wheel()?));
        let path = format!("/files/{filename}");
        projects.entry(release.name).or_default().push(json!({
            "filename": filename,
            "url": format!("../..{path}"),
            "hashes": {"sha256": Digest::of(&wheel).to_string()},
            "size": wheel.len(),
            "upload-time": "2026-01-31T12:00:00.000000Z",
            "requires-python": ">=3.8",
        }));
        answers.insert(path, ("application/octet-stream", wheel));
    }
    let names: Vec<Value> = projects.keys().map(|name| json!({"name": name})).collect();
    let mut add = |path: String, page: Value| {
        answers.insert(path, (JSON, page.to_string().into()));
    };
    add("/simple/".to_owned(), json!({"meta": meta, "projects": names}));
    for (name, files) in projects {
        add(format!("/simple/{name}/"), json!({"meta": meta, "name": name, "files": files}));
    }
    Ok(answers)
}

/// Serves the upstream until this process ends.
fn serve(listener: TcpListener, answers: Answers) {
    let answers = Arc::new(answers);
    let answer = move |uri: Uri| {
        let answers = answers.clone();
        async move { respond(&answers, uri.path()) }
    };
    let router: axum::Router = axum::Router::new().fallback(answer);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::warn!(%error, "the upstream of the demonstration has ended");
        }
    });
}

fn respond(answers: &Answers, path: &str) -> Response {
    match answers.get(path) {
        Some((content_type, body)) => {
            ([(CONTENT_TYPE, *content_type)], body.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Starts the upstream, and makes the stage that mirrors it.
///
/// # Errors
/// If there is no port, and those of the store.
pub(super) async fn write(app: &App) -> anyhow::Result<()> {
    let (mirror, dev): (StageName, StageName) = (MIRROR.parse()?, DEV.parse()?);
    let stored = || app.live_store.snapshot_full().context("the store is not loaded");
    let before = stored()?.index.stage(MIRROR).map(|stage| stage.config().clone());
    let known_url = match &before {
        None => None,
        Some(config) => {
            let url = config.mirror().and_then(|settings| settings.mirror_url.clone());
            match url.as_deref().and_then(port_of) {
                Some(port) => Some(port),
                // Somebody has another use for this name.
                None => return Ok(()),
            }
        }
    };
    let same = match known_url {
        Some(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.ok(),
        None => None,
    };
    let listener = match same {
        Some(listener) => listener,
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?,
    };
    let port = listener.local_addr()?.port();
    serve(listener, answers()?);
    let url = json!(format!("http://{HOST}:{port}/simple/"));
    let (mut keeper, sender) = (app.keeper(), root(app)?);
    let changed = |stage: &StageName, edit: Value| {
        let (stage, edit) = (stage.clone(), ConfigEdit::parse(&edit)?);
        anyhow::Ok(ChangeIndex { stage, edit, is_noop_an_error: false, seen: None })
    };
    if before.is_none() {
        let edit = ConfigEdit::parse(&json!({
            "type": "mirror",
            "mirror_url": url,
            "title": "Mirrors a small index inside this demonstration",
        }))?;
        let creating = CreateIndex { stage: mirror.clone(), edit };
        carry_out(&mut keeper, &sender, &creating).await?;
    } else {
        let changing = changed(&mirror, json!({ "mirror_url": url }))?;
        carry_out(&mut keeper, &sender, &changing).await?;
    }
    // A demonstration that was made before there was a mirror gets it, too.
    let bases = stored()?.index.stage(DEV).map(|stage| stage.config().bases().to_vec());
    if let Some(bases) = bases
        && before.is_none()
        && !bases.contains(&mirror)
    {
        let bases: Vec<&str> = bases.iter().map(StageName::as_str).chain([MIRROR]).collect();
        let changing = changed(&dev, json!({ "bases": bases }))?;
        carry_out(&mut keeper, &sender, &changing).await?;
    }
    Ok(())
}

/// The port, of a URL that this demonstration has made.
fn port_of(url: &str) -> Option<u16> {
    let rest = url.strip_prefix("http://")?.strip_prefix(HOST)?.strip_prefix(':')?;
    rest.strip_suffix("/simple/")?.parse().ok()
}
