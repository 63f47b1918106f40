//! [`StageConfig`]: how a stage behaves, and [`ConfigEdit`]: what somebody wants changed of that.
//!
//! JSON of a request -> [`ConfigEdit::parse`] -> [`StageConfig::create`] or [`StageConfig::edited`] ->
//! the next configuration, or devpi's words for what is wrong.
//!
//! Names of settings, their defaults, what is taken for a list or a boolean, and the texts of errors are
//! devpi's. Larder's own settings are shown only where they differ from their default, so that a stage
//! without them looks the same.

use std::collections::BTreeMap;

use account::{Acl, AclEntry};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::{ProjectName, StageName};

/// How a stage behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct StageConfig {
    /// Whether it is filled by uploads or from an upstream.
    pub kind: StageKind,
    /// Whether files may be replaced and removed without `force`.
    pub volatile: bool,
    /// Who may see its pages and files (Larder's own).
    pub acl_read: Acl,
    /// A short text for people.
    pub title: Option<String>,
    /// A longer text for people.
    pub description: Option<String>,
    /// Whatever tools keep here.
    pub custom_data: Option<Value>,
}

/// The two types of stage.
#[derive(Clone, Debug, PartialEq)]
pub enum StageKind {
    /// `stage`: filled by uploads, and inheriting from others.
    Stage(UploadSettings),
    /// `mirror`: filled from an upstream.
    Mirror(MirrorSettings),
}

/// Settings of a stage of the type `stage`.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadSettings {
    /// Who may upload, push and remove.
    pub acl_upload: Acl,
    /// Who may add test results.
    pub acl_toxresult_upload: Acl,
    /// Stages whose projects this one shows, too, nearest first; each once. They need not exist any more.
    pub bases: Vec<StageName>,
    /// Projects that may come from a mirror although a private stage has them: normalized names, or `*`.
    pub mirror_whitelist: Vec<Box<str>>,
    /// How the whitelists of bases count.
    pub mirror_whitelist_inheritance: WhitelistInheritance,
    /// Keep at least this many newest versions of each project when old ones are removed (Larder's own).
    pub retention_versions: Option<u32>,
    /// Remove only versions whose newest file is older than this, in days (Larder's own).
    pub retention_days: Option<u32>,
}

/// How the whitelists along the order of resolution are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhitelistInheritance {
    /// A project must be on all of them.
    #[default]
    Intersection,
    /// A project must be on one of them.
    Union,
}

/// Settings of a stage of the type `mirror`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorSettings {
    /// Where the upstream's list of projects is: http or https, with or without a slash at the end. None: nowhere
    /// yet, so that there is nothing to mirror.
    pub mirror_url: Option<String>,
    /// How long an upstream page counts as fresh, in seconds; none: the server's default.
    pub mirror_cache_expiry: Option<u32>,
    /// Whether a lower `X-PyPI-Last-Serial` does not matter.
    pub mirror_ignore_serial_header: Option<bool>,
    /// Whether the upstream has no list of projects.
    pub mirror_no_project_list: Option<bool>,
    /// Whether files are redirected to rather than stored.
    pub mirror_use_external_urls: Option<bool>,
    /// Whether the upstream serves core metadata.
    pub mirror_provides_core_metadata: Option<bool>,
    /// Where people look at a project, with `{name}`.
    pub mirror_web_url_fmt: Option<String>,
}

impl StageConfig {
    /// The settings of the type `stage`, unless it is a mirror.
    pub fn upload(&self) -> Option<&UploadSettings> {
        match &self.kind {
            StageKind::Stage(settings) => Some(settings),
            StageKind::Mirror(_) => None,
        }
    }

    /// The settings of the type `mirror`, unless it is a stage.
    pub fn mirror(&self) -> Option<&MirrorSettings> {
        match &self.kind {
            StageKind::Stage(_) => None,
            StageKind::Mirror(settings) => Some(settings),
        }
    }

    /// Whether it is a mirror.
    pub fn is_mirror(&self) -> bool {
        self.mirror().is_some()
    }

    /// The stages whose projects this one shows, too; none for a mirror.
    pub fn bases(&self) -> &[StageName] {
        self.upload().map_or(&[], |settings| &settings.bases)
    }

    /// Whether everybody may read.
    pub fn is_public(&self) -> bool {
        self.acl_read.entries().contains(&AclEntry::Everybody)
    }

