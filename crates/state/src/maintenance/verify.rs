//! [`verify()`]: checks everything in a store, and reports every fault by name.
//!
//! the database's own check -> each surface reads its records -> their blobs must exist, with the right size -> each blob is
//! hashed again. Servers may write meanwhile: a blob that was deleted and swept during the check is no fault. Nothing is
//! changed. Takes as much memory as serving the store does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use futures_util::{StreamExt as _, TryStreamExt as _};
use record::{Digest, Key, Record, Serial, UnreadableRecord};
use serde::{Serialize, Serializer};
use store::blobs::BlobVerdict;
use store::{BlobError, BlobStore, Intake, Store};

use super::flaw::{as_text, as_texts, damaged, write_keys, wrong_size};
use super::{AT_ONCE_MAX, Progress, blob_name, listed};
use crate::identity::{self, LostCommits};
use crate::named_blobs::{NamedBlobs, NamedBlobsBuilder, blobs_of_body, who_names};
use crate::stored::Stored;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "where", rename_all = "lowercase")]
pub enum Fault {
    /// In the database as a whole.
    Database {
        /// What is wrong.
        flaw: String,
    },
    /// In one record.
    Record {
        /// Its key.
        #[serde(serialize_with = "as_text")]
        key: Key,
        /// What is wrong.
        flaw: String,
    },
    /// In an article.
    Article {
        /// Its name.
        name: String,
        /// What is wrong.
        flaw: String,
    },
    /// In a blob that records name.
    Blob {
        /// The blob.
        #[serde(serialize_with = "as_text")]
        digest: Digest,
        /// What is wrong.
        flaw: String,
        /// Some of the keys of the records that name it.
        #[serde(serialize_with = "as_texts")]
        named_by: Vec<Key>,
    },
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The store's serial when it was read.
    #[serde(serialize_with = "as_number")]
    pub serial: Serial,
    /// Records by the first segment of their keys.
    pub records: BTreeMap<String, u64>,
    /// Of the records, those of deleted keys.
    pub records_deleted: u64,
    /// Blobs that records name.
    pub blobs_named: u64,
    /// Bytes of the named blobs that exist.
    pub blobs_named_bytes: u64,
    /// Of the named blobs, those that were hashed again.
    pub blobs_hashed: u64,
    /// Blobs that no record names: a sweep takes them once they are old enough.
    pub blobs_unnamed: u64,
    /// Their bytes.
    pub blobs_unnamed_bytes: u64,
    /// The faults.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Database { flaw } => formatter.write_str(flaw),
            Fault::Record { key, flaw } => write!(formatter, "the record `{key}` {flaw}"),
            Fault::Article { name, flaw } => write!(formatter, "the article `{name}` {flaw}"),
            Fault::Blob { digest, flaw, named_by } => {
                write!(formatter, "{} {flaw}", blob_name(digest))?;
                write_keys(formatter, named_by)
            }
        }
    }
}

fn as_number<S: Serializer>(serial: &Serial, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(serial.0)
}

/// Looks at everything in `store`; with `is_quick`, blobs are not read.
///
/// # Errors
/// A store that cannot be read at all: then nothing is known.
pub async fn verify(
    store: &Store,
    is_quick: bool,
    progress: &Progress,
) -> anyhow::Result<VerifyReport> {
    let verified = look(store, is_quick, progress).await;
    progress.end();
    verified
}

async fn look(store: &Store, is_quick: bool, progress: &Progress) -> anyhow::Result<VerifyReport> {
    let mut report = VerifyReport::default();
    progress.begin("reading records");
    let mut reading = RecordCheck {
        stored: Intake::new(Stored::default()),
        naming: NamedBlobsBuilder::default(),
    };
    let read = store.records.verify(|record| {
        progress.step();
        reading.take(record, &mut report);
    });
    let (serial, flaws) = read.await?;
    report.serial = serial;
    let named = reading.finish(serial, &mut report);
    report.faults.splice(0..0, flaws.into_iter().map(|flaw| Fault::Database { flaw }));
    if let Some(flaw) = strangers(store).await? {
        report.faults.push(Fault::Database { flaw });
    }
    look_at_blobs(store, &named, is_quick, progress, &mut report).await?;
    Ok(report)
}

/// The fault that records and blobs do not belong together, if so. Blobs without a name are those of an earlier version, and no
/// fault.
async fn strangers(store: &Store) -> anyhow::Result<Option<String>> {
    let known = identity::of_records(&store.records).await?;
    let found = match store.blobs.identity().await {
        Err(error @ BlobError::Away { .. }) => return Ok(Some(error.to_string())),
        found => found?,
    };
    Ok(match (known, found) {
        (_, None) => None,
        (Some(known), Some(found)) if known == found => {
            let older = identity::older(store, &known).await?;
            older.map(|LostCommits { found, noted }| {
                format!(
                    "the records are an older copy, at serial {found}, but the blobs know that they were at serial {noted}"
                )
            })
        }
        (known, Some(found)) => {
            let known = known.map_or_else(|| "no store".to_owned(), |known| known.to_string());
            Some(format!(
                "the records are those of {known}, but the blobs belong to the store {found}"
            ))
        }
    })
}

