//! [`Directory`]: a store as a command sees it. It loads users, tokens and indexes, and changes them in the store itself.
//!
//! It asks no server. Running servers on the same store see its commits as they see each other's writes.

use std::sync::LazyLock;

use account::Snapshot;
use config::Config;
use record::{Batch, Record, Serial, UnreadableRecord};
use state::stored::{WriteFailure, until_committed};
use state::{security, setup};
use store::records::OpenError;
use store::{BlobStore, CommitError, DatabaseLocation, Follower, Records, RecordsOptions, State};

use super::{Exit, note};

/// An open store, as of the last look.
pub(super) struct Directory {
    follower: Follower<Seen>,
    /// The blob store, if written records name blobs.
    blobs: Option<BlobStore>,
}

/// The state that was read.
#[derive(Clone)]
struct Seen {
    serial: Serial,
    /// Users and tokens.
    accounts: Snapshot,
    /// The indexes, if they were read.
    index: Option<pypi::Snapshot>,
}

impl State for Seen {
    fn serial(&self) -> Serial {
        self.serial
    }

    fn apply(&self, records: &[Record], serial: Serial) -> (Seen, Vec<UnreadableRecord>) {
        let (accounts, mut troubles) = self.accounts.apply(records);
        let index = self.index.as_ref().map(|index| {
            let applied = index.apply(records);
            troubles.extend(applied.troubles);
            applied.snapshot
        });
        (Seen { serial, accounts, index }, troubles)
    }
}

/// What a command does with a store, which decides how much of it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To show users and tokens; nothing is written.
    Show,
    /// To change users and tokens.
    Change,
    /// To show indexes and their contents; nothing is written.
    ShowAll,
    /// To change users with their belongings, or indexes.
    ChangeAll,
    /// To write records that name existing blobs.
    Push,
}

impl Purpose {
    fn writes(self) -> bool {
        !matches!(self, Purpose::Show | Purpose::ShowAll)
    }

    fn has_index(self) -> bool {
        !matches!(self, Purpose::Show | Purpose::Change)
    }
}

impl From<WriteFailure> for Exit {
    fn from(failure: WriteFailure) -> Exit {
        Exit::failure(failure)
    }
}

impl Directory {
    /// Opens the store of `config`, and reads its users.
    ///
    /// # Errors
    /// A store that cannot be opened or read, or that was never initialized.
    async fn open(config: &Config, purpose: Purpose) -> Result<Directory, Exit> {
        let location = config.database();
        let missing = || {
            Exit::failure(format!(
                "there are no users in {location}: is that the data directory that you mean (--data-dir, --config)? \
                 `larder init` makes the first"
            ))
        };
        // Opening creates a store, and a mistyped path must not create one.
        if let DatabaseLocation::Sqlite(path) = &location
            && matches!(path.try_exists(), Ok(false))
        {
            return Err(missing());
        }
        let options =
            RecordsOptions { poll_interval: Some(config.store.poll), ..RecordsOptions::default() };
        let records = match purpose.writes() {
            false => Records::open_read_only(&location, options).await,
            true => Records::open(&location, options).await,
        };
        let records = records.map_err(|error| match error {
            OpenError::OlderLayout { found: 0, .. } => missing(),
            error => {
                Exit::failure(format_args!("{:#}", setup::with_reason(&location, error.into())))
            }
        })?;
        let blobs = match purpose {
            Purpose::Push => {
                let (place, spool) = (config.blobs(), config.data_dir.join("spool"));
                let opened = BlobStore::open_existing(&place, &spool).await;
                Some(opened.map_err(|error| {
                    Exit::failure(format!("cannot open the blobs in `{place}`: {error}"))
                })?)
            }
            _ => None,
        };
        let empty = || pypi::Snapshot::of_server(config.python.devpi_defaults);
        let index = purpose.has_index().then(empty);
        let nothing = Seen { serial: Serial::ZERO, accounts: Snapshot::new(), index };
        let mut directory = Directory { follower: Follower::new(records, nothing), blobs };
        directory.refresh().await?;
        if directory.snapshot().users().len() == 0 {
            directory.close().await;
            return Err(missing());
        }
        Ok(directory)
    }

