//! [`Entry`]: one change, as every client gets it that may read it.
//!
//! [`Draft`] -> JSON in one line -> a server-sent event around it. Both are the same bytes, which all clients share.

use std::ops::Range;
use std::sync::Arc;

use account::{Acl, Object, Portion, Principal, Scope};
use bytes::Bytes;
use config::Config;
use jiff::Timestamp;
use pypi::{ProjectName, StageName};
use record::{ChangeKind, Serial};
use serde::Serialize;
use serde_json::{Map, Value};
use state::stored::Stored;

use super::FeedSurface;

/// The object of a change, which decides who may read it.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Everybody may.
    Open,
    /// A stage, or a project of it.
    Stage(StageName, Option<ProjectName>),
    /// An article.
    Article(article::ArticleName),
}

/// A change that is not encoded yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) serial: Serial,
    pub(crate) kind: ChangeKind,
    /// The kind of object: `package`, `index`, `project`, `release`, `file`, `article`, `attachment`.
    pub(crate) item: &'static str,
    pub(crate) name: String,
    pub(crate) subject: Subject,
    /// When it happened, or was first seen.
    pub(crate) at: Option<Timestamp>,
    pub(crate) fields: Vec<String>,
    /// Who did it.
    pub(crate) by: Option<String>,
    /// Further members.
    pub(crate) more: Map<String, Value>,
    /// Who could read the stage at the change, if there is one.
    pub(crate) readers: Option<Arc<Acl>>,
    /// Who could read it before, if that has changed.
    pub(crate) readers_before: Option<Acl>,
    /// Whether an article became a draft by it.
    pub(crate) hides: bool,
}

impl Draft {
    pub(crate) fn new(
        serial: Serial,
        kind: ChangeKind,
        item: &'static str,
        name: impl Into<String>,
        subject: Subject,
    ) -> Draft {
        Draft {
            serial,
            kind,
            item,
            name: name.into(),
            subject,
            at: None,
            fields: Vec::new(),
            by: None,
            more: Map::new(),
            readers: None,
            readers_before: None,
            hides: false,
        }
    }
}

/// A line as it is sent.
#[derive(Serialize)]
struct Line<'draft> {
    serial: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    surface: &'static str,
    #[serde(rename = "type")]
    item: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<&'draft str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'draft str>,
    name: &'draft str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    changed: &'draft [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'draft str>,
    #[serde(flatten)]
    more: &'draft Map<String, Value>,
}

/// A server-sent event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// What happened to it, as those see it who get this event.
    pub(crate) kind: ChangeKind,
    frame: Bytes,
    /// Where the JSON is within the event.
    json: Range<usize>,
}

impl Event {
    fn of(kind: ChangeKind, line: &Line<'_>, id: &str) -> Event {
        let mut frame = format!("id: {id}\ndata: ").into_bytes();
        let start = frame.len();
        serde_json::to_writer(&mut frame, line).expect("texts and numbers are always written");
        let json = start..frame.len();
        frame.extend_from_slice(b"\n\n");
        Event { kind, frame: frame.into(), json }
    }

    /// The event.
    pub(crate) fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// The JSON and the end of its line.
    pub(crate) fn line(&self) -> Bytes {
        self.frame.slice(self.json.start..self.json.end + 1)
    }

    /// The JSON.
    pub(crate) fn json(&self) -> &[u8] {
        &self.frame[self.json.clone()]
    }
}

/// A change in a history.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) serial: Serial,
    /// When it happened, or was first seen.
    pub(crate) at: Option<Timestamp>,
    event: Event,
    /// What it concerns.
    pub(crate) subject: Subject,
    /// What happened to it, and what kind of object it is.
    pub(super) kind: ChangeKind,
    pub(crate) item: &'static str,
    pub(crate) name: Box<str>,
    /// Who could read it at the change. They may have lost the right since, and others may have got it, also to a new stage
    /// with the same name.
    readers: Option<Arc<Acl>>,
    /// The event for clients that lost the right to read it by this change: it tells them that it is gone.
    lost: Option<(Acl, Event)>,
    /// The event for clients for which an article is gone because it became a draft.
    hidden: Option<Event>,
}

impl Entry {
    /// `id`: the position of a client that has this entry.
    pub(super) fn encode(surface: FeedSurface, draft: &Draft, id: &str) -> Entry {
        let (index, project) = match &draft.subject {
            Subject::Stage(stage, project) => {
                // The name of an index is its own name.
                let index = (draft.item != "index").then(|| stage.as_str());
                let project = project.as_ref().filter(|_| draft.item != "project");
                (index, project.map(ProjectName::as_str))
            }
            _ => (None, None),
        };
        let more = Map::new();
        let line = |kind: ChangeKind, is_for_readers: bool| Line {
            serial: draft.serial.0,
            time: draft.at,
            surface: surface.name(),
            item: draft.item,
            kind: kind.as_str(),
            index,
            project,
            name: &draft.name,
            changed: if kind == ChangeKind::Changed { &draft.fields } else { &[] },
            by: draft.by.as_deref().filter(|_| is_for_readers),
            more: if is_for_readers { &draft.more } else { &more },
        };
        let event = |kind: ChangeKind| Event::of(kind, &line(kind, true), id);
        // Those for whom it is gone are told only that, and not who did it.
        let gone = || Event::of(ChangeKind::Removed, &line(ChangeKind::Removed, false), id);
        let lost = draft.readers_before.as_ref().map(|readers| (readers.clone(), gone()));
        let hidden = draft.hides.then(gone);
        let event = event(draft.kind);
        let (subject, readers) = (draft.subject.clone(), draft.readers.clone());
        let (kind, item, name) = (draft.kind, draft.item, draft.name.as_str().into());
        let at = draft.at;
        Entry { serial: draft.serial, at, event, subject, kind, item, name, readers, lost, hidden }
    }

    /// The event for this client: only if it could read the object at the change, and may now.
    pub(crate) fn for_reader(
        &self,
        config: &Config,
        stored: &Stored,
        principal: &Principal,
    ) -> Option<&Event> {
        match &self.subject {
            Subject::Open => Some(&self.event),
            Subject::Article(name) => {
                let object = Object::Article(name.as_str());
                let admits = |list: &Acl| list.admits(principal, Scope::ArticleRead, object);
                let is_draft = stored.articles.article(name).is_some_and(|it| it.is_draft());
                let may_read = admits(&config.article.acl_read);
                match may_read && (!is_draft || admits(&config.article.acl_write)) {
                    true => Some(&self.event),
                    false => self.hidden.as_ref().filter(|_| may_read),
                }
            }
            Subject::Stage(stage, project) => {
                let portion = match project {
                    Some(project) => Portion::Project(project.as_str()),
                    None => Portion::Whole,
                };
                let object = Object::Index(stage.as_str(), portion);
                let could = |readers: &Acl| readers.admits(principal, Scope::PythonRead, object);
                let may = || {
                    let found = stored.index.stage(stage.as_str());
                    found.is_some_and(|found| found.may_read(principal, portion))
                };
                if self.readers.as_ref().is_some_and(|readers| could(readers)) && may() {
                    return Some(&self.event);
                }
                let (readers, event) = self.lost.as_ref()?;
                could(readers).then_some(event)
            }
        }
    }

    /// The position of a client that has this entry.
    #[cfg(test)]
    pub(super) fn id(&self) -> &str {
        let frame = std::str::from_utf8(&self.event.frame).expect("text");
        frame.split_once('\n').and_then(|(id, _)| id.strip_prefix("id: ")).expect("an id")
    }
}
