//! The stored form of a revision: one record each, written once.
//!
//! The key is `article/{revision, ten digits}/{name}`. The number comes first because names contain slashes: this
//! order makes every key unambiguous. Two writers of the same next revision meet in the store at this key, which must
//! be absent before, so only one of them wins.

use std::sync::Arc;

use ::record::{Digest, Key, Record, UnreadableReason, check_form, read_body, write_body};
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ArticleName, Content, ContentType, Kind, Revision, RevisionFacts, RevisionTag};

/// The first segment of the keys of articles.
pub const KIND: &str = "article";

/// The form of the record bodies that this version writes; it reads no other.
const FORM: u32 = 1;

/// The key of a revision's record: at most 531 bytes.
pub fn key(name: &ArticleName, revision: Revision) -> Key {
    Key::new(&format!("{KIND}/{:010}/{name}", revision.0))
        .expect("a checked name has no control characters and leaves room for a number")
}

/// Parses the rest of an article's key into name and revision.
pub(crate) fn parse_key(rest: &str) -> Option<(ArticleName, Revision)> {
    let (digits, name) = rest.split_once('/')?;
    let is_number = digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let revision = digits.parse().ok().filter(|&number| is_number && number > 0)?;
    let parsed = ArticleName::parse(name).ok()?;
    // A name that is not normalized would be a second key for the same revision.
    (parsed.as_str() == name).then_some((parsed, Revision(revision)))
}

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    v: u32,
    kind: WireKind,
    /// The revision that this one was made from.
    base: u32,
    #[serde(borrow)]
    author: std::borrow::Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    comment: std::borrow::Cow<'a, str>,
    at: Timestamp,
    /// The revision whose content was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sha256: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content_type: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    title: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<i32>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    draft: bool,
    /// The article's name before it was renamed to this one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name_before: Option<std::borrow::Cow<'a, str>>,
    /// The article's name now, for a redirect.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name_now: Option<std::borrow::Cow<'a, str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireKind {
    Put,
    Deleted,
    Restored,
    Renamed,
    Redirect,
}

/// The body of a revision's record. It leaves out number and serial, which the key and the record have.
pub(crate) fn render(
    kind: &Kind,
    base: Revision,
    author: &str,
    comment: &str,
    at: Timestamp,
) -> (Bytes, Vec<Digest>) {
    let (wire_kind, from, content) = match kind {
        Kind::Put(content) => (WireKind::Put, None, Some(content)),
        Kind::Deleted => (WireKind::Deleted, None, None),
        Kind::Restored { from, content } => (WireKind::Restored, Some(from.0), Some(content)),
        Kind::Renamed { content, .. } => (WireKind::Renamed, None, Some(content)),
        Kind::Redirect { .. } => (WireKind::Redirect, None, None),
    };
    let (name_before, name_now) = match kind {
        Kind::Renamed { from, .. } => (Some(from.as_str().into()), None),
        Kind::Redirect { to } => (None, Some(to.as_str().into())),
        _ => (None, None),
    };
    let body = Body {
        v: FORM,
        kind: wire_kind,
        base: base.0,
        author: author.into(),
        comment: comment.into(),
        at,
        from,
        size_bytes: content.map(|content| content.size_bytes),
        sha256: content.map(|content| content.digest.to_string().into()),
        content_type: content.map(|content| content.content_type.as_str().into()),
        title: content.and_then(|content| content.title.as_deref()).map(Into::into),
        order: content.and_then(|content| content.order),
        tags: content
            .iter()
            .flat_map(|it| &*it.tags)
            .map(|tag| std::borrow::Cow::Borrowed(&**tag))
            .collect(),
        draft: content.is_some_and(|content| content.draft),
        name_before,
        name_now,
    };
    (write_body(&body), content.map(|content| content.digest).into_iter().collect())
}

