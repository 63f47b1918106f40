//! A running server takes what the command line of another process changes.

use std::sync::Arc;

use config::Config;

use super::{Place, prepare};
use crate::asking::Says as _;
use crate::asking::basic;
use crate::client::{Client, Response};
use crate::process::Process;
use crate::server::TestServer;
use crate::wait_until;

/// A server on its own store, `root` with the password `horse`, and Alice with `old`. Reading needs a user.
fn start() -> Process {
    Process::start(&["--aur-enabled=false", "--article-acl-read", ":AUTHENTICATED:"], |directory| {
        prepare(directory).add("alice", "old");
    })
}

fn read(client: &Client, authorization: &str) -> Response {
    client.authorized(authorization).get("/articles")
}

/// Stores a first revision under this name.
fn write(client: &Client, name: &str, authorization: &str) -> Response {
    client.authorized(authorization).typed("text/plain").post(&format!("/article/{name}/0"), "text")
}

#[track_caller]
fn check_refused(response: &Response) {
    response.check_status(401);
    response.has("www-authenticate", "Basic realm=\"pypi\"");
}

#[test]
fn a_changed_password_is_noticed() {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    read(&client, &basic("alice", "old")).expect(200);
    check_refused(&read(&client, &basic("alice", "new")));
    check_refused(&read(&client, &basic("nobody", "old")));
    check_refused(&client.get("/articles"));

    let done = place.run_with("user password alice --password-stdin", "new\n");
    assert_eq!(done.code, Some(0), "{done:?}");
    wait_until("the new password", || read(&client, &basic("alice", "new")).status == 200);
    check_refused(&read(&client, &basic("alice", "old")));
    // Nobody else's has changed.
    read(&client, &basic("root", "horse")).expect(200);

    place.run("user password alice --no-password");
    wait_until("no password", || read(&client, &basic("alice", "new")).status == 401);
    check_refused(&read(&client, &basic("alice", "")));
}

#[test]
fn somebody_new_disabled_enabled_and_removed() {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    place.add("bob", "pw");
    let token = place.token("bob --scope *");
    let (password, token) = (basic("bob", "pw"), format!("Bearer {token}"));
    wait_until("Bob", || read(&client, &password).status == 200);
    wait_until("Bob's token", || read(&client, &token).status == 200);
    place.run("user disable bob");
    wait_until("Bob to be disabled", || read(&client, &password).status == 401);
    check_refused(&read(&client, &token));
    place.run("user enable bob");
    wait_until("Bob to be enabled", || read(&client, &password).status == 200);
    read(&client, &token).expect(200);
    place.run("user remove bob");
    wait_until("Bob to be gone", || read(&client, &password).status == 401);
    check_refused(&read(&client, &token));
    // Another Bob is not the one whose token it was.
    place.add("bob", "pw");
    wait_until("another Bob", || read(&client, &password).status == 200);
    check_refused(&read(&client, &token));
}

#[test]
fn a_token_opens_what_it_is_for_until_it_is_revoked() {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    let reading = place.token("alice --scope article:read");
    let writing = place.token("alice --scope article:write");
    let other = place.token("alice --scope python:admin");
    let bearer = |token: &str| format!("Bearer {token}");
    // The last token may not read, but it is known then.
    wait_until("the tokens", || read(&client, &bearer(&other)).status == 403);

    read(&client, &bearer(&reading)).expect(200);
    let refused = write(&client, "one", &bearer(&reading));
    refused.tells(403, "this token may not write articles: it lacks the scope `article:write`");
    assert_eq!(
        refused.find("www-authenticate"),
        None,
        "asking for another password would not help"
    );
    write(&client, "one", &bearer(&writing)).expect(201);
    // Installers and uploaders send a token in Basic.
    write(&client, "two", &basic("__token__", &writing)).expect(201);
    write(&client, "three", &basic("alice", &writing)).expect(201);
    // The name beside it does not count, and it may be the name itself.
    write(&client, "four", &basic("root", &writing)).expect(201);
    write(&client, "six", &basic(&writing, "")).expect(201);

    place.run(&format!("token revoke {writing}"));
    wait_until("the end of the token", || read(&client, &bearer(&writing)).status == 401);
    check_refused(&write(&client, "five", &bearer(&writing)));
    // The other one stays.
    read(&client, &bearer(&reading)).expect(200);
}

#[test]
fn an_expired_token_is_refused() {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    let token = place.token("alice --scope article:read --expires 3s");
    let bearer = format!("Bearer {token}");
    wait_until("its end", || read(&client, &bearer).text().contains("expired at"));
    check_refused(&read(&client, &bearer));
    assert_eq!(place.json("token list alice --json")[0]["is_expired"], true);
}

