//! The feed of the AUR's packages, and the history of each.

use insta::assert_snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::*;
use crate::asking::Says as _;
use crate::catalogue::{dump, record};
use crate::server::runtime;
use crate::shown::{redacted, shown, shown_json};
use crate::wait_until;

/// Waits until the history has the served packages, and returns its position.
#[track_caller]
fn position(server: &TestServer) -> String {
    wait_until("the history", || server.get("/changes?surface=aur").status == 200);
    changes(&server.anybody(), "aur", "").next
}

/// The changes since this position, once there are `count` of them.
#[track_caller]
fn wait_for_changes(server: &TestServer, since: &str, count: usize) -> Vec<Value> {
    let target = format!("/changes?surface=aur&limit=10000&since={since}");
    let mut found = Vec::new();
    wait_until("the changes", || {
        found = lines_of(&server.get(&target)).changes;
        found.len() >= count
    });
    assert_eq!(found.len(), count, "{:?}", briefs(&found));
    found
}

fn package(id: u32, name: &str, extra: Value) -> Value {
    record(id, name, name, extra)
}

/// Packages `p0` to `p{count}`, each with what `extra` says.
fn packages(count: u32, extra: impl Fn(u32) -> Value) -> Vec<u8> {
    dump((0..count).map(|number| package(number + 1, &format!("p{number}"), extra(number))))
}

#[test]
fn what_differs_between_two_dumps_is_told() {
    let first = [
        package(1, "adopted", json!({"Maintainer": null})),
        package(2, "left", json!({})),
        package(3, "pushed", json!({})),
        package(4, "quiet", json!({})),
    ];
    let server = TestServer::serving(&dump(first));
    let begin = position(&server);
    assert!(begin.starts_with("0."), "{begin}");
    let second = [
        package(1, "adopted", json!({"Maintainer": "carl"})),
        package(5, "new", json!({})),
        package(
            6,
            "pushed",
            json!({"Version": "1.1-1", "LastModified": 1_600_000_001, "Depends": ["glibc"], "PackageBaseID": 1003}),
        ),
        package(4, "quiet", json!({"Popularity": 0.25})),
    ];
    server.replace_source(&dump(second));
    let found = wait_for_changes(&server, &begin, 4);
    assert_snapshot!("changes", shown_json(&Value::Array(found)));
    // A client can fetch a part of the changes: each has its own serial.
    let part = lines_of(&server.get(&format!("/changes?surface=aur&limit=1&since={begin}")));
    assert_eq!((part.changes.len(), part.more), (1, true));
}

#[test]
fn the_page_of_a_package_says_who_had_it_and_warns_of_new_hands() {
    let attack = "<script>alert(1)</script>";
    let first =
        [package(1, "taken", json!({"Maintainer": attack})), package(2, "quiet", json!({}))];
    let server = TestServer::serving(&dump(first));
    position(&server);
    let page = |name: &str| {
        let target = format!("/packages/{name}");
        let page = server.client.get_with(&target, &[("Accept", "text/html")]).text();
        crate::pages::check_harmless(&page, name);
        page
    };
    let mut before = String::new();
    wait_until("the page with its history", || {
        before = page("taken");
        before.contains("Who maintained it")
    });
    before.lacks("Changed hands");
    let second = [
        package(1, "taken", json!({"Maintainer": "carl", "Version": "2.0-1"})),
        package(2, "quiet", json!({})),
    ];
    server.replace_source(&dump(second));
    let mut after = String::new();
    wait_until("the page of what is served now", || {
        after = page("taken");
        after.contains("2.0-1") && after.contains("Who maintained it")
    });
    assert_snapshot!("changed_hands", shown(&after));
    wait_until("the page of the other package", || page("quiet").contains("Versions seen"));
    page("quiet").lacks("Changed hands");
}

