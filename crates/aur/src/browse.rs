//! What pages for people need of a snapshot: all data of a package, the packages that name it, and searches in a chosen order,
//! page by page.
//!
//! Counts are exact; the caller bounds what is copied out of the snapshot. To sort a long list, the numbers of all packages are read
//! once for each segment ([`crate::sort_key::Keys`]): the first one of a large segment takes tens of milliseconds.

use std::collections::HashSet;

use postings::DocId;

use crate::field::{By, Field, Mode};
use crate::fold::{fold, folded_bytes};
use crate::needles::Needles;
use crate::params::Arg;
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::sort_key::{integer, is_there};

pub use crate::sort_key::{Filter, Order};

/// Different words of a search that are looked at.
const WORDS_MAX: usize = 16;

/// A package in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageSummary {
    /// Its name.
    pub name: String,
    /// The base that it is built from.
    pub base: String,
    /// `[epoch:]version-release`.
    pub version: String,
    /// Its description, on one line.
    pub description: Option<String>,
    /// None: an orphan.
    pub maintainer: Option<String>,
    /// Votes for the base.
    pub votes: u64,
    /// Its popularity, as the number in the dump.
    pub popularity: String,
    /// Unix seconds.
    pub first_submitted: i64,
    /// Unix seconds.
    pub last_modified: i64,
    /// When it was flagged as out of date, in Unix seconds.
    pub out_of_date: Option<i64>,
}

/// All data of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The part that lists show, too.
    pub summary: PackageSummary,
    /// The project's URL, as the packager wrote it: it may be any text.
    pub url: Option<String>,
    /// Who submitted the base.
    pub submitter: Option<String>,
    /// Who else maintains the base.
    pub co_maintainers: Vec<String>,
    /// Needed to run it, each perhaps with a condition on the version.
    pub depends: Vec<String>,
    /// Needed to build it.
    pub make_depends: Vec<String>,
    /// Needed to check it.
    pub check_depends: Vec<String>,
    /// Optional dependencies, each perhaps with its purpose after a colon.
    pub opt_depends: Vec<String>,
    /// Names that it can replace as a dependency.
    pub provides: Vec<String>,
    /// Packages that cannot be installed beside it.
    pub conflicts: Vec<String>,
    /// Packages that it replaces.
    pub replaces: Vec<String>,
    /// Its groups.
    pub groups: Vec<String>,
    /// Its licenses.
    pub licenses: Vec<String>,
    /// Its keywords.
    pub keywords: Vec<String>,
    /// Open requests about the base, where the data tell.
    pub pending_requests: Option<u64>,
    /// All other data, as names and JSON.
    pub others: Vec<(String, serde_json::Value)>,
}

/// A package base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Its name.
    pub name: String,
    /// Its packages by name; empty for a base that is only known by name.
    pub packages: Vec<PackageSummary>,
}

/// Which packages a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageSelection<'text> {
    /// All packages.
    All,
    /// Packages with all of these words in their name, or name or description. `by` is one of these two fields.
    Words {
        /// [`By::Name`] or [`By::NameDesc`].
        by: By,
        /// Divided by white space.
        words: &'text str,
    },
    /// Packages whose name begins with this text.
    Beginning(&'text str),
    /// Packages with any of these values of exact fields.
    Values(&'text [(By, &'text str)]),
}

/// Part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWindow {
    /// The order.
    pub order: Order,
    /// Whether the greatest values come first.
    pub is_descending: bool,
    /// How many are left out before.
    pub offset: usize,
    /// How many are shown.
    pub limit: usize,
}

/// Part of a list, and how long the list is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageList {
    /// All that are wanted.
    pub count: usize,
    /// The part.
    pub packages: Vec<PackageSummary>,
}

impl Snapshot {
    /// The package with this name, as `info` finds it.
    pub fn details(&self, name: &str) -> Option<Details> {
        self.find(name.trim_end_matches(' ')).map(|doc| details(self.record(doc)))
    }

    /// Whether a package with this name exists.
    pub fn has_package(&self, name: &str) -> bool {
        self.find(name.trim_end_matches(' ')).is_some()
    }

