//! [`RequiredBy`]: which projects of the Python index a project is required by, as published.
//!
//! a commit -> the tail publishes it ([`state::stored`]) -> [`crate::tasks::required_by`] reads the metadata of the projects
//! whose newest version is another -> an index, published here -> pages. No write and no page waits for it.

use std::sync::Arc;

use account::{Portion, Principal};
use jiff::Timestamp;
use pypi::policy::shows_version;
use pypi::{ProjectName, Stage};
use state::live::Live;
use state::stored::Stored;

/// Projects that a page lists.
const LISTED_MAX: usize = 50;

/// Readable requirers that are looked for at most: those beyond the listed ones are only counted.
const COUNTED_MAX: usize = 200;

/// Projects of readable stages that are checked: a token may be limited to few of them.
const LOOKED_AT_MAX: usize = 2_000;

/// The index, as of one commit.
#[derive(Debug, Default)]
pub(crate) struct RequiredBy {
    /// The index.
    pub(crate) index: pypi::RequiredBy,
    /// Whether the metadata of all projects was looked at once.
    pub(crate) is_complete: bool,
    /// Whether the requirements of some projects were left out because memory is bounded.
    pub(crate) is_full: bool,
}

/// The published index; empty before the first.
pub(crate) type LiveRequiredBy = Live<RequiredBy>;

/// The projects that require one, as far as somebody may see them.
#[derive(Debug, Default)]
pub(crate) struct Requirers {
    /// Stages and names of projects in their order, at most [`LISTED_MAX`].
    pub(crate) listed: Vec<(String, String)>,
    /// How many there are that are not listed.
    pub(crate) more: usize,
    /// Whether there may be more than these.
    pub(crate) is_cut: bool,
    /// Whether some may be missing, as the server has not read everything yet.
    pub(crate) is_partial: bool,
    /// Whether some may be missing, as the index had no room for them.
    pub(crate) is_full: bool,
    /// Whether a policy was asked, which may decide differently at another time.
    pub(crate) is_judged: bool,
}

impl RequiredBy {
    /// The projects whose newest version requires `name`. What the asker may not read, or a policy hides, is neither listed nor
    /// counted.
    pub(crate) fn requirers(&self, stored: &Stored, asker: &Principal, name: &str) -> Requirers {
        let stage_of = |name: &str| stored.index.stage(name);
        let admits = |stage: &Stage| stage.may_read(asker, Portion::Unnamed);
        let found = self
            .index
            .requiring(name, |stage| stage_of(stage.as_str()).is_some_and(|stage| admits(stage)));
        let now = Timestamp::now();
        let (mut looked_at, mut is_judged) = (0, false);
        let visible = |(stage, project): &(&pypi::StageName, &ProjectName)| {
            let Some(stage) = stage_of(stage.as_str()) else { return false };
            looked_at += 1;
            is_judged |= stage.config().policy.is_some();
            is_shown(stage, project, asker, now)
        };
        let visible = found.take(LOOKED_AT_MAX).filter(visible).take(COUNTED_MAX + 1);
        let mut listed: Vec<(String, String)> =
            visible.map(|(stage, project)| (stage.to_string(), project.to_string())).collect();
        let is_cut = listed.len() > COUNTED_MAX || looked_at == LOOKED_AT_MAX;
        listed.truncate(COUNTED_MAX);
        listed.sort();
        let more = listed.len().saturating_sub(LISTED_MAX);
        listed.truncate(LISTED_MAX);
        let (is_partial, is_full) = (!self.is_complete, self.is_full);
        Requirers { listed, more, is_cut, is_partial, is_full, is_judged }
    }
}

/// Whether the asker sees the newest version of a project, which is the one in the index.
fn is_shown(stage: &Arc<Stage>, name: &ProjectName, asker: &Principal, now: Timestamp) -> bool {
    if !stage.may_read(asker, Portion::Project(name.as_str())) {
        return false;
    }
    // The index may be a moment older.
    let Some(project) = stage.project(name.as_str()) else { return false };
    let latest = project.latest_version();
    latest.is_some_and(|latest| shows_version(stage, name, project, latest.as_str(), now))
}
