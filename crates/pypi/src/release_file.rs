//! [`ReleaseFile`]: one file of a release in one stage, as it is stored in memory.
//!
//! Millions of them are in memory at once. So each is one piece of memory, what many files of a project say alike is shared
//! between them, a version is a part of the filename, and the fields that only few files need are behind one pointer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use account::UserName;
use jiff::Timestamp;
use record::{Digest, Serial};
use triomphe::ThinArc;

use crate::StageName;

/// One wheel or source distribution of a release, one set of documentation, or one test result: its fields and its texts in
/// one piece of memory, which clones share.
#[derive(Clone, PartialEq, Eq)]
pub struct ReleaseFile(ThinArc<Fields, u8>);

/// What each file has. The bytes that follow are the digest of its core metadata, if it has any, and the filename with the
/// version in it. If the version is not in it, or at its end, it follows the filename: a version at the end of the text is
/// always one that was added.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    digest: Digest,
    uploaded_at_microseconds: i64,
    serial: Serial,
    origin: Arc<Origin>,
    rare: Option<Box<RareFields>>,
    /// The size, without its upper half, which is in `rare`.
    size_bytes_low: u32,
    version_at: u16,
    version_bytes: u8,
    kind: Kind,
}

/// The role of a file, and whether it has core metadata, as only release files do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Release,
    ReleaseWithMetadata,
    Docs,
    ToxResult,
}

/// What most files of a project have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) requires_python: Option<Box<str>>,
    pub(crate) uploader: Option<UserName>,
}

/// The parts of a [`ReleaseFile`], of which only release files have core metadata.
#[derive(Debug)]
pub(crate) struct FileParts<'text> {
    pub(crate) filename: &'text str,
    pub(crate) version: &'text str,
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    pub(crate) uploaded_at_microseconds: i64,
    pub(crate) serial: Serial,
    pub(crate) origin: Arc<Origin>,
    pub(crate) core_metadata: Option<Digest>,
    pub(crate) rare: RareFields,
    pub(crate) role: FileRole,
}

/// The fields that only few files need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RareFields {
    pub(crate) yanked: Option<Box<str>>,
    /// The blob of its provenance.
    pub(crate) provenance: Option<Digest>,
    /// The job of a CI system that uploaded it: its issuer and repository.
    pub(crate) publisher: Option<Box<str>>,
    /// The job of a CI system that was verified to have signed its attestations.
    pub(crate) attested_by: Option<Box<str>>,
    /// The log, unless it consists of one upload into this stage.
    pub(crate) log: Option<Box<[LogEntry]>>,
    /// The file that a test result is about.
    pub(crate) for_file: Option<Box<str>>,
    /// The directory, if it is not the one of the digest: a test result is in the directory of its release file.
    pub(crate) directory: Option<Directory>,
    /// The directories of earlier files with this name.
    pub(crate) gone: Box<[Directory]>,
    /// The upper half of the size: few files have 4 GiB. Set by [`ReleaseFile::new`].
    pub(crate) size_bytes_high: u32,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// A wheel, a source distribution or another archive that installers take.
    Release,
    /// A zip file of documentation: `{project}-{version}.doc.zip`.
    Docs,
    /// The result of a test run, as JSON.
    ToxResult,
}

impl FileRole {
    /// devpi's name of the role, as in `rel` of a link.
    pub fn as_str(self) -> &'static str {
        match self {
            FileRole::Release => "releasefile",
            FileRole::Docs => "doczip",
            FileRole::ToxResult => "toxresult",
        }
    }
}

/// A file's directory below `+f/`: `{3 hexadecimal digits}/{13 more}`, the start of a digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Directory(pub(crate) u64);

impl Directory {
    /// The directory of a file with this digest.
    pub fn of(digest: &Digest) -> Directory {
        let mut start = [0; 8];
        start.copy_from_slice(&digest.as_bytes()[..8]);
        Directory(u64::from_be_bytes(start))
    }

