//! Imports a devpi export: users with their password hashes, indexes, releases, and files with their history.
//!
//! `dataindex.json` -> [`dump::Dump`] -> users and indexes in one commit -> items, hundreds a commit -> every file is
//! looked up at the end. The secret that devpi signs logins with, and the name of the server, are not imported.

mod accounts;
mod dump;
mod files;
mod renaming;
mod stages;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use config::Config;

use self::dump::Dump;
use super::report::Report;
use super::writer::Writer;

/// What to import, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevpiImport {
    /// The output of `devpi-export`.
    pub directory: PathBuf,
    /// Only read and check everything; write nothing.
    pub is_dry_run: bool,
    /// Do not report the files of mirrors as missing: a mirror fetches them anew.
    pub is_without_mirrored_files: bool,
}

/// Runs the import. The export has no password for a new `root`: if `root` is made here, its password comes with the
/// report.
///
/// # Errors
/// If the export cannot be read at all, and errors of the store. Everything else that goes wrong is in the report.
pub async fn import_devpi(
    config: &Config,
    import: &DevpiImport,
) -> anyhow::Result<(Report, Option<account::Password>)> {
    let dump = read_dump(&import.directory).await?;
    let mut writer = Writer::open(config, import.is_dry_run).await?;
    let done = everything(config, import, dump, &mut writer).await;
    writer.close().await;
    done
}

async fn everything(
    config: &Config,
    import: &DevpiImport,
    mut dump: Dump,
    writer: &mut Writer,
) -> anyhow::Result<(Report, Option<account::Password>)> {
    let mut report = Report { is_dry_run: import.is_dry_run, ..Report::default() };
    renaming::rename(&mut dump, &writer.stored().accounts, &mut report);
    let dump = &dump;
    let users = accounts::read(dump, config.python.devpi_defaults, &mut report).await?;
    let stages = stages::read(dump, config, &mut report);
    let before = report;
    let planning = writer.committed(async |plan| {
        let mut report = before.clone();
        accounts::plan(&users, plan, &mut report);
        stages::plan(&stages, plan, &mut report);
        Ok(report)
    });
    let mut report = planning.await?;
    let directory = &import.directory;
    let is_missing_told = !import.is_without_mirrored_files;
    let items = files::items(dump, directory, is_missing_told, writer.stored(), &mut report);
    let there = files::import(writer, &items, &mut report).await?;
    files::verify(writer, &items, &there, &mut report).await?;
    files::keep_names(writer, dump, &mut report).await?;
    Ok((report, writer.make_root(config).await?))
}

async fn read_dump(directory: &Path) -> anyhow::Result<Dump> {
    let path = directory.join("dataindex.json");
    let reading = tokio::task::spawn_blocking(move || {
        let bytes = std::fs::read(&path).with_context(|| {
            format!("`{}` cannot be read: what `devpi-export` wrote was expected", path.display())
        })?;
        let dump: Dump = serde_json::from_slice(&bytes)
            .with_context(|| format!("`{}` is not the index of an export", path.display()))?;
        match dump.dumpversion.as_str() {
            "2" => Ok(dump),
            other => bail!(
                "the export has the dumpversion `{other}`, and 2 was expected: export with devpi-server 4 to 6"
            ),
        }
    });
    reading.await?
}
