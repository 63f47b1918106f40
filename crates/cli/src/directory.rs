//! [`Directory`]: a store as a command sees it. It loads users, tokens and indexes, and operations are committed to the store
//! itself.
//!
//! It asks no server. Running servers on the same store see its commits as they see each other's writes.

use std::sync::Arc;

use account::Snapshot;
use config::Config;
use following::FollowerNote;
use operations::{Basis, Done, Keeper, Operation, Refusal, Rules, Sender};
use record::{Batch, Digest, Record, Serial, UnreadableRecord};
use state::setup;
use state::stored::{Stored, WriteFailure};
use store::records::OpenError;
use store::{
    BlobError, BlobStore, CommitError, DatabaseLocation, Follower, Records, RecordsOptions, State,
};

use super::{Exit, note};

/// An open store, as of the last look.
pub(super) struct Directory {
    follower: Follower<LoadedState>,
    /// The blob store, if written records name blobs.
    blobs: Option<BlobStore>,
    rules: Arc<Rules>,
}

/// The state that was read: users and tokens, and the indexes if they are needed.
#[derive(Clone)]
struct LoadedState {
    stored: Stored,
    has_index: bool,
}

impl State for LoadedState {
    fn serial(&self) -> Serial {
        self.stored.serial
    }

    fn apply(self, records: &[Record], serial: Serial) -> (LoadedState, Vec<UnreadableRecord>) {
        let (stored, troubles) =
            self.stored.apply_without_articles(records, serial, self.has_index);
        (LoadedState { stored, has_index: self.has_index }, troubles)
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

impl Directory {
    /// Opens the store of `config`, and reads its users.
    ///
    /// # Errors
    /// A store that cannot be opened or read, or that was never initialized.
    async fn open(config: &Config, purpose: Purpose) -> Result<Directory, Exit> {
        if purpose.writes() {
            FollowerNote::refuse(&config.data_dir)?;
        }
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
        let (stored, has_index) = (Stored::of_server(config), purpose.has_index());
        let follower = Follower::new(records, LoadedState { stored, has_index });
        let mut directory = Directory { follower, blobs, rules: Arc::new(Rules::of(config)) };
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
        &self.follower.state().stored.accounts
    }

    /// The indexes; empty if the [`Purpose`] does not need them.
    pub(super) fn index(&self) -> &pypi::Snapshot {
        &self.follower.state().stored.index
    }

    /// Who did what to the indexes, as of the last look.
    pub(super) fn logs(&self) -> &pypi::index_log::IndexLogs {
        &self.follower.state().stored.logs
    }

    /// Carries out an operation on the store.
    ///
    /// # Errors
    /// Why it is refused: nothing is written then.
    pub(super) async fn carry_out<O: Operation>(
        &mut self,
        wish: &O,
    ) -> Result<Done<O::Outcome>, Refusal> {
        operations::carry_out(self, &Sender::Command, wish).await
    }

    /// Carries out an operation that is made of the state, and made again if another write came first.
    ///
    /// # Errors
    /// As [`Directory::carry_out`].
    pub(super) async fn carry_out_with<O: Operation>(
        &mut self,
        make: impl Fn(&Basis) -> Result<O, Refusal>,
    ) -> Result<Done<O::Outcome>, Refusal> {
        let make = |basis: Arc<Basis>| std::future::ready(make(&basis));
        operations::carry_out_with(self, &Sender::Command, make).await
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

impl Keeper for Directory {
    fn stored(&self) -> Result<Arc<Stored>, WriteFailure> {
        Ok(Arc::new(self.follower.state().stored.clone()))
    }

    fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    async fn touch(&self, blob: Digest) -> Result<bool, BlobError> {
        match &self.blobs {
            Some(blobs) => blobs.touch(blob).await,
            None => Ok(true),
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<Serial, CommitError> {
        self.follower.records().commit(batch).await
    }

    async fn shows(&mut self, serial: Serial) -> bool {
        match self.refresh().await {
            Ok(()) => self.follower.state().serial() >= serial,
            Err(_) => false,
        }
    }
}
