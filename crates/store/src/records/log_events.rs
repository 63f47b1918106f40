//! [`LogEvents`]: the system tells when any process of this machine has written to SQLite's log, so that nobody has to look.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 4096;

/// Events of the directory that the log is in: the log may be made anew.
pub(super) struct LogEvents {
    events: OwnedFd,
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
        let events = inotify::init(CreateFlags::CLOEXEC)?;
        let flags =
            WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE;
        inotify::add_watch(&events, directory.unwrap_or(Path::new(".")), flags)?;
        Ok(LogEvents { events, name })
    }

    /// Waits, on this thread, until the log was written to, made or removed, for `patience` at most; whether it was.
    ///
    /// # Errors
    /// The events cannot be read, or the directory is gone.
    pub(super) fn wait(&self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.events, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) if self.tell_of_log()? => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the events that are there, looked at as a whole: whether one is of the log.
    fn tell_of_log(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(&self.events, &mut buffer);
        let mut is_log = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    if event.events().contains(ReadFlags::IGNORED) {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    let name = event.file_name().map(|name| name.to_bytes());
                    is_log |= name == Some(self.name.as_bytes())
                        || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(is_log);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn writes_to_the_log_alone_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let events = LogEvents::of(&path("records.db-wal")).expect("events");
        let (soon, late) = (Duration::from_millis(50), Duration::from_secs(60));
        fs::write(path("records.db"), "x").expect("a file");
        assert!(!events.wait(soon).expect("events"), "that is another file");
        fs::write(path("records.db-wal"), "x").expect("a file");
        assert!(events.wait(late).expect("events"), "it was written to");
        while events.wait(soon).expect("events") {}
        fs::remove_file(path("records.db-wal")).expect("a file");
        assert!(events.wait(late).expect("events"), "it was removed");
        fs::write(path("records.db-wal"), "y").expect("a file");
        assert!(events.wait(late).expect("events"), "there is a new one");
        drop(directory);
        while events.wait(late).is_ok() {}
    }
}
