//! A page that is read piece by piece, so that only what is kept of it takes memory.
//!
//! bytes as they come -> [`PageStart`], which tells the form -> [`PlainJson`] for JSON, [`DecodedText`] and [`ShortTokens`] for HTML.
//! These refuse a page with a text so long that reading it would take as much memory as the page.

use std::cell::Cell;
use std::io::{self, Chain, Cursor, Read};
use std::ops::Range;
use std::rc::Rc;

use encoding_rs::{CoderResult, Decoder, Encoding};

/// Bytes at the start of a page that tell its form and its encoding.
const START_BYTES: u64 = 4 << 10;

/// Longest string of a page as JSON, in bytes as it is written there.
const STRING_BYTES_MAX: usize = 1 << 20;

/// Deepest list or object of a page as JSON: what is skipped takes a byte for each level.
const DEPTH_MAX: usize = 100;

/// Longest tag, attribute or text of a page as HTML, in bytes. It is shorter, since JSON may need six bytes for one.
const TOKEN_BYTES_MAX: usize = 128 << 10;

/// The beginning of a page, and all of it.
pub(super) struct PageStart<R> {
    pub(super) bytes: Vec<u8>,
    pub(super) all: Chain<Cursor<Vec<u8>>, R>,
}

impl<R: Read> PageStart<R> {
    /// Leaves out white space that the page begins with, if there is much of it.
    pub(super) fn of(mut source: R) -> io::Result<PageStart<R>> {
        let mut bytes = Vec::new();
        while bytes.iter().all(u8::is_ascii_whitespace) {
            bytes.clear();
            if source.by_ref().take(START_BYTES).read_to_end(&mut bytes)? == 0 {
                break;
            }
        }
        Ok(PageStart { all: Cursor::new(bytes.clone()).chain(source), bytes })
    }
}

fn too_long(bytes_max: usize) -> io::Error {
    io::Error::other(format!("a text of it has more than {bytes_max} bytes"))
}

/// JSON, which fails at a string that is too long, or at a list that is too deep.
pub(super) struct PlainJson<R> {
    source: R,
    is_in_string: bool,
    is_escaped: bool,
    length: usize,
    depth: usize,
}

impl<R> PlainJson<R> {
    pub(super) fn of(source: R) -> PlainJson<R> {
        PlainJson { source, is_in_string: false, is_escaped: false, length: 0, depth: 0 }
    }
}

impl<R: Read> Read for PlainJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(buffer)?;
        for byte in &buffer[..bytes] {
            self.length += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_in_string,
                b'"' => (self.is_in_string, self.length) = (!self.is_in_string, 0),
                b'[' | b'{' if !self.is_in_string => self.depth += 1,
                b']' | b'}' if !self.is_in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth > DEPTH_MAX {
                return Err(io::Error::other(format!("it is nested more than {DEPTH_MAX} deep")));
            }
            if self.is_in_string && self.length > STRING_BYTES_MAX {
                return Err(too_long(STRING_BYTES_MAX));
            }
        }
        Ok(bytes)
    }
}

/// HTML, which fails if its reader finds no end of a token for too long.
pub(super) struct ShortTokens<R> {
    source: R,
    /// The bytes since the end of the last token, which the reader of tokens sets to 0.
    length: Rc<Cell<usize>>,
}

impl<R> ShortTokens<R> {
    pub(super) fn of(source: R, length: Rc<Cell<usize>>) -> ShortTokens<R> {
        ShortTokens { source, length }
    }
}

impl<R: Read> Read for ShortTokens<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.length.get() > TOKEN_BYTES_MAX {
            return Err(too_long(TOKEN_BYTES_MAX));
        }
        let bytes = self.source.read(buffer)?;
        self.length.set(self.length.get() + bytes);
        Ok(bytes)
    }
}

/// Text in UTF-8, from an encoding or a byte order mark; what cannot be decoded is replaced.
pub(super) struct DecodedText<R> {
    source: R,
    decoder: Decoder,
    raw: Box<[u8]>,
    /// The part of `raw` that is still to be decoded.
    left: Range<usize>,
    text: Box<[u8]>,
    /// The part of `text` that is still to be read.
    ready: Range<usize>,
    is_at_end: bool,
    /// Whether the decoder has given everything: it must not be asked again.
    is_over: bool,
}

