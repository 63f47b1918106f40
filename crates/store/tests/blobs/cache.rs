//! The cache beside the blobs: entries exist whole or not at all, all processes share them, and they are trimmed by their last
//! use.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use record::Digest;
use store::blobs::{ObjectCache, TrimReport};

use crate::place::{HOUR, Place, sample};

fn key(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

async fn put(cache: &ObjectCache, place: &Place, name: &str, bytes: &[u8]) {
    let path = place.files.path().join("entry");
    fs::write(&path, bytes).expect("a file");
    let file = File::open(path).expect("a file");
    cache.put(&key(name), file, bytes.len() as u64).await.expect("to put");
}

async fn get(cache: &ObjectCache, name: &str) -> Option<Vec<u8>> {
    let (size_bytes, chunks) = cache.get(&key(name)).await.expect("an answer")?;
    let bytes = chunks.try_collect::<Vec<_>>().await.expect("bytes").concat();
    assert_eq!(bytes.len() as u64, size_bytes);
    Some(bytes)
}

fn age(place: &Place, path: &str, age: Duration) {
    let file = File::options().write(true).open(place.root().join(path)).expect("an object");
    file.set_modified(SystemTime::now() - age).expect("a time");
}

fn entry(name: &str) -> String {
    let key = key(name).to_string();
    format!("mirrors/1/{}/{key}", &key[..2])
}

fn is_there(root: &Path, path: &str) -> bool {
    root.join(path).exists()
}

#[tokio::test]
async fn what_one_process_puts_another_gets() {
    let Some(place) = Place::s3().await else { return };
    let cache = place.store.cache().expect("a cache");
    let other = place.reopen().await.expect("to open").cache().expect("a cache");
    // One is uploaded in a single request, one in parts.
    let (small, large) = (sample(1, 5_000), sample(2, 20 << 20));
    assert_eq!(get(&other, "a").await, None);
    put(&cache, &place, "a", &large).await;
    assert!(get(&other, "a").await.as_deref() == Some(&large[..]));
    put(&other, &place, "a", &small).await;
    assert!(get(&cache, "a").await.as_deref() == Some(&small[..]));
    assert!(is_there(&place.root(), &entry("a")), "it is where it is documented");
    // Entries are no blobs: sweeps and listings ignore them.
    assert_eq!(place.blobs().await.len(), 0);
    cache.remove(&key("a")).await.expect("to remove");
    cache.remove(&key("a")).await.expect("to remove what is gone");
    assert_eq!(get(&other, "a").await, None);
    assert!(Place::directory().await.store.cache().is_none());
}

#[tokio::test]
async fn what_was_not_used_for_longest_is_trimmed() {
    let Some(place) = Place::s3().await else { return };
    let cache = place.store.cache().expect("a cache");
    let blob = place.store.put(sample(3, 100)).await.expect("to put");
    for (name, hours) in [("a", 9), ("b", 5), ("c", 7), ("d", 1)] {
        put(&cache, &place, name, &sample(4, 1000)).await;
        age(&place, &entry(name), hours * HOUR);
    }
    cache.note_use(&key("a")).await.expect("to note");
    cache.note_use(&key("gone")).await.expect("to note");
    let left = TrimReport { bytes: 4000, removed: 0 };
    assert_eq!(cache.trim(4000, 100).await.expect("to trim"), left);
    assert!(is_there(&place.root(), &format!("mirrors/used/{}", key("gone"))), "it is young");
    age(&place, &format!("mirrors/used/{}", key("gone")), 2 * HOUR);
    // A tenth of the budget more than needed is freed: two entries are removed.
    let left = TrimReport { bytes: 2000, removed: 2 };
    assert_eq!(cache.trim(3000, 100).await.expect("to trim"), left);
    let mut names = Vec::new();
    for name in ["a", "b", "c", "d"] {
        if get(&cache, name).await.is_some() {
            names.push(name);
        }
    }
    assert_eq!(names, ["a", "d"], "`a` is the oldest, but was used");
    assert!(!is_there(&place.root(), &format!("mirrors/used/{}", key("gone"))));
    assert!(is_there(&place.root(), &format!("mirrors/used/{}", key("a"))));
    assert!(place.store.contains(blob.digest).await.expect("an answer"), "blobs are no entries");
}

#[tokio::test]
async fn there_are_only_so_many_entries() {
    let Some(place) = Place::s3().await else { return };
    let cache = place.store.cache().expect("a cache");
    // More than a trim for ten keeps in memory at once.
    let names: Vec<String> = (0..25).map(|number| format!("e{number}")).collect();
    for (number, name) in (1..).zip(&names) {
        put(&cache, &place, name, b"x").await;
        age(&place, &entry(name), number * HOUR);
    }
    let oldest = names.last().expect("a name");
    cache.note_use(&key(oldest)).await.expect("to note");
    let left = TrimReport { bytes: 25, removed: 0 };
    assert_eq!(cache.trim(1000, 25).await.expect("to trim"), left, "they may be so many");
    let left = TrimReport { bytes: 9, removed: 16 };
    assert_eq!(cache.trim(1000, 10).await.expect("to trim"), left);
    let there: Vec<&String> =
        names.iter().filter(|name| is_there(&place.root(), &entry(name))).collect();
    assert_eq!(there, ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e24"], "those used last");
}
