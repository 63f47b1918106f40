//! The indexes of an export and their configuration; bases come before the indexes that inherit from them.

use std::collections::{BTreeMap, BTreeSet};

use config::Config;
use net::Egress;
use pypi::change::stage as change;
use pypi::{ConfigEdit, StageConfig, StageName};
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::dump::{Dump, Members};
use crate::report::Report;
use crate::writer::PlannedBatch;

/// The settings that are imported; everything else belongs to plugins.
const KNOWN: [&str; 6] = ["type", "volatile", "acl_read", "title", "description", "custom_data"];

/// Settings of a stage.
const OF_STAGE: [&str; 5] = [
    "acl_upload",
    "acl_toxresult_upload",
    "bases",
    "mirror_whitelist",
    "mirror_whitelist_inheritance",
];

/// Settings of a mirror.
const OF_MIRROR: [&str; 7] = [
    "mirror_url",
    "mirror_cache_expiry",
    "mirror_ignore_serial_header",
    "mirror_no_project_list",
    "mirror_use_external_urls",
    "mirror_provides_core_metadata",
    "mirror_web_url_fmt",
];

/// Domains that the public DNS does not have: RFC 6761, 6762 and 8375, and ICANN's `internal`.
const LOCAL_DOMAINS: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

/// An index that has to be made.
pub(super) struct NewStage {
    name: StageName,
    settings: Map<String, Value>,
    /// Its bases that are in the export, in order.
    bases: Vec<StageName>,
    /// What its owner has to know once it is made.
    notes: Vec<String>,
}

/// Reads the configurations; bases come first where that is possible.
pub(super) fn read(dump: &Dump, config: &Config, report: &mut Report) -> Vec<NewStage> {
    let mut stages = BTreeMap::new();
    for (name, index) in &dump.indexes {
        let subject = format!("index {name}");
        match name.parse::<StageName>() {
            Ok(name) => {
                let settings = settings(&index.indexconfig, &subject, report);
                stages.insert(name, (settings, notes(&index.indexconfig, config)));
            }
            Err(error) => {
                report.indexes.not_imported += 1;
                report.fail(subject, error);
            }
        }
    }
    let names: BTreeSet<StageName> = stages.keys().cloned().collect();
    let mut ordered = Vec::with_capacity(stages.len());
    let mut rest: Vec<NewStage> = stages
        .into_iter()
        .map(|(name, (mut settings, notes))| {
            let bases = bases(&name, settings.remove("bases"), &names, report);
            NewStage { name, settings, bases, notes }
        })
        .collect();
    let mut placed = BTreeSet::new();
    while !rest.is_empty() {
        let is_ready = |stage: &NewStage| {
            stage.bases.iter().all(|base| placed.contains(base) || *base == stage.name)
        };
        let (mut ready, waiting): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_ready);
        rest = waiting;
        if ready.is_empty() {
            // The bases form a circle: one index must come before its bases.
            ready.push(rest.remove(0));
        }
        placed.extend(ready.iter().map(|stage| stage.name.clone()));
        ordered.extend(ready);
    }
    ordered
}

/// The settings under their present names, without those of plugins.
fn settings(index: &Members, subject: &str, report: &mut Report) -> Map<String, Value> {
    let mut settings = Map::new();
    let own: &[&str] = if index.is_mirror() { &OF_MIRROR } else { &OF_STAGE };
    for (key, value) in index.iter() {
        let key = match key.as_str() {
            // The name of this setting up to devpi-server 3.
            "pypi_whitelist" => "mirror_whitelist",
            "acl_pkg_read" => "acl_read",
            key => key,
        };
        if key == "projects" || value.is_null() {
            continue;
        }
        // devpi's default, which nobody chose: Larder uses its own default.
        if key == "acl_toxresult_upload" && *value == json!([":ANONYMOUS:"]) {
            continue;
        }
        if KNOWN.contains(&key) || own.contains(&key) {
            settings.insert(key.to_owned(), value.clone());
        } else if !(index.is_mirror() && OF_STAGE.contains(&key)) {
            // The value may be a plugin's secret, and the configuration of an index is public.
            report.note(subject, format_args!("the unknown setting `{key}` was dropped"));
        }
    }
    if !index.is_mirror() {
        // Before this setting existed, devpi behaved like this.
        settings.entry("mirror_whitelist_inheritance").or_insert_with(|| json!("union"));
    }
    settings
}

/// What is other than it was on devpi, or does not work without a setting of the server.
fn notes(index: &Members, config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    let testers = index.get("acl_toxresult_upload");
    let are_all = testers.is_none_or(|it| it.is_null() || *it == json!([":ANONYMOUS:"]));
    if !index.is_mirror() && are_all && !config.python.devpi_defaults {
        notes.push(
            "test results now need a user: everybody could add them (`acl_toxresult_upload`), and can again if you set it to \
             `:ANONYMOUS:`"
                .to_owned(),
        );
    }
    let url = index.get("mirror_url").and_then(Value::as_str);
    let url = url.filter(|_| index.is_mirror()).and_then(|url| Url::parse(url).ok());
    if let Some(host) = url.and_then(|url| private_host(&url, config)) {
        notes.push(format!(
            "its upstream `{host}` has no public address: name the address in `egress_allow` of the configuration"
        ));
    }
    notes
}

