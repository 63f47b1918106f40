//! Copies blobs from one store to another: hashes them on the way, and looks for them at the end.
//!
//! the blobs that records name, without those at the target -> read, hashed, written -> [`Loss`]es. A blob is only copied if it
//! has the digest that is its name.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use futures_util::{StreamExt as _, TryStreamExt as _};
use record::{Digest, Key};
use serde::Serialize;
use store::blobs::BlobVerdict;
use store::{BlobError, BlobStore, Records};

use super::flaw::{damaged, write_keys, wrong_size};
use super::{AT_ONCE_MAX, Progress, blob_name, listed};
use crate::named_blobs::{NamedBlobs, who_names};

/// A blob that records name and that could not be carried over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The blob.
    #[serde(serialize_with = "super::flaw::as_text")]
    pub digest: Digest,
    /// Why.
    pub flaw: String,
    /// Some of the keys of the records that name it.
    #[serde(serialize_with = "super::flaw::as_texts")]
    pub named_by: Vec<Key>,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", blob_name(&self.digest), self.flaw)?;
        write_keys(formatter, &self.named_by)
    }
}

/// The blobs that records name, after their copying.
#[derive(Clone, Debug, Default)]
pub struct CopiedBlobs {
    /// All that are at the target.
    pub there: u64,
    /// Their bytes.
    pub there_bytes: u64,
    /// Those of them that were copied now.
    pub copied: u64,
    /// Bytes that were copied now.
    pub copied_bytes: u64,
    /// Those that the source does not have, or that could not be read.
    pub lost: Vec<Loss>,
}

impl CopiedBlobs {
    /// Adds to each loss which of these records name it; whether each is still named by some.
    pub(super) async fn name_losses(&mut self, records: &Records) -> anyhow::Result<bool> {
        let named_by = who_names(records, self.lost.iter().map(|loss| loss.digest)).await?;
        for loss in &mut self.lost {
            loss.named_by = named_by.get(&loss.digest).cloned().unwrap_or_default();
        }
        Ok(self.lost.iter().all(|loss| named_by.contains_key(&loss.digest)))
    }
}

/// How to treat blobs that the target has already.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyMode {
    /// Whether to hash them again; damaged ones are replaced if blobs are files.
    pub(super) is_verifying: bool,
    /// Touch those that are this old, because a sweep might come before the records do.
    pub(super) touched_after: Option<Duration>,
}

/// The outcome for one blob.
enum BlobResult {
    Copied { size_bytes: u64 },
    There,
    Lost(String),
}

/// Carries what `named` names from `source` to `target`.
///
/// # Errors
/// A source that does not answer and a target that does not take are the end; a single blob that cannot
/// be read is a loss, still without the keys.
pub(super) async fn carry(
    source: &BlobStore,
    target: &BlobStore,
    named: &NamedBlobs,
    manner: CopyMode,
    progress: &Progress,
) -> anyhow::Result<CopiedBlobs> {
    progress.begin_counted("copying blobs", named.count());
    // By the clock that tells the age of what is there.
    let now = target.now().await?;
    let mut carried = CopiedBlobs::default();
    let mut lost: HashMap<Digest, String> = HashMap::new();
    for portion in named.portions() {
        let found = found(target, named, portion).await?;
        let outcomes = futures_util::stream::iter(named.part(portion)).map(|(digest, expected)| {
            let found = found.get(&digest).copied();
            async move {
                let outcome = bring(source, target, &digest, expected, found, manner, now).await?;
                progress.step();
                Ok::<_, anyhow::Error>((digest, outcome))
            }
        });
        let mut outcomes = outcomes.buffer_unordered(AT_ONCE_MAX);
        while let Some((digest, outcome)) = outcomes.try_next().await? {
            match outcome {
                BlobResult::Copied { size_bytes } => {
                    carried.copied += 1;
                    carried.copied_bytes += size_bytes;
                }
                BlobResult::There => {}
                BlobResult::Lost(flaw) => {
                    lost.insert(digest, flaw);
                }
            }
        }
    }
    // Blobs may have disappeared if the target was swept meanwhile.
    progress.begin_counted("looking at what has arrived", named.count());
    for portion in named.portions() {
        let arrived = found(target, named, portion).await?;
        for (digest, expected) in named.part(portion) {
            progress.step();
            let flaw = match (lost.remove(&digest), arrived.get(&digest)) {
                (Some(flaw), _) => flaw,
                (None, None) => "did not stay where it was copied to".to_owned(),
                (None, Some(found)) => match expected {
                    Some(expected) if expected != found.size_bytes => {
                        wrong_size(found.size_bytes, expected)
                    }
                    _ => {
                        carried.there += 1;
                        carried.there_bytes += found.size_bytes;
                        continue;
                    }
                },
            };
            carried.lost.push(Loss { digest, flaw, named_by: Vec::new() });
        }
    }
    progress.end();
    Ok(carried)
}

/// A blob of the target, as it was listed.
#[derive(Clone, Copy)]
struct TargetBlob {
    size_bytes: u64,
    touched_at: SystemTime,
}