/// Parses the body of a revision's record. Strings that many revisions share are taken from `share`.
pub(crate) fn parse(
    revision: Revision,
    record: &Record,
    body: &[u8],
    mut share: impl FnMut(&str) -> Arc<str>,
) -> Result<RevisionFacts, UnreadableReason> {
    let body: Body<'_> = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let mut content = || {
        let sha256 = body.sha256.as_deref().and_then(|digits| digits.parse().ok());
        let content_type = body.content_type.as_deref();
        let content_type = content_type.and_then(|text| ContentType::parse_with(text, &mut share));
        Ok(Content {
            digest: sha256.ok_or(UnreadableReason::Member("sha256"))?,
            size_bytes: body.size_bytes.ok_or(UnreadableReason::Member("size_bytes"))?,
            content_type: content_type.ok_or(UnreadableReason::Member("content_type"))?,
            title: body.title.as_deref().map(Arc::from),
            order: body.order,
            tags: body.tags.iter().map(|tag| share(tag)).collect(),
            draft: body.draft,
        })
    };
    let kind = match body.kind {
        WireKind::Put => Kind::Put(content()?),
        WireKind::Deleted => Kind::Deleted,
        WireKind::Restored => {
            let from = body.from.filter(|&from| from > 0 && from < revision.0);
            let from = Revision(from.ok_or(UnreadableReason::Member("from"))?);
            Kind::Restored { from, content: content()? }
        }
        WireKind::Renamed => {
            let from = named(body.name_before.as_deref(), "name_before")?;
            Kind::Renamed { from, content: content()? }
        }
        WireKind::Redirect => Kind::Redirect { to: named(body.name_now.as_deref(), "name_now")? },
    };
    if body.base >= revision.0 {
        return Err(UnreadableReason::Member("base"));
    }
    let comment = match &*body.comment {
        "" => share(""),
        comment => Arc::from(comment),
    };
    let mut facts = RevisionFacts {
        revision,
        base: Revision(body.base),
        author: share(&body.author),
        comment,
        at: body.at,
        serial: record.serial,
        tag: RevisionTag::new(revision, None),
        kind,
    };
    facts.tag = RevisionTag::new(revision, facts.content());
    Ok(facts)
}