    /// Opens the store of `config`, calls `act`, and closes the store.
    ///
    /// # Errors
    /// Those of [`Directory::open`] and of `act`.
    pub(super) async fn with<T>(
        config: &Config,
        purpose: Purpose,
        act: impl AsyncFnOnce(&mut Directory) -> Result<T, Exit>,
    ) -> Result<T, Exit> {
        let mut directory = Directory::open(config, purpose).await?;
        let done = act(&mut directory).await;
        directory.close().await;
        done
    }

    /// Users and tokens.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.follower.state().accounts
    }

    /// The indexes; empty if the [`Purpose`] does not need them.
    pub(super) fn index(&self) -> &pypi::Snapshot {
        static NONE: LazyLock<pypi::Snapshot> = LazyLock::new(pypi::Snapshot::default);
        self.follower.state().index.as_ref().unwrap_or(&NONE)
    }

    /// Commits what `decide` makes of the current state, and decides again if another write came first; returns its result.
    ///
    /// # Errors
    /// Those of `decide` and of the store: nothing is written then.
    pub(super) async fn change<T>(
        &mut self,
        mut decide: impl FnMut(&Snapshot) -> Result<(Option<Batch>, T), Exit>,
    ) -> Result<T, Exit> {
        self.change_all(|snapshot, _| decide(snapshot)).await
    }

    /// Commits as [`Directory::change`] does, for a decision that needs the indexes as well. They are loaded only for
    /// [`Purpose::ChangeAll`] and [`Purpose::Push`].
    ///
    /// # Errors
    /// As [`Directory::change`].
    pub(super) async fn change_all<T>(
        &mut self,
        mut decide: impl FnMut(&Snapshot, Option<&pypi::Snapshot>) -> Result<(Option<Batch>, T), Exit>,
    ) -> Result<T, Exit> {
        until_committed(async || {
            let Seen { accounts, index, .. } = self.follower.state();
            let (batch, said) = decide(accounts, index.as_ref())?;
            let Some(batch) = batch else { return Ok(Some(said)) };
            self.touch(&batch).await?;
            let changes = security::changes(accounts, index.as_ref(), &batch);
            let changes = changes.by_command();
            let committed = self.follower.records().commit(batch).await;
            changes.settle(&committed);
            let is_done = match committed {
                Ok(_) => true,
                Err(CommitError::Mismatch(_)) => false,
                Err(error) => return Err(Exit::failure(error)),
            };
            self.refresh().await?;
            Ok(is_done.then_some(said))
        })
        .await
    }

    /// [`Directory::change_all`], for changes of indexes.
    ///
    /// # Errors
    /// As [`Directory::change`].
    pub(super) async fn change_indexes<T>(
        &mut self,
        mut decide: impl FnMut(&Snapshot, &pypi::Snapshot) -> Result<(Option<Batch>, T), Exit>,
    ) -> Result<T, Exit> {
        let none = pypi::Snapshot::default();
        self.change_all(|accounts, index| decide(accounts, index.unwrap_or(&none))).await
    }

    /// Makes the bytes that a batch names young, as a server does, so that no sweep takes them before the commit.
    async fn touch(&self, batch: &Batch) -> Result<(), Exit> {
        let Some(blobs) = &self.blobs else { return Ok(()) };
        for digest in batch.writes.iter().flat_map(|write| &write.blobs) {
            let is_there = blobs.touch(*digest).await.map_err(Exit::failure)?;
            if !is_there {
                return Err(Exit::failure(format!(
                    "the file with the digest {digest} is missing from the blobs: nothing was written; `larder verify` \
                     lists all that is missing"
                )));
            }
        }
        Ok(())
    }

    /// Reads what was written since the last look.
    async fn refresh(&mut self) -> Result<(), Exit> {
        let news = self.follower.catch_up().await.map_err(Exit::failure)?;
        for trouble in news.troubles {
            note(&format!("warning: a record cannot be read: {trouble}"));
        }
        Ok(())
    }

    /// Lets go of the store.
    async fn close(&self) {
        self.follower.records().close().await;
    }
}
