//! What is in which folder, in which order, for whom; also after random changes.

use proptest::prelude::*;

use super::*;
use crate::Snapshot;
use crate::testing::{Store, delete, put, rename};

const ALL: Visibility<'_> = Visibility { article: &|_| true, below: &|_| true, places: &[] };

/// The entries below a folder: `page`, `folder(…)` without a page, `page(…)` with one of another name as `folder=page(…)`.
fn outline(view: VisibleTree<'_>, folder: &str) -> String {
    let entry = |entry: &Entry<'_>| {
        let page = entry.page.map(|it| it.name.as_str());
        let page = page.filter(|page| *page != entry.path).map(label).map(|it| format!("={it}"));
        let inner = entry.is_folder.then(|| format!("({})", outline(view, entry.path)));
        format!("{}{}{}", entry.label, page.unwrap_or_default(), inner.unwrap_or_default())
    };
    view.first(folder, 100).entries.iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// All pages in the order in which they are read, by asking for the next one, and for the previous one.
fn read(view: VisibleTree<'_>) -> [Vec<String>; 2] {
    let walk = |first: Option<&Arc<Article>>, is_forward: bool| {
        let mut found = Vec::new();
        let mut at = first.cloned();
        while let Some(article) = at {
            let name = article.name.as_str();
            found.push(name.to_owned());
            assert!(found.len() < 1_000, "{found:?}");
            let path = view.path_of(name);
            at = if is_forward { view.next(path) } else { view.previous(path) }.cloned();
        }
        found
    };
    let forward = walk(view.next(""), true);
    let last = forward.last().and_then(|last| view.articles.get(last.as_str()));
    let mut back = walk(last, false);
    back.reverse();
    [forward, back]
}

fn with_order(order: i32) -> String {
    format!("---\norder: {order}\n---\n# x\n")
}

#[track_caller]
fn check(names: &[&str], expected: &str, expected_pages: &str) {
    let mut store = Store::default();
    for text in names {
        let (text, order) = text.split_once('@').unwrap_or((text, ""));
        let content = order.parse().map_or_else(|_| "# x\n".to_owned(), with_order);
        store.write(&put(text, 0, &content));
    }
    let view = store.snapshot.tree(ALL);
    assert_eq!(outline(view, ""), expected);
    for pages in read(view) {
        assert_eq!(pages.join(" "), expected_pages);
    }
}

#[test]
fn pages_are_in_folders_in_order() {
    check(&["b", "a", "c/x", "c/d/y"], "a b c(d(y) x)", "a b c/d/y c/x");
    check(&["a@2", "b", "c@-1", "d@2"], "c a d b", "c a d b");
    check(&["a", "a/b", "a-c", "a/b/c"], "a(b(c)) a-c", "a a/b a/b/c a-c");
    check(&[], "", "");
}

#[test]
fn a_folder_has_the_page_that_is_named_so() {
    check(&["g/README", "g/a", "z"], "g=README(a) z", "g/README g/a z");
    check(&["g/index.md@3", "z@2", "h/x@1"], "z g=index.md() h(x)", "z g/index.md h/x");
    check(&["g", "g/index"], "g(index)", "g g/index");
    check(&["index", "a"], "a index", "a index");
    check(&["g/README", "g/index"], "g=index(README)", "g/index g/README");
}

#[test]
fn the_tree_follows_every_change() {
    let mut store = Store::default();
    let mut check = |change: &crate::Change, expected: &str| {
        store.write(change);
        assert_eq!(outline(store.snapshot.tree(ALL), ""), expected, "{change:?}");
    };
    check(&put("g/a", 0, "x"), "g(a)");
    check(&put("g/README", 0, "x"), "g=README(a)");
    check(&put("f", 0, &with_order(7)), "f g=README(a)");
    check(&put("g/README", 1, &with_order(1)), "g=README(a) f");
    check(&rename("g/a", 1, "h/b"), "g=README() f h(b)");
    check(&put("g", 0, &with_order(9)), "f g(README) h(b)");
    check(&delete("g", 1), "g=README() f h(b)");
    check(&delete("h/b", 2), "g=README() f");
    check(&delete("g/README", 2), "f");
    check(&put("h/b/c/d", 0, "x"), "f h(b(c(d)))");
}

