//! Who a client is: the address of a connection, or the one that a trusted proxy reports.
//!
//! peer + header -> [`ClientAddress::resolve`] -> [`ClientAddress`] -> [`ClientKey`], under which limits count. Only one header
//! is read, which the configuration names, and only from a trusted proxy. The proxy must set it or append to it; then no client
//! can report an address that the proxy has not seen. A second header might be one that the proxy passes on as the client wrote
//! it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, header};

use crate::address::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// Reached over TCP. IPv4 addresses in IPv6 clothes (`::ffff:192.0.2.1`) are IPv4 here.
    Ip(IpAddr),
    /// A client of a unix socket, and so a process of this machine; such clients cannot be distinguished.
    Unix,
}

impl From<IpAddr> for ClientAddress {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip.to_canonical())
    }
}

impl fmt::Display for ClientAddress {
    /// `192.0.2.1`, `2001:db8::1`, or `unix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Unix => f.write_str("unix"),
        }
    }
}

impl ClientAddress {
    /// The client behind `peer`: the address that it reports if it is trusted, else `peer` itself.
    ///
    /// All lines of the proxies' header are one list, `for=` in the case of `Forwarded` (RFC 7239), and addresses in that of
    /// any other. It is walked from the right, where the nearest proxy appends, past addresses of trusted proxies, to the first
    /// other one. goaurrpc takes the left-most, which is whatever the client has written there: so any client can choose to be
    /// counted as another one. An element that is no address (`unknown`, `_hidden`, garbage) ends the walk, since no trusted
    /// proxy reported what is left of it; then the last trusted address counts.
    pub fn resolve(peer: Self, headers: &HeaderMap, trusted: &TrustedProxies) -> Self {
        // Fast path without a proxy: this is cheaper than looking the header up.
        let has_header = || headers.keys().any(|name| *name == trusted.header);
        if !trusted.contains(peer) || !has_header() {
            return peer;
        }
        let parse =
            if trusted.header == header::FORWARDED { parse_forwarded } else { parse_addresses };
        walk(list(headers, &trusted.header, parse), trusted).unwrap_or(peer)
    }

    /// The key under which this client is counted.
    pub fn key(self) -> ClientKey {
        match self {
            Self::Unix => ClientKey::Unix,
            Self::Ip(ip) => match ip.to_canonical() {
                IpAddr::V4(ip) => ClientKey::Ipv4(ip.to_bits()),
                IpAddr::V6(ip) => ClientKey::Ipv6Network((ip.to_bits() >> 64) as u64),
            },
        }
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 /64, since that is what one subscriber gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// The address as a number, first byte highest.
    Ipv4(u32),
    /// The upper half of the address as a number, first byte highest.
    Ipv6Network(u64),
    /// All peers on unix sockets.
    Unix,
}

impl fmt::Display for ClientKey {
    /// `192.0.2.1`, `2001:db8::/64`, or `unix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ipv4(bits) => write!(f, "{}", Ipv4Addr::from_bits(bits)),
            Self::Ipv6Network(bits) => {
                write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(bits) << 64))
            }
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// The proxies whose word is taken: on their client's address, in one header, and on the URL that they were asked for.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    networks: Box<[Network]>,
    trusts_this_machine: bool,
    header: HeaderName,
}

impl Default for TrustedProxies {
    fn default() -> Self {
        Self::new([])
    }
}

impl TrustedProxies {
    /// Trusts these networks. To trust 127.0.0.1 or ::1 is to trust all processes of this machine, and so the peers of
    /// unix sockets too. An empty list trusts nobody. They name their client in `X-Forwarded-For`.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        let networks: Box<[Network]> = networks.into_iter().collect();
        let trusts_this_machine = networks.iter().any(|network| {
            network.contains(Ipv4Addr::LOCALHOST.into())
                || network.contains(Ipv6Addr::LOCALHOST.into())
        });
        Self { networks, trusts_this_machine, header: X_FORWARDED_FOR }
    }

    /// Reads the client's address from this header.
    pub fn reading(self, header: HeaderName) -> Self {
        Self { header, ..self }
    }

    /// Whether `address` is a trusted proxy.
    pub fn contains(&self, address: ClientAddress) -> bool {
        match address {
            ClientAddress::Unix => self.trusts_this_machine,
            ClientAddress::Ip(ip) => self.networks.iter().any(|network| network.contains(ip)),
        }
    }
}

/// All lines of a list header, one element after the other; `None` for an element that names no address.
fn list(
    headers: &HeaderMap,
    name: &HeaderName,
    parse: fn(&str, &mut Vec<Option<IpAddr>>),
) -> Vec<Option<IpAddr>> {
    let mut nodes = Vec::new();
    for value in headers.get_all(name) {
        match value.to_str() {
            Ok(text) => parse(text, &mut nodes),
            Err(_) => nodes.push(None),
        }
    }
    nodes
}

