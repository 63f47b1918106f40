//! `larder import-osv`: imports a zip of OSV records, a folder of them, or a single one, for the policies of indexes and for
//! `/+osv/`.
//!
//! FILE or DIR -> one zip beside the place of the imported bundle -> read whole by [`pypi::osv::Bundle`], as the server reads it ->
//! renamed to its place, where a running server notices it, and a stopped one finds it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use config::{BundleSource, Config};
use pypi::osv::{BUNDLE_SHRINK_MAX, Bundle, RECORD_BYTES_MAX, RECORDS_MAX};
use rawzip::{FileReader, ZipArchiveWriter};
use serde::Serialize;
use state::maintenance::Progress;
use state::setup;
use state::text::counted;

/// How many left-out files are named.
const NAMED_MAX: usize = 20;

/// What to import.
#[derive(Clone, Debug)]
pub struct OsvImport {
    /// A zip of records, a record, or a folder in which there are records.
    pub path: PathBuf,
    /// Everything is read and checked, and nothing is written.
    pub is_dry_run: bool,
    /// Whether to accept less than half of the records of the previous import.
    pub is_shrinking: bool,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OsvReport {
    /// Whether nothing was written.
    pub is_dry_run: bool,
    /// The records that were read, withdrawn ones included.
    pub records: usize,
    /// The records about malware that are not withdrawn.
    pub malware: usize,
    /// The records about vulnerabilities that are not withdrawn.
    pub vulnerabilities: usize,
    /// The projects that they name.
    pub projects: usize,
    /// Records of other ecosystems alone. They count for nothing.
    pub foreign: u64,
    /// Files that are no record, or of which a part cannot be read.
    pub unreadable: u64,
    /// The first of these, with the reason.
    pub unreadable_named: Vec<String>,
    /// Where the bundle is.
    pub path: PathBuf,
}

impl fmt::Display for OsvReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for named in &self.unreadable_named {
            writeln!(formatter, "left out: {named}")?;
        }
        let more = self.unreadable.saturating_sub(self.unreadable_named.len() as u64);
        if more > 0 {
            writeln!(formatter, "left out: {more} more")?;
        }
        let verb = if self.is_dry_run { "would count" } else { "count from now on" };
        writeln!(
            formatter,
            "{}, {} of them of malware and {} of vulnerabilities, about {}, {verb}; {} of other ecosystems alone, {} unreadable, wholly or \
             in part",
            counted(self.records as u64, "OSV record"),
            self.malware,
            self.vulnerabilities,
            counted(self.projects as u64, "project"),
            self.foreign,
            self.unreadable,
        )
    }
}

/// Replaces the previously imported records. This blocks. What cannot be read is left out and named.
///
/// # Errors
/// Files that cannot be read or written, with their paths; if there is no record; and if the configuration names another
/// source.
pub fn import_osv(config: &Config, import: &OsvImport) -> anyhow::Result<OsvReport> {
    if let Some(source) = &config.advisories.source {
        let other = match source {
            BundleSource::File(path) => {
                format!("the file `{}`: rename the new zip to that", path.display())
            }
            BundleSource::Url(_) => "a URL, which the server asks".to_owned(),
        };
        bail!(
            "`advisories.source` is set, so the server takes OSV records from there and not from an import. It is {other}, or remove the setting"
        );
    }
    let place = config.imported_advisories();
    let progress = Progress::on_terminal();
    let mut done = if import.is_dry_run {
        let file = tempfile::tempfile().context("a temporary file")?;
        fill(&file, config, import, &progress).map(|(report, _)| report)
    } else {
        write(&place, config, import, &progress)
    };
    progress.end();
    if let Ok(report) = &mut done {
        (report.is_dry_run, report.path) = (import.is_dry_run, place);
    }
    done
}

