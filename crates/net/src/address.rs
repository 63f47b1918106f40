//! Addresses to listen at, and networks. Each is parsed here and nowhere else; none resolves a name or opens a file.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// A text is no address, or no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an IP address with a port, unix:PATH, or a network such as 10.0.0.0/8")]
pub struct NotAnAddress;

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address and port; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A Unix domain socket at this path.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        match text.strip_prefix("unix:") {
            Some("") => Err(NotAnAddress),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| NotAnAddress),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The mode of a socket's file: it is written in octal, such as `0660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(pub(super) u32);

impl FromStr for SocketMode {
    type Err = NotAMode;

    fn from_str(text: &str) -> Result<Self, NotAMode> {
        let is_octal = text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.map(Self).ok_or(NotAMode)
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// A text is no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a mode in octal up to 0777")]
pub struct NotAMode;

/// An IP address with the number of leading bits that count: `10.0.0.0/8`; a single address counts all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether `ip` belongs to the network. An IPv4 address in IPv6 clothes (`::ffff:10.1.2.3`) counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                own.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                own.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| NotAnAddress)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotAnAddress)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(bits_max);
        if bits > bits_max { Err(NotAnAddress) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits_max = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == bits_max {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.bits)
        }
    }
}
