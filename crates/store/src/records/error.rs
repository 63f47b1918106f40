//! Errors of the records, each with what is known of the state after it.

use std::fmt;
use std::sync::Arc;

use record::{Key, Mismatch, Serial};

/// The records could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A later version of this program wrote them.
    #[error(
        "the records in `{location}` have layout {found}, but this program knows layouts up to \
         {known}: a newer version of it is needed"
    )]
    NewerLayout {
        /// The database, without its password.
        location: String,
        /// Its layout.
        found: u64,
        /// The newest layout that this program knows.
        known: u64,
    },
    /// Opened without the right to write, an earlier layout cannot be brought forward.
    #[error(
        "the records in `{location}` have layout {found}, but layout {known} was expected, and they \
         are opened for reading only"
    )]
    OlderLayout {
        /// The database, without its password.
        location: String,
        /// Its layout; 0 if there are no records yet.
        found: u64,
        /// The layout that this program reads.
        known: u64,
    },
    /// The file has tables, but not those of a store.
    #[error("`{location}` holds something else than records: an empty or a new file was expected")]
    Foreign {
        /// The database, without its password.
        location: String,
    },
    /// A PostgreSQL database whose text is not UTF-8 cannot hold every key.
    #[error("the database `{location}` is encoded in {found}, but UTF8 was expected")]
    Encoding {
        /// The database, without its password.
        location: String,
        /// Its encoding, in PostgreSQL's words.
        found: String,
    },
    /// The tables are there, but not as this program makes them: something else has changed them.
    #[error(
        "the records in `{location}` are damaged: {flaw}. `larder verify` may tell more; `larder restore` brings a \
         backup into an empty database"
    )]
    Damaged {
        /// The database, without its password.
        location: String,
        /// What is wrong, in the database's words if it said so.
        flaw: String,
    },
    /// The file is no database, or a part of it is missing.
    #[error("cannot open the records in `{location}`: {cause}")]
    Unreadable {
        /// The database, without its password.
        location: String,
        /// The error of the database.
        cause: Cause,
    },
    /// The database does not answer, or does not let us do what opening needs.
    #[error("cannot open the records in `{location}`: {cause}")]
    Unavailable {
        /// The database, without its password.
        location: String,
        /// The error of the database, its driver or the operating system.
        cause: Cause,
    },
}

impl OpenError {
    /// Whether the database's own content is the reason, and not what is around it.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            OpenError::Foreign { .. } | OpenError::Damaged { .. } | OpenError::Unreadable { .. }
        )
    }
}

/// The store is not the one that this process has read. Its serials may mean other commits now, so a process must read
/// everything again before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rewound {
    /// It has lost commits that this process has seen: it was restored from an older copy, or a copy that lagged
    /// behind took over.
    #[error("{}", behind(*found, *seen))]
    Behind {
        /// The serial of the store now; it may be the higher one, if other commits have come since.
        found: Serial,
        /// The latest serial that was seen, as far as it can be told.
        seen: Serial,
    },
    /// The record that names the store is different or missing: the database was replaced by another store's, or its tables
    /// were emptied.
    #[error(
        "the database is not the one that was read before: it does not have the name of this store any more"
    )]
    Stranger,
    /// The open SQLite file is no longer the one at its path: writes into it would be lost.
    #[error("the database's file was replaced, moved or removed while it was open")]
    Replaced,
    /// The files of SQLite are not as SQLite left them: what is written into them may not be found again.
    #[error("the database is damaged: {0}")]
    Damaged(Damage),
}

/// A database that has gone on without the commits that it lacks did not merely fall back.
fn behind(found: Serial, seen: Serial) -> String {
    match found < seen {
        true => format!(
            "the database is at serial {found} and lacks the commits up to serial {seen} that were read from it \
             before: it fell back to an older state"
        ),
        false => format!(
            "the database is at serial {found}, but some of the commits up to serial {seen} that were read from it \
             before are missing, and it may have others in their place: it has diverged"
        ),
    }
}

impl Rewound {
    /// Whether this ends by itself once the right database is back. If a file was damaged or replaced, this process cannot know
    /// what else happened to it.
    pub fn may_end(self) -> bool {
        match self {
            Rewound::Behind { .. } | Rewound::Stranger => true,
            Rewound::Replaced | Rewound::Damaged(_) => false,
        }
    }
}

/// How the files of SQLite were changed while they were open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The database's file is shorter than it was.
    #[error("its file was cut while it was open")]
    Cut,
    /// The database's file was written to, and by no checkpoint.
    #[error("its file was written to, or touched, by something else than SQLite")]
    Overwritten,
    /// The log was removed or replaced.
    #[error("its log (`-wal`) was removed or replaced while it was open")]
    LogRemoved,
    /// The log no longer has what was committed.
    #[error("its log (`-wal`) was cut, or written to by something else than SQLite")]
    LogOverwritten,
    /// The shared memory was removed or replaced.
    #[error("its shared memory (`-shm`) was removed or replaced while it was open")]
    SharedMemoryRemoved,
    /// SQLite found it.
    #[error("SQLite cannot make sense of what is in it")]
    Unreadable,
}

