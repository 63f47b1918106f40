//! Articles for callers that are not HTTP requests themselves: the actions.
//!
//! Rights, refusals and texts are those of the HTTP requests. Callers pass the state that they read, because all calls of a
//! request share one.

use std::sync::Arc;

use account::{Object, Principal};
use article::render::{self, Content};
use article::{Article, ArticleName, Revision};
use axum::body::Body;
use bytes::Bytes;
use operations::Sender;
use operations::articles::{Base, RenameArticle};
use record::Serial;
use serde_json::json;
use state::stored::Stored;

use super::search::HITS;
use super::write::{self, AcceptedWrite, FailedWrite, NewText};
use super::{reader, redirect, rename, search};
use crate::app::App;
use crate::front::auth::Claim;
use crate::front::error::HttpError;

/// While longer contents become JSON, other requests of the thread move to another one.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// A new revision, as an action describes it.
pub(crate) struct NewRevision {
    pub(crate) name: String,
    pub(crate) base: u32,
    pub(crate) body: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) comment: Option<String>,
}

/// The name, if the sender may read the article.
async fn reader(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    name: &str,
) -> Result<(ArticleName, Principal), HttpError> {
    let checked = ArticleName::parse(name);
    // The right to read is checked first: senders without it learn nothing of the name.
    let object = checked.as_ref().map_or(Object::Articles(name), |it| Object::Article(it.as_str()));
    let principal = reader::reader(app, stored, claim, object).await?;
    Ok((checked.map_err(HttpError::bad_request)?, principal))
}

/// Refuses a name whose article was renamed: an action's result cannot redirect.
fn check_name(app: &App, article: &Article, principal: &Principal) -> Result<(), HttpError> {
    let name = &article.name;
    let Some(to) = article.redirect() else { return Ok(()) };
    Err(match reader::may_read(app, principal, to) {
        true => HttpError::gone(format!("`{name}` was renamed to `{to}`")),
        false => redirect::hidden(name),
    })
}

/// `{"version":4}`, with `"deleted":true` where the article is, and `redirect_to` where it has another name.
///
/// # Errors
/// As reading it has.
pub(crate) async fn latest_version(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    name: &str,
) -> Result<Bytes, HttpError> {
    let (name, principal) = reader(app, stored, claim, name).await?;
    let article =
        stored.articles.article(&name).ok_or_else(|| HttpError::unknown_article(&name))?;
    let mut answer = json!({"version": article.highest().0});
    if article.is_deleted() {
        answer["deleted"] = true.into();
    }
    if let Some(to) = article.redirect().filter(|to| reader::may_read(app, &principal, to)) {
        answer["redirect_to"] = to.as_str().into();
    }
    Ok(answer.to_string().into())
}

/// A revision's facts with its content: `text`, or `base64` where it is not UTF-8.
///
/// # Errors
/// As reading it has; 413 for a content of more than `bytes_max`.
pub(crate) async fn revision(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    (name, version): (&str, Option<u32>),
    bytes_max: usize,
) -> Result<Bytes, HttpError> {
    let (name, principal) = reader(app, stored, claim, name).await?;
    if let Some(article) = stored.articles.article(&name) {
        check_name(app, article, &principal)?;
    }
    let names = |other: &ArticleName| reader::may_read(app, &principal, other);
    let facts = reader::revision(stored, &name, version.map(Revision))?;
    let content = reader::content_of(&name, facts)?;
    if content.size_bytes > bytes_max as u64 {
        let detail = format!(
            "`{name}` has {} bytes, more than the {bytes_max} that an action answers: `/article/{name}` has them",
            content.size_bytes
        );
        return Err(HttpError::too_large(detail));
    }
    let bytes = reader::bytes(app, content).await?;
    let rendered = || {
        use base64::Engine as _;
        match std::str::from_utf8(&bytes) {
            Ok(text) => render::read_revision(&name, facts, &names, Content::Text(text)),
            Err(_) => {
                let encoded = base64::prelude::BASE64_STANDARD.encode(&bytes);
                render::read_revision(&name, facts, &names, Content::Base64(&encoded))
            }
        }
    };
    Ok(match bytes.len() <= INLINE_BYTES_MAX {
        true => rendered(),
        false => tokio::task::block_in_place(rendered),
    })
}

