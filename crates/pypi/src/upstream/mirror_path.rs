//! [`MirrorPath`]: the place of an upstream's file below its mirror, and the projects that it may belong to.
//!
//! | path below the mirror | of |
//! | --- | --- |
//! | `+upstream/{host}/{path}` | every file: the upstream's URL without its scheme |
//! | `+f/{3 digits}/{13 digits}/{filename}` | files with a SHA-256, as devpi has them |
//! | `+e/{scheme_host_path}/{filename}` | files without a digest, as devpi has them |
//!
//! Pages link the first form, in upstream's spelling: `%2B` and `+` stay as they are, and both lead to the file. A file whose
//! URL does not fit into it (a query, a name that differs from the URL's last segment) is linked by one of the others.
//! `.metadata` after any of them means the file's metadata.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{UpstreamFile, is_hexadecimal};
use crate::project_name::normalized;
use crate::url::encoded;
use crate::{Filename, ProjectName, check_segment};

/// A path below a mirror, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorPath<'path> {
    /// `+upstream/…`: the host, with the port if it is not the scheme's own, and the segments of the path.
    Upstream(&'path [String]),
    /// `+f/{first}/{second}/{filename}`
    Digest([&'path str; 3]),
    /// `+e/{directory}/{filename}`
    External([&'path str; 2]),
}

const METADATA: &str = ".metadata";

impl<'path> MirrorPath<'path> {
    /// The place below `+f`.
    pub fn of_digest(path: &'path [String]) -> Option<MirrorPath<'path>> {
        let [first, second, filename] = path else { return None };
        let is_digest = is_hexadecimal(first, 3) && is_hexadecimal(second, 13);
        is_digest.then_some(MirrorPath::Digest([first, second, filename]))
    }

    /// The place below `+e`.
    pub fn of_external(path: &'path [String]) -> Option<MirrorPath<'path>> {
        let [directory, filename] = path else { return None };
        Some(MirrorPath::External([directory, filename]))
    }

    /// The place below `+upstream`.
    pub fn of_upstream(path: &'path [String]) -> Option<MirrorPath<'path>> {
        (path.len() >= 2).then_some(MirrorPath::Upstream(path))
    }

    /// Whether it is the place of a file's metadata, and not of a file.
    pub fn is_of_metadata(&self) -> bool {
        self.last().ends_with(METADATA)
    }

    /// The last name of the path, without `.metadata`.
    pub fn filename(&self) -> &'path str {
        let last = self.last();
        last.strip_suffix(METADATA).unwrap_or(last)
    }

    /// The last name of the path.
    fn last(&self) -> &'path str {
        match self {
            MirrorPath::Upstream(path) => path.last().map_or("", String::as_str),
            MirrorPath::Digest([_, _, filename]) => filename,
            MirrorPath::External([_, filename]) => filename,
        }
    }

    /// Whether the name is that of the file, or of its metadata. This costs little.
    pub(super) fn is_named(&self, file: &UpstreamFile, is_metadata: bool) -> bool {
        let end = if is_metadata { METADATA } else { "" };
        self.last().strip_suffix(end).is_some_and(|name| *name == *file.filename)
    }

    /// Whether the file, or its metadata, is at this place.
    pub(super) fn is_of(&self, file: &UpstreamFile, is_metadata: bool) -> bool {
        if !self.is_named(file, is_metadata) {
            return false;
        }
        match self {
            MirrorPath::Upstream(path) => {
                let Some((_, start)) = path.split_last() else { return false };
                segments(file).is_some_and(|found| found[..found.len() - 1] == *start)
            }
            MirrorPath::Digest([first, second, _]) => {
                let sha256 = file.sha256();
                sha256.is_some_and(|it| it[..3] == **first && it[3..16] == **second)
            }
            MirrorPath::External([directory, _]) => {
                directory_of(file).as_deref() == Some(*directory)
            }
        }
    }
}

/// The host and the segments of the path, decoded; `None` if no path of ours can hold them.
fn segments(file: &UpstreamFile) -> Option<Vec<String>> {
    let url = Url::parse(&file.url).ok()?;
    if url.query().is_some() {
        return None;
    }
    let mut parts = vec![match url.port() {
        Some(port) => format!("{}:{port}", url.host_str()?),
        None => url.host_str()?.to_owned(),
    }];
    for segment in url.path_segments()? {
        let decoded = percent_decode_str(segment).decode_utf8().ok()?;
        let is_plain = !matches!(&*decoded, "" | "." | "..")
            && !decoded.contains(['/', '\\'])
            && !decoded.chars().any(char::is_control);
        if !is_plain {
            return None;
        }
        parts.push(decoded.into_owned());
    }
    (parts.len() >= 2 && parts.last().is_some_and(|last| **last == *file.filename)).then_some(parts)
}

/// devpi's name for the origin of a file without a digest.
fn directory_of(file: &UpstreamFile) -> Option<String> {
    let url = Url::parse(&file.url).ok()?;
    let host = url.host_str()?;
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let mut text = format!("{}_{host}{port}", url.scheme());
    let mut parts: Vec<&str> = url.path_segments()?.collect();
    parts.pop();
    for part in parts {
        text.push('_');
        text.push_str(part);
    }
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '-');
    Some(text.chars().map(|one| if is_plain(one) { one } else { '_' }).collect())
}

/// The [canonical link](UpstreamFile::canonical_link) of the file at this place, or of its metadata, if the place alone tells.
pub fn link_of(place: &MirrorPath<'_>) -> Option<String> {
    match place {
        MirrorPath::Upstream(path) => Some(joined(path)),
        MirrorPath::Digest(_) | MirrorPath::External(_) => None,
    }
}

fn joined(parts: &[String]) -> String {
    let mut link = "+upstream".to_owned();
    for part in parts {
        _ = write!(link, "/{}", encoded(part));
    }
    link
}

impl UpstreamFile {
    /// The link on pages, below the mirror: a relative URL. What follows `+upstream/` is spelled as in upstream's URL, byte for
    /// byte, so that replacing the prefix in a lock file gives upstream's URL.
    pub fn link(&self) -> String {
        match (segments(self), self.url.split_once("://")) {
            (Some(_), Some((_, rest))) => format!("+upstream/{rest}"),
            _ => self.devpi_link(),
        }
    }

    /// The link in one canonical spelling, whichever upstream has: the cache's key for the file.
    pub fn canonical_link(&self) -> String {
        segments(self).map_or_else(|| self.devpi_link(), |parts| joined(&parts))
    }

    /// devpi's link, below the mirror: a relative URL, which leads to the file here as well.
    pub fn devpi_link(&self) -> String {
        let name = encoded(&self.filename);
        match (self.sha256(), directory_of(self)) {
            (Some(digits), _) => format!("+f/{}/{}/{name}", &digits[..3], &digits[3..16]),
            (None, Some(directory)) => format!("+e/{}/{name}", encoded(&directory)),
            (None, None) => format!("+e/unknown/{name}"),
        }
    }
}

/// The projects that a file with this name may be of, likeliest first; at most eight. A wheel's name is unambiguous, in
/// others the version may begin after any hyphen; in a name without one, after any `_` or `.`, or with the first digit.
pub fn projects_of(filename: &str) -> Vec<ProjectName> {
    let mut projects: Vec<ProjectName> = Vec::new();
    each_candidate(filename, &mut |text| {
        if let Ok(name) = ProjectName::normalize(text)
            && !projects.contains(&name)
        {
            projects.push(name);
        }
        false
    });
    projects
}

/// Whether [`projects_of`] has this project.
pub(super) fn may_be_of(filename: &str, project: &ProjectName) -> bool {
    each_candidate(filename, &mut |text| normalized(text) == project.as_str())
}

/// Calls `take` with what may be the project's name, until it returns true; returns whether it did.
fn each_candidate(filename: &str, take: &mut dyn FnMut(&str) -> bool) -> bool {
    const CANDIDATES_MAX: usize = 8;
    if check_segment(filename).is_err() {
        return false;
    }
    let known = Filename::of_upstream(filename).ok();
    let parts = known.as_ref().and_then(|known| known.split(None));
    let likeliest = parts.as_ref().map(|parts| parts.project);
    if parts.as_ref().is_some_and(|parts| parts.tags.is_some()) {
        return likeliest.is_some_and(take);
    }
    let stem = known.as_ref().map_or(filename, Filename::stem);
    let separators: &[char] = if stem.contains('-') { &['-'] } else { &['_', '.'] };
    let shorter = stem.rmatch_indices(separators).map(|(at, _)| &stem[..at]);
    let letters = stem.find(|one: char| one.is_ascii_digit()).map(|at| &stem[..at]);
    let letters = letters.filter(|letters| letters.ends_with(|it: char| it.is_ascii_alphabetic()));
    let whole = (separators.len() > 1).then_some(stem);
    let rest = whole.into_iter().chain(whole.and(letters));
    likeliest.into_iter().chain(shorter).chain(rest).take(CANDIDATES_MAX).any(take)
}
