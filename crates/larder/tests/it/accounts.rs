//! Users and tokens: made on the command line with the real binary, and what a running server takes from it.

mod command;
mod foreign_pages;
mod guessing;
mod header;
mod managing;
mod running;
mod sessions;
mod tokens;

use std::path::Path;

use serde_json::Value;

use crate::process::{Done, larder};

/// A data directory, `data` below it, and what the command line says about it.
///
/// A server that runs on it shows each commit soon after the command has ended, and the commits in their order. So a
/// test waits for the last one, and then has all of them.
pub(crate) struct Place<'path>(pub(crate) &'path Path);

impl Place<'_> {
    /// Runs `larder WORDS… --data-dir data` with `input` as its standard input. No word has a blank.
    pub(crate) fn run_with(&self, line: &str, input: &str) -> Done {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>(), input)
    }

    pub(crate) fn run_words(&self, words: &[&str], input: &str) -> Done {
        Done::of(larder(self.0).args(words).args(["--data-dir", "data"]), input)
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let done = self.run_with(line, "");
        assert_eq!(done.code, Some(0), "`{line}`: {done:?}");
        done.stdout
    }

    /// [`Place::run`] with its output as JSON.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(line)).expect("JSON")
    }

    /// A command ends with this code and says this.
    #[track_caller]
    pub(crate) fn check(&self, line: &str, code: i32, says: &str) {
        self.run_with(line, "").check(code, says);
    }

    /// A user with this password.
    #[track_caller]
    pub(crate) fn add(&self, name: &str, password: &str) {
        self.run_with(&format!("user add {name} --password-stdin"), password).check(0, "");
    }

    /// A new token.
    #[track_caller]
    pub(crate) fn token(&self, line: &str) -> String {
        let printed = self.run(&format!("token create {line}"));
        let token = printed.strip_suffix('\n').expect("a line");
        assert!(token.starts_with("larder_") && !token.contains(['\n', ' ']), "{printed}");
        token.to_owned()
    }
}

/// A store with `root`, whose password is `horse`.
#[track_caller]
pub(crate) fn prepare(directory: &Path) -> Place<'_> {
    let place = Place(directory);
    place.run("init --root-password horse");
    place
}