/// Some of an article's revisions, as `/article/{name}/history` shows them.
///
/// # Errors
/// As reading it has.
pub(crate) async fn history(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    name: &str,
    (before, limit): (Option<u32>, Option<u32>),
) -> Result<Bytes, HttpError> {
    let (name, principal) = reader(app, stored, claim, name).await?;
    let limit = limit.map_or(reader::PAGE.0, |limit| limit as usize);
    if !(1..=reader::PAGE.1).contains(&limit) {
        return Err(HttpError::bad_request(format!(
            "`limit` is {limit}, expected 1 to {}",
            reader::PAGE.1
        )));
    }
    let article =
        stored.articles.article(&name).ok_or_else(|| HttpError::unknown_article(&name))?;
    check_name(app, article, &principal)?;
    let versions = stored.articles.history(&name, before.map(Revision), limit);
    let names = |other: &ArticleName| reader::may_read(app, &principal, other);
    Ok(render::history(article, &versions, &names))
}

/// Articles by their words, as `/articles?text=` shows them.
///
/// # Errors
/// As reading has; 503 if too much is being computed.
pub(crate) async fn search(
    app: &App,
    stored: &Stored,
    claim: &Claim,
    text: &str,
    (prefix, limit): (Option<String>, Option<u32>),
) -> Result<Bytes, HttpError> {
    let prefix = prefix.unwrap_or_default();
    let principal = reader::reader(app, stored, claim, Object::Articles(&prefix)).await?;
    let limit = limit.map_or(HITS.0, |limit| limit as usize);
    if !(1..=HITS.1).contains(&limit) {
        return Err(HttpError::bad_request(format!(
            "`limit` is {limit}, expected 1 to {}",
            HITS.1
        )));
    }
    let state = (&stored.articles, stored.serial);
    let hits = search::search(app, state, text, (0, limit), prefix).await?;
    let names = |other: &ArticleName| reader::may_read(app, &principal, other);
    Ok(search::rendered(&hits, &names))
}

/// Writes, as a POST to `/article/{name}/{version}` does; the answer is the new revision, and the serial that has it.
///
/// # Errors
/// As writing has, with the text of the refusal.
pub(crate) async fn put(
    app: &Arc<App>,
    sender: &Sender,
    new: NewRevision,
) -> Result<(Bytes, Serial), HttpError> {
    let name = ArticleName::parse(&new.name).map_err(HttpError::bad_request)?;
    write::admit(app, sender, &name)?;
    let new = NewText {
        name,
        base: Base::of(Revision(new.base)),
        content_type: new.content_type,
        comment: new.comment.unwrap_or_default(),
        body: Body::from(new.body),
        holder: None,
    };
    answered(write::store(app, sender, new).await)
}

/// Renames, as a POST to `/article/{name}/{version}?rename=` does; the answer is the new revision, and the serial that has
/// it.
///
/// # Errors
/// As renaming has, with the text of the refusal.
pub(crate) async fn rename(
    app: &App,
    sender: &Sender,
    (name, version): (&str, u32),
    to: &str,
    comment: Option<String>,
) -> Result<(Bytes, Serial), HttpError> {
    let name = ArticleName::parse(name).map_err(HttpError::bad_request)?;
    write::admit(app, sender, &name)?;
    let (base, to) =
        (Base::of(Revision(version)), ArticleName::parse(to).map_err(HttpError::bad_request)?);
    let renaming = RenameArticle { name, base, to, comment: comment.unwrap_or_default() };
    answered(rename::rename(app, sender, renaming).await)
}

fn answered(outcome: Result<AcceptedWrite, FailedWrite>) -> Result<(Bytes, Serial), HttpError> {
    match outcome {
        Ok(written) => Ok((written.rendered(), written.serial)),
        Err(FailedWrite::Refused(it)) => Err(it.to_error()),
        Err(FailedWrite::Failed(error)) => Err(error),
    }
}
