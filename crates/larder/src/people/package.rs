//! `/packages/{package}`, `/pkgbase/{base}` and `/account/{maintainer}`: a package, a base and a person, under aurweb's URLs.
//! All of it is in the snapshot; each list is bounded and shows its length.

use std::borrow::Cow;
use std::sync::Arc;

use askama::Template;
use aur::{By, Details, Filter, ListWindow, Order, PackageSelection, PackageSummary, Snapshot};
use axum::response::Response;
use config::AurSource;
use jiff::Timestamp;
use serde_json::Value;

use super::days::{Day, PageLink};
use super::package_past::PackagePast;
use crate::app::App;
use crate::front::display::name_in_path;
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, PageCacheKey, Site};
use crate::front::request::Parts;
use crate::front::turns::in_turn;
use crate::protocols::changes::Histories;
use crate::published::finished_pages::MadeOf;
use crate::routes::Route;
use crate::routes::Surface;

/// Dependencies of one kind that are shown.
const DEPENDENCIES_MAX: usize = 250;

/// Packages that are named for providing a dependency.
const PROVIDERS_MAX: usize = 3;

/// Packages that are named for needing one, of each kind.
const DEPENDENTS_MAX: usize = 20;

/// Provided names of a package whose dependents are looked up.
const PROVIDED_MAX: usize = 20;

/// Packages of a person that are shown at once.
const OF_PERSON_MAX: usize = 250;

/// A package in a list.
pub(crate) struct Row {
    pub(crate) package: PageLink,
    pub(crate) version: String,
    pub(crate) description: Option<String>,
    pub(crate) maintainer: Option<PageLink>,
    pub(crate) votes: String,
    pub(crate) popularity: String,
    pub(crate) modified: Option<Day>,
    pub(crate) is_out_of_date: bool,
}

impl From<PackageSummary> for Row {
    fn from(package: PackageSummary) -> Row {
        Row {
            package: package.name.into(),
            version: package.version,
            description: package.description.filter(|text| !text.is_empty()),
            maintainer: package.maintainer.map(PageLink::from),
            votes: page::separated(usize::try_from(package.votes).unwrap_or(usize::MAX)),
            popularity: rounded(&package.popularity),
            modified: Day::of(package.last_modified),
            is_out_of_date: package.out_of_date.is_some(),
        }
    }
}

/// A popularity with two decimals, which is enough to compare packages.
fn rounded(popularity: &str) -> String {
    popularity.parse::<f64>().map_or_else(|_| popularity.to_owned(), |it| format!("{it:.2}"))
}

/// A name in the path of a request. One that is no text is the name of nothing.
fn named(route: &Route, placeholder: &str) -> Result<String, HttpError> {
    route.text(placeholder).map(Cow::into_owned).map_err(|_| HttpError::nothing_at(route.path()))
}

/// The URL of the AUR with its git repositories and snapshots; `None` if it is not known.
fn aur_url(app: &App) -> Option<String> {
    if let Some(url) = &app.config.aur.web_url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let Some(AurSource::Url(source)) = &app.config.aur.source else { return None };
    let source = reqwest::Url::parse(source).ok()?;
    Some(source.origin().ascii_serialization())
}

/// A URL that somebody wrote, if a click on it does no more than to go there.
fn harmless(url: &str) -> Option<&str> {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    (lower.starts_with("https://") || lower.starts_with("http://")).then_some(url)
}

/// A dependency, and what of the AUR it may be.
struct Dependency {
    name: PageLink,
    /// Whether a package with this name exists.
    is_here: bool,
    /// The condition on its version.
    condition: String,
    /// The stated purpose of an optional dependency.
    purpose: String,
    providers: Vec<PageLink>,
    providers_more: usize,
}

impl Dependency {
    fn of(text: &str, snapshot: &Snapshot) -> Dependency {
        let (what, purpose) = match text.split_once(':') {
            // An epoch is part of a version.
            Some((what, purpose))
                if !what.contains(['<', '>', '=']) || purpose.starts_with(' ') =>
            {
                (what, purpose)
            }
            _ => (text, ""),
        };
        let end = what.find(['<', '>', '=']).unwrap_or(what.len());
        let (name, condition) = what.split_at(end);
        let name = name.trim();
        let is_here = snapshot.has_package(name);
        let mut dependency = Dependency {
            name: name.to_owned().into(),
            is_here,
            condition: condition.trim().to_owned(),
            purpose: purpose.trim().to_owned(),
            providers: Vec::new(),
            providers_more: 0,
        };
        if !is_here && !name.is_empty() {
            let part = popular(PROVIDERS_MAX);
            let values = [(By::Provides, name)];
            let found =
                snapshot.browse(&PackageSelection::Values(&values), Filter::default(), part);
            dependency.providers_more = found.count - found.packages.len();
            dependency.providers = names(found.packages);
        }
        dependency
    }
}

