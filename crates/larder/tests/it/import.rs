//! Moving in with the real binary: an export of devpi-server, a folder of wheels, and the files of clients.

mod clients;
mod wheels;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::accounts::Place;
use crate::asking::{Says as _, each};
use crate::client::Client;
use crate::server::TestServer;
use crate::shown::{redacted, shown_json};

const JSON: (&str, &str) = ("Accept", "application/json");

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python/devpi-export")
}

/// A copy of the export in its own directory, so that tests can damage it.
fn exported(directory: &Path) -> PathBuf {
    let export = directory.join("export");
    copy(&testdata().join("export"), &export);
    export
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}

/// Changes a text of the export's index.
#[track_caller]
fn replace(export: &Path, from: &str, to: &str) {
    let path = export.join("dataindex.json");
    let text = fs::read_to_string(&path).expect("an index");
    text.says(from);
    fs::write(path, text.replace(from, to)).expect("an index");
}

/// The counts of a report for each kind: imported, there already, not imported.
fn tallies(report: &Value) -> String {
    let kinds = ["users", "indexes", "releases", "files", "documentation", "test_results"];
    let tally = |kind: &str| {
        let of = |key: &str| report[kind][key].to_string();
        format!("{} {}/{}/{}", kind, of("imported"), of("already_there"), of("not_imported"))
    };
    kinds.map(tally).join(", ")
}

const ALL_IMPORTED: &str = "users 3/0/0, indexes 3/0/0, releases 4/0/0, files 5/0/0, \
                            documentation 2/0/0, test_results 4/0/0";

/// A server on the data directory below `directory`.
fn serve(directory: Arc<TempDir>) -> TestServer {
    TestServer::without_aur_in(directory, |_| ())
}

/// devpi-server's answer.
fn answer(name: &str) -> String {
    fs::read_to_string(testdata().join("answers").join(name)).expect("an answer")
}

#[track_caller]
fn get(client: &Client, path: &str) -> Value {
    let answer = client.get_with(path, &[JSON]).expect(200);
    let host = format!("http://{}", client.address);
    serde_json::from_str(&answer.text().replace(&host, "http://index.example")).expect("JSON")
}

/// Everything below `value` called `+links`, with links in one order.
fn sorted(mut value: Value) -> Value {
    if let Some(links) = value["+links"].as_array_mut() {
        links.sort_by_key(|link| link["href"].to_string());
    }
    if let Some(shadowing) = value["+shadowing"].as_array_mut() {
        for shadow in shadowing {
            *shadow = sorted(shadow.take());
        }
    }
    value
}

/// A server that has taken over the export.
fn serve_imported() -> TestServer {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    exported(directory.path());
    Place(directory.path()).run("import-devpi export");
    serve(directory)
}

#[test]
fn an_export_is_taken_over_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let export = exported(directory.path());
    let place = Place(directory.path());
    let rehearsed = place.json("import-devpi export --dry-run --json");
    assert_eq!(tallies(&rehearsed), ALL_IMPORTED, "{rehearsed}");
    assert!(!directory.path().join("data").exists(), "a dry run makes nothing");

    // Pushed files exist twice, but as one blob.
    let done = place.run_with("import-devpi export --json", "");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_snapshot!("taken_over", shown_json(&done.json()));
    done.stderr.lacks("password");

    // Again, even where the files are gone by now: nothing is read, and nothing changes.
    fs::remove_dir_all(export.join("alice")).expect("it was there");
    assert_snapshot!("taken_over_again", shown_json(&place.json("import-devpi export --json")));
    place.check("verify", 0, "no faults");
}

/// What is other than on devpi, or needs a setting, is said once: when it comes over.
#[test]
fn an_import_says_what_it_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let export = exported(directory.path());
    let url = "\"type\": \"mirror\", \"mirror_url\": \"http://10.1.2.3/simple/\"";
    replace(&export, "\"type\": \"mirror\"", url);
    let place = Place(directory.path());
    let notes = |flags: &str| {
        let report = place.json(&format!("import-devpi export --json {flags}"));
        shown_json(&report["notes"])
    };
    assert_snapshot!("notes", notes("--dry-run"));
    let open = "--dry-run --egress-allow 10.0.0.0/8 --python-devpi-defaults";
    assert_eq!(notes(open), "[]");
    assert_snapshot!("notes", notes(""));
    assert_eq!(notes(""), "[]");
}

