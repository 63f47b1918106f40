//! Servers that follow another one: copies of a primary, over HTTP.
//!
//! the primary's records, in order -> [`frame`]s of one endless answer -> a [`Primary`] reads them -> [`follow()`] writes them at
//! the primary's serials -> the store's tail, as for any other write. [`Link`] says how that goes; a [`FollowerNote`] in the data
//! directory says that its records are a copy, so that nothing else writes to them. Blobs are fetched by digest ([`BlobSource`]), and
//! what mirrors have by its path ([`MirrorSource`]).
//!
//! A copy has the secrets of its primary: password hashes and what logins are signed with. With the token of a user who is no
//! administrator it has only what that user may read ([`frame::PartialCopy`]).

mod blobs;
mod copy;
mod follow;
pub mod frame;
pub mod generation;
mod link;
mod mirrors;
mod note;
mod pace;
mod primary;
#[cfg(test)]
mod testing;

pub use blobs::BlobSource;
pub use copy::{NewCopy, put_in_place, take_copy};
pub use follow::follow;
pub use link::{Link, LinkState};
pub use mirrors::MirrorSource;
pub use note::{FILE_NAME as NOTE_FILE_NAME, FollowerNote};
pub use pace::Pace;
pub use primary::{
    PartState, PartStateError, Primary, PrimaryError, PrimaryStore, Settings, X_LARDER_PART,
};
