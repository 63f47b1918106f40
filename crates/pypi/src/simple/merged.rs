//! The page of a project, and the list of projects: what the stages have themselves and what their mirrors' upstreams have,
//! nearest first.
//!
//! A stage without a mirror has no upstream part, and is otherwise the same. If several files have one name, the nearest is
//! shown; an upstream's quarantined files are left out.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use jiff::Timestamp;

use super::one_project::{UpstreamProject, connected};
use super::{
    API_VERSION, Links, PageForm, RenderedPage, encoded, human_lead, list_head, push_escaped,
    push_hidden, push_hidden_projects, push_json, push_json_head, push_meta, push_meta_locations,
    push_project_link, push_status, push_time, to_projects,
};
use crate::inherit::{FileView, ProjectView, ResolutionOrder};
use crate::policy::{FileRefusal, HiddenFiles, Judge, NameRules, VisibleProjects, Warnings};
use crate::upstream::{CoreMetadata, Locations, UpstreamFile, UpstreamNames};
use crate::version::ReleaseKey;
use crate::{Filename, ProjectName, ProjectPart, ReleaseFile, StageName, StatusMarker, Version};

/// The parts of a merged page.
#[derive(Clone, Copy, Debug)]
pub struct MergedPage<'page> {
    /// The stages.
    pub order: &'page ResolutionOrder<'page>,
    /// The stages' own part of the project.
    pub own: Option<&'page ProjectView<'page>>,
    /// The pages of the mirrors' upstreams, nearest first.
    pub upstream: &'page [UpstreamProject<'page>],
    /// Mirrors that are not asked.
    pub blocked: &'page [&'page StageName],
    /// Mirrors whose upstreams have a different project with this name.
    pub apart: &'page [&'page StageName],
    /// The project.
    pub project: &'page ProjectName,
    /// Decides which files are shown; `None`: all are.
    pub judge: Option<&'page Judge<'page>>,
}

impl MergedPage<'_> {
    /// The upstream's serial, only for a mirror's own page. A page of several stages changes independently of it, and so does
    /// one whose files a policy judges.
    fn last_serial(&self) -> Option<u64> {
        match (self.order.stages(), self.upstream, self.judge) {
            ([stage], [only], None) if stage.config().is_mirror() => only.page.last_serial,
            _ => None,
        }
    }
}

/// The visible files of a page, and what a policy hides.
struct VisibleFiles<'page> {
    files: Vec<VisibleFile<'page>>,
    /// How own files are linked, by [`FileView::part_index`].
    parts: Vec<OwnPrefix>,
    /// Of each upstream.
    mirrors: Vec<MirrorLinks<'page>>,
    hidden: HiddenFiles,
    /// The versions of hidden files of upstreams.
    hidden_versions: Vec<Version>,
    /// Files that policies warn of, on pages for people.
    warnings: Warnings,
}

/// A file that is shown. What is shown of it is made when it is written: there may be tens of thousands of them.
enum VisibleFile<'page> {
    Own(FileView<'page>),
    /// The upstream's place among [`MergedPage::upstream`], and its file.
    Upstream(usize, &'page UpstreamFile),
}

/// How the links to the own files of a stage begin.
struct OwnPrefix {
    files: String,
    provenances: String,
}

/// How an upstream's files are linked.
struct MirrorLinks<'page> {
    stage: &'page StageName,
    /// The beginning of their links.
    prefix: String,
    /// Whether its page names versions: those in files' names may differ, such as the build of an RPM.
    is_version_named: bool,
}

/// When a file was uploaded.
enum FileTime<'page> {
    /// In the words of upstream.
    Said(&'page str),
    /// Microseconds since 1970.
    At(i64),
}

/// A file of either kind.
struct Link<'page> {
    stage: &'page StageName,
    href: String,
    filename: &'page str,
    hashes: Vec<(&'page str, Cow<'page, str>)>,
    requires_python: Option<&'page str>,
    size_bytes: Option<u64>,
    upload_time: Option<FileTime<'page>>,
    /// Whether that is when it was first seen here.
    is_first_seen: bool,
    yanked: Option<&'page str>,
    /// The SHA-256 of the metadata, if it is known.
    core_metadata: Option<Option<Cow<'page, str>>>,
    provenance: Option<Cow<'page, str>>,
}

