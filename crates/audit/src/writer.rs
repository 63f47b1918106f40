//! [`Writer`]: the thread that writes the log into segments, and deletes those that are too old or too many.
//!
//! A segment that cannot be written stays the newest one, so that a full disk makes no further files. The rest of a failed
//! write is cut off, or becomes a separate line, which is no entry.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::IntCounter;
use resources::files;
use serde_json::Value;

use super::{ClockCheck, Job, Log, QUEUE_MAX, SEGMENT_BYTES_MIN, read_segment};

/// Entries that are written at once.
const WRITTEN_AT_ONCE: usize = 256;

/// How often old segments are looked for while nothing is written.
const PRUNE_PAUSE: Duration = Duration::from_secs(3600);

/// The thread that writes.
pub(super) struct Writer {
    log: Log,
    is_clock_right: ClockCheck,
    next_id: u64,
    segment: Option<Segment>,
    is_failing: bool,
}

/// The newest segment.
struct Segment {
    path: PathBuf,
    /// `None` after a failed write: it has to be opened again.
    file: Option<File>,
    /// Its size without the rest of a failed write.
    bytes: u64,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        log: &Log,
        lost: &IntCounter,
        is_clock_right: &ClockCheck,
    ) -> Option<SyncSender<Job>> {
        let (sender, jobs) = sync_channel(QUEUE_MAX);
        let (log, lost, is_clock_right) = (log.clone(), lost.clone(), is_clock_right.clone());
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let started = thread.spawn(move || Writer::open(log, is_clock_right).run(&jobs, &lost));
        if let Err(error) = &started {
            tracing::error!(%error, "the audit log has no thread; nothing is written to it");
        }
        started.ok().map(|_| sender)
    }

    /// A writer that continues the existing log.
    pub(super) fn open(log: Log, is_clock_right: ClockCheck) -> Writer {
        let newest = log.segments().unwrap_or_default().pop();
        let next_id = newest.map_or(1, |(first, path)| {
            let text = read_segment(&path).unwrap_or_default();
            let lines = text.split(|byte| *byte == b'\n').rev();
            let ids =
                lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()?["id"].as_u64());
            ids.take(1).next().map_or(first, |last| last + 1)
        });
        Writer { log, is_clock_right, next_id, segment: None, is_failing: false }
    }

    fn run(mut self, jobs: &Receiver<Job>, lost: &IntCounter) {
        self.prune();
        loop {
            let first = match jobs.recv_timeout(PRUNE_PAUSE) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.prune();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more = std::iter::from_fn(|| jobs.try_recv().ok());
            let (mut lines, mut count, mut told) = (String::new(), 0, Vec::new());
            for job in std::iter::once(first).chain(more.take(WRITTEN_AT_ONCE - 1)) {
                match job {
                    Job::Write(entry) => {
                        lines.push_str(&entry.line(self.next_id + count));
                        count += 1;
                    }
                    Job::Tell(sender) => told.push(sender),
                }
            }
            if count > 0 && !self.append(&lines, count) {
                lost.inc_by(count);
            }
            // The receiver may have stopped waiting.
            told.into_iter().for_each(|sender| _ = sender.try_send(()));
        }
    }

    /// Writes `lines`, which are `count`; returns whether they were written.
    pub(super) fn append(&mut self, lines: &str, count: u64) -> bool {
        let written = self.write(lines);
        self.next_id += count;
        match &written {
            Ok(()) => self.is_failing = false,
            Err(error) => self.failed(error),
        }
        written.is_ok()
    }

    fn failed(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "the audit log cannot be written; what is left out is counted");
        }
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        let bytes_max = self.log.segment_bytes();
        if self.segment.as_ref().is_none_or(|segment| segment.bytes >= bytes_max) {
            self.begin()?;
        }
        let segment = self.segment.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let file = match &mut segment.file {
            Some(file) => file,
            file => {
                let mut opened = opened(&segment.path)?;
                if opened.metadata()?.len() > segment.bytes {
                    opened.write_all(b"\n")?;
                }
                file.insert(opened)
            }
        };
        match file.write_all(lines.as_bytes()) {
            Ok(()) => {
                segment.bytes += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If that fails as well, the next write begins on a new line.
                _ = file.set_len(segment.bytes);
                segment.file = None;
                Err(error)
            }
        }
    }

    /// Begins a segment, and deletes those that are too old or too many.
    fn begin(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.log.directory)?;
        let path = self.log.directory.join(format!("{:020}.jsonl", self.next_id));
        let file = Some(opened(&path)?);
        self.segment = Some(Segment { path, file, bytes: 0 });
        self.prune();
        Ok(())
    }

    /// Deletes the segments that are too old or too many, but not the one that is written.
    fn prune(&mut self) {
        if let Err(error) = self.pruned() {
            tracing::error!(%error, "old entries of the audit log cannot be deleted");
        }
    }

    fn pruned(&self) -> io::Result<()> {
        let oldest = self.log.oldest(Timestamp::now());
        // The segment that is written will fill up.
        let room = self.log.bytes_max.saturating_sub(self.log.segment_bytes());
        let room = room.max(SEGMENT_BYTES_MIN);
        let current = self.segment.as_ref().map(|segment| &segment.path);
        let mut kept_bytes = 0;
        for (_, path) in self.log.segments()?.iter().rev() {
            if Some(path) == current {
                continue;
            }
            let metadata = match fs::metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            kept_bytes += metadata.len();
            let written = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
            let is_old = written.is_some_and(|written| written < oldest) && (self.is_clock_right)();
            if kept_bytes > room || is_old {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Opens a segment for appending. Only the server's own user may read it.
fn opened(path: &std::path::Path) -> io::Result<File> {
    files::open_with(path, OpenOptions::new().create(true).append(true).mode(0o600))
}
