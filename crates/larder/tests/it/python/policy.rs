//! Policies over HTTP: what a page hides is refused under every other address as well, and appears when it has matured.

mod advised;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use config::BundleSource;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use record::Digest;
use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::advisories::{bundle, record, replace};
use super::{Index, JSON, Response, Upload, path, sdist, wheel};
use crate::wait_until;

const JSON_PAGE: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");

const DAY_HOURS: i64 = 24;

fn start() -> Index {
    Index::start_with(|config| {
        config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
        config.python.mirror_cache_expiry = Duration::from_secs(100_000);
    })
}

/// An index whose policies know the OSV records of this zip, before the first request.
fn start_knowing(source: &Path) -> Index {
    Index::start_with(|config| {
        config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
        config.python.mirror_cache_expiry = Duration::from_secs(100_000);
        config.advisories.source = Some(BundleSource::File(source.to_owned()));
    })
}

/// A file of an upstream: its name, its content, and how many days ago it was uploaded, if upstream says so.
struct Theirs(&'static str, Option<i64>);

impl Theirs {
    fn content(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    fn entry(&self, upstream: &Upstream) -> Value {
        let mut entry = json!({
            "filename": self.0,
            "url": upstream.url(&format!("/files/{}", self.0)),
            "hashes": {"sha256": Digest::of(&self.content()).to_string()},
        });
        if let Some(days) = self.1 {
            let at = Timestamp::now() - SignedDuration::from_hours(DAY_HOURS * days);
            entry["upload-time"] = at.to_string().into();
        }
        if self.0.ends_with(".whl") {
            entry["core-metadata"] = true.into();
        }
        entry
    }
}

/// An upstream of the project `foo` with these files.
fn upstream_of(files: &[Theirs]) -> Upstream {
    let upstream = Upstream::start();
    let list = json!({"meta": {"api-version": "1.1"}, "projects": [{"name": "foo"}]});
    upstream.offer("/simple/", Offer::json(list.to_string()));
    let entries: Vec<Value> = files.iter().map(|file| file.entry(&upstream)).collect();
    offer_page(&upstream, entries);
    for file in files {
        upstream.offer(&format!("/files/{}", file.0), Offer::file(file.content()));
        upstream.offer(&format!("/files/{}.metadata", file.0), Offer::file("Name: foo\n"));
    }
    upstream
}

fn offer_page(upstream: &Upstream, files: Vec<Value>) {
    let versions = ["1.0", "2.0", "3.0", "4.0"];
    let page = json!({"meta": {"api-version": "1.1"}, "name": "foo", "versions": versions, "files": files});
    upstream.offer("/simple/foo/", Offer::json(page.to_string()));
}

fn make_mirror(index: &Index, upstream: &Upstream, settings: Value) {
    let mut config = json!({"type": "mirror", "mirror_url": upstream.url("/simple")});
    for (key, value) in settings.as_object().expect("an object") {
        config[key] = value.clone();
    }
    index.stage("alice/up", config);
}

fn json_page(index: &Index, stage: &str, project: &str) -> Value {
    let page = index.client().get_with(&format!("/{stage}/+simple/{project}/"), &[JSON_PAGE]);
    assert_eq!(page.status, 200, "{}", page.text());
    page.json()
}

fn names(page: &Value) -> BTreeSet<String> {
    let files = page["files"].as_array().expect("files").iter();
    files.map(|file| file["filename"].as_str().expect("a name").to_owned()).collect()
}

/// Expects 403, with the rule, the index whose policy it is, and the reason.
#[track_caller]
fn check_refused(answer: &Response, rule: &str, stage: &str, reason: &str) {
    let text = answer.text();
    assert_eq!(answer.status, 403, "{text}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{text}");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("www-authenticate"), "", "nobody is asked for a password");
    let json = answer.json();
    assert_eq!((&json["rule"], &json["index"]), (&json!(rule), &json!(stage)), "{text}");
    assert_eq!(json["reason"], reason, "{text}");
}

const FILES: [Theirs; 5] = [
    Theirs("foo-1.0.tar.gz", Some(100)),
    Theirs("foo-1.0-py3-none-any.whl", Some(100)),
    Theirs("foo-2.0-py3-none-any.whl", Some(10)),
    Theirs("foo-3.0.tar.gz", Some(2)),
    Theirs("foo-4.0.tar.gz", None),
];

#[test]
fn what_is_too_young_is_refused_under_every_address() {
    let upstream = upstream_of(&FILES);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cooldown_days": 7}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for stage in ["alice/up", "alice/dev"] {
        let page = json_page(&index, stage, "foo");
        let shown = ["foo-1.0-py3-none-any.whl", "foo-1.0.tar.gz", "foo-2.0-py3-none-any.whl"];
        assert_eq!(names(&page), shown.map(str::to_owned).into(), "{stage}");
        assert_eq!(page["versions"], json!(["1.0", "2.0"]), "{page}");
        let hidden = &page["_hidden"][0];
        let facts = (&hidden["files"], &hidden["index"], &hidden["reason"]);
        assert_eq!(facts, (&json!(2), &json!("alice/up"), &json!("younger than 7 days")), "{page}");
        let human =
            index.client().get_with(&format!("/{stage}/+simple/foo/"), &[("Accept", "text/html")]);
        let sentence = "2 files are hidden by the policy of alice/up: younger than 7 days.";
        assert!(human.text().contains(sentence), "{}", human.text());
    }
    let before = upstream.requests().len();
    for name in ["foo-3.0.tar.gz", "foo-4.0.tar.gz"] {
        let digest = Digest::of(name.as_bytes()).to_string();
        for target in [
            format!("/alice/up/+upstream/{}/files/{name}", upstream.host()),
            format!("/alice/dev/+upstream/{}/files/{name}", upstream.host()),
            format!("/alice/up/+f/{}/{}/{name}", &digest[..3], &digest[3..16]),
            format!("/alice/dev/+f/{}/{}/{name}", &digest[..3], &digest[3..16]),
        ] {
            for headers in [&[][..], &[("Range", "bytes=0-1")], &[("If-None-Match", "*")]] {
                let answer = index.client().get_with(&target, headers);
                check_refused(&answer, "cooldown", "alice/up", "younger than 7 days");
            }
            assert_eq!(index.client().send("HEAD", &target, &[], b"").status, 403, "{target}");
        }
    }
    assert_eq!(upstream.requests().len(), before, "nothing is fetched for it");
    // pip shows nothing but the reason phrase.
    let mut stream = index.client().connect();
    let target = format!("/alice/up/+upstream/{}/files/foo-3.0.tar.gz", upstream.host());
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let line = "HTTP/1.1 403 foo-3.0.tar.gz is refused by the policy of alice/up: younger than 7 days, until ";
    assert!(answer.starts_with(line), "{answer}");
}

