//! Random histories: a snapshot made of the previous one and of changes answers every question like one that was read at once,
//! byte for byte.

use std::collections::BTreeSet;

use aur::{Changes, DumpLimits, Popularities};

use super::*;

/// One package, with a number that it keeps.
type Numbered = (usize, Record);

/// One change of one package.
#[derive(Clone, Debug)]
enum Edit {
    Add(Record),
    Remove(Index),
    /// Everything but the name.
    Replace(Index, Record),
    Rename(Index, String),
    Move(Index, usize),
    /// Only the spelling of the name.
    Respell(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => record().prop_map(Edit::Add),
        3 => any::<Index>().prop_map(Edit::Remove),
        3 => (any::<Index>(), record()).prop_map(|(at, record)| Edit::Replace(at, record)),
        2 => (any::<Index>(), name()).prop_map(|(at, name)| Edit::Rename(at, name)),
        2 => (any::<Index>(), 0..BASES.len()).prop_map(|(at, base)| Edit::Move(at, base)),
        1 => any::<Index>().prop_map(Edit::Respell),
    ]
}

/// How the next snapshot learns of the edits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Changes,
    /// The bases that packages have left are not named, if they still have some.
    TerseChanges,
    Dump,
    /// Like `Dump`, and then everything in one segment again.
    Merge,
}

#[derive(Clone, Debug)]
struct Step {
    edits: Vec<Edit>,
    way: Way,
    /// A bit for each base of [`BASES`], and of [`EMPTY`], that exists if it has no package.
    named: u16,
}

fn step() -> impl Strategy<Value = Step> {
    let way = select(vec![Way::Changes, Way::Changes, Way::TerseChanges, Way::Dump, Way::Merge]);
    (proptest::collection::vec(edit(), 0..5), way, any::<u16>())
        .prop_map(|(edits, way, named)| Step { edits, way, named })
}

/// Bases that never have a package.
const EMPTY: [&str; 3] = ["B-empty", "äbc", "zz"];

fn named(bits: u16) -> Vec<String> {
    let all = BASES.iter().chain(&EMPTY).enumerate();
    all.filter(|(at, _)| bits >> at & 1 == 1).map(|(_, name)| (*name).to_owned()).collect()
}

/// Applies an edit, if it leaves a catalogue as the AUR could have it; adds the bases that it concerns.
fn apply(
    edit: &Edit,
    records: &mut Vec<Numbered>,
    next_id: &mut usize,
    concerned: &mut BTreeSet<usize>,
) {
    let is_free = |records: &[Numbered], name: &str, but: Option<usize>| {
        let mut others = records.iter().enumerate().filter(|(at, _)| Some(*at) != but);
        others.all(|(_, (_, record))| record.name.to_lowercase() != name.to_lowercase())
    };
    if let Edit::Add(record) = edit {
        if is_free(records, &record.name, None) {
            concerned.insert(record.base);
            records.push((*next_id, record.clone()));
            *next_id += 1;
        }
        return;
    }
    if records.is_empty() {
        return;
    }
    let pick = |index: &Index| index.index(records.len());
    match edit {
        Edit::Add(_) => {}
        Edit::Remove(index) => {
            let (_, record) = records.remove(pick(index));
            concerned.insert(record.base);
        }
        Edit::Replace(index, by) => {
            let at = pick(index);
            concerned.extend([records[at].1.base, by.base]);
            records[at].1 = Record { name: records[at].1.name.clone(), ..by.clone() };
        }
        Edit::Rename(index, name) => {
            let at = pick(index);
            if is_free(records, name, Some(at)) {
                concerned.insert(records[at].1.base);
                records[at].1.name.clone_from(name);
            }
        }
        Edit::Move(index, base) => {
            let at = pick(index);
            concerned.extend([records[at].1.base, *base]);
            records[at].1.base = *base;
        }
        Edit::Respell(index) => {
            let at = pick(index);
            let name = records[at].1.name.to_uppercase();
            if name.to_lowercase() == records[at].1.name.to_lowercase() {
                concerned.insert(records[at].1.base);
                records[at].1.name = name;
            }
        }
    }
}

