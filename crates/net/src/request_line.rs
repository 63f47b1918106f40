//! Looks at the request line of HTTP/1 before hyper reads it: how long it is, and which bytes of its target hyper would refuse.
//!
//! bytes of a head -> [`RequestLine::take`] -> the same bytes, or with `"`, `<`, `>`, `` ` `` and everything above 0x7F in the
//! target percent-encoded. Proxies, aurweb and goaurrpc all accept these. A space and control characters stay as they are: no
//! server accepts them, and neither does hyper.
//!
//! Only a target is ever changed: the line must begin with a method, one space, and `/` or a scheme.

use memchr::memchr;

/// What a request line has besides the URL: the method and the version, generously.
const LINE_BYTES_BESIDE_URL: usize = 64;
/// No method that anybody uses is longer.
const METHOD_BYTES_MAX: u8 = 32;

/// What to do with the bytes that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineOutcome {
    /// Nothing.
    AsTheyAre,
    /// Give hyper these bytes instead.
    Mended(Vec<u8>),
    /// The line is longer than any that we would answer.
    TooLong,
}

/// The line that is being read, from one read to the next.
#[derive(Debug)]
pub(super) struct RequestLine {
    /// Bytes of the line so far, as hyper gets them.
    bytes: usize,
    bytes_max: usize,
    /// The end of the line has not come.
    is_open: bool,
    at: LinePosition,
    /// No byte of a head has come since the last body.
    is_before_head: bool,
    /// The method is HEAD; not reliable if the line came in parts.
    is_head: bool,
}

/// Where in the line the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// In the method, after this many bytes of it.
    Method(u8),
    /// Behind the space after the method.
    TargetStart,
    Target,
    /// Behind the target, or in a line that is no request line.
    Rest,
}

impl RequestLine {
    /// Before the first line of a connection.
    pub(super) fn new(url_bytes_max: usize) -> Self {
        Self {
            bytes: 0,
            bytes_max: url_bytes_max + LINE_BYTES_BESIDE_URL,
            is_open: true,
            at: LinePosition::Method(0),
            is_before_head: true,
            is_head: false,
        }
    }

    /// Whether the answer to a line that is too long has no body.
    pub(super) fn is_head(&self) -> bool {
        self.is_head
    }

    /// A body is being read: the next line begins with the next request.
    pub(super) fn end_before_body(&mut self) {
        self.is_before_head = true;
    }

    /// Takes note of bytes of a head, the first ones or further ones.
    pub(super) fn take(&mut self, read: &[u8], is_first: bool) -> LineOutcome {
        if is_first || self.is_before_head {
            let begun = Self {
                bytes: 0,
                is_open: true,
                at: LinePosition::Method(0),
                is_before_head: false,
                ..*self
            };
            *self = begun;
        }
        if !self.is_open {
            return LineOutcome::AsTheyAre;
        }
        let end = memchr(b'\n', read);
        let line = &read[..end.unwrap_or(read.len())];
        // Fast path of nearly all requests: a whole line with nothing to mend. A blank line may come before the request.
        if end.is_some() && line.len() > 1 && !has_refused_byte(line) {
            self.is_open = false;
            return LineOutcome::AsTheyAre;
        }
        if self.at == LinePosition::Method(0) {
            self.is_head = read.trim_ascii_start().starts_with(b"HEAD ");
        }
        self.walk(read)
    }

