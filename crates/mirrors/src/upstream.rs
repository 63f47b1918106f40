//! [`Upstream`]: the client for a mirror's upstream: where it may connect, with which credentials, and how much it reads.
//!
//! URL -> [`Upstream::get`] (up to five redirects, each checked) -> status and headers -> [`read_body`], on disk if it is
//! large -> [`PageBody::parsed`], piece by piece and within a bound.
//! Connections go only where [`Egress`] admits them. Credentials go to the host of the mirror's URL alone. Errors name the
//! host and the reason, never a URL with credentials.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, LOCATION, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use pypi::upstream::{Blame, PageError};
use reqwest::{Client, Response, Url};

use net::Egress;

use super::blocking;
use super::disk::{Disk, EntryWriter};

/// Timeout to connect, and timeout without a byte.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a file has to arrive within each window, so that a slow upstream does not hold a turn forever.
const PACE_WINDOW: Duration = Duration::from_secs(30);
const PACE_BYTES_MIN: u64 = 30 << 10;
/// Larger pages are on disk while they arrive.
pub(super) const SMALL_PAGE_BYTES_MAX: usize = 512 << 10;
/// Most redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;
/// The first byte of gzip, which no page begins with.
const GZIP_START: u8 = 0x1f;
/// Longest URL that a redirect leads to, in bytes: each link of a page is read with the page's URL.
const URL_BYTES_MAX: usize = 8_000;

/// Why upstream has not given what was requested.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct UpstreamError {
    text: String,
    /// Whether this server itself is too busy.
    pub is_busy: bool,
    /// Whether upstream answered that it does not exist.
    pub is_absent: bool,
    /// Whether upstream is not asked, because a setting says so.
    pub is_offline: bool,
    /// Whether upstream has no list of projects, so that nothing tells which projects it has.
    pub has_no_list: bool,
    /// After how many seconds upstream wants to be asked again, if it says.
    pub retry_after_seconds: Option<u32>,
    /// What fails: the upstream, or only what was asked for.
    pub(super) blame: Blame,
}

impl UpstreamError {
    pub(super) fn new(text: impl Into<String>) -> UpstreamError {
        UpstreamError {
            text: text.into(),
            is_busy: false,
            is_absent: false,
            is_offline: false,
            has_no_list: false,
            retry_after_seconds: None,
            blame: Blame::Page,
        }
    }

    /// The upstream may have failed as a whole.
    pub(super) fn unclear(text: impl Into<String>) -> UpstreamError {
        UpstreamError { blame: Blame::Unclear, ..UpstreamError::new(text) }
    }

    /// The list of projects is 404.
    pub(super) fn no_list(trouble: &UpstreamError) -> UpstreamError {
        let text = format!(
            "{trouble}: it has no list of projects; `mirror_no_project_list=true` asks it for each project instead"
        );
        UpstreamError { has_no_list: true, ..UpstreamError::new(text) }
    }

    /// This error of an earlier request, for one that is not sent because of it.
    pub(super) fn repeated(&self, what: &str) -> UpstreamError {
        let text =
            format!("{what} is left alone for some seconds, since it failed several times: {self}");
        UpstreamError { text, ..self.clone() }
    }

    /// This status is not what was expected.
    pub(super) fn of_status(host: &str, response: &Response) -> UpstreamError {
        let status = response.status();
        let blame = match status {
            StatusCode::TOO_MANY_REQUESTS => Blame::Upstream,
            StatusCode::REQUEST_TIMEOUT => Blame::Unclear,
            _ if status.is_server_error() => Blame::Unclear,
            _ => Blame::Page,
        };
        let may_say_when =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        UpstreamError {
            is_absent: matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE),
            retry_after_seconds: retry_after(response.headers()).filter(|_| may_say_when),
            blame,
            ..UpstreamError::new(format!("{host}: it answered {status}"))
        }
    }

    pub(super) fn busy(text: impl Into<String>) -> UpstreamError {
        UpstreamError { is_busy: true, ..UpstreamError::new(text) }
    }

    pub(super) fn offline(text: impl Into<String>) -> UpstreamError {
        UpstreamError { is_offline: true, ..UpstreamError::new(text) }
    }
}

/// The seconds in `Retry-After`, which may also be a date; at least one, and at most a day.
fn retry_after(headers: &HeaderMap) -> Option<u32> {
    const SECONDS_MAX: u64 = 86_400;
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = text.parse().ok().or_else(|| {
        let until = httpdate::parse_http_date(text).ok()?;
        Some(until.duration_since(SystemTime::now()).unwrap_or_default().as_secs())
    })?;
    u32::try_from(seconds.clamp(1, SECONDS_MAX)).ok()
}

