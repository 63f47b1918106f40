//! The JSON that readers and writers of articles get.
//!
//! One revision is `{"name", "version", "kind", "deleted", "base_version", "author", "comment",
//! "created_at", "size_bytes", "sha256", "content_type", "title", "restored_from"}`:
//!
//! | member | |
//! | --- | --- |
//! | `name` | the article, normalized |
//! | `version` | the revision's number, from 1 |
//! | `kind` | `put`, `deleted`, `restored`, `renamed` or `redirect` |
//! | `deleted` | whether the name has no content as of this revision: it was deleted, or the article has another name |
//! | `base_version` | the revision it was made from; 0 if it created the article |
//! | `author`, `comment` | who, and why (may be empty) |
//! | `created_at` | RFC 3339, UTC, to the microsecond at most |
//! | `size_bytes`, `sha256`, `content_type` | of the content; null for a deletion |
//! | `title` | what the text calls itself, at most 200 characters; null if it does not |
//! | `tags`, `draft` | what its front matter says, if it says so |
//! | `restored_from` | the revision whose content was restored; null unless `kind` is `restored` |
//! | `renamed_from` | the name before; only if `kind` is `renamed`, and for who may read that name |
//! | `redirect_to` | the name now; only if `kind` is `redirect`, and for who may read that name |
//!
//! The caller says which names the reader may learn.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::text_index::Hit;
use crate::{
    Article, ArticleName, Attachment, AttachmentChange, AttachmentError, Attachments, Hunk, Kind,
    Merge, Page, RevisionFacts, WriteError,
};

#[derive(Serialize)]
struct WireRevision<'a> {
    name: &'a str,
    version: u32,
    kind: &'static str,
    deleted: bool,
    base_version: u32,
    author: &'a str,
    comment: &'a str,
    created_at: String,
    size_bytes: Option<u64>,
    sha256: Option<String>,
    content_type: Option<&'a str>,
    title: Option<&'a str>,
    restored_from: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    draft: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed_from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect_to: Option<&'a str>,
}

#[derive(Serialize)]
struct WireReadRevision<'a> {
    #[serde(flatten)]
    revision: WireRevision<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<&'a str>,
}

#[derive(Serialize)]
struct WireHistory<'a> {
    name: &'a str,
    /// The latest revision's number.
    latest: u32,
    deleted: bool,
    /// Latest first.
    versions: Vec<WireRevision<'a>>,
    /// The `before` of the next page, with older revisions; null if there are none.
    next_before: Option<u32>,
}

#[derive(Serialize)]
struct WireList<'a> {
    /// The latest revision of each, by name.
    articles: Vec<WireRevision<'a>>,
    /// The `after` of the next page; null if there are no further articles.
    next_after: Option<&'a str>,
}

#[derive(Serialize)]
struct WireAttachment<'a> {
    name: &'a str,
    size_bytes: u64,
    sha256: String,
    /// The media type that it is sent with.
    content_type: &'static str,
    author: &'a str,
    created_at: String,
}

#[derive(Serialize)]
struct WireStoredAttachment<'a> {
    article: &'a str,
    #[serde(flatten)]
    file: WireAttachment<'a>,
}

#[derive(Serialize)]
struct WireBlindAttachment<'a> {
    article: &'a str,
    name: &'a str,
    size_bytes: u64,
    sha256: String,
}

#[derive(Serialize)]
struct WireAttachments<'a> {
    article: &'a str,
    /// Ascending by name.
    attachments: Vec<WireAttachment<'a>>,
    /// The bytes of all files together.
    size_bytes: u64,
    /// The last changes, latest first.
    changes: Vec<WireAttachmentChange<'a>>,
}

#[derive(Serialize)]
struct WireAttachmentChange<'a> {
    number: u64,
    kind: &'static str,
    /// Null if all files were removed.
    name: Option<&'a str>,
    size_bytes: Option<u64>,
    sha256: Option<String>,
    author: &'a str,
    created_at: String,
}

