//! Reads `packages-meta-ext-v1.json`: a JSON array of package records, plain or compressed with gzip.
//!
//! The array is read record by record through a window, so a dump of any size needs little memory beside the snapshot
//! that it becomes. Compression is recognized by its magic bytes, repeatedly: some servers declare the gzip of the
//! file as a content encoding, some do not declare it, and some compress once more.

use std::io::{self, BufReader, Read};
use std::mem;

use flate2::bufread::MultiGzDecoder;

use crate::package::{self, Package};
use crate::scan;
use crate::segment::SegmentBuilder;
use crate::snapshot::Snapshot;

/// Bounds on a dump.
#[derive(Clone, Copy, Debug)]
pub struct DumpLimits {
    /// Largest dump, in bytes after decompression.
    pub dump_bytes_max: u64,
    /// Largest single record, in bytes of JSON.
    pub record_bytes_max: usize,
}

impl Default for DumpLimits {
    /// 4 GiB, and 512 KiB for a record.
    fn default() -> DumpLimits {
        DumpLimits { dump_bytes_max: 4 << 30, record_bytes_max: 512 << 10 }
    }
}

/// Why a dump was refused. Lines and columns count from 1, in the decompressed JSON.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The bytes could not be read or decompressed.
    #[error("cannot read the dump: {0}")]
    Read(#[from] io::Error),
    /// The dump ends before the array begins or before it ends.
    #[error("line {line} column {column}: the dump ends here, expected {expected}")]
    Truncated {
        /// Line of the end.
        line: u64,
        /// Column of the end, in bytes.
        column: u64,
        /// What should have followed.
        expected: &'static str,
    },
    /// The dump is not JSON, or contains something that is not a record.
    #[error("line {line} column {column}: {problem}")]
    Malformed {
        /// Line of the offending byte.
        line: u64,
        /// Column of the offending byte, in bytes.
        column: u64,
        /// The problem at that position.
        problem: String,
    },
    /// The array has no records. Every real catalogue has some.
    #[error("the dump has no packages")]
    Empty,
    /// The dump is larger than [`DumpLimits::dump_bytes_max`].
    #[error("the dump has more than {dump_bytes_max} bytes")]
    TooLarge {
        /// The bound that was exceeded.
        dump_bytes_max: u64,
    },
    /// The dump is compressed more often than any real server would do it.
    #[error("the dump is compressed more than {GZIP_LAYERS_MAX} times")]
    TooDeep,
}

/// aurweb compresses once, and a proxy in front of it may compress once more.
const GZIP_LAYERS_MAX: usize = 3;

/// The first bytes of every gzip member (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How many bytes are read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// How many are read at first, and then twice as many each time: a changed package has some hundred bytes, and clearing the memory for
/// more would cost more than reading it.
const WINDOW_BYTES_MIN: usize = 4 << 10;

/// Reads a whole dump and builds its snapshot.
///
/// # Errors
///
/// [`DumpError`], with a position if one is known. An incomplete dump never becomes a snapshot.
pub fn read<'a>(source: impl Read + Send + 'a, limits: &DumpLimits) -> Result<Snapshot, DumpError> {
    read_with_bases(source, limits, std::iter::empty())
}

/// Reads a whole dump and builds its snapshot. `bases` are further names of package bases, because a dump lacks bases without
/// packages.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_with_bases<'a>(
    source: impl Read + Send + 'a,
    limits: &DumpLimits,
    bases: impl IntoIterator<Item = String>,
) -> Result<Snapshot, DumpError> {
    let mut builder = SegmentBuilder::default();
    bases.into_iter().for_each(|name| builder.add_base(name));
    each_record(source, limits, |package| {
        builder.add(package);
        true
    })?;
    if builder.is_empty() {
        return Err(DumpError::Empty);
    }
    Ok(builder.build().into())
}

/// Reads a dump that follows `before`, as [`read_with_bases`] does, if little differs: the large segment is shared, so this
/// needs little memory. `None` if too much differs, or if packages are named twice: then read it with [`read_with_bases`].
///
/// # Errors
///
/// Those of [`read`].
pub fn read_after<'a>(
    before: &Snapshot,
    source: impl Read + Send + 'a,
    limits: &DumpLimits,
    bases: impl IntoIterator<Item = String>,
) -> Result<Option<Snapshot>, DumpError> {
    before.after_dump(source, limits, bases)
}

