//! Pages of stages with mirrors: a project's own files and those of its upstreams on one page, nearest first.
//!
//! [`merged_page`] and [`merged_list`] have the same form as the pages of a stage without a mirror; a test compares them
//! to the letter. Of several files with one name, the nearest is shown; an upstream's quarantined files are left out.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use reply::Reply;

use super::{
    API_VERSION, Links, PageForm, encoded, human_lead, links_within, list_head, push_escaped,
    push_json, push_meta, push_project_link, push_time,
};
use crate::inherit::{ProjectView, ResolutionOrder};
use crate::upstream::{CoreMetadata, UpstreamNames, UpstreamPage};
use crate::{Filename, ProjectName, Stage, StageName, StatusMarker, Version};

/// The part of a project that comes from a mirror's upstream.
#[derive(Clone, Copy, Debug)]
pub struct FromUpstream<'page> {
    /// The mirror.
    pub mirror: &'page Arc<Stage>,
    /// What its upstream says.
    pub page: &'page UpstreamPage,
}

/// What a merged page is made of.
#[derive(Clone, Copy, Debug)]
pub struct MergedPage<'page> {
    /// The stages.
    pub order: &'page ResolutionOrder<'page>,
    /// What they have of the project themselves.
    pub own: Option<&'page ProjectView<'page>>,
    /// What their mirrors' upstreams have, nearest first.
    pub upstream: &'page [FromUpstream<'page>],
    /// Mirrors that are not asked.
    pub blocked: &'page [&'page StageName],
    /// The project.
    pub project: &'page ProjectName,
}

/// A file of either kind.
struct Link<'page> {
    stage: &'page StageName,
    href: String,
    filename: &'page str,
    version: Option<Version>,
    hashes: Vec<(&'page str, Cow<'page, str>)>,
    requires_python: Option<&'page str>,
    size_bytes: Option<u64>,
    upload_time: Option<Cow<'page, str>>,
    yanked: Option<&'page str>,
    /// The SHA-256 of the metadata, if it is known.
    core_metadata: Option<Option<Cow<'page, str>>>,
    provenance: Option<&'page str>,
}

/// The page of a project that mirrors may have, too.
pub fn merged_page(merged: &MergedPage<'_>, form: PageForm, links: Links<'_>) -> Reply {
    let mut files = files_of(merged, links);
    let text = match form {
        PageForm::Json => json(merged, &files),
        PageForm::Html => html(merged, &files, ""),
        PageForm::Human => {
            let stage = merged.order.stages()[0].name();
            let prefix = links.to_stage(stage, stage);
            let project = merged.project.as_str();
            let lead = human_lead(merged.order, merged.blocked, &prefix, project);
            files.sort_by(|one, other| {
                let newer = other.version.cmp(&one.version);
                newer.then_with(|| one.filename.cmp(other.filename))
            });
            html(merged, &files, &lead)
        }
    };
    Reply::tagged(form.content_type(), text)
}

