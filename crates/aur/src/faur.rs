//! Answers to the clients of faur, such as aura: `/packages?names=…&by=…`.
//!
//! names or words -> packages -> a bare array of records, in which a list without entries is empty and not missing.

use std::collections::HashSet;

use postings::DocId;

use crate::browse::Wanted;
use crate::error::QueryError;
use crate::field::{By, Field, Mode};
use crate::fold::fold;
use crate::needles::{Needles, WORDS_MAX};
use crate::outside::Outside;
use crate::snapshot::Snapshot;
use crate::sort_key::integer;

/// What names stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaurBy {
    /// They are names of packages.
    Name,
    /// The packages that provide one of them.
    Provides,
    /// The packages that have all of them as words, in their name, description or keywords.
    Words,
}

/// Results of a search for words: those with the most votes.
const FOUND_MAX: usize = 50;

/// Shorter words are not looked for.
const WORD_CHARS_MIN: usize = 3;

/// The members of a record, all that aura reads and no others: it refuses what it does not know.
const FIELDS: [Field; 24] = [
    Field::CheckDepends,
    Field::Conflicts,
    Field::Depends,
    Field::Description,
    Field::FirstSubmitted,
    Field::Groups,
    Field::Id,
    Field::Keywords,
    Field::LastModified,
    Field::License,
    Field::Maintainer,
    Field::MakeDepends,
    Field::Name,
    Field::NumVotes,
    Field::OptDepends,
    Field::OutOfDate,
    Field::PackageBase,
    Field::PackageBaseId,
    Field::Popularity,
    Field::Provides,
    Field::Replaces,
    Field::Url,
    Field::UrlPath,
    Field::Version,
];

impl Snapshot {
    /// The packages as JSON: by name in the order asked, others in name order or by votes, each once.
    ///
    /// # Errors
    /// [`QueryError::TooMany`] above `results_max`, [`QueryError::TooManyWords`], and [`QueryError::TooCostly`] as soon as
    /// `outside` says so.
    pub fn faur(
        &self,
        names: &[String],
        by: FaurBy,
        results_max: usize,
        outside: &Outside<'_>,
    ) -> Result<Vec<u8>, QueryError> {
        let docs = match by {
            FaurBy::Name => {
                let mut seen = HashSet::new();
                let found = names.iter().filter_map(|name| self.find(name));
                found.filter(|doc| seen.insert(doc.0)).collect()
            }
            FaurBy::Provides => {
                let values: Vec<(By, &str)> =
                    names.iter().map(|name| (By::Provides, name.as_str())).collect();
                self.wanted(&Wanted::Values(&values))
            }
            FaurBy::Words => self.with_words(names, outside)?,
        };
        if docs.len() > results_max {
            return Err(QueryError::TooMany);
        }
        let mut out = vec![b'['];
        for (at, &doc) in docs.iter().enumerate() {
            if at % 64 == 0 && (outside.is_over)() {
                return Err(QueryError::TooCostly);
            }
            let record = self.record(doc);
            out.extend_from_slice(if at == 0 { b"{" } else { b",{" });
            for (at, field) in FIELDS.into_iter().enumerate() {
                out.extend_from_slice(&field.key().as_bytes()[usize::from(at == 0)..]);
                out.extend_from_slice(&record.shown(field));
            }
            out.push(b'}');
        }
        out.push(b']');
        Ok(out)
    }

    fn with_words(
        &self,
        words: &[String],
        outside: &Outside<'_>,
    ) -> Result<Vec<DocId>, QueryError> {
        let folded: HashSet<String> = words.iter().map(|word| fold(word)).collect();
        if folded.len() > WORDS_MAX {
            return Err(QueryError::TooManyWords);
        }
        if folded.is_empty() || folded.iter().any(|word| word.chars().count() < WORD_CHARS_MIN) {
            return Ok(Vec::new());
        }
        let needles = Needles::of(folded.iter().map(String::as_str), Mode::Contains, WORDS_MAX);
        let candidates = self.found_in_all(|segment, _| {
            segment.find_words_or_keywords(By::NameDesc, Mode::Contains, &needles)
        });
        let mut found = Vec::new();
        for (at, doc) in candidates.into_iter().enumerate() {
            if at % 64 == 0 && (outside.is_over)() {
                return Err(QueryError::TooCostly);
            }
            let record = self.record(doc);
            let texts = [Field::Name, Field::Description, Field::Keywords].map(|field| {
                // What JSON has between its texts is between words, too.
                let json = record.value(field).unwrap_or_default();
                match serde_json::from_slice::<String>(json) {
                    Ok(text) => fold(&text),
                    Err(_) => fold(&String::from_utf8_lossy(json)),
                }
            });
            let mut missing: HashSet<&str> = folded.iter().map(String::as_str).collect();
            for text in &texts {
                for word in text.split(|letter: char| !letter.is_alphanumeric()) {
                    missing.remove(word);
                }
            }
            if missing.is_empty() {
                let votes = integer(record, Field::NumVotes);
                found.push((std::cmp::Reverse(votes), doc));
            }
        }
        // Of as many votes, by name.
        found.sort_by_key(|(votes, _)| *votes);
        found.truncate(FOUND_MAX);
        Ok(found.into_iter().map(|(_, doc)| doc).collect())
    }
}
