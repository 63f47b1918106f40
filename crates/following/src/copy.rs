//! A whole copy: the records of a primary in a new file beside the old one, which then takes its place.
//!
//! While the new copy is made, the old one is served. [`put_in_place`] is for a server that starts: it goes on wherever an earlier
//! start was interrupted. The old records are kept beside the new ones, under another name, until the next time.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use record::Serial;
use store::{DatabaseLocation, Records, RecordsOptions};

use crate::follow::{Event, Failure, Pace, Session, Taker};
use crate::link::Link;
use crate::note::FollowerNote;
use crate::primary::Primary;

/// A copy that is complete and not in its place yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCopy {
    /// The name of the store.
    pub identity: String,
    /// The serial that it is at.
    pub serial: Serial,
}

/// Copies all records of the primary into a new file beside `database`, however often the connection breaks, and notes that it is
/// there. To be dropped when the server stops.
///
/// # Errors
/// What an administrator has to mend: the primary refuses, or the disk does.
pub async fn take_copy(
    primary: &Primary,
    link: &Link,
    data_dir: &Path,
    database: &Path,
    pace: Pace,
) -> anyhow::Result<NewCopy> {
    let new = beside(database, ".new");
    remove(&new)?;
    let location = DatabaseLocation::Sqlite(new.clone());
    let options = || RecordsOptions { poll_interval: None, ..RecordsOptions::default() };
    let records = Records::open(&location, options()).await?;
    let copied = copy(&records, primary, link, pace).await;
    let closed = records.close_for_reading().await;
    let copy = copied?;
    closed.with_context(|| format!("cannot finish `{}`", new.display()))?;
    let note = FollowerNote::new(primary.url(), &copy.identity, copy.serial.0).with_new_copy();
    let data_dir = data_dir.to_owned();
    tokio::task::spawn_blocking(move || {
        std::fs::File::open(&new).and_then(|file| file.sync_all())?;
        note.write(&data_dir)
    })
    .await??;
    Ok(copy)
}

async fn copy(
    records: &Records,
    primary: &Primary,
    link: &Link,
    pace: Pace,
) -> anyhow::Result<NewCopy> {
    let mut taker = Taker::new(records).await?;
    let mut identity: Option<String> = None;
    let mut failures = 0;
    loop {
        let failure = match Session::open(primary, &taker, 0).await {
            Err(failure) => failure,
            Ok(mut session) => {
                let found = session.hello.identity.clone();
                if *identity.get_or_insert_with(|| found.clone()) != found {
                    bail!("{} has become another store while it was read", primary.url());
                }
                link.connected(Serial(session.hello.serial), session.hello.primary_url.clone());
                failures = 0;
                loop {
                    match taker.next_whole(&mut session).await {
                        Ok(Event::Whole { whole, records }) => {
                            let serial = Serial(whole.serial);
                            link.wrote(serial, records, Serial(whole.primary_serial));
                            taker.forget().await;
                            return Ok(NewCopy { identity: found, serial });
                        }
                        Ok(Event::Alive(_)) => {}
                        Err(failure) => break failure,
                    }
                }
            }
        };
        failures += 1;
        match failure {
            Failure::Local(error) => return Err(error.into()),
            Failure::OtherHistory(why) => {
                bail!("{} changed while it was read: {why}", primary.url())
            }
            Failure::Primary(error) if error.is_lasting() => return Err(error.into()),
            Failure::Primary(_) | Failure::NotNow(_) => {}
        }
        if link.lost(failure.to_string()) {
            tracing::warn!(error = %failure, "the primary cannot be read yet");
        }
        tokio::time::sleep(pace.pause(failures, failure.is_lasting())).await;
    }
}

/// Puts a new copy that is there in the place of `database`. Its note is returned until [`FollowerNote::settled`] is written.
/// Blocks.
///
/// # Errors
/// Those of the disk; the next start tries again.
pub fn put_in_place(data_dir: &Path, database: &Path) -> anyhow::Result<Option<FollowerNote>> {
    let Some(note) = FollowerNote::read(data_dir)?.filter(|note| note.has_new_copy) else {
        return Ok(None);
    };
    let (new, before) = (beside(database, ".new"), beside(database, ".before"));
    // An interrupted start may have come so far already.
    if new.exists() {
        if database.exists() {
            remove(&before)?;
            // First the log: without its file it is of no use, and it must not be taken for the new file's.
            for suffix in ["-wal", "-shm", ""] {
                rename(&beside(database, suffix), &beside(&before, suffix))?;
            }
        }
        rename(&new, database)?;
        sync(database)?;
    }
    Ok(Some(note))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a file of SQLite and the files beside it.
fn remove(path: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let file = beside(path, suffix);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove `{}`", file.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed
            .with_context(|| format!("cannot rename `{}` to `{}`", from.display(), to.display())),
    }
}

fn sync(path: &Path) -> anyhow::Result<()> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("cannot sync `{}`", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_new_copy_takes_the_place_of_the_old_one_wherever_a_start_was_interrupted() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        let database = place.join("records.db");
        assert_eq!(put_in_place(place, &database).expect("nothing to do"), None);
        let note = FollowerNote::new("http://primary", "0123456789", 7);
        for interrupted in [false, true] {
            for (name, text) in
                [("records.db", "old"), ("records.db-wal", "log"), ("records.db.new", "new")]
            {
                fs::write(place.join(name), text).expect("a file");
            }
            note.clone().with_new_copy().write(place).expect("a note");
            if interrupted {
                fs::rename(place.join("records.db-wal"), place.join("records.db.before-wal"))
                    .expect("renamed");
            }
            let placed = put_in_place(place, &database).expect("in place").expect("a note");
            placed.settled().write(place).expect("a note");
            let read = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
            assert_eq!(read("records.db"), "new");
            assert_eq!(read("records.db.before"), "old");
            assert!(
                !place.join("records.db.new").exists() && !place.join("records.db-wal").exists()
            );
            assert_eq!(FollowerNote::read(place).expect("a note"), Some(note.clone()));
        }
    }
}
