//! devpi's JSON: the envelope, and users, stages, projects, versions and files as its clients read them.
//!
//! values -> `result` of an envelope -> bytes, in devpi's layout: two spaces of indentation, the keys in devpi's
//! order, a line feed at the end. Links are absolute; the root's URL is an argument.
//!
//! The metadata of a release is a blob: [`metadata_digests`] lists the blobs that an answer needs, and the caller
//! passes in their bytes.

mod tox_report;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use account::{Acl, AclEntry, Object, Portion, Principal, Scope, User, UserName};
use bytes::Bytes;
use jiff::Timestamp;
use record::Digest;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::change::push::PushAction;
use crate::inherit::{ProjectPart, ProjectView, VersionView};
use crate::policy::{Judge, refusal_in_json, shows_any};
use crate::url::encoded;
use crate::{
    LogEntry, ProjectName, ReleaseFile, ResolutionOrder, Snapshot, Stage, StageConfig, StageKind,
    StageName,
};

pub use self::tox_report::{ToxCommand, ToxEnvironment, ToxReport, ToxStatus};

/// The features that this server announces, beyond those of every devpi.
pub(crate) const FEATURES: [&str; 4] =
    ["push-no-docs", "push-only-docs", "push-register-project", "server-keyvalue-parsing"];

#[derive(Serialize)]
struct Envelope<'text, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<&'text str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'text str>,
}

fn bytes<T: Serialize>(envelope: &Envelope<'_, T>) -> Bytes {
    let mut bytes =
        serde_json::to_vec_pretty(envelope).expect("texts and numbers are written to memory");
    bytes.push(b'\n');
    bytes.into()
}

/// The body with a result of the type `type_`, such as `indexconfig`.
pub fn result<T: Serialize>(type_: &str, result: T, message: Option<&str>) -> Bytes {
    bytes(&Envelope { result: Some(result), type_: Some(type_), message })
}

/// The body with a message and no result.
pub fn message(message: &str) -> Bytes {
    bytes(&Envelope::<()> { result: None, type_: None, message: Some(message) })
}

/// `result` of `+api`, type `apiconfig`.
#[derive(Clone, Debug, Serialize)]
pub struct ApiConfig {
    login: String,
    authstatus: (&'static str, String, Vec<String>),
    features: [&'static str; 4],
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simpleindex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pypisubmit: Option<String>,
}

/// The answer to `+api` at the root, or at a stage. `root_url` has no slash at its end.
pub fn api_config(root_url: &str, principal: &Principal, stage: Option<&Stage>) -> ApiConfig {
    let index = stage.map(|stage| format!("{root_url}/{}", path(stage.name())));
    let groups = principal.groups().map(ToString::to_string).collect();
    ApiConfig {
        login: format!("{root_url}/+login"),
        authstatus: match principal.user_name() {
            Some(name) => ("ok", name.to_string(), groups),
            None => ("noauth", String::new(), Vec::new()),
        },
        features: FEATURES,
        simpleindex: index.as_ref().map(|index| format!("{index}/+simple/")),
        pypisubmit: index
            .as_ref()
            .filter(|_| stage.is_some_and(|stage| !stage.config().is_mirror()))
            .map(|index| format!("{index}/")),
        index,
    }
}

/// `user/index`, encoded for a URL.
fn path(stage: &StageName) -> String {
    format!("{}/{}", encoded(stage.user()), encoded(stage.index()))
}

/// The viewer of users and stages, and the snapshot: what the viewer may not see is left out.
#[derive(Clone, Copy, Debug)]
pub struct View<'snapshot> {
    /// The snapshot that has the stages.
    pub snapshot: &'snapshot Snapshot,
    /// Who sent the request.
    pub principal: &'snapshot Principal,
    /// Whether everybody sees everything, apart from stages that they may not read, as on devpi.
    pub shows_all: bool,
}

impl<'snapshot> View<'snapshot> {
    /// Whether the sender may know that this user exists: if they are the user themselves, if they see one of the
    /// user's stages, or if they are an administrator.
    pub fn knows(self, user: &User) -> bool {
        let principal = self.principal;
        self.shows_all
            || principal.user_name() == Some(&user.name)
            || self.sees_private(user)
            || self.snapshot.stages_of(user.name.as_str()).any(|stage| self.sees(stage))
    }

    /// Whether the sender sees the private part of a user: the email address and the data that tools store.
    pub fn sees_private(self, user: &User) -> bool {
        self.shows_all || self.principal.acts_for(&user.name, Scope::UserAdmin, Object::Server)
    }