/// The right-most address that is not trusted; failing that, the last trusted one before the walk ended.
fn walk(nodes: Vec<Option<IpAddr>>, trusted: &TrustedProxies) -> Option<ClientAddress> {
    let mut client = None;
    for node in nodes.into_iter().rev() {
        let Some(ip) = node else { break };
        let address = ClientAddress::from(ip);
        client = Some(address);
        if !trusted.contains(address) {
            break;
        }
    }
    client
}

fn parse_addresses(text: &str, nodes: &mut Vec<Option<IpAddr>>) {
    // RFC 9110, 5.6.1: empty elements of a list count for nothing.
    nodes.extend(text.split(',').map(str::trim).filter(|node| !node.is_empty()).map(parse_node));
}

/// `for=192.0.2.60;proto=http, for="[2001:db8::1]:4711"`.
fn parse_forwarded(text: &str, nodes: &mut Vec<Option<IpAddr>>) {
    for element in split_outside_quotes(text, ',')
        .into_iter()
        .map(str::trim)
        .filter(|element| !element.is_empty())
    {
        let node = split_outside_quotes(element, ';').into_iter().find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
        });
        nodes.push(node.and_then(|node| {
            parse_node(
                node.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(node),
            )
        }));
    }
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    text.split(|character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
    .collect()
}

