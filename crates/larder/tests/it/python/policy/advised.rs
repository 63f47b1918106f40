//! Rules for known malware and vulnerabilities: what records name is refused under every address, a new bundle counts at once, and
//! the audit log has both refusals and warnings.

use serde_json::{Value, json};

use super::super::advisories::{bundle, record, replace};
use super::audit::audit;
use super::{FILES, check_refused, json_page, make_mirror, names, start_knowing, upstream_of};
use crate::asking::Says as _;
use crate::python::{Index, JSON, path, sdist, wheel};
use crate::wait_until;

/// Every address of a file, and of its metadata if it has some.
fn addresses(stage: &str, place: &str, filename: &str, content: &[u8]) -> Vec<String> {
    let mut targets = vec![path(stage, filename, content)];
    if !place.is_empty() {
        targets.push(format!("/{stage}/+upstream/{place}/files/{filename}"));
    }
    if filename.ends_with(".whl") {
        let metadata: Vec<String> = targets.iter().map(|it| format!("{it}.metadata")).collect();
        targets.extend(metadata);
    }
    targets
}

fn status(index: &Index, target: &str) -> u16 {
    index.get(target).status
}

#[test]
fn known_malware_is_refused_under_every_address_and_new_records_count_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("osv.zip");
    let records = [
        record("MAL-2026-1", "foo", &["1.0"]),
        record("MAL-2026-2", "own", &["1.0", "2.0"]),
        record("GHSA-1", "foo", &["2.0"]),
        record("GHSA-2", "own", &[]),
    ];
    replace(&source, &bundle(&records));
    let upstream = upstream_of(&FILES);
    let index = start_knowing(&source);
    let refuse = json!({"policy_malware": "refuse"});
    make_mirror(&index, &upstream, refuse.clone());
    index.stage("alice/base", refuse);
    index.stage("alice/dev", json!({"bases": ["alice/base", "alice/up"]}));
    // Without the setting nothing changes.
    index.stage("alice/open", json!({}));
    let (wheel, _) = wheel("own", "2.0");
    let ours = [
        ("own-1.0.zip", sdist("one"), true),
        ("own-2.0-py3-none-any.whl", wheel, true),
        ("own-3.0.zip", sdist("three"), false),
    ];
    for (filename, content, _) in &ours {
        index.upload("alice/base", filename, content);
        index.upload("alice/open", filename, content);
    }
    assert_eq!(names(&json_page(&index, "alice/open", "own")).len(), 3);
    let is_evil = |filename: &str| filename.starts_with("foo-1.0");
    for stage in ["alice/up", "alice/base", "alice/dev"] {
        let host = upstream.host();
        let theirs = FILES
            .iter()
            .map(|file| ("foo", "alice/up", host.clone(), file.0, file.content(), is_evil(file.0)));
        let own = ours.iter().map(|(filename, content, is_refused)| {
            ("own", "alice/base", String::new(), *filename, content.clone(), *is_refused)
        });
        for (project, holder, place, filename, content, is_refused) in theirs.chain(own) {
            if stage != holder && stage != "alice/dev" {
                continue;
            }
            let page = json_page(&index, stage, project);
            assert_eq!(names(&page).contains(filename), !is_refused, "{page}");
            let (id, files) = if project == "foo" { ("MAL-2026-1", 2) } else { ("MAL-2026-2", 2) };
            let reason = format!("known malware: {id}");
            let hidden = json!([{"files": files, "index": holder, "reason": reason}]);
            assert_eq!(page["_hidden"], hidden, "{page}");
            for target in addresses(stage, &place, filename, &content) {
                let answer = index.get(&target);
                match is_refused {
                    true => check_refused(&answer, "malware", holder, &reason),
                    false => assert_eq!(answer.status, 200, "{target}: {}", answer.text()),
                }
                let meta = index.client().get_with(&target, &[JSON]).status;
                assert_eq!(meta, if is_refused { 403 } else { 200 }, "{target}");
            }
        }
    }
    let human = index.client().get_with("/alice/dev/+simple/own/", &[("Accept", "text/html")]);
    let sentence = "2 files are hidden by the policy of alice/base: known malware: MAL-2026-2.";
    human.says(sentence);
    index.anybody().json().get("/alice/base/own/1.0").expect(403);
    index.get("/metrics").says("larder_policy_refused_total{rule=\"malware\"}");
    let log = audit(&index.root().json().get("/alice/base/+audit?rule=malware&limit=1"));
    let expected = ["refused", "1.0", "malware", "known malware: MAL-2026-2"];
    assert_eq!(log[0][0..1], expected[0..1]);
    assert_eq!(log[0][2..], expected[2..], "{log:?}");

    // The records of another bundle: one was withdrawn, and one is new.
    let mut next = records.clone();
    next[0] = record("MAL-2026-1", "foo", &["4.0"]);
    next[1]["withdrawn"] = "2026-02-01T00:00:00Z".into();
    replace(&source, &bundle(&next));
    let (evil, good) = ("foo-4.0.tar.gz", "foo-1.0.tar.gz");
    let at = |name: &str| format!("/alice/dev/+upstream/{}/files/{name}", upstream.host());
    wait_until("the new records", || status(&index, &at(evil)) == 403);
    assert_eq!(status(&index, &at(good)), 200);
    for stage in ["alice/up", "alice/dev"] {
        let shown = names(&json_page(&index, stage, "foo"));
        assert!(!shown.contains(evil) && shown.contains(good), "{stage}: {shown:?}");
    }
    for stage in ["alice/base", "alice/dev"] {
        assert_eq!(names(&json_page(&index, stage, "own")).len(), 3, "{stage}");
        assert_eq!(status(&index, &path(stage, "own-1.0.zip", &ours[0].1)), 200, "{stage}");
    }
    // A whole project, which lists leave out, too.
    next[0] = record("MAL-2026-1", "foo", &[]);
    replace(&source, &bundle(&next));
    wait_until("the project to be refused", || status(&index, &at(good)) == 403);
    let page = json_page(&index, "alice/dev", "foo");
    let said = json!({"status": "quarantined", "reason": "known malware: MAL-2026-1"});
    assert_eq!((&page["project-status"], &page["files"]), (&said, &json!([])), "{page}");
    for stage in ["alice/up", "alice/dev"] {
        let accept = ("Accept", "application/vnd.pypi.simple.v1+json");
        let list = index.client().get_with(&format!("/{stage}/+simple/"), &[accept]).json();
        let listed = list["projects"].as_array().expect("projects");
        assert!(!listed.contains(&json!({"name": "foo"})), "{list}");
    }
    // A person who has examined it adds an exception.
    let edit = json!(["policy_exceptions+=foo==2.0 until 2100-01-01 examined, says alice"]);
    index.alice().patch("/alice/up", edit).expect(200);
    let excepted = "foo-2.0-py3-none-any.whl";
    assert_eq!(status(&index, &at(excepted)), 200);
    assert_eq!(status(&index, &at(good)), 403);
    assert_eq!(names(&json_page(&index, "alice/dev", "foo")), [excepted.to_owned()].into());
    let log = audit(&index.root().json().get("/alice/up/+audit?event=excepted"));
    assert_eq!(log[0][..3], ["excepted", excepted, "malware"].map(str::to_owned));
}

