//! [`Bundle`]: a zip of OSV records, each in a JSON file.
//!
//! The zip is checked as an upload is ([`SafeZip`]); its records are read one by one, each within a bound. What is no record, or
//! too large, is left out and counted. The zip stays open: whole records are read from it when they are asked for.

use std::sync::Arc;

use rawzip::ReaderAt;

use super::{Advisories, AdvisoriesBuilder, Advisory, ECOSYSTEM, OsvError, RecordOutcome};
use crate::archive::{ArchiveError, ArchiveLimits, SafeZip};

/// Largest record, in bytes. While one is read, it takes some ten times as much.
pub const RECORD_BYTES_MAX: u64 = 2 << 20;

/// Files in a zip at most: each takes some 200 bytes while the bundle is served.
pub const RECORDS_MAX: u64 = 200_000;

/// A bundle is refused if it has fewer than one in this many records of the one before from the same source.
pub const BUNDLE_SHRINK_MAX: usize = 2;

/// How many left-out records are named.
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
pub struct Bundle<R> {
    /// The records, indexed by project.
    pub advisories: Arc<Advisories>,
    zip: SafeZip<R>,
    /// How many records are of other ecosystems alone; they are left out.
    pub foreign: u64,
    /// The number of files that could not be read as a record, or not whole.
    pub unreadable: u64,
    /// The first of them, with the reason.
    pub unreadable_named: Vec<String>,
}

/// Why a zip is not used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Its structure is not as it should be.
    #[error("it is no zip of OSV records: {0}")]
    Zip(ArchiveError),
    /// The disk fails.
    #[error("it cannot be read: {0}")]
    Io(std::io::Error),
    /// Its records take too much memory.
    #[error("it is too large: {0}")]
    TooMuch(OsvError),
    /// The caller has stopped the reading.
    #[error("reading was cancelled")]
    Stopped,
    /// It has no record of the ecosystem.
    #[error(
        "it has no record of {ECOSYSTEM} that can be read, among {files} {}; unreadable are {unreadable}{named}",
        if *files == 1 { "file" } else { "files" }
    )]
    Empty {
        /// How many files are in it.
        files: usize,
        /// The number of files that are no record, though they should be.
        unreadable: u64,
        /// The first of these, with the reason, as the end of a sentence.
        named: String,
    },
}

impl<R: ReaderAt> Bundle<R> {
    /// Reads all records of the zip whose `bytes` are in `reader`. This takes seconds, or until `goes_on` returns false: it is
    /// called before each file, with the number of files that were read and that of all.
    ///
    /// # Errors
    /// [`BundleError`]. Single invalid records, or invalid parts of them, are left out instead.
    pub fn read(
        reader: R,
        bytes: u64,
        mut goes_on: impl FnMut(usize, usize) -> bool,
    ) -> Result<Bundle<R>, BundleError> {
        let zip = SafeZip::open(reader, bytes, &LIMITS).map_err(BundleError::Zip)?;
        let mut builder = AdvisoriesBuilder::default();
        let (mut foreign, mut unreadable, mut named) = (0, 0, Vec::new());
        for (place, member) in zip.members().iter().enumerate() {
            if !goes_on(place, zip.members().len()) {
                return Err(BundleError::Stopped);
            }
            if !member.name.ends_with(".json") {
                continue;
            }
            let outcome = match zip.read(member, "bytes in a record", RECORD_BYTES_MAX) {
                Ok(json) => match builder.add(&json, place as u32) {
                    Ok(RecordOutcome::Whole) => continue,
                    Ok(RecordOutcome::Foreign) => {
                        foreign += 1;
                        continue;
                    }
                    Ok(RecordOutcome::InPart(error)) => {
                        format!("a part of it does not count: {error}")
                    }
                    Err(error @ OsvError::TooMany) => return Err(BundleError::TooMuch(error)),
                    Err(error) => error.to_string(),
                },
                Err(ArchiveError::Io(error)) => return Err(BundleError::Io(error)),
                Err(error) => error.to_string(),
            };
            unreadable += 1;
            if named.len() < NAMED_MAX {
                let name = record::excerpt(&member.name, 100);
                named.push(format!("{name:?}: {outcome}"));
            }
        }
        let advisories = Arc::new(builder.finish());
        if advisories.is_empty() {
            let named = named.first().map_or_else(String::new, |named| format!(", as {named}"));
            return Err(BundleError::Empty { files: zip.members().len(), unreadable, named });
        }
        Ok(Bundle { advisories, zip, foreign, unreadable, unreadable_named: named })
    }

    /// Reads the record from the zip: JSON.
    ///
    /// # Errors
    /// If it cannot be read any more.
    pub fn record(&self, place: u32) -> Result<Vec<u8>, ArchiveError> {
        let member = &self.zip.members()[place as usize];
        self.zip.read(member, "bytes in a record", RECORD_BYTES_MAX)
    }

    /// Size of a record, in bytes.
    pub fn record_bytes(&self, advisory: &Advisory) -> u64 {
        self.zip.members()[advisory.place() as usize].size_bytes
    }
}

#[cfg(test)]
mod tests;
