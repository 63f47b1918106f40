//! Renaming: moves all revisions of an article to another name; the old name redirects there.
//!
//! A number is never used twice under a name, so a version of the old name, as a base or in a cache, never means something
//! else: the redirect is the next revision there, and a new article of that name goes on after it. Redirects to an article
//! follow it when it is renamed again, so that none leads to another. A name is free if it was never used, or if it redirects
//! to the article itself: then the article returns to it.

use ::record::{Batch, Expected, Serial};
use jiff::Timestamp;

use super::{check_author, next, whole_microseconds};
use crate::attachment::{self, attachments_key};
use crate::record::{key, render};
use crate::{
    ArticleName, Change, CheckedWrite, Kind, Limits, Revision, RevisionFacts, RevisionTag,
    Snapshot, WriteError,
};

/// Most records that the commit of one renaming writes: two for each revision, one for each redirect that follows,
/// two for the renaming itself, and two for the files of the article if it has or had any.
pub const RECORDS_MAX: usize = 4_000;

/// Gives the article of a write that passed its checks another name.
///
/// # Errors
/// [`WriteError`], for the first rule that it breaks.
pub(super) fn rename(
    change: &Change,
    to: &ArticleName,
    snapshot: &Snapshot,
) -> Result<CheckedWrite, WriteError> {
    let Change { name, base, author, comment, at, .. } = change;
    let comment = comment.trim();
    let not_found = || WriteError::NotFound { name: name.clone() };
    let article = snapshot.article(name).ok_or_else(not_found)?;
    let content = article.latest().and_then(|latest| latest.content());
    let content = content.ok_or_else(not_found)?.clone();
    if let Some(&revision) = article.unreadable().first() {
        return Err(WriteError::Unreadable { name: name.clone(), revision });
    }
    if name == to {
        return Err(WriteError::SameName { name: name.clone() });
    }
    let moved: Vec<&RevisionFacts> = article.own_revisions().map(|facts| &**facts).collect();
    let redirects: Vec<_> = snapshot.redirects_to(name).collect();
    let attachments = snapshot.attachments(name);
    // Files at the new name belong to no article any more: an older version of Larder, which does not know files, left them.
    let left = snapshot.attachments(to);
    for (name, there) in [(name, attachments), (to, left)] {
        if there.is_some_and(|all| all.is_unreadable()) {
            return Err(WriteError::UnreadableAttachments { name: name.clone() });
        }
    }
    let of_files = if attachments.is_some() { 2 } else { left.iter().count() };
    let records = 2 * moved.len() + redirects.len() + 2 + of_files;
    if records > RECORDS_MAX {
        let (name, records_max) = (name.clone(), RECORDS_MAX);
        return Err(WriteError::TooManyVersions { name, records, records_max });
    }
    let replaced = replaced(change, to, snapshot, &moved)?;
    let revision = next(name, *base)?;
    let at = whole_microseconds(*at);

    let mut batch = Batch::new();
    let is_new = snapshot.article(to).is_none();
    let expected = |number: Revision| match replaced {
        Some(redirect) if redirect.revision == number => Expected::At(redirect.serial),
        _ if is_new && number == Revision::FIRST => Expected::At(Serial::ZERO),
        _ => Expected::Absent,
    };
    if is_new && moved.first().is_none_or(|first| first.revision > Revision::FIRST) {
        // Its numbers begin later, so this key conflicts with a writer who creates an article of the new name meanwhile.
        batch = batch.delete(key(to, Revision::FIRST), expected(Revision::FIRST));
    }
    for facts in moved {
        let RevisionFacts { revision, kind, base, author, comment, at, serial, .. } = facts;
        let (body, blobs) = render(kind, *base, author, comment, *at);
        batch = batch.delete(key(name, *revision), Expected::At(*serial));
        batch = batch.put(key(to, *revision), expected(*revision), body, blobs);
    }
    for (from, number) in redirects {
        // The article replaces the one at its new name.
        let facts = snapshot.revision(from, *number).filter(|_| from != to);
        let Some(facts) = facts else { continue };
        let kind = Kind::Redirect { to: to.clone() };
        let (body, blobs) = render(&kind, facts.base, &facts.author, &facts.comment, facts.at);
        batch = batch.put(key(from, *number), Expected::At(facts.serial), body, blobs);
    }
    // The record of the files moves to the new name. If a file is written at the same time, either that is committed first
    // and the renaming is decided again, or it is refused and its writer learns the new name.
    let (key_before, key_now) = (attachments_key(name), attachments_key(to));
    batch = match attachments {
        Some(all) => {
            let (body, blobs) = attachment::render(all);
            let batch = batch.delete(key_before, Expected::At(all.serial));
            let expected = left.map_or(Expected::Absent, |left| Expected::At(left.serial));
            batch.put(key_now, expected, body, blobs)
        }
        None => {
            let batch = batch.check(key_before, Expected::Absent);
            match left {
                Some(left) => batch.delete(key_now, Expected::At(left.serial)),
                None => batch.check(key_now, Expected::Absent),
            }
        }
    };
    let tag = RevisionTag::new(revision, Some(&content));
    let renamed = Kind::Renamed { from: name.clone(), content };
    let redirect = Kind::Redirect { to: to.clone() };
    for (name, kind) in [(to, renamed), (name, redirect)] {
        let (body, blobs) = render(&kind, *base, author, comment, at);
        batch = batch.put(key(name, revision), Expected::Absent, body, blobs);
    }
    Ok(CheckedWrite { batch, name: to.clone(), revision, key: key(to, revision), tag })
}

