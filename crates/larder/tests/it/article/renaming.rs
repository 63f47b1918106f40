//! Renamed articles: what moves to the new name, what the old name answers, who may rename, and what the answers hide.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::words::limited;
use super::{closed_wiki, code, store, wiki, wiki_with};
use crate::asking::{Says as _, each, texts};
use crate::browser::{ACCEPT, Browser, field, form};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::server::TestServer;
use crate::shown::{shown, shown_json};

/// Renames with the version that was seen.
fn rename(server: &TestServer, name_and_version: &str, to: &str) -> Response {
    server.root().post(&format!("/article/{name_and_version}?rename={to}"), ())
}

#[track_caller]
fn renamed(server: &TestServer, name_and_version: &str, to: &str) -> Response {
    rename(server, name_and_version, to).expect(201)
}

/// Compares where a path redirects.
#[track_caller]
fn check_leads(server: &TestServer, target: &str, expected: &str) {
    for headers in [&[][..], &[ACCEPT]] {
        for method in ["GET", "HEAD"] {
            let response = server.client.send(method, target, headers, b"").expect(308);
            response.has("location", expected).has("cache-control", "no-cache");
            assert_eq!(response.find("etag"), None, "{target}");
        }
    }
}

/// A server with two versions of `a b`.
fn two_versions() -> TestServer {
    let server = wiki();
    store(&server, "a%20b/0", b"# One\n");
    store(&server, "a%20b/1", b"# Two\n");
    server
}

/// The name that `a b` gets, and why.
const TO: &str = "guide/x%2Cy&comment=better";

/// Earlier versions stay, byte for byte, with the same tag; the latest has its own.
#[test]
fn a_renamed_article_keeps_its_versions() {
    let server = two_versions();
    let before: Vec<Response> =
        ["/1", "/2"].iter().map(|page| server.get(&format!("/article/a%20b{page}"))).collect();
    let made = renamed(&server, "a%20b/2", TO);
    made.has("location", "/article/guide/x,y/3");
    assert_snapshot!("renamed", shown_json(&made.json()));
    for (page, before) in ["/1", "/2"].iter().zip(&before) {
        let now = server.get(&format!("/article/guide/x,y{page}"));
        assert_eq!((now.status, &now.body), (200, &before.body), "{page}");
        for header in
            ["etag", "content-type", "last-modified", "cache-control", "x-article-version"]
        {
            now.has(header, before.header(header));
        }
    }
    let latest = server.get("/article/guide/x,y");
    latest.is("# Two\n").has("x-article-version", 3).has("etag", made.header("etag"));
    let history = server.get("/article/guide/x,y/history").json();
    assert_snapshot!("history_of_a_renamed", shown_json(&history));
}

#[test]
fn every_page_of_the_old_name_leads_to_the_new_one() {
    let server = two_versions();
    renamed(&server, "a%20b/2", TO);
    each(["", "?raw", "/1", "/3", "/history?limit=1", "/diff?from=1&to=2"], |page| {
        let [old, new] = ["a%20b", "guide/x%2Cy"].map(|name| format!("/article/{name}{page}"));
        check_leads(&server, &old, &new);
    });
    for version in [0, 4] {
        server.get(&format!("/article/a%20b/{version}")).expect(404);
    }
    let below = [("X-Outside-URL", "https://e.example/pre")];
    server.client.get_with("/article/a%20b", &below).has("location", "/pre/article/guide/x%2Cy");
}

#[test]
fn lists_have_a_renamed_article_once_under_its_new_name() {
    let server = two_versions();
    renamed(&server, "a%20b/2", TO);
    let names = |target: &str| texts(&server.get(target).json()["articles"], "name");
    assert_eq!(names("/articles"), ["guide/x,y"]);
    assert_eq!(names("/articles?q=two"), ["guide/x,y"]);
    let all = server.get("/articles?deleted=true").json();
    assert_snapshot!("list_with_a_redirect", shown_json(&all));
    let page = server.browse("/articles?deleted=true").text();
    assert_snapshot!("list_page_with_a_redirect", shown(&page));
}

#[test]
fn the_feed_tells_of_a_removed_and_an_added_name_at_once() {
    let server = two_versions();
    renamed(&server, "a%20b/2", TO);
    let news = server.get("/changes?surface=articles&since=0").json_lines();
    let of = |name: &str, kind: &str| {
        let found = news.iter().find(|it| it["name"] == name && it["kind"] == kind);
        found.unwrap_or_else(|| panic!("{kind} {name}: {news:?}"))["serial"].clone()
    };
    assert_eq!(of("a b", "removed"), of("guide/x,y", "added"));
    assert_eq!(news.iter().filter(|it| it["name"] == "guide/x,y").count(), 1, "{news:?}");
}

