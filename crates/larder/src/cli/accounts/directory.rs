//! The users and tokens of a store: loaded, and changed where they are kept.

use account::Snapshot;
use record::{Batch, Record, Serial};
use store::records::OpenError;
use store::{CommitError, DatabaseLocation, Records, RecordsOptions};

use crate::cli::Exit;
use crate::config::Config;
use crate::stored::{ATTEMPTS_MAX, is_enough};
use crate::{security, setup};

/// The users and tokens of an open store, as of the last look.
pub(super) struct Directory {
    records: Records,
    snapshot: Snapshot,
    /// Their indexes, where these are of interest.
    index: Option<pypi::Snapshot>,
    serial: Serial,
}

/// What is done with a store, and how much of it is read for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To show users and tokens; nothing is written.
    Show,
    /// To change users and tokens.
    Change,
    /// To change users with what is theirs.
    ChangeAll,
}

impl Directory {
    /// Opens the store of `config`, and loads who is in it.
    ///
    /// # Errors
    /// A store that cannot be opened or read, or that was never initialized.
    pub(super) async fn open(config: &Config, purpose: Purpose) -> Result<Directory, Exit> {
        let location = config.database();
        let missing = || {
            Exit::failure(format!(
                "there are no users in {location}: `larder init` makes the first"
            ))
        };
        // To open is to create, and a slip in a path is no wish for another store.
        if let DatabaseLocation::Sqlite(path) = &location
            && matches!(path.try_exists(), Ok(false))
        {
            return Err(missing());
        }
        let options =
            RecordsOptions { poll_interval: config.store.poll, ..RecordsOptions::default() };
        let records = match purpose {
            Purpose::Show => Records::open_read_only(&location, options).await,
            Purpose::Change | Purpose::ChangeAll => Records::open(&location, options).await,
        };
        let records = records.map_err(|error| match error {
            OpenError::OlderLayout { found: 0, .. } => missing(),
            error => {
                Exit::failure(format_args!("{:#}", setup::with_reason(&location, error.into())))
            }
        })?;
        let index = (purpose == Purpose::ChangeAll).then(pypi::Snapshot::default);
        let serial = Serial::ZERO;
        let mut directory = Directory { records, snapshot: Snapshot::new(), index, serial };
        directory.refresh().await?;
        if directory.snapshot.users().len() == 0 {
            directory.close().await;
            return Err(missing());
        }
        Ok(directory)
    }

    /// Who is there.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Commits what `decide` makes of what is there, decided anew where another write came first; gives what
    /// it says besides.
    ///
    /// # Errors
    /// That of `decide`, and those of the store: nothing is written then.
    pub(super) async fn change<T>(
        &mut self,
        mut decide: impl FnMut(&Snapshot) -> Result<(Option<Batch>, T), Exit>,
    ) -> Result<T, Exit> {
        self.change_all(|snapshot, _| decide(snapshot)).await
    }

    /// The same, where the indexes count as well: there are some only for [`Purpose::ChangeAll`].
    ///
    /// # Errors
    /// As [`Directory::change`].
    pub(super) async fn change_all<T>(
        &mut self,
        mut decide: impl FnMut(&Snapshot, Option<&pypi::Snapshot>) -> Result<(Option<Batch>, T), Exit>,
    ) -> Result<T, Exit> {
        let mut attempts = 0;
        loop {
            let (batch, said) = decide(&self.snapshot, self.index.as_ref())?;
            let Some(batch) = batch else { return Ok(said) };
            attempts += 1;
            let changes = security::changes(&self.snapshot, self.index.as_ref(), &batch);
            let changes = changes.by_command();
            let committed = self.records.commit(batch).await;
            match &committed {
                Ok(serial) => changes.committed(*serial),
                Err(CommitError::OutcomeUnknown(_)) => drop(changes),
                Err(_) => changes.refused(),
            }
            match committed {
                Ok(_) => {
                    self.refresh().await?;
                    return Ok(said);
                }
                Err(CommitError::Mismatch(_)) if attempts < ATTEMPTS_MAX => self.refresh().await?,
                Err(CommitError::Mismatch(mismatch)) => {
                    return Err(Exit::failure(format!(
                        "others wrote first, {attempts} times: {mismatch}; nothing was written"
                    )));
                }
                Err(error) => return Err(Exit::failure(error)),
            }
        }
    }

    /// Takes in what was written since the last look.
    async fn refresh(&mut self) -> Result<(), Exit> {
        let mut pending: Vec<Record> = Vec::new();
        let mut snapshot = self.snapshot.clone();
        let mut index = self.index.clone();
        let mut troubles: Vec<String> = Vec::new();
        let mut apply = |pending: &mut Vec<Record>| {
            let (next, found) = snapshot.apply(pending);
            snapshot = next;
            troubles.extend(found.iter().map(ToString::to_string));
            if let Some(before) = &index {
                let applied = before.apply(pending);
                troubles.extend(applied.troubles.iter().map(ToString::to_string));
                index = Some(applied.snapshot);
            }
            pending.clear();
        };
        let reading = self.records.read_after(self.serial, |record| {
            if is_enough(&pending, &record) {
                apply(&mut pending);
            }
            pending.push(record);
        });
        let serial = reading.await.map_err(Exit::failure)?;
        apply(&mut pending);
        for trouble in troubles {
            super::note(&format!("warning: a record cannot be read: {trouble}"));
        }
        (self.snapshot, self.index, self.serial) = (snapshot, index, serial);
        Ok(())
    }

    /// Lets go of the store.
    pub(super) async fn close(&self) {
        self.records.close().await;
    }
}
