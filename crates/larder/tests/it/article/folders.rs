//! Articles as a folder of files, with the real binary: out, in again, and everything that is no article.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use insta::assert_snapshot;
use serde_json::json;
use tempfile::TempDir;

use super::store;
use crate::accounts::Place;
use crate::process::Done;
use crate::server::TestServer;
use crate::shown::shown_json;

pub(super) fn serve(directory: Arc<TempDir>) -> TestServer {
    TestServer::without_aur_in(directory, |_| ())
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, bytes).expect("a file");
}

/// Exports the articles into `out`, a folder that must then have these files; their bytes by path.
#[track_caller]
fn exported(place: &Place<'_>, expected: &[&str]) -> BTreeMap<String, Vec<u8>> {
    place.run("export-articles out");
    let out = files(&place.0.join("out"));
    assert_eq!(out.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    out
}

/// A new directory, with the exported folder as `in`.
fn carried(first: &TempDir) -> Arc<TempDir> {
    let second = Arc::new(TempDir::new().expect("a directory"));
    fs::rename(first.path().join("out"), second.path().join("in")).expect("moved");
    second
}

/// The files below a folder, by path.
pub(super) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("below").to_str().expect("UTF-8");
            found.insert(name.to_owned(), fs::read(&path).expect("a file"));
        }
    }
    found
}

/// added, changed, as they were, redirects, left out
#[track_caller]
fn counts(done: &Done) -> [u64; 5] {
    let report = done.json();
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    let left_out = report["left_out"].as_array().expect("a list").len() as u64;
    [count("added"), count("changed"), count("already_there"), count("redirects"), left_out]
}

/// By name: the media type and the bytes.
type Articles = BTreeMap<String, (String, Vec<u8>)>;

/// Every article with its media type and its bytes, and where redirects lead.
fn articles(server: &TestServer) -> Articles {
    let list = server.get("/articles?deleted=true&limit=1000").json();
    let list = list["articles"].as_array().expect("articles").clone();
    let facts = list.iter().filter_map(|facts| {
        let name = facts["name"].as_str().expect("a name").to_owned();
        if let Some(to) = facts["redirect_to"].as_str() {
            return Some((name, (format!("to {to}"), Vec::new())));
        }
        let content_type = facts["content_type"].as_str()?.to_owned();
        let path = name.replace(' ', "%20");
        let bytes = server.get(&format!("/article/{path}")).body;
        Some((name, (content_type, bytes)))
    });
    facts.collect()
}

/// A directory with a store of articles of many names and media types.
fn sample() -> (Arc<TempDir>, Articles) {
    let first = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(first.clone());
    store(&server, "guide/0", b"# Guide\n");
    store(&server, "guide/start/0", b"# Start\n\n![logo](logo.png)\n");
    store(&server, "notes.md/0", b"# Notes\n");
    store(&server, "a/.hidden/0", b".");
    store(&server, "two%20words/0", b"\xff\xfe no text");
    store(&server, "gone/0", b"x");
    server.root().delete("/article/gone/1");
    for (name, content_type, bytes) in [
        ("guide/logo.png", "image/png", &b"\x89PNG\0"[..]),
        ("data.json", "application/json", b"{}"),
        ("odd.md", "application/x-odd; a=b", b"odd"),
        ("latin.txt", "text/plain; charset=iso-8859-1", b"caf\xe9"),
        ("larder-articles.json", "application/json", b"[]"),
    ] {
        let target = format!("/article/{name}/0");
        server.root().typed(content_type).post(&target, bytes).expect(201);
    }
    store(&server, "old/0", b"moves\n");
    server.root().post("/article/old/1?rename=new", ()).expect(201);
    let before = articles(&server);
    assert_eq!(before.len(), 12, "{before:?}");
    (first, before)
}

/// The files of the sample, and of its description.
const SAMPLE_FILES: [&str; 12] = [
    "%6Carder-articles.json",
    "a/%2Ehidden.md",
    "data.json",
    "guide.md",
    "guide/logo.png",
    "guide/start.md",
    "larder-articles.json",
    "latin.txt",
    "new.md",
    "notes.md",
    "odd.md.bin",
    "two words.md",
];

