//! [`Delta`]: how to make one dump from another.
//!
//! Lines of JSON: first an object, `{"format":1,"from":"…","to":"…","bytes":…}`, with the SHA-256 of both dumps and the size of
//! the second, and then the parts of the second: `[start,length]` copies bytes of the first, and `"text"` is new text.

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::pieces::Cutter;

pub use self::pieces::Index;

mod pieces;

/// Most new text in a delta: a client that would need more fetches the dump.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Most parts of a delta.
const PARTS_MAX: usize = 500_000;
/// The fewest bytes of a part in the file, besides its text.
const PART_BYTES: usize = 4;

const FORMAT: u32 = 1;

/// How to make one dump from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Its first line.
    pub head: DeltaHead,
    parts: Vec<DeltaPart>,
    text_bytes: usize,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaHead {
    format: u32,
    /// SHA-256 of the dump that it is applied to.
    pub from: String,
    /// SHA-256 of the dump that it makes.
    pub to: String,
    /// The size of the dump that it makes.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum DeltaPart {
    /// Copies bytes of the first dump: where they start, and how many.
    Copy(u64, u64),
    Text(String),
}

/// Why there is no delta.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// The delta would be too large to be worth sending.
    #[error("too much differs")]
    TooMuch,
    /// Strings of a delta are UTF-8.
    #[error("the dump is not UTF-8")]
    NotText,
    /// The delta, or its file, contradicts itself or the dump.
    #[error("it is not a delta of this dump")]
    Damaged,
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Delta {
    /// The delta that changes nothing.
    pub fn nothing(sha256: &str, bytes: u64) -> Delta {
        let head =
            DeltaHead { format: FORMAT, from: sha256.to_owned(), to: sha256.to_owned(), bytes };
        Delta { head, parts: vec![DeltaPart::Copy(0, bytes)], text_bytes: 0 }
    }

    /// The delta from the dump of `base` to the dump that `next` reads.
    ///
    /// # Errors
    /// [`DeltaError`].
    pub fn between(base: &Index, next: impl Read) -> Result<Delta, DeltaError> {
        let head =
            DeltaHead { format: FORMAT, from: base.sha256.clone(), to: String::new(), bytes: 0 };
        let mut delta = Delta { head, parts: Vec::new(), text_bytes: 0 };
        let mut cutter = Cutter::new(next);
        let mut hasher = Sha256::new();
        let mut expected = 0;
        while let Some(piece) = cutter.next()? {
            hasher.update(piece);
            delta.head.bytes += piece.len() as u64;
            let digest = base.digest(piece);
            // Usually the piece follows the last copy, or follows a replaced piece; otherwise it may be anywhere.
            let near = [expected, expected + 1].into_iter().find(|at| base.is_at(*at, digest));
            match near.or_else(|| base.find(digest)) {
                Some(place) => {
                    let range = base.range(place);
                    delta.copy(range.start, range.end - range.start)?;
                    expected = place + 1;
                }
                None => {
                    delta.text(std::str::from_utf8(piece).map_err(|_| DeltaError::NotText)?)?;
                }
            }
        }
        delta.head.to = hex::encode(hasher.finalize());
        Ok(delta)
    }

    /// Joins two deltas: the result leads from where `first` begins to where `self` ends.
    ///
    /// # Errors
    /// [`DeltaError`].
    pub fn after(self, first: &Delta) -> Result<Delta, DeltaError> {
        if first.head.to != self.head.from {
            return Err(DeltaError::Damaged);
        }
        // Where each part of `first` ends in the dump between the two.
        let mut end = 0_u64;
        let mut ends = Vec::with_capacity(first.parts.len());
        for part in &first.parts {
            end = end.checked_add(part.bytes()).ok_or(DeltaError::Damaged)?;
            ends.push(end);
        }
        let mut head = self.head;
        head.from.clone_from(&first.head.from);
        let mut whole = Delta { head, parts: Vec::new(), text_bytes: 0 };
        for part in self.parts {
            let (mut start, length) = match part {
                DeltaPart::Text(text) => {
                    whole.own_text(text)?;
                    continue;
                }
                DeltaPart::Copy(start, length) => (start, length),
            };
            let stop = start.checked_add(length).filter(|stop| *stop <= end);
            let stop = stop.ok_or(DeltaError::Damaged)?;
            let mut at = ends.partition_point(|end| *end <= start);
            while start < stop {
                let part_start = ends[at] - first.parts[at].bytes();
                let until = stop.min(ends[at]);
                match &first.parts[at] {
                    DeltaPart::Copy(from, _) => {
                        whole.copy(from + (start - part_start), until - start)?
                    }
                    DeltaPart::Text(text) => {
                        let range = (start - part_start) as usize..(until - part_start) as usize;
                        whole.text(text.get(range).ok_or(DeltaError::Damaged)?)?;
                    }
                }
                start = until;
                at += 1;
            }
        }
        Ok(whole)
    }

    fn copy(&mut self, start: u64, length: u64) -> Result<(), DeltaError> {
        // A damaged file may have any number here.
        let end = start.checked_add(length).ok_or(DeltaError::Damaged)?;
        match self.parts.last_mut() {
            Some(DeltaPart::Copy(before, bytes)) if *before + *bytes == start => {
                *bytes = end - *before
            }
            _ => self.push(DeltaPart::Copy(start, length))?,
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), DeltaError> {
        if let Some(DeltaPart::Text(before)) = self.parts.last_mut() {
            self.text_bytes += text.len();
            if self.text_bytes > TEXT_BYTES_MAX {
                return Err(DeltaError::TooMuch);
            }
            before.push_str(text);
            return Ok(());
        }
        self.own_text(text.to_owned())
    }

    fn own_text(&mut self, text: String) -> Result<(), DeltaError> {
        if let Some(DeltaPart::Text(_)) = self.parts.last() {
            return self.text(&text);
        }
        self.text_bytes += text.len();
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(DeltaError::TooMuch);
        }
        self.push(DeltaPart::Text(text))
    }

    fn push(&mut self, part: DeltaPart) -> Result<(), DeltaError> {
        if self.parts.len() == PARTS_MAX {
            return Err(DeltaError::TooMuch);
        }
        self.parts.push(part);
        Ok(())
    }

    /// Writes the lines.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &self.head)?;
        for part in &self.parts {
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut *out, part)?;
        }
        out.write_all(b"\n")
    }

    /// Reads the lines. Text, parts and each line are bounded; the caller bounds how many lines there may be.
    ///
    /// # Errors
    /// [`DeltaError`].
    pub fn read(mut lines: impl BufRead) -> Result<Delta, DeltaError> {
        let mut line = Vec::new();
        let mut delta: Option<Delta> = None;
        // JSON may escape a character of one byte with six.
        let line_bytes_max = (TEXT_BYTES_MAX * 6 + PART_BYTES) as u64;
        loop {
            line.clear();
            if lines.by_ref().take(line_bytes_max).read_until(b'\n', &mut line)? == 0 {
                return delta.ok_or(DeltaError::Damaged);
            }
            let Some(delta) = &mut delta else {
                let head: DeltaHead =
                    serde_json::from_slice(&line).map_err(|_| DeltaError::Damaged)?;
                if head.format != FORMAT {
                    return Err(DeltaError::Damaged);
                }
                delta = Some(Delta { head, parts: Vec::new(), text_bytes: 0 });
                continue;
            };
            match serde_json::from_slice(&line).map_err(|_| DeltaError::Damaged)? {
                DeltaPart::Copy(start, length) => delta.copy(start, length)?,
                DeltaPart::Text(text) => delta.text(&text)?,
            }
        }
    }

    /// Makes the dump of `base`, the dump that the delta leads from, and checks that it is the one that was meant.
    ///
    /// # Errors
    /// [`DeltaError::TooMuch`] if it would have more than `bytes_max` bytes; [`DeltaError::Damaged`] if it is another one, and then some of
    /// it may be written.
    pub fn apply(
        &self,
        mut base: impl Read + Seek,
        bytes_max: u64,
        out: &mut impl Write,
    ) -> Result<(), DeltaError> {
        let add = |sum: u64, part: &DeltaPart| sum.checked_add(part.bytes());
        let bytes = self.parts.iter().try_fold(0, add).ok_or(DeltaError::Damaged)?;
        if bytes > bytes_max {
            return Err(DeltaError::TooMuch);
        }
        let mut out = HashingWriter::new(out);
        for part in &self.parts {
            match part {
                DeltaPart::Text(text) => out.write_all(text.as_bytes())?,
                DeltaPart::Copy(start, length) => {
                    base.seek(SeekFrom::Start(*start))?;
                    let copied = io::copy(&mut base.by_ref().take(*length), &mut out)?;
                    if copied < *length {
                        return Err(DeltaError::Damaged);
                    }
                }
            }
        }
        match out.finish().1 == self.head.to {
            true => Ok(()),
            false => Err(DeltaError::Damaged),
        }
    }

    /// About how many bytes the delta takes in memory and as text.
    pub fn weight(&self) -> u64 {
        (self.text_bytes + self.parts.len() * size_of::<DeltaPart>()) as u64
    }
}