impl<'a> WireAttachmentChange<'a> {
    fn of(change: &'a AttachmentChange) -> WireAttachmentChange<'a> {
        WireAttachmentChange {
            number: change.number,
            kind: change.act.as_str(),
            name: change.name.as_ref().map(|name| name.as_str()),
            size_bytes: change.content.map(|(_, size_bytes)| size_bytes),
            sha256: change.content.map(|(digest, _)| digest.to_string()),
            author: &change.author,
            created_at: change.at.to_string(),
        }
    }
}

impl<'a> WireAttachment<'a> {
    fn of(file: &'a Attachment) -> WireAttachment<'a> {
        WireAttachment {
            name: file.name.as_str(),
            size_bytes: file.size_bytes,
            sha256: file.digest.to_string(),
            content_type: file.name.sent_as().media_type,
            author: &file.author,
            created_at: file.at.to_string(),
        }
    }
}

#[derive(Serialize)]
struct WireFound<'a> {
    /// The best ones first.
    articles: Vec<WireHit<'a>>,
    /// How many there are in all.
    count: usize,
    /// Whether all texts were searched.
    complete: bool,
}

#[derive(Serialize)]
struct WireHit<'a> {
    #[serde(flatten)]
    latest: WireRevision<'a>,
    /// Where the words were found: `name`, `title`, `text`.
    found_in: Vec<&'static str>,
}

#[derive(Serialize)]
struct WireRefusal<'a> {
    /// [`WriteError::code`].
    code: &'static str,
    #[serde(flatten)]
    conflict: Option<WireConflict<'a>>,
}

#[derive(Serialize)]
struct WireConflict<'a> {
    name: &'a str,
    /// The base that the write named.
    base_version: u32,
    /// The version to start from instead; the same as `latest.version`.
    latest_version: u32,
    latest: WireRevision<'a>,
    /// Whether the latest revision has the same content as the refused write.
    same_content: bool,
    /// Null if the request asked for no merge.
    merge: Option<WireMerge<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum WireMerge<'a> {
    /// Send `text` with `latest_version` to accept it.
    Clean {
        text: &'a str,
    },
    /// `text` has conflict markers.
    Conflict {
        text: &'a str,
        conflicts: Vec<WireHunk<'a>>,
    },
    None {
        reason: String,
    },
}

#[derive(Serialize)]
struct WireHunk<'a> {
    base_line: usize,
    base: &'a str,
    latest: &'a str,
    refused: &'a str,
}

