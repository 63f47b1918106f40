//! A lock that is sent to the server, by programs and by a form: its mirror fetches the files in the background.

use insta::assert_snapshot;

use super::prefetch::{lock, sha256, upstream_with};
use super::*;
use crate::asking::line;
use crate::browser::Browser;
use crate::python::PASSWORD;
use crate::shown::{shown, shown_json};

const AT: &str = "/alice/up/+prefetch";

/// A mirror of this upstream, `alice/up`.
fn index_of(upstream: &Upstream, settings: Value) -> Index {
    mirror_of(fresh_for_long(), upstream, settings)
}

#[track_caller]
fn begin(index: &Index, lock: &str) -> Response {
    index.alice().json().post(AT, lock.as_bytes())
}

/// The state of the last lock.
#[track_caller]
fn last(index: &Index) -> Value {
    result(&index.alice().json().get(AT), "prefetch")
}

/// The state of the last lock, once it has ended.
#[track_caller]
fn ended(index: &Index) -> Value {
    wait_until("the lock is fetched", || last(index)["state"] != "running");
    last(index)
}

#[test]
fn the_files_of_a_lock_are_fetched() {
    let sdist = "foo-1.0.tar.gz";
    let upstream = upstream_with(sdist);
    let index = index_of(&upstream, json!({}));
    assert_eq!(last(&index), json!({"state": "none"}));
    let both = lock(&[(WHEEL, sha256(b"content")), (sdist, sha256(b"other"))]);
    begin(&index, &both).expect(202);
    let done = ended(&index);
    assert_snapshot!("done", shown_json(&done));
    // Once more, and what upstream does not have.
    begin(&index, "foo==1.0\nfoo==9\nbar==1\nnowhere==1\n").expect(202);
    let mut done = ended(&index);
    done["problems"].as_array_mut().expect("a list").sort_by_key(Value::to_string);
    assert_snapshot!("done_again", shown_json(&done));
    assert_eq!(upstream.count("/simple/nowhere/"), 0);
    for name in [WHEEL, sdist] {
        assert_eq!(upstream.count(&format!("/files/{name}")), 1, "{name}");
    }
    // Fetched files are there without the upstream.
    upstream.break_with(Some(500));
    assert_eq!(index.client().get(&place_of(&upstream, sdist)).text(), "two");
}

#[test]
fn what_a_policy_refuses_is_told_with_its_rule() {
    let upstream = upstream_of(b"content");
    let index = index_of(&upstream, json!({"policy_deny": ["foo"]}));
    begin(&index, &lock(&[(WHEEL, sha256(b"content"))])).expect(202);
    let done = ended(&index);
    let problem = done["problems"][0].as_str().expect("a problem");
    let says = format!(
        "foo 1.0: {WHEEL}: refused (403): {WHEEL} is refused by the policy of alice/up: denied by `foo`"
    );
    assert_eq!(problem, says);
    assert_eq!((&done["files"], upstream.count(&format!("/files/{WHEEL}"))), (&json!(0), 0));
}

#[test]
fn one_at_a_time_and_it_can_be_stopped() {
    let upstream = upstream_of(b"content");
    let index = index_of(&upstream, json!({}));
    let place = format!("/files/{WHEEL}");
    let all = lock(&[(WHEEL, sha256(b"content"))]);
    let reason = |reason: &str| {
        let end = ended(&index);
        assert_eq!((&end["state"], &end["reason"]), (&json!("stopped"), &json!(reason)), "{end}");
    };
    upstream.hold(&place);
    begin(&index, &all).expect(202);
    upstream.wait_for(&place, 1);
    begin(&index, &all).tells(
        409,
        "the files of a lock are being fetched for this mirror: wait for it, or stop it",
    );
    index.alice().json().delete(AT).expect(200);
    reason("somebody stopped it");
    // A mirror that goes offline.
    begin(&index, &all).expect(202);
    let switch = |is_offline: bool| {
        index.alice().patch("/alice/up", json!({"mirror_offline": is_offline})).expect(200);
    };
    switch(true);
    reason("its upstream is not asked (mirror_offline=true)");
    begin(&index, &all).tells(409, "alice/up: its upstream is not asked (mirror_offline=true)");
    // A user who lost the right, and a deleted mirror.
    switch(false);
    begin(&index, &all).expect(202);
    index.alice().delete("/alice/up").expect(201);
    mirror(&index, &upstream, json!({}));
    // Another mirror with this name.
    assert_eq!(last(&index), json!({"state": "none"}));
    upstream.release(&place);
}

