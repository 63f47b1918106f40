//! The tables of actions: complete, readable, and equal to the OpenAPI document.

use std::collections::BTreeSet;

use serde_json::{Value, value::RawValue};

use super::arguments::ArgumentKind;
use super::*;

fn all() -> impl Iterator<Item = &'static Definition> {
    TABLES.iter().flat_map(|(_, actions)| *actions)
}

#[test]
fn names_are_unique_and_begin_with_their_surface() {
    let names: Vec<&str> = all().map(|action| action.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    assert!(names.iter().all(|name| name.split('.').count() == 2), "{names:?}");
    assert!(names.len() >= 6, "{names:?}");
}

#[test]
fn examples_name_known_arguments_and_all_that_are_required() {
    for action in all() {
        let example = example(action);
        let given: BTreeSet<&str> =
            example.as_object().expect("an object").keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = action.arguments.iter().map(|argument| argument.name).collect();
        assert!(given.is_subset(&known), "{}: {given:?}", action.name);
        for argument in action.arguments.iter().filter(|argument| argument.is_required) {
            assert!(given.contains(argument.name), "{}: {}", action.name, argument.name);
            assert!(argument.meaning().ends_with('.'), "{}: {}", action.name, argument.name);
        }
    }
}

/// The schema that the OpenAPI document should have for an action's arguments.
fn schema(action: &Definition) -> Value {
    let properties: serde_json::Map<String, Value> = action
        .arguments
        .iter()
        .map(|argument| {
            let mut schema = match argument.kind {
                ArgumentKind::Text => json!({"type": "string"}),
                ArgumentKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
                ArgumentKind::Whole => json!({"type": "integer", "minimum": 0}),
            };
            schema["description"] = argument.meaning().into();
            (argument.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = action
        .arguments
        .iter()
        .filter(|argument| argument.is_required)
        .map(|argument| argument.name)
        .collect();
    let mut schema = json!({
        "type": "object", "description": action.summary, "properties": properties, "additionalProperties": false,
        "examples": [example(action)],
    });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

#[test]
fn the_openapi_document_equals_the_tables() {
    let document: Value =
        serde_json::from_str(include_str!("../../../templates/openapi.json")).expect("JSON");
    let described = &document["components"]["schemas"]["ActionArguments"]["properties"];
    let tables: Value = all().map(|action| (action.name.to_owned(), schema(action))).collect();
    assert_eq!(*described, tables, "it should be:\n{tables:#}");
}

#[test]
fn arguments_are_refused_by_name() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "names")]
        _names: Vec<String>,
        #[serde(rename = "n")]
        _n: Option<u32>,
    }
    #[track_caller]
    fn check(json: &str, expected: &str) {
        let json: &RawValue = serde_json::from_str(json).expect("JSON");
        let refused = Arguments::new(json).read::<Sample>().expect_err("it does not fit");
        assert_eq!((refused.status, refused.message.as_str()), (StatusCode::BAD_REQUEST, expected));
    }
    check("[]", "`[]`, expected an object of arguments");
    check("null", "`null`, expected an object of arguments");
    check("{}", "missing field `names`");
    check(r#"{"names":"x"}"#, "`names`: invalid type: string \"x\", expected an array");
    check(r#"{"names":["x",7]}"#, "`names[1]`: invalid type: integer `7`, expected a string");
    check(
        r#"{"names":[],"n":-1}"#,
        "`n`: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
    );
    check(r#"{"names":[],"names":[]}"#, "duplicate field `names`");
    check(r#"{"names":[],"m":1}"#, "`m`: unknown field `m`, expected `names` or `n`");
    let long = "x".repeat(100_000);
    let json = format!("{{\"{long}\":1}}");
    let json: &RawValue = serde_json::from_str(&json).expect("JSON");
    let refused = Arguments::new(json).read::<Sample>().expect_err("it does not fit");
    assert!(refused.message.len() < 1000, "{} bytes", refused.message.len());
    let json = format!("{{\"names\":[],\"n\":\"{long}\"}}");
    let json: &RawValue = serde_json::from_str(&json).expect("JSON");
    let refused = Arguments::new(json).read::<Sample>().expect_err("it does not fit").message;
    assert!(refused.len() < 1000, "{} bytes", refused.len());
    assert!(refused.ends_with("expected a whole number from 0 to 4294967295"), "{refused}");
}
