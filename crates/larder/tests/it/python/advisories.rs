//! Known malware and vulnerabilities: the bundle of OSV records, where it comes from, what outlives a failure, and queries in the shape of
//! OSV's API.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{BundleSource, Config};
use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Offer, Upstream};

use super::zip;
use crate::accounts::Place;
use crate::asking::{Says as _, each};
use crate::client::Response;
use crate::server::TestServer;
use crate::shown::{redacted, shown_json};
use crate::wait_until;

/// A record about these versions of a project; without any, about all of them.
pub(super) fn record(id: &str, project: &str, versions: &[&str]) -> Value {
    let mut affected =
        json!({"package": {"ecosystem": "PyPI", "name": project}, "versions": versions});
    if versions.is_empty() {
        affected["ranges"] = json!([{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]);
    }
    json!({"id": id, "modified": "2026-01-02T03:04:05Z", "summary": format!("about {id}"), "affected": [affected]})
}

pub(super) fn bundle(records: &[Value]) -> Vec<u8> {
    let files: Vec<(String, Vec<u8>)> = records
        .iter()
        .map(|it| {
            (format!("{}.json", it["id"].as_str().expect("an id")), it.to_string().into_bytes())
        })
        .collect();
    let members: Vec<(&str, &[u8])> =
        files.iter().map(|(name, json)| (name.as_str(), json.as_slice())).collect();
    zip(&members)
}

fn path_in(directory: &TempDir) -> PathBuf {
    directory.path().join("osv.zip")
}

/// Puts a file in the place of another by renaming.
pub(super) fn replace(path: &Path, content: &[u8]) {
    let beside = path.with_extension("next");
    fs::write(&beside, content).expect("a file");
    fs::rename(beside, path).expect("a rename");
}

fn start(directory: Arc<TempDir>, change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::start_in(directory, |config, directory| {
        config.aur.enabled = false;
        config.advisories.source = Some(BundleSource::File(path_in(directory)));
        change(config);
    })
    .ready()
}

fn post(server: &TestServer, path: &str, body: &Value) -> Response {
    server.anybody().typed("application/json").post(path, body.to_string().as_bytes())
}

fn query(project: &str, version: &str) -> Value {
    json!({"package": {"name": project, "ecosystem": "PyPI"}, "version": version})
}

/// The identifiers that a batch of one query brings.
#[track_caller]
fn ids(server: &TestServer, project: &str, version: &str) -> Vec<String> {
    let batch = json!({"queries": [query(project, version)]});
    let answer = post(server, "/+osv/v1/querybatch", &batch).expect(200);
    let vulns = answer.json()["results"][0]["vulns"].as_array().cloned().unwrap_or_default();
    vulns.iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect()
}

fn verbose(server: &TestServer) -> String {
    server.get("/readyz?verbose").text()
}

/// What the server says of its records, or of trouble with them.
#[track_caller]
fn state(server: &TestServer) -> String {
    let text = verbose(server);
    let lines = text.lines().filter(|line| line.contains(" advisories: "));
    redacted(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn queries_are_answered_in_the_shape_of_osvs_api() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let records = [
        record("MAL-2026-1", "evil", &[]),
        record("MAL-2026-2", "hijacked", &["1.2"]),
        record("GHSA-aaaa", "hijacked", &["1.2", "1.3"]),
    ];
    fs::write(path_in(&directory), bundle(&records)).expect("a file");
    let server = start(directory, |_| ());
    let batch = json!({"queries": [
        query("evil", "7"), query("good", "1.0"), query("Hijacked", "1.2.0"), query("hijacked", "1.4"),
        {"package": {"purl": "pkg:pypi/hijacked@1.3"}}, {"package": {"name": "evil", "ecosystem": "npm"}},
    ]});
    let answer = post(&server, "/+osv/v1/querybatch", &batch).expect(200);
    answer.has("content-type", "application/json");
    let found = |id: &str| json!({"id": id, "modified": "2026-01-02T03:04:05Z"});
    let expected = json!({"results": [
        {"vulns": [found("MAL-2026-1")]}, {}, {"vulns": [found("GHSA-aaaa"), found("MAL-2026-2")]}, {},
        {"vulns": [found("GHSA-aaaa")]}, {},
    ]});
    assert_eq!(answer.json(), expected);
    // Whole records, as they are in the bundle.
    let one = post(&server, "/+osv/v1/query", &query("hijacked", "1.2"));
    assert_eq!(one.json(), json!({"vulns": [records[2], records[1]]}));
    assert_eq!(post(&server, "/+osv/v1/query", &query("good", "1")).json(), json!({}));
    let record = server.get("/+osv/v1/vulns/MAL-2026-1");
    assert_eq!((record.status, record.json()), (200, records[0].clone()));
    assert_eq!(
        state(&server),
        "[+] advisories: 3 OSV records, 2 of them of malware, from DIRECTORY/osv.zip, modified TIME, confirmed TIME"
    );
    assert_eq!(server.metric("larder_osv_records{kind=\"malware\"}"), 2.0);
    assert_eq!(server.metric("larder_osv_records{kind=\"vulnerability\"}"), 1.0);
}

#[test]
fn queries_that_are_refused() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    fs::write(path_in(&directory), bundle(&[record("MAL-1", "evil", &[])])).expect("a file");
    let server = start(directory, |_| ());
    let check = |answer: Response, status: u16, code: u8| {
        answer.check_status(status).has("content-type", "application/json");
        let body = answer.json();
        assert_eq!(body["code"], code, "{body}");
        assert!(body["message"].as_str().is_some_and(|text| !text.is_empty()));
    };
    check(server.get("/+osv/v1/vulns/MAL-2026-9"), 404, 5);
    check(server.get("/+osv/v1/vulns/..%2f..%2fsource.json"), 404, 5);
    check(post(&server, "/+osv/v1/query", &json!({})), 400, 3);
    check(post(&server, "/+osv/v1/query", &json!("x")), 400, 3);
    let many = vec![query("good", "1"); 1001];
    check(post(&server, "/+osv/v1/querybatch", &json!({"queries": many})), 400, 3);
    check(post(&server, "/+osv/v1/querybatch", &json!(" ".repeat(600 << 10))), 413, 8);
    let nested = vec![json!([]); 30_000];
    check(post(&server, "/+osv/v1/querybatch", &json!({"queries": nested})), 413, 8);
    server.get("/+osv/v1/query").expect(405).has("allow", "POST");
}

#[test]
fn a_new_file_counts_at_once_and_a_bad_one_changes_nothing() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = path_in(&directory);
    let server = start(directory, |_| ());
    // Nothing is said to be harmless before anything is known.
    let unknown = post(&server, "/+osv/v1/querybatch", &json!({"queries": []}));
    assert_eq!((unknown.status, unknown.json()["code"].clone()), (503, json!(14)));
    assert_eq!(
        state(&server),
        "[!] advisories: the last refresh failed: cannot read the dump `DIRECTORY/osv.zip`: No such file or directory (os error 2)"
    );
    replace(&path, &bundle(&[record("MAL-1", "evil", &[])]));
    wait_until("the first bundle", || server.get("/+osv/v1/vulns/MAL-1").status == 200);
    assert_eq!(ids(&server, "evil", "1"), ["MAL-1"]);
    wait_until("the trouble to be over", || !verbose(&server).contains("[!] advisories"));
    replace(&path, b"no zip");
    wait_until("the trouble", || verbose(&server).contains("it is no zip of OSV records"));
    assert_eq!(ids(&server, "evil", "1"), ["MAL-1"]);
    assert_eq!(server.metric("larder_osv_refresh_failing"), 1.0);
    replace(&path, &bundle(&records(1)));
    wait_until("the next bundle", || ids(&server, "evil", "2") == ["MAL-0"]);
    assert_eq!(ids(&server, "evil", "1"), [""; 0]);
}

