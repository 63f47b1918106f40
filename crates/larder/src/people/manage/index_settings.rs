//! The settings of an index as fields of a form: in groups, each with what it means.
//!
//! settings as the API shows them -> [`groups`] -> fields of a form -> [`edit_of`] -> an edit as the API takes it, or
//! [`changes_of`] -> what it would change. For an index that is not there yet: [`new_index`] -> fields -> [`config_of`].

use std::collections::BTreeSet;

use account::{Object, Principal, Scope};
use http::StatusCode;
use pypi::StageConfig;
use serde_json::{Map, Value, json};

use super::forms;
use crate::front::error::HttpError;

use Kind::{Choice, Flag, Json, Line, List, Long};

/// How a setting is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Yes or no.
    Flag,
    /// One of these.
    Choice(&'static [&'static str]),
    /// An item a line.
    List,
    /// A text of some lines.
    Long,
    /// A line.
    Line,
    /// JSON, for what may be anything.
    Json,
}

/// What people are told of a setting.
struct About {
    key: &'static str,
    label: &'static str,
    says: &'static str,
    kind: Kind,
}

const fn about(key: &'static str, label: &'static str, says: &'static str, kind: Kind) -> About {
    About { key, label, says, kind }
}

/// The groups, in the order of the page, and whether each is open at first.
const GROUPS: [(&str, bool, &[About]); 6] = [
    ("Who may", true, &RIGHTS),
    ("What people read", true, &TEXTS),
    ("What it inherits", false, &INHERITANCE),
    ("Upstream", false, &UPSTREAM),
    ("Policy: what nobody gets from here", false, &POLICY),
    ("What is kept", false, &KEPT),
];

/// Most users and groups that a page offers; others can be typed.
const PEOPLE_MAX: usize = 300;

const WHO: &str = "One name a line: a user, a :group, :AUTHENTICATED: for everybody who has logged in, :ANONYMOUS: for everybody.";

const RIGHTS: [About; 4] = [
    about("acl_read", "Who may read", WHO, List),
    about("acl_upload", "Who may upload", "As above.", List),
    about(
        "acl_toxresult_upload",
        "Who may add test results",
        "As above; if it is empty, everybody who has logged in, unless the server says otherwise.",
        List,
    ),
    about(
        "trusted_publishers",
        "Jobs of CI systems that may upload",
        "One a line, as `larder publisher` writes them: uploads without a stored token.",
        List,
    ),
];

const TEXTS: [About; 3] = [
    about("title", "Title", "A few words, on lists and above the index.", Line),
    about("description", "Description", "What the index is for.", Long),
    about("custom_data", "Data for programs", "Any JSON; nothing here reads it.", Json),
];

const INHERITANCE: [About; 7] = [
    about(
        "bases",
        "Bases",
        "Indexes whose projects this one shows, too, one a line: of two files with one name that of the first counts.",
        List,
    ),
    about(
        "mirror_whitelist",
        "Projects that may come from both sides",
        "A project that is in an index of yours comes from there alone. Those named here, one a line, come from mirrors as \
         well; * means all.",
        List,
    ),
    about(
        "mirror_whitelist_inheritance",
        "The same lists of the bases",
        "A project counts if it is in all of these lists (intersection), or in any (union).",
        Choice(&["intersection", "union"]),
    ),
    about(
        "base_pins",
        "The only base of a project",
        "One NAME=USER/INDEX a line; NAME may end with *. Other bases are not asked for it.",
        List,
    ),
    about(
        "mirror_merge",
        "Several mirrors with one project",
        "connected: the nearest that has it, and those that PEP 708 connects with it. all: all of them, as on devpi.",
        Choice(&["connected", "all"]),
    ),
    about(
        "project_tracks",
        "Projects that this index tracks",
        "One NAME=URL a line: where the project of that name comes from (PEP 708).",
        List,
    ),
    about(
        "project_alternate_locations",
        "Other places of projects",
        "One NAME=URL a line: where the project is, too (PEP 708).",
        List,
    ),
];

const UPSTREAM: [About; 8] = [
    about(
        "mirror_url",
        "URL",
        "Where upstream's list of projects is. What it has in front of the host, a user and a password, goes to this host only.",
        Line,
    ),
    about(
        "mirror_offline",
        "Never ask upstream",
        "Only what is here already is given out; 504 for everything else.",
        Flag,
    ),
    about(
        "mirror_cache_expiry",
        "How long a page is fresh",
        "In seconds. If it is empty, the server's setting counts.",
        Line,
    ),
    about(
        "mirror_no_project_list",
        "Upstream has no list of projects",
        "It is asked for every name that is not yours.",
        Flag,
    ),
    about(
        "mirror_use_external_urls",
        "Send clients to upstream's files",
        "Nothing is kept here, and a policy cannot hold what a client already has a link to.",
        Flag,
    ),
    about(
        "mirror_provides_core_metadata",
        "Metadata beside each wheel",
        "yes: also where upstream's page does not say so. no: nowhere.",
        Flag,
    ),
    about(
        "mirror_ignore_serial_header",
        "Take pages with a lower serial",
        "Upstream's X-PyPI-Last-Serial may go backwards.",
        Flag,
    ),
    about(
        "mirror_web_url_fmt",
        "URL of a project's page upstream",
        "For devpi's tools; Larder shows it only.",
        Line,
    ),
];

