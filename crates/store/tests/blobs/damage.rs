//! Bytes that are not what their digest says are found, and replaced.

use record::Digest;
use store::blobs::BlobVerdict;

use crate::on_each;
use crate::place::{CHUNK, Place, sample, upload};

on_each!(verifying_finds_damage, a_torn_blob_is_replaced);

async fn verifying_finds_damage(place: Place) {
    let bytes = sample(16, CHUNK + 100);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);

    let mut flipped = bytes.to_vec();
    flipped[CHUNK + 50] ^= 1;
    place.damage(digest, Some(&flipped));
    let found = Digest::of(&flipped);
    assert_eq!(
        place.store.verify(digest).await.expect("a verdict"),
        BlobVerdict::Damaged { found }
    );

    for size in [0, 100, CHUNK] {
        place.damage(digest, Some(&bytes[..size]));
        let found = Digest::of(&bytes[..size]);
        assert_eq!(
            place.store.verify(digest).await.expect("verdict"),
            BlobVerdict::Damaged { found }
        );
    }
    place.damage(digest, None);
    assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Missing);
}

async fn a_torn_blob_is_replaced(place: Place) {
    let bytes = sample(17, 5000);
    let digest = place.store.put(bytes.clone()).await.expect("to put").digest;
    for torn in [0, 4999] {
        for is_put in [true, false] {
            place.damage(digest, Some(&bytes[..torn]));
            if is_put {
                place.store.put(bytes.clone()).await.expect("to put");
            } else {
                upload(&place.store, &bytes, 999).await.expect("to upload");
            }
            assert_eq!(place.store.verify(digest).await.expect("a verdict"), BlobVerdict::Whole);
        }
    }
    assert_eq!(place.leftovers(), [""; 0]);
}
