//! Caches within a budget: what is in them is calculated or read again when it is gone.

pub(crate) mod archives;
pub(crate) mod contents;
pub(crate) mod finished_pages;
pub(crate) mod open_zips;
pub(crate) mod small_blobs;
