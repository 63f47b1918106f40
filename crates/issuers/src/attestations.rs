//! [`Attestations`]: who signed an attestation (PEP 740), by Sigstore's certificates and transparency log.
//!
//! attestation, digest of its file, identity of the job that uploads it -> [`Attestations::check`]: the certificate is Sigstore's and
//! was valid when the transparency log took the signature, the signature is of its key over the statement, the statement is about
//! the file, and the certificate is of the same repository and workflow as the job
//!
//! The crate `sigstore-verify` does the first three. It contacts nobody: the keys that it trusts come with it, or from a file.

use std::path::Path;

use account::{CiIdentity, IssuerKind};
use record::Digest;
use serde_json::{Value, json};
use sigstore_verify::crypto::CertificateInfo;
use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_verify::types::{Bundle, Sha256Hash};
use sigstore_verify::{SubjectAltName, VerificationPolicy, Verifier};

use super::shown;

/// Size of a file of trusted keys. That of Sigstore's public instance has 7 KiB.
const ROOT_BYTES_MAX: u64 = 1 << 20;

/// The form of bundle that has what an attestation has: one certificate, and entries of a log.
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// The type of a statement.
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";

/// What verifies attestations.
pub struct Attestations {
    verifier: Verifier,
}

/// Why an attestation is not the one of the job that uploads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AttestationRefusal(String);

/// Which claims of a CI system are in its certificates, too.
struct CertificateClaims {
    repository: &'static str,
    repository_id: &'static str,
    owner_id: &'static str,
    /// Any of these is the file that the job is defined in.
    workflows: &'static [&'static str],
}

const OF_GITHUB: CertificateClaims = CertificateClaims {
    repository: "repository",
    repository_id: "repository_id",
    owner_id: "repository_owner_id",
    workflows: &["job_workflow_ref", "workflow_ref"],
};

const OF_GITLAB: CertificateClaims = CertificateClaims {
    repository: "project_path",
    repository_id: "project_id",
    owner_id: "namespace_id",
    workflows: &["ci_config_ref_uri"],
};

impl Attestations {
    /// Trusts the keys in a file, in the form of Sigstore's `trusted_root.json`; without one, those of Sigstore's public instance as
    /// of the build.
    ///
    /// # Errors
    /// The file cannot be read, or has no such keys.
    pub fn new(root: Option<&Path>) -> Result<Attestations, String> {
        let Some(path) = root else {
            return Attestations::trusting(SIGSTORE_PRODUCTION_TRUSTED_ROOT);
        };
        let read = || -> std::io::Result<Option<String>> {
            use std::io::Read as _;
            let mut text = String::new();
            std::fs::File::open(path)?.take(ROOT_BYTES_MAX + 1).read_to_string(&mut text)?;
            Ok((text.len() as u64 <= ROOT_BYTES_MAX).then_some(text))
        };
        let text = read().map_err(|error| format!("cannot be read: {error}"))?;
        let text = text.ok_or_else(|| format!("it has more than {ROOT_BYTES_MAX} bytes"))?;
        Attestations::trusting(&text)
    }

    fn trusting(root: &str) -> Result<Attestations, String> {
        let wrong = |error: &dyn std::fmt::Display| {
            format!("Sigstore's trusted keys (trusted_root.json) were expected: {error}")
        };
        let root = TrustedRoot::from_json(root).map_err(|error| wrong(&error))?;
        if root.certificate_authorities.is_empty() {
            return Err(wrong(&"it has no `certificateAuthorities`"));
        }
        Ok(Attestations { verifier: Verifier::new(&root).map_err(|error| wrong(&error))? })
    }

    /// Checks that the job with this identity has signed an attestation, which is JSON of PEP 740's form, about the file with this
    /// digest. It takes a few milliseconds of a core.
    ///
    /// # Errors
    /// [`AttestationRefusal`]. Attestations of kinds of issuers whose certificates do not name the job are always refused.
    pub fn check(
        &self,
        attestation: &str,
        sha256: &Digest,
        identity: &CiIdentity,
    ) -> Result<(), AttestationRefusal> {
        let certificate = self.signer(attestation, sha256).map_err(AttestationRefusal)?;
        tie(&certificate, identity).map_err(|difference| {
            let signer = certificate.identity.as_ref().map_or("nobody", |it| it.as_str());
            AttestationRefusal(format!(
                "it was signed by {}, and {} uploads it: {difference}",
                shown(signer),
                described(identity)
            ))
        })
    }

