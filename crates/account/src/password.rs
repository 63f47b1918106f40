//! [`Password`] and the [`PasswordHash`] that it is checked against.
//!
//! Making and checking a hash takes tens of milliseconds of a core and tens of MiB, on purpose: callers
//! do it where CPU-heavy work belongs, never on the thread that answers requests, a few at a time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};

/// A password in the clear. It is not normalized: it is the bytes that were typed, as with devpi.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// The stored form of a password: an argon2 hash with its salt and its cost, as a PHC string
/// (`$argon2id$v=19$m=19456,t=2,p=1$…$…`). devpi's hashes are accepted, and checked at their own cost.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(Arc<str>);

/// A text that is not taken as a new password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Nothing at all; devpi's text.
    #[error("password needs to be set")]
    Empty,
    /// More than [`Password::BYTES_MAX`].
    #[error("a password of {0} bytes is too long: at most {max} were expected", max = Password::BYTES_MAX)]
    TooLong(usize),
}

/// Text that is no hash of a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordHashError {
    /// Another notation or algorithm.
    #[error("this is not the hash of a password: `$argon2id$v=19$…` or `$argon2i$…` was expected")]
    Notation,
    /// A cost at which checking would hurt everybody else.
    #[error(
        "this hash costs {memory_kib} KiB, {passes} passes and {lanes} lanes to check: at most \
         {memory_max} KiB, {passes_max} and {lanes_max} were expected",
        memory_max = PasswordHash::MEMORY_KIB_MAX,
        passes_max = PasswordHash::PASSES_MAX,
        lanes_max = PasswordHash::LANES_MAX
    )]
    Cost {
        /// Memory, in KiB.
        memory_kib: u32,
        /// Passes over it.
        passes: u32,
        /// Lanes.
        lanes: u32,
    },
}

impl Password {
    /// Most bytes in a password.
    pub const BYTES_MAX: usize = 4096;

    /// A new password.
    ///
    /// # Errors
    /// [`PasswordError`] if it is empty or too long.
    pub fn new(text: &str) -> Result<Password, PasswordError> {
        if text.is_empty() {
            return Err(PasswordError::Empty);
        }
        Password::new_or_empty(text)
    }

    /// A new password, which may be empty if that was asked for: then the name of the user is enough to log in.
    ///
    /// # Errors
    /// [`PasswordError::TooLong`].
    pub fn new_or_empty(text: &str) -> Result<Password, PasswordError> {
        if text.len() > Password::BYTES_MAX {
            return Err(PasswordError::TooLong(text.len()));
        }
        Ok(Password(text.to_owned()))
    }

    /// A password as it was sent, to be checked. A text that is too long stays too long to match.
    pub fn attempt(text: &str) -> Password {
        Password(record::excerpt(text, Password::BYTES_MAX + 1).into())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash of this password under `salt`, 16 random bytes. Slow: see the module.
    pub fn hash(&self, salt: [u8; 16]) -> PasswordHash {
        self.hash_at(PasswordHash::MEMORY_KIB, PasswordHash::PASSES, salt)
    }

    /// A hash at the least cost, as earlier versions stored a generated password, and for tests.
    #[doc(hidden)]
    pub fn cheap_hash(&self, salt: [u8; 16]) -> PasswordHash {
        self.hash_at(Params::MIN_M_COST, Params::MIN_T_COST, salt)
    }

    fn hash_at(&self, memory_kib: u32, passes: u32, salt: [u8; 16]) -> PasswordHash {
        let params = Params::new(memory_kib, passes, 1, None)
            .expect("the constants are within argon2's bounds");
        let hash = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_with_salt(self.0.as_bytes(), &salt)
            .expect("16 bytes of salt and a few KiB of password are within argon2's bounds");
        PasswordHash(hash.to_string().into())
    }
}

impl PasswordHash {
    /// Memory that a new hash costs, in KiB: OWASP's first choice for argon2id.
    pub(crate) const MEMORY_KIB: u32 = 19_456;
    /// Passes over that memory.
    pub(crate) const PASSES: u32 = 2;

    /// Most memory that a hash may cost, in KiB; devpi's cost 65,536.
    pub(crate) const MEMORY_KIB_MAX: u32 = 1 << 20;
    /// Most passes.
    pub(crate) const PASSES_MAX: u32 = 64;
    /// Most lanes.
    pub(crate) const LANES_MAX: u32 = 64;