/// devpi-server's answers are kept beside the export.
#[test]
fn imported_versions_and_indexes_are_answered_as_by_devpi() {
    let server = serve_imported();
    let expected = |name: &str| serde_json::from_str::<Value>(&answer(name)).expect("JSON");
    let versions = [
        ("/alice/dev/hello-world/1.0", "alice_dev_hello-world_1.0.json"),
        ("/bob/prod/hello-world/1.0", "bob_prod_hello-world_1.0.json"),
        ("/alice/dev/hello-world/2.0a1", "alice_dev_hello-world_2.0a1.json"),
        ("/bob/prod/base/1.0", "bob_prod_base_1.0.json"),
    ];
    each(versions, |(path, name)| {
        let pair = [get(&server.client, path), expected(name)];
        let [found, expected] = pair.map(|it| format!("{:#}", sorted(it["result"].clone())));
        assert_eq!(found, expected, "{path}");
    });
    // devpi's default does not count as a setting: here the server's own default applies.
    let change = |config: &mut Value, key: &str, from: Value, to: Value| {
        assert_eq!(config[key], from, "{key}");
        config[key] = to;
    };
    let uploaders = |config: &mut Value| {
        let [from, to] = [json!([":ANONYMOUS:"]), json!([":AUTHENTICATED:"])];
        change(config, "acl_toxresult_upload", from, to);
    };
    let check = |path: &str, name: &str, differs: &dyn Fn(&mut Value)| {
        let mut expected = expected(name)["result"].take();
        differs(&mut expected);
        assert_eq!(get(&server.client, path)["result"], expected, "{path}");
    };
    check("/alice", "alice.json", &|user| {
        // Addresses are for their owners.
        assert!(user.as_object_mut().expect("a user").remove("email").is_some());
        uploaders(&mut user["indexes"]["dev"]);
    });
    check("/alice/dev", "alice_dev.json", &uploaders);
    check("/bob/prod", "bob_prod.json", &|prod| {
        uploaders(prod);
        assert_eq!(prod["bases"], json!(["root/up"]));
        // Only users who may upload see who else may.
        change(prod, "acl_upload", json!(["bob", "alice"]), json!(["bob"]));
    });
    assert_eq!(get(&server.client, "/root/up")["result"]["type"], "mirror");
}

#[test]
fn imported_files_are_at_the_places_that_devpi_gave_them() {
    let server = serve_imported();
    let links = |page: &str| -> Vec<String> {
        let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        links.filter_map(|link| Some(link.split_once("/+f/")?.1.to_owned())).collect()
    };
    for (project, stage) in [("hello-world", "alice/dev"), ("base", "bob/prod")] {
        let pip = server.anybody().with("User-Agent", "pip/24").accept("text/html");
        let page = pip.get(&format!("/alice/dev/+simple/{project}/")).expect(200);
        let expected = links(&answer(&format!("simple-alice_dev_{project}.html")));
        assert_eq!(links(&page.text()), expected, "{}", page.text());
        for file in expected {
            let path = file.split('#').next().expect("a path");
            let answer = server.get(&format!("/{stage}/+f/{path}")).expect(200);
            let digest = record::Digest::of(&answer.body).to_string();
            assert!(file.ends_with(&digest), "{file}: {digest}");
        }
    }
    let simple = server.anybody().accept("application/vnd.pypi.simple.v1+json");
    let list = simple.get("/alice/dev/+simple/hello-world/").json();
    let wheel = &list["files"][0];
    assert_eq!(wheel["upload-time"], "2026-11-21T05:37:06.000000Z", "{list}");
    assert!(wheel["core-metadata"]["sha256"].is_string(), "the wheel was looked into: {list}");
}

#[test]
fn imported_users_keep_their_passwords() {
    let server = serve_imported();
    let logins =
        [("alice", "alice-secret", 200), ("root", "rootsecret", 200), ("bob", "wrong", 401)];
    each(logins, |(user, password, status)| {
        let login = json!({"user": user, "password": password});
        server.anybody().json().post("/+login", login).expect(status);
    });
}

