//! What is done to the servers, the database and the object store while clients work.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use testbed::{FarHost, LOST, Line, Postgres, S3, SLOW, SilentProxy, SmallDisk};

use super::super::Place;
use super::super::clocks::ahead;
use super::clients::Run;
use super::record::Random;
use crate::process::Process;

/// The process that has a host of its own.
const FAR: usize = 1;

/// The servers of a run, each in a data directory of its own.
pub(super) struct Fleet {
    directory: Arc<TempDir>,
    blobs: String,
    /// The database of each process: the last one reaches its own through a proxy.
    databases: Vec<String>,
    /// The host of process [`FAR`], where this process may make one.
    pub(super) far: Option<FarHost>,
    variables: Vec<(&'static str, String)>,
    pub(super) processes: Vec<Option<Process>>,
    /// How often each was started.
    runs: Vec<u32>,
}

impl Fleet {
    /// Servers of a place, not started.
    pub(super) fn new(place: &Place, databases: Vec<String>) -> Fleet {
        Fleet {
            directory: place.directory.clone(),
            blobs: place.blobs.clone(),
            variables: place.variables.clone(),
            processes: databases.iter().map(|_| None).collect(),
            runs: vec![0; databases.len()],
            databases,
            far: None,
        }
    }

    /// Starts a process, with a clock that is ahead if it says so, and tells the clients.
    pub(super) fn start(&mut self, run: &Run, number: usize, ahead_by: Option<&str>) {
        let mut arguments = vec!["--aur-enabled=false", "--database", &self.databases[number]];
        arguments.extend(["--blobs", &self.blobs, "--store-wait-for-serial-seconds", "10"]);
        arguments.extend(["--store-free-bytes-min", "0"]);
        let mut variables = self.variables.clone();
        variables.extend(ahead_by.and_then(ahead).unwrap_or_default());
        let data = format!("data{number}");
        let (directory, far) = (self.directory.clone(), self.far.as_ref());
        let far = far.filter(|_| number == FAR);
        let process = Process::start_at(far, directory, &data, &arguments, &variables);
        self.runs[number] += 1;
        let address = Some((process.client.address, self.runs[number]));
        let mut servers = run.servers.lock().expect("no panic");
        servers.resize(self.processes.len(), None);
        servers[number] = address;
        self.processes[number] = Some(process);
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self, run: &Run, number: usize) {
        run.servers.lock().expect("no panic")[number] = None;
        self.processes[number] = None;
    }

    /// Kills and starts all that is wrong with a process: its clock may be ahead from now on, or right again.
    fn restart(&mut self, run: &Run, number: usize, ahead_by: Option<&str>) {
        run.recorder.fault("kill -9");
        if ahead_by.is_some() {
            run.recorder.fault("a clock that is ahead");
        }
        self.kill(run, number);
        self.start(run, number, ahead_by);
    }
}

/// Waits, so that clients work meanwhile.
fn pause(random: &mut Random, milliseconds_max: u64) {
    std::thread::sleep(Duration::from_millis(random.below(milliseconds_max)));
}

/// The faults of one server on SQLite, one after the other. `disk` holds its records and files, where this process may mount one.
pub(super) fn of_one(
    run: &Run,
    fleet: &mut Fleet,
    disk: Option<&SmallDisk>,
    random: &mut Random,
    round: u64,
) {
    match (round % 4, disk) {
        (2, Some(disk)) => {
            run.recorder.fault("a full disk");
            disk.fill();
            pause(random, 1_500);
            // In every other such round it is full when a server ends and when the next one starts.
            if round % 8 == 2 {
                fleet.restart(run, 0, None);
                pause(random, 500);
            }
            disk.make_room();
        }
        (turn, _) => fleet.restart(run, 0, (turn == 1).then_some("+1d")),
    }
    pause(random, 2_500);
}

/// The faults of three processes on PostgreSQL and an object store.
pub(super) fn of_fleet(
    run: &Run,
    fleet: &mut Fleet,
    (postgres, s3, proxy): (&Postgres, &S3, &SilentProxy),
    random: &mut Random,
    round: u64,
) {
    match round % 8 {
        0 => fleet.restart(run, random.below(3) as usize, None),
        1 => {
            run.recorder.fault("a database that ends at once");
            postgres.crash();
            pause(random, 500);
            postgres.resume();
        }
        2 => {
            run.recorder.fault("a line to the database that falls silent");
            proxy.drop_silently();
        }
        3 => {
            if let Some(far) = &fleet.far {
                disturb(run, far, random);
            }
        }
        4 => {
            run.recorder.fault("an object store that is away");
            s3.crash();
            pause(random, 1_500);
            s3.resume();
        }
        5 => {
            run.recorder.fault("a database that fails over to its standby");
            fail_over(postgres, random);
        }
        6 => {
            run.recorder.fault("a database that stands still");
            let frozen = postgres.freeze();
            pause(random, 2_500);
            drop(frozen);
        }
        // An object store accepts only clocks that are nearly right.
        _ => fleet.restart(run, random.below(3) as usize, Some("+10m")),
    }
    pause(random, 2_500);
}

/// A line of one process loses what goes one way, or both, or is slow for a while. Clients may still reach it while it does not reach
/// the store, and the other way round.
fn disturb(run: &Run, far: &FarHost, random: &mut Random) {
    let (line, name) =
        [(Line::Store, "store"), (Line::Clients, "clients")][random.below(2) as usize];
    let (ways, how) = [
        ((true, true), "cut"),
        ((true, false), "cut where it comes"),
        ((false, true), "cut where it goes"),
        ((true, true), "slow"),
    ][random.below(4) as usize];
    run.recorder.fault(&format!("the network of one process, to its {name}: {how}"));
    far.disturb(line, ways, if how == "slow" { SLOW } else { LOST });
    // The database ends a session of which it has not heard for ten seconds.
    pause(random, if super::is_long() { 15_000 } else { 3_000 });
    far.mend();
}

/// The primary ends. Its standby has everything up to some moment, gets the rest of the log, and becomes the primary.
fn fail_over(postgres: &Postgres, random: &mut Random) {
    postgres.stop();
    postgres.keep_copy();
    postgres.resume();
    pause(random, 1_500);
    postgres.stop();
    postgres.become_standby_at_copy();
    postgres.resume();
    pause(random, 500);
    postgres.send_standby_the_rest();
    postgres.promote();
}
