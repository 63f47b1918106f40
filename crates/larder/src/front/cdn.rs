//! What shared caches in front of this server are told of an answer, if `cdn.seconds` says how long they may keep it.
//!
//! path -> [`Tags`], before the answer is made -> `CDN-Cache-Control` (RFC 9213) and `Surrogate-Control` on what is
//! [`kept`](Tags::mark), and on everything that has a tag `Surrogate-Key`, `Cache-Tag` and `Cache-Groups` (RFC 9875).
//! Webhooks with the shape of a cache ([`crate::published::changes::purges`]) purge by these tags.
//!
//! Kept are pages and lists of installers and articles, and answers about packages of the AUR: the feed of changes says when
//! they change. It does not say that a popularity has decayed, so the AUR's answers have a time of their own. A stage with a
//! mirror or a policy among its bases changes by itself, so its pages keep what clients are told. Clients are told nothing else
//! than before.

use std::time::Duration;

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pypi::ResolutionOrder;

use super::router::route;
use crate::app::App;
use crate::front::request::Parts;
use crate::published::changes::tags::{
    ARTICLE_LISTS, ARTICLES, AUR, AUR_LISTS, PYTHON, article, files, list, package, project, stage,
};
use crate::routes::{Endpoint, Route, Surface, Tree};

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");
const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
const CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");
const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
const X_DEVPI_AUTH: HeaderName = HeaderName::from_static("x-devpi-auth");

/// Parts of the path of an article that is kept, at most.
const PARTS_MAX: usize = 32;

/// Whether names of packages have this character. Those with others are answered as those that the database takes for equal.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"@._+-".contains(&byte)
}

/// The tags of an answer.
pub(crate) struct Tags {
    tags: Vec<String>,
    /// How long caches may keep the answer, as the feed says when it changes; zero: as long as clients.
    kept: Duration,
    /// Whether the tag of lists is added to an answer for people.
    is_article: bool,
}

impl Tags {
    /// The tags of the answer to a request that no credentials make private; `None` if caches are not spoken to.
    pub(crate) fn of(app: &App, head: &Parts) -> Option<Box<Tags>> {
        let seconds = app.config.cdn.seconds;
        if seconds.is_zero() { None } else { Tags::of_read(app, head, seconds) }
    }

