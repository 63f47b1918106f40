//! The format of `dataindex.json`, as devpi-server 4 to 6 write it; unknown members are ignored.
//!
//! An empty object or list may be written as the other one of the two, or as null: exports have `"projects": []` for
//! an index without projects.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};

/// The whole export.
#[derive(Deserialize)]
pub(super) struct Dump {
    #[serde(default, deserialize_with = "text")]
    pub(super) dumpversion: String,
    #[serde(default, deserialize_with = "object")]
    pub(super) users: BTreeMap<String, Members>,
    #[serde(default, deserialize_with = "object")]
    pub(super) indexes: BTreeMap<String, Index>,
}

/// One index.
#[derive(Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) indexconfig: Members,
    /// The versions by project.
    #[serde(default, deserialize_with = "object")]
    pub(super) projects: BTreeMap<String, Versions>,
    #[serde(default, deserialize_with = "list")]
    pub(super) files: Vec<File>,
}

/// The metadata of each version of a project.
#[derive(Deserialize)]
pub(super) struct Versions(
    #[serde(deserialize_with = "object")] pub(super) BTreeMap<String, Members>,
);

/// An object with values of any type.
#[derive(Default, Deserialize)]
pub(super) struct Members(#[serde(deserialize_with = "object")] BTreeMap<String, Value>);

impl Members {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    pub(super) fn to_map(&self) -> Map<String, Value> {
        self.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether these are the settings of a mirror.
    pub(super) fn is_mirror(&self) -> bool {
        self.get("type").and_then(Value::as_str) == Some("mirror")
    }
}

/// One file.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default, deserialize_with = "text")]
    pub(super) projectname: String,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(rename = "type", default, deserialize_with = "text")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) relpath: String,
    #[serde(default)]
    pub(super) for_entrypath: Option<String>,
    #[serde(default, deserialize_with = "list")]
    pub(super) log: Vec<LogLine>,
    #[serde(default, deserialize_with = "entry")]
    pub(super) entrymapping: Entry,
}

/// devpi's own data about a file.
#[derive(Default, Deserialize)]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) hash_spec: Option<String>,
    #[serde(default, deserialize_with = "object")]
    pub(super) hashes: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) md5: Option<String>,
    #[serde(default)]
    pub(super) last_modified: Option<String>,
}

/// An event in the history of a file.
#[derive(Deserialize)]
pub(super) struct LogLine {
    #[serde(default, deserialize_with = "text")]
    pub(super) what: String,
    #[serde(default)]
    pub(super) who: Option<String>,
    #[serde(default, deserialize_with = "list")]
    when: Vec<i64>,
    #[serde(default)]
    pub(super) src: Option<String>,
    #[serde(default)]
    pub(super) dst: Option<String>,
    #[serde(default)]
    pub(super) count: Option<u32>,
}

impl LogLine {
    /// The time of the event: year to second, UTC.
    pub(super) fn at(&self) -> Option<Timestamp> {
        let &[year, month, day, hour, minute, second, ..] = self.when.as_slice() else {
            return None;
        };
        let small = |number: i64| i8::try_from(number).ok();
        let time = DateTime::new(
            i16::try_from(year).ok()?,
            small(month)?,
            small(day)?,
            small(hour)?,
            small(minute)?,
            small(second)?,
            0,
        );
        time.ok()?.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
    }
}

impl File {
    /// The last segment of its path.
    pub(super) fn basename(&self) -> &str {
        self.relpath.rsplit('/').next().unwrap_or_default()
    }

    /// Its digests by algorithm; an algorithm may occur twice.
    pub(super) fn digests(&self) -> impl Iterator<Item = (&str, &str)> {
        let entry = &self.entrymapping;
        let spec = entry.hash_spec.as_deref().and_then(|spec| spec.split_once('='));
        let hashes = entry.hashes.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let md5 = entry.md5.as_deref().map(|md5| ("md5", md5));
        let all = spec.into_iter().chain(hashes);
        all.chain(md5).filter(|(_, text)| !text.is_empty())
    }

    /// When it was written, according to devpi.
    pub(super) fn modified_at(&self) -> Option<Timestamp> {
        let time = httpdate::parse_http_date(self.entrymapping.last_modified.as_deref()?).ok()?;
        Timestamp::try_from(time).ok()
    }
}

/// Parses a text; a number becomes its digits, null an empty text.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Ok(String::new()),
        other => Err(de::Error::custom(format_args!("a text was expected, not `{other}`"))),
    }
}

/// Parses devpi's data about a file, which may be null.
fn entry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Entry, D::Error> {
    let Members(members) = Members::deserialize(deserializer)?;
    Entry::deserialize(Value::Object(members.into_iter().collect())).map_err(de::Error::custom)
}

