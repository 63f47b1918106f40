//! Pushes from a mirror into a stage: somebody approves a release of an upstream.

use insta::assert_snapshot;

use super::*;
use crate::asking::each;
use crate::python::{Ask, path, sdist};
use crate::shown::shown_json;

const SDIST: &str = "foo-1.0.zip";

/// An upstream with a release of `foo`, which is a sdist here, and the mirror and the stage for it.
fn start_with_release(settings: Value) -> (Upstream, Index, Vec<u8>) {
    let content = sdist("foo");
    let upstream = upstream_of(b"content");
    let mut said = file(&upstream, SDIST, &content);
    said["requires-python"] = json!(">=3.9");
    let older = file(&upstream, "foo-0.9.zip", b"older");
    upstream.offer("/simple/foo/", page("foo", json!([older, said])));
    upstream.offer(&format!("/files/{SDIST}"), Offer::file(content.clone()));
    let index = mirror_of(fresh_for_long(), &upstream, settings);
    index.stage("alice/dev", json!({"volatile": false}));
    (upstream, index, content)
}

fn push(ask: Ask, version: &str, target: &str) -> Response {
    let order = json!({"name": "Foo", "version": version, "targetindex": target});
    ask.json().post("/alice/up", order)
}

fn audit(index: &Index, event: &str) -> Vec<Value> {
    let found = index.alice().json().get(&format!("/alice/dev/+audit?event={event}"));
    result(&found, "audit")["items"].as_array().expect("a list").clone()
}

#[test]
fn a_release_of_upstream_goes_into_a_stage() {
    for settings in [json!({}), json!({"mirror_use_external_urls": true})] {
        let (upstream, index, content) = start_with_release(settings);
        let log = result(&push(index.alice(), "1.0", "alice/dev"), "actionlog");
        let stored = path("alice/dev", SDIST, &content);
        let steps = json!([
            [200, "register", "Foo", "1.0", "->", "alice/dev"],
            [200, "store_releasefile", stored[1..]],
        ]);
        assert_eq!(log, steps);
        assert_eq!(index.client().get(&stored).body, content);
        let page = json_page(index.client(), "alice/dev", "foo").json();
        assert_eq!(page["files"][0]["requires-python"], ">=3.9");
        assert_eq!(page["files"][0]["hashes"]["sha256"], Digest::of(&content).to_string());
        let data = result(&index.anybody().json().get("/alice/dev/foo/1.0"), "versiondata");
        assert_snapshot!("approved_release", shown_json(&data["+links"]));
        wait_until("the audit log", || audit(&index, "approved").len() == 1);
        let entry = &audit(&index, "approved")[0];
        assert_snapshot!("approved", shown_json(entry));
        let reason = format!("pushed from alice/up, SHA-256 {}", Digest::of(&content));
        assert_eq!(entry["reason"], reason);
        // Again: nothing changes, and it is told all the same.
        let asked = upstream.count(&format!("/files/{SDIST}"));
        assert_eq!(result(&push(index.alice(), "1.0", "alice/dev"), "actionlog"), log);
        assert_eq!(upstream.count(&format!("/files/{SDIST}")), asked, "it is cached");
        assert_eq!(audit(&index, "approved").len(), 1);
    }
}

#[test]
fn orders_that_are_refused() {
    let (upstream, index, _) = start_with_release(json!({}));
    let asked = upstream.requests().len();
    let rows = [
        (
            index.user("bob"),
            "1.0",
            "alice/dev",
            401,
            "user 'bob' cannot upload to 'alice/dev': `bob` is not in `acl_upload` of alice/dev",
        ),
        (index.anybody(), "1.0", "alice/dev", 401, "user None cannot upload to 'alice/dev'"),
        (index.alice(), "1.0", "alice/none", 404, "The stage alice/none could not be found."),
    ];
    each(rows, |(ask, version, target, status, text)| {
        push(ask, version, target).tells(status, text);
    });
    assert_eq!(upstream.requests().len(), asked, "nothing is fetched for them");
    // Of what is not there, to another server, and only documentation.
    let elsewhere = json!({"name": "foo", "version": "1.0", "posturl": "https://x.example/", "username": "u", "password": "p"});
    let into = |name: &str, version: &str, only_docs: bool| json!({"name": name, "version": version, "targetindex": "alice/dev", "only_docs": only_docs});
    let orders = [
        (into("Foo", "7.0", false), 400, "there are no files for Foo 7.0 on stage alice/up"),
        (
            into("nothing", "1.0", false),
            400,
            "there are no files for nothing 1.0 on stage alice/up",
        ),
        (elsewhere, 404, "cannot submit to mirror index"),
        (into("foo", "1.0", true), 404, "no release/files found for foo 1.0"),
    ];
    each(orders, |(order, status, text)| {
        index.alice().json().post("/alice/up", order).tells(status, text);
    });
}

/// The file is not what the page says, or no archive.
#[test]
fn a_file_that_is_another_is_not_pushed() {
    let (upstream, index, _) = start_with_release(json!({}));
    let push = || push(index.alice(), "0.9", "alice/dev");
    push().tells(502, "the upstream of alice/up lists foo-0.9.zip, but does not have it");
    upstream.offer("/files/foo-0.9.zip", Offer::file("wrong"));
    push().tells(502, "the mirror alice/up has no usable answer from its upstream: the file has the SHA-256 DIGEST; upstream's page says DIGEST");
    upstream.offer("/files/foo-0.9.zip", Offer::file("older"));
    push().tells(400, "foo-0.9.zip cannot be pushed: the file is not a whole zip archive: Missing end of central directory");
    json_page(index.client(), "alice/dev", "foo").expect(404);
}

/// A push is no way around a policy, and replaces a file only where that may be replaced.
#[test]
fn a_push_keeps_the_rules_of_both_indexes() {
    let (_upstream, index, content) = start_with_release(json!({}));
    let push = || push(index.alice(), "1.0", "alice/dev");
    index.alice().patch("/alice/up", json!({"policy_deny": ["foo"]})).expect(200);
    push().tells(403, "foo-1.0.zip is refused by the policy of alice/up: denied by `foo`");
    index.alice().patch("/alice/up", json!({"policy_deny": []})).expect(200);
    index.upload("alice/dev", SDIST, &sdist("foo, but another"));
    push().tells(409, "foo-1.0.zip already exists in non-volatile index");
    index.alice().patch("/alice/dev", json!({"volatile": true})).expect(200);
    push().expect(200);
    assert_eq!(index.client().get(&path("alice/dev", SDIST, &content)).body, content);
}
