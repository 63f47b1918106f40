//! Writing articles: new texts, deletions, and taking either back.
//!
//! body -> blob, staged -> change, checked against the snapshot -> blob kept -> commit -> visible ->
//! acknowledged. A writer who was overtaken gets what the latest revision is, and where both are text,
//! a proposal of both changes merged.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use account::{Object, Principal, Scope};
use article::{
    Announced, ArticleName, Change, Content as Facts, ContentType, Delete, DifferenceError,
    DifferenceLimits, Inspector, Kind, Limits, Merge, MergeSides, NotMergeable, Put, Restore,
    Revision, RevisionFacts, Side, WriteError, merge, render, resolve_base,
};
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH,
    LOCATION,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use record::Serial;
use reply::Encoding;
use resources::bodies::{Held, Holder};
use state::stored::{Basis, Stored, WriteFailure};
use store::{BlobError, SpooledBlob};

use super::comparing::{Waiting, computed};
use super::{parameters, parsed, read, text_of};
use crate::app::App;
use crate::cache::contents::Content;
use crate::http::error::HttpError;
use crate::http::{auth, body, negotiation, serial};

/// What is escaped in a path, besides what is not ASCII.
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

/// Which version a write was made from, as its request says.
#[derive(Default)]
pub(super) struct Base {
    /// The version in the path.
    pub(super) version: Option<Revision>,
    /// The values of the headers of these names.
    pub(super) if_match: Option<String>,
    pub(super) if_none_match: Option<String>,
}

/// A text that is to be stored.
pub(super) struct NewText {
    pub(super) name: ArticleName,
    pub(super) base: Base,
    /// Its media type, where that is said; else it is that of the base, where there is one.
    pub(super) content_type: Option<String>,
    pub(super) comment: String,
    pub(super) body: Body,
    /// Whose memory the body takes; none: it is in memory already, and counted.
    pub(super) holder: Option<Holder>,
}

/// A write that is kept and visible.
pub(super) struct Written {
    pub(super) name: ArticleName,
    pub(super) facts: Arc<RevisionFacts>,
    pub(super) serial: Serial,
    may_read: bool,
    shows_names: bool,
}

/// A write that is not.
pub(super) enum FailedWrite {
    /// By the rules of articles.
    Refused(Box<Refused>),
    /// Otherwise.
    Failed(HttpError),
}

/// A write that the rules of articles forbid, and what its writer gets to know.
pub(super) struct Refused {
    pub(super) error: WriteError,
    /// Both changes in one text.
    pub(super) merge: Option<Merge>,
    /// The state that it was checked against.
    serial: Serial,
    may_read: bool,
    shows_names: bool,
}

/// What a writer may read: the article, and every other name that it has or had. In a wiki that is not open to everybody,
/// answers to writes name no other; those to reads do.
type Sight = (bool, bool);

impl From<HttpError> for FailedWrite {
    fn from(error: HttpError) -> FailedWrite {
        FailedWrite::Failed(error)
    }
}

impl From<WriteFailure> for FailedWrite {
    fn from(failure: WriteFailure) -> FailedWrite {
        FailedWrite::Failed(failure.into())
    }
}

impl Base {
    pub(super) fn of(headers: &HeaderMap, version: Option<Revision>) -> Base {
        let listed = |name| negotiation::listed(headers, name).map(Cow::into_owned);
        Base { version, if_match: listed(IF_MATCH), if_none_match: listed(IF_NONE_MATCH) }
    }

    pub(super) fn resolve(
        &self,
        stored: &Stored,
        name: &ArticleName,
    ) -> Result<Revision, WriteError> {
        let (if_match, if_none_match) = (self.if_match.as_deref(), self.if_none_match.as_deref());
        resolve_base(&stored.articles, name, self.version, if_match, if_none_match)
    }
}

/// A body that has arrived.
struct Received {
    /// Its blob, until that is kept.
    staged: Option<SpooledBlob>,
    facts: Facts,
    /// The bytes, where there are few enough to be merged.
    bytes: Option<Bytes>,
    /// The memory that they take.
    held: Option<Arc<Held>>,
}

