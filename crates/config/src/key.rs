//! The type of a key: its place in the file, its names as a flag and in the environment, and its valid values.
//!
//! Names are derived, never written: `aur.rate_limit` is `--aur-rate-limit` and `LARDER_AUR_RATE_LIMIT`.

use std::time::Duration;

/// The value of [`Kind::SwitchOrAuto`] besides those of a switch.
const AUTO: &str = "auto";

/// One section of the file with its keys.
pub(super) struct Table {
    /// Name in brackets; empty for the top of the file.
    pub(super) section: &'static str,
    /// Doc comment of the section, a line each.
    pub(super) doc: &'static [&'static str],
    /// The keys, in the order of documentation.
    pub(super) keys: &'static [Key],
}

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Name of the section; empty for keys at the top of the file.
    pub section: &'static str,
    /// Name within the section.
    pub name: &'static str,
    /// Its valid values.
    pub kind: Kind,
    /// Default as a user would write it, lists with commas; empty if there is no default.
    pub default: &'static str,
    /// Parses texts as the key's type and returns their canonical spelling, or what was expected.
    pub(super) check: fn(&[String], Kind) -> Result<Vec<String>, String>,
    /// Lines of the doc comment; [`Key::help`] joins them.
    pub(super) doc: &'static [&'static str],
}

/// The valid values of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// True or false.
    Switch,
    /// True, false, or auto: true if the surface has what it needs. As a value, auto is true.
    SwitchOrAuto,
    /// A whole number within bounds, both included.
    Whole {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// The counted things, in the plural.
        unit: &'static str,
    },
    /// A length of time in whole seconds within bounds, both included.
    Seconds {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A path of the file system.
    Path,
    /// An http or https URL.
    Url,
    /// ADDRESS:PORT or unix:PATH.
    Address,
    /// A list of [`Kind::Address`], at least one.
    Addresses,
    /// The mode of a file, in octal.
    Mode,
    /// A group of this machine.
    Group,
    /// A list of IP addresses and networks, possibly empty.
    Networks,
    /// The name of a header.
    Header,
    /// A list of origins of pages, possibly empty.
    Origins,
    /// A text of one line.
    Line,
    /// A list of links with their labels, possibly empty.
    Links,
    /// A colour of words.
    Colour,
    /// A list of issuers of identities, possibly empty.
    Issuers,
    /// A word of letters, digits and some signs.
    Word,
    /// A list of URLs of directories, possibly empty.
    Directories,
    /// The name of an entry of a directory.
    Dn,
    /// The same, with a place for a user's name.
    DnTemplate,
    /// A search filter of a directory.
    Filter,
    /// A list of groups elsewhere and what they mean here, possibly empty.
    GroupLines,
    /// A path or an http(s) URL of a dump.
    Source,
    /// A path or an http(s) URL of a zip of OSV records.
    Bundle,
    /// Where the records are: sqlite:PATH or postgres://….
    Database,
    /// Where the blobs are: a directory or s3://BUCKET/PREFIX.
    Blobs,
    /// A list of users, :groups, :ANONYMOUS: and :AUTHENTICATED:, possibly empty.
    Acl,
    /// A text that is never shown.
    Secret,
}

impl Kind {
    /// A whole number of `unit` from `min` to `max`.
    pub(super) const fn whole(min: u64, max: u64, unit: &'static str) -> Self {
        Self::Whole { min, max, unit }
    }

    /// Whole seconds from `min` to `max`.
    pub(super) const fn seconds(min: u64, max: u64) -> Self {
        Self::Seconds { min, max }
    }

