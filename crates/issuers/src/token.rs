//! A signed token (JWT, RFC 7519): read without trust, then checked with the key that it names.
//!
//! The algorithm is that of the key, never one that the token chooses: RS256, ES256 or EdDSA. Header members that name or bring
//! keys are not looked at, and a token with critical members is refused.

use account::{CiIdentity, Claims};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{Validation, decode};
use record::Digest;
use serde_json::{Map, Value};

use super::keys::Key;
use super::{Issuer, TokenRefusal, VerifiedIdentity, shown, shown_claim};

/// Longest token of a CI job, in bytes, and most claims in any.
pub(super) const TOKEN_BYTES_MAX: usize = 8 << 10;
const CLAIMS_MAX: usize = 200;

/// Longest id of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 200;

/// How far the clocks of an issuer and of this machine may be apart.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// Longest life of a token: it has to be remembered as long, so that it is not used twice.
const LIFETIME_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Claims that are about the token and not about the job.
const OF_TOKEN: [&str; 6] = ["iss", "aud", "exp", "nbf", "iat", "jti"];

/// A token whose signature has not been checked.
#[derive(Debug)]
pub(super) struct UnverifiedToken<'text> {
    text: &'text str,
    signed: &'text str,
    issuer: String,
    key_id: String,
}

fn invalid(reason: impl Into<String>) -> TokenRefusal {
    TokenRefusal::Invalid(reason.into())
}

/// A part of a token, which is an object.
fn object(part: &str, name: &str) -> Result<Map<String, Value>, TokenRefusal> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok();
    let object = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    object.ok_or_else(|| invalid(format!("its {name} is no JSON object in base64url")))
}

