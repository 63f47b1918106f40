//! `/{user}/{index}` for people: its bases, who may do what, its projects, how to point a client at it, and the last releases.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use account::{Acl, Portion, Principal};
use askama::Template;
use axum::response::Response;
use jiff::Timestamp;
use pypi::devpi::View;
use pypi::policy::{shown_versions, shows_any};
use pypi::{
    MirrorMerge, ProjectName, ReleaseFile, ResolutionOrder, Stage, StageConfig, UploadSettings,
    Version,
};

use super::policies;
use super::upstream::Upstream;
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::policy;
use crate::protocols::python::rights::unreadable;

/// Projects on one page, and releases that are shown.
const PAGE: usize = 100;
const RELEASES: usize = 10;

/// Projects whose files a policy may have to judge to say how many are hidden.
const JUDGED_MAX: usize = 1_000;

/// Mirrors that have a chart: an index may inherit from many.
const UPSTREAMS: usize = 10;

#[derive(Template)]
#[template(path = "index.html")]
struct IndexPage<'a> {
    site: Site,
    user: &'a str,
    name: &'a str,
    path: String,
    title: &'a str,
    description: &'a str,
    mirror_of: Option<String>,
    is_mirror: bool,
    /// How it goes with its own upstream.
    upstream: Option<Upstream>,
    may_read: bool,
    may_modify: bool,
    /// Whether clients have to say who they are.
    is_private: bool,
    bases: Vec<Base<'a>>,
    /// Whether the reader may read the index itself, but not all of its bases.
    is_closed_below: bool,
    facts: Vec<Fact>,
    query: String,
    projects: Vec<Line<'a>>,
    /// The query of the next page.
    next: Option<String>,
    is_first: bool,
    /// How many of its projects a policy hides, in words.
    hidden: Option<String>,
    releases: Vec<Release<'a>>,
}

impl IndexPage<'_> {
    /// Its name without the user's.
    fn own_name(&self) -> &str {
        self.name.split_once('/').map_or(self.name, |(_, index)| index)
    }
}

/// An index that this one inherits from.
struct Base<'a> {
    name: &'a str,
    path: String,
    title: &'a str,
    /// Named by the index itself, by one of its bases, or a mirror.
    how: &'static str,
    /// What its policy does to the files that it has, in words.
    policy: Vec<String>,
    exceptions: Vec<String>,
    upstream: Option<Upstream>,
}

/// A setting in words.
struct Fact {
    what: &'static str,
    is: String,
}

/// A line of the list of projects.
struct Line<'a> {
    name: &'a str,
    version: String,
    changed_at: Option<Time>,
}

/// A release to which something was added.
struct Release<'a> {
    project: &'a str,
    version: &'a str,
    path: String,
    files: usize,
    /// Its newest file: when it came, and who brought it.
    at: Time,
    who: Option<&'a str>,
}

impl Release<'_> {
    fn file_count(&self) -> String {
        display::count(self.files, "file", "files")
    }
}