/// Writes the bundle beside its place, and renames it.
fn write(
    place: &Path,
    config: &Config,
    import: &OsvImport,
    progress: &Progress,
) -> anyhow::Result<OsvReport> {
    setup::create_data_dir(&config.data_dir)?;
    let directory = place.parent().unwrap_or(Path::new("."));
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| directory.display().to_string());
        }
        _ => {}
    }
    let lock_path = place.with_extension("lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
    let lock = lock.with_context(|| lock_path.display().to_string())?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another import is running on the data directory"),
        // A file system without locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        outcome => outcome.with_context(|| lock_path.display().to_string())?,
    }
    // An import that is killed leaves this file, until the next one.
    let aside = place.with_extension("part");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&aside);
    let file = opened.with_context(|| aside.display().to_string())?;
    let keep = || {
        let (report, modified_at) = fill(&file, config, import, progress)?;
        if let Some(modified_at) = modified_at {
            // Some file systems refuse it; then the time of the import counts.
            let _ = file.set_modified(modified_at);
        }
        file.sync_all()
            .and_then(|()| fs::rename(&aside, place))
            .and_then(|()| File::open(directory)?.sync_all())
            .with_context(|| format!("cannot write `{}`", place.display()))?;
        Ok(report)
    };
    let kept = keep();
    if kept.is_err() {
        let _ = fs::remove_file(&aside);
    }
    kept
}

/// Writes the bundle into the file, and reads it; also when it was modified, if it is a file.
fn fill(
    file: &File,
    config: &Config,
    import: &OsvImport,
    progress: &Progress,
) -> anyhow::Result<(OsvReport, Option<std::time::SystemTime>)> {
    let path = &import.path;
    let named = || path.display().to_string();
    let metadata = fs::metadata(path).with_context(named)?;
    let bytes_max = config.advisories.bundle_bytes_max;
    let mut left_out = Vec::new();
    let is_file = metadata.is_file();
    if is_file {
        let mut input = File::open(path).with_context(named)?;
        let mut magic = [0; 2];
        let is_zip = input.read_exact(&mut magic).is_ok() && magic == *b"PK";
        if is_zip {
            input.rewind().with_context(named)?;
            copy(input, file, bytes_max).with_context(named)?;
        } else {
            let name = path.file_name().map(PathBuf::from).unwrap_or_default();
            ensure!(
                name.extension().is_some_and(|it| it == "json"),
                "`{}` is neither a zip of OSV records nor a folder of them, nor one record whose name ends in .json",
                named()
            );
            let parent = path.parent().unwrap_or(Path::new(""));
            zip(parent, &[name], file, bytes_max, &mut left_out, progress)?;
        }
    } else {
        ensure!(metadata.is_dir(), "`{}` is neither a file nor a folder", named());
        let records = records_below(path, &mut left_out)?;
        ensure!(!records.is_empty(), "`{}` has no file whose name ends in .json", named());
        zip(path, &records, file, bytes_max, &mut left_out, progress)?;
    }
    let bundle = read(file, Some(progress)).with_context(named)?;
    if !import.is_shrinking {
        check_size(&bundle, config)?;
    }
    let advisories = &bundle.advisories;
    let unreadable = bundle.unreadable + left_out.len() as u64;
    left_out.extend(bundle.unreadable_named);
    left_out.truncate(NAMED_MAX);
    let report = OsvReport {
        is_dry_run: false,
        records: advisories.len(),
        malware: advisories.malware(),
        vulnerabilities: advisories.vulnerabilities(),
        projects: advisories.projects(),
        foreign: bundle.foreign,
        unreadable,
        unreadable_named: left_out,
        path: PathBuf::new(),
    };
    Ok((report, metadata.modified().ok().filter(|_| is_file)))
}

fn read(file: &File, progress: Option<&Progress>) -> anyhow::Result<Bundle<FileReader>> {
    let bytes = file.metadata()?.len();
    let bundle = Bundle::read(FileReader::from(file.try_clone()?), bytes, |done, all| {
        if let Some(progress) = progress {
            match done {
                0 => progress.begin_counted("records", all as u64),
                _ => progress.step(),
            }
        }
        true
    })?;
    Ok(bundle)
}

