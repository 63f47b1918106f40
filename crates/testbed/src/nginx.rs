//! A real nginx for one test, with the test's configuration, in a temporary directory.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running server; it ends with the test's process at the latest.
pub struct Nginx {
    /// The address that it listens on, on this machine.
    pub address: SocketAddr,
    server: Child,
    /// Kills the server once its input is closed. The end of this process closes it, however the process ends.
    guard: Child,
    directory: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A terminated master ends its workers; a killed one would not.
        let id = self.server.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.server.wait();
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Nginx {
    /// Starts a server with these lines in its only `server` block. If nginx is not installed, the result is `None`
    /// and a line says so.
    ///
    /// # Panics
    /// If nginx refuses the configuration.
    pub fn start(server_block: &str) -> Option<Nginx> {
        let Some(program) = program() else {
            crate::skipped("nginx is not installed (Debian package nginx-light)");
            return None;
        };
        let begun = Instant::now();
        loop {
            // If another process takes the port in the meantime, the server ends at once and the next port is tried.
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            drop(listener);
            match run(program, address, server_block) {
                Ok(nginx) => return Some(nginx),
                Err(log) => assert!(
                    log.contains("Address already in use")
                        && begun.elapsed() < Duration::from_secs(60),
                    "nginx does not run: {log}"
                ),
            }
        }
    }

    /// The errors that it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("error.log")).unwrap_or_default()
    }
}

/// Debian installs it outside the `PATH` of users.
fn program() -> Option<&'static str> {
    let is_there = |program: &&str| {
        let asked = Command::new(program).arg("-v").stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    ["nginx", "/usr/sbin/nginx"].into_iter().find(is_there)
}

/// Starts it and waits until it accepts connections; returns its log if it ends instead.
fn run(program: &str, address: SocketAddr, server_block: &str) -> Result<Nginx, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fs::write(path.join("nginx.conf"), configuration(path, address, server_block))
        .expect("a configuration");
    let error_log = fs::File::create(path.join("error.log")).expect("a log");
    let server = Command::new(program)
        .arg("-p")
        .arg(path)
        .arg("-c")
        .arg(path.join("nginx.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(error_log)
        .spawn()
        .expect("it starts");
    let script = format!("kill -TERM {} 2>/dev/null", server.id());
    let guard = crate::guard(&mut Command::new("sh"), &script);
    let mut nginx = Nginx { address, server, guard, directory };
    let begun = Instant::now();
    loop {
        if nginx.server.try_wait().expect("a child").is_some() {
            return Err(nginx.log());
        }
        // Another process may listen on the port: nginx writes its process id only once it listens itself.
        let is_there = nginx.directory.path().join("nginx.pid").exists();
        if is_there && TcpStream::connect(address).is_ok() {
            return Ok(nginx);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nginx is silent: {}", nginx.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The configuration; everything that nginx writes is in `directory`.
fn configuration(directory: &Path, address: SocketAddr, server_block: &str) -> String {
    let directory = directory.display();
    // Its workers must be able to read the files of the test's user.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {directory}/{kind};\n"))
        .concat();
    format!(
        "{user}\ndaemon off;\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log info;\n\
         events {{}}\nhttp {{\naccess_log off;\n{temporary}server {{\nlisten {address};\n{server_block}\n}}\n}}\n"
    )
}
