//! Sentences: templates with slots, filled from the word lists.
//!
//! | slot | becomes |
//! | --- | --- |
//! | `{a}`, `{A}` | a quality, in lower case or capitalised |
//! | `{t}` | a kind of software |
//! | `{n}` | what it works on, plural |
//! | `{v}` | what it does, third person |
//! | `{l}` | a programming language |
//! | `{p}` | a desktop or platform |
//! | `{s}`, `{S}` | the stem of the package's name, as it is or capitalised |

use crate::random::Random;
use crate::words::Words;

/// Descriptions of applications.
pub(crate) const APPLICATION: &[&str] = &[
    "{A} {t} for {n}",
    "{A} and {a} {t} for {n}",
    "{A} {t} for {p}",
    "A {a} {t} written in {l}",
    "A {a}, {a} {t} that {v} {n}",
    "{A} {t} that {v} {n} and {v} {n}",
    "{A} {t} that {v} your {n}, written in {l}",
    "Command line {t} that {v} {n}",
    "{S} is a {a} {t} for {n} and {n}",
    "{S}, the {a} {t}",
    "The {a} {t} for {p} and {p}",
    "Graphical {t} for {n}, built with {l} and {l}",
    "Manage, sort and share {n} on {p}",
    "{A} replacement of your {t} for {p} users",
    "Desktop client of the {S} service for {n}",
    "{A} {n} for people who like {a} {n}",
    "{t} and {t} for {n} with a {a} interface",
    "Open source {t} with {a} {n}, {a} {n} and {n}",
    "A {a} {t} with support for {n}, {n} and {n}",
    "A {t} in your terminal that {v} {n} and shows {n}",
    "{l} {t} that {v} {n} from {p} to {p}",
    "Tool that {v} {n} into {n}",
    "{A} game about {n} and {n}",
    "{A} front end of {s} for {p}",
    "{A} {t} to explore {n} in real time",
];

/// Sentences with characters beyond ASCII: accents, umlauts, Cyrillic, Greek, CJK, emoji, typographic marks.
pub(crate) const NON_ASCII: &[&str] = &[
    "Éditeur de {n} à la fois léger et {a}",
    "Schneller {t} für {n} und größere {n}",
    "Gestor de {n} rápido y {a} en español",
    "日本語 input {t} for {n} and {n}",
    "中文 {t} that {v} {n} on {p}",
    "Простой {t} for {n} on {p}",
    "Ένα {a} {t} for {n} and {n}",
    "{A} {t} – {v} {n} “as is” on {p}",
    "🦀 {A} {t} written in Rust, really {a}",
    "{S}™ {t} for {n}, the {a} one…",
    "{A} naïve café {t} with Señor {S}",
    "Åäö-aware {t} that {v} {n} → {n}",
];

/// Sentences with characters that JSON, HTML or SQL must escape.
pub(crate) const MARKED: &[&str] = &[
    "\"{S}\" is a {a} {t} for {n}",
    "A {t} that {v} \"{a}\" {n} and 'other' {n}",
    "{A} {t} for <{n}> elements in HTML & XML",
    "{A} {n} & {n} for {p}",
    "Don't lose your {n}: a {a} {t}",
    "Small {t}: {n} < {n}, but faster than > 100% of them",
    "{A} R&D {t} for {n} (100% {l})",
];

/// Sentences with backslashes.
pub(crate) const BACKSLASHED: &[&str] = &[
    "Mounts C:\\{S}\\{n} as a {a} drive",
    "{A} {t} for \\LaTeX and \\TeX {n}",
    "Escapes \\n and \\t in {n} for {p}",
];

/// Sentences with `attest`, a word that only a handful of packages contain.
pub(crate) const ATTESTING: &[&str] = &[
    "Remote attestation of {n} for {p}",
    "{A} {t} to attest the origin of {n}",
    "Sign and verify attestations of {n} and {n}",
    "Tools for TPM attestation, {a} and {a}",
];

/// Appends `template` to `text` with every slot filled.
pub(crate) fn fill(
    text: &mut String,
    template: &str,
    stem: &str,
    words: &Words,
    random: &mut Random,
) {
    let mut rest = template;
    while let Some((before, slot, after)) = next_slot(rest) {
        text.push_str(before);
        match slot {
            'a' => push_spaced(text, random.pick(&words.adjectives), '-'),
            'A' => push_capitalised(text, random.pick(&words.adjectives)),
            't' => push_spaced(text, random.pick(&words.tools), ' '),
            'n' => push_spaced(text, random.pick(&words.objects), ' '),
            'v' => push_spaced(text, random.pick(&words.verbs), ' '),
            'l' => text.push_str(random.pick(&words.languages)),
            'p' => text.push_str(random.pick(&words.platforms)),
            's' => text.push_str(stem),
            'S' => push_capitalised(text, stem),
            _ => unreachable!("templates have no slot `{slot}`"),
        }
        rest = after;
    }
    text.push_str(rest);
}

/// The text before the first slot, its letter, and the text after it.
fn next_slot(text: &str) -> Option<(&str, char, &str)> {
    let (before, slot) = text.split_once('{')?;
    let (letter, after) = slot.split_once('}')?;
    Some((before, letter.chars().next()?, after))
}

/// Appends `word` with its first letter as a capital.
pub(crate) fn push_capitalised(text: &mut String, word: &str) {
    let mut letters = word.chars();
    text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
    text.push_str(letters.as_str());
}

/// Appends a word of a list, with each hyphen replaced by `hyphen`; adapts an article before it.
fn push_spaced(text: &mut String, word: &str, hyphen: char) {
    let follows_article = text.ends_with(" a ") || text.ends_with("A ") || text == "a ";
    if follows_article && (word.starts_with(['a', 'e', 'i', 'o']) || word.starts_with("un")) {
        text.insert(text.len() - 1, 'n');
    }
    text.extend(word.chars().map(|letter| if letter == '-' { hyphen } else { letter }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystem::ECOSYSTEMS;

    #[test]
    fn every_template_has_known_slots_and_a_fair_length() {
        let words = Words::new();
        let mut random = Random::new(1, 0);
        let own = [APPLICATION, NON_ASCII, MARKED, BACKSLASHED, ATTESTING];
        let templates =
            own.into_iter().chain(ECOSYSTEMS.iter().map(|ecosystem| ecosystem.descriptions));
        for template in templates.flatten() {
            let mut text = String::new();
            fill(&mut text, template, "stem", &words, &mut random);
            assert!(!text.contains(['{', '}']), "`{template}` became `{text}`");
            assert!((3..=18).contains(&text.split(' ').count()), "`{template}` became `{text}`");
            assert_eq!(
                text.contains("attest"),
                ATTESTING.contains(template),
                "`{template}` became `{text}`"
            );
        }
    }
}
