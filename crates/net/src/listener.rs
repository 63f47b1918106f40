//! Sockets that listen: made from addresses, or handed over by systemd.
//!
//! [`ListenAddress`] -> [`bind`] -> [`Listener`] -> `Server::serve`. A listener accepts from the moment it exists (the
//! kernel queues connections), so that binding everything before loading anything shows conflicts early. Nothing here
//! needs a runtime until serving begins.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::client::ClientAddress;
use super::socket::Stream;
use crate::address::{ListenAddress, SocketMode};

/// Connections that the kernel keeps while the accept loop is busy; it may lower this (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: BoundSocket,
    address: ListenAddress,
    /// The socket file, removed when the listener is dropped.
    file: Option<SocketFile>,
    is_handed_over: bool,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

impl Listener {
    /// The address that it listens at, with the port that the system chose for 0.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// The TCP address that a test connects to. `None` for a unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self.address {
            ListenAddress::Tcp(address) => Some(address),
            ListenAddress::Unix(_) => None,
        }
    }

    /// The same sockets once more: connections go to whichever accepts them, and wait while neither does. None if the file of one
    /// goes with the first, so that all have to be bound again.
    ///
    /// # Errors
    /// The system's.
    pub fn spare(listeners: &[Self]) -> io::Result<Vec<Self>> {
        match listeners.iter().any(|listener| listener.file.is_some()) {
            true => Ok(Vec::new()),
            false => listeners.iter().map(Self::duplicate).collect(),
        }
    }

    fn duplicate(&self) -> io::Result<Self> {
        let socket = match &self.socket {
            BoundSocket::Tcp(socket) => BoundSocket::Tcp(socket.try_clone()?),
            BoundSocket::Unix(socket) => BoundSocket::Unix(socket.try_clone()?),
        };
        let (address, is_handed_over) = (self.address.clone(), self.is_handed_over);
        Ok(Self { socket, address, file: None, is_handed_over })
    }

    fn tcp(socket: StdTcpListener, is_handed_over: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = ListenAddress::Tcp(socket.local_addr()?);
        Ok(Self { socket: BoundSocket::Tcp(socket), address, file: None, is_handed_over })
    }

    fn unix(socket: StdUnixListener, file: Option<SocketFile>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let path = socket.local_addr()?.as_pathname().unwrap_or(Path::new("unnamed")).to_owned();
        let is_handed_over = file.is_none();
        Ok(Self {
            socket: BoundSocket::Unix(socket),
            address: ListenAddress::Unix(path),
            file,
            is_handed_over,
        })
    }
}

/// Who may connect to a unix socket: connecting needs the right to write to its file.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The file's mode; by default what the umask leaves.
    pub mode: Option<SocketMode>,
    /// The file's group, by its name in `/etc/group` or its number; by default that of the process.
    pub group: Option<String>,
}

/// Where the names of groups are.
const GROUPS: &str = "/etc/group";

impl Access {
    /// Sets mode and group of a socket's file, before anybody can connect.
    fn give(&self, path: &Path) -> io::Result<()> {
        let problem = |what: String, error: io::Error| {
            io::Error::new(error.kind(), format!("{what}: {error}"))
        };
        if let Some(group) = &self.group {
            let failed = |error| problem(format!("the group `{group}` cannot be set"), error);
            let number = match group.parse() {
                Ok(number) => number,
                Err(_) => number_of_group(group, &fs::read_to_string(GROUPS).map_err(failed)?)
                    .map_err(failed)?,
            };
            std::os::unix::fs::chown(path, None, Some(number)).map_err(failed)?;
        }
        if let Some(mode) = self.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode.0))
                .map_err(|error| problem(format!("the mode {mode} cannot be set"), error))?;
        }
        Ok(())
    }
}

