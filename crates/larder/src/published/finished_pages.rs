//! [`FinishedPages`]: a cache of pages for people, for a minute at most, so that a popular page is not rendered for each
//! visitor.
//!
//! the URL and the state that the page shows -> the page, if it was made of the same state -> else it is made, and kept. Only
//! pages that everybody may see are kept.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use article::TextIndex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use record::Serial;
use reply::{EncodedBody, Reply};

use super::aur_published::AurPublished;
use super::required_by::RequiredBy;

/// Memory for pages and their compressed forms, in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// A larger page is not kept.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Bytes that an entry takes besides its text, roughly.
const ENTRY_BYTES: usize = 500;

/// After this time a page is made again. Some say how long ago something was.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The state that a page was made of.
#[derive(Clone, Debug)]
pub(crate) enum MadeOf {
    /// Packages of the AUR with their history, and the list of packages.
    Packages(Weak<AurPublished>),
    /// The store at this commit, and the index of required projects, which follows a moment later.
    Projects(Serial, Weak<RequiredBy>),
    /// The same, and what upstreams have told, by the numbers of their contents.
    Mirrored(Serial, Weak<RequiredBy>, Vec<u64>),
    /// Articles and their files after this commit, and the links between them, which are known a moment later.
    Articles(Serial, Weak<TextIndex>),
}

impl PartialEq for MadeOf {
    fn eq(&self, other: &MadeOf) -> bool {
        match (self, other) {
            (MadeOf::Packages(one), MadeOf::Packages(other)) => Weak::ptr_eq(one, other),
            (MadeOf::Projects(one, index), MadeOf::Projects(other, other_index)) => {
                one == other && Weak::ptr_eq(index, other_index)
            }
            (
                MadeOf::Mirrored(one, index, told),
                MadeOf::Mirrored(other, other_index, other_told),
            ) => one == other && Weak::ptr_eq(index, other_index) && told == other_told,
            (MadeOf::Articles(one, index), MadeOf::Articles(other, other_index)) => {
                one == other && Weak::ptr_eq(index, other_index)
            }
            _ => false,
        }
    }
}

/// A page that is kept.
#[derive(Debug)]
pub(crate) struct FinishedPage {
    /// The page and its tag.
    pub(crate) reply: Reply,
    /// The page in its encodings.
    pub(crate) body: EncodedBody,
    made_of: MadeOf,
    made_at: Instant,
}

#[derive(Clone)]
struct Weights;

impl Weighter<String, Arc<FinishedPage>> for Weights {
    fn weight(&self, url: &String, page: &Arc<FinishedPage>) -> u64 {
        // The compressed forms together are shorter than the page.
        (url.len() + 2 * page.reply.body.len() + ENTRY_BYTES) as u64
    }
}

/// The pages.
#[derive(Debug)]
pub(crate) struct FinishedPages(Cache<String, Arc<FinishedPage>, Weights>);

impl Default for FinishedPages {
    fn default() -> FinishedPages {
        FinishedPages(Cache::with_weighter(1_000, BYTES_MAX, Weights))
    }
}

impl FinishedPages {
    /// The page at this URL, if it was made of this state less than a minute ago.
    pub(crate) fn find(&self, url: &str, made_of: &MadeOf) -> Option<Arc<FinishedPage>> {
        let page = self.0.get(url)?;
        (page.made_of == *made_of && page.made_at.elapsed() < AGE_MAX).then_some(page)
    }

    /// Keeps the page at this URL, instead of an earlier one. None for a large one, which is not kept.
    pub(crate) fn keep(
        &self,
        url: String,
        made_of: MadeOf,
        reply: &Reply,
    ) -> Option<Arc<FinishedPage>> {
        if reply.body.len() > PAGE_BYTES_MAX {
            return None;
        }
        let body = EncodedBody::new(reply.body.clone());
        let made_at = Instant::now();
        let page = Arc::new(FinishedPage { reply: reply.clone(), body, made_of, made_at });
        self.0.insert(url, page.clone());
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Reply {
        Reply::tagged("text/html", text.to_owned())
    }

    fn made_of(serial: u64) -> MadeOf {
        MadeOf::Projects(Serial(serial), Weak::new())
    }

    fn found(pages: &FinishedPages, url: &str, serial: u64) -> Option<String> {
        let page = pages.find(url, &made_of(serial))?;
        Some(String::from_utf8_lossy(&page.reply.body).into_owned())
    }

    #[test]
    fn a_page_of_another_state_is_not_found() {
        let pages = FinishedPages::default();
        assert_eq!(found(&pages, "/a", 1), None);
        pages.keep("/a".to_owned(), made_of(1), &page("first"));
        assert_eq!(found(&pages, "/a", 1).as_deref(), Some("first"));
        assert_eq!((found(&pages, "/a", 2), found(&pages, "/b", 1)), (None, None));
        pages.keep("/a".to_owned(), made_of(2), &page("second"));
        assert_eq!(found(&pages, "/a", 2).as_deref(), Some("second"));
        assert_eq!(found(&pages, "/a", 1), None);
        assert!(pages.find("/a", &MadeOf::Packages(Weak::new())).is_none());
        let index = Arc::new(RequiredBy::default());
        let of_next = MadeOf::Projects(Serial(2), Arc::downgrade(&index));
        assert!(pages.find("/a", &of_next).is_none());
        pages.keep("/a".to_owned(), of_next.clone(), &page("third"));
        assert!(pages.find("/a", &of_next).is_some() && found(&pages, "/a", 2).is_none());
        let index = [TextIndex::default(), TextIndex::default()].map(Arc::new);
        let of_articles = |serial, index| MadeOf::Articles(Serial(serial), Arc::downgrade(index));
        assert!(pages.find("/a", &of_articles(2, &index[0])).is_none());
        pages.keep("/a".to_owned(), of_articles(2, &index[0]), &page("fourth"));
        assert!(pages.find("/a", &of_articles(2, &index[0])).is_some());
        assert!(pages.find("/a", &of_articles(3, &index[0])).is_none());
        assert!(pages.find("/a", &of_articles(2, &index[1])).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let pages = FinishedPages::default();
        pages.keep("/long".to_owned(), made_of(1), &page(&"x".repeat(PAGE_BYTES_MAX + 1)));
        assert_eq!(found(&pages, "/long", 1), None);
        let long = "x".repeat(PAGE_BYTES_MAX);
        for number in 0..200 {
            pages.keep(format!("/{number}"), made_of(1), &page(&long));
        }
        let kept = (0..200).filter(|number| found(&pages, &format!("/{number}"), 1).is_some());
        assert!((1..=BYTES_MAX as usize / (2 * PAGE_BYTES_MAX)).contains(&kept.count()));
    }
}
