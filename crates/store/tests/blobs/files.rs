//! Tests of blobs in a directory.

use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;
use store::blobs::{BlobError, BlobLocation, BlobStore, BlobVerdict};

use crate::place::{ALL, CHUNK, HOUR, Place, sample};

#[tokio::test]
async fn the_layout_is_as_documented() {
    let place = Place::directory().await;
    let digest = place.store.put("abc".into()).await.expect("to put").digest;
    let path = place
        .root()
        .join("sha256/ba/78/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(place.store.local_path(digest), Some(path.clone()));
    assert_eq!(std::fs::read(&path).expect("the blob"), b"abc");
    let version = std::fs::read(place.root().join("VERSION")).expect("VERSION");
    assert_eq!(version, b"larder blobs 1\n");
    let mode =
        |path: &Path| std::fs::metadata(path).expect("metadata").permissions().mode() & 0o7777;
    // Less what the umask takes away: nothing for others, and no more than that for the group.
    assert_eq!(mode(&path) & 0o717, 0o600);
    assert_eq!(mode(path.parent().expect("a shard")) & 0o727, 0o700);
    assert_eq!(mode(&place.root()) & 0o727, 0o700);
    let entries = std::fs::read_dir(place.root()).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["VERSION", "lock", "sha256", "tmp"]);
}

#[tokio::test]
async fn a_reader_goes_on_when_its_blob_is_swept() {
    let place = Place::directory().await;
    let bytes = sample(30, 3 * CHUNK);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
    let mut chunks = reader.read();
    let first = chunks.next().await.expect("a chunk").expect("a chunk");
    assert_eq!(place.sweep(&[], Duration::ZERO, false).await.deleted, 1);
    let rest: Vec<Bytes> = chunks.try_collect().await.expect("the rest");
    assert!([first, rest.concat().into()].concat() == bytes);
}

#[tokio::test]
async fn a_file_cut_while_it_is_read_is_an_error() {
    let place = Place::directory().await;
    let digest = place.store.put(sample(31, 3 * CHUNK)).await.expect("to put").digest;
    let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
    place.damage(digest, Some(&[0; CHUNK + 5]));
    let mut chunks = reader.read();
    assert_eq!(chunks.next().await.expect("a chunk").expect("a chunk").len(), CHUNK);
    let error = chunks.next().await.expect("an end").expect_err("an error");
    assert!(
        matches!(error, BlobError::Cut { expected, found, .. }
            if expected == 3 * CHUNK as u64 && found == CHUNK as u64 + 5),
        "{error}"
    );
    assert!(matches!(reader.bytes(ALL).await, Err(BlobError::Cut { .. })));
}

#[tokio::test]
async fn a_place_that_is_no_directory_is_named() {
    let files = tempfile::tempdir().expect("a directory");
    let path = files.path().join("file");
    std::fs::write(&path, "x").expect("to write");
    for path in [path.clone(), path.join("below")] {
        let location = BlobLocation::Directory(path.clone());
        let error = BlobStore::open(&location, files.path()).await.err().expect("a refusal");
        assert!(error.to_string().contains("/file"), "{error}");
        assert!(!error.is_temporary());
    }
}

/// The system keeps a file that is written so in few large pieces.
#[tokio::test]
async fn an_upload_is_written_in_whole_chunks() {
    let place = Place::directory().await;
    let bytes = sample(33, 4 * CHUNK + 5);
    let mut upload = place.store.begin(ALL);
    let mut at = 0;
    for piece in [1, CHUNK - 2, 2, 2 * CHUNK + 3, 4, CHUNK - 3] {
        upload.write(bytes.slice(at..at + piece)).await.expect("to write");
        at += piece;
        let spooled: u64 = std::fs::read_dir(place.root().join("tmp"))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").metadata().expect("metadata").len())
            .sum();
        assert_eq!(spooled, (at / CHUNK * CHUNK) as u64, "of {at} bytes");
    }
    assert_eq!(at, bytes.len());
    let staged = upload.stage().await.expect("to stage");
    assert_eq!((staged.digest, staged.size_bytes), (Digest::of(&bytes), at as u64));
}

/// This test is run again, as a child, by those that kill it.
const CHILD: &str = "LARDER_TEST_BLOBS_CHILD";

/// A process that keeps one upload open (`spool`), or puts one blob after the other (`put`).
#[tokio::test]
async fn a_child_to_be_killed() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let (job, path) = job.split_once(' ').expect("a job and a path");
    let location = BlobLocation::Directory(path.into());
    let store = BlobStore::open(&location, Path::new(path)).await.expect("to open");
    let mut upload = store.begin(ALL);
    upload.write(sample(32, CHUNK)).await.expect("to write");
    for seed in 0.. {
        if job == "spool" {
            println!("\n@ready");
            tokio::time::sleep(HOUR).await;
        }
        let seed = seed + u64::from(std::process::id()) * 1000;
        let digest =
            store.put(sample(seed, 1 + seed as usize % 50_000)).await.expect("to put").digest;
        println!("\n@{digest}");
    }
}

/// Starts the child, and returns it with what it says.
fn child(job: &str, root: &Path) -> (std::process::Child, impl Iterator<Item = String> + use<>) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "files::a_child_to_be_killed", "--nocapture"])
        .env(CHILD, format!("{job} {}", root.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("to start");
    let lines = std::io::BufReader::new(child.stdout.take().expect("its output")).lines();
    let said = lines.map_while(Result::ok);
    (child, said.filter_map(|line| line.strip_prefix('@').map(str::to_owned)))
}

#[tokio::test]
async fn a_killed_upload_leaves_nothing_for_long() {
    let place = Place::directory().await;
    let foreign = place.root().join("tmp/notes.txt");
    std::fs::write(&foreign, "x").expect("to write");
    let (mut child, mut said) = child("spool", &place.root());
    assert_eq!(said.next().expect("a word"), "ready");
    assert_eq!(place.leftovers().len(), 2);
    place.reopen().await.expect("to open again");
    assert_eq!(place.leftovers().len(), 2, "the upload is under way");
    assert_eq!(place.sweep(&[], HOUR, false).await.temporaries_removed, 0);

    child.kill().expect("to kill");
    child.wait().expect("to end");
    assert_eq!(place.sweep(&[], HOUR, true).await.temporaries_removed, 1);
    assert_eq!(place.leftovers().len(), 2, "that was a dry run");
    place.reopen().await.expect("to open again");
    assert_eq!(place.leftovers(), [foreign.display().to_string()]);
}

#[tokio::test]
async fn what_a_killed_process_had_put_is_there() {
    let place = Place::directory().await;
    for round in 0..8 {
        let (mut child, said) = child("put", &place.root());
        let mut said = said.map(|digits| digits.parse::<Digest>().expect("a digest"));
        let mut acknowledged: Vec<Digest> = said.by_ref().take(1 + round * 3).collect();
        child.kill().expect("to kill");
        child.wait().expect("to end");
        acknowledged.extend(said);
        let store = place.reopen().await.expect("to open again");
        assert!(acknowledged.len() > round * 3);
        for digest in acknowledged {
            assert_eq!(store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
        }
        for blob in place.blobs().await {
            assert_eq!(store.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
        }
        assert_eq!(place.leftovers(), [""; 0]);
    }
}