#[test]
fn a_wave_of_adoptions_is_told_completely() {
    const WAVE: u32 = 1_500;
    let orphans = |number| json!({"Maintainer": (number % 2 == 0).then(|| format!("m{number}"))});
    let server = TestServer::serving(&packages(WAVE + 10, orphans));
    let begin = position(&server);
    server.replace_source(&packages(WAVE + 10, |number| match number {
        number if number < WAVE => json!({"Maintainer": "wave"}),
        number => orphans(number),
    }));
    let found = wait_for_changes(&server, &begin, WAVE as usize);
    let former: BTreeMap<&str, &Value> = found
        .iter()
        .map(|change| {
            assert_eq!(change["after"], json!({"Maintainer": "wave"}));
            (change["name"].as_str().expect("a name"), &change["before"]["Maintainer"])
        })
        .collect();
    assert_eq!(former.len(), WAVE as usize);
    for number in 0..WAVE {
        let name = format!("p{number}");
        assert_eq!(*former[name.as_str()], orphans(number)["Maintainer"], "{name}");
    }
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let server = TestServer::serving(&packages(5, |_| json!({})));
    let begin = position(&server);
    server.replace_source(&packages(5, |number| json!({"NumVotes": number})));
    // `p3` has had three votes all the time.
    let before = wait_for_changes(&server, &begin, 4);
    let source = server.source_path();
    let directory = server.stop();
    // While it is stopped, one package goes and one gets another maintainer.
    let next = packages(4, |number| match number {
        0 => json!({"NumVotes": 0, "Maintainer": "zoe"}),
        number => json!({"NumVotes": number}),
    });
    std::fs::write(&source, next).expect("a dump");
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.source = Some(config::AurSource::File(source));
    })
    .ready();
    let after = wait_for_changes(&server, &begin, 6);
    assert_eq!(after[..4], before[..]);
    let later: BTreeSet<String> = briefs(&after[4..]).into_iter().collect();
    let expected = ["changed package p0 (Maintainer)", "removed package p4"];
    assert_eq!(later, expected.map(str::to_owned).into());
    let zoe = after[4..].iter().find(|change| change["name"] == "p0").expect("p0");
    assert_eq!(zoe["before"], json!({"Maintainer": "anna"}));
    // A history that is deleted begins anew, and says so.
    let kept = lines_of(&server.get("/changes?surface=aur")).next;
    let directory = server.stop();
    for name in ["aur-history.db", "aur-history.db-wal", "aur-history.db-shm"] {
        let _ = std::fs::remove_file(directory.path().join("data").join(name));
    }
    let server = TestServer::start_in(directory, |_, _| ()).ready();
    position(&server);
    server.get(&format!("/changes?surface=aur&since={kept}")).expect(410);
}

#[test]
fn who_and_when_is_known_of_each_package() {
    let server = TestServer::serving(&packages(2, |_| json!({})));
    let mut since = position(&server);
    let mut step = |dump: Vec<u8>, count: usize| {
        server.replace_source(&dump);
        wait_for_changes(&server, &since, count);
        since = changes(&server.anybody(), "aur", "").next;
    };
    let history = |name: &str| server.get(&format!("/aur/history/{name}")).expect(200).json();
    let check = |when: &str| assert_snapshot!(when, shown_json(&history("p0")));
    check("history_at_first");
    let with = |name: Option<&str>, version: &str| {
        packages(2, |number| match number {
            0 => json!({"Maintainer": name, "Version": version}),
            _ => json!({}),
        })
    };
    step(with(None, "1.0-1"), 1);
    check("history_of_an_orphan");
    step(with(Some("zoe"), "2.0-1"), 1);
    check("history_of_an_adopted");
    let shown = history("P0");
    assert!(shown["MaintainerSince"].as_i64() >= shown["KnownSince"].as_i64(), "{shown}");
    // A package that is gone is known, but in no answer of version 5.
    step(dump([package(2, "p1", json!({}))]), 1);
    check("history_of_one_that_is_gone");
    assert_eq!(server.get("/rpc/v5/info/p0").json()["resultcount"], 0);
    server.get("/aur/history/never").expect(404);
    server.get("/aur/history/a/b").expect(404);
}

