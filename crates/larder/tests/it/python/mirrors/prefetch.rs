//! `larder prefetch` fetches and compares the files of a lock, and reports missing and wrong ones.

use super::*;
use crate::process::Done;

/// Runs `larder prefetch` with this lock.
fn prefetch(index: &Index, lock: &str) -> Done {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("http://{}/alice/dev", index.client().address);
    std::fs::write(directory.path().join("lock"), lock).expect("a file");
    let mut command = crate::process::larder(directory.path());
    Done::of(command.args(["prefetch", "lock", "--index", &url]), "")
}

pub(super) fn sha256(content: &[u8]) -> String {
    Digest::of(content).to_string()
}

/// A lock of uv with these files of `foo` 1.0, and their digests.
pub(super) fn lock(files: &[(&str, String)]) -> String {
    let wheels: Vec<String> = files
        .iter()
        .map(|(name, digest)| {
            format!("{{ url = \"https://files.example/{name}\", hash = \"sha256:{digest}\" }}")
        })
        .collect();
    format!(
        "version = 1\n[[package]]\nname = \"foo\"\nversion = \"1.0\"\n\
         source = {{ registry = \"https://files.example/simple\" }}\nwheels = [{}]\n",
        wheels.join(", ")
    )
}

/// An index with a mirror of this upstream behind `alice/dev`.
fn index_of(upstream: &Upstream) -> Index {
    let index = mirror_of(fresh_for_long(), upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    index
}

/// An upstream that has a source archive beside the wheel.
pub(super) fn upstream_with(sdist: &str) -> Upstream {
    let upstream = upstream_of(b"content");
    let files = json!([file(&upstream, WHEEL, b"content"), file(&upstream, sdist, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer(&format!("/files/{sdist}"), Offer::file("two"));
    upstream
}

/// What is said of a file of `foo` 1.0 for which the lock has another digest.
fn not_the_locks(filename: &str, content: &[u8]) -> String {
    let digest = sha256(content);
    format!("larder: foo 1.0: {filename} has sha256:{digest}, which is not the lock's\n")
}

/// What is said of `foo` 1.0 where no file of it has this digest.
fn without_file(digest: &str) -> String {
    format!("larder: foo 1.0: the index does not have a file of it with sha256:{digest}\n")
}

#[test]
fn a_lock_is_fetched_ahead() {
    let sdist = "foo-2.0.tar.gz";
    let upstream = upstream_with(sdist);
    let index = index_of(&upstream);
    prefetch(&index, &lock(&[(WHEEL, sha256(b"content"))])).prints(0, "files: 1, bytes: 7\n");
    assert_eq!(
        (upstream.count(&format!("/files/{WHEEL}")), upstream.count(&format!("/files/{sdist}"))),
        (1, 0)
    );
    let done = prefetch(&index, &lock(&[(WHEEL, sha256(b"other"))]));
    assert_eq!(done.prints(1, "files: 0, bytes: 0\n").stderr, not_the_locks(WHEEL, b"content"));
    // The same release in another spelling.
    let done = prefetch(&index, "foo==v2\nbar==1.0  # it has no files\n");
    done.prints(1, "files: 1, bytes: 3\n");
    assert_eq!(done.stderr, "larder: bar 1.0: the index has no file of it\n");
    // Fetched files are there without the upstream.
    upstream.break_with(Some(500));
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    assert_eq!(index.client().get(&place_of(&upstream, sdist)).text(), "two");
}

#[test]
fn each_file_has_its_own_digest() {
    let sdist = "foo-1.0.tar.gz";
    let upstream = upstream_with(sdist);
    let index = index_of(&upstream);
    let digests = [sha256(b"content"), sha256(b"two")];
    let [wheel, two] = digests.clone();
    prefetch(&index, &lock(&[(WHEEL, wheel), (sdist, two)])).prints(0, "files: 2, bytes: 10\n");
    let [wheel, two] = digests.clone();
    let done = prefetch(&index, &lock(&[(WHEEL, two), (sdist, wheel)]));
    done.prints(1, "files: 0, bytes: 0\n");
    assert_eq!(
        done.stderr,
        [not_the_locks(WHEEL, b"content"), not_the_locks(sdist, b"two")].concat()
    );
    // For a requirement with hashes, the index has to have a file for each.
    let [wheel, two] = digests;
    let hashed = |other: &str| format!("foo==1.0 --hash=sha256:{wheel} --hash=sha256:{other}\n");
    prefetch(&index, &hashed(&two)).prints(0, "files: 2, bytes: 10\n");
    let gone = sha256(b"gone");
    let done = prefetch(&index, &hashed(&gone));
    done.prints(1, "files: 1, bytes: 7\n");
    assert_eq!(done.stderr, without_file(&gone));
}

#[test]
fn bytes_are_compared_where_the_page_has_no_sha256() {
    let upstream = upstream_of(b"content");
    let mut wheel = file(&upstream, WHEEL, b"content");
    wheel["hashes"] = json!({});
    upstream.offer("/simple/foo/", page("foo", json!([wheel])));
    let index = index_of(&upstream);
    let right = sha256(b"content");
    for lock in [lock(&[(WHEEL, right.clone())]), format!("foo==1.0 --hash=sha256:{right}\n")] {
        let done = prefetch(&index, &lock);
        assert_eq!(done.prints(0, "files: 1, bytes: 7\n").stderr, "");
    }
    let wrong = sha256(b"other");
    let done = prefetch(&index, &lock(&[(WHEEL, wrong.clone())]));
    done.prints(1, "files: 0, bytes: 0\n");
    let told =
        format!("larder: foo 1.0: {WHEEL}: it has sha256:{right}; sha256:{wrong} was expected\n");
    assert_eq!(done.stderr, told);
    let done = prefetch(&index, &format!("foo==1.0 --hash=sha256:{wrong}\n"));
    assert_eq!(done.prints(1, "files: 0, bytes: 0\n").stderr, without_file(&wrong));
    let done = prefetch(&index, "foo==1.0\n");
    let said = "larder: not compared, as no lock and no page names a digest: 1 file\n";
    assert_eq!(done.prints(0, "files: 1, bytes: 7\n").stderr, said);
}
