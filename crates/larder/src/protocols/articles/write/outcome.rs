//! The outcome of a write: it is visible, or it is refused; if another write came first, with a proposal of both changes
//! merged.

use std::sync::Arc;

use account::Principal;
use article::{
    ArticleName, DifferenceError, DifferenceLimits, Kind, Merge, MergeSides, NotMergeable,
    RevisionFacts, Side, WriteError, merge, render,
};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderValue, StatusCode};
use operations::{Done, articles};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use record::Serial;
use reply::Encoding;
use state::stored::Stored;

use super::received::ReceivedContent;
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::serial;
use crate::protocols::articles::comparison_turns::{Requester, computed};
use crate::protocols::articles::reader;

/// ASCII that is escaped in a path.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'%')
    .add(b'{')
    .add(b'}');

/// A write that is kept and visible.
pub(crate) struct AcceptedWrite {
    pub(crate) name: ArticleName,
    pub(crate) facts: Arc<RevisionFacts>,
    pub(crate) serial: Serial,
    may_read: bool,
    shows_names: bool,
}

/// A write that is not.
pub(crate) enum FailedWrite {
    /// By the rules of articles.
    Refused(Box<RefusedWrite>),
    /// Otherwise.
    Failed(HttpError),
}

/// A write that the rules of articles forbid, and what its writer gets to know.
pub(crate) struct RefusedWrite {
    pub(crate) error: WriteError,
    /// Both changes in one text.
    pub(crate) merge: Option<Merge>,
    /// The state that it was checked against.
    serial: Serial,
    may_read: bool,
    shows_names: bool,
}

impl From<HttpError> for FailedWrite {
    fn from(error: HttpError) -> FailedWrite {
        FailedWrite::Failed(error)
    }
}

/// A write that is kept and visible. The sender of a renaming may read both names.
pub(super) fn written(
    app: &App,
    writer: &Principal,
    name: &ArticleName,
    done: &Done<articles::WrittenRevision>,
) -> Result<AcceptedWrite, FailedWrite> {
    let articles::WrittenRevision { name: now, revision, .. } = &done.outcome;
    let is_renamed = now != name;
    let (may_read, shows_names) = match is_renamed {
        true => (true, true),
        false => (reader::may_read(app, writer, name), app.articles.is_open),
    };
    let stored = app.stored()?;
    // The article may have been renamed in between. The answer names the revision by the name that was written to.
    let facts = stored.articles.revision_written_as(now, *revision).cloned();
    let lost = || HttpError::internal("the write is kept, but cannot be shown");
    let (name, facts, serial) = (now.clone(), facts.ok_or_else(lost)?, done.seen);
    Ok(AcceptedWrite { name, facts, serial, may_read, shows_names })
}

/// The answer to a write.
pub(crate) fn answered(outcome: Result<AcceptedWrite, FailedWrite>) -> Result<Response, HttpError> {
    match outcome {
        Ok(written) => Ok(written.into_response()),
        Err(FailedWrite::Refused(refused)) => Ok(refused.into_response()),
        Err(FailedWrite::Failed(error)) => Err(error),
    }
}

impl AcceptedWrite {
    /// The new revision, as its writer may see it.
    pub(crate) fn rendered(&self) -> Bytes {
        match self.may_read {
            true => render::revision(&self.name, &self.facts, &|_| self.shows_names),
            false => render::blind_revision(&self.name, &self.facts),
        }
    }
}

impl IntoResponse for AcceptedWrite {
    fn into_response(self) -> Response {
        let body = self.rendered();
        let AcceptedWrite { name, facts, serial, may_read, .. } = self;
        let status = if facts.is_deleted() { StatusCode::OK } else { StatusCode::CREATED };
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let path = utf8_percent_encode(name.as_str(), PATH);
        let location = format!("/article/{path}/{}", facts.revision);
        if let Ok(location) = HeaderValue::try_from(location) {
            headers.insert(LOCATION, location);
        }
        let is_restored = matches!(facts.kind, Kind::Restored { .. });
        if !facts.is_deleted()
            && (may_read || !is_restored)
            && let Ok(etag) = HeaderValue::try_from(facts.tag.header_value(Encoding::Identity))
        {
            headers.insert(ETAG, etag);
        }
        serial::insert(headers, serial);
        response
    }
}

/// Unless everybody may read all articles, answers to writes name no other name of the article; answers to reads do.
fn refused(
    app: &App,
    error: WriteError,
    merge: Option<Merge>,
    stored: &Stored,
    may_read: bool,
) -> FailedWrite {
    let (serial, shows_names) = (stored.serial, app.articles.is_open);
    FailedWrite::Refused(Box::new(RefusedWrite { error, merge, serial, may_read, shows_names }))
}

