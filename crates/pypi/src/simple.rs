//! The simple pages: what installers read, as HTML (PEP 503, 592, 629, 658, 700, 714, 792) and as JSON
//! (PEP 691, 700, 714, 792).
//!
//! A [`ResolutionOrder`] and a project -> the bytes of a page. Links are relative, so that a page is the same under
//! every host name and path prefix; the caller says how many `../` lead to the root. Only URLs of provenances are absolute where
//! the root's URL is known, as PEP 740 wants them.

pub(crate) mod merged;
pub(crate) mod one_project;

use std::fmt::Write as _;

use jiff::Timestamp;
use reply::Reply;

use self::merged::{MergedPage, merged_page};
use crate::inherit::{ProjectView, ResolutionOrder};
use crate::osv::AdvisoryStamp;
use crate::policy::{HiddenFiles, Judge, VisibleProjects, Warnings};
use crate::upstream::Locations;
use crate::url::encoded;
use crate::{ProjectName, StageName};

/// The format of a page, and its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageForm {
    /// HTML for installers.
    Html,
    /// HTML for people: newest version first, with a button to refresh, and a remark about hidden files.
    Human,
    /// `application/vnd.pypi.simple.v1+json`.
    Json,
}

/// The version of the interface: PEP 629's for HTML, `api-version` for JSON.
const API_VERSION: &str = "1.4";

impl PageForm {
    /// The media type, as sent.
    pub fn content_type(self) -> &'static str {
        match self {
            PageForm::Html | PageForm::Human => "text/html; charset=UTF-8",
            PageForm::Json => "application/vnd.pypi.simple.v1+json",
        }
    }
}

/// A rendered page, and what a policy left out of it.
#[derive(Clone, Debug)]
pub struct RenderedPage {
    /// The page.
    pub reply: Reply,
    /// When it is out of date although nothing was changed: a file is no longer refused. `None`: never.
    pub expires_at: Option<Timestamp>,
    /// How many files it leaves out.
    pub hidden_files: u64,
    /// The records of malware and vulnerabilities that decided: when others are published, the page is out of date. `None` if
    /// none did.
    pub judged: Option<AdvisoryStamp>,
    /// The upstream's serial of the page, if it is the page of a mirror itself.
    pub last_serial: Option<u64>,
}

impl RenderedPage {
    pub(crate) fn of(form: PageForm, text: String, hidden: &HiddenFiles) -> RenderedPage {
        RenderedPage {
            reply: Reply::tagged(form.content_type(), text),
            expires_at: hidden.until(),
            hidden_files: hidden.files(),
            judged: None,
            last_serial: None,
        }
    }

    /// A list, which is out of date as soon as `listed` is.
    pub(crate) fn of_list(
        form: PageForm,
        text: String,
        listed: &VisibleProjects<'_>,
    ) -> RenderedPage {
        RenderedPage {
            expires_at: listed.until(),
            judged: listed.judged().cloned(),
            ..RenderedPage::of(form, text, &HiddenFiles::default())
        }
    }

    /// The page, which is out of date when an exception ends, too, and when other records count than this judge asked.
    pub(crate) fn until(mut self, judge: Option<&Judge<'_>>) -> RenderedPage {
        let until = judge.and_then(Judge::exceptions_until);
        self.expires_at = [self.expires_at, until].into_iter().flatten().min();
        self.judged = judge.and_then(Judge::judged).cloned();
        self
    }
}

