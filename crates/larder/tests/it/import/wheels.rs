//! `larder import-wheels`: a folder of files.

use super::*;
use crate::asking::Says as _;

/// Two wheels and a source archive of 2020, in a folder and a folder in it.
fn folder_of_wheels(directory: &TempDir) -> PathBuf {
    let export = testdata().join("export");
    let wheels = directory.path().join("wheels");
    fs::create_dir_all(wheels.join("more")).expect("a directory");
    let files = [
        (
            "alice/dev/hello-world/1.0/Hello.World-1.0-py3-none-any.whl",
            "Hello.World-1.0-py3-none-any.whl",
        ),
        ("alice/dev/hello-world/1.0/Hello.World-1.0.tar.gz", "more/Hello.World-1.0.tar.gz"),
        ("bob/prod/base/1.0/base-1.0-py3-none-any.whl", "more/base-1.0-py3-none-any.whl"),
    ];
    for (from, to) in files {
        fs::copy(export.join(from), wheels.join(to)).expect("a copy");
        let file = fs::File::options().append(true).open(wheels.join(to)).expect("a file");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        file.set_modified(at).expect("a time");
    }
    wheels
}

#[test]
fn a_folder_of_wheels_is_taken_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place(directory.path());
    let wheels = folder_of_wheels(&directory);
    fs::write(wheels.join("index.html"), "a page").expect("a file");
    fs::write(wheels.join("other-1.0.tar.gz"), "no archive").expect("a file");
    let base = wheels.join("more/base-1.0-py3-none-any.whl");
    fs::copy(base, wheels.join("base-2.0-py3-none-any.whl")).expect("a copy");

    place.check("import-wheels wheels --index carol/dev", 1, "`--create` makes it, and its user");
    assert!(!directory.path().join("data").exists(), "a slip makes no store");
    let line = "import-wheels wheels --index carol/dev --create --json";
    let rehearsed = place.run_with(&format!("{line} --dry-run"), "").json();
    assert_eq!(rehearsed["files"], json!({"imported": 3, "already_there": 0, "not_imported": 2}));
    let done = place.run_with(line, "");
    assert_eq!(done.code, Some(1), "{done:?}");
    done.stderr.says("made the user `root` with the password in `");
    assert_snapshot!("taken_over", shown_json(&done.json()));
    place.check("import-wheels wheels/index.html --index carol/dev", 1, "is a file: the folder");

    // The bad files are gone, and a new one has old bytes elsewhere: existing ones stay.
    fs::remove_file(wheels.join("other-1.0.tar.gz")).expect("a file");
    fs::remove_file(wheels.join("base-2.0-py3-none-any.whl")).expect("a file");
    let again = place.json(line);
    assert_eq!(again["files"], json!({"imported": 0, "already_there": 3, "not_imported": 0}));
    assert_eq!(again["verified"], 3);
    place.check("verify", 0, "no faults");
}

#[test]
fn imported_wheels_say_what_they_are_and_since_when() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    folder_of_wheels(&directory);
    Place(directory.path()).run("import-wheels wheels --index carol/dev --create");
    let server = serve(directory);
    let release = get(&server.client, "/carol/dev/hello-world/1.0");
    assert_eq!(release["result"]["summary"], "A greeting");
    assert_eq!(release["result"]["requires_dist"], json!(["base (>=1)"]), "the wheel's, too");
    let links = release["result"]["+links"].as_array().expect("links").clone();
    assert_eq!(links.len(), 2);
    assert_eq!(
        links[0]["log"],
        json!([{"what": "upload", "who": "carol", "when": [2020, 9, 13, 12, 26, 40], "dst": "carol/dev"}])
    );
}
