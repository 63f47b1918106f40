//! Real things for tests: a PostgreSQL, an S3-type server, an nginx, a small disk. Each is a test's own, in a
//! temporary directory, and ends with the test's process at the latest, however that comes.
//!
//! What is not installed, or what this user may not do, is left out with a line that says so; under
//! `CI=true` it is a failure instead. Nothing here reaches the binary: only tests depend on it.

mod nginx;
mod postgres;
mod s3;
mod small_disk;

use std::io::Write as _;

pub use nginx::Nginx;
pub use postgres::{Frozen, Postgres};
pub use s3::S3;
pub use small_disk::SmallDisk;

/// Says that a test was skipped, past what captures the output of tests that pass.
///
/// # Panics
/// Under `CI=true`.
#[track_caller]
pub fn skipped(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "nothing may be skipped: {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
