//! Real attestations of files on PyPI, as they are and changed, beside the jobs that signed them and others.

use std::io::Write as _;

use account::Claims;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// Of the file that they are about.
const FILE: &str = "9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3";
/// Of any other file.
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const PUBLISH: &str = include_str!(
    "../../../../testdata/python/attestations/pypi_attestations-0.0.19.tar.gz.publish.attestation"
);
const SLSA: &str = include_str!(
    "../../../../testdata/python/attestations/pypi_attestations-0.0.19.tar.gz.slsa.attestation"
);
const GITLAB: &str = include_str!(
    "../../../../testdata/python/attestations/gitlab_oidc_project-0.0.3.tar.gz.publish.attestation"
);
const GITLAB_SHA256: &str = "c1ca9b0d85df1606451098233018534497bf584362e10e4a8c21dfaea92c02a8";

fn identity(kind: IssuerKind, issuer: &str, claims: &[(&str, &str)]) -> CiIdentity {
    let claims: Claims =
        claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    CiIdentity { issuer: issuer.to_owned(), kind, claims }
}

/// The job that published [`FILE`], with a claim changed.
fn job(name: &str, value: &str) -> CiIdentity {
    let mut identity = identity(
        IssuerKind::Github,
        "https://token.actions.githubusercontent.com",
        &[
            ("repository", "trailofbits/pypi-attestations"),
            ("repository_id", "772247423"),
            ("repository_owner_id", "2314423"),
            (
                "job_workflow_ref",
                "trailofbits/pypi-attestations/.github/workflows/release.yml@refs/tags/v0.0.19",
            ),
        ],
    );
    identity.claims.insert(name.to_owned(), value.to_owned());
    identity
}

fn digest() -> Digest {
    FILE.parse().expect("a digest")
}

fn sigstore() -> Attestations {
    Attestations::new(None).expect("the keys of the build")
}

/// Words in the refusal; none if it is not refused.
#[track_caller]
fn check(attestation: &str, sha256: &str, identity: &CiIdentity, says: &str) {
    match sigstore().check(attestation, &sha256.parse().expect("a digest"), identity) {
        Ok(()) => assert_eq!(says, "", "it was not refused"),
        Err(error) => {
            let error = error.to_string();
            assert!(!says.is_empty() && error.contains(says), "{says}: {error}");
        }
    }
}

/// An attestation with a value changed.
fn changed(attestation: &str, pointer: &str, change: impl FnOnce(&str) -> String) -> String {
    let mut attestation: Value = serde_json::from_str(attestation).expect("JSON");
    let place = attestation.pointer_mut(pointer).expect("a value");
    let text = change(place.as_str().expect("a text"));
    *place = text.into();
    attestation.to_string()
}

#[test]
fn real_attestations_are_those_of_their_jobs() {
    check(PUBLISH, FILE, &job("environment", "release"), "");
    check(SLSA, FILE, &job("environment", "release"), "");
    let gitlab = |id: &str| {
        identity(
            IssuerKind::Gitlab,
            "https://gitlab.com",
            &[
                ("project_path", "facutuesca/gitlab-oidc-project"),
                ("project_id", id),
                ("namespace_id", "12885801"),
                (
                    "ci_config_ref_uri",
                    "gitlab.com/facutuesca/gitlab-oidc-project//.gitlab-ci.yml@refs/heads/main",
                ),
            ],
        )
    };
    let sha256: Digest = GITLAB_SHA256.parse().expect("a digest");
    assert_eq!(sigstore().check(GITLAB, &sha256, &gitlab("55235664")), Ok(()));
    let refused = sigstore().check(GITLAB, &sha256, &gitlab("1")).expect_err("another project");
    assert!(refused.to_string().contains("`project_id` is `55235664`"), "{refused}");
}

/// Both are named: who signed, and who uploads.
#[test]
fn attestations_of_other_jobs_are_refused() {
    let other = job("repository_id", "7");
    check(PUBLISH, FILE, &other, "`repository_id` is `772247423` in the certificate, and `7` was");
    check(PUBLISH, FILE, &other, "was signed by https://github.com/trailofbits/pypi-attestations/");
    let uploader = "https://token.actions.githubusercontent.com trailofbits/pypi-attestations (";
    check(PUBLISH, FILE, &other, uploader);
    check(PUBLISH, FILE, &job("repository_owner_id", "7"), "`repository_owner_id` is `2314423`");
    check(PUBLISH, FILE, &job("repository", "trailofbits/other"), "`repository` is `trailofbits/");
    let workflow = "trailofbits/pypi-attestations/.github/workflows/test.yml@refs/tags/v0.0.19";
    check(PUBLISH, FILE, &job("job_workflow_ref", workflow), "workflows/release.yml` in the");
    // The same workflow of another ref is the same publisher.
    let later = workflow.replace("test.yml@refs/tags/v0.0.19", "release.yml@refs/heads/main");
    check(PUBLISH, FILE, &job("job_workflow_ref", &later), "");
    let elsewhere = CiIdentity { issuer: "https://ci.example".to_owned(), ..job("a", "b") };
    check(PUBLISH, FILE, &elsewhere, "`iss` is `https://token.actions.githubusercontent.com` in");
    let mut without = job("a", "b");
    without.claims.remove("repository_id");
    check(PUBLISH, FILE, &without, "none was expected");
    for kind in [IssuerKind::Generic, IssuerKind::Activestate] {
        let of_kind = CiIdentity { kind, ..job("a", "b") };
        check(PUBLISH, FILE, &of_kind, "do not name jobs of an issuer of the kind");
    }
    let google = CiIdentity { kind: IssuerKind::Google, ..job("email", "job@acme.example") };
    check(PUBLISH, FILE, &google, "`email` is missing in the certificate");
}

