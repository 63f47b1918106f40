//! What requests are answered from, beside the records of the store: snapshots that a task of [`crate::tasks`] replaces
//! whole or change by change, the feed of changes, and caches within a budget.

pub(crate) mod advisories;
pub(crate) mod archives;
pub(crate) mod article_texts;
pub(crate) mod aur_published;
pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod example;
pub(crate) mod finished_pages;
pub(crate) mod lists;
pub(crate) mod open_zips;
pub(crate) mod required_by;
pub(crate) mod small_blobs;
pub(crate) mod tox_outcomes;
