//! `larder export-mirror` and `import-mirror`: a mirror's cache on a machine that cannot reach the upstream.

use std::path::Path;

use super::*;
use crate::asking::Says as _;

/// Runs a command on this data directory; the exit code, and what it prints and says.
fn larder(directory: &TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = crate::process::larder(directory.path());
    let data = directory.path().join("data");
    let done = command.args(arguments).arg("--data-dir").arg(data).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

/// A directory with a store that has `root/pypi` of this upstream, of which nothing is cached.
fn empty(upstream: &Upstream) -> Arc<TempDir> {
    let server = start_in(Arc::new(tempfile::tempdir().expect("a directory")), |_| ());
    server
        .root()
        .put("/root/pypi", json!({"type": "mirror", "mirror_url": upstream.url("/simple/")}))
        .expect(200);
    server.stop()
}

fn offline(directory: Arc<TempDir>) -> TestServer {
    start_in(directory, |config| config.python.mirrors_offline = true)
}

/// An export of what a server has of this upstream, which still runs.
fn exported(upstream: &Upstream, to: &Path) -> (Arc<TempDir>, TestServer) {
    let directory = start_with_root_pypi(upstream).stop();
    let server = start_in(directory.clone(), |_| ());
    let (code, out, said) =
        larder(&directory, &["export-mirror", "root/pypi", to.to_str().expect("a path")]);
    assert_eq!((code, &*out), (Some(0), "pages: 2, files: 1, bytes copied: 7\n"), "{said}");
    (directory, server)
}

fn import(directory: &TempDir, from: &Path) -> (Option<i32>, String, String) {
    larder(directory, &["import-mirror", from.to_str().expect("a path"), "--index", "root/pypi"])
}

#[test]
fn a_cache_is_carried_over() {
    let upstream = upstream_of(b"content");
    let carrier = tempfile::tempdir().expect("a directory");
    let export = carrier.path().join("export");
    let (directory, server) = exported(&upstream, &export);
    // Later files are added.
    let later = "foo-2.0.tar.gz";
    let files = json!([file(&upstream, WHEEL, b"content"), file(&upstream, later, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer(&format!("/files/{later}"), Offer::file("two"));
    assert_eq!(json_page(server.client, "root/pypi", "foo").json()["files"][1]["filename"], later);
    assert_eq!(server.get(&root_place_of(&upstream, later)).text(), "two");
    let export_text = export.to_str().expect("a path");
    // An export that was killed has left files.
    let left_over = |export: &Path| {
        std::fs::create_dir_all(export.join(".larder-partial")).expect("a directory");
        std::fs::write(export.join(".larder-partial/x"), "half").expect("a file");
    };
    // An earlier version left temporary files in other places.
    let sha256 = Digest::of(b"content").to_string();
    let earlier = [".tmpAb12Cd", "pages/.tmpAb12Cd", &format!("files/{}/.tmpAb12Cd", &sha256[..2])]
        .map(|name| export.join(name));
    let left_by_earlier =
        || earlier.iter().for_each(|path| std::fs::write(path, "half").expect("a file"));
    left_by_earlier();
    left_over(&export);
    let (code, out, said) = larder(&directory, &["export-mirror", "root/pypi", export_text]);
    assert_eq!((code, &*out), (Some(0), "pages: 2, files: 2, bytes copied: 3\n"), "{said}");
    assert!(!export.join(".larder-partial").exists());
    assert!(!earlier.iter().any(|path| path.exists()), "they are removed");
    // Two at once would remove each other's.
    let first = std::fs::File::open(&export).expect("a directory");
    first.lock().expect("a lock");
    let (code, _, said) = larder(&directory, &["export-mirror", "root/pypi", export_text]);
    let expected = format!("another export writes into `{export_text}`");
    assert!(code == Some(1) && said.contains(&expected), "{said}");
    drop(first);
    let killed = carrier.path().join("killed");
    left_over(&killed);
    let killed = killed.to_str().expect("a path");
    let (code, out, said) = larder(&directory, &["export-mirror", "root/pypi", killed]);
    assert_eq!((code, &*out), (Some(0), "pages: 2, files: 2, bytes copied: 10\n"), "{said}");
    left_over(&export);
    left_by_earlier();
    let (code, _, said) = import(&directory, &export);
    assert!(code == Some(1) && said.contains("in use"), "{said}");
    drop(server.stop());

    upstream.break_with(Some(500));
    let directory = empty(&upstream);
    let server = offline(directory);
    json_page(server.client, "root/pypi", "foo").expect(504);
    let directory = server.stop();
    let (code, out, said) = import(&directory, &export);
    assert_eq!((code, &*out), (Some(0), "pages: 2, files: 2, bytes copied: 10\n"), "{said}");
    let (code, out, said) = import(&directory, &export);
    let again = "pages: 2 (2 there already), files: 2 (2 there already), bytes copied: 0\n";
    assert_eq!((code, &*out), (Some(0), again), "{said}");
    let server = offline(directory);
    let asked = upstream.requests().len();
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!(page.json()["files"][0]["upload-time"], "2026-01-31T12:00:00.000000Z");
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    assert_eq!(server.get(&root_place_of(&upstream, later)).text(), "two");
    assert_eq!(json_page(server.client, "root/pypi", "bar").status, 504, "it was never fetched");
    assert_eq!(json_page(server.client, "root/pypi", "nowhere").status, 404, "the list is here");
    assert_eq!(upstream.requests().len(), asked);
    // For another upstream, it is another export.
    let other = empty(&Upstream::start());
    let (code, _, said) = larder(&other, &["export-mirror", "root/pypi", export_text]);
    assert!(code == Some(1) && said.contains("has an export of"), "{said}");
}

/// The only file below a directory, however deep.
fn only_file(directory: &Path) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let path = entries.next().expect("an entry").path();
    assert!(entries.next().is_none(), "there is one");
    if path.is_dir() { only_file(&path) } else { path }
}

#[test]
fn nothing_in_an_export_is_believed() {
    let upstream = upstream_of(b"content");
    let carrier = tempfile::tempdir().expect("a directory");
    let whole = carrier.path().join("whole");
    drop(exported(&upstream, &whole));
    upstream.break_with(Some(500));
    let outside = carrier.path().join("outside");
    std::fs::write(&outside, "content").expect("a file");
    let foo = |export: &Path| export.join("pages/foo");
    let edit = |path: &Path, from: &str, to: &str| {
        let text = std::fs::read_to_string(path).expect("a text");
        text.says(from);
        std::fs::write(path, text.replace(from, to)).expect("a file");
    };
    let other = Digest::of(b"contenT").to_string();
    let check = |hurt: &dyn Fn(&Path), says: &str, page_status: u16| {
        let export = tempfile::tempdir_in(carrier.path()).expect("a directory");
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .arg(whole.join("."))
            .arg(export.path())
            .status();
        assert!(copied.expect("it runs").success());
        hurt(export.path());
        let directory = empty(&upstream);
        let (code, out, said) = import(&directory, export.path());
        assert!(code == Some(1) && said.contains(says), "{says}: {out}{said}");
        let server = offline(directory);
        let page = json_page(server.client, "root/pypi", "foo");
        assert_eq!(page.status, page_status, "{says}: {}", page.text());
        let refused = server.get(&root_place_of(&upstream, WHEEL));
        assert_eq!(refused.status, 504, "{says}: {}", refused.text());
        drop(server.stop());
    };
    check(
        &|export| std::fs::write(only_file(&export.join("files")), "contenT").expect("a file"),
        "was expected",
        200,
    );
    check(
        &|export| std::fs::write(only_file(&export.join("files")), "more content").expect("a file"),
        "it has 12 bytes",
        200,
    );
    check(
        &|export| {
            let path = only_file(&export.join("files"));
            std::fs::remove_file(&path).expect("a file");
            std::os::unix::fs::symlink(&outside, &path).expect("a link");
        },
        "no ordinary file",
        200,
    );
    check(
        &|export| {
            let path = only_file(&export.join("files"));
            let parent = path.parent().expect("a directory").to_owned();
            let aside = export.join("aside");
            std::fs::rename(&parent, &aside).expect("a rename");
            std::os::unix::fs::symlink(&aside, &parent).expect("a link");
        },
        "is no directory",
        200,
    );
    // The file has other bytes under their own digest, but that is not the one on the page.
    check(
        &|export| {
            let text = std::fs::read_to_string(foo(export)).expect("a text");
            let (line, page) = text.split_once('\n').expect("two lines");
            let line: Value = serde_json::from_str(line).expect("JSON");
            let mut line = line;
            line["kept"][0]["sha256"] = other.as_str().into();
            std::fs::write(foo(export), format!("{line}\n{page}")).expect("a file");
            let path = export.join("files").join(&other[..2]);
            std::fs::create_dir_all(&path).expect("a directory");
            std::fs::write(path.join(&other), "contenT").expect("a file");
        },
        "its page says",
        200,
    );
    check(&|export| edit(&foo(export), "\"link\":\"", "\"link\":\"../"), "has no such file", 200);
    check(&|export| edit(&foo(export), "\"kept\":[", "\"kept\":[0,"), "pages/foo", 504);
    check(&|export| edit(&foo(export), WHEEL, "foo-9.0-py3-none-any.whl"), "was expected", 504);
    check(
        &|export| std::fs::rename(foo(export), export.join("pages/Foo")).expect("a rename"),
        "no name of a project",
        504,
    );
    check(
        &|export| edit(&export.join("larder-mirror.json"), "\"format\": 1", "\"format\": 2"),
        "has the format 2",
        504,
    );
    check(
        &|export| std::fs::remove_file(export.join("larder-mirror.json")).expect("a file"),
        "is no export of a mirror",
        504,
    );
    check(
        &|export| {
            let large = std::fs::File::create(export.join("pages/bar")).expect("a file");
            large.set_len(1 << 40).expect("a sparse file");
        },
        "python.mirror_disk_bytes_max",
        504,
    );
}
