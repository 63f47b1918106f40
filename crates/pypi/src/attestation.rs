//! Attestations (PEP 740): statements about a release file, signed by whoever built or published it.
//!
//! the field `attestations` of an upload -> [`Attestations::read`] -> [`Attestations::provenance`], a provenance object, which is kept
//! as a blob and served unchanged.
//!
//! Here each attestation must have the right shape and be about this file. Signatures, certificates and who signed are verified by
//! the crate `issuers`, and only for uploads of trusted publishers: a provenance names a publisher if that was done, and else says
//! `unverified`.

use account::{CiIdentity, IssuerKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::{Digest, excerpt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::publisher::{github_workflow, gitlab_workflow};

/// The media type of a provenance object.
pub const PROVENANCE_TYPE: &str = "application/vnd.pypi.integrity.v1+json";

/// Longest field, in bytes, and most attestations in it. One of a build takes some 10 KiB.
pub(crate) const ATTESTATIONS_BYTES_MAX: usize = 512 << 10;
const ATTESTATIONS_MAX: usize = 16;

/// The kind of a publisher whom nobody has checked.
const UNVERIFIED: &str = "unverified";

/// Claims of an identity that a provenance shows, besides those that its kind has members for.
const SHOWN_CLAIMS: [&str; 11] = [
    "iss",
    "repository_id",
    "repository_owner_id",
    "job_workflow_ref",
    "project_id",
    "namespace_id",
    "ci_config_ref_uri",
    "event_name",
    "pipeline_source",
    "ref",
    "sha",
];

/// Why attestations are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid attestations: {0}")]
pub struct AttestationError(String);

#[derive(Deserialize)]
struct Attestation<'text> {
    version: u64,
    #[serde(borrow)]
    verification_material: VerificationMaterial<'text>,
    #[serde(borrow)]
    envelope: Envelope<'text>,
}

#[derive(Deserialize)]
struct VerificationMaterial<'text> {
    #[serde(borrow)]
    certificate: std::borrow::Cow<'text, str>,
    #[serde(borrow)]
    transparency_entries: Vec<&'text RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'text> {
    #[serde(borrow)]
    statement: std::borrow::Cow<'text, str>,
    #[serde(borrow)]
    signature: std::borrow::Cow<'text, str>,
}

/// The signed statement, in in-toto's form.
#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    name: String,
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: String,
}

#[derive(Serialize)]
struct Provenance<'text> {
    version: u8,
    attestation_bundles: [Bundle<'text>; 1],
}

#[derive(Serialize)]
struct Bundle<'text> {
    publisher: Map<String, Value>,
    attestations: &'text [&'text RawValue],
}

/// A stored provenance object, as far as its attestations are sent on.
#[derive(Deserialize)]
struct StoredProvenance<'text> {
    #[serde(borrow)]
    attestation_bundles: Vec<KeptBundle<'text>>,
}

#[derive(Deserialize)]
struct KeptBundle<'text> {
    #[serde(borrow)]
    attestations: Vec<&'text RawValue>,
}

/// The attestations of an upload: each has the right shape, and is about the uploaded file.
#[derive(Clone, Debug)]
pub struct Attestations<'text>(Vec<&'text RawValue>);

