//! Answers to the clients of faur, such as aura: `/packages?names=…&by=…`.
//!
//! names or words -> packages -> a bare array of records, in which an empty list is `[]` and not missing.

use std::collections::HashSet;

use postings::DocId;

use crate::browse::PackageSelection;
use crate::error::QueryError;
use crate::field::{By, Field, Mode};
use crate::fold::fold;
use crate::needles::{Needles, WORDS_MAX};
use crate::record::Record;
use crate::search_context::SearchContext;
use crate::snapshot::Snapshot;
use crate::sort_key::integer;

/// The meaning of `names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaurBy {
    /// Names of packages.
    Name,
    /// Names that the packages provide.
    Provides,
    /// Words, all of which the packages have in their name, description or keywords.
    Words,
}

/// Results of a search for words at most: those with the most votes.
const FOUND_MAX: usize = 50;

/// Shorter words are not looked for.
const WORD_CHARS_MIN: usize = 3;

/// Whether aura reads this member of a record: it refuses all others.
fn is_known_to_aura(field: &Field) -> bool {
    !matches!(
        field,
        Field::CoMaintainers
            | Field::PendingRequests
            | Field::Submitter
            | Field::Others
            | Field::Unshown
    )
}

impl Snapshot {
    /// The packages as JSON: by name in the order asked, others in name order or by votes, each once.
    ///
    /// # Errors
    /// [`QueryError::TooMany`] above `results_max`, [`QueryError::TooManyWords`], and [`QueryError::TooCostly`] as soon as
    /// `context` says so.
    pub fn faur(
        &self,
        names: &[String],
        by: FaurBy,
        results_max: usize,
        context: &SearchContext<'_>,
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
                self.wanted(&PackageSelection::Values(&values))
            }
            FaurBy::Words => self.with_words(names, context)?,
        };
        if docs.len() > results_max {
            return Err(QueryError::TooMany);
        }
        let mut out = vec![b'['];
        for (at, &doc) in docs.iter().enumerate() {
            if at % 64 == 0 && (context.is_over)() {
                return Err(QueryError::TooCostly);
            }
            let record = self.record(doc);
            out.extend_from_slice(if at == 0 { b"{" } else { b",{" });
            for (at, field) in Field::ALL.into_iter().filter(is_known_to_aura).enumerate() {
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
        context: &SearchContext<'_>,
    ) -> Result<Vec<DocId>, QueryError> {
        let wholes = distinct(words);
        let parts: Vec<HashSet<&str>> =
            wholes.iter().map(|whole| words_of(whole).collect()).collect();
        let folded: HashSet<&str> = parts.iter().flatten().copied().collect();
        if folded.len() > WORDS_MAX {
            return Err(QueryError::TooManyWords);
        }
        let is_long = |word: &&str| word.chars().count() >= WORD_CHARS_MIN;
        if parts.is_empty() || !parts.iter().all(|parts| parts.iter().any(is_long)) {
            return Ok(Vec::new());
        }
        let long = folded.iter().copied().filter(is_long);
        let needles = Needles::of(long, Mode::Contains, WORDS_MAX);
        let candidates = self.found_in_all(|segment, _| {
            let mut docs = segment.find_words_or_keywords(By::NameDesc, Mode::Contains, &needles);
            // A keyword may have signs, too.
            docs.extend(wholes.iter().flat_map(|whole| segment.with_keyword(whole.as_bytes())));
            docs.sort_unstable();
            docs.dedup();
            docs
        });
        let mut found = Vec::new();
        for (at, doc) in candidates.into_iter().enumerate() {
            if at % 64 == 0 && (context.is_over)() {
                return Err(QueryError::TooCostly);
            }
            let record = self.record(doc);
            let mut missing = folded.clone();
            for text in texts(record) {
                for word in words_of(&fold(&text)) {
                    missing.remove(word);
                }
            }
            if missing.is_empty() {
                let votes = integer(record, Field::NumVotes);
                found.push((std::cmp::Reverse(votes), doc));
            }
        }
        // With equal votes, by name.
        found.sort_by_key(|(votes, _)| *votes);
        found.truncate(FOUND_MAX);
        Ok(found.into_iter().map(|(_, doc)| doc).collect())
    }
}

/// The words, folded and without duplicates: words that differ only in case have one list of keywords.
fn distinct(words: &[String]) -> Vec<String> {
    let mut wholes: Vec<String> = words.iter().map(|word| fold(word)).collect();
    wholes.sort_unstable();
    wholes.dedup();
    wholes
}

/// The words of a folded text.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The texts in which words are looked for.
fn texts(record: Record<'_>) -> Vec<String> {
    let text = |field| serde_json::from_slice::<String>(record.value(field)?).ok();
    let keywords = record
        .value(Field::Keywords)
        .and_then(|json| serde_json::from_slice::<Vec<String>>(json).ok());
    let texts = [Field::Name, Field::Description].into_iter().filter_map(text);
    texts.chain(keywords.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ_in_case_alone_have_one_list() {
        let words = ["tree", "c++", "Tree", "TREE", "c"].map(str::to_owned);
        assert_eq!(distinct(&words), ["C", "C++", "TREE"]);
    }
}
