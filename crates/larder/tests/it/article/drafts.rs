//! What the front matter says beside a title: who wrote it and when, tags, and drafts, which are only for those who may write them.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::attachments::added;
use super::{store, wiki, wiki_with};
use crate::asking::{Ask, Says as _, each, texts};
use crate::browser::Browser;
use crate::pages::check_harmless;
use crate::server::TestServer;
use crate::shown::shown;

const DRAFT: &[u8] = b"---\ntags: fruit\ndraft: true\n---\n# Plums\n\nA [link](open), and plums.\n";

#[test]
fn an_article_says_who_wrote_it_and_what_it_is_about() {
    let server = wiki();
    let text =
        b"---\nauthor: Ann <b>B</b>\ndate: 2019-01-31\ntags: [Fruit, \"a & b\"]\n---\n# Plums\n";
    let made = store(&server, "plums/0", text).json();
    assert_eq!((&made["tags"], &made["draft"]), (&json!(["fruit", "a & b"]), &Value::Null));
    let page = server.page("/article/plums");
    check_harmless(&page, "the page");
    assert_snapshot!("tagged", shown(&page));
}

#[test]
fn articles_are_listed_by_their_tags() {
    let server = wiki();
    store(&server, "plums/0", b"---\ntags: [Fruit, \"a & b\"]\n---\n# Plums\n");
    store(&server, "pears/0", b"---\ntags:\n- fruit\n---\n# Pears\n");
    store(&server, "apples/0", b"# Apples\n");
    let rows = [
        ("tag=fruit", &["pears", "plums"][..], Value::Null),
        ("tag=FRUIT&prefix=pl", &["plums"], Value::Null),
        ("tag=fruit&limit=1", &["pears"], json!("pears")),
        ("tag=fruit&after=pears", &["plums"], Value::Null),
    ];
    each(rows, |(query, names, next)| {
        let list = server.get(&format!("/articles?{query}")).json();
        assert_eq!(texts(&list["articles"], "name"), names, "{query}");
        assert_eq!(list["next_after"], next, "{query}");
    });
    for bad in ["tag=fruit&q=a", "tag=fruit&text=a", "tag=fruit&deleted=true"] {
        server.get(&format!("/articles?{bad}")).expect(400);
    }
    let list = server.page("/articles?tag=fruit");
    check_harmless(&list, "the list");
    assert_snapshot!("about_fruit", shown(&list));
    server.page("/articles").says("?tag=fruit");
    // A tag that is gone is in no list.
    store(&server, "plums/1", b"# Plums\n");
    assert_eq!(texts(&server.get("/articles?tag=fruit").json()["articles"], "name"), ["pears"]);
    server.page("/articles").lacks("a+%26+b");
}

/// A wiki with a draft that an open article links to.
fn with_draft() -> TestServer {
    let server = wiki();
    store(&server, "open/0", b"# Open\n\n[plums](plums)\n");
    let made = store(&server, "plums/0", DRAFT).json();
    assert_eq!(made["draft"], json!(true));
    server
}

#[test]
fn a_draft_is_only_for_those_who_may_write_it() {
    let server = with_draft();
    added(&server, "/+attachments/plums/a.txt", b"a file");
    let places = [
        "/article/plums",
        "/article/plums?raw",
        "/article/plums/1",
        "/article/plums/history",
        "/article/plums/diff",
        "/+attachments/plums/",
        "/+attachments/plums/a.txt",
    ];
    each(places, |place| {
        server.get(place).expect(404);
        server.browse(place).expect(404);
        for writer in [server.root(), server.root().browser()] {
            writer.get(place).expect(200).has("cache-control", "private, no-cache");
        }
        // What a writer has seen is not kept for others.
        server.browse(place).expect(404);
    });
    server.root().browser().get("/article/plums").says("Draft.");
    let action = |name: &str| json!({"actions": {name: {"name": "plums"}}});
    server.anybody().post("/actions", action("article.get")).expect(404);
    server.root().post("/actions", action("article.get")).expect(200);
}

