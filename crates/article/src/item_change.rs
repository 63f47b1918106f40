//! [`ArticleChange`]: what a record changed among the articles, for followers.
//!
//! a record's key, the state before and one that has it -> [`ArticleChange::of`] -> what is added, changed or removed. An
//! article that is renamed is removed under the old name and added under the new one. Moving its earlier revisions and its
//! files is no change, and neither is pointing a redirect at the new name. Only the state before distinguishes such a redirect
//! from a new one: without it, the removal is reported once too often rather than never.

use std::sync::Arc;

use ::record::{ChangeKind, Key};

use crate::attachment::{self, ATTACHMENTS_KIND, AttachmentAct, AttachmentChange, Attachments};
use crate::record::{KIND, parse_key};
use crate::{ArticleName, Kind, Revision, RevisionFacts, Snapshot};

/// The article whose files the record under `key` has, and the changes of these files; `None` for any other record. For a
/// deleted article, only the deletion is reported, not the files. `before` is the state that was reported last, any number of
/// commits ago. With it, renaming the article is no change of its files; the record has a bounded number of changes, and only
/// these are reported. Without it, the last change of each file is reported, so that no file is missed.
pub fn attachment_changes(
    key: &Key,
    before: Option<&Snapshot>,
    after: &Snapshot,
) -> Option<(ArticleName, Vec<AttachmentChange>)> {
    let name = attachment::parse_key(key.after(ATTACHMENTS_KIND)?)?;
    let attachments = after.attachments(&name)?;
    let article = after.article(&name)?;
    let old_names = article.own_revisions().filter_map(|facts| match &facts.kind {
        Kind::Renamed { from, .. } => Some(from),
        _ => None,
    });
    let changes: Vec<AttachmentChange> = match before {
        Some(before) => {
            // The article may have had another name in that state.
            let names = old_names.chain([&name]);
            let known: Vec<&Attachments> =
                names.filter_map(|name| before.attachments(name).map(|all| &**all)).collect();
            attachments.changes_since(&known).cloned().collect()
        }
        None => attachments.last_of_each_file(),
    };
    let is_told = |change: &AttachmentChange| change.act != AttachmentAct::Cleared;
    Some((name, changes.into_iter().filter(is_told).collect()))
}

/// What a revision did to its article.
#[derive(Clone, Debug)]
pub struct ArticleChange {
    /// The article.
    pub name: ArticleName,
    /// The revision: its number, its author, its time.
    pub revision: Arc<RevisionFacts>,
    /// Whether the article was added, changed or removed.
    pub kind: ChangeKind,
    /// The fields that differ from the revision before, for an article that existed: `content`, `content_type`, `title`.
    pub fields: Vec<&'static str>,
    /// Whether an article that readers had became a draft by it: for those who may not write it, it is gone.
    pub hides: bool,
}

impl ArticleChange {
    /// The change that the record under `key` made; `None` if it is no revision, cannot be read, or was only moved when an
    /// article was renamed. `before` is the state that was reported last, any number of commits ago; `None` if it is not known.
    pub fn of(key: &Key, before: Option<&Snapshot>, after: &Snapshot) -> Option<ArticleChange> {
        let (name, number) = parse_key(key.after(KIND)?)?;
        let revision = after.revision(&name, number)?.clone();
        let is_latest = after.latest(&name).is_some_and(|latest| latest.revision == number);
        let went_along = match &revision.kind {
            // Its article may have got another name since, which wrote the redirect again.
            Kind::Redirect { .. } if is_latest => {
                let known = before.and_then(|before| before.revision(&name, number));
                known.is_some_and(|known| known.redirect().is_some())
            }
            // The name has another article since, which a removal must not follow. If the article did not arrive there
            // in this commit and from here, it has got another name since.
            Kind::Redirect { to } => {
                let article = after.article(to);
                let arrived = article.and_then(|it| Some((it, it.revision(number)?)));
                !arrived.is_some_and(|(article, arrived)| {
                    matches!(&arrived.kind, Kind::Renamed { from, .. } if *from == name)
                        && arrived.serial == revision.serial
                        && !article.is_followed_in_its_commit(arrived)
                })
            }
            // Every other commit writes one revision of an article.
            _ => after.article(&name)?.is_followed_in_its_commit(&revision),
        };
        if went_along {
            return None;
        }
        let earlier = number.0.checked_sub(1).filter(|&number| number > 0);
        let earlier = earlier.and_then(|number| after.revision(&name, Revision(number)));
        let has_arrived = matches!(revision.kind, Kind::Renamed { .. });
        let before = earlier.filter(|_| !has_arrived).and_then(|earlier| earlier.content());
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
        let hides = before.zip(now).is_some_and(|(before, now)| !before.draft && now.draft);
        Some(ArticleChange { name, revision, kind, fields, hides })
    }
}
