//! Projects that only mirrors have, as devpi's JSON: versions with the links of their files.
//!
//! project -> the pages of the mirrors -> a [`Plan`]: the files that the policies let pass, by version -> JSON. The links are
//! devpi's own (`+f`, `+e`), which tools of devpi take apart. What upstream does not say is not there: no metadata, no history.
//!
//! A page may have as many files as its upstream likes. So all work here takes turns ([`mirrors`]), of one version only
//! its own files are looked at closely, and more than a few links are sent in portions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use mirrors::{CachedPage, StaleReason, Stream};
use pypi::policy::HiddenFiles;
use pypi::upstream::{UpstreamFile, UpstreamPage};
use pypi::{FileRefusal, Filename, Judge, ProjectName, ResolutionOrder, Stage, Version};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{PORTION_TIMEOUT, hand_over, received, sentences};
use crate::app::App;
use crate::front::body::client;
use crate::front::error::HttpError;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::simple::mirrored::{keep_one_project, marked, project_of};
use crate::protocols::python::{policy, reply};

/// How many links are made at a time, and at most sent in one piece.
const AT_ONCE: usize = 256;

/// The pages of a project that mirrors have.
struct MirrorPages {
    root_url: String,
    asked: Arc<Stage>,
    project: ProjectName,
    heard: Vec<(Arc<Stage>, Arc<CachedPage>)>,
}

/// The versions and files to show.
#[derive(Default)]
struct Plan {
    /// The versions, newest first, and where the files of each end.
    versions: Vec<(Box<str>, usize)>,
    /// The place of each file: the mirror, and the file on its page.
    files: Vec<(u32, u32)>,
    /// The files that are left out.
    hidden: HiddenFiles,
    /// Why the first of these is left out.
    refused: Option<FileRefusal>,
}

/// The pages, the plan, and whether the pages are confirmed. `None` if no mirror has the project. `wanted`: only this version.
async fn planned(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
    wanted: Option<&str>,
) -> Result<Option<(Arc<(MirrorPages, Plan)>, Option<StaleReason>)>, HttpError> {
    let told = project_of(ask, order, project).await?;
    let stale = told.stale;
    if !told.has_page {
        return Ok(None);
    }
    let (mut heard, places, turn) = told.in_plan(ask, project).await?;
    keep_one_project(order, project, &mut heard);
    if heard.iter().all(|(_, known)| known.page().is_none()) {
        return Ok(None);
    }
    let pages = MirrorPages {
        root_url: ask.root_url().to_owned(),
        asked: order.stages()[0].clone(),
        project: project.clone(),
        heard: heard.into_iter().map(|(stage, known)| (stage.clone(), known)).collect(),
    };
    let wanted = wanted.map(str::to_owned);
    let made = turn.run(move || {
        let _places = places;
        let plan = pages.plan(wanted.as_deref());
        Arc::new((pages, plan))
    });
    Ok(Some((made.await, stale)))
}

impl MirrorPages {
    fn page(&self, mirror: usize) -> Option<&UpstreamPage> {
        self.heard.get(mirror)?.1.page().map(|page| &**page)
    }

    /// The index that links a file of this mirror: the asked index, if it has a policy, which then judges downloads, too;
    /// otherwise the mirror's.
    fn linked(&self, mirror: usize) -> &Stage {
        if self.asked.config().policy.is_some() { &self.asked } else { &self.heard[mirror].0 }
    }

    fn plan(&self, wanted: Option<&str>) -> Plan {
        let Some(wanted) = wanted else { return self.plan_of(|_| true, |_| true) };
        let plan = self.plan_of(|name| may_have_version(name, wanted), |it| it.as_str() == wanted);
        match Version::parse(wanted) {
            // Perhaps the index spells it in another way.
            Ok(wanted) if plan.files.is_empty() && plan.refused.is_none() => {
                self.plan_of(|_| true, |it| it.is_same_release(&wanted))
            }
            _ => plan,
        }
    }