/// A helper asks for all that it would build, and is told which of these changed hands.
#[test]
fn those_that_changed_hands_are_found_among_many() {
    let server = TestServer::serving(&packages(4, |_| json!({})));
    let since = position(&server);
    server.replace_source(&dump([
        package(1, "p0", json!({"Maintainer": "zoe"})),
        package(2, "p1", json!({"Maintainer": null})),
        package(3, "p2", json!({"Version": "2.0-1"})),
    ]));
    wait_for_changes(&server, &since, 4);
    let names = "name=p0&name=P1&name=p2&name=p3&name=never";
    let ask = |more: &str| {
        let answer = server.get(&format!("/aur/history?{names}{more}")).expect(200).json();
        let results = answer["results"].as_array().expect("a list").clone();
        assert_eq!(answer["resultcount"], results.len());
        results
    };
    let named = |results: &[Value]| -> Vec<String> {
        let name = |result: &Value| result["Name"].as_str().expect("a name").to_owned();
        results.iter().map(name).collect()
    };
    let all = ask("");
    assert_eq!(named(&all), ["p0", "p1", "p2", "p3"]);
    assert_eq!(all[0], server.get("/aur/history/p0").json());
    for more in ["&min_age_days=7", "&maintained_since=0"] {
        let results = ask(more);
        assert_eq!(named(&results), ["p0", "p1", "p3"], "{more}");
        assert_eq!(results[0]["PreviousMaintainers"][0]["Name"], "anna");
    }
    assert_eq!(named(&ask("&maintained_since=9999-01-01T00:00:00Z")), [""; 0]);
    let refused = server.get("/aur/history?name=a&min_age_days=x");
    refused.tells(
        400,
        "`x` is no value of the parameter `min_age_days`: expected a whole number from 1 to 36500",
    );
}

/// A client without any findings takes all packages for safe, so it gets no answer while the history lags behind.
#[test]
fn a_history_that_cannot_be_written_says_so() {
    let server = TestServer::serving_with(&packages(2, |_| json!({})), |config| {
        config.store.wait_for_serial = Duration::from_millis(100);
    });
    let targets = ["/aur/history?name=p0&name=new&min_age_days=7", "/aur/history/p0"];
    wait_until("the history", || server.get(targets[0]).status == 200);
    assert_eq!(server.get(targets[0]).json()["resultcount"], 0);
    let database = server.app.config.data_dir.join("aur-history.db");
    let mut lock = runtime().block_on(async {
        let options = SqliteConnectOptions::new().filename(database);
        let mut lock = options.connect().await.expect("the database");
        sqlx::query("BEGIN IMMEDIATE").execute(&mut lock).await.expect("the lock");
        lock
    });
    server.replace_source(&dump([
        package(1, "p0", json!({"Maintainer": "zoe"})),
        package(3, "new", json!({})),
    ]));
    wait_until("the packages to be served", || {
        server.get("/rpc/v5/info/p0").json()["results"][0]["Maintainer"] == "zoe"
    });
    for target in targets {
        server.get(target).expect(503).has("retry-after", "1");
    }
    runtime().block_on(async {
        sqlx::query("ROLLBACK").execute(&mut lock).await.expect("the lock");
        lock.close().await.expect("the database");
    });
    wait_until("the history", || server.get(targets[0]).status == 200);
    assert_eq!(server.get(targets[0]).json()["resultcount"], 2);
}

