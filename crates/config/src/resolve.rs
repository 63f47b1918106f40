//! From the four layers to one checked configuration: flags, environment, file, defaults, in this order of precedence.
//!
//! [`Inputs`] is what the process was started with; [`Inputs::load`] reads the file and the key file each time, so
//! a reload is a second load of the same inputs. All problems are collected, so that one run names them all.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use issuers::Attestations;
use net::ListenAddress;
use source::KeptDump;
use store::{BlobLocation, DatabaseLocation};

use super::environment::Environment;
use super::file::{self, nearest};
use super::key::{FromTexts, Key, Kind, canonical, is_auto, split};
use super::ldap_section;
use super::problem::{ConfigError, Origin, Problem, shown};
use super::providers::read_providers;
use super::proxy_login;
use super::value::{MASK, Secret};
use super::{Config, Ldap, keys};

/// The configuration of the whole machine, read where a user has none.
const SYSTEM_FILE: &str = "/etc/larder/config.toml";

/// Variables of ours that are no key of the configuration: its file, and the token of commands that ask a server.
const OTHER_VARIABLES: [&str; 2] = ["LARDER_CONFIG", TOKEN_VARIABLE];

/// The variable with the token of commands that ask a server.
pub const TOKEN_VARIABLE: &str = "LARDER_TOKEN";

/// Keys given on the command line, with their texts.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// The keys among the matches; the first of several matches that has a key wins (a subcommand before its parent).
    pub fn of_matches(matches: &[&ArgMatches]) -> Self {
        let mut flags = Self::default();
        for matches in matches.iter().rev() {
            for key in keys() {
                let path = key.path();
                let is_given = matches.ids().any(|id| id.as_str() == path)
                    && matches.value_source(&path) == Some(ValueSource::CommandLine);
                if is_given && let Some(values) = matches.get_many::<String>(&path) {
                    let texts = values.flat_map(|text| split(key.kind, text)).collect();
                    flags.0.insert(path, texts);
                }
            }
        }
        flags
    }

    /// Sets a key by its path, as the flag would; lists with commas.
    pub fn set(&mut self, path: &str, text: &str) {
        let kind = keys().find(|key| key.path() == path).map_or(Kind::Path, |key| key.kind);
        self.0.insert(path.to_owned(), split(kind, text));
    }
}

/// One key with its value and where that came from.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    /// The value in its canonical spelling, with secrets masked; empty if it is not set.
    pub texts: Vec<String>,
    /// Where it came from.
    pub origin: Origin,
}

/// The inputs of a configuration, apart from files.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The file given with --config; an empty path reads no file at all.
    pub file: Option<PathBuf>,
    /// Keys from the command line.
    pub flags: Flags,
    /// The environment.
    pub environment: Environment,
}

/// A checked configuration, with its inputs.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// Oddities that are no errors, a line each; to be logged once logging works.
    pub warnings: Vec<String>,
    /// The configuration file that was read.
    pub file: Option<PathBuf>,
    /// Every key with its value and origin, in the order of documentation.
    pub settings: Vec<Setting>,
    inputs: Inputs,
}

impl LoadedConfig {
    /// Reads the files again, with the flags and the environment of the start.
    ///
    /// # Errors
    /// As [`Inputs::load`]; the present configuration stays good.
    pub fn reload(&self) -> Result<Self, ConfigError> {
        self.inputs.load()
    }

    /// Whether a server may start with this configuration.
    ///
    /// # Errors
    /// The AUR's surface is switched on, and there is nothing that it could serve. Other commands do not mind.
    pub fn check_for_serving(&self) -> Result<(), ConfigError> {
        let Config { aur, data_dir, demo, follow, .. } = &self.config;
        let kept = KeptDump::path_in(data_dir);
        let setting = self.settings.iter().find(|setting| setting.key.path() == "aur.enabled");
        let Some(Setting { key, texts, origin }) = setting else { return Ok(()) };
        let is_wish = aur.enabled && !is_auto(key.kind, texts);
        // A follower takes them from its primary.
        let has_source = *demo || aur.source.is_some() || follow.is_some();
        if !is_wish || has_source || kept.exists() {
            return Ok(());
        }
        let message = format!(
            "aur.enabled = true ({origin}): expected aur.source, which is not set, or an earlier dump in `{}`, which \
             is not there; set aur.source to the path or URL of a packages-meta-ext-v1.json(.gz) or to a database, or leave aur.enabled \
             at auto, to serve without packages of the AUR",
            kept.display()
        );
        // The surroundings are to blame as much as the command line is.
        Err(ConfigError { problems: vec![Problem { message, is_usage: false }] })
    }

