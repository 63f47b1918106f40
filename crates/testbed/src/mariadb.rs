//! A MariaDB for one test, in a temporary directory, reachable only by a socket in it. A test can crash it, start it
//! again, and freeze it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::guard;
use crate::postgres::{as_user, said};
use crate::signals::{FrozenServer, signal};

/// A running server; it ends with this process at the latest, and its files are removed.
pub struct MariaDb {
    directory: PathBuf,
    /// Options of the server that a test adds.
    options: Vec<String>,
    /// Stops the server once its input is closed. The end of this process closes it, however the process ends.
    guard: Child,
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // `wait` closes its input first.
        let _ = self.guard.wait();
    }
}

impl MariaDb {
    /// Starts a fresh server with an empty database `aur` and these options beside its own. If its programs are not
    /// installed, the result is `None` and a line says so.
    pub fn start(options: &[&str]) -> Option<MariaDb> {
        if [server(), program("mariadb-install-db"), program("mariadb")].contains(&None) {
            crate::skipped(
                "MariaDB was not found (Debian packages mariadb-server-core, mariadb-client-core)",
            );
            return None;
        }
        let mut directory = as_user(Path::new("mktemp"));
        let directory = said(directory.args(["-d", "-t", "larder-test-XXXXXXXX"]));
        let directory = PathBuf::from(directory.trim());
        let mut install = as_user(&program("mariadb-install-db").expect("it was found"));
        install.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]);
        install.args(["--skip-name-resolve", "--innodb-log-file-size=8M"]);
        // Not the system's directory for temporary files: a starting server deletes files there that others are using.
        let temporary = directory.join("tmp");
        said(as_user(Path::new("mkdir")).arg(&temporary));
        install.arg(format!("--tmpdir={}", temporary.display()));
        said(install.arg(format!("--datadir={}", directory.join("data").display())));
        let script = format!(
            "kill -KILL \"$(cat '{0}/pid')\"; \
             while kill -0 \"$(cat '{0}/pid')\" 2>/dev/null; do sleep 0.05; done; rm -rf '{0}'",
            directory.display(),
        );
        let guard = guard(&mut as_user(Path::new("sh")), &script);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let server = MariaDb { directory, options, guard };
        server.resume();
        server.execute(
            "mysql",
            "CREATE DATABASE aur CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        );
        Some(server)
    }

    /// Starts it again after [`MariaDb::crash`] or [`MariaDb::stop`].
    ///
    /// # Panics
    /// If it does not answer within a minute.
    pub fn resume(&self) {
        let mut start = as_user(Path::new("sh"));
        // The shell ends at once; the server has no parent, and its guard ends it.
        start.arg("-c").arg(format!("\"$@\" >>'{}/log' 2>&1 &", self.directory.display()));
        start.arg("sh").arg(server().expect("it was found")).arg("--no-defaults");
        start.arg(format!("--datadir={}", self.directory.join("data").display()));
        start.arg(format!("--tmpdir={}", self.directory.join("tmp").display()));
        start.arg(format!("--socket={}", self.socket()));
        start.arg(format!("--pid-file={}", self.directory.join("pid").display()));
        start.args([
            "--skip-networking",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=8M",
        ]);
        start.args(["--innodb-flush-log-at-trx-commit=2", "--performance-schema=OFF"]);
        said(start.args(&self.options).stdin(Stdio::null()));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self
            .client("mysql")
            .args(["-e", "SELECT 1"])
            .output()
            .is_ok_and(|it| it.status.success())
        {
            let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "MariaDB does not answer: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it at once, like a crash.
    pub fn crash(&self) {
        let pid = self.pid();
        signal(pid, Signal::KILL);
        wait_for_end(pid);
    }

    /// Ends it like an administrator.
    pub fn stop(&self) {
        let pid = self.pid();
        signal(pid, Signal::TERM);
        wait_for_end(pid);
    }

    /// Freezes it: connections stay open, but nothing answers until the returned value is dropped.
    pub fn freeze(&self) -> FrozenServer {
        let pid = self.pid();
        FrozenServer::stop(pid)
    }

    /// Runs statements in a database as its administrator; each is a transaction unless they say otherwise.
    ///
    /// # Panics
    /// If one of them fails.
    #[track_caller]
    pub fn execute(&self, database: &str, statements: &str) {
        self.query(database, statements);
    }

    /// Runs statements, and returns what they print: a line for each row, its columns separated by tabs.
    ///
    /// # Panics
    /// If one of them fails.
    #[track_caller]
    pub fn query(&self, database: &str, statements: &str) -> String {
        let mut client = self.client(database);
        let mut client = client
            .args(["--batch", "--skip-column-names"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client");
        let mut input = client.stdin.take().expect("a pipe");
        let statements = statements.to_owned();
        // The client may print before it has read everything.
        let writing = std::thread::spawn(move || {
            let _ = input.write_all(statements.as_bytes());
        });
        let output = client.wait_with_output().expect("an end");
        writing.join().expect("no panic");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// A connection that stays open: statements that are written to it are executed one after another.
    pub fn session(&self, database: &str) -> MariaDbSession {
        let mut client = self.client(database);
        client.args(["--batch", "--skip-column-names", "--unbuffered"]);
        let client =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the client");
        MariaDbSession { client }
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> String {
        self.directory.join("socket").display().to_string()
    }

    /// The URL of the database `aur` for this user.
    pub fn url(&self, user: &str) -> String {
        format!("mysql://{user}@localhost/aur?socket={}", self.socket())
    }

    fn client(&self, database: &str) -> Command {
        let mut client = Command::new(program("mariadb").expect("it was found"));
        client.args(["--no-defaults", "--user=root", "--default-character-set=utf8mb4"]);
        client.arg(format!("--socket={}", self.socket())).arg(database);
        client
    }

    fn pid(&self) -> i32 {
        let pid = fs::read_to_string(self.directory.join("pid")).expect("a server that runs");
        pid.trim().parse().expect("a number")
    }
}

/// A connection to a [`MariaDb`]; it ends when this is dropped, and an open transaction is rolled back.
pub struct MariaDbSession {
    client: Child,
}

impl MariaDbSession {
    /// Executes statements; returns once they are done.
    ///
    /// # Panics
    /// If the client has ended, as it does when a statement fails.
    #[track_caller]
    pub fn execute(&mut self, statements: &str) {
        const DONE: &str = "the end of these statements";
        let input = self.client.stdin.as_mut().expect("a pipe");
        writeln!(input, "{statements};\nSELECT '{DONE}';").expect("a client that runs");
        input.flush().expect("a client that runs");
        let output = self.client.stdout.as_mut().expect("a pipe");
        let mut said = Vec::new();
        let mut byte = [0];
        while !said.ends_with(format!("{DONE}\n").as_bytes()) {
            let count = std::io::Read::read(output, &mut byte).expect("a pipe");
            assert!(count > 0, "the client has ended: {}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
    }
}

impl Drop for MariaDbSession {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn wait_for_end(pid: i32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while kill_process(Pid::from_raw(pid).expect("a process"), Signal::CONT).is_ok() {
        assert!(Instant::now() < deadline, "MariaDB does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn server() -> Option<PathBuf> {
    program("mariadbd")
}

/// Debian keeps the server out of the path of users.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}
