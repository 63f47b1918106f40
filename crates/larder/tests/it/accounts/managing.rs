//! Managing users and indexes in a browser: every form does what the call of a program does, and only with the right.

mod releases;

use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use crate::browser::{Browser, encoded, form};
use crate::pages::check_harmless;
use crate::python::{Upload, sdist};
use crate::server::{ROOT, ROOT_PASSWORD, TestServer};

fn start() -> TestServer {
    TestServer::without_source(|config| config.aur.enabled = false)
}

/// Uploads a source archive of that name.
#[track_caller]
fn upload(server: &TestServer, index: &str, filename: &str) {
    let (content_type, body) = Upload::of(filename, &sdist(filename)).form();
    let headers = [ROOT, ("Content-Type", content_type.as_str())];
    let response = server.client.send("POST", &format!("/{index}/"), &headers, &body);
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn users_are_made_changed_disabled_and_deleted() {
    let server = start();
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let page = root.get("/+manage").text();
    let own = ("own", ROOT_PASSWORD);
    let values = [("name", "alice"), ("password", "staple"), ("email", "alice@host.example"), own];
    assert_eq!(root.submit(&page, "New user", &values[..3]).status, 403);
    let made = root.submit(&page, "New user", &values);
    assert_eq!(
        (made.status, made.header("location")),
        (303, "/+manage/users/alice"),
        "{}",
        made.text()
    );
    let again = root.submit(&page, "New user", &values);
    assert_eq!(again.status, 409);
    assert!(again.text().contains("user already exists"), "{}", again.text());
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = root.get("/+manage/users/alice").text();
    assert!(page.contains("alice@host.example") && page.contains("in 1 browser"), "{page}");
    // Groups, and what they open.
    assert!(!alice.get("/+manage").text().contains("aria-label=\"New user\""));
    assert_eq!(
        root.submit(&page, "Groups", &[("groups", "team admin"), ("own", ROOT_PASSWORD)]).status,
        200
    );
    assert!(alice.get("/+manage").text().contains("aria-label=\"New user\""));
    assert_eq!(
        root.submit(&page, "Groups", &[("groups", "a b/c"), ("own", ROOT_PASSWORD)]).status,
        422
    );
    assert_eq!(root.submit(&page, "Groups", &[("groups", ""), ("own", ROOT_PASSWORD)]).status, 200);
    assert!(!alice.get("/+manage").text().contains("aria-label=\"New user\""));
    // An administrator's browser alone makes no other administrator.
    for (label, field) in [("Groups", "groups"), ("Set the password", "password")] {
        for own in ["", "wrong"] {
            let refused = root.submit(&page, label, &[(field, "admin"), ("own", own)]);
            assert_eq!(refused.status, 403, "{label}: {}", refused.text());
        }
    }
    assert!(!alice.get("/+manage").text().contains("aria-label=\"New user\""));
    // After a refused form the browser still knows what it has seen.
    let seen = |browser: &Browser| {
        let cookie = browser.cookies["larder-session"].split('.').nth(1).map(str::to_owned);
        cookie.and_then(|seen| seen.parse::<u64>().ok()).expect("a serial")
    };
    let before = seen(&root);
    assert!(before > 0);
    assert_eq!(root.submit(&page, "Delete", &[("confirm", "bob")]).status, 422);
    assert_eq!(seen(&root), before);
    // A password that an administrator sets ends the sessions.
    assert_eq!(
        root.submit(&page, "Set the password", &[("password", "n3w"), ("own", ROOT_PASSWORD)])
            .status,
        200
    );
    assert!(alice.get("/+account").text().contains("<h1>Log in</h1>"));
    let mut alice = Browser::of(server.client, "alice", "n3w");
    // Disabled: nothing of hers is taken, and she comes back as she was.
    assert_eq!(root.submit(&page, "Disable", &[]).status, 200);
    assert!(alice.get("/+account").text().contains("<h1>Log in</h1>"));
    assert_eq!(Browser::new(server.client).log_in("alice", "n3w").status, 401);
    let page = root.get("/+manage/users/alice").text();
    assert!(page.contains("disabled"), "{page}");
    assert_eq!(root.submit(&page, "Enable", &[]).status, 403);
    assert_eq!(root.submit(&page, "Enable", &[own]).status, 200);
    assert!(alice.get("/+account").text().contains("<h1>Log in</h1>"), "its session stays over");
    assert_eq!(alice.log_in("alice", "n3w").status, 303);
    assert!(alice.get("/+account").text().contains("<h1>alice</h1>"));
    // Deleting takes the name; `root` stays.
    let page = root.get("/+manage/users/alice").text();
    assert_eq!(root.submit(&page, "Delete", &[("confirm", "alic")]).status, 422);
    let deleted = root.submit(&page, "Delete", &[("confirm", "alice")]);
    assert_eq!(
        (deleted.status, deleted.header("location")),
        (303, "/+manage"),
        "{}",
        deleted.text()
    );
    assert_eq!(root.get("/+manage/users/alice").status, 404);
    let page = root.get("/+manage/users/root").text();
    assert!(!page.contains("aria-label=\"Disable\"") && !page.contains("aria-label=\"Delete\""));
    // One's own password takes the old one, which another page asks for.
    assert!(!page.contains("aria-label=\"Set the password\""), "{page}");
    assert!(page.contains("href=\"/+account#password\""), "{page}");
    let (action, mut fields) = form(&page, "Profile");
    fields.retain(|(name, _)| name == "form");
    for (what, field, value) in
        [("disable", "confirm", ""), ("delete", "confirm", "root"), ("password", "password", "n3w")]
    {
        let more = [("do".into(), what.to_owned()), (field.into(), value.to_owned())];
        let fields: Vec<_> = fields.iter().cloned().chain(more).collect();
        assert_eq!(root.post(&action, &encoded(&fields)).status, 403, "{what}");
    }
    assert_eq!(Browser::new(server.client).log_in("root", ROOT_PASSWORD).status, 303);
}

#[test]
fn indexes_and_mirrors_are_made_changed_and_deleted() {
    let server = start();
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let page = root.get("/+manage").text();
    let own = ("own", ROOT_PASSWORD);
    let values = [("name", "root/dev"), ("title", "Ours"), ("acl_read", "root, :team"), own];
    // Changing rights needs the password again, in case the browser is unattended.
    assert_eq!(root.submit(&page, "New index", &values[..3]).status, 403);
    let made = root.submit(&page, "New index", &values);
    assert_eq!(made.header("location"), "/+manage/indexes/root/dev", "{}", made.text());
    let mirror =
        [("name", "root/pypi"), ("mirror_url", "https://user:secret@upstream.example/simple/")];
    assert_eq!(root.submit(&page, "New index", &mirror).status, 303);
    assert_eq!(root.submit(&page, "New index", &[("name", "root")]).status, 422);
    assert_eq!(root.submit(&page, "New index", &[("name", "nobody/dev")]).status, 404);
    let config = |name: &str| {
        let response = server.client.send("GET", &format!("/{name}"), &[ROOT], b"");
        response.json()["result"].clone()
    };
    assert_eq!(config("root/dev")["acl_read"], json!(["root", ":team"]));
    // Only changes are sent: credentials of a mirror stay, and so do changes by others.
    let has_credentials = |server: &TestServer| {
        let state = server.app.live_store.snapshot_full().expect("a state");
        let records = state.index.records().map(|record| record.body.unwrap_or_default());
        let mut bodies = records.map(|body| String::from_utf8_lossy(&body).into_owned());
        bodies.any(|body| body.contains("user:secret@upstream.example"))
    };
    assert!(has_credentials(&server));
    let page = root.get("/+manage/indexes/root/pypi");
    assert!(!page.text().contains("secret"), "{}", page.text());
    let saved = root.submit(&page.text(), "Settings", &[("is.title", "The world")]);
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert_eq!(config("root/pypi")["title"], json!("The world"));
    assert!(has_credentials(&server), "its credentials are still there");
    let page = root.get("/+manage/indexes/root/dev").text();
    let patch = json!(["acl_upload=root,:ci"]).to_string();
    assert_eq!(server.client.send("PATCH", "/root/dev", &[ROOT], patch.as_bytes()).status, 200);
    let values = [("is.title", "Still ours"), ("is.acl_read", "root\r\n:other\r\n"), own];
    for (label, values) in [
        ("Settings", &values[..2]),
        ("Settings", &[values[1], ("own", "wrong")]),
        ("Another setting", &[("how", "add"), ("key", " acl_upload"), ("value", "mallory")]),
    ] {
        let refused = root.submit(&page, label, values);
        assert_eq!(refused.status, 403, "{label}: {}", refused.text());
    }
    assert_eq!(config("root/dev")["title"], json!("Ours"));
    let saved = root.submit(&page, "Settings", &values);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let now = config("root/dev");
    assert_eq!(
        (&now["title"], &now["acl_read"]),
        (&json!("Still ours"), &json!(["root", ":other"]))
    );
    assert_eq!(now["acl_upload"], json!(["root", ":ci"]));
    // Two users change the same list: no change is undone, and the second sees the first one's.
    let page = root.get("/+manage/indexes/root/dev").text();
    let patch = json!(["acl_upload-=:ci"]).to_string();
    assert_eq!(server.client.send("PATCH", "/root/dev", &[ROOT], patch.as_bytes()).status, 200);
    let values = [("is.acl_upload", "root\n:ci\nbob"), ("is.title", "Not this"), own];
    let late = root.submit(&page, "Settings", &values);
    assert_eq!(late.status, 409, "{}", late.text());
    assert!(late.text().contains("Somebody else changed `acl_upload`"), "{}", late.text());
    let now = config("root/dev");
    assert_eq!((&now["acl_upload"], &now["title"]), (&json!(["root"]), &json!("Still ours")));
    let values = [("is.acl_upload", "root\r\nbob"), own];
    assert_eq!(root.submit(&late.text(), "Settings", &values).status, 200);
    assert_eq!(config("root/dev")["acl_upload"], json!(["root", "bob"]));
    // Custom data stays as it is, and an index that was deleted meanwhile is not changed.
    let patch = json!({"custom_data": {"a": [1]}}).to_string();
    assert_eq!(server.client.send("PATCH", "/root/dev", &[ROOT], patch.as_bytes()).status, 200);
    let page = root.get("/+manage/indexes/root/dev").text();
    let wrong = root.submit(&page, "Settings", &[("is.custom_data", "{")]);
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    let values = [("is.custom_data", "{\"a\": [1, 2]}")];
    assert_eq!(root.submit(&page, "Settings", &values).status, 200);
    assert_eq!(config("root/dev")["custom_data"], json!({"a": [1, 2]}));
    let page = root.get("/+manage/indexes/root/dev").text();
    let patch = json!(["custom_data-="]).to_string();
    assert_eq!(server.client.send("PATCH", "/root/dev", &[ROOT], patch.as_bytes()).status, 200);
    assert_eq!(root.submit(&page, "Settings", &[("is.custom_data", "1")]).status, 409);
    // Any setting can be set, and an invalid value is reported.
    let set = [("key", "retention_versions"), ("value", "2")];
    assert_eq!(
        root.submit(&page, "Another setting", &[("how", "set"), set[0], set[1]]).status,
        200
    );
    assert_eq!(config("root/dev")["retention_versions"], json!(2));
    let wrong = root.submit(
        &page,
        "Another setting",
        &[("how", "set"), ("key", "nonsense"), ("value", "x")],
    );
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("nonsense=x"), "{}", wrong.text());
    // Quarantine with a reason, and its end.
    upload(&server, "root/dev", "evil-1.0.zip");
    let values =
        [("project", "evil"), ("version", "1.0"), ("reason", "stolen token, see the report")];
    assert_eq!(root.submit(&page, "Quarantine", &values).status, 200);
    let simple = server.client.get_with("/root/dev/+simple/evil/", &[ROOT]).text();
    assert!(!simple.contains("evil-1.0.zip"), "{simple}");
    let page = root.get("/+manage/indexes/root/dev").text();
    assert!(page.contains("stolen token, see the report"), "{page}");
    let item = config("root/dev")["policy_quarantine"][0].as_str().expect("an item").to_owned();
    assert_eq!(root.submit(&page, &format!("Release {item}"), &[]).status, 200);
    let simple = server.client.get_with("/root/dev/+simple/evil/", &[ROOT]).text();
    assert!(simple.contains("evil-1.0.zip"), "{simple}");
    // Old versions: looked at, then removed.
    upload(&server, "root/dev", "evil-2.0.zip");
    let looked = root.submit(&page, "Old versions", &[("versions", "1"), ("do", "look")]);
    assert_eq!(looked.status, 200);
    let looked = looked.text();
    assert!(looked.contains("evil 1.0") && looked.contains("Would be removed"), "{looked}");
    let simple = server.client.get_with("/root/dev/+simple/evil/", &[ROOT]).text();
    assert!(simple.contains("evil-1.0.zip"), "only looked at: {simple}");
    assert_eq!(root.submit(&looked, "Old versions", &[("do", "remove")]).status, 200);
    let simple = server.client.get_with("/root/dev/+simple/evil/", &[ROOT]).text();
    assert!(!simple.contains("evil-1.0.zip") && simple.contains("evil-2.0.zip"), "{simple}");
    // Deleted with its name.
    let page = root.get("/+manage/indexes/root/dev").text();
    assert_eq!(root.submit(&page, "Delete", &[("confirm", "root/de")]).status, 422);
    assert_eq!(root.submit(&page, "Delete", &[("confirm", "root/dev")]).status, 303);
    assert_eq!(root.get("/+manage/indexes/root/dev").status, 404);
}

