//! `larder init`, `larder user …` and `larder token …`: who may do what, told to the store itself.
//!
//! arguments -> [`parse`] -> [`Request`] -> [`run`] -> a change of [`account::change`] -> the store, from
//! which running servers take it within moments. No server is asked, and none needs to run; whoever can
//! write the store may do everything. What was asked for goes to stdout, what there is to say about it to
//! stderr: a made password or token stands alone on stdout, once, for scripts to take.

mod given;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write};

use account::{
    Field, GroupName, IndexPattern, Limits, ProfileEdit, Scope, Scopes, Token, TokenId, TokenText,
    User, UserName, change,
};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::given::Given;
use super::directory::{Directory, Purpose};
use super::{Exit, json_arg, note, print, required, runtime, table};
use crate::accounts::{self, Expiry};
use crate::config::{Config, Loaded};
use crate::setup;

/// What is asked about users and tokens, checked.
#[derive(Debug)]
pub struct Request {
    loaded: Box<Loaded>,
    action: Action,
    /// Whether the answer is JSON.
    is_json: bool,
}

#[derive(Debug)]
enum Action {
    Init(Given),
    ListUsers,
    ShowUser(UserName),
    AddUser {
        name: UserName,
        groups: BTreeSet<GroupName>,
        profile: ProfileEdit,
        password: Given,
    },
    SetPassword {
        name: UserName,
        password: Given,
    },
    SetGroups {
        name: UserName,
        edit: GroupEdit,
    },
    SetDisabled {
        name: UserName,
        is_disabled: bool,
    },
    RemoveUser {
        name: UserName,
        is_forced: bool,
    },
    ListTokens(Option<UserName>),
    CreateToken {
        user: UserName,
        scopes: Scopes,
        limits: Option<Limits>,
        expiry: Expiry,
        comment: String,
    },
    RevokeTokens(Vec<TokenId>),
}

/// What is to become of somebody's groups.
#[derive(Debug)]
struct GroupEdit {
    /// All of them anew; none: those that are.
    set: Option<BTreeSet<GroupName>>,
    added: BTreeSet<GroupName>,
    removed: BTreeSet<GroupName>,
}

impl GroupEdit {
    fn apply(&self, before: &BTreeSet<GroupName>) -> BTreeSet<GroupName> {
        let base = self.set.as_ref().unwrap_or(before);
        base.union(&self.added).filter(|group| !self.removed.contains(*group)).cloned().collect()
    }
}