#[test]
fn only_those_who_may_change_the_mirror() {
    let upstream = upstream_of(b"content");
    let index = index_of(&upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for method in ["GET", "POST", "DELETE"] {
        index.user("bob").json().send(method, AT, "foo==1.0").expect(403);
        let nobody = index.anybody().json().send(method, AT, "foo==1.0");
        nobody.expect_one_of([401, 403]);
        index.alice().json().send(method, "/alice/no/+prefetch", "foo==1.0").expect(404);
    }
    let mut bob = Browser::of(index.client(), "bob", PASSWORD);
    bob.get("/+manage/prefetch/alice/up").expect(403);
    let refused = index.alice().json().post("/alice/dev/+prefetch", "foo==1.0");
    refused.tells(400, "alice/dev is no mirror: it has no upstream to fetch files from");
    assert_eq!(last(&index), json!({"state": "none"}));
}

#[test]
fn what_is_no_lock_or_too_much_is_refused() {
    let upstream = upstream_of(b"content");
    let index = index_of(&upstream, json!({}));
    let dotted = |count: usize| format!("[[package]]\n{}", "a.b.c = 1\n".repeat(count));
    let many = |count: usize| (0..count).map(|at| format!("p{at}==1\n")).collect::<String>();
    for (lock, status, says) in [
        (
            b"\xff".to_vec(),
            422,
            "`x.txt`: this is no text in UTF-8: a requirements file with `name==version`, uv.lock, poetry.lock or pylock.toml was expected",
        ),
        (
            b"foo>=1".to_vec(),
            422,
            "`x.txt`: line 1: `foo>=1` names no one version; `name==version` was expected, as `uv export` and `pip freeze` write it",
        ),
        (b"version = 1\n[[package]]\n".to_vec(), 422, "`x.txt`: `package` number 1 has no name"),
        (
            b"# nothing\n".to_vec(),
            422,
            "`x.txt`: it names no file of an index: a requirements file with `name==version`, uv.lock, poetry.lock or pylock.toml was expected",
        ),
        (
            many(5_001).into_bytes(),
            422,
            "`x.txt`: it names more than 5000 releases, or more than 20000 files, the most that were expected",
        ),
        (
            dotted(20_000).into_bytes(),
            422,
            "`x.txt`: a part of it has 40002 tables and lists: at most 2000 were expected for one package",
        ),
        (
            vec![b'\n'; 4 << 20],
            422,
            "`x.txt`: it names no file of an index: a requirements file with `name==version`, uv.lock, poetry.lock or pylock.toml was expected",
        ),
        (vec![b'['; 150_001], 422, "`x.txt`: it has 150001 values: at most 150000 were expected"),
        (
            vec![b' '; (4 << 20) + 1],
            413,
            "the body has more than 4194304 bytes, the most that is accepted",
        ),
    ] {
        index.alice().json().post(&format!("{AT}?name=x.txt"), &lock).tells(status, says);
    }
    assert_eq!(last(&index), json!({"state": "none"}));
}

/// The page for fetching ahead, and the label of its form.
const PAGE: &str = "/+manage/prefetch/alice/up";
const FORM: &str = "Fetch ahead";

/// The upstream, its mirror, and the browser of its owner with the page.
fn with_page() -> (Upstream, Index, Browser, String) {
    let upstream = upstream_of(b"content");
    let index = index_of(&upstream, json!({}));
    let mut alice = Browser::of(index.client(), "alice", PASSWORD);
    alice.get("/+manage/indexes/alice/up").says(PAGE);
    let html = alice.get(PAGE).text();
    (upstream, index, alice, html)
}

/// A file that is no lock is refused by name; nothing is accepted without the token.
#[test]
fn forms_that_fetch_nothing_ahead() {
    let (_upstream, index, mut alice, html) = with_page();
    let refused = alice.submit_file((&html, FORM), &[], Some(("photo<b>.png", b"\x89PNG\xff")));
    refused.tells(422, "Nothing was begun. `photo<b>.png`: this is no text in UTF-8: a requirements file with `name==version`, uv.lock, poetry.lock or pylock.toml was expected");
    alice.submit_file((&html, FORM), &[], Some(("", b""))).expect(422);
    alice.submit_file((&html, FORM), &[("form", "x"), ("lock", "foo==1.0")], None).expect(403);
    assert_eq!(last(&index), json!({"state": "none"}));
}

#[test]
fn people_paste_a_lock() {
    let (_upstream, index, mut alice, html) = with_page();
    let moved = alice.submit_file((&html, FORM), &[("lock", "foo==1.0\r\nbar==1")], None);
    moved.expect(303).has("location", PAGE);
    ended(&index);
    assert_snapshot!("page", shown(&alice.get(PAGE).text()));
}

#[test]
fn people_upload_a_lock_and_stop() {
    let (upstream, index, mut alice, html) = with_page();
    let second = "foo-2.0.tar.gz";
    let files = json!([file(&upstream, WHEEL, b"content"), file(&upstream, second, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    index.alice().post("/alice/up/+simple/foo/refresh", json!({})).expect(302);
    upstream.hold(&format!("/files/{second}"));
    let uploaded = ("requirements.txt", b"foo==2.0".as_slice());
    alice.submit_file((&html, FORM), &[], Some(uploaded)).expect(303);
    let html = alice.get(PAGE).text();
    assert_eq!(line(&shown(&html), "It is"), "It is being fetched: 0 of 1 releases so far.");
    alice.submit_file((&html, "Stop"), &[], None).expect(303);
    assert_eq!(
        line(&shown(&alice.get(PAGE).text()), "It"),
        "It ended early, after 0 of 1 releases: somebody stopped it."
    );
    upstream.release(&format!("/files/{second}"));
}