/// The pages offer what the calls allow, whoever the configuration names.
#[test]
fn upstream_is_asked_again_in_a_browser() {
    let upstream = Upstream::start();
    let page_of = |files: &[&str]| {
        let files: Vec<Value> = files
            .iter()
            .map(|name| json!({"filename": name, "url": format!("/files/{name}"), "hashes": {}}))
            .collect();
        let page = json!({"meta": {"api-version": "1.1"}, "name": "foo", "files": files});
        Offer::json(page.to_string())
    };
    let list = json!({"meta": {"api-version": "1.1"}, "projects": [{"name": "foo"}]});
    upstream.offer("/simple/", Offer::json(list.to_string()));
    upstream.offer("/simple/foo/", page_of(&["foo-1.0.tar.gz"]));
    let server = TestServer::without_source(|config| {
        config.aur.enabled = false;
        config.egress_allow = vec!["127.0.0.0/8".parse().expect("a network")];
    });
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let url = upstream.url("/simple/");
    let values = [("name", "root/pypi"), ("mirror_url", url.as_str())];
    let manage = root.get("/+manage").text();
    assert_eq!(root.submit(&manage, "New index", &values).status, 303);
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
    let done = root.submit(&page, "Ask upstream again", &[("project", "Foo")]);
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.text().contains("Upstream was asked again."), "{}", done.text());
    assert_eq!((upstream.count("/simple/foo/"), files()), (asked + 1, 2));
    // An invalid name.
    let done = root.submit(&page, "Ask upstream again", &[("project", "no name")]);
    assert_eq!(done.status, 422, "{}", done.text());
    upstream.break_with(Some(500));
    let failed = root.submit(&page, "Ask upstream again", &[("project", "foo")]);
    assert_eq!(failed.status, 502, "{}", failed.text());
    assert!(failed.text().contains("it answered 500"), "{}", failed.text());
    assert!(failed.text().contains("the last good page stays"), "{}", failed.text());
    assert!(!failed.text().contains("Upstream was asked again."), "{}", failed.text());
    assert_eq!(files(), 2, "an upstream that fails takes nothing away");
    // Only mirrors have this form.
    let values = [("name", "root/dev")];
    assert_eq!(root.submit(&manage, "New index", &values).status, 303);
    let page = root.get("/+manage/indexes/root/dev").text();
    assert!(!page.contains("Ask upstream again"), "{page}");
}

