//! Pages for people, and the forms on them: what a reader may see of the published state, in a template; and wishes from
//! forms, as the same operations that programs ask for.
//!
//! request -> what its sender may read -> a template of `templates/` -> [`crate::front::page`] -> response.

pub(crate) mod about;
pub(crate) mod account;
pub(crate) mod articles;
pub(crate) mod changed;
mod days;
pub(crate) mod find;
pub(crate) mod forms;
pub(crate) mod home;
pub(crate) mod manage;
pub(crate) mod package;
mod package_past;
pub(crate) mod packages;
pub(crate) mod python;
mod rendered;
pub(crate) mod status;
