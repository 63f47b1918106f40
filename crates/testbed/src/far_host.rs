//! A host of its own for one server: a network namespace with two lines to this host, one for clients and one to what the server
//! uses. Each line may lose everything, in one direction or both, or become slow.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What packets of one direction of a line go through: a discipline of the kernel's queues, as `tc` names it.
pub const LOST: &str = "blackhole";
/// [`LOST`], for a line that is slow: a packet waits until those before it are through, up to half a second; then it is lost.
pub const SLOW: &str = "tbf rate 256kbit burst 4kb latency 500ms";

/// A line between the two hosts.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    /// The one over which clients ask.
    Clients,
    /// The one to what the server uses.
    Store,
}

/// The other host. It is gone when this is dropped, at the latest with this process.
pub struct FarHost {
    /// A process in the namespace, which ends once its input is closed. The end of this process closes it, however it ends.
    keeper: Child,
}

impl Drop for FarHost {
    fn drop(&mut self) {
        // `wait` closes its input first.
        let _ = self.keeper.wait();
    }
}

impl FarHost {
    /// Makes one; `None` if this process has no right to, or the kernel cannot.
    pub fn start() -> Option<FarHost> {
        if !rustix::process::geteuid().is_root() {
            // As with a small disk, this is skipped even under CI=true: only root has the right.
            let _ = writeln!(io::stderr(), "skipped: only root can make a network namespace");
            return None;
        }
        let mut unshare = Command::new("unshare");
        let keeper = crate::guard(unshare.args(["--net", "--", "sh"]), "true");
        let host = FarHost { keeper };
        let made = host.connect();
        if let Err(error) = &made {
            // Nor is it made where the kernel lacks what it takes, which nobody can install.
            let _ = writeln!(io::stderr(), "skipped: a network namespace cannot be made: {error}");
        }
        made.is_ok().then_some(host)
    }

    fn connect(&self) -> Result<(), String> {
        let (began, own) = (Instant::now(), fs::read_link("/proc/self/ns/net").ok());
        let namespace = format!("/proc/{}/ns/net", self.keeper.id());
        while fs::read_link(&namespace).is_ok_and(|it| Some(it) == own) {
            if began.elapsed() > Duration::from_secs(10) {
                return Err("`unshare` does not leave this one".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = self.keeper.id();
        self.run(true, "ip link set lo up")?;
        for line in [Line::Clients, Line::Store] {
            let (here, there) = (interface(line, false, pid), interface(line, true, pid));
            let [own, far] = addresses(line, pid);
            self.run(
                false,
                &format!("ip link add {here} type veth peer name {there} netns {pid}"),
            )?;
            for (is_far, interface, address) in [(false, here, own), (true, there, far)] {
                self.run(is_far, &format!("ip address add {address}/30 dev {interface}"))?;
                self.run(is_far, &format!("ip link set {interface} up"))?;
            }
        }
        for how in [SLOW, LOST] {
            let interface = interface(Line::Store, true, pid);
            self.run(true, &format!("tc qdisc replace dev {interface} root {how}"))?;
        }
        self.mend();
        Ok(())
    }

    /// A program that runs there.
    pub fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.keeper.id())).arg("--").arg(program);
        command
    }

    /// The address of a line at this host, and at the other one.
    pub fn addresses(&self, line: Line) -> [Ipv4Addr; 2] {
        addresses(line, self.keeper.id())
    }

    /// What comes over a line, what is sent over it, or both, is [`LOST`] or [`SLOW`] from now on.
    ///
    /// # Panics
    /// If the kernel does not know how.
    #[track_caller]
    pub fn disturb(&self, line: Line, (comes, goes): (bool, bool), how: &str) {
        let pid = self.keeper.id();
        for is_far in [false, true].into_iter().filter(|is_far| if *is_far { goes } else { comes })
        {
            let interface = interface(line, is_far, pid);
            let done = self.run(is_far, &format!("tc qdisc replace dev {interface} root {how}"));
            done.expect("a discipline that the kernel knows");
        }
    }

    /// Undoes [`FarHost::disturb`].
    pub fn mend(&self) {
        for (line, is_far) in
            [Line::Clients, Line::Store].map(|line| [(line, false), (line, true)]).concat()
        {
            let interface = interface(line, is_far, self.keeper.id());
            // Most have none.
            let _ = self.run(is_far, &format!("tc qdisc delete dev {interface} root"));
        }
    }

    /// Runs a command line at one of the hosts.
    fn run(&self, is_far: bool, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let program = OsStr::new(words.next().unwrap_or_default());
        let mut command = if is_far { self.command(program) } else { Command::new(program) };
        let output = command.args(words).output().map_err(|error| format!("{line}: {error}"))?;
        let said = || format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        output.status.success().then_some(()).ok_or_else(said)
    }
}

/// The name of the interface of a line at this host or at the other one.
fn interface(line: Line, is_far: bool, pid: u32) -> String {
    let line = match line {
        Line::Clients => "c",
        Line::Store => "s",
    };
    if is_far { line.to_owned() } else { format!("larder{pid}{line}") }
}

/// Of the range for measurements (RFC 2544), so that none is in use; other tests at the same time have others.
fn addresses(line: Line, pid: u32) -> [Ipv4Addr; 2] {
    let start = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + pid % 16_384 * 8;
    let start = start + if matches!(line, Line::Clients) { 0 } else { 4 };
    [start + 1, start + 2].map(Ipv4Addr::from)
}
