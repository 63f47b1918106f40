//! devpi's JSON: each view, with its keys in order.

use serde_json::json;

use super::*;
use crate::testing::{World, metadata, now, principal, user_name};
use crate::{FileRole, ProjectName};

const ROOT: &str = "http://host/sub";

fn world() -> World {
    let mut world = World::new();
    world.create("alice/base", json!({})).create("alice/dev", json!({"bases": "alice/base"}));
    world.upload("alice/base", "foo-1.0.tar.gz", "base").upload("alice/base", "foo-2.0.zip", "two");
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    world
}

#[track_caller]
fn check(value: impl Serialize, expected: Value) {
    assert_eq!(serde_json::to_value(value).expect("JSON"), expected);
}

#[test]
fn the_envelope_has_devpis_layout() {
    let body = result("list", json!([1]), Some("done"));
    let text =
        "{\n  \"result\": [\n    1\n  ],\n  \"type\": \"list\",\n  \"message\": \"done\"\n}\n";
    assert_eq!(body, text);
    assert_eq!(message("no"), "{\n  \"message\": \"no\"\n}\n");
}

#[test]
fn what_the_server_can_do_at_the_root_and_at_a_stage() {
    let mut world = world();
    check(
        api_config(ROOT, &Principal::Anonymous, None),
        json!({"login": "http://host/sub/+login", "authstatus": ["noauth", "", []], "features": FEATURES}),
    );
    let stage = world.snapshot.stage("alice/dev").expect("a stage").clone();
    let config = serde_json::to_value(api_config(ROOT, &principal("alice"), Some(&stage)));
    let config = config.expect("JSON");
    assert_eq!(config["authstatus"], json!(["ok", "alice", []]));
    assert_eq!(config["index"], "http://host/sub/alice/dev");
    assert_eq!(config["simpleindex"], "http://host/sub/alice/dev/+simple/");
    assert_eq!(config["pypisubmit"], "http://host/sub/alice/dev/");
    let mirror = json!({"type": "mirror", "mirror_url": "https://upstream.example/"});
    world.create("root/pypi", mirror);
    let stage = world.snapshot.stage("root/pypi").expect("a stage").clone();
    let config = serde_json::to_value(api_config(ROOT, &Principal::Anonymous, Some(&stage)));
    assert!(config.expect("JSON").get("pypisubmit").is_none());
}

#[test]
fn a_stage_with_its_own_projects() {
    let world = world();
    let stage = world.snapshot.stage("alice/dev").expect("a stage");
    let view = viewed_by(&world, &Principal::Anonymous);
    let text = |has_projects| {
        serde_json::to_string(&IndexConfig {
            stage,
            has_projects,
            now: jiff::Timestamp::UNIX_EPOCH,
            view,
        })
        .expect("JSON")
    };
    let config = r#"{"type":"stage","volatile":true,"acl_upload":["alice"],"acl_toxresult_upload":[":AUTHENTICATED:"],"bases":["alice/base"],"mirror_whitelist":[],"mirror_whitelist_inheritance":"intersection""#;
    assert_eq!(text(false), format!("{config}}}"));
    assert_eq!(text(true), format!("{config},\"projects\":[\"foo\"]}}"));
}

fn viewed_by<'world>(world: &'world World, principal: &'world Principal) -> View<'world> {
    View { snapshot: &world.snapshot, principal, shows_all: false }
}