fn popular(limit: usize) -> ListWindow {
    ListWindow { order: Order::Popularity, is_descending: true, offset: 0, limit }
}

fn names(packages: Vec<PackageSummary>) -> Vec<PageLink> {
    packages.into_iter().map(|package| package.name.into()).collect()
}

/// Dependencies of one kind.
struct Dependencies {
    title: &'static str,
    count: usize,
    shown: Vec<Dependency>,
}

impl Dependencies {
    fn of(title: &'static str, texts: &[String], snapshot: &Snapshot) -> Dependencies {
        let shown = texts.iter().take(DEPENDENCIES_MAX);
        let shown = shown.map(|text| Dependency::of(text, snapshot)).collect();
        Dependencies { title, count: texts.len(), shown }
    }

    fn more(&self) -> usize {
        self.count - self.shown.len()
    }
}

/// Packages that need this one, of one kind.
struct Dependents {
    title: &'static str,
    count: String,
    shown: Vec<PageLink>,
    /// The query of the list of all, if not all are shown.
    all: Option<String>,
}

/// A member that is not known here, and its value as text.
struct Other {
    name: String,
    value: String,
}

#[derive(Template)]
#[template(path = "package.html")]
struct PackagePage {
    site: Site,
    name: PageLink,
    base: PageLink,
    version: String,
    description: Option<String>,
    url: Option<String>,
    about: About,
    pending_requests: Option<u64>,
    is_malicious: bool,
    licenses: Vec<String>,
    groups: Vec<String>,
    provides: Vec<String>,
    conflicts: Vec<String>,
    replaces: Vec<String>,
    others: Vec<Other>,
    dependencies: Vec<Dependencies>,
    dependents: Vec<Dependents>,
    dependents_count: usize,
    /// Packages of the same base.
    siblings: Vec<PageLink>,
    aur_url: Option<String>,
    /// Whether the name stands for itself in a shell.
    is_plain: bool,
    /// `None` while the history lacks the packages that are served.
    past: Option<PackagePast>,
}

impl PackagePage {
    fn link(&self) -> Option<&str> {
        self.url.as_deref().and_then(harmless)
    }

    fn dependencies_count(&self) -> usize {
        self.dependencies.iter().map(|kind| kind.count).sum()
    }
}

/// `/packages/{package}`
///
/// # Errors
/// 404 for a package that is not there; 503 until the packages are loaded.
pub(crate) async fn show_package(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let published = app.packages()?;
    let site = Site::of(app, head);
    let made_of = MadeOf::Packages(Arc::downgrade(&published));
    let mut keeping = PageCacheKey::of(head, &site, made_of);
    let kept = keeping.as_ref().and_then(|it| it.find(app, head, Audience::Everybody));
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let name = named(route, "{package}")?;
    let looking = async {
        let details = published.snapshot.details(&name)?;
        Some(package_page(app, site, &published.snapshot, details))
    };
    let found = in_turn(&app.limits.making_answers[Surface::Aur as usize], looking).await?;
    match found {
        Some(mut page) => {
            let histories = Histories::now(app, &published).await;
            let members = match &histories {
                Some(histories) => histories.members(&page.name.name).await.ok(),
                None => None,
            };
            // Without its history the page is incomplete and is not kept.
            keeping = keeping.filter(|_| members.is_some());
            if let Some(members) = members.filter(|members| !members.is_empty()) {
                page.past = Some(PackagePast::of(&members, Timestamp::now()));
            }
            Ok(match keeping {
                Some(keeping) => keeping.send(app, &page, head, Audience::Everybody).await,
                None => page::send(&page, head, Audience::Everybody).await,
            })
        }
        None => {
            let detail = match published.snapshot.base(&name) {
                Some(base) => format!(
                    "there is no package `{name}`; there is a package base of this name, at `/pkgbase/{}`",
                    name_in_path(&base.name)
                ),
                None => format!(
                    "there is no package `{name}` in the AUR, as of {}",
                    Day::of_time(published.modified_at).day
                ),
            };
            Err(HttpError::not_found(detail))
        }
    }
}

