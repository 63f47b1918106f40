//! [`SafeZip`]: a zip that every reader sees in the same way.
//!
//! A zip stores everything twice: in a header before each member, and in the directory at its end. Readers that use
//! the headers and readers that use the directory must not see two different archives. So this module checks that
//! both agree, that the members follow each other without gaps from the first byte to the directory, and that nothing
//! follows the directory's end record.

use std::collections::HashSet;
use std::io::{self, Read};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use rawzip::extra_fields::{ExtraFieldId, ExtraFields};
use rawzip::{
    CompressionMethod, EntryFlags, ReaderAt, ZipArchive, ZipArchiveEntryWayfinder, ZipEntry,
    ZipLocator,
};

use super::path::{has_long_segment, is_unseen, trick_in_zip};
use super::{ArchiveError, ArchiveLimits, io_error};

/// A zip with a checked structure.
#[derive(Debug)]
pub struct SafeZip<R> {
    archive: ZipArchive<R>,
    members: Vec<ZipMember>,
    inflated_bytes: u64,
}

/// A member of a zip.
#[derive(Clone, Debug)]
pub struct ZipMember {
    /// Its path, with plain slashes, which stays below the target directory; that of a directory ends in a slash.
    pub name: String,
    /// Size after unpacking, as the directory says; no reader returns more bytes.
    pub size_bytes: u64,
    method: CompressionMethod,
    flags: EntryFlags,
    crc32: u32,
    local_header_offset: u64,
    wayfinder: ZipArchiveEntryWayfinder,
}

/// Size of a buffer for any record of the directory and any local header.
const BUFFER_BYTES: usize = 256 << 10;
/// Most bytes in the end record's comment, and the bytes before it.
const COMMENT_BYTES_MAX: u64 = 65_535;
const END_RECORD_BYTES: u64 = 22;
/// Size of the 64-bit end record without extensions, together with its locator.
const END_RECORD_64_BYTES: u64 = 56 + 20;

impl ZipMember {
    /// Size in the file, as the directory says.
    pub(super) fn packed_bytes(&self) -> u64 {
        self.wayfinder.compressed_size_hint()
    }

    /// Whether it is not compressed.
    pub(super) fn is_stored(&self) -> bool {
        self.method == CompressionMethod::STORE
    }
}

