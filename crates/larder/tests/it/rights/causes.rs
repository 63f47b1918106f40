//! Every 403 tells a known user its cause: the list that they are not on, who may, what their token lacks, or the rule that
//! forbids it.

use account::{Acl, Scope, Scopes};
use serde_json::json;

use super::{Sent, World, bearer, only};
use crate::asking::each;
use crate::catalogue;
use crate::client::Response;
use crate::python::{Upload, path, sdist};
use crate::server::TestServer;

/// alice has an index that keeps what it has, and a file in it; only she reads it. bob has nothing but an index over
/// hers. Only root reads and writes articles, and pushes to elsewhere.
fn start(restrict_modify: Acl) -> World {
    let server = TestServer::serving_with(&catalogue::small(), |config| {
        config.article.acl_read = Acl::nobody();
        config.article.acl_write = Acl::nobody();
        config.python.acl_push_outside = Acl::nobody();
        config.python.restrict_modify = restrict_modify;
    });
    let world = World { server };
    for name in ["alice", "bob"] {
        world.make_user(name, &[]);
    }
    for (stage, config) in [
        ("alice/dev", json!({"bases": [], "volatile": false, "acl_read": ["alice"]})),
        ("alice/open", json!({"bases": [], "volatile": true})),
        ("bob/dev", json!({"bases": ["alice/dev"]})),
    ] {
        let sent = Sent::new("PUT", format!("/{stage}")).json(&config);
        ask(&world, "root", Scopes::ALL, &sent).expect(200);
    }
    for stage in ["alice/dev", "alice/open"] {
        let sent = upload(stage, "p-1.0.zip", "x");
        ask(&world, "alice", Scopes::ALL, &sent).expect(200);
    }
    world
}

fn ask(world: &World, who: &str, scopes: Scopes, sent: &Sent) -> Response {
    world.send(sent, &bearer(&world.make_token(who, scopes, None)))
}

fn upload(stage: &str, filename: &str, content: &str) -> Sent {
    Sent::upload(stage, &Upload::of(filename, &sdist(content)))
}

#[track_caller]
fn check(world: &World, who: &str, scopes: Scopes, sent: &Sent, cause: &str) {
    let response = ask(world, who, scopes, sent);
    let called = format!("{} {} by {who}", sent.method, sent.target);
    assert_eq!(response.status, 403, "{called}: {}", response.text());
    response.says(cause);
}

fn json_of(method: &'static str, target: &str, body: serde_json::Value) -> Sent {
    Sent::new(method, target).json(&body).with("Accept", "application/json")
}

/// Of objects that are not a list's.
const OWNER: &str = "only `alice` and administrators may";

#[test]
fn a_403_for_articles_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let get = |target: &str| Sent::new("GET", target);
    check("bob", get("/article/a"), "`bob` is not in `article.acl_read`");
    check("bob", get("/articles"), "`bob` is not in `article.acl_read`");
    check("bob", Sent::new("POST", "/article/a/0"), "`bob` is not in `article.acl_write`");
    check("bob", Sent::new("DELETE", "/article/a"), "`bob` is not in `article.acl_write`");
    let foreign = Sent::new("POST", "/article/a/0").with("Sec-Fetch-Site", "cross-site");
    check("root", foreign, "a page of another origin may not write here");
}

#[test]
fn a_403_for_reading_an_index_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let get = |target: &str| Sent::new("GET", target);
    let kept = path("alice/dev", "p-1.0.zip", &sdist("x"));
    let unlisted = "`bob` is not in `acl_read` of alice/dev";
    let pages = ["", "/+simple/", "/+simple/p/", "/p", "/p/1.0", "/p/+status", "/p/1.0/+doc/"];
    for page in pages {
        check("bob", get(&format!("/alice/dev{page}")), unlisted);
    }
    check("bob", get(&kept), unlisted);
    check("bob", get("/alice/dev/p/1.0/+toxresults/p-1.0.zip"), unlisted);
    check("bob", get("/bob/dev/+simple/"), "it has a base that they may not read");
    check("bob", get("/+authcheck").with("X-Original-URI", "/alice/dev/p"), unlisted);
    let client = |uri: &str| {
        get("/+authcheck").with("User-Agent", "devpi-client/7").with("X-Original-URI", uri)
    };
    check("bob", client("/alice/dev/p"), unlisted);
    check("bob", client("/a/b/c/d/e"), "`X-Original-URI` is no path of the index");
    let twice = client("/alice/dev").with("X-Original-URI", "/alice/open");
    check("bob", twice, "`X-Original-URI` was sent twice");
}

#[test]
fn a_403_for_changing_contents_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let file = path("alice/open", "p-1.0.zip", &sdist("x"));
    let unlisted = "`bob` is not in `acl_upload` of alice/open";
    check("bob", upload("alice/open", "q-1.0.zip", "q"), unlisted);
    for (method, target) in [
        ("DELETE", file.clone()),
        ("POST", format!("{file}/+yank")),
        ("DELETE", format!("{file}/+yank")),
        ("DELETE", "/alice/open/p".to_owned()),
        ("DELETE", "/alice/open/p/1.0".to_owned()),
        ("POST", "/alice/open/p/1.0/+yank".to_owned()),
        ("DELETE", "/alice/open/p/1.0/+yank".to_owned()),
        ("PUT", "/alice/open/p/+status".to_owned()),
        ("DELETE", "/alice/open/p/+status".to_owned()),
    ] {
        check("bob", json_of(method, &target, json!({"status": "active"})), unlisted);
    }
    check("bob", json_of("POST", "/alice/open/+retention", json!({"versions": 1})), OWNER);
}

