//! [`Publisher`]: a job of a CI system that may upload into an index, by the identity that its issuer signs.
//!
//! | text | means |
//! | --- | --- |
//! | `yourproject` | the project; `acme-*` all whose names begin so, `*` all. None of them need exist |
//! | `https://ci.example` | the issuer's URL, as its tokens have it |
//! | `repository_id=7 environment=release …` | claims that must have these values |
//!
//! These are words of one line. A value with blanks is in double quotes, as JSON writes it. `ref=refs/tags/v*` admits all refs that
//! begin so. `workflow` is the path of the file that the job is defined in, for the kinds of issuers that say it.

use std::fmt;
use std::str::FromStr;

use account::{CiIdentity, IssuerKind, Portion};
use serde_json::Value;

use crate::policy::NamePattern;

/// Longest text of a publisher, in bytes.
const TEXT_BYTES_MAX: usize = 2000;

/// Most claims of one.
const CLAIMS_MAX: usize = 30;

/// Claims that are checked of every identity, and so are no part of a publisher.
const CHECKED_ANYWAY: [&str; 6] = ["iss", "aud", "exp", "nbf", "iat", "jti"];

/// The path of the file that a job is defined in.
const WORKFLOW: &str = "workflow";

/// A job of a CI system that may upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publisher {
    projects: NamePattern,
    issuer: Box<str>,
    /// Sorted by name.
    claims: Vec<(Box<str>, Box<str>)>,
}

/// Why a text is no publisher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PublisherError(String);

/// The first claim in which an identity is not the one of a publisher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another issuer signed it.
    #[error("it is of another issuer")]
    Issuer,
    /// A claim has another value.
    #[error("`{claim}` is {found}, and {expected} was expected", found = told(.found.as_deref()))]
    Claim {
        /// Its name.
        claim: String,
        /// The value in the identity; `None` if it is not there, or not a text.
        found: Option<String>,
        /// What was expected, in words.
        expected: String,
    },
}

fn told(found: Option<&str>) -> String {
    match found {
        None => "missing, or not a text".to_owned(),
        Some(text) => format!("`{}`", record::excerpt(text, 200).escape_debug()),
    }
}

impl Publisher {
    /// The URL of its issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The projects that it uploads: a name, or the start of names and `*`.
    pub fn projects(&self) -> &NamePattern {
        &self.projects
    }

    /// Its claims, by name.
    pub fn claims(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.claims.iter().map(|(name, value)| (&**name, &**value))
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.claims().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    /// Whether it is about this part of an index.
    pub fn covers(&self, portion: Portion<'_>) -> bool {
        match portion {
            Portion::Whole => false,
            Portion::Project(name) => self.projects.matches_name(name),
            Portion::Unnamed => true,
        }
    }

    /// Whether the identity is the one that it names.
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn admit(&self, identity: &CiIdentity) -> Result<(), Mismatch> {
        if *self.issuer != *identity.issuer {
            return Err(Mismatch::Issuer);
        }
        for (name, expected) in self.claims() {
            self.check(identity, name, expected)?;
        }
        self.check_trigger(identity)?;
        if identity.kind == IssuerKind::Google && self.claim("email").is_some() {
            self.check(identity, "email_verified", "true")?;
        }
        Ok(())
    }

    fn check(&self, identity: &CiIdentity, name: &str, expected: &str) -> Result<(), Mismatch> {
        let (claim, found) = match (name, identity.kind) {
            (WORKFLOW, IssuerKind::Github) => ("job_workflow_ref", github_workflow(identity)),
            (WORKFLOW, IssuerKind::Gitlab) => ("ci_config_ref_uri", gitlab_workflow(identity)),
            _ => (name, identity.claim(name)),
        };
        let is_it = found.is_some_and(|found| match (name, expected.strip_suffix('*')) {
            ("ref", Some(start)) => found.starts_with(start),
            _ => found == expected,
        });
        if is_it {
            return Ok(());
        }
        let found = identity.claim(claim).map(str::to_owned);
        let expected = match claim == name {
            true => format!("`{expected}`"),
            false => format!("the file `{expected}` of the repository"),
        };
        Err(Mismatch::Claim { claim: claim.to_owned(), found, expected })
    }

    /// Jobs for proposed changes run code of whoever proposes: they are admitted only if the publisher names this event.
    fn check_trigger(&self, identity: &CiIdentity) -> Result<(), Mismatch> {
        let (claim, of_proposals): (_, &[&str]) = match identity.kind {
            IssuerKind::Github => ("event_name", &["pull_request", "pull_request_target"]),
            IssuerKind::Gitlab => {
                ("pipeline_source", &["merge_request_event", "external_pull_request_event"])
            }
            IssuerKind::Google | IssuerKind::Activestate | IssuerKind::Generic => return Ok(()),
        };
        let found = identity.claim(claim);
        if self.claim(claim).is_some() || found.is_some_and(|found| !of_proposals.contains(&found))
        {
            return Ok(());
        }
        let expected = "an event that is no proposed change".to_owned();
        Err(Mismatch::Claim { claim: claim.to_owned(), found: found.map(str::to_owned), expected })
    }

    /// What it must name to be safe with an issuer of this kind, if it does not: ids that are never given twice, so that a
    /// repository that is made anew under an old name is another one, and the file that defines the job.
    ///
    /// # Errors
    /// The claims of which one is missing.
    pub fn check_kind(&self, kind: IssuerKind) -> Result<(), PublisherError> {
        let needed: &[&[&str]] = match kind {
            IssuerKind::Github => {
                &[&["repository_id"], &["repository_owner_id"], &[WORKFLOW, "job_workflow_ref"]]
            }
            IssuerKind::Gitlab => {
                &[&["project_id"], &["namespace_id"], &[WORKFLOW, "ci_config_ref_uri"]]
            }
            IssuerKind::Google => &[&["sub", "email"]],
            IssuerKind::Activestate => {
                &[&["organization_id", "organization"], &["project_id", "project"], &["actor_id"]]
            }
            IssuerKind::Generic => &[],
        };
        let is_named = |names: &&&[&str]| names.iter().any(|name| self.claim(name).is_some());
        let Some(missing) = needed.iter().find(|names| !is_named(names)) else { return Ok(()) };
        let text = format!(
            "the publisher `{self}` lacks {}: an issuer of the kind {kind} needs it",
            missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
        );
        Err(PublisherError(text))
    }
}

/// The file of the job's workflow, as GitHub says it: `org/repo/.github/workflows/FILE@REF`, in the repository that the job is of.
pub(crate) fn github_workflow(identity: &CiIdentity) -> Option<&str> {
    let of = identity.claim("job_workflow_ref")?;
    let file =
        of.strip_prefix(identity.claim("repository")?)?.strip_prefix("/.github/workflows/")?;
    file.split_once('@').map(|(file, _)| file)
}

/// The file of the job's configuration, as GitLab says it: `HOST/group/project//FILE@REF`, in the project that the job is of.
pub(crate) fn gitlab_workflow(identity: &CiIdentity) -> Option<&str> {
    let (place, file) = identity.claim("ci_config_ref_uri")?.split_once("//")?;
    let host = place.strip_suffix(identity.claim("project_path")?)?.strip_suffix('/')?;
    (!host.is_empty()).then_some(())?;
    file.split_once('@').map(|(file, _)| file)
}

/// Whether a value is written without quotes.
fn is_plain(value: &str) -> bool {
    let is_plain = |one: char| !one.is_whitespace() && !matches!(one, '"' | '\\');
    !value.is_empty() && value.chars().all(is_plain)
}

/// The value at the start of a text, and the rest.
fn value(text: &str) -> Option<(String, &str)> {
    if !text.starts_with('"') {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return is_plain(value).then(|| (value.to_owned(), rest));
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(Value::String(value))) = values.next() else { return None };
    let rest = &text[values.byte_offset()..];
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some((value, rest))
}

impl FromStr for Publisher {
    type Err = PublisherError;

