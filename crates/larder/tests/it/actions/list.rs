//! `GET /actions`, against what the actions do.

use serde_json::{Value, json};

use super::post;
use crate::server::small;

#[test]
fn every_example_works() {
    let list = small().get("/actions").json();
    let actions = list["actions"].as_array().expect("actions");
    assert!(actions.len() >= 6, "{list}");
    assert_eq!(list["actions_per_request_max"], 100);
    assert_eq!(list["body_bytes_max"], 1 << 20);
    for action in actions {
        // Actions of articles need one: see the tests beside theirs.
        if action["name"].as_str().is_some_and(|name| name.starts_with("article.")) {
            continue;
        }
        post(&action["example"].to_string()).expect(200);
        let summary = action["summary"].as_str().expect("a summary");
        assert!(summary.ends_with('.'), "{summary}");
    }
}

#[test]
fn arguments_are_as_listed() {
    let list = small().get("/actions").json();
    for action in list["actions"].as_array().expect("actions") {
        let name = action["name"].as_str().expect("a name");
        let example = &action["example"]["actions"][name];
        for argument in action["arguments"].as_array().expect("arguments") {
            let key = argument["name"].as_str().expect("a name");
            let ask = |arguments: &Value| post(&json!({"actions": {name: arguments}}).to_string());
            let mut without = example.clone();
            without.as_object_mut().expect("an object").remove(key);
            let status = ask(&without).status;
            // One of the two is required, so neither alone is.
            if (name, key) == ("article.put", "text") {
                assert_eq!((status, &argument["required"]), (400, &json!(false)));
                continue;
            }
            assert_eq!(
                status == 400,
                argument["required"] == true,
                "{name} without {key}: {status}"
            );
            let mut mistyped = example.clone();
            mistyped[key] = json!({"no": "such type"});
            assert_eq!(ask(&mistyped).status, 400, "{name} with an object for {key}");
        }
        let flags = (&action["computes"], &action["writes"]);
        let writes = matches!(name, "article.put" | "article.rename");
        assert_eq!(flags, (&json!(name == "example.fibonacci"), &json!(writes)), "{name}");
    }
}

#[test]
fn the_list_is_tagged() {
    let first = small().get("/actions");
    let tag = first.find("etag").expect("a tag");
    small().client.get_with("/actions", &[("If-None-Match", tag)]).expect(304);
}