impl<'text> UnverifiedToken<'text> {
    /// Reads a token, without trust in anything that it says.
    pub(super) fn parse(
        text: &'text str,
        bytes_max: usize,
    ) -> Result<UnverifiedToken<'text>, TokenRefusal> {
        if text.len() > bytes_max {
            let bytes = text.len();
            return Err(invalid(format!(
                "it has {bytes} bytes, and at most {bytes_max} were expected"
            )));
        }
        let parts: Vec<&str> = text.split('.').collect();
        let [header, payload, signature] = parts[..] else {
            return Err(invalid("it does not have three parts with dots between them"));
        };
        let header = object(header, "header")?;
        if header.contains_key("crit") {
            return Err(invalid(
                "its header has critical members, which this server does not know",
            ));
        }
        let key_id = header.get("kid").and_then(Value::as_str).unwrap_or_default();
        if key_id.is_empty() || key_id.len() > KEY_ID_BYTES_MAX {
            return Err(invalid("its header names no key (`kid`)"));
        }
        let claims = object(payload, "payload")?;
        let Some(issuer) = claims.get("iss").and_then(Value::as_str) else {
            return Err(invalid("it names no issuer (`iss`)"));
        };
        Ok(UnverifiedToken {
            text,
            signed: &text[..text.len() - signature.len() - 1],
            issuer: issuer.to_owned(),
            key_id: key_id.to_owned(),
        })
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(super) fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The identity, if the key has signed it for this audience and its time has come and is not over.
    pub(super) fn verify(
        &self,
        issuer: &Issuer,
        key: &Key,
        audience: &str,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, TokenRefusal> {
        let (claims, ends_at) = self.claims(&issuer.url, key, audience, now)?;
        let identity =
            CiIdentity { issuer: issuer.url.clone(), kind: issuer.kind, claims: texts(claims) };
        let proof = Digest::of(self.signed.as_bytes());
        Ok(VerifiedIdentity { identity, proof, ends_at })
    }

    /// The claims, if the key has signed them for this audience and their time has come and is not over; and until when they
    /// are accepted.
    pub(super) fn claims(
        &self,
        issuer: &str,
        key: &Key,
        audience: &str,
        now: Timestamp,
    ) -> Result<(Map<String, Value>, Timestamp), TokenRefusal> {
        // What the library would check besides the signature is checked below, at one time and with one skew.
        let mut validation = Validation::new(key.algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let decoded = decode::<Map<String, Value>>(self.text, &key.decoding, &validation);
        let claims = decoded.map_err(|error| {
            invalid(format!(
                "it cannot be verified with the key `{}`: {error}",
                shown(&self.key_id)
            ))
        })?;
        let claims = claims.claims;
        if claims.len() > CLAIMS_MAX {
            return Err(invalid(format!("it has more than {CLAIMS_MAX} claims")));
        }
        if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
            return Err(invalid("its issuer (`iss`) is another"));
        }
        check_audience(claims.get("aud"), audience)?;
        let ends_at = check_times(&claims, now)?;
        Ok((claims, ends_at))
    }
}

/// The audience is this server and nobody else.
fn check_audience(found: Option<&Value>, audience: &str) -> Result<(), TokenRefusal> {
    let is_it = match found {
        Some(Value::String(text)) => text == audience,
        Some(Value::Array(items)) => {
            matches!(&items[..], [Value::String(text)] if text == audience)
        }
        _ => false,
    };
    if is_it {
        return Ok(());
    }
    let found = match found {
        None => "missing".to_owned(),
        Some(Value::String(text)) => format!("`{}`", shown(text)),
        Some(value) => format!("`{}`", shown_claim(value)),
    };
    Err(invalid(format!("its audience (`aud`) is {found}, and `{audience}` alone was expected")))
}

/// Checks `exp`, `iat` and `nbf`; returns until when the token is accepted.
fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, TokenRefusal> {
    let seconds = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => {
            // Some issuers write a fraction.
            let seconds = value.as_i64().or_else(|| Some(value.as_f64()?.floor() as i64));
            let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            time.map(Some).ok_or_else(|| invalid(format!("`{name}` is no time")))
        }
    };
    let needed = |name: &str| seconds(name)?.ok_or_else(|| invalid(format!("`{name}` is missing")));
    let (expires_at, issued_at) = (needed("exp")?, needed("iat")?);
    let ends_at = expires_at.checked_add(SKEW).map_err(|_| invalid("`exp` is no time"))?;
    if ends_at <= now {
        return Err(invalid(format!("it expired at {expires_at}")));
    }
    let soon = now + SKEW;
    if issued_at > soon {
        return Err(invalid(format!("it was issued in the future, at {issued_at} (`iat`)")));
    }
    if let Some(from) = seconds("nbf")?.filter(|from| *from > soon) {
        return Err(invalid(format!("it is not valid before {from} (`nbf`)")));
    }
    if expires_at.duration_since(issued_at) > LIFETIME_MAX {
        let hours = LIFETIME_MAX.as_hours();
        return Err(invalid(format!("it lives longer than {hours} hours (`iat`, `exp`)")));
    }
    Ok(ends_at)
}

