//! Texts of strangers in messages, logs and names: only the start of a long one.

use std::borrow::Cow;

/// The first `chars_max` characters of a text.
pub fn excerpt(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end])
}

/// The first `chars_max` characters of a text, on one line: what is not printable is escaped.
pub fn escaped_excerpt(text: &str, chars_max: usize) -> String {
    excerpt(text, chars_max).escape_debug().to_string()
}

/// A text of at most `chars_max` characters, or that many of a longer one and `…`.
pub fn shortened(text: &str, chars_max: usize) -> Cow<'_, str> {
    match excerpt(text, chars_max) {
        start if start.len() < text.len() => Cow::Owned(format!("{start}…")),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_ends_between_characters() {
        assert_eq!(excerpt("grün", 3), "grü");
        assert_eq!(excerpt("grün", 4), "grün");
        assert_eq!(escaped_excerpt("a\nbc", 3), "a\\nb");
        assert_eq!(shortened("grün", 3), "grü…");
        assert_eq!(shortened("grün", 4), "grün");
    }
}
