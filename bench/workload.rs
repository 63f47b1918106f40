//! A fixed amount of work, whose instructions `bench/instructions` counts: `workload KIND`.
//!
//! It loads a generated catalogue, packed as a dump is, and asks questions of one kind, or changes packages. The instructions within
//! [`counted_work`] are counted. `workload` without arguments prints the kinds, one a line. The result depends on
//! neither time nor machine nor chance, apart from the seeds of hash tables.

use std::io::Write;

use aur::{Answer, Changes, DumpLimits, Outcome, Params, PathParams, Snapshot};
use flate2::Compression;
use flate2::write::GzEncoder;

const PACKAGES: u32 = 5_000;

/// How many questions of each kind are asked.
const QUESTIONS: usize = 1_000;

/// The number of packages that change, one after another: enough for several merges.
const CHANGES: usize = 500;

/// The kinds of work.
const KINDS: [&str; 7] =
    ["load", "change", "info", "suggest", "search-text", "search-field", "search-too-much"];

/// One piece of work that is counted.
enum Work<'a> {
    /// Reading a dump.
    Load(&'a [u8]),
    /// Changing package bases, one after another, and telling the differences each time.
    Change(Snapshot, &'a [Changes]),
    /// Answering questions, with at most this many packages each.
    Ask(&'a Snapshot, Vec<Params>, usize),
}

/// The result: a snapshot, how many differences there were and how often all was merged, or how many bytes were answered and how
/// many questions refused.
enum Done {
    Loaded(Box<Snapshot>),
    Changed(usize, usize),
    Asked(usize, usize),
}

/// `bench/instructions` looks for this name: no other function's name may contain it.
#[inline(never)]
fn counted_work(work: Work<'_>) -> Done {
    match work {
        Work::Load(dump) => {
            Done::Loaded(Box::new(aur::dump::read(dump, &DumpLimits::default()).expect("a dump")))
        }
        Work::Change(mut snapshot, changes) => {
            let (mut differences, mut merged) = (0, 0);
            for changes in changes {
                let next = snapshot.updated(changes, &DumpLimits::default()).expect("a change");
                let next = next.expect("it changes something");
                differences += next.differences(&snapshot).len();
                snapshot = match next.is_overgrown() {
                    true => next.merged(&Default::default()),
                    false => next,
                };
                merged += usize::from(snapshot.changed_count() == 0);
            }
            Done::Changed(differences, merged)
        }
        Work::Ask(snapshot, questions, results_max) => {
            let (mut bytes, mut refused) = (0, 0);
            for params in questions {
                let answer = Answer::to(params, snapshot, false, results_max);
                bytes += answer.reply.body.len();
                refused += usize::from(matches!(answer.outcome, Outcome::Refused { .. }));
            }
            Done::Asked(bytes, refused)
        }
    }
}

fn main() {
    let Some(kind) = std::env::args().nth(1) else {
        return KINDS.iter().for_each(|kind| println!("{kind}"));
    };
    assert!(KINDS.contains(&kind.as_str()), "`{kind}` is none of {KINDS:?}");
    let mut dump = Vec::new();
    let recipe = demo::Recipe { packages: PACKAGES, seed: 1 };
    demo::write_dump(&recipe, &mut dump, &mut |_| ()).expect("a catalogue");
    if kind == "load" {
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
        packed.write_all(&dump).expect("gzip");
        let packed = packed.finish().expect("gzip");
        let Done::Loaded(snapshot) = counted_work(Work::Load(&packed)) else { return };
        assert_eq!(snapshot.package_count(), PACKAGES);
        return println!("{PACKAGES} packages");
    }
    let snapshot = aur::dump::read(&dump[..], &DumpLimits::default()).expect("a dump");
    let packages: Vec<serde_json::Value> = serde_json::from_slice(&dump).expect("JSON");
    if kind == "change" {
        let changes: Vec<Changes> = (0..CHANGES).map(|at| changed(&packages, at)).collect();
        let Done::Changed(differences, merged) = counted_work(Work::Change(snapshot, &changes))
        else {
            return;
        };
        return println!("{differences} differences, merged {merged} times");
    }
    let results_max = if kind == "search-too-much" { 10 } else { 5_000 };
    // The questions are about packages from all over the catalogue, in no particular order.
    let questions = (0..QUESTIONS).map(|at| {
        let query = query(&kind, at, &packages[at * 1_237 % packages.len()]);
        Params::from_query(PathParams::default(), Some(&query))
    });
    let done = counted_work(Work::Ask(&snapshot, questions.collect(), results_max));
    let Done::Asked(bytes, refused) = done else { return };
    println!("{QUESTIONS} questions, {} bytes on average, {refused} refused", bytes / QUESTIONS);
    assert_eq!(refused, if kind == "search-too-much" { QUESTIONS } else { 0 });
}

/// Change number `at`: one package of a base has one vote more.
fn changed(packages: &[serde_json::Value], at: usize) -> Changes {
    let base = packages[at * 1_237 % packages.len()]["PackageBase"].clone();
    let mut records: Vec<_> =
        packages.iter().filter(|it| it["PackageBase"] == base).cloned().collect();
    records[0]["NumVotes"] = (1_000_000 + at).into();
    let records = serde_json::to_vec(&records).expect("JSON");
    let bases = base.as_str().map(str::to_owned).into_iter().collect();
    Changes { bases, records, ..Changes::default() }
}

/// Question number `at` of this kind, about this package.
fn query(kind: &str, at: usize, package: &serde_json::Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or("nobody");
    let part = |skip: usize, take: usize| -> String {
        text("Name").chars().skip(skip).take(take).collect()
    };
    match kind {
        "info" => format!("v=5&type=info&arg={}", text("Name")),
        "suggest" => format!("v=5&type=suggest&arg={}", part(0, 1 + at % 6)),
        // Needles from the middle of names: some find one package, some hundreds.
        "search-text" => format!("v=5&type=search&arg={:x<4}", part(at % 3, 4 + at % 3)),
        "search-field" => format!("v=5&type=search&by=maintainer&arg={}", text("Maintainer")),
        _ => format!("v=5&type=search&arg={}", ["py", "lib", "-git", "ool"][at % 4]),
    }
}
