//! Writing articles: new texts, deletions, and undoing either.
//!
//! body -> blob, staged -> an operation of [`operations::articles`] -> visible -> acknowledged. If another write came first, the
//! writer gets the latest revision and, if both are texts, a proposal of both changes merged.

mod outcome;
mod received;

use std::borrow::Cow;
use std::sync::Arc;

use account::Principal;
use article::{ArticleName, ContentType, Revision, WriteError};
use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use operations::articles::{self, AnnounceText, Base, DeleteArticle, RestoreArticle, WriteArticle};
use operations::rights::check_article_writer;
use operations::{Done, Foreseen, Operation, Refusal, Rule, Sender, carry_out};
use resources::bodies::MemoryHolder;
use state::security;

use self::outcome::overtaken;
use self::received::{ReceivedContent, check_framing, receive};
use super::{reader, text_of};
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::front::{auth, body, negotiation};
use crate::published::contents::Content;

pub(crate) use self::outcome::{AcceptedWrite, FailedWrite, answered};
pub(crate) use self::received::{check_whole, unwritable};

/// A text that is to be stored.
pub(crate) struct NewText {
    pub(crate) name: ArticleName,
    pub(crate) base: Base,
    /// Its media type, where that is said; else it is that of the base, where there is one.
    pub(crate) content_type: Option<String>,
    pub(crate) comment: String,
    pub(crate) body: Body,
    /// Whose memory budget the body counts in; `None` if the body is in memory and counted already.
    pub(crate) holder: Option<MemoryHolder>,
}

/// The base in the path and the headers of a request.
pub(crate) fn base_of(headers: &HeaderMap, version: Option<Revision>) -> Base {
    let listed = |name| negotiation::listed(headers, name).map(Cow::into_owned);
    Base { version, if_match: listed(IF_MATCH), if_none_match: listed(IF_NONE_MATCH) }
}

/// PUT and POST: a new text; `version` is the one in the path, if any. `?restore=N` takes the text of that version instead of
/// the body.
pub(crate) async fn put(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
    body: Body,
) -> Result<Response, HttpError> {
    let writer = writer(app, head, &name).await?;
    let [comment, restored] = parameters(head.uri.query(), ["comment", "restore"])?;
    let restored: Option<Revision> = parsed("restore", restored, "a version")?;
    let base = base_of(&head.headers, version);
    let comment = comment.unwrap_or_default();
    let outcome = match restored {
        Some(from) => {
            auth::admit_to_disk(app, writer.proved()).await?;
            change(app, &writer, &name.clone(), &RestoreArticle { name, base, from, comment }).await
        }
        None => {
            check_framing(app, &head.headers)?;
            if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
                let detail = "there is no body: the text was expected, as `curl --data-binary @FILE` sends it; an empty \
                              one has `Content-Length: 0`";
                return Err(HttpError::bad_request(detail));
            }
            let said = text_of(&head.headers, CONTENT_TYPE);
            let said =
                said.filter(|said| !UNSAID.iter().any(|unsaid| said.eq_ignore_ascii_case(unsaid)));
            let content_type = said.map(Cow::into_owned);
            let holder = Some(body::holder(app, head, writer.proved()));
            let new = NewText { name, base, content_type, comment, body, holder };
            store(app, &writer, new).await
        }
    };
    answered(outcome)
}

/// DELETE: history stays, and a later write brings the article back.
pub(crate) async fn delete(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = writer(app, head, &name).await?;
    let [comment] = parameters(head.uri.query(), ["comment"])?;
    let base = base_of(&head.headers, version);
    let comment = comment.unwrap_or_default();
    answered(delete_for(app, &writer, DeleteArticle { name, base, comment }).await)
}

/// Deletes an article.
///
/// # Errors
/// As [`store()`].
pub(crate) async fn delete_for(
    app: &App,
    sender: &Sender,
    deleting: DeleteArticle,
) -> Result<AcceptedWrite, FailedWrite> {
    change(app, sender, &deleting.name.clone(), &deleting).await
}

/// Carries out a change that brings no text.
pub(crate) async fn change(
    app: &App,
    sender: &Sender,
    name: &ArticleName,
    wish: &impl Operation<Outcome = articles::WrittenRevision>,
) -> Result<AcceptedWrite, FailedWrite> {
    let outcome = carry_out(&mut app.keeper(), sender, wish).await;
    finished(app, sender, name, outcome, None).await
}

/// What came of a write, for its writer.
async fn finished(
    app: &App,
    sender: &Sender,
    name: &ArticleName,
    outcome: Result<Done<articles::WrittenRevision>, Refusal>,
    received: Option<&ReceivedContent>,
) -> Result<AcceptedWrite, FailedWrite> {
    match outcome {
        Ok(done) => outcome::written(app, sender.proved(), name, &done),
        Err(Refusal::Rule(Rule::Article(error))) => {
            let basis = app.basis(sender.clone()).map_err(HttpError::from)?;
            let may_read = reader::may_read(app, basis.principal(), name);
            Err(overtaken(app, &basis.stored, error, received, may_read).await)
        }
        Err(refusal) => Err(HttpError::from(refusal).into()),
    }
}

