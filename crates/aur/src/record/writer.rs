//! [`RecordWriter`]: a package becomes a record.

use super::{HEAD_BYTES, KEPT_PLACES};
use crate::field::Field;
use crate::package::{Integer, Package, Text, Texts};

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

    /// Whether `bytes` begin with the record that was encoded last.
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

/// The API shows a popularity of zero as an integer, and any other as the dump has it.
pub(super) fn popularity(written: &[u8]) -> &[u8] {
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
