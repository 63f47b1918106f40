//! The audit log: refusals, exceptions, and what its readers may not see.

use std::io::{Read as _, Write as _};

use insta::assert_snapshot;

use super::super::Ask;
use super::*;
use crate::asking::line;
use crate::shown::{shown, shown_json};

/// The entries of an audit log, newest first: event, file, rule, and reason.
pub(super) fn audit(answer: &Response) -> Vec<[String; 4]> {
    let json = answer.json();
    assert_eq!((answer.status, &json["type"]), (200, &json!("audit")), "{json}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = json["result"]["items"].as_array().expect("entries").iter();
    items.map(|it| ["event", "what", "rule", "reason"].map(|key| text(&it[key]))).collect()
}

#[test]
fn the_audit_log_says_who_was_refused_what_and_who_broke_the_glass() {
    let (upstream, index) = mirroring(json!({"policy_cooldown_days": 7}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let target =
        |stage: &str, name: &str| format!("/{stage}/+upstream/{}/files/{name}", upstream.host());
    let [old, young] = ["foo-1.0.tar.gz", "foo-3.0.tar.gz"];
    index.user("bob").get(&target("alice/dev", young)).expect(403);
    index.get(&target("alice/up", old)).expect(200);
    let exception = "foo==3.0 until 2100-01-01T00:00:00Z urgent, says alice";
    let edit = json!([format!("policy_exceptions+={exception}")]);
    index.alice().patch("/alice/up", edit).expect(200);
    assert_eq!(index.client().get(&target("alice/up", young)).text(), young);
    assert!(names(&json_page(&index, "alice/dev", "foo")).contains(young));
    let shown = line(&shown(&index.browse("/alice/up").html()), "foo==3.0");
    assert_eq!(shown, "foo==3.0 until 2100-01-01 00:00: urgent, says alice");

    let changed = format!("exception set: {exception}");
    let expected = [
        ["excepted", young, "cooldown", exception],
        ["changed", "policy", "", &changed],
        ["changed", "policy", "", "its rules were changed: policy_cooldown_days"],
    ];
    let log = |path: &str| audit(&index.alice().json().get(path));
    let all = log("/alice/up/+audit");
    let refused = ["refused", young, "cooldown", "younger than 7 days"];
    assert_eq!(
        all,
        [expected[0], expected[1], refused, expected[2]].map(|it| it.map(str::to_owned))
    );
    // The index that was asked is a way to find it, too.
    assert_eq!(log("/alice/dev/+audit"), [refused.map(str::to_owned)]);
    assert_eq!(log("/alice/up/+audit?event=excepted"), [expected[0].map(str::to_owned)]);
    assert_eq!(log("/alice/up/+audit?who=bob&what=foo-3"), [refused.map(str::to_owned)]);
    let first = index.alice().json().get("/alice/up/+audit?limit=3").json();
    let next = first["result"]["next"].as_u64().expect("another page");
    assert_eq!(log(&format!("/alice/up/+audit?before={next}")), [expected[2].map(str::to_owned)]);
    let one = index.root().json().get("/+audit?rule=cooldown&event=refused").json();
    assert_snapshot!("refused_by_a_rule", shown_json(&one["result"]));
    // Only the owner of the index and administrators read what others asked for.
    for (answer, status) in [
        (index.user("bob").json().get("/alice/up/+audit"), 403),
        (index.anybody().json().get("/alice/up/+audit"), 403),
        (index.alice().json().get("/+audit"), 403),
        (index.alice().json().get("/alice/none/+audit"), 404),
        (index.alice().json().get("/alice/up/+audit?since=soon"), 400),
    ] {
        answer.check_status(status);
    }
}

/// A user who may change a base reads its entries. Entries of requests through an index that the user may not read say neither
/// who asked nor from where, not even to a filter.
#[test]
fn the_audit_log_of_a_base_names_no_reader_of_a_private_index() {
    let (upstream, index) = mirroring(json!({"policy_cooldown_days": 7}));
    let secret = json!({"bases": ["alice/up"], "acl_read": ["bob"]});
    index.user("bob").put("/bob/secret", secret).expect(200);
    let young = "foo-3.0.tar.gz";
    let target = |stage: &str| format!("/{stage}/+upstream/{}/files/{young}", upstream.host());
    index.user("bob").get(&target("bob/secret")).expect(403);
    let items = |asker: Ask, path: &str| {
        let answer = asker.json().get(path).expect(200);
        answer.json()["result"]["items"].as_array().expect("entries").clone()
    };
    let found = items(index.alice(), "/alice/up/+audit?event=refused");
    assert_eq!((found.len(), &found[0]["what"]), (1, &json!(young)));
    for key in ["who", "path", "client"] {
        assert_eq!(found[0][key], json!(""), "{key}");
    }
    for filter in ["who=bob", "client=127.0.0.1"] {
        let found = items(index.alice(), &format!("/alice/up/+audit?event=refused&{filter}"));
        assert!(found.is_empty(), "{filter}: {found:?}");
    }
    // The log of the private index and the server's log have all entries.
    for found in [
        items(index.user("bob"), "/bob/secret/+audit?who=bob"),
        items(index.root(), "/+audit?who=bob&event=refused"),
    ] {
        assert_eq!((found.len(), &found[0]["path"]), (1, &json!(target("bob/secret"))));
    }
    // What everybody may read stays visible.
    index.user("bob").get(&target("alice/up")).expect(403);
    assert_eq!(items(index.alice(), "/alice/up/+audit?who=bob").len(), 1);
}

#[test]
fn a_push_that_an_exception_lets_pass_is_noted() {
    let index = fresh_for_long();
    index.stage("alice/dev", json!({}));
    index.stage("alice/prod", json!({}));
    index.upload("alice/dev", "own-1.0.zip", &sdist("one"));
    let exception = "own==1.0 until 2100-01-01T00:00:00Z urgent, says alice";
    let edit = json!(["policy_deny+=own", format!("policy_exceptions+={exception}")]);
    index.alice().patch("/alice/dev", edit).expect(200);
    let order = json!({"name": "own", "version": "1.0", "targetindex": "alice/prod"});
    index.alice().send("PUSH", "/alice/dev", order).expect(200);
    let log = audit(&index.alice().json().get("/alice/dev/+audit?event=excepted"));
    assert_eq!(log, [["excepted", "own-1.0.zip", "deny", exception].map(str::to_owned)]);
}

#[test]
fn a_policy_that_goes_with_its_index_is_noted() {
    let index = fresh_for_long();
    index.stage("alice/dev", json!({"policy_deny": ["foo"], "policy_cooldown_days": 7}));
    index.alice().delete("/alice/dev").expect(201);
    index.stage("alice/dev", json!({}));
    let rules = "its rules were changed: policy_cooldown_days, policy_deny";
    let changed = ["changed", "policy", "", rules].map(str::to_owned);
    let log = |path: &str| audit(&index.root().json().get(path));
    assert_eq!(log("/alice/dev/+audit"), [changed.clone(), changed.clone()]);
    // The log of changes also survives the index's user.
    index.stage("alice/up", json!({"policy_deny": ["foo"]}));
    index.root().delete("/alice").expect(200);
    let deny = ["changed", "policy", "", "its rules were changed: policy_deny"].map(str::to_owned);
    assert_eq!(log("/+audit"), [deny.clone(), deny, changed.clone(), changed]);
    // A refused request is not noted.
    index.root().delete("/alice/up").expect(404);
    assert_eq!(log("/+audit").len(), 4);
}

#[test]
fn an_upstream_forges_no_line_and_breaks_no_client() {
    let (upstream, index) = mirroring(json!({"policy_deny": ["bar"]}));
    let reason = format!("stolen\n2026-01-01 \u{1b}[2Jchanged\u{85}{}", "x".repeat(100_000));
    let page = json!({
        "meta": {"api-version": "1.4"}, "name": "foo", "versions": [],
        "project-status": {"status": "quarantined", "reason": reason},
        "files": [FILES[0].entry(&upstream)],
    });
    upstream.offer("/simple/foo/", Offer::json(page.to_string()));
    let target = format!("/alice/up/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    let answer = index.get(&target);
    let said = answer.json()["reason"].as_str().expect("a reason").to_owned();
    assert!(said.starts_with("quarantined: stolen 2026-01-01 [2Jchanged xxx"), "{said}");
    assert_eq!(said.len(), "quarantined: ".len() + 1000);
    let mut stream = index.connect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let line = answer.lines().next().expect("a status line");
    assert!(line.starts_with("HTTP/1.1 403 foo-1.0.tar.gz is refused"), "{line}");
    assert!(line.len() < 1100, "{}", line.len());
    let [_, _, _, noted] = &audit(&index.root().json().get("/+audit"))[0];
    assert!(noted.starts_with("quarantined: stolen 2026-01-01 [2Jchanged xxx"), "{noted}");
}

#[test]
fn what_is_served_where_a_policy_counts_is_noted_on_request() {
    let upstream = upstream_of(&FILES);
    let index = Index::start_with(|config| {
        allow_this_machine(config);
        config.python.audit_served = true;
    });
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"], "policy_deny": ["bar"]}));
    let content = sdist("one");
    index.upload("alice/dev", "own-1.0.zip", &content);
    let old = |stage: &str| format!("/{stage}/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    // Without a policy nothing is noted.
    for target in [old("alice/up"), old("alice/dev"), path("alice/dev", "own-1.0.zip", &content)] {
        index.get(&target).expect(200);
    }
    let log = audit(&index.root().json().get("/+audit?event=served"));
    let expected = [["served", "own-1.0.zip", "", ""], ["served", "foo-1.0.tar.gz", "", ""]];
    assert_eq!(log, expected.map(|it| it.map(str::to_owned)));
}
