//! Users of an export whose name is a path of the server itself: they come under another name, with everything of theirs.

use std::collections::BTreeMap;

use account::{Snapshot, UserName, is_reserved};
use serde_json::Value;

use super::dump::{Dump, Members};
use crate::report::Report;

/// Settings of an index that list users.
const LISTS: [&str; 4] = ["acl_read", "acl_pkg_read", "acl_upload", "acl_toxresult_upload"];

/// Renames the users that the server has no place for, wherever the export names them, and reports each. The new name follows
/// from the export alone, so a second import finds what the first one made. A user that is there under the old name keeps it.
pub(super) fn rename(dump: &mut Dump, accounts: &Snapshot, report: &mut Report) {
    let has_no_place = |name: &&String| {
        let name = name.parse::<UserName>();
        name.is_ok_and(|name| is_reserved(&name) && accounts.user(&name).is_none())
    };
    let names: BTreeMap<String, String> = dump
        .users
        .keys()
        .filter(has_no_place)
        .map(|old| (old.clone(), free_name(old, dump)))
        .collect();
    if names.is_empty() {
        return;
    }
    for (old, new) in &names {
        if let Some(user) = dump.users.remove(old) {
            dump.users.insert(new.clone(), user);
        }
        let text = format!(
            "is called `{new}` from now on, with its indexes, since the server answers at /{old} itself: clients need \
             the new name in their URLs and logins"
        );
        report.note(format_args!("user {old}"), text);
    }
    let renaming = Renaming(names);
    for (name, mut index) in std::mem::take(&mut dump.indexes) {
        renaming.settings(&mut index.indexconfig);
        for line in index.files.iter_mut().flat_map(|file| &mut file.log) {
            renaming.user(&mut line.who);
            line.src.iter_mut().chain(&mut line.dst).for_each(|stage| renaming.stage(stage));
        }
        let mut name = name;
        renaming.stage(&mut name);
        dump.indexes.insert(name, index);
    }
}

/// A name like `old` that the export does not have.
fn free_name(old: &str, dump: &Dump) -> String {
    let is_free = |name: &String| {
        let prefix = format!("{name}/");
        !dump.users.contains_key(name) && !dump.indexes.keys().any(|it| it.starts_with(&prefix))
    };
    let first = format!("{old}-user");
    let others = (2..).map(|number: u64| format!("{old}-user{number}"));
    std::iter::once(first.clone()).chain(others).find(is_free).unwrap_or(first)
}

/// New names by old ones.
struct Renaming(BTreeMap<String, String>);

impl Renaming {
    fn user(&self, name: &mut Option<String>) {
        if let Some(new) = name.as_ref().and_then(|name| self.0.get(name)) {
            *name = Some(new.clone());
        }
    }

    /// `user/index`, and whatever follows.
    fn stage(&self, text: &mut String) {
        let new = text.split_once('/').and_then(|(user, rest)| Some((self.0.get(user)?, rest)));
        if let Some((user, rest)) = new {
            *text = format!("{user}/{rest}");
        }
    }

    fn settings(&self, config: &mut Members) {
        if let Some(bases) = config.get_mut("bases") {
            each_text(bases, &|text| self.stage(text));
        }
        for key in LISTS {
            if let Some(list) = config.get_mut(key) {
                each_text(list, &|text| {
                    if let Some(new) = self.0.get(text) {
                        *text = new.clone();
                    }
                });
            }
        }
    }
}

/// Changes the texts of a list, which may be a text with commas.
fn each_text(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::String(text) => {
            let parts = text.split(',').map(|part| {
                let mut part = part.trim().to_owned();
                change(&mut part);
                part
            });
            *text = parts.collect::<Vec<_>>().join(",");
        }
        _ => {}
    }
}
