//! [`ToxOutcomes`]: a cache of how test results ended, so that a page that counts them reads each of them once.
//!
//! the digest of a result -> memory, or the result that a caller has read -> [`Outcome`], its runs -> [`ToxTally`] of all results of a
//! file: the newest run of each environment counts. A result never changes, so nothing here is out of date.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use pypi::devpi::{ToxReport, ToxStatus};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use record::Digest;
use resources::turns::Turns;

/// Memory for outcomes, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Approximate cost of an entry besides its runs.
const ENTRY_BYTES: usize = 128;

/// Runs of one result that count: tox may run an environment for each Python and each set of dependencies.
const RUNS_MAX: usize = 200;

/// Results that are read at once.
const READING_MAX: usize = 2;

/// The runs of one result: a number for the environment on its machine, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome(Box<[(u64, ToxStatus)]>);

/// How the newest runs of all environments ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToxTally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Those that ran no test, and results that tox did not write.
    pub(crate) unknown: usize,
}

#[derive(Clone)]
struct Weights;

impl Weighter<Digest, Arc<Outcome>> for Weights {
    fn weight(&self, _: &Digest, outcome: &Arc<Outcome>) -> u64 {
        (ENTRY_BYTES + size_of_val(&*outcome.0)) as u64
    }
}

/// The outcomes that are known.
pub(crate) struct ToxOutcomes {
    known: Cache<Digest, Arc<Outcome>, Weights>,
    /// Turns to read results: each takes some megabytes.
    pub(crate) reading: Turns,
}

impl Default for ToxOutcomes {
    fn default() -> ToxOutcomes {
        let known = Cache::with_weighter(10_000, BYTES_MAX, Weights);
        ToxOutcomes { known, reading: Turns::new(READING_MAX) }
    }
}

impl ToxOutcomes {
    /// How the result with this digest ended, if that is known.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Outcome>> {
        self.known.get(digest)
    }

    /// Keeps how it ended, by this report if tox wrote it.
    pub(crate) fn keep(&self, digest: &Digest, report: Option<&ToxReport>) -> Arc<Outcome> {
        let outcome = Arc::new(Outcome::of(digest, report));
        self.known.insert(*digest, outcome.clone());
        outcome
    }
}

impl Outcome {
    fn of(digest: &Digest, report: Option<&ToxReport>) -> Outcome {
        let Some(report) = report else {
            return Outcome(Box::new([(number(&digest.as_bytes()), ToxStatus::Unknown)]));
        };
        let run = |name: &String| number(&(&report.host, &report.platform, name));
        let runs = report.environments.iter().take(RUNS_MAX);
        Outcome(runs.map(|it| (run(&it.envname), it.status)).collect())
    }

    /// How many runs it has.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }
}

fn number(of: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl ToxTally {
    /// Of the results of one file, newest first.
    pub(crate) fn of(outcomes: &[Arc<Outcome>]) -> ToxTally {
        let (mut seen, mut tally) = (HashSet::new(), ToxTally::default());
        for (environment, status) in outcomes.iter().flat_map(|outcome| &outcome.0) {
            if seen.insert(*environment) {
                *match status {
                    ToxStatus::Passed => &mut tally.passed,
                    ToxStatus::Failed => &mut tally.failed,
                    ToxStatus::Unknown => &mut tally.unknown,
                } += 1;
            }
        }
        tally
    }

    /// All of them together.
    pub(crate) fn and(self, other: ToxTally) -> ToxTally {
        ToxTally {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            unknown: self.unknown + other.unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the machine `host`, with environments that passed, failed or did nothing.
    fn report(host: &str, environments: &[(&str, &str)]) -> ToxReport {
        let environment = |(name, status): &(&str, &str)| match *status {
            "" => format!("\"{name}\": {{}}"),
            status => format!("\"{name}\": {{\"test\": [{{\"retcode\": {status}}}]}}"),
        };
        let environments: Vec<String> = environments.iter().map(environment).collect();
        let environments = format!("{{{}}}", environments.join(", "));
        let text = format!(
            "{{\"host\": \"{host}\", \"platform\": \"linux\", \"testenvs\": {environments}}}"
        );
        ToxReport::parse(text.as_bytes()).expect("a report")
    }

    fn outcome(host: &str, environments: &[(&str, &str)]) -> Arc<Outcome> {
        let report = report(host, environments);
        Arc::new(Outcome::of(&Digest::of(b"x"), Some(&report)))
    }

    #[test]
    fn the_newest_run_of_an_environment_counts() {
        let tally = |outcomes: &[Arc<Outcome>]| {
            let ToxTally { passed, failed, unknown } = ToxTally::of(outcomes);
            (passed, failed, unknown)
        };
        let newer = outcome("one", &[("py311", "0"), ("py312", "1")]);
        let older = outcome("one", &[("py311", "1"), ("py313", "0"), ("docs", "")]);
        let elsewhere = outcome("two", &[("py311", "1")]);
        assert_eq!(tally(&[]), (0, 0, 0));
        assert_eq!(tally(&[newer.clone(), older.clone()]), (2, 1, 1));
        assert_eq!(tally(&[older.clone(), newer.clone()]), (1, 2, 1));
        assert_eq!(tally(&[newer, older, elsewhere]), (2, 2, 1));
        let none = [b"a", b"b"].map(|bytes| Arc::new(Outcome::of(&Digest::of(bytes), None)));
        assert_eq!(tally(&none), (0, 0, 2));
    }

    #[test]
    fn runs_and_memory_are_bounded() {
        let names: Vec<String> = (0..RUNS_MAX + 5).map(|at| format!("e{at}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "0")).collect();
        let many = report("one", &many);
        let known = ToxOutcomes::default();
        let kept = known.keep(&Digest::of(b""), Some(&many));
        assert_eq!((kept.runs(), ToxTally::of(&[kept]).passed), (RUNS_MAX, RUNS_MAX));
        let digests = (0..4_000_u32).map(|at| Digest::of(&at.to_be_bytes()));
        for digest in digests.clone() {
            known.keep(&digest, Some(&many));
        }
        let kept = digests.filter(|digest| known.find(digest).is_some()).count();
        assert!((1..=BYTES_MAX as usize / (16 * RUNS_MAX)).contains(&kept), "{kept}");
    }
}
