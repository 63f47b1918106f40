//! [`Line`]: a line between two programs that a test cuts and delays.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A proxy. Its threads end with the test's process.
pub(crate) struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    to: Mutex<Option<SocketAddr>>,
    open: Mutex<Vec<TcpStream>>,
    /// Bytes of answers after which all connections are cut; 0: never.
    left: AtomicUsize,
    /// Bytes of answers after which each connection is cut; 0: never.
    each: AtomicUsize,
    delay: Mutex<Duration>,
}

impl Line {
    /// A line that leads nowhere yet.
    pub(crate) fn new() -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::<State>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                let to = *shared.to.lock().expect("no panic");
                let Some(Ok(server)) = to.map(TcpStream::connect) else { continue };
                let pair = [(&client, &server, false), (&server, &client, true)];
                for (from, to, is_answer) in pair {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let shared = shared.clone();
                    thread::spawn(move || pass(from, to, is_answer, &shared));
                }
                shared.open.lock().expect("no panic").extend([client, server]);
            }
        });
        Line { address, state }
    }

    pub(crate) fn to(address: SocketAddr) -> Line {
        let line = Line::new();
        line.leads_to(address);
        line
    }

    /// New connections lead there.
    pub(crate) fn leads_to(&self, address: SocketAddr) {
        *self.state.to.lock().expect("no panic") = Some(address);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection, and new ones lead nowhere.
    pub(crate) fn block(&self) {
        *self.state.to.lock().expect("no panic") = None;
        self.cut();
    }

    /// Cuts every connection; new ones work.
    pub(crate) fn cut(&self) {
        self.state.cut();
    }

    /// Cuts every connection once so many more bytes have been answered.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.state.left.store(bytes.max(1), SeqCst);
    }

    /// Cuts each connection, also later ones, once so many bytes have been answered on it.
    pub(crate) fn cut_each_after(&self, bytes: usize) {
        self.state.each.store(bytes.max(1), SeqCst);
    }

    /// Every piece takes so long.
    pub(crate) fn delay(&self, delay: Duration) {
        *self.state.delay.lock().expect("no panic") = delay;
    }
}

impl State {
    fn cut(&self) {
        for stream in self.open.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_answer: bool, state: &State) {
    let mut buffer = [0; 16_384];
    let mut passed = 0;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let delay = *state.delay.lock().expect("no panic");
        thread::sleep(delay);
        let mut length = length;
        let left = state.left.load(SeqCst);
        let ends = is_answer && left > 0 && left <= length;
        if is_answer && left > 0 {
            length = length.min(left);
            state.left.store(left.saturating_sub(length), SeqCst);
        }
        let each = state.each.load(SeqCst);
        let is_spent = is_answer && each > 0 && passed + length >= each;
        if is_spent {
            length = each.saturating_sub(passed);
        }
        passed += length;
        if to.write_all(&buffer[..length]).is_err() || is_spent {
            break;
        }
        if ends {
            state.cut();
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
