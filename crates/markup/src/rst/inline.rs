//! Markup within a line: emphasis, code, links, roles and substitutions, where docutils sees them.

use super::lines::{is_simple_name, unescaped};
use super::names::{Names, NoteLabel, Substitution};
use super::{SUBSTITUTIONS_MAX, Writer};
use crate::{Escaped, HREF_BYTES_MAX, push};

/// Substitutions within each other.
const DEPTH_MAX: usize = 3;

/// Bytes of a name that is a link, of a substitution's name, and of a role or a label.
const NAME_BYTES_MAX: usize = 200;

/// Whether markup may begin after this character.
fn opens(before: Option<char>) -> bool {
    before.is_none_or(|c| match c.is_ascii() {
        true => c.is_ascii_whitespace() || "'\"([{<-/:".contains(c),
        false => !c.is_alphanumeric(),
    })
}

/// Whether markup may end before this text.
fn closes(rest: &str) -> bool {
    rest.chars().next().is_none_or(|c| match c.is_ascii() {
        true => c.is_ascii_whitespace() || "'\")]}>-/\\:.,;!?".contains(c),
        false => !c.is_alphanumeric(),
    })
}

/// Whether a mark between these characters is only quoted, as in `"*"`.
fn is_quoted(before: Option<char>, after: Option<char>) -> bool {
    let pairs = [('"', '"'), ('\'', '\''), ('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')];
    pairs.into_iter().any(|(open, close)| before == Some(open) && after == Some(close))
}

/// Ends of marks that a search did not find up to the end of the text: they are not searched for again.
#[derive(Default)]
struct UnclosedMarks {
    marks: Vec<&'static str>,
}

impl UnclosedMarks {
    /// The position of the closing mark and the length of what belongs to it.
    fn close(
        &mut self,
        inner: &str,
        mark: &'static str,
        is_literal: bool,
    ) -> Option<(usize, usize)> {
        if self.marks.contains(&mark) || inner.starts_with(char::is_whitespace) {
            return None;
        }
        let mut from = 0;
        while let Some(at) = inner.get(from..).and_then(|rest| rest.find(mark)) {
            let at = from + at;
            let (text, after) = (&inner[..at], &inner[at + mark.len()..]);
            let is_last = |c: char| !c.is_whitespace() && (is_literal || c != '\\');
            if text.ends_with(is_last)
                && let Some(more) = more(after, mark)
            {
                return Some((at, mark.len() + more));
            }
            from = at + 1;
        }
        self.marks.push(mark);
        None
    }
}

/// How much of what is after a closing mark belongs to it: underscores and roles. `None` if it does not close there.
fn more(after: &str, mark: &str) -> Option<usize> {
    let underscores = match mark {
        "`" | "|" => after.bytes().take(2).take_while(|byte| *byte == b'_').count(),
        _ => 0,
    };
    if closes(&after[underscores..]) {
        let role = if mark == "`" && underscores == 0 { role_after(after).unwrap_or(0) } else { 0 };
        return Some(underscores + role);
    }
    None
}

/// The length of `:role:` after a closing mark.
fn role_after(after: &str) -> Option<usize> {
    let inner = after.strip_prefix(':')?;
    let head = &inner[..inner.floor_char_boundary(NAME_BYTES_MAX)];
    let end = head.find(':').filter(|end| is_simple_name(&head[..*end]))?;
    closes(&inner[end + 1..]).then_some(end + 2)
}

