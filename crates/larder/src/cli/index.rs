//! `larder index …`: indexes made, shown, changed and removed, on the data directory or by a running server.
//!
//! arguments -> [`parse`] -> [`Request`] -> [`run`] -> a change of [`pypi::change::stage`] committed to the store, or
//! a request to the server -> one [`Outcome`] for both, so that they say the same.

use std::io::Write;

use account::{Principal, UserName};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use http::Method;
use pypi::change::stage as change;
use pypi::devpi::{IndexConfig, View};
use pypi::{ConfigEdit, ConfigError, StageName};
use serde_json::{Map, Value, json};

use super::directory::{Directory, Purpose};
use super::remote::{self, Address, Remote};
use super::{Exit, json_arg, note, print, required, runtime, table};
use crate::config::{Config, Environment, Loaded};
use crate::http::NO_MIRRORS;

/// What is asked of indexes, checked.
#[derive(Debug)]
pub struct Request {
    place: Place,
    action: Action,
    is_json: bool,
}

/// Where it is done.
#[derive(Debug)]
pub(super) enum Place {
    /// On the store, by this process.
    Store(Box<Loaded>),
    /// By a running server.
    Server(Box<Address>),
}

#[derive(Debug)]
enum Action {
    List(Option<UserName>),
    Show(StageName),
    Add(StageName, Vec<String>),
    Set(StageName, Vec<String>),
    Remove { stage: StageName, is_forced: bool },
}

/// What came of it.
enum Outcome {
    /// Indexes by name, with their settings.
    List(Vec<(String, Value)>),
    One(StageName, Value),
    /// Done; with the settings as they are now.
    Done(String, Value),
}

const SETTINGS: &str = "\
Settings, as KEY=VALUE; lists have commas between, and also take KEY+=VALUE and KEY-=VALUE:
  bases=team/prod            indexes whose projects this one shows, too
  volatile=false             whether files may be replaced and removed without force (true without it)
  acl_upload=alice,:ci       who may upload: users, :groups, :AUTHENTICATED:
  acl_read=:AUTHENTICATED:   who may read; everybody is :ANONYMOUS:
  acl_toxresult_upload=...   who may add test results
  title=TEXT, description=TEXT, custom_data=JSON
  retention_versions=N, retention_days=N    what is removed of old versions
KEY-= drops a setting that has no default.";

/// Settings that say little to most people, and are not told after each change.
const UNTOLD: [&str; 4] = ["type", "projects", "mirror_whitelist", "mirror_whitelist_inheritance"];

/// The command; `configuration` makes the flags that each of its commands takes besides its own.
pub(super) fn command(configuration: impl Fn() -> Vec<Arg>) -> Command {
    let leaf = |name: &'static str, about: &'static str| {
        remote::with_args(Command::new(name).about(about).args(configuration()))
    };
    let with_settings = |command: Command| {
        command.arg(settings_arg()).after_help(format!("{SETTINGS}\n\n{}", remote::HELP))
    };
    Command::new("index")
        .about("List, make, change and remove Python indexes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            leaf("list", "List indexes")
                .arg(
                    Arg::new("owner")
                        .value_name("USER")
                        .help("Whose; everybody's without it")
                        .value_parser(value_parser!(UserName)),
                )
                .arg(json_arg()),
        )
        .subcommand(
            leaf("show", "Show an index: its settings and projects")
                .arg(stage_arg())
                .arg(json_arg()),
        )
        .subcommand(
            with_settings(leaf("add", "Make an index; its user must be there"))
                .arg(stage_arg())
                .arg(json_arg()),
        )
        .subcommand(
            with_settings(leaf("set", "Change settings of an index"))
                .arg(stage_arg())
                .arg(json_arg()),
        )
        .subcommand(
            leaf("remove", "Remove an index with everything in it")
                .arg(stage_arg())
                .arg(force_arg("Also one that is not volatile")),
        )
}

/// The index that a command is about.
pub(super) fn stage_arg() -> Arg {
    Arg::new("index")
        .value_name("USER/INDEX")
        .help("Which index, as team/dev")
        .required(true)
        .index(1)
        .value_parser(value_parser!(StageName))
}

