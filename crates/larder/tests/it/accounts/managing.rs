//! Managing users and indexes in a browser: every form does what the call of a program does, and only with the right.

mod releases;

use insta::assert_snapshot;
use serde_json::{Value, json};
use testbed::Upstream;

use crate::asking::{Says as _, each};
use crate::browser::{Browser, encoded, field, form};
use crate::client::Response;
use crate::pages::check_harmless;
use crate::python::mirrors::{file, list, page};
use crate::server::{ROOT_PASSWORD, TestServer};
use crate::shown::shown;

fn start() -> TestServer {
    TestServer::without_aur(|_| ())
}

/// A server, and the browser of `root`.
fn with_root() -> (TestServer, Browser) {
    let server = start();
    let root = Browser::root(server.client);
    (server, root)
}

/// The field with the password of `root`, which everything that grants rights asks for.
const OWN: (&str, &str) = ("own", ROOT_PASSWORD);

/// A server with `alice`, and the browsers of `root` and of her.
fn with_alice() -> (TestServer, Browser, Browser) {
    let server = start();
    server.add_user("alice", "staple");
    let browsers = [("root", ROOT_PASSWORD), ("alice", "staple")]
        .map(|(name, password)| Browser::of(server.client, name, password));
    let [root, alice] = browsers;
    (server, root, alice)
}

/// The page of `alice` for administrators.
const ALICE: &str = "/+manage/users/alice";

#[test]
fn users_are_made_with_the_administrators_password() {
    let (server, mut root) = with_root();
    let page = root.get("/+manage").text();
    let values = [("name", "alice"), ("password", "staple"), ("email", "alice@host.example"), OWN];
    root.submit(&page, "New user", &values[..3]).expect(403);
    root.submit(&page, "New user", &values).expect(303).has("location", ALICE);
    root.submit(&page, "New user", &values).tells(409, "Nothing was changed. user already exists");
    Browser::of(server.client, "alice", "staple");
    assert_snapshot!("user", shown(&root.get(ALICE).html()));
}

#[test]
fn groups_open_pages_and_close_them() {
    let (_server, mut root, mut alice) = with_alice();
    let page = root.get(ALICE).text();
    let form = "aria-label=\"New user\"";
    alice.get("/+manage").lacks(form);
    root.submit(&page, "Groups", &[("groups", "team admin"), OWN]).expect(200);
    alice.get("/+manage").says(form);
    root.submit(&page, "Groups", &[("groups", "a b/c"), OWN]).expect(422);
    root.submit(&page, "Groups", &[("groups", ""), OWN]).expect(200);
    alice.get("/+manage").lacks(form);
}

#[test]
fn an_administrators_browser_alone_makes_no_other_administrator() {
    let (_server, mut root, mut alice) = with_alice();
    for (label, field) in [("Groups", "groups"), ("Set the password", "password")] {
        for own in ["", "wrong"] {
            root.fill(ALICE, label, &[(field, "admin"), ("own", own)]).expect(403);
        }
    }
    alice.get("/+manage").lacks("aria-label=\"New user\"");
}

#[test]
fn after_a_refused_form_the_browser_still_knows_what_it_has_seen() {
    let (_server, mut root, _) = with_alice();
    let page = root.get(ALICE).text();
    root.submit(&page, "Groups", &[("groups", "team"), OWN]).expect(200);
    let seen = |browser: &Browser| {
        let cookie = browser.cookies["larder-session"].split('.').nth(1).map(str::to_owned);
        cookie.and_then(|seen| seen.parse::<u64>().ok()).expect("a serial")
    };
    let before = seen(&root);
    assert!(before > 0);
    root.submit(&page, "Delete", &[("confirm", "bob")]).expect(422);
    assert_eq!(seen(&root), before);
}

#[test]
fn a_password_that_an_administrator_sets_ends_the_sessions() {
    let (server, mut root, mut alice) = with_alice();
    root.fill(ALICE, "Set the password", &[("password", "n3w"), OWN]).expect(200);
    alice.get("/+account").says("<h1>Log in</h1>");
    Browser::of(server.client, "alice", "n3w");
}