/// The URL of a mirror's upstream, and the client for it.
pub(super) struct Origin {
    /// The URL of its list of projects, with a slash at the end, without credentials.
    pub(super) url: Url,
    authorization: Option<HeaderValue>,
}

impl Origin {
    /// The origin with this URL, which may have credentials.
    pub(super) fn parse(text: &str) -> Option<Origin> {
        let mut url = Url::parse(text).ok()?;
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) =
            (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let mut authorization = None;
        if !user.is_empty() || !password.is_empty() {
            let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            authorization = Some(value);
        }
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Some(Origin { url, authorization })
    }

    /// Whether its URL gives access that others may not have: credentials, or a query.
    pub(super) fn is_secret(text: &str) -> bool {
        Url::parse(text).is_ok_and(|url| {
            !url.username().is_empty() || url.password().is_some() || url.query().is_some()
        })
    }

    /// Whether the URL is of the same host, scheme and port.
    fn is_own(&self, url: &Url) -> bool {
        url.scheme() == self.url.scheme()
            && url.host() == self.url.host()
            && url.port_or_known_default() == self.url.port_or_known_default()
    }

    /// The credentials, if they may go to this URL.
    fn authorization_for(&self, url: &Url) -> Option<&HeaderValue> {
        self.authorization.as_ref().filter(|_| self.is_own(url))
    }

    /// What to do about a 401, if the URL is of the host that `mirror_url` may have credentials for.
    fn about_credentials(&self, status: StatusCode, url: &Url) -> &'static str {
        match self.authorization {
            _ if status != StatusCode::UNAUTHORIZED || !self.is_own(url) => "",
            None => "; `mirror_url` has no user and password, as in https://user:password@host/",
            Some(_) => "; it does not accept the user and password in `mirror_url`",
        }
    }
}

/// The client of all mirrors.
pub(super) struct Upstream {
    egress: Egress,
    client: Client,
}

pub(super) fn host_of(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// The client's error with its causes, without the URL.
fn told(url: &Url, error: reqwest::Error) -> UpstreamError {
    let blame = if error.is_connect() { Blame::Upstream } else { Blame::Unclear };
    let text = format!("{}: {}", host_of(url), net::reason_of(error));
    UpstreamError { blame, ..UpstreamError::new(text) }
}

impl Upstream {
    pub(super) fn new(egress: Egress) -> anyhow::Result<Upstream> {
        let client = net::build_client(|| {
            egress.client().connect_timeout(CONNECT_TIMEOUT).read_timeout(STALL_TIMEOUT)
        })?;
        Ok(Upstream { egress, client })
    }

    /// Asks for `url`; follows redirects. The answer is 200, or 304 to a conditional request; and the URL that it came
    /// from.
    ///
    /// # Errors
    /// [`UpstreamError`] for every other answer.
    pub(super) async fn get(
        &self,
        origin: &Origin,
        url: Url,
        headers: HeaderMap,
    ) -> Result<(Response, Url), UpstreamError> {
        let mut url = url;
        for _ in 0..=REDIRECTS_MAX {
            self.egress.check(&url).map_err(|error| UpstreamError::new(error.to_string()))?;
            let mut headers = headers.clone();
            if let Some(authorization) = origin.authorization_for(&url) {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let sent = self.client.get(url.clone()).headers(headers).send().await;
            let response = sent.map_err(|error| told(&url, error))?;
            let status = response.status();
            if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                let location = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
                let next = location.and_then(|location| url.join(location).ok());
                let next = next.filter(|next| next.as_str().len() <= URL_BYTES_MAX);
                let next = next.filter(|next| {
                    // A request with TLS follows no redirect without it.
                    next.scheme() == "https" || (next.scheme() == "http" && url.scheme() == "http")
                });
                let nowhere = || {
                    UpstreamError::new(format!(
                        "{}: it redirects to no URL that is followed",
                        host_of(&url)
                    ))
                };
                let mut next = next.ok_or_else(nowhere)?;
                next.set_username("").map_err(|()| nowhere())?;
                next.set_password(None).map_err(|()| nowhere())?;
                url = next;
                continue;
            }
            return match status {
                StatusCode::OK | StatusCode::NOT_MODIFIED => Ok((response, url)),
                _ => {
                    let mut trouble = UpstreamError::of_status(&host_of(&url), &response);
                    trouble.text.push_str(origin.about_credentials(status, &url));
                    Err(trouble)
                }
            };
        }
        Err(UpstreamError::new(format!("{}: more than {REDIRECTS_MAX} redirects", host_of(&url))))
    }

    /// Asks for the list of projects, without reading it. `has_no_list`: it need not be there.
    ///
    /// # Errors
    /// As [`Upstream::get`].
    pub(super) async fn try_once(
        &self,
        origin: &Origin,
        has_no_list: bool,
    ) -> Result<(), UpstreamError> {
        let accepted = HeaderValue::from_static(pypi::upstream::ACCEPT);
        let headers = HeaderMap::from_iter([(ACCEPT, accepted)]);
        match self.get(origin, origin.url.clone(), headers).await {
            Err(trouble) if trouble.is_absent && has_no_list => Ok(()),
            Err(trouble) if trouble.is_absent => Err(UpstreamError::no_list(&trouble)),
            answer => answer.map(drop),
        }
    }
}

/// The headers of a request for a page.
pub(super) fn accepting_gzip(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    headers
}

/// The next piece of a body.
pub(super) async fn chunk(response: &mut Response) -> Result<Option<bytes::Bytes>, UpstreamError> {
    let url = response.url().clone();
    response.chunk().await.map_err(|error| told(&url, error))
}

/// Whether a file arrives fast enough.
pub(super) struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: now, bytes: 0 }
    }

    /// Counts bytes that have arrived.
    ///
    /// # Errors
    /// If there were too few in the window that ends now.
    pub(super) fn arrived(&mut self, bytes: u64, now: Instant) -> Result<(), UpstreamError> {
        self.bytes += bytes;
        if now.duration_since(self.since) < PACE_WINDOW {
            return Ok(());
        }
        if self.bytes < PACE_BYTES_MIN {
            return Err(UpstreamError::new(format!(
                "upstream has sent {} bytes in {} seconds; at least {PACE_BYTES_MIN} were expected",
                self.bytes,
                PACE_WINDOW.as_secs()
            )));
        }
        *self = Pace::new(now);
        Ok(())
    }
}