/// The redirect at the new name that the article replaces; `None` if the name was never used.
fn replaced<'snapshot>(
    change: &Change,
    to: &ArticleName,
    snapshot: &'snapshot Snapshot,
    moved: &[&RevisionFacts],
) -> Result<Option<&'snapshot RevisionFacts>, WriteError> {
    let Some(there) = snapshot.article(to) else { return Ok(None) };
    let leads_here = |facts: &&RevisionFacts| facts.redirect() == Some(&change.name);
    let latest = there.latest().map(|latest| &**latest).filter(leads_here);
    // The article had this name when it had this revision.
    let latest = latest.filter(|redirect| {
        let had = moved.iter().any(|facts| facts.revision == redirect.revision);
        let all = there.revisions().map(|facts| &**facts);
        had && all.filter(leads_here).count() == 1 && there.unreadable().is_empty()
    });
    match latest {
        Some(redirect) => Ok(Some(redirect)),
        None => Err(WriteError::NameTaken { name: to.clone() }),
    }
}

/// Makes a name that was never used lead to an article: for an import, which brings names that an article had elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The name.
    pub name: ArticleName,
    /// The target: an article that exists.
    pub to: ArticleName,
    /// Who makes it.
    pub author: String,
    /// Why; may be empty.
    pub comment: String,
    /// The current time.
    pub at: Timestamp,
}

