//! The third step: each file is looked up in the store, and the bytes that were added are hashed again.

use pypi::{FileLookup, FileRole, ReleaseFile};
use record::Digest;
use state::stored::Stored;

use super::{Item, ItemContent, NewFile, StoredItem};
use crate::report::Report;
use crate::stored_blobs::{self, BlobCheck};
use crate::writer::Writer;

/// Checks that the store has everything that it should have: each file is looked up by its path, and the bytes that
/// this import added are hashed again.
///
/// # Errors
/// Errors of the store.
pub(in crate::devpi) async fn verify(
    writer: &Writer,
    items: &[Item],
    there: &[Option<StoredItem>],
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(blobs) = writer.blobs() else { return Ok(()) };
    let mut looks = Vec::with_capacity(items.len());
    for (item, there) in items.iter().zip(there) {
        let (ItemContent::File(file), Some(StoredItem { digest, is_new })) = (&item.what, there)
        else {
            continue;
        };
        let Some(there) = looked_up(writer.stored(), item, file, digest) else {
            report.fail(&item.subject, "was imported, but is not found in the store");
            continue;
        };
        if item.role() == Some(FileRole::ToxResult) && there.filename() != file.filename {
            report.note(&item.subject, format_args!("is now called `{}`", there.filename()));
        }
        let (digest, size_bytes) = (*digest, there.size_bytes());
        looks.push(BlobCheck { subject: &item.subject, digest, size_bytes, is_new: *is_new });
    }
    stored_blobs::check(blobs, &looks, report).await
}

/// The file that an item became, looked up by its path like a reader would.
fn looked_up(stored: &Stored, item: &Item, file: &NewFile, digest: &Digest) -> Option<ReleaseFile> {
    let project = item.known(stored)?;
    let by_name = project.file(&file.filename).filter(|it| it.digest() == digest);
    let found = match &file.tested {
        Some(tested) => {
            by_name.or_else(|| project.tox_results_of(tested).find(|it| it.digest() == digest))
        }
        None => by_name,
    }?;
    let stage = stored.index.stage(item.stage.as_str())?;
    match stage.file(found.directory(), found.filename()) {
        FileLookup::Found { file, .. } => Some(file),
        FileLookup::CoreMetadata { .. }
        | FileLookup::Provenance { .. }
        | FileLookup::Gone
        | FileLookup::Absent => None,
    }
}
