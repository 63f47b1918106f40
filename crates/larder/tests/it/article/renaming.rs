//! Renamed articles: what moves to the new name, what the old name answers, who may rename, and what the answers hide.

use account::{Scope, Scopes};
use serde_json::{Value, json};

use super::words::limited;
use super::{ask, code, store, wiki, wiki_with};
use crate::browser::{ACCEPT, Browser, form};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::server::{ROOT, ROOT_PASSWORD, TestServer};

/// Renames with the version that was seen.
fn rename(server: &TestServer, name_and_version: &str, to: &str) -> Response {
    ask(server, "POST", &format!("/article/{name_and_version}?rename={to}"), &[], b"")
}

#[track_caller]
fn renamed(server: &TestServer, name_and_version: &str, to: &str) -> Response {
    let response = rename(server, name_and_version, to);
    assert_eq!(response.status, 201, "{name_and_version}: {}", response.text());
    response
}

/// Compares where a path redirects.
#[track_caller]
fn check_leads(server: &TestServer, target: &str, expected: &str) {
    for headers in [&[][..], &[ACCEPT]] {
        for method in ["GET", "HEAD"] {
            let response = server.client.send(method, target, headers, b"");
            assert_eq!((response.status, response.header("location")), (308, expected), "{target}");
            assert_eq!(response.header("cache-control"), "no-cache", "{target}");
            assert_eq!(response.find("etag"), None, "{target}");
        }
    }
}

