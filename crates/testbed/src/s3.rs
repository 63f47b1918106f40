//! A real S3-type server of a test's own: Versity's gateway, which keeps each object as a file below a
//! temporary directory. So a test can look at what is there, age it, and damage it.
//!
//! `LARDER_TEST_S3` is the path of the program `versitygw`; without it, the one that `./test` installs is
//! taken if it is there.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What the server knows its only user by.
const KEYS: [(&str, &str); 2] = [("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret")];

/// A running server; it ends, and its files go, with this process at the latest.
pub struct S3 {
    program: PathBuf,
    directory: PathBuf,
    address: SocketAddr,
    running: Mutex<Running>,
}

/// One run of the program.
struct Running {
    server: Child,
    /// Kills it once its input is closed, which the end of this process does, however it comes.
    guard: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        // Closes its input first.
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
    /// A fresh server; none, and a line that says so, where the program is not installed.
    pub fn start() -> Option<S3> {
        let Some(program) = program() else {
            crate::skipped(
                "no S3-type server: LARDER_TEST_S3 is not set, and ./test has not installed one",
            );
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory").keep();
        let begun = Instant::now();
        loop {
            // Whoever takes the port in between makes the server end at once: another port then.
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
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

    /// The server that tests share which treat it kindly.
    pub fn shared() -> Option<&'static S3> {
        static SHARED: OnceLock<Option<S3>> = OnceLock::new();
        SHARED.get_or_init(S3::start).as_ref()
    }

    /// An empty bucket; its name.
    pub fn make_bucket(&self) -> String {
        let name =
            tempfile::Builder::new().prefix("bucket-").rand_bytes(12).tempdir_in(&self.directory);
        let name = name.expect("a directory").keep();
        // Names of buckets are in lower case.
        let lower = name.file_name().and_then(|name| name.to_str()).expect("a name").to_lowercase();
        fs::rename(&name, self.path(&lower)).expect("a new name");
        lower
    }

    /// The directory of a bucket; an object is the file below it that its key names.
    pub fn path(&self, bucket: &str) -> PathBuf {
        self.directory.join(bucket)
    }

    /// What a client has to know, as variables of its environment.
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

    /// Starts it again after [`S3::crash`], with what it had, where it was.
    pub fn resume(&self) {
        let running = run(&self.program, &self.directory, self.address);
        *self.running() = running.expect("its port is free again");
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the server and waits until it takes connections; an error if it ended instead.
fn run(program: &Path, directory: &Path, address: SocketAddr) -> Result<Running, String> {
    let mut server = Command::new(program);
    for (name, value) in KEYS {
        server.env(format!("ROOT_{name}"), value);
    }
    server.args(["--quiet", "--keep-alive", "--port", &address.to_string(), "posix"]);
    server.arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = server.spawn().map_err(|error| error.to_string())?;
    let guard = Command::new("sh")
        .arg("-c")
        // The directory goes with the whole process; if only this run ends, it is still needed.
        .arg(format!(
            "read -r _; kill -9 {}; kill -0 {} 2>/dev/null || rm -rf '{}'",
            server.id(),
            std::process::id(),
            directory.display()
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
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

/// Where the program is.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("LARDER_TEST_S3") {
        return Some(program.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/versitygw");
    installed.is_file().then_some(installed)
}