fn dump_of<'a>(records: impl Iterator<Item = &'a Numbered>) -> Vec<u8> {
    let objects: Vec<String> =
        records.map(|(id, record)| Value::Object(record.written(*id)).to_string()).collect();
    format!("[\n{}\n]\n", objects.join(",\n")).into_bytes()
}

fn whole(records: &[Numbered], named: &[String]) -> Snapshot {
    let dump = dump_of(records.iter());
    aur::dump::read_with_bases(&dump[..], &DumpLimits::default(), named.iter().cloned())
        .expect("a dump")
}

/// The snapshot after a step, made of the one `before`.
fn next(
    before: &Snapshot,
    way: Way,
    records: &[Numbered],
    concerned: &BTreeSet<usize>,
    (named_before, named): (&[String], &[String]),
) -> Snapshot {
    let limits = DumpLimits::default();
    if matches!(way, Way::Dump | Way::Merge) {
        let dump = dump_of(records.iter());
        let next = aur::dump::read_after(before, &dump[..], &limits, named.iter().cloned());
        let next = next.expect("a dump").expect("few packages differ");
        return if way == Way::Merge { next.merged(&Popularities::new()) } else { next };
    }
    let has_packages = |base: &str| records.iter().any(|(_, record)| BASES[record.base] == base);
    let of_concerned = |(_, record): &&Numbered| concerned.contains(&record.base);
    let mut bases: BTreeSet<&str> = concerned.iter().map(|&base| BASES[base]).collect();
    if way == Way::TerseChanges {
        bases.retain(|base| !has_packages(base));
    }
    for name in named_before.iter().chain(named) {
        if named_before.contains(name) != named.contains(name) && !has_packages(name) {
            bases.insert(name);
        }
    }
    let empty_bases = bases
        .iter()
        .filter(|base| !has_packages(base) && named.iter().any(|name| name == *base))
        .map(|&base| base.to_owned())
        .collect();
    let changes = Changes {
        records: dump_of(records.iter().filter(of_concerned)),
        empty_bases,
        bases: bases.into_iter().map(str::to_owned).collect(),
        users: None,
    };
    let next = before.updated(&changes, &limits).expect("changes");
    if let Some(next) = &next {
        let again = next.updated(&changes, &limits).expect("changes");
        assert!(again.is_none(), "nothing differs any more");
    }
    next.unwrap_or_else(|| before.clone())
}

/// Compares the answers to one question, with as many packages as there are, and with fewer allowed.
#[track_caller]
fn check(found: &Snapshot, expected: &Snapshot, question: &[(&str, &str)]) {
    let both = |results_max: usize| {
        let [found, expected] = [found, expected].map(|snapshot| {
            let reply = answer(snapshot, question, results_max).reply;
            (
                String::from_utf8_lossy(&reply.body).into_owned(),
                reply.etag.map(|tag| tag.to_string()),
            )
        });
        assert_eq!(found, expected, "{question:?} with at most {results_max}");
        found.0
    };
    let body = both(PLENTY);
    let count = serde_json::from_str::<Value>(&body).expect("JSON")["resultcount"].as_u64();
    if let Some(count) = count {
        both(count as usize);
        both((count as usize).saturating_sub(1));
    }
}

