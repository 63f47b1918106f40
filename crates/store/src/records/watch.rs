//! [`Watch`]: whether the files of SQLite are as SQLite left them.
//!
//! SQLite trusts its files: if one is cut, overwritten or removed while it is open, SQLite goes on committing with the page
//! cache and the log, and only the next start would notice. So before and after each transaction, this compares the inodes,
//! sizes and times of the three files. A change without one of these explanations is damage:
//!
//! - the database's file changes only in a checkpoint, which SQLite can be asked about; it never shrinks;
//! - the log changes only in a commit, ours or another process's: then its frames have the right checksums;
//! - the log and the shared memory stay the same files for as long as this process has them open.
//!
//! All of that costs a few system calls without disk access; SQLite is asked only after a change, and nothing is written. The
//! database's file is never opened here: closing it would release SQLite's locks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::SqliteConnection;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::{Damage, Rewound};

/// How long another process's checkpoint may take after its first change.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(5);
const CHECKPOINT_POLL: Duration = Duration::from_millis(20);

/// A commit shows only some time after its log was written, which no stamp tells: a disk may take that long to make the log durable.
const REST: Duration = Duration::from_secs(60);

/// The files of a database that is opened for writing.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    path: PathBuf,
    /// Device and inode of the database's file.
    identity: (u64, u64),
    /// None while there is no connection that writes.
    known: Arc<Mutex<Option<KnownFiles>>>,
}

/// The files as SQLite was last known to leave them.
#[derive(Debug)]
struct KnownFiles {
    database: Stamp,
    log: Stamp,
    shared_memory: (u64, u64),
    backfill: Backfill,
    /// The log itself: SQLite has no locks on it.
    log_file: File,
}

/// Distinguishes a file from another one, and from itself after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: (u64, u64),
    size_bytes: u64,
    modified_at: (i64, i64),
}

/// The three files at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamps {
    database: Stamp,
    log: Stamp,
    shared_memory: (u64, u64),
}

impl Stamps {
    /// Whether no file was written to lately: what was written shows by now, and what is written from now on changes their times.
    pub(super) fn are_at_rest(&self) -> bool {
        [self.database, self.log].iter().all(|stamp| stamp.age().is_some_and(|age| age > REST))
    }
}

/// How far checkpoints have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backfill {
    /// The salts in the log's header: each round of the log has others.
    salts: [u8; 8],
    frames: i64,
}

/// Why it cannot be said that all is well.
pub(super) enum Alarm {
    /// It is not.
    Lost(Rewound),
    /// The files, or SQLite, could not be asked.
    Unknown(sqlx::Error),
}

impl From<io::Error> for Alarm {
    fn from(error: io::Error) -> Alarm {
        Alarm::Unknown(error.into())
    }
}

impl From<Damage> for Alarm {
    fn from(damage: Damage) -> Alarm {
        Alarm::Lost(Rewound::Damaged(damage))
    }
}

impl Watch {
    /// Watches the file that is at `path` now.
    pub(super) fn new(path: &Path) -> io::Result<Watch> {
        let identity = Stamp::at(path)?.map(|stamp| stamp.identity);
        let identity = identity.ok_or(io::ErrorKind::NotFound)?;
        Ok(Watch { path: path.to_owned(), identity, known: Arc::default() })
    }

    /// The log's file.
    pub(super) fn log(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// The stamp of the log's file; `None` if it does not exist.
    pub(super) fn log_stamp(&self) -> Option<Stamp> {
        Stamp::at(&self.log()).ok().flatten()
    }

    /// The files as they are; `None` if one is missing.
    pub(super) fn stamps(&self) -> Option<Stamps> {
        let at = |path: &Path| Stamp::at(path).ok().flatten();
        let shared_memory = at(&self.beside("-shm"))?.identity;
        Some(Stamps { database: at(&self.path)?, log: at(&self.log())?, shared_memory })
    }

    /// Whether the file is there still. A question to the system's memory, not to the disk: it is asked wherever
    /// the file is used.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        Ok(Stamp::at(&self.path)?.is_some_and(|stamp| stamp.identity == self.identity))
    }

