//! A real nginx for one test, with the test's configuration, in a temporary directory.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::{Daemon, program};

/// A running server.
pub struct Nginx {
    /// The address that it listens on, on this machine.
    pub address: SocketAddr,
    server: Daemon,
    _directory: TempDir,
}

impl Nginx {
    /// Starts a server with these lines in its only `server` block. If nginx is not installed, the result is `None`
    /// and a line says so.
    ///
    /// # Panics
    /// If nginx refuses the configuration.
    pub fn start(server_block: &str) -> Option<Nginx> {
        let Some(program) = program(["nginx", "/usr/sbin/nginx"], "-v") else {
            crate::skipped("nginx is not installed (Debian package nginx-light)");
            return None;
        };
        Some(Daemon::on_free_port(|address| run(program, address, server_block)))
    }

    /// The errors that it has logged.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

fn run(program: &str, address: SocketAddr, server_block: &str) -> Result<Nginx, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fs::write(path.join("nginx.conf"), configuration(path, address, server_block))
        .expect("a configuration");
    let mut command = Command::new(program);
    command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf"));
    // Another process may listen on the port: nginx writes its process id only once it listens itself.
    let pid = path.join("nginx.pid");
    // A terminated master ends its workers; a killed one would not.
    let log = path.join("error.log");
    let server = Daemon::start(&mut command, Signal::TERM, &log, address, || pid.exists())?;
    Ok(Nginx { address, server, _directory: directory })
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
