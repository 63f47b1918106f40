//! The cache of a mirror as a directory that can be carried to another machine: [`export`] writes it, [`Mirrors::import`] reads
//! it.
//!
//! ```text
//! larder-mirror.json   what this is: the format's number, the mirror, its upstream
//! list                 a line of JSON (`PageFacts`), then the names of all projects
//! pages/{project}      a line of JSON (`PageFacts`), then the page as JSON (PEP 691) with absolute URLs
//! files/{ab}/{sha256}  a file's bytes
//! .larder-partial/     what an export writes at the moment; an import does not look there
//! ```
//!
//! Each file appears whole or not at all, and a page after its files; so both directions can be interrupted and run again, and
//! do only what is left. An export locks the directory: a second one would remove what the first is writing. An import does not
//! trust the directory: it compares names, sizes and digests, bounds what it reads into memory, and follows no links. Only what
//! a page says of its files is accepted, as from upstream.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use pypi::ProjectName;
use pypi::upstream::{UpstreamNames, UpstreamPage};
use record::Digest;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::disk::{self, EntryHead, HEAD_BYTES};
use super::download::DownloadOrder;
use super::pages::Subject;
use super::sink::{PIECE_BYTES, Sink};
use super::{Mirror, Mirrors, milliseconds};

/// The number of this format.
const FORMAT: u32 = 1;

const ABOUT: &str = "larder-mirror.json";
const LIST: &str = "list";
const PAGES: &str = "pages";
const FILES: &str = "files";
const PARTIAL: &str = ".larder-partial";

/// Longest description of the whole, and longest first line of a page, in bytes.
const ABOUT_BYTES_MAX: u64 = 64 << 10;
const SAID_BYTES_MAX: usize = 64 << 20;

/// Most problems that are named.
const PROBLEMS_MAX: usize = 100;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExportManifest {
    format: u32,
    /// The mirror, for people.
    mirror: String,
    /// Its upstream, without credentials.
    mirror_url: String,
}

/// What upstream said of a page or a list besides its content.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PageFacts {
    /// SHA-256 of the content.
    sha256: String,
    /// When upstream last said it, in milliseconds since 1970.
    confirmed_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// [`EntryHead::form`].
    #[serde(default)]
    form: u32,
    /// The files of the page that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<ExportedFile>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "the link, digest, size and time of a file")]
struct ExportedFile {
    /// Its link on pages of the mirror; with `.metadata` at the end, that of the metadata.
    link: String,
    sha256: String,
    size_bytes: u64,
    /// When it was uploaded, or arrived, in milliseconds since 1970.
    at: i64,
}

/// The outcome of an export or import.
#[derive(Debug, Default)]
pub struct TransferReport {
    /// Pages of projects, and the list of projects.
    pub pages: u64,
    /// Of these, pages that the target had already, as new or newer.
    pub pages_there: u64,
    /// Files.
    pub files: u64,
    /// Of these, files that the target had already.
    pub files_there: u64,
    /// Bytes of the files that were copied.
    pub bytes: u64,
    /// What was left out, and why: the first ones by name.
    pub problems: Vec<String>,
    /// How many were left out.
    pub problem_count: u64,
}

impl TransferReport {
    fn leave_out(&mut self, what: impl std::fmt::Display, why: impl std::fmt::Display) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("{what}: {why}"));
        }
    }
}

