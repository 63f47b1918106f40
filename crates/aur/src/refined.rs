//! Answers to questions with parameters that upstream does not have ([`Options`], [`Pattern`]): sorted, in parts, with chosen
//! fields.
//!
//! question -> all packages found -> sorted -> a part -> JSON. Other questions do not pay for it.

use std::cell::Cell;
use std::collections::HashSet;

use bytes::Bytes;
use memchr::memmem::Finder;
use postings::{DocId, DocSet};
use reply::Etag;

use crate::answer::{Answer, JSON, Outcome, info, search, unanswered};
use crate::arch::Arch;
use crate::browse::{ListWindow, PackageSelection};
use crate::buffer::Buffer;
use crate::error::QueryError;
use crate::field::{By, Field, Mode};
use crate::fit::Fit;
use crate::fold::folded_bytes;
use crate::hidden_members;
use crate::needles::{Needles, WORDS_MAX};
use crate::options::{Fields, LIMIT_MAX, OPTIONAL_FOR, Options, REQUIRED_BY, Sort};
use crate::pattern::Pattern;
use crate::query::{Kind, Query, Version};
use crate::record::{Record, RecordShape, first_member};
use crate::search_context::SearchContext;
use crate::segment::Segment;
use crate::snapshot::Snapshot;
use crate::sort_key::Order;

/// After this many packages, the cost of the search is checked.
const LOOK_EVERY: u32 = 64;

/// Names of other packages in one answer ([`REQUIRED_BY`], [`OPTIONAL_FOR`]).
const NAMES_MAX: usize = 100_000;

/// Provided names of a package that are searched for.
const PROVIDED_MAX: usize = 64;

/// Packages of one answer that may have fields from outside.
const ADDED_PACKAGES_MAX: usize = 200;

/// The kinds of fields that make a package required.
const REQUIRING: [By; 3] = [By::Depends, By::MakeDepends, By::CheckDepends];

impl Snapshot {
    /// Answers `query`, which may have what upstream does not have, with at most `results_max` packages.
    #[inline(never)]
    pub(crate) fn answer_within(
        &self,
        query: &Query,
        results_max: usize,
        context: &SearchContext<'_>,
    ) -> Answer {
        let is_of_records =
            matches!(query.kind, Kind::Info | Kind::Search | Kind::MaintainerSearch);
        let Some(options) = query.options().filter(|_| is_of_records) else {
            return self.answer_plainly(query, results_max);
        };
        match answer(self, query, options, results_max, context) {
            Ok((json, etag)) => {
                let outcome = Outcome::Answered(query.asked);
                Answer::finish_tagged(json, etag, JSON, query.callback.as_deref(), outcome)
            }
            Err(error) => unanswered(query, error),
        }
    }
}

/// The cost of an answer so far.
struct Effort<'a> {
    /// Whether it exceeds the limit.
    is_over: &'a dyn Fn() -> bool,
    steps: Cell<u32>,
    is_spent: Cell<bool>,
}