/// The page of a project that mirrors may have, too.
pub fn merged_page(merged: &MergedPage<'_>, form: PageForm, links: Links<'_>) -> RenderedPage {
    let mut shown = shown(merged, form, links);
    let text = match form {
        PageForm::Json => json(merged, &shown),
        PageForm::Html => html(merged, &shown, ""),
        PageForm::Human => {
            let stage = merged.order.stages()[0].name();
            let prefix = links.to_stage(stage, stage);
            let project = merged.project.as_str();
            let VisibleFiles { hidden, warnings, .. } = &shown;
            let (order, blocked) = (merged.order, merged.blocked);
            let mut lead = human_lead(order, blocked, hidden, warnings, &prefix, project);
            for mirror in merged.apart {
                lead.push_str("<p><strong>INFO:</strong> No releases from <strong>");
                push_escaped(&mut lead, mirror.as_str());
                lead.push_str(
                    "</strong> are included: nothing says that its project of this name is the same \
                     (<code>mirror_merge</code>).</p>\n",
                );
            }
            let first_seen = shown.files.iter().filter(|file| file.is_first_seen()).count();
            if first_seen > 0 {
                let (files, were) =
                    if first_seen == 1 { ("file", "it was") } else { ("files", "they were") };
                _ = writeln!(
                    lead,
                    "<p><strong>INFO:</strong> Of {first_seen} {files} upstream does not say when {were} uploaded: \
                     the time that installers get is when this server first saw them.</p>"
                );
            }
            shown.files.sort_by_cached_key(|file| {
                (Reverse(file.version(merged.project)), file.filename())
            });
            html(merged, &shown, &lead)
        }
    };
    let rendered = RenderedPage::of(form, text, &shown.hidden).until(merged.judge);
    RenderedPage { last_serial: merged.last_serial(), ..rendered }
}

const QUARANTINED: &str = StatusMarker::Quarantined.as_str();

/// The stage below which a file of `holder` is linked: below the stage that was asked if that has a policy, so that the
/// policy counts for the link.
fn linked<'name>(
    holder: &'name StageName,
    asked: &'name StageName,
    judge: Option<&Judge<'_>>,
) -> &'name StageName {
    if judge.is_some_and(Judge::is_of_asked) { asked } else { holder }
}

/// Whether a version that upstream names can be compared: an upstream that names others has no list to rely on.
fn is_comparable(version: &str) -> bool {
    Version::parse(version).is_ok_and(|version| !version.is_legacy())
}

fn shown<'page>(
    merged: &MergedPage<'page>,
    form: PageForm,
    links: Links<'_>,
) -> VisibleFiles<'page> {
    let stage = merged.order.stages()[0].name();
    let judge = merged.judge;
    let warner = judge.filter(|judge| form == PageForm::Human && judge.may_note());
    let mut warnings = Warnings::default();
    let (mut files, mut hidden, mut hidden_versions) =
        (Vec::new(), HiddenFiles::default(), Vec::new());
    let mut is_hidden = |refused: Option<FileRefusal>| {
        refused.iter().for_each(|refused| hidden.add(refused));
        refused.is_some()
    };
    let (mut seen, mut parts) = (HashSet::<&str>::new(), Vec::new());
    if let Some(own) = merged.own {
        // A file that is not shown still hides farther ones with the same name.
        let held = own.parts().iter().flat_map(|part| part.project.release_files());
        if !merged.upstream.is_empty() {
            seen.extend(held.map(|file| file.filename()));
        }
        for view in own.files() {
            let (from, file) = (view.part.stage.name(), view.file);
            if is_hidden(judge.and_then(|judge| judge.refusal_of_own(from, file))) {
                continue;
            }
            if let Some(warned) = warner.and_then(|it| it.warning(from, &it.own(file))) {
                warnings.add(file.filename(), warned);
            }
            files.push(VisibleFile::Own(view));
        }
        let prefix = |part: &ProjectPart<'_>, links: Links<'_>| {
            links.to_stage(linked(part.stage.name(), stage, judge), stage)
        };
        parts.extend(own.parts().iter().map(|part| OwnPrefix {
            files: prefix(part, links),
            provenances: prefix(part, links.absolute()),
        }));
    }
    let mut mirrors = Vec::new();
    for (at, UpstreamProject { mirror, page }) in merged.upstream.iter().enumerate() {
        let is_quarantined =
            page.status.as_ref().is_some_and(|(it, _)| *it == StatusMarker::Quarantined);
        mirrors.push(MirrorLinks {
            stage: mirror.name(),
            prefix: links.to_stage(linked(mirror.name(), stage, judge), stage),
            is_version_named: page.versions.iter().any(|named| is_comparable(named)),
        });
        for file in &page.files {
            if !seen.insert(&*file.filename) || is_quarantined {
                continue;
            }
            if is_hidden(judge.and_then(|judge| judge.refusal_of_upstream(mirror.name(), file))) {
                hidden_versions.extend(version_of(&file.filename, merged.project));
                continue;
            }
            let warned = warner.and_then(|it| it.warning(mirror.name(), &it.upstreams(file)));
            warned.into_iter().for_each(|it| warnings.add(&file.filename, it));
            files.push(VisibleFile::Upstream(at, file));
        }
    }
    VisibleFiles { files, parts, mirrors, hidden, hidden_versions, warnings }
}