/// Hands every record to `take`, until that returns false; tells whether all were handed over.
#[inline(always)]
pub(crate) fn each_record<'a>(
    source: impl Read + Send + 'a,
    limits: &DumpLimits,
    mut take: impl FnMut(&Package<'_>) -> bool,
) -> Result<bool, DumpError> {
    let mut input = Input::new(inflate(source)?, limits);
    input.expect(b'[', "`[`, the start of the list of packages")?;
    let mut next = Next::FirstRecord;
    let mut is_wanted = true;
    while next != Next::Nothing && is_wanted {
        next = input.records(next, |package| is_wanted = is_wanted && take(package))?;
    }
    if is_wanted {
        input.expect_end()?;
    }
    Ok(is_wanted)
}

/// What the parser expects next in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A record, or the end of an empty list.
    FirstRecord,
    /// A record.
    Record,
    /// A comma, or the end of the list.
    Separator,
    /// The list has ended.
    Nothing,
}

/// Removes all gzip layers.
fn inflate<'a>(source: impl Read + Send + 'a) -> Result<Box<dyn Read + Send + 'a>, DumpError> {
    let mut reader: Box<dyn Read + Send> = Box::new(source);
    for layers in 0.. {
        let (is_gzip, whole) = peek_magic(reader)?;
        if !is_gzip {
            return Ok(Box::new(whole));
        }
        if layers == GZIP_LAYERS_MAX {
            break;
        }
        let inflated = MultiGzDecoder::new(BufReader::with_capacity(WINDOW_BYTES, whole));
        reader = Box::new(BufReader::with_capacity(WINDOW_BYTES, inflated));
    }
    Err(DumpError::TooDeep)
}

/// Whether `reader` begins with gzip's magic bytes, and a reader of all its bytes, including those. The first read may return a
/// single byte: a source returns what it has.
fn peek_magic<R: Read>(mut reader: R) -> Result<(bool, impl Read + use<R>), DumpError> {
    let mut head = Vec::with_capacity(GZIP_MAGIC.len());
    match reader.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut head) {
        // The layer is cut off within its first bytes: reading on returns the error, with its position.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        read => {
            read?;
        }
    }
    Ok((head == GZIP_MAGIC, io::Cursor::new(head).chain(reader)))
}

/// Why no more records can be read from a window.
enum WindowError {
    NoSeparator,
    TooLong,
    Unreadable(serde_json::Error),
}

/// The longest piece of JSON whose beginning looks like an error: a number or an escape.
const DOUBTFUL_BYTES: usize = 64;

/// The offset in `text`, in bytes, at which the parser reported `error`.
fn error_offset(error: &serde_json::Error, text: &str) -> usize {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => memchr::memchr_iter(b'\n', text.as_bytes()).nth(line - 2).map_or(0, |at| at + 1),
    };
    (line_start + error.column()).min(text.len())
}

fn line_breaks(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// A window that moves forward over the dump and knows its position.
struct Input<'a> {
    source: Box<dyn Read + Send + 'a>,
    limits: &'a DumpLimits,
    buffer: Vec<u8>,
    /// How much of the buffer has been consumed.
    taken: usize,
    /// The buffer is known to be UTF-8 up to here.
    valid: usize,
    /// How much of the buffer has been filled; the rest is free.
    filled: usize,
    /// How many bytes are read next.
    window_bytes: usize,
    is_at_end: bool,
    bytes_read: u64,
    /// Line breaks have been counted up to here in the buffer. A record that the fast path read has none, so most of
    /// a dump need not be searched for them.
    counted: usize,
    /// How many line breaks there are before `counted`, in all the bytes since the start of the dump.
    lines: u64,
    /// Bytes since the last line break, among those that have left the buffer.
    column_gone: u64,
}

