//! The log of an index: who did what, for those who may read it.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Index, path, result, sdist};
use crate::asking::{Ask, Says as _, line};
use crate::shown::shown;

/// The lines of a log, in words.
#[track_caller]
fn lines(asking: Ask, target: &str) -> Vec<String> {
    let found = result(&asking.json().get(target), "log");
    let line = |item: &Value| {
        let names = item["names"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = ["by", "through", "what", "project", "version", "file", "from", "reason"];
        let said = named.iter().filter_map(|member| item[*member].as_str());
        let said = said.chain(names.iter().filter_map(Value::as_str));
        assert!(item["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{item}");
        said.collect::<Vec<_>>().join(" ")
    };
    found["items"].as_array().expect("lines").iter().map(line).collect()
}

/// An index with one release, for which carl may do all that uploaders may.
fn started() -> Index {
    let index = Index::start();
    index.root().put("/carl", json!({"password": "open-sesame"})).expect(201);
    index.stage("alice/dev", json!({"acl_upload": ["alice", "bob"]}));
    index.stage("alice/prod", json!({"acl_upload": ["alice", "bob"]}));
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    index.upload("alice/dev", "p-2.0.zip", &sdist("y"));
    index
}

#[test]
fn every_change_has_a_line_with_who_and_why() {
    let index = started();
    let bob = || index.user("bob");
    bob().post("/alice/dev/p/1/+yank", json!({"reason": "broken <b>"})).expect(200);
    bob().delete("/alice/dev/p/1.0/+yank").expect(200);
    let file = path("alice/dev", "p-2.0.zip", &sdist("y"));
    bob().post(&format!("{file}/+yank"), ()).expect(200);
    bob().put("/alice/dev/p/+status", json!({"status": "archived", "reason": "done"})).expect(200);
    bob().delete(&file).expect(200);
    index.alice().patch("/alice/dev", json!({"title": "Team", "acl_read": ["alice"]})).expect(200);
    index.alice().patch("/alice/dev", json!({"acl_read": [":ANONYMOUS:"]})).expect(200);
    let push = json!({"name": "p", "version": "1.0", "targetindex": "alice/prod"});
    bob().send("PUSH", "/alice/dev", push).expect(200);
    bob().delete("/alice/prod/p/1.0").expect(200);
    let expected = [
        "alice settings acl_read",
        "alice settings acl_read title",
        "bob removed p p-2.0.zip",
        "bob status p done archived",
        "bob yanked p p-2.0.zip",
        "bob unyanked p 1.0",
        "bob yanked p 1.0 broken <b>",
        "alice created",
    ];
    assert_eq!(lines(index.anybody(), "/alice/dev/+log"), expected);
    let expected = ["bob removed p 1.0", "bob pushed p 1.0 alice/dev", "alice created"];
    assert_eq!(lines(index.anybody(), "/alice/prod/+log"), expected);
    // A change that changes nothing has no line, nor has one that is refused.
    index.alice().patch("/alice/prod", json!({"volatile": true})).expect(200);
    index.user("carl").delete("/alice/dev/p/1.0").expect(403);
    assert_eq!(lines(index.anybody(), "/alice/prod/+log").len(), 3);
}

#[test]
fn people_read_the_log_on_a_page() {
    let index = started();
    let bob = index.user("bob");
    bob.post("/alice/dev/p/1/+yank", json!({"reason": "broken <b>"})).expect(200);
    bob.put("/alice/dev/p/+status", json!({"status": "archived", "reason": "done"})).expect(200);
    assert_snapshot!("log", shown(&index.browse("/alice/dev/+log").html()));
    index.browse("/alice/dev").expect(200).says("href=\"/alice/dev/+log\"");
}

#[test]
fn the_page_of_a_project_says_who_yanked_and_who_set_the_status() {
    let index = started();
    let page = || shown(&index.browse("/alice/dev/p/1.0").html());
    page().lacks("was yanked");
    index.user("bob").post("/alice/dev/p/1.0/+yank", json!({"reason": "bad"})).expect(200);
    assert_eq!(
        line(&page(), "This version was"),
        "This version was yanked: installers take it only where it is asked for by its number. By bob, TIME: “bad”"
    );
    index.alice().delete("/alice/dev/p/1.0/+yank").expect(200);
    index.alice().post("/alice/dev/p/1.0/+yank", ()).expect(200);
    assert_eq!(
        line(&page(), "This version was"),
        "This version was yanked: installers take it only where it is asked for by its number. By alice, TIME."
    );
    page().says("+log?project=p");
    let status = json!({"status": "deprecated"});
    index.user("bob").put("/alice/dev/p/+status", status).expect(200);
    assert_eq!(
        line(&page(), "This project is"),
        "This project is deprecated: something else should be used. Set by bob, TIME."
    );
}

#[test]
fn it_comes_in_parts_and_of_one_project() {
    let index = started();
    index.upload("alice/dev", "q-1.0.zip", &sdist("z"));
    for reason in ["a", "b", "c"] {
        index.alice().post("/alice/dev/p/1.0/+yank", json!({"reason": reason})).expect(200);
        index.alice().post("/alice/dev/q/1.0/+yank", json!({"reason": reason})).expect(200);
    }
    let of_q = lines(index.anybody(), "/alice/dev/+log?project=Q");
    assert_eq!(of_q, ["alice yanked q 1.0 c", "alice yanked q 1.0 b", "alice yanked q 1.0 a"]);
    let (mut before, mut all) = (String::new(), Vec::new());
    loop {
        let target = format!("/alice/dev/+log?limit=3{before}");
        all.extend(lines(index.anybody(), &target));
        let found = result(&index.anybody().json().get(&target), "log");
        let Some(next) = found["next"].as_u64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!((all.len(), all.last().map(String::as_str)), (7, Some("alice created")));
    let page = index.browse("/alice/dev/+log?limit=3").expect(200);
    page.says("rel=\"next\">Older lines");
    for (query, says) in [
        (
            "limit=0",
            "`0` is no value of the parameter `limit`: expected a whole number from 1 to 200",
        ),
        (
            "limit=201",
            "`201` is no value of the parameter `limit`: expected a whole number from 1 to 200",
        ),
        (
            "before=x",
            "`x` is no value of the parameter `before`: expected a whole number from 1 to 18446744073709551615",
        ),
    ] {
        let target = format!("/alice/dev/+log?{query}");
        index.anybody().json().get(&target).tells(400, says);
    }
}

#[test]
fn nobody_learns_more_than_they_may_read() {
    let index = started();
    index.upload("alice/dev", "q-1.0.zip", &sdist("z"));
    for target in ["/alice/dev/p/1.0/+yank", "/alice/dev/q/1.0/+yank"] {
        index.user("bob").post(target, ()).expect(200);
    }
    let push = json!({"name": "p", "version": "1.0", "targetindex": "alice/prod"});
    index.user("bob").send("PUSH", "/alice/dev", push).expect(200);
    // What everybody may read, a limited token may read as well.
    index.alice().patch("/alice/dev", json!({"acl_read": ["alice"]})).expect(200);
    let wish = json!({"scopes": ["python:read"], "projects": ["q"], "expires": null});
    let token = index.alice().make_token(wish);
    assert_eq!(lines(index.server.bearer(&token), "/alice/dev/+log"), ["bob yanked q 1.0"]);
    for accept in ["application/json", "text/html"] {
        let anybody = index.anybody().accept(accept).get("/alice/dev/+log").expect(401);
        anybody.lacks(["bob", "yanked"]);
        index.user("carl").accept(accept).get("/alice/dev/+log").expect(403).lacks("yanked");
    }
    assert_eq!(lines(index.alice(), "/alice/dev/+log").len(), 4);
    // Where the release came from is not for those who may not see that index.
    let pushed = lines(index.anybody(), "/alice/prod/+log");
    assert_eq!(pushed, ["bob pushed p 1.0", "alice created"]);
    let page = index.browse("/alice/prod/+log").expect(200);
    page.says("<b>bob</b> pushed").lacks("alice/dev");
}

#[test]
fn a_log_ends_with_its_index() {
    let index = started();
    index.alice().post("/alice/dev/p/1.0/+yank", json!({"reason": "secret"})).expect(200);
    index.alice().delete("/alice/dev").expect(201);
    index.anybody().json().get("/alice/dev/+log").expect(404);
    index.stage("alice/dev", json!({}));
    assert_eq!(lines(index.anybody(), "/alice/dev/+log"), ["alice created"]);
}