/// A batch was not acknowledged. Nothing of it was written, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A precondition did not hold.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The batch writes this key twice.
    #[error("`{0}` is written twice in one batch, but once was expected")]
    KeyTwice(Key),
    /// More than one batch may have.
    #[error("a batch of {bytes} bytes is too large: at most {bytes_max} were expected")]
    TooLarge {
        /// Keys, bodies and digests of the batch.
        bytes: usize,
        /// The bound, [`RecordsOptions::batch_bytes_max`](super::RecordsOptions::batch_bytes_max).
        bytes_max: usize,
    },
    /// No room is left where the database is.
    #[error("the database is full: {0}")]
    Full(Cause),
    /// The database takes no writes, or the records were opened for reading only.
    #[error("the database is read-only: {0}")]
    ReadOnly(Cause),
    /// The database did not answer, or refused.
    #[error("the database is unavailable: {0}")]
    Unavailable(Cause),
    /// The connection broke during the commit, and the database did not come back in time to be asked. The batch was written
    /// whole or not at all; its keys tell which, once they can be read.
    #[error("the database was lost during a commit, and whether it was written is unknown: {0}")]
    OutcomeUnknown(Cause),
    /// The store no longer is what the batch was decided on.
    #[error(transparent)]
    Rewound(#[from] Rewound),
    /// The records were closed.
    #[error("the records are closed")]
    Closed,
}

impl CommitError {
    /// Whether the same batch may well be written later, or by another process: the fault is the
    /// database's state, not the batch's.
    pub fn is_temporary(&self) -> bool {
        match self {
            CommitError::Mismatch(_) | CommitError::KeyTwice(_) | CommitError::TooLarge { .. } => {
                false
            }
            CommitError::Full(_)
            | CommitError::ReadOnly(_)
            | CommitError::Unavailable(_)
            | CommitError::OutcomeUnknown(_)
            | CommitError::Rewound(_)
            | CommitError::Closed => true,
        }
    }
}

/// Records could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The database did not answer, or refused.
    #[error("the database is unavailable: {0}")]
    Unavailable(Cause),
    /// A row differs from what was written.
    #[error("the record `{key}` is damaged: {flaw}")]
    Damaged {
        /// The key as it stands, with odd characters escaped.
        key: String,
        /// What is wrong with it.
        flaw: String,
    },
    /// The store no longer continues what was read before.
    #[error(transparent)]
    Rewound(#[from] Rewound),
    /// The server follows another one, and may not have its latest commits yet. What it says is not the store's state.
    #[error(
        "the database server is a standby in recovery, which may lack the latest commits: as soon as it is promoted, \
         larder goes on by itself"
    )]
    Standby,
}

/// Records could not be written with the serials that they had elsewhere; nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// There are records already.
    #[error("the records are at serial {found}, but an empty store was expected")]
    NotEmpty {
        /// The serial of the latest commit; zero if there are rows regardless.
        found: Serial,
    },
    /// A record is later than the store that it came from.
    #[error("the record `{key}` has serial {serial}, but one from 1 to {serial_max} was expected")]
    SerialBeyond {
        /// Its key.
        key: Key,
        /// Its serial.
        serial: Serial,
        /// The serial of the store.
        serial_max: Serial,
    },
    /// The records to restore could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The database did not take them.
    #[error(transparent)]
    Write(#[from] CommitError),
}

/// An error of a database, its driver or the operating system, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause(Arc<str>);

impl Cause {
    pub(super) fn new(what: impl fmt::Display) -> Cause {
        Cause(what.to_string().into())
    }

    /// A driver's error as text. If a row is missing, it is the one with the serial, and the text says so.
    pub(super) fn of(error: &sqlx::Error) -> Cause {
        match error {
            sqlx::Error::RowNotFound => {
                Cause::new("the row that is always in larder_store is gone")
            }
            error => Cause::new(error),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The commit error for a driver's error that prevented the commit.
pub(super) fn commit_error(error: &sqlx::Error) -> CommitError {
    let cause = Cause::of(error);
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        // PostgreSQL: disk_full; read_only_sql_transaction.
        Some("53100") => CommitError::Full(cause),
        Some("25006") => CommitError::ReadOnly(cause),
        // SQLite: the lowest byte of an extended code is the kind; 13 SQLITE_FULL, 8 SQLITE_READONLY.
        Some(code) if is_sqlite(error) => match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(13) => CommitError::Full(cause),
            Ok(8) => CommitError::ReadOnly(cause),
            _ => CommitError::Unavailable(cause),
        },
        _ => CommitError::Unavailable(cause),
    }
}

/// Why a database cannot be opened, from a driver's error.
pub(super) fn open_error(location: &str, error: &sqlx::Error) -> OpenError {
    let location = location.to_owned();
    let code = error.as_database_error().and_then(|error| error.code());
    let is_damaged = match (error, code.as_deref()) {
        (sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. }, _) => true,
        // SQLITE_ERROR: no such table or column.
        (_, Some(code)) if is_sqlite(error) => {
            code.parse::<u32>().is_ok_and(|code| code & 0xff == 1)
        }
        // Class 42 is about tables and columns that are missing, or there already; 42501: a right is missing.
        (_, Some(code)) => code.starts_with("42") && code != "42501",
        _ => false,
    };
    if is_damage(error) {
        return OpenError::Unreadable { location, cause: Cause::new(error) };
    }
    match (is_damaged, error) {
        (true, sqlx::Error::RowNotFound) => {
            let flaw = "the row that is always in larder_layout, or in larder_store, is gone";
            OpenError::Damaged { location, flaw: flaw.to_owned() }
        }
        (true, error) => OpenError::Damaged { location, flaw: error.to_string() },
        (false, error) => OpenError::Unavailable { location, cause: Cause::new(error) },
    }
}

/// Whether SQLite found its file damaged: 11 SQLITE_CORRUPT, 26 SQLITE_NOTADB.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
    is_sqlite(error) && matches!(code, Some(11 | 26))
}

fn is_sqlite(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some())
}

impl From<sqlx::Error> for ReadError {
    fn from(error: sqlx::Error) -> ReadError {
        if is_damage(&error) {
            tracing::debug!(%error, "the database is damaged");
            return Rewound::Damaged(Damage::Unreadable).into();
        }
        ReadError::Unavailable(Cause::of(&error))
    }
}
