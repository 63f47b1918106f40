//! Archives for tests: valid ones, and ones that no proper tool writes.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

/// A member of a zip to write; its fields can contradict each other.
#[derive(Clone, Default)]
pub(super) struct TestMember {
    pub(super) name: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    /// The compression method: deflated (8), stored (0), or any other number, with stored bytes.
    pub(super) method: u16,
    /// Length of a data descriptor after the bytes, which replaces the numbers in the header: 12, 16, 20 or 24.
    pub(super) descriptor_bytes: usize,
    pub(super) flags: u16,
    pub(super) header_name: Option<Vec<u8>>,
    pub(super) header_method: Option<u16>,
    pub(super) header_crc32: Option<u32>,
    pub(super) directory_size: Option<u32>,
    pub(super) directory_extra: Vec<u8>,
    /// Bytes after the member that belong to no member.
    pub(super) behind: Vec<u8>,
    /// Whether the member is only in the directory, and uses the header of the member before it.
    pub(super) is_shared: bool,
}

/// A deflated file.
pub(super) fn file(name: &str, bytes: impl Into<Vec<u8>>) -> TestMember {
    TestMember { name: name.into(), bytes: bytes.into(), method: 8, ..TestMember::default() }
}

/// A zip with these members.
pub(super) fn zip(members: &[TestMember]) -> Vec<u8> {
    let mut zip = Vec::new();
    let mut directory = Vec::new();
    let mut offset = 0;
    for member in members {
        let compressed = match member.method {
            8 => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&member.bytes).expect("memory");
                encoder.finish().expect("memory")
            }
            _ => member.bytes.clone(),
        };
        let crc32 = rawzip::crc32(&member.bytes);
        let size = member.bytes.len() as u32;
        let flags = member.flags | if member.descriptor_bytes > 0 { 8 } else { 0 };
        if !member.is_shared {
            offset = zip.len() as u32;
            let numbers = match member.descriptor_bytes {
                0 => [member.header_crc32.unwrap_or(crc32), compressed.len() as u32, size],
                _ => [member.header_crc32.unwrap_or(0), 0, 0],
            };
            let name = member.header_name.as_ref().unwrap_or(&member.name);
            let method = member.header_method.unwrap_or(member.method);
            zip.extend(header(b"PK\x03\x04", &[], flags, method, numbers));
            zip.extend((name.len() as u16).to_le_bytes());
            zip.extend(0u16.to_le_bytes());
            zip.extend(name);
            zip.extend(&compressed);
            zip.extend(descriptor(
                member.descriptor_bytes,
                crc32,
                compressed.len() as u64,
                u64::from(size),
            ));
            zip.extend(&member.behind);
        }
        let numbers = [crc32, compressed.len() as u32, member.directory_size.unwrap_or(size)];
        directory.extend(header(b"PK\x01\x02", &[20, 0], flags, member.method, numbers));
        directory.extend((member.name.len() as u16).to_le_bytes());
        directory.extend((member.directory_extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(&member.name);
        directory.extend(&member.directory_extra);
    }
    let directory_offset = zip.len() as u32;
    zip.extend(&directory);
    zip.extend(end_record(members.len() as u16, directory.len() as u32, directory_offset, b""));
    zip
}

/// The end record of a zip.
pub(super) fn end_record(
    members: u16,
    directory_bytes: u32,
    directory_offset: u32,
    comment: &[u8],
) -> Vec<u8> {
    let mut record = b"PK\x05\x06\0\0\0\0".to_vec();
    record.extend(members.to_le_bytes());
    record.extend(members.to_le_bytes());
    record.extend(directory_bytes.to_le_bytes());
    record.extend(directory_offset.to_le_bytes());
    record.extend((comment.len() as u16).to_le_bytes());
    record.extend(comment);
    record
}

/// `zip`, which has no comment, with a 64-bit end record and its locator, both changed by `change`.
pub(super) fn with_end_record_64(zip: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (rest, end) = zip.split_at(zip.len() - 22);
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (members, bytes, offset) =
        (number(&end[10..12]), number(&end[12..16]), number(&end[16..20]));
    let mut record = b"PK\x06\x06".to_vec();
    record.extend(44u64.to_le_bytes());
    record.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    [members, members, bytes, offset].iter().for_each(|number| record.extend(number.to_le_bytes()));
    record.extend(b"PK\x06\x07\0\0\0\0");
    record.extend((rest.len() as u64).to_le_bytes());
    record.extend(1u32.to_le_bytes());
    change(&mut record);
    [rest, &record, &end_record(0xffff, u32::MAX, u32::MAX, b"")].concat()
}

/// The part that a member's header and its directory record have in common.
fn header(
    signature: &[u8],
    version_made: &[u8],
    flags: u16,
    method: u16,
    numbers: [u32; 3],
) -> Vec<u8> {
    let mut header = signature.to_vec();
    header.extend(version_made);
    header.extend(20u16.to_le_bytes());
    header.extend(flags.to_le_bytes());
    header.extend(method.to_le_bytes());
    header.extend([0; 4]);
    numbers.iter().for_each(|number| header.extend(number.to_le_bytes()));
    header
}

fn descriptor(bytes: usize, crc32: u32, compressed: u64, size: u64) -> Vec<u8> {
    let mut descriptor = Vec::new();
    if matches!(bytes, 16 | 24) {
        descriptor.extend(b"PK\x07\x08");
    }
    if bytes > 0 {
        descriptor.extend(crc32.to_le_bytes());
    }
    match bytes {
        12 | 16 => [compressed, size]
            .iter()
            .for_each(|size| descriptor.extend((*size as u32).to_le_bytes())),
        20 | 24 => [compressed, size].iter().for_each(|size| descriptor.extend(size.to_le_bytes())),
        _ => {}
    }
    descriptor
}

/// `bytes`, compressed with gzip.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// One member of a tar, without checks; the name has at most 100 bytes.
pub(super) fn tarred(kind: u8, name: &str, link: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    let mut tar = header.as_bytes().to_vec();
    tar.extend(bytes);
    tar.resize(tar.len().next_multiple_of(512), 0);
    tar
}

/// A `.tar.gz` with these members.
pub(super) fn tarball(members: &[Vec<u8>]) -> Vec<u8> {
    gzip(&tarball_plain(members))
}

/// A `.tar` with these members.
pub(super) fn tarball_plain(members: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = members.concat();
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// `bytes`, compressed with bzip2.
pub(super) fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}
