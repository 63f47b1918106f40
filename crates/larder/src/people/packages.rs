//! `/packages/`: the AUR's packages in a list, searched, filtered and sorted by the parameters that aurweb's page has, and
//! the newest and the latest changed as feeds.
//!
//! query -> [`Search`] -> a part of the snapshot -> a template. What is copied is one page of the list.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use aur::{By, Filter, ListWindow, Order, PackageList, PackageSelection, Snapshot};
use axum::response::{IntoResponse, Response};
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, StatusCode, header};
use reply::Reply;

use super::days::Day;
use super::package::Row;
use crate::app::App;
use crate::front::conditional::{check_expected, is_unmodified, last_modified};
use crate::front::display::name_in_path;
use crate::front::error::HttpError;
use crate::front::page::{self, Audience, PageCacheKey, Site};
use crate::front::request::Parts;
use crate::front::respond::Conditions;
use crate::published::aur_published::AurPublished;
use crate::published::finished_pages::MadeOf;

/// Packages on a page: aurweb's choices.
const PER_PAGE: [usize; 3] = [50, 100, 250];

/// Characters of a search that are looked for.
const WORDS_CHARS_MAX: usize = 200;

/// Packages that can be left out before a page; beyond them is nothing.
const OFFSET_MAX: usize = 10_000_000;

/// The fields that a search looks at: aurweb's letters, and the RPC's words for them.
const FIELDS: [(&str, &str); 18] = [
    ("nd", "Name and description"),
    ("n", "Name"),
    ("N", "Exact name"),
    ("B", "Package base"),
    ("k", "Keyword"),
    ("m", "Maintainer"),
    ("c", "Co-maintainer"),
    ("M", "Maintainer or co-maintainer"),
    ("s", "Submitter"),
    ("depends", "Needs it to run"),
    ("makedepends", "Needs it to build"),
    ("checkdepends", "Needs it to check"),
    ("optdepends", "Can use it"),
    ("provides", "Provides it"),
    ("conflicts", "Conflicts with it"),
    ("replaces", "Replaces it"),
    ("groups", "Group"),
    ("b", "Package base"),
];

/// The orders of a list: aurweb's letter, the name, whether it is descending by default.
const ORDERS: [(&str, &str, Order, bool); 5] = [
    ("p", "Popularity", Order::Popularity, true),
    ("v", "Votes", Order::Votes, true),
    ("l", "Last updated", Order::LastModified, true),
    ("s", "First submitted", Order::FirstSubmitted, true),
    ("n", "Name", Order::Name, false),
];

/// A search, as a URL asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Search {
    words: String,
    /// A letter of [`FIELDS`].
    field: &'static str,
    /// A place in [`ORDERS`].
    order: usize,
    is_descending: bool,
    offset: usize,
    per_page: usize,
    filter: Filter,
}

