//! [`StageConfig`]: the configuration of a stage, and [`ConfigEdit`]: a change to it that a request asks for.
//!
//! JSON of a request -> [`ConfigEdit::parse`] -> [`StageConfig::create`] or [`StageConfig::edited`] -> the next
//! configuration, or devpi's message about the error.
//!
//! The names of settings, their defaults, the accepted spellings of lists and booleans, and the error messages are
//! devpi's. Larder's own settings are shown only if they differ from their defaults, so that a stage without them
//! looks like devpi's.

mod edit;
mod settings;
mod table;

use std::collections::BTreeMap;

use account::{Acl, AclEntry};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use self::settings::{Settings, edited};
use self::table::{TOX_RESULTS, TRUSTED_PUBLISHERS, defaults};
use crate::policy::{Measure, Pin, ProjectPlace};
use crate::upstream::Locations;
use crate::{Policy, Publisher, StageName};

pub use self::edit::{ConfigEdit, ConfigError};

/// The configuration of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageConfig {
    /// Whether uploads fill the stage or an upstream does.
    pub kind: StageKind,
    /// Whether files may be replaced and removed without `force`.
    pub volatile: bool,
    /// Who may see its pages and files (Larder's own).
    pub acl_read: Acl,
    /// A short text for people.
    pub title: Option<String>,
    /// A longer text for people.
    pub description: Option<String>,
    /// Any JSON that tools store here.
    pub custom_data: Option<Value>,
    /// Files that are not given out (Larder's own); `None` if all are.
    pub policy: Option<Box<Policy>>,
}

/// The two types of stage.
#[derive(Clone, Debug, PartialEq)]
pub enum StageKind {
    /// `stage`: filled by uploads; inherits from its bases.
    Stage(UploadSettings),
    /// `mirror`: filled from an upstream.
    Mirror(MirrorSettings),
}

/// Settings of a stage of the type `stage`.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadSettings {
    /// Who may upload, push and remove.
    pub acl_upload: Acl,
    /// Who may add test results; `None` means the server's default, see [`UploadSettings::tox_result_uploaders`].
    pub acl_toxresult_upload: Option<Acl>,
    /// Whether that default is everybody, as on devpi, or every user. It comes from the server and is in no record.
    pub strangers_add_test_results: bool,
    /// Stages whose projects this one shows too, nearest first, without duplicates. Some may no longer exist.
    pub bases: Vec<StageName>,
    /// Projects that may come from a mirror even though a private stage has them: normalized names, or `*`.
    pub mirror_whitelist: Vec<Box<str>>,
    /// How the whitelists of bases are combined.
    pub mirror_whitelist_inheritance: WhitelistInheritance,
    /// Projects that come only from one of the bases (Larder's own).
    pub base_pins: Vec<Pin>,
    /// Which of several mirrors with one name count (Larder's own); `None` for the setting of the next stage, finally
    /// [`MirrorMerge::Connected`].
    pub mirror_merge: Option<MirrorMerge>,
    /// Projects elsewhere that projects of this stage extend or copy, as pages say (PEP 708; Larder's own).
    pub project_tracks: Vec<ProjectPlace>,
    /// Other places of projects of this stage, as pages say (PEP 708; Larder's own).
    pub project_alternate_locations: Vec<ProjectPlace>,
    /// Jobs of CI systems that may upload (Larder's own).
    pub trusted_publishers: Vec<Publisher>,
    /// Retention keeps at least this many newest versions of each project (Larder's own).
    pub retention_versions: Option<u32>,
    /// Retention removes only versions whose newest file is older than this, in days (Larder's own).
    pub retention_days: Option<u32>,
}

/// How the whitelists along the resolution order are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhitelistInheritance {
    /// A project must be on all of them.
    #[default]
    Intersection,
    /// A project must be on one of them.
    Union,
}

/// Which of several mirrors with a project of one name count, unless a whitelist or a pin decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorMerge {
    /// The nearest, and those that are connected with it by PEP 708.
    Connected,
    /// All, as on devpi.
    All,
}

/// Settings of a stage of the type `mirror`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorSettings {
    /// URL of the upstream's list of projects: http or https, with or without a slash at the end. `None`: not set
    /// yet, so there is nothing to mirror.
    pub mirror_url: Option<String>,
    /// How long an upstream page stays fresh, in seconds; `None` means the server's default.
    pub mirror_cache_expiry: Option<u32>,
    /// Whether a lower `X-PyPI-Last-Serial` is accepted.
    pub mirror_ignore_serial_header: Option<bool>,
    /// Whether the upstream has no list of projects.
    pub mirror_no_project_list: Option<bool>,
    /// Whether files are redirected to and not stored.
    pub mirror_use_external_urls: Option<bool>,
    /// Whether the upstream serves core metadata.
    pub mirror_provides_core_metadata: Option<bool>,
    /// Whether the upstream is never asked: what is known of it is served. Larder's own setting.
    pub mirror_offline: Option<bool>,
    /// URL of a project's page for people, with `{name}`.
    pub mirror_web_url_fmt: Option<String>,
    /// The serial of the commit that removed the mirror's last namesake, whose content is not its own. Not a setting.
    pub made_after: Option<u64>,
}

