//! Attestations that come with the uploads of CI jobs: tied to the job, or refused.
//!
//! The attestations are real ones of a release on PyPI, so the issuer here signs what GitHub has signed for the job of that release.
//! `./test` downloads the file that they are about; `LARDER_TEST_ATTESTED` names another place of it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::issuer::{FakeIssuer, Key};
use super::{World, refusal};
use crate::client::Response;
use crate::python::Upload;

const GITHUB: &str = "https://token.actions.githubusercontent.com";
const PROJECT: &str = "pypi-attestations";
const FILE: &str = "pypi_attestations-0.0.19.tar.gz";
const PUBLISH: &str = include_str!(
    "../../../../../testdata/python/attestations/pypi_attestations-0.0.19.tar.gz.publish.attestation"
);
const SLSA: &str = include_str!(
    "../../../../../testdata/python/attestations/pypi_attestations-0.0.19.tar.gz.slsa.attestation"
);

/// A server that knows GitHub, whose keys it gets from a fake, and an index that names every workflow of it for the project.
fn world(kind: &str) -> World {
    let key = Key::ec();
    let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
    let named = format!("{kind} {GITHUB} {}/keys", issuer.url).parse().expect("an issuer");
    let world = World::of(issuer, key, |config| config.publishing.issuers.push(named));
    let publisher = |rest: &str| format!("{PROJECT} {GITHUB} {rest}");
    let of_project = "repository_id=772247423 repository_owner_id=2314423 workflow=release.yml";
    let of_fork = "repository_id=7 repository_owner_id=3 workflow=release.yml";
    let publishers = match kind {
        "github" => json!([publisher(of_project), publisher(of_fork)]),
        _ => json!([publisher("repository_id=772247423")]),
    };
    world.index("team/prod", json!({"volatile": false, "trusted_publishers": publishers}));
    world.index("team/next", json!({}));
    world
}

/// An upload token for a job of the project's own repository, with some claims changed.
fn token(world: &World, changes: Value) -> String {
    let mut claims = json!({
        "iss": GITHUB,
        "repository": "trailofbits/pypi-attestations",
        "repository_id": "772247423",
        "repository_owner_id": "2314423",
        "job_workflow_ref":
            "trailofbits/pypi-attestations/.github/workflows/release.yml@refs/tags/v0.0.19",
        "ref": "refs/tags/v0.0.19",
    });
    let members = claims.as_object_mut().expect("an object");
    members.extend(changes.as_object().expect("an object").clone());
    let answer = world.mint(&world.token(&claims)).expect(200).json();
    answer["token"].as_str().expect("a token").to_owned()
}

/// The file that the attestations are about; `None` after saying that it is not there.
fn content() -> Option<Vec<u8>> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/attested/");
    let path = std::env::var_os("LARDER_TEST_ATTESTED")
        .map_or_else(|| Path::new(built).join(FILE), PathBuf::from);
    let content = std::fs::read(&path).ok();
    if content.is_none() {
        testbed::skipped(&format!("{} is not there; ./test downloads it", path.display()));
    }
    content
}

fn upload(world: &World, token: &str, content: &[u8], attestations: &str) -> Response {
    let upload = Upload::of(FILE, content).set("attestations", attestations);
    world.server.user("__token__", token).upload("team/prod", &upload)
}

fn publisher(world: &World, index: &str) -> Value {
    let path = format!("/{index}/integrity/{PROJECT}/0.0.19/{FILE}/provenance");
    world.server.get(&path).expect(200).json()["attestation_bundles"][0]["publisher"].clone()
}

/// What a browser gets.
fn page(world: &World, path: &str) -> String {
    world.server.browse(path).expect(200).text()
}

fn count(world: &World, outcome: &str) -> f64 {
    let name = format!("larder_python_attested_uploads_total{{outcome=\"{outcome}\"}}");
    world.server.metric(&name)
}

#[test]
fn a_provenance_names_the_job_that_signed() {
    let Some(content) = content() else { return };
    let world = world("github");
    upload(&world, &token(&world, json!({})), &content, &format!("[{PUBLISH},{SLSA}]")).expect(200);
    let expected = json!({
        "kind": "GitHub",
        "repository": "trailofbits/pypi-attestations",
        "workflow": "release.yml",
        "environment": "release",
        "claims": {
            "iss": GITHUB,
            "repository_id": "772247423",
            "repository_owner_id": "2314423",
            "job_workflow_ref":
                "trailofbits/pypi-attestations/.github/workflows/release.yml@refs/tags/v0.0.19",
            "event_name": "push",
            "ref": "refs/tags/v0.0.19",
        },
    });
    assert_eq!(publisher(&world, "team/prod"), expected);
    assert_eq!(count(&world, "verified"), 1.0);
    let says = format!("verified: signed by {GITHUB} trailofbits/pypi-attestations");
    let shows = |index: &str| {
        let page = page(&world, &format!("/{index}/{PROJECT}"));
        assert!(page.contains(&says), "{page}");
    };
    shows("team/prod");
    // Where the file goes, what is known of it goes along.
    let push = json!({"name": PROJECT, "version": "0.0.19", "targetindex": "team/next"});
    world.server.user("team", "open-sesame").send("PUSH", "/team/prod", push).expect(200);
    assert_eq!(publisher(&world, "team/next"), expected);
    shows("team/next");
    let world = world.restarted();
    assert_eq!(publisher(&world, "team/prod"), expected);
}