fn files_of<'page>(merged: &MergedPage<'page>, links: Links<'_>) -> Vec<Link<'page>> {
    let stage = merged.order.stages()[0].name();
    let mut files = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    if let Some(own) = merged.own {
        // A file that is not shown still hides farther ones with the same name.
        let parts = own.parts().iter();
        seen.extend(
            parts.flat_map(|part| part.project.release_files()).map(|file| file.filename()),
        );
        for view in own.files() {
            let (from, file) = (view.part.stage.name(), view.file);
            let mut href = links.to_stage(from, stage);
            href.push_str("+f/");
            file.directory().push_to(&mut href);
            _ = write!(href, "/{}", encoded(file.filename()));
            let mut time = String::new();
            push_time(&mut time, file.uploaded_at_microseconds);
            files.push(Link {
                stage: from,
                href,
                filename: file.filename(),
                version: Version::parse(file.version()).ok(),
                hashes: vec![("sha256", file.digest().to_string().into())],
                requires_python: file.requires_python(),
                size_bytes: Some(file.size_bytes()),
                upload_time: Some(time.into()),
                yanked: view.part.project.yanked(file),
                core_metadata: file.core_metadata().map(|it| Some(it.to_string().into())),
                provenance: None,
            });
        }
    }
    for FromUpstream { mirror, page } in merged.upstream {
        let is_quarantined =
            page.status.as_ref().is_some_and(|(it, _)| *it == StatusMarker::Quarantined);
        let prefix = links.to_stage(mirror.name(), stage);
        for file in &page.files {
            if !seen.insert(&*file.filename) || is_quarantined {
                continue;
            }
            files.push(Link {
                stage: mirror.name(),
                href: format!("{prefix}{}", file.link()),
                filename: &file.filename,
                version: version_of(&file.filename, merged.project),
                hashes: file.hashes.iter().map(|(name, hex)| (&**name, (&**hex).into())).collect(),
                requires_python: file.requires_python.as_deref(),
                size_bytes: file.size_bytes,
                upload_time: file.upload_time.as_deref().map(Into::into),
                yanked: file.yanked.as_deref(),
                core_metadata: file.core_metadata.as_ref().map(|it| match it {
                    CoreMetadata::Unhashed => None,
                    CoreMetadata::Sha256(digits) => Some((&**digits).into()),
                }),
                provenance: file.provenance.as_deref(),
            });
        }
    }
    files
}

fn version_of(filename: &str, project: &ProjectName) -> Option<Version> {
    Filename::parse(filename).ok()?.split(Some(project))?.version
}

/// The nearest status that anybody gave the project.
fn status_of<'page>(merged: &MergedPage<'page>) -> Option<(StatusMarker, Option<&'page str>)> {
    let own = merged.own.and_then(|own| own.parts().first()?.project.status());
    let upstream = || merged.upstream.iter().find_map(|part| part.page.status.as_ref());
    match own {
        Some(status) => Some((status.marker, status.reason.as_deref())),
        None => upstream().map(|(marker, reason)| (*marker, reason.as_deref())),
    }
}

fn html(merged: &MergedPage<'_>, files: &[Link<'_>], lead: &str) -> String {
    let stage = merged.order.stages()[0].name();
    let mut page = String::with_capacity(512 + lead.len() + 400 * files.len());
    page.push_str("<!DOCTYPE html><html lang=\"en\"><head>");
    push_meta(&mut page, "repository-version", API_VERSION);
    if let Some((marker, reason)) = status_of(merged) {
        push_meta(&mut page, "project-status", marker.as_str());
        if let Some(reason) = reason {
            push_meta(&mut page, "project-status-reason", reason);
        }
    }
    for (open, close) in [("<title>", "</title></head><body><h1>"), ("", "</h1>\n")] {
        page.push_str(open);
        push_escaped(&mut page, stage.as_str());
        page.push_str(": links for ");
        page.push_str(merged.project.as_str());
        page.push_str(close);
    }
    page.push_str(lead);
    for file in files {
        push_escaped(&mut page, file.stage.as_str());
        page.push_str(" <a href=\"");
        page.push_str(&file.href);
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
            Some(Some(digits)) => _ = write!(page, " data-core-metadata=\"sha256={digits}\""),
            Some(None) => page.push_str(" data-core-metadata=\"true\""),
            None => {}
        }
        push_attribute(&mut page, "provenance", file.provenance);
        page.push('>');
        push_escaped(&mut page, file.filename);
        page.push_str("</a><br>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn push_attribute(page: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        _ = write!(page, " data-{name}=\"");
        push_escaped(page, value);
        page.push('"');
    }
}

