//! [`Credentials`]: what a request shows to identify its sender.
//!
//! Installers and uploaders know a user name and a password, so all three kinds of credentials are sent like that: in
//! `Authorization: Basic`, and in devpi's own `X-Devpi-Auth`, which has only the base64. A token says itself whose it is: it is
//! sent as the password of any user name, or as the user name with an empty password. A login is sent as the password of its
//! user. `Bearer` takes a token or a login alone. Parsing them looks nothing up and checks no secret.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::{LoginText, NameError, Password, TokenText, UserName};

/// What a request shows to identify its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The claimed user.
        user: UserName,
        /// The password.
        password: Password,
    },
    /// A token.
    Token(TokenText),
    /// A login.
    Login {
        /// The claimed user besides the one in the login, if one was sent.
        user: Option<UserName>,
        /// The login.
        login: LoginText,
    },
}

/// A header that holds no credentials. devpi takes its sender for anonymous. No text repeats the header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// More than [`Credentials::HEADER_BYTES_MAX`].
    #[error("credentials of {0} bytes are too long: at most {max} were expected", max = Credentials::HEADER_BYTES_MAX)]
    TooLong(usize),
    /// Another way of authentication.
    #[error("the credentials are of an unknown scheme: `Basic` or `Bearer` was expected")]
    Scheme,
    /// Not base64.
    #[error("the credentials are not base64: that of `user:password` was expected")]
    Base64,
    /// Nothing between the user and the password.
    #[error("the credentials have no colon: `user:password` was expected")]
    Colon,
    /// No user can have this name.
    #[error(transparent)]
    UserName(#[from] NameError),
    /// `__token__` with another password than a token, or `Bearer` with something else.
    #[error("the credentials are not a token: `larder_…` was expected")]
    Token,
}

/// Python's clients pad, others do not always.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Credentials {
    /// Most bytes in a header that is read.
    pub const HEADER_BYTES_MAX: usize = 16_384;

    /// The user name that says "the password is a token", and cannot come with another password.
    pub const TOKEN_USER: &'static str = "__token__";

    /// Parses the value of `Authorization`.
    ///
    /// # Errors
    /// [`CredentialsError`], depending on what is wrong.
    pub fn from_authorization(value: &[u8]) -> Result<Credentials, CredentialsError> {
        check_length(value)?;
        let value = value.trim_ascii();
        let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, rest) = value.split_at(end);
        let rest = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"Basic") {
            return Credentials::from_base64(rest);
        }
        if scheme.eq_ignore_ascii_case(b"Bearer") {
            let text = std::str::from_utf8(rest).map_err(|_| CredentialsError::Token)?;
            return Credentials::from_token_text(None, text).ok_or(CredentialsError::Token);
        }
        Err(CredentialsError::Scheme)
    }

    /// Parses the value of `X-Devpi-Auth`; it wins over `Authorization`, which may be a proxy's.
    ///
    /// # Errors
    /// [`CredentialsError`], depending on what is wrong.
    pub fn from_devpi_auth(value: &[u8]) -> Result<Credentials, CredentialsError> {
        check_length(value)?;
        Credentials::from_base64(value.trim_ascii())
    }

    /// The credentials in a user name and a password, as in the body of a login or in a URL.
    ///
    /// # Errors
    /// [`CredentialsError::UserName`], or [`CredentialsError::Token`] if `__token__` comes without a token.
    pub fn from_user_and_password(
        user: &str,
        password: &str,
    ) -> Result<Credentials, CredentialsError> {
        let token = if password.is_empty() { user } else { password };
        if let Ok(token) = token.parse() {
            return Ok(Credentials::Token(token));
        }
        // A token with a typo must not get into logs as the name of somebody who mistyped a password.
        let is_meant = password.is_empty() && user.starts_with(TokenText::PREFIX);
        if user == Credentials::TOKEN_USER || is_meant {
            return Credentials::from_token_text(None, password).ok_or(CredentialsError::Token);
        }
        let user: UserName = user.parse()?;
        let by_login = Credentials::from_token_text(Some(user.clone()), password);
        Ok(by_login.unwrap_or_else(|| Credentials::Password {
            user,
            password: Password::attempt(password),
        }))
    }

    fn from_token_text(user: Option<UserName>, text: &str) -> Option<Credentials> {
        if let Ok(token) = text.parse() {
            return Some(Credentials::Token(token));
        }
        text.parse().ok().map(|login| Credentials::Login { user, login })
    }

    fn from_base64(value: &[u8]) -> Result<Credentials, CredentialsError> {
        let bytes = BASE64.decode(value).map_err(|_| CredentialsError::Base64)?;
        // Clients write UTF-8, older ones latin-1, where each byte is the character of its number.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect());
        let (user, password) = text.split_once(':').ok_or(CredentialsError::Colon)?;
        Credentials::from_user_and_password(user, password)
    }
}