/// How links begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links<'text> {
    /// With this many `../` to the root: 4 from `/{user}/{index}/+simple/{project}/`, 3 from
    /// `/{user}/{index}/+simple/`. At least 1.
    Depth(u8),
    /// As [`Links::Depth`], with the URL of the root, without a trailing slash: URLs that have to be absolute begin with it.
    DepthOf(u8, &'text str),
    /// With the URL of the root, without a trailing slash.
    Absolute(&'text str),
}

impl<'text> Links<'text> {
    /// Relative links with this many `../` to the root, whose URL may be known.
    pub fn within(depth: u8, root: Option<&'text str>) -> Links<'text> {
        root.map_or(Links::Depth(depth), |root| Links::DepthOf(depth, root))
    }

    /// The links for URLs that have to be absolute.
    fn absolute(self) -> Links<'text> {
        match self {
            Links::DepthOf(_, root) => Links::Absolute(root),
            links => links,
        }
    }

    /// The part of a link before `+f/…`: to a file of `stage`, on a page of the stage `from`.
    fn to_stage(self, stage: &StageName, from: &StageName) -> String {
        match self {
            Links::Depth(depth @ 2..) | Links::DepthOf(depth @ 2.., _) if stage == from => {
                "../".repeat(usize::from(depth) - 2)
            }
            Links::Depth(_) | Links::DepthOf(..) if stage == from => {
                format!("{}/", encoded(stage.index()))
            }
            Links::Depth(depth) | Links::DepthOf(depth, _) => {
                let up = "../".repeat(usize::from(depth));
                format!("{up}{}/{}/", encoded(stage.user()), encoded(stage.index()))
            }
            Links::Absolute(root) => {
                format!("{root}/{}/{}/", encoded(stage.user()), encoded(stage.index()))
            }
        }
    }
}

/// Appends `text`, escaped for HTML text and attributes.
fn push_escaped(page: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) =
        rest.bytes().position(|byte| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\''))
    {
        page.push_str(&rest[..at]);
        page.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            _ => "&#x27;",
        });
        rest = &rest[at + 1..];
    }
    page.push_str(rest);
}

/// Appends `text` as a JSON string.
fn push_json(page: &mut String, text: &str) {
    // Most texts of a page are names and digests, which need no escape.
    if text.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\')) {
        page.push('"');
        page.push_str(text);
        page.push('"');
        return;
    }
    // serde_json escapes the text; that cannot fail.
    page.push_str(&serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned()));
}

/// Appends a time in PEP 700's format: `2026-01-31T23:59:59.000000Z`.
fn push_time(page: &mut String, microseconds: i64) {
    let time = jiff::Timestamp::from_microsecond(microseconds).unwrap_or_default();
    _ = write!(page, "{time:.6}");
}

/// The page of a project that only the stages themselves have.
pub(crate) fn project_page(
    order: &ResolutionOrder<'_>,
    view: &ProjectView<'_>,
    project: &ProjectName,
    form: PageForm,
    links: Links<'_>,
    judge: Option<&Judge<'_>>,
) -> RenderedPage {
    let blocked = view.blocked_mirrors();
    let (own, upstream, apart) = (Some(view), &[], &[]);
    merged_page(&MergedPage { order, own, upstream, blocked, apart, project, judge }, form, links)
}

/// The text for people before the links.
fn human_lead(
    order: &ResolutionOrder<'_>,
    blocked_mirrors: &[&StageName],
    hidden: &HiddenFiles,
    warnings: &Warnings,
    prefix: &str,
    project: &str,
) -> String {
    let value = if order.has_mirror() { "Refresh mirror links" } else { "Refresh" };
    let mut lead = format!(
        "<form action=\"{prefix}+simple/{project}/refresh\" method=\"post\">\
         <input name=\"refresh\" type=\"submit\" value=\"{value}\"></form>\n"
    );
    for mirror in blocked_mirrors {
        lead.push_str(
            "<p><strong>INFO:</strong> Because this project isn't in the \
             <code>mirror_whitelist</code>, no releases from <strong>",
        );
        push_escaped(&mut lead, mirror.as_str());
        lead.push_str("</strong> are included.</p>\n");
    }
    let hidden = hidden.sentences().map(|sentence| ("INFO", sentence));
    for (kind, sentence) in hidden.chain(warnings.sentences().map(|it| ("WARNING", it))) {
        _ = write!(lead, "<p><strong>{kind}:</strong> ");
        push_escaped(&mut lead, &sentence);
        lead.push_str(".</p>\n");
    }
    lead
}

fn push_meta(page: &mut String, name: &str, content: &str) {
    page.push_str("<meta name=\"pypi:");
    page.push_str(name);
    page.push_str("\" content=\"");
    push_escaped(page, content);
    page.push_str("\">");
}

/// The places of a project, in the head of a page as HTML.
fn push_meta_locations(page: &mut String, locations: &Locations) {
    locations.tracks.iter().for_each(|url| push_meta(page, "tracks", url));
    locations.alternates.iter().for_each(|url| push_meta(page, "alternate-locations", url));
}

/// The beginning of a page as JSON: the version, the name, and the places of the project.
fn push_json_head(
    page: &mut String,
    project: &str,
    locations: &Locations,
    last_serial: Option<u64>,
) {
    _ = write!(page, "{{\"meta\":{{\"api-version\":\"{API_VERSION}\"");
    if let Some(serial) = last_serial {
        _ = write!(page, ",\"_last-serial\":{serial}");
    }
    push_urls(page, "tracks", &locations.tracks);
    _ = write!(page, "}},\"name\":\"{project}\"");
    push_urls(page, "alternate-locations", &locations.alternates);
}

