//! Headers of pages for people: what a browser may load and run for them, and that no other page shows them in a frame,
//! where it could have somebody click what they do not see.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};

/// Of a page without scripts. Styles are in the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// Inserts the headers of a page without scripts.
pub(super) fn insert_headers(headers: &mut HeaderMap) {
    insert_with(headers, HeaderValue::from_static(POLICY));
}

/// Inserts the headers of a page with the policy that [`policy`] made for it.
pub(super) fn insert_with(headers: &mut HeaderMap, policy: HeaderValue) {
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    // For browsers that do not know `frame-ancestors`.
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

/// The policy for a page of ours: its own scripts run, by their digests, and ask this server.
pub(super) fn policy(html: &str) -> HeaderValue {
    let scripts = html.split("<script>").skip(1).filter_map(|rest| rest.split("</script>").next());
    let digests: String = scripts
        .map(|script| format!(" 'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(script))))
        .collect();
    if digests.is_empty() {
        return HeaderValue::from_static(POLICY);
    }
    let policy = format!("{POLICY}; script-src{digests}; connect-src 'self'");
    HeaderValue::try_from(policy).expect("digests are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_named_by_their_digests() {
        assert_eq!(policy("<p>text</p>"), POLICY);
        // Of the empty text, as every table of SHA-256 has it.
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        let named = policy("<script></script><p></p><script>\n1</script>");
        let named = named.to_str().expect("text");
        assert!(named.starts_with(&format!("{POLICY}; script-src {empty} 'sha256-")), "{named}");
        assert!(named.ends_with("'; connect-src 'self'"), "{named}");
    }
}