/// A server on which `a` has become `b`, and a new `a` was written.
fn used_again() -> TestServer {
    let server = wiki();
    store(&server, "a/0", b"first\n");
    renamed(&server, "a/1", "b");
    make_anew(&server);
    server
}

fn make_anew(server: &TestServer) {
    let made = server.root().with("If-None-Match", "*").put("/article/a", "second\n").expect(201);
    assert_eq!(made.json()["version"], 3, "{}", made.text());
}

#[test]
fn who_saw_the_old_article_makes_a_new_one_only_on_purpose() {
    let server = wiki();
    store(&server, "a/0", b"first\n");
    renamed(&server, "a/1", "b");
    for base in ["a/0", "a/1"] {
        let refused = server.root().post(&format!("/article/{base}"), "late\n");
        assert_eq!((refused.status, code(&refused).as_str()), (409, "renamed"), "{base}");
        assert_eq!(refused.json()["latest"]["redirect_to"], "b");
    }
    let refused = server.root().with("If-Match", "*").put("/article/a", "late\n");
    assert_eq!((refused.status, code(&refused).as_str()), (412, "precondition_failed"));
    make_anew(&server);
    assert_eq!(server.get("/article/a").text(), "second\n");
    assert_eq!(server.get("/article/a/diff").text().matches("+second").count(), 1);
    check_leads(&server, "/article/a/1", "/article/b/1");
    assert_eq!(server.get("/article/b/1").text(), "first\n");
    server.browse("/article/a/history").says("<b>renamed to b</b>");
}

/// A name that is taken, a version that does not exist, an invalid name.
#[test]
fn renames_that_are_refused() {
    let server = used_again();
    let rows = [
        ("b/2", "a", 409, "name_taken"),
        ("b/1", "c", 409, "stale"),
        ("b/2", "b", 400, "same_name"),
        ("none/0", "c", 404, "not_found"),
    ];
    each(rows, |(what, to, status, expected)| {
        let refused = rename(&server, what, to);
        assert_eq!((refused.status, code(&refused).as_str()), (status, expected), "{what} {to}");
    });
    for to in ["", "..", "a/history", "x%00"] {
        rename(&server, "b/2", to).expect(400);
    }
    let unnamed = server.root().put("/article/b?rename=c", ());
    assert_eq!((unnamed.status, code(&unnamed).as_str()), (428, "base_missing"));
}

/// An article can also return to an earlier name.
#[test]
fn old_names_lead_straight_to_the_newest() {
    let server = used_again();
    renamed(&server, "b/2", "c");
    check_leads(&server, "/article/b", "/article/c");
    check_leads(&server, "/article/a/2", "/article/c/2");
    renamed(&server, "c/3", "b");
    check_leads(&server, "/article/c", "/article/b");
    assert_eq!(server.get("/article/b/1").text(), "first\n");
    // The numbers of this article begin at 3: no redirect leads to a lower one.
    renamed(&server, "a/3", "d");
    renamed(&server, "d/4", "e");
    check_leads(&server, "/article/d/3", "/article/e/3");
    server.get("/article/d/1").expect(404);
    check_leads(&server, "/article/a/1", "/article/b/1");
    // A redirect can be taken back.
    server.root().delete("/article/c/4").expect(200);
    server.get("/article/c").expect(410);
    check_leads(&server, "/article/c/1", "/article/b/1");
    // A deleted article is not renamed, and its old names lead to where it was.
    server.root().delete("/article/b/4").expect(200);
    assert_eq!(code(&rename(&server, "b/5", "d")), "deleted");
    check_leads(&server, "/article/a/1", "/article/b/1");
}

#[test]
fn actions_rename_and_tell() {
    let server = wiki();
    store(&server, "a/0", b"text\n");
    let act = |action: &str, arguments: Value| {
        server.root().post("/actions", json!({"actions": {action: arguments}}))
    };
    let renamed = act("article.rename", json!({"name": "a", "version": 1, "to": "b"})).expect(200);
    assert_eq!(renamed.json()["name"], "b");
    let version = act("article.get_version", json!({"name": "a"})).json();
    assert_eq!(version, json!({"version": 2, "deleted": true, "redirect_to": "b"}));
    for action in ["article.get", "article.history"] {
        act(action, json!({"name": "a"})).tells(410, "`a` was renamed to `b`");
    }
    act("article.rename", json!({"name": "a", "version": 2, "to": "c"})).expect(409);
}

