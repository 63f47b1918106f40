//! Yanks, a project's status, and removing by a rule.

use serde_json::{Value, json};

use super::{Index, check_message, path, result, sdist};

#[test]
fn yanks_are_seen_at_once_also_where_nothing_may_be_replaced() {
    let index = Index::start();
    index.stage("alice/final", json!({"volatile": false}));
    index.stage("bob/dev", json!({"bases": ["alice/final"]}));
    let content = sdist("x");
    index.upload("alice/final", "p-1.0.zip", &content);
    index.upload("alice/final", "p-2.0.zip", &content);
    let release = "/alice/final/p/1.0/+yank";
    let file = path("alice/final", "p-2.0.zip", &content);
    let by_file = format!("{file}/+yank");
    for target in [release, &by_file] {
        for ask in [index.anybody(), index.user("bob")] {
            assert_eq!(ask.send("POST", target, Value::Null).status, 403, "{target}");
        }
        assert_eq!(index.alice().get(target).status, 405, "{target}");
    }
    assert!(!index.page("bob/dev", "p").contains("data-yanked"));
    let done = index.alice().send("POST", release, json!({"reason": "broken <b>"}));
    check_message(&done, 200, "project 'p' version '1.0' yanked");
    let page = index.page("bob/dev", "p");
    assert!(page.contains("data-yanked=\"broken &lt;b&gt;\""), "{page}");
    check_message(
        &index.alice().send("POST", &by_file, Value::Null),
        200,
        &format!("package '{}' yanked", &file[1..]),
    );
    assert_eq!(index.page("bob/dev", "p").matches("data-yanked").count(), 2);
    check_message(
        &index.alice().send("DELETE", release, Value::Null),
        200,
        "project 'p' version '1.0' no longer yanked",
    );
    check_message(
        &index.alice().send("DELETE", &by_file, Value::Null),
        200,
        &format!("package '{}' no longer yanked", &file[1..]),
    );
    assert!(!index.page("bob/dev", "p").contains("data-yanked"));
    // The bytes stay where they are.
    assert_eq!(index.anybody().get(&file).body, content);

    // A reason may be said in the URL.
    let reasons =
        |index: &Index| index.page("bob/dev", "p").matches("data-yanked=\"too old\"").count();
    for (target, body, count) in [
        (format!("{release}?reason=too%20old"), Value::Null, 1),
        (format!("{by_file}?reason=too+old"), json!({"reason": "too old"}), 2),
    ] {
        assert_eq!(index.alice().send("POST", &target, body).status, 200, "{target}");
        assert_eq!(reasons(&index), count, "{target}");
    }
    let other =
        index.alice().json().send("POST", &format!("{release}?reason=a"), json!({"reason": "b"}));
    check_message(&other, 400, "'reason' is in the URL and in the body, and not the same");
    let control =
        index.alice().json().send("POST", &format!("{release}?reason=a%0Ab"), Value::Null);
    check_message(&control, 400, "'reason' was expected to be one line of at most 1000 bytes");
    for target in [release, &by_file] {
        assert_eq!(index.alice().send("DELETE", target, Value::Null).status, 200);
    }

    let post = |target: &str, body: Value| index.alice().json().send("POST", target, body);
    check_message(
        &post("/alice/final/p/9/+yank", Value::Null),
        404,
        "The version 9 of project p does not exist.",
    );
    check_message(
        &post("/alice/none/p/9/+yank", Value::Null),
        404,
        "The stage alice/none could not be found.",
    );
    check_message(
        &post(release, json!({"why": ""})),
        400,
        "'why' is not known here: expected are reason",
    );
    check_message(
        &post(release, json!({"reason": "two\nlines"})),
        400,
        "'reason' was expected to be one line of at most 1000 bytes",
    );
    check_message(&post(release, json!([])), 400, "the body was expected to be a JSON object");
    let none = "/alice/final/+f/abc/0123456789abc/p-2.0.zip";
    check_message(
        &post(&format!("{none}/+yank"), Value::Null),
        404,
        &format!("package '{}' doesn't exist", &none[1..]),
    );
}