    /// The configuration of a new stage called `name`. `exists` says which stages there are.
    ///
    /// # Errors
    /// [`ConfigError`]: the request is at fault.
    pub fn create(
        name: &StageName,
        edit: &ConfigEdit,
        exists: &dyn Fn(&StageName) -> bool,
    ) -> Result<StageConfig, ConfigError> {
        let type_ = edit.type_()?.unwrap_or("stage");
        let is_mirror = match type_ {
            "stage" => false,
            "mirror" => true,
            _ => return Err(ConfigError::UnknownType(type_.to_owned())),
        };
        edited(Settings { is_mirror, values: defaults(name, is_mirror) }, name, edit, &[], exists)
    }

    /// This configuration, of the stage called `name`, with `edit` done to it; equal to this one if
    /// nothing changes. A base that is already here may have vanished.
    ///
    /// # Errors
    /// [`ConfigError`]: the request is at fault.
    pub fn edited(
        &self,
        name: &StageName,
        edit: &ConfigEdit,
        exists: &dyn Fn(&StageName) -> bool,
    ) -> Result<StageConfig, ConfigError> {
        let type_ = if self.is_mirror() { "mirror" } else { "stage" };
        if edit.type_()?.is_some_and(|wanted| wanted != type_) {
            return Err(ConfigError::TypeChange);
        }
        edited(self.settings(), name, edit, self.bases(), exists)
    }
}

/// What somebody wants changed of a configuration, or wants it to be when it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEdit {
    operations: Vec<Operation>,
    /// Whether it was a list of strings.
    is_list: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Set(String, Value),
    Add(String, String),
    Remove(String, String),
    Drop(String),
}

/// What is wrong with an edit; the words are devpi's where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The body is neither an object nor a list of strings.
    #[error("an index configuration is a JSON object or a list of `key=value` strings")]
    Shape,
    /// An item of a list has no `=`.
    #[error(
        "`{0}` changes nothing: `key=value`, `key+=value`, `key-=value` or `key-=` was expected"
    )]
    NoOperation(String),
    /// `type` is none that is known.
    #[error("unknown index type '{0}'")]
    UnknownType(String),
    /// `type` differs from what it is.
    #[error("the 'type' of an index can't be changed")]
    TypeChange,
    /// Settings that are not known; `key=value` with commas between.
    #[error("indexconfig got unexpected keyword arguments: {0}")]
    Unexpected(String),
    /// Something is removed that is not there.
    #[error("The '{key}' setting doesn't have value '{value}'")]
    NoSuchValue {
        /// The setting.
        key: String,
        /// What should have been removed.
        value: String,
    },
    /// A setting is dropped that must have a value.
    #[error("Default values can't be removed.")]
    DefaultDropped,
    /// Something is added to a setting, or removed from it, that is no list.
    #[error("The '{0}' setting is not a list")]
    NotAList(String),
    /// A value that its setting cannot have; the text names both.
    #[error("{0}")]
    Value(String),
}

impl ConfigEdit {
    /// An edit that changes nothing: of a new stage, its defaults.
    pub fn nothing() -> ConfigEdit {
        ConfigEdit { operations: Vec::new(), is_list: false }
    }

    /// Reads the three forms: an object of settings; the whole reply to `GET`, `{"type": "indexconfig",
    /// "result": {…}}`; a list of `key=value`, `key+=value`, `key-=value` and `key-=`.
    ///
    /// # Errors
    /// [`ConfigError::Shape`] or [`ConfigError::NoOperation`].
    pub fn parse(json: &Value) -> Result<ConfigEdit, ConfigError> {
        let mut operations = match json {
            Value::Array(items) => items
                .iter()
                .map(|item| Operation::parse(item.as_str().ok_or(ConfigError::Shape)?))
                .collect::<Result<Vec<_>, _>>()?,
            Value::Object(object) => {
                let is_reply = object.get("type").and_then(Value::as_str) == Some("indexconfig");
                let settings = match object.get("result") {
                    Some(Value::Object(result)) if is_reply => result,
                    _ => object,
                };
                let set = |(key, value): (&String, &Value)| match value {
                    Value::Null => Operation::Drop(key.clone()),
                    _ => Operation::Set(key.clone(), value.clone()),
                };
                settings.iter().map(set).collect()
            }
            _ => return Err(ConfigError::Shape),
        };
        operations.retain(|operation| operation.key() != "projects");
        Ok(ConfigEdit { operations, is_list: json.is_array() })
    }

