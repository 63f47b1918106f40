//! Answers to questions with parameters that upstream does not have ([`Options`], [`Pattern`]): sorted, in parts, with chosen fields.
//!
//! question -> all packages found -> sorted -> a part -> JSON. Only these questions pay for it.

use std::cell::Cell;

use bytes::Bytes;
use memchr::memmem::Finder;
use postings::DocId;
use reply::Etag;

use crate::answer::{Answer, JSON, Outcome, info, search, unanswered};
use crate::browse::{Part, Wanted};
use crate::error::QueryError;
use crate::field::{By, Field, Mode};
use crate::fold::{fold, folded_bytes};
use crate::needles::Needles;
use crate::options::{Fields, LIMIT_MAX, OPTIONAL_FOR, Options, REQUIRED_BY, Sort};
use crate::pattern::Pattern;
use crate::query::{Kind, Query, Version};
use crate::record::{Shape, first_member};
use crate::segment::Segment;
use crate::sheet::Sheet;
use crate::snapshot::Snapshot;
use crate::sort_key::Order;

/// Texts that a regular expression is tried on between two looks at what the search has cost.
const LOOK_EVERY: u32 = 64;

/// Names of other packages in one answer ([`REQUIRED_BY`], [`OPTIONAL_FOR`]).
const NAMES_MAX: usize = 100_000;

/// What a package provides is looked at up to this number.
const PROVIDED_MAX: usize = 64;

/// The kinds of fields that make a package required.
const REQUIRING: [By; 3] = [By::Depends, By::MakeDepends, By::CheckDepends];

impl Snapshot {
    /// Answers `query`, which may have what upstream does not have, with at most `results_max` packages. `is_over` tells whether the search
    /// has cost more than it may; it is asked now and then.
    pub fn answer_within(
        &self,
        query: &Query,
        results_max: usize,
        is_over: &dyn Fn() -> bool,
    ) -> Answer {
        let is_of_records =
            matches!(query.kind, Kind::Info | Kind::Search | Kind::MaintainerSearch);
        let Some(options) = query.options.as_deref().filter(|_| is_of_records) else {
            return self.answer_plainly(query, results_max);
        };
        match answer(self, query, options, results_max, is_over) {
            Ok((json, etag)) => {
                let outcome = Outcome::Answered(query.asked);
                Answer::finish_tagged(json, etag, JSON, query.callback.as_deref(), outcome)
            }
            Err(error) => unanswered(query, error),
        }
    }
}

/// The JSON of an answer with its tag, or why there is none. `is_over` tells whether the search has cost more than it may.
fn answer(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    results_max: usize,
    is_over: &dyn Fn() -> bool,
) -> Result<(Bytes, Etag), QueryError> {
    let found = found(snapshot, query, options, is_over)?;
    let total = found.len();
    if !options.is_paged() && total > results_max {
        return Err(QueryError::TooMany);
    }
    let limit = options.limit.unwrap_or(LIMIT_MAX).min(results_max);
    let docs = part(snapshot, query, options, found, limit);
    render(snapshot, query, options, total, &docs)
}

