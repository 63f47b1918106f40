//! Looking into a release file: its members, and the first bytes of one of them.
//!
//! file + [`Filename`] -> [`members`] -> [`Contents`]; file, [`Filename`] and a member's number -> [`member`]. Nothing is
//! unpacked to disk, and nothing beyond [`ContentsLimits`] is read: of a larger archive, the beginning is shown.

use rawzip::ReaderAt;

use super::contents::{
    Contents, ContentsLimits, ContentsMember, MemberText, digest_of, first_bytes,
};
use super::{ArchiveError, ArchiveLimits, SafeZip, ends_with, tarball};
use crate::{FileKind, Filename};

/// How an archive is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArchiveFormat {
    Zip,
    TarGz,
}

/// Whether a release file with this name can be looked into.
pub fn is_archive(filename: &Filename) -> bool {
    form(filename).is_some()
}

fn form(filename: &Filename) -> Option<ArchiveFormat> {
    match filename.kind() {
        FileKind::Wheel | FileKind::Egg => Some(ArchiveFormat::Zip),
        FileKind::Sdist if ends_with(filename, ".zip") => Some(ArchiveFormat::Zip),
        FileKind::Sdist if !ends_with(filename, ".bz2") => Some(ArchiveFormat::TarGz),
        _ => None,
    }
}

/// The members of the release file `filename`; `None` if files of its kind are not opened. With `has_digests`, its files
/// are unpacked and digested, as far as the limits allow.
///
/// # Errors
/// [`ArchiveError`], depending on what is wrong.
pub fn members<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ContentsLimits,
    has_digests: bool,
) -> Result<Option<Contents>, ArchiveError> {
    match form(filename) {
        None => Ok(None),
        Some(ArchiveFormat::TarGz) => {
            tarball::members(reader, file_bytes, limits, has_digests).map(Some)
        }
        Some(ArchiveFormat::Zip) => {
            let zip = SafeZip::open(reader, file_bytes, &zip_limits(limits))?;
            let (mut left, mut packed_left) = (limits.inflated_bytes_max, limits.packed_bytes_max);
            let listed = zip.members().iter().map(|member| {
                let is_file = !member.name.ends_with('/');
                let (bytes, packed) = (member.size_bytes, member.packed_bytes());
                let is_read = has_digests && is_file && bytes <= left && packed <= packed_left;
                if is_read {
                    left -= bytes;
                    packed_left -= packed;
                }
                // A member that cannot be unpacked has no digest, and so equals no other.
                let digest = || digest_of(&mut zip.reader(member).ok()?).ok();
                ContentsMember {
                    name: member.name.clone(),
                    size_bytes: member.size_bytes,
                    is_file,
                    link: None,
                    digest: is_read.then(digest).flatten(),
                }
            });
            Ok(Some(Contents { members: listed.collect(), is_cut: false }))
        }
    }
}

/// The beginning of the member with this number; `None` if there is no such member, if it is not a file, or if it is beyond the limits.
///
/// # Errors
/// [`ArchiveError`], depending on what is wrong.
pub fn member<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ContentsLimits,
    number: usize,
) -> Result<Option<MemberText>, ArchiveError> {
    match form(filename) {
        None => Ok(None),
        Some(ArchiveFormat::TarGz) => tarball::member(reader, file_bytes, limits, number),
        Some(ArchiveFormat::Zip) => {
            let zip = SafeZip::open(reader, file_bytes, &zip_limits(limits))?;
            let found = zip.members().get(number).filter(|member| !member.name.ends_with('/'));
            // Of an uncompressed member, only what is shown is read.
            let found = found.filter(|member| {
                member.is_stored() || member.packed_bytes() <= limits.packed_bytes_max
            });
            let Some(member) = found else { return Ok(None) };
            let bytes = first_bytes(&mut zip.reader(member)?, member.size_bytes, limits)
                .map_err(|error| super::io_error("zip", error))?;
            let (name, size_bytes) = (member.name.clone(), member.size_bytes);
            Ok(Some(MemberText { name, size_bytes, bytes }))
        }
    }
}

