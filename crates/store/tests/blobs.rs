//! The contract of the blob store, on each place where blobs can be: a directory, an S3-type store
//! (a fake in this process), and a real one when `LARDER_TEST_S3` names it. What a real store does
//! not let a test do (age an object, damage it) is skipped there, with a line that says so.

#[path = "blobs/fake_s3.rs"]
mod fake_s3;

use std::io::{BufRead as _, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use axum::http::Method;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;
use store::blobs::{
    BlobEntry, BlobError, BlobLocation, BlobStore, FailureKind, SweepReport, Verdict,
};

use fake_s3::{Effect, FakeS3, Fault};

const CHUNK: usize = 256 * 1024;
const ALL: u64 = u64::MAX;
const HOUR: Duration = Duration::from_secs(3600);

/// A place for blobs that only one test uses.
struct Place {
    store: BlobStore,
    location: BlobLocation,
    settings: Vec<(String, String)>,
    /// The blob directory is `blobs` in it, the spool directory `spool`.
    files: tempfile::TempDir,
    fake: Option<FakeS3>,
}

impl Place {
    async fn directory() -> Place {
        let files = tempfile::tempdir().expect("a directory");
        let location = BlobLocation::Directory(files.path().join("blobs"));
        Place::open(location, Vec::new(), files, None).await
    }

    async fn fake_s3() -> Place {
        let fake = FakeS3::start();
        let settings = [
            ("AWS_ENDPOINT_URL", fake.endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_READ_TIMEOUT", "2 seconds"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let location = "s3://bucket/some/prefix".parse().expect("a location");
        Place::open(location, settings, tempfile::tempdir().expect("a directory"), Some(fake)).await
    }

    async fn real_s3() -> Option<Place> {
        let Ok(location) = std::env::var("LARDER_TEST_S3") else {
            println!("skipped: LARDER_TEST_S3 names no S3-type store");
            return None;
        };
        let files = tempfile::tempdir().expect("a directory");
        let own = files.path().file_name().expect("a name").to_str().expect("a plain name");
        let location =
            format!("{}/{}", location.trim_end_matches('/'), own.trim_start_matches('.'));
        let location = location.parse().expect("LARDER_TEST_S3 to be s3://bucket/prefix");
        Some(Place::open(location, std::env::vars().collect(), files, None).await)
    }

    async fn open(
        location: BlobLocation,
        settings: Vec<(String, String)>,
        files: tempfile::TempDir,
        fake: Option<FakeS3>,
    ) -> Place {
        let spool = files.path().join("spool");
        let store = BlobStore::open_with_settings(&location, &spool, settings.clone()).await;
        Place { store: store.expect("to open"), location, settings, files, fake }
    }

    /// A store as another process would open it.
    async fn reopen(&self) -> Result<BlobStore, BlobError> {
        let spool = self.files.path().join("spool");
        BlobStore::open_with_settings(&self.location, &spool, self.settings.clone()).await
    }

    /// Temporary files, objects and unfinished uploads. A real store is asked for none of the last.
    fn leftovers(&self) -> Vec<String> {
        let mut found = files_under(&self.files.path().join("spool"));
        found.extend(files_under(&self.files.path().join("blobs/tmp")));
        if let Some(fake) = &self.fake {
            found.extend(fake.keys().into_iter().filter(|key| {
                !key.starts_with("some/prefix/sha256/") && key != "some/prefix/VERSION"
            }));
            found.extend((0..fake.open_uploads()).map(|_| "an open upload".to_owned()));
        }
        found
    }

    async fn blobs(&self) -> Vec<BlobEntry> {
        let mut blobs: Vec<_> = self.store.list().try_collect().await.expect("a list");
        blobs.sort_by_key(|blob| blob.digest);
        blobs
    }

    /// Makes a blob look as if it was last put that long ago; false where that is impossible.
    fn age(&self, digest: Digest, age: Duration) -> bool {
        let touched_at = SystemTime::now() - age;
        if let Some(path) = self.store.local_path(digest) {
            let file = std::fs::File::options().write(true).open(path).expect("the blob");
            file.set_modified(touched_at).expect("to set its age");
            return true;
        }
        let Some(fake) = &self.fake else {
            println!("skipped: a real store's objects cannot be aged");
            return false;
        };
        fake.set_modified(&object_key(digest), touched_at);
        true
    }

    /// Replaces what is stored behind the store's back; false where that is impossible.
    fn damage(&self, digest: Digest, bytes: Option<&[u8]>) -> bool {
        if let Some(path) = self.store.local_path(digest) {
            match bytes {
                Some(bytes) => std::fs::write(path, bytes).expect("to write"),
                None => std::fs::remove_file(path).expect("to remove"),
            }
            return true;
        }
        let Some(fake) = &self.fake else {
            println!("skipped: a real store's objects are not damaged");
            return false;
        };
        match bytes {
            Some(bytes) => fake.set(&object_key(digest), bytes),
            None => fake.remove(&object_key(digest)),
        }
        true
    }

    async fn sweep(&self, named: &[Digest], grace: Duration, is_dry_run: bool) -> SweepReport {
        let is_named = |digest: &Digest| named.contains(digest);
        let swept = self.store.sweep(is_named, grace, SystemTime::now(), is_dry_run).await;
        let mut report = swept.expect("to sweep");
        report.unnamed.sort_unstable();
        report
    }
}

fn object_key(digest: Digest) -> String {
    let digits = digest.to_string();
    format!("some/prefix/sha256/{}/{}/{digits}", &digits[..2], &digits[2..4])
}

fn files_under(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path().display().to_string()).collect()
}

/// Bytes that differ from place to place and from `seed` to `seed`.
fn sample(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(size);
    bytes.into()
}

/// Uploads `bytes` in pieces of `piece` bytes.
async fn upload(store: &BlobStore, bytes: &Bytes, piece: usize) -> Result<Digest, BlobError> {
    let mut upload = store.begin(bytes.len() as u64);
    for start in (0..bytes.len()).step_by(piece) {
        upload.write(bytes.slice(start..bytes.len().min(start + piece))).await?;
    }
    let staged = upload.stage().await?;
    assert_eq!(staged.size_bytes, bytes.len() as u64);
    let digest = staged.digest;
    let blob = staged.keep().await?;
    assert_eq!((blob.digest, blob.size_bytes), (digest, bytes.len() as u64));
    Ok(digest)
}

/// Each case runs on each place.
macro_rules! contract {
    ($($case:ident)*) => {
        mod directory {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(super::Place::directory().await).await }
        )*}
        mod on_fake_s3 {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(super::Place::fake_s3().await).await }
        )*}
        mod on_real_s3 {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                if let Some(place) = super::Place::real_s3().await { super::$case(place).await }
            }
        )*}
    };
}

