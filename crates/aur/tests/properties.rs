//! Compares the engine with a naive scan: random catalogues, written as dumps, and random questions.
//!
//! random [`Record`]s -> dump text -> [`aur::dump::read`] -> answers, which must equal those of a loop over all
//! records. Of the engine, that loop uses only [`aur::fold`].

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write as _};

use aur::{Answer, Body, By, List, Outcome, Params, PathParams, Snapshot, fold};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

#[path = "properties/catalogue.rs"]
mod catalogue;
#[path = "properties/naive.rs"]
mod naive;
#[path = "properties/updates.rs"]
mod updates;

use self::catalogue::*;
use self::naive::*;

/// aurweb's error for too many packages.
const TOO_MANY: &str = "Too many package results.";

/// More packages than any catalogue in these tests has.
const PLENTY: usize = 10_000;

const CASES: u32 = 48;

// ---- questions

/// The pairs as a query string, everything encoded.
fn query_string(pairs: &[(&str, &str)]) -> String {
    let encode =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    pairs.join("&")
}

/// The body of the answer, after a check of its form.
fn ask(snapshot: &Snapshot, pairs: &[(&str, &str)], results_max: usize) -> Value {
    let answer = answer(snapshot, pairs, results_max);
    let text = String::from_utf8(answer.reply.body.to_vec()).expect("UTF-8");
    check_form(&text)
}

fn answer(snapshot: &Snapshot, pairs: &[(&str, &str)], results_max: usize) -> Answer {
    // aurweb splits a query string after decoding it, so an argument with `&` can only be sent in a path or a body.
    let path = PathParams {
        arg: pairs.iter().find(|(key, _)| *key == "arg").map(|(_, value)| (*value).to_owned()),
        ..PathParams::default()
    };
    let others: Vec<(&str, &str)> =
        pairs.iter().filter(|(key, _)| *key != "arg").copied().collect();
    let params = Params::from_query(path, Some(&query_string(&others)));
    Answer::to(params, snapshot, true, results_max)
}

/// Checks that `text` is one line of JSON with ascending keys and the right number of results.
#[track_caller]
fn check_form(text: &str) -> Value {
    assert!(!text.contains(['\n', '\r']), "more than one line: {text}");
    if let Err(error) = serde_json::from_str::<Sorted>(text) {
        panic!("{error}: {text}");
    }
    let value: Value = serde_json::from_str(text).expect("JSON");
    if let Some(object) = value.as_object() {
        assert_eq!(object["resultcount"], object["results"].as_array().expect("a list").len());
    }
    value
}

/// Any JSON whose objects have their keys in ascending order.
struct Sorted;

impl<'de> Deserialize<'de> for Sorted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Sorted)
    }
}

