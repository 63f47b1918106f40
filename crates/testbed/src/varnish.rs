//! A real Varnish for one test, with the configuration that operators get, in a temporary directory.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running cache; it ends with the test's process at the latest.
pub struct Varnish {
    /// The address that it listens on, on this machine.
    pub address: SocketAddr,
    /// Kills the server once its input is closed. The end of this process closes it, however the process ends.
    guard: Child,
    server: Child,
    directory: TempDir,
}

impl Drop for Varnish {
    fn drop(&mut self) {
        let id = self.server.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.server.wait();
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Varnish {
    /// Starts a cache with this VCL. If Varnish or its module xkey is not installed, the result is `None` and a line says so.
    ///
    /// # Panics
    /// If Varnish refuses the VCL.
    pub fn start(vcl: &str) -> Option<Varnish> {
        let Some(program) = program() else {
            crate::skipped(
                "Varnish is not installed (Debian packages varnish and varnish-modules)",
            );
            return None;
        };
        let begun = Instant::now();
        loop {
            // If another process takes the port in the meantime, the server ends at once and the next port is tried.
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            drop(listener);
            match run(program, address, vcl) {
                Ok(varnish) => return Some(varnish),
                Err(log) => assert!(
                    log.contains("Address already in use")
                        && begun.elapsed() < Duration::from_secs(60),
                    "Varnish does not run: {log}"
                ),
            }
        }
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

/// Debian installs it outside the `PATH` of users.
fn program() -> Option<&'static str> {
    let is_there = |program: &&str| {
        let asked = Command::new(program).arg("-V").stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["varnishd", "/usr/sbin/varnishd"].into_iter().find(is_there)
}

/// Starts it and waits until it accepts connections; returns its log if it ends instead.
fn run(program: &str, address: SocketAddr, vcl: &str) -> Result<Varnish, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::write(path("test.vcl"), vcl).expect("a configuration");
    let log = fs::File::create(path("log")).expect("a log");
    let mut command = Command::new(program);
    command
        .args(["-F", "-j", "none", "-s", "malloc,32m", "-a", &address.to_string(), "-n"])
        .arg(directory.path())
        .arg("-f")
        .arg(path("test.vcl"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    let server = command.spawn().expect("it starts");
    let script = format!("kill -TERM {} 2>/dev/null", server.id());
    let guard = crate::guard(&mut Command::new("sh"), &script);
    let mut varnish = Varnish { address, guard, server, directory };
    let begun = Instant::now();
    loop {
        let log = || fs::read_to_string(varnish.directory.path().join("log")).unwrap_or_default();
        if varnish.server.try_wait().expect("a child").is_some() {
            return Err(log());
        }
        if TcpStream::connect(address).is_ok() {
            return Ok(varnish);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "Varnish is silent: {}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
}
