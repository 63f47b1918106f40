//! All steps: source, arrival, verdict, kept copy, and again after a restart.

use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::*;
use crate::kept_dump::tests::opened;

/// `[]` as gzip.
const DUMP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x8b\x8e\x05\x00\x29\xbb\x4c\x0d\x02\x00\x00\x00";

/// Counts the bodies that were sent and the requests that were answered 304.
#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    unchanged: AtomicUsize,
}

async fn dump(State(counts): State<Arc<Counts>>, headers: HeaderMap) -> Response {
    if headers.get(header::IF_NONE_MATCH).is_some_and(|etag| etag == "\"a\"") {
        counts.unchanged.fetch_add(1, Ordering::SeqCst);
        return StatusCode::NOT_MODIFIED.into_response();
    }
    counts.sent.fetch_add(1, Ordering::SeqCst);
    ([(header::ETAG, "\"a\"")], DUMP).into_response()
}

async fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "4000")]).into_response()
}

/// The URL of a server that has the dump at `/dump` and refuses at `/busy`.
async fn serve(counts: Arc<Counts>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router =
        Router::new().route("/dump", get(dump)).route("/busy", get(busy)).with_state(counts);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

fn open(text: &str, kept: &KeptDump) -> Source {
    let options = SourceOptions {
        environment_proxy: false,
        file_look_interval: Duration::from_millis(10),
        jitter_seed: Some(1),
        ..SourceOptions::default()
    };
    Source::open(SourceSpec::parse(text).unwrap(), options, kept.spool_dir()).unwrap()
}

fn content(arrival: &Arrival) -> Vec<u8> {
    let mut content = Vec::new();
    arrival.reader().read_to_end(&mut content).unwrap();
    content
}

/// Waits and polls until a dump arrives or a poll fails.
async fn next_dump(source: &mut Source) -> Result<Arrival, SourceError> {
    loop {
        source.wait().await;
        if let Some(SourceNews::Dump(arrival)) = source.poll(false).await? {
            return Ok(arrival);
        }
    }
}

/// How long until the next poll is due.
fn due_in(source: &Source) -> Duration {
    source.next_at.saturating_duration_since(Instant::now())
}

#[tokio::test]
async fn a_restart_remembers_the_etag() {
    let counts = Arc::new(Counts::default());
    let url = serve(Arc::clone(&counts)).await + "/dump";
    let directory = tempfile::tempdir().unwrap();
    {
        let mut kept = opened(directory.path());
        assert!(kept.load().unwrap().is_none());
        let mut source = open(&url, &kept);
        let arrival = next_dump(&mut source).await.unwrap();
        assert_eq!(content(&arrival), DUMP);
        source.accepted(&arrival);
        kept.keep(&arrival).unwrap();
        assert!(source.poll(true).await.unwrap().is_none());
    }
    let mut kept = opened(directory.path());
    let arrival = kept.load().unwrap().unwrap();
    let mut source = open(&url, &kept);
    source.accepted(&arrival);
    assert!(source.poll(false).await.unwrap().is_none());
    assert_eq!(
        (counts.sent.load(Ordering::SeqCst), counts.unchanged.load(Ordering::SeqCst)),
        (1, 2)
    );

    // The validators of one server are not sent to another, not even to another URL of the same server.
    let mut source = open(&format!("{url}?"), &kept);
    source.accepted(&arrival);
    assert!(source.poll(false).await.unwrap().is_some());
    assert_eq!(counts.sent.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_rejected_dump_is_asked_for_again_and_sooner() {
    let counts = Arc::new(Counts::default());
    let url = serve(Arc::clone(&counts)).await + "/dump";
    let directory = tempfile::tempdir().unwrap();
    let kept = opened(directory.path());
    let mut source = open(&url, &kept);
    assert!(source.poll(false).await.unwrap().is_some());
    source.rejected("line 1, column 3: expected a name");
    assert_eq!(source.error(), Some("line 1, column 3: expected a name"));
    assert_eq!(source.failures(), 1);
    assert!(due_in(&source) <= schedule::BACKOFF_FIRST);
    let arrival = source.poll(false).await.unwrap().and_then(SourceNews::dump).unwrap();
    source.accepted(&arrival);
    assert_eq!((source.error(), source.failures()), (None, 0));
    assert!(source.poll(false).await.unwrap().is_none());
    assert_eq!(counts.sent.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn retry_after_is_honoured_and_intervals_change() {
    let url = serve(Arc::new(Counts::default())).await;
    let directory = tempfile::tempdir().unwrap();
    let kept = opened(directory.path());
    let mut source = open(&format!("{url}/busy"), &kept);
    assert_eq!(due_in(&source), Duration::ZERO);
    let error = source.poll(false).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{url}/busy` answered 503 Service Unavailable, expected 200 or 304")
    );
    assert_eq!(source.error(), Some(error.to_string().as_str()));
    // The waits in this test would be hours, which is far enough even for the slowest machine.
    assert!(due_in(&source) > Duration::from_secs(3000), "{:?}", due_in(&source));

    let mut source = open(&format!("{url}/dump"), &kept);
    let arrival = source.poll(false).await.unwrap().and_then(SourceNews::dump).unwrap();
    source.accepted(&arrival);
    source.set_interval(Duration::from_secs(100_000));
    assert!(due_in(&source) > Duration::from_secs(80_000), "{:?}", due_in(&source));
    source.set_interval(Duration::ZERO);
    assert_eq!(source.interval(), INTERVAL_MIN);
    source.wait().await;
    source.set_interval(Duration::MAX);
    assert_eq!(source.interval(), INTERVAL_MAX);
}

#[tokio::test]
async fn a_file_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let mut kept = opened(&directory.path().join("data"));
    let mut source = open(path.to_str().unwrap(), &kept);
    let missing = next_dump(&mut source).await.unwrap_err();
    assert_eq!(source.error(), Some(missing.to_string().as_str()));
    for (number, text) in ["[1]", "[2]", "[3]"].into_iter().enumerate() {
        let aside = directory.path().join("aside");
        let place = if number == 2 { &path } else { &aside };
        fs::write(place, text).unwrap();
        if place == &aside {
            fs::rename(&aside, &path).unwrap();
        }
        let arrival = next_dump(&mut source).await.unwrap();
        assert_eq!(content(&arrival), text.as_bytes());
        source.accepted(&arrival);
        assert_eq!(source.error(), None);
        kept.keep(&arrival).unwrap();
        assert_eq!(arrival.origin, path.display().to_string());
    }
    drop(kept);
    let arrival = opened(&directory.path().join("data")).load().unwrap().unwrap();
    assert_eq!(arrival.bytes, fs::metadata(arrival.path()).unwrap().len());
}

#[tokio::test]
async fn a_rejected_file_stays_an_error_until_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dump");
    let kept = opened(&directory.path().join("data"));
    fs::write(&path, "bad").unwrap();
    let mut source = open(path.to_str().unwrap(), &kept);
    next_dump(&mut source).await.unwrap();
    source.rejected("not JSON");
    assert!(source.poll(false).await.unwrap().is_none());
    assert_eq!((source.error(), source.failures()), (Some("not JSON"), 1));
    assert_eq!(
        content(&source.poll(true).await.unwrap().and_then(SourceNews::dump).unwrap()),
        b"bad"
    );
    source.rejected("not JSON");
    assert_eq!(source.failures(), 2);
    fs::write(&path, "[]").unwrap();
    let arrival = next_dump(&mut source).await.unwrap();
    source.accepted(&arrival);
    assert_eq!((source.error(), source.failures()), (None, 0));
}