    fn from_str(text: &str) -> Result<Publisher, PublisherError> {
        let shown = record::excerpt(text, 200);
        let refused = |what: String| PublisherError(format!("`{shown}` is no publisher: {what}"));
        if text.len() > TEXT_BYTES_MAX {
            return Err(refused(format!("at most {TEXT_BYTES_MAX} bytes were expected")));
        }
        if text.chars().any(char::is_control) {
            return Err(refused("control characters are not allowed".to_owned()));
        }
        let form = "`PROJECT ISSUER CLAIM=VALUE …` was expected";
        let (projects, rest) =
            text.trim().split_once(' ').ok_or_else(|| refused(form.to_owned()))?;
        let projects = projects.parse().map_err(|error| refused(format!("{error}")))?;
        let (issuer, mut rest) = rest.trim_start().split_once(' ').unwrap_or((rest.trim(), ""));
        if !["https://", "http://"].iter().any(|scheme| issuer.starts_with(scheme)) {
            return Err(refused(format!("the URL of an issuer was expected, and not `{issuer}`")));
        }
        let mut claims: Vec<(Box<str>, Box<str>)> = Vec::new();
        while !rest.trim_start().is_empty() {
            let (name, after) =
                rest.trim_start().split_once('=').ok_or_else(|| refused(form.to_owned()))?;
            if name.is_empty() || name.contains(|one: char| one.is_whitespace() || one == '"') {
                return Err(refused(format!("`{name}` is no name of a claim; {form}")));
            }
            let found = value(after).filter(|(value, _)| !value.is_empty());
            let (value, after) = found.ok_or_else(|| {
                refused(format!("`{name}` has no value; one with blanks needs double quotes"))
            })?;
            if value.chars().any(char::is_control) {
                return Err(refused(format!("the value of `{name}` has control characters")));
            }
            if CHECKED_ANYWAY.contains(&name) {
                return Err(refused(format!("`{name}` is checked of every identity")));
            }
            if claims.iter().any(|(other, _)| **other == *name) {
                return Err(refused(format!("`{name}` is named twice")));
            }
            claims.push((name.into(), value.into()));
            rest = after;
        }
        if claims.is_empty() || claims.len() > CLAIMS_MAX {
            return Err(refused(format!("1 to {CLAIMS_MAX} claims were expected")));
        }
        claims.sort();
        Ok(Publisher { projects, issuer: issuer.into(), claims })
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.projects, self.issuer)?;
        self.claims().try_for_each(|(name, value)| match is_plain(value) {
            true => write!(formatter, " {name}={value}"),
            false => write!(formatter, " {name}={}", Value::from(value)),
        })
    }
}

#[cfg(test)]
mod tests;
