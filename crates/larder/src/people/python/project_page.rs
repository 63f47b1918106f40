//! [`ProjectPage`]: the page of a project, or of one of its versions. Own and mirrored projects share it.

use account::Principal;
use askama::Template;
use pypi::index_log::LogLine;
use pypi::upstream::Locations;
use pypi::{ProjectName, ResolutionOrder};

use super::description::ReleaseMetadata;
use super::downloads::RecentDownloads;
use super::file_query::{Choices, Span};
use super::file_tests::{self, FileTests};
use super::index_log::who;
use crate::front::display::{self, Time, in_path};
use crate::front::page::Site;
use crate::protocols::python::ask::Ask;
use crate::published::required_by::Requirers;
use crate::published::tox_outcomes::ToxTally;

/// Versions in the list, or in each part of it if all are asked for; and files on a page.
pub(super) const VERSIONS: usize = 50;
pub(super) const VERSIONS_OF_PART: usize = 100;
pub(super) const FILES: usize = 40;

/// A list of at most so many files is not folded.
const FILES_UNFOLDED: usize = 2;

#[derive(Template)]
#[template(path = "project.html")]
pub(super) struct ProjectPage<'a> {
    pub(super) site: Site,
    /// The index that was asked, and its path.
    pub(super) stage: &'a str,
    pub(super) path: String,
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    /// Whether a version was asked for, rather than the project.
    pub(super) is_release: bool,
    pub(super) is_prerelease: bool,
    /// The version that is shown by default, if this is another one.
    pub(super) newest: Option<String>,
    pub(super) yanked: Option<String>,
    /// Who yanked it, as far as the log says.
    pub(super) yanked_by: Option<Actor<'a>>,
    pub(super) status: Option<Status<'a>>,
    pub(super) described: ReleaseMetadata,
    /// The files on this page, which part of the chosen ones that is, and what can be chosen.
    pub(super) files: Vec<File<'a>>,
    pub(super) span: Span,
    pub(super) choices: Choices,
    /// The query of the page with all files.
    pub(super) all_files: String,
    pub(super) hidden: Vec<HiddenFile<'a>>,
    pub(super) quarantined_in: Vec<&'a str>,
    /// What a policy withholds, in words.
    pub(super) held_back: Vec<String>,
    /// The files that a policy warns of, in words.
    pub(super) warned: Vec<String>,
    pub(super) documentation: Option<String>,
    /// The versions that the shown one can be compared with, and the path for that.
    pub(super) others: Vec<String>,
    pub(super) version_path: String,
    pub(super) versions: Vec<Version>,
    /// Which part of all versions that is, if they were asked for.
    pub(super) versions_span: Option<Span>,
    /// How many there are if there are more, and the query of the page that has them.
    pub(super) all_versions: Option<(usize, String)>,
    pub(super) origins: Vec<Origin<'a>>,
    pub(super) required_by: RequiredBy,
    /// Whether the index itself has something of it, and so a log.
    pub(super) is_own: bool,
    /// Whether its downloads are counted.
    pub(super) counts_downloads: bool,
    /// How often, on the page of the whole project.
    pub(super) lately: Option<RecentDownloads>,
    /// Whether the reader may yank and remove releases of it in this index.
    pub(super) is_managed: bool,
    pub(super) asked_mirrors: Vec<&'a str>,
    pub(super) blocked_mirrors: Vec<&'a str>,
    /// The other places of the project.
    pub(super) locations: Locations,
}

/// Who did something, and when.
pub(super) struct Actor<'a> {
    pub(super) who: &'a str,
    pub(super) at: Time,
}

impl<'a> Actor<'a> {
    /// What the line of a log says.
    pub(super) fn of(line: &'a LogLine) -> Actor<'a> {
        Actor { who: who(line), at: Time(line.at) }
    }
}

/// A state that the owner of the project set.
pub(super) struct Status<'a> {
    /// Who set it, as far as the log says.
    pub(super) by: Option<Actor<'a>>,
    pub(super) marker: &'a str,
    pub(super) means: &'static str,
    pub(super) reason: &'a str,
}

/// A file of the version that is shown.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) url: String,
    pub(super) kind: &'static str,
    pub(super) size: String,
    pub(super) at: Option<Time>,
    pub(super) who: Option<&'a str>,
    pub(super) sha256: String,
    pub(super) requires_python: &'a str,
    pub(super) metadata: Option<String>,
    /// The page with the file's contents.
    pub(super) contents: Option<String>,
    pub(super) provenance: Option<String>,
    /// The job of a CI system that is known to have signed its attestations.
    pub(super) attested_by: Option<&'a str>,
    pub(super) yanked: Option<&'a str>,
    pub(super) stage: &'a str,
    /// Its test results, if it has any.
    pub(super) tests: Option<FileTests>,
}

