//! Large bodies that are sent again and again, by sendfile(2): from files in memory, which the kernel sends without
//! copying them.
//!
//! A door answers with a finished body ([`Answered::Finished`](super::Answered::Finished)) -> [`file_of`] has the file, or
//! makes it when the body is sent for the third time -> [`Progress`](super::progress::Progress) -> when hyper writes bytes of
//! that body, the wire sends them from the file. hyper does not know. Over TLS, over HTTP/2 and on systems without such files
//! the bytes are written as usual.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use quick_cache::sync::Cache;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Copying less than this costs less than sending a file does.
const BYTES_MIN: usize = 16 << 10;

/// Larger bodies are downloads, whose clients are slower than a copy.
const BYTES_MAX: usize = 1 << 20;

/// A body that is sent for the third time gets a file.
const SENT_MIN: u32 = 3;

/// Bytes of all bodies that have a file, or may get one; the files take as much again.
const CACHE_BYTES_MAX: u64 = 16 << 20;

/// Parts of the cache, each with its own lock. A part must have room for the largest body several times.
const CACHE_PARTS: usize = 4;

/// The files take no more than this share of the descriptors that the process may have: connections need them, too.
const DESCRIPTORS_SHARE: u64 = 8;

/// The bodies that are sent most, by their place in memory, which nothing else can take as long as they are here.
static FILES: LazyLock<Cache<(usize, usize), Arc<BodyFile>, BodyWeight>> = LazyLock::new(|| {
    let weight = BodyWeight::within(rlimit::Resource::NOFILE.get_soft().unwrap_or(0));
    let options = quick_cache::OptionsBuilder::new()
        .shards(CACHE_PARTS)
        .estimated_items_capacity((CACHE_BYTES_MAX / weight.least) as usize)
        .weight_capacity(CACHE_BYTES_MAX)
        .build()
        .expect("both capacities are set");
    Cache::with_options(options, weight, Default::default(), Default::default())
});

/// The system has files in memory but does not send them, as some sandboxes do: no more are tried.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

#[derive(Clone)]
struct BodyWeight {
    /// Bytes that a smaller body counts as, so that there are not too many.
    least: u64,
}

impl BodyWeight {
    /// For a process that may have this many descriptors.
    fn within(descriptors: u64) -> BodyWeight {
        let files_max = (descriptors / DESCRIPTORS_SHARE).max(CACHE_BYTES_MAX / BYTES_MAX as u64);
        BodyWeight { least: (CACHE_BYTES_MAX / files_max).max(BYTES_MIN as u64) }
    }
}

impl quick_cache::Weighter<(usize, usize), Arc<BodyFile>> for BodyWeight {
    fn weight(&self, _: &(usize, usize), file: &Arc<BodyFile>) -> u64 {
        (file.bytes.len() as u64).max(self.least)
    }
}

/// The file of a body that is about to be sent, if it has been sent often enough to have one.
pub(super) fn file_of(body: &Bytes) -> Option<Arc<BodyFile>> {
    if !(BYTES_MIN..=BYTES_MAX).contains(&body.len()) || IS_REFUSED.load(Relaxed) {
        return None;
    }
    let place = (body.as_ptr().addr(), body.len());
    let Some(file) = FILES.get(&place) else {
        let (sent, file) = (AtomicU32::new(1), OnceLock::new());
        FILES.insert(place, Arc::new(BodyFile { bytes: body.clone(), sent, file }));
        return None;
    };
    let is_worth_it = file.file.get().is_some() || file.sent.fetch_add(1, Relaxed) + 1 >= SENT_MIN;
    (is_worth_it && file.descriptor().is_some()).then_some(file)
}

/// A body, and a file that holds the same.
#[derive(Debug)]
pub(super) struct BodyFile {
    bytes: Bytes,
    /// How often the body was sent before it had a file.
    sent: AtomicU32,
    /// `None` if the system refused a file.
    file: OnceLock<Option<OwnedFd>>,
}

impl BodyFile {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.get_or_init(|| memory_file(&self.bytes)).as_ref().map(AsFd::as_fd)
    }

    /// Where in the body these bytes are, by their place in memory.
    fn place(&self, bytes: &[u8]) -> Option<usize> {
        let at = bytes.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        (!bytes.is_empty() && at + bytes.len() <= self.bytes.len()).then_some(at)
    }

    /// Writes `slices` up to the end of the first one that is in the body, or a part of them, and tells whether the whole body
    /// has been written; `None` if no slice is in it.
    pub(super) fn poll_write(
        &self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Option<Poll<io::Result<(usize, bool)>>> {
        let descriptor = self.descriptor()?;
        let (before, place) =
            slices.iter().enumerate().find_map(|(at, slice)| Some((at, self.place(slice)?)))?;
        let size = slices[before].len();
        let sent = poll_send(stream, cx, &slices[..before], descriptor, place as u64, size);
        match sent {
            Poll::Ready(Err(error)) if is_refusal(&error) => {
                note_refusal(&error);
                None
            }
            sent => Some(sent.map_ok(|sent| {
                (sent.before + sent.of_file, place + sent.of_file == self.bytes.len())
            })),
        }
    }
}

