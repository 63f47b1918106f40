//! How a package is stored: its values as finished JSON, one after another.
//!
//! A record has a bit for each field with a value, then the sizes of those values, then the values. To write an
//! answer, values are copied between constant keys; nothing is parsed, escaped or formatted. The keys, a third of an
//! answer, are not stored a hundred thousand times.
//!
//! ```text
//! bits: u32 | bytes of sizes: u8 | size of each value: LEB128 .. | value .. value ..
//! ```

use serde::de::IgnoredAny;

use crate::field::Field;
use crate::package::{Integer, Number, Package, Text, Texts};
use crate::sheet::Sheet;

/// The path of a package's snapshot archive on the AUR, up to the package base; `.tar.gz` follows that.
const SNAPSHOT_PREFIX: &str = "\"/cgit/aur.git/snapshot/";
const SNAPSHOT_SUFFIX: &str = ".tar.gz\"";

/// Which keys a record shows in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
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

/// Encodes packages one after another, and uses its buffers again for each.
#[derive(Debug, Default)]
pub(crate) struct RecordWriter {
    bits: u32,
    sizes: Vec<u8>,
    values: Vec<u8>,
}

impl RecordWriter {
    /// Encodes `package`; returns the size of its record, in bytes.
    pub(crate) fn encode(&mut self, package: &Package<'_>) -> usize {
        self.bits = 0;
        self.sizes.clear();
        self.values.clear();
        let base = &package.package_base;
        let is_named_as_base = base.as_bytes() == package.name.as_bytes();
        // In the order of [`Field::KEPT`], so that each position is a constant.
        self.text(Field::Description, package.description.as_ref());
        self.integer(Field::FirstSubmitted, Some(&package.first_submitted));
        self.integer(Field::Id, Some(&package.id));
        self.integer(Field::LastModified, Some(&package.last_modified));
        self.text(Field::Maintainer, package.maintainer.as_ref());
        self.text(Field::Name, Some(&package.name));
        self.integer(Field::NumVotes, Some(&package.num_votes));
        self.integer(Field::OutOfDate, package.out_of_date.as_ref());
        self.text(Field::PackageBase, Some(base).filter(|_| !is_named_as_base));
        self.integer(Field::PackageBaseId, Some(&package.package_base_id));
        self.value(Field::Popularity, |values| {
            values.extend_from_slice(popularity(package.popularity.0))
        });
        self.text(Field::Url, package.url.as_ref());
        self.text(Field::Version, Some(&package.version));
        self.texts(Field::CheckDepends, &package.check_depends);
        self.texts(Field::CoMaintainers, &package.co_maintainers);
        self.texts(Field::Conflicts, &package.conflicts);
        self.texts(Field::Depends, &package.depends);
        self.texts(Field::Groups, &package.groups);
        self.texts(Field::Keywords, &package.keywords);
        self.texts(Field::License, &package.license);
        self.texts(Field::MakeDepends, &package.make_depends);
        self.texts(Field::OptDepends, &package.opt_depends);
        self.integer(Field::PendingRequests, package.pending_requests.as_ref());
        self.texts(Field::Provides, &package.provides);
        self.texts(Field::Replaces, &package.replaces);
        self.text(Field::Submitter, package.submitter.as_ref());
        self.value(Field::Others, |values| values.extend_from_slice(&package.others));
        self.value(Field::Unshown, |values| values.extend_from_slice(&package.unshown));
        HEAD_BYTES + self.sizes.len() + self.values.len()
    }

    /// Writes the record that was encoded last to `out`, which has exactly its size.
    pub(crate) fn write_to(&self, out: &mut [u8]) {
        let (head, values) = out.split_at_mut(HEAD_BYTES + self.sizes.len());
        head[..4].copy_from_slice(&self.bits.to_le_bytes());
        head[4] = self.sizes.len() as u8;
        head[HEAD_BYTES..].copy_from_slice(&self.sizes);
        values.copy_from_slice(&self.values);
    }

    /// Whether the record at the start of `bytes` is the one that was encoded last.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        // The sizes say where the values end.
        let head = self.bits.to_le_bytes();
        let parts = [&head[..], &[self.sizes.len() as u8], &self.sizes, &self.values];
        let mut rest = Some(bytes);
        for part in parts {
            rest = rest.and_then(|rest| rest.strip_prefix(part));
        }
        rest.is_some()
    }

    #[inline(always)]
    fn text(&mut self, field: Field, text: Option<&Text<'_>>) {
        self.value(field, |values| {
            if let Some(text) = text {
                write_text(text, values);
            }
        });
    }

    #[inline(always)]
    fn integer(&mut self, field: Field, integer: Option<&Integer<'_, impl serde::Serialize>>) {
        self.value(field, |values| match integer {
            Some(Integer::Verbatim(digits)) => values.extend_from_slice(digits),
            Some(Integer::Parsed(value)) => write_json(value, values),
            None => {}
        });
    }

    #[inline(always)]
    fn texts(&mut self, field: Field, texts: &Texts<'_>) {
        self.value(field, |values| write_texts(texts, values));
    }

    /// Stores what `write` writes as the value of `field`; if it writes nothing, the field has no value.
    #[inline(always)]
    fn value(&mut self, field: Field, write: impl FnOnce(&mut Vec<u8>)) {
        let place = const { KEPT_PLACES }[field as usize];
        debug_assert_eq!(self.bits >> place, 0, "{field:?} stands before others in `Field::KEPT`");
        let start = self.values.len();
        write(&mut self.values);
        let size = self.values.len() - start;
        if size > 0 {
            self.bits |= 1 << place;
            write_size(size, &mut self.sizes);
        }
    }
}

