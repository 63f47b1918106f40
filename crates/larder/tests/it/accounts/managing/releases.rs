//! Releases managed in a browser.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::start;
use crate::asking::Says as _;
use crate::browser::{Browser, field};
use crate::server::TestServer;
use crate::shown::shown;

/// The page of the project that the tests change.
const AT: &str = "/+manage/releases/root/dev/tool";

/// A server with three releases of `tool` and another project, and the browser of `root`.
fn with_releases() -> (TestServer, Browser) {
    let server = start();
    for (name, config) in [
        ("root/dev", json!({"volatile": false})),
        ("root/stable", json!({"acl_upload": ["root"]})),
        ("root/pypi", json!({"type": "mirror", "mirror_url": "https://upstream.example/simple/"})),
    ] {
        server.root().put(&format!("/{name}"), config).expect(200);
    }
    for filename in ["tool-1.0.zip", "tool-1.1.zip", "tool-2.0.zip", "lib-1.0.zip"] {
        server.root().release("root/dev", filename);
    }
    let root = Browser::root(server.client);
    (server, root)
}

/// What the index says of a file's yank; `None` if it has no such file.
fn yanked(server: &TestServer, filename: &str) -> Option<Value> {
    let page = server.anybody().accept("application/vnd.pypi.simple.v1+json");
    let files = page.get("/root/dev/+simple/tool/").json()["files"].clone();
    let mut files = files.as_array().expect("files").iter();
    let file = files.find(|file| file["filename"] == filename)?;
    Some(if file["yanked"].is_null() { json!(false) } else { file["yanked"].clone() })
}

#[test]
fn projects_and_releases_have_pages() {
    let (_server, mut root) = with_releases();
    assert_snapshot!("releases", shown(&root.get("/+manage/releases/root/dev").text()));
    let some = root.get("/+manage/releases/root/dev?q=li").html();
    assert_snapshot!("releases_by_name", shown(&some));
    assert_snapshot!("project", shown(&root.get(AT).text()));
    assert_snapshot!("release", shown(&root.get(&format!("{AT}?version=1.1")).text()));
    // A mirror has no page for releases, and neither has an unknown project or version.
    for path in ["root/pypi", "root/dev/none", "root/dev/lib?version=9"] {
        root.get(&format!("/+manage/releases/{path}")).expect(404);
    }
}

#[test]
fn releases_and_files_are_yanked_with_a_reason_and_back() {
    let (server, mut root) = with_releases();
    let mut page = root.get(&format!("{AT}?version=1.1")).text();
    for (label, reason, expected) in [
        ("Yank", "it <breaks>", json!("it <breaks>")),
        ("Take the yank back", "", json!(false)),
        ("Yank tool-1.1.zip", "one file", json!("one file")),
        ("Take the yank of tool-1.1.zip back", "", json!(false)),
    ] {
        let reason = (!reason.is_empty()).then_some(("reason", reason));
        page = root.submit(&page, label, reason.as_slice()).expect(200).text();
        assert_eq!(yanked(&server, "tool-1.1.zip"), Some(expected), "{label}");
        if label == "Yank" {
            page.says("“it &#60;breaks&#62;”");
        }
    }
    root.submit(&page, "Yank", &[("reason", &"x".repeat(2_000))]).expect(400);
    assert_eq!(yanked(&server, "tool-1.1.zip"), Some(json!(false)));
}

#[test]
fn a_release_is_pushed_to_where_it_may_go() {
    let (server, mut root) = with_releases();
    let page = root.get(&format!("{AT}?version=1.1")).text();
    root.submit(&page, "Push", &[("target", "root/stable"), ("content", "all")]).expect(200);
    assert_eq!(server.get("/root/stable/+simple/tool/").files(), "tool-1.1.zip");
    for (target, status, told) in [
        ("root/none", 404, "Nothing was changed. The stage root/none could not be found."),
        ("prod", 400, "Nothing was changed. targetindex not in format user/index"),
        (
            "root/pypi",
            403,
            "Nothing was changed. no permission to upload to 'root/pypi': `root` is not in `acl_upload` of root/pypi",
        ),
        (
            "http://127.0.0.1:1/",
            502,
            "Nothing was changed. The other server did not take all of it: -1 exception on release upload: no public address is known for `127.0.0.1`; `egress_allow` of the configuration may name others",
        ),
    ] {
        let refused = root.submit(&page, "Push", &[("target", target), ("content", "all")]);
        refused.tells(status, told);
    }
}

/// Removing takes the name and, where files are to stay, one word more.
#[test]
fn releases_and_files_are_removed_by_their_names() {
    let (server, mut root) = with_releases();
    for (values, status) in [
        (&[("confirm", "1.1")][..], 422),
        (&[("confirm", "1.0")], 403),
        (&[("confirm", "1.0"), ("force", "yes")], 200),
    ] {
        root.fill(&format!("{AT}?version=1.0"), "Remove", values).expect(status);
        assert_eq!(yanked(&server, "tool-1.0.zip").is_none(), status == 200, "{values:?}");
    }
    let page = root.get(&format!("{AT}?version=2.0")).text();
    let file = [("confirm", "tool-2.0.zip"), ("force", "yes")];
    root.submit(&page, "Remove tool-2.0.zip", &file[1..]).expect(422);
    root.submit(&page, "Remove tool-2.0.zip", &file).expect(200);
    assert_eq!(yanked(&server, "tool-2.0.zip"), None);
}