#[test]
fn a_damaged_file_is_named_and_the_others_come() {
    let directory = tempfile::tempdir().expect("a directory");
    let export = exported(directory.path());
    let place = Place(directory.path());
    let wheel = "alice/dev/hello-world/1.0/Hello.World-1.0-py3-none-any.whl";
    let whole = fs::read(export.join(wheel)).expect("a wheel");
    fs::write(export.join(wheel), &whole[..whole.len() - 1]).expect("a file");
    fs::remove_file(export.join("bob/prod/base/1.0/base-1.0-py3-none-any.whl")).expect("a file");
    let done = place.run_with("import-devpi export --json", "");
    done.check(1, "");
    assert_eq!(done.stderr, "larder: 4 failures: not everything was imported\n");
    assert_snapshot!("damaged", shown_json(&done.json()));
    place.check("verify", 0, "no faults");

    // Repaired, and imported again: the missing files come, with their test results.
    copy(&testdata().join("export"), &export);
    let report = place.json("import-devpi export --json");
    let expected = "users 0/3/0, indexes 0/3/0, releases 0/4/0, files 2/3/0, \
                    documentation 0/2/0, test_results 2/2/0";
    assert_eq!(tallies(&report), expected, "{report}");
}

#[test]
fn what_is_there_and_differs_is_a_conflict() {
    let directory = tempfile::tempdir().expect("a directory");
    let export = exported(directory.path());
    let place = Place(directory.path());
    place.run("import-devpi export");
    // The sdist has become another one, and an index another configuration.
    let sdist = "alice/dev/hello-world/1.0/Hello.World-1.0.tar.gz";
    let other = fs::read(export.join("alice/dev/hello-world-1.0.doc.zip")).expect("bytes");
    let digest = record::Digest::of(&other).to_string();
    fs::write(export.join(sdist), &other).expect("a file");
    let sha256 = "d610cd43a26fb8242f09e917b126bc3939b7ed2478ef932b32ef1c40f8cd5902";
    replace(&export, sha256, &digest);
    replace(&export, "\"title\": \"Development\"", "\"title\": \"Other\"");
    let done = place.run_with("import-devpi export", "");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_snapshot!("conflicts", redacted(&done.said()));
    done.said().says(&format!("exists already, with SHA-256 {sha256}"));
}

#[test]
fn what_cannot_be_as_it_was_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let export = exported(directory.path());
    let place = Place(directory.path());
    let index = fs::read_to_string(export.join("dataindex.json")).expect("an index");
    let mut index: Value = serde_json::from_str(&index).expect("JSON");
    index["users"]["alice"]["pwhash"] = json!("0123456789abcdef");
    index["users"]["alice"]["pwsalt"] = json!("c2FsdA==");
    index["users"]["root"]["pwhash"] = json!("");
    index["users"]["rpc"] = json!({"username": "rpc"});
    index["users"]["carol"] = json!({"username": "carol"});
    let dev = &mut index["indexes"]["alice/dev"]["indexconfig"];
    dev["uploadtrigger_jenkins"] = json!("https://ci.example/secret");
    dev["pypi_whitelist"] = json!(["Some.Thing"]);
    dev["bases"] = json!(["bob/prod", "gone/away"]);
    let config = dev.as_object_mut().expect("an object");
    config.remove("mirror_whitelist_inheritance");
    config.remove("mirror_whitelist");
    // A ring.
    index["indexes"]["bob/prod"]["indexconfig"]["bases"] = json!(["root/up", "alice/dev"]);
    index["indexes"]["root/up"]["files"] = index["indexes"]["bob/prod"]["files"].clone();
    index["indexes"]["carol/odd"] = json!({"indexconfig": {"type": "foo-dev"}, "files": [{}]});
    fs::write(export.join("dataindex.json"), index.to_string()).expect("an index");
    let done = place.run_with("import-devpi export --without-mirrored-files", "");
    assert_eq!(done.code, Some(1), "{done:?}");
    // A plugin's setting may be a secret, and is not told.
    assert_snapshot!("not_as_it_was", redacted(&done.said()));
    let users = place.json("user list --json");
    let users = users.as_array().expect("a list");
    let alice = users.iter().find(|user| user["name"] == "alice").expect("alice");
    assert_eq!(alice["has_password"], false);
}

