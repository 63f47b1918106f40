//! The users of an export, with their password hashes where these can be used.

use account::{EditRules, Password, PasswordHash, User, UserEdit, UserName, change};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::dump::{Dump, Members};
use crate::report::Report;
use crate::writer::PlannedBatch;

/// devpi's members of a user that an edit does not have.
const KEPT_ELSEWHERE: [&str; 2] = ["pwhash", "pwsalt"];

/// The keys of an edit.
const PROFILE: [&str; 8] =
    ["email", "title", "description", "custom_data", "username", "created", "modified", "indexes"];

/// Parses the users. A hash that no password fits, or every password, is left out and reported.
///
/// # Errors
/// Only if a thread panics.
pub(super) async fn read(
    dump: &Dump,
    is_empty_password_allowed: bool,
    report: &mut Report,
) -> anyhow::Result<Vec<User>> {
    let mut users = Vec::with_capacity(dump.users.len());
    for (name, object) in &dump.users {
        let subject = format!("user {name}");
        let name: UserName = match name.parse() {
            Ok(name) => name,
            Err(error) => {
                report.users.not_imported += 1;
                report.fail(subject, error);
                continue;
            }
        };
        let mut user = User::new(name, time(object, "created").unwrap_or(Timestamp::UNIX_EPOCH));
        user.modified_at = time(object, "modified");
        apply_profile(object, &mut user, &subject, report);
        let hash = match object.get("pwhash").and_then(Value::as_str) {
            None | Some("") => {
                report.note(&subject, "has no password; `larder user password` sets one");
                None
            }
            Some(text) => match text.parse::<PasswordHash>() {
                Ok(hash) => Some(hash),
                Err(error) => {
                    let text = "imported without a password; `larder user password` sets one";
                    report.note(&subject, format_args!("{text}: {error}"));
                    None
                }
            },
        };
        user.password_hash = match hash {
            Some(hash) if !is_empty_password_allowed => {
                let checked = hash.clone();
                // This takes tens of milliseconds of CPU.
                let check = move || {
                    let empty = Password::attempt("");
                    checked.verify(&empty)
                };
                if tokio::task::spawn_blocking(check).await? {
                    let text = "has the empty password, and is imported without one; `larder user \
                                password` sets one";
                    report.note(&subject, text);
                    None
                } else {
                    Some(hash)
                }
            }
            hash => hash,
        };
        users.push(user);
    }
    Ok(users)
}

fn time(object: &Members, key: &str) -> Option<Timestamp> {
    object.get(key)?.as_str()?.parse().ok()
}

fn apply_profile(object: &Members, user: &mut User, subject: &str, report: &mut Report) {
    let mut profile = Map::new();
    for (key, value) in object.iter() {
        if PROFILE.contains(&key.as_str()) {
            profile.insert(key.clone(), value.clone());
        } else if !KEPT_ELSEWHERE.contains(&key.as_str()) {
            report.note(subject, format_args!("the unknown setting `{key}` was dropped"));
        }
    }
    match UserEdit::from_json(&profile, EditRules::default()) {
        Ok(edit) => edit.profile.apply(user),
        Err(error) => report.note(subject, format_args!("the profile was dropped: {error}")),
    }
}

/// Adds the users that do not exist yet.
pub(super) fn plan(users: &[User], plan: &mut PlannedBatch, report: &mut Report) {
    for user in users {
        let subject = format!("user {}", user.name);
        let known = plan.stored().accounts.user(&user.name).cloned();
        if let Some(known) = known {
            if is_same(&known, user) {
                report.users.already_there += 1;
            } else if user.name.is_root() {
                // `larder init` has made this user and told new owners to do so.
                report.users.already_there += 1;
                report.note(subject, "was there already, and stays as it is, with its password");
            } else {
                report.users.not_imported += 1;
                report.conflict(subject, "another user of this name is there, and stays as it is");
            }
            continue;
        }
        if user.name.is_root() && user.password_hash.is_none() {
            // Its password is made up later, after this plan.
            report.users.imported += 1;
            continue;
        }
        match change::create_user(&plan.stored().accounts, user) {
            Ok(batch) => {
                plan.add(batch);
                report.users.imported += 1;
            }
            Err(error) => {
                report.users.not_imported += 1;
                report.fail(subject, error);
            }
        }
    }
}

/// Whether this user was imported before. Changes made here since then do not make it a different user; another
/// creation time does.
fn is_same(known: &User, user: &User) -> bool {
    known.created_at == user.created_at
}
