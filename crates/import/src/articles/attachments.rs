//! Imports the attachments of articles from an exported folder, whose manifest names their articles.
//!
//! file -> bytes read, and stored if the article does not have them -> many attachments in one commit.

use article::{
    ArticleName, AttachmentLimits, AttachmentName, AttachmentWrite, Condition, Snapshot,
};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use record::Digest;

use super::{ArticlesImport, ArticlesReport, bytes_of};
use crate::article_folder::Omission;
use crate::writer::{PlannedBatch, Writer};
use crate::{AT_ONCE_MAX, TOGETHER_MAX};

/// A file that was read, and whose blob is stored.
struct ReadAttachment {
    path: String,
    article: ArticleName,
    name: AttachmentName,
    content: (Digest, u64),
}

/// Adds and replaces attachments; those that the folder does not have stay as they are.
pub(super) async fn import(
    import: &ArticlesImport,
    attached: Vec<(String, (ArticleName, AttachmentName))>,
    limits: AttachmentLimits,
    writer: &mut Writer,
) -> anyhow::Result<ArticlesReport> {
    let mut report = ArticlesReport::default();
    for attached in attached.chunks(TOGETHER_MAX) {
        let mut arrived = Vec::with_capacity(attached.len());
        let (directory, blobs) = (&import.directory, writer.blobs());
        let bound = (limits.file_bytes_max, "article.attachment_bytes_max");
        let reading = attached.iter().map(|(path, (article, name))| async move {
            let read = bytes_of(directory, path, blobs, bound).await;
            (path.clone(), article.clone(), name.clone(), read)
        });
        let mut reading = futures_util::stream::iter(reading).buffered(AT_ONCE_MAX);
        while let Some((path, article, name, read)) = reading.next().await {
            let (digest, size_bytes, staged) = match read {
                Ok((_, digest, size_bytes, staged)) => (digest, size_bytes, staged),
                Err(error) => {
                    report.left_out.push(Omission::new(path, format_args!("{error:#}")));
                    continue;
                }
            };
            let next = ReadAttachment { path, article, name, content: (digest, size_bytes) };
            // An attachment with the same bytes has its blob stored already; a sweep cannot remove it meanwhile.
            let articles = &writer.stored().articles;
            let is_same = articles.attachments(&next.article).is_some_and(|all| {
                all.file(next.name.as_str()).is_some_and(|file| file.digest == digest)
            });
            if let (Some(blobs), Some(staged)) = (blobs, staged)
                && !(is_same && blobs.touch(digest).await?)
            {
                staged.persist().await?;
            }
            arrived.push(next);
        }
        drop(reading);
        let done = writer.committed(async |plan| Ok(write(import, &arrived, plan, &limits)));
        let done = done.await?;
        report.add(done);
    }
    Ok(report)
}

fn write(
    import: &ArticlesImport,
    arrived: &[ReadAttachment],
    plan: &mut PlannedBatch,
    limits: &AttachmentLimits,
) -> ArticlesReport {
    let mut done = ArticlesReport::default();
    for ReadAttachment { path, article, name, content } in arrived {
        let write = AttachmentWrite {
            article: article.clone(),
            name: name.clone(),
            condition: Condition::Anything,
            author: import.author.clone(),
            at: Timestamp::now(),
        };
        let articles: &Snapshot = &plan.stored().articles;
        match write.put(articles, *content, limits) {
            Ok(checked) => {
                match (&checked.batch, checked.was_there) {
                    (None, _) => done.attachments_already_there += 1,
                    (Some(_), true) => done.attachments_changed += 1,
                    (Some(_), false) => done.attachments_added += 1,
                }
                if let Some(batch) = checked.batch {
                    plan.add(batch);
                }
            }
            Err(error) => done.left_out.push(Omission::new(path, error)),
        }
    }
    done
}
