//! A limited token does nothing outside of its limits, operation by operation, and all within them that its user may.

use std::collections::BTreeSet;

use account::{Acl, Limits, Scopes};
use serde_json::json;

use super::operations::{Row, TABLE};
use super::{Case, Sent, World, bearer};
use crate::asking::{Says as _, each};
use crate::catalogue;
use crate::client::Response;
use crate::python::{Upload, path, sdist};
use crate::server::TestServer;

/// The object of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// Users, or tokens.
    Accounts,
    /// The index of the case.
    Index,
    /// This project of the index.
    Project(&'static str),
    /// The article of the case.
    Article,
}

fn about(row: &Row) -> About {
    match row.operation {
        "POST /actions" => About::Article,
        operation if operation.contains("{article}") => About::Article,
        operation if operation.ends_with("/{user}") || operation.contains("+tokens") => {
            About::Accounts
        }
        operation if operation.ends_with("+retention") || operation.ends_with("+prefetch") => {
            About::Index
        }
        "PUT /{user}/{index}" | "PATCH /{user}/{index}" | "DELETE /{user}/{index}" => About::Index,
        _ if row.what == "a search" => About::Index,
        "PUSH /{user}/{index}" => About::Project("q"),
        _ if row.what.contains("push") => About::Project("q"),
        _ => About::Project("p"),
    }
}

/// Limits from words such as `index=team/dev project=foo prefix=/docs/`.
fn limits(text: &str) -> Option<Limits> {
    let words = |kind: &str| -> Vec<String> {
        let named = text.split_whitespace().filter_map(|word| word.split_once('='));
        named.filter(|(name, _)| *name == kind).map(|(_, value)| value.to_owned()).collect()
    };
    let [indexes, projects, prefixes] = ["index", "project", "prefix"].map(words);
    state::accounts::limits(&indexes, &projects, &prefixes).expect("limits")
}

impl Case<'_> {
    /// Limits, and whether the object is within them.
    fn limits_around(&self, about: About) -> Vec<(String, bool)> {
        let (owner, stage) = (&self.owner, self.stage());
        let project = if about == About::Project("q") { "q" } else { "p" };
        let is_project = matches!(about, About::Project(_));
        let is_index = about == About::Index || is_project;
        let is_article = about == About::Article;
        // A push also reads, from another user's index.
        let also = if project == "q" {
            format!(" index=source{}/dev", self.number)
        } else {
            String::new()
        };
        let article = format!("case-{}", self.number);
        vec![
            (format!("index={stage}{also}"), is_index),
            (format!("index={owner}/*{also}"), is_index),
            (format!("index={stage}{also} project={project}"), is_project),
            (format!("project={project} project=other"), is_project),
            (format!("index={stage}{also} project=other"), false),
            (format!("index={owner}/other{also}"), false),
            (format!("index=other{owner}/*{also} project={project}"), false),
            (format!("prefix={article}"), is_article),
            (format!("prefix=/ index={stage}{also}"), is_article || is_index),
            ("prefix=/case/".to_owned(), false),
            (format!("prefix=/{article}/below/ project=other"), false),
        ]
    }
}

#[track_caller]
fn check(world: &World, row: &Row) {
    let about = about(row);
    for role in row.roles {
        let count = world.case(*role).limits_around(about).len();
        for at in 0..count {
            let case = world.case(*role);
            let sent = case.prepared(row);
            let (named, is_within) = case.limits_around(about).swap_remove(at);
            let token = world.make_limited_token(&case.sender, Scopes::ALL, limits(&named), None);
            let before = world.serial();
            let response = world.send(&sent, &bearer(&token));
            let called = format!("{} as {role:?} limited to {named}", row.called());
            let text = response.text();
            let expected: &[u16] = if is_within { &[row.done] } else { &[403, row.refused] };
            assert!(expected.contains(&response.status), "{called}: {} {text}", response.status);
            let is_written = world.serial() > before;
            assert_eq!(is_written, is_within && row.writes, "{called}: whether it is written");
            assert!(is_within || text.contains("this token is limited to "), "{called}: {text}");
        }
    }
}

#[test]
fn a_limited_token_writes_within_its_limits() {
    let world = World::start();
    for row in TABLE.iter().filter(|row| row.scope.is_some()) {
        check(&world, row);
    }
}

/// A limited token may do whatever everybody may.
#[test]
fn a_limited_token_may_what_strangers_may() {
    let world = World::start();
    for row in TABLE.iter().filter(|row| row.scope.is_none()) {
        let case = world.case(row.roles[0]);
        let sent = case.prepared(row);
        let limits = limits("index=nobody/dev");
        let token = world.make_limited_token(&case.sender, Scopes::ALL, limits, None);
        let (limited, stranger) = (world.send(&sent, &bearer(&token)), world.send(&sent, ""));
        assert_eq!(limited.status, stranger.status, "{}: {}", row.called(), limited.text());
    }
}

