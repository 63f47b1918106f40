//! Whether the projects of several mirrors with one name are one project (PEP 708).
//!
//! Two repositories that are not related may both have a name, and an attacker may register a name in one of them because
//! another project has it in the other. So the nearest mirror that has the name counts, and of the others those whose pages say
//! that theirs is the same project. A page counts as having the name even without files: its owner may have removed them all,
//! or its upstream may hold them back, and then an attacker's files must not replace them. The exception is an upstream without
//! a list of projects: some answer every name with an empty page.

use std::collections::BTreeSet;
use std::sync::Arc;

use url::Url;

use crate::inherit::ResolutionOrder;
use crate::upstream::{Locations, UpstreamPage, place_of_project};
use crate::{ProjectName, Stage, StageName};

/// The part of a project that comes from a mirror's upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamProject<'page> {
    /// The mirror.
    pub mirror: &'page Arc<Stage>,
    /// The upstream's page.
    pub page: &'page UpstreamPage,
}

/// The mirrors' pages about the nearest one's project, in their order, and the mirrors whose pages are about another. A page
/// that says [nothing](says_nothing) is in neither, if another one says something. `upstream` are the pages of the mirrors that
/// are asked for the project, nearest first.
pub fn of_one_project<'page>(
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
    upstream: Vec<UpstreamProject<'page>>,
) -> (Vec<UpstreamProject<'page>>, Vec<&'page StageName>) {
    if upstream.len() < 2 || order.mirrors_of(project.as_str()).are_one {
        return (upstream, Vec::new());
    }
    let upstream = match upstream.iter().all(says_nothing) {
        true => upstream,
        false => upstream.into_iter().filter(|part| !says_nothing(part)).collect(),
    };
    let are_connected = connected(project, &upstream);
    let (mut one, mut apart) = (Vec::new(), Vec::new());
    for (part, is_connected) in upstream.into_iter().zip(are_connected) {
        match is_connected {
            true => one.push(part),
            false => apart.push(part.mirror.name()),
        }
    }
    (one, apart)
}

/// Whether an upstream without a list of projects sent a page without any sign of the project: no file, no version, no status,
/// no other place. It counts as a 404.
fn says_nothing(part: &UpstreamProject<'_>) -> bool {
    let UpstreamPage { status, locations, versions, files, .. } = part.page;
    let has_no_list = part.mirror.config().mirror().and_then(|it| it.mirror_no_project_list);
    has_no_list.unwrap_or_default()
        && status.is_none()
        && *locations == Locations::default()
        && versions.is_empty()
        && files.is_empty()
}

/// Which of the pages are about the nearest one's project; the nearest itself is.
pub(super) fn connected(project: &ProjectName, upstream: &[UpstreamProject<'_>]) -> Vec<bool> {
    let mut found: Vec<MirroredProject<'_>> =
        upstream.iter().map(|part| MirroredProject::of(part, project)).collect();
    if let Some(nearest) = found.first_mut() {
        nearest.is_one = true;
    }
    loop {
        let is_new = |at: &usize| {
            let it = &found[*at];
            !it.is_one && found.iter().any(|one| one.is_one && one.is_same(it))
        };
        let new: Vec<usize> = (0..found.len()).filter(is_new).collect();
        if new.is_empty() {
            return found.iter().map(|it| it.is_one).collect();
        }
        new.into_iter().for_each(|at| found[at].is_one = true);
    }
}

/// A mirror's project, and where it is.
struct MirroredProject<'page> {
    /// Whether it is the nearest mirror's project.
    is_one: bool,
    /// The URL of its page.
    url: Option<Box<str>>,
    tracks: &'page [Box<str>],
    /// The URLs of its other places; empty if it names none.
    places: BTreeSet<&'page str>,
}

impl<'page> MirroredProject<'page> {
    fn of(part: &UpstreamProject<'page>, project: &ProjectName) -> MirroredProject<'page> {
        let page = part.page;
        MirroredProject {
            is_one: false,
            url: url_of(part.mirror, project),
            tracks: &page.locations.tracks,
            places: page.locations.alternates.iter().map(|url| &**url).collect(),
        }
    }

    /// Whether one of the two tracks the other, both track a third one, or both name the same places.
    fn is_same(&self, other: &MirroredProject<'_>) -> bool {
        let tracks = |one: &MirroredProject<'_>, other: &MirroredProject<'_>| {
            one.tracks
                .iter()
                .any(|url| Some(url) == other.url.as_ref() || other.tracks.contains(url))
        };
        tracks(self, other) || tracks(other, self) || self.agrees_with(other)
    }

    /// Whether each names the other as another place of its project, and both name the same places.
    fn agrees_with(&self, other: &MirroredProject<'_>) -> bool {
        let (Some(own), Some(others)) = (self.url.as_deref(), other.url.as_deref()) else {
            return false;
        };
        let names_other = self.places.contains(others) && other.places.contains(own);
        let all = |of: &MirroredProject<'_>, url: &str| -> BTreeSet<String> {
            of.places.iter().copied().chain([url]).map(str::to_owned).collect()
        };
        names_other && all(self, own) == all(other, others)
    }
}

/// The URL of a project's page at a mirror's upstream.
fn url_of(mirror: &Stage, project: &ProjectName) -> Option<Box<str>> {
    let mut url = Url::parse(mirror.config().mirror()?.mirror_url.as_deref()?).ok()?;
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    place_of_project(&url, &format!("{project}/"))
}

#[cfg(test)]
mod tests;
