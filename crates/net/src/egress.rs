//! Where this process may connect to for others: to public addresses, and to those that the configuration names.
//!
//! URL -> [`Egress::check`] (an address in the URL itself) -> [`Egress::client`], whose resolver passes on only the addresses
//! that [`Egress::admits`] -> connection. The client connects only to these, so it does not matter if the name resolves to
//! another address a moment later. It follows no redirects and reads no proxy from the environment: behind one, the address of
//! a connection could not be checked.
//!
//! It applies to URLs of users, and to redirects of `aur.source`. Hosts that the operator names in the configuration (database,
//! blobs, that source) are always admitted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Once};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};

use crate::address::Network;

/// IPv4 networks that are not public (IANA's registry of special-purpose addresses), with the relays of 6to4.
const PRIVATE_IPV4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // a provider's own
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // this machine
    (Ipv4Addr::new(168, 63, 129, 16), 32), // the host of a virtual machine, at one large provider
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, metadata services among them
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, broadcast
];

/// The only block of IPv6 with public addresses, and its parts that are not public.
const PUBLIC_IPV6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const PRIVATE_IPV6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, benchmarks, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: any IPv4 address, by way of a relay
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// IPv4 through a translator (RFC 6052): in a network without IPv4, the resolver returns these for every name.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// The rule. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    allowed: Arc<[Network]>,
    /// A host that is admitted wherever it leads.
    named: Option<Arc<str>>,
}

/// Nothing may connect to a host.
#[derive(Debug, thiserror::Error)]
#[error(
    "no public address is known for `{host}`; `egress_allow` of the configuration may name others"
)]
pub struct NotPublic {
    host: String,
}

impl Egress {
    /// Public addresses, and those of `allowed`.
    pub fn new(allowed: impl IntoIterator<Item = Network>) -> Egress {
        Egress { allowed: allowed.into_iter().collect(), named: None }
    }

    /// Also allows all addresses that this host of a URL resolves to.
    pub fn naming(self, host: &str) -> Egress {
        Egress { named: Some(host.into()), ..self }
    }

    /// Whether a connection to `ip` is allowed.
    pub fn admits(&self, ip: IpAddr) -> bool {
        let meant = meant(ip);
        let is_allowed = |network: &Network| network.contains(meant) || network.contains(ip);
        is_public(meant) || self.allowed.iter().any(is_allowed)
    }

    /// Checks a URL whose host is an address, which no resolver would see. A name is checked when it is resolved.
    ///
    /// # Errors
    /// [`NotPublic`], for a URL of another scheme or without a host as well.
    pub fn check(&self, url: &Url) -> Result<(), NotPublic> {
        // In http and https URLs the parser has normalized every spelling of an address.
        let host = url.host_str().unwrap_or_default();
        let is_admitted = match host.trim_matches(['[', ']']).parse() {
            Ok(ip) => self.is_named(host) || self.admits(ip),
            Err(_) => matches!(url.scheme(), "http" | "https") && !host.is_empty(),
        };
        if is_admitted { Ok(()) } else { Err(NotPublic { host: host.to_owned() }) }
    }

    /// A client that connects where the rule allows it, for URLs that [`Egress::check`] let through.
    pub fn client(&self) -> ClientBuilder {
        reqwest::Client::builder()
            .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(self.clone()))
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
    }

    fn is_named(&self, host: &str) -> bool {
        self.named.as_deref() == Some(host)
    }

    /// The addresses of `host` that a connection may go to.
    async fn addresses(&self, host: String) -> Result<Vec<SocketAddr>, NotPublic> {
        // An unknown name gets the same answer as one of an internal host, so that the answer does not reveal which it is.
        let found: Vec<SocketAddr> = match tokio::net::lookup_host((host.as_str(), 0)).await {
            Ok(found) => found.collect(),
            Err(error) => {
                tracing::info!(host, %error, "a host name cannot be resolved");
                Vec::new()
            }
        };
        let (admitted, refused): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|address| self.is_named(&host) || self.admits(address.ip()));
        if let (true, Some(refused)) = (admitted.is_empty(), refused.first()) {
            let address = refused.ip();
            tracing::warn!(host, %address, "a host name that a user gave has no public address");
        }
        if admitted.is_empty() { Err(NotPublic { host }) } else { Ok(admitted) }
    }
}

/// Builds a client, also where the system has no certificates of authorities, as in a minimal container: connections over HTTPS
/// then fail one by one, rather than the start of a server that may never make one.
///
/// # Errors
/// The settings contradict each other.
pub fn build_client(builder: impl Fn() -> ClientBuilder) -> reqwest::Result<reqwest::Client> {
    static IS_SAID: Once = Once::new();
    builder().build().or_else(|error| {
        let client = builder().tls_certs_only([]).build()?;
        IS_SAID.call_once(|| {
            let cause = causes(&error).next().map_or(error.to_string(), ToString::to_string);
            tracing::warn!(
                cause,
                "connections to other servers over HTTPS fail; install ca-certificates"
            );
        });
        Ok(client)
    })
}

/// The causes of an error, the innermost last.
pub fn causes<'error>(
    error: &'error (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'error (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| cause.source())
}

/// Whether a request failed because this machine does not know the authority that signed the server's certificate.
pub fn is_of_unknown_authority(error: &reqwest::Error) -> bool {
    use rustls::CertificateError::{BadSignature, UnknownIssuer};
    causes(error).any(|cause| match within(cause).downcast_ref() {
        // The signature is bad if another authority with the same name is known.
        Some(rustls::Error::InvalidCertificate(said)) => {
            matches!(said, UnknownIssuer | BadSignature)
        }
        _ => false,
    })
}

