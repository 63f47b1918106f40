//! Values of `Authorization` and `X-Devpi-Auth`.

#![no_main]

use account::{Credentials, CredentialsError};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for read in [Credentials::from_authorization(data), Credentials::from_devpi_auth(data)] {
        check(read);
    }
    let encoded = BASE64_STANDARD.encode(data);
    let by_devpi = Credentials::from_devpi_auth(encoded.as_bytes());
    let by_header = Credentials::from_authorization(format!("Basic {encoded}").as_bytes());
    if encoded.len() + 6 <= Credentials::HEADER_BYTES_MAX {
        assert_eq!(by_devpi, by_header);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Some((user, password)) = text.split_once(':')
        && encoded.len() <= Credentials::HEADER_BYTES_MAX
    {
        assert_eq!(by_devpi, Credentials::from_user_and_password(user, password), "{text:?}");
    }
    check(by_devpi);
});

/// A refusal repeats nothing of a secret.
fn check(read: Result<Credentials, CredentialsError>) {
    if let Err(error) = read {
        assert!(error.to_string().len() < 2_000);
    }
}
