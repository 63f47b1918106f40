//! A whole copy: the records of a primary in a new file beside the old one, which then takes its place.
//!
//! While the new copy is made, the old one is served. [`put_in_place`] is for a server that starts: it goes on wherever an earlier
//! start was interrupted. The old records are kept beside the new ones, under another name, until the next time.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use record::Serial;
use store::{DatabaseLocation, Records, RecordsOptions};

use crate::follow::{Event, Failure, ReplicaWriter, Session};
use crate::frame::PartialCopy;
use crate::link::Link;
use crate::note::FollowerNote;
use crate::pace::{Failures, Pace};
use crate::primary::{Primary, PrimaryStore};

/// A copy that is complete and not in its place yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCopy {
    /// The name of the store.
    pub identity: String,
    /// The serial that it is at.
    pub serial: Serial,
    /// What it has, if that is not everything.
    pub part: Option<PartialCopy>,
}

/// Copies all records of the primary into a new file beside `database`, however often the connection breaks or the primary becomes
/// another one, and notes that it is there. To be dropped when the server stops; what is not whole is removed. `known`: the copy
/// that is to be replaced.
///
/// # Errors
/// What an administrator has to mend: the primary refuses, or the disk does.
pub async fn take_copy(
    primary: &Primary,
    link: &Link,
    (data_dir, database): (&Path, &Path),
    known: &PrimaryStore,
    pace: Pace,
) -> anyhow::Result<NewCopy> {
    let new = beside(database, ".new");
    let mut failures = Failures::new(pace);
    let (partial, copy) = loop {
        remove(&new)?;
        let partial = Partial { path: Some(&new) };
        let location = DatabaseLocation::Sqlite(new.clone());
        let options = RecordsOptions { poll_interval: None, ..RecordsOptions::default() };
        let records = Records::open(&location, options).await?;
        let copied = copy(&records, primary, link, known, &mut failures).await;
        let closed = records.close_for_reading().await;
        match copied {
            Ok(copy) => {
                closed.with_context(|| format!("cannot finish `{}`", new.display()))?;
                break (partial, copy);
            }
            Err(Failure::OtherHistory(why)) => {
                let why = format!("{} changed while it was read: {why}", primary.url());
                let pause = failures.failed(&why, false);
                drop(partial);
                tokio::time::sleep(pause).await;
            }
            Err(failure) => return Err(failure.into()),
        }
    };
    let note = FollowerNote::new(primary.url(), &copy.identity, copy.serial.0);
    let note = note.of_part(copy.part).with_new_copy();
    let (data_dir, file) = (data_dir.to_owned(), new.clone());
    tokio::task::spawn_blocking(move || {
        std::fs::File::open(&file).and_then(|file| file.sync_all())?;
        sync(&file)?;
        note.write(&data_dir)
    })
    .await??;
    partial.keep();
    Ok(copy)
}

/// A copy that is removed unless it becomes whole: it may be what has filled the disk.
struct Partial<'path> {
    path: Option<&'path Path>,
}

impl Partial<'_> {
    fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        let Some(Err(error)) = self.path.map(remove) else { return };
        tracing::warn!("{error:#}");
    }
}

async fn copy(
    records: &Records,
    primary: &Primary,
    link: &Link,
    known: &PrimaryStore,
    failures: &mut Failures,
) -> Result<NewCopy, Failure> {
    let mut taker = ReplicaWriter::new(records).await?;
    let mut own: Option<(String, Option<PartialCopy>)> = None;
    loop {
        let begun = own.as_ref().map(|(identity, part)| (identity.as_str(), *part));
        let failure = match Session::open(primary, &taker, known, begun).await {
            Err(failure) => failure,
            Ok(mut session) => {
                let hello = &session.hello;
                let (found, part) =
                    own.get_or_insert_with(|| (hello.identity.clone(), hello.part)).clone();
                link.connected(&session.hello);
                loop {
                    match taker.next(&mut session).await {
                        Ok(Event::Taken { records }) => {
                            link.received(records);
                            if records > 0 {
                                // The next connection goes on after them.
                                failures.progressed();
                            }
                        }
                        Ok(Event::Whole { whole, records }) => {
                            let serial = Serial(whole.serial);
                            link.wrote(serial, records, Serial(whole.primary_serial));
                            link.announced(whole.aur_dump);
                            taker.forget().await;
                            return Ok(NewCopy { identity: found, serial, part });
                        }
                        Ok(Event::Alive(_)) => {}
                        Err(failure) => break failure,
                    }
                }
            }
        };
        let is_over = match &failure {
            Failure::Local(_) | Failure::OtherHistory(_) => true,
            Failure::Primary(error) => error.is_lasting(),
            Failure::NotNow(_) => false,
        };
        if is_over {
            taker.forget().await;
            return Err(failure);
        }
        if own.as_ref().is_some_and(|(_, part)| part.is_some()) {
            // What came was readable then, and may not be any more.
            taker.forget().await;
            return Err(Failure::OtherHistory(failure.to_string()));
        }
        link.lost(failure.to_string());
        tokio::time::sleep(failures.failed(&failure, failure.is_lasting())).await;
    }
}

