//! [`Issuer`]: an issuer, as the configuration names it: `KIND URL`, or `KIND URL JWKS-URL`.

use std::fmt;
use std::str::FromStr;

use account::{IssuerKind, IssuerKindError};
use reqwest::Url;

/// An issuer of identities of CI jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// What its claims mean.
    pub kind: IssuerKind,
    /// Its URL, exactly as its tokens have it.
    pub url: String,
    /// Where its keys are, if not where its discovery document says.
    pub jwks_url: Option<String>,
}

/// Text that is no issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// Not two or three words.
    #[error("`{0}` has not two or three words")]
    Words(String),
    /// The first word.
    #[error(transparent)]
    Kind(#[from] IssuerKindError),
    /// A URL that is not safe to fetch keys from.
    #[error("`{0}` is no https:// URL, or has a user, a fragment or a query")]
    Url(String),
}

/// Whether keys may be fetched from this URL.
pub fn is_safe_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let is_here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    (url.scheme() == "https" || (url.scheme() == "http" && is_here))
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
}

impl FromStr for Issuer {
    type Err = IssuerError;

    fn from_str(text: &str) -> Result<Issuer, IssuerError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kind, url, jwks_url) = match words[..] {
            [kind, url] => (kind, url, None),
            [kind, url, jwks_url] => (kind, url, Some(jwks_url)),
            _ => return Err(IssuerError::Words(record::excerpt(text, 200).into())),
        };
        let unsafe_url = [Some(url), jwks_url].into_iter().flatten().find(|url| !is_safe_url(url));
        if let Some(url) = unsafe_url.or(Some(url).filter(|url| url.contains('?'))) {
            return Err(IssuerError::Url(url.to_owned()));
        }
        let (kind, jwks_url) = (kind.parse()?, jwks_url.map(str::to_owned));
        Ok(Issuer { kind, url: url.to_owned(), jwks_url })
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.url)?;
        self.jwks_url.iter().try_for_each(|url| write!(formatter, " {url}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_read_as_it_is_written() {
        for text in [
            "github https://ci.example",
            "generic https://ci.example/a/",
            "google https://ci.example https://keys.example/jwks?v=3",
            "gitlab http://127.0.0.1:8080",
        ] {
            assert_eq!(text.parse::<Issuer>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn keys_come_over_https() {
        for bad in [
            "",
            "github",
            "moon https://ci.example",
            "github ci.example",
            "github http://ci.example",
            "github http://127.0.0.1.ci.example",
            "github https://user@ci.example",
            "github https://ci.example?x",
            "github https://ci.example#x",
            "github https://ci.example http://keys.example",
            "github https://ci.example https://keys.example more",
        ] {
            assert!(bad.parse::<Issuer>().is_err(), "{bad}");
        }
    }
}
