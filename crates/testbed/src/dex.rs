//! A real identity provider for one test: Dex, with one person who has a password and groups. It keeps all in memory.
//!
//! `LARDER_TEST_DEX` is the path of the program `dex`; without it, the one that `./test` installs is used if it exists.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

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
    running: Option<(Child, Child)>,
}

impl Drop for Dex {
    fn drop(&mut self) {
        self.stop();
    }
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
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let directory = tempfile::tempdir().expect("a directory");
        Some(Dex { program, address, directory, running: None })
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
        let log = std::fs::File::create(self.directory.path().join("dex.log")).expect("a file");
        let mut server = Command::new(&self.program);
        server.arg("serve").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = server.spawn().expect("the program runs");
        let script = format!("kill -9 {}", server.id());
        let guard = crate::guard(&mut Command::new("sh"), &script);
        let (server, _) = self.running.insert((server, guard));
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = server.try_wait().expect("its state");
            let log = std::fs::read_to_string(self.directory.path().join("dex.log"));
            assert!(ended.is_none(), "dex has ended with {ended:?}: {}", log.unwrap_or_default());
            assert!(begun.elapsed() < Duration::from_secs(60), "dex does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        if let Some((mut server, mut guard)) = self.running.take() {
            let _ = server.kill();
            let _ = server.wait();
            // `wait` closes its input first.
            let _ = guard.wait();
        }
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