impl Redirect {
    /// Checks this redirect against `snapshot`. The caller commits the batch of the result.
    ///
    /// # Errors
    /// [`WriteError`], for the first rule that it breaks.
    pub fn check(&self, snapshot: &Snapshot, limits: &Limits) -> Result<CheckedWrite, WriteError> {
        let Redirect { name, to, author, comment, at } = self;
        let comment = comment.trim();
        check_author(author, comment, limits)?;
        if snapshot.article(name).is_some() {
            return Err(WriteError::NameTaken { name: name.clone() });
        }
        let latest = snapshot.latest(to).filter(|latest| !latest.is_deleted());
        let Some(latest) = latest else { return Err(WriteError::NotFound { name: to.clone() }) };
        let (base, revision, at) = (Revision::NONE, Revision::FIRST, whole_microseconds(*at));
        let (body, blobs) = render(&Kind::Redirect { to: to.clone() }, base, author, comment, at);
        // If the article is renamed meanwhile, this revision is missing, and the batch fails.
        let batch = Batch::new()
            .put(key(name, revision), Expected::At(Serial::ZERO), body, blobs)
            .check(key(to, latest.revision), Expected::Present);
        let tag = RevisionTag::new(revision, None);
        Ok(CheckedWrite { batch, name: name.clone(), revision, key: key(name, revision), tag })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{Store, delete, name, put, rename, restore};
    use crate::{ArticleChange, ListQuery};

    /// Compares the revisions at a name, and where they redirect.
    #[track_caller]
    fn check(store: &Store, at: &str, expected: &str) {
        let article = store.snapshot.article(&name(at)).expect(at);
        let revision = |facts: &Arc<RevisionFacts>| {
            let kind = match &facts.kind {
                Kind::Put(_) => "put".to_owned(),
                Kind::Deleted => "deleted".to_owned(),
                Kind::Restored { .. } => "restored".to_owned(),
                Kind::Renamed { from, .. } => format!("from {from}"),
                Kind::Redirect { to } => format!("to {to}"),
            };
            format!("{} {kind}", facts.revision)
        };
        let shown = article.revisions().map(revision).collect::<Vec<_>>().join(", ");
        assert_eq!(shown, expected, "{at}");
        assert_eq!(article.lacking(&store.snapshot).collect::<Vec<_>>(), [], "{at}");
    }

    /// Compares which numbers an article lacks if the records of some are lost.
    #[track_caller]
    fn check_lacking(store: &Store, at: &str, lost: &[u32], expected: &[u32]) {
        let lose = |number: &u32| ::record::Record {
            key: key(&name(at), Revision(*number)),
            body: None,
            ..store.log[0].clone()
        };
        let records: Vec<_> = lost.iter().map(lose).collect();
        let snapshot = store.snapshot.apply(&records).snapshot;
        let article = snapshot.article(&name(at)).expect(at);
        let lacking: Vec<u32> = article.lacking(&snapshot).map(|number| number.0).collect();
        assert_eq!(lacking, expected, "{at} without {lost:?}");
    }

    /// What the records after the first `from` changed, for a follower that was told of `before`.
    fn news(store: &Store, from: usize, before: Option<&Snapshot>) -> Vec<String> {
        let change = |record: &::record::Record| {
            let change = ArticleChange::of(&record.key, before, &store.snapshot)?;
            Some(format!("{} {}@{}", change.kind.as_str(), change.name, change.revision.revision))
        };
        store.log[from..].iter().filter_map(change).collect()
    }

    #[track_caller]
    fn refused(store: &Store, rename: &Change, code: &str) {
        let error = rename.check(&store.snapshot, &Limits::default()).expect_err(code);
        assert_eq!(error.code(), code, "{error}");
    }

    #[test]
    fn all_revisions_go_along_and_the_old_name_redirects() {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&delete("a", 1));
        store.write(&restore("a", 2, None));
        let before: Vec<_> =
            store.snapshot.article(&name("a")).expect("a").revisions().cloned().collect();
        let written = store.log.len();
        store.write(&rename("a", 3, "b/c"));
        check(&store, "b/c", "1 put, 2 deleted, 3 restored, 4 from a");
        check(&store, "a", "4 to b/c");
        assert_eq!(news(&store, written, None), ["added b/c@4", "removed a@4"]);
        let article = store.snapshot.article(&name("b/c")).expect("b/c").clone();
        for (before, after) in before.iter().zip(article.revisions()) {
            let mut after = RevisionFacts::clone(after);
            after.serial = before.serial;
            assert_eq!(**before, after);
        }
        // A writer with the latest revision from before the renaming is told, as its tag has changed.
        let latest = article.latest().expect("a revision");
        assert_ne!(latest.tag, before[2].tag);
        assert_eq!((latest.content(), latest.base), (before[2].content(), Revision(3)));
        // Old numbers lead where their revisions are; the new one does, too.
        let old = store.snapshot.article(&name("a")).expect("a");
        for number in 1..=4 {
            assert_eq!(old.redirect_of(Revision(number)), Some(&name("b/c")), "{number}");
        }
        assert_eq!((old.redirect_of(Revision(5)), old.redirect()), (None, Some(&name("b/c"))));
        // A write is found by the name that it was made under.
        let written = |number| store.snapshot.revision_written_as(&name("a"), Revision(number));
        assert_eq!(written(3), article.revision(Revision(3)));
        assert_eq!((written(0), written(5)), (None, None));
        assert!(written(4).is_some_and(|facts| facts.redirect().is_some()));
        assert_eq!(article.redirect_of(Revision(2)), None);
        // Only the list with deleted articles has a redirect.
        let list = |with_deleted| {
            let query = ListQuery { with_deleted, ..ListQuery::default() };
            store.snapshot.list(&query).articles.len()
        };
        assert_eq!((list(false), list(true)), (1, 2));
        // The records of this state give an equal state.
        let again = Snapshot::default().apply(&store.snapshot.records().collect::<Vec<_>>());
        assert_eq!((again.snapshot, again.troubles), (store.snapshot.clone(), Vec::new()));
    }

    #[test]
    fn redirects_follow_and_an_article_can_come_back() {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        let first = store.snapshot.clone();
        store.write(&rename("a", 1, "b"));
        let (second, written) = (store.snapshot.clone(), store.log.len());
        store.write(&rename("b", 2, "c"));
        check(&store, "a", "2 to c");
        check(&store, "b", "3 to c");
        check(&store, "c", "1 put, 2 from a, 3 from b");
        let told = |before| news(&store, written, before);
        assert_eq!(told(Some(&second)), ["added c@3", "removed b@3"], "`a` went along");
        // The redirect was written again: only this record says that `a` is gone to who missed the first renaming.
        for before in [Some(&first), None] {
            assert_eq!(told(before), ["removed a@2", "added c@3", "removed b@3"]);
        }
        let to = |to: &str| store.snapshot.redirects_to(&name(to)).count();
        assert_eq!((to("a"), to("b"), to("c")), (0, 0, 2));
        store.write(&rename("c", 3, "a"));
        check(&store, "a", "1 put, 2 from a, 3 from b, 4 from c");
        check(&store, "b", "3 to a");
        check(&store, "c", "4 to a");
        assert_eq!(store.snapshot.redirects_to(&name("a")).count(), 2);
    }

