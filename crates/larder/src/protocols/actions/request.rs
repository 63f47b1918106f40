//! Parses the JSON of a request: `{"actions":{"NAME":{…arguments},…}}` -> [`Calls`].
//!
//! Arguments stay unparsed until their action reads them. A request that exceeds a bound is refused at that point,
//! and nothing is collected beyond it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deep arrays and objects may be nested; no action needs more than four levels.
pub const DEPTH_MAX: usize = 32;

/// Most characters of a client's text that an error repeats.
const SHOWN_MAX: usize = 200;

/// One call.
#[derive(Debug)]
pub struct Call<'json> {
    /// The name of the action, which may not exist.
    pub name: String,
    /// Its arguments.
    pub arguments: &'json RawValue,
}

/// The calls of a request, at least one, in the order of the request; no name occurs twice.
#[derive(Debug)]
pub struct Calls<'json>(pub Vec<Call<'json>>);

/// The part of a request that the JSON is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// `{"actions":{…}}`
    Whole,
    /// The value that `…` stands for in [`RequestPart::Whole`], with its braces.
    Inner,
}

/// Why a request cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is not UTF-8.
    #[error("the request is not UTF-8 from byte {0} on, expected JSON")]
    NotUtf8(usize),
    /// The JSON is nested too deeply.
    #[error("the JSON is nested deeper than {DEPTH_MAX} levels, the most that is accepted")]
    TooDeep,
    /// The request is not JSON, or has other members.
    #[error("{0}")]
    Json(String),
}

impl<'json> Calls<'json> {
    /// Parses a request of at most `calls_max` calls.
    ///
    /// # Errors
    /// What is wrong with it, and what was expected; of the arguments, this checks only that they are JSON.
    pub fn parse(
        json: &'json [u8],
        form: RequestPart,
        calls_max: usize,
    ) -> Result<Calls<'json>, RequestError> {
        let text = std::str::from_utf8(json)
            .map_err(|error| RequestError::NotUtf8(error.valid_up_to()))?;
        if depth(text) > DEPTH_MAX {
            return Err(RequestError::TooDeep);
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let calls = match form {
            RequestPart::Whole => deserializer.deserialize_map(WholeVisitor { calls_max }),
            RequestPart::Inner => deserializer.deserialize_map(CallsVisitor { calls_max }),
        };
        let calls = calls.and_then(|calls| deserializer.end().map(|()| calls));
        let calls = calls.map_err(|error| {
            let what = if error.is_data() { "not as expected" } else { "not JSON" };
            let (cause, place) = cause_and_place(&error);
            RequestError::Json(format!("the request is {what}: {cause}{place}"))
        })?;
        if calls.is_empty() {
            return Err(RequestError::Json("the request has no action, expected one".to_owned()));
        }
        Ok(Calls(calls))
    }
}

/// The depth of brackets outside of strings. For a text that is not JSON, the number has no meaning.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A client's text, shortened to what an error repeats.
pub(crate) fn shortened(said: &str) -> Cow<'_, str> {
    record::shortened(said, SHOWN_MAX)
}

/// Why a JSON text is refused, and where: ` at line 1 column 7`. A cause quotes whatever is in the wrong place, which
/// may be long.
pub(crate) fn cause_and_place(error: &serde_json::Error) -> (String, String) {
    let place = match error.line() {
        // The error has no position.
        0 => String::new(),
        line => format!(" at line {line} column {}", error.column()),
    };
    let text = error.to_string();
    let cause = text.strip_suffix(&place).unwrap_or(&text);
    // The expectation is at the end of the cause.
    let cause = match cause.rsplit_once(", expected ") {
        Some((found, expected)) => format!("{}, expected {}", shortened(found), plain(expected)),
        None => shortened(cause).into_owned(),
    };
    (cause, place)
}

/// What was expected, in terms of JSON instead of Rust.
fn plain(expected: &str) -> Cow<'_, str> {
    match expected {
        "u32" => Cow::Borrowed("a whole number from 0 to 4294967295"),
        "a sequence" => Cow::Borrowed("an array"),
        other => shortened(other),
    }
}

struct WholeVisitor {
    calls_max: usize,
}

impl<'json> Visitor<'json> for WholeVisitor {
    type Value = Vec<Call<'json>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the member `actions`")
    }

    fn visit_map<A: MapAccess<'json>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut calls = None;
        while let Some(name) = map.next_key::<String>()? {
            if name != "actions" {
                let name = shortened(&name);
                return Err(Error::custom(format!("unknown member `{name}`, expected `actions`")));
            }
            if calls.is_some() {
                return Err(Error::duplicate_field("actions"));
            }
            calls = Some(map.next_value_seed(CallsVisitor { calls_max: self.calls_max })?);
        }
        calls.ok_or_else(|| Error::missing_field("actions"))
    }
}

