//! Attestations (PEP 740) that uploads bring: checked for their file, kept, served, pushed, and passed on by mirrors.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use testbed::{Offer, Upstream};

use super::mirrors::{allow_this_machine, list, mirror};
use super::*;
use crate::asking::Says as _;

const FILE: &str = "p-1.0.zip";

/// An attestation for this file, without a valid signature.
pub(super) fn attestation(filename: &str, content: &[u8]) -> Value {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": filename, "digest": {"sha256": Digest::of(content).to_string()}}],
        "predicateType": "https://docs.pypi.org/attestations/publish/v1",
        "predicate": null,
    });
    json!({
        "version": 1,
        "verification_material": {
            "certificate": BASE64_STANDARD.encode("certificate"),
            "transparency_entries": [{"logIndex": "1"}],
        },
        "envelope": {
            "statement": BASE64_STANDARD.encode(statement.to_string()),
            "signature": BASE64_STANDARD.encode("signature"),
        },
    })
}

fn attested(filename: &str, content: &[u8], attestations: &Value) -> Upload {
    Upload::of(filename, content).set("attestations", &attestations.to_string())
}

/// The file's entry on the page.
#[track_caller]
fn entry(index: &Index, stage: &str) -> Value {
    let accept = [("Accept", "application/vnd.pypi.simple.v1+json")];
    let page = index.client().get_with(&format!("/{stage}/+simple/p/"), &accept).expect(200);
    page.json()["files"][0].clone()
}

fn integrity(stage: &str, version: &str, filename: &str) -> String {
    format!("/{stage}/integrity/p/{version}/{filename}/provenance")
}

/// A release with an attestation, which came after it, in `alice/dev`; pushed to `alice/prod`, the base of `alice/all`.
fn released() -> (Index, Value) {
    let index = Index::start();
    index.stage("alice/dev", json!({"volatile": true}));
    index.stage("alice/prod", json!({"volatile": false}));
    index.stage("alice/all", json!({"bases": ["alice/prod"]}));
    let content = sdist("one");
    let one = attestation(FILE, &content);
    index.upload("alice/dev", FILE, &content);
    assert_eq!(entry(&index, "alice/dev")["provenance"], Value::Null);
    index.get(&integrity("alice/dev", "1.0", FILE)).expect(404);
    index.alice().upload("alice/dev", &attested(FILE, &content, &json!([one]))).expect(200);
    let push = json!({"name": "p", "version": "1.0", "targetindex": "alice/prod"});
    index.alice().send("PUSH", "/alice/dev", push).expect(200);
    (index, one)
}

#[test]
fn what_an_upload_attests_is_kept_and_served() {
    let (index, one) = released();
    let expected = json!({
        "version": 1,
        "attestation_bundles": [
            {"publisher": {"kind": "unverified", "claims": {}}, "attestations": [one]},
        ],
    });
    for stage in ["alice/dev", "alice/prod", "alice/all"] {
        let entry = entry(&index, stage);
        let (url, provenance) = (entry["url"].as_str(), entry["provenance"].as_str());
        let (url, provenance) = (url.expect("a URL"), provenance.expect("a URL"));
        assert_eq!(provenance, format!("{url}.provenance"));
        index.page(stage, "p").says(&format!("data-provenance=\"{provenance}\""));
        let page = format!("http://h/{stage}/+simple/p/").parse::<reqwest::Url>().expect("a URL");
        let place = page.join(provenance).expect("a URL").path().to_owned();
        for target in [place, integrity(stage, "1.0", FILE)] {
            let answer = index.get(&target).expect(200);
            assert_eq!(answer.json(), expected, "{target}");
            answer.has("content-type", "application/vnd.pypi.integrity.v1+json");
            answer.has("cache-control", "max-age=0, must-revalidate");
        }
        for target in [integrity(stage, "2.0", FILE), integrity(stage, "1.0", "p-9.zip")] {
            index.get(&target).expect(404);
        }
    }
    let answer = index.anybody().with("Accept", "text/html").get("/alice/prod/p/1.0");
    answer.says("attestations</a> (not verified here)");
}

#[test]
fn attestations_are_for_readers_as_long_as_the_file_is_there() {
    let (index, _) = released();
    index.alice().patch("/alice/prod", json!({"acl_read": ["alice"]})).expect(200);
    for target in [integrity("alice/prod", "1.0", FILE), integrity("alice/prod", "1.0", "no.zip")] {
        index.anybody().get(&target).expect(401);
        index.user("bob").get(&target).expect(403);
    }
    index.alice().get(&integrity("alice/prod", "1.0", FILE)).expect(200);
    index.alice().delete("/alice/dev/p/1.0").expect(200);
    index.get(&integrity("alice/dev", "1.0", FILE)).expect(404);
}

