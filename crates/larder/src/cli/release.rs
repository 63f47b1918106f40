//! `larder release …`: releases listed, yanked, pushed and removed, on the data directory or by a running server.
//!
//! arguments -> [`parse`] -> [`Request`] -> [`run`] -> [`store`], which commits changes of [`pypi::change`], or
//! [`server`], which asks for them -> lines, or JSON where something is listed.

mod server;
mod store;

use std::io::Write;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use pypi::{ProjectName, StageName};
use serde_json::{Value, json};

use super::index::{Place, force_arg, place, stage_arg};
use super::remote::{self, Remote};
use super::{Exit, json_arg, line_of_stdin, print, required, runtime, table};
use crate::config::{Config, Environment, Loaded};

/// What is asked of releases, checked.
#[derive(Debug)]
pub struct Request {
    place: Place,
    stage: StageName,
    action: Action,
    is_json: bool,
}

#[derive(Debug)]
enum Action {
    List(Option<ProjectName>),
    /// None as a reason: no longer yanked.
    Yank {
        project: ProjectName,
        version: String,
        reason: Option<String>,
    },
    Push {
        project: ProjectName,
        version: String,
        to: Target,
        content: Content,
    },
    /// None as a version: all of them.
    Remove {
        project: ProjectName,
        version: Option<String>,
        is_forced: bool,
    },
}

/// Where a release goes.
enum Target {
    Stage(StageName),
    /// An upload API elsewhere.
    Outside {
        url: String,
        user: String,
        password: String,
    },
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Stage(stage) => write!(formatter, "Stage({stage})"),
            Target::Outside { url, user, .. } => write!(formatter, "Outside({url}, {user}, …)"),
        }
    }
}

/// What of a release goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Everything,
    NoDocs,
    OnlyDocs,
}

/// What came of it.
enum Outcome {
    List(Vec<Row>),
    Done(String),
}

/// A release in a list.
struct Row {
    project: String,
    version: String,
    files: Vec<File>,
}

/// A file that installers take.
struct File {
    filename: String,
    size_bytes: u64,
    uploaded: String,
    /// Why it is yanked, if it is.
    yanked: Option<String>,
}

/// The command; `configuration` makes the flags that each of its commands takes besides its own.
pub(super) fn command(configuration: impl Fn() -> Vec<Arg>) -> Command {
    let leaf = |name: &'static str, about: &'static str| {
        let command = Command::new(name).about(about).args(configuration()).arg(stage_arg());
        remote::with_args(command)
    };
    let one = |name: &'static str, about: &'static str| {
        leaf(name, about).arg(project_arg(true)).arg(version_arg(true))
    };
    Command::new("release")
        .about("List, yank, push and remove releases of Python projects")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            leaf("list", "List the releases that an index has itself; those of its bases are not among them")
                .arg(project_arg(false).help("Of this project; of all without it"))
                .arg(json_arg()),
        )
        .subcommand(
            one("yank", "Yank a release: installers take it only where exactly this version is asked for")
                .arg(
                    Arg::new("reason")
                        .long("reason")
                        .value_name("TEXT")
                        .allow_hyphen_values(true)
                        .help("Why, in one line; installers show it"),
                )
                .arg(
                    Arg::new("undo")
                        .long("undo")
                        .help("Take it back")
                        .conflicts_with("reason")
                        .action(ArgAction::SetTrue),
                ),
        )
        .subcommand(one("unyank", "Take back a yank, as yank --undo does"))
        .subcommand(
            one("push", "Copy a release to another index of this server, or upload it to one elsewhere")
                .arg(
                    Arg::new("to")
                        .value_name("TARGET")
                        .help("Where to: USER/INDEX; or an upload URL, with --server alone: https://upload.pypi.org/legacy/")
                        .required(true)
                        .index(4),
                )
                .arg(
                    Arg::new("to-user")
                        .long("to-user")
                        .value_name("NAME")
                        .help("The user at an upload URL; __token__ for a token")
                        .requires("to-password-stdin"),
                )
                .arg(
                    Arg::new("to-password-stdin")
                        .long("to-password-stdin")
                        .help("Take the password or token for an upload URL from the first line of standard input")
                        .action(ArgAction::SetTrue)
                        .requires("to-user")
                        .conflicts_with_all(["token-stdin", "password-stdin"]),
                )
                .arg(Arg::new("no-docs").long("no-docs").help("All but the documentation").action(ArgAction::SetTrue))
                .arg(Arg::new("only-docs").long("only-docs").help("The documentation alone").action(ArgAction::SetTrue))
                .group(ArgGroup::new("content").args(["no-docs", "only-docs"])),
        )
        .subcommand(
            leaf("remove", "Remove a release with its files; their URLs answer 410 from then on")
                .arg(project_arg(true))
                .arg(version_arg(false).required_unless_present("all-versions"))
                .arg(
                    Arg::new("all-versions")
                        .long("all-versions")
                        .help("The whole project")
                        .conflicts_with("version")
                        .action(ArgAction::SetTrue),
                )
                .arg(force_arg("Also from an index that is not volatile")),
        )
}

fn project_arg(is_required: bool) -> Arg {
    Arg::new("project").value_name("PROJECT").required(is_required).index(2).value_parser(
        |text: &str| {
            let expected = "the name of a project was expected, as yourproject";
            ProjectName::normalize(text).map_err(|error| format!("{error}: {expected}"))
        },
    )
}

fn version_arg(is_required: bool) -> Arg {
    Arg::new("version").value_name("VERSION").required(is_required).index(3)
}