    /// The base with this name.
    pub fn base(&self, name: &str) -> Option<Base> {
        let (name, docs) = self.find_base(name)?;
        let packages = docs.into_iter().map(|doc| summary(self.record(doc))).collect();
        Some(Base { name, packages })
    }

    /// Part of the packages that are wanted, and how many there are.
    pub fn browse(
        &self,
        wanted: &PackageSelection<'_>,
        filter: Filter,
        part: ListWindow,
    ) -> PackageList {
        let mut docs = self.wanted(wanted);
        if filter != Filter::default() {
            let count = docs.len();
            docs.retain(|&doc| self.key(doc, count).passes(filter));
        }
        let count = docs.len();
        let packages = self.sorted(docs, part).map(|doc| summary(self.record(doc))).collect();
        PackageList { count, packages }
    }

    /// The packages that a person who types `text` most likely means: the one with this name, then those whose name begins with
    /// it, those with all words in their name, those with all words in their description; the most popular first. The count is
    /// that of the packages with all words in name or description.
    pub fn best(&self, text: &str, limit: usize) -> PackageList {
        let by_popularity =
            ListWindow { order: Order::Popularity, is_descending: true, offset: 0, limit };
        let named = text.trim();
        let dashed = named.split_whitespace().collect::<Vec<_>>().join("-");
        let all = self.wanted(&PackageSelection::Words { by: By::NameDesc, words: named });
        let mut found: Vec<DocId> = self.find(&dashed).into_iter().collect();
        let in_names = || self.wanted(&PackageSelection::Words { by: By::Name, words: named });
        let ranks: [&dyn Fn() -> Vec<DocId>; 3] =
            [&|| self.wanted(&PackageSelection::Beginning(&dashed)), &in_names, &|| all.clone()];
        for rank in ranks {
            if found.len() >= limit || dashed.is_empty() {
                break;
            }
            // One more for each package found already, because this rank may find it again.
            let part = ListWindow { limit: limit + found.len(), ..by_popularity };
            let next: Vec<DocId> = self.sorted(rank(), part).collect();
            found.extend(next.into_iter().filter(|doc| !found.contains(doc)).collect::<Vec<_>>());
        }
        found.truncate(limit);
        let packages = found.into_iter().map(|doc| summary(self.record(doc))).collect();
        PackageList { count: all.len(), packages }
    }

    /// The number of packages with any of these values of exact fields.
    pub fn count_of(&self, values: &[(By, &str)]) -> usize {
        self.wanted(&PackageSelection::Values(values)).len()
    }

    pub(crate) fn wanted(&self, wanted: &PackageSelection<'_>) -> Vec<DocId> {
        match *wanted {
            PackageSelection::All => self.docs().collect(),
            PackageSelection::Words { by, words } => {
                let needles = Needles::of(words.split_whitespace(), Mode::Contains, WORDS_MAX);
                if needles.is_empty() {
                    return Vec::new();
                }
                self.found_in_all(|segment, limit| {
                    segment.find_words(by, Mode::Contains, &needles, limit)
                })
            }
            PackageSelection::Beginning(start) => {
                let start = fold(start);
                self.found_in_all(|segment, limit| {
                    segment.find_text(By::Name, Mode::StartsWith, &start, limit)
                })
            }
            PackageSelection::Values(values) => self.found_in_all(|segment, limit| {
                let lists = distinct(values).map(|(by, value)| {
                    let value = Arg { literal: value.to_owned(), spaced: None };
                    segment.find_by(by, &value, limit)
                });
                let mut docs = lists.collect::<Vec<_>>().concat();
                docs.sort_unstable();
                docs.dedup();
                docs
            }),
        }
    }

