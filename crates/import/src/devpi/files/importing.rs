//! The second step: the bytes of each [`Item`] are stored, then a decision about it is committed.

use anyhow::bail;
use futures_util::StreamExt as _;
use pypi::change::{upload as change, yank};
use pypi::{
    ClaimedDigests, Decision, FileKind, FileRole, Filename, LogEntry, ProjectName, StageName,
};
use record::Digest;
use state::maintenance::Progress;
use state::release_metadata;

use super::{Item, ItemContent, ItemResult, NewFile, StoredItem};
use crate::devpi::dump::Dump;
use crate::intake::BlobIntake;
use crate::report::Report;
use crate::writer::{PlannedBatch, Writer};
use crate::{AT_ONCE_MAX, TOGETHER_MAX};

/// The state of an item before the decision about it.
enum PreparedItem {
    /// The outcome is known already.
    Decided(ItemResult),
    Metadata(Digest),
    File(Box<PreparedFile>),
}

struct PreparedFile {
    digest: Digest,
    size_bytes: u64,
    requires_python: Option<String>,
    core_metadata: Option<Digest>,
}

/// Imports the items. Returns the digest of each item that the store has now; `None` for the others.
///
/// # Errors
/// Errors of the store; everything wrong with a single item is in the report.
pub(in crate::devpi) async fn import(
    writer: &mut Writer,
    items: &[Item],
    report: &mut Report,
) -> anyhow::Result<Vec<Option<StoredItem>>> {
    let progress = Progress::on_terminal();
    progress.begin_counted("importing", items.len() as u64);
    let mut there = Vec::with_capacity(items.len());
    // The decision about a test result needs its tested file, which may be in the same commit.
    for chunk in items.chunks(TOGETHER_MAX) {
        let mut notes = Vec::new();
        let mut ready = Vec::with_capacity(chunk.len());
        {
            let preparing = chunk.iter().map(|item| prepare(writer, item));
            let mut prepared = futures_util::stream::iter(preparing).buffered(AT_ONCE_MAX);
            while let Some(next) = prepared.next().await {
                let (next, note) = next?;
                ready.push(next);
                notes.push(note);
                progress.step();
            }
        }
        let planning = writer.committed(async |plan| {
            let decided = chunk.iter().zip(&ready).map(|(item, ready)| decide(item, ready, plan));
            Ok(decided.collect::<Vec<ItemResult>>())
        });
        let outcomes = planning.await?;
        for ((item, outcome), note) in chunk.iter().zip(outcomes).zip(notes) {
            if let Some(note) = note {
                report.note(&item.subject, note);
            }
            there.push(match outcome {
                ItemResult::Imported(digest, size_bytes) => {
                    item.tally(report).imported += 1;
                    report.bytes += size_bytes;
                    Some(StoredItem { digest, is_new: true })
                }
                ItemResult::AlreadyThere(digest) => {
                    item.tally(report).already_there += 1;
                    Some(StoredItem { digest, is_new: false })
                }
                ItemResult::Conflict(text) => {
                    item.tally(report).not_imported += 1;
                    report.conflict(&item.subject, text);
                    None
                }
                ItemResult::Failed(text) => {
                    item.tally(report).not_imported += 1;
                    report.fail(&item.subject, text);
                    None
                }
            });
        }
    }
    progress.end();
    Ok(there)
}

