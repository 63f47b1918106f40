//! The settings: the name, the type and the default of each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::StageName;
use crate::policy::OPERATORS;

/// The type of a setting's value, which decides its normal form.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ValueType {
    Boolean,
    /// Not negative.
    Number,
    Text,
    Url,
    Inheritance,
    /// Which of several mirrors count.
    Merge,
    Json,
    /// A time, or a day in UTC.
    Time,
    /// How a policy reacts to known malware or vulnerabilities.
    Measure,
    AclList,
    BaseList,
    ProjectList,
    /// Projects with the bases that they come from.
    PinList,
    /// Projects with URLs of other places of theirs.
    PlaceList,
    /// Names of projects and their starts.
    NameList,
    /// Rules of a policy.
    RuleList,
    /// Rules with reasons. A text is one item, since a reason may have commas.
    QuarantineList,
    /// Exceptions from a policy, with their ends and reasons; a text is one item.
    ExceptionList,
    /// Jobs of CI systems that may upload; a text is one item.
    PublisherList,
}

impl ValueType {
    pub(super) fn is_list(self) -> bool {
        use ValueType::{AclList, BaseList, NameList, PinList, PlaceList, ProjectList, RuleList};
        matches!(self, AclList | BaseList | ProjectList | PinList | PlaceList | NameList | RuleList)
            || self.is_one_item()
    }

    /// Whether a text is one item of it, commas and all.
    pub(super) fn is_one_item(self) -> bool {
        self.has_reasons() || self == ValueType::PublisherList
    }

    /// Whether its items are rules with something after them.
    pub(super) fn has_reasons(self) -> bool {
        matches!(self, ValueType::QuarantineList | ValueType::ExceptionList)
    }

    /// The items of a list that is written as one text.
    pub(super) fn items_of_text(self, text: &str) -> Vec<&str> {
        match self {
            form if form.is_one_item() => vec![text.trim()],
            // The commas of `name>=1,<2` separate nothing.
            ValueType::RuleList => {
                let mut items = Vec::new();
                let mut start = 0;
                for (at, _) in text.match_indices(',') {
                    if !text[at + 1..].trim_start().starts_with(OPERATORS) {
                        items.push(text[start..at].trim());
                        start = at + 1;
                    }
                }
                items.push(text[start..].trim());
                items
            }
            _ => text.split(',').map(str::trim).collect(),
        }
    }
}

const BOTH: [(&str, ValueType); 14] = [
    ("volatile", ValueType::Boolean),
    ("acl_read", ValueType::AclList),
    ("title", ValueType::Text),
    ("description", ValueType::Text),
    ("custom_data", ValueType::Json),
    (COOLDOWN_DAYS, ValueType::Number),
    ("policy_cutoff", ValueType::Time),
    ("policy_cooldown_except", ValueType::NameList),
    ("policy_allow", ValueType::RuleList),
    ("policy_deny", ValueType::RuleList),
    ("policy_quarantine", ValueType::QuarantineList),
    ("policy_malware", ValueType::Measure),
    ("policy_vulnerabilities", ValueType::Measure),
    ("policy_exceptions", ValueType::ExceptionList),
];

pub(super) const COOLDOWN_DAYS: &str = "policy_cooldown_days";

const STAGE: [(&str, ValueType); 12] = [
    ("acl_upload", ValueType::AclList),
    (TOX_RESULTS, ValueType::AclList),
    ("bases", ValueType::BaseList),
    ("mirror_whitelist", ValueType::ProjectList),
    ("mirror_whitelist_inheritance", ValueType::Inheritance),
    ("base_pins", ValueType::PinList),
    ("mirror_merge", ValueType::Merge),
    ("project_tracks", ValueType::PlaceList),
    ("project_alternate_locations", ValueType::PlaceList),
    (TRUSTED_PUBLISHERS, ValueType::PublisherList),
    ("retention_versions", ValueType::Number),
    ("retention_days", ValueType::Number),
];

const MIRROR: [(&str, ValueType); 8] = [
    ("mirror_url", ValueType::Url),
    ("mirror_cache_expiry", ValueType::Number),
    ("mirror_ignore_serial_header", ValueType::Boolean),
    ("mirror_no_project_list", ValueType::Boolean),
    ("mirror_use_external_urls", ValueType::Boolean),
    ("mirror_provides_core_metadata", ValueType::Boolean),
    ("mirror_offline", ValueType::Boolean),
    ("mirror_web_url_fmt", ValueType::Text),
];

/// The setting with this name, and the name as a constant.
pub(super) fn setting(key: &str, is_mirror: bool) -> Option<(&'static str, ValueType)> {
    let own = if is_mirror { &MIRROR[..] } else { &STAGE[..] };
    BOTH.iter().chain(own).find(|(name, _)| *name == key).copied()
}

/// The names of all settings.
pub(super) fn names(is_mirror: bool) -> impl Iterator<Item = &'static str> {
    let own = if is_mirror { &MIRROR[..] } else { &STAGE[..] };
    BOTH.iter().chain(own).map(|(name, _)| *name)
}

/// The defaults of a stage with this name.
pub(super) fn defaults(name: &StageName, is_mirror: bool) -> BTreeMap<&'static str, Value> {
    let mut values = BTreeMap::from([("volatile", json!(true)), ("acl_read", json!([EVERYBODY]))]);
    if !is_mirror {
        values.extend([
            ("acl_upload", json!([name.user()])),
            // Its default is the server's.
            (TOX_RESULTS, Value::Null),
            ("bases", json!([])),
            ("mirror_whitelist", json!([])),
            ("mirror_whitelist_inheritance", json!("intersection")),
        ]);
    }
    values
}

/// Jobs of CI systems that may upload.
pub(super) const TRUSTED_PUBLISHERS: &str = "trusted_publishers";

/// The entry of a list of rights that means everybody, as devpi writes it.
pub(super) const EVERYBODY: &str = ":ANONYMOUS:";

/// Who may add test results; the values do not include it unless somebody has set it.
pub(super) const TOX_RESULTS: &str = "acl_toxresult_upload";
