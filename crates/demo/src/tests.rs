//! What a reader of a dump relies on: its format, its proportions, and that it never changes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};

use super::*;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Record {
    #[serde(rename = "ID")]
    id: u32,
    name: String,
    #[serde(rename = "PackageBaseID")]
    package_base_id: u32,
    package_base: String,
    version: String,
    description: Option<String>,
    #[serde(rename = "URL")]
    url: Option<String>,
    num_votes: u32,
    popularity: f64,
    out_of_date: Option<u64>,
    maintainer: Option<String>,
    submitter: Option<String>,
    first_submitted: u64,
    last_modified: u64,
    #[serde(rename = "URLPath")]
    url_path: String,
    depends: Option<Vec<String>>,
    make_depends: Option<Vec<String>>,
    check_depends: Option<Vec<String>>,
    opt_depends: Option<Vec<String>>,
    conflicts: Option<Vec<String>>,
    provides: Option<Vec<String>>,
    replaces: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    license: Option<Vec<String>>,
    keywords: Option<Vec<String>>,
    #[serde(rename = "CoMaintainers")]
    comaintainers: Option<Vec<String>>,
}

impl Record {
    fn lists(&self) -> [&Option<Vec<String>>; 11] {
        [
            &self.depends,
            &self.make_depends,
            &self.check_depends,
            &self.opt_depends,
            &self.conflicts,
            &self.provides,
            &self.replaces,
            &self.groups,
            &self.license,
            &self.keywords,
            &self.comaintainers,
        ]
    }

    fn says(&self, needle: &str) -> bool {
        let description = self.description.as_deref().unwrap_or_default().to_lowercase();
        self.name.to_lowercase().contains(needle) || description.contains(needle)
    }
}

/// The keys of an object in the order in which they are written.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Keys;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn dump(packages: u32, seed: u64) -> String {
    let mut bytes = Vec::new();
    write_dump(&Recipe { packages, seed }, &mut bytes, &mut |_| ()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The lines with records, without the commas between them.
fn lines(dump: &str) -> Vec<&str> {
    let inner = dump.strip_prefix("[\n").and_then(|dump| dump.strip_suffix("\n]")).unwrap();
    if inner.is_empty() { Vec::new() } else { inner.split(",\n").collect() }
}

fn parse(dump: &str) -> Vec<Record> {
    lines(dump)
        .into_iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// The catalogue whose proportions are promised: 100,000 packages, seed 1.
fn large() -> &'static [Record] {
    static LARGE: OnceLock<Vec<Record>> = OnceLock::new();
    LARGE.get_or_init(|| parse(&dump(100_000, 1)))
}

/// Counts the packages for which `is` holds; their share in percent must be in `bounds`.
#[track_caller]
fn check(bounds: RangeInclusive<f64>, is: impl Fn(&Record) -> bool) {
    let count = large().iter().filter(|record| is(record)).count();
    let share = count as f64 * 100.0 / large().len() as f64;
    assert!(bounds.contains(&share), "{count} packages are {share} %, expected {bounds:?} %");
}

fn has(list: &Option<Vec<String>>, is: impl Fn(&str) -> bool) -> bool {
    list.iter().flatten().any(|item| is(item))
}

fn has_capitals(text: &str) -> bool {
    text.chars().any(|letter| letter.is_ascii_uppercase())
}

fn name_of(dependency: &str) -> &str {
    dependency.split(['<', '>', '=']).next().unwrap()
}

fn bases() -> HashMap<u32, Vec<&'static Record>> {
    let mut bases: HashMap<u32, Vec<&Record>> = HashMap::new();
    for record in large() {
        bases.entry(record.package_base_id).or_default().push(record);
    }
    bases
}

// The format.

#[test]
fn the_dump_is_json_as_a_whole_and_line_by_line() {
    for packages in [0, 1, 2, 3, 10, 100, 2000] {
        let dump = dump(packages, 7);
        assert_eq!(serde_json::from_str::<Vec<Record>>(&dump).unwrap().len(), packages as usize);
        assert_eq!(parse(&dump).len(), packages as usize);
    }
    assert_eq!(dump(0, 1), "[\n\n]");
}