/// Refuses a write whose text is at hand: if the writer may read the article, the answer compares it with the latest text.
pub(super) async fn overtaken(
    app: &App,
    stored: &Stored,
    mut error: WriteError,
    received: Option<&ReceivedContent>,
    may_read: bool,
) -> FailedWrite {
    let Some(received) = received else { return refused(app, error, None, stored, may_read) };
    if let WriteError::Precondition(stale) = &mut error {
        stale.has_same_content = stale.latest.content() == Some(&received.facts);
    }
    let merge = if may_read { propose(app, stored, &error, received).await } else { None };
    refused(app, error, merge, stored, may_read)
}

impl RefusedWrite {
    /// The text of the refusal for this writer.
    pub(crate) fn detail(&self) -> String {
        if self.may_read { self.error.to_string() } else { self.error.blind() }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self.error {
            WriteError::Stale(_)
            | WriteError::Future { .. }
            | WriteError::AlreadyExists(_)
            | WriteError::Deleted(_)
            | WriteError::Renamed(_)
            | WriteError::NameTaken { .. }
            | WriteError::TooManyVersions { .. }
            | WriteError::Full { .. } => StatusCode::CONFLICT,
            WriteError::Precondition(_) => StatusCode::PRECONDITION_FAILED,
            WriteError::NotFound { .. } | WriteError::NothingToRestore { .. } => {
                StatusCode::NOT_FOUND
            }
            WriteError::BaseMissing { .. } => StatusCode::PRECONDITION_REQUIRED,
            WriteError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            WriteError::Text { .. } | WriteError::SameName { .. } => StatusCode::BAD_REQUEST,
            WriteError::Unreadable { .. } | WriteError::UnreadableAttachments { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// The refusal with what it says for programs. Writers who may not read learn only the version to start from.
    pub(crate) fn to_error(&self) -> HttpError {
        let RefusedWrite { error, merge, may_read, shows_names, .. } = self;
        let mut members = render::refusal(error, merge.as_ref(), &|_| *shows_names);
        if !may_read {
            members.retain(|name, _| !matches!(name.as_str(), "latest" | "same_content" | "merge"));
        }
        HttpError::refused(self.status(), self.detail()).with(members)
    }

    fn into_response(self) -> Response {
        let RefusedWrite { error, serial, may_read, .. } = &self;
        let mut response = self.to_error().into_response();
        let headers = response.headers_mut();
        if let Some(stale) = error.stale()
            && *may_read
            && !stale.latest.is_deleted()
            && let Ok(etag) =
                HeaderValue::try_from(stale.latest.tag.header_value(Encoding::Identity))
        {
            headers.insert(ETAG, etag);
        }
        serial::insert(headers, *serial);
        response
    }
}

/// Both changes in one text, for a writer who was overtaken.
async fn propose(
    app: &App,
    stored: &Stored,
    error: &WriteError,
    received: &ReceivedContent,
) -> Option<Merge> {
    let (stale, text) = (error.stale()?, received.bytes.clone()?);
    let base = stored.articles.revision(&stale.name, stale.base).cloned();
    let latest = stale.latest.clone();
    if latest.redirect().is_some() {
        return Some(Merge::NotMergeable(NotMergeable::Renamed));
    }
    let limits = DifferenceLimits::default();
    let bytes_max = app.config.article.merge_bytes_max;
    let sizes = [base.as_ref(), Some(&latest)].into_iter().flatten();
    let sizes = sizes.filter_map(|facts| Some(facts.content()?.size_bytes));
    if let Some(bytes) = sizes.max().filter(|&bytes| bytes > bytes_max) {
        let (bytes, bytes_max) = (bytes as usize, bytes_max as usize);
        let error = DifferenceError::Bytes { bytes, bytes_max };
        return Some(Merge::NotMergeable(NotMergeable::TooLarge(error)));
    }
    let name = stale.name.clone();
    let is_textual = received.facts.content_type.is_textual();
    // Its memory counts until the merge has ended, even if the client leaves.
    let held = received.held.clone();
    let load = async {
        let base_bytes = bytes_of(app, base.as_deref()).await?;
        let latest_bytes = bytes_of(app, Some(&latest)).await?;
        Ok::<_, HttpError>((base.clone(), base_bytes, latest.clone(), latest_bytes))
    };
    let merging =
        computed(Requester::Writer, load, move |(base, base_bytes, latest, latest_bytes)| {
            let _held = held;
            let base = base.as_ref().filter(|facts| !facts.is_deleted());
            let base = base.map(|facts| Side::of(&name, facts, &base_bytes));
            let revision = latest.revision;
            let latest = (!latest.is_deleted()).then(|| Side::of(&name, &latest, &latest_bytes));
            let refused = Side { name: &name, revision, bytes: &text, is_textual };
            merge(MergeSides { base, latest, refused }, &limits)
        });
    merging.await.ok()
}

/// The text of a revision; nothing for a deletion.
async fn bytes_of(app: &App, facts: Option<&RevisionFacts>) -> Result<Bytes, HttpError> {
    match facts.and_then(|facts| facts.content()) {
        Some(content) => reader::bytes(app, content).await,
        None => Ok(Bytes::new()),
    }
}