/// A page or a list as it came.
pub(super) struct PageBody {
    host: String,
    bytes: ReceivedBody,
    is_gzip: bool,
}

enum ReceivedBody {
    InMemory(Vec<u8>),
    OnDisk(EntryWriter),
}

/// The whole body of a page, of at most this many bytes.
pub(super) async fn read_body(
    mut response: Response,
    bytes_max: usize,
    disk: &Arc<Disk>,
) -> Result<PageBody, UpstreamError> {
    let host = host_of(response.url());
    let encoding = response.headers().get(CONTENT_ENCODING).cloned();
    let mut is_gzip = match encoding.as_ref().map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(_) => {
            return Err(UpstreamError::new(format!(
                "{host}: the page has an encoding that was not asked for"
            )));
        }
    };
    let (mut body, mut on_disk, mut length) = (Vec::new(), None, 0);
    while let Some(piece) = chunk(&mut response).await? {
        // Some upstreams say so of everything.
        is_gzip &= length > 0 || piece.first().is_none_or(|first| *first == GZIP_START);
        length += piece.len();
        if length > bytes_max {
            return Err(too_large(&host, bytes_max));
        }
        body.extend_from_slice(&piece);
        if body.len() > SMALL_PAGE_BYTES_MAX {
            on_disk = Some(spooled(disk, on_disk, std::mem::take(&mut body)).await?);
        }
    }
    let bytes = match on_disk {
        None => ReceivedBody::InMemory(body),
        Some(writing) => ReceivedBody::OnDisk(spooled(disk, Some(writing), body).await?),
    };
    Ok(PageBody { host, bytes, is_gzip })
}

async fn spooled(
    disk: &Arc<Disk>,
    writing: Option<EntryWriter>,
    bytes: Vec<u8>,
) -> Result<EntryWriter, UpstreamError> {
    let disk = disk.clone();
    blocking(move || {
        let mut writing = writing.map_or_else(|| disk.begin(0), Ok)?;
        writing.append(&bytes)?;
        Ok(writing)
    })
    .await
}

fn too_large(host: &str, bytes_max: usize) -> UpstreamError {
    UpstreamError::new(format!("{host}: the page has more than {bytes_max} bytes"))
}

/// Reads at most so many bytes of a page, and notes why reading failed.
struct BoundedReader<'page> {
    source: &'page mut dyn Read,
    left: usize,
    failure: Option<Failure>,
}

enum Failure {
    TooLarge,
    Damaged(io::Error),
}

impl Read for BoundedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let failure = match self.source.read(buffer) {
            Ok(bytes) if bytes <= self.left => {
                self.left -= bytes;
                return Ok(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Ok(_) => Failure::TooLarge,
            Err(error) => Failure::Damaged(error),
        };
        self.failure = Some(failure);
        Err(io::Error::other("it cannot be read"))
    }
}

impl PageBody {
    /// Whether it is small even when inflated, which is found out by inflating it. Blocks.
    pub(super) fn is_small(&self) -> bool {
        let ReceivedBody::InMemory(bytes) = &self.bytes else { return false };
        let bytes_max = SMALL_PAGE_BYTES_MAX as u64;
        let mut inflated = MultiGzDecoder::new(bytes.as_slice()).take(bytes_max + 1);
        let mut length = || std::io::copy(&mut inflated, &mut std::io::sink());
        // A damaged one is refused later, when it is inflated.
        !self.is_gzip || length().is_ok_and(|length| length <= bytes_max)
    }

