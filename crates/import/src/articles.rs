//! Imports a folder of Markdown with its files: each file becomes an article, or the next version of one.
//!
//! folder -> paths -> names ([`crate::article_folder`]) -> bytes read and described -> hundreds of articles a commit. If the
//! article has a file's bytes and media type already, nothing is written. Attachments in the manifest of an export are added to
//! their articles after these are imported. Symbolic links are not followed.

mod attachments;

use std::fmt;
use std::fs::{File, FileType};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use article::{
    ArticleName, AttachmentName, Change, Content, ContentType, Inspector, Limits, Redirect,
    Revision, Snapshot, WriteAction, of_name,
};
use bytes::Bytes;
use config::Config;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use record::{Digest, Hasher};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use state::maintenance::Progress;
use store::{BlobStore, SpooledBlob};
use tokio::io::AsyncReadExt as _;

use crate::article_folder::{
    AttachedEntry, MANIFEST, MANIFEST_BYTES_MAX, Manifest, Names, Omission, whole_prefix,
};
use crate::writer::{self, PlannedBatch, Writer};
use crate::{AT_ONCE_MAX, TOGETHER_MAX};

/// How many bytes of a file are in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// What to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArticlesImport {
    /// The folder.
    pub directory: PathBuf,
    /// The folder of names that the articles go to; empty for none.
    pub prefix: String,
    /// Whom the history names.
    pub author: String,
    /// Why, for the history.
    pub comment: String,
    /// Whether the ending `.md` of a path is no part of an article's name; links that lead to such files are mended.
    pub drops_md: bool,
    /// Only read and check everything; write nothing.
    pub is_dry_run: bool,
}

/// The outcome of an import of articles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArticlesReport {
    /// Whether nothing was written.
    pub is_dry_run: bool,
    /// Articles that were not there.
    pub added: u64,
    /// Articles that got a new version.
    pub changed: u64,
    /// Articles that are as their files already.
    pub already_there: u64,
    /// Names that lead to articles now.
    pub redirects: u64,
    /// Attachments that were added.
    pub attachments_added: u64,
    /// Attachments that were replaced.
    pub attachments_changed: u64,
    /// Attachments that their articles had already.
    pub attachments_already_there: u64,
    /// Hidden files and folders, which are not looked into.
    pub hidden: u64,
    /// What was not imported.
    pub left_out: Vec<Omission>,
}

impl ArticlesReport {
    /// A summary of what was not imported; `None` if the import is complete.
    pub fn shortfall(&self) -> Option<String> {
        Omission::shortfall(&self.left_out, "imported")
    }

    /// Adds what one more commit has imported and left out.
    fn add(&mut self, done: ArticlesReport) {
        self.added += done.added;
        self.changed += done.changed;
        self.already_there += done.already_there;
        self.redirects += done.redirects;
        self.attachments_added += done.attachments_added;
        self.attachments_changed += done.attachments_changed;
        self.attachments_already_there += done.attachments_already_there;
        self.left_out.extend(done.left_out);
    }
}

impl fmt::Display for ArticlesReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for left_out in &self.left_out {
            writeln!(formatter, "failure: {left_out}")?;
        }
        let ArticlesReport { added, changed, already_there, redirects, hidden, .. } = self;
        writeln!(
            formatter,
            "articles: {added} added, {changed} changed, {already_there} as they were; {redirects} redirects"
        )?;
        let (files_added, files_changed) = (self.attachments_added, self.attachments_changed);
        writeln!(
            formatter,
            "attachments: {files_added} added, {files_changed} changed, {} as they were",
            self.attachments_already_there
        )?;
        if *hidden > 0 {
            writeln!(formatter, "hidden files and folders, left out: {hidden}")?;
        }
        if self.is_dry_run {
            writeln!(formatter, "nothing was written")?;
        }
        Ok(())
    }
}