    /// Keys whose value differs in `next`.
    pub fn changed_keys(&self, next: &Self) -> Vec<&'static Key> {
        // Texts mask secrets, and a new password is a change too.
        let is_secret_changed = |key: &Key| match key.kind {
            Kind::Secret if key.section == "ldap" => {
                self.config.ldap.bind_password != next.config.ldap.bind_password
            }
            Kind::Secret => self.config.admin.key != next.config.admin.key,
            Kind::Source => self.config.aur.source != next.config.aur.source,
            Kind::Bundle => self.config.advisories.source != next.config.advisories.source,
            Kind::Database => self.config.database != next.config.database,
            _ => false,
        };
        let pairs = self.settings.iter().zip(&next.settings);
        let changed =
            pairs.filter(|(old, new)| old.texts != new.texts || is_secret_changed(old.key));
        changed.map(|(old, _)| old.key).collect()
    }
}

impl Inputs {
    /// Reads the configuration file, lays the layers over each other and checks every value.
    ///
    /// # Errors
    /// Every problem found: each names the key, its value, where that came from, and what was expected.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let mut settings = Settings::default();
        let file = self.read_file(&mut settings);
        self.read_environment(&mut settings);
        for (path, texts) in &self.flags.0 {
            if let Some(setting) = settings.of_path(path) {
                setting.texts.clone_from(texts);
                setting.origin = Origin::Flag(setting.key.flag());
            }
        }
        let is_demo = bool::from_texts(&settings.one("demo").texts, Kind::Switch).unwrap_or(false);
        if is_demo {
            settings.adapt_to_demo();
        }
        self.place_data(&mut settings, is_demo);

