//! [`Fit`]: how well the names of packages fit a search.

use memchr::memmem::Finder;
use regex::bytes::Regex;

use crate::fold::fold;
use crate::needles::{Needles, WORDS_MAX};
use crate::pattern::Pattern;
use crate::query::{Query, Version};

/// How well names fit a question.
pub(crate) struct Fit<'a> {
    /// The argument as a name, in each of its readings.
    names: Vec<String>,
    within: Within<'a>,
}

/// What every fitting name contains at least.
enum Within<'a> {
    /// One of the readings of the argument.
    Any(Vec<Finder<'static>>),
    /// All of the words.
    All(Vec<Finder<'static>>),
    /// A match.
    Match(&'a Regex),
}

impl<'a> Fit<'a> {
    pub(crate) fn of(query: &'a Query) -> Fit<'a> {
        let arg = query.single();
        let literal = arg.map_or("", |arg| arg.literal.as_str());
        let finder = |word: &str| Finder::new(word).into_owned();
        match query.pattern() {
            Some(Pattern::Words { wanted, name, .. }) => Fit {
                names: vec![name.clone()],
                within: Within::All(wanted.words().map(finder).collect()),
            },
            Some(Pattern::Regex(regex)) => {
                Fit { names: vec![fold(literal)], within: Within::Match(regex) }
            }
            None => {
                let spaced = arg.and_then(|arg| arg.spaced.as_deref());
                let readings = spaced.into_iter().chain([literal]);
                let names: Vec<String> = readings.map(|text| fold(&as_name(text))).collect();
                let within = match query.version {
                    Version::V5 => Within::Any(names.iter().map(|name| finder(name)).collect()),
                    Version::V6 => {
                        let needles = Needles::of(literal.split(' '), query.mode, WORDS_MAX);
                        Within::All(needles.words().map(finder).collect())
                    }
                };
                Fit { names, within }
            }
        }
    }

    /// The rank of a folded name: the best fit has the greatest.
    pub(crate) fn rank(&self, name: &[u8]) -> u8 {
        let is_in = |finder: &Finder<'_>| finder.find(name).is_some();
        if self.names.iter().any(|wanted| name == wanted.as_bytes()) {
            3
        } else if self.names.iter().any(|wanted| name.starts_with(wanted.as_bytes())) {
            2
        } else {
            u8::from(match &self.within {
                Within::Any(finders) => finders.iter().any(is_in),
                Within::All(finders) => finders.iter().all(is_in),
                Within::Match(regex) => regex.is_match(name),
            })
        }
    }
}

/// The words of a text, put together as in a name.
fn as_name(text: &str) -> String {
    text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Params, PathParams};

    #[test]
    fn a_word_that_is_repeated_is_looked_for_once() {
        let question = format!("v=6&type=search&sort=relevance&arg={}", "pear+Big+".repeat(1000));
        let params = Params::from_query(PathParams::default(), Some(&question));
        let query = Query::parse(params, true).expect("a question");
        let fit = Fit::of(&query);
        let Within::All(finders) = &fit.within else { panic!("words") };
        assert_eq!(finders.len(), 2);
        assert_eq!((fit.rank(b"A-BIG-PEAR"), fit.rank(b"A-BIG-PLUM")), (1, 0));
    }
}