#[test]
fn only_what_is_shown_as_a_page_is_in_it() {
    let mut store = Store::default();
    let mut picture = put("g/p.png", 0, "x");
    let content = crate::Content::of(b"x", Some("image/png")).expect("a media type");
    picture.act = crate::WriteAction::Put(content);
    store.write(&picture);
    assert_eq!(outline(store.snapshot.tree(ALL), ""), "");
}

#[test]
fn what_a_reader_may_not_read_is_not_in_it() {
    let mut store = Store::default();
    for name in ["a/x", "b/README", "b/c/y", "b/c/z", "b/d", "e", "f/g"] {
        store.write(&put(name, 0, "# x\n"));
    }
    let places = ["b/c".to_owned(), "nothing/here".to_owned()];
    let article = |name: &str| name.starts_with("b/c");
    let sight = Visibility {
        article: &article,
        below: &|start| start.starts_with("b/c/"),
        places: &places,
    };
    let view = store.snapshot.tree(sight);
    assert_eq!(outline(view, ""), "b(c(y z))");
    assert_eq!(read(view)[0], ["b/c/y", "b/c/z"]);
    assert_eq!(view.previous("b/c/y").map(|it| it.name.to_string()), None);
    assert!(view.page("b").is_none() && !view.is_folder("a") && !view.is_folder("nothing"));
}

#[test]
fn a_part_of_a_large_folder_is_around_the_page() {
    let mut store = Store::default();
    for at in 0..50 {
        store.write(&put(&format!("g/p{at:02}"), 0, "x"));
    }
    let view = store.snapshot.tree(ALL);
    let check = |part: EntryWindow<'_>, first: &str, last: &str, is_more: (bool, bool)| {
        let ends = (part.entries.first(), part.entries.last());
        let ends = (ends.0.expect("entries").label, ends.1.expect("entries").label);
        assert_eq!((ends, part.entries.len()), ((first, last), 10));
        assert_eq!((part.is_more_before, part.is_more_after), is_more);
    };
    check(view.around("g/p20", 10), "p15", "p24", (true, true));
    check(view.around("g/p01", 10), "p00", "p09", (false, true));
    check(view.around("g/p49", 10), "p40", "p49", (true, false));
    check(view.around("g/none", 10), "p00", "p09", (false, true));
    check(view.first("g", 10), "p00", "p09", (false, true));
}

#[test]
fn deep_names_are_few_folders() {
    let name = vec!["a"; 200].join("/");
    let mut store = Store::default();
    store.write(&put(&name, 0, "x"));
    assert_eq!(store.snapshot.tree.entries.len(), DEPTH_MAX + 1);
    let view = store.snapshot.tree(ALL);
    assert_eq!(read(view), [[name.clone()], [name.clone()]]);
    let mut depth = 0;
    let mut path = name.as_str();
    while let Some(folder) = folder_of(path) {
        (path, depth) = (folder, depth + 1);
    }
    assert_eq!(depth, DEPTH_MAX + 1);
}

proptest! {
    #[test]
    fn any_history_gives_the_tree_of_what_is_left(
        changes in proptest::collection::vec(("[ab](/([ab]|index|README)){0,2}", 0_i32..3), 0..30),
    ) {
        let mut store = Store::default();
        for (name, act) in changes {
            let highest = store.snapshot.article_named(&name).map_or(0, |it| it.highest().0);
            let is_there = store.snapshot.article_named(&name).is_some_and(|it| !it.is_deleted());
            store.write(&match act {
                0 if is_there => delete(&name, highest),
                order => put(&name, highest, &with_order(order)),
            });
        }
        let mut records: Vec<_> = store.snapshot.records().collect();
        records.reverse();
        let again = Snapshot::default().apply(&records).snapshot;
        prop_assert_eq!(&again.tree, &store.snapshot.tree);
        let pages = store.snapshot.articles().filter(|it| !it.is_deleted());
        let mut pages: Vec<_> = pages.map(|it| it.name.to_string()).collect();
        let [forward, back] = read(store.snapshot.tree(ALL));
        prop_assert_eq!(&forward, &back);
        let mut forward = forward;
        forward.sort();
        pages.sort();
        prop_assert_eq!(forward, pages);
    }
}
