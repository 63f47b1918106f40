//! The part of a text where words of a question were found, for the results of a search.

use super::Question;
use super::document::{without_tags, words};
use crate::front_matter::front_matter;
use crate::search::fold;
use crate::{ContentType, text_index::TEXT_BYTES_MAX};

/// Bytes of a snippet, about, and of what it has before the first word.
const BYTES_MAX: usize = 220;
const BEFORE_BYTES_MAX: usize = 50;

/// Words of a text that are looked at as the beginning of a snippet.
const FOUND_MAX: usize = 500;

/// A piece of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnippetPart {
    /// Its text, not escaped.
    pub text: String,
    /// Whether it is a word of the question.
    pub is_found: bool,
}

/// A word of the question in the text: where it is, and which.
struct WordMatch {
    start: usize,
    end: usize,
    word: usize,
}

impl Question {
    /// The part of a text that has the most of these words; only the beginning of the text is searched. Empty if no word is there.
    pub fn snippet(&self, kind: &ContentType, bytes: &[u8]) -> Vec<SnippetPart> {
        let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
        let text = readable(kind, &kind.text(bytes));
        let found = self.found_in(&text);
        let count = |first: usize| {
            let end = found[first].start + BYTES_MAX - BEFORE_BYTES_MAX;
            let within = found[first..].iter().take_while(|it| it.end <= end);
            within.fold(0_u32, |words, it| words | 1 << it.word).count_ones()
        };
        // The first one of the best.
        let Some(best) = (0..found.len()).rev().max_by_key(|first| count(*first)) else {
            return Vec::new();
        };
        pieces(&text, &found[best..])
    }

    fn found_in(&self, text: &str) -> Vec<WordMatch> {
        let mut found = Vec::new();
        for word in words(text) {
            // Fast path: nearly all words need no copy to be compared.
            let folded = (!word.is_ascii()).then(|| fold(word));
            let last = self.words.len().wrapping_sub(1);
            let is_it = |at: usize, wanted: &str| {
                let is_beginning = at == last && self.has_prefix;
                let end = if is_beginning { wanted.len() } else { usize::MAX };
                match &folded {
                    Some(folded) if is_beginning => folded.starts_with(wanted),
                    Some(folded) => folded == wanted,
                    None => word[..word.len().min(end)].eq_ignore_ascii_case(wanted),
                }
            };
            let at = self.words.iter().enumerate().position(|(at, wanted)| is_it(at, wanted));
            if let Some(at) = at {
                // A word is a part of the text.
                let start = word.as_ptr() as usize - text.as_ptr() as usize;
                found.push(WordMatch { start, end: start + word.len(), word: at });
                if found.len() == FOUND_MAX {
                    break;
                }
            }
        }
        found
    }
}

/// A text as one line without what marks it up: the front matter, tags, and signs at the start of lines.
fn readable(kind: &ContentType, text: &str) -> String {
    let text = &text[front_matter(kind, text).bytes..];
    let essence = kind.essence();
    let is_html = matches!(essence.as_str(), "text/html" | "application/xhtml+xml");
    let plain = if is_html { without_tags(text) } else { text.to_owned() };
    let is_markdown = matches!(essence.as_str(), "text/markdown" | "text/x-markdown");
    let mut line = String::with_capacity(plain.len());
    for word in plain.split(|c: char| c.is_whitespace() || c.is_control()) {
        let word =
            if is_markdown { word.trim_matches(['#', '*', '`', '_', '|', '>', '~']) } else { word };
        if !word.is_empty() && word != "-" {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    line
}

/// The pieces of the snippet that shows the first of these words.
fn pieces(text: &str, found: &[WordMatch]) -> Vec<SnippetPart> {
    let Some(first) = found.first() else { return Vec::new() };
    let before = text.ceil_char_boundary(first.start.saturating_sub(BEFORE_BYTES_MAX));
    let start = match before {
        0 => 0,
        // From the beginning of a word.
        _ => text[before..first.start].find(' ').map_or(first.start, |at| before + at + 1),
    };
    let most = text.floor_char_boundary(start + BYTES_MAX).max(first.end);
    let end = match text.len() <= most {
        true => text.len(),
        false => text[first.end..most].rfind(' ').map_or(most, |at| first.end + at),
    };
    let mut pieces = Vec::new();
    let mut push = |text: &str, is_found| {
        if !text.is_empty() {
            pieces.push(SnippetPart { text: text.to_owned(), is_found });
        }
    };
    push(if start > 0 { "… " } else { "" }, false);
    let mut at = start;
    for word in found.iter().take_while(|word| word.end <= end) {
        push(&text[at..word.start], false);
        push(&text[word.start..word.end], true);
        at = word.end;
    }
    push(&text[at..end], false);
    push(if end < text.len() { " …" } else { "" }, false);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: &str, text: &str, question: &str) -> String {
        let kind = ContentType::parse(kind).expect("a media type");
        let pieces = Question::parse(question).snippet(&kind, text.as_bytes());
        let piece =
            |it: &SnippetPart| if it.is_found { format!("[{}]", it.text) } else { it.text.clone() };
        pieces.iter().map(piece).collect()
    }

    #[track_caller]
    fn check(text: &str, question: &str, expected: &str) {
        assert_eq!(shown("text/markdown", text, question), expected, "{text:?}");
    }

    #[test]
    fn words_are_marked_where_they_stand() {
        check("# A *plum* tree\n\n- plums and Plum", "plum ", "A [plum] tree plums and [Plum]");
        check("A plum tree, plums", "plum", "A [plum] tree, [plums]");
        check("---\ntitle: plum\n---\nNo fruit", "plum", "");
        check("<b>É</b>té ÉTÉ", "été ", "<b>É</b>té [ÉTÉ]");
        check("日本語", "本", "日[本]語");
        check("Plu plum plumé PLÜM plüms", "plüm", "Plu plum plumé [PLÜM] [plüms]");
        check("Plumé plum", "plum", "[Plumé] [plum]");
        check("", "a", "");
        assert_eq!(shown("text/html", "<p title=plum>A <b>plum</b>", "plum "), "A [plum]");
    }

    #[test]
    fn the_part_with_most_words_is_shown() {
        let far = "x ".repeat(300);
        let text = format!("one {far}two and one {far}two");
        let found = shown("text/plain", &text, "one two ");
        assert!(found.starts_with("… x ") && found.contains("[two] and [one] x"), "{found}");
        assert!(found.ends_with(" x …") && found.len() < 260, "{found}");
        let long = "é".repeat(400);
        let found = shown("text/plain", &format!("{long} plum {long}"), "plum ");
        assert_eq!(found.matches("[plum]").count(), 1, "{found}");
    }

    proptest::proptest! {
        #[test]
        fn a_snippet_is_a_part_of_the_text(text in "[abé日 \n*<>-]{0,400}", question in "[abé日 ]{0,9}") {
            let kind = ContentType::parse("text/plain").expect("a media type");
            let pieces = Question::parse(&question).snippet(&kind, text.as_bytes());
            let whole: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            let part = whole.trim_start_matches("… ").trim_end_matches(" …");
            proptest::prop_assert!(readable(&kind, &text).contains(part));
            proptest::prop_assert!(whole.len() <= BYTES_MAX + 20);
        }
    }
}
