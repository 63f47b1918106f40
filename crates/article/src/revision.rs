//! [`Revision`]: the number of a revision, and [`RevisionFacts`]: the facts about it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ::record::Serial;
use jiff::Timestamp;

use crate::{ArticleName, Content, RevisionTag};

/// The number of an article's revision: 1, 2, 3 …, without gaps. On the wire it is called `version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u32);

/// The given text is not a revision's number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a version: a whole number from 0 to 4294967295 without leading zeros was expected"
)]
pub struct RevisionError(String);

impl Revision {
    /// Stands for no revision: the base of a text that creates its article.
    pub const NONE: Revision = Revision(0);

    /// The first revision.
    pub const FIRST: Revision = Revision(1);

    /// The revision after this one; `None` after the last number.
    pub fn next(self) -> Option<Revision> {
        self.0.checked_add(1).map(Revision)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Revision {
    type Err = RevisionError;

    /// Parses decimal digits; each number has exactly one spelling.
    fn from_str(text: &str) -> Result<Revision, RevisionError> {
        let is_one_spelling =
            crate::name::is_number(text) && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(number) if is_one_spelling => Ok(Revision(number)),
            _ => Err(RevisionError(record::excerpt(text, 80).into())),
        }
    }
}

/// What a revision did to its article.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gave it this content.
    Put(Content),
    /// Took its content away; earlier revisions keep their content.
    Deleted,
    /// Gave it the content of an earlier revision again.
    Restored {
        /// The revision whose content was restored.
        from: Revision,
        /// The restored content.
        content: Content,
    },
    /// Gave the article its name, and left its content as it was.
    Renamed {
        /// Its name before.
        from: ArticleName,
        /// The content.
        content: Content,
    },
    /// The article that had this name was renamed, with all its earlier revisions.
    Redirect {
        /// Its name now. The only fact of a revision that changes: it follows the article when that is renamed again.
        to: ArticleName,
    },
}

/// The facts about one revision, without its bytes. They never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionFacts {
    /// Its number, from 1.
    pub revision: Revision,
    /// What the revision did.
    pub kind: Kind,
    /// The revision that it was made from: the one before it, or [`Revision::NONE`].
    pub base: Revision,
    /// Who wrote it.
    pub author: Arc<str>,
    /// Why, in the author's words; may be empty.
    pub comment: Arc<str>,
    /// When it was accepted: UTC, whole microseconds.
    pub at: Timestamp,
    /// The commit that stored it.
    pub serial: Serial,
    /// Names its content in `ETag` and `If-Match`.
    pub tag: RevisionTag,
}

impl RevisionFacts {
    /// The content of the article at this revision; `None` for a deletion and a redirect.
    pub fn content(&self) -> Option<&Content> {
        match &self.kind {
            Kind::Put(content) | Kind::Restored { content, .. } | Kind::Renamed { content, .. } => {
                Some(content)
            }
            Kind::Deleted | Kind::Redirect { .. } => None,
        }
    }

    /// Whether the name has no content as of this revision, which is a deletion or a redirect.
    pub fn is_deleted(&self) -> bool {
        self.content().is_none()
    }

    /// The target of a redirect; `None` for every other revision.
    pub fn redirect(&self) -> Option<&ArticleName> {
        match &self.kind {
            Kind::Redirect { to } => Some(to),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_one_spelling() {
        let parse = |text: &str| text.parse::<Revision>().ok();
        assert_eq!(parse("0"), Some(Revision::NONE));
        assert_eq!(parse("4294967295"), Some(Revision(u32::MAX)));
        for bad in ["", "01", "00", "+1", "-1", " 1", "4294967296", "٣", "1e3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(Revision(u32::MAX).next(), None);
    }
}
