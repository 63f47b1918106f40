//! The highest serial that the records are known to have reached, noted beside the blobs.
//!
//! Records that were restored from an older copy look like any others. So a file or an object called `SERIAL` notes which
//! serial they had reached, with the name of the store: `IDENTITY SERIAL`, and a newline. It is written from time to time, and
//! before a sweep removes anything; it may lag behind, but never exceeds what the records had reached. If it is missing, cut,
//! or another store's, nothing is known.

use std::sync::Arc;

use record::Serial;

use super::error::{BlobError, blocking};
use super::identity::StoreIdentity;
use super::{Backend, BlobStore};

/// The name of the file or object.
pub(super) const NAME: &str = "SERIAL";

/// Longer than any line.
pub(super) const LINE_BYTES_MAX: u64 = 256;

impl BlobStore {
    /// The highest serial that the records of the store `identity` are known to have reached, at least; `None` if nothing is
    /// noted.
    ///
    /// # Errors
    /// The error of the disk or the object store.
    pub async fn highest_serial(
        &self,
        identity: &StoreIdentity,
    ) -> Result<Option<Serial>, BlobError> {
        let line = match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.read_serial()).await?
            }
            Backend::Objects(objects) => objects.read_serial().await?,
        };
        let Some(line) = line else { return Ok(None) };
        let serial = from_line(&line, identity);
        if serial.is_none() {
            let line = String::from_utf8_lossy(&line).escape_default().to_string();
            tracing::warn!(
                line,
                "the serial beside the blobs cannot be read, or is another store's"
            );
        }
        Ok(serial)
    }

    /// Notes that the records of the store that the blobs are [bound](BlobStore::bind) to have reached `serial`. Does nothing
    /// if a higher one is noted, or if they are not bound. If two processes note at once, the lower serial may win.
    ///
    /// # Errors
    /// [`BlobError::Away`]; the error of the disk or the object store.
    pub async fn note_serial(&self, serial: Serial) -> Result<(), BlobError> {
        let bound = match &self.backend {
            Backend::Directory(directory) => directory.bound(),
            Backend::Objects(objects) => objects.bound(),
        };
        let Some(identity) = bound else { return Ok(()) };
        self.check_identity().await?;
        match self.highest_serial(&identity).await? {
            Some(noted) if noted >= serial => Ok(()),
            _ => self.reset_serial(&identity, serial).await,
        }
    }

    /// Notes `serial` for the store `identity`, even if a higher one is noted: an administrator wants these records.
    ///
    /// # Errors
    /// The error of the disk or the object store.
    pub async fn reset_serial(
        &self,
        identity: &StoreIdentity,
        serial: Serial,
    ) -> Result<(), BlobError> {
        let line = to_line(identity, serial);
        match &self.backend {
            Backend::Directory(directory) => {
                let directory = Arc::clone(directory);
                blocking(move || directory.write_serial(&line)).await
            }
            Backend::Objects(objects) => objects.write_serial(line).await,
        }
    }
}

fn to_line(identity: &StoreIdentity, serial: Serial) -> String {
    format!("{identity} {serial}\n")
}

fn from_line(line: &[u8], identity: &StoreIdentity) -> Option<Serial> {
    // Without its newline it is cut, and the number may be too low.
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (name, serial) = line.split_once(' ')?;
    (name == identity.to_string()).then(|| serial.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_read_back_for_its_store_alone() {
        let name = |text: &str| text.parse::<StoreIdentity>().expect("a name");
        let (ours, other) = (name("0123456789"), name("9876543210"));
        let line = to_line(&ours, Serial(120));
        assert_eq!(from_line(line.as_bytes(), &ours), Some(Serial(120)));
        assert_eq!(from_line(line.as_bytes(), &other), None);
        for flawed in ["", "0123456789 12", "0123456789", "0123456789 -1\n", "120\n", "#########\n"]
        {
            assert_eq!(from_line(flawed.as_bytes(), &ours), None, "{flawed}");
        }
        assert_eq!(from_line(b"\xff\n", &ours), None);
    }
}
