//! [`Example`]: a question about packages that finds some, for people to try.

use aur::{Answer, Params, PathParams, Snapshot};
use serde::Deserialize;

/// Packages that the search in the form may find: few enough to read.
const FOUND_MAX: usize = 200;

/// Searches that mean something on every catalogue of packages; the first that finds some is shown.
const WORDS: [&str; 6] = ["terminal", "editor", "browser", "music", "font", "python"];

/// A question about packages to try, which finds some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// What to search for; empty if there is nothing to find.
    pub word: String,
    /// A package.
    pub package: String,
}

#[derive(Deserialize)]
struct ExampleAnswer {
    results: Vec<ExamplePackage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExamplePackage {
    name: String,
    num_votes: i64,
}

impl Example {
    /// An example for this catalogue. It takes a few searches, milliseconds at most.
    pub fn of(snapshot: &Snapshot, results_max: usize) -> Example {
        let Some(middle) = snapshot.middle_name() else { return Example::default() };
        let words = WORDS.iter().copied().chain([middle.as_str()]);
        words
            .filter_map(|word| Example::searched(snapshot, word, results_max))
            .next()
            .unwrap_or(Example { word: String::new(), package: middle.clone() })
    }

    /// Searches for `word` and takes the package with most votes.
    fn searched(snapshot: &Snapshot, word: &str, results_max: usize) -> Option<Example> {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("v", "5"), ("type", "search"), ("arg", word)])
            .finish();
        let params = Params::from_query(PathParams::default(), Some(&query));
        let answer = Answer::to(params, snapshot, false, results_max.min(FOUND_MAX));
        let found: ExampleAnswer = serde_json::from_slice(&answer.reply.body).ok()?;
        let best = found.results.into_iter().max_by_key(|package| package.num_votes)?;
        Some(Example { word: word.to_owned(), package: best.name })
    }
}
