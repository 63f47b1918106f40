//! What lines look like: indentation, and the marks that blocks begin with. As docutils reads them.

/// Spaces at the start.
pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The character that a line consists of, if a title or a transition can be made of it.
pub(super) fn adornment(line: &str) -> Option<char> {
    let first = line.chars().next().filter(char::is_ascii_punctuation)?;
    line.chars().all(|c| c == first).then_some(first)
}

/// How many of these lines are blank or indented: they are the body of the line before them.
pub(super) fn body_length(lines: &[&str]) -> usize {
    body_length_from(lines, 1)
}

/// How many of these lines are blank or indented this far.
pub(super) fn body_length_from(lines: &[&str], least: usize) -> usize {
    let ends = |line: &&str| !line.is_empty() && indent(line) < least;
    let length = lines.iter().position(ends).unwrap_or(lines.len());
    // Blank lines at the end separate.
    length - lines[..length].iter().rev().take_while(|line| line.is_empty()).count()
}

/// The lines without their common indentation.
pub(super) fn dedented<'text>(lines: &[&'text str]) -> Vec<&'text str> {
    let common = lines.iter().filter(|line| !line.is_empty()).map(|line| indent(line)).min();
    let common = common.unwrap_or_default();
    lines.iter().map(|line| line.get(common..).unwrap_or_default()).collect()
}

/// The lines without blank ones before and after.
pub(super) fn trimmed<'lines, 'text>(lines: &'lines [&'text str]) -> &'lines [&'text str] {
    let start = lines.iter().take_while(|line| line.is_empty()).count();
    let end = lines[start..].iter().rev().take_while(|line| line.is_empty()).count();
    &lines[start..lines.len() - end]
}

/// Names are the same in any case and with any space.
pub(super) fn key(name: &str) -> String {
    unescaped(name).split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The text without its backslashes; an escaped space disappears.
pub(super) fn unescaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => shown.extend(characters.next().filter(|c| !c.is_whitespace())),
            c => shown.push(c),
        }
    }
    shown
}

/// The length of what begins an item of a list, with its spaces, and the bullet.
pub(super) fn bullet(line: &str) -> Option<(usize, char)> {
    let first = line.chars().next().filter(|c| matches!(c, '-' | '*' | '+' | '•' | '‣' | '⁃'))?;
    let rest = &line[first.len_utf8()..];
    (rest.is_empty() || rest.starts_with(' '))
        .then(|| (line.len() - rest.trim_start().len(), first))
}

/// How the items of a list are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    Number,
    Letter { is_upper: bool },
    Roman { is_upper: bool },
}

/// What an item of a counted list begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enumerator {
    /// The length with the spaces after it.
    pub(super) length: usize,
    /// What is around it.
    form: (bool, char),
    sequence: Sequence,
    /// `None` for `#`, which is the next one.
    ordinal: Option<u32>,
}

impl Enumerator {
    /// The first of a list: `1.`, `(a)`, `iv)`, `#.`
    pub(super) fn first(line: &str) -> Option<Enumerator> {
        Enumerator::read(line, None)
    }

    /// Whether this line has the one after it.
    pub(super) fn next(self, line: &str) -> Option<Enumerator> {
        let next = Enumerator::read(line, Some(self.sequence))?;
        let ordinal = self.number() + 1;
        let follows = next.form == self.form && next.ordinal.is_none_or(|it| it == ordinal);
        follows.then_some(Enumerator { ordinal: Some(ordinal), sequence: self.sequence, ..next })
    }

    pub(super) fn number(self) -> u32 {
        self.ordinal.unwrap_or(1)
    }

    fn read(line: &str, expected: Option<Sequence>) -> Option<Enumerator> {
        let (has_open, inner) = match line.strip_prefix('(') {
            Some(inner) => (true, inner),
            None => (false, line),
        };
        let end = inner.bytes().take(8).position(|byte| matches!(byte, b'.' | b')'))?;
        let (text, rest) = inner.split_at(end);
        let close = rest.chars().next().filter(|close| !has_open || *close == ')')?;
        let rest = &rest[1..];
        if !(rest.is_empty() || rest.starts_with(' ')) {
            return None;
        }
        let length = line.len() - rest.trim_start().len();
        let form = (has_open, close);
        if text == "#" {
            let sequence = expected.unwrap_or(Sequence::Number);
            return Some(Enumerator { length, form, sequence, ordinal: None });
        }
        let first = text.chars().next()?;
        let is_upper = first.is_ascii_uppercase();
        let letter = || (text.len() == 1 && first.is_ascii_alphabetic()).then_some(());
        let sequence = match expected {
            Some(sequence) => sequence,
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => Sequence::Number,
            None if letter().is_some() && !matches!(text, "i" | "I") => {
                Sequence::Letter { is_upper }
            }
            None => Sequence::Roman { is_upper },
        };
        let ordinal = match sequence {
            Sequence::Number => {
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
            }
            Sequence::Letter { is_upper: upper } if upper == is_upper => {
                letter().map(|()| u32::from(first.to_ascii_lowercase()) - u32::from('a') + 1)
            }
            Sequence::Roman { is_upper: upper } if upper == is_upper => roman(text, is_upper),
            _ => None,
        };
        ordinal.map(|ordinal| Enumerator { length, form, sequence, ordinal: Some(ordinal) })
    }
}

