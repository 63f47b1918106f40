//! The types of values that are more than a number or a word: addresses, networks, sources, secrets.
//!
//! Each is parsed here and nowhere else; none resolves a name, opens a file or shows a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use account::{Acl, GroupLine};
use http::HeaderName;
use issuers::Issuer;
use ldap::{DnTemplate, Filter, Scope, ServerUrl};
use net::{ListenAddress, Network, SocketMode};
use sha2::{Digest, Sha256};
use source::DatabaseUrl;
use store::{BlobLocation, DatabaseLocation};
use tracing::level_filters::LevelFilter;

use super::key::{FromText, FromTexts, Kind, expected};

/// The origin of pages, as browsers name it in `Origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageOrigin {
    /// Every origin.
    Any,
    /// This one: a scheme, a host, and a port if it is not the usual one.
    Named(String),
}

impl FromText for PageOrigin {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let url = reqwest::Url::parse(text).map_err(|_| expected(kind))?;
        let is_fit = matches!(url.scheme(), "http" | "https")
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if is_fit {
            Ok(Self::Named(url.origin().ascii_serialization()))
        } else {
            Err(expected(kind))
        }
    }

    /// As browsers write it: in lower case, without the usual port and without a slash at the end.
    fn to_text(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Named(origin) => origin.clone(),
        }
    }
}

/// Values that say themselves what is wrong with a text.
macro_rules! parsed {
    ($($Type:ty),*) => {$(
        impl FromText for $Type {
            fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
                text.parse().map_err(|error| format!("{error}; {}", expected(kind)))
            }

            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
parsed!(BlobLocation, DatabaseLocation, DnTemplate, Filter, GroupLine, Issuer, ServerUrl);

/// Values of which only the expected form can be said, in a list as alone.
macro_rules! formed {
    ($($Type:ty: $expected:expr),*) => {$(
        impl FromText for $Type {
            fn from_text(text: &str, _: Kind) -> Result<Self, String> {
                text.parse().map_err(|_| expected($expected))
            }

            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
formed!(
    ListenAddress: Kind::Address,
    SocketMode: Kind::Mode,
    Network: Kind::Networks,
    HeaderName: Kind::Header
);

impl FromText for Scope {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        match text {
            "base" => Ok(Self::Base),
            "one" => Ok(Self::One),
            "subtree" => Ok(Self::Subtree),
            _ => Err(expected(kind)),
        }
    }

    fn to_text(&self) -> String {
        Self::NAMES[*self as usize].to_owned()
    }
}

/// The source of the AUR's packages.
#[derive(Clone, PartialEq, Eq)]
pub enum AurSource {
    /// A file, watched for replacement.
    File(PathBuf),
    /// An http or https URL, asked at an interval. It may hold a password: log it through `Display`.
    Url(String),
    /// The database of an aurweb, followed. It may hold a password: log it through `Display`.
    Database(DatabaseUrl),
}

impl FromStr for AurSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() {
                Err(expected(Kind::Source))
            } else {
                Ok(Self::File(text.into()))
            };
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => match reqwest::Url::parse(text) {
                Ok(_) => Ok(Self::Url(text.to_owned())),
                Err(error) => Err(format!("{error}; {}", expected(Kind::Source))),
            },
            "file" if rest.starts_with('/') => Ok(Self::File(rest.into())),
            "mysql" | "mariadb" => DatabaseUrl::parse(text).map(Self::Database),
            _ => Err(expected(Kind::Source)),
        }
    }
}

impl fmt::Display for AurSource {
    /// The source, any password masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&without_password(url)),
            Self::Database(url) => f.write_str(&without_password(url.text())),
        }
    }
}

impl fmt::Debug for AurSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Url(url) => f.debug_tuple("Url").field(&without_password(url)).finish(),
            Self::Database(url) => f.debug_tuple("Database").field(url).finish(),
        }
    }
}

/// The source of a zip of OSV records.
#[derive(Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// A file, watched for replacement.
    File(PathBuf),
    /// An http or https URL, asked at an interval. It may hold a password: log it through `Display`.
    Url(String),
}

impl fmt::Display for BundleSource {
    /// The source, any password masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for BundleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BundleSource({self})")
    }
}

