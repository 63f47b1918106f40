//! Removes old versions from the stages of the Python index that have a retention rule, at intervals.
//!
//! a pause of `python.retention_interval_seconds` -> each stage's [`RetentionRule`] -> a plan on the state as it is -> one
//! batch a stage -> metrics and a log line. Any number of processes may do so on one store: a batch names what it was decided
//! on, so of two that meet one is committed, and the other finds nothing left to remove. `+retention?dry_run` tells what a rule
//! would remove before it is in a stage's configuration.

use std::sync::Arc;
use std::time::Duration;

use operations::releases::RemoveOldVersions;
use operations::{Refusal, Rule, Sender, carry_out_long};
use pypi::change::retention::{Removal, RetentionRule};
use pypi::{ChangeError, StageName};

use crate::app::App;

/// The longest pause before the first run: a process that is restarted daily applies rules as well.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(600);

/// How many removed versions a log line names.
const NAMED_MAX: usize = 10;

/// Applies the rules from time to time; returns at once if retention or the Python index is switched off. Cut off anywhere, each
/// stage is either unchanged or as its rule wants it.
pub async fn run(app: Arc<App>) {
    let interval = app.config.python.retention_interval;
    if interval.is_zero() || !app.config.python.enabled {
        return;
    }
    let mut pause = interval.min(FIRST_PAUSE_MAX);
    loop {
        tokio::time::sleep(pause).await;
        apply(&app).await;
        pause = interval;
    }
}

/// Applies every stage's rule once. If a stage cannot be changed, that is logged, and the others are still changed.
pub async fn apply(app: &App) {
    // Without a snapshot of the whole store there is nothing to decide on.
    let Some(stored) = app.live_store.snapshot_full() else { return };
    let is_ruled = |rule: &RetentionRule| !rule.is_empty() && !rule.keeps_nothing();
    let stages =
        stored.index.stages().map(|stage| (stage.name().clone(), RetentionRule::of(stage)));
    let stages: Vec<_> = stages.filter(|(_, rule)| is_ruled(rule)).collect();
    drop(stored);
    let needs_clock = stages.iter().any(|(_, rule)| rule.days.is_some());
    let checked = if needs_clock { app.health.clocks.check().await } else { Ok(()) };
    let is_clock_wrong = checked.is_err();
    if let Err(error) = checked {
        let error = format!("{error:#}");
        tracing::warn!(%error, "old versions are not removed by age");
    }
    for (stage, rule) in stages {
        if rule.days.is_some() && is_clock_wrong {
            app.metrics.python.retention_failed();
            continue;
        }
        match apply_to(app, &stage).await {
            Ok(removals) if removals.is_empty() => {}
            Ok(removals) => {
                let bytes: u64 = removals.iter().map(|removal| removal.size_bytes).sum();
                let files: usize = removals.iter().map(|removal| removal.filenames.len()).sum();
                app.metrics.python.versions_removed(removals.len() as u64, bytes);
                let versions = removals.len();
                let named = named(&removals);
                tracing::info!(%stage, versions, files, bytes, %named, "removed old versions by the stage's rule");
            }
            Err(error) => {
                app.metrics.python.retention_failed();
                tracing::warn!(%stage, %error, "old versions cannot be removed");
            }
        }
    }
}

/// Applies the stage's current rule; returns what it removed.
async fn apply_to(app: &App, name: &StageName) -> Result<Vec<Removal>, Refusal> {
    let removing = RemoveOldVersions { stage: name.clone(), rule: None, is_dry: false };
    match carry_out_long(&mut app.keeper(), &Sender::Server, &removing).await {
        Ok(done) => Ok(done.outcome.1),
        // The index, or its rule, was removed meanwhile.
        Err(Refusal::Rule(
            Rule::KeepsNothing
            | Rule::NoRetention
            | Rule::Index(ChangeError::NoStage(_) | ChangeError::Mirror(_)),
        )) => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}

/// `foo 1.0, foo 1.1 and 3 more`
fn named(removals: &[Removal]) -> String {
    let names = removals.iter().take(NAMED_MAX);
    let names: Vec<String> = names.map(|it| format!("{} {}", it.project, it.version)).collect();
    let names = names.join(", ");
    match removals.len().saturating_sub(NAMED_MAX) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use pypi::ProjectName;

    use super::*;

    #[test]
    fn a_log_line_names_a_few() {
        #[track_caller]
        fn check(count: usize, expected: &str) {
            let removal = |number: usize| Removal {
                project: ProjectName::normalize("foo").expect("a name"),
                version: format!("{number}.0"),
                filenames: Vec::new(),
                size_bytes: 0,
            };
            let removals: Vec<Removal> = (0..count).map(removal).collect();
            assert_eq!(named(&removals), expected);
        }
        check(2, "foo 0.0, foo 1.0");
        let ten = "foo 0.0, foo 1.0, foo 2.0, foo 3.0, foo 4.0, foo 5.0, foo 6.0, foo 7.0, foo 8.0, foo 9.0";
        check(10, ten);
        check(13, &format!("{ten} and 3 more"));
    }
}
