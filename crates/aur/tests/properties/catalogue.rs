//! Random catalogues, and dumps of them.

use std::io::Read;

use aur::{By, DumpLimits, Snapshot};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// One package, as the test sees it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) base: usize,
    pub(crate) description: Option<String>,
    pub(crate) maintainer: Option<String>,
    pub(crate) submitter: Option<String>,
    pub(crate) depends: Vec<String>,
    pub(crate) make_depends: Vec<String>,
    pub(crate) opt_depends: Vec<String>,
    pub(crate) check_depends: Vec<String>,
    pub(crate) provides: Vec<String>,
    pub(crate) conflicts: Vec<String>,
    pub(crate) replaces: Vec<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) co_maintainers: Vec<String>,
    pub(crate) popularity: f64,
    pub(crate) out_of_date: Option<i64>,
    /// Whether empty values are left out, not written as `null` and `[]`.
    pub(crate) is_terse: bool,
}

/// Package bases. As on the AUR, their names differ in more than case and accents.
pub(crate) const BASES: [&str; 6] = ["base", "Grobner", "a%_b", "日本", "a\u{0}z", "q\"\\'"];

/// Few characters of every width and kind, so that texts often contain each other.
pub(crate) const CHARACTERS: [&str; 28] = [
    "a", "b", "A", "B", "é", "É", "ß", "s", "ø", "Ø", "日", "本", "😀", "🦀", "\u{0}", "%", "_",
    "\\", "\"", "'", "-", "+", ".", "&", "=", " ", "\n", "\u{7f}",
];

pub(crate) fn text(characters_max: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(select(&CHARACTERS[..]), 0..=characters_max)
        .prop_map(|characters| characters.concat())
}

/// A name: not empty, and without a trailing space, which a comparison for equality would ignore.
pub(crate) fn name() -> impl Strategy<Value = String> {
    let any = text(7).prop_map(|text| format!("{text}a").replace(" a", "a"));
    prop_oneof![2 => any, 1 => "[aá][aáeé]?"]
}

pub(crate) fn user() -> impl Strategy<Value = String> {
    select(vec!["jo", "Jo", "kim", "Ŕené", "a b", "li\"x"]).prop_map(str::to_owned)
}

pub(crate) fn relations() -> impl Strategy<Value = Vec<String>> {
    let relation = (text(3), select(vec!["", "<1", ">=2:0", "=1-64", ".so", "  "]))
        .prop_map(|(name, condition)| format!("{name}{condition}"));
    (proptest::collection::vec(relation, 0..4), any::<bool>()).prop_map(
        |(mut relations, is_twice)| {
            // The AUR lists a dependency twice if two architectures have it.
            if is_twice {
                relations.extend(relations.first().cloned());
            }
            relations
        },
    )
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    let texts = || proptest::collection::vec(text(3), 0..3);
    let head = (
        name(),
        0..BASES.len(),
        proptest::option::of(text(20)),
        proptest::option::of(user()),
        proptest::option::of(user()),
    );
    let relations =
        (relations(), relations(), relations(), relations(), relations(), relations(), relations());
    let rest = (
        texts(),
        texts(),
        proptest::collection::vec(user(), 0..3),
        select(vec![0.0, 1.5, 0.000_001, 24.595_536]),
        proptest::option::of(any::<i32>().prop_map(i64::from)),
        any::<bool>(),
    );
    (head, relations, rest).prop_map(|(head, relations, rest)| Record {
        name: head.0,
        base: head.1,
        description: head.2,
        maintainer: head.3,
        submitter: head.4,
        depends: relations.0,
        make_depends: relations.1,
        opt_depends: described(relations.2, relations.6),
        check_depends: relations.3,
        provides: relations.4,
        conflicts: relations.5,
        replaces: Vec::new(),
        keywords: rest.0,
        groups: rest.1,
        co_maintainers: rest.2,
        popularity: rest.3,
        out_of_date: rest.4,
        is_terse: rest.5,
    })
}

/// Optional dependencies, some with a description as in older dumps.
pub(crate) fn described(names: Vec<String>, descriptions: Vec<String>) -> Vec<String> {
    let mut descriptions = descriptions.into_iter();
    names
        .into_iter()
        .map(|name| match descriptions.next() {
            Some(description) => format!("{name}: {description}"),
            None => name,
        })
        .collect()
}

