//! The Python index for people, where programs get JSON: users, indexes, projects and versions.
//!
//! request -> what its sender may read of the published state -> a template -> a page. A page shows nothing that its sender
//! would not get in another way, and counts nothing else.

mod comparison;
mod contents;
mod described;
mod given;
mod index;
mod project;
mod user;

use super::ask::Ask;
use crate::http::people;

pub(super) use comparison::compare_releases;
pub(super) use contents::show_contents;
pub(super) use index::show_index;
pub(super) use project::{show_project, show_release};
pub(super) use user::show_user;

/// Whether the sender is a browser: installers of old named HTML first, too.
pub(super) fn is_wanted(ask: &Ask) -> bool {
    people::wants_page(&ask.head.headers) && !ask.is_installer()
}