/// The flag that overrules what an index keeps.
pub(super) fn force_arg(help: &'static str) -> Arg {
    Arg::new("force").long("force").help(help).action(ArgAction::SetTrue)
}

fn settings_arg() -> Arg {
    Arg::new("settings")
        .value_name("KEY=VALUE")
        .help("Settings, see below")
        .num_args(0..)
        .index(2)
        .value_parser(|text: &str| {
            ConfigEdit::parse(&json!([text]))
                .map(|_| text.to_owned())
                .map_err(|error| error.to_string())
        })
}

/// Where what was asked is done.
///
/// # Errors
/// As `load`, which reads the configuration by the flags of a command; those of [`Address::of`].
pub(super) fn place(
    matches: &ArgMatches,
    environment: &Environment,
    load: impl Fn(&ArgMatches) -> Result<Box<Loaded>, Exit>,
) -> Result<Place, Exit> {
    match Address::of(matches, environment)? {
        Some(address) => Ok(Place::Server(Box::new(address))),
        None => load(matches).map(Place::Store),
    }
}

impl Place {
    /// The configuration of the store, if it is done there.
    pub(super) fn config(&self) -> Option<&Config> {
        match self {
            Place::Store(loaded) => Some(&loaded.config),
            Place::Server(_) => None,
        }
    }

    /// Says what is odd about the configuration.
    pub(super) fn warn(&self) {
        let Place::Store(loaded) = self else { return };
        for warning in &loaded.warnings {
            note(&format!("warning: {warning}"));
        }
    }
}

/// Reads what was asked.
///
/// # Errors
/// As `load`, which reads the configuration by the flags of a command; and those of `--server`.
pub(super) fn parse(
    matches: &ArgMatches,
    environment: &Environment,
    load: impl Fn(&ArgMatches) -> Result<Box<Loaded>, Exit>,
) -> Result<Request, Exit> {
    let Some((verb, matches)) = matches.subcommand() else { unreachable!("clap wants a command") };
    let stage = || required::<StageName>(matches, "index");
    let settings = || matches.get_many("settings").into_iter().flatten().cloned().collect();
    let action = match verb {
        "list" => Action::List(matches.get_one("owner").cloned()),
        "show" => Action::Show(stage()),
        "add" => Action::Add(stage(), settings()),
        "set" => {
            let settings: Vec<String> = settings();
            if settings.is_empty() {
                let text = "KEY=VALUE was expected: what is to be set, as volatile=false";
                return Err(Exit::Message { code: 2, text: text.to_owned() });
            }
            Action::Set(stage(), settings)
        }
        _ => Action::Remove { stage: stage(), is_forced: matches.get_flag("force") },
    };
    let is_json = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json);
    Ok(Request { place: place(matches, environment, load)?, action, is_json })
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
/// What went wrong, with the exit code. Nothing is changed then.
pub fn run(request: Request, out: &mut dyn Write) -> Result<(), Exit> {
    let Request { place, action, is_json } = request;
    place.warn();
    let outcome = runtime()?.block_on(async {
        match place {
            Place::Store(loaded) => on_store(&loaded.config, action).await,
            Place::Server(address) => on_server(Remote::connect(*address).await?, action).await,
        }
    })?;
    print(&shown(outcome, is_json), out)
}

/// A refusal by a rule, with what helps.
pub(super) fn refused(error: pypi::ChangeError) -> Exit {
    hinted(error.to_string())
}

/// What devpi's words leave out.
fn hinted(text: String) -> Exit {
    let hint = if text.contains("unexpected keyword arguments") {
        "; `larder index set --help` lists the settings"
    } else if text.contains("non-volatile") && !text.contains("already exists") {
        "; --force removes it all the same"
    } else if text.contains("could not be found") {
        "; `larder index list` shows those that are there"
    } else if text.contains("no user '") {
        "; `larder user add` makes users"
    } else {
        ""
    };
    Exit::failure(text + hint)
}

