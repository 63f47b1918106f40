//! Renaming articles: the rights to both names, the blobs of all versions kept alive, and the commit.
//!
//! The sender must be able to read and write under both names: otherwise a new name could reveal what the old one hides.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use account::{Object, Principal};
use article::{ArticleName, Checked, Rename, Revision, WriteError};
use axum::response::Response;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::request::Parts;
use jiff::Timestamp;
use record::Digest;
use state::stored::Stored;

use super::reading;
use super::write::{self, Base, FailedWrite, Written};
use crate::app::App;
use crate::http::auth;
use crate::http::error::HttpError;
use crate::http::parameters::parameters;

/// Blobs that are touched at the same time.
const TOUCHED_AT_ONCE: usize = 8;

/// Whether the query asks for another name.
pub(super) fn is_asked(query: Option<&str>) -> bool {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).any(|(name, _)| name == "rename")
}

/// PUT and POST with `?rename=NAME`; `version` is that in the path, where there is one.
pub(super) async fn put(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, &head.headers, &name).await?;
    let [comment, to] = parameters(head.uri.query(), ["comment", "rename"])?;
    let to = ArticleName::parse(&to.unwrap_or_default());
    let to = to.map_err(|error| HttpError::bad_request(error.to_string()))?;
    let base = Base::of(&head.headers, version);
    let new = NewName { name, base, to, comment: comment.unwrap_or_default() };
    write::answered(rename(app, &writer, new).await)
}

/// Another name for an article.
pub(super) struct NewName {
    pub(super) name: ArticleName,
    pub(super) base: Base,
    pub(super) to: ArticleName,
    pub(super) comment: String,
}

/// Renames an article for `writer`.
///
/// # Errors
/// What refuses or prevents it. 401 and 403 also if the writer may not read or write under one of the names.
pub(super) async fn rename(
    app: &Arc<App>,
    writer: &Principal,
    new: NewName,
) -> Result<Written, FailedWrite> {
    auth::admit_to_disk(app, writer).await?;
    admit(app, writer, &new)?;
    let (author, at) = (write::author(writer), Timestamp::now());
    let check = |stored: &Stored| -> Result<Checked, WriteError> {
        let base = new.base.resolve(stored, &new.name)?;
        let (name, to) = (new.name.clone(), new.to.clone());
        let (author, comment) = (author.clone(), new.comment.clone());
        let rename = Rename { name, base, to, author, comment, at };
        rename.check(&stored.articles, &write::limits(app))
    };
    let refused = |error, stored: &Stored| write::refused(error, None, stored, (true, true));
    let is_refused = |stored: &Stored| check(stored).is_err_and(|error| error.is_about_state());
    let stored = write::current(app, is_refused).await?;
    let checked = check(&stored).map_err(|error| refused(error, &stored))?;
    let digests = checked.batch.writes.iter().flat_map(|write| write.blobs.iter().copied());
    touch(app, digests.collect()).await?;
    drop(stored);
    // Blobs written since then are young already; new revisions make the base stale.
    let patience = app.config.store.wait_for_serial;
    let deciding = app.live_store.decided(writer, patience, |basis| {
        admit(app, auth::still(basis)?, &new)?;
        let stored = basis.stored();
        let checked = check(stored).map_err(|error| refused(error, stored))?;
        Ok::<_, FailedWrite>((Some(checked.batch), checked.revision))
    });
    let (revision, serial) = deciding.await?;
    write::written(app, &new.to, revision, serial.unwrap_or_default(), (true, true))
}

/// Admits principals who may read and write under both names.
fn admit(app: &App, principal: &Principal, new: &NewName) -> Result<(), HttpError> {
    for name in [&new.name, &new.to] {
        write::admit(app, principal, name)?;
        reading::check_reader(app, principal, Object::Article(name.as_str()))?;
    }
    Ok(())
}

/// The blobs get new name-givers, so no sweep takes them in between. One that is missing already is missed by others.
async fn touch(app: &App, digests: BTreeSet<Digest>) -> Result<(), HttpError> {
    let touching = digests.into_iter().map(|digest| app.store.blobs.touch(digest));
    let touching = futures_util::stream::iter(touching).buffer_unordered(TOUCHED_AT_ONCE);
    touching.try_for_each(|_| ready(Ok(()))).await.map_err(write::unwritable)
}
