//! Before the first request: the store is opened, and it has an administrator.
//!
//! If there is no `root`, it is made, once, even if several processes start at the same time. A generated password is printed once
//! if stderr is a terminal. Otherwise the output may end in a log, so the password is written to a file.

use std::fs::DirBuilder;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use account::{Password, change};
use anyhow::Context;
use config::Config;
use following::FollowerNote;
use jiff::Timestamp;
use record::{Batch, Key, Serial};
use rustix::fs::{Access, access};
use store::{
    BlobError, BlobStore, CommitError, DatabaseLocation, Follower, Records, RecordsOptions,
    State as _, Store,
};

use crate::security::Actor;
use crate::stored::{self, Stored};
use crate::{identity, secrets, security};

/// Makes the data directory if it is missing, closed to other users of the machine: it has the hashes of passwords, and the key that
/// signs logins.
///
/// # Errors
/// If it cannot be made.
pub fn create_data_dir(path: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o750);
    builder.create(path).with_context(|| {
        format!("cannot create the data directory `{}`; --data-dir names another", path.display())
    })
}

/// Opens the store of `config`, and makes `root` and what logins are signed with where they are missing.
///
/// # Errors
/// What cannot be opened or written, with its place.
pub async fn open_initialized(config: &Config) -> anyhow::Result<Store> {
    let store = open(config).await?;
    if let Some(password) = initialize(&store.records, default_root_password(config)).await? {
        announce(config, &password)?;
    }
    Ok(store)
}

/// The default password of a new `root`: empty with `devpi_defaults`; `None` if one is to be made.
pub fn default_root_password(config: &Config) -> Option<Password> {
    let empty = || Password::new_or_empty("").expect("no password is shorter");
    config.python.devpi_defaults.then(empty)
}

/// Opens the store of `config`; writes only its layout and its name. If only the records or only the blobs exist, the other
/// half is not made.
///
/// # Errors
/// A half that cannot be opened, with its place; records and blobs that do not belong together.
pub async fn open(config: &Config) -> anyhow::Result<Store> {
    FollowerNote::refuse(&config.data_dir)?;
    open_copy(config).await
}

/// [`open`], also if the records are a copy of a primary's, for the server that follows it.
///
/// # Errors
/// As [`open`].
pub async fn open_copy(config: &Config) -> anyhow::Result<Store> {
    let options =
        RecordsOptions { poll_interval: Some(config.store.poll), ..RecordsOptions::default() };
    let (database, location) = (config.database(), config.blobs());
    let spool = config.data_dir.join("spool");
    let unreadable = || format!("cannot open the blobs in `{location}`");
    let existing = match BlobStore::open_existing(&location, &spool).await {
        Err(BlobError::Absent { .. }) => None,
        opened => Some(opened.with_context(unreadable)?),
    };
    if let Some(blobs) = &existing {
        identity::check_beside_new_records(&database, &options, blobs, &location).await?;
    }
    let records = Records::open(&database, options);
    let records = records.await.map_err(|error| with_reason(&database, error.into()))?;
    if existing.is_none() {
        identity::check_without_blobs(&records, &database, &location).await?;
    }
    let blobs = BlobStore::open(&location, &spool).await.with_context(unreadable)?;
    let store = Store { records, blobs };
    identity::settle(&store, &database, &location).await?;
    Ok(store)
}

/// Adds the reason if SQLite could not open the file because the directory is not writable.
pub fn with_reason(location: &DatabaseLocation, error: anyhow::Error) -> anyhow::Error {
    let DatabaseLocation::Sqlite(path) = location else { return error };
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    match access(directory, Access::WRITE_OK) {
        Err(reason) => {
            let directory = directory.display();
            error.context(format!("`{directory}` must be writable, and is not ({reason})"))
        }
        Ok(()) => error,
    }
}

/// Makes what a new store lacks, and returns the password of the new `root`: `password`, or a random one. `None` if `root`
/// exists already: it is not changed.
///
/// # Errors
/// Those of the store, and of the system's random numbers.
pub async fn initialize(
    records: &Records,
    password: Option<Password>,
) -> anyhow::Result<Option<Password>> {
    identity::make(records).await?;
    let stored = foundations(records).await?;
    let secret = secrets::random()?;
    if let Some(batch) = change::create_login_secret(&stored.accounts, secret) {
        commit_unless_there(records, batch).await?;
    }
    if stored.accounts.user(&account::UserName::root()).is_some() {
        return Ok(None);
    }
    let password = match password {
        Some(password) => password,
        None => secrets::random_password()?,
    };
    let salt = secrets::random()?;
    let make = || {
        let hash = password.hash(salt);
        change::create_first_administrator(&stored.accounts, hash, Timestamp::now())
    };
    let batch = tokio::task::block_in_place(make)?;
    let is_made = commit_unless_there(records, batch).await?;
    Ok(is_made.then_some(password))
}

/// What [`initialize`] would make: the keys of the records that every store has and this one lacks. Changes nothing.
///
/// # Errors
/// Those of reading.
pub async fn lacking(records: &Records) -> anyhow::Result<Vec<Key>> {
    let root = account::user_key(&account::UserName::root());
    let mut lacking = Vec::new();
    for key in [Key::new(stored::IDENTITY_KEY)?, account::login_secret_key(), root] {
        let found = records.record(&key).await?;
        if found.is_none_or(|record| record.body.is_none()) {
            lacking.push(key);
        }
    }
    Ok(lacking)
}