/// Records of malware, `count` of them.
fn records(count: u32) -> Vec<Value> {
    (0..count).map(|number| record(&format!("MAL-{number}"), "evil", &["2"])).collect()
}

/// The last good one outlives a restart, before the first answer, and its source.
#[test]
fn a_bundle_that_has_lost_nearly_all_records_is_refused() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = path_in(&directory);
    replace(&path, &bundle(&records(10)));
    let server = start(directory, |_| ());
    replace(&path, &bundle(&records(3)));
    wait_until("the refusal", || verbose(&server).contains("it has 3 records, and 10 are served"));
    assert_eq!(ids(&server, "evil", "2").len(), 10);
    // After a restart, the server still refuses the bundle.
    let server = start(server.stop(), |_| ());
    assert_eq!(
        state(&server),
        "[+] advisories: 10 OSV records, 10 of them of malware, from DIRECTORY/data/osv/bundle.zip (kept from DIRECTORY/osv.zip), modified TIME, not confirmed since the start\n[!] advisories: the last refresh failed: DIRECTORY/osv.zip: it has 3 records, and 10 are served; at least 5 were expected. If so many were really taken back, remove the directory `osv` from the data directory and start the server again"
    );
    assert_eq!(ids(&server, "evil", "2").len(), 10);
    fs::remove_file(&path).expect("a file");
    let directory = server.stop();
    let server = start(directory, |config| config.advisories.source = None);
    assert_eq!(ids(&server, "evil", "2").len(), 10);
    server.get("/+osv/v1/vulns/MAL-3").expect(200);
    assert_eq!(
        state(&server),
        "[+] advisories: 10 OSV records, 10 of them of malware, from DIRECTORY/data/osv/bundle.zip (kept from DIRECTORY/osv.zip), modified TIME, not confirmed since the start"
    );
}

