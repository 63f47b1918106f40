//! Writes on a small store: their results, their refusals, and that only one of many writers wins.

use super::*;
use crate::testing::{Store, delete, name, put, restore};

/// `a` at version 2, `gone` deleted as version 2.
fn sample() -> Store {
    let mut store = Store::default();
    store.write(&put("a", 0, "one"));
    store.write(&put("a", 1, "two"));
    store.write(&put("gone", 0, "text"));
    store.write(&delete("gone", 1));
    store
}

/// Expects the version that a write makes, or the code of its refusal.
#[track_caller]
fn check(change: &Change, expected: &str) {
    let mut store = sample();
    let found = match store.check(change) {
        Ok(checked) => {
            store.commit(&checked.batch).expect("what is checked fits the store");
            let latest = store.snapshot.latest(&change.name).expect("the revision");
            assert_eq!((latest.revision, latest.tag), (checked.revision, checked.tag));
            checked.revision.to_string()
        }
        Err(error) => error.code().to_owned(),
    };
    assert_eq!(found, expected, "{change:?}");
    if let WriteAction::Put(_) = &change.act {
        check_announced(change, &found);
    }
}

/// Before a text arrives, it is refused for the same reason, unless the reason is its content.
#[track_caller]
fn check_announced(put: &Change, found: &str) {
    let Change { name, base, author, comment, .. } = put;
    let announced = AnnouncedText { name, base: *base, author, comment };
    let early = announced.check(&sample().snapshot, &Limits::default());
    match early {
        Ok(()) => assert!(found.parse::<u32>().is_ok() || found == "too_large", "{put:?}"),
        Err(error) => assert_eq!(error.code(), found, "{put:?}"),
    }
}

#[test]
fn a_text_is_made_from_the_latest() {
    check(&put("new", 0, "x"), "1");
    check(&put("new", 1, "x"), "not_found");
    check(&put("a", 2, "x"), "3");
    check(&put("a", 1, "x"), "stale");
    check(&put("a", 0, "x"), "already_exists");
    check(&put("a", 3, "x"), "version_in_future");
    check(&put("a", u32::MAX, "x"), "version_in_future");
    check(&put("gone", 2, "x"), "3");
    check(&put("gone", 1, "x"), "deleted");
    check(&put("gone", 0, "x"), "deleted");
    check(&put("gone", 3, "x"), "version_in_future");
}

#[test]
fn deleting_and_restoring_are_revisions() {
    check(&delete("a", 2), "3");
    check(&delete("a", 1), "stale");
    check(&delete("a", 0), "already_exists");
    check(&delete("new", 0), "not_found");
    check(&delete("gone", 2), "deleted");
    check(&restore("a", 2, Some(1)), "3");
    check(&restore("a", 1, Some(1)), "stale");
    check(&restore("a", 2, Some(3)), "nothing_to_restore");
    check(&restore("a", 2, Some(0)), "nothing_to_restore");
    check(&restore("gone", 2, None), "3");
    check(&restore("gone", 2, Some(2)), "nothing_to_restore");
    check(&restore("new", 0, None), "not_found");
}

#[test]
fn a_refusal_names_the_other_writer() {
    let error = sample().check(&put("a", 1, "two")).expect_err("stale");
    assert_eq!(
        error.to_string(),
        "`a` is at version 2, by ada at 2026-01-02T03:04:05.123456Z, but this write was made from \
         version 1"
    );
    let stale = error.stale().expect("how it is");
    assert!(stale.has_same_content);
    let error = sample().check(&put("a", 1, "other")).expect_err("stale");
    assert!(error.stale().is_some_and(|stale| !stale.has_same_content));
}

