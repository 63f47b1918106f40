//! `/{user}/{index}/{project}/+downloads` for people: how often its releases were downloaded, as a chart and a list.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::Response;

use crate::front::chart::{points, step_of};
use crate::front::display::{self, in_path};
use crate::front::page::{self, Audience, Site, separated};
use crate::protocols::python::ask::Ask;
use crate::protocols::python::downloads::{Found, day, of_project, sum};
use crate::protocols::python::refused::Refused;
use crate::protocols::python::route::Project;

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
) -> Result<Response, Refused> {
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
    fn of(site: Site, found: &'a Found<'_>) -> DownloadsPage<'a> {
        let (first, last) = found.days;
        let on = |at: i64| found.total.get(&at).copied().unwrap_or_default();
        let line: Vec<f64> = (first..=last).map(|at| on(at) as f64).collect();
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
            total: match sum(&found.total) {
                1 => "1 download".to_owned(),
                total => format!("{} downloads", shown(total)),
            },
            most: shown(found.total.values().copied().max().unwrap_or_default()),
            points: points(&line, step_of(line.len())),
            releases: found.releases.iter().map(release).collect(),
            more: match usize::try_from(found.more).unwrap_or(usize::MAX) {
                0 => String::new(),
                more => format!("And {} with fewer.", display::count(more, "other", "others")),
            },
            site,
        }
    }
}

/// A count as people read it.
fn shown(count: u64) -> String {
    separated(usize::try_from(count).unwrap_or(usize::MAX))
}