    /// What can be found out without SQLite; `None` also while a transaction is running.
    pub(super) fn glance(&self) -> io::Result<Option<Rewound>> {
        let Some(database) = Stamp::at(&self.path)?.filter(|it| it.identity == self.identity)
        else {
            return Ok(Some(Rewound::Replaced));
        };
        let Ok(known) = self.known.try_lock() else { return Ok(None) };
        let Some(known) = known.as_ref() else { return Ok(None) };
        Ok(self.at_once(known, database)?.err().map(Rewound::Damaged))
    }

    fn at_once(&self, known: &KnownFiles, database: Stamp) -> io::Result<Result<Stamp, Damage>> {
        if database.size_bytes < known.database.size_bytes {
            return Ok(Err(Damage::Cut));
        }
        let Some(log) = Stamp::at(&self.beside("-wal"))?.filter(|log| known.log.is_same(log))
        else {
            return Ok(Err(Damage::LogRemoved));
        };
        let shared_memory = Stamp::at(&self.beside("-shm"))?.map(|stamp| stamp.identity);
        if shared_memory != Some(known.shared_memory) {
            return Ok(Err(Damage::SharedMemoryRemoved));
        }
        Ok(Ok(log))
    }

    /// Accepts the files as they are: `connection` has just been made, and has read.
    pub(super) async fn begin(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut known = self.known.lock().await;
        *known = None;
        let (Some(database), Some(log), Some(shared_memory)) = (
            Stamp::at(&self.path)?,
            Stamp::at(&self.beside("-wal"))?,
            Stamp::at(&self.beside("-shm"))?,
        ) else {
            // On a file system without shared memory these files do not exist, and the database is not supported.
            return Ok(());
        };
        let log_file = File::open(self.beside("-wal"))?;
        let (_, frames) = progress(connection).await?;
        let backfill = Backfill { salts: salts(&log_file)?, frames };
        let shared_memory = shared_memory.identity;
        *known = Some(KnownFiles { database, log, shared_memory, backfill, log_file });
        Ok(())
    }

    /// Forgets the files: the connection that writes is gone.
    pub(super) async fn end(&self) {
        *self.known.lock().await = None;
    }

    /// Looks whether the files are as SQLite left them, before a transaction of `connection`.
    pub(super) async fn look(&self, connection: &mut SqliteConnection) -> Result<(), Alarm> {
        let mut known = self.known.lock().await;
        let Some(known) = known.as_mut() else { return self.look_at_place() };
        let log = self.at_once(known, self.database()?)??;
        if log != known.log {
            // Another process has committed, or the log is damaged: the checksums tell which.
            let (frames, _) = progress(connection).await.map_err(Alarm::Unknown)?;
            let path = self.beside("-wal");
            let checking = tokio::task::spawn_blocking(move || are_frames_right(&path, frames));
            let is_right = checking.await.map_err(io::Error::other)??;
            if !is_right {
                return Err(Damage::LogOverwritten.into());
            }
            known.log = log;
        }
        self.explain(known, connection).await
    }

    /// Looks again after a transaction of `connection`, and accepts its changes.
    pub(super) async fn look_after(&self, connection: &mut SqliteConnection) -> Result<(), Alarm> {
        let mut known = self.known.lock().await;
        let Some(known) = known.as_mut() else { return self.look_at_place() };
        known.log = self.at_once(known, self.database()?)??;
        self.explain(known, connection).await
    }

    fn look_at_place(&self) -> Result<(), Alarm> {
        match self.is_in_place()? {
            true => Ok(()),
            false => Err(Alarm::Lost(Rewound::Replaced)),
        }
    }

    fn database(&self) -> Result<Stamp, Alarm> {
        let found = Stamp::at(&self.path)?.filter(|stamp| stamp.identity == self.identity);
        found.ok_or(Alarm::Lost(Rewound::Replaced))
    }