/// What strangers learn about an index and its owner; on a server like devpi, everybody learns it.
#[test]
fn private_names_are_shown_to_those_who_may_know_them() {
    let mut world = world();
    world.create("bob/secret", json!({"acl_read": "bob"}));
    let bases = ["bob/secret", "alice/base"];
    world.create("alice/open", json!({"bases": bases, "acl_upload": "alice,ci,:ops"}));
    let stage = world.snapshot.stage("alice/open").expect("a stage");
    let config = |who: &Principal, shows_all: bool| {
        let view = View { shows_all, ..viewed_by(&world, who) };
        let config = serde_json::to_value(IndexConfig {
            stage,
            has_projects: false,
            now: jiff::Timestamp::UNIX_EPOCH,
            view,
        });
        let config = config.expect("JSON");
        (config["bases"].clone(), config["acl_upload"].clone())
    };
    let (own, uploaders) = (json!(["alice/base"]), json!(["alice", "ci", ":ops"]));
    assert_eq!(config(&Principal::Anonymous, false), (own.clone(), json!(["alice"])));
    assert_eq!(config(&principal("carol"), false), (own, uploaders.clone()));
    for (who, shows_all) in [("bob", false), ("alice", false), ("root", false), ("carol", true)] {
        let found = config(&principal(who), shows_all);
        assert_eq!(found, (json!(bases), uploaders.clone()), "{who}");
    }
    let mirror_url = "https://u:p%40w@upstream.example/simple/a@b/";
    world.create("alice/mirror", json!({"type": "mirror", "mirror_url": mirror_url}));
    let stage = world.snapshot.stage("alice/mirror").expect("a stage");
    for (who, shows_all) in [("carol", false), ("alice", false), ("carol", true)] {
        let url = "https://***@upstream.example/simple/a@b/";
        let who = principal(who);
        let view = View { shows_all, ..viewed_by(&world, &who) };
        let config =
            IndexConfig { stage, has_projects: false, now: jiff::Timestamp::UNIX_EPOCH, view };
        assert_eq!(serde_json::to_value(config).expect("JSON")["mirror_url"], url);
    }
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| User {
        email: Some(format!("{name}@host.example")),
        ..User::new(user_name(name), now())
    });
    let known = |who: &Principal, shows_all: bool| {
        let view = View { shows_all, ..viewed_by(&world, who) };
        let list = serde_json::to_value(user_list([&alice, &bob, &carol], view)).expect("JSON");
        let list = list.as_object().expect("an object").clone();
        let names = list.iter().map(|(name, config)| match config.get("email") {
            Some(_) => format!("{name} with address"),
            None => name.clone(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(known(&Principal::Anonymous, false), "alice");
    assert_eq!(known(&principal("carol"), false), "alice, carol with address");
    assert_eq!(known(&principal("bob"), false), "alice, bob with address");
    let all = "alice with address, bob with address, carol with address";
    assert_eq!(known(&principal("root"), false), all);
    assert_eq!(known(&Principal::Anonymous, true), all);
}

#[test]
fn a_user_is_shown_with_the_stages_that_the_sender_may_see() {
    let mut world = world();
    world.create("alice/secret", json!({"acl_read": "alice"}));
    let mut user = User::new(user_name("alice"), now());
    user.email = Some("a@host.example".to_owned());
    user.modified_at = Some(now());
    let config = |principal: &Principal| {
        let config = UserConfig { user: &user, view: viewed_by(&world, principal) };
        serde_json::to_value(config).expect("JSON")
    };
    let own = config(&principal("alice"));
    assert_eq!(own["created"], "2026-01-31T12:34:56Z");
    assert_eq!(own["modified"], "2026-01-31T12:34:56Z");
    assert_eq!(own["email"], "a@host.example");
    let names = |config: &Value| -> Vec<String> {
        config["indexes"].as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(names(&own), ["base", "dev", "secret"]);
    assert_eq!(names(&config(&Principal::Anonymous)), ["base", "dev"]);
    assert!(config(&Principal::Anonymous).get("email").is_none());
    assert!(own.get("pwhash").is_none() && own.get("title").is_none());
    let alice = principal("alice");
    check(user_list([&user], viewed_by(&world, &alice)), json!({"alice": own}));
}

/// The bytes of the metadata that these versions need, as a caller would pass them.
fn known(versions: &[VersionView<'_>]) -> MetadataBytes {
    let all = ["1.0", "2.0"].map(|version| metadata("foo", version));
    let known = all.into_iter().map(|bytes| (Digest::of(&bytes), bytes));
    let needed = metadata_digests(versions);
    known.filter(|(digest, _)| needed.contains(digest)).collect()
}

#[test]
fn a_version_with_its_links_and_shadowed_versions() {
    let mut world = world();
    let one = Digest::of(b"one");
    let directory = crate::Directory::of(&one);
    let batch = world.tox_result("alice/dev", "one", "foo-1.0.tar.gz").expect("a file");
    world.commit(batch).expect("no conflict");
    let versions = versions(&world.snapshot, "alice/dev", "foo", false).expect("a project");
    let (foo, metadata) = (ProjectName::parse("foo").expect("a name"), known(&versions));
    let when = [2026, 1, 31, 12, 34, 56];
    let href = format!("http://host/sub/alice/dev/+f/{directory}/foo-1.0.tar.gz");
    let base = Digest::of(b"base");
    let base_href =
        format!("http://host/sub/alice/base/+f/{}/foo-1.0.tar.gz", crate::Directory::of(&base));
    let log = |target| json!([{"what": "upload", "who": "alice", "when": when, "dst": target}]);
    let file = |href: &str, digest: &Digest, target| {
        json!({
            "rel": "releasefile",
            "href": href,
            "hash_spec": format!("sha256={digest}"),
            "hashes": {"sha256": digest.to_string()},
            "log": log(target),
        })
    };
    let result = Digest::of(b"{}");
    let view = viewed_by(&world, &Principal::Anonymous);
    check(
        version_data(&versions[1], &foo, ROOT, &metadata, view, None),
        json!({
            "name": "foo",
            "version": "1.0",
            "summary": "a test",
            "+links": [
                file(&href, &one, "alice/dev"),
                {
                    "rel": "toxresult",
                    "href": format!("{href}.toxresult-20260131123456-0"),
                    "for_href": href,
                    "hash_spec": format!("sha256={result}"),
                    "hashes": {"sha256": result.to_string()},
                    "log": [{"what": "upload", "who": null, "when": when, "dst": "alice/dev"}],
                },
            ],
            "+shadowing": [{
                "name": "foo",
                "version": "1.0",
                "summary": "a test",
                "+links": [file(&base_href, &base, "alice/base")],
            }],
        }),
    );
}

#[test]
fn a_project_is_its_versions_newest_first() {
    let world = world();
    let project = |is_alone| {
        let versions = versions(&world.snapshot, "alice/dev", "foo", is_alone).expect("a project");
        let foo = ProjectName::parse("foo").expect("a name");
        let config = project_config(
            &versions,
            &foo,
            ROOT,
            &known(&versions),
            viewed_by(&world, &Principal::Anonymous),
            None,
        );
        serde_json::to_string(&config).expect("JSON")
    };
    let both = project(false);
    let at = |version: &str| both.find(&format!("\"{version}\":{{")).expect("a version");
    assert!(at("2.0") < at("1.0"), "{both}");
    assert!(!project(true).contains("2.0"));
    assert!(versions(&world.snapshot, "alice/dev", "bar", false).is_none());
}

#[test]
fn the_facts_about_a_file() {
    let world = world();
    let stage = world.snapshot.stage("alice/dev").expect("a stage");
    let mut files = stage.project("foo").expect("a project").files_of("1.0");
    let file = files.find(|file| file.role() == FileRole::Release).expect("a file");
    let foo = ProjectName::parse("foo").expect("a name");
    let sha256 = Digest::of(b"one").to_string();
    check(
        FileMeta { project: &foo, file },
        json!({
            "hash_spec": format!("sha256={sha256}"),
            "hashes": {"sha256": sha256},
            "last_modified": "Sat, 31 Jan 2026 12:34:56 GMT",
            "project": "foo",
            "version": "1.0",
            "size": 3,
        }),
    );
}
