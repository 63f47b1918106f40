//! The feeds of the Python index and of articles, which come out of the store.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::asking::{Says as _, texts};
use crate::shown::shown_json;
use crate::wait_until;

/// An index that everybody may read.
fn open() -> Value {
    json!({"volatile": true})
}

#[test]
fn every_kind_of_change_is_a_line() {
    let server = start(|_| ());
    let begin = changes(&server.anybody(), "python", "");
    assert!(begin.changes.is_empty());
    index(&server, "PUT", "alice/dev", &open());
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    index(&server, "PATCH", "alice/dev", &json!({"title": "Team"}));
    let alice = server.user("alice", PASSWORD);
    alice.post("/alice/dev/p/1.0/+yank", json!({"reason": "bad"})).expect(200);
    alice.delete("/alice/dev/p/1.0").expect(200);
    let found = changes(&server.anybody(), "python", &begin.next);
    // Who did the rest is in the log of the index; who uploaded a file, in its record.
    assert_snapshot!("every_kind", shown_json(&json!(found.changes)));
    // From the end on there is nothing, and from a serial within a commit only later changes.
    assert!(changes(&server.anybody(), "python", &found.next).changes.is_empty());
    let rest = changes(&server.anybody(), "python", &found.changes[3]["serial"].to_string());
    assert_eq!(rest.changes, found.changes[4..]);
}

#[test]
fn articles_have_their_version_and_author() {
    let server = start(|_| ());
    let begin = changes(&server.anybody(), "articles", "");
    server.root().write("guide/0", "one").expect(201);
    server.root().write("guide/1", "two").expect(201);
    server.root().delete("/article/guide/2").expect(200);
    server.root().write("guide/3", "three").expect(201);
    let found = changes(&server.anybody(), "articles", &begin.next);
    let expected = [
        "added article guide",
        "changed article guide (content title)",
        "removed article guide",
        "added article guide",
    ];
    assert_eq!(briefs(&found.changes), expected);
    let versions: Vec<_> = found.changes.iter().map(|change| change["version"].clone()).collect();
    assert_eq!(versions, [1, 2, 3, 4]);
    assert!(found.changes.iter().all(|change| change["by"] == "root"), "{found:?}");
}

#[test]
fn an_answer_is_bounded_and_names_where_to_go_on() {
    let server = start(|_| ());
    let mut since = changes(&server.anybody(), "articles", "").next;
    for number in 0..7 {
        server.root().write(&format!("a{number}/0"), "text").expect(201);
    }
    let mut names = Vec::new();
    for expected_more in [true, true, false] {
        let target = format!("/changes?surface=articles&limit=3&since={since}");
        let found = lines_of(&server.get(&target));
        assert_eq!(found.more, expected_more);
        names.extend(found.changes.iter().map(|change| change["name"].clone()));
        since = found.next;
    }
    assert_eq!(names, ["a0", "a1", "a2", "a3", "a4", "a5", "a6"]);
}

#[track_caller]
fn check_refused(server: &TestServer, target: &str, status: u16, says: &str) -> Value {
    let response = server.get(target);
    response.tells(status, says).has("content-type", "application/problem+json");
    response.json()
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let server = start(|_| ());
    for (target, says) in [
        (
            "/changes?surface=x",
            "`x` is no value of `surface`: expected one of aur, python, articles",
        ),
        (
            "/changes?since=1",
            "the parameter `surface` is missing: expected one of aur, python, articles",
        ),
        (
            "/changes?surface=python&since=x",
            "`x` is no position for `since`: expected a serial, or a `next` of an earlier answer",
        ),
        (
            "/changes?surface=python&limit=0",
            "`0` is no value of the parameter `limit`: expected a whole number from 1 to 10000",
        ),
        (
            "/changes?surface=python&limit=10001",
            "`10001` is no value of the parameter `limit`: expected a whole number from 1 to 10000",
        ),
        (
            "/changes?surface=python&x=1",
            "the parameter `x` is unknown, expected any of: surface, since, limit",
        ),
    ] {
        check_refused(&server, target, 400, says);
    }
    check_refused(&server, "/changes?surface=aur", 404, "the surface `aur` is not served here");
    let wrong = [("Authorization", "Bearer larder_0")];
    server.client.get_with("/changes?surface=python", &wrong).expect(401);
    // Without a surface, all of them are listed.
    let feeds = server.get("/changes").json_lines();
    assert_eq!(texts(&json!(feeds), "surface"), ["python", "articles"]);
    let next = feeds[1]["next"].as_str().expect("a position");
    assert!(changes(&server.anybody(), "articles", next).changes.is_empty());
}

