//! What a snapshot lists and finds, for any order of its records; also with random histories.

use proptest::prelude::*;

use super::*;
use crate::Change;
use crate::testing::{Store, delete, name, put, restore};

/// Names with `*` if deleted, each with its latest version.
fn shown(page: &Page) -> String {
    let article = |article: &Arc<Article>| {
        let mark = if article.is_deleted() { "*" } else { "" };
        format!("{}{mark}@{}", article.name, article.highest())
    };
    page.articles.iter().map(article).collect::<Vec<_>>().join(" ")
}

fn sample() -> Snapshot {
    let mut store = Store::default();
    store.write(&put("guide/start", 0, "# Getting Started\n"));
    store.write(&put("guide/end", 0, "# The End\n"));
    store.write(&put("guide/end", 1, "# The very End\n"));
    store.write(&put("news", 0, "Ένδοξος\n"));
    store.write(&put("gone", 0, "# Still in history\n"));
    store.write(&delete("gone", 1));
    store.snapshot
}

#[test]
fn where_links_lead_changes_when_articles_come_or_go() {
    let mut store = Store::default();
    let mut check = |change: &Change, expected: u64| {
        store.write(change);
        assert_eq!(store.snapshot.linked_at(), Serial(expected), "{change:?}");
        let last = store.log.last().map(|record| record.serial);
        assert_eq!(Some(store.snapshot.changed_at()), last, "{change:?}");
    };
    check(&put("a", 0, "one"), 1);
    check(&put("a", 1, "two"), 1);
    check(&put("b", 0, "one"), 3);
    check(&delete("a", 2), 4);
    check(&put("b", 1, "two"), 4);
    check(&restore("a", 3, Some(1)), 6);
    // Records of other surfaces change nothing.
    assert_eq!(store.snapshot.apply(&[]).snapshot.linked_at(), Serial(6));
}

#[test]
fn files_change_a_snapshot_and_records_of_other_surfaces_do_not() {
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    let changed_at = |key: &str, serial: u64| {
        let (key, serial) = (::record::Key::new(key).expect("a key"), Serial(serial));
        let record = Record { key, serial, body: None, blobs: Vec::new() };
        store.snapshot.apply(&[record]).snapshot.changed_at()
    };
    assert_eq!(changed_at("attachments/a", 7), Serial(7));
    assert_eq!(changed_at("user/alice", 7), Serial(1));
}

#[track_caller]
fn check(query: ListQuery<'_>, expected: &str) {
    let snapshot = sample();
    for snapshot in [&snapshot, &snapshot.with_index(snapshot.build_index())] {
        assert_eq!(shown(&snapshot.list(&query)), expected, "{query:?}");
    }
}

#[test]
fn lists_are_by_name() {
    let all = ListQuery::default;
    check(all(), "guide/end@2 guide/start@1 news@1");
    check(ListQuery { with_deleted: true, ..all() }, "gone*@2 guide/end@2 guide/start@1 news@1");
    check(ListQuery { prefix: "guide/", ..all() }, "guide/end@2 guide/start@1");
    check(ListQuery { prefix: "guide/", after: Some("guide/end"), ..all() }, "guide/start@1");
    check(ListQuery { prefix: "guide/", after: Some("a"), limit: 1, ..all() }, "guide/end@2");
    check(ListQuery { prefix: "guide/", after: Some("news"), ..all() }, "");
    check(ListQuery { limit: 0, ..all() }, "");
}

#[test]
fn searches_see_names_and_titles_in_any_case() {
    let q = |q| ListQuery { q, ..ListQuery::default() };
    check(q("END"), "guide/end@2");
    check(q("very e"), "guide/end@2");
    check(q("t"), "guide/end@2 guide/start@1");
    check(q("ΈΝΔΟΞΟΣ"), "news@1");
    check(q("history"), "");
    check(q("e\u{301}"), "");
    check(q("news\n"), "");
    check(ListQuery { with_deleted: true, ..q("GON") }, "gone*@2");
    check(ListQuery { prefix: "guide/s", ..q("t") }, "guide/start@1");
    check(ListQuery { after: Some("guide/end"), ..q("t") }, "guide/start@1");
}

#[test]
fn a_snapshot_can_be_rebuilt_from_its_records() {
    let snapshot = sample();
    let records: Vec<Record> = snapshot.records().collect();
    let again = Snapshot::default().apply(&records);
    assert_eq!(again.troubles, []);
    let articles =
        |snapshot: &Snapshot| -> Vec<Arc<Article>> { snapshot.articles().cloned().collect() };
    assert_eq!(articles(&again.snapshot), articles(&snapshot));
}

