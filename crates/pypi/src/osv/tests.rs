//! Records against versions: the schema's algorithm over events, and what is left out or refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::project_name;

fn record(id: &str, affected: &Value) -> Value {
    json!({"id": id, "modified": "2026-01-01T00:00:00Z", "details": "not used", "affected": affected})
}

fn package(name: &str) -> Value {
    json!({"ecosystem": "PyPI", "name": name})
}

fn built(records: &[Value]) -> Advisories {
    let mut builder = AdvisoriesBuilder::default();
    for (place, record) in records.iter().enumerate() {
        builder.add(record.to_string().as_bytes(), place as u32).expect("a record");
    }
    builder.finish()
}

/// The identifiers of the records that affect `foo` in this version; `*`: in any.
fn affecting(advisories: &Advisories, version: &str) -> String {
    let version = (version != "*").then(|| Version::parse(version).expect("a version"));
    let found = advisories.affecting(&project_name("foo"), version.as_ref());
    found.map(Advisory::id).collect::<Vec<_>>().join(" ")
}

/// Which of these versions the events affect.
#[track_caller]
fn check(events: Value, versions: &str, expected: &str) {
    let ranges = json!([{"type": "ECOSYSTEM", "events": events}]);
    let affected = json!([{"package": package("foo"), "ranges": ranges}]);
    let advisories = built(&[record("A-1", &affected)]);
    let is_affected = |version: &&str| affecting(&advisories, version) == "A-1";
    let found: Vec<&str> = versions.split(' ').filter(is_affected).collect();
    assert_eq!(found.join(" "), expected, "{events}");
}

#[test]
fn events_make_ranges() {
    let some = "0.dev1 0.9 1.0rc1 1 1.0.0 1.0+local 1.5 2.0.dev1 2.0 3";
    check(json!([{"introduced": "0"}]), some, some);
    check(json!([{"introduced": "1.0"}, {"fixed": "2.0"}]), some, "1 1.0.0 1.0+local 1.5 2.0.dev1");
    check(
        json!([{"introduced": "0"}, {"last_affected": "1.0"}]),
        some,
        "0.dev1 0.9 1.0rc1 1 1.0.0",
    );
    check(json!([{"introduced": "1"}, {"last_affected": "1"}]), some, "1 1.0.0");
    check(json!([{"fixed": "1"}]), some, "");
    check(json!([{"introduced": "1"}, {"fixed": "1"}]), some, "");
    check(json!([{"introduced": "0", "fixed": "1"}]), some, "0.dev1 0.9 1.0rc1");
    // Events may be in any order; a version may be affected again after a fix.
    check(
        json!([{"fixed": "2"}, {"introduced": "1.5"}, {"fixed": "0.9"}, {"introduced": "0"}]),
        some,
        "0.dev1 1.5 2.0.dev1",
    );
    // The greatest limit counts.
    check(
        json!([{"introduced": "1"}, {"limit": "1.5"}, {"limit": "1.2"}]),
        some,
        "1 1.0.0 1.0+local",
    );
    check(json!([{"introduced": "2"}, {"limit": "1"}, {"limit": "*"}]), some, "2.0 3");
    check(json!([]), some, "");
}

#[test]
fn versions_count_beside_ranges() {
    let git = json!({"type": "GIT", "repo": "r", "events": [{"introduced": "0"}]});
    let affected = json!([
        {"package": package("Foo"), "ranges": [git], "versions": ["1.0", "2.0", "2004d"]},
        {"package": package("foo"), "versions": ["3"]},
        {"package": {"ecosystem": "npm", "name": "foo"}, "versions": ["4"]},
    ]);
    let advisories = built(&[record("GHSA-1", &affected)]);
    for (version, expected) in [
        ("1.0.0", true),
        ("1.1", false),
        ("3.0", true),
        ("4", false),
        ("2004d", true),
        ("2005d", false),
    ] {
        assert_eq!(!affecting(&advisories, version).is_empty(), expected, "{version}");
    }
    assert_eq!(affecting(&advisories, "*"), "GHSA-1", "once, although two parts name the project");
}