    /// Whether the sender sees the stage: they may read it or change it.
    pub fn sees(self, stage: &Stage) -> bool {
        stage.may_read(self.principal, Portion::Whole) || stage.may_modify(self.principal)
    }

    /// Whether the sender sees every stage that a log entry names; `own` is the file's own stage.
    fn sees_named(self, entry: &LogEntry, own: &StageName) -> bool {
        let sees = |name: &StageName| {
            let stage = || self.snapshot.stage(name.as_str());
            name == own || self.shows_all || stage().is_some_and(|stage| self.sees(stage))
        };
        match entry {
            LogEntry::Upload { target, .. } => sees(target),
            LogEntry::Push { source, target, .. } => sees(source) && sees(target),
            LogEntry::Overwrite { .. } => true,
        }
    }

    /// The configuration of a stage as the sender sees it. Someone who may change the stage sees all of it. Others
    /// do not see bases that they may not read or that no longer exist; without credentials, nor which users and groups
    /// its lists name.
    pub fn config(self, stage: &'snapshot Stage) -> Cow<'snapshot, StageConfig> {
        let config = stage.config();
        if self.shows_all || stage.may_modify(self.principal) {
            return Cow::Borrowed(config);
        }
        let mut shown = config.clone();
        let is_stranger = self.principal.identity().is_none();
        let hide = |list: &mut Acl| {
            if is_stranger {
                let own = AclEntry::User(stage.name().user_name());
                let is_known = |entry: &&AclEntry| {
                    matches!(entry, AclEntry::Everybody | AclEntry::EveryUser) || **entry == own
                };
                *list = list.entries().iter().filter(is_known).cloned().collect();
            }
        };
        match &mut shown.kind {
            StageKind::Stage(settings) => {
                hide(&mut settings.acl_upload);
                let mut uploaders = settings.tox_result_uploaders();
                hide(&mut uploaders);
                settings.acl_toxresult_upload = Some(uploaders);
                let stage = |base: &StageName| self.snapshot.stage(base.as_str());
                let is_seen = |base: &StageName| stage(base).is_some_and(|it| self.sees(it));
                settings.bases.retain(is_seen);
                settings.base_pins.retain(|pin| is_seen(&pin.base));
            }
            // The URL is shown without its credentials.
            StageKind::Mirror(_) => {}
        }
        Cow::Owned(shown)
    }
}

/// A user with their stages, type `userconfig`; borrows from the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct UserConfig<'snapshot> {
    /// The user.
    pub user: &'snapshot User,
    /// Who sent the request: stages that they may neither read nor change are left out.
    pub view: View<'snapshot>,
}

impl Serialize for UserConfig<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let UserConfig { user, view } = *self;
        let sees_private = view.sees_private(user);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("username", user.name.as_str())?;
        map.serialize_entry("created", &seconds(user.created_at))?;
        if let Some(modified_at) = user.modified_at {
            map.serialize_entry("modified", &seconds(modified_at))?;
        }
        let email = user.email.as_ref().filter(|_| sees_private);
        let (title, description) = (user.title.as_ref(), user.description.as_ref());
        for (key, text) in [("email", email), ("title", title), ("description", description)] {
            if let Some(text) = text {
                map.serialize_entry(key, text)?;
            }
        }
        if let Some(custom_data) = user.custom_data.as_ref().filter(|_| sees_private) {
            map.serialize_entry("custom_data", custom_data)?;
        }
        let stages = view.snapshot.stages_of(user.name.as_str());
        let shown = stages.filter(|stage| view.sees(stage));
        let indexes: BTreeMap<&str, _> =
            shown.map(|stage| (stage.name().index(), view.config(stage))).collect();
        map.serialize_entry("indexes", &indexes)?;
        map.end()
    }
}

/// `2026-01-31T23:59:59Z`.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Every user that the sender may know of, with their stages, type `list:userconfig`: an object by name.
pub fn user_list<'snapshot>(
    users: impl IntoIterator<Item = &'snapshot User>,
    view: View<'snapshot>,
) -> BTreeMap<&'snapshot str, UserConfig<'snapshot>> {
    let known = users.into_iter().filter(|user| view.knows(user));
    let configs = known.map(|user| UserConfig { user, view });
    configs.map(|config| (config.user.name.as_str(), config)).collect()
}