/// A client that does nothing but apply the feed has what a fresh dump has, whatever happens to its connection.
#[test]
fn whoever_applies_the_feed_has_what_a_dump_has() {
    const ROUNDS: u32 = 12;
    let server = TestServer::serving(&packages(40, |_| json!({})));
    let mut at = position(&server);
    let mut known: BTreeMap<String, Value> =
        (0..40).map(|number| (format!("p{number}"), json!("1.0-1"))).collect();
    let dump_of = |round: u32| {
        // The packages of a round follow from its number alone.
        let is_there = |number: &u32| !(number * 7 + round * 5).is_multiple_of(11);
        let mut records: Vec<Value> = (0..40)
            .filter(is_there)
            .map(|number| {
                let version = format!("{}.0-1", 1 + (number + round) / 9);
                package(number + 1, &format!("p{number}"), json!({"Version": version}))
            })
            .collect();
        records.push(package(100, "round", json!({"Version": format!("{round}-1")})));
        dump(records)
    };
    for round in 1..=ROUNDS {
        server.replace_source(&dump_of(round));
        let wanted = json!(format!("{round}-1"));
        // One event for each connection.
        loop {
            let resume = [("Last-Event-ID", at.as_str())];
            let mut events = Events::open(&server.client, "/changes?surface=aur", &resume);
            let event = events.next().expect("an event");
            at = events.last_id;
            let name = event.data["name"].as_str().expect("a name").to_owned();
            match event.data["kind"].as_str() {
                Some("removed") => _ = known.remove(&name),
                _ => {
                    if let Some(version) = event.data["after"].get("Version") {
                        known.insert(name, version.clone());
                    }
                }
            }
            // The changes of a round come together; removals are the last.
            let now = changes(&server.anybody(), "aur", "").next;
            if known.get("round") == Some(&wanted) && now == at {
                break;
            }
        }
    }
    let packages: Vec<Value> = serde_json::from_slice(&dump_of(ROUNDS)).expect("a dump");
    let fresh: BTreeMap<String, Value> = packages
        .iter()
        .map(|package| {
            (package["Name"].as_str().expect("a name").to_owned(), package["Version"].clone())
        })
        .collect();
    assert_eq!(known, fresh);
}

#[test]
fn people_read_it_as_atom() {
    let server = TestServer::serving(&packages(1, |_| json!({})));
    let begin = position(&server);
    server.replace_source(&packages(1, |_| json!({"Maintainer": "b&b"})));
    wait_for_changes(&server, &begin, 1);
    let feed = server.get("/changes.atom?surface=aur").expect(200);
    feed.has("content-type", "application/atom+xml; charset=utf-8");
    let text = feed.text();
    let mut reader = quick_xml::Reader::from_str(&text);
    let mut depth = 0;
    loop {
        match reader.read_event().expect("XML") {
            quick_xml::events::Event::Start(_) => depth += 1,
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    let (_, history) = begin.split_once('.').expect("a history");
    assert_snapshot!("atom", redacted(&text.replace(history, "HISTORY")));
    let tag = feed.header("etag").to_owned();
    let again = [("If-None-Match", tag.as_str())];
    server.client.get_with("/changes.atom?surface=aur", &again).expect(304);
}

/// Answers to questions show the history only if its fields are requested.
#[test]
fn answers_show_who_and_when_to_those_who_ask() {
    let server = TestServer::serving(&packages(3, |_| json!({})));
    let since = position(&server);
    let plain = server.get("/rpc/v5/info/p1").body;
    server.replace_source(&packages(3, |number| match number {
        0 => json!({"Maintainer": "zoe", "Version": "2.0-1"}),
        1 => json!({"Maintainer": null}),
        _ => json!({}),
    }));
    wait_for_changes(&server, &since, 2);
    const FIELDS: [&str; 5] =
        ["FirstSeen", "MaintainerSince", "OrphanedSince", "PreviousMaintainers", "Versions"];
    let question = format!("/rpc/v5/search/p?by=name&fields=Name,{}", FIELDS.join(","));
    // The term is too small.
    server.get("/rpc/v5/search/p?by=name&fields=FirstSeen").expect(200);
    let question = question.replace("/search/p?by=name&", "/info?arg[]=p0&arg[]=P1&arg[]=p2&");
    let answer = server.get(&question).json();
    let results = answer["results"].as_array().expect("results");
    assert_eq!(results.len(), 3, "{answer}");
    for result in results {
        let name = result["Name"].as_str().expect("a name");
        let history = server.get(&format!("/aur/history/{name}")).json();
        for field in FIELDS {
            assert_eq!(result[field], history[field], "{field} of {name}");
        }
    }
    assert_snapshot!("history_in_an_answer", shown_json(&answer));
    let all = server.get("/rpc/v5/info/p2?fields=*").json();
    assert!(FIELDS.iter().all(|field| all["results"][0].get(field).is_none()), "{all}");
    let now = server.get("/rpc/v5/info/p2").text().replace("p2", "p1");
    assert!(now.len() == plain.len(), "{now}");
}