impl<'a> WireRevision<'a> {
    fn of(name: &'a ArticleName, facts: &'a RevisionFacts, names: Names<'_>) -> WireRevision<'a> {
        let content = facts.content();
        let shown = |name: &'a ArticleName| names(name).then_some(name.as_str());
        let (kind, restored_from) = match &facts.kind {
            Kind::Put(_) => ("put", None),
            Kind::Deleted => ("deleted", None),
            Kind::Restored { from, .. } => ("restored", Some(from.0)),
            Kind::Renamed { .. } => ("renamed", None),
            Kind::Redirect { .. } => ("redirect", None),
        };
        let renamed_from = match &facts.kind {
            Kind::Renamed { from, .. } => shown(from),
            _ => None,
        };
        WireRevision {
            name: name.as_str(),
            version: facts.revision.0,
            kind,
            deleted: facts.is_deleted(),
            base_version: facts.base.0,
            author: &facts.author,
            comment: &facts.comment,
            created_at: facts.at.to_string(),
            size_bytes: content.map(|content| content.size_bytes),
            sha256: content.map(|content| content.digest.to_string()),
            content_type: content.map(|content| content.content_type.as_str()),
            title: content.and_then(|content| content.title.as_deref()),
            restored_from,
            tags: content.iter().flat_map(|it| it.tags.iter()).map(|tag| &**tag).collect(),
            draft: content.is_some_and(|content| content.draft),
            renamed_from,
            redirect_to: facts.redirect().and_then(shown),
        }
    }
}

/// Whether the reader may learn this other name of an article.
pub type Names<'a> = &'a dyn Fn(&ArticleName) -> bool;

/// One revision as JSON, in the form above: the answer to a write.
pub fn revision(name: &ArticleName, facts: &RevisionFacts, names: Names<'_>) -> Bytes {
    json(&WireRevision::of(name, facts, names))
}

/// One revision, with its content as one member more.
pub fn read_revision(
    name: &ArticleName,
    facts: &RevisionFacts,
    names: Names<'_>,
    content: Content<'_>,
) -> Bytes {
    let (text, base64) = match content {
        Content::Text(text) => (Some(text), None),
        Content::Base64(encoded) => (None, Some(encoded)),
    };
    json(&WireReadRevision { revision: WireRevision::of(name, facts, names), text, base64 })
}

/// A content as JSON has it.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A text in UTF-8.
    Text(&'a str),
    /// Any other content, encoded.
    Base64(&'a str),
}

/// One revision, for a writer who may not read it. Shows nothing of a restored content, which the writer has not seen.
pub fn blind_revision(name: &ArticleName, facts: &RevisionFacts) -> Bytes {
    let shown = WireRevision::of(name, facts, &|_| false);
    if shown.restored_from.is_none() {
        return json(&shown);
    }
    json(&WireRevision {
        size_bytes: None,
        sha256: None,
        content_type: None,
        title: None,
        tags: Vec::new(),
        draft: false,
        ..shown
    })
}

/// A file of an article: the answer to a write of it.
pub fn attachment(article: &ArticleName, file: &Attachment) -> Bytes {
    json(&WireStoredAttachment { article: article.as_str(), file: WireAttachment::of(file) })
}

/// A file of an article: the answer to a write by a sender who may not read the article. It has only what the sender sent.
pub fn blind_attachment(article: &ArticleName, file: &Attachment) -> Bytes {
    let (name, size_bytes, sha256) = (file.name.as_str(), file.size_bytes, file.digest.to_string());
    json(&WireBlindAttachment { article: article.as_str(), name, size_bytes, sha256 })
}

/// The members of a refused change of a file, beside its text: `{"code", "same_content"}`; `same_content` only for readers of
/// the article.
pub fn attachment_refusal(error: &AttachmentError, may_read: bool) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("code".to_owned(), error.code().into());
    if let Some(has_same_content) = error.has_same_content().filter(|_| may_read) {
        members.insert("same_content".to_owned(), has_same_content.into());
    }
    members
}

/// The files of an article, and their last changes: `{"article", "attachments": […], "size_bytes", "changes": […]}`.
pub fn attachments(article: &ArticleName, attachments: Option<&Attachments>) -> Bytes {
    let changes = attachments.map(Attachments::changes).unwrap_or_default();
    json(&WireAttachments {
        article: article.as_str(),
        attachments: attachments
            .map(Attachments::files)
            .unwrap_or_default()
            .iter()
            .map(WireAttachment::of)
            .collect(),
        size_bytes: attachments.map_or(0, Attachments::size_bytes),
        changes: changes.iter().rev().map(WireAttachmentChange::of).collect(),
    })
}

/// Some of an article's revisions, latest first, as [`crate::Snapshot::history`] gives them:
/// `{"name", "latest", "deleted", "versions": […], "next_before"}`.
pub fn history(article: &Article, versions: &[Arc<RevisionFacts>], names: Names<'_>) -> Bytes {
    let first = article.revisions().next().map(|facts| facts.revision);
    let last_shown = versions.last().map(|facts| facts.revision);
    let latest = article.latest().map_or(0, |facts| facts.revision.0);
    json(&WireHistory {
        name: article.name.as_str(),
        latest,
        deleted: article.is_deleted(),
        versions: versions
            .iter()
            .map(|facts| WireRevision::of(&article.name, facts, names))
            .collect(),
        next_before: last_shown.filter(|last| Some(*last) > first).map(|last| last.0),
    })
}

/// A part of the list of articles, each by its latest revision: `{"articles": […], "next_after"}`.
pub fn list(page: &Page, names: Names<'_>) -> Bytes {
    let articles = page.articles.iter();
    json(&WireList {
        articles: articles
            .filter_map(|article| Some(WireRevision::of(&article.name, article.latest()?, names)))
            .collect(),
        next_after: page.next.as_ref().map(ArticleName::as_str),
    })
}

/// The articles that a search found, each by its latest revision and with the places of the words: `{"articles": [… "found_in"],
/// "count", "complete"}`.
pub fn found(
    hits: &[(Arc<Article>, Hit)],
    count: usize,
    is_complete: bool,
    names: Names<'_>,
) -> Bytes {
    let articles = hits.iter().filter_map(|(article, hit)| {
        let places = [("name", hit.in_name), ("title", hit.in_title), ("text", hit.in_text)];
        let found_in = places.into_iter().filter(|(_, is_there)| *is_there);
        Some(WireHit {
            latest: WireRevision::of(&article.name, article.latest()?, names),
            found_in: found_in.map(|(place, _)| place).collect(),
        })
    });
    json(&WireFound { articles: articles.collect(), count, complete: is_complete })
}

/// What a program learns about a refused write, beside the text for people: `code`, and, if the article is not in the
/// state that the write expected, `name`, `base_version`, `latest_version`, `latest` (a revision), `same_content` and
/// `merge`. That is `{"outcome": "clean", "text"}`, `{"outcome": "conflict", "text", "conflicts": [{"base_line",
/// "base", "latest", "refused"}]}`, `{"outcome": "none", "reason"}` or null.
pub fn refusal(error: &WriteError, merge: Option<&Merge>, names: Names<'_>) -> Map<String, Value> {
    let conflict = error.stale().map(|stale| WireConflict {
        name: stale.name.as_str(),
        base_version: stale.base.0,
        latest_version: stale.latest.revision.0,
        latest: WireRevision::of(&stale.name, &stale.latest, names),
        same_content: stale.has_same_content,
        merge: merge.map(WireMerge::of),
    });
    let refusal = serde_json::to_value(WireRefusal { code: error.code(), conflict });
    match refusal.expect("text, numbers and lists of them are JSON") {
        Value::Object(members) => members,
        _ => unreachable!("a struct is an object"),
    }
}

impl<'a> WireMerge<'a> {
    fn of(merge: &'a Merge) -> WireMerge<'a> {
        let hunk = |hunk: &'a Hunk| WireHunk {
            base_line: hunk.base_line,
            base: &hunk.base,
            latest: &hunk.latest,
            refused: &hunk.refused,
        };
        match merge {
            Merge::Clean(text) => WireMerge::Clean { text },
            Merge::Conflict { text, hunks } => {
                WireMerge::Conflict { text, conflicts: hunks.iter().map(hunk).collect() }
            }
            Merge::NotMergeable(reason) => WireMerge::None { reason: reason.to_string() },
        }
    }
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("text, numbers and lists of them are JSON").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Store, delete, name, put, rename, restore};
    use crate::{ListQuery, Revision};