/// Has the stages keep the names of projects without a version, which devpi does not ask the mirrors among the bases for.
///
/// # Errors
/// Errors of the store.
pub(in crate::devpi) async fn keep_names(
    writer: &mut Writer,
    dump: &Dump,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut names: Vec<(StageName, ProjectName)> = Vec::new();
    for (stage, index) in dump.indexes.iter().filter(|(_, it)| !it.indexconfig.is_mirror()) {
        let empty = index.projects.iter().filter(|(_, versions)| versions.0.is_empty());
        for (project, _) in empty {
            match (stage.parse(), ProjectName::normalize(project)) {
                (Ok(stage), Ok(project)) => names.push((stage, project)),
                // The index was reported already.
                (Err(_), _) => {}
                (_, Err(error)) => report.fail(format_args!("{stage} {project}"), error),
            }
        }
    }
    for names in names.chunks(TOGETHER_MAX) {
        let planning = writer.committed(async |plan| {
            let mut kept = Vec::new();
            for (stage, project) in names {
                let decided = yank::keep_name(&plan.stored().index, stage, project);
                // An index that was not imported was reported already.
                if let Ok(Decision::Commit(batch)) = decided {
                    plan.add(batch);
                    kept.push(format!("{stage} {project}"));
                }
            }
            Ok(kept)
        });
        for subject in planning.await? {
            report.note(subject, "has no version: the index keeps the name as its own");
        }
    }
    Ok(())
}

/// Stores the bytes of an item, unless the store has it already or it cannot be imported. May return a note about it.
async fn prepare(writer: &Writer, item: &Item) -> anyhow::Result<(PreparedItem, Option<String>)> {
    let file = match &item.what {
        ItemContent::Release(metadata) => {
            let blob = match release_metadata::blob(metadata) {
                Ok(blob) => blob,
                Err(error) => {
                    return Ok((
                        PreparedItem::Decided(ItemResult::Failed(error.to_string())),
                        None,
                    ));
                }
            };
            if let Some(outcome) = item.found(writer.stored(), Some(Digest::of(&blob))) {
                return Ok((PreparedItem::Decided(outcome), None));
            }
            return Ok((PreparedItem::Metadata(writer.bytes().put(blob).await?), None));
        }
        ItemContent::File(file) => file,
    };
    let claimed = file.claimed.sha256.map(Digest::from_bytes);
    if claimed.is_some()
        && let Some(outcome) = item.found(writer.stored(), claimed)
    {
        return Ok((PreparedItem::Decided(outcome), None));
    }
    let archive = match file.role {
        FileRole::Release => Filename::parse(&file.filename).ok(),
        FileRole::Docs | FileRole::ToxResult => None,
    };
    let intake = BlobIntake { blobs: writer.blobs() };
    let mut arrival = match intake.read(&file.path, &file.claimed, archive.as_ref()).await {
        Ok(arrival) => arrival,
        Err(error) => {
            return Ok((PreparedItem::Decided(ItemResult::Failed(format!("{error:#}"))), None));
        }
    };
    let mut note = None;
    if file.claimed == ClaimedDigests::default() {
        let named = file.unchecked.join(", ");
        let named = if named.is_empty() { "no digest".to_owned() } else { named };
        note = Some(format!(
            "was imported without a check of its digest: the export has {named} for it"
        ));
    }
    let mut requires_python = file.requires_python.clone();
    let mut core_metadata = None;
    if archive.is_some_and(|archive| archive.kind() == FileKind::Wheel)
        && let Some(facts) = arrival.facts.take()
    {
        let found = facts.map_err(anyhow::Error::from).and_then(|facts| {
            let metadata = facts.core_metadata()?;
            Ok((facts.metadata, metadata))
        });
        match found {
            Ok((bytes, metadata)) => {
                if let Some(metadata) = metadata {
                    requires_python = metadata.requires_python().map(str::to_owned);
                }
                if let Some(bytes) = bytes {
                    core_metadata = Some(writer.bytes().put(bytes).await?);
                }
            }
            // devpi has served this file until now, and installers coped with it.
            Err(error) => note = Some(format!("is served without its metadata: {error:#}")),
        }
    } else if let Some(Err(error)) = &arrival.facts {
        note = Some(format!("would be refused as an upload: {error}"));
    }
    arrival.persist().await?;
    let ready = PreparedFile {
        digest: arrival.digest(),
        size_bytes: arrival.digests.size_bytes,
        requires_python,
        core_metadata,
    };
    Ok((PreparedItem::File(Box::new(ready)), note))
}

