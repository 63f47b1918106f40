//! [`Settings`]: a configuration during an edit; the type, normal form, default and bounds of each setting.

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;

use account::{Acl, AclEntry};
use serde_json::{Value, json};

use super::edit::{Operation, cut, shown};
use super::table::{
    COOLDOWN_DAYS, EVERYBODY, TOX_RESULTS, TRUSTED_PUBLISHERS, ValueType, defaults, setting,
};
use super::{
    ConfigEdit, ConfigError, MirrorMerge, MirrorSettings, StageConfig, StageKind, UploadSettings,
    WhitelistInheritance, without_credentials,
};
use crate::policy::{
    COOLDOWN_DAYS_MAX, Exception, Measure, NamePattern, Pin, ProjectPlace, Quarantine, Rule,
};
use crate::{Policy, ProjectName, Publisher, StageName};

/// The settings during an edit, as JSON values in their normal form.
pub(super) struct Settings {
    pub(super) is_mirror: bool,
    pub(super) values: BTreeMap<&'static str, Value>,
    /// [`UploadSettings::strangers_add_test_results`].
    pub(super) strangers_add_test_results: bool,
}

/// Every user.
const USERS: &str = ":AUTHENTICATED:";

/// Settings that old clients and exports send for mirrors, where they have no effect; devpi accepts them too.
const PASSED_OVER: [&str; 4] = ["bases", "acl_upload", "mirror_whitelist", "pypi_whitelist"];

pub(super) fn edited(
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
                Operation::Set(key, value) => format!("{}={}", cut(key), shown(value)),
                Operation::Add(key, value) | Operation::Remove(key, value) => {
                    format!("{}={}", cut(key), cut(value))
                }
                // A setting that does not exist counts as dropped already.
                Operation::Drop(_) => continue,
            });
            continue;
        };
        let own = settings.values.get(key);
        let of_server = (key == TOX_RESULTS && own.is_none())
            .then_some(if settings.strangers_add_test_results { EVERYBODY } else { USERS })
            .map(|everybody| json!([everybody]));
        let slot = own.or(of_server.as_ref());
        let is_as_shown = |value: &Value| {
            let own = own.and_then(Value::as_str);
            form == ValueType::Url
                && value.as_str().map(str::trim) == own.map(without_credentials).as_deref()
        };
        let next = match operation {
            // A client that sends back the URL as it was shown, without its credentials, does not change it.
            Operation::Set(_, value) if is_as_shown(value) => continue,
            Operation::Set(_, value) => Some(normal(key, form, value, &base_is_known)?),
            // In an object, null resets a setting to its default. In a list, devpi refuses that.
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
                items.extend(items_of(&added));
                Some(json!(distinct(items)))
            }
            Operation::Remove(_, removed) => {
                let mut items = items(slot);
                // A quarantined or excepted rule can be removed without its reason.
                let is_rule = form.has_reasons() && !removed.trim().contains(' ');
                let named_by = if is_rule { ValueType::QuarantineList } else { form };
                // A value that is removed need not exist any more.
                let normalized = normal(key, named_by, &json!(removed), &|_| true)?;
                let is_same = |it: &str, item: &str| {
                    it == item || is_rule && it.split(' ').next() == Some(item)
                };
                for item in items_of(&normalized) {
                    let Some(at) = items.iter().position(|it| is_same(it, &item)) else {
                        let (key, value) = (key.to_owned(), removed.clone());
                        return Err(ConfigError::NoSuchValue { key, value });
                    };
                    items.remove(at);
                }
                Some(json!(items))
            }
        };
        // A client that sends back the server's default, as it was shown, does not set it.
        if next.is_some() && next == of_server {
            continue;
        }
        // A value that was stored before a bound existed may shrink step by step.
        let is_growing = matches!(operation, Operation::Set(..) | Operation::Add(..));
        if is_growing && !edit.is_stored {
            check_bounds(key, next.as_ref().unwrap_or(&Value::Null))?;
        }
        match next.filter(|value| !value.is_null()) {
            Some(value) => settings.values.insert(key, value),
            None => settings.values.remove(key),
        };
    }
    if !unexpected.is_empty() {
        let more = unexpected.len().saturating_sub(UNEXPECTED_MAX);
        unexpected.truncate(UNEXPECTED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(ConfigError::Unexpected(unexpected.join(", ") + &more));
    }
    settings.finish(name)
}