impl<'text> Attestations<'text> {
    /// The field `attestations` of an upload of this file. `None` if the list is empty.
    ///
    /// # Errors
    /// [`AttestationError`] if an attestation has another shape, or speaks of another file.
    pub fn read(
        text: &'text str,
        filename: &str,
        sha256: &Digest,
    ) -> Result<Option<Attestations<'text>>, AttestationError> {
        let fail = |text: String| Err(AttestationError(text));
        if text.len() > ATTESTATIONS_BYTES_MAX {
            return fail(format!(
                "{} bytes were sent, at most {ATTESTATIONS_BYTES_MAX} were expected",
                text.len()
            ));
        }
        let attestations: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|error| AttestationError(format!("a JSON array was expected: {error}")))?;
        if attestations.len() > ATTESTATIONS_MAX {
            return fail(format!(
                "{} were sent, at most {ATTESTATIONS_MAX} were expected",
                attestations.len()
            ));
        }
        for (at, attestation) in attestations.iter().enumerate() {
            check(attestation.get(), filename, sha256)
                .map_err(|text| AttestationError(format!("number {}: {text}", at + 1)))?;
        }
        Ok((!attestations.is_empty()).then_some(Attestations(attestations)))
    }

    /// Each of them, as JSON.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &'text str> {
        self.0.iter().map(|attestation| attestation.get())
    }

    /// The provenance object: JSON, always the same for the same attestations. `publisher` is the job that uploads the file, if
    /// each of them was verified to be signed by it.
    pub fn provenance(&self, publisher: Option<&CiIdentity>) -> Vec<u8> {
        let publisher = publisher.and_then(publisher_of).unwrap_or_else(|| {
            Map::from_iter([
                ("kind".to_owned(), Value::from(UNVERIFIED)),
                ("claims".to_owned(), Map::new().into()),
            ])
        });
        let provenance = Provenance {
            version: 1,
            attestation_bundles: [Bundle { publisher, attestations: &self.0 }],
        };
        serde_json::to_vec(&provenance).expect("texts and JSON that was read")
    }
}

/// Whether attestations can be tied to jobs of this kind of issuer: Sigstore's certificates say which repository and workflow, or
/// which address, a job is of.
pub fn can_attest(kind: IssuerKind) -> bool {
    matches!(kind, IssuerKind::Github | IssuerKind::Gitlab | IssuerKind::Google)
}

/// A trusted publisher, with the members that the public index's integrity API has for its kind, as the exchange of its identity
/// proved them.
fn publisher_of(identity: &CiIdentity) -> Option<Map<String, Value>> {
    let claim = |name: &str| identity.claim(name).map_or(Value::Null, Value::from);
    let (kind, members) = match identity.kind {
        IssuerKind::Github => {
            // A workflow of another repository is named whole.
            let elsewhere = || identity.claim("job_workflow_ref")?.split('@').next();
            let workflow = github_workflow(identity).or_else(elsewhere);
            let members = vec![
                ("repository", claim("repository")),
                ("workflow", workflow.into()),
                ("environment", claim("environment")),
            ];
            ("GitHub", members)
        }
        IssuerKind::Gitlab => {
            let elsewhere = || identity.claim("ci_config_ref_uri")?.split('@').next();
            let workflow = gitlab_workflow(identity).or_else(elsewhere);
            let members = vec![
                ("repository", claim("project_path")),
                ("workflow_filepath", workflow.into()),
                ("environment", claim("environment")),
            ];
            ("GitLab", members)
        }
        IssuerKind::Google => ("Google", vec![("email", claim("email"))]),
        IssuerKind::Activestate | IssuerKind::Generic => return None,
    };
    let shown = SHOWN_CLAIMS.iter().filter_map(|&name| {
        let value = if name == "iss" { Some(&*identity.issuer) } else { identity.claim(name) };
        Some((name.to_owned(), Value::from(value?)))
    });
    let claims: Map<String, Value> = shown.collect();
    let of_kind = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    let always =
        [("kind".to_owned(), Value::from(kind)), ("claims".to_owned(), Value::from(claims))];
    Some(always.into_iter().chain(of_kind).collect())
}

/// The attestations of a provenance object, as an upload to another index sends them.
pub fn attestations_of(provenance: &[u8]) -> Option<String> {
    let kept: StoredProvenance<'_> = serde_json::from_slice(provenance).ok()?;
    let all: Vec<&RawValue> =
        kept.attestation_bundles.into_iter().flat_map(|bundle| bundle.attestations).collect();
    serde_json::to_string(&all).ok()
}

