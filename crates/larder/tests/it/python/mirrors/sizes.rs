//! Sizes that upstream's pages do not say: asked by HEAD, marked, corrected, bounded, and never trusted.

use super::*;

/// A file on a page that says no size.
fn unsized_file(upstream: &Upstream, filename: &str, content: &[u8]) -> Value {
    let mut described = file(upstream, filename, content);
    described.as_object_mut().expect("an object").remove("size");
    described
}

fn tarball(version: usize) -> String {
    format!("foo-{version}.0.tar.gz")
}

/// An upstream of `foo` with this many files, each with its version as content, on pages without sizes.
fn upstream_without_sizes(files: usize) -> Upstream {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo", "bar"]));
    let mut described = Vec::new();
    for version in 1..=files {
        let (filename, content) = (tarball(version), "x".repeat(version));
        described.push(unsized_file(&upstream, &filename, content.as_bytes()));
        upstream.offer(&format!("/files/{filename}"), Offer::file(content));
    }
    upstream.offer("/simple/foo/", page("foo", described.into()).tagged("\"foo\""));
    upstream
}

fn heads(upstream: &Upstream) -> Vec<String> {
    let asked = upstream.requests().into_iter().filter(|it| it.method == "HEAD");
    asked.map(|it| it.path).collect()
}

/// The size of a file, and where it is from.
fn size(index: &Index, filename: &str) -> (Value, Value) {
    let files = json_page(index.client(), "alice/up", "foo").json()["files"].clone();
    let files = files.as_array().expect("files");
    let file = files.iter().find(|it| it["filename"] == filename).expect("it is there");
    (file["size"].clone(), file["_size-from"].clone())
}

fn by_head(bytes: u64) -> (Value, Value) {
    (json!(bytes), json!("head"))
}

fn unknown() -> (Value, Value) {
    (Value::Null, Value::Null)
}

const FILLS: &str = "mirror_fill_sizes";

#[test]
fn sizes_are_asked_for_and_marked_if_that_is_set() {
    let upstream = upstream_without_sizes(3);
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    assert_eq!(size(&index, &tarball(3)), unknown());
    assert_eq!(index.client().get(&place_of(&upstream, &tarball(1))).text(), "x");
    assert_eq!(heads(&upstream), [""; 0], "it is off at first");
    let patched = index.alice().send("PATCH", "/alice/up", json!({FILLS: true}));
    assert_eq!(patched.status, 200, "{}", patched.text());
    wait_until("the sizes", || size(&index, &tarball(2)) == by_head(2));
    assert_eq!(size(&index, &tarball(3)), by_head(3));
    // The sizes of downloaded files are not asked for.
    assert_eq!(size(&index, &tarball(1)), (json!(1), json!("download")));
    assert_eq!(heads(&upstream), [tarball(3), tarball(2)].map(|name| format!("/files/{name}")));
    let asked = upstream.requests().into_iter().find(|it| it.method == "HEAD").expect("one");
    assert_eq!(asked.header("accept-encoding"), "identity");
    // Pages of stages have the size, too, and Larder does not ask for it again, even after a restart.
    let inherited = json_page(index.client(), "alice/dev", "foo").json();
    assert_eq!(inherited["files"][2]["_size-from"], "head");
    let count = upstream.count("/simple/foo/");
    assert_eq!(size(&index, &tarball(3)), by_head(3));
    assert!(upstream.count("/simple/foo/") > count, "it was confirmed");
    assert_eq!(heads(&upstream).len(), 2);
}

/// How the server answers to HEAD, whatever it answers to GET.
fn answers_head(upstream: &Upstream, filename: &str, offer: Offer) {
    upstream.offer(&format!("HEAD /files/{filename}"), offer);
}

fn says(bytes: u64) -> Offer {
    Offer::file("").with(&format!("Content-Length: {bytes}"))
}

#[test]
fn what_was_found_survives_a_restart() {
    let upstream = upstream_without_sizes(2);
    let index = start();
    mirror(&index, &upstream, json!({FILLS: true}));
    wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
    let Index { server } = index;
    let index = Index { server: start_in(server.stop(), |_| ()) };
    assert_eq!(size(&index, &tarball(2)), by_head(2));
    upstream.break_with(Some(500));
    assert_eq!(size(&index, &tarball(1)), by_head(1));
    assert_eq!(heads(&upstream).len(), 2);
}