#[test]
fn nothing_of_a_disabled_user_is_taken_until_they_are_enabled() {
    let (server, mut root, mut alice) = with_alice();
    root.fill(ALICE, "Disable", &[]).expect(200);
    alice.get("/+account").says("<h1>Log in</h1>");
    Browser::new(server.client).log_in("alice", "staple").expect(401);
    let page = root.get(ALICE).text();
    assert_snapshot!("disabled", shown(&page));
    root.submit(&page, "Enable", &[]).expect(403);
    root.submit(&page, "Enable", &[OWN]).expect(200);
    // Their session stays over.
    alice.get("/+account").says("<h1>Log in</h1>");
    alice.log_in("alice", "staple").expect(303);
    alice.get("/+account").says("<h1>alice</h1>");
}

#[test]
fn a_user_is_deleted_by_their_name() {
    let (_server, mut root, _) = with_alice();
    root.fill(ALICE, "Delete", &[("confirm", "alic")]).expect(422);
    root.fill(ALICE, "Delete", &[("confirm", "alice")]).expect(303).has("location", "/+manage");
    root.get(ALICE).expect(404);
}

/// `root` stays, and changes the own password where the old one is asked for.
#[test]
fn administrators_neither_remove_themselves_nor_skip_their_password() {
    let (server, mut root) = with_root();
    let page = root.get("/+manage/users/root").text();
    assert_snapshot!("root", shown(&page));
    let (action, mut fields) = form(&page, "Profile");
    fields.retain(|(name, _)| name == "form");
    for (what, field, value) in
        [("disable", "confirm", ""), ("delete", "confirm", "root"), ("password", "password", "n3w")]
    {
        let more = [("do".into(), what.to_owned()), (field.into(), value.to_owned())];
        let fields: Vec<_> = fields.iter().cloned().chain(more).collect();
        root.post(&action, &encoded(&fields)).expect(403);
    }
    Browser::root(server.client);
}

/// The page of the index that the tests below change.
const DEV: &str = "/+manage/indexes/root/dev";

/// A server with the index `root/dev`, and the browser of `root`.
fn with_index() -> (TestServer, Browser) {
    let server = start();
    let index = json!({"title": "Ours", "acl_read": ["root", ":team"]});
    server.root().put("/root/dev", index).expect(200);
    let root = Browser::root(server.client);
    (server, root)
}

/// The configuration of an index.
fn config(server: &TestServer, name: &str) -> Value {
    server.root().get(&format!("/{name}")).expect(200).json()["result"].clone()
}

#[test]
fn indexes_and_mirrors_are_made() {
    let (server, mut root) = with_root();
    let page = root.get("/+manage").text();
    let values =
        [("name", "root/dev"), ("is.title", "Ours"), ("is.acl_read", "root\r\n:team"), OWN];
    // Changing rights needs the password again, in case the browser is unattended.
    root.submit(&page, "New index", &values[..3]).expect(403);
    root.submit(&page, "New index", &values).has("location", DEV);
    let mirror = [("name", "root/pypi"), ("is.mirror_url", "https://upstream.example/simple/")];
    root.submit(&page, "New index", &mirror).expect(200).says("The index is made.");
    assert_eq!(config(&server, "root/pypi")["type"], json!("mirror"));
    // What was typed stays if it is refused.
    let values = [("name", "root/none"), ("is.bases", "nobody/none"), ("is.title", "Kept")];
    let refused = root.submit(&page, "New index", &values);
    refused.tells(400, "Nothing was changed. base index 'nobody/none' does not exist");
    refused.says(["<details open><summary>A new index or mirror", "value=\"Kept\""]);
    root.get("/+manage").lacks("<details open");
    root.submit(&page, "New index", &[("name", "root")]).expect(422);
    root.submit(&page, "New index", &[("name", "nobody/dev")]).expect(404);
    assert_eq!(config(&server, "root/dev")["acl_read"], json!(["root", ":team"]));
}

/// Only changes are sent, so that the credentials of a mirror stay.
#[test]
fn credentials_of_a_mirror_are_kept_and_not_shown() {
    let (server, mut root) = with_root();
    let mirror =
        [("name", "root/pypi"), ("is.mirror_url", "https://user:secret@upstream.example/simple/")];
    root.fill("/+manage", "New index", &mirror).expect(200).lacks("secret");
    let has_credentials = || {
        let state = server.stored();
        let records = state.index.records().map(|record| record.body.unwrap_or_default());
        let mut bodies = records.map(|body| String::from_utf8_lossy(&body).into_owned());
        bodies.any(|body| body.contains("user:secret@upstream.example"))
    };
    assert!(has_credentials());
    let page = root.get("/+manage/indexes/root/pypi");
    page.lacks("secret");
    root.submit(&page.text(), "Settings", &[("is.title", "The world")]).expect(200);
    assert_eq!(config(&server, "root/pypi")["title"], json!("The world"));
    assert!(has_credentials(), "its credentials are still there");
}