/// A server whose history has forgotten the first of three articles, and a position before that.
fn with_short_history() -> (TestServer, String) {
    let server = start(|config| config.changes.history_max = 2);
    let begin = changes(&server.anybody(), "articles", "").next;
    for number in 0..3 {
        server.root().write(&format!("a{number}/0"), "text").expect(201);
    }
    (server, begin)
}

#[test]
fn a_position_that_is_lost_says_start_over() {
    let (server, begin) = with_short_history();
    let target = format!("/changes?surface=articles&since={begin}");
    let problem = check_refused(
        &server,
        &target,
        410,
        "start over: the position `POSITION` is older than the history, whose oldest serial is 6; ask without `since` for the current position, list everything, and then follow from that position",
    );
    let oldest = problem["oldest"].as_u64().expect("a serial");
    let position = problem["oldest_position"].as_str().expect("a position");
    assert!(position.starts_with(&format!("{oldest}.")), "{problem}");
    let rest = changes(&server.anybody(), "articles", position);
    assert_eq!(briefs(&rest.changes), ["added article a1", "added article a2"]);
    let (_, history) = rest.next.split_once('.').expect("a history");
    assert_ne!(history, "00000000");
    let other = format!("/changes?surface=articles&since={oldest}.00000000");
    check_refused(
        &server,
        &other,
        410,
        "start over: the position `POSITION` is of another history, whose oldest serial is 6; ask without `since` for the current position, list everything, and then follow from that position",
    );
    let ahead = "/changes?surface=articles&since=999999";
    let problem = check_refused(
        &server,
        ahead,
        410,
        "start over: the position `999999` was never reached by this history, whose oldest serial is 6; ask without `since` for the current position, list everything, and then follow from that position",
    );
    assert_eq!(problem["oldest"].as_u64(), Some(oldest));
    // A program that asks for events with such a position gets this status, too.
    server.client.get_with(&target, &[("Accept", "text/event-stream")]).expect(410);
}

/// A browser would stop, and say nothing to its page: it is told in an event, and goes on.
#[test]
fn a_browser_is_told_in_an_event_to_start_over() {
    let (server, begin) = with_short_history();
    let target = format!("/changes?surface=articles&since={begin}");
    let problem = check_refused(
        &server,
        &target,
        410,
        "start over: the position `POSITION` is older than the history, whose oldest serial is 6; ask without `since` for the current position, list everything, and then follow from that position",
    );
    let (oldest, position) = (&problem["oldest"], &problem["oldest_position"]);
    for lost in [begin.as_str(), "999999", &format!("{oldest}.00000000"), "of something else"] {
        let resume = [("Last-Event-ID", lost)];
        let mut events = Events::open(&server.client, "/changes?surface=articles", &resume);
        let event = events.next().expect("an event");
        assert_eq!(event.name, "start-over", "{lost}");
        let now = changes(&server.anybody(), "articles", "").next;
        assert_eq!((&event.data["next"], &events.last_id), (&json!(now), &now), "{lost}");
        assert_eq!(event.data["oldest"], *position);
    }
    let resume = [("Last-Event-ID", begin.as_str())];
    let mut events = Events::open(&server.client, "/changes?surface=articles", &resume);
    assert_eq!(events.next().expect("an event").name, "start-over");
    server.root().write("later/0", "text").expect(201);
    assert_eq!(events.brief(), "added article later");
}

