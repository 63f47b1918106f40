//! [`Primary`]: the server that is followed, as a client sees it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use net::causes;
use record::{Digest, Serial};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};

use crate::frame::{Decoder, Frame, FrameError, Hello, MEDIA_TYPE, PartialCopy};

/// What a follower says of its copy of a part: see [`PartState`]. Without it, it does not know that there are such copies.
pub const X_LARDER_PART: HeaderName = HeaderName::from_static("x-larder-part");

/// The path of the records.
pub(crate) const RECORDS_PATH: &str = "/+follow/records";

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time until an answer begins, and without a byte of it. The server says more often that it is alive.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Bytes of a refusal that are shown.
const DETAIL_BYTES_MAX: usize = 2_000;

/// The path of a blob.
pub(crate) fn blob_path(digest: Digest) -> String {
    format!("/+follow/blobs/{digest}")
}

/// How the primary is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its URL, without a slash at the end.
    pub url: String,
    /// The file with the token. It is read for each connection, so that another token needs no restart.
    pub token_file: PathBuf,
}

/// The store that a server has a copy of.
#[derive(Clone, Debug, Default)]
pub struct PrimaryStore {
    /// Its name; empty if there is no copy.
    pub identity: String,
    /// How often a follower of it was made its primary, as far as the copy says.
    pub generation: u64,
    /// What the copy has, if that is not everything.
    pub part: Option<PartialCopy>,
}

/// The state that a copy of a part is at, for the header [`X_LARDER_PART`]: its serial, and the digest of what was readable then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartState {
    /// The serial.
    pub serial: Serial,
    /// The digest, as [`Whole::view`](crate::frame::Whole::view) named it.
    pub view: String,
}

impl PartState {
    /// Reads the value of the header: `None` for a copy that is no part, or is not there yet.
    ///
    /// # Errors
    /// The value has another form.
    pub fn parse(value: &str) -> Result<Option<PartState>, PartStateError> {
        if value == "none" {
            return Ok(None);
        }
        let (serial, view) = value.split_once(' ').ok_or(PartStateError)?;
        let serial = serial.parse().map_err(|_| PartStateError)?;
        Ok(Some(PartState { serial, view: view.to_owned() }))
    }
}

/// The value of [`X_LARDER_PART`] has another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`X-Larder-Part` was expected to be `none`, or a serial, a blank and a digest")]
pub struct PartStateError;

/// The server that is followed.
#[derive(Clone, Debug)]
pub struct Primary {
    settings: Settings,
    client: Client,
}

/// Why the primary is of no use now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrimaryError {
    /// It refused.
    #[error("{url} answered {status}: {detail}")]
    Refused {
        /// Its URL.
        url: String,
        /// The status of its answer.
        status: StatusCode,
        /// What it said.
        detail: String,
    },
    /// It cannot be reached, or the connection broke.
    #[error("{url}: {reason}")]
    Unreachable {
        /// Its URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// Its answer is none.
    #[error("{url}: {flaw}")]
    Flawed {
        /// Its URL.
        url: String,
        /// What is wrong with it.
        flaw: String,
    },
    /// There is no token to send.
    #[error("the token in `{path}` cannot be used: {flaw}")]
    Token {
        /// The path of its file.
        path: String,
        /// What is wrong with it.
        flaw: String,
    },
}

impl PrimaryError {
    /// Whether an administrator has to do something: trying again soon is of no use.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            PrimaryError::Refused { status, .. } => {
                status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS
            }
            PrimaryError::Token { .. } => true,
            PrimaryError::Unreachable { .. } | PrimaryError::Flawed { .. } => false,
        }
    }
}

impl Primary {
    /// The server at that URL. Nothing is asked yet.
    ///
    /// # Errors
    /// If this machine cannot connect to servers.
    pub fn new(settings: Settings) -> anyhow::Result<Primary> {
        let client = net::build_client(|| {
            Client::builder()
                .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(SILENCE_MAX)
                .redirect(Policy::none())
                .referer(false)
                // Records and blobs do not wait for each other.
                .http1_only()
                .tcp_nodelay(true)
        })?;
        Ok(Primary { settings, client })
    }

    /// The same server, asked over separate connections.
    ///
    /// # Errors
    /// If this machine cannot connect to servers.
    pub fn apart(&self) -> anyhow::Result<Primary> {
        Primary::new(self.settings.clone())
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.settings.url
    }

    /// The answer with the records after `after`. The primary learns what is `known` of its store.
    ///
    /// # Errors
    /// [`PrimaryError`].
    pub(crate) async fn records(
        &self,
        after: Serial,
        known: &PrimaryStore,
        held: Option<&PartState>,
    ) -> Result<(Hello, RecordStream), PrimaryError> {
        let mut path = format!("{RECORDS_PATH}?after={after}");
        let PrimaryStore { identity, generation, .. } = known;
        if !identity.is_empty() {
            let _ = write!(path, "&identity={identity}&generation={generation}");
        }
        let held = held.map(|held| format!("{} {}", held.serial, held.view));
        let held = held.as_deref().unwrap_or("none");
        let held = HeaderValue::try_from(held)
            .map_err(|_| self.flawed("its digest cannot be sent in a header"))?;
        let accept = HeaderValue::from_static(MEDIA_TYPE);
        let headers = HeaderMap::from_iter([(ACCEPT, accept), (X_LARDER_PART, held)]);
        let response = self.get(&path, headers).await?;
        let mut reading = RecordStream::of(&self.settings.url, response.bytes_stream().boxed());
        match reading.next().await? {
            Frame::Hello(hello) => Ok((hello, reading)),
            _ => Err(self.flawed("its answer does not begin with its name")),
        }
    }