/// A stage's configuration with the names of its own projects, type `indexconfig`.
#[derive(Clone, Copy, Debug)]
pub struct IndexConfig<'snapshot> {
    /// The stage.
    pub stage: &'snapshot Arc<Stage>,
    /// Whether `projects` is included: those that a policy does not hide entirely.
    pub has_projects: bool,
    /// The current time, for policies.
    pub now: Timestamp,
    /// Who sent the request.
    pub view: View<'snapshot>,
}

impl Serialize for IndexConfig<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'stage> {
            #[serde(flatten)]
            config: Cow<'stage, StageConfig>,
            #[serde(skip_serializing_if = "Option::is_none")]
            projects: Option<Names<'stage>>,
            /// Names that the stage keeps without any content; devpi knows none.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            held_names: Vec<&'stage str>,
        }
        let projects = self.has_projects.then_some(Names(self.stage, self.now));
        let held = self.stage.held_names().filter(|_| self.has_projects);
        let held_names = held.map(|name| name.as_str()).collect();
        Flat { config: self.view.config(self.stage), projects, held_names }.serialize(serializer)
    }
}

struct Names<'stage>(&'stage Arc<Stage>, Timestamp);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Names(stage, now) = *self;
        serializer.collect_seq(stage.names().filter(|name| shows_any(stage, name, now)))
    }
}

/// The bytes of metadata blobs by digest. A version without its blob shows only name and version.
pub type MetadataBytes = std::collections::HashMap<Digest, Bytes>;

/// The metadata blobs that [`project_config`] (for all versions) or [`version_data`] (for one) needs.
pub fn metadata_digests<'view, 'snapshot: 'view>(
    versions: impl IntoIterator<Item = &'view VersionView<'snapshot>>,
) -> Vec<Digest> {
    let versions = versions.into_iter();
    let mut digests: Vec<Digest> = versions
        .flat_map(|view| {
            let releases = view.parts.iter().map(|it| it.project.release(view.version.as_str()));
            releases.flatten().map(|release| release.metadata)
        })
        .collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// All versions of a project, newest first, type `projectconfig`: an object by version.
pub fn project_config(
    versions: &[VersionView<'_>],
    project: &ProjectName,
    root_url: &str,
    metadata: &MetadataBytes,
    viewer: View<'_>,
    judge: Option<&Judge<'_>>,
) -> impl Serialize + use<> {
    let data = |view| version_data(view, project, root_url, metadata, viewer, judge);
    let entries = versions.iter().map(|view| (view.version.to_string(), data(view)));
    OrderedObject(entries.collect())
}

struct OrderedObject(Vec<(String, Value)>);

impl Serialize for OrderedObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// One version, type `versiondata`: its metadata, `+links`, and the same version in stages farther away, in
/// `+shadowing`. Log entries of a file that name stages which the viewer may not read are left out, and so are files that
/// the judge refuses or whose project is quarantined.
pub fn version_data(
    view: &VersionView<'_>,
    project: &ProjectName,
    root_url: &str,
    metadata: &MetadataBytes,
    viewer: View<'_>,
    judge: Option<&Judge<'_>>,
) -> Value {
    let version = view.version.as_str();
    let mut parts = view
        .parts
        .iter()
        .map(|part| one_version(*part, project, version, root_url, metadata, viewer, judge));
    let mut nearest = parts.next().unwrap_or_default();
    let shadowed: Vec<Value> = parts.map(Value::Object).collect();
    if !shadowed.is_empty() {
        nearest.insert("+shadowing".to_owned(), shadowed.into());
    }
    Value::Object(nearest)
}

fn one_version(
    part: ProjectPart<'_>,
    project: &ProjectName,
    version: &str,
    root_url: &str,
    metadata: &MetadataBytes,
    viewer: View<'_>,
    judge: Option<&Judge<'_>>,
) -> Map<String, Value> {
    let stored = part.project.release(version).and_then(|it| metadata.get(&it.metadata));
    let stored = stored.and_then(|bytes| serde_json::from_slice(bytes).ok());
    let mut object: Map<String, Value> = stored.unwrap_or_default();
    object.entry("name").or_insert_with(|| project.as_str().into());
    object.insert("version".to_owned(), version.into());
    let files = part.project.files_of(version);
    let mut files: Vec<&ReleaseFile> =
        files.filter(|file| refusal_in_json(judge, &part, file).is_none()).collect();
    // The sort is stable: files of one role stay in the order of their names.
    files.sort_by_key(|file| file.role());
    let links = files.iter().map(|file| link(part.stage, file, root_url, viewer));
    let links: Vec<Value> = links.collect();
    if !links.is_empty() {
        object.insert("+links".to_owned(), links.into());
    }
    object
}

/// The URL of a file. `root_url` has no slash at its end.
pub fn file_url(root_url: &str, stage: &StageName, file: &ReleaseFile) -> String {
    url(root_url, stage, file, file.filename())
}

fn url(root_url: &str, stage: &StageName, file: &ReleaseFile, filename: &str) -> String {
    format!("{root_url}/{}/+f/{}/{}", path(stage), file.directory(), encoded(filename))
}

fn link(stage: &Stage, file: &ReleaseFile, root_url: &str, viewer: View<'_>) -> Value {
    let name = stage.name();
    let sha256 = file.digest().to_string();
    let log = file.log(name);
    let told = log.iter().filter(|entry| viewer.sees_named(entry, name));
    let log: Vec<Value> = told.map(log_entry).collect();
    let mut link = json!({
        "rel": file.role().as_str(),
        "href": file_url(root_url, name, file),
        "hash_spec": format!("sha256={sha256}"),
        "hashes": {"sha256": sha256},
        "log": log,
    });
    if let Some(for_file) = file.for_file() {
        link["for_href"] = url(root_url, name, file, for_file).into();
    }
    link
}

fn log_entry(entry: &LogEntry) -> Value {
    let who = |who: &Option<UserName>| who.as_ref().map(|name| name.as_str().to_owned());
    match entry {
        LogEntry::Upload { who: by, at, target } => {
            json!({"what": "upload", "who": who(by), "when": when(*at), "dst": target.as_str()})
        }
        LogEntry::Push { who: by, at, source, target } => json!({
            "what": "push",
            "who": who(by),
            "when": when(*at),
            "src": source.as_str(),
            "dst": target.as_str(),
        }),
        LogEntry::Overwrite { at, count } => {
            json!({"what": "overwrite", "who": null, "when": when(*at), "count": count})
        }
    }
}

/// Year, month, day, hour, minute and second in UTC.
fn when(at: Timestamp) -> [i16; 6] {
    let time = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    [
        time.year(),
        time.month().into(),
        time.day().into(),
        time.hour().into(),
        time.minute().into(),
        time.second().into(),
    ]
}

/// The facts about a file, type `releasefilemeta`.
#[derive(Clone, Copy, Debug)]
pub struct FileMeta<'file> {
    /// The project.
    pub project: &'file ProjectName,
    /// The file.
    pub file: &'file ReleaseFile,
}

impl Serialize for FileMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sha256 = self.file.digest().to_string();
        let mut meta = serializer.serialize_struct("FileMeta", 6)?;
        meta.serialize_field("hash_spec", &format!("sha256={sha256}"))?;
        meta.serialize_field("hashes", &json!({"sha256": sha256}))?;
        meta.serialize_field("last_modified", &http_date(self.file.uploaded_at()))?;
        meta.serialize_field("project", self.project.as_str())?;
        meta.serialize_field("version", self.file.version())?;
        meta.serialize_field("size", &self.file.size_bytes())?;
        meta.end()
    }
}