/// The job may upload, and yet what it brings was signed by another one.
#[test]
fn attestations_of_another_job_are_refused() {
    let Some(content) = content() else { return };
    let world = world("github");
    let fork = json!({
        "repository": "org/fork",
        "repository_id": "7",
        "repository_owner_id": "3",
        "job_workflow_ref": "org/fork/.github/workflows/release.yml@refs/tags/v0.0.19",
    });
    let refused =
        upload(&world, &token(&world, fork), &content, &format!("[{PUBLISH}]")).expect(400).text();
    for says in [
        "number 1: it was signed by https://github.com/trailofbits/pypi-attestations/.github/",
        "token.actions.githubusercontent.com org/fork",
        "`repository_id` is `772247423` in the certificate, and `7` was expected",
    ] {
        assert!(refused.contains(says), "{says}: {refused}");
    }
    assert_eq!(count(&world, "refused"), 1.0);
    world.server.get(&format!("/team/prod/+simple/{PROJECT}/")).expect(404);
}

#[test]
fn attestations_that_were_changed_are_refused() {
    let Some(content) = content() else { return };
    let world = world("github");
    let token = token(&world, json!({}));
    let mut changed: Value = serde_json::from_str(PUBLISH).expect("JSON");
    let other: Value = serde_json::from_str(SLSA).expect("JSON");
    changed["envelope"]["signature"] = other["envelope"]["signature"].clone();
    let refused =
        upload(&world, &token, &content, &format!("[{SLSA},{changed}]")).expect(400).text();
    assert!(refused.contains("number 2: it cannot be verified"), "{refused}");
    let without = Upload::of(FILE, &content);
    world.server.user("__token__", &token).upload("team/prod", &without).expect(200);
}

/// Nobody knows whose attestations a user or a job of another kind brings: they are kept, and said to be unverified.
#[test]
fn attestations_of_nobody_known_are_kept_unverified() {
    let Some(content) = content() else { return };
    let unverified = json!({"kind": "unverified", "claims": {}});
    let world = world("generic");
    let mut changed: Value = serde_json::from_str(PUBLISH).expect("JSON");
    changed["envelope"]["signature"] = "AAAA".into();
    upload(&world, &token(&world, json!({})), &content, &format!("[{changed}]")).expect(200);
    assert_eq!(publisher(&world, "team/prod"), unverified);
    let page = page(&world, &format!("/team/prod/{PROJECT}"));
    assert!(page.contains("(not verified here)"), "{page}");
    let by_user = Upload::of(FILE, &content).set("attestations", &format!("[{PUBLISH}]"));
    world.server.user("team", "open-sesame").upload("team/next", &by_user).expect(200);
    assert_eq!(publisher(&world, "team/next"), unverified);
    assert_eq!(count(&world, "unverified"), 2.0);
}

/// A server that trusts other keys refuses what Sigstore's public instance has signed.
#[test]
fn a_server_may_trust_other_keys() {
    let Some(content) = content() else { return };
    let key = Key::ec();
    let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
    let named = format!("github {GITHUB} {}/keys", issuer.url).parse().expect("an issuer");
    let files = tempfile::tempdir().expect("a directory");
    let path = files.path().join("trusted_root.json");
    let ca = rcgen::CertificateParams::default();
    let ca = ca.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
    let root = json!({
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [],
        "certificateAuthorities": [{
            "subject": {"organization": "acme.example", "commonName": "ours"},
            "uri": "https://fulcio.acme.example",
            "certChain": {"certificates": [{"rawBytes": BASE64_STANDARD.encode(ca.der())}]},
            "validFor": {"start": "2020-01-01T00:00:00Z"},
        }],
        "ctlogs": [],
        "timestampAuthorities": [],
    });
    std::fs::write(&path, root.to_string()).expect("a file");
    let world = World::of(issuer, key, |config| {
        config.publishing.issuers.push(named);
        config.publishing.sigstore_root = Some(path);
    });
    let publisher = format!(
        "{PROJECT} {GITHUB} repository_id=772247423 repository_owner_id=2314423 workflow=release.yml"
    );
    world.index("team/prod", json!({"trusted_publishers": [publisher]}));
    let answer = upload(&world, &token(&world, json!({})), &content, &format!("[{PUBLISH}]"));
    let text = answer.expect(400).text();
    assert!(text.contains("number 1: it cannot be verified"), "{text}");
    // The identity itself has nothing to do with it.
    refusal(&world.mint(&world.token(&json!({"iss": GITHUB}))), 422, "invalid-publisher");
}