    /// The type that is asked for, if one is.
    fn type_(&self) -> Result<Option<&str>, ConfigError> {
        let mut found = None;
        for operation in self.operations.iter().filter(|operation| operation.key() == "type") {
            found = match operation {
                Operation::Set(_, Value::String(type_)) => Some(type_.as_str()),
                Operation::Set(_, value) => return Err(ConfigError::UnknownType(shown(value))),
                _ => return Err(ConfigError::TypeChange),
            };
        }
        Ok(found)
    }
}

impl Operation {
    fn parse(text: &str) -> Result<Operation, ConfigError> {
        let error = || ConfigError::NoOperation(text.chars().take(200).collect());
        let (key, value) = text.split_once('=').ok_or_else(error)?;
        let (value, owned) = (value.to_owned(), |key: &str| key.trim().to_owned());
        Ok(if let Some(key) = key.strip_suffix('+') {
            Operation::Add(owned(key), value)
        } else if let Some(key) = key.strip_suffix('-') {
            match value.is_empty() {
                true => Operation::Drop(owned(key)),
                false => Operation::Remove(owned(key), value),
            }
        } else {
            Operation::Set(owned(key), Value::String(value))
        })
    }

    fn key(&self) -> &str {
        match self {
            Operation::Set(key, _)
            | Operation::Add(key, _)
            | Operation::Remove(key, _)
            | Operation::Drop(key) => key,
        }
    }
}

/// The settings as JSON values in their normal form, while they are edited.
struct Settings {
    is_mirror: bool,
    values: BTreeMap<&'static str, Value>,
}

/// What a setting's value is, and how it is brought into its normal form.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Boolean,
    /// Not negative.
    Number,
    Text,
    Url,
    Inheritance,
    Json,
    AclList,
    BaseList,
    ProjectList,
}

impl Form {
    fn is_list(self) -> bool {
        matches!(self, Form::AclList | Form::BaseList | Form::ProjectList)
    }
}

const BOTH: [(&str, Form); 5] = [
    ("volatile", Form::Boolean),
    ("acl_read", Form::AclList),
    ("title", Form::Text),
    ("description", Form::Text),
    ("custom_data", Form::Json),
];

const STAGE: [(&str, Form); 7] = [
    ("acl_upload", Form::AclList),
    ("acl_toxresult_upload", Form::AclList),
    ("bases", Form::BaseList),
    ("mirror_whitelist", Form::ProjectList),
    ("mirror_whitelist_inheritance", Form::Inheritance),
    ("retention_versions", Form::Number),
    ("retention_days", Form::Number),
];

const MIRROR: [(&str, Form); 7] = [
    ("mirror_url", Form::Url),
    ("mirror_cache_expiry", Form::Number),
    ("mirror_ignore_serial_header", Form::Boolean),
    ("mirror_no_project_list", Form::Boolean),
    ("mirror_use_external_urls", Form::Boolean),
    ("mirror_provides_core_metadata", Form::Boolean),
    ("mirror_web_url_fmt", Form::Text),
];

/// The setting of that name, with the name as a constant.
fn setting(key: &str, is_mirror: bool) -> Option<(&'static str, Form)> {
    let own = if is_mirror { &MIRROR } else { &STAGE };
    BOTH.iter().chain(own).find(|(name, _)| *name == key).copied()
}

fn defaults(name: &StageName, is_mirror: bool) -> BTreeMap<&'static str, Value> {
    let mut values = BTreeMap::from([("volatile", json!(true)), ("acl_read", json!([EVERYBODY]))]);
    if !is_mirror {
        values.extend([
            ("acl_upload", json!([name.user()])),
            ("acl_toxresult_upload", json!([EVERYBODY])),
            ("bases", json!([])),
            ("mirror_whitelist", json!([])),
            ("mirror_whitelist_inheritance", json!("intersection")),
        ]);
    }
    values
}

const EVERYBODY: &str = ":ANONYMOUS:";

/// What old clients and exports send for mirrors, where it means nothing; devpi takes no offence either.
const PASSED_OVER: [&str; 4] = ["bases", "acl_upload", "mirror_whitelist", "pypi_whitelist"];