    #[test]
    fn a_new_article_of_the_old_name_goes_on_with_its_numbers() {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&rename("a", 1, "b"));
        // A writer who has seen the old article cannot overwrite anything.
        for base in [0, 1] {
            let error = store.check(&put("a", base, "two")).expect_err("renamed");
            assert_eq!(error.code(), "renamed", "{error}");
            assert!(error.to_string().contains("dan") && !error.blind().contains("dan"), "{error}");
        }
        store.write(&put("a", 2, "two"));
        let written = store.log.len();
        store.write(&put("a", 3, "three"));
        assert_eq!(news(&store, written, None), ["changed a@4"]);
        check(&store, "a", "2 to b, 3 put, 4 put");
        refused(&store, &rename("b", 2, "a"), "name_taken");
        // The new article is renamed, too: each number leads to the article that had it.
        store.write(&rename("a", 4, "d"));
        check(&store, "d", "3 put, 4 put, 5 from a");
        let old = store.snapshot.article(&name("a")).expect("a");
        let to = |number| old.redirect_of(Revision(number)).map_or("", ArticleName::as_str);
        assert_eq!([to(1), to(2), to(3), to(4), to(5)], ["b", "b", "d", "d", "d"]);
        refused(&store, &rename("b", 2, "a"), "name_taken");
        // The redirect to `b` follows it, though it is not the latest revision of `a`.
        let (before, written) = (store.snapshot.clone(), store.log.len());
        store.write(&rename("b", 2, "e"));
        for before in [Some(&before), None] {
            assert_eq!(news(&store, written, before), ["added e@3", "removed b@3"]);
        }
        check(&store, "a", "2 to e, 5 to d");
        store.write(&rename("d", 5, "a"));
        check(&store, "a", "2 to e, 3 put, 4 put, 5 from a, 6 from d");
        // A redirect can be deleted; then the name is no other article's either.
        store.write(&delete("d", 6));
        check(&store, "d", "6 to a, 7 deleted");
        refused(&store, &rename("a", 6, "d"), "name_taken");
    }

    #[test]
    fn what_is_refused() {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&put("a", 1, "two"));
        store.write(&put("b", 0, "b"));
        store.write(&put("gone", 0, "x"));
        store.write(&delete("gone", 1));
        refused(&store, &rename("a", 1, "c"), "stale");
        refused(&store, &rename("a", 3, "c"), "version_in_future");
        refused(&store, &rename("a", 0, "c"), "already_exists");
        refused(&store, &rename("none", 0, "c"), "not_found");
        refused(&store, &rename("gone", 2, "c"), "deleted");
        refused(&store, &rename("a", 2, "a"), "same_name");
        refused(&store, &rename("a", 2, "b"), "name_taken");
        refused(&store, &rename("a", 2, "gone"), "name_taken");
        refused(&store, &Change { author: String::new(), ..rename("a", 2, "c") }, "bad_text");
        store.write(&rename("a", 2, "c"));
        refused(&store, &rename("a", 3, "d"), "renamed");
    }

    /// `a` is at 3, where its numbers begin; `b` at 2; `x` at 6, from 3 on; `y` at 2; `d` came from `c`.
    fn many() -> Store {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&rename("a", 1, "b"));
        store.write(&put("a", 2, "two"));
        store.write(&put("x", 0, "x"));
        store.write(&rename("x", 1, "y"));
        for base in 2..6 {
            store.write(&put("x", base, "more"));
        }
        store.write(&put("c", 0, "c"));
        store.write(&rename("c", 1, "d"));
        store
    }

    #[test]
    fn versions_that_were_lost_are_missed_under_another_name_too() {
        let mut store = many();
        store.write(&rename("b", 2, "e"));
        check_lacking(&store, "e", &[], &[]);
        check_lacking(&store, "e", &[1], &[1]);
        check_lacking(&store, "e", &[1, 2], &[1, 2]);
        // Its numbers begin at 3.
        store.write(&rename("x", 6, "z"));
        check_lacking(&store, "z", &[], &[]);
        check_lacking(&store, "z", &[3, 4], &[3, 4]);
        check_lacking(&store, "z", &[5], &[5]);
        store.write(&rename("z", 7, "w"));
        check_lacking(&store, "w", &[], &[]);
        check_lacking(&store, "w", &[3], &[3]);
    }

    /// Both are decided on the same state.
    #[track_caller]
    fn check_overtaken(first: &CheckedWrite, second: &CheckedWrite, mut store: Store) {
        store.commit(&first.batch).expect("the first");
        store.commit(&second.batch).expect_err("the second");
    }

    #[test]
    fn two_who_write_at_once_do_not_miss_each_other() {
        let limits = Limits::default();
        // The same holds if their numbers do not overlap.
        let decided = |at: usize, store: &Store| {
            let renames = [rename("a", 3, "new"), rename("b", 2, "new"), rename("x", 6, "new")];
            match renames.get(at) {
                Some(rename) => rename.check(&store.snapshot, &limits).expect("allowed"),
                None => store.check(&put("new", 0, "made")).expect("allowed"),
            }
        };
        for first in 0..=3 {
            for second in (0..=3).filter(|second| *second != first) {
                let store = many();
                check_overtaken(&decided(first, &store), &decided(second, &store), store);
            }
        }
        // A new text for an article that is renamed, and another new name.
        let store = many();
        let renamed = |name, base, to| rename(name, base, to).check(&store.snapshot, &limits);
        let moving = renamed("b", 2, "new").expect("allowed");
        let text = store.check(&put("b", 2, "text")).expect("allowed");
        let elsewhere = renamed("b", 2, "elsewhere").expect("allowed");
        // A writer overwrites a redirect, and then its article returns.
        let back = renamed("d", 2, "c").expect("allowed");
        let over = store.check(&put("c", 2, "new")).expect("allowed");
        for (first, second) in [
            (&text, &moving),
            (&moving, &text),
            (&elsewhere, &moving),
            (&over, &back),
            (&back, &over),
        ] {
            check_overtaken(first, second, many());
        }
    }

    #[test]
    fn an_import_brings_redirects() {
        let mut store = Store::default();
        store.write(&put("a", 0, "one"));
        store.write(&put("gone", 0, "x"));
        store.write(&delete("gone", 1));
        let limits = Limits::default();
        let redirect = |from: &str, to: &str| {
            let (author, comment, at) = ("ada".to_owned(), String::new(), crate::testing::at());
            Redirect { name: name(from), to: name(to), author, comment, at }
        };
        let outcome = |store: &Store, from: &str, to: &str| {
            redirect(from, to).check(&store.snapshot, &limits).map_err(|error| error.code())
        };
        let made = outcome(&store, "old", "a").expect("allowed");
        store.commit(&made.batch).expect("the first");
        check(&store, "old", "1 to a");
        for (from, to, code) in [
            ("old", "a", "name_taken"),
            ("a", "a", "name_taken"),
            ("x", "old", "not_found"),
            ("x", "gone", "not_found"),
        ] {
            assert_eq!(outcome(&store, from, to).map(|it| it.revision), Err(code), "{from} {to}");
        }
        // The redirect follows the article through each renaming, and the article can take its name.
        let late = outcome(&store, "late", "a").expect("allowed");
        store.write(&rename("a", 1, "b"));
        check(&store, "old", "1 to b");
        store.commit(&late.batch).expect_err("the article has another name");
        store.write(&rename("b", 2, "old"));
        check(&store, "old", "1 put, 2 from a, 3 from b");
    }

    #[test]
    fn an_article_with_too_many_versions_stays() {
        let mut store = Store::default();
        store.write(&put("a", 0, "x"));
        let first = store.log[0].clone();
        let records = |numbers: std::ops::RangeInclusive<u32>| -> Vec<_> {
            let key = |number| key(&name("a"), Revision(number));
            numbers.map(|number| ::record::Record { key: key(number), ..first.clone() }).collect()
        };
        let revisions_max = RECORDS_MAX as u32 / 2 - 1;
        let applied = store.snapshot.apply(&records(2..=revisions_max));
        assert_eq!(applied.troubles, []);
        store.snapshot = applied.snapshot;
        let most = rename("a", revisions_max, "b").check(&store.snapshot, &Limits::default());
        assert_eq!(most.expect("allowed").batch.writes.len(), RECORDS_MAX);
        let one_more = revisions_max + 1;
        store.snapshot = store.snapshot.apply(&records(one_more..=one_more)).snapshot;
        refused(&store, &rename("a", one_more, "b"), "too_many_versions");
    }
}
