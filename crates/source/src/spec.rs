//! [`SourceSpec`]: the setting that names a source, a path or a URL. It is parsed once, and shown without secrets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use reqwest::Url;
use sha2::{Digest, Sha256};

use super::{DatabaseUrl, SourceError};

const ACCEPTED: &str = "expected a path, or a URL that begins with http://, https:// or mysql://";

/// Where a dump comes from. `Display` and `Debug` mask credentials, so either may be logged.
#[derive(Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// A file of this machine, absolute or relative to the working directory.
    File(PathBuf),
    /// An `http` or `https` URL with a host; it may hold credentials.
    Url(Url),
    /// A MariaDB with aurweb's tables; its URL may hold a password.
    Database(Box<DatabaseUrl>),
}

impl SourceSpec {
    /// Parses a path, an `http(s)://` URL, a `file://` URL (which becomes its path), or the `mysql://` URL of a database.
    ///
    /// # Errors
    /// [`SourceError::Spec`] if the text is empty, has another scheme, or is a URL without a host.
    pub fn parse(text: &str) -> Result<SourceSpec, SourceError> {
        let text = text.trim();
        let refuse = |reason: String| SourceError::Spec { text: mask_text(text), reason };
        if text.is_empty() {
            return Err(refuse(format!("it is empty; {ACCEPTED}")));
        }
        let Some(scheme) = scheme(text) else {
            return Ok(SourceSpec::File(PathBuf::from(text)));
        };
        match scheme.as_str() {
            "http" | "https" => match Url::parse(text) {
                Ok(url) if url.has_host() => Ok(SourceSpec::Url(url)),
                Ok(_) => Err(refuse(format!("the URL has no host; {ACCEPTED}"))),
                Err(error) => Err(refuse(format!("{error}; {ACCEPTED}"))),
            },
            "file" => Url::parse(text)
                .ok()
                .and_then(|url| url.to_file_path().ok())
                .map(SourceSpec::File)
                .ok_or_else(|| refuse(format!("a file:// URL needs an absolute path; {ACCEPTED}"))),
            "mysql" | "mariadb" => DatabaseUrl::parse(text)
                .map(|url| SourceSpec::Database(Box::new(url)))
                .map_err(refuse),
            other => Err(refuse(format!("the scheme `{other}` is not supported; {ACCEPTED}"))),
        }
    }

    /// Identifies this source in the data directory without revealing it: the SHA-256 of the whole text, in
    /// hexadecimal.
    pub(crate) fn fingerprint(&self) -> String {
        match self {
            SourceSpec::File(path) => {
                sha256_hex(&[b"file:", path.as_os_str().as_encoded_bytes()].concat())
            }
            SourceSpec::Url(url) => sha256_hex(&[b"url:", url.as_str().as_bytes()].concat()),
            SourceSpec::Database(url) => {
                sha256_hex(&[b"database:", url.text().as_bytes()].concat())
            }
        }
    }
}

impl FromStr for SourceSpec {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<SourceSpec, SourceError> {
        SourceSpec::parse(text)
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceSpec::File(path) => path.display().fmt(out),
            SourceSpec::Url(url) => out.write_str(&mask_url(url)),
            SourceSpec::Database(url) => url.fmt(out),
        }
    }
}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            SourceSpec::File(_) => "File",
            SourceSpec::Url(_) => "Url",
            SourceSpec::Database(_) => "Database",
        };
        write!(out, "{kind}({self})")
    }
}

/// The scheme in lower case: letters, digits, `+`, `-`, `.` before `://`. `http:` and `https:` count even without the
/// slashes, because nobody means a file by them.
fn scheme(text: &str) -> Option<String> {
    let (head, rest) = text.split_once(':')?;
    let head = head.to_ascii_lowercase();
    let well_formed = head.starts_with(|first: char| first.is_ascii_alphabetic())
        && head.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char));
    let counts = rest.starts_with("//") || head == "http" || head == "https";
    (well_formed && counts).then_some(head)
}