/// The three commands; `configuration` makes the flags that each of their commands takes besides its own.
pub(super) fn commands(configuration: impl Fn() -> Vec<Arg>) -> [Command; 3] {
    let leaf = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).after_help(super::FLAGS_TOO).args(configuration())
    };
    let group = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).subcommand_required(true).arg_required_else_help(true)
    };
    let init = leaf(
        "init",
        "Prepare the data directory and the store without starting; make the user root",
    )
    .args(given::root_args())
    .group(ArgGroup::new("root-password-source").args(given::ROOT_IDS));
    let passwords = |command: Command| {
        command.args(given::args()).group(ArgGroup::new("password-source").args(given::IDS))
    };
    let profile = [
        ("email", "EMAIL", "Where to write to them; not checked"),
        ("title", "TEXT", "A short text about them, as their full name"),
    ]
    .map(|(id, value, help)| Arg::new(id).long(id).value_name(value).help(help));
    let user = group("user", "List, make and change users")
        .subcommand(leaf("list", "List all users").arg(json_arg()))
        .subcommand(leaf("show", "Show a user").arg(name_arg("name")).arg(json_arg()))
        .subcommand(passwords(
            leaf("add", "Make a user; their password is asked for unless a flag says where it comes from")
                .arg(name_arg("name"))
                .arg(groups_arg("groups", "Groups that they are in; members of `admin` may do everything"))
                .args(profile)
                .arg(json_arg()),
        ))
        .subcommand(passwords(
            leaf("password", "Set a user's password, which ends their logins and leaves their tokens")
                .arg(name_arg("name"))
                .arg(json_arg()),
        ))
        .subcommand(
            leaf("groups", "Show or change the groups that a user is in")
                .arg(name_arg("name"))
                .arg(groups_arg("set", "These and no others; empty for none"))
                .arg(groups_arg("add", "These as well"))
                .arg(groups_arg("remove", "No longer these"))
                .arg(json_arg()),
        )
        .subcommand(
            leaf("disable", "Refuse all credentials of a user until further notice; nothing of theirs is deleted")
                .arg(name_arg("name")),
        )
        .subcommand(leaf("enable", "Accept the credentials of a user again").arg(name_arg("name")))
        .subcommand(
            leaf("remove", "Delete a user with their tokens and indexes").arg(name_arg("name")).arg(
                Arg::new("force")
                    .long("force")
                    .help("Also indexes that are not volatile, with everything in them")
                    .action(ArgAction::SetTrue),
            ),
        );
    let token = group("token", "List, make and revoke API tokens")
        .subcommand(
            leaf("list", "List tokens; their secrets are not kept and cannot be shown")
                .arg(name_arg("name").required(false).help("Whose; everybody's without it"))
                .arg(json_arg()),
        )
        .subcommand(
            leaf("create", "Make a token and print it, this once")
                .visible_alias("add")
                .arg(name_arg("name").help("Whose rights it uses"))
                .arg(scope_arg())
                .arg(limit_arg("index", "USER/INDEX", "Only for this index, or with USER/* all of a user's")
                    .value_parser(value_parser!(IndexPattern)))
                .arg(limit_arg("project", "NAME", "Only for this project")
                    .value_parser(accounts::project))
                .arg(limit_arg("prefix", "/PATH/", "Only for articles below this, and for no index unless one is named")
                    .value_parser(accounts::prefix))
                .arg(
                    Arg::new("expires")
                        .long("expires")
                        .value_name("WHEN")
                        .help("Until when it holds: a length such as 90d, a date such as 2027-01-01, or never")
                        .default_value("never")
                        .value_parser(value_parser!(Expiry)),
                )
                .arg(
                    Arg::new("comment")
                        .long("comment")
                        .value_name("TEXT")
                        .help("What it is for: one line")
                        .default_value("")
                        .hide_default_value(true),
                )
                .arg(json_arg()),
        )
        .subcommand(
            leaf("revoke", "Revoke tokens").arg(
                Arg::new("id")
                    .value_name("ID")
                    .help("Ids as they are listed, or tokens themselves")
                    .required(true)
                    .num_args(1..)
                    .value_parser(token_id),
            ),
        );
    [init, user, token]
}

fn name_arg(id: &'static str) -> Arg {
    Arg::new(id).value_name("USER").required(true).value_parser(value_parser!(UserName))
}

fn groups_arg(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id)
        .long(id)
        .value_name("GROUPS")
        .help(format!("{help} (commas between)"))
        .action(ArgAction::Append)
        .value_parser(groups)
}

fn limit_arg(id: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    let help = format!("{help}; repeat it for more");
    Arg::new(id).long(id).value_name(value_name).help(help).action(ArgAction::Append)
}

/// Scopes are listed, so that shells complete them.
fn scope_arg() -> Arg {
    let names = PossibleValuesParser::new(Scope::EVERY.map(Scope::as_str));
    Arg::new("scope")
        .long("scope")
        .value_name("SCOPE")
        .help("What it may be used for; may be repeated")
        .required(true)
        .value_delimiter(',')
        .action(ArgAction::Append)
        .value_parser(names.try_map(|name| name.parse::<Scope>()))
}

fn groups(text: &str) -> Result<BTreeSet<GroupName>, account::NameError> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}

/// A leaked token is pasted more easily than its id is found.
fn token_id(text: &str) -> Result<TokenId, account::TokenIdError> {
    text.parse::<TokenText>().map(|token| token.id()).or_else(|_| text.parse())
}

