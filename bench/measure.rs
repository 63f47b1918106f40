//! Measures the engine alone, without a server: `measure DUMP [QUERY|@FILE|gzip:QUERY|gzip:@FILE ..]`.
//!
//! Prints the CPU time of building a snapshot, the resident memory after that, and the mean CPU time of each query. A
//! file has one query a line; they are asked in turn over and over, so that none finds its data in the processor's
//! caches. With `gzip:` before it, each answer is compressed as well. Even CPU time varies with the other load on the machine. The instructions that are counted for every
//! change are those of the `workload` example, see bench/README.md.

use std::fs::File;
use std::time::Duration;

use aur::{Answer, DumpLimits, Params, PathParams};
use reply::Encoding;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path =
        arguments.next().expect("usage: measure DUMP [QUERY|@FILE|gzip:QUERY|gzip:@FILE ..]");
    let started = cpu_time();
    let file = File::open(&path).expect("the dump can be opened");
    let snapshot = aur::dump::read(file, &DumpLimits::default()).expect("a good dump");
    println!(
        "build {:?}: {} packages, {} bases",
        cpu_time() - started,
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
    for argument in arguments {
        let (is_gzip, asked) = match argument.strip_prefix("gzip:") {
            Some(asked) => (true, asked),
            None => (false, argument.as_str()),
        };
        let (queries, rounds) = match asked.strip_prefix('@') {
            Some(path) => {
                let text = std::fs::read_to_string(path).expect("a file of queries");
                (text.lines().map(str::to_owned).collect(), 10)
            }
            None => (vec![asked.to_owned()], 2_000),
        };
        let started = cpu_time();
        let mut body_bytes = 0;
        for _ in 0..rounds {
            for query in &queries {
                let params = Params::from_query(PathParams::default(), Some(query));
                let params = if is_gzip { params.outlined() } else { params };
                let reply = Answer::to(params, &snapshot, false, 5_000).reply;
                let encoding = if is_gzip { Encoding::Gzip } else { Encoding::Identity };
                body_bytes += reply.encoded(encoding).len();
            }
        }
        let count = rounds * queries.len();
        let mean = (cpu_time() - started) / count as u32;
        println!("{mean:>9.2?} {:>8} B  {argument}", body_bytes / count);
    }
}

/// The CPU time of this process's only thread so far; zero if the system does not report it.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}
