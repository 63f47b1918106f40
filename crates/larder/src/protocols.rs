//! What programs ask, in the words of their protocols: words in, an operation or a look at what is published, words out.
//!
//! No handler here makes a page; browsers ask [`crate::people`] at the same paths, and the [`crate::door`] sends them there.

pub mod actions;
pub mod admin;
pub(crate) mod articles;
pub(crate) mod aur;
pub(crate) mod changes;
pub(crate) mod device;
pub mod dumps;
pub(crate) mod faur;
pub(crate) mod follow;
pub(crate) mod health;
pub(crate) mod openapi;
pub(crate) mod osv;
pub(crate) mod publishing;
pub(crate) mod python;
pub(crate) mod tokens;
