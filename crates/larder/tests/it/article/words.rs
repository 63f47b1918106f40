//! Articles by the words in their texts, and by who links to them.

use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{closed_wiki, store, wiki, wiki_with};
use crate::asking::{Says as _, each, texts};
use crate::browser::ACCEPT;
use crate::client::Response;
use crate::pages::check_harmless;
use crate::server::TestServer;
use crate::shown::{shown, shown_json};

/// Asks until `done` says that this is the answer that must come.
#[track_caller]
fn until(ask: impl Fn() -> Response, done: impl Fn(&Response) -> bool) -> Response {
    let late = Instant::now() + Duration::from_secs(120);
    loop {
        let response = ask().expect(200);
        if done(&response) {
            return response;
        }
        assert!(Instant::now() < late, "the last answer: {}", response.text());
        thread::sleep(Duration::from_millis(10));
    }
}

/// The results of a search in all texts that were acknowledged before.
#[track_caller]
fn found_by(server: &TestServer, query: &str, headers: &[(&str, &str)]) -> Value {
    let target = format!("/articles?text={query}");
    let ask = || server.client.get_with(&target, headers);
    until(ask, |response| response.json()["complete"] == json!(true)).json()
}

/// The names that it finds.
#[track_caller]
fn found(server: &TestServer, query: &str) -> String {
    names(&found_by(server, query, &[]))
}

fn names(found: &Value) -> String {
    let names = texts(&found["articles"], "name");
    assert_eq!(found["count"], json!(names.len()), "{found}");
    names.join(" ")
}

/// The header of a token of a new user with these scopes, for articles below `docs` alone.
pub(super) fn limited(server: &TestServer, scopes: &[&str]) -> String {
    server.add_user("ada", "open-sesame");
    let wish = json!({"scopes": scopes, "prefixes": ["/docs/"]});
    format!("Bearer {}", server.user("ada", "open-sesame").make_token(wish))
}

#[test]
fn what_was_acknowledged_is_found() {
    let server = wiki();
    assert_eq!(found(&server, "anything"), "");
    for turn in 0..20 {
        store(&server, &format!("a{turn}/0"), format!("# T\n\nword{turn} shared\n").as_bytes());
        assert_eq!(found(&server, &format!("word{turn}%20shared")), format!("a{turn}"));
    }
    // While a person types, the last word may be incomplete.
    assert_eq!(found(&server, "shared%20word1").split(' ').count(), 11);
    assert_eq!(found(&server, "shared%20word1%20"), "a1");
    // A changed article is found by its new text.
    store(&server, "a1/1", b"# Other\n\nnothing of it\n");
    assert_eq!(
        (found(&server, "word1%20"), found(&server, "of%20it")),
        (String::new(), "a1".into())
    );
    server.root().delete("/article/a1/2");
    assert_eq!(found(&server, "of%20it"), "");
    server.root().post("/article/a1/3?restore=1", ());
    assert_eq!(found(&server, "word1%20"), "a1");
    // A picture is found only by words of its name.
    server.root().typed("image/png").post("/article/pic.png/0", "zebra");
    assert_eq!((found(&server, "zebra"), found(&server, "pic")), (String::new(), "pic.png".into()));
}

/// A wiki in which the name, the title or the text of three articles has the word `larder`, once it finds them.
fn with_words() -> TestServer {
    let server = wiki();
    store(&server, "notes/z/0", b"# Something\n\nlarder larder larder\n");
    store(&server, "notes/b/0", b"# All about larder\n");
    store(&server, "larder/0", b"# Something\n");
    assert_eq!(found(&server, "larder"), "larder notes/b notes/z");
    server
}

/// Actions answer the same.
#[test]
fn the_best_come_first_and_say_where_the_words_are() {
    let server = with_words();
    let answer = found_by(&server, "larder", &[]);
    assert_snapshot!("found", shown_json(&answer));
    let action = |arguments: Value| {
        server.root().post("/actions", json!({"actions": {"article.search": arguments}}))
    };
    assert_eq!(action(json!({"text": "larder"})).json(), answer);
    let below = action(json!({"text": "larder", "prefix": "notes/", "limit": 5}));
    assert_eq!(names(&below.json()), "notes/b notes/z");
    action(json!({"text": "larder", "limit": 1000})).expect(400);
}

#[test]
fn what_is_found_is_read_in_parts() {
    let server = with_words();
    assert_eq!(found(&server, "larder&prefix=notes/"), "notes/b notes/z");
    let rows =
        [("limit=1", &["larder"][..]), ("limit=1&offset=2", &["notes/z"]), ("offset=3", &[])];
    each(rows, |(part, names)| {
        let answer = server.get(&format!("/articles?text=larder&{part}")).json();
        assert_eq!(texts(&answer["articles"], "name"), names, "{part}");
        assert_eq!(answer["count"], 3, "{part}");
    });
    let bad = [
        "text=a&q=b",
        "text=a&after=b",
        "text=a&limit=101",
        "text=a&limit=0",
        "text=a&text=b",
        "text=a&offset=1001",
        "text=a&offset=x",
        "offset=1",
        "q=a&offset=1",
    ];
    each(bad, |query| _ = server.get(&format!("/articles?{query}")).expect(400));
}

