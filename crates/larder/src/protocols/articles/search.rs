//! Articles by their words: what `/articles?text=` and the action `article.search` find.

use article::{ArticleName, Snapshot, render};
use bytes::Bytes;
use record::Serial;

use crate::app::App;
use crate::front::error::HttpError;
use crate::published::article_texts::Hits;

/// Articles in an answer, where the request names no other number, and at most.
pub(crate) const HITS: (usize, usize) = (20, 100);

/// Searches articles whose names begin with `prefix`, on a thread for computations, so that programs that read do not wait for
/// it.
///
/// # Errors
/// 503 if too much is being computed.
pub(crate) async fn search(
    app: &App,
    (articles, serial): (&Snapshot, Serial),
    text: &str,
    limit: usize,
    prefix: String,
) -> Result<Hits, HttpError> {
    let texts = app.articles.texts.as_of(serial).await;
    let (text, articles) = (text.to_owned(), articles.clone());
    let finding = app.limits.cpu_pool.run(move || {
        let has_prefix = |name: &ArticleName| name.as_str().starts_with(&prefix);
        let is_shown = (!prefix.is_empty()).then_some(&has_prefix as _);
        Hits::find(&texts, (&articles, serial), &text, limit, is_shown)
    });
    finding.await.map_err(HttpError::uncomputed)
}

/// The hits, as JSON.
pub(crate) fn rendered(hits: &Hits, names: render::Names<'_>) -> Bytes {
    render::found(&hits.articles, hits.count, hits.is_complete, names)
}
