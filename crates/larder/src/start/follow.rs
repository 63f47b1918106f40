//! The start of a server that follows another one: it has a copy of the primary's records before it opens them.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use account::Acl;
use anyhow::{Context as _, bail};
use config::Config;
use following::{
    FollowerNote, Link, Pace, Primary, PrimaryStore, Settings, put_in_place, take_copy,
};
use record::Serial;
use sd_notify::NotifyState;
use store::{BlobStore, DatabaseLocation};

use crate::app::following::Following;

/// How often a first copy says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// For how long systemd then waits for more: `TimeoutStartSec` of `larder.service`.
const START_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Makes sure that there is a copy; `None` if this server follows nobody. Without one, this waits for the primary.
///
/// # Errors
/// A data directory that holds something else; a primary that refuses; the disk's errors.
pub(super) async fn prepare(config: &Config) -> anyhow::Result<Option<Following>> {
    let (Some(url), Some(token_file)) = (&config.follow, &config.follow_token_file) else {
        return Ok(None);
    };
    let DatabaseLocation::Sqlite(database) = config.database() else {
        bail!("a follower needs a database of SQLite");
    };
    if is_open(url) {
        tracing::warn!(
            url,
            "the connection to the primary is not encrypted, and secrets and the token go over it: use https"
        );
    }
    let settings = Settings { url: url.clone(), token_file: token_file.clone() };
    let primary = Primary::new(settings)?;
    let known = place_copy(config, &database).await?;
    let exists = database
        .try_exists()
        .with_context(|| format!("cannot look for `{}`", database.display()))?;
    let mut aur_dump = None;
    let note = match (exists, known) {
        (true, Some(note)) => note,
        (true, None) => bail!(
            "`{}` holds a store that is no copy: a follower begins with an empty data directory; a directory of blobs \
             may stay",
            config.data_dir.display()
        ),
        (false, _) => {
            tracing::info!(url, "copying everything from the primary");
            let link = Link::new(url.clone(), Serial::ZERO, Serial::ZERO);
            let place = (&*config.data_dir, &*database);
            let nothing = PrimaryStore::default();
            let copying = take_copy(&primary, &link, place, &nothing, Pace::default());
            let copy = while_it_grows(PROGRESS_INTERVAL, || link.state().received, go_on, copying);
            let copy = copy.await?;
            tracing::info!(
                serial = copy.serial.0,
                records = link.state().records,
                "copied the primary"
            );
            aur_dump = *link.aur_dump().borrow();
            place_copy(config, &database)
                .await?
                .context("the copy was made, but cannot be opened")?
        }
    };
    if note.url != *url {
        tracing::warn!(before = note.url, now = url, "this server follows another URL than before");
    }
    let link = Link::new(url.clone(), Serial::ZERO, Serial(note.primary_serial));
    link.announced(aur_dump);
    Ok(Some(Following::new(primary, link, note.part)?))
}

/// The configuration of a server with that copy. A copy of a part knows no users, and this server's own list of readers may name more
/// people than the primary's: without credentials, articles are read here only if everybody reads them there.
pub(super) fn narrow(config: &mut Config, following: Option<&Following>) {
    let part = following.and_then(|following| following.part);
    if part.is_some_and(|part| !part.has_open_articles) {
        config.article.acl_read = Acl::nobody();
    }
}

/// Tells systemd and the log that the start goes on, and how far it is.
fn go_on(records: u64) {
    tracing::info!(records, "records of the primary are read");
    super::notify(&[NotifyState::ExtendTimeoutUsec(START_TIMEOUT.as_micros() as u32)]);
}

/// Waits for `work`. If it takes long, `told` gets `count` now and then, as long as that grows.
async fn while_it_grows<T>(
    interval: Duration,
    count: impl Fn() -> u64,
    told: impl Fn(u64),
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let mut before = 0;
    loop {
        if let Ok(done) = tokio::time::timeout(interval, &mut work).await {
            return done;
        }
        let now = count();
        if now > before {
            told(now);
        }
        before = now;
    }
}

/// Whether others on the way can read what comes from there.
fn is_open(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let is_local = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "http" && !is_local
}

/// Puts a new copy in its place, if there is one; returns the note of the copy that is there then. Its blobs are those that are
/// here already, and those of the primary.
async fn place_copy(config: &Config, database: &Path) -> anyhow::Result<Option<FollowerNote>> {
    let (data_dir, path) = (config.data_dir.clone(), database.to_owned());
    let placed = tokio::task::spawn_blocking(move || put_in_place(&data_dir, &path)).await??;
    if let Some(note) = placed {
        let location = config.blobs();
        let blobs = BlobStore::open(&location, &config.data_dir.join("spool")).await;
        let blobs = blobs.with_context(|| format!("cannot open the blobs in `{location}`"))?;
        let identity = note.identity.parse()?;
        blobs.adopt(&identity, true).await?;
        blobs.reset_serial(&identity, Serial(note.primary_serial)).await?;
        note.settled().write(&config.data_dir)?;
    }
    FollowerNote::read(&config.data_dir)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::iter;

    use super::*;

    #[tokio::test]
    async fn a_long_copy_is_told_of_while_it_grows() {
        let (moment, told) = (Duration::from_millis(1), RefCell::new(Vec::new()));
        let counts = RefCell::new([3, 3, 9].into_iter().chain(iter::repeat(9)));
        let count = || counts.borrow_mut().next().expect("no end");
        let work = async {
            // Some rounds after the last growth.
            tokio::time::sleep(moment * 50).await;
            "done"
        };
        let done = while_it_grows(moment, count, |now| told.borrow_mut().push(now), work).await;
        assert_eq!(done, "done");
        assert!([&[][..], &[3], &[3, 9]].contains(&&*told.into_inner()));
    }
}