/// The number of a group by the text of [`GROUPS`].
fn number_of_group(name: &str, groups: &str) -> io::Result<u32> {
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    });
    number.ok_or_else(|| {
        let message = format!("{GROUPS} has no such group; groups from elsewhere have a number");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// Listens on each of `addresses`, in their order; all or none.
///
/// The file of a unix socket gets this `access`. That of a dead server is replaced, that of a living one is not.
///
/// # Errors
/// The system's error, with the address and what to do about it.
pub fn bind(addresses: &[ListenAddress], access: &Access) -> io::Result<Vec<Listener>> {
    let is_taken_by_ipv4 = |port: u16| {
        addresses.iter().any(|address| match address {
            ListenAddress::Tcp(address) => {
                address.ip() == Ipv4Addr::UNSPECIFIED && address.port() == port
            }
            ListenAddress::Unix(_) => false,
        })
    };
    addresses
        .iter()
        .map(|address| {
            let bound = match address {
                ListenAddress::Tcp(tcp) => bind_tcp(*tcp, is_taken_by_ipv4(tcp.port())),
                ListenAddress::Unix(path) => bind_unix(path, access),
            };
            bound.map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot listen on {address}: {error}{}", advice(address, &error)),
                )
            })
        })
        .collect()
}

fn advice(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (_, io::ErrorKind::AddrInUse) => {
            "; another process listens there: stop it (`ss -ltnxp` shows it) or choose another address with --listen"
        }
        (ListenAddress::Tcp(tcp), io::ErrorKind::PermissionDenied) if tcp.port() < 1024 => {
            "; ports under 1024 need CAP_NET_BIND_SERVICE (AmbientCapabilities= in the unit): grant it or choose a \
             higher port with --listen"
        }
        (ListenAddress::Tcp(_), io::ErrorKind::AddrNotAvailable) => {
            "; this machine does not have that address: choose one that `ip address` shows, or 0.0.0.0 for all"
        }
        (ListenAddress::Unix(_), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {
            "; the directory must exist and be writable for the user that larder runs as"
        }
        _ => "",
    }
}

fn bind_tcp(address: SocketAddr, is_taken_by_ipv4: bool) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let SocketAddr::V6(v6) = address {
        // [::] also takes IPv4, unless there is a listener at 0.0.0.0: then the second one would fail.
        socket.set_only_v6(!v6.ip().is_unspecified() || is_taken_by_ipv4)?;
    }
    // Without it a restart would have to wait for the old connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Listener::tcp(socket.into(), false)
}

fn bind_unix(path: &Path, access: &Access) -> io::Result<Listener> {
    remove_if_dead(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // From here on the file belongs to us and is removed, also if something below fails.
    let file = SocketFile::new(path)?;
    access.give(path)?;
    socket.listen(BACKLOG)?;
    Listener::unix(socket.into(), Some(file))
}

/// Removes the socket file that a killed server has left; leaves anything else alone.
fn remove_if_dead(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let message =
            "there is a file of that name that is no socket; remove it or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full queue means that a process listens.
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        Err(error) => Err(error),
    }
}

