//! [`ArticlePath`]: what follows `/article/` in a URL.

use crate::name::is_number;
use crate::{ArticleName, ArticleNameError, Revision, RevisionError};

/// An article, and one of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArticlePath {
    /// The article.
    pub name: ArticleName,
    /// The page.
    pub target: Target,
}

/// A page of an article.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `{name}`
    Latest,
    /// `{name}/{version}`
    Version(Revision),
    /// `{name}/history`
    History,
    /// `{name}/diff`
    Diff,
}

/// Why a path does not name an article.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The first part is not an article's name.
    #[error(transparent)]
    Name(#[from] ArticleNameError),
    /// The number in the last segment is not a version.
    #[error(transparent)]
    Version(#[from] RevisionError),
}

impl ArticlePath {
    /// Parses what follows `/article/`, percent-decoded once as a whole; an escaped slash counts as a slash.
    ///
    /// # Errors
    /// [`PathError`], depending on whether the name or the version is wrong.
    pub fn parse(rest: &str) -> Result<ArticlePath, PathError> {
        let (name, target) = match rest.rsplit_once('/') {
            Some((name, "history")) => (name, Target::History),
            Some((name, "diff")) => (name, Target::Diff),
            Some((name, number)) if is_number(number) => (name, Target::Version(number.parse()?)),
            _ => (rest, Target::Latest),
        };
        Ok(ArticlePath { name: ArticleName::parse(name)?, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rest: &str, expected: Option<(&str, Target)>) {
        let found = ArticlePath::parse(rest).ok();
        let found = found.as_ref().map(|path| (path.name.as_str(), path.target));
        assert_eq!(found, expected, "{rest}");
    }

    #[test]
    fn the_last_segment_tells_the_page() {
        check("a", Some(("a", Target::Latest)));
        check("a/b c/é", Some(("a/b c/é", Target::Latest)));
        check("a/b/0", Some(("a/b", Target::Version(Revision(0)))));
        check("2024/a/17", Some(("2024/a", Target::Version(Revision(17)))));
        check("a/history", Some(("a", Target::History)));
        check("history/a/diff", Some(("history/a", Target::Diff)));
        check("a/٣", Some(("a/٣", Target::Latest)));
    }

    #[test]
    fn pages_have_no_pages_of_their_own() {
        check("history", None);
        check("7", None);
        check("a/7/history", None);
        check("a/history/7", None);
        check("a/07", None);
        check("a/4294967296", None);
        check("a/", None);
        check("/7", None);
        check("", None);
        check("a/../7", None);
        check("a%2f7", None);
    }

    proptest::proptest! {
        #[test]
        fn any_path_is_answered(rest in crate::name::tests::hostile_text()) {
            if let Ok(ArticlePath { name, target }) = ArticlePath::parse(&rest) {
                let page = match target {
                    Target::Latest => String::new(),
                    Target::Version(revision) => format!("/{revision}"),
                    Target::History => "/history".to_owned(),
                    Target::Diff => "/diff".to_owned(),
                };
                let path = ArticlePath::parse(&format!("{name}{page}"));
                proptest::prop_assert_eq!(path, Ok(ArticlePath { name, target }));
            }
        }

        #[test]
        fn every_name_has_its_pages(text in "[a-z0-9./ é%-]{1,20}") {
            if let Ok(name) = ArticleName::parse(&text) {
                for (page, target) in [
                    ("", Target::Latest),
                    ("/history", Target::History),
                    ("/diff", Target::Diff),
                    ("/12", Target::Version(Revision(12))),
                ] {
                    let path = ArticlePath::parse(&format!("{name}{page}"));
                    proptest::prop_assert_eq!(path, Ok(ArticlePath { name: name.clone(), target }));
                }
            }
        }
    }
}