/// PUT and POST: a new text; `version` is that in the path, where there is one. `?restore=N` takes the text of that
/// version instead of the body.
pub(super) async fn put(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = writer(app, &head.headers, &name).await?;
    let [comment, restored] = parameters(head.uri.query(), ["comment", "restore"])?;
    let restored: Option<Revision> = parsed("restore", restored, "a version")?;
    let base = Base::of(&head.headers, version);
    let comment = comment.unwrap_or_default();
    let outcome = match restored {
        Some(from) => restore(app, &writer, name, base, from, comment).await,
        None => {
            check_framing(app, &head.headers)?;
            if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
                let detail = "there is no body: the text was expected, as `curl --data-binary @FILE` sends it; an empty \
                              one has `Content-Length: 0`";
                return Err(bad(detail));
            }
            let said = text_of(&head.headers, CONTENT_TYPE);
            let said = said.filter(|said| !said.eq_ignore_ascii_case(UNSAID));
            let content_type = said.map(Cow::into_owned);
            let holder = Some(body::holder(app, head, &writer));
            let new = NewText { name, base, content_type, comment, body, holder };
            store(app, &writer, new).await
        }
    };
    answered(outcome)
}

/// DELETE: history stays, and a later write brings the article back.
pub(super) async fn delete(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = writer(app, &head.headers, &name).await?;
    let [comment] = parameters(head.uri.query(), ["comment"])?;
    let base = Base::of(&head.headers, version);
    answered(deleted(app, &writer, &name, base, &comment.unwrap_or_default()).await)
}

/// Deletes an article for `writer`, who saw version `base`.
///
/// # Errors
/// As [`store()`].
pub(super) async fn delete_for(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: Revision,
    comment: &str,
) -> Result<Written, FailedWrite> {
    let base = Base { version: Some(base), ..Base::default() };
    deleted(app, writer, name, base, comment).await
}

async fn deleted(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: Base,
    comment: &str,
) -> Result<Written, FailedWrite> {
    let (author, at) = (author(writer), Timestamp::now());
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.to_owned());
        Change::Delete(Delete { name, base, author, comment, at })
    };
    commit(app, writer, name, &base, change, None).await
}

async fn restore(
    app: &Arc<App>,
    writer: &Principal,
    name: ArticleName,
    base: Base,
    from: Revision,
    comment: String,
) -> Result<Written, FailedWrite> {
    auth::admit_to_disk(app, writer).await?;
    let stored = auth::stored(app)?;
    let may_read = read::may_read(app, writer, &name);
    if let Err(error) = base.resolve(&stored, &name) {
        return Err(refused(error, None, &stored, (may_read, read::is_open(app))));
    }
    // Its blob gets a new name-giver, so that no sweep takes it before.
    let content = stored.articles.revision(&name, from).and_then(|facts| facts.content());
    if let Some(content) = content
        && !app.store.blobs.touch(content.digest).await.map_err(unwritable)?
    {
        return Err(read::lost(app, content).into());
    }
    drop(stored);
    let (author, at) = (author(writer), Timestamp::now());
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.clone());
        Change::Restore(Restore { name, base, from: Some(from), author, comment, at })
    };
    commit(app, writer, &name, &base, change, None).await
}

