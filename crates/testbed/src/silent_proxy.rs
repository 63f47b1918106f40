//! A proxy in front of a socket that drops connections without a word, as a firewall does that has forgotten them: both ends
//! stay open, and nothing arrives any more, not even the end of the other side.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use tempfile::TempDir;

/// A running proxy. Its threads end with the test's process.
pub struct SilentProxy {
    directory: TempDir,
    accepted: Arc<AtomicUsize>,
    /// Connections below this number are silent.
    silent_below: Arc<AtomicUsize>,
}

impl SilentProxy {
    /// Listens at a socket of the same name in another directory.
    ///
    /// # Panics
    /// If the socket cannot be made.
    pub fn start(socket: &str) -> SilentProxy {
        let directory = tempfile::tempdir().expect("a directory");
        let name = Path::new(socket).file_name().expect("a name");
        let listener = UnixListener::bind(directory.path().join(name)).expect("bound");
        let proxy =
            SilentProxy { directory, accepted: Arc::default(), silent_below: Arc::default() };
        let (accepted, silent_below) = (proxy.accepted.clone(), proxy.silent_below.clone());
        let socket = socket.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                let number = accepted.fetch_add(1, SeqCst);
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                let both = (client.try_clone(), server.try_clone());
                let (Ok(to_client), Ok(to_server)) = both else { continue };
                for (from, to) in [(client, to_server), (server, to_client)] {
                    let silent_below = silent_below.clone();
                    thread::spawn(move || pass(from, to, || number < silent_below.load(SeqCst)));
                }
            }
        });
        proxy
    }

    /// The directory of its socket.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// From now on nothing passes over the connections that there are. New ones work.
    pub fn drop_silently(&self) {
        self.silent_below.store(self.accepted.load(SeqCst), SeqCst);
    }
}

/// Passes on what comes, as long as the connection is not silent.
fn pass(mut from: UnixStream, mut to: UnixStream, is_silent: impl Fn() -> bool) {
    let mut buffer = [0; 65_536];
    loop {
        let read = from.read(&mut buffer);
        if is_silent() {
            // Neither end is closed.
            loop {
                thread::park();
            }
        }
        let Ok(length @ 1..) = read else { break };
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
