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
use std::process::Stdio;

use serde_json::Value;

use crate::asking::Says as _;
use crate::process::larder;

/// A data directory, `data` below it, and what the command line says about it.
///
/// A server that runs on it shows each commit soon after the command has ended, and the commits in their order. So a
/// test waits for the last one, and then has all of them.
pub(crate) struct Place<'path>(pub(crate) &'path Path);

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Everything that it printed.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Place<'_> {
    /// Runs `larder WORDS… --data-dir data` with `input` as its standard input. No word has a blank.
    pub(crate) fn run_with(&self, line: &str, input: &str) -> Done {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>(), input)
    }

    pub(crate) fn run_words(&self, words: &[&str], input: &str) -> Done {
        let mut command = larder(self.0);
        command.args(words).args(["--data-dir", "data"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("piped");
        // The command may end without reading.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Done {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
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
        let done = self.run_with(line, "");
        assert_eq!(done.code, Some(code), "`{line}`: {done:?}");
        done.said().says(says);
    }

    /// A user with this password.
    #[track_caller]
    pub(crate) fn add(&self, name: &str, password: &str) {
        let done = self.run_with(&format!("user add {name} --password-stdin"), password);
        assert_eq!(done.code, Some(0), "{done:?}");
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
