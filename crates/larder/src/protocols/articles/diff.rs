//! Two revisions of an article compared: which ones, their texts, and the difference.

use std::sync::Arc;

use article::{ArticleName, DifferenceLimits, Revision, RevisionFacts, Side, difference};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use reply::Reply;
use state::stored::Stored;

use super::comparison_turns::{Requester, computed};
use super::reader::{bytes, from_store, revision};
use crate::app::App;
use crate::front::error::HttpError;
use crate::front::parameters::{parameters, parsed};
use crate::front::request::Parts;
use crate::front::respond::{Conditions, respond};

/// `/article/{name}/diff?from=&to=`
pub(crate) async fn diff(
    app: &App,
    stored: &Stored,
    head: &Parts,
    name: &ArticleName,
) -> Result<Response, HttpError> {
    let [from, to] = parameters(head.uri.query(), ["from", "to"])?;
    let to: Option<Revision> = parsed("to", to, "a version")?;
    let from = parsed("from", from, "a version")?;
    let limits = DifferenceLimits {
        bytes_max: usize::try_from(2 * app.config.article.merge_bytes_max).unwrap_or(usize::MAX),
        ..DifferenceLimits::default()
    };
    let sides = Sides::judged(stored, name, from, to, limits.bytes_max as u64)?;
    let name = name.clone();
    let difference = computed(Requester::Reader, sides.load(app), move |(from, to)| {
        let sides = [&from, &to].map(|side| {
            let Textual { revision, bytes, is_textual } = side;
            Side { name: &name, revision: *revision, bytes, is_textual: *is_textual }
        });
        difference(sides[0], sides[1], &limits)
    });
    let difference = difference.await?;
    let difference = difference.map_err(HttpError::too_large)?;
    let reply = Reply::tagged("text/x-diff; charset=utf-8", Bytes::from(difference.text));
    let conditions = Conditions::of(&head.method, &head.headers);
    Ok(from_store(app, stored, respond(reply, StatusCode::OK, conditions).await))
}

/// The revision that `to` was made from; `NONE` if that was a redirect.
fn begun_from(stored: &Stored, name: &ArticleName, to: &RevisionFacts) -> Revision {
    let article = stored.articles.article(name);
    let first = article.and_then(|article| article.revisions().next());
    let is_earlier = first.is_some_and(|first| to.base < first.revision);
    let base = article.and_then(|article| article.revision(to.base));
    let is_redirect = base.is_some_and(|base| base.redirect().is_some());
    if is_earlier || is_redirect { Revision::NONE } else { to.base }
}

/// A side of a comparison.
pub(crate) struct Textual {
    pub(crate) revision: Revision,
    /// Nothing, for a deletion and before the first revision.
    pub(crate) bytes: Bytes,
    pub(crate) is_textual: bool,
}

/// Both sides of a comparison, which are there and not too large; nothing is read yet.
pub(crate) struct Sides<'stored> {
    from: (Revision, Option<&'stored Arc<RevisionFacts>>),
    to: &'stored Arc<RevisionFacts>,
}

impl<'stored> Sides<'stored> {
    /// By default, `to` is the latest revision, and `from` the one that it was made from.
    ///
    /// # Errors
    /// 404, and 413 if they have more than `bytes_max` together.
    pub(crate) fn judged(
        stored: &'stored Stored,
        name: &ArticleName,
        from: Option<Revision>,
        to: Option<Revision>,
        bytes_max: u64,
    ) -> Result<Sides<'stored>, HttpError> {
        let to = revision(stored, name, to)?;
        let from = from.unwrap_or_else(|| begun_from(stored, name, to));
        let from_facts =
            if from == Revision::NONE { None } else { Some(revision(stored, name, Some(from))?) };
        let sizes =
            [Some(to), from_facts].into_iter().flatten().filter_map(|facts| facts.content());
        let together: u64 = sizes.map(|content| content.size_bytes).sum();
        if together > bytes_max {
            let detail = format!(
                "texts of {together} bytes together are too large to be compared: at most {bytes_max}"
            );
            return Err(HttpError::too_large(detail));
        }
        Ok(Sides { from: (from, from_facts), to })
    }

    /// The texts.
    pub(crate) async fn load(self, app: &App) -> Result<(Textual, Textual), HttpError> {
        let (from, from_facts) = self.from;
        let to = self.to;
        Ok((side(app, from, from_facts).await?, side(app, to.revision, Some(to)).await?))
    }
}

async fn side(
    app: &App,
    revision: Revision,
    facts: Option<&Arc<RevisionFacts>>,
) -> Result<Textual, HttpError> {
    let Some(content) = facts.and_then(|facts| facts.content()) else {
        return Ok(Textual { revision, bytes: Bytes::new(), is_textual: true });
    };
    let bytes = bytes(app, content).await?;
    Ok(Textual { revision, bytes, is_textual: content.content_type.is_textual() })
}
