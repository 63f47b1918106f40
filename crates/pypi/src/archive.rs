//! Checks release files: does every reader see the same archive, and what is its metadata?
//!
//! file + [`Filename`] -> [`inspect`] -> [`ArchiveFacts`]: the bytes of `METADATA` or `PKG-INFO`, verbatim, as the
//! index serves them beside a wheel. Nothing is unpacked to disk, [`ArchiveLimits`] bounds the memory, and an archive
//! that two readers could read differently is refused.
//!
//! What pip or uv cannot install is refused as well; `docs/uploads.md` has the table. A wheel must be complete: exactly one
//! `*.dist-info`, of its own name and version, with `METADATA`, `RECORD` and `WHEEL`. A source archive may lack `PKG-INFO`, as
//! devpi accepts that; but one that is damaged, a bomb, or has paths outside its directory is refused like a wheel. Operating
//! systems' installers (`.exe`, `.msi`, `.rpm`, `.deb`, `.dmg`) are not opened.

mod contents;
mod entry_points;
mod links;
mod look;
mod path;
mod sdist;
mod tarball;
#[cfg(test)]
mod testing;
mod wheel;
mod zip;

use std::cell::RefCell;
use std::io;

use rawzip::ReaderAt;

use crate::{FileKind, Filename, Metadata, MetadataError};

use sdist::Layout;

pub use contents::{Contents, ContentsLimits, ContentsMember, MemberText};
pub use look::{is_archive, member, members};
pub use zip::{SafeZip, ZipMember};

/// Bounds on reading an archive; one that exceeds them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Most members.
    pub members_max: u64,
    /// Most bytes in a zip's directory, which stays in memory while the zip is checked.
    pub directory_bytes_max: u64,
    /// Most bytes in `METADATA` or `PKG-INFO`.
    pub metadata_bytes_max: u64,
    /// Most unpacked bytes for each byte of the archive; see `ratio_free_bytes`.
    pub ratio_max: u64,
    /// Archives that unpack to at most this many bytes may have any ratio.
    pub ratio_free_bytes: u64,
    /// Most unpacked bytes of any archive.
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

/// What is known about an archive after its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFacts {
    /// Whether the archive was opened. For kinds that are not opened, the other fields are empty.
    pub is_opened: bool,
    /// `METADATA` of a wheel (always present), `PKG-INFO` of a source archive or egg, byte for byte.
    pub metadata: Option<Vec<u8>>,
    /// The name of that file: `METADATA` or `PKG-INFO`.
    pub metadata_name: &'static str,
    /// Number of members.
    pub members: u64,
    /// Number of unpacked bytes; for a zip, as its directory says.
    pub inflated_bytes: u64,
}

impl ArchiveFacts {
    /// The metadata, parsed.
    ///
    /// # Errors
    /// [`MetadataError`], see [`Metadata::read`]; for a wheel also if installers cannot read it.
    pub fn core_metadata(&self) -> Result<Option<Metadata>, MetadataError> {
        let read = match self.metadata_name {
            "METADATA" => Metadata::read_installable,
            // Installers build a source archive, and read what the build says.
            _ => Metadata::read,
        };
        self.metadata.as_deref().map(read).transpose()
    }
}

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is not an archive of its kind, or it is damaged.
    #[error("the file is not a whole {format} archive: {reason}")]
    Unreadable {
        /// `zip` or `tar.gz`.
        format: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Two readers could see different contents.
    #[error("the archive is ambiguous: {0}")]
    Ambiguous(String),
    /// A member would be written to another place, or is not a file.
    #[error("the archive has a member {name:?}, which has {what}")]
    Member {
        /// The member's name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// It exceeds [`ArchiveLimits`].
    #[error("the archive has {found} {what}: at most {max} were expected")]
    TooMuch {
        /// What exceeds its limit.
        what: &'static str,
        /// The size or number found so far.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// A wheel lacks one of its parts.
    #[error("the wheel has no {0}")]
    Missing(String),
    /// A part of a wheel that installers cannot read.
    #[error("the wheel's {file} {what}")]
    Part {
        /// Its name, as `WHEEL`.
        file: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A source archive without a project.
    #[error(
        "the archive has no `setup.py` and no `pyproject.toml` where installers look: in its one top directory, or at \
         its root if it has several"
    )]
    NoProject,
    /// A wheel's `*.dist-info` belongs to another release.
    #[error("the wheel has the directory {found:?}: one for {expected} was expected")]
    DistInfo {
        /// Project and version of the filename.
        expected: String,
        /// The directory.
        found: String,
    },
    /// The file could not be read, which is not the archive's fault.
    #[error("the archive could not be read")]
    Io(#[source] io::Error),
}

/// Checks the release file `filename`, whose `file_bytes` are in `reader`.
///
/// # Errors
/// [`ArchiveError`], depending on what is wrong; [`ArchiveError::Io`] if the file could not be read.
pub fn inspect<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let reader = WatchedReader { reader, error: RefCell::new(None) };
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
            zip.check_for_installers()?;
            let mut layout = Layout::default();
            for member in zip.members() {
                if let Some(place) = layout.meet(&member.name, member.name.ends_with('/')) {
                    place.pkg_info = Some(member);
                }
            }
            zip_facts(&zip, layout.pkg_info(filename)?, limits)
        }
        FileKind::Sdist => tarball::inspect(reader, file_bytes, filename, limits),
        _ => Ok(ArchiveFacts {
            is_opened: false,
            metadata: None,
            metadata_name: "PKG-INFO",
            members: 0,
            inflated_bytes: 0,
        }),
    }
}

/// Remembers the first error of the file itself: decoders report their own errors the same way, and lose its details.
struct WatchedReader<R> {
    reader: R,
    error: RefCell<Option<io::Error>>,
}

impl<R: ReaderAt> ReaderAt for WatchedReader<R> {
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

/// Turns an error during reading into one of the file or one of the archive, which has this format.
fn io_error(format: &'static str, error: io::Error) -> ArchiveError {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => {
            ArchiveError::Unreadable { format, reason: "it ends too early".to_owned() }
        }
        // Decoders report one of these; they do not come from the operating system.
        InvalidData | InvalidInput | Other if error.raw_os_error().is_none() => {
            ArchiveError::Unreadable { format, reason: error.to_string() }
        }
        _ => ArchiveError::Io(error),
    }
}

#[cfg(test)]
mod tests;
