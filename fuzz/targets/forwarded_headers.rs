//! What proxies say about their clients: one header a line, `name: value`.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use net::{ClientAddress, TrustedProxies};
use libfuzzer_sys::fuzz_target;

/// The same proxies, once for each form of the header that they may use.
static TRUSTED: LazyLock<[TrustedProxies; 3]> = LazyLock::new(|| {
    let networks = ["127.0.0.1", "::1", "10.0.0.0/8"];
    let proxies = TrustedProxies::new(networks.map(|network| network.parse().expect("a network")));
    ["x-forwarded-for", "x-real-ip", "forwarded"]
        .map(|header| proxies.clone().reading(HeaderName::from_static(header)))
});

fuzz_target!(|data: &[u8]| {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let stranger = ClientAddress::from(IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)));
    for trusted in TRUSTED.iter() {
        assert_eq!(ClientAddress::resolve(stranger, &headers, trusted), stranger);
        for peer in [ClientAddress::Unix, IpAddr::from(Ipv4Addr::LOCALHOST).into()] {
            let client = ClientAddress::resolve(peer, &headers, trusted);
            assert!(!client.to_string().is_empty() && !client.key().to_string().is_empty());
        }
    }
});