/// The file of a unix socket, as long as it belongs to us.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let inode = Self::inode(path)?;
        // Absolute, so that a change of the working directory does not make us remove another file.
        Ok(Self { path: std::path::absolute(path)?, inode })
    }

    fn inode(path: &Path) -> io::Result<(u64, u64)> {
        fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have put its own socket there.
        if Self::inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            // Best effort: the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The sockets that systemd (or another program that speaks its protocol, `LISTEN_FDS`) has opened for this process; empty if none.
/// They stay open in systemd, so that a restart refuses nobody.
///
/// Call this once, early, before there are threads: it removes the variables from the environment.
///
/// # Errors
/// A descriptor is no listening stream socket; the message says which and what to change in the unit.
pub fn sockets_from_systemd() -> io::Result<Vec<Listener>> {
    let mut descriptors = listenfd::ListenFd::from_env();
    (0..descriptors.len())
        .map(|index| {
            // A descriptor of the wrong kind is left in its place, so the second try may have it.
            let taken = match descriptors.take_tcp_listener(index) {
                Ok(Some(socket)) => Listener::tcp(socket, true),
                _ => match descriptors.take_unix_listener(index) {
                    Ok(Some(socket)) => Listener::unix(socket, None),
                    Ok(None) => Err(io::ErrorKind::NotFound.into()),
                    Err(error) => Err(error),
                },
            };
            taken.map_err(|error| {
                let message = format!(
                    "socket {index} from systemd cannot be used: {error}; expected ListenStream= with a port or a path"
                );
                io::Error::new(error.kind(), message)
            })
        })
        .collect()
}

/// A listener that the runtime waits on.
#[derive(Debug)]
pub(super) struct Acceptor {
    socket: AsyncSocket,
    is_handed_over: bool,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum AsyncSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// Hands `listener` to the runtime.
    pub(super) fn new(listener: Listener) -> io::Result<Self> {
        let socket = match listener.socket {
            BoundSocket::Tcp(socket) => AsyncSocket::Tcp(TcpListener::from_std(socket)?),
            BoundSocket::Unix(socket) => AsyncSocket::Unix(UnixListener::from_std(socket)?),
        };
        Ok(Self { socket, is_handed_over: listener.is_handed_over, _file: listener.file })
    }

    /// The next connection.
    pub(super) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Stream, ClientAddress)>> {
        Poll::Ready(match &self.socket {
            AsyncSocket::Tcp(socket) => ready!(socket.poll_accept(cx))
                .map(|(stream, address)| accepted_tcp(stream, address)),
            AsyncSocket::Unix(socket) => ready!(socket.poll_accept(cx))
                .map(|(stream, _)| (Stream::Unix(stream), ClientAddress::Unix)),
        })
    }

    /// Stops listening; returns the connections that the kernel has accepted in the meantime. The kernel resets one that comes
    /// between the last look and the closing; no program can prevent that.
    pub(super) fn close(self) -> Vec<(Stream, ClientAddress)> {
        let mut queued = Vec::new();
        if self.is_handed_over {
            // The queue outlives us: our successor will take it.
            return queued;
        }
        // The runtime knows only of connections that it was notified of; the socket knows all.
        match self.socket {
            AsyncSocket::Tcp(socket) => {
                let Ok(socket) = socket.into_std() else { return queued };
                while let Ok((stream, address)) = socket.accept() {
                    let stream =
                        stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    queued.extend(stream.map(|stream| accepted_tcp(stream, address)));
                }
            }
            AsyncSocket::Unix(socket) => {
                let Ok(socket) = socket.into_std() else { return queued };
                while let Ok((stream, _)) = socket.accept() {
                    let stream =
                        stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
                    queued.extend(stream.map(|stream| (Stream::Unix(stream), ClientAddress::Unix)));
                }
            }
        }
        queued
    }
}