#[test]
fn pages_show_the_words_that_were_found() {
    let server = with_words();
    let page = server.browse("/articles?text=larder").text();
    check_harmless(&page, "the page");
    assert_snapshot!("found_page", shown(&page));
    page.says("Something <mark>larder</mark> <mark>larder</mark> <mark>larder</mark>");
    let part = server.page("/articles?text=larder&limit=1&offset=1");
    assert_snapshot!("found_page_in_part", shown(&part));
    server.browse("/articles?text=larder&limit=1&offset=2").lacks("offset=3");
    let found = server.page("/search?q=larder");
    check_harmless(&found, "the search");
    found.says("Something <mark>larder</mark>");
    // What only the title has, is there once.
    found.lacks("All about <mark>");
    let suggested = server.get("/search/suggest?q=larder").json();
    assert_snapshot!("suggested", shown_json(&suggested));
}

#[test]
fn what_one_may_not_read_is_not_found_and_not_counted() {
    let server = closed_wiki();
    store(&server, "docs/a/0", b"# A\n\nplum and [b](b)\n");
    store(&server, "docs/b/0", b"# B\n\nplum\n");
    store(&server, "secret/c/0", b"# C\n\nplum and [b](/article/docs/b)\n");
    let everything = until(
        || server.root().get("/articles?text=plum"),
        |response| response.json()["complete"] == json!(true),
    );
    assert_eq!(names(&everything.json()), "docs/a docs/b secret/c");
    // An anonymous client.
    server.get("/articles?text=plum").expect(401);
    server.get("/search/suggest?q=plum").lacks("docs/a");
    server
        .anybody()
        .post("/actions", json!({"actions": {"article.search": {"text": "plum"}}}))
        .expect(401);
    // A client that may read a part.
    let token = limited(&server, &["article:read"]);
    let who = [("Authorization", token.as_str())];
    server.client.get_with("/articles?text=plum", &who).expect(403);
    assert_eq!(names(&found_by(&server, "plum&prefix=docs/", &who)), "docs/a docs/b");
    server.client.get_with("/articles?text=plum&prefix=secret/", &who).expect(403);
    let suggested = server.client.get_with("/search/suggest?q=plum", &who).json();
    assert_snapshot!("suggested_in_part", shown_json(&suggested));
    // Nor does the page say who links.
    let with_page = [who[0], ACCEPT];
    let page = server.client.get_with("/article/docs/b", &with_page).text();
    page.says(["Linked from", ">docs/a</a>"]);
    page.lacks("secret");
    server.root().browser().get("/article/docs/b").says(">secret/c</a>");
}

#[test]
fn a_page_says_who_links_to_it() {
    let server = wiki();
    store(&server, "guide/target/0", b"# Target\n\n[self](target)\n");
    store(&server, "guide/near/0", b"[it](target)\n");
    store(&server, "far/0", b"[[guide/target]] and <a href='guide/target#part'>again</a>\n");
    store(&server, "lists/other/0", b"[[guide/target]]\n");
    store(&server, "none/0", b"[it](https://e.example/article/guide/target) guide/target\n");
    found(&server, "target");
    let page = || server.browse("/article/guide/target");
    let shown = page().text();
    check_harmless(&shown, "the page");
    let linked = |page: &str| {
        let list = page.split_once("Linked from").map_or("", |(_, rest)| rest);
        let list = list.split_once("</ul>").map_or("", |(list, _)| list);
        let names = list.split("<li>").skip(1).filter_map(|item| item.split(['>', '<']).nth(2));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(linked(&shown), "far guide/near lists/other");
    // If a nearer article has this name, the link leads there.
    store(&server, "lists/guide/target/0", b"# Nearer\n");
    until(page, |page| linked(&page.text()) == "far guide/near");
    // Links that are gone, and articles that are gone, lead nowhere.
    store(&server, "far/1", b"nothing\n");
    server.root().delete("/article/guide/near/1");
    until(page, |page| linked(&page.text()).is_empty());
}

#[test]
fn links_work_below_a_path() {
    let server =
        wiki_with(|config| config.public_url = Some("https://e.example/pre/fix".to_owned()));
    let links = b"[it](../target) [root](/article/target) [whole](/pre/fix/article/target) [none](/article/none)\n";
    store(&server, "lists/near/0", links);
    store(&server, "inside/0", b"/article/target and [it](/article/target)\n");
    store(&server, "outside/0", b"[it](/pre/fix/article/target)\n");
    store(&server, "other/0", b"[it](/other/article/target) [docs](/docs)\n");
    store(&server, "target/0", b"# Target\n");
    found(&server, "target");
    let shown = server.browse("/article/lists/near").text();
    let rel = "rel=\"nofollow noopener\"";
    let link = |text: &str| format!("<a href=\"/pre/fix/article/target\" {rel}>{text}</a>");
    shown.says(["it", "root", "whole"].map(link));
    shown.says("<a href=\"/pre/fix/article/none\" class=\"missing\"");
    let shown = server.browse("/article/target").text();
    let linked = shown.split_once("Linked from").expect("links").1;
    for from in ["inside", "lists/near", "outside"] {
        linked.says(&format!("<a href=\"/pre/fix/article/{from}\">{from}</a>"));
    }
    linked.lacks("other");
}
