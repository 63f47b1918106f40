//! Pushes to another server's index, by the upload API that all indexes have.
//!
//! stored metadata -> form -> registration (if requested), files, documentation, one after the other. The push ends if the
//! registration is refused, or if the server does not answer; after a refused file the others are still sent, since they may be
//! missing there. Bytes are streamed from the store; redirects are not followed, so that the password goes only to the URL of
//! the order. Connections go where [`Egress`] admits them, and of an answer only status and reason are reported: a push cannot
//! read what only this machine can reach.

use std::time::Duration;
use std::{fmt, iter};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hyper::ext::ReasonPhrase;
use net::{Egress, NotPublic};
use operations::{Basis, ServedFile};
use pypi::change::push::{PushOrder, PushSource};
use pypi::{FileRole, Filename, ProjectName, ReleaseFile, Stage};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Response as Answer, Url};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use state::release_metadata;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::PushOutcome;
use crate::app::App;
use crate::front::error::HttpError;
use crate::protocols::python::error::ApiError;

/// Largest provenance that is read: attestations and their envelope.
const PROVENANCE_BYTES_MAX: u64 = 1 << 20;

/// Timeout to connect, and timeout without a byte in either direction. The whole upload has none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Characters of an answer's reason that are reported at most.
const REASON_CHARS_MAX: usize = 200;

/// The server that uploads go to.
pub(super) struct Target<'order> {
    egress: &'order Egress,
    client: Client,
    url: Url,
    username: &'order str,
    password: &'order str,
    stall_timeout: Duration,
}

/// What was sent to another server, and how that ended.
pub(crate) struct SentUpload {
    /// The status of the server's answer, or -1 without an answer.
    status: i32,
    /// What was sent, and the reason of a refusal; or why there is no status.
    words: Vec<String>,
}

impl SentUpload {
    /// Whether the server took it.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.status, 200 | 201)
    }
}

impl fmt::Display for SentUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.words.join(" "))
    }
}

/// `[status, word, …]`, as devpi's client reads it.
impl Serialize for SentUpload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words = self.words.iter().map(|word| Value::from(word.as_str()));
        serializer.collect_seq(iter::once(Value::from(self.status)).chain(words))
    }
}

/// How one upload ended.
struct UploadReply {
    status: u16,
    text: String,
}

impl UploadReply {
    fn is_success(&self) -> bool {
        matches!(self.status, 200 | 201)
    }

    /// The upload of `parts` that ended so; `exception` stands for them if there was no answer.
    fn of(self, parts: &[&str], exception: &str) -> SentUpload {
        match self.status {
            0 => SentUpload { status: -1, words: vec![exception.to_owned(), self.text] },
            status => SentUpload {
                status: status.into(),
                words: parts.iter().map(|part| (*part).to_owned()).collect(),
            },
        }
    }

    /// Whether files can follow after this answer to a registration. Indexes without registration answer 410.
    fn lets_files_follow(&self) -> bool {
        self.is_success() || self.status == 410
    }

    /// Whether there was an answer at all.
    fn is_answer(&self) -> bool {
        self.status != 0
    }
}

pub(super) async fn release(
    app: &App,
    basis: &Basis,
    release: &Release<'_>,
    target: &Target<'_>,
    register_project: bool,
) -> Result<PushOutcome, ApiError> {
    let mut log = Vec::new();
    let is_whole = release.push(app, basis, target, register_project, &mut log).await;
    Ok(PushOutcome::Elsewhere { is_whole, log })
}

/// The release to push.
pub(super) struct Release<'stage> {
    name: &'stage str,
    version: &'stage str,
    stage: &'stage Stage,
    project: &'stage ProjectName,
    files: Vec<&'stage ReleaseFile>,
    docs: Vec<&'stage ReleaseFile>,
    metadata: Map<String, Value>,
}