fn accepted_tcp(stream: TcpStream, address: SocketAddr) -> (Stream, ClientAddress) {
    // A reply must never wait for a delayed acknowledgement. It fails only when the client has gone.
    let _ = stream.set_nodelay(true);
    (Stream::Tcp(stream), address.ip().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &Path) -> io::Result<Listener> {
        bind(&[ListenAddress::Unix(path.to_owned())], &Access::default())
            .map(|mut listeners| listeners.remove(0))
    }

    #[track_caller]
    fn check_error(address: ListenAddress, why: &str) {
        let start = format!("cannot listen on {address}: ");
        let error = bind(&[address], &Access::default()).unwrap_err().to_string();
        assert_eq!(error, format!("{start}{why}"));
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_advice() {
        let listener =
            bind(&["127.0.0.1:0".parse().unwrap()], &Access::default()).unwrap().remove(0);
        let address = listener.tcp_address().unwrap();
        assert_ne!(address.port(), 0);
        check_error(
            ListenAddress::Tcp(address),
            "Address already in use (os error 98); another process listens there: stop it (`ss -ltnxp` shows it) or choose another address with --listen",
        );
        check_error(
            "192.0.2.1:80".parse().unwrap(),
            "Cannot assign requested address (os error 99); this machine does not have that address: choose one that `ip address` shows, or 0.0.0.0 for all",
        );
    }

    #[test]
    fn ipv4_and_ipv6_wildcards_share_a_port() {
        let port = bind(&["127.0.0.1:0".parse().unwrap()], &Access::default()).unwrap()[0]
            .tcp_address()
            .unwrap()
            .port();
        for addresses in [["0.0.0.0", "[::]"], ["[::]", "0.0.0.0"]] {
            let addresses = addresses.map(|ip| format!("{ip}:{port}").parse().unwrap());
            match bind(&addresses, &Access::default()) {
                Ok(listeners) => assert_eq!(listeners.len(), 2),
                // Machines without IPv6 cannot show it.
                Err(error) => assert_ne!(error.kind(), io::ErrorKind::AddrInUse, "{error}"),
            }
        }
    }

    #[test]
    fn a_dead_socket_file_is_replaced_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder.sock");
        drop(StdUnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind, like a killed server");
        let listener = unix(&path).unwrap();
        assert_eq!(*listener.address(), ListenAddress::Unix(path.clone()));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_file_has_the_mode_and_the_group_that_are_set() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder.sock");
        let own = fs::metadata(directory.path()).unwrap().gid();
        let bind_with = |mode: Option<&str>, group: Option<&str>| {
            let mode = mode.map(|mode| mode.parse().unwrap());
            let access = Access { mode, group: group.map(str::to_owned) };
            bind(&[ListenAddress::Unix(path.clone())], &access)
        };
        for mode in ["0660", "0600", "666"] {
            let listening = bind_with(Some(mode), Some(&own.to_string())).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!(found.mode() & 0o777, u32::from_str_radix(mode, 8).unwrap());
            assert_eq!(found.gid(), own);
            drop(listening);
        }
        // By its name, too.
        let groups = fs::read_to_string(GROUPS).unwrap();
        let named = groups.lines().find(|line| line.split(':').nth(2) == Some(&own.to_string()));
        if let Some(name) = named.and_then(|line| line.split(':').next()) {
            drop(bind_with(None, Some(name)).unwrap());
        }
        let error = bind_with(None, Some("no-such-group")).unwrap_err().to_string();
        assert!(error.contains("the group `no-such-group`") && error.contains(GROUPS), "{error}");
        assert!(!path.exists(), "nothing is left of a start that failed");
    }

    #[test]
    fn groups_have_numbers() {
        let groups = "root:x:0:\nwww-data:x:33:larder\nodd:x:\n";
        assert_eq!(number_of_group("www-data", groups).unwrap(), 33);
        for name in ["www", "odd", "x", ""] {
            number_of_group(name, groups).unwrap_err();
        }
    }

    #[test]
    fn a_living_socket_and_other_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder.sock");
        let first = unix(&path).unwrap();
        let taken = "address in use; another process listens there: stop it (`ss -ltnxp` shows it) or \
                     choose another address with --listen";
        check_error(ListenAddress::Unix(path.clone()), taken);
        assert!(path.exists());
        drop(first);
        fs::write(&path, "text").unwrap();
        check_error(
            ListenAddress::Unix(path.clone()),
            "there is a file of that name that is no socket; remove it or choose another path",
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        check_error(
            ListenAddress::Unix(directory.path().join("absent/larder.sock")),
            "No such file or directory (os error 2); the directory must exist and be writable for the user that larder runs as",
        );
    }

    #[test]
    fn a_successors_socket_file_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("larder.sock");
        let first = unix(&path).unwrap();
        fs::rename(&path, directory.path().join("old.sock")).unwrap();
        let second = unix(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn without_systemd_there_are_no_sockets_from_it() {
        if std::env::var_os("LISTEN_FDS").is_none() {
            assert!(sockets_from_systemd().unwrap().is_empty());
        }
    }
}