impl<R: ReaderAt> SafeZip<R> {
    /// Opens the zip whose `file_bytes` are in `reader` and checks its whole structure, without unpacking anything.
    ///
    /// # Errors
    /// [`ArchiveError`], depending on what is wrong.
    pub fn open(
        reader: R,
        file_bytes: u64,
        limits: &ArchiveLimits,
    ) -> Result<SafeZip<R>, ArchiveError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let locator = ZipLocator::new().max_search_space(COMMENT_BYTES_MAX + END_RECORD_BYTES);
        let archive = locator
            .locate_in_reader(reader, &mut buffer, file_bytes)
            .map_err(|(_, error)| zip_error(error))?;
        check_behind(&archive, file_bytes)?;
        too_much("members", archive.entries_hint(), limits.members_max)?;
        let directory_bytes = archive.eocd_offset().saturating_sub(archive.directory_offset());
        too_much("bytes of directory", directory_bytes, limits.directory_bytes_max)?;
        let mut zip = SafeZip { archive, members: Vec::new(), inflated_bytes: 0 };
        let directory_end = zip.read_directory(&mut buffer, limits)?;
        zip.check_end_records(directory_end)?;
        zip.check_names()?;
        too_much("bytes when unpacked", zip.inflated_bytes, limits.inflated_bytes_max(file_bytes))?;
        zip.check_members(&mut buffer)?;
        Ok(zip)
    }

    /// Reads the directory and returns where it ends.
    fn read_directory(
        &mut self,
        buffer: &mut [u8],
        limits: &ArchiveLimits,
    ) -> Result<u64, ArchiveError> {
        let mut directory_end = self.archive.directory_offset();
        let mut entries = self.archive.entries(buffer);
        while let Some(record) = entries.next_entry().map_err(zip_error)? {
            too_much("members", self.members.len() as u64 + 1, limits.members_max)?;
            let path = record.file_path();
            let name = String::from_utf8_lossy(path.as_bytes()).into_owned();
            if let Some(what) = trick_in_zip(path.as_bytes()) {
                return Err(ArchiveError::Member { name, what: what.to_owned() });
            }
            if name.as_bytes() != path.as_bytes() {
                let what = "a name that is not UTF-8".to_owned();
                return Err(ArchiveError::Member { name, what });
            }
            if let Some(what) = trick_in_extra(record.extra_fields()) {
                return Err(ArchiveError::Member { name, what: what.to_owned() });
            }
            if record.flags().is_encrypted() || record.flags().has_strong_encryption() {
                return Err(ArchiveError::Member { name, what: "encrypted bytes".to_owned() });
            }
            let is_stored = record.compression_method() == CompressionMethod::STORE;
            if is_stored && record.compressed_size_hint() != record.uncompressed_size_hint() {
                let what = "two sizes, but is not compressed".to_owned();
                return Err(ArchiveError::Member { name, what });
            }
            let variable_bytes = path.len()
                + record.extra_fields().remaining_bytes().len()
                + record.comment().as_bytes().len();
            directory_end = record.central_directory_offset() + 46 + variable_bytes as u64;
            self.inflated_bytes =
                self.inflated_bytes.saturating_add(record.uncompressed_size_hint());
            self.members.push(ZipMember {
                name,
                size_bytes: record.uncompressed_size_hint(),
                method: record.compression_method(),
                flags: record.flags(),
                crc32: record.crc32(),
                local_header_offset: record.local_header_offset(),
                wayfinder: record.wayfinder(),
            });
        }
        Ok(directory_end)
    }

    /// Checks that the end records follow the directory and describe it and nothing else. If there are two end
    /// records, the last one is found, even if it is within the other's comment; this check then refuses it.
    fn check_end_records(&self, directory_end: u64) -> Result<(), ArchiveError> {
        let directory_start = self.archive.directory_offset();
        let (members, directory_bytes) =
            (self.members.len() as u64, directory_end - directory_start);
        let eocd = self.archive.eocd_offset();
        let mut end = [0; END_RECORD_BYTES as usize];
        self.read_exact_at(&mut end, eocd)?;
        let is_64 = directory_end.checked_add(END_RECORD_64_BYTES) == Some(eocd);
        if is_64 {
            let mut end_64 = [0; END_RECORD_64_BYTES as usize];
            self.read_exact_at(&mut end_64, directory_end)?;
            let is_right = end_64.starts_with(b"PK\x06\x06")
                && number::<8>(&end_64, 4) == 44
                && number::<8>(&end_64, 16) == 0
                && number::<8>(&end_64, 24) == members
                && number::<8>(&end_64, 32) == members
                && number::<8>(&end_64, 40) == directory_bytes
                && number::<8>(&end_64, 48) == directory_start
                && end_64[56..].starts_with(b"PK\x06\x07")
                && number::<4>(&end_64, 60) == 0
                && number::<8>(&end_64, 64) == directory_end
                && number::<4>(&end_64, 72) <= 1;
            if !is_right {
                return ambiguous("its two end records do not agree with its directory".to_owned());
            }
        } else if directory_end != eocd {
            return ambiguous(format!(
                "its directory ends at byte {directory_end}, but its end record is at byte {eocd}"
            ));
        }
        // If there is a 64-bit record, a number may be left to that.
        let is = |found: u64, expected: u64, left: u64| found == expected || is_64 && found == left;
        let is_right = is(number::<2>(&end, 4), 0, 0xffff)
            && is(number::<2>(&end, 6), 0, 0xffff)
            && is(number::<2>(&end, 8), members, 0xffff)
            && is(number::<2>(&end, 10), members, 0xffff)
            && is(number::<4>(&end, 12), directory_bytes, 0xffff_ffff)
            && is(number::<4>(&end, 16), directory_start, 0xffff_ffff);
        if !is_right {
            return ambiguous("its end record does not agree with its directory".to_owned());
        }
        Ok(())
    }

    /// Checks that no member occurs twice, not even once as a file and once as a directory.
    fn check_names(&self) -> Result<(), ArchiveError> {
        let mut names = HashSet::with_capacity(self.members.len());
        for member in &self.members {
            let name = member.name.strip_suffix('/').unwrap_or(&member.name);
            if !names.insert(name) {
                return ambiguous(format!("{name:?} is in it twice"));
            }
        }
        for member in self.members.iter().filter(|member| member.name.ends_with('/')) {
            names.remove(&member.name[..member.name.len() - 1]);
        }
        for member in &self.members {
            let mut above = member.name.match_indices('/').map(|(at, _)| &member.name[..at]);
            if let Some(name) = above.find(|name| names.contains(name)) {
                return ambiguous(format!("{name:?} is a file in it, and a directory"));
            }
        }
        Ok(())
    }

    /// Checks that installers can unpack every member.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] for the first that they cannot.
    pub(super) fn check_for_installers(&self) -> Result<(), ArchiveError> {
        for member in &self.members {
            if !matches!(member.method, CompressionMethod::STORE | CompressionMethod::DEFLATE) {
                return Err(unknown(member, member.method));
            }
            let what = match &*member.name {
                name if name.contains(is_unseen) => "a character in its name that is not seen",
                name if has_long_segment(name) => "a name of more than 255 bytes",
                _ => continue,
            };
            let name = member.name.clone();
            return Err(ArchiveError::Member { name, what: what.to_owned() });
        }
        Ok(())
    }

    /// Checks that the members follow each other without gaps from byte 0 to the directory, each with a header that
    /// agrees with the directory.
    fn check_members(&self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        let mut by_offset: Vec<&ZipMember> = self.members.iter().collect();
        by_offset.sort_by_key(|member| member.local_header_offset);
        let mut expected_offset = 0;
        for (number, member) in by_offset.iter().enumerate() {
            if member.local_header_offset != expected_offset {
                return ambiguous(format!(
                    "{:?} begins at byte {}, but byte {expected_offset} is the next one",
                    member.name, member.local_header_offset
                ));
            }
            let next = by_offset.get(number + 1);
            let next_offset =
                next.map_or(self.archive.directory_offset(), |next| next.local_header_offset);
            self.check_member(member, next_offset, buffer)?;
            expected_offset = next_offset;
        }
        if expected_offset != self.archive.directory_offset() {
            return ambiguous(format!(
                "{} bytes stand before its directory",
                self.archive.directory_offset()
            ));
        }
        Ok(())
    }

    /// Checks that the member's own header agrees with the directory, and that its bytes end where the next ones
    /// begin.
    fn check_member(
        &self,
        member: &ZipMember,
        next_offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), ArchiveError> {
        let name = &member.name;
        let entry = self.archive.get_entry(member.wayfinder).map_err(zip_error)?;
        let header = entry.local_header(buffer).map_err(zip_error)?;
        let differs = |what: &str| {
            ambiguous(format!("the header of {name:?} has another {what} than the directory"))
        };
        if header.file_path().as_bytes() != name.as_bytes() {
            return differs("name");
        }
        if let Some(what) = trick_in_extra(header.extra_fields()) {
            return Err(ArchiveError::Member { name: name.clone(), what: what.to_owned() });
        }
        if header.compression_method() != member.method {
            return differs("compression");
        }
        let flags = |flags: EntryFlags| {
            (flags.is_encrypted(), flags.has_data_descriptor(), flags.is_utf8())
        };
        if flags(header.flags()) != flags(member.flags) {
            return differs("set of flags");
        }
        let compressed_bytes = member.wayfinder.compressed_size_hint();
        let own = (header.crc32(), header.compressed_size_hint(), header.uncompressed_size_hint());
        let directorys = (member.crc32, compressed_bytes, member.size_bytes);
        // A writer that did not know the numbers yet leaves them zero, and writes a data descriptor after the bytes.
        let is_left = member.flags.has_data_descriptor() && own == (0, 0, 0);
        if own != directorys && !is_left {
            return differs("size or checksum");
        }
        let (_, end) = entry.compressed_data_range();
        let Some(rest) = next_offset.checked_sub(end) else {
            return ambiguous(format!("the bytes of {name:?} overlap with the next ones"));
        };
        if member.flags.has_data_descriptor() {
            return self.check_descriptor(member, end, rest);
        }
        if rest != 0 {
            return ambiguous(format!("{rest} bytes follow {name:?}"));
        }
        Ok(())
    }

    /// Checks that the `rest` bytes at `offset` are a data descriptor with the directory's numbers.
    fn check_descriptor(
        &self,
        member: &ZipMember,
        offset: u64,
        rest: u64,
    ) -> Result<(), ArchiveError> {
        let mut buffer = [0; 24];
        let found = usize::try_from(rest).ok().and_then(|rest| buffer.get_mut(..rest));
        if let Some(found) = found {
            self.read_exact_at(found, offset)?;
            let numbers =
                found.strip_prefix(b"PK\x07\x08").filter(|rest| [12, 20].contains(&rest.len()));
            let numbers = numbers.unwrap_or(found);
            let compressed_bytes = member.wayfinder.compressed_size_hint();
            let sizes = match numbers.len() {
                12 => Some((number::<4>(numbers, 4), number::<4>(numbers, 8))),
                20 => Some((number::<8>(numbers, 4), number::<8>(numbers, 12))),
                _ => None,
            };
            let is_right = sizes == Some((compressed_bytes, member.size_bytes))
                && number::<4>(numbers, 0) == u64::from(member.crc32);
            if is_right {
                return Ok(());
            }
        }
        ambiguous(format!("the {rest} bytes behind {:?} are not its descriptor", member.name))
    }

    /// The member with this name.
    pub fn member(&self, name: &str) -> Option<&ZipMember> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The bytes of a member; `what` describes them in the error if there are too many.
    ///
    /// # Errors
    /// [`ArchiveError::TooMuch`] if there are more than `bytes_max`, and other errors if they cannot be unpacked or
    /// do not have the size and checksum in the directory.
    pub fn read(
        &self,
        member: &ZipMember,
        what: &'static str,
        bytes_max: u64,
    ) -> Result<Vec<u8>, ArchiveError> {
        too_much(what, member.size_bytes, bytes_max)?;
        let mut bytes = Vec::new();
        let reader = self.reader(member)?;
        reader
            .take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| io_error("zip", error))?;
        too_much(what, bytes.len() as u64, bytes_max)?;
        Ok(bytes)
    }

    /// A reader of a member's bytes. At the end it fails if they do not have the size and checksum in the directory.
    ///
    /// # Errors
    /// [`ArchiveError::Member`] if the member is neither stored nor deflated.
    pub fn reader<'a>(&'a self, member: &ZipMember) -> Result<Box<dyn Read + 'a>, ArchiveError> {
        let entry: ZipEntry<'a, R> = self.archive.get_entry(member.wayfinder).map_err(zip_error)?;
        let compressed = entry.reader();
        match member.method {
            CompressionMethod::STORE => Ok(Box::new(entry.verifying_reader(compressed))),
            CompressionMethod::DEFLATE => {
                Ok(Box::new(entry.verifying_reader(DeflateDecoder::new(compressed))))
            }
            method => Err(unknown(member, method)),
        }
    }

    /// A reader of a member's bytes that does not borrow the zip, so it can be read bit by bit and on any thread.
    /// Apart from that it works like [`SafeZip::reader`].
    ///
    /// # Errors
    /// Those of [`SafeZip::reader`].
    pub fn detached_reader(&self, member: &ZipMember) -> Result<Box<dyn Read + Send>, ArchiveError>
    where
        R: Clone + Send + 'static,
    {
        let entry = self.archive.get_entry(member.wayfinder).map_err(zip_error)?;
        let (at, end) = entry.compressed_data_range();
        let compressed = RangeReader { reader: self.archive.get_ref().clone(), at, end };
        let plain: Box<dyn Read + Send> = match member.method {
            CompressionMethod::STORE => Box::new(compressed),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(compressed)),
            method => return Err(unknown(member, method)),
        };
        let (left, crc32) = (member.size_bytes, member.crc32);
        Ok(Box::new(ChecksumReader { plain, left, crc32, seen: Crc::new() }))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ArchiveError> {
        self.archive.get_ref().read_exact_at(buffer, offset).map_err(|error| io_error("zip", error))
    }
}