    /// A plan of the files whose names may be, and of the versions that are.
    fn plan_of(&self, may_be: impl Fn(&str) -> bool, is: impl Fn(&Version) -> bool) -> Plan {
        let mut plan = Plan::default();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut versions: BTreeMap<Version, Vec<(u32, u32)>> = BTreeMap::new();
        for (mirror, (stage, _)) in self.heard.iter().enumerate() {
            let Some(page) = self.page(mirror) else { continue };
            let judge = policy::judge(&self.asked, stage, &self.project);
            for (at, file) in page.files.iter().enumerate() {
                // Most files need no closer look.
                if !may_be(&file.filename) {
                    continue;
                }
                let Some(version) = version_of(file, &self.project) else { continue };
                // A file that is refused still hides farther ones with the same name.
                if !is(&version) || !seen.insert(&file.filename) {
                    continue;
                }
                match refusal(judge.as_ref(), stage, page, file) {
                    Some(refused) => {
                        plan.hidden.add(&refused);
                        plan.refused.get_or_insert(refused);
                    }
                    None => versions.entry(version).or_default().push((mirror as u32, at as u32)),
                }
            }
        }
        for (version, files) in versions.into_iter().rev() {
            plan.files.extend(files);
            plan.versions.push((version.as_str().into(), plan.files.len()));
        }
        plan
    }

    fn file(&self, (mirror, at): (u32, u32)) -> Option<&UpstreamFile> {
        self.page(mirror as usize)?.files.get(at as usize)
    }

    /// A version without its links.
    fn head(&self, version: &str, files: &[(u32, u32)]) -> Map<String, Value> {
        let mut head = Map::new();
        head.insert("name".to_owned(), self.project.as_str().into());
        head.insert("version".to_owned(), version.into());
        let said = files.iter().find_map(|place| self.file(*place)?.requires_python.as_deref());
        head.extend(said.map(|text| ("requires_python".to_owned(), text.into())));
        head
    }

    fn link(&self, place: (u32, u32)) -> Option<Value> {
        let file = self.file(place)?;
        let holder = self.linked(place.0 as usize).name();
        let href = format!("{}/{holder}/{}", self.root_url, file.devpi_link());
        Some(link(file, href))
    }

    /// A version with its links.
    fn version(&self, plan: &Plan, at: usize) -> (String, Value) {
        let (version, files) = plan.version(at);
        let mut data = self.head(version, files);
        let links: Vec<Value> = files.iter().filter_map(|place| self.link(*place)).collect();
        data.insert("+links".to_owned(), links.into());
        (version.to_owned(), data.into())
    }

    /// Renders the plan's files from `from` on as text; returns that, and where the next portion begins.
    fn portion(&self, plan: &Plan, from: usize, is_whole: bool) -> (String, usize) {
        let to = plan.files.len().min(from + AT_ONCE);
        let mut text = String::new();
        for at in from..to {
            let version_at = plan.versions.partition_point(|(_, end)| *end <= at);
            let (version, files) = plan.version(version_at);
            let end = plan.versions[version_at].1;
            if at + files.len() == end {
                if is_whole {
                    let separator = if at == 0 { "" } else { "," };
                    text.push_str(&format!("{separator}\n{}: ", Value::from(version)));
                }
                let head = Value::from(self.head(version, files)).to_string();
                text.push_str(head.strip_suffix('}').unwrap_or_default());
                text.push_str(",\"+links\":[");
            } else {
                text.push_str(",\n");
            }
            text.push_str(&self.link(plan.files[at]).unwrap_or_default().to_string());
            if at + 1 == end {
                text.push_str("]}");
            }
        }
        (text, to)
    }
}

impl Plan {
    fn version(&self, at: usize) -> (&str, &[(u32, u32)]) {
        let (version, end) = &self.versions[at];
        let start = at.checked_sub(1).map_or(0, |before| self.versions[before].1);
        (version, &self.files[start..*end])
    }
}

fn version_of(file: &UpstreamFile, project: &ProjectName) -> Option<Version> {
    Filename::of_upstream(&file.filename).ok()?.split(Some(project))?.version
}

/// Whether a file with this name may belong to the version: the name contains it, except for the `+`, which wheels write
/// differently.
fn may_have_version(filename: &str, wanted: &str) -> bool {
    wanted.split('+').all(|part| filename.contains(part))
}

/// Why a file is left out; an upstream's own quarantine counts without a policy, too, as on pages.
fn refusal(
    judge: Option<&Judge<'_>>,
    mirror: &Stage,
    page: &UpstreamPage,
    file: &UpstreamFile,
) -> Option<FileRefusal> {
    let quarantine = policy::quarantine_of_upstream(mirror, page);
    quarantine.or_else(|| judge?.refusal_of_upstream(mirror.name(), file))
}

