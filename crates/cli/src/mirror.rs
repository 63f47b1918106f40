//! `larder export-mirror` and `import-mirror`: carry the cache of a mirror to a machine that cannot reach the upstream.
//!
//! The stage is looked up in the store, since its upstream decides where its cache is; then [`mirrors`] does the rest.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use config::Config;
use mirrors::{Budget, Mirror, Mirrors, TransferReport, export};
use pypi::{Stage, StageName};
use source::DataDirLock;
use state::maintenance::Progress;

use super::directory::{Directory, Purpose};
use super::{Exit, print, runtime};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Write what is cached of a mirror into a directory: pages, the list of projects, files; a server may run meanwhile, and
    /// it can be run again to add what is new
    ExportMirror {
        /// The mirror
        #[arg(value_name = "USER/INDEX")]
        mirror: StageName,
        /// The directory: empty, new, or an earlier export of the same upstream
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Take what `export-mirror` wrote into the cache of a mirror, while no server runs on the data directory; every file is
    /// compared with its digest, and it can be run again
    ImportMirror {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The mirror, which exists already
        #[arg(long, value_name = "USER/INDEX")]
        index: StageName,
    },
}

impl Command {
    /// Copies, and prints how much.
    ///
    /// # Errors
    /// What could not be done, and what was left out.
    pub(super) fn run(self, config: &Config, out: &mut dyn Write) -> Result<(), Exit> {
        let (Command::ExportMirror { mirror: name, .. }
        | Command::ImportMirror { index: name, .. }) = &self;
        let asked = name.clone();
        let finding =
            Directory::with(config, Purpose::ShowAll, async |directory: &mut Directory| {
                Ok(directory.index().stage(asked.as_str()).cloned())
            });
        let stage = runtime()?.block_on(finding)?;
        let stage = stage.ok_or_else(|| Exit::failure(format!("there is no index {name}")))?;
        let mirror = mirror(config, &stage)?;
        let cache = config.data_dir.join("mirrors");
        let progress = Progress::on_terminal();
        progress.begin_counted("pages", pages_of(&self, &cache));
        let mut step = || progress.step();
        let done = match &self {
            Command::ExportMirror { directory, .. } => {
                export(&cache, &mirror, directory, &mut step)
            }
            Command::ImportMirror { directory, .. } => {
                // A running server keeps the cache's index in memory, and would not see additions.
                let _lock = DataDirLock::acquire(&config.data_dir).map_err(Exit::failure)?;
                let mirrors = Mirrors::open(&cache, budget(config), net::Egress::default());
                mirrors.and_then(|mirrors| mirrors.import(&mirror, directory, &mut step))
            }
        };
        progress.end();
        tell(&done?, out)
    }
}

/// The bounds of the cache in this configuration.
fn budget(config: &Config) -> Budget {
    Budget {
        memory_bytes_max: config.python.mirror_memory_bytes_max,
        disk_bytes_max: config.python.mirror_disk_bytes_max,
        free_bytes_min: config.store.free_bytes_min,
        expiry: config.python.mirror_cache_expiry,
        is_offline: config.python.mirrors_offline,
    }
}

fn mirror(config: &Config, stage: &Stage) -> Result<Mirror, Exit> {
    Mirror::new(stage, config.python.mirror_cache_expiry).ok_or_else(|| {
        Exit::failure(format!(
            "{} is no mirror, or has no `mirror_url`: `larder index list` shows which are",
            stage.name()
        ))
    })
}

/// About how many pages there are, for the bar.
fn pages_of(command: &Command, cache: &Path) -> u64 {
    let directory = match command {
        Command::ExportMirror { .. } => cache.to_owned(),
        Command::ImportMirror { directory, .. } => directory.join("pages"),
    };
    std::fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

fn tell(carried: &TransferReport, out: &mut dyn Write) -> Result<(), Exit> {
    let TransferReport { pages, pages_there, files, files_there, bytes, problems, problem_count } =
        carried;
    let there = |count: &u64| match count {
        0 => String::new(),
        count => format!(" ({count} there already)"),
    };
    let text = format!(
        "pages: {pages}{}, files: {files}{}, bytes copied: {bytes}\n",
        there(pages_there),
        there(files_there)
    );
    print(&text, out)?;
    if problems.is_empty() {
        return Ok(());
    }
    let mut text = problems.join("\n");
    text.push_str(&format!("\n{problem_count} left out"));
    Err(Exit::failure(text))
}