impl<R> SafeZip<R> {
    /// The members in the order of the directory.
    pub fn members(&self) -> &[ZipMember] {
        &self.members
    }

    /// Size of all members after unpacking, as the directory says.
    pub fn inflated_bytes(&self) -> u64 {
        self.inflated_bytes
    }
}

fn unknown(member: &ZipMember, method: CompressionMethod) -> ArchiveError {
    let what = format!("a compression that installers lack: {method}");
    ArchiveError::Member { name: member.name.clone(), what }
}

/// Checks that nothing but some zeros follows the end of the zip. Installers look for the end at the end of the file, in as many
/// bytes as a comment can have.
fn check_behind<R: ReaderAt>(archive: &ZipArchive<R>, file_bytes: u64) -> Result<(), ArchiveError> {
    let end = archive.end_offset();
    let behind = file_bytes.saturating_sub(end);
    let mut bytes = vec![0; behind.min(COMMENT_BYTES_MAX) as usize];
    let reading = archive.get_ref().read_exact_at(&mut bytes, end);
    reading.map_err(|error| io_error("zip", error))?;
    if end > file_bytes || behind > COMMENT_BYTES_MAX || bytes.iter().any(|byte| *byte != 0) {
        return ambiguous(format!("it ends at byte {end}, but the file has {file_bytes} bytes"));
    }
    Ok(())
}