#[test]
fn accept_says_whether_lines_or_events_are_sent() {
    let server = start(|_| ());
    for (accept, expected) in [
        ("text/event-stream;q=0, */*", "application/x-ndjson"),
        ("application/x-ndjson, text/event-stream;q=0.1", "application/x-ndjson"),
        ("Text/Event-Stream", "text/event-stream"),
        ("text/event-stream, */*;q=0.5", "text/event-stream"),
        ("*/*", "application/x-ndjson"),
    ] {
        let target = "/changes?surface=articles&since=0";
        let response = server.anybody().accept(accept).send("HEAD", target, ()).expect(200);
        response.has("content-type", expected);
        // The length of a stream is not known.
        let has_length = !response.header("content-length").is_empty();
        assert_eq!(has_length, expected != "text/event-stream", "{accept}");
    }
}

#[test]
fn what_may_not_be_read_is_not_told() {
    let server = start(|_| ());
    let begin = changes(&server.anybody(), "python", "").next;
    let [alice, bob] = ["alice", "bob"].map(|name| server.user(name, PASSWORD));
    index(&server, "PUT", "alice/secret", &json!({"acl_read": "alice"}));
    owner(&server, "alice/secret").release("alice/secret", "s-1.0.zip");
    index(&server, "PUT", "alice/open", &open());
    for nobody in [&server.anybody(), &bob] {
        let found = changes(nobody, "python", &begin);
        assert_eq!(briefs(&found.changes), ["added index alice/open"]);
    }
    let all = changes(&alice, "python", &begin);
    assert_eq!(all.changes.len(), 4, "{all:?}");
    // A client that loses the right to read is told that the index is gone; one that gets the right lists it.
    index(&server, "PATCH", "alice/secret", &json!({"acl_read": "alice,bob"}));
    let shown = changes(&bob, "python", &all.next);
    assert_eq!(briefs(&shown.changes), ["changed index alice/secret (acl_read)"]);
    index(&server, "PATCH", "alice/secret", &json!({"acl_read": "alice"}));
    let lost = changes(&bob, "python", &shown.next);
    assert_eq!(briefs(&lost.changes), ["removed index alice/secret"]);
    let kept = changes(&alice, "python", &shown.next);
    assert_eq!(briefs(&kept.changes), ["changed index alice/secret (acl_read)"]);
    // A removed index is told to those who could read it.
    alice.delete("/alice/secret?force").expect(201);
    assert!(changes(&bob, "python", &kept.next).changes.is_empty());
    let removed = briefs(&changes(&alice, "python", &kept.next).changes);
    assert!(removed.contains(&"removed index alice/secret".to_owned()), "{removed:?}");
}

/// Changes of a private index stay private, even if an index of the same name is open later.
#[test]
fn what_could_not_be_read_then_is_not_told_later() {
    let server = start(|_| ());
    let begin = changes(&server.anybody(), "python", "").next;
    let alice = server.user("alice", PASSWORD);
    for name in ["alice/opened", "alice/again"] {
        index(&server, "PUT", name, &json!({"acl_read": "alice"}));
        owner(&server, name).release(name, "secret-1.0.zip");
    }
    index(&server, "PATCH", "alice/opened", &json!({"acl_read": ":ANONYMOUS:"}));
    alice.delete("/alice/again?force").expect(201);
    index(&server, "PUT", "alice/again", &open());
    let expected = ["changed index alice/opened (acl_read)", "added index alice/again"];
    let found = changes(&server.anybody(), "python", &begin);
    assert_eq!(briefs(&found.changes), expected);
    let atom = server.get("/changes.atom?surface=python").text();
    atom.says("alice/again");
    atom.lacks("secret");
    // The owner gets all changes.
    let all = briefs(&changes(&alice, "python", &begin).changes);
    assert!(all.contains(&"removed file alice/again secret secret-1.0.zip".to_owned()), "{all:?}");
    // After a restart it is not known who could read then: no client is told of earlier changes.
    let server = server.restarted();
    for ask in [server.anybody(), server.user("alice", PASSWORD)] {
        ask.get(&format!("/changes?surface=python&since={begin}")).expect(410);
        assert!(changes(&ask, "python", &found.next).changes.is_empty());
    }
    server.get("/changes.atom?surface=python").lacks("secret");
}