/// A file that was replaced while the server was stopped counts before the first answer.
#[test]
fn a_file_that_is_new_at_the_start_counts() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let path = path_in(&directory);
    let mut withdrawn = record("GHSA-1", "evil", &[]);
    withdrawn["withdrawn"] = json!("2026-01-02T00:00:00Z");
    replace(&path, &bundle(&[record("MAL-1", "evil", &["1"]), withdrawn]));
    let server = start(directory, |_| ());
    assert_eq!(ids(&server, "evil", "1"), ["MAL-1"]);
    assert_eq!(server.metric("larder_osv_records{kind=\"vulnerability\"}"), 0.0);
    let wrong = post(&server, "/+osv/v1/querybatch", &json!({"queries": [query("evil", "1.0 ")]}));
    assert_eq!((wrong.status, wrong.json()["code"].clone()), (400, json!(3)));
    let directory = server.stop();
    replace(&path, &bundle(&[record("MAL-2", "evil", &["1"])]));
    let server = start(directory, |_| ());
    assert_eq!(ids(&server, "evil", "1"), ["MAL-2"]);
}

/// The operator may write to a file at any time, so only a copy of it is served.
#[test]
fn a_file_that_cannot_be_copied_is_not_served() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    fs::create_dir_all(directory.path().join("data")).expect("a directory");
    // A disk that is not there.
    let link = std::os::unix::fs::symlink("nowhere", directory.path().join("data/osv"));
    link.expect("a link");
    fs::write(path_in(&directory), bundle(&[record("MAL-1", "evil", &[])])).expect("a file");
    let server = start(directory, |_| ());
    assert_eq!(
        state(&server),
        "[!] advisories: the last refresh failed: DIRECTORY/osv.zip: it cannot be copied: cannot write `DIRECTORY/data/osv/bundle.zip.tmp`: No such file or directory (os error 2)"
    );
    post(&server, "/+osv/v1/querybatch", &json!({"queries": []})).expect(503);
}

#[test]
fn a_url_is_asked_by_conditional_requests_and_outlived() {
    let upstream = Upstream::start();
    let offer = |records: &[Value], tag: &str| {
        upstream.offer("/all.zip", Offer::of("application/zip", bundle(records)).tagged(tag));
    };
    offer(&[record("MAL-1", "evil", &[])], "\"one\"");
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let url = BundleSource::Url(upstream.url("/all.zip"));
    // Asked at the start, and when it is told to.
    let never = std::time::Duration::from_secs(100_000);
    let change = |config: &mut Config| {
        (config.advisories.source, config.advisories.refresh) = (Some(url.clone()), never);
    };
    let server = start(directory, change);
    wait_until("the bundle", || server.get("/+osv/v1/vulns/MAL-1").status == 200);
    // A new bundle is kept when it counts already.
    wait_until("it to be kept", || {
        server.metric("larder_osv_refresh_total{result=\"published\"}") == 1.0
    });
    let directory = server.stop();
    let server = start(directory, change);
    assert_eq!(ids(&server, "evil", "1"), ["MAL-1"]);
    wait_until("the look at the start", || {
        server.metric("larder_osv_refresh_total{result=\"unchanged\"}") == 1.0
    });
    assert_eq!(upstream.count("/all.zip"), 2);
    let asked = upstream.requests();
    assert_eq!(asked[1].header("if-none-match"), "\"one\"", "also after a restart");
    upstream.break_with(Some(500));
    let directory = server.stop();
    let server = start(directory, change);
    assert_eq!(ids(&server, "evil", "1"), ["MAL-1"]);
    wait_until("the trouble", || {
        verbose(&server).contains("[!] advisories: the last refresh failed")
    });
    assert_eq!(
        state(&server),
        "[+] advisories: 1 OSV record, 1 of them of malware, from DIRECTORY/data/osv/bundle.zip (kept from http://127.0.0.1:PORT/all.zip), modified TIME, not confirmed since the start\n[!] advisories: the last refresh failed: `http://127.0.0.1:PORT/all.zip` answered 500 Internal Server Error, expected 200 or 304"
    );
}

/// What the command imports counts where the configuration names no source.
fn without_source(config: &mut Config) {
    config.advisories.source = None;
}

/// A directory with the bundle of nine records that are imported.
fn to_import() -> (Arc<TempDir>, Vec<Value>) {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let many = records(9);
    fs::write(path_in(&directory), bundle(&many)).expect("a file");
    (directory, many)
}