/// A piece of markup.
enum InlineMarkup<'text> {
    Tagged(&'static str, &'text str),
    Code(&'text str),
    Substitution { name: &'text str, underscores: usize },
    Note { text: &'text str, label: NoteLabel },
    Role { name: &'text str, text: &'text str },
    Reference { text: &'text str, is_unnamed: bool },
    Place(&'text str),
}

/// The markup that this text begins with, and its length.
fn piece<'text>(
    rest: &'text str,
    absent: &mut UnclosedMarks,
) -> Option<(usize, InlineMarkup<'text>)> {
    match rest.as_bytes()[0] {
        b'`' if rest.starts_with("``") => {
            let (end, mark) = absent.close(&rest[2..], "``", true)?;
            Some((2 + end + mark, InlineMarkup::Code(&rest[2..2 + end])))
        }
        b'`' => quoted("", rest, absent),
        b':' => {
            let length = role_before(rest)?;
            let name = &rest[1..length - 1];
            let (taken, piece) = quoted(name, &rest[length..], absent)?;
            Some((length + taken, piece))
        }
        b'*' if rest.starts_with("**") => {
            let (end, mark) = absent.close(&rest[2..], "**", false)?;
            Some((2 + end + mark, InlineMarkup::Tagged("strong", &rest[2..2 + end])))
        }
        b'*' => {
            let (end, mark) = absent.close(&rest[1..], "*", false)?;
            Some((1 + end + mark, InlineMarkup::Tagged("em", &rest[1..1 + end])))
        }
        b'|' => {
            let head = &rest[1..rest.floor_char_boundary(NAME_BYTES_MAX)];
            // A name is short, so a bar without another is found out at once each time.
            let (end, _) = UnclosedMarks::default().close(head, "|", false)?;
            let name = &head[..end];
            let after = &rest[1 + end + 1..];
            let underscores = after.bytes().take(2).take_while(|byte| *byte == b'_').count();
            Some((end + 2 + underscores, InlineMarkup::Substitution { name, underscores }))
        }
        b'[' => {
            let head = &rest[..rest.floor_char_boundary(NAME_BYTES_MAX)];
            let end = head.find("]_")?;
            let label = NoteLabel::parse(&head[1..end])?;
            closes(&rest[end + 2..])
                .then(|| (end + 2, InlineMarkup::Note { text: &rest[..end + 2], label }))
        }
        b'_' => {
            let inner = rest.strip_prefix("_`")?;
            let (end, mark) = absent.close(inner, "`", false)?;
            (mark == 1).then(|| (2 + end + 1, InlineMarkup::Place(&inner[..end])))
        }
        _ => None,
    }
}

/// The length of `:role:` before a backquote.
fn role_before(rest: &str) -> Option<usize> {
    let head = &rest[..rest.floor_char_boundary(NAME_BYTES_MAX)];
    let end = head.find(":`").filter(|end| *end > 1)?;
    is_simple_name(&head[1..end]).then_some(end + 1)
}

/// `` `text`_ ``, `` `text` ``, `` `text`:role: ``, maybe after a role.
fn quoted<'text>(
    role: &'text str,
    rest: &'text str,
    absent: &mut UnclosedMarks,
) -> Option<(usize, InlineMarkup<'text>)> {
    let (end, mark) = absent.close(&rest[1..], "`", false)?;
    let text = &rest[1..1 + end];
    let taken = 1 + end + mark;
    let after = &rest[1 + end + 1..taken];
    let piece = match after {
        "_" | "__" if role.is_empty() => {
            InlineMarkup::Reference { text, is_unnamed: after == "__" }
        }
        _ => {
            let name = if role.is_empty() { after.trim_matches(':') } else { role };
            InlineMarkup::Role { name, text }
        }
    };
    Some((taken, piece))
}

/// `text <url>` -> both.
fn embedded(text: &str) -> Option<(&str, &str)> {
    let (shown, url) = text.strip_suffix('>')?.rsplit_once('<')?;
    let is_apart = shown.is_empty() || shown.ends_with(char::is_whitespace);
    (is_apart && !url.trim().is_empty()).then_some((shown.trim(), url))
}

impl Writer {
    /// Writes a text of one or more lines.
    pub(super) fn inline(&mut self, text: &str) {
        let mut absent = UnclosedMarks::default();
        // Up to `plain`, everything is written; `before` is what comes before that.
        let (mut plain, mut at) = (0, 0);
        let mut before_plain = None;
        while let Some(found) = text[at..].find(['\\', '`', '*', '|', '_', '[', ':']) {
            if self.is_full() {
                return;
            }
            let here = at + found;
            let rest = &text[here..];
            let before = text[plain..here].chars().next_back().or(before_plain);
            if let Some(after) = rest.strip_prefix('\\') {
                self.escaped(&text[plain..here]);
                let escaped = after.chars().next();
                let length = 1 + escaped.map_or(0, char::len_utf8);
                let is_space = escaped.is_some_and(char::is_whitespace);
                plain = if is_space { here + length } else { here + 1 };
                at = here + length;
                // Nothing begins at an escaped character.
                before_plain = Some(if is_space { ' ' } else { 'x' });
                continue;
            }
            if opens(before)
                && !is_quoted(before, rest.trim_start_matches(['*', '`']).chars().next())
                && let Some((taken, piece)) = piece(rest, &mut absent)
                && self.is_known(&piece)
            {
                self.escaped(&text[plain..here]);
                self.piece(&piece);
                at = here + taken;
            } else if let Some((name, taken, is_unnamed)) = name(text, plain, before_plain, here)
                && (is_unnamed || self.names.href(name).is_some())
            {
                self.escaped(&text[plain..here - name.len()]);
                self.reference(name, is_unnamed);
                at = here + taken;
            } else {
                // Not to be seen again, as a part of itself: `**` is not `*`, and then `*`.
                at = here + 1 + usize::from(rest.starts_with("**") || rest.starts_with("``"));
                continue;
            }
            plain = at;
            before_plain = text[..at].chars().next_back();
        }
        self.escaped(&text[plain..]);
    }

    fn tagged(&mut self, tag: &str, text: &str) {
        push(&mut self.html, format_args!("<{tag}>{}</{tag}>", Escaped(text)));
    }

    /// A link, or only its text if there is no address.
    fn link(&mut self, url: Option<&str>, text: &str) {
        let Some(url) = url else { return self.escaped(text) };
        let (url, text) = (Escaped(url), Escaped(text));
        push(&mut self.html, format_args!("<a href=\"{url}\">{text}</a>"));
    }

    /// Whether the piece has a meaning: one that needs a definition elsewhere is shown as it is written without it.
    fn is_known(&self, piece: &InlineMarkup<'_>) -> bool {
        match piece {
            InlineMarkup::Substitution { name, .. } => self.names.substitution(name).is_some(),
            InlineMarkup::Note { label, .. } => self.names.note(label, self.noted(label)).is_some(),
            _ => true,
        }
    }

    /// How many notes of the label's kind have been referred to.
    fn noted(&self, label: &NoteLabel) -> usize {
        match label {
            NoteLabel::Next => self.counted_notes,
            NoteLabel::Sign => self.signed_notes,
            _ => 0,
        }
    }

    fn piece(&mut self, piece: &InlineMarkup<'_>) {
        match piece {
            InlineMarkup::Tagged(tag, text) => self.tagged(tag, &unescaped(text)),
            InlineMarkup::Code(text) => self.tagged("code", text),
            InlineMarkup::Substitution { name, underscores } => {
                self.substituted(name, *underscores)
            }
            InlineMarkup::Note { text, label } => {
                let note = self.names.note(label, self.noted(label));
                let note = note.map(|note| (format!("#{}", note.id), format!("[{}]", note.shown)));
                match note {
                    Some((url, shown)) => self.link(Some(&url), &shown),
                    None => self.escaped(text),
                }
                match label {
                    NoteLabel::Next => self.counted_notes += 1,
                    NoteLabel::Sign => self.signed_notes += 1,
                    _ => {}
                }
            }
            InlineMarkup::Role { name, text } => self.role(name, text),
            InlineMarkup::Reference { text, is_unnamed } => self.reference(text, *is_unnamed),
            InlineMarkup::Place(text) => {
                self.names.define_place(text);
                if let Some(id) = self.names.place(text) {
                    push(&mut self.html, format_args!("<a id=\"{}\"></a>", Escaped(id)));
                }
                self.escaped(&unescaped(text));
            }
        }
    }

    /// The text of a reference, or of a name that is one, as a link.
    fn reference(&mut self, text: &str, is_unnamed: bool) {
        if let Some((shown, url)) = embedded(text) {
            let target = Names::target(url);
            let href = target.as_ref().and_then(|target| self.names.href_of(target));
            let address = unescaped(url);
            let shown = unescaped(shown);
            self.link(href.as_deref(), if shown.is_empty() { &address } else { &shown });
            if !is_unnamed
                && !shown.is_empty()
                && let Some(target) = target
            {
                self.names.define(&shown, target);
            }
            return;
        }
        let href = match is_unnamed {
            true => {
                let target = self.names.unnamed.get(self.unnamed).cloned().flatten();
                self.unnamed += 1;
                target.and_then(|target| self.names.href_of(&target))
            }
            false => self.names.href(text),
        };
        self.link(href.as_deref(), &unescaped(text));
    }

    fn substituted(&mut self, name: &str, underscores: usize) {
        let is_over = self.substituted >= SUBSTITUTIONS_MAX || self.depth >= DEPTH_MAX;
        let Some(found) = self.names.substitution(name).filter(|_| !is_over) else {
            return self.escaped(name);
        };
        self.substituted += 1;
        let href = match underscores {
            0 => None,
            1 => self.names.href(name),
            _ => {
                let target = self.names.unnamed.get(self.unnamed).cloned().flatten();
                target.and_then(|target| self.names.href_of(&target))
            }
        };
        let (picture, text) = match found {
            Substitution::Picture { source, alt, target } => {
                (Some((source.clone(), alt.clone(), target.clone())), String::new())
            }
            Substitution::Text(text) => (None, text.clone()),
        };
        self.unnamed += usize::from(underscores == 2);
        if let Some((source, alt, target)) = picture {
            let target = target.and_then(|target| Names::target(&target));
            let own = target.and_then(|target| self.names.href_of(&target));
            return self.picture(&source, &alt, href.or(own).as_deref());
        }
        if let Some(href) = &href {
            push(&mut self.html, format_args!("<a href=\"{}\">", Escaped(href)));
        }
        self.depth += 1;
        self.inline(&text);
        self.depth -= 1;
        if href.is_some() {
            self.push("</a>");
        }
    }

    /// `` :role:`text` ``
    fn role(&mut self, name: &str, text: &str) {
        let name = name.to_lowercase();
        if let "pep" | "pep-reference" | "rfc" | "rfc-reference" = name.as_str()
            && let Some((number, place)) = numbered(text)
        {
            let (url, kind) = match name.starts_with('p') {
                true => (format!("https://peps.python.org/pep-{number:04}{place}"), "PEP"),
                false => (format!("https://tools.ietf.org/html/rfc{number}.html{place}"), "RFC"),
            };
            return self.link(Some(&url), &format!("{kind} {number}"));
        }
        // A role shows its text; its link target is for another tool.
        let shown = embedded(text).map(|(shown, _)| shown).filter(|shown| !shown.is_empty());
        let shown = unescaped(shown.unwrap_or(text));
        let tag = match name.as_str() {
            "" | "t" | "title" | "title-reference" => "cite",
            "sub" | "subscript" => "sub",
            "sup" | "superscript" => "sup",
            "strong" => "strong",
            "emphasis" => "em",
            "kbd" => "kbd",
            "math" | "code" | "literal" => return self.tagged("code", text),
            _ => "code",
        };
        let shown = if tag == "code" { shown.trim_start_matches(['~', '!']) } else { &shown };
        self.tagged(tag, shown);
    }
}

/// `246` or `2822#section-2` -> the number, and the fragment with its `#`.
fn numbered(text: &str) -> Option<(u32, String)> {
    let (number, place) = match text.split_once('#') {
        Some((number, place)) => (number, format!("#{place}")),
        None => (text, String::new()),
    };
    let is_address = place.len() < HREF_BYTES_MAX / 2;
    Some((number.trim().parse().ok().filter(|_| is_address)?, place))
}

/// The name before an underscore that makes it a link, the length of its mark, and whether the mark is `__`.
fn name(
    text: &str,
    plain: usize,
    before_plain: Option<char>,
    here: usize,
) -> Option<(&str, usize, bool)> {
    let rest = text[here..].strip_prefix('_')?;
    let (is_unnamed, rest) = match rest.strip_prefix('_') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    if !closes(rest) {
        return None;
    }
    let written = &text[plain..here];
    let shown = written.ceil_char_boundary(written.len().saturating_sub(NAME_BYTES_MAX));
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '+' | ':');
    let run = written[shown..].rfind(|c: char| !is_part(c)).map_or(shown, |at| {
        let at = shown + at;
        at + written[at..].chars().next().map_or(0, char::len_utf8)
    });
    // The longest name that begins where one may.
    let start = written[run..].char_indices().map(|(at, _)| run + at).find(|&start| {
        let before = written[..start].chars().next_back().or(before_plain);
        opens(before) && is_simple_name(&written[start..])
    })?;
    let taken = if is_unnamed { 2 } else { 1 };
    Some((&written[start..], taken, is_unnamed))
}
