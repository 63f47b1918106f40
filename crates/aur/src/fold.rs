//! Folding of case and accents, as the database behind the AUR compares text.
//!
//! MariaDB's `utf8mb4_general_ci` gives each character of the Basic Multilingual Plane one weight: that of its
//! upper-case letter without accents. So folding maps one character to one character, and folded texts sort as that
//! collation sorts (`_` after letters).

use unicode_normalization::char::decompose_canonical;

use crate::words;

/// `text` with letters in upper case and without accents: `pätatt` becomes `PATATT`, `straße` becomes `STRASE`.
/// Letters that are not a base letter with an accent, such as ø, ł and æ, stay as they are.
pub fn fold(text: &str) -> String {
    String::from_utf8(folded_bytes(text)).expect("folding gives text")
}

/// The bytes of the folded form, for uses that do not need to know that they are text.
pub(crate) fn folded_bytes(text: &str) -> Vec<u8> {
    let mut folded = Vec::with_capacity(text.len() + words::PAIR_BYTES);
    fold_into(text.as_bytes(), &mut folded);
    folded
}

/// Appends the folded form of `text`, UTF-8, to `folded`.
pub(crate) fn fold_into(text: &[u8], folded: &mut Vec<u8>) {
    fold_until(text, |_| 0, folded);
}

/// Appends the folded form of `text` up to the first byte that `marks` marks, which is an ASCII byte. Returns the
/// size of that part of `text`.
#[inline(always)]
pub(crate) fn fold_until(text: &[u8], marks: impl Fn(u64) -> u64, folded: &mut Vec<u8>) -> usize {
    let start = folded.len();
    let (size, is_ascii) = words::append_upper(text, marks, folded);
    if !is_ascii {
        folded.truncate(start);
        fold_chars_into(&text[..size], folded);
    }
    size
}

#[cold]
fn fold_chars_into(text: &[u8], folded: &mut Vec<u8>) {
    let mut bytes = [0; 4];
    for character in String::from_utf8_lossy(text).chars() {
        folded.extend_from_slice(fold_char(character).encode_utf8(&mut bytes).as_bytes());
    }
}

fn fold_char(character: char) -> char {
    match character {
        'a'..='z' => character.to_ascii_uppercase(),
        '\0'..='\u{7f}' => character,
        'ß' => 'S',
        // й is a separate letter, unlike ё, which is an accented е.
        'Й' | 'й' => 'Й',
        'ϲ' => 'Σ',
        // Unicode has these Greek letters with an acute accent twice.
        '\u{1f71}' => '\u{1fbb}',
        '\u{1f73}' => '\u{1fc9}',
        '\u{1f75}' => '\u{1fcb}',
        '\u{1f77}' => '\u{1fdb}',
        '\u{1f79}' => '\u{1ff9}',
        '\u{1f7b}' => '\u{1feb}',
        '\u{1f7d}' => '\u{1ffb}',
        _ if KEPT.binary_search(&character).is_ok() => character,
        // The collation knows case and accents in Latin, Greek, Cyrillic and their extensions.
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

/// Letters that the collation leaves unchanged: its tables are older than the upper case of most of them.
#[rustfmt::skip]
const KEPT: [char; 111] = [
    '\u{180}', '\u{19a}', '\u{19b}', '\u{19e}', '\u{23c}', '\u{23f}', '\u{240}', '\u{242}',
    '\u{247}', '\u{249}', '\u{24b}', '\u{24d}', '\u{24f}', '\u{250}', '\u{251}', '\u{252}',
    '\u{25c}', '\u{261}', '\u{264}', '\u{265}', '\u{266}', '\u{26a}', '\u{26b}', '\u{26c}',
    '\u{271}', '\u{27d}', '\u{282}', '\u{287}', '\u{289}', '\u{28c}', '\u{29d}', '\u{29e}',
    '\u{340}', '\u{341}', '\u{343}', '\u{344}', '\u{371}', '\u{373}', '\u{374}', '\u{377}',
    '\u{37b}', '\u{37c}', '\u{37d}', '\u{37e}', '\u{385}', '\u{387}', '\u{3d7}', '\u{3d9}',
    '\u{3f3}', '\u{3f5}', '\u{3f8}', '\u{3fb}', '\u{419}', '\u{48b}', '\u{4c6}', '\u{4ca}',
    '\u{4ce}', '\u{4cf}', '\u{4f7}', '\u{4fb}', '\u{4fd}', '\u{4ff}', '\u{501}', '\u{503}',
    '\u{505}', '\u{507}', '\u{509}', '\u{50b}', '\u{50d}', '\u{50f}', '\u{511}', '\u{513}',
    '\u{515}', '\u{517}', '\u{519}', '\u{51b}', '\u{51d}', '\u{51f}', '\u{521}', '\u{523}',
    '\u{525}', '\u{527}', '\u{529}', '\u{52b}', '\u{52d}', '\u{52f}', '\u{1efb}', '\u{1efd}',
    '\u{1eff}', '\u{1fbb}', '\u{1fc1}', '\u{1fc9}', '\u{1fcb}', '\u{1fcd}', '\u{1fce}',
    '\u{1fcf}', '\u{1fd3}', '\u{1fdb}', '\u{1fdd}', '\u{1fde}', '\u{1fdf}', '\u{1fe3}',
    '\u{1feb}', '\u{1fed}', '\u{1fee}', '\u{1fef}', '\u{1ff9}', '\u{1ffb}', '\u{1ffd}',
    '\u{214e}', '\u{2184}',
];

/// The upper-case form, if that is a single character.
fn upper_case(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

/// `text` in lower case. `info` compares package names in this form, where accents count.
pub(crate) fn lower(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn equals_the_databases_collation() {
        let table = include_str!("../../../testdata/aur/general_ci.txt");
        let number = |text: &str| u32::from_str_radix(text, 16).expect("hexadecimal");
        let weights: std::collections::HashMap<u32, u32> = table
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once(' ').expect("two numbers"))
            .map(|(character, weight)| (number(character), number(weight)))
            .collect();
        assert!(weights.len() > 1_000);
        for character in (1..=0xffff).filter_map(char::from_u32) {
            let weight = weights.get(&(character as u32)).copied().unwrap_or(character as u32);
            let folded: Vec<u32> = fold(&character.to_string()).chars().map(u32::from).collect();
            assert_eq!(folded, [weight], "{character} U+{:04X}", character as u32);
        }
    }

    #[test]
    fn every_byte_of_ascii_at_every_place() {
        for size in 0..20 {
            for byte in 0..0x80_u8 {
                let text: String = (0..size).map(|at| char::from((byte + at * 7) % 0x80)).collect();
                assert_eq!(fold(&text), text.to_ascii_uppercase());
                for at in 0..=usize::from(size) {
                    let mut accented = text.clone();
                    accented.insert(at, 'é');
                    assert_eq!(fold(&accented), accented.to_ascii_uppercase().replace('é', "E"));
                }
            }
        }
    }

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
            ("йё", "ЙЕ"),
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
