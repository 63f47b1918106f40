//! Ten reloads while fifty clients search: no client is refused, and no answer mixes two snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde_json::Value;

use crate::server::{TestServer, runtime, wait_for};
use crate::{catalogue, wait_until};

const CLIENTS: usize = 50;
const RELOADS: u32 = 10;
const PACKAGES: u32 = 300;

/// The clients' questions, and how many records each answer has.
const QUESTIONS: [(&str, usize); 5] = [
    ("/rpc/v5/search/shared", PACKAGES as usize),
    ("/rpc?v=5&type=search&by=name&arg=shared-00", 100),
    ("/rpc/v5/search/everything?by=provides", PACKAGES as usize),
    ("/rpc/v5/info?arg[]=shared-0001&arg[]=shared-0299&arg[]=shared-0150", 3),
    ("/api/v6/search/name/starts-with/shared-01", 100),
];

/// The one generation of all records of an answer.
fn generation(body: &[u8], count: usize) -> Result<String, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let records = json["results"].as_array().ok_or_else(|| json.to_string())?;
    if records.len() != count {
        return Err(format!("{} records instead of {count}", records.len()));
    }
    let first = records[0]["Version"].as_str().ok_or("no version")?;
    match records.iter().find(|record| record["Version"] != first) {
        Some(other) => Err(format!("{first} and {} in one answer", other["Version"])),
        None => Ok(first.to_owned()),
    }
}

/// Asks until the end, beginning with the question of this number; the last generation seen, or what went wrong.
async fn ask(
    base: &str,
    first: usize,
    answered: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<u32, String> {
    let client =
        reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
    let mut last = 0;
    for turn in first.. {
        if is_over.load(Relaxed) {
            break;
        }
        let (target, count) = QUESTIONS[turn % QUESTIONS.len()];
        let failed = |error: reqwest::Error| format!("{target}: {error:?}");
        let response = client.get(format!("{base}{target}")).send().await.map_err(failed)?;
        let status = response.status();
        if status != 200 {
            return Err(format!("{status} for {target}"));
        }
        let body = response.bytes().await.map_err(failed)?;
        let found = generation(&body, count).map_err(|problem| format!("{target}: {problem}"))?;
        let found: u32 = found.trim_end_matches("-1").parse().map_err(|_| found.clone())?;
        if found < last {
            return Err(format!("{target}: generation {found} after {last}"));
        }
        last = found;
        answered.fetch_add(1, Relaxed);
    }
    Ok(last)
}

#[test]
fn reloads_under_load() {
    let server = TestServer::serving_with(&catalogue::generation(0, PACKAGES), |config| {
        config.aur.rate_limit = 0;
    });
    let base = format!("http://{}", server.client.address);
    let answered: Arc<[AtomicU64]> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let (base, answered, is_over) = (base.clone(), answered.clone(), is_over.clone());
            runtime().spawn(async move { ask(&base, at, &answered[at], &is_over).await })
        })
        .collect();
    let has_failed = || clients.iter().any(|client| client.is_finished());
    for reload in 1..=RELOADS {
        let before: Vec<u64> = answered.iter().map(|count| count.load(Relaxed)).collect();
        server.replace_source(&catalogue::generation(reload, PACKAGES));
        // By hand or by the watch, whichever is first.
        wait_for(server.app.aur.reload()).expect("a good dump");
        wait_until("every client to have asked meanwhile", || {
            has_failed()
                || answered.iter().zip(&before).all(|(count, before)| count.load(Relaxed) > *before)
        });
    }
    is_over.store(true, Relaxed);
    for client in clients {
        let last =
            wait_for(client).expect("no panic").expect("no failed request and no mixed answer");
        assert!(last > 0, "this client has seen no reload");
    }
    let json = server.get("/rpc/v5/info/shared-0000").json();
    assert_eq!(json["results"][0]["Version"], format!("{RELOADS}-1"));
    assert_eq!(
        server.metric(r#"larder_aur_refresh_total{result="published"}"#),
        f64::from(RELOADS) + 1.0
    );
    assert_eq!(server.metric(r#"larder_http_requests_total{status="500",surface="aur"}"#), 0.0);
}
