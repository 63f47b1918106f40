//! Exports articles as a folder of Markdown with attachments, which `import-articles` reads.
//!
//! the store -> articles, each as it is now -> paths ([`crate::article_folder`]) -> files, and a manifest of what their paths
//! do not say. The folder must be new: no existing file is overwritten, and no link is followed.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use article::{ArticleName, Inspector};
use config::Config;
use futures_util::TryStreamExt as _;
use record::{Digest, Hasher};
use serde::Serialize;
use state::maintenance::Progress;
use state::stored::Stored;
use state::text::counted;
use store::BlobStore;

use crate::article_folder::{
    AttachedEntry, Entry, Layout, MANIFEST, MANIFEST_BYTES_MAX, Manifest, Omission, whole_prefix,
};
use crate::articles::described;
use crate::writer::{self, Writer};

/// What to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArticlesExport {
    /// The folder, which is empty or does not exist.
    pub directory: PathBuf,
    /// Only articles in this folder of names; the rest of the name is the path. Empty for all.
    pub prefix: String,
}

/// The outcome of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// Articles that are files now.
    pub articles: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Names that redirect to one of them.
    pub redirects: u64,
    /// Attachments of these articles.
    pub attachments: u64,
    /// What was not exported.
    pub left_out: Vec<Omission>,
}

impl ExportReport {
    /// A summary of what was not exported; `None` if the export is complete.
    pub fn shortfall(&self) -> Option<String> {
        Omission::shortfall(&self.left_out, "exported")
    }
}

impl fmt::Display for ExportReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for left_out in &self.left_out {
            writeln!(formatter, "failure: {left_out}")?;
        }
        let ExportReport { articles, bytes, redirects, attachments, .. } = self;
        writeln!(
            formatter,
            "articles: {articles}, attachments: {attachments}, {bytes} bytes together; {redirects} redirects"
        )
    }
}

/// Runs the export.
///
/// # Errors
/// If the store cannot be read, or the folder cannot be written or has something in it. What cannot be a file is in the
/// report.
pub async fn export_articles(
    config: &Config,
    export: &ArticlesExport,
) -> anyhow::Result<ExportReport> {
    if writer::is_missing(config) {
        bail!("there is no store in {}", config.database());
    }
    let export = &ArticlesExport { prefix: whole_prefix(&export.prefix)?, ..export.clone() };
    make_folder(&export.directory)?;
    let store = Writer::open(config, true).await?;
    let done = match store.bytes().readable() {
        Some(blobs) => everything(export, store.stored(), blobs).await,
        None => Ok(ExportReport::default()),
    };
    store.close().await;
    done
}

/// Makes the folder, unless it is there and empty.
fn make_folder(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    // Not everybody may read every article.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("`{shown}` cannot be made"))?;
    let mut entries =
        fs::read_dir(directory).with_context(|| format!("`{shown}` cannot be read"))?;
    if entries.next().is_some() {
        bail!("`{shown}` is not empty: a new folder was expected");
    }
    Ok(())
}

async fn everything(
    export: &ArticlesExport,
    stored: &Stored,
    blobs: &BlobStore,
) -> anyhow::Result<ExportReport> {
    let (mut report, mut layout, mut manifest) =
        (ExportReport::default(), Layout::default(), Manifest::default());
    let all = stored.articles.articles();
    let all = all.filter_map(|article| {
        let rest = article.name.as_str().strip_prefix(&export.prefix)?;
        (!rest.is_empty()).then_some((rest, article))
    });
    // If the export is interrupted, the manifest says so: an import would use wrong names without the rest of it.
    write_manifest(export, &Manifest { is_unfinished: true, ..Manifest::default() })?;
    let mut with_files = Vec::new();
    let progress = Progress::on_terminal();
    progress.begin_counted("articles", stored.articles.len() as u64);
    for (rest, article) in all {
        progress.step();
        if let Some(to) = article.redirect() {
            let leads = stored.articles.latest(to).is_some_and(|latest| !latest.is_deleted());
            if let Some(to) = to.as_str().strip_prefix(&export.prefix).filter(|_| leads) {
                manifest.redirects.insert(rest.to_owned(), to.to_owned());
                report.redirects += 1;
            }
            continue;
        }
        let with_attachments = |why: &str| {
            let attachments = stored.articles.attachments(&article.name);
            match attachments.map_or(0, |all| all.files().len() as u64) {
                0 => why.to_owned(),
                count => format!("{why}; with it {} of it", counted(count, "attachment")),
            }
        };
        let content = article.latest().and_then(|latest| latest.content());
        let Some(content) = content else {
            // An unreadable revision does not count as a deletion.
            if !article.unreadable().is_empty() {
                let why = "its latest version cannot be read here";
                report.left_out.push(Omission::new(rest, with_attachments(why)));
            }
            continue;
        };
        let placed = layout.place(rest, &content.content_type.essence());
        let done = match placed {
            Ok(path) => {
                let bytes = (content.digest, content.size_bytes);
                write(export, blobs, &path, bytes).await?.map(|inspector| (path, inspector))
            }
            Err(why) => Err(why),
        };
        let (path, inspector) = match done {
            Ok(done) => done,
            Err(why) => {
                report.left_out.push(Omission::new(rest, with_attachments(&why)));
                continue;
            }
        };
        report.articles += 1;
        report.bytes += content.size_bytes;
        if let Some(attachments) = stored.articles.attachments(&article.name) {
            with_files.push((rest, path.clone(), attachments));
        }
        let is_told = path == rest
            && ArticleName::parse(rest).is_ok_and(|name| {
                let told = described(inspector, content.digest, &name, None);
                told.is_ok_and(|told| told.content_type == content.content_type)
            });
        if !is_told {
            let (name, content_type) = (rest.to_owned(), content.content_type.to_string());
            manifest.articles.insert(path, Entry { name, content_type });
        }
    }
    // All articles are placed before: if a path is taken, the attachment gets another one.
    for (article, beside, attachments) in with_files {
        if attachments.is_unreadable() {
            report.left_out.push(Omission::new(article, "its attachments cannot be read here"));
        }
        for file in attachments.files() {
            let name = file.name.to_string();
            let done = match layout.place_attached(&beside, &name) {
                Ok(path) => {
                    let bytes = (file.digest, file.size_bytes);
                    write(export, blobs, &path, bytes).await?.map(|_| path)
                }
                Err(why) => Err(why),
            };
            match done {
                Ok(path) => {
                    report.attachments += 1;
                    report.bytes += file.size_bytes;
                    let article = article.to_owned();
                    manifest.attachments.insert(path, AttachedEntry { article, name });
                }
                Err(why) => {
                    let what = format!("the attachment `{name}` of {article}");
                    report.left_out.push(Omission::new(what, why));
                }
            }
        }
    }
    progress.end();
    write_manifest(export, &manifest)?;
    Ok(report)
}