#[test]
fn a_project_gets_a_status_and_is_removed_by_its_name() {
    let (_server, mut root) = with_releases();
    let project = root.get(AT).text();
    root.submit(&project, "Status", &[("status", "deprecated"), ("reason", "old")]).expect(200);
    root.get("/root/dev/tool").says("This project is deprecated");
    root.submit(&project, "Status", &[("status", "active")]).expect(200);
    root.get("/root/dev/tool").lacks("This project is");
    let all = [("confirm", "tool"), ("force", "yes")];
    root.submit(&project, "Remove the project", &all[1..]).expect(422);
    root.submit(&project, "Remove the project", &all)
        .expect(303)
        .has("location", "/+manage/releases/root/dev");
    root.get(AT).expect(404);
}

/// The page of the project in an index that `alice` may read.
const UP: &str = "/+manage/releases/root/up/tool";

/// A server with an index that `alice` may read, one that she may not, and one of hers; and the browsers of `root` and of her.
fn with_reader() -> (TestServer, Browser, Browser) {
    let server = start();
    server.add_user("alice", "staple");
    for (name, config) in [
        ("root/up", json!({"policy_quarantine": ["tool==1.1 for a look"]})),
        ("root/dev", json!({"acl_read": ["root"]})),
        ("alice/own", json!({})),
    ] {
        server.root().put(&format!("/{name}"), config).expect(200);
    }
    for (index, filename) in
        [("root/up", "tool-1.0.zip"), ("root/up", "tool-1.1.zip"), ("root/dev", "hidden-1.0.zip")]
    {
        server.root().release(index, filename);
    }
    let root = Browser::root(server.client);
    let alice = Browser::of(server.client, "alice", "staple");
    (server, root, alice)
}

#[test]
fn a_reader_pushes_what_they_may_read_and_is_offered_nothing_else() {
    let (server, mut root, mut alice) = with_reader();
    let page = alice.get(&format!("{UP}?version=1.0")).text();
    alice.submit(&page, "Push", &[("target", "alice/own"), ("content", "all")]).expect(200);
    // She may not push what a policy hides from her.
    let values = [("version", "1.1"), ("target", "alice/own")];
    let refused = alice.submit(&page, "Push", &values);
    assert!(matches!(refused.status, 403 | 404), "{}: {}", refused.status, refused.text());
    assert_eq!(server.get("/alice/own/+simple/tool/").files(), "tool-1.0.zip");
    assert_snapshot!("release_for_readers", shown(&page));
    alice.get(&format!("{UP}?version=1.1")).expect(404);
    root.get(&format!("{UP}?version=1.1")).expect(200);
}

#[test]
fn releases_that_one_may_not_read_have_no_page() {
    let (server, mut root, mut alice) = with_reader();
    for path in ["root/dev", "root/dev/hidden", "root/none"] {
        alice.get(&format!("/+manage/releases/{path}")).expect(404).lacks("may not");
        Browser::new(server.client).get(&format!("/+manage/releases/{path}")).expect(401);
    }
    root.get("/+manage/releases/root/dev").says(">hidden<");
}

/// A user sends the forms of a user with more rights, with a form token of their own.
#[test]
fn forms_of_releases_do_nothing_for_users_without_the_right() {
    let (server, mut root, mut alice) = with_reader();
    let token = field(&alice.get("/+account").text(), "New token", "form");
    let page = root.get(&format!("{UP}?version=1.0")).text();
    let project = root.get(UP).text();
    let secret = root.get("/+manage/releases/root/dev/hidden?version=1.0").text();
    for (page, label, more) in [
        (&page, "Yank", ("reason", "x")),
        (&page, "Yank tool-1.0.zip", ("reason", "x")),
        (&page, "Remove", ("confirm", "1.0")),
        (&page, "Remove tool-1.0.zip", ("confirm", "tool-1.0.zip")),
        (&project, "Status", ("status", "quarantined")),
        (&project, "Remove the project", ("confirm", "tool")),
        (&secret, "Yank", ("reason", "x")),
        (&secret, "Push", ("target", "alice/own")),
        (&secret, "Remove", ("confirm", "1.0")),
    ] {
        let refused = alice.submit(page, label, &[("form", &token), more]);
        refused.expect_one_of([401, 403, 404]).lacks("hidden-1.0.zip");
    }
    for (page, files) in [
        ("/root/up/+simple/tool/", "tool-1.0.zip"),
        ("/root/dev/+simple/hidden/", "hidden-1.0.zip"),
    ] {
        assert_eq!(server.root().get(page).lacks("data-yanked").files(), files);
    }
    server.client.get("/alice/own/+simple/").lacks("hidden");
}

#[test]
fn the_owner_of_an_index_is_not_offered_releases_that_they_may_not_read() {
    let (server, mut root, mut alice) = with_reader();
    let link = "/+manage/releases/alice/own";
    alice.get("/+manage/indexes/alice/own").says(link);
    server.root().patch("/alice/own", json!({"acl_read": ["root"]})).expect(200);
    alice.get("/+manage/indexes/alice/own").expect(200).lacks(link);
    alice.get(link).expect(404);
    root.get("/+manage/indexes/alice/own").says(link);
}