        let config = Config::take(&mut settings);
        let config = config.map(|mut config| {
            self.read_admin_key(&mut config, &mut settings);
            self.find_follow_token(&mut config);
            self.read_ldap_password(&mut config, &mut settings);
            check_together(&config, &mut settings);
            Self::check_sigstore_root(&config, &mut settings);
            self.check_providers(&config, &mut settings);
            config
        });
        match config {
            Some(config) if settings.problems.is_empty() => Ok(LoadedConfig {
                config,
                warnings: settings.warnings,
                file,
                settings: settings.entries,
                inputs: self.clone(),
            }),
            _ => Err(ConfigError { problems: settings.problems }),
        }
    }

    /// The file to read: the requested one, else the user's, else the machine's, if it exists.
    fn file_path(&self) -> Option<PathBuf> {
        if let Some(path) = &self.file {
            return Some(path.clone()).filter(|path| path.as_os_str() != OsStr::new(""));
        }
        if let Some(path) = self.environment.get("LARDER_CONFIG") {
            return Some(path.into());
        }
        let user = self
            .home_directory("XDG_CONFIG_HOME", ".config")
            .map(|directory| directory.join("larder/config.toml"));
        user.into_iter().chain([PathBuf::from(SYSTEM_FILE)]).find(|path| path.exists())
    }

    /// A base directory of the XDG specification: only absolute paths count.
    fn home_directory(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let given =
            self.environment.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        given.or_else(|| Some(Path::new(self.environment.get("HOME")?).join(below_home)))
    }

    fn read_file(&self, settings: &mut Settings) -> Option<PathBuf> {
        let path = self.file_path()?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let message =
                    format!("{}: the configuration file cannot be read: {error}", path.display());
                settings.problems.push(Problem { message, is_usage: false });
                return None;
            }
        };
        let (values, problems) = file::read(&text, &path);
        settings.problems.extend(problems);
        for value in values {
            if let Some(setting) = settings.of_path(&value.key.path()) {
                setting.texts = value.texts;
                setting.origin = value.origin;
            }
        }
        Some(path)
    }

    fn read_environment(&self, settings: &mut Settings) {
        for name in self.environment.own_names() {
            let Some(key) = keys().find(|key| key.variable() == *name) else {
                if !OTHER_VARIABLES.contains(&name.as_str()) {
                    let others = OTHER_VARIABLES.map(str::to_owned);
                    let guess = nearest(name, keys().map(Key::variable).chain(others));
                    let guess =
                        guess.map_or_else(String::new, |guess| format!("; did you mean {guess}?"));
                    settings
                        .warnings
                        .push(format!("unknown variable {name} in the environment{guess}"));
                }
                continue;
            };
            let origin = Origin::Environment(name.clone());
            if self.environment.not_unicode.contains(name) {
                let message = format!("{} ({origin}): the value is not valid UTF-8", key.path());
                settings.problems.push(Problem::new(&origin, message));
            } else if let Some(text) = self.environment.get(name)
                && let Some(setting) = settings.of_path(&key.path())
            {
                setting.texts = split(key.kind, text);
                setting.origin = origin;
            }
        }
    }

    /// Finds the data directory if none is named, and keeps the demo's data apart from real data.
    fn place_data(&self, settings: &mut Settings, is_demo: bool) {
        let demo_rank = settings.one("demo").origin.rank();
        let setting = settings.one("data_dir");
        if let [named] = setting.texts.as_slice() {
            // `larder serve --demo` must not write into the real data directory that a configuration names.
            if is_demo && setting.origin.rank() < demo_rank {
                let apart = Path::new(named).join("larder-demo").display().to_string();
                let origin = setting.origin.clone();
                setting.texts = vec![apart.clone()];
                settings.warnings.push(format!(
                    "demo keeps its data apart, in {apart} (data_dir is from: {origin})"
                ));
            }
            return;
        }
        // systemd may give several directories, and lets the service write nowhere else: the demo stays inside.
        let state = self
            .environment
            .get("STATE_DIRECTORY")
            .and_then(|list| list.split(':').find(|path| !path.is_empty()));
        let place = match state {
            Some(state) if is_demo => Some(Path::new(state).join("larder-demo")),
            Some(state) => Some(PathBuf::from(state)),
            None => {
                let name = if is_demo { "larder-demo" } else { "larder" };
                self.home_directory("XDG_DATA_HOME", ".local/share")
                    .map(|directory| directory.join(name))
            }
        };
        match place {
            Some(place) => {
                setting.texts = vec![place.display().to_string()];
                setting.origin = if is_demo { Origin::Demo } else { Origin::Default };
            }
            None => {
                let message = "data_dir has no default here, since none of STATE_DIRECTORY, XDG_DATA_HOME and HOME is \
                    set: give --data-dir DIR or LARDER_DATA_DIR";
                settings.problems.push(Problem { message: message.to_owned(), is_usage: false });
                // A placeholder, so that the other values are checked too.
                setting_stand_in(settings);
            }
        }
    }

    /// The file with a follower's token among systemd's credentials, where none is given.
    fn find_follow_token(&self, config: &mut Config) {
        if config.follow.is_some() && config.follow_token_file.is_none() {
            let directory = self.environment.get("CREDENTIALS_DIRECTORY");
            let file = directory.map(|directory| Path::new(directory).join("follow-token"));
            config.follow_token_file = file.filter(|file| file.exists());
        }
    }

    /// Reads the file of identity providers, as the start does.
    fn check_providers(&self, config: &Config, settings: &mut Settings) {
        let Some(path) = &config.oidc.providers_file else { return };
        if let Err(complaint) = read_providers(path, &self.environment) {
            let origin = settings.one("oidc.providers_file").origin.clone();
            let path = path.display();
            let message = format!("oidc.providers_file = \"{path}\" ({origin}): {complaint}");
            settings.problems.push(Problem::new(&origin, message));
        }
    }

    /// Reads the file of Sigstore's keys, as the start does.
    fn check_sigstore_root(config: &Config, settings: &mut Settings) {
        let Some(path) = &config.publishing.sigstore_root else { return };
        if let Err(complaint) = Attestations::new(Some(path)) {
            let origin = settings.one("publishing.sigstore_root").origin.clone();
            let path = path.display();
            let message = format!("publishing.sigstore_root = \"{path}\" ({origin}): {complaint}");
            settings.problems.push(Problem::new(&origin, message));
        }
    }

    /// The admin key from its file or from systemd's credentials, where it is not given itself.
    fn read_admin_key(&self, config: &mut Config, settings: &mut Settings) {
        let key_origin = settings.one("admin.key").origin.clone();
        let file_origin = settings.one("admin.key_file").origin.clone();
        let file = match (&config.admin.key, config.admin.key_file.clone()) {
            (Some(_), Some(_)) => {
                let message = format!(
                    "admin.key ({key_origin}) and admin.key_file ({file_origin}) are both set: expected one of them"
                );
                settings.problems.push(Problem::new(&file_origin, message));
                return;
            }
            (Some(_), None) => None,
            (None, Some(file)) => Some(file),
            (None, None) => self
                .environment
                .credentials()
                .map(|directory| directory.join("admin-key"))
                .filter(|file| file.exists()),
        };
        if let Some(file) = file {
            let key = std::fs::read_to_string(&file)
                .map_err(|error| format!("cannot be read: {error}"))
                .and_then(|text| {
                    Secret::from_texts(
                        &[text.trim_end_matches(['\r', '\n']).to_owned()],
                        Kind::Secret,
                    )
                });
            match key {
                Ok(key) => {
                    config.admin.key = Some(key);
                    let setting = settings.one("admin.key");
                    setting.texts = vec![MASK.to_owned()];
                    setting.origin = Origin::KeyFile(file);
                }
                Err(complaint) => {
                    let message = format!(
                        "admin.key_file = {:?} ({file_origin}): {complaint}",
                        file.display().to_string()
                    );
                    settings.problems.push(Problem::new(&file_origin, message));
                }
            }
        }
        if config.admin.key.as_ref().is_some_and(|key| key.matches(b"change-me")) {
            settings
                .warnings
                .push("admin.key is the well-known example `change-me`: choose another".to_owned());
        }
    }

    /// The password of the directory from its file or from systemd's credentials, where it is not given itself.
    fn read_ldap_password(&self, config: &mut Config, settings: &mut Settings) {
        let credentials = self.environment.get("CREDENTIALS_DIRECTORY");
        let Some(file) = ldap_section::password_file(&config.ldap, credentials) else { return };
        match ldap_section::password(&file) {
            Ok(password) => {
                config.ldap.bind_password = Some(password);
                let setting = settings.one("ldap.bind_password");
                setting.texts = vec![MASK.to_owned()];
                setting.origin = Origin::KeyFile(file);
            }
            Err(complaint) => {
                let origin = settings.one("ldap.bind_password_file").origin.clone();
                let shown = file.display().to_string();
                let message =
                    format!("ldap.bind_password_file = {shown:?} ({origin}): {complaint}");
                settings.problems.push(Problem::new(&origin, message));
            }
        }
    }
}

