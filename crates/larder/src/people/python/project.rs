//! `/{user}/{index}/{project}` and `…/{version}`, for people: its description, how to install it, its files, where they come
//! from, and which files hide others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use account::{Portion, Principal};
use axum::response::Response;
use jiff::Timestamp;
use pypi::archive::is_archive;
use pypi::devpi::{View, file_url};
use pypi::index_log::DeedKind;
use pypi::{
    FileRole, Filename, Judge, Project as Contents, ProjectName, ProjectView, RefusedFiles,
    ReleaseFile, Stage, VersionView, Warnings, installed_by_default,
};

use super::description::ReleaseMetadata;
use super::downloads::RecentDownloads;
use super::file_query::FileQuery;
use super::file_tests;
use super::mirrored;
use super::project_page::{
    Actor, FILES, File, HiddenFile, Origin, ProjectPage, RequiredBy, Status, VERSIONS,
    VERSIONS_OF_PART, Version, kind, own_name,
};
use crate::front::display::{self, Time, in_path};
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, PageCacheKey, Site};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::Project;
use crate::protocols::python::policy;
use crate::protocols::python::project::{in_one_spelling, metadata, readable};
use crate::protocols::python::rights::IndexPart;
use crate::published::finished_pages::MadeOf;

/// `GET /{user}/{index}/{project}`, as a page.
pub(crate) async fn show_project(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    show(ask, stage, project, None).await
}

/// `GET /{user}/{index}/{project}/{version}`, as a page.
pub(crate) async fn show_release(
    ask: &Ask,
    stage: &str,
    project: &Project,
    version: &str,
) -> Result<Response, ApiError> {
    show(ask, stage, project, Some(version)).await
}

