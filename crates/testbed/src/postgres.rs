//! A PostgreSQL for one test, in a temporary directory, reachable by a socket in it. A test can crash it, start
//! it again, and freeze it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::signals::FrozenServer;

/// A running server; it ends with this process at the latest, and its files are removed.
pub struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    /// Where it listens besides its socket.
    address: OnceLock<Ipv4Addr>,
    /// Stops the server once its input is closed. The end of this process closes it, however the process ends.
    guard: Child,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // `wait` closes its input first.
        let _ = self.guard.wait();
    }
}

impl Postgres {
    /// Starts a fresh server. If its programs are not installed, the result is `None` and a line says so.
    pub fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            crate::skipped("initdb of PostgreSQL was not found");
            return None;
        };
        let mut directory = as_user(Path::new("mktemp"));
        let directory = said(directory.args(["-d", "-t", "larder-test-XXXXXXXX"]));
        let directory = PathBuf::from(directory.trim());
        let data = directory.join("data");
        let mut initdb = as_user(&programs.join("initdb"));
        initdb.args(["--username=larder", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        said(initdb.arg("--no-sync").arg("-D").arg(&data));
        let script = format!(
            "kill -CONT \"$(head -n 1 '{data}/postmaster.pid')\"; \
             '{}' stop -m immediate -D '{data}'; rm -rf '{}'",
            programs.join("pg_ctl").display(),
            directory.display(),
            data = data.display(),
        );
        let guard = crate::guard(&mut as_user(Path::new("sh")), &script);
        let server = Postgres { programs, directory, address: OnceLock::new(), guard };
        server.resume();
        Some(server)
    }

    /// Starts it again after [`Postgres::crash`] or [`Postgres::stop`].
    pub fn resume(&self) {
        let options = format!(
            "-c listen_addresses={} -c unix_socket_directories={} -c max_connections=200",
            self.address.get().map(Ipv4Addr::to_string).unwrap_or_default(),
            self.directory.display()
        );
        let mut start = self.pg_ctl("start");
        start.arg("-l").arg(self.directory.join("log")).args(["-o", &options]);
        // Not a pipe, which the server would keep open.
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("pg_ctl");
        assert!(status.success(), "PostgreSQL did not start");
    }

    /// Starts it again, so that it also listens at this address, for hosts beside it there.
    pub fn listen_at(&self, address: Ipv4Addr) {
        self.stop();
        let _ = self.address.set(address);
        let script = "echo 'host all all samenet trust' >>data/pg_hba.conf";
        said(as_user(Path::new("sh")).args(["-c", script]).current_dir(&self.directory));
        self.resume();
    }

    /// Ends it at once, like a crash.
    pub fn crash(&self) {
        said(self.pg_ctl("stop").args(["-m", "immediate"]));
    }

    /// Ends it like an administrator who does not wait for clients.
    pub fn stop(&self) {
        said(self.pg_ctl("stop").args(["-m", "fast"]));
    }

    /// Copies its data while it is stopped, replacing an earlier copy.
    pub fn keep_copy(&self) {
        let script = "rm -rf copy && cp -a data copy";
        said(as_user(Path::new("sh")).args(["-c", script]).current_dir(&self.directory));
    }

    /// Replaces its data with the copy while it is stopped, as if a replica that lagged behind took over.
    pub fn fall_back_to_copy(&self) {
        let script = "rm -rf data && mv copy data";
        said(as_user(Path::new("sh")).args(["-c", script]).current_dir(&self.directory));
    }

    /// Puts the copy in the place of the data, while it is stopped, as a standby of what it was: it has not got what came after
    /// the copy.
    pub fn become_standby_at_copy(&self) {
        let settings = format!(
            "restore_command = 'cp {}/archive/%f %p'\nwal_retrieve_retry_interval = '100ms'\n",
            self.directory.display()
        );
        let script = "rm -rf primary archive && mv data primary && mv copy data && mkdir archive && \
                      touch data/standby.signal && printf %s \"$1\" >>data/postgresql.auto.conf";
        let mut sh = as_user(Path::new("sh"));
        said(sh.args(["-c", script, "sh", &settings]).current_dir(&self.directory));
    }

    /// Gives the standby everything that its primary had written, and waits until it has taken that: a promotion would leave out what has
    /// come since the standby last looked.
    pub fn send_standby_the_rest(&self) {
        let script = "for file in primary/pg_wal/0*; do cp $file archive/new && mv archive/new archive/${file##*/}; done";
        said(as_user(Path::new("sh")).args(["-c", script]).current_dir(&self.directory));
        let mut control = as_user(&self.programs.join("pg_controldata"));
        let control = said(control.env("LC_ALL", "C").arg(self.directory.join("primary")));
        let end = control.lines().find_map(|line| line.strip_prefix("Latest checkpoint location:"));
        let end = end.expect("a primary that was stopped").trim();
        let question = format!("SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '{end}') >= 0");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut psql = as_user(&self.programs.join("psql"));
            if said(psql.args(["-X", "-A", "-t", "-d", &self.url(), "-c", &question])).trim() == "t"
            {
                return;
            }
            assert!(Instant::now() < deadline, "the standby does not come to {end}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes the standby the primary, once it has what it was sent.
    pub fn promote(&self) {
        said(&mut self.pg_ctl("promote"));
    }

    /// Puts the data of the former primary back, while it is stopped.
    pub fn return_to_primary(&self) {
        let script = "rm -rf data && mv primary data";
        said(as_user(Path::new("sh")).args(["-c", script]).current_dir(&self.directory));
    }

    /// Freezes it: connections stay open, but nothing answers until the returned value is dropped.
    pub fn freeze(&self) -> FrozenServer {
        let pid_file = self.directory.join("data/postmaster.pid");
        let pid_file = fs::read_to_string(pid_file).expect("a server that runs");
        let main = pid_file.lines().next().and_then(|pid| pid.parse().ok()).expect("a number");
        FrozenServer::stop(main)
    }

    /// Runs statements in a database as its administrator: with `psql`, and without a transaction around them.
    #[track_caller]
    pub fn execute(&self, database: &str, statements: &str) {
        let mut psql = as_user(&self.programs.join("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.url_of(database)]);
        for statement in statements.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            psql.args(["-c", statement]);
        }
        said(&mut psql);
    }

    /// The directory of the socket that it listens on.
    pub fn socket(&self) -> String {
        format!("{}/.s.PGSQL.5432", self.directory.display())
    }

    /// The URL of its first database, which is empty.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of the database `name`.
    pub fn url_of(&self, name: &str) -> String {
        format!("postgres:///{name}?host={}&user=larder", self.directory.display())
    }

    fn pg_ctl(&self, what: &str) -> Command {
        let mut pg_ctl = as_user(&self.programs.join("pg_ctl"));
        pg_ctl.args([what, "-w", "-D"]).arg(self.directory.join("data"));
        pg_ctl
    }
}

/// The directory of the programs: the newest installed version.
fn programs() -> Option<PathBuf> {
    let mut installed: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    installed.sort();
    let configured = Command::new("pg_config").arg("--bindir").output().ok();
    let configured = configured.and_then(|it| String::from_utf8(it.stdout).ok());
    let configured = configured.map(|path| PathBuf::from(path.trim()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&path);
    installed.into_iter().rev().chain(configured).chain(path).find(|directory| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| directory.join(program).is_file())
    })
}

/// PostgreSQL refuses to run as root.
pub(crate) fn as_user(program: &Path) -> Command {
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
    // A directory that this user may enter.
    command.current_dir("/");
    command
}

pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