fn package_page(app: &App, site: Site, snapshot: &Snapshot, details: Details) -> PackagePage {
    let about = About::of(&details);
    let summary = details.summary;
    let siblings = snapshot.base(&summary.base).map(|base| base.packages).unwrap_or_default();
    let siblings = siblings.into_iter().filter(|package| package.name != summary.name);
    let dependencies = [
        ("To run", &details.depends),
        ("To build", &details.make_depends),
        ("To check", &details.check_depends),
        ("Optional", &details.opt_depends),
    ];
    let dependencies = dependencies
        .into_iter()
        .filter(|(_, texts)| !texts.is_empty())
        .map(|(title, texts)| Dependencies::of(title, texts, snapshot));
    let provided = details
        .provides
        .iter()
        .take(PROVIDED_MAX)
        .map(|text| text.split(['<', '>', '=']).next().unwrap_or_default().trim());
    let mut wanted: Vec<&str> = vec![summary.name.as_str()];
    for name in provided {
        if !name.is_empty() && !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    let kinds = [
        ("To run", By::Depends),
        ("To build", By::MakeDepends),
        ("To check", By::CheckDepends),
        ("Optional", By::OptDepends),
    ];
    let mut dependents_count = 0;
    let mut dependents = Vec::new();
    for (title, by) in kinds {
        let values: Vec<_> = wanted.iter().map(|name| (by, *name)).collect();
        let part = popular(DEPENDENTS_MAX);
        let found = snapshot.browse(&PackageSelection::Values(&values), Filter::default(), part);
        if found.count == 0 {
            continue;
        }
        dependents_count += found.count;
        let all = (found.count > found.packages.len()).then(|| {
            form_urlencoded::Serializer::new(String::new())
                .append_pair("K", &wanted.join(" "))
                .append_pair("SeB", by.name())
                .finish()
        });
        let count = page::separated(found.count);
        dependents.push(Dependents { title, count, shown: names(found.packages), all });
    }
    let is_malicious = |(name, value): &(String, Value)| {
        name == "FlaggedMalicious" && !matches!(value, Value::Null | Value::Bool(false))
    };
    PackagePage {
        site,
        siblings: siblings.map(|package| package.name.into()).collect(),
        is_plain: is_plain(&summary.name),
        about,
        base: summary.base.into(),
        version: summary.version,
        description: summary.description.filter(|text| !text.is_empty()),
        url: details.url.filter(|url| !url.is_empty()),
        pending_requests: details.pending_requests.filter(|count| *count > 0),
        is_malicious: details.others.iter().any(is_malicious),
        licenses: details.licenses,
        groups: details.groups,
        dependencies: dependencies.collect(),
        dependents,
        dependents_count,
        provides: details.provides,
        conflicts: details.conflicts,
        replaces: details.replaces,
        others: details
            .others
            .into_iter()
            .map(|(name, value)| Other {
                name,
                value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            })
            .collect(),
        aur_url: aur_url(app),
        name: summary.name.into(),
        past: None,
    }
}

/// Whether pacman allows the name, which then has no characters that are special in a shell.
fn is_plain(name: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '_' | '+' | '-');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_sign)
}

#[derive(Template)]
#[template(path = "pkgbase.html")]
struct BasePage {
    site: Site,
    name: PageLink,
    packages: Vec<Row>,
    about: Option<About>,
    aur_url: Option<String>,
}

/// The facts that all packages of a base share.
struct About {
    maintainer: Option<PageLink>,
    co_maintainers: Vec<PageLink>,
    submitter: Option<PageLink>,
    votes: String,
    popularity: String,
    first_submitted: Option<Day>,
    last_modified: Option<Day>,
    out_of_date: Option<Day>,
    keywords: Vec<String>,
    /// The AUR's path to the sources as an archive.
    snapshot_path: String,
}

impl About {
    fn of(details: &Details) -> About {
        let summary = &details.summary;
        About {
            maintainer: summary.maintainer.clone().map(PageLink::from),
            co_maintainers: details.co_maintainers.iter().cloned().map(PageLink::from).collect(),
            submitter: details.submitter.clone().map(PageLink::from),
            votes: page::separated(usize::try_from(summary.votes).unwrap_or(usize::MAX)),
            popularity: rounded(&summary.popularity),
            first_submitted: Day::of(summary.first_submitted),
            last_modified: Day::of(summary.last_modified),
            out_of_date: summary.out_of_date.and_then(Day::of),
            keywords: details.keywords.clone(),
            snapshot_path: format!("/cgit/aur.git/snapshot/{}.tar.gz", name_in_path(&summary.base)),
        }
    }
}

/// `/pkgbase/{base}`
///
/// # Errors
/// 404 for a base that is not there; 503 until the packages are loaded.
pub(crate) async fn show_package_base(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let published = app.packages()?;
    let name = named(route, "{base}")?;
    let snapshot = &published.snapshot;
    let looking = async { snapshot.base(&name) };
    let found = in_turn(&app.limits.making_answers[Surface::Aur as usize], looking).await?;
    let base = found.ok_or_else(|| {
        let day = Day::of_time(published.modified_at).day;
        HttpError::not_found(format!("there is no package base `{name}` in the AUR, as of {day}"))
    })?;
    let first = base.packages.first().and_then(|package| snapshot.details(&package.name));
    let about = first.as_ref().map(About::of);
    let page = BasePage {
        site: Site::of(app, head),
        name: base.name.into(),
        packages: base.packages.into_iter().map(Row::from).collect(),
        about,
        aur_url: aur_url(app),
    };
    Ok(page::send(&page, head, Audience::Everybody).await)
}