/// Writes what `cache` has of this mirror into the directory `to`, which is empty, new, or an earlier export of this upstream.
/// A server may run on the cache meanwhile. `step` is called after each page. Blocks.
///
/// # Errors
/// If one of both directories cannot be used.
pub fn export(
    cache: &Path,
    mirror: &Mirror,
    to: &Path,
    step: &mut dyn FnMut(),
) -> anyhow::Result<TransferReport> {
    let unwritable = || format!("`{}` cannot be written", to.display());
    fs::create_dir_all(to).with_context(unwritable)?;
    let _locked = locked(to)?;
    let about = ExportManifest {
        format: FORMAT,
        mirror: mirror.stage.clone(),
        mirror_url: mirror.origin.url.to_string(),
    };
    clear_partial(to).with_context(unwritable)?;
    let names = names_in(to).with_context(unwritable)?;
    match names.iter().find(|name| !is_left_over(name)) {
        None => {
            fs::create_dir(to.join(PARTIAL)).with_context(unwritable)?;
            replace(to, &to.join(ABOUT), &[&serde_json::to_vec_pretty(&about)?])
                .with_context(unwritable)?;
        }
        Some(_) => {
            let there = read_about(to)?;
            if there.mirror_url != about.mirror_url {
                bail!(
                    "`{}` has an export of {}; another directory was expected for {}",
                    to.display(),
                    there.mirror_url,
                    about.mirror_url
                );
            }
            fs::create_dir(to.join(PARTIAL)).with_context(unwritable)?;
        }
    }
    clear_left_over(to).with_context(unwritable)?;
    let mut carried = TransferReport::default();
    for (key, head) in disk::heads(cache) {
        let subject =
            head.name.strip_prefix(&format!("{} ", mirror.stage)).and_then(Subject::named);
        let Some(subject) = subject.filter(|subject| mirror.key(&subject.name()) == key) else {
            continue;
        };
        // The entry may have been replaced or removed meanwhile.
        let Some((head, content)) = disk::content_at(cache, &key) else { continue };
        let mut said = PageFacts {
            sha256: head.sha256,
            confirmed_at: head.confirmed_at,
            etag: head.etag,
            last_modified: head.last_modified,
            serial: head.serial,
            form: head.form,
            kept: Vec::new(),
        };
        let path = match &subject {
            Subject::List => to.join(LIST),
            Subject::Project(name) => {
                let Ok(page) =
                    UpstreamPage::parse("application/json", &content, &mirror.origin.url)
                else {
                    carried.leave_out(name, "the page cannot be read");
                    continue;
                };
                for (link, order) in orders(mirror, &page) {
                    let found = disk::opened_at(cache, &order.key);
                    // The page may name other bytes by now.
                    let found = found.filter(|(head, _)| order.is_of(head));
                    let Some((head, file)) = found else { continue };
                    match copied_out(&file, &head, to).with_context(unwritable)? {
                        Some(bytes) => carried.bytes += bytes,
                        None => {
                            carried.leave_out(link, "the file is damaged");
                            continue;
                        }
                    }
                    carried.files += 1;
                    let EntryHead { sha256, size_bytes, confirmed_at: at, .. } = head;
                    said.kept.push(ExportedFile { link, sha256, size_bytes, at });
                }
                to.join(PAGES).join(name.as_str())
            }
        };
        let line = serde_json::to_vec(&said)?;
        replace(to, &path, &[&line, b"\n", &content]).with_context(unwritable)?;
        carried.pages += 1;
        step();
    }
    clear_partial(to).with_context(unwritable)?;
    Ok(carried)
}

/// The directory, locked for as long as it is open.
///
/// # Errors
/// If another export has it.
fn locked(to: &Path) -> anyhow::Result<File> {
    let directory = File::open(to).with_context(|| format!("`{}` cannot be read", to.display()))?;
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another export writes into `{}`: a directory of its own was expected",
                to.display()
            );
        }
        // Not every file system has locks of directories.
        Err(TryLockError::Error(error)) => {
            tracing::warn!(path = %to.display(), %error, "the directory cannot be locked: no other export may write into it");
        }
    }
    Ok(directory)
}

