//! Shared by the command line and HTTP: users and tokens as JSON, what a token is limited to, and until when it is valid.
//!
//! [`user_json`] and [`token_json`] contain no secret, not even as a hash.

use std::str::FromStr;

use account::{IndexPatternError, Limits, Scope, Token, User};
use article::{ArticleName, ArticleNameError};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, civil};
use pypi::{ProjectName, ProjectNameError};
use record::escaped_excerpt;
use serde_json::{Value, json};

/// A user as an object; `tokens`: how many they have.
pub fn user_json(user: &User, tokens: usize) -> Value {
    json!({
        "name": user.name.as_str(),
        "groups": user.groups.iter().map(|group| group.as_str()).collect::<Vec<_>>(),
        "email": user.email,
        "title": user.title,
        "is_administrator": user.is_administrator(),
        "is_disabled": user.is_disabled,
        "has_password": user.password_hash.is_some(),
        "tokens": tokens,
        "created_at": shown(user.created_at),
        "modified_at": user.modified_at.map(shown),
    })
}

/// A token as an object, at `now`; `used_at`: its last use, as far as it is known.
pub fn token_json(token: &Token, used_at: Option<Timestamp>, now: Timestamp) -> Value {
    let limits = token.limits.as_deref();
    json!({
        "id": token.id.to_string(),
        "user": token.user.as_str(),
        "scopes": token.scopes.iter().map(Scope::as_str).collect::<Vec<_>>(),
        "is_limited": token.limits.is_some(),
        "indexes": limits.map(|it| it.indexes().collect::<Vec<_>>()).unwrap_or_default(),
        "projects": limits.map(|it| it.projects().collect::<Vec<_>>()).unwrap_or_default(),
        "prefixes": limits.map(|it| it.prefixes().collect::<Vec<_>>()).unwrap_or_default(),
        "comment": token.comment,
        "created_at": shown(token.created_at),
        "expires_at": token.expires_at.map(shown),
        "is_expired": token.is_expired(now),
        "last_used_at": used_at.map(shown),
    })
}

/// Text that a token cannot be limited to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No index.
    #[error(transparent)]
    Index(#[from] IndexPatternError),
    /// No project.
    #[error(transparent)]
    Project(#[from] ProjectNameError),
    /// No beginning of articles' names.
    #[error(
        "`{prefix}` is not a prefix of article names: {source}; such as `/docs/` was expected, or `/` for all"
    )]
    Prefix {
        /// The text.
        prefix: String,
        /// What is wrong with the name.
        source: ArticleNameError,
    },
}

/// The project that is meant, in its normalized form.
///
/// # Errors
/// [`LimitError::Project`].
pub fn project(text: &str) -> Result<String, LimitError> {
    Ok(ProjectName::parse(text)?.into())
}

/// The prefix that is meant, without slashes around it: `/docs/` and `docs` are one; `/` means all articles.
///
/// # Errors
/// [`LimitError::Prefix`].
pub fn prefix(text: &str) -> Result<String, LimitError> {
    if text == "/" {
        return Ok(String::new());
    }
    let wrong = |source| {
        let prefix = escaped_excerpt(text, 300);
        LimitError::Prefix { prefix, source }
    };
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    // A prefix may end as no name may: in a number, such as a year.
    let below = match inner {
        "" => ArticleName::parse(inner),
        inner => ArticleName::parse(&format!("{inner}/x")),
    };
    let below = below.map_err(wrong)?;
    Ok(below.as_str().strip_suffix("/x").unwrap_or_default().to_owned())
}

/// Parses the limits of a token, if there are any.
///
/// # Errors
/// [`LimitError`] for the first that is wrong.
pub fn limits(
    indexes: &[String],
    projects: &[String],
    prefixes: &[String],
) -> Result<Option<Limits>, LimitError> {
    let indexes = indexes.iter().map(|text| text.parse());
    let indexes = indexes.collect::<Result<_, IndexPatternError>>()?;
    let projects = projects.iter().map(|text| project(text)).collect::<Result<_, _>>()?;
    let prefixes = prefixes.iter().map(|text| prefix(text)).collect::<Result<_, _>>()?;
    Ok(Limits::new(indexes, projects, prefixes))
}

/// A time for people: UTC, whole seconds.
pub fn shown(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// When a token expires, as a request or a command line gives it.
#[derive(Clone, Copy, Debug)]
pub enum Expiry {
    /// Until it is revoked.
    Never,
    /// Then.
    At(TokenEnd),
}

/// The end of a token that does expire.
#[derive(Clone, Copy, Debug)]
pub enum TokenEnd {
    /// Then.
    At(Timestamp),
    /// After this time.
    After(Span),
}

/// Text that says no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no time to expire at; expected: a length such as `90d`, a date such as `2027-01-01`, a time such as \
     `2027-01-01T12:00:00Z`"
)]
pub struct TokenEndError(String);

/// Text that says no time, where a token may be valid for ever. Its message has that of the other, which is no source: whoever
/// prints a chain of errors would print it twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or `never`")]
pub struct ExpiryError(TokenEndError);

impl Expiry {
    /// When a token that is made at `now` expires; `None` for never.
    ///
    /// # Errors
    /// [`ExpiryError`] beyond the end of time, in the year 9999.
    pub fn at(self, now: Timestamp) -> Result<Option<Timestamp>, ExpiryError> {
        match self {
            Expiry::Never => Ok(None),
            Expiry::At(end) => end.at(now).map(Some).map_err(ExpiryError),
        }
    }
}

impl FromStr for Expiry {
    type Err = ExpiryError;

