//! Blobs that belong to a store are written to only where its name is.

use std::time::SystemTime;

use store::blobs::{BlobError, StoreIdentity};

use crate::on_each;
use crate::place::{HOUR, Place, files_under, sample, upload};

on_each!(
    a_place_that_is_away_takes_nothing,
    another_stores_place_takes_nothing,
    a_name_is_given_once
);

fn name(text: &str) -> StoreIdentity {
    text.parse().expect("a name")
}

/// Checks that nothing can be written, and nothing is swept.
#[track_caller]
fn check_away<T>(outcome: Result<T, BlobError>) {
    match outcome {
        Err(error @ BlobError::Away { .. }) => assert!(error.is_temporary(), "{error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    }
}

async fn check_nothing_is_taken(place: &Place, seed: u64) {
    check_away(place.store.put(sample(seed, 1000)).await);
    check_away(upload(&place.store, &sample(seed + 1, 700_000), 100_000).await);
    check_away(place.store.sweep(|_| false, HOUR, SystemTime::now(), |_| true).await);
    check_away(place.store.check_identity().await);
}

async fn a_place_that_is_away_takes_nothing(place: Place) {
    let ours = name("0123456789abcdef0123456789abcdef");
    place.store.adopt(&ours, false).await.expect("to adopt");
    place.store.bind(&ours).await.expect("to bind");
    let kept = place.store.put(sample(1, 1000)).await.expect("to put").digest;
    let (root, aside) = (place.root(), place.root().with_file_name("aside"));
    for seed in [10, 20] {
        std::fs::rename(&root, &aside).expect("a rename");
        check_nothing_is_taken(&place, seed).await;
        check_away(place.store.touch(kept).await);
        check_away(place.store.open_blob(kept).await);
        // A bucket accepts an upload before it is found to be another one; a directory is not made again.
        if place.is_directory() {
            assert!(!root.exists());
        }
        let _ = std::fs::remove_dir_all(&root);
        std::fs::rename(&aside, &root).expect("a rename");
        place.store.put(sample(seed + 5, 1000)).await.expect("to put again");
        upload(&place.store, &sample(seed + 6, 1000), 300).await.expect("to upload again");
        assert!(place.store.touch(kept).await.expect("to touch again"));
    }
    assert_eq!(place.blobs().await.len(), 5);
}

async fn another_stores_place_takes_nothing(place: Place) {
    let (ours, other) = (name("0123456789abcdef"), name("fedcba9876543210"));
    place.store.adopt(&ours, false).await.expect("to adopt");
    place.store.bind(&ours).await.expect("to bind");
    let somebody = place.reopen().await.expect("another process");
    somebody.adopt(&other, true).await.expect("a deliberate change");
    check_nothing_is_taken(&place, 10).await;
    check_away(place.store.bind(&ours).await);
    assert_eq!(place.store.identity().await.expect("a name"), Some(other));
    somebody.adopt(&ours, true).await.expect("and back");
    place.store.put(sample(2, 1000)).await.expect("to put again");
}

async fn a_name_is_given_once(place: Place) {
    let (ours, other) = (name("0123456789abcdef"), name("fedcba9876543210"));
    assert_eq!(place.store.identity().await.expect("no name"), None);
    check_away(place.store.bind(&ours).await);
    place.store.adopt(&ours, false).await.expect("to adopt");
    place.store.adopt(&ours, false).await.expect("to adopt again");
    check_away(place.store.adopt(&other, false).await);
    assert_eq!(place.store.identity().await.expect("a name"), Some(ours.clone()));
    // It is no blob, and survives a start and a sweep.
    let again = place.reopen().await.expect("another process");
    again.bind(&ours).await.expect("to bind");
    assert_eq!(place.blobs().await, []);
    let names = files_under(&place.root()).into_iter().filter(|path| path.ends_with("IDENTITY"));
    assert_eq!(names.count(), 1);
}
