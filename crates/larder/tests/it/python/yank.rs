//! Yanks, a project's status, and removing by a rule.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Index, path, result, sdist};
use crate::asking::{Says as _, each};
use crate::shown::shown_json;

/// Where the first release is yanked.
const YANK: &str = "/alice/final/p/1.0/+yank";

/// An index where nothing may be replaced, with two releases, and one that inherits them; and the file of the second.
fn released() -> (Index, String) {
    let index = Index::start();
    index.stage("alice/final", json!({"volatile": false}));
    index.stage("bob/dev", json!({"bases": ["alice/final"]}));
    for filename in ["p-1.0.zip", "p-2.0.zip"] {
        index.upload("alice/final", filename, &sdist("x"));
    }
    (index, path("alice/final", "p-2.0.zip", &sdist("x")))
}

/// Number of files on the page of the inheriting index with this text.
fn count(index: &Index, text: &str) -> usize {
    index.page("bob/dev", "p").matches(text).count()
}

#[test]
fn yanks_are_for_those_who_may_upload() {
    let (index, file) = released();
    for target in [YANK, &format!("{file}/+yank")] {
        for ask in [index.anybody(), index.user("bob")] {
            ask.post(target, ()).expect(403);
        }
        index.alice().get(target).expect(405);
    }
    assert_eq!(count(&index, "data-yanked"), 0);
}

#[test]
fn yanks_are_seen_at_once_also_where_nothing_may_be_replaced() {
    let (index, file) = released();
    let by_file = format!("{file}/+yank");
    let done = index.alice().post(YANK, json!({"reason": "broken <b>"}));
    done.message(200, "project 'p' version '1.0' yanked");
    index.page("bob/dev", "p").says("data-yanked=\"broken &lt;b&gt;\"");
    index.alice().post(&by_file, ()).message(200, &format!("package '{}' yanked", &file[1..]));
    assert_eq!(count(&index, "data-yanked"), 2);
    let undone = index.alice().delete(YANK);
    undone.message(200, "project 'p' version '1.0' no longer yanked");
    let undone = index.alice().delete(&by_file);
    undone.message(200, &format!("package '{}' no longer yanked", &file[1..]));
    assert_eq!(count(&index, "data-yanked"), 0);
    // The bytes stay where they are.
    assert_eq!(index.get(&file).body, sdist("x"));
}

#[test]
fn a_reason_may_be_said_in_the_url() {
    let (index, file) = released();
    let by_file = format!("{file}/+yank");
    for (target, body, expected) in [
        (format!("{YANK}?reason=too%20old"), Value::Null, 1),
        (format!("{by_file}?reason=too+old"), json!({"reason": "too old"}), 2),
    ] {
        index.alice().post(&target, body).expect(200);
        assert_eq!(count(&index, "data-yanked=\"too old\""), expected, "{target}");
    }
    for target in [YANK, &by_file] {
        index.alice().delete(target).expect(200);
    }
}

#[test]
fn yanks_that_are_refused() {
    let (index, _) = released();
    let none = "alice/final/+f/abc/0123456789abc/p-2.0.zip";
    let line = "'reason' was expected to be one line of at most 1000 bytes";
    each(
        [
            (
                &*format!("{YANK}?reason=a"),
                json!({"reason": "b"}),
                400,
                "'reason' is in the URL and in the body, and not the same",
            ),
            (&*format!("{YANK}?reason=a%0Ab"), json!(null), 400, line),
            (YANK, json!({"reason": "two\nlines"}), 400, line),
            (YANK, json!({"why": ""}), 400, "'why' is not known here: expected are reason"),
            (YANK, json!([]), 400, "the body was expected to be a JSON object"),
            (
                "/alice/final/p/9/+yank",
                json!(null),
                404,
                "The version 9 of project p does not exist.",
            ),
            ("/alice/none/p/9/+yank", json!(null), 404, "The stage alice/none could not be found."),
            (
                &format!("/{none}/+yank"),
                json!(null),
                404,
                &format!("package '{none}' doesn't exist"),
            ),
        ],
        |(target, body, status, text)| {
            index.alice().json().post(target, body).message(status, text)
        },
    );
}

