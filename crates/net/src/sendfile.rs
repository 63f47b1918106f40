//! sendfile(2): the kernel sends bytes of a file without copying them.
//!
//! [`disk_file`](super::disk_file) -> [`poll_send`] writes what comes before the file, and then the file. If the system refuses
//! that, [`is_refused`] says so from then on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// The system does not send files, as some sandboxes do: no more are tried.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// How many bytes were written before a file, and of the file.
pub(super) struct SentBytes {
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
) -> Poll<io::Result<SentBytes>> {
    let write = || {
        let head_bytes: usize = before.iter().map(|slice| slice.len()).sum();
        let head_sent = if head_bytes == 0 { 0 } else { send_first(stream, before)? };
        if head_sent < head_bytes {
            return Ok(SentBytes { before: head_sent, of_file: 0 });
        }
        match send_file(stream, file.as_fd(), place, size) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => Ok(SentBytes { before: head_sent, of_file: sent }),
            // The error comes again with the next write.
            Err(_) if head_sent > 0 => Ok(SentBytes { before: head_sent, of_file: 0 }),
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
