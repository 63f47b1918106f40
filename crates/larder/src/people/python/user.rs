//! `/{user}` for people: the user, and the indexes that the reader may see.

use account::UserName;
use askama::Template;
use axum::response::Response;

use super::indexes::IndexLine;
use crate::front::display::Time;
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;

#[derive(Template)]
#[template(path = "user.html")]
struct UserPage<'a> {
    site: Site,
    name: &'a str,
    title: &'a str,
    description: &'a str,
    email: Option<&'a str>,
    created_at: Time,
    indexes: Vec<IndexLine>,
}

/// `GET /{user}`, as a page.
pub(crate) async fn show_user(ask: &Ask, user: &str) -> Result<Response, ApiError> {
    let principal = ask.principal().await?;
    let missing = || HttpError::not_found(format!("no user '{user}'"));
    let name: UserName = user.parse().map_err(|_| missing())?;
    let view = ask.view(&principal);
    let user = ask.stored.accounts.user(&name).filter(|user| view.knows(user));
    let user = user.ok_or_else(missing)?;
    let stages = ask.stored.index.stages_of(name.as_str()).filter(|stage| view.sees(stage));
    let page = UserPage {
        site: ask.site(),
        name: name.as_str(),
        title: user.title.as_deref().unwrap_or_default(),
        description: user.description.as_deref().unwrap_or_default(),
        email: user.email.as_deref().filter(|_| view.sees_private(user)),
        created_at: Time(user.created_at),
        indexes: stages.map(|stage| IndexLine::of(stage, view)).collect(),
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}
