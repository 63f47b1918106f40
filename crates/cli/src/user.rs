//! `larder user …`: users listed, made and changed in the store itself.
//!
//! arguments -> [`Command::run`] -> an operation of [`operations::users`] -> the store, from which running servers take it within
//! moments. These commands ask no server: who can write the store may do everything. Results go to stdout, notes to
//! stderr: a generated password stands alone on stdout, once, for scripts to take.

use std::collections::BTreeSet;

use account::change::{self, CreateUserError};
use account::{EditRules, GroupName, ProfileEdit, User, UserEdit, UserName};
use clap::{Args, Subcommand};
use config::Config;
use operations::users::{CreateUser, DeleteUser, SetDisabled, SetGroups, SetPassword};
use operations::{Foreseen, Refusal, Rule};
use serde_json::{Value, json};
use state::accounts;

use super::directory::{Directory, Purpose};
use super::password::{Password, PasswordSource};
use super::{Answer, Exit, note, runtime, table};

type Groups = BTreeSet<GroupName>;

#[derive(Subcommand)]
pub(super) enum Command {
    /// List all users
    List(Answer),
    /// Show a user
    Show {
        user: UserName,
        #[command(flatten)]
        answer: Answer,
    },
    /// Make a user; without a flag that says where the password comes from, the command asks for it
    Add {
        user: UserName,
        /// Groups that they are in, separated by commas; members of `admin` may do everything
        #[arg(long, value_name = "GROUPS", value_parser = groups)]
        groups: Vec<Groups>,
        /// Their mail address; not checked
        #[arg(long, value_name = "EMAIL")]
        email: Option<String>,
        /// A short text about them, such as their full name
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
        #[command(flatten)]
        password: PasswordSource,
        #[command(flatten)]
        answer: Answer,
    },
    /// Set a user's password: their logins end, their tokens stay valid
    Password {
        user: UserName,
        #[command(flatten)]
        password: PasswordSource,
        #[command(flatten)]
        answer: Answer,
    },
    /// Show or change the groups that a user is in
    Groups {
        user: UserName,
        #[command(flatten)]
        edit: GroupEdit,
        #[command(flatten)]
        answer: Answer,
    },
    /// Refuse all credentials of a user from now on; nothing of theirs is deleted
    Disable { user: UserName },
    /// Accept the credentials of a user again
    Enable { user: UserName },
    /// Delete a user with their tokens and indexes
    Remove {
        user: UserName,
        /// Delete even indexes that are not volatile, with everything in them
        #[arg(long)]
        force: bool,
    },
}

/// The change to a user's groups.
#[derive(Args)]
pub(super) struct GroupEdit {
    /// These groups and no others, separated by commas; empty for none
    #[arg(long, value_name = "GROUPS", value_parser = groups)]
    set: Option<Vec<Groups>>,
    /// These groups as well, separated by commas
    #[arg(long, value_name = "GROUPS", value_parser = groups)]
    add: Vec<Groups>,
    /// No longer these groups, separated by commas
    #[arg(long, value_name = "GROUPS", value_parser = groups)]
    remove: Vec<Groups>,
}

impl GroupEdit {
    fn apply(&self, before: &Groups) -> Groups {
        let base: Groups = match &self.set {
            Some(set) => set.iter().flatten().cloned().collect(),
            None => before.clone(),
        };
        let all = base.iter().chain(self.add.iter().flatten());
        let is_removed = |group: &GroupName| self.remove.iter().any(|it| it.contains(group));
        all.filter(|group| !is_removed(group)).cloned().collect()
    }
}

fn groups(text: &str) -> Result<Groups, account::NameError> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}

