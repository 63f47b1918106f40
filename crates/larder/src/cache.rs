//! Caches within a budget: an entry that was evicted is calculated or read again.

pub(crate) mod archives;
pub(crate) mod contents;
pub(crate) mod finished_pages;
pub(crate) mod open_zips;
pub(crate) mod small_blobs;