    /// The bytes of a blob, and how many there are if it says so; `None` if it has none.
    ///
    /// # Errors
    /// [`PrimaryError`].
    pub(crate) async fn blob(&self, digest: Digest) -> Result<Option<Response>, PrimaryError> {
        let accept = HeaderValue::from_static("application/octet-stream");
        match self.get(&blob_path(digest), HeaderMap::from_iter([(ACCEPT, accept)])).await {
            Ok(response) => Ok(Some(response)),
            Err(PrimaryError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response, PrimaryError> {
        let response = self.ask(path, headers).await?;
        let url = &self.settings.url;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let text = tokio::time::timeout(SILENCE_MAX, start_of(response)).await.unwrap_or_default();
        Err(PrimaryError::Refused { url: url.clone(), status, detail: detail(&text) })
    }

    /// The primary's answer, with any status.
    ///
    /// # Errors
    /// The primary cannot be reached or does not answer in time, or the file of the token cannot be read.
    pub async fn ask(&self, path: &str, headers: HeaderMap) -> Result<Response, PrimaryError> {
        let url = &self.settings.url;
        let token = self.token().await?;
        let asking = self
            .client
            .get(format!("{url}{path}"))
            .headers(headers)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .send();
        match tokio::time::timeout(SILENCE_MAX, asking).await {
            Ok(answered) => answered.map_err(|error| unreachable(url, &error)),
            Err(_) => {
                let reason = format!("no answer within {} s", SILENCE_MAX.as_secs());
                Err(PrimaryError::Unreachable { url: url.clone(), reason })
            }
        }
    }

    async fn token(&self) -> Result<String, PrimaryError> {
        let path = self.settings.token_file.clone();
        let unusable = |flaw: String| PrimaryError::Token {
            path: self.settings.token_file.display().to_string(),
            flaw,
        };
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
        let text = match read {
            Ok(read) => read.map_err(|error| unusable(error.to_string()))?,
            Err(error) => return Err(unusable(error.to_string())),
        };
        let token = text.trim();
        match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(token.to_owned()),
            false => Err(unusable("one line without blanks was expected".to_owned())),
        }
    }

    pub(crate) fn flawed(&self, flaw: &str) -> PrimaryError {
        PrimaryError::Flawed { url: self.settings.url.clone(), flaw: flaw.to_owned() }
    }
}

/// The innermost cause says most.
pub(crate) fn unreachable(url: &str, error: &reqwest::Error) -> PrimaryError {
    let reason = causes(error).last().map_or_else(|| error.to_string(), ToString::to_string);
    PrimaryError::Unreachable { url: url.to_owned(), reason }
}

/// The first bytes of a refusal.
async fn start_of(response: Response) -> String {
    let mut bytes = response.bytes_stream();
    let mut start = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        start.extend_from_slice(&piece[..piece.len().min(DETAIL_BYTES_MAX - start.len())]);
        if start.len() == DETAIL_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&start).into_owned()
}

/// What a refusal says: the detail of a problem, else its first line.
fn detail(text: &str) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
    let line = detail.or_else(|| text.lines().next()).unwrap_or_default();
    let line: String = line.chars().filter(|char| !char.is_control()).take(300).collect();
    if line.is_empty() { "it did not say why".to_owned() } else { line }
}

/// An answer with records that is being read.
pub(crate) struct RecordStream {
    url: String,
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    decoder: Decoder,
}

impl RecordStream {
    pub(crate) fn of(url: &str, bytes: BoxStream<'static, reqwest::Result<Bytes>>) -> RecordStream {
        RecordStream { url: url.to_owned(), bytes, decoder: Decoder::default() }
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`PrimaryError`]; there are no more frames then.
    pub(crate) async fn next(&mut self) -> Result<Frame, PrimaryError> {
        loop {
            let frame = self.decoder.next_frame();
            let flawed = |error: FrameError| PrimaryError::Flawed {
                url: self.url.clone(),
                flaw: error.to_string(),
            };
            if let Some(frame) = frame.map_err(flawed)? {
                return Ok(frame);
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.decoder.push(&bytes),
                Some(Err(error)) => return Err(unreachable(&self.url, &error)),
                None => {
                    let reason = "the connection was closed".to_owned();
                    return Err(PrimaryError::Unreachable { url: self.url.clone(), reason });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_read_as_it_is_written() {
        let held = PartState { serial: Serial(7), view: "0a".to_owned() };
        assert_eq!(PartState::parse("7 0a"), Ok(Some(held)));
        assert_eq!(PartState::parse("none"), Ok(None));
        for bad in ["", "7", "x 0a", "-1 0a"] {
            assert_eq!(PartState::parse(bad), Err(PartStateError), "{bad}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_one_line() {
        let check = |text: &str, expected: &str| assert_eq!(detail(text), expected, "{text}");
        check(r#"{"title":"Forbidden","detail":"this token may not"}"#, "this token may not");
        check("no\nmore", "no");
        check("", "it did not say why");
        check("{\"detail\":1}", "{\"detail\":1}");
    }
}
