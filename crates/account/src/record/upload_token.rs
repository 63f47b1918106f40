//! The stored form of an upload token: `upload-token/{proof}`.

use bytes::Bytes;
use jiff::Timestamp;
use record::{Digest, Record, UnreadableReason, check_form, read_body, write_body};
use serde::{Deserialize, Serialize};

use super::FORM;
use crate::{CiIdentity, Claims, TokenId, UploadToken};

#[derive(Serialize, Deserialize)]
struct UploadTokenBody {
    v: u32,
    issuer: String,
    kind: String,
    claims: Claims,
    created_at: Timestamp,
    expires_at: Timestamp,
    kept_until: Timestamp,
    secret_sha256: String,
}

pub(crate) fn write_upload_token(token: &UploadToken) -> Bytes {
    write_body(&UploadTokenBody {
        v: FORM,
        issuer: token.identity.issuer.clone(),
        kind: token.identity.kind.to_string(),
        claims: token.identity.claims.clone(),
        created_at: token.created_at,
        expires_at: token.expires_at,
        kept_until: token.kept_until,
        secret_sha256: token.secret_digest.to_string(),
    })
}

/// The upload token in `body`.
pub(crate) fn read_upload_token(
    record: &Record,
    proof: Digest,
    body: &[u8],
) -> Result<UploadToken, UnreadableReason> {
    let body: UploadTokenBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let kind = body.kind.parse().map_err(|_| UnreadableReason::Member("kind"))?;
    let secret_digest: Digest =
        body.secret_sha256.parse().map_err(|_| UnreadableReason::Member("secret_sha256"))?;
    Ok(UploadToken {
        proof,
        id: TokenId::of(&secret_digest),
        identity: CiIdentity { issuer: body.issuer, kind, claims: body.claims },
        created_at: body.created_at,
        expires_at: body.expires_at,
        kept_until: body.kept_until,
        secret_digest,
        serial: record.serial,
    })
}

#[cfg(test)]
mod tests {
    use record::{Key, Serial};

    use super::*;
    use crate::TokenText;
    use crate::testing::{at, ci_identity};

    #[test]
    fn the_stored_form_of_an_upload_token_stays() {
        let text = TokenText::from_secret([0; 32]);
        let token = UploadToken {
            proof: Digest::of(b"signed"),
            id: text.id(),
            identity: ci_identity(&[("ref", "refs/tags/v1"), ("repository", "org/repo")]),
            created_at: at(1),
            expires_at: at(2),
            kept_until: at(3),
            secret_digest: text.secret_digest(),
            serial: Serial(7),
        };
        let body = concat!(
            r#"{"v":1,"issuer":"https://ci.example","kind":"github","#,
            r#""claims":{"ref":"refs/tags/v1","repository":"org/repo"},"#,
            r#""created_at":"2025-06-15T15:06:41Z","expires_at":"2025-06-15T15:06:42Z","#,
            r#""kept_until":"2025-06-15T15:06:43Z","secret_sha256":"#,
            r#""66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"}"#
        );
        assert_eq!(write_upload_token(&token), body);
        let key = Key::new("upload-token/0").expect("a key");
        let record = Record { key, serial: Serial(7), body: None, blobs: Vec::new() };
        assert_eq!(read_upload_token(&record, token.proof, body.as_bytes()), Ok(token));
    }
}
