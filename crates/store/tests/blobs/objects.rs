//! Tests of blobs in a real object store: its keys and pages, its refusals, and its absence.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use record::Digest;
use store::blobs::{BlobError, BlobStore, BlobVerdict, FailureKind};

use crate::place::{ALL, Behind, CHUNK, Place, files_under, key, sample, settings, upload};
use testbed::S3;

#[tokio::test]
async fn the_keys_are_as_documented() {
    let Some(place) = Place::s3().await else { return };
    let digest = place.store.put("abc".into()).await.expect("to put").digest;
    let version = std::fs::read(place.root().join("VERSION")).expect("VERSION");
    assert_eq!(version, b"larder blobs 1\n");
    assert_eq!(std::fs::read(place.root().join(key(digest))).expect("the blob"), b"abc");
    assert_eq!(place.store.local_path(digest), None);
    let Behind::Bucket(bucket) = &place.behind else { panic!("no bucket") };
    let prefix = bucket.join("some/prefix");
    assert!(
        files_under(bucket).iter().all(|file| file.starts_with(prefix.to_str().expect("a path")))
    );
}

/// A page of a listing has a thousand objects.
#[tokio::test]
async fn a_listing_of_several_pages_has_all() {
    let Some(place) = Place::s3().await else { return };
    let mut expected: Vec<Digest> = Vec::new();
    for number in 0..2300_u32 {
        let digest = Digest::of(&number.to_be_bytes());
        let path = place.root().join(key(digest));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, number.to_be_bytes()).expect("a file");
        expected.push(digest);
    }
    expected.sort_unstable();
    let found: Vec<Digest> = place.blobs().await.iter().map(|blob| blob.digest).collect();
    assert_eq!(found.len(), 2300);
    assert_eq!(found, expected);
    let named = &expected[..1200];
    let report = place.sweep(named, Duration::from_secs(3600), true).await;
    assert_eq!((report.examined, report.young), (2300, 1100));
}

/// Opens a store that refuses.
async fn refusal(location: &str, variables: Vec<(&'static str, String)>) -> BlobError {
    let files = tempfile::tempdir().expect("a directory");
    let location = location.parse().expect("a location");
    let opened = BlobStore::open_with(&location, files.path(), settings(variables), false).await;
    opened.err().expect("a refusal")
}

#[tokio::test]
async fn wrong_keys_are_refused_and_named_as_such() {
    let Some(server) = S3::shared() else { return };
    let bucket = server.make_bucket();
    // For an unknown key name, this server answers "not found", others "denied".
    for (wrong, kind) in
        [("AWS_ACCESS_KEY_ID", FailureKind::Other), ("AWS_SECRET_ACCESS_KEY", FailureKind::Denied)]
    {
        let mut variables = server.variables();
        variables.iter_mut().filter(|it| it.0 == wrong).for_each(|it| it.1 = "wrong".to_owned());
        let error = refusal(&format!("s3://{bucket}/prefix"), variables).await;
        assert_eq!(error.kind(), Some(kind), "{wrong}: {error}");
        assert!(!error.is_temporary());
        let text = error.to_string();
        assert!(text.contains(&format!("s3://{bucket}/prefix/VERSION")), "{text}");
    }
    assert_eq!(files_under(&server.path(&bucket)), [""; 0]);
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_refused_by_name() {
    let Some(server) = S3::shared() else { return };
    let error = refusal("s3://no-such-bucket/prefix", server.variables()).await;
    assert!(!error.is_temporary(), "{error}");
    let text = error.to_string();
    let (place, rest) = text.split_once(": the object store at ").expect(&text);
    assert_eq!(place, "cannot write `s3://no-such-bucket/prefix/VERSION`");
    let (_, advice) = rest.split_once(" has no bucket ").expect(&text);
    assert!(advice.starts_with("`no-such-bucket`: make it, or name another one ("), "{text}");
}

#[tokio::test]
async fn a_server_that_is_lost_is_reported_and_comes_back() {
    let Some(server) = S3::start() else { return };
    let place = Place::on(&server).await;
    let (kept, large) = (sample(70, 1000), sample(71, 20 << 20));
    let digest = place.store.put(kept.clone()).await.expect("to put").digest;
    server.crash();
    let (put, uploaded, read, listed) = tokio::join!(
        place.store.put(sample(72, 10)),
        async { upload(&place.store, &large, CHUNK).await },
        place.store.bytes(digest, ALL),
        async { place.store.list().try_collect::<Vec<_>>().await },
    );
    let errors = [put.err(), uploaded.err(), read.err(), listed.err()];
    for error in errors.map(|error| error.expect("an error")) {
        assert_eq!(error.kind(), Some(FailureKind::Unavailable), "{error}");
        assert!(error.is_temporary());
        assert!(error.to_string().contains("s3://bucket-"), "{error}");
    }
    server.resume();
    assert_eq!(place.store.bytes(digest, ALL).await.expect("bytes"), Some(kept));
    let digest = upload(&place.store, &large, CHUNK).await.expect("to upload");
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
    assert_eq!(place.blobs().await.len(), 2);
    assert_eq!(place.leftovers(), [""; 0]);
}