fn decide(item: &Item, ready: &PreparedItem, plan: &mut PlannedBatch) -> ItemResult {
    let (index, stage) = (&plan.stored().index, &item.stage);
    match (&item.what, ready) {
        (_, PreparedItem::Decided(outcome)) => match outcome {
            ItemResult::Imported(digest, size) => ItemResult::Imported(*digest, *size),
            ItemResult::AlreadyThere(digest) => ItemResult::AlreadyThere(*digest),
            ItemResult::Conflict(text) => ItemResult::Conflict(text.clone()),
            ItemResult::Failed(text) => ItemResult::Failed(text.clone()),
        },
        (ItemContent::Release(_), PreparedItem::Metadata(digest)) => {
            if let Some(outcome) = item.found(plan.stored(), Some(*digest)) {
                return outcome;
            }
            match change::submit(index, stage, &item.project, &item.version, *digest) {
                Ok(Decision::Commit(batch)) => {
                    plan.add(batch);
                    ItemResult::Imported(*digest, 0)
                }
                Ok(Decision::AlreadyThere) => ItemResult::AlreadyThere(*digest),
                Err(error) => ItemResult::Failed(error.to_string()),
            }
        }
        (ItemContent::File(file), PreparedItem::File(ready)) => {
            if let Some(outcome) = item.found(plan.stored(), Some(ready.digest)) {
                return outcome;
            }
            let decided = match &file.tested {
                Some(tested) => decide_test_result(item, file, tested, ready, plan),
                None => decide_file(item, file, ready, plan),
            };
            match decided {
                Ok(Some(batch)) => {
                    plan.add(batch);
                    ItemResult::Imported(ready.digest, ready.size_bytes)
                }
                Ok(None) => ItemResult::AlreadyThere(ready.digest),
                Err(error) => ItemResult::Failed(format!("{error:#}")),
            }
        }
        (ItemContent::Release(_), PreparedItem::File(_))
        | (ItemContent::File(_), PreparedItem::Metadata(_)) => {
            ItemResult::Failed("was prepared as something else".to_owned())
        }
    }
}

fn decide_file(
    item: &Item,
    file: &NewFile,
    ready: &PreparedFile,
    plan: &PlannedBatch,
) -> anyhow::Result<Option<record::Batch>> {
    let upload = change::FileUpload {
        stage: &item.stage,
        project: &item.project,
        version: &item.version,
        filename: &Filename::parse(&file.filename)?,
        role: file.role,
        digest: ready.digest,
        size_bytes: ready.size_bytes,
        requires_python: ready
            .requires_python
            .as_deref()
            .filter(|_| file.role == FileRole::Release),
        core_metadata: ready.core_metadata,
        provenance: None,
        is_attested: false,
        metadata: None,
        who: file.who.as_ref(),
        publisher: None,
        at: file.at,
        log: unusual_log(item, file),
    };
    Ok(change::file(&plan.stored().index, &upload)?.batch())
}

/// The history to write: empty if it consists of the upload alone.
fn unusual_log<'file>(item: &Item, file: &'file NewFile) -> &'file [LogEntry] {
    let usual = LogEntry::Upload { who: file.who.clone(), at: file.at, target: item.stage.clone() };
    if file.log == [usual] { &[] } else { &file.log }
}

fn decide_test_result(
    item: &Item,
    file: &NewFile,
    tested: &str,
    ready: &PreparedFile,
    plan: &PlannedBatch,
) -> anyhow::Result<Option<record::Batch>> {
    let Some(found) = item.known(plan.stored()).and_then(|project| project.file(tested)) else {
        bail!("the file that was tested, `{tested}`, was not imported");
    };
    let upload = change::ToxUpload {
        stage: &item.stage,
        directory: found.directory(),
        filename: tested,
        name: Some(&file.filename),
        digest: ready.digest,
        size_bytes: ready.size_bytes,
        who: file.who.as_ref(),
        at: file.at,
        log: unusual_log(item, file),
        is_bounded: false,
    };
    let (batch, _) = change::tox_result(&plan.stored().index, &upload)?;
    Ok(Some(batch))
}