/// Compares the answers to questions of all kinds.
fn compare(found: &Snapshot, expected: &Snapshot, needles: &[String]) {
    let counts = |snapshot: &Snapshot| {
        (
            snapshot.package_count(),
            snapshot.package_base_count(),
            snapshot.duplicate_count(),
            snapshot.middle_name(),
        )
    };
    assert_eq!(counts(found), counts(expected));
    for list in List::ALL {
        let gzip = aur::Compressed::Gzip;
        assert_eq!(found.list(list, gzip), expected.list(list, gzip), "{list:?}");
    }
    let dump = |snapshot: &Snapshot| {
        let mut dump = Vec::new();
        snapshot.write_dump(&mut dump).expect("a dump in memory");
        String::from_utf8(dump).expect("UTF-8")
    };
    assert_eq!(dump(found), dump(expected));
    for needle in needles.iter().map(String::as_str).chain(["", "a", "aa"]) {
        for type_ in
            ["suggest", "suggest-pkgbase", "opensearch-suggest", "opensearch-suggest-pkgbase"]
        {
            check(found, expected, &[("v", "5"), ("type", type_), ("arg", needle)]);
        }
        check(found, expected, &[("v", "5"), ("type", "info"), ("arg", needle)]);
        check(found, expected, &[("v", "5"), ("type", "msearch"), ("arg", needle)]);
        for by in By::ALL {
            check(
                found,
                expected,
                &[("v", "6"), ("type", "info"), ("by", by.name()), ("arg", needle)],
            );
            for (version, mode) in
                [("5", "contains"), ("5", "starts-with"), ("6", "contains"), ("6", "starts-with")]
            {
                let question = [
                    ("v", version),
                    ("type", "search"),
                    ("by", by.name()),
                    ("mode", mode),
                    ("arg", needle),
                ];
                check(found, expected, &question);
            }
        }
    }
    let mut fields = vec![("v".to_owned(), "5".to_owned()), ("type".to_owned(), "info".to_owned())];
    fields.extend(needles.iter().map(|needle| ("arg[]".to_owned(), needle.clone())));
    let of_all = |snapshot: &Snapshot| {
        let params = Params::from_body(PathParams::default(), None, Body::Fields(&fields));
        Answer::to(params, snapshot, false, PLENTY).reply.body
    };
    assert_eq!(of_all(found), of_all(expected));
    let plus = Params::from_query(PathParams::default(), Some("v=5&type=search&arg=a+a"));
    let of_plus = |snapshot| Answer::to(plus.clone(), snapshot, false, PLENTY).reply.body;
    assert_eq!(of_plus(found), of_plus(expected));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_updated_snapshot_answers_as_one_that_was_read_at_once(
        records in catalogue(),
        steps in proptest::collection::vec(step(), 1..7),
        recipes in proptest::collection::vec(needle_recipe(), 3),
    ) {
        let mut records: Vec<Numbered> = records.into_iter().enumerate().collect();
        let mut next_id = records.len();
        let mut named_before = Vec::new();
        let mut snapshot = whole(&records, &named_before);
        for step in steps {
            let (mut after, mut concerned) = (records.clone(), BTreeSet::new());
            for edit in &step.edits {
                apply(edit, &mut after, &mut next_id, &mut concerned);
            }
            if after.is_empty() {
                continue;
            }
            let named = named(step.named);
            snapshot = next(&snapshot, step.way, &after, &concerned, (&named_before, &named));
            let plain = |records: &[Numbered]| -> Vec<Record> {
                records.iter().map(|(_, record)| record.clone()).collect()
            };
            // Needles from existing packages, and from removed ones.
            let mut needles: Vec<String> =
                recipes.iter().map(|recipe| recipe.needle(&plain(&after))).collect();
            needles.extend(recipes.iter().map(|recipe| recipe.needle(&plain(&records))));
            needles.extend(after.iter().rev().take(3).map(|(_, record)| record.name.clone()));
            compare(&snapshot, &whole(&after, &named), &needles);
            (records, named_before) = (after, named);
        }
    }
}

fn plain(name: &str, base: &str, version: u32) -> String {
    format!(
        "{{\"ID\":1,\"Name\":\"{name}\",\"PackageBaseID\":1,\"PackageBase\":\"{base}\",\"Version\":\"{version}\",\
         \"NumVotes\":0,\"Popularity\":0,\"FirstSubmitted\":1,\"LastModified\":1}}"
    )
}