/// What a person does for packages of one kind.
struct OfPerson {
    id: &'static str,
    title: &'static str,
    count: String,
    packages: Vec<Row>,
    /// The query of the list of all, if not all are shown.
    all: Option<String>,
}

#[derive(Template)]
#[template(path = "maintainer.html")]
struct PersonPage {
    site: Site,
    person: Person,
}

/// What the packages say of a person.
struct Person {
    name: String,
    parts: Vec<OfPerson>,
    /// How many they have submitted, and the query of the list.
    submitted: Option<(String, String)>,
}

/// `/account/{maintainer}`
///
/// # Errors
/// 404 for whom no package names; 503 until the packages are loaded.
pub(crate) async fn show_maintainer(
    app: &App,
    head: &Parts,
    route: &Route,
) -> Result<Response, HttpError> {
    let published = app.packages()?;
    let name = named(route, "{maintainer}")?;
    let (snapshot, whose) = (published.snapshot.clone(), name.clone());
    let looking = app.limits.cpu_pool.run(move || person(&snapshot, &whose));
    match looking.await.map_err(HttpError::uncomputed)? {
        Some(person) => {
            let page = PersonPage { site: Site::of(app, head), person };
            Ok(page::send(&page, head, Audience::Everybody).await)
        }
        None => Err(HttpError::not_found(format!(
            "no package of the AUR names `{name}` as its maintainer, co-maintainer or submitter, as of {}",
            Day::of_time(published.modified_at).day
        ))),
    }
}

fn person(snapshot: &Snapshot, name: &str) -> Option<Person> {
    if name.is_empty() {
        return None;
    }
    let query = |field: &str| {
        form_urlencoded::Serializer::new(String::new())
            .append_pair("K", name)
            .append_pair("SeB", field)
            .finish()
    };
    let kinds = [
        ("maintains", "Maintains", By::Maintainer, "m"),
        ("co-maintains", "Co-maintains", By::CoMaintainers, "c"),
    ];
    let mut parts = Vec::new();
    for (id, title, by, field) in kinds {
        let part = popular(OF_PERSON_MAX);
        let found =
            snapshot.browse(&PackageSelection::Values(&[(by, name)]), Filter::default(), part);
        if found.count > 0 {
            let all = (found.count > found.packages.len()).then(|| query(field));
            let packages = found.packages.into_iter().map(Row::from).collect();
            let count = page::separated(found.count);
            parts.push(OfPerson { id, title, count, packages, all });
        }
    }
    let submitted = snapshot.count_of(&[(By::Submitter, name)]);
    if parts.is_empty() && submitted == 0 {
        return None;
    }
    Some(Person {
        name: written(snapshot, name).unwrap_or_else(|| name.to_owned()),
        parts,
        submitted: (submitted > 0).then(|| (page::separated(submitted), query("s"))),
    })
}

/// A name as the packages have it, which are found in any case of letters.
fn written(snapshot: &Snapshot, name: &str) -> Option<String> {
    let folded = aur::fold(name);
    for by in [By::Maintainer, By::CoMaintainers, By::Submitter] {
        let values = [(by, name)];
        let first = ListWindow { limit: 1, ..popular(1) };
        let found = snapshot.browse(&PackageSelection::Values(&values), Filter::default(), first);
        let Some(package) = found.packages.into_iter().next() else { continue };
        let details = snapshot.details(&package.name)?;
        let people = details.summary.maintainer.into_iter();
        let mut people = people.chain(details.co_maintainers).chain(details.submitter);
        if let Some(person) = people.find(|person| aur::fold(person) == folded) {
            return Some(person);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_urls_are_links() {
        for url in ["https://a.example", "HTTP://a.example/x?y"] {
            assert_eq!(harmless(url), Some(url));
        }
        for url in [
            "javascript:alert(1)",
            " https://a.example",
            "data:text/html,x",
            "//a.example",
            "ftp://a",
            "",
            "httpsé://",
        ] {
            assert_eq!(harmless(url), None, "{url}");
        }
    }

    #[test]
    fn names_in_commands_are_only_names() {
        for name in ["yay", "lib32-gcc+", "a@b_c.d"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "-rf", "a b", "$(id)", "a;b", "é"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn days() {
        let day = Day::of(1_767_323_045).expect("a time");
        assert_eq!((&*day.day, &*day.minute), ("2026-01-02", "2026-01-02 03:04"));
        assert_eq!(day.iso, "2026-01-02T03:04:05Z");
        assert!(Day::of(i64::MAX).is_none());
        assert_eq!(
            (rounded("1e-6"), rounded("12.345"), rounded("x")),
            ("0.00".into(), "12.35".into(), "x".into())
        );
    }
}