#[test]
fn a_version_is_meant_in_any_spelling() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
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
        let page =
            index.anybody().with("Accept", "text/html").get(&format!("/alice/dev/p/{wanted}"));
        assert_eq!(page.status, 200, "{wanted}");
    }
    for wanted in ["1.0.1", "3.4", "2025.9", "1.0+x"] {
        assert_eq!(of(wanted).0, 404, "{wanted}");
    }
    let reason = json!({"reason": "broken"});
    assert_eq!(index.alice().send("POST", "/alice/dev/p/2025.9.4/+yank", reason).status, 200);
    assert!(index.page("alice/dev", "p").contains("data-yanked=\"broken\""));
    let order = json!({"name": "p", "version": "3.4-1", "targetindex": "alice/prod"});
    let pushed = index.alice().send("POST", "/alice/dev", order);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    assert!(index.page("alice/prod", "p").contains("p-3.4.post1.zip"));
    assert_eq!(index.alice().send("DELETE", "/alice/dev/p/2025.9.4", Value::Null).status, 200);
    assert_eq!(of("2025.09.4").0, 404);
}

#[test]
fn a_projects_status() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let target = "/alice/dev/p/+status";
    let status = |response: &super::Response| result(response, "projectstatus");
    assert_eq!(status(&index.anybody().get(target)), json!({"status": "active"}));
    let archived = json!({"status": "archived", "reason": "done"});
    assert_eq!(index.user("bob").send("PUT", target, archived.clone()).status, 403);
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
    assert!(!index.page("alice/dev", "p").contains("p-1.0.zip"));
    let wrong = index.alice().send("PUT", target, json!({"status": "gone"}));
    check_message(
        &wrong,
        400,
        "'status' was expected to be active, archived, quarantined or deprecated",
    );
    assert_eq!(
        status(&index.alice().send("DELETE", target, Value::Null)),
        json!({"status": "active"})
    );
    assert!(index.page("alice/dev", "p").contains("p-1.0.zip"));
    check_message(&index.anybody().get("/alice/dev/none/+status"), 404, "project not found");
}

#[test]
fn old_versions_go_by_the_rule() {
    let index = Index::start();
    index.stage("alice/dev", json!({}));
    for version in ["1.0", "1.1", "1.10", "1.9"] {
        index.upload("alice/dev", &format!("p-{version}.zip"), &sdist(version));
    }
    let target = "/alice/dev/+retention";
    let post = |target: &str, body: Value| index.alice().send("POST", target, body);
    assert_eq!(post(target, Value::Null).status, 400);
    assert_eq!(post(target, json!({"versions": 0})).status, 400);
    assert_eq!(post(target, json!({"versions": "x"})).status, 400);
    assert_eq!(index.user("bob").send("POST", target, json!({"versions": 1})).status, 403);
    let removed = |plan: &Value| {
        let removals = plan["removals"].as_array().expect("removals").clone();
        removals
            .iter()
            .map(|it| it["version"].as_str().expect("a version").to_owned())
            .collect::<Vec<_>>()
    };
    let dry = result(&post(&format!("{target}?dry_run"), json!({"versions": 2})), "retention");
    assert_eq!(
        (removed(&dry), &dry["dry_run"]),
        (vec!["1.0".to_owned(), "1.1".to_owned()], &json!(true))
    );
    assert!(dry["size"].as_u64().is_some_and(|size| size > 0));
    assert!(index.page("alice/dev", "p").contains("p-1.0.zip"));
    let set = index.alice().send("PATCH", "/alice/dev", json!(["retention_versions=3"]));
    assert_eq!(set.status, 200, "{}", set.text());
    let done = result(&post(target, Value::Null), "retention");
    assert_eq!(removed(&done), ["1.0"]);
    let page = index.page("alice/dev", "p");
    assert!(!page.contains("p-1.0.zip") && page.contains("p-1.1.zip"), "{page}");
    // No version is that old.
    assert_eq!(
        removed(&result(&post(target, json!({"days": 1})), "retention")),
        Vec::<String>::new()
    );
}