/// The contents of the folder.
#[derive(Debug, Default)]
struct ArticleFolder {
    /// Paths below the folder, with `/` between their parts, in order.
    files: Vec<String>,
    manifest: Manifest,
    hidden: u64,
    left_out: Vec<Omission>,
}

/// A file that was read, and whose bytes are kept.
struct ReadArticle {
    path: String,
    name: ArticleName,
    content: Content,
}

/// Runs the import.
///
/// # Errors
/// If the folder or the store cannot be read, and errors of the store. Everything else that goes wrong is in the report.
pub async fn import_articles(
    config: &Config,
    import: &ArticlesImport,
) -> anyhow::Result<ArticlesReport> {
    let import = &ArticlesImport { prefix: whole_prefix(&import.prefix)?, ..import.clone() };
    let directory = import.directory.clone();
    let listing = tokio::task::spawn_blocking(move || listed(&directory)).await??;
    // Neither a mistyped path nor an unwritable directory must make another store.
    if writer::is_missing(config) {
        bail!("there is no store in {}: `larder init` makes one", config.database());
    }
    let mut writer = Writer::open(config, import.is_dry_run).await?;
    let done = everything(import, listing, &mut writer).await;
    writer.close().await;
    done
}

async fn everything(
    import: &ArticlesImport,
    listing: ArticleFolder,
    writer: &mut Writer,
) -> anyhow::Result<ArticlesReport> {
    let ArticleFolder { files, manifest, hidden, left_out } = listing;
    let mut report =
        ArticlesReport { is_dry_run: import.is_dry_run, hidden, left_out, ..Default::default() };
    let mut names = Names::new(import.drops_md);
    let (mut wanted, mut attached) = (Vec::new(), Vec::new());
    for path in files {
        if let Some(entry) = manifest.attachments.get(&path) {
            match place_of(entry, &import.prefix) {
                Ok(place) => attached.push((path, place)),
                Err(why) => report.left_out.push(Omission::new(path, why)),
            }
            continue;
        }
        match names.place(&path, &import.prefix, &manifest) {
            Ok((name, content_type)) => wanted.push((path, name, content_type)),
            Err(why) => report.left_out.push(Omission::new(path, why)),
        }
    }
    let names = &names;
    let (limits, attachment_limits) = writer.article_limits();
    let progress = Progress::on_terminal();
    progress.begin_counted("articles", wanted.len() as u64);
    for wanted in wanted.chunks(TOGETHER_MAX) {
        let mut arrived = Vec::with_capacity(wanted.len());
        let (directory, blobs) = (&import.directory, writer.blobs());
        let (progress, limits) = (&progress, &limits);
        let reading = wanted.iter().map(|(path, name, content_type)| async move {
            let content_type = content_type.as_deref();
            let read = match names.has_dropped(path) {
                true => {
                    read_mended(directory, path, name, content_type, blobs, limits, names).await
                }
                false => read(directory, path, name, content_type, blobs, limits).await,
            };
            progress.step();
            (path.clone(), name.clone(), read)
        });
        let mut reading = futures_util::stream::iter(reading).buffered(AT_ONCE_MAX);
        while let Some((path, name, read)) = reading.next().await {
            let (content, staged) = match read {
                Ok(read) => read,
                Err(error) => {
                    report.left_out.push(Omission::new(path, format_args!("{error:#}")));
                    continue;
                }
            };
            let next = ReadArticle { path, name, content };
            // An unchanged text needs no blob. A refused one is decided here, because its bytes are not kept for a later
            // decision.
            match (state(&writer.stored().articles, &next), staged) {
                (ArticleState::Refused(why), _) => {
                    report.left_out.push(Omission::new(next.path, why))
                }
                (ArticleState::Wanted(_), Some(staged)) => {
                    staged.persist().await?;
                    arrived.push(next);
                }
                _ => arrived.push(next),
            }
        }
        drop(reading);
        let done = writer.committed(async |plan| write(import, &arrived, plan, limits));
        let done = done.await?;
        report.add(done);
    }
    progress.end();
    let redirects: Vec<_> = manifest.redirects.iter().collect();
    for redirects in redirects.chunks(TOGETHER_MAX) {
        let done = writer.committed(async |plan| redirect(import, redirects, plan, &limits));
        let done = done.await?;
        report.add(done);
    }
    let done = attachments::import(import, attached, attachment_limits, writer).await?;
    report.add(done);
    report.left_out.sort_by(|one, other| one.what.cmp(&other.what));
    Ok(report)
}

