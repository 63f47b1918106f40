//! Moving from goaurrpc: its JSON configuration -> the equivalent TOML of larder.
//!
//! Each of its settings becomes a key, or a comment that says why there is none. Every value passes the checks of larder's own
//! file, so larder accepts the output. The admin key is printed if it is a real one: the output is a configuration file and
//! needs it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::TABLES;
use super::file::nearest;
use super::key::{Key, Kind};
use super::keys;

/// The equivalent of one setting of goaurrpc.
enum Equivalent {
    /// This key, with the same value.
    Key(&'static str),
    /// A part of the value of other settings, below.
    Part,
    /// Larder has no such key, for this reason.
    Gone(&'static str),
}

/// Every setting of goaurrpc, in the order of its own sample file.
const SETTINGS: &[(&str, Equivalent)] = &[
    ("Port", Equivalent::Part),
    ("AurFileLocation", Equivalent::Part),
    ("MaxResults", Equivalent::Key("aur.results_max")),
    ("RefreshInterval", Equivalent::Key("aur.refresh_seconds")),
    ("RateLimit", Equivalent::Key("aur.rate_limit")),
    ("LoadFromFile", Equivalent::Part),
    (
        "RateLimitCleanupInterval",
        Equivalent::Gone(
            "a client's window ends by itself, and aur.rate_limit_clients_max bounds the memory",
        ),
    ),
    ("RateLimitTimeWindow", Equivalent::Key("aur.rate_limit_window_seconds")),
    ("TrustedReverseProxies", Equivalent::Key("trusted_proxies")),
    ("EnableSSL", Equivalent::Part),
    ("CertFile", Equivalent::Part),
    ("KeyFile", Equivalent::Part),
    (
        "EnableSearchCache",
        Equivalent::Gone("searches are answered from an index at once, so nothing is cached"),
    ),
    ("CacheCleanupInterval", Equivalent::Gone("there is no search cache")),
    (
        "CacheExpirationTime",
        Equivalent::Gone("there is no search cache, so no answer is older than the data"),
    ),
    (
        "LogFile",
        Equivalent::Gone(
            "the log goes to stderr, where systemd or the container's engine keeps it",
        ),
    ),
    ("EnableMetrics", Equivalent::Key("metrics.enabled")),
    ("EnableAdminApi", Equivalent::Part),
    ("AdminAPIKey", Equivalent::Part),
];

/// The TOML equivalent of goaurrpc's configuration, which is JSON.
///
/// # Errors
/// A line for each setting whose value has the wrong type or bounds; or why the text is not a JSON object. A setting that goaurrpc
/// does not have becomes a comment.
pub fn import_goaurrpc(json: &str) -> Result<String, String> {
    let value: Value =
        serde_json::from_str(json).map_err(|error| format!("not valid JSON: {error}"))?;
    let Value::Object(object) = value else {
        return Err("expected a JSON object of goaurrpc's settings".to_owned());
    };
    let mut import = Import::default();
    for (name, value) in object {
        // Go matches names without regard to case.
        match SETTINGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            Some((known, _)) => drop(import.given.insert(known, value)),
            None => {
                let known = SETTINGS.iter().map(|(known, _)| (*known).to_owned());
                let guess = nearest(&name, known)
                    .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
                let name = name.escape_debug();
                import
                    .gone
                    .push(format!("{name} is no setting of goaurrpc, so it is left out{guess}"));
            }
        }
    }
    import.translate();
    if import.problems.is_empty() { Ok(import.file()) } else { Err(import.problems.join("\n")) }
}

/// A translation on its way.
#[derive(Default)]
struct Import {
    given: BTreeMap<&'static str, Value>,
    /// Lines of larder's file by the path of their key: remarks first.
    lines: BTreeMap<String, Vec<String>>,
    /// Remarks on settings without counterpart.
    gone: Vec<String>,
    problems: Vec<String>,
}

impl Import {
    fn translate(&mut self) {
        for (name, fate) in SETTINGS {
            let Some(value) = self.given.get(name).cloned() else { continue };
            match fate {
                Equivalent::Key(path) => self.set(path, name, &value, true, ""),
                Equivalent::Gone(reason) => {
                    self.gone.push(format!("{name} = {value}: no counterpart; {reason}"))
                }
                Equivalent::Part => {}
            }
        }
        if let Some(value) = self.given.get("Port").cloned() {
            match value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
                Some(port) => self.set(
                    "listen",
                    "Port",
                    &Value::from(vec![format!("0.0.0.0:{port}")]),
                    true,
                    ": every address, as goaurrpc did; behind a proxy on this machine 127.0.0.1 is enough",
                ),
                None => self.problems.push(format!("Port = {value}: expected a whole number from 1 to 65535")),
            }
        }
        if let Some(location) = self.given.get("AurFileLocation").cloned() {
            let is_file = self.switch("LoadFromFile");
            let is_url = location.as_str().is_some_and(|text| text.contains("://"));
            match is_file {
                Some(is_file) if is_file == is_url => self.problems.push(format!(
                    "AurFileLocation = {location} does not fit LoadFromFile = {is_file}: expected {}",
                    if is_file { "a path" } else { "an http(s) URL" },
                )),
                _ => self.set("aur.source", "AurFileLocation and LoadFromFile", &location, true, ""),
            }
        } else if self.switch("LoadFromFile").is_some() {
            self.gone.push("LoadFromFile: aur.source is a path or a URL by its form, and AurFileLocation is not set".to_owned());
        }
        let has_tls = match self.switch("EnableSSL") {
            Some(false) => {
                self.gone.push(
                    "EnableSSL = false: no TLS while tls.certificate and tls.key are not set"
                        .to_owned(),
                );
                false
            }
            switch => switch == Some(true),
        };
        for (name, path) in [("CertFile", "tls.certificate"), ("KeyFile", "tls.key")] {
            let Some(value) = self.given.get(name).cloned() else { continue };
            if value.as_str() == Some("") {
                self.gone.push(format!("{name} is empty: {path} stays unset"));
                continue;
            }
            let remark = if has_tls {
                ", with EnableSSL = true"
            } else {
                ": EnableSSL was not true, so it is commented out"
            };
            self.set(path, name, &value, has_tls, remark);
        }
        for name in ["CertFile", "KeyFile"] {
            let is_empty = self.given.get(name).is_none_or(|value| value.as_str() == Some(""));
            if has_tls && is_empty {
                self.problems
                    .push(format!("EnableSSL is true but {name} is not set: expected a path"));
            }
        }
        self.translate_admin();
    }