/// What does not hold in a file with this text, which has nothing but `[ldap]`.
pub(super) fn ldap_problems(text: &str) -> Vec<String> {
    let mut settings = Settings::default();
    let (values, mut problems) = file::read(text, Path::new("[ldap]"));
    for value in values {
        settings.one(&value.key.path()).texts = value.texts;
    }
    let ldap = Ldap::take(&mut settings);
    problems.append(&mut settings.problems);
    let mut messages: Vec<_> = problems.into_iter().map(|problem| problem.message).collect();
    let together = ldap.iter().flat_map(ldap_section::problems);
    messages.extend(together.map(|(_, text)| text.replacen(" ({at})", "", 1)));
    messages
}

/// Gives the data directory some value after a complaint about it.
fn setting_stand_in(settings: &mut Settings) {
    settings.one("data_dir").texts = vec![".".to_owned()];
}

/// Checks what a follower needs.
fn check_follower(config: &Config, settings: &mut Settings) {
    if config.follow.is_none() {
        return;
    }
    let origin = settings.one("follow").origin.clone();
    let problem = match (config.database(), config.blobs()) {
        _ if config.follow_token_file.is_none() => {
            "follow_token_file is not: expected the file with a token of the primary"
        }
        _ if config.demo => "demo is, too: expected one of them",
        (DatabaseLocation::Postgres(_), _) => {
            "database is a PostgreSQL: expected sqlite:PATH, as a follower has a store of its own"
        }
        (_, BlobLocation::S3 { .. }) => {
            "blobs is an object store: expected a directory, as a follower has a store of its own"
        }
        _ => return,
    };
    let message = format!("follow ({origin}) is set, but {problem}");
    settings.problems.push(Problem::new(&origin, message));
}