    /// The cost of a new hash, as [`PasswordHash::cost`] says it.
    pub(crate) const COST: &str = "$argon2id$v=19$m=19456,t=2,p=1";

    /// A hash that matches no password, at the cost of a new one.
    pub(crate) fn dummy() -> PasswordHash {
        PasswordHash::dummy_at(PasswordHash::COST)
    }

    /// A hash that matches no password, at this cost: checked if the user does not exist, so that the response time does not
    /// reveal that.
    pub(crate) fn dummy_at(cost: &str) -> PasswordHash {
        const NOBODYS: &str = "$bm9ib2R5bm9ib2R5bm9ibw$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        PasswordHash(format!("{cost}{NOBODYS}").into())
    }

    /// What a check costs: algorithm and parameters. A check of a cheaper hash than a new one is made to cost as much.
    pub(crate) fn cost(&self) -> &str {
        if self.is_cheap() { PasswordHash::COST } else { self.own_cost() }
    }

    fn own_cost(&self) -> &str {
        self.0.rsplitn(3, '$').nth(2).unwrap_or_default()
    }

    /// Whether it costs less than a new one.
    fn is_cheap(&self) -> bool {
        let hash = phc::PasswordHash::new(&self.0).ok();
        let params = hash.and_then(|hash| Params::try_from(&hash).ok());
        let cost = params.map_or(0, |it| u64::from(it.m_cost()) * u64::from(it.t_cost()));
        cost < u64::from(PasswordHash::MEMORY_KIB) * u64::from(PasswordHash::PASSES)
    }

    /// The PHC string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `password` is the one that was hashed; takes the same time for every wrong one, and never less than for a new
    /// hash: the time must not tell that a password is one of the cheap kind. Slow: see the module.
    pub fn verify(&self, password: &Password) -> bool {
        if self.is_cheap() {
            std::hint::black_box(PasswordHash::dummy().matches(password));
        }
        self.matches(password)
    }

    fn matches(&self, password: &Password) -> bool {
        phc::PasswordHash::new(&self.0).is_ok_and(|hash| {
            Argon2::default().verify_password(password.0.as_bytes(), &hash).is_ok()
        })
    }
}

impl FromStr for PasswordHash {
    type Err = PasswordHashError;