    /// Reads `never`, or the end of a token.
    fn from_str(text: &str) -> Result<Expiry, ExpiryError> {
        match text.trim().eq_ignore_ascii_case("never") {
            true => Ok(Expiry::Never),
            false => text.parse().map(Expiry::At).map_err(ExpiryError),
        }
    }
}

impl TokenEnd {
    /// The end of a token that is made at `now`.
    ///
    /// # Errors
    /// [`TokenEndError`] beyond the end of time, in the year 9999.
    pub fn at(self, now: Timestamp) -> Result<Timestamp, TokenEndError> {
        match self {
            TokenEnd::At(time) => Ok(time),
            TokenEnd::After(span) => {
                let time = now.to_zoned(TimeZone::UTC).checked_add(span);
                let time = time.map_err(|_| TokenEndError(format!("{span:#}")))?;
                Ok(time.timestamp())
            }
        }
    }
}

impl FromStr for TokenEnd {
    type Err = TokenEndError;

    /// Reads a date (its beginning in UTC), a time with its offset, or a length of time.
    fn from_str(text: &str) -> Result<TokenEnd, TokenEndError> {
        let text = text.trim();
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(TokenEnd::At(time));
        }
        // A longer text would be a time without an offset, and none may be assumed.
        if text.len() == "2027-01-01".len()
            && let Ok(date) = text.parse::<civil::Date>()
            && let Ok(midnight) = date.to_zoned(TimeZone::UTC)
        {
            return Ok(TokenEnd::At(midnight.timestamp()));
        }
        let error = || TokenEndError(escaped_excerpt(text, 80));
        text.parse().map(TokenEnd::After).map_err(|_| error())
    }
}

/// A length of time that ends now, as in `90d`.
#[derive(Clone, Copy, Debug)]
pub struct Age(Span);

/// Text that is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a length of time: such as `90d` or `6 months` was expected")]
pub struct AgeError(String);

impl Age {
    /// When it began; the beginning of time for one that is too long.
    pub fn before(self, now: Timestamp) -> Timestamp {
        let began = now.to_zoned(TimeZone::UTC).checked_sub(self.0.abs());
        began.map_or(Timestamp::MIN, |began| began.timestamp())
    }
}

impl FromStr for Age {
    type Err = AgeError;

    fn from_str(text: &str) -> Result<Age, AgeError> {
        let error = || escaped_excerpt(text, 80);
        text.trim().parse().map(Age).map_err(|_| AgeError(error()))
    }
}

/// Whether a token was neither made nor used since `since`; `used_at`: its last use, as far as it is known.
pub fn is_unused_since(token: &Token, used_at: Option<Timestamp>, since: Timestamp) -> bool {
    last_sign(token, used_at) < since
}

/// When a token was used last, or else made.
pub fn last_sign(token: &Token, used_at: Option<Timestamp>) -> Timestamp {
    used_at.map_or(token.created_at, |used_at| used_at.max(token.created_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares when a token that is made at the beginning of 2026 expires.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let found = text.parse::<Expiry>().and_then(|expiry| expiry.at(now));
        let found = match found {
            Ok(time) => time.map_or_else(|| "never".to_owned(), shown),
            // As a chain of errors is printed: each is said once.
            Err(error) => format!("{:#}", anyhow::Error::new(error)),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn until_when() {
        check("never", "never");
        check("Never", "never");
        check("90d", "2026-04-01T00:00:00Z");
        check("1h 30m", "2026-01-01T01:30:00Z");
        check("2 weeks", "2026-01-15T00:00:00Z");
        check("1y", "2027-01-01T00:00:00Z");
        check("P1M", "2026-02-01T00:00:00Z");
        check("2027-01-01", "2027-01-01T00:00:00Z");
        check("2027-01-01T12:00:00+02:00", "2027-01-01T10:00:00Z");
        for bad in ["", "soon", "90", "2027-13-01", "2027-01-01T12:00:00", "9000y", "-"] {
            check(
                bad,
                &format!(
                    "`{bad}` is no time to expire at; expected: a length such as `90d`, a date such as `2027-01-01`, \
                     a time such as `2027-01-01T12:00:00Z`, or `never`"
                ),
            );
        }
    }

    #[test]
    fn what_a_token_is_limited_to() {
        let check = |kind: &str, text: &str, expected: &str| {
            let list = [text.to_owned()];
            let found = match kind {
                "index" => limits(&list, &[], &[]),
                "project" => limits(&[], &list, &[]),
                _ => limits(&[], &[], &list),
            };
            let found = match found {
                Ok(limits) => limits.expect("something").to_string(),
                Err(error) => error.to_string(),
            };
            assert!(found.starts_with(expected), "{kind} {text}: {found}");
        };
        check("index", "/team/dev/", "team/dev");
        check("index", "team/*", "team/*");
        check("index", "team", "`team` is not the name of an index");
        check("project", "Foo.Bar", "project `foo-bar`");
        check("project", "foo/bar", "\"foo/bar\" is not a valid project name");
        for text in ["/docs/", "docs", "docs/", "/docs"] {
            check("prefix", text, "articles below `/docs/`");
        }
        check("prefix", "/2024/x/", "articles below `/2024/x/`");
        check("prefix", "/notes/2024/", "articles below `/notes/2024/`");
        check("prefix", "/", "articles below `/`");
        for text in ["", "//", "/docs//", "a/../b", " "] {
            check("prefix", text, &format!("`{text}` is not a prefix of article names: "));
        }
        assert_eq!(limits(&[], &[], &[]), Ok(None));
    }
}