/// The article and the attachment's name of a file that the manifest calls an attachment.
fn place_of(entry: &AttachedEntry, prefix: &str) -> Result<(ArticleName, AttachmentName), String> {
    let article = ArticleName::parse(&format!("{prefix}{}", entry.article));
    let article = article.map_err(|error| error.to_string())?;
    Ok((article, AttachmentName::parse(&entry.name).map_err(|error| error.to_string())?))
}

/// The article has this text already.
enum ArticleState {
    /// The file's content.
    Same,
    /// The article has another text, or none: the file becomes the version after this one.
    Wanted(Revision),
    /// Nothing that an import may write over.
    Refused(String),
}

fn state(articles: &Snapshot, arrived: &ReadArticle) -> ArticleState {
    let Some(article) = articles.article(&arrived.name) else {
        return ArticleState::Wanted(Revision::NONE);
    };
    if let Some(to) = article.redirect() {
        return ArticleState::Refused(format!("`{}` was renamed to `{to}`", arrived.name));
    }
    match article.latest().and_then(|latest| latest.content()) {
        None => ArticleState::Refused(format!("`{}` was deleted", arrived.name)),
        Some(content)
            if content.digest == arrived.content.digest
                && content.content_type == arrived.content.content_type =>
        {
            ArticleState::Same
        }
        Some(_) => ArticleState::Wanted(article.highest()),
    }
}

fn write(
    import: &ArticlesImport,
    arrived: &[ReadArticle],
    plan: &mut PlannedBatch,
    limits: &Limits,
) -> anyhow::Result<ArticlesReport> {
    let mut done = ArticlesReport::default();
    for arrived in arrived {
        let articles = &plan.stored().articles;
        let base = match state(articles, arrived) {
            ArticleState::Same => {
                done.already_there += 1;
                continue;
            }
            ArticleState::Refused(why) => {
                done.left_out.push(Omission::new(&arrived.path, why));
                continue;
            }
            ArticleState::Wanted(base) => base,
        };
        let change = Change {
            name: arrived.name.clone(),
            base,
            author: import.author.clone(),
            comment: import.comment.clone(),
            at: Timestamp::now(),
            act: WriteAction::Put(arrived.content.clone()),
        };
        match change.check(articles, limits) {
            Ok(checked) => {
                plan.add(checked.batch);
                match base {
                    Revision::NONE => done.added += 1,
                    _ => done.changed += 1,
                }
            }
            Err(error) => done.left_out.push(Omission::new(&arrived.path, error)),
        }
    }
    Ok(done)
}

/// Makes redirects of the manifest; existing ones stay.
fn redirect(
    import: &ArticlesImport,
    redirects: &[(&String, &String)],
    plan: &mut PlannedBatch,
    limits: &Limits,
) -> anyhow::Result<ArticlesReport> {
    let mut done = ArticlesReport::default();
    for (from, to) in redirects {
        let parse = |name: &str| ArticleName::parse(&format!("{}{name}", import.prefix));
        let (name, to) = match (parse(from), parse(to)) {
            (Ok(name), Ok(to)) => (name, to),
            (Err(error), _) | (_, Err(error)) => {
                done.left_out.push(Omission::new(*from, error));
                continue;
            }
        };
        let articles = &plan.stored().articles;
        if articles.article(&name).is_some_and(|article| article.redirect() == Some(&to)) {
            continue;
        }
        let (author, comment) = (import.author.clone(), import.comment.clone());
        let redirect = Redirect { name, to, author, comment, at: Timestamp::now() };
        match redirect.check(articles, limits) {
            Ok(checked) => {
                plan.add(checked.batch);
                done.redirects += 1;
            }
            Err(error) => done.left_out.push(Omission::new(*from, error)),
        }
    }
    Ok(done)
}

