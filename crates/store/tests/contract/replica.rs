//! A store that takes another one's commits page by page is the same store, whatever is written meanwhile.

use record::{Batch, Digest, Expected, Serial};
use store::records::{CommitError, PagePosition, PageSize, Records};

use crate::database::{Database, Kind, flaws, in_runtime, key, put};
use crate::on_both;

on_both!(a_replica_is_the_same_store, pages_add_up_to_everything);

const SMALL: PageSize = PageSize { records_max: 7, bytes_max: 100 };

/// Some writes that overwrite and delete what earlier ones wrote.
async fn write(records: &Records, round: usize) {
    let mut batch = Batch::new();
    for number in 0..5 {
        let name = key(&format!("n/{}", (round * 3 + number * 5) % 40));
        batch = match (round + number) % 4 {
            0 => batch.delete(name, Expected::Anything),
            many => {
                let blobs = vec![Digest::of(&[many as u8]); many];
                batch.put(name, Expected::Anything, vec![b'x'; round], blobs)
            }
        };
    }
    records.commit(batch).await.expect("committed");
}

async fn a_replica_is_the_same_store(database: Database) {
    let source = database.open().await;
    let other = Database::new(Kind::Sqlite).await.expect("a file");
    let target = other.open().await;
    let mut replica = target.replica().await.expect("a replica");
    let mut place = PagePosition::default();
    for round in 0..60 {
        write(&source, round).await;
        loop {
            let page = source.page_after(&place, SMALL).await.expect("a page");
            for record in page.records {
                replica.take(record).await.expect("taken");
            }
            place = page.next;
            if page.is_last {
                replica.finish(page.serial).await.expect("finished");
                break;
            }
            // Between two pages, so that records move away from where the reader is.
            if round % 3 == 0 && source.serial().await.expect("a serial") < Serial(150) {
                write(&source, round + 1).await;
            }
        }
        let all = source.records_after(Serial::ZERO).await.expect("read");
        assert_eq!(replica.serial(), all.1);
        assert_eq!(target.records_after(Serial::ZERO).await, Ok(all), "round {round}");
    }
    assert_eq!(flaws(&target).await, [""; 0]);
    // What follows is woken, and what is latest is known.
    let (latest, after) = target.latest(10).await.expect("read");
    let (mut latest, all) = (latest, target.records_after(after).await.expect("read").0);
    latest.sort_by(|one, other| (one.serial, &one.key).cmp(&(other.serial, &other.key)));
    assert_eq!(latest, all);
}

async fn pages_add_up_to_everything(database: Database) {
    let source = database.open().await;
    let empty = source.page_after(&PagePosition::default(), SMALL).await.expect("a page");
    assert!(empty.is_last && empty.records.is_empty() && empty.serial == Serial::ZERO);
    for round in 0..20 {
        write(&source, round).await;
    }
    // A record that is larger than a page has one of its own.
    source.commit(put("large", vec![b'x'; 1_000])).await.expect("committed");
    let all = source.records_after(Serial::ZERO).await.expect("read");
    let (mut place, mut found) = (PagePosition::default(), Vec::new());
    loop {
        let page = source.page_after(&place, SMALL).await.expect("a page");
        assert!(page.records.len() <= SMALL.records_max);
        found.extend(page.records);
        place = page.next;
        if page.is_last {
            assert_eq!(page.serial, all.1);
            break;
        }
    }
    assert_eq!(found, all.0);
}

#[test]
fn a_replica_that_something_else_wrote_to_takes_no_more() {
    in_runtime(async {
        let database = Database::new(Kind::Sqlite).await.expect("a file");
        let records = database.open().await;
        let mut replica = records.replica().await.expect("a replica");
        records.commit(put("a", "local")).await.expect("committed");
        let source = Database::new(Kind::Sqlite).await.expect("a file");
        let source = source.open().await;
        source.commit(put("a", "theirs")).await.expect("committed");
        let (theirs, serial) = source.records_after(Serial::ZERO).await.expect("read");
        for record in theirs {
            replica.take(record).await.expect("taken");
        }
        let refused = replica.finish(serial).await;
        assert!(matches!(refused, Err(CommitError::ReadOnly(_))), "{refused:?}");
        let mine = records.record(&key("a")).await.expect("read").expect("there");
        assert_eq!(mine.body.as_deref(), Some(&b"local"[..]));
    });
}

#[test]
fn an_unfinished_state_is_not_seen() {
    in_runtime(async {
        let database = Database::new(Kind::Sqlite).await.expect("a file");
        let records = database.open().await;
        let source = Database::new(Kind::Sqlite).await.expect("a file");
        let source = source.open().await;
        for number in 0..3_000 {
            source.commit(put(&format!("n/{}", number % 2_500), "x")).await.expect("committed");
        }
        let (theirs, serial) = source.records_after(Serial::ZERO).await.expect("read");
        let mut replica = records.replica().await.expect("a replica");
        for record in theirs.clone() {
            replica.take(record).await.expect("taken");
        }
        assert_eq!(records.records_after(Serial::ZERO).await, Ok((Vec::new(), Serial::ZERO)));
        replica.forget().await;
        assert_eq!(records.serial().await, Ok(Serial::ZERO));
        for record in theirs.clone() {
            replica.take(record).await.expect("taken");
        }
        replica.finish(serial).await.expect("finished");
        assert_eq!(records.records_after(Serial::ZERO).await, Ok((theirs, serial)));
    });
}