#[test]
fn of_many_writers_one_wins_and_no_version_is_missing() {
    let mut store = Store::default();
    for round in 0..10_u32 {
        // All look at the same snapshot, then all commit.
        let checked: Vec<CheckedWrite> = (0..50)
            .map(|writer| put("a", round, &format!("{round} {writer}")))
            .map(|change| store.check(&change).expect("the right version"))
            .collect();
        let outcomes = checked.iter().map(|checked| store.commit(&checked.batch));
        let outcomes: Vec<_> = outcomes.collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        let mismatch = outcomes.into_iter().find_map(Result::err).expect("a loser");
        assert_eq!(mismatch.key, checked[0].key);
        let again = store.check(&put("a", round, "x")).expect_err("a later version");
        assert!(again.stale().is_some_and(|stale| stale.latest.revision.0 == round + 1));
    }
    let article = store.snapshot.article(&name("a")).expect("the article");
    let versions: Vec<u32> = article.revisions().map(|facts| facts.revision.0).collect();
    assert_eq!(versions, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_of_another_store_writes_nothing() {
    let checked = sample().check(&put("a", 2, "x")).expect("allowed here");
    let mismatch = Store::default().commit(&checked.batch).expect_err("there is no version 2");
    assert_eq!(mismatch.key, key(&name("a"), Revision(2)));
}

#[test]
fn bounds() {
    let limits = Limits { content_bytes_max: 3, comment_bytes_max: 5 };
    let check = |edit: fn(&mut Change), expected: Option<&str>| {
        let (author, comment) = ("ada".to_owned(), "12345".to_owned());
        let mut put = Change { author, comment, ..put("new", 0, "abc") };
        edit(&mut put);
        let error = put.check(&Snapshot::default(), &limits).err();
        assert_eq!(error.as_ref().map(WriteError::code), expected);
    };
    check(|_| {}, None);
    check(|write| write.act = put("new", 0, "abcd").act, Some("too_large"));
    check(|put| put.comment.push('6'), Some("bad_text"));
    check(|put| put.comment.push(' '), None);
    check(|put| put.comment = "a\nb".to_owned(), None);
    check(|put| put.comment = "a\u{1b}b".to_owned(), Some("bad_text"));
    check(|put| put.author.clear(), Some("bad_text"));
    check(|put| put.author.push('\n'), Some("bad_text"));
    check(|put| put.author = "x".repeat(256), Some("bad_text"));
}

#[test]
fn a_base_is_named_in_several_ways() {
    let mut store = sample();
    let tag = |store: &Store, text: &str, revision: u32| {
        let facts = store.snapshot.revision(&name(text), Revision(revision));
        facts.expect("a revision").tag.header_value(reply::Encoding::Gzip)
    };
    let (old, latest, gone) = (tag(&store, "a", 1), tag(&store, "a", 2), tag(&store, "gone", 1));
    let check = |store: &Store,
                 text: &str,
                 version: Option<u32>,
                 if_match: Option<&str>,
                 if_none_match: Option<&str>,
                 expected: &str| {
        let version = version.map(Revision);
        let found = resolve_base(&store.snapshot, &name(text), version, if_match, if_none_match);
        let found = match found {
            Ok(base) => base.to_string(),
            Err(error) => match error.stale() {
                Some(stale) => format!("{} from {}", error.code(), stale.base),
                None => error.code().to_owned(),
            },
        };
        assert_eq!(found, expected, "{text} {version:?} {if_match:?} {if_none_match:?}");
    };
    check(&store, "a", None, None, None, "base_missing");
    check(&store, "a", Some(1), None, None, "1");
    check(&store, "a", None, Some(&latest), None, "2");
    check(&store, "a", None, Some(&format!("\"x\", {latest}")), None, "2");
    check(&store, "a", None, Some("*"), None, "2");
    check(&store, "a", None, Some(&format!("W/{latest}")), None, "precondition_failed from 2");
    check(&store, "a", None, Some(&old), None, "precondition_failed from 1");
    check(&store, "a", None, Some("\"x\""), None, "precondition_failed from 0");
    check(&store, "a", Some(1), Some(&latest), None, "1");
    check(&store, "a", Some(2), Some(&old), None, "precondition_failed from 2");
    check(&store, "a", None, None, Some("*"), "precondition_failed from 0");
    check(&store, "a", None, None, Some("\"x\""), "base_missing");
    check(&store, "new", None, None, Some("*"), "0");
    check(&store, "new", None, Some("*"), None, "not_found");
    check(&store, "gone", None, None, Some("*"), "2");
    check(&store, "gone", None, Some(&gone), None, "precondition_failed from 1");
    check(&store, "gone", None, Some("*"), None, "precondition_failed from 0");
    // If the same text is written again, its tag differs: a writer who saw the first has not seen what came in between.
    store.write(&put("a", 2, "one"));
    check(&store, "a", None, Some(&old), None, "precondition_failed from 1");
}