#[test]
fn a_download_and_upstreams_page_correct_what_head_claims() {
    let upstream = upstream_without_sizes(2);
    answers_head(&upstream, &tarball(2), says(999));
    let index = start();
    mirror(&index, &upstream, json!({FILLS: true}));
    wait_until("the claim", || size(&index, &tarball(2)) == by_head(999));
    // A download is not compared with it.
    let whole = index.client().get(&place_of(&upstream, &tarball(2)));
    assert_eq!((whole.status, whole.text().as_str()), (200, "xx"));
    wait_until("the proof", || size(&index, &tarball(2)) == (json!(2), json!("download")));
    let mut said = unsized_file(&upstream, &tarball(2), b"xx");
    said["size"] = json!(2);
    upstream.offer("/simple/foo/", page("foo", json!([said])));
    assert_eq!(size(&index, &tarball(2)), (json!(2), Value::Null));
}

#[test]
fn an_answer_that_says_no_size_is_not_asked_for_again() {
    let upstream = upstream_without_sizes(7);
    let large = 1_u64 << 41;
    for (version, offer) in [
        (7, Offer::file("").with("Transfer-Encoding: chunked")),
        (6, says(large)),
        (5, says(5).with("Content-Encoding: gzip")),
        (4, Offer::status(404)),
        (3, Offer::status(403)),
        (2, says(0)),
    ] {
        answers_head(&upstream, &tarball(version), offer);
    }
    let index = start();
    mirror(&index, &upstream, json!({FILLS: true}));
    wait_until("the only size", || size(&index, &tarball(1)) == by_head(1));
    for version in 2..=7 {
        assert_eq!(size(&index, &tarball(version)), unknown(), "{version}");
    }
    assert_eq!(heads(&upstream).len(), 7);
    assert_eq!(index.server.metric("larder_mirrors_failing"), 0.0, "they are answers");
}

/// Another server's files beside those of the upstream, which says their sizes.
fn files_elsewhere(upstream: &Upstream, files: usize) -> Upstream {
    let other = Upstream::start();
    let mut described = Vec::new();
    for version in 1..=files {
        let (filename, content) = (tarball(version), "x".repeat(version));
        described.push(unsized_file(upstream, &filename, content.as_bytes()));
        let moved = format!("foo-{version}.0.zip");
        described.push(unsized_file(&other, &moved, content.as_bytes()));
        other.offer(&format!("/files/{moved}"), Offer::file(content));
    }
    upstream.offer("/simple/foo/", page("foo", described.into()));
    other
}

#[test]
fn a_server_that_refuses_head_is_left_alone_and_sends_files() {
    for (status, asked) in [(405, 1), (501, 1), (503, 1), (429, 1), (403, 3), (401, 3)] {
        let upstream = upstream_without_sizes(5);
        let other = files_elsewhere(&upstream, 5);
        for version in 1..=5 {
            answers_head(&upstream, &tarball(version), Offer::status(status));
        }
        let index = fresh_for_long();
        mirror(&index, &upstream, json!({FILLS: true}));
        assert_eq!(size(&index, "foo-1.0.zip"), unknown());
        wait_until("the sizes that the other server says", || {
            size(&index, "foo-1.0.zip") == by_head(1)
        });
        assert_eq!(heads(&other).len(), 5, "{status}");
        assert_eq!(size(&index, &tarball(5)), unknown(), "{status}");
        assert_eq!(heads(&upstream).len(), asked, "{status}");
        // Pages and files have another breaker.
        assert_eq!(index.server.metric("larder_mirrors_failing"), 0.0, "{status}");
        assert_eq!(index.server.metric("larder_mirror_failures_total"), 0.0, "{status}");
        for _ in 0..3 {
            let done = index.alice().send("POST", "/alice/up/+simple/foo/refresh", json!({}));
            assert_eq!(done.status, 302, "{status}: {}", done.text());
        }
        for version in 2..=5 {
            let whole = index.client().get(&place_of(&upstream, &tarball(version)));
            assert_eq!((whole.status, whole.text().len()), (200, version), "{status}");
        }
        wait_until("the size of a download", || {
            size(&index, &tarball(5)) == (json!(5), json!("download"))
        });
        assert_eq!(heads(&upstream).len(), asked, "{status}: its pause has not ended");
    }
}

#[test]
fn asking_goes_on_after_a_restart() {
    let upstream = upstream_without_sizes(2);
    upstream.offer(&format!("HEAD /files/{}", tarball(2)), Offer::status(503));
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({FILLS: true}));
    assert_eq!(size(&index, &tarball(2)), unknown());
    let first = format!("/files/{}", tarball(2));
    upstream.wait_for(&first, 1);
    let Index { server } = index;
    let long = Duration::from_secs(100_000);
    let server = start_in(server.stop(), |config| config.python.mirror_cache_expiry = long);
    let index = Index { server };
    answers_head(&upstream, &tarball(2), says(2));
    // The page is fresh, so that upstream is not asked for it.
    assert_eq!(size(&index, &tarball(2)), unknown());
    wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
    assert_eq!(size(&index, &tarball(2)), by_head(2));
    assert_eq!(upstream.count("/simple/foo/"), 1);
}

