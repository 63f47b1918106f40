//! [`ToxReport`]: a test result in the format that tox writes and devpi's clients upload.
//!
//! bytes of a result -> [`ToxReport::parse`] -> a [`ToxEnvironment`] for each environment, with the outcome of its
//! commands.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// One run of tox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToxReport {
    /// The machine that ran it.
    pub host: String,
    /// Python's name for the machine's operating system, such as `linux`.
    pub platform: String,
    /// The environments, ascending by name.
    pub environments: Vec<ToxEnvironment>,
}

/// One environment of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToxEnvironment {
    /// Its name, such as `py312`.
    pub envname: String,
    /// The version of its interpreter, such as `3.12.1`.
    #[serde(rename = "pyversion", skip_serializing_if = "Option::is_none")]
    pub python_version: Option<String>,
    /// The outcome.
    pub status: ToxStatus,
    /// The commands that set it up.
    pub setup: Vec<ToxCommand>,
    /// The commands that ran tests.
    pub test: Vec<ToxCommand>,
}

/// A command of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToxCommand {
    /// Whether its exit status was not 0.
    pub failed: bool,
    /// The command with its arguments, separated by spaces.
    pub command: String,
    /// Its output.
    pub output: String,
}

/// The outcome of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToxStatus {
    /// Tests ran, and no command failed.
    Passed,
    /// A command failed.
    Failed,
    /// No test ran.
    Unknown,
}

impl ToxStatus {
    /// devpi's name of the status.
    pub fn as_str(self) -> &'static str {
        match self {
            ToxStatus::Passed => "passed",
            ToxStatus::Failed => "failed",
            ToxStatus::Unknown => "unknown",
        }
    }
}

impl ToxReport {
    /// Parses a result; `None` if tox did not write it.
    pub fn parse(bytes: &[u8]) -> Option<ToxReport> {
        let report: WrittenReport = serde_json::from_slice(bytes).ok()?;
        let environments = report.testenvs.into_iter().map(|(envname, environment)| {
            let setup: Vec<_> = environment.setup.into_iter().map(ToxCommand::from).collect();
            let test: Vec<_> = environment.test.into_iter().map(ToxCommand::from).collect();
            let status = match setup.iter().chain(&test).any(|command| command.failed) {
                true => ToxStatus::Failed,
                false if test.is_empty() => ToxStatus::Unknown,
                false => ToxStatus::Passed,
            };
            let version = environment.python.and_then(|python| python.version);
            let python_version =
                version.and_then(|text| text.split_whitespace().next().map(str::to_owned));
            ToxEnvironment { envname, python_version, status, setup, test }
        });
        Some(ToxReport {
            host: report.host,
            platform: report.platform,
            environments: environments.collect(),
        })
    }
}

#[derive(Deserialize)]
struct WrittenReport {
    host: String,
    platform: String,
    testenvs: BTreeMap<String, WrittenEnvironment>,
}

#[derive(Deserialize)]
struct WrittenEnvironment {
    python: Option<WrittenPython>,
    #[serde(default)]
    setup: Vec<WrittenCommand>,
    #[serde(default)]
    test: Vec<WrittenCommand>,
}

#[derive(Deserialize)]
struct WrittenPython {
    version: Option<String>,
}

#[derive(Deserialize)]
struct WrittenCommand {
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    output: Output,
    retcode: Option<Status>,
}

/// A number; some versions of tox write it as text. Anything else counts as a failure.
#[derive(Deserialize)]
#[serde(untagged)]
enum Status {
    Number(i64),
    Text(String),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    Text(String),
    Other(IgnoredAny),
}

impl Default for Output {
    fn default() -> Output {
        Output::Text(String::new())
    }
}

impl From<WrittenCommand> for ToxCommand {
    fn from(written: WrittenCommand) -> ToxCommand {
        let failed = match written.retcode {
            None | Some(Status::Number(0)) => false,
            Some(Status::Text(text)) => text.trim().parse() != Ok(0),
            Some(Status::Number(_) | Status::Other(_)) => true,
        };
        let output = match written.output {
            Output::Text(text) => text,
            Output::Other(_) => String::new(),
        };
        ToxCommand { failed, command: written.command.join(" "), output }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(environment: Value, expected: &str) {
        let report = json!({"host": "h", "platform": "linux", "testenvs": {"py": environment}});
        let shown = ToxReport::parse(report.to_string().as_bytes()).map(|report| {
            let py = &report.environments[0];
            format!("{} {}", py.python_version.as_deref().unwrap_or("-"), py.status.as_str())
        });
        assert_eq!(shown.as_deref().unwrap_or("none"), expected);
    }

    #[test]
    fn outcomes_of_environments() {
        let command = |status: Value| json!({"command": ["pytest", "-q"], "retcode": status});
        let python = json!({"version": "3.12.1 (main) [GCC]"});
        check(json!({"python": python, "test": [command(json!(0))]}), "3.12.1 passed");
        check(json!({"test": [command(json!("0"))], "setup": [command(json!(null))]}), "- passed");
        check(json!({"test": [command(json!(0)), command(json!("1"))]}), "- failed");
        check(json!({"setup": [command(json!(2))]}), "- failed");
        check(json!({"test": [command(json!([]))]}), "- failed");
        check(json!({"setup": [command(json!(0))], "test": [], "python": {}}), "- unknown");
        check(json!([]), "none");
        check(json!({"test": [{"retcode": 0, "output": ["x"]}]}), "- passed");
    }

    #[test]
    fn other_json_is_not_a_result() {
        for text in ["", "{}", "[]", r#"{"host": "h", "testenvs": {}}"#] {
            assert_eq!(ToxReport::parse(text.as_bytes()), None, "{text}");
        }
    }
}