/// The value of a Roman numeral.
fn roman(text: &str, is_upper: bool) -> Option<u32> {
    let mut sum = 0;
    let mut last = 0;
    for c in text.chars().rev() {
        if c.is_ascii_uppercase() != is_upper {
            return None;
        }
        let value = match c.to_ascii_lowercase() {
            'i' => 1,
            'v' => 5,
            'x' => 10,
            'l' => 50,
            'c' => 100,
            'd' => 500,
            'm' => 1_000,
            _ => return None,
        };
        if value < last {
            sum -= value;
        } else {
            sum += value;
            last = value;
        }
    }
    (sum > 0).then_some(sum)
}

/// `:name: value`
pub(super) fn field(line: &str) -> Option<(&str, &str)> {
    let inner = line.strip_prefix(':').filter(|inner| !inner.starts_with([' ', ':']))?;
    let mut from = 0;
    loop {
        let at = from + inner.get(from..)?.find([':', '\\'])?;
        let after = &inner[at + 1..];
        if inner.as_bytes()[at] == b'\\' {
            from = at + 1 + after.chars().next()?.len_utf8();
            continue;
        }
        if after.is_empty() || after.starts_with(' ') {
            let name = &inner[..at];
            return (!name.ends_with(' ')).then_some((name, after.trim()));
        }
        if after.starts_with('`') {
            return None;
        }
        from = at + 1;
    }
}

/// The options that a line begins with, `-a, --all=X`, and what they do.
pub(super) fn option(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with(['-', '+', '/']) {
        return None;
    }
    let end = line.find("  ").unwrap_or(line.len());
    let (options, text) = line.split_at(end);
    let are_options = options.split(", ").all(is_option);
    are_options.then_some((options, text.trim()))
}

fn is_option(text: &str) -> bool {
    let (name, argument) = if let Some(name) = text.strip_prefix("--").or(text.strip_prefix('/')) {
        match name.split_once([' ', '=']) {
            Some((name, argument)) => (name, Some(argument)),
            None => (name, None),
        }
    } else {
        let Some(rest) = text.strip_prefix(['-', '+']) else { return false };
        let Some(first) = rest.chars().next() else { return false };
        let (name, argument) = rest.split_at(first.len_utf8());
        let argument = argument.strip_prefix(' ').unwrap_or(argument);
        (name, Some(argument).filter(|argument| !argument.is_empty()))
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '?')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '?'));
    let is_argument = |text: &str| {
        let in_angles = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        in_angles.is_some_and(|text| !text.contains(['<', '>']))
            || text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    is_name && argument.is_none_or(is_argument)
}

/// What kind of block begins with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Quote,
    Bullets,
    Counted,
    Fields,
    Options,
    Doctest,
    LineBlock,
    GridTable,
    SimpleTable,
    Explicit,
    Unnamed,
    /// One character again and again: a title or a transition, maybe.
    Adornment,
    Text,
}

/// The kind of the block that these lines begin with.
pub(super) fn kind(lines: &[&str]) -> Kind {
    let line = lines.first().copied().unwrap_or_default();
    let next = lines.get(1).copied().unwrap_or_default();
    let starts =
        |mark: &str| line.strip_prefix(mark).is_some_and(|it| it.is_empty() || it.starts_with(' '));
    if line.starts_with(' ') {
        return Kind::Quote;
    }
    if bullet(line).is_some() {
        return Kind::Bullets;
    }
    if let Some(first) = Enumerator::first(line)
        && (next.is_empty() || next.starts_with(' ') || first.next(next).is_some())
    {
        return Kind::Counted;
    }
    if field(line).is_some() {
        return Kind::Fields;
    }
    if let Some((_, text)) = option(line)
        && (!text.is_empty() || next.starts_with(' '))
    {
        return Kind::Options;
    }
    if starts(">>>") {
        return Kind::Doctest;
    }
    if starts("|") {
        return Kind::LineBlock;
    }
    if line.len() >= 4
        && line.starts_with("+-")
        && line.ends_with("-+")
        && line.bytes().all(|byte| matches!(byte, b'+' | b'-'))
    {
        return Kind::GridTable;
    }
    if line.starts_with('=')
        && line.contains(' ')
        && line.bytes().all(|byte| matches!(byte, b'=' | b' '))
    {
        return Kind::SimpleTable;
    }
    if starts("..") {
        return Kind::Explicit;
    }
    if starts("__") {
        return Kind::Unnamed;
    }
    if adornment(line).is_some() {
        return Kind::Adornment;
    }
    Kind::Text
}

/// A name without spaces: letters and digits, with single marks between them.
pub(super) fn is_simple_name(name: &str) -> bool {
    let is_mark = |c: char| matches!(c, '-' | '.' | '_' | '+' | ':');
    let mut was_mark = true;
    for c in name.chars() {
        let is_allowed = c.is_alphanumeric() || is_mark(c) && !was_mark;
        if !is_allowed {
            return false;
        }
        was_mark = is_mark(c);
    }
    !was_mark
}

/// `name_` or `` `name`_ `` -> the name.
pub(super) fn reference(text: &str) -> Option<&str> {
    let text = text.trim().strip_suffix('_')?;
    match text.strip_prefix('`') {
        Some(quoted) => quoted.strip_suffix('`').filter(|it| !it.is_empty() && !it.contains('`')),
        None => is_simple_name(text).then_some(text),
    }
}
