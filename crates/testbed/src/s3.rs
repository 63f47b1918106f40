//! A real S3-type server for one test: Versity's gateway, which stores each object as a file below a temporary
//! directory. So a test can look at the objects, change their age, and damage them.
//!
//! `LARDER_TEST_S3` is the path of the program `versitygw`; without it, the one that `./test` installs is used if it
//! exists.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The credentials of the server's only user.
const KEYS: [(&str, &str); 2] = [("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret")];

/// A running server; it ends with this process at the latest, and its files are removed.
pub struct S3 {
    program: PathBuf,
    directory: PathBuf,
    address: SocketAddr,
    running: Mutex<Running>,
}

/// One run of the program.
struct Running {
    server: Child,
    /// Kills the server once its input is closed. The end of this process closes it, however the process ends.
    guard: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        // `wait` closes its input first.
        let _ = self.guard.wait();
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.crash();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl S3 {
    /// Starts a fresh server. If the program is not installed, the result is `None` and a line says so.
    pub fn start() -> Option<S3> {
        S3::start_at(Ipv4Addr::LOCALHOST)
    }

    /// [`S3::start`], at another address of this host.
    pub fn start_at(address: Ipv4Addr) -> Option<S3> {
        let Some(program) = program() else {
            crate::skipped(
                "no S3-type server: LARDER_TEST_S3 is not set, and ./test has not installed one",
            );
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory").keep();
        let begun = Instant::now();
        loop {
            // If another process takes the port in the meantime, the server ends at once and the next port is tried.
            let listener = TcpListener::bind((address, 0)).expect("a port");
            let address = listener.local_addr().expect("an address");
            drop(listener);
            if let Ok(running) = run(&program, &directory, address) {
                return Some(S3 { program, directory, address, running: Mutex::new(running) });
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{} does not run",
                program.display()
            );
        }
    }

    /// A server shared by the tests that neither crash nor damage it.
    pub fn shared() -> Option<&'static S3> {
        static SHARED: OnceLock<Option<S3>> = OnceLock::new();
        SHARED.get_or_init(S3::start).as_ref()
    }

    /// Makes an empty bucket and returns its name.
    pub fn make_bucket(&self) -> String {
        let name =
            tempfile::Builder::new().prefix("bucket-").rand_bytes(12).tempdir_in(&self.directory);
        let name = name.expect("a directory").keep();
        // Bucket names must be in lower case.
        let lower = name.file_name().and_then(|name| name.to_str()).expect("a name").to_lowercase();
        fs::rename(&name, self.path(&lower)).expect("a new name");
        lower
    }

    /// The directory of a bucket; an object is the file below it that is named by its key.
    pub fn path(&self, bucket: &str) -> PathBuf {
        self.directory.join(bucket)
    }

    /// The settings that a client needs, as environment variables.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEYS[0].1.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEYS[1].1.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Ends it at once.
    pub fn crash(&self) {
        let _ = self.running().server.kill();
        let _ = self.running().server.wait();
    }

    /// Starts it again after [`S3::crash`], with the same objects and the same address.
    pub fn resume(&self) {
        let running = run(&self.program, &self.directory, self.address);
        *self.running() = running.expect("its port is free again");
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the server and waits until it accepts connections; returns an error if it ends instead.
fn run(program: &Path, directory: &Path, address: SocketAddr) -> Result<Running, String> {
    let mut server = Command::new(program);
    for (name, value) in KEYS {
        server.env(format!("ROOT_{name}"), value);
    }
    server.args(["--quiet", "--keep-alive", "--port", &address.to_string(), "posix"]);
    server.arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = server.spawn().map_err(|error| error.to_string())?;
    // The directory is removed when this process ends; if only this run ends, the directory is still needed.
    let script = format!(
        "kill -9 {}; kill -0 {} 2>/dev/null || rm -rf '{}'",
        server.id(),
        std::process::id(),
        directory.display()
    );
    let guard = crate::guard(&mut Command::new("sh"), &script);
    let mut running = Running { server, guard };
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() || begun.elapsed() < Duration::from_millis(100) {
        if let Some(status) = running.server.try_wait().map_err(|error| error.to_string())? {
            return Err(status.to_string());
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the server does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

/// The path of the program.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("LARDER_TEST_S3") {
        return Some(program.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/versitygw");
    installed.is_file().then_some(installed)
}