/// Checks rules about several values together.
fn check_together(config: &Config, settings: &mut Settings) {
    check_follower(config, settings);
    for (given, missing) in [("certificate", "key"), ("key", "certificate")] {
        let (given, missing) = (format!("tls.{given}"), format!("tls.{missing}"));
        if !settings.one(&given).texts.is_empty() && settings.one(&missing).texts.is_empty() {
            let origin = settings.one(&given).origin.clone();
            let message =
                format!("{given} ({origin}) is set but {missing} is not: expected both or neither");
            settings.problems.push(Problem::new(&origin, message));
        }
    }
    let has_fixed_place =
        |address: &ListenAddress| !matches!(address, ListenAddress::Tcp(tcp) if tcp.port() == 0);
    for (at, address) in config.listen.iter().enumerate() {
        if has_fixed_place(address) && config.listen[..at].contains(address) {
            let origin = settings.one("listen").origin.clone();
            let message =
                format!("listen ({origin}) names {address} twice: expected different addresses");
            settings.problems.push(Problem::new(&origin, message));
        }
    }
    let trusts_by_default = settings.one("trusted_proxies").origin == Origin::Default;
    let problems = ldap_section::problems(&config.ldap);
    for (path, text) in problems.into_iter().chain(proxy_login::problems(config, trusts_by_default))
    {
        let origin = settings.one(path).origin.clone();
        let message = text.replacen("{at}", &origin.to_string(), 1);
        settings.problems.push(Problem::new(&origin, message));
    }
    let issuers = &config.publishing.issuers;
    for (at, issuer) in issuers.iter().enumerate() {
        if issuers[..at].iter().any(|other| other.url == issuer.url) {
            let origin = settings.one("publishing.issuers").origin.clone();
            let url = &issuer.url;
            let message = format!(
                "publishing.issuers ({origin}) names {url} twice: expected different issuers"
            );
            settings.problems.push(Problem::new(&origin, message));
        }
    }
    let admin = &config.admin.listen;
    if config.admin.key.is_some() && has_fixed_place(admin) && config.listen.contains(admin) {
        let origin = settings.one("admin.listen").origin.clone();
        let message = format!(
            "admin.listen = \"{admin}\" ({origin}) is in `listen` too: expected an address of its own"
        );
        settings.problems.push(Problem::new(&origin, message));
    }
}

/// Every key with its texts from the highest layer that has it, and the problems so far.
#[derive(Debug)]
pub(super) struct Settings {
    entries: Vec<Setting>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Default for Settings {
    /// The defaults of the table.
    fn default() -> Self {
        let entries =
            keys().map(|key| Setting { key, texts: key.default_texts(), origin: Origin::Default });
        Self { entries: entries.collect(), problems: Vec::new(), warnings: Vec::new() }
    }
}

impl Settings {
    fn of_path(&mut self, path: &str) -> Option<&mut Setting> {
        self.entries.iter_mut().find(|setting| setting.key.path() == path)
    }

    /// A key that is in the table.
    fn one(&mut self, path: &str) -> &mut Setting {
        self.of_path(path).expect("the path is one of the table's")
    }

    /// The value of a key; `None` after a problem, which is noted. The texts become the canonical spelling.
    pub(super) fn take<T: FromTexts>(&mut self, section: &str, name: &str) -> Option<T> {
        let at = self
            .entries
            .iter()
            .position(|setting| setting.key.section == section && setting.key.name == name)?;
        let Setting { key, texts, origin } = &mut self.entries[at];
        // A value that was emptied on purpose falls back to the default, unless empty is a value (lists and optional keys).
        if texts.is_empty() && !key.kind.is_list() {
            *texts = key.default_texts();
        }
        match T::from_texts(texts, key.kind) {
            Ok(value) => {
                *texts = canonical(key.kind, texts, &value);
                Some(value)
            }
            Err(complaint) => {
                let message =
                    format!("{} = {} ({origin}): {complaint}", key.path(), shown(key, texts));
                self.problems.push(Problem::new(origin, message));
                None
            }
        }
    }

    /// Applies the defaults of `demo`, and ignores parts of a real configuration.
    fn adapt_to_demo(&mut self) {
        let limit = self.one("aur.rate_limit");
        if limit.origin == Origin::Default {
            limit.texts = vec!["0".to_owned()];
            limit.origin = Origin::Demo;
        }
        let source = self.one("aur.source");
        if !source.texts.is_empty() {
            let origin = std::mem::replace(&mut source.origin, Origin::Demo);
            source.texts = Vec::new();
            self.warnings
                .push(format!("demo serves its own catalogue: aur.source ({origin}) is not read"));
        }
    }
}
