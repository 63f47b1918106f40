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
    let is_prose = matches!(field.key(), "description" | "license" | "summary");
    let separator = if is_prose { "\n" } else { " " };
    let lines = value.lines().enumerate().map(|(number, line)| match number {
        0 => Cow::from(line),
        _ if is_prose => Cow::from(without_fold(line)),
        _ => Cow::from(line.trim()),
    });
    lines.collect::<Vec<_>>().join(separator)
}

/// A continuation line of prose without its prefix: the standards' `       |`, distutils' eight spaces, or any white
/// space.
fn without_fold(line: &str) -> &str {
    let folds = ["       |", "        |", "        "];
    folds.iter().find_map(|fold| line.strip_prefix(fold)).unwrap_or_else(|| line.trim_start())
}
