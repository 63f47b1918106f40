//! `larder export-mirror` and `import-mirror`: a mirror's cache on a machine that cannot reach the upstream.

use std::path::{Path, PathBuf};

use super::*;
use crate::asking::{Says as _, each};
use crate::process::Done;

/// Runs a command on this data directory.
fn larder(directory: &TempDir, arguments: &[&str]) -> Done {
    let mut command = crate::process::larder(directory.path());
    command.args(arguments).arg("--data-dir").arg(directory.path().join("data"));
    Done::of(&mut command, "")
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
    export_to(&directory, to).prints(0, "pages: 2, files: 1, bytes copied: 7\n");
    (directory, server)
}

fn export_to(directory: &TempDir, to: &Path) -> Done {
    larder(directory, &["export-mirror", "root/pypi", to.to_str().expect("a path")])
}

fn import(directory: &TempDir, from: &Path) -> Done {
    larder(directory, &["import-mirror", from.to_str().expect("a path"), "--index", "root/pypi"])
}

const LATER: &str = "foo-2.0.tar.gz";

/// The upstream has one more file, and the server fetches it.
fn offer_later(upstream: &Upstream, server: &TestServer) {
    let files = json!([file(upstream, WHEEL, b"content"), file(upstream, LATER, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer(&format!("/files/{LATER}"), Offer::file("two"));
    assert_eq!(json_page(server.client, "root/pypi", "foo").json()["files"][1]["filename"], LATER);
    assert_eq!(server.get(&root_place_of(upstream, LATER)).text(), "two");
}

/// What an export leaves that is killed.
fn leave_partial_files(export: &Path) {
    std::fs::create_dir_all(export.join(".larder-partial")).expect("a directory");
    std::fs::write(export.join(".larder-partial/x"), "half").expect("a file");
}

/// Where earlier versions left temporary files.
fn earlier_partial_files(export: &Path) -> [PathBuf; 3] {
    let sha256 = Digest::of(b"content").to_string();
    let names = [".tmpAb12Cd", "pages/.tmpAb12Cd", &format!("files/{}/.tmpAb12Cd", &sha256[..2])];
    names.map(|name| export.join(name))
}

#[test]
fn an_export_adds_what_is_new_and_removes_what_one_that_was_killed_has_left() {
    let upstream = upstream_of(b"content");
    let carrier = tempfile::tempdir().expect("a directory");
    let (first, killed) = (carrier.path().join("export"), carrier.path().join("killed"));
    let (directory, server) = exported(&upstream, &first);
    offer_later(&upstream, &server);
    let earlier = earlier_partial_files(&first);
    earlier.iter().for_each(|path| std::fs::write(path, "half").expect("a file"));
    for (export, expected) in [
        (&first, "pages: 2, files: 2, bytes copied: 3\n"),
        (&killed, "pages: 2, files: 2, bytes copied: 10\n"),
    ] {
        leave_partial_files(export);
        export_to(&directory, export).prints(0, expected);
        assert!(!export.join(".larder-partial").exists());
    }
    assert!(!earlier.iter().any(|path| path.exists()), "they are removed");
    // Two at once would remove each other's.
    let lock = std::fs::File::open(&first).expect("a directory");
    lock.lock().expect("a lock");
    export_to(&directory, &first).complains(1, "larder: another export writes into `DIRECTORY/export`: a directory of its own was expected");
}

#[test]
fn a_cache_is_carried_over() {
    let upstream = upstream_of(b"content");
    let carrier = tempfile::tempdir().expect("a directory");
    let export = carrier.path().join("export");
    let (directory, server) = exported(&upstream, &export);
    offer_later(&upstream, &server);
    export_to(&directory, &export).check(0, "");
    leave_partial_files(&export);
    earlier_partial_files(&export)
        .iter()
        .for_each(|it| std::fs::write(it, "half").expect("a file"));
    let told = format!(
        "larder: the data directory `DIRECTORY/data` is in use by process {} (lock file `DIRECTORY/data/larder.lock`)",
        std::process::id()
    );
    import(&directory, &export).complains(1, &told);
    drop(server.stop());

    upstream.break_with(Some(500));
    let server = offline(empty(&upstream));
    json_page(server.client, "root/pypi", "foo").expect(504);
    let directory = server.stop();
    for expected in [
        "pages: 2, files: 2, bytes copied: 10\n",
        "pages: 2 (2 there already), files: 2 (2 there already), bytes copied: 0\n",
    ] {
        import(&directory, &export).prints(0, expected);
    }
    let server = offline(directory);
    let asked = upstream.requests().len();
    let page = json_page(server.client, "root/pypi", "foo");
    assert_eq!(page.json()["files"][0]["upload-time"], "2026-01-31T12:00:00.000000Z");
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    assert_eq!(server.get(&root_place_of(&upstream, LATER)).text(), "two");
    assert_eq!(json_page(server.client, "root/pypi", "bar").status, 504, "it was never fetched");
    assert_eq!(json_page(server.client, "root/pypi", "nowhere").status, 404, "the list is here");
    assert_eq!(upstream.requests().len(), asked);
    // For another upstream, it is another export.
    export_to(&empty(&Upstream::start()), &export).complains(1, "larder: `DIRECTORY/export` has an export of http://127.0.0.1:PORT/simple/; another directory was expected for http://127.0.0.1:PORT/simple/");
}

/// The only file below a directory, however deep.
fn only_file(directory: &Path) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let path = entries.next().expect("an entry").path();
    assert!(entries.next().is_none(), "there is one");
    if path.is_dir() { only_file(&path) } else { path }
}

/// A change to an export, and what its import says of that.
type Change<'change> = (&'change dyn Fn(&Path), &'change str);

/// Imports exports that somebody has changed.
struct Tampered {
    upstream: Upstream,
    carrier: TempDir,
    whole: PathBuf,
}

impl Tampered {
    fn new() -> Tampered {
        let upstream = upstream_of(b"content");
        let carrier = tempfile::tempdir().expect("a directory");
        let whole = carrier.path().join("whole");
        drop(exported(&upstream, &whole));
        upstream.break_with(Some(500));
        Tampered { upstream, carrier, whole }
    }

    /// The import of a changed export fails and `says` why; then the page has this status, and the file is not there.
    fn check(&self, change: &dyn Fn(&Path), says: &str, page_status: u16) {
        let export = tempfile::tempdir_in(self.carrier.path()).expect("a directory");
        let mut copy = std::process::Command::new("cp");
        let copied = copy.arg("-r").arg(self.whole.join(".")).arg(export.path()).status();
        assert!(copied.expect("it runs").success());
        change(export.path());
        let directory = empty(&self.upstream);
        import(&directory, export.path()).complains(1, says);
        let server = offline(directory);
        let page = json_page(server.client, "root/pypi", "foo");
        assert_eq!(page.status, page_status, "{says}: {}", page.text());
        server.get(&root_place_of(&self.upstream, WHEEL)).expect(504);
        drop(server.stop());
    }
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).expect("a text");
    text.says(from);
    std::fs::write(path, text.replace(from, to)).expect("a file");
}

#[test]
fn a_file_that_was_changed_in_an_export_is_not_imported() {
    use std::os::unix::fs::symlink;
    let tampered = Tampered::new();
    let outside = tampered.carrier.path().join("outside");
    std::fs::write(&outside, "content").expect("a file");
    let other = Digest::of(b"contenT").to_string();
    let wheel = |export: &Path| only_file(&export.join("files"));
    let foo = |export: &Path| export.join("pages/foo");
    let rows: [Change<'_>; 6] = [
        (
            &|it: &Path| std::fs::write(wheel(it), "contenT").expect("a file"),
            "larder: +upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: it has the SHA-256 DIGEST; DIGEST was expected\nlarder: 1 left out",
        ),
        (
            &|it: &Path| std::fs::write(wheel(it), "more content").expect("a file"),
            "larder: +upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: it has 12 bytes; 7 were expected\nlarder: 1 left out",
        ),
        (
            &|it: &Path| {
                let path = wheel(it);
                std::fs::remove_file(&path).expect("a file");
                symlink(&outside, &path).expect("a link");
            },
            "larder: +upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: it is no ordinary file\nlarder: 1 left out",
        ),
        (
            &|it: &Path| {
                let (path, aside) = (wheel(it), it.join("aside"));
                let parent = path.parent().expect("a directory");
                std::fs::rename(parent, &aside).expect("a rename");
                symlink(&aside, parent).expect("a link");
            },
            "larder: +upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: `DIRECTORY/files/ed` is no directory\nlarder: 1 left out",
        ),
        // The file has other bytes under their own digest, but that is not the one on the page.
        (
            &|it: &Path| {
                let text = std::fs::read_to_string(foo(it)).expect("a text");
                let (line, page) = text.split_once('\n').expect("two lines");
                let mut line: Value = serde_json::from_str(line).expect("JSON");
                line["kept"][0]["sha256"] = other.as_str().into();
                std::fs::write(foo(it), format!("{line}\n{page}")).expect("a file");
                let path = it.join("files").join(&other[..2]);
                std::fs::create_dir_all(&path).expect("a directory");
                std::fs::write(path.join(&other), "contenT").expect("a file");
            },
            "larder: +upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: it has the SHA-256 DIGEST; its page says DIGEST\nlarder: 1 left out",
        ),
        (
            &|it: &Path| edit(&foo(it), "\"link\":\"", "\"link\":\"../"),
            "larder: ../+upstream/127.0.0.1:PORT/files/foo-1.0-py3-none-any.whl: the page of foo has no such file\nlarder: 1 left out",
        ),
    ];
    each(rows, |(change, says)| tampered.check(change, says, 200));
}

#[test]
fn a_page_or_a_description_that_was_changed_in_an_export_is_not_imported() {
    let tampered = Tampered::new();
    let foo = |export: &Path| export.join("pages/foo");
    let description = |export: &Path| export.join("larder-mirror.json");
    let rows: [Change<'_>; 6] = [
        (
            &|it: &Path| edit(&foo(it), "\"kept\":[", "\"kept\":[0,"),
            "larder: pages/foo: invalid type: integer `0`, expected the link, digest, size and time of a file at line 1 column 141\nlarder: 1 left out",
        ),
        (
            &|it: &Path| edit(&foo(it), WHEEL, "foo-9.0-py3-none-any.whl"),
            "larder: pages/foo: it has the SHA-256 DIGEST; DIGEST was expected\nlarder: 1 left out",
        ),
        (
            &|it: &Path| std::fs::rename(foo(it), it.join("pages/Foo")).expect("a rename"),
            "larder: pages/Foo: this is no name of a project\nlarder: 1 left out",
        ),
        (
            &|it: &Path| edit(&description(it), "\"format\": 1", "\"format\": 2"),
            "larder: `DIRECTORY/larder-mirror.json` has the format 2; 1 was expected: another version of Larder wrote it",
        ),
        (
            &|it: &Path| std::fs::remove_file(description(it)).expect("a file"),
            "larder: `DIRECTORY` is no export of a mirror: no `larder-mirror.json` that can be read: No such file or directory (os error 2)",
        ),
        (
            &|it: &Path| {
                let large = std::fs::File::create(it.join("pages/bar")).expect("a file");
                large.set_len(1 << 40).expect("a sparse file");
            },
            "larder: the export takes SIZE bytes; the cache may take 21474836480 (`python.mirror_disk_bytes_max`), and what comes first would be removed for what comes last",
        ),
    ];
    each(rows, |(change, says)| tampered.check(change, says, 504));
}
