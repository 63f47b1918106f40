//! [`Serial`]: the number of a commit.

use std::fmt;
use std::str::FromStr;

/// The number of a commit in the store: 1, 2, 3 …. It grows by one with each commit; commits become visible in this
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u64);

impl Serial {
    /// Stands before the first commit.
    pub const ZERO: Serial = Serial(0);

    /// The serial of the commit after this one.
    #[must_use]
    pub fn next(self) -> Serial {
        Serial(self.0 + 1)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The given text is not a serial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a serial: a whole number from 0 to 9223372036854775807 was expected")]
pub struct SerialError(String);

impl FromStr for Serial {
    type Err = SerialError;

    /// Parses decimal digits only; the bound is that of the databases' signed integers.
    fn from_str(text: &str) -> Result<Serial, SerialError> {
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<i64>() {
            Ok(number) if is_digits => Ok(Serial(number.unsigned_abs())),
            _ => Err(SerialError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, number: Option<u64>) {
        assert_eq!(text.parse::<Serial>().ok(), number.map(Serial), "{text}");
    }

    #[test]
    fn digits_within_the_bound_are_read() {
        check("0", Some(0));
        check("42", Some(42));
        check("9223372036854775807", Some(i64::MAX as u64));
        check("9223372036854775808", None);
        check("", None);
        check("+1", None);
        check("-1", None);
        check("1 ", None);
        check("٣", None);
    }
}