    /// Parses the two segments, such as `abc` and `0123456789abc`; only lower case is accepted, as it is the only
    /// spelling.
    pub fn parse(first: &str, second: &str) -> Option<Directory> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_written = first.len() == 3
            && second.len() == 13
            && first.bytes().chain(second.bytes()).all(is_digit);
        if !is_written {
            return None;
        }
        let first = u64::from_str_radix(first, 16).ok()?;
        let second = u64::from_str_radix(second, 16).ok()?;
        Some(Directory(first << 52 | second))
    }

    /// Parses 16 digits without a slash, the stored form.
    pub(crate) fn parse_joined(text: &str) -> Option<Directory> {
        let (first, second) = text.split_at_checked(3)?;
        Directory::parse(first, second)
    }

    /// The stored form: 16 digits without a slash.
    pub(crate) fn joined(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Appends `abc/0123456789abc`.
    pub(crate) fn push_to(self, text: &mut String) {
        for position in 0..16 {
            if position == 3 {
                text.push('/');
            }
            let digit = (self.0 >> (60 - 4 * position)) & 15;
            text.push(char::from(b"0123456789abcdef"[digit as usize]));
        }
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(17);
        self.push_to(&mut text);
        formatter.write_str(&text)
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Directory({self})")
    }
}

/// An event in the history of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// It was uploaded.
    Upload {
        /// The uploader; `None` for an anonymous one.
        who: Option<UserName>,
        /// The time, with microseconds.
        at: Timestamp,
        /// The stage that got the file.
        target: StageName,
    },
    /// It was pushed from another stage.
    Push {
        /// The user who pushed it; `None` for an anonymous one.
        who: Option<UserName>,
        /// The time, with microseconds.
        at: Timestamp,
        /// The stage that it came from.
        source: StageName,
        /// The stage that got the file.
        target: StageName,
    },
    /// It replaced another file of the same name.
    Overwrite {
        /// The time, with microseconds.
        at: Timestamp,
        /// How often that had happened by then, including this time.
        count: u32,
    },
}

impl ReleaseFile {
    /// A file of these parts; `None` if a text is longer than a record allows: the version than 255 bytes, the filename than
    /// a key.
    pub(crate) fn new(parts: FileParts<'_>) -> Option<ReleaseFile> {
        let FileParts { filename, version, .. } = parts;
        let within = filename.find(version).filter(|at| at + version.len() < filename.len());
        let added = if within.is_some() { "" } else { version };
        let (kind, metadata) = match (parts.role, &parts.core_metadata) {
            (FileRole::Release, None) => (Kind::Release, &[][..]),
            (FileRole::Release, Some(digest)) => {
                (Kind::ReleaseWithMetadata, &digest.as_bytes()[..])
            }
            (FileRole::Docs, _) => (Kind::Docs, &[][..]),
            (FileRole::ToxResult, _) => (Kind::ToxResult, &[][..]),
        };
        let rare = RareFields { size_bytes_high: (parts.size_bytes >> 32) as u32, ..parts.rare };
        let fields = Fields {
            version_at: u16::try_from(within.unwrap_or(filename.len())).ok()?,
            version_bytes: u8::try_from(version.len()).ok()?,
            digest: parts.digest,
            uploaded_at_microseconds: parts.uploaded_at_microseconds,
            serial: parts.serial,
            origin: parts.origin,
            rare: (rare != RareFields::default()).then(|| Box::new(rare)),
            size_bytes_low: parts.size_bytes as u32,
            kind,
        };
        let bytes = [metadata, filename.as_bytes(), added.as_bytes()].concat();
        Some(ReleaseFile(ThinArc::from_header_and_slice(fields, &bytes)))
    }

    /// This file with some of its parts changed, but not its texts.
    pub(crate) fn with(&self, change: impl FnOnce(&mut FileParts<'_>)) -> ReleaseFile {
        let mut parts = FileParts {
            filename: self.filename(),
            version: self.version(),
            digest: *self.digest(),
            size_bytes: self.size_bytes(),
            uploaded_at_microseconds: self.uploaded_at_microseconds(),
            serial: self.serial(),
            origin: self.origin().clone(),
            core_metadata: self.core_metadata(),
            rare: self.rare().cloned().unwrap_or_default(),
            role: self.role(),
        };
        change(&mut parts);
        ReleaseFile::new(parts).expect("the texts of a file are short enough")
    }

    fn fields(&self) -> &Fields {
        &self.0.header.header
    }

    /// The digest of its core metadata, if it has any, and its texts.
    fn metadata_and_texts(&self) -> (Option<&[u8; 32]>, &[u8]) {
        match (self.fields().kind, self.0.slice.split_first_chunk()) {
            (Kind::ReleaseWithMetadata, Some((metadata, texts))) => (Some(metadata), texts),
            _ => (None, &self.0.slice),
        }
    }

    /// The fields that only few files need.
    pub(crate) fn rare(&self) -> Option<&RareFields> {
        self.fields().rare.as_deref()
    }

    /// What it has in common with most files of its project.
    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.fields().origin
    }