/// Opens the file at `path` below `directory`. If it, or a folder above it, has become a link since it was listed, that is not
/// followed; if it has become a pipe, this does not wait.
fn opened(directory: &Path, path: &str) -> io::Result<File> {
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut place = rustix::fs::open(directory, folder, Mode::empty())?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        place = rustix::fs::openat(&place, part, folder | OFlags::NOFOLLOW, Mode::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(&place, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let file = File::from(file);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file any more")),
    }
}

/// Reads a file: its facts, and its bytes, which are not stored yet.
async fn read(
    directory: &Path,
    path: &str,
    name: &ArticleName,
    content_type: Option<&str>,
    blobs: Option<&BlobStore>,
    limits: &Limits,
) -> anyhow::Result<(Content, Option<SpooledBlob>)> {
    let bound = (limits.content_bytes_max, "article.body_bytes_max");
    let (inspector, digest, _, staged) = bytes_of(directory, path, blobs, bound).await?;
    Ok((described(inspector, digest, name, content_type)?, staged))
}

/// As [`read`], for a text whose links to other files of the import may have lost their ending. It is in memory as a whole.
async fn read_mended(
    directory: &Path,
    path: &str,
    name: &ArticleName,
    content_type: Option<&str>,
    blobs: Option<&BlobStore>,
    limits: &Limits,
    names: &Names,
) -> anyhow::Result<(Content, Option<SpooledBlob>)> {
    let (folder, file, bytes_max) =
        (directory.to_owned(), path.to_owned(), limits.content_bytes_max);
    let reading = tokio::task::spawn_blocking(move || {
        let (mut file, mut bytes) = (opened(&folder, &file)?.take(bytes_max + 1), Vec::new());
        file.read_to_end(&mut bytes)?;
        anyhow::Ok(bytes)
    });
    let bytes = reading.await??;
    // Larger ones, and those that are no text, are refused with the reason.
    let text = match String::from_utf8(bytes) {
        Ok(text) if text.len() as u64 <= bytes_max => text,
        _ => return read(directory, path, name, content_type, blobs, limits).await,
    };
    let text = markup::relink(&text, |target| names.mended(path, target));
    let (mut inspector, mut hasher) = (Inspector::new(), Hasher::new());
    inspector.update(text.as_bytes());
    hasher.update(text.as_bytes());
    let staged = match blobs {
        Some(blobs) => {
            let mut upload = blobs.begin(bytes_max);
            upload.write(Bytes::from(text)).await?;
            Some(upload.stage().await?)
        }
        None => None,
    };
    Ok((described(inspector, hasher.finish(), name, content_type)?, staged))
}

/// Reads a file of at most `bytes_max` bytes, the bound that `setting` names: facts about its text, its digest, its size, and
/// the spooled blob, which is not stored yet.
async fn bytes_of(
    directory: &Path,
    path: &str,
    blobs: Option<&BlobStore>,
    (bytes_max, setting): (u64, &str),
) -> anyhow::Result<(Inspector, Digest, u64, Option<SpooledBlob>)> {
    let (directory, path) = (directory.to_owned(), path.to_owned());
    let opening = tokio::task::spawn_blocking(move || opened(&directory, &path));
    let mut file = tokio::fs::File::from_std(opening.await??);
    let facts = file.metadata().await?;
    if facts.len() > bytes_max {
        bail!("it has {} bytes: at most {bytes_max} are allowed (`{setting}`)", facts.len());
    }
    let mut upload = blobs.map(|blobs| blobs.begin(bytes_max));
    let (mut inspector, mut hasher) = (Inspector::new(), Hasher::new());
    let mut size_bytes = 0;
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES.min(facts.len() as usize + 1));
        let room = PIECE_BYTES as u64;
        if (&mut file).take(room).read_to_end(&mut piece).await? == 0 {
            break;
        }
        size_bytes += piece.len() as u64;
        if size_bytes > bytes_max {
            bail!("it grows, and has more than {bytes_max} bytes by now");
        }
        inspector.update(&piece);
        hasher.update(&piece);
        if let Some(upload) = &mut upload {
            upload.write(Bytes::from(piece)).await?;
        }
    }
    let staged = match upload {
        Some(upload) => Some(upload.stage().await?),
        None => None,
    };
    Ok((inspector, hasher.finish(), size_bytes, staged))
}