/// An address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn parse_node(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    text.parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn trusted(networks: &str) -> TrustedProxies {
        TrustedProxies::new(networks.split_whitespace().map(|network| network.parse().unwrap()))
    }

    /// `headers` has one `name: value` per line; the first name is the one that is read. 10.0.0.0/8, loopback and
    /// 2001:db8:ffff::/48 are trusted.
    #[track_caller]
    fn check(peer: &str, headers: &str, client: &str) {
        let first = headers.split_once(':').map_or("x-forwarded-for", |(name, _)| name);
        check_reading(first, peer, headers, client);
    }

    #[track_caller]
    fn check_reading(header: &str, peer: &str, headers: &str, client: &str) {
        let peer = if peer == "unix" {
            ClientAddress::Unix
        } else {
            peer.parse::<IpAddr>().unwrap().into()
        };
        let mut map = HeaderMap::new();
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            map.append(
                name.trim().parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let proxies = trusted("10.0.0.0/8 127.0.0.1 ::1 2001:db8:ffff::/48");
        let proxies = proxies.reading(header.parse().unwrap());
        assert_eq!(ClientAddress::resolve(peer, &map, &proxies).to_string(), client);
    }

    #[test]
    fn headers_of_strangers_are_not_read() {
        check("192.0.2.1", "x-real-ip: 192.0.2.9", "192.0.2.1");
        check("192.0.2.1", "x-forwarded-for: 192.0.2.9", "192.0.2.1");
        check("192.0.2.1", "forwarded: for=192.0.2.9", "192.0.2.1");
    }

    #[test]
    fn a_trusted_proxy_names_its_client() {
        check("10.1.2.3", "", "10.1.2.3");
        check("10.1.2.3", "x-real-ip: 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "x-forwarded-for: 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "x-client-of-ours: 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "forwarded: for=192.0.2.9;proto=https;by=10.1.2.3", "192.0.2.9");
        check("::ffff:10.1.2.3", "x-real-ip: ::ffff:192.0.2.9", "192.0.2.9");
        check("unix", "x-real-ip: 192.0.2.9", "192.0.2.9");
        check("2001:db8:ffff::1", "x-real-ip: 2001:db8::9", "2001:db8::9");
    }

    /// A proxy sets or appends to one header; the others come as the client wrote them.
    #[test]
    fn only_the_header_of_the_configuration_is_read() {
        let all = "x-real-ip: 8.8.8.1\nx-forwarded-for: 8.8.8.2\nforwarded: for=8.8.8.3\nx-client: 8.8.8.4";
        for (header, client) in [
            ("x-real-ip", "8.8.8.1"),
            ("x-forwarded-for", "8.8.8.2"),
            ("forwarded", "8.8.8.3"),
            ("x-client", "8.8.8.4"),
            ("cf-connecting-ip", "10.1.2.3"),
        ] {
            check_reading(header, "10.1.2.3", all, client);
        }
        // The other headers are not read even if the configured one has no address.
        let all = "x-forwarded-for: unknown\nx-real-ip: 8.8.8.1\nforwarded: for=8.8.8.3";
        check("10.1.2.3", all, "10.1.2.3");
        check("10.1.2.3", "x-forwarded-for: \nx-real-ip: 8.8.8.1", "10.1.2.3");
    }

    #[test]
    fn what_a_client_wrote_itself_is_not_believed() {
        check("10.1.2.3", "x-forwarded-for: 8.8.8.8, 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "x-forwarded-for: 8.8.8.8, 192.0.2.9, 10.9.9.9, 127.0.0.1", "192.0.2.9");
        check("10.1.2.3", "x-forwarded-for: 8.8.8.8\nx-forwarded-for: 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "x-real-ip: 8.8.8.8\nx-real-ip: 192.0.2.9", "192.0.2.9");
        check("10.1.2.3", "x-forwarded-for: 8.8.8.8, ghost, 10.9.9.9", "10.9.9.9");
        check("10.1.2.3", "x-forwarded-for: 8.8.8.8, ghost", "10.1.2.3");
        check("10.1.2.3", "forwarded: for=8.8.8.8, for=\"_hidden\"", "10.1.2.3");
        check("10.1.2.3", "forwarded: for=8.8.8.8, by=10.1.2.3", "10.1.2.3");
    }

    #[test]
    fn clients_inside_the_trusted_networks_have_an_address_too() {
        check("10.1.2.3", "x-forwarded-for: 10.7.7.7, 10.8.8.8", "10.7.7.7");
    }

    #[test]
    fn ports_brackets_and_quotes() {
        check("10.1.2.3", "x-forwarded-for: 192.0.2.9:4711", "192.0.2.9");
        check("10.1.2.3", "x-forwarded-for: [2001:db8::9]:4711,", "2001:db8::9");
        check("10.1.2.3", "x-real-ip: [2001:db8::9]", "2001:db8::9");
        check("10.1.2.3", "forwarded: proto=http;For=\"[2001:db8::9]:4711\"", "2001:db8::9");
        check(
            "10.1.2.3",
            "forwarded: for=\"192.0.2.9:80\";host=\"a,b;for=8.8.8.8\" , by=x;for=10.1.1.1",
            "192.0.2.9",
        );
    }

    #[test]
    fn keys_are_ipv4_addresses_and_ipv6_networks() {
        let key = |text: &str| ClientAddress::Ip(text.parse().unwrap()).key().to_string();
        assert_eq!(key("192.0.2.1"), "192.0.2.1");
        assert_eq!(key("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(ClientAddress::Unix.key().to_string(), "unix");
    }

    #[test]
    fn unix_peers_are_trusted_with_loopback_only() {
        assert!(trusted("127.0.0.0/8").contains(ClientAddress::Unix));
        assert!(!trusted("10.0.0.0/8").contains(ClientAddress::Unix));
        assert!(!trusted("").contains(ClientAddress::Unix));
    }

    proptest! {
        #[test]
        fn networks_hold_what_shares_their_leading_bits(network: u32, bits in 0..=32_u8, ip: u32, flip in 0..32_u32) {
            let text = format!("{}/{bits}", Ipv4Addr::from_bits(network));
            let same_bits = |ip: u32| (0..u32::from(bits)).all(|bit| (network ^ ip) >> (31 - bit) & 1 == 0);
            for ip in [ip, network, network ^ 1 << flip] {
                let address = IpAddr::from(Ipv4Addr::from_bits(ip));
                prop_assert_eq!(trusted(&text).contains(address.into()), same_bits(ip), "{} in {}", address, text);
            }
        }

        #[test]
        fn networks_of_ipv6_too(network: u128, bits in 0..=128_u8, flip in 0..128_u32) {
            let text = format!("{}/{bits}", Ipv6Addr::from_bits(network));
            let inside = Ipv6Addr::from_bits(network);
            prop_assume!(inside.to_ipv4_mapped().is_none());
            prop_assert!(trusted(&text).contains(ClientAddress::Ip(inside.into())));
            let other = Ipv6Addr::from_bits(network ^ 1 << (127 - flip));
            prop_assert_eq!(trusted(&text).contains(ClientAddress::Ip(other.into())), flip >= u32::from(bits));
        }

        #[test]
        fn no_header_makes_a_stranger_of_someone_else_or_panics(value in "[ -~]{0,80}", name in 0..3_usize) {
            let mut headers = HeaderMap::new();
            let name = [HeaderName::from_static("x-real-ip"), X_FORWARDED_FOR, header::FORWARDED][name].clone();
            headers.insert(name.clone(), HeaderValue::from_str(&value).unwrap());
            let stranger = ClientAddress::Ip("192.0.2.1".parse().unwrap());
            let proxies = |networks| trusted(networks).reading(name.clone());
            prop_assert_eq!(ClientAddress::resolve(stranger, &headers, &proxies("10.0.0.0/8")), stranger);
            ClientAddress::resolve(ClientAddress::Unix, &headers, &proxies("127.0.0.1"));
        }

        #[test]
        fn the_proxys_own_element_decides(forged in "[ -~]{0,80}", client: u32) {
            let client = IpAddr::from(Ipv4Addr::from_bits(client));
            let proxies = trusted("127.0.0.1");
            prop_assume!(!proxies.contains(client.into()));
            let mut headers = HeaderMap::new();
            headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&format!("{forged}, {client}")).unwrap());
            prop_assert_eq!(ClientAddress::resolve(ClientAddress::Unix, &headers, &proxies), client.into());
        }
    }
}