async fn show(
    ask: &Ask,
    stage: &str,
    project: &Project,
    wanted: Option<&str>,
) -> Result<Response, ApiError> {
    let order = readable(ask, stage, false, IndexPart::Project(project.name.as_ref())).await?;
    let missing = || HttpError::not_found(format!("{stage} has no project `{}`", project.as_sent));
    let name = in_one_spelling(ask, project, || missing().into())?;
    let principal = ask.principal().await?;
    // Others may see more, or less.
    let is_for_everybody = matches!(principal, Principal::Anonymous);
    let required_by = ask.app.python.required_by.snapshot_full();
    let required_by = required_by.map_or_else(Weak::new, |index| Arc::downgrade(&index));
    let made_of = MadeOf::Projects(ask.stored.serial, required_by);
    let site = ask.site();
    let keeping = PageCacheKey::of(&ask.head, &site, made_of).filter(|_| is_for_everybody);
    if let Some(kept) =
        keeping.as_ref().and_then(|it| it.find(&ask.app, &ask.head, Audience::Reader))
    {
        return Ok(kept);
    }
    let view = ask.view(&principal);
    let mirrors = order.mirrors_of(name.as_str());
    let Some(found) = order.project(name.as_str()) else {
        if !mirrors.asked.is_empty() {
            return mirrored::show(ask, &order, name, wanted).await;
        }
        return Err(missing().into());
    };
    let making = async {
        // Files that a policy refuses are not listed.
        let judge = Judge::of(&order, name, Timestamp::now());
        let judge = judge.as_ref();
        let mut versions = found.versions();
        let decided = RefusedFiles::of(&found, judge);
        let refusal_of =
            |version: &str| decided.as_ref().and_then(|shown| shown.refusal_of(version));
        let meant = wanted.and_then(|wanted| VersionView::meant(&versions, wanted)).cloned();
        let wanted = meant.as_ref().map(|view| view.version.as_str()).or(wanted);
        if let Some(wanted) = wanted
            && let Some(refused) = refusal_of(wanted)
        {
            return Ok(policy::refused(ask, &format!("{name} {wanted}"), refused).await);
        }
        versions.retain(|view| refusal_of(view.version.as_str()).is_none());
        let held_back = decided.as_ref().map(|shown| shown.hidden().sentences().collect());
        // The views begin with the latest version.
        let ascending = versions.iter().rev().map(|view| (&view.version, is_yanked(view)));
        let newest = installed_by_default(ascending).map(|at| &versions[versions.len() - 1 - at]);
        let shown = match wanted {
            None => newest,
            Some(wanted) => {
                let same = versions.iter().find(|view| view.version.as_str() == wanted);
                let missing =
                    || HttpError::not_found(format!("{stage} has no version `{wanted}` of {name}"));
                Some(same.ok_or_else(missing)?)
            }
        };
        let described = match shown {
            Some(shown) => {
                let metadata = metadata(&ask.app, std::slice::from_ref(shown)).await?;
                ReleaseMetadata::of(shown, &metadata, &order, &principal, stage).await
            }
            None => ReleaseMetadata::default(),
        };
        let (mut files, hidden) = shown.map_or_else(Default::default, |shown| {
            files(shown, name, judge, own_name(&order), &site)
        });
        let warned = shown.map(|shown| warnings(shown, judge).sentences().collect());
        let query = FileQuery::of(ask);
        let choices = query.choices(files.iter().map(|file| file.name));
        files.retain(|file| query.admits(file.name));
        let span = query.files(files.len(), FILES);
        let files = files.into_iter().skip(query.files_from).take(FILES);
        let mut files: Vec<File<'_>> = files.collect();
        let tested = match shown {
            Some(shown) => {
                let listed: Vec<_> = files.iter().map(|file| (file.stage, file.name)).collect();
                file_tests::of_files(ask, name.as_str(), shown, &listed, site.prefix()).await
            }
            None => Vec::new(),
        };
        let are_tests_counted = tested.iter().flatten().all(|tested| tested.tally.is_some());
        for (file, tested) in files.iter_mut().zip(tested) {
            file.tests = tested;
        }
        // The page of a version has no list of them.
        let listable = if wanted.is_none() { versions.as_slice() } else { &[] };
        let (from, most) = query.lines(VERSIONS, VERSIONS_OF_PART);
        let lines: Vec<&VersionView<'_>> = listable.iter().skip(from).take(most).collect();
        let (nearest, version) = match shown {
            Some(shown) => (shown.parts.first(), shown.version.as_str()),
            None => (None, ""),
        };
        let release = nearest.and_then(|part| part.project.release(version));
        let said = |stage: &Stage, what: DeedKind, version: Option<&str>| {
            let may_read = stage.may_read(&principal, Portion::Project(name.as_str()));
            let log = ask.stored.logs.log(stage.name().as_str()).filter(|_| may_read);
            log.and_then(|log| log.last(what, name, version)).map(Actor::of)
        };
        let seen = |name: &&str| ask.stored.index.stage(name).is_some_and(|stage| view.sees(stage));
        let own = found.parts().iter().map(|part| part.stage.name());
        let holders = own.chain(mirrors.asked.iter().map(|mirror| mirror.name()));
        let lately = match wanted {
            None => RecentDownloads::of(ask, holders, name).await,
            Some(_) => None,
        };
        let page = ProjectPage {
            stage: own_name(&order),
            path: in_path(own_name(&order)),
            name: name.as_str(),
            version,
            is_release: wanted.is_some(),
            is_prerelease: shown.is_some_and(|shown| shown.version.is_prerelease()),
            newest: newest
                .filter(|it| it.version.as_str() != version)
                .map(|it| it.version.to_string()),
            yanked: release.and_then(|release| release.yanked()).map(str::to_owned),
            yanked_by: release
                .filter(|release| release.yanked().is_some())
                .zip(nearest)
                .and_then(|(_, part)| said(part.stage, DeedKind::Yanked, Some(version))),
            status: status(&found).map(|(stage, status)| {
                let by = said(stage, DeedKind::Status, None);
                Status { by, ..status }
            }),
            described,
            files,
            span,
            choices,
            all_files: query.query_of_all_files(),
            hidden,
            quarantined_in: quarantined(&found),
            held_back: held_back.unwrap_or_default(),
            warned: warned.unwrap_or_default(),
            documentation: shown
                .and_then(|shown| documentation(shown, name, &site, own_name(&order))),
            others: versions
                .iter()
                .map(|view| view.version.as_str())
                .filter(|other| *other != version)
                .take(VERSIONS)
                .map(str::to_owned)
                .collect(),
            version_path: in_path(version),
            versions: listed(&found, &lines, version),
            versions_span: query.versions(listable.len(), VERSIONS_OF_PART),
            all_versions: query.all_versions(listable.len(), lines.len()),
            origins: origins(&found, view),
            required_by: RequiredBy::of(ask, &principal, name),
            is_own: order.stages().first().is_some_and(|own| own.project(name.as_str()).is_some()),
            counts_downloads: ask.app.python.downloads.kept().is_some(),
            lately,
            is_managed: order.stages().first().is_some_and(|own| {
                own.project(name.as_str()).is_some()
                    && own.may_remove(&principal, Portion::Project(name.as_str()))
            }),
            asked_mirrors: mirrors
                .asked
                .iter()
                .map(|stage| stage.name().as_str())
                .filter(seen)
                .collect(),
            blocked_mirrors: mirrors
                .blocked
                .iter()
                .map(|name| name.as_str())
                .filter(seen)
                .collect(),
            locations: found.locations(name.as_str()),
            site,
        };
        // With a policy the page depends on the time.
        let is_kept = judge.is_none() && !page.required_by.is_judged && are_tests_counted;
        Ok(match keeping.filter(|_| is_kept) {
            Some(keeping) => keeping.send(&ask.app, &page, &ask.head, Audience::Reader).await,
            None => page::send(&page, &ask.head, Audience::Reader).await,
        })
    };
    ask.in_turn(making).await
}

