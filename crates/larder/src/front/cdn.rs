//! What shared caches in front of this server are told of an answer, if `cdn.seconds` says how long they may keep it.
//!
//! path -> [`Tags`], before the answer is made -> `CDN-Cache-Control` (RFC 9213) and `Surrogate-Control` on what is
//! [`kept`](Tags::mark), and on everything that has a tag `Surrogate-Key`, `Cache-Tag` and `Cache-Groups` (RFC 9875).
//! Webhooks with the shape of a cache ([`crate::published::changes::purges`]) purge by these tags.
//!
//! Kept are pages and lists of installers and articles: the feed of changes says when they change. A stage with a mirror or a
//! policy among its bases changes by itself, so its pages keep what clients are told. Clients are told nothing else than before.

use account::UserName;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pypi::{ProjectName, ResolutionOrder, StageName};

use crate::app::App;
use crate::published::changes::tags::{
    ARTICLE_LISTS, ARTICLES, PYTHON, article, files, list, project, stage,
};

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");
const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
const CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");
const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
const X_DEVPI_AUTH: HeaderName = HeaderName::from_static("x-devpi-auth");

/// Parts of the path of an article that is kept, at most.
const PARTS_MAX: usize = 32;

/// The tags of an answer.
pub(crate) struct Tags {
    tags: Vec<String>,
    /// Whether the feed says when the answer changes.
    is_followed: bool,
    /// Whether the tag of lists is added to an answer for people.
    is_article: bool,
}

impl Tags {
    /// The tags of the answer to a request that no credentials make private; `None` if caches are not spoken to.
    pub(crate) fn of(app: &App, head: &Parts) -> Option<Box<Tags>> {
        if app.config.cdn.seconds.is_zero() || !matches!(head.method, Method::GET | Method::HEAD) {
            return None;
        }
        let has_credentials = [AUTHORIZATION, COOKIE, X_DEVPI_AUTH];
        if has_credentials.iter().any(|name| head.headers.contains_key(name)) {
            return None;
        }
        let path = head.uri.path();
        let tags = match path.strip_prefix("/article/") {
            Some(name) => Tags::of_article(name),
            None if path == "/articles" => {
                let tags = vec![ARTICLES.to_owned(), ARTICLE_LISTS.to_owned()];
                Tags { tags, is_followed: true, is_article: false }
            }
            None => Tags::of_stage(app, path)?,
        };
        Some(Box::new(tags))
    }

    /// The name may be followed by a version, or by what else there is of an article. Only a whole name is purged, so tags that
    /// are not the name of an article do no harm.
    fn of_article(rest: &str) -> Tags {
        let ends = rest.match_indices('/').map(|(at, _)| at).chain([rest.len()]);
        let name = |end: usize| {
            let raw = percent_encoding::percent_decode_str(&rest[..end]).decode_utf8_lossy();
            article(&raw)
        };
        // Of a path with more parts, which hardly any article has, the work would grow with their square.
        let is_followed = rest.matches('/').count() < PARTS_MAX;
        let ends = ends.take(if is_followed { PARTS_MAX } else { 0 });
        let tags = [ARTICLES.to_owned()].into_iter().chain(ends.map(name)).collect();
        Tags { tags, is_followed, is_article: true }
    }

    fn of_stage(app: &App, path: &str) -> Option<Tags> {
        let decoded = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
        let mut parts = decoded.trim_start_matches('/').trim_end_matches('/').split('/');
        let user: UserName = parts.next()?.parse().ok()?;
        let name: StageName = format!("{user}/{}", parts.next()?).parse().ok()?;
        let mut tags = vec![PYTHON.to_owned(), stage(name.as_str())];
        let is_installers = match parts.next() {
            Some("+simple" | "simple") => {
                tags.push(match parts.next().map(ProjectName::normalize) {
                    None => list(name.as_str()),
                    Some(Ok(found)) => project(name.as_str(), found.as_str()),
                    Some(Err(_)) => return None,
                });
                true
            }
            Some("+f" | "+e") => {
                tags.push(files(name.as_str()));
                false
            }
            Some(first) => {
                let found =
                    ProjectName::normalize(if first == "pypi" { parts.next()? } else { first });
                tags.push(project(name.as_str(), found.ok()?.as_str()));
                false
            }
            None => false,
        };
        let stored = app.live_store.snapshot()?;
        let order = ResolutionOrder::of(&stored.index, name.as_str())?;
        let is_followed = is_installers
            && !order.has_policy()
            && order.stages().iter().all(|stage| !stage.config().is_mirror());
        Some(Tags { tags, is_followed, is_article: false })
    }

    /// Adds the headers to an answer that everybody may keep.
    pub(crate) fn mark(mut self, app: &App, status: StatusCode, headers: &mut HeaderMap) {
        let caching = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
        let is_private =
            caching.is_some_and(|it| it.contains("private") || it.contains("no-store"));
        if is_private || headers.contains_key(SET_COOKIE) {
            return;
        }
        if !matches!(
            status,
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED
        ) {
            // Many caches keep a 404 that says nothing for minutes.
            headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            return;
        }
        let is_page = headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/html"));
        if self.is_article && is_page {
            self.tags.push(ARTICLE_LISTS.to_owned());
        }
        let is_immutable = caching.is_some_and(|it| it.contains("immutable"));
        if self.is_followed && !is_immutable {
            let config = &app.config.cdn;
            let policy = format!(
                "max-age={}, stale-while-revalidate={}, stale-if-error={}",
                config.seconds.as_secs(),
                config.stale.as_secs(),
                config.stale_if_error.as_secs()
            );
            if let Ok(policy) = HeaderValue::from_str(&policy) {
                headers.insert(CDN_CACHE_CONTROL, policy.clone());
                headers.insert(SURROGATE_CONTROL, policy);
            }
        }
        let groups = self.tags.iter().map(|tag| format!("\"{tag}\"")).collect::<Vec<_>>();
        for (name, text) in [
            (SURROGATE_KEY, self.tags.join(" ")),
            (CACHE_TAG, self.tags.join(",")),
            (CACHE_GROUPS, groups.join(", ")),
        ] {
            // A tag has no other characters than those of a path.
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_many_parts_costs_no_more() {
        let usual = Tags::of_article("guide/first%20steps/3");
        let expected = ["articles", "article:guide", "article:guide/first%20steps"];
        assert_eq!(usual.tags[..3], expected);
        assert!(usual.is_followed && usual.tags.len() == 4);
        let long = Tags::of_article(&"a/".repeat(4_000));
        assert_eq!((long.is_followed, long.tags.len()), (false, 1));
    }
}