/// Parses an object; an empty one may be written as a list, or as null.
fn object<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Object<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for Object<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            BTreeMap::deserialize(de::value::MapAccessDeserializer::new(map))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            match items.next_element::<IgnoredAny>()? {
                None => Ok(BTreeMap::new()),
                Some(_) => Err(de::Error::custom("an object was expected, not a list")),
            }
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }
    }

    deserializer.deserialize_any(Object(PhantomData))
}

/// Parses a list; an empty one may be written as an object, or as null.
fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(de::value::SeqAccessDeserializer::new(items))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            match map.next_key::<IgnoredAny>()? {
                None => Ok(Vec::new()),
                Some(_) => Err(de::Error::custom("a list was expected, not an object")),
            }
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
    }

    deserializer.deserialize_any(List(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_may_have_any_type() {
        const FULL: &str = r#"{"dumpversion": "2", "users": {"u": {"email": "e"}}, "indexes": {"u/i": {
            "indexconfig": {"type": "stage"}, "projects": {"p": {"1": {"name": "p"}}},
            "files": [{"relpath": "x", "log": [{"what": "upload", "when": [2020, 1, 1, 0, 0, 0]}],
                "entrymapping": {"hashes": {"sha256": "ab"}}}]}}}"#;
        let dump: Dump = serde_json::from_str(FULL).expect("a dump");
        let index = &dump.indexes["u/i"];
        assert_eq!(index.projects["p"].0["1"].get("name"), Some(&Value::from("p")));
        assert_eq!((dump.users.len(), index.files.len(), index.files[0].log.len()), (1, 1, 1));
        for full in [
            r#"{"u": {"email": "e"}}"#,
            r#"{"email": "e"}"#,
            r#"{"type": "stage"}"#,
            r#"{"p": {"1": {"name": "p"}}}"#,
            r#"{"1": {"name": "p"}}"#,
            r#"{"name": "p"}"#,
            r#"[{"what": "upload", "when": [2020, 1, 1, 0, 0, 0]}]"#,
            "[2020, 1, 1, 0, 0, 0]",
            r#"{"hashes": {"sha256": "ab"}}"#,
            r#"{"sha256": "ab"}"#,
        ] {
            assert!(FULL.contains(full), "{full}");
            for empty in ["{}", "[]", "null"] {
                let text = FULL.replacen(full, empty, 1);
                let read = serde_json::from_str::<Dump>(&text).map(|_| ());
                assert!(read.is_ok(), "{full} as {empty}: {read:?}");
            }
        }
        for (full, other, why) in [
            (
                r#"{"1": {"name": "p"}}"#,
                "[1]",
                "an object was expected, not a list at line 2 column 67",
            ),
            (
                "[2020, 1, 1, 0, 0, 0]",
                "{\"a\": 1}",
                "a list was expected, not an object at line 3 column 78",
            ),
        ] {
            let error = serde_json::from_str::<Dump>(&FULL.replacen(full, other, 1)).err();
            assert_eq!(error.expect("content").to_string(), why);
        }
        let dump: Dump = serde_json::from_str(r#"{"dumpversion": 2, "users": [], "indexes": []}"#)
            .expect("a dump of nothing");
        assert_eq!((dump.dumpversion.as_str(), dump.users.len()), ("2", 0));
    }

    #[test]
    fn a_time_is_six_numbers() {
        #[track_caller]
        fn check(when: &str, expected: Option<&str>) {
            let line: LogLine =
                serde_json::from_str(&format!(r#"{{"what": "upload", "when": {when}}}"#))
                    .expect("a line");
            assert_eq!(line.at().map(|at| at.to_string()).as_deref(), expected, "{when}");
        }
        check("[2016, 4, 23, 7, 1, 31]", Some("2016-04-23T07:01:31Z"));
        check("[2016, 4, 23, 7, 1, 31, 5]", Some("2016-04-23T07:01:31Z"));
        check("[2016, 4, 23]", None);
        check("[2016, 2, 30, 7, 1, 31]", None);
        check("[2016, 4000, 23, 7, 1, 31]", None);
    }

    #[test]
    fn digests_come_from_every_place() {
        let file: File = serde_json::from_str(
            r#"{"relpath": "u/i/p/p-1.zip", "entrymapping": {"hash_spec": "md5=ab",
                "hashes": {"sha256": "cd"}, "md5": "ef", "last_modified": "Sat, 23 Apr 2016 07:01:31 GMT"}}"#,
        )
        .expect("a file");
        let digests: Vec<_> = file.digests().collect();
        assert_eq!(digests, [("md5", "ab"), ("sha256", "cd"), ("md5", "ef")]);
        assert_eq!(file.basename(), "p-1.zip");
        let at = file.modified_at().expect("a time");
        assert_eq!(at.to_string(), "2016-04-23T07:01:31Z");
    }
}
