//! A real identity provider for one test: Dex, with one person who has a password and groups. It keeps all in memory.
//!
//! `LARDER_TEST_DEX` is the path of the program `dex`; without it, the one that `./test` installs is used if it exists.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::{Daemon, free_address};

/// Who logs in there, and with what.
pub const DEX_EMAIL: &str = "alice@acme.example";
/// The password.
pub const DEX_PASSWORD: &str = "password";

/// The bcrypt hash of the password.
const HASH: &str = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W";

/// A provider that runs, or is about to: a server that is to know its URL starts first.
pub struct Dex {
    program: PathBuf,
    address: SocketAddr,
    directory: TempDir,
    running: Option<Daemon>,
}

impl Dex {
    /// A provider at a free port. If the program is not installed, the result is `None` and a line says so.
    pub fn prepare() -> Option<Dex> {
        let Some(program) = program() else {
            crate::skipped(
                "no identity provider: LARDER_TEST_DEX is not set, and ./test has not installed one",
            );
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        Some(Dex { program, address: free_address(), directory, running: None })
    }

    /// Its URL, as its tokens have it.
    pub fn issuer(&self) -> String {
        format!("http://{}/dex", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it, with a client `larder` whose secret is `s3cret`, and with these groups of its person.
    ///
    /// # Panics
    /// It does not run.
    pub fn start(&mut self, redirect_uri: &str, groups: &[&str]) {
        self.stop();
        let groups: String = groups.iter().map(|group| format!("      - \"{group}\"\n")).collect();
        let groups =
            if groups.is_empty() { String::new() } else { format!("    groups:\n{groups}") };
        let config = format!(
            "issuer: {issuer}\nstorage:\n  type: memory\nweb:\n  http: {address}\n\
             oauth2:\n  skipApprovalScreen: true\n\
             staticClients:\n  - id: larder\n    secret: s3cret\n    name: Larder\n    redirectURIs:\n      - {redirect_uri}\n\
             enablePasswordDB: true\nstaticPasswords:\n  - email: {DEX_EMAIL}\n    hash: \"{HASH}\"\n    username: alice\n    \
             preferredUsername: alice\n    userID: \"08a8684b\"\n{groups}",
            issuer = self.issuer(),
            address = self.address,
        );
        let path = self.directory.path().join("dex.yaml");
        std::fs::write(&path, config).expect("a file");
        let (mut command, log) =
            (Command::new(&self.program), self.directory.path().join("dex.log"));
        command.arg("serve").arg(&path);
        let running = Daemon::start(&mut command, Signal::KILL, &log, self.address, || true);
        self.running = Some(running.unwrap_or_else(|log| panic!("dex does not run: {log}")));
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        self.running = None;
    }
}

/// The path of the program.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("LARDER_TEST_DEX") {
        return Some(program.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/dex");
    installed.is_file().then_some(installed)
}
