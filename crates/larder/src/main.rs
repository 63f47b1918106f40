//! The `larder` binary: the command line is read, and the server runs or a command does.

use std::io;
use std::process::ExitCode;

use cli::{Exit, Invocation, Server};
use config::{Environment, LoadedConfig};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Threads for work that blocks, besides the workers. Further work waits in a queue. Most of it reads a piece of a file, and clients
/// can ask for thousands of pieces at once. Such work must not wait for other work that blocks.
const BLOCKING_THREADS_MAX: usize = 64;

/// What commands need of the server.
const OF_SERVER: Server = Server {
    check_files: larder::app::check_files,
    export_site: |config, export| Box::pin(larder::export_site(config, export)),
};

fn main() -> ExitCode {
    let environment = Environment::of_process();
    let invocation = cli::parse(std::env::args_os(), &environment);
    let done = invocation.and_then(|invocation| match invocation {
        Invocation::Serve(loaded) => serve(*loaded, &environment),
        Invocation::Other(request) => request.run(&mut io::stdout(), OF_SERVER),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

fn serve(loaded: LoadedConfig, environment: &Environment) -> Result<(), Exit> {
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
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| Exit::failure(format!("cannot start threads: {error}")))?;
    runtime
        .block_on(larder::run(loaded, handed_over))
        .map_err(|error| Exit::failure(format!("{error:#}")))
}