/// `GET /{user}/{index}`, as a page.
pub(crate) async fn show_index(ask: &Ask, stage: &str) -> Result<Response, ApiError> {
    let missing = || HttpError::unknown_stage(stage);
    let found = ask.stored.index.stage(stage).ok_or_else(missing)?;
    let principal = ask.principal().await?;
    // A token may be limited to some of the projects.
    let may_read = found.may_read(&principal, Portion::Whole);
    if !may_read && !found.may_modify(&principal) {
        return Err(unreadable(&principal, found, Portion::Whole).into());
    }
    let view = ask.view(&principal);
    let order = ResolutionOrder::of(&ask.stored.index, stage).ok_or_else(missing)?;
    let config = view.config(found);
    let query = ask.parameter("q").unwrap_or_default();
    let after = ask.parameter("after");
    let site = ask.site();
    // Looking at all projects of a large index takes a while: other tasks of this thread move to another.
    let (projects, next, releases, hidden) = tokio::task::block_in_place(|| {
        if !may_read {
            return (Vec::new(), None, Vec::new(), None);
        }
        let (projects, next) = projects(found, &query, after.as_deref());
        (projects, next, releases(found, &principal), hidden_projects(found))
    });
    let page = IndexPage {
        user: found.name().user(),
        name: found.name().as_str(),
        path: in_path(found.name().as_str()),
        title: config.title.as_deref().unwrap_or_default(),
        description: config.description.as_deref().unwrap_or_default(),
        mirror_of: config.mirror().and_then(|mirror| mirror.shown_url()),
        is_mirror: config.is_mirror(),
        upstream: Upstream::of(&ask.app, found, found.may_modify(&principal)),
        may_read,
        may_modify: found.may_modify(&principal),
        is_private: !found.may_read(&Principal::Anonymous, Portion::Whole),
        bases: bases(ask, &order, view),
        is_closed_below: may_read && !order.admits(&principal, Portion::Whole),
        facts: facts(&config, found.config()),
        is_first: after.is_none() && query.is_empty(),
        query: query.into_owned(),
        projects,
        next,
        releases,
        hidden: hidden
            .filter(|&hidden| hidden > 0)
            .map(|hidden| display::count(hidden, "project is", "projects are")),
        site,
    };
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

/// The indexes that the order asks after its first, as far as the viewer may see them.
fn bases<'a>(ask: &Ask, order: &ResolutionOrder<'a>, view: View<'_>) -> Vec<Base<'a>> {
    let Some((own, others)) = order.stages().split_first() else { return Vec::new() };
    let (now, mut said) = (Timestamp::now(), 0);
    let mut upstream = |base: &Stage| {
        let upstream = (said < UPSTREAMS)
            .then(|| Upstream::of(&ask.app, base, base.may_modify(view.principal)))
            .flatten();
        said += usize::from(upstream.is_some());
        upstream
    };
    let seen = others.iter().filter(|base| view.sees(base));
    let named = seen.map(|base| {
        let config = base.config();
        let policy = config.policy.as_deref();
        Base {
            name: base.name().as_str(),
            path: in_path(base.name().as_str()),
            title: config.title.as_deref().unwrap_or_default(),
            how: match own.config().bases().contains(base.name()) {
                _ if config.is_mirror() => "mirror, asked last",
                true => "named by this index",
                false => "through a base",
            },
            policy: policy.map(policies::rules).unwrap_or_default(),
            exceptions: policy.map(|it| policies::exceptions(it, now)).unwrap_or_default(),
            upstream: upstream(base),
        }
    });
    named.collect()
}

/// A page of the index's own projects, and the name that the next page follows.
fn projects<'a>(
    stage: &'a Arc<Stage>,
    query: &str,
    after: Option<&str>,
) -> (Vec<Line<'a>>, Option<String>) {
    let words = [query.trim().to_lowercase().replace(['_', '.'], "-")];
    let (now, after) = (Timestamp::now(), after.unwrap_or_default());
    let wanted: Box<dyn Iterator<Item = &str>> = match words[0].is_empty() {
        true => Box::new(stage.names_from(after)),
        false => Box::new(stage.names_with(&words)),
    };
    let mut found = wanted.filter(|name| *name > after).filter_map(|name| {
        let (name, project) = stage.project_entry(name)?;
        Some((name, project, shown_versions(stage, name, project, now)?))
    });
    let lines = found.by_ref().take(PAGE).map(|(name, project, versions)| {
        let parsed = versions.iter().filter_map(|text| Version::parse(text).ok());
        let files = project.release_files().filter(|file| versions.contains(&file.version()));
        Line {
            name: name.as_str(),
            version: Version::latest(parsed).map(String::from).unwrap_or_default(),
            changed_at: files.map(|file| file.uploaded_at()).max().map(Time),
        }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let next = found.next().and_then(|_| {
        let last = lines.last()?.name;
        let mut next = form_urlencoded::Serializer::new(String::new());
        if !query.is_empty() {
            next.append_pair("q", query);
        }
        Some(next.append_pair("after", last).finish())
    });
    (lines, next)
}

/// How many of its projects a policy hides, or their owner; `None` if more than [`JUDGED_MAX`] would have to be looked at.
fn hidden_projects(stage: &Arc<Stage>) -> Option<usize> {
    let now = Timestamp::now();
    let is_hidden = |name: &&str| !shows_any(stage, name, now);
    if stage.config().policy.is_none() {
        // Only its owner hides anything.
        return Some(stage.quarantined_names().map(|name| name.as_str()).filter(is_hidden).count());
    }
    let is_bounded = stage.names().nth(JUDGED_MAX).is_none();
    is_bounded.then(|| stage.names().filter(is_hidden).count())
}

/// The releases with the files that came last into the projects that changed last.
fn releases<'a>(stage: &'a Stage, principal: &Principal) -> Vec<Release<'a>> {
    let readable = stage
        .latest_projects()
        .filter(|(name, _)| stage.may_read(principal, Portion::Project(name.as_str())))
        .take(RELEASES);
    let mut files: Vec<(&ProjectName, &ReleaseFile)> = readable
        .flat_map(|(name, project)| {
            let judge = policy::judge(stage, stage, name);
            let files = project.release_files().map(move |file| (name, file));
            files.filter(move |(_, file)| {
                let refused = judge.as_ref().and_then(|it| it.refusal_of_own(stage.name(), file));
                refused.is_none() && !project.is_quarantined()
            })
        })
        .collect();
    files.sort_unstable_by_key(|(_, file)| Reverse((file.uploaded_at(), file.serial())));
    let mut releases: Vec<Release<'a>> = Vec::new();
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for (name, file) in files {
        let (project, version) = (name.as_str(), file.version());
        if let Some(at) = known.get(&(project, version)) {
            releases[*at].files += 1;
        } else if releases.len() < RELEASES {
            known.insert((project, version), releases.len());
            let (at, who) = (Time(file.uploaded_at()), file.brought_by());
            releases.push(Release { project, version, path: in_path(version), files: 1, at, who });
        }
    }
    releases
}