fn check_length(value: &[u8]) -> Result<(), CredentialsError> {
    let is_short = value.len() <= Credentials::HEADER_BYTES_MAX;
    is_short.then_some(()).ok_or(CredentialsError::TooLong(value.len()))
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{at, name, user};
    use crate::{LOGIN_LIFETIME, LoginSecret};

    fn password(user: &str, password: &str) -> Result<Credentials, CredentialsError> {
        let password = Password::attempt(password);
        Ok(Credentials::Password { user: name(user), password })
    }

    #[track_caller]
    fn check(header: impl AsRef<[u8]>, outcome: Result<Credentials, CredentialsError>) {
        assert_eq!(Credentials::from_authorization(header.as_ref()), outcome);
    }

    fn basic(text: impl AsRef<[u8]>) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(text))
    }

    #[test]
    fn a_user_and_a_password() {
        check("Basic YWxpY2U6c2VjcmV0", password("alice", "secret"));
        check("  basic   YWxpY2U6c2VjcmV0 ", password("alice", "secret"));
        check(basic("alice:a:b"), password("alice", "a:b"));
        check(basic("root:"), password("root", ""));
        check(basic("root:").trim_end_matches('='), password("root", ""));
        check(basic("jürgen:schön"), password("jürgen", "schön"));
        check(basic(b"j\xfcrgen:sch\xf6n"), password("jürgen", "schön"));
        let devpis = Credentials::from_devpi_auth(b"YWxpY2U6c2VjcmV0");
        assert_eq!(devpis, password("alice", "secret"));
    }

    #[test]
    fn a_token_comes_as_a_password_or_alone() {
        let token = TokenText::from_secret([5; 32]);
        let text = token.reveal();
        let it = || Ok(Credentials::Token(token.clone()));
        // Clients have their own ideas of a user name where there is only a token.
        for user in
            ["__token__", "alice", "", "x-access-token", "oauth2", "a b", "../x", "J\u{fc}rgen"]
        {
            check(basic(format!("{user}:{text}")), it());
        }
        check(basic(format!("{text}:")), it());
        check(basic(format!("{text}:{text}")), it());
        check(basic(format!("{text}0:")), Err(CredentialsError::Token));
        check(format!("Bearer {text}"), it());
        check(format!("bearer  {text}"), it());
        let devpis = BASE64_STANDARD.encode(format!("{text}:"));
        assert_eq!(Credentials::from_devpi_auth(devpis.as_bytes()), it());
        check(basic(format!("alice:{text}0")), password("alice", &format!("{text}0")));
        check(basic(format!("__token__:{text}0")), Err(CredentialsError::Token));
        check("Bearer secret", Err(CredentialsError::Token));
        check("Bearer", Err(CredentialsError::Token));
    }

    #[test]
    fn a_login_comes_as_a_password_or_alone() {
        let secret = LoginSecret::new([1; 32]);
        let login = secret.issue(&user("alice", &[]), at(0), LOGIN_LIFETIME);
        let text = login.reveal();
        let of = |user: Option<&str>| {
            Ok(Credentials::Login { user: user.map(name), login: login.clone() })
        };
        check(basic(format!("alice:{text}")), of(Some("alice")));
        check(basic(format!("bob:{text}")), of(Some("bob")));
        check(format!("Bearer {text}"), of(None));
    }

    #[test]
    fn what_is_no_credentials_is_told_apart() {
        check("", Err(CredentialsError::Scheme));
        check("Digest username=alice", Err(CredentialsError::Scheme));
        check("Basic", Err(CredentialsError::Colon));
        check("Basic §", Err(CredentialsError::Base64));
        check(basic("alice"), Err(CredentialsError::Colon));
        let error = "a b".parse::<UserName>().expect_err("no name");
        check(basic("a b:secret"), Err(CredentialsError::UserName(error)));
        check("x".repeat(16_385), Err(CredentialsError::TooLong(16_385)));
    }

    proptest! {
        #[test]
        fn any_user_and_password_arrive(user in "[a-zäö.@_-]{1,20}", secret in "\\PC{0,40}") {
            prop_assume!(user != "." && user != "..");
            let found = Credentials::from_authorization(basic(format!("{user}:{secret}")).as_bytes());
            prop_assert_eq!(found, password(&user, &secret));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Credentials::from_authorization(&bytes);
            let _ = Credentials::from_devpi_auth(&bytes);
            let _ = Credentials::from_authorization(basic(&bytes).as_bytes());
            let _ = Credentials::from_authorization(&[b"Bearer ", bytes.as_slice()].concat());
        }
    }
}
