//! The words of a search for projects.

/// A word as it would be in a project's name.
pub(crate) fn normal(word: &str) -> String {
    word.to_lowercase().replace(['_', '.'], "-")
}

/// The first `count_max` different words of a search, longest first. A word that is part of another one is left out, as it
/// excludes nothing.
pub(crate) fn distinct_words(text: &str, count_max: usize) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(normal) {
        if distinct.len() == count_max {
            break;
        }
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let mut words: Vec<String> = Vec::with_capacity(distinct.len());
    for word in distinct {
        if !words.iter().any(|longer| longer.contains(&word)) {
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_say_nothing_new_are_left_out() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(distinct_words(text, 3), expected, "{text}");
        };
        check("u b u U flask-b", &["flask-b", "u"]);
        check("p pear PEAR ea", &["pear"]);
        check("x y z w", &["x", "y", "z"]);
        check(" ", &[]);
    }
}
