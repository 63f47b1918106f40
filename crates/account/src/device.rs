//! Log-in of a command line by a browser (RFC 8628): two codes, and the token that the log-in ends in.
//!
//! [`DeviceLogIn::begin`] -> a device code, which the program keeps, and a user code, which a person gives to a page of this server
//! -> a token of that person, whose secret both codes lead to.
//!
//! The server keeps nothing of a log-in that nobody has approved: both codes are signed. The secret of the token is a signature of
//! the log-in, so the program that shows the device code gets its text, and nobody else can make it. A user code is in the
//! letters of RFC 8628: 56 random bits, which decide, and 13 bits of a signature, which find typing errors.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;

use crate::{LoginSecret, TokenText};

/// The least time that a person has, in seconds; a log-in lasts up to twice as long.
pub const DEVICE_LOG_IN_SECONDS: i64 = 600;

/// Letters without vowels, so that no code is a word.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Nobody may find a log-in with the letters of another that a person is about to approve: these are 56 bits.
const RANDOM_LETTERS: usize = 13;
const SIGNED_LETTERS: usize = 3;
const MAC_BYTES: usize = 32;

/// A log-in of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLogIn {
    letters: [u8; RANDOM_LETTERS],
    /// When it ends, in Unix seconds: always a multiple of [`DEVICE_LOG_IN_SECONDS`], so that a user code need not say it.
    ends_at: i64,
}

impl DeviceLogIn {
    /// A log-in that begins now, of these random bytes.
    pub fn begin(random: [u8; 16], now: Timestamp) -> DeviceLogIn {
        let mut number = u128::from_be_bytes(random);
        let letters = [0; RANDOM_LETTERS].map(|_: u8| {
            let letter = LETTERS[usize::try_from(number % 20).unwrap_or_default()];
            number /= 20;
            letter
        });
        // 10 to 20 minutes from now.
        let slot = now.as_second().div_euclid(DEVICE_LOG_IN_SECONDS) + 2;
        DeviceLogIn { letters, ends_at: slot * DEVICE_LOG_IN_SECONDS }
    }

    /// When it ends.
    pub fn ends_at(&self) -> Timestamp {
        Timestamp::from_second(self.ends_at).unwrap_or(Timestamp::MAX)
    }

    fn signed(&self) -> Vec<u8> {
        [&self.letters[..], &self.ends_at.to_be_bytes()].concat()
    }
}

impl LoginSecret {
    /// What the program shows when it asks whether somebody has approved the log-in.
    pub fn device_code(&self, log_in: &DeviceLogIn) -> String {
        let mac = self.device_mac("code", log_in);
        BASE64_URL_SAFE_NO_PAD
            .encode([log_in.signed(), mac.finalize().into_bytes().to_vec()].concat())
    }

    /// The log-in that a device code is of, ended or not. In constant time.
    pub fn log_in_of_device(&self, code: &str) -> Option<DeviceLogIn> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(code).ok()?;
        let (signed, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
        let (letters, ends_at) = signed.split_first_chunk::<RANDOM_LETTERS>()?;
        let ends_at = i64::from_be_bytes(ends_at.try_into().ok()?);
        let log_in = DeviceLogIn { letters: *letters, ends_at };
        self.device_mac("code", &log_in).verify_slice(mac).ok()?;
        Some(log_in)
    }

    /// What a person gives to a page: `BCDF-GHJK-LMNP-QRST`.
    pub fn user_code(&self, log_in: &DeviceLogIn) -> String {
        let letters = [&log_in.letters[..], &self.signed_letters(log_in)].concat();
        let groups = letters.chunks(4).map(|group| String::from_utf8_lossy(group).into_owned());
        groups.collect::<Vec<_>>().join("-")
    }

