//! A package as it is kept: its values as finished JSON, one after another in the order of an answer.
//!
//! A record is a bit per field that has a value, the sizes of those values, and the values. Writing
//! an answer copies values between constant keys; nothing is parsed, escaped or formatted. The keys,
//! a third of an answer, are not kept a hundred thousand times.
//!
//! ```text
//! bits: u32 | bytes of sizes: u8 | size of each value: LEB128 .. | value .. value ..
//! ```

use crate::field::Field;
use crate::package::{Package, Text, Texts};

/// Where package snapshots are found, relative to the AUR's root: this, the base, `.tar.gz`.
const SNAPSHOT_PREFIX: &str = "\"/cgit/aur.git/snapshot/";
const SNAPSHOT_SUFFIX: &str = ".tar.gz\"";

/// More than most packages take in an answer.
const RECORD_BYTES: usize = 1024;

/// Which keys an answer's records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All keys; lists other than keywords and licences only when not empty.
    Info,
    /// The 14 keys of version 5 searches.
    Search,
    /// goaurrpc's version 6: all keys that have a value other than nothing and zero, without numbers
    /// of package and base.
    Version6,
    /// The keys of `packages-meta-v1.json`: the search keys and the submitter, popularity as a float.
    Metadata,
}

/// Encodes packages; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub(crate) struct RecordWriter {
    bits: u32,
    sizes: Vec<u8>,
    values: Vec<u8>,
}

impl RecordWriter {
    /// Appends the record of `package` to `out`.
    pub(crate) fn write(&mut self, package: &Package<'_>, out: &mut Vec<u8>) {
        self.bits = 0;
        self.sizes.clear();
        self.values.clear();
        for field in Field::ALL {
            let start = self.values.len();
            self.write_value(field, package);
            let size = self.values.len() - start;
            if size > 0 {
                self.bits |= 1 << field as u8;
                write_size(size, &mut self.sizes);
            }
        }
        out.extend_from_slice(&self.bits.to_le_bytes());
        out.push(self.sizes.len() as u8);
        out.extend_from_slice(&self.sizes);
        out.extend_from_slice(&self.values);
    }

    /// Writes the value of `field`, or nothing if it is absent or follows from the others.
    fn write_value(&mut self, field: Field, package: &Package<'_>) {
        let values = &mut self.values;
        match field {
            Field::CheckDepends => write_texts(&package.check_depends, values),
            Field::CoMaintainers => write_texts(&package.co_maintainers, values),
            Field::Conflicts => write_texts(&package.conflicts, values),
            Field::Depends => write_texts(&package.depends, values),
            Field::Description => write_optional(package.description.as_ref(), values),
            Field::FirstSubmitted => write_json(&package.first_submitted, values),
            Field::Groups => write_texts(&package.groups, values),
            Field::Id => write_json(&package.id, values),
            Field::Keywords => write_texts(&package.keywords, values),
            Field::LastModified => write_json(&package.last_modified, values),
            Field::License => write_texts(&package.license, values),
            Field::Maintainer => write_optional(package.maintainer.as_ref(), values),
            Field::MakeDepends => write_texts(&package.make_depends, values),
            Field::Name => write_text(&package.name, values),
            Field::NumVotes => write_json(&package.num_votes, values),
            Field::OptDepends => write_texts(&package.opt_depends, values),
            Field::OutOfDate => {
                if let Some(time) = package.out_of_date {
                    write_json(&time, values);
                }
            }
            Field::PackageBase => {
                if package.package_base.as_str() != package.name.as_str() {
                    write_text(&package.package_base, values);
                }
            }
            Field::PackageBaseId => write_json(&package.package_base_id, values),
            Field::Popularity => {
                values.extend_from_slice(popularity(package.popularity.0).as_bytes())
            }
            Field::Provides => write_texts(&package.provides, values),
            Field::Replaces => write_texts(&package.replaces, values),
            Field::Submitter => write_optional(package.submitter.as_ref(), values),
            Field::Url => write_optional(package.url.as_ref(), values),
            Field::UrlPath => {}
            Field::Version => write_text(&package.version, values),
        }
    }
}

/// The interface gives a popularity of nothing as the integer, everything else as in the dump.
fn popularity(written: &str) -> &str {
    let is_zero = written.trim_start_matches('-').bytes().all(|byte| matches!(byte, b'0' | b'.'));
    if is_zero { "0" } else { written }
}

