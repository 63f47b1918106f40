//! `larder login`: a command line is logged in by a browser (RFC 8628), and `larder use` and commands find its token.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::World;
use crate::asking::{Says as _, each};
use crate::browser::Browser;
use crate::client::Response;
use crate::process::{Done, larder};
use crate::server::TestServer;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn begin(server: &TestServer) -> Value {
    let begun = server.client.form("/+tokens/device", "").expect(200);
    begun.has("cache-control", "no-store");
    begun.json()
}

fn ask(server: &TestServer, grant: &str, code: &str) -> Response {
    let fields = [("grant_type", grant), ("client_id", "larder"), ("device_code", code)];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    server.client.form("/+tokens/device/token", &crate::browser::encoded(&fields))
}

#[track_caller]
fn waits(server: &TestServer, begun: &Value, error: &str) {
    let answer = ask(server, GRANT, begun["device_code"].as_str().expect("a code"));
    answer.check_status(400);
    assert_eq!(answer.json()["error"], error, "{}", answer.text());
}

/// `larder WORDS…` of somebody whose home is this directory.
fn of_home(home: &TempDir, words: &[&str]) -> Done {
    let mut command = larder(home.path());
    command.env("HOME", home.path()).env("XDG_CONFIG_HOME", home.path().join("config"));
    Done::of(command.args(words), "")
}