    /// Looks at each byte: for a line that came in parts, or has to be mended.
    fn walk(&mut self, read: &[u8]) -> LineOutcome {
        let mut mended = Vec::new();
        // How much of `read` is in `mended`.
        let mut copied = 0;
        for (index, &byte) in read.iter().enumerate() {
            self.at = match (self.at, byte) {
                // hyper passes over blank lines before a request.
                (LinePosition::Method(0), b'\r' | b'\n') => LinePosition::Method(0),
                (_, b'\n') => {
                    self.is_open = false;
                    break;
                }
                (LinePosition::Method(0), b' ') => LinePosition::Rest,
                (LinePosition::Method(_), b' ') => LinePosition::TargetStart,
                (LinePosition::Method(length), b'!'..=b'~') if length < METHOD_BYTES_MAX => {
                    LinePosition::Method(length + 1)
                }
                (LinePosition::Method(_), _) => LinePosition::Rest,
                (LinePosition::TargetStart, b'/' | b'h' | b'H') => LinePosition::Target,
                (LinePosition::TargetStart, _) | (LinePosition::Target, b' ') => LinePosition::Rest,
                (LinePosition::Target, byte) if is_refused(byte) => {
                    mended.extend_from_slice(&read[copied..index]);
                    mended
                        .extend_from_slice(percent_encoding::percent_encode_byte(byte).as_bytes());
                    copied = index + 1;
                    self.bytes += 2;
                    LinePosition::Target
                }
                (at, _) => at,
            };
            self.bytes += 1;
        }
        if self.bytes > self.bytes_max && (self.is_open || copied > 0) {
            return LineOutcome::TooLong;
        }
        if copied == 0 {
            return LineOutcome::AsTheyAre;
        }
        mended.extend_from_slice(&read[copied..]);
        LineOutcome::Mended(mended)
    }
}

