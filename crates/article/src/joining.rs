//! Invisible characters that change what is seen: joiners of Persian and of Indic scripts, and those of emoji.
//!
//! The rules are those of IDNA (RFC 5892, appendices A.1 and A.2) for joiners between letters, and of Unicode's profile of
//! identifiers with emoji (UAX 31) for joiners and variation selectors in emoji. Anywhere else nobody would see them.

use icu_properties::props::{Emoji, EmojiPresentation, ExtendedPictographic, JoiningType};
use icu_properties::{CodePointMapData, CodePointSetData};
use unicode_normalization::char::canonical_combining_class;

const NON_JOINER: char = '\u{200c}';
const JOINER: char = '\u{200d}';
/// Asks for the colourful form of the character before it.
const AS_EMOJI: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';

/// The class of a sign that takes the vowel off a letter, and joins it to the next.
const VIRAMA: u8 = 9;

/// Characters that are looked at for a letter on one side; names are short, and words have one or two marks on a letter.
const MARKS_MAX: usize = 16;

/// Whether this invisible character, between these texts, changes what is seen.
pub(crate) fn is_meaningful(before: &str, character: char, after: &str) -> bool {
    let Some(last) = before.chars().next_back() else { return false };
    match character {
        NON_JOINER => canonical_combining_class(last) == VIRAMA || is_between_joined(before, after),
        JOINER => canonical_combining_class(last) == VIRAMA || is_between_emoji(before, after),
        AS_EMOJI => is_plain_by_default(last, after),
        _ => false,
    }
}

/// Whether letters would join here.
fn is_between_joined(before: &str, after: &str) -> bool {
    let types = CodePointMapData::<JoiningType>::new();
    let is_mark = |kind: &JoiningType| *kind == JoiningType::Transparent;
    let left = before.chars().rev().take(MARKS_MAX).map(|c| types.get(c)).find(|it| !is_mark(it));
    let right = after.chars().take(MARKS_MAX).map(|c| types.get(c)).find(|it| !is_mark(it));
    matches!(left, Some(JoiningType::LeftJoining | JoiningType::DualJoining))
        && matches!(right, Some(JoiningType::RightJoining | JoiningType::DualJoining))
}

fn is_between_emoji(before: &str, after: &str) -> bool {
    let pictures = CodePointSetData::new::<ExtendedPictographic>();
    let is_modifier = |c: &char| *c == AS_EMOJI || ('\u{1f3fb}'..='\u{1f3ff}').contains(c);
    let left = before.chars().rev().take(MARKS_MAX).find(|c| !is_modifier(c));
    let is_picture = |c: char| pictures.contains(c);
    left.is_some_and(is_picture) && after.chars().next().is_some_and(is_picture)
}

/// Whether the character is an emoji only with a selector. A digit is one only under a keycap.
fn is_plain_by_default(character: char, after: &str) -> bool {
    let is_emoji = CodePointSetData::new::<Emoji>().contains(character)
        && !CodePointSetData::new::<EmojiPresentation>().contains(character);
    is_emoji && (!character.is_ascii() || after.starts_with(KEYCAP))
}

#[cfg(test)]
mod tests {
    use crate::ArticleName;

    #[test]
    fn invisible_characters_are_in_names_where_they_are_seen() {
        for (name, is_accepted) in [
            // Persian: "I want", "books".
            ("می\u{200c}خواهم", true),
            ("کتاب\u{200c}ها", true),
            ("کتابِ\u{200c}ها", true),
            // Devanagari and Malayalam: an explicit virama, a half form, a chillu.
            ("क्\u{200c}ष", true),
            ("क्\u{200d}ष", true),
            ("ന്\u{200d}", true),
            ("👩\u{200d}👩\u{200d}👧", true),
            ("👩🏽\u{200d}🚀", true),
            ("❤\u{fe0f}", true),
            ("❤\u{fe0f}\u{200d}🔥", true),
            ("1\u{fe0f}\u{20e3}", true),
            // Nobody sees these.
            ("a\u{200c}b", false),
            ("a\u{200d}b", false),
            ("\u{200c}می", false),
            ("می\u{200c}", false),
            ("می\u{200c}/خواهم", false),
            ("د\u{200c}ر", false),
            ("می\u{200c}\u{200c}خواهم", false),
            ("می\u{200d}خواهم", false),
            ("क\u{200c}ष", false),
            ("👩\u{200d}", false),
            ("👩\u{200d}a", false),
            ("👩\u{fe0f}", false),
            ("❤\u{fe0e}", false),
            ("❤\u{fe0f}\u{fe0f}", false),
            ("1\u{fe0f}", false),
            ("葛\u{e0100}", false),
            ("a\u{200b}b", false),
        ] {
            assert_eq!(ArticleName::parse(name).is_ok(), is_accepted, "{name:?}");
        }
    }
}
