//! [`ConfigEdit`]: a requested change to a configuration, in each of the forms that devpi's clients send.

use serde_json::Value;

use super::table::{EVERYBODY, TOX_RESULTS, setting};

/// A requested change to a configuration, or the requested configuration of a new stage.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEdit {
    pub(super) operations: Vec<Operation>,
    /// Whether the request was a list of strings.
    pub(super) is_list: bool,
    /// Whether this is the configuration in a record. It is stored already, so no bound refuses it.
    pub(super) is_stored: bool,
}

/// One change to one setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    Set(String, Value),
    Add(String, String),
    Remove(String, String),
    Drop(String),
}

/// Why an edit is refused, with devpi's messages where devpi has some.
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
    /// The `type` is not known.
    #[error("unknown index type '{0}'")]
    UnknownType(String),
    /// The `type` differs from that of the stage.
    #[error("the 'type' of an index can't be changed")]
    TypeChange,
    /// Unknown settings, as `key=value`, separated by commas.
    #[error("indexconfig got unexpected keyword arguments: {0}")]
    Unexpected(String),
    /// The value to be removed is not in the list.
    #[error("The '{key}' setting doesn't have value '{value}'")]
    NoSuchValue {
        /// The setting.
        key: String,
        /// The value to be removed.
        value: String,
    },
    /// A setting that must have a value cannot be dropped.
    #[error("Default values can't be removed.")]
    DefaultDropped,
    /// The setting is not a list, so nothing can be added to it or removed from it.
    #[error("The '{0}' setting is not a list")]
    NotAList(String),
    /// The setting cannot have this value; the text names both.
    #[error("{0}")]
    Value(String),
    /// With this value the stage's record could not be read again, and the stage would be lost.
    #[error("'{key}' has a value with which the index could not be read back: {reason}")]
    NotReadBack {
        /// The setting.
        key: String,
        /// Why reading fails.
        reason: String,
    },
}

impl ConfigEdit {
    /// An edit that changes nothing; a new stage gets the defaults.
    pub fn nothing() -> ConfigEdit {
        ConfigEdit { operations: Vec::new(), is_list: false, is_stored: false }
    }

    /// Parses all three forms: an object of settings; the whole reply to `GET`, `{"type": "indexconfig", "result":
    /// {…}}`; a list of `key=value`, `key+=value`, `key-=value` and `key-=`.
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
        Ok(ConfigEdit { operations, is_list: json.is_array(), is_stored: false })
    }

    /// Whether it names a setting that begins so.
    pub fn names(&self, beginning: &str) -> bool {
        self.operations.iter().any(|operation| operation.key().starts_with(beginning))
    }

    /// Parses the configuration in a record. Unknown settings come from a later version and are ignored.
    pub(super) fn of_record(json: &Value) -> Result<ConfigEdit, ConfigError> {
        let mut edit = ConfigEdit { is_stored: true, ..ConfigEdit::parse(json)? };
        let is_mirror = edit.type_()? == Some("mirror");
        edit.operations.retain(|operation| {
            operation.key() == "type" || setting(operation.key(), is_mirror).is_some()
        });
        Ok(edit)
    }

    /// Drops what was once the default in every record, that everybody may add test results.
    pub(super) fn forget_default_uploaders_of_tox_results(&mut self) {
        let everybody = serde_json::json!([EVERYBODY]);
        self.operations.retain(|operation| {
            !matches!(operation, Operation::Set(key, value) if key == TOX_RESULTS && *value == everybody)
        });
    }

    /// The type that the edit asks for, if it names one.
    pub(super) fn type_(&self) -> Result<Option<&str>, ConfigError> {
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
        let error = || ConfigError::NoOperation(cut(text));
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

    pub(super) fn key(&self) -> &str {
        match self {
            Operation::Set(key, _)
            | Operation::Add(key, _)
            | Operation::Remove(key, _)
            | Operation::Drop(key) => key,
        }
    }
}

/// A value in a message: a text without quotes, shortened if it is long.
pub(super) fn shown(value: &Value) -> String {
    cut(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// A text in a message, shortened if it is long.
pub(super) fn cut(text: &str) -> String {
    record::excerpt(text, 200).into()
}
