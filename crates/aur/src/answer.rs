//! From a query to the finished bytes of its answer.

use std::borrow::Cow;
use std::collections::HashSet;
use std::convert::Infallible;

use bytes::Bytes;
use postings::DocId;
use reply::{Etag, Outline, Reply};

use crate::buffer::Buffer;
use crate::error::QueryError;
use crate::field::{By, Mode};
use crate::fold::{fold, folded_bytes};
use crate::needles::{Needles, WORDS_MAX};
use crate::params::{Arg, Params};
use crate::query::{Kind, Query, Refusal, RequestKind, Version};
use crate::record::{MemberNotes, RecordShape, Repetitions};
use crate::search_context::SearchContext;
use crate::searchable::Searchable;
use crate::snapshot::Snapshot;

pub(crate) const JSON: &str = "application/json";
const JAVASCRIPT: &str = "text/javascript";
const SUGGESTIONS: &str = "application/x-suggestions+json";

/// Most names in a suggestion.
const SUGGESTIONS_MAX: u32 = 20;

/// Enough bytes for most suggestions.
const SUGGESTIONS_BYTES: usize = 640;

/// A little more than the size of a record in most answers: growth means copying.
const SEARCH_RECORD_BYTES: usize = 480;
const INFO_RECORD_BYTES: usize = 840;

/// Upper bound for the bytes around the records.
const ENVELOPE_BYTES: usize = 128;

/// How many records are warmed up together: few enough for their first bytes to fit the nearest cache.
const WARM_UP_RECORDS: usize = 32;

/// Up to this many records, a digest over the JSON just written is cheaper than the digests of all records when they
/// are needed for the first time.
const READ_AGAIN_RECORDS_MAX: usize = 32;

/// A finished answer, and facts about the query.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The bytes to send.
    pub reply: Reply,
    /// The outcome of the query, for metrics and the HTTP status.
    pub outcome: Outcome,
}

/// The outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered(RequestKind),
    /// It was refused.
    Refused {
        /// Why.
        error: QueryError,
        /// The version of the request: version 6 has its own status for errors.
        version: Version,
        /// What the request asked for, if the query was valid and only its results were refused.
        asked: Option<RequestKind>,
    },
}

impl Answer {
    /// Answers `params` from `snapshot`, with at most `results_max` packages.
    pub fn to(params: Params, snapshot: &Snapshot, speaks_6: bool, results_max: usize) -> Answer {
        match Query::parse(params, speaks_6) {
            Ok(query) => snapshot.answer(&query, results_max),
            Err(refusal) => refusal.answer(),
        }
    }

    /// Answers `params` as [`Answer::to`] does, unless the answer has more than `at_once_max` packages.
    ///
    /// # Errors
    ///
    /// The query, for [`Snapshot::answer`].
    pub fn at_once(
        params: Params,
        snapshot: &Snapshot,
        speaks_6: bool,
        results_max: usize,
        at_once_max: usize,
    ) -> Result<Answer, Query> {
        match Query::parse(params, speaks_6) {
            Ok(query) => {
                let admit = |count| if count > at_once_max { Err(()) } else { Ok(()) };
                snapshot.answer_if(&query, results_max, admit).map_err(|()| query)
            }
            Err(refusal) => Ok(refusal.answer()),
        }
    }

    /// Answers `params` that [`Params::are_refined`].
    pub fn to_refined(
        params: Params,
        snapshot: &Snapshot,
        speaks_6: bool,
        results_max: usize,
        context: &SearchContext<'_>,
    ) -> Answer {
        match Query::parse(params, speaks_6) {
            Ok(query) => snapshot.answer_within(&query, results_max, context),
            Err(refusal) => refusal.answer(),
        }
    }

    /// The answer for a client that has sent too many requests; `version` as the request gave it, if it did.
    pub fn rate_limited(version: Option<i64>) -> Answer {
        let version = version.map(i128::from);
        let error = QueryError::RateLimited;
        Refusal { error, version, callback: None, asked: None, detail: None }.answer()
    }

    fn finish(
        json: impl Into<Bytes>,
        content_type: &'static str,
        callback: Option<&str>,
        outcome: Outcome,
    ) -> Answer {
        let json = json.into();
        let etag = Etag::of(&json);
        Answer::finish_tagged(json, etag, content_type, callback, outcome)
    }

