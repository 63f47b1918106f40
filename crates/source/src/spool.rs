//! Spool files: what arrives, until it is read.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// The prefix of spool files; those of a killed process are removed at the next start.
pub(crate) const SPOOL_PREFIX: &str = ".spool-";

/// A file next to the kept copy, so that it can be linked to it. If no file can be created there, it is in the
/// system's temporary directory: a read-only data directory is no reason to serve an old dump.
pub(crate) fn spool_file(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // The umask decides, as for any new file, since the spool file may become the kept copy.
    builder.prefix(SPOOL_PREFIX).permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(directory).or_else(|error| builder.tempfile().map_err(|_| error))
}