/// Reads what was asked of `command`, one of [`commands`].
///
/// # Errors
/// As `load`, which reads the configuration by the flags of a command.
pub(super) fn parse(
    command: &str,
    matches: &ArgMatches,
    load: impl Fn(&ArgMatches) -> Result<Box<Loaded>, Exit>,
) -> Result<Request, Exit> {
    let name = |matches: &ArgMatches| required::<UserName>(matches, "name");
    let (action, matches) = match (command, matches.subcommand()) {
        ("user", Some((verb, matches))) => {
            let action = match verb {
                "list" => Action::ListUsers,
                "show" => Action::ShowUser(name(matches)),
                "add" => Action::AddUser {
                    name: name(matches),
                    groups: all_groups(matches, "groups").unwrap_or_default(),
                    profile: ProfileEdit {
                        email: field(matches, "email"),
                        title: field(matches, "title"),
                        ..ProfileEdit::default()
                    },
                    password: Given::of(matches),
                },
                "password" => {
                    Action::SetPassword { name: name(matches), password: Given::of(matches) }
                }
                "groups" => Action::SetGroups {
                    name: name(matches),
                    edit: GroupEdit {
                        set: all_groups(matches, "set"),
                        added: all_groups(matches, "add").unwrap_or_default(),
                        removed: all_groups(matches, "remove").unwrap_or_default(),
                    },
                },
                "disable" => Action::SetDisabled { name: name(matches), is_disabled: true },
                "enable" => Action::SetDisabled { name: name(matches), is_disabled: false },
                _ => {
                    Action::RemoveUser { name: name(matches), is_forced: matches.get_flag("force") }
                }
            };
            (action, matches)
        }
        ("token", Some((verb, matches))) => {
            let action = match verb {
                "list" => Action::ListTokens(matches.get_one("name").cloned()),
                "create" => Action::CreateToken {
                    user: name(matches),
                    scopes: matches.get_many("scope").into_iter().flatten().copied().collect(),
                    limits: Limits::new(
                        all_of(matches, "index"),
                        all_of(matches, "project"),
                        all_of(matches, "prefix"),
                    ),
                    expiry: required(matches, "expires"),
                    comment: required(matches, "comment"),
                },
                _ => Action::RevokeTokens(
                    matches.get_many("id").into_iter().flatten().copied().collect(),
                ),
            };
            (action, matches)
        }
        _ => (Action::Init(Given::of_root(matches)), matches),
    };
    // Not every command has the flag.
    let is_json = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json);
    Ok(Request { loaded: load(matches)?, action, is_json })
}

/// What all uses of a flag say.
fn all_of<T: Clone + Ord + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> BTreeSet<T> {
    matches.get_many::<T>(id).into_iter().flatten().cloned().collect()
}

/// The groups of all uses of a flag; none if it was not given.
fn all_groups(matches: &ArgMatches, id: &str) -> Option<BTreeSet<GroupName>> {
    Some(matches.get_many::<BTreeSet<GroupName>>(id)?.flatten().cloned().collect())
}

fn field(matches: &ArgMatches, id: &str) -> Field<String> {
    match matches.get_one::<String>(id) {
        Some(text) if !text.is_empty() => Field::Set(text.clone()),
        _ => Field::Keep,
    }
}

impl Request {
    /// The configuration that it is done with.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }
}

/// Does what was asked, with its output into `out`.
///
/// # Errors
/// What went wrong, with the exit code. Nothing is changed then.
pub fn run(request: Request, out: &mut dyn Write) -> Result<(), Exit> {
    let Request { loaded, action, is_json } = request;
    for warning in &loaded.warnings {
        note(&format!("warning: {warning}"));
    }
    let text = runtime()?.block_on(act(&loaded.config, action, is_json))?;
    print(&text, out)
}

/// A made secret on a line of its own, or the object as JSON with it.
fn answer(object: Value, is_json: bool, secret: Option<&str>) -> String {
    match secret {
        _ if is_json => format!("{object:#}\n"),
        Some(secret) => format!("{secret}\n"),
        None => String::new(),
    }
}

async fn act(config: &Config, action: Action, is_json: bool) -> Result<String, Exit> {
    let action = match action {
        Action::Init(password) => return init(config, &password).await,
        action => action,
    };
    let purpose = match action {
        Action::ListUsers | Action::ShowUser(_) | Action::ListTokens(_) => Purpose::Show,
        Action::RemoveUser { .. } => Purpose::ChangeAll,
        _ => Purpose::Change,
    };
    let mut directory = Directory::open(config, purpose).await?;
    let outcome = match action {
        Action::ListUsers => Ok(list_users(&directory, is_json)),
        Action::ShowUser(name) => show_user(&directory, &name, is_json),
        Action::ListTokens(name) => list_tokens(&directory, name.as_ref(), is_json),
        Action::AddUser { name, groups, profile, password } => {
            let mut user = User { groups, ..User::new(name, Timestamp::now()) };
            check_profile(&profile)?;
            profile.apply(&mut user);
            add_user(&mut directory, user, &password, is_json).await
        }
        Action::SetPassword { name, password } => {
            set_password(&mut directory, &name, &password, is_json).await
        }
        Action::SetGroups { name, edit } => set_groups(&mut directory, &name, &edit, is_json).await,
        Action::SetDisabled { name, is_disabled } => {
            set_disabled(&mut directory, &name, is_disabled).await
        }
        Action::RemoveUser { name, is_forced } => {
            remove_user(&mut directory, &name, is_forced).await
        }
        Action::CreateToken { user, scopes, limits, expiry, comment } => {
            let new = change::NewToken { user, comment, scopes, limits, expires_at: None };
            create_token(&mut directory, new, expiry, is_json).await
        }
        Action::RevokeTokens(ids) => revoke_tokens(&mut directory, &ids).await,
        Action::Init(_) => Ok(String::new()),
    };
    directory.close().await;
    outcome
}

