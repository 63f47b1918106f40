//! [`ReleaseFile`]: one file of a release in one stage, as it is stored in memory.
//!
//! A million of them are in memory at once. So texts are shared between the files of a project, and the fields that
//! only few files need are behind one pointer.

use std::sync::Arc;

use account::UserName;
use jiff::Timestamp;
use record::{Digest, Serial};

use crate::StageName;

/// One wheel or source distribution of a release, one set of documentation, or one test result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFile {
    pub(crate) filename: Box<str>,
    pub(crate) version: Arc<str>,
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    pub(crate) uploaded_at_microseconds: i64,
    pub(crate) serial: Serial,
    pub(crate) requires_python: Option<Arc<str>>,
    pub(crate) uploader: Option<UserName>,
    pub(crate) core_metadata: Option<Box<Digest>>,
    pub(crate) rare: Option<Box<Rare>>,
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
    /// Its name: a safe segment of a path, unique in its project.
    pub fn filename(&self) -> &str {
        &self.filename
    }

    /// The text of the version that it belongs to.
    pub fn version(&self) -> &str {
        &self.version
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
        self.size_bytes
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
        self.requires_python.as_deref()
    }

    /// The user who brought it into this stage; `None` if that was anonymous or is not known.
    pub fn uploader(&self) -> Option<&UserName> {
        self.uploader.as_ref()
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
        format!("+f/{}/{}", self.directory(), self.filename)
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
                who: self.uploader.clone(),
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
        assert!(size_of::<ReleaseFile>() <= 160, "{} bytes", size_of::<ReleaseFile>());
    }
}