/// A writer that hashes the bytes on their way.
pub struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
}

impl<W: Write> HashingWriter<W> {
    /// Hashes what is written to `inner`.
    pub fn new(inner: W) -> HashingWriter<W> {
        HashingWriter { inner, hasher: Sha256::new() }
    }

    /// Returns the inner writer, and the digest in hexadecimal.
    pub fn finish(self) -> (W, String) {
        (self.inner, hex::encode(self.hasher.finalize()))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl DeltaPart {
    /// How many bytes of the dump this part makes.
    fn bytes(&self) -> u64 {
        match self {
            DeltaPart::Copy(_, length) => *length,
            DeltaPart::Text(text) => text.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(text: &str) -> Index {
        Index::read(text.as_bytes()).expect("memory").expect("few pieces")
    }

    fn between(base: &str, next: &str) -> Delta {
        Delta::between(&index(base), next.as_bytes()).expect("little differs")
    }

    /// Applies a delta as a client does: from the lines alone.
    fn apply(delta: &Delta, base: &str) -> String {
        let mut lines = Vec::new();
        delta.write(&mut lines).expect("memory");
        assert_eq!(Delta::read(&lines[..]).expect("a delta"), *delta);
        let mut applied = Vec::new();
        let outcome = delta.apply(io::Cursor::new(base), u64::MAX, &mut applied);
        let mut made = String::new();
        for line in String::from_utf8(lines).expect("UTF-8").lines().skip(1) {
            match serde_json::from_str(line).expect("a part") {
                serde_json::Value::String(text) => made.push_str(&text),
                range => {
                    let number = |at: usize| range[at].as_u64().expect("a number") as usize;
                    made.push_str(&base[number(0)..number(0) + number(1)]);
                }
            }
        }
        // That which changes nothing has no digest here.
        assert_eq!(outcome.is_ok(), delta.head.to == sha256(&made));
        assert_eq!(String::from_utf8(applied).expect("UTF-8"), made);
        made
    }

    fn sha256(text: &str) -> String {
        hex::encode(Sha256::digest(text))
    }

    #[test]
    fn a_delta_that_makes_another_dump_is_refused() {
        let (base, next) = (dump(&[(1, 1), (2, 1)]), dump(&[(1, 1), (2, 2)]));
        let delta = between(&base, &next);
        let apply = |base: &str, bytes_max: usize| {
            let mut out = Vec::new();
            delta.apply(io::Cursor::new(base), bytes_max as u64, &mut out)
        };
        apply(&base, next.len()).expect("the dump");
        assert!(matches!(apply(&base, next.len() - 1), Err(DeltaError::TooMuch)));
        assert!(matches!(apply(&base[..9], next.len()), Err(DeltaError::Damaged)));
        assert!(matches!(apply(&base.replace('1', "7"), next.len()), Err(DeltaError::Damaged)));
        // Copies that are longer than any dump together.
        let endless = format!(
            "{}\n[0,9223372036854775807]\n[0,9223372036854775807]\n[0,9]",
            r#"{"format":1,"from":"","to":"","bytes":1}"#
        );
        let endless = Delta::read(endless.as_bytes()).expect("lines");
        let made = endless.apply(io::Cursor::new("x"), u64::MAX, &mut Vec::new());
        assert!(matches!(made, Err(DeltaError::Damaged)));
    }

    fn dump(records: &[(u8, u8)]) -> String {
        let record = |(name, version): &(u8, u8)| {
            format!(
                "{{\"ID\":1,\"Name\":\"package-ö-{name}\",\"PackageBase\":\"base\",\"NumVotes\":{version},\
                 \"Popularity\":0.5,\"Submitter\":\"anna\\n\",\"Depends\":[\"glibc\",\"libwood\"]}}"
            )
        };
        let records: Vec<String> = records.iter().map(record).collect();
        format!("[\n{}\n]", records.join(",\n"))
    }

    fn dumps() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::collection::vec((0_u8..12, 0_u8..4), 0..20).prop_map(|it| dump(&it)),
            "[a-c},ä]{0,200}",
        ]
    }

    proptest! {
        #[test]
        fn a_delta_makes_the_next_dump(dumps in proptest::collection::vec(dumps(), 2..6)) {
            let deltas: Vec<Delta> =
                dumps.windows(2).map(|pair| between(&pair[0], &pair[1])).collect();
            for (delta, pair) in deltas.iter().zip(dumps.windows(2)) {
                prop_assert_eq!(&apply(delta, &pair[0]), &pair[1]);
                prop_assert_eq!(delta.head.bytes, pair[1].len() as u64);
            }
            // Joins the newest first.
            let mut whole: Option<Delta> = None;
            for (delta, base) in deltas.into_iter().zip(&dumps).rev() {
                let next = match whole.take() {
                    Some(later) => later.after(&delta).expect("they belong together"),
                    None => delta,
                };
                prop_assert_eq!(&apply(&next, base), dumps.last().expect("some"));
                whole = Some(next);
            }
        }
    }

    #[test]
    fn what_has_not_changed_is_copied() {
        let records: Vec<(u8, u8)> = (0..=255).map(|name| (name, 1)).collect();
        let mut next = records.clone();
        next[100].1 = 2;
        next.remove(7);
        let (base, next) = (dump(&records), dump(&next));
        let delta = between(&base, &next);
        assert_eq!(apply(&delta, &base), next);
        // The removed record costs a copy, the changed one a text and a copy.
        assert_eq!(delta.parts.len(), 4, "{:?}", delta.parts);
        assert!(delta.text_bytes < 120, "{:?}", delta.parts);
        assert_eq!(apply(&Delta::nothing("x", base.len() as u64), &base), base);
    }

    #[test]
    fn a_delta_of_another_dump_is_refused() {
        let (first, second) = (between("a", "b"), between("c", "d"));
        assert!(matches!(second.after(&first), Err(DeltaError::Damaged)));
        for lines in [
            "",
            "{}",
            "{\"format\":2,\"from\":\"\",\"to\":\"\",\"bytes\":1}",
            "{\"format\":1,\"from\":\"\",\"to\":\"\",\"bytes\":1}\n[1]",
        ] {
            assert!(matches!(Delta::read(lines.as_bytes()), Err(DeltaError::Damaged)), "{lines}");
        }
        // The second delta copies bytes that the dump between the two does not have.
        let beyond = |from: &str, to: &str| {
            let lines = format!(
                "{{\"format\":1,\"from\":\"{from}\",\"to\":\"{to}\",\"bytes\":9}}\n[0,18446744073709551615]\n[7,9]"
            );
            Delta::read(lines.as_bytes()).expect("lines")
        };
        assert!(matches!(beyond("b", "c").after(&beyond("a", "b")), Err(DeltaError::Damaged)));
    }

    #[test]
    fn too_much_is_no_delta() {
        let base = index("x");
        let next = "y".repeat(TEXT_BYTES_MAX + 1);
        assert!(matches!(Delta::between(&base, next.as_bytes()), Err(DeltaError::TooMuch)));
        assert!(matches!(Delta::between(&base, &b"\xff"[..]), Err(DeltaError::NotText)));
    }
}
