//! `larder audit`: what policies refused, what they let pass by an exception, and who changed them.

use std::fmt::Write as _;

use audit::{Log, Query};
use clap::Args;
use config::Config;
use pypi::StageName;
use serde_json::{Value, json};

use super::remote::Remote;
use super::table::plain;
use super::{Answer, CommandTarget, Exit, runtime};

#[derive(Args)]
pub(super) struct Command {
    /// Only what this index decided, or was asked for: team/dev
    #[arg(long, value_name = "USER/INDEX")]
    index: Option<StageName>,
    /// Only these events: refused, served, excepted, warned, changed or approved
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only what this rule refused: cooldown, cutoff, allow, deny, quarantine, malware or vulnerabilities
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Only requests of this user
    #[arg(long, value_name = "USER")]
    who: Option<String>,
    /// Only requests of this address
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Only files and versions with this text in their names
    #[arg(long, value_name = "TEXT")]
    what: Option<String>,
    /// Nothing before this day or time: 2026-01-31 or 2026-01-31T23:59:59Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was before this day or time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only entries before the one with this number: the next page
    #[arg(long, value_name = "ID")]
    before: Option<String>,
    /// How many entries, newest first
    #[arg(long, value_name = "N", default_value = "100")]
    limit: String,
    #[command(flatten)]
    answer: Answer,
}

impl Command {
    /// Reads the log at `place`, and gives the text for stdout.
    ///
    /// # Errors
    /// A query that cannot be; a log that cannot be read.
    pub(super) fn run(
        self,
        place: impl FnOnce() -> Result<CommandTarget, Exit>,
    ) -> Result<String, Exit> {
        let index = self.index.as_ref().map(ToString::to_string);
        let values = [
            ("event", &self.event),
            ("rule", &self.rule),
            ("who", &self.who),
            ("client", &self.client),
            ("what", &self.what),
            ("since", &self.since),
            ("until", &self.until),
            ("before", &self.before),
            ("index", &index),
        ];
        let given = values.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let pairs: Vec<(&str, &str)> = given.chain([("limit", &*self.limit)]).collect();
        let query = Query::of(pairs.iter().copied()).map_err(Exit::usage)?;
        let found = match place()? {
            CommandTarget::Store(loaded) => {
                let found = log(&loaded.config).query(&query, jiff::Timestamp::now(), |_| {});
                let found = found.map_err(|error| {
                    Exit::failure(format!("the audit log cannot be read: {error}"))
                })?;
                json!({"items": found.entries, "next": found.next})
            }
            CommandTarget::Server(address) => {
                let encoded = pairs.iter().map(|(name, value)| {
                    let mut pair = form_urlencoded::Serializer::new(String::new());
                    pair.append_pair(name, value).finish()
                });
                let query: Vec<String> = encoded.collect();
                let query: Vec<&str> = query.iter().map(String::as_str).collect();
                let place = match &self.index {
                    Some(index) => vec![index.user(), index.index(), "+audit"],
                    None => vec!["+audit"],
                };
                runtime()?.block_on(async {
                    let remote = Remote::connect(*address).await?;
                    let answer = remote.send(http::Method::GET, &place, &query, None).await;
                    Ok::<_, Exit>(answer.map_err(Exit::from)?["result"].clone())
                })?
            }
        };
        Ok(match self.answer.is_json {
            true => format!("{found:#}\n"),
            false => shown(&found),
        })
    }
}

/// The log that a server with this configuration writes.
fn log(config: &Config) -> Log {
    Log {
        directory: config.data_dir.join("audit"),
        bytes_max: config.python.audit_bytes_max,
        days_max: config.python.audit_days_max,
    }
}

/// A line for each entry, and how to see more. Texts of others must not look like a line.
fn shown(found: &Value) -> String {
    let mut text = String::new();
    for entry in found["items"].as_array().into_iter().flatten() {
        let member = |key: &str| plain(entry[key].as_str().unwrap_or("-"));
        _ = writeln!(
            text,
            "{} {} {} {} by {}: {} ({} from {})",
            member("at"),
            member("event"),
            member("what"),
            member("rule"),
            member("index"),
            member("reason"),
            member("who"),
            member("client")
        );
    }
    if let Some(next) = found["next"].as_u64() {
        _ = writeln!(text, "More: --before {next}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_others_is_a_line_or_steers_the_terminal() {
        let forged = "x\n2026-01-01 changed \u{1b}[2J\u{9b}1m";
        let entry = json!({"at": "t", "event": "refused", "what": forged, "rule": "deny", "index": "a/b",
            "reason": forged, "who": null, "client": "c"});
        let text = shown(&json!({"items": [entry], "next": 7}));
        let said = "x\u{fffd}2026-01-01 changed \u{fffd}[2J\u{fffd}1m";
        let line = format!("t refused {said} deny by a/b: {said} (- from c)");
        assert_eq!(text, format!("{line}\nMore: --before 7\n"));
    }
}
