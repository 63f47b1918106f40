//! Articles by their words: what `/articles?text=` and the action `article.search` find.

use article::text_index::{Question, SnippetPart, TEXT_BYTES_MAX};
use article::{ArticleName, Content, Snapshot, render};
use bytes::Bytes;
use record::Serial;

use crate::app::App;
use crate::front::error::HttpError;
use crate::front::turns::turn;
use crate::published::article_texts::Hits;
use crate::routes::Surface;

/// Articles in an answer, where the request names no other number, and at most.
pub(crate) const HITS: (usize, usize) = (20, 100);

/// Articles that an answer may leave out before the first.
pub(crate) const OFFSET_MAX: usize = 1_000;

/// Searches articles whose names begin with `prefix`, and leaves out the first `offset`, on a thread for computations, so that programs that read do not wait for
/// it.
///
/// # Errors
/// 503 if too much is being computed.
pub(crate) async fn search(
    app: &App,
    (articles, serial): (&Snapshot, Serial),
    text: &str,
    (offset, limit): (usize, usize),
    prefix: String,
) -> Result<Hits, HttpError> {
    let texts = app.articles.texts.as_of(serial).await;
    let (text, articles) = (text.to_owned(), articles.clone());
    let finding = app.limits.cpu_pool.run(move || {
        let has_prefix = |name: &ArticleName| name.as_str().starts_with(&prefix);
        let is_shown = (!prefix.is_empty()).then_some(&has_prefix as _);
        let mut hits = Hits::find(&texts, (&articles, serial), &text, offset + limit, is_shown);
        hits.articles.drain(..offset.min(hits.articles.len()));
        hits
    });
    finding.await.map_err(HttpError::uncomputed)
}

/// Where the words of a question are in the texts of these contents, in their order: a snippet for each, which is empty if there
/// is none, or only the title. A content that cannot be read has none.
///
/// The texts of a hundred articles are some MB, which few requests hold at once.
///
/// # Errors
/// 503 if too many wait, or too much is being computed.
pub(crate) async fn snippets(
    app: &App,
    question: &str,
    contents: Vec<Option<Content>>,
) -> Result<Vec<Vec<SnippetPart>>, HttpError> {
    if contents.iter().all(Option::is_none) {
        return Ok(vec![Vec::new(); contents.len()]);
    }
    let _turn = turn(&app.limits.making_answers[Surface::Article as usize]).await?;
    let is_text = |content: &Content| content.content_type.is_textual();
    let contents = contents.into_iter().map(|content| content.filter(is_text));
    let contents: Vec<Option<Content>> = contents.collect();
    let digests: Vec<_> = contents.iter().flatten().map(|content| content.digest).collect();
    let (cache, blobs) = (&app.articles.contents, &app.store.blobs);
    let mut read = cache.beginnings(blobs, &digests, TEXT_BYTES_MAX).await.into_iter();
    let texts = contents.into_iter().map(|content| {
        let content = content?;
        Some((content, read.next()?.ok().flatten()?))
    });
    let texts: Vec<Option<(Content, Bytes)>> = texts.collect();
    let question = Question::parse(question);
    let finding = app.limits.cpu_pool.run(move || {
        let snippet = |(content, bytes): (Content, Bytes)| {
            let pieces = question.snippet(&content.content_type, &bytes);
            let shown: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            // The title stands above it anyway.
            if Some(&*shown) == content.title.as_deref() { Vec::new() } else { pieces }
        };
        texts.into_iter().map(|text| text.map(snippet).unwrap_or_default()).collect()
    });
    finding.await.map_err(HttpError::uncomputed)
}

/// The hits, as JSON.
pub(crate) fn rendered(hits: &Hits, names: render::Names<'_>) -> Bytes {
    render::found(&hits.articles, hits.count, hits.is_complete, names)
}
