//! Real things for tests: a PostgreSQL, a MariaDB, an S3-type server, an identity provider, an nginx, a Varnish, a directory, a small
//! disk, a host behind lines that can be cut, a proxy that drops connections silently, a judge of histories; and a scripted upstream of a Python index. Each belongs to one test, lives in a
//! temporary directory, and ends with the test's process at the latest, however that ends.
//!
//! If a program is not installed, or this user lacks a right, the test is skipped with a line that says so; under
//! `CI=true` it fails instead. Only tests depend on this crate: none of it is in the binary.

mod daemon;
mod dex;
mod far_host;
mod mariadb;
mod nginx;
mod porcupine;
mod postgres;
mod receiver;
mod s3;
mod signals;
mod silent_proxy;
mod slapd;
mod small_disk;
mod upstream;
mod varnish;

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

pub use dex::{DEX_EMAIL, DEX_PASSWORD, Dex};
pub use far_host::{FarHost, LOST, Line, SLOW};
pub use mariadb::{MariaDb, MariaDbSession};
pub use nginx::Nginx;
pub use porcupine::Porcupine;
pub use postgres::Postgres;
pub use receiver::{Receiver, Request};
pub use s3::S3;
pub use signals::FrozenServer;
pub use silent_proxy::SilentProxy;
pub use slapd::Slapd;
pub use small_disk::SmallDisk;
pub use upstream::{Offer, Upstream};
pub use varnish::Varnish;

/// Runs a shell's script with this command once the input of the returned process is closed. The end of this process closes it,
/// however it ends.
fn guard(shell: &mut Command, script: &str) -> Child {
    shell.args(["-c", &format!("read -r _; {script}")]).stdin(Stdio::piped());
    shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell")
}

/// Reports that a test was skipped, even where the output of passing tests is captured.
///
/// # Panics
/// Under `CI=true`.
#[track_caller]
pub fn skipped(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "nothing may be skipped: {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