impl<'page> VisibleFiles<'page> {
    /// Calls `take` with each file, and its place.
    fn each(&self, mut take: impl FnMut(usize, &Link<'page>)) {
        for (at, file) in self.files.iter().enumerate() {
            match file {
                VisibleFile::Own(view) => take(at, &self.parts[view.part_index].link(view)),
                VisibleFile::Upstream(of, file) => take(at, &self.mirrors[*of].link(file)),
            }
        }
    }

    /// The versions of the files whose pages do not name them.
    fn unnamed_versions(&self, project: &ProjectName) -> impl Iterator<Item = Version> {
        let mut own = HashSet::new();
        self.files.iter().filter_map(move |file| match file {
            // Most versions have several files.
            VisibleFile::Own(view) if !own.insert(view.file.version()) => None,
            VisibleFile::Upstream(of, _) if self.mirrors[*of].is_version_named => None,
            file => file.version(project),
        })
    }

    /// About how long the files are on a page, and seldom less.
    fn text_bytes(&self) -> usize {
        let bytes = self.files.iter().map(|file| match file {
            VisibleFile::Own(_) => 600,
            VisibleFile::Upstream(_, file) => file.shown_bytes() + 300,
        });
        bytes.sum()
    }
}

impl<'page> VisibleFile<'page> {
    fn filename(&self) -> &'page str {
        match self {
            VisibleFile::Own(view) => view.file.filename(),
            VisibleFile::Upstream(_, file) => &file.filename,
        }
    }

    fn version(&self, project: &ProjectName) -> Option<Version> {
        match self {
            VisibleFile::Own(view) => Version::parse(view.file.version()).ok(),
            VisibleFile::Upstream(_, file) => version_of(&file.filename, project),
        }
    }

    /// Whether its time is when it was first seen here.
    fn is_first_seen(&self) -> bool {
        match self {
            VisibleFile::Own(_) => false,
            VisibleFile::Upstream(_, file) => {
                file.upload_time.is_none() && file.first_seen.is_some()
            }
        }
    }
}

impl OwnPrefix {
    fn link<'page>(&self, view: &FileView<'page>) -> Link<'page> {
        let file: &'page ReleaseFile = view.file;
        let path = |prefix: &str| {
            let mut path = String::with_capacity(prefix.len() + 40 + file.filename().len());
            path.push_str(prefix);
            path.push_str("+f/");
            file.directory().push_to(&mut path);
            _ = write!(path, "/{}", encoded(file.filename()));
            path
        };
        let provenance = file.provenance().map(|_| path(&self.provenances) + ".provenance");
        Link {
            stage: view.part.stage.name(),
            href: path(&self.files),
            filename: file.filename(),
            hashes: vec![("sha256", file.digest().to_string().into())],
            requires_python: file.requires_python(),
            size_bytes: Some(file.size_bytes()),
            upload_time: Some(FileTime::At(file.uploaded_at_microseconds())),
            is_first_seen: false,
            yanked: view.part.project.yanked(file),
            core_metadata: file.core_metadata().map(|it| Some(it.to_string().into())),
            provenance: provenance.map(Cow::Owned),
        }
    }
}

