//! The Python index for people, where programs get JSON: users, indexes, projects and versions.
//!
//! request -> what its sender may read of the published state -> a template -> a page. A page shows nothing that its sender
//! would not get in another way, and counts nothing else.

mod compare;
mod contents;
mod description;
mod downloads;
mod file_query;
mod file_tests;
mod files;
mod index;
mod index_log;
mod indexes;
mod mirrored;
mod policies;
mod project;
mod project_page;
mod upstream;
mod user;

use crate::front::page;
use crate::protocols::python::ask::Ask;

pub(crate) use compare::compare_releases;
pub(crate) use contents::show_contents;
pub(crate) use downloads::show_downloads;
pub(crate) use index::show_index;
pub(crate) use index_log::show_index_log;
pub(crate) use indexes::{IndexLine, seen, show_indexes};
pub(crate) use project::{show_project, show_release};
pub(crate) use user::show_user;

/// Whether the sender is a browser: installers of old named HTML first, too.
pub(crate) fn is_wanted(ask: &Ask) -> bool {
    page::wants_page(&ask.head.headers) && !ask.is_installer()
}

/// Whether a browser asks for the list of indexes: a search without words.
pub(crate) fn lists_indexes(ask: &Ask) -> bool {
    let words = || ask.parameter("query").unwrap_or_default();
    is_wanted(ask) && words().trim().is_empty()
}
