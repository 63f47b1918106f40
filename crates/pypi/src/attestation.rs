//! Attestations (PEP 740): statements about a release file, signed by whoever built or published it.
//!
//! the field `attestations` of an upload -> [`provenance_of`] -> a provenance object, which is kept as a blob and served
//! unchanged. Each attestation must have the right shape and be about this file. Signatures and certificates are not verified
//! here: installers have to do that, and no page may suggest that the server did.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The media type of a provenance object.
pub const PROVENANCE_TYPE: &str = "application/vnd.pypi.integrity.v1+json";

/// Longest field, in bytes, and most attestations in it. One of a build takes some 10 KiB.
pub const ATTESTATIONS_BYTES_MAX: usize = 512 << 10;
const ATTESTATIONS_MAX: usize = 16;

/// The kind of every publisher: an index without trusted publishing does not know who it is.
const PUBLISHER_KIND: &str = "unverified";

/// Why attestations are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid attestations: {0}")]
pub struct AttestationError(String);

#[derive(Deserialize)]
struct Attestation<'text> {
    version: u64,
    #[serde(borrow)]
    verification_material: Material<'text>,
    #[serde(borrow)]
    envelope: Envelope<'text>,
}

#[derive(Deserialize)]
struct Material<'text> {
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
    publisher: Publisher,
    attestations: Vec<&'text RawValue>,
}

#[derive(Serialize)]
struct Publisher {
    kind: &'static str,
    claims: serde_json::Map<String, serde_json::Value>,
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

/// The provenance object for the field `attestations` of an upload of this file: JSON, always the same for the same
/// attestations. `None` if the list is empty.
///
/// # Errors
/// [`AttestationError`] if an attestation has another shape, or speaks of another file.
pub fn provenance_of(
    text: &str,
    filename: &str,
    sha256: &Digest,
) -> Result<Option<Vec<u8>>, AttestationError> {
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
    if attestations.is_empty() {
        return Ok(None);
    }
    for (at, attestation) in attestations.iter().enumerate() {
        check(attestation.get(), filename, sha256)
            .map_err(|text| AttestationError(format!("number {}: {text}", at + 1)))?;
    }
    let publisher = Publisher { kind: PUBLISHER_KIND, claims: Default::default() };
    let provenance =
        Provenance { version: 1, attestation_bundles: [Bundle { publisher, attestations }] };
    serde_json::to_vec(&provenance).map(Some).map_err(|error| AttestationError(error.to_string()))
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
    let Material { certificate, transparency_entries } = attestation.verification_material;
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
        let name: String = subject.name.chars().take(200).collect();
        return Err(format!("it is about `{name}`, and the file is `{filename}`"));
    }
    let found = subject.digest.sha256.to_ascii_lowercase();
    if found != sha256.to_string() {
        let found: String = found.chars().take(64).collect();
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
        let error = provenance_of(text, NAME, &Digest::of(b"content")).expect_err(text);
        assert!(error.to_string().contains(says), "{error}");
    }

    #[test]
    fn attestations_become_a_provenance_as_they_were_sent() {
        let digest = Digest::of(b"content");
        let one = attestation(&statement(NAME, b"content"));
        let two = attestation(&statement("Foo.Bar-1.0-py3-none-any.whl", b"content"));
        let text = format!("[{one}, {two}]");
        let provenance = provenance_of(&text, NAME, &digest).expect("valid").expect("some");
        let found: Value = serde_json::from_slice(&provenance).expect("JSON");
        let expected = json!({
            "version": 1,
            "attestation_bundles": [
                {"publisher": {"kind": "unverified", "claims": {}}, "attestations": [one, two]},
            ],
        });
        assert_eq!(found, expected);
        let sent = attestations_of(&provenance).expect("a provenance");
        let again = provenance_of(&sent, NAME, &digest).expect("valid").expect("some");
        assert_eq!(again, provenance);
        assert_eq!(provenance_of(" [] ", NAME, &digest), Ok(None));
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
