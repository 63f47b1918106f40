//! [`NamedBlobs`]: the blobs that records name, with what the bodies say of them.
//!
//! records -> their lists of blobs -> [`NamedBlobsBuilder`] -> [`NamedBlobs`]. Only the list keeps a blob from being swept; the body is used to check
//! the list and the blob's size. Some 45 bytes of memory for each blob.

use std::borrow::Cow;
use std::collections::HashMap;

use record::{Digest, Key, Record, Serial};
use serde::Deserialize;
use store::{ReadError, Records};

/// Keys that a message names for one blob.
const NAMED_BY_MAX: usize = 5;

/// The blobs that the records of one moment name.
#[derive(Clone, Debug, Default)]
pub struct NamedBlobs {
    /// The store's serial at that moment.
    pub serial: Serial,
    /// How many records there are, deleted ones included.
    pub records: u64,
    /// Whether there are records, deleted ones included, of a kind that names blobs.
    pub has_history: bool,
    /// The blobs by the first byte of their digests, ascending.
    parts: Vec<Vec<NamedSize>>,
}

/// A blob and its size in bytes, or [`UNKNOWN`].
type NamedSize = (Digest, u64);

/// No body tells the size. It is greater than all others.
const UNKNOWN: u64 = u64::MAX;

/// Parts of digests, by their first byte.
const PARTS: usize = 256;

/// So many blobs are handled together; of more, one part after the other. Each part costs a listing of its own, which an object store
/// answers slowly, and leaves less to do at once. Tests divide earlier.
const TOGETHER_MAX: u64 = if cfg!(test) { 8 } else { 100_000 };

/// Gathers what records name.
#[derive(Debug)]
pub struct NamedBlobsBuilder {
    named: NamedBlobs,
}

/// A blob that the body of a record speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedBlob {
    /// The member of the body.
    pub member: &'static str,
    /// The blob.
    pub digest: Digest,
    /// Its size in bytes, if the body tells it.
    pub size_bytes: Option<u64>,
}

impl NamedBlobs {
    /// The blobs that the records name now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(records: &Records) -> Result<NamedBlobs, ReadError> {
        let mut naming = NamedBlobsBuilder::default();
        let serial = records.read_after(Serial::ZERO, |record| naming.take(&record)).await?;
        Ok(naming.finish(serial))
    }

    /// How many blobs they name.
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// The blobs, each with its size in bytes if a body tells it, ascending.
    pub fn blobs(&self) -> impl Iterator<Item = (Digest, Option<u64>)> {
        self.part(None)
    }

    /// What to handle one after the other, so that only what is known of one part is in memory: first bytes of digests, or all.
    pub(crate) fn portions(&self) -> impl Iterator<Item = Option<u8>> + use<> {
        let is_whole = self.count() <= TOGETHER_MAX;
        let firsts = (0..=u8::MAX).map(Some);
        is_whole.then_some(None).into_iter().chain(firsts.filter(move |_| !is_whole))
    }

    /// [`NamedBlobs::blobs`] whose digests begin with this byte, or all.
    pub(crate) fn part(&self, first: Option<u8>) -> impl Iterator<Item = (Digest, Option<u64>)> {
        let parts = self.parts.iter().enumerate();
        let wanted =
            parts.filter(move |(at, _)| first.is_none_or(|first| usize::from(first) == *at));
        let named = wanted.flat_map(|(_, part)| part);
        named.map(|(digest, size_bytes)| (*digest, Some(*size_bytes).filter(|it| *it != UNKNOWN)))
    }

    /// Whether some record names the blob.
    pub fn contains(&self, digest: &Digest) -> bool {
        let part = self.parts.get(usize::from(digest.as_bytes()[0]));
        part.is_some_and(|part| part.binary_search_by_key(digest, |named| named.0).is_ok())
    }
}

impl Default for NamedBlobsBuilder {
    fn default() -> NamedBlobsBuilder {
        NamedBlobsBuilder {
            named: NamedBlobs { parts: vec![Vec::new(); PARTS], ..NamedBlobs::default() },
        }
    }
}