/// Adds the hints of [`refused`] to an error that came from a server.
pub(super) fn refused_there(exit: Exit) -> Exit {
    match exit {
        Exit::Message { code: 1, text } => hinted(text),
        exit => exit,
    }
}

async fn on_store(config: &Config, action: Action) -> Result<Outcome, Exit> {
    let purpose = match action {
        Action::List(_) | Action::Show(_) => Purpose::ShowAll,
        _ => Purpose::ChangeAll,
    };
    let mut directory = Directory::open(config, purpose).await?;
    let outcome = match action {
        Action::List(owner) => Ok(list(&directory, owner.as_ref())),
        Action::Show(stage) => {
            let found = directory.index().stage_to_change(&stage).map_err(refused);
            found.map(|found| Outcome::One(stage.clone(), settings_of(&directory, found, true)))
        }
        Action::Add(stage, settings) => add(&mut directory, &stage, &settings).await,
        Action::Set(stage, settings) => set(&mut directory, &stage, &settings).await,
        Action::Remove { stage, is_forced } => remove(&mut directory, &stage, is_forced).await,
    };
    directory.close().await;
    outcome
}

/// The settings of a stage as devpi's API has them.
fn settings_of(directory: &Directory, stage: &pypi::Stage, has_projects: bool) -> Value {
    // Somebody who can read the data directory can read every setting in it anyway.
    let view =
        View { snapshot: directory.index(), principal: &Principal::Anonymous, shows_all: true };
    json!(IndexConfig { stage, has_projects, view })
}

fn list(directory: &Directory, owner: Option<&UserName>) -> Outcome {
    let stages = directory.index().stages();
    let wanted = stages.filter(|stage| owner.is_none_or(|owner| stage.name().is_of(owner)));
    let named = wanted.map(|it| (it.name().to_string(), settings_of(directory, it, false)));
    Outcome::List(named.collect())
}

fn edit(settings: &[String]) -> Result<ConfigEdit, Exit> {
    ConfigEdit::parse(&json!(settings)).map_err(|error: ConfigError| hinted(error.to_string()))
}

async fn add(
    directory: &mut Directory,
    stage: &StageName,
    settings: &[String],
) -> Result<Outcome, Exit> {
    let edit = edit(settings)?;
    if edit.is_of_mirror() {
        return Err(Exit::failure(NO_MIRRORS));
    }
    let user = stage.user_name();
    directory
        .change_indexes(|accounts, index| {
            if accounts.user(&user).is_none() {
                return Err(hinted(format!("no user '{user}'")));
            }
            let (batch, _) = change::create(index, stage, &edit).map_err(refused)?;
            Ok((Some(batch), ()))
        })
        .await?;
    now(directory, stage, format!("made the index {stage}"))
}

/// What was done, and how the stage is after it.
fn now(directory: &Directory, stage: &StageName, said: String) -> Result<Outcome, Exit> {
    let found = directory.index().stage_to_change(stage).map_err(refused)?;
    Ok(Outcome::Done(said, settings_of(directory, found, false)))
}

async fn set(
    directory: &mut Directory,
    stage: &StageName,
    settings: &[String],
) -> Result<Outcome, Exit> {
    let edit = edit(settings)?;
    directory
        .change_indexes(|_, index| {
            let (batch, _) = change::modify(index, stage, &edit, false).map_err(refused)?;
            Ok((batch, ()))
        })
        .await?;
    now(directory, stage, changed(stage))
}

fn changed(stage: &StageName) -> String {
    format!("the index {stage} now has")
}

async fn remove(
    directory: &mut Directory,
    stage: &StageName,
    is_forced: bool,
) -> Result<Outcome, Exit> {
    directory
        .change_indexes(|_, index| {
            Ok((Some(change::delete(index, stage, is_forced).map_err(refused)?), ()))
        })
        .await?;
    Ok(Outcome::Done(removed(stage), Value::Null))
}

fn removed(stage: &StageName) -> String {
    format!("removed the index {stage}")
}

