//! `larder upgrade-check`: what the first start of this version would change in a store and its data directory.
//!
//! arguments -> [`Command::run`] -> [`state::maintenance::upgrade`] -> a line for each change, and what it means for going back.

use std::fmt::Write as _;
use std::io::Write;

use clap::Args;
use config::Config;
use serde_json::json;
use state::maintenance::{self, Progress, UpgradeReport};
use state::text::counted;

use super::{Answer, Exit, print, runtime};

/// The exit code if something would change, and nothing stands in the way.
const WOULD_CHANGE: u8 = 3;

#[derive(Args)]
pub(super) struct Command {
    #[command(flatten)]
    answer: Answer,
}

impl Command {
    /// Looks, with its output into `out`.
    ///
    /// # Errors
    /// Exit code 3 if a start would change something; 1 if it would not succeed or would leave something out, or if there is
    /// nothing to look at.
    pub(super) fn run(self, config: &Config, out: &mut dyn Write) -> Result<(), Exit> {
        let progress = Progress::on_terminal();
        let report = runtime()?.block_on(maintenance::upgrade(config, &progress))?;
        let text = match self.answer.is_json {
            true => format!("{:#}\n", as_json(&report, config)),
            false => as_text(&report, config),
        };
        print(&text, out)?;
        let UpgradeReport { obstacles, changes, .. } = &report;
        match (obstacles.len() as u64, changes.len() as u64) {
            (0, 0) => Ok(()),
            (0, changes) => Err(Exit::Message {
                code: WOULD_CHANGE,
                text: format!("{} at the first start of this version", counted(changes, "change")),
            }),
            (obstacles, _) => Err(Exit::failure(format!(
                "{}: do not start this version on it",
                counted(obstacles, "obstacle")
            ))),
        }
    }
}

fn as_json(report: &UpgradeReport, config: &Config) -> serde_json::Value {
    json!({
        "version": version::VERSION,
        "database": config.database().to_string(),
        "blobs": config.blobs().to_string(),
        "data_dir": config.data_dir,
        "records": report.records,
        "obstacles": report.obstacles,
        "changes": report.changes,
    })
}

fn as_text(report: &UpgradeReport, config: &Config) -> String {
    let UpgradeReport { records, obstacles, changes } = report;
    let mut text = String::new();
    for obstacle in obstacles {
        let _ = writeln!(text, "obstacle: {obstacle}");
    }
    for change in changes {
        let _ = writeln!(text, "change: {}; going back: {}", change.change, change.going_back);
    }
    if obstacles.is_empty() && changes.is_empty() {
        let _ = writeln!(
            text,
            "larder {} serves {} in {} as they are: nothing would change",
            version::text(),
            counted(*records, "record"),
            config.database()
        );
    }
    text
}