#[test]
fn withdrawn_records_and_other_ecosystems_affect_nothing() {
    let whole = json!([{"package": package("foo"), "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]);
    let mut withdrawn = record("MAL-2", &whole);
    withdrawn["withdrawn"] = json!("2026-01-02T00:00:00Z");
    let mut old = record("MAL-3", &json!([{"package": package("foo"), "versions": ["1"]}]));
    old["modified"] = json!("2025-12-31T00:00:00Z");
    let new = record("MAL-3", &json!([{"package": package("foo"), "versions": ["2"]}]));
    let mut builder = AdvisoriesBuilder::default();
    let foreign = record("X-1", &json!([{"package": {"ecosystem": "npm", "name": "foo"}}, {}]));
    let mut add = |record: &Value, place| builder.add(record.to_string().as_bytes(), place);
    assert_eq!(add(&foreign, 0), Ok(RecordOutcome::Foreign));
    for (place, record) in [&old, &withdrawn, &new, &record("GHSA-1", &whole)].iter().enumerate() {
        assert_eq!(add(record, place as u32), Ok(RecordOutcome::Whole));
    }
    let advisories = builder.finish();
    assert_eq!((advisories.len(), advisories.malware(), advisories.vulnerabilities()), (3, 1, 1));
    assert_eq!(affecting(&advisories, "1"), "GHSA-1");
    assert_eq!(affecting(&advisories, "2"), "GHSA-1 MAL-3", "the newer record of one identifier");
    assert_eq!(affecting(&advisories, "2004d"), "GHSA-1");
    let places = ["MAL-2", "MAL-3", "X-1"].map(|id| advisories.by_id(id).map(Advisory::place));
    assert_eq!(places, [Some(1), Some(2), None]);
    assert!(advisories.by_id("MAL-2").is_some_and(|it| it.is_withdrawn));
}

#[test]
fn what_is_no_record_is_refused_with_the_reason() {
    let add = |text: &str| {
        AdvisoriesBuilder::default().add(text.as_bytes(), 0).map_err(|it| it.to_string())
    };
    let with = |member: &str, value: Value| {
        let mut record = record("MAL-1", &json!([{"package": package("foo"), "versions": ["1"]}]));
        record[member] = value;
        add(&record.to_string())
    };
    assert!(add("").is_err_and(|text| text.starts_with("it is not an OSV record: ")));
    assert!(add("[]").is_err());
    assert!(add(&"[".repeat(100_000)).is_err());
    assert!(AdvisoriesBuilder::default().add(b"{\"id\":\"\xff\"}", 0).is_err());
    assert_eq!(
        with("id", json!("../../etc/passwd")),
        Err("its `id` is `../../etc/passwd`, but an identifier of letters, digits, `-`, `.`, `_` and `:` was expected".to_owned())
    );
    assert!(with("id", json!("")).is_err());
    assert!(with("modified", json!("yesterday")).is_err());
    assert!(with("withdrawn", json!("no")).is_err());
    let events = |event: Value| {
        let ranges = json!([{"type": "ECOSYSTEM", "events": [event]}]);
        with("affected", json!([{"package": package("foo"), "ranges": ranges}]))
    };
    assert_eq!(events(json!({"introduced": "1"})), Ok(RecordOutcome::Whole));
    assert!(events(json!({"introduced": "one"})).is_err_and(|text| text.contains("`one`")));
    assert!(events(json!({"fixed": "9".repeat(300)})).is_err());
    assert!(with("affected", json!([{"package": package("f\u{f6}")}])).is_err());
}

/// An error in one part of a record does not make the others harmless.
#[test]
fn a_part_that_cannot_be_read_is_left_out_alone() {
    let range =
        |introduced: &str| json!({"type": "ECOSYSTEM", "events": [{"introduced": introduced}]});
    let check = |affected: Value, problem: &str, versions: [(&str, bool); 2]| {
        let mut builder = AdvisoriesBuilder::default();
        let taken = builder.add(record("MAL-1", &affected).to_string().as_bytes(), 0);
        let Ok(RecordOutcome::InPart(error)) = &taken else { panic!("{taken:?}: {affected}") };
        assert!(error.to_string().contains(problem), "{error}");
        let advisories = builder.finish();
        for (version, expected) in versions {
            assert_eq!(!affecting(&advisories, version).is_empty(), expected, "{affected}");
        }
    };
    let good = json!({"package": package("foo"), "versions": ["1"]});
    let only_one = [("1", true), ("2", false)];
    check(json!([{"package": package("f\u{f6}"), "versions": ["2"]}, good]), "`f\u{f6}`", only_one);
    check(json!([{"package": package("foo"), "ranges": [range("one")]}, good]), "`one`", only_one);
    let ranges = json!([range("one"), range("2")]);
    check(
        json!([{"package": package("foo"), "ranges": ranges}]),
        "`one`",
        [("1", false), ("2", true)],
    );
    let versions = json!(["9".repeat(300), "1"]);
    check(json!([{"package": package("foo"), "versions": versions}]), "a version", only_one);
}

#[test]
fn what_records_take_is_bounded() {
    let versions: Vec<String> = (0..PARTS_MAX).map(|it| format!("1.{it}")).collect();
    let mut many = record("MAL-1", &json!([{"package": package("foo"), "versions": versions}]));
    let mut builder = AdvisoriesBuilder::default();
    let taken = builder.add(many.to_string().as_bytes(), 0);
    assert_eq!(taken, Err(OsvError::TooLarge { count: PARTS_MAX + 1 }));
    // The memory depends on the length of versions, not only on their number.
    let mut weight = |version: String| {
        let mut builder = AdvisoriesBuilder::default();
        many["affected"] = json!([{"package": package("foo"), "versions": [version]}]);
        builder.add(many.to_string().as_bytes(), 0).expect("a record");
        WEIGHT_MAX - builder.room
    };
    assert!(weight(vec!["1"; 120].join(".")) > 120 * 8 + weight("1".to_owned()));
    let local = format!("1+{}", vec!["a"; 120].join("."));
    assert!(weight(local) > 120 * 48);
    builder.room = 10_000;
    let small = record("MAL-1", &json!([{"package": package("foo"), "versions": ["1", "2"]}]));
    let mut outcomes = (0..100).map(|place| builder.add(small.to_string().as_bytes(), place));
    assert!(outcomes.any(|outcome| outcome == Err(OsvError::TooMany)));
}

/// A record with the most ranges and versions is read and searched quickly: each version is in the last range.
#[test]
fn many_ranges_are_merged() {
    let events: Vec<Value> = (0..PARTS_MAX / 4)
        .flat_map(|it| {
            [json!({"introduced": format!("{it}")}), json!({"fixed": format!("{it}.5")})]
        })
        .collect();
    let versions: Vec<String> = (0..PARTS_MAX / 4).map(|it| format!("{it}.1")).collect();
    let range = json!({"type": "ECOSYSTEM", "events": events});
    let affected = json!([{"package": package("foo"), "ranges": [range], "versions": versions}]);
    let advisories = built(&[record("A-1", &affected)]);
    let comparisons = advisories.comparisons(&project_name("foo"));
    assert!((10..20).contains(&comparisons), "{comparisons}");
    for (version, expected) in [("0", "A-1"), ("12499.4", "A-1"), ("12499.5", ""), ("77.7", "")] {
        assert_eq!(affecting(&advisories, version), expected, "{version}");
    }
    // Ranges that overlap or touch are merged into one.
    let range = |from: &str, kind: &str, to: &str| json!({"type": "ECOSYSTEM", "events": [{"introduced": from}, {kind: to}]});
    let ranges = [
        range("4", "fixed", "5"),
        range("0", "fixed", "1"),
        range("1", "last_affected", "2"),
        range("1.5", "fixed", "2"),
        range("2", "fixed", "3"),
    ];
    let affected = json!([{"package": package("foo"), "ranges": ranges, "versions": ["2.5", "3"]}]);
    let advisories = built(&[record("A-1", &affected)]);
    assert_eq!(advisories.comparisons(&project_name("foo")), 1 + 2 + 1);
    for (version, expected) in
        [("0.dev1", "A-1"), ("2.9", "A-1"), ("3", "A-1"), ("3.1", ""), ("4.9", "A-1"), ("5", "")]
    {
        assert_eq!(affecting(&advisories, version), expected, "{version}");
    }
}

#[test]
fn what_was_judged_by_earlier_advisories_is_out_of_date() {
    let live = Arc::new(LiveAdvisories::default());
    assert!(live.current().is_none());
    let before = AdvisoryStamp::by(&live);
    assert!(before.is_current());
    live.publish(Arc::default());
    assert!(!before.is_current() && live.current().is_some());
    assert!(AdvisoryStamp::by(&live).is_current());
}

/// The algorithm as the schema writes it.
fn by_schema(events: &[(u8, u8)], limits: &[u8], version: u8) -> bool {
    if !limits.is_empty() && !limits.iter().any(|limit| version < *limit) {
        return false;
    }
    let mut sorted = events.to_vec();
    sorted.sort_by_key(|(kind, at)| (*at, *kind));
    let mut is_vulnerable = false;
    for (kind, at) in sorted {
        match kind {
            0 if version >= at => is_vulnerable = true,
            1 if version > at => is_vulnerable = false,
            2 if version >= at => is_vulnerable = false,
            _ => {}
        }
    }
    is_vulnerable
}

proptest! {
    #[test]
    fn ranges_are_those_of_the_schema(
        events in prop::collection::vec((0_u8..3, 0_u8..9), 0..6),
        others in prop::collection::vec((0_u8..3, 0_u8..9), 0..6),
        limits in prop::collection::vec(0_u8..9, 0..3),
        named in prop::collection::vec(0_u8..9, 0..3),
    ) {
        let kinds = ["introduced", "last_affected", "fixed"];
        let event = |(kind, at): &(u8, u8)| json!({kinds[usize::from(*kind)]: at.to_string()});
        let all: Vec<Value> = events.iter().map(event)
            .chain(limits.iter().map(|limit| json!({"limit": limit.to_string()}))).collect();
        let versions: Vec<String> = named.iter().map(|version| format!("{version}.0")).collect();
        let ranges = [all, others.iter().map(event).collect()];
        let ranges = ranges.map(|events| json!({"type": "ECOSYSTEM", "events": events}));
        let affected = json!([{"package": package("foo"), "ranges": ranges, "versions": versions}]);
        let advisories = built(&[record("A-1", &affected)]);
        for version in 0..9 {
            let expected = by_schema(&events, &limits, version)
                || by_schema(&others, &[], version) || named.contains(&version);
            let found = !affecting(&advisories, &version.to_string()).is_empty();
            prop_assert_eq!(found, expected, "{} of {}", version, affected);
        }
    }
}