/// Rights and settings as the reader sees them, in words. `whole`: all of them.
fn facts(config: &StageConfig, whole: &StageConfig) -> Vec<Fact> {
    let mut facts = vec![Fact { what: "Read by", is: display::people(&config.acl_read, false) }];
    let mut add = |what, is: String| facts.push(Fact { what, is });
    if let Some(upload) = config.upload() {
        let people = |shown: Acl, all: Option<Acl>| {
            let is_cut = all.is_some_and(|all| all.entries().len() > shown.entries().len());
            display::people(&shown, is_cut)
        };
        let uploaders = whole.upload().map(|it| it.acl_upload.clone());
        add("Uploads by", people(upload.acl_upload.clone(), uploaders));
        for publisher in &upload.trusted_publishers {
            add("Uploads by CI jobs", publisher.to_string());
        }
        let testers = whole.upload().map(UploadSettings::tox_result_uploaders);
        add("Test results by", people(upload.tox_result_uploaders(), testers));
        add(
            "Files",
            match config.volatile {
                true => "can be replaced and removed (volatile)".to_owned(),
                false => "stay as they are: a name is given once (not volatile)".to_owned(),
            },
        );
        if !upload.bases.is_empty() {
            let listed: Vec<&str> = upload.mirror_whitelist.iter().map(|name| &**name).collect();
            let is = match listed.as_slice() {
                [] => "are not asked for a project that this index or a base has".to_owned(),
                ["*"] => "are asked for every project, also for those that are here".to_owned(),
                some => format!("are asked, of those that are here, for {} only", some.join(", ")),
            };
            add("Mirrors", is);
        }
        if !upload.base_pins.is_empty() {
            let pins = upload.base_pins.iter();
            let said = pins.map(|pin| format!("{} from {} alone", pin.projects, pin.base));
            add("Names", said.collect::<Vec<_>>().join("; "));
        }
        match upload.mirror_merge {
            None => {}
            Some(MirrorMerge::All) => add(
                "Several mirrors",
                "count together, whether or not they have the same project".to_owned(),
            ),
            Some(MirrorMerge::Connected) => add(
                "Several mirrors",
                "count together only if their pages say that they have the same project".to_owned(),
            ),
        }
        for (what, places) in [
            ("Tracks", &upload.project_tracks),
            ("Also elsewhere", &upload.project_alternate_locations),
        ] {
            let said = places.iter().map(|place| format!("{} at {}", place.project, place.url));
            if !places.is_empty() {
                add(what, said.collect::<Vec<_>>().join("; "));
            }
        }
        let kept = match (upload.retention_versions, upload.retention_days) {
            (None, None) => None,
            (Some(versions), None) => Some(format!("the newest {versions} versions are kept")),
            (None, Some(days)) => Some(format!("versions are kept for {days} days")),
            (Some(versions), Some(days)) => {
                Some(format!("the newest {versions} versions are kept, and all for {days} days"))
            }
        };
        if let Some(kept) = kept {
            add("Retention", kept);
        }
    }
    if let Some(policy) = &config.policy {
        let said = policies::rules(policy);
        if !said.is_empty() {
            add("Policy", said.join("; "));
        }
        for exception in policies::exceptions(policy, Timestamp::now()) {
            add("Exception", exception);
        }
    }
    if let Some(mirror) = config.mirror() {
        if let Some(seconds) = mirror.mirror_cache_expiry {
            add("Pages", format!("are asked for again after {seconds} s"));
        }
        if mirror.mirror_offline == Some(true) {
            add("Upstream", "is not asked: what is known of it is served".to_owned());
        }
        if mirror.mirror_use_external_urls == Some(true) {
            add("Files", "are not kept here: clients are sent to their own place".to_owned());
        }
    }
    facts
}
