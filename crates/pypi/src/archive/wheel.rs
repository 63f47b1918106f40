//! Wheels: a zip with exactly one `*.dist-info`, which belongs to the wheel itself, and with nothing that keeps pip or uv from
//! installing it.

use std::io::{BufRead as _, BufReader, Read};

use rawzip::ReaderAt;

use super::path::is_release;
use super::{ArchiveError, ArchiveFacts, ArchiveLimits, SafeZip, entry_points};
use crate::{Filename, ProjectName};

/// Most bytes in `WHEEL` and `entry_points.txt`, which have a few hundred.
const PART_BYTES_MAX: u64 = 1 << 20;
const RECORD_LINE_BYTES_MAX: u64 = 64 << 10;

/// The directories in a `*.data` directory.
const DATA_PLACES: [&str; 5] = ["purelib", "platlib", "headers", "scripts", "data"];

/// The facts of the wheel `filename`.
pub(super) fn inspect<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let zip = SafeZip::open(reader, file_bytes, limits)?;
    let dist_info = dist_info(&zip, filename)?;
    zip.check_for_installers()?;
    check_data(&zip)?;
    let member = |name: &str| {
        let path = format!("{dist_info}/{name}");
        zip.member(&path).ok_or(ArchiveError::Missing(path))
    };
    check_record(zip.reader(member("RECORD")?)?)?;
    check_wheel(&zip.read(member("WHEEL")?, "bytes of WHEEL", PART_BYTES_MAX)?)?;
    if let Ok(entry_points) = member("entry_points.txt") {
        let text = zip.read(entry_points, "bytes of entry_points.txt", PART_BYTES_MAX)?;
        entry_points::check(&text).map_err(|what| unfit("entry_points.txt", what))?;
    }
    let metadata = zip.read(member("METADATA")?, "bytes of METADATA", limits.metadata_bytes_max)?;
    Ok(ArchiveFacts {
        is_opened: true,
        metadata: Some(metadata),
        metadata_name: "METADATA",
        members: zip.members().len() as u64,
        inflated_bytes: zip.inflated_bytes(),
    })
}

fn unfit(file: &'static str, what: impl Into<String>) -> ArchiveError {
    ArchiveError::Part { file, what: what.into() }
}

/// Checks that each file in a `*.data` directory is in one of the places that installers know. pip takes every name that ends so
/// at the top for such a directory.
fn check_data<R>(zip: &SafeZip<R>) -> Result<(), ArchiveError> {
    for member in zip.members().iter().filter(|member| !member.name.ends_with('/')) {
        let (top, rest) = member.name.split_once('/').unwrap_or((&member.name, ""));
        let place = rest.split_once('/').map(|(place, _)| place);
        if top.ends_with(".data") && !place.is_some_and(|place| DATA_PLACES.contains(&place)) {
            let what = format!("a place in {top:?} that installers do not know");
            return Err(ArchiveError::Member { name: member.name.clone(), what });
        }
    }
    Ok(())
}

/// Checks `WHEEL`: it has a version that installers know.
fn check_wheel(bytes: &[u8]) -> Result<(), ArchiveError> {
    let text = std::str::from_utf8(bytes).map_err(|_| unfit("WHEEL", "is not UTF-8"))?;
    let headers = text.lines().map_while(|line| line.split_once(':'));
    let mut version =
        headers.filter(|(key, _)| *key == "Wheel-Version").map(|(_, value)| value.trim());
    let version = version.next().ok_or_else(|| unfit("WHEEL", "has no Wheel-Version"))?;
    let (major, minor) = version.split_once('.').unwrap_or_default();
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    match ["0", "1"].contains(&major) && minor.split('.').all(is_number) {
        true => Ok(()),
        false => {
            Err(unfit("WHEEL", format!("has the Wheel-Version {version:?}: 1.0 was expected")))
        }
    }
}

