//! Files of articles: added, replaced and removed. The right to write an article covers its files.

use article::{
    ArticleName, Attachment, AttachmentName, AttachmentWrite, CheckedAttachment, Condition,
};
use record::Digest;

use crate::articles::author;
use crate::rights::check_article_writer;
use crate::{Basis, Decided, Name, Operation, Refusal};

/// Which file, and the condition on the one that has the name now.
#[derive(Clone, Debug)]
pub struct FileOfArticle {
    /// The article.
    pub article: ArticleName,
    /// The file.
    pub name: AttachmentName,
    /// The condition.
    pub condition: Condition,
}

impl FileOfArticle {
    /// The change by this sender, who may write the article.
    fn write(&self, basis: &Basis) -> Result<AttachmentWrite, Refusal> {
        check_article_writer(basis, &self.article)?;
        let FileOfArticle { article, name, condition } = self.clone();
        Ok(AttachmentWrite { article, name, condition, author: author(basis), at: basis.now })
    }
}

/// A change of a file.
#[derive(Clone, Debug)]
pub struct ChangedAttachment {
    /// Whether there was a file of the name.
    pub was_there: bool,
    /// The file; `None` if it was removed.
    pub file: Option<Attachment>,
}

fn changed(checked: CheckedAttachment) -> Decided<ChangedAttachment> {
    let CheckedAttachment { batch, was_there, file } = checked;
    Decided::new(batch, ChangedAttachment { was_there, file })
}

/// Asks whether a file may be put before it has arrived. It writes nothing.
#[derive(Clone, Debug)]
pub struct AnnounceAttachment {
    /// The file.
    pub file: FileOfArticle,
    /// Its size in bytes, if that is known.
    pub size_bytes: Option<u64>,
}

impl Operation for AnnounceAttachment {
    const NAME: Name = Name::AnnounceAttachment;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let (write, limits) = (self.file.write(basis)?, &basis.rules.attachment_limits);
        write.check_announced(&basis.stored.articles, self.size_bytes, limits)?;
        Ok(Decided::new(None, ()))
    }
}

/// Adds a file, whose bytes are stored before the commit, or replaces one.
#[derive(Clone, Debug)]
pub struct PutAttachment {
    /// The file.
    pub file: FileOfArticle,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

impl Operation for PutAttachment {
    const NAME: Name = Name::PutAttachment;

    type Outcome = ChangedAttachment;

    fn decide(&self, basis: &Basis) -> Result<Decided<ChangedAttachment>, Refusal> {
        let (write, limits) = (self.file.write(basis)?, &basis.rules.attachment_limits);
        let bytes = (self.digest, self.size_bytes);
        Ok(changed(write.put(&basis.stored.articles, bytes, limits)?))
    }
}

/// Removes a file.
#[derive(Clone, Debug)]
pub struct RemoveAttachment(pub FileOfArticle);

impl Operation for RemoveAttachment {
    const NAME: Name = Name::RemoveAttachment;

    type Outcome = ChangedAttachment;

    fn decide(&self, basis: &Basis) -> Result<Decided<ChangedAttachment>, Refusal> {
        let write = self.0.write(basis)?;
        Ok(changed(write.remove(&basis.stored.articles)?))
    }
}
