//! [`EntryHead`]: the beginning of an entry's file; and finding entries in a directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use record::Digest;
use resources::files;
use serde::{Deserialize, Serialize};

use super::Key;

/// The offset of the content in an entry's file.
pub(crate) const HEAD_BYTES: u64 = 4096;

/// Facts about an entry's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryHead {
    /// A description, for people who look at the file.
    pub(crate) name: String,
    /// Size of the content in bytes.
    pub(crate) size_bytes: u64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub(crate) sha256: String,
    /// When upstream last said it, in milliseconds since 1970.
    pub(crate) confirmed_at: i64,
    /// Upstream's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) etag: Option<String>,
    /// Upstream's time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_modified: Option<String>,
    /// Upstream's serial of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<u64>,
    /// For a page, the number of its form: a page in an older form is fetched again, as it lacks something.
    #[serde(default)]
    pub(crate) form: u32,
    /// Whether upstream named a digest that the content was compared with.
    #[serde(default)]
    pub(crate) is_verified: bool,
    /// For a file whose SHA-256 upstream does not name: its other digests, or for metadata those of the file that it is of. With
    /// others, the content is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stamp: Option<String>,
    /// For a file: when upstream last sent or confirmed it, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) checked_at: i64,
}

/// The heads of all entries in a directory that a server may have open, in no order. Blocks.
pub(crate) fn heads(directory: &Path) -> impl Iterator<Item = (Key, EntryHead)> + use<'_> {
    let parts = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = parts.flat_map(|part| fs::read_dir(part.path()).into_iter().flatten().flatten());
    entries.filter_map(|entry| {
        let key: Key = entry.file_name().to_str()?.parse().ok()?;
        Some((key, opened_at(directory, &key)?.0))
    })
}

/// The head and the file of an entry in a directory that a server may have open; nothing if it is damaged. Blocks.
pub(crate) fn opened_at(directory: &Path, key: &Key) -> Option<(EntryHead, File)> {
    let name = key.to_string();
    let file = files::open(&directory.join(&name[..2]).join(name)).ok()?;
    let head = read_head(&file).ok()?;
    let is_whole = file.metadata().ok()?.len() == HEAD_BYTES + head.size_bytes;
    is_whole.then_some((head, file))
}

/// The head and the content of such an entry, if the content has its digest. Blocks.
pub(crate) fn content_at(directory: &Path, key: &Key) -> Option<(EntryHead, Vec<u8>)> {
    let (head, file) = opened_at(directory, key)?;
    let mut content = vec![0; usize::try_from(head.size_bytes).ok()?];
    file.read_exact_at(&mut content, HEAD_BYTES).ok()?;
    (Digest::of(&content).to_string() == head.sha256).then_some((head, content))
}

/// The beginning of an entry's file: the head, its checksum, and spaces.
pub(super) fn head_bytes(head: &EntryHead) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(head)?;
    let mut bytes = format!("{} {json}\n", Digest::of(json.as_bytes())).into_bytes();
    if bytes.len() as u64 > HEAD_BYTES {
        return Err(io::Error::other("what upstream says of it is too long to be kept"));
    }
    bytes.resize(HEAD_BYTES as usize, b' ');
    Ok(bytes)
}

pub(super) fn read_head(file: &File) -> io::Result<EntryHead> {
    let mut bytes = vec![0; HEAD_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    parsed_head(&bytes)
}

/// The head of an entry, which its file begins with.
pub(crate) fn parsed_head(bytes: &[u8]) -> io::Result<EntryHead> {
    let damaged = || io::Error::other("its head is damaged");
    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let (checksum, json) = text.trim_end().split_once(' ').ok_or_else(damaged)?;
    if Digest::of(json.as_bytes()).to_string() != checksum {
        return Err(damaged());
    }
    Ok(serde_json::from_str(json)?)
}
