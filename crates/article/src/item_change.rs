//! [`ArticleChange`]: what a record changed among the articles, for those who follow them.
//!
//! a record's key and a snapshot that has it -> [`ArticleChange::of`] -> what is added, changed or removed. A revision
//! says by itself what it did, so the snapshot before it is not needed.

use std::sync::Arc;

use ::record::{ChangeKind, Key};

use crate::record::{KIND, parse_key};
use crate::{ArticleName, Revision, RevisionFacts, Snapshot};

/// What a revision did to its article.
#[derive(Clone, Debug)]
pub struct ArticleChange {
    /// The article.
    pub name: ArticleName,
    /// The revision: its number, its author, its time.
    pub revision: Arc<RevisionFacts>,
    /// What became of the article.
    pub kind: ChangeKind,
    /// What is different from the revision before, for an article that was there: `content`, `content_type`, `title`.
    pub fields: Vec<&'static str>,
}

impl ArticleChange {
    /// What the record under `key` did; None if it is no revision, or one that cannot be read.
    pub fn of(key: &Key, after: &Snapshot) -> Option<ArticleChange> {
        let (name, number) = parse_key(key.after(KIND)?)?;
        let revision = after.revision(&name, number)?.clone();
        let earlier = number.0.checked_sub(1).filter(|&number| number > 0);
        let earlier = earlier.and_then(|number| after.revision(&name, Revision(number)));
        let before = earlier.and_then(|earlier| earlier.content());
        let now = revision.content();
        // A deletion is one whether or not the revision before it can be read.
        let kind = ChangeKind::of(before.is_some(), now.is_some()).unwrap_or(ChangeKind::Removed);
        let fields = match (before, now) {
            (Some(before), Some(now)) => [
                ("content", before.digest != now.digest),
                ("content_type", before.content_type != now.content_type),
                ("title", before.title != now.title),
            ]
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| name)
            .collect(),
            _ => Vec::new(),
        };
        Some(ArticleChange { name, revision, kind, fields })
    }
}