fn check(attestation: &str, filename: &str, sha256: &Digest) -> Result<(), String> {
    let attestation: Attestation<'_> = serde_json::from_str(attestation)
        .map_err(|error| format!("it is no attestation object: {error}"))?;
    if attestation.version != 1 {
        return Err(format!("its version is {}, 1 was expected", attestation.version));
    }
    let VerificationMaterial { certificate, transparency_entries } =
        attestation.verification_material;
    let Envelope { statement, signature } = attestation.envelope;
    for (name, text) in [("certificate", &certificate), ("signature", &signature)] {
        if text.is_empty() || STANDARD.decode(text.as_bytes()).is_err() {
            return Err(format!("its {name} is not in base64"));
        }
    }
    let is_object = |entry: &&RawValue| entry.get().starts_with('{');
    if transparency_entries.is_empty() || !transparency_entries.iter().all(is_object) {
        return Err(
            "its transparency_entries were expected to be objects, and one at least".to_owned()
        );
    }
    let statement =
        STANDARD.decode(statement.as_bytes()).map_err(|_| "its statement is not in base64")?;
    let statement: Statement = serde_json::from_slice(&statement)
        .map_err(|error| format!("its statement is not an in-toto statement: {error}"))?;
    if statement.kind != "https://in-toto.io/Statement/v1" || statement.predicate_type.is_empty() {
        return Err(
            "its statement is not an in-toto statement, version 1, with a predicateType".to_owned()
        );
    }
    let [subject] = &statement.subject[..] else {
        let count = statement.subject.len();
        return Err(format!("its statement has {count} subjects, one was expected"));
    };
    if folded(&subject.name) != folded(filename) {
        let name = excerpt(&subject.name, 200);
        return Err(format!("it is about `{name}`, and the file is `{filename}`"));
    }
    let found = subject.digest.sha256.to_ascii_lowercase();
    if found != sha256.to_string() {
        let found = excerpt(&found, 64);
        return Err(format!("it is about a file with the SHA-256 {found}, the file has {sha256}"));
    }
    Ok(())
}

