//! Checks that the store has the bytes of imported files, and that they are undamaged.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _};
use record::Digest;
use state::maintenance::Progress;
use store::BlobStore;
use store::blobs::BlobVerdict;

use super::AT_ONCE_MAX;
use super::report::Report;

/// A file to check, as its record describes it.
pub(super) struct BlobCheck<'item> {
    /// Its name in the report.
    pub(super) subject: &'item str,
    pub(super) digest: Digest,
    pub(super) size_bytes: u64,
    /// Whether this import added it. If so its bytes are read back; for an earlier one, that was done then, and only
    /// its size is checked.
    pub(super) is_new: bool,
}

/// Checks the bytes of these files, each blob once, and adds problems to the report.
///
/// # Errors
/// If the store cannot be read.
pub(super) async fn check(
    blobs: &BlobStore,
    looks: &[BlobCheck<'_>],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut wanted: BTreeMap<Digest, (u64, bool)> = BTreeMap::new();
    for look in looks {
        let (_, is_new) = wanted.entry(look.digest).or_insert((look.size_bytes, false));
        *is_new |= look.is_new;
    }
    let progress = Progress::on_terminal();
    progress.begin_counted("looking again", wanted.len() as u64);
    let flaws = wanted.iter().map(|(digest, (size_bytes, is_new))| async {
        let flaw = flaw(blobs, *digest, *size_bytes, *is_new).await?;
        progress.step();
        anyhow::Ok(flaw.map(|flaw| (*digest, flaw)))
    });
    let flaws = futures_util::stream::iter(flaws).buffer_unordered(AT_ONCE_MAX);
    let flaws: BTreeMap<Digest, String> =
        flaws.try_filter_map(|flaw| async { Ok(flaw) }).try_collect().await?;
    progress.end();
    for look in looks {
        match flaws.get(&look.digest) {
            None => report.verified += 1,
            Some(flaw) => report.fail(look.subject, format_args!("was imported, but {flaw}")),
        }
    }
    report.hashed += wanted.values().filter(|(_, is_new)| *is_new).count() as u64;
    Ok(())
}

/// The problem with a blob; `None` if it is fine.
async fn flaw(
    blobs: &BlobStore,
    digest: Digest,
    expected: u64,
    is_new: bool,
) -> anyhow::Result<Option<String>> {
    if is_new {
        return Ok(match blobs.verify(digest).await? {
            BlobVerdict::Whole => None,
            BlobVerdict::Missing => Some("its bytes are not in the store".to_owned()),
            BlobVerdict::Damaged { found } => {
                Some(format!("its bytes in the store have the SHA-256 {found}: they are damaged"))
            }
        });
    }
    Ok(match blobs.size_bytes(digest).await? {
        Some(size_bytes) if size_bytes == expected => None,
        Some(size_bytes) => {
            Some(format!("{size_bytes} bytes of it are in the store, and {expected} were expected"))
        }
        None => Some("its bytes are not in the store".to_owned()),
    })
}