#[test]
fn links_to_the_old_name_lead_to_the_article() {
    let server = wiki();
    store(&server, "target/0", b"# Target\n");
    server.root().typed("image/png").post("/article/p.png/0", b"\x89PNG");
    store(&server, "from/0", b"[it](target) ![picture](p.png)\n");
    let page = |target: &str| server.browse(target).text();
    let before = page("/article/from");
    renamed(&server, "target/1", "guide/new");
    renamed(&server, "p.png/1", "guide/p.png");
    let after = page("/article/from");
    // The link is not marked as missing.
    after.says(["<a href=\"/article/target\" rel", "<img src=\"/article/p.png\""]);
    let text = |page: &str| page.split_once("<article").expect("a text").1.to_owned();
    let end = |page: &str| text(page).split_once("</article>").expect("its end").0.to_owned();
    assert_eq!(end(&before), end(&after));
    // The search waits for the index, and so does this.
    assert_eq!(server.get("/articles?text=target").json()["count"], 2);
    page("/article/guide/new").says(["Linked from", ">from</a>"]);
    // Another article of the old name: the link is to that one.
    store(&server, "target/2", b"# Another\n");
    page("/article/guide/new").lacks("Linked from");
    page("/article/target").says("Linked from");
    // The target is gone: the link is marked.
    server.root().delete("/article/guide/p.png/2");
    page("/article/from").lacks("<img");
}

#[test]
fn a_name_that_one_may_not_read_shows_nowhere() {
    let server = closed_wiki();
    store(&server, "docs/old/0", b"plum\n");
    store(&server, "secret/name/0", b"secret plum\n");
    store(&server, "docs/links/0", b"[it](old)\n");
    renamed(&server, "docs/old/1", "secret/new");
    renamed(&server, "secret/name/1", "docs/new");
    // Over the redirect, for its history.
    store(&server, "docs/over/0", b"x\n");
    renamed(&server, "docs/over/1", "secret/over");
    store(&server, "docs/over/2", b"y\n");
    let token = limited(&server, &["article:read"]);
    let who = ("Authorization", token.as_str());
    let pages = [
        ("/article/docs/old", 410),
        ("/article/docs/old/1", 410),
        ("/article/docs/old/2", 410),
        ("/article/docs/old/history", 410),
        ("/article/docs/old/diff", 410),
        ("/article/docs/over", 200),
        ("/article/docs/over/1", 410),
        ("/article/docs/over/history", 200),
        ("/article/docs/over?version=2", 410),
        ("/article/docs/new", 200),
        ("/article/docs/new/history", 200),
        ("/article/docs/links", 200),
        ("/articles?prefix=docs/&deleted=true", 200),
        ("/articles?prefix=docs/&text=plum", 200),
        ("/changes?surface=articles&since=0", 200),
    ];
    each(pages, |(target, status)| {
        for accept in [("Accept", "*/*"), ACCEPT] {
            let response = server.client.get_with(target, &[who, accept]);
            // A program that asks for a version of a page is told that the parameter does not exist.
            if !(target.contains("?version") && accept.1 == "*/*") {
                response.check_status(status);
            }
            format!("{target} {:?} {}", response.headers, response.text()).lacks("secret/");
        }
    });
    let actions = [
        ("article.get", json!({"name": "docs/old"})),
        ("article.get", json!({"name": "docs/new"})),
        ("article.get_version", json!({"name": "docs/old"})),
        ("article.history", json!({"name": "docs/over"})),
        ("article.history", json!({"name": "docs/old"})),
        ("article.search", json!({"text": "plum", "prefix": "docs/"})),
    ];
    each(actions, |(action, arguments)| {
        let body = json!({"actions": {action: arguments}});
        server.authorized(&token).post("/actions", body).lacks("secret/");
    });
    // Readers of all articles see it.
    server.root().get("/changes?surface=articles&since=0").says("secret/new");
    server.root().get("/article/docs/old").expect(308).has("cache-control", "private, no-cache");
}

#[test]
fn who_renames_may_read_and_write_under_both_names() {
    let server = closed_wiki();
    store(&server, "docs/a/0", b"a\n");
    store(&server, "secret/b/0", b"secret\n");
    let token = limited(&server, &["article:read", "article:write"]);
    let send = |target: &str| server.authorized(&token).post(target, ());
    for target in [
        "/article/secret/b/1?rename=docs/b",
        "/article/docs/a/1?rename=secret/a",
        "/article/docs/a/1?rename=docsx",
    ] {
        send(target).expect(403);
    }
    // An existing name cannot be distinguished from one that does not exist either.
    let (known, unknown) =
        (send("/article/docs/a/1?rename=secret/b"), send("/article/docs/a/1?rename=secret/c"));
    assert_eq!(known.text(), unknown.text().replace("secret/c", "secret/b"));
    send("/article/docs/a/1?rename=docs/c").expect(201);
    server.anybody().post("/article/docs/c/2?rename=docs/d", ()).expect(401);
}