/// The claims about the job that are texts.
fn texts(claims: Map<String, Value>) -> Claims {
    let about_job = claims.into_iter().filter(|(name, _)| !OF_TOKEN.contains(&name.as_str()));
    let texts = about_job.filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, text)),
        Value::Bool(flag) => Some((name, flag.to_string())),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(value: &Value) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
    }

    #[track_caller]
    fn check_form(text: &str, reason: &str) {
        let Err(TokenRefusal::Invalid(found)) = UnverifiedToken::parse(text, TOKEN_BYTES_MAX)
        else {
            panic!("{text} is read")
        };
        assert!(found.contains(reason), "{found}");
    }

    #[test]
    fn what_is_no_token() {
        let (header, payload) = (part(&json!({"kid": "1"})), part(&json!({"iss": "i"})));
        check_form("", "three parts");
        check_form("a.b", "three parts");
        check_form("a.b.c.d", "three parts");
        check_form(&format!("{}.{payload}.x", part(&json!([]))), "its header is no JSON object");
        check_form(&format!("{header}.!.x"), "its payload is no JSON object");
        check_form(&format!("{}.{payload}.x", part(&json!({}))), "names no key");
        check_form(&format!("{}.{payload}.x", part(&json!({"kid": 1}))), "names no key");
        check_form(&format!("{header}.{}.x", part(&json!({"iss": ["i"]}))), "names no issuer");
        let critical = part(&json!({"kid": "1", "crit": ["b64"], "b64": false}));
        check_form(&format!("{critical}.{payload}.x"), "critical");
        check_form(&"x".repeat(TOKEN_BYTES_MAX + 1), "at most 8192");
        let read = format!("{header}.{payload}.signature");
        let read = UnverifiedToken::parse(&read, TOKEN_BYTES_MAX).expect("a token");
        assert_eq!((read.issuer(), read.key_id()), ("i", "1"));
        assert_eq!(read.signed, format!("{header}.{payload}"));
    }

    #[test]
    fn audiences() {
        let check = |audience: Value, is_it: bool| {
            assert_eq!(check_audience(Some(&audience), "larder").is_ok(), is_it, "{audience}");
        };
        check(json!("larder"), true);
        check(json!(["larder"]), true);
        check(json!("Larder"), false);
        check(json!(["larder", "other"]), false);
        check(json!([]), false);
        check(json!({"larder": 1}), false);
        assert!(check_audience(None, "larder").is_err());
    }

    #[test]
    fn times() {
        let now = Timestamp::from_second(1_750_000_000).expect("a time");
        let check = |claims: Value, reason: &str| {
            let Value::Object(claims) = claims else { panic!("an object") };
            match check_times(&claims, now) {
                Ok(_) => assert_eq!(reason, "", "{claims:?}"),
                Err(refused) => {
                    let text = refused.to_string();
                    assert!(!reason.is_empty() && text.contains(reason), "{claims:?}: {text}");
                }
            }
        };
        let at = |seconds: i64| 1_750_000_000 + seconds;
        check(json!({"iat": at(-5), "exp": at(300)}), "");
        check(json!({"iat": at(-5), "nbf": at(-5), "exp": at(300)}), "");
        check(json!({"iat": 1_749_999_999.5, "exp": at(300)}), "");
        check(json!({"iat": at(25), "nbf": at(25), "exp": at(300)}), "");
        check(json!({"iat": at(-300), "exp": at(-29)}), "");
        check(json!({"iat": at(-300), "exp": at(-30)}), "expired");
        check(json!({"iat": at(31), "exp": at(300)}), "in the future");
        check(json!({"iat": at(-5), "nbf": at(31), "exp": at(300)}), "not valid before");
        check(json!({"iat": at(-5), "exp": at(86_400)}), "longer than 24 hours");
        check(json!({"iat": at(-5)}), "`exp` is missing");
        check(json!({"exp": at(300)}), "`iat` is missing");
        check(json!({"iat": "now", "exp": at(300)}), "`iat` is no time");
        check(json!({"iat": at(0), "exp": i64::MAX}), "`exp` is no time");
        check(json!({"iat": at(0), "exp": 1e300}), "`exp` is no time");
        check(json!({"iat": at(0), "nbf": null, "exp": at(300)}), "`nbf` is no time");
    }

    #[test]
    fn only_texts_are_claims_of_the_job() {
        let claims = json!({
            "iss": "i", "aud": "a", "jti": "j", "repository": "org/repo", "email_verified": true,
            "repository_id": 7, "sub": ["x"], "environment": null, "actor": {"x": 1},
        });
        let Value::Object(claims) = claims else { panic!("an object") };
        let texts: Vec<(String, String)> = texts(claims).into_iter().collect();
        let expected = [("email_verified", "true"), ("repository", "org/repo")];
        assert_eq!(texts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