fn push_urls(page: &mut String, key: &str, urls: &[Box<str>]) {
    for (position, url) in urls.iter().enumerate() {
        match position {
            0 => _ = write!(page, ",\"{key}\":["),
            _ => page.push(','),
        }
        push_json(page, url);
    }
    if !urls.is_empty() {
        page.push(']');
    }
}

fn push_status(page: &mut String, status: Option<(&str, Option<&str>)>) {
    let Some((marker, reason)) = status else { return };
    _ = write!(page, ",\"project-status\":{{\"status\":\"{marker}\"");
    if let Some(reason) = reason {
        page.push_str(",\"reason\":");
        push_json(page, reason);
    }
    page.push('}');
}

/// What a policy hides, under our own key: the interface reserves keys with an underscore for the server.
fn push_hidden(page: &mut String, hidden: &HiddenFiles) {
    if !hidden.is_empty() {
        _ = write!(page, ",\"_hidden\":{}", hidden.to_json());
    }
}

/// The list of all projects of a stage and its bases, without those that a policy hides entirely.
pub(crate) fn list_page(
    order: &ResolutionOrder<'_>,
    form: PageForm,
    links: Links<'_>,
    now: Timestamp,
) -> RenderedPage {
    if form != PageForm::Human {
        return merged::merged_list(order, &[], form, links, now);
    }
    let listed = VisibleProjects::of(order, now);
    RenderedPage::of_list(form, list_human(order, &listed, links), &listed)
}

/// Says how many projects policies hide, to people.
fn push_hidden_projects(page: &mut String, count: usize) {
    let are = if count == 1 { "project is" } else { "projects are" };
    if count > 0 {
        _ = writeln!(page, "<p><strong>INFO:</strong> {count} {are} hidden by policies.</p>");
    }
}

/// The prefix of links to projects on a list.
fn to_projects(links: Links<'_>, stage: &StageName) -> String {
    match links {
        // Seen from `/{user}/{index}/+simple/`, the project is one segment below.
        Links::Depth(3) | Links::DepthOf(3, _) => String::new(),
        _ => format!("{}+simple/", links.to_stage(stage, stage)),
    }
}

fn list_head(stage: &StageName, bytes: usize) -> String {
    let mut page = String::with_capacity(512 + bytes);
    page.push_str("<!DOCTYPE html><html lang=\"en\"><head>");
    push_meta(&mut page, "repository-version", API_VERSION);
    for (open, close) in [("<title>", "</title></head><body><h1>"), ("", "</h1>\n")] {
        page.push_str(open);
        push_escaped(&mut page, stage.as_str());
        page.push_str(": simple list (including inherited indices)");
        page.push_str(close);
    }
    page
}

fn push_project_link(page: &mut String, prefix: &str, name: &str) {
    for text in ["<a href=\"", prefix, name, "/\">", name, "</a><br>\n"] {
        page.push_str(text);
    }
}

/// The list for people: projects in groups, by the first stage that has them.
fn list_human(
    order: &ResolutionOrder<'_>,
    listed: &VisibleProjects<'_>,
    links: Links<'_>,
) -> String {
    let stage = order.stages()[0].name();
    let prefix = to_projects(links, stage);
    let mut page = list_head(stage, 1024);
    push_hidden_projects(&mut page, listed.hidden());
    for (at, stage) in order.stages().iter().enumerate() {
        page.push_str("<h2>");
        push_escaped(&mut page, stage.name().as_str());
        let bases = stage.config().bases();
        if !bases.is_empty() {
            let bases: Vec<&str> = bases.iter().map(StageName::as_str).collect();
            page.push_str(" (bases: ");
            push_escaped(&mut page, &bases.join(","));
            page.push(')');
        }
        page.push_str("</h2>\n");
        let nearer = &order.stages()[..at];
        let is_first = |name: &&str| nearer.iter().all(|nearer| nearer.project(name).is_none());
        for name in stage.names().filter(is_first).filter(|name| !listed.hides(name)) {
            push_project_link(&mut page, &prefix, name);
        }
    }
    page.push_str("</body></html>\n");
    page
}

#[cfg(test)]
mod tests;
