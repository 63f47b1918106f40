//! Looking into release files: is the archive what it seems to every reader, and what does it say of itself?
//!
//! file + [`Filename`] -> [`inspect`] -> [`ArchiveFacts`]: the bytes of `METADATA` or `PKG-INFO`, verbatim, as
//! the index serves them beside a wheel. Nothing is unpacked to disk, memory is bounded by
//! [`ArchiveLimits`], and an archive that two readers could read differently is refused.
//!
//! A wheel must be whole: it has exactly one `*.dist-info`, of its own name and version, with `METADATA`,
//! `RECORD` and `WHEEL`. A source archive may lack `PKG-INFO`, as devpi accepts it; but one that is damaged, a
//! bomb, or leads out of its directory is refused like a wheel. `.tar.bz2` and installers of operating systems
//! (`.exe`, `.msi`, `.rpm`, `.deb`, `.dmg`) are not opened.

mod links;
mod path;
mod tarball;
#[cfg(test)]
mod testing;
mod wheel;
mod zip;

use std::cell::RefCell;
use std::io;

use rawzip::ReaderAt;

use crate::{FileKind, Filename, Metadata, MetadataError};

pub use zip::{SafeZip, ZipMember};

/// How much of an archive is looked at before it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Most members.
    pub members_max: u64,
    /// Most bytes of a zip's directory, which is held in memory while the zip is checked.
    pub directory_bytes_max: u64,
    /// Most bytes of `METADATA` or `PKG-INFO`.
    pub metadata_bytes_max: u64,
    /// Most bytes that the archive may unpack to, for each of its own; see `ratio_free_bytes`.
    pub ratio_max: u64,
    /// An archive that unpacks to no more than this may have any ratio.
    pub ratio_free_bytes: u64,
    /// Most bytes that the archive may unpack to at all.
    pub inflated_bytes_max: u64,
}

impl Default for ArchiveLimits {
    fn default() -> ArchiveLimits {
        ArchiveLimits {
            members_max: 100_000,
            directory_bytes_max: 32 << 20,
            metadata_bytes_max: Metadata::BYTES_MAX,
            ratio_max: 100,
            ratio_free_bytes: 64 << 20,
            inflated_bytes_max: 64 << 30,
        }
    }
}

impl ArchiveLimits {
    /// Most bytes that an archive of `file_bytes` may unpack to.
    fn inflated_bytes_max(&self, file_bytes: u64) -> u64 {
        file_bytes
            .saturating_mul(self.ratio_max)
            .max(self.ratio_free_bytes)
            .min(self.inflated_bytes_max)
    }
}

/// What an archive is found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFacts {
    /// Whether it was opened; for kinds that are not, the rest is empty.
    pub is_opened: bool,
    /// `METADATA` of a wheel (always there), `PKG-INFO` of a source archive or egg, byte for byte.
    pub metadata: Option<Vec<u8>>,
    /// What that file is called.
    pub metadata_name: &'static str,
    /// How many members there are.
    pub members: u64,
    /// How many bytes the archive unpacks to; what its directory says, for a zip.
    pub inflated_bytes: u64,
}

impl ArchiveFacts {
    /// The metadata, read.
    ///
    /// # Errors
    /// [`MetadataError`], see [`Metadata::read`].
    pub fn core_metadata(&self) -> Result<Option<Metadata>, MetadataError> {
        self.metadata.as_deref().map(Metadata::read).transpose()
    }
}

