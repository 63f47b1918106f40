//! Source archives as `.tar.gz` and `.tar.bz2`: read once from front to back.
//!
//! Long names and other extensions come in records of their own before a member, and readers combine them in
//! different ways. So this module parses each of them itself, with bounded length, and refuses the archive if two of
//! them contradict each other.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;

use bzip2::read::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use flate2::read::MultiGzDecoder;
use rawzip::{RangeReader, ReaderAt};
use tar::EntryType;

use super::contents::{
    Contents, ContentsLimits, ContentsMember, MemberText, digest_of, first_bytes,
};
use super::links::Links;
use super::path::{has_long_segment, trick};
use super::sdist::Layout;
use super::{ArchiveError, ArchiveFacts, ArchiveLimits, ends_with, io_error};
use crate::Filename;

const BLOCK_BYTES: u64 = 512;

/// Most bytes in a record before a member.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;

/// The facts of the source archive `filename`.
pub(super) fn inspect<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let inflated_bytes = Cell::new(0);
    let inflated_bytes_max = limits.inflated_bytes_max(file_bytes);
    let mut packed = BufReader::new(RangeReader::new(reader, 0..file_bytes));
    // Of several compressed streams, some installers read the first one only.
    let unpacking: Box<dyn Read + '_> = match ends_with(filename, ".bz2") {
        true => Box::new(MultiBzDecoder::new(&mut packed)),
        false => Box::new(GzDecoder::new(&mut packed)),
    };
    let inflated = BoundedReader {
        reader: unpacking,
        read_bytes: &inflated_bytes,
        read_bytes_max: inflated_bytes_max,
    };
    let mut archive = tar::Archive::new(inflated);
    let found = read(&mut archive, filename, limits);
    let unpacking = archive.into_inner();
    let found = found.and_then(|found| read_zeros(unpacking).map(|()| found));
    let found = found.and_then(|found| {
        read_zeros(packed)?;
        found.check_end(inflated_bytes.get())?;
        Ok(found)
    });
    // Whatever error the tar reader reports, this is why it stopped.
    if inflated_bytes.get() > inflated_bytes_max {
        return Err(ArchiveError::TooMuch {
            what: "bytes when unpacked",
            found: inflated_bytes.get(),
            max: inflated_bytes_max,
        });
    }
    let found = found?;
    Ok(ArchiveFacts {
        is_opened: true,
        metadata: found.metadata,
        metadata_name: "PKG-INFO",
        members: found.walked.members,
        inflated_bytes: inflated_bytes.get(),
    })
}

/// What was found in a source archive.
struct SourceContents {
    walked: WalkReport,
    /// The bytes of `PKG-INFO`.
    metadata: Option<Vec<u8>>,
}

