//! [`DnTemplate`]: the DN of a user, made of the name.

use std::fmt;
use std::str::FromStr;

const PLACE: &str = "{username}";

/// A DN with the place `{username}`, such as `uid={username},ou=people,dc=example,dc=org`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnTemplate(String);

/// Text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a DN with `{PLACE}` was expected, such as uid={PLACE},ou=people,dc=example,dc=org")]
pub struct DnTemplateError;

impl DnTemplate {
    /// The DN for this name.
    pub(crate) fn fill(&self, name: &str) -> String {
        self.0.replace(PLACE, &escaped(name))
    }
}

impl FromStr for DnTemplate {
    type Err = DnTemplateError;

    fn from_str(text: &str) -> Result<DnTemplate, DnTemplateError> {
        let rest = text.replace(PLACE, "");
        let is_fit = rest.len() < text.len() && !rest.contains(['{', '}', '\0']);
        is_fit.then(|| DnTemplate(text.to_owned())).ok_or(DnTemplateError)
    }
}

impl fmt::Display for DnTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The value of an attribute as it is written in a DN (RFC 4514).
fn escaped(value: &str) -> String {
    let last = value.chars().count().saturating_sub(1);
    let mut text = String::with_capacity(value.len());
    for (at, character) in value.chars().enumerate() {
        match character {
            '\0' => text.push_str("\\00"),
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => text.extend(['\\', character]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_value_of_the_dn() {
        let template: DnTemplate = "uid={username},dc=x".parse().expect("a template");
        for (name, dn) in [
            ("alice", "uid=alice,dc=x"),
            ("a,dc=evil", "uid=a\\,dc\\=evil,dc=x"),
            ("a+cn=b", "uid=a\\+cn\\=b,dc=x"),
            ("a\\", "uid=a\\\\,dc=x"),
            ("a\0b", "uid=a\\00b,dc=x"),
            ("#a#", "uid=\\#a#,dc=x"),
            (" a b ", "uid=\\ a b\\ ,dc=x"),
            (" ", "uid=\\ ,dc=x"),
            ("\"<>;\"", "uid=\\\"\\<\\>\\;\\\",dc=x"),
            ("jürgen", "uid=jürgen,dc=x"),
            ("{username}", "uid={username},dc=x"),
        ] {
            assert_eq!(template.fill(name), dn, "{name:?}");
        }
    }

    #[test]
    fn a_template_has_the_place() {
        for bad in
            ["", "uid=alice,dc=x", "uid={user},dc=x", "uid={username},dc={x}", "{username}\0"]
        {
            assert_eq!(bad.parse::<DnTemplate>(), Err(DnTemplateError), "{bad}");
        }
    }
}
