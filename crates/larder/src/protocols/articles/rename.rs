//! Renaming articles by a request with `?rename=NAME`.

use std::sync::Arc;

use article::{ArticleName, Revision};
use axum::response::Response;
use operations::Sender;
use operations::articles::RenameArticle;

use super::write::{self, AcceptedWrite, FailedWrite};
use crate::app::App;
use crate::front::auth;
use crate::front::error::HttpError;
use crate::front::parameters::{parameter, parameters};
use crate::front::request::Parts;

/// Whether the query asks for another name.
pub(crate) fn is_asked(head: &Parts) -> bool {
    parameter(head, "rename").is_some()
}

/// PUT and POST with `?rename=NAME`; `version` is that in the path, where there is one.
pub(crate) async fn put(
    app: &Arc<App>,
    head: &Parts,
    name: ArticleName,
    version: Option<Revision>,
) -> Result<Response, HttpError> {
    let writer = write::writer(app, head, &name).await?;
    let [comment, to] = parameters(head.uri.query(), ["comment", "rename"])?;
    let to = ArticleName::parse(&to.unwrap_or_default());
    let to = to.map_err(HttpError::bad_request)?;
    let base = write::base_of(&head.headers, version);
    let comment = comment.unwrap_or_default();
    write::answered(rename(app, &writer, RenameArticle { name, base, to, comment }).await)
}

/// Renames an article.
///
/// # Errors
/// What refuses or prevents it. 401 and 403 also if the sender may not read or write under one of the names.
pub(crate) async fn rename(
    app: &App,
    sender: &Sender,
    renaming: RenameArticle,
) -> Result<AcceptedWrite, FailedWrite> {
    auth::admit_to_disk(app, sender.proved()).await?;
    write::change(app, sender, &renaming.name.clone(), &renaming).await
}