    pub(crate) fn finish_tagged(
        json: Bytes,
        etag: Etag,
        content_type: &'static str,
        callback: Option<&str>,
        outcome: Outcome,
    ) -> Answer {
        let Some(callback) = callback else {
            return Answer { reply: Reply::with_tag(content_type, json, etag), outcome };
        };
        let mut body = Vec::with_capacity(json.len() + callback.len() + 6);
        body.extend_from_slice(b"/**/");
        body.extend_from_slice(callback.as_bytes());
        body.push(b'(');
        body.extend_from_slice(&json);
        body.push(b')');
        Answer { reply: Reply::wrapped(JAVASCRIPT, body, json, etag), outcome }
    }
}

impl Refusal {
    /// The error object with a text that names something of the request.
    fn explained(&self, detail: &str, version: &str) -> Answer {
        let spoken = if self.version == Some(6) { Version::V6 } else { Version::V5 };
        let outcome = Outcome::Refused { error: self.error, version: spoken, asked: self.asked };
        let detail = serde_json::to_string(detail).expect("strings serialize into memory");
        let json = format!(
            "{{\"error\":{detail},\"resultcount\":0,\"results\":[],\"type\":\"error\",\"version\":{version}}}"
        );
        Answer::finish(json.into_bytes(), JSON, self.callback.as_deref(), outcome)
    }

    /// The error object. Its HTTP status is chosen elsewhere.
    pub fn answer(&self) -> Answer {
        let version = match self.version {
            Some(version) => Cow::Owned(version.to_string()),
            None => Cow::Borrowed("null"),
        };
        let error = self.error;
        if let Some(detail) = &self.detail {
            return self.explained(detail, &version);
        }
        let spoken = if self.version == Some(6) { Version::V6 } else { Version::V5 };
        let outcome = Outcome::Refused { error, version: spoken, asked: self.asked };
        if error.is_untagged() {
            let json = format!(
                "{{\"version\":{version},\"results\":[],\"resultcount\":0,\"type\":\"error\",\"error\":\"{error}\"}}"
            );
            return Answer { reply: Reply::untagged(JSON, json), outcome };
        }
        let json = format!(
            "{{\"error\":\"{error}\",\"resultcount\":0,\"results\":[],\"type\":\"error\",\"version\":{version}}}"
        );
        Answer::finish(json.into_bytes(), JSON, self.callback.as_deref(), outcome)
    }
}

impl Snapshot {
    /// Answers `query` with at most `results_max` packages; a query that finds more is refused.
    pub fn answer(&self, query: &Query, results_max: usize) -> Answer {
        if query.options().is_some() {
            return self.answer_within(query, results_max, &SearchContext::NOTHING);
        }
        self.answer_plainly(query, results_max)
    }

    /// Answers `query` as upstream does, whatever else is asked.
    #[inline(always)]
    pub(crate) fn answer_plainly(&self, query: &Query, results_max: usize) -> Answer {
        let Ok(answer) = self.answer_if(query, results_max, |_| Ok::<_, Infallible>(()));
        answer
    }