    /// The wanted part of `docs`, which are in name order.
    pub(crate) fn sorted(&self, docs: Vec<DocId>, part: ListWindow) -> impl Iterator<Item = DocId> {
        let ListWindow { order, is_descending, offset, limit } = part;
        let places = 0..u32::try_from(docs.len()).unwrap_or(u32::MAX);
        let mut ranked: Vec<(u32, u32)> = match order {
            Order::Name if is_descending => places.map(|place| (u32::MAX - place, place)).collect(),
            Order::Name => places.map(|place| (0, place)).collect(),
            _ => places
                .map(|place| {
                    let rank = self.key(docs[place as usize], docs.len()).rank(order);
                    (if is_descending { u32::MAX - rank } else { rank }, place)
                })
                .collect(),
        };
        let end = offset.saturating_add(limit).min(ranked.len());
        if end > 0 && end < ranked.len() {
            ranked.select_nth_unstable(end - 1);
        }
        ranked.truncate(end);
        ranked.sort_unstable();
        ranked.into_iter().skip(offset).map(move |(_, place)| docs[place as usize])
    }
}

/// The values without duplicates: values that differ only in case share a list.
fn distinct<'v, 't>(
    values: &'v [(By, &'t str)],
) -> impl Iterator<Item = (By, &'t str)> + use<'v, 't> {
    let mut seen = HashSet::with_capacity(values.len());
    let term = |value: &str| folded_bytes(value.trim_end_matches(' '));
    values.iter().copied().filter(move |(by, value)| seen.insert((*by, term(value))))
}

fn summary(record: Record<'_>) -> PackageSummary {
    let raw =
        |field| String::from_utf8_lossy(record.value(field).unwrap_or_default()).trim().to_owned();
    let name = text(record, Field::Name).unwrap_or_default();
    PackageSummary {
        base: text(record, Field::PackageBase).unwrap_or_else(|| name.clone()),
        name,
        version: text(record, Field::Version).unwrap_or_default(),
        description: text(record, Field::Description),
        maintainer: text(record, Field::Maintainer),
        votes: u64::try_from(integer(record, Field::NumVotes)).unwrap_or_default(),
        popularity: raw(Field::Popularity),
        first_submitted: integer(record, Field::FirstSubmitted),
        last_modified: integer(record, Field::LastModified),
        out_of_date: is_there(record, Field::OutOfDate).then(|| integer(record, Field::OutOfDate)),
    }
}

fn details(record: Record<'_>) -> Details {
    let list = |field| -> Vec<String> {
        record.value(field).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    };
    let summary = summary(record);
    Details {
        url: text(record, Field::Url),
        submitter: text(record, Field::Submitter),
        co_maintainers: list(Field::CoMaintainers),
        depends: list(Field::Depends),
        make_depends: list(Field::MakeDepends),
        check_depends: list(Field::CheckDepends),
        opt_depends: list(Field::OptDepends),
        provides: list(Field::Provides),
        conflicts: list(Field::Conflicts),
        replaces: list(Field::Replaces),
        groups: list(Field::Groups),
        licenses: list(Field::License),
        keywords: list(Field::Keywords),
        pending_requests: is_there(record, Field::PendingRequests)
            .then(|| u64::try_from(integer(record, Field::PendingRequests)).unwrap_or_default()),
        others: others(record),
        summary,
    }
}

/// The members that are not known, by their names.
fn others(record: Record<'_>) -> Vec<(String, serde_json::Value)> {
    let Some(members) = record.value(Field::Others).and_then(|members| members.get(1..)) else {
        return Vec::new();
    };
    let object = [b"{", members, b"}"].concat();
    let members: serde_json::Map<_, _> = serde_json::from_slice(&object).unwrap_or_default();
    members.into_iter().collect()
}

