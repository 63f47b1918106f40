//! Policies over HTTP: what a page hides is refused under every other address as well, and appears when it has matured.

mod advised;
mod agreement;
mod audit;
mod private_names;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;

use config::BundleSource;
use jiff::{SignedDuration, Timestamp};
use record::Digest;
use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::mirrors::{
    self, JSON_PAGE, allow_this_machine, fresh_for_long, fresh_for_long_with, list, mirror,
    mirror_of,
};
use super::{Index, JSON, Response, path, sdist};
use crate::asking::texts;
use crate::wait_until;

const DAY_HOURS: i64 = 24;

/// An index with the mirror `alice/up` of [`FILES`].
fn mirroring(settings: Value) -> (Upstream, Index) {
    let (upstream, index) = (upstream_of(&FILES), fresh_for_long());
    mirror(&index, &upstream, settings);
    (upstream, index)
}

/// An index whose policies know the OSV records of this zip, before the first request.
fn start_knowing(source: &Path) -> Index {
    fresh_for_long_with(|config| {
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
    upstream.offer("/simple/", list(&["foo"]));
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

fn json_page(index: &Index, stage: &str, project: &str) -> Value {
    mirrors::json_page(index.client(), stage, project).expect(200).json()
}

fn names(page: &Value) -> BTreeSet<String> {
    texts(&page["files"], "filename").into_iter().collect()
}

/// Expects 403, with the rule, the index whose policy it is, and the reason.
#[track_caller]
fn check_refused(answer: &Response, rule: &str, stage: &str, reason: &str) {
    let text = answer.text();
    answer.check_status(403);
    answer.has("content-type", "application/problem+json").has("cache-control", "no-store");
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
    let (upstream, index) = mirroring(json!({"policy_cooldown_days": 7}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    for stage in ["alice/up", "alice/dev"] {
        let page = json_page(&index, stage, "foo");
        let shown = ["foo-1.0-py3-none-any.whl", "foo-1.0.tar.gz", "foo-2.0-py3-none-any.whl"];
        assert_eq!(names(&page), shown.map(str::to_owned).into(), "{stage}");
        assert_eq!(page["versions"], json!(["1.0", "2.0"]), "{page}");
        let hidden = &page["_hidden"][0];
        let facts = (&hidden["files"], &hidden["index"], &hidden["reason"]);
        assert_eq!(facts, (&json!(2), &json!("alice/up"), &json!("younger than 7 days")), "{page}");
        assert_eq!(
            index.notes(stage, "foo"),
            "INFO: 2 files are hidden by the policy of alice/up: younger than 7 days."
        );
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
            index.anybody().send("HEAD", &target, ()).expect(403);
        }
    }
    assert_eq!(upstream.requests().len(), before, "nothing is fetched for it");
    // pip shows nothing but the reason phrase.
    let mut stream = index.connect();
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
    let index = mirror_of(fresh_for_long(), &upstream, json!({"policy_cooldown_days": 7}));
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
    let index = mirror_of(fresh_for_long(), &upstream, json!({"policy_cutoff": "2020-01-01"}));
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), 0);
    let patch =
        json!({"policy_cutoff": (Timestamp::now() + SignedDuration::from_secs(1)).to_string()});
    index.alice().patch("/alice/up", patch).expect(200);
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), 1, "it has been seen before");
    // Files that come later are seen later.
    wait_until("the cut-off is over", || {
        let settings = index.client().get_with("/alice/up", &[JSON]).json();
        let cutoff = settings["result"]["policy_cutoff"].as_str().expect("a time").to_owned();
        cutoff.parse::<Timestamp>().expect("a time") < Timestamp::now()
    });
    let entries = ["foo-1.0.tar.gz", "foo-2.0.tar.gz"];
    offer_page(&upstream, entries.map(|name| Theirs(name, None).entry(&upstream)).into());
    index.alice().post("/alice/up/+simple/foo/refresh", ()).expect(302);
    assert_eq!(names(&json_page(&index, "alice/up", "foo")), ["foo-1.0.tar.gz".to_owned()].into());
}