/// What a JSON string that a record has says.
fn text_of(json: &[u8]) -> Text<'_> {
    if json.contains(&b'\\') {
        Text::Unescaped(serde_json::from_slice(json).expect("a record has valid JSON"))
    } else {
        Text::Verbatim(&json[1..json.len() - 1])
    }
}

/// What a list that a record has says.
fn texts_of(json: &[u8]) -> Texts<'_> {
    if json.contains(&b'\\') {
        serde_json::from_slice(json).expect("a record has valid JSON")
    } else {
        Texts::Verbatim(json)
    }
}

/// The API shows a popularity of zero as an integer, and any other as the dump has it.
fn popularity(written: &[u8]) -> &[u8] {
    let digits = written.strip_prefix(b"-").unwrap_or(written);
    let is_zero = digits.iter().all(|byte| matches!(byte, b'0' | b'.'));
    if is_zero { b"0" } else { written }
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
            out.extend_from_slice(text);
            out.push(b'"');
        }
        Text::Unescaped(text) => write_json(text, out),
    }
}

fn write_texts(texts: &Texts<'_>, out: &mut Vec<u8>) {
    let texts = match texts {
        Texts::Verbatim(list) => return out.extend_from_slice(list),
        Texts::Parsed(texts) => texts,
    };
    let Some((first, rest)) = texts.split_first() else { return };
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
    /// A bit for each field that has a value, in the order of [`Field::KEPT`].
    bits: u32,
    sizes: &'a [u8],
    /// The values, followed by whatever comes after the record in memory.
    values: &'a [u8],
}

/// The position of each field's value, in the order of [`Field::KEPT`]: start and size. The size is 0 if the field
/// has no value.
type Places = [(u32, u32); Field::KEPT.len()];

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
    fn places(self, count: usize) -> Places {
        let mut places = Places::default();
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

    /// The JSON string of the package's name.
    pub(crate) fn name(self) -> &'a [u8] {
        self.value(Field::Name).unwrap_or(b"\"\"")
    }

    /// The JSON string of the package base's name.
    pub(crate) fn package_base(self) -> &'a [u8] {
        self.value(Field::PackageBase).unwrap_or_else(|| self.name())
    }

    /// The JSON of one field as it is shown to those who ask for it: `null` or an empty list if there is no value.
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
        let places = self.places(Field::KEPT.len());
        let value = |field: Field| {
            let (start, size) = places[field.place()];
            (size > 0).then(|| &self.values[start as usize..][..size as usize])
        };
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

    /// Appends the record as a dump has it, in the order of aurweb's exports.
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

    /// Appends the package as a JSON object with the keys of `shape`.
    pub(crate) fn render(self, shape: Shape, out: &mut Sheet) {
        // Each shape is compiled separately, so that a shape does not pay for the members that it leaves out.
        match shape {
            Shape::Info => self.render_as(Shape::Info, out),
            Shape::Search => self.render_as(Shape::Search, out),
            Shape::Version6 => self.render_as(Shape::Version6, out),
            Shape::Metadata => self.render_as(Shape::Metadata, out),
        }
    }

    #[inline(always)]
    fn render_as(self, shape: Shape, sheet: &mut Sheet) {
        let count = if shape == Shape::Search { Field::SEARCH_COUNT } else { Field::SHOWN_COUNT };
        let places = self.places(count);
        let values_bytes: u32 = places.iter().map(|&(_, size)| size).sum();
        let (_, name_bytes) = places[Field::Name.place()];
        let (_, base_bytes) = places[Field::PackageBase.place()];
        // The name of the base may be written twice more often than it is stored.
        let bytes_max = CONSTANTS_BYTES + (values_bytes + 2 * name_bytes.max(base_bytes)) as usize;
        let out = sheet.room(bytes_max + SPAN_BYTES);
        // The other shapes have a fixed set of keys.
        if matches!(shape, Shape::Info | Shape::Version6)
            && places[const { Field::Others.place() }].1 > 0
        {
            let written = render_with_others(self.values, places, shape, out);
            return sheet.written(written);
        }
        // No call below takes its address, so that it stays in registers.
        let mut pen = Pen { values: self.values, places, shape, out, at: 0 };
        pen.member(Field::CheckDepends);
        pen.member(Field::CoMaintainers);
        pen.member(Field::Conflicts);
        pen.member(Field::Depends);
        pen.member(Field::Description);
        pen.member(Field::FirstSubmitted);
        pen.member(Field::Groups);
        pen.member(Field::Id);
        pen.member(Field::Keywords);
        pen.member(Field::LastModified);
        pen.member(Field::License);
        pen.member(Field::Maintainer);
        pen.member(Field::MakeDepends);
        pen.member(Field::Name);
        pen.member(Field::NumVotes);
        pen.member(Field::OptDepends);
        pen.member(Field::OutOfDate);
        pen.member(Field::PackageBase);
        pen.member(Field::PackageBaseId);
        pen.member(Field::PendingRequests);
        pen.member(Field::Popularity);
        pen.member(Field::Provides);
        pen.member(Field::Replaces);
        pen.member(Field::Submitter);
        pen.member(Field::Url);
        pen.member(Field::UrlPath);
        pen.member(Field::Version);
        pen.constant(b"}");
        // Each member begins with a comma, and the first one's becomes `{`. There is a first one: the version is
        // always there.
        pen.out[0] = b'{';
        let written = pen.at;
        sheet.written(written);
    }
}

