//! Files: their headers, ranges and conditions, and test results.

use insta::assert_snapshot;
use record::Digest;
use serde_json::json;

use super::{Index, Upload, path, result, sdist, wheel};
use crate::asking::Says as _;
use crate::shown::shown_json;

/// An index with a file, its path and its content.
fn with_file() -> (Index, String, Vec<u8>) {
    let index = Index::with_dev();
    let content = sdist("x");
    index.upload("alice/dev", "P_q-1.0.zip", &content);
    let target = path("alice/dev", "P_q-1.0.zip", &content);
    (index, target, content)
}

#[test]
fn a_file_tells_of_itself() {
    let (index, target, content) = with_file();
    let meta = result(&index.anybody().json().get(&target), "releasefilemeta");
    assert_snapshot!("file", shown_json(&meta));
    let whole = index.anybody().get(&target).expect(200);
    assert_eq!(whole.body, content);
    whole
        .has("content-type", "application/zip")
        .has("cache-control", "max-age=365000000, immutable, public")
        .has("accept-ranges", "bytes")
        .has("content-encoding", "")
        .has("last-modified", meta["last_modified"].as_str().expect("a time"));
    let head = index.anybody().send("HEAD", &target, ()).expect(200);
    head.has("content-length", content.len()).has("x-devpi-api-version", "2");
}

#[test]
fn a_file_is_sent_in_parts_and_under_conditions() {
    let (index, target, content) = with_file();
    let ask = || index.anybody();
    let tag = ask().get(&target).header("etag").to_owned();
    let part = ask().with("Range", "bytes=2-5").with("If-Range", &tag).get(&target).expect(206);
    assert_eq!(part.body, content[2..6]);
    part.has("content-range", format!("bytes 2-5/{}", content.len()));
    let end = ask().with("Range", "bytes=-4").get(&target).expect(206);
    assert_eq!(end.body, content[content.len() - 4..]);
    ask().with("Range", "bytes=99999-").get(&target).expect(416);
    ask().with("If-None-Match", &tag).get(&target).expect(304);
    assert_eq!(ask().with("Accept-Encoding", "gzip").get(&target).body, content);
}

#[test]
fn a_file_has_one_path_however_it_is_encoded() {
    let (index, target, content) = with_file();
    let encoded = target.replace("P_q", "P%5Fq").replace("+f", "%2Bf");
    assert_eq!(index.anybody().get(&encoded).body, content);
    let refused = index.anybody().json().get("/alice/dev/+f/abc/0123456789abc/x.zip");
    refused.message(404, "no such file");
    for none in [
        "/alice/dev/+f/abc/x.zip",
        "/alice/none/+f/abc/0123456789abc/x.zip",
        "/alice/dev/+e/x/y.zip",
    ] {
        index.anybody().get(none).expect(404);
    }
}

#[test]
fn metadata_lies_beside_a_wheel() {
    let index = Index::with_dev();
    let (content, metadata) = wheel("p", "1.0");
    let filename = "p-1.0-py3-none-any.whl";
    index.upload("alice/dev", filename, &content);
    let target = path("alice/dev", filename, &content);
    let beside = index.anybody().get(&format!("{target}.metadata")).expect(200);
    beside.is(metadata.clone());
    let digest = record::Digest::of(metadata.as_bytes());
    index.page("alice/dev", "p").says(&format!("data-core-metadata=\"sha256={digest}\""));
    let source = sdist("x");
    index.upload("alice/dev", "p-1.0.zip", &source);
    let none = path("alice/dev", "p-1.0.zip", &source) + ".metadata";
    index.anybody().get(&none).expect(404);
    // When the file is removed, the files beside it are removed, too.
    index.alice().delete(&target);
    index.anybody().get(&format!("{target}.metadata")).expect(410);
}

#[test]
fn test_results_lie_beside_what_was_tested() {
    let (index, target, _) = with_file();
    let tox = json!({"testenvs": {"py": {"test": []}}});
    let fragment = format!("#sha256={}", Digest::of(tox.to_string().as_bytes()));
    let [first, second] = ["-0", "-1"].map(|number| {
        let stored = result(&index.alice().post(&target, tox.clone()), "toxresultpath");
        let path = stored.as_str().and_then(|path| path.strip_suffix(&fragment)).expect("a digest");
        assert!(path.starts_with(&format!("{}.toxresult-", &target[1..])), "{path}");
        assert!(path.ends_with(number), "{path}");
        format!("/{path}")
    });
    for stored in [&first, &second] {
        assert_eq!(index.anybody().get(stored).json(), tox);
    }
    let version = result(&index.anybody().json().get("/alice/dev/p-q/1.0"), "versiondata");
    assert_snapshot!("tested", shown_json(&version["+links"]));
    // Test results belong to release files, and not to other results or documentation.
    index.alice().post(&first, tox).expect(404);
    index.page("alice/dev", "p-q").lacks("toxresult");
    let docs = Upload::docs("p-q", "1.0", &super::zip(&[("index.html", b"x")]));
    index.alice().upload("alice/dev", &docs).expect(200);
}

#[test]
fn test_results_that_are_refused() {
    let (index, target, content) = with_file();
    index.stage("alice/strict", json!({"acl_toxresult_upload": ["alice"]}));
    let strict = path("alice/strict", "p-1.0.zip", &content);
    let none = index.alice().post(&strict, json!({}));
    none.message(404, &format!("no release file found at {}", &strict[1..]));
    index.upload("alice/strict", "p-1.0.zip", &content);
    let kept = index.blobs();
    index.user("bob").post(&strict, json!({})).message(403, "No permission to upload tox results: `bob` is not in `acl_toxresult_upload` of alice/strict. You can use the \
         devpi test --no-upload option to skip the upload.");
    index.alice().post(&target, "{").message(400, "Bad request: could not decode json");
    assert_eq!(index.blobs(), kept);
}

#[test]
fn strangers_add_test_results_where_somebody_or_devpis_defaults_say_so() {
    let check = |index: &Index, shown: &str, status: u16| {
        let content = sdist("x");
        index.stage("alice/new", json!({}));
        index.upload("alice/new", "p-1.0.zip", &content);
        let target = path("alice/new", "p-1.0.zip", &content);
        let config = result(&index.anybody().json().get("/alice/new"), "indexconfig");
        assert_eq!(config["acl_toxresult_upload"], json!([shown]));
        index.anybody().post(&target, json!({})).expect(status);
        index.user("bob").post(&target, json!({})).expect(200);
        target
    };
    check(&Index::start_with(|config| config.python.devpi_defaults = true), ":ANONYMOUS:", 200);
    let index = Index::start();
    let target = check(&index, ":AUTHENTICATED:", 403);
    index.alice().patch("/alice/new", json!(["acl_toxresult_upload=:ANONYMOUS:"])).expect(200);
    // Strangers cannot fill the disk: the number of their results is limited, and users' results do not count.
    for _ in 0..pypi::change::upload::STRANGERS_TOX_RESULTS_MAX {
        index.anybody().post(&target, json!({})).expect(200);
    }
    index.anybody().post(&target, json!({})).tells(403, "project 'p' has as many test results of strangers as are kept (100, or 33554432 bytes): log in to add more");
    index.user("bob").post(&target, json!({})).expect(200);
    // A body that is too large is refused unread.
    let bytes = vec![b'['; (4 << 20) + 1];
    index.user("bob").post(&target, &bytes).expect(413);
}
