//! [`CiIdentity`]: who a job of a CI system is, as its issuer signed it.
//!
//! signed token -> (crate `issuers`, which checks it) -> [`CiIdentity`] -> [`UploadToken`](crate::UploadToken)

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The kind of an issuer of identities: what its claims mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssuerKind {
    /// GitHub Actions.
    Github,
    /// GitLab CI.
    Gitlab,
    /// Accounts of Google's cloud.
    Google,
    /// ActiveState.
    Activestate,
    /// Any other issuer: its claims are compared as they are.
    Generic,
}

/// Text that is no kind of issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of issuer: github, gitlab, google, activestate or generic was expected")]
pub struct IssuerKindError(String);

/// The claims of an identity that are texts, by name. `true` and `false` are kept as these words; numbers, lists and objects are
/// left out, so that no rule matches them.
pub type Claims = BTreeMap<String, String>;

/// Who a job of a CI system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiIdentity {
    /// The URL of the issuer that signed it.
    pub issuer: String,
    /// The kind of that issuer.
    pub kind: IssuerKind,
    /// What the issuer says of the job.
    pub claims: Claims,
}

impl IssuerKind {
    /// Every kind.
    pub const ALL: [IssuerKind; 5] = [
        IssuerKind::Github,
        IssuerKind::Gitlab,
        IssuerKind::Google,
        IssuerKind::Activestate,
        IssuerKind::Generic,
    ];

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            IssuerKind::Github => "github",
            IssuerKind::Gitlab => "gitlab",
            IssuerKind::Google => "google",
            IssuerKind::Activestate => "activestate",
            IssuerKind::Generic => "generic",
        }
    }
}

impl CiIdentity {
    /// Longest name of an identity, in characters.
    const NAME_CHARS_MAX: usize = 200;

    /// The claim with this name, if it is a text.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.get(name).map(String::as_str)
    }

    /// What it is called in logs and messages: the issuer, and its repository, project, address or subject. On one line.
    pub fn name(&self) -> String {
        let of = ["repository", "project_path", "email", "sub"];
        let subject = of.iter().find_map(|claim| self.claim(claim)).unwrap_or("?");
        let subject = record::excerpt(subject, Self::NAME_CHARS_MAX);
        format!("{} {}", self.issuer, subject.escape_debug())
    }
}

impl FromStr for IssuerKind {
    type Err = IssuerKindError;

    fn from_str(text: &str) -> Result<IssuerKind, IssuerKindError> {
        let found = IssuerKind::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| IssuerKindError(record::excerpt(text, 80).into()))
    }
}

impl fmt::Display for IssuerKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in IssuerKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert!("GitHub".parse::<IssuerKind>().is_err());
    }

    #[test]
    fn an_identity_has_a_name_on_one_line() {
        let check = |claims: &[(&str, &str)], name: &str| {
            let claims = claims.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let identity = CiIdentity {
                issuer: "https://ci.example".into(),
                kind: IssuerKind::Generic,
                claims: claims.collect(),
            };
            assert_eq!(identity.name(), name);
        };
        check(&[("sub", "a"), ("repository", "org/repo")], "https://ci.example org/repo");
        check(&[("sub", "a\nb")], "https://ci.example a\\nb");
        check(&[], "https://ci.example ?");
    }
}
