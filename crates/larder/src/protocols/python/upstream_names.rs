//! [`ListedNames`]: the names that the upstreams of mirrors list, for searches.
//!
//! The lists are those that the server has: no search asks an upstream.

use std::sync::Arc;

use account::{Portion, Principal};
use jiff::Timestamp;
use pypi::policy::NameRules;
use pypi::upstream::UpstreamNames;
use pypi::{ResolutionOrder, Stage};
use state::stored::Stored;

use crate::app::App;

/// Mirrors whose lists are searched, in the order of their names: a list may have 700,000 names.
const MIRRORS_MAX: usize = 10;

/// A mirror, and what its upstream lists.
pub(crate) struct ListedNames {
    mirror: Arc<Stage>,
    names: Arc<UpstreamNames>,
}

/// The lists of the mirrors that the sender may read.
pub(crate) async fn listed_names(
    app: &App,
    stored: &Stored,
    principal: &Principal,
) -> Vec<ListedNames> {
    let stages = stored.index.stages().filter(|stage| stage.may_read(principal, Portion::Unnamed));
    let mirrors = stages.filter_map(|stage| Some((stage, app.python.mirrors.of(stage)?)));
    let mut lists = Vec::new();
    for (stage, mirror) in mirrors.take(MIRRORS_MAX) {
        if let Some(names) = app.python.mirrors.list_here(&mirror).await {
            lists.push(ListedNames { mirror: stage.clone(), names });
        }
    }
    lists
}

impl ListedNames {
    /// The mirror.
    pub(crate) fn mirror(&self) -> &Arc<Stage> {
        &self.mirror
    }

    /// The names that begin with this text, ascending, without those that the mirror's policy refuses.
    pub(crate) fn beginning<'names>(
        &'names self,
        stored: &'names Stored,
        text: &'names str,
    ) -> impl Iterator<Item = &'names str> {
        let names = self.names.from(text).take_while(move |name| name.starts_with(text));
        self.given(stored, names)
    }

    /// The names with all of these words, likewise.
    pub(crate) fn with<'names>(
        &'names self,
        stored: &'names Stored,
        words: &'names [String],
    ) -> impl Iterator<Item = &'names str> {
        self.given(stored, self.names.with(words))
    }

    fn given<'names>(
        &'names self,
        stored: &'names Stored,
        names: impl Iterator<Item = &'names str>,
    ) -> impl Iterator<Item = &'names str> {
        let order = ResolutionOrder::of(&stored.index, self.mirror.name().as_str());
        let rules = order.map(|it| NameRules::of(&it, self.mirror.name(), Timestamp::now()));
        names.filter(move |name| rules.as_ref().is_some_and(|rules| !rules.refuse(name)))
    }
}