#[test]
fn they_are_shown_only_while_that_is_set() {
    let upstream = upstream_without_sizes(2);
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({FILLS: true}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
    let inherited = || json_page(index.client(), "alice/dev", "foo").json()["files"][0].clone();
    assert_eq!(inherited()["_size-from"], "head");
    assert_eq!(index.alice().send("PATCH", "/alice/up", json!({FILLS: false})).status, 200);
    assert_eq!(size(&index, &tarball(1)), unknown());
    assert_eq!((&inherited()["size"], &inherited()["_size-from"]), (&Value::Null, &Value::Null));
    assert_eq!(index.alice().send("PATCH", "/alice/up", json!({FILLS: true})).status, 200);
    assert_eq!(size(&index, &tarball(1)), by_head(1), "they were kept");
    assert_eq!(inherited()["_size-from"], "head");
    assert_eq!(heads(&upstream).len(), 2);
}

/// A server with little memory for mirrors: no page is kept there.
fn without_memory() -> Index {
    Index::start_with(|config| {
        allow_this_machine(config);
        config.python.mirror_memory_bytes_max = 2_000;
    })
}

#[test]
fn a_page_that_is_too_large_for_the_memory_gets_sizes_too() {
    let upstream = upstream_without_sizes(3);
    let index = without_memory();
    mirror(&index, &upstream, json!({FILLS: true}));
    wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
    assert_eq!(index.client().get(&place_of(&upstream, &tarball(2))).text(), "xx");
    wait_until("the proof", || size(&index, &tarball(2)) == (json!(2), json!("download")));
    assert_eq!(heads(&upstream).len(), 3);
}

#[test]
fn a_confirmation_that_is_under_way_drops_no_size() {
    for index in [start(), without_memory()] {
        let upstream = upstream_without_sizes(101);
        let [first, last] = [101, 1].map(|version| format!("/files/{}", tarball(version)));
        upstream.hold(&first);
        upstream.hold(&last);
        mirror(&index, &upstream, json!({FILLS: true}));
        assert_eq!(size(&index, &tarball(101)), unknown());
        upstream.wait_for(&first, 1);
        upstream.hold("/simple/foo/");
        let asked = upstream.count("/simple/foo/");
        std::thread::scope(|scope| {
            let confirmed = scope.spawn(|| size(&index, &tarball(101)));
            upstream.wait_for("/simple/foo/", asked + 1);
            // The first batch is written before the second one is asked for.
            upstream.release(&first);
            upstream.wait_for(&last, 1);
            upstream.release("/simple/foo/");
            assert_eq!(confirmed.join().expect("no panic"), by_head(101));
        });
        upstream.release(&last);
        wait_until("the last size", || size(&index, &tarball(1)) == by_head(1));
        assert_eq!(heads(&upstream).len(), 101);
    }
}

#[test]
fn it_ends_when_the_mirror_is_offline() {
    let upstream = upstream_without_sizes(3);
    let first = format!("/files/{}", tarball(3));
    upstream.hold(&first);
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({FILLS: true}));
    assert_eq!(size(&index, &tarball(3)), unknown());
    upstream.wait_for(&first, 1);
    let patched = index.alice().send("PATCH", "/alice/up", json!({"mirror_offline": true}));
    assert_eq!(patched.status, 200, "{}", patched.text());
    upstream.release(&first);
    // Sizes that were found before are written once the batch ends.
    wait_until("the size", || size(&index, &tarball(3)) == by_head(3));
    assert_eq!(heads(&upstream), [first]);
    assert_eq!(size(&index, &tarball(2)), unknown());
}

#[test]
fn it_ends_when_the_mirror_is_changed_or_deleted() {
    let first = format!("/files/{}", tarball(3));
    for is_deleted in [false, true] {
        let upstream = upstream_without_sizes(3);
        upstream.hold(&first);
        let index = fresh_for_long();
        mirror(&index, &upstream, json!({FILLS: true}));
        assert_eq!(size(&index, &tarball(3)), unknown());
        upstream.wait_for(&first, 1);
        if is_deleted {
            let deleted = index.alice().send("DELETE", "/alice/up", Value::Null);
            assert!(deleted.status < 300, "{}", deleted.text());
        } else {
            let patch = json!({"mirror_cache_expiry": 100_001});
            assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
        }
        upstream.release(&first);
        if is_deleted {
            mirror(&index, &upstream, json!({FILLS: true}));
        }
        let done = index.alice().send("POST", "/alice/up/+simple/foo/refresh", json!({}));
        assert_eq!(done.status, 302, "{}", done.text());
        wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
        // The first is asked for twice; the others only by the mirror with its new settings.
        assert_eq!(heads(&upstream).len(), 4, "{:?}", heads(&upstream));
    }
}