impl<'a> Effort<'a> {
    fn new(is_over: &'a dyn Fn() -> bool) -> Effort<'a> {
        Effort { is_over, steps: Cell::new(0), is_spent: Cell::new(false) }
    }

    /// Counts one package. Once it is true, all that is found is thrown away.
    fn is_spent(&self) -> bool {
        let steps = self.steps.get();
        self.steps.set(steps.wrapping_add(1));
        if steps.is_multiple_of(LOOK_EVERY) && (self.is_over)() {
            self.is_spent.set(true);
        }
        self.is_spent.get()
    }

    /// # Errors
    /// If the answer has cost too much.
    fn check(&self) -> Result<(), QueryError> {
        match self.is_spent.get() || (self.is_over)() {
            true => Err(QueryError::TooCostly),
            false => Ok(()),
        }
    }
}

/// The JSON of an answer with its tag, or why there is none.
fn answer(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    results_max: usize,
    context: &SearchContext<'_>,
) -> Result<(Bytes, Etag), QueryError> {
    let effort = Effort::new(context.is_over);
    let mut found = found(snapshot, query, options, &effort);
    effort.check()?;
    if let Some(arch) = &options.arch
        && query.by != By::Name
    {
        let args = match query.kind {
            Kind::Info => &query.args[..],
            _ => query.single().map(std::slice::from_ref).unwrap_or_default(),
        };
        let args = args.iter().map(|arg| folded_bytes(arg.literal.trim_end_matches(' ')));
        let terms: HashSet<Vec<u8>> = args.collect();
        found.retain(|&doc| !effort.is_spent() && arch.has(snapshot.record(doc), query.by, &terms));
        effort.check()?;
    }
    let total = found.len();
    if !options.is_paged() && total > results_max {
        return Err(QueryError::TooMany);
    }
    let limit = match options.is_paged() {
        true => options.limit.unwrap_or(LIMIT_MAX).min(results_max),
        false => results_max,
    };
    let docs = part(snapshot, query, options, found, limit, &effort);
    effort.check()?;
    if docs.len() > ADDED_PACKAGES_MAX && options.fields.is_some_and(Fields::has_added) {
        return Err(QueryError::TooManyAdded);
    }
    render(snapshot, query, options, total, &docs, &effort, context)
}

/// All packages that the question finds: those of `info` in the order of the request, others in name order.
fn found(snapshot: &Snapshot, query: &Query, options: &Options, effort: &Effort<'_>) -> Vec<DocId> {
    if query.kind == Kind::Info {
        return match snapshot.layers() {
            Ok(segment) => info(segment, query, usize::MAX),
            Err(layers) => info(&layers, query, usize::MAX),
        };
    }
    let with_keywords = options.with_keywords && query.kind == Kind::Search;
    match query.pattern() {
        None if with_keywords => found_or_keywords(snapshot, query),
        None => found_plainly(snapshot, query),
        Some(Pattern::Words { wanted, unwanted, .. }) => {
            let finders: Vec<Finder<'_>> = unwanted.iter().map(Finder::new).collect();
            snapshot.found_in_all(|segment, limit| {
                let mut docs = match with_keywords {
                    false => segment.find_words(query.by, Mode::Contains, wanted, limit),
                    true => segment.find_words_or_keywords(query.by, Mode::Contains, wanted),
                };
                if finders.is_empty() {
                    return docs;
                }
                let mut left_out = DocSet::empty(segment.package_count());
                for word in unwanted.iter().filter(|_| with_keywords) {
                    left_out.extend(segment.with_keyword(word.as_bytes()).into_iter());
                }
                docs.retain(|&doc| {
                    !effort.is_spent()
                        && !left_out.has(doc)
                        && !finders.iter().any(|finder| segment.has_text(query.by, doc, finder))
                });
                docs
            })
        }
        Some(Pattern::Regex(regex)) => snapshot.found_in_all(|segment, limit| {
            let all = (0..segment.package_count()).map(DocId);
            let is_match = |&doc: &DocId| {
                regex.is_match(segment.names().column().text(doc))
                    || query.by == By::NameDesc
                        && regex.is_match(segment.descriptions().column().text(doc))
            };
            all.take_while(|_| !effort.is_spent()).filter(is_match).take(limit).collect()
        }),
    }
}

/// The packages that the question finds without any of these parameters.
fn found_plainly(snapshot: &Snapshot, query: &Query) -> Vec<DocId> {
    match snapshot.layers() {
        Ok(segment) => search(segment, query, usize::MAX),
        Err(layers) => search(&layers, query, usize::MAX),
    }
}

/// [`found_plainly`], and the packages that match by a keyword.
fn found_or_keywords(snapshot: &Snapshot, query: &Query) -> Vec<DocId> {
    let found = found_plainly(snapshot, query);
    let Some(arg) = query.single() else { return found };
    let more = match query.version {
        // Each word may be in a text or be a keyword.
        Version::V6 => {
            let needles = Needles::of(arg.literal.split(' '), query.mode, WORDS_MAX);
            snapshot.found_in_all(|segment, _| {
                segment.find_words_or_keywords(query.by, query.mode, &needles)
            })
        }
        Version::V5 => {
            let literal = folded_bytes(arg.literal.trim_end_matches(' '));
            let spaced = arg.spaced.as_deref().map(folded_bytes);
            snapshot.found_in_all(|segment, _| {
                let mut docs = segment.with_keyword(&literal);
                docs.extend(spaced.iter().flat_map(|text| segment.with_keyword(text)));
                docs.sort_unstable();
                docs.dedup();
                docs
            })
        }
    };
    if more.is_empty() {
        return found;
    }
    let both: HashSet<DocId> = found.into_iter().chain(more).collect();
    snapshot.docs().filter(|doc| both.contains(doc)).collect()
}

/// The requested part of the packages, in the requested order.
fn part(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    mut found: Vec<DocId>,
    limit: usize,
    effort: &Effort<'_>,
) -> Vec<DocId> {
    let Options { sort, is_descending, .. } = *options;
    let offset = options.offset.unwrap_or(0);
    let part = |order| ListWindow { order, is_descending, offset, limit };
    if query.kind == Kind::Info && sort.is_some() && query.by == By::Name {
        found.sort_by_cached_key(|&doc| snapshot.folded_name(doc).to_vec());
    }
    match sort {
        None => found.into_iter().skip(offset).take(limit).collect(),
        Some(Sort::By(order)) => snapshot.sorted(found, part(order)).collect(),
        Some(Sort::Relevance) => {
            let fit = Fit::of(query);
            let count = found.len();
            // The best fit is the greatest.
            found.sort_by_cached_key(|&doc| {
                if effort.is_spent() {
                    return (0, 0);
                }
                let popularity = snapshot.key(doc, count).rank(Order::Popularity);
                let rank = fit.rank(snapshot.folded_name(doc));
                match is_descending {
                    true => (u8::MAX - rank, u32::MAX - popularity),
                    false => (rank, popularity),
                }
            });
            found.into_iter().skip(offset).take(limit).collect()
        }
    }
}

impl Segment {
    /// The packages that have every word in a text, or as a keyword. Without words, none.
    pub(crate) fn find_words_or_keywords(
        &self,
        by: By,
        mode: Mode,
        needles: &Needles,
    ) -> Vec<DocId> {
        let mut found: Option<Vec<DocId>> = None;
        for word in needles.words() {
            let mut docs = self.find_text(by, mode, word, usize::MAX);
            docs.extend(self.with_keyword(word.as_bytes()));
            docs.sort_unstable();
            docs.dedup();
            if let Some(before) = &found {
                docs.retain(|doc| before.binary_search(doc).is_ok());
            }
            let is_nothing = docs.is_empty();
            found = Some(docs);
            if is_nothing {
                break;
            }
        }
        found.unwrap_or_default()
    }

