//! One thread that looks at files, for all that wait for a change of one: while nothing changes, nothing else wakes.
//!
//! a path and what was there -> [`changed`] -> a look now and then -> something else is there. A task of the runtime that did this
//! would wake two or three threads for each look.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::arrival::Stamp;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathState {
    File(Stamp),
    /// Something else.
    NotAFile,
    Nothing(io::ErrorKind),
}

impl PathState {
    /// What is at `path` now. Blocks.
    fn at(path: &Path) -> PathState {
        PathState::of(&std::fs::metadata(path))
    }

    pub(super) fn of(metadata: &io::Result<Metadata>) -> PathState {
        match metadata {
            Ok(metadata) if metadata.is_file() => PathState::File(Stamp::of(metadata)),
            Ok(_) => PathState::NotAFile,
            Err(error) => PathState::Nothing(error.kind()),
        }
    }
}

/// Waits until something else is at `path` than what was `found`; it is looked at every `interval`. If there can be no thread, it
/// only waits that long.
pub(super) async fn changed(path: &Path, found: PathState, interval: Duration) {
    let (told, change) = oneshot::channel();
    let next_at = Instant::now() + interval;
    if let Err(error) = watch(WatchedFile { path: path.to_owned(), found, interval, next_at, told })
    {
        tracing::debug!(%error, "the thread that looks at files cannot be started");
        tokio::time::sleep(interval).await;
        return;
    }
    let _ = change.await;
}

/// A file that somebody waits for, until the other side of `told` is dropped.
struct WatchedFile {
    path: PathBuf,
    found: PathState,
    interval: Duration,
    next_at: Instant,
    told: oneshot::Sender<()>,
}

/// What has come to the thread.
struct Inbox {
    come: Vec<WatchedFile>,
    /// The thread that looks, while anybody waits.
    thread: Option<Thread>,
}

static INBOX: Mutex<Inbox> = Mutex::new(Inbox { come: Vec::new(), thread: None });

fn inbox() -> MutexGuard<'static, Inbox> {
    INBOX.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(watched: WatchedFile) -> io::Result<()> {
    let mut inbox = inbox();
    let thread = match &inbox.thread {
        Some(thread) => thread.clone(),
        None => {
            let thread = thread::Builder::new().name("larder-files".to_owned()).spawn(look)?;
            thread.thread().clone()
        }
    };
    inbox.come.push(watched);
    inbox.thread = Some(thread.clone());
    // It may sleep for longer than this one wants.
    thread.unpark();
    Ok(())
}

/// Looks for as long as anybody waits.
fn look() {
    let mut watched = Vec::new();
    loop {
        {
            let mut inbox = inbox();
            watched.append(&mut inbox.come);
            watched.retain(|it: &WatchedFile| !it.told.is_closed());
            if watched.is_empty() {
                inbox.thread = None;
                return;
            }
        }
        let now = Instant::now();
        // What is due soon is looked at now: one wake for all.
        let due = |it: &mut WatchedFile| it.next_at <= now + it.interval / 2;
        let is_due = watched.iter().any(|it| it.next_at <= now);
        for mut it in watched.extract_if(.., |it| is_due && due(it)).collect::<Vec<_>>() {
            if PathState::at(&it.path) == it.found {
                it.next_at = now + it.interval;
                watched.push(it);
            } else {
                let _ = it.told.send(());
            }
        }
        if let Some(next_at) = watched.iter().map(|it| it.next_at).min() {
            thread::park_timeout(next_at.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_told_to_those_who_wait_for_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let soon = Duration::from_millis(5);
        let nothing = PathState::at(&one);
        assert_eq!(nothing, PathState::Nothing(io::ErrorKind::NotFound));
        let (first, second) = (changed(&one, nothing, soon), changed(&other, nothing, soon));
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        // Somebody who waits no longer holds up nobody.
        drop(tokio::time::timeout(soon, changed(&one, nothing, Duration::from_secs(3_600))).await);
        for _ in 0..20 {
            tokio::select! {
                () = &mut first => panic!("nothing has changed"),
                () = &mut second => panic!("nothing has changed"),
                () = tokio::time::sleep(soon) => {}
            }
        }
        std::fs::write(&one, "x").expect("a file");
        tokio::select! {
            () = &mut first => {}
            () = &mut second => panic!("it has not changed"),
        }
        std::fs::create_dir(&other).expect("a directory");
        second.await;
        assert_eq!(PathState::at(&other), PathState::NotAFile);
        let file = PathState::at(&one);
        std::fs::remove_file(&one).expect("removed");
        changed(&one, file, soon).await;
    }
}