#[test]
fn what_was_changed_is_refused() {
    let own = job("a", "b");
    check(PUBLISH, OTHER, &own, "it cannot be verified");
    let statement = changed(PUBLISH, "/envelope/statement", |text| {
        let statement = BASE64_STANDARD.decode(text).expect("base64");
        let statement = String::from_utf8(statement).expect("text");
        BASE64_STANDARD.encode(statement.replace("publish/v1", "publish/v2"))
    });
    check(&statement, FILE, &own, "it cannot be verified");
    let of_other = |pointer: &str| {
        let other: Value = serde_json::from_str(SLSA).expect("JSON");
        let other = other.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned();
        changed(PUBLISH, pointer, |_| other)
    };
    check(&of_other("/envelope/signature"), FILE, &own, "it cannot be verified");
    check(&of_other("/verification_material/certificate"), FILE, &own, "it cannot be verified");
    // Without the log nobody knows whether the certificate was valid when it signed.
    let mut without: Value = serde_json::from_str(PUBLISH).expect("JSON");
    without["verification_material"]["transparency_entries"] = json!([]);
    check(&without.to_string(), FILE, &own, "it cannot");
    let time = "/verification_material/transparency_entries/0/integratedTime";
    check(&changed(PUBLISH, time, |_| "1733354000".to_owned()), FILE, &own, "it cannot be");
    for text in ["", "[]", "{}", "{\"envelope\": 1, \"verification_material\": {}}", "null"] {
        check(text, FILE, &own, "it is no attestation object");
    }
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    check(&deep, FILE, &own, "it is no attestation object");
}

/// Whatever bytes are changed, nothing panics, and nothing that is signed can be another text.
#[test]
fn broken_attestations_are_refused_and_do_no_harm() {
    let (sigstore, sha256, own) = (sigstore(), digest(), job("a", "b"));
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let places = [
        "/envelope/statement",
        "/envelope/signature",
        "/verification_material/certificate",
        "/verification_material/transparency_entries/0/canonicalizedBody",
        "/verification_material/transparency_entries/0/inclusionProof/rootHash",
        "/verification_material/transparency_entries/0/inclusionProof/hashes/0",
        "/verification_material/transparency_entries/0/logId/keyId",
    ];
    for round in 0..700 {
        let place = places[round % places.len()];
        let broken = changed(PUBLISH, place, |text| {
            let mut bytes = BASE64_STANDARD.decode(text).expect("base64");
            match random(4) {
                0 => bytes.truncate(random(bytes.len())),
                1 => {
                    let at = random(bytes.len());
                    bytes.splice(at..at, [0xff; 9]);
                }
                _ => {
                    let at = random(bytes.len());
                    bytes[at] ^= 1 << random(8);
                }
            }
            BASE64_STANDARD.encode(bytes)
        });
        assert!(sigstore.check(&broken, &sha256, &own).is_err(), "{place}: {broken}");
    }
    for _ in 0..300 {
        let mut bytes = PUBLISH.as_bytes().to_vec();
        let at = random(bytes.len());
        bytes[at] = b" \"{}[]\\09aZ"[random(11)];
        let _ = sigstore.check(&String::from_utf8_lossy(&bytes), &sha256, &own);
    }
}

#[test]
fn keys_may_come_from_a_file() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes()).expect("written");
    assert!(Attestations::new(Some(file.path())).is_ok());
    let refused = |text: &str, says: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        let error = Attestations::new(Some(file.path())).err().expect(text);
        assert!(error.contains(says), "{error}");
    };
    refused("{", "trusted_root.json) were expected");
    refused("{}", "were expected");
    refused(&" ".repeat((1 << 20) + 1), "more than 1048576 bytes");
    assert!(Attestations::new(Some(Path::new("/nowhere"))).is_err());
    // Keys of another instance do not verify what this one's certificates are of.
    let mut root: Value = serde_json::from_str(SIGSTORE_PRODUCTION_TRUSTED_ROOT).expect("JSON");
    root["tlogs"] = json!([]);
    let other = Attestations::trusting(&root.to_string()).expect("keys");
    assert!(other.check(PUBLISH, &digest(), &job("a", "b")).is_err());
}
