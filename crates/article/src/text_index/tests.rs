//! What is found, in which order, and after changes; random histories against a scan.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::document::words;
use super::*;
use crate::testing::name;
use crate::{ContentType, text_index};

fn markdown() -> ContentType {
    ContentType::parse("text/markdown").expect("a media type")
}

fn document(title: &str, text: &str) -> Document {
    Document::titled(Some(title)).with_text(&markdown(), text.as_bytes(), Vec::new())
}

fn index(articles: &[(&str, &str, &str)]) -> TextIndex {
    let all = articles.iter().map(|(at, title, text)| (name(at), Some(document(title, text))));
    TextIndex::default().replaced(all.collect())
}

fn found(index: &TextIndex, question: &str) -> String {
    let found = index.search(&Question::parse(question), 100, None);
    assert_eq!(found.count, found.hits.len());
    found.hits.iter().map(|hit| hit.name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_are_runs_of_letters_and_digits() {
    let check = |text: &str, expected: &str| {
        assert_eq!(words(text).collect::<Vec<_>>().join("|"), expected, "{text}");
    };
    check("foo_bar-1.2 (baz)", "foo|bar|1|2|baz");
    check("  ", "");
    check("日本のLarder", "日|本|の|Larder");
    check(&"é".repeat(40), &"é".repeat(32));
}

#[test]
fn the_best_come_first() {
    let index = index(&[
        ("guide/start", "Getting started", "how to begin with larder"),
        ("larder", "Something", "nothing"),
        ("notes/n1", "Larder", "nothing"),
        ("notes/n2", "About larder", "nothing"),
        ("notes/n3", "Other", "larder larder larder larder larder larder"),
        ("notes/n4", "Other", "larder"),
        ("notes/n5", "Other", "larderlike"),
        ("notes/n6", "Other", "nothing of it"),
    ]);
    assert_eq!(
        found(&index, "larder"),
        "larder notes/n1 notes/n2 notes/n3 guide/start notes/n4 notes/n5"
    );
    // The last word may go on; with something after it, it does not.
    assert_eq!(
        found(&index, "LARD"),
        "larder notes/n1 notes/n2 notes/n3 guide/start notes/n4 notes/n5"
    );
    assert_eq!(found(&index, "larder "), "larder notes/n1 notes/n2 notes/n3 guide/start notes/n4");
    // An article must have all words, in any order.
    assert_eq!(found(&index, "larder begin"), "guide/start");
    assert_eq!(found(&index, "started getting"), "guide/start");
    assert_eq!(found(&index, "larder absent"), "");
    assert_eq!(found(&index, "--"), "");
}

#[test]
fn it_says_where_the_words_are() {
    let index = index(&[("a", "title", "words"), ("words", "", "")]);
    let found = index.search(&Question::parse("words"), 10, None);
    let places = |hit: &Hit| (hit.name.to_string(), hit.in_name, hit.in_title, hit.in_text);
    let places: Vec<_> = found.hits.iter().map(places).collect();
    assert_eq!(
        places,
        [("words".to_owned(), true, false, false), ("a".to_owned(), false, false, true)]
    );
}

#[test]
fn what_is_not_shown_is_not_counted() {
    let index = index(&[("a", "", "x"), ("b", "", "x"), ("c", "", "x")]);
    let found = index.search(&Question::parse("x"), 1, Some(&|name| name.as_str() != "a"));
    assert_eq!((found.count, found.hits.len()), (2, 1));
    assert_eq!(found.hits[0].name.as_str(), "b");
}

#[test]
fn a_change_replaces_what_was_there() {
    let index = index(&[("a", "", "old words"), ("b", "", "old words")]);
    let index = index.replaced(vec![(name("a"), Some(document("", "new words")))]);
    assert_eq!((found(&index, "old "), found(&index, "words ")), ("b".into(), "a b".into()));
    let index = index.replaced(vec![(name("b"), None), (name("none"), None)]);
    assert_eq!((found(&index, "words "), index.len()), ("a".into(), 1));
    let index = index.replaced(vec![(name("a"), None)]);
    assert_eq!((index.is_empty(), index.segments(), index.memory_bytes()), (true, 0, 0));
}

#[test]
fn html_is_searched_without_its_tags() {
    let html = ContentType::parse("text/html").expect("a media type");
    let text = b"<p class=hidden>shown<b>too</b> <unclosed";
    let document = Document::titled(None).with_text(&html, text, Vec::new());
    let index = TextIndex::default().replaced(vec![(name("a"), Some(document))]);
    assert_eq!((found(&index, "shown too"), found(&index, "hidden")), ("a".into(), "".into()));
    assert_eq!(found(&index, "unclosed"), "");
}

#[test]
fn what_is_kept_of_an_article_is_bounded() {
    // All words are different, and as many as a text can have.
    let text: String = (0..200_000).map(|at| format!("{at:x} ")).collect();
    let links = (0..10_000).map(|at| Link { near: name(&format!("n{at}")), far: None });
    let document = Document::titled(None).with_text(&markdown(), text.as_bytes(), links.collect());
    let index = TextIndex::default().replaced(vec![(name("a"), Some(document))]);
    assert!(index.memory_bytes() < 100_000, "{}", index.memory_bytes());
    assert!(text_index::TEXT_BYTES_MAX < text.len());
    // Nor do short links to long names take more.
    let long = "x/".repeat(240);
    let links = (0..256)
        .map(|at| Link { near: name(&format!("{long}{at}n")), far: Some(name(&format!("{at}n"))) });
    let document = Document::titled(None).with_text(&markdown(), b"", links.collect());
    let linked = TextIndex::default().replaced(vec![(name("a"), Some(document))]);
    assert!(linked.memory_bytes() < 20_000, "{}", linked.memory_bytes());
    // A question has a bound, too: the ninth word is not looked for.
    assert_eq!(found(&index, "0 1 2 3 4 5 6 7 absent"), "a");
}

#[test]
fn the_beginning_of_too_many_words_is_looked_at_in_part() {
    let all = (0..20_u32).map(|at| {
        let text: String = (0..400).map(|word| format!("w{at}x{word} ")).collect();
        (name(&format!("a{at}")), Some(document("", &text)))
    });
    let index = TextIndex::default().replaced(all.collect());
    let found = index.search(&Question::parse("w1"), 100, None);
    assert!(!found.is_whole || found.count == 11);
    let found = index.search(&Question::parse("w1x3"), 100, None);
    assert_eq!((found.is_whole, found.count), (true, 1));
}

#[test]
fn links_lead_to_the_nearer_article() {
    let link = |near: &str, far: Option<&str>| Link { near: name(near), far: far.map(name) };
    let linking = |links: Vec<Link>| Document::titled(None).with_text(&markdown(), b"", links);
    let index = TextIndex::default().replaced(vec![
        (name("guide/a"), Some(linking(vec![link("guide/b", Some("b"))]))),
        (name("c"), Some(linking(vec![link("b", None), link("c", None)]))),
    ]);
    let to = |target: &str, there: &[&str]| {
        let (found, is_more) =
            index.linking_to(&name(target), 10, |it| there.contains(&it), |_| true);
        assert!(!is_more);
        found.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((to("b", &[]), to("guide/b", &[])), ("c guide/a".into(), "guide/a".into()));
    assert_eq!(to("b", &["guide/b"]), "c");
    // An article does not count as linking to itself, and words are no links.
    assert_eq!((to("c", &[]), to("guide", &[])), (String::new(), String::new()));
    // 3,000 articles may link to `b`. The search stops after LINKING_MAX of their links.
    let looked_at = std::cell::Cell::new(0);
    let many = (0..3_000).map(|at| {
        let near = format!("d{at}/b");
        (name(&format!("d{at}/a")), Some(linking(vec![link(&near, Some("b"))])))
    });
    let many = TextIndex::default().replaced(many.collect());
    let is_there = |_: &str| {
        looked_at.set(looked_at.get() + 1);
        true
    };
    assert_eq!(many.linking_to(&name("b"), 10, is_there, |_| true), (vec![], true));
    assert!((1..=LINKING_MAX * many.segments()).contains(&looked_at.get()));
    // At most `limit` are found, and articles that are not shown take no place of others.
    let many =
        (0..900).map(|at| (name(&format!("e{at:03}")), Some(linking(vec![link("b", None)]))));
    let many = TextIndex::default().replaced(many.collect());
    looked_at.set(0);
    let is_shown = |from: &crate::ArticleName| {
        looked_at.set(looked_at.get() + 1);
        from.as_str() >= "e800"
    };
    let (found, is_more) = many.linking_to(&name("b"), 10, |_| false, is_shown);
    assert_eq!((found[0].as_str(), found.len(), is_more), ("e800", 10, true));
    assert_eq!(looked_at.get(), 811);
    let (found, is_more) = index.linking_to(&name("b"), 1, |_| false, |_| true);
    assert_eq!((found.len(), is_more), (1, true));
    let (found, _) = index.linking_to(&name("b"), 9, |_| false, |from| from.as_str() != "c");
    assert_eq!(found, [name("guide/a")]);
}

/// The result of a scan over all articles.
fn scanned(articles: &BTreeMap<String, (String, String)>, question: &str) -> Vec<String> {
    let question = Question::parse(question);
    let has = |text: &str, at: usize, word: &str| {
        let is_prefix = question.has_prefix && at + 1 == question.words.len();
        words(&crate::fold(text)).any(|it| it == word || is_prefix && it.starts_with(word))
    };
    let is_found = |(name, (title, text)): &(&String, &(String, String))| {
        let mut asked = question.words.iter().enumerate();
        !question.is_empty()
            && asked.all(|(at, word)| [*name, title, text].iter().any(|it| has(it, at, word)))
    };
    articles.iter().filter(is_found).map(|(name, _)| name.clone()).collect()
}

proptest! {
    /// Whatever changes in whatever order, and whenever segments are merged.
    #[test]
    fn a_search_finds_what_a_scan_finds(
        batches in prop::collection::vec(
            (
                prop::collection::vec(("[a-c]{1,2}", "[xy ]{0,3}", "[x-z日 ]{0,6}", any::<bool>()), 0..4),
                any::<bool>(),
                any::<bool>(),
            ),
            0..12,
        ),
        question in "[a-cx-z日]{1,2}( [x-z]{1,2})? ?",
    ) {
        let mut index = TextIndex::default();
        let mut articles = BTreeMap::new();
        let mut merge: Option<Merge> = None;
        for (batch, begins, ends) in batches {
            if begins {
                // Any neighbours may be merged.
                merge = Some(Merge { parts: index.parts.iter().take(2).cloned().collect() });
            }
            let mut changes = Vec::new();
            for (at, title, text, is_there) in batch {
                changes.push((name(&at), is_there.then(|| document(&title, &text))));
                match is_there {
                    true => _ = articles.insert(at, (title, text)),
                    false => _ = articles.remove(&at),
                }
            }
            index = index.replaced(changes);
            if ends && let Some(merge) = merge.take() && !merge.parts.is_empty() {
                index = index.with(merge.run());
            }
            prop_assert_eq!(index.len(), articles.len());
        }
        let found = index.search(&Question::parse(&question), 100, None);
        let mut names: Vec<String> = found.hits.iter().map(|hit| hit.name.to_string()).collect();
        prop_assert_eq!(found.count, names.len());
        names.sort();
        prop_assert_eq!(names, scanned(&articles, &question));
    }
}

#[test]
fn a_change_in_a_large_segment_merges_nothing_large() {
    let articles = |start: usize, count: usize| {
        let one = |at: usize| (name(&format!("a{at:05}")), Some(document("T", "text")));
        (start..start + count).map(one).collect::<Vec<_>>()
    };
    let index = TextIndex::default().replaced(articles(0, 4 * SMALL_MAX));
    let index = index.replaced(articles(4 * SMALL_MAX, 2 * SMALL_MAX));
    assert!(index.wants_merge().is_none() && index.segments() == 2);
    let changed = index.replaced(articles(7, 1));
    assert!(changed.wants_merge().is_none(), "{} segments", changed.segments());
    assert_eq!(changed.len(), 6 * SMALL_MAX);
    // What has been replaced half is merged.
    let replaced = index.replaced(articles(0, 2 * SMALL_MAX + 1));
    assert!(replaced.wants_merge().is_some());
}