contract! {
    blobs_of_all_sizes_come_back
    a_missing_blob_is_none
    a_large_blob_streams
    the_same_content_from_many_uploads_is_one_blob
    ranges_are_clamped
    too_many_bytes_are_refused
    what_is_dropped_leaves_nothing
    a_staged_file_can_be_looked_into
    another_process_sees_the_same
    another_layout_is_refused
    a_listing_has_all
    a_sweep_takes_what_is_unnamed_and_old
    a_sweep_in_the_future_takes_all_that_is_unnamed
    a_sweep_spares_what_is_put_meanwhile
    a_sweep_spares_what_is_touched_meanwhile
    puts_and_sweeps_at_once_lose_nothing
    touching_makes_the_age_new
    verifying_finds_damage
    a_torn_blob_is_replaced
    a_bounded_read_refuses_more
}

async fn blobs_of_all_sizes_come_back(place: Place) {
    for size in [0, 1, 63, 64, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
        let bytes = sample(size as u64, size);
        let digest = Digest::of(&bytes);
        for piece in [size.max(1), 7 * 1024, CHUNK, CHUNK + 1] {
            assert_eq!(upload(&place.store, &bytes, piece).await.expect("to upload"), digest);
        }
        assert_eq!(place.store.bytes(digest, ALL).await.expect("bytes"), Some(bytes.clone()));
        assert_eq!(place.store.size_bytes(digest).await.expect("a size"), Some(size as u64));

        let other = sample(size as u64 + 1_000_000_007, size);
        let blob = place.store.put(other.clone()).await.expect("to put");
        assert_eq!((blob.digest, blob.size_bytes), (Digest::of(&other), size as u64));
        assert_eq!(place.store.put(other.clone()).await.expect("to put again"), blob);
        assert_eq!(place.store.bytes(blob.digest, ALL).await.expect("bytes"), Some(other));
        assert!(place.store.contains(blob.digest).await.expect("an answer"));
        assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), Verdict::Whole);
    }
    // Of no bytes there is one blob, of the other seven sizes there are two.
    assert_eq!(place.blobs().await.len(), 15);
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn a_missing_blob_is_none(place: Place) {
    let digest = Digest::of(b"never put");
    assert!(place.store.open_blob(digest).await.expect("an answer").is_none());
    assert_eq!(place.store.bytes(digest, ALL).await.expect("an answer"), None);
    assert_eq!(place.store.size_bytes(digest).await.expect("an answer"), None);
    assert!(!place.store.contains(digest).await.expect("an answer"));
    assert!(!place.store.touch(digest).await.expect("an answer"));
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Missing);
    assert_eq!(place.blobs().await, []);
}

/// The memory bound: neither side ever holds more than the piece it was given or gives, which is
/// checked; between them is a file, or parts of 8 MiB of which two are under way.
async fn a_large_blob_streams(place: Place) {
    let (pieces, piece_bytes) = (800, 64 * 1024 + 1);
    let mut hasher = record::Hasher::new();
    let mut upload = place.store.begin(ALL);
    for index in 0..pieces {
        let piece = sample(index, piece_bytes);
        hasher.update(&piece);
        upload.write(piece).await.expect("to write");
    }
    let staged = upload.stage().await.expect("to stage");
    let digest = hasher.finish();
    assert_eq!(staged.digest, digest);
    assert_eq!(staged.size_bytes, pieces * piece_bytes as u64);
    staged.keep().await.expect("to keep");

    let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
    let mut hasher = record::Hasher::new();
    let mut chunks = reader.read();
    while let Some(chunk) = chunks.try_next().await.expect("a chunk") {
        assert!(chunk.len() <= CHUNK, "a chunk of {} bytes", chunk.len());
        hasher.update(&chunk);
    }
    assert_eq!(hasher.finish(), digest);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);
    if let Some(fake) = &place.fake {
        let parts = fake.requests().iter().filter(|it| it.contains("partNumber")).count();
        assert_eq!(parts, 7, "52 MB in parts of 8 MiB");
    }
}