impl<'de> Visitor<'de> for Sorted {
    type Value = Sorted;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON with sorted keys")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Sorted, A::Error> {
        let mut before: Option<String> = None;
        while let Some((key, Sorted)) = members.next_entry::<String, Sorted>()? {
            if before.as_ref().is_some_and(|before| *before >= key) {
                return Err(A::Error::custom(format_args!("`{key}` after {before:?}")));
            }
            before = Some(key);
        }
        Ok(Sorted)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sorted, A::Error> {
        while items.next_element::<Sorted>()?.is_some() {}
        Ok(Sorted)
    }
    fn visit_unit<E>(self) -> Result<Sorted, E> {
        Ok(Sorted)
    }
    fn visit_str<E>(self, _: &str) -> Result<Sorted, E> {
        Ok(Sorted)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Sorted, E> {
        Ok(Sorted)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Sorted, E> {
        Ok(Sorted)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Sorted, E> {
        Ok(Sorted)
    }
}

/// The names of the results, or the text of the error.
fn names(answer: &Value) -> Result<Vec<String>, String> {
    if let Some(error) = answer["error"].as_str() {
        return Err(error.to_owned());
    }
    let name = |record: &Value| record["Name"].as_str().unwrap_or_default().to_owned();
    Ok(answer["results"].as_array().into_iter().flatten().map(name).collect())
}

/// Needles for a catalogue: parts of its texts, also in another case, and unrelated texts.
#[derive(Clone, Debug)]
struct NeedleRecipe {
    record: Index,
    field: Index,
    start: Index,
    characters: usize,
    change: u8,
    own: String,
}

fn needle_recipe() -> impl Strategy<Value = NeedleRecipe> {
    (any::<Index>(), any::<Index>(), any::<Index>(), 0_usize..5, 0_u8..12, text(3)).prop_map(
        |(record, field, start, characters, change, own)| NeedleRecipe {
            record,
            field,
            start,
            characters,
            change,
            own,
        },
    )
}

impl NeedleRecipe {
    fn needle(&self, records: &[Record]) -> String {
        let record = self.record.get(records);
        let mut texts: Vec<&str> = vec![&record.name, &record.name, BASES[record.base]];
        texts.extend(record.description.as_deref());
        texts.extend(record.description.as_deref());
        texts.extend(record.maintainer.as_deref());
        texts.extend(record.submitter.as_deref());
        texts.extend(
            By::ALL
                .iter()
                .flat_map(|&by| record.list(by))
                .map(|relation| before_condition(relation)),
        );
        let text = *self.field.get(&texts);
        let count = text.chars().count();
        let part: String =
            text.chars().skip(self.start.index(count + 1)).take(self.characters).collect();
        match self.change {
            0 => self.own.clone(),
            1 => part,
            2 => part.to_uppercase(),
            3 => part.to_lowercase(),
            4 => part.replace('e', "é").replace('a', "ä"),
            5 => format!("{part}{}", self.own),
            6 => format!("{part} {}", self.own),
            7 => format!("{text}  "),
            8 => text.to_uppercase(),
            9 => part.repeat(10_000 / part.len().max(1)),
            _ => text.to_owned(),
        }
    }
}

fn needles() -> impl Strategy<Value = Vec<NeedleRecipe>> {
    proptest::collection::vec(needle_recipe(), 6)
}

// ---- properties

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn search_equals_a_naive_scan(records in catalogue(), recipes in needles()) {
        let snapshot = load(&records);
        for needle in recipes.iter().map(|recipe| recipe.needle(&records)) {
            for (version, mode) in [("5", "contains"), ("5", "starts-with"), ("6", "contains"), ("6", "starts-with")] {
                for by in By::ALL {
                    let question =
                        [("v", version), ("type", "search"), ("by", by.name()), ("mode", mode), ("arg", &needle)];
                    let expected = scan(&records, version, by, mode, &needle);
                    let found = names(&ask(&snapshot, &question, PLENTY));
                    prop_assert_eq!(&found, &expected, "{:?}", question);
                    let Ok(expected) = expected else { continue };
                    // A search that finds exactly as many as allowed is answered; with one more it is refused.
                    let found = names(&ask(&snapshot, &question, expected.len()));
                    prop_assert_eq!(found, Ok(expected.clone()), "{:?} at the limit", question);
                    if let Some(limit) = expected.len().checked_sub(1) {
                        let refused = ask(&snapshot, &question, limit);
                        prop_assert_eq!(names(&refused), Err(TOO_MANY.to_owned()), "{:?} beyond the limit", question);
                        prop_assert_eq!(&refused["results"], &json!([]));
                    }
                }
            }
        }
    }

    /// In version 6, an `info` by another field accepts an argument of any length.
    #[test]
    fn needles_of_any_length_equal_a_naive_scan(records in catalogue(), recipes in needles(), single in select(&CHARACTERS[..])) {
        let snapshot = load(&records);
        let needles = recipes.iter().map(|recipe| recipe.needle(&records));
        for needle in needles.chain([single.to_owned(), single.repeat(2), String::new()]) {
            for by in By::ALL.into_iter().filter(|&by| by != By::Name) {
                let is_found = |record: &&&Record| match by {
                    By::NameDesc => is_found_in_text(record, by, false, &needle),
                    _ => is_found_exactly(record, by, &needle),
                };
                let expected: Vec<String> =
                    in_order(&records).iter().filter(is_found).map(|record| record.name.clone()).collect();
                let question = [("v", "6"), ("type", "info"), ("by", by.name()), ("arg", needle.as_str())];
                prop_assert_eq!(names(&ask(&snapshot, &question, PLENTY)), Ok(expected), "{:?}", question);
            }
        }
    }

    /// A bare plus is read as a space, and as a plus if that finds nothing.
    #[test]
    fn a_bare_plus_is_both(records in catalogue(), needle in "[ab]?[+][ab+]{0,2}[%][25]5?", name in "[ab+]{2,4}") {
        let snapshot = load(&records);
        for arg in [needle.split('%').next().unwrap_or_default(), name.as_str()] {
            if arg.chars().count() < 2 {
                continue;
            }
            let spaced = scan(&records, "5", By::NameDesc, "contains", &arg.replace('+', " "));
            let expected = match spaced {
                Ok(names) if names.is_empty() => scan(&records, "5", By::NameDesc, "contains", arg),
                other => other,
            };
            let query = format!("v=5&type=search&arg={arg}");
            let params = Params::from_query(PathParams::default(), Some(&query));
            let answer = Answer::to(params, &snapshot, false, PLENTY);
            let answer = check_form(std::str::from_utf8(&answer.reply.body).expect("UTF-8"));
            prop_assert_eq!(names(&answer), expected, "{}", query);
        }
    }

    /// An outline changes nothing of an answer, and its gzip is the answer.
    #[test]
    fn outlined_answers_are_the_same(records in catalogue(), recipes in needles()) {
        let snapshot = load(&records);
        let needles = recipes.iter().map(|recipe| recipe.needle(&records)).filter(|it| it.chars().count() > 1);
        let mut questions: Vec<Params> = needles
            .flat_map(|needle| ["5", "6"].map(|version| {
                let path = PathParams { arg: Some(needle.clone()), ..PathParams::default() };
                Params::from_query(path, Some(&format!("v={version}&type=search")))
            }))
            .collect();
        let names: Vec<_> = records.iter().map(|record| ("arg[]", record.name.as_str())).collect();
        let all = query_string(&names);
        for rest in ["", "&callback=show"] {
            questions.push(Params::from_query(PathParams::default(), Some(&format!("v=5&type=info&{all}{rest}"))));
        }
        for params in questions {
            let plain = Answer::to(params.clone(), &snapshot, true, PLENTY);
            let outlined = Answer::to(params.outlined(), &snapshot, true, PLENTY);
            prop_assert!(plain.reply.outline.is_none());
            prop_assert_eq!(&outlined.reply.body, &plain.reply.body);
            prop_assert_eq!(outlined.reply.etag, plain.reply.etag);
            prop_assert_eq!(outlined.outcome, plain.outcome);
            let mut decoded = Vec::new();
            let encoded = outlined.reply.encoded(reply::Encoding::Gzip);
            flate2::read::GzDecoder::new(&encoded[..]).read_to_end(&mut decoded).expect("gzip");
            prop_assert_eq!(decoded, &plain.reply.body[..]);
            // The result of an info query is a JSON object with a list, unless a callback is given.
            let is_list = matches!(outlined.outcome, Outcome::Answered(_)) && outlined.reply.core.is_none();
            prop_assert_eq!(outlined.reply.outline.is_some(), is_list);
        }
    }

    #[test]
    fn maintainer_search_is_a_search_by_maintainer(records in catalogue(), who in user()) {
        let snapshot = load(&records);
        for who in [who.as_str(), ""] {
            let expected = scan(&records, "5", By::Maintainer, "contains", who);
            let question = [("v", "5"), ("type", "msearch"), ("arg", who)];
            prop_assert_eq!(names(&ask(&snapshot, &question, PLENTY)), expected, "{:?}", question);
        }
    }

    #[test]
    fn suggestions_equal_a_sorted_prefix_scan(records in catalogue(), recipes in needles()) {
        let snapshot = load(&records);
        let needles = recipes.iter().map(|recipe| recipe.needle(&records));
        for needle in needles.chain([String::new(), "a".to_owned()]) {
            let of_names = suggestions(records.iter().map(|record| record.name.as_str()), &needle);
            let of_bases = suggestions(records.iter().map(|record| BASES[record.base]), &needle);
            for (type_, expected) in [
                ("suggest", of_names.clone()),
                ("suggest-pkgbase", of_bases.clone()),
                ("opensearch-suggest", json!([needle, of_names])),
                ("opensearch-suggest-pkgbase", json!([needle, of_bases])),
            ] {
                let question = [("v", "5"), ("type", type_), ("arg", needle.as_str())];
                prop_assert_eq!(ask(&snapshot, &question, PLENTY), expected, "{:?}", question);
            }
        }
    }

    #[test]
    fn info_equals_a_lookup(records in catalogue(), recipes in needles(), picks in proptest::collection::vec(any::<Index>(), 1..8)) {
        let snapshot = load(&records);
        let mut args: Vec<String> = recipes.iter().map(|recipe| recipe.needle(&records)).collect();
        args.extend(picks.iter().enumerate().map(|(at, pick)| {
            let name = &pick.get(&records).name;
            match at % 4 {
                0 => name.clone(),
                1 => name.to_uppercase(),
                2 => name.to_lowercase(),
                _ => format!("{name}  "),
            }
        }));
        args.retain(|arg| !arg.is_empty());
        let mut fields = vec![("v".to_owned(), "5".to_owned()), ("type".to_owned(), "info".to_owned())];
        fields.extend(args.iter().map(|arg| ("arg[]".to_owned(), arg.clone())));
        let mut expected: Vec<usize> = Vec::new();
        for arg in &args {
            // Case is ignored, accents count.
            let arg = arg.trim_end_matches(' ');
            let found = records.iter().position(|record| {
                fold(&record.name) == fold(arg) && record.name.to_lowercase() == arg.to_lowercase()
            });
            expected.extend(found.filter(|found| !expected.contains(found)));
        }
        let asked = |results_max: usize| {
            let params = Params::from_body(PathParams::default(), None, Body::Fields(&fields));
            let answer = Answer::to(params, &snapshot, false, results_max);
            check_form(std::str::from_utf8(&answer.reply.body).expect("UTF-8"))
        };
        let shown: Vec<Value> = expected.iter().map(|&id| records[id].shown(id)).collect();
        let whole = json!({"resultcount": shown.len(), "results": shown, "type": "multiinfo", "version": 5});
        prop_assert_eq!(asked(PLENTY), whole.clone());
        prop_assert_eq!(asked(expected.len()), whole);
        if let Some(limit) = expected.len().checked_sub(1) {
            prop_assert_eq!(names(&asked(limit)), Err(TOO_MANY.to_owned()));
        }
    }

    #[test]
    fn the_order_and_spelling_of_a_dump_do_not_matter((records, order) in catalogue().prop_flat_map(|records| {
        let order: Vec<usize> = (0..records.len()).collect();
        (Just(records), Just(order).prop_shuffle())
    })) {
        let expected = portrait(&load(&records), &records);
        for is_escaped in [false, true] {
            let snapshot = read(dump(&records, &order, is_escaped).as_bytes());
            prop_assert_eq!(portrait(&snapshot, &records), expected.clone(), "escaped: {}", is_escaped);
        }
    }

    /// Answers with equal tags have equal bodies, and the same catalogue gives the same tags again.
    #[test]
    fn tags_name_what_is_answered((records, order) in catalogue().prop_flat_map(|mut records| {
        // The tags of long lists are computed in another way.
        for number in 0..40 {
            records.push(Record { name: format!("a{number}"), ..records[number % 2].clone() });
        }
        let order: Vec<usize> = (0..records.len()).collect();
        (Just(records), Just(order).prop_shuffle())
    }), other in record(), pick in any::<Index>()) {
        let mut changed = records.clone();
        let at = pick.index(records.len());
        changed[at] = Record { name: records[at].name.clone(), ..other };
        let snapshots =
            [load(&records), read(dump(&records, &order, true).as_bytes()), load(&changed)];
        let mut bodies = HashMap::new();
        for version in ["5", "6"] {
            for type_ in ["info", "search", "suggest"] {
                for arg in records.iter().map(|record| record.name.as_str()).chain(["a", "b"]) {
                    let question = [("v", version), ("type", type_), ("by", "name"), ("arg", arg)];
                    let [tag, same, _] = snapshots.each_ref().map(|snapshot| {
                        let reply = answer(snapshot, &question, PLENTY).reply;
                        let tag = reply.etag.expect("a tag").to_string();
                        let body = bodies.entry(tag.clone()).or_insert_with(|| reply.body.clone());
                        assert_eq!(*body, reply.body, "{question:?} {tag}");
                        tag
                    });
                    prop_assert_eq!(tag, same, "{:?}", question);
                }
            }
        }
    }

    /// Of several records with the same name the last one counts.
    #[test]
    fn the_last_of_two_records_counts(records in catalogue(), picks in proptest::collection::vec(any::<Index>(), 1..8)) {
        let mut all: Vec<Record> = picks.iter().map(|pick| pick.get(&records).clone()).collect();
        for outdated in &mut all {
            outdated.description = Some("outdated".to_owned());
            outdated.keywords = vec!["outdated".to_owned()];
            outdated.base = 0;
        }
        let outdated_count = all.len();
        all.extend(records.iter().cloned());
        let objects: Vec<String> = all.iter().enumerate()
            .map(|(at, record)| Value::Object(record.written(at.checked_sub(outdated_count).unwrap_or(999))).to_string())
            .collect();
        let snapshot = read(format!("[{}]", objects.join(",")).as_bytes());
        prop_assert_eq!(snapshot.duplicate_count() as usize, outdated_count);
        prop_assert_eq!(portrait(&snapshot, &records), portrait(&load(&records), &records));
    }

    #[test]
    fn a_dump_in_pieces_is_the_same_dump(records in catalogue(), sizes in proptest::collection::vec(1_usize..=7, 1..20)) {
        // Every piece costs another look at the record so far, so a few records must do.
        let records = &records[..records.len().min(4)];
        let expected = portrait(&load(records), records);
        let order: Vec<usize> = (0..records.len()).collect();
        let plain = dump(records, &order, false).into_bytes();
        let once = gzip(&plain);
        let twice = gzip(&once);
        // The first piece may contain only half of the magic bytes.
        for sizes in [sizes.as_slice(), &[1]] {
            for bytes in [&plain, &once, &twice] {
                let snapshot = read(Pieces { rest: bytes, sizes: sizes.iter().copied().cycle() });
                prop_assert_eq!(portrait(&snapshot, records), expected.clone());
            }
        }
    }
}

/// Answers that together show everything in a snapshot.
fn portrait(snapshot: &Snapshot, records: &[Record]) -> Vec<String> {
    let mut portrait =
        vec![format!("{} {}", snapshot.package_count(), snapshot.package_base_count())];
    let mut show = |pairs: &[(&str, &str)]| portrait.push(ask(snapshot, pairs, PLENTY).to_string());
    for record in records {
        show(&[("v", "5"), ("type", "info"), ("arg", &record.name)]);
        for by in By::ALL {
            if let Some(value) = record.list(by).first() {
                show(&[
                    ("v", "6"),
                    ("type", "info"),
                    ("by", by.name()),
                    ("arg", before_condition(value)),
                ]);
            }
        }
    }
    show(&[("v", "6"), ("type", "search"), ("arg", "  ")]);
    show(&[("v", "5"), ("type", "suggest"), ("arg", "")]);
    show(&[("v", "5"), ("type", "suggest-pkgbase"), ("arg", "")]);
    for list in List::ALL {
        let mut text = String::new();
        flate2::read::GzDecoder::new(&snapshot.list(list, aur::Compressed::Gzip)[..])
            .read_to_string(&mut text)
            .expect("gzip of text");
        portrait.push(text);
    }
    portrait
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("gzip");
    encoder.finish().expect("gzip")
}

/// A source that returns its bytes in pieces of the given sizes.
struct Pieces<'a, S> {
    rest: &'a [u8],
    sizes: S,
}

impl<S: Iterator<Item = usize>> Read for Pieces<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next().unwrap_or(1).min(buffer.len()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(size);
        buffer[..size].copy_from_slice(piece);
        self.rest = rest;
        Ok(size)
    }
}