async fn on_server(remote: Remote, action: Action) -> Result<Outcome, Exit> {
    let outcome = match action {
        Action::List(owner) => list_there(&remote, owner.as_ref()).await,
        Action::Show(stage) => {
            let settings = remote.get(&[stage.user(), stage.index()]).await;
            settings.map(|settings| Outcome::One(stage, settings))
        }
        Action::Add(stage, settings) => {
            let said = format!("made the index {stage}");
            sent(&remote, Method::PUT, &stage, &[], Some(&settings), said).await
        }
        Action::Set(stage, settings) => {
            sent(&remote, Method::PATCH, &stage, &[], Some(&settings), changed(&stage)).await
        }
        Action::Remove { stage, is_forced } => {
            let query = if is_forced { &["force"][..] } else { &[] };
            sent(&remote, Method::DELETE, &stage, query, None, removed(&stage)).await
        }
    };
    outcome.map_err(refused_there)
}

async fn sent(
    remote: &Remote,
    method: Method,
    stage: &StageName,
    query: &[&str],
    settings: Option<&[String]>,
    said: String,
) -> Result<Outcome, Exit> {
    let body = settings.map(|settings| json!(settings));
    let place = [stage.user(), stage.index()];
    let answer = remote.send(method, &place, query, body.as_ref()).await?;
    Ok(Outcome::Done(said, answer["result"].clone()))
}

async fn list_there(remote: &Remote, owner: Option<&UserName>) -> Result<Outcome, Exit> {
    let users = match owner {
        Some(owner) => json!({owner.as_str(): remote.get(&[owner.as_str()]).await?}),
        None => remote.get(&[]).await?,
    };
    let mut stages = Vec::new();
    for (user, config) in users.as_object().into_iter().flatten() {
        let indexes = config["indexes"].as_object().into_iter().flatten();
        stages
            .extend(indexes.map(|(index, settings)| (format!("{user}/{index}"), settings.clone())));
    }
    Ok(Outcome::List(stages))
}

fn shown(outcome: Outcome, is_json: bool) -> String {
    match outcome {
        Outcome::List(stages) if is_json => {
            let stages = stages.into_iter().map(|(name, settings)| named(&name, settings));
            format!("{:#}\n", Value::Array(stages.collect()))
        }
        Outcome::List(stages) => {
            let row = |(name, settings): &(String, Value)| {
                let cell = |key: &str| text(&settings[key]);
                [
                    name.clone(),
                    cell("bases"),
                    cell("volatile"),
                    cell("acl_upload"),
                    cell("acl_read"),
                ]
            };
            let rows: Vec<_> = stages.iter().map(row).collect();
            table::columns(["INDEX", "BASES", "VOLATILE", "UPLOAD", "READ"], &rows)
        }
        Outcome::One(stage, settings) if is_json => {
            format!("{:#}\n", named(stage.as_str(), settings))
        }
        Outcome::One(stage, settings) => {
            let mut lines = vec![("index", stage.to_string())];
            let settings = settings.as_object().cloned().unwrap_or_default();
            lines.extend(settings.iter().map(|(key, value)| (key.as_str(), text(value))));
            table::pairs(&lines)
        }
        Outcome::Done(_, settings) if is_json && !settings.is_null() => format!("{settings:#}\n"),
        Outcome::Done(said, settings) => {
            let settings = settings.as_object().cloned().unwrap_or_default();
            let told = settings
                .iter()
                .filter(|(key, value)| !UNTOLD.contains(&key.as_str()) && !text(value).is_empty());
            let told = told.map(|(key, value)| format!("{key}={}", text(value)));
            let told = told.collect::<Vec<_>>().join(" ");
            if told.is_empty() { format!("{said}\n") } else { format!("{said}: {told}\n") }
        }
    }
}

fn named(name: &str, settings: Value) -> Value {
    let mut object = Map::from_iter([("name".to_owned(), name.into())]);
    object.extend(settings.as_object().cloned().unwrap_or_default());
    Value::Object(object)
}

/// A setting as a person writes it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}
