//! The primary of a follower as a source: it says when it has another dump, and gives what differs from the one that is here.
//!
//! the primary's announcement -> the dump that is here, unpacked and hashed -> the delta from it, applied and compared with its
//! digest -> [`Arrival`]. Without a delta that fits, the whole dump is fetched, as from a URL.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use aur::delta::{Delta, HashingWriter};
use flate2::bufread::MultiGzDecoder;
use futures_util::future::BoxFuture;
use reqwest::header::{HeaderMap, LAST_MODIFIED};
use reqwest::{Response, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::SourceError;
use super::arrival::{Arrival, FileReader, Update, Validators};
use super::kept_directory::COPY_BUFFER_BYTES;
use super::kept_dump::{GZIP_MAGIC, KEPT_FILE_NAME};
use super::url::{SpoolWriter, retry_after, text};

/// Bytes of a delta, compressed and not. A server sends at most 16 MiB of new text; JSON may escape each byte with six.
const DELTA_BYTES_MAX: u64 = 128 << 20;

/// The server that a follower copies.
pub trait Primary: std::fmt::Debug + Send + Sync {
    /// The URL of a path there.
    fn url(&self, path: &str) -> String;

    /// Its answer to `GET`, with any status; or why there is none.
    fn ask(&self, path: String) -> BoxFuture<'_, Result<Response, String>>;

    /// Which dump it has: another number is another dump. `None` while that is not known, or if it has none.
    fn dump(&self) -> watch::Receiver<Option<u64>>;

    /// Called when everything of this dump is served here.
    fn is_served(&self, dump: u64);
}

/// Fetches from one primary.
#[derive(Debug)]
pub(crate) struct PrimaryFetch {
    primary: Arc<dyn Primary>,
    announced: watch::Receiver<Option<u64>>,
    /// What was announced when it was last asked.
    asked: Option<u64>,
    /// What is served of it.
    served: Option<u64>,
    /// The dump that was accepted last, in any form.
    accepted: Option<Arc<File>>,
    spooling: SpoolWriter,
}

/// What a delta came to.
enum DeltaOutcome {
    Dump(Box<Arrival>),
    /// The dump that is here already.
    Same,
    /// There is no delta, or it does not fit.
    Nothing,
}

impl PrimaryFetch {
    pub(crate) fn new(primary: Arc<dyn Primary>, spooling: SpoolWriter) -> PrimaryFetch {
        let mut announced = primary.dump();
        // What was announced before counts, too.
        announced.mark_changed();
        PrimaryFetch { primary, announced, asked: None, served: None, accepted: None, spooling }
    }

    /// Waits until the primary says again which dump it has.
    pub(crate) async fn announced(&self) {
        let mut announced = self.announced.clone();
        while announced.changed().await.is_ok() {
            if announced.borrow_and_update().is_some() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Remembers the dump, from which the next delta leads.
    pub(crate) fn accepted(&mut self, arrival: &Arrival) {
        self.accepted = Some(arrival.file().clone());
        if let Some(dump) = self.asked.filter(|_| !arrival.is_kept()) {
            self.is_served(dump);
        }
    }

    fn is_served(&mut self, dump: u64) {
        self.served = Some(dump);
        self.primary.is_served(dump);
    }

    /// Asks for what differs, if the primary has another dump than the one that is served. With `force`, asks in any case.
    pub(crate) async fn poll(&mut self, force: bool) -> Result<Option<Arrival>, SourceError> {
        let announced = *self.announced.borrow_and_update();
        let Some(dump) = announced.filter(|dump| force || self.served != Some(*dump)) else {
            return Ok(None);
        };
        self.asked = Some(dump);
        let deadline = Instant::now() + self.spooling.options.transfer_time_max;
        if let Some(accepted) = self.accepted.clone() {
            match self.by_delta(accepted, deadline).await? {
                DeltaOutcome::Dump(arrival) => return Ok(Some(*arrival)),
                DeltaOutcome::Same => {
                    self.is_served(dump);
                    return Ok(None);
                }
                DeltaOutcome::Nothing => {}
            }
        }
        let path = format!("/{KEPT_FILE_NAME}");
        let response = self.ask(&path).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(&path, &response));
        }
        let validators = validators(response.headers());
        let bytes_max = self.spooling.options.dump_bytes_max;
        self.spooling.spool(response, validators, bytes_max, deadline).await.map(Some)
    }

    /// Makes the primary's dump of the one that is here.
    async fn by_delta(
        &self,
        accepted: Arc<File>,
        deadline: Instant,
    ) -> Result<DeltaOutcome, SourceError> {
        let SpoolWriter { options, spool_dir, .. } = &self.spooling;
        let (directory, bytes_max) = (spool_dir.clone(), options.dump_bytes_max);
        let unpacking = move || unpacked(accepted, &directory, bytes_max);
        let (base, sha256) = match tokio::task::spawn_blocking(unpacking).await {
            Ok(Ok(unpacked)) => unpacked,
            Ok(Err(error)) => return Ok(self.no_delta(&error)),
            Err(error) => return Ok(self.no_delta(&error)),
        };
        let path = format!("/packages-meta-ext-v1.delta.gz?since={sha256}");
        let response = self.ask(&path).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                return Err(self.refused(&path, &response));
            }
            status => return Ok(self.no_delta(&status)),
        }
        let validators = validators(response.headers());
        let delta = self.spooling.spool(response, validators, DELTA_BYTES_MAX, deadline).await?;
        let (directory, facts) = (spool_dir.clone(), self.facts(&delta));
        let making = move || made(&base, &sha256, &delta, bytes_max, &directory, &facts);
        match tokio::task::spawn_blocking(making).await {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(error)) => Ok(self.no_delta(&error)),
            Err(error) => Ok(self.no_delta(&error)),
        }
    }

    /// What is known of the dump that a delta makes.
    fn facts(&self, delta: &Arrival) -> Update {
        Update { modified_at: delta.modified_at, ..Update::whole(delta) }
    }

    fn no_delta(&self, why: &dyn std::fmt::Display) -> DeltaOutcome {
        tracing::info!(%why, "no delta of the AUR's dump can be used: all of it is fetched");
        DeltaOutcome::Nothing
    }

    async fn ask(&self, path: &str) -> Result<Response, SourceError> {
        let asked = self.primary.ask(path.to_owned()).await;
        asked.map_err(|cause| SourceError::Transfer { url: self.primary.url(path), cause })
    }

    fn refused(&self, path: &str, response: &Response) -> SourceError {
        let retry_after = retry_after(response.headers(), SystemTime::now());
        SourceError::Status { url: self.primary.url(path), status: response.status(), retry_after }
    }
}