impl Command {
    /// Carries out the command on the store of `config`, and returns the text for stdout.
    ///
    /// # Errors
    /// What went wrong, with the exit code. Nothing is changed then.
    pub(super) fn run(self, config: &Config) -> Result<String, Exit> {
        let purpose = match self {
            Command::List(_) | Command::Show { .. } => Purpose::Show,
            Command::Remove { .. } => Purpose::ChangeAll,
            _ => Purpose::Change,
        };
        runtime()?.block_on(Directory::with(config, purpose, async |directory| match self {
            Command::List(answer) => Ok(list_users(directory, answer.is_json)),
            Command::Show { user, answer } => show_user(directory, &user, answer.is_json),
            Command::Add { user, groups, email, title, password, answer } => {
                let groups = groups.into_iter().flatten().collect();
                let profile = profile([("email", email), ("title", title)])?;
                let creating = CreateUser { groups, profile, ..CreateUser::named(user) };
                add_user(directory, creating, &password, answer.is_json).await
            }
            Command::Password { user, password, answer } => {
                set_password(directory, &user, &password, answer.is_json).await
            }
            Command::Groups { user, edit, answer } => {
                set_groups(directory, &user, &edit, answer.is_json).await
            }
            Command::Disable { user } => set_disabled(directory, &user, true).await,
            Command::Enable { user } => set_disabled(directory, &user, false).await,
            Command::Remove { user, force } => remove_user(directory, &user, force).await,
        }))
    }
}

/// A made secret on its own line, or the object as JSON with it.
pub(super) fn answer(object: Value, is_json: bool, secret: Option<&str>) -> String {
    match secret {
        _ if is_json => format!("{object:#}\n"),
        Some(secret) => format!("{secret}\n"),
        None => String::new(),
    }
}

/// The profile that these texts make, within the bounds of HTTP's edits.
fn profile(texts: [(&str, Option<String>); 2]) -> Result<ProfileEdit, Exit> {
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text?)));
    let texts = texts.filter(|(_, text)| !text.is_empty());
    let object = texts.map(|(key, text)| (key.to_owned(), text.into())).collect();
    let edit = UserEdit::from_json(&object, EditRules::default()).map_err(Exit::usage)?;
    Ok(edit.profile)
}

/// The user of this name.
///
/// # Errors
/// No user has this name.
pub(super) fn found<'directory>(
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

async fn add_user(
    directory: &mut Directory,
    mut creating: CreateUser,
    password: &PasswordSource,
    is_json: bool,
) -> Result<String, Exit> {
    // Before the command asks for a password for nothing.
    directory.carry_out(&Foreseen(&creating)).await.map_err(|refusal| match refusal {
        // devpi's text does not say which.
        Refusal::Rule(Rule::CreateUser(CreateUserError::Exists)) => {
            Exit::failure(format!("user '{}' already exists", creating.name))
        }
        refusal => refusal.into(),
    })?;
    let password = password.read(&creating.name)?;
    creating.password = password.hash()?;
    let user = directory.carry_out(&creating).await?.outcome;
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

fn password_answer(mut object: Value, password: &Password, is_json: bool) -> String {
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
    password: &PasswordSource,
    is_json: bool,
) -> Result<String, Exit> {
    found(directory, name)?;
    let password = password.read(name)?;
    let hash = password.hash()?;
    directory.carry_out(&SetPassword { name: name.clone(), password: hash }).await?;
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
    let setting = directory.carry_out_with(|basis| {
        let user = basis.stored.accounts.user(name);
        let user = user.ok_or_else(|| change::NoUser(name.clone()))?;
        Ok(SetGroups { name: name.clone(), groups: edit.apply(&user.groups) })
    });
    setting.await?;
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
    let setting = SetDisabled { name: name.clone(), is_disabled };
    let is_news = directory.carry_out(&setting).await?.serial.is_some();
    let already = if is_news { "" } else { " already" };
    note(&match is_disabled {
        true => format!("the user {name} is disabled{already}: all their credentials are refused"),
        false => format!("the user {name} is enabled{already}"),
    });
    Ok(String::new())
}

async fn remove_user(
    directory: &mut Directory,
    name: &UserName,
    is_forced: bool,
) -> Result<String, Exit> {
    let tokens = directory.snapshot().tokens_of(name).len();
    let stages = directory.index().stages_of(name.as_str()).count();
    let deleting = DeleteUser { name: name.clone(), force: is_forced };
    directory.carry_out(&deleting).await.map_err(|refusal| match refusal {
        Refusal::Rule(Rule::IndexOfUser(error)) => {
            Exit::failure(format!("{error}; --force deletes it with everything in it"))
        }
        refusal => refusal.into(),
    })?;
    note(&format!("removed the user {name} (tokens: {tokens}, indexes: {stages})"));
    Ok(String::new())
}
