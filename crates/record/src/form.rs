//! The form of bodies, and [`UnreadableRecord`]: a record that cannot be read.
//!
//! A body is compact JSON with the number of its form: `"v": 1`. Members that a later version adds are ignored; a
//! later form is refused. Error messages never repeat the contents of a body, which may be secret.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Key, Record, Serial};

/// A record that could not be read: it counts as deleted, and all other records were applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record `{key}` of serial {serial} cannot be read: {reason}")]
pub struct UnreadableRecord {
    /// The key of the record.
    pub key: Key,
    /// The commit that wrote it.
    pub serial: Serial,
    /// The reason.
    pub reason: UnreadableReason,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableReason {
    /// The key is of a known kind, but what follows is not a valid name.
    #[error("its key names nothing that could be kept under it")]
    Key,
    /// The body is not JSON with the expected members.
    #[error("its body {what} (column {column})", what = if *.is_json { "has not the expected members" } else { "is not JSON" })]
    Body {
        /// Whether it is JSON at all.
        is_json: bool,
        /// The position of the error, in bytes from 1; 0 for an empty body.
        column: usize,
    },
    /// Another version wrote the body.
    #[error("its body has the form {found}, and this version reads the form {expected}")]
    Form {
        /// The form in the body.
        found: u32,
        /// The form that this version reads.
        expected: u32,
    },
    /// A member of the body has a value that it cannot have.
    #[error("`{0}` in its body is missing or has an impossible value")]
    Member(&'static str),
}

impl UnreadableRecord {
    /// The trouble with `record`.
    pub fn of(record: &Record, reason: UnreadableReason) -> UnreadableRecord {
        UnreadableRecord { key: record.key.clone(), serial: record.serial, reason }
    }
}

#[derive(Deserialize)]
struct FormOnly {
    v: u32,
}

/// Parses a body of the form `expected`. The type must have a member `v`; the caller passes that to [`check_form`].
///
/// # Errors
/// [`UnreadableReason::Form`] if the body has another form, since its members may differ for that reason;
/// [`UnreadableReason::Body`] otherwise.
pub fn read_body<'body, T: Deserialize<'body>>(
    body: &'body [u8],
    expected: u32,
) -> Result<T, UnreadableReason> {
    serde_json::from_slice(body).map_err(|error| match serde_json::from_slice::<FormOnly>(body) {
        Ok(FormOnly { v }) if v != expected => UnreadableReason::Form { found: v, expected },
        _ => UnreadableReason::Body { is_json: error.is_data(), column: error.column() },
    })
}

/// Checks that this version reads bodies of the form `found`.
///
/// # Errors
/// [`UnreadableReason::Form`] if it does not.
pub fn check_form(found: u32, expected: u32) -> Result<(), UnreadableReason> {
    if found == expected { Ok(()) } else { Err(UnreadableReason::Form { found, expected }) }
}

/// Renders a body in its stored form.
pub fn write_body(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("text keys and plain values are always written").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Pet<'body> {
        v: u32,
        name: &'body str,
    }

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let read = read_body::<Pet<'_>>(body.as_bytes(), 1);
        let read = read.and_then(|pet| check_form(pet.v, 1).map(|()| pet));
        let found = match read {
            Ok(pet) => pet.name.to_owned(),
            Err(reason) => reason.to_string(),
        };
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn bodies_of_this_form_are_read() {
        check(r#"{"v":1,"name":"Rex"}"#, "Rex");
        check(r#"{"v":1,"name":"Rex","new":[1]}"#, "Rex");
        let later = "its body has the form 2, and this version reads the form 1";
        check(r#"{"v":2,"name":"Rex"}"#, later);
        check(r#"{"v":2,"names":["Rex"]}"#, later);
        check("", "its body is not JSON (column 0)");
        check(r#"{"v":1,"name":"Re"#, "its body is not JSON (column 17)");
        check(r#"{"v":1,"name":["secret"]}"#, "its body has not the expected members (column 14)");
        check("{}", "its body has not the expected members (column 2)");
        assert_eq!(write_body(&Pet { v: 1, name: "Rex" }), r#"{"v":1,"name":"Rex"}"#);
    }

    #[test]
    fn the_message_names_the_record_and_its_trouble() {
        let key = Key::new("pet/rex").expect("a key");
        let record = Record { key, serial: Serial(7), body: None, blobs: Vec::new() };
        let trouble = UnreadableRecord::of(&record, UnreadableReason::Member("name"));
        assert_eq!(
            trouble.to_string(),
            "the record `pet/rex` of serial 7 cannot be read: `name` in its body is missing or has an \
             impossible value"
        );
    }
}
