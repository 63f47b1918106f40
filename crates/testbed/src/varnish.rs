//! A real Varnish for one test, with the configuration that operators get, in a temporary directory.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::{Daemon, program};

/// A running cache.
pub struct Varnish {
    /// The address that it listens on, on this machine.
    pub address: SocketAddr,
    _server: Daemon,
    directory: TempDir,
}

impl Varnish {
    /// Starts a cache with this VCL. If Varnish is not installed, the result is `None` and a line says so.
    ///
    /// # Panics
    /// If Varnish refuses the VCL, or lacks its module xkey.
    pub fn start(vcl: &str) -> Option<Varnish> {
        let Some(program) = program(["varnishd", "/usr/sbin/varnishd"], "-V") else {
            crate::skipped(
                "Varnish is not installed (Debian packages varnish and varnish-modules)",
            );
            return None;
        };
        Some(Daemon::on_free_port(|address| run(program, address, vcl)))
    }

    /// A counter of the cache, such as `MAIN.cache_hit`.
    pub fn counter(&self, name: &str) -> u64 {
        let asked = Command::new("varnishstat")
            .args(["-1", "-f", name, "-n"])
            .arg(self.directory.path())
            .output()
            .expect("varnishstat runs");
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        let value = text.split_whitespace().nth(1).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no counter {name}: {text}"))
    }
}

fn run(program: &str, address: SocketAddr, vcl: &str) -> Result<Varnish, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fs::write(path.join("test.vcl"), vcl).expect("a configuration");
    let mut command = Command::new(program);
    command.args(["-F", "-j", "none", "-s", "malloc,32m", "-a", &address.to_string(), "-n"]);
    command.arg(path).arg("-f").arg(path.join("test.vcl"));
    let log = path.join("log");
    let server = Daemon::start(&mut command, Signal::TERM, &log, address, || true)?;
    Ok(Varnish { address, _server: server, directory })
}