#[test]
fn a_file_appears_when_it_has_matured() {
    let upstream = upstream_of(&[]);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cooldown_days": 7}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    // In a moment it will be seven days old.
    let mature_at = Timestamp::now() + SignedDuration::from_secs(3);
    let mut entry = Theirs("foo-1.0.tar.gz", Some(0)).entry(&upstream);
    let uploaded_at = mature_at - SignedDuration::from_hours(7 * DAY_HOURS);
    entry["upload-time"] = uploaded_at.to_string().into();
    offer_page(&upstream, vec![entry]);
    upstream.offer("/files/foo-1.0.tar.gz", Offer::file("foo-1.0.tar.gz"));
    let target = format!("/alice/dev/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    let page = || {
        let page = index.client().get_with("/alice/dev/+simple/foo/", &[JSON_PAGE]);
        (names(&page.json()).len(), page.header("etag").to_owned())
    };
    let (shown, hidden_tag) = page();
    // If this machine is slow, it has matured already.
    assert!(shown == 0 || Timestamp::now() >= mature_at);
    wait_until("the file appears", || page().0 == 1);
    assert!(Timestamp::now() >= mature_at, "not before");
    assert_eq!(index.client().get(&target).text(), "foo-1.0.tar.gz");
    let again = index
        .client()
        .get_with("/alice/dev/+simple/foo/", &[JSON_PAGE, ("If-None-Match", &hidden_tag)]);
    assert!(shown == 1 || again.status == 200, "the page has another tag");
    assert_eq!(upstream.count("/simple/foo/"), 1, "upstream is not asked for that");
}

#[test]
fn an_upstream_without_upload_times_is_judged_by_what_was_first_seen() {
    let upstream = upstream_of(&[Theirs("foo-1.0.tar.gz", None)]);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cutoff": "2020-01-01"}));
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), 0);
    let patch =
        json!({"policy_cutoff": (Timestamp::now() + SignedDuration::from_secs(1)).to_string()});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), 1, "it has been seen before");
    // What comes later is seen later.
    wait_until("the cut-off is over", || {
        let settings = index.client().get_with("/alice/up", &[JSON]).json();
        let cutoff = settings["result"]["policy_cutoff"].as_str().expect("a time").to_owned();
        cutoff.parse::<Timestamp>().expect("a time") < Timestamp::now()
    });
    let entries = ["foo-1.0.tar.gz", "foo-2.0.tar.gz"];
    offer_page(&upstream, entries.map(|name| Theirs(name, None).entry(&upstream)).into());
    let done = index.alice().send("POST", "/alice/up/+simple/foo/refresh", Value::Null);
    assert_eq!(done.status, 302, "{}", done.text());
    assert_eq!(names(&json_page(&index, "alice/up", "foo")), ["foo-1.0.tar.gz".to_owned()].into());
}