/// The name in a member of a body.
fn named(text: Option<&str>, member: &'static str) -> Result<ArticleName, UnreadableReason> {
    let name = text.and_then(|text| ArticleName::parse(text).ok().filter(|it| it.as_str() == text));
    name.ok_or(UnreadableReason::Member(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Store, delete, name, put, rename, restore};

    /// Every kind of record as it is stored. Every later version must be able to read these bytes.
    #[test]
    fn stored_forms() {
        let mut store = Store::default();
        store.write(&put("a/b", 0, "# T\n"));
        store.write(&delete("a/b", 1));
        store.write(&restore("a/b", 2, Some(1)));
        let revisions = store.log.len();
        store.write(&rename("a/b", 3, "c"));
        let last = |key: &str| store.log.iter().filter(|it| it.key.as_str() == key).count() == 1;
        assert!(last("article/0000000004/c") && last("article/0000000004/a/b"));
        let is_new = |record: &&Record| record.key.as_str().contains("0000000004");
        let new = store.log[revisions..].iter().filter(is_new).cloned().collect::<Vec<_>>();
        let moved = store.log[revisions..].len() - new.len();
        assert_eq!(moved, 6, "three are deleted under the old name and written under the new one");
        store.log.truncate(revisions);
        store.log.extend(new);
        let stored = store.log.iter().map(|record| {
            let body = record.body.as_ref().expect("a body");
            (record.key.as_str(), String::from_utf8_lossy(body).into_owned())
        });
        let digest = Digest::of(b"# T\n");
        let content = format!(
            r#""size_bytes":4,"sha256":"{digest}","content_type":"text/markdown; charset=utf-8","title":"T""#
        );
        let at = r#""at":"2026-01-02T03:04:05.123456Z""#;
        let expected = [
            (
                "1/a/b",
                format!(r#""kind":"put","base":0,"author":"ada","comment":"why",{at},{content}"#),
            ),
            ("2/a/b", format!(r#""kind":"deleted","base":1,"author":"bob",{at}"#)),
            (
                "3/a/b",
                format!(r#""kind":"restored","base":2,"author":"cyd",{at},"from":1,{content}"#),
            ),
            (
                "4/c",
                format!(
                    r#""kind":"renamed","base":3,"author":"dan","comment":"better",{at},{content},"name_before":"a/b""#
                ),
            ),
            (
                "4/a/b",
                format!(
                    r#""kind":"redirect","base":3,"author":"dan","comment":"better",{at},"name_now":"c""#
                ),
            ),
        ];
        let expected = expected.map(|(key, members)| {
            (format!("article/000000000{key}"), format!(r#"{{"v":1,{members}}}"#))
        });
        let stored: Vec<_> = stored.map(|(key, body)| (key.to_owned(), body)).collect();
        assert_eq!(stored, expected);
        let blobs: Vec<_> = store.log.iter().map(|record| record.blobs.clone()).collect();
        assert_eq!(blobs, [vec![digest], vec![], vec![digest], vec![digest], vec![]]);
        let latest = store.snapshot.latest(&name("a/b")).expect("a revision");
        assert_eq!(latest.serial, ::record::Serial(4));
        assert_eq!(latest.tag.revision, Revision(4));
    }

    /// A media type stays as it was stored: the rules for new texts are not applied to it again.
    #[test]
    fn a_stored_media_type_stays_as_it_is() {
        let mut store = Store::default();
        store.write(&put("a", 0, "x"));
        let record = &store.log[0];
        let body = String::from_utf8_lossy(record.body.as_ref().expect("a body")).into_owned();
        let before = body.replace("; charset=utf-8", "");
        assert_ne!(before, body);
        let facts = parse(Revision(1), record, before.as_bytes(), |word| Arc::from(word));
        let facts = facts.expect("a revision");
        assert_eq!(facts.content().expect("a content").content_type.as_str(), "text/markdown");
    }

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let mut store = Store::default();
        store.write(&put("a", 0, "x"));
        let record = &store.log[0];
        let found = match parse(Revision(2), record, body.as_bytes(), |word| Arc::from(word)) {
            Ok(facts) => format!("{:?}", facts.kind),
            Err(reason) => reason.to_string(),
        };
        assert!(found.starts_with(expected), "{body}: {found}");
    }

    #[test]
    fn unreadable_bodies_are_reported() {
        let deleted =
            r#"{"v":1,"kind":"deleted","base":1,"author":"a","at":"2026-01-02T03:04:05Z""#;
        check(&format!("{deleted}}}"), "Deleted");
        check(&format!(r#"{deleted},"new":[1]}}"#), "Deleted");
        check("", "its body is not JSON");
        check("{}", "its body has not the expected members");
        check("[1]", "its body has not the expected members");
        check(r#"{"v":1}"#, "its body has not the expected members");
        check(r#"{"v":7}"#, "its body has the form 7");
        check(&format!("{}}}", deleted.replace("\"base\":1", "\"base\":2")), "`base`");
        check(&format!("{}}}", deleted.replace("deleted", "put")), "`sha256`");
        check(&format!("{}}}", deleted.replace("deleted", "restored")), "`from`");
        check(&format!("{}}}", deleted.replace("deleted", "redirect")), "`name_now`");
        check(
            &format!(r#"{},"name_now":"../x"}}"#, deleted.replace("deleted", "redirect")),
            "`name_now`",
        );
        check(&format!("{}}}", deleted.replace("deleted", "renamed")), "`name_before`");
        check(&format!("{}}}", deleted.replace("2026", "26")), "its body has not");
        check(&format!("{}}}", deleted.replace("deleted", "moved")), "its body has not");
        check("\u{0}\u{ff}", "its body is not");
    }

    #[test]
    fn keys_are_unambiguous() {
        for text in ["a", "0000000001/a", "a/0000000001/b", &"é".repeat(256)] {
            let key = key(&name(text), Revision(u32::MAX));
            assert!(key.as_str().len() <= Key::BYTES_MAX);
            let rest = key.after(KIND).expect("an article's key");
            assert_eq!(parse_key(rest), Some((name(text), Revision(u32::MAX))));
        }
        for bad in [
            "",
            "0000000001",
            "0000000001/",
            "4294967296/a",
            "00000000001/a",
            "0000000001/e\u{301}",
        ] {
            assert_eq!(parse_key(bad), None, "{bad}");
        }
    }
}