    fn version_range(&self) -> Range<usize> {
        let at = usize::from(self.fields().version_at);
        at..at + usize::from(self.fields().version_bytes)
    }

    /// [`ReleaseFile::filename`], to be compared: its order is that of the text.
    pub(crate) fn filename_bytes(&self) -> &[u8] {
        let ((_, texts), version) = (self.metadata_and_texts(), self.version_range());
        if version.end == texts.len() { &texts[..version.start] } else { texts }
    }

    /// [`ReleaseFile::version`], to be compared.
    pub(crate) fn version_bytes(&self) -> &[u8] {
        &self.metadata_and_texts().1[self.version_range()]
    }

    /// Its name: a safe segment of a path, unique in its project.
    pub fn filename(&self) -> &str {
        std::str::from_utf8(self.filename_bytes()).unwrap_or_default()
    }

    /// The text of the version that it belongs to.
    pub fn version(&self) -> &str {
        std::str::from_utf8(self.version_bytes()).unwrap_or_default()
    }

    /// The kind of the file.
    pub fn role(&self) -> FileRole {
        match self.fields().kind {
            Kind::Release | Kind::ReleaseWithMetadata => FileRole::Release,
            Kind::Docs => FileRole::Docs,
            Kind::ToxResult => FileRole::ToxResult,
        }
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> &Digest {
        &self.fields().digest
    }

    /// Its size, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let high = self.rare().map_or(0, |rare| rare.size_bytes_high);
        u64::from(high) << 32 | u64::from(self.fields().size_bytes_low)
    }

    /// When this stage got it: UTC, microseconds.
    pub fn uploaded_at(&self) -> Timestamp {
        Timestamp::from_microsecond(self.uploaded_at_microseconds()).unwrap_or_default()
    }

    /// When this stage got it, in microseconds since 1970.
    pub(crate) fn uploaded_at_microseconds(&self) -> i64 {
        self.fields().uploaded_at_microseconds
    }

    /// The commit that wrote its record.
    pub fn serial(&self) -> Serial {
        self.fields().serial
    }

    /// The versions of Python that it supports, as written; `None` if it does not say.
    pub fn requires_python(&self) -> Option<&str> {
        self.origin().requires_python.as_deref()
    }

    /// The user who brought it into this stage; `None` if that was anonymous or is not known.
    pub fn uploader(&self) -> Option<&UserName> {
        self.origin().uploader.as_ref()
    }

    /// The job of a CI system that brought it into this stage, if one did: its issuer and repository.
    pub fn publisher(&self) -> Option<&str> {
        self.rare()?.publisher.as_deref()
    }

    /// Who brought it into this stage, for people: the user, or the job of a CI system.
    pub fn brought_by(&self) -> Option<&str> {
        self.uploader().map(UserName::as_str).or(self.publisher())
    }

    /// The digest of its `METADATA`, which is served as `{filename}.metadata`.
    pub fn core_metadata(&self) -> Option<Digest> {
        self.metadata_and_texts().0.copied().map(Digest::from_bytes)
    }

    /// The digest of its provenance (PEP 740), which is served as `{filename}.provenance`.
    pub fn provenance(&self) -> Option<&Digest> {
        self.rare()?.provenance.as_ref()
    }

    /// The job of a CI system that its attestations were verified to be of, when it brought them; `None` if nobody has verified
    /// them.
    pub fn attested_by(&self) -> Option<&str> {
        self.rare()?.attested_by.as_deref()
    }

    /// Why this file was yanked (may be empty); `None` if it was not. Its whole release may be yanked too: see
    /// [`crate::Project::yanked`].
    pub fn yanked(&self) -> Option<&str> {
        self.rare()?.yanked.as_deref()
    }

    /// For a test result: the name of the tested file.
    pub fn for_file(&self) -> Option<&str> {
        self.rare()?.for_file.as_deref()
    }

    /// Its directory below `+f/`.
    pub fn directory(&self) -> Directory {
        let elsewhere = self.rare().and_then(|rare| rare.directory);
        elsewhere.unwrap_or_else(|| Directory::of(self.digest()))
    }

