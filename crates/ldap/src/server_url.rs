//! [`ServerUrl`]: where a directory is.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// `ldap://HOST:PORT` or `ldaps://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Whether the connection is encrypted from its beginning.
    pub(crate) is_ldaps: bool,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
}

/// Text that is no such URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ldap://HOST or ldaps://HOST was expected, with a port if it is not 389 or 636")]
pub struct ServerUrlError;

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<ServerUrl, ServerUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(ServerUrlError)?;
        let is_ldaps = match scheme.to_ascii_lowercase().as_str() {
            "ldap" => false,
            "ldaps" => true,
            _ => return Err(ServerUrlError),
        };
        // By the rules for https, which know hosts.
        let url = Url::parse(&format!("https://{rest}")).map_err(|_| ServerUrlError)?;
        let is_plain = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        // The usual port of https is left out by the parser.
        let names_443 = rest.trim_end_matches('/').ends_with(":443");
        let usual = if is_ldaps { 636 } else { 389 };
        let port = url.port().unwrap_or(if names_443 { 443 } else { usual });
        let host = url.host().map(|host| host.to_owned()).filter(|_| is_plain && port != 0);
        Ok(ServerUrl { is_ldaps, host: host.ok_or(ServerUrlError)?, port })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_ldaps { "ldaps" } else { "ldap" };
        write!(formatter, "{scheme}://{}", self.host)?;
        match (self.is_ldaps, self.port) {
            (false, 389) | (true, 636) => Ok(()),
            (_, port) => write!(formatter, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_they_are_written() {
        for text in [
            "ldap://directory.example",
            "ldaps://directory.example",
            "ldap://127.0.0.1:3890",
            "ldaps://[::1]:1636",
            "ldap://directory.example:443",
            "ldap://directory.example:636",
        ] {
            assert_eq!(text.parse::<ServerUrl>().expect(text).to_string(), text);
        }
        let long = "LDAP://directory.example:389/".parse::<ServerUrl>().expect("a URL");
        assert_eq!(long.to_string(), "ldap://directory.example");
        for bad in [
            "",
            "directory.example",
            "http://directory.example",
            "ldap://",
            "ldap://a b",
            "ldap://user@directory.example",
            "ldap://directory.example/dc=x",
            "ldap://directory.example?x",
            "ldap://directory.example:0",
            "ldapi:///var/run",
        ] {
            assert_eq!(bad.parse::<ServerUrl>(), Err(ServerUrlError), "{bad}");
        }
    }
}