fn edited(
    mut settings: Settings,
    name: &StageName,
    edit: &ConfigEdit,
    old_bases: &[StageName],
    exists: &dyn Fn(&StageName) -> bool,
) -> Result<StageConfig, ConfigError> {
    let defaults = defaults(name, settings.is_mirror);
    let base_is_known = |base: &StageName| old_bases.contains(base) || exists(base);
    let mut unexpected = Vec::new();
    for operation in edit.operations.iter().filter(|operation| operation.key() != "type") {
        let Some((key, form)) = setting(operation.key(), settings.is_mirror) else {
            if PASSED_OVER.contains(&operation.key()) {
                continue;
            }
            unexpected.push(match operation {
                Operation::Set(key, value) => format!("{key}={}", shown(value)),
                Operation::Add(key, value) | Operation::Remove(key, value) => {
                    format!("{key}={value}")
                }
                // What is not there is dropped already.
                Operation::Drop(_) => continue,
            });
            continue;
        };
        let slot = settings.values.get(key);
        let next = match operation {
            Operation::Set(_, value) => Some(normal(key, form, value, &base_is_known)?),
            // A null in an object: back to the default. In a list, devpi refuses that.
            Operation::Drop(_) => match defaults.get(key) {
                Some(_) if edit.is_list => return Err(ConfigError::DefaultDropped),
                default => default.cloned(),
            },
            Operation::Add(..) | Operation::Remove(..) if !form.is_list() => {
                return Err(ConfigError::NotAList(key.to_owned()));
            }
            Operation::Add(_, added) => {
                let added = normal(key, form, &json!(added), &base_is_known)?;
                let mut items = items(slot);
                for item in items_of(&added) {
                    if !items.contains(&item) {
                        items.push(item);
                    }
                }
                Some(json!(items))
            }
            Operation::Remove(_, removed) => {
                let mut items = items(slot);
                // Whatever is removed need not exist any more.
                let normalized = normal(key, form, &json!(removed), &|_| true)?;
                for item in items_of(&normalized) {
                    let Some(at) = items.iter().position(|it| *it == item) else {
                        let (key, value) = (key.to_owned(), removed.clone());
                        return Err(ConfigError::NoSuchValue { key, value });
                    };
                    items.remove(at);
                }
                Some(json!(items))
            }
        };
        match next.filter(|value| !value.is_null()) {
            Some(value) => settings.values.insert(key, value),
            None => settings.values.remove(key),
        };
    }
    if !unexpected.is_empty() {
        return Err(ConfigError::Unexpected(unexpected.join(", ")));
    }
    settings.finish(name)
}

/// `value` in the normal form of its setting; null: without a value.
fn normal(
    key: &str,
    form: Form,
    value: &Value,
    base_is_known: &dyn Fn(&StageName) -> bool,
) -> Result<Value, ConfigError> {
    let refused =
        |what: &str| ConfigError::Value(format!("'{key}' cannot be {}: {what}", shown(value)));
    match (form, value) {
        (Form::Json, value) => Ok(value.clone()),
        (Form::Boolean, Value::Bool(_)) => Ok(value.clone()),
        (Form::Boolean, Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(json!(true)),
            "false" | "no" => Ok(json!(false)),
            _ => Err(ConfigError::Value(format!("Unknown boolean value '{text}'."))),
        },
        (Form::Boolean, value) => {
            Err(ConfigError::Value(format!("Unknown boolean value {}.", shown(value))))
        }
        (Form::Number, value) => {
            let number = match value {
                Value::String(text) if text.is_empty() => return Ok(Value::Null),
                Value::String(text) => text.trim().parse().ok(),
                value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
            };
            let number: u32 = number.ok_or_else(|| match key {
                "mirror_cache_expiry" => {
                    ConfigError::Value(format!("'{key}' option must be an integer"))
                }
                _ => refused("a whole number from 0 to 4294967295 was expected"),
            })?;
            Ok(json!(number))
        }
        (Form::Text, Value::String(text)) if text.len() <= TEXT_BYTES_MAX => Ok(value.clone()),
        (Form::Text, Value::String(_)) => Err(ConfigError::Value(format!(
            "'{key}' is too long: at most {TEXT_BYTES_MAX} bytes were expected"
        ))),
        (Form::Url, Value::String(text)) => {
            let text = text.trim();
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            match rest {
                Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(json!(text)),
                _ => Err(ConfigError::Value(format!("'{key}' option must be a URL."))),
            }
        }
        (Form::Text | Form::Url, _) => Err(refused("a text was expected")),
        (Form::Inheritance, Value::String(text)) if text == "intersection" || text == "union" => {
            Ok(value.clone())
        }
        (Form::Inheritance, value) => Err(ConfigError::Value(format!(
            "Unknown value '{}' for mirror_whitelist_inheritance, must be 'intersection' or 'union'.",
            shown(value)
        ))),
        (Form::AclList | Form::BaseList | Form::ProjectList, value) => {
            let texts = match value {
                Value::String(text) => Some(text.split(',').map(str::trim).collect()),
                Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
                _ => None,
            }
            .ok_or_else(|| refused("a list of texts was expected"))?;
            let texts = texts.into_iter().filter(|text| !text.is_empty());
            let mut items: Vec<String> = Vec::new();
            let mut faults: Vec<String> = Vec::new();
            for text in texts {
                match normal_item(form, text, base_is_known) {
                    Ok(item) if items.contains(&item) => {}
                    Ok(item) => items.push(item),
                    Err(fault) => faults.push(fault),
                }
            }
            if items.len() > ITEMS_MAX {
                faults
                    .push(format!("'{key}' is too long: at most {ITEMS_MAX} items were expected"));
            }
            if faults.is_empty() {
                Ok(json!(items))
            } else {
                Err(ConfigError::Value(faults.join(", ")))
            }
        }
    }
}