fn link(file: &UpstreamFile, href: String) -> Value {
    let mut link = json!({"rel": "releasefile", "href": href, "hashes": {}, "log": []});
    for (name, digits) in &file.hashes {
        link["hashes"][&**name] = (**digits).into();
    }
    let spec = file.sha256().map(|digits| format!("sha256={digits}"));
    link["hash_spec"] = spec.unwrap_or_default().into();
    if let Some(reason) = &file.yanked {
        link["yanked"] = (**reason).into();
    }
    link
}

/// The JSON of the whole project, or of the only version of the plan.
async fn answer(
    ask: &Ask,
    made: Arc<(MirrorPages, Plan)>,
    is_whole: bool,
) -> Result<Response, HttpError> {
    let kind = kind(is_whole);
    let (pages, plan) = &*made;
    let said = if is_whole { sentences(&plan.hidden) } else { String::new() };
    if plan.files.len() > AT_ONCE {
        let client = client(&ask.app, &ask.head).key();
        let page_bytes = pages.heard.iter().map(|(_, known)| known.memory_bytes()).sum();
        let place = ask.app.python.mirrors.plans.stream(client, page_bytes).ok_or_else(|| {
            HttpError::unavailable("too many large projects of mirrors are being sent", 2)
        })?;
        return Ok(streamed(ask.app.clone(), made, place, is_whole, said));
    }
    let versions = (0..plan.versions.len()).map(|at| pages.version(plan, at));
    let data: Value = match is_whole {
        true => versions.collect::<Map<_, _>>().into(),
        false => versions.map(|(_, data)| data).next().unwrap_or_default(),
    };
    let said = Some(&*said).filter(|said| !said.is_empty());
    Ok(reply::result(StatusCode::OK, kind, data, said))
}

fn kind(is_whole: bool) -> &'static str {
    if is_whole { "projectconfig" } else { "versiondata" }
}

/// The JSON in portions; `place` is kept until the last one has been taken.
fn streamed(
    app: Arc<App>,
    made: Arc<(MirrorPages, Plan)>,
    place: Stream,
    is_whole: bool,
    said: String,
) -> Response {
    let (sender, receiver) = mpsc::channel::<std::io::Result<Bytes>>(1);
    tokio::spawn(async move {
        let sent = send(&app, made, is_whole, &said, &sender).await;
        drop(place);
        if let Err(error) = sent {
            // The error makes sure that half an answer does not look whole. A client that has left misses nothing.
            _ = sender.send(Err(error)).await;
        }
    });
    let mut response = Body::from_stream(received(receiver)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply::JSON));
    response
}

/// Sends the JSON in portions.
async fn send(
    app: &App,
    made: Arc<(MirrorPages, Plan)>,
    is_whole: bool,
    said: &str,
    sender: &mpsc::Sender<std::io::Result<Bytes>>,
) -> std::io::Result<()> {
    let mut text = format!("{{\"result\": {}", if is_whole { "{" } else { "" });
    let mut patience = PORTION_TIMEOUT;
    let mut from = 0;
    while from < made.1.files.len() {
        let shared = made.clone();
        // A slow client keeps no turn.
        let turn = app.python.mirrors.plans.portion().await;
        let making = turn.run(move || shared.0.portion(&shared.1, from, is_whole));
        let (portion, next) = making.await;
        from = next;
        text.push_str(&portion);
        hand_over(sender, Bytes::from(std::mem::take(&mut text)), &mut patience).await?;
    }
    let message = match said {
        "" => String::new(),
        said => format!(", \"message\": {}", Value::from(said)),
    };
    let end = if is_whole { "}" } else { "" };
    let last = format!("{end}, \"type\": \"{}\"{message}}}\n", kind(is_whole));
    hand_over(sender, Bytes::from(last), &mut patience).await
}

/// `GET /{user}/{index}/{project}` of a project that only mirrors may have; `None` if no mirror has it.
pub(super) async fn project(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
) -> Result<Option<Response>, HttpError> {
    let Some((made, stale)) = planned(ask, order, project, None).await? else { return Ok(None) };
    Ok(Some(marked(answer(ask, made, true).await?, stale)))
}

/// `GET /{user}/{index}/{project}/{version}` of such a project.
pub(super) async fn release(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
    version: &str,
) -> Result<Option<Response>, HttpError> {
    let Some((made, stale)) = planned(ask, order, project, Some(version)).await? else {
        return Ok(None);
    };
    if made.1.files.is_empty() {
        let Some(refused) = &made.1.refused else { return Ok(None) };
        return Ok(Some(policy::refused(ask, &format!("{project} {version}"), refused).await));
    }
    Ok(Some(marked(answer(ask, made, false).await?, stale)))
}
