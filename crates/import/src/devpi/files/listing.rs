//! The first step: the contents of an export for the stages that exist now, as [`Item`]s in the order of their import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;

use anyhow::bail;
use jiff::Timestamp;
use pypi::{
    ClaimedDigests, FileRole, Filename, FilenameError, LogEntry, Metadata, ProjectName, StageName,
    Version, doc_filename,
};
use serde_json::{Map, Value, json};
use state::stored::Stored;
use state::text::counted;

use super::{Item, ItemContent, NewFile, tally};
use crate::devpi::dump::{self, Dump};
use crate::report::Report;

/// All items for the stages that exist now; for each stage releases first, then files, then test results.
pub(in crate::devpi) fn items(
    dump: &Dump,
    directory: &Path,
    is_mirrored_file_missed: bool,
    stored: &Stored,
    report: &mut Report,
) -> Vec<Item> {
    let mut items = Vec::new();
    for (name, index) in &dump.indexes {
        if index.indexconfig.is_mirror() {
            leave_out_mirrored(name, index, is_mirrored_file_missed, report);
            continue;
        }
        let stage: Option<StageName> = name.parse().ok();
        let known = stage.as_ref().and_then(|stage| stored.index.stage(stage.as_str()));
        let (Some(stage), Some(known)) = (stage, known) else {
            leave_out(index, report);
            if !index.files.is_empty() {
                let files = counted(index.files.len() as u64, "file");
                let text = format!("not imported, as the index was not: {files}");
                report.fail(format_args!("index {name}"), text);
            }
            continue;
        };
        if known.config().is_mirror() {
            leave_out_mirrored(name, index, is_mirrored_file_missed, report);
            continue;
        }
        let of_stage = StageListing { stage, directory, requires_python: BTreeMap::new() };
        of_stage.items(index, &mut items, report);
    }
    items
}

/// Counts the contents of a mirror in the export, which are not imported, and reports their numbers: the mirror fetches
/// them anew.
fn leave_out_mirrored(name: &str, index: &dump::Index, is_missed: bool, report: &mut Report) {
    let subject = format!("index {name}");
    let releases: u64 = index.projects.values().map(|versions| versions.0.len() as u64).sum();
    let files = index.files.len() as u64;
    report.mirrored.indexes += 1;
    report.mirrored.projects += index.projects.len() as u64;
    report.mirrored.releases += releases;
    report.mirrored.files += files;
    if releases == 0 && files == 0 {
        return;
    }
    let counts = format!("{} and {}", counted(releases, "release"), counted(files, "file"));
    if is_missed {
        leave_out(index, report);
        let text = "of the mirror are not imported: they are its upstream's (`--without-mirrored-files`: they \
                    are not missed)";
        report.fail(subject, format_args!("{counts} {text}"));
    } else {
        report.note(subject, format_args!("{counts} of the mirror were left out, as asked"));
    }
}

/// Counts all contents of an index as not imported.
fn leave_out(index: &dump::Index, report: &mut Report) {
    report.releases.not_imported +=
        index.projects.values().map(|it| it.0.len() as u64).sum::<u64>();
    for file in &index.files {
        match file.kind.as_str() {
            "doczip" => report.documentation.not_imported += 1,
            "toxresult" => report.test_results.not_imported += 1,
            _ => report.files.not_imported += 1,
        }
    }
}

struct StageListing<'import> {
    stage: StageName,
    directory: &'import Path,
    /// The Python versions that each release supports.
    requires_python: BTreeMap<(ProjectName, Version), Option<String>>,
}