#[test]
fn a_round_trip_gives_the_same() {
    let (first, before) = sample();
    let out = exported(&Place(first.path()), &SAMPLE_FILES);
    assert_eq!(out["guide/logo.png"], b"\x89PNG\0");
    let place = Place(first.path());
    place.check("export-articles out", 1, "is not empty: a new folder was expected");
    // Into another store, twice.
    let second = carried(&first);
    let place = Place(second.path());
    place.check("import-articles in", 1, "there is no store");
    assert!(!second.path().join("data").exists(), "a slip makes no store");
    place.run("init");
    for (flag, expected) in
        [("--dry-run", [11, 0, 0, 1, 0]), ("", [11, 0, 0, 1, 0]), ("", [0, 0, 11, 0, 0])]
    {
        let done = place.run_with(&format!("import-articles in --json {flag}"), "");
        assert_eq!(counts(&done), expected, "{done:?}");
    }
    place.run("verify");
    let server = serve(second.clone());
    assert_eq!(articles(&server), before);
    server.get("/article/old").expect(308).has("location", "/article/new");
    let facts = server.get("/article/guide/history").json();
    assert_eq!(facts["versions"].as_array().expect("versions").len(), 1);
    drop(server);
    // And out again: the same folder.
    place.run("export-articles again");
    assert_eq!(files(&second.path().join("again")), out);
    let mode = fs::metadata(second.path().join("again")).expect("the folder").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn a_part_goes_out_and_in_again_under_another_name() {
    let (directory, _) = sample();
    let place = Place(directory.path());
    place.run("export-articles part --prefix guide");
    let part: Vec<String> = files(&directory.path().join("part")).into_keys().collect();
    assert_eq!(part, ["larder-articles.json", "logo.png", "start.md"]);
    place.check("export-articles other --prefix /etc", 1, "`/etc/x` is not an article's name");
    let done = place.run_with("import-articles part --prefix book/ --json --user ada", "");
    assert_eq!(counts(&done), [2, 0, 0, 0, 0], "{done:?}");
    let server = serve(directory);
    assert_eq!(server.get("/article/book/start").body, server.get("/article/guide/start").body);
    let facts = server.get("/article/book/start/history").json();
    assert_eq!(facts["versions"][0]["author"], "ada");
}

#[test]
fn a_folder_of_markdown_is_imported_as_it_changes() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let place = Place(directory.path());
    drop(serve(directory.clone()));
    let folder = directory.path().join("wiki");
    write(&folder.join("index.md"), "# Index\n\n[start](guide/start.md)\n");
    write(&folder.join("guide/start.md"), "# Start\n");
    write(&folder.join("guide/plan.pdf"), b"%PDF-1.7\0");
    write(&folder.join(".git/config"), "secret");
    let done = place.run_with("import-articles wiki --json --comment first", "");
    assert_eq!((done.code, counts(&done)), (Some(0), [3, 0, 0, 0, 0]), "{done:?}");
    assert_eq!(done.json()["hidden"], 1);
    write(&folder.join("guide/start.md"), "# Start here\n");
    let done = place.run_with("import-articles wiki --json", "");
    assert_eq!(counts(&done), [0, 1, 2, 0, 0], "{done:?}");
    let server = serve(directory.clone());
    let read = server.get("/article/guide/start.md");
    assert_eq!((read.text().as_str(), read.header("x-article-version")), ("# Start here\n", "2"));
    read.has("content-type", "text/markdown; charset=utf-8");
    assert_eq!(server.get("/article/guide/start.md/1").text(), "# Start\n");
    server.get("/article/guide/plan.pdf").has("content-type", "application/pdf");
    assert_eq!(server.get("/articles").json()["articles"].as_array().expect("articles").len(), 3);
    // Deliberate changes by users are not undone.
    server.root().delete("/article/index.md/1").expect(200);
    server.root().post("/article/guide/plan.pdf/1?rename=plan.pdf", ()).expect(201);
    drop(server);
    let done = place.run_with("import-articles wiki --json", "");
    assert_eq!((done.code, counts(&done)), (Some(1), [0, 0, 1, 0, 2]), "{done:?}");
    let left_out = done.json()["left_out"].clone();
    assert_eq!(
        left_out,
        json!([
            {"what": "guide/plan.pdf", "why": "`guide/plan.pdf` was renamed to `plan.pdf`"},
            {"what": "index.md", "why": "`index.md` was deleted"},
        ])
    );
    // A folder that is called like the file with what others do not say.
    write(&directory.path().join("other/larder-articles.json/x.md"), "x");
    place.run("import-articles other");
    place.run("export-articles out");
    let out: Vec<String> = files(&directory.path().join("out")).into_keys().collect();
    assert_eq!(
        out,
        ["%6Carder-articles.json/x.md", "guide/start.md", "larder-articles.json", "plan.pdf"]
    );
}

