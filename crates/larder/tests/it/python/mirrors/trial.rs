//! An upstream is asked once when its mirror is made or changed, and the answer says what would fail.

use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::{allow_this_machine, json_page, list, start, upstream_of};
use crate::asking::Says as _;
use crate::python::Index;

/// What the answer to `PUT` or `PATCH /alice/up` says beside the settings.
#[track_caller]
fn message(index: &Index, method: &str, config: Value) -> String {
    let answer = index.alice().send(method, "/alice/up", config).expect(200).json();
    assert_eq!(
        (&answer["type"], &answer["result"]["type"]),
        (&json!("indexconfig"), &json!("mirror"))
    );
    answer["message"].as_str().unwrap_or_default().to_owned()
}

fn of(url: &str) -> Value {
    json!({"type": "mirror", "mirror_url": url})
}

#[test]
fn an_upstream_that_works_is_not_spoken_of() {
    let (upstream, index) = (upstream_of(b"content"), start());
    assert_eq!(message(&index, "PUT", of(&upstream.url("/simple"))), "");
    assert_eq!(upstream.count("/simple/"), 1);
    // Only settings of the mirror are a reason to ask again.
    assert_eq!(message(&index, "PATCH", json!({"title": "Theirs"})), "");
    assert_eq!(upstream.count("/simple/"), 1);
    assert_eq!(message(&index, "PATCH", json!({"mirror_cache_expiry": 60})), "");
    assert_eq!(upstream.count("/simple/"), 2);
}

#[test]
fn an_address_that_is_refused_is_named_with_the_setting() {
    let (upstream, index) = (upstream_of(b"content"), Index::start());
    let said = message(&index, "PUT", of(&upstream.url("/simple")));
    said.says(["the upstream of alice/up fails: ", "`127.0.0.1`", "`egress_allow`"]);
    let port = upstream.host().rsplit(':').next().expect("a port").to_owned();
    let said = message(
        &index,
        "PATCH",
        json!({"mirror_url": format!("http://me:s3cret@localhost:{port}/")}),
    );
    said.says(["`localhost`", "`egress_allow`"]);
    said.lacks("s3cret");
    assert_eq!(upstream.requests().len(), 0);
    // It is there, and others may be told in the same words.
    json_page(index.client(), "alice/up", "foo").expect(502).says("egress_allow");
}

#[test]
fn each_trouble_names_what_would_help() {
    let (upstream, index) = (Upstream::start(), start());
    let url = upstream.url("/simple/");
    message(&index, "PUT", of(&url)).says(["404", "`mirror_no_project_list=true`"]);
    assert_eq!(message(&index, "PATCH", json!({"mirror_no_project_list": true})), "");
    upstream.break_with(Some(401));
    message(&index, "PATCH", of(&url)).says(["401", "`mirror_url` has no user and password"]);
    let with_password = url.replace("http://", "http://me:s3cret@");
    let said = message(&index, "PATCH", of(&with_password));
    said.says(["401", "does not accept the user and password"]);
    said.lacks("s3cret");
    upstream.break_with(Some(503));
    message(&index, "PATCH", json!({"mirror_no_project_list": false})).says("it answered 503");
    upstream.break_with(None);
    upstream.offer("/simple/", Offer::of("text/html", "<h1>Log in</h1>"));
    let page_to_log_in = message(&index, "PATCH", of(&url));
    assert!(!page_to_log_in.is_empty());
    upstream.offer("/simple/", list(&["foo"]));
    assert_eq!(message(&index, "PATCH", of(&url)), "");
}

#[test]
fn an_upstream_that_hangs_is_not_waited_for() {
    let (upstream, index) = (upstream_of(b"content"), start());
    upstream.hold("/simple/");
    message(&index, "PUT", of(&upstream.url("/simple"))).says([
        "no whole answer within 5 seconds",
        "a large list may take longer, and is read to its end",
    ]);
    upstream.release("/simple/");
    json_page(index.client(), "alice/up", "foo").expect(200);
}

#[test]
fn an_upstream_that_is_not_to_be_asked_is_not_tried() {
    let (upstream, index) = (upstream_of(b"content"), start());
    let offline =
        json!({"type": "mirror", "mirror_url": upstream.url("/simple"), "mirror_offline": true});
    assert_eq!(message(&index, "PUT", offline), "");
    let all = Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirrors_offline = true;
    });
    assert_eq!(message(&all, "PUT", of(&upstream.url("/simple"))), "");
    assert_eq!(upstream.requests().len(), 0);
}