impl<'page> MirrorLinks<'page> {
    fn link(&self, file: &'page UpstreamFile) -> Link<'page> {
        let said = file.upload_time.as_deref().map(FileTime::Said);
        let seen = file.first_seen.filter(|_| said.is_none());
        let is_first_seen = seen.is_some();
        let seen = seen.map(|seen| FileTime::At(seen.as_microsecond()));
        Link {
            stage: self.stage,
            href: format!("{}{}", self.prefix, file.link()),
            filename: &file.filename,
            hashes: file.hashes.iter().map(|(name, hex)| (&**name, (&**hex).into())).collect(),
            requires_python: file.requires_python.as_deref(),
            size_bytes: file.size_bytes,
            upload_time: said.or(seen),
            is_first_seen,
            yanked: file.yanked.as_deref(),
            core_metadata: file.core_metadata.as_ref().map(|it| match it {
                CoreMetadata::Unhashed => None,
                CoreMetadata::Sha256(digits) => Some((&**digits).into()),
            }),
            provenance: file.provenance.as_deref().map(Cow::Borrowed),
        }
    }
}

fn version_of(filename: &str, project: &ProjectName) -> Option<Version> {
    Filename::of_upstream(filename).ok()?.split(Some(project))?.version
}

/// The nearest status of the project, by its name, with the reason; a policy comes first.
fn status_of<'page>(merged: &MergedPage<'page>) -> Option<(&'static str, Option<&'page str>)> {
    let own = merged.own.iter().flat_map(|own| own.parts()).map(|part| part.stage.name());
    let holders = own.chain(merged.upstream.iter().map(|part| part.mirror.name()));
    if let Some(reason) = merged.judge.and_then(|judge| judge.quarantine(holders)) {
        return Some((QUARANTINED, Some(reason).filter(|it| !it.is_empty())));
    }
    let own = merged.own.and_then(|own| own.parts().first()?.project.status());
    let upstream = || merged.upstream.iter().find_map(|part| part.page.status.as_ref());
    match own {
        Some(status) => Some((status.marker.as_str(), status.reason.as_deref())),
        None => upstream().map(|(marker, reason)| (marker.as_str(), reason.as_deref())),
    }
}

/// The project's other places, as all pages say. Even if a stage merges all mirrors, a mirror whose page is not connected with
/// the nearest one's speaks of a different project.
fn locations(merged: &MergedPage<'_>) -> Locations {
    let own = merged.own.map(|own| own.locations(merged.project.as_str()));
    let mut locations = own.unwrap_or_default();
    let are_connected = connected(merged.project, merged.upstream);
    for (part, _) in merged.upstream.iter().zip(are_connected).filter(|(_, is_one)| *is_one) {
        locations.extend(&part.page.locations);
    }
    locations
}

fn html(merged: &MergedPage<'_>, shown: &VisibleFiles<'_>, lead: &str) -> String {
    let stage = merged.order.stages()[0].name();
    let mut page = String::with_capacity(1_024 + lead.len() + shown.text_bytes());
    page.push_str("<!DOCTYPE html><html lang=\"en\"><head>");
    push_meta(&mut page, "repository-version", API_VERSION);
    if let Some((marker, reason)) = status_of(merged) {
        push_meta(&mut page, "project-status", marker);
        if let Some(reason) = reason {
            push_meta(&mut page, "project-status-reason", reason);
        }
    }
    push_meta_locations(&mut page, &locations(merged));
    for (open, close) in [("<title>", "</title></head><body><h1>"), ("", "</h1>\n")] {
        page.push_str(open);
        push_escaped(&mut page, stage.as_str());
        page.push_str(": links for ");
        page.push_str(merged.project.as_str());
        page.push_str(close);
    }
    page.push_str(lead);
    shown.each(|_, file| {
        push_escaped(&mut page, file.stage.as_str());
        page.push_str(" <a href=\"");
        // An upstream's spelling of its URL may have `&`.
        push_escaped(&mut page, &file.href);
        // A link has room for one digest: the strongest that installers know.
        let named = |name: &str| file.hashes.iter().find(|(it, _)| *it == name);
        let hash =
            ["sha256", "sha512", "sha384", "sha224", "sha1", "md5"].iter().find_map(|it| named(it));
        if let Some((name, digits)) = hash {
            _ = write!(page, "#{name}=");
            push_escaped(&mut page, digits);
        }
        page.push('"');
        push_attribute(
            &mut page,
            "requires-python",
            file.requires_python.filter(|it| !it.is_empty()),
        );
        push_attribute(&mut page, "yanked", file.yanked);
        match &file.core_metadata {
            // The attribute has only PEP 714's name: installers that knew only the older one ask for JSON.
            Some(Some(digits)) => _ = write!(page, " data-core-metadata=\"sha256={digits}\""),
            Some(None) => page.push_str(" data-core-metadata=\"true\""),
            None => {}
        }
        push_attribute(&mut page, "provenance", file.provenance.as_deref());
        // HTML has no standard attribute for sizes and times. Clients that read them ask for JSON.
        page.push('>');
        push_escaped(&mut page, file.filename);
        page.push_str("</a><br>\n");
    });
    page.push_str("</body></html>\n");
    page.shrink_to_fit();
    page
}