const POLICY: [About; 8] = [
    about(
        "policy_cooldown_days",
        "Refuse files younger than this many days",
        "A fresh release is held back until others have looked at it.",
        Line,
    ),
    about(
        "policy_cutoff",
        "Refuse files uploaded at this time or later",
        "A day in UTC, or a time with its zone.",
        Line,
    ),
    about(
        "policy_cooldown_except",
        "Projects for which age does not count",
        "One a line; neither of the two rules above holds for them. A name may end with *.",
        List,
    ),
    about(
        "policy_allow",
        "Refuse everything but",
        "One rule a line, such as requests, numpy>=2 or acme-*. With any rule, all else is refused.",
        List,
    ),
    about(
        "policy_deny",
        "Refuse these",
        "One rule a line, such as leftpad, requests>=2,<2.31 or *@sdist.",
        List,
    ),
    about(
        "policy_malware",
        "Refuse known malware",
        "By the records of OSV that this server has.",
        Choice(&["refuse", "warn"]),
    ),
    about(
        "policy_vulnerabilities",
        "Refuse known vulnerabilities",
        "refuse hides all releases with one; warn only notes in the audit log who took them.",
        Choice(&["refuse", "warn"]),
    ),
    about(
        "policy_exceptions",
        "Give out all the same",
        "One a line: RULE until DAY REASON, such as requests==2.32.4 until 2100-01-01 fixes a hole.",
        List,
    ),
];

const KEPT: [About; 3] = [
    about(
        "volatile",
        "Releases can be replaced and removed",
        "no: an upload never takes the place of a file, and only force removes one.",
        Flag,
    ),
    about(
        "retention_versions",
        "Newest versions of a project that stay",
        "A number; older versions are removed. Empty: all stay.",
        Line,
    ),
    about(
        "retention_days",
        "Days after which versions are removed",
        "By the age of their newest file, even the last version of a project. Empty: never.",
        Line,
    ),
];

/// The settings in the form for a new index, each with what an empty field means. All others can be set once it is there.
const NEW: [About; 5] = [
    about("title", "Title", "A few words, if you like, on lists and above the index.", Line),
    about("bases", "Bases", "Indexes whose projects this one shows, too, one a line.", List),
    about(
        "acl_read",
        "Who may read",
        "One name a line: a user, a :group, :AUTHENTICATED: for everybody who has logged in. Everybody, if it is empty.",
        List,
    ),
    about("acl_upload", "Who may upload", "As above; its own user, if it is empty.", List),
    about("mirror_url", "For a mirror: the URL", "Where upstream's list of projects is.", Line),
];

/// Settings that have forms of their own, and what is none.
const ELSEWHERE: [&str; 3] = ["type", "projects", "policy_quarantine"];

/// A group of fields.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) is_open: bool,
    pub(super) settings: Vec<Setting>,
}

/// A setting, as a field of the form.
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) label: &'static str,
    pub(super) says: &'static str,
    pub(super) kind: Kind,
    /// As it is; empty if the index does not have it.
    pub(super) was: String,
    /// As the field shows it.
    pub(super) text: String,
}

impl Setting {
    /// The setting with this name, which need not have a value; `None` if nobody knows it.
    fn find(key: &str, current: &Map<String, Value>) -> Option<Setting> {
        let about = GROUPS.iter().flat_map(|(.., all)| all.iter()).find(|it| it.key == key)?;
        Some(Setting::of(about, current.get(key)))
    }

