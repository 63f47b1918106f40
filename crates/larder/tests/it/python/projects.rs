//! Projects, versions and their removal.

use insta::assert_snapshot;
use serde_json::{Map, json};

use super::{Index, Upload, path, result, sdist};
use crate::asking::each;
use crate::shown::shown_json;

/// The index `alice/dev`, whose `p` 1.0 shadows that of its base `alice/base`, and the content in the base.
fn shadowed() -> (Index, Vec<u8>) {
    let index = Index::start();
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    let old = sdist("old");
    index.upload("alice/base", "p-1.0.zip", &old);
    index.upload("alice/base", "p-2.0.zip", &old);
    index.upload("alice/dev", "p-1.0.zip", &sdist("new"));
    (index, old)
}

#[test]
fn a_project_is_shown_with_its_bases_and_what_they_shadow() {
    let (index, _) = shadowed();
    let ask = index.anybody().json();
    let project = result(&ask.get("/alice/dev/p"), "projectconfig");
    assert_snapshot!("project_config", shown_json(&project));
    let alone = result(&ask.get("/alice/dev/p?ignore_bases"), "projectconfig");
    assert_eq!(alone.as_object().map(Map::len), Some(1));
    for (target, version) in [("/alice/dev/p/2.0", "2.0"), ("/alice/dev/p/1.0/", "1.0")] {
        assert_eq!(result(&ask.get(target), "versiondata"), project[version], "{target}");
    }
}

#[test]
fn what_is_no_project_or_version_is_said() {
    let (index, _) = shadowed();
    each(
        [
            ("/alice/dev/q", "no project 'q'"),
            ("/alice/dev/p/3.0", "The version 3.0 of project p does not exist."),
            ("/alice/dev/p/2.0?ignore_bases", "The version 2.0 of project p does not exist."),
            ("/alice/none/p", "The stage alice/none could not be found."),
        ],
        |(target, message)| index.anybody().json().get(target).message(404, message),
    );
}

#[test]
fn a_project_has_one_name_and_several_forms() {
    let (index, old) = shadowed();
    let get = |target: &str, accept: &str| index.anybody().accept(accept).get(target);
    let root = format!("http://{}", index.client().address);
    for (asked, found) in
        [("/alice/dev/P", "/alice/dev/p"), ("/alice/dev/P.Q/1.0", "/alice/dev/p-q/1.0")]
    {
        let moved = get(asked, "application/json").expect(302);
        moved
            .has("location", root.clone() + found)
            .has("vary", "Accept, User-Agent, Accept-Encoding");
    }
    get("/alice/dev/p", "text/html").expect(200).has("content-type", "text/html; charset=utf-8");
    get("/alice/dev/p", "text/plain").expect(404);
    let simple = get("/alice/dev/p", "application/vnd.pypi.simple.v1+json").json();
    assert_eq!(simple["name"], "p");
    let outside = index.anybody().json().with("X-Outside-URL", "https://proxy.example/pre/");
    let project = result(&outside.get("/pre/alice/dev/p"), "projectconfig");
    let prefixed = "https://proxy.example/pre".to_owned() + &path("alice/base", "p-2.0.zip", &old);
    assert_eq!(project["2.0"]["+links"][0]["href"], prefixed);
}

#[test]
fn a_project_with_many_versions_is_sent_in_portions() {
    let index = Index::with_dev();
    for number in 0..40 {
        let form =
            format!(":action=submit&name=p&version=1.{number}&summary=number+{number}%0A%22");
        index
            .alice()
            .with("Content-Type", "application/x-www-form-urlencoded")
            .post("/alice/dev", form.as_bytes())
            .expect(200)
            .is("");
    }
    let project = result(&index.anybody().json().get("/alice/dev/p"), "projectconfig");
    assert_eq!(project.as_object().expect("an object").len(), 40);
    for number in [0, 17, 39] {
        let version = &project[format!("1.{number}")];
        assert_eq!(version["summary"], format!("number {number}\n\""));
        assert_eq!(
            *version,
            result(&index.anybody().json().get(&format!("/alice/dev/p/1.{number}")), "versiondata")
        );
    }
    index.anybody().json().send("HEAD", "/alice/dev/p", b"").expect(200);
}

#[test]
fn versions_with_much_metadata_are_sent_one_by_one() {
    let index = Index::with_dev();
    let described = |version: &str, description: &str| {
        let filename = format!("p-{version}.zip");
        let upload = Upload::named("p", version, &filename, &sdist(version));
        let upload = upload.set("description", description);
        index.alice().upload("alice/dev", &upload).expect(200);
    };
    let shown = || {
        let shown = index.anybody().json().get("/alice/dev/p");
        let is_whole = shown.find("content-length").is_some();
        let project = result(&shown, "projectconfig");
        let projects = project.as_object().expect("an object").clone();
        let lengths = projects.iter().map(|(version, data)| {
            format!("{version} {}", data["description"].as_str().map_or(0, str::len))
        });
        (is_whole, lengths.collect::<Vec<_>>().join(", "))
    };
    described("1.0", "short");
    described("2.0", &"x".repeat(600 << 10));
    assert_eq!(shown(), (true, "1.0 5, 2.0 614400".to_owned()));
    described("3.0", &"x".repeat(600 << 10));
    assert_eq!(shown(), (false, "1.0 5, 2.0 614400, 3.0 614400".to_owned()));
    let one = result(&index.anybody().json().get("/alice/dev/p/3.0"), "versiondata");
    assert_eq!(one["description"].as_str().map(str::len), Some(600 << 10));
}

