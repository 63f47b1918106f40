//! A database that is lost and comes back: writers are told, readers go on reading, and acknowledged writes exist.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use super::{Place, article_request};
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::Done;
use crate::server::TestServer;
use crate::{SetAtEnd, wait_until};

const WRITERS: usize = 4;

/// The acknowledged writes of one writer.
#[derive(Default)]
struct Account {
    acknowledged: AtomicU32,
    refused: AtomicU32,
}

fn body(writer: usize, version: u32) -> String {
    format!("writer {writer}, version {version}\n").repeat(50)
}

/// Writes on and on; a write without success is tried again.
fn write(client: &Client, writer: usize, account: &Account, is_over: &AtomicBool) {
    let mut version = 0;
    while !is_over.load(SeqCst) {
        let body = body(writer, version + 1);
        let request = article_request(&format!("a/{writer}-x"), version, body.as_bytes());
        let (status, text) = client.try_exchange(&request).expect("the server is there");
        match status {
            201 => {
                version += 1;
                account.acknowledged.store(version, SeqCst);
            }
            503 => {
                text.says("\r\nretry-after: ");
                let told = [
                    "nothing was written",
                    "whether it succeeded is unknown",
                    "not visible here yet",
                ];
                assert!(told.iter().any(|told| text.contains(told)), "{text}");
                account.refused.fetch_add(1, SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // The last one was written after all, which the server could not know.
            409 => {
                text.says(&format!("\"latest_version\":{}", version + 1));
                version += 1;
            }
            _ => panic!("{text}"),
        }
    }
}

/// Reads from memory, and never gets an older version than before.
fn read(client: &Client, writer: usize, reads: &AtomicU32, is_over: &AtomicBool) {
    let mut seen = 0;
    while !is_over.load(SeqCst) {
        let response = client.get(&format!("/article/a/{writer}-x")).expect(200);
        let version: u32 = response.header("x-article-version").parse().expect("a number");
        assert!(version >= seen, "{version} after {seen}");
        assert_eq!(response.text(), body(writer, version));
        seen = version;
        reads.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_lost_database() {
    let Some(place) = Place::postgres() else { return };
    let postgres = place.postgres.as_ref().expect("it was started");
    let server = TestServer::without_aur_in(place.directory.clone(), |config| {
        config.database = Some(place.database.parse().expect("a location"));
    });
    let client = server.client;
    let accounts: [Account; WRITERS] = Default::default();
    let (reads, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let everybody = |count: fn(&Account) -> &AtomicU32, more: u32| {
        let before = accounts.each_ref().map(|account| count(account).load(SeqCst));
        wait_until("each writer", || {
            let now = accounts.each_ref().map(|account| count(account).load(SeqCst));
            now.iter().zip(before).all(|(now, before)| *now >= before + more)
        });
    };
    std::thread::scope(|scope| {
        let (client, reads, is_over) = (&client, &reads, &is_over);
        let _ending = SetAtEnd(is_over);
        for (writer, account) in accounts.iter().enumerate() {
            scope.spawn(move || write(client, writer, account, is_over));
        }
        everybody(|account| &account.acknowledged, 5);
        for writer in 0..2 {
            scope.spawn(move || read(client, writer, reads, is_over));
        }
        assert_eq!(server.app.live_store.trouble(), None);
        postgres.crash();
        everybody(|account| &account.refused, 3);
        wait_until("the trouble", || server.app.live_store.trouble().is_some());
        let before = reads.load(SeqCst);
        wait_until("readers", || reads.load(SeqCst) > before + 50);
        for target in ["/readyz", "/readyz?verbose", "/article/a/1-x/1", "/articles", "/+api"] {
            client.get(target).expect(200);
        }
        postgres.resume();
        everybody(|account| &account.acknowledged, 5);
        wait_until("no trouble", || server.app.live_store.trouble().is_none());
    });
    check(&client, &accounts);
    // The records are also there after a start from nothing but the database.
    let directory = server.stop();
    let server = TestServer::without_aur_in(directory, |config| {
        config.database = Some(place.database.parse().expect("a location"));
    });
    check(&server.client, &accounts);
}

/// Every acknowledged version exists with its bytes, and none that was not sent.
fn check(client: &Client, accounts: &[Account]) {
    for (writer, account) in accounts.iter().enumerate() {
        let acknowledged = account.acknowledged.load(SeqCst);
        let history = client.get(&format!("/article/a/{writer}-x/history")).json();
        let latest = history["latest"].as_u64().expect("a number") as u32;
        assert!((acknowledged..=acknowledged + 1).contains(&latest), "{latest}, {acknowledged}");
        for version in 1..=latest {
            let done = client.get(&format!("/article/a/{writer}-x/{version}"));
            done.expect(200).is(body(writer, version));
        }
    }
}

/// Even without requests to the database, the readiness check knows of a loss within moments.
#[test]
fn a_lost_database_shows_without_writes() {
    let Some(place) = Place::postgres() else { return };
    let server = TestServer::without_aur_in(place.directory.clone(), |config| {
        config.database = Some(place.database.parse().expect("a location"));
    });
    let postgres = place.postgres.as_ref().expect("it was started");
    let failures = || server.metric("larder_store_read_failures_total");
    assert_eq!(failures(), 0.0);
    postgres.crash();
    wait_until("the trouble", || server.app.live_store.trouble().is_some() && failures() > 0.0);
    server.get("/readyz").expect(200);
    postgres.resume();
    wait_until("no trouble", || server.app.live_store.trouble().is_none());
}

/// A database that hangs closes no connection: writers wait, but not forever, and readers not at all.
#[test]
fn a_database_that_stands_still() {
    let Some(place) = Place::postgres() else { return };
    let server = TestServer::without_aur_in(place.directory.clone(), |config| {
        config.database = Some(place.database.parse().expect("a location"));
    });
    let client = server.client;
    let write = |name: &str, base| {
        let request = article_request(name, base, name.as_bytes());
        client.try_exchange(&request).expect("an answer, within the patience of tests")
    };
    assert_eq!(write("a", 0).0, 201);
    let frozen = place.postgres.as_ref().expect("it was started").freeze();
    let (reads, writes_over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ending = SetAtEnd(&writes_over);
        scope.spawn(|| {
            while !writes_over.load(SeqCst) {
                for target in ["/article/a", "/article/a/1", "/articles", "/readyz"] {
                    client.get(target).expect(200);
                }
                reads.fetch_add(1, SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let writers = ["b/1-x", "b/2-x", "b/3-x"].map(|name| scope.spawn(move || write(name, 0)));
        for (status, text) in writers.map(|writer| writer.join().expect("a writer")) {
            assert_eq!(status, 503, "{text}");
            text.says(["nothing was written", "\r\nretry-after: "]);
        }
        client.root().put("/alice", r#"{"password":"first"}"#).expect(503);
        wait_until("the trouble", || server.app.live_store.trouble().is_some());
        // Readers do not wait for it.
        wait_until("reads", || reads.load(SeqCst) > 100);
    });
    drop(frozen);
    wait_until("no trouble", || server.app.live_store.trouble().is_none());
    wait_until("a write", || write("b/1-x", 0).0 == 201);
    assert_eq!(client.get("/article/b/1-x").text(), "b/1-x");
    for target in ["/article/b/2-x", "/article/b/3-x", "/alice"] {
        client.get(target).expect(404);
    }
}

/// A server can be stopped without a kill while its database hangs, neither later nor at its start.
#[test]
fn a_server_is_stopped_while_its_database_stands_still() {
    let Some(place) = Place::postgres() else { return };
    let mut process = place.start("one");
    let mut starting = place.command(&["serve", "--aur-enabled=false", "--listen", "127.0.0.1:0"]);
    starting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let postgres = place.postgres.as_ref().expect("it was started");
    let frozen = postgres.freeze();
    process.wait_for("/readyz?verbose", "[!]");
    process.stop();

    let starting = starting.spawn().expect("it starts");
    // By then it listens to signals.
    wait_until("the data directory", || place.directory.path().join("data").exists());
    let kill = format!("kill -TERM {}", starting.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let ended = Done::from(starting.wait_with_output().expect("it ends"));
    ended.check(0, "").stderr.says("stopped before the start was over");
    drop(frozen);
}
