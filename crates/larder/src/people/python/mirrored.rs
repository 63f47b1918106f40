//! `/{user}/{index}/{project}` and `…/{version}`, for people, where only mirrors have the project.
//!
//! the mirrors' pages -> their files, by version, without those that a policy refuses -> the version that is shown -> its
//! metadata, which upstream keeps beside a wheel -> the page of a project

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use account::Principal;
use axum::response::Response;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use mirrors::FileAnswer;
use pypi::upstream::{Locations, UpstreamFile};
use pypi::{
    Filename, FromUpstream, Hidden, Judge, Metadata, ProjectName, Refused as PolicyRefused,
    ResolutionOrder, Stage, Version, of_one_project,
};
use record::Digest;

use super::description::Described;
use super::project_page::{
    FILES, File, Origin, ProjectPage, RequiredBy, Status, VERSIONS, Version as Line, kind, own_name,
};
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, Keeping};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::policy;
use crate::protocols::python::refused::Refused;
use crate::protocols::python::simple::mirrored::{Heard, marked, project_of};
use crate::published::finished_pages::MadeOf;

/// Longer metadata is not read: uploads may have as much.
const METADATA_BYTES_MAX: u64 = 1 << 20;

/// The page does not wait longer for it. The mirror keeps it for the next reader.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(3);

/// The page, or 404 if the upstreams have no such project or version.
pub(super) async fn show(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    name: &ProjectName,
    wanted: Option<&str>,
) -> Result<Response, Refused> {
    let stage = own_name(order);
    let missing = || HttpError::not_found(format!("{stage} has no project `{name}`"));
    let told = project_of(ask, order, name).await?;
    if !told.has_page {
        return Err(missing().into());
    }
    let principal = ask.principal().await?;
    let (site, stale) = (ask.site(), told.stale);
    let required_by = ask.app.python.required_by.snapshot_full();
    let required_by = required_by.map_or_else(Weak::new, |index| Arc::downgrade(&index));
    let made_of = MadeOf::Mirrored(ask.stored.serial, required_by, told.versions.clone());
    let is_kept = matches!(principal, Principal::Anonymous) && stale.is_none();
    let keeping = Keeping::of(&ask.head, &site, made_of).filter(|_| is_kept);
    let kept = keeping.as_ref().and_then(|it| it.find(&ask.app, &ask.head, Audience::Reader));
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let (heard, turn) = told.in_use(ask, name).await?;
    let most = if ask.has_flag("versions") { usize::MAX } else { VERSIONS };
    let found = tokio::task::block_in_place(|| Listing::of(order, name, &heard, wanted, most));
    // The pages may be large, and upstream may take long to give the metadata.
    drop((heard, turn));
    let mut found = match found {
        Found::Listing(found) => *found,
        Found::Refused(refused, version) => {
            return Ok(policy::refused(ask, &format!("{name} {version}"), &refused).await);
        }
        Found::NoVersion(wanted) => {
            let text = format!("{stage} has no version `{wanted}` of {name}");
            return Err(HttpError::not_found(text).into());
        }
        Found::Nothing => return Err(missing().into()),
    };
    let described = found.described(ask, order, name, &principal).await;
    let required_by = RequiredBy::of(ask, &principal, name);
    let is_judged = found.is_judged || required_by.is_judged;
    let making = async {
        let more_files = found.files.len().saturating_sub(FILES);
        found.files.truncate(FILES);
        let versions = std::mem::take(&mut found.lines);
        let page = ProjectPage {
            stage,
            path: in_path(stage),
            name: name.as_str(),
            version: &found.version,
            is_release: wanted.is_some(),
            is_prerelease: Version::parse(&found.version).is_ok_and(|it| it.is_prerelease()),
            newest: found.newest.clone().filter(|newest| *newest != found.version),
            yanked: found.yanked.clone(),
            status: found.status.as_ref().and_then(|(marker, reason)| Status::of(marker, reason)),
            described,
            files: found.files.iter().map(|it| it.shown(&found, stage, site.prefix())).collect(),
            more_files,
            hidden: Vec::new(),
            quarantined_in: Vec::new(),
            held_back: found.hidden.sentences().collect(),
            warned: Vec::new(),
            documentation: None,
            others: Vec::new(),
            version_path: in_path(&found.version),
            all_versions: Some(found.count).filter(|all| wanted.is_none() && *all > most),
            versions,
            origins: found.origins(),
            required_by,
            is_managed: false,
            asked_mirrors: Vec::new(),
            blocked_mirrors: Vec::new(),
            locations: found.locations.clone(),
            site,
        };
        // With a policy the page depends on the time.
        let page = match keeping.filter(|_| !is_judged) {
            Some(keeping) => keeping.send(&ask.app, &page, &ask.head, Audience::Reader).await,
            None => page::send(&page, &ask.head, Audience::Reader).await,
        };
        Ok(marked(page, stale))
    };
    ask.in_turn(making).await
}