#[test]
fn a_file_is_judged_by_what_upstream_says_now() {
    let upstream = upstream_of(&FILES);
    let index = start();
    let settings = json!({"policy_cooldown_days": 7, "mirror_cache_expiry": 0});
    make_mirror(&index, &upstream, settings);
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let [old, other] = ["foo-1.0.tar.gz", "foo-2.0-py3-none-any.whl"];
    let target =
        |stage: &str, name: &str| format!("/{stage}/+upstream/{}/files/{name}", upstream.host());
    for stage in ["alice/up", "alice/dev"] {
        assert_eq!(index.client().get(&target(stage, old)).text(), old);
    }
    // Somebody replaces the file that is known here.
    let mut entry = Theirs(old, Some(0)).entry(&upstream);
    entry["hashes"] = json!({"sha256": Digest::of(b"evil").to_string()});
    offer_page(&upstream, vec![entry, FILES[2].entry(&upstream)]);
    upstream.offer(&format!("/files/{old}"), Offer::file("evil"));
    for stage in ["alice/up", "alice/dev"] {
        let answer = index.client().get(&target(stage, old));
        check_refused(&answer, "cooldown", "alice/up", "younger than 7 days");
        assert_eq!(index.client().get(&target(stage, other)).text(), other);
    }
    // What was known last counts while upstream fails.
    upstream.break_with(Some(500));
    for stage in ["alice/up", "alice/dev"] {
        let answer = index.client().get(&target(stage, old));
        check_refused(&answer, "cooldown", "alice/up", "younger than 7 days");
        assert_eq!(index.client().get(&target(stage, other)).text(), other);
    }
    upstream.break_with(None);
    let page = json!({
        "meta": {"api-version": "1.4"}, "name": "foo", "versions": ["2.0"],
        "project-status": {"status": "quarantined", "reason": "stolen"},
        "files": [FILES[2].entry(&upstream)],
    });
    upstream.offer("/simple/foo/", Offer::json(page.to_string()));
    // The breaker may leave the upstream alone for a moment.
    wait_until("upstream is asked again", || {
        json_page(&index, "alice/up", "foo")["files"] == json!([])
    });
    for stage in ["alice/up", "alice/dev"] {
        let answer = index.client().get(&target(stage, other));
        check_refused(&answer, "quarantine", "alice/up", "quarantined: stolen");
    }
}

#[test]
fn what_a_stage_has_removed_comes_from_its_base() {
    let index = start();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"], "policy_deny": ["other"]}));
    let content = sdist("one");
    for stage in ["alice/base", "alice/dev"] {
        index.upload(stage, "own-1.0.zip", &content);
    }
    let target = path("alice/dev", "own-1.0.zip", &content);
    let removed = index.alice().send("DELETE", &target, Value::Null);
    assert_eq!(removed.status, 200, "{}", removed.text());
    let page = json_page(&index, "alice/dev", "own");
    let link = page["files"][0]["url"].as_str().expect("a link").to_owned();
    assert_eq!(resolved(&link, "alice/dev", "own"), target);
    assert_eq!(index.client().get(&target).status, 200);
    let removed =
        index.alice().send("DELETE", &path("alice/base", "own-1.0.zip", &content), Value::Null);
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(index.client().get(&target).status, 410);
}

/// Without a policy, pages link what is inherited below the base: what was removed stays removed.
#[test]
fn what_a_stage_without_a_policy_has_removed_is_gone() {
    let index = start();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    let content = sdist("one");
    for stage in ["alice/base", "alice/dev"] {
        index.upload(stage, "own-1.0.zip", &content);
    }
    let target = path("alice/dev", "own-1.0.zip", &content);
    let removed = index.alice().send("DELETE", &target, Value::Null);
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(index.client().get(&target).status, 410);
    let inherited = path("alice/base", "own-1.0.zip", &content);
    assert_eq!(index.client().get(&inherited).status, 200);
}

