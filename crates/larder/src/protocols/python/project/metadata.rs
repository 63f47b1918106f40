//! The metadata of versions, read for an answer within a bound for all answers together.
//!
//! versions -> their blobs, opened ([`MetadataReader`]) -> a turn, if they are large -> their bytes ([`LoadedMetadata`]).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use pypi::VersionView;
use pypi::devpi::{self, MetadataBytes};
use record::Digest;
use resources::turns::{Turn, Turns};
use state::release_metadata;
use store::{BlobError, BlobReader};

use super::AT_ONCE;
use crate::app::App;
use crate::front::error::HttpError;

/// Versions with more metadata than this are large: few projects have that much, but anybody who may upload can make one.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Metadata of large ones that is in memory, for all answers together; a release's own has at most 16 MiB.
const LARGE_BYTES_MAX: u64 = 24 << 20;

/// Bytes of metadata for each turn.
const TURN_BYTES: u64 = 1 << 20;

static LARGE: LazyLock<Turns> = LazyLock::new(turns);

/// As much again may be on its way to clients, who may read slowly.
static SENT: LazyLock<Turns> = LazyLock::new(turns);

fn turns() -> Turns {
    Turns::new((LARGE_BYTES_MAX / TURN_BYTES) as usize)
}

/// Metadata that is found and not yet read.
pub(super) struct MetadataReader {
    blobs: Vec<(Digest, BlobReader)>,
    bytes: u64,
}

/// Metadata in memory.
pub(crate) struct LoadedMetadata {
    bytes: MetadataBytes,
    _turn: Option<Turn>,
}

impl Deref for LoadedMetadata {
    type Target = MetadataBytes;

    fn deref(&self) -> &MetadataBytes {
        &self.bytes
    }
}

/// The metadata of these versions. A blob that is missing from the store is logged and left out.
pub(crate) async fn metadata(
    app: &Arc<App>,
    versions: &[VersionView<'_>],
) -> Result<LoadedMetadata, HttpError> {
    MetadataReader::of(app, versions).await?.load().await
}

fn unreadable(error: BlobError) -> HttpError {
    tracing::error!(%error, "a release's metadata cannot be read");
    HttpError::unavailable("the metadata cannot be read now; it has been logged", 5)
}

impl MetadataReader {
    /// The metadata of these versions.
    pub(super) async fn of(
        app: &Arc<App>,
        versions: &[VersionView<'_>],
    ) -> Result<MetadataReader, HttpError> {
        let blobs = &app.store.blobs;
        let opening = devpi::metadata_digests(versions).into_iter().map(|digest| async move {
            let blob = blobs.open_blob(digest).await.map_err(unreadable)?;
            if blob.is_none() {
                tracing::error!(%digest, "a release's metadata is missing from the store");
            }
            Ok::<_, HttpError>((digest, blob))
        });
        // Collected first: the futures borrow too much for the compiler to see through otherwise.
        let opening: Vec<_> = opening.collect();
        let mut found = stream::iter(opening).buffer_unordered(AT_ONCE);
        let mut opened = MetadataReader { blobs: Vec::new(), bytes: 0 };
        while let Some((digest, blob)) = found.try_next().await? {
            let Some(blob) = blob else { continue };
            // Any number of bases may have metadata for one version.
            if opened.bytes + blob.size_bytes() > LARGE_BYTES_MAX && !opened.blobs.is_empty() {
                tracing::warn!(%digest, "the metadata of a release is left out: with it, the answer would be too large");
                continue;
            }
            opened.bytes += blob.size_bytes();
            opened.blobs.push((digest, blob));
        }
        Ok(opened)
    }

    /// Whether there is so much that an answer is sent version by version.
    pub(super) fn is_large(&self) -> bool {
        self.bytes > SMALL_BYTES_MAX
    }

    fn turns(&self) -> u32 {
        self.bytes.min(LARGE_BYTES_MAX).div_ceil(TURN_BYTES) as u32
    }

    /// The turn to send it, which is kept until the client has received it.
    pub(super) async fn turn_to_send(&self) -> Turn {
        SENT.take_many(self.turns()).await
    }

    /// Reads it.
    pub(super) async fn load(self) -> Result<LoadedMetadata, HttpError> {
        let turn = if self.is_large() { Some(LARGE.take_many(self.turns()).await) } else { None };
        let reading = self.blobs.into_iter().map(|(digest, blob)| async move {
            let bytes = blob.bytes(release_metadata::BYTES_MAX).await.map_err(unreadable)?;
            Ok::<_, HttpError>((digest, bytes))
        });
        let reading: Vec<_> = reading.collect();
        let bytes: HashMap<_, _> =
            stream::iter(reading).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(LoadedMetadata { bytes, _turn: turn })
    }
}