impl<'stage> Release<'stage> {
    /// Finds these files of the release, and its metadata.
    pub(super) async fn find(
        app: &App,
        source: &PushSource<'stage>,
        order: &'stage PushOrder,
        all: Vec<&'stage ReleaseFile>,
    ) -> Result<Release<'stage>, ApiError> {
        let (name, version, stage) = (order.name.as_str(), order.version.as_str(), source.stage);
        let of = |role| all.iter().copied().filter(|file| file.role() == role).collect();
        let (files, docs) = (of(FileRole::Release), of(FileRole::Docs));
        let known = source.release;
        let bytes = app.store.blobs.bytes(known.metadata, release_metadata::BYTES_MAX).await;
        let bytes = bytes.map_err(|error| {
            tracing::error!(%error, "a release's metadata cannot be read");
            HttpError::unavailable("the release's metadata cannot be read now", 5)
        })?;
        let metadata = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let metadata = metadata.unwrap_or_default();
        let project = source.project_name();
        Ok(Release { name, version, stage, project, files, docs, metadata })
    }

    /// Uploads one file after the other; `log` says how each went. True if all were accepted.
    async fn push(
        &self,
        app: &App,
        basis: &Basis,
        target: &Target<'_>,
        register: bool,
        log: &mut Vec<SentUpload>,
    ) -> bool {
        if register {
            let form = self.form("submit");
            let outcome = target.post(form, still()).await;
            let goes_on = outcome.lets_files_follow();
            let sent = ["register", self.name, self.version];
            log.push(outcome.of(&sent, "exception on register:"));
            if !goes_on {
                return false;
            }
        }
        let mut is_done = true;
        for file in &self.files {
            // Noted before its first byte leaves, however the upload ends, and also if the client leaves.
            let now = app.basis_on(basis.stored.clone(), basis.sender().clone());
            for entry in now.noting(|noter| {
                noter.given(self.stage, self.stage, self.project, ServedFile::Own(file))
            }) {
                app.python.audit.note(entry);
            }
            let outcome = match self.part(app, file, file.filename()).await {
                Ok((part, movement)) => {
                    let mut form = self.file_form(file).part("content", part);
                    if let Some(attestations) = attestations(app, file).await {
                        form = form.text("attestations", attestations);
                    }
                    target.post(form, movement).await
                }
                Err(text) => UploadReply { status: 0, text },
            };
            let (is_success, is_answer) = (outcome.is_success(), outcome.is_answer());
            let path = format!("{}/{}", self.stage.name(), file.path());
            let text = if is_success { String::new() } else { outcome.text.clone() };
            log.push(outcome.of(&["upload", &path, &text], "exception on release upload:"));
            is_done &= is_success;
            if !is_answer {
                return false;
            }
        }
        for docs in &self.docs {
            let filename = format!("{}.zip", self.name);
            let outcome = match self.part(app, docs, &filename).await {
                Ok((part, movement)) => {
                    let form = Form::new()
                        .text(":action", "doc_upload")
                        .text("name", self.name.to_owned())
                        .text("version", self.version.to_owned())
                        .part("content", part);
                    target.post(form, movement).await
                }
                Err(text) => UploadReply { status: 0, text },
            };
            is_done &= outcome.is_success();
            let sent = ["docfile", self.name];
            log.push(outcome.of(&sent, "exception on documentation upload:"));
        }
        is_done
    }

    /// The stored metadata as fields; a list becomes repeated fields, empty values are left out.
    fn form(&self, action: &str) -> Form {
        let mut form = Form::new().text(":action", action.to_owned()).text("protocol_version", "1");
        for (key, value) in &self.metadata {
            // The field's name in every other index.
            let key = if key == "provides_extras" { "provides_extra" } else { key };
            let values = match value {
                Value::String(text) => std::slice::from_ref(text).to_vec(),
                Value::Array(items) => {
                    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            };
            for text in values.into_iter().filter(|text| !text.is_empty()) {
                form = form.text(key.to_owned(), text);
            }
        }
        form
    }

    fn file_form(&self, file: &ReleaseFile) -> Form {
        let form = self.form("file_upload").text("sha256_digest", file.digest().to_string());
        match Filename::parse(file.filename()) {
            Ok(filename) => form
                .text("filetype", filename.filetype())
                .text("pyversion", filename.pyversion().to_owned()),
            Err(_) => form,
        }
    }

    /// The file's bytes, read as they are sent, and the movement of that.
    async fn part(
        &self,
        app: &App,
        file: &ReleaseFile,
        filename: &str,
    ) -> Result<(Part, Movement), String> {
        let blob = app.store.blobs.open_blob(*file.digest()).await.map_err(|error| {
            tracing::error!(%error, "a file cannot be read");
            "the file cannot be read from the store now".to_owned()
        })?;
        let blob = blob.ok_or_else(|| {
            tracing::error!(digest = %file.digest(), "a file is missing from the store");
            "the file is missing from the store".to_owned()
        })?;
        let (body, movement) = watched(blob.read());
        let part = Part::stream_with_length(body, blob.size_bytes());
        Ok((part.file_name(filename.to_owned()), movement))
    }
}

/// The attestations that a file was uploaded with, as an upload sends them.
async fn attestations(app: &App, file: &ReleaseFile) -> Option<String> {
    let digest = *file.provenance()?;
    let bytes = app.store.blobs.bytes(digest, PROVENANCE_BYTES_MAX).await;
    let bytes = bytes.inspect_err(|error| tracing::error!(%error, "a provenance cannot be read"));
    pypi::attestation::attestations_of(&bytes.ok()??)
}

/// Changes whenever a piece of a body is taken, and ends with the body.
type Movement = watch::Receiver<()>;

/// The movement of an upload whose form is sent at once.
fn still() -> Movement {
    watch::channel(()).1
}

fn watched<S, E>(pieces: S) -> (reqwest::Body, Movement)
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let (mover, movement) = watch::channel(());
    let body = reqwest::Body::wrap_stream(pieces.inspect(move |_| mover.send_replace(())));
    (body, movement)
}

/// Returns when no byte of the body was taken for `stall_timeout`, or, after the last byte, no answer came for as long.
async fn stalled(mut movement: Movement, stall_timeout: Duration) {
    while let Ok(moved) = timeout(stall_timeout, movement.changed()).await {
        if moved.is_err() {
            return sleep(stall_timeout).await;
        }
    }
}