#[test]
fn the_ending_of_markdown_can_be_left_out_of_names_and_links() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let place = Place(directory.path());
    drop(serve(directory.clone()));
    let folder = directory.path().join("wiki");
    let index = "# Index\n\n[start](guide/start.md#top), `[x](guide/start.md)`, [gone](gone.md), [plan][1]\n\n[1]: guide/plan.pdf\n";
    write(&folder.join("index.md"), index);
    write(&folder.join("guide/start.md"), "[up](../index.md)\n");
    write(&folder.join("guide/plan.pdf"), b"%PDF-1.7\0");
    let clash = place.run_with("import-articles wiki --drop-md --dry-run --json", "");
    assert_eq!(counts(&clash), [3, 0, 0, 0, 0], "{clash:?}");
    for expected in [[3, 0, 0, 0, 0], [0, 0, 3, 0, 0]] {
        let done = place.run_with("import-articles wiki --drop-md --json", "");
        assert_eq!((done.code, counts(&done)), (Some(0), expected), "{done:?}");
    }
    let server = serve(directory.clone());
    let read = server.get("/article/index");
    read.has("content-type", "text/markdown; charset=utf-8");
    assert_eq!(read.text(), index.replacen("guide/start.md#top", "guide/start#top", 1));
    assert_eq!(server.get("/article/guide/start").text(), "[up](../index)\n");
    server.get("/article/guide/plan.pdf").expect(200);
    server.get("/article/guide/start.md").expect(404);
    drop(server);
    // A file whose name without the ending is that of another.
    write(&folder.join("guide/start"), "taken");
    let done = place.run_with("import-articles wiki --drop-md --json", "");
    assert_eq!((done.code, done.json()["left_out"].as_array().map(Vec::len)), (Some(1), Some(1)));
}

