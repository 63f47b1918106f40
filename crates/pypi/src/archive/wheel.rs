//! Wheels: a zip with exactly one `*.dist-info`, which belongs to the wheel itself.

use rawzip::ReaderAt;

use super::path::is_release;
use super::{ArchiveError, ArchiveFacts, ArchiveLimits, SafeZip};
use crate::{Filename, ProjectName};

/// The facts of the wheel `filename`.
pub(super) fn inspect<R: ReaderAt>(
    reader: R,
    file_bytes: u64,
    filename: &Filename,
    limits: &ArchiveLimits,
) -> Result<ArchiveFacts, ArchiveError> {
    let zip = SafeZip::open(reader, file_bytes, limits)?;
    let dist_info = dist_info(&zip, filename)?;
    let member = |name: &str| {
        let path = format!("{dist_info}/{name}");
        zip.member(&path).ok_or(ArchiveError::Missing(path))
    };
    // Installers refuse a wheel without these.
    member("RECORD")?;
    member("WHEEL")?;
    let metadata = zip.read(member("METADATA")?, "bytes of METADATA", limits.metadata_bytes_max)?;
    Ok(ArchiveFacts {
        is_opened: true,
        metadata: Some(metadata),
        metadata_name: "METADATA",
        members: zip.members().len() as u64,
        inflated_bytes: zip.inflated_bytes(),
    })
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
