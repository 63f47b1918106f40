//! `/+rename/{article}`: another name for an article, in a browser.
//!
//! form -> the new name, with the version that was seen -> [`mod@rename`], as for programs -> the article at its new name; or
//! the form again, with what was sent and what is wrong.

use std::sync::Arc;

use account::{Principal, SessionText};
use article::{ArticleName, Revision};
use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use operations::articles::{Base, RenameArticle};

use super::{Breadcrumbs, admit_editor};
use crate::app::App;
use crate::front::auth;
use crate::front::display::in_path;
use crate::front::error::HttpError;
use crate::front::page::{self, Site};
use crate::front::request::Parts;
use crate::people::forms::{self, Fields, FormRefusal};
use crate::protocols::articles::rename;
use crate::protocols::articles::write::{self, FailedWrite};
use crate::routes::Route;

/// Size of the form: each byte of a name and of a comment takes three there at most.
const FORM_BYTES_MAX: usize = 64 << 10;

#[derive(Template)]
#[template(path = "rename.html")]
struct RenamePage<'a> {
    site: Site,
    place: Breadcrumbs,
    form: String,
    name: &'a str,
    path: String,
    /// The version that was seen.
    base: Revision,
    to: &'a str,
    comment: &'a str,
    problem: String,
}

/// The fields of the form.
struct Draft {
    base: Revision,
    to: String,
    comment: String,
}

impl Draft {
    fn of(fields: &Fields) -> Result<Draft, HttpError> {
        let base = fields.one("base")?.parse::<Revision>();
        Ok(Draft {
            base: base.map_err(HttpError::bad_request)?,
            to: fields.one("to")?.trim().to_owned(),
            comment: fields.maybe("comment")?.unwrap_or_default().trim().to_owned(),
        })
    }
}

/// A request about the name of an article.
struct RenameRequest<'a> {
    app: &'a Arc<App>,
    head: &'a Parts,
    name: &'a ArticleName,
}

/// `GET /+rename/{article}`
pub(crate) async fn show_rename(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let name = &route.article()?;
    let (session, principal) = forms::logged_in(app, head).await?;
    admit_editor(app, &principal, name)?;
    let stored = app.stored()?;
    let article = stored.articles.article(name).filter(|article| !article.is_deleted());
    let article = article.ok_or_else(|| HttpError::unknown_article(name))?;
    let draft = Draft { base: article.highest(), to: name.to_string(), comment: String::new() };
    let renaming = RenameRequest { app, head, name };
    renaming.page(Some(&session), &draft, String::new(), StatusCode::OK).await
}

/// `POST /+rename/{article}`
pub(crate) async fn rename(
    app: &Arc<App>,
    head: &Parts,
    route: &Route,
    body: Body,
) -> Result<Response, HttpError> {
    let name = &route.article()?;
    let renaming = RenameRequest { app, head, name };
    let (fields, sender) = forms::received(app, head, body, FORM_BYTES_MAX).await?;
    let draft = Draft::of(&fields)?;
    let (session, principal) = match sender {
        Ok(sender) => sender,
        Err(refusal) => return renaming.refuse(&draft, refusal).await,
    };
    let error = match renaming.carry_out(&principal, &draft).await {
        Ok(written) => {
            let path = format!("/article/{}", in_path(written.name.as_str()));
            return Ok(forms::carried_out(app, head, &path, &session, written.serial));
        }
        Err(FailedWrite::Refused(refused)) => {
            HttpError::refused(refused.status(), refused.detail())
        }
        Err(FailedWrite::Failed(error)) => error,
    };
    renaming.page(Some(&session), &draft, error.detail().to_owned(), error.status()).await
}

impl RenameRequest<'_> {
    async fn carry_out(
        &self,
        principal: &Principal,
        draft: &Draft,
    ) -> Result<write::AcceptedWrite, FailedWrite> {
        let to = ArticleName::parse(&draft.to);
        let to = to.map_err(HttpError::bad_request)?;
        let (name, base) = (self.name.clone(), Base::of(draft.base));
        let renaming = RenameArticle { name, base, to, comment: draft.comment.clone() };
        let sender = auth::sender(principal.clone(), self.head);
        rename::rename(self.app, &sender, renaming).await
    }

    /// The form again, because the session has ended, or the form belongs to another one.
    async fn refuse(&self, draft: &Draft, refusal: FormRefusal) -> Result<Response, HttpError> {
        let problem = refusal.problem("rename it here", "Look at it, and send it");
        let sender = forms::logged_in(self.app, self.head).await.ok();
        let session = sender.as_ref().map(|(session, _)| session);
        self.page(session, draft, problem, HttpError::from(refusal).status()).await
    }

    /// The form; nothing in it is of the article but its name, which was asked for.
    async fn page(
        &self,
        session: Option<&SessionText>,
        draft: &Draft,
        problem: String,
        status: StatusCode,
    ) -> Result<Response, HttpError> {
        let form = session.map(|session| forms::token(self.app, session)).transpose()?;
        let page = RenamePage {
            site: Site::of(self.app, self.head),
            place: Breadcrumbs::of(self.name.as_str()),
            form: form.unwrap_or_default(),
            name: self.name.as_str(),
            path: in_path(self.name.as_str()),
            base: draft.base,
            to: &draft.to,
            comment: &draft.comment,
            problem,
        };
        Ok(page::send_once(&page, self.head, status).await)
    }
}