/// What the upstreams' pages say.
enum Found {
    Listing(Box<Listing>),
    /// A policy refuses all files of this version.
    Refused(PolicyRefused, String),
    NoVersion(String),
    Nothing,
}

/// A file of a version, and the mirror that has it.
#[derive(Clone)]
struct Listed {
    mirror: Arc<Stage>,
    file: UpstreamFile,
}

/// The project, as the page shows it.
struct Listing {
    /// The version that is shown; empty if there is none.
    version: String,
    /// The version that installers take.
    newest: Option<String>,
    /// Why the shown version was yanked, if all its files were.
    yanked: Option<String>,
    files: Vec<Listed>,
    /// The latest versions first.
    lines: Vec<Line>,
    /// How many there are.
    count: usize,
    hidden: Hidden,
    is_judged: bool,
    /// Whether links lead below the index that was asked, so that its policy counts for them.
    is_below_asked: bool,
    status: Option<(String, String)>,
    locations: Locations,
    mirrors: Vec<Arc<Stage>>,
}

/// The files of one version.
#[derive(Default)]
struct Release<'page> {
    files: Vec<(&'page Arc<Stage>, &'page UpstreamFile)>,
    refused: Option<PolicyRefused>,
}

impl Release<'_> {
    fn is_yanked(&self) -> bool {
        self.files.iter().all(|(_, file)| file.yanked.is_some())
    }

    fn line(&self, version: &Version, shown: &Version) -> Line {
        let times = self.files.iter().filter_map(|(_, file)| uploaded_at(file));
        Line {
            version: version.to_string(),
            path: in_path(version.as_str()),
            is_shown: version == shown,
            is_prerelease: version.is_prerelease(),
            is_yanked: self.is_yanked(),
            files: display::count(self.files.len(), "file", "files"),
            at: times.max().map(Time),
            stage: self.files.first().map_or("", |(stage, _)| stage.name().as_str()).to_owned(),
            also_in: Vec::new(),
        }
    }
}

fn uploaded_at(file: &UpstreamFile) -> Option<Timestamp> {
    let said = file.upload_time.as_deref().and_then(|time| time.parse().ok());
    said.or(file.first_seen)
}

impl Listing {
    /// With `wanted` of that version, else of the newest one; with at most so many versions.
    fn of(
        order: &ResolutionOrder<'_>,
        name: &ProjectName,
        heard: &[Heard<'_>],
        wanted: Option<&str>,
        versions_max: usize,
    ) -> Found {
        let upstream = heard
            .iter()
            .filter_map(|(mirror, known)| Some(FromUpstream { mirror, page: known.page()? }));
        let (upstream, _) = of_one_project(order, name, upstream.collect());
        let Some(nearest) = upstream.first() else { return Found::Nothing };
        let judge = Judge::of(order, name, Timestamp::now());
        let (mut seen, mut hidden) = (HashSet::new(), Hidden::default());
        let mut releases: BTreeMap<Version, Release<'_>> = BTreeMap::new();
        for FromUpstream { mirror, page } in &upstream {
            let quarantine = policy::quarantine_of_upstream(mirror, page);
            for file in &page.files {
                let filename = Filename::parse(&file.filename).ok();
                let version = filename.as_ref().and_then(|it| it.split(Some(name))?.version);
                // A nearer file with this name counts.
                let Some(version) = version.filter(|_| seen.insert(&*file.filename)) else {
                    continue;
                };
                let judged = || judge.as_ref()?.refusal_of_upstream(mirror.name(), file);
                let release = releases.entry(version).or_default();
                match quarantine.clone().or_else(judged) {
                    None => release.files.push((mirror, file)),
                    Some(refused) => {
                        hidden.add(&refused);
                        release.refused = Some(refused);
                    }
                }
            }
        }
        if let Some(wanted) = wanted {
            let Some(version) = meant(&releases, wanted) else {
                return Found::NoVersion(wanted.to_owned());
            };
            let release = &releases[version];
            if let Some(refused) = release.refused.clone().filter(|_| release.files.is_empty()) {
                return Found::Refused(refused, version.to_string());
            }
        }
        releases.retain(|_, release| !release.files.is_empty());
        let newest = newest(&releases);
        let shown = wanted.and_then(|wanted| meant(&releases, wanted)).or(newest);
        let release = shown.map(|version| &releases[version]);
        let files = release.map(|release| &release.files[..]).unwrap_or_default().iter();
        let yanked = release.filter(|release| release.is_yanked()).map(|release| {
            let reasons = release.files.iter().filter_map(|(_, file)| file.yanked.as_deref());
            reasons.max().unwrap_or_default().to_owned()
        });
        let lines = match (wanted, shown) {
            (None, Some(shown)) => {
                let latest = releases.iter().rev().take(versions_max);
                latest.map(|(version, release)| release.line(version, shown)).collect()
            }
            _ => Vec::new(),
        };
        Found::Listing(Box::new(Listing {
            version: shown.map(Version::to_string).unwrap_or_default(),
            newest: newest.map(Version::to_string),
            yanked,
            files: files
                .map(|(mirror, file)| Listed { mirror: (*mirror).clone(), file: (*file).clone() })
                .collect(),
            lines,
            count: releases.len(),
            hidden,
            is_judged: judge.is_some(),
            is_below_asked: judge.as_ref().is_some_and(Judge::is_of_asked),
            status: nearest.page.status.as_ref().map(|(marker, reason)| {
                (marker.as_str().to_owned(), reason.as_deref().unwrap_or_default().to_owned())
            }),
            locations: nearest.page.locations.clone(),
            mirrors: upstream.iter().map(|it| it.mirror.clone()).collect(),
        }))
    }

    /// What the shown version says of itself, in the metadata beside a wheel. A page is shown without it if it cannot be had.
    async fn described(
        &self,
        ask: &Ask,
        order: &ResolutionOrder<'_>,
        name: &ProjectName,
        principal: &Principal,
    ) -> Described {
        let listed = self.files.iter().find(|listed| listed.file.core_metadata.is_some());
        let Some(listed) = listed else { return Described::default() };
        let reading = tokio::time::timeout(METADATA_WAIT_MAX, metadata(ask, name, listed));
        let bytes = match reading.await {
            Ok(Some(bytes)) => bytes,
            _ => return Described::default(),
        };
        let Ok(metadata) = Metadata::read(&bytes) else { return Described::default() };
        let digest = Digest::of(&bytes);
        Described::by(&metadata, digest, order, principal, own_name(order)).await
    }

    /// The mirrors, with how many versions there are.
    fn origins(&self) -> Vec<Origin<'_>> {
        let mirrors = self.mirrors.iter().map(|mirror| Origin {
            stage: mirror.name().as_str(),
            path: in_path(mirror.name().as_str()),
            versions: "a mirror".to_owned(),
        });
        mirrors.collect()
    }
}

