//! Articles written in browsers: the form, its preview, what it refuses, and fifty who write one article at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::asking::Says as _;
use crate::browser::{self, Browser, form};
use crate::pages::check_harmless;
use crate::server::{ROOT_PASSWORD, TestServer};
use crate::shown::notes;

fn start() -> TestServer {
    TestServer::without_aur(|config| {
        config.article.acl_write = ":AUTHENTICATED:".parse().expect("a list");
    })
}

/// A server, and the browser of `root`.
fn with_root() -> (TestServer, Browser) {
    let server = start();
    let browser = Browser::root(server.client);
    (server, browser)
}

/// The value of a field of the form for the article.
#[track_caller]
fn field(page: &str, name: &str) -> String {
    browser::field(page, "Article", name)
}

#[test]
fn an_article_is_written_and_looked_at() {
    let (server, mut browser) = with_root();
    // The article does not exist yet: the page that says so links to the form.
    let missing = browser.get("/article/guide/start").expect(404);
    missing.says("href=\"/+edit/guide/start\"");
    browser.get("/+edit?name=guide/start").expect(303).has("location", "/+edit/guide/start");
    let page = browser.get("/+edit/guide/start").expect(200);
    page.has("cache-control", "no-store");
    let page = page.text();
    assert_eq!((field(&page, "base"), field(&page, "text")), ("0".into(), String::new()));
    // A preview writes nothing, and keeps what was typed.
    let text = "\r\n# Start\r\n\r\nSome *text* with <b>signs</b> & a [[missing]] link.\r\n";
    let preview =
        browser.submit(&page, "Article", &[("text", text), ("do", "preview")]).expect(200).text();
    preview.says(["<em>text</em>", "class=\"missing\""]);
    assert_eq!(field(&preview, "text"), text.replace("\r\n", "\n"));
    server.get("/article/guide/start").expect(404);
    let values = [("text", text), ("comment", "made"), ("do", "save")];
    let moved = browser.submit(&preview, "Article", &values);
    moved.expect(303).has("location", "/article/guide/start");
    let read = server.get("/article/guide/start");
    assert_eq!(read.text(), text.replace("\r\n", "\n"));
    assert_eq!(read.header("content-type").split(';').next(), Some("text/markdown"));
    browser.get("/article/guide/start").says("href=\"/+edit/guide/start\"");
}

#[test]
fn lines_that_end_as_on_windows_stay_so() {
    let (server, mut browser) = with_root();
    server.root().typed("text/plain").post("/article/dos.txt/0", "one\r\ntwo\r\n").expect(201);
    browser.fill("/+edit/dos.txt", "Article", &[("text", "one\r\n2\r\n")]).expect(303);
    let read = server.get("/article/dos.txt");
    assert_eq!(read.text(), "one\r\n2\r\n");
    assert!(read.header("content-type").starts_with("text/plain"), "{read:?}");
}

/// It is deleted with the version that was seen; history stays, and the form brings it back.
#[test]
fn an_article_is_deleted_and_brought_back() {
    let (server, mut browser) = with_root();
    server.root().write("guide/start/0", "text").expect(201);
    let moved = browser.fill("/+edit/guide/start", "Delete", &[("comment", "no more")]);
    moved.expect(303).has("location", "/article/guide/start/history");
    server.get("/article/guide/start").expect(410);
    let page = browser.get("/+edit/guide/start").text();
    assert_eq!(field(&page, "base"), "2");
    browser.submit(&page, "Article", &[("text", "again")]).expect(303);
    assert_eq!(server.get("/article/guide/start/3").text(), "again");
}

#[test]
fn a_form_that_changes_nothing_or_comes_twice_makes_no_version() {
    let (server, mut browser) = with_root();
    // A form has no lone CR, and ends every line in the same way.
    for (at, text) in ["# A\n\ntext\n", "\na\r\nb\r\n", "a\rb\nc\r\n"].into_iter().enumerate() {
        let path = format!("/article/same{at}");
        let done = server.root().typed("text/markdown").post(&format!("{path}/0"), text.as_bytes());
        done.expect(201);
        let page = browser.get(&format!("/+edit/same{at}")).text();
        let moved = browser.submit(&page, "Article", &[("comment", "nothing")]);
        moved.expect(303).has("location", &path[..]);
        server.get(&format!("{path}/2")).expect(404);
        // Another type is a change.
        browser.submit(&page, "Article", &[("type", "text/plain")]).expect(303);
        assert!(server.get(&format!("{path}/2")).header("content-type").starts_with("text/plain"));
    }
    let page = browser.get("/+edit/twice").text();
    for _ in 0..2 {
        let moved = browser.submit(&page, "Article", &[("text", "# N\r\n")]);
        moved.expect(303).has("location", "/article/twice");
    }
    // Even if somebody has written since.
    server.root().typed("text/markdown").post("/article/twice/1", "more").expect(201);
    browser.submit(&page, "Article", &[("text", "# N\r\n")]).expect(303);
    browser.submit(&page, "Article", &[("text", "# M\r\n")]).expect(409);
    let page = browser.get("/+edit/twice").text();
    for _ in 0..2 {
        browser.submit(&page, "Delete", &[]).expect(303).has("location", "/article/twice/history");
    }
    server.get("/article/twice/4").expect(404);
}

