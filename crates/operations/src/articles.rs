//! Articles: written, deleted, restored and renamed.

use article::{
    AnnouncedText, ArticleName, Change, Content, ContentType, Revision, WriteAction, WriteError,
    resolve_base,
};
use record::Digest;

use crate::carry_out::OldBlobs;
use crate::rights::{check_article_reader, check_article_writer};
use crate::{Basis, Decided, Name, Operation, Refusal};

/// The version that a write was made from, as its request says.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// By its number.
    pub version: Option<Revision>,
    /// By the tags of `If-Match`.
    pub if_match: Option<String>,
    /// By those of `If-None-Match`.
    pub if_none_match: Option<String>,
}

impl Base {
    /// The version with this number.
    pub fn of(version: Revision) -> Base {
        Base { version: Some(version), ..Base::default() }
    }

    /// The version, as of a state.
    ///
    /// # Errors
    /// As [`resolve_base`].
    pub fn resolve(&self, basis: &Basis, name: &ArticleName) -> Result<Revision, WriteError> {
        let (if_match, if_none_match) = (self.if_match.as_deref(), self.if_none_match.as_deref());
        resolve_base(&basis.stored.articles, name, self.version, if_match, if_none_match)
    }
}

/// The name that revisions carry of their writer.
pub(crate) fn author(basis: &Basis) -> String {
    let name = basis.principal().user_name();
    name.map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

/// A new revision.
#[derive(Clone, Debug)]
pub struct WrittenRevision {
    /// The name that the article has now.
    pub name: ArticleName,
    /// Its number.
    pub revision: Revision,
    /// The content before it, if there was one.
    pub replaced: Option<Digest>,
}

/// Decides a write by this sender, who may write the article.
fn write(
    basis: &Basis,
    (name, base): (&ArticleName, &Base),
    comment: &str,
    act: WriteAction,
) -> Result<Decided<WrittenRevision>, Refusal> {
    check_article_writer(basis, name)?;
    let base = base.resolve(basis, name)?;
    let (articles, author) = (&basis.stored.articles, author(basis));
    let (name, comment, at) = (name.clone(), comment.to_owned(), basis.now);
    let change = Change { name, base, author, comment, at, act };
    let checked = change.check(articles, &basis.rules.article_limits)?;
    let latest = articles.latest(&change.name).and_then(|facts| facts.content());
    let replaced = latest.map(|content| content.digest);
    let (name, revision) = (checked.name, checked.revision);
    Ok(Decided::new(checked.batch, WrittenRevision { name, revision, replaced }))
}

/// Asks whether a text may be written before it has arrived. It writes nothing.
#[derive(Clone, Debug)]
pub struct AnnounceText {
    /// The article.
    pub name: ArticleName,
    /// The version that the text was made from.
    pub base: Base,
    /// Why it is written.
    pub comment: String,
}

/// What is known of a text before it has arrived.
#[derive(Clone, Debug)]
pub struct ExpectedText {
    /// The media type of the version that it was made from.
    pub base_type: Option<ContentType>,
}

impl Operation for AnnounceText {
    const NAME: Name = Name::AnnounceText;

    type Outcome = ExpectedText;

    fn decide(&self, basis: &Basis) -> Result<Decided<ExpectedText>, Refusal> {
        let AnnounceText { name, base, comment } = self;
        check_article_writer(basis, name)?;
        let (articles, author) = (&basis.stored.articles, author(basis));
        let base = base.resolve(basis, name)?;
        let announced = AnnouncedText { name, base, author: &author, comment };
        announced.check(articles, &basis.rules.article_limits)?;
        let content = articles.revision(name, base).and_then(|facts| facts.content());
        let base_type = content.map(|content| content.content_type.clone());
        Ok(Decided::new(None, ExpectedText { base_type }))
    }
}

/// Writes a text, whose bytes are stored before the commit.
#[derive(Clone, Debug)]
pub struct WriteArticle {
    /// The article.
    pub name: ArticleName,
    /// The version that the text was made from.
    pub base: Base,
    /// The text.
    pub content: Content,
    /// Why it is written.
    pub comment: String,
}

impl Operation for WriteArticle {
    const NAME: Name = Name::WriteArticle;

    type Outcome = WrittenRevision;

    fn decide(&self, basis: &Basis) -> Result<Decided<WrittenRevision>, Refusal> {
        let WriteArticle { name, base, content, comment } = self;
        write(basis, (name, base), comment, WriteAction::Put(content.clone()))
    }
}

/// Deletes an article; its history stays.
#[derive(Clone, Debug)]
pub struct DeleteArticle {
    /// The article.
    pub name: ArticleName,
    /// The version that the sender saw.
    pub base: Base,
    /// Why it is deleted.
    pub comment: String,
}

impl Operation for DeleteArticle {
    const NAME: Name = Name::DeleteArticle;

    type Outcome = WrittenRevision;

    fn decide(&self, basis: &Basis) -> Result<Decided<WrittenRevision>, Refusal> {
        write(basis, (&self.name, &self.base), &self.comment, WriteAction::Delete)
    }
}

/// Makes the content of an earlier version the latest again.
#[derive(Clone, Debug)]
pub struct RestoreArticle {
    /// The article.
    pub name: ArticleName,
    /// The version that the sender saw.
    pub base: Base,
    /// The version whose content it gets.
    pub from: Revision,
    /// Why it is restored.
    pub comment: String,
}

impl Operation for RestoreArticle {
    const NAME: Name = Name::RestoreArticle;

    type Outcome = WrittenRevision;

    fn decide(&self, basis: &Basis) -> Result<Decided<WrittenRevision>, Refusal> {
        let RestoreArticle { name, base, from, comment } = self;
        let restored = write(basis, (name, base), comment, WriteAction::Restore(Some(*from)))?;
        Ok(restored.naming(OldBlobs::Needed))
    }
}

/// Renames an article. The sender must be able to read and write under both names: otherwise a new name could reveal what the
/// old one hides.
#[derive(Clone, Debug)]
pub struct RenameArticle {
    /// The article.
    pub name: ArticleName,
    /// The version that the sender saw.
    pub base: Base,
    /// Its new name.
    pub to: ArticleName,
    /// Why it is renamed.
    pub comment: String,
}

impl Operation for RenameArticle {
    const NAME: Name = Name::RenameArticle;

    type Outcome = WrittenRevision;

    fn decide(&self, basis: &Basis) -> Result<Decided<WrittenRevision>, Refusal> {
        let RenameArticle { name, base, to, comment } = self;
        for name in [name, to] {
            check_article_writer(basis, name)?;
            check_article_reader(basis, name)?;
        }
        let renamed = write(basis, (name, base), comment, WriteAction::Rename(to.clone()))?;
        Ok(renamed.naming(OldBlobs::Kept))
    }
}