async fn the_same_content_from_many_uploads_is_one_blob(place: Place) {
    let bytes = sample(1, 700_000);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..50 {
        let (store, bytes) = (place.store.clone(), bytes.clone());
        tasks.spawn(async move {
            match index % 2 {
                0 => upload(&store, &bytes, 10_000 + index).await,
                _ => store.put(bytes).await.map(|blob| blob.digest),
            }
        });
    }
    for digest in tasks.join_all().await {
        assert_eq!(digest.expect("to upload"), Digest::of(&bytes));
    }
    assert_eq!(place.store.bytes(Digest::of(&bytes), ALL).await.expect("bytes"), Some(bytes));
    assert_eq!(place.blobs().await.len(), 1);
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn ranges_are_clamped(place: Place) {
    let size = 2 * CHUNK + 100;
    let bytes = sample(2, size);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
    assert_eq!(reader.size_bytes(), size as u64);
    let end = size as u64;
    let check = async |range: Range<u64>, expected: Range<usize>| {
        let chunks: Vec<Bytes> =
            reader.read_range(range.clone()).try_collect().await.expect("a range");
        assert!(chunks.concat() == bytes[expected], "{range:?}");
    };
    check(0..1, 0..1).await;
    check(end - 1..end, size - 1..size).await;
    check(10..20, 10..20).await;
    check(CHUNK as u64 - 1..CHUNK as u64 + 1, CHUNK - 1..CHUNK + 1).await;
    check(1..end - 1, 1..size - 1).await;
    check(0..end, 0..size).await;
    check(end - 10..end + 10, size - 10..size).await;
    check(0..u64::MAX, 0..size).await;
    check(end..end + 1, 0..0).await;
    check(u64::MAX - 1..u64::MAX, 0..0).await;
    check(5..5, 0..0).await;
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may come with one")]
    check(20..10, 0..0).await;

    // Two streams of one reader know nothing of each other.
    let (mut first, mut second) = (reader.read(), reader.read_range(100..200));
    let head = first.next().await.expect("a chunk").expect("a chunk");
    let middle: Vec<Bytes> = second.by_ref().try_collect().await.expect("a range");
    let rest: Vec<Bytes> = first.try_collect().await.expect("the rest");
    assert!(middle.concat() == bytes[100..200]);
    assert!([head, rest.concat().into()].concat() == bytes);

    let empty = place.store.put(Bytes::new()).await.expect("to put").digest;
    let reader = place.store.open_blob(empty).await.expect("to open").expect("the blob");
    assert!(reader.read().next().await.is_none());
    assert!(reader.read_range(0..10).next().await.is_none());
}

async fn too_many_bytes_are_refused(place: Place) {
    let mut exact = place.store.begin(1000);
    exact.write(sample(3, 1000)).await.expect("to write");
    exact.write(Bytes::new()).await.expect("nothing more");
    exact.stage().await.expect("to stage");

    for before in [0, 999, 2 * CHUNK] {
        let mut upload = place.store.begin(before as u64);
        upload.write(sample(4, before)).await.expect("to write");
        let error = upload.write(sample(5, 1)).await.expect_err("one more");
        assert!(matches!(error, BlobError::TooLarge { bytes_max } if bytes_max == before as u64));
        assert!(!error.is_temporary());
        // At once, not when the upload is dropped.
        assert_eq!(place.leftovers(), [""; 0]);
        let error = upload.write(Bytes::new()).await.expect_err("it is over");
        assert!(matches!(error, BlobError::Abandoned));
        assert!(matches!(upload.stage().await, Err(BlobError::Abandoned)));
    }
    assert_eq!(place.blobs().await, []);
}

async fn what_is_dropped_leaves_nothing(place: Place) {
    let bytes = sample(6, 3 * CHUNK);
    let mut upload = place.store.begin(ALL);
    upload.write(bytes.clone()).await.expect("to write");
    assert_ne!(place.leftovers(), [""; 0], "the spool is where the test looks for it");
    drop(upload);
    assert_eq!(place.leftovers(), [""; 0]);

    let mut upload = place.store.begin(ALL);
    upload.write(bytes.clone()).await.expect("to write");
    drop(upload.stage().await.expect("to stage"));
    assert_eq!(place.leftovers(), [""; 0]);

    // A write that is abandoned in the middle: its thread may be at it still, but not for long.
    let mut upload = loop {
        let mut upload = place.store.begin(ALL);
        let mut write = Box::pin(upload.write(bytes.clone()));
        if futures_util::poll!(write.as_mut()).is_pending() {
            drop(write);
            break upload;
        }
    };
    assert!(matches!(upload.write(bytes.clone()).await, Err(BlobError::Abandoned)));
    drop(upload);
    while !place.leftovers().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // A keep that is abandoned: it may go on, and leaves the blob or nothing.
    let mut upload = place.store.begin(ALL);
    upload.write(sample(7, 9 << 20)).await.expect("to write");
    let staged = upload.stage().await.expect("to stage");
    {
        let mut keep = Box::pin(staged.keep());
        let _ = futures_util::poll!(keep.as_mut());
    }
    while !place.leftovers().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for blob in place.blobs().await {
        assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), Verdict::Whole);
    }
    assert!(!place.store.contains(Digest::of(&bytes)).await.expect("an answer"));
}

