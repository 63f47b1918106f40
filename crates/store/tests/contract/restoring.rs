//! Records written with the serials that they had elsewhere.

use std::os::unix::fs::PermissionsExt as _;

use record::{Batch, Digest, Expected, Record, Serial};
use store::DatabaseLocation;
use store::records::RestoreError;

use crate::database::{Database, Kind, flaws, key, put};
use crate::on_both;

on_both!(
    a_copy_is_the_same_store,
    a_file_is_copied_whole,
    only_an_empty_store_is_restored_into,
    an_unfinished_restore_leaves_nothing,
    what_cannot_be_restored,
);

fn record(text: &str, serial: u64, body: Option<&'static str>) -> Record {
    Record { key: key(text), serial: Serial(serial), body: body.map(Into::into), blobs: Vec::new() }
}

async fn a_copy_is_the_same_store(database: Database) {
    let source = Database::new(Kind::Sqlite).await.expect("a file");
    let source = source.open().await;
    let mut batch = Batch::new();
    for number in 0..3000 {
        let blobs = vec![Digest::of(&[number as u8]); number % 3];
        batch = batch.put(key(&format!("n/{number}")), Expected::Absent, vec![9; number], blobs);
    }
    source.commit(batch).await.expect("committed");
    for number in 0..5 {
        let delete = Batch::new().delete(key(&format!("n/{number}")), Expected::Present);
        source.commit(delete).await.expect("committed");
    }
    let target = database.open().await;
    assert_eq!(source.copy_into(&target).await, Ok(Serial(6)));
    assert_eq!(target.wait(Serial(5)).await, Some(Serial(6)));
    let all = source.records_after(Serial::ZERO).await.expect("read");
    assert_eq!(all.0.len(), 3000);
    assert_eq!(target.records_after(Serial::ZERO).await, Ok(all.clone()));
    assert_eq!(flaws(&target).await, [""; 0]);
    // Copying back is how an operator leaves a server again.
    let back = Database::new(Kind::Sqlite).await.expect("a file");
    let back = back.open().await;
    assert_eq!(target.copy_into(&back).await, Ok(Serial(6)));
    assert_eq!(back.records_after(Serial::ZERO).await, Ok(all));
    assert_eq!(target.commit(put("next", "x")).await, Ok(Serial(7)));
}

/// Beside the process that writes it; other databases are copied record by record.
async fn a_file_is_copied_whole(database: Database) {
    let source = database.open().await;
    for number in 0..300 {
        let blobs = vec![Digest::of(&[number as u8]); number % 3];
        let key = key(&format!("n/{}", number % 290));
        let batch = Batch::new().put(key, Expected::Anything, vec![9; number * 30], blobs);
        source.commit(batch).await.expect("committed");
    }
    source.commit(Batch::new().delete(key("n/7"), Expected::Present)).await.expect("committed");
    let all = source.records_after(Serial::ZERO).await.expect("read");
    let target = Database::new(Kind::Sqlite).await.expect("a file");
    let DatabaseLocation::Sqlite(path) = &target.location else { panic!("no file") };
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    let is_file = matches!(database.location, DatabaseLocation::Sqlite(_));
    assert_eq!(source.copy_file(path).await, Ok(is_file));
    assert_eq!(path.exists(), is_file);
    if !is_file {
        return;
    }
    // Only its owner may read it: it has the hashes of passwords.
    let mode = std::fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o007, 0);
    source.commit(put("later", "x")).await.expect("committed");
    let again = source.copy_file(path).await;
    assert!(matches!(again, Err(RestoreError::Write(_))), "{again:?}");
    let copy = target.open().await;
    assert_eq!(copy.records_after(Serial::ZERO).await, Ok(all));
    assert_eq!(flaws(&copy).await, [""; 0]);
    assert_eq!(copy.commit(put("next", "x")).await, Ok(Serial(302)));
}

async fn only_an_empty_store_is_restored_into(database: Database) {
    let records = database.open().await;
    let mut restore = records.restore().await.expect("empty");
    restore.take(record("a", 3, Some("1"))).await.expect("taken");
    restore.take(record("b", 7, None)).await.expect("taken");
    restore.finish(Serial(9)).await.expect("finished");
    let expected = vec![record("a", 3, Some("1")), record("b", 7, None)];
    assert_eq!(records.records_after(Serial::ZERO).await, Ok((expected, Serial(9))));
    assert_eq!(records.records_after(Serial(7)).await, Ok((Vec::new(), Serial(9))));
    let again = records.restore().await;
    assert_eq!(again.err(), Some(RestoreError::NotEmpty { found: Serial(9) }));
    assert_eq!(records.commit(put("c", "x")).await, Ok(Serial(10)));
}

async fn an_unfinished_restore_leaves_nothing(database: Database) {
    let records = database.open().await;
    let mut restore = records.restore().await.expect("empty");
    for number in 0..2000 {
        restore.take(record(&format!("n/{number}"), 1, Some("x"))).await.expect("taken");
    }
    drop(restore);
    assert_eq!(records.commit(put("a", "1")).await, Ok(Serial(1)));
    let (read, _) = records.records_after(Serial::ZERO).await.expect("read");
    assert_eq!(read, [record("a", 1, Some("1"))]);
}

async fn what_cannot_be_restored(database: Database) {
    let records = database.open().await;
    let mut restore = records.restore().await.expect("empty");
    restore.take(record("a", 1, Some("1"))).await.expect("taken");
    restore.take(record("b", 5, Some("1"))).await.expect("taken");
    let beyond =
        RestoreError::SerialBeyond { key: key("b"), serial: Serial(5), serial_max: Serial(4) };
    assert_eq!(restore.finish(Serial(4)).await, Err(beyond));
    let mut restore = records.restore().await.expect("still empty");
    let zero = restore.take(record("a", 0, Some("1"))).await;
    assert!(matches!(zero, Err(RestoreError::SerialBeyond { .. })), "{zero:?}");
    drop(restore);
    let mut restore = records.restore().await.expect("still empty");
    restore.take(record("a", 1, Some("1"))).await.expect("taken");
    restore.take(record("a", 2, Some("2"))).await.expect("taken");
    let twice = restore.finish(Serial(2)).await;
    assert!(matches!(twice, Err(RestoreError::Write(_))), "{twice:?}");
    assert_eq!(records.records_after(Serial::ZERO).await, Ok((Vec::new(), Serial::ZERO)));
}