#[test]
fn a_warning_is_noted_and_refuses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("osv.zip");
    let records = [record("GHSA-1", "foo", &["1.0"]), record("MAL-1", "foo", &["3.0"])];
    replace(&source, &bundle(&records));
    let upstream = upstream_of(&FILES);
    let index = start_knowing(&source);
    let measures = json!({"policy_vulnerabilities": "warn", "policy_malware": "refuse"});
    make_mirror(&index, &upstream, measures.clone());
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let at = |name: &str| format!("/alice/dev/+upstream/{}/files/{name}", upstream.host());
    for (name, expected) in
        [("foo-1.0.tar.gz", 200), ("foo-2.0-py3-none-any.whl", 200), ("foo-3.0.tar.gz", 403)]
    {
        assert_eq!(status(&index, &at(name)), expected, "{name}");
        assert_eq!(names(&json_page(&index, "alice/dev", "foo")).contains(name), expected == 200);
    }
    let changed = "its rules were changed: policy_malware, policy_vulnerabilities";
    let expected = [
        ["refused", "foo-3.0.tar.gz", "malware", "known malware: MAL-1"],
        ["warned", "foo-1.0.tar.gz", "vulnerabilities", "known vulnerability: GHSA-1"],
        ["changed", "policy", "", changed],
    ];
    let expected = expected.map(|it| it.map(str::to_owned));
    let log = |path: &str| audit(&index.alice().json().get(path));
    assert_eq!(log("/alice/up/+audit"), expected);
    assert_eq!(log("/alice/up/+audit?event=warned"), expected[1..2]);
    let shown = index.anybody().json().get("/alice/up").json();
    for (key, value) in measures.as_object().expect("an object") {
        assert_eq!(shown["result"][key], *value, "{shown}");
    }
    // Pages for people say so, for files of a mirror and for our own.
    let html = ("Accept", "text/html");
    let page = index.client().get_with("/alice/dev/+simple/foo/", &[html]).text();
    let said = "another file are served with a warning by the policy of alice/up: known vulnerability: GHSA-1";
    page.says(said);
    index.stage("alice/own", measures.clone());
    for version in ["1.0", "2.0", "3.0"] {
        index.upload("alice/own", &format!("foo-{version}.zip"), &sdist(version));
    }
    let page = |path: &str| index.client().get_with(path, &[html]).text();
    let said = "foo-1.0.zip is served with a warning by the policy of alice/own: known vulnerability: GHSA-1.";
    assert!(page("/alice/own/foo/1.0").contains(said), "{}", page("/alice/own/foo/1.0"));
    let newest = page("/alice/own/foo");
    newest.says("foo-2.0.zip");
    newest.lacks("with a warning");
    newest.says("1 file is hidden by the policy of alice/own: known malware: MAL-1.");

    let off = json!({"policy_vulnerabilities": "off", "policy_malware": "off"});
    index.alice().patch("/alice/up", off).expect(200);
    index.get(&at("foo-3.0.tar.gz")).expect(200);
    let shown = index.anybody().json().get("/alice/up").json();
    assert_eq!(shown["result"]["policy_malware"], Value::Null);
}