struct CallsVisitor {
    calls_max: usize,
}

impl<'json> DeserializeSeed<'json> for CallsVisitor {
    type Value = Vec<Call<'json>>;

    fn deserialize<D: Deserializer<'json>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'json> Visitor<'json> for CallsVisitor {
    type Value = Vec<Call<'json>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that holds the arguments of each action under its name")
    }

    fn visit_map<A: MapAccess<'json>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut calls: Vec<Call<'json>> = Vec::new();
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if calls.len() == self.calls_max {
                let calls_max = self.calls_max;
                return Err(Error::custom(format!(
                    "more than {calls_max} actions, the most that one request may have"
                )));
            }
            if !seen.insert(name.clone()) {
                let name = shortened(&name);
                return Err(Error::custom(format!("the action `{name}` is named twice")));
            }
            let arguments = map.next_value()?;
            calls.push(Call { name, arguments });
        }
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &[u8], form: RequestPart, expected: &str) {
        let found = match Calls::parse(json, form, 3) {
            Ok(Calls(calls)) => {
                let calls = calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
                calls.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(json));
    }

    #[test]
    fn calls_come_in_the_requests_order() {
        check(
            br#"{"actions":{"b":{},"a":{"x":[1]}}}"#,
            RequestPart::Whole,
            r#"b({}) a({"x":[1]})"#,
        );
        check(br#" {"b":{}, "a":{"x":"]}\""}} "#, RequestPart::Inner, r#"b({}) a({"x":"]}\""})"#);
        check(br#"{"actions":{"\u0061":7}}"#, RequestPart::Whole, "a(7)");
    }

    #[test]
    fn errors_name_the_problem() {
        let check =
            |json: &str, expected: &str| check(json.as_bytes(), RequestPart::Whole, expected);
        let syntax = "the request is not JSON: ";
        check("", &format!("{syntax}EOF while parsing a value at line 1 column 0"));
        check("{", &format!("{syntax}EOF while parsing an object at line 1 column 1"));
        check(
            r#"{"actions":{"a":{}}}}"#,
            &format!("{syntax}trailing characters at line 1 column 21"),
        );
        let data = "the request is not as expected: ";
        check(
            "[]",
            &format!(
                "{data}invalid type: sequence, expected an object with the member `actions` at line 1 column 0"
            ),
        );
        check("{}", &format!("{data}missing field `actions` at line 1 column 2"));
        check(
            r#"{"action":{}}"#,
            &format!("{data}unknown member `action`, expected `actions` at line 1 column 9"),
        );
        check(
            r#"{"actions":[]}"#,
            &format!(
                "{data}invalid type: sequence, expected an object that holds the arguments of each action under its name at line 1 column 11"
            ),
        );
        check(
            r#"{"actions":{"a":{},"b":{},"a":{}}}"#,
            &format!("{data}the action `a` is named twice at line 1 column 29"),
        );
        check(
            r#"{"actions":{"a":{}},"actions":{}}"#,
            &format!("{data}duplicate field `actions` at line 1 column 29"),
        );
        check(
            r#"{"actions":{"a":1,"b":1,"c":1,"d":1}}"#,
            &format!(
                "{data}more than 3 actions, the most that one request may have at line 1 column 33"
            ),
        );
        check(r#"{"actions":{}}"#, "the request has no action, expected one");
    }

    #[test]
    fn not_utf8() {
        check(
            b"{\"actions\":{\"a\xff\":{}}}",
            RequestPart::Whole,
            "the request is not UTF-8 from byte 14 on, expected JSON",
        );
    }

    #[test]
    fn depth_is_bounded_however_large_the_request() {
        let nested = |levels: usize| {
            format!("{{\"actions\":{{\"a\":{}{}}}}}", "[".repeat(levels), "]".repeat(levels))
        };
        let deep = nested(DEPTH_MAX - 2);
        assert!(Calls::parse(deep.as_bytes(), RequestPart::Whole, 3).is_ok());
        for levels in [DEPTH_MAX - 1, 1_000_000] {
            check(
                nested(levels).as_bytes(),
                RequestPart::Whole,
                "the JSON is nested deeper than 32 levels, the most that is accepted",
            );
        }
        assert_eq!(depth(r#"{"[[[\"[[[":"[[["}"#), 1, "strings do not count");
    }
}
