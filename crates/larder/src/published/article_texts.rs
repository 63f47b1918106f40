//! [`ArticleTexts`]: the index of articles by words in their texts, and by links.
//!
//! a commit -> the tail publishes it ([`state::stored`]) -> [`crate::tasks::article_texts`] reads new and changed texts -> an
//! index, published here -> searches and backlinks. No write waits for the index. A search waits for a short time until the
//! index has the published state, so that it finds every acknowledged write.

use std::sync::Arc;
use std::time::Duration;

use article::text_index::{Document, Hit, Link, Question};
use article::{Article, ArticleName, ArticlePath, ContentType, Snapshot, Target, TextIndex};
use markup::Format;
use percent_encoding::percent_decode_str;
use record::Serial;
use state::live::Live;
use tokio::sync::watch;
use url::Url;

/// How long a search waits for texts that are being read.
const WAIT: Duration = Duration::from_secs(1);

/// Links of a text that are followed.
const LINKS_MAX: usize = 256;

/// The index, as of one commit.
#[derive(Debug, Default)]
pub struct Texts {
    /// The index.
    pub index: Arc<TextIndex>,
    /// The index has everything up to this commit; zero until all articles have been looked at once.
    pub serial: Serial,
    /// Articles whose texts are not in it: they could not be read, or there is no memory for them.
    pub left_out: usize,
}

impl Texts {
    /// Whether the index has the texts of all articles, as of `serial`.
    pub fn is_complete(&self, serial: Serial) -> bool {
        self.serial >= serial && self.left_out == 0
    }
}

/// The published index.
#[derive(Debug)]
pub struct ArticleTexts {
    live: Live<Texts>,
    serial: watch::Sender<Serial>,
}

impl Default for ArticleTexts {
    fn default() -> ArticleTexts {
        ArticleTexts { live: Live::default(), serial: watch::Sender::new(Serial::ZERO) }
    }
}

impl ArticleTexts {
    /// The current index; empty before the first.
    pub fn snapshot(&self) -> Arc<Texts> {
        self.live.snapshot_full().unwrap_or_default()
    }

    /// The index as of `serial` or later; if that takes too long, the current one.
    pub async fn as_of(&self, serial: Serial) -> Arc<Texts> {
        let mut reached = self.serial.subscribe();
        let reaching = reached.wait_for(|reached| *reached >= serial);
        let _ = tokio::time::timeout(WAIT, reaching).await;
        self.snapshot()
    }

    /// Publishes the next index.
    pub(crate) fn publish(&self, next: Texts) {
        let serial = next.serial;
        self.live.publish(Arc::new(next));
        self.serial.send_replace(serial);
    }
}

/// The results of a search: articles as they are now, each with where the words are.
#[derive(Debug)]
pub(crate) struct Hits {
    /// The best ones first.
    pub(crate) articles: Vec<(Arc<Article>, Hit)>,
    /// The number of all results that may be shown.
    pub(crate) count: usize,
    /// Whether all texts were searched.
    pub(crate) is_complete: bool,
}

impl Hits {
    /// The articles with all words of `text`, at most `limit`; with `is_shown`, only those for which it is true. May take
    /// milliseconds.
    pub(crate) fn find(
        texts: &Texts,
        (articles, serial): (&Snapshot, Serial),
        text: &str,
        limit: usize,
        is_shown: Option<&dyn Fn(&ArticleName) -> bool>,
    ) -> Hits {
        let found = texts.index.search(&Question::parse(text), limit, is_shown);
        let as_it_is = |hit: Hit| {
            // The index may be a moment older, or newer.
            let article = articles.article(&hit.name).filter(|article| article.is_listed())?;
            Some((article.clone(), hit))
        };
        Hits {
            articles: found.hits.into_iter().filter_map(as_it_is).collect(),
            count: found.count,
            is_complete: found.is_whole && texts.is_complete(serial),
        }
    }
}

/// The prefix of this server's paths outside, from its public URL; empty if there is none.
pub(crate) fn prefix(public_url: Option<&str>) -> String {
    let url = public_url.and_then(|url| Url::parse(url).ok());
    url.map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default()
}