#[test]
fn writing_alone_is_not_enough() {
    let server = wiki_with(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.acl_write = ":AUTHENTICATED:".parse().expect("a list");
    });
    store(&server, "docs/a/0", b"a\n");
    let token = limited(&server, &["article:write"]);
    let refused = server.authorized(token.as_str()).post("/article/docs/a/1?rename=docs/b", ());
    refused.tells(403, "user 'ada' may not read articles: `ada` is not in `article.acl_read`");
    server.root().get("/article/docs/a").expect(200);
}

#[test]
fn people_rename_with_a_form() {
    let server = wiki();
    store(&server, "guide/a/0", b"# A\n");
    let mut browser = Browser::root(server.client);
    browser.get("/article/guide/a").says("href=\"/+rename/guide/a\"");
    let page = browser.get("/+rename/guide/a").expect(200);
    page.has("cache-control", "no-store");
    let page = page.text();
    check_harmless(&page, "the form");
    check_fields(&page, "guide/a", "");
    let moved = browser.submit(&page, "Rename", &[("to", " guide/b c ")]);
    moved.expect(303).has("location", "/article/guide/b%20c");
    assert_eq!(server.get("/article/guide/b%20c").text(), "# A\n");
    // Another user saved first.
    let page = browser.get("/+rename/guide/b%20c").text();
    store(&server, "guide/b%20c/2", b"# B\n");
    browser.submit(&page, "Rename", &[("to", "guide/d")]).tells(409, "Not renamed. `guide/b c` is at version 3, by root at TIME, but this write was made from version 2");
}

/// The form of a page has this name and this comment.
#[track_caller]
fn check_fields(page: &str, to: &str, comment: &str) {
    let of = |name| field(page, "Rename", name);
    assert_eq!((&*of("to"), &*of("comment")), (to, comment));
}

#[test]
fn a_refused_form_comes_back_as_it_was_sent() {
    let server = wiki();
    store(&server, "guide/a/0", b"# A\n");
    let mut browser = Browser::root(server.client);
    let page = browser.get("/+rename/guide/a").text();
    for (to, status, why) in [
        ("guide/a", 400, "Not renamed. `guide/a` has this name already"),
        (
            "../x",
            400,
            "Not renamed. `../x` is not an article's name: `.` and `..` cannot be segments of it",
        ),
        (
            "x<b>\"/history",
            400,
            r#"Not renamed. `x<b>"/history` is not an article's name: it cannot end in `history`, as `history`, `diff` and numbers in the last place are pages of an article"#,
        ),
    ] {
        let comment = "so <i>be</i> it";
        let refused = browser.submit(&page, "Rename", &[("to", to), ("comment", comment)]);
        refused.tells(status, why);
        let text = refused.text();
        check_harmless(&text, to);
        check_fields(&text, to, comment);
    }
}

#[test]
fn a_draft_that_is_older_than_the_new_name_is_not_lost_and_leads_there() {
    let server = wiki();
    store(&server, "guide/a/0", b"# A\n");
    let mut browser = Browser::root(server.client);
    let draft = browser.get("/+edit/guide/a").text();
    renamed(&server, "guide/a/1", "guide/b%20c");
    let refused = browser.submit(&draft, "Article", &[("text", "mine"), ("do", "save")]);
    refused.tells(409, "Nothing of yours is saved yet. While you wrote, root saved version 2 at TIME. You began with version 1.\nThe form has your text as you sent it, as both could not be put together: the article was renamed in the meantime.");
    refused.text().says("is called <a href=\"/article/guide/b%20c\">guide/b c</a> now");
    // The form of the old name says what it makes.
    let fresh = browser.get("/+edit/guide/a").text();
    fresh.says("is called <a href=\"/article/guide/b%20c\">guide/b c</a> now");
    browser.submit(&fresh, "Article", &[("text", "new"), ("do", "save")]).expect(303);
    assert_eq!(server.get("/article/guide/a/3").text(), "new");
}

/// An article that does not exist, no session, another session's form.
#[test]
fn forms_of_others_rename_nothing() {
    let server = wiki();
    store(&server, "guide/a/0", b"# A\n");
    let mut browser = Browser::root(server.client);
    let page = browser.get("/+rename/guide/a").text();
    browser.get("/+rename/none").expect(404);
    browser.get("/+rename/a/history").expect(400);
    Browser::new(server.client).get("/+rename/guide/a").expect(401);
    let (_, fields) = form(&page, "Rename");
    let mut foreign = fields.clone();
    foreign.retain(|(name, _)| name != "form");
    let refused = browser.post("/+rename/guide/a", &crate::browser::encoded(&foreign));
    refused.tells(403, "Not renamed. You have logged in anew since this form was loaded. Look at it, and send it again.");
    let body = crate::browser::encoded(&fields);
    let program = server.root().typed("application/x-www-form-urlencoded");
    program.post("/+rename/guide/a", body).expect(401);
    server.get("/article/guide/a").expect(200);
}
