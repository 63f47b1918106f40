//! `VERSION`, `IDENTITY`, `SERIAL` and `CLOCK`: the small objects beside the blobs.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutPayload};

use super::Objects;
use crate::blobs::error::BlobError;
use crate::blobs::identity::{self, StoreIdentity};
use crate::blobs::{self, LAYOUT, highest_serial};

impl Objects {
    pub(super) async fn prepare_version(&self, must_exist: bool) -> Result<(), BlobError> {
        let key = self.key("VERSION");
        let failed = |action| {
            move |error| BlobError::object(action, self.place(&self.key("VERSION")), error)
        };
        match self.store.get(&key).await {
            Ok(found) => {
                let place = self.place(&key);
                let mut chunks = found.into_stream();
                // Somebody else's object may be large.
                let first = chunks.try_next().await.map_err(failed("read"))?.unwrap_or_default();
                match first == LAYOUT.as_bytes() {
                    true => Ok(()),
                    false => Err(blobs::unknown_layout(place, &first)),
                }
            }
            Err(Error::NotFound { .. }) if must_exist => match self.identity().await? {
                Some(_) => Ok(()),
                None => {
                    // The same answer comes from a bucket that does not exist, but not to this question.
                    let prefix = Path::from(self.prefix.as_str());
                    let mut listing = self.store.list(Some(&prefix));
                    listing.try_next().await.map_err(failed("list"))?;
                    Err(BlobError::Absent { place: self.place(&key) })
                }
            },
            Err(Error::NotFound { .. }) => {
                let payload = PutPayload::from_static(LAYOUT.as_bytes());
                self.store.put(&key, payload).await.map_err(failed("write"))?;
                Ok(())
            }
            Err(error) => Err(failed("read")(error)),
        }
    }

    /// The store that the blobs belong to now; `None` if they have no name yet.
    pub(in crate::blobs) async fn identity(&self) -> Result<Option<StoreIdentity>, BlobError> {
        let key = self.key(identity::NAME);
        let line = self.read_line(&key).await?;
        line.map(|line| StoreIdentity::from_line(&line, &self.place(&key))).transpose()
    }

    /// The content of a small object; `None` if it does not exist.
    async fn read_line(&self, key: &Path) -> Result<Option<Bytes>, BlobError> {
        let failed = |error| BlobError::object("read", self.place(key), error);
        let mut chunks = match self.store.get(key).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed)?.into_stream(),
        };
        // Somebody else's object may be large.
        Ok(Some(chunks.try_next().await.map_err(failed)?.unwrap_or_default()))
    }

    /// The note of the records' serial; `None` if there is none.
    pub(in crate::blobs) async fn read_serial(&self) -> Result<Option<Vec<u8>>, BlobError> {
        let line = self.read_line(&self.key(highest_serial::NAME)).await?;
        let bytes_max = highest_serial::LINE_BYTES_MAX as usize;
        Ok(line.map(|line| line[..line.len().min(bytes_max)].to_vec()))
    }

    pub(in crate::blobs) async fn write_serial(&self, line: String) -> Result<(), BlobError> {
        let key = self.key(highest_serial::NAME);
        let written = self.store.put(&key, line.into_bytes().into()).await;
        written.map_err(|error| BlobError::object("write", self.place(&key), error))?;
        Ok(())
    }

    /// What time it is for the object store.
    pub(in crate::blobs) async fn now(&self) -> Result<SystemTime, BlobError> {
        let key = self.key("CLOCK");
        let written = self.store.put(&key, PutPayload::from_static(b"its time is the store's\n"));
        written.await.map_err(|error| BlobError::object("write", self.place(&key), error))?;
        let found = self.store.head(&key).await;
        let found = found.map_err(|error| BlobError::object("inspect", self.place(&key), error))?;
        Ok(found.last_modified.into())
    }

    /// The store that the blobs must belong to, if there is one.
    pub(in crate::blobs) fn bound(&self) -> Option<StoreIdentity> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names the store that the blobs belong to, if they have no name yet, or if `is_replacing`, whatever name they have.
    pub(in crate::blobs) async fn adopt(
        &self,
        identity: &StoreIdentity,
        is_replacing: bool,
    ) -> Result<(), BlobError> {
        let key = self.key(identity::NAME);
        if is_replacing || self.identity().await?.is_none() {
            let written = self.store.put(&key, identity.to_line().into_bytes().into()).await;
            written.map_err(|error| BlobError::object("write", self.place(&key), error))?;
        }
        identity.check(self.identity().await?.as_ref(), &self.place(&key))
    }

    /// Binds the blobs to the store `identity`, if they belong to it now.
    pub(in crate::blobs) async fn bind(&self, identity: &StoreIdentity) -> Result<(), BlobError> {
        identity.check(self.identity().await?.as_ref(), &self.place(&self.key(identity::NAME)))?;
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity.clone());
        Ok(())
    }

    /// Checks that the blobs belong to the store that this is bound to.
    ///
    /// # Errors
    /// [`BlobError::Away`], or the error of the object store.
    pub(in crate::blobs) async fn check_identity(&self) -> Result<(), BlobError> {
        let Some(bound) = self.bound() else { return Ok(()) };
        let found = self.identity().await;
        let place = self.place(&self.key(identity::NAME));
        let checked = found.and_then(|found| bound.check(found.as_ref(), &place));
        self.is_away.store(checked.is_err(), Ordering::Relaxed);
        checked
    }

    /// [`Objects::check_identity`] if it failed the last time.
    pub(super) async fn check_identity_if_away(&self) -> Result<(), BlobError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => self.check_identity().await,
            false => Ok(()),
        }
    }
}
