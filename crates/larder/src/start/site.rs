//! A static site of the articles: pages as the server makes them, in files.
//!
//! the store -> the published state of a server that serves nobody -> its pages ([`crate::people::articles::site`]) -> a new folder

use std::sync::Arc;

use account::{Acl, AclEntry, Principal};
use anyhow::{Context, bail};
use config::Config;
use http::Request;
use import::{SiteExport, SiteFolder, SiteReport};
use net::{ClientAddress, Peer};
use state::maintenance::{self, Progress};
use state::setup;

use crate::app::App;
use crate::front::request::Parts;
use crate::people::articles::site::Plan;
use crate::protocols::articles::reader::ReadRequest;
use crate::tasks;

/// Writes the site.
///
/// # Errors
/// If the store cannot be read, not everybody may read articles and the export does not say that this is meant, or the folder cannot be
/// written or has something in it. What cannot be a page is in the report.
pub async fn export_site(config: &Config, export: &SiteExport) -> anyhow::Result<SiteReport> {
    let is_open = config.article.acl_read.entries().contains(&AclEntry::Everybody);
    if !is_open && !export.with_private {
        bail!(
            "not everybody may read the articles of this server (article.acl_read), but whoever has the files may: `--private` says \
             that this is meant"
        );
    }
    let prefix = export.whole_prefix()?;
    let store = maintenance::open_existing(config).await?;
    let records = store.records.clone();
    let mut stored = setup::load(config, &records).await?.into_state();
    let folder = SiteFolder::begin(&export.directory, !is_open || export.with_drafts)?;
    // It gets no requests, and has nothing of its own on the disk.
    let scratch = tempfile::tempdir().context("there is no place for temporary files")?;
    let config = Config {
        data_dir: scratch.path().to_owned(),
        article: config::Article { acl_read: Acl::everybody(), ..config.article.clone() },
        site: config.site.clone(),
        public_url: config.public_url.clone(),
        ..Config::default()
    };
    let (app, _) = App::new(config, store)?;
    let app = Arc::new(app);
    let is_in = |name: &str| name.starts_with(&prefix) || Some(name) == prefix.strip_suffix('/');
    if !prefix.is_empty() {
        stored.articles = stored.articles.part(is_in);
    }
    app.live_store.publish(stored);
    let stored = app.live_store.snapshot_full().context("nothing was published")?;
    // Pages name those that link to them.
    let indexing = tokio::spawn(tasks::article_texts::run(app.clone()));
    while app.articles.texts.snapshot().serial < stored.serial && !indexing.is_finished() {
        app.articles.texts.as_of(stored.serial).await;
    }
    indexing.abort();
    let (head, ()) = Request::new(()).into_parts();
    let head = Parts::new(head, Peer { address: ClientAddress::Unix, tls: false });
    let shown =
        ReadRequest { app: &app, stored: &stored, head: &head, principal: &Principal::Anonymous };
    let plan = Plan::of(&shown, &prefix, export.with_drafts);
    let progress = Progress::on_terminal();
    progress.begin_counted("files", plan.len() as u64);
    let written = plan.write(&shown, &folder, || progress.step()).await;
    progress.end();
    records.close().await;
    let report = written?;
    folder.finish()?;
    Ok(report)
}