impl StageListing<'_> {
    fn items(mut self, index: &dump::Index, items: &mut Vec<Item>, report: &mut Report) {
        for (project, versions) in &index.projects {
            for (version, metadata) in &versions.0 {
                let subject = format!("{} {project} {version}", self.stage);
                match self.release(project, version, metadata.to_map(), &subject, report) {
                    Ok(item) => items.push(item),
                    Err(error) => {
                        report.releases.not_imported += 1;
                        report.fail(subject, format_args!("{error:#}"));
                    }
                }
            }
        }
        let mut files = Vec::new();
        for file in &index.files {
            let subject = match file.relpath.as_str() {
                "" => format!("{} a file of {}", self.stage, file.projectname),
                relpath => relpath.to_owned(),
            };
            match self.file(file, &subject, report) {
                Ok(item) => {
                    let release = (item.project.clone(), item.version.clone());
                    if !self.requires_python.contains_key(&release) {
                        // A very old database has files of releases that it does not list.
                        let version = item.version.as_str();
                        let subject = format!("{} {} {version}", self.stage, item.project);
                        let named =
                            self.release(&file.projectname, version, Map::new(), &subject, report);
                        match named {
                            Ok(release) => items.push(release),
                            Err(error) => report.fail(subject, format_args!("{error:#}")),
                        }
                    }
                    files.push(item);
                }
                Err(error) => {
                    tally(report, role(&file.kind).ok()).not_imported += 1;
                    report.fail(subject, format_args!("{error:#}"));
                }
            }
        }
        let result_name = |item: &Item| match &item.what {
            ItemContent::File(file) if file.tested.is_some() => Some(file.filename.clone()),
            _ => None,
        };
        let results: Arc<BTreeSet<String>> =
            Arc::new(files.iter().filter_map(result_name).collect());
        for item in &mut files {
            if let ItemContent::File(file) = &mut item.what {
                file.results = results.clone();
            }
        }
        files.sort_by(|one, other| one.place().cmp(&other.place()));
        items.append(&mut files);
    }

    fn release(
        &mut self,
        project: &str,
        version: &str,
        mut metadata: Map<String, Value>,
        subject: &str,
        report: &mut Report,
    ) -> anyhow::Result<Item> {
        let name = ProjectName::normalize(project)?;
        let parsed = Version::parse(version)?;
        let written = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
        if ProjectName::normalize(written).is_ok_and(|written| written != name)
            || written.is_empty()
        {
            metadata.insert("name".to_owned(), json!(project));
        }
        metadata.insert("version".to_owned(), json!(version));
        // Fields whose type is not today's are left out one by one.
        let fits = |key: &String, value: &Value| {
            let one = Map::from_iter([(key.clone(), value.clone())]);
            Metadata::from_json(&one).map(|_| ())
        };
        metadata.retain(|key, value| match fits(key, value) {
            Ok(()) => true,
            Err(error) => {
                report.note(subject, format_args!("was imported without a field: {error}"));
                false
            }
        });
        let metadata = Metadata::from_json(&metadata)?;
        let requires_python = metadata.requires_python().map(str::to_owned);
        self.requires_python.insert((name.clone(), parsed.clone()), requires_python);
        Ok(Item {
            subject: subject.to_owned(),
            stage: self.stage.clone(),
            project: name,
            version: parsed,
            what: ItemContent::Release(metadata),
        })
    }

    fn file(&self, file: &dump::File, subject: &str, report: &mut Report) -> anyhow::Result<Item> {
        let role = role(&file.kind)?;
        let project = ProjectName::normalize(&file.projectname)?;
        let version = Version::parse(file.version.as_deref().unwrap_or_default())?;
        let path = Path::new(&file.relpath);
        let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
        if file.relpath.is_empty() || !path.components().all(is_below) {
            bail!("its path leads out of the export");
        }
        let filename = match role {
            FileRole::Release => {
                release_filename(file.basename(), &file.projectname, &version)?.to_string()
            }
            FileRole::Docs => doc_filename(&project, &version),
            FileRole::ToxResult => file.basename().to_owned(),
        };
        let tested = match role {
            FileRole::ToxResult => {
                let path = file.for_entrypath.as_deref().and_then(|path| path.rsplit('/').next());
                let named = || filename.rsplit_once(".toxresult").map(|(tested, _)| tested);
                let Some(tested) = path.or_else(named) else {
                    bail!("it does not say which file was tested");
                };
                Some(tested.to_owned())
            }
            _ => None,
        };
        let (claimed, unchecked) = claims(file)?;
        let log = log(file, &self.stage, subject, report);
        let came = log.iter().rev().find_map(|entry| match entry {
            LogEntry::Upload { who, at, .. } | LogEntry::Push { who, at, .. } => {
                Some((who.clone(), *at))
            }
            LogEntry::Overwrite { .. } => None,
        });
        let (who, at) = match (came, file.modified_at()) {
            (Some((who, at)), _) => (who, at),
            (None, Some(at)) => (None, at),
            (None, None) => {
                report.note(subject, "nothing says when it was uploaded: 1970 is assumed");
                (None, Timestamp::UNIX_EPOCH)
            }
        };
        let requires_python =
            self.requires_python.get(&(project.clone(), version.clone())).cloned().flatten();
        let file = NewFile {
            role,
            filename,
            path: self.directory.join(path),
            claimed,
            unchecked,
            requires_python,
            tested,
            results: Arc::default(),
            who,
            at,
            log,
        };
        Ok(Item {
            subject: subject.to_owned(),
            stage: self.stage.clone(),
            project,
            version,
            what: ItemContent::File(Box::new(file)),
        })
    }
}