/// Those of the named blobs of this portion that `blobs` has.
async fn found(
    blobs: &BlobStore,
    named: &NamedBlobs,
    portion: Option<u8>,
) -> Result<HashMap<Digest, TargetBlob>, BlobError> {
    let mut found = HashMap::new();
    if named.part(portion).next().is_none() {
        return Ok(found);
    }
    let mut listing = listed(blobs, portion);
    while let Some(entry) = listing.try_next().await? {
        if named.contains(&entry.digest) {
            let touched_at = entry.touched_at;
            found.insert(entry.digest, TargetBlob { size_bytes: entry.size_bytes, touched_at });
        }
    }
    Ok(found)
}

async fn bring(
    source: &BlobStore,
    target: &BlobStore,
    digest: &Digest,
    expected: Option<u64>,
    found: Option<TargetBlob>,
    manner: CopyMode,
    now: SystemTime,
) -> anyhow::Result<BlobResult> {
    if let Some(found) = found
        && expected.is_none_or(|expected| expected == found.size_bytes)
        && keep(target, digest, found, manner, now).await?
    {
        return Ok(BlobResult::There);
    }
    copy(source, target, digest, expected).await
}

/// Whether the target's blob can stay as it is.
async fn keep(
    target: &BlobStore,
    digest: &Digest,
    found: TargetBlob,
    manner: CopyMode,
    now: SystemTime,
) -> anyhow::Result<bool> {
    if manner.is_verifying {
        match target.verify(*digest).await? {
            BlobVerdict::Whole => {}
            BlobVerdict::Missing => return Ok(false),
            BlobVerdict::Damaged { found } => {
                // A put does not overwrite an existing blob, so the damaged file is removed first.
                let Some(path) = target.local_path(*digest) else {
                    bail!("{} at the target has the digest {found}", blob_name(digest));
                };
                tokio::fs::remove_file(&path)
                    .await
                    .with_context(|| format!("cannot remove the damaged `{}`", path.display()))?;
                return Ok(false);
            }
        }
    }
    match manner.touched_after {
        Some(age) if now.duration_since(found.touched_at).is_ok_and(|since| since >= age) => {
            Ok(target.touch(*digest).await?)
        }
        _ => Ok(true),
    }
}

async fn copy(
    source: &BlobStore,
    target: &BlobStore,
    digest: &Digest,
    expected: Option<u64>,
) -> anyhow::Result<BlobResult> {
    // A store that does not answer is a reason to stop; a blob that cannot be read is one lost.
    let unreadable = |error: BlobError| match error {
        BlobError::Damaged { found, .. } => Ok(BlobResult::Lost(damaged(&found))),
        error if error.is_temporary() => Err(anyhow::Error::from(error)),
        error => Ok(BlobResult::Lost(format!("cannot be read: {error}"))),
    };
    let reader = match source.open_blob(*digest).await {
        Ok(Some(reader)) => reader,
        Ok(None) => return Ok(BlobResult::Lost("is missing".to_owned())),
        Err(error) => return unreadable(error),
    };
    let size_bytes = reader.size_bytes();
    if let Some(expected) = expected.filter(|expected| *expected != size_bytes) {
        return Ok(BlobResult::Lost(wrong_size(size_bytes, expected)));
    }
    let mut upload = target.begin(u64::MAX);
    let mut chunks = reader.read();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => upload.write(chunk).await?,
            Err(error) => return unreadable(error),
        }
    }
    let staged = upload.stage().await?;
    if staged.digest != *digest {
        return Ok(BlobResult::Lost(damaged(&staged.digest)));
    }
    staged.persist().await?;
    Ok(BlobResult::Copied { size_bytes })
}

#[cfg(test)]
mod tests {
    use record::{Record, Serial};
    use store::BlobLocation;

    use super::*;
    use crate::named_blobs::NamedBlobsBuilder;

    /// Carries this many blobs, of which one is at the target already, and a missing one; divided into so many portions.
    fn check(count: u64, portions: usize) {
        let directory = tempfile::tempdir().expect("a directory");
        let place = |name: &str| BlobLocation::Directory(directory.path().join(name));
        let spool = directory.path().join("spool");
        let carrying = async {
            let source = BlobStore::open(&place("one"), &spool).await.expect("a store");
            let target = BlobStore::open(&place("two"), &spool).await.expect("a store");
            let mut digests = vec![Digest::of(b"missing")];
            for number in 0..count {
                let bytes = bytes::Bytes::from(number.to_string());
                if number == 0 {
                    target.put(bytes.clone()).await.expect("to put");
                }
                digests.push(source.put(bytes).await.expect("to put").digest);
            }
            target.put("of nobody".into()).await.expect("to put");
            let mut naming = NamedBlobsBuilder::default();
            let key = Key::new("other/a").expect("a key");
            let (serial, body) = (Serial(1), None);
            naming.take(&Record { key, serial, body, blobs: digests.clone() });
            let named = naming.finish(serial);
            assert_eq!(named.portions().count(), portions);
            let manner = CopyMode { is_verifying: true, touched_after: None };
            let carried = carry(&source, &target, &named, manner, &Progress::on_terminal()).await;
            let carried = carried.expect("it carries");
            let lost: Vec<String> = carried.lost.iter().map(ToString::to_string).collect();
            assert_eq!(lost, [format!("the blob {} is missing", digests[0])]);
            assert_eq!((carried.copied, carried.there), (count - 1, count));
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.expect("a runtime").block_on(carrying);
    }

    #[test]
    fn few_blobs_are_carried_together_and_many_by_portions() {
        check(5, 1);
        check(60, 256);
    }
}