/// Reads only what every store has, as there may be many records.
async fn foundations(records: &Records) -> anyhow::Result<Stored> {
    let root = account::user_key(&account::UserName::root());
    let mut found = Vec::new();
    for key in [root, account::login_secret_key()] {
        found.extend(records.record(&key).await?);
    }
    let (stored, troubles) = Stored::default().apply(&found, Serial::ZERO);
    stored::log(&troubles);
    Ok(stored)
}

/// The current state of the store, to be followed from here on.
///
/// # Errors
/// Those of reading it.
pub async fn load(config: &Config, records: &Records) -> anyhow::Result<Follower<Stored>> {
    let mut follower = Follower::new(records.clone(), Stored::of_server(config));
    stored::log(&follower.catch_up().await?.troubles);
    Ok(follower)
}

/// Commits; false if another process was first.
async fn commit_unless_there(records: &Records, batch: Batch) -> anyhow::Result<bool> {
    // None of these records existed before.
    let (accounts, index) = (account::Snapshot::new(), pypi::Snapshot::new());
    let changes = security::changes(&accounts, &index, &batch).by(Actor::of_command());
    let outcome = records.commit(batch).await;
    changes.settle(&outcome);
    match outcome {
        Ok(_) => Ok(true),
        Err(CommitError::Mismatch(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The file in the data directory with a new password of `root`, if it is not printed.
pub const PASSWORD_FILE: &str = "root-password";

/// Hands over the password of a new `root`, and returns how, to follow "the user `root`": on a terminal the password itself,
/// else the path of its file.
///
/// # Errors
/// If the file cannot be written, with its name and what to do.
pub fn hand_over(
    config: &Config,
    password: &Password,
    is_terminal: bool,
) -> anyhow::Result<String> {
    if password.reveal().is_empty() {
        return Ok("with an empty password, since python.devpi_defaults is on".to_owned());
    }
    if is_terminal {
        return Ok(format!("with the password {} (shown only now)", password.reveal()));
    }
    let path = config.data_dir.join(PASSWORD_FILE);
    write_password(&path, password).with_context(|| {
        let path = path.display();
        format!(
            "made the user `root`, but cannot write its password to `{path}`; `larder user password root` sets \
             another"
        )
    })?;
    let path = path.display();
    Ok(format!("with the password in `{path}`, for you to read and to remove"))
}

/// Writes a password into a file that only this user may read, replacing an existing one.
///
/// # Errors
/// Those of writing.
pub(crate) fn write_password(path: &Path, password: &Password) -> io::Result<()> {
    // Written with mode 0600 under another name and renamed: an existing file or link has no influence.
    let mut file = match path.parent() {
        Some(directory) => tempfile::NamedTempFile::new_in(directory)?,
        None => tempfile::NamedTempFile::new()?,
    };
    file.write_all(password.reveal().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Tells the password of `root`, this once.
fn announce(config: &Config, password: &Password) -> anyhow::Result<()> {
    if config.demo {
        // A demonstration is started again and again, and says each time what to try.
        let path = config.data_dir.join(PASSWORD_FILE);
        return write_password(&path, password)
            .with_context(|| format!("cannot write `{}`", path.display()));
    }
    let shown = hand_over(config, password, io::stderr().is_terminal())?;
    eprintln!(
        "larder: made the user `root` {shown}; `larder user password root` changes the password"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;

    use super::*;

    /// docs/store.md promises how far a process is behind, and how soon it writes after a promotion.
    #[test]
    fn the_promised_times_follow_from_the_bounds() {
        const BEHIND_MAX: Duration = Duration::from_secs(3);
        const PROMOTED_MAX: Duration = Duration::from_secs(5);
        const TO_CONNECT_AND_READ: Duration = Duration::from_millis(900);
        let asked = Config::default().store.poll + store::records::ASKED_ANEW_AFTER;
        assert!(asked + TO_CONNECT_AND_READ <= BEHIND_MAX, "{asked:?}");
        // The old server may have answered the poll before.
        assert!(asked + store::records::ASKED_ANEW_AFTER <= PROMOTED_MAX, "{asked:?}");
    }

    #[test]
    fn a_new_password_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let password = Password::new("correct-horse").expect("a password");
        let path = directory.path().join(PASSWORD_FILE);
        let told = hand_over(&config, &password, true).expect("it is told");
        assert_eq!(told, "with the password correct-horse (shown only now)");
        assert!(!path.exists());
        // Whatever is there: a file that others may read, or a link out.
        let elsewhere = directory.path().join("elsewhere");
        for prepare in [
            |_: &Path, _: &Path| {},
            |path: &Path, _: &Path| {
                fs::write(path, "a longer old password").expect("a file");
                fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("a mode");
            },
            |path: &Path, elsewhere: &Path| {
                fs::remove_file(path).expect("it is there");
                symlink(elsewhere, path).expect("a link");
            },
        ] {
            prepare(&path, &elsewhere);
            let told = hand_over(&config, &password, false).expect("it is written");
            let expected =
                format!("with the password in `{}`, for you to read and to remove", path.display());
            assert_eq!(told, expected);
            assert_eq!(fs::read_to_string(&path).expect("a file"), "correct-horse");
            let facts = fs::symlink_metadata(&path).expect("a file");
            assert_eq!((facts.is_file(), facts.permissions().mode() & 0o777), (true, 0o600));
        }
        assert!(!elsewhere.exists());
        let gone = Config { data_dir: directory.path().join("gone"), ..config };
        let failure = hand_over(&gone, &password, false).expect_err("nowhere to write");
        let expected = format!(
            "made the user `root`, but cannot write its password to `{}`; `larder user password root` sets another",
            gone.data_dir.join(PASSWORD_FILE).display()
        );
        assert_eq!(failure.to_string(), expected);
    }
}
