//! [`Bundle`]: a zip of OSV records, each in a JSON file.
//!
//! The zip is checked as an upload is ([`SafeZip`]); its records are read one by one, each within a bound. What is no record, or
//! too large, is left out and counted. The zip stays open: whole records are read from it when they are asked for.

use std::fs::File;
use std::sync::Arc;

use pypi::archive::{ArchiveError, ArchiveLimits, SafeZip};
use pypi::osv::{Advisories, AdvisoriesBuilder, Advisory, ECOSYSTEM, OsvError, Taken};
use rawzip::FileReader;
use tokio_util::sync::CancellationToken;

/// Largest record, in bytes. While one is read, it takes some ten times as much.
pub(crate) const RECORD_BYTES_MAX: u64 = 2 << 20;

/// Most files in a zip: each takes some 200 bytes as long as it is served.
const RECORDS_MAX: u64 = 200_000;

/// Most records that are named of those that are left out.
const NAMED_MAX: usize = 5;

const LIMITS: ArchiveLimits = ArchiveLimits {
    members_max: RECORDS_MAX,
    directory_bytes_max: 64 << 20,
    metadata_bytes_max: 0,
    ratio_max: 100,
    ratio_free_bytes: 64 << 20,
    inflated_bytes_max: 4 << 30,
};

/// The records of a zip, and the zip.
pub(crate) struct Bundle {
    pub(crate) advisories: Arc<Advisories>,
    zip: SafeZip<Arc<FileReader>>,
    /// How many files could not be read as a record, or not all of it.
    pub(crate) unreadable: u64,
    /// The first of them, with the reason.
    pub(crate) unreadable_named: Vec<String>,
}

/// Why a zip is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("it is no zip of OSV records: {0}")]
    Zip(#[from] ArchiveError),
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it is too large: {0}")]
    TooMuch(OsvError),
    #[error("nobody wants it any more")]
    Stopped,
    #[error(
        "it has no record of {ECOSYSTEM} that can be read, among {files} files; unreadable are {unreadable}{named}"
    )]
    Empty { files: usize, unreadable: u64, named: String },
}

impl Bundle {
    /// Reads all records. This blocks, for seconds, or until `stop`.
    ///
    /// # Errors
    /// [`BundleError`]. Single records that are not as they should be, or parts of them, are left out instead.
    pub(crate) fn read(file: File, stop: &CancellationToken) -> Result<Bundle, BundleError> {
        let bytes = file.metadata()?.len();
        let zip = SafeZip::open(Arc::new(FileReader::from(file)), bytes, &LIMITS)?;
        let mut builder = AdvisoriesBuilder::default();
        let (mut unreadable, mut named) = (0, Vec::new());
        for (place, member) in zip.members().iter().enumerate() {
            if stop.is_cancelled() {
                return Err(BundleError::Stopped);
            }
            if !member.name.ends_with(".json") {
                continue;
            }
            let outcome = match zip.read(member, "bytes in a record", RECORD_BYTES_MAX) {
                Ok(json) => match builder.add(&json, place as u32) {
                    Ok(Taken::Foreign | Taken::Whole) => continue,
                    Ok(Taken::InPart(error)) => format!("a part of it does not count: {error}"),
                    Err(error @ OsvError::TooMany) => return Err(BundleError::TooMuch(error)),
                    Err(error) => error.to_string(),
                },
                Err(ArchiveError::Io(error)) => return Err(error.into()),
                Err(error) => error.to_string(),
            };
            unreadable += 1;
            if named.len() < NAMED_MAX {
                let name: String = member.name.chars().take(100).collect();
                named.push(format!("{name:?}: {outcome}"));
            }
        }
        let advisories = Arc::new(builder.finish());
        if advisories.is_empty() {
            let named = named.first().map_or_else(String::new, |named| format!(", as {named}"));
            return Err(BundleError::Empty { files: zip.members().len(), unreadable, named });
        }
        Ok(Bundle { advisories, zip, unreadable, unreadable_named: named })
    }

    /// The record as it is in the zip: JSON. This blocks.
    ///
    /// # Errors
    /// If it cannot be read any more.
    pub(crate) fn record(&self, place: u32) -> Result<Vec<u8>, ArchiveError> {
        let member = &self.zip.members()[place as usize];
        self.zip.read(member, "bytes in a record", RECORD_BYTES_MAX)
    }

    /// Size of a record, in bytes.
    pub(crate) fn record_bytes(&self, advisory: &Advisory) -> u64 {
        self.zip.members()[advisory.place() as usize].size_bytes
    }
}

#[cfg(test)]
mod tests;
