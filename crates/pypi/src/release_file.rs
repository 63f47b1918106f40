//! [`ReleaseFile`]: one file of a release in one stage, as it is stored in memory.
//!
//! Millions of them are in memory at once. So what many files of a project say alike is shared between them, a version is a
//! part of the filename, and the fields that only few files need are behind one pointer.

use std::sync::Arc;

use account::UserName;
use jiff::Timestamp;
use record::{Digest, Serial};

use crate::StageName;

/// One wheel or source distribution of a release, one set of documentation, or one test result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFile {
    /// The filename, with the version in it. If it is not in it, or at its end, the version follows the filename: a version at
    /// the end of the text is always one that was added.
    text: Box<str>,
    pub(crate) digest: Digest,
    pub(crate) uploaded_at_microseconds: i64,
    pub(crate) serial: Serial,
    pub(crate) origin: Arc<Origin>,
    pub(crate) core_metadata: Option<Box<Digest>>,
    rare: Option<Box<Rare>>,
    /// The size, without its upper half, which is in `rare`.
    size_bytes_low: u32,
    version_at: u16,
    version_bytes: u8,
    pub(crate) role: FileRole,
}

/// What most files of a project have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) requires_python: Option<Box<str>>,
    pub(crate) uploader: Option<UserName>,
}

/// The parts of a [`ReleaseFile`].
#[derive(Debug)]
pub(crate) struct Parts<'text> {
    pub(crate) filename: &'text str,
    pub(crate) version: &'text str,
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    pub(crate) uploaded_at_microseconds: i64,
    pub(crate) serial: Serial,
    pub(crate) origin: Arc<Origin>,
    pub(crate) core_metadata: Option<Digest>,
    pub(crate) rare: Rare,
    pub(crate) role: FileRole,
}

/// The fields that only few files need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
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
    /// The upper half of the size: few files have 4 GiB. Set by [`ReleaseFile::new`] and [`ReleaseFile::set_rare`].
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