#[test]
fn pages_follow_each_other() {
    let snapshot = sample();
    let query = |after| ListQuery { after, limit: 2, ..ListQuery::default() };
    let first = snapshot.list(&query(None));
    assert_eq!(first.next, Some(name("guide/start")));
    let second = snapshot.list(&query(first.next.as_ref().map(ArticleName::as_str)));
    assert_eq!((shown(&second).as_str(), second.next), ("news@1", None));
}

#[test]
fn a_deleted_article_keeps_its_history() {
    let snapshot = sample();
    let gone = name("gone");
    let latest = snapshot.latest(&gone).expect("a deletion");
    assert_eq!((latest.revision, &latest.kind), (Revision(2), &Kind::Deleted));
    assert!(snapshot.revision(&gone, Revision(1)).is_some_and(|facts| !facts.is_deleted()));
    assert_eq!(snapshot.revision(&gone, Revision(3)), None);
    assert_eq!(snapshot.revision(&gone, Revision(0)), None);
    let versions = |before, limit| -> Vec<u32> {
        let history = snapshot.history(&gone, before, limit);
        history.iter().map(|facts| facts.revision.0).collect()
    };
    assert_eq!(versions(None, 9), [2, 1]);
    assert_eq!(versions(None, 1), [2]);
    assert_eq!(versions(Some(Revision(2)), 9), [1]);
    assert_eq!(versions(Some(Revision(1)), 9), [0; 0]);
    assert_eq!(versions(Some(Revision(99)), 9), [2, 1]);
}

#[test]
fn an_unreadable_record_is_reported_and_blocks_only_writes() {
    let mut store = Store::default();
    for base in 0..3 {
        store.write(&put("a", base, "text"));
    }
    let mut records = store.log.clone();
    records[2].body = Some("{\"v\": 2}".into());
    let strange = ["article/x", "article/0000000000/a", "article/1/a", "article/0000000001/a//b"];
    for key in strange {
        let key = ::record::Key::new(key).expect("a key");
        records.push(Record { key, ..records[0].clone() });
    }
    let key = ::record::Key::new("user/a").expect("a key");
    records.push(Record { key, ..records[0].clone() });
    let ApplyOutcome { snapshot, troubles, changed } = Snapshot::default().apply(&records);
    assert_eq!(changed, [name("a")]);
    assert_eq!(troubles.len(), 1 + strange.len());
    let trouble =
        troubles.iter().find(|it| matches!(it.reason, UnreadableReason::Form { found: 2, .. }));
    assert_eq!(
        trouble.map(ToString::to_string).as_deref(),
        Some(
            "the record `article/0000000003/a` of serial 3 cannot be read: its body has the form 2, and this \
             version reads the form 1"
        )
    );
    let article = snapshot.article(&name("a")).expect("the article");
    assert_eq!(article.latest().map(|facts| facts.revision), Some(Revision(2)));
    assert_eq!((article.highest(), article.unreadable()), (Revision(3), &[Revision(3)][..]));
    let refused = put("a", 2, "x").check(&snapshot, &crate::Limits::default());
    assert_eq!(refused.expect_err("no write").code(), "unreadable");
    // A record that can be read again repairs the article.
    let ApplyOutcome { snapshot, troubles, .. } = snapshot.apply(&store.log[2..]);
    assert_eq!((snapshot, troubles), (store.snapshot, Vec::new()));
}

#[test]
fn a_purged_article_is_gone() {
    let mut store = Store::default();
    store.write(&put("a", 0, "text"));
    let snapshot = store.snapshot.with_index(store.snapshot.build_index());
    let purged = Record { body: None, ..store.log[0].clone() };
    let ApplyOutcome { snapshot, .. } = snapshot.apply(&[purged]);
    assert!(snapshot.is_empty());
    let query = ListQuery { q: "a", with_deleted: true, ..ListQuery::default() };
    assert_eq!(shown(&snapshot.list(&query)), "");
}

#[test]
fn an_index_is_wanted_after_many_changes_and_never_goes_back() {
    let mut store = Store::default();
    assert!(!store.snapshot.wants_index());
    for number in 0..300 {
        store.write(&put(&format!("a{number}x"), 0, "text"));
    }
    assert!(store.snapshot.wants_index());
    let old = Arc::new(store.snapshot.build_index());
    // A new text under the same title needs no place in the delta.
    let indexed = store.snapshot.with_index(old.clone());
    assert!(!indexed.wants_index());
    store.write(&put("b", 0, "later"));
    let newer = store.snapshot.build_index();
    let snapshot = store.snapshot.with_index(newer).with_index(old);
    let query = ListQuery { q: "ate", ..ListQuery::default() };
    assert_eq!(shown(&snapshot.list(&query)), "b@1");
}

