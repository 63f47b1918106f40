//! Fetches a dump from a URL by conditional requests; the body is spooled to a file and never held in memory.
//!
//! validators of the last good dump -> GET -> 304, or 200 -> spool file, hashed on the way -> [`Arrival`]. The body
//! is stored as it was sent. Nothing is decompressed here, whatever `Content-Encoding` says, since servers disagree
//! about it and the loader looks at the bytes. Nothing is remembered about a dump until the caller has accepted it,
//! so a broken one is requested again.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use net::Egress;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::time::{Instant, timeout, timeout_at};

use super::arrival::{Arrival, ArrivalKind, Stamp, Validators};
use super::spec::mask_url;
use super::spool::spool_file;
use super::{SourceError, SourceOptions};

/// The longest wait that a server can ask for by `Retry-After`; a longer one is cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most redirects that one request follows.
pub const REDIRECTS_MAX: usize = 5;

/// The buffer of a spool file that is written.
const SPOOL_BUFFER_BYTES: usize = 256 * 1024;

/// Fetches one URL.
#[derive(Debug)]
pub(crate) struct UrlFetch {
    url: Url,
    client: Client,
    /// The validators of the last accepted dump.
    validators: Validators,
    spooling: SpoolWriter,
}

/// Writes the bodies of answers to spool files.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    /// The URL of the source, masked.
    pub(crate) origin: String,
    pub(crate) fingerprint: String,
    pub(crate) options: SourceOptions,
    pub(crate) spool_dir: PathBuf,
}

impl UrlFetch {
    pub(crate) fn new(
        url: Url,
        fingerprint: String,
        options: SourceOptions,
        spool_dir: PathBuf,
    ) -> Result<UrlFetch, SourceError> {
        let client = client(&url, &options)
            .map_err(|error| SourceError::Client { url: mask_url(&url), cause: reasons(&error) })?;
        let spooling = SpoolWriter { origin: mask_url(&url), fingerprint, options, spool_dir };
        Ok(UrlFetch { url, client, validators: Validators::default(), spooling })
    }

    /// Remembers the validators for the next conditional request.
    pub(crate) fn accepted(&mut self, validators: &Validators) {
        self.validators = validators.clone();
    }

    /// Sends one request. `None` means that the last accepted dump is still the latest.
    pub(crate) async fn poll(&self) -> Result<Option<Arrival>, SourceError> {
        let options = &self.spooling.options;
        let deadline = Instant::now() + options.transfer_time_max;
        let response = self.ask().await?;
        let answered_by = mask_url(response.url());
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if self.validators.is_empty() => {
                return Err(SourceError::NotModifiedUnasked { url: answered_by });
            }
            StatusCode::NOT_MODIFIED => return Ok(None),
            status => {
                let retry_after = retry_after(response.headers(), SystemTime::now());
                return Err(SourceError::Status { url: answered_by, status, retry_after });
            }
        }
        let validators = Validators {
            etag: text(response.headers(), ETAG),
            last_modified: text(response.headers(), LAST_MODIFIED),
        };
        // Some servers send an ETag but never compare it. A strong one lets us skip the body.
        if validators.etag.as_ref().is_some_and(|etag| etag.starts_with('"'))
            && validators.etag == self.validators.etag
        {
            return Ok(None);
        }
        self.spooling.spool(response, validators, options.dump_bytes_max, deadline).await.map(Some)
    }

    /// Sends the request and waits for the response header, after redirects.
    async fn ask(&self) -> Result<Response, SourceError> {
        let mut request = (self.client.get(self.url.clone()))
            .header(ACCEPT, "*/*")
            // Without this, a server may compress the .gz once more.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = &self.validators.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(last_modified) = &self.validators.last_modified {
            request = request.header(IF_MODIFIED_SINCE, last_modified);
        }
        let options = &self.spooling.options;
        let bound = options.response_header_timeout;
        match timeout(bound, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_timeout() => {
                Err(self.spooling.timed_out("connecting", options.connect_timeout))
            }
            Ok(Err(error)) => Err(SourceError::Transfer {
                url: mask_url(&self.url),
                cause: reasons(&error.without_url()),
            }),
            Err(_) => Err(self.spooling.timed_out("waiting for the response header", bound)),
        }
    }
}