impl FromText for BundleSource {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        match text.parse() {
            Ok(AurSource::File(path)) => Ok(Self::File(path)),
            Ok(AurSource::Url(url)) => Ok(Self::Url(url)),
            Ok(AurSource::Database(_)) | Err(_) => Err(expected(kind)),
        }
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl FromText for AurSource {
    fn from_text(text: &str, _: Kind) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl FromTexts for Acl {
    fn from_texts(texts: &[String], kind: Kind) -> Result<Self, String> {
        let entries = texts.iter().map(String::as_str);
        Acl::from_entries(entries).map_err(|error| format!("{error}; {}", expected(kind)))
    }

    fn to_texts(&self) -> Vec<String> {
        self.entries().iter().map(ToString::to_string).collect()
    }
}

/// Shown instead of a secret.
pub(super) const MASK: &str = "********";

/// `scheme://user:password@host` with user and password masked; any other text unchanged.
pub(super) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// A secret text: it is never printed, and compared without revealing how much of it was right.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether `given` is the secret. Digests are compared, so that the time taken tells nothing about the text.
    pub fn matches(&self, given: &[u8]) -> bool {
        Sha256::digest(self.0.as_bytes()) == Sha256::digest(given)
    }

    /// The secret itself; keep it out of logs and answers.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({MASK})")
    }
}

impl FromText for Secret {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        // Those that are sent in a header lose blanks at the ends, and cannot have control characters. A directory's may have blanks.
        let is_fit = !text.is_empty() && text == text.trim() && !text.chars().any(char::is_control);
        if is_fit { Ok(Self(text.to_owned())) } else { Err(expected(kind)) }
    }

    fn to_text(&self) -> String {
        MASK.to_owned()
    }
}

/// Values that are one of a few words.
macro_rules! words {
    ($(
        $(#[$doc:meta])*
        enum $Type:ident { $($(#[$variant_doc:meta])* $Variant:ident = $word:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Type { $($(#[$variant_doc])* $Variant,)* }

        impl $Type {
            /// The words of the configuration.
            pub(super) const NAMES: &'static [&'static str] = &[$($word),*];
        }

        impl FromText for $Type {
            fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$Variant),)*
                    _ => Err(expected(kind)),
                }
            }

            fn to_text(&self) -> String {
                Self::NAMES[*self as usize].to_owned()
            }
        }
    )*};
}
words! {
    /// Form of the log.
    enum LogFormat {
        /// Text on a terminal, JSON otherwise.
        Auto = "auto",
        /// A line for people.
        Text = "text",
        /// A JSON object per line.
        Json = "json",
    }

    /// Which blobs a follower fetches.
    enum FollowBlobs {
        /// Those that somebody asks for.
        OnDemand = "on-demand",
        /// All of them.
        All = "all",
    }

    /// What a follower does with writes.
    enum FollowWrites {
        /// It tells the client where the primary is.
        Redirect = "redirect",
        /// It passes them on to the primary.
        Forward = "forward",
    }
}

/// The words for [`LevelFilter`].
pub(super) const LEVEL_NAMES: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

impl FromText for LevelFilter {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        if !LEVEL_NAMES.contains(&text) {
            return Err(expected(kind));
        }
        text.parse().map_err(|_| expected(kind))
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl FromText for PathBuf {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') { Err(expected(kind)) } else { Ok(text.into()) }
    }

    fn to_text(&self) -> String {
        self.display().to_string()
    }
}

impl FromText for String {
    /// A DN, a group, a word, or a URL, its trailing slashes removed: no other key is plain text.
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        if kind == Kind::Dn {
            let is_fit = !text.is_empty() && !text.chars().any(char::is_control);
            return if is_fit { Ok(text.to_owned()) } else { Err(expected(kind)) };
        }
        if kind == Kind::Word {
            let is_fit = text.len() <= 200 && text.bytes().all(|byte| byte.is_ascii_graphic());
            return if is_fit { Ok(text.to_owned()) } else { Err(expected(kind)) };
        }
        if kind == Kind::Group {
            let is_fit = !text.contains(|char: char| char == ':' || char.is_whitespace());
            return if is_fit { Ok(text.to_owned()) } else { Err(expected(kind)) };
        }
        let url = reqwest::Url::parse(text).map_err(|_| expected(kind))?;
        let is_fit = matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none();
        if is_fit { Ok(text.trim_end_matches('/').to_owned()) } else { Err(expected(kind)) }
    }

    fn to_text(&self) -> String {
        self.clone()
    }
}
