//! [`Environment`]: the variables of the process.

use std::collections::BTreeMap;
use std::path::Path;

/// The environment, taken once, so that tests bring their own.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Names of variables whose values are no text.
    pub(super) not_unicode: Vec<String>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let mut environment = Self::default();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            match value.to_str() {
                Some(value) => {
                    drop(environment.variables.insert(name.to_owned(), value.to_owned()))
                }
                None => environment.not_unicode.push(name.to_owned()),
            }
        }
        environment
    }

    /// The variable's value; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The directory of systemd's credentials.
    pub fn credentials(&self) -> Option<&Path> {
        self.get("CREDENTIALS_DIRECTORY").map(Path::new)
    }

    /// Names that begin as ours do.
    pub(super) fn own_names(&self) -> impl Iterator<Item = &String> {
        self.variables.keys().chain(&self.not_unicode).filter(|name| name.starts_with("LARDER_"))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let variables =
            pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables, not_unicode: Vec::new() }
    }
}
