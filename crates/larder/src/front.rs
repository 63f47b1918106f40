//! What every request and answer goes through, whatever it asks: its path, who sent it, its body, conditions and
//! encodings, errors, and the frame of a page.
//!
//! It knows the state of the server ([`crate::app`]) and the table of paths ([`crate::routes`]), and no handler.

pub(crate) mod assets;
pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod cdn;
pub(crate) mod chart;
pub(crate) mod conditional;
pub(crate) mod copies;
pub(crate) mod cors;
pub(crate) mod display;
pub(crate) mod error;
pub(crate) mod loaded;
pub(crate) mod multipart;
pub(crate) mod negotiation;
pub(crate) mod outside;
pub(crate) mod page;
pub(crate) mod parameters;
pub(crate) mod refusals;
pub(crate) mod request;
pub(crate) mod respond;
pub(crate) mod router;
pub(crate) mod search_words;
pub(crate) mod serial;
pub(crate) mod site_files;
pub(crate) mod target;
pub(crate) mod turns;
