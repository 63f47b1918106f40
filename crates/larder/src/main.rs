//! The `larder` binary: the command line, and what each command calls.

use std::io;
use std::process::ExitCode;

use demo::Recipe;
use larder::cli::{self, Exit, Invocation};
use larder::config::{Config, Environment, Loaded};
use larder::logging;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let environment = Environment::of_process();
    let done =
        cli::parse(std::env::args_os(), &environment).and_then(|invocation| match invocation {
            Invocation::Offline(offline) => cli::run_offline(offline, &mut io::stdout()),
            Invocation::DemoData { packages, seed, out } => {
                let packages = u32::try_from(packages).unwrap_or(u32::MAX);
                larder::demo::write(&Recipe { packages, seed }, &out)
                    .map_err(|error| Exit::failure(format!("cannot write the catalogue: {error}")))
            }
            Invocation::Accounts(request) => {
                log_changes(request.config(), &environment)?;
                cli::accounts::run(request, &mut io::stdout())
            }
            Invocation::Keeping(request) => cli::keeping::run(request, &mut io::stdout()),
            Invocation::Import(request) => {
                request.config().map_or(Ok(()), |config| log_changes(config, &environment))?;
                cli::import::run(request, &mut io::stdout())
            }
            Invocation::Index(request) => {
                request.config().map_or(Ok(()), |config| log_changes(config, &environment))?;
                cli::index::run(request, &mut io::stdout())
            }
            Invocation::Release(request) => {
                request.config().map_or(Ok(()), |config| log_changes(config, &environment))?;
                cli::release::run(request, &mut io::stdout())
            }
            Invocation::Serve(loaded) => serve(*loaded, &environment),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

/// What a command changes is in the security log, if that has a file.
fn log_changes(config: &Config, environment: &Environment) -> Result<(), Exit> {
    logging::init_command(config, environment).map_err(Exit::failure)
}

fn serve(loaded: Loaded, environment: &Environment) -> Result<(), Exit> {
    logging::init(&loaded.config, environment).map_err(Exit::failure)?;
    // Before there are threads: it takes its variables out of the environment.
    let handed_over = net::sockets_from_systemd().map_err(Exit::failure)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if loaded.config.workers > 0 {
        runtime.worker_threads(loaded.config.workers);
    }
    let runtime = runtime
        .enable_all()
        .thread_name("larder")
        .build()
        .map_err(|error| Exit::failure(format!("cannot start threads: {error}")))?;
    runtime
        .block_on(larder::run(loaded, handed_over))
        .map_err(|error| Exit::failure(format!("{error:#}")))
}