#[test]
fn what_is_no_article_is_named_and_left_out() {
    let directory = TempDir::new().expect("a directory");
    let place = Place(directory.path());
    place.run("init");
    let folder = directory.path().join("wiki");
    let outside = directory.path().join("outside");
    write(&outside.join("secret.md"), "secret");
    write(&folder.join("good.md"), "good");
    write(&folder.join("history"), "reserved");
    write(&folder.join("reports/2024"), "reserved");
    write(&folder.join("back\\slash.md"), "x");
    write(&folder.join("esc%2Faped.md"), "x");
    write(&folder.join(" space.md"), "x");
    write(&folder.join("Case.md"), "x");
    write(&folder.join("case.md"), "x");
    write(&folder.join("e\u{301}.md"), "x");
    write(&folder.join("é.md"), "x");
    write(
        &folder.join(format!("{}/{}/{}.md", "x".repeat(200), "y".repeat(200), "z".repeat(200))),
        "x",
    );
    write(&folder.join(OsStr::from_bytes(b"caf\xe9.md")), "x");
    let (pipe, fifo) = (folder.join("pipe.md"), rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, pipe, fifo, 0o600.into(), 0).expect("a pipe");
    symlink(outside.join("secret.md"), folder.join("link.md")).expect("a link");
    symlink(&outside, folder.join("folder")).expect("a link");
    symlink(&folder, folder.join("circle")).expect("a link");
    let manifest = json!({
        "articles": {
            "good.md": {"name": "better", "content_type": "text/markdown"},
            "not-there.md": {"name": "x", "content_type": "text/plain"},
            "../outside/secret.md": {"name": "stolen", "content_type": "text/plain"},
        },
        "redirects": {"a/../b": "better", "from": "nowhere", "better": "better", "fine": "better"},
    });
    write(&folder.join("larder-articles.json"), manifest.to_string());
    let done = place.run_with("import-articles wiki --json", "");
    done.check(1, "");
    assert_eq!(done.stderr, "larder: 16 failures: not everything was imported\n");
    assert_snapshot!("left_out", shown_json(&done.json()["left_out"]));
    assert_eq!(counts(&done)[..4], [3, 0, 0, 1], "{done:?}");
    place.run("export-articles out");
    let out: Vec<String> = files(&directory.path().join("out")).into_keys().collect();
    assert_eq!(out, ["Case.md", "better.md", "larder-articles.json", "é.md"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let place = Place(directory.path());
    place.run("init");
    let folder = directory.path().join("wiki");
    let manifest = folder.join("larder-articles.json");
    write(&folder.join("good.md"), "good");
    write(&manifest, "{");
    place.check("import-articles wiki", 1, "larder-articles.json` cannot be read");
    fs::remove_file(&manifest).expect("removed");
    symlink("../wiki.json", &manifest).expect("a link");
    place.check(
        "import-articles wiki",
        1,
        "larder-articles.json` cannot be read: it is a symbolic",
    );
    place.check("import-articles wiki/good.md", 1, "is a file: the folder");
    place.check("import-articles none", 1, "`none/` cannot be listed");
}

/// attachments: added, changed, as they were
#[track_caller]
fn attached(done: &Done) -> [u64; 3] {
    let report = done.json();
    let names = ["attachments_added", "attachments_changed", "attachments_already_there"];
    names.map(|name| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}")))
}

#[test]
fn attachments_go_out_and_in_again() {
    let first = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(first.clone());
    let attach = |server: &TestServer, target: &str, bytes: &[u8]| {
        let target = format!("/+attachments/{target}");
        server.root().with("If-None-Match", "*").put(&target, bytes).expect(201);
    };
    store(&server, "guide/a/0", b"![plan](plan.png)\n");
    store(&server, "guide/b/0", b"![plan](plan.png)\n");
    store(&server, "guide/c.png/0", b"an article that is called like a picture");
    attach(&server, "guide/a/plan.png", b"of a");
    attach(&server, "guide/b/plan.png", b"of b");
    attach(&server, "guide/b/c.png.md", b"so is this");
    drop(server);
    let out = exported(
        &Place(first.path()),
        &[
            "guide/a.md",
            "guide/b.md",
            "guide/b.md.files/c.png.md",
            "guide/b.md.files/plan.png",
            "guide/c.png.md",
            "guide/plan.png",
            "larder-articles.json",
        ],
    );
    assert_eq!(out["guide/plan.png"], b"of a");
    let second = carried(&first);
    let place = Place(second.path());
    place.run("init");
    let rehearsed = place.run_with("import-articles in --json --dry-run", "");
    assert_eq!(attached(&rehearsed), [3, 0, 0], "{rehearsed:?}");
    let done = place.run_with("import-articles in --json --prefix wiki", "");
    assert_eq!((counts(&done), attached(&done)), ([3, 0, 0, 0, 0], [3, 0, 0]), "{done:?}");
    write(&second.path().join("in/guide/plan.png"), "another one");
    let again = place.run_with("import-articles in --json --prefix wiki --user ada", "");
    assert_eq!((counts(&again), attached(&again)), ([0, 0, 3, 0, 0], [0, 1, 2]), "{again:?}");
    // An attachment with an invalid name is left out; the others are imported.
    let manifest = second.path().join("in/larder-articles.json");
    let text = fs::read_to_string(&manifest).expect("the manifest");
    let text = text.replace("\"c.png.md\"", "\"../c.png\"");
    write(&manifest, &text);
    let done = place.run_with("import-articles in --json --prefix wiki", "");
    assert_eq!((done.code, attached(&done)), (Some(1), [0, 0, 2]), "{done:?}");
    assert_snapshot!("attachment_left_out", shown_json(&done.json()["left_out"]));
    // The folder of an interrupted export.
    write(&manifest, "{\"is_unfinished\": true}");
    place.check("import-articles in", 1, "did not come to its end");
    place.run("verify");
    let server = serve(second);
    assert_eq!(server.get("/+attachments/wiki/guide/a/plan.png").text(), "another one");
    assert_eq!(server.get("/+attachments/wiki/guide/b/plan.png").text(), "of b");
    let list = server.get("/+attachments/wiki/guide/a/").json();
    assert_eq!(list["attachments"][0]["author"], "ada");
}

#[test]
fn a_backup_has_the_attachments() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(directory.clone());
    store(&server, "guide/b/0", b"![plan](plan.png)\n");
    server.root().put("/+attachments/guide/b/plan.png", "of b").expect(201);
    drop(server);
    let place = Place(directory.path());
    place.run("backup kept");
    fs::remove_dir_all(directory.path().join("data")).expect("lost");
    place.run("restore kept");
    place.run("verify");
    let server = serve(directory);
    assert_eq!(server.get("/+attachments/guide/b/plan.png").text(), "of b");
}

/// The report says how many attachments were left out with their article.
#[test]
fn the_files_of_an_article_that_is_left_out_are_counted() {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let server = serve(directory.clone());
    for name in ["guide/A", "guide/a"] {
        store(&server, &format!("{name}/0"), b"text");
        for file in ["x.png", "y.png"] {
            server.root().put(&format!("/+attachments/{name}/{file}"), "x").expect(201);
        }
    }
    drop(server);
    let place = Place(directory.path());
    place.check("export-articles out", 1, "with it 2 attachments of it");
}
