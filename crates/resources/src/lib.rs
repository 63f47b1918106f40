//! What the process has of threads, memory and disk, and how much of it each kind of work or each client gets at once.
//!
//! - [`turns`]: how much blocking work of a kind runs at once, and how much may wait for it.
//! - [`cpu_pool`]: threads of low priority for what only computes, with a bounded queue.
//! - [`bodies`]: the memory for request bodies, shared fairly between clients.
//! - [`free_space`]: what is free on the disks, and the floor below which only administrators write.
//!
//! No crate that does the work is known here: each says how much of it may run, and takes turns.

pub mod bodies;
pub mod cpu_pool;
pub mod free_space;
pub mod turns;