/// In a record: [`MirrorSettings::made_after`].
const MADE_AFTER: &str = "mirror_made_after";

/// In a record: somebody has set `acl_toxresult_upload`. Without this, a list of everybody is only an earlier
/// default.
const TOX_RESULTS_NAMED: &str = "acl_toxresult_upload_is_named";

impl UploadSettings {
    /// The other places of a project of this stage.
    pub(crate) fn locations_of(&self, project: &str) -> Locations {
        let urls = |places: &[ProjectPlace]| {
            let places = places.iter().filter(|place| *place.project == *project);
            places.map(|place| place.url.clone()).collect()
        };
        Locations {
            tracks: urls(&self.project_tracks),
            alternates: urls(&self.project_alternate_locations),
        }
    }

    /// Who may add test results.
    pub fn tox_result_uploaders(&self) -> Acl {
        let default = || match self.strangers_add_test_results {
            true => Acl::everybody(),
            false => [AclEntry::EveryUser].into_iter().collect(),
        };
        self.acl_toxresult_upload.clone().unwrap_or_else(default)
    }
}

impl StageConfig {
    /// This configuration with the server's default for who may add test results: everybody, or every user.
    #[must_use]
    pub(crate) fn with_strangers_adding_test_results(mut self, is_so: bool) -> StageConfig {
        if let StageKind::Stage(settings) = &mut self.kind {
            settings.strangers_add_test_results = is_so;
        }
        self
    }

    /// The settings of the type `stage`; `None` for a mirror.
    pub fn upload(&self) -> Option<&UploadSettings> {
        match &self.kind {
            StageKind::Stage(settings) => Some(settings),
            StageKind::Mirror(_) => None,
        }
    }

    /// The settings of the type `mirror`; `None` for a stage.
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

    /// The stages whose projects this one shows too; empty for a mirror.
    pub fn bases(&self) -> &[StageName] {
        self.upload().map_or(&[], |settings| &settings.bases)
    }

    /// Whether everybody may read.
    pub fn is_public(&self) -> bool {
        self.acl_read.entries().contains(&AclEntry::Everybody)
    }

    /// The configuration of a new stage called `name`. `exists` tells whether a stage exists.
    ///
    /// # Errors
    /// [`ConfigError`] if the request is invalid.
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
        let mut values = defaults(name, is_mirror);
        values.retain(|_, value| !value.is_null());
        let settings = Settings { is_mirror, values, strangers_add_test_results: false };
        edited(settings, name, edit, &[], exists)
    }

    /// This configuration, of the stage called `name`, after `edit`; equal to this one if nothing changes. Bases that
    /// are already in it may have been deleted.
    ///
    /// # Errors
    /// [`ConfigError`] if the request is invalid.
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
        let made_after = self.mirror().and_then(|settings| settings.made_after);
        edited(self.settings(), name, edit, self.bases(), exists)
            .map(|config| config.made_after(made_after))
    }

    /// This configuration, for a mirror that was made after that commit.
    #[must_use]
    pub(crate) fn made_after(mut self, serial: Option<u64>) -> StageConfig {
        if let StageKind::Mirror(settings) = &mut self.kind {
            settings.made_after = serial;
        }
        self
    }
}

impl StageConfig {
    /// Every setting that has a value, defaults included.
    fn settings(&self) -> Settings {
        let mut values: BTreeMap<&'static str, Value> = BTreeMap::new();
        self.each(true, &mut |key, value| _ = values.insert(key, value));
        let strangers_add_test_results =
            self.upload().is_some_and(|settings| settings.strangers_add_test_results);
        Settings { is_mirror: self.is_mirror(), values, strangers_add_test_results }
    }

    /// The configuration with these settings, all of them, as [`StageConfig`] writes it into records. Settings of a
    /// later version are ignored and no bounds are checked: everything that was stored must be readable again.
    pub(crate) fn from_stored(name: &StageName, json: &Value) -> Result<StageConfig, ConfigError> {
        let mut edit = ConfigEdit::of_record(json)?;
        if json[TOX_RESULTS_NAMED] != json!(true) {
            edit.forget_default_uploaders_of_tox_results();
        }
        let config = StageConfig::create(name, &edit, &|_| true)?;
        Ok(config.made_after(json[MADE_AFTER].as_u64()))
    }