/// Whether hyper would refuse a target for this byte, though others accept it.
const fn is_refused(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

/// Whether the line has a byte that hyper refuses. Every request pays for this, so it compares sixteen bytes side by side,
/// without branches: the compiler makes vector instructions of it. The last sixteen may overlap those before.
fn has_refused_byte(line: &[u8]) -> bool {
    const STEP: usize = 16;
    let Some(last) = line.last_chunk::<STEP>() else {
        return line.iter().any(|byte| is_refused(*byte));
    };
    let mut found = [0; STEP];
    for step in line.as_chunks::<STEP>().0.iter().chain([last]) {
        for (found, &byte) in found.iter_mut().zip(step) {
            // `<` and `>` differ in one bit.
            let is_one =
                u8::from(byte == b'"') | u8::from(byte == b'`') | u8::from(byte | 2 == b'>');
            *found |= is_one | byte & 0x80;
        }
    }
    found != [0; STEP]
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL_BYTES_MAX: usize = 60;

    /// Feeds `reads`, the first of which begins a head, and compares what hyper gets.
    #[track_caller]
    fn check(reads: &[&[u8]], expected: &[u8]) {
        let mut line = RequestLine::new(URL_BYTES_MAX);
        let mut given = Vec::new();
        for (index, read) in reads.iter().enumerate() {
            match line.take(read, index == 0) {
                LineOutcome::AsTheyAre => given.extend_from_slice(read),
                LineOutcome::Mended(bytes) => given.extend(bytes),
                LineOutcome::TooLong => given.extend_from_slice(b"(too long)"),
            }
        }
        assert_eq!(given.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[track_caller]
    fn check_whole(read: &[u8], expected: &[u8]) {
        check(&[read], expected);
        // Sends it byte by byte, too.
        let bytes: Vec<&[u8]> = read.chunks(1).collect();
        check(&bytes, expected);
        for at in 1..read.len() {
            check(&[&read[..at], &read[at..]], expected);
        }
    }

    #[test]
    fn targets_are_mended_and_nothing_else_is() {
        check_whole(
            b"GET /a<b>?c=\"d\"&e=>1`f HTTP/1.1\r\nif-none-match: \"x\"\r\n\r\n<body>",
            b"GET /a%3Cb%3E?c=%22d%22&e=%3E1%60f HTTP/1.1\r\nif-none-match: \"x\"\r\n\r\n<body>",
        );
        check_whole(
            b"GET /\xed\xa0\x80?\xff=\xc3\xa9 HTTP/1.1\r\n",
            b"GET /%ED%A0%80?%FF=%C3%A9 HTTP/1.1\r\n",
        );
        check_whole(b"GET http://h/?a=b>1 HTTP/1.1\r\n", b"GET http://h/?a=b%3E1 HTTP/1.1\r\n");
        check_whole(b"\r\n\nGET /> HTTP/1.0\nx: >\n\n", b"\r\n\nGET /%3E HTTP/1.0\nx: >\n\n");
        for untouched in [
            b"GET /a{b}|c\\d^e~[f]?{|}\\^[]' HTTP/1.1\r\n\r\n".as_slice(),
            b"GET /a b> HTTP/1.1\r\n",
            b"G\"T / HTTP/1.1\r\nx: <y>\r\n\r\n",
            b" /> HTTP/1.1\r\n",
            b"If-Match: \"a\" /> HTTP/1.1\r\n",
            b"GET <a> HTTP/1.1\r\n",
            b"GET / HTTP/1.1>\r\n",
            b"\x16\x03\x01\x02\x00\x01 /\xff",
            b"",
        ] {
            check_whole(untouched, untouched);
        }
    }

    #[test]
    fn every_byte_of_a_target_is_mended_or_left_for_hyper_to_judge() {
        for byte in 0..=u8::MAX {
            let target = [b"/a", [byte].as_slice(), b"b?c", &[byte], b"d"].concat();
            let request = [b"GET ".as_slice(), &target, b" HTTP/1.1\r\n\r\n"].concat();
            let mut line = RequestLine::new(URL_BYTES_MAX);
            let given = match line.take(&request, true) {
                LineOutcome::Mended(bytes) => bytes,
                _ => request,
            };
            let given = &given[4..given.len() - 13];
            let is_accepted = http::uri::PathAndQuery::try_from(given).is_ok();
            assert_eq!(is_accepted, byte > b' ' && byte != 0x7f, "{byte:#04x}");
        }
    }

    #[test]
    fn a_refused_byte_is_found_wherever_it_stands() {
        for length in 0..50 {
            assert!(!has_refused_byte(&vec![b'a'; length]), "{length}");
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut line = vec![b'a'; length];
                    line[at] = byte;
                    assert_eq!(has_refused_byte(&line), is_refused(byte), "{byte:#04x} at {at}");
                }
            }
        }
    }

    #[track_caller]
    fn check_length(reads: &[(&str, bool)], verdicts: &[bool]) {
        let mut line = RequestLine::new(0);
        line.bytes_max = 8;
        let found: Vec<bool> = reads
            .iter()
            .map(|(read, is_first)| line.take(read.as_bytes(), *is_first) == LineOutcome::TooLong)
            .collect();
        assert_eq!(found, verdicts);
    }

    #[test]
    fn only_lines_without_an_end_are_too_long_unless_mending_made_them_so() {
        check_length(&[("12345678", true), ("9", false)], &[false, true]);
        check_length(&[("123456789\r\n", true), ("headers without bound", false)], &[false, false]);
        check_length(&[("1234\n", true), ("123456789", true)], &[false, true]);
        check_length(&[("12345", true), ("12345", true), ("1234", false)], &[false, false, true]);
        check_length(&[("G /<<<\n", true)], &[true]);
    }

    #[test]
    fn a_line_after_a_body_begins_anew() {
        let mut line = RequestLine::new(URL_BYTES_MAX);
        assert_eq!(
            line.take(b"POST /> HTTP/1.1\r\n\r\n", true),
            LineOutcome::Mended(b"POST /%3E HTTP/1.1\r\n\r\n".to_vec())
        );
        assert_eq!(line.take(b"GET /> HTTP/1.1\r\n\r\n", false), LineOutcome::AsTheyAre);
        line.end_before_body();
        assert_eq!(
            line.take(b"GET /> HTTP/1.1\r\n\r\n", false),
            LineOutcome::Mended(b"GET /%3E HTTP/1.1\r\n\r\n".to_vec())
        );
    }
}
