//! Facts about a package that a source may know and upstream does not answer: shown only if they are requested by name.
//!
//! A dump has it as one more member of a record, `Larder`: an object with some of the members below. Without that member the
//! source knows none of them; with it, a missing one is empty. aurweb's own dump has none; Larder writes it into its dump of a
//! database.
//!
//! | member | value |
//! | --- | --- |
//! | `LastPackager` | the user who pushed last, or null |
//! | `Architectures` | for each list, each entry that is not for all architectures, with those that it is for |
//! | `OptDependsDescriptions` | for optional dependencies, what they are good for |

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// The members by which it can be asked for, in ascending order.
pub(crate) const NAMES: [&str; 3] = ["Architectures", LAST_PACKAGER, "OptDependsDescriptions"];
pub(crate) const LAST_PACKAGER: &str = "LastPackager";

/// An entry for this architecture is for all.
const ANY: &str = "any";

/// All members, as they are written.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct HiddenMembers {
    #[serde(skip_serializing_if = "Option::is_none")]
    last_packager: Option<String>,
    /// By the name of the list.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    architectures: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    opt_depends_descriptions: BTreeMap<String, String>,
}

impl HiddenMembers {
    /// `None`, if that is another object.
    fn parse(object: &[u8]) -> Option<HiddenMembers> {
        // A list would be read as the members in their order.
        serde_json::from_slice(object).ok().filter(|_| object.starts_with(b"{"))
    }

    /// The stored members of a package, if an entry of its lists is not for all architectures.
    pub(crate) fn with_architectures(object: &[u8]) -> Option<HiddenMembers> {
        // Fast path: most have none, and are not parsed.
        memchr::memmem::find(object, b"\"Architectures\"")?;
        HiddenMembers::parse(object).filter(|parsed| !parsed.architectures.is_empty())
    }

    /// Leaves out entries for other architectures; returns the entries that lists lose, by the name of the list.
    pub(crate) fn narrow(&mut self, arch: &str) -> BTreeMap<String, Vec<String>> {
        let mut gone = BTreeMap::new();
        for (list, entries) in &mut self.architectures {
            let mut others = Vec::new();
            entries.retain(|entry, architectures| {
                let is_for_it = architectures.iter().any(|name| name == arch || name == ANY);
                if !is_for_it {
                    others.push(entry.clone());
                }
                is_for_it
            });
            if !others.is_empty() {
                gone.insert(list.clone(), others);
            }
        }
        self.architectures.retain(|_, entries| !entries.is_empty());
        for entry in gone.get("OptDepends").into_iter().flatten() {
            self.opt_depends_descriptions.remove(entry);
        }
        gone
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings serialize into memory")
    }
}

/// Reads the member of a dump's record. A value of another type counts as missing.
pub(crate) fn read<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'a, [u8]>, D::Error> {
    let object = <&'a RawValue>::deserialize(deserializer)?.get();
    Ok(match HiddenMembers::parse(object.as_bytes()) {
        None => Cow::Borrowed(&[]),
        // An answer is one line.
        Some(parsed) if object.contains(['\n', '\r']) => Cow::Owned(parsed.to_json()),
        Some(_) => Cow::Borrowed(object.as_bytes()),
    })
}

/// The JSON of one of [`NAMES`] in the stored `object`: `null` if the source does not know it.
pub(crate) fn shown(object: &[u8], name: &str) -> Vec<u8> {
    if object.is_empty() {
        return b"null".to_vec();
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(object).unwrap_or_default();
    let nothing = if name == LAST_PACKAGER { "null" } else { "{}" };
    members.get(name).map_or(nothing, |value| value.get()).as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"{"LastPackager":"ann","Architectures":{"Depends":{"a>=1":["x86_64"],"b":["armv7h","any"]},"OptDepends":{"c":["armv7h"]}},"OptDependsDescriptions":{"c":"to \"see\"","d":""}}"#;

    #[derive(Deserialize)]
    struct Member<'a>(#[serde(borrow, deserialize_with = "read")] Cow<'a, [u8]>);

    /// Expects this after reading a member.
    #[track_caller]
    fn check_read(value: &str, expected: &str) {
        let list = format!("[{value}]");
        let [Member(read)]: [Member<'_>; 1] = serde_json::from_str(&list).expect("JSON");
        assert_eq!(std::str::from_utf8(&read), Ok(expected), "{value}");
    }

    #[test]
    fn only_an_object_of_this_form_is_read() {
        for object in [ALL, "{}", r#"{"LastPackager":null}"#, r#"{ "Later":1}"#] {
            check_read(object, object);
        }
        check_read("{\"LastPackager\":\n\"ann\"}", r#"{"LastPackager":"ann"}"#);
        for other in [
            "null",
            "7",
            "[\"ann\",{},{}]",
            r#"{"LastPackager":7}"#,
            r#"{"Architectures":["x86_64"]}"#,
            r#"{"Architectures":{"Depends":{"a":"x86_64"}}}"#,
            r#"{"OptDependsDescriptions":{"a":null}}"#,
        ] {
            check_read(other, "");
        }
    }

    #[test]
    fn what_is_missing_is_nothing_and_without_all_of_it_it_is_unknown() {
        let shown = |object: &str| {
            NAMES.map(|name| String::from_utf8(shown(object.as_bytes(), name)).expect("UTF-8"))
        };
        assert_eq!(shown(""), ["null", "null", "null"]);
        assert_eq!(shown("{}"), ["{}", "null", "{}"]);
        assert_eq!(
            shown(ALL),
            [
                r#"{"Depends":{"a>=1":["x86_64"],"b":["armv7h","any"]},"OptDepends":{"c":["armv7h"]}}"#,
                r#""ann""#,
                r#"{"c":"to \"see\"","d":""}"#
            ]
        );
    }

    #[test]
    fn on_one_architecture() {
        assert!(HiddenMembers::with_architectures(br#"{"LastPackager":"ann"}"#).is_none());
        assert!(HiddenMembers::with_architectures(br#"{"Architectures":{}}"#).is_none());
        let spaced = br#"{ "Architectures" : {"Depends": {"a": []}}}"#;
        assert!(HiddenMembers::with_architectures(spaced).is_some());
        let narrowed = |arch: &str| {
            let mut all = HiddenMembers::with_architectures(ALL.as_bytes()).expect("some");
            let gone: Vec<String> = all.narrow(arch).into_values().flatten().collect();
            (gone.join(" "), String::from_utf8(all.to_json()).expect("UTF-8"))
        };
        let (gone, left) = narrowed("x86_64");
        assert_eq!(gone, "c");
        assert_eq!(
            left,
            r#"{"LastPackager":"ann","Architectures":{"Depends":{"a>=1":["x86_64"],"b":["armv7h","any"]}},"OptDependsDescriptions":{"d":""}}"#
        );
        let (gone, left) = narrowed("armv7h");
        assert_eq!(gone, "a>=1");
        assert_eq!(
            left,
            r#"{"LastPackager":"ann","Architectures":{"Depends":{"b":["armv7h","any"]},"OptDepends":{"c":["armv7h"]}},"OptDependsDescriptions":{"c":"to \"see\"","d":""}}"#
        );
    }
}