fn push_attribute(page: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        _ = write!(page, " data-{name}=\"");
        push_escaped(page, value);
        page.push('"');
    }
}

/// The versions that have hidden files and no visible ones, in the form of [`Version::release_key`].
fn hidden_versions<'page>(
    shown: &'page VisibleFiles<'_>,
    project: &ProjectName,
) -> BTreeSet<ReleaseKey<'page>> {
    let mut hidden: BTreeSet<_> = shown.hidden_versions.iter().map(Version::release_key).collect();
    if !hidden.is_empty() {
        let visible: BTreeSet<Version> =
            shown.files.iter().filter_map(|file| file.version(project)).collect();
        let visible: BTreeSet<_> = visible.iter().map(Version::release_key).collect();
        hidden.retain(|key| !visible.contains(key));
    }
    hidden
}

/// The versions of a page, in their order.
fn versions(merged: &MergedPage<'_>, shown: &VisibleFiles<'_>) -> Vec<Version> {
    let of_files = shown.unnamed_versions(merged.project).map(|version| (version, false));
    let named = merged.upstream.iter().flat_map(|part| &part.page.versions);
    let named = named.filter_map(|version| Some((Version::parse(version).ok()?, true)));
    let hidden = hidden_versions(shown, merged.project);
    let named = named.filter(|(version, _)| !hidden.contains(&version.release_key()));
    let mut versions: Vec<(Version, bool)> = of_files.chain(named).collect();
    versions.sort_by(|(one, one_is_named), (other, other_is_named)| {
        let by_text = || one.as_str().cmp(other.as_str());
        one.cmp(other).then_with(|| one_is_named.cmp(other_is_named)).then_with(by_text)
    });
    // A file's name and another upstream spell a version differently: `1.0.0` and `1.0`. Both spellings of one upstream stay.
    versions.dedup_by(|(one, is_named), (kept, kept_is_named)| {
        let is_spelled_anew = *is_named && !*kept_is_named && one.is_same_release(kept);
        is_spelled_anew || one.as_str() == kept.as_str()
    });
    versions.into_iter().map(|(version, _)| version).collect()
}