#[test]
fn an_article_is_found_under_both_names() {
    let server = wiki();
    store(&server, "a%20b/0", b"# One\n");
    store(&server, "a%20b/1", b"# Two\n");
    let before: Vec<Response> =
        ["/1", "/2"].iter().map(|page| server.get(&format!("/article/a%20b{page}"))).collect();
    let made = renamed(&server, "a%20b/2", "guide/x%2Cy&comment=better");
    assert_eq!(made.header("location"), "/article/guide/x,y/3");
    let facts = made.json();
    assert_eq!((&facts["kind"], &facts["renamed_from"]), (&json!("renamed"), &json!("a b")));
    assert_eq!((&facts["version"], &facts["comment"]), (&json!(3), &json!("better")));
    // Earlier versions stay, byte for byte, with the same tag; the latest has its own.
    for (page, before) in ["/1", "/2"].iter().zip(&before) {
        let now = server.get(&format!("/article/guide/x,y{page}"));
        assert_eq!((now.status, &now.body), (200, &before.body), "{page}");
        for header in
            ["etag", "content-type", "last-modified", "cache-control", "x-article-version"]
        {
            assert_eq!(now.header(header), before.header(header), "{header}");
        }
    }
    let latest = server.get("/article/guide/x,y");
    assert_eq!(
        (latest.body.as_slice(), latest.header("x-article-version")),
        (&b"# Two\n"[..], "3")
    );
    assert_eq!(latest.header("etag"), made.header("etag"));
    let history = server.get("/article/guide/x,y/history").json();
    let versions = history["versions"].as_array().expect("versions");
    let kinds: Vec<_> = versions.iter().map(|it| it["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["renamed", "put", "put"]);
    // Every page of the old name.
    check_leads(&server, "/article/a%20b", "/article/guide/x%2Cy");
    check_leads(&server, "/article/a%20b?raw", "/article/guide/x%2Cy?raw");
    check_leads(&server, "/article/a%20b/1", "/article/guide/x%2Cy/1");
    check_leads(&server, "/article/a%20b/3", "/article/guide/x%2Cy/3");
    check_leads(&server, "/article/a%20b/history?limit=1", "/article/guide/x%2Cy/history?limit=1");
    check_leads(
        &server,
        "/article/a%20b/diff?from=1&to=2",
        "/article/guide/x%2Cy/diff?from=1&to=2",
    );
    for version in [0, 4] {
        assert_eq!(server.get(&format!("/article/a%20b/{version}")).status, 404, "{version}");
    }
    let below = [("X-Outside-URL", "https://e.example/pre")];
    let outside = server.client.get_with("/article/a%20b", &below);
    assert_eq!(outside.header("location"), "/pre/article/guide/x%2Cy");
    // Lists have the article once, under its new name.
    let names = |target: &str| -> Vec<String> {
        let list = server.get(target).json();
        let names = list["articles"].as_array().expect("articles").iter();
        names.map(|it| it["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("/articles"), ["guide/x,y"]);
    assert_eq!(names("/articles?q=two"), ["guide/x,y"]);
    assert_eq!(names("/articles?deleted=true"), ["a b", "guide/x,y"]);
    assert_eq!(
        server.get("/articles?deleted=true").json()["articles"][0]["redirect_to"],
        "guide/x,y"
    );
    let page = server.client.get_with("/articles?deleted=true", &[ACCEPT]).text();
    assert!(page.contains("<b>renamed</b>") && !page.contains("deleted</b>"), "{page}");
    // The feed.
    let feed = server.get("/changes?surface=articles&since=0").text();
    let news: Vec<Value> =
        feed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |name: &str, kind: &str| {
        let found = news.iter().find(|it| it["name"] == name && it["kind"] == kind);
        found.unwrap_or_else(|| panic!("{kind} {name}: {feed}"))["serial"].clone()
    };
    assert_eq!(of("a b", "removed"), of("guide/x,y", "added"));
    assert_eq!(news.iter().filter(|it| it["name"] == "guide/x,y").count(), 1, "{feed}");
}

#[test]
fn names_are_used_again_and_nothing_is_mistaken() {
    let server = wiki();
    store(&server, "a/0", b"first\n");
    renamed(&server, "a/1", "b");
    // A writer who saw the old article is told, and makes a new one only on purpose.
    for base in ["a/0", "a/1"] {
        let refused = ask(&server, "POST", &format!("/article/{base}"), &[], b"late\n");
        assert_eq!((refused.status, code(&refused).as_str()), (409, "renamed"), "{base}");
        assert_eq!(refused.json()["latest"]["redirect_to"], "b");
    }
    let refused = ask(&server, "PUT", "/article/a", &[("If-Match", "*")], b"late\n");
    assert_eq!((refused.status, code(&refused).as_str()), (412, "precondition_failed"));
    let made = ask(&server, "PUT", "/article/a", &[("If-None-Match", "*")], b"second\n");
    assert_eq!((made.status, made.json()["version"].clone()), (201, json!(3)), "{}", made.text());
    assert_eq!(server.get("/article/a").text(), "second\n");
    assert_eq!(server.get("/article/a/diff").text().matches("+second").count(), 1);
    check_leads(&server, "/article/a/1", "/article/b/1");
    assert_eq!(server.get("/article/b/1").text(), "first\n");
    let page = server.client.get_with("/article/a/history", &[ACCEPT]).text();
    assert!(page.contains("<b>renamed to b</b>"), "{page}");
    // Refused: a name that is taken, a version that does not exist, an invalid name.
    for (what, to, status, expected) in [
        ("b/2", "a", 409, "name_taken"),
        ("b/1", "c", 409, "stale"),
        ("b/2", "b", 400, "same_name"),
        ("none/0", "c", 404, "not_found"),
    ] {
        let refused = rename(&server, what, to);
        assert_eq!((refused.status, code(&refused).as_str()), (status, expected), "{what} {to}");
    }
    for to in ["", "..", "a/history", "x%00"] {
        assert_eq!(rename(&server, "b/2", to).status, 400, "{to}");
    }
    let unnamed = ask(&server, "PUT", "/article/b?rename=c", &[], b"");
    assert_eq!((unnamed.status, code(&unnamed).as_str()), (428, "base_missing"));
    // After a second rename, old names lead straight to the newest; an article can return to an earlier name.
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
    assert_eq!(server.get("/article/d/1").status, 404);
    check_leads(&server, "/article/a/1", "/article/b/1");
    // A redirect can be taken back.
    let deleted = ask(&server, "DELETE", "/article/c/4", &[], b"");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(server.get("/article/c").status, 410);
    check_leads(&server, "/article/c/1", "/article/b/1");
    // A deleted article is not renamed, and its old names lead to where it was.
    assert_eq!(ask(&server, "DELETE", "/article/b/4", &[], b"").status, 200);
    assert_eq!(code(&rename(&server, "b/5", "d")), "deleted");
    check_leads(&server, "/article/a/1", "/article/b/1");
}

#[test]
fn actions_rename_and_tell() {
    let server = wiki();
    store(&server, "a/0", b"text\n");
    let act = |action: &str, arguments: Value| {
        let body = json!({"actions": {action: arguments}}).to_string();
        ask(&server, "POST", "/actions", &[], body.as_bytes())
    };
    let renamed = act("article.rename", json!({"name": "a", "version": 1, "to": "b"}));
    assert_eq!(renamed.status, 200, "{}", renamed.text());
    assert_eq!(renamed.json()["name"], "b");
    let version = act("article.get_version", json!({"name": "a"})).json();
    assert_eq!(version, json!({"version": 2, "deleted": true, "redirect_to": "b"}));
    for action in ["article.get", "article.history"] {
        let gone = act(action, json!({"name": "a"}));
        assert_eq!(gone.status, 410, "{}", gone.text());
        assert!(gone.text().contains("`a` is `b` now"), "{}", gone.text());
    }
    let again = act("article.rename", json!({"name": "a", "version": 2, "to": "c"}));
    assert_eq!(again.status, 409, "{}", again.text());
}

#[test]
fn links_to_the_old_name_lead_to_the_article() {
    let server = wiki();
    store(&server, "target/0", b"# Target\n");
    ask(&server, "POST", "/article/p.png/0", &[("Content-Type", "image/png")], b"\x89PNG");
    store(&server, "from/0", b"[it](target) ![picture](p.png)\n");
    let page = |target: &str| server.client.get_with(target, &[ACCEPT]).text();
    let before = page("/article/from");
    renamed(&server, "target/1", "guide/new");
    renamed(&server, "p.png/1", "guide/p.png");
    let after = page("/article/from");
    assert!(after.contains("<a href=\"/article/target\" rel"), "not missing: {after}");
    assert!(after.contains("<img src=\"/article/p.png\""), "{after}");
    let text = |page: &str| page.split_once("<article").expect("a text").1.to_owned();
    let end = |page: &str| text(page).split_once("</article>").expect("its end").0.to_owned();
    assert_eq!(end(&before), end(&after));
    // The search waits for the index, and so does this.
    assert_eq!(server.get("/articles?text=target").json()["count"], 2);
    let linked = page("/article/guide/new");
    assert!(linked.contains("Linked from") && linked.contains(">from</a>"), "{linked}");
    // Another article of the old name: the link is to that one.
    store(&server, "target/2", b"# Another\n");
    assert!(!page("/article/guide/new").contains("Linked from"));
    assert!(page("/article/target").contains("Linked from"));
    // The target is gone: the link is marked.
    ask(&server, "DELETE", "/article/guide/p.png/2", &[], b"");
    assert!(!page("/article/from").contains("<img"), "{}", page("/article/from"));
}

#[test]
fn a_name_that_one_may_not_read_shows_nowhere() {
    let server = wiki_with(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    });
    store(&server, "docs/old/0", b"plum\n");
    store(&server, "secret/name/0", b"secret plum\n");
    store(&server, "docs/links/0", b"[it](old)\n");
    renamed(&server, "docs/old/1", "secret/new");
    renamed(&server, "secret/name/1", "docs/new");
    // Over the redirect, for its history.
    store(&server, "docs/over/0", b"x\n");
    renamed(&server, "docs/over/1", "secret/over");
    store(&server, "docs/over/2", b"y\n");
    let token = limited(&server, Scopes::default().with(Scope::ArticleRead));
    let who = ("Authorization", token.as_str());
    for (target, status) in [
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
    ] {
        for accept in [("Accept", "*/*"), ACCEPT] {
            let response = server.client.get_with(target, &[who, accept]);
            // A program that asks for a version of a page is told that the parameter does not exist.
            if !(target.contains("?version") && accept.1 == "*/*") {
                assert_eq!(response.status, status, "{target}: {}", response.text());
            }
            let all = format!("{:?} {}", response.headers, response.text());
            assert!(!all.contains("secret/"), "{target}: {all}");
        }
    }
    for (action, arguments) in [
        ("article.get", json!({"name": "docs/old"})),
        ("article.get", json!({"name": "docs/new"})),
        ("article.get_version", json!({"name": "docs/old"})),
        ("article.history", json!({"name": "docs/over"})),
        ("article.history", json!({"name": "docs/old"})),
        ("article.search", json!({"text": "plum", "prefix": "docs/"})),
    ] {
        let body = json!({"actions": {action: arguments}}).to_string();
        let response = server.client.send("POST", "/actions", &[who], body.as_bytes());
        assert!(!response.text().contains("secret/"), "{action}: {}", response.text());
    }
    // Readers of all articles see it.
    let feed = ask(&server, "GET", "/changes?surface=articles&since=0", &[], b"").text();
    assert!(feed.contains("secret/new"), "{feed}");
    let led = ask(&server, "GET", "/article/docs/old", &[], b"");
    assert_eq!((led.status, led.header("cache-control")), (308, "private, no-cache"));
}

#[test]
fn who_renames_may_read_and_write_under_both_names() {
    let server = wiki_with(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    });
    store(&server, "docs/a/0", b"a\n");
    store(&server, "secret/b/0", b"secret\n");
    let both = Scopes::default().with(Scope::ArticleRead).with(Scope::ArticleWrite);
    let token = limited(&server, both);
    let send = |target: &str| server.client.send("POST", target, &[("Authorization", &token)], b"");
    for target in [
        "/article/secret/b/1?rename=docs/b",
        "/article/docs/a/1?rename=secret/a",
        "/article/docs/a/1?rename=docsx",
    ] {
        let refused = send(target);
        assert_eq!(refused.status, 403, "{target}: {}", refused.text());
    }
    // An existing name cannot be distinguished from one that does not exist either.
    let (known, unknown) =
        (send("/article/docs/a/1?rename=secret/b"), send("/article/docs/a/1?rename=secret/c"));
    assert_eq!(known.text(), unknown.text().replace("secret/c", "secret/b"));
    assert_eq!(send("/article/docs/a/1?rename=docs/c").status, 201);
    assert_eq!(server.client.send("POST", "/article/docs/c/2?rename=docs/d", &[], b"").status, 401);
}

#[test]
fn writing_alone_is_not_enough() {
    let server = wiki_with(|config| {
        config.article.acl_read = "root".parse().expect("a list");
        config.article.acl_write = ":AUTHENTICATED:".parse().expect("a list");
    });
    store(&server, "docs/a/0", b"a\n");
    let token = limited(&server, Scopes::default().with(Scope::ArticleWrite));
    let headers = [("Authorization", token.as_str())];
    let refused = server.client.send("POST", "/article/docs/a/1?rename=docs/b", &headers, b"");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("article.acl_read"), "{}", refused.text());
    assert_eq!(ask(&server, "GET", "/article/docs/a", &[], b"").status, 200);
}

#[test]
fn people_rename_with_a_form() {
    let server = wiki();
    store(&server, "guide/a/0", b"# A\n");
    let mut browser = Browser::of(server.client, "root", ROOT_PASSWORD);
    let article = browser.get("/article/guide/a").text();
    assert!(article.contains("href=\"/+rename/guide/a\""), "{article}");
    let page = browser.get("/+rename/guide/a");
    assert_eq!((page.status, page.header("cache-control")), (200, "no-store"));
    let page = page.text();
    check_harmless(&page, "the form");
    let (_, fields) = form(&page, "Rename");
    assert!(fields.contains(&("to".to_owned(), "guide/a".to_owned())), "{fields:?}");
    // A refused form comes back as it was sent.
    for (to, status, why) in [
        ("guide/a", 400, "has this name already"),
        ("../x", 400, "not an article"),
        ("x<b>\"/history", 400, "cannot end in"),
    ] {
        let refused =
            browser.submit(&page, "Rename", &[("to", to), ("comment", "so <i>be</i> it")]);
        assert_eq!(refused.status, status, "{to}");
        let text = refused.text();
        check_harmless(&text, to);
        assert!(text.contains(why) && text.contains("Not renamed"), "{text}");
        let (_, fields) = form(&text, "Rename");
        assert!(fields.contains(&("to".to_owned(), to.to_owned())), "{fields:?}");
        assert!(
            fields.contains(&("comment".to_owned(), "so <i>be</i> it".to_owned())),
            "{fields:?}"
        );
    }
    // A draft that is older than the new name is not lost, and leads there.
    let draft = browser.get("/+edit/guide/a").text();
    let done = browser.submit(&page, "Rename", &[("to", " guide/b c ")]);
    assert_eq!((done.status, done.header("location")), (303, "/article/guide/b%20c"));
    assert_eq!(server.get("/article/guide/b%20c").text(), "# A\n");
    let late = browser.submit(&draft, "Article", &[("text", "mine"), ("do", "save")]);
    assert_eq!(late.status, 409);
    let late = late.text();
    assert!(late.contains("href=\"/+edit/guide/b%20c\"") && late.contains("mine"), "{late}");
    // The form of the old name says what it makes.
    let fresh = browser.get("/+edit/guide/a").text();
    assert!(
        fresh.contains("is called <a href=\"/article/guide/b%20c\">guide/b c</a> now"),
        "{fresh}"
    );
    let saved = browser.submit(&fresh, "Article", &[("text", "new"), ("do", "save")]);
    assert_eq!(saved.status, 303);
    assert_eq!(server.get("/article/guide/a/3").text(), "new");
    // Another user saved first.
    let page = browser.get("/+rename/guide/b%20c").text();
    store(&server, "guide/b%20c/2", b"# B\n");
    let refused = browser.submit(&page, "Rename", &[("to", "guide/d")]);
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("version 3"), "{}", refused.text());
    // Refused: an article that does not exist, no session, another session's form.
    assert_eq!(browser.get("/+rename/none").status, 404);
    assert_eq!(browser.get("/+rename/a/history").status, 400);
    assert_eq!(Browser::new(server.client).get("/+rename/guide/a").status, 401);
    let (_, fields) = form(&page, "Rename");
    let mut foreign = fields.clone();
    foreign.retain(|(name, _)| name != "form");
    let refused = browser.post("/+rename/guide/b%20c", &crate::browser::encoded(&foreign));
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("Not renamed"), "{}", refused.text());
    let headers = [ROOT, ("Content-Type", "application/x-www-form-urlencoded")];
    let body = crate::browser::encoded(&fields);
    let program = server.client.send("POST", "/+rename/guide/b%20c", &headers, body.as_bytes());
    assert_eq!(program.status, 401);
    assert_eq!(server.get("/article/guide/b%20c").status, 200);
}
