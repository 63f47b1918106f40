//! A PostgreSQL of a test's own, in a temporary directory, on a socket in there only.
//!
//! Where its programs are not installed the test is skipped with a line, except under `CI=true`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running server; it ends, and its files go, with this process at the latest.
pub(crate) struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    /// Stops the server once its input is closed, which the end of this process does, however it comes.
    guard: Child,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.guard.wait();
    }
}

impl Postgres {
    /// A fresh server; none, and a line that says so, where there are no programs.
    pub(crate) fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no PostgreSQL to test with");
            // Past what captures the output of tests that pass.
            let _ = writeln!(std::io::stderr(), "skipped: initdb of PostgreSQL was not found");
            return None;
        };
        let directory = said(as_user(Path::new("mktemp")).args(["-d", "-t", "larder-XXXXXXXX"]));
        let directory = PathBuf::from(directory.trim());
        let data = directory.join("data");
        let mut initdb = as_user(&programs.join("initdb"));
        initdb.args(["--username=larder", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        said(initdb.arg("--no-sync").arg("-D").arg(&data));
        let guard = as_user(Path::new("sh"))
            .arg("-c")
            .arg(format!(
                "read -r _; '{}' stop -m immediate -D '{}'; rm -rf '{}'",
                programs.join("pg_ctl").display(),
                data.display(),
                directory.display()
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let server = Postgres { programs, directory, guard };
        server.resume();
        Some(server)
    }

    /// Starts it again after [`Postgres::crash`].
    pub(crate) fn resume(&self) {
        let options =
            format!("-c listen_addresses= -c unix_socket_directories={}", self.directory.display());
        let mut start = as_user(&self.programs.join("pg_ctl"));
        start.args(["start", "-w", "-D"]).arg(self.directory.join("data"));
        // Not to a pipe: the server keeps it open.
        start.arg("-l").arg(self.directory.join("log")).args(["-o", &options]);
        start.stdout(Stdio::null()).stderr(Stdio::null());
        assert!(start.status().expect("pg_ctl").success(), "PostgreSQL did not start");
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn crash(&self) {
        let mut stop = as_user(&self.programs.join("pg_ctl"));
        said(stop.args(["stop", "-m", "immediate", "-D"]).arg(self.directory.join("data")));
    }

    /// The URL of its first database, which is empty.
    pub(crate) fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=larder", self.directory.display())
    }
}

/// Where the programs are: the newest of what is installed.
fn programs() -> Option<PathBuf> {
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    installed.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    installed.into_iter().rev().chain(std::env::split_paths(&path)).find(|directory| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| directory.join(program).is_file())
    })
}

/// PostgreSQL refuses to run as root.
fn as_user(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let exists =
            |user: &&str| Command::new("id").arg(user).output().is_ok_and(|it| it.status.success());
        let user = ["postgres", "nobody"].into_iter().find(exists).expect("an unprivileged user");
        let mut command = Command::new("runuser");
        command.args(["-u", user, "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // Somewhere that the user may be.
    command.current_dir("/");
    command
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
