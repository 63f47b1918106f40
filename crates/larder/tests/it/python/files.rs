//! Files: their headers, ranges and conditions, and test results.

use record::Digest;
use serde_json::{Value, json};

use super::{Index, Upload, path, result, sdist, wheel};
use crate::asking::Says as _;

#[test]
fn a_file_tells_of_itself() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    let content = sdist("x");
    index.upload("alice/dev", "P_q-1.0.zip", &content);
    let target = path("alice/dev", "P_q-1.0.zip", &content);
    let meta = result(&index.anybody().json().get(&target), "releasefilemeta");
    assert_eq!(meta["project"], "p-q");
    assert_eq!(meta["version"], "1.0");
    assert_eq!(meta["size"], content.len());
    assert!(meta["hash_spec"].as_str().is_some_and(|spec| spec.starts_with("sha256=")), "{meta}");

    let whole = index.anybody().get(&target);
    assert_eq!((whole.status, whole.body.as_slice()), (200, content.as_slice()));
    whole
        .has("content-type", "application/zip")
        .has("cache-control", "max-age=365000000, immutable, public")
        .has("accept-ranges", "bytes")
        .has("last-modified", meta["last_modified"].as_str().expect("a time"));
    assert_eq!(whole.find("content-encoding"), None);
    let done = index.anybody().send("HEAD", &target, ());
    done.expect(200).has("content-length", content.len()).has("x-devpi-api-version", "2");
    let tag = whole.header("etag");
    let part = index.anybody().with("Range", "bytes=2-5").with("If-Range", tag).get(&target);
    assert_eq!((part.status, part.body.as_slice()), (206, &content[2..6]));
    part.has("content-range", format!("bytes 2-5/{}", content.len()));
    let end = index.anybody().with("Range", "bytes=-4").get(&target);
    assert_eq!((end.status, end.body.as_slice()), (206, &content[content.len() - 4..]));
    index.anybody().with("Range", "bytes=99999-").get(&target).expect(416);
    index.anybody().with("If-None-Match", tag).get(&target).expect(304);
    let gzipped = index.anybody().with("Accept-Encoding", "gzip").get(&target);
    assert_eq!(gzipped.body, content);

    let plain = target.replace("P_q", "P%5Fq");
    assert_eq!(index.anybody().get(&plain.replace("+f", "%2Bf")).body, content);
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
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    let (content, metadata) = wheel("p", "1.0");
    let filename = "p-1.0-py3-none-any.whl";
    index.upload("alice/dev", filename, &content);
    let target = path("alice/dev", filename, &content);
    let beside = index.anybody().get(&format!("{target}.metadata")).expect(200);
    beside.is(metadata.clone());
    let digest = record::Digest::of(metadata.as_bytes());
    let page = index.page("alice/dev", "p");
    page.says(&format!("data-core-metadata=\"sha256={digest}\""));
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
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    index.stage("alice/strict", json!({"acl_toxresult_upload": ["alice"]}));
    let content = sdist("x");
    let target = path("alice/dev", "p-1.0.zip", &content);
    let strict = path("alice/strict", "p-1.0.zip", &content);
    let tox = json!({"testenvs": {"py": {"test": []}}});
    let refused = index.alice().post(&target, tox.clone());
    refused.message(404, &format!("no release file found at {}", &target[1..]));
    for stage in ["alice/dev", "alice/strict"] {
        index.upload(stage, "p-1.0.zip", &content);
    }
    let kept = index.blobs();
    index.user("bob").post(&strict, tox.clone()).message(403, "No permission to upload tox results: `bob` is not in `acl_toxresult_upload` of alice/strict. You can use the \
         devpi test --no-upload option to skip the upload.");
    index.alice().post(&target, "{").message(400, "Bad request: could not decode json");
    assert_eq!(index.blobs(), kept);
    let first = result(&index.alice().post(&target, tox.clone()), "toxresultpath");
    let second = result(&index.alice().post(&target, tox.clone()), "toxresultpath");
    let fragment = format!("#sha256={}", Digest::of(tox.to_string().as_bytes()));
    let whole = |result: &Value| -> String {
        let path = result.as_str().and_then(|path| path.strip_suffix(&fragment));
        path.unwrap_or_else(|| panic!("{result} has no digest")).to_owned()
    };
    let (first, second) = (whole(&first), whole(&second));
    assert!(first.starts_with(&format!("{}.toxresult-", &target[1..])), "{first}");
    assert!(first.ends_with("-0") && second.ends_with("-1"));
    assert_eq!(index.anybody().get(&format!("/{first}")).json(), tox);

    let version = result(&index.anybody().json().get("/alice/dev/p/1.0"), "versiondata");
    let links = version["+links"].as_array().expect("links");
    let rels: Vec<&str> = links.iter().map(|link| link["rel"].as_str().expect("a rel")).collect();
    assert_eq!(rels, ["releasefile", "toxresult", "toxresult"]);
    assert!(links[1]["for_href"].as_str().is_some_and(|href| href.ends_with(&target)), "{version}");
    // Test results belong to release files, and not to other results or documentation.
    index.alice().post(&format!("/{first}"), tox).expect(404);
    index.page("alice/dev", "p").lacks("toxresult");
    let docs = Upload::docs("p", "1.0", &super::zip(&[("index.html", b"x")]));
    index.alice().upload("alice/dev", &docs).expect(200);
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
    let more = index.anybody().post(&target, json!({})).expect(403);
    more.says("log in to add more");
    index.user("bob").post(&target, json!({})).expect(200);
    // A body that is too large is refused unread.
    let bytes = vec![b'['; (4 << 20) + 1];
    index.user("bob").post(&target, &bytes).expect(413);
}
