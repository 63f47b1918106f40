//! `larder index …`: makes, shows, changes and removes indexes, on the data directory or through a running server.
//!
//! arguments -> [`Command::run`] -> an operation of [`operations::indexes`] on the store, or
//! a request to the server -> one [`CommandResult`] for both, so that they say the same.

use account::{Principal, UserName};
use clap::{Args, Subcommand};
use config::Config;
use http::Method;
use mirrors::try_upstream;
use net::Egress;
use operations::indexes::{
    ChangeIndex, CreateIndex, DeleteIndex, names_of_nobody, said_of_uncovered, uncovered_by_policy,
};
use pypi::devpi::{IndexConfig, View};
use pypi::{ConfigEdit, MirrorSettings, StageConfig, StageName};
use serde_json::{Map, Value, json};

use super::directory::{Directory, Purpose};
use super::remote::{CommandTarget, Remote, refused};
use super::{Answer, Exit, note, runtime, table};

const SETTINGS: &str = "\
Settings, as KEY=VALUE; lists are separated by commas, and also take KEY+=VALUE and KEY-=VALUE:
  bases=team/prod            indexes whose projects this one shows, too
  volatile=false             whether files may be replaced and removed without force (true without it)
  acl_upload=alice,:ci       who may upload: users, :groups, :AUTHENTICATED:
  acl_read=:AUTHENTICATED:   who may read; everybody is :ANONYMOUS:
  acl_toxresult_upload=...   who may add test results
  base_pins=NAME=USER/INDEX,PREFIX*=USER/INDEX    projects that come from one base alone
  mirror_merge=all           merge what several mirrors have under one name; connected: only what is one project
  project_tracks=NAME=URL, project_alternate_locations=NAME=URL
                             where else projects are, as their pages say (PEP 708)
  trusted_publishers+=PROJECT ISSUER CLAIM=VALUE...    jobs of CI systems that may upload; see `larder publisher add --help`
  title=TEXT, description=TEXT, custom_data=JSON
  retention_versions=N, retention_days=N    what is removed of old versions
  policy_cooldown_days=N, policy_cutoff=DAY, policy_cooldown_except=NAME,PREFIX*
                             files that are too new to be given out, and for which projects that does not count
  policy_allow=..., policy_deny=...         what is given out by name, version and kind: NAME>=1,<2@wheel
  policy_quarantine+=NAME==1.0 REASON       what is kept away from everybody, and why; one at a time
  policy_malware=refuse, policy_vulnerabilities=warn    what OSV records name: refuse, warn (in the audit log) or off
  policy_exceptions+=NAME==1.0 until DAY REASON    what is given out all the same, until when and why; one at a time
KEY-= drops a setting that has no default.";