/// A range of a file's bytes.
struct RangeReader<R> {
    reader: R,
    at: u64,
    end: u64,
}

impl<R: ReaderAt> Read for RangeReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.reader.read_at(&mut buffer[..wanted], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A reader of a member's bytes that ends in an error if they do not match the directory.
struct ChecksumReader {
    plain: Box<dyn Read + Send>,
    left: u64,
    crc32: u32,
    seen: Crc,
}

impl Read for ChecksumReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.plain.read(&mut buffer[..wanted])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.seen.update(&buffer[..count]);
        self.left -= count as u64;
        if self.left == 0 && self.seen.sum() != self.crc32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the checksum differs from that in the directory",
            ));
        }
        Ok(count)
    }
}

/// Why a member's extra fields are refused: some readers use these fields, others do not.
fn trick_in_extra(mut fields: ExtraFields<'_>) -> Option<&'static str> {
    let mut has_64 = false;
    for (id, _) in &mut fields {
        if id == ExtraFieldId::INFO_ZIP_UNICODE_PATH {
            return Some("a second name");
        }
        if id == ExtraFieldId::ZIP64 && std::mem::replace(&mut has_64, true) {
            return Some("two 64-bit sizes");
        }
    }
    None
}

/// The little-endian number in the `BYTES` bytes at `at`, which must be within `bytes`.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + BYTES].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn too_much(what: &'static str, found: u64, max: u64) -> Result<(), ArchiveError> {
    if found > max { Err(ArchiveError::TooMuch { what, found, max }) } else { Ok(()) }
}