async fn a_staged_file_can_be_looked_into(place: Place) {
    let bytes = sample(8, CHUNK + 10);
    let mut upload = place.store.begin(ALL);
    upload.write(bytes.clone()).await.expect("to write");
    let staged = upload.stage().await.expect("to stage");
    assert!(!place.store.contains(staged.digest).await.expect("an answer"), "it is not kept yet");
    let mut file = staged.file().expect("a file");
    let mut tail = [0; 10];
    file.read_exact_at(&mut tail, CHUNK as u64).expect("the tail");
    assert_eq!(tail, bytes[CHUNK..]);
    let mut all = Vec::new();
    file.read_to_end(&mut all).expect("all");
    assert!(all == bytes);
    assert!(file.write_all(b"x").is_err(), "it is for reading");
    staged.keep().await.expect("to keep");
    file.read_exact_at(&mut tail, 0).expect("the head, even now");
    assert_eq!(tail, bytes[..10]);
}

async fn another_process_sees_the_same(place: Place) {
    let bytes = sample(9, 1000);
    let mut under_way = place.store.begin(ALL);
    under_way.write(sample(10, CHUNK)).await.expect("to write");
    let other = place.reopen().await.expect("to open again");
    let digest = other.put(bytes.clone()).await.expect("to put").digest;
    assert_eq!(place.store.bytes(digest, ALL).await.expect("bytes"), Some(bytes));
    // Opening did not take the spool away, nor does a sweep.
    let swept = other.sweep(|_| true, HOUR, SystemTime::now(), false).await.expect("to sweep");
    assert_eq!(swept.temporaries_removed, 0);
    under_way.write(sample(11, CHUNK)).await.expect("to write");
    let kept = under_way.stage().await.expect("to stage").keep().await.expect("to keep");
    assert_eq!(other.verify(kept.digest).await.expect("a verdict"), Verdict::Whole);
}