    fn has_text(&self, by: By, doc: DocId, finder: &Finder<'_>) -> bool {
        self.names().column().contains(doc, finder)
            || by != By::Name && self.descriptions().column().contains(doc, finder)
    }

    /// The packages with this keyword, which is folded.
    pub(crate) fn with_keyword(&self, keyword: &[u8]) -> Vec<DocId> {
        self.terms().documents(By::Keywords as u8, keyword, usize::MAX)
    }
}

fn render(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    total: usize,
    docs: &[DocId],
    effort: &Effort<'_>,
    context: &SearchContext<'_>,
) -> Result<(Bytes, Etag), QueryError> {
    let (type_, shape, version) = match (query.kind, query.version) {
        (Kind::Info, Version::V5) => ("multiinfo", RecordShape::Info, 5),
        (Kind::Info, Version::V6) => ("multiinfo", RecordShape::Version6, 6),
        (kind, Version::V5) => (kind.name(), RecordShape::Search, 5),
        (kind, Version::V6) => (kind.name(), RecordShape::Version6, 6),
    };
    let mut buffer = Buffer::with_capacity(128 + docs.len() * 512);
    buffer.push(format!("{{\"resultcount\":{},\"results\":[", docs.len()).as_bytes());
    let mut names_left = NAMES_MAX;
    let (mut record, mut room) = (Vec::new(), Vec::new());
    for &doc in docs {
        let found = match &options.arch {
            None => snapshot.record(doc),
            Some(_) if effort.is_spent() => return Err(QueryError::TooCostly),
            Some(arch) => arch.narrowed(snapshot.record(doc), &mut room),
        };
        match options.fields {
            None => found.render(shape, &mut buffer),
            Some(fields) => {
                // Each list of other packages may take as long as a search.
                if fields.has_required_by || fields.has_optional_for || effort.is_spent() {
                    effort.check()?;
                }
                record.clear();
                let needing =
                    DependentFinder { snapshot, doc, arch: options.arch.as_ref(), effort };
                write_record(found, &needing, fields, &mut names_left, context, &mut record)?;
                buffer.push(&record);
            }
        }
        buffer.push(b",");
    }
    if !docs.is_empty() {
        buffer.pop();
    }
    let end = format!("],\"total\":{total},\"type\":\"{type_}\",\"version\":{version}}}");
    buffer.push(end.as_bytes());
    let json = buffer.finish();
    let etag = Etag::of(&json);
    Ok((json, etag))
}

/// Writes the chosen fields of a package, in ascending order of their keys.
fn write_record(
    record: Record<'_>,
    needing: &DependentFinder<'_>,
    fields: Fields,
    names_left: &mut usize,
    context: &SearchContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    if fields.are_all {
        let mut buffer = Buffer::with_capacity(1024);
        record.render(RecordShape::Info, &mut buffer);
        members.extend(members_of(buffer.as_bytes()));
    } else {
        for field in Field::ALL.into_iter().filter(|field| fields.has(*field)) {
            members.push((field.name().to_owned(), record.shown(field)));
        }
    }
    let mut add = |key: &str, kinds: &[By]| -> Result<(), QueryError> {
        let names = needing.of(record, kinds)?;
        *names_left = names_left.checked_sub(names.len()).ok_or(QueryError::TooCostly)?;
        let mut list = vec![b'['];
        for (at, &other) in names.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            list.extend_from_slice(needing.snapshot.record(other).name());
        }
        list.push(b']');
        members.push((key.to_owned(), list));
        Ok(())
    };
    if fields.has_required_by {
        add(REQUIRED_BY, &REQUIRING)?;
    }
    if fields.has_optional_for {
        add(OPTIONAL_FOR, &[By::OptDepends])?;
    }
    if fields.has_added() {
        let name: String = serde_json::from_slice(record.name()).unwrap_or_default();
        for field in fields.added() {
            let value = (context.added)(&name, field).unwrap_or_else(|| "null".to_owned());
            members.push((field.to_owned(), value.into_bytes()));
        }
    }
    let stored = record.value(Field::Unshown).unwrap_or_default();
    for name in fields.unshown() {
        members.push((name.to_owned(), hidden_members::shown(stored, name)));
    }
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    out.push(b'{');
    for (at, (key, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, key).expect("strings serialize into memory");
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    Ok(())
}

/// The members of an object, with their JSON as it stands.
fn members_of(object: &[u8]) -> Vec<(String, Vec<u8>)> {
    // The others follow, each with a comma before it.
    let mut rest = [b",", object.get(1..object.len() - 1).unwrap_or_default()].concat();
    let mut members = Vec::new();
    while let Some((key, bytes)) = first_member(&rest) {
        let colon = 1 + serde_json::to_string(&key).map_or(0, |key| key.len());
        members.push((key, rest[colon + 1..bytes].to_vec()));
        rest.drain(..bytes);
    }
    members
}

/// Finds the packages that need one.
struct DependentFinder<'a> {
    snapshot: &'a Snapshot,
    doc: DocId,
    /// `None` means any architecture.
    arch: Option<&'a Arch>,
    effort: &'a Effort<'a>,
}

