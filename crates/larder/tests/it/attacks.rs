//! Attacks on the real binary: what strangers, and users who mean no good, can make it hold in memory.

mod at_once;
mod connections;
pub(crate) mod frames;
mod memory;
mod unread;
mod upstream_lists;
mod upstream_pages;
