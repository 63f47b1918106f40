//! What belongs together in `[ldap]`: the password from its file, the rules about several keys, and the settings of the directory.

use std::path::{Path, PathBuf};

use account::GroupMap;
use ldap::{Groups, Settings, Users};

use super::Ldap;
use super::value::Secret;

/// The file with the password of `ldap.bind_dn`, where it is not given itself: the named one, else that of systemd's credentials.
pub(super) fn password_file(ldap: &Ldap, credentials: Option<&str>) -> Option<PathBuf> {
    if ldap.bind_dn.is_none() || ldap.bind_password.is_some() {
        return None;
    }
    let of_service =
        || Some(Path::new(credentials?).join("ldap-password")).filter(|file| file.exists());
    ldap.bind_password_file.clone().or_else(of_service)
}

/// The password in the file. Unlike other secrets it may have blanks: people choose such passwords.
///
/// # Errors
/// What is wrong with the file. Directories take a bind without a password for an anonymous one.
pub(super) fn password(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err("it is empty: expected the password of ldap.bind_dn".to_owned()),
        password => Ok(Secret::new(password)),
    }
}

/// Rules about several keys together that do not hold: the key, and the complaint, with `{at}` for where its value came from.
pub(super) fn problems(ldap: &Ldap) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    if ldap.urls.is_empty() {
        return problems;
    }
    let has_search = ldap.user_base.is_some() || ldap.user_filter.is_some();
    if ldap.user_dn.is_some() == has_search {
        let text = "ldap.urls ({at}) is set: expected ldap.user_dn, or ldap.user_base and ldap.user_filter, and not both";
        problems.push(("ldap.urls", text.to_owned()));
    }
    // A file that is of no use has its own complaint.
    let (password, has_password) = match (&ldap.bind_password, &ldap.bind_password_file) {
        (None, Some(_)) => ("ldap.bind_password_file", true),
        (password, _) => ("ldap.bind_password", password.is_some()),
    };
    let pairs = [
        (
            "ldap.user_base",
            ldap.user_base.is_some(),
            "ldap.user_filter",
            ldap.user_filter.is_some(),
        ),
        (
            "ldap.group_base",
            ldap.group_base.is_some(),
            "ldap.group_filter",
            ldap.group_filter.is_some(),
        ),
        ("ldap.bind_dn", ldap.bind_dn.is_some(), password, has_password),
    ];
    for (one, has_one, other, has_other) in pairs {
        let (given, missing) = if has_one { (one, other) } else { (other, one) };
        if has_one != has_other {
            let text = format!("{given} ({{at}}) is set but {missing} is not: expected both");
            problems.push((given, text));
        }
    }
    if let Some(filter) = &ldap.user_filter {
        let shown = format!("ldap.user_filter = \"{filter}\" ({{at}})");
        let found = filter.name_attributes().join(", ");
        if filter.asks_for_dn() {
            let text = format!("{shown}: `{{userdn}}` is not known yet, expected `{{username}}`");
            problems.push(("ldap.user_filter", text));
        } else if !filter.asks_for_name() {
            let text = format!(
                "{shown} finds the same for every user: expected `{{username}}` in it, such as (uid={{username}})"
            );
            problems.push(("ldap.user_filter", text));
        } else if ldap.user_attribute.is_none() && filter.name_attributes().len() != 1 {
            let text = format!(
                "{shown} compares `{{username}}` with [{found}]: expected one attribute, or ldap.user_attribute, because a \
                 user has one name"
            );
            problems.push(("ldap.user_filter", text));
        }
    }
    if let Some(filter) = &ldap.group_filter
        && !filter.asks_for_name()
        && !filter.asks_for_dn()
    {
        let text = format!(
            "ldap.group_filter = \"{filter}\" ({{at}}) finds the same groups for every user: expected `{{userdn}}` or \
             `{{username}}` in it, such as (member={{userdn}})"
        );
        problems.push(("ldap.group_filter", text));
    }
    if ldap.group_filter.is_some() && ldap.groups.is_empty() {
        let text = "ldap.group_filter ({at}) is set but ldap.groups is empty: expected GROUP=HERE, *=ldap-* or *=*";
        problems.push(("ldap.group_filter", text.to_owned()));
    }
    problems
}

impl Ldap {
    /// The directory, if one is asked. [`crate::Inputs::load`] has checked that everything is there.
    pub fn directory(&self) -> Option<Settings> {
        if self.urls.is_empty() {
            return None;
        }
        let users = match (&self.user_dn, &self.user_base, &self.user_filter) {
            (Some(template), ..) => Users::Template(template.clone()),
            (None, Some(base), Some(filter)) => Users::Search {
                base: base.clone(),
                scope: self.user_scope,
                filter: filter.clone(),
                name_attribute: match &self.user_attribute {
                    Some(attribute) => attribute.clone(),
                    None => (*filter.name_attributes().first()?).to_owned(),
                },
            },
            _ => return None,
        };
        let groups = self.group_base.clone().zip(self.group_filter.clone());
        let groups = groups.map(|(base, filter)| Groups {
            base,
            scope: self.group_scope,
            filter,
            attribute: self.group_attribute.clone(),
            map: self.group_map(),
        });
        let service = self.bind_dn.clone().zip(self.bind_password.as_ref());
        Some(Settings {
            servers: self.urls.clone(),
            start_tls: self.start_tls,
            ca_file: self.ca_file.clone(),
            service: service.map(|(dn, password)| (dn, password.reveal().to_owned())),
            users,
            groups,
            timeout: self.timeout,
        })
    }

    /// What the directory's groups mean here.
    pub fn group_map(&self) -> GroupMap {
        GroupMap::new(self.groups.iter().cloned())
    }
}