impl DependentFinder<'_> {
    /// The packages that name this one, or a name that it provides, in one of these fields; by name.
    ///
    /// # Errors
    /// If the answer has cost too much.
    fn of(&self, record: Record<'_>, kinds: &[By]) -> Result<Vec<DocId>, QueryError> {
        let text = |json: &[u8]| serde_json::from_slice::<String>(json).unwrap_or_default();
        let provided: Vec<String> = record
            .value(Field::Provides)
            .and_then(|json| serde_json::from_slice(json).ok())
            .unwrap_or_default();
        let mut names = vec![text(record.name())];
        names.extend(provided.into_iter().take(PROVIDED_MAX));
        let names: Vec<&str> = names
            .iter()
            .map(|name| name.split(['<', '=', '>']).next().unwrap_or_default())
            .filter(|name| !name.is_empty())
            .collect();
        let values: Vec<(By, &str)> =
            names.iter().flat_map(|name| kinds.iter().map(|&by| (by, *name))).collect();
        let mut docs = self.snapshot.wanted(&PackageSelection::Values(&values));
        docs.retain(|&other| other != self.doc);
        if let Some(arch) = self.arch {
            let terms = names.iter().map(|name| folded_bytes(name.trim_end_matches(' ')));
            let terms: HashSet<Vec<u8>> = terms.collect();
            docs.retain(|&other| {
                let is_there = |&by: &By| arch.has(self.snapshot.record(other), by, &terms);
                !self.effort.is_spent() && kinds.iter().any(is_there)
            });
            self.effort.check()?;
        }
        Ok(docs)
    }
}

#[cfg(test)]
mod tests;
