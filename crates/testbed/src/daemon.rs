//! [`Daemon`]: a program that runs beside one test.

use std::fs::{self, OpenOptions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take until it listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; it ends with the test's process at the latest, however that ends.
pub(crate) struct Daemon {
    server: Child,
    /// Ends the server once its input is closed, which the end of this process does.
    guard: Child,
    ending: Signal,
    log: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        // `wait` closes its input first.
        let _ = self.guard.wait();
    }
}

impl Daemon {
    /// Starts a program that ends at this signal, with its output in this file, and waits until it listens there and `is_ready`.
    ///
    /// # Errors
    /// Its output, if it ends instead.
    pub(crate) fn start(
        command: &mut Command,
        ending: Signal,
        log: &Path,
        address: SocketAddr,
        is_ready: impl Fn() -> bool,
    ) -> Result<Daemon, String> {
        let file = OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let output = file.try_clone().expect("a log");
        command.stdin(Stdio::null()).stdout(output).stderr(file);
        let server = command.spawn().expect("it starts");
        let script = format!("kill -{} {} 2>/dev/null", ending.as_raw(), server.id());
        let guard = crate::guard(&mut Command::new("sh"), &script);
        let mut daemon = Daemon { server, guard, ending, log: log.to_owned() };
        let begun = Instant::now();
        while !(is_ready() && TcpStream::connect(address).is_ok()) {
            if daemon.server.try_wait().expect("a child").is_some() {
                return Err(daemon.log());
            }
            assert!(begun.elapsed() < PATIENCE, "{command:?} is silent: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// [`Daemon::start`] of what `run` starts at a free port. If another process takes the port in the meantime, the program ends
    /// at once, and the next port is tried.
    ///
    /// # Panics
    /// It ends for another reason.
    pub(crate) fn on_free_port<T>(run: impl Fn(SocketAddr) -> Result<T, String>) -> T {
        let begun = Instant::now();
        loop {
            match run(free_address()) {
                Ok(running) => return running,
                Err(log) => assert!(
                    log.contains("Address already in use") && begun.elapsed() < PATIENCE,
                    "it does not run: {log}"
                ),
            }
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.server)
    }

    /// What it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it, and waits for that.
    pub(crate) fn stop(&mut self) {
        // It may have ended on its own.
        if let Ok(None) = self.server.try_wait() {
            let _ = kill_process(self.pid(), self.ending);
        }
        let _ = self.server.wait();
    }
}

/// A port of this machine that nobody listens on now.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// The first of these programs that answers this argument with success: Debian installs some outside the `PATH` of users.
pub(crate) fn program(names: [&'static str; 2], argument: &str) -> Option<&'static str> {
    let is_there = |program: &&str| {
        let mut asked = Command::new(program);
        asked.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    names.into_iter().find(is_there)
}
