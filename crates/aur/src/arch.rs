//! [`Arch`]: packages as seen on one architecture: without the entries of lists that are only for others.

use std::collections::HashSet;

use crate::field::{By, Field};
use crate::fold::fold_into;
use crate::hidden_members::HiddenMembers;
use crate::package::{Package, Text, Texts};
use crate::record::{Record, RecordWriter};
use crate::words;

/// The longest name of an architecture.
const NAME_BYTES_MAX: usize = 32;

/// The name of an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arch(String);

impl Arch {
    /// `None`, if no architecture can be called so.
    pub(crate) fn parse(name: &str) -> Option<Arch> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        is_name.then(|| Arch(name.to_owned()))
    }

    /// The record as seen on this architecture; if it differs from the stored one, it is written into `room`.
    pub(crate) fn narrowed<'a>(&self, record: Record<'a>, room: &'a mut Vec<u8>) -> Record<'a> {
        let stored = record.value(Field::Unshown).unwrap_or_default();
        let Some(mut unshown) = HiddenMembers::with_architectures(stored) else { return record };
        let gone = unshown.narrow(&self.0);
        if gone.is_empty() {
            return record;
        }
        let mut package = record.package();
        for (list, entries) in &gone {
            let Some(texts) = list_of(&mut package, list) else { continue };
            let entries: HashSet<&[u8]> = entries.iter().map(String::as_bytes).collect();
            let mut left = Vec::new();
            texts.each(|text| {
                if !entries.contains(text) {
                    left.push(Text::Unescaped(String::from_utf8_lossy(text).into_owned()));
                }
            });
            *texts = Texts::Parsed(left);
        }
        package.unshown = unshown.to_json().into();
        let mut writer = RecordWriter::default();
        room.clear();
        room.resize(writer.encode(&package), 0);
        writer.write_to(room);
        Record::at(room)
    }

    /// Whether the package has one of these folded `terms` as a value of an exact field on this architecture; it has one on
    /// some.
    pub(crate) fn has(&self, record: Record<'_>, by: By, terms: &HashSet<Vec<u8>>) -> bool {
        let mut room = Vec::new();
        let is_listed = matches!(
            by,
            By::Depends
                | By::MakeDepends
                | By::CheckDepends
                | By::OptDepends
                | By::Conflicts
                | By::Provides
                | By::Replaces
        );
        let stored = record.value(Field::Unshown).unwrap_or_default();
        if !is_listed || HiddenMembers::with_architectures(stored).is_none() {
            return true;
        }
        let mut package = self.narrowed(record, &mut room).package();
        // A package provides itself.
        let mut is_there = by == By::Provides && terms.contains(&folded(package.name.as_bytes()));
        if let Some(texts) = list_of(&mut package, field_of(by).name()) {
            texts.each(|text| is_there |= terms.contains(&folded(name_in(by, text))));
        }
        is_there
    }
}

fn field_of(by: By) -> Field {
    match by {
        By::MakeDepends => Field::MakeDepends,
        By::CheckDepends => Field::CheckDepends,
        By::OptDepends => Field::OptDepends,
        By::Conflicts => Field::Conflicts,
        By::Provides => Field::Provides,
        By::Replaces => Field::Replaces,
        _ => Field::Depends,
    }
}

/// The name in an entry of a list, which may have a condition.
fn name_in(by: By, entry: &[u8]) -> &[u8] {
    match by {
        By::OptDepends => words::optional_name(entry),
        _ => &entry[..words::unmarked(entry, words::relation_signs)],
    }
}

/// A folded search term.
fn folded(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    fold_into(name, &mut folded);
    while folded.last() == Some(&b' ') {
        folded.pop();
    }
    folded
}

fn list_of<'p, 'a>(package: &'p mut Package<'a>, name: &str) -> Option<&'p mut Texts<'a>> {
    Some(match name {
        "Depends" => &mut package.depends,
        "MakeDepends" => &mut package.make_depends,
        "CheckDepends" => &mut package.check_depends,
        "OptDepends" => &mut package.opt_depends,
        "Conflicts" => &mut package.conflicts,
        "Provides" => &mut package.provides,
        "Replaces" => &mut package.replaces,
        _ => return None,
    })
}
