//! The published states that requests are answered from, and what is said while this process has not read them yet.

use std::sync::Arc;

use state::stored::{Stored, WriteFailure};

use super::error::HttpError;
use crate::app::App;
use crate::published::aur_published::AurPublished;

impl App {
    /// The published state of the store.
    ///
    /// # Errors
    /// 503 until the store has been read for the first time.
    pub(crate) fn stored(&self) -> Result<Arc<Stored>, HttpError> {
        self.live_store.snapshot_full().ok_or_else(no_store)
    }

    /// The published packages of the AUR.
    ///
    /// # Errors
    /// 503 until the first snapshot is published.
    pub(crate) fn packages(&self) -> Result<Arc<AurPublished>, HttpError> {
        self.aur.snapshot_full().ok_or_else(no_packages)
    }
}

/// 503: the store has not been read yet.
pub(crate) fn no_store() -> HttpError {
    WriteFailure::NotLoaded.into()
}

/// 503: the AUR's packages have not been read yet.
pub(crate) fn no_packages() -> HttpError {
    HttpError::unavailable("the catalogue of packages is not loaded yet", 2)
}
