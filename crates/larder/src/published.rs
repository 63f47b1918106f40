//! What is published beside the records of the store. Each has a task in [`crate::tasks`], which replaces it whole or applies
//! one change at a time.

pub(crate) mod advisories;
pub(crate) mod article_texts;
pub(crate) mod aur_published;
pub(crate) mod lists;
pub(crate) mod required_by;