    /// Looks whether a change of the database's file was a checkpoint.
    async fn explain(
        &self,
        known: &mut KnownFiles,
        connection: &mut SqliteConnection,
    ) -> Result<(), Alarm> {
        let deadline = Instant::now() + CHECKPOINT_PATIENCE;
        loop {
            let database = self.database()?;
            let salts = salts(&known.log_file)?;
            if database == known.database {
                if salts != known.backfill.salts {
                    // The log has begun anew: none of it is in the database's file yet.
                    known.backfill = Backfill { salts, frames: 0 };
                }
                return Ok(());
            }
            let (_, frames) = progress(connection).await.map_err(Alarm::Unknown)?;
            let backfill = Backfill { salts, frames };
            if backfill != known.backfill {
                (known.database, known.backfill) = (database, backfill);
                return Ok(());
            }
            // Another process may be in the middle of a checkpoint, which it reports only at the end.
            if Instant::now() >= deadline {
                return Err(Damage::Overwritten.into());
            }
            tokio::time::sleep(CHECKPOINT_POLL).await;
        }
    }

    /// The file of SQLite that has this at the end of its name.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }
}

impl Stamp {
    /// None if there is no file.
    fn at(path: &Path) -> io::Result<Option<Stamp>> {
        let metadata = match std::fs::metadata(path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            found => found?,
        };
        Ok(Some(Stamp {
            identity: (metadata.dev(), metadata.ino()),
            size_bytes: metadata.len(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
        }))
    }

    /// How long ago it was written to; `None` if that is not known, or in the future.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanoseconds) = self.modified_at;
        let since_epoch = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since_epoch)?.elapsed().ok()
    }

    fn is_same(&self, other: &Stamp) -> bool {
        self.identity == other.identity
    }
}

/// The number of frames in the log, and how many of them are in the database's file: SQLite reports it without doing a
/// checkpoint.
async fn progress(connection: &mut SqliteConnection) -> Result<(i64, i64), sqlx::Error> {
    let row: (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(connection).await?;
    Ok((row.1, row.2))
}

/// The salts in the log's header; zeros while it has none.
fn salts(log: &File) -> io::Result<[u8; 8]> {
    let mut salts = [0; 8];
    match log.read_exact_at(&mut salts, 16) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok([0; 8]),
        read => read.map(|()| salts),
    }
}

/// Whether the log's header and its first `frames` frames have the checksums that SQLite gave them.
fn are_frames_right(path: &Path, frames: i64) -> io::Result<bool> {
    let Ok(frames) = u64::try_from(frames) else { return Ok(true) };
    if frames == 0 {
        return Ok(true);
    }
    let mut log = io::BufReader::with_capacity(1 << 18, File::open(path)?);
    match check_frames(&mut log, frames) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        checked => checked,
    }
}

fn check_frames(log: &mut impl io::Read, frames: u64) -> io::Result<bool> {
    let mut header = [0; 32];
    log.read_exact(&mut header)?;
    let word = |bytes: &[u8], at: usize| {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let is_big_endian = match word(&header, 0) {
        0x377f_0682 => false,
        0x377f_0683 => true,
        _ => return Ok(false),
    };
    let page_bytes = match word(&header, 8) {
        1 => 65_536,
        bytes @ 512..=32_768 if bytes.is_power_of_two() => bytes as usize,
        _ => return Ok(false),
    };
    let sum = |(mut first, mut second): (u32, u32), bytes: &[u8]| {
        for pair in bytes.chunks_exact(8) {
            let read = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
            };
            first = first.wrapping_add(read(0)).wrapping_add(second);
            second = second.wrapping_add(read(4)).wrapping_add(first);
        }
        (first, second)
    };
    let mut sums = sum((0, 0), &header[..24]);
    if sums != (word(&header, 24), word(&header, 28)) {
        return Ok(false);
    }
    let mut frame = vec![0; 24 + page_bytes];
    for _ in 0..frames {
        log.read_exact(&mut frame)?;
        sums = sum(sum(sums, &frame[..8]), &frame[24..]);
        if frame[8..16] != header[16..24] || sums != (word(&frame, 16), word(&frame, 20)) {
            return Ok(false);
        }
    }
    Ok(true)
}
