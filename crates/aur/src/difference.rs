//! What differs between two states of the catalogue, package by package.
//!
//! two snapshots -> [`Snapshot::differences`]; a snapshot, and the stored [`Facts`] of an earlier one ->
//! [`Snapshot::difference_from`]. Facts have a digest for each field, so that a later process knows which of them changed
//! although it has no earlier snapshot. Popularity does not count: it decays every day for all packages.

use twox_hash::XxHash3_64;

use crate::field::Field;
use crate::hidden_members;
use crate::record::{Record, first_member};
use crate::snapshot::Snapshot;

/// The facts about a package that are needed to tell later what has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The maintainer; `None` if it is an orphan.
    pub maintainer: Option<String>,
    /// The user who pushed it last, if the source knows.
    pub last_packager: Option<String>,
    /// A digest for each field that is compared, in their order: 0 for a field without a value.
    pub digests: Vec<u32>,
    /// A digest for each field that is only shown when it is asked for; empty if the source does not know them. They are not part of
    /// `digests`: an earlier version of Larder compares those as a whole, so one more would be a change of every package.
    pub unshown: Vec<u32>,
}

impl Facts {
    /// Whether the source knows who pushed it last, even if that is nobody.
    pub fn knows_last_packager(&self) -> bool {
        !self.unshown.is_empty()
    }
}

/// A package that is in one of two states, or not the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The package as it was; `None` if it did not exist.
    pub before: Option<Facts>,
    /// The package as it is; `None` if it does not exist.
    pub after: Option<Facts>,
    /// The names of the fields that are different, if it is in both.
    pub fields: Vec<String>,
}

/// Whether a difference in this field is one.
const fn is_compared(field: Field) -> bool {
    // The path says nothing that the package base does not.
    !matches!(field, Field::Popularity | Field::UrlPath | Field::Unshown)
}

fn compared() -> impl Iterator<Item = Field> {
    Field::ALL.into_iter().filter(|field| is_compared(*field))
}

/// The value of a field; the package base is stored only where it is not the package's own name.
fn value<'a>(record: Record<'a>, field: Field) -> &'a [u8] {
    match field {
        Field::PackageBase => record.package_base(),
        field => record.value(field).unwrap_or_default(),
    }
}

fn text(json: &[u8]) -> Option<String> {
    serde_json::from_slice(json).ok()
}

fn digest(value: &[u8]) -> u32 {
    match value {
        [] => 0,
        value => (XxHash3_64::oneshot(value) as u32).max(1),
    }
}

fn stored_unshown(record: Record<'_>) -> &[u8] {
    record.value(Field::Unshown).unwrap_or_default()
}

fn facts(record: Record<'_>) -> Facts {
    let stored = stored_unshown(record);
    Facts {
        name: text(record.name()).unwrap_or_default(),
        version: text(value(record, Field::Version)).unwrap_or_default(),
        maintainer: text(value(record, Field::Maintainer)),
        last_packager: text(&hidden_members::shown(stored, hidden_members::LAST_PACKAGER)),
        digests: compared().map(|field| digest(value(record, field))).collect(),
        unshown: match stored {
            [] => Vec::new(),
            stored => hidden_members::NAMES
                .map(|name| digest(&hidden_members::shown(stored, name)))
                .to_vec(),
        },
    }
}

/// Adds the name of a field; for unknown members, the names of those that differ.
fn add_names(field: Field, before: &[u8], after: &[u8], names: &mut Vec<String>) {
    if field != Field::Others {
        return names.push(field.name().to_owned());
    }
    let members = |others: &[u8]| {
        let mut members = Vec::new();
        let mut rest = others;
        while let Some((key, bytes)) = first_member(rest) {
            members.push((key, rest[..bytes].to_vec()));
            rest = &rest[bytes..];
        }
        members
    };
    let (before, after) = (members(before), members(after));
    let differs =
        |member: &&(String, Vec<u8>), others: &[(String, Vec<u8>)]| !others.contains(member);
    let changed = after.iter().filter(|member| differs(member, &before));
    names.extend(changed.map(|(key, _)| key.clone()));
    let is_gone = |(key, _): &&(String, Vec<u8>)| !after.iter().any(|(other, _)| other == key);
    names.extend(before.iter().filter(is_gone).map(|(key, _)| key.clone()));
}