async fn init(config: &Config, password: &Given) -> Result<String, Exit> {
    let chosen = password.chosen_for_root()?;
    let failure = |error: anyhow::Error| Exit::failure(format!("{error:#}"));
    setup::create_data_dir(&config.data_dir).map_err(failure)?;
    let keeper = setup::open(config).await.map_err(failure)?;
    let default = setup::default_root_password(config);
    let made = setup::initialize(&keeper.records, chosen.clone().or(default)).await;
    let made = made.map_err(failure)?;
    let place = config.database();
    let text = match (made, &chosen) {
        (Some(_), Some(_)) => Ok(format!(
            "prepared {place} and `{}`; the user root has the password that was given\n",
            config.blobs()
        )),
        (Some(made), None) => {
            let is_terminal = io::stdout().is_terminal();
            let shown = setup::hand_over(config, &made, is_terminal).map_err(failure)?;
            Ok(format!(
                "prepared {place} and `{}`\n\
                 made the user root {shown}\n\
                 next: `larder serve` starts the server, `larder user add NAME` makes further users, and\n\
                 `larder user password root` changes this password; each with the same --data-dir or --config\n",
                config.blobs(),
            ))
        }
        (None, None) => Ok(already(&place)),
        (None, Some(chosen)) => {
            let stored = setup::load(&keeper.records).await.map_err(failure)?;
            let hash =
                stored.accounts.user(&UserName::root()).and_then(|root| root.password_hash.clone());
            let is_same =
                hash.is_some_and(|hash| tokio::task::block_in_place(|| hash.verify(chosen)));
            if is_same {
                Ok(already(&place))
            } else {
                Err(Exit::failure(format!(
                    "{place} is initialized already, and the user root has another password than the one \
                     given: nothing was changed. `larder user password root` changes it"
                )))
            }
        }
    };
    keeper.records.close().await;
    text
}

fn already(place: &store::DatabaseLocation) -> String {
    format!("{place} is initialized already: nothing was changed\n")
}

/// The bounds of HTTP's edits hold here as well.
fn check_profile(profile: &ProfileEdit) -> Result<(), Exit> {
    let mut object = serde_json::Map::new();
    for (key, field) in [("email", &profile.email), ("title", &profile.title)] {
        if let Field::Set(text) = field {
            object.insert(key.to_owned(), Value::String(text.clone()));
        }
    }
    account::UserEdit::from_json(&object, account::EditRules::default())
        .map(drop)
        .map_err(|error| Exit::Message { code: 2, text: error.to_string() })
}

fn found<'directory>(
    directory: &'directory Directory,
    name: &UserName,
) -> Result<&'directory User, Exit> {
    let user = directory.snapshot().user(name);
    user.map(|user| &**user).ok_or_else(|| {
        let missing = change::NoUser(name.clone());
        Exit::failure(format!("{missing}; `larder user list` shows who does"))
    })
}

fn described(directory: &Directory, user: &User) -> Value {
    accounts::user_json(user, directory.snapshot().tokens_of(&user.name).len())
}

