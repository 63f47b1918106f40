//! When an answer of ours is the same as one of aurweb.

use serde_json::Value;

/// Removes what a dump cannot know from aurweb's answer, and orders the results on both sides by name.
fn comparable(mut answer: Value) -> Value {
    if let Some(results) = answer.get_mut("results").and_then(Value::as_array_mut) {
        for record in results.iter_mut().filter_map(Value::as_object_mut) {
            record.remove("PendingRequests");
        }
        results.sort_by_key(|record| record["Name"].as_str().unwrap_or_default().to_owned());
    }
    answer
}

/// The function call around JSONP, and the JSON in it.
fn split_jsonp(body: &str) -> (Option<&str>, &str) {
    let call = body.strip_prefix("/**/").and_then(|call| call.strip_suffix(')'));
    match call
        .and_then(|call| call.find("({").or_else(|| call.find("([")).map(|at| call.split_at(at)))
    {
        Some((name, json)) => (Some(name), &json[1..]),
        None => (None, body),
    }
}

/// Whether two bodies say the same: of JSON the values, in the same call if there is one.
pub(crate) fn is_same(expected: &str, found: &str) -> bool {
    let (expected_call, expected_json) = split_jsonp(expected);
    let (found_call, found_json) = split_jsonp(found);
    expected_call == found_call
        && match (serde_json::from_str(expected_json), serde_json::from_str(found_json)) {
            (Ok(expected), Ok(found)) => comparable(expected) == comparable(found),
            _ => expected == found,
        }
}
