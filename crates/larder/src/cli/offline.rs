//! What needs neither a server nor a store: the configuration checked and shown, completions, the man page, the version,
//! and a running server asked whether it is ready.

use std::io::{self, Write};

use clap::{Arg, Command};

use super::{Exit, Healthcheck, Offline, command, print};
use crate::config::{self, AurSource, Loaded};
use crate::version;

/// Does what needs no server, with its output into `out`.
///
/// # Errors
/// What went wrong, with the exit code. A reader of `out` that has gone away is no error.
pub fn run_offline(offline: Offline, out: &mut dyn Write) -> Result<(), Exit> {
    let text = match offline {
        Offline::ConfigCheck(loaded) => check(&loaded)?,
        Offline::ConfigShow(loaded) => config::show(&loaded),
        Offline::ConfigInit => config::template(),
        Offline::ConfigDocs => config::docs(),
        Offline::ConfigImportGoaurrpc(path) => {
            let problem = |text: String| Exit::Message {
                code: 78,
                text: format!("{}: {text}", path.display()),
            };
            let json = std::fs::read_to_string(&path)
                .map_err(|error| problem(format!("cannot be read: {error}")))?;
            config::import_goaurrpc(&json).map_err(problem)?
        }
        Offline::Completions(shell) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "larder", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
        Offline::Man => man()?,
        Offline::Healthcheck(healthcheck) => ask(&healthcheck)?,
        Offline::Version { json } => version(json),
    };
    print(&text, out)
}

/// What `config check` says about a valid configuration: the warnings, and files that it names but that are not there.
fn check(loaded: &Loaded) -> Result<String, Exit> {
    let config = &loaded.config;
    let mut missing = Vec::new();
    if let Some((certificate, key)) = config.tls.files() {
        for (name, path) in [("tls.certificate", certificate), ("tls.key", key)] {
            if let Err(error) = std::fs::File::open(path) {
                missing.push(format!("{name} = {:?}: {error}", path.display().to_string()));
            }
        }
    }
    if !missing.is_empty() {
        return Err(Exit::Message { code: 78, text: missing.join("\n") });
    }
    let mut warnings = loaded.warnings.clone();
    if let Some(AurSource::File(path)) = &config.aur.source
        && !path.exists()
    {
        // The file may appear later: the server waits for it.
        warnings.push(format!("aur.source = {:?} does not exist yet", path.display().to_string()));
    }
    let warnings: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    let file = loaded
        .file
        .as_ref()
        .map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    Ok(format!("{warnings}the configuration is valid ({file})\n"))
}

/// One man page for the program: the flags of `serve`, which is what it does by default, and the other commands below.
fn man() -> Result<String, Exit> {
    let mut page = command();
    for key in config::keys() {
        page = page.mut_arg(key.path(), |arg| arg.hide(false));
    }
    page.build();
    let mut roff = Vec::new();
    let man = clap_mangen::Man::new(page.clone());
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    writeln!(
        roff,
        ".SH SYNOPSIS\n\\fBlarder\\fR [\\fBserve\\fR] [\\fIOPTIONS\\fR]\n.br\n\\fBlarder\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    )?;
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    writeln!(roff, ".SH COMMANDS")?;
    describe_commands(&page, &mut roff)?;
    writeln!(
        roff,
        ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nFailure.\n.TP\n2\nWrong command line.\n.TP\n78\nBad configuration.\n\
        .SH SIGNALS\n.TP\nSIGTERM, SIGINT\nNot ready at once; open requests are finished, then the process ends.\n\
        .TP\nSIGHUP\nThe configuration and the data are read again.\n\
        .TP\nSIGUSR1\nWhat is in memory of the store is written into a new directory in the data directory."
    )?;
    Ok(String::from_utf8_lossy(&roff).into_owned())
}

/// The commands below `parent` with their arguments, as roff.
fn describe_commands(parent: &Command, roff: &mut Vec<u8>) -> io::Result<()> {
    for command in parent
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        if command.has_subcommands() {
            describe_commands(command, roff)?;
            continue;
        }
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(roff, ".TP\n\\fB{usage}\\fR\n{about}.")?;
        // The flags of the configuration are above.
        let is_own = |arg: &&Arg| {
            !arg.is_hide_set() && !config::keys().any(|key| arg.get_id().as_str() == key.path())
        };
        for arg in command
            .get_arguments()
            .filter(is_own)
            .filter(|arg| arg.get_id() != "help" && arg.get_id() != "config")
        {
            if let (Some(long), Some(help)) = (arg.get_long(), arg.get_help()) {
                writeln!(roff, ".br\n\\fB\\-\\-{}\\fR: {help}.", long.replace('-', "\\-"))?;
            }
        }
    }
    Ok(())
}

/// The version and its commit; with `json` all that a bug report needs.
fn version(json: bool) -> String {
    if !json {
        return format!("larder {}\n", version::text());
    }
    let object = serde_json::json!({
        "name": "larder",
        "version": version::VERSION,
        "commit": version::COMMIT,
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
    });
    format!("{object}\n")
}

/// Gets the URL once: its body if the status is a success.
///
/// # Errors
/// Exit code 1 with the status and body, or why there was no answer.
fn ask(healthcheck: &Healthcheck) -> Result<String, Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // A proxy of the environment is for the world outside, not for this server.
        let mut client = reqwest::Client::builder().no_proxy().timeout(healthcheck.timeout);
        if !healthcheck.is_certificate_checked {
            client = client.tls_danger_accept_invalid_certs(true);
        }
        if let Some(socket) = &healthcheck.socket {
            client = client.unix_socket(socket.as_path());
        }
        let url = &healthcheck.url;
        let failed = |error: reqwest::Error| {
            // The chain of causes holds what a person can act on, such as "connection refused".
            let mut text = format!("{url}: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            if error.is_connect() {
                text.push_str("; does the server run, and is this its address?");
            }
            Exit::failure(text)
        };
        let response = client.build().map_err(failed)?.get(url).send().await.map_err(failed)?;
        let status = response.status();
        let body = response.text().await.map_err(failed)?;
        if status.is_success() {
            Ok(format!("{}\n", body.trim_end()))
        } else {
            Err(Exit::failure(format!("{url}: {status}: {}", body.trim_end())))
        }
    })
}