/// Puts a new copy that is there in the place of `database`. Its note is returned until [`FollowerNote::settled`] is written.
/// Blocks.
///
/// # Errors
/// Those of the disk; the next start tries again.
pub fn put_in_place(data_dir: &Path, database: &Path) -> anyhow::Result<Option<FollowerNote>> {
    let (new, before) = (beside(database, ".new"), beside(database, ".before"));
    let Some(note) = FollowerNote::read(data_dir)?.filter(|note| note.has_new_copy) else {
        // A server that was killed has left what it had of a copy.
        remove(&new)?;
        return Ok(None);
    };
    // What its token may not read any more goes for good.
    let is_kept = note.part.is_none();
    if !is_kept {
        remove(&before)?;
    }
    // Each step is on the disk before the next, because the power may fail between any two. What an interrupted start has done
    // already is not done again.
    if new.exists() {
        if !is_kept {
            remove(database)?;
            sync(database)?;
        }
        if database.exists() {
            remove(&before)?;
            rename(database, &before)?;
            sync(database)?;
        }
        // SQLite would write an old log into the new file. With the old one, it has the last commits of that.
        for suffix in ["-wal", "-shm"] {
            rename(&beside(database, suffix), &beside(&before, suffix))?;
        }
        sync(database)?;
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
    use std::time::Duration;

    use super::*;
    use crate::frame::{Frame, Hello, Whole};
    use crate::testing::{FakePrimary, IDENTITY, commit, frames, hello, records, until};

    #[test]
    fn a_new_copy_takes_the_place_of_the_old_one_wherever_a_start_was_interrupted() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        let database = place.join("records.db");
        assert_eq!(put_in_place(place, &database).expect("nothing to do"), None);
        let note = FollowerNote::new("http://primary", "0123456789", 7);
        let steps =
            [("", ".before"), ("-wal", ".before-wal"), ("-shm", ".before-shm"), (".new", "")];
        let path = |suffix: &str| place.join(format!("records.db{suffix}"));
        for done in 0..=steps.len() {
            for (suffix, text) in [("", "old"), ("-wal", "log"), ("-shm", "index"), (".new", "new")]
            {
                fs::write(path(suffix), text).expect("a file");
                let _ = fs::remove_file(path(&format!(".before{suffix}")));
            }
            note.clone().with_new_copy().write(place).expect("a note");
            for (from, to) in &steps[..done] {
                fs::rename(path(from), path(to)).expect("renamed");
            }
            let placed = put_in_place(place, &database).expect("in place").expect("a note");
            placed.settled().write(place).expect("a note");
            let read = |suffix: &str| fs::read_to_string(path(suffix)).unwrap_or_default();
            // The old log stays with the old file, and with no other.
            let found = ["", ".before", ".before-wal", ".before-shm"].map(read);
            assert_eq!(found, ["new", "old", "log", "index"], "{done}");
            for suffix in [".new", "-wal", "-shm"] {
                assert!(!path(suffix).exists(), "{done} {suffix}");
            }
            assert_eq!(FollowerNote::read(place).expect("a note"), Some(note.clone()));
        }
        // A copy that never became whole is of no use.
        fs::write(path(".new"), "some").expect("a file");
        assert_eq!(put_in_place(place, &database).expect("nothing to do"), None);
        assert!(!path(".new").exists());
        assert_eq!(fs::read_to_string(&database).expect("a file"), "new");
    }

    #[test]
    fn nothing_is_kept_of_what_a_part_had_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let (place, database) = (directory.path(), directory.path().join("records.db"));
        for suffix in ["", "-wal", "-shm", ".before", ".before-wal", ".new"] {
            fs::write(beside(&database, suffix), suffix).expect("a file");
        }
        let note = FollowerNote::new("http://primary", "0123456789", 7);
        let note = note.of_part(Some(PartialCopy { has_open_articles: true })).with_new_copy();
        note.write(place).expect("written");
        assert_eq!(put_in_place(place, &database).expect("in place"), Some(note));
        assert_eq!(fs::read_to_string(&database).expect("a file"), ".new");
        let mut left: Vec<_> = fs::read_dir(place)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        left.sort();
        assert_eq!(left, ["follower.json", "records.db"]);
    }

    const PACE: Pace = Pace { first: Duration::from_millis(1), max: Duration::from_millis(5) };

    /// Some records of a store, and all of it.
    async fn some_and_all() -> (Vec<Frame>, Vec<Frame>) {
        let (source, _directory) = records().await;
        commit(&source, 0..3, "first").await;
        commit(&source, 3..5, "second").await;
        let (mut all, _) = source.records_after(Serial::ZERO).await.expect("read");
        let whole = Frame::Whole(Whole::at(2));
        let rest = Frame::Records(all.split_off(2));
        let some = vec![Frame::Records(all)];
        (some.clone(), [some, vec![rest, whole]].concat())
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_copy_that_fails() {
        let (some, _) = some_and_all().await;
        let refusal = "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let server = FakePrimary::with(vec![frames(hello(2), &some), refusal.into()]).await;
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join("records.db");
        let link = Link::new(String::new(), Serial::ZERO, Serial::ZERO);
        let place = (directory.path(), &*database);
        let failed = take_copy(&server.primary, &link, place, &PrimaryStore::default(), PACE).await;
        assert!(failed.expect_err("refused").to_string().contains("401"));
        assert_eq!(link.state().received, 2);
        let left: Vec<_> = fs::read_dir(directory.path()).expect("a directory").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn a_copy_of_a_primary_that_changes_meanwhile_begins_anew() {
        let (some, all) = some_and_all().await;
        let other = Hello { identity: "9876543210".to_owned(), ..hello(2) };
        let server = FakePrimary::with(vec![frames(hello(2), &some), frames(other, &all)]).await;
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join("records.db");
        let link = Link::new(String::new(), Serial::ZERO, Serial::ZERO);
        let place = (directory.path(), &*database);
        let copied = take_copy(&server.primary, &link, place, &PrimaryStore::default(), PACE).await;
        let copied = copied.expect("a copy");
        let (identity, part) = ("9876543210".to_owned(), None);
        assert_eq!(copied, NewCopy { identity, serial: Serial(2), part });
        // The second store was read from its beginning.
        let asked = server.asked();
        assert!(asked.len() == 3 && asked[2].contains("after=0 "), "{asked:?}");
        put_in_place(directory.path(), &database).expect("in place").expect("a note");
        let location = DatabaseLocation::Sqlite(database);
        let copy = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        assert_eq!(copy.records_after(Serial::ZERO).await.expect("read").0.len(), 5);
    }

    #[tokio::test]
    async fn a_primary_of_a_lower_generation_is_not_copied() {
        let (_, all) = some_and_all().await;
        let server = FakePrimary::with(vec![frames(hello(2), &all)]).await;
        let directory = tempfile::tempdir().expect("a directory");
        let database = directory.path().join("records.db");
        let link = Link::new(String::new(), Serial::ZERO, Serial::ZERO);
        let known = PrimaryStore { identity: IDENTITY.to_owned(), generation: 1, part: None };
        let place = (directory.path(), &*database);
        let has_refused =
            || link.state().trouble.is_some_and(|trouble| trouble.contains("was promoted since"));
        tokio::select! {
            copied = take_copy(&server.primary, &link, place, &known, PACE) => panic!("{copied:?}"),
            () = until(has_refused) => {}
        }
        assert!(!database.exists());
    }
}