    /// Its path below the stage: `+f/abc/0123456789abc/{filename}`, not encoded for a URL.
    pub fn path(&self) -> String {
        format!("+f/{}/{}", self.directory(), self.filename())
    }

    /// The directories of earlier files with this name, oldest first.
    pub(crate) fn gone(&self) -> &[Directory] {
        self.rare().map_or(&[], |rare| &rare.gone)
    }

    /// The history of the file, oldest first; `stage` is the stage that has it.
    pub fn log(&self, stage: &StageName) -> Vec<LogEntry> {
        match self.rare().and_then(|rare| rare.log.as_ref()) {
            Some(log) => log.to_vec(),
            None => vec![LogEntry::Upload {
                who: self.origin().uploader.clone(),
                at: self.uploaded_at(),
                target: stage.clone(),
            }],
        }
    }
}

impl fmt::Debug for ReleaseFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metadata, _) = self.metadata_and_texts();
        formatter
            .debug_tuple("ReleaseFile")
            .field(&self.filename())
            .field(self.fields())
            .field(&metadata)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_start_of_a_digest() {
        let digest = Digest::of(b"abc");
        let directory = Directory::of(&digest);
        assert_eq!(directory.to_string(), "ba7/816bf8f01cfea");
        assert_eq!(Directory::parse("ba7", "816bf8f01cfea"), Some(directory));
        assert_eq!(Directory::parse_joined(&directory.joined()), Some(directory));
        for (first, second) in
            [("BA7", "816bf8f01cfea"), ("ba7", "816bf8f01cfe"), ("+a7", "816bf8f01cfea"), ("", "")]
        {
            assert_eq!(Directory::parse(first, second), None, "{first}/{second}");
        }
    }

    #[test]
    fn a_file_is_small() {
        // With a count and a length, and a text of up to 40 bytes: 128, or 160 with core metadata, sizes that the allocator has.
        assert!(size_of::<Fields>() <= 72, "{} bytes", size_of::<Fields>());
    }

    fn parts<'text>(
        filename: &'text str,
        version: &'text str,
        size_bytes: u64,
    ) -> FileParts<'text> {
        FileParts {
            filename,
            version,
            digest: Digest::of(b"abc"),
            size_bytes,
            uploaded_at_microseconds: 0,
            serial: Serial::ZERO,
            origin: Arc::default(),
            core_metadata: None,
            rare: RareFields::default(),
            role: FileRole::Release,
        }
    }

    fn file(filename: &str, version: &str, size_bytes: u64) -> Option<ReleaseFile> {
        ReleaseFile::new(parts(filename, version, size_bytes))
    }

    #[test]
    fn the_version_is_found_wherever_it_is() {
        for (filename, version) in [
            ("foo-1.0.tar.gz", "1.0"),
            ("foo-1.0.tar.gz", "1.0.0"),
            ("foo-1.0.zip", ".zip"),
            ("foo-1_ubuntu.zip", "1-ubuntu"),
            ("1-1.zip", "1"),
            ("foo-é.zip", "é"),
            ("foo.zip", ""),
        ] {
            let metadata = Digest::of(b"metadata");
            for core_metadata in [None, Some(metadata)] {
                let parts = FileParts { core_metadata, ..parts(filename, version, 1) };
                let file = ReleaseFile::new(parts).expect("a file");
                assert_eq!((file.filename(), file.version()), (filename, version));
                assert_eq!((file.core_metadata(), file.role()), (core_metadata, FileRole::Release));
            }
        }
        assert_eq!(file("foo-1.zip", &"1".repeat(256), 1), None);
    }

    #[test]
    fn a_large_file_keeps_its_size() {
        for size_bytes in [0, 1, u64::from(u32::MAX), 1 << 32, (3 << 32) + 7, u64::MAX] {
            let file = file("foo-1.zip", "1", size_bytes).expect("a file");
            assert_eq!(file.size_bytes(), size_bytes);
            let yanked = file.with(|parts| parts.rare.yanked = Some("broken".into()));
            assert_eq!((yanked.size_bytes(), yanked.yanked()), (size_bytes, Some("broken")));
            assert_eq!(yanked.with(|parts| parts.rare = RareFields::default()), file);
        }
    }
}