/// Whether a text may still be sent although this state refuses it: the answer then shows the conflict.
fn shows_conflict(error: &WriteError, may_read: bool) -> bool {
    match error {
        WriteError::Precondition(stale) => may_read && stale.base != Revision::NONE,
        error => error.stale().is_some(),
    }
}

/// Stores a text.
///
/// # Errors
/// What refuses or prevents it. 401 and 403 also for who lost the right while the body came.
pub(crate) async fn store(
    app: &Arc<App>,
    sender: &Sender,
    new: NewText,
) -> Result<AcceptedWrite, FailedWrite> {
    let NewText { name, base, content_type, comment, body, holder } = new;
    auth::admit_to_disk(app, sender.proved()).await?;
    // What can be refused without the content is refused before the body arrives.
    let (name_of, base_of, why) = (name.clone(), base.clone(), comment.clone());
    let announcing = AnnounceText { name: name_of, base: base_of, comment: why };
    let may_read = reader::may_read(app, sender.proved(), &name);
    let base_type = match carry_out(&mut app.keeper(), sender, &announcing).await {
        Ok(done) => done.outcome.base_type,
        Err(Refusal::Rule(Rule::Article(error))) if shows_conflict(&error, may_read) => {
            let stored = app.stored()?;
            let base = error.stale().map(|stale| stale.base).unwrap_or_default();
            let facts = stored.articles.revision(&name, base).and_then(|facts| facts.content());
            facts.map(|content| content.content_type.clone())
        }
        Err(Refusal::Rule(Rule::Article(error))) => {
            let stored = app.stored()?;
            return Err(overtaken(app, &stored, error, None, may_read).await);
        }
        Err(refusal) => return Err(HttpError::from(refusal).into()),
    };
    // The media type: the one of the request, else the one of the base, else the one of the name's extension.
    let known = content_type.as_deref().or(base_type.as_ref().map(ContentType::as_str));
    let guessed = article::of_name(&name).filter(|_| known.is_none());
    let mut received = receive(app, holder, known, guessed.as_ref(), body).await?;
    let content = received.facts.clone();
    let writing = WriteArticle { name: name.clone(), base, content, comment };
    let mut keeper = app.keeper();
    let outcome = match carry_out(&mut keeper, sender, &Foreseen(&writing)).await {
        Ok(_) => {
            if let Some(staged) = received.staged.take() {
                staged.persist().await.map_err(unwritable)?;
            }
            carry_out(&mut keeper, sender, &writing).await
        }
        Err(refusal) => Err(refusal),
    };
    if let Ok(done) = &outcome {
        keep_hot(app, done.outcome.replaced, &received);
    }
    finished(app, sender, &name, outcome, Some(&received)).await
}

/// Keeps the new text in memory if the one before it is there: the next reads want it.
fn keep_hot(app: &Arc<App>, replaced: Option<record::Digest>, received: &ReceivedContent) {
    let is_hot = replaced.is_some_and(|digest| app.articles.contents.at_hand(&digest).is_some());
    let text = received.bytes.clone().filter(|text| app.articles.contents.keeps(text.len() as u64));
    if let Some(text) = text.filter(|_| is_hot) {
        let (app, digest) = (app.clone(), received.facts.digest);
        tokio::task::spawn_blocking(move || {
            app.articles.contents.insert(digest, Content::new(text))
        });
    }
}

/// The sender of the request, if they may write the article.
///
/// # Errors
/// 401 and 403.
pub(crate) async fn writer(
    app: &App,
    head: &Parts,
    name: &ArticleName,
) -> Result<Sender, HttpError> {
    let sender = auth::sender(auth::principal(app, &head.headers).await?, head);
    admit(app, &sender, name)?;
    Ok(sender)
}

/// Admits senders who may write the article.
///
/// # Errors
/// 401 and 403.
pub(crate) fn admit(app: &App, sender: &Sender, name: &ArticleName) -> Result<(), HttpError> {
    Ok(check_article_writer(&app.basis(sender.clone())?, name)?)
}

/// Admits users whom a page shows a form to.
///
/// # Errors
/// 401 and 403.
pub(crate) fn admit_user(
    app: &App,
    principal: &Principal,
    name: &ArticleName,
) -> Result<(), HttpError> {
    let (proved, address) = (principal.clone(), security::client());
    admit(app, &Sender::Client { proved, address, path: String::new() }, name)
}

pub(crate) fn author(writer: &Principal) -> String {
    writer.user_name().map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

/// The media types that clients send by default: curl, and those that are generated from `/openapi.json`.
const UNSAID: [&str; 2] = ["application/x-www-form-urlencoded", "application/octet-stream"];