    fn of(about: &About, value: Option<&Value>) -> Setting {
        let text = match value {
            None | Some(Value::Null) => String::new(),
            Some(value) if about.kind == Json => value.to_string(),
            Some(Value::Bool(is_on)) => (if *is_on { "yes" } else { "no" }).to_owned(),
            Some(Value::Array(items)) => {
                let line =
                    |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                items.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        // A field of one line would take the ends of lines out.
        let kind = match about.kind {
            Line if text.contains(['\r', '\n']) => Long,
            kind => kind,
        };
        let &About { key, label, says, .. } = about;
        Setting { key: key.to_owned(), label, says, kind, was: text.clone(), text }
    }

    /// The setting, with what the user has typed into a form that was not carried out.
    fn typed(about: &About, value: Option<&Value>, typed: Option<&forms::Fields>) -> Setting {
        let mut setting = Setting::of(about, value);
        if let Some(text) = typed.and_then(|fields| typed_text(fields, about.key).ok()?) {
            setting.text = text;
        }
        setting
    }

    /// Whether it is a list of users and groups, to which one can be chosen.
    pub(super) fn is_of_people(&self) -> bool {
        self.key.starts_with("acl_")
    }

    /// Lines of its field.
    pub(super) fn rows(&self) -> usize {
        (self.text.lines().count() + 1).clamp(2, 8)
    }

    /// The choices of the field; empty is one if the index does not have the setting, or need not have it.
    pub(super) fn choices(&self) -> Vec<&str> {
        let all: &[&str] = match self.kind {
            Flag => &["yes", "no"],
            Choice(all) => all,
            _ => &[],
        };
        let may_be_empty = self.was.is_empty() || self.key.starts_with("policy_");
        let mut choices = if may_be_empty { vec![""] } else { Vec::new() };
        choices.extend(all);
        if !choices.contains(&self.text.as_str()) {
            choices.push(&self.text);
        }
        choices
    }

    /// The value of a field, as the API takes it; null drops the setting.
    fn value(&self, text: &str) -> Result<Value, HttpError> {
        Ok(match self.kind {
            List => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                json!(lines.collect::<Vec<_>>())
            }
            Flag if !text.is_empty() => json!(text == "yes"),
            Flag | Choice(_) | Json if text.trim().is_empty() => Value::Null,
            Flag | Choice(_) | Long | Line => json!(text),
            Json => serde_json::from_str(text).map_err(|error| {
                HttpError::unusable(format!("the value of `{}` is not JSON: {error}", self.key))
            })?,
        })
    }
}

/// The fields for these settings, with what the user has typed into a form that was not carried out. `has_publishers`: whether
/// jobs of CI systems can upload here at all.
pub(super) fn groups(
    config: &StageConfig,
    current: &Map<String, Value>,
    typed: Option<&forms::Fields>,
    has_publishers: bool,
) -> Vec<Group> {
    let names: Vec<_> = StageConfig::setting_names(config.is_mirror()).collect();
    let is_shown = |key: &str| {
        let is_wanted = key != "trusted_publishers" || has_publishers || current.contains_key(key);
        is_wanted && names.contains(&key) && !ELSEWHERE.contains(&key)
    };
    let groups = GROUPS.iter().map(|&(title, is_open, all)| {
        let shown = all.iter().filter(|about| is_shown(about.key));
        let settings = shown.map(|about| Setting::typed(about, current.get(about.key), typed));
        let settings: Vec<_> = settings.collect();
        let is_used = settings.iter().any(|it| {
            let is_choice = matches!(it.kind, Flag | Choice(_));
            it.text != it.was || (!is_choice && !it.was.is_empty())
        });
        Group { title, is_open: is_open || is_used, settings }
    });
    groups.filter(|group| !group.settings.is_empty()).collect()
}

/// The fields of the form for a new index.
pub(super) fn new_index(typed: Option<&forms::Fields>) -> Vec<Setting> {
    NEW.iter().map(|about| Setting::typed(about, None, typed)).collect()
}

/// The settings of a new index, as that form has them.
pub(super) fn config_of(fields: &forms::Fields) -> Result<Value, HttpError> {
    let mut config = Map::new();
    for about in &NEW {
        let text = typed_text(fields, about.key)?.unwrap_or_default();
        let text = text.trim();
        if !text.is_empty() {
            config.insert(about.key.to_owned(), Setting::of(about, None).value(text)?);
        }
    }
    if config.contains_key("mirror_url") {
        config.insert("type".to_owned(), json!("mirror"));
    }
    Ok(Value::Object(config))
}

/// The users and groups that a list of rights can name, at most [`PEOPLE_MAX`]. Others than administrators do not learn who is there.
pub(super) fn people(accounts: &account::Snapshot, principal: &Principal) -> Vec<String> {
    let everybody = [":ANONYMOUS:", ":AUTHENTICATED:"].map(str::to_owned);
    if !principal.is_administrator(Scope::UserAdmin, Object::Server) {
        let own = principal.user_name().map(ToString::to_string);
        return everybody.into_iter().chain(own).collect();
    }
    let groups = accounts.users().flat_map(|user| &user.groups);
    let groups: BTreeSet<String> = groups.map(|group| format!(":{group}")).collect();
    let users = accounts.users().map(|user| user.name.to_string());
    everybody.into_iter().chain(groups).chain(users).take(PEOPLE_MAX).collect()
}

/// A text with the ends of lines that it had before a browser sent it.
fn plain(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// What a form says of a setting: its field, with a line for each name that was chosen beside it and is not there yet.
fn typed_text(fields: &forms::Fields, key: &str) -> Result<Option<String>, HttpError> {
    let Some(mut text) = fields.maybe(&format!("is.{key}"))?.map(plain) else { return Ok(None) };
    let chosen = fields.maybe(&format!("add.{key}"))?.unwrap_or_default();
    for name in chosen.split([',', ' ']).filter(|name| !name.is_empty()) {
        if !text.lines().any(|line| line.trim() == name) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(name);
        }
    }
    Ok(Some(text))
}

/// The changes of a form to these settings.
///
/// # Errors
/// 409 if somebody else has changed the same settings since the page was loaded; 422 for a value that has to be JSON and is
/// not.
pub(super) fn edit_of(
    fields: &forms::Fields,
    current: &Map<String, Value>,
) -> Result<Value, HttpError> {
    let mut edit = Map::new();
    for key in fields.names().filter_map(|name| name.strip_prefix("was.")) {
        // Only changed fields are sent. So changes by others in the meantime stay, and values that a page does not show, such
        // as credentials in a URL.
        let was = fields.maybe(&format!("was.{key}"))?.map(plain);
        let is = typed_text(fields, key)?;
        let Some((was, is)) = was.zip(is).filter(|(was, is)| was != is) else { continue };
        let setting = Setting::find(key, current).filter(|setting| plain(&setting.was) == was);
        let Some(setting) = setting else {
            let key = record::excerpt(key, 80);
            let detail = format!(
                "Somebody else changed `{}` since you loaded the page. This is how the settings are now: look at them, and change yours again.",
                key.escape_debug()
            );
            return Err(HttpError::refused(StatusCode::CONFLICT, detail));
        };
        edit.insert(key.to_owned(), setting.value(&is)?);
    }
    Ok(Value::Object(edit))
}

/// What an edit would change, a sentence for each setting.
pub(super) fn changes_of(edit: &Value, current: &Map<String, Value>) -> Vec<String> {
    let edit = edit.as_object().into_iter().flatten();
    let changes = edit.filter_map(|(key, value)| {
        let setting = Setting::find(key, current)?;
        let after =
            Setting::of(&About { kind: setting.kind, ..about("", "", "", Line) }, Some(value));
        let quoted = |text: &str| match text {
            "" => "nothing".to_owned(),
            text => format!("“{}”", text.replace('\n', ", ")),
        };
        let (was, is): (Vec<_>, Vec<_>) =
            (setting.was.lines().collect(), after.was.lines().collect());
        let what = match setting.kind {
            List => {
                let gone = was.iter().filter(|line| !is.contains(line)).copied();
                let new = is.iter().filter(|line| !was.contains(line)).copied();
                let joined = |lines: Vec<&str>| quoted(&lines.join("\n"));
                match (gone.collect::<Vec<_>>(), new.collect::<Vec<_>>()) {
                    (gone, new) if gone.is_empty() && new.is_empty() => "another order".to_owned(),
                    (gone, new) if gone.is_empty() => format!("with {}", joined(new)),
                    (gone, new) if new.is_empty() => format!("without {}", joined(gone)),
                    (gone, new) => format!("with {}, without {}", joined(new), joined(gone)),
                }
            }
            _ => format!("{} instead of {}", quoted(&after.was), quoted(&setting.was)),
        };
        Some(format!("{}: {what}.", setting.label))
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_one_field() {
        let all: Vec<_> = GROUPS.iter().flat_map(|(.., all)| all.iter()).map(|it| it.key).collect();
        let mut names: Vec<_> =
            [true, false].into_iter().flat_map(StageConfig::setting_names).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !ELSEWHERE.contains(name));
        let mut sorted = all;
        sorted.sort_unstable();
        assert_eq!(sorted, names);
    }

    #[test]
    fn a_change_is_said_in_words() {
        let current = json!({"acl_read": ["a", ":ANONYMOUS:"], "title": "", "volatile": true});
        let current = current.as_object().expect("an object");
        let edit = json!({
            "acl_read": ["a", "b"], "title": "Ours", "volatile": false, "policy_deny": ["x"], "policy_malware": null
        });
        let expected = [
            "Who may read: with “b”, without “:ANONYMOUS:”.",
            "Refuse these: with “x”.",
            "Refuse known malware: nothing instead of nothing.",
            "Title: “Ours” instead of nothing.",
            "Releases can be replaced and removed: “no” instead of “yes”.",
        ];
        assert_eq!(changes_of(&edit, current), expected);
    }
}