impl std::fmt::Display for Directory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(17);
        self.push_to(&mut text);
        formatter.write_str(&text)
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
    pub(crate) fn new(parts: Parts<'_>) -> Option<ReleaseFile> {
        let Parts { filename, version, .. } = parts;
        let within = filename.find(version).filter(|at| at + version.len() < filename.len());
        let text = match within {
            Some(_) => filename.into(),
            None => [filename, version].concat().into_boxed_str(),
        };
        let mut file = ReleaseFile {
            version_at: u16::try_from(within.unwrap_or(filename.len())).ok()?,
            version_bytes: u8::try_from(version.len()).ok()?,
            text,
            digest: parts.digest,
            uploaded_at_microseconds: parts.uploaded_at_microseconds,
            serial: parts.serial,
            origin: parts.origin,
            core_metadata: parts.core_metadata.map(Box::new),
            rare: None,
            size_bytes_low: parts.size_bytes as u32,
            role: parts.role,
        };
        let size_bytes_high = (parts.size_bytes >> 32) as u32;
        file.put_rare(Rare { size_bytes_high, ..parts.rare });
        Some(file)
    }

    /// The fields that only few files need.
    pub(crate) fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    /// Replaces the fields that only few files need. The size stays.
    pub(crate) fn set_rare(&mut self, rare: Rare) {
        let size_bytes_high = self.rare().map_or(0, |rare| rare.size_bytes_high);
        self.put_rare(Rare { size_bytes_high, ..rare });
    }

    fn put_rare(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    fn version_end(&self) -> usize {
        usize::from(self.version_at) + usize::from(self.version_bytes)
    }

    /// Its name: a safe segment of a path, unique in its project.
    pub fn filename(&self) -> &str {
        match self.version_end() == self.text.len() {
            true => &self.text[..usize::from(self.version_at)],
            false => &self.text,
        }
    }

    /// The text of the version that it belongs to.
    pub fn version(&self) -> &str {
        &self.text[usize::from(self.version_at)..self.version_end()]
    }

    /// The kind of the file.
    pub fn role(&self) -> FileRole {
        self.role
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Its size, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let high = self.rare().map_or(0, |rare| rare.size_bytes_high);
        u64::from(high) << 32 | u64::from(self.size_bytes_low)
    }

    /// When this stage got it: UTC, microseconds.
    pub fn uploaded_at(&self) -> Timestamp {
        Timestamp::from_microsecond(self.uploaded_at_microseconds).unwrap_or_default()
    }

    /// The commit that wrote its record.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The versions of Python that it supports, as written; `None` if it does not say.
    pub fn requires_python(&self) -> Option<&str> {
        self.origin.requires_python.as_deref()
    }

    /// The user who brought it into this stage; `None` if that was anonymous or is not known.
    pub fn uploader(&self) -> Option<&UserName> {
        self.origin.uploader.as_ref()
    }

    /// The job of a CI system that brought it into this stage, if one did: its issuer and repository.
    pub fn publisher(&self) -> Option<&str> {
        self.rare.as_ref()?.publisher.as_deref()
    }

    /// Who brought it into this stage, for people: the user, or the job of a CI system.
    pub fn brought_by(&self) -> Option<&str> {
        self.uploader().map(UserName::as_str).or(self.publisher())
    }

    /// The digest of its `METADATA`, which is served as `{filename}.metadata`.
    pub fn core_metadata(&self) -> Option<&Digest> {
        self.core_metadata.as_deref()
    }

    /// The digest of its provenance (PEP 740), which is served as `{filename}.provenance`.
    pub fn provenance(&self) -> Option<&Digest> {
        self.rare.as_ref()?.provenance.as_ref()
    }

    /// The job of a CI system that its attestations were verified to be of, when it brought them; `None` if nobody has verified
    /// them.
    pub fn attested_by(&self) -> Option<&str> {
        self.rare.as_ref()?.attested_by.as_deref()
    }

    /// Why this file was yanked (may be empty); `None` if it was not. Its whole release may be yanked too: see
    /// [`crate::Project::yanked`].
    pub fn yanked(&self) -> Option<&str> {
        self.rare.as_ref()?.yanked.as_deref()
    }

    /// For a test result: the name of the tested file.
    pub fn for_file(&self) -> Option<&str> {
        self.rare.as_ref()?.for_file.as_deref()
    }

    /// Its directory below `+f/`.
    pub fn directory(&self) -> Directory {
        let elsewhere = self.rare.as_ref().and_then(|rare| rare.directory);
        elsewhere.unwrap_or_else(|| Directory::of(&self.digest))
    }

    /// Its path below the stage: `+f/abc/0123456789abc/{filename}`, not encoded for a URL.
    pub fn path(&self) -> String {
        format!("+f/{}/{}", self.directory(), self.filename())
    }

    /// The directories of earlier files with this name, oldest first.
    pub(crate) fn gone(&self) -> &[Directory] {
        self.rare.as_ref().map_or(&[], |rare| &rare.gone)
    }

    /// The history of the file, oldest first; `stage` is the stage that has it.
    pub fn log(&self, stage: &StageName) -> Vec<LogEntry> {
        match self.rare.as_ref().and_then(|rare| rare.log.as_ref()) {
            Some(log) => log.to_vec(),
            None => vec![LogEntry::Upload {
                who: self.origin.uploader.clone(),
                at: self.uploaded_at(),
                target: stage.clone(),
            }],
        }
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
        // With the two counts of its `Arc`, 112: a size that the allocator has.
        assert!(size_of::<ReleaseFile>() <= 96, "{} bytes", size_of::<ReleaseFile>());
    }

    fn file(filename: &str, version: &str, size_bytes: u64) -> Option<ReleaseFile> {
        ReleaseFile::new(Parts {
            filename,
            version,
            digest: Digest::of(b"abc"),
            size_bytes,
            uploaded_at_microseconds: 0,
            serial: Serial::ZERO,
            origin: Arc::default(),
            core_metadata: None,
            rare: Rare::default(),
            role: FileRole::Release,
        })
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
            let file = file(filename, version, 1).expect("a file");
            assert_eq!((file.filename(), file.version()), (filename, version));
        }
        assert_eq!(file("foo-1.zip", &"1".repeat(256), 1), None);
    }

    #[test]
    fn a_large_file_keeps_its_size() {
        for size_bytes in [0, 1, u64::from(u32::MAX), 1 << 32, (3 << 32) + 7, u64::MAX] {
            let mut file = file("foo-1.zip", "1", size_bytes).expect("a file");
            assert_eq!(file.size_bytes(), size_bytes);
            file.set_rare(Rare { yanked: Some("broken".into()), ..Rare::default() });
            file.set_rare(Rare::default());
            assert_eq!((file.size_bytes(), file.yanked()), (size_bytes, None));
        }
    }
}