#[test]
fn a_right_password_is_hashed_once() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    prepare(directory.path()).add("alice", "old");
    let directory_path = directory.path().to_owned();
    let server = TestServer::start_in(directory, |config: &mut Config, _| {
        config.aur.enabled = false;
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    })
    .ready();
    let hashed = || server.app.limits.passwords.hashed();
    let status = |password: &str| read(&server.client, &basic("alice", password)).status;
    let before = hashed();
    for _ in 0..20 {
        assert_eq!(status("old"), 200);
    }
    assert_eq!(hashed() - before, 1);
    for _ in 0..3 {
        assert_eq!(status("wrong"), 401);
    }
    assert_eq!(hashed() - before, 2, "what is wrong is known then, too");
    assert_eq!(status("old"), 200);
    assert_eq!(hashed() - before, 2, "and drives nothing out");

    // A changed password is forgotten with the change, and so is one that is set again.
    let place = Place(&directory_path);
    for password in ["new", "old"] {
        let done = place.run_with("user password alice --password-stdin", password);
        assert_eq!(done.code, Some(0), "{done:?}");
        wait_until("the change", || status(password) == 200);
        let since = hashed();
        assert_eq!(status(password), 200);
        assert_eq!(hashed(), since);
    }
    assert_eq!(status("new"), 401);
}

#[test]
fn a_user_goes_with_their_indexes_if_that_is_meant() {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    let make = |path: &str, body: &str| {
        let authorization = basic("alice", "old");
        client
            .authorized(authorization.as_str())
            .typed("application/json")
            .put(path, body.as_bytes())
            .expect(200);
    };
    let status = |path: &str| client.get_with(path, &[("Accept", "application/json")]).status;
    make("/alice/dev", r#"{"volatile": true}"#);
    make("/alice/prod", r#"{"volatile": false}"#);
    assert_eq!((status("/alice/dev"), status("/alice/prod")), (200, 200));
    place.check(
        "user remove alice",
        1,
        "user 'alice' has non-volatile index: prod; --force deletes it with everything in it",
    );
    assert_eq!((status("/alice/dev"), status("/alice/prod")), (200, 200), "nothing was removed");
    place.check("user remove alice --force", 0, "indexes: 2");
    wait_until("the end of Alice", || status("/alice") == 404);
    assert_eq!((status("/alice/dev"), status("/alice/prod")), (404, 404));
}

/// Begins a request that `alice` may make, and ends its body after her password is gone: it is refused, and nothing is
/// kept.
#[track_caller]
fn check_lost(method: &str, target: &str, content_type: &str, body: &str, status: u16) {
    let process = start();
    let (client, place) = (process.client, Place(process.directory.path()));
    let alice = basic("alice", "old");
    let as_alice = client.authorized(&alice);
    as_alice.put("/alice/dev", "{}").expect(200);
    place.run("user groups alice --add admin");
    let made = || as_alice.put("/dora", r#"{"password": "x"}"#).status;
    wait_until("Alice to be an administrator", || [201, 409].contains(&made()));

    let ask = as_alice.clone().typed(content_type).with("Connection", "close");
    let stream = ask.announce(method, target, body.len());
    place.run("user password alice --no-password");
    wait_until("the password to be gone", || read(&client, &alice).status == 401);
    Response::after(body, stream).expect(status);
    place.run("verify").lacks(["article", "release"]);
    assert_eq!(place.json("token list --json"), serde_json::json!([]));
    place.run("user list --json").lacks("late");
}

#[test]
fn a_right_that_is_lost_while_a_body_comes_is_lost_for_it() {
    check_lost("POST", "/article/late/0", "text/plain", "text", 401);
    let field = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields = [field(":action", "submit"), field("name", "late"), field("version", "1")];
    let form = format!("{}--x--\r\n", fields.concat());
    check_lost("POST", "/alice/dev/", "multipart/form-data; boundary=x", &form, 401);
    let json = "application/json";
    check_lost("POST", "/+tokens", json, r#"{"scopes": ["*"], "comment": "late"}"#, 401);
    // For the Python index she is anonymous then.
    check_lost("PUT", "/late", json, r#"{"password": "late"}"#, 403);
    check_lost("PATCH", "/alice", json, r#"{"title": "late"}"#, 403);
    check_lost("PATCH", "/dora", json, r#"{"password": "late"}"#, 403);
}