/// The manifest as text.
///
/// # Errors
/// If the text has more bytes than `bytes_max`: an import would not read it.
fn text_of(manifest: &Manifest, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let text = serde_json::to_vec(manifest)?;
    if text.len() as u64 > bytes_max {
        bail!(
            "`{MANIFEST}` would have {} bytes, and an import reads at most {bytes_max}: export the articles in parts, each with \
             a `--prefix`. The folder is marked as unfinished",
            text.len()
        );
    }
    Ok(text)
}

/// Replaces the manifest; removes the file if the new manifest has no entries.
fn write_manifest(export: &ArticlesExport, manifest: &Manifest) -> anyhow::Result<()> {
    let place = export.directory.join(MANIFEST);
    let unwritable = || format!("`{}` cannot be written", place.display());
    if *manifest == Manifest::default() {
        return fs::remove_file(&place).with_context(unwritable);
    }
    let text = text_of(manifest, MANIFEST_BYTES_MAX)?;
    // A hidden file, because an import ignores these.
    let new = export.directory.join(format!(".{MANIFEST}.new"));
    let mut file = File::create_new(&new).with_context(unwritable)?;
    file.write_all(&text).with_context(unwritable)?;
    file.sync_all().with_context(unwritable)?;
    fs::rename(&new, &place).with_context(unwritable)
}

async fn write(
    export: &ArticlesExport,
    blobs: &BlobStore,
    path: &str,
    bytes: (Digest, u64),
) -> anyhow::Result<Result<Inspector, String>> {
    let mut inspector = Inspector::new();
    let mut note = |piece: &[u8]| inspector.update(piece);
    let written = write_blob(&export.directory, blobs, path, bytes, &mut note).await?;
    Ok(written.map(|()| inspector))
}

/// Writes a blob to a new file, and tells `note` of its pieces. The inner error says why the report lists it as left out.
pub(crate) async fn write_blob(
    directory: &Path,
    blobs: &BlobStore,
    path: &str,
    (digest, size_bytes): (Digest, u64),
    note: &mut (dyn FnMut(&[u8]) + Send),
) -> anyhow::Result<Result<(), String>> {
    let Some(blob) = blobs.open_blob(digest).await? else {
        return Ok(Err("its content is missing from the store".to_owned()));
    };
    let place = directory.join(path);
    let unwritable = || format!("`{}` cannot be written", place.display());
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder).with_context(unwritable)?;
    }
    let mut file = File::create_new(&place).with_context(unwritable)?;
    let mut hasher = Hasher::new();
    let mut pieces = std::pin::pin!(blob.read_range(0..size_bytes));
    while let Some(piece) = pieces.try_next().await? {
        note(&piece);
        hasher.update(&piece);
        file.write_all(&piece).with_context(unwritable)?;
    }
    if hasher.finish() != digest {
        drop(file);
        fs::remove_file(&place).with_context(unwritable)?;
        return Ok(Err("its content in the store is damaged".to_owned()));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_no_import_reads_is_not_written() {
        let redirects = (0..100).map(|number| (format!("old{number}"), "new".to_owned()));
        let manifest = Manifest { redirects: redirects.collect(), ..Manifest::default() };
        let size = text_of(&manifest, u64::MAX).expect("text").len() as u64;
        assert!(text_of(&manifest, size).is_ok());
        let error = text_of(&manifest, size - 1).expect_err("too large").to_string();
        let expected = format!(
            "`larder-articles.json` would have {size} bytes, and an import reads at most {}: export the articles in parts, \
             each with a `--prefix`. The folder is marked as unfinished",
            size - 1
        );
        assert_eq!(error, expected);
    }
}