/// `larder login`, and the browser that approves it: what the command says.
fn logged_in(world: &World, home: &TempDir) -> (String, Browser) {
    let url = format!("http://{}", world.server.client.address);
    let mut command = larder(home.path());
    command.env("HOME", home.path()).env("XDG_CONFIG_HOME", home.path().join("config"));
    let mut child = command
        .args(["login", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let line = lines.next().expect("a line").expect("text");
    let page = line.strip_prefix("larder: open ").and_then(|it| it.strip_suffix(" in a browser"));
    let page = page.unwrap_or_else(|| panic!("{line}")).to_owned();
    let target = page.strip_prefix(&url).expect("the server's own URL");
    // The browser logs in first, at the provider, and comes back to the code.
    let mut browser = world.browser();
    let form = browser.get(target).expect(200).text();
    let start = form.find("/+account/oidc/company?next=").expect("a button");
    let button = crate::browser::unescaped(form[start..].split('"').next().expect("its end"));
    let sent = browser.get(&button).expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    let answer = browser.get(&back).expect(303);
    assert_eq!(answer.header("location"), target);
    let page = browser.get(target).expect(200).text();
    browser.submit(&page, "Approve", &[]).tells(201, "The command line is logged in as alice. You can close this page. The token is on your page </+account#tokens>, where you can revoke it.");
    let done = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}");
    (said, browser)
}

/// The token that `larder login` has kept for a server.
fn kept(home: &TempDir, url: &str) -> String {
    let file = home.path().join("config/larder/tokens.json");
    let kept = std::fs::read(file).expect("the file");
    let kept: Value = serde_json::from_slice(&kept).expect("JSON");
    kept[format!("{url}/")]["token"].as_str().expect("a token").to_owned()
}

/// Nobody would revoke a token that this machine has forgotten.
#[test]
fn a_second_log_in_revokes_the_token_of_the_first() {
    let world = World::start();
    let url = format!("http://{}", world.server.client.address);
    let home = tempfile::tempdir().expect("a directory");
    let is_good = |token: &str| {
        let asked = world.server.bearer(token).json().get("/+api").expect(200).json();
        asked["result"]["authstatus"][0] == "ok"
    };
    logged_in(&world, &home).0.lacks("before");
    let first = kept(&home, &url);
    assert!(is_good(&first));
    logged_in(&world, &home).0.says("the token of the log-in before is revoked");
    assert!(!is_good(&first) && is_good(&kept(&home, &url)));
    // One that has ended is not worth a word.
    of_home(&home, &["logout", &url]).check(0, "logged out");
    logged_in(&world, &home).0.lacks("before");
}

#[test]
fn a_command_line_logs_in_by_a_browser() {
    let world = World::start();
    let url = format!("http://{}", world.server.client.address);
    let home = tempfile::tempdir().expect("a directory");
    let (said, mut browser) = logged_in(&world, &home);
    assert!(said.contains("as alice for 30 days"), "{said}");
    let file = home.path().join("config/larder/tokens.json");
    let kept = std::fs::read_to_string(&file).expect("the file");
    assert!(kept.contains("larder_") && !said.contains("larder_"), "{said}");
    // Commands ask as alice, and `larder use` writes the token for the clients.
    let index = ["index", "add", "alice/dev", "--server", &url];
    of_home(&home, &index).check(0, "");
    let use_it = ["use", &format!("{url}/alice/dev"), "--twine"];
    of_home(&home, &use_it).check(0, "");
    std::fs::read_to_string(home.path().join(".pypirc")).expect("a file").says("larder_");
    browser.get("/+account").says("larder login");
    // It ends.
    of_home(&home, &["logout", &url]).check(0, "logged out");
    assert!(!std::fs::read_to_string(&file).expect("the file").contains("larder_"));
    browser.get("/+account").says("You have none.");
    of_home(&home, &["logout", &url]).check(1, "not logged in");
}

/// A log-in that has begun, what it was told, and the browser of `alice` with the page that approves it.
struct Begun {
    server: TestServer,
    told: Value,
    alice: Browser,
    page: String,
}

impl Begun {
    fn start() -> Begun {
        let server = TestServer::without_aur(|_| ());
        server.add_user("alice", "staple");
        let told = begin(&server);
        waits(&server, &told, "authorization_pending");
        let mut alice = Browser::of(server.client, "alice", "staple");
        let target = format!("/+account/device?code={}", told["user_code"].as_str().expect("one"));
        let page = alice.get(&target).expect(200).text();
        Begun { server, told, alice, page }
    }

    fn code(&self, of: &str) -> &str {
        self.told[of].as_str().expect("a code")
    }
}

#[test]
fn approvals_that_are_refused() {
    let begun = Begun::start();
    let unknown = "Not logged in. This code is not one of this server, or is more than ten minutes old: `larder login` shows another.";
    let rows = [
        (
            &[("own", "wrong")][..],
            403,
            "Not logged in. Your own password is asked for once more, and what was sent is not it.",
        ),
        (&[("own", "staple"), ("code", "BCDF-GHJK-LMNP-QRST")], 422, unknown),
        (&[("own", "staple"), ("code", "<script>")], 422, unknown),
        (
            &[("own", "staple"), ("expires", "never")],
            422,
            "Not logged in. `never` is no time to expire at; expected: a length such as `90d`, a date such as `DATE`, a time such as `TIME`",
        ),
        (
            &[("own", "staple"), ("expires", "x")],
            422,
            "Not logged in. `x` is no time to expire at; expected: a length such as `90d`, a date such as `DATE`, a time such as `TIME`",
        ),
    ];
    each(rows, |(fields, status, words)| {
        begun.alice.clone().submit(&begun.page, "Approve", fields).tells(status, words);
    });
    let form = format!("code={}&expires=1d&own=staple", begun.code("user_code"));
    begun.alice.clone().post("/+account/device", &form).expect(403);
    waits(&begun.server, &begun.told, "authorization_pending");
}

/// Somebody else cannot approve it, too, and another log-in is another.
#[test]
fn a_code_is_approved_once() {
    let mut begun = Begun::start();
    let code = begun.code("user_code").to_lowercase();
    let values = [("own", "staple"), ("code", &*code)];
    begun.alice.submit(&begun.page, "Approve", &values).expect(201);
    let server = &begun.server;
    let answer = ask(server, GRANT, begun.code("device_code")).expect(200).json();
    assert_eq!((&answer["user"], &answer["token_type"]), (&json!("alice"), &json!("Bearer")));
    let token = answer["access_token"].as_str().expect("a token");
    let asked = server.bearer(token).json().get("/+api").expect(200).json();
    assert_eq!(asked["result"]["authstatus"][0], "ok", "{asked}");
    let mut root = Browser::root(server.client);
    let page = root.get(&format!("/+account/device?code={code}")).text();
    let again = root.submit(&page, "Approve", &[("own", crate::server::ROOT_PASSWORD)]);
    again.tells(422, "Not logged in. This code has been approved already.");
    waits(server, &begin(server), "authorization_pending");
}

/// A device code that was changed, of another server, or missing; another grant.
#[test]
fn codes_and_grants_that_are_refused() {
    let begun = Begun::start();
    let (server, other) = (&begun.server, TestServer::without_aur(|_| ()));
    let device = begun.code("device_code");
    let rows = [
        (server, GRANT, &device[1..], "invalid_grant"),
        (server, GRANT, "", "invalid_grant"),
        (server, GRANT, begun.code("user_code"), "invalid_grant"),
        (&other, GRANT, device, "invalid_grant"),
        (server, "password", device, "unsupported_grant_type"),
    ];
    each(rows, |(server, grant, code, error)| {
        let answer = ask(server, grant, code).expect(400);
        assert_eq!(answer.json()["error"], error, "{}", answer.text());
    });
    server.client.form("/+tokens/device/token", &"x".repeat(5_000)).expect(413);
}
