//! Requests of many actions; the first byte chooses the form.

#![no_main]

use larder::protocols::actions::request::{Calls, DEPTH_MAX, RequestPart};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const CALLS_MAX: usize = 5;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, json)) = data.split_first() else { return };
    let form = if choice % 2 == 0 { RequestPart::Whole } else { RequestPart::Inner };
    match Calls::parse(json, form, CALLS_MAX) {
        Ok(Calls(calls)) => {
            assert!((1..=CALLS_MAX).contains(&calls.len()));
            // Another reader finds the same calls. Numbers out of its range, and halves of characters, are told by who
            // reads the arguments.
            let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
            let actions = if form == RequestPart::Whole { &value["actions"] } else { &value };
            let actions = actions.as_object().expect("an object of actions");
            assert_eq!(actions.len(), calls.len(), "no name occurs twice");
            for call in &calls {
                let arguments: Value = serde_json::from_str(call.arguments.get()).expect("JSON");
                assert_eq!(actions[&call.name], arguments);
                assert!(depth(&arguments) < DEPTH_MAX);
            }
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && error.len() < 2_000, "{error}");
        }
    }
});

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}