/// How many bytes are copied at once. Most values are shorter, and a copy of constant size needs no branch.
const SPAN_BYTES: usize = 32;

/// An upper bound for all keys, the values of absent fields, and the constant parts of a path.
const CONSTANTS_BYTES: usize = {
    let mut bytes = "}".len() + SNAPSHOT_PREFIX.len() + SNAPSHOT_SUFFIX.len();
    let mut at = 0;
    while at < Field::ALL.len() {
        bytes += Field::ALL[at].key().len() + "null".len();
        at += 1;
    }
    bytes
};

/// Writes one object into a buffer that is large enough.
struct Pen<'a> {
    values: &'a [u8],
    places: Places,
    shape: Shape,
    out: &'a mut [u8],
    at: usize,
}

/// Writes an object with members that are not known, each where its key belongs; returns its size in bytes.
#[cold]
#[inline(never)]
fn render_with_others(values: &[u8], places: Places, shape: Shape, out: &mut [u8]) -> usize {
    let (start, size) = places[Field::Others.place()];
    let others = &values[start as usize..][..size as usize];
    let mut pen = Pen { values, places, shape, out, at: 0 };
    let mut rest = others;
    for field in Field::ALL {
        while let Some((key, bytes)) = first_member(rest)
            && (key.as_str() < field.name() || field == Field::Others)
        {
            pen.value(start + (others.len() - rest.len()) as u32, bytes as u32);
            rest = &rest[bytes..];
        }
        if !matches!(field, Field::Others | Field::Unshown) {
            pen.member(field);
        }
    }
    pen.constant(b"}");
    pen.out[0] = b'{';
    pen.at
}

impl Pen<'_> {
    /// Writes `field` if the shape includes it.
    #[inline(always)]
    fn member(&mut self, field: Field) {
        let is_wanted = match self.shape {
            Shape::Info => true,
            Shape::Search => field.is_in_search(),
            Shape::Metadata => field.is_in_search() || matches!(field, Field::Submitter),
            Shape::Version6 => !matches!(field, Field::Id | Field::PackageBaseId),
        };
        if !is_wanted {
            return;
        }
        let place = const { KEPT_PLACES }[field as usize];
        let (start, size) = match field {
            Field::PackageBase | Field::UrlPath => self.base(),
            _ => self.places[place],
        };
        if field == Field::UrlPath {
            self.constant(field.key().as_bytes());
            self.constant(SNAPSHOT_PREFIX.as_bytes());
            // The value without its quotes.
            self.value(start + 1, size - 2);
            self.constant(SNAPSHOT_SUFFIX.as_bytes());
        } else if size == 0 {
            if let Some(absent) = field.absent_value()
                && self.shape != Shape::Version6
            {
                self.constant(field.key().as_bytes());
                self.constant(absent.as_bytes());
            }
        } else if self.shape == Shape::Version6 && size == 1 && self.is_zero(start) {
            // Left out, like an empty value.
        } else {
            self.constant(field.key().as_bytes());
            if field == Field::Popularity
                && self.shape == Shape::Metadata
                && size == 1
                && self.is_zero(start)
            {
                self.constant(b"0.0");
            } else {
                self.value(start, size);
            }
        }
    }

    /// The position of the package base's name, which is stored only if it differs from the package's.
    #[inline(always)]
    fn base(&self) -> (u32, u32) {
        let base = self.places[const { Field::PackageBase.place() }];
        if base.1 > 0 { base } else { self.places[const { Field::Name.place() }] }
    }

    fn is_zero(&self, start: u32) -> bool {
        self.values[start as usize] == b'0'
    }

    #[inline(always)]
    fn constant(&mut self, bytes: &'static [u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline(always)]
    fn value(&mut self, start: u32, size: u32) {
        let (start, size) = (start as usize, size as usize);
        let from = &self.values[start..];
        let to = &mut self.out[self.at..];
        match (from.first_chunk::<SPAN_BYTES>(), to.first_chunk_mut::<SPAN_BYTES>()) {
            // Excess bytes are overwritten by the next copy, or cut off at the end.
            (Some(from), Some(to)) if size <= SPAN_BYTES => *to = *from,
            _ => to[..size].copy_from_slice(&from[..size]),
        }
        self.at += size;
    }
}