/// How many bytes were written before a file, and of the file.
pub(super) struct Sent {
    pub(super) before: usize,
    pub(super) of_file: usize,
}

/// Writes the slices `before`, and then `size` bytes of a file from `place` on, or some of all that.
pub(super) fn poll_send(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    before: &[io::IoSlice<'_>],
    file: impl AsFd,
    place: u64,
    size: usize,
) -> Poll<io::Result<Sent>> {
    let write = || {
        let head_bytes: usize = before.iter().map(|slice| slice.len()).sum();
        let head_sent = if head_bytes == 0 { 0 } else { send_first(stream, before)? };
        if head_sent < head_bytes {
            return Ok(Sent { before: head_sent, of_file: 0 });
        }
        match send_file(stream, file.as_fd(), place, size) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => Ok(Sent { before: head_sent, of_file: sent }),
            // The error comes again with the next write.
            Err(_) if head_sent > 0 => Ok(Sent { before: head_sent, of_file: 0 }),
            Err(error) => Err(error),
        }
    };
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, write) {
            // The runtime did not know yet: now it does, and says when.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

/// Notes that the system does not send files; no more are tried.
pub(super) fn note_refusal(error: &io::Error) {
    IS_REFUSED.store(true, Relaxed);
    tracing::debug!(%error, "the system does not send files");
}

/// Whether the system has refused to send a file.
pub(super) fn is_refused() -> bool {
    IS_REFUSED.load(Relaxed)
}

/// Whether an error of sending a file tells of the system, not of the connection.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput
            | io::ErrorKind::NotSeekable
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported
    )
}

/// A file in memory that holds `bytes`.
#[cfg(target_os = "linux")]
fn memory_file(bytes: &[u8]) -> Option<OwnedFd> {
    use std::io::Write;

    use rustix::fs::{MemfdFlags, memfd_create};

    let made = memfd_create("larder-body", MemfdFlags::CLOEXEC).map_err(io::Error::from);
    let written = made.and_then(|descriptor| {
        let mut file = std::fs::File::from(descriptor);
        file.write_all(bytes)?;
        Ok(OwnedFd::from(file))
    });
    written.inspect_err(|error| tracing::debug!(%error, "no file in memory for a body")).ok()
}

#[cfg(not(target_os = "linux"))]
fn memory_file(_: &[u8]) -> Option<OwnedFd> {
    None
}

/// Sends the bytes before a file, and tells the kernel that more follow: both then share their packets.
#[cfg(target_os = "linux")]
fn send_first(stream: &TcpStream, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

/// Sends `size` bytes of a file from `place` on, or some of them.
#[cfg(target_os = "linux")]
fn send_file(
    stream: &TcpStream,
    file: BorrowedFd<'_>,
    place: u64,
    size: usize,
) -> io::Result<usize> {
    let mut place = place;
    Ok(rustix::fs::sendfile(stream, file, Some(&mut place), size)?)
}

#[cfg(not(target_os = "linux"))]
fn send_first(_: &TcpStream, _: &[io::IoSlice<'_>]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn send_file(_: &TcpStream, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, UnixStream};

    use super::*;

    #[test]
    fn files_leave_descriptors_for_connections() {
        for (descriptors, files_max) in
            [(0, 16), (256, 32), (1_024, 128), (8_192, 1_024), (1_048_576, 1_024)]
        {
            let weight = BodyWeight::within(descriptors);
            assert_eq!(CACHE_BYTES_MAX / weight.least, files_max, "of {descriptors}");
        }
    }

    #[tokio::test]
    async fn where_files_are_not_sent_the_bytes_are_left_to_be_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let bytes = Bytes::from(vec![b'x'; BYTES_MIN]);
        // Nothing can be sent from a socket as from a file.
        let (no_file, _other) = UnixStream::pair().unwrap();
        let file = OnceLock::from(Some(OwnedFd::from(no_file.into_std().unwrap())));
        let body = BodyFile { bytes: bytes.clone(), sent: AtomicU32::new(SENT_MIN), file };

        let slices = [io::IoSlice::new(b"head"), io::IoSlice::new(&bytes)];
        let first = poll_fn(|cx| body.poll_write(&stream, cx, &slices).unwrap()).await.unwrap();
        assert_eq!(first, (4, false));
        let mut head = [0; 4];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"head");

        assert!(file_of(&bytes).is_none() && !IS_REFUSED.load(Relaxed));
        let rest = poll_fn(|cx| Poll::Ready(body.poll_write(&stream, cx, &slices[1..]).is_none()));
        assert!(rest.await);
        assert!(IS_REFUSED.load(Relaxed));
        assert!((0..9).all(|_| file_of(&bytes).is_none()));
    }
}