/// The whole export, of users whose names are paths of the server.
#[test]
fn users_without_a_place_come_under_another_name() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let export = exported(directory.path());
    let place = Place(directory.path());
    let path = export.join("dataindex.json");
    let text = fs::read_to_string(&path).expect("an index");
    // Paths of files stay.
    let text = text.replace("\"alice\"", "\"docs\"").replace("\"alice/dev\"", "\"docs/dev\"");
    let mut index: Value = serde_json::from_str(&text).expect("JSON");
    index["users"]["docs-user"] = json!({"username": "docs-user"});
    fs::write(&path, index.to_string()).expect("an index");
    for (users, files) in [("users 4/0/0", "files 5/0/0"), ("users 0/4/0", "files 0/5/0")] {
        let report = place.json("import-devpi export --json");
        tallies(&report).says([users, files]);
        assert_snapshot!("another_name", shown_json(&report["notes"][0]));
    }
    let server = serve(directory);
    let dev = get(&server.client, "/docs-user2/dev");
    assert_eq!(dev["result"]["acl_upload"], json!(["docs-user2"]), "{dev}");
    assert!(!dev["result"]["projects"].as_array().expect("a list").is_empty(), "{dev}");
    get(&server.client, "/bob/prod").to_string().lacks("docs/dev");
}

/// A name without a version is not asked of the mirrors among the bases, as before the import.
#[test]
fn names_without_a_version_are_kept() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let export = exported(directory.path());
    let place = Place(directory.path());
    let path = export.join("dataindex.json");
    let mut index: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("an index")).expect("JSON");
    index["indexes"]["alice/dev"]["projects"]["Only.Ours"] = json!({});
    index["indexes"]["root/up"]["projects"] = json!({"mirrored": {}});
    fs::write(&path, index.to_string()).expect("an index");
    let told = "note: alice/dev only-ours: has no version: the index keeps the name as its own";
    let notes = |command: &str| place.run_with(command, "").said().matches(told).count();
    assert_eq!(notes("import-devpi export --without-mirrored-files --dry-run"), 1);
    assert_eq!(notes("import-devpi export --without-mirrored-files"), 1);
    assert_eq!(notes("import-devpi export --without-mirrored-files"), 0, "it is there already");
    let server = serve(directory);
    let dev = get(&server.client, "/alice/dev");
    assert_eq!(dev["result"]["held_names"], json!(["only-ours"]), "{dev}");
    server.get("/alice/dev/+simple/only-ours/").expect(404);
}

/// Exports what devpi allows: names beyond ASCII, indexes that are bases of themselves and of each other.
fn export_odd(export: &Path) {
    let file = |index: &str, project: &str, version: &str, name: &str| {
        let relpath = format!("{index}/{project}/{version}/{name}");
        fs::create_dir_all(export.join(&relpath).parent().expect("a folder")).expect("a folder");
        fs::write(export.join(&relpath), format!("{index} {name}")).expect("a file");
        json!({"type": "releasefile", "projectname": project, "version": version, "relpath": relpath,
            "entrymapping": {"last_modified": "Sat, 23 Apr 2016 07:01:31 GMT"}, "log": null})
    };
    let index = |bases: &[&str], files: Vec<Value>| {
        // devpi writes an index without projects like this.
        json!({"indexconfig": {"type": "stage", "volatile": true, "bases": bases}, "projects": [], "files": files})
    };
    let user = |name: &str| json!({"username": name, "created": "2026-01-01T00:00:00Z"});
    let dump = json!({
        "dumpversion": "2",
        "users": {"ann": user("ann"), "€uro": user("€uro"), "\u{1f600}": user("\u{1f600}"), "b\u{200b}": user("b")},
        "indexes": {
            "ann/own": index(&["ann/own"], vec![file("ann/own", "junk", "1.4", "junk-1.4.whl")]),
            "ann/one": index(&["ann/two"], vec![file("ann/one", "one", "1.0", "one-1.0.zip")]),
            "ann/two": index(&["ann/two", "€uro/dev"], vec![file("ann/two", "two", "1.0", "twofold-1.0.zip")]),
            "€uro/dev": index(&["ann/one", "\u{1f600}/dev"], vec![]),
            "\u{1f600}/dev": index(&["ann/own", "ann/one"], vec![file("\u{1f600}/dev", "three", "1.0", "three-1.0.zip")]),
        },
    });
    fs::write(export.join("dataindex.json"), dump.to_string()).expect("an index");
}

