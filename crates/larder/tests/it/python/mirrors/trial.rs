//! An upstream is asked once when its mirror is made or changed, and the answer says what would fail.

use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::{allow_this_machine, json_page, list, start, upstream_of};
use crate::python::Index;
use crate::shown::redacted;

/// What the answer to `PUT` or `PATCH /alice/up` says beside the settings.
#[track_caller]
fn message(index: &Index, method: &str, config: Value) -> String {
    let answer = index.alice().send(method, "/alice/up", config).expect(200).json();
    assert_eq!(
        (&answer["type"], &answer["result"]["type"]),
        (&json!("indexconfig"), &json!("mirror"))
    );
    redacted(answer["message"].as_str().unwrap_or_default())
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
    assert_eq!(
        said,
        "the upstream of alice/up fails: no public address is known for `127.0.0.1`; `egress_allow` of the configuration may name others"
    );
    let port = upstream.host().rsplit(':').next().expect("a port").to_owned();
    let trouble = format!(
        "localhost:{port}: error sending request: client error (Connect): dns error: error resolving DNS: no public address is known for `localhost`; `egress_allow` of the configuration may name others"
    );
    let said = message(
        &index,
        "PATCH",
        json!({"mirror_url": format!("http://me:s3cret@localhost:{port}/")}),
    );
    assert_eq!(said, format!("the upstream of alice/up fails: {trouble}"));
    assert_eq!(upstream.requests().len(), 0);
    // It is there, and others may be told in the same words.
    let told = format!("the mirror alice/up has no usable answer from its upstream: {trouble}");
    json_page(index.client(), "alice/up", "foo").tells(502, &told);
}

#[test]
fn each_trouble_names_what_would_help() {
    let (upstream, index) = (Upstream::start(), start());
    let url = upstream.url("/simple/");
    assert_eq!(
        message(&index, "PUT", of(&url)),
        "the upstream of alice/up fails: 127.0.0.1:PORT: it answered 404 Not Found: it has no list of projects; `mirror_no_project_list=true` asks it for each project instead"
    );
    assert_eq!(message(&index, "PATCH", json!({"mirror_no_project_list": true})), "");
    upstream.break_with(Some(401));
    assert_eq!(
        message(&index, "PATCH", of(&url)),
        "the upstream of alice/up fails: 127.0.0.1:PORT: it answered 401 Unauthorized; `mirror_url` has no user and password, as in https://user:password@host/"
    );
    let with_password = url.replace("http://", "http://me:s3cret@");
    let said = message(&index, "PATCH", of(&with_password));
    assert_eq!(
        said,
        "the upstream of alice/up fails: 127.0.0.1:PORT: it answered 401 Unauthorized; it does not accept the user and password in `mirror_url`"
    );
    upstream.break_with(Some(503));
    assert_eq!(
        message(&index, "PATCH", json!({"mirror_no_project_list": false})),
        "the upstream of alice/up fails: 127.0.0.1:PORT: it answered 503 Service Unavailable"
    );
    upstream.break_with(None);
    upstream.offer("/simple/", Offer::of("text/html", "<h1>Log in</h1>"));
    assert_eq!(
        message(&index, "PATCH", of(&url)),
        "the upstream of alice/up fails: the answer is no page of an index: HTML without a link, and without the `pypi:repository-version` of an empty page"
    );
    upstream.offer("/simple/", list(&["foo"]));
    assert_eq!(message(&index, "PATCH", of(&url)), "");
}

#[test]
fn an_upstream_that_hangs_is_not_waited_for() {
    let (upstream, index) = (upstream_of(b"content"), start());
    upstream.hold("/simple/");
    assert_eq!(
        message(&index, "PUT", of(&upstream.url("/simple"))),
        "the upstream of alice/up fails: 127.0.0.1:PORT: no whole answer within 5 seconds; a large list may take longer, and is read to its end"
    );
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