#[test]
fn a_file_is_judged_by_what_upstream_says_now() {
    let upstream = upstream_of(&FILES);
    let index = fresh_for_long();
    let settings = json!({"policy_cooldown_days": 7, "mirror_cache_expiry": 0});
    mirror(&index, &upstream, settings);
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let [old, other] = ["foo-1.0.tar.gz", "foo-2.0-py3-none-any.whl"];
    let target =
        |stage: &str, name: &str| format!("/{stage}/+upstream/{}/files/{name}", upstream.host());
    for stage in ["alice/up", "alice/dev"] {
        assert_eq!(index.client().get(&target(stage, old)).text(), old);
    }
    // Upstream replaces the file that is known here.
    let mut entry = Theirs(old, Some(0)).entry(&upstream);
    entry["hashes"] = json!({"sha256": Digest::of(b"evil").to_string()});
    offer_page(&upstream, vec![entry, FILES[2].entry(&upstream)]);
    upstream.offer(&format!("/files/{old}"), Offer::file("evil"));
    for stage in ["alice/up", "alice/dev"] {
        let answer = index.get(&target(stage, old));
        check_refused(&answer, "cooldown", "alice/up", "younger than 7 days");
        assert_eq!(index.client().get(&target(stage, other)).text(), other);
    }
    // What was last known counts while upstream fails.
    upstream.break_with(Some(500));
    for stage in ["alice/up", "alice/dev"] {
        let answer = index.get(&target(stage, old));
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
        let answer = index.get(&target(stage, other));
        check_refused(&answer, "quarantine", "alice/up", "quarantined: stolen");
    }
}

#[test]
fn what_a_stage_has_removed_comes_from_its_base() {
    let index = fresh_for_long();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"], "policy_deny": ["other"]}));
    let content = sdist("one");
    for stage in ["alice/base", "alice/dev"] {
        index.upload(stage, "own-1.0.zip", &content);
    }
    let target = path("alice/dev", "own-1.0.zip", &content);
    index.alice().delete(&target).expect(200);
    let page = json_page(&index, "alice/dev", "own");
    let link = page["files"][0]["url"].as_str().expect("a link").to_owned();
    assert_eq!(agreement::resolved(&link, "alice/dev", "own"), target);
    index.get(&target).expect(200);
    index.alice().delete(&path("alice/base", "own-1.0.zip", &content)).expect(200);
    index.get(&target).expect(410);
}

/// Without a policy, pages link inherited files below the base, so a removed file stays removed.
#[test]
fn what_a_stage_without_a_policy_has_removed_is_gone() {
    let index = fresh_for_long();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    let content = sdist("one");
    for stage in ["alice/base", "alice/dev"] {
        index.upload(stage, "own-1.0.zip", &content);
    }
    let target = path("alice/dev", "own-1.0.zip", &content);
    index.alice().delete(&target).expect(200);
    index.get(&target).expect(410);
    let inherited = path("alice/base", "own-1.0.zip", &content);
    index.get(&inherited).expect(200);
}

/// An index with a mirror as base and a file of its own, the upstream of the mirror, and the path of the file.
fn with_own_file() -> (Index, Upstream, String) {
    let (upstream, index) = mirroring(json!({}));
    let sources = sdist("one");
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    index.upload("alice/dev", "own-1.0.zip", &sources);
    (index, upstream, path("alice/dev", "own-1.0.zip", &sources))
}

/// `own` 1.0 is in quarantine for this reason: its file, its version and its project say so.
#[track_caller]
fn check_quarantined(index: &Index, target: &str, reason: &str) {
    let reason = format!("quarantined: {reason}");
    for target in [target, "/alice/dev/own/1.0"] {
        check_refused(&index.get(target), "quarantine", "alice/dev", &reason);
    }
    let project = index.anybody().json().get("/alice/dev/own").json();
    let message = format!("1 file is hidden by the policy of alice/dev: {reason}");
    let expected = json!({"type": "projectconfig", "result": {}, "message": message});
    assert_eq!(project, expected);
    let refused = index.metric("larder_policy_refused_total{rule=\"quarantine\"}");
    assert_eq!(refused, 2.0);
}

#[test]
fn a_quarantine_has_a_reason_that_installers_show() {
    let (index, _upstream, target) = with_own_file();
    index.get(&target).expect(200);
    let edit =
        json!(["policy_quarantine+=foo stolen, see below", "policy_quarantine+=own==1.0 broken"]);
    index.alice().patch("/alice/dev", edit).expect(200);
    let page = json_page(&index, "alice/dev", "foo");
    let status = json!({"status": "quarantined", "reason": "stolen, see below"});
    assert_eq!((&page["project-status"], &page["files"]), (&status, &json!([])));
    check_quarantined(&index, &target, "broken");
    // The base has no policy: only the addresses below the stage have that of the stage.
    assert_eq!(names(&json_page(&index, "alice/up", "foo")).len(), FILES.len());
    let edit = json!(["policy_quarantine-=foo", "policy_quarantine-=own==1.0"]);
    index.alice().patch("/alice/dev", edit).expect(200);
    index.get(&target).expect(200);
}

/// The owner's own word counts for the file as well.
#[test]
fn a_project_in_quarantine_hides_its_files() {
    let (index, _upstream, target) = with_own_file();
    let word = json!({"status": "quarantined", "reason": "wait"});
    index.alice().put("/alice/dev/own/+status", word).expect(200);
    assert_eq!(json_page(&index, "alice/dev", "own")["files"], json!([]));
    check_quarantined(&index, &target, "wait");
}