/// An index of team's with a base and another one, all private, and the requests that read them.
struct Private {
    world: World,
}

const DEV: &str = "team/dev";
const BASE: &str = "team/base";
const OTHER: &str = "team/other";

impl Private {
    fn start() -> Private {
        let mut config_of_articles = Acl::nobody();
        config_of_articles = Acl::from_entries(["team"]).unwrap_or(config_of_articles);
        let server = TestServer::serving_with(&catalogue::small(), |config| {
            config.article.acl_read = config_of_articles.clone();
            config.article.acl_write = config_of_articles.clone();
        });
        let private = Private { world: World { server } };
        private.world.make_user("team", &[]);
        for (stage, bases) in [(BASE, json!([])), (OTHER, json!([])), (DEV, json!([BASE]))] {
            let config = json!({"bases": bases, "acl_read": ["team"], "volatile": true});
            private.done(&Sent::new("PUT", format!("/{stage}")).json(&config));
        }
        for (stage, filename) in
            [(DEV, "p-1.0.zip"), (BASE, "q-1.0.zip"), (BASE, "p-0.1.zip"), (OTHER, "r-1.0.zip")]
        {
            private.upload(stage, &Upload::of(filename, &sdist(filename)));
        }
        private
            .upload(DEV, &Upload::docs("p", "1.0", &crate::python::zip(&[("index.html", b"x")])));
        for name in ["docs", "docs/a", "docs-old/a", "news"] {
            let content_type = "text/plain".to_owned();
            let sent = Sent::new("POST", format!("/article/{name}/0"));
            private.done(&Sent { content_type, body: b"text".to_vec(), ..sent });
        }
        private
    }

    fn token(&self, named: &str) -> String {
        bearer(&self.world.make_limited_token("team", Scopes::ALL, limits(named), None))
    }

    #[track_caller]
    fn done(&self, sent: &Sent) -> Response {
        self.world.send(sent, &self.token("")).done()
    }

    #[track_caller]
    fn upload(&self, stage: &str, upload: &Upload) {
        self.done(&Sent::upload(stage, upload));
    }

    fn get(&self, target: &str, authorization: &str) -> Response {
        let headers = [("Authorization", authorization), ("Accept", "application/json, */*")];
        self.world.server.client.send("GET", target, &headers, b"")
    }

    /// Checks that of these targets exactly those with a position in `within` can be read.
    #[track_caller]
    fn check(&self, named: &str, targets: &[String], within: &[usize]) {
        let (token, free) = (self.token(named), self.token(""));
        for (at, target) in targets.iter().enumerate() {
            let free = self.get(target, &free).done();
            let limited = self.get(target, &token);
            let expected = if within.contains(&at) { free.status } else { 403 };
            limited.check_status(expected);
            let is_told = limited.text().contains("this token is limited to ");
            assert_eq!(is_told, expected == 403, "{target}, {named}: {}", limited.text());
            assert_eq!(self.get(target, "").status, 401, "{target} is private");
            if target.starts_with("/article") {
                continue;
            }
            let headers = [("Authorization", token.as_str()), ("X-Original-URI", target.as_str())];
            let asked = self.world.server.client.send("GET", "/+authcheck", &headers, b"");
            let expected = if within.contains(&at) { 200 } else { 403 };
            assert_eq!(asked.status, expected, "+authcheck {target}, {named}: {}", asked.text());
        }
    }

    fn of_indexes() -> Vec<String> {
        let file = |stage: &str, filename: &str| path(stage, filename, &sdist(filename));
        vec![
            format!("/{DEV}"),
            format!("/{DEV}/+simple/"),
            format!("/{DEV}/+simple/p/"),
            format!("/{DEV}/p"),
            format!("/{DEV}/p/1.0"),
            format!("/{DEV}/p/+status"),
            format!("/{DEV}/p/1.0/+doc/"),
            format!("/{DEV}/p/1.0/+toxresults/p-1.0.zip"),
            file(DEV, "p-1.0.zip"),
            // Inherited: the pages, and what they lead to.
            format!("/{DEV}/+simple/q/"),
            format!("/{DEV}/q/1.0"),
            file(BASE, "q-1.0.zip"),
            file(BASE, "p-0.1.zip"),
            format!("/{BASE}"),
            format!("/{BASE}/+simple/p/"),
            format!("/{BASE}/+simple/q/"),
            format!("/{OTHER}/+simple/r/"),
            file(OTHER, "r-1.0.zip"),
        ]
    }
}