    fn translate_admin(&mut self) {
        let is_enabled = self.switch("EnableAdminApi");
        if is_enabled == Some(true) {
            let remark = "# EnableAdminApi: the admin API has a listener of its own, on loopback; point its callers here";
            self.lines.insert(
                "admin.listen".to_owned(),
                vec![remark.to_owned(), "listen = \"127.0.0.1:8081\"".to_owned()],
            );
        }
        if is_enabled == Some(false) {
            self.gone.push(
                "EnableAdminApi = false: the admin listener starts only once a key is set"
                    .to_owned(),
            );
        }
        let Some(value) = self.given.get("AdminAPIKey").cloned() else {
            if is_enabled == Some(true) {
                let remark = "# EnableAdminApi was true without AdminAPIKey: the listener starts only once a key is set";
                self.lines.insert(
                    "admin.key".to_owned(),
                    vec![remark.to_owned(), "#key = \"\"".to_owned()],
                );
            }
            return;
        };
        match value.as_str() {
            Some("change-me" | "") => {
                let remark = "# AdminAPIKey was goaurrpc's example `change-me` or empty and is not taken over: without a key of \
                    your own the admin listener does not start";
                self.lines.insert(
                    "admin.key".to_owned(),
                    vec![remark.to_owned(), "#key = \"\"".to_owned()],
                );
            }
            _ if is_enabled == Some(true) => {
                self.set(
                    "admin.key",
                    "AdminAPIKey",
                    &value,
                    true,
                    "; a file named by key_file hides it better",
                );
            }
            _ => {
                let remark = "# AdminAPIKey is not taken over, since EnableAdminApi was not true: a key would start the listener";
                self.lines.insert(
                    "admin.key".to_owned(),
                    vec![remark.to_owned(), "#key = \"\"".to_owned()],
                );
            }
        }
    }

    /// The value of a switch, if it is set to one; otherwise a problem is noted once.
    fn switch(&mut self, name: &'static str) -> Option<bool> {
        let value = self.given.get(name)?;
        let switch = value.as_bool();
        if switch.is_none() {
            let problem = format!("{name} = {value}: expected true or false");
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
        switch
    }

    /// Writes a key with the value of the setting `name`, or the problem with it.
    fn set(&mut self, path: &str, name: &str, value: &Value, is_active: bool, remark: &str) {
        let Some(key) = keys().find(|key| key.path() == path) else { return };
        match translated(key, value) {
            Ok(toml) => {
                let comment = if is_active { "" } else { "#" };
                let lines =
                    vec![format!("# {name}{remark}"), format!("{comment}{} = {toml}", key.name)];
                self.lines.insert(path.to_owned(), lines);
            }
            Err(complaint) => {
                let shown = if key.kind == Kind::Secret {
                    "********".to_owned()
                } else {
                    value.to_string()
                };
                self.problems.push(format!("{name} = {shown}, which becomes {path}: {complaint}"));
            }
        }
    }

    /// The whole file, in the order of larder's documentation.
    fn file(&self) -> String {
        let mut file = String::from(
            "# Made from goaurrpc's configuration by `larder config import-goaurrpc`.\n",
        );
        for remark in &self.gone {
            _ = writeln!(file, "# {remark}");
        }
        let missing: Vec<&str> = SETTINGS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !self.given.contains_key(name))
            .collect();
        if !missing.is_empty() {
            _ = writeln!(
                file,
                "# Not in the file, so larder's defaults hold: {}",
                missing.join(", ")
            );
        }
        for table in TABLES {
            let lines: Vec<&String> =
                table.keys.iter().filter_map(|key| self.lines.get(&key.path())).flatten().collect();
            if lines.is_empty() {
                continue;
            }
            file.push('\n');
            if !table.section.is_empty() {
                _ = writeln!(file, "[{}]", table.section);
            }
            for line in lines {
                _ = writeln!(file, "{line}");
            }
        }
        file
    }
}

/// The JSON value as larder's TOML, checked as the file is checked.
///
/// # Errors
/// What was expected, beginning with that word.
fn translated(key: &Key, value: &Value) -> Result<String, String> {
    let expected = || format!("expected {}", key.kind.expected());
    let texts = match (key.kind, value) {
        (kind, Value::Bool(switch)) if kind.is_switch() => vec![switch.to_string()],
        (Kind::Whole { .. } | Kind::Seconds { .. }, Value::Number(number)) => {
            vec![number.to_string()]
        }
        (kind, Value::Array(items)) if kind.is_list() => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(expected))
            .collect::<Result<_, _>>()?,
        (Kind::Path | Kind::Source | Kind::Bundle | Kind::Secret, Value::String(text)) => {
            vec![text.clone()]
        }
        _ => return Err(expected()),
    };
    (key.check)(&texts, key.kind)?;
    Ok(key.kind.toml(&texts))
}