#[test]
fn keys_are_in_the_order_of_the_format() {
    let fixed = "ID Name PackageBaseID PackageBase Version Description URL NumVotes Popularity OutOfDate Maintainer \
                 Submitter FirstSubmitted LastModified URLPath";
    let lists = "Depends MakeDepends CheckDepends OptDepends Conflicts Provides Replaces Groups License Keywords \
                 CoMaintainers";
    let mut seen = HashSet::new();
    for line in lines(&dump(2000, 1)) {
        let Keys(keys) = serde_json::from_str(line).unwrap();
        assert_eq!(keys[..15].join(" "), fixed);
        let mut order = lists.split(' ');
        for key in &keys[15..] {
            assert!(order.any(|next| next == key), "`{key}` is unknown or out of order in {line}");
            seen.insert(key.clone());
        }
    }
    assert_eq!(seen.len(), 11, "every list occurs somewhere: {seen:?}");
}

#[test]
fn popularity_is_the_shortest_float() {
    let mut kinds = HashSet::new();
    let dump = dump(20_000, 1);
    for line in lines(&dump) {
        let text = line.split_once("\"Popularity\":").unwrap().1.split_once(',').unwrap().0;
        let value: f64 = text.parse().unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
        kinds.insert(match text {
            "0.0" => "zero",
            _ if text.ends_with("e-6") => "exponent",
            _ => "decimal",
        });
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn lists_are_never_empty_and_have_no_duplicates() {
    for record in large() {
        for list in record.lists().into_iter().flatten() {
            let different: HashSet<String> = list.iter().map(|item| item.to_lowercase()).collect();
            assert!(!list.is_empty() && different.len() == list.len(), "{}: {list:?}", record.name);
        }
    }
}

#[test]
fn the_path_is_made_from_the_name_of_the_package() {
    for record in large() {
        assert_eq!(record.url_path, format!("/cgit/aur.git/snapshot/{}.tar.gz", record.name));
    }
}

#[test]
fn identifiers_rise_and_names_are_unique() {
    assert!(large().is_sorted_by(|one, next| one.id < next.id));
    let names: HashSet<String> = large().iter().map(|record| record.name.to_lowercase()).collect();
    assert_eq!(names.len(), large().len());
    let bases: HashSet<(u32, &str)> =
        large().iter().map(|r| (r.package_base_id, r.package_base.as_str())).collect();
    let ids: HashSet<u32> = bases.iter().map(|base| base.0).collect();
    let names: HashSet<String> = bases.iter().map(|base| base.1.to_lowercase()).collect();
    assert_eq!((ids.len(), names.len()), (bases.len(), bases.len()));
}

#[test]
fn names_and_texts_fit_the_columns_of_the_database() {
    for record in large() {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "@._+-".contains(letter);
        assert!(
            record.name.chars().all(allowed) && !record.name.starts_with(['-', '.']),
            "{}",
            record.name
        );
        let users = record
            .maintainer
            .iter()
            .chain(&record.submitter)
            .chain(record.comaintainers.iter().flatten());
        for user in users {
            assert!((1..=16).contains(&user.len()), "`{user}`");
        }
        for list in record.lists().into_iter().flatten().flatten() {
            assert!(!list.is_empty() && list.len() <= 255, "{}: `{list}`", record.name);
        }
        let length = record.description.as_ref().map_or(1, String::len);
        assert!((1..=255).contains(&length) && record.version.contains('-'), "{}", record.name);
    }
}

#[test]
fn packages_of_a_base_share_what_belongs_to_the_base() {
    for packages in bases().values() {
        let shared = |record: &Record| {
            let users =
                (record.maintainer.clone(), record.submitter.clone(), record.comaintainers.clone());
            let times = (record.first_submitted, record.last_modified, record.out_of_date);
            (
                users,
                times,
                record.num_votes,
                record.popularity.to_bits(),
                record.keywords.clone(),
                record.version.clone(),
            )
        };
        assert!(
            packages.windows(2).all(|pair| shared(pair[0]) == shared(pair[1])),
            "{}",
            packages[0].package_base
        );
    }
}

#[test]
fn times_are_in_order() {
    for record in large() {
        assert!(record.first_submitted <= record.last_modified, "{}", record.name);
        assert!(
            record.out_of_date.is_none_or(|time| time >= record.last_modified),
            "{}",
            record.name
        );
    }
}

// The proportions. The bounds are those of the recipe where it has some.

#[test]
fn names_end_as_names_in_the_aur_do() {
    check(23.0..=27.0, |record| record.name.ends_with("-git"));
    check(18.0..=22.0, |record| record.name.ends_with("-bin"));
    check(0.1..=1.5, |record| record.name.ends_with("-svn"));
    check(0.1..=1.5, |record| record.name.ends_with("-dkms"));
}

#[test]
fn more_than_5000_names_contain_python() {
    check(5.001..=10.0, |record| record.name.contains("python"));
    check(2.0..=5.0, |record| record.name.starts_with("perl-"));
    check(0.5..=3.0, |record| record.name.starts_with("ros"));
}

#[test]
fn names_have_rare_characters() {
    for mark in ['+', '.', '_', '@'] {
        check(0.1..=6.0, |record| record.name.contains(mark));
    }
    check(0.1..=1.0, |record| has_capitals(&record.name));
}

#[test]
fn some_bases_are_split_and_some_have_a_name_that_no_package_has() {
    let bases = bases();
    let split: Vec<_> = bases.values().filter(|packages| packages.len() > 1).collect();
    let packages: usize = split.iter().map(|packages| packages.len()).sum();
    assert!((12_000..=15_000).contains(&packages), "{packages} split packages");
    assert!(split.iter().all(|packages| packages.len() <= 10));
    let nameless = split
        .iter()
        .filter(|packages| packages.iter().all(|record| record.name != record.package_base))
        .count();
    assert!(
        (500..split.len() / 2).contains(&nameless),
        "{nameless} of {} split bases",
        split.len()
    );
}

#[test]
fn more_than_6000_packages_are_orphans() {
    check(6.001..=10.0, |record| record.maintainer.is_none());
    check(0.1..=2.0, |record| record.submitter.is_none());
    check(8.0..=12.0, |record| record.out_of_date.is_some());
    check(5.0..=7.0, |record| record.comaintainers.is_some());
    let maintainers: HashSet<_> =
        large().iter().filter_map(|record| record.maintainer.as_deref()).collect();
    assert!((10_000..=25_000).contains(&maintainers.len()), "{} maintainers", maintainers.len());
}

#[test]
fn votes_are_few_and_popularity_is_mostly_zero() {
    let mut votes: Vec<u32> = large().iter().map(|record| record.num_votes).collect();
    votes.sort_unstable();
    assert_eq!(votes[votes.len() / 2], 1);
    assert!((1000..=3000).contains(votes.last().unwrap()), "{:?}", votes.last());
    check(57.0..=63.0, |record| record.popularity == 0.0);
    check(0.2..=3.0, |record| (1e-6..=9e-6).contains(&record.popularity));
    check(0.1..=5.0, |record| record.popularity >= 1.0);
}

#[test]
fn descriptions_are_as_varied_as_real_ones() {
    check(1.0..=3.0, |record| record.description.is_none());
    check(1.0..=6.0, |record| record.url.is_none());
    check(0.5..=3.0, |record| record.description.as_ref().is_some_and(|text| !text.is_ascii()));
    for mark in ['"', '<', '>', '&', '\\'] {
        check(0.1..=1.5, |record| {
            record.description.as_ref().is_some_and(|text| text.contains(mark))
        });
    }
    check(93.0..=100.0, |record| {
        let words = record.description.as_ref().map_or(4, |text| text.split(' ').count());
        (4..=14).contains(&words)
    });
}

#[test]
fn lists_occur_as_often_as_they_should() {
    check(80.0..=90.0, |record| record.depends.is_some());
    check(50.0..=60.0, |record| record.make_depends.is_some());
    check(3.0..=8.0, |record| record.check_depends.is_some());
    check(15.0..=25.0, |record| record.opt_depends.is_some());
    check(45.0..=60.0, |record| record.conflicts.is_some());
    check(45.0..=55.0, |record| record.provides.is_some());
    check(2.0..=6.0, |record| record.replaces.is_some());
    check(2.5..=3.5, |record| record.groups.is_some());
    check(95.0..=99.0, |record| record.license.is_some());
    check(13.0..=17.0, |record| record.keywords.is_some());
    assert!(
        large().iter().all(|record| record.keywords.as_ref().is_none_or(|list| list.len() <= 8))
    );
}

#[test]
fn provides_have_versions_sonames_and_capitals() {
    check(15.0..=30.0, |record| has(&record.provides, |item| item.contains('=')));
    check(0.5..=5.0, |record| {
        has(&record.provides, |item| item.starts_with("lib") && item.ends_with("-64"))
    });
    check(0.5..=5.0, |record| has(&record.provides, |item| item.ends_with(".so")));
    check(0.5..=3.0, |record| has(&record.provides, has_capitals));
    check(0.2..=2.0, |record| has(&record.groups, has_capitals));
}

#[test]
fn some_packages_depend_on_one_name_under_several_conditions() {
    check(3.0..=8.0, |record| {
        let names: Vec<&str> = record.depends.iter().flatten().map(|item| name_of(item)).collect();
        names.iter().collect::<HashSet<_>>().len() < names.len()
    });
}

#[test]
fn most_dependencies_are_resolvable_and_three_of_ten_have_conditions() {
    let words = words::Words::new();
    let mut known: HashSet<&str> = words.official.iter().copied().collect();
    known.extend(large().iter().map(|record| record.name.as_str()));
    known.extend(
        large()
            .iter()
            .flat_map(|record| record.provides.iter().flatten())
            .map(|item| name_of(item)),
    );
    let (mut count, mut resolvable, mut conditional) = (0_u32, 0, 0);
    for item in large()
        .iter()
        .flat_map(|record| record.depends.iter().chain(&record.make_depends).flatten())
    {
        count += 1;
        resolvable += u32::from(known.contains(name_of(item)));
        conditional += u32::from(name_of(item) != item);
    }
    let (resolvable, conditional) = (resolvable * 100 / count, conditional * 100 / count);
    assert!(
        (90..99).contains(&resolvable),
        "{resolvable} % of {count} dependencies are resolvable"
    );
    assert!(
        (25..36).contains(&conditional),
        "{conditional} % of {count} dependencies have a condition"
    );
}

#[test]
fn a_record_is_as_long_as_a_real_one() {
    let dump = dump(10_000, 1);
    let mean = dump.len() / 10_000;
    assert!((580..=700).contains(&mean), "a record has {mean} bytes in the mean");
}

#[test]
fn a_handful_contain_attest_at_every_size() {
    for packages in [100, 2000, 20_000] {
        let count = parse(&dump(packages, 3)).iter().filter(|record| record.says("attest")).count();
        assert_eq!(count, 12, "of {packages} packages");
    }
    assert_eq!(large().iter().filter(|record| record.says("attest")).count(), 12);
}

// Reproducibility.

/// If this fails, every published figure was measured with another catalogue: change the digest only on purpose.
#[test]
fn the_same_recipe_gives_the_same_bytes() {
    let digest: String =
        Sha256::digest(dump(2000, 1)).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "30d211c88ea18664dd41b72fb5a5dc0d51c027c787c979a63181cf18eeedbdb5");
}

#[test]
fn another_seed_gives_another_catalogue() {
    let names = |seed| {
        parse(&dump(500, seed)).into_iter().map(|record| record.name).collect::<HashSet<_>>()
    };
    let common = names(1).intersection(&names(2)).count();
    assert!(common < 50, "{common} of 500 names are common to two seeds");
}

#[test]
fn progress_is_reported_for_each_thousand_and_at_the_end() {
    for (packages, expected) in
        [(0, vec![]), (7, vec![7]), (2000, vec![1000, 2000]), (2500, vec![1000, 2000, 2500])]
    {
        let mut told = Vec::new();
        write_dump(&Recipe { packages, seed: 1 }, &mut io::sink(), &mut |count| told.push(count))
            .unwrap();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_catalogue_that_is_too_large_is_refused() {
    let recipe = Recipe { packages: Recipe::PACKAGES_MAX + 1, seed: 1 };
    let error = write_dump(&recipe, &mut io::sink(), &mut |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a catalogue of 50000001 packages; at most 50000000 are possible"
    );
}

#[test]
fn an_error_of_the_writer_ends_the_dump() {
    let mut short = [0; 1000];
    let error = write_dump(&Recipe { packages: 10, seed: 1 }, &mut &mut short[..], &mut |_| ())
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}