    fn of_read(app: &App, head: &Parts, seconds: Duration) -> Option<Box<Tags>> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return None;
        }
        let has_credentials = [AUTHORIZATION, COOKIE, X_DEVPI_AUTH];
        if has_credentials.iter().any(|name| head.headers.contains_key(name)) {
            return None;
        }
        let path = head.uri.path();
        let tags = match route(app, path) {
            Some(route) => match route.place.first() {
                Endpoint::ReadArticle => Tags::of_article(route.raw("{article}"), seconds),
                Endpoint::ListArticles => {
                    let tags = vec![ARTICLES.to_owned(), ARTICLE_LISTS.to_owned()];
                    Tags { tags, kept: seconds, is_article: false }
                }
                _ => {
                    let seconds = seconds.min(app.config.cdn.aur_seconds);
                    Tags::of_aur(&route, head.uri.query(), seconds)?
                }
            },
            None => Tags::of_stage(app, &Route::find(Tree::Python, path, None)?)?,
        };
        Some(Box::new(tags))
    }

    /// The name may be followed by a version, or by what else there is of an article. Only a whole name is purged, so tags that
    /// are not the name of an article do no harm.
    fn of_article(rest: &str, seconds: Duration) -> Tags {
        let ends = rest.match_indices('/').map(|(at, _)| at).chain([rest.len()]);
        let name = |end: usize| {
            let raw = percent_encoding::percent_decode_str(&rest[..end]).decode_utf8_lossy();
            article(&raw)
        };
        // Of a path with more parts, which hardly any article has, the work would grow with their square.
        let is_short = rest.matches('/').count() < PARTS_MAX;
        let ends = ends.take(if is_short { PARTS_MAX } else { 0 });
        let tags = [ARTICLES.to_owned()].into_iter().chain(ends.map(name)).collect();
        Tags { tags, kept: if is_short { seconds } else { Duration::ZERO }, is_article: true }
    }

    fn of_aur(route: &Route, query: Option<&str>, kept: Duration) -> Option<Tags> {
        if route.place.first().surface() != Surface::Aur {
            return None;
        }
        // What only one package decides is purged with it alone. A parameter could name others.
        let name = match route.place.path {
            "/rpc/v5/{type}/{arg}" | "/rpc/v6/{type}/{arg}" if route.raw("{type}") == "info" => {
                route.name("{arg}")
            }
            "/aur/history/{package}" => route.name("{package}"),
            _ => "".into(),
        };
        let is_alone = query.is_none() && !name.is_empty() && name.bytes().all(is_of_name);
        let tag = match is_alone {
            true => package(&name),
            false => AUR_LISTS.to_owned(),
        };
        Some(Tags { tags: vec![AUR.to_owned(), tag], kept, is_article: false })
    }

    fn of_stage(app: &App, route: &Route) -> Option<Tags> {
        let name = route.stage().ok()?;
        let mut tags = vec![PYTHON.to_owned(), stage(name.as_str())];
        let endpoint = route.place.first();
        match endpoint {
            Endpoint::ShowIndex => {}
            Endpoint::ListProjects => tags.push(list(name.as_str())),
            Endpoint::DownloadFile | Endpoint::FindExternalFile => tags.push(files(name.as_str())),
            _ => tags.push(project(name.as_str(), route.project().ok()?.as_str())),
        }
        let is_installers = matches!(endpoint, Endpoint::ListProjects | Endpoint::ShowSimplePage);
        let stored = app.live_store.snapshot()?;
        let order = ResolutionOrder::of(&stored.index, name.as_str())?;
        let is_followed = is_installers
            && !order.has_policy()
            && order.stages().iter().all(|stage| !stage.config().is_mirror());
        let seconds = app.config.cdn.seconds;
        Some(Tags {
            tags,
            kept: if is_followed { seconds } else { Duration::ZERO },
            is_article: false,
        })
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
        if !self.kept.is_zero() && !is_immutable {
            let config = &app.config.cdn;
            let policy = format!(
                "max-age={}, stale-while-revalidate={}, stale-if-error={}",
                self.kept.as_secs(),
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
        let hour = Duration::from_secs(3600);
        let usual = Tags::of_article("guide/first%20steps/3", hour);
        let expected = ["articles", "article:guide", "article:guide/first%20steps"];
        assert_eq!(usual.tags[..3], expected);
        assert_eq!((usual.kept, usual.tags.len()), (hour, 4));
        let long = Tags::of_article(&"a/".repeat(4_000), hour);
        assert_eq!((long.kept, long.tags.len()), (Duration::ZERO, 1));
    }

    #[test]
    fn what_one_package_decides_has_its_tag() {
        let of = |target: &'static str| {
            let (path, query) =
                target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            let found = Tags::of_aur(&Route::find(Tree::Main, path, None)?, query, Duration::ZERO);
            found.map(|found| found.tags.join(" "))
        };
        let expected = |tags: &str| Some(tags.to_owned());
        assert_eq!(of("/rpc/v5/info/yay"), expected("aur package:yay"));
        assert_eq!(of("/rpc/v5/info/Yay%2Bx"), expected("aur package:yay+x"));
        assert_eq!(of("/aur/history/yay"), expected("aur package:yay"));
        for path in [
            "/rpc/v5/info/yay?arg[]=paru",
            "/rpc/v5/info/y%C3%A0y",
            "/rpc/v5/info/yay%20",
            "/rpc/v5/info/",
            "/rpc/v5/search/yay",
            "/rpc?v=5&type=info&arg[]=yay",
            "/rpc.php?v=5&type=info&arg[]=yay",
            "/packages/yay",
            "/packages-meta-ext-v1.json.gz.sha256",
            "/users.zst",
            "/rss/modified",
        ] {
            assert_eq!(of(path), expected("aur aur-lists"), "{path}");
        }
        // Users of the Python index may have such names.
        for path in [
            "/",
            "/status",
            "/packagesx",
            "/docs/aur",
            "/changes",
            "/users",
            "/aur",
            "/users.x/dev",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
