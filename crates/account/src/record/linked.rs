//! The stored form of a linked identity: `identity/{digest}`.

use bytes::Bytes;
use jiff::Timestamp;
use record::{Digest, Record, UnreadableReason, check_form, read_body, write_body};
use serde::{Deserialize, Serialize};

use super::FORM;
use crate::LinkedIdentity;

#[derive(Serialize, Deserialize)]
struct LinkedBody {
    v: u32,
    issuer: String,
    subject: String,
    user: String,
    user_created_at: Timestamp,
    linked_at: Timestamp,
}

pub(crate) fn write_linked(linked: &LinkedIdentity) -> Bytes {
    write_body(&LinkedBody {
        v: FORM,
        issuer: linked.issuer.clone(),
        subject: linked.subject.clone(),
        user: linked.user.to_string(),
        user_created_at: linked.user_created_at,
        linked_at: linked.linked_at,
    })
}

/// The linked identity in `body`.
pub(crate) fn read_linked(
    record: &Record,
    digest: Digest,
    body: &[u8],
) -> Result<LinkedIdentity, UnreadableReason> {
    let body: LinkedBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let linked = LinkedIdentity {
        issuer: body.issuer,
        subject: body.subject,
        user: body.user.parse().map_err(|_| UnreadableReason::Member("user"))?,
        user_created_at: body.user_created_at,
        linked_at: body.linked_at,
        serial: record.serial,
    };
    // The record is found by issuer and subject.
    match linked.digest() == digest {
        true => Ok(linked),
        false => Err(UnreadableReason::Member("subject")),
    }
}

#[cfg(test)]
mod tests {
    use record::{Key, Serial};

    use super::*;
    use crate::testing::{at, name};

    #[test]
    fn the_stored_form_of_a_linked_identity_stays() {
        let linked = LinkedIdentity {
            issuer: "https://id.example".to_owned(),
            subject: "7".to_owned(),
            user: name("alice"),
            user_created_at: at(0),
            linked_at: at(1),
            serial: Serial(7),
        };
        let body = concat!(
            r#"{"v":1,"issuer":"https://id.example","subject":"7","user":"alice","#,
            r#""user_created_at":"2025-06-15T15:06:40Z","linked_at":"2025-06-15T15:06:41Z"}"#
        );
        assert_eq!(write_linked(&linked), body);
        let key = Key::new("identity/0").expect("a key");
        let record = Record { key, serial: Serial(7), body: None, blobs: Vec::new() };
        assert_eq!(read_linked(&record, linked.digest(), body.as_bytes()), Ok(linked.clone()));
        let other = body.replace(r#""7""#, r#""8""#);
        assert!(read_linked(&record, linked.digest(), other.as_bytes()).is_err());
    }
}