/// Stores a text for `writer`.
///
/// # Errors
/// What refuses or prevents it. 401 and 403 also for who lost the right while the body came.
pub(super) async fn store(
    app: &Arc<App>,
    writer: &Principal,
    new: NewText,
) -> Result<Written, FailedWrite> {
    let NewText { name, base, content_type, comment, body, holder } = new;
    auth::admit_to_disk(app, writer).await?;
    let stored = auth::stored(app)?;
    let may_read = read::may_read(app, writer, &name);
    let sight = (may_read, read::is_open(app));
    let (revision, failed) = match base.resolve(&stored, &name) {
        Ok(revision) => (revision, None),
        // A client that named the revision it saw is shown the conflict: what is there now, and its own text.
        Err(error) => match error.stale().map(|stale| stale.base) {
            Some(revision) if may_read && revision != Revision::NONE => (revision, Some(error)),
            _ => return Err(refused(error, None, &stored, sight)),
        },
    };
    let (author, at) = (author(writer), Timestamp::now());
    // What is refused whatever its content is, need not arrive first.
    let announced = Announced { name: &name, base: revision, author: &author, comment: &comment };
    if let Err(error) = announced.check(&stored.articles, &limits(app))
        && error.stale().is_none()
    {
        return Err(refused(error, None, &stored, sight));
    }
    let base_type = stored.articles.revision(&name, revision).and_then(|facts| facts.content());
    let base_type = base_type.map(|content| content.content_type.clone());
    drop(stored);
    // What was said counts, then what the text was before, then what its name ends in.
    let known = content_type.as_deref().or(base_type.as_ref().map(ContentType::as_str));
    let guessed = article::of_name(&name).filter(|_| known.is_none());
    let received = receive(app, holder, known, guessed.as_ref(), body).await?;
    if let Some(error) = failed {
        let basis = app.live_store.basis(writer)?;
        let may_read = read::may_read(app, check_writer(app, &basis, &name)?, &name);
        return Err(overtaken(app, basis.stored(), error, Some(&received), may_read).await);
    }
    let content = received.facts.clone();
    let change = |base| {
        let (name, author, comment) = (name.clone(), author.clone(), comment.clone());
        Change::Put(Put { name, base, content: content.clone(), author, comment, at })
    };
    commit(app, writer, &name, &base, change, Some(received)).await
}

/// The sender of the request, if they may write the article.
///
/// # Errors
/// 401 and 403.
pub(super) async fn writer(
    app: &App,
    headers: &HeaderMap,
    name: &ArticleName,
) -> Result<Principal, HttpError> {
    serial::wait_for_seen(app, headers).await?;
    let principal = auth::principal(app, headers).await?;
    admit(app, &principal, name)?;
    Ok(principal)
}

/// Checks the writer's rights again, in the state that the write is decided on.
pub(super) fn check_writer<'basis>(
    app: &App,
    basis: &'basis Basis,
    name: &ArticleName,
) -> Result<&'basis Principal, HttpError> {
    let principal = auth::still(basis)?;
    admit(app, principal, name)?;
    Ok(principal)
}

/// Lets those pass who may write the article.
///
/// # Errors
/// 401 and 403.
pub(super) fn admit(app: &App, principal: &Principal, name: &ArticleName) -> Result<(), HttpError> {
    let writers = ("article.acl_write", &app.config.article.acl_write);
    let object = Object::Article(name.as_str());
    auth::admit(writers, principal, Scope::ArticleWrite, object, "write articles")
}

pub(super) fn author(writer: &Principal) -> String {
    writer.user_name().map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

pub(super) fn limits(app: &App) -> Limits {
    Limits { content_bytes_max: app.config.article.body_bytes_max, ..Limits::default() }
}

fn bad(error: impl std::fmt::Display) -> HttpError {
    HttpError::bad_request(error.to_string())
}

/// What of a body waits in memory for the spool.
const SPOOL_BYTES: usize = 256 << 10;

/// What clients send that were not told what they send.
const UNSAID: &str = "application/x-www-form-urlencoded";

/// 413, with the word for programs.
fn too_large(app: &App, size: impl std::fmt::Display) -> HttpError {
    let bytes_max = app.config.article.body_bytes_max;
    let detail =
        format!("an article of {size} bytes is too large: at most {bytes_max} are allowed");
    let code = [("code".to_owned(), "too_large".into())];
    HttpError::too_large(detail).with(code.into_iter().collect())
}

/// Refuses a body for what its headers say of it: nothing of it is read.
fn check_framing(app: &App, headers: &HeaderMap) -> Result<(), HttpError> {
    check_whole(headers)?;
    if let Some(announced) =
        body::announced(headers).filter(|&it| it > app.config.article.body_bytes_max)
    {
        return Err(too_large(app, announced));
    }
    Ok(())
}

/// Refuses a body that is only a part of the content (`Content-Range`), or that has an encoding.
pub(super) fn check_whole(headers: &HeaderMap) -> Result<(), HttpError> {
    let encoding = text_of(headers, CONTENT_ENCODING);
    if let Some(encoding) = encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
        let detail =
            format!("a body in the encoding `{encoding}` is not taken: expected it as it is");
        return Err(HttpError::unsupported(detail));
    }
    if headers.contains_key(CONTENT_RANGE) {
        return Err(bad(
            "part of a body cannot be stored: the whole was expected, without `Content-Range`",
        ));
    }
    Ok(())
}