    /// The log-in that a user code is of, if it has not ended. Case, blanks and hyphens do not matter.
    pub fn log_in_of_user(&self, code: &str, now: Timestamp) -> Option<DeviceLogIn> {
        let letters = code.bytes().map(|byte| byte.to_ascii_uppercase());
        let letters: Vec<u8> =
            letters.filter(|byte| !matches!(byte, b'-' | b' ')).take(64).collect();
        let (random, signed) = letters.split_first_chunk::<RANDOM_LETTERS>()?;
        let slot = now.as_second().div_euclid(DEVICE_LOG_IN_SECONDS);
        let of =
            |slot: i64| DeviceLogIn { letters: *random, ends_at: slot * DEVICE_LOG_IN_SECONDS };
        [slot + 1, slot + 2].map(of).into_iter().find(|it| self.signed_letters(it) == *signed)
    }

    /// The token that the log-in ends in, once somebody has approved it.
    pub fn device_token(&self, log_in: &DeviceLogIn) -> [u8; 32] {
        self.device_mac("token", log_in).finalize().into_bytes().into()
    }

    /// The text of that token.
    pub fn device_token_text(&self, log_in: &DeviceLogIn) -> TokenText {
        TokenText::from_secret(self.device_token(log_in))
    }

    fn signed_letters(&self, log_in: &DeviceLogIn) -> [u8; SIGNED_LETTERS] {
        let mac = self.device_mac("user", log_in).finalize().into_bytes();
        let mut letters = [0; SIGNED_LETTERS];
        for (letter, byte) in letters.iter_mut().zip(mac) {
            *letter = LETTERS[usize::from(byte) % 20];
        }
        letters
    }

    fn device_mac(&self, purpose: &str, log_in: &DeviceLogIn) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.as_bytes()).expect("HMAC takes keys of any length");
        // Names the purpose, so that nothing else signed with this secret can be shown as this.
        mac.update(b"larder device 1 ");
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(&log_in.signed());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn both_codes_lead_to_one_log_in() {
        let secret = LoginSecret::new([1; 32]);
        let log_in = DeviceLogIn::begin([7; 16], at(0));
        let lives = log_in.ends_at().as_second() - at(0).as_second();
        assert!((600..=1_200).contains(&lives), "{lives}");
        let device = secret.device_code(&log_in);
        assert_eq!(secret.log_in_of_device(&device), Some(log_in.clone()));
        let user = secret.user_code(&log_in);
        assert_eq!((user.len(), user.matches('-').count()), (19, 3), "{user}");
        for written in
            [user.clone(), user.to_lowercase(), user.replace('-', ""), user.replace('-', " ")]
        {
            assert_eq!(secret.log_in_of_user(&written, at(599)), Some(log_in.clone()), "{written}");
        }
        assert_eq!(secret.log_in_of_user(&user, log_in.ends_at()), None);
        assert_ne!(secret.device_token(&log_in), LoginSecret::new([2; 32]).device_token(&log_in));
    }

    #[test]
    fn codes_that_were_changed_are_noticed() {
        let secret = LoginSecret::new([1; 32]);
        let log_in = DeviceLogIn::begin([7; 16], at(0));
        let (device, user) = (secret.device_code(&log_in), secret.user_code(&log_in));
        assert_eq!(LoginSecret::new([2; 32]).log_in_of_device(&device), None);
        for at_byte in 0..device.len() {
            let mut changed = device.clone().into_bytes();
            changed[at_byte] = if changed[at_byte] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(secret.log_in_of_device(&changed), None, "byte {at_byte}");
        }
        let mut swapped = user.clone().into_bytes();
        let last = swapped.len() - 1;
        swapped[last] = if swapped[last] == b'B' { b'C' } else { b'B' };
        let swapped = String::from_utf8(swapped).expect("ASCII");
        for text in ["", "B", "BCDF-GHJK", &user[1..], &format!("{user}B"), &swapped, "ÄÖÜ"] {
            assert_eq!(secret.log_in_of_user(text, at(0)), None, "{text}");
            assert_eq!(secret.log_in_of_device(text), None, "{text}");
        }
    }
}
