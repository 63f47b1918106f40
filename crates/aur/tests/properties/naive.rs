//! The results of a loop over all records: the answers that the engine must give.

use aur::{By, fold};
use serde_json::{Value, json};

use super::catalogue::{BASES, Record};

/// Records in the order of an answer.
pub(crate) fn in_order(records: &[Record]) -> Vec<&Record> {
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_by_key(|record| (fold(&record.name), record.name.to_lowercase()));
    records
}

/// A dependency without its condition.
pub(crate) fn before_condition(relation: &str) -> &str {
    relation.split(['<', '>', '=']).next().unwrap_or_default()
}

pub(crate) fn is_found_in_text(record: &Record, by: By, is_prefix: bool, needle: &str) -> bool {
    let needle = fold(needle);
    let is_match = |text: &str| {
        let text = fold(text);
        if is_prefix { text.starts_with(&needle) } else { text.contains(&needle) }
    };
    is_match(&record.name)
        || (by == By::NameDesc && is_match(record.description.as_deref().unwrap_or("")))
}

pub(crate) fn is_found_exactly(record: &Record, by: By, arg: &str) -> bool {
    // Compares as the database does: without case and accents, and without trailing spaces.
    let is_match = |text: &str| fold(text.trim_end_matches(' ')) == fold(arg.trim_end_matches(' '));
    match by {
        By::Name | By::NameDesc => unreachable!("not an exact field"),
        By::Maintainer => is_match(record.maintainer.as_deref().unwrap_or("")),
        By::Submitter => record.submitter.as_deref().is_some_and(is_match),
        By::PackageBase => is_match(BASES[record.base]),
        By::Provides => {
            is_match(&record.name)
                || record.provides.iter().any(|relation| is_match(before_condition(relation)))
        }
        By::OptDepends => record.opt_depends.iter().any(|relation| {
            is_match(before_condition(relation).split(": ").next().unwrap_or_default())
        }),
        By::Keywords | By::Groups | By::CoMaintainers => {
            record.list(by).iter().any(|value| is_match(value))
        }
        _ => record.list(by).iter().any(|relation| is_match(before_condition(relation))),
    }
}

/// The results that a search must give.
pub(crate) fn scan(
    records: &[Record],
    version: &str,
    by: By,
    mode: &str,
    arg: &str,
) -> Result<Vec<String>, String> {
    if by != By::Maintainer && arg.chars().count() < 2 {
        return Err("Query arg too small.".to_owned());
    }
    let is_found = |record: &&&Record| match by {
        By::Name | By::NameDesc if version == "5" => {
            is_found_in_text(record, by, mode == "starts-with", arg)
        }
        By::Name | By::NameDesc => arg.split(' ').all(|word| {
            word.is_empty() || is_found_in_text(record, by, mode == "starts-with", word)
        }),
        _ => is_found_exactly(record, by, arg),
    };
    Ok(in_order(records).iter().filter(is_found).map(|record| record.name.clone()).collect())
}

pub(crate) fn suggestions<'a>(texts: impl Iterator<Item = &'a str>, arg: &str) -> Value {
    let mut texts: Vec<&str> = texts.filter(|text| fold(text).starts_with(&fold(arg))).collect();
    texts.sort_by_key(|text| (fold(text), text.to_lowercase()));
    texts.dedup();
    texts.truncate(20);
    json!(texts)
}