impl<R> DecodedText<R> {
    pub(super) fn of(source: R, encoding: &'static Encoding) -> DecodedText<R> {
        let buffer = || vec![0; 16 << 10].into();
        let (decoder, raw, text) = (encoding.new_decoder(), buffer(), buffer());
        let (is_at_end, is_over) = (false, false);
        DecodedText { source, decoder, raw, left: 0..0, text, ready: 0..0, is_at_end, is_over }
    }
}

impl<R: Read> Read for DecodedText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() && !self.is_over {
            if self.left.is_empty() && !self.is_at_end {
                self.left = 0..self.source.read(&mut self.raw)?;
                self.is_at_end = self.left.is_empty();
            }
            let raw = &self.raw[self.left.clone()];
            let (result, read, written, _) =
                self.decoder.decode_to_utf8(raw, &mut self.text, self.is_at_end);
            self.left.start += read;
            self.ready = 0..written;
            self.is_over = self.is_at_end && result == CoderResult::InputEmpty;
        }
        let bytes = (&self.text[self.ready.clone()]).read(buffer)?;
        self.ready.start += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use encoding_rs::{UTF_8, WINDOWS_1252};

    use super::*;

    /// Bytes that come one by one.
    struct SlowReader<'text>(&'text [u8]);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = buffer.len().min(1);
            self.0.read(&mut buffer[..bytes])
        }
    }

    fn all(mut source: impl Read) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        source.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn text_is_decoded_as_it_comes() {
        for (encoding, text) in [
            (WINDOWS_1252, &b"a\x80b"[..]),
            (UTF_8, "\u{feff}a\u{20ac}b\u{1f600}".as_bytes()),
            (UTF_8, b"a\xff\xe2\x82"),
            (UTF_8, b"\xff\xfea\0b\0"),
            (UTF_8, b""),
        ] {
            let (expected, _, _) = encoding.decode(text);
            let mut decoded = DecodedText::of(SlowReader(text), encoding);
            let found = all(&mut decoded).expect("memory");
            assert_eq!(found, expected.as_bytes(), "{text:?}");
            assert_eq!(decoded.read(&mut [0; 9]).expect("memory"), 0, "after the end");
        }
    }

    #[test]
    fn json_has_short_strings_and_is_flat() {
        let check = |text: String, refused: &str| {
            let found = all(PlainJson::of(text.as_bytes()));
            let found = found.map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(found, refused);
        };
        let string = |bytes: usize| "x".repeat(bytes);
        check(format!("[\"{}\", 1]", string(STRING_BYTES_MAX)), "");
        check(
            format!("[\"{}\", 1]", string(STRING_BYTES_MAX + 1)),
            "a text of it has more than 1048576 bytes",
        );
        // A quotation mark within a string does not end it, and what is between strings is none.
        check(
            format!("\"{}\\\"{0}\"", string(STRING_BYTES_MAX / 2 + 1)),
            "a text of it has more than 1048576 bytes",
        );
        check(format!("\"\\\\\"{}\"\"", " ".repeat(STRING_BYTES_MAX + 1)), "");
        check("[".repeat(DEPTH_MAX), "");
        check("[{".repeat(DEPTH_MAX), "it is nested more than 100 deep");
        check("[]".repeat(1_000), "");
        check(format!("\"{}\"", "[".repeat(1_000)), "");
    }

    #[test]
    fn the_start_is_read_twice() {
        let text = "x".repeat(10_000);
        let start = PageStart::of(text.as_bytes()).expect("memory");
        assert_eq!(start.bytes.len() as u64, START_BYTES);
        assert_eq!(all(start.all).expect("memory"), text.as_bytes());
        for (text, expected) in [("", ""), ("  ", ""), (" x ", " x ")] {
            let start = PageStart::of(text.as_bytes()).expect("memory");
            assert_eq!(all(start.all).expect("memory"), expected.as_bytes());
        }
        let slow = "   {".repeat(2_000);
        let start = PageStart::of(SlowReader(slow.as_bytes())).expect("memory");
        assert_eq!(start.bytes.len() as u64, START_BYTES);
        let blank = " ".repeat(10_000) + "{}";
        let start = PageStart::of(blank.as_bytes()).expect("memory");
        assert_eq!(start.bytes.trim_ascii_start(), b"{}");
    }
}