/// Refuses a bundle with less than half of the previous records: probably a part of it is missing.
fn check_size(bundle: &Bundle<FileReader>, config: &Config) -> anyhow::Result<()> {
    let Ok(before) = File::open(config.imported_advisories()) else { return Ok(()) };
    // If the previous one cannot be read, there is nothing to lose.
    let Ok(before) = read(&before, None) else { return Ok(()) };
    let (before, after) = (before.advisories.len(), bundle.advisories.len());
    ensure!(
        after >= before / BUNDLE_SHRINK_MAX,
        "it has {}, and {before} were imported before; at least {} were expected. With --fewer, it counts nevertheless",
        counted(after as u64, "OSV record"),
        before / BUNDLE_SHRINK_MAX
    );
    Ok(())
}

fn copy(input: File, mut output: &File, bytes_max: u64) -> anyhow::Result<()> {
    let mut input = input.take(bytes_max.saturating_add(1));
    let bytes = io::copy(&mut input, &mut output)?;
    ensure!(
        bytes <= bytes_max,
        "it has more than {bytes_max} bytes, the most that `advisories.bundle_bytes_max` allows"
    );
    Ok(())
}

/// The files below a folder that can be records, by their paths from there, in order. Links are not followed, and what begins with a
/// dot is not looked into.
fn records_below(root: &Path, left_out: &mut Vec<String>) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::new()];
    let mut records = Vec::new();
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let named = || path.display().to_string();
        for entry in fs::read_dir(&path).with_context(named)? {
            let entry = entry.with_context(named)?;
            let kind = entry.file_type().with_context(named)?;
            let below = folder.join(entry.file_name());
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_dir() {
                folders.push(below);
                continue;
            }
            if below.extension().is_none_or(|it| it != "json") {
                continue;
            }
            if !kind.is_file() {
                left_out.push(format!("{below:?}: it is no file; links are not followed"));
            } else if !is_plain(&below) {
                left_out.push(format!(
                    "{below:?}: the path may have ASCII letters, digits, `-`, `.` and `_`"
                ));
            } else {
                records.push(below);
            }
            let count = records.len().max(left_out.len()) as u64;
            ensure!(
                count <= RECORDS_MAX,
                "`{}` has more than {RECORDS_MAX} files whose names end in .json",
                root.display()
            );
        }
    }
    records.sort();
    Ok(records)
}

/// Whether a zip can have the path unchanged.
fn is_plain(path: &Path) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._/".contains(byte);
    path.as_os_str().as_encoded_bytes().iter().all(is_fit)
}

/// Writes files below `root` as a zip.
fn zip(
    root: &Path,
    records: &[PathBuf],
    file: &File,
    bytes_max: u64,
    left_out: &mut Vec<String>,
    progress: &Progress,
) -> anyhow::Result<()> {
    progress.begin_counted("files", records.len() as u64);
    let mut archive = ZipArchiveWriter::new(BufWriter::new(file));
    let mut bytes = 0_u64;
    for record in records {
        let path = root.join(record);
        let named = || path.display().to_string();
        let mut json = Vec::new();
        let input = File::open(&path).with_context(named)?;
        input.take(RECORD_BYTES_MAX + 1).read_to_end(&mut json).with_context(named)?;
        progress.step();
        if json.len() as u64 > RECORD_BYTES_MAX {
            left_out.push(format!(
                "{record:?}: it has more than {RECORD_BYTES_MAX} bytes, the most of a record"
            ));
            continue;
        }
        bytes += json.len() as u64;
        ensure!(
            bytes <= bytes_max,
            "`{}`: with it, the records have more than {bytes_max} bytes, the most that `advisories.bundle_bytes_max` allows",
            named()
        );
        let name = record.to_string_lossy();
        let (mut entry, config) = archive.new_file(&name).start()?;
        let mut writer = config.wrap(&mut entry);
        writer.write_all(&json)?;
        let (_, written) = writer.finish()?;
        entry.finish(written)?;
    }
    archive.finish()?.flush()?;
    Ok(())
}
