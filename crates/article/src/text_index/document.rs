//! [`Document`]: what of an article is indexed, and the words of a text.

use crate::search::fold;
use crate::{ArticleName, ContentType};

/// Bytes of a text that are indexed.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Different words of a text that are indexed.
const WORDS_MAX: usize = 4_096;

/// Links of a text that are indexed, and bytes of the names that they may lead to: a short link in an article with a long
/// name may lead to a long one.
const LINKS_MAX: usize = 256;
const LINK_BYTES_MAX: usize = 16 << 10;

/// Characters of a word; the rest of a longer one is left out.
const WORD_CHARS_MAX: usize = 32;

/// The words and links of an article. Of a text, the first 64 KiB count, with at most 4,096 different words and 256 links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    pub(super) title: String,
    pub(super) text: String,
    pub(super) links: Vec<Link>,
}

/// The possible targets of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The article that it leads to, seen from its own.
    pub near: ArticleName,
    /// The article that it leads to where there is no `near`.
    pub far: Option<ArticleName>,
}

impl Link {
    /// Bytes of the names, as often as the index has them.
    fn size_bytes(&self) -> usize {
        let near = self.near.as_str().len();
        near + self.far.as_ref().map_or(0, |far| near + far.as_str().len())
    }
}

impl Document {
    /// An article with this title, and none of its text.
    pub fn titled(title: Option<&str>) -> Document {
        Document { title: title.unwrap_or_default().to_owned(), ..Document::default() }
    }

    /// Adds the article's text and its links. `bytes` is the beginning of the text; only the first [`TEXT_BYTES_MAX`] bytes
    /// count.
    #[must_use]
    pub fn with_text(mut self, kind: &ContentType, bytes: &[u8], mut links: Vec<Link>) -> Document {
        let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
        let text = kind.text(bytes);
        let essence = kind.essence();
        let is_html = matches!(essence.as_str(), "text/html" | "application/xhtml+xml");
        self.text = if is_html { without_tags(&text) } else { text.into_owned() };
        links.sort();
        links.dedup();
        links.truncate(LINKS_MAX);
        let mut bytes = 0;
        links.retain(|link| {
            bytes += link.size_bytes();
            bytes <= LINK_BYTES_MAX
        });
        self.links = links;
        self
    }

    /// How often each word occurs in the text, for the first [`WORDS_MAX`] different words.
    pub(super) fn counted_words(&self) -> std::collections::HashMap<String, u32> {
        let mut counted = std::collections::HashMap::new();
        for word in words(&fold(&self.text)) {
            if let Some(count) = counted.get_mut(word) {
                *count += 1;
            } else if counted.len() < WORDS_MAX {
                counted.insert(word.to_owned(), 1);
            }
        }
        counted
    }
}

/// HTML without what is between `<` and `>`. Scripts and styles count as words: no result shows them.
pub(super) fn without_tags(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

/// Whether a character counts as a word by itself: Chinese and Japanese have no spaces between words.
fn is_alone(character: char) -> bool {
    matches!(u32::from(character), 0x3040..=0x30ff | 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

/// The words of a folded text: runs of letters and digits.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        let first = rest.chars().next()?;
        let end = match is_alone(first) {
            true => first.len_utf8(),
            false => rest.find(|c: char| !c.is_alphanumeric() || is_alone(c)).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(record::excerpt(word, WORD_CHARS_MAX))
    })
}
