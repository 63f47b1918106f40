//! Problems with a configuration, and the origin of a value.

use std::fmt;
use std::path::PathBuf;

use super::key::{Key, Kind};
use super::value::{MASK, without_password};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table of keys.
    Default,
    /// The table of keys, changed because `demo` is on.
    Demo,
    /// The configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Column in characters, counted from 1.
        column: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag, without its dashes.
    Flag(String),
    /// A file that holds nothing but this value.
    KeyFile(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::Demo => write!(f, "default with demo"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::KeyFile(path) => write!(f, "file {}", path.display()),
        }
    }
}

impl Origin {
    /// Precedence of the layer: the greater one wins.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Default | Self::Demo => 0,
            Self::File { .. } | Self::KeyFile(_) => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

/// A problem with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key, value, origin and what was expected, on one line.
    pub message: String,
    /// Whether the command line is to blame, rather than the surroundings.
    pub is_usage: bool,
}

impl Problem {
    /// A problem with something from `origin`.
    pub(super) fn new(origin: &Origin, message: String) -> Self {
        Self { message, is_usage: matches!(origin, Origin::Flag(_)) }
    }
}

/// Everything that is wrong with the configuration: at least one problem, a line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The problems, in the order of the keys.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// The process' exit code: 2 if only flags are wrong, else 78 (EX_CONFIG of sysexits.h).
    pub fn exit_code(&self) -> u8 {
        if self.problems.iter().all(|problem| problem.is_usage) { 2 } else { 78 }
    }
}

/// The value as a message may show it: quoted, secrets and passwords masked.
pub(super) fn shown(key: &Key, texts: &[String]) -> String {
    match key.kind {
        Kind::Secret => MASK.to_owned(),
        _ => format!("{:?}", without_password(&texts.join(","))),
    }
}