fn json(merged: &MergedPage<'_>, files: &[Link<'_>]) -> String {
    let mut page = String::with_capacity(512 + 600 * files.len());
    let project = merged.project.as_str();
    _ = write!(page, "{{\"meta\":{{\"api-version\":\"{API_VERSION}\"}},\"name\":\"{project}\"");
    if let Some((marker, reason)) = status_of(merged) {
        _ = write!(page, ",\"project-status\":{{\"status\":\"{}\"", marker.as_str());
        if let Some(reason) = reason {
            page.push_str(",\"reason\":");
            push_json(&mut page, reason);
        }
        page.push('}');
    }
    page.push_str(",\"versions\":[");
    let of_files = files.iter().filter_map(|file| Some((file.version.clone()?, false)));
    let named = merged.upstream.iter().flat_map(|part| &part.page.versions);
    let named = named.filter_map(|version| Some((Version::parse(version).ok()?, true)));
    let mut versions: Vec<(Version, bool)> = of_files.chain(named).collect();
    versions.sort_by(|(one, one_is_named), (other, other_is_named)| {
        let by_text = || one.as_str().cmp(other.as_str());
        one.cmp(other).then_with(|| one_is_named.cmp(other_is_named)).then_with(by_text)
    });
    // A file's name and its upstream spell a version differently: `1.0.0` and `1.0`.
    versions.dedup_by(|(one, is_named), (kept, _)| match is_named {
        true => one.is_same_release(kept),
        false => one.as_str() == kept.as_str(),
    });
    for (position, (version, _)) in versions.iter().enumerate() {
        page.push_str(if position == 0 { "" } else { "," });
        push_json(&mut page, version.as_str());
    }
    page.push_str("],\"files\":[");
    for (position, file) in files.iter().enumerate() {
        page.push_str(if position == 0 { "{\"filename\":" } else { ",{\"filename\":" });
        push_json(&mut page, file.filename);
        page.push_str(",\"url\":\"");
        page.push_str(&file.href);
        page.push_str("\",\"hashes\":{");
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
        push_member(&mut page, "upload-time", file.upload_time.as_deref());
        match file.yanked {
            // JSON readers take an empty text for "not yanked".
            Some("") => page.push_str(",\"yanked\":true"),
            reason => push_member(&mut page, "yanked", reason),
        }
        match &file.core_metadata {
            Some(Some(digits)) => {
                _ = write!(page, ",\"core-metadata\":{{\"sha256\":\"{digits}\"}}")
            }
            Some(None) => page.push_str(",\"core-metadata\":true"),
            None => {}
        }
        push_member(&mut page, "provenance", file.provenance);
        page.push('}');
    }
    page.push_str("]}");
    page
}

fn push_member(page: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        _ = write!(page, ",\"{name}\":");
        push_json(page, value);
    }
}

/// The list of the projects of these stages and of their mirrors' upstreams.
pub fn merged_list(
    order: &ResolutionOrder<'_>,
    upstream: &[(&StageName, &UpstreamNames)],
    form: PageForm,
    links: Links<'_>,
) -> Reply {
    let stage = order.stages()[0].name();
    let prefix = match links {
        Links::Depth(3) => String::new(),
        Links::Depth(depth) => format!("{}+simple/", links_within(depth, stage)),
        Links::Absolute(_) => format!("{}+simple/", links.to_stage(stage, stage)),
    };
    let mut names: Vec<&str> = order.project_names().into_iter().map(ProjectName::as_str).collect();
    for (_, upstream) in upstream {
        names.extend(upstream.iter());
    }
    names.sort_unstable();
    names.dedup();
    let text = if form == PageForm::Json {
        let mut page = String::with_capacity(128 + 36 * names.len());
        _ = write!(page, "{{\"meta\":{{\"api-version\":\"{API_VERSION}\"}},\"projects\":[");
        for (position, name) in names.into_iter().enumerate() {
            page.push_str(if position == 0 { "{\"name\":\"" } else { ",{\"name\":\"" });
            page.push_str(name);
            page.push_str("\"}");
        }
        page.push_str("]}");
        page
    } else {
        let mut page = list_head(stage, 32 * names.len());
        for name in names {
            push_project_link(&mut page, &prefix, name);
        }
        page.push_str("</body></html>\n");
        page
    };
    Reply::tagged(form.content_type(), text)
}

#[cfg(test)]
mod tests;
