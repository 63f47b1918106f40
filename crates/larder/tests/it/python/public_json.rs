//! What tools of the public index ask for: `/simple/` beside `+simple/`, and `/pypi/{project}/json`.

use insta::assert_snapshot;
use serde_json::json;
use testbed::Upstream;

use super::mirrors::{JSON_PAGE, allow_this_machine, file, list, mirror, page};
use super::{Index, Upload, sdist};
use crate::shown::shown_json;

const INSTALLER: (&str, &str) = ("User-Agent", "pip/25.0");

#[test]
fn simple_is_the_same_without_its_plus() {
    let index = Index::with_dev();
    index.stage("alice/closed", json!({"acl_read": ["alice"]}));
    let content = sdist("x");
    for stage in ["alice/dev", "alice/closed"] {
        index.upload(stage, "foo-1.0.zip", &content);
    }
    for (rest, header) in
        [("", JSON_PAGE), ("foo/", JSON_PAGE), ("", INSTALLER), ("foo/", INSTALLER)]
    {
        let get = |word: &str, stage: &str| {
            index.client().get_with(&format!("/{stage}/{word}/{rest}"), &[header])
        };
        let (plus, plain) = (get("+simple", "alice/dev"), get("simple", "alice/dev"));
        plain.check_status(200).is(plus.text());
        for name in ["etag", "content-type", "cache-control", "vary"] {
            plain.has(name, plus.header(name));
        }
        let tag = plain.header("etag").to_owned();
        index
            .client()
            .get_with(&format!("/alice/dev/simple/{rest}"), &[header, ("If-None-Match", &tag)])
            .expect(304);
        get("simple", "alice/closed").expect(401).is(get("+simple", "alice/closed").text());
    }
    let moved = index.client().get_with("/alice/dev/simple/Foo/", &[INSTALLER]);
    let root = format!("http://{}", index.client().address);
    moved.check_status(302).has("location", format!("{root}/alice/dev/simple/foo/"));
    index.anybody().json().post("/alice/dev/simple/", json!({})).expect(404);
}

#[test]
fn a_project_called_simple_keeps_its_urls() {
    let index = Index::with_dev();
    let get = |target: &str| index.anybody().json().get(target);
    assert_eq!(get("/alice/dev/simple").text(), get("/alice/dev/+simple").text());
    index.upload("alice/dev", "simple-1.0.zip", &sdist("x"));
    index.upload("alice/dev", "pypi-1.0.zip", &sdist("y"));
    for project in ["simple", "pypi"] {
        assert_eq!(get(&format!("/alice/dev/{project}")).json()["type"], "projectconfig");
        assert_eq!(get(&format!("/alice/dev/{project}/1.0")).json()["type"], "versiondata");
        let shown = get(&format!("/alice/dev/pypi/{project}/json")).json();
        assert_eq!(shown["info"]["version"], "1.0");
    }
    // What is no version of it is a project.
    let listed = index.client().get_with("/alice/dev/simple/simple/", &[JSON_PAGE]);
    assert_eq!(listed.json()["name"], "simple");
    index.alice().json().delete("/alice/dev/simple/1.0?force").expect(200);
}

/// The index `alice/dev` with three releases of `Foo.Bar`, and the content of its 1.1.
fn with_releases() -> (Index, Vec<u8>) {
    let index = Index::with_dev();
    let content = sdist("new");
    index.upload("alice/dev", "Foo.Bar-1.0.zip", &sdist("old"));
    let upload = Upload::named("Foo.Bar", "1.1", "Foo.Bar-1.1.zip", &content)
        .set("summary", "what it is")
        .set("requires_python", ">=3.9")
        .set("requires_dist", "baz>1");
    index.alice().upload("alice/dev", &upload).expect(200);
    index.upload("alice/dev", "Foo.Bar-2.0rc1.zip", &sdist("rc"));
    (index, content)
}

#[test]
fn a_project_in_the_shape_of_the_public_index() {
    let (index, content) = with_releases();
    let answer = index.anybody().get("/alice/dev/pypi/foo-bar/json").expect(200);
    answer.has("content-type", "application/json");
    let shown = answer.json();
    assert_snapshot!("public_json", shown_json(&shown));
    let file = &shown["urls"][0];
    assert_eq!(file["digests"]["sha256"], record::Digest::of(&content).to_string());
    let root = format!("http://{}", index.client().address);
    let link = file["url"].as_str().expect("a URL").strip_prefix(&root).expect("it is here");
    assert_eq!(index.anybody().get(link).body, content);
}

#[test]
fn a_yanked_version_is_not_the_latest() {
    let (index, _) = with_releases();
    let get = |target: &str| index.anybody().get(target);
    let tag = get("/alice/dev/pypi/foo-bar/json").header("etag").to_owned();
    let known = || index.anybody().with("If-None-Match", &tag).get("/alice/dev/pypi/foo-bar/json");
    known().expect(304);
    index.alice().post("/alice/dev/foo-bar/1.1/+yank", json!({"reason": "bad"})).expect(200);
    assert_eq!(known().expect(200).json()["info"]["version"], "1.0");
    let one = get("/alice/dev/pypi/foo-bar/1.1.0/json").expect(200).json();
    assert_snapshot!("public_json_of_a_version", shown_json(&one));
}

#[test]
fn whom_the_public_shape_is_for() {
    let (index, _) = with_releases();
    for (target, status) in [
        ("/alice/dev/pypi/foo-bar/3.0/json", 404),
        ("/alice/dev/pypi/none/json", 404),
        ("/alice/none/pypi/foo-bar/json", 404),
        ("/alice/dev/pypi/Foo.Bar/json", 302),
    ] {
        index.anybody().get(target).expect(status);
    }
    index.alice().patch("/alice/dev", json!({"acl_read": ["alice"]})).expect(200);
    index.anybody().get("/alice/dev/pypi/foo-bar/json").expect(401);
    index.alice().get("/alice/dev/pypi/foo-bar/json").expect(200);
}

#[test]
fn a_project_of_a_mirror_in_the_shape_of_the_public_index() {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo"]));
    let wheel = "foo-1.0-py3-none-any.whl";
    let files = json!([file(&upstream, wheel, b"x"), file(&upstream, "foo-2.0.tar.gz", b"y")]);
    upstream.offer("/simple/foo/", page("foo", files));
    let index = Index::start_with(allow_this_machine);
    mirror(&index, &upstream, json!({"policy_deny": ["foo==2.0"]}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let get = |target: &str| index.anybody().get(target);
    let [shown, of_mirror] = ["alice/dev", "alice/up"].map(|stage| {
        get(&format!("/{stage}/pypi/foo/2.0/json")).expect(404);
        get(&format!("/{stage}/pypi/foo/json")).expect(200).json()
    });
    assert_snapshot!("public_json_of_a_mirror", shown_json(&shown));
    let time = &shown["releases"]["1.0"][0]["upload_time_iso_8601"];
    assert_eq!(time, "2026-01-31T12:00:00.000000Z");
    for member in ["releases", "urls"] {
        assert_eq!(of_mirror[member], shown[member], "{member}");
    }
    // A mirror's project of this name is asked for only by devpi's clients.
    let page = index.client().get_with("/alice/up/simple/foo/", &[JSON_PAGE]).json();
    assert_eq!(page["name"], "foo");
}