/// Takes the body in, piece by piece: into a blob that is not kept yet. A media type that is not known is `guessed`,
/// unless that is of text and the body is not.
async fn receive(
    app: &App,
    holder: Option<Holder>,
    known: Option<&str>,
    guessed: Option<&ContentType>,
    body: Body,
) -> Result<Received, HttpError> {
    let bytes_max = app.config.article.body_bytes_max;
    if let Some(known) = known {
        ContentType::parse(known).map_err(bad)?;
    }
    let mut upload = app.store.blobs.begin(bytes_max);
    let mut inspector = Inspector::new();
    let merged_bytes_max =
        usize::try_from(app.config.article.merge_bytes_max).unwrap_or(usize::MAX);
    let mut text = Some(BytesMut::new());
    let mut held = holder.map(|holder| app.bodies.begin(holder)).transpose()?;
    let mut received_bytes = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|error| bad(format!("the body did not arrive whole: {error}")))?;
        inspector.update(&piece);
        received_bytes += piece.len();
        let spool_bytes = received_bytes.min(SPOOL_BYTES);
        // What grows is allocated anew with twice the room.
        let text_bytes = 2 * received_bytes;
        let has_room = |held: &mut Option<Held>, bytes| {
            held.as_mut().is_none_or(|held| held.hold(bytes).is_ok())
        };
        match &mut text {
            Some(kept)
                if received_bytes <= merged_bytes_max
                    && has_room(&mut held, spool_bytes + text_bytes) =>
            {
                kept.extend_from_slice(&piece)
            }
            // It is kept all the same, and is not merged.
            _ => {
                text = None;
                if let Some(held) = &mut held {
                    held.hold(spool_bytes)?;
                }
            }
        }
        upload.write(piece).await.map_err(|error| match error {
            BlobError::TooLarge { .. } => too_large(app, format_args!("more than {bytes_max}")),
            error => unwritable(error),
        })?;
    }
    let staged = upload.stage().await.map_err(unwritable)?;
    let is_text = inspector.is_text();
    let fits = |guessed: &&ContentType| is_text || !guessed.essence().starts_with("text/");
    let content_type = known.or(guessed.filter(fits).map(ContentType::as_str));
    let facts = inspector.finish(staged.digest, content_type).map_err(bad)?;
    let bytes = text.map(BytesMut::freeze);
    Ok(Received { staged: Some(staged), facts, bytes, held: held.map(Arc::new) })
}

pub(super) fn unwritable(error: BlobError) -> HttpError {
    tracing::error!(%error, "a content cannot be kept");
    HttpError::unavailable("the content cannot be kept now; nothing was written", 5)
}

/// Checks, commits, and checks again where another write came first. Whether `writer` may write, and what the request
/// said of its base, is looked at again, too: both are conditions of the moment of the commit.
async fn commit(
    app: &Arc<App>,
    writer: &Principal,
    name: &ArticleName,
    base: &Base,
    change: impl Fn(Revision) -> Change,
    mut received: Option<Received>,
) -> Result<Written, FailedWrite> {
    let staged = received.as_mut().and_then(|received| received.staged.take());
    // The first decision that holds keeps it.
    let staged = Mutex::new(staged);
    let (staged, received, change) = (&staged, received.as_ref(), &change);
    let patience = app.config.store.wait_for_serial;
    let deciding = app.live_store.decided_async(writer, patience, |basis| async move {
        let may_read = read::may_read(app, check_writer(app, &basis, name)?, name);
        let stored = basis.stored();
        let checked = base.resolve(stored, name);
        let checked = checked.and_then(|base| change(base).check(&stored.articles, &limits(app)));
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => {
                return Err(overtaken(app, stored, error, received, may_read).await);
            }
        };
        let latest = stored.articles.latest(name).and_then(|facts| facts.content());
        let is_hot = latest.is_some_and(|it| app.contents.at_hand(&it.digest).is_some());
        let staged = staged.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(staged) = staged {
            let digest = staged.digest;
            staged.persist().await.map_err(unwritable)?;
            let text = received.and_then(|received| received.bytes.clone());
            if let Some(text) = text.filter(|text| is_hot && app.contents.keeps(text.len() as u64))
            {
                // The next reads want the new text: keep it in memory.
                let app = app.clone();
                tokio::task::spawn_blocking(move || {
                    app.contents.insert(digest, Content::new(text))
                });
            }
        }
        Ok::<_, FailedWrite>((Some(checked.batch), (checked.revision, may_read)))
    });
    let ((revision, may_read), serial) = deciding.await?;
    let sight = (may_read, read::is_open(app));
    written(app, name, revision, serial.unwrap_or_default(), sight)
}

