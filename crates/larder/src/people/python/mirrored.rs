//! `/{user}/{index}/{project}` and `…/{version}`, for people, where only mirrors have the project.
//!
//! the mirrors' pages -> their files, by version, without those that a policy refuses -> the version that is shown -> its
//! metadata, which upstream keeps beside a wheel -> the page of a project

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use account::Principal;
use axum::response::Response;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use mirrors::FileAnswer;
use pypi::upstream::{Locations, UpstreamFile};
use pypi::{
    FileRefusal, HiddenFiles, Judge, Metadata, ProjectName, ResolutionOrder, Stage,
    UpstreamProject, Version, by_version, installed_by_default, of_one_project,
};
use record::Digest;
use resources::turns::ThreadShare;

use super::description::ReleaseMetadata;
use super::downloads::RecentDownloads;
use super::file_query::{Choices, FileQuery, Span};
use super::project_page::{
    FILES, File, Origin, ProjectPage, RequiredBy, Status, VERSIONS, VERSIONS_OF_PART,
    Version as Line, kind, own_name,
};
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, PageCacheKey, Site};
use crate::front::turns;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::policy;
use crate::protocols::python::simple::mirrored::{MirrorPage, marked, project_of};
use crate::published::finished_pages::MadeOf;

/// Longer metadata is not read: uploads may have as much.
const METADATA_BYTES_MAX: u64 = 1 << 20;

/// The page does not wait longer for it. The mirror keeps it for the next reader.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(3);

/// So few pages are made at once, because each has metadata and lists of the upstream's choice; so many others wait.
const MADE_AT_ONCE: usize = 8;
const WAITING_MAX: usize = 256;

static MAKING: LazyLock<ThreadShare> =
    LazyLock::new(|| ThreadShare::new(MADE_AT_ONCE, WAITING_MAX));

/// The page, or 404 if the upstreams have no such project or version.
pub(super) async fn show(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    name: &ProjectName,
    wanted: Option<&str>,
) -> Result<Response, ApiError> {
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
    let keeping = PageCacheKey::of(&ask.head, &site, made_of).filter(|_| is_kept);
    let kept = keeping.as_ref().and_then(|it| it.find(&ask.app, &ask.head, Audience::Reader));
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let making = async {
        let (heard, turn) = told.in_use(ask, name).await?;
        let found = ProjectListing::of(order, name, &heard, wanted, &FileQuery::of(ask));
        // The pages may be large, and upstream may take long to give the metadata.
        drop((heard, turn));
        let found = match found {
            ProjectLookup::Listing(found) => *found,
            ProjectLookup::Refused(refused, version) => {
                return Ok(policy::refused(ask, &format!("{name} {version}"), &refused).await);
            }
            ProjectLookup::NoVersion(wanted) => {
                let text = format!("{stage} has no version `{wanted}` of {name}");
                return Err(HttpError::not_found(text).into());
            }
            ProjectLookup::Nothing => return Err(missing().into()),
        };
        let described = found.described(ask, order, name, &principal).await;
        let required_by = RequiredBy::of(ask, &principal, name);
        let is_judged = found.is_judged || required_by.is_judged;
        let page = found.page(site, name, order, wanted.is_some(), described, required_by);
        let counts_downloads = ask.app.python.downloads.kept().is_some();
        let mirrors = order.mirrors_of(name.as_str()).asked;
        let lately = match wanted {
            None => {
                RecentDownloads::of(ask, mirrors.iter().map(|mirror| mirror.name()), name).await
            }
            Some(_) => None,
        };
        let page = ProjectPage { counts_downloads, lately, ..page };
        // With a policy the page depends on the time.
        let page = match keeping.filter(|_| !is_judged) {
            Some(keeping) => keeping.send(&ask.app, &page, &ask.head, Audience::Reader).await,
            None => page::send(&page, &ask.head, Audience::Reader).await,
        };
        Ok(marked(page, stale))
    };
    turns::in_turn(&MAKING, Box::pin(making)).await?
}

/// What the upstreams' pages say.
enum ProjectLookup {
    Listing(Box<ProjectListing>),
    /// A policy refuses all files of this version.
    Refused(FileRefusal, String),
    NoVersion(String),
    Nothing,
}

/// A file of a version, and the mirror that has it.
#[derive(Clone)]
struct MirroredFile {
    mirror: Arc<Stage>,
    file: UpstreamFile,
}

/// The project, as the page shows it.
struct ProjectListing {
    /// The version on the page, if there is any.
    version: Option<Version>,
    /// The version that installers take.
    newest: Option<Version>,
    /// Why the shown version was yanked, if all its files were.
    yanked: Option<String>,
    /// The first file of the version with metadata beside it, whichever files are chosen.
    described_by: Option<MirroredFile>,
    /// The files of the version on the page, which part of the chosen ones that is, and what can be chosen.
    files: Vec<MirroredFile>,
    span: Span,
    choices: Choices,
    all_files: String,
    /// The latest versions first, or a part of all of them.
    lines: Vec<Line>,
    versions_span: Option<Span>,
    all_versions: Option<(usize, String)>,
    hidden: HiddenFiles,
    is_judged: bool,
    /// Whether links lead below the index that was asked, so that its policy counts for them.
    is_below_asked: bool,
    status: Option<(String, String)>,
    locations: Locations,
    mirrors: Vec<Arc<Stage>>,
}

