//! The limit on open files, which a busy server reaches first.

use std::io;

use rlimit::Resource;

/// File descriptors besides the connections: listeners, data files, logs, upstream connections, and the runtime's own.
const OTHER_FILES: u64 = 256;

/// Limits on open files after [`raise_open_files_limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit that applies now.
    pub limit: u64,
    /// What the wanted number of connections needs, including other files.
    pub needed: u64,
}

impl OpenFiles {
    /// Whether the wanted number of connections fits under the limit.
    pub(crate) fn suffices(self) -> bool {
        self.limit >= self.needed
    }
}

/// Raises the soft limit on open files to the hard limit; warns when `connections_max` does not fit even then.
///
/// # Errors
/// Those of getrlimit(2) and setrlimit(2). The old limit stays, and serving is possible.
pub fn raise_open_files_limit(connections_max: usize) -> io::Result<OpenFiles> {
    let (soft, hard) = Resource::NOFILE.get()?;
    if soft < hard {
        Resource::NOFILE.set(hard, hard)?;
    }
    let files =
        OpenFiles { limit: hard, needed: (connections_max as u64).saturating_add(OTHER_FILES) };
    if !files.suffices() {
        tracing::warn!(
            limit = files.limit,
            needed = files.needed,
            connections_max,
            "the limit on open files is too low for connections_max: raise it (LimitNOFILE= in the unit, ulimit -n in \
             a shell) or lower connections_max"
        );
    } else if soft < files.needed {
        tracing::info!(from = soft, to = files.limit, "raised the limit on open files");
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let (_, hard) = Resource::NOFILE.get().unwrap();
        assert_eq!(raise_open_files_limit(1).unwrap().limit, hard);
        assert_eq!(Resource::NOFILE.get().unwrap().0, hard);
    }

    #[test]
    fn connections_that_do_not_fit_are_told() {
        assert!(OpenFiles { limit: 1_024, needed: 1_024 }.suffices());
        assert!(
            !raise_open_files_limit(usize::MAX).unwrap().suffices() || rlimit::INFINITY == u64::MAX
        );
    }
}
