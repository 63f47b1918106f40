//! Every 403 tells a known user its cause: the list that they are not on, who may, what their token lacks, or the rule that
//! forbids it.

use account::{Acl, Scope, Scopes};
use insta::assert_snapshot;
use serde_json::json;

use super::{Sent, World, bearer, only};
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

/// What those are told whom the server refuses with a 403.
struct Told {
    world: World,
    said: String,
}

impl Told {
    fn start(restrict_modify: Acl) -> Told {
        Told { world: start(restrict_modify), said: String::new() }
    }

    #[track_caller]
    fn add(&mut self, who: &str, sent: Sent) {
        self.add_with(who, Scopes::ALL, sent);
    }

    #[track_caller]
    fn add_with(&mut self, who: &str, scopes: Scopes, sent: Sent) {
        let response = ask(&self.world, who, scopes, &sent);
        let told = response.check_status(403).told();
        self.said += &format!("{} {}, {who}:\n  {told}\n", sent.method, sent.target);
    }
}

fn json_of(method: &'static str, target: &str, body: serde_json::Value) -> Sent {
    Sent::new(method, target).json(&body).with("Accept", "application/json")
}

#[test]
fn a_403_for_articles_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    told.add("bob", Sent::new("GET", "/article/a"));
    told.add("bob", Sent::new("GET", "/articles"));
    told.add("bob", Sent::new("POST", "/article/a/0"));
    told.add("bob", Sent::new("DELETE", "/article/a"));
    let foreign = Sent::new("POST", "/article/a/0").with("Sec-Fetch-Site", "cross-site");
    told.add("root", foreign);
    assert_snapshot!("articles", told.said);
}

#[test]
fn a_403_for_reading_an_index_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    let get = |target: &str| Sent::new("GET", target);
    for page in ["", "/+simple/", "/+simple/p/", "/p", "/p/1.0", "/p/+status", "/p/1.0/+doc/"] {
        told.add("bob", get(&format!("/alice/dev{page}")));
    }
    told.add("bob", get(&path("alice/dev", "p-1.0.zip", &sdist("x"))));
    told.add("bob", get("/alice/dev/p/1.0/+toxresults/p-1.0.zip"));
    told.add("bob", get("/bob/dev/+simple/"));
    told.add("bob", get("/+authcheck").with("X-Original-URI", "/alice/dev/p"));
    let client = |uri: &str| {
        get("/+authcheck").with("User-Agent", "devpi-client/7").with("X-Original-URI", uri)
    };
    told.add("bob", client("/alice/dev/p"));
    told.add("bob", client("/a/b/c/d/e"));
    told.add("bob", client("/alice/dev").with("X-Original-URI", "/alice/open"));
    assert_snapshot!("reading", told.said);
}

#[test]
fn a_403_for_changing_contents_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    let file = path("alice/open", "p-1.0.zip", &sdist("x"));
    told.add("bob", upload("alice/open", "q-1.0.zip", "q"));
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
        told.add("bob", json_of(method, &target, json!({"status": "active"})));
    }
    told.add("bob", json_of("POST", "/alice/open/+retention", json!({"versions": 1})));
    assert_snapshot!("contents", told.said);
}

#[test]
fn a_403_for_results_and_pushes_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    let file = path("alice/open", "p-1.0.zip", &sdist("x"));
    let closed = json!({"acl_toxresult_upload": ["alice"]});
    let closed = json_of("PATCH", "/alice/open", closed);
    ask(&told.world, "alice", Scopes::ALL, &closed).expect(200);
    told.add("bob", json_of("POST", &file, json!({})));
    let outside = json!({"name": "p", "version": "1.0", "posturl": "http://127.0.0.1:9/", "username": "u", "password": "p"});
    told.add("bob", json_of("POST", "/alice/open", outside));
    assert_snapshot!("results_and_pushes", told.said);
}

#[test]
fn a_403_for_an_index_and_its_files_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    told.add("bob", json_of("PUT", "/alice/new", json!({})));
    told.add("bob", json_of("PATCH", "/alice/open", json!(["volatile=False"])));
    told.add("bob", json_of("DELETE", "/alice/open", json!({})));
    let kept = path("alice/dev", "p-1.0.zip", &sdist("x"));
    for target in ["/alice/dev", "/alice/dev/p", "/alice/dev/p/1.0", &kept, "/alice"] {
        told.add("alice", Sent::new("DELETE", target));
    }
    told.add("root", Sent::new("DELETE", "/root"));
    assert_snapshot!("index_and_files", told.said);
}

#[test]
fn a_403_for_users_and_tokens_names_its_cause() {
    let mut told = Told::start(Acl::nobody());
    told.add("bob", json_of("PUT", "/new", json!({"password": "x"})));
    told.add("bob", json_of("PATCH", "/alice", json!({"title": "x"})));
    told.add("bob", json_of("PATCH", "/alice", json!({"password": "x"})));
    told.add("bob", json_of("DELETE", "/alice", json!({})));
    told.add("bob", Sent::new("GET", "/+tokens?user=alice"));
    told.add("bob", json_of("POST", "/+tokens?user=alice", json!({"scopes": ["*"]})));
    assert_snapshot!("users_and_tokens", told.said);
}

/// If only some may modify users and indexes, that is the cause.
#[test]
fn who_may_modify_is_named() {
    let mut told = Told::start(":ops".parse().expect("a list"));
    for (method, target) in [
        ("PUT", "/new"),
        ("PATCH", "/alice"),
        ("DELETE", "/alice"),
        ("PUT", "/bob/new"),
        ("PATCH", "/bob/dev"),
        ("DELETE", "/bob/dev"),
    ] {
        told.add("bob", json_of(method, target, json!({"title": "x"})));
    }
    // A user who modifies users cannot set an administrator's password.
    told.world.make_user("olga", &["ops"]);
    told.add("olga", json_of("PATCH", "/root", json!({"password": "x"})));
    assert_snapshot!("who_may_modify", told.said);
}

/// A token that adds is told what it lacks to replace.
#[test]
fn what_a_token_lacks_is_named() {
    let mut told = Told::start(Acl::nobody());
    let scopes = only(Scope::PythonUpload);
    told.add_with("alice", scopes, upload("alice/open", "p-1.0.zip", "other"));
    told.add_with("alice", scopes, Sent::new("DELETE", "/alice/open/p"));
    let wider = json_of("POST", "/+tokens", json!({"scopes": ["*"]}));
    told.add_with("alice", only(Scope::UserAdmin), wider);
    told.add_with("alice", scopes, json_of("PATCH", "/alice", json!({"title": "x"})));
    told.add_with("alice", scopes, json_of("GET", "/+tokens", json!({})));
    assert_snapshot!("what_a_token_lacks", told.said);
}