/// The host of a URL, if the server may not connect to it, as far as its name says. Nobody is asked for the address of a name.
fn private_host(url: &Url, config: &Config) -> Option<String> {
    let host = url.host_str()?;
    let is_private = match host.trim_matches(['[', ']']).parse() {
        Ok(ip) => !Egress::new(config.egress_allow.iter().copied()).admits(ip),
        Err(_) => {
            let name = host.trim_end_matches('.');
            let is_local = !name.contains('.') || LOCAL_DOMAINS.iter().any(|it| name.ends_with(it));
            is_local && config.egress_allow.is_empty()
        }
    };
    is_private.then(|| host.to_owned())
}

fn bases(
    name: &StageName,
    value: Option<Value>,
    names: &BTreeSet<StageName>,
    report: &mut Report,
) -> Vec<StageName> {
    let texts: Vec<String> = match value {
        Some(Value::String(text)) => text.split(',').map(|it| it.trim().to_owned()).collect(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    let mut bases = Vec::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        match text.parse::<StageName>() {
            Ok(base) if names.contains(&base) => bases.push(base),
            _ => report.note(
                format_args!("index {name}"),
                format_args!("the base `{text}` is not in the export, and was dropped"),
            ),
        }
    }
    bases
}

/// Adds the indexes that do not exist yet.
pub(super) fn plan(stages: &[NewStage], plan: &mut PlannedBatch, report: &mut Report) {
    let mut made = Vec::new();
    for stage in stages {
        let subject = format!("index {}", stage.name);
        let wanted = edit(stage, &stage.bases)
            .and_then(|edit| Ok(StageConfig::create(&stage.name, &edit, &|_| true)?));
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => {
                report.indexes.not_imported += 1;
                report.fail(subject, error);
                continue;
            }
        };
        if let Some(known) = plan.stored().index.stage(stage.name.as_str()) {
            if *known.config() == wanted {
                report.indexes.already_there += 1;
            } else {
                report.indexes.not_imported += 1;
                let differing = differing(known.config(), &wanted);
                report.conflict(
                    subject,
                    format_args!("exists already, and keeps its own settings: {differing}"),
                );
            }
            continue;
        }
        if plan.stored().accounts.user(&stage.name.user_name()).is_none()
            && !stage.name.user_name().is_root()
        {
            report.indexes.not_imported += 1;
            report.fail(subject, format_args!("its user `{}` does not exist", stage.name.user()));
            continue;
        }
        // An index may be its own base once it exists.
        let exists = |base: &&StageName| plan.stored().index.stage(base.as_str()).is_some();
        let there: Vec<StageName> = stage.bases.iter().filter(exists).cloned().collect();
        let created = edit(stage, &there)
            .and_then(|edit| Ok(change::create(&plan.stored().index, &stage.name, &edit)?));
        match created {
            Ok((batch, _)) => {
                plan.add(without_the_user_check(batch, stage));
                for note in &stage.notes {
                    report.note(&subject, note);
                }
                report.indexes.imported += 1;
                if there.len() < stage.bases.len() {
                    made.push(stage);
                }
            }
            Err(error) => {
                report.indexes.not_imported += 1;
                report.fail(subject, error);
            }
        }
    }
    // Indexes whose bases were made after them.
    for stage in made {
        let subject = format!("index {}", stage.name);
        let exists = |base: &&StageName| plan.stored().index.stage(base.as_str()).is_some();
        let there: Vec<StageName> = stage.bases.iter().filter(exists).cloned().collect();
        for base in stage.bases.iter().filter(|base| !there.contains(base)) {
            report.note(&subject, format_args!("the base `{base}` was not imported: dropped"));
        }
        let modified = edit(stage, &there)
            .and_then(|edit| Ok(change::modify(&plan.stored().index, &stage.name, &edit, false)?));
        match modified {
            Ok((Some(batch), _)) => plan.add(batch),
            Ok((None, _)) => {}
            Err(error) => report.fail(subject, error),
        }
    }
}

/// Drops the check that the user exists for indexes of `root`: without a password in the export, `root` is made
/// later.
fn without_the_user_check(mut batch: record::Batch, stage: &NewStage) -> record::Batch {
    if stage.name.user_name().is_root() {
        let key = account::user_key(&stage.name.user_name());
        batch.checks.retain(|(checked, _)| *checked != key);
    }
    batch
}

fn edit(stage: &NewStage, bases: &[StageName]) -> anyhow::Result<ConfigEdit> {
    let mut settings = stage.settings.clone();
    if !bases.is_empty() {
        let bases: Vec<&str> = bases.iter().map(StageName::as_str).collect();
        settings.insert("bases".to_owned(), json!(bases));
    }
    Ok(ConfigEdit::parse(&Value::Object(settings))?)
}

/// The names of the settings in which the two configurations differ.
fn differing(one: &StageConfig, other: &StageConfig) -> String {
    let [one, other] = [one, other].map(|it| serde_json::to_value(it).unwrap_or_default());
    let (one, other) = (one.as_object(), other.as_object());
    let keys: BTreeSet<&String> =
        one.into_iter().chain(other).flat_map(|object| object.keys()).collect();
    let differ = |key: &&&String| {
        let value =
            |object: Option<&Map<String, Value>>| object.and_then(|it| it.get(**key)).cloned();
        value(one) != value(other)
    };
    let names: Vec<&str> = keys.iter().filter(differ).map(|key| key.as_str()).collect();
    names.join(", ")
}