#[test]
fn a_quarantine_has_a_reason_that_installers_show() {
    let upstream = upstream_of(&FILES);
    let index = start();
    make_mirror(&index, &upstream, json!({}));
    let sources = sdist("one");
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    index.upload("alice/dev", "own-1.0.zip", &sources);
    let target = path("alice/dev", "own-1.0.zip", &sources);
    assert_eq!(index.client().get(&target).status, 200);
    let edit =
        json!(["policy_quarantine+=foo stolen, see below", "policy_quarantine+=own==1.0 broken"]);
    assert_eq!(index.alice().send("PATCH", "/alice/dev", edit).status, 200);
    let page = json_page(&index, "alice/dev", "foo");
    let status = json!({"status": "quarantined", "reason": "stolen, see below"});
    assert_eq!((&page["project-status"], &page["files"]), (&status, &json!([])));
    check_refused(&index.client().get(&target), "quarantine", "alice/dev", "quarantined: broken");
    let version = index.anybody().get("/alice/dev/own/1.0");
    check_refused(&version, "quarantine", "alice/dev", "quarantined: broken");
    let project = index.anybody().json().get("/alice/dev/own").json();
    assert_eq!(project["result"], json!({}));
    let said = "1 file is hidden by the policy of alice/dev: quarantined: broken";
    assert_eq!(project["message"], said);
    // The base has no policy: only the addresses below the stage have that of the stage.
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), FILES.len());
    let edit = json!(["policy_quarantine-=foo", "policy_quarantine-=own==1.0"]);
    assert_eq!(index.alice().send("PATCH", "/alice/dev", edit).status, 200);
    assert_eq!(index.client().get(&target).status, 200);
    // The owner's own word counts for the file as well.
    let word = json!({"status": "quarantined", "reason": "wait"});
    assert_eq!(index.alice().send("PUT", "/alice/dev/own/+status", word).status, 200);
    assert_eq!(json_page(&index, "alice/dev", "own")["files"], json!([]));
    check_refused(&index.client().get(&target), "quarantine", "alice/dev", "quarantined: wait");
    let version = index.anybody().get("/alice/dev/own/1.0");
    check_refused(&version, "quarantine", "alice/dev", "quarantined: wait");
    let project = index.anybody().json().get("/alice/dev/own").json();
    assert_eq!(project["result"], json!({}));
    let said = "1 file is hidden by the policy of alice/dev: quarantined: wait";
    assert_eq!(project["message"], said);
    let metrics = index.client().get("/metrics").text();
    assert!(metrics.contains("larder_policy_refused_total{rule=\"quarantine\"} 4"), "{metrics}");
}

