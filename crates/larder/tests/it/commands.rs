//! `larder index …` and `larder release …` beside a running server: on its data directory, and over HTTP.

mod index;
mod object_store;
mod online;
mod publisher;
mod release;
mod remote;

use serde_json::Value;

use crate::accounts::{Place, prepare};
use crate::client::Response;
use crate::process::{Done, Process, larder};
use crate::shown::redacted;
use crate::wait_until;

/// A server of the Python index alone, with the users `root` (password `horse`), `team` and `alice` (password `pw`).
struct Running {
    process: Process,
}

/// A way to run commands: with these words after every line.
struct Way<'running> {
    running: &'running Running,
    flags: Vec<String>,
}

/// Runs a check of a command twice, each time with its own server: on the data directory, and over HTTP as `team`.
#[track_caller]
fn both_ways(start: fn() -> Running, scopes: &str, check: fn(&Running, &Way<'_>)) {
    let running = start();
    check(&running, &running.store());
    let running = start();
    check(&running, &running.server("team", scopes));
}

impl Running {
    fn start() -> Running {
        Running::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Running {
        let arguments = [&["--aur-enabled=false"], arguments].concat();
        let process = Process::start(&arguments, |directory| {
            let place = prepare(directory);
            place.add("team", "pw");
            place.add("alice", "pw");
        });
        Running { process }
    }

    fn place(&self) -> Place<'_> {
        Place(self.process.directory.path())
    }

    fn url(&self) -> String {
        format!("http://{}", self.process.client.address)
    }

    /// On the data directory.
    fn store(&self) -> Way<'_> {
        self.way(&["--data-dir", "data"])
    }

    /// By the server, for a new token of a user with these scopes.
    fn server(&self, user: &str, scopes: &str) -> Way<'_> {
        let token = self.place().token(&format!("{user} --scope {scopes}"));
        let way = self.way(&["--server", &self.url(), "--token", &token]);
        wait_until("the token", || way.run("index list").code == Some(0));
        way
    }

    fn way(&self, flags: &[&str]) -> Way<'_> {
        Way { running: self, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() }
    }

    fn get(&self, target: &str) -> Response {
        self.process.client.get_with(target, &[("Accept", "application/json")])
    }

    /// Uploads a source archive as the user `team`.
    #[track_caller]
    fn upload(&self, stage: &str, filename: &str) {
        self.process.user("team", "pw").release(stage, filename);
    }
}

impl Way<'_> {
    fn run(&self, line: &str) -> Done {
        self.run_with(line, &[], "")
    }

    fn run_with(&self, line: &str, variables: &[(&str, &str)], input: &str) -> Done {
        let mut command = larder(self.running.process.directory.path());
        command.args(line.split_whitespace()).args(&self.flags).envs(variables.iter().copied());
        Done::of(&mut command, input)
    }

    /// A command that ends well prints this.
    #[track_caller]
    fn prints(&self, line: &str, expected: &str) {
        let done = self.run(line);
        let said = redacted(done.check(0, "").stdout.trim_end());
        assert_eq!(said, expected, "`{line}`");
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let done = self.run(&format!("{line} --json"));
        assert_eq!(done.code, Some(0), "`{line}`: {done:?}");
        done.json()
    }

    /// A command ends with this code and says this on stderr.
    #[track_caller]
    fn fails(&self, line: &str, code: i32, says: &str) {
        let done = self.run(line);
        done.check(code, "");
        assert_eq!(done.stdout, "", "`{line}`");
        let mut said = redacted(done.stderr.trim_end());
        // What clap adds, and the URL and the status before what a server says.
        if said.starts_with("error: ") {
            said.truncate(said.find("\n\n").unwrap_or(said.len()));
        }
        if let Some((_, rest)) = said.split_once("http://127.0.0.1:PORT/ answers ")
            && !says.contains("answers")
        {
            said = format!("larder: {}", &rest["404: ".len()..]);
        }
        assert_eq!(said, says, "`{line}`");
    }
}