fn numbered(count: usize, changed: usize) -> String {
    let records = (0..count).map(|number| {
        plain(&format!("p{number}"), &format!("p{number}"), u32::from(number < changed))
    });
    format!("[{}]", records.collect::<Vec<_>>().join(","))
}

#[test]
fn a_dump_that_differs_much_is_read_as_the_first() {
    let (limits, none) = (DumpLimits::default(), || std::iter::empty::<String>());
    let before = read(numbered(1000, 0).as_bytes());
    let after = |dump: &str| {
        aur::dump::read_after(&before, dump.as_bytes(), &limits, none()).expect("a dump")
    };
    let unchanged = after(&numbered(1000, 0)).expect("nothing differs");
    assert_eq!((unchanged.changed_count(), unchanged.package_count()), (0, 1000));
    let little = after(&numbered(1000, 256)).expect("little differs");
    assert_eq!((little.changed_count(), little.package_count()), (512, 1000));
    assert!(after(&numbered(1000, 257)).is_none());
    assert!(after(&numbered(700, 0)).is_none());
    assert_eq!(after(&numbered(800, 0)).expect("little differs").package_count(), 800);
    let twice = format!("[{},{}]", plain("new", "b", 1), plain("new", "b", 2));
    assert!(after(&format!("[{},{}", plain("p1", "p1", 0), &numbered(1000, 0)[1..])).is_none());
    assert!(
        after(&format!("{},{}", &numbered(1000, 0)[..numbered(1000, 0).len() - 1], &twice[1..]))
            .is_none()
    );
    assert!(!little.is_overgrown());
    let mut grown = before.clone();
    for (from, to) in [(0, 250), (250, 500), (500, 750)] {
        let records =
            (from..to).map(|number| plain(&format!("p{number}"), &format!("p{number}"), 9));
        let records = format!("[{}]", records.collect::<Vec<_>>().join(","));
        let changes = Changes { records: records.into(), ..Changes::default() };
        grown = grown.updated(&changes, &limits).expect("changes").expect("they differ");
    }
    assert!(grown.is_overgrown());
    assert!(!grown.merged(&Popularities::new()).is_overgrown());
    assert_eq!(grown.merged(&Popularities::new()).changed_count(), 0);
}

/// Popularities reach the packages of their bases in all layers, as if the dump had had them.
#[test]
fn popularities_are_merged_in() {
    let records = |version: &dyn Fn(usize) -> u32, popularity: &dyn Fn(usize) -> &'static str| {
        let records = (0..600).map(|number| {
            let record = plain(&format!("p{number}"), &format!("b{}", number / 2), version(number));
            record.replace("\"Popularity\":0", &format!("\"Popularity\":{}", popularity(number)))
        });
        format!("[{}]", records.collect::<Vec<_>>().join(","))
    };
    let mut snapshot = read(records(&|_| 0, &|_| "0").as_bytes());
    for at in [0, 40, 4] {
        let changes = Changes {
            records: format!("[{}]", plain(&format!("p{at}"), &format!("b{}", at / 2), 1)).into(),
            bases: vec![format!("b{}", at / 2)],
            ..Changes::default()
        };
        let changed = snapshot.updated(&changes, &DumpLimits::default()).expect("changes");
        snapshot = changed.expect("they differ");
    }
    let popularities = [("b0", 0.5), ("b20", 12.0), ("b299", 0.000001), ("none", 3.0)];
    let popularities: Popularities =
        popularities.into_iter().map(|(base, value)| (base.to_owned(), value)).collect();
    let merged = snapshot.merged(&popularities);
    assert_eq!(merged.changed_count(), 0);
    let is_gone = |number: usize| [1, 41, 5].contains(&number);
    let popularity = |number| match number / 2 {
        0 => "0.5",
        20 => "12.0",
        299 => "1e-6",
        _ => "0",
    };
    let all = records(&|number| u32::from([0, 40, 4].contains(&number)), &popularity);
    let left: Vec<serde_json::Value> = serde_json::from_str(&all).expect("a dump");
    let left: Vec<String> = left
        .iter()
        .enumerate()
        .filter(|(number, _)| !is_gone(*number))
        .map(|(_, record)| record.to_string())
        .collect();
    let whole = read(format!("[{}]", left.join(",")).as_bytes());
    compare(&merged, &whole, &["p0", "p40", "b299"].map(str::to_owned));
}