    /// Calls `take` with each setting that has a value, in the order in which settings are shown. With `all`,
    /// Larder's own settings and a mirror's are included at their defaults too; without it, who may add test results
    /// is included even if nobody has set it.
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
                let is_named = settings.acl_toxresult_upload.is_some();
                let uploaders = (is_named || !all).then(|| acl(&settings.tox_result_uploaders()));
                own(TOX_RESULTS, uploaders);
                own("bases", Some(names(&settings.bases)));
                own(
                    "mirror_whitelist",
                    Some(settings.mirror_whitelist.iter().map(|it| &**it).collect()),
                );
                let inheritance = settings.mirror_whitelist_inheritance.as_str();
                own("mirror_whitelist_inheritance", Some(json!(inheritance)));
                let pins: Vec<String> = texts(&settings.base_pins);
                own("base_pins", (!pins.is_empty()).then(|| pins.into()));
                own("mirror_merge", settings.mirror_merge.map(|it| it.as_str().into()));
                for (key, places) in [
                    ("project_tracks", &settings.project_tracks),
                    ("project_alternate_locations", &settings.project_alternate_locations),
                ] {
                    own(key, (!places.is_empty()).then(|| texts(places).into()));
                }
                let publishers = texts(&settings.trusted_publishers);
                own(TRUSTED_PUBLISHERS, (!publishers.is_empty()).then(|| publishers.into()));
                own("retention_versions", settings.retention_versions.map(Value::from));
                own("retention_days", settings.retention_days.map(Value::from));
            }
            StageKind::Mirror(settings) => {
                let url = settings.mirror_url.as_deref();
                // Records have the credentials; they are never shown.
                let shown = |url: &str| if all { url.to_owned() } else { without_credentials(url) };
                own("mirror_url", url.map(shown).map(Value::from));
                own("mirror_cache_expiry", settings.mirror_cache_expiry.map(Value::from));
                for (key, value) in [
                    ("mirror_ignore_serial_header", settings.mirror_ignore_serial_header),
                    ("mirror_no_project_list", settings.mirror_no_project_list),
                    ("mirror_use_external_urls", settings.mirror_use_external_urls),
                    ("mirror_provides_core_metadata", settings.mirror_provides_core_metadata),
                    ("mirror_offline", settings.mirror_offline),
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
        let Some(policy) = self.policy.as_deref() else { return };
        own("policy_cooldown_days", policy.cooldown_days.map(Value::from));
        own("policy_cutoff", policy.cutoff.map(|time| time.to_string().into()));
        let mut list = |key, items: Vec<String>| {
            own(key, (!items.is_empty()).then(|| items.into()));
        };
        list("policy_cooldown_except", texts(&policy.cooldown_except));
        list("policy_allow", texts(&policy.allow));
        list("policy_deny", texts(&policy.deny));
        list("policy_quarantine", texts(&policy.quarantine));
        list("policy_exceptions", texts(&policy.exceptions));
        for (key, measure) in
            [("policy_malware", policy.malware), ("policy_vulnerabilities", policy.vulnerabilities)]
        {
            own(key, (measure > Measure::Off).then(|| measure.as_str().into()));
        }
    }

    /// The names of all settings that a stage, or a mirror, can have.
    pub fn setting_names(is_mirror: bool) -> impl Iterator<Item = &'static str> {
        table::names(is_mirror)
    }

    /// The names of the settings in which two configurations differ.
    pub fn differing(one: &StageConfig, other: &StageConfig) -> Vec<&'static str> {
        let mut before: BTreeMap<&'static str, Value> = BTreeMap::new();
        one.each(true, &mut |key, value| _ = before.insert(key, value));
        let mut names = Vec::new();
        other.each(true, &mut |key, value| {
            if before.remove(key).as_ref() != Some(&value) {
                names.push(key);
            }
        });
        // What is left was set before and is not set now.
        names.extend(before.into_keys());
        names
    }

    /// All settings as one object, in the form that [`StageConfig::from_stored`] parses.
    pub(crate) fn to_stored(&self) -> Value {
        let mut object = serde_json::Map::new();
        self.each(true, &mut |key, value| _ = object.insert(key.to_owned(), value));
        if object.contains_key(TOX_RESULTS) {
            object.insert(TOX_RESULTS_NAMED.to_owned(), json!(true));
        }
        if let Some(serial) = self.mirror().and_then(|settings| settings.made_after) {
            object.insert(MADE_AFTER.to_owned(), json!(serial));
        }
        Value::Object(object)
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

/// A URL for display: its credentials, if it has any, are replaced by three asterisks.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://***{}", &rest[at..]),
        None => url.to_owned(),
    }
}

impl MirrorSettings {
    /// The URL of the upstream as everybody may see it: without credentials.
    pub fn shown_url(&self) -> Option<String> {
        self.mirror_url.as_deref().map(without_credentials)
    }
}

impl MirrorMerge {
    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            MirrorMerge::Connected => "connected",
            MirrorMerge::All => "all",
        }
    }

    /// The setting with this name.
    fn named(name: &str) -> Option<MirrorMerge> {
        [MirrorMerge::Connected, MirrorMerge::All].into_iter().find(|it| it.as_str() == name)
    }
}

impl WhitelistInheritance {
    /// devpi's name of the variant.
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
