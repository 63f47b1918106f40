//! [`FollowerPage`]: a page or a list as it is kept, for a server that follows this one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pypi::ProjectName;

use super::Subject;
use crate::disk::{EntryFile, EntryHead};
use crate::upstream::UpstreamError;
use crate::{Mirror, Mirrors, blocking};

/// A page or a list as it is kept, for a server that follows this one.
pub struct FollowerPage {
    /// Upstream's tag, or one of the content.
    pub etag: String,
    /// Upstream's time of the last change.
    pub last_modified: Option<String>,
    /// Upstream's serial.
    pub serial: Option<u64>,
    /// How long ago upstream confirmed it.
    pub age: Duration,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The file with its bytes.
    pub file: Arc<EntryFile>,
}

impl Mirrors {
    /// The page of a project, or the list of projects, as it is kept; `None` if upstream has none.
    ///
    /// # Errors
    /// [`UpstreamError`] if nothing is known and upstream does not answer, or if it cannot be kept.
    pub async fn follower_page(
        self: &Arc<Mirrors>,
        mirror: &Arc<Mirror>,
        project: Option<ProjectName>,
        is_forced: bool,
    ) -> Result<Option<FollowerPage>, UpstreamError> {
        let (subject, found) = match project {
            None => (Subject::List, self.list(mirror).await?),
            Some(name) => {
                let found = self.project(mirror, &name, is_forced).await?;
                (Subject::Project(name), Some(found))
            }
        };
        if !found.is_some_and(|it| it.known.names().is_some() || it.known.page().is_some()) {
            return Ok(None);
        }
        let (disk, key) = (self.disk.clone(), mirror.key(&subject.name()));
        let kept = blocking(move || Ok(disk.checked_entry(&key))).await?;
        let Some((head, file)) = kept else {
            return Err(UpstreamError::busy("the cache of the mirrors has no room for it"));
        };
        let EntryHead { size_bytes, sha256, confirmed_at, etag, last_modified, serial, .. } = head;
        let confirmed_at = Duration::from_millis(u64::try_from(confirmed_at).unwrap_or(0));
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + confirmed_at);
        Ok(Some(FollowerPage {
            etag: etag.unwrap_or_else(|| format!("\"sha256-{sha256}\"")),
            last_modified,
            serial,
            age: age.unwrap_or_default(),
            size_bytes,
            file: file.into(),
        }))
    }
}