impl SpoolWriter {
    /// Writes the body, of at most `bytes_max` bytes, to a spool file.
    pub(crate) async fn spool(
        &self,
        mut response: Response,
        validators: Validators,
        bytes_max: u64,
        deadline: Instant,
    ) -> Result<Arrival, SourceError> {
        let origin = self.origin.clone();
        let expected = response.content_length();
        if expected.is_some_and(|length| length > bytes_max) {
            return Err(SourceError::TooLarge { origin, bytes_max });
        }
        let spool = spool_file(&self.spool_dir)
            .map_err(|cause| SourceError::Write { path: self.spool_dir.clone(), cause })?;
        let (file, path) = spool.into_parts();
        let unwritten = |cause| SourceError::Write { path: path.to_path_buf(), cause };
        let handle = tokio::fs::File::from_std(file.try_clone().map_err(unwritten)?);
        let mut writer = BufWriter::with_capacity(SPOOL_BUFFER_BYTES, handle);
        let mut hasher = Sha256::new();
        let mut received: u64 = 0;
        let truncated = |received, cause| SourceError::Truncated {
            url: origin.clone(),
            received,
            expected,
            cause,
        };
        loop {
            let stalled_at = Instant::now() + self.options.body_stall_timeout;
            let chunk = match timeout_at(stalled_at.min(deadline), response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(truncated(received, reasons(&error.without_url()))),
                Err(_) if stalled_at <= deadline => {
                    let step = "waiting for the next bytes of the body";
                    return Err(self.timed_out(step, self.options.body_stall_timeout));
                }
                Err(_) => {
                    return Err(self.timed_out("the transfer", self.options.transfer_time_max));
                }
            };
            received += chunk.len() as u64;
            if received > bytes_max {
                return Err(SourceError::TooLarge { origin, bytes_max });
            }
            hasher.update(&chunk);
            writer.write_all(&chunk).await.map_err(unwritten)?;
        }
        if expected.is_some_and(|length| length != received) {
            return Err(truncated(received, "the body ended".to_owned()));
        }
        writer.flush().await.map_err(unwritten)?;
        let metadata = file.metadata().map_err(unwritten)?;
        Ok(Arrival {
            bytes: received,
            modified_at: (validators.last_modified.as_deref())
                .and_then(|text| httpdate::parse_http_date(text).ok()),
            path: path.to_path_buf(),
            file: Arc::new(file),
            stamp: Stamp::of(&metadata),
            source_fingerprint: self.fingerprint.clone(),
            validators,
            sha256: Some(hex::encode(hasher.finalize())),
            kind: ArrivalKind::Spooled(path),
            bases: Vec::new(),
            users: None,
            origin,
        })
    }

    fn timed_out(&self, step: &'static str, bound: Duration) -> SourceError {
        SourceError::TimedOut { url: self.origin.clone(), step, bound }
    }
}

fn client(url: &Url, options: &SourceOptions) -> reqwest::Result<Client> {
    // The configuration names the host of the source; it does not name the hosts that its server redirects to.
    let egress = options.egress.clone().naming(url.host_str().unwrap_or_default());
    let has_proxy = options.environment_proxy && environment_names_a_proxy();
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .redirect(redirects(egress.clone()))
            .referer(false)
            // The next request is minutes away: a connection kept open until then would only go stale.
            .pool_max_idle_per_host(0);
        // A proxy resolves names itself, and it belongs to the operator.
        if has_proxy { builder } else { builder.no_proxy().dns_resolver(Arc::new(egress.clone())) }
    };
    // A source that cannot work is better refused at the start.
    if url.scheme() == "https" { builder().build() } else { net::build_client(builder) }
}

fn environment_names_a_proxy() -> bool {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    names.iter().any(|name| is_set(name) || is_set(&name.to_uppercase()))
}

fn redirects(egress: Egress) -> Policy {
    Policy::custom(move |attempt| {
        let downgrade = attempt.url().scheme() == "http"
            && attempt.previous().last().is_some_and(|previous| previous.scheme() == "https");
        if downgrade {
            attempt.error("a redirect from https to http is not followed")
        } else if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error(format!("more than {REDIRECTS_MAX} redirects"))
        } else if let Err(refused) = egress.check(attempt.url()) {
            attempt.error(refused)
        } else {
            attempt.follow()
        }
    })
}

pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The value of `Retry-After`, in seconds or as a date, cut to the maximum.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = text(headers, RETRY_AFTER)?;
    let value = value.trim();
    let wait = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?,
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// An error and its causes in one line, without repetitions.
fn reasons(error: &(dyn Error + 'static)) -> String {
    net::causes(error).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests;