impl Search {
    /// Parses the query of a URL. As in aurweb, what cannot be parsed is left out, so that old links still work.
    fn parse(query: &str) -> Search {
        let mut search = Search {
            words: String::new(),
            field: FIELDS[0].0,
            order: 0,
            is_descending: true,
            offset: 0,
            per_page: PER_PAGE[0],
            filter: Filter::default(),
        };
        let mut direction = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("K", words) => {
                    search.words = record::excerpt(words.trim(), WORDS_CHARS_MAX).into();
                }
                ("SeB", field) => {
                    let known = FIELDS.iter().find(|(letter, _)| *letter == field);
                    search.field = known.map_or(search.field, |(letter, _)| letter);
                }
                ("SB", letter) => {
                    let known = ORDERS.iter().position(|(order, ..)| *order == letter);
                    search.order = known.unwrap_or(search.order);
                }
                ("SO", "a") => direction = Some(false),
                ("SO", "d") => direction = Some(true),
                ("O", offset) => {
                    search.offset = offset.parse().unwrap_or(0).min(OFFSET_MAX);
                }
                ("PP", count) => {
                    let count = count.parse().unwrap_or(0);
                    search.per_page =
                        PER_PAGE.into_iter().find(|&known| known >= count).unwrap_or(PER_PAGE[2]);
                }
                // As in aurweb, any other text means those that are not.
                ("outdated", "") => search.filter.is_out_of_date = None,
                ("outdated", text) => search.filter.is_out_of_date = Some(text == "on"),
                ("orphans", "on") | ("submit" | "do_Orphans", "Orphans") => {
                    search.filter.orphans = true;
                }
                _ => {}
            }
        }
        search.is_descending = direction.unwrap_or(ORDERS[search.order].3);
        search
    }

    /// The query of a URL, without defaults.
    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let (letter, _, _, is_descending) = ORDERS[self.order];
        for (name, value, is_usual) in [
            ("K", self.words.as_str(), self.words.is_empty()),
            ("SeB", self.field, self.field == FIELDS[0].0),
            ("outdated", "on", self.filter.is_out_of_date != Some(true)),
            ("outdated", "off", self.filter.is_out_of_date != Some(false)),
            ("orphans", "on", !self.filter.orphans),
            ("SB", letter, self.order == 0),
            ("SO", if self.is_descending { "d" } else { "a" }, self.is_descending == is_descending),
            ("PP", &self.per_page.to_string(), self.per_page == PER_PAGE[0]),
            ("O", &self.offset.to_string(), self.offset == 0),
        ] {
            if !is_usual {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }

    fn part(&self) -> ListWindow {
        ListWindow {
            order: ORDERS[self.order].2,
            is_descending: self.is_descending,
            offset: self.offset,
            limit: self.per_page,
        }
    }

    fn answer(&self, snapshot: &Snapshot) -> PackageList {
        let words = self.words.as_str();
        let browse =
            |wanted: &PackageSelection<'_>| snapshot.browse(wanted, self.filter, self.part());
        // A package matches if it has any of the values.
        let values = |fields: &[By]| {
            let words = words.split_whitespace().take(20);
            let pairs = words.flat_map(|word| fields.iter().map(move |&by| (by, word)));
            browse(&PackageSelection::Values(&pairs.collect::<Vec<_>>()))
        };
        if words.is_empty() {
            return browse(&PackageSelection::All);
        }
        match self.field {
            "nd" => browse(&PackageSelection::Words { by: By::NameDesc, words }),
            "n" => browse(&PackageSelection::Words { by: By::Name, words }),
            "N" => {
                let packages = snapshot.details(words).map(|it| it.summary).into_iter();
                alone(packages.collect())
            }
            "B" | "b" => alone(snapshot.base(words).map(|it| it.packages).unwrap_or_default()),
            "k" => values(&[By::Keywords]),
            "m" => values(&[By::Maintainer]),
            "c" => values(&[By::CoMaintainers]),
            "M" => values(&[By::Maintainer, By::CoMaintainers]),
            "s" => values(&[By::Submitter]),
            field => values(By::parse(field).as_slice()),
        }
    }
}

/// A list that needs no sorting.
fn alone(packages: Vec<aur::PackageSummary>) -> PackageList {
    PackageList { count: packages.len(), packages }
}

/// A choice, or a link to another choice.
struct Choice {
    value: &'static str,
    label: &'static str,
    is_chosen: bool,
    query: String,
    /// Whether a sorted column is in descending order.
    is_descending: bool,
}

#[derive(Template)]
#[template(path = "packages.html")]
struct Packages {
    site: Site,
    search: Search,
    fields: Vec<Choice>,
    orders: Vec<Choice>,
    /// How many are found, with separators.
    count: String,
    is_one: bool,
    /// The positions of the first and the last package shown, from 1.
    first: String,
    last: String,
    packages: Vec<Row>,
    previous: Option<String>,
    next: Option<String>,
    day: Day,
}

impl Packages {
    /// Whether it is the list of all packages.
    fn is_all(&self) -> bool {
        self.search.words.is_empty() && self.search.filter == Filter::default()
    }

    /// The parts of this search that a new one keeps: the order and the number of packages on a page.
    fn kept(&self) -> Vec<(&'static str, String)> {
        let Search { order, is_descending, per_page, .. } = &self.search;
        let sorting = Search {
            order: *order,
            is_descending: *is_descending,
            per_page: *per_page,
            ..Search::parse("")
        };
        let pairs = sorting.query();
        let pairs = form_urlencoded::parse(pairs.as_bytes());
        let known = ["SB", "SO", "PP"];
        pairs
            .filter_map(|(name, value)| {
                let name = known.into_iter().find(|known| *known == name)?;
                Some((name, value.into_owned()))
            })
            .collect()
    }

    fn is_outdated(&self, wanted: bool) -> bool {
        self.search.filter.is_out_of_date == Some(wanted)
    }
}

