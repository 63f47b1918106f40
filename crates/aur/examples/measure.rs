//! Measures the engine alone, without a server: `measure DUMP [NEEDLE ..]`.
//!
//! Prints the CPU time of building a snapshot, the resident memory after it, and the time of
//! searches. `valgrind --tool=callgrind` on this program counts instructions; see bench/README.md.

use std::fs::File;
use std::time::Instant;

use aur::{Answer, DumpLimits, Params, PathParams};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: measure DUMP [QUERY ..]");
    let queries: Vec<String> = arguments.collect();
    let started = Instant::now();
    let file = File::open(&path).expect("the dump can be opened");
    let snapshot = aur::dump::read(file, &DumpLimits::default()).expect("a good dump");
    println!(
        "build {:?}: {} packages, {} bases",
        started.elapsed(),
        snapshot.package_count(),
        snapshot.package_base_count()
    );
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        for line in
            status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"))
        {
            println!("{line}");
        }
    }
    for query in &queries {
        let params = Params::from_query(PathParams::default(), Some(query));
        let rounds = 2_000;
        let started = Instant::now();
        let mut body_bytes = 0;
        for _ in 0..rounds {
            body_bytes = Answer::to(params.clone(), &snapshot, false, 5_000).reply.body.len();
        }
        println!("{:>9.2?} {body_bytes:>8} B  {query}", started.elapsed() / rounds);
    }
}
