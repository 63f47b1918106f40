//! Entries of the cache: whole or absent, within the budget, above the floor.

use std::sync::atomic::AtomicU64;

use super::*;

fn key(name: &str) -> Key {
    Digest::of(name.as_bytes())
}

fn head(name: &str, content: &[u8]) -> EntryHead {
    EntryHead {
        name: name.to_owned(),
        size_bytes: content.len() as u64,
        sha256: Digest::of(content).to_string(),
        confirmed_at: 1,
        etag: Some("\"tag\"".to_owned()),
        last_modified: None,
        serial: Some(7),
        form: 1,
        is_verified: true,
        ..EntryHead::default()
    }
}

fn open(directory: &Path, bytes_max: u64) -> Arc<Disk> {
    let limits = Limits { bytes_max, free_bytes_min: 0, free_bytes: Box::new(|| None) };
    Arc::new(Disk::open(directory, limits))
}

fn write(disk: &Arc<Disk>, name: &str, content: &[u8]) {
    disk.write(key(name), &head(name, content), content).expect("a disk");
}

#[test]
fn entries_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = open(directory.path(), 1 << 20);
    assert!(disk.content(&key("a")).is_none(), "nothing is there yet");
    write(&disk, "a", b"one");
    write(&disk, "a", b"two");
    drop(disk);
    let disk = open(directory.path(), 1 << 20);
    assert_eq!(disk.content(&key("a")), Some((head("a", b"two"), b"two".to_vec())));
    assert_eq!(disk.bytes(), HEAD_BYTES + 3);
    let confirmed = EntryHead { confirmed_at: 2, ..head("a", b"two") };
    disk.confirm(&key("a"), &confirmed);
    assert_eq!(disk.content(&key("a")), Some((confirmed, b"two".to_vec())));
}

#[test]
fn what_was_not_finished_is_not_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = open(directory.path(), 1 << 20);
    let mut writing = disk.begin(0).expect("a disk");
    writing.append(b"half").expect("a disk");
    // As after a kill: the temporary file stays.
    std::mem::forget(writing);
    let disk = open(directory.path(), 1 << 20);
    assert_eq!(disk.bytes(), 0);
    assert!(!directory.path().join("tmp").exists(), "it is removed");
}

#[test]
fn damage_counts_as_absence() {
    let directory = tempfile::tempdir().expect("a directory");
    for damage in ["cut", "head", "content"] {
        let disk = open(directory.path(), 1 << 20);
        write(&disk, "a", b"content");
        let file = File::options().write(true).open(disk.path(&key("a"))).expect("the entry");
        match damage {
            "cut" => file.set_len(HEAD_BYTES + 3).expect("a disk"),
            "head" => file.write_all_at(b"x", 80).expect("a disk"),
            _ => file.write_all_at(b"x", HEAD_BYTES).expect("a disk"),
        }
        assert!(disk.content(&key("a")).is_none(), "{damage}");
        assert!(!disk.path(&key("a")).exists(), "{damage}: it is removed");
        assert_eq!(disk.bytes(), 0, "{damage}");
    }
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = open(directory.path(), 3 * (HEAD_BYTES + 10));
    for name in ["a", "b", "c"] {
        write(&disk, name, &[7; 10]);
    }
    assert!(disk.open_entry(&key("a")).is_some());
    write(&disk, "d", &[7; 10]);
    let is_there = |name: &str| disk.content(&key(name)).is_some();
    assert!(!is_there("b"), "it was used before all others");
    assert!(is_there("a") && is_there("c") && is_there("d"));
    assert_eq!(
        fs::read_dir(directory.path()).expect("a directory").count(),
        4 + 1,
        "tmp, and a directory each; `b`'s is empty"
    );
}

#[test]
fn what_is_being_written_counts_at_its_full_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = open(directory.path(), 3 * (HEAD_BYTES + 10));
    write(&disk, "a", &[7; 10]);
    write(&disk, "b", &[7; 10]);
    let first = disk.begin(10).expect("room");
    assert_eq!(disk.bytes(), 3 * (HEAD_BYTES + 10), "nothing of it is written yet");
    let second = disk.begin(10).expect("room instead of `a`");
    assert!(disk.open_entry(&key("a")).is_none());
    let (_, read) = disk.open_entry(&key("b")).expect("an entry");
    let refused = disk.begin(10).map(|_| ()).expect_err("only what is in use is left");
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(
        refused.to_string(),
        "4106 bytes more do not go into 12318 (`python.mirror_disk_bytes_max`) beside what is read and written now"
    );
    drop(read);
    let mut third = disk.begin(0).expect("room instead of `b`");
    assert_eq!(disk.bytes(), 2 * (HEAD_BYTES + 10) + HEAD_BYTES);
    third.append(&[7; 10]).expect("room, as it was needed");
    third.append(&[7; 1]).expect_err("it has a byte more than there is room for");
    drop((first, second, third));
    assert_eq!(disk.bytes(), 0);
    assert_eq!(disk.taken.unwritten.load(Relaxed), 0);
}

#[test]
fn what_is_read_takes_space_after_it_was_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = open(directory.path(), 1 << 20);
    write(&disk, "a", &[7; 10]);
    let (_, read) = disk.open_entry(&key("a")).expect("an entry");
    write(&disk, "a", &[8; 20]);
    assert_eq!(disk.bytes(), 2 * HEAD_BYTES + 30);
    drop(read);
    assert_eq!(disk.bytes(), HEAD_BYTES + 20);
}

#[test]
fn the_floor_of_free_space_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let free = Arc::new(AtomicU64::new(1_000_000));
    let asked = free.clone();
    let limits = Limits {
        bytes_max: 1 << 30,
        free_bytes_min: 900_000,
        free_bytes: Box::new(move || Some(asked.load(Relaxed))),
    };
    let disk = Arc::new(Disk::open(directory.path(), limits));
    write(&disk, "a", &[7; 10_000]);
    write(&disk, "b", &[7; 10_000]);
    let promised = disk.begin(80_000).expect("room above the floor");
    // Bytes that were promised before are not free for others, although they are not written yet.
    drop(disk.begin(20_000).expect("room, as `a` goes"));
    assert!(disk.open_entry(&key("a")).is_none());
    assert!(disk.open_entry(&key("b")).is_some());
    let refused = disk.begin(200_000).map(|_| ()).expect_err("`b` alone is not enough");
    assert_eq!(
        refused.to_string(),
        "its disk has 1000000 bytes free; 204096 more would leave less than 900000 (`store.free_bytes_min`)"
    );
    assert!(disk.open_entry(&key("b")).is_some(), "so it stays");
    drop(promised);
    free.store(0, Relaxed);
    assert!(disk.begin(0).is_err(), "others have filled the disk");
    assert!(disk.open_entry(&key("b")).is_some());
}