/// The key of the first of these members, each with a comma before it, and how many bytes the member takes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package;

    const SPLIT: &str = r#"{"ID":7,"Name":"a-b","PackageBaseID":3,"PackageBase":"a","Version":"1-1",
        "Description":"\"q\" \u00e9 \\","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":null,
        "Submitter":"who","FirstSubmitted":1,"LastModified":2,"URLPath":"/wrong","Depends":["b>=1","c"],"Groups":[]}"#;

    #[track_caller]
    fn check(package: &str, shape: Shape, expected: &str) {
        let others = package::others(package);
        let mut package: Package<'_> = serde_json::from_str(package).expect("a package");
        package.others = others.into();
        let mut writer = RecordWriter::default();
        let mut bytes = vec![0; writer.encode(&package)];
        writer.write_to(&mut bytes);
        let mut again = RecordWriter::default();
        let mut read_back = vec![0; again.encode(&Record::at(&bytes).package())];
        again.write_to(&mut read_back);
        assert_eq!(read_back, bytes);
        let mut dumped = Vec::new();
        Record::at(&bytes).write_dumped(&mut dumped);
        let dumped = std::str::from_utf8(&dumped).expect("UTF-8");
        let others = package::others(dumped);
        let mut package: Package<'_> = serde_json::from_str(dumped).expect("a package");
        package.others = others.into();
        let mut read_back = vec![0; again.encode(&package)];
        again.write_to(&mut read_back);
        assert_eq!(read_back, bytes, "{dumped}");
        let mut out = Sheet::default();
        Record::at(&bytes).render(shape, &mut out);
        assert_eq!(std::str::from_utf8(out.as_bytes()).expect("UTF-8"), expected);
        // Neither the bytes after a record nor the earlier contents of the sheet may matter.
        bytes.extend_from_slice(&[0xff; 99]);
        out.clear();
        out.push(&[0xff; 2000]);
        out.clear();
        out.push(b"[");
        Record::at(&bytes).render(shape, &mut out);
        assert_eq!(std::str::from_utf8(&out.finish()).expect("UTF-8"), format!("[{expected}"));
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
    fn version_6_leaves_out_empty_and_zero_values() {
        check(
            SPLIT,
            Shape::Version6,
            r#"{"Depends":["b>=1","c"],"Description":"\"q\" é \\","FirstSubmitted":1,"LastModified":2,"Name":"a-b","PackageBase":"a","Submitter":"who","URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
        );
    }

    #[test]
    fn what_is_not_known_passes_through() {
        const NEWER: &str = r#"{"Zebra":[1,
            2],"ID":7,"Name":"a","PackageBaseID":3,"PackageBase":"a","Version":"1","NumVotes":0,"Popularity":0,
            "FirstSubmitted":1,"LastModified":2,"FlaggedMalicious":true,"A \"b\"":"x, \\u00e9","Info":{"Name":1}}"#;
        check(
            NEWER,
            Shape::Info,
            r#"{"A \"b\"":"x, \\u00e9","Description":null,"FirstSubmitted":1,"FlaggedMalicious":true,"ID":7,"Info":{"Name":1},"Keywords":[],"LastModified":2,"License":[],"Maintainer":null,"Name":"a","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"Submitter":null,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1","Zebra":[1,2]}"#,
        );
        check(
            NEWER,
            Shape::Search,
            r#"{"Description":null,"FirstSubmitted":1,"ID":7,"LastModified":2,"Maintainer":null,"Name":"a","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1"}"#,
        );
        check(
            NEWER,
            Shape::Version6,
            r#"{"A \"b\"":"x, \\u00e9","FirstSubmitted":1,"FlaggedMalicious":true,"Info":{"Name":1},"LastModified":2,"Name":"a","PackageBase":"a","URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1","Zebra":[1,2]}"#,
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
            assert_eq!(popularity(written.as_bytes()), sent.as_bytes());
        }
    }
}
