//! A record becomes an object of an answer: its values are copied between constant keys.

use reply::Outline;

use super::{
    FieldRanges, KEPT_PLACES, Record, RecordShape, SNAPSHOT_PREFIX, SNAPSHOT_SUFFIX, first_member,
};
use crate::buffer::Buffer;
use crate::field::Field;

/// Notes positions of members while records are written.
pub(crate) trait MemberNotes {
    /// A member of this field begins at this position of the answer.
    fn member(&mut self, field: Field, at: usize);
}

/// Nothing is noted.
impl MemberNotes for () {
    #[inline(always)]
    fn member(&mut self, _: Field, _: usize) {}
}

/// Notes where each member probably begins as that of an earlier record does.
pub(crate) struct Repetitions {
    outline: Outline,
    /// Where the last member of each field begins; the largest position if there was none.
    last: [usize; Field::ALL.len()],
}

impl Repetitions {
    /// Repetitions in an answer with this many records.
    pub(crate) fn in_records(count: usize) -> Repetitions {
        let places = count.saturating_sub(1) * Field::SEARCH_COUNT;
        let last = [usize::MAX; Field::ALL.len()];
        Repetitions { outline: Outline::with_capacity(places), last }
    }

    pub(crate) fn finish(self) -> Outline {
        self.outline
    }
}

impl MemberNotes for Repetitions {
    #[inline(always)]
    fn member(&mut self, field: Field, at: usize) {
        self.outline.note(at, self.last[field as usize]);
        self.last[field as usize] = at;
    }
}

impl Record<'_> {
    /// Appends the package as a JSON object with the keys of `shape`.
    pub(crate) fn render(self, shape: RecordShape, out: &mut Buffer) {
        self.render_noting(shape, out, &mut ());
    }

    /// [`Record::render`], which also tells `notes` of the members.
    #[inline(always)]
    pub(crate) fn render_noting(
        self,
        shape: RecordShape,
        out: &mut Buffer,
        notes: &mut impl MemberNotes,
    ) {
        // Each shape is compiled separately, so that a shape does not pay for the members that it leaves out.
        match shape {
            RecordShape::Info => self.render_as(RecordShape::Info, out, notes),
            RecordShape::Search => self.render_as(RecordShape::Search, out, notes),
            RecordShape::Version6 => self.render_as(RecordShape::Version6, out, notes),
            RecordShape::Metadata => self.render_as(RecordShape::Metadata, out, notes),
        }
    }

    #[inline(always)]
    fn render_as(self, shape: RecordShape, buffer: &mut Buffer, notes: &mut impl MemberNotes) {
        let count =
            if shape == RecordShape::Search { Field::SEARCH_COUNT } else { Field::SHOWN_COUNT };
        let places = self.places(count);
        let values_bytes: u32 = places.iter().map(|&(_, size)| size).sum();
        let (_, name_bytes) = places[Field::Name.place()];
        let (_, base_bytes) = places[Field::PackageBase.place()];
        // The name of the base may be written up to two times more than it is stored.
        let bytes_max = CONSTANTS_BYTES + (values_bytes + 2 * name_bytes.max(base_bytes)) as usize;
        let before = buffer.as_bytes().len();
        let out = buffer.room(bytes_max + SPAN_BYTES);
        // The other shapes have a fixed set of keys.
        if matches!(shape, RecordShape::Info | RecordShape::Version6)
            && places[const { Field::Others.place() }].1 > 0
        {
            let written = render_with_others(self.values, places, shape, out, before, notes);
            return buffer.written(written);
        }
        // No call below takes its address, so that it stays in registers.
        let mut pen =
            ObjectWriter { values: self.values, places, shape, out, at: 0, before, notes };
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
        buffer.written(written);
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
struct ObjectWriter<'a, N> {
    values: &'a [u8],
    places: FieldRanges,
    shape: RecordShape,
    out: &'a mut [u8],
    at: usize,
    /// The size of the answer before the object.
    before: usize,
    notes: &'a mut N,
}

/// Writes an object with members that are not known, each where its key belongs; returns its size in bytes.
#[cold]
#[inline(never)]
fn render_with_others(
    values: &[u8],
    places: FieldRanges,
    shape: RecordShape,
    out: &mut [u8],
    before: usize,
    notes: &mut impl MemberNotes,
) -> usize {
    let (start, size) = places[Field::Others.place()];
    let others = &values[start as usize..][..size as usize];
    let mut pen = ObjectWriter { values, places, shape, out, at: 0, before, notes };
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

impl<N: MemberNotes> ObjectWriter<'_, N> {
    /// Writes `field` if the shape includes it.
    #[inline(always)]
    fn member(&mut self, field: Field) {
        let is_wanted = match self.shape {
            RecordShape::Info => true,
            RecordShape::Search => field.is_in_search(),
            RecordShape::Metadata => field.is_in_search() || matches!(field, Field::Submitter),
            RecordShape::Version6 => !matches!(field, Field::Id | Field::PackageBaseId),
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
            self.key(field);
            self.constant(SNAPSHOT_PREFIX.as_bytes());
            // The value without its quotes.
            self.value(start + 1, size - 2);
            self.constant(SNAPSHOT_SUFFIX.as_bytes());
        } else if size == 0 {
            if let Some(absent) = field.absent_value()
                && self.shape != RecordShape::Version6
            {
                self.key(field);
                self.constant(absent.as_bytes());
            }
        } else if self.shape == RecordShape::Version6 && size == 1 && self.is_zero(start) {
            // Left out, like an empty value.
        } else {
            self.key(field);
            if field == Field::Popularity
                && self.shape == RecordShape::Metadata
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
    fn key(&mut self, field: Field) {
        self.notes.member(field, self.before + self.at);
        self.constant(field.key().as_bytes());
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
