//! Parses `METADATA` and `PKG-INFO`: header lines, an empty line, and the description.
//!
//! bytes -> (field, value)s. Values are UTF-8 and, unlike in mail, not encoded words. Bytes that are not UTF-8 are
//! replaced, as installers do. Headers that no standard defines are ignored.

use std::borrow::Cow;

use super::field::Field;

/// The values in `bytes`, in order. A line that is not a header ends the headers, as for Python's parser.
pub(super) fn read(bytes: &[u8]) -> Vec<(Field, String)> {
    let mut values = Vec::new();
    let mut rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    loop {
        if let Some(body) = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n")) {
            rest = body;
            break;
        }
        let Ok((header, header_bytes)) = mailparse::parse_header(rest) else { break };
        let key = header.get_key_raw();
        if rest.get(key.len()) != Some(&b':') || header_bytes == 0 {
            break;
        }
        if let Some(field) = Field::of_header(key) {
            let value = String::from_utf8_lossy(header.get_value_raw());
            values.push((field, unfolded(field, &value)));
        }
        rest = rest.get(header_bytes..).unwrap_or_default();
    }
    if let Some(description) = Field::of_key("description")
        && !rest.trim_ascii().is_empty()
    {
        // The body is the description. It is the newer way, so it replaces a description in the headers.
        values.retain(|(field, _)| *field != description);
        values.push((description, String::from_utf8_lossy(rest).into_owned()));
    }
    values
}

/// `value` without the marks of continuation lines: prose keeps its lines, other values become one line.
fn unfolded(field: Field, value: &str) -> String {
    let value = value.trim();
    if !value.contains('\n') {
        return value.to_owned();
    }
    if !is_prose(field) {
        return value.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    }
    // After distutils' eight spaces, a bar belongs to a table or a line block, unless every line has one.
    let all_have_bars = value.lines().skip(1).all(|line| line.starts_with(OLD_BAR));
    let bar = if all_have_bars { OLD_BAR } else { BAR };
    let folds = [BAR, bar, EIGHT_BLANKS];
    let lines = value.lines().enumerate().map(|(number, line)| match number {
        0 => line,
        _ => folds
            .iter()
            .find_map(|fold| line.strip_prefix(fold))
            .unwrap_or_else(|| line.trim_start()),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The value of a form or of stored JSON, unfolded if it was taken from a header as it stood there: twine 7 sends the header's
/// continuation lines with their eight blanks.
pub(super) fn unfolded_if_folded(field: Field, value: &str) -> Cow<'_, str> {
    let mut further = value.trim_end().lines().skip(1).peekable();
    // A blank line of a header has the prefix, too; one in a description that is not a header is empty.
    let has_fold = |line: &str| match is_prose(field) {
        true => [BAR, OLD_BAR, EIGHT_BLANKS].iter().any(|fold| line.starts_with(fold)),
        false => line.starts_with([' ', '\t']),
    };
    let is_folded = further.peek().is_some()
        && value.starts_with(|first: char| !first.is_whitespace())
        && further.all(has_fold);
    if is_folded { unfolded(field, value).into() } else { value.into() }
}

/// Whether the lines of the field's value count.
fn is_prose(field: Field) -> bool {
    matches!(field.key(), "description" | "license" | "summary")
}

/// What begins a continuation line of prose: the standards' bar, the bar of old setuptools, and distutils' eight blanks.
const BAR: &str = "       |";
const OLD_BAR: &str = "        |";
const EIGHT_BLANKS: &str = "        ";