/// `value` in the normal form of its setting; null means no value.
fn normal(
    key: &str,
    form: ValueType,
    value: &Value,
    base_is_known: &dyn Fn(&StageName) -> bool,
) -> Result<Value, ConfigError> {
    let refused =
        |what: &str| ConfigError::Value(format!("'{key}' cannot be {}: {what}", shown(value)));
    match (form, value) {
        (ValueType::Json, value) => Ok(value.clone()),
        (ValueType::Boolean, Value::Bool(_)) => Ok(value.clone()),
        (ValueType::Boolean, Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(json!(true)),
            "false" | "no" => Ok(json!(false)),
            _ => Err(ConfigError::Value(format!("Unknown boolean value '{text}'."))),
        },
        (ValueType::Boolean, value) => {
            Err(ConfigError::Value(format!("Unknown boolean value {}.", shown(value))))
        }
        (ValueType::Number, value) => {
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
        (ValueType::Text, Value::String(_)) => Ok(value.clone()),
        (ValueType::Url, Value::String(text)) => {
            let text = text.trim();
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            match rest {
                Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(json!(text)),
                _ => Err(ConfigError::Value(format!("'{key}' option must be a URL."))),
            }
        }
        (ValueType::Text | ValueType::Url, _) => Err(refused("a text was expected")),
        (ValueType::Inheritance, Value::String(text))
            if text == "intersection" || text == "union" =>
        {
            Ok(value.clone())
        }
        (ValueType::Inheritance, value) => Err(ConfigError::Value(format!(
            "Unknown value '{}' for mirror_whitelist_inheritance, must be 'intersection' or 'union'.",
            shown(value)
        ))),
        (ValueType::Merge, Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        (ValueType::Merge, value) => {
            let name = value.as_str().map(str::trim).and_then(MirrorMerge::named);
            let name = name.ok_or_else(|| refused("`connected` or `all` was expected"))?;
            Ok(json!(name.as_str()))
        }
        (ValueType::Measure, Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        (ValueType::Measure, value) => {
            let measure = value.as_str().map(str::trim).and_then(Measure::named);
            match measure.ok_or_else(|| refused("`refuse`, `warn` or `off` was expected"))? {
                // The same as without the setting.
                Measure::Off => Ok(Value::Null),
                measure => Ok(json!(measure.as_str())),
            }
        }
        (ValueType::Time, Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        (ValueType::Time, value) => {
            let text = value.as_str().unwrap_or_default().trim();
            let time = crate::policy::time(text);
            let time = time.ok_or_else(|| {
                refused("a day or a time was expected, as 2026-01-31 or 2026-01-31T23:59:59Z")
            })?;
            Ok(json!(time.to_string()))
        }
        (form, value) => {
            let texts = match value {
                Value::String(text) => Some(form.items_of_text(text)),
                Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
                _ => None,
            }
            .ok_or_else(|| refused("a list of texts was expected"))?;
            let texts = texts.into_iter().filter(|text| !text.is_empty());
            let mut items: Vec<String> = Vec::new();
            let mut faults: Vec<String> = Vec::new();
            for text in texts {
                match normal_item(form, text, base_is_known) {
                    Ok(item) => items.push(item),
                    Err(fault) => faults.push(fault),
                }
            }
            if faults.is_empty() {
                Ok(json!(distinct(items)))
            } else {
                Err(ConfigError::Value(faults.join(", ")))
            }
        }
    }
}

/// Longest title, description or other text, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest list: more is not needed, and every page walks over the bases.
const ITEMS_MAX: usize = 1000;

/// Most trusted publishers: each identity of a CI job is compared with those of all indexes.
const PUBLISHERS_MAX: usize = 100;

/// Deepest nesting of lists and objects in `custom_data`. The parser that reads the record stops at 128 levels, of
/// which the record takes some itself.
const NESTING_MAX: usize = 64;

/// Most unknown settings that a message names.
const UNEXPECTED_MAX: usize = 10;

/// Checks the bounds on the size and depth of `value`, which is in its normal form.
fn check_bounds(key: &str, value: &Value) -> Result<(), ConfigError> {
    let too_much = |what: &str, max: usize, unit: &str| {
        let text = format!("'{key}' is too {what}: at most {max} {unit} were expected");
        Err(ConfigError::Value(text))
    };
    match value {
        Value::String(text) if key == "mirror_url" => {
            let url = url::Url::parse(text).ok().filter(|url| url.has_host());
            let refused = |what: &str| {
                let shown = cut(&without_credentials(text));
                Err(ConfigError::Value(format!("'{key}' cannot be {shown}: {what}")))
            };
            match url {
                None => refused("a URL with a host was expected"),
                Some(url) if url.query().is_some() || url.fragment().is_some() => {
                    refused("a URL without a query and a fragment was expected")
                }
                Some(url) if url.username() == "***" => refused(
                    "`***` stands for credentials that are not shown; the credentials themselves were expected",
                ),
                Some(_) => Ok(()),
            }
        }
        value if key == COOLDOWN_DAYS => match value.as_u64() {
            Some(days) if days > u64::from(COOLDOWN_DAYS_MAX) => Err(ConfigError::Value(format!(
                "'{key}' cannot be {days}: at most {COOLDOWN_DAYS_MAX} days were expected"
            ))),
            _ => Ok(()),
        },
        _ if key == "custom_data" => match is_deeper(value, NESTING_MAX) {
            true => too_much("deeply nested", NESTING_MAX, "levels"),
            false => Ok(()),
        },
        Value::String(text) if text.len() > TEXT_BYTES_MAX => {
            too_much("long", TEXT_BYTES_MAX, "bytes")
        }
        Value::Array(items) if key == TRUSTED_PUBLISHERS && items.len() > PUBLISHERS_MAX => {
            too_much("long", PUBLISHERS_MAX, "items")
        }
        Value::Array(items) if items.len() > ITEMS_MAX => too_much("long", ITEMS_MAX, "items"),
        _ => Ok(()),
    }
}

/// Whether lists and objects are nested in more than `levels_max` levels; looks no deeper than that.
fn is_deeper(value: &Value, levels_max: usize) -> bool {
    let is_inner_deeper = |inner: &Value| is_deeper(inner, levels_max - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels_max == 0 => true,
        Value::Array(items) => items.iter().any(is_inner_deeper),
        Value::Object(members) => members.values().any(is_inner_deeper),
        _ => false,
    }
}

/// Removes duplicates; the first of equal items stays.
fn distinct(mut items: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(item.clone()));
    items
}

fn normal_item(
    form: ValueType,
    text: &str,
    base_is_known: &dyn Fn(&StageName) -> bool,
) -> Result<String, String> {
    match form {
        ValueType::BaseList => {
            let name: StageName =
                text.parse().map_err(|_| format!("invalid base index spec: '{text}'"))?;
            if !base_is_known(&name) {
                return Err(format!("base index '{name}' does not exist"));
            }
            Ok(name.to_string())
        }
        ValueType::ProjectList if text == "*" => Ok(text.to_owned()),
        ValueType::ProjectList => ProjectName::normalize(text)
            .map(|name| name.as_str().to_owned())
            .map_err(|error| error.to_string()),
        ValueType::NameList => normal_text::<NamePattern>(text),
        ValueType::PinList => normal_text::<Pin>(text),
        ValueType::PlaceList => normal_text::<ProjectPlace>(text),
        ValueType::RuleList => normal_text::<Rule>(text),
        ValueType::QuarantineList => normal_text::<Quarantine>(text),
        ValueType::ExceptionList => normal_text::<Exception>(text),
        ValueType::PublisherList => normal_text::<Publisher>(text),
        _ => text.parse::<AclEntry>().map(|it| it.to_string()).map_err(|error| error.to_string()),
    }
}

fn normal_text<T: FromStr<Err: ToString> + ToString>(text: &str) -> Result<String, String> {
    text.parse().map(|it: T| it.to_string()).map_err(|error| error.to_string())
}

fn items(value: Option<&Value>) -> Vec<String> {
    value.map(items_of).unwrap_or_default()
}

fn items_of(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Settings {
    /// The configuration with these values, which are in their normal form.
    fn finish(mut self, name: &StageName) -> Result<StageConfig, ConfigError> {
        let kind = if self.is_mirror {
            StageKind::Mirror(MirrorSettings {
                made_after: None,
                mirror_url: self.text("mirror_url"),
                mirror_cache_expiry: self.number("mirror_cache_expiry"),
                mirror_ignore_serial_header: self.boolean("mirror_ignore_serial_header"),
                mirror_no_project_list: self.boolean("mirror_no_project_list"),
                mirror_use_external_urls: self.boolean("mirror_use_external_urls"),
                mirror_provides_core_metadata: self.boolean("mirror_provides_core_metadata"),
                mirror_offline: self.boolean("mirror_offline"),
                mirror_web_url_fmt: self.text("mirror_web_url_fmt"),
            })
        } else {
            let inheritance = self.text("mirror_whitelist_inheritance");
            StageKind::Stage(UploadSettings {
                acl_upload: self.acl("acl_upload", || Acl::user(name.user_name())),
                acl_toxresult_upload: self
                    .values
                    .contains_key(TOX_RESULTS)
                    .then(|| self.acl(TOX_RESULTS, Acl::default)),
                strangers_add_test_results: self.strangers_add_test_results,
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
                base_pins: self.parsed("base_pins"),
                mirror_merge: self.text("mirror_merge").as_deref().and_then(MirrorMerge::named),
                project_tracks: self.parsed("project_tracks"),
                project_alternate_locations: self.parsed("project_alternate_locations"),
                trusted_publishers: self.parsed(TRUSTED_PUBLISHERS),
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
            policy: Some(self.policy()).filter(|policy| !policy.is_empty()).map(Box::new),
            custom_data: self.values.remove("custom_data"),
        })
    }

    fn policy(&self) -> Policy {
        Policy {
            cooldown_days: self.number(COOLDOWN_DAYS),
            cutoff: self.text("policy_cutoff").and_then(|text| text.parse().ok()),
            cooldown_except: self.parsed("policy_cooldown_except"),
            allow: self.parsed("policy_allow"),
            deny: self.parsed("policy_deny"),
            quarantine: self.parsed("policy_quarantine"),
            malware: self.measure("policy_malware"),
            vulnerabilities: self.measure("policy_vulnerabilities"),
            exceptions: self.parsed("policy_exceptions"),
        }
    }

    fn measure(&self, key: &str) -> Measure {
        self.text(key).as_deref().and_then(Measure::named).unwrap_or_default()
    }

    /// The items of a list, which are in their normal form.
    fn parsed<T: FromStr>(&self, key: &str) -> Vec<T> {
        self.list(key).iter().filter_map(|text| text.parse().ok()).collect()
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
        // The list was checked when it was set. If it cannot be read any more, it admits nobody.
        Acl::from_entries(items_of(value).iter().map(String::as_str)).unwrap_or_default()
    }
}