/// A client that lost the right to read an index starts over after a restart: the history does not say that it is gone.
#[test]
fn a_right_that_was_lost_before_a_restart_is_not_missed() {
    let server = start(|_| ());
    index(&server, "PUT", "alice/dev", &open());
    let position = changes(&server.anybody(), "python", "").next;
    index(&server, "PATCH", "alice/dev", &json!({"acl_read": "alice"}));
    let lost = changes(&server.anybody(), "python", &position);
    assert_eq!(briefs(&lost.changes), ["removed index alice/dev"]);
    let server = server.restarted();
    let target = format!("/changes?surface=python&since={position}");
    check_refused(
        &server,
        &target,
        410,
        "start over: the position `POSITION` is older than the history, whose oldest serial is 7; ask without `since` for the current position, list everything, and then follow from that position",
    );
    assert!(changes(&server.anybody(), "python", &lost.next).changes.is_empty());
}

/// More than is looked at together is not for this client, and then comes something that is.
#[test]
fn a_stream_goes_on_past_what_is_not_for_its_client() {
    let server = start(|config| config.changes.keep_alive = std::time::Duration::from_secs(3_600));
    let begin = changes(&server.anybody(), "python", "").next;
    index(&server, "PUT", "alice/secret", &json!({"acl_read": "alice"}));
    for number in 0..150 {
        index(&server, "PATCH", "alice/secret", &json!({"title": format!("title {number}")}));
    }
    index(&server, "PUT", "alice/open", &open());
    let target = format!("/changes?surface=python&since={begin}");
    let mut events = Events::open(&server.client, &target, &[]);
    assert_eq!(events.brief(), "added index alice/open");
}

#[test]
fn articles_that_nobody_may_read_are_asked_for_with_credentials() {
    let server = start(|config| {
        config.article.acl_read = "alice".parse().expect("a list");
    });
    server.get("/changes?surface=articles").expect(401);
    let [alice, bob] = ["alice", "bob"].map(|name| server.user(name, PASSWORD));
    let begin = changes(&alice, "articles", "").next;
    server.root().write("a/0", "text").expect(201);
    assert_eq!(changes(&alice, "articles", &begin).changes.len(), 1);
    assert_eq!(changes(&bob, "articles", &begin).changes.len(), 0);
}

#[test]
fn events_come_as_they_happen_and_go_on_where_they_ended() {
    let server = start(|_| ());
    let mut events = Events::open(&server.client, "/changes?surface=articles", &[]);
    for number in 0..3 {
        server.root().write(&format!("a{number}/0"), "text").expect(201);
        assert_eq!(events.brief(), format!("added article a{number}"));
    }
    let (head, _) = events.last_id.split_once('.').expect("a position");
    let serial = server.app.live_store.snapshot().expect("a state").serial;
    assert_eq!(head, serial.to_string());
    let last_id = events.last_id.clone();
    drop(events);
    server.root().write("b/0", "text").expect(201);
    let resume = [("Last-Event-ID", last_id.as_str())];
    let mut events = Events::open(&server.client, "/changes?surface=articles", &resume);
    assert_eq!(events.brief(), "added article b");
    // The header wins over the address, which a browser sends again unchanged.
    let target = "/changes?surface=articles&since=0";
    let mut events = Events::open(&server.client, target, &resume);
    assert_eq!(events.brief(), "added article b");
}

