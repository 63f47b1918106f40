//! [`FileTests`]: how many tests of a release file passed and failed, as far as that is known soon.
//!
//! files of a version -> the newest results of each, from the published state -> how each ended, from memory, or read within the
//! bounds of [`ReadingBudget`] -> a [`ToxTally`] for each file. What was not read in time is only counted, and the next reader finds more.

use std::collections::HashMap;

use pypi::{ReleaseFile, VersionView};

use crate::front::display::{self, in_path};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::tox_results::{RESULTS_MAX, ReadingBudget};
use crate::published::tox_outcomes::ToxTally;

/// Runs that are counted for one page.
const RUNS_MAX: usize = 20_000;

/// The test results of a file.
pub(super) struct FileTests {
    pub(super) url: String,
    /// How many there are.
    results: usize,
    /// How the newest ended; `None` if that is not known yet.
    pub(super) tally: Option<ToxTally>,
}

impl FileTests {
    /// All but how many failed, in words.
    pub(super) fn said(&self) -> String {
        match &self.tally {
            None => display::count(self.results, "test result", "test results"),
            Some(tally) => format!("tests: {}", all_but_failed(tally)),
        }
    }
}

/// `3 passed, 1 without an outcome`
pub(super) fn all_but_failed(tally: &ToxTally) -> String {
    match tally.unknown {
        0 => format!("{} passed", tally.passed),
        unknown => format!("{} passed, {unknown} without an outcome", tally.passed),
    }
}

/// All files together; `None` without any of which it is known.
pub(super) fn sum<'a>(tested: impl Iterator<Item = &'a FileTests>) -> Option<ToxTally> {
    tested.filter_map(|tested| tested.tally).reduce(ToxTally::and)
}

/// What is known of these files of a version of `name`, each with the index that has it; `None` for a file without results.
pub(super) async fn of_files(
    ask: &Ask,
    name: &str,
    shown: &VersionView<'_>,
    files: &[(&str, &str)],
    prefix: &str,
) -> Vec<Option<FileTests>> {
    // One pass over all files of the project, however many of these have results.
    let listed = files.iter().map(|file| (*file, Vec::new()));
    let mut found: HashMap<(&str, &str), Vec<&ReleaseFile>> = listed.collect();
    for part in &shown.parts {
        for result in part.project.files() {
            let of = result.for_file().map(|of| (part.stage.name().as_str(), of));
            if let Some(results) = of.and_then(|of| found.get_mut(&of)) {
                results.push(result);
            }
        }
    }
    let version = in_path(shown.version.as_str());
    let (mut reading, mut runs_left) = (ReadingBudget::new(), RUNS_MAX);
    let mut tested = Vec::with_capacity(files.len());
    for file in files {
        let results = found.remove(file).unwrap_or_default();
        if results.is_empty() {
            tested.push(None);
            continue;
        }
        let (place, filename) = (in_path(file.0), in_path(file.1));
        let url = format!("{prefix}/{place}/{name}/{version}/+toxresults/{filename}");
        let count = results.len();
        let tally = tally(ask, results, &mut reading, &mut runs_left).await;
        tested.push(Some(FileTests { url, results: count, tally }));
    }
    tested
}

async fn tally(
    ask: &Ask,
    mut results: Vec<&ReleaseFile>,
    reading: &mut ReadingBudget,
    runs_left: &mut usize,
) -> Option<ToxTally> {
    results.sort_by_key(|file| std::cmp::Reverse((file.uploaded_at(), file.serial())));
    let mut outcomes = Vec::new();
    for result in results.iter().take(RESULTS_MAX) {
        let outcome = reading.outcome(ask, result).await?;
        *runs_left = runs_left.checked_sub(outcome.runs())?;
        outcomes.push(outcome);
    }
    Some(ToxTally::of(&outcomes))
}
