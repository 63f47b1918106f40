//! [`Limits`]: what a token is limited to, and [`Object`]: the object of a right.
//!
//! Scopes say what a token may do, limits to which objects. Every check of a right names its [`Object`], so that none forgets
//! the limits: see [`crate::Acl::admits`] and [`Principal`](crate::Principal). Outside of its limits, a token may do only what
//! anonymous clients may; it cannot manage users, tokens or the server.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{NameError, Scope, UserName};

/// The object of a right. Names are in their stored form: an index as `user/index`, a project normalized, an article without a
/// leading slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'name> {
    /// Users, tokens, and the server itself.
    Server,
    /// Something of an index.
    Index(&'name str, Portion<'name>),
    /// An article.
    Article(&'name str),
    /// Every article whose name begins with this.
    Articles(&'name str),
}

/// The part of an index that a right is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion<'name> {
    /// The index itself: its settings, the list of its projects, all projects together.
    Whole,
    /// One project, whether it exists or not.
    Project(&'name str),
    /// A project that is not known yet: whether a request may go on. No write or answer depends on this check alone, unless
    /// there is nothing to show.
    Unnamed,
}

/// The index that a token is limited to, or with `user/*` all indexes of a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexPattern(Box<str>);

/// Text that is no [`IndexPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexPatternError {
    /// Not two segments with a slash between them.
    #[error(
        "`{0}` is not the name of an index: `user/index`, or `user/*` for all of a user, was expected"
    )]
    NotTwoSegments(String),
    /// The user or the index has no valid name.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// What a token is limited to; never empty.
///
/// Without indexes, the projects in every index are meant; without projects, the whole indexes. A token with only prefixes can
/// use no index, one without prefixes no article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    indexes: BTreeSet<IndexPattern>,
    projects: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

/// What the credentials of a user lack, whatever the user's rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Restriction {
    /// The scope.
    #[error("this token lacks the scope `{scope}`", scope = .0.as_str())]
    Scope(Scope),
    /// The object is outside of the limits.
    #[error("this token is limited to {limits}; it may not {what}")]
    Limits {
        /// The limits.
        limits: Arc<Limits>,
        /// What it may not do.
        what: String,
    },
    /// A job of a CI system may only upload, and only where an index names its identity.
    #[error(
        "the upload token of `{called}` only uploads what an index names this identity for as a trusted publisher; it may \
         not {what}"
    )]
    Publisher {
        /// The identity.
        called: String,
        /// What it may not do.
        what: String,
    },
}

impl Limits {
    /// Most indexes, projects, or prefixes of one token.
    pub(crate) const EACH_MAX: usize = 100;

    /// These limits; `None` if all are empty. `projects` are normalized. `prefixes` are names of articles, without a leading or
    /// trailing slash; each means that article and those below it, and the empty one all articles.
    pub fn new(
        indexes: BTreeSet<IndexPattern>,
        projects: BTreeSet<String>,
        prefixes: BTreeSet<String>,
    ) -> Option<Limits> {
        let is_something = !(indexes.is_empty() && projects.is_empty() && prefixes.is_empty());
        is_something.then_some(Limits { indexes, projects, prefixes })
    }