#[test]
fn a_quiet_stream_shows_that_it_lives_and_moves_on() {
    let server = start(|config| config.changes.keep_alive = std::time::Duration::from_secs(1));
    let mut events = Events::open(&server.client, "/changes?surface=articles", &[]);
    let begin = events.last_id.clone();
    // A commit that this feed does not show.
    index(&server, "PUT", "alice/dev", &open());
    while events.last_id == begin {
        let line = events.line().expect("a sign of life");
        assert!(!line.starts_with("data: "), "{line}");
        events.note_id(&line);
    }
}

#[test]
fn a_stream_ends_with_its_token() {
    let server = start(|_| ());
    let alice = server.user("alice", PASSWORD);
    let wish = json!({"scopes": ["python:read"]});
    let made = alice.clone().typed("application/json").post("/+tokens", &wish).expect(201).json();
    let (id, token) = (made["id"].as_str().expect("an id"), made["token"].as_str().expect("text"));
    index(&server, "PUT", "alice/secret", &json!({"acl_read": "alice"}));
    let bearer = format!("Bearer {token}");
    let bearer = [("Authorization", bearer.as_str())];
    let mut events = Events::open(&server.client, "/changes?surface=python", &bearer);
    owner(&server, "alice/secret").release("alice/secret", "s-1.0.zip");
    assert_eq!(events.brief(), "added file alice/secret s s-1.0.zip");
    assert_eq!(events.brief(), "added release alice/secret s 1.0");
    alice.delete(&format!("/+tokens/{id}")).expect(204);
    assert!(events.next().is_none());
}

#[test]
fn a_stream_ends_when_the_server_stops() {
    let server = start(|_| ());
    let mut events = Events::open(&server.client, "/changes?surface=python", &[]);
    let directory = server.stop();
    assert!(events.next().is_none());
    drop(directory);
}

#[test]
fn a_stream_that_falls_behind_is_told_to_start_over() {
    let server = start(|config| config.changes.history_max = 1);
    index(&server, "PUT", "alice/dev", &open());
    let mut events = Events::open(&server.client, "/changes?surface=python", &[]);
    // More changes in one commit than the history has room for.
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    let event = events.next().expect("an event");
    assert_eq!(event.name, "start-over");
    let now = changes(&server.anybody(), "python", "").next;
    assert_eq!(event.data, json!({"oldest": now, "next": now}));
    assert_eq!(events.last_id, now);
    assert!(events.next().is_none());
}

#[test]
fn streams_are_counted() {
    let server = start(|config| {
        config.changes.subscribers_max = 3;
        config.changes.subscribers_per_client_max = 2;
    });
    let count = || server.metric("larder_changes_subscribers");
    let mut open: Vec<Events> =
        (0..2).map(|_| Events::open(&server.client, "/changes?surface=python", &[])).collect();
    assert_eq!(count(), 2.0);
    let stream = [("Accept", "text/event-stream")];
    let refused = server.client.get_with("/changes?surface=python", &stream).expect(429);
    assert!(refused.find("retry-after").is_some());
    let forwarded = |address| [("X-Forwarded-For", address)];
    let target = "/changes?surface=python";
    open.push(Events::open(&server.client, target, &forwarded("192.0.2.1")));
    let more = [stream[0], forwarded("192.0.2.2")[0]];
    server.client.get_with(target, &more).expect(503);
    assert_eq!(server.metric("larder_changes_subscribers_refused_total"), 2.0);
    drop(open);
    wait_until("the places to be given back", || {
        // A connection that is gone is noticed when something is sent.
        let serial = server.app.live_store.snapshot().expect("it").serial;
        server.root().write(&format!("a{serial}/0"), "x").expect(201);
        count() == 0.0
    });
}

