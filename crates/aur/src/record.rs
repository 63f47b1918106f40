//! How a package is stored: its values as finished JSON, one after another.
//!
//! A record has a bit for each field with a value, then the sizes of those values, then the values. To write an
//! answer, values are copied between constant keys; nothing is parsed, escaped or formatted. The keys, a third of an
//! answer, are not stored a hundred thousand times.
//!
//! ```text
//! bits: u32 | bytes of sizes: u8 | size of each value: LEB128 .. | value .. value ..
//! ```

mod render;
mod writer;

use serde::de::IgnoredAny;

use crate::field::Field;
use crate::package::{Integer, Number, Package, Text, Texts};

pub(crate) use self::render::{MemberNotes, Repetitions};
pub(crate) use self::writer::RecordWriter;

/// The path of a package's snapshot archive on the AUR, up to the package base; `.tar.gz` follows that.
const SNAPSHOT_PREFIX: &str = "\"/cgit/aur.git/snapshot/";
const SNAPSHOT_SUFFIX: &str = ".tar.gz\"";

/// Which keys a record shows in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordShape {
    /// All keys; lists other than keywords and licences only when not empty.
    Info,
    /// The 14 keys of version 5 searches.
    Search,
    /// goaurrpc's version 6: all keys whose value is neither empty nor zero, without the numbers of package and
    /// package base.
    Version6,
    /// The keys of `packages-meta-v1.json`: the search keys and the submitter, popularity as a float.
    Metadata,
}

/// Size of the part before the sizes: the bits, and the number of bytes that the sizes take.
const HEAD_BYTES: usize = size_of::<u32>() + 1;

/// [`Field::place`] of each field.
const KEPT_PLACES: [usize; Field::ALL.len()] = {
    let mut places = [0; Field::ALL.len()];
    let mut at = 0;
    while at < places.len() {
        places[at] = Field::ALL[at].place();
        at += 1;
    }
    places
};

/// The text of a stored JSON string.
fn text_of(json: &[u8]) -> Text<'_> {
    if json.contains(&b'\\') {
        Text::Unescaped(serde_json::from_slice(json).expect("a record has valid JSON"))
    } else {
        Text::Verbatim(&json[1..json.len() - 1])
    }
}

/// The texts of a stored list.
fn texts_of(json: &[u8]) -> Texts<'_> {
    if json.contains(&b'\\') {
        serde_json::from_slice(json).expect("a record has valid JSON")
    } else {
        Texts::Verbatim(json)
    }
}

/// One encoded package.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// A bit for each field that has a value, in the order of [`Field::KEPT`].
    bits: u32,
    sizes: &'a [u8],
    /// The values, followed by whatever comes after the record in memory.
    values: &'a [u8],
}

/// The position of each field's value, in the order of [`Field::KEPT`]: start and size. The size is 0 if the field
/// has no value.
type FieldRanges = [(u32, u32); Field::KEPT.len()];

impl<'a> Record<'a> {
    /// Reads the record that begins at the start of `bytes`.
    #[inline]
    pub(crate) fn at(bytes: &'a [u8]) -> Record<'a> {
        let (bits, rest) = bytes.split_first_chunk::<4>().expect("a record starts with its bits");
        let (sizes, values) = rest[1..].split_at(rest[0] as usize);
        Record { bits: u32::from_le_bytes(*bits), sizes, values }
    }

    /// How many bytes the record takes.
    pub(crate) fn size_bytes(self) -> usize {
        let values: u32 = self.places(Field::KEPT.len()).iter().map(|&(_, size)| size).sum();
        HEAD_BYTES + self.sizes.len() + values as usize
    }

    /// Whether both have the same values.
    pub(crate) fn is_same(self, other: Record<'_>) -> bool {
        let size = self.size_bytes() - HEAD_BYTES - self.sizes.len();
        // Equal sizes mean that both have as many bytes of values.
        (self.bits, self.sizes) == (other.bits, other.sizes)
            && self.values[..size] == other.values[..size]
    }

    /// The positions of the first `count` values.
    #[inline]
    fn places(self, count: usize) -> FieldRanges {
        let mut places = FieldRanges::default();
        let mut bits = self.bits & ((1_u64 << count) - 1) as u32;
        let mut sizes = self.sizes.iter();
        let mut start = 0;
        while bits != 0 {
            let mut size = 0;
            let mut shift = 0;
            for &byte in sizes.by_ref() {
                size |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            if let Some(place) = places.get_mut(bits.trailing_zeros() as usize) {
                *place = (start, size);
            }
            start += size;
            bits &= bits - 1;
        }
        places
    }

    /// The JSON of one field; `None` if the package has no value for it.
    pub(crate) fn value(self, wanted: Field) -> Option<&'a [u8]> {
        let (start, size) = self.places(wanted.place() + 1)[wanted.place()];
        (size > 0).then(|| &self.values[start as usize..][..size as usize])
    }

    /// Finds the JSON of several fields: `None` if the package has no value for one.
    pub(crate) fn fields(self) -> impl Fn(Field) -> Option<&'a [u8]> {
        let places = self.places(Field::KEPT.len());
        move |field| {
            let (start, size) = places[field.place()];
            (size > 0).then(|| &self.values[start as usize..][..size as usize])
        }
    }

