//! What a shared cache has to drop when something has changed: the [tags] of its pages, and how caches are told.
//!
//! entries of a feed -> [`keys_of`] -> [`Cache::requests`], a few for many keys. A cache is a webhook of another shape: its task
//! has a position that is kept, delivers at least once and in order, and retries.

use std::collections::{BTreeSet, HashMap, HashSet};

use account::{Object, Principal, Scope};
use config::Config;
use pypi::StageName;
use record::ChangeKind;
use state::stored::Stored;

use super::tags;
use super::{Entry, FeedSurface, Subject};

/// A request to a cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PurgeRequest {
    pub(crate) method: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// A cache, by how it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Varnish with its module xkey: `PURGE` with the keys in a header.
    Varnish,
    /// Fastly's API: `{"surrogate_keys": […]}`.
    Fastly,
    /// Cloudflare's API: `{"tags": […]}`.
    Cloudflare,
    /// Any other: `{"keys": […]}`.
    Keys,
}

impl Cache {
    /// Keys in one request at most: what the API takes, or what fits into a header of Varnish by default.
    fn keys_max(self) -> usize {
        match self {
            Cache::Varnish => 16,
            Cache::Cloudflare => 30,
            Cache::Fastly | Cache::Keys => 256,
        }
    }

    /// The requests that drop everything with one of these keys. `is_soft`: it may be answered with once more while it is fetched
    /// again.
    pub(crate) fn requests(self, keys: &[String], is_soft: bool) -> Vec<PurgeRequest> {
        let json = |value: serde_json::Value| value.to_string().into_bytes();
        let request = |keys: &[String]| match self {
            Cache::Varnish => PurgeRequest {
                method: "PURGE",
                headers: vec![(
                    if is_soft { "xkey-softpurge" } else { "xkey-purge" },
                    keys.join(" "),
                )],
                body: Vec::new(),
            },
            Cache::Fastly => PurgeRequest {
                method: "POST",
                headers: is_soft
                    .then(|| ("fastly-soft-purge", "1".to_owned()))
                    .into_iter()
                    .collect(),
                body: json(serde_json::json!({"surrogate_keys": keys})),
            },
            Cache::Cloudflare => PurgeRequest {
                method: "POST",
                headers: Vec::new(),
                body: json(serde_json::json!({"tags": keys})),
            },
            Cache::Keys => PurgeRequest {
                method: "POST",
                headers: Vec::new(),
                body: json(serde_json::json!({"keys": keys, "soft": is_soft})),
            },
        };
        keys.chunks(self.keys_max()).map(request).collect()
    }
}

/// The key of everything that caches may have of a surface.
pub(crate) fn whole(surface: FeedSurface) -> &'static str {
    match surface {
        FeedSurface::Aur => tags::AUR,
        FeedSurface::Python => tags::PYTHON,
        FeedSurface::Articles => tags::ARTICLES,
    }
}

/// The keys of what these entries change, of those that everybody could read before or can now.
pub(crate) fn keys_of(
    entries: &[std::sync::Arc<Entry>],
    config: &Config,
    stored: &Stored,
) -> Vec<String> {
    let (mut keys, mut heirs) = (BTreeSet::new(), HashMap::new());
    let anonymous = Principal::Anonymous;
    for entry in entries {
        let is_public = match &entry.subject {
            // Also one that is a draft now: caches may have what it was before.
            Subject::Article(name) => {
                let object = Object::Article(name.as_str());
                config.article.acl_read.admits(&anonymous, Scope::ArticleRead, object)
            }
            _ => entry.for_reader(config, stored, &anonymous).is_some(),
        };
        if !is_public {
            continue;
        }
        match &entry.subject {
            Subject::Open => {
                keys.insert(tags::package(&entry.name));
                keys.insert(tags::AUR_LISTS.to_owned());
            }
            Subject::Article(name) => {
                keys.insert(tags::article(name.as_str()));
                keys.insert(tags::ARTICLE_LISTS.to_owned());
            }
            Subject::Stage(stage, project) => {
                if entry.kind == ChangeKind::Removed {
                    keys.insert(tags::files(stage.as_str()));
                }
                let heirs = heirs.entry(stage).or_insert_with(|| with_heirs(stage, stored));
                for heir in heirs.iter() {
                    match project {
                        Some(project) => {
                            keys.insert(tags::project(heir, project.as_str()));
                            keys.insert(tags::list(heir));
                        }
                        None => {
                            keys.insert(tags::stage(heir));
                        }
                    }
                }
            }
        }
    }
    keys.into_iter().collect()
}

/// The stage, and those that show what it has, by the names in their bases: it may be gone, or new.
fn with_heirs<'stored>(stage: &'stored StageName, stored: &'stored Stored) -> Vec<&'stored str> {
    let mut found = HashSet::from([stage.as_str()]);
    let mut order = vec![stage.as_str()];
    loop {
        let before = order.len();
        for heir in stored.index.stages() {
            let name = heir.name().as_str();
            let shows = heir.config().bases().iter().any(|base| found.contains(base.as_str()));
            if shows && found.insert(name) {
                order.push(name);
            }
        }
        if order.len() == before {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("article:{number}")).collect()
    }

    #[test]
    fn each_cache_is_told_in_its_own_words() {
        let two = keys(2);
        let one = |cache: Cache, is_soft| cache.requests(&two, is_soft).remove(0);
        let varnish = one(Cache::Varnish, false);
        assert_eq!((varnish.method, varnish.body.len()), ("PURGE", 0));
        assert_eq!(varnish.headers, [("xkey-purge", "article:0 article:1".to_owned())]);
        assert_eq!(one(Cache::Varnish, true).headers[0].0, "xkey-softpurge");
        let body = |request: PurgeRequest| String::from_utf8(request.body).expect("text");
        let expected = r#"{"surrogate_keys":["article:0","article:1"]}"#;
        assert_eq!(body(one(Cache::Fastly, false)), expected);
        assert_eq!(one(Cache::Fastly, true).headers, [("fastly-soft-purge", "1".to_owned())]);
        let expected = r#"{"tags":["article:0","article:1"]}"#;
        assert_eq!(body(one(Cache::Cloudflare, false)), expected);
        let expected = r#"{"keys":["article:0","article:1"],"soft":true}"#;
        assert_eq!(body(one(Cache::Keys, true)), expected);
    }

    #[test]
    fn many_keys_are_few_requests() {
        let count = |cache: Cache, count| cache.requests(&keys(count), false).len();
        assert_eq!(count(Cache::Varnish, 33), 3);
        assert_eq!(count(Cache::Cloudflare, 30), 1);
        assert_eq!(count(Cache::Fastly, 257), 2);
        assert_eq!(count(Cache::Keys, 0), 0);
    }
}