    /// Reads a PHC string of argon2id, argon2i or argon2d.
    fn from_str(text: &str) -> Result<PasswordHash, PasswordHashError> {
        let hash = phc::PasswordHash::new(text).map_err(|_| PasswordHashError::Notation)?;
        let is_complete = hash.salt.is_some() && hash.hash.is_some();
        let is_argon2 = Algorithm::try_from(hash.algorithm.as_str()).is_ok();
        let params = Params::try_from(&hash).ok();
        let Some(params) = params.filter(|_| is_complete && is_argon2) else {
            return Err(PasswordHashError::Notation);
        };
        let (memory_kib, passes, lanes) = (params.m_cost(), params.t_cost(), params.p_cost());
        if memory_kib > PasswordHash::MEMORY_KIB_MAX
            || passes > PasswordHash::PASSES_MAX
            || lanes > PasswordHash::LANES_MAX
        {
            return Err(PasswordHashError::Cost { memory_kib, passes, lanes });
        }
        Ok(PasswordHash(text.into()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(…)")
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PasswordHash({}$…)", self.own_cost())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(hash: &str, password: &str, is_right: bool) {
        let hash: PasswordHash = hash.parse().expect("a hash");
        assert_eq!(hash.verify(&Password::attempt(password)), is_right, "{password}");
    }

    /// Made with argon2-cffi at the cost that devpi's passwords have.
    const DEVPIS: &str = "$argon2id$v=19$m=65536,t=3,p=4$MEb+kMiKP6EI35uqLe6GoA\
                          $l8YFys16tyxUyENBtbog/bNFDGi9la6Ne0pclX+jV+8";
    /// The hash of the empty password, which devpi's `root` has at first. Made in the same way.
    const DEVPIS_EMPTY: &str = "$argon2id$v=19$m=65536,t=3,p=4$FSyZGFQ8REFdB5/H5bv1ew\
                                $h5swiAwbJv1nwhmEn5xL/GHrV3MJel6pfx3xh6J8+cc";
    /// Argon2i, as older installations have it.
    const OLDER: &str = "$argon2i$v=19$m=1024,t=2,p=2$gKPTIanakk3p11rRaD0R8w\
                         $wJRcwlK6dbbFbler8tx0DqtmLjm8+q+uhI22FxLXTJw";

    #[test]
    fn hashes_of_devpi_are_checked() {
        check(DEVPIS, "correct horse", true);
        check(DEVPIS, "correct horsf", false);
        check(DEVPIS, "", false);
        check(DEVPIS_EMPTY, "", true);
        check(DEVPIS_EMPTY, " ", false);
        check(OLDER, "pässword", true);
        check(OLDER, "passwort", false);
        let hash: PasswordHash = DEVPIS.parse().expect("a hash");
        assert_eq!(format!("{hash:?}"), "PasswordHash($argon2id$v=19$m=65536,t=3,p=4$…)");
    }

    #[test]
    fn a_hash_knows_its_password() {
        for text in ["", "secret", "ключ"] {
            let password = Password::new_or_empty(text).expect("a password");
            let hash = password.hash([7; 16]);
            assert!(hash.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash:?}");
            assert_eq!(hash.as_str().parse(), Ok(hash.clone()));
            assert!(hash.verify(&password));
            assert!(!hash.verify(&Password::attempt("other")));
            assert_ne!(password.hash([8; 16]), hash);
        }
    }

    /// Earlier versions stored generated passwords so.
    #[test]
    fn a_cheap_hash_is_checked_at_the_cost_of_others() {
        let password = Password::new("3q2-7w4WzN0aXk1b").expect("a password");
        let hash = password.cheap_hash([7; 16]);
        assert!(hash.as_str().starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{hash:?}");
        assert_eq!(hash.as_str().parse(), Ok(hash.clone()));
        assert!(hash.verify(&password));
        assert!(!hash.verify(&Password::attempt("3q2-7w4WzN0aXk1c")));
        assert_eq!(hash.cost(), password.hash([7; 16]).cost());
        let older: PasswordHash = OLDER.parse().expect("a hash");
        assert_eq!(older.cost(), hash.cost());
        let devpis: PasswordHash = DEVPIS.parse().expect("a hash");
        assert_eq!(devpis.cost(), "$argon2id$v=19$m=65536,t=3,p=4");
    }

    #[test]
    fn nobodys_hash_costs_as_much_as_anybodys() {
        let dummy = PasswordHash::dummy();
        assert_eq!(dummy.as_str().parse(), Ok(dummy.clone()));
        let own = Password::attempt("").hash([7; 16]);
        assert_eq!(format!("{dummy:?}"), format!("{own:?}"), "the cost is all that is shown");
        assert!(!dummy.verify(&Password::attempt("")));
    }

    #[test]
    fn other_hashes_are_refused() {
        for bad in [
            "",
            "secret",
            "$argon2id$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ibw",
            "$pbkdf2-sha256$i=1000$bm9ib2R5bm9ib2R5bm9ibw$AAAAAAAAAAAAAAAAAAAAAA",
            &OLDER.replace("argon2i", "argon3"),
        ] {
            assert_eq!(bad.parse::<PasswordHash>(), Err(PasswordHashError::Notation), "{bad}");
        }
        let dear = OLDER.replace("m=1024", "m=4194304").parse::<PasswordHash>();
        let cost = PasswordHashError::Cost { memory_kib: 4_194_304, passes: 2, lanes: 2 };
        assert_eq!(dear, Err(cost));
    }

    proptest! {
        #[test]
        fn whatever_is_given_for_a_hash_is_read_or_refused(
            text in "\\PC{0,80}|\\$argon2(id|i|d)\\$(v=[0-9]{0,3}\\$)?[mtp=,0-9]{0,20}\\$[A-Za-z+/]{0,30}\\$[A-Za-z+/]{0,50}"
        ) {
            if let Ok(hash) = text.parse::<PasswordHash>() {
                prop_assert_eq!(hash.as_str(), text);
            }
        }
    }

    #[test]
    fn new_passwords_are_neither_empty_nor_endless() {
        assert_eq!(Password::new(""), Err(PasswordError::Empty));
        assert!(Password::new_or_empty("").is_ok());
        let long = "x".repeat(4097);
        assert_eq!(Password::new(&long), Err(PasswordError::TooLong(4097)));
        assert_eq!(Password::attempt(&format!("{long}y")).reveal(), long);
        assert_eq!(format!("{:?}", Password::attempt("secret")), "Password(…)");
    }
}