/// Only the date: what a delta makes has no tag.
fn validators(headers: &HeaderMap) -> Validators {
    Validators { etag: None, last_modified: text(headers, LAST_MODIFIED) }
}

/// The content of a dump in a file without a name, and its SHA-256.
fn unpacked(
    dump: Arc<File>,
    directory: &std::path::Path,
    bytes_max: u64,
) -> io::Result<(File, String)> {
    let mut start = Vec::new();
    let reader = || FileReader::new(Arc::clone(&dump));
    reader().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let buffered = BufReader::with_capacity(COPY_BUFFER_BYTES, reader());
    let mut content: Box<dyn Read> = match start == GZIP_MAGIC {
        true => Box::new(MultiGzDecoder::new(buffered)),
        false => Box::new(buffered),
    };
    let file = tempfile::tempfile_in(directory)?;
    let mut out = HashingWriter::new(BufWriter::with_capacity(COPY_BUFFER_BYTES, &file));
    io::copy(&mut content.by_ref().take(bytes_max), &mut out)?;
    let (mut out, sha256) = out.finish();
    out.flush()?;
    drop(out);
    Ok((file, sha256))
}

/// Applies a delta to the dump with this digest.
fn made(
    base: &File,
    sha256: &str,
    delta: &Arrival,
    bytes_max: u64,
    directory: &std::path::Path,
    facts: &Update,
) -> Result<DeltaOutcome, Box<dyn std::error::Error + Send + Sync>> {
    let lines = MultiGzDecoder::new(BufReader::new(delta.reader())).take(DELTA_BYTES_MAX);
    let delta = Delta::read(BufReader::new(lines))?;
    if delta.head.from != sha256 {
        return Err(format!("it leads from {}", delta.head.from).into());
    }
    if delta.head.to == sha256 {
        return Ok(DeltaOutcome::Same);
    }
    let arrival = Arrival::spool(directory, facts, |out| {
        delta.apply(base, bytes_max, out).map_err(io::Error::other)
    })?;
    Ok(DeltaOutcome::Dump(Box::new(arrival)))
}

#[cfg(test)]
mod tests;
