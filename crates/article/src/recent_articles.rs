//! [`RecentArticles`]: the articles that changed last, the newest first. It is a bounded number, kept as articles change, so that a
//! page can list them without a look at all articles.

use std::cmp::Reverse;

use ::record::Serial;
use imbl::OrdSet;

use crate::ArticleName;

/// Articles that are remembered. If some of them are deleted, older ones do not take their place.
const COUNT_MAX: usize = 1_000;

/// Names of articles that are not deleted, by the commits of their latest revisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentArticles(OrdSet<(Reverse<Serial>, ArticleName)>);

impl RecentArticles {
    /// Notes the commit of an article's latest revision, before and after a change; `None` while it has no content.
    pub(crate) fn change(
        &mut self,
        name: &ArticleName,
        before: Option<Serial>,
        after: Option<Serial>,
    ) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(Reverse(before), name.clone()));
        }
        if let Some(after) = after {
            self.0.insert((Reverse(after), name.clone()));
        }
        if self.0.len() > COUNT_MAX
            && let Some(oldest) = self.0.get_max().cloned()
        {
            self.0.remove(&oldest);
        }
    }

    /// The names, the one that changed last first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ArticleName> {
        self.0.iter().map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_comes_first_and_the_oldest_is_forgotten() {
        let name = |number: u64| ArticleName::parse(&format!("a{number}")).expect("a name");
        let mut recent = RecentArticles::default();
        let most = COUNT_MAX as u64;
        for number in 1..=most + 1 {
            recent.change(&name(number), None, Some(Serial(number)));
        }
        assert_eq!(recent.names().count(), COUNT_MAX);
        assert_eq!(recent.names().last(), Some(&name(2)));
        recent.change(&name(5), Some(Serial(5)), Some(Serial(most + 2)));
        recent.change(&name(most + 1), Some(Serial(most + 1)), None);
        let first: Vec<_> = recent.names().take(2).cloned().collect();
        assert_eq!(first, [name(5), name(most)]);
        assert_eq!(recent.names().count(), COUNT_MAX - 1);
    }
}