impl SourceContents {
    /// Checks that two blocks of zeros follow the last member. If there are none, it may be cut off there, and uv refuses it.
    fn check_end(&self, inflated_bytes: u64) -> Result<(), ArchiveError> {
        match inflated_bytes >= self.walked.end.saturating_add(2 * BLOCK_BYTES) {
            true => Ok(()),
            false => Err(tar_error(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn read<R: Read>(
    archive: &mut tar::Archive<R>,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<SourceContents, ArchiveError> {
    let mut layout = Layout::default();
    let mut files = Files::default();
    let walked = walk(archive, limits, |met, entry| {
        if let Some(what) = unfit(met, entry.size()) {
            return Err(ArchiveError::Member { name: met.name.to_string(), what: what.to_owned() });
        }
        files.meet(met)?;
        let Some(place) = layout.meet(&met.name, met.kind.is_dir()) else {
            return Ok(ControlFlow::Continue(()));
        };
        if !met.kind.is_file() {
            let what = "another kind than a file's".to_owned();
            return Err(ArchiveError::Member { name: met.name.to_string(), what });
        }
        place.pkg_info = Some(read_bounded(entry, "bytes of PKG-INFO", limits.metadata_bytes_max)?);
        Ok(ControlFlow::Continue(()))
    })?;
    walked.links.check_for_installers(layout.is_one_top())?;
    Ok(SourceContents { walked, metadata: layout.pkg_info(filename)? })
}

/// Why installers refuse a member; `None` if they take it.
fn unfit(met: &WalkedMember<'_>, size_bytes: u64) -> Option<&'static str> {
    let name: &str = match &met.name {
        Cow::Borrowed(name) => name,
        Cow::Owned(_) => return Some("a name that is not UTF-8"),
    };
    if name.contains(|c: char| c.is_ascii_control()) {
        Some("a control character in its name")
    } else if name.contains(['\\', ':']) {
        Some("a backslash or colon in its name")
    } else if name.split('/').any(|segment| segment.ends_with(' ')) {
        Some("a blank at a name's end")
    } else if has_long_segment(name) {
        Some("a name of more than 255 bytes")
    } else if name.ends_with('/') && !met.kind.is_dir() {
        Some("a slash at its end, but is no directory")
    } else if size_bytes > 0 && (met.kind.is_symlink() || met.kind.is_hard_link()) {
        Some("bytes, but is a link")
    } else {
        None
    }
}

/// The files so far, by keyed hashes of their names.
#[derive(Default)]
struct Files {
    keys: RandomState,
    met: HashSet<u64>,
}

impl Files {
    /// Adds a member if it is a file.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] if it is a hard link to something that is no file so far.
    fn meet(&mut self, met: &WalkedMember<'_>) -> Result<(), ArchiveError> {
        let is_link = met.kind.is_hard_link();
        let target = met.link.filter(|_| is_link).unwrap_or_default();
        if is_link && !self.met.contains(&self.keys.hash_one(target)) {
            let target = String::from_utf8_lossy(target);
            let what = format!("a hard link to {target:?}, which is no file before it");
            return Err(ArchiveError::Member { name: met.name.to_string(), what });
        }
        if is_link || met.kind.is_file() || met.kind.is_contiguous() {
            self.met.insert(self.keys.hash_one(met.name.as_bytes()));
        }
        Ok(())
    }
}

/// A member that a walk has reached.
struct WalkedMember<'member> {
    /// Owned if it is not UTF-8: characters were replaced.
    name: Cow<'member, str>,
    kind: EntryType,
    link: Option<&'member [u8]>,
}

/// What a walk has seen.
struct WalkReport {
    /// Number of members, including the records before them.
    members: u64,
    links: Links,
    /// Where the last member ends, in unpacked bytes.
    end: u64,
}

/// Walks through the members until `visit` breaks.
fn walk<R: Read>(
    archive: &mut tar::Archive<R>,
    limits: &ArchiveLimits,
    mut visit: impl FnMut(
        &WalkedMember<'_>,
        &mut tar::Entry<'_, R>,
    ) -> Result<ControlFlow<()>, ArchiveError>,
) -> Result<WalkReport, ArchiveError> {
    let mut walked = WalkReport { members: 0, links: Links::default(), end: 0 };
    let mut before = MemberHeaders::default();
    for entry in archive.entries().map_err(tar_error)?.raw(true) {
        let mut entry = entry.map_err(tar_error)?;
        walked.members += 1;
        if walked.members > limits.members_max {
            return Err(ArchiveError::TooMuch {
                what: "members",
                found: walked.members,
                max: limits.members_max,
            });
        }
        let end = entry.raw_file_position().saturating_add(entry.size());
        walked.end = end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(end);
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => before.set(Extension::LongName, extension(&mut entry)?)?,
            EntryType::GNULongLink => before.set(Extension::LongLink, extension(&mut entry)?)?,
            EntryType::XHeader => before.set(Extension::Pax, extension(&mut entry)?)?,
            EntryType::XGlobalHeader => check_global(&extension(&mut entry)?)?,
            _ => {
                let member = std::mem::take(&mut before).member(&entry)?;
                let name = String::from_utf8_lossy(&member.name);
                check_member(kind, &member, &name, &mut walked.links)?;
                let met = WalkedMember { name, kind, link: member.link.as_deref() };
                if visit(&met, &mut entry)?.is_break() {
                    return Ok(walked);
                }
            }
        }
    }
    walked.links.check()?;
    Ok(walked)
}

/// The members of an archive, and the digests of its files if they are wanted; read no further than `limits` allow.
pub(super) fn members<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    limits: &ContentsLimits,
    has_digests: bool,
) -> Result<Contents, ArchiveError> {
    let mut contents = Contents::default();
    let mut name_bytes = 0;
    let is_whole = unpacked(reader, file_bytes, limits, |met, entry| {
        name_bytes += met.name.len() + met.link.map_or(0, <[u8]>::len);
        if contents.members.len() == limits.members_max || name_bytes > limits.name_bytes_max {
            contents.is_cut = true;
            return Ok(ControlFlow::Break(()));
        }
        let link = met.link.filter(|_| met.kind.is_symlink() || met.kind.is_hard_link());
        let is_file = met.kind.is_file() || met.kind.is_contiguous();
        contents.members.push(ContentsMember {
            name: met.name.to_string(),
            size_bytes: entry.size(),
            is_file,
            link: link.map(|link| String::from_utf8_lossy(link).into_owned()),
            digest: None,
        });
        if has_digests && is_file {
            let digest = digest_of(entry).map_err(tar_error)?;
            if let Some(last) = contents.members.last_mut() {
                last.digest = Some(digest);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    contents.is_cut |= !is_whole;
    Ok(contents)
}

/// The first bytes of the member with this number; `None` if `limits` do not allow to reach it, or it is no file.
pub(super) fn member<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    limits: &ContentsLimits,
    number: usize,
) -> Result<Option<MemberText>, ArchiveError> {
    let mut found = None;
    let mut at = 0;
    unpacked(reader, file_bytes, limits, |met, entry| {
        if at < number {
            at += 1;
            return Ok(ControlFlow::Continue(()));
        }
        if met.kind.is_file() || met.kind.is_contiguous() {
            let size_bytes = entry.size();
            let bytes = first_bytes(entry, size_bytes, limits).map_err(tar_error)?;
            found = Some(MemberText { name: met.name.to_string(), size_bytes, bytes });
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Walks through an archive while it is unpacked; returns whether it got far enough within `limits`.
fn unpacked<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    limits: &ContentsLimits,
    visit: impl FnMut(
        &WalkedMember<'_>,
        &mut tar::Entry<'_, BoundedReader<'_, MultiGzDecoder<BoundedReader<'_, RangeReader<R>>>>>,
    ) -> Result<ControlFlow<()>, ArchiveError>,
) -> Result<bool, ArchiveError> {
    let (inflated_bytes, packed_bytes) = (Cell::new(0), Cell::new(0));
    let packed = BoundedReader {
        reader: RangeReader::new(reader, 0..file_bytes),
        read_bytes: &packed_bytes,
        read_bytes_max: limits.packed_bytes_max,
    };
    let mut archive = tar::Archive::new(BoundedReader {
        reader: MultiGzDecoder::new(packed),
        read_bytes: &inflated_bytes,
        read_bytes_max: limits.inflated_bytes_max,
    });
    match walk(&mut archive, &ArchiveLimits::default(), visit) {
        Ok(_) => Ok(true),
        Err(_)
            if inflated_bytes.get() > limits.inflated_bytes_max
                || packed_bytes.get() > limits.packed_bytes_max =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Reads to the end, and checks that nothing but zeros is left.
fn read_zeros(mut reader: impl Read) -> Result<(), ArchiveError> {
    let mut buffer = [0; 16 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(bytes) if buffer[..bytes].iter().all(|byte| *byte == 0) => {}
            Ok(_) => return Err(ArchiveError::Ambiguous("bytes follow its end".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(tar_error(error)),
        }
    }
}

/// A member, with the values that the records before it set.
struct Member {
    name: Vec<u8>,
    link: Option<Vec<u8>>,
}

fn check_member(
    kind: EntryType,
    member: &Member,
    name: &str,
    links: &mut Links,
) -> Result<(), ArchiveError> {
    let refused =
        |what: &str| Err(ArchiveError::Member { name: name.to_owned(), what: what.to_owned() });
    if let Some(what) = trick(&member.name) {
        return refused(what);
    }
    let is_link = kind.is_symlink() || kind.is_hard_link();
    let target = is_link.then(|| member.link.as_deref().unwrap_or_default());
    links.meet(&member.name, target, kind.is_hard_link())?;
    if kind.is_gnu_sparse() {
        return refused("holes, which readers fill differently");
    }
    let is_known = kind.is_file()
        || kind.is_dir()
        || kind.is_symlink()
        || kind.is_hard_link()
        || kind.is_contiguous();
    if is_known { Ok(()) } else { refused("a kind that is neither file nor directory nor link") }
}

/// The records before a member that belong to it.
#[derive(Default)]
struct MemberHeaders {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum Extension {
    LongName,
    LongLink,
    Pax,
}

impl MemberHeaders {
    fn set(&mut self, extension: Extension, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        let place = match extension {
            Extension::LongName => &mut self.long_name,
            Extension::LongLink => &mut self.long_link,
            Extension::Pax => &mut self.pax,
        };
        match place.replace(bytes) {
            Some(_) => {
                Err(ArchiveError::Ambiguous("a member has two records of one kind".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// The member `entry`, with the one name that the records allow.
    fn member<R: Read>(self, entry: &tar::Entry<'_, R>) -> Result<Member, ArchiveError> {
        let until_zero = |bytes: Vec<u8>| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            bytes[..end].to_vec()
        };
        let mut name = self.long_name.map(until_zero);
        let mut link = self.long_link.map(until_zero);
        for (key, value) in pax_records(self.pax.as_deref().unwrap_or_default())? {
            let place = match key {
                b"path" => &mut name,
                b"linkpath" => &mut link,
                b"size" => {
                    let size =
                        std::str::from_utf8(value).ok().and_then(|size| size.parse::<u64>().ok());
                    if size != entry.header().entry_size().ok() {
                        return Err(ArchiveError::Ambiguous("a member has two sizes".to_owned()));
                    }
                    continue;
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(ArchiveError::Ambiguous("a member has holes".to_owned()));
                }
                _ => continue,
            };
            if place.replace(value.to_vec()).is_some_and(|first| first != value) {
                return Err(ArchiveError::Ambiguous("a member has two names".to_owned()));
            }
        }
        let header_name = || entry.header().path_bytes().into_owned();
        let header_link = || entry.header().link_name_bytes().map(std::borrow::Cow::into_owned);
        Ok(Member { name: name.unwrap_or_else(header_name), link: link.or_else(header_link) })
    }
}

/// Checks a global record, which applies to all later members: it may hold a comment, but neither names nor sizes.
fn check_global(bytes: &[u8]) -> Result<(), ArchiveError> {
    for (key, _) in pax_records(bytes)? {
        if matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(b"GNU.sparse.") {
            let key = String::from_utf8_lossy(key);
            return Err(ArchiveError::Ambiguous(format!("it sets {key:?} for all members")));
        }
    }
    Ok(())
}

/// A key and its value.
type PaxRecord<'a> = (&'a [u8], &'a [u8]);

/// Parses the records `length key=value\n`; the length counts the bytes of the whole record.
fn pax_records(mut bytes: &[u8]) -> Result<Vec<PaxRecord<'_>>, ArchiveError> {
    let malformed = || ArchiveError::Unreadable {
        format: "tar.gz",
        reason: "a record before a member is malformed".to_owned(),
    };
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let digits = bytes.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let length =
            std::str::from_utf8(&bytes[..digits]).ok().and_then(|text| text.parse::<usize>().ok());
        let length = length.filter(|length| *length > digits + 1).ok_or_else(malformed)?;
        let record = bytes.get(digits + 1..length).ok_or_else(malformed)?;
        let record = record.strip_suffix(b"\n").ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        records.push((&record[..equals], &record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Ok(records)
}

fn extension<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, ArchiveError> {
    read_bounded(entry, "bytes in a record before a member", EXTENSION_BYTES_MAX)
}

fn read_bounded<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    what: &'static str,
    max: u64,
) -> Result<Vec<u8>, ArchiveError> {
    if entry.size() > max {
        return Err(ArchiveError::TooMuch { what, found: entry.size(), max });
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(tar_error)?;
    if bytes.len() as u64 != entry.size() {
        return Err(tar_error(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}

fn tar_error(error: io::Error) -> ArchiveError {
    io_error("tar.gz", error)
}

/// Counts the bytes that are read, and fails beyond the bound.
struct BoundedReader<'a, R> {
    reader: R,
    read_bytes: &'a Cell<u64>,
    read_bytes_max: u64,
}

impl<R: Read> Read for BoundedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.read_bytes.set(self.read_bytes.get().saturating_add(bytes as u64));
        if self.read_bytes.get() > self.read_bytes_max {
            return Err(io::Error::other("it unpacks to too many bytes"));
        }
        Ok(bytes)
    }
}
