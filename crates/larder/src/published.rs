//! What is published beside the records of the store: each is replaced whole, or one change at a time, by a task of [`crate::tasks`].

pub(crate) mod advisories;
pub(crate) mod article_texts;
pub(crate) mod aur_published;
pub(crate) mod lists;
pub(crate) mod required_by;