/// Records on their way through the surfaces.
struct RecordCheck {
    stored: Intake<Stored>,
    naming: NamedBlobsBuilder,
}

impl RecordCheck {
    fn take(&mut self, record: Record, report: &mut VerifyReport) {
        let kind = record.key.as_str().split('/').next().unwrap_or_default();
        match report.records.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(report.records.insert(kind.to_owned(), 1)),
        }
        report.records_deleted += u64::from(record.body.is_none());
        self.naming.take(&record);
        for blob in blobs_of_body(&record) {
            if !record.blobs.contains(&blob.digest) {
                let flaw = format!(
                    "has `{}` {} in its body, but not among the blobs that it keeps alive",
                    blob.member, blob.digest
                );
                report.faults.push(Fault::Record { key: record.key.clone(), flaw });
            }
        }
        self.stored.take(record);
    }

    fn finish(self, serial: Serial, report: &mut VerifyReport) -> NamedBlobs {
        let (stored, news) = self.stored.finish(serial);
        for UnreadableRecord { key, reason, .. } in news.troubles {
            report.faults.push(Fault::Record { key, flaw: format!("cannot be read: {reason}") });
        }
        for article in stored.articles.articles() {
            for number in article.lacking(&stored.articles) {
                let flaw = format!("lacks its revision {number}");
                report.faults.push(Fault::Article { name: article.name.to_string(), flaw });
            }
        }
        self.naming.finish(serial)
    }
}

async fn look_at_blobs(
    store: &Store,
    named: &NamedBlobs,
    is_quick: bool,
    progress: &Progress,
    report: &mut VerifyReport,
) -> anyhow::Result<()> {
    report.blobs_named = named.count();
    progress.begin("listing blobs");
    let mut suspects: HashMap<Digest, String> = HashMap::new();
    for portion in named.portions() {
        let mut absent: HashMap<Digest, Option<u64>> = named.part(portion).collect();
        let mut listing = listed(&store.blobs, portion);
        while let Some(entry) = listing.try_next().await? {
            progress.step();
            let Some(expected) = absent.remove(&entry.digest) else {
                if !named.contains(&entry.digest) {
                    report.blobs_unnamed += 1;
                    report.blobs_unnamed_bytes += entry.size_bytes;
                }
                continue;
            };
            report.blobs_named_bytes += entry.size_bytes;
            if let Some(expected) = expected.filter(|expected| *expected != entry.size_bytes) {
                suspects.insert(entry.digest, wrong_size(entry.size_bytes, expected));
            }
        }
        // A listing may skip a blob that is put again meanwhile.
        for (digest, expected) in absent {
            match (store.blobs.size_bytes(digest).await?, expected) {
                (None, _) => drop(suspects.insert(digest, "is missing".to_owned())),
                (Some(found), Some(expected)) if found != expected => {
                    suspects.insert(digest, wrong_size(found, expected));
                }
                (Some(found), _) => report.blobs_named_bytes += found,
            }
        }
    }
    if !is_quick {
        let digests = named.blobs().map(|(digest, _)| digest);
        let whole = digests.filter(|digest| !suspects.contains_key(digest)).collect();
        rehash(&store.blobs, whole, progress, report, &mut suspects).await?;
    }
    if suspects.is_empty() {
        return Ok(());
    }
    progress.begin("looking for who names what is wrong");
    let mut named_by = who_names(&store.records, suspects.keys().copied()).await?;
    let mut faults: Vec<(Digest, String)> = suspects.into_iter().collect();
    faults.sort_unstable();
    for (digest, flaw) in faults {
        // A blob that no record names any more may have been swept.
        if let Some(named_by) = named_by.remove(&digest) {
            report.faults.push(Fault::Blob { digest, flaw, named_by });
        }
    }
    Ok(())
}

async fn rehash(
    blobs: &BlobStore,
    digests: Vec<Digest>,
    progress: &Progress,
    report: &mut VerifyReport,
    suspects: &mut HashMap<Digest, String>,
) -> anyhow::Result<()> {
    progress.begin_counted("hashing blobs", digests.len() as u64);
    let verdicts = futures_util::stream::iter(digests).map(|digest| async move {
        let verdict = blobs.verify(digest).await;
        progress.step();
        (digest, verdict)
    });
    let mut verdicts = verdicts.buffer_unordered(AT_ONCE_MAX);
    while let Some((digest, verdict)) = verdicts.next().await {
        report.blobs_hashed += 1;
        let flaw = match verdict {
            Ok(BlobVerdict::Whole) => continue,
            Ok(BlobVerdict::Missing) => "is missing".to_owned(),
            Ok(BlobVerdict::Damaged { found }) => damaged(&found),
            // A damaged block is a fault; if the store is unreachable, the check ends.
            Err(error) if error.is_temporary() => return Err(error.into()),
            Err(error) => format!("cannot be read: {error}"),
        };
        suspects.insert(digest, flaw);
    }
    Ok(())
}