#[test]
fn no_package_may_not_be_the_outcome() {
    let before = read(format!("[{}]", plain("a", "b", 1)).as_bytes());
    let changes =
        Changes { bases: vec!["B".to_owned()], records: b"[]".into(), ..Changes::default() };
    let outcome = before.updated(&changes, &DumpLimits::default());
    assert!(matches!(outcome, Err(aur::DumpError::Empty)), "{outcome:?}");
    let none = std::iter::empty::<String>();
    let outcome = aur::dump::read_after(&before, &b"[]"[..], &DumpLimits::default(), none);
    assert!(matches!(outcome, Err(aur::DumpError::Empty)), "{outcome:?}");
}

/// There are enough changes to build each layer anew several times; packages in each of them change, move and go.
#[test]
fn many_changes_one_after_another() {
    let base_of = |number: usize| format!("b{number:03}");
    // Name, base, version. Every third base has two packages.
    let mut packages: Vec<(String, String, u32)> = (0..200)
        .map(|number| (format!("p{number:03}"), base_of(number - usize::from(number % 3 == 1)), 0))
        .collect();
    let dump_of = |packages: &[&(String, String, u32)]| {
        let records: Vec<String> =
            packages.iter().map(|(name, base, version)| plain(name, base, *version)).collect();
        format!("[{}]", records.join(","))
    };
    let whole = |packages: &[(String, String, u32)]| {
        read(dump_of(&packages.iter().collect::<Vec<_>>()).as_bytes())
    };
    let mut snapshot = whole(&packages);
    let mut counts = BTreeSet::new();
    for step in 0..250 {
        let at = step * 7919 % packages.len();
        let mut bases = BTreeSet::from([packages[at].1.clone()]);
        match step % 5 {
            0 | 1 => packages[at].2 += 1,
            2 => {
                packages[at].1 = base_of(step * 31 % 200);
                bases.insert(packages[at].1.clone());
            }
            3 => drop(packages.remove(at)),
            _ => packages.push((format!("n{step:03}"), packages[at].1.clone(), 1)),
        }
        let concerned: Vec<_> =
            packages.iter().filter(|(_, base, _)| bases.contains(base)).collect();
        let changes = Changes {
            records: dump_of(&concerned).into(),
            bases: bases.into_iter().collect(),
            empty_bases: Vec::new(),
            users: None,
        };
        let next = snapshot.updated(&changes, &DumpLimits::default()).expect("changes");
        let next = next.expect("they differ");
        let mut named: Vec<String> = next
            .differences(&snapshot)
            .into_iter()
            .map(|difference| difference.after.or(difference.before).expect("one of them").name)
            .collect();
        named.sort();
        let expected = whole(&packages).differences(&snapshot).into_iter();
        let mut expected: Vec<String> =
            expected.map(|it| it.after.or(it.before).expect("one of them").name).collect();
        expected.sort();
        assert_eq!(named, expected, "{step}");
        snapshot = next;
        counts.insert(snapshot.changed_count());
        if step % 25 == 24 {
            let needles = ["p0", "n1", "p199", "b003"].map(str::to_owned);
            compare(&snapshot, &whole(&packages), &needles);
        }
    }
    assert!(counts.len() > 100, "the layers grow: {counts:?}");
}