fn change() -> impl Strategy<Value = (u8, usize, usize)> {
    (0_u8..8, 0_usize..6, 0_usize..5)
}

const NAMES: [&str; 6] = ["a", "a/b", "ab", "Ab/ß", "b/σς", "日本"];
const TITLES: [&str; 5] = ["# Alpha\n", "# beta ς\n", "", "# ALPHABET b\n", "# 日\n"];

/// Makes writes that all succeed, for any drawn numbers.
fn history(changes: &[(u8, usize, usize)]) -> Store {
    let mut store = Store::default();
    for &(kind, name, title) in changes {
        let (name, title) = (NAMES[name], TITLES[title]);
        let latest = store.snapshot.latest(&crate::testing::name(name)).cloned();
        let base = latest.as_ref().map_or(0, |facts| facts.revision.0);
        let change: Change = match (kind, latest) {
            (0..=1, Some(latest)) if !latest.is_deleted() => delete(name, base),
            (2, Some(_)) => restore(name, base, None),
            _ => put(name, base, title),
        };
        store.write(&change);
    }
    store
}

fn naive_list(snapshot: &Snapshot, query: &ListQuery<'_>) -> Page {
    let needle = crate::fold(query.q);
    let contains = |text: &str| crate::fold(text).contains(&needle);
    let mut articles: Vec<Arc<Article>> = snapshot
        .articles()
        .filter(|article| query.with_deleted || !article.is_deleted())
        .filter(|article| article.name.as_str().starts_with(query.prefix))
        .filter(|article| query.after.is_none_or(|after| article.name.as_str() > after))
        .filter(|article| {
            let content = article.latest().and_then(|facts| facts.content());
            let title = content.and_then(|content| content.title.clone());
            contains(article.name.as_str()) || title.is_some_and(|title| contains(&title))
        })
        .cloned()
        .collect();
    let has_more = articles.len() > query.limit;
    articles.truncate(query.limit);
    let next = articles.last().filter(|_| has_more).map(|article| article.name.clone());
    Page { articles, next }
}

proptest! {
    #[test]
    fn chunks_and_order_make_no_difference(
        changes in proptest::collection::vec(change(), 0..40),
        chunk in 1_usize..9,
        broken in any::<prop::sample::Index>(),
        order in any::<u64>(),
    ) {
        let store = history(&changes);
        let mut records = store.log.clone();
        let whole = Snapshot::default().apply(&records);
        prop_assert_eq!(&whole.snapshot, &store.snapshot);
        prop_assert_eq!(whole.troubles, []);
        if !records.is_empty() {
            let at = broken.index(records.len());
            records[at].body = Some("nonsense".into());
        }
        let whole = Snapshot::default().apply(&records).snapshot;
        let mut chunked = Snapshot::default();
        for chunk in records.chunks(chunk) {
            chunked = chunked.apply(chunk).snapshot;
        }
        prop_assert_eq!(&chunked, &whole);
        // Applying the same records twice changes nothing.
        prop_assert_eq!(&chunked.apply(&records).snapshot, &whole);
        records.sort_by_key(|record| record.serial.0.wrapping_mul(order | 1));
        let mut shuffled = Snapshot::default();
        for chunk in records.chunks(chunk) {
            shuffled = shuffled.apply(chunk).snapshot;
        }
        prop_assert_eq!(&shuffled, &whole);
    }

    #[test]
    fn a_search_equals_a_scan(
        changes in proptest::collection::vec(change(), 0..40),
        built_at in 0_usize..40,
        adopted_after in 0_usize..10,
        q in prop::sample::select(vec!["", "a", "B", "alpha", "ab", "Σ", "σς", "ß", "日", "/", "x", "a b", "a\nA"]),
        prefix in prop::sample::select(vec!["", "a", "b", "日", "c"]),
        after in prop::sample::select(vec![None, Some("a"), Some("ab"), Some("日")]),
        limit in 0_usize..7,
        with_deleted in any::<bool>(),
    ) {
        // The index is built after some writes, and comes into use after some more.
        let log = history(&changes).log;
        let built_at = built_at.min(log.len());
        let adopted_at = (built_at + adopted_after).min(log.len());
        let snapshot = Snapshot::default().apply(&log[..built_at]).snapshot;
        let index = snapshot.build_index();
        let snapshot = snapshot.apply(&log[built_at..adopted_at]).snapshot.with_index(index);
        let snapshot = snapshot.apply(&log[adopted_at..]).snapshot;
        let query = ListQuery { prefix, q, after, limit, with_deleted };
        prop_assert_eq!(snapshot.list(&query), naive_list(&snapshot, &query));
    }
}
