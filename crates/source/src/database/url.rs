//! [`DatabaseUrl`]: the URL of a MariaDB, checked, and shown without its password.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

/// The form of such a URL.
const FORM: &str =
    "mysql://USER:PASSWORD@HOST/DATABASE or mysql://USER@localhost/DATABASE?socket=/PATH";
/// The parameters that a URL may have.
const PARAMETERS: [&str; 3] = ["socket", "ssl-mode", "ssl-ca"];

/// A database to read. `Display` and `Debug` show neither user nor password.
#[derive(Clone)]
pub struct DatabaseUrl {
    text: String,
    shown: String,
    options: Box<MySqlConnectOptions>,
}

impl DatabaseUrl {
    /// Parses `mysql://` and `mariadb://`.
    ///
    /// # Errors
    /// What is wrong with the text, and what was expected; no password.
    pub fn parse(text: &str) -> Result<DatabaseUrl, String> {
        let refuse = |reason: String| Err(format!("{reason}; expected {FORM}"));
        let Some(("mysql" | "mariadb", rest)) = text
            .split_once("://")
            .map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest))
            .as_ref()
            .map(|(scheme, rest)| (scheme.as_str(), *rest))
        else {
            return refuse("it is not the URL of a MariaDB".to_owned());
        };
        let text = format!("mysql://{rest}");
        let url = match Url::parse(&text) {
            Ok(url) => url,
            Err(error) => return refuse(error.to_string()),
        };
        if url.host_str().is_none_or(str::is_empty) {
            return refuse("it has no host".to_owned());
        }
        if url.username().is_empty() {
            return refuse("it has no user".to_owned());
        }
        let database = url.path().trim_start_matches('/');
        if database.is_empty() || database.contains('/') {
            return refuse("it has no name of a database".to_owned());
        }
        if let Some((other, _)) = url.query_pairs().find(|(key, _)| !PARAMETERS.contains(&&**key)) {
            return refuse(format!(
                "the parameter `{other}` is not one of {}",
                PARAMETERS.join(", ")
            ));
        }
        if url.fragment().is_some() {
            return refuse("it has a part after `#`".to_owned());
        }
        let mut options = match MySqlConnectOptions::from_str(&text) {
            Ok(options) => Box::new(options),
            Err(error) => return refuse(error.to_string()),
        };
        if url.query_pairs().any(|(key, _)| key == "ssl-ca") {
            let mode = url.query_pairs().find(|(key, _)| key == "ssl-mode");
            match mode.as_ref().map(|(_, mode)| mode.to_ascii_uppercase().replace('-', "_")) {
                // As for MariaDB's own client: who names an authority wants certificates to be checked.
                None => *options = options.ssl_mode(MySqlSslMode::VerifyCa),
                Some(mode) if mode.starts_with("VERIFY_") => {}
                Some(mode) => {
                    return refuse(format!(
                        "with `ssl-mode={mode}` the certificates of `ssl-ca` are not used: expected VERIFY_CA or VERIFY_IDENTITY"
                    ));
                }
            }
        }
        let mut shown = url.clone();
        let _ = shown.set_password(None);
        let _ = shown.set_username("***");
        Ok(DatabaseUrl { text, shown: shown.into(), options })
    }

    /// The whole text, with its password.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn options(&self) -> &MySqlConnectOptions {
        &self.options
    }
}

impl PartialEq for DatabaseUrl {
    fn eq(&self, other: &DatabaseUrl) -> bool {
        self.text == other.text
    }
}

impl Eq for DatabaseUrl {}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects the URL as it is shown, or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = DatabaseUrl::parse(text).map_or_else(|error| error, |url| url.to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn urls_are_checked_and_shown_without_secrets() {
        check("mysql://aur:hunter2@db.example:3307/aur", "mysql://***@db.example:3307/aur");
        check("MariaDB://aur@db/aur", "mysql://***@db/aur");
        let socket = "mysql://aur@localhost/aur?socket=/run/mysqld/mysqld.sock";
        check(socket, "mysql://***@localhost/aur?socket=/run/mysqld/mysqld.sock");
        for (text, reason) in [
            ("mysql://aur:hunter2@/aur", "empty host"),
            ("mysql://db/aur", "it has no user"),
            ("mysql://aur@db", "it has no name of a database"),
            ("mysql://aur@db/", "it has no name of a database"),
            ("mysql://aur@db/aur/more", "it has no name of a database"),
            ("mysql://aur@db/aur#x", "it has a part after `#`"),
            (
                "mysql://aur@db/aur?sokcet=/x",
                "the parameter `sokcet` is not one of socket, ssl-mode, ssl-ca",
            ),
            ("postgres://aur@db/aur", "it is not the URL of a MariaDB"),
            (
                "mysql://aur@db/aur?ssl-ca=/ca.pem&ssl-mode=REQUIRED",
                "with `ssl-mode=REQUIRED` the certificates of `ssl-ca` are not used: expected VERIFY_CA or VERIFY_IDENTITY",
            ),
        ] {
            check(text, &format!("{reason}; expected {FORM}"));
        }
        for (mode, expected) in [
            ("", "VerifyCa"),
            ("&ssl-mode=VERIFY_IDENTITY", "VerifyIdentity"),
            ("&ssl-mode=verify_ca", "VerifyCa"),
        ] {
            let url = DatabaseUrl::parse(&format!("mysql://aur@db/aur?ssl-ca=/ca.pem{mode}"));
            let mode = url.expect("a URL").options().get_ssl_mode();
            assert_eq!(format!("{mode:?}"), expected);
        }
        let url = DatabaseUrl::parse("mysql://aur:hunter2@db/aur").unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