#[test]
fn a_limited_token_reads_within_its_limits() {
    let private = Private::start();
    let check = |named: &str, within: &[usize]| {
        private.check(named, &Private::of_indexes(), within);
    };
    let all: Vec<usize> = (0..=17).collect();
    let rows = [
        ("index=team/*", &all[..]),
        ("index=team/dev", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ("index=team/dev project=p", &[2, 3, 4, 5, 6, 7, 8, 12]),
        ("index=team/dev project=q", &[9, 10, 11]),
        ("index=team/base", &[11, 12, 13, 14, 15]),
        ("index=team/base project=q", &[11, 15]),
        ("project=p", &[2, 3, 4, 5, 6, 7, 8, 12, 14]),
        ("index=team2/*", &[]),
        ("prefix=/", &[]),
    ];
    each(rows, |(named, within)| check(named, within));
}

#[test]
fn a_limited_token_reads_articles_within_its_limits() {
    let private = Private::start();
    let targets: Vec<String> = [
        "/article/docs",
        "/article/docs/1",
        "/article/docs/history",
        "/article/docs/diff",
        "/article/docs/a",
        "/article/docs-old/a",
        "/article/news",
        "/articles",
        "/articles?prefix=docs",
        "/articles?prefix=docs/",
        "/articles?prefix=docs/a",
    ]
    .map(str::to_owned)
    .to_vec();
    let check = |named: &str, within: &[usize]| private.check(named, &targets, within);
    check("prefix=/docs/", &[0, 1, 2, 3, 4, 9, 10]);
    check("prefix=docs/a", &[4]);
    check("prefix=/docs/ prefix=/news/", &[0, 1, 2, 3, 4, 6, 9, 10]);
    check("prefix=/ index=team/dev", &(0..=10).collect::<Vec<_>>());
    check("index=team/*", &[]);
    let actions = |name: &str| {
        let calls = json!({"actions": {"article.get": {"name": name}}});
        let sent = Sent::new("POST", "/actions").json(&calls);
        private.world.send(&sent, &private.token("prefix=/docs/")).text()
    };
    actions("docs/a").says("\"text\":\"text\"");
    actions("news").says("limited to articles below `/docs/`");
}

/// Lists show objects within the limits, and nothing else that is private.
#[test]
fn lists_stay_within_the_limits() {
    let private = Private::start();
    let found = |named: &str| -> BTreeSet<String> {
        let response = private.get("/+search?query=p", &private.token(named)).json();
        let mut names: Vec<String> = Vec::new();
        for query in ["p", "q", "r"] {
            let target = format!("/+search?query={query}");
            let response = private.get(&target, &private.token(named)).json();
            let items = response["result"]["items"].as_array().expect("items").clone();
            names.extend(items.iter().map(|it| format!("{}:{}", it["index"], it["name"])));
        }
        assert_eq!(response["type"], "search");
        names.into_iter().map(|name| name.replace('"', "")).collect()
    };
    let check = |named: &str, expected: &str| {
        let expected = expected.split_whitespace().map(str::to_owned).collect();
        assert_eq!(found(named), expected, "{named}");
    };
    check("", "team/dev:p team/base:p team/base:q team/other:r");
    check("index=team/dev", "team/dev:p");
    check("index=team/* project=p", "team/dev:p team/base:p");
    check("prefix=/", "");
    let indexes = |named: &str| -> Vec<String> {
        let user = private.get("/team", &private.token(named)).json();
        let indexes = user["result"]["indexes"].as_object().expect("indexes");
        indexes.keys().cloned().collect()
    };
    assert_eq!(indexes(""), ["base", "dev", "other"]);
    assert_eq!(indexes("index=team/dev"), ["dev"]);
    assert_eq!(indexes("index=team/dev project=p"), [""; 0]);
}

/// Otherwise a token that may change one index could read any other index through it.
#[test]
fn a_limited_token_adds_no_base_from_outside() {
    let private = Private::start();
    let token = private.token("index=team/dev index=team/new");
    let set = |method, stage: &str, bases: &[&str]| {
        let sent = Sent::new(method, format!("/{stage}")).json(&json!({"bases": bases}));
        private.world.send(&sent, &token)
    };
    for (method, stage, bases) in [
        ("PATCH", DEV, &[BASE, OTHER][..]),
        ("PATCH", DEV, &[OTHER]),
        ("PUT", "team/new", &[OTHER]),
    ] {
        set(method, stage, bases).tells(403, "no permission to add a base: this token is limited to team/dev, team/new; it may not read team/other");
    }
    set("PUT", "team/new", &[DEV]).expect(200);
    assert_eq!(set("PATCH", DEV, &[BASE]).status, 200, "it is there already");
    set("PATCH", DEV, &[]).expect(200);
    assert_eq!(set("PATCH", DEV, &[BASE]).status, 403, "and now no more");
}