fn role(kind: &str) -> anyhow::Result<FileRole> {
    let roles = [FileRole::Release, FileRole::Docs, FileRole::ToxResult];
    match roles.into_iter().find(|role| role.as_str() == kind) {
        Some(role) => Ok(role),
        None => bail!("its type is `{kind}`: releasefile, doczip or toxresult was expected"),
    }
}

/// Checks the name of a release file by devpi's rules: devpi did not always check that it contains the version, and
/// never that a wheel has tags.
fn release_filename(
    text: &str,
    project: &str,
    version: &Version,
) -> Result<Filename, FilenameError> {
    let checked = Filename::of_upload(text, project, version);
    checked.or_else(|_| Filename::of_project(text, project))
}

/// The digests to check, and the names of those that cannot be checked.
fn claims(file: &dump::File) -> anyhow::Result<(ClaimedDigests, Vec<String>)> {
    let mut claimed = ClaimedDigests::default();
    let mut unchecked = Vec::new();
    for (algorithm, text) in file.digests() {
        match algorithm {
            "sha256" => claimed.sha256 = Some(digest(algorithm, text)?),
            "md5" => claimed.md5 = Some(digest(algorithm, text)?),
            other => unchecked.push(other.to_owned()),
        }
    }
    Ok((claimed, unchecked))
}

fn digest<const BYTES: usize>(algorithm: &str, text: &str) -> anyhow::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let is_digest = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        bail!("`{text}` is no {algorithm}: {} hexadecimal digits were expected", 2 * BYTES);
    }
    for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16)?;
    }
    Ok(bytes)
}

/// The history of a file. Entries without a time or of an unknown kind are left out.
fn log(file: &dump::File, stage: &StageName, subject: &str, report: &mut Report) -> Vec<LogEntry> {
    let mut log = Vec::new();
    for line in &file.log {
        let who = line.who.as_deref().and_then(|who| who.parse().ok());
        let name = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        let target = name(&line.dst).unwrap_or_else(|| stage.clone());
        let entry = line.at().and_then(|at| match line.what.as_str() {
            "upload" => Some(LogEntry::Upload { who, at, target }),
            "push" => name(&line.src).map(|source| LogEntry::Push { who, at, source, target }),
            "overwrite" => Some(LogEntry::Overwrite { at, count: line.count.unwrap_or(1) }),
            _ => None,
        });
        match entry {
            Some(entry) => log.push(entry),
            None => report
                .note(subject, format_args!("a line of its history was left out: `{}`", line.what)),
        }
    }
    log
}