    /// The JSON string of the package's name.
    pub(crate) fn name(self) -> &'a [u8] {
        self.value(Field::Name).unwrap_or(b"\"\"")
    }

    /// The JSON string of the package base's name.
    pub(crate) fn package_base(self) -> &'a [u8] {
        self.value(Field::PackageBase).unwrap_or_else(|| self.name())
    }

    /// The JSON of one field that was requested: `null` or an empty list if there is no value.
    pub(crate) fn shown(self, field: Field) -> Vec<u8> {
        if field == Field::UrlPath {
            let base = self.package_base();
            let base = &base[1..base.len() - 1];
            return [SNAPSHOT_PREFIX.as_bytes(), base, SNAPSHOT_SUFFIX.as_bytes()].concat();
        }
        let value =
            if field == Field::PackageBase { Some(self.package_base()) } else { self.value(field) };
        let absent = match field {
            Field::PendingRequests => "null",
            _ => field.absent_value().unwrap_or("[]"),
        };
        value.unwrap_or(absent.as_bytes()).to_vec()
    }

    /// The package as it would be read from a dump: encoded, it is this record again.
    pub(crate) fn package(self) -> Package<'a> {
        let value = self.fields();
        let text = |field: Field| value(field).map(text_of);
        let number = |field: Field| value(field).map(Integer::Verbatim);
        let texts = |field: Field| value(field).map_or_else(Texts::default, texts_of);
        let name = text(Field::Name).unwrap_or(Text::Verbatim(b""));
        Package {
            id: Integer::Verbatim(value(Field::Id).unwrap_or(b"0")),
            package_base_id: Integer::Verbatim(value(Field::PackageBaseId).unwrap_or(b"0")),
            package_base: text(Field::PackageBase).unwrap_or_else(|| name.clone()),
            name,
            version: text(Field::Version).unwrap_or(Text::Verbatim(b"")),
            description: text(Field::Description),
            url: text(Field::Url),
            num_votes: Integer::Verbatim(value(Field::NumVotes).unwrap_or(b"0")),
            popularity: Number(value(Field::Popularity).unwrap_or(b"0")),
            out_of_date: value(Field::OutOfDate).map(Integer::Verbatim),
            maintainer: text(Field::Maintainer),
            submitter: text(Field::Submitter),
            first_submitted: Integer::Verbatim(value(Field::FirstSubmitted).unwrap_or(b"0")),
            last_modified: Integer::Verbatim(value(Field::LastModified).unwrap_or(b"0")),
            depends: texts(Field::Depends),
            make_depends: texts(Field::MakeDepends),
            check_depends: texts(Field::CheckDepends),
            opt_depends: texts(Field::OptDepends),
            conflicts: texts(Field::Conflicts),
            provides: texts(Field::Provides),
            replaces: texts(Field::Replaces),
            groups: texts(Field::Groups),
            license: texts(Field::License),
            keywords: texts(Field::Keywords),
            co_maintainers: texts(Field::CoMaintainers),
            pending_requests: number(Field::PendingRequests),
            others: value(Field::Others).unwrap_or_default().into(),
            unshown: value(Field::Unshown).unwrap_or_default().into(),
        }
    }

    /// Appends the record in the form of a dump, in the order of aurweb's exports.
    pub(crate) fn write_dumped(self, out: &mut Vec<u8>) {
        let places = self.places(Field::KEPT.len());
        let value = |field: Field| {
            let (start, size) = places[field.place()];
            &self.values[start as usize..][..size as usize]
        };
        out.extend_from_slice(b"{\"ID\":");
        out.extend_from_slice(value(Field::Id));
        for field in [
            Field::Name,
            Field::PackageBaseId,
            Field::PackageBase,
            Field::Version,
            Field::Description,
            Field::Url,
            Field::NumVotes,
            Field::Popularity,
            Field::OutOfDate,
            Field::Maintainer,
            Field::Submitter,
            Field::FirstSubmitted,
            Field::LastModified,
        ] {
            out.extend_from_slice(field.key().as_bytes());
            out.extend_from_slice(match (field, value(field)) {
                (Field::PackageBase, b"") => value(Field::Name),
                (_, b"") => b"null",
                (Field::Popularity, b"0") => b"0.0",
                (_, value) => value,
            });
        }
        // Unlike in an answer, the path has the name of the package.
        out.extend_from_slice(Field::UrlPath.key().as_bytes());
        out.extend_from_slice(SNAPSHOT_PREFIX.as_bytes());
        let name = value(Field::Name);
        out.extend_from_slice(&name[1..name.len() - 1]);
        out.extend_from_slice(SNAPSHOT_SUFFIX.as_bytes());
        for field in [
            Field::Depends,
            Field::MakeDepends,
            Field::CheckDepends,
            Field::OptDepends,
            Field::Conflicts,
            Field::Provides,
            Field::Replaces,
            Field::Groups,
            Field::License,
            Field::Keywords,
            Field::CoMaintainers,
            Field::PendingRequests,
            Field::Unshown,
        ] {
            let value = value(field);
            if !value.is_empty() {
                out.extend_from_slice(field.key().as_bytes());
                out.extend_from_slice(value);
            }
        }
        out.extend_from_slice(value(Field::Others));
        out.push(b'}');
    }
}

/// The key of the first of these members, each with a comma before it, and how many bytes the member has.
pub(crate) fn first_member(members: &[u8]) -> Option<(String, usize)> {
    let rest = members.get(1..)?;
    let mut keys = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
    let key = keys.next()?.ok()?;
    let colon = 1 + keys.byte_offset();
    let mut values =
        serde_json::Deserializer::from_slice(members.get(colon + 1..)?).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some((key, colon + 1 + values.byte_offset()))
}

#[cfg(test)]
mod tests;