fn write_size(mut size: usize, out: &mut Vec<u8>) {
    while size >= 0x80 {
        out.push(size as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

fn write_json(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("numbers and strings serialize into memory");
}

fn write_text(text: &Text<'_>, out: &mut Vec<u8>) {
    match text {
        Text::Verbatim(text) => {
            out.push(b'"');
            out.extend_from_slice(text.as_bytes());
            out.push(b'"');
        }
        Text::Unescaped(text) => write_json(text, out),
    }
}

fn write_optional(text: Option<&Text<'_>>, out: &mut Vec<u8>) {
    if let Some(text) = text {
        write_text(text, out);
    }
}

fn write_texts(texts: &Texts<'_>, out: &mut Vec<u8>) {
    let Some((first, rest)) = texts.0.split_first() else { return };
    out.push(b'[');
    write_text(first, out);
    for text in rest {
        out.push(b',');
        write_text(text, out);
    }
    out.push(b']');
}

/// One encoded package.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    bits: u32,
    sizes: &'a [u8],
    values: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record that begins at the start of `bytes`.
    #[inline]
    pub(crate) fn at(bytes: &'a [u8]) -> Record<'a> {
        let (bits, rest) = bytes.split_first_chunk::<4>().expect("a record starts with its bits");
        let (sizes, values) = rest[1..].split_at(rest[0] as usize);
        Record { bits: u32::from_le_bytes(*bits), sizes, values }
    }

    /// The values that are there, in order.
    #[inline]
    fn fields(self) -> impl Iterator<Item = (Field, Option<&'a [u8]>)> {
        let mut sizes = self.sizes.iter();
        let mut values = self.values;
        Field::ALL.into_iter().map(move |field| {
            if self.bits & (1 << field as u8) == 0 {
                return (field, None);
            }
            let mut size = 0;
            let mut shift = 0;
            for &byte in sizes.by_ref() {
                size |= (byte as usize & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let (value, rest) = values.split_at(size);
            values = rest;
            (field, Some(value))
        })
    }

    /// The JSON of one field; `None` if the package has no value for it.
    pub(crate) fn value(self, wanted: Field) -> Option<&'a [u8]> {
        self.fields().find(|(field, _)| *field == wanted).and_then(|(_, value)| value)
    }

    /// The JSON string of the package's name.
    pub(crate) fn name(self) -> &'a [u8] {
        self.value(Field::Name).unwrap_or(b"\"\"")
    }

    /// The JSON string of the package base's name.
    pub(crate) fn package_base(self) -> &'a [u8] {
        self.value(Field::PackageBase).unwrap_or_else(|| self.name())
    }

    /// Appends the package as a JSON object with the keys of `shape`.
    pub(crate) fn render(self, shape: Shape, out: &mut Vec<u8>) {
        // Room for a record of usual size, so that its pieces do not grow the buffer one by one.
        out.reserve(RECORD_BYTES);
        let start = out.len();
        let mut name: &[u8] = b"\"\"";
        let mut base = None;
        for (field, value) in self.fields() {
            match field {
                Field::Name => name = value.unwrap_or(name),
                Field::PackageBase => base = value,
                _ => {}
            }
            let is_wanted = match shape {
                Shape::Info => true,
                Shape::Search => field.is_in_search(),
                Shape::Metadata => field.is_in_search() || field == Field::Submitter,
                Shape::Version6 => {
                    !matches!(field, Field::Id | Field::PackageBaseId) && value != Some(b"0")
                }
            };
            if !is_wanted {
                continue;
            }
            match (field, value) {
                (Field::PackageBase, _) => write_member(field, base.unwrap_or(name), out),
                (Field::UrlPath, _) => {
                    let base = base.unwrap_or(name);
                    out.extend_from_slice(field.key().as_bytes());
                    out.extend_from_slice(SNAPSHOT_PREFIX.as_bytes());
                    out.extend_from_slice(&base[1..base.len() - 1]);
                    out.extend_from_slice(SNAPSHOT_SUFFIX.as_bytes());
                }
                (Field::Popularity, Some(b"0")) if shape == Shape::Metadata => {
                    write_member(field, b"0.0", out);
                }
                (_, Some(value)) => write_member(field, value, out),
                (_, None) => {
                    if let Some(absent) = field.absent_value()
                        && shape != Shape::Version6
                    {
                        write_member(field, absent.as_bytes(), out);
                    }
                }
            }
        }
        // Each member begins with a comma. The version is always there, so there is a first one.
        out[start] = b'{';
        out.push(b'}');
    }
}

#[inline]
fn write_member(field: Field, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(field.key().as_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: &str = r#"{"ID":7,"Name":"a-b","PackageBaseID":3,"PackageBase":"a","Version":"1-1",
        "Description":"\"q\" \u00e9 \\","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":null,
        "Submitter":"who","FirstSubmitted":1,"LastModified":2,"URLPath":"/wrong","Depends":["b>=1","c"],"Groups":[]}"#;

    #[track_caller]
    fn check(package: &str, shape: Shape, expected: &str) {
        let package: Package<'_> = serde_json::from_str(package).expect("a package");
        let mut bytes = Vec::new();
        RecordWriter::default().write(&package, &mut bytes);
        let mut out = Vec::new();
        Record::at(&bytes).render(shape, &mut out);
        assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
    }

    #[test]
    fn info() {
        check(
            SPLIT,
            Shape::Info,
            r#"{"Depends":["b>=1","c"],"Description":"\"q\" é \\","FirstSubmitted":1,"ID":7,"Keywords":[],"LastModified":2,"License":[],"Maintainer":null,"Name":"a-b","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"Submitter":"who","URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
        );
    }

    #[test]
    fn search() {
        check(
            SPLIT,
            Shape::Search,
            r#"{"Description":"\"q\" é \\","FirstSubmitted":1,"ID":7,"LastModified":2,"Maintainer":null,"Name":"a-b","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
        );
    }

    #[test]
    fn version_6_leaves_out_what_is_nothing() {
        check(
            SPLIT,
            Shape::Version6,
            r#"{"Depends":["b>=1","c"],"Description":"\"q\" é \\","FirstSubmitted":1,"LastModified":2,"Name":"a-b","PackageBase":"a","Submitter":"who","URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
        );
    }

    #[test]
    fn popularity_is_kept_as_written() {
        for (written, sent) in [
            ("0.0", "0"),
            ("0", "0"),
            ("1e-6", "1e-6"),
            ("0.000044", "0.000044"),
            ("100.0", "100.0"),
        ] {
            assert_eq!(popularity(written), sent);
        }
    }
}