/// A filename in one of the spellings that mean the same.
fn folded(filename: &str) -> String {
    filename.to_ascii_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "foo_bar-1.0-py3-none-any.whl";

    fn statement(name: &str, content: &[u8]) -> Value {
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": Digest::of(content).to_string()}}],
            "predicateType": "https://docs.pypi.org/attestations/publish/v1",
            "predicate": null,
        })
    }

    fn attestation(statement: &Value) -> Value {
        json!({
            "version": 1,
            "verification_material": {
                "certificate": STANDARD.encode("certificate"),
                "transparency_entries": [{"logIndex": "1", "more": [1.50, "\u{e9}"]}],
            },
            "envelope": {
                "statement": STANDARD.encode(statement.to_string()),
                "signature": STANDARD.encode("signature"),
            },
        })
    }

    #[track_caller]
    fn refused(text: &str, says: &str) {
        let error = Attestations::read(text, NAME, &Digest::of(b"content")).expect_err(text);
        assert!(error.to_string().contains(says), "{error}");
    }

    #[test]
    fn attestations_become_a_provenance_as_they_were_sent() {
        let digest = Digest::of(b"content");
        let one = attestation(&statement(NAME, b"content"));
        let two = attestation(&statement("Foo.Bar-1.0-py3-none-any.whl", b"content"));
        let text = format!("[{one}, {two}]");
        let attestations = Attestations::read(&text, NAME, &digest).expect("valid").expect("some");
        let provenance = attestations.provenance(None);
        let found: Value = serde_json::from_slice(&provenance).expect("JSON");
        let expected = json!({
            "version": 1,
            "attestation_bundles": [
                {"publisher": {"kind": "unverified", "claims": {}}, "attestations": [one, two]},
            ],
        });
        assert_eq!(found, expected);
        let sent = attestations_of(&provenance).expect("a provenance");
        let again = Attestations::read(&sent, NAME, &digest).expect("valid").expect("some");
        assert_eq!(again.provenance(None), provenance);
        assert!(matches!(Attestations::read(" [] ", NAME, &digest), Ok(None)));
    }

    /// The members are those of the public index's integrity API.
    #[test]
    fn a_provenance_names_the_publisher() {
        let check = |kind: IssuerKind, claims: &[(&str, &str)], expected: Value| {
            let text = format!("[{}]", attestation(&statement(NAME, b"content")));
            let read = Attestations::read(&text, NAME, &Digest::of(b"content"));
            let claims = claims.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let issuer = "https://ci.example".to_owned();
            let identity = CiIdentity { issuer, kind, claims: claims.collect() };
            let provenance = read.expect("valid").expect("some").provenance(Some(&identity));
            let found: Value = serde_json::from_slice(&provenance).expect("JSON");
            assert_eq!(found["attestation_bundles"][0]["publisher"], expected);
        };
        let github = [
            ("repository", "org/repo"),
            ("repository_id", "7"),
            ("environment", "release"),
            ("job_workflow_ref", "org/repo/.github/workflows/release.yml@refs/tags/v1"),
            ("actor", "somebody"),
        ];
        let claims = json!({"iss": "https://ci.example", "repository_id": "7",
            "job_workflow_ref": "org/repo/.github/workflows/release.yml@refs/tags/v1"});
        check(
            IssuerKind::Github,
            &github,
            json!({"kind": "GitHub", "repository": "org/repo", "workflow": "release.yml",
                "environment": "release", "claims": claims}),
        );
        let gitlab = [
            ("project_path", "group/sub/repo"),
            ("ci_config_ref_uri", "gitlab.com/group/sub/repo//.gitlab-ci.yml@refs/heads/main"),
        ];
        let claims = json!({"iss": "https://ci.example", "ci_config_ref_uri": gitlab[1].1});
        check(
            IssuerKind::Gitlab,
            &gitlab,
            json!({"kind": "GitLab", "repository": "group/sub/repo",
                "workflow_filepath": ".gitlab-ci.yml", "environment": null, "claims": claims}),
        );
        let google = [("email", "job@acme.example")];
        let claims = json!({"iss": "https://ci.example"});
        check(
            IssuerKind::Google,
            &google,
            json!({"kind": "Google", "email": "job@acme.example", "claims": claims}),
        );
        for kind in [IssuerKind::Generic, IssuerKind::Activestate] {
            assert!(!can_attest(kind));
            check(kind, &github, json!({"kind": "unverified", "claims": {}}));
        }
    }

    #[test]
    fn what_is_no_attestation_of_this_file_is_refused() {
        for (text, says) in [
            ("", "a JSON array was expected"),
            ("{}", "a JSON array was expected"),
            ("[1]", "number 1: it is no attestation object"),
            ("[{\"version\":1}]", "number 1: it is no attestation object"),
        ] {
            refused(text, says);
        }
        let right = attestation(&statement(NAME, b"content"));
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = right.clone();
            change(&mut changed);
            format!("[{right},{changed}]")
        };
        refused(&with(&|it| it["version"] = 2.into()), "number 2: its version is 2");
        refused(
            &with(&|it| it["verification_material"]["certificate"] = "!".into()),
            "its certificate is not in base64",
        );
        refused(&with(&|it| it["envelope"]["signature"] = "".into()), "its signature is not");
        refused(&with(&|it| it["envelope"]["statement"] = "!".into()), "its statement is not");
        for entries in [json!([]), json!([1]), json!(["{"])] {
            let text =
                with(&|it| it["verification_material"]["transparency_entries"] = entries.clone());
            refused(&text, "its transparency_entries");
        }
        let of = |statement: Value| format!("[{}]", attestation(&statement));
        refused(&of(json!({"subject": []})), "is not an in-toto statement");
        refused(&of(statement(NAME, b"other")), "it is about a file with the SHA-256");
        refused(&of(statement("foo-1.0.tar.gz", b"content")), "it is about `foo-1.0.tar.gz`");
        let mut two = statement(NAME, b"content");
        two["subject"] = json!([two["subject"][0], two["subject"][0]]);
        refused(&of(two), "has 2 subjects");
        let many = vec![right.to_string(); ATTESTATIONS_MAX + 1].join(",");
        refused(&format!("[{many}]"), "17 were sent, at most 16");
        refused(&" ".repeat(ATTESTATIONS_BYTES_MAX + 1), "at most 524288 were expected");
    }
}
