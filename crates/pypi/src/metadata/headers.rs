//! Reading `METADATA` and `PKG-INFO`: header lines, an empty line, and the description.
//!
//! bytes -> (field, value)s. Values are UTF-8 and not encoded words, unlike in mail; what is no UTF-8 is
//! replaced, as installers do. A header that no standard knows is passed over.

use std::borrow::Cow;

use super::field::Field;

/// The values of `bytes`, in order. A line that is no header ends the headers, as Python's reader has it.
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
        // The body is the description; where a header gives one, too, the body is the newer way.
        values.retain(|(field, _)| *field != description);
        values.push((description, String::from_utf8_lossy(rest).into_owned()));
    }
    values
}

/// `value` without the marks of its continued lines: prose keeps its lines, the others become one line.
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

/// A continued line of prose: the standards' `       |`, distutils' eight spaces, or any white space.
fn without_fold(line: &str) -> &str {
    let folds = ["       |", "        |", "        "];
    folds.iter().find_map(|fold| line.strip_prefix(fold)).unwrap_or_else(|| line.trim_start())
}
