//! Articles by their words: what `/articles?text=` and the action `article.search` find.

use article::{ArticleName, Snapshot, render};
use bytes::Bytes;
use record::Serial;

use crate::app::App;
use crate::article_texts::Hits;
use crate::http::error::HttpError;

/// Articles in an answer, where the request names no other number, and at most.
pub(super) const HITS: (usize, usize) = (20, 100);

/// What a search finds, on a thread for computations, so that programs that read do not wait for it. Only articles that
/// `is_shown` are found, or counted.
///
/// # Errors
/// 503 if too much is being computed.
pub(super) async fn search(
    app: &App,
    (articles, serial): (&Snapshot, Serial),
    text: &str,
    limit: usize,
    is_shown: impl Fn(&ArticleName) -> bool + Send + 'static,
) -> Result<Hits, HttpError> {
    let texts = app.article_texts.as_of(serial).await;
    let (text, articles) = (text.to_owned(), articles.clone());
    let finding =
        app.cpu_pool.run(move || Hits::find(&texts, (&articles, serial), &text, limit, is_shown));
    finding.await.map_err(HttpError::uncomputed)
}

/// What was found, as JSON.
pub(super) fn rendered(hits: &Hits, names: render::Names<'_>) -> Bytes {
    render::found(&hits.articles, hits.count, hits.is_complete, names)
}