/// The status that the nearest index with one has set.
fn status<'a>(found: &ProjectView<'a>) -> Option<(&'a Stage, Status<'a>)> {
    let mut parts = found.parts().iter();
    let (stage, status) = parts.find_map(|part| Some((part.stage, part.project.status()?)))?;
    let shown = Status::of(status.marker.as_str(), status.reason.as_deref().unwrap_or_default())?;
    Some((stage, shown))
}

fn quarantined<'a>(found: &ProjectView<'a>) -> Vec<&'a str> {
    let parts = found.parts().iter().filter(|part| part.project.is_quarantined());
    parts.map(|part| part.stage.name().as_str()).collect()
}

/// The files of a version, nearest first, and those hidden by a nearer file of the same name.
fn files<'a>(
    shown: &VersionView<'a>,
    name: &ProjectName,
    judge: Option<&Judge<'_>>,
    asked: &str,
    site: &Site,
) -> (Vec<File<'a>>, Vec<HiddenFile<'a>>) {
    let (mut files, mut hidden) = (Vec::new(), Vec::new());
    let mut nearest: HashMap<&str, (&'a Stage, &'a ReleaseFile)> = HashMap::new();
    for part in &shown.parts {
        let (stage, project): (&'a Stage, &'a Contents) = (part.stage, part.project);
        let stage_name = stage.name().as_str();
        let of_version = project.files_of(shown.version.as_str());
        for file in of_version.filter(|file| file.role() == FileRole::Release) {
            let file: &'a ReleaseFile = file;
            if let Some((by, other)) = nearest.get(file.filename()) {
                hidden.push(HiddenFile {
                    name: file.filename(),
                    stage: stage_name,
                    by: by.name().as_str(),
                    is_same: other.digest() == file.digest(),
                });
                continue;
            }
            nearest.insert(file.filename(), (stage, file));
            let is_refused =
                judge.is_some_and(|judge| judge.refusal_of_own(stage.name(), file).is_some());
            if is_refused || project.is_quarantined() {
                continue;
            }
            // Below the index that was asked, if it has a policy, so that the policy counts for the link.
            let url = match judge.is_some_and(Judge::is_of_asked) {
                true => {
                    let path = in_path(&file.path());
                    format!(
                        "{}/{}/{}",
                        site.prefix(),
                        in_path(asked),
                        path.replacen("%2Bf", "+f", 1)
                    )
                }
                false => file_url(site.prefix(), stage.name(), file),
            };
            files.push(File {
                name: file.filename(),
                kind: kind(file.filename()),
                size: display::size(file.size_bytes()),
                at: Some(Time(file.uploaded_at())),
                who: file.brought_by(),
                sha256: file.digest().to_string(),
                requires_python: file.requires_python().unwrap_or_default(),
                metadata: file.core_metadata().map(|_| format!("{url}.metadata")),
                contents: Filename::parse(file.filename())
                    .is_ok_and(|filename| is_archive(&filename))
                    .then(|| {
                        let (version, filename) = (shown.version.as_str(), file.filename());
                        let (version, filename) = (in_path(version), in_path(filename));
                        let (prefix, asked) = (site.prefix(), in_path(asked));
                        format!("{prefix}/{asked}/{name}/{version}/+contents/{filename}")
                    }),
                provenance: file.provenance().map(|_| format!("{url}.provenance")),
                attested_by: file.attested_by(),
                yanked: project.yanked(file),
                stage: stage_name,
                tests: None,
                url,
            });
        }
    }
    (files, hidden)
}