    fn sample() -> Store {
        let mut store = Store::default();
        store.write(&put("a \"b\"", 0, "# Title\n"));
        store.write(&delete("a \"b\"", 1));
        store.write(&restore("a \"b\"", 2, None));
        store
    }

    #[track_caller]
    fn check(body: &Bytes, expected: &str) {
        let expected = expected.replace("SHA", &::record::Digest::of(b"# Title\n").to_string());
        let found: serde_json::Value = serde_json::from_slice(body).expect("JSON");
        let expected: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
        assert_eq!(found, expected);
    }

    const FIRST: &str = r#"{"name": "a \"b\"", "version": 1, "kind": "put", "deleted": false,
        "base_version": 0, "author": "ada", "comment": "why", "created_at": "2026-01-02T03:04:05.123456Z",
        "size_bytes": 8, "sha256": "SHA", "content_type": "text/markdown; charset=utf-8", "title": "Title",
        "restored_from": null}"#;
    const SECOND: &str = r#"{"name": "a \"b\"", "version": 2, "kind": "deleted", "deleted": true,
        "base_version": 1, "author": "bob", "comment": "", "created_at": "2026-01-02T03:04:05.123456Z",
        "size_bytes": null, "sha256": null, "content_type": null, "title": null, "restored_from": null}"#;
    const THIRD: &str = r#"{"name": "a \"b\"", "version": 3, "kind": "restored", "deleted": false,
        "base_version": 2, "author": "cyd", "comment": "", "created_at": "2026-01-02T03:04:05.123456Z",
        "size_bytes": 8, "sha256": "SHA", "content_type": "text/markdown; charset=utf-8", "title": "Title",
        "restored_from": 1}"#;

    #[test]
    fn revisions_histories_and_lists() {
        let Store { snapshot, .. } = sample();
        let name = name("a \"b\"");
        let article = snapshot.article(&name).expect("the article");
        check(&revision(&name, article.latest().expect("a revision"), NAMES), THIRD);
        let part = |before, limit| history(article, &snapshot.history(&name, before, limit), NAMES);
        check(
            &part(None, 9),
            &format!(
                r#"{{"name": "a \"b\"", "latest": 3, "deleted": false, "versions": [{THIRD}, {SECOND},
                {FIRST}], "next_before": null}}"#
            ),
        );
        check(
            &part(Some(Revision(3)), 1),
            &format!(
                r#"{{"name": "a \"b\"", "latest": 3, "deleted": false, "versions": [{SECOND}],
                "next_before": 2}}"#
            ),
        );
        check(
            &list(&snapshot.list(&ListQuery::default()), NAMES),
            &format!(r#"{{"articles": [{THIRD}], "next_after": null}}"#),
        );
        let none = snapshot.list(&ListQuery { limit: 0, ..ListQuery::default() });
        check(&list(&none, NAMES), r#"{"articles": [], "next_after": null}"#);
    }

    const NAMES: Names<'static> = &|_| true;

    #[test]
    fn other_names_are_shown_to_those_who_may_know_them() {
        let mut store = Store::default();
        store.write(&put("a", 0, "x"));
        store.write(&rename("a", 1, "b"));
        let latest = |at: &str, names: Names<'_>| -> Value {
            let article = store.snapshot.article(&name(at)).expect(at);
            let body = revision(&name(at), article.latest().expect("a revision"), names);
            serde_json::from_slice(&body).expect("JSON")
        };
        let (old, new) = (latest("a", NAMES), latest("b", NAMES));
        assert_eq!((&old["kind"], &old["redirect_to"]), (&"redirect".into(), &"b".into()));
        assert_eq!((&old["deleted"], &old["sha256"]), (&true.into(), &Value::Null));
        assert_eq!((&new["kind"], &new["renamed_from"]), (&"renamed".into(), &"a".into()));
        let hidden = [("a", "redirect_to"), ("b", "renamed_from")];
        for (at, member) in hidden {
            let shown = latest(at, &|other| other.as_str() == at);
            assert_eq!(shown.get(member), None, "{shown}");
        }
        let refused = store.check(&put("a", 1, "y")).expect_err("renamed");
        let shown = |names: Names<'_>| refusal(&refused, None, names)["latest"].clone();
        assert_eq!(shown(NAMES)["redirect_to"], "b");
        assert_eq!(shown(&|_| false).get("redirect_to"), None);
    }

    #[track_caller]
    fn check_refusal(members: &Map<String, Value>, expected: &str) {
        check(&json(members), expected);
    }

    #[test]
    fn refusals() {
        let store = sample();
        let stale = store.check(&put("a \"b\"", 1, "# Title\n")).expect_err("stale");
        let body = |merge: &str| {
            format!(
                r#"{{"code": "stale", "name": "a \"b\"", "base_version": 1, "latest_version": 3,
                "latest": {THIRD}, "same_content": true, "merge": {merge}}}"#
            )
        };
        check_refusal(&refusal(&stale, None, NAMES), &body("null"));
        let clean = Merge::Clean("x".to_owned());
        check_refusal(
            &refusal(&stale, Some(&clean), NAMES),
            &body(r#"{"outcome": "clean", "text": "x"}"#),
        );
        let none = Merge::NotMergeable(crate::NotMergeable::NotText);
        check_refusal(
            &refusal(&stale, Some(&none), NAMES),
            &body(r#"{"outcome": "none", "reason": "only text can be merged"}"#),
        );
        let text = |text: &str| text.to_owned();
        let hunk = Hunk { base_line: 7, base: text("b"), latest: text("l"), refused: text("r") };
        let conflict = Merge::Conflict { text: text("x"), hunks: vec![hunk] };
        check_refusal(
            &refusal(&stale, Some(&conflict), NAMES),
            &body(
                r#"{"outcome": "conflict", "text": "x", "conflicts": [{"base_line": 7, "base": "b",
                "latest": "l", "refused": "r"}]}"#,
            ),
        );
        let not_found = store.check(&put("new", 7, "x")).expect_err("not found");
        check_refusal(&refusal(&not_found, None, NAMES), r#"{"code": "not_found"}"#);
    }
}