/// The form comes back with the text, and with nothing of the article.
#[test]
fn no_text_is_lost_when_the_session_has_ended() {
    let (server, mut browser) = with_root();
    server.root().typed("text/markdown").post("/article/a/0", "first").expect(201);
    let page = browser.get("/+edit/a").text();
    let mut out = browser.clone();
    out.cookies.clear();
    let again = out.submit(&page, "Article", &[("text", "my <text>\r\n")]);
    again.tells(401, "Not saved. You are not logged in any more. Log in in another tab, and then save here. Log in (in a new tab) </+account/login>").lacks("first");
    assert_eq!(field(&again.text(), "text"), "my <text>\n");
    out.log_in("root", ROOT_PASSWORD).expect(303);
    // The token is not yet the new one.
    let again = out.submit(&again.text(), "Article", &[]).expect(403);
    assert_eq!(field(&again.text(), "text"), "my <text>\n");
    out.submit(&again.text(), "Article", &[]).expect(303);
    assert_eq!(server.get("/article/a").text(), "my <text>\n");
}

#[test]
fn forms_that_no_page_has_sent_are_refused() {
    let (server, mut browser) = with_root();
    server.root().typed("text/markdown").post("/article/a/0", "first").expect(201);
    // A page of another origin sends all fields of the form.
    let (_, fields) = form(&browser.get("/+edit/a").text(), "Article");
    let body = crate::browser::encoded(&fields);
    let headers =
        [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", "http://evil.example")];
    browser.send("POST", "/+edit/a", &headers, body.as_bytes()).expect(403);
    // Too long for a form, and no form at all.
    browser.post("/+edit/a", &"x".repeat(3_300_000)).expect(413);
    for body in ["", "base=1", "text=x", "base=x&text=x", "base=1&text=x&base=1", "base=1&text=%ff"]
    {
        browser.post("/+edit/a", body).expect(400);
    }
    browser.fill("/+edit/a", "Article", &[("do", "nonsense")]).expect(400);
    for name in ["a//b", "history", "a%00"] {
        browser.get(&format!("/+edit/{name}")).expect(400);
    }
    // A content that is no text is not put into a form.
    server.root().typed("application/octet-stream").post("/article/b/0", b"\0\xff").expect(201);
    browser.get("/+edit/b").expect(422);
}

/// An anonymous reader gets no form; a user without the right gets the reason.
#[test]
fn who_may_not_write_gets_no_form() {
    let server = start();
    server.root().typed("text/markdown").post("/article/a/0", "first").expect(201);
    Browser::new(server.client).get("/+edit/a").expect(401);
    let closed = TestServer::without_aur(|config| {
        config.article.acl_write = "root".parse().expect("a list");
    });
    closed.client.add_user("alice", "staple");
    let mut alice = Browser::of(closed.client, "alice", "staple");
    alice.get("/+edit/a").expect(403);
    let mut root = Browser::root(closed.client);
    let (_, mut fields) = form(&root.get("/+edit/a").text(), "Article");
    fields.iter_mut().filter(|(name, _)| name == "text").for_each(|(_, text)| *text = "x".into());
    let token = form(&alice.get("/+account").text(), "New token").1[0].1.clone();
    fields.iter_mut().filter(|(name, _)| name == "form").for_each(|(_, it)| *it = token.clone());
    alice.post("/+edit/a", &crate::browser::encoded(&fields)).expect(403);
    closed.get("/article/a").expect(404);
}

#[test]
fn what_somebody_types_is_shown_as_text() {
    let (_server, mut browser) = with_root();
    let attack = "</textarea><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let page = browser.get("/+edit/x").text();
    for (field, button) in [
        ("text", "preview"),
        ("comment", "preview"),
        ("type", "preview"),
        ("type", "save"),
        ("comment", "save"),
        ("text", "save"),
    ] {
        let values = [(field, attack), ("do", button)];
        let response = browser.submit(&page, "Article", &values);
        if response.status != 303 {
            check_harmless(&response.text(), &format!("{field} {button}"));
        }
    }
    // The page about a conflict has the other text and its comment.
    let response =
        browser.submit(&page, "Article", &[("text", attack), ("comment", attack)]).expect(409);
    check_harmless(&response.text(), "a conflict");
    let name: String = form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    let page = browser.get(&format!("/+edit/{}", name.replace('+', "%20"))).text();
    check_harmless(&page, "a name");
}

fn put(server: &TestServer, text: &str, base: u32) {
    server.root().typed("text/markdown").post(&format!("/article/a/{base}"), text).expect(201);
}

#[test]
fn both_changes_are_in_the_form_when_somebody_else_was_first() {
    let (server, mut browser) = with_root();
    put(&server, "one\n\ntwo\n\nthree\n", 0);
    let page = browser.get("/+edit/a").text();
    put(&server, "ONE\n\ntwo\n\nthree\n", 1);
    // In another place: both.
    let values = [("text", "one\r\n\r\ntwo\r\n\r\nTHREE\r\n"), ("comment", "shout")];
    let refused = browser.submit(&page, "Article", &values).expect(409).text();
    assert_eq!(
        notes(&refused),
        "Nothing of yours is saved yet. While you wrote, root saved version 2 at TIME. You began with version 1.\nYour changes and theirs are in different places: the form has both. Look at it, and save it."
    );
    assert_eq!(field(&refused, "text"), "ONE\n\ntwo\n\nTHREE\n");
    assert_eq!((field(&refused, "base"), field(&refused, "comment")), ("2".into(), "shout".into()));
    server.get("/article/a").is("ONE\n\ntwo\n\nthree\n");
    // In the same place: with marks, and the next one after that.
    put(&server, "uno\n\ntwo\n\nthree\n", 2);
    let refused = browser.submit(&refused, "Article", &[("text", "EINS\n\ntwo\n\nTHREE\n")]).text();
    let marked = field(&refused, "text");
    let both = "<<<<<<< version 3 (latest)\nuno\n||||||| version 2 (base)\nONE\n=======\nEINS\n>>>>>>> this write";
    assert_eq!(marked, format!("{both}\n\ntwo\n\nTHREE\n"));
    browser.submit(&refused, "Article", &[("text", "uno, EINS\n\ntwo\n\nTHREE\n")]).expect(303);
    assert_eq!(server.get("/article/a/4").text(), "uno, EINS\n\ntwo\n\nTHREE\n");
}

/// Saving does not bring back unseen what another user deleted, and deleting shows what another user wrote.
#[test]
fn nothing_is_brought_back_or_deleted_unseen() {
    let (server, mut browser) = with_root();
    put(&server, "one\n", 0);
    let page = browser.get("/+edit/a").text();
    server.root().delete("/article/a/1").expect(200);
    let refused = browser.submit(&page, "Article", &[("text", "mine")]).expect(409).text();
    assert_eq!((field(&refused, "text"), field(&refused, "base")), ("mine".into(), "2".into()));
    put(&server, "seen\n", 2);
    let page = browser.get("/+edit/a").text();
    put(&server, "theirs\n", 3);
    let deleted = browser.submit(&page, "Delete", &[]).expect(409).text();
    assert_eq!((field(&deleted, "text"), field(&deleted, "base")), ("theirs\n".into(), "4".into()));
    browser.submit(&deleted, "Delete", &[]).expect(303);
}

/// After a refused deletion, the form has no empty text: sending it again deletes the article, and does not empty it.
#[test]
fn a_refused_delete_leaves_the_text_as_it_was() {
    let (server, mut browser) = with_root();
    server.root().typed("text/markdown").post("/article/a/0", "first").expect(201);
    let page = browser.get("/+edit/a").text();
    let mut out = browser.clone();
    out.cookies.clear();
    let check = |status: u16, expected: u16, page: &str| {
        assert_eq!(status, expected, "{page}");
        // That would be a text that nobody typed.
        page.lacks("aria-label=\"Article\"");
        page.says(["<h1>Delete a</h1>", "Not deleted."]);
        let (_, fields) = form(page, "Delete");
        assert!(fields.contains(&("comment".into(), "no more".into())), "{fields:?}");
    };
    let ended = out.submit(&page, "Delete", &[("comment", "no more")]);
    check(ended.status, 401, &ended.text());
    ended.lacks("first");
    out.log_in("root", ROOT_PASSWORD).expect(303);
    let anew = out.submit(&ended.text(), "Delete", &[]);
    check(anew.status, 403, &anew.text());
    assert_eq!(server.get("/article/a").text(), "first");
    out.submit(&anew.text(), "Delete", &[]).expect(303);
    server.get("/article/a").expect(410);
}

/// Without the right to read an article, the page is the same whether it exists or not.
#[test]
fn who_may_not_read_an_article_is_not_told_whether_it_is_there() {
    let server = TestServer::without_aur(|config| {
        config.article.acl_read = "root".parse().expect("a list");
    });
    server.add_user("alice", "staple");
    server.root().typed("text/x-rst").post("/article/secret/0", "x").expect(201);
    let mut alice = Browser::of(server.client, "alice", "staple");
    let token = form(&alice.get("/+account").text(), "New token").1[0].1.clone();
    for (token, what) in [(token.as_str(), "save"), (&token, "delete"), ("old", "save")] {
        let body = |text: &str| format!("form={token}&base=0&text={text}&do={what}");
        let mut page = |name: &str| {
            let response = alice.post(&format!("/+edit/{name}"), &body("y")).expect(403);
            response.text().replace(name, "NAME")
        };
        assert_eq!(page("secret"), page("nothing"), "{what}");
    }
}

/// Adds a line to the article, and again to the latest text after each refusal, as a person would. Returns how often it was
/// refused.
fn add_line(mut browser: Browser, line: &str, barrier: &Barrier) -> usize {
    let mut page = browser.get("/+edit/list").text();
    let mut text = field(&page, "text");
    barrier.wait();
    for refused in 0.. {
        let mine = format!("{text}{line}\n");
        let response = browser.submit(&page, "Article", &[("text", mine.as_str())]);
        if response.status == 303 {
            return refused;
        }
        response.check_status(409);
        page = response.text();
        // The screen has all three.
        let shown = page.split("<textarea rows=\"16\" readonly>\n").skip(1);
        let shown: Vec<&str> = shown.map(|rest| rest.split('<').next().unwrap_or("")).collect();
        let [yours, theirs] = shown.as_slice() else { panic!("{line}: {page}") };
        assert_eq!(*yours, mine, "{line}");
        let merged = field(&page, "text");
        assert!(theirs.lines().chain([line]).all(|it| merged.contains(it)), "{merged}");
        text = (*theirs).to_owned();
    }
    unreachable!("the loop ends by a return")
}

/// All lines of fifty writers are there in the end, and each version has one line more than that before.
#[test]
fn of_fifty_who_write_at_once_nobody_loses_a_line() {
    const WRITERS: usize = 50;
    let server = start();
    server.root().typed("text/plain").post("/article/list/0", "start\n").expect(201);
    let barrier = Arc::new(Barrier::new(WRITERS));
    // A user has sixteen sessions at most.
    for user in 0..4 {
        server.add_user(&format!("writer{user}"), "staple");
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let browser = Browser::of(server.client, &format!("writer{}", number % 4), "staple");
            let barrier = barrier.clone();
            thread::spawn(move || add_line(browser, &format!("line of {number}"), &barrier))
        })
        .collect();
    let refused: Vec<usize> = writers.into_iter().map(|it| it.join().expect("a writer")).collect();
    assert!(refused.iter().sum::<usize>() > 0, "nobody was ever refused: {refused:?}");
    let text = server.get("/article/list").text();
    let lines: BTreeSet<&str> = text.lines().skip(1).collect();
    assert_eq!((lines.len(), text.lines().count()), (WRITERS, WRITERS + 1), "{text}");
    let history = server.get("/article/list/history?limit=1000").json();
    assert_eq!(history["versions"].as_array().map(Vec::len), Some(WRITERS + 1), "{history}");
    // Each acknowledged version has all lines of the one before.
    let mut before = String::new();
    for version in 1..=WRITERS + 1 {
        let text = server.get(&format!("/article/list/{version}")).text();
        assert!(text.starts_with(&before), "version {version}: {text}");
        assert_eq!(text.lines().count(), version);
        before = text;
    }
}
