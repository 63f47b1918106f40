//! The whole server over real sockets. Modules follow the URL tree; `server` starts what they ask,
//! `asking` makes requests and checks answers, `client` speaks HTTP byte by byte, and `catalogue` writes the dumps that it serves.
//!
//! Nothing is timed: what must happen is waited for, up to [`PATIENCE`].

mod accounts;
mod actions;
mod admin;
mod article;
mod asking;
mod attacks;
mod browser;
mod catalogue;
mod cdn;
mod changes;
mod client;
mod commands;
mod database;
mod deltas;
mod described;
mod dumps;
mod health;
mod http_rules;
mod import;
mod ldap;
mod lifecycle;
mod line;
mod maintenance;
mod monitoring;
mod nginx;
mod package_pages;
mod pages;
mod pages_of_others;
mod process;
mod proxy_login;
mod publishing;
mod python;
mod raw_targets;
mod releases;
mod reload;
mod rights;
mod rpc;
mod search_pages;
mod server;
mod shown;
mod single_sign_on;
mod store;
mod strangers;
mod upstream;
mod urls;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether tests that repeat something do so more often.
fn is_long() -> bool {
    std::env::var_os("LARDER_TEST_LONG").is_some()
}

/// Waits until `is_so`.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sets its flag when it goes: threads that work until then end, also where a test fails before.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