fn json(merged: &MergedPage<'_>, shown: &VisibleFiles<'_>) -> String {
    let versions = versions(merged, shown);
    let bytes = versions.iter().map(|version| version.as_str().len() + 16).sum::<usize>();
    let mut page = String::with_capacity(4_096 + bytes + shown.text_bytes());
    push_json_head(&mut page, merged.project.as_str(), &locations(merged), merged.last_serial());
    push_status(&mut page, status_of(merged));
    push_hidden(&mut page, &shown.hidden);
    page.push_str(",\"versions\":[");
    for (position, version) in versions.iter().enumerate() {
        page.push_str(if position == 0 { "" } else { "," });
        push_json(&mut page, version.as_str());
    }
    drop(versions);
    page.push_str("],\"files\":[");
    shown.each(|position, file| {
        page.push_str(if position == 0 { "{\"filename\":" } else { ",{\"filename\":" });
        push_json(&mut page, file.filename);
        page.push_str(",\"url\":");
        push_json(&mut page, &file.href);
        page.push_str(",\"hashes\":{");
        for (position, (name, digits)) in file.hashes.iter().enumerate() {
            page.push_str(if position == 0 { "" } else { "," });
            push_json(&mut page, name);
            page.push(':');
            push_json(&mut page, digits);
        }
        page.push('}');
        push_member(&mut page, "requires-python", file.requires_python);
        if let Some(size_bytes) = file.size_bytes {
            _ = write!(page, ",\"size\":{size_bytes}");
        }
        match file.upload_time {
            Some(FileTime::At(microseconds)) => {
                page.push_str(",\"upload-time\":\"");
                push_time(&mut page, microseconds);
                page.push('"');
            }
            Some(FileTime::Said(time)) => push_member(&mut page, "upload-time", Some(time)),
            None => {}
        }
        if file.is_first_seen {
            page.push_str(",\"_upload-time-from\":\"first-seen\"");
        }
        match file.yanked {
            // JSON readers take an empty text for "not yanked".
            Some("") => page.push_str(",\"yanked\":true"),
            reason => push_member(&mut page, "yanked", reason),
        }
        match &file.core_metadata {
            // The older name is left out: pip before 23.1 fails on it (PEP 714).
            Some(Some(digits)) => {
                _ = write!(page, ",\"core-metadata\":{{\"sha256\":\"{digits}\"}}")
            }
            Some(None) => page.push_str(",\"core-metadata\":true"),
            None => {}
        }
        push_member(&mut page, "provenance", file.provenance.as_deref());
        page.push('}');
    });
    page.push_str("]}");
    page.shrink_to_fit();
    page
}

fn push_member(page: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        _ = write!(page, ",\"{name}\":");
        push_json(page, value);
    }
}

/// The list of the projects of these stages and of their mirrors' upstreams, without those that a policy hides entirely. Of a
/// project that only upstream has, only its name is known here.
pub fn merged_list(
    order: &ResolutionOrder<'_>,
    upstream: &[(&StageName, &UpstreamNames)],
    form: PageForm,
    links: Links<'_>,
    now: Timestamp,
) -> RenderedPage {
    let stage = order.stages()[0].name();
    let prefix = to_projects(links, stage);
    let listed = VisibleProjects::of(order, now);
    // Only with those of upstreams they have to be brought into order.
    let mut names: Vec<&str> = Vec::new();
    if !upstream.is_empty() {
        names.extend(listed.names(order));
    }
    let held: HashSet<&str> = order
        .stages()
        .iter()
        .flat_map(|stage| stage.held_names())
        .map(|name| name.as_str())
        .collect();
    // A project for which no mirror is asked has no upstream part either.
    let is_hidden = |name: &str| {
        (listed.hides(name) || held.contains(name)) && order.mirrors_of(name).asked.is_empty()
    };
    let mut hidden = 0;
    for (mirror, upstream) in upstream {
        let rules = NameRules::of(order, mirror, now);
        let has_pins = order.has_pins();
        names.extend(upstream.iter().filter(|name| {
            let is_refused = rules.refuse(name);
            hidden += usize::from(is_refused);
            let is_elsewhere = has_pins && order.is_elsewhere(name, mirror);
            !is_refused && !is_hidden(name) && !is_elsewhere
        }));
    }
    // Stable, as this sort merges what is sorted already.
    names.sort();
    names.dedup();
    let names: Box<dyn Iterator<Item = &str>> = match upstream {
        [] => Box::new(listed.names(order)),
        _ => Box::new(names.into_iter()),
    };
    let count_max = names.size_hint().1.unwrap_or(order.stages()[0].project_map().len());
    let text = if form == PageForm::Json {
        let mut page = String::with_capacity(128 + 36 * count_max);
        _ = write!(page, "{{\"meta\":{{\"api-version\":\"{API_VERSION}\"}},\"projects\":[");
        for (position, name) in names.enumerate() {
            page.push_str(if position == 0 { "{\"name\":\"" } else { ",{\"name\":\"" });
            page.push_str(name);
            page.push_str("\"}");
        }
        page.push_str("]}");
        page
    } else {
        let mut page = list_head(stage, 32 * count_max);
        if form == PageForm::Human {
            push_hidden_projects(&mut page, listed.hidden() + hidden);
        }
        for name in names {
            push_project_link(&mut page, &prefix, name);
        }
        page.push_str("</body></html>\n");
        page
    };
    RenderedPage::of_list(form, text, &listed)
}

#[cfg(test)]
mod tests;
