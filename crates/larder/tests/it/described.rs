//! What the OpenAPI documents describe: `/openapi.json` for programs, and that of the pages, their forms and feeds.

use serde_json::{Map, Value};

use crate::client::Client;

/// The two documents of everybody's listener.
pub(crate) const DOCUMENTS: [&str; 2] = ["/openapi.json", "/docs/openapi-pages.json"];

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// The operations of both documents: path -> method -> operation. `HEAD` is described wherever `GET` is; other paths that answer
/// the same are in `x-also` of a path.
pub(crate) fn operations(client: &Client) -> Map<String, Value> {
    let mut all = Map::new();
    for document in DOCUMENTS.map(|path| client.get(path).json()) {
        add(&mut all, &document);
    }
    all
}

/// The other paths that answer as this one does.
pub(crate) fn also(item: &Value) -> impl Iterator<Item = &str> {
    let paths = item["x-also"].as_array().into_iter().flatten();
    paths.map(|path| path.as_str().expect("a path"))
}

/// Adds the operations of a document.
pub(crate) fn add(all: &mut Map<String, Value>, document: &Value) {
    for (path, item) in document["paths"].as_object().expect("paths") {
        // An upload has a path of its own, with a slash, since a push is described without one.
        let path = if path == "/{user}/{index}/" { "/{user}/{index}" } else { path };
        let known = all.entry(path).or_insert_with(|| Map::new().into());
        for key in METHODS.into_iter().chain(["x-also"]) {
            if let Some(value) = item.get(key) {
                known[key] = value.clone();
            }
        }
    }
}

/// Every media type that a content of `value` may have, in their order.
fn contents<'a>(value: &'a Value, found: &mut Vec<Vec<&'a str>>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_object() {
                    Some(types) if name == "content" && types.keys().all(|it| it.contains('/')) => {
                        found.push(types.keys().map(String::as_str).collect());
                    }
                    _ => contents(member, found),
                }
            }
        }
        Value::Array(members) => members.iter().for_each(|member| contents(member, found)),
        _ => {}
    }
}

/// Generators name functions after operations, and take the first media type that they know.
#[test]
fn operations_have_names_of_their_own_and_json_comes_first() {
    let server = crate::server::TestServer::serving(&crate::catalogue::small());
    for document in DOCUMENTS.map(|path| server.get(path).json()) {
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                if ["x-also", "parameters"].contains(&method.as_str()) {
                    continue;
                }
                assert!(
                    METHODS.contains(&method.as_str()),
                    "{method} {path} says no more than GET"
                );
                let name = operation["operationId"].as_str().unwrap_or_default();
                assert!(!name.is_empty(), "{method} {path} has no operationId");
                assert!(names.insert(name.to_owned()), "{method} {path}: {name} is another's");
            }
        }
        let mut found = Vec::new();
        contents(&document, &mut found);
        assert!(found.len() > 50, "{found:?}");
        for types in found {
            let is_json = |kind: &&str| kind.ends_with("json");
            assert!(types[0] != "text/html" || !types.iter().any(is_json), "{types:?}");
        }
    }
}
