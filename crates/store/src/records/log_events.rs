//! [`LogEvents`]: the system tells when any process of this machine has written to SQLite's log, so that nobody has to look.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 4096;

/// Events of the directory that the log is in: the log may be made anew.
pub(super) struct LogEvents {
    events: AsyncFd<OwnedFd>,
    name: OsString,
}

impl LogEvents {
    /// Begins to listen for writes to the file at `log`, which need not be there.
    ///
    /// # Errors
    /// The system has no such events, or no more of them for this user.
    pub(super) fn of(log: &Path) -> io::Result<LogEvents> {
        let name = log.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let directory = log.parent().filter(|it| !it.as_os_str().is_empty());
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&events, directory.unwrap_or(Path::new(".")), flags)?;
        Ok(LogEvents { events: AsyncFd::register(events)?, name })
    }

    /// Returns once the log was written to.
    ///
    /// # Errors
    /// The events cannot be read.
    pub(super) async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            if self.take()? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// Takes all events that are there; whether one of them is of the log, or some were lost.
    fn take(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(self.events.get_ref(), &mut buffer);
        let mut is_log = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    is_log |= name == Some(self.name.as_bytes())
                        || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                }
                Err(Errno::WOULDBLOCK) => return Ok(is_log),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn writes_to_the_log_alone_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let events = LogEvents::of(&path("records.db-wal")).expect("events");
        fs::write(path("records.db"), "x").expect("a file");
        let soon = Duration::from_millis(100);
        assert!(timeout(soon, events.next()).await.is_err(), "that is another file");
        fs::write(path("records.db-wal"), "x").expect("a file");
        events.next().await.expect("an event");
        assert!(timeout(soon, events.next()).await.is_err(), "it is told once");
        fs::remove_file(path("records.db-wal")).expect("a file");
        fs::write(path("records.db-wal"), "y").expect("a file");
        events.next().await.expect("an event of the new file");
    }
}
