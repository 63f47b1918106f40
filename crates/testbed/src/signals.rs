//! Signals to servers: frozen ones accept connections, and do not answer.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A frozen server; dropping this lets it continue.
pub struct FrozenServer {
    processes: Vec<i32>,
}

impl FrozenServer {
    /// Stops a process, and then those that it has started: it starts no further ones.
    pub(crate) fn stop(main: i32) -> FrozenServer {
        let mut server = FrozenServer { processes: vec![] };
        server.stop_process(main);
        processes_of(main).into_iter().for_each(|pid| server.stop_process(pid));
        server
    }

    /// Returns when all threads have stopped: on a busy machine some go on answering after the signal.
    fn stop_process(&mut self, pid: i32) {
        self.processes.push(pid);
        signal(pid, Signal::STOP);
        let since = Instant::now();
        while !has_stopped(pid) {
            assert!(since.elapsed() < Duration::from_secs(60), "process {pid} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for FrozenServer {
    fn drop(&mut self) {
        self.processes.iter().for_each(|pid| signal(*pid, Signal::CONT));
    }
}

/// Sends a signal.
pub(crate) fn signal(pid: i32, signal: Signal) {
    // It may have ended on its own.
    let _ = kill_process(Pid::from_raw(pid).expect("a process"), signal);
}

/// Whether none of its threads runs, or it has ended.
fn has_stopped(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let mut states = threads.filter_map(Result::ok).filter_map(|thread| stat(&thread.path()));
    states.all(|fields| fields.starts_with(['T', 'Z', 'X']))
}

/// The processes whose parent is `pid`.
fn processes_of(pid: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let processes = processes.filter_map(|entry| {
        let fields = stat(&entry.path())?;
        let parent: i32 = fields.split(' ').nth(1)?.parse().ok()?;
        (parent == pid).then(|| entry.file_name().to_str()?.parse().ok())?
    });
    processes.collect()
}

/// The fields of a process or a thread from its state on, if it still runs.
fn stat(directory: &Path) -> Option<String> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    // The process name in parentheses may contain anything.
    stat.rsplit_once(") ").map(|(_, fields)| fields.to_owned())
}