#[test]
fn a_batch_is_written_at_once_and_a_project_is_bounded() {
    let upstream = upstream_without_sizes(600);
    let fiftieth = format!("/files/{}", tarball(551));
    upstream.hold(&fiftieth);
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({FILLS: true}));
    assert_eq!(size(&index, &tarball(600)), unknown());
    upstream.wait_for(&fiftieth, 1);
    assert_eq!(heads(&upstream).len(), 50, "newest first");
    assert_eq!(size(&index, &tarball(600)), unknown(), "the batch is not whole");
    upstream.release(&fiftieth);
    wait_until("the last size", || size(&index, &tarball(101)) == by_head(101));
    assert_eq!(size(&index, &tarball(600)), by_head(600));
    // There is nothing left to ask, also when upstream confirms the page.
    let done = index.alice().send("POST", "/alice/up/+simple/foo/refresh", json!({}));
    assert_eq!(done.status, 302, "{}", done.text());
    assert_eq!(size(&index, &tarball(100)), unknown());
    assert_eq!(heads(&upstream).len(), 500);
}

#[test]
fn a_newer_page_is_not_replaced_by_what_was_asked_for_the_older() {
    let upstream = upstream_without_sizes(3);
    let first = format!("/files/{}", tarball(3));
    upstream.hold(&first);
    let index = start();
    mirror(&index, &upstream, json!({FILLS: true}));
    assert_eq!(size(&index, &tarball(3)), unknown());
    upstream.wait_for(&first, 1);
    let newer = json!([
        unsized_file(&upstream, &tarball(3), b"replaced"),
        unsized_file(&upstream, &tarball(4), b"four"),
    ]);
    upstream.offer("/simple/foo/", page("foo", newer));
    upstream.offer(&first, Offer::file("replaced"));
    upstream.offer(&format!("/files/{}", tarball(4)), Offer::file("four"));
    assert_eq!(size(&index, &tarball(4)), unknown(), "the newer page is known");
    upstream.release(&first);
    wait_until("the sizes", || size(&index, &tarball(4)) == by_head(4));
    wait_until("the other size", || size(&index, &tarball(3)) != unknown());
    assert_eq!(size(&index, &tarball(3)), by_head(8));
}

#[test]
fn credentials_and_redirects_are_those_of_downloads() {
    let upstream = upstream_without_sizes(1);
    let other = Upstream::start();
    other.offer("/x/foo-3.0.tar.gz", Offer::file("xxx"));
    let elsewhere =
        |filename: &str, url: String| json!({"filename": filename, "url": url, "hashes": {}});
    let files = json!([
        unsized_file(&upstream, &tarball(1), b"x"),
        elsewhere(&tarball(3), upstream.url("/moved")),
        elsewhere(&tarball(2), upstream.url("/forbidden")),
    ]);
    upstream.offer("/simple/foo/", page("foo", files));
    let moved = Offer::status(302).with(&format!("Location: {}", other.url("/x/foo-3.0.tar.gz")));
    upstream.offer("/moved", moved);
    upstream.offer("/forbidden", Offer::status(302).with("Location: http://192.0.2.1/x"));
    let index = start();
    let url = upstream.url("/simple").replace("http://", "http://me:secret@");
    index.stage("alice/up", json!({"type": "mirror", "mirror_url": url, FILLS: true}));
    wait_until("a size behind a redirect", || {
        _ = json_page(index.client(), "alice/up", "foo");
        heads(&upstream).contains(&"/forbidden".to_owned())
    });
    assert_eq!(heads(&other), ["/x/foo-3.0.tar.gz"]);
    assert_eq!(other.requests()[0].header("authorization"), "");
    let asked = upstream.requests();
    assert!(asked.iter().all(|it| it.header("authorization").starts_with("Basic ")));
    wait_until("the sizes", || size(&index, &tarball(1)) == by_head(1));
    assert_eq!((size(&index, &tarball(3)), size(&index, &tarball(2))), (by_head(3), unknown()));
    assert_eq!(heads(&upstream).len(), 3);
}