/// An archive that is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is no archive of its kind, or damaged.
    #[error("the file is not a whole {format} archive: {reason}")]
    Unreadable {
        /// `zip` or `tar.gz`.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Two readers could see two different archives.
    #[error("the archive is ambiguous: {0}")]
    Ambiguous(String),
    /// A member would be written somewhere else, or not be a file.
    #[error("the archive has a member {name:?}, which has {what}")]
    Member {
        /// The member's name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// More than [`ArchiveLimits`] allow.
    #[error("the archive has {found} {what}: at most {max} were expected")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much there is, or how much of it was seen.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// A wheel without one of its parts.
    #[error("the wheel has no {0}")]
    Missing(String),
    /// A wheel whose parts are another release's.
    #[error("the wheel has the directory {found:?}: one for {expected} was expected")]
    DistInfo {
        /// Project and version of the filename.
        expected: String,
        /// The directory.
        found: String,
    },
    /// The file could not be read; that is no fault of the archive.
    #[error("the archive could not be read")]
    Io(#[source] io::Error),
}

impl ArchiveError {
    /// Readers that take the first and readers that take the last would see two releases.
    fn second_pkg_info(name: &str) -> ArchiveError {
        ArchiveError::Ambiguous(format!("{name:?} is in it twice, or another `PKG-INFO` beside it"))
    }
}

/// Looks into the release file `filename`, whose `file_bytes` are in `reader`.
///
/// # Errors
/// [`ArchiveError`], by what is wrong; [`ArchiveError::Io`] if it is not the archive that is.
pub fn inspect<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let reader = Watched { reader, error: RefCell::new(None) };
    let found = look_into(&reader, file_bytes, filename, limits);
    match reader.error.into_inner() {
        Some(error) => Err(ArchiveError::Io(error)),
        None => found,
    }
}

fn look_into<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    match filename.kind() {
        FileKind::Wheel => wheel::inspect(reader, file_bytes, filename, limits),
        FileKind::Egg => {
            let zip = SafeZip::open(reader, file_bytes, limits)?;
            zip_facts(&zip, zip.member("EGG-INFO/PKG-INFO"), limits)
        }
        FileKind::Sdist if ends_with(filename, ".zip") => {
            let zip = SafeZip::open(reader, file_bytes, limits)?;
            let mut found =
                zip.members().iter().filter(|member| path::is_pkg_info(&member.name, filename));
            let member = found.next();
            if let Some(second) = found.next() {
                return Err(ArchiveError::second_pkg_info(&second.name));
            }
            zip_facts(&zip, member, limits)
        }
        FileKind::Sdist if !ends_with(filename, ".bz2") => {
            tarball::inspect(reader, file_bytes, filename, limits)
        }
        _ => Ok(ArchiveFacts {
            is_opened: false,
            metadata: None,
            metadata_name: "PKG-INFO",
            members: 0,
            inflated_bytes: 0,
        }),
    }
}

/// Keeps the first error of the file itself: decoders report theirs in the same way, and lose what is in it.
struct Watched<R> {
    reader: R,
    error: RefCell<Option<io::Error>>,
}

impl<R: ReaderAt> ReaderAt for Watched<R> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.reader.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let same_kind = error.kind().into();
                    self.error.borrow_mut().get_or_insert(error);
                    return Err(same_kind);
                }
                read => return read,
            }
        }
    }
}

/// The facts of a zip whose `PKG-INFO` is `member`.
fn zip_facts<R: ReaderAt>(
    zip: &SafeZip<R>,
    member: Option<&ZipMember>,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let read = |member| zip.read(member, "bytes of PKG-INFO", limits.metadata_bytes_max);
    Ok(ArchiveFacts {
        is_opened: true,
        metadata: member.map(read).transpose()?,
        metadata_name: "PKG-INFO",
        members: zip.members().len() as u64,
        inflated_bytes: zip.inflated_bytes(),
    })
}

fn ends_with(filename: &Filename, ending: &str) -> bool {
    let name = filename.as_str();
    name.len() >= ending.len()
        && name.as_bytes()[name.len() - ending.len()..].eq_ignore_ascii_case(ending.as_bytes())
}

/// `error` of reading an archive of this format: the file's fault, or the archive's.
fn io_error(format: &'static str, error: io::Error) -> ArchiveError {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => {
            ArchiveError::Unreadable { format, reason: "it ends too early".to_owned() }
        }
        // What decoders report is one of these; none is an error of the operating system.
        InvalidData | InvalidInput | Other if error.raw_os_error().is_none() => {
            ArchiveError::Unreadable { format, reason: error.to_string() }
        }
        _ => ArchiveError::Io(error),
    }
}

#[cfg(test)]
mod tests;
