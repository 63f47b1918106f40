//! Old blobs that no record names are deleted; those that are put or touched meanwhile are spared.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use record::Digest;
use store::blobs::{BlobStore, BlobVerdict, SweepReport};

use crate::on_each;
use crate::place::{ALL, HOUR, Place, sample, upload};

on_each!(
    a_sweep_takes_what_is_unnamed_and_old,
    a_sweep_in_the_future_takes_all_that_is_unnamed,
    a_sweep_spares_what_is_put_meanwhile,
    a_sweep_spares_what_is_touched_meanwhile,
    puts_and_sweeps_at_once_lose_nothing,
    touching_makes_the_age_new,
);

async fn a_sweep_takes_what_is_unnamed_and_old(place: Place) {
    let mut digests = Vec::new();
    for index in 0..12 {
        digests
            .push(place.store.put(sample(index, 100 + index as usize)).await.expect("put").digest);
    }
    for digest in &digests[..8] {
        place.age(*digest, 2 * HOUR);
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
    assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
}

async fn a_sweep_in_the_future_takes_all_that_is_unnamed(place: Place) {
    let mut digests = Vec::new();
    for seed in 60..67 {
        digests.push(place.store.put(sample(seed, 50)).await.expect("to put").digest);
    }
    let now = SystemTime::now() + 2 * HOUR;
    let is_named = |digest: &Digest| *digest == digests[0];
    let report = place.store.sweep(is_named, HOUR, now, |_| true).await.expect("to sweep");
    assert_eq!((report.examined, report.deleted, report.bytes_freed), (7, 6, 300));
    let left: Vec<_> = place.blobs().await.iter().map(|blob| blob.digest).collect();
    assert_eq!(left, digests[..1]);
    assert_eq!(place.leftovers(), [""; 0]);
    // The markers are gone: a put does not wait for them.
    let again = place.store.put(sample(61, 50)).await.expect("to put again");
    assert_eq!(place.store.verify(again.digest).await.expect("a verdict"), BlobVerdict::Whole);
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
    place.age(blob.digest, 2 * HOUR);
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
        let sweep = store.sweep(is_named, HOUR, SystemTime::now(), |_| true);
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
    assert_eq!(place.store.verify(blob.digest).await.expect("a verdict"), BlobVerdict::Whole);
    assert_eq!(place.leftovers(), [""; 0]);
}

async fn puts_and_sweeps_at_once_lose_nothing(place: Place) {
    let other = place.reopen().await.expect("to open again");
    let sweeper = tokio::spawn(async move {
        let mut deleted = 0;
        loop {
            let swept = other.sweep(|_| false, HOUR, SystemTime::now(), |_| true).await;
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
        place.age(digest, 2 * HOUR);
        tokio::time::sleep(Duration::from_millis(round % 8)).await;
    }
    sweeper.await.expect("the sweeper");
}

async fn touching_makes_the_age_new(place: Place) {
    let digest = place.store.put(sample(15, 100)).await.expect("to put").digest;
    for way in ["touch", "put", "upload"] {
        place.age(digest, 2 * HOUR);
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