#[test]
fn whom_the_configuration_names_manages() {
    let server = TestServer::without_source(|config| {
        config.aur.enabled = false;
        config.python.restrict_modify = "keeper".parse().expect("a list");
    });
    for name in ["keeper", "alice"] {
        let made =
            server.client.send("PUT", &format!("/{name}"), &[ROOT], br#"{"password": "staple"}"#);
        assert_eq!(made.status, 201);
    }
    assert_eq!(server.client.send("PUT", "/alice/dev", &[ROOT], b"{}").status, 200);
    let mut keeper = Browser::of(server.client, "keeper", "staple");
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = keeper.get("/+manage").text();
    assert!(page.contains("/+manage/indexes/alice/dev"), "{page}");
    assert!(page.contains("/+manage/users/alice"), "{page}");
    let page = keeper.get("/+manage/indexes/alice/dev").text();
    let saved = keeper.submit(&page, "Settings", &[("is.title", "Kept")]);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let page = keeper.get("/+manage/users/alice").text();
    let saved = keeper.submit(&page, "Profile", &[("title", "Kept")]);
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert!(!page.contains("aria-label=\"Disable\""), "{page}");
    // The owner may not, and is offered nothing.
    assert!(!alice.get("/+manage").text().contains("/+manage/indexes/alice/dev"));
    assert_eq!(alice.get("/+manage/indexes/alice/dev").status, 403);
    let own = alice.get("/+manage/users/alice").text();
    assert!(!own.contains("aria-label=\"Profile\"") && own.contains("/+account#password"), "{own}");
}

/// Each group is on one of the pages, however many there are.
#[test]
fn groups_are_shown_in_pages() {
    let server = start();
    let all: Vec<String> = (0..450).map(|number| format!("team-{number:03}")).collect();
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    for (user, groups) in [("alice", &all[..]), ("bob", &all[..1])] {
        let body = br#"{"password": "staple"}"#;
        let made = server.client.send("PUT", &format!("/{user}"), &[ROOT], body);
        assert_eq!(made.status, 201, "{}", made.text());
        let page = root.get(&format!("/+manage/users/{user}")).text();
        let values = [("groups", &*groups.join(" ")), ("own", ROOT_PASSWORD)];
        assert_eq!(root.submit(&page, "Groups", &values).status, 200);
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
    assert_eq!(found.matches("<dt>").count(), 1, "{found}");
    assert!(found.contains("<dt>team-009</dt>") && found.contains("value=\"team-00\""), "{found}");
    let first = root.get("/+manage/groups?q=team-000").text();
    assert!(first.contains("/users/alice\"") && first.contains("/users/bob\""), "{first}");
    let none = root.get("/+manage/groups?q=%3Cb%3E").text();
    assert!(none.contains("No user is in such a group") && !none.contains("<b>"), "{none}");
}

#[test]
fn administrators_see_groups_and_make_tokens_for_others() {
    let server = start();
    let made = server.client.send("PUT", "/alice", &[ROOT], br#"{"password": "staple"}"#);
    assert_eq!(made.status, 201);
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let page = root.get("/+manage/users/alice").text();
    let own = ("own", ROOT_PASSWORD);
    assert_eq!(root.submit(&page, "Groups", &[("groups", "team ci"), own]).status, 200);
    let groups = root.get("/+manage/groups").text();
    assert!(
        groups.contains("<dt>ci</dt>") && groups.contains("/+manage/users/alice\""),
        "{groups}"
    );
    // A token outlives the session, so the password is asked for.
    let wish = [("scope", "python:upload"), ("indexes", "alice/dev"), ("comment", "ci <b>"), own];
    for values in [&wish[..3], &[wish[0], ("own", "wrong")]] {
        let refused = root.submit(&page, "New token", values);
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let unusable = root.submit(&page, "New token", &[("expires", "never mind"), wish[0], own]);
    assert_eq!(unusable.status, 422, "{}", unusable.text());
    let made = root.submit(&page, "New token", &wish);
    let text = made.text();
    assert_eq!(made.status, 200, "{text}");
    let token = text.split("<pre><code>").nth(1).and_then(|rest| rest.split('<').next());
    let token = token.expect("a token").to_owned();
    assert!(text.contains("ci &#60;b&#62;"), "{text}");
    let bearer = format!("Bearer {token}");
    let tokens = server.client.send("GET", "/+tokens", &[("Authorization", &bearer)], b"");
    // The token is valid, but lacks the right to manage tokens.
    assert_eq!(tokens.status, 403, "{}", tokens.text());
    let listed = server.client.send("GET", "/+tokens?user=alice", &[ROOT], b"").json();
    assert_eq!(listed["tokens"][0]["indexes"], json!(["alice/dev"]), "{listed}");
    assert!(!root.get("/+manage/users/alice").text().contains(&token), "it is shown once");
    // Others neither see the groups nor make tokens.
    let mut alice = Browser::of(server.client, "alice", "staple");
    assert_eq!(alice.get("/+manage/groups").status, 403);
    assert_eq!(Browser::new(server.client).get("/+manage/groups").status, 401);
    let hers = form(&alice.get("/+account").text(), "New token").1[0].1.clone();
    for target in ["root", "alice"] {
        let fields = [("form", hers.as_str()), ("do", "token"), ("scope", "*"), ("own", "wrong")];
        let fields: Vec<_> =
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let refused = alice.post(&format!("/+manage/users/{target}"), &encoded(&fields));
        assert_eq!(refused.status, 403, "{target}: {}", refused.text());
    }
}

#[test]
fn without_a_python_index_there_is_none_to_manage() {
    let server = TestServer::without_source(|config| {
        config.aur.enabled = false;
        config.python.enabled = false;
    });
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    assert_eq!(root.get("/+manage").status, 200);
    assert_eq!(root.get("/+manage/indexes/root/dev").status, 404);
    for target in ["/+manage/indexes", "/+manage/indexes/root/dev"] {
        assert_eq!(root.post(target, "name=root/dev").status, 404, "{target}");
    }
}

#[test]
fn nobody_manages_what_is_not_theirs() {
    let server = start();
    for name in ["alice", "bob"] {
        let made =
            server.client.send("PUT", &format!("/{name}"), &[ROOT], br#"{"password": "staple"}"#);
        assert_eq!(made.status, 201);
        let secret = json!({"acl_read": [name]}).to_string();
        let path = format!("/{name}/secret");
        assert_eq!(server.client.send("PUT", &path, &[ROOT], secret.as_bytes()).status, 200);
    }
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let mut alice = Browser::of(server.client, "alice", "staple");
    // Without a right, the page lacks the lists and the forms for it.
    let page = alice.get("/+manage").text();
    assert!(page.contains("alice/secret") && !page.contains("bob"), "{page}");
    assert_eq!(alice.get("/+manage/indexes/bob/secret").status, 404);
    assert_eq!(alice.get("/+manage/users/bob").status, 403);
    for target in ["/+manage", "/+manage/users/alice", "/+manage/indexes/alice/secret"] {
        assert_eq!(Browser::new(server.client).get(target).status, 401, "{target}");
    }
    // A user who is no administrator sends each form of the administrator's pages, with their own token.
    let token = form(&alice.get("/+account").text(), "New token").1[0].1.clone();
    for (target, labels) in [
        ("/+manage", &["New user", "New index"][..]),
        ("/+manage/users/bob", &["Profile", "Set the password", "Groups", "Disable", "Delete"]),
        (
            "/+manage/indexes/bob/secret",
            &["Settings", "Another setting", "Quarantine", "Old versions", "Delete"],
        ),
    ] {
        let page = root.get(target).text();
        for label in labels {
            let (action, mut fields) = form(&page, label);
            for (name, value) in &mut fields {
                match name.as_str() {
                    "form" => value.clone_from(&token),
                    "confirm" if action.contains("indexes") => *value = "bob/secret".into(),
                    "confirm" => *value = "bob".into(),
                    "name" if *label == "New index" => *value = "bob/other".into(),
                    "name" => *value = "mallory".into(),
                    "is.acl_read" => *value = "alice".into(),
                    _ if value.is_empty() => *value = "1".into(),
                    _ => {}
                }
            }
            if matches!(*label, "Another setting") {
                fields.push(("how".into(), "set".into()));
            }
            if *label == "Old versions" {
                fields.push(("do".into(), "remove".into()));
            }
            let refused = alice.post(&action, &encoded(&fields));
            assert!(
                matches!(refused.status, 403 | 404),
                "{target} {label}: {} {}",
                refused.status,
                refused.text()
            );
            // The administrator's page without a token, or with hers.
            assert_eq!(root.post(&action, &encoded(&fields)).status, 403, "{target} {label}");
        }
    }
    let config = server.client.send("GET", "/bob/secret", &[ROOT], b"").json();
    assert_eq!(config["result"]["acl_read"], json!(["bob"]));
    assert_eq!(Browser::new(server.client).log_in("bob", "staple").status, 303);
}

#[test]
fn what_strangers_wrote_is_shown_as_text() {
    let server = start();
    let attack = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>";
    let user = json!({"password": "staple", "title": attack, "email": attack}).to_string();
    assert_eq!(server.client.send("PUT", "/alice", &[ROOT], user.as_bytes()).status, 201);
    let index = json!({"title": attack, "description": attack}).to_string();
    let made = server.client.send("PUT", "/alice/dev", &[ROOT], index.as_bytes());
    assert_eq!(made.status, 200, "{}", made.text());
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    for target in ["/+manage", "/+manage/users/alice", "/+manage/indexes/alice/dev"] {
        check_harmless(&root.get(target).text(), target);
    }
    let escaped: String = form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    check_harmless(&root.get(&format!("/+manage?q={escaped}")).text(), "a search");
    for (target, label, field) in [
        ("/+manage", "New user", "name"),
        ("/+manage", "New index", "name"),
        ("/+manage", "New index", "bases"),
        ("/+manage/users/alice", "Groups", "groups"),
        ("/+manage/users/alice", "Delete", "confirm"),
        ("/+manage/indexes/alice/dev", "Settings", "is.acl_read"),
        ("/+manage/indexes/alice/dev", "Another setting", "key"),
        ("/+manage/indexes/alice/dev", "Quarantine", "project"),
        ("/+manage/indexes/alice/dev", "Old versions", "versions"),
        ("/+manage/indexes/alice/dev", "Delete", "confirm"),
    ] {
        let page = root.get(target).text();
        let more = [("how", "set"), ("do", "look"), ("value", "x")];
        let more = match label {
            "Another setting" => vec![more[0], more[2]],
            "Old versions" => vec![more[1]],
            _ => Vec::new(),
        };
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
        let made =
            server.client.send("PUT", &format!("/{name}"), &[ROOT], br#"{"password": "staple"}"#);
        assert_eq!(made.status, 201);
        let path = format!("/{name}/dev");
        let index = json!({"policy_deny": ["evil"]}).to_string();
        assert_eq!(server.client.send("PUT", &path, &[ROOT], index.as_bytes()).status, 200);
    }
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = root.get("/+manage/audit").text();
    check_harmless(&page, "the audit log");
    assert!(page.contains("alice/dev") && page.contains("bob/dev"), "{page}");
    assert!(page.contains("its rules were changed: policy_deny"), "{page}");
    let page = root.get("/+manage/audit?index=bob/dev&event=changed&what=").text();
    assert!(page.contains("<span>bob/dev</span>") && !page.contains("<span>alice/dev</span>"));
    assert!(root.get("/+manage/audit?event=served").text().contains("There are no such entries."));
    assert_eq!(root.get("/+manage/audit?event=x").status, 400);
    // Others see that of an index that they may change.
    let page = alice.get("/+manage/audit").text();
    assert!(page.contains("Name an index") && !page.contains("policy_deny"), "{page}");
    let page = alice.get("/+manage/audit?index=alice/dev").text();
    assert!(page.contains("<span>alice/dev</span>"), "{page}");
    let refused = alice.get("/+manage/audit?index=bob/dev");
    assert_eq!(refused.status, 403);
    assert!(!refused.text().contains("policy_deny"), "{}", refused.text());
    assert_eq!(alice.get("/+manage/audit?index=bob/none").status, 404);
    let attack = "/+manage/audit?index=%22%3E%3Cscript%3E/x&what=%3Cimg%20src=x%3E";
    check_harmless(&root.get(attack).text(), "filters");
    assert_eq!(Browser::new(server.client).get("/+manage/audit").status, 401);
    // Pages of entries.
    let first = root.get("/+manage/audit?limit=1").text();
    let next = first.split("href=\"?").nth(1).expect("older entries");
    let next = next.split('"').next().expect("its end").replace("&#38;", "&");
    let second = root.get(&format!("/+manage/audit?{next}")).text();
    assert!(second.contains("<li><b>changed</b>") && second != first, "{second}");
}

#[test]
fn administrators_see_and_revoke_tokens_of_others() {
    let server = start();
    let made = server.client.send("PUT", "/alice", &[ROOT], br#"{"password": "staple"}"#);
    assert_eq!(made.status, 201);
    let mut alice = Browser::of(server.client, "alice", "staple");
    let page = alice.get("/+account").text();
    let values = [("comment", "of alice"), ("scope", "article:read"), ("own", "staple")];
    assert_eq!(alice.submit(&page, "New token", &values).status, 201);
    let mut root = Browser::of(server.client, "root", ROOT_PASSWORD);
    let page = root.get("/+manage/users/alice").text();
    assert!(page.contains("of alice"), "{page}");
    let label = page.split("aria-label=\"Revoke ").nth(1).expect("a form");
    let id = label.split('"').next().expect("its end");
    assert_eq!(root.submit(&page, &format!("Revoke {id}"), &[]).status, 200);
    assert!(!root.get("/+manage/users/alice").text().contains("of alice"));
    let again = root.submit(&page, &format!("Revoke {id}"), &[]);
    assert_eq!(again.status, 404, "{}", again.text());
}