/// Longest title, description or other text, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest list: nobody means more, and every page walks over the bases.
const ITEMS_MAX: usize = 1000;

fn normal_item(
    form: Form,
    text: &str,
    base_is_known: &dyn Fn(&StageName) -> bool,
) -> Result<String, String> {
    match form {
        Form::BaseList => {
            let name: StageName =
                text.parse().map_err(|_| format!("invalid base index spec: '{text}'"))?;
            if !base_is_known(&name) {
                return Err(format!("base index '{name}' does not exist"));
            }
            Ok(name.to_string())
        }
        Form::ProjectList if text == "*" => Ok(text.to_owned()),
        Form::ProjectList => ProjectName::normalize(text)
            .map(|name| name.as_str().to_owned())
            .map_err(|error| error.to_string()),
        _ => text.parse::<AclEntry>().map(|it| it.to_string()).map_err(|error| error.to_string()),
    }
}

fn items(value: Option<&Value>) -> Vec<String> {
    value.map(items_of).unwrap_or_default()
}

fn items_of(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A value as a message shows it: a text without quotes, cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().take(200).collect()
}

impl Settings {
    /// The configuration that these values, which are in their normal form, are.
    fn finish(mut self, name: &StageName) -> Result<StageConfig, ConfigError> {
        let kind = if self.is_mirror {
            StageKind::Mirror(MirrorSettings {
                mirror_url: self.text("mirror_url"),
                mirror_cache_expiry: self.number("mirror_cache_expiry"),
                mirror_ignore_serial_header: self.boolean("mirror_ignore_serial_header"),
                mirror_no_project_list: self.boolean("mirror_no_project_list"),
                mirror_use_external_urls: self.boolean("mirror_use_external_urls"),
                mirror_provides_core_metadata: self.boolean("mirror_provides_core_metadata"),
                mirror_web_url_fmt: self.text("mirror_web_url_fmt"),
            })
        } else {
            let inheritance = self.text("mirror_whitelist_inheritance");
            StageKind::Stage(UploadSettings {
                acl_upload: self.acl("acl_upload", || Acl::user(name.user_name())),
                acl_toxresult_upload: self.acl("acl_toxresult_upload", Acl::everybody),
                bases: self.list("bases").iter().filter_map(|base| base.parse().ok()).collect(),
                mirror_whitelist: self
                    .list("mirror_whitelist")
                    .into_iter()
                    .map(Into::into)
                    .collect(),
                mirror_whitelist_inheritance: match inheritance.as_deref() {
                    Some("union") => WhitelistInheritance::Union,
                    _ => WhitelistInheritance::Intersection,
                },
                retention_versions: self.number("retention_versions"),
                retention_days: self.number("retention_days"),
            })
        };
        Ok(StageConfig {
            kind,
            volatile: self.boolean("volatile").unwrap_or(true),
            acl_read: self.acl("acl_read", Acl::everybody),
            title: self.text("title"),
            description: self.text("description"),
            custom_data: self.values.remove("custom_data"),
        })
    }