/// The words and links of an article, from the first bytes of its text. Links may begin with `prefix`. If a parser fails on the
/// text, which it should not, the text is left out.
pub(crate) fn document(
    (name, title): (&ArticleName, Option<&str>),
    prefix: &str,
    kind: &ContentType,
    bytes: &[u8],
) -> Document {
    let making = std::panic::AssertUnwindSafe(|| {
        let format = Format::of_media_type(kind.as_str());
        let links = format.map_or_else(Vec::new, |format| {
            let text = kind.text(bytes);
            markup::links(&text, format, LINKS_MAX)
        });
        let links = links.iter().filter_map(|link| candidates(name, prefix, link)).collect();
        Document::titled(title).with_text(kind, bytes, links)
    });
    std::panic::catch_unwind(making).unwrap_or_else(|_| {
        tracing::error!(%name, "the text of an article cannot be indexed");
        Document::titled(title)
    })
}

/// The articles that a relative link in `name` may lead to: seen from there and, as in `[[guide/start]]`, from the root.
fn candidates(name: &ArticleName, prefix: &str, link: &str) -> Option<Link> {
    let root = Url::parse("http://here.invalid/article/").ok()?;
    let mut base = root.clone();
    base.path_segments_mut().ok()?.pop_if_empty().extend(name.as_str().split('/'));
    let near = linked(&base.join(link).ok()?, prefix)?;
    let far = match link.starts_with(['/', '.', '#', '?']) {
        true => None,
        false => root.join(link).ok().and_then(|url| linked(&url, prefix)),
    };
    let far = far.filter(|far| *far != near);
    Some(Link { near, far })
}

/// What follows `/article/` in a URL of this server, even if that lacks the prefix which paths have outside.
pub(crate) fn below_article<'url>(url: &'url Url, prefix: &str) -> Option<&'url str> {
    let path = url.path();
    path.strip_prefix(prefix).unwrap_or(path).strip_prefix("/article/")
}

/// The article that a URL of this server leads to.
fn linked(url: &Url, prefix: &str) -> Option<ArticleName> {
    let is_here = url.host_str() == Some("here.invalid") && url.scheme() == "http";
    let rest = below_article(url, prefix).filter(|_| is_here)?;
    let rest = percent_decode_str(rest).decode_utf8().ok()?;
    // `guide/` leads to `guide`, if that is an article.
    let path = ArticlePath::parse(rest.strip_suffix('/').unwrap_or(&rest)).ok()?;
    matches!(path.target, Target::Latest).then_some(path.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(link: &str, near: &str, far: &str) {
        check_below("", link, near, far);
        check_below("/pre/fix", link, near, far);
    }

    #[track_caller]
    fn check_below(prefix: &str, link: &str, near: &str, far: &str) {
        let name = ArticleName::parse("guide/a b").expect("a name");
        let found = candidates(&name, prefix, link);
        let text = |name: &ArticleName| name.to_string();
        let shown = found.map(|it| (text(&it.near), it.far.as_ref().map(text).unwrap_or_default()));
        let expected = (!near.is_empty()).then(|| (near.to_owned(), far.to_owned()));
        assert_eq!(shown, expected, "{link}");
    }

    #[test]
    fn links_lead_to_articles_from_where_they_stand() {
        check("c", "guide/c", "c");
        check("c#part", "guide/c", "c");
        check("c%23", "guide/c#", "c#");
        check("d/", "guide/d", "d");
        check("d/e%20f", "guide/d/e f", "d/e f");
        check("../c", "c", "");
        check("./c", "guide/c", "");
        check("/article/c", "c", "");
        check("#part", "guide/a b", "");
        check("", "guide/a b", "");
        // Elsewhere, or no article.
        check("/docs", "", "");
        check("https://e.example/article/c", "", "");
        check("//e.example/article/c", "", "");
        check("mailto:a@e.example", "", "");
        check("c/history", "", "");
        check("%ff", "", "");
    }

    #[test]
    fn links_may_begin_as_the_public_url_does() {
        let prefix = prefix(Some("https://e.example/pre/fix/"));
        assert_eq!(prefix, "/pre/fix");
        check_below(&prefix, "/pre/fix/article/c", "c", "");
        check_below("", "/pre/fix/article/c", "", "");
        check_below(&prefix, "/pre/fixed/article/c", "", "");
        check_below(&prefix, "/pre/fix/docs", "", "");
        assert_eq!(super::prefix(Some("https://e.example")), "");
        assert_eq!(super::prefix(None), "");
    }
}
