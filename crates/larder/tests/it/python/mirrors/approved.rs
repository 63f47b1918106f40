//! Pushes from a mirror into a stage: somebody approves a release of an upstream.

use super::*;
use crate::asking::Says as _;
use crate::python::{Ask, path, sdist};

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
    let index = fresh_for_long();
    mirror(&index, &upstream, settings);
    index.stage("alice/dev", json!({"volatile": false}));
    (upstream, index, content)
}

fn push(ask: Ask, version: &str, target: &str) -> Response {
    let order = json!({"name": "Foo", "version": version, "targetindex": target});
    ask.json().post("/alice/up", order)
}

#[track_caller]
fn check_refused(response: &Response, status: u16, text: &str) {
    let found = response.text();
    response.check_status(status);
    found.says(text);
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
        assert_eq!(log[0], json!([200, "register", "Foo", "1.0", "->", "alice/dev"]));
        assert_eq!(log[1], json!([200, "store_releasefile", stored[1..]]));
        assert_eq!(log.as_array().map(Vec::len), Some(2));
        assert_eq!(index.client().get(&stored).body, content);
        let page = json_page(index.client(), "alice/dev", "foo").json();
        assert_eq!(page["files"][0]["requires-python"], ">=3.9");
        assert_eq!(page["files"][0]["hashes"]["sha256"], Digest::of(&content).to_string());
        let data = result(&index.anybody().json().get("/alice/dev/foo/1.0"), "versiondata");
        let steps = data["+links"][0]["log"].as_array().expect("a log").clone();
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!(
            (&steps[0]["what"], &steps[0]["src"], &steps[0]["dst"], &steps[0]["who"]),
            (&json!("push"), &json!("alice/up"), &json!("alice/dev"), &json!("alice"))
        );
        wait_until("the audit log", || audit(&index, "approved").len() == 1);
        let entry = &audit(&index, "approved")[0];
        assert_eq!((&entry["what"], &entry["who"]), (&json!(SDIST), &json!("alice")), "{entry}");
        let reason = entry["reason"].as_str().expect("a reason");
        reason.says("alice/up");
        assert!(reason.contains(&Digest::of(&content).to_string()), "{reason}");
        // Again: nothing changes, and it is told all the same.
        let asked = upstream.count(&format!("/files/{SDIST}"));
        assert_eq!(result(&push(index.alice(), "1.0", "alice/dev"), "actionlog"), log);
        assert_eq!(upstream.count(&format!("/files/{SDIST}")), asked, "it is cached");
        assert_eq!(audit(&index, "approved").len(), 1);
    }
}

#[test]
fn what_may_not_be_pushed() {
    let (upstream, index, content) = start_with_release(json!({}));
    let check = |ask: Ask, version: &str, target: &str, status: u16, text: &str| {
        check_refused(&push(ask, version, target), status, text);
    };
    check(index.user("bob"), "1.0", "alice/dev", 401, "user 'bob' cannot upload to 'alice/dev'");
    check(index.anybody(), "1.0", "alice/dev", 401, "user None cannot upload to 'alice/dev'");
    assert_eq!(upstream.requests().len(), 0, "nothing is fetched for them");
    check(index.alice(), "1.0", "alice/none", 404, "The stage alice/none could not be found.");
    check(
        index.alice(),
        "7.0",
        "alice/dev",
        400,
        "there are no files for Foo 7.0 on stage alice/up",
    );
    let unknown = json!({"name": "nothing", "version": "1.0", "targetindex": "alice/dev"});
    check_refused(&index.alice().json().post("/alice/up", unknown), 400, "no files for nothing");
    // The file is not what the page says, or no archive.
    check(index.alice(), "0.9", "alice/dev", 502, "lists foo-0.9.zip");
    upstream.offer("/files/foo-0.9.zip", Offer::file("wrong"));
    check(index.alice(), "0.9", "alice/dev", 502, "upstream's page says");
    upstream.offer("/files/foo-0.9.zip", Offer::file("older"));
    check(index.alice(), "0.9", "alice/dev", 400, "foo-0.9.zip cannot be pushed");
    assert_eq!(json_page(index.client(), "alice/dev", "foo").status, 404, "nothing was pushed");
    // A push is no way around a policy.
    let deny = json!({"policy_deny": ["foo"]});
    index.alice().patch("/alice/up", deny).expect(200);
    check(index.alice(), "1.0", "alice/dev", 403, "policy of alice/up");
    let allow = json!({"policy_deny": []});
    index.alice().patch("/alice/up", allow).expect(200);
    // Another file of this name stays.
    index.upload("alice/dev", SDIST, &sdist("foo, but another"));
    check(index.alice(), "1.0", "alice/dev", 409, SDIST);
    index.alice().patch("/alice/dev", json!({"volatile": true})).expect(200);
    push(index.alice(), "1.0", "alice/dev").expect(200);
    assert_eq!(index.client().get(&path("alice/dev", SDIST, &content)).body, content);
    // To another server, and only documentation.
    let elsewhere = json!({"name": "foo", "version": "1.0", "posturl": "https://x.example/", "username": "u", "password": "p"});
    let refused = index.alice().json().post("/alice/up", elsewhere);
    check_refused(&refused, 404, "mirror");
    let docs =
        json!({"name": "foo", "version": "1.0", "targetindex": "alice/dev", "only_docs": true});
    index.alice().json().post("/alice/up", docs).expect(404);
}
