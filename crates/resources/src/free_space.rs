//! Free space on the disks that are written to: below a floor only administrators write.
//!
//! [`FreeSpace::look`] asks the file systems at most once a second, and only when a caller needs it. A full disk is worse than
//! a refused write: the database could not even record deletions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a look is good for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The disks, and how much of them was free lately.
#[derive(Debug)]
pub struct FreeSpace {
    places: Vec<PathBuf>,
    /// The floor; 0 if there is none.
    pub bytes_min: u64,
    lately: Mutex<LastLook>,
}

#[derive(Debug, Default)]
struct LastLook {
    looked_at: Option<Instant>,
    free: Option<FreeDisk>,
}

/// The disk with the least free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeDisk {
    /// A directory on it.
    pub place: PathBuf,
    /// Free bytes there.
    pub bytes: u64,
}

impl FreeSpace {
    /// The disks of these directories, and the floor; 0 if there is none.
    pub fn new(places: Vec<PathBuf>, bytes_min: u64) -> FreeSpace {
        FreeSpace { places, bytes_min, lately: Mutex::default() }
    }

    /// The disk with the least free space; `None` if that is not known.
    pub async fn look(self: &Arc<Self>) -> Option<FreeDisk> {
        {
            let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let is_old = lately.looked_at.is_none_or(|at| now - at >= LOOK_INTERVAL);
            if !is_old {
                return lately.free.clone();
            }
            // Until the look ends, others use the last value.
            lately.looked_at = Some(now);
        }
        let this = self.clone();
        let free = tokio::task::spawn_blocking(move || this.ask()).await.ok().flatten();
        self.lately.lock().unwrap_or_else(PoisonError::into_inner).free.clone_from(&free);
        free
    }

    /// The free space, if it is below the floor.
    pub async fn shortage(self: &Arc<Self>) -> Option<FreeDisk> {
        if self.bytes_min == 0 {
            return None;
        }
        self.look().await.filter(|free| free.bytes < self.bytes_min)
    }

    fn ask(&self) -> Option<FreeDisk> {
        let frees = self
            .places
            .iter()
            .filter_map(|place| Some(FreeDisk { place: place.clone(), bytes: free_bytes(place)? }));
        frees.min_by_key(|free| free.bytes)
    }
}

/// Free bytes on the disk of `place`, which may not exist yet; `None` if that is not known. Blocks.
pub fn free_bytes(place: &Path) -> Option<u64> {
    place.ancestors().find_map(|place| {
        // An empty path is the working directory.
        let asked = if place.as_os_str().is_empty() { ".".as_ref() } else { place };
        let facts = rustix::fs::statvfs(asked).ok()?;
        Some(facts.f_bavail.saturating_mul(facts.f_frsize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn below_the_floor() {
        let directory = tempfile::tempdir().expect("a directory");
        let with =
            |bytes_min| Arc::new(FreeSpace::new(vec![directory.path().to_owned()], bytes_min));
        assert_eq!(with(0).shortage().await, None);
        assert_eq!(with(1).shortage().await, None);
        let all = with(u64::MAX);
        let short = all.shortage().await.expect("no disk has as much");
        assert_eq!(short.place, directory.path());
        assert_eq!(all.shortage().await, Some(short), "as was seen a moment ago");
    }
}