    fn text(&self, key: &str) -> Option<String> {
        self.values.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    fn number(&self, key: &str) -> Option<u32> {
        let number = self.values.get(key).and_then(Value::as_u64);
        number.and_then(|number| u32::try_from(number).ok())
    }

    fn boolean(&self, key: &str) -> Option<bool> {
        self.values.get(key).and_then(Value::as_bool)
    }

    fn list(&self, key: &str) -> Vec<String> {
        items(self.values.get(key))
    }

    fn acl(&self, key: &str, default: impl FnOnce() -> Acl) -> Acl {
        let Some(value) = self.values.get(key) else { return default() };
        // Checked when it was set; what cannot be read any more lets nobody in.
        Acl::from_entries(items_of(value).iter().map(String::as_str)).unwrap_or_default()
    }
}

impl StageConfig {
    /// Every setting that has a value, defaults included.
    fn settings(&self) -> Settings {
        let mut values: BTreeMap<&'static str, Value> = BTreeMap::new();
        self.each(true, &mut |key, value| _ = values.insert(key, value));
        Settings { is_mirror: self.is_mirror(), values }
    }

    /// The configuration that a whole set of settings is, as [`StageConfig`] writes it when all are
    /// wanted: for records.
    pub(crate) fn from_stored(name: &StageName, json: &Value) -> Result<StageConfig, ConfigError> {
        StageConfig::create(name, &ConfigEdit::parse(json)?, &|_| true)
    }

    /// Calls `take` with each setting that has a value, in the order in which they are shown; Larder's
    /// own and a mirror's at their default only if `all`.
    fn each(&self, all: bool, take: &mut dyn FnMut(&'static str, Value)) {
        let acl = |acl: &Acl| -> Value { acl.entries().iter().map(ToString::to_string).collect() };
        let names =
            |names: &[StageName]| -> Value { names.iter().map(StageName::as_str).collect() };
        let mut own = |key: &'static str, value: Option<Value>| {
            if let Some(value) = value {
                take(key, value);
            }
        };
        own("type", Some(json!(if self.is_mirror() { "mirror" } else { "stage" })));
        own("volatile", Some(json!(self.volatile)));
        match &self.kind {
            StageKind::Stage(settings) => {
                own("acl_upload", Some(acl(&settings.acl_upload)));
                own("acl_toxresult_upload", Some(acl(&settings.acl_toxresult_upload)));
                own("bases", Some(names(&settings.bases)));
                own(
                    "mirror_whitelist",
                    Some(settings.mirror_whitelist.iter().map(|it| &**it).collect()),
                );
                let inheritance = settings.mirror_whitelist_inheritance.as_str();
                own("mirror_whitelist_inheritance", Some(json!(inheritance)));
                own("retention_versions", settings.retention_versions.map(Value::from));
                own("retention_days", settings.retention_days.map(Value::from));
            }
            StageKind::Mirror(settings) => {
                own("mirror_url", settings.mirror_url.clone().map(Value::from));
                own("mirror_cache_expiry", settings.mirror_cache_expiry.map(Value::from));
                for (key, value) in [
                    ("mirror_ignore_serial_header", settings.mirror_ignore_serial_header),
                    ("mirror_no_project_list", settings.mirror_no_project_list),
                    ("mirror_use_external_urls", settings.mirror_use_external_urls),
                    ("mirror_provides_core_metadata", settings.mirror_provides_core_metadata),
                ] {
                    own(key, value.map(Value::from));
                }
                own("mirror_web_url_fmt", settings.mirror_web_url_fmt.clone().map(Value::from));
            }
        }
        let acl_read = (all || self.acl_read != Acl::everybody()).then(|| acl(&self.acl_read));
        own("acl_read", acl_read);
        own("title", self.title.clone().map(Value::from));
        own("description", self.description.clone().map(Value::from));
        own("custom_data", self.custom_data.clone());
    }

    /// All settings as one object: what [`StageConfig::from_stored`] reads.
    pub(crate) fn to_stored(&self) -> Value {
        let mut object = serde_json::Map::new();
        self.each(true, &mut |key, value| _ = object.insert(key.to_owned(), value));
        Value::Object(object)
    }
}

impl WhitelistInheritance {
    /// devpi's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            WhitelistInheritance::Intersection => "intersection",
            WhitelistInheritance::Union => "union",
        }
    }
}

impl Serialize for StageConfig {
    /// Writes devpi's `indexconfig` object, its keys in devpi's order.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = Vec::new();
        self.each(false, &mut |key, value| members.push((key, value)));
        let mut map = serializer.serialize_map(Some(members.len()))?;
        for (key, value) in &members {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