#[test]
fn what_devpi_allowed_comes_over() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    export_odd(&directory.path().join("export"));
    let place = Place(directory.path());
    let done = place.run_with("import-devpi export --json", "");
    let first = done.json();
    let expected = "users 3/0/1, indexes 5/0/0, releases 4/0/0, files 4/0/0, \
                    documentation 0/0/0, test_results 0/0/0";
    assert_eq!(tallies(&first), expected, "{first}");
    assert_snapshot!("failure", shown_json(&first["failures"]));
    let again = place.run_with("import-devpi export --json", "").json();
    assert_eq!((&again["indexes"]["already_there"], &again["conflicts"]), (&json!(5), &json!([])));

    let server = serve(directory);
    let client = server.client;
    let encoded = |path: &str| path.replace('€', "%E2%82%AC").replace('\u{1f600}', "%F0%9F%98%80");
    let rows = [
        ("ann/own", json!(["ann/own"]), "junk"),
        ("ann/one", json!(["ann/two"]), "junk one three two"),
        ("ann/two", json!(["ann/two", "€uro/dev"]), "junk one three two"),
        ("€uro/dev", json!(["ann/one", "\u{1f600}/dev"]), "junk one three two"),
        ("\u{1f600}/dev", json!(["ann/own", "ann/one"]), "junk one three two"),
    ];
    each(rows, |(stage, bases, projects)| {
        let stage = encoded(stage);
        let shown = get(&client, &format!("/{stage}?no_projects="));
        assert_eq!(shown["result"]["bases"], bases, "{stage}");
        let simple = ("Accept", "application/vnd.pypi.simple.v1+json");
        let list = client.get_with(&format!("/{stage}/+simple/"), &[simple]).json();
        let names: Vec<&str> = list["projects"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|project| project["name"].as_str())
            .collect();
        assert_eq!(names.join(" "), projects, "{stage}");
        for project in names {
            let page = client.get_with(&format!("/{stage}/+simple/{project}/"), &[simple]).json();
            assert_eq!(page["files"].as_array().map(Vec::len), Some(1), "{page}");
        }
    });
    let path = format!("/ann/own/+f/{}", {
        let digest = record::Digest::of(b"ann/own junk-1.4.whl").to_string();
        format!("{}/{}/junk-1.4.whl", &digest[..3], &digest[3..16])
    });
    assert_eq!(client.get(&path).body, b"ann/own junk-1.4.whl");
}

#[test]
fn a_root_that_is_there_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    exported(directory.path());
    let place = Place(directory.path());
    place.run("init --root-password horse");
    let said = place.run("import-devpi export");
    assert_snapshot!("root_was_there", redacted(&said));
    place.check("init --root-password horse", 0, "initialized already");
}

#[test]
fn no_export_is_said_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place(directory.path());
    place.check("import-devpi nowhere", 1, "what `devpi-export` wrote was expected");
    let export = exported(directory.path());
    replace(&export, "\"dumpversion\": \"2\"", "\"dumpversion\": \"1\"");
    place.check("import-devpi export", 1, "the dumpversion `1`, and 2 was expected");
    assert!(!directory.path().join("data").exists());
}

#[test]
fn a_server_shows_what_is_imported_beside_it() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    exported(directory.path());
    let wheels = directory.path().join("wheels");
    fs::create_dir(&wheels).expect("a directory");
    let name = "base-1.0-py3-none-any.whl";
    let wheel = testdata().join("export/bob/prod/base/1.0").join(name);
    fs::copy(&wheel, wheels.join(name)).expect("a copy");
    let server = serve(directory.clone());
    let page = |stage: &str| server.get(&format!("/{stage}/+simple/base/"));
    let place = Place(directory.path());
    for (line, stage) in [
        ("import-wheels wheels --index team/dev --create", "team/dev"),
        ("import-devpi export", "bob/prod"),
    ] {
        page(stage).expect(404);
        place.run(line);
        let deadline = Instant::now() + Duration::from_secs(20);
        while page(stage).status != 200 {
            assert!(Instant::now() < deadline, "{stage} does not show");
            std::thread::sleep(Duration::from_millis(20));
        }
        page(stage).says(name);
    }
    // The server goes on writing.
    let done = server.root().with(JSON.0, JSON.1).put("/carol", json!({"password": "open-sesame"}));
    done.expect(201);
    place.check("verify", 0, "no faults");
}
