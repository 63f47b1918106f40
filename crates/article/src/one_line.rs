//! A text as one line, for titles.

/// Most characters in a line.
pub(crate) const CHARS_MAX: usize = 200;

/// Makes one line of at most 200 characters out of `text`; `None` if nothing is left.
pub(crate) fn one_line(text: &str) -> Option<String> {
    let mut title = String::new();
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if !word.is_empty() {
            if !title.is_empty() {
                title.push(' ');
            }
            title.push_str(word);
        }
        if title.len() > 4 * CHARS_MAX {
            break;
        }
    }
    title.truncate(record::excerpt(&title, CHARS_MAX).len());
    let title = crate::name::normalize(title.trim_end());
    (!title.is_empty()).then_some(title)
}