/// A file of a version that the policies let pass.
type OfferedFile<'page> = (&'page Arc<Stage>, &'page UpstreamFile);

fn are_yanked(files: &[OfferedFile<'_>]) -> bool {
    files.iter().all(|(_, file)| file.yanked.is_some())
}

/// The line of a version in the list.
fn line(version: &Version, files: &[OfferedFile<'_>], is_shown: bool) -> Line {
    let times = files.iter().filter_map(|(_, file)| uploaded_at(file));
    Line {
        version: version.to_string(),
        path: in_path(version.as_str()),
        is_shown,
        is_prerelease: version.is_prerelease(),
        is_yanked: are_yanked(files),
        files: display::count(files.len(), "file", "files"),
        at: times.max().map(Time),
        stage: files.first().map_or("", |(stage, _)| stage.name().as_str()).to_owned(),
        also_in: Vec::new(),
    }
}

fn uploaded_at(file: &UpstreamFile) -> Option<Timestamp> {
    let said = file.upload_time.as_deref().and_then(|time| time.parse().ok());
    said.or(file.first_seen)
}

impl ProjectListing {
    /// What the page of the version `wanted` shows, or else that of the version that installers take, with the parts of its lists that
    /// the query asks for.
    fn of(
        order: &ResolutionOrder<'_>,
        name: &ProjectName,
        heard: &[MirrorPage<'_>],
        wanted: Option<&str>,
        query: &FileQuery,
    ) -> ProjectLookup {
        let upstream = heard
            .iter()
            .filter_map(|(mirror, known)| Some(UpstreamProject { mirror, page: known.page()? }));
        let (upstream, _) = of_one_project(order, name, upstream.collect());
        let Some(nearest) = upstream.first() else { return ProjectLookup::Nothing };
        let judge = Judge::of(order, name, Timestamp::now());
        let mut seen = HashSet::new();
        let files = upstream.iter().flat_map(|from| {
            let versions = from.page.files_by_version(name).iter();
            let versions = versions.map(|(version, at)| at.iter().map(move |&at| (version, at)));
            versions
                .flatten()
                .map(move |(version, at)| (version, (from, &from.page.files[at as usize])))
        });
        // A nearer file with this name counts.
        let files = files.filter(|(_, (_, file))| seen.insert(&*file.filename));
        let files = files.map(|(version, file)| (version.clone(), file));
        let (mut hidden, mut refusals) = (HiddenFiles::default(), BTreeMap::new());
        let mut versions: Vec<(Version, Vec<OfferedFile<'_>>)> = Vec::new();
        for (version, files) in by_version(files) {
            let mut given = Vec::new();
            for (UpstreamProject { mirror, page }, file) in files {
                let judged = || judge.as_ref()?.refusal_of_upstream(mirror.name(), file);
                match policy::quarantine_of_upstream(mirror, page).or_else(judged) {
                    None => given.push((*mirror, file)),
                    Some(refused) => {
                        hidden.add(&refused);
                        refusals.insert(versions.len(), refused);
                    }
                }
            }
            versions.push((version, given));
        }
        let position =
            |wanted| Version::position(wanted, versions.iter().map(|(it, _)| it.as_str()));
        let wanted = match wanted {
            None => None,
            Some(wanted) => match position(wanted) {
                None => return ProjectLookup::NoVersion(wanted.to_owned()),
                Some(at) if versions[at].1.is_empty() => {
                    let version = versions[at].0.to_string();
                    return match refusals.remove(&at) {
                        Some(refused) => ProjectLookup::Refused(refused, version),
                        None => ProjectLookup::NoVersion(version),
                    };
                }
                Some(at) => Some(versions[at].0.clone()),
            },
        };
        versions.retain(|(_, files)| !files.is_empty());
        let newest = installed_by_default(
            versions.iter().map(|(version, files)| (version, are_yanked(files))),
        );
        let newest = newest.map(|at| versions[at].0.clone());
        let is_release = wanted.is_some();
        let shown = wanted.or_else(|| newest.clone());
        let is_shown = |version: &Version| shown.as_ref() == Some(version);
        let files = versions.iter().find(|(version, _)| is_shown(version));
        let files = files.map_or(&[][..], |(_, files)| files);
        let yanked = (!files.is_empty() && are_yanked(files)).then(|| {
            let reasons = files.iter().filter_map(|(_, file)| file.yanked.as_deref());
            reasons.max().unwrap_or_default().to_owned()
        });
        // The page of a version has no list of them.
        let listable = if is_release { &[] } else { versions.as_slice() };
        let (from, most) = query.lines(VERSIONS, VERSIONS_OF_PART);
        let lines = listable.iter().rev().skip(from).take(most);
        let lines = lines.map(|(version, files)| line(version, files, is_shown(version)));
        let lines: Vec<Line> = lines.collect();
        let choices = query.choices(files.iter().map(|(_, file)| &*file.filename));
        let chosen = files.iter().filter(|(_, file)| query.admits(&file.filename));
        let chosen: Vec<&OfferedFile<'_>> = chosen.collect();
        let listed = |(mirror, file): &OfferedFile<'_>| MirroredFile {
            mirror: (*mirror).clone(),
            file: (*file).clone(),
        };
        let on_page = chosen.iter().skip(query.files_from).take(FILES);
        ProjectLookup::Listing(Box::new(ProjectListing {
            yanked,
            described_by: files.iter().find(|(_, it)| it.core_metadata.is_some()).map(listed),
            files: on_page.map(|file| listed(file)).collect(),
            span: query.files(chosen.len(), FILES),
            choices,
            all_files: query.query_of_all_files(),
            versions_span: query.versions(listable.len(), VERSIONS_OF_PART),
            all_versions: query.all_versions(listable.len(), lines.len()),
            lines,
            hidden,
            is_judged: judge.is_some(),
            is_below_asked: judge.as_ref().is_some_and(Judge::is_of_asked),
            status: nearest.page.status.as_ref().map(|(marker, reason)| {
                (marker.as_str().to_owned(), reason.as_deref().unwrap_or_default().to_owned())
            }),
            locations: nearest.page.locations.clone(),
            mirrors: upstream.iter().map(|it| it.mirror.clone()).collect(),
            version: shown,
            newest,
        }))
    }

    /// The page of the index that was asked.
    fn page<'a>(
        &'a self,
        site: Site,
        name: &'a ProjectName,
        order: &ResolutionOrder<'a>,
        is_release: bool,
        described: ReleaseMetadata,
        required_by: RequiredBy,
    ) -> ProjectPage<'a> {
        let stage = own_name(order);
        let version = self.version.as_ref().map_or("", Version::as_str);
        let status = self.status.as_ref();
        ProjectPage {
            stage,
            path: in_path(stage),
            name: name.as_str(),
            version,
            is_release,
            is_prerelease: self.version.as_ref().is_some_and(Version::is_prerelease),
            newest: self
                .newest
                .as_ref()
                .filter(|it| it.as_str() != version)
                .map(Version::to_string),
            yanked: self.yanked.clone(),
            yanked_by: None,
            is_own: false,
            status: status.and_then(|(marker, reason)| Status::of(marker, reason)),
            described,
            files: self.files.iter().map(|it| it.shown(self, stage, site.prefix())).collect(),
            span: self.span.clone(),
            choices: self.choices.clone(),
            all_files: self.all_files.clone(),
            hidden: Vec::new(),
            quarantined_in: Vec::new(),
            held_back: self.hidden.sentences().collect(),
            warned: Vec::new(),
            documentation: None,
            others: Vec::new(),
            version_path: in_path(version),
            versions: self.lines.clone(),
            versions_span: self.versions_span.clone(),
            all_versions: self.all_versions.clone(),
            origins: self.origins(),
            required_by,
            counts_downloads: false,
            lately: None,
            is_managed: false,
            asked_mirrors: Vec::new(),
            blocked_mirrors: Vec::new(),
            locations: self.locations.clone(),
            site,
        }
    }

    /// What the shown version says of itself, in the metadata beside a wheel. A page is shown without it if it cannot be had.
    async fn described(
        &self,
        ask: &Ask,
        order: &ResolutionOrder<'_>,
        name: &ProjectName,
        principal: &Principal,
    ) -> ReleaseMetadata {
        let Some(listed) = &self.described_by else { return ReleaseMetadata::default() };
        let reading = tokio::time::timeout(METADATA_WAIT_MAX, metadata(ask, name, listed));
        let bytes = match reading.await {
            Ok(Some(bytes)) => bytes,
            _ => return ReleaseMetadata::default(),
        };
        let Ok(metadata) = Metadata::read(&bytes) else { return ReleaseMetadata::default() };
        let digest = Digest::of(&bytes);
        ReleaseMetadata::by(&metadata, digest, order, principal, own_name(order)).await
    }

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
async fn metadata(ask: &Ask, name: &ProjectName, listed: &MirroredFile) -> Option<Vec<u8>> {
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

impl MirroredFile {
    /// As the page of the index `asked` shows it.
    fn shown<'a>(&'a self, listing: &ProjectListing, asked: &str, prefix: &str) -> File<'a> {
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
            attested_by: None,
            yanked: file.yanked.as_deref(),
            stage,
            tests: None,
            url,
        }
    }
}