    /// Verifies an attestation, and returns the certificate that its signature is of.
    fn signer(&self, attestation: &str, sha256: &Digest) -> Result<CertificateInfo, String> {
        let bundle = bundle_of(attestation).ok_or("it is no attestation object")?;
        let bundle = Bundle::from_json(&bundle.to_string())
            .map_err(|error| format!("it cannot be read: {}", shown(&error.to_string())))?;
        let artifact = Sha256Hash::new(*sha256.as_bytes());
        let verified = self.verifier.verify(artifact, &bundle, &VerificationPolicy::any_identity());
        let verified = verified
            .map_err(|error| format!("it cannot be verified: {}", shown(&error.to_string())))?;
        let is_whole =
            verified.certificate_verified() && verified.sct_verified() && verified.tlog_verified();
        let certificate = verified.certificate().filter(|_| is_whole);
        certificate
            .cloned()
            .ok_or_else(|| "it cannot be verified: it has no certificate".to_owned())
    }
}

/// An attestation in the form that Sigstore's tools have.
fn bundle_of(attestation: &str) -> Option<Value> {
    let mut attestation: Value = serde_json::from_str(attestation).ok()?;
    let mut take = |pointer: &str| attestation.pointer_mut(pointer).map(Value::take);
    Some(json!({
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {
            "certificate": {"rawBytes": take("/verification_material/certificate")?},
            "tlogEntries": take("/verification_material/transparency_entries")?,
        },
        "dsseEnvelope": {
            "payload": take("/envelope/statement")?,
            "payloadType": STATEMENT_TYPE,
            "signatures": [{"sig": take("/envelope/signature")?, "keyid": ""}],
        },
    }))
}

/// Checks that a certificate is of the job with this identity. The error says what differs.
fn tie(certificate: &CertificateInfo, identity: &CiIdentity) -> Result<(), String> {
    let same = |what: &str, found: Option<&str>, expected: Option<&str>| {
        if found.is_some() && found == expected {
            return Ok(());
        }
        let told = |it: Option<&str>, none: &str| {
            it.map_or_else(|| none.to_owned(), |it| format!("`{}`", shown(it)))
        };
        let (found, expected) = (told(found, "missing"), told(expected, "none"));
        Err(format!("`{what}` is {found} in the certificate, and {expected} was expected"))
    };
    same("iss", certificate.issuer.as_deref(), Some(&identity.issuer))?;
    let tied = match identity.kind {
        IssuerKind::Github => OF_GITHUB,
        IssuerKind::Gitlab => OF_GITLAB,
        IssuerKind::Google => {
            let address = match &certificate.identity {
                Some(SubjectAltName::Email(address)) => Some(&**address),
                _ => None,
            };
            return same("email", address, identity.claim("email"));
        }
        IssuerKind::Activestate | IssuerKind::Generic => {
            let kind = identity.kind;
            return Err(format!("certificates do not name jobs of an issuer of the kind {kind}"));
        }
    };
    let claims = &certificate.ci_claims;
    // Ids are never given twice; names are, after a repository was renamed.
    let id = claims.source_repository_identifier.as_deref();
    same(tied.repository_id, id, identity.claim(tied.repository_id))?;
    let owner = claims.source_repository_owner_identifier.as_deref();
    same(tied.owner_id, owner, identity.claim(tied.owner_id))?;
    let repository = claims.source_repository_uri.as_deref().and_then(without_host);
    same(tied.repository, repository, identity.claim(tied.repository))?;
    let of_certificate = [&claims.build_config_uri, &claims.build_signer_uri];
    let of_certificate = of_certificate.map(|uri| uri.as_deref().and_then(without_host).map(file));
    let own = tied.workflows.iter().filter_map(|name| {
        let claim = identity.claim(name)?;
        // GitLab's have the host, but no scheme.
        Some(file(if identity.kind == IssuerKind::Gitlab {
            claim.split_once('/')?.1
        } else {
            claim
        }))
    });
    let own: Vec<&str> = own.collect();
    if of_certificate.iter().flatten().any(|workflow| own.contains(workflow)) {
        return Ok(());
    }
    same("workflow", of_certificate[0], own.first().copied())
}

/// The path of a URL, without the slash that it begins with.
fn without_host(url: &str) -> Option<&str> {
    url.strip_prefix("https://")?.split_once('/').map(|(_, path)| path)
}

/// The file of a workflow, without the ref that it is of.
fn file(workflow: &str) -> &str {
    workflow.split_once('@').map_or(workflow, |(file, _)| file)
}

/// Who uploads, in a message.
fn described(identity: &CiIdentity) -> String {
    let workflow = ["job_workflow_ref", "ci_config_ref_uri"];
    let workflow = workflow.iter().find_map(|name| identity.claim(name));
    let workflow = workflow.map(|it| format!(" ({})", shown(it))).unwrap_or_default();
    format!("{}{workflow}", identity.name())
}

#[cfg(test)]
mod tests;