/// The entries of an audit log, newest first: event, file, rule, and reason.
fn audit(answer: &Response) -> Vec<[String; 4]> {
    let json = answer.json();
    assert_eq!((answer.status, &json["type"]), (200, &json!("audit")), "{json}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = json["result"]["items"].as_array().expect("entries").iter();
    items.map(|it| ["event", "what", "rule", "reason"].map(|key| text(&it[key]))).collect()
}

#[test]
fn the_audit_log_says_who_was_refused_what_and_who_broke_the_glass() {
    let upstream = upstream_of(&FILES);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cooldown_days": 7}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let target =
        |stage: &str, name: &str| format!("/{stage}/+upstream/{}/files/{name}", upstream.host());
    let [old, young] = ["foo-1.0.tar.gz", "foo-3.0.tar.gz"];
    assert_eq!(index.user("bob").get(&target("alice/dev", young)).status, 403);
    assert_eq!(index.client().get(&target("alice/up", old)).status, 200);
    let exception = "foo==3.0 until 2100-01-01T00:00:00Z urgent, says alice";
    let edit = json!([format!("policy_exceptions+={exception}")]);
    assert_eq!(index.alice().send("PATCH", "/alice/up", edit).status, 200);
    assert_eq!(index.client().get(&target("alice/up", young)).text(), young);
    assert!(names(&json_page(&index, "alice/dev", "foo")).contains(young));
    let page = index.client().get_with("/alice/up", &[("Accept", "text/html")]).text();
    assert!(page.contains("urgent, says alice"), "{page}");

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
    let one = &one["result"]["items"][0];
    assert_eq!((&one["who"], &one["index"]), (&json!("bob"), &json!("alice/up")));
    assert_eq!(one["client"], "127.0.0.1", "{one}");
    assert_eq!(one["path"], target("alice/dev", young));
    // Not everybody reads what others asked for.
    for (answer, status) in [
        (index.user("bob").json().get("/alice/up/+audit"), 403),
        (index.anybody().json().get("/alice/up/+audit"), 403),
        (index.alice().json().get("/+audit"), 403),
        (index.alice().json().get("/alice/none/+audit"), 404),
        (index.alice().json().get("/alice/up/+audit?since=soon"), 400),
    ] {
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

/// Who may change a base reads its entries. Those of an index that they may not read say neither who asked nor where, not even to
/// a filter.
#[test]
fn the_audit_log_of_a_base_names_no_reader_of_a_private_index() {
    let upstream = upstream_of(&FILES);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cooldown_days": 7}));
    let secret = json!({"bases": ["alice/up"], "acl_read": ["bob"]});
    assert_eq!(index.user("bob").send("PUT", "/bob/secret", secret).status, 200);
    let young = "foo-3.0.tar.gz";
    let target = |stage: &str| format!("/{stage}/+upstream/{}/files/{young}", upstream.host());
    assert_eq!(index.user("bob").get(&target("bob/secret")).status, 403);
    let items = |asker: super::Ask<'_>, path: &str| {
        let answer = asker.json().get(path);
        assert_eq!(answer.status, 200, "{}", answer.text());
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
    // Their own log and the one of the server have it all.
    for found in [
        items(index.user("bob"), "/bob/secret/+audit?who=bob"),
        items(index.root(), "/+audit?who=bob&event=refused"),
    ] {
        assert_eq!((found.len(), &found[0]["path"]), (1, &json!(target("bob/secret"))));
    }
    // What everybody may read stays.
    assert_eq!(index.user("bob").get(&target("alice/up")).status, 403);
    assert_eq!(items(index.alice(), "/alice/up/+audit?who=bob").len(), 1);
}

#[test]
fn a_push_that_an_exception_lets_pass_is_noted() {
    let index = start();
    index.stage("alice/dev", json!({}));
    index.stage("alice/prod", json!({}));
    index.upload("alice/dev", "own-1.0.zip", &sdist("one"));
    let exception = "own==1.0 until 2100-01-01T00:00:00Z urgent, says alice";
    let edit = json!(["policy_deny+=own", format!("policy_exceptions+={exception}")]);
    assert_eq!(index.alice().send("PATCH", "/alice/dev", edit).status, 200);
    let order = json!({"name": "own", "version": "1.0", "targetindex": "alice/prod"});
    let pushed = index.alice().send("PUSH", "/alice/dev", order);
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let log = audit(&index.alice().json().get("/alice/dev/+audit?event=excepted"));
    assert_eq!(log, [["excepted", "own-1.0.zip", "deny", exception].map(str::to_owned)]);
}

#[test]
fn a_policy_that_goes_with_its_index_is_noted() {
    let index = start();
    index.stage("alice/dev", json!({"policy_deny": ["foo"], "policy_cooldown_days": 7}));
    assert_eq!(index.alice().send("DELETE", "/alice/dev", Value::Null).status, 201);
    index.stage("alice/dev", json!({}));
    let rules = "its rules were changed: policy_cooldown_days, policy_deny";
    let changed = ["changed", "policy", "", rules].map(str::to_owned);
    let log = |path: &str| audit(&index.root().json().get(path));
    assert_eq!(log("/alice/dev/+audit"), [changed.clone(), changed.clone()]);
    // Also if its user goes.
    index.stage("alice/up", json!({"policy_deny": ["foo"]}));
    assert_eq!(index.root().send("DELETE", "/alice", Value::Null).status, 200);
    let deny = ["changed", "policy", "", "its rules were changed: policy_deny"].map(str::to_owned);
    assert_eq!(log("/+audit"), [deny.clone(), deny, changed.clone(), changed]);
    // What is refused is not noted.
    assert_eq!(index.root().send("DELETE", "/alice/up", Value::Null).status, 404);
    assert_eq!(log("/+audit").len(), 4);
}

#[test]
fn an_upstream_forges_no_line_and_breaks_no_client() {
    let upstream = upstream_of(&FILES);
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_deny": ["bar"]}));
    let reason = format!("stolen\n2026-01-01 \u{1b}[2Jchanged\u{85}{}", "x".repeat(100_000));
    let page = json!({
        "meta": {"api-version": "1.4"}, "name": "foo", "versions": [],
        "project-status": {"status": "quarantined", "reason": reason},
        "files": [FILES[0].entry(&upstream)],
    });
    upstream.offer("/simple/foo/", Offer::json(page.to_string()));
    let target = format!("/alice/up/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    let answer = index.client().get(&target);
    let said = answer.json()["reason"].as_str().expect("a reason").to_owned();
    assert!(said.starts_with("quarantined: stolen 2026-01-01 [2Jchanged xxx"), "{said}");
    assert_eq!(said.len(), "quarantined: ".len() + 1000);
    let mut stream = index.client().connect();
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
        config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
        config.python.audit_served = true;
    });
    make_mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"], "policy_deny": ["bar"]}));
    let content = sdist("one");
    index.upload("alice/dev", "own-1.0.zip", &content);
    let old = |stage: &str| format!("/{stage}/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    // Without a policy nothing is noted.
    for target in [old("alice/up"), old("alice/dev"), path("alice/dev", "own-1.0.zip", &content)] {
        assert_eq!(index.client().get(&target).status, 200, "{target}");
    }
    let log = audit(&index.root().json().get("/+audit?event=served"));
    let expected = [["served", "own-1.0.zip", "", ""], ["served", "foo-1.0.tar.gz", "", ""]];
    assert_eq!(log, expected.map(|it| it.map(str::to_owned)));
}

/// Settings of a policy, at random.
fn settings() -> impl Strategy<Value = Value> {
    let rules = || {
        let rule = prop::sample::select(vec![
            "foo",
            "f*",
            "own",
            "foo<2",
            "foo>=2,<4",
            "own==1.0",
            "*@sdist",
            "*@wheel",
            "foo-1.0.tar.gz",
            "own-2.0.zip",
        ]);
        prop::collection::vec(rule, 0..2)
    };
    let days = prop::option::of(prop::sample::select(vec![0, 1, 5, 50, 500]));
    let cutoff = prop::option::of(prop::sample::select(vec!["2020-01-01", "2100-01-01"]));
    let except = prop::collection::vec(prop::sample::select(vec!["foo", "o*"]), 0..2);
    let allow = prop_oneof![3 => Just(Vec::new()), 1 => rules()];
    let measure = || prop::option::of(prop::sample::select(vec!["refuse", "warn", "off"]));
    (days, cutoff, except, allow, rules(), rules(), measure(), measure()).prop_map(
        |(days, cutoff, except, allow, deny, quarantine, malware, vulnerabilities)| {
            json!({
                "policy_malware": malware, "policy_vulnerabilities": vulnerabilities,
                "policy_cooldown_days": days, "policy_cutoff": cutoff, "policy_cooldown_except": except,
                "policy_allow": allow, "policy_deny": deny, "policy_quarantine": quarantine,
            })
        },
    )
}

/// Expects a file, or its metadata, exactly if the page has it.
fn check_file(index: &Index, target: &str, is_shown: bool) -> Result<(), TestCaseError> {
    for method in ["GET", "HEAD"] {
        let answer = index.client().send(method, target, &[], b"");
        let expected = if is_shown { 200 } else { 403 };
        prop_assert_eq!(answer.status, expected, "{} {}: {}", method, target, answer.text());
    }
    Ok(())
}

/// Expects that lists, search and pages for people have the project `own` of this stage exactly if it shows one of its files, and
/// that a version can be pushed from it exactly if all its own files are shown.
fn check_lists(
    index: &Index,
    stage: &str,
    shown: &[String],
    own: &[&str],
) -> Result<(), TestCaseError> {
    let is_shown = !shown.is_empty();
    let has_own = own.iter().any(|name| shown.iter().any(|it| it == name));
    let list = index.client().get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).json();
    let listed = list["projects"].as_array().expect("projects").contains(&json!({"name": "own"}));
    prop_assert_eq!(listed, is_shown, "{}", list);
    for agent in ["pip/25.0 {}", "a browser"] {
        let headers = [("Accept", "text/html"), ("User-Agent", agent)];
        let text = index.client().get_with(&format!("/{stage}/+simple/"), &headers).text();
        prop_assert_eq!(text.contains(">own</a>"), is_shown, "{}", text);
    }
    let config = index.anybody().json().get(&format!("/{stage}")).json();
    let projects = config["result"]["projects"].as_array().expect("projects");
    prop_assert_eq!(projects.contains(&json!("own")), has_own, "{}", config);
    let found = index.anybody().json().get("/+search?query=own").json();
    let items = found["result"]["items"].as_array().expect("items");
    let hit = items.iter().find(|item| item["index"] == stage);
    prop_assert_eq!(hit.is_some(), has_own, "{}", found);
    let newest = own.iter().filter(|name| shown.iter().any(|it| it == *name)).max();
    let newest = newest.map(|name| &name["own-".len().."own-1.0".len()]);
    prop_assert_eq!(hit.and_then(|hit| hit["version"].as_str()), newest, "{}", found);
    let suggested = index.client().get("/search/suggest?q=own").text();
    prop_assert_eq!(suggested.contains(&format!("{stage}/own")), has_own, "{}", suggested);
    let page = index.client().get_with(&format!("/{stage}"), &[("Accept", "text/html")]).text();
    prop_assert_eq!(page.contains(&format!("{stage}/own\"")), has_own, "{}", page);
    prop_assert_eq!(page.contains("hidden by a policy"), !own.is_empty() && !has_own, "{}", page);
    for name in own {
        let version = &name["own-".len().."own-1.0".len()];
        let order = json!({"name": "own", "version": version, "targetindex": "alice/target"});
        let pushed = index.alice().send("POST", &format!("/{stage}"), order);
        let is_shown = shown.iter().any(|it| it == name);
        prop_assert_eq!(pushed.status, if is_shown { 200 } else { 403 }, "{}", pushed.text());
    }
    Ok(())
}

/// The address that a link on a page of a project means.
fn resolved(link: &str, stage: &str, project: &str) -> String {
    let base = format!("http://h/{stage}/+simple/{project}/");
    let url = reqwest::Url::parse(&base).and_then(|base| base.join(link)).expect("a URL");
    url.path().to_owned()
}

#[test]
fn page_json_metadata_file_and_direct_link_agree() {
    let upstream = upstream_of(&FILES);
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("osv.zip");
    let records = [
        record("MAL-1", "own", &["2.0"]),
        record("MAL-2", "foo", &["3.0"]),
        record("GHSA-1", "own", &["3.0", "4.0"]),
        record("GHSA-2", "foo", &[]),
    ];
    replace(&source, &bundle(&records));
    let index = start_knowing(&source);
    make_mirror(&index, &upstream, json!({}));
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base", "alice/up"]}));
    index.stage("alice/target", json!({}));
    let (wheel, _) = wheel("own", "3.0");
    let ours = [
        ("alice/base", "own-1.0.zip", sdist("one")),
        ("alice/base", "own-2.0.zip", sdist("two")),
        ("alice/base", "own-3.0-py3-none-any.whl", wheel),
        ("alice/dev", "own-4.0.zip", sdist("four")),
    ];
    for (stage, filename, content) in &ours {
        index.upload(stage, filename, content);
    }
    let theirs: Vec<(&str, String, Vec<u8>)> =
        FILES.iter().map(|file| ("alice/up", file.0.to_owned(), file.content())).collect();
    let mut runner = TestRunner::new_with_rng(
        Cases { cases: 12, failure_persistence: None, ..Cases::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let policies = (settings(), settings(), settings(), 0..4);
    let outcome = runner.run(&policies, |(up, base, dev, status)| {
        let status = if status == 0 { "quarantined" } else { "active" };
        let done = index.alice().send("PUT", "/alice/base/own/+status", json!({"status": status}));
        prop_assert_eq!(done.status, 200, "{}", done.text());
        for (stage, policy) in [("alice/up", up), ("alice/base", base), ("alice/dev", dev)] {
            let done = index.alice().send("PATCH", &format!("/{stage}"), policy);
            prop_assert_eq!(done.status, 200, "{}", done.text());
        }
        let of_ours = ours
            .iter()
            .map(|(stage, name, content)| ("own", *stage, (*name).to_owned(), content.clone()));
        let of_theirs = theirs
            .iter()
            .map(|(stage, name, content)| ("foo", *stage, name.clone(), content.clone()));
        let files: Vec<_> = of_ours.chain(of_theirs).collect();
        for stage in ["alice/up", "alice/base", "alice/dev"] {
            for project in ["foo", "own"] {
                let files = files.iter().filter(|(of, holder, ..)| {
                    *of == project && (*holder == stage || stage == "alice/dev")
                });
                let files: Vec<_> = files.collect();
                if files.is_empty() {
                    continue;
                }
                let page = json_page(&index, stage, project);
                let shown = names(&page);
                // The forms of the page.
                let html = index.page(stage, project);
                let human = index
                    .client()
                    .get_with(&format!("/{stage}/+simple/{project}/"), &[("Accept", "text/html")]);
                for text in [html, human.text()] {
                    prop_assert_eq!(text.matches("<a href=").count(), shown.len(), "{}", text);
                }
                // Every link of the page.
                for file in page["files"].as_array().expect("files") {
                    let target = resolved(file["url"].as_str().expect("a URL"), stage, project);
                    check_file(&index, &target, true)?;
                    if file["core-metadata"].is_null() {
                        continue;
                    }
                    check_file(&index, &format!("{target}.metadata"), true)?;
                }
                // Every address of every file.
                for (_, holder, filename, content) in &files {
                    let is_shown = shown.contains(filename);
                    let mut targets = vec![path(stage, filename, content)];
                    if *holder == "alice/up" {
                        targets.push(format!(
                            "/{stage}/+upstream/{}/files/{filename}",
                            upstream.host()
                        ));
                    }
                    for target in targets {
                        check_file(&index, &target, is_shown)?;
                        if filename.ends_with(".whl") {
                            check_file(&index, &format!("{target}.metadata"), is_shown)?;
                        }
                        let meta = index.client().get_with(&target, &[JSON]).status;
                        prop_assert_eq!(meta, if is_shown { 200 } else { 403 }, "{}", target);
                    }
                }
                if project == "foo" {
                    continue;
                }
                let own =
                    ours.iter().filter(|(holder, ..)| *holder == stage).map(|(_, name, _)| *name);
                let names: Vec<String> = shown.iter().cloned().collect();
                check_lists(&index, stage, &names, &own.collect::<Vec<_>>())?;
                // The JSON of the project and of its versions.
                let config = index.anybody().json().get(&format!("/{stage}/own")).json();
                let versions = config["result"].as_object().expect("versions").clone();
                let linked: BTreeSet<String> = versions
                    .values()
                    .flat_map(|version| version["+links"].as_array().cloned().unwrap_or_default())
                    .filter_map(|link| Some(link["href"].as_str()?.rsplit('/').next()?.to_owned()))
                    .collect();
                prop_assert_eq!(&linked, &shown);
                for (_, _, filename, _) in &files {
                    let version = &filename["own-".len().."own-1.0".len()];
                    let is_shown = shown.contains(filename);
                    let answer = index.anybody().json().get(&format!("/{stage}/own/{version}"));
                    prop_assert_eq!(
                        answer.status,
                        if is_shown { 200 } else { 403 },
                        "{}",
                        answer.text()
                    );
                    prop_assert_eq!(versions.contains_key(version), is_shown);
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_private_name_is_not_sent_upstream_by_an_inherited_link() {
    let upstream = upstream_of(&FILES);
    let list =
        json!({"meta": {"api-version": "1.1"}, "projects": [{"name": "foo"}, {"name": "own"}]});
    upstream.offer("/simple/", Offer::json(list.to_string()));
    let index = start();
    make_mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"], "policy_cooldown_days": 1}));
    let done = index.alice().upload("alice/dev", &Upload::of("own-1.0.zip", &sdist("one")));
    assert_eq!(done.status, 200, "{}", done.text());
    let target = format!("/alice/dev/+upstream/{}/files/own-2.0.zip", upstream.host());
    assert_eq!(index.client().get(&target).status, 404);
    let target = path("alice/dev", "own-2.0.zip", b"another");
    assert_eq!(index.client().get(&target).status, 404);
    assert_eq!(upstream.count("/simple/own/"), 0);
    // A file that is not on upstream's page is not fetched.
    let target = format!("/alice/dev/+upstream/{}/files/foo-9.0.tar.gz", upstream.host());
    assert_eq!(index.client().get(&target).status, 404);
    // Who may not read the mirror reads nothing of it through the stage.
    let patch = json!({"acl_read": ["alice"]});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    let target = format!("/alice/dev/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    assert_eq!(index.client().get(&target).status, 401);
    let answer = index.alice().get(&target);
    assert_eq!((answer.status, answer.text().as_str()), (200, "foo-1.0.tar.gz"));
    assert!(answer.header("cache-control").contains("private"));
}

#[test]
fn ten_thousand_hostile_requests_send_no_private_name_upstream() {
    const THREADS: usize = 4;
    const REQUESTS: usize = 2_500;
    let upstream = upstream_of(&FILES);
    // A stranger has registered one of our names, and one that is pinned to a base.
    let listed = ["foo", "secret-one", "acme-two"].map(|name| json!({"name": name}));
    let list = json!({"meta": {"api-version": "1.1"}, "projects": listed});
    upstream.offer("/simple/", Offer::json(list.to_string()));
    let index = start();
    make_mirror(&index, &upstream, json!({"policy_cooldown_days": 1}));
    index.stage("alice/base", json!({}));
    index.upload("alice/base", "secret_one-1.0.zip", &sdist("one"));
    let config = json!({"bases": ["alice/base", "alice/up"], "base_pins": ["acme-*=alice/base"]});
    index.stage("alice/dev", config);
    index.stage("alice/open", json!({"bases": ["alice/base", "alice/up"]}));
    let names = ["secret-one", "Secret_One", "secret.one", "SECRET--ONE", "acme-two", "acme-three"];
    let host = upstream.host();
    let digest = Digest::of(b"x").to_string();
    let client = index.client();
    let ask = &|number: usize| {
        let name = names[number % names.len()];
        // The other index has no pin; there, what is on no list is not sent.
        let stage =
            if number.is_multiple_of(7) && name != "acme-two" { "alice/open" } else { "alice/dev" };
        let version = number / 13 % 9;
        let [place, other] = [&digest[..3], &digest[3..16]];
        let target = match number / names.len() % 10 {
            0 => format!("/{stage}/+simple/{name}/"),
            1 => format!("/{stage}/{name}"),
            2 => format!("/{stage}/{name}/{version}.0"),
            3 => format!("/{stage}/+upstream/{host}/files/{name}-{version}.0.tar.gz"),
            4 => format!("/{stage}/+f/{place}/{other}/{name}-{version}.0.tar.gz"),
            5 => format!("/{stage}/+e/http_{host}_files/{name}-{version}.0.tar.gz"),
            6 => {
                format!("/{stage}/+f/{place}/{other}/{name}-{version}.0-py3-none-any.whl.metadata")
            }
            7 => format!("/{stage}/+upstream/{host}/simple/{name}/{name}-{version}.0.zip"),
            8 => format!("/{stage}/+simple/{name}"),
            _ => format!("/{stage}/+simple/{name}/refresh"),
        };
        let method =
            if target.ends_with("/refresh") { "POST" } else { ["GET", "HEAD"][number % 2] };
        let accept = [JSON_PAGE, JSON, ("Accept", "text/html")][number % 3];
        client.send(method, &target, &[accept], b"").status
    };
    let answered = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    (0..REQUESTS).filter(|at| ask(at * THREADS + thread) < 500).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("answers")).sum::<usize>()
    });
    assert_eq!(answered, THREADS * REQUESTS, "no request fails");
    let sent: BTreeSet<String> = upstream.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(sent, ["/simple/".to_owned()].into(), "only the list of names is asked for");
    // It would be seen.
    assert_eq!(client.get("/alice/dev/+simple/foo/").status, 200);
    assert_eq!(upstream.count("/simple/foo/"), 1);
}