/// Checks that uv can read `RECORD`: lines of three values, separated by commas, the third a number or nothing. Nobody compares
/// the digests.
fn check_record(record: impl Read) -> Result<(), ArchiveError> {
    let mut reader = BufReader::new(record);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let reading = (&mut reader).take(RECORD_LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if reading.map_err(|error| super::io_error("zip", error))? == 0 {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| unfit("RECORD", "is not UTF-8"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if !is_entry(text) {
            let shown = record::excerpt(text, 80);
            let what =
                format!("has {shown:?} in line {number}: path, digest and size were expected");
            return Err(unfit("RECORD", what));
        }
    }
    Ok(())
}

/// Whether a line of `RECORD` has three values. One that begins with a quote goes on to the next quote, if that is not doubled.
fn is_entry(line: &str) -> bool {
    let (mut commas, mut is_quoted, mut last) = (0, false, b',');
    for byte in line.bytes() {
        match byte {
            b'"' => is_quoted = !is_quoted && (last == b',' || last == b'"'),
            b',' if !is_quoted => commas += 1,
            _ => {}
        }
        last = byte;
    }
    let size = line.rsplit(',').next().unwrap_or_default().trim_matches('"');
    commas == 2 && !is_quoted && (size.is_empty() || size.parse::<u64>().is_ok())
}

/// The only top-level directory `*.dist-info`; a vendored one in a deeper directory does not count.
fn dist_info<'a, R>(zip: &'a SafeZip<R>, filename: &Filename) -> Result<&'a str, ArchiveError> {
    let mut found: Option<&str> = None;
    for member in zip.members() {
        let Some((top, _)) = member.name.split_once('/') else { continue };
        if !top.ends_with(".dist-info") {
            continue;
        }
        match found {
            Some(first) if first != top => {
                let reason = format!("it has both {first:?} and {top:?}");
                return Err(ArchiveError::Ambiguous(reason));
            }
            _ => found = Some(top),
        }
    }
    let found = found.ok_or_else(|| ArchiveError::Missing("directory *.dist-info".to_owned()))?;
    let parts = filename.split(None);
    let release =
        parts.and_then(|parts| Some((ProjectName::normalize(parts.project).ok()?, parts.version?)));
    let is_own = release.as_ref().is_some_and(|(project, version)| {
        found
            .strip_suffix(".dist-info")
            .is_some_and(|directory| is_release(directory, project, version))
    });
    if is_own {
        return Ok(found);
    }
    let expected = release
        .map_or_else(|| filename.to_string(), |(project, version)| format!("{project} {version}"));
    Err(ArchiveError::DistInfo { expected, found: found.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_wheels_is_one_that_installers_know() {
        for (text, is_known) in [
            ("Wheel-Version: 1.0\n", true),
            ("Wheel-Version:1.9.2\r\nGenerator: x\r\n", true),
            ("Generator: x\nWheel-Version: 0.1\nno header\n", true),
            ("", false),
            ("\nWheel-Version: 1.0\n", false),
            ("\u{feff}Wheel-Version: 1.0\n", false),
            ("no header\nWheel-Version: 1.0\n", false),
            ("wheel-version: 1.0\n", false),
            ("Wheel-Version: 2.0\n", false),
            ("Wheel-Version: 1\n", false),
            ("Wheel-Version: 1.x\n", false),
            ("Wheel-Version: 01.0\n", false),
            ("Wheel-Version: unknown\n", false),
        ] {
            assert_eq!(check_wheel(text.as_bytes()).is_ok(), is_known, "{text:?}");
        }
        assert!(check_wheel(b"Wheel-Version: 1.0\nGenerator: Jos\xe9\n").is_err());
    }

    #[test]
    fn a_record_has_lines_of_three_values() {
        for (text, is_read) in [
            ("", true),
            ("a.py,sha256=wrong,7\r\nb.py,,\n../c,md5=x,", true),
            ("\"a,b.py\",,\"7\"\n\"a\"\"b\",,\na\"b,,\n", true),
            ("a.py\n", false),
            ("a.py,,,\n", false),
            ("a.py,,x\n", false),
            ("a.py,,-1\n", false),
            ("\"a.py,,\n", false),
            ("\na.py,,\n", false),
        ] {
            assert_eq!(check_record(text.as_bytes()).is_ok(), is_read, "{text:?}");
        }
        assert!(check_record(&b"caf\xe9.py,,\n"[..]).is_err());
        let error = check_record(&b"a,,\nb,\n"[..]).expect_err("two values").to_string();
        assert_eq!(
            error,
            "the wheel's RECORD has \"b,\" in line 2: path, digest and size were expected"
        );
    }
}