#[test]
fn a_403_for_results_and_pushes_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let file = path("alice/open", "p-1.0.zip", &sdist("x"));
    let closed = json!({"acl_toxresult_upload": ["alice"]});
    let closed = json_of("PATCH", "/alice/open", closed);
    ask(&world, "alice", Scopes::ALL, &closed).expect(200);
    let unlisted = "`bob` is not in `acl_toxresult_upload` of alice/open";
    check("bob", json_of("POST", &file, json!({})), unlisted);
    let outside = json!({"name": "p", "version": "1.0", "posturl": "http://127.0.0.1:9/", "username": "u", "password": "p"});
    let unlisted = "`bob` is not in `python.acl_push_outside`";
    check("bob", json_of("POST", "/alice/open", outside), unlisted);
}

#[test]
fn a_403_for_an_index_and_its_files_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let kept = path("alice/dev", "p-1.0.zip", &sdist("x"));
    let rows = [
        ("bob", json_of("PUT", "/alice/new", json!({})), OWNER),
        ("bob", json_of("PATCH", "/alice/open", json!(["volatile=False"])), OWNER),
        ("bob", json_of("DELETE", "/alice/open", json!({})), OWNER),
        ("alice", Sent::new("DELETE", "/alice/dev"), "non-volatile, cannot delete"),
        ("alice", Sent::new("DELETE", "/alice/dev/p"), "is on non-volatile index alice/dev"),
        ("alice", Sent::new("DELETE", "/alice/dev/p/1.0"), "on non-volatile index"),
        ("alice", Sent::new("DELETE", kept), "on non-volatile index"),
        ("alice", Sent::new("DELETE", "/alice"), "has non-volatile index: dev"),
        ("root", Sent::new("DELETE", "/root"), "user 'root' cannot be deleted"),
    ];
    each(rows, |(who, sent, cause)| check(who, sent, cause));
}

#[test]
fn a_403_for_users_and_tokens_names_its_cause() {
    let world = start(Acl::nobody());
    let check = |who: &str, sent: Sent, cause: &str| check(&world, who, Scopes::ALL, &sent, cause);
    let get = |target: &str| Sent::new("GET", target);
    check("bob", json_of("PUT", "/new", json!({"password": "x"})), "only administrators may");
    check("bob", json_of("PATCH", "/alice", json!({"title": "x"})), OWNER);
    check("bob", json_of("PATCH", "/alice", json!({"password": "x"})), OWNER);
    check("bob", json_of("DELETE", "/alice", json!({})), OWNER);
    check("bob", get("/+tokens?user=alice"), OWNER);
    check("bob", json_of("POST", "/+tokens?user=alice", json!({"scopes": ["*"]})), OWNER);
}

/// If only some may modify users and indexes, that is the cause.
#[test]
fn who_may_modify_is_named() {
    let world = start(":ops".parse().expect("a list"));
    let named = "only whom `python.restrict_modify` names and administrators may";
    for (method, target) in [
        ("PUT", "/new"),
        ("PATCH", "/alice"),
        ("DELETE", "/alice"),
        ("PUT", "/bob/new"),
        ("PATCH", "/bob/dev"),
        ("DELETE", "/bob/dev"),
    ] {
        let sent = json_of(method, target, json!({"title": "x"}));
        check(&world, "bob", Scopes::ALL, &sent, named);
    }
    // A user who modifies users cannot set an administrator's password.
    world.make_user("olga", &["ops"]);
    let password = json_of("PATCH", "/root", json!({"password": "x"}));
    let named = "unless `root` is one, whom `python.restrict_modify` names may";
    check(&world, "olga", Scopes::ALL, &password, named);
}

/// A token that adds is told what it lacks to replace.
#[test]
fn what_a_token_lacks_is_named() {
    let world = start(Acl::nobody());
    let scopes = only(Scope::PythonUpload);
    let lacks = |scope: &str| format!("this token lacks the scope `{scope}`");
    let other = upload("alice/open", "p-1.0.zip", "other");
    check(&world, "alice", scopes, &other, &lacks("python:admin"));
    let removed = Sent::new("DELETE", "/alice/open/p");
    check(&world, "alice", scopes, &removed, &lacks("python:admin"));
    let wider = json_of("POST", "/+tokens", json!({"scopes": ["*"]}));
    let narrow = only(Scope::UserAdmin);
    let cause = "no permission to create a token for * with credentials for user:admin";
    check(&world, "alice", narrow, &wider, cause);
    let renamed = json_of("PATCH", "/alice", json!({"title": "x"}));
    check(&world, "alice", scopes, &renamed, &lacks("user:admin"));
    let server = json_of("GET", "/+tokens", json!({}));
    check(&world, "alice", scopes, &server, "it lacks the scope `user:admin`");
}