impl<'order> Target<'order> {
    pub(super) fn new(
        egress: &'order Egress,
        url: &str,
        username: &'order str,
        password: &'order str,
    ) -> Result<Target<'order>, ApiError> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| {
            ApiError::bad_request("posturl was expected to be an http or https URL")
        })?;
        let client = net::build_client(|| egress.client().connect_timeout(CONNECT_TIMEOUT));
        let client = client.map_err(|error| {
            tracing::error!(%error, "no client for pushes can be made");
            HttpError::unavailable("nothing can be sent to other servers now", 5)
        })?;
        Ok(Target { egress, client, url, username, password, stall_timeout: STALL_TIMEOUT })
    }

    async fn post(&self, form: Form, movement: Movement) -> UploadReply {
        // Checked at each upload, because each may open a new connection.
        if let Err(refused) = self.egress.check(&self.url) {
            return UploadReply { status: 0, text: refused.to_string() };
        }
        let request = self.client.post(self.url.clone()).multipart(form);
        let request = match self.username.is_empty() {
            true => request,
            false => request.basic_auth(self.username, Some(self.password)),
        };
        // The client's own timeout for reads would count the time that a long body takes.
        let sent = tokio::select! {
            sent = request.send() => sent.map_err(|error| cause(&error)),
            () = stalled(movement, self.stall_timeout) => Err(LATE.to_owned()),
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(text) => return UploadReply { status: 0, text },
        };
        let status = answer.status();
        let text = match status.is_redirection() {
            true => "the server answered with a redirect, which is not followed with a password"
                .to_owned(),
            false => reason(&answer),
        };
        UploadReply { status: status.as_u16(), text }
    }
}

/// The reason phrase of an answer, bounded and in printable ASCII.
fn reason(answer: &Answer) -> String {
    let given = answer.extensions().get::<ReasonPhrase>().map(|given| given.as_bytes());
    let usual = answer.status().canonical_reason().unwrap_or_default().as_bytes();
    let printable = given.unwrap_or(usual).iter().copied().take(REASON_CHARS_MAX).map(char::from);
    printable.map(|char| if matches!(char, ' '..='~') { char } else { '?' }).collect()
}

const LATE: &str = "the server did not answer in time";

/// Why there was no answer, in this server's own words: a library's error may repeat text from strangers.
fn cause(error: &reqwest::Error) -> String {
    tracing::info!(error = %causes(error), "a push to a server elsewhere failed");
    if error.is_timeout() {
        return LATE.to_owned();
    }
    let beginning = || match error.is_connect() {
        true => "no connection to the server",
        false => "the upload failed",
    };
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<NotPublic>() {
            return refused.to_string();
        }
        if let Some(broken) = cause.downcast_ref::<std::io::Error>() {
            let inner = broken.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(rustls::Error::InvalidCertificate(_)) => {
                    return "the server's certificate is not valid here".to_owned();
                }
                Some(_) => return "no TLS connection to the server".to_owned(),
                None if broken.raw_os_error().is_some() => {
                    return format!("{}: {}", beginning(), broken.kind());
                }
                None => {}
            }
        }
        next = cause.source();
    }
    beginning().to_owned()
}

/// An error with its causes, without the URL, which may have a password in it.
fn causes(error: &reqwest::Error) -> String {
    let mut text = String::from("the request");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const STALL_TIMEOUT: Duration = Duration::from_secs(3);
    const PIECES: u64 = 10;

    /// Uploads pieces that come `interval` apart to a server that answers when all have come, or never.
    async fn check(interval: Duration, answers: bool, expected: (u16, &str)) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let serving = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            let (mut seen, mut buffer) = (0, [0; 4096]);
            while let Ok(count) = connection.read(&mut buffer).await
                && count > 0
            {
                seen += buffer[..count].iter().filter(|byte| **byte == b'#').count() as u64;
                if seen == PIECES && answers {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    connection.write_all(answer).await.expect("it listens");
                    return;
                }
            }
        });
        let egress = Egress::new(["127.0.0.1".parse().expect("a network")]);
        let mut target = match Target::new(&egress, &url, "", "") {
            Ok(target) => target,
            Err(_) => panic!("{url} is a target"),
        };
        target.stall_timeout = STALL_TIMEOUT;
        let pieces = stream::iter(0..PIECES).then(move |_| async move {
            sleep(interval).await;
            Ok::<_, std::convert::Infallible>(Bytes::from_static(b"#"))
        });
        let (body, movement) = watched(pieces);
        let form = Form::new().part("content", Part::stream_with_length(body, PIECES));
        let outcome = target.post(form, movement).await;
        assert_eq!((outcome.status, outcome.text.as_str()), expected, "{interval:?}");
        serving.abort();
    }

    #[tokio::test]
    async fn only_a_push_that_stands_still_is_given_up() {
        // The whole upload takes longer than the timeout, but no pause between bytes does.
        let interval = Duration::from_millis(400);
        tokio::join!(
            check(interval, true, (200, "OK")),
            check(interval, false, (0, LATE)),
            check(Duration::from_secs(30), true, (0, LATE)),
        );
    }
}