/// A file that a nearer index hides.
pub(super) struct HiddenFile<'a> {
    pub(super) name: &'a str,
    pub(super) stage: &'a str,
    pub(super) by: &'a str,
    /// Whether the bytes are the same.
    pub(super) is_same: bool,
}

/// A line of the list of versions.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) version: String,
    pub(super) path: String,
    pub(super) is_shown: bool,
    pub(super) is_prerelease: bool,
    pub(super) is_yanked: bool,
    pub(super) files: String,
    pub(super) at: Option<Time>,
    pub(super) stage: String,
    pub(super) also_in: Vec<String>,
}

/// An index that has some of the project.
pub(super) struct Origin<'a> {
    pub(super) stage: &'a str,
    pub(super) path: String,
    pub(super) versions: String,
}

/// The projects of this server that require the one on the page.
pub(super) struct RequiredBy {
    /// Paths, names, and indexes.
    pub(super) listed: Vec<(String, String, String)>,
    /// A remark about those that are not shown.
    pub(super) rest: &'static str,
    pub(super) more: String,
    pub(super) is_judged: bool,
}

impl RequiredBy {
    pub(super) fn of(ask: &Ask, principal: &Principal, name: &ProjectName) -> RequiredBy {
        let found = ask.app.python.required_by.snapshot();
        let found = found.map(|it| it.requirers(&ask.stored, principal, name.as_str()));
        let found = found.unwrap_or_else(|| Requirers { is_partial: true, ..Requirers::default() });
        let line = |(stage, name): (String, String)| {
            (format!("{}/{}", in_path(&stage), in_path(&name)), name, stage)
        };
        RequiredBy {
            listed: found.listed.into_iter().map(line).collect(),
            rest: match (found.is_partial, found.is_full) {
                (true, _) => {
                    "The server has just started, and is still reading what projects require."
                }
                (_, true) => {
                    "The list may lack some: there are more requirements on this server than it keeps in memory."
                }
                _ => "",
            },
            is_judged: found.is_judged,
            more: match (found.more, found.is_cut) {
                (0, true) => "There may be others.".to_owned(),
                (0, false) => String::new(),
                (more, true) => format!("And more than {more} others."),
                (more, false) => format!("And {}.", display::count(more, "other", "others")),
            },
        }
    }
}

impl ProjectPage<'_> {
    fn user(&self) -> &str {
        self.stage.split_once('/').map_or(self.stage, |(user, _)| user)
    }

    /// Whether the list of files is unfolded: where there is nothing else to read, or just a few.
    fn are_files_open(&self) -> bool {
        let is_chosen = self.choices.is_narrowed || self.span.first > 1;
        is_chosen || self.described.description.is_none() || self.files.len() <= FILES_UNFOLDED
    }

    fn file_count(&self) -> String {
        let all = display::count(self.choices.all, "file", "files");
        match (self.choices.is_narrowed, self.span.is_partial()) {
            (false, false) => all,
            (true, false) => format!("{} of {all}", self.span.all),
            (false, true) => format!("{all}, {} to {}", self.span.first, self.span.last),
            (true, true) => {
                let Span { first, last, all: chosen, .. } = self.span;
                format!("{chosen} of {all}, {first} to {last}")
            }
        }
    }

    /// How the tests of its files ended, where the files are folded, and all but how many failed, in words.
    fn tests(&self) -> Option<(ToxTally, String)> {
        let tested = self.files.iter().filter_map(|file| file.tests.as_ref());
        let tally = file_tests::sum(tested).filter(|_| !self.are_files_open())?;
        Some((tally, file_tests::all_but_failed(&tally)))
    }

    /// The link to this page with another query.
    fn with(&self, query: &str) -> String {
        let (prefix, path, name) = (self.site.prefix(), &self.path, self.name);
        let version =
            if self.is_release { format!("/{}", self.version_path) } else { String::new() };
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{prefix}/{path}/{name}{version}{mark}{query}")
    }

    /// The argument of `pip install`.
    fn requirement(&self) -> String {
        match self.is_release && !self.version.is_empty() {
            true => format!("{}=={}", self.name, self.version),
            false => self.name.to_owned(),
        }
    }
}

impl<'a> Status<'a> {
    pub(super) fn of(marker: &'a str, reason: &'a str) -> Option<Status<'a>> {
        let means = match marker {
            "archived" => "no more updates are expected",
            "quarantined" => {
                "it is not to be used until somebody has examined it; its files are not listed"
            }
            "deprecated" => "something else should be used",
            _ => return None,
        };
        Some(Status { by: None, marker, means, reason })
    }
}

pub(super) fn own_name<'a>(order: &ResolutionOrder<'a>) -> &'a str {
    order.stages().first().map_or("", |stage| stage.name().as_str())
}

pub(super) fn kind(filename: &str) -> &'static str {
    match filename.rsplit('.').next().unwrap_or_default() {
        "whl" => "wheel",
        "gz" | "zip" | "bz2" | "xz" | "tgz" => "source",
        "egg" => "egg",
        _ => "file",
    }
}