#[derive(Subcommand)]
pub(super) enum Command {
    /// List indexes
    List {
        /// Only the indexes of this user
        #[arg(value_name = "USER")]
        owner: Option<UserName>,
        #[command(flatten)]
        answer: Answer,
    },
    /// Show an index: its settings and projects
    Show {
        /// Which index, as team/dev
        #[arg(value_name = "USER/INDEX")]
        index: StageName,
        #[command(flatten)]
        answer: Answer,
    },
    /// Make an index; its user must exist
    #[command(after_help = SETTINGS)]
    Add(Change),
    /// Change settings of an index
    #[command(after_help = SETTINGS)]
    Set(Change),
    /// Remove an index with everything in it
    Remove {
        /// Which index, as team/dev
        #[arg(value_name = "USER/INDEX")]
        index: StageName,
        /// Remove it even if it is not volatile
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
pub(super) struct Change {
    /// Which index, as team/dev
    #[arg(value_name = "USER/INDEX")]
    index: StageName,
    /// Settings, see below
    #[arg(value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<String>,
    #[command(flatten)]
    answer: Answer,
}

fn setting(text: &str) -> Result<String, pypi::ConfigError> {
    ConfigEdit::parse(&json!([text])).map(|_| text.to_owned())
}

/// The result of a command.
enum CommandResult {
    /// Indexes by name, with their settings.
    List(Vec<(String, Value)>),
    One(StageName, Value),
    /// Done; with the current settings.
    Done(String, Value),
}

/// Settings that few people need; a change does not print them.
const UNTOLD: [&str; 4] = ["type", "projects", "mirror_whitelist", "mirror_whitelist_inheritance"];

impl Command {
    /// Carries out the command at `place`, and returns the text for stdout.
    ///
    /// # Errors
    /// What went wrong, with the exit code. Nothing is changed then.
    pub(super) fn run(
        self,
        place: impl FnOnce() -> Result<CommandTarget, Exit>,
    ) -> Result<String, Exit> {
        let is_json = match &self {
            Command::Set(Change { settings, .. }) if settings.is_empty() => {
                let text = "KEY=VALUE was expected: what is to be set, as volatile=false";
                return Err(Exit::usage(text));
            }
            Command::List { answer, .. } | Command::Show { answer, .. } => answer.is_json,
            Command::Add(change) | Command::Set(change) => change.answer.is_json,
            Command::Remove { .. } => false,
        };
        Ok(shown(self.carried_out(place)?, is_json))
    }

    fn carried_out(
        self,
        place: impl FnOnce() -> Result<CommandTarget, Exit>,
    ) -> Result<CommandResult, Exit> {
        let place = place()?;
        runtime()?.block_on(async {
            match place {
                CommandTarget::Store(loaded) => self.on_store(&loaded.config).await,
                CommandTarget::Server(address) => {
                    self.on_server(&Remote::connect(*address).await?).await
                }
            }
        })
    }

    async fn on_store(self, config: &Config) -> Result<CommandResult, Exit> {
        let purpose = match self {
            Command::List { .. } | Command::Show { .. } => Purpose::ShowAll,
            _ => Purpose::ChangeAll,
        };
        Directory::with(config, purpose, async |directory| match self {
            Command::List { owner, .. } => Ok(list(directory, owner.as_ref())),
            Command::Show { index: stage, .. } => {
                let found = directory.index().stage_to_change(&stage).map_err(refused)?;
                let settings = settings_of(directory, found, true);
                Ok(CommandResult::One(stage, settings))
            }
            Command::Add(Change { index, settings, .. }) => {
                add(directory, config, index, &settings).await
            }
            Command::Set(Change { index, settings, .. }) => {
                set(directory, config, index, &settings).await
            }
            Command::Remove { index, force } => remove(directory, &index, force).await,
        })
        .await
    }

    async fn on_server(self, remote: &Remote) -> Result<CommandResult, Exit> {
        match self {
            Command::List { owner, .. } => Ok(list_there(remote, owner.as_ref()).await?),
            Command::Show { index: stage, .. } => {
                let settings = remote.get(&[stage.user(), stage.index()]).await;
                let settings = settings
                    .map_err(|failure| failure.hinted(std::slice::from_ref(&stage), None))?;
                Ok(CommandResult::One(stage, settings))
            }
            Command::Add(Change { index, settings, .. }) => {
                sent(remote, Method::PUT, &index, &[], Some(&settings), made(&index)).await
            }
            Command::Set(Change { index, settings, .. }) => {
                sent(remote, Method::PATCH, &index, &[], Some(&settings), changed(&index)).await
            }
            Command::Remove { index, force } => {
                let query = if force { &["force"][..] } else { &[] };
                sent(remote, Method::DELETE, &index, query, None, removed(&index)).await
            }
        }
    }
}

/// The settings of an index at `place`.
///
/// # Errors
/// What went wrong.
pub(super) fn settings(
    index: StageName,
    place: impl FnOnce() -> Result<CommandTarget, Exit>,
) -> Result<Value, Exit> {
    let showing = Command::Show { index, answer: Answer { is_json: true } };
    match showing.carried_out(place)? {
        CommandResult::One(_, settings) => Ok(settings),
        CommandResult::List(_) | CommandResult::Done(..) => Ok(Value::Null),
    }
}

/// Changes a setting of an index at `place`.
///
/// # Errors
/// What went wrong; nothing is changed then.
pub(super) fn set_one(
    index: StageName,
    setting: String,
    place: impl FnOnce() -> Result<CommandTarget, Exit>,
) -> Result<(), Exit> {
    let answer = Answer { is_json: true };
    let change = Change { index, settings: vec![setting], answer };
    Command::Set(change).carried_out(place).map(drop)
}

/// The settings of a stage in the form of devpi's API.
fn settings_of(
    directory: &Directory,
    stage: &std::sync::Arc<pypi::Stage>,
    has_projects: bool,
) -> Value {
    // Somebody who can read the data directory can read every setting in it anyway.
    let view =
        View { snapshot: directory.index(), principal: &Principal::Anonymous, shows_all: true };
    json!(IndexConfig { stage, has_projects, now: jiff::Timestamp::now(), view })
}

fn list(directory: &Directory, owner: Option<&UserName>) -> CommandResult {
    let stages = directory.index().stages();
    let wanted = stages.filter(|stage| owner.is_none_or(|owner| stage.name().is_of(owner)));
    let named = wanted.map(|it| (it.name().to_string(), settings_of(directory, it, false)));
    CommandResult::List(named.collect())
}

fn edit(settings: &[String]) -> Result<ConfigEdit, Exit> {
    ConfigEdit::parse(&json!(settings)).map_err(refused)
}

async fn add(
    directory: &mut Directory,
    config: &Config,
    stage: StageName,
    settings: &[String],
) -> Result<CommandResult, Exit> {
    let creating = CreateIndex { stage, edit: edit(settings)? };
    let done = directory.carry_out(&creating).await?;
    let CreateIndex { stage, edit } = &creating;
    warn(directory, config, stage, edit, &done.outcome).await;
    now(directory, stage, made(stage))
}

fn made(stage: &StageName) -> String {
    format!("made the index {stage}")
}

/// The message, with the settings of the stage after the change.
fn now(directory: &Directory, stage: &StageName, said: String) -> Result<CommandResult, Exit> {
    let found = directory.index().stage_to_change(stage).map_err(refused)?;
    Ok(CommandResult::Done(said, settings_of(directory, found, false)))
}

async fn set(
    directory: &mut Directory,
    config: &Config,
    stage: StageName,
    settings: &[String],
) -> Result<CommandResult, Exit> {
    let edit = edit(settings)?;
    let changing = ChangeIndex { stage, edit, is_noop_an_error: false, seen: None };
    let done = directory.carry_out(&changing).await?;
    let ChangeIndex { stage, edit, .. } = &changing;
    warn(directory, config, stage, edit, &done.outcome).await;
    now(directory, stage, changed(stage))
}

/// Says on stderr what an edit does not do: rights that nobody has, an upstream that fails, indexes that a policy does not cover.
async fn warn(
    directory: &Directory,
    config: &Config,
    stage: &StageName,
    edit: &ConfigEdit,
    now: &StageConfig,
) {
    let mut warnings = names_of_nobody(directory.snapshot(), now);
    if edit.names("policy_") {
        let uncovered = uncovered_by_policy(directory.index(), stage, now, |_| true);
        warnings.extend(said_of_uncovered(stage, uncovered));
    }
    let is_offline = |it: &&MirrorSettings| it.mirror_offline == Some(true);
    let mirror = now.mirror().filter(|it| edit.names("mirror_") && !is_offline(it));
    if let Some(mirror) = mirror.filter(|_| !config.python.mirrors_offline) {
        let egress = Egress::new(config.egress_allow.iter().copied());
        if let Err(trouble) = try_upstream(mirror, egress).await {
            warnings.push(format!("the upstream of {stage} fails: {trouble}"));
        }
    }
    for line in warnings {
        note(&format!("warning: {line}"));
    }
}

fn changed(stage: &StageName) -> String {
    format!("the index {stage} now has")
}

async fn remove(
    directory: &mut Directory,
    stage: &StageName,
    is_forced: bool,
) -> Result<CommandResult, Exit> {
    directory.carry_out(&DeleteIndex { stage: stage.clone(), force: is_forced }).await?;
    Ok(CommandResult::Done(removed(stage), Value::Null))
}

fn removed(stage: &StageName) -> String {
    format!("removed the index {stage}")
}

async fn sent(
    remote: &Remote,
    method: Method,
    stage: &StageName,
    query: &[&str],
    settings: Option<&[String]>,
    said: String,
) -> Result<CommandResult, Exit> {
    let body = settings.map(|settings| json!(settings));
    let place = [stage.user(), stage.index()];
    let sent = remote.send(method, &place, query, body.as_ref()).await;
    let answer = sent.map_err(|failure| failure.hinted(std::slice::from_ref(stage), None))?;
    if let Some(message) = answer["message"].as_str() {
        note(&format!("warning: {message}"));
    }
    Ok(CommandResult::Done(said, answer["result"].clone()))
}

async fn list_there(remote: &Remote, owner: Option<&UserName>) -> Result<CommandResult, Exit> {
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
    Ok(CommandResult::List(stages))
}

fn shown(outcome: CommandResult, is_json: bool) -> String {
    match outcome {
        CommandResult::List(stages) if is_json => {
            let stages = stages.into_iter().map(|(name, settings)| named(&name, settings));
            format!("{:#}\n", Value::Array(stages.collect()))
        }
        CommandResult::List(stages) => {
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
        CommandResult::One(stage, settings) if is_json => {
            format!("{:#}\n", named(stage.as_str(), settings))
        }
        CommandResult::One(stage, settings) => {
            let mut lines = vec![("index", stage.to_string())];
            let settings = settings.as_object().cloned().unwrap_or_default();
            lines.extend(settings.iter().map(|(key, value)| (key.as_str(), text(value))));
            table::pairs(&lines)
        }
        CommandResult::Done(_, settings) if is_json && !settings.is_null() => {
            format!("{settings:#}\n")
        }
        CommandResult::Done(said, settings) => {
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
