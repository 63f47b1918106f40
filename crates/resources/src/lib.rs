//! The threads, memory and disk space of the process, and how much of them each kind of work or client gets at once.
//!
//! - [`turns`]: how much blocking work of a kind runs at once, and how much may wait for it.
//! - [`cpu_pool`]: threads of low priority for what only computes, with a bounded queue.
//! - [`bodies`]: the memory for request bodies, shared fairly between clients.
//! - [`files`]: files that are opened without waiting for anybody, whatever is in their place.
//! - [`free_space`]: the free space on the disks, and the floor below which only administrators write.
//!
//! This crate does not know the crates that do the work: each says how much of its work may run, and takes turns.

pub mod bodies;
pub mod cpu_pool;
pub mod files;
pub mod free_space;
pub mod turns;