impl Snapshot {
    /// The facts of every package, by name.
    pub fn all_facts(&self) -> impl Iterator<Item = Facts> + '_ {
        self.docs().map(|doc| facts(self.record(doc)))
    }

    /// The facts of the package with this name, in any case of letters.
    pub fn facts_of(&self, name: &str) -> Option<Facts> {
        Some(facts(self.record(self.find(name)?)))
    }

    /// The differences from `before`: first the packages that exist now, by name, then the deleted ones, by name.
    pub fn differences(&self, before: &Snapshot) -> Vec<Difference> {
        let mut found = Vec::new();
        for doc in self.docs_not_shared_with(before) {
            let new = self.record(doc);
            let name = text(new.name()).unwrap_or_default();
            let Some(old) = before.find(&name).map(|doc| before.record(doc)) else {
                found.push(Difference {
                    before: None,
                    after: Some(facts(new)),
                    fields: Vec::new(),
                });
                continue;
            };
            if old.is_same(new) {
                continue;
            }
            let mut fields = Vec::new();
            for field in compared() {
                let (before, after) = (value(old, field), value(new, field));
                if before != after {
                    add_names(field, before, after, &mut fields);
                }
            }
            let (before, after) = (stored_unshown(old), stored_unshown(new));
            // A value that the source has only just learned has not changed; nor has one that it no longer knows.
            if before != after && !before.is_empty() && !after.is_empty() {
                let differs = |name: &&str| {
                    hidden_members::shown(before, name) != hidden_members::shown(after, name)
                };
                fields.extend(hidden_members::NAMES.into_iter().filter(differs).map(str::to_owned));
            }
            if !fields.is_empty() {
                found.push(Difference {
                    before: Some(facts(old)),
                    after: Some(facts(new)),
                    fields,
                });
            }
        }
        for doc in before.docs_not_shared_with(self) {
            let old = before.record(doc);
            if self.find(&text(old.name()).unwrap_or_default()).is_none() {
                found.push(Difference {
                    before: Some(facts(old)),
                    after: None,
                    fields: Vec::new(),
                });
            }
        }
        found
    }

    /// The difference from the stored facts of a package; `None` if there is none.
    pub fn difference_from(&self, before: Facts) -> Option<Difference> {
        let Some(doc) = self.find(&before.name) else {
            return Some(Difference { before: Some(before), after: None, fields: Vec::new() });
        };
        let record = self.record(doc);
        let after = facts(record);
        let mut fields = Vec::new();
        for (at, field) in compared().enumerate() {
            if before.digests.get(at) != after.digests.get(at) {
                let value = value(record, field);
                // The earlier values of unknown members are not stored.
                add_names(field, b"", value, &mut fields);
                if field == Field::Others && value.is_empty() {
                    fields.push("Others".to_owned());
                }
            }
        }
        // If one of the two is empty, the source did not know, and nothing is reported.
        let unshown = before.unshown.iter().zip(&after.unshown).zip(hidden_members::NAMES);
        for ((before, after), name) in unshown {
            if before != after {
                fields.push(name.to_owned());
            }
        }
        (!fields.is_empty()).then_some(Difference {
            before: Some(before),
            after: Some(after),
            fields,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{self, DumpLimits};

    fn dump_of(packages: &[(&str, &str)]) -> String {
        let record = |(name, more): &(&str, &str)| {
            format!(
                "{{\"ID\":1,\"Name\":\"{name}\",\"PackageBaseID\":1,\"PackageBase\":\"{name}\",\"Version\":\"1-1\",\
                 \"NumVotes\":0,\"FirstSubmitted\":1,\"LastModified\":1{more}}}"
            )
        };
        let records: Vec<String> = packages.iter().map(record).collect();
        format!("[{}]", records.join(","))
    }

    fn snapshot(packages: &[(&str, &str)]) -> Snapshot {
        dump::read(dump_of(packages).as_bytes(), &DumpLimits::default()).expect("a dump")
    }

    /// Name, `+` if it is new and `-` if it is deleted, fields.
    fn brief(difference: &Difference) -> String {
        let facts = difference.after.as_ref().or(difference.before.as_ref()).expect("one of them");
        let sign = match (&difference.before, &difference.after) {
            (None, _) => "+",
            (_, None) => "-",
            _ => "",
        };
        format!("{sign}{} {}", facts.name, difference.fields.join(",")).trim_end().to_owned()
    }

    /// Compares in all ways, which must agree: with a separate snapshot, one that shares a segment, and stored facts.
    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)], expected: &[&str]) {
        let dump = dump_of(after);
        let (before, after) = (snapshot(before), snapshot(after));
        let limits = DumpLimits::default();
        let over = dump::read_after(&before, dump.as_bytes(), &limits, []);
        let over = over.expect("a dump").expect("little differs");
        assert!(std::ptr::eq(over.large(), before.large()));
        let found: Vec<String> = over.differences(&before).iter().map(brief).collect();
        assert_eq!(found, expected, "over the same segment");
        let found: Vec<String> = after.differences(&before).iter().map(brief).collect();
        assert_eq!(found, expected);
        let kept = before.all_facts().filter_map(|facts| after.difference_from(facts));
        let mut found: Vec<String> = kept.map(|difference| brief(&difference)).collect();
        let new = after.all_facts().filter(|facts| before.facts_of(&facts.name).is_none());
        found.extend(new.map(|facts| format!("+{}", facts.name)));
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(found, expected, "from facts");
    }

    const PLAIN: (&str, &str) = ("b", ",\"Popularity\":1.5");

    #[test]
    fn packages_come_and_go() {
        check(&[PLAIN], &[PLAIN], &[]);
        check(
            &[PLAIN, ("c", ",\"Popularity\":0")],
            &[("a", ",\"Popularity\":0"), PLAIN],
            &["+a", "-c"],
        );
    }

    #[test]
    fn changed_fields_are_named() {
        let with = |more: &'static str| [("b", more)];
        check(&[PLAIN], &with(",\"Popularity\":1.25"), &[]);
        let adopted = ",\"Popularity\":1.5,\"Maintainer\":\"anna\"";
        check(&[PLAIN], &with(adopted), &["b Maintainer"]);
        check(&with(adopted), &[PLAIN], &["b Maintainer"]);
        let newer = ",\"Popularity\":1,\"Depends\":[\"x\"],\"Keywords\":[\"y\"],\"OutOfDate\":5";
        check(&[PLAIN], &with(newer), &["b Depends,Keywords,OutOfDate"]);
        for (then, now, fields) in [
            (r#"{"LastPackager":"ann"}"#, r#"{"LastPackager":"bob"}"#, "b LastPackager"),
            (r#"{"LastPackager":"ann"}"#, "{}", "b LastPackager"),
            (
                r#"{"Architectures":{"Depends":{"x":["armv7h"]}},"OptDependsDescriptions":{"y":"z"}}"#,
                r#"{"OptDependsDescriptions":{"y":"zz"}}"#,
                "b Architectures,OptDependsDescriptions",
            ),
        ] {
            let with = |unshown: &str| format!(",\"Popularity\":1.5,\"Larder\":{unshown}");
            let (then, now) = (with(then), with(now));
            let (then, now) = (("b", then.as_str()), ("b", now.as_str()));
            check(&[then], &[now], &[fields]);
            // The source has only just learned it, or no longer knows it.
            check(&[PLAIN], &[now], &[]);
            check(&[then], &[PLAIN], &[]);
        }
        let flagged = ",\"Popularity\":1.5,\"FlaggedMalicious\":true";
        check(&[PLAIN], &with(flagged), &["b FlaggedMalicious"]);
    }

    #[test]
    fn facts_say_who_maintains_it() {
        let found = snapshot(&[("a", ",\"Popularity\":0,\"Maintainer\":\"\\u00e9\"")]);
        let facts: Vec<Facts> = found.all_facts().collect();
        assert_eq!((facts[0].name.as_str(), facts[0].version.as_str()), ("a", "1-1"));
        assert_eq!(facts[0].maintainer.as_deref(), Some("é"));
        assert_eq!((facts[0].last_packager.as_deref(), facts[0].unshown.len()), (None, 0));
        let known = snapshot(&[("a", ",\"Popularity\":0,\"Larder\":{\"LastPackager\":\"ann\"}")]);
        assert_eq!(
            known.facts_of("a").and_then(|facts| facts.last_packager).as_deref(),
            Some("ann")
        );
    }

    #[test]
    fn facts_of_other_versions_can_be_compared() {
        let found = snapshot(&[("a", ",\"Popularity\":0")]);
        let known = snapshot(&[("a", ",\"Popularity\":0,\"Larder\":{\"LastPackager\":\"ann\"}")]);
        let facts = |snapshot: &Snapshot| snapshot.facts_of("a").expect("a package");
        // With more digests, an earlier version of Larder would see a change in every package.
        assert_eq!([&found, &known].map(|snapshot| facts(snapshot).digests.len()), [26, 26]);
        assert_eq!(facts(&known).digests, facts(&found).digests);
        assert_eq!(facts(&known).unshown.len(), hidden_members::NAMES.len());
        // Earlier versions had all digests in one list. A later version may have more than this one.
        let mut more = facts(&known);
        more.digests.append(&mut more.unshown);
        assert_eq!(known.difference_from(more), None);
        let fewer = Facts { unshown: vec![1], ..facts(&found) };
        assert_eq!(found.difference_from(fewer.clone()), None);
        let found = known.difference_from(fewer).expect("a difference");
        assert_eq!(found.fields, ["Architectures"]);
    }
}