/// Whether this is the name of a temporary file that an export of an earlier version, which had no directory for them, has
/// left.
fn is_left_over(name: &str) -> bool {
    let rest = name.strip_prefix(".tmp");
    rest.is_some_and(|it| it.len() == 6 && it.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Removes such files.
fn clear_left_over(to: &Path) -> io::Result<()> {
    let files = to.join(FILES);
    let mut directories = vec![to.to_owned(), to.join(PAGES)];
    directories.extend(names_in(&files).unwrap_or_default().iter().map(|name| files.join(name)));
    for directory in directories {
        if !fs::symlink_metadata(&directory).is_ok_and(|data| data.is_dir()) {
            continue;
        }
        for name in names_in(&directory)?.iter().filter(|name| is_left_over(name)) {
            let path = directory.join(name);
            if fs::symlink_metadata(&path)?.is_file() {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// Removes the leftovers of an export that was killed, and their directory.
fn clear_partial(to: &Path) -> io::Result<()> {
    let partial = to.join(PARTIAL);
    for name in names_in(&partial)? {
        fs::remove_file(partial.join(name))?;
    }
    match fs::remove_dir(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The files of a page, and their metadata: their links in one spelling, and their orders.
fn orders(mirror: &Mirror, page: &UpstreamPage) -> Vec<(String, DownloadOrder)> {
    let each = page.files.iter().flat_map(|file| [(file, false), (file, true)]);
    each.filter_map(|(file, is_metadata)| {
        let end = if is_metadata { ".metadata" } else { "" };
        Some((
            format!("{}{end}", file.canonical_link()),
            DownloadOrder::of(mirror, file, is_metadata)?,
        ))
    })
    .collect()
}

/// Copies a file of the cache, if it is not there yet: the bytes that were copied; `None` if they are not the right ones.
fn copied_out(file: &File, head: &EntryHead, to: &Path) -> io::Result<Option<u64>> {
    let Ok(digest) = head.sha256.parse::<Digest>() else { return Ok(None) };
    let path = file_path(to, &digest);
    if fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && it.len() == head.size_bytes) {
        return Ok(Some(0));
    }
    fs::create_dir_all(path.parent().unwrap_or(to))?;
    let mut writing = NamedTempFile::new_in(to.join(PARTIAL))?;
    let (mut hasher, mut piece, mut at) = (record::Hasher::new(), vec![0; PIECE_BYTES], 0);
    while at < head.size_bytes {
        let read = match file.read_at(&mut piece, HEAD_BYTES + at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..read]);
        writing.write_all(&piece[..read])?;
        at += read as u64;
    }
    if at != head.size_bytes || hasher.finish() != digest {
        return Ok(None);
    }
    writing.as_file().sync_all()?;
    writing.persist(&path).map_err(|error| error.error)?;
    Ok(Some(at))
}

fn file_path(directory: &Path, digest: &Digest) -> std::path::PathBuf {
    let name = digest.to_string();
    directory.join(FILES).join(&name[..2]).join(name)
}

/// Writes a file of the export in `to` with these parts, replacing an existing one.
fn replace(to: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(to))?;
    let mut writing = NamedTempFile::new_in(to.join(PARTIAL))?;
    for part in parts {
        writing.write_all(part)?;
    }
    writing.as_file().sync_all()?;
    writing.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn read_about(directory: &Path) -> anyhow::Result<ExportManifest> {
    let path = directory.join(ABOUT);
    let expected = || {
        format!("`{}` is no export of a mirror: no `{ABOUT}` that can be read", directory.display())
    };
    let bytes = read_file(&path, ABOUT_BYTES_MAX).with_context(expected)?;
    let about: ExportManifest = serde_json::from_slice(&bytes).with_context(expected)?;
    if about.format != FORMAT {
        bail!(
            "`{}` has the format {}; {FORMAT} was expected: another version of Larder wrote it",
            path.display(),
            about.format
        );
    }
    Ok(about)
}

/// The bytes of a file of at most this size; an error for a symbolic link.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, size_bytes) = open_file(path)?;
    if size_bytes > bytes_max {
        return Err(io::Error::other(format!(
            "it has {size_bytes} bytes; at most {bytes_max} were expected"
        )));
    }
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file that is no link, no directory and no device, and its size in bytes.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let data = fs::symlink_metadata(path)?;
    if !data.is_file() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    let not_through_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(not_through_links).open(path)?;
    Ok((file, data.len()))
}

/// The names in a directory that is not a link; empty if it does not exist.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    match fs::symlink_metadata(directory) {
        Ok(data) if data.is_dir() => {}
        Ok(_) => {
            return Err(io::Error::other(format!("`{}` is no directory", directory.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// The bytes of everything that would be taken in.
fn size_of(from: &Path) -> io::Result<u64> {
    let mut total = fs::symlink_metadata(from.join(LIST)).map_or(0, |data| data.len());
    let mut directories = vec![from.join(PAGES)];
    let files = from.join(FILES);
    directories.extend(names_in(&files)?.iter().map(|name| files.join(name)));
    for directory in directories {
        if !fs::symlink_metadata(&directory).is_ok_and(|data| data.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !is_left_over(&entry.file_name().to_string_lossy()) {
                total += entry.metadata()?.len() + HEAD_BYTES;
            }
        }
    }
    Ok(total)
}

/// A page or the list: what upstream said of it, and its content.
fn read_said(path: &Path, content_bytes_max: usize) -> io::Result<(PageFacts, Vec<u8>)> {
    let mut bytes = read_file(path, (SAID_BYTES_MAX + content_bytes_max) as u64)?;
    let line = bytes.iter().take(SAID_BYTES_MAX).position(|byte| *byte == b'\n');
    let line = line.ok_or_else(|| io::Error::other("its first line is too long"))?;
    let content = bytes.split_off(line + 1);
    let said: PageFacts = serde_json::from_slice(&bytes)?;
    if content.len() > content_bytes_max {
        return Err(io::Error::other(format!(
            "it has {} bytes; at most {content_bytes_max} were expected",
            content.len()
        )));
    }
    let found = Digest::of(&content).to_string();
    match found == said.sha256 {
        true => Ok((said, content)),
        false => Err(io::Error::other(format!(
            "it has the SHA-256 {found}; {} was expected",
            said.sha256
        ))),
    }
}

impl Mirrors {
    /// Takes the export in `from` into this cache, for `mirror`; no server may have the cache open. What is wrong is left out
    /// and reported; entries that are as new stay. `step` is called after each page. Blocks.
    ///
    /// # Errors
    /// If the directory is no export, or has more than the cache may take.
    pub fn import(
        &self,
        mirror: &Mirror,
        from: &Path,
        step: &mut dyn FnMut(),
    ) -> anyhow::Result<TransferReport> {
        let about = read_about(from)?;
        let unreadable = || format!("`{}` cannot be read", from.display());
        let (bytes, bytes_max) =
            (size_of(from).with_context(unreadable)?, self.budget.disk_bytes_max);
        if bytes > bytes_max {
            bail!(
                "the export takes {bytes} bytes; the cache may take {bytes_max} (`python.mirror_disk_bytes_max`), and what \
                 comes first would be removed for what comes last"
            );
        }
        // Another upstream's `ETag` and serial mean nothing to this one.
        let is_of_this_upstream = about.mirror_url == mirror.origin.url.as_str();
        let mut carried = TransferReport::default();
        if fs::symlink_metadata(from.join(LIST)).is_ok() {
            let taken = read_said(&from.join(LIST), Subject::List.bytes_max()).and_then(
                |(said, content)| {
                    let mut names = Vec::new();
                    UpstreamNames::from_lines(content.as_slice())
                        .map_err(io::Error::other)?
                        .write_lines(&mut names)?;
                    self.keep(mirror, &Subject::List, said, &names, is_of_this_upstream)
                },
            );
            carried.count_page(LIST, taken);
        }
        let pages = from.join(PAGES);
        for name in names_in(&pages).with_context(unreadable)? {
            if is_left_over(&name) {
                continue;
            }
            step();
            if !ProjectName::is_normalized(&name) {
                carried.leave_out(format!("{PAGES}/{name}"), "this is no name of a project");
                continue;
            }
            let taken = self.import_page(mirror, from, &name, is_of_this_upstream, &mut carried);
            carried.count_page(&format!("{PAGES}/{name}"), taken);
        }
        Ok(carried)
    }

    /// Takes in the files of a page, then the page. Says whether it was there already.
    fn import_page(
        &self,
        mirror: &Mirror,
        from: &Path,
        name: &str,
        is_of_this_upstream: bool,
        carried: &mut TransferReport,
    ) -> io::Result<bool> {
        let project = ProjectName::parse(name).map_err(io::Error::other)?;
        let subject = Subject::Project(project);
        let (said, content) = read_said(&from.join(PAGES).join(name), subject.bytes_max())?;
        let page = UpstreamPage::parse("application/json", &content, &mirror.origin.url);
        let page = page.map_err(io::Error::other)?;
        let orders: HashMap<String, DownloadOrder> = orders(mirror, &page).into_iter().collect();
        for kept in &said.kept {
            let Some(order) = orders.get(&kept.link) else {
                carried.leave_out(&kept.link, format_args!("the page of {name} has no such file"));
                continue;
            };
            match self.import_file(order, kept, from) {
                Ok(bytes) => {
                    carried.files += 1;
                    carried.files_there += u64::from(bytes.is_none());
                    carried.bytes += bytes.unwrap_or(0);
                }
                Err(error) => carried.leave_out(&kept.link, error),
            }
        }
        self.keep(mirror, &subject, said, &page.to_json(), is_of_this_upstream)
    }

    /// Takes in a file: the bytes that were copied, `None` if it was there.
    fn import_file(
        &self,
        order: &DownloadOrder,
        kept: &ExportedFile,
        from: &Path,
    ) -> io::Result<Option<u64>> {
        let wrong = |text: String| Err(io::Error::other(text));
        let digest: Digest = kept.sha256.parse().map_err(io::Error::other)?;
        if let Some(expected) = order.sha256().filter(|it| *it != kept.sha256) {
            return wrong(format!("it has the SHA-256 {digest}; its page says {expected}"));
        }
        if let Some(expected) = order.size_bytes.filter(|it| *it != kept.size_bytes) {
            return wrong(format!("it has {} bytes; its page says {expected}", kept.size_bytes));
        }
        if kept.size_bytes > self.disk.entry_bytes_max() {
            return wrong(format!(
                "it has {} bytes, more than half of python.mirror_disk_bytes_max",
                kept.size_bytes
            ));
        }
        if let Some((head, file)) = self.disk.open_entry(&order.key)
            && head.sha256 == kept.sha256
            && self.disk.check(&order.key, &head, &file)
        {
            return Ok(None);
        }
        let path = file_path(from, &digest);
        let parent = path.parent().unwrap_or(from);
        if !fs::symlink_metadata(parent)?.is_dir() {
            return wrong(format!("`{}` is no directory", parent.display()));
        }
        let (mut file, size_bytes) = open_file(&path)?;
        if size_bytes != kept.size_bytes {
            return wrong(format!("it has {size_bytes} bytes; {} were expected", kept.size_bytes));
        }
        let (extra, expected) = match (order.sha256(), order.check()) {
            (None, Some((digest, digits))) => (Some(digest), Some(digits)),
            _ => (None, None),
        };
        let writing = self.disk.begin(size_bytes)?;
        let mut sink = Sink { writing, sha256: record::Hasher::new(), extra };
        let (mut piece, mut left) = (vec![0; PIECE_BYTES], size_bytes);
        while left > 0 {
            let wanted = sink.bytes_to_write(PIECE_BYTES);
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(wanted);
            file.read_exact(&mut piece[..wanted])?;
            sink = sink.append(&piece[..wanted])?;
            left -= wanted as u64;
        }
        let Sink { writing, sha256, extra } = sink;
        let found = sha256.finish();
        if found != digest {
            return wrong(format!("it has the SHA-256 {found}; {digest} was expected"));
        }
        if let (Some(computed), Some(expected)) = (extra, expected) {
            let found = hex::encode(computed.finalize());
            if found != expected {
                return wrong(format!("it has the digest {found}; its page says {expected}"));
            }
        }
        let modified_at = kept.at.clamp(0, milliseconds(SystemTime::now()));
        let head = order.head(size_bytes, digest.to_string(), modified_at);
        self.disk.keep(writing, order.key, &head)?;
        Ok(Some(size_bytes))
    }

    /// Keeps a page or the list, unless the cache has one as new; returns whether it did.
    fn keep(
        &self,
        mirror: &Mirror,
        subject: &Subject,
        said: PageFacts,
        content: &[u8],
        is_of_this_upstream: bool,
    ) -> io::Result<bool> {
        let key = mirror.key(&subject.name());
        // Nothing is confirmed later than now.
        let confirmed_at = said.confirmed_at.clamp(0, milliseconds(SystemTime::now()));
        if let Some((there, _)) = self.disk.checked_entry(&key)
            && there.confirmed_at >= confirmed_at
        {
            return Ok(true);
        }
        let short =
            |text: Option<String>| text.filter(|text| is_of_this_upstream && text.len() <= 500);
        let head = EntryHead {
            name: format!("{} {}", mirror.stage, subject.name()),
            size_bytes: content.len() as u64,
            sha256: Digest::of(content).to_string(),
            confirmed_at,
            etag: short(said.etag),
            last_modified: short(said.last_modified),
            serial: said.serial.filter(|_| is_of_this_upstream),
            form: said.form,
            ..EntryHead::default()
        };
        self.disk.write(key, &head, content)?;
        Ok(false)
    }
}

impl TransferReport {
    fn count_page(&mut self, name: &str, taken: io::Result<bool>) {
        match taken {
            Ok(is_there) => {
                self.pages += 1;
                self.pages_there += u64::from(is_there);
            }
            Err(error) => self.leave_out(name, error),
        }
    }
}