/// Reads what was asked.
///
/// # Errors
/// As `load`, which reads the configuration by the flags of a command; those of `--server`, and of a push's target.
pub(super) fn parse(
    matches: &ArgMatches,
    environment: &Environment,
    load: impl Fn(&ArgMatches) -> Result<Box<Loaded>, Exit>,
) -> Result<Request, Exit> {
    let Some((verb, matches)) = matches.subcommand() else { unreachable!("clap wants a command") };
    let project = || required::<ProjectName>(matches, "project");
    let version = || required::<String>(matches, "version");
    let action = match verb {
        "list" => Action::List(matches.get_one("project").cloned()),
        "yank" | "unyank" => {
            let is_undone = verb == "unyank" || matches.get_flag("undo");
            let reason = || matches.get_one::<String>("reason").cloned().unwrap_or_default();
            let reason = (!is_undone).then(reason);
            if let Some(reason) = &reason {
                pypi::change::yank::check_reason(reason)
                    .map_err(|error| Exit::Message { code: 2, text: error.to_string() })?;
            }
            Action::Yank { project: project(), version: version(), reason }
        }
        "push" => Action::Push {
            project: project(),
            version: version(),
            to: target(matches)?,
            content: match (matches.get_flag("no-docs"), matches.get_flag("only-docs")) {
                (true, _) => Content::NoDocs,
                (_, true) => Content::OnlyDocs,
                _ => Content::Everything,
            },
        },
        _ => Action::Remove {
            project: project(),
            version: matches.get_one("version").cloned(),
            is_forced: matches.get_flag("force"),
        },
    };
    let is_json = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json);
    let (stage, place) = (required(matches, "index"), place(matches, environment, load)?);
    Ok(Request { place, stage, action, is_json })
}

fn target(matches: &ArgMatches) -> Result<Target, Exit> {
    let usage = |text: String| Exit::Message { code: 2, text };
    let to: String = required(matches, "to");
    if !to.contains("://") {
        let stage = to.parse::<StageName>();
        let expected = "USER/INDEX was expected, as team/prod, or an upload URL";
        return stage.map(Target::Stage).map_err(|_| usage(format!("`{to}`: {expected}")));
    }
    if !matches.contains_id("server") {
        return Err(usage(format!(
            "`{to}` is another server, and only a running server uploads there: add --server URL"
        )));
    }
    let Some(user) = matches.get_one::<String>("to-user") else {
        let text = "an upload URL wants --to-user NAME and --to-password-stdin";
        return Err(usage(text.to_owned()));
    };
    Ok(Target::Outside { url: to, user: user.clone(), password: line_of_stdin()? })
}

impl Request {
    /// The configuration of the store that is used, if one is.
    pub fn config(&self) -> Option<&Config> {
        self.place.config()
    }
}

/// Does what was asked, with its output into `out`.
///
/// # Errors
/// What went wrong, with the exit code. Nothing is changed then, unless files went elsewhere one by one.
pub fn run(request: Request, out: &mut dyn Write) -> Result<(), Exit> {
    let Request { place, stage, action, is_json } = request;
    place.warn();
    let outcome = runtime()?.block_on(async {
        match place {
            Place::Store(loaded) => store::run(&loaded.config, &stage, action).await,
            Place::Server(address) => {
                server::run(&Remote::connect(*address).await?, &stage, action).await
            }
        }
    })?;
    print(&shown(outcome, is_json), out)
}

/// What both ways say of a yank that was done.
fn yanked(stage: &StageName, project: &ProjectName, version: &str, is_yanked: bool) -> String {
    match is_yanked {
        true => format!("yanked {project} {version} in {stage}"),
        false => format!("{project} {version} in {stage} is no longer yanked"),
    }
}

/// What both ways say of a removal.
fn removed(stage: &StageName, project: &ProjectName, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("removed {project} {version} from {stage}"),
        None => format!("removed all of {project} from {stage}"),
    }
}

impl Row {
    fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// Why it is yanked, if all of it is.
    fn yanked(&self) -> Option<&str> {
        let first = self.files.first()?.yanked.as_deref()?;
        self.files.iter().all(|file| file.yanked.is_some()).then_some(first)
    }

    /// When its newest file came.
    fn uploaded(&self) -> &str {
        self.files.iter().map(|file| file.uploaded.as_str()).max().unwrap_or_default()
    }

    fn json(&self) -> Value {
        let file = |file: &File| {
            json!({
                "filename": file.filename,
                "size": file.size_bytes,
                "uploaded": file.uploaded,
                "yanked": file.yanked,
            })
        };
        let files: Vec<Value> = self.files.iter().map(file).collect();
        let (project, version) = (&self.project, &self.version);
        json!({"project": project, "version": version, "yanked": self.yanked(), "files": files})
    }

    fn cells(&self) -> [String; 6] {
        let some = self.files.iter().filter(|file| file.yanked.is_some()).count();
        let yanked = match self.yanked() {
            Some("") => "yes".to_owned(),
            Some(reason) => format!("yes: {reason}"),
            None if some > 0 => format!("{some} of {} files", self.files.len()),
            None => String::new(),
        };
        [
            self.project.clone(),
            self.version.clone(),
            self.files.len().to_string(),
            self.size_bytes().to_string(),
            self.uploaded().to_owned(),
            yanked,
        ]
    }
}

fn shown(outcome: Outcome, is_json: bool) -> String {
    match outcome {
        Outcome::List(rows) if is_json => {
            format!("{:#}\n", Value::Array(rows.iter().map(Row::json).collect()))
        }
        Outcome::List(rows) => {
            let rows: Vec<_> = rows.iter().map(Row::cells).collect();
            table::columns(["PROJECT", "VERSION", "FILES", "BYTES", "UPLOADED", "YANKED"], &rows)
        }
        Outcome::Done(said) => format!("{said}\n"),
    }
}
