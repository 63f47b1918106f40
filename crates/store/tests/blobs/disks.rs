//! A full disk and a read-only one: writers are told, readers go on.

use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use record::Digest;
use store::blobs::{BlobEntry, BlobError, BlobLocation, BlobStore, BlobVerdict, FailureKind};

use crate::place::{ALL, HOUR, files_under, sample, upload};
use testbed::SmallDisk;

/// A disk, and the directory that it is mounted at; unmounted first.
struct Mount {
    disk: SmallDisk,
    path: tempfile::TempDir,
}

impl Mount {
    /// `None` if this process may not mount a disk.
    fn new(options: &str) -> Option<Mount> {
        let path = tempfile::tempdir().expect("a directory");
        Some(Mount { disk: SmallDisk::mount(path.path(), options)?, path })
    }

    async fn store(&self) -> BlobStore {
        let location = BlobLocation::Directory(self.path.path().join("blobs"));
        BlobStore::open(&location, self.path.path()).await.expect("to open")
    }

    fn spools(&self) -> Vec<String> {
        files_under(&self.path.path().join("blobs/tmp"))
    }
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
    assert_eq!(store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
    // The space of what was refused is free once another thread has closed its file.
    let mut tries = 0;
    let next = loop {
        match store.put(sample(42, 500_000)).await {
            Err(error) if error.kind() == Some(FailureKind::NoSpace) && tries < 250 => tries += 1,
            outcome => break outcome.expect("what fits fits").digest,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let listed: Vec<BlobEntry> = store.list().try_collect().await.expect("a list");
    assert_eq!(listed.len(), 2);
    // A full disk can be opened, read and swept.
    mount.disk.fill();
    let store = mount.store().await;
    assert_eq!(store.bytes(digest, ALL).await.expect("bytes"), Some(small));
    let is_named = |found: &Digest| *found == digest;
    let swept = store.sweep(is_named, Duration::ZERO, SystemTime::now() + HOUR, |_| true).await;
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
    mount.disk.remount("ro");
    for store in [store, mount.store().await] {
        for refused in [
            store.put(sample(45, 10)).await.map(|_| ()),
            store.put(bytes.clone()).await.map(|_| ()),
            upload(&store, &sample(45, 10), 10).await.map(|_| ()),
            store.touch(digest).await.map(|_| ()),
            store.sweep(|_| false, Duration::ZERO, SystemTime::now(), |_| true).await.map(|_| ()),
        ] {
            let error = refused.expect_err("read-only");
            assert_eq!(error.kind(), Some(FailureKind::ReadOnly), "{error}");
            assert!(!error.is_temporary());
            let path = mount.path.path().display().to_string();
            assert!(error.to_string().contains(&path), "{error}");
        }
        assert_eq!(store.bytes(digest, ALL).await.expect("bytes"), Some(bytes.clone()));
        assert_eq!(store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
        let swept = store.sweep(|_| false, HOUR, SystemTime::now() + 2 * HOUR, |_| false).await;
        assert_eq!(swept.expect("a dry run").unnamed, [(digest, 1000)]);
    }
    mount.disk.remount("rw");
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