/// A text of a record; `None` if it is absent or null.
fn text(record: Record<'_>, field: Field) -> Option<String> {
    serde_json::from_slice(record.value(field)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{self, DumpLimits};

    const DUMP: &str = r#"[
{"ID":1,"Name":"pear","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a fruit","URL":"javascript:alert(1)","NumVotes":3,"Popularity":0.5,"OutOfDate":null,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x","Depends":["tree>=2","soil"],"OptDepends":["sun: light"],"CoMaintainers":["cid"],"FlaggedMalicious":true},
{"ID":2,"Name":"pear-git","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a fruit, fresh","URL":null,"NumVotes":3,"Popularity":1.5,"OutOfDate":99,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":20,"LastModified":30,"URLPath":"/x","Provides":["pear=1"],"Depends":["tree"]},
{"ID":3,"Name":"bigpear","PackageBaseID":3,"PackageBase":"bigpear","Version":"2-1","Description":"huge","URL":null,"NumVotes":9,"Popularity":9.25,"OutOfDate":null,"Maintainer":null,"Submitter":"bob","FirstSubmitted":30,"LastModified":20,"URLPath":"/x"},
{"ID":4,"Name":"apple","PackageBaseID":4,"PackageBase":"apple","Version":"2-1","Description":"no pear","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":"ann","Submitter":"ann","FirstSubmitted":40,"LastModified":10,"URLPath":"/x","Keywords":["fruit"]}
]"#;

    fn sample() -> Snapshot {
        dump::read(DUMP.as_bytes(), &DumpLimits::default()).expect("a dump")
    }

    #[track_caller]
    fn check(
        wanted: &PackageSelection<'_>,
        filter: Filter,
        part: ListWindow,
        count: usize,
        names: &str,
    ) {
        let listed = sample().browse(wanted, filter, part);
        let found: Vec<_> = listed.packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!((listed.count, found.join(" ")), (count, names.to_owned()), "{wanted:?}");
    }

    #[test]
    fn values_that_differ_in_case_alone_have_one_list() {
        let values = [(By::Depends, "tree"), (By::Depends, "Tree "), (By::MakeDepends, "tree")];
        let lists: Vec<_> = distinct(&values).collect();
        assert_eq!(lists, [(By::Depends, "tree"), (By::MakeDepends, "tree")]);
    }

    fn part(order: Order, is_descending: bool) -> ListWindow {
        ListWindow { order, is_descending, offset: 0, limit: 10 }
    }

    #[test]
    fn lists_are_sorted() {
        let all = |order, is_descending, names| {
            check(&PackageSelection::All, Filter::default(), part(order, is_descending), 4, names);
        };
        all(Order::Name, false, "apple bigpear pear pear-git");
        all(Order::Name, true, "pear-git pear bigpear apple");
        all(Order::Votes, true, "bigpear pear pear-git apple");
        all(Order::Popularity, true, "bigpear pear-git pear apple");
        all(Order::Popularity, false, "apple pear pear-git bigpear");
        all(Order::LastModified, true, "pear pear-git bigpear apple");
        all(Order::FirstSubmitted, true, "apple bigpear pear-git pear");
    }

    #[test]
    fn parts_of_a_list() {
        for (offset, limit, names) in [
            (0, 1, "bigpear"),
            (1, 2, "pear-git pear"),
            (3, 9, "apple"),
            (4, 9, ""),
            (9, 9, ""),
            (0, 0, ""),
        ] {
            let part = ListWindow { order: Order::Popularity, is_descending: true, offset, limit };
            check(&PackageSelection::All, Filter::default(), part, 4, names);
        }
    }

    #[test]
    fn what_is_wanted() {
        let by_name = part(Order::Name, false);
        let check = |wanted: PackageSelection<'_>, count, names| {
            check(&wanted, Filter::default(), by_name, count, names);
        };
        check(PackageSelection::Words { by: By::Name, words: "pear" }, 3, "bigpear pear pear-git");
        check(PackageSelection::Words { by: By::NameDesc, words: "pear NO" }, 1, "apple");
        check(PackageSelection::Words { by: By::NameDesc, words: " " }, 0, "");
        check(PackageSelection::Beginning("Pear"), 2, "pear pear-git");
        check(PackageSelection::Values(&[(By::Depends, "tree")]), 2, "pear pear-git");
        check(PackageSelection::Values(&[(By::Provides, "pear")]), 2, "pear pear-git");
        let people = [(By::Maintainer, "ann"), (By::CoMaintainers, "cid")];
        check(PackageSelection::Values(&people), 3, "apple pear pear-git");
        check(PackageSelection::Values(&[(By::Maintainer, "")]), 1, "bigpear");
        check(PackageSelection::Values(&[(By::OptDepends, "sun")]), 1, "pear");
        check(PackageSelection::Values(&[]), 0, "");
    }

    /// Changes since the large segment was built are in a layer over it.
    #[test]
    fn a_layer_with_changes_is_listed_as_part_of_the_whole() {
        let changed = DUMP
            .replace("\"Popularity\":0.0", "\"Popularity\":7.0")
            .replace("\"Name\":\"pear-git\"", "\"Name\":\"pear-hg\"");
        let limits = DumpLimits::default();
        let next = dump::read_after(&sample(), changed.as_bytes(), &limits, []).expect("a dump");
        let next = next.expect("a layer");
        let names = |listed: PackageList| -> Vec<String> {
            listed.packages.into_iter().map(|package| package.name).collect()
        };
        let listed = |wanted, order, is_descending| {
            names(next.browse(&wanted, Filter::default(), part(order, is_descending)))
        };
        let by_popularity = listed(PackageSelection::All, Order::Popularity, true);
        assert_eq!(by_popularity, ["bigpear", "apple", "pear-hg", "pear"]);
        assert_eq!(
            listed(PackageSelection::All, Order::Name, false),
            ["apple", "bigpear", "pear", "pear-hg"]
        );
        let people = [(By::Maintainer, "ann"), (By::Submitter, "bob")];
        let of_people = listed(PackageSelection::Values(&people), Order::Name, false);
        assert_eq!(of_people, ["apple", "bigpear", "pear", "pear-hg"]);
        assert_eq!(names(next.best("pear", 3)), ["pear", "pear-hg", "bigpear"]);
        let base = next.base("pear").expect("a base").packages;
        assert_eq!(base.into_iter().map(|it| it.name).collect::<Vec<_>>(), ["pear", "pear-hg"]);
        assert_eq!(next.details("pear-git"), None);
    }

    #[test]
    fn filters() {
        let check = |filter, count, names| {
            check(&PackageSelection::All, filter, part(Order::Name, false), count, names);
        };
        check(Filter { is_out_of_date: Some(true), orphans: false }, 1, "pear-git");
        check(Filter { is_out_of_date: Some(false), orphans: false }, 3, "apple bigpear pear");
        check(Filter { is_out_of_date: None, orphans: true }, 1, "bigpear");
        check(Filter { is_out_of_date: Some(true), orphans: true }, 0, "");
    }

    #[test]
    fn exact_names_come_first_then_beginnings_then_the_rest() {
        let check = |text: &str, limit, count, names: &str| {
            let best = sample().best(text, limit);
            let found: Vec<_> = best.packages.iter().map(|package| package.name.as_str()).collect();
            assert_eq!((best.count, found.join(" ")), (count, names.to_owned()), "{text}");
        };
        check("pear", 10, 4, "pear pear-git bigpear apple");
        check("pear", 2, 4, "pear pear-git");
        check("PEAR git", 10, 1, "pear-git");
        check("fruit", 10, 2, "pear-git pear");
        check("", 10, 0, "");
        check("nothing", 10, 0, "");
    }

    #[test]
    fn a_package_and_a_base_with_all_that_is_known() {
        let sample = sample();
        let pear = sample.details("Pear").expect("a package");
        assert_eq!(pear.summary.name, "pear");
        assert_eq!(pear.depends, ["tree>=2", "soil"]);
        assert_eq!(pear.url.as_deref(), Some("javascript:alert(1)"));
        assert_eq!(pear.others, [("FlaggedMalicious".to_owned(), serde_json::Value::Bool(true))]);
        assert_eq!(sample.details("pear-git").expect("a package").summary.out_of_date, Some(99));
        assert_eq!(sample.details("none"), None);
        let names = |base: &str| {
            let base = sample.base(base)?;
            Some(base.packages.iter().map(|package| package.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names("pear"), Some(vec!["pear".to_owned(), "pear-git".to_owned()]));
        assert_eq!(names("bigpear"), Some(vec!["bigpear".to_owned()]));
        assert_eq!(names("pear-git"), None);
        assert_eq!(sample.count_of(&[(By::Submitter, "bob")]), 3);
    }
}
