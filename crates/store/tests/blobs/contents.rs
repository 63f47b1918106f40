//! Bytes come out as they went in: uploads of all sizes, ranges, bounds, and uploads that are dropped.

use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;
use store::blobs::{BlobError, BlobVerdict};

use crate::on_each;
use crate::place::{ALL, CHUNK, HOUR, Place, files_under, sample, upload};

on_each!(
    blobs_of_all_sizes_come_back,
    a_missing_blob_is_none,
    a_large_blob_streams,
    the_same_content_from_many_uploads_is_one_blob,
    ranges_are_clamped,
    beginnings_come_in_their_order,
    too_many_bytes_are_refused,
    what_is_dropped_leaves_nothing,
    a_staged_file_can_be_looked_into,
    another_process_sees_the_same,
    another_layout_is_refused,
    a_place_that_must_be_there_is_not_made,
    a_listing_has_all,
    a_bounded_read_refuses_more,
);

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
        assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
    }
    // There is one empty blob, and two blobs of each of the other seven sizes.
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
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Missing);
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
    staged.persist().await.expect("to persist");

    let reader = place.store.open_blob(digest).await.expect("to open").expect("the blob");
    let mut hasher = record::Hasher::new();
    let mut chunks = reader.read();
    while let Some(chunk) = chunks.try_next().await.expect("a chunk") {
        assert!(chunk.len() <= CHUNK, "a chunk of {} bytes", chunk.len());
        hasher.update(&chunk);
    }
    assert_eq!(hasher.finish(), digest);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);
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

async fn beginnings_come_in_their_order(place: Place) {
    let sizes = [10, 0, 100, CHUNK + 5, 99];
    let all: Vec<Bytes> = sizes.iter().map(|&size| sample(size as u64, size)).collect();
    let mut digests = Vec::new();
    for bytes in &all {
        digests.push(place.store.put(bytes.clone()).await.expect("to put").digest);
    }
    digests.insert(1, Digest::of(b"never put"));
    place.damage(digests[0], Some(&sample(1, 10)));
    let found = place.store.beginnings(digests, 100).await;
    let mut found = found.into_iter();
    let first = found.next().expect("an answer");
    assert!(matches!(first, Err(BlobError::Damaged { .. })), "{first:?}");
    let expected = all[1..].iter().map(|bytes| Some(bytes.slice(..bytes.len().min(100))));
    let others: Vec<_> = found.map(|read| read.expect("an answer")).collect();
    assert_eq!(others, [None].into_iter().chain(expected).collect::<Vec<_>>());
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

    // Persisting that is abandoned: it may go on, and leaves the blob or nothing.
    let mut upload = place.store.begin(ALL);
    upload.write(sample(7, 9 << 20)).await.expect("to write");
    let staged = upload.stage().await.expect("to stage");
    {
        let mut persisting = Box::pin(staged.persist());
        let _ = futures_util::poll!(persisting.as_mut());
    }
    while !place.leftovers().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for blob in place.blobs().await {
        assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
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
    staged.persist().await.expect("to persist");
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
    let swept = other.sweep(|_| true, HOUR, SystemTime::now(), |_| true).await.expect("to sweep");
    assert_eq!(swept.temporaries_removed, 0);
    under_way.write(sample(11, CHUNK)).await.expect("to write");
    let kept = under_way.stage().await.expect("to stage").persist().await.expect("to persist");
    assert_eq!(other.verify(kept.digest).await.expect("a verdict"), BlobVerdict::Whole);
}

async fn another_layout_is_refused(place: Place) {
    let later = b"larder blobs 2\n";
    std::fs::write(place.root().join("VERSION"), later).expect("to write");
    let error = place.reopen().await.err().expect("a refusal");
    let BlobError::Layout { place, found, expected } = error else { panic!("{error}") };
    assert_eq!((found.as_str(), expected), ("larder blobs 2", "larder blobs 1"));
    assert!(place.ends_with("/VERSION"), "{place}");
}

async fn a_place_that_must_be_there_is_not_made(place: Place) {
    let blob = place.store.put(sample(19, 100)).await.expect("to put");
    let other = place.reopen_existing().await.expect("it is there");
    assert_eq!(other.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
    std::fs::remove_file(place.root().join("VERSION")).expect("it was there");
    let before = files_under(&place.root());
    let error = place.reopen_existing().await.err().expect("a refusal");
    assert!(!error.is_temporary());
    let BlobError::Absent { place: missing } = error else { panic!("{error}") };
    assert!(missing.ends_with("/VERSION"), "{missing}");
    assert_eq!(files_under(&place.root()), before);
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
    let misplaced = place.root().join("sha256/00/00");
    std::fs::create_dir_all(&misplaced).expect("a directory");
    std::fs::write(misplaced.join(expected[0].0.to_string()), "x").expect("to write");
    std::fs::write(misplaced.join("README"), "x").expect("to write");
    std::fs::write(place.root().join("sha256/notes.txt"), "x").expect("to write");
    std::fs::write(place.root().join("sha256x"), "x").expect("to write");
    let blobs = place.blobs().await;
    let found: Vec<_> = blobs.iter().map(|blob| (blob.digest, blob.size_bytes)).collect();
    assert_eq!(found, expected);
    assert!(blobs.iter().all(|blob| blob.touched_at > before));
    for first in [0, blobs[0].digest.as_bytes()[0], blobs[5].digest.as_bytes()[0]] {
        let mut part: Vec<_> = place.store.list_part(first).try_collect().await.expect("a list");
        part.sort_by_key(|blob| blob.digest);
        let of_part = blobs.iter().filter(|blob| blob.digest.as_bytes()[0] == first);
        assert_eq!(part, of_part.copied().collect::<Vec<_>>(), "{first}");
    }
}

async fn a_bounded_read_refuses_more(place: Place) {
    let digest = place.store.put(sample(18, 100)).await.expect("to put").digest;
    assert_eq!(place.store.bytes(digest, 100).await.expect("bytes"), Some(sample(18, 100)));
    let error = place.store.bytes(digest, 99).await.expect_err("too large");
    assert!(matches!(error, BlobError::TooLarge { bytes_max: 99 }), "{error}");
}