    /// The indexes, as `user/index` or `user/*`.
    pub fn indexes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.indexes.iter().map(|index| &*index.0)
    }

    /// The projects' normalized names.
    pub fn projects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.projects.iter().map(String::as_str)
    }

    /// The prefixes of articles, as they are displayed: `/docs/`.
    pub fn prefixes(&self) -> impl ExactSizeIterator<Item = String> {
        self.prefixes.iter().map(|prefix| match prefix.as_str() {
            "" => "/".to_owned(),
            prefix => format!("/{prefix}/"),
        })
    }

    /// The prefixes in their stored form.
    pub(crate) fn kept_prefixes(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(String::as_str)
    }

    /// Whether `object` is within them.
    pub fn admit(&self, object: Object<'_>) -> bool {
        match object {
            Object::Server => false,
            Object::Index(index, portion) => {
                let is_of_indexes = !(self.indexes.is_empty() && self.projects.is_empty());
                is_of_indexes && self.admit_index(index) && self.admit_portion(portion)
            }
            Object::Article(name) => self.prefixes.iter().any(|prefix| {
                below(prefix, name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
            Object::Articles(start) => self.prefixes.iter().any(|prefix| {
                prefix.is_empty() || below(prefix, start).is_some_and(|rest| rest.starts_with('/'))
            }),
        }
    }

    /// Whether `scope` is of use to a token with these limits.
    pub fn reach(&self, scope: Scope) -> bool {
        match scope {
            Scope::ArticleRead | Scope::ArticleWrite => !self.prefixes.is_empty(),
            Scope::PythonRead | Scope::PythonUpload | Scope::PythonAdmin => {
                !(self.indexes.is_empty() && self.projects.is_empty())
            }
            Scope::UserAdmin | Scope::ServerAdmin | Scope::ServerFollow => false,
            Scope::All => true,
        }
    }

    fn admit_index(&self, index: &str) -> bool {
        self.indexes.is_empty() || self.indexes.iter().any(|pattern| pattern.matches(index))
    }

    fn admit_portion(&self, portion: Portion<'_>) -> bool {
        self.projects.is_empty()
            || match portion {
                Portion::Whole => false,
                Portion::Project(project) => self.projects.contains(project),
                Portion::Unnamed => true,
            }
    }

    /// What a refused request asked for, in words.
    fn beyond(&self, scope: Scope, object: Object<'_>) -> String {
        let is_named = |index: &str| !self.indexes.is_empty() && self.admit_index(index);
        asked_for(scope, object, is_named)
    }
}

/// What a request asked for, in words; the index is not repeated if it `is_named` anyway.
fn asked_for(scope: Scope, object: Object<'_>, is_named: impl Fn(&str) -> bool) -> String {
    let verb = match scope {
        Scope::ArticleRead | Scope::PythonRead | Scope::ServerFollow => "read",
        Scope::ArticleWrite | Scope::PythonUpload => "write",
        Scope::PythonAdmin => "change",
        Scope::UserAdmin | Scope::ServerAdmin | Scope::All => "manage",
    };
    let what = match object {
        Object::Server => "users, tokens or the server".to_owned(),
        Object::Index(index, Portion::Project(project)) if is_named(index) => {
            format!("`{project}`")
        }
        Object::Index(index, Portion::Project(project)) => format!("`{project}` of {index}"),
        Object::Index(index, Portion::Whole) if is_named(index) => {
            format!("{index} as a whole")
        }
        Object::Index(index, _) => index.to_owned(),
        Object::Article(name) => format!("`{name}`"),
        Object::Articles("") => "all articles".to_owned(),
        Object::Articles(start) => format!("all articles that begin with `{start}`"),
    };
    format!("{verb} {what}")
}

impl Restriction {
    pub(crate) fn of_publisher(called: String, scope: Scope, object: Object<'_>) -> Restriction {
        Restriction::Publisher { called, what: asked_for(scope, object, |_| false) }
    }

    pub(crate) fn beyond(limits: &Arc<Limits>, scope: Scope, object: Object<'_>) -> Restriction {
        Restriction::Limits { limits: limits.clone(), what: limits.beyond(scope, object) }
    }
}

/// The rest of a name after a prefix; a slash if the prefix is empty.
fn below<'name>(prefix: &str, name: &'name str) -> Option<&'name str> {
    if prefix.is_empty() { Some("/") } else { name.strip_prefix(prefix) }
}

impl IndexPattern {
    fn matches(&self, index: &str) -> bool {
        match self.0.strip_suffix('*') {
            // The rest ends with the slash.
            Some(start) => index.starts_with(start),
            None => *self.0 == *index,
        }
    }
}

impl FromStr for IndexPattern {
    type Err = IndexPatternError;

    /// Reads `user/index` or `user/*`; slashes around it do not count, as people copy them from URLs.
    fn from_str(text: &str) -> Result<IndexPattern, IndexPatternError> {
        let error = || IndexPatternError::NotTwoSegments(record::escaped_excerpt(text, 300));
        let (user, index) = text.trim_matches('/').split_once('/').ok_or_else(error)?;
        let user: UserName = user.parse()?;
        if index == "*" {
            return Ok(IndexPattern(format!("{user}/*").into()));
        }
        if index.contains('/') {
            return Err(error());
        }
        // Index names follow the rule for users' names.
        let index: UserName = index.parse()?;
        Ok(IndexPattern(format!("{user}/{index}").into()))
    }
}

/// How many indexes, projects or prefixes a text names; of more it says how many there are.
const SHOWN_MAX: usize = 10;

/// Names with commas between them, up to a bounded number.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(SHOWN_MAX);
    let shown = names.take(SHOWN_MAX).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

impl fmt::Display for Limits {
    /// As in ``project `foo` of team/dev and articles below `/docs/` ``.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indexes = listed(self.indexes().map(str::to_owned));
        let mut parts = Vec::new();
        if !self.projects.is_empty() {
            let noun = if self.projects.len() == 1 { "project" } else { "projects" };
            let of = if indexes.is_empty() { String::new() } else { format!(" of {indexes}") };
            let projects = listed(self.projects().map(|name| format!("`{name}`")));
            parts.push(format!("{noun} {projects}{of}"));
        } else if !indexes.is_empty() {
            parts.push(indexes);
        }
        if !self.prefixes.is_empty() {
            let prefixes = listed(self.prefixes().map(|prefix| format!("`{prefix}`")));
            parts.push(format!("articles below {prefixes}"));
        }
        formatter.write_str(&parts.join(" and "))
    }
}

#[cfg(test)]
mod tests;
