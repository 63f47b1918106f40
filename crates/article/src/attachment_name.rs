//! [`AttachmentName`]: the valid names of an article's files, and how a file is sent.
//!
//! A name is one segment of a URL and the name of a file in an exported folder. So it follows the rules for a segment of an
//! article's name, and cannot begin with a dot. How the bytes are sent depends on the name alone: a browser is told to save
//! files that it could run, whatever media type the uploader gave.

use std::sync::Arc;

use unicode_normalization::char::is_combining_mark;

use crate::name::{escape, first_refused, normalize, refused, refused_at};

/// The name of an attachment: 1 to 255 bytes of visible text in Unicode's normalization form C, without `/`. Names are compared
/// byte by byte and are case-sensitive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentName(Arc<str>);

/// Why a text cannot be an attachment's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a name for an attachment: {reason}")]
pub struct AttachmentNameError {
    /// The text, with what cannot be shown escaped, and cut if it is long.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// How the bytes of a file are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// The media type.
    pub media_type: &'static str,
    /// Whether a browser shows it; otherwise it saves it.
    pub is_inline: bool,
}

/// Characters of a refused name that the refusal shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// Pictures of dots: no browser runs anything in them.
const PICTURES: [(&str, &str); 6] = [
    ("avif", "image/avif"),
    ("gif", "image/gif"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("png", "image/png"),
    ("webp", "image/webp"),
];

/// Extensions of texts that browsers show.
const TEXTS: [&str; 6] = ["csv", "diff", "log", "md", "patch", "txt"];

impl AttachmentName {
    /// Most bytes in a name: no usual file system takes more.
    pub const BYTES_MAX: usize = 255;

    /// Normalizes `text` to form C and checks it.
    ///
    /// # Errors
    /// [`AttachmentNameError`], for the first rule that the text breaks.
    pub fn parse(text: &str) -> Result<AttachmentName, AttachmentNameError> {
        let refuse = |reason: String| {
            let shown = text.chars().take(SHOWN_CHARACTERS_MAX);
            let name = shown.flat_map(|character| match refused(character) {
                Some(_) => character.escape_unicode().collect(),
                None => vec![character],
            });
            Err(AttachmentNameError { name: name.collect(), reason })
        };
        let too_long = |bytes: usize| {
            let bytes_max = AttachmentName::BYTES_MAX;
            refuse(format!("it has {bytes} bytes, at most {bytes_max} were expected"))
        };
        // Composing can shrink text, but only so far; this check keeps the work for hostile text small.
        if text.len() > 4 * AttachmentName::BYTES_MAX {
            return too_long(text.len());
        }
        let name = normalize(text);
        if name.is_empty() {
            return refuse("it is empty".to_owned());
        }
        if name.len() > AttachmentName::BYTES_MAX {
            return too_long(name.len());
        }
        if let Some((character, what)) = first_refused(&name) {
            return refuse(format!("it contains {what} U+{:04X}", u32::from(character)));
        }
        if name.contains('/') {
            return refuse("it contains a slash".to_owned());
        }
        if let Some(escape) = escape(&name) {
            let reason =
                format!("`{escape}` in it is a percent-escape, so the name was encoded twice");
            return refuse(reason);
        }
        if name.starts_with('.') {
            return refuse("it begins with a dot, as names of hidden files do".to_owned());
        }
        if name.starts_with(' ') || name.ends_with(' ') {
            return refuse("it begins or ends with a space".to_owned());
        }
        if name.starts_with(is_combining_mark) {
            return refuse("it begins with a combining mark".to_owned());
        }
        Ok(AttachmentName(name.into()))
    }

    /// The name for a file that has this name, or path, on its sender's machine. White space that a name cannot have becomes a
    /// plain space, and other such characters are left out: systems put narrow spaces into names of screenshots, and emoji have
    /// invisible parts.
    ///
    /// # Errors
    /// [`AttachmentNameError`], if the rest is not a valid name.
    pub fn of_file(called: &str) -> Result<AttachmentName, AttachmentNameError> {
        let last = called.rsplit(['/', '\\']).next().unwrap_or_default();
        let kept = last.char_indices().filter_map(|(at, character)| match refused_at(last, at) {
            None => Some(character),
            Some(_) => character.is_whitespace().then_some(' '),
        });
        AttachmentName::parse(kept.collect::<String>().trim())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How a file with this name is sent.
    pub fn sent_as(&self) -> Disposition {
        let ending = self.0.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        let ending = ending.unwrap_or_default();
        if let Some((_, media_type)) = PICTURES.iter().find(|(known, _)| *known == ending) {
            return Disposition { media_type, is_inline: true };
        }
        if TEXTS.contains(&ending.as_str()) {
            return Disposition { media_type: "text/plain; charset=utf-8", is_inline: true };
        }
        // Browsers do not show a PDF inside a sandbox.
        let media_type =
            if ending == "pdf" { "application/pdf" } else { "application/octet-stream" };
        Disposition { media_type, is_inline: false }
    }

    /// Whether an article shows a file with this name as a picture.
    pub fn is_picture(&self) -> bool {
        self.sent_as().media_type.starts_with("image/")
    }
}

::record::checked_text!(AttachmentName, AttachmentNameError);
::record::found_by_text!(AttachmentName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::tests::hostile_text;

    #[track_caller]
    fn refused(text: &str, reason: &str) {
        let AttachmentNameError { reason: found, .. } =
            AttachmentName::parse(text).expect_err(text);
        assert_eq!(found, reason, "{text:?}");
    }

    #[test]
    fn names_are_those_of_files() {
        for text in ["a", "plan B.png", "日本.pdf", "100%.txt", "history", "7", "a..b", "x."] {
            assert_eq!(AttachmentName::parse(text).expect(text).as_str(), text);
        }
        let composed = AttachmentName::parse("e\u{301}.png").expect("a name");
        assert_eq!(composed.as_str(), "é.png");
        refused("", "it is empty");
        refused(&"x".repeat(256), "it has 256 bytes, at most 255 were expected");
        refused(&"x".repeat(9_999), "it has 9999 bytes, at most 255 were expected");
        refused("a/b", "it contains a slash");
        refused("../x", "it contains a slash");
        refused("..", "it begins with a dot, as names of hidden files do");
        refused(".htaccess", "it begins with a dot, as names of hidden files do");
        refused("a\\b", "it contains a backslash, which some systems take for a slash, U+005C");
        refused("a\0b", "it contains a control character, U+0000");
        refused("a\nb", "it contains a control character, U+000A");
        refused(
            "cod\u{202e}gnp.exe",
            "it contains a mark that changes the direction of text, U+202E",
        );
        refused("a\u{200b}.png", "it contains an invisible character, U+200B");
        refused("a%2fb", "`%2f` in it is a percent-escape, so the name was encoded twice");
        refused(" a", "it begins or ends with a space");
        refused("a ", "it begins or ends with a space");
        refused("\u{301}a", "it begins with a combining mark");
    }

    #[test]
    fn files_of_machines_get_names() {
        let check = |called: &str, expected: &str| {
            assert_eq!(AttachmentName::of_file(called).expect(called).as_str(), expected);
        };
        check(
            "Screenshot 2026-01-02 at 3.04.05\u{202f}PM.png",
            "Screenshot 2026-01-02 at 3.04.05 PM.png",
        );
        check("I \u{2764}\u{fe0f} you.png", "I \u{2764}\u{fe0f} you.png");
        check("\u{1f468}\u{200d}\u{1f469}.png", "\u{1f468}\u{200d}\u{1f469}.png");
        check("\u{a0}a\tb\u{3000}", "a b");
        check("e\u{301}.png", "é.png");
        check("C:\\x\\plan.png", "plan.png");
        check("/tmp/plan.png", "plan.png");
        check("cod\u{202e}gnp.exe", "codgnp.exe");
        for called in
            ["", "\u{fe0f}", " \u{202f} ", "a/", ".hidden", "\u{200b}.x", "a%2fb", &"x".repeat(256)]
        {
            AttachmentName::of_file(called).expect_err(called);
        }
    }

    #[test]
    fn what_a_browser_could_run_is_saved() {
        let check = |name: &str, media_type: &'static str, is_inline: bool| {
            let sent = AttachmentName::parse(name).expect(name).sent_as();
            assert_eq!(sent, Disposition { media_type, is_inline }, "{name}");
        };
        check("a.png", "image/png", true);
        check("a.html.PNG", "image/png", true);
        check("a.txt", "text/plain; charset=utf-8", true);
        check("a.pdf", "application/pdf", false);
        for name in [
            "a.svg",
            "a.html",
            "a.png.svg",
            "a.js",
            "a.xml",
            "a",
            "png",
            "a.xhtml",
            "a.mhtml",
            "a.css",
        ] {
            check(name, "application/octet-stream", false);
        }
    }

    proptest! {
        #[test]
        fn a_name_is_its_own_text(text in hostile_text()) {
            if let Ok(name) = AttachmentName::parse(&text) {
                prop_assert_eq!(AttachmentName::parse(name.as_str()), Ok(name.clone()));
                prop_assert!(!name.as_str().contains(['/', '\\', '\0']) && !name.as_str().starts_with('.'));
            }
        }
    }
}
