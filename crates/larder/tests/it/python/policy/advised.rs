//! Rules for known malware and vulnerabilities: what records name is refused under every address, a new bundle counts at once, and
//! the audit log has both refusals and warnings.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Upstream;

use super::super::advisories::{bundle, record, replace};
use super::audit::audit;
use super::{
    FILES, JSON_PAGE, check_refused, json_page, mirror, names, start_knowing, upstream_of,
};
use crate::asking::{each, line};
use crate::python::{Index, path, sdist, wheel};
use crate::shown::shown;
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

/// `alice/dev` on the index `alice/base` and the mirror `alice/up`, which both refuse malware: of `foo` in the mirror the version 1.0,
/// of `own` in the index two of three files. `alice/open` has the same files and refuses nothing.
struct Refusing {
    index: Index,
    upstream: Upstream,
    directory: TempDir,
    records: [Value; 4],
    /// Files of `own`, and whether they are refused.
    ours: [(&'static str, Vec<u8>, bool); 3],
}

impl Refusing {
    fn start() -> Refusing {
        let directory = tempfile::tempdir().expect("a directory");
        let records = [
            record("MAL-2026-1", "foo", &["1.0"]),
            record("MAL-2026-2", "own", &["1.0", "2.0"]),
            record("GHSA-1", "foo", &["2.0"]),
            record("GHSA-2", "own", &[]),
        ];
        let source = directory.path().join("osv.zip");
        replace(&source, &bundle(&records));
        let upstream = upstream_of(&FILES);
        let index = start_knowing(&source);
        let refuse = json!({"policy_malware": "refuse"});
        mirror(&index, &upstream, refuse.clone());
        index.stage("alice/base", refuse);
        index.stage("alice/dev", json!({"bases": ["alice/base", "alice/up"]}));
        index.stage("alice/open", json!({}));
        let ours = [
            ("own-1.0.zip", sdist("one"), true),
            ("own-2.0-py3-none-any.whl", wheel("own", "2.0").0, true),
            ("own-3.0.zip", sdist("three"), false),
        ];
        for (filename, content, _) in &ours {
            index.upload("alice/base", filename, content);
            index.upload("alice/open", filename, content);
        }
        Refusing { index, upstream, directory, records, ours }
    }

    /// Puts these records in the place of the others.
    fn replace(&self, records: &[Value]) {
        replace(&self.directory.path().join("osv.zip"), &bundle(records));
    }

    /// The status of a file of `foo` on `alice/dev`.
    fn status(&self, filename: &str) -> u16 {
        let host = self.upstream.host();
        self.index.get(&format!("/alice/dev/+upstream/{host}/files/{filename}")).status
    }

    /// The names of a project's files on a page.
    fn shown(&self, stage: &str, project: &str) -> BTreeSet<String> {
        names(&json_page(&self.index, stage, project))
    }
}

#[test]
fn known_malware_is_refused_under_every_address() {
    let it = Refusing::start();
    let host = it.upstream.host();
    let foo = FILES.iter().map(|file| {
        let is_evil = file.0.starts_with("foo-1.0");
        ("foo", "alice/up", host.as_str(), file.0, file.content(), is_evil)
    });
    let own = it.ours.iter().map(|(filename, content, is_refused)| {
        ("own", "alice/base", "", *filename, content.clone(), *is_refused)
    });
    each(foo.chain(own), |(project, holder, place, filename, content, is_refused)| {
        let id = if project == "foo" { "MAL-2026-1" } else { "MAL-2026-2" };
        let reason = format!("known malware: {id}");
        for stage in [holder, "alice/dev"] {
            let page = json_page(&it.index, stage, project);
            assert_eq!(names(&page).contains(filename), !is_refused, "{page}");
            let hidden = json!([{"files": 2, "index": holder, "reason": reason}]);
            assert_eq!(page["_hidden"], hidden, "{page}");
            for target in addresses(stage, place, filename, &content) {
                let answer = it.index.get(&target);
                let expected = if is_refused { 403 } else { 200 };
                match is_refused {
                    true => check_refused(&answer, "malware", holder, &reason),
                    false => drop(answer.expect(200)),
                }
                it.index.anybody().json().get(&target).expect(expected);
            }
        }
    });
    assert_eq!(it.shown("alice/open", "own").len(), 3, "without the setting nothing changes");
}

#[test]
fn refused_malware_is_told_to_people_and_noted() {
    let it = Refusing::start();
    assert_eq!(
        it.index.notes("alice/dev", "own"),
        "INFO: Because this project isn't in the mirror_whitelist, no releases from alice/up are included.\nINFO: 2 files are hidden by the policy of alice/base: known malware: MAL-2026-2."
    );
    it.index.anybody().json().get("/alice/base/own/1.0").expect(403);
    let refused = it.index.metric("larder_policy_refused_total{rule=\"malware\"}");
    assert_eq!(refused, 1.0);
    let log = audit(&it.index.root().json().get("/alice/base/+audit?rule=malware&limit=1"));
    assert_eq!(log, [["refused", "own 1.0", "malware", "known malware: MAL-2026-2"]]);
}

#[test]
fn withdrawn_and_new_records_count_at_once() {
    let it = Refusing::start();
    let mut next = it.records.clone();
    next[0] = record("MAL-2026-1", "foo", &["4.0"]);
    next[1]["withdrawn"] = "2026-02-01T00:00:00Z".into();
    it.replace(&next);
    let (evil, good) = ("foo-4.0.tar.gz", "foo-1.0.tar.gz");
    wait_until("the new records", || it.status(evil) == 403);
    assert_eq!(it.status(good), 200);
    for stage in ["alice/up", "alice/dev"] {
        let shown = it.shown(stage, "foo");
        assert_eq!((shown.contains(evil), shown.contains(good)), (false, true), "{stage}");
    }
    for stage in ["alice/base", "alice/dev"] {
        assert_eq!(it.shown(stage, "own").len(), 3, "{stage}");
        it.index.get(&path(stage, "own-1.0.zip", &it.ours[0].1)).expect(200);
    }
}

#[test]
fn a_project_of_malware_is_in_no_list_until_somebody_adds_an_exception() {
    let it = Refusing::start();
    let mut next = it.records.clone();
    next[0] = record("MAL-2026-1", "foo", &[]);
    it.replace(&next);
    let (excepted, evil) = ("foo-2.0-py3-none-any.whl", "foo-3.0.tar.gz");
    wait_until("the project to be refused", || it.status(evil) == 403);
    let page = json_page(&it.index, "alice/dev", "foo");
    let said = json!({"status": "quarantined", "reason": "known malware: MAL-2026-1"});
    assert_eq!((&page["project-status"], &page["files"]), (&said, &json!([])), "{page}");
    for (stage, projects) in [("alice/up", json!([])), ("alice/dev", json!([{"name": "own"}]))] {
        let list = it.index.client().get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).json();
        assert_eq!(list["projects"], projects, "{stage}");
    }
    let edit = json!(["policy_exceptions+=foo==2.0 until 2100-01-01 examined, says alice"]);
    it.index.alice().patch("/alice/up", edit).expect(200);
    assert_eq!((it.status(excepted), it.status(evil)), (200, 403));
    assert_eq!(it.shown("alice/dev", "foo"), [excepted.to_owned()].into());
    let log = audit(&it.index.root().json().get("/alice/up/+audit?event=excepted"));
    assert_eq!(log[0][..3], ["excepted", excepted, "malware"]);
}

fn measures() -> Value {
    json!({"policy_vulnerabilities": "warn", "policy_malware": "refuse"})
}

/// `alice/up`, with a warning for `foo` 1.0 and a refusal for `foo` 3.0, and `alice/dev` on it.
fn start_warning() -> (Index, Upstream, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("osv.zip");
    let records = [record("GHSA-1", "foo", &["1.0"]), record("MAL-1", "foo", &["3.0"])];
    replace(&source, &bundle(&records));
    let upstream = upstream_of(&FILES);
    let index = start_knowing(&source);
    mirror(&index, &upstream, measures());
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    (index, upstream, directory)
}

#[test]
fn a_warning_is_noted_and_refuses_nothing() {
    let (index, upstream, _directory) = start_warning();
    let at = |name: &str| format!("/alice/dev/+upstream/{}/files/{name}", upstream.host());
    for (name, expected) in
        [("foo-1.0.tar.gz", 200), ("foo-2.0-py3-none-any.whl", 200), ("foo-3.0.tar.gz", 403)]
    {
        index.get(&at(name)).expect(expected);
        assert_eq!(names(&json_page(&index, "alice/dev", "foo")).contains(name), expected == 200);
    }
    let changed = "its rules were changed: policy_malware, policy_vulnerabilities";
    let expected = [
        ["refused", "foo-3.0.tar.gz", "malware", "known malware: MAL-1"],
        ["warned", "foo-1.0.tar.gz", "vulnerabilities", "known vulnerability: GHSA-1"],
        ["changed", "policy", "", changed],
    ];
    let log = |path: &str| audit(&index.alice().json().get(path));
    assert_eq!(log("/alice/up/+audit"), expected);
    assert_eq!(log("/alice/up/+audit?event=warned"), expected[1..2]);
    let shown = index.anybody().json().get("/alice/up").json();
    for (key, value) in measures().as_object().expect("an object") {
        assert_eq!(shown["result"][key], *value, "{shown}");
    }
    let off = json!({"policy_vulnerabilities": "off", "policy_malware": "off"});
    index.alice().patch("/alice/up", off).expect(200);
    index.get(&at("foo-3.0.tar.gz")).expect(200);
    let shown = index.anybody().json().get("/alice/up").json();
    assert_eq!(shown["result"]["policy_malware"], Value::Null);
}

/// For files of a mirror and for our own.
#[test]
fn pages_for_people_have_the_warning() {
    let (index, _upstream, _directory) = start_warning();
    let page = |path: &str| index.browse(path).expect(200);
    assert_eq!(
        index.notes("alice/dev", "foo"),
        "INFO: 1 file is hidden by the policy of alice/up: known malware: MAL-1.\nWARNING: foo-1.0.tar.gz and another file are served with a warning by the policy of alice/up: known vulnerability: GHSA-1.\nINFO: Of 1 file upstream does not say when it was uploaded: the time that installers get is when this server first saw them."
    );
    index.stage("alice/own", measures());
    for version in ["1.0", "2.0", "3.0"] {
        index.upload("alice/own", &format!("foo-{version}.zip"), &sdist(version));
    }
    let release = shown(&page("/alice/own/foo/1.0").text());
    assert_eq!(
        line(&release, "Warning: "),
        "Warning: foo-1.0.zip is served with a warning by the policy of alice/own: known vulnerability: GHSA-1."
    );
    let newest = page("/alice/own/foo");
    newest.says("foo-2.0.zip").lacks("with a warning");
    let hidden = "1 file is hidden by the policy of alice/own: known malware: MAL-1.";
    assert_eq!(line(&shown(&newest.text()), "1 file is"), hidden);
}