#[test]
fn who_may_only_add_replaces_no_attestations() {
    let index = Index::start();
    index.stage("alice/dev", json!({"volatile": true}));
    let content = sdist("one");
    let one = attestation(FILE, &content);
    let mut two = one.clone();
    two["verification_material"]["certificate"] = BASE64_STANDARD.encode("another").into();
    let body = json!({"scopes": ["python:upload"], "comment": "adds"});
    let token = index.alice().make_token(body);
    let adds = |attestations: &Value| {
        index
            .anybody()
            .with("Authorization", &basic("__token__", &token))
            .upload("alice/dev", &attested(FILE, &content, attestations))
    };
    index.upload("alice/dev", FILE, &content);
    // They may come later, and more than once.
    for _ in 0..2 {
        adds(&json!([one])).expect(200);
    }
    let provenance = || index.get(&integrity("alice/dev", "1.0", FILE)).json();
    let before = provenance();
    adds(&json!([two])).expect(403);
    assert_eq!(provenance(), before);
    // A user who may replace the file may replace them.
    index.alice().upload("alice/dev", &attested(FILE, &content, &json!([two]))).expect(200);
    assert_ne!(provenance(), before);
}

#[test]
fn attestations_of_something_else_are_refused() {
    let index = Index::with_dev();
    let content = sdist("one");
    let before = index.blobs();
    for (attestations, says) in [
        (
            json!([attestation(FILE, b"other")]),
            "invalid attestations: number 1: it is about a file with the SHA-256 DIGEST, the file has DIGEST",
        ),
        (
            json!([attestation("q-1.0.zip", &content)]),
            "invalid attestations: number 1: it is about `q-1.0.zip`, and the file is `p-1.0.zip`",
        ),
        (
            json!({"version": 1}),
            "invalid attestations: a JSON array was expected: invalid type: map, expected a sequence at line 1 column 0",
        ),
        (
            json!([{"version": 1}]),
            "invalid attestations: number 1: it is no attestation object: missing field `verification_material` at line 1 column 13",
        ),
    ] {
        let upload = attested(FILE, &content, &attestations);
        index.alice().upload("alice/dev", &upload).tells(400, says);
    }
    assert_eq!(index.blobs(), before, "nothing is kept");
    index.alice().upload("alice/dev", &attested(FILE, &content, &json!([]))).expect(200);
    assert_eq!(entry(&index, "alice/dev")["provenance"], Value::Null);
}

#[test]
fn the_provenance_of_a_mirrored_file_is_its_upstreams() {
    let upstream = Upstream::start();
    let page = |provenance: Value| {
        let url = upstream.url(&format!("/files/{FILE}"));
        let file = json!({"filename": FILE, "url": url, "hashes": {}, "provenance": provenance});
        let page = json!({"meta": {"api-version": "1.3"}, "name": "p", "files": [file]});
        Offer::json(page.to_string())
    };
    upstream.offer("/simple/", list(&["p"]));
    let url = "https://index.example/integrity/p/1.0/p-1.0.zip/provenance";
    upstream.offer("/simple/p/", page(url.into()));
    let index = Index::start_with(allow_this_machine);
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for stage in ["alice/up", "alice/dev"] {
        assert_eq!(entry(&index, stage)["provenance"], url);
        index.get(&integrity(stage, "1.0", FILE)).expect(302).has("location", url);
        index.get(&integrity(stage, "1.0", "p-2.0.zip")).expect(404);
    }
    upstream.offer("/simple/p/", page(Value::Null));
    index.get(&integrity("alice/dev", "1.0", FILE)).expect(404);
    // A file that installers do not get has no provenance either.
    upstream.offer("/simple/p/", page(url.into()));
    index.alice().patch("/alice/dev", json!({"policy_deny": ["p"]})).expect(200);
    index.get(&integrity("alice/dev", "1.0", FILE)).expect(403);
    index.get(&integrity("alice/up", "1.0", FILE)).expect(302);
    let file =
        json!({"filename": FILE, "url": upstream.url("/f"), "hashes": {}, "provenance": url});
    let quarantined = json!({"meta": {"api-version": "1.4"}, "name": "p", "files": [file],
        "project-status": {"status": "quarantined", "reason": "looked into"}});
    upstream.offer("/simple/p/", Offer::json(quarantined.to_string()));
    index.get(&integrity("alice/up", "1.0", FILE)).expect(403);
}

#[test]
fn provenances_have_absolute_urls_where_the_server_knows_its_own() {
    let root = "https://index.example/sub";
    let index = Index::start_with(|config| config.public_url = Some(root.to_owned()));
    index.stage("alice/dev", json!({}));
    let content = sdist("one");
    let one = attestation(FILE, &content);
    index.alice().upload("alice/dev", &attested(FILE, &content, &json!([one]))).expect(200);
    let entry = entry(&index, "alice/dev");
    let url = entry["url"].as_str().expect("a URL");
    let path = url.strip_prefix("../../").expect("files have relative ones");
    assert_eq!(entry["provenance"], format!("{root}/alice/dev/{path}.provenance"));
    let html = index.page("alice/dev", "p");
    html.says(&format!("data-provenance=\"{root}/alice/dev/+f/"));
    html.says("href=\"../../+f/");
}