    /// Whether the key takes several values: an array in the file, commas elsewhere.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            Self::Addresses
                | Self::Networks
                | Self::Origins
                | Self::Issuers
                | Self::Directories
                | Self::GroupLines
                | Self::Links
                | Self::Acl
        )
    }

    /// A description of valid values, to follow "expected".
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::SwitchOrAuto => format!("{AUTO}, true or false"),
            Self::Whole { min, max, unit } => {
                format!("a whole number of {unit} from {min} to {max}")
            }
            Self::Seconds { min, max } => format!("whole seconds from {min} to {max}"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Path => "a path".to_owned(),
            Self::Url => {
                "an http:// or https:// URL without query, such as https://aur.example.org"
                    .to_owned()
            }
            Self::Address => {
                "ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH".to_owned()
            }
            Self::Addresses => {
                "a list of ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH"
                    .to_owned()
            }
            Self::Mode => "a mode in octal up to 0777, such as 0660".to_owned(),
            Self::Group => "the name or number of a group, such as www-data".to_owned(),
            Self::Networks => "a list of IP addresses or networks, such as 10.0.0.0/8".to_owned(),
            Self::Header => "the name of a header, such as x-forwarded-for".to_owned(),
            Self::Line => "a text of at most 200 characters in one line".to_owned(),
            Self::Links => {
                "a list of links, each as LABEL URL: an http, https or mailto URL, or a path of this server".to_owned()
            }
            Self::Colour => {
                "a colour as #rrggbb that is dark enough to be read: a contrast of at least 4.5 with #f4f1ea".to_owned()
            }
            Self::Origins => {
                "a list of origins of pages, such as https://app.example.org, or *".to_owned()
            }
            Self::Issuers => {
                "a list of issuers, each as KIND URL or KIND URL JWKS-URL, such as `generic https://ci.example.org`; \
                 kinds are github, gitlab, google, activestate and generic, and URLs begin with https:// (with http:// on this \
                 machine alone)"
                    .to_owned()
            }
            Self::Directories => {
                "a list of ldap://HOST or ldaps://HOST, with a port if it is not 389 or 636"
                    .to_owned()
            }
            Self::Dn => "a DN, such as ou=people,dc=example,dc=org".to_owned(),
            Self::DnTemplate => {
                "a DN with {username}, such as uid={username},ou=people,dc=example,dc=org"
                    .to_owned()
            }
            Self::Filter => "a search filter (RFC 4515), such as (uid={username})".to_owned(),
            Self::GroupLines => {
                "a list of GROUP=HERE, such as `Developers=team`; `*=ldap-*` or `*=*` for all others"
                    .to_owned()
            }
            Self::Word => "up to 200 letters, digits and signs without blanks".to_owned(),
            Self::Source => {
                "a path or an http(s) URL of a packages-meta-ext-v1.json(.gz), or the mysql:// URL of aurweb's database".to_owned()
            }
            Self::Bundle => "a path or an http(s) URL of a zip of OSV records".to_owned(),
            Self::Database => "sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE".to_owned(),
            Self::Blobs => "a directory or s3://BUCKET/PREFIX".to_owned(),
            Self::Acl => "a list of users, :groups, :AUTHENTICATED: and :ANONYMOUS:".to_owned(),
            Self::Secret => "a text without control characters, and without blanks at its ends".to_owned(),
        }
    }

    /// The placeholder of the value in `--help`.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Switch => "BOOL",
            Self::SwitchOrAuto => "BOOL|auto",
            Self::Whole { .. } => "N",
            Self::Seconds { .. } => "SECONDS",
            Self::Choice(_) => "WORD",
            Self::Path => "PATH",
            Self::Url => "URL",
            Self::Address | Self::Addresses => "ADDR",
            Self::Mode => "MODE",
            Self::Group => "GROUP",
            Self::Networks => "NETWORK",
            Self::Header => "HEADER",
            Self::Origins => "ORIGIN",
            Self::Line => "TEXT",
            Self::Links => "LINK",
            Self::Colour => "COLOUR",
            Self::Issuers => "ISSUER",
            Self::Directories => "URL",
            Self::Dn | Self::DnTemplate => "DN",
            Self::Filter => "FILTER",
            Self::GroupLines => "GROUP=HERE",
            Self::Word => "TEXT",
            Self::Source | Self::Bundle => "PATH|URL",
            Self::Database => "DATABASE",
            Self::Blobs => "DIR|URL",
            Self::Acl => "WHO",
            Self::Secret => "SECRET",
        }
    }

    /// Whether the key is a switch: its flag may stand alone, which means true.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::Switch | Self::SwitchOrAuto)
    }

    /// How the value is written in the file.
    pub(super) fn toml(self, texts: &[String]) -> String {
        match self {
            Self::Switch | Self::Whole { .. } | Self::Seconds { .. } => texts.concat(),
            Self::SwitchOrAuto if !is_auto(self, texts) => texts.concat(),
            _ if self.is_list() => format!(
                "[{}]",
                texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ")
            ),
            _ => quoted(&texts.concat()),
        }
    }
}

impl Key {
    /// The full name of the key: `aur.rate_limit`.
    pub fn path(&self) -> String {
        if self.section.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.section, self.name)
        }
    }

    /// The flag, without its dashes: `aur-rate-limit`.
    pub fn flag(&self) -> String {
        self.path().replace(['.', '_'], "-")
    }

    /// The name in the environment: `LARDER_AUR_RATE_LIMIT`.
    pub fn variable(&self) -> String {
        format!("LARDER_{}", self.path().replace('.', "_").to_uppercase())
    }

    /// What the key does, as one line.
    pub fn help(&self) -> String {
        joined(self.doc)
    }

    /// The default as a list of values; empty if there is none.
    pub(super) fn default_texts(&self) -> Vec<String> {
        split(self.kind, self.default)
    }
}

