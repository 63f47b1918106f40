//! [`LiveKeeper`]: the running server as a place that operations are committed to.

use std::sync::Arc;

use audit::Audit;
use jiff::Timestamp;
use operations::{Basis, Keeper, Rules, Sender};
use record::{Batch, Digest, Serial};
use state::stored::{Stored, WriteFailure};
use store::{BlobError, CommitError};

use super::App;

/// The server's published state, and the store behind it.
pub struct LiveKeeper<'app>(&'app App);

impl App {
    /// Where operations are committed to.
    pub fn keeper(&self) -> LiveKeeper<'_> {
        LiveKeeper(self)
    }

    /// The newest state, for a decision about a wish of `sender`.
    ///
    /// # Errors
    /// [`WriteFailure::NotLoaded`].
    pub(crate) fn basis(&self, sender: Sender) -> Result<Basis, WriteFailure> {
        Ok(self.basis_on(self.keeper().stored()?, sender))
    }

    /// [`App::basis`]. If it lacks what the wish is about, this process may be behind: then that of the store as it is now.
    ///
    /// # Errors
    /// Also if the store does not say how far it is.
    pub(crate) async fn basis_with(
        &self,
        sender: &Sender,
        has_all: impl Fn(&Basis) -> bool,
    ) -> Result<Basis, WriteFailure> {
        let basis = self.basis(sender.clone())?;
        match has_all(&basis) || !self.keeper().is_further(basis.stored.serial).await? {
            true => Ok(basis),
            false => self.basis(sender.clone()),
        }
    }

    /// This state, for a decision about a wish of `sender`.
    pub(crate) fn basis_on(&self, stored: Arc<Stored>, sender: Sender) -> Basis {
        let now = Timestamp::now();
        Basis::new(stored, self.rules.clone(), sender, now, self.health.clocks.forget_before(now))
    }
}

impl Keeper for LiveKeeper<'_> {
    fn stored(&self) -> Result<Arc<Stored>, WriteFailure> {
        self.0.live_store.snapshot_full().ok_or(WriteFailure::NotLoaded)
    }

    fn rules(&self) -> &Arc<Rules> {
        &self.0.rules
    }

    fn forget_before(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.health.clocks.forget_before(now)
    }

    fn refuses(&self) -> Option<WriteFailure> {
        self.0.refuses_writes()
    }

    fn audit(&self) -> Option<Arc<Audit>> {
        Some(self.0.python.audit.clone())
    }

    async fn touch(&self, blob: Digest) -> Result<bool, BlobError> {
        self.0.store.blobs.touch(blob).await
    }

    async fn commit(&mut self, batch: Batch) -> Result<Serial, CommitError> {
        self.0.live_store.commit(batch).await
    }

    async fn shows(&mut self, serial: Serial) -> bool {
        self.0.live_store.shows(serial).await
    }

    async fn catch_up_with(&mut self, serial: Serial) -> bool {
        let patience = self.0.config.store.wait_for_serial;
        self.0.live_store.catch_up_with(serial, patience).await
    }

    async fn is_further(&mut self, serial: Serial) -> Result<bool, WriteFailure> {
        let patience = self.0.config.store.wait_for_serial;
        self.0.live_store.catch_up(serial, patience).await
    }
}