/// The bytes of a file's metadata.
async fn metadata(ask: &Ask, name: &ProjectName, listed: &Listed) -> Option<Vec<u8>> {
    let mirrors = &ask.app.python.mirrors;
    let mirror = mirrors.of(&listed.mirror)?;
    let answer = mirrors.listed_file(&mirror, name, &listed.file, true, false).await;
    let Ok(FileAnswer::File(file)) = answer else { return None };
    let mut bytes = Vec::new();
    let mut pieces = Box::pin(file.body.stream(0, file.size_bytes, || 64 << 10));
    while let Some(piece) = pieces.try_next().await.ok()? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > METADATA_BYTES_MAX {
            return None;
        }
    }
    Some(bytes)
}

/// The version that is written like this, or equal to it (PEP 440).
fn meant<'a>(releases: &'a BTreeMap<Version, Release<'_>>, wanted: &str) -> Option<&'a Version> {
    let parsed = Version::parse(wanted).ok();
    let is_equal = |it: &&Version| parsed.as_ref().is_some_and(|wanted| it.is_same_release(wanted));
    let mut versions = releases.keys();
    versions.clone().find(|it| it.as_str() == wanted).or_else(|| versions.find(is_equal))
}

/// The version that installers take: the highest that is neither yanked nor a pre-release, if there is one.
fn newest<'a>(releases: &'a BTreeMap<Version, Release<'_>>) -> Option<&'a Version> {
    let latest = || releases.iter().rev();
    let mut good = latest().filter(|(_, release)| !release.is_yanked());
    let stable = good.clone().find(|(version, _)| !version.is_prerelease());
    stable.or_else(|| good.next()).or_else(|| latest().next()).map(|(version, _)| version)
}

impl Listed {
    /// As the page of the index `asked` shows it.
    fn shown<'a>(&'a self, listing: &Listing, asked: &str, prefix: &str) -> File<'a> {
        let file = &self.file;
        let stage = self.mirror.name().as_str();
        let below = if listing.is_below_asked { asked } else { stage };
        let url = format!("{prefix}/{}/{}", in_path(below), file.link());
        let sha256 = file.hashes.iter().find(|(algorithm, _)| **algorithm == *"sha256");
        File {
            name: &file.filename,
            kind: kind(&file.filename),
            size: file.size_bytes.map(display::size).unwrap_or_default(),
            at: uploaded_at(file).map(Time),
            who: None,
            sha256: sha256.map(|(_, digits)| digits.to_string()).unwrap_or_default(),
            requires_python: file.requires_python.as_deref().unwrap_or_default(),
            metadata: file.core_metadata.as_ref().map(|_| format!("{url}.metadata")),
            contents: None,
            provenance: None,
            yanked: file.yanked.as_deref(),
            stage,
            tests: None,
            url,
        }
    }
}
