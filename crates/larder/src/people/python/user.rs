//! `/{user}` for people: the user, and the indexes that the reader may see.

use account::UserName;
use askama::Template;
use axum::response::Response;

use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::refused::Refused;

#[derive(Template)]
#[template(path = "user.html")]
struct UserPage<'a> {
    site: Site,
    name: &'a str,
    title: &'a str,
    description: &'a str,
    email: Option<&'a str>,
    created_at: Time,
    indexes: Vec<Index<'a>>,
}

/// A line of the list of indexes.
struct Index<'a> {
    name: &'a str,
    path: String,
    title: &'a str,
    /// A description in a few words.
    about: String,
}

/// `GET /{user}`, as a page.
pub(crate) async fn show_user(ask: &Ask, user: &str) -> Result<Response, Refused> {
    let principal = ask.principal().await?;
    let missing = || HttpError::not_found(format!("no user '{user}'"));
    let name: UserName = user.parse().map_err(|_| missing())?;
    let view = ask.view(&principal);
    let user = ask.stored.accounts.user(&name).filter(|user| view.knows(user));
    let user = user.ok_or_else(missing)?;
    let stages = ask.stored.index.stages_of(name.as_str()).filter(|stage| view.sees(stage));
    let indexes = stages.map(|stage| {
        let config = stage.config();
        let about = match config.is_mirror() {
            true => "mirror".to_owned(),
            false => {
                let bases = view.config(stage).bases().len();
                match bases {
                    0 => "index".to_owned(),
                    bases => format!("index with {}", display::count(bases, "base", "bases")),
                }
            }
        };
        Index {
            name: stage.name().as_str(),
            path: in_path(stage.name().as_str()),
            title: config.title.as_deref().unwrap_or_default(),
            about,
        }
    });
    let page = UserPage {
        site: Site::below(&ask.app, ask.root_url()),
        name: name.as_str(),
        title: user.title.as_deref().unwrap_or_default(),
        description: user.description.as_deref().unwrap_or_default(),
        email: user.email.as_deref().filter(|_| view.sees_private(user)),
        created_at: Time(user.created_at),
        indexes: indexes.collect(),
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}