/// The error in I/O errors within each other, which give its cause as theirs.
fn within<'error>(
    error: &'error (dyn std::error::Error + 'static),
) -> &'error (dyn std::error::Error + 'static) {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => within(inner),
        None => error,
    }
}

/// What a client says of a failed request, with the causes and without the URL, which may have secrets.
pub fn reason_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = causes(&error).map(|cause| format!(": {cause}"));
    std::iter::once(error.to_string()).chain(causes).collect()
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, host) = (self.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let addresses = egress.addresses(host).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// The address that a connection to `ip` ends at: IPv4 in the clothes of IPv6, or behind a translator, is IPv4.
fn meant(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if ipv6_is_in(ip, NAT64) => Ipv4Addr::from_bits(ip.to_bits() as u32).into(),
        ip => ip,
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !PRIVATE_IPV4.iter().any(|network| ipv4_is_in(ip, *network)),
        IpAddr::V6(ip) => {
            ipv6_is_in(ip, PUBLIC_IPV6)
                && !PRIVATE_IPV6.iter().any(|network| ipv6_is_in(ip, *network))
        }
    }
}

fn ipv4_is_in(ip: Ipv4Addr, (network, bits): (Ipv4Addr, u32)) -> bool {
    (ip.to_bits() ^ network.to_bits()) >> (32 - bits) == 0
}

fn ipv6_is_in(ip: Ipv6Addr, (network, bits): (Ipv6Addr, u32)) -> bool {
    (ip.to_bits() ^ network.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(allowed: &str) -> Egress {
        Egress::new(allowed.split_whitespace().map(|network| network.parse().expect("a network")))
    }

    #[track_caller]
    fn check(allowed: &str, addresses: &str, expected: bool) {
        for ip in addresses.split_whitespace() {
            let is_admitted = egress(allowed).admits(ip.parse().expect("an address"));
            assert_eq!(is_admitted, expected, "{ip}, allowed: {allowed:?}");
        }
    }

    #[test]
    fn public_addresses() {
        check("", "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0", true);
        check("", "126.255.255.255 128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0", true);
        check("", "192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255", true);
        check("", "2606:4700::1111 2001:200:: 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8", true);
    }

    #[test]
    fn what_lies_inside() {
        check("", "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.9.9.9", false);
        check("", "169.254.169.254 168.63.129.16 172.16.0.1 172.31.255.255 192.168.1.1", false);
        check("", "192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255", false);
        check(
            "",
            "198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255",
            false,
        );
        check("", ":: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1", false);
        check("", "fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 100::1 5f00::1", false);
        check("", "2001::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 3fff::1", false);
        check("", "2002:7f00:1:: 2002:a00:1:: 2002:808:808::", false);
        check("", "64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8", false);
    }

    #[test]
    fn a_setting_names_others() {
        check("10.1.0.0/16 ::1", "10.1.2.3 ::1 ::ffff:10.1.2.3 64:ff9b::10.1.2.3 8.8.8.8", true);
        check("10.1.0.0/16 ::1", "10.2.0.1 127.0.0.1 fe80::1 169.254.169.254", false);
        check("0.0.0.0/0", "127.0.0.1 169.254.169.254", true);
        check("0.0.0.0/0", "::1 fe80::1", false);
    }

    #[test]
    fn addresses_in_urls() {
        let check = |url: &str, expected: bool| {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(egress("").check(&url).is_ok(), expected, "{url}");
        };
        for url in [
            "http://127.0.0.1/",
            "http://127.1:8081/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://user:password@10.0.0.1/",
            "http://0/",
            "https://[::1]/",
            "http://[::ffff:169.254.169.254]/latest/",
            "http://%31%32%37.0.0.1/",
            "http://１２７.0.0.1/",
            "file:///etc/passwd",
        ] {
            check(url, false);
        }
        for url in ["http://8.8.8.8/", "https://[2606:4700::1111]/", "https://index.example/"] {
            check(url, true);
        }
    }

    #[tokio::test]
    async fn names_are_judged_by_where_they_lead() {
        let refused = egress("").addresses("localhost".to_owned()).await;
        let text = refused.expect_err("it leads to this machine").to_string();
        let expected = "no public address is known for `localhost`; `egress_allow` of the configuration may name others";
        assert_eq!(text, expected);
        let unknown = egress("").addresses("nobody.invalid".to_owned()).await;
        let unknown = unknown.expect_err("it leads nowhere").to_string();
        assert_eq!(unknown, text.replace("localhost", "nobody.invalid"));
        let allowed = egress("127.0.0.0/8 ::1").addresses("localhost".to_owned()).await;
        assert!(!allowed.expect("it is allowed").is_empty());
    }

    #[tokio::test]
    async fn a_client_connects_only_where_it_may() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let client = egress("").client().tls_certs_only([]).build().expect("a client");
        let sent = client.get(format!("http://localhost:{port}/")).send().await;
        let error = sent.expect_err("it is refused");
        let cause = causes(&error).last().map(ToString::to_string);
        assert_eq!(
            cause.as_deref(),
            Some(
                "no public address is known for `localhost`; `egress_allow` of the configuration may name others"
            )
        );
        let accepted = listener.accept().expect_err("nobody has come");
        assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
    }
}