/// A write that is kept and visible.
pub(super) fn written(
    app: &App,
    name: &ArticleName,
    revision: Revision,
    serial: Serial,
    (may_read, shows_names): Sight,
) -> Result<Written, FailedWrite> {
    let stored = auth::stored(app)?;
    // The article may have got another name in between. Its writer is told of the one that the write was for.
    let facts = stored.articles.revision_written_as(name, revision).cloned();
    let lost = || HttpError::internal("the write is kept, but cannot be shown");
    let (name, facts) = (name.clone(), facts.ok_or_else(lost)?);
    Ok(Written { name, facts, serial, may_read, shows_names })
}

/// The answer to a write.
pub(super) fn answered(outcome: Result<Written, FailedWrite>) -> Result<Response, HttpError> {
    match outcome {
        Ok(written) => Ok(written.into_response()),
        Err(FailedWrite::Refused(refused)) => Ok(refused.into_response()),
        Err(FailedWrite::Failed(error)) => Err(error),
    }
}

impl Written {
    /// The new revision, as its writer may see it.
    pub(super) fn rendered(&self) -> Bytes {
        match self.may_read {
            true => render::revision(&self.name, &self.facts, &|_| self.shows_names),
            false => render::blind_revision(&self.name, &self.facts),
        }
    }
}

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        let body = self.rendered();
        let Written { name, facts, serial, may_read, .. } = self;
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

pub(super) fn refused(
    error: WriteError,
    merge: Option<Merge>,
    stored: &Stored,
    (may_read, shows_names): Sight,
) -> FailedWrite {
    let serial = stored.serial;
    FailedWrite::Refused(Box::new(Refused { error, merge, serial, may_read, shows_names }))
}

/// A write that is refused with its text at hand: it is compared with what came first, for who may read that.
async fn overtaken(
    app: &App,
    stored: &Stored,
    mut error: WriteError,
    received: Option<&Received>,
    may_read: bool,
) -> FailedWrite {
    let sight = (may_read, read::is_open(app));
    let Some(received) = received else { return refused(error, None, stored, sight) };
    if let WriteError::Precondition(stale) = &mut error {
        stale.has_same_content = stale.latest.content() == Some(&received.facts);
    }
    let merge = if may_read { propose(app, stored, &error, received).await } else { None };
    refused(error, merge, stored, sight)
}

impl Refused {
    /// What it says to this writer.
    pub(super) fn detail(&self) -> String {
        if self.may_read { self.error.to_string() } else { self.error.blind() }
    }

    pub(super) fn status(&self) -> StatusCode {
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

    /// Who may not read gets to know the version to start from, no more.
    fn into_response(self) -> Response {
        let Refused { error, merge, serial, may_read, shows_names } = &self;
        let mut members = render::refusal(error, merge.as_ref(), &|_| *shows_names);
        if !may_read {
            members.retain(|name, _| !matches!(name.as_str(), "latest" | "same_content" | "merge"));
        }
        let mut response =
            HttpError::refused(self.status(), self.detail()).with(members).into_response();
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
    received: &Received,
) -> Option<Merge> {
    let (stale, text) = (error.stale()?, received.bytes.clone()?);
    let base = stored.articles.revision(&stale.name, stale.base).cloned();
    let latest = stale.latest.clone();
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
        computed(Waiting::Writer, load, move |(base, base_bytes, latest, latest_bytes)| {
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
        Some(content) => read::bytes(app, content).await,
        None => Ok(Bytes::new()),
    }
}