/// Packages whose names differ in more than case; some differ only in accents.
pub(crate) fn catalogue() -> impl Strategy<Value = Vec<Record>> {
    proptest::collection::vec(record(), 1..40).prop_map(|mut records| {
        let mut seen = std::collections::HashSet::new();
        records.retain(|record| seen.insert(record.name.to_lowercase()));
        let moved: Vec<Vec<String>> = records.iter().map(|record| record.depends.clone()).collect();
        for (record, replaces) in records.iter_mut().zip(moved.into_iter().rev()) {
            record.replaces = replaces;
        }
        records
    })
}

impl Record {
    pub(crate) fn list(&self, by: By) -> &[String] {
        match by {
            By::Depends => &self.depends,
            By::MakeDepends => &self.make_depends,
            By::OptDepends => &self.opt_depends,
            By::CheckDepends => &self.check_depends,
            By::Provides => &self.provides,
            By::Conflicts => &self.conflicts,
            By::Replaces => &self.replaces,
            By::Keywords => &self.keywords,
            By::Groups => &self.groups,
            By::CoMaintainers => &self.co_maintainers,
            By::Name | By::NameDesc | By::Maintainer | By::Submitter | By::PackageBase => &[],
        }
    }

    /// The record as `info` must show it, with `id` as its number.
    pub(crate) fn shown(&self, id: usize) -> Value {
        let mut members = self.written(id);
        members.retain(|key, value| {
            let is_list_left_out = !matches!(key.as_str(), "Keywords" | "License");
            !(is_list_left_out && value.as_array().is_some_and(Vec::is_empty))
        });
        for key in ["Keywords", "License"] {
            members.entry(key).or_insert(json!([]));
        }
        for key in ["Description", "Maintainer", "OutOfDate", "Submitter", "URL"] {
            members.entry(key).or_insert(Value::Null);
        }
        members.insert(
            "URLPath".into(),
            format!("/cgit/aur.git/snapshot/{}.tar.gz", BASES[self.base]).into(),
        );
        if self.popularity == 0.0 {
            members.insert("Popularity".into(), 0.into());
        }
        Value::Object(members)
    }

    /// The record as a dump has it.
    pub(crate) fn written(&self, id: usize) -> Map<String, Value> {
        let value = json!({
            "ID": id, "Name": self.name, "PackageBaseID": self.base, "PackageBase": BASES[self.base], "Version": "1:2-3",
            "Description": self.description, "URL": null, "NumVotes": id % 3, "Popularity": self.popularity,
            "OutOfDate": self.out_of_date, "Maintainer": self.maintainer, "Submitter": self.submitter,
            "FirstSubmitted": 1, "LastModified": -2, "URLPath": "/made/of/the/name", "Depends": self.depends,
            "MakeDepends": self.make_depends, "OptDepends": self.opt_depends, "CheckDepends": self.check_depends,
            "Provides": self.provides, "Conflicts": self.conflicts, "Replaces": self.replaces,
            "Keywords": self.keywords, "Groups": self.groups, "CoMaintainers": self.co_maintainers,
        });
        let Value::Object(mut members) = value else { unreachable!("written as an object") };
        if self.is_terse {
            members.retain(|_, value| {
                !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
            });
        }
        members
    }
}

/// A dump of the records, in the order of `order`; with `is_escaped`, everything beyond ASCII is escaped.
pub(crate) fn dump(records: &[Record], order: &[usize], is_escaped: bool) -> String {
    let objects: Vec<String> =
        order.iter().map(|&id| Value::Object(records[id].written(id)).to_string()).collect();
    let text = format!("[\n{}\n]\n", objects.join(",\n"));
    if !is_escaped {
        return text;
    }
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    escaped
}

pub(crate) fn load(records: &[Record]) -> Snapshot {
    let order: Vec<usize> = (0..records.len()).collect();
    read(dump(records, &order, false).as_bytes())
}

pub(crate) fn read(source: impl Read + Send) -> Snapshot {
    aur::dump::read(source, &DumpLimits::default()).expect("a dump")
}