    /// The answer, unless `admit` refuses the number of its packages.
    #[inline(always)]
    fn answer_if<E>(
        &self,
        query: &Query,
        results_max: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<Answer, E> {
        match self.layers() {
            Ok(segment) => answer(segment, query, results_max, admit),
            Err(layers) => answer(&layers, query, results_max, admit),
        }
    }
}

fn answer<E>(
    packages: &impl Searchable,
    query: &Query,
    results_max: usize,
    admit: impl FnOnce(usize) -> Result<(), E>,
) -> Result<Answer, E> {
    let outcome = Outcome::Answered(query.asked);
    let callback = query.callback.as_deref();
    let names = match query.kind {
        Kind::Info | Kind::Search | Kind::MaintainerSearch => {
            // One more than the maximum shows that there are too many.
            let limit = results_max.saturating_add(1);
            let found = if query.kind == Kind::Info {
                info(packages, query, limit)
            } else if is_surely_too_much(packages, query, results_max) {
                return Ok(too_many(query));
            } else {
                search(packages, query, limit)
            };
            if found.len() > results_max {
                return Ok(too_many(query));
            }
            admit(found.len())?;
            let (json, etag, outline) = render_outlined(packages, query, &found);
            let mut answer = Answer::finish_tagged(json, etag, JSON, callback, outcome);
            // The positions are only right without a callback before the JSON.
            answer.reply.outline = outline.filter(|_| callback.is_none());
            return Ok(answer);
        }
        Kind::Suggest
        | Kind::OpensearchSuggest
        | Kind::SuggestBase
        | Kind::OpensearchSuggestBase => suggest(packages, query),
    };
    if matches!(query.kind, Kind::Suggest | Kind::SuggestBase) {
        return Ok(Answer::finish(names, JSON, callback, outcome));
    }
    let arg = query.single().map_or("", |arg| arg.literal.as_str());
    let mut json = b"[".to_vec();
    serde_json::to_writer(&mut json, arg).expect("strings serialize into memory");
    json.push(b',');
    json.extend_from_slice(&names);
    json.push(b']');
    Ok(Answer::finish(json, SUGGESTIONS, callback, outcome))
}

/// The packages that an `info` query names, in the order of the request, each once.
pub(crate) fn info(packages: &impl Searchable, query: &Query, limit: usize) -> Vec<DocId> {
    if query.by != By::Name {
        // Version 6: the packages that match at least one argument, by name.
        return packages.found(limit, |segment, limit| {
            if query.by == By::NameDesc {
                let words = query.args.iter().map(|arg| arg.literal.as_str());
                return segment.find_any_word(query.by, words, limit);
            }
            segment.find_any(query.by, &query.args, limit)
        });
    }
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for arg in &query.args {
        // The collation ignores trailing spaces when it compares for equality.
        if let Some(doc) = packages.find(arg.literal.trim_end_matches(' '))
            && (query.args.len() == 1 || seen.insert(doc))
        {
            found.push(doc);
            if found.len() == limit {
                break;
            }
        }
    }
    found
}

/// Whether the sizes of posting lists alone show that a search finds more than `results_max` packages. If so, no
/// list has to be decoded.
fn is_surely_too_much(packages: &impl Searchable, query: &Query, results_max: usize) -> bool {
    let Some(arg) = query.single() else { return false };
    match (query.by, query.version, query.mode) {
        (By::Name | By::NameDesc, Version::V5, Mode::Contains) => {
            let needle = fold(arg.spaced.as_deref().unwrap_or(&arg.literal));
            packages.is_in_more_than(results_max, |segment, count| {
                segment.names().is_in_more_than(&needle, count)
                    || query.by == By::NameDesc
                        && segment.descriptions().is_in_more_than(&needle, count)
            })
        }
        (By::Name | By::NameDesc, _, _) => false,
        (by, _, _) => {
            let term = folded_bytes(arg.literal.trim_end_matches(' '));
            packages.is_in_more_than(results_max, |segment, count| {
                segment
                    .terms()
                    .postings(by as u8, &term)
                    .is_some_and(|list| list.count_min(segment.package_count()) > count)
            })
        }
    }
}

/// The packages that a search finds, in name order.
pub(crate) fn search(packages: &impl Searchable, query: &Query, limit: usize) -> Vec<DocId> {
    let empty = Arg { literal: String::new(), spaced: None };
    let arg = query.single().unwrap_or(&empty);
    match (query.by, query.version) {
        (By::Name | By::NameDesc, Version::V5) => {
            let containing = |text: &str| {
                let needle = fold(text);
                packages.found(limit, |segment, limit| {
                    segment.find_text(query.by, query.mode, &needle, limit)
                })
            };
            let found = containing(arg.spaced.as_deref().unwrap_or(&arg.literal));
            // A bare plus is meant as a space by most clients, and as a plus by some.
            if found.is_empty() && arg.spaced.is_some() {
                return containing(&arg.literal);
            }
            found
        }
        (By::Name | By::NameDesc, Version::V6) => {
            let needles = Needles::of(arg.literal.split(' '), query.mode, WORDS_MAX);
            packages.found(limit, |segment, limit| {
                segment.find_words(query.by, query.mode, &needles, limit)
            })
        }
        (by, _) => packages.found(limit, |segment, limit| segment.find_by(by, arg, limit)),
    }
}

/// The names that begin with the argument, as a JSON array.
fn suggest(packages: &impl Searchable, query: &Query) -> Vec<u8> {
    let mut json = Vec::with_capacity(SUGGESTIONS_BYTES);
    json.push(b'[');
    if let Some(arg) = query.single() {
        let prefix = fold(&arg.literal);
        let are_bases = matches!(query.kind, Kind::SuggestBase | Kind::OpensearchSuggestBase);
        packages.each_name(are_bases, prefix.as_bytes(), SUGGESTIONS_MAX, |segment, place| {
            if json.len() > 1 {
                json.push(b',');
            }
            if are_bases {
                segment.write_base(place, &mut json);
            } else {
                segment.write_name(DocId(place), &mut json);
            }
        });
    }
    json.push(b']');
    json
}

/// The packages as JSON, its entity tag, and its outline if the query asks for it.
fn render_outlined(
    packages: &impl Searchable,
    query: &Query,
    found: &[DocId],
) -> (Bytes, Etag, Option<Outline>) {
    if !query.is_outlined {
        let (json, etag) = render(packages, query, found, &mut ());
        return (json, etag, None);
    }
    let mut notes = Repetitions::in_records(found.len());
    let (json, etag) = render(packages, query, found, &mut notes);
    (json, etag, Some(notes.finish()))
}

/// The packages as JSON, and its entity tag.
fn render(
    packages: &impl Searchable,
    query: &Query,
    found: &[DocId],
    notes: &mut impl MemberNotes,
) -> (Bytes, Etag) {
    let (type_, shape, version) = match (query.kind, query.version) {
        (Kind::Info, Version::V5) => ("multiinfo", RecordShape::Info, 5),
        (Kind::Info, Version::V6) => ("multiinfo", RecordShape::Version6, 6),
        (kind, Version::V5) => (kind.name(), RecordShape::Search, 5),
        (kind, Version::V6) => (kind.name(), RecordShape::Version6, 6),
    };
    let record_bytes = match shape {
        RecordShape::Info => INFO_RECORD_BYTES,
        _ => SEARCH_RECORD_BYTES,
    };
    let mut json = Buffer::with_capacity(ENVELOPE_BYTES + found.len() * record_bytes);
    // The tag is a digest of the JSON, or, if that is long, of everything that determines it.
    let is_long = found.len() > READ_AGAIN_RECORDS_MAX;
    let mut determined_by = Vec::new();
    if is_long {
        determined_by.reserve_exact(ENVELOPE_BYTES + found.len() * size_of::<u64>());
    }
    json.push(b"{\"resultcount\":");
    json.push(found.len().to_string().as_bytes());
    json.push(b",\"results\":[");
    for docs in found.chunks(WARM_UP_RECORDS) {
        if docs.len() > 1 {
            packages.warm_up(docs);
        }
        for &doc in docs {
            if is_long {
                determined_by.extend_from_slice(&packages.digest(doc).to_le_bytes());
            }
            packages.record(doc).render_noting(shape, &mut json, notes);
            json.push(b",");
        }
    }
    if !found.is_empty() {
        json.pop();
    }
    json.push(b"],\"type\":\"");
    json.push(type_.as_bytes());
    json.push(b"\",\"version\":");
    json.push(&[b'0' + version, b'}']);
    let json = json.finish();
    if !is_long {
        let etag = Etag::of(&json);
        return (json, etag);
    }
    determined_by.extend_from_slice(type_.as_bytes());
    determined_by.push(version);
    // Another release may render the same packages differently.
    determined_by.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    (json, Etag::of(&determined_by))
}

/// The answer to a query that finds more packages than an answer may have.
fn too_many(query: &Query) -> Answer {
    unanswered(query, QueryError::TooMany)
}

/// The answer to a valid query whose results are not sent.
pub(crate) fn unanswered(query: &Query, error: QueryError) -> Answer {
    let version = if query.version == Version::V6 { 6 } else { 5 };
    let callback = query.callback.clone();
    let asked = Some(query.asked);
    Refusal { error, version: Some(version), callback, asked, detail: None }.answer()
}