impl NamedBlobsBuilder {
    /// Takes in one record.
    pub fn take(&mut self, record: &Record) {
        self.named.records += 1;
        self.named.has_history |= may_name_blobs(record.key.as_str());
        if record.blobs.is_empty() {
            return;
        }
        let told = blobs_of_body(record);
        for digest in &record.blobs {
            let told = told.iter().filter(|blob| blob.digest == *digest);
            let size_bytes = told.filter_map(|blob| blob.size_bytes).min().unwrap_or(UNKNOWN);
            let part = &mut self.named.parts[usize::from(digest.as_bytes()[0])];
            if part.len() == part.capacity() {
                settle(part);
                part.reserve_exact(64 + part.len() / 4);
            }
            part.push((*digest, size_bytes));
        }
    }

    /// What the records name, which were all that there are at this serial.
    pub fn finish(mut self, serial: Serial) -> NamedBlobs {
        self.named.serial = serial;
        self.named.parts.iter_mut().for_each(settle);
        self.named
    }
}

/// Puts a part in order, with each blob once.
fn settle(part: &mut Vec<NamedSize>) {
    // Stable, as this sort merges what is sorted already. Of a blob, a size that is known comes first.
    part.sort();
    part.dedup_by_key(|named| named.0);
}

/// The blobs that records name now and whose digest begins with `part`, in order.
///
/// # Errors
/// [`ReadError`].
pub async fn named_in_part(records: &Records, part: u8) -> Result<Vec<Digest>, ReadError> {
    let mut digests = Vec::new();
    let look = |record: Record| {
        digests.extend(record.blobs.iter().filter(|digest| digest.as_bytes()[0] == part));
    };
    records.read_after(Serial::ZERO, look).await?;
    digests.sort_unstable();
    digests.dedup();
    Ok(digests)
}

/// Whether some record names the blob now.
///
/// # Errors
/// [`ReadError`].
pub async fn is_named(records: &Records, digest: Digest) -> Result<bool, ReadError> {
    Ok(!who_names(records, [digest]).await?.is_empty())
}

/// The records that name each of these blobs now, at most some for each; a blob that no record names is left out.
///
/// # Errors
/// [`ReadError`].
pub(crate) async fn who_names(
    records: &Records,
    digests: impl IntoIterator<Item = Digest>,
) -> Result<HashMap<Digest, Vec<Key>>, ReadError> {
    let mut keys: HashMap<Digest, Vec<Key>> =
        digests.into_iter().map(|digest| (digest, Vec::new())).collect();
    let look = |record: Record| {
        for digest in &record.blobs {
            if let Some(keys) = keys.get_mut(digest)
                && keys.len() < NAMED_BY_MAX
                && keys.last() != Some(&record.key)
            {
                keys.push(record.key.clone());
            }
        }
    };
    records.read_after(Serial::ZERO, look).await?;
    keys.retain(|_, keys| !keys.is_empty());
    Ok(keys)
}

/// The members in which articles and the Python index name blobs.
#[derive(Deserialize)]
struct Members<'body> {
    #[serde(borrow)]
    sha256: Option<Cow<'body, str>>,
    size_bytes: Option<u64>,
    #[serde(borrow)]
    core_metadata_sha256: Option<Cow<'body, str>>,
    #[serde(borrow)]
    provenance_sha256: Option<Cow<'body, str>>,
    #[serde(borrow)]
    metadata: Option<Cow<'body, str>>,
    /// The files of a record of attachments.
    #[serde(borrow, default)]
    files: Vec<FileMembers<'body>>,
}

/// A file of an article.
#[derive(Deserialize)]
struct FileMembers<'body> {
    #[serde(borrow)]
    sha256: Cow<'body, str>,
    size_bytes: u64,
}

/// Whether a record under `key` is of a kind that names blobs.
fn may_name_blobs(key: &str) -> bool {
    ["article/", "attachments/", "python/file/", "python/version/"]
        .iter()
        .any(|kind| key.starts_with(kind))
}

