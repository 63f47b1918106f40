//! Folding of case and accents, as the database behind the AUR compares text.
//!
//! MariaDB's `utf8mb4_general_ci` gives each character of the Basic Multilingual Plane one weight:
//! that of its upper-case letter without accents. Folding is therefore from one character to one
//! character, and the order of folded texts is the order of that collation (`_` after letters).

use unicode_normalization::char::decompose_canonical;

/// `text` with letters in upper case and without accents: `pätatt` becomes `PATATT`, `straße`
/// becomes `STRASE`. Letters that are no letter with an accent stay apart: ø, ł, æ.
pub fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    fold_into(text, &mut folded);
    folded
}

/// Appends the folded form of `text` to `folded`.
pub(crate) fn fold_into(text: &str, folded: &mut String) {
    if text.is_ascii() {
        let start = folded.len();
        folded.push_str(text);
        folded[start..].make_ascii_uppercase();
    } else {
        folded.extend(text.chars().map(fold_char));
    }
}

fn fold_char(character: char) -> char {
    match character {
        'a'..='z' => character.to_ascii_uppercase(),
        '\0'..='\u{7f}' => character,
        'ß' => 'S',
        // The scripts whose letters the collation knows: Latin, Greek, Cyrillic and their extensions.
        '\u{80}'..='\u{58f}' | '\u{1e00}'..='\u{1fff}' => {
            let mut base = None;
            decompose_canonical(character, |part| {
                base.get_or_insert(part);
            });
            upper_case(base.unwrap_or(character))
        }
        // Roman numerals, circled and full-width letters have case but no accents.
        '\u{2100}'..='\u{24ff}' | '\u{ff00}'..='\u{ffef}' => upper_case(character),
        _ => character,
    }
}

/// The upper-case letter, where it is a single one.
fn upper_case(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

/// `text` in lower case: how package names are compared by `info`, where accents matter.
pub(crate) fn lower(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn case_and_accents() {
        for (text, folded) in [
            ("", ""),
            ("python-3.11_x", "PYTHON-3.11_X"),
            ("Gröbner", "GROBNER"),
            ("MÂSTËRM", "MASTERM"),
            ("straße", "STRASE"),
            ("øłæđ", "ØŁÆĐ"),
            ("żółć", "ZOŁC"),
            ("ế", "E"),
            ("ÿ", "Y"),
            ("йё", "ИЕ"),
            ("ά", "Α"),
            ("ｐ", "Ｐ"),
            ("日本が", "日本が"),
            ("a\u{301}", "A\u{301}"),
            ("😀", "😀"),
        ] {
            assert_eq!(fold(text), folded, "{text}");
        }
    }
}
