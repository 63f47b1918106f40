//! `/{user}/{index}/{project}/+downloads` for people: how often its releases were downloaded, as a chart and a list; and [`RecentDownloads`], a
//! line and a smaller chart on the page of the project.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;
use pypi::{ProjectName, StageName};

use crate::front::chart::{points, step_of};
use crate::front::display::{self, in_path};
use crate::front::page::{self, Audience, Site, separated};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::downloads::{LATELY_DAYS, ProjectDays, day, lately, of_project, sum};
use crate::protocols::python::error::ApiError;
use crate::protocols::python::names::Project;

/// Days of a week, which has a column of its own.
const WEEK: i64 = 7;

#[derive(Template)]
#[template(path = "downloads.html")]
struct DownloadsPage<'a> {
    site: Site,
    stage: &'a str,
    path: String,
    name: &'a str,
    first: String,
    last: String,
    total: String,
    /// The most of a day.
    most: String,
    points: String,
    releases: Vec<Release<'a>>,
    /// How many more releases there are, in words.
    more: String,
}

/// The downloads of the last days.
pub(super) struct RecentDownloads {
    pub(super) days: i64,
    /// How many, in words.
    pub(super) total: String,
    pub(super) chart: Option<RecentChart>,
}

pub(super) struct RecentChart {
    pub(super) first: String,
    pub(super) last: String,
    /// The most of a day.
    pub(super) most: String,
    pub(super) points: String,
}

impl RecentDownloads {
    /// Of the project in these indexes together. `None` if they are not counted, or not known soon.
    pub(super) async fn of(
        ask: &Ask,
        holders: impl Iterator<Item = &StageName>,
        name: &ProjectName,
    ) -> Option<RecentDownloads> {
        let (days, total) = lately(ask, holders, name).await?;
        let (first, last) = (day(days.0), day(days.1));
        let (most, points) = chart(days, &total);
        let chart = (!total.is_empty()).then_some(RecentChart { first, last, most, points });
        Some(RecentDownloads { days: LATELY_DAYS, total: in_words(sum(&total)), chart })
    }
}

/// A line of the list.
struct Release<'a> {
    version: &'a str,
    path: String,
    week: u64,
    total: u64,
}

/// `GET /{user}/{index}/{project}/+downloads`, as a page.
pub(crate) async fn show_downloads(
    ask: &Ask,
    stage: &str,
    project: &Project,
) -> Result<Response, ApiError> {
    let found = of_project(ask, stage, project).await?;
    let page = DownloadsPage::of(ask.site(), &found);
    Ok(page::send(&page, &ask.head, Audience::Reader).await)
}

impl Release<'_> {
    fn shown(&self) -> [String; 2] {
        [shown(self.week), shown(self.total)]
    }
}

impl<'a> DownloadsPage<'a> {
    fn of(site: Site, found: &'a ProjectDays<'_>) -> DownloadsPage<'a> {
        let (first, last) = found.days;
        let (most, points) = chart(found.days, &found.total);
        let release = |(version, days): &'a (String, BTreeMap<i64, u64>)| Release {
            version,
            path: in_path(version),
            week: days.range(last - WEEK + 1..).map(|(_, count)| count).sum(),
            total: sum(days),
        };
        let name = found.stage.name().as_str();
        DownloadsPage {
            stage: name,
            path: in_path(name),
            name: found.project.as_str(),
            first: day(first),
            last: day(last),
            total: in_words(sum(&found.total)),
            most,
            points,
            releases: found.releases.iter().map(release).collect(),
            more: match usize::try_from(found.more).unwrap_or(usize::MAX) {
                0 => String::new(),
                more => format!("And {} with fewer.", display::count(more, "other", "others")),
            },
            site,
        }
    }
}

/// The most of a day, and the points of a line with all days.
fn chart((first, last): (i64, i64), total: &BTreeMap<i64, u64>) -> (String, String) {
    let on = |at: i64| total.get(&at).copied().unwrap_or_default() as f64;
    let line: Vec<f64> = (first..=last).map(on).collect();
    let most = total.values().copied().max().unwrap_or_default();
    (shown(most), points(&line, step_of(line.len())))
}

fn in_words(total: u64) -> String {
    match total {
        1 => "1 download".to_owned(),
        total => format!("{} downloads", shown(total)),
    }
}

/// A count as people read it.
fn shown(count: u64) -> String {
    separated(usize::try_from(count).unwrap_or(usize::MAX))
}
