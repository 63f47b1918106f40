//! A process that is behind the store: it waits for what a client has seen, and refuses no write for what it does not know yet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::{Place, Wheel, article_request, make_stage};
use crate::asking::each;
use crate::client::{Client, Response};
use crate::server::ROOT;
use crate::{SetAtEnd, is_long, wait_until};
use testbed::SilentProxy;

/// How often a client goes from one process to the other at once.
const ROUNDS: u32 = 15;

#[track_caller]
fn write(
    client: &Client,
    method: &str,
    target: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Response {
    let headers = [&[ROOT], more].concat();
    let response = client.send(method, target, &headers, body.as_bytes());
    let (status, text) = (response.status, response.text());
    assert!((200..300).contains(&status), "{method} {target}: {status} {text}");
    response
}

/// Without a word about serials: each write is made from what the other process has just acknowledged.
#[test]
fn a_base_that_this_process_does_not_know_yet_is_waited_for() {
    let Some(place) = Place::postgres() else { return };
    place.init();
    let (one, other) = (place.start("one"), place.start("other"));
    let of = |number: u32| if number.is_multiple_of(2) { &one.client } else { &other.client };
    for base in 0..ROUNDS {
        write(of(base), "POST", &format!("/article/a/{base}"), &[], "text");
    }
    let mut version = ROUNDS;
    for round in 0..ROUNDS {
        let (first, second) = (of(round), of(round + 1));
        let made = write(first, "POST", &format!("/article/a/{version}"), &[], "text");
        version += 1;
        let tag = made.header("etag").to_owned();
        write(second, "PUT", "/article/a", &[("If-Match", &tag)], "by its tag");
        version += 1;
        // An article, its file and its new name.
        let name = format!("/article/b{round}");
        write(first, "POST", &format!("{name}/0"), &[], "text");
        let file = format!("/+attachments/b{round}/file");
        let none = [("If-None-Match", "*")];
        let made = write(second, "PUT", &file, &none, "bytes");
        let tag = made.header("etag").to_owned();
        write(first, "PUT", &file, &[("If-Match", &tag)], "other bytes");
        write(second, "POST", &format!("{name}/1?rename=c{round}"), &[], "");
        write(first, "DELETE", &format!("/article/c{round}/2"), &[], "");
    }
    // A base that the store does not have is refused as before.
    let refused = one.client.root().post(&format!("/article/a/{}", version + 1), "x");
    refused.tells(409, &format!("`a` has no version {}: its latest is {version}", version + 1));
}

/// Nor is an index, a release or a member of a list that another process has just made refused for not being there: this one
/// does not hear of them for a second or more.
#[test]
fn what_another_process_has_just_made_is_written_to() {
    let Some(mut place) = Place::postgres() else { return };
    place.init();
    let near = place.start("near");
    make_stage(&near.client);
    near.root().patch("/team/dev", r#"["acl_upload+=root"]"#).expect(200);
    near.root().put("/team/final", r#"{"acl_upload": ["root"]}"#).expect(200);
    let socket = place.postgres.as_ref().expect("it was started").socket();
    let proxy = SilentProxy::start(&socket);
    let directory = proxy.directory().display();
    place.database = format!("postgres:///postgres?host={directory}&user=larder");
    let far = place.start("far");
    let serial = |process: &Client| process.get("/+api").header("x-larder-serial").to_owned();
    let after = |make: &dyn Fn()| {
        wait_until("both", || serial(&far) == serial(&near));
        proxy.drop_silently();
        make();
    };

    after(&|| near.root().release("team/dev", "pkg-1.zip"));
    let order = r#"{"name": "pkg", "version": "1", "targetindex": "team/final"}"#;
    far.root().send("PUSH", "/team/dev", order).expect(200);
    after(&|| _ = near.root().patch("/team/dev", r#"["acl_upload+=alice"]"#).expect(200));
    far.root().patch("/team/dev", r#"["acl_upload-=alice"]"#).expect(200);
    after(&|| _ = near.root().put("/team/new", r#"{"acl_upload": ["root"]}"#).expect(200));
    far.root().release("team/new", "pkg-1.zip");

    // What the store does not have is refused as before.
    let order = r#"{"name": "pkg", "version": "2", "targetindex": "team/final"}"#;
    far.root()
        .send("PUSH", "/team/dev", order)
        .tells(400, "there are no files for pkg 2 on stage team/dev");
    far.root()
        .patch("/team/dev", r#"["acl_upload-=alice"]"#)
        .tells(400, "The 'acl_upload' setting doesn't have value 'alice'");
    far.root().post("/team/none/", order).tells(404, "The stage team/none could not be found.");
}

/// A read names the state that it shows, also while somebody writes: who follows the feed from that serial on misses nothing.
#[test]
fn a_read_names_its_own_state() {
    let place = Place::sqlite();
    place.init();
    let process = place.start("one");
    make_stage(&process);
    let serial =
        |answer: &Response| -> u64 { answer.header("x-larder-serial").parse().expect("a number") };
    let is_over = AtomicBool::new(false);
    let (writes, reads) = std::thread::scope(|scope| {
        let _ending = SetAtEnd(&is_over);
        let read = || {
            let mut reads = Vec::new();
            while !is_over.load(SeqCst) {
                let answer = process.anybody().json().get("/team/dev").expect(200);
                let title = answer.json()["result"]["title"].as_str().map(str::to_owned);
                reads.push((serial(&answer), title.unwrap_or_default()));
            }
            reads
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        let write = |number: u32| {
            let title = format!("title {number}");
            let change = format!(r#"["title={title}"]"#);
            (serial(&process.root().patch("/team/dev", &change).expect(200)), title)
        };
        let writes: BTreeMap<u64, String> = (0..300).map(write).collect();
        is_over.store(true, SeqCst);
        let reads = readers.into_iter().flat_map(|reader| reader.join().expect("no panic"));
        (writes, reads.collect::<Vec<_>>())
    });
    for (serial, title) in reads {
        let written = writes.range(..=serial).next_back();
        let expected = written.map(|(_, title)| title.as_str()).unwrap_or_default();
        assert_eq!(title, expected, "at serial {serial}");
    }
}

/// Either header waits for the serial that an answer has named.
#[test]
fn what_a_client_has_seen_is_there_on_the_other_process() {
    let Some(place) = Place::postgres() else { return };
    place.init();
    let (one, other) = (place.start("one"), place.start("other"));
    make_stage(&one.client);
    let of = |number: u32| if number.is_multiple_of(2) { &one.client } else { &other.client };
    for round in 0..ROUNDS {
        let (first, second) = (of(round), of(round + 1));
        wait_until("the index", || first.get("/team/dev").status == 200);
        let version = format!("{}.0", round + 1);
        let wheel = Wheel::new("pkg", &version, vec![7; 1000], 1);
        let uploaded = wheel.upload(first, "team/dev");
        let serials = ["x-larder-serial", "x-devpi-serial"].map(|name| uploaded.header(name));
        assert!(serials[0] == serials[1] && !serials[0].is_empty(), "{uploaded:?}");
        let header = if round % 4 < 2 { "X-DEVPI-SERIAL" } else { "X-Larder-Serial" };
        let seen = [(header, serials[0])];
        match round % 3 {
            0 => {
                let target = format!("/team/dev/pkg/{version}/+yank");
                write(second, "POST", &target, &seen, r#"{"reason":"broken"}"#);
            }
            1 => {
                let page = second.get_with("/team/dev/+simple/pkg/", &seen);
                page.says(&format!("pkg-{version}-"));
                for name in ["x-larder-serial", "x-devpi-serial"] {
                    let named: u64 = page.header(name).parse().expect("a number");
                    assert!(named >= serials[0].parse().expect("a number"), "{name}: {named}");
                }
            }
            _ => _ = write(second, "DELETE", &format!("/team/dev/pkg/{version}"), &seen, ""),
        }
    }
}

#[test]
fn each_answer_of_each_surface_names_the_serial() {
    let Some(place) = Place::postgres() else { return };
    place.init();
    let one = place.start("one");
    make_stage(&one.client);
    let wheel = Wheel::new("pkg", "1.0", vec![7; 1000], 1);
    wheel.upload(&one.client, "team/dev");
    let targets = [
        "/",
        "/search?q=pkg",
        "/status",
        "/+account/login",
        "/+manage",
        "/+api",
        "/+status",
        "/team",
        "/team/dev",
        "/team/dev/+simple/",
        "/team/dev/+simple/pkg/",
        "/team/dev/pkg",
        "/team/dev/nothing",
        "/team/none",
        "/articles",
        "/article/none",
        "/actions",
        "/changes",
        "/changes?surface=python&since=0",
        "/+tokens",
        "/+search?query=pkg",
        "/team/dev/+f/aa/bb/none",
    ];
    each(targets, |target| {
        let response = one.client.get(target);
        let serial = response.find("x-larder-serial").unwrap_or_else(|| panic!("{target}: none"));
        assert!(serial.parse::<u64>().is_ok_and(|serial| serial > 0), "{target}: {serial}");
    });
    for target in ["/livez", "/readyz", "/version", "/metrics", "/robots.txt"] {
        assert_eq!(one.client.get(target).find("x-larder-serial"), None, "{target}");
    }
    one.client.get_with("/team/dev", &[("X-DEVPI-SERIAL", "x")]).expect(400);
}

/// A firewall forgets the connections of one process. It is behind for three seconds at most, and no write fails.
#[test]
fn connections_are_dropped_without_a_word() {
    let Some(mut place) = Place::postgres() else { return };
    place.init();
    let near = place.start("near");
    let socket = place.postgres.as_ref().expect("it was started").socket();
    let proxy = SilentProxy::start(&socket);
    let directory = proxy.directory().display();
    place.database = format!("postgres:///postgres?host={directory}&user=larder");
    let far = place.start("far");
    let rounds = if is_long() { 12 } else { 3 };
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(900) * (round % 3));
        proxy.drop_silently();
        let name = format!("/article/near{round}");
        write(&near.client, "POST", &format!("{name}/0"), &[], "text");
        let written_at = Instant::now();
        wait_until("the far process", || far.client.get(&name).status == 200);
        longest = longest.max(written_at.elapsed());
        proxy.drop_silently();
        let request = article_request(&format!("far{round}"), 0, b"text");
        far.client.exchange(&request, false).expect(201);
        far.add_user(&format!("user{round}"), "x");
    }
    // Promised are 3 s, on a machine that has time; before there was a promise, it took 12 to 22 s.
    assert!(longest < Duration::from_secs(9), "{longest:?}");
    far.client.get("/readyz?verbose").lacks("it is not read on");
}