/// The facts about an article with this name that came without a media type, as for a write.
pub(crate) fn described(
    inspector: Inspector,
    digest: Digest,
    name: &ArticleName,
    content_type: Option<&str>,
) -> anyhow::Result<Content> {
    let is_text = inspector.is_text();
    let fits = |told: &ContentType| is_text || !told.essence().starts_with("text/");
    let told = of_name(name).filter(fits);
    let content_type = content_type.or(told.as_ref().map(ContentType::as_str));
    Ok(inspector.finish(digest, content_type)?)
}

/// Lists the files below `directory`.
fn listed(directory: &Path) -> anyhow::Result<ArticleFolder> {
    if directory.is_file() {
        bail!("`{}` is a file: the folder that contains it was expected", directory.display());
    }
    let mut listing = ArticleFolder::default();
    let mut waiting = vec![String::new()];
    while let Some(folder) = waiting.pop() {
        let place = directory.join(&folder);
        let unreadable = || format!("`{}` cannot be listed", place.display());
        for entry in std::fs::read_dir(&place).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let shown = format!("{folder}{}", name.display());
                listing.left_out.push(Omission::new(shown, "its name is not UTF-8"));
                continue;
            };
            let path = format!("{folder}{name}");
            if name.starts_with('.') {
                listing.hidden += 1;
                continue;
            }
            if let Err(why) =
                listing.take(&path, entry.file_type().with_context(unreadable)?, &mut waiting)
            {
                listing.left_out.push(Omission::new(path, why));
            }
        }
    }
    if let Some(at) = listing.files.iter().position(|path| path == MANIFEST) {
        listing.files.swap_remove(at);
        listing.manifest = manifest(directory)?;
        if listing.manifest.is_unfinished {
            bail!(
                "`{}` is an export that did not come to its end: files may be missing, and names of others are not known. \
                 Export once more, into a new folder",
                directory.display()
            );
        }
    } else if let Some(it) = listing.left_out.iter().find(|it| it.what == MANIFEST) {
        // Without the manifest, articles would get other names.
        bail!("`{}` cannot be read: {}", directory.join(MANIFEST).display(), it.why);
    }
    listing.files.sort();
    Ok(listing)
}

impl ArticleFolder {
    fn take(
        &mut self,
        path: &str,
        kind: FileType,
        waiting: &mut Vec<String>,
    ) -> Result<(), String> {
        if path.len() > 4 * ArticleName::BYTES_MAX {
            return Err(format!("its path has {} bytes, which no article's name has", path.len()));
        }
        if kind.is_symlink() {
            return Err("it is a symbolic link, which is not followed".to_owned());
        }
        if kind.is_dir() {
            waiting.push(format!("{path}/"));
        } else if kind.is_file() {
            self.files.push(path.to_owned());
        } else {
            return Err("it is neither a file nor a folder".to_owned());
        }
        Ok(())
    }
}

fn manifest(directory: &Path) -> anyhow::Result<Manifest> {
    let path = directory.join(MANIFEST);
    let shown = || format!("`{}` cannot be read", path.display());
    let file = opened(directory, MANIFEST).with_context(shown)?;
    let mut text = Vec::new();
    file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text).with_context(shown)?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        bail!(
            "`{}` is too large: at most {MANIFEST_BYTES_MAX} bytes were expected",
            path.display()
        );
    }
    serde_json::from_slice(&text).with_context(shown)
}
