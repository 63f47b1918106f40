//! Before the first request: the store opened, and somebody who may do everything in it.
//!
//! `root` is made where there is none, once, however many processes start at the same time; the password that
//! nobody chose is printed once, and kept nowhere.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use account::{Password, change};
use anyhow::Context;
use jiff::Timestamp;
use record::{Batch, Serial};
use rustix::fs::{Access, access};
use store::{BlobError, BlobStore, CommitError, DatabaseLocation, Records, RecordsOptions};

use crate::config::Config;
use crate::stored::{Keeper, Stored};
use crate::{accounts, identity};

/// Makes the data directory where there is none, closed to other users of the machine: it holds what passwords
/// are checked against, and what logins are signed with.
///
/// # Errors
/// If it cannot be made.
pub fn create_data_dir(path: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o750);
    builder
        .create(path)
        .with_context(|| format!("cannot create the data directory `{}`", path.display()))
}

/// Opens the store of `config`, and makes `root` and what logins are signed with where they are missing.
///
/// # Errors
/// What cannot be opened or written, with its place.
pub async fn open_keeper(config: &Config) -> anyhow::Result<Keeper> {
    let keeper = open(config).await?;
    if let Some(password) = initialize(&keeper.records, default_root_password(config)).await? {
        announce(config, &password)?;
    }
    Ok(keeper)
}

/// The password of a new `root` where nobody chose one: the empty one, if devpi's ways were chosen; none: one is
/// to be made.
pub fn default_root_password(config: &Config) -> Option<Password> {
    let empty = || Password::new_or_empty("").expect("no password is shorter");
    config.python.devpi_defaults.then(empty)
}

/// Opens the store of `config`; writes nothing into it but its layout and its name. Where either half is there
/// and the other is not, nothing is made.
///
/// # Errors
/// What cannot be opened, with its place; records and blobs that do not belong together.
pub async fn open(config: &Config) -> anyhow::Result<Keeper> {
    let options = RecordsOptions { poll_interval: config.store.poll, ..RecordsOptions::default() };
    let (database, location) = (config.database(), config.blobs());
    let spool = config.data_dir.join("spool");
    let unreadable = || format!("cannot open the blobs in `{location}`");
    let existing = match BlobStore::open_existing(&location, &spool).await {
        Err(BlobError::Absent { .. }) => None,
        opened => Some(opened.with_context(unreadable)?),
    };
    if let (DatabaseLocation::Sqlite(path), Some(blobs)) = (&database, &existing)
        && std::fs::metadata(path).is_ok_and(|found| found.len() == 0) | !path.exists()
    {
        identity::check_beside_new_records(&database, blobs, &location).await?;
    }
    let records = Records::open(&database, options);
    let records = records.await.map_err(|error| with_reason(&database, error.into()))?;
    if existing.is_none() {
        identity::check_without_blobs(&records, &database, &location).await?;
    }
    let blobs = BlobStore::open(&location, &spool).await.with_context(unreadable)?;
    identity::settle(&records, &blobs, &database, &location).await?;
    Ok(Keeper::new(records, blobs))
}

/// Of a directory that it cannot write to, SQLite says only that it cannot open the file.
pub(crate) fn with_reason(location: &DatabaseLocation, error: anyhow::Error) -> anyhow::Error {
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

/// Makes what a new store lacks, and returns the password that `root` was made with: `password`, or one that
/// is made here. None if there is a `root` already: then it stays as it is.
///
/// # Errors
/// Those of the store, and of the system's random numbers.
pub async fn initialize(
    records: &Records,
    password: Option<Password>,
) -> anyhow::Result<Option<Password>> {
    identity::make(records).await?;
    let stored = foundations(records).await?;
    let secret = accounts::random()?;
    if let Some(batch) = change::create_login_secret(&stored.accounts, secret) {
        commit_unless_there(records, batch).await?;
    }
    if stored.accounts.user(&account::UserName::root()).is_some() {
        return Ok(None);
    }
    let is_random = password.is_none();
    let password = match password {
        Some(password) => password,
        None => accounts::random_password()?,
    };
    let salt = accounts::random()?;
    let make = || {
        let hash = if is_random { password.hash_of_random(salt) } else { password.hash(salt) };
        change::create_first_administrator(&stored.accounts, hash, Timestamp::now())
    };
    let batch = tokio::task::block_in_place(make)?;
    let is_made = commit_unless_there(records, batch).await?;
    Ok(is_made.then_some(password))
}

/// What every store has, and nothing else of it: there may be much.
async fn foundations(records: &Records) -> anyhow::Result<Stored> {
    let root = account::user_key(&account::UserName::root());
    let mut found = Vec::new();
    for key in [root, account::login_secret_key()] {
        found.extend(records.record(&key).await?);
    }
    Ok(Stored::default().apply(&found, Serial::ZERO))
}

/// What is in the store now.
///
/// # Errors
/// Those of reading it.
pub async fn load(records: &Records) -> anyhow::Result<Stored> {
    let (changed, serial) = records.records_after(Serial::ZERO).await?;
    Ok(Stored::default().apply(&changed, serial))
}

/// Commits; false if another process was first.
async fn commit_unless_there(records: &Records, batch: Batch) -> anyhow::Result<bool> {
    match records.commit(batch).await {
        Ok(_) => Ok(true),
        Err(CommitError::Mismatch(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Tells the password of `root`, this once.
fn announce(config: &Config, password: &Password) -> anyhow::Result<()> {
    if config.demo {
        // A demonstration is started again and again, and says each time what to try.
        let path = config.data_dir.join(crate::demo::PASSWORD_FILE);
        return crate::demo::keep_password(&path, password)
            .with_context(|| format!("cannot write `{}`", path.display()));
    }
    if password.reveal().is_empty() {
        eprintln!(
            "larder: made the user `root` with an empty password, since python.devpi_defaults is on; `larder \
             user password root` changes it"
        );
        return Ok(());
    }
    eprintln!(
        "larder: made the user `root` with the password {} (shown only now; `larder user password root` \
         changes it)",
        password.reveal()
    );
    Ok(())
}