/// `Sat, 31 Jan 2026 23:59:59 GMT`, as in `Last-Modified`.
pub fn http_date(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

impl Serialize for PushAction {
    /// Writes the list that devpi's `actionlog` has for this entry.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = match self {
            PushAction::Register { name, version, target } => {
                vec!["register", name, version, "->", target.as_str()]
            }
            PushAction::File { path } => vec!["store_releasefile", path],
            PushAction::ToxResult { path } => vec!["store_toxresult", path],
            PushAction::Docs { name, version, target } => {
                vec!["store_doczip", name, version, "->", target.as_str()]
            }
        };
        let mut list = serializer.serialize_seq(Some(1 + texts.len()))?;
        list.serialize_element(&200)?;
        for text in texts {
            list.serialize_element(text)?;
        }
        list.end()
    }
}

/// The versions of a project that a stage shows, newest first; bases are included unless `is_alone`. `None` if no
/// stage has the project.
pub fn versions<'snapshot>(
    snapshot: &'snapshot Snapshot,
    stage: &str,
    project: &str,
    is_alone: bool,
) -> Option<Vec<VersionView<'snapshot>>> {
    let order = match is_alone {
        true => ResolutionOrder::alone(snapshot, stage),
        false => ResolutionOrder::of(snapshot, stage),
    }?;
    order.project(project).map(|view: ProjectView<'_>| view.versions())
}

#[cfg(test)]
mod tests;