/// `/packages/`
///
/// # Errors
/// 503 until the packages are loaded, and if too much is being computed.
pub(crate) async fn browse_packages(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let published = app.packages()?;
    let site = Site::of(app, head);
    // Most look at the first part of all packages.
    let keeping = PageCacheKey::of(head, &site, MadeOf::Packages(Arc::downgrade(&published)));
    let kept = keeping.as_ref().and_then(|it| it.find(app, head, Audience::Everybody));
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let search = Search::parse(head.uri.query().unwrap_or_default());
    let (asked, snapshot) = (search.clone(), published.snapshot.clone());
    let listing = app.limits.cpu_pool.run(move || asked.answer(&snapshot));
    let listed = listing.await.map_err(HttpError::uncomputed)?;
    let fields = FIELDS[..FIELDS.len() - 1].iter().map(|&(value, label)| Choice {
        value,
        label,
        is_chosen: search.field == value || (search.field, value) == ("b", "B"),
        query: String::new(),
        is_descending: false,
    });
    let orders = ORDERS.iter().enumerate().map(|(at, &(value, label, _, is_usual))| {
        let is_chosen = search.order == at;
        // A second click turns the list round.
        let is_descending = if is_chosen { !search.is_descending } else { is_usual };
        let other = Search { order: at, is_descending, offset: 0, ..search.clone() };
        let is_descending = search.is_descending;
        Choice { value, label, is_chosen, query: other.query(), is_descending }
    });
    let to = |offset: usize| Search { offset, ..search.clone() }.query();
    let end = search.offset + listed.packages.len();
    let page = Packages {
        fields: fields.collect(),
        orders: orders.collect(),
        count: page::separated(listed.count),
        is_one: listed.count == 1,
        first: page::separated(search.offset + 1),
        last: page::separated(end),
        previous: (search.offset > 0).then(|| to(search.offset.saturating_sub(search.per_page))),
        next: (end < listed.count && !listed.packages.is_empty())
            .then(|| to(search.offset + search.per_page)),
        packages: listed.packages.into_iter().map(Row::from).collect(),
        day: Day::of_time(published.modified_at),
        site,
        search,
    };
    Ok(match keeping {
        Some(keeping) => keeping.send(app, &page, head, Audience::Everybody).await,
        None => page::send(&page, head, Audience::Everybody).await,
    })
}

/// A package of a feed.
struct Item {
    name: String,
    /// The name, encoded for a path.
    path: String,
    version: String,
    summary: String,
    maintainer: Option<String>,
    /// When it came into the feed, in Unix seconds: with its name it names the entry.
    seconds: i64,
    rfc2822: String,
    rfc3339: String,
}

impl Item {
    fn of(package: &aur::PackageSummary, is_of_changes: bool) -> Item {
        let aur::PackageSummary { first_submitted, last_modified, .. } = package;
        let seconds = if is_of_changes { *last_modified } else { *first_submitted };
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        Item {
            path: name_in_path(&package.name),
            name: in_xml(&package.name),
            version: in_xml(&package.version),
            summary: in_xml(package.description.as_deref().unwrap_or_default()),
            maintainer: package.maintainer.as_deref().map(in_xml),
            seconds,
            rfc2822: time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
            rfc3339: time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}

/// A text without the characters that XML cannot have, not even escaped.
fn in_xml(text: &str) -> String {
    let is_fit = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || *c == '\n';
    text.chars().filter(is_fit).collect()
}

#[derive(Template)]
#[template(path = "packages.rss.xml", escape = "html")]
struct Rss<'a> {
    feed: &'a Feed,
}

#[derive(Template)]
#[template(path = "packages.atom.xml", escape = "html")]
struct Atom<'a> {
    feed: &'a Feed,
}

struct Feed {
    root_url: String,
    path: &'static str,
    /// Names the feed and its entries, whatever URL it is read at.
    name: &'static str,
    title: &'static str,
    subtitle: &'static str,
    updated: String,
    items: Vec<Item>,
}