/// The files of a version that policies warn of, each as in its nearest index.
fn warnings(shown: &VersionView<'_>, judge: Option<&Judge<'_>>) -> Warnings {
    let mut warnings = Warnings::default();
    let Some(judge) = judge.filter(|judge| judge.may_note()) else { return warnings };
    let mut seen = HashSet::new();
    for part in &shown.parts {
        let files = part.project.files_of(shown.version.as_str());
        for file in files.filter(|file| file.role() == FileRole::Release) {
            let stage = part.stage.name();
            let is_given = seen.insert(file.filename())
                && !part.project.is_quarantined()
                && judge.refusal_of_own(stage, file).is_none();
            if is_given && let Some(warned) = judge.warning(stage, &judge.own(file)) {
                warnings.add(file.filename(), warned);
            }
        }
    }
    warnings
}

fn documentation(
    shown: &VersionView<'_>,
    name: &ProjectName,
    site: &Site,
    stage: &str,
) -> Option<String> {
    let version = shown.version.as_str();
    let has = shown
        .parts
        .iter()
        .any(|part| part.project.files_of(version).any(|file| file.role() == FileRole::Docs));
    let (prefix, stage, version) = (site.prefix(), in_path(stage), in_path(version));
    has.then(|| format!("{prefix}/{stage}/{name}/{version}/+doc/"))
}

fn is_yanked(view: &VersionView<'_>) -> bool {
    let release = view.parts.first().and_then(|part| part.project.release(view.version.as_str()));
    release.is_some_and(|release| release.yanked().is_some())
}

/// The lines for these versions.
fn listed<'a>(found: &ProjectView<'a>, versions: &[&VersionView<'a>], shown: &str) -> Vec<Version> {
    if versions.is_empty() {
        return Vec::new();
    }
    // One pass over all files, however many versions there are.
    let mut counted: HashMap<(&str, &str), (usize, Timestamp)> = HashMap::new();
    for part in found.parts() {
        for file in part.project.release_files() {
            let entry = counted.entry((part.stage.name().as_str(), file.version()));
            let (count, at) = entry.or_insert((0, file.uploaded_at()));
            *count += 1;
            *at = (*at).max(file.uploaded_at());
        }
    }
    let line = |view: &&VersionView<'a>| {
        let version = view.version.as_str();
        let mut stages = view.parts.iter().map(|part| part.stage.name().as_str());
        let stage = stages.next().unwrap_or_default();
        let counted = counted.get(&(stage, version)).copied();
        Version {
            version: version.to_owned(),
            path: in_path(version),
            is_shown: version == shown,
            is_prerelease: view.version.is_prerelease(),
            is_yanked: is_yanked(view),
            files: display::count(counted.map_or(0, |(count, _)| count), "file", "files"),
            at: counted.map(|(_, at)| Time(at)),
            stage: stage.to_owned(),
            also_in: stages.map(str::to_owned).collect(),
        }
    };
    versions.iter().map(line).collect()
}

/// The indexes that have parts of the project; empty if it is only the one that was asked.
fn origins<'a>(found: &ProjectView<'a>, view: View<'_>) -> Vec<Origin<'a>> {
    let parts = found.parts().iter().filter(|part| view.sees(part.stage));
    let origins = parts.map(|part| {
        let versions: HashSet<&str> = part.project.versions().into_iter().collect();
        Origin {
            stage: part.stage.name().as_str(),
            path: in_path(part.stage.name().as_str()),
            versions: display::count(versions.len(), "version", "versions"),
        }
    });
    origins.collect()
}