impl<'a> Input<'a> {
    fn new(source: Box<dyn Read + Send + 'a>, limits: &'a DumpLimits) -> Input<'a> {
        Input {
            source,
            limits,
            buffer: Vec::new(),
            taken: 0,
            valid: 0,
            filled: 0,
            window_bytes: WINDOW_BYTES_MIN,
            is_at_end: false,
            bytes_read: 0,
            counted: 0,
            lines: 0,
            column_gone: 0,
        }
    }

    /// Drops the consumed bytes, then reads more.
    fn fill(&mut self) -> Result<(), DumpError> {
        (self.lines, self.column_gone) = self.position_after(self.taken);
        self.counted = 0;
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.valid -= self.taken;
        self.filled -= self.taken;
        self.taken = 0;
        let room = self.filled..self.filled + self.window_bytes;
        self.window_bytes = (self.window_bytes * 2).min(WINDOW_BYTES);
        if self.buffer.len() < room.end {
            self.buffer.resize(room.end, 0);
        }
        let read = loop {
            match self.source.read(&mut self.buffer[room.clone()]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = match read {
            Ok(read) => read,
            // The gzip stream ends early: the file was cut off or is still being written.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.taken = self.filled;
                return Err(self.truncated("the rest of the compressed data"));
            }
            Err(error) => return Err(error.into()),
        };
        self.is_at_end = read == 0;
        self.filled += read;
        self.bytes_read += read as u64;
        if self.bytes_read > self.limits.dump_bytes_max {
            return Err(DumpError::TooLarge { dump_bytes_max: self.limits.dump_bytes_max });
        }
        match std::str::from_utf8(&self.buffer[self.valid..self.filled]) {
            Ok(_) => self.valid = self.filled,
            Err(error) => {
                self.valid += error.valid_up_to();
                if error.error_len().is_some() || self.is_at_end {
                    self.taken = self.valid;
                    return Err(self.malformed("invalid UTF-8"));
                }
            }
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Consumes the next byte that is not white space.
    fn next_byte(&mut self, expected: &'static str) -> Result<u8, DumpError> {
        self.peek()?.ok_or_else(|| self.truncated(expected))
    }

    fn peek(&mut self) -> Result<Option<u8>, DumpError> {
        loop {
            let rest = &self.buffer[self.taken..self.valid];
            let blank =
                rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
            let next = rest.get(blank).copied();
            self.taken += blank;
            if next.is_some() || self.is_at_end {
                return Ok(next);
            }
            self.fill()?;
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), DumpError> {
        if self.next_byte(expected)? != byte {
            return Err(self.malformed(&format!("expected {expected}")));
        }
        self.consume(1);
        Ok(())
    }

    fn expect_end(&mut self) -> Result<(), DumpError> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.malformed("expected nothing after the end of the list")),
        }
    }

    /// Hands over the records in the window, then reads on; returns what must come after them.
    fn records(
        &mut self,
        mut next: Next,
        mut take: impl FnMut(&Package<'_>),
    ) -> Result<Next, DumpError> {
        let mut lines = line_breaks(&self.buffer[self.counted..self.taken]);
        let text = std::str::from_utf8(&self.buffer[self.taken..self.valid]).unwrap_or_default();
        let mut rest = text;
        let stopped: Option<WindowError> = loop {
            let blank = rest.len() - rest.trim_ascii_start().len();
            lines += line_breaks(&rest.as_bytes()[..blank]);
            rest = &rest[blank..];
            match (next, rest.as_bytes().first()) {
                (Next::Nothing, _) => break None,
                (_, None) => break None,
                (Next::FirstRecord | Next::Separator, Some(b']')) => {
                    rest = &rest[1..];
                    next = Next::Nothing;
                }
                (Next::Separator, Some(b',')) => {
                    rest = &rest[1..];
                    next = Next::Record;
                }
                (Next::Separator, Some(_)) => break Some(WindowError::NoSeparator),
                (Next::FirstRecord | Next::Record, Some(_)) => {
                    if let Some((package, size)) = scan::record(rest)
                        && size <= self.limits.record_bytes_max
                    {
                        take(&package);
                        // A package from the fast path owns nothing. Searching it for something to free would take as
                        // long as reading a field.
                        mem::forget(package);
                        rest = &rest[size..];
                        next = Next::Separator;
                        continue;
                    }
                    let mut parser =
                        serde_json::Deserializer::from_str(rest).into_iter::<Package<'_>>();
                    match parser.next() {
                        Some(Ok(mut package)) => {
                            let size = parser.byte_offset();
                            if size > self.limits.record_bytes_max {
                                break Some(WindowError::TooLong);
                            }
                            package.others = package::others(&rest[..size]).into();
                            take(&package);
                            lines += line_breaks(&rest.as_bytes()[..size]);
                            rest = &rest[size..];
                            next = Next::Separator;
                        }
                        Some(Err(error)) => break Some(WindowError::Unreadable(error)),
                        None => break None,
                    }
                }
            }
        };
        let left = rest.len();
        self.taken = self.valid - left;
        self.counted = self.taken;
        self.lines += lines;
        match stopped {
            Some(WindowError::NoSeparator) => {
                return Err(self.malformed("expected `,` or `]` after a record"));
            }
            Some(WindowError::TooLong) => return Err(self.too_long()),
            Some(WindowError::Unreadable(error)) => {
                // If the window's end cuts off a record, it is read again together with what follows. `0.` at the end
                // is an error too, which more bytes may correct; they can only correct an error close to the end.
                let is_at_window_end =
                    error.is_eof() || left - error_offset(&error, rest) < DOUBTFUL_BYTES;
                if self.is_at_end && error.is_eof() {
                    self.taken = self.valid;
                    return Err(self.truncated("the rest of a record"));
                }
                if self.is_at_end || !is_at_window_end {
                    return Err(self.at(&error));
                }
                if left > self.limits.record_bytes_max {
                    return Err(self.too_long());
                }
            }
            None => {}
        }
        if next != Next::Nothing {
            if self.is_at_end {
                return Err(self.truncated(match next {
                    Next::Record => "a record",
                    _ => "`]`, the end of the list",
                }));
            }
            self.fill()?;
        }
        Ok(next)
    }

    fn too_long(&self) -> DumpError {
        self.malformed(&format!("a record of more than {} bytes", self.limits.record_bytes_max))
    }

    /// The number of line breaks, and of bytes since the last one, from the start of the dump to `end` in the buffer.
    fn position_after(&self, end: usize) -> (u64, u64) {
        let lines = self.lines + line_breaks(&self.buffer[self.counted..end]);
        let column = match memchr::memrchr(b'\n', &self.buffer[..end]) {
            Some(last) => end - last - 1,
            None => self.column_gone as usize + end,
        };
        (lines, column as u64)
    }

    fn truncated(&self, expected: &'static str) -> DumpError {
        let (lines, column) = self.position_after(self.taken);
        DumpError::Truncated { line: lines + 1, column: column + 1, expected }
    }

    fn malformed(&self, problem: &str) -> DumpError {
        let (lines, column) = self.position_after(self.taken);
        DumpError::Malformed { line: lines + 1, column: column + 1, problem: problem.to_owned() }
    }

    /// The parser's error, with its position in the dump, not in the record.
    fn at(&self, error: &serde_json::Error) -> DumpError {
        let (lines, column) = self.position_after(self.taken);
        let text = error.to_string();
        let problem = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]).to_owned();
        let column =
            if error.line() <= 1 { column + error.column() as u64 } else { error.column() as u64 };
        DumpError::Malformed {
            line: lines + error.line().max(1) as u64,
            column: column.max(1),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn record(name: &str) -> String {
        format!(
            "{{\"ID\":1,\"Name\":\"{name}\",\"PackageBaseID\":1,\"PackageBase\":\"{name}\",\"Version\":\"1\",\"NumVotes\":0,\
             \"Popularity\":0.0,\"FirstSubmitted\":1,\"LastModified\":1}}"
        )
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("gzip");
        encoder.finish().expect("gzip")
    }

    #[track_caller]
    fn check(dump: &[u8], expected: Result<u32, &str>) {
        let read = read(dump, &DumpLimits::default());
        let found =
            read.map(|snapshot| snapshot.package_count()).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn plain_gzip_and_gzip_of_gzip() {
        let dump = format!("[\n{},\n{}\n]", record("a"), record("b"));
        check(dump.as_bytes(), Ok(2));
        check(&gzip(dump.as_bytes()), Ok(2));
        check(&gzip(&gzip(dump.as_bytes())), Ok(2));
        check(format!(" [{} ,\r\n\t{}]\n", record("a"), record("b")).as_bytes(), Ok(2));
    }

    #[test]
    fn too_many_layers_of_compression() {
        let layers = (0..5).fold(b"[]".to_vec(), |bytes, _| gzip(&bytes));
        check(&layers, Err("the dump is compressed more than 3 times"));
    }

    #[test]
    fn errors_have_a_position() {
        let one = record("a");
        for (dump, error) in [
            (
                "".to_owned(),
                "line 1 column 1: the dump ends here, expected `[`, the start of the list of packages",
            ),
            ("{}".to_owned(), "line 1 column 1: expected `[`, the start of the list of packages"),
            (format!("[{one},"), "line 1 column 138: the dump ends here, expected a record"),
            (
                "[".to_owned(),
                "line 1 column 2: the dump ends here, expected `]`, the end of the list",
            ),
            ("[]".to_owned(), "the dump has no packages"),
            (format!("[\n{one}\n{one}]"), "line 3 column 1: expected `,` or `]` after a record"),
            (format!("[\n{one},\n]"), "line 3 column 1: expected value"),
            (
                format!("[\n{one},\n{{\"ID\":\"x\"}}]"),
                "line 3 column 9: invalid type: string \"x\", expected u64",
            ),
            (
                format!("[\n{one}]x"),
                "line 2 column 137: expected nothing after the end of the list",
            ),
            (
                format!("[\n{one},\n{{\"ID\":1"),
                "line 3 column 8: the dump ends here, expected the rest of a record",
            ),
            (format!("[\n{{}},{one}]"), "line 2 column 2: missing field `ID`"),
        ] {
            check(dump.as_bytes(), Err(error));
        }
    }

    #[test]
    fn invalid_utf_8() {
        let mut dump = format!("[\n{},\n", record("a")).into_bytes();
        dump.extend_from_slice(b"{\"Name\":\"\xff\"}]");
        check(&dump, Err("line 3 column 10: invalid UTF-8"));
    }

    #[test]
    fn a_cut_off_gzip() {
        let whole = gzip(format!("[{}]", record("a")).as_bytes());
        let error = read(&whole[..whole.len() - 9], &DumpLimits::default()).expect_err("cut off");
        assert!(matches!(error, DumpError::Truncated { .. }), "{error}");
    }

    #[test]
    fn records_across_windows() {
        let names: Vec<String> = (0..9_000).map(|number| record(&format!("é{number}"))).collect();
        check(format!("[{}]", names.join(",")).as_bytes(), Ok(9_000));
    }

    /// Line breaks are counted between records, inside those that the JSON parser reads, and across windows.
    #[test]
    fn positions_far_from_the_start() {
        let mut dump = "[\n".to_owned();
        for number in 0..9_000 {
            let text = record(&format!("é{number}"));
            let text = if number % 3 == 0 { text.replace(',', ",\n ") } else { text };
            dump.push_str(&text);
            dump.push_str(if number % 5 == 0 { " \n\n,\r\n" } else { ",\n" });
        }
        assert!(dump.len() > 4 * WINDOW_BYTES);
        let line = dump.lines().count() + 1;
        for (end, column, problem) in [
            ("{\"ID\":\"x\"}]", 9, "invalid type: string \"x\", expected u64"),
            ("{\"ID\":1", 8, "the dump ends here, expected the rest of a record"),
            ("x", 1, "expected value"),
        ] {
            let error = format!("line {line} column {column}: {problem}");
            check((dump.clone() + end).as_bytes(), Err(&error));
        }
    }

    #[test]
    fn bounds() {
        let dump = format!("[{}]", record("a"));
        let small = DumpLimits { dump_bytes_max: 50, ..DumpLimits::default() };
        assert!(matches!(read(dump.as_bytes(), &small), Err(DumpError::TooLarge { .. })));
        let short = DumpLimits { record_bytes_max: 50, ..DumpLimits::default() };
        let error = read(dump.as_bytes(), &short).expect_err("too long").to_string();
        assert_eq!(error, "line 1 column 2: a record of more than 50 bytes");
        let endless = format!("[{{\"Name\":\"{}", "x".repeat(2 << 20));
        let error =
            read(endless.as_bytes(), &DumpLimits::default()).expect_err("too long").to_string();
        assert_eq!(error, "line 1 column 2: a record of more than 524288 bytes");
    }
}