#[test]
fn positions_survive_a_restart() {
    let server = start(|_| ());
    index(&server, "PUT", "alice/dev", &open());
    let [python, articles] =
        ["python", "articles"].map(|it| changes(&server.anybody(), it, "").next);
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    server.root().write("a/0", "one").expect(201);
    server.root().write("a/1", "two").expect(201);
    let before = changes(&server.anybody(), "articles", &articles);
    let server = server.restarted();
    // Earlier changes are unchanged, for articles with every version.
    let after = changes(&server.anybody(), "articles", &articles);
    assert_eq!(after.changes, before.changes);
    let found = changes(&server.anybody(), "python", &python);
    let expected = ["added file alice/dev p p-1.0.zip", "added release alice/dev p 1.0"];
    assert_eq!(briefs(&found.changes), expected);
    server.root().write("a/2", "three").expect(201);
    let more = changes(&server.anybody(), "articles", &after.next);
    assert_eq!(briefs(&more.changes), ["changed article a (content title)"]);
}

/// The commit has more records than the history has places, but only two of them are changes.
#[test]
fn an_article_with_many_versions_that_is_renamed_takes_two_places_of_the_history() {
    let server = start(|_| ());
    let begin = changes(&server.anybody(), "articles", "").next;
    server.root().write("first/0", "text").expect(201);
    for base in 0..9 {
        server.root().write(&format!("a/{base}"), format!("text {base}")).expect(201);
    }
    server.root().post("/article/a/9?rename=b", ()).expect(201);
    let directory = server.stop();
    let server = TestServer::without_aur_in(directory, |config| {
        config.changes.history_max = 10;
    });
    let mut found = briefs(&changes(&server.anybody(), "articles", &begin).changes);
    found.sort();
    assert_eq!(found, ["added article b", "added article first", "removed article a"]);
}

#[test]
fn an_index_that_was_removed_before_a_restart_is_not_missed() {
    let server = start(|_| ());
    index(&server, "PUT", "alice/dev", &open());
    let position = changes(&server.anybody(), "python", "").next;
    let alice = server.user("alice", PASSWORD);
    alice.delete("/alice/dev").expect(201);
    let later = changes(&server.anybody(), "python", &position);
    assert_eq!(briefs(&later.changes), ["removed index alice/dev"]);
    let server = server.restarted();
    let target = format!("/changes?surface=python&since={position}");
    check_refused(
        &server,
        &target,
        410,
        "start over: the position `POSITION` is older than the history, whose oldest serial is 7; ask without `since` for the current position, list everything, and then follow from that position",
    );
    assert!(changes(&server.anybody(), "python", &later.next).changes.is_empty());
}

/// A client that does nothing but apply the feed has what a fresh listing has, whatever happens to its connection.
#[test]
fn whoever_applies_the_feed_has_what_is_there() {
    const WRITES: u32 = 60;
    let server = start(|_| ());
    let mut position = changes(&server.anybody(), "articles", "").next;
    let mut known: BTreeSet<String> = BTreeSet::new();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..WRITES {
                let target = format!("/article/a{}", number % 20);
                let root = || server.root().typed("text/plain");
                if root().with("If-Match", "*").put(&target, "again").status != 201 {
                    root().with("If-None-Match", "*").put(&target, "new").expect(201);
                }
                if number % 3 == 2 {
                    root().with("If-Match", "*").delete(&target).expect(200);
                }
            }
            server.root().write("end/0", "the last one").expect(201);
        });
        // One event for each connection, and some connections without any.
        for attempt in 0_u32.. {
            let resume = [("Last-Event-ID", position.as_str())];
            let mut events = Events::open(&server.client, "/changes?surface=articles", &resume);
            if attempt % 3 == 0 {
                continue;
            }
            let event = events.next().expect("an event");
            let name = event.data["name"].as_str().expect("a name").to_owned();
            match event.data["kind"].as_str() {
                Some("removed") => known.remove(&name),
                _ => known.insert(name.clone()),
            };
            position = events.last_id;
            if name == "end" {
                break;
            }
        }
        writer.join().expect("the writer ends well");
    });
    let list = server.get("/articles?limit=1000").json();
    assert!(known.iter().eq(&texts(&list["articles"], "name")), "{list}");
    assert!(known.contains("end"));
}
