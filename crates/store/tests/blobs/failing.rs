//! Tests that need a store which fails on demand: the fake.

use std::time::{Duration, SystemTime};

use axum::http::Method;
use store::blobs::{BlobError, BlobStore, BlobVerdict, FailureKind};

use crate::fake_s3::{Effect, Fault};
use crate::place::{ALL, CHUNK, HOUR, Place, sample, upload};

const OFTEN: usize = 1_000_000;

fn fault(method: Method, contains: &'static str, times: usize, effect: Effect) -> Fault {
    Fault { method, contains, times, effect }
}

#[tokio::test]
async fn passing_errors_are_survived() {
    let place = Place::fake_s3().await;
    let bytes = sample(50, 9 << 20);
    for method in [Method::PUT, Method::POST, Method::HEAD, Method::GET, Method::DELETE] {
        place.fake().fail(fault(method, "", 2, Effect::Status(500)));
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
    place.fake().fail(fault(Method::PUT, "sha256", OFTEN, Effect::Status(503)));
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
    place.fake().fail(fault(Method::PUT, "", OFTEN, Effect::Status(403)));
    let error = place.store.put(sample(54, 10)).await.expect_err("a refusal");
    assert_eq!(error.kind(), Some(FailureKind::Denied), "{error}");
    assert!(!error.is_temporary());
}

/// S3 answers 409 while another request for the same object is under way.
#[tokio::test]
async fn a_store_that_is_busy_with_the_object_is_asked_again() {
    let place = Place::fake_s3().await;
    let busy = Effect::Status(409);
    for (times, bytes) in [(1, sample(56, 10)), (3, sample(57, 10)), (2, sample(58, 9 << 20))] {
        place.fake().fail(fault(Method::PUT, "sha256", times, busy));
        let digest = upload(&place.store, &bytes, CHUNK).await.expect("to put");
        assert_eq!(place.store.bytes(digest, ALL).await.expect("bytes"), Some(bytes));
        place.fake().fail(fault(Method::PUT, "sha256", times, busy));
        assert!(place.store.touch(digest).await.expect("to touch"), "{times}");
    }
    place.fake().fail(fault(Method::PUT, "sha256", OFTEN, busy));
    let error = place.store.put(sample(59, 10)).await.expect_err("busy all the time");
    assert_eq!(error.kind(), Some(FailureKind::Busy), "{error}");
    assert!(error.is_temporary());
    assert_eq!(place.leftovers(), [""; 0]);
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
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let opened = BlobStore::open_with(&location, files.path(), settings, false).await;
        opened.err().expect("a refusal")
    };
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let [id, secret] = keys;
    let endpoint = ("AWS_ENDPOINT_URL", endpoint.as_str());
    let error = open(&[id, secret, endpoint, ("AWS_ALLOW_HTTP", "true")]).await;
    assert_eq!(error.kind(), Some(FailureKind::Unavailable), "{error}");
    let expected = format!(
        "cannot read `s3://bucket/x/VERSION`: the object store at {} cannot be reached, or fails: does it run, and is \
         AWS_ENDPOINT_URL its address? (",
        endpoint.1
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error = open(&[id, endpoint]).await;
    assert!(matches!(error, BlobError::Settings(_)), "{error}");
}

#[tokio::test]
async fn a_broken_or_slow_answer_is_asked_for_again() {
    let place = Place::fake_s3().await;
    let bytes = sample(55, 600_000);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    for cut in [0, 1, 300_000] {
        place.fake().fail(fault(Method::GET, "sha256", 1, Effect::Truncate(cut)));
        let found = place.store.bytes(digest, ALL).await.expect("bytes");
        assert!(found.is_some_and(|found| found == bytes), "{cut}");
    }
    let slow = Effect::Delay(Duration::from_secs(600));
    place.fake().fail(fault(Method::GET, "sha256", 1, slow));
    assert!(place.store.bytes(digest, ALL).await.expect("bytes").is_some_and(|it| it == bytes));

    place.fake().fail(fault(Method::GET, "sha256", OFTEN, Effect::Truncate(10)));
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

/// A put comes between a sweep's look at the age and its deletion. The test plays the sweep itself, because a real one cannot
/// be stopped there.
#[tokio::test]
async fn a_put_waits_for_a_sweep_that_is_about_to_delete() {
    let place = Place::fake_s3().await;
    let bytes = sample(57, 1000);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    let marker = format!("some/prefix/doomed/{digest}/1");
    place.fake().set(&marker, b"");
    let begun = place.fake().requests().len();
    let put = tokio::spawn({
        let store = place.store.clone();
        async move { store.put(bytes).await }
    });
    let asked = || {
        let requests = place.fake().requests();
        requests[begun..].iter().filter(|it| it.contains("list-type")).count()
    };
    while asked() < 2 {
        assert!(!put.is_finished(), "the marker is there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place.damage(digest, None);
    place.fake().remove(&marker);
    put.await.expect("the task").expect("to put");
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);
}

#[tokio::test]
async fn what_killed_sweeps_and_touches_left_is_removed() {
    let place = Place::fake_s3().await;
    let (old, young) = ("some/prefix/doomed/aa/1", "some/prefix/tmp/2");
    place.fake().set(old, b"");
    place.fake().set(young, b"x");
    place.fake().set_modified(old, SystemTime::now() - 2 * HOUR);
    assert_eq!(place.sweep(&[], HOUR, true).await.temporaries_removed, 1);
    assert_eq!(place.leftovers(), [old, young]);
    assert_eq!(place.sweep(&[], Duration::ZERO, false).await.temporaries_removed, 1);
    assert_eq!(place.leftovers(), [young]);
}

/// Amazon's store copies nothing above 5 GB at once.
#[tokio::test]
async fn a_blob_that_is_too_large_to_be_copied_is_touched() {
    let place = Place::fake_s3().await;
    let bytes = sample(58, 20 << 20);
    let digest = upload(&place.store, &bytes, CHUNK).await.expect("to upload");
    place.age(digest, 2 * HOUR);
    place.fake().fail(fault(Method::PUT, "/tmp/", 1, Effect::Status(400)));
    assert!(place.store.touch(digest).await.expect("to touch"));
    assert_eq!(place.sweep(&[], HOUR, false).await.young, 1);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);

    // A small blob is not refused for its size, and one that may not be copied is not uploaded instead.
    let small = place.store.put(sample(59, 1000)).await.expect("to put").digest;
    for (digest, status) in [(small, 400), (digest, 403)] {
        place.fake().fail(fault(Method::PUT, "/tmp/", 1, Effect::Status(status)));
        let error = place.store.touch(digest).await.expect_err("a refusal");
        assert!(error.to_string().contains("cannot copy `s3://bucket/"), "{error}");
    }
}
