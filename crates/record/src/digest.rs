//! [`Digest`]: the name of a blob, which is the SHA-256 of its bytes.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

use crate::excerpt::excerpt;

/// The SHA-256 of some bytes; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The given text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 digest: 64 hexadecimal digits were expected")]
pub struct DigestError(String);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(sha2::Sha256::digest(bytes).into())
    }

    /// The digest with these 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// The 32 bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Computes a digest of bytes as they arrive.
#[derive(Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 64];
        hex::encode_to_slice(self.0, &mut digits).map_err(|_| fmt::Error)?;
        formatter.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Parses 64 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) => Ok(Digest(bytes)),
            Err(_) => Err(DigestError(excerpt(text, 80).to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn it_is_sha_256_in_hexadecimal() {
        assert_eq!(Digest::of(b"abc").to_string(), ABC);
        let mut hasher = Hasher::new();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), Digest::of(b"abc"));
    }

    #[test]
    fn its_text_can_be_parsed() {
        assert_eq!(ABC.parse(), Ok(Digest::of(b"abc")));
        assert_eq!(ABC.to_uppercase().parse(), Ok(Digest::of(b"abc")));
        for bad in ["", &ABC[1..], &format!("{ABC}0"), &ABC.replace('b', "g"), &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