/// All packages that the question finds: those of `info` in the order of the request, others in name order.
fn found(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<DocId>, QueryError> {
    if query.kind == Kind::Info {
        return Ok(match snapshot.layers() {
            Ok(segment) => info(segment, query, usize::MAX),
            Err(layers) => info(&layers, query, usize::MAX),
        });
    }
    let whole;
    let pattern = match &query.pattern {
        Some(pattern) => Some(&**pattern),
        // Keywords are equal to what is looked for, or not.
        None if options.with_keywords => {
            let arg = query.single().map_or("", |arg| arg.spaced.as_ref().unwrap_or(&arg.literal));
            whole = Pattern::whole(arg);
            Some(&whole)
        }
        None => None,
    };
    match pattern {
        None => Ok(match snapshot.layers() {
            Ok(segment) => search(segment, query, usize::MAX),
            Err(layers) => search(&layers, query, usize::MAX),
        }),
        Some(Pattern::Words { wanted, unwanted }) => {
            let unwanted: Vec<(&str, Finder<'_>)> =
                unwanted.iter().map(|word| (word.as_str(), Finder::new(word))).collect();
            Ok(snapshot.found_in_all(|segment, limit| {
                let mut docs = match options.with_keywords {
                    false => segment.find_words(query.by, Mode::Contains, wanted, limit),
                    true => segment.find_words_or_keywords(query.by, wanted),
                };
                docs.retain(|&doc| {
                    !unwanted.iter().any(|(word, finder)| {
                        segment.has_text(query.by, doc, finder)
                            || options.with_keywords && segment.has_keyword(doc, word)
                    })
                });
                docs
            }))
        }
        Some(Pattern::Regex(regex)) => {
            let is_too_much = Cell::new(false);
            let docs = snapshot.found_in_all(|segment, limit| {
                let mut docs = Vec::new();
                for doc in (0..segment.package_count()).map(DocId) {
                    if doc.0.is_multiple_of(LOOK_EVERY) && is_over() {
                        is_too_much.set(true);
                    }
                    if is_too_much.get() || docs.len() == limit {
                        break;
                    }
                    if regex.is_match(segment.names().column().text(doc))
                        || query.by == By::NameDesc
                            && regex.is_match(segment.descriptions().column().text(doc))
                    {
                        docs.push(doc);
                    }
                }
                docs
            });
            if is_too_much.get() { Err(QueryError::TooCostly) } else { Ok(docs) }
        }
    }
}

/// The part of the packages that is asked for, in the order that is asked for.
fn part(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    mut found: Vec<DocId>,
    limit: usize,
) -> Vec<DocId> {
    let Options { sort, is_descending, offset, .. } = *options;
    let part = |order| Part { order, is_descending, offset, limit };
    if query.kind == Kind::Info && sort.is_some() && query.by == By::Name {
        found.sort_by_cached_key(|&doc| snapshot.folded_name(doc).to_vec());
    }
    match sort {
        None => found.into_iter().skip(offset).take(limit).collect(),
        Some(Sort::By(order)) => snapshot.sorted(found, part(order)).collect(),
        Some(Sort::Relevance) => {
            let fit = Fit::of(query);
            // The best fit is the greatest.
            found.sort_by_cached_key(|&doc| {
                let popularity = snapshot.key(doc).rank(Order::Popularity);
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

/// How well names fit a question.
struct Fit<'a> {
    /// The words of the argument, put together as in a name.
    name: String,
    pattern: Option<&'a Pattern>,
}

impl<'a> Fit<'a> {
    fn of(query: &'a Query) -> Fit<'a> {
        let arg = query.single().map_or("", |arg| arg.literal.as_str());
        let words: Vec<&str> = arg.split([' ', '+', '"']).filter(|word| !word.is_empty()).collect();
        Fit { name: fold(&words.join("-")), pattern: query.pattern.as_deref() }
    }

    fn rank(&self, name: &[u8]) -> u8 {
        let wanted = self.name.as_bytes();
        if name == wanted {
            3
        } else if name.starts_with(wanted) {
            2
        } else {
            let has = match self.pattern {
                Some(pattern) => pattern.is_in(name),
                None => Finder::new(wanted).find(name).is_some(),
            };
            u8::from(has)
        }
    }
}

impl Segment {
    /// The packages that have every word in a text, or as a keyword.
    fn find_words_or_keywords(&self, by: By, needles: &Needles) -> Vec<DocId> {
        let mut found: Option<Vec<DocId>> = None;
        for word in needles.words() {
            let mut docs = self.find_text(by, Mode::Contains, word, usize::MAX);
            docs.extend(self.terms().documents(By::Keywords as u8, word.as_bytes(), usize::MAX));
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

    fn has_keyword(&self, doc: DocId, word: &str) -> bool {
        let keywords = self.record(doc).value(Field::Keywords);
        let keywords: Vec<String> =
            keywords.and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
        keywords.iter().any(|keyword| folded_bytes(keyword) == word.as_bytes())
    }
}

fn render(
    snapshot: &Snapshot,
    query: &Query,
    options: &Options,
    total: usize,
    docs: &[DocId],
) -> Result<(Bytes, Etag), QueryError> {
    let (type_, shape, version) = match (query.kind, query.version) {
        (Kind::Info, Version::V5) => ("multiinfo", Shape::Info, 5),
        (Kind::Info, Version::V6) => ("multiinfo", Shape::Version6, 6),
        (kind, Version::V5) => (kind.name(), Shape::Search, 5),
        (kind, Version::V6) => (kind.name(), Shape::Version6, 6),
    };
    let mut sheet = Sheet::with_capacity(128 + docs.len() * 512);
    sheet.push(format!("{{\"resultcount\":{},\"results\":[", docs.len()).as_bytes());
    let mut names_left = NAMES_MAX;
    let mut record = Vec::new();
    for &doc in docs {
        match options.fields {
            None => snapshot.record(doc).render(shape, &mut sheet),
            Some(fields) => {
                record.clear();
                write_record(snapshot, doc, fields, &mut names_left, &mut record)?;
                sheet.push(&record);
            }
        }
        sheet.push(b",");
    }
    if !docs.is_empty() {
        sheet.pop();
    }
    let end = format!("],\"total\":{total},\"type\":\"{type_}\",\"version\":{version}}}");
    sheet.push(end.as_bytes());
    let json = sheet.finish();
    let etag = Etag::of(&json);
    Ok((json, etag))
}

/// Writes the chosen fields of a package, in ascending order of their keys.
fn write_record(
    snapshot: &Snapshot,
    doc: DocId,
    fields: Fields,
    names_left: &mut usize,
    out: &mut Vec<u8>,
) -> Result<(), QueryError> {
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    if fields.are_all {
        let mut sheet = Sheet::with_capacity(1024);
        snapshot.record(doc).render(Shape::Info, &mut sheet);
        members.extend(members_of(sheet.as_bytes()));
    } else {
        let record = snapshot.record(doc);
        for field in Field::ALL.into_iter().filter(|field| fields.has(*field)) {
            members.push((field.name().to_owned(), record.shown(field)));
        }
    }
    let mut add = |key: &str, kinds: &[By]| -> Result<(), QueryError> {
        let names = names_of(snapshot, doc, kinds);
        *names_left = names_left.checked_sub(names.len()).ok_or(QueryError::TooCostly)?;
        let mut list = vec![b'['];
        for (at, &other) in names.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            list.extend_from_slice(snapshot.record(other).name());
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
    // Each is written with a comma before it, as those after the first one are.
    let mut rest = [b",", object.get(1..object.len() - 1).unwrap_or_default()].concat();
    let mut members = Vec::new();
    while let Some((key, bytes)) = first_member(&rest) {
        let colon = 1 + serde_json::to_string(&key).map_or(0, |key| key.len());
        members.push((key, rest[colon + 1..bytes].to_vec()));
        rest.drain(..bytes);
    }
    members
}

/// The packages that name this one, or something that it provides, in one of these fields; by name.
fn names_of(snapshot: &Snapshot, doc: DocId, kinds: &[By]) -> Vec<DocId> {
    let record = snapshot.record(doc);
    let text = |json: &[u8]| serde_json::from_slice::<String>(json).unwrap_or_default();
    let provided: Vec<String> = record
        .value(Field::Provides)
        .and_then(|json| serde_json::from_slice(json).ok())
        .unwrap_or_default();
    let mut names = vec![text(record.name())];
    names.extend(provided.into_iter().take(PROVIDED_MAX));
    let values: Vec<(By, &str)> = names
        .iter()
        .map(|name| name.split(['<', '=', '>']).next().unwrap_or_default())
        .filter(|name| !name.is_empty())
        .flat_map(|name| kinds.iter().map(move |&by| (by, name)))
        .collect();
    let mut docs = snapshot.wanted(&Wanted::Values(&values));
    docs.retain(|&other| other != doc);
    docs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{self, DumpLimits};
    use crate::params::{Body, Params, PathParams};

    const DUMP: &str = r#"[
{"ID":1,"Name":"pear","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a juicy fruit","URL":null,"NumVotes":3,"Popularity":0.5,"OutOfDate":null,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":10,"LastModified":40,"URLPath":"/x","Depends":["tree>=2","soil"],"Keywords":["sweet"],"FlaggedMalicious":true},
{"ID":2,"Name":"pear-git","PackageBaseID":1,"PackageBase":"pear","Version":"1-1","Description":"a fruit, fresh","URL":null,"NumVotes":3,"Popularity":1.5,"OutOfDate":99,"Maintainer":"ann","Submitter":"bob","FirstSubmitted":20,"LastModified":30,"URLPath":"/x","Provides":["pear=1","fruit"],"Depends":["tree"]},
{"ID":3,"Name":"bigpear","PackageBaseID":3,"PackageBase":"bigpear","Version":"2-1","Description":"huge","URL":null,"NumVotes":9,"Popularity":9.25,"OutOfDate":null,"Maintainer":null,"Submitter":"bob","FirstSubmitted":30,"LastModified":20,"URLPath":"/x","MakeDepends":["pear-git"],"OptDepends":["fruit: to look like one"]},
{"ID":4,"Name":"apple","PackageBaseID":4,"PackageBase":"apple","Version":"2-1","Description":"no pear","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":"ann","Submitter":"ann","FirstSubmitted":40,"LastModified":10,"URLPath":"/x","Keywords":["fruit"],"CheckDepends":["fruit"]}
]"#;

    fn sample() -> Snapshot {
        dump::read(DUMP.as_bytes(), &DumpLimits::default()).expect("a dump")
    }

    fn ask(query: &str) -> serde_json::Value {
        let params = Params::from_query(PathParams::default(), Some(&format!("v=5&{query}")));
        assert!(params.are_refined(), "{query}");
        let answer = Answer::to_refined(params, &sample(), true, 5000, &|| false);
        serde_json::from_slice(&answer.reply.body).expect("JSON")
    }

    /// Expects these names and this total, or this error.
    #[track_caller]
    fn check(query: &str, expected: &str) {
        let answer = ask(query);
        let found = match answer["error"].as_str() {
            Some(error) => error.to_owned(),
            None => {
                let results = answer["results"].as_array().expect("results").iter();
                let names: Vec<&str> = results.filter_map(|it| it["Name"].as_str()).collect();
                assert_eq!(answer["resultcount"], names.len(), "{query}");
                format!("{} of {}", names.join(" "), answer["total"])
            }
        };
        assert_eq!(found, expected, "{query}");
    }

    #[test]
    fn sorted_and_in_parts() {
        check("type=search&arg=pear&sort=name", "apple bigpear pear pear-git of 4");
        check("type=search&arg=pear&sort=name&order=desc", "pear-git pear bigpear apple of 4");
        check("type=search&arg=pear&sort=votes", "bigpear pear pear-git apple of 4");
        check("type=search&arg=pear&sort=votes&order=asc", "apple pear pear-git bigpear of 4");
        check("type=search&arg=pear&sort=popularity&limit=2", "bigpear pear-git of 4");
        check("type=search&arg=pear&sort=popularity&limit=2&offset=1", "pear-git pear of 4");
        check("type=search&arg=pear&sort=modified", "pear pear-git bigpear apple of 4");
        check("type=search&arg=pear&sort=submitted", "apple bigpear pear-git pear of 4");
        check("type=search&arg=pear&sort=relevance", "pear pear-git bigpear apple of 4");
        check("type=search&arg=pear&sort=relevance&order=asc", "apple bigpear pear-git pear of 4");
        check("type=search&arg=pear&limit=0", " of 4");
        check("type=search&arg=pear&offset=9", " of 4");
        check("type=search&arg=tree&by=depends&sort=popularity", "pear-git pear of 2");
        check("type=msearch&arg=ann&sort=votes&limit=1", "pear of 3");
        check("type=info&arg[]=pear&arg[]=apple&arg[]=pear&limit=5", "pear apple of 2");
        check("type=info&arg[]=pear&arg[]=apple&sort=name", "apple pear of 2");
        check("type=search&arg=pear&by=pkgbase&limit=5", "pear pear-git of 2");
        check(
            "type=search&arg=xx&sort=age",
            "`sort` is `age`: expected one of name, votes, popularity, modified, submitted, relevance",
        );
        check("type=search&arg=x&sort=name", "Query arg too small.");
    }

    #[test]
    fn more_than_an_answer_may_have_is_avoided_with_a_limit() {
        let ask = |query: &str| {
            let params = Params::from_query(PathParams::default(), Some(query));
            Answer::to_refined(params, &sample(), false, 2, &|| false).reply.body
        };
        let text = |query: &str| String::from_utf8(ask(query).to_vec()).expect("text");
        let all = "v=5&type=search&arg=pear&sort=name";
        assert!(text(all).contains("Too many package results."));
        let some = text(&format!("{all}&limit=5000"));
        assert!(some.starts_with("{\"resultcount\":2,") && some.contains("\"total\":4,"), "{some}");
    }

    #[test]
    fn words_and_regular_expressions() {
        check("type=search&mode=words&arg=fruit%20juicy", "pear of 1");
        check("type=search&mode=words&arg=fruit+-fresh", "pear of 1");
        check("type=search&mode=words&arg=%22a%20fruit%22", "pear-git of 1");
        check("type=search&mode=words&arg=fruit&keywords=1", "apple pear pear-git of 3");
        check("type=search&mode=words&arg=fruit%20pear&keywords=1", "apple pear pear-git of 3");
        check("type=search&mode=words&arg=pear%20-sweet%20-huge&keywords=1", "apple pear-git of 2");
        check("type=search&arg=sweet&keywords=1", "pear of 1");
        check("type=search&arg=sweet&keywords=0", " of 0");
        check("type=search&mode=words&by=name&arg=pear%20-git", "bigpear pear of 2");
        check("type=search&mode=regex&arg=^pear", "pear pear-git of 2");
        check("type=search&mode=regex&by=name&arg=(git|e)$", "apple pear-git of 2");
        check("type=search&mode=regex&arg=FRUIT$&sort=relevance", "pear of 1");
        check("type=search&mode=regex&arg=(x", "`(x` is not a regular expression: unclosed group");
        check("type=search&mode=words&by=depends&arg=tree", "pear pear-git of 2");
        check(
            "type=search&mode=regex&arg=xx&keywords=1",
            "`keywords` is `1`, and this search is by `name-desc` for a pattern: expected `name-desc`, and no regular expression",
        );
        check(
            "type=search&by=name&arg=xx&keywords=1",
            "`keywords` is `1`, and this search is by `name`: expected `name-desc`, and no regular expression",
        );
    }

    #[test]
    fn a_regular_expression_that_costs_too_much_is_given_up() {
        let query = "v=5&type=search&mode=regex&arg=.*x";
        let params = Params::from_query(PathParams::default(), Some(query));
        let answer = Answer::to_refined(params, &sample(), false, 5000, &|| true);
        let text = String::from_utf8(answer.reply.body.to_vec()).expect("text");
        assert!(text.starts_with("{\"error\":\"The search takes too long"), "{text}");
    }

    #[test]
    fn chosen_fields() {
        let records = |query: &str| ask(query)["results"].to_string();
        assert_eq!(
            records(
                "type=info&arg=pear&fields=Version,Name,Depends,Groups,URL,PendingRequests,URLPath"
            ),
            r#"[{"Depends":["tree>=2","soil"],"Groups":[],"Name":"pear","PendingRequests":null,"URL":null,"URLPath":"/cgit/aur.git/snapshot/pear.tar.gz","Version":"1-1"}]"#
        );
        assert_eq!(
            records("type=search&by=name&arg=pear-git&fields=RequiredBy,OptionalFor,Name"),
            r#"[{"Name":"pear-git","OptionalFor":["bigpear"],"RequiredBy":["apple","bigpear"]}]"#
        );
        // Searches can show what info shows.
        let info = Params::from_query(PathParams::default(), Some("v=5&type=info&arg=pear"));
        let info = Answer::to(info, &sample(), false, 5000).reply.body;
        let info: serde_json::Value = serde_json::from_slice(&info).expect("JSON");
        assert_eq!(records("type=search&arg=juicy&fields=*"), info["results"].to_string());
        assert!(
            records("type=search&arg=juicy&fields=*,RequiredBy")
                .contains("\"RequiredBy\":[],\"Submitter\"")
        );
    }

    #[test]
    fn forms_and_json_may_ask_the_same() {
        let path = PathParams {
            type_: Some("search".to_owned()),
            version: Some("5".to_owned()),
            ..PathParams::default()
        };
        for body in [
            Body::Json(br#"{"arg":"pear","limit":1,"sort":"votes","fields":["Name","Version"]}"#),
            Body::Form(b"arg=pear&limit=1&sort=votes&fields=Name,Version"),
        ] {
            let params = Params::from_body(path.clone(), None, body);
            let answer = Answer::to(params, &sample(), false, 5000).reply.body;
            assert_eq!(
                String::from_utf8(answer.to_vec()).expect("text"),
                r#"{"resultcount":1,"results":[{"Name":"bigpear","Version":"2-1"}],"total":4,"type":"search","version":5}"#
            );
        }
    }
}
