//! `larder backup`, `restore`, `verify`, `migrate`, `sweep`, `adopt`, `promote` and `rescue`: the store as a whole, by hand.
//!
//! arguments -> [`Command::run`] -> [`state::maintenance`] -> what was done, or every fault.
//! Servers may run at the same time, except on a store that a restore writes.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Subcommand, value_parser};
use config::Config;
use net::ListenAddress;
use source::DataDirLock;
use state::maintenance::{self, BackupReport, CopiedBlobs, Layout, Loss, Progress, RestoreReport};
use state::maintenance::{Adoption, Promotion, ReadRecords, SweepOutcome, SweepPlan, VerifyReport};
use state::text::counted;

use super::{Exit, print, runtime};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Copy the store, as of one moment, into a directory that can be served; servers may run
    Backup {
        /// Where to; blobs that an earlier backup of this store has copied there are not copied again
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Hash the blobs of an earlier backup there again, and replace damaged ones
        #[arg(long)]
        verify: bool,
    },
    /// Bring a backup into the configured store, which must be empty
    Restore {
        /// The backup, or any data directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Restore the rest even if the backup lacks blobs that its records name
        #[arg(long)]
        allow_loss: bool,
    },
    /// Look for faults in every record and every blob; exit code 1 if there are any
    Verify {
        /// Check that blobs exist and have the right size, but do not read them
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        answer: super::Answer,
    },
    /// Bring the records of an earlier version forward, as a start of the server does
    Migrate {
        /// Only look: exit code 1 if there is something to do
        #[arg(long)]
        check: bool,
    },
    /// Delete the blobs that no record names
    Sweep {
        /// Only list them
        #[arg(long)]
        dry_run: bool,
        /// How old a blob must be, instead of store.sweep_grace_seconds; below 3600 only while no server runs
        #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(..=31_536_000))]
        grace: Option<u64>,
        /// Delete them even if they are more than half of all blobs
        #[arg(long)]
        force: bool,
    },
    /// Declare that these blobs belong to these records, whatever store the blobs name and however far it had come; no
    /// server may run on them
    Adopt {
        /// Do so also while other processes are connected to the records: restart them then
        #[arg(long)]
        while_others_run: bool,
    },
    /// Make a follower's data directory a primary's; no server may run on it. Without --yes, only say what would be lost
    Promote {
        /// The data directory, instead of that of the configuration
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Have the running server write what it has in memory into a new store: for when its database is damaged
    Rescue {
        /// Where to; the server writes there, as its user
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Below this age, a blob may belong to an upload that a server on this machine has not committed yet.
const GRACE_BESIDE_SERVERS_MIN: Duration = Duration::from_secs(3_600);

/// The output of a command, and its failure, if it failed.
struct Answer {
    /// The text for stdout.
    text: String,
    /// The text for stderr, if this is a failure.
    failure: Option<String>,
}

impl Command {
    /// Carries out the command, with its output into `out`.
    ///
    /// # Errors
    /// What failed, or the faults that were found, with exit code 1.
    pub(super) fn run(self, config: &Config, out: &mut dyn Write) -> Result<(), Exit> {
        let answer = runtime()?.block_on(act(config, self))?;
        print(&answer.text, out)?;
        answer.failure.map_or(Ok(()), |text| Err(Exit::failure(text)))
    }
}

async fn act(config: &Config, command: Command) -> anyhow::Result<Answer> {
    let progress = Progress::on_terminal();
    match command {
        Command::Backup { directory, verify } => {
            let report = maintenance::backup(config, &directory, verify, &progress).await?;
            Ok(of_backup(&report, &directory.display().to_string()))
        }
        Command::Restore { directory, allow_loss } => {
            let report = maintenance::restore(config, &directory, allow_loss, &progress).await?;
            Ok(of_restore(&report, config))
        }
        Command::Verify { quick, answer } => {
            let store = maintenance::open_existing(config).await?;
            let report = maintenance::verify(&store, quick, &progress).await;
            store.close().await;
            of_verify(&report?, answer.is_json)
        }
        Command::Migrate { check } => migrate(config, check).await,
        Command::Rescue { directory } => rescue(config, &directory).await,
        Command::Adopt { while_others_run } => {
            Ok(of_adoption(&maintenance::adopt(config, while_others_run).await?, config))
        }
        Command::Promote { directory, yes } => {
            let data_dir = directory.unwrap_or_else(|| config.data_dir.clone());
            let config = Config { data_dir, ..config.clone() };
            Ok(of_promotion(&maintenance::promote(&config, yes).await?, &config))
        }
        Command::Sweep { dry_run, grace, force } => {
            let grace = grace.map_or(config.store.sweep_grace, Duration::from_secs);
            // The lock keeps out servers, which may have stored a blob and not yet committed its record.
            let _lock = match !dry_run && grace < GRACE_BESIDE_SERVERS_MIN {
                true => Some(DataDirLock::acquire(&config.data_dir)?),
                false => None,
            };
            let store = maintenance::open_existing(config).await?;
            let plan = SweepPlan { grace, is_dry_run: dry_run, is_forced: force };
            let outcome = maintenance::sweep(&store, plan, &ReadRecords::default()).await;
            store.close().await;
            Ok(of_sweep(&outcome?, plan))
        }
    }
}

/// Asks the server at the admin listener of `config`.
async fn rescue(config: &Config, directory: &Path) -> anyhow::Result<Answer> {
    let Some(key) = &config.admin.key else {
        bail!(
            "the admin listener needs a key (admin.key_file), which the server must have been started with; without \
             one, send it SIGUSR1: it writes into a new directory in its data directory"
        );
    };
    let directory = std::path::absolute(directory)?;
    // A proxy of the environment is for the world outside, not for this server.
    let client = net::build_client(|| match &config.admin.listen {
        ListenAddress::Tcp(_) => reqwest::Client::builder().no_proxy(),
        ListenAddress::Unix(path) => {
            reqwest::Client::builder().no_proxy().unix_socket(path.as_path())
        }
    })?;
    let host = match &config.admin.listen {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(_) => "localhost".to_owned(),
    };
    let mut url = reqwest::Url::parse(&format!("http://{host}/admin/run-job/rescue"))?;
    url.query_pairs_mut().append_pair("directory", &directory.to_string_lossy());
    let request = client.post(url).header("APIKey", key.reveal());
    let response = request.send().await.with_context(|| {
        format!("no server answers at the admin listener, `{}`", config.admin.listen)
    })?;
    let status = response.status();
    let text = response.text().await?;
    match status.is_success() {
        true => Ok(Answer { text: format!("{text}\n"), failure: None }),
        false => bail!("{status}: {text}"),
    }
}

fn of_adoption(adoption: &Adoption, config: &Config) -> Answer {
    let Adoption { identity, before, serial, serial_before, census } = adoption;
    let before = match before {
        Some(before) if *before == identity.to_string() => "as before".to_owned(),
        Some(before) => format!("before: {before}"),
        None => "before: of no store".to_owned(),
    };
    let given_up = serial_before.map_or_else(String::new, |before| {
        format!("; the records are at serial {serial}, and what was written after it up to serial {before} is given up")
    });
    let text = format!(
        "the blobs in `{}` belong to the store {identity} ({before}); {census}, which a sweep deletes once they are \
         {} s old{given_up}\n",
        config.blobs(),
        config.store.sweep_grace.as_secs()
    );
    Answer { text, failure: None }
}

fn of_promotion(promotion: &Promotion, config: &Config) -> Answer {
    let Promotion { note, serial, blobs, blobs_missing, generation } = promotion;
    let directory = config.data_dir.display();
    let mut text = format!(
        "`{directory}` is a copy of {}, the store {}, at serial {serial}\n",
        note.url, note.identity
    );
    let _ = match promotion.commits_lost() {
        0 => writeln!(
            text,
            "no commit is known to be lost: the primary was last heard of at serial {}",
            note.primary_serial
        ),
        lost => writeln!(
            text,
            "{} lost: the primary was at serial {} at {}",
            counted(lost, "commit"),
            note.primary_serial,
            note.heard_at
        ),
    };
    if *blobs_missing > 0 {
        let named = counted(*blobs, "blob");
        let _ = writeln!(
            text,
            "{blobs_missing} of the {named} that its records name were never fetched: they are lost with the primary \
             (`--follow-blobs all` fetches them)"
        );
    }
    let failure = match generation {
        Some(generation) => {
            let _ = writeln!(
                text,
                "it is the primary now, of generation {generation}: start it without `--follow`, and the others with \
                 `--follow` and its URL. The old primary must not take writes any more"
            );
            None
        }
        None => Some("nothing was changed: `--yes` makes it the primary".to_owned()),
    };
    Answer { text, failure }
}

/// Each loss on a line, then their number.
fn losses(lost: &[Loss], consequence: &str) -> Option<String> {
    if lost.is_empty() {
        return None;
    }
    let mut text: String = lost.iter().map(|loss| format!("{loss}\n")).collect();
    let _ = write!(text, "{} lost: {consequence}", counted(lost.len() as u64, "blob"));
    Some(text)
}

/// How many blobs are there, and how many of them were copied now.
fn numbers(blobs: &CopiedBlobs) -> (String, String) {
    let number = |count, bytes| format!("{} ({})", counted(count, "blob"), size(bytes));
    (number(blobs.there, blobs.there_bytes), number(blobs.copied, blobs.copied_bytes))
}

fn of_backup(report: &BackupReport, directory: &str) -> Answer {
    let BackupReport { serial, records, blobs } = report;
    let (records, (there, copied)) = (counted(*records, "record"), numbers(blobs));
    let text = format!(
        "backed up {records} of serial {serial} and {there} into `{directory}`; {copied} copied now\n"
    );
    Answer { text, failure: losses(&blobs.lost, "the backup has everything else") }
}

fn of_restore(report: &RestoreReport, config: &Config) -> Answer {
    let (there, copied) = numbers(&report.blobs);
    let (text, consequence) = if report.is_done {
        let text = format!(
            "restored {} of serial {} into {} and {there}; {copied} copied now into `{}`\n",
            counted(report.records, "record"),
            report.serial,
            config.database(),
            config.blobs(),
        );
        (text, "everything else was restored")
    } else {
        (String::new(), "no record was restored; --allow-loss restores everything else")
    };
    Answer { text, failure: losses(&report.blobs.lost, consequence) }
}

fn of_verify(report: &VerifyReport, is_json: bool) -> anyhow::Result<Answer> {
    let faults = report.faults.len() as u64;
    let text = if is_json {
        format!("{}\n", serde_json::to_string_pretty(report)?)
    } else {
        let mut text: String = report.faults.iter().map(|fault| format!("{fault}\n")).collect();
        let kinds: Vec<String> =
            report.records.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let _ = writeln!(
            text,
            "serial {}; {} ({}), {} of them deletions",
            report.serial,
            counted(report.records.values().sum(), "record"),
            kinds.join(", "),
            report.records_deleted,
        );
        let _ = writeln!(
            text,
            "{} named ({}), {} of them hashed; {} unnamed ({})",
            counted(report.blobs_named, "blob"),
            size(report.blobs_named_bytes),
            report.blobs_hashed,
            report.blobs_unnamed,
            size(report.blobs_unnamed_bytes),
        );
        if faults == 0 {
            text.push_str("no faults\n");
        }
        text
    };
    Ok(Answer { text, failure: (faults > 0).then(|| counted(faults, "fault")) })
}

async fn migrate(config: &Config, is_check: bool) -> anyhow::Result<Answer> {
    let place = config.database();
    let layout = match is_check {
        true => maintenance::layout(config).await?,
        false => maintenance::migrate(config).await?,
    };
    Ok(match layout {
        Layout::Current => {
            let text =
                format!("the records in {place} have the layout of this version: nothing to do\n");
            Answer { text, failure: None }
        }
        Layout::Earlier { found, known } if is_check => {
            let failure = format!(
                "the records in {place} have layout {found}; `larder migrate`, or the next start of a \
                 server, brings them forward to layout {known}"
            );
            Answer { text: String::new(), failure: Some(failure) }
        }
        Layout::Earlier { found, known } => {
            let text =
                format!("brought the records in {place} forward from layout {found} to {known}\n");
            Answer { text, failure: None }
        }
    })
}

fn of_sweep(outcome: &SweepOutcome, plan: SweepPlan) -> Answer {
    let report = &outcome.report;
    let found_bytes = report.unnamed.iter().map(|(_, size_bytes)| size_bytes).sum();
    let found = format!(
        "{} unnamed and older than {} s ({})",
        counted(report.unnamed.len() as u64, "blob"),
        plan.grace.as_secs(),
        size(found_bytes)
    );
    let rest = format!(
        "{} named at serial {}, {} unnamed but younger",
        outcome.named, outcome.serial, report.young
    );
    if outcome.is_refused {
        let failure = format!(
            "{found} of {} in all: more than half, so nothing was deleted. Are these the records that \
             belong to these blobs? `--dry-run` lists what would be deleted, `--force` deletes it",
            counted(report.examined, "blob")
        );
        return Answer { text: String::new(), failure: Some(failure) };
    }
    if plan.is_dry_run {
        let mut unnamed = report.unnamed.clone();
        unnamed.sort_unstable();
        let mut text = String::new();
        for (digest, size_bytes) in unnamed {
            let _ = writeln!(text, "{digest} {size_bytes}");
        }
        let _ = writeln!(text, "{found} would be deleted; {rest}");
        return Answer { text, failure: None };
    }
    let text = format!(
        "deleted {} ({}); {rest}\n",
        counted(report.deleted, "unnamed blob"),
        size(report.bytes_freed)
    );
    Answer { text, failure: None }
}

/// A size for people.
fn size(bytes: u64) -> impl std::fmt::Display {
    indicatif::HumanBytes(bytes)
}