    /// What `parse` reads of the page, of which at most this many bytes are read, piece by piece. Blocks.
    ///
    /// # Errors
    /// If it has more, is damaged, or is not what `parse` expects.
    pub(super) fn parsed<T>(
        self,
        bytes_max: usize,
        parse: impl FnOnce(&mut dyn Read) -> Result<T, PageError>,
    ) -> Result<T, UpstreamError> {
        let PageBody { host, bytes, is_gzip } = self;
        let damaged =
            |error| UpstreamError::new(format!("{host}: the page cannot be inflated: {error}"));
        let (mut in_memory, mut on_disk);
        let source: &mut dyn Read = match &bytes {
            ReceivedBody::InMemory(bytes) => {
                in_memory = bytes.as_slice();
                &mut in_memory
            }
            ReceivedBody::OnDisk(writing) => {
                on_disk = writing.content().map_err(damaged)?;
                &mut on_disk
            }
        };
        let mut inflating;
        let source: &mut dyn Read = if is_gzip {
            inflating = MultiGzDecoder::new(source);
            &mut inflating
        } else {
            source
        };
        let mut bounded = BoundedReader { source, left: bytes_max, failure: None };
        let parsed = parse(&mut bounded);
        match (bounded.failure, parsed) {
            (Some(Failure::TooLarge), _) => Err(too_large(&host, bytes_max)),
            (Some(Failure::Damaged(error)), _) => Err(damaged(error)),
            (None, parsed) => parsed.map_err(|error| UpstreamError::new(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_with_the_host() {
        let origin = Origin::parse("https://me:s%40crit@index.example/simple").expect("a URL");
        assert_eq!(origin.url.as_str(), "https://index.example/simple/");
        let check = |url: &str, expected: bool| {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(origin.authorization_for(&url).is_some(), expected, "{url}");
        };
        check("https://index.example/files/x", true);
        check("https://index.example:443/files/x", true);
        check("http://index.example/files/x", false);
        check("https://index.example:8443/files/x", false);
        check("https://files.example/x", false);
        let value = origin.authorization.expect("credentials");
        assert_eq!(
            value.to_str().expect("text"),
            format!("Basic {}", STANDARD.encode("me:s@crit"))
        );
        assert!(!format!("{value:?}").contains("Basic"), "it is not shown");
    }

    #[test]
    fn a_trickle_is_given_up() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start);
        assert!(pace.arrived(1, at(29)).is_ok(), "the window is not over");
        assert!(pace.arrived(1, at(58)).is_err(), "a byte every 29 seconds");
        let mut pace = Pace::new(start);
        assert!(pace.arrived(PACE_BYTES_MIN, at(30)).is_ok());
        assert!(pace.arrived(PACE_BYTES_MIN - 1, at(59)).is_ok(), "another window");
        assert!(pace.arrived(0, at(60)).is_err());
    }

    #[test]
    fn what_inflates_to_much_is_not_small() {
        use std::io::Write as _;
        let page = |bytes: Vec<u8>, is_gzip| PageBody {
            host: "index.example".to_owned(),
            bytes: ReceivedBody::InMemory(bytes),
            is_gzip,
        };
        let gzip = |length: usize| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&vec![b' '; length]).expect("memory");
            out.finish().expect("memory")
        };
        assert!(page(vec![b' '; 10], false).is_small());
        assert!(page(gzip(SMALL_PAGE_BYTES_MAX), true).is_small());
        assert!(!page(gzip(SMALL_PAGE_BYTES_MAX + 1), true).is_small());
        let parsed = |bytes: Vec<u8>, is_gzip| {
            page(bytes, is_gzip).parsed(1000, |source| {
                let mut all = Vec::new();
                // What fails is reported, even if it was not noticed here.
                _ = source.read_to_end(&mut all);
                Ok(all.len())
            })
        };
        assert_eq!(parsed(gzip(1000), true).expect("a page"), 1000);
        assert_eq!(parsed(vec![b' '; 1000], false).expect("a page"), 1000);
        for (bytes, is_gzip) in [(gzip(1001), true), (vec![b' '; 1001], false)] {
            let refused = parsed(bytes, is_gzip).expect_err("a byte too many");
            assert_eq!(refused.to_string(), "index.example: the page has more than 1000 bytes");
        }
        let damaged = parsed(b"no gzip".to_vec(), true).expect_err("no gzip");
        assert_eq!(
            damaged.to_string(),
            "index.example: the page cannot be inflated: unexpected end of file"
        );
    }
}