#[test]
fn a_version_is_meant_in_any_spelling() {
    let index = Index::with_dev();
    index.stage("alice/prod", json!({}));
    for version in ["2025.09.4", "1.0.0", "1.0", "3.4.post1"] {
        index.upload("alice/dev", &format!("p-{version}.zip"), &sdist(version));
    }
    let of = |version: &str| {
        let shown = index.anybody().json().get(&format!("/alice/dev/p/{version}"));
        (shown.status, shown.json()["result"]["version"].as_str().unwrap_or_default().to_owned())
    };
    for (wanted, meant) in [
        ("2025.9.4", "2025.09.4"),
        ("1.0", "1.0"),
        ("v1", "1.0.0"),
        ("1.0.0", "1.0.0"),
        ("3.4-1", "3.4.post1"),
    ] {
        assert_eq!(of(wanted), (200, meant.to_owned()), "{wanted}");
        index
            .anybody()
            .with("Accept", "text/html")
            .get(&format!("/alice/dev/p/{wanted}"))
            .expect(200);
    }
    for wanted in ["1.0.1", "3.4", "2025.9", "1.0+x"] {
        assert_eq!(of(wanted).0, 404, "{wanted}");
    }
    let reason = json!({"reason": "broken"});
    index.alice().post("/alice/dev/p/2025.9.4/+yank", reason).expect(200);
    index.page("alice/dev", "p").says("data-yanked=\"broken\"");
    let order = json!({"name": "p", "version": "3.4-1", "targetindex": "alice/prod"});
    index.alice().post("/alice/dev", order).expect(200);
    assert_eq!(index.files("alice/prod", "p"), ["p-3.4.post1.zip"]);
    index.alice().delete("/alice/dev/p/2025.9.4").expect(200);
    assert_eq!(of("2025.09.4").0, 404);
}

#[test]
fn a_projects_status() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let target = "/alice/dev/p/+status";
    let status = |response: &super::Response| result(response, "projectstatus");
    assert_eq!(status(&index.anybody().get(target)), json!({"status": "active"}));
    let archived = json!({"status": "archived", "reason": "done"});
    index.user("bob").put(target, archived.clone()).expect(403);
    assert_eq!(status(&index.alice().send("PUT", target, archived.clone())), archived);
    assert_eq!(status(&index.anybody().get(target)), archived);
    let json = index
        .anybody()
        .with("Accept", "application/vnd.pypi.simple.v1+json")
        .get("/alice/dev/+simple/p/")
        .json();
    assert_eq!(json["project-status"], archived);
    assert_eq!(
        status(&index.alice().send("POST", target, json!({"status": "quarantined"}))),
        json!({"status": "quarantined"})
    );
    index.page("alice/dev", "p").lacks("p-1.0.zip");
    let refused = index.alice().put(target, json!({"status": "gone"}));
    refused.message(400, "'status' was expected to be active, archived, quarantined or deprecated");
    assert_eq!(
        status(&index.alice().send("DELETE", target, Value::Null)),
        json!({"status": "active"})
    );
    assert_eq!(index.files("alice/dev", "p"), ["p-1.0.zip"]);
    index.anybody().get("/alice/dev/none/+status").message(404, "project not found");
}

#[test]
fn old_versions_go_by_the_rule() {
    let index = Index::with_dev();
    for version in ["1.0", "1.1", "1.10", "1.9"] {
        index.upload("alice/dev", &format!("p-{version}.zip"), &sdist(version));
    }
    let target = "/alice/dev/+retention";
    let post = |target: &str, body: Value| index.alice().post(target, body);
    for wrong in [Value::Null, json!({"versions": 0}), json!({"versions": "x"})] {
        post(target, wrong).expect(400);
    }
    index.user("bob").post(target, json!({"versions": 1})).expect(403);
    let dry = result(&post(&format!("{target}?dry_run"), json!({"versions": 2})), "retention");
    assert_snapshot!("retention_dry_run", shown_json(&dry));
    assert_eq!(index.files("alice/dev", "p").len(), 4);
    index.alice().patch("/alice/dev", json!(["retention_versions=3"])).expect(200);
    assert_snapshot!("retention", shown_json(&result(&post(target, Value::Null), "retention")));
    assert_eq!(index.files("alice/dev", "p"), ["p-1.1.zip", "p-1.10.zip", "p-1.9.zip"]);
    // No version is that old.
    let none = result(&post(target, json!({"days": 1})), "retention");
    assert_eq!(none["removals"], json!([]));
}
