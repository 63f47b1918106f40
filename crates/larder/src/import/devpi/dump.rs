//! The shape of `dataindex.json`, as devpi-server 4 to 6 write it; what is not known is passed over.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The whole export.
#[derive(Deserialize)]
pub(super) struct Dump {
    #[serde(default)]
    pub(super) dumpversion: String,
    #[serde(default)]
    pub(super) users: BTreeMap<String, Map<String, Value>>,
    #[serde(default)]
    pub(super) indexes: BTreeMap<String, Index>,
}

/// One index.
#[derive(Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) indexconfig: Map<String, Value>,
    /// By project and version.
    #[serde(default)]
    pub(super) projects: BTreeMap<String, BTreeMap<String, Map<String, Value>>>,
    #[serde(default)]
    pub(super) files: Vec<File>,
}

/// One file.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) projectname: String,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) relpath: String,
    #[serde(default)]
    pub(super) for_entrypath: Option<String>,
    #[serde(default)]
    pub(super) log: Option<Vec<LogLine>>,
    #[serde(default)]
    pub(super) entrymapping: Entry,
}

/// What devpi keeps of a file.
#[derive(Default, Deserialize)]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) hash_spec: Option<String>,
    #[serde(default)]
    pub(super) hashes: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) md5: Option<String>,
    #[serde(default)]
    pub(super) last_modified: Option<String>,
}

/// Something that happened to a file.
#[derive(Deserialize)]
pub(super) struct LogLine {
    #[serde(default)]
    pub(super) what: String,
    #[serde(default)]
    pub(super) who: Option<String>,
    #[serde(default)]
    when: Vec<i64>,
    #[serde(default)]
    pub(super) src: Option<String>,
    #[serde(default)]
    pub(super) dst: Option<String>,
    #[serde(default)]
    pub(super) count: Option<u32>,
}

impl LogLine {
    /// When it happened: year to second, UTC.
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
    /// The last segment of where it lies.
    pub(super) fn basename(&self) -> &str {
        self.relpath.rsplit('/').next().unwrap_or_default()
    }

    /// Its digests by algorithm; the same one may come twice.
    pub(super) fn digests(&self) -> impl Iterator<Item = (&str, &str)> {
        let entry = &self.entrymapping;
        let spec = entry.hash_spec.as_deref().and_then(|spec| spec.split_once('='));
        let hashes = entry.hashes.iter().flatten();
        let md5 = entry.md5.as_deref().map(|md5| ("md5", md5));
        let all = spec.into_iter().chain(hashes.map(|(name, text)| (name.as_str(), text.as_str())));
        all.chain(md5).filter(|(_, text)| !text.is_empty())
    }

    /// When devpi says it was written.
    pub(super) fn modified_at(&self) -> Option<Timestamp> {
        let time = httpdate::parse_http_date(self.entrymapping.last_modified.as_deref()?).ok()?;
        Timestamp::try_from(time).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