/// `/rss/`, `/rss/modified`, `/atom/` and `/atom/modified`: the newest packages, and those that changed last. They are found
/// once for a snapshot, and a feed is rendered once for all who ask for it.
///
/// # Errors
/// 503 until the packages are loaded, and if too much is being computed.
pub(crate) async fn feed_packages(app: &App, head: &Parts) -> Result<Response, HttpError> {
    let published = app.packages()?;
    let path = head.uri.path();
    let is_of_changes = path.ends_with("/modified");
    let order = if is_of_changes { Order::LastModified } else { Order::FirstSubmitted };
    let is_atom = path.starts_with("/atom");
    let path = match (is_atom, is_of_changes) {
        (true, true) => "/atom/modified",
        (true, false) => "/atom/",
        (false, true) => "/rss/modified",
        (false, false) => "/rss/",
    };
    let request = &head.headers;
    let modified_at = dated(&published);
    check_expected(request, |_| true, modified_at)?;
    if !request.contains_key(IF_NONE_MATCH) && is_unmodified(request, modified_at) {
        return Ok(kept_for_a_time(StatusCode::NOT_MODIFIED.into_response(), modified_at));
    }
    let root_url = Site::of(app, head).root_url().to_owned();
    let keeping = PageCacheKey::at(&root_url, path, MadeOf::Packages(Arc::downgrade(&published)));
    let conditions = Conditions::of(&head.method, request);
    if let Some(response) = keeping.find_plain(app, &conditions) {
        return Ok(kept_for_a_time(response, modified_at));
    }
    let listed = published.clone();
    let listing = app.limits.cpu_pool.run(move || {
        let items = listed.latest(order).iter().map(|package| Item::of(package, is_of_changes));
        items.collect::<Vec<Item>>()
    });
    let items = listing.await.map_err(HttpError::uncomputed)?;
    let feed = Feed {
        root_url,
        path,
        name: if is_of_changes { "modified" } else { "newest" },
        title: if is_of_changes { "AUR Latest Modified Packages" } else { "AUR Newest Packages" },
        subtitle: if is_of_changes {
            "The latest modified packages in the AUR"
        } else {
            "The latest and greatest packages in the AUR"
        },
        updated: items
            .first()
            .map_or_else(|| Day::of_time(published.modified_at).iso, |item| item.rfc3339.clone()),
        items,
    };
    let (content_type, xml) = if is_atom {
        ("application/atom+xml; charset=utf-8", Atom { feed: &feed }.render())
    } else {
        ("application/rss+xml; charset=utf-8", Rss { feed: &feed }.render())
    };
    let xml = xml.map_err(|error| HttpError::unrendered(&error))?;
    let response = keeping.send_plain(app, Reply::tagged(content_type, xml), conditions).await;
    Ok(kept_for_a_time(response, modified_at))
}

/// The date of a feed. It tells two feeds of one second apart only when that second is over (RFC 9110, 8.8.2.2).
fn dated(published: &AurPublished) -> Option<SystemTime> {
    let is_over = published.modified_at.elapsed().is_ok_and(|age| age.as_secs() >= 1);
    is_over.then_some(published.modified_at)
}

/// Says how old a feed is, and that caches may keep it as long as aurweb's.
fn kept_for_a_time(mut response: Response, modified_at: Option<SystemTime>) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    if let Some(modified_at) = modified_at {
        headers.insert(header::LAST_MODIFIED, last_modified(modified_at));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_read_from_its_own_link() {
        for query in [
            "",
            "K=a+b&SeB=m",
            "outdated=on&SB=l",
            "outdated=off&orphans=on&SB=n&SO=d&PP=250&O=500",
            "K=x&SeB=depends&SO=a",
        ] {
            assert_eq!(Search::parse(query).query(), query);
        }
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let check = |query: &str, expected: &str| {
            assert_eq!(Search::parse(query).query(), expected, "{query}");
        };
        check("SeB=?&SB=w&SO=x&O=-1&PP=no&outdated=&x=y", "");
        check("outdated=On", "outdated=off");
        check("outdated=1", "outdated=off");
        check("PP=60", "PP=100");
        check("PP=9999&K=%20x%20", "K=x&PP=250");
        check("submit=Orphans", "orphans=on");
        assert!(Search::parse("O=99999999999").offset <= OFFSET_MAX);
        assert_eq!(Search::parse(&format!("K={}", "x".repeat(999))).words.len(), WORDS_CHARS_MAX);
    }

    #[test]
    fn feeds_have_no_characters_that_xml_forbids() {
        assert_eq!(in_xml("a\u{1}b\u{fffe}<é>\u{85}"), "ab<é>");
    }
}