/// The lines of a doc comment as one line.
pub(super) fn joined(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A value as given outside the file: lists are split at commas, an empty text is no value.
pub(super) fn split(kind: Kind, text: &str) -> Vec<String> {
    if text.is_empty() {
        Vec::new()
    } else if kind.is_list() {
        text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    } else {
        vec![text.to_owned()]
    }
}

/// The text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A type that a key's value becomes, from its texts and back.
pub(super) trait FromTexts: Sized {
    /// Parses the texts of a key of this kind: none for a key that is not set, one, or several for a list.
    ///
    /// # Errors
    /// What was expected, to follow the value in a message.
    fn from_texts(texts: &[String], kind: Kind) -> Result<Self, String>;

    /// The value as texts again, in one canonical spelling.
    fn to_texts(&self) -> Vec<String>;
}

/// Whether the key says that the surroundings decide.
pub(super) fn is_auto(kind: Kind, texts: &[String]) -> bool {
    kind == Kind::SwitchOrAuto && matches!(texts, [text] if text.eq_ignore_ascii_case(AUTO))
}

/// The canonical spelling of a value that `texts` stand for.
pub(super) fn canonical(kind: Kind, texts: &[String], value: &impl FromTexts) -> Vec<String> {
    match is_auto(kind, texts) {
        true => vec![AUTO.to_owned()],
        false => value.to_texts(),
    }
}

/// The complaint about a value that is not what its kind takes.
pub(super) fn expected(kind: Kind) -> String {
    format!("expected {}", kind.expected())
}

/// The only text of a key that takes one value.
fn only(texts: &[String], kind: Kind) -> Result<&str, String> {
    match texts {
        [text] => Ok(text),
        _ => Err(expected(kind)),
    }
}

/// A type with one spelling: what most keys hold. Lists and optional values follow from it.
pub(super) trait FromText: Sized {
    /// Parses one text.
    ///
    /// # Errors
    /// As [`FromTexts::from_texts`].
    fn from_text(text: &str, kind: Kind) -> Result<Self, String>;

    /// The canonical spelling.
    fn to_text(&self) -> String;
}

impl<T: FromText> FromTexts for T {
    fn from_texts(texts: &[String], kind: Kind) -> Result<Self, String> {
        T::from_text(only(texts, kind)?, kind)
    }

    fn to_texts(&self) -> Vec<String> {
        vec![self.to_text()]
    }
}

impl<T: FromText> FromTexts for Option<T> {
    fn from_texts(texts: &[String], kind: Kind) -> Result<Self, String> {
        if texts.is_empty() { Ok(None) } else { T::from_text(only(texts, kind)?, kind).map(Some) }
    }

    fn to_texts(&self) -> Vec<String> {
        self.iter().map(T::to_text).collect()
    }
}

impl<T: FromText> FromTexts for Vec<T> {
    fn from_texts(texts: &[String], kind: Kind) -> Result<Self, String> {
        if texts.is_empty() && kind == Kind::Addresses {
            return Err(format!("{}, at least one", expected(kind)));
        }
        texts.iter().map(|text| T::from_text(text, kind)).collect()
    }

    fn to_texts(&self) -> Vec<String> {
        self.iter().map(T::to_text).collect()
    }
}

impl FromText for bool {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            AUTO if kind == Kind::SwitchOrAuto => Ok(true),
            _ => Err(expected(kind)),
        }
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// The number, where `kind` allows it. Underscores may group digits, as in the file.
fn whole(text: &str, kind: Kind) -> Result<u64, String> {
    let (Kind::Whole { min, max, .. } | Kind::Seconds { min, max }) = kind else {
        return Err(expected(kind));
    };
    let digits = text.replace('_', "");
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| digits.parse::<u64>().ok()).flatten();
    number.filter(|number| (min..=max).contains(number)).ok_or_else(|| expected(kind))
}

macro_rules! whole_numbers {
    ($($Type:ty),*) => {$(
        impl FromText for $Type {
            fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
                <$Type>::try_from(whole(text, kind)?).map_err(|_| expected(kind))
            }

            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_numbers!(u8, u32, u64, usize);

impl FromText for Duration {
    fn from_text(text: &str, kind: Kind) -> Result<Self, String> {
        whole(text, kind).map(Duration::from_secs)
    }

    fn to_text(&self) -> String {
        self.as_secs().to_string()
    }
}