/// A zip's directory is read whole, so these limits bound its memory.
fn zip_limits(limits: &ContentsLimits) -> ArchiveLimits {
    ArchiveLimits {
        members_max: limits.members_max as u64,
        directory_bytes_max: 2 * limits.name_bytes_max as u64,
        ..ArchiveLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, tarball as tar_of, tarred, zip};
    use super::*;

    const WHEEL: &str = "foo-1.0-py3-none-any.whl";
    const SDIST: &str = "foo-1.0.tar.gz";

    fn named(filename: &str) -> Filename {
        Filename::parse(filename).expect("a filename")
    }

    /// `name size`, with the target of a link, of each member.
    fn listed(filename: &str, bytes: &[u8], limits: &ContentsLimits) -> (Vec<String>, bool) {
        let found = members(bytes, bytes.len() as u64, &named(filename), limits, true);
        let found = found.expect("it is read").expect("it is an archive");
        let line = |member: &ContentsMember| {
            assert_eq!(member.digest.is_some(), member.is_file, "{}", member.name);
            let link = member.link.as_ref().map_or(String::new(), |it| format!(" -> {it}"));
            format!("{} {}{link}", member.name, member.size_bytes)
        };
        (found.members.iter().map(line).collect(), found.is_cut)
    }

    fn text(filename: &str, bytes: &[u8], number: usize) -> Option<(String, String, bool)> {
        let limits = ContentsLimits { member_bytes_max: 4, ..ContentsLimits::default() };
        let found = member(bytes, bytes.len() as u64, &named(filename), &limits, number);
        let found = found.expect("it is read")?;
        let text = String::from_utf8(found.bytes.clone()).expect("text");
        Some((found.name.clone(), text, found.is_cut()))
    }

    fn source() -> Vec<u8> {
        tar_of(&[
            tarred(b'5', "foo-1.0/", "", b""),
            tarred(b'0', "foo-1.0/a\nb\x1b.txt", "", b"long text"),
            tarred(b'2', "foo-1.0/l", "a", b""),
            tarred(b'0', "foo-1.0/z", "", b"z"),
        ])
    }

    #[test]
    fn members_have_their_size_and_what_they_are() {
        let limits = ContentsLimits::default();
        let bytes = zip(&[file("foo/", ""), file("foo/a.py", "abcdef"), file("b", "")]);
        let expected = ["foo/ 0", "foo/a.py 6", "b 0"].map(str::to_owned).to_vec();
        assert_eq!(listed(WHEEL, &bytes, &limits), (expected, false));
        let expected =
            ["foo-1.0/ 0", "foo-1.0/a\nb\u{1b}.txt 9", "foo-1.0/l 0 -> a", "foo-1.0/z 1"];
        let expected = expected.map(str::to_owned).to_vec();
        assert_eq!(listed(SDIST, &source(), &limits), (expected, false));
        let other = members(&b""[..], 0, &named("foo-1.0.tar.bz2"), &limits, false);
        assert!(other.expect("it is not opened").is_none());
    }

    #[test]
    fn the_beginning_of_a_member_is_read() {
        let bytes = zip(&[file("foo/", ""), file("foo/a.py", "abcdef"), file("b", "four")]);
        let some =
            |name: &str, text: &str, is_cut| Some((name.to_owned(), text.to_owned(), is_cut));
        assert_eq!(text(WHEEL, &bytes, 0), None);
        assert_eq!(text(WHEEL, &bytes, 1), some("foo/a.py", "abcd", true));
        assert_eq!(text(WHEEL, &bytes, 2), some("b", "four", false));
        assert_eq!(text(WHEEL, &bytes, 3), None);
        assert_eq!(text(SDIST, &source(), 0), None);
        assert_eq!(text(SDIST, &source(), 1), some("foo-1.0/a\nb\u{1b}.txt", "long", true));
        assert_eq!(text(SDIST, &source(), 2), None);
        assert_eq!(text(SDIST, &source(), 3), some("foo-1.0/z", "z", false));
        assert_eq!(text(SDIST, &source(), 4), None);
    }

    /// A gzip file that unpacks to nothing: a header, and 100,000 bytes of empty blocks of deflate, stored and not the last.
    fn empty_blocks() -> Vec<u8> {
        let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        bytes.extend([0, 0, 0, 255, 255].repeat(20_000));
        bytes
    }

    #[test]
    fn no_more_is_read_than_the_limits_allow() {
        let first = |limits: ContentsLimits| {
            let (names, is_cut) = listed(SDIST, &source(), &limits);
            (names.len(), is_cut)
        };
        let limits = ContentsLimits::default();
        assert_eq!(first(ContentsLimits { members_max: 2, ..limits }), (2, true));
        assert_eq!(first(ContentsLimits { name_bytes_max: 30, ..limits }), (2, true));
        // A bomb: its first member is shown, but reading ends before the next one.
        let zeros = vec![0; 1 << 20];
        let bomb = [tarred(b'0', "foo-1.0/bomb", "", &zeros), tarred(b'0', "foo-1.0/z", "", b"z")];
        let bomb = tar_of(&bomb);
        let limits = ContentsLimits { inflated_bytes_max: 100_000, ..limits };
        let found = members(&bomb[..], bomb.len() as u64, &named(SDIST), &limits, false);
        let found = found.expect("it is read").expect("it is an archive");
        assert_eq!((found.members.len(), found.is_cut), (1, true));
        let behind = member(&bomb[..], bomb.len() as u64, &named(SDIST), &limits, 1);
        assert_eq!(behind.expect("it is read"), None);
        let empty = empty_blocks();
        let limits = ContentsLimits { packed_bytes_max: 50_000, ..limits };
        let found = members(&empty[..], empty.len() as u64, &named(SDIST), &limits, true);
        let found = found.expect("it is read").expect("it is an archive");
        assert_eq!((found.members.len(), found.is_cut), (0, true));
        let unread = member(&empty[..], empty.len() as u64, &named(SDIST), &limits, 0);
        assert_eq!(unread.expect("it is read"), None);
        let bytes = zip(&[file("a", vec![0; 200_000]), file("b", "b")]);
        let found = members(&bytes[..], bytes.len() as u64, &named(WHEEL), &limits, true);
        let found = found.expect("it is read").expect("it is an archive");
        let digested = found.members.iter().map(|it| it.digest.is_some());
        assert_eq!(digested.collect::<Vec<_>>(), [false, true]);
        let narrow = ContentsLimits { packed_bytes_max: 1, ..ContentsLimits::default() };
        let found = members(&bytes[..], bytes.len() as u64, &named(WHEEL), &narrow, true);
        let found = found.expect("it is read").expect("it is an archive");
        assert!(found.members[0].digest.is_none());
        let unread = member(&bytes[..], bytes.len() as u64, &named(WHEEL), &narrow, 0);
        assert_eq!(unread.expect("it is read"), None);
        let few = ContentsLimits { members_max: 1, ..limits };
        let refused = members(&bytes[..], bytes.len() as u64, &named(WHEEL), &few, false);
        assert!(matches!(refused, Err(ArchiveError::TooMuch { what: "members", .. })));
    }
}