#[test]
fn no_list_and_no_link_shows_a_draft() {
    let server = with_draft();
    let lists = [
        "/articles",
        "/articles?q=plum",
        "/articles?tag=fruit",
        "/articles?text=plum",
        "/search?q=plum",
        "/search/suggest?q=plum",
        "/changes.atom?surface=articles",
        "/",
    ];
    each(lists, |list| {
        server.get(list).lacks("/plums");
        server.browse(list).lacks("/plums");
    });
    server.page("/article/open").lacks("Linked from");
}

/// Without the line it is there for everybody, and with it gone again.
#[test]
fn an_article_is_a_draft_as_long_as_its_latest_version_says_so() {
    let server = with_draft();
    store(&server, "plums/1", b"# Plums\n");
    server.get("/article/plums").expect(200);
    server.page("/article/plums").says("Plums");
    server.page("/articles").says("/article/plums");
    store(&server, "plums/2", DRAFT);
    server.get("/article/plums").expect(404);
    server.get("/article/plums/2").expect(404);
    server.browse("/article/plums").expect(404);
    server.page("/articles").lacks("/article/plums");
    // A draft that was deleted stays one.
    server.root().delete("/article/plums/3").expect(200);
    server.get("/article/plums/3").expect(404);
}

/// The changes that a reader is told: `kind name version by`.
fn told(reader: &Ask) -> Vec<String> {
    let lines = reader.get("/changes?surface=articles&since=0").expect(200).json_lines();
    let changes = lines.into_iter().filter(|line| line["kind"].is_string());
    let said = changes.map(|change| {
        let version = change["version"].as_u64().map(|it| it.to_string()).unwrap_or_default();
        let [kind, name, by] = ["kind", "name", "by"].map(|it| change[it].as_str().unwrap_or(""));
        format!("{kind} {name} {version} {by}").trim().to_owned()
    });
    said.collect()
}

#[test]
fn an_article_that_becomes_a_draft_is_gone_for_readers_of_the_feed() {
    let server = wiki();
    store(&server, "plums/0", b"# Plums\n");
    store(&server, "secret/0", DRAFT);
    store(&server, "plums/1", b"---\ndraft: true\n---\n# Prunes\n");
    store(&server, "plums/2", b"---\ndraft: true\n---\n# Prunes, again\n");
    assert_eq!(told(&server.anybody()), ["removed plums"]);
    let all = [
        "added plums 1 root",
        "added secret 1 root",
        "changed plums 2 root",
        "changed plums 3 root",
    ];
    assert_eq!(told(&server.root()), all);
    let atom = server.get("/changes.atom?surface=articles").text();
    atom.says("article removed");
    atom.lacks(["Prunes", "secret"]);
    store(&server, "plums/3", b"# Prunes\n");
    let all = [
        "added plums 1 root",
        "changed plums 2 root",
        "changed plums 3 root",
        "changed plums 4 root",
    ];
    assert_eq!(told(&server.anybody()), all);
}

#[test]
fn writers_have_a_list_of_the_drafts() {
    let server = wiki_with(|config| config.article.acl_write = "root".parse().expect("a list"));
    server.add_user("ann", "ann-password");
    store(&server, "plums/0", DRAFT);
    store(&server, "a/b/0", b"---\ndraft: true\n---\n# <b>A</b>\n");
    store(&server, "open/0", b"# Open\n");
    let mut root = Browser::root(server.client);
    let shown = root.get("/+account").text();
    check_harmless(&shown, "the page");
    let shown = crate::shown::shown(&shown);
    let drafts = shown.split("\nDrafts\n").nth(1).and_then(|it| it.split("\nTokens\n").next());
    assert_snapshot!("drafts", drafts.unwrap_or_else(|| panic!("{shown}")));
    let mut ann = Browser::of(server.client, "ann", "ann-password");
    ann.get("/+account").text().lacks(["Drafts", "plums"]);
    server.root().delete("/article/plums/1").expect(200);
    store(&server, "a/b/1", b"# A\n");
    root.get("/+account").text().lacks("Drafts");
}