/// The blobs that the body of a record speaks of. What is no digest is left out, as is all of a body that
/// is not as it should be: its surface says so.
pub(crate) fn blobs_of_body(record: &Record) -> Vec<NamedBlob> {
    let Some(body) = record.body.as_ref().filter(|_| may_name_blobs(record.key.as_str())) else {
        return Vec::new();
    };
    let Ok(members) = serde_json::from_slice::<Members<'_>>(body) else { return Vec::new() };
    let of_file = [("sha256", &members.sha256, members.size_bytes)];
    let of_others = [
        ("core_metadata_sha256", &members.core_metadata_sha256, None),
        ("provenance_sha256", &members.provenance_sha256, None),
        ("metadata", &members.metadata, None),
    ];
    let of_article = members.files.iter().filter_map(|file| {
        let (member, digest) = ("sha256", file.sha256.parse().ok()?);
        Some(NamedBlob { member, digest, size_bytes: Some(file.size_bytes) })
    });
    let named = of_file.into_iter().chain(of_others).filter_map(|(member, text, size_bytes)| {
        let digest = text.as_ref()?.parse().ok()?;
        Some(NamedBlob { member, digest, size_bytes })
    });
    named.chain(of_article).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, body: &str, blobs: Vec<Digest>) -> Record {
        let body = Some(body.to_owned().into());
        Record { key: Key::new(key).expect("a key"), serial: Serial(1), body, blobs }
    }

    #[track_caller]
    fn check(key: &str, body: &str, expected: &str) {
        let found: Vec<String> = blobs_of_body(&record(key, body, Vec::new()))
            .iter()
            .map(|blob| format!("{} {:?}", blob.member, blob.size_bytes))
            .collect();
        assert_eq!(found.join(", "), expected, "{key}");
    }

    #[test]
    fn bodies_name_blobs() {
        let digest = Digest::of(b"x");
        let file = format!(
            r#"{{"v":1,"sha256":"{digest}","size_bytes":1,"core_metadata_sha256":"{digest}"}}"#
        );
        check("python/file/u/i/p/f", &file, "sha256 Some(1), core_metadata_sha256 None");
        let version = format!(r#"{{"v":1,"metadata":"{digest}"}}"#);
        check("python/version/u/i/p/1", &version, "metadata None");
        check("python/stage/u/i", &version, "");
        let article = format!(r#"{{"v":1,"kind":"put","sha256":"{digest}","size_bytes":1}}"#);
        check("article/0000000001/a", &article, "sha256 Some(1)");
        check("article/0000000001/a", r#"{"v":1,"sha256":"short"}"#, "");
        check("article/0000000001/a", "nonsense", "");
        let files = format!(
            r#"{{"v":1,"files":[{{"name":"x","sha256":"{digest}","size_bytes":1}},{{"name":"y","sha256":"{digest}","size_bytes":1}}]}}"#
        );
        check("attachments/a", &files, "sha256 Some(1), sha256 Some(1)");
    }

    #[test]
    fn the_list_is_what_counts() {
        let (listed, unlisted) = (Digest::of(b"listed"), Digest::of(b"unlisted"));
        let body = |digest| format!(r#"{{"sha256":"{digest}","size_bytes":6}}"#);
        let records = [
            record("article/0000000001/a", &body(unlisted), vec![listed]),
            record("other/a", "", vec![listed]),
            record("article/0000000002/a", &body(listed), vec![listed]),
        ];
        let named = |records: &[Record]| {
            let mut naming = NamedBlobsBuilder::default();
            records.iter().for_each(|record| naming.take(record));
            naming.finish(Serial(9))
        };
        let before = named(&records[..2]);
        assert_eq!(before.blobs().collect::<Vec<_>>(), [(listed, None)]);
        assert!(before.contains(&listed) && !before.contains(&unlisted));
        let all = named(&records);
        assert_eq!(all.blobs().collect::<Vec<_>>(), [(listed, Some(6))]);
        assert_eq!((all.records, all.count(), all.serial), (3, 1, Serial(9)));
    }

    #[test]
    fn many_blobs_are_named_once_and_in_order() {
        let mut naming = NamedBlobsBuilder::default();
        let digests: Vec<Digest> =
            (0..50_000_u32).map(|number| Digest::of(&(number % 20_000).to_le_bytes())).collect();
        for digest in &digests {
            naming.take(&record("other/a", "", vec![*digest]));
        }
        let named = naming.finish(Serial(1));
        let mut expected = digests[..20_000].to_vec();
        expected.sort_unstable();
        assert_eq!(named.blobs().map(|(digest, _)| digest).collect::<Vec<_>>(), expected);
        assert_eq!(named.count(), 20_000);
        assert!(digests.iter().all(|digest| named.contains(digest)));
        assert!(!named.contains(&Digest::of(b"another")));
        assert!(!NamedBlobs::default().contains(&digests[0]));
    }
}
