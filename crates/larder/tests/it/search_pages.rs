//! `/search` and `/search/suggest` over every surface: the order of results, and that readers find only what they may read.
//! `/status`, and errors as pages.

use std::thread;

use insta::assert_snapshot;
use serde_json::Value;

use crate::asking::Says as _;
use crate::catalogue;
use crate::server::{ROOT, TestServer, busy, small};
use crate::shown::shown;
use crate::wait_until;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The names that a question finds, by the title of their group.
#[track_caller]
fn found(server: &TestServer, query: &str, headers: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let response =
        server.client.get_with(&format!("/search/suggest?q={query}"), headers).expect(200);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let json = response.json();
    let groups = json["groups"].as_array().expect("groups").iter();
    groups
        .map(|group| {
            let items = group["items"].as_array().expect("items").iter();
            (text(&group["title"]), items.map(|item| text(&item["name"])).collect())
        })
        .collect()
}

fn make(server: &TestServer, method: &str, target: &str, body: &str) {
    server.root().with(JSON.0, JSON.1).send(method, target, body).done();
}

#[test]
fn every_surface_answers_and_exact_names_come_first() {
    let server = TestServer::serving(&catalogue::small());
    for name in ["attest", "attest/more", "x-attest", "about-the-attest"] {
        make(&server, "POST", &format!("/article/{name}/0"), "text");
    }
    let groups = found(&server, "attest", &[]);
    let packages = ("AUR packages".to_owned(), vec!["attest".to_owned(), "attest-git".to_owned()]);
    assert_eq!(groups[0].0, packages.0);
    assert_eq!(groups[0].1[..2], packages.1[..]);
    let articles = groups.iter().find(|group| group.0 == "Articles").expect("articles");
    assert_eq!(articles.1, ["attest", "attest/more", "about-the-attest", "x-attest"]);
    // Two letters find the start of names.
    let short = found(&server, "x-", &[]);
    assert_eq!(short.last().expect("a group").1, ["x-attest"]);
    // The page says the same, and how long the lists are.
    assert_snapshot!("search", shown(&server.page("/search?q=attest")));
    server.get("/search?q=nothing-is-called-so").tells(200, "Nothing is found.\nTry fewer or shorter words. Names are found by any part of them; descriptions of packages and titles of articles, too; articles by the words in their texts.");
    assert!(found(&server, "", &[]).is_empty());
    server.get(&format!("/search?q={}", "x".repeat(3_000))).expect(200);
}

/// Results, their number and their groups reveal nothing that the reader may not read.
#[test]
fn what_one_may_not_read_is_not_found() {
    let server = TestServer::without_source(|config| {
        config.article.acl_read = "root".parse().expect("a list");
    })
    .ready();
    make(&server, "PUT", "/root/stable", r#"{"acl_read": ["root"]}"#);
    make(&server, "PUT", "/root/dev", "{}");
    for (index, project) in [("root/stable", "hidden-thing"), ("root/dev", "open-thing")] {
        let form = format!("name={project}&version=1.0&:action=submit&metadata_version=2.1");
        let root = server.root().typed("application/x-www-form-urlencoded");
        root.post(&format!("/{index}/"), form).done();
    }
    make(&server, "POST", "/article/thing/0", "text");
    let of = |names: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        let owned = names.iter();
        owned
            .map(|(title, names)| {
                (title.to_string(), names.iter().map(|name| name.to_string()).collect())
            })
            .collect()
    };
    assert_eq!(found(&server, "thing", &[]), of(&[("Python projects", &["open-thing"])]));
    assert_eq!(
        found(&server, "thing", &[ROOT]),
        of(&[("Python projects", &["open-thing", "hidden-thing"]), ("Articles", &["thing"])])
    );
    let page = server.page("/search?q=thing");
    assert_snapshot!("search_of_a_stranger", shown(&page));
    page.lacks("hidden-thing");
    let page = server.root().get("/search?q=thing");
    page.says("/root/stable/hidden-thing").has("cache-control", "private, no-cache");
    page.header("vary").says("Authorization");
}

#[test]
fn the_status_is_said_in_words() {
    let page = small().get("/status").text();
    page.says(["9 packages of 7 bases", "Running for", "serial "]);
    page.says(["<h2>Requests a second</h2>", "<svg"]);
    // Numbers of requests are metrics: without these, the page does not show them.
    let quiet = TestServer::without_source(|config| config.metrics.enabled = false).ready();
    quiet.get("/status").lacks(["Requests a second", "<svg"]);
    let off = TestServer::without_source(|config| config.article.enabled = false).ready();
    off.get("/status").says(["there is no source", "switched off"]);
}

#[test]
fn pages_of_errors_say_what_one_can_do() {
    let server = &TestServer::serving(&catalogue::small());
    make(server, "POST", "/article/gone/0", "text");
    server.root().delete("/article/gone/1").expect(200);
    let pages =
        [("GET", "/packages/none", 404), ("PUT", "/status", 405), ("GET", "/article/gone", 410)];
    let pages = pages.map(|(method, target, status)| {
        let page = server.anybody().browser().send(method, target, ()).expect(status);
        page.has("content-type", "text/html; charset=utf-8");
        format!("{method} {target}:\n{}\n", shown(&page.text()))
    });
    assert_snapshot!("errors", pages.join("\n"));
    let limited = TestServer::serving_with(&catalogue::small(), |config| config.aur.rate_limit = 1);
    let ask = || limited.browse("/rpc/v5/info/attest");
    assert_eq!((ask().status, ask().status), (200, 429));
}

/// Searches of people are computed where programs do not wait for them, and a queue that is full refuses them alone.
#[test]
fn searches_by_people_are_never_in_the_way_of_programs() {
    let (server, release) = busy(1);
    let client = server.client;
    let waiting = thread::spawn(move || client.get("/packages/?K=attest"));
    wait_until("one to wait", || server.metric("larder_cpu_pool_queue_length") == 1.0);
    for target in [
        "/packages/?K=attest",
        "/search?q=attest",
        "/search/suggest?q=attest",
        "/rss/",
        "/atom/modified",
        "/account/nobody",
        "/+search?query=flask",
    ] {
        server.get(target).expect(503).has("retry-after", "1");
    }
    assert_eq!(server.get("/rpc/v5/info/attest").names(), "attest");
    server.get("/packages/attest").expect(200);
    drop(release);
    let page = waiting.join().expect("an answer");
    page.says("/packages/attest");
}

#[test]
fn many_words_are_those_that_say_something() {
    let server = TestServer::serving(&catalogue::small());
    let count = |query: &str| {
        let page = server.get(&format!("/packages/?PP=250&K={query}")).text();
        page.matches("href=\"/packages/attest").count()
    };
    assert!(count("attest") > 0);
    assert_eq!(
        count("attest+a+t+e+s+t+a+a+at+te+es+st+att+tte+tes+est+atte+ttes"),
        count("attest")
    );
    assert_eq!(count("attest+%C2%A7"), 0);
}