/// A form that was shown before another change changes only what its user changed.
#[test]
fn settings_that_another_user_changed_meanwhile_stay() {
    let (server, mut root) = with_index();
    let page = root.get(DEV).text();
    server.root().patch("/root/dev", json!(["acl_upload=root,:ci"])).expect(200);
    let values = [("is.title", "Still ours"), ("is.acl_read", "root\r\n:other\r\n"), OWN];
    for (label, values) in
        [("Settings", &values[..2]), ("Settings", &[values[1], ("own", "wrong")])]
    {
        root.submit(&page, label, values).expect(403);
    }
    assert_eq!(config(&server, "root/dev")["title"], json!("Ours"));
    root.submit(&page, "Settings", &values).expect(200);
    let now = config(&server, "root/dev");
    assert_eq!(now["title"], json!("Still ours"));
    assert_eq!(now["acl_read"], json!(["root", ":other"]));
    assert_eq!(now["acl_upload"], json!(["root", ":ci"]));
}

#[test]
fn what_would_change_is_said_before_it_is_saved() {
    let (server, mut root) = with_index();
    server.add_user("team", "pw");
    for (name, bases) in [
        ("team/other", json!([])),
        ("team/heir", json!(["root/dev", "team/other"])),
        ("team/child", json!(["root/dev"])),
    ] {
        server.root().put(&format!("/{name}"), json!({"bases": bases})).expect(200);
    }
    let page = root.get(DEV);
    page.lacks("team/heir");
    let wishes =
        [("is.acl_read", "root\r\n"), ("is.policy_cooldown_days", "7"), ("preview", "yes")];
    let preview = root.submit(&page.text(), "Settings", &wishes);
    preview.tells(200, "This would change:\nWho may read: without “:team”.\nRefuse files younger than this many days: “7” instead of nothing.");
    preview.says("It does not judge what <code>team/heir</code> shows");
    let now = config(&server, "root/dev");
    assert_eq!(now["acl_read"], json!(["root", ":team"]));
    assert_eq!(now.get("policy_cooldown_days"), None);
    // What was typed is still there.
    let saved = root.submit(&preview.text(), "Settings", &[OWN]).expect(200);
    let now = config(&server, "root/dev");
    assert_eq!(now["acl_read"], json!(["root"]));
    assert_eq!(now["policy_cooldown_days"], json!(7));
    // All that the other heir has is judged.
    saved
        .tells(200, "The settings are changed.")
        .says("It does not judge what <code>team/heir</code> shows");
    for (field, value, status, says) in [
        (
            "is.policy_cutoff",
            "soon",
            400,
            "Nothing was changed. 'policy_cutoff' cannot be soon: a day or a time was expected, as DATE or TIME",
        ),
        (
            "is.custom_data",
            "{",
            422,
            "Nothing was changed. the value of `custom_data` is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("is.volatile", "yes", 200, "Nothing would change."),
    ] {
        let values = [(field, value), ("preview", "yes")];
        root.submit(&saved.text(), "Settings", &values).tells(status, says);
    }
    // What everybody may read says so.
    let fields = form(&root.get("/+manage/indexes/team/heir").text(), "Settings").1;
    assert!(fields.contains(&("is.acl_read".to_owned(), ":ANONYMOUS:".to_owned())), "{fields:?}");
    // An empty field drops the setting.
    root.submit(&saved.text(), "Settings", &[("is.policy_cooldown_days", "")]).expect(200);
    assert_eq!(config(&server, "root/dev").get("policy_cooldown_days"), None);
}

/// The users and groups that a page offers for its lists of rights.
fn offered(page: &Response) -> String {
    let text = page.text();
    let options = text.split("<option value=\"").filter_map(|it| it.split_once("\"></option>"));
    options.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Users and groups are offered to administrators; what is chosen goes into the list.
#[test]
fn users_and_groups_are_chosen() {
    let (server, mut root) = with_index();
    server.add_user("ann", "staple");
    server.root().put("/ann/dev", json!({})).expect(200);
    let page = root.get(DEV);
    let names = ":ANONYMOUS: :AUTHENTICATED: ann root";
    assert_eq!(offered(&page), names);
    let chosen = [("add.acl_read", "ann"), ("preview", "yes")];
    let preview = root.submit(&page.text(), "Settings", &chosen).expect(200);
    preview.tells(200, "This would change:\nWho may read: with “ann”.");
    let saved = root.submit(&preview.text(), "Settings", &[OWN]).expect(200);
    assert_eq!(config(&server, "root/dev")["acl_read"], json!(["root", ":team", "ann"]));
    root.submit(&saved.text(), "Settings", &chosen).tells(200, "Nothing would change.");
    let several = [("add.acl_upload", ":ci, ann"), OWN];
    root.submit(&saved.text(), "Settings", &several).expect(200);
    assert_eq!(config(&server, "root/dev")["acl_upload"], json!(["root", ":ci", "ann"]));
    // For a new index, too.
    let manage = root.get("/+manage");
    assert_eq!(offered(&manage), names);
    let values = [("name", "root/new"), ("is.acl_read", "root"), ("add.acl_read", "ann, :ci"), OWN];
    root.submit(&manage.text(), "New index", &values).expect(303);
    assert_eq!(config(&server, "root/new")["acl_read"], json!(["root", "ann", ":ci"]));
    // Others do not learn who is there.
    let mut ann = Browser::of(server.client, "ann", "staple");
    for target in ["/+manage/indexes/ann/dev", "/+manage"] {
        assert_eq!(offered(&ann.get(target)), ":ANONYMOUS: :AUTHENTICATED: ann", "{target}");
    }
}

/// Two users change the same list: no change is undone, and the second sees the first one's.
#[test]
fn a_list_that_another_user_changed_is_shown_before_it_is_changed() {
    let (server, mut root) = with_index();
    server.root().patch("/root/dev", json!(["acl_upload=root,:ci"])).expect(200);
    let page = root.get(DEV).text();
    server.root().patch("/root/dev", json!(["acl_upload-=:ci"])).expect(200);
    let values = [("is.acl_upload", "root\n:ci\nbob"), ("is.title", "Not this"), OWN];
    let late = root.submit(&page, "Settings", &values);
    late.tells(409, "Nothing was changed. Somebody else changed `acl_upload` since you loaded the page. This is how the settings are now: look at them, and change yours again.");
    let now = config(&server, "root/dev");
    assert_eq!((&now["acl_upload"], &now["title"]), (&json!(["root"]), &json!("Ours")));
    root.submit(&late.text(), "Settings", &[("is.acl_upload", "root\r\nbob"), OWN]).expect(200);
    assert_eq!(config(&server, "root/dev")["acl_upload"], json!(["root", "bob"]));
}

#[test]
fn custom_data_is_json_and_is_not_made_again_where_it_was_removed() {
    let (server, mut root) = with_index();
    server.root().patch("/root/dev", json!({"custom_data": {"a": [1]}})).expect(200);
    let page = root.get(DEV).text();
    root.submit(&page, "Settings", &[("is.custom_data", "{")]).expect(422);
    root.submit(&page, "Settings", &[("is.custom_data", "{\"a\": [1, 2]}")]).expect(200);
    assert_eq!(config(&server, "root/dev")["custom_data"], json!({"a": [1, 2]}));
    let page = root.get(DEV).text();
    server.root().patch("/root/dev", json!(["custom_data-="])).expect(200);
    root.submit(&page, "Settings", &[("is.custom_data", "1")]).expect(409);
}

#[test]
fn a_number_can_be_set_and_an_invalid_value_is_reported() {
    let (server, mut root) = with_index();
    let page = root.get(DEV).text();
    page.lacks("One setting by its name");
    root.submit(&page, "Settings", &[("is.retention_versions", "2")]).expect(200);
    assert_eq!(config(&server, "root/dev")["retention_versions"], json!(2));
    let page = root.get(DEV).text();
    let refused = root.submit(&page, "Settings", &[("is.retention_versions", "many")]);
    refused.tells(400, "Nothing was changed. 'retention_versions' cannot be many: a whole number from 0 to 4294967295 was expected");
}

#[test]
fn a_release_is_quarantined_with_a_reason_and_released() {
    let (server, mut root) = with_index();
    server.root().release("root/dev", "evil-1.0.zip");
    let reason = "stolen token, see the report";
    let values = [("project", "evil"), ("version", "1.0"), ("reason", reason)];
    root.fill(DEV, "Quarantine", &values).expect(200);
    let files = || server.root().get("/root/dev/+simple/evil/").files();
    assert_eq!(files(), "");
    let page = root.get(DEV).text();
    page.says(reason);
    let config = config(&server, "root/dev");
    let item = config["policy_quarantine"][0].as_str().expect("an item");
    root.submit(&page, &format!("Release {item}"), &[]).expect(200);
    assert_eq!(files(), "evil-1.0.zip");
}

#[test]
fn old_versions_are_looked_at_and_then_removed() {
    let (server, mut root) = with_index();
    for filename in ["evil-1.0.zip", "evil-2.0.zip"] {
        server.root().release("root/dev", filename);
    }
    let looked = root.fill(DEV, "Old versions", &[("versions", "1"), ("do", "look")]);
    looked.tells(200, "Would be removed, 130 B in all:").says("evil 1.0");
    let files = || server.root().get("/root/dev/+simple/evil/").files();
    assert_eq!(files(), "evil-2.0.zip evil-1.0.zip");
    root.submit(&looked.text(), "Old versions", &[("do", "remove")]).expect(200);
    assert_eq!(files(), "evil-2.0.zip");
}

#[test]
fn an_index_is_deleted_by_its_name() {
    let (_server, mut root) = with_index();
    root.fill(DEV, "Delete", &[("confirm", "root/de")]).expect(422);
    root.fill(DEV, "Delete", &[("confirm", "root/dev")]).expect(303);
    root.get(DEV).expect(404);
}

/// The pages offer what the calls allow, whoever the configuration names.
#[test]
fn upstream_is_asked_again_in_a_browser() {
    let upstream = Upstream::start();
    let page_of = |files: &[&str]| {
        page("foo", files.iter().map(|name| file(&upstream, name, b"x")).collect())
    };
    upstream.offer("/simple/", list(&["foo"]));
    upstream.offer("/simple/foo/", page_of(&["foo-1.0.tar.gz"]));
    let server = TestServer::without_aur(|config| {
        config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    let mut root = Browser::root(server.client);
    let url = upstream.url("/simple/");
    let values = [("name", "root/pypi"), ("is.mirror_url", url.as_str())];
    let manage = root.get("/+manage").text();
    root.submit(&manage, "New index", &values).expect(303);
    let installer = ("Accept", "application/vnd.pypi.simple.v1+json");
    let files = || {
        let page = server.client.get_with("/root/pypi/+simple/foo/", &[installer]).json();
        page["files"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(files(), 1);
    upstream.offer("/simple/foo/", page_of(&["foo-1.0.tar.gz", "foo-2.0.tar.gz"]));
    assert_eq!(files(), 1, "what is known is fresh for half an hour");
    let page = root.get("/+manage/indexes/root/pypi").text();
    let asked = upstream.count("/simple/foo/");
    let again = root.submit(&page, "Ask upstream again", &[("project", "Foo")]);
    again.tells(200, "Upstream was asked again.");
    assert_eq!((upstream.count("/simple/foo/"), files()), (asked + 1, 2));
    // An invalid name.
    root.submit(&page, "Ask upstream again", &[("project", "no name")]).expect(422);
    upstream.break_with(Some(500));
    let failed = root.submit(&page, "Ask upstream again", &[("project", "foo")]);
    failed.tells(502, "Nothing was changed. the mirror root/pypi has no usable answer from its upstream: 127.0.0.1:PORT: it answered 500 Internal Server Error; the last good page stays, as confirmed TIME");
    assert_eq!(files(), 2, "an upstream that fails takes nothing away");
    // Only mirrors have this form.
    let values = [("name", "root/dev")];
    root.submit(&manage, "New index", &values).expect(303);
    root.get("/+manage/indexes/root/dev").lacks("Ask upstream again");
}

/// The form that makes or changes a mirror says what fails.
#[test]
fn a_mirror_is_tried_in_a_browser() {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo"]));
    let server = start();
    let mut root = Browser::root(server.client);
    let url = upstream.url("/simple/");
    let values = [("name", "root/pypi"), ("is.mirror_url", url.as_str())];
    let manage = root.get("/+manage").text();
    root.submit(&manage, "New index", &values).tells(200, "The upstream fails. no public address is known for `127.0.0.1`; `egress_allow` of the configuration may name others\nThe index is made.");
    assert_eq!(config(&server, "root/pypi")["mirror_url"], json!(url));
    for (more, told) in [
        (
            ("is.mirror_cache_expiry", "60"),
            "The upstream fails. no public address is known for `127.0.0.1`; `egress_allow` of the configuration may name others\nThe settings are changed.",
        ),
        (("is.title", "Theirs"), "The settings are changed."),
    ] {
        let page = root.get("/+manage/indexes/root/pypi");
        page.lacks("The upstream fails.");
        root.submit(&page.text(), "Settings", &[more]).tells(200, told);
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn whom_the_configuration_names_manages() {
    let server = TestServer::without_aur(|config| {
        config.python.restrict_modify = "keeper".parse().expect("a list");
    });
    ["keeper", "alice"].iter().for_each(|name| server.add_user(name, "staple"));
    server.root().put("/alice/dev", "{}").expect(200);
    let mut keeper = Browser::of(server.client, "keeper", "staple");
    let mut alice = Browser::of(server.client, "alice", "staple");
    assert_snapshot!("manage", shown(&keeper.get("/+manage").text()));
    keeper.fill("/+manage/indexes/alice/dev", "Settings", &[("is.title", "Kept")]).expect(200);
    let page = keeper.get("/+manage/users/alice").text();
    keeper.submit(&page, "Profile", &[("title", "Kept")]).expect(200);
    page.lacks("aria-label=\"Disable\"");
    // The owner may not, and is offered nothing.
    alice.get("/+manage").lacks("/+manage/indexes/alice/dev");
    alice.get("/+manage/indexes/alice/dev").expect(403);
    assert_snapshot!("user_for_herself", shown(&alice.get("/+manage/users/alice").text()));
}

/// Each group is on one of the pages, however many there are.
#[test]
fn groups_are_shown_in_pages() {
    let server = start();
    let all: Vec<String> = (0..450).map(|number| format!("team-{number:03}")).collect();
    let mut root = Browser::root(server.client);
    for (user, groups) in [("alice", &all[..]), ("bob", &all[..1])] {
        server.add_user(user, "staple");
        let page = root.get(&format!("/+manage/users/{user}")).text();
        let values = [("groups", &*groups.join(" ")), ("own", ROOT_PASSWORD)];
        root.submit(&page, "Groups", &values).expect(200);
    }
    let mut shown = Vec::new();
    let mut next = Some(String::new());
    while let Some(query) = next {
        let page = root.get(&format!("/+manage/groups?{query}")).text();
        let names = page.split("<dt>").skip(1).filter_map(|rest| rest.split('<').next());
        let before = shown.len();
        shown.extend(names.map(str::to_owned));
        assert!((1..=200).contains(&(shown.len() - before)), "{page}");
        let link = page.split_once("<a href=\"?").map(|(_, rest)| rest.split('"').next());
        next = link.flatten().map(|query| query.replace("&#38;", "&"));
    }
    assert_eq!(shown, all);
    let found = root.get("/+manage/groups?q=team-00&after=team-008").text();
    assert_snapshot!("groups_by_name", crate::shown::shown(&found));
    root.get("/+manage/groups?q=team-000").says(["/users/alice\"", "/users/bob\""]);
    root.get("/+manage/groups?q=%3Cb%3E").says("No user is in such a group").lacks("<b>");
}

#[test]
fn administrators_see_groups_and_make_tokens_for_others() {
    let server = start();
    server.add_user("alice", "staple");
    let mut root = Browser::root(server.client);
    let page = root.get(ALICE).text();
    root.submit(&page, "Groups", &[("groups", "team ci"), OWN]).expect(200);
    assert_snapshot!("groups", shown(&root.get("/+manage/groups").text()));
    // A token outlives the session, so the password is asked for.
    let wish = [("scope", "python:upload"), ("indexes", "alice/dev"), ("comment", "ci <b>"), OWN];
    for values in [&wish[..3], &[wish[0], ("own", "wrong")]] {
        root.submit(&page, "New token", values).expect(403);
    }
    root.submit(&page, "New token", &[("expires", "never mind"), wish[0], OWN]).expect(422);
    let text = root.submit(&page, "New token", &wish).expect(200).text();
    let token = text.split("<pre><code>").nth(1).and_then(|rest| rest.split('<').next());
    let token = token.expect("a token").to_owned();
    text.says("ci &#60;b&#62;");
    // The token is valid, but lacks the right to manage tokens.
    server.bearer(&token).get("/+tokens").expect(403);
    let listed = server.root().get("/+tokens?user=alice").json();
    assert_eq!(listed["tokens"][0]["indexes"], json!(["alice/dev"]), "{listed}");
    // It is shown once.
    root.get("/+manage/users/alice").lacks(&token);
    // Others neither see the groups nor make tokens.
    let mut alice = Browser::of(server.client, "alice", "staple");
    alice.get("/+manage/groups").expect(403);
    Browser::new(server.client).get("/+manage/groups").expect(401);
    let hers = field(&alice.get("/+account").text(), "New token", "form");
    for target in ["root", "alice"] {
        let fields = [("form", hers.as_str()), ("do", "token"), ("scope", "*"), ("own", "wrong")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        alice.post(&format!("/+manage/users/{target}"), &encoded(&fields)).expect(403);
    }
}

#[test]
fn without_a_python_index_there_is_none_to_manage() {
    let server = TestServer::without_aur(|config| {
        config.python.enabled = false;
    });
    let mut root = Browser::root(server.client);
    root.get("/+manage").expect(200);
    root.get("/+manage/indexes/root/dev").expect(404);
    for target in ["/+manage/indexes", "/+manage/indexes/root/dev"] {
        root.post(target, "name=root/dev").expect(404);
    }
}

/// A server on which `alice` and `bob` have an index each that only they may read.
fn with_two_users() -> TestServer {
    let server = start();
    for name in ["alice", "bob"] {
        server.add_user(name, "staple");
        server.root().put(&format!("/{name}/secret"), json!({"acl_read": [name]})).expect(200);
    }
    server
}

#[test]
fn without_a_right_pages_lack_the_lists_and_the_forms_for_it() {
    let server = with_two_users();
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = alice.get("/+manage").text();
    page.says("alice/secret");
    page.lacks("bob");
    alice.get("/+manage/indexes/bob/secret").expect(404);
    alice.get("/+manage/users/bob").expect(403);
    for target in ["/+manage", "/+manage/users/alice", "/+manage/indexes/alice/secret"] {
        Browser::new(server.client).get(target).expect(401);
    }
}

/// A user who is no administrator sends each form of the administrator's pages, with their own token.
#[test]
fn nobody_manages_what_is_not_theirs() {
    let server = with_two_users();
    let mut alice = Browser::of(server.client, "alice", "staple");
    let root = Browser::root(server.client);
    let token = field(&alice.get("/+account").text(), "New token", "form");
    let forms = [
        ("/+manage", &["New user", "New index"][..]),
        ("/+manage/users/bob", &["Profile", "Set the password", "Groups", "Disable", "Delete"]),
        ("/+manage/indexes/bob/secret", &["Settings", "Quarantine", "Old versions", "Delete"]),
    ];
    let rows =
        forms.iter().flat_map(|(target, labels)| labels.iter().map(move |it| (*target, *it)));
    each(rows, |(target, label)| {
        let (mut root, mut alice) = (root.clone(), alice.clone());
        let (action, mut fields) = form(&root.get(target).text(), label);
        for (name, value) in &mut fields {
            match name.as_str() {
                "form" => value.clone_from(&token),
                "confirm" if target.starts_with("/+manage/indexes") => *value = "bob/secret".into(),
                "confirm" => *value = "bob".into(),
                "name" if label == "New index" => *value = "bob/other".into(),
                "name" => *value = "mallory".into(),
                "is.acl_read" => *value = "alice".into(),
                _ if value.is_empty() => *value = "1".into(),
                _ => {}
            }
        }
        if label == "Old versions" {
            fields.push(("do".into(), "remove".into()));
        }
        let refused = alice.post(&action, &encoded(&fields));
        let status = refused.status;
        assert!(matches!(status, 403 | 404), "{target} {label}: {status} {}", refused.text());
        // The administrator's page with a token of another user.
        root.post(&action, &encoded(&fields)).expect(403);
    });
    let config = server.root().get("/bob/secret").json();
    assert_eq!(config["result"]["acl_read"], json!(["bob"]));
    Browser::new(server.client).log_in("bob", "staple").expect(303);
}

#[test]
fn what_strangers_wrote_is_shown_as_text() {
    let server = start();
    let attack = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>";
    let user = json!({"password": "staple", "title": attack, "email": attack});
    server.root().put("/alice", user).expect(201);
    let index = json!({"title": attack, "description": attack});
    server.root().put("/alice/dev", index).expect(200);
    let mut root = Browser::root(server.client);
    for target in ["/+manage", "/+manage/users/alice", "/+manage/indexes/alice/dev"] {
        check_harmless(&root.get(target).text(), target);
    }
    let escaped: String = form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    check_harmless(&root.get(&format!("/+manage?q={escaped}")).text(), "a search");
    for (target, label, field) in [
        ("/+manage", "New user", "name"),
        ("/+manage", "New index", "name"),
        ("/+manage", "New index", "is.bases"),
        ("/+manage/users/alice", "Groups", "groups"),
        ("/+manage/users/alice", "Delete", "confirm"),
        ("/+manage/indexes/alice/dev", "Settings", "is.acl_read"),
        ("/+manage/indexes/alice/dev", "Quarantine", "project"),
        ("/+manage/indexes/alice/dev", "Old versions", "versions"),
        ("/+manage/indexes/alice/dev", "Delete", "confirm"),
    ] {
        let page = root.get(target).text();
        let more = (label == "Old versions").then_some(("do", "look"));
        let values: Vec<_> = more.into_iter().chain([(field, attack)]).collect();
        let answer = root.submit(&page, label, &values);
        // Names that no user has yet can be in a list.
        let is_refused = answer.status >= 400 || field == "is.acl_read";
        assert!(is_refused, "{target} {label} {field}: {}", answer.status);
        check_harmless(&answer.text(), &format!("{target} {label} {field}"));
    }
}

#[test]
fn the_audit_log_is_read_and_searched_by_those_who_may() {
    let server = start();
    for name in ["alice", "bob"] {
        server.add_user(name, "staple");
        let path = format!("/{name}/dev");
        server.root().put(&path, json!({"policy_deny": ["evil"]})).expect(200);
    }
    let mut root = Browser::root(server.client);
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = root.get("/+manage/audit").text();
    check_harmless(&page, "the audit log");
    assert_snapshot!("audit", shown(&page));
    let page = root.get("/+manage/audit?index=bob/dev&event=changed&what=").text();
    assert_snapshot!("audit_of_an_index", shown(&page));
    root.get("/+manage/audit?event=served").says("There are no such entries.");
    root.get("/+manage/audit?event=x").expect(400);
    // Others see that of an index that they may change.
    let page = alice.get("/+manage/audit").text();
    assert_snapshot!("audit_for_users", shown(&page));
    alice.get("/+manage/audit?index=alice/dev").says("<span>alice/dev</span>");
    alice.get("/+manage/audit?index=bob/dev").expect(403).lacks("policy_deny");
    alice.get("/+manage/audit?index=bob/none").expect(404);
    let attack = "/+manage/audit?index=%22%3E%3Cscript%3E/x&what=%3Cimg%20src=x%3E";
    check_harmless(&root.get(attack).text(), "filters");
    Browser::new(server.client).get("/+manage/audit").expect(401);
    let first = root.get("/+manage/audit?limit=1").text();
    let next = first.split("href=\"?").nth(1).expect("older entries");
    let next = next.split('"').next().expect("its end").replace("&#38;", "&");
    let second = root.get(&format!("/+manage/audit?{next}")).text();
    second.says("<li><b>changed</b>");
    assert_ne!(second, first);
}

#[test]
fn administrators_see_and_revoke_tokens_of_others() {
    let server = start();
    server.add_user("alice", "staple");
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = alice.get("/+account").text();
    let values = [("comment", "of alice"), ("scope", "article:read"), ("own", "staple")];
    alice.submit(&page, "New token", &values).expect(201);
    let mut root = Browser::root(server.client);
    let page = root.get("/+manage/users/alice").text();
    page.says("of alice");
    let label = page.split("aria-label=\"Revoke ").nth(1).expect("a form");
    let id = label.split('"').next().expect("its end");
    root.submit(&page, &format!("Revoke {id}"), &[]).expect(200);
    root.get("/+manage/users/alice").lacks("of alice");
    root.submit(&page, &format!("Revoke {id}"), &[]).expect(404);
}