async fn another_layout_is_refused(place: Place) {
    let later = b"larder blobs 2\n";
    match &place.location {
        BlobLocation::Directory(path) => {
            std::fs::write(path.join("VERSION"), later).expect("to write");
        }
        BlobLocation::S3 { .. } => match &place.fake {
            Some(fake) => fake.set("some/prefix/VERSION", later),
            None => return println!("skipped: a real store's objects are not damaged"),
        },
    }
    let error = place.reopen().await.err().expect("a refusal");
    assert!(matches!(error, BlobError::Layout { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`larder blobs 2`") && text.contains("`larder blobs 1`"), "{text}");
    assert!(text.contains("VERSION"), "{text}");
}

async fn a_listing_has_all(place: Place) {
    let before = SystemTime::now() - Duration::from_secs(60);
    let mut expected = Vec::new();
    for index in 0..23 {
        let blob = place.store.put(sample(index, 10 + index as usize)).await.expect("to put");
        expected.push((blob.digest, blob.size_bytes));
    }
    expected.sort_unstable();
    // Things that are no blobs do not disturb it.
    match &place.location {
        BlobLocation::Directory(path) => {
            std::fs::write(path.join("sha256/notes.txt"), "x").expect("to write");
            let (digest, _) = expected[0];
            let misplaced = path.join("sha256/00/00");
            std::fs::create_dir_all(&misplaced).expect("a directory");
            std::fs::write(misplaced.join(digest.to_string()), "x").expect("to write");
            std::fs::write(misplaced.join("README"), "x").expect("to write");
        }
        BlobLocation::S3 { .. } => {
            if let Some(fake) = &place.fake {
                fake.set("some/prefix/sha256/00/00/README", b"x");
                fake.set(&format!("some/prefix/sha256/00/00/{}", expected[0].0), b"x");
                fake.set("some/prefix/sha256x", b"x");
            }
        }
    }
    let blobs = place.blobs().await;
    let found: Vec<_> = blobs.iter().map(|blob| (blob.digest, blob.size_bytes)).collect();
    assert_eq!(found, expected);
    assert!(blobs.iter().all(|blob| blob.touched_at > before));
}

async fn a_sweep_takes_what_is_unnamed_and_old(place: Place) {
    let mut digests = Vec::new();
    for index in 0..12 {
        digests
            .push(place.store.put(sample(index, 100 + index as usize)).await.expect("put").digest);
    }
    for digest in &digests[..8] {
        if !place.age(*digest, 2 * HOUR) {
            return;
        }
    }
    // Old: 0..8, of which 0..3 are named. Young: 8..12, of which 8 is named.
    let named = [digests[0], digests[1], digests[2], digests[8]];
    let mut unnamed: Vec<_> = (3..8).map(|index| (digests[index], 100 + index as u64)).collect();
    unnamed.sort_unstable();
    let mut expected = SweepReport { examined: 12, unnamed, young: 3, ..SweepReport::default() };
    assert_eq!(place.sweep(&named, HOUR, true).await, expected);
    assert_eq!(place.blobs().await.len(), 12);
    assert_eq!(place.sweep(&named, 3 * HOUR, false).await.deleted, 0);
    assert_eq!(place.blobs().await.len(), 12);

    expected.deleted = 5;
    expected.bytes_freed = 103 + 104 + 105 + 106 + 107;
    assert_eq!(place.sweep(&named, HOUR, false).await, expected);
    for (index, digest) in digests.iter().enumerate() {
        let is_there = place.store.contains(*digest).await.expect("an answer");
        assert_eq!(is_there, !(3..8).contains(&index), "{index}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
    let blob = place.store.put(sample(3, 103)).await.expect("to put again");
    assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), Verdict::Whole);
}

/// The one way to see a real object store swept: there nothing can be made old.
async fn a_sweep_in_the_future_takes_all_that_is_unnamed(place: Place) {
    let mut digests = Vec::new();
    for seed in 60..67 {
        digests.push(place.store.put(sample(seed, 50)).await.expect("to put").digest);
    }
    let now = SystemTime::now() + 2 * HOUR;
    let is_named = |digest: &Digest| *digest == digests[0];
    let report = place.store.sweep(is_named, HOUR, now, false).await.expect("to sweep");
    assert_eq!((report.examined, report.deleted, report.bytes_freed), (7, 6, 300));
    let left: Vec<_> = place.blobs().await.iter().map(|blob| blob.digest).collect();
    assert_eq!(left, digests[..1]);
    assert_eq!(place.leftovers(), [""; 0]);
    // The markers are gone: a put does not wait for them.
    let again = place.store.put(sample(61, 50)).await.expect("to put again");
    assert_eq!(place.store.verify(again.digest).await.expect("a verdict"), Verdict::Whole);
}

async fn a_sweep_spares_what_is_put_meanwhile(place: Place) {
    let bytes = sample(12, 500);
    refresh_during_a_sweep(place, bytes.clone(), async move |store| {
        store.put(bytes).await.expect("to put");
    })
    .await;
}

async fn a_sweep_spares_what_is_touched_meanwhile(place: Place) {
    let bytes = sample(13, 500);
    let digest = Digest::of(&bytes);
    refresh_during_a_sweep(place, bytes, async move |store| {
        assert!(store.touch(digest).await.expect("to touch"));
    })
    .await;
}

/// `refresh` comes between the sweep's listing, which saw an old blob, and its removal.
async fn refresh_during_a_sweep(
    place: Place,
    bytes: Bytes,
    refresh: impl AsyncFnOnce(BlobStore) + Send + 'static,
) {
    let blob = place.store.put(bytes).await.expect("to put");
    if !place.age(blob.digest, 2 * HOUR) {
        return;
    }
    let (store, other) = (place.store.clone(), place.reopen().await.expect("to open again"));
    let refresh = std::sync::Mutex::new(Some((refresh, other)));
    let report = tokio::task::spawn_blocking(move || {
        let is_named = |_: &Digest| {
            let (refresh, other) = refresh.lock().expect("it").take().expect("one blob");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.expect("a runtime").block_on(refresh(other));
                });
            });
            false
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sweep = store.sweep(is_named, HOUR, SystemTime::now(), false);
        runtime.expect("a runtime").block_on(sweep).expect("to sweep")
    });
    let report = report.await.expect("a report");
    let expected = SweepReport {
        examined: 1,
        unnamed: vec![(blob.digest, blob.size_bytes)],
        spared: 1,
        ..SweepReport::default()
    };
    assert_eq!(report, expected);
    assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), Verdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn puts_and_sweeps_at_once_lose_nothing(place: Place) {
    let other = place.reopen().await.expect("to open again");
    let sweeper = tokio::spawn(async move {
        let mut deleted = 0;
        loop {
            let swept = other.sweep(|_| false, HOUR, SystemTime::now(), false).await;
            deleted += swept.expect("to sweep").deleted;
            if deleted >= 15 {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    let bytes = sample(14, 2000);
    let digest = Digest::of(&bytes);
    for round in 0.. {
        if sweeper.is_finished() {
            break;
        }
        place.store.put(bytes.clone()).await.expect("to put");
        // The sweep may have seen it old before, but it is young now.
        for _ in 0..3 {
            let found = place.store.bytes(digest, ALL).await.expect("an answer");
            assert!(found.is_some_and(|found| found == bytes), "it was put, and is gone");
            tokio::task::yield_now().await;
        }
        if place.fake.is_none() && place.store.local_path(digest).is_none() {
            sweeper.abort();
            return println!("skipped: a real store's objects cannot be aged");
        }
        place.age(digest, 2 * HOUR);
        tokio::time::sleep(Duration::from_millis(round % 8)).await;
    }
    sweeper.await.expect("the sweeper");
}

async fn touching_makes_the_age_new(place: Place) {
    let digest = place.store.put(sample(15, 100)).await.expect("to put").digest;
    for way in ["touch", "put", "upload"] {
        if !place.age(digest, 2 * HOUR) {
            return;
        }
        match way {
            "touch" => assert!(place.store.touch(digest).await.expect("to touch")),
            "put" => {
                assert_eq!(place.store.put(sample(15, 100)).await.expect("put").digest, digest)
            }
            _ => assert_eq!(upload(&place.store, &sample(15, 100), 7).await.expect("up"), digest),
        }
        let report = place.sweep(&[], HOUR, false).await;
        assert_eq!((report.young, report.unnamed), (1, vec![]), "{way}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn verifying_finds_damage(place: Place) {
    let bytes = sample(16, CHUNK + 100);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Whole);

    let mut flipped = bytes.to_vec();
    flipped[CHUNK + 50] ^= 1;
    if !place.damage(digest, Some(&flipped)) {
        return;
    }
    let found = Digest::of(&flipped);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Damaged { found });

    for size in [0, 100, CHUNK] {
        place.damage(digest, Some(&bytes[..size]));
        let found = Digest::of(&bytes[..size]);
        assert_eq!(place.store.verify(digest).await.expect("verdict"), Verdict::Damaged { found });
    }
    place.damage(digest, None);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Missing);
}

async fn a_torn_blob_is_replaced(place: Place) {
    let bytes = sample(17, 5000);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    for torn in [0, 4999] {
        for is_put in [true, false] {
            if !place.damage(digest, Some(&bytes[..torn])) {
                return;
            }
            if is_put {
                place.store.put(bytes.clone()).await.expect("to put");
            } else {
                upload(&place.store, &bytes, 999).await.expect("to upload");
            }
            assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Whole);
        }
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn a_bounded_read_refuses_more(place: Place) {
    let digest = place.store.put(sample(18, 100)).await.expect("to put").digest;
    assert_eq!(place.store.bytes(digest, 100).await.expect("bytes"), Some(sample(18, 100)));
    let error = place.store.bytes(digest, 99).await.expect_err("too large");
    assert!(matches!(error, BlobError::TooLarge { bytes_max: 99 }), "{error}");
}

/// What only a directory can show.
mod files {
    use super::*;

    fn root(place: &Place) -> std::path::PathBuf {
        place.files.path().join("blobs")
    }

    #[tokio::test]
    async fn the_layout_is_as_documented() {
        let place = Place::directory().await;
        let digest = place.store.put("abc".into()).await.expect("to put").digest;
        let path = root(&place)
            .join("sha256/ba/78/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(place.store.local_path(digest), Some(path.clone()));
        assert_eq!(std::fs::read(&path).expect("the blob"), b"abc");
        let version = std::fs::read(root(&place).join("VERSION")).expect("VERSION");
        assert_eq!(version, b"larder blobs 1\n");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("metadata").permissions().mode() & 0o7777;
        // Less what the umask takes away: nothing for others, and no more than that for the group.
        assert_eq!(mode(&path) & 0o717, 0o600);
        assert_eq!(mode(path.parent().expect("a shard")) & 0o727, 0o700);
        assert_eq!(mode(&root(&place)) & 0o727, 0o700);
        let mut names = files_under(&root(&place));
        names.sort_unstable();
        let names: Vec<_> =
            names.iter().map(|name| name.rsplit('/').next().expect("a name")).collect();
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
    fn child(
        job: &str,
        root: &Path,
    ) -> (std::process::Child, impl Iterator<Item = String> + use<>) {
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
        let foreign = root(&place).join("tmp/notes.txt");
        std::fs::write(&foreign, "x").expect("to write");
        let (mut child, mut said) = child("spool", &root(&place));
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
            let (mut child, said) = child("put", &root(&place));
            let mut said = said.map(|digits| digits.parse::<Digest>().expect("a digest"));
            let mut acknowledged: Vec<Digest> = said.by_ref().take(1 + round * 3).collect();
            child.kill().expect("to kill");
            child.wait().expect("to end");
            acknowledged.extend(said);
            let store = place.reopen().await.expect("to open again");
            assert!(acknowledged.len() > round * 3);
            for digest in acknowledged {
                assert_eq!(store.verify(digest).await.expect("a verdict"), Verdict::Whole);
            }
            for blob in place.blobs().await {
                assert_eq!(store.verify(blob.digest).await.expect("a verdict"), Verdict::Whole);
            }
            assert_eq!(place.leftovers(), [""; 0]);
        }
    }

    /// A small file system of its own; none, with the reason printed, where it cannot be mounted.
    struct Mount {
        path: tempfile::TempDir,
    }

    impl Mount {
        fn new(options: &str) -> Option<Mount> {
            if !rustix::process::geteuid().is_root() {
                println!("skipped: only root can mount a file system");
                return None;
            }
            let path = tempfile::tempdir().expect("a directory");
            match mount(&["-t", "tmpfs", "-o", options, "tmpfs"], path.path()) {
                Ok(()) => Some(Mount { path }),
                Err(error) => {
                    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
                    assert!(!is_ci, "root cannot mount a tmpfs: {error}");
                    println!("skipped: root cannot mount a tmpfs: {error}");
                    None
                }
            }
        }

        fn remount(&self, options: &str) {
            mount(&["-o", &format!("remount,{options}")], self.path.path()).expect("to remount");
        }

        async fn store(&self) -> BlobStore {
            let location = BlobLocation::Directory(self.path.path().join("blobs"));
            BlobStore::open(&location, self.path.path()).await.expect("to open")
        }

        fn spools(&self) -> Vec<String> {
            files_under(&self.path.path().join("blobs/tmp"))
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.path.path()).status();
        }
    }

    fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
        let run = Command::new("mount").args(arguments).arg(path).output();
        let output = run.map_err(|error| error.to_string())?;
        let text = || String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or_else(text)
    }

    #[tokio::test]
    async fn a_full_disk_refuses_writes_and_nothing_else() {
        let Some(mount) = Mount::new("size=2m") else { return };
        let store = mount.store().await;
        let small = sample(40, 1000);
        let digest = store.put(small.clone()).await.expect("to put").digest;

        let large = sample(41, 4 << 20);
        let refused = |error: BlobError| {
            assert_eq!(error.kind(), Some(FailureKind::NoSpace), "{error}");
            assert!(error.is_temporary());
            assert!(error.to_string().contains("/blobs/tmp/upload-"), "{error}");
        };
        refused(store.put(large.clone()).await.expect_err("no space"));
        assert_eq!(mount.spools(), [""; 0]);
        refused(upload(&store, &large, 100_000).await.expect_err("no space"));
        assert_eq!(mount.spools(), [""; 0]);

        assert_eq!(store.bytes(digest, ALL).await.expect("bytes"), Some(small.clone()));
        assert_eq!(store.verify(digest).await.expect("a verdict"), Verdict::Whole);
        let next = store.put(sample(42, 500_000)).await.expect("what fits fits").digest;
        let listed: Vec<BlobEntry> = store.list().try_collect().await.expect("a list");
        assert_eq!(listed.len(), 2);
        // A full disk can be opened, read and swept.
        let filler = mount.path.path().join("filler");
        let mut file = std::fs::File::create(filler).expect("a file");
        while file.write_all(&[0; 4096]).is_ok() {}
        let store = mount.store().await;
        assert_eq!(store.bytes(digest, ALL).await.expect("bytes"), Some(small));
        let is_named = |found: &Digest| *found == digest;
        let swept = store.sweep(is_named, Duration::ZERO, SystemTime::now() + HOUR, false).await;
        assert_eq!(swept.expect("to sweep").deleted, 1);
        assert!(!store.contains(next).await.expect("an answer"));
        store.put(sample(43, 300_000)).await.expect("there is space again");
    }

    #[tokio::test]
    async fn a_read_only_disk_refuses_writes_and_nothing_else() {
        let Some(mount) = Mount::new("size=2m") else { return };
        let store = mount.store().await;
        let bytes = sample(44, 1000);
        let digest = store.put(bytes.clone()).await.expect("to put").digest;
        let mut under_way = store.begin(ALL);
        mount.remount("ro");
        for store in [store, mount.store().await] {
            for refused in [
                store.put(sample(45, 10)).await.map(|_| ()),
                store.put(bytes.clone()).await.map(|_| ()),
                upload(&store, &sample(45, 10), 10).await.map(|_| ()),
                store.touch(digest).await.map(|_| ()),
                store.sweep(|_| false, Duration::ZERO, SystemTime::now(), false).await.map(|_| ()),
            ] {
                let error = refused.expect_err("read-only");
                assert_eq!(error.kind(), Some(FailureKind::ReadOnly), "{error}");
                assert!(!error.is_temporary());
                let path = mount.path.path().display().to_string();
                assert!(error.to_string().contains(&path), "{error}");
            }
            assert_eq!(store.bytes(digest, ALL).await.expect("bytes"), Some(bytes.clone()));
            assert_eq!(store.verify(digest).await.expect("a verdict"), Verdict::Whole);
            let swept = store.sweep(|_| false, HOUR, SystemTime::now() + 2 * HOUR, true).await;
            assert_eq!(swept.expect("a dry run").unnamed, [(digest, 1000)]);
        }
        mount.remount("rw");
        under_way.write(bytes.clone()).await.expect("to write");
        assert_eq!(under_way.stage().await.expect("to stage").digest, digest);
        assert_eq!(mount.spools(), [""; 0]);
    }

    #[tokio::test]
    async fn a_new_place_on_a_read_only_disk_is_refused() {
        let Some(mount) = Mount::new("size=2m,ro") else { return };
        let location = BlobLocation::Directory(mount.path.path().join("blobs"));
        let error = BlobStore::open(&location, mount.path.path()).await.err().expect("a refusal");
        assert_eq!(error.kind(), Some(FailureKind::ReadOnly), "{error}");
        assert!(error.to_string().contains("/blobs"), "{error}");
    }
}

/// What only a store that fails on demand can show: the fake.
mod failing_objects {
    use super::*;

    const OFTEN: usize = 1_000_000;

    fn fault(method: Method, contains: &'static str, times: usize, effect: Effect) -> Fault {
        Fault { method, contains, times, effect }
    }

    fn fake(place: &Place) -> &FakeS3 {
        place.fake.as_ref().expect("a fake")
    }

    #[tokio::test]
    async fn passing_errors_are_survived() {
        let place = Place::fake_s3().await;
        let bytes = sample(50, 9 << 20);
        for method in [Method::PUT, Method::POST, Method::HEAD, Method::GET, Method::DELETE] {
            fake(&place).fail(fault(method, "", 2, Effect::Status(500)));
        }
        let digest = upload(&place.store, &bytes, CHUNK).await.expect("to upload");
        assert_eq!(place.store.bytes(digest, ALL).await.expect("bytes"), Some(bytes));
        assert_eq!(place.blobs().await.len(), 1);
        place.age(digest, 2 * HOUR);
        assert_eq!(place.sweep(&[], HOUR, false).await.deleted, 1);
        assert_eq!(place.leftovers(), [""; 0]);
    }

    #[tokio::test]
    async fn lasting_errors_are_reported_and_nothing_is_left() {
        let place = Place::fake_s3().await;
        let kept = place.store.put(sample(51, 10)).await.expect("to put").digest;
        fake(&place).fail(fault(Method::PUT, "sha256", OFTEN, Effect::Status(503)));
        let (small, large) = (sample(52, 1000), sample(53, 20 << 20));
        let (first, second, third) = tokio::join!(
            place.store.put(small.clone()),
            async { upload(&place.store, &small, 100).await },
            async { upload(&place.store, &large, CHUNK).await },
        );
        for error in [first.map(|blob| blob.digest), second, third] {
            let error = error.expect_err("an error");
            assert_eq!(error.kind(), Some(FailureKind::Unavailable), "{error}");
            assert!(error.is_temporary());
            assert!(error.to_string().contains("s3://bucket/some/prefix/sha256/"), "{error}");
        }
        assert_eq!(place.leftovers(), [""; 0]);
        assert_eq!(place.blobs().await.len(), 1);
        assert_eq!(place.store.bytes(kept, ALL).await.expect("bytes"), Some(sample(51, 10)));
    }

    #[tokio::test]
    async fn a_refusal_is_no_passing_error() {
        let place = Place::fake_s3().await;
        fake(&place).fail(fault(Method::PUT, "", OFTEN, Effect::Status(403)));
        let error = place.store.put(sample(54, 10)).await.expect_err("a refusal");
        assert_eq!(error.kind(), Some(FailureKind::Denied), "{error}");
        assert!(!error.is_temporary());
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_reported() {
        let files = tempfile::tempdir().expect("a directory");
        let location = "s3://bucket/x".parse().expect("a location");
        let endpoint = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            format!("http://{}", listener.local_addr().expect("an address"))
        };
        let open = async |settings: &[(&str, &str)]| {
            let settings =
                settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let opened = BlobStore::open_with_settings(&location, files.path(), settings).await;
            opened.err().expect("a refusal")
        };
        let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let [id, secret] = keys;
        let endpoint = ("AWS_ENDPOINT_URL", endpoint.as_str());
        let error = open(&[id, secret, endpoint, ("AWS_ALLOW_HTTP", "true")]).await;
        assert_eq!(error.kind(), Some(FailureKind::Unavailable), "{error}");
        assert!(error.to_string().contains("s3://bucket/x/VERSION"), "{error}");
        let error = open(&[id, endpoint]).await;
        assert!(matches!(error, BlobError::Settings(_)), "{error}");
    }

    #[tokio::test]
    async fn a_broken_or_slow_answer_is_asked_for_again() {
        let place = Place::fake_s3().await;
        let bytes = sample(55, 600_000);
        let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
        for cut in [0, 1, 300_000] {
            fake(&place).fail(fault(Method::GET, "sha256", 1, Effect::Truncate(cut)));
            let found = place.store.bytes(digest, ALL).await.expect("bytes");
            assert!(found.is_some_and(|found| found == bytes), "{cut}");
        }
        let slow = Effect::Delay(Duration::from_secs(600));
        fake(&place).fail(fault(Method::GET, "sha256", 1, slow));
        assert!(place.store.bytes(digest, ALL).await.expect("bytes").is_some_and(|it| it == bytes));

        fake(&place).fail(fault(Method::GET, "sha256", OFTEN, Effect::Truncate(10)));
        let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
        let error = reader.bytes(ALL).await.expect_err("always cut");
        assert_eq!(error.kind(), Some(FailureKind::Unavailable), "{error}");
        let error = place.store.verify(digest).await.expect_err("always cut");
        assert!(error.is_temporary(), "damage is something else: {error}");
    }

    #[tokio::test]
    async fn an_object_shorter_than_its_size_is_an_error() {
        let place = Place::fake_s3().await;
        let bytes = sample(56, 1000);
        let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
        let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
        place.damage(digest, Some(&bytes[..400]));
        assert!(reader.bytes(ALL).await.is_err());
    }

    /// A put that comes in between a sweep's look at the age and its deletion: the sweep is played by
    /// hand, because no real one can be stopped there.
    #[tokio::test]
    async fn a_put_waits_for_a_sweep_that_is_about_to_delete() {
        let place = Place::fake_s3().await;
        let bytes = sample(57, 1000);
        let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
        let marker = format!("some/prefix/doomed/{digest}/1");
        fake(&place).set(&marker, b"");
        let begun = fake(&place).requests().len();
        let put = tokio::spawn({
            let store = place.store.clone();
            async move { store.put(bytes).await }
        });
        let asked = || {
            let requests = fake(&place).requests();
            requests[begun..].iter().filter(|it| it.contains("list-type")).count()
        };
        while asked() < 2 {
            assert!(!put.is_finished(), "the marker is there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        place.damage(digest, None);
        fake(&place).remove(&marker);
        put.await.expect("the task").expect("to put");
        assert_eq!(place.store.verify(digest).await.expect("a verdict"), Verdict::Whole);
        assert_eq!(place.leftovers(), [""; 0]);
    }

    #[tokio::test]
    async fn what_killed_sweeps_and_touches_left_is_removed() {
        let place = Place::fake_s3().await;
        let (old, young) = ("some/prefix/doomed/aa/1", "some/prefix/tmp/2");
        fake(&place).set(old, b"");
        fake(&place).set(young, b"x");
        fake(&place).set_modified(old, SystemTime::now() - 2 * HOUR);
        assert_eq!(place.sweep(&[], HOUR, true).await.temporaries_removed, 1);
        assert_eq!(place.leftovers(), [old, young]);
        assert_eq!(place.sweep(&[], Duration::ZERO, false).await.temporaries_removed, 1);
        assert_eq!(place.leftovers(), [young]);
    }
}
