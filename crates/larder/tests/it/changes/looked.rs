//! The page of what changed since a user last looked: what it has, for whom, and the mark in the browser.

use insta::assert_snapshot;
use serde_json::json;

use super::{PASSWORD, index, owner, start};
use crate::asking::{Says as _, each};
use crate::browser::Browser;
use crate::pages::check_harmless;
use crate::server::TestServer;
use crate::shown::shown;

const PAGE: &str = "/+changed";

fn browser(server: &TestServer, user: &str) -> Browser {
    Browser::of(server.client, user, PASSWORD)
}

/// Writes an article as `root`; `name_and_base` is `{name}/{base}`.
#[track_caller]
fn write(server: &TestServer, name_and_base: &str, text: &str) {
    let target = format!("/article/{name_and_base}");
    server.root().typed("text/markdown").post(&target, text).expect(201);
}

#[track_caller]
fn page(browser: &mut Browser) -> String {
    let page = browser.get(PAGE).expect(200);
    page.has("cache-control", "no-store");
    check_harmless(&page.text(), "the page");
    page.text()
}

#[track_caller]
fn mark(browser: &mut Browser) {
    browser.fill(PAGE, "Mark all as read", &[]).expect(303).has("location", PAGE);
}

#[test]
fn it_has_what_changed_since_the_mark() {
    let server = start(|_| ());
    write(&server, "guide/a/0", "# The <b>title</b>\n");
    write(&server, "guide/gone/0", "x");
    let mut alice = browser(&server, "alice");
    assert_snapshot!("unmarked", shown(&page(&mut alice)));
    mark(&mut alice);
    assert_snapshot!("nothing_new", shown(&page(&mut alice)));
    // A look alone marks nothing.
    write(&server, "guide/a/1", "# The title\n\nmore\n");
    for _ in 0..2 {
        page(&mut alice).says("/article/guide/a/diff?from=1&#38;to=2");
    }
    write(&server, "guide/a/2", "# The title\n\nmore and more\n");
    write(&server, "guide/b/0", "new");
    server.root().delete("/article/guide/gone/1").expect(200);
    index(&server, "PUT", "alice/dev", &json!({}));
    owner(&server, "alice/dev").release("alice/dev", "tool-1.0.zip");
    assert_snapshot!("marked", shown(&page(&mut alice)));
    owner(&server, "alice/dev").post("/alice/dev/tool/1.0/+yank", ()).expect(200);
    page(&mut alice).says("<b>release 1.0 changed</b>");
    mark(&mut alice);
    page(&mut alice).says("Nothing has changed.");
}

#[test]
fn the_mark_is_where_the_page_stands() {
    let server = start(|_| ());
    write(&server, "a/0", "x");
    let mut alice = browser(&server, "alice");
    let seen = page(&mut alice);
    write(&server, "b/0", "x");
    alice.submit(&seen, "Mark all as read", &[]).expect(303);
    assert_snapshot!("since_the_page", shown(&page(&mut alice)));
}

#[test]
fn nobody_sees_what_they_may_not_read() {
    let only_root = || "root".parse().expect("a list");
    let server = start(|config| config.article.acl_write = only_root());
    index(&server, "PUT", "alice/dev", &json!({"acl_read": ["alice"]}));
    owner(&server, "alice/dev").release("alice/dev", "secret-1.0.zip");
    write(&server, "plums/0", "---\ndraft: true\n---\n# Plums\n");
    write(&server, "pears/0", "# Pears\n");
    let mut bob = browser(&server, "bob");
    assert_snapshot!("for_a_reader", shown(&page(&mut bob)));
    assert_snapshot!("for_the_owner", shown(&page(&mut browser(&server, "alice"))));
    assert_snapshot!("for_an_administrator", shown(&page(&mut Browser::root(server.client))));
    // What became a draft is only said to be gone.
    mark(&mut bob);
    write(&server, "pears/1", "---\ndraft: true\n---\n# Apples\n");
    assert_snapshot!("gone_for_a_reader", shown(&page(&mut bob)));
    let server = start(|config| config.article.acl_read = only_root());
    write(&server, "plums/0", "x");
    page(&mut browser(&server, "bob")).lacks("plums");
}

#[test]
fn a_mark_is_of_one_user_and_one_store() {
    let server = start(|_| ());
    write(&server, "a/0", "x");
    let mut browser = browser(&server, "alice");
    mark(&mut browser);
    let name = "larder-read";
    let ours = browser.cookies[name].clone();
    browser.log_in("bob", PASSWORD).expect(303);
    page(&mut browser).says(["/article/a\"", "you have marked nothing"]);
    browser.log_in("alice", PASSWORD).expect(303);
    page(&mut browser).says("Nothing has changed.");
    let (user, _) = ours.split_once(':').expect("a user");
    let lost = ["999999.00000000".to_owned(), format!("{}.00000000", u64::MAX)];
    each(lost, |position| {
        let mut browser = browser.clone();
        browser.cookies.insert(name.to_owned(), format!("{user}:{position}"));
        page(&mut browser).says(["/article/a\"", "no longer known"]);
    });
    for cookie in ["", ":", "x", &format!("{user}:"), &format!("{user}:1.a'b")] {
        browser.cookies.insert(name.to_owned(), cookie.to_owned());
        page(&mut browser).says("/article/a\"");
    }
}

#[test]
fn only_its_own_form_moves_the_mark() {
    let server = start(|_| ());
    write(&server, "a/0", "x");
    server.browse(PAGE).expect(401);
    server.root().post(PAGE, "position=1").expect_one_of([401, 415]);
    let mut alice = browser(&server, "alice");
    alice.post(PAGE, "position=1").expect(403);
    let form = page(&mut alice);
    for bad in ["", "x", "1.a;b=c", "1.\r\nx: y", &"1".repeat(60)] {
        let refused = alice.submit(&form, "Mark all as read", &[("position", bad)]).expect(400);
        refused.says("is no position");
        assert!(!alice.cookies.contains_key("larder-read"), "{bad:?}");
    }
}