#[test]
fn what_is_removed_is_gone_and_not_unknown() {
    let index = Index::start();
    index.stage("alice/dev", json!({"acl_upload": ["alice", "bob"]}));
    let content = sdist("x");
    for filename in ["p-1.0.zip", "p-1.0.tar.gz.zip", "p-2.0.zip", "p-3.0.zip"] {
        if filename != "p-1.0.tar.gz.zip" {
            index.upload("alice/dev", filename, &content);
        }
    }
    let ask = index.alice().json();
    let gone = path("alice/dev", "p-1.0.zip", &content);
    ask.delete("/alice/dev/p/1.0").message(200, "project 'p' version '1.0' deleted");
    index.anybody().json().get(&gone).message(410, "file existed, deleted in later serial");
    ask.delete("/alice/dev/p/1.0").message(404, "The version 1.0 of project p does not exist.");
    let file = path("alice/dev", "p-2.0.zip", &content);
    let removed = index.user("bob").json().delete(&file);
    removed.message(200, &format!("package '{}' deleted", &file[1..]));
    let text = format!("file '{}' existed, deleted in later serial", &file[1..]);
    ask.delete(&file).message(410, &text);
    let other = "/alice/dev/+f/abc/0123456789abc/p-9.zip";
    ask.delete(other).message(404, &format!("package '{}' doesn't exist", &other[1..]));
    // With its last version, the project is removed, too.
    let other = "The version 1.0 of project other does not exist.";
    index.anybody().json().get("/alice/dev/other/1.0").message(404, other);
    assert_eq!(index.files("alice/dev", "p"), ["p-3.0.zip"]);
    ask.delete("/alice/dev/p/3.0").message(200, "project 'p' version '3.0' deleted");
    index.anybody().get("/alice/dev/+simple/p/").expect(404);
    let text =
        "project not found: nothing is left of it but its name, which `release_name=1` releases";
    ask.delete("/alice/dev/p").message(404, text);
    ask.delete("/alice/dev/q").message(404, "project not found");
    index.upload("alice/dev", "p-1.0.zip", &content);
    ask.delete("/alice/dev/P").message(200, "project p deleted from stage alice/dev");
}

#[test]
fn who_may_not_remove_and_what_stays() {
    let index = Index::start();
    index.stage("alice/final", json!({"volatile": false}));
    let content = sdist("x");
    index.upload("alice/final", "p-1.0.zip", &content);
    let file = path("alice/final", "p-1.0.zip", &content);
    for target in ["/alice/final/p", "/alice/final/p/1.0", file.as_str()] {
        for ask in [index.user("bob").json(), index.anybody().json()] {
            let refused = ask.delete(target).expect(403);
            assert_eq!(refused.json()["code"], "403 Forbidden");
            assert_eq!(refused.json()["title"], "Forbidden");
        }
        index.user("bob").delete(target).has("content-type", "application/problem+json");
        let answer = index.user("bob").with("Accept", "text/html").delete(target);
        answer.has("content-type", "text/html; charset=UTF-8");
    }
    let ask = index.alice().json();
    let (project, version) = ("/alice/final/p", "/alice/final/p/1.0");
    ask.delete(project).message(403, "project 'p' is on non-volatile index alice/final");
    ask.delete(version).message(403, "cannot delete version on non-volatile index");
    let text = "cannot delete version on non-volatile index";
    ask.delete(&file).message(403, text);
    // The message is the same for a version that does not exist.
    ask.delete("/alice/final/p/9.0").message(403, text);
    let other = "/alice/final/+f/abc/0123456789abc/p-9.zip";
    ask.delete(other).message(403, text);
    ask.delete(&format!("{version}?force")).message(200, "project 'p' version '1.0' deleted");
    index.upload("alice/final", "p-1.1.zip", &content);
    ask.delete(&format!("{project}?force="))
        .message(200, "project p deleted from stage alice/final");
    ask.delete("/alice/none/p").message(404, "The stage alice/none could not be found.");
}

#[test]
fn what_a_stage_keeps_to_its_readers() {
    let index = Index::start();
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    index.stage("alice/open", json!({"bases": ["alice/secret"]}));
    let content = sdist("x");
    index.upload("alice/secret", "p-1.0.zip", &content);
    let docs = Upload::docs("p", "1.0", &super::zip(&[("index.html", b"hello")]));
    index.alice().upload("alice/secret", &docs).expect(200);
    let file = path("alice/secret", "p-1.0.zip", &content);
    let targets = [
        "/alice/secret/p",
        "/alice/secret/p/1.0",
        "/alice/secret/+simple/p/",
        "/alice/secret/+simple/",
        "/alice/secret/p/1.0/+doc/",
        "/alice/open/p",
        "/alice/open/+simple/p/",
        file.as_str(),
    ];
    for target in targets {
        index.alice().get(target).expect(200);
        index.user("bob").get(target).expect(403);
        index.anybody().get(target).expect(401).has("www-authenticate", "Basic realm=\"pypi\"");
        let check = |ask: super::Ask| ask.with("X-Original-URI", target).get("/+authcheck").status;
        assert_eq!(check(index.alice()), 200, "{target}");
        assert_eq!(check(index.user("bob")), 403, "{target}");
        assert_eq!(check(index.anybody()), 401, "{target}");
        assert_eq!(check(index.anybody().with("User-Agent", "devpi-client/7.3.0")), 403);
    }
    let push = json!({"name": "p", "version": "1.0", "targetindex": "bob/dev"});
    index.stage("bob/dev", json!({}));
    index.user("bob").send("PUSH", "/alice/secret", push).expect(403);
}