/// The URL in the form that may be logged: user, password and the values of the query become `***`, since tokens and
/// signed links occur in each of the three. The fragment is left out, as it is never sent.
pub(crate) fn mask_url(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_fragment(None);
    let has_user = !url.username().is_empty() || url.password().is_some();
    // Both setters refuse only URLs without a host, and such a URL has no user to mask.
    let _ = shown.set_password(None);
    let _ = shown.set_username(if has_user { "***" } else { "" });
    if let Some(query) = url.query() {
        let masked: Vec<String> = query
            .split('&')
            .map(|pair| match pair.split_once('=') {
                Some((name, _)) => format!("{name}=***"),
                None => "***".to_owned(),
            })
            .collect();
        shown.set_query(Some(&masked.join("&")));
    }
    shown.into()
}

/// Masks the secrets of a text that is not a supported URL, as far as its parts can be recognized.
fn mask_text(text: &str) -> String {
    if let Ok(url) = Url::parse(text) {
        return mask_url(&url);
    }
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, rest)) => format!("{scheme}://***@{rest}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

/// The SHA-256 of these bytes in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects the source as it is shown, after `file ` or `url `, or the error.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match SourceSpec::parse(text) {
            Ok(spec @ SourceSpec::File(_)) => format!("file {spec}"),
            Ok(spec @ SourceSpec::Url(_)) => format!("url {spec}"),
            Ok(spec @ SourceSpec::Database(_)) => format!("database {spec}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn paths() {
        check(
            "/srv/aur/packages-meta-ext-v1.json.gz",
            "file /srv/aur/packages-meta-ext-v1.json.gz",
        );
        check("dump.json", "file dump.json");
        check("  dump.json\n", "file dump.json");
        check("odd:name", "file odd:name");
        check("C.d/a://b", "file C.d/a://b");
        check("file:///srv/a%20b.json", "file /srv/a b.json");
    }

    #[test]
    fn urls() {
        check("https://example.org/a.gz", "url https://example.org/a.gz");
        check("HTTP://Example.org:8080/a.gz#x", "url http://example.org:8080/a.gz");
        check("http:/example.org/a", "url http://example.org/a");
    }

    #[test]
    fn databases() {
        check("mysql://aur:secret@localhost/aur", "database mysql://***@localhost/aur");
    }

    #[test]
    fn secrets_are_masked() {
        check("https://user:secret@example.org/a", "url https://***@example.org/a");
        check("https://token@example.org/a", "url https://***@example.org/a");
        check("https://:secret@example.org/a", "url https://***@example.org/a");
        check("https://example.org/a?sig=secret&x", "url https://example.org/a?sig=***&***");
        let spec = SourceSpec::parse("https://user:secret@example.org/?t=secret").unwrap();
        assert!(!format!("{spec:?}").contains("secret"));
    }

    #[test]
    fn others_are_refused() {
        let accepted = "expected a path, or a URL that begins with http://, https:// or mysql://";
        check("", &format!("`` is not a source of a dump: it is empty; {accepted}"));
        check(
            "mongodb://aur:secret@localhost/aur",
            &format!(
                "`mongodb://***@localhost/aur` is not a source of a dump: the scheme `mongodb` is not supported; {accepted}"
            ),
        );
        check(
            "s3://key:secret@[broken/x",
            &format!(
                "`s3://***@[broken/x` is not a source of a dump: the scheme `s3` is not supported; {accepted}"
            ),
        );
        check("http://", &format!("`http://` is not a source of a dump: empty host; {accepted}"));
        check(
            "file://relative",
            &format!(
                "`file://relative/` is not a source of a dump: a file:// URL needs an absolute path; {accepted}"
            ),
        );
    }

    #[test]
    fn fingerprints_tell_sources_apart_and_hide_them() {
        let first = SourceSpec::parse("https://user:a@example.org/").unwrap();
        let second = SourceSpec::parse("https://user:b@example.org/").unwrap();
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint(), first.clone().fingerprint());
        assert_eq!(first.fingerprint().len(), 64);
    }
}