fn ambiguous<T>(reason: String) -> Result<T, ArchiveError> {
    Err(ArchiveError::Ambiguous(reason))
}

fn zip_error(error: rawzip::Error) -> ArchiveError {
    match error.into_kind() {
        rawzip::ErrorKind::IO(error) => io_error("zip", error),
        kind => ArchiveError::Unreadable { format: "zip", reason: kind.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::{TestMember, file, zip};
    use super::*;

    /// The bytes of the member `m`, read by a detached reader.
    fn detached(zip: Vec<u8>) -> io::Result<Vec<u8>> {
        let size = zip.len() as u64;
        let opened = SafeZip::open(Arc::new(zip), size, &ArchiveLimits::default()).expect("a zip");
        let member = opened.member("m").expect("a member");
        let mut reader = opened.detached_reader(member).expect("known compression");
        drop(opened);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn a_member_is_read_without_the_zip() {
        let text = b"a member's bytes".repeat(10_000);
        for method in [0, 8] {
            let member = TestMember { method, ..file("m", text.clone()) };
            let whole = zip(&[file("before", "x"), member, file("behind", "y")]);
            assert!(detached(whole.clone()).expect("it is whole") == text, "{method}");
            let at = whole.windows(8).position(|bytes| bytes == b"a member");
            if let Some(at) = at.filter(|_| method == 0) {
                let mut damaged = whole;
                damaged[at] ^= 1;
                let error = detached(damaged).expect_err("it is damaged");
                assert_eq!(error.to_string(), "the checksum differs from that in the directory");
            }
        }
    }
}