#[test]
fn an_import_counts_at_once_in_a_running_server() {
    let (directory, _) = to_import();
    let place = Place(directory.path());
    let server = start(directory.clone(), without_source);
    post(&server, "/+osv/v1/querybatch", &json!({"queries": []})).expect(503);
    verbose(&server).lacks("[!] advisories");
    let said = place.run("import-osv osv.zip --dry-run");
    assert_eq!(
        said,
        "9 OSV records, 9 of them of malware and 0 of vulnerabilities, about 1 project, would count; 0 of other ecosystems alone, 0 unreadable, wholly or in part\n"
    );
    assert!(!directory.path().join("data/osv/imported.zip").exists(), "a dry run writes nothing");
    place.run("import-osv osv.zip");
    wait_until("the import", || server.get("/+osv/v1/vulns/MAL-8").status == 200);
    assert_eq!(ids(&server, "evil", "2").len(), 9);
}

/// A folder has lost most of them. What is no record is named.
#[test]
fn an_import_of_fewer_records_counts_only_where_that_is_meant() {
    let (directory, many) = to_import();
    let place = Place(directory.path());
    place.run("import-osv osv.zip");
    let server = start(directory.clone(), without_source);
    let folder = directory.path().join("records/of/2026");
    fs::create_dir_all(&folder).expect("a directory");
    fs::write(folder.join("MAL-1.json"), many[1].to_string()).expect("a file");
    let other = json!({"id": "GO-1", "modified": "2026-01-02T03:04:05Z", "affected": [{"package": {"ecosystem": "Go", "name": "x"}}]});
    fs::write(folder.join("GO-1.json"), other.to_string()).expect("a file");
    fs::write(folder.join("bad.json"), "{").expect("a file");
    fs::write(folder.join("odd name.json"), many[2].to_string()).expect("a file");
    fs::write(folder.join("large.json"), vec![b' '; (2 << 20) + 1]).expect("a file");
    std::os::unix::fs::symlink(folder.join("MAL-1.json"), folder.join("link.json"))
        .expect("a link");
    fs::write(folder.join("README"), "no record").expect("a file");
    let done = place.run_with("import-osv records", "");
    done.complains(1, "larder: it has 1 OSV record, and 9 were imported before; at least 4 were expected. With --fewer, it counts nevertheless");
    assert!(!directory.path().join("data/osv/imported.part").exists());
    assert_eq!(ids(&server, "evil", "2").len(), 9);
    let mut report = place.json("import-osv records --fewer --json");
    let named = report["unreadable_named"].as_array_mut().expect("a list");
    named.sort_by_key(Value::to_string);
    assert_snapshot!("imported_folder", shown_json(&report));
    wait_until("the next import", || ids(&server, "evil", "2").len() == 1);
    // One file, while the server is stopped.
    let directory = server.stop();
    fs::write(directory.path().join("MAL-7.json"), many[7].to_string()).expect("a file");
    place.run("import-osv MAL-7.json");
    let server = start(directory.clone(), without_source);
    assert_eq!(ids(&server, "evil", "2"), ["MAL-7"]);
}

/// A file that is no bundle changes nothing, and another source is not overwritten.
#[test]
fn imports_that_are_refused() {
    let (directory, _) = to_import();
    let place = Place(directory.path());
    place.run("import-osv osv.zip");
    let server = start(directory.clone(), without_source);
    fs::write(directory.path().join("no.zip"), b"PK and nothing else").expect("a file");
    fs::write(directory.path().join("empty.json"), b"{}").expect("a file");
    let rows = [
        (
            "no.zip",
            "larder: no.zip: it is no zip of OSV records: the file is not a whole zip archive: Missing end of central directory",
        ),
        (
            "empty.json",
            "larder: empty.json: it has no record of PyPI that can be read, among 1 file; unreadable are 1, as \"empty.json\": it is not an OSV record: missing field `id` at line 1 column 2",
        ),
        ("no-such-file", "larder: no-such-file: No such file or directory (os error 2)"),
        (
            "osv.zip --advisories-bundle-bytes-max 1024",
            "larder: osv.zip: it has more than 1024 bytes, the most that `advisories.bundle_bytes_max` allows",
        ),
        (
            "osv.zip --advisories-source elsewhere.zip",
            "larder: `advisories.source` is set, so the server takes OSV records from there and not from an import. It is the file `elsewhere.zip`: rename the new zip to that, or remove the setting",
        ),
    ];
    each(rows, |(arguments, expected)| {
        place.run_with(&format!("import-osv {arguments}"), "").complains(1, expected);
    });
    assert_eq!(ids(&server, "evil", "2").len(), 9);
}
