//! The contents of a release file, for people who look into it: [`Contents`], the beginning of a member, and bounds for both.

use std::io::{self, Read};

use record::{Digest, Hasher};

/// Bounds on looking into an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentsLimits {
    /// Members that are listed at most. A zip with more is refused, as its directory is read whole.
    pub members_max: usize,
    /// Most bytes of names together.
    pub name_bytes_max: usize,
    /// Most bytes that are unpacked.
    pub inflated_bytes_max: u64,
    /// Bytes of the file that are read at most for these: some archives unpack to nothing for gigabytes.
    pub packed_bytes_max: u64,
    /// Most bytes of a member that are read for a page.
    pub member_bytes_max: u64,
}

impl Default for ContentsLimits {
    fn default() -> ContentsLimits {
        ContentsLimits {
            members_max: 20_000,
            name_bytes_max: 2 << 20,
            inflated_bytes_max: 128 << 20,
            // Incompressible data grows a little when it is compressed.
            packed_bytes_max: (128 << 20) + (128 << 20) / 16,
            member_bytes_max: 256 << 10,
        }
    }
}

/// The members of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// In the order of the archive; a member's number is its position.
    pub members: Vec<ContentsMember>,
    /// Whether the archive has more members than were read.
    pub is_cut: bool,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsMember {
    /// Its path. The maker of the archive chose it, so it may have any character.
    pub name: String,
    /// Size after unpacking, in bytes, as the archive says.
    pub size_bytes: u64,
    /// Whether it is a file, with bytes to look at.
    pub is_file: bool,
    /// Its target, if it is a link.
    pub link: Option<String>,
    /// SHA-256 of its bytes, if digests were wanted and the limits allowed to read it.
    pub digest: Option<Digest>,
}

/// The beginning of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberText {
    /// Its path, as in [`ContentsMember::name`].
    pub name: String,
    /// Size of the whole member after unpacking, in bytes, as the archive says.
    pub size_bytes: u64,
    /// At most [`ContentsLimits::member_bytes_max`] bytes.
    pub bytes: Vec<u8>,
}

impl MemberText {
    /// Whether the member has more bytes than were read.
    pub fn is_cut(&self) -> bool {
        self.size_bytes > self.bytes.len() as u64
    }
}

pub(super) fn digest_of(reader: &mut impl Read) -> io::Result<Digest> {
    let mut hasher = Hasher::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first bytes of a member of `size_bytes`, as many as the limits allow.
pub(super) fn first_bytes(
    reader: &mut impl Read,
    size_bytes: u64,
    limits: &ContentsLimits,
) -> io::Result<Vec<u8>> {
    let wanted = size_bytes.min(limits.member_bytes_max);
    let mut bytes = Vec::new();
    // Reading one byte past the end of a whole member makes a zip's reader compare the checksum.
    reader.take(wanted + u64::from(wanted == size_bytes)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == wanted {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
