//! What proxies say about their clients: one header a line, `name: value`.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use larder::net::{ClientAddress, TrustedProxies};
use libfuzzer_sys::fuzz_target;

static TRUSTED: LazyLock<TrustedProxies> = LazyLock::new(|| {
    let networks = ["127.0.0.1", "::1", "10.0.0.0/8"];
    TrustedProxies::new(networks.map(|network| network.parse().expect("a network")))
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
    assert_eq!(ClientAddress::resolve(stranger, &headers, &TRUSTED), stranger);
    for peer in [ClientAddress::Unix, IpAddr::from(Ipv4Addr::LOCALHOST).into()] {
        let client = ClientAddress::resolve(peer, &headers, &TRUSTED);
        assert!(!client.to_string().is_empty() && !client.key().to_string().is_empty());
    }
});