fn list_users(directory: &Directory, is_json: bool) -> String {
    let users = directory.snapshot().users();
    if is_json {
        let list: Vec<Value> = users.map(|user| described(directory, user)).collect();
        return format!("{:#}\n", Value::Array(list));
    }
    let row = |user: &User| {
        [
            user.name.to_string(),
            joined(&user.groups),
            directory.snapshot().tokens_of(&user.name).len().to_string(),
            state(user).to_owned(),
            user.email.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = users.map(|user| row(user)).collect();
    table::columns(["USER", "GROUPS", "TOKENS", "STATE", "EMAIL"], &rows)
}

fn joined(groups: &BTreeSet<GroupName>) -> String {
    groups.iter().map(|group| group.as_str()).collect::<Vec<_>>().join(",")
}

fn state(user: &User) -> &'static str {
    match (user.is_disabled, &user.password_hash) {
        (true, _) => "disabled",
        (false, Some(_)) => "active",
        (false, None) => "no password",
    }
}

fn show_user(directory: &Directory, name: &UserName, is_json: bool) -> Result<String, Exit> {
    let user = found(directory, name)?;
    if is_json {
        return Ok(format!("{:#}\n", described(directory, user)));
    }
    let tokens = directory.snapshot().tokens_of(name).len();
    let lines = [
        ("user", user.name.to_string()),
        ("state", state(user).to_owned()),
        ("groups", joined(&user.groups)),
        ("administrator", if user.is_administrator() { "yes" } else { "no" }.to_owned()),
        ("email", user.email.clone().unwrap_or_default()),
        ("title", user.title.clone().unwrap_or_default()),
        ("tokens", tokens.to_string()),
        ("made", accounts::shown(user.created_at)),
        ("changed", user.modified_at.map(accounts::shown).unwrap_or_default()),
    ];
    Ok(table::pairs(&lines))
}

fn list_tokens(
    directory: &Directory,
    name: Option<&UserName>,
    is_json: bool,
) -> Result<String, Exit> {
    let now = Timestamp::now();
    let snapshot = directory.snapshot();
    let tokens: Vec<&Token> = match name {
        Some(name) => {
            found(directory, name)?;
            snapshot.tokens_of(name).into_iter().map(|token| &**token).collect()
        }
        None => {
            let mut tokens: Vec<&Token> = snapshot.tokens().map(|token| &**token).collect();
            tokens.sort_by(|one, other| {
                (&one.user, one.created_at, one.id).cmp(&(&other.user, other.created_at, other.id))
            });
            tokens
        }
    };
    if is_json {
        let list = tokens.into_iter().map(|token| accounts::token_json(token, now)).collect();
        return Ok(format!("{:#}\n", Value::Array(list)));
    }
    let row = |token: &&Token| {
        let expires = match token.expires_at {
            None => "never".to_owned(),
            Some(_) if token.is_expired(now) => "expired".to_owned(),
            Some(time) => accounts::shown(time),
        };
        [
            token.id.to_string(),
            token.user.to_string(),
            token.scopes.to_string(),
            token.limits.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            accounts::shown(token.created_at),
            expires,
            token.comment.clone(),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    Ok(table::columns(["ID", "USER", "SCOPES", "LIMITED TO", "MADE", "EXPIRES", "COMMENT"], &rows))
}

fn created(snapshot: &account::Snapshot, user: &User) -> Result<record::Batch, Exit> {
    change::create_user(snapshot, user).map_err(|error| match error {
        // devpi's text does not say which.
        change::CreateUserError::Exists => {
            Exit::failure(format!("user '{}' already exists", user.name))
        }
        error => Exit::failure(error),
    })
}

async fn add_user(
    directory: &mut Directory,
    user: User,
    password: &Given,
    is_json: bool,
) -> Result<String, Exit> {
    // Before somebody is asked for a password in vain.
    created(directory.snapshot(), &user)?;
    let password = password.read(&user.name)?;
    let user = User { password_hash: password.hash()?, ..user };
    let make = |snapshot: &account::Snapshot| Ok((Some(created(snapshot, &user)?), ()));
    directory.change(make).await?;
    let name = &user.name;
    match joined(&user.groups).as_str() {
        "" => note(&format!("made the user {name}")),
        groups => note(&format!("made the user {name}, in the groups {groups}")),
    }
    if password.is_none() {
        note("without a password, only tokens open: `larder token create` makes one");
    }
    Ok(password_answer(accounts::user_json(&user, 0), &password, is_json))
}

fn password_answer(mut object: Value, password: &given::Password, is_json: bool) -> String {
    let made = password.made();
    if let Some(made) = made {
        object["password"] = json!(made);
        if !is_json {
            note("the password is shown only now:");
        }
    }
    answer(object, is_json, made)
}

async fn set_password(
    directory: &mut Directory,
    name: &UserName,
    password: &Given,
    is_json: bool,
) -> Result<String, Exit> {
    found(directory, name)?;
    let password = password.read(name)?;
    let hash = password.hash()?;
    let set = |snapshot: &account::Snapshot| {
        let batch = change::set_password(snapshot, name, hash.clone(), Timestamp::now());
        Ok((batch.map_err(Exit::failure)?, ()))
    };
    directory.change(set).await?;
    note(&match password.is_none() {
        true => format!("the user {name} has no password any more; their tokens stay"),
        false => format!("the user {name} has a new password; their logins end, their tokens stay"),
    });
    Ok(password_answer(described(directory, found(directory, name)?), &password, is_json))
}

async fn set_groups(
    directory: &mut Directory,
    name: &UserName,
    edit: &GroupEdit,
    is_json: bool,
) -> Result<String, Exit> {
    let set = |snapshot: &account::Snapshot| {
        let none = || Exit::failure(change::NoUser(name.clone()));
        let groups = edit.apply(&snapshot.user(name).ok_or_else(none)?.groups);
        let batch = change::set_groups(snapshot, name, groups, Timestamp::now());
        Ok((batch.map_err(Exit::failure)?, ()))
    };
    directory.change(set).await?;
    let user = found(directory, name)?;
    if is_json {
        return Ok(format!("{:#}\n", described(directory, user)));
    }
    Ok(user.groups.iter().map(|group| format!("{group}\n")).collect())
}

async fn set_disabled(
    directory: &mut Directory,
    name: &UserName,
    is_disabled: bool,
) -> Result<String, Exit> {
    let set = |snapshot: &account::Snapshot| {
        let batch = change::set_disabled(snapshot, name, is_disabled, Timestamp::now());
        let batch = batch.map_err(Exit::failure)?;
        let is_news = batch.is_some();
        Ok((batch, is_news))
    };
    let is_news = directory.change(set).await?;
    let already = if is_news { "" } else { " already" };
    note(&match is_disabled {
        true => format!("the user {name} is disabled{already}: none of their credentials opens"),
        false => format!("the user {name} is enabled{already}"),
    });
    Ok(String::new())
}

async fn remove_user(
    directory: &mut Directory,
    name: &UserName,
    is_forced: bool,
) -> Result<String, Exit> {
    let remove = |snapshot: &account::Snapshot, index: Option<&pypi::Snapshot>| {
        let counts = (
            snapshot.tokens_of(name).len(),
            index.map_or(0, |index| index.stages_of(name.as_str()).count()),
        );
        let mut batch = change::delete_user(snapshot, name).map_err(Exit::failure)?;
        if let Some(index) = index {
            let stages = pypi::change::stage::delete_of_user(index, name, is_forced);
            let stages = stages.map_err(|error| {
                Exit::failure(format!("{error}; --force deletes it with everything in it"))
            })?;
            batch.writes.extend(stages.writes);
            batch.checks.extend(stages.checks);
        }
        Ok((Some(batch), counts))
    };
    let (tokens, stages) = directory.change_all(remove).await?;
    note(&format!("removed the user {name} (tokens: {tokens}, indexes: {stages})"));
    Ok(String::new())
}

async fn create_token(
    directory: &mut Directory,
    new: change::NewToken,
    expiry: Expiry,
    is_json: bool,
) -> Result<String, Exit> {
    let now = Timestamp::now();
    let new = change::NewToken { expires_at: expiry.at(now).map_err(Exit::failure)?, ..new };
    let make = |snapshot: &account::Snapshot| {
        let secret = accounts::random().map_err(Exit::failure)?;
        let made = change::create_token(snapshot, new.clone(), secret, now);
        let (text, token, batch) = made.map_err(Exit::failure)?;
        Ok((Some(batch), (text, token)))
    };
    let (text, token) = directory.change(make).await?;
    let mut object = accounts::token_json(&token, now);
    object["token"] = json!(text.reveal());
    if !is_json {
        let until = token.expires_at.map_or_else(
            || "until it is revoked".to_owned(),
            |time| format!("until {}", accounts::shown(time)),
        );
        let limits = token.limits.as_deref();
        let limits = limits.map_or_else(String::new, |it| format!(", limited to {it}"));
        note(&format!(
            "made the token {} of the user {} for {}, {until}{limits}; shown only now:",
            token.id, token.user, token.scopes
        ));
    }
    Ok(answer(object, is_json, Some(&text.reveal())))
}

async fn revoke_tokens(directory: &mut Directory, ids: &[TokenId]) -> Result<String, Exit> {
    // All or none, as far as that can be known before.
    for id in ids {
        let token = directory.snapshot().token(*id);
        token.ok_or_else(|| Exit::failure(change::NoToken(*id)))?;
    }
    for id in ids.iter().collect::<BTreeSet<_>>() {
        let revoke = |snapshot: &account::Snapshot| {
            let owner = snapshot.token(*id).map(|token| token.user.clone());
            let batch = change::revoke_token(snapshot, *id).map_err(Exit::failure)?;
            Ok((Some(batch), owner))
        };
        if let Some(owner) = directory.change(revoke).await? {
            note(&format!("revoked the token {id} of the user {owner}"));
        }
    }
    Ok(String::new())
}
