//! Guessing: only the guesser is throttled, and the log has no secret.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::json;

use super::{Place, prepare};
use crate::asking::{Says as _, basic};
use crate::client::{Client, Response};
use crate::process::Process;
use crate::shown::redacted;
use crate::wait_until;

/// A server on its own store, `root` with the password `horse`, and Alice with `staple`. Reading needs a user.
fn start(arguments: &[&str]) -> Process {
    let common = ["--aur-enabled=false", "--article-acl-read", ":AUTHENTICATED:"];
    let arguments: Vec<&str> = common.iter().chain(arguments).copied().collect();
    Process::start(&arguments, |directory| prepare(directory).add("alice", "staple"))
}

/// Sends a request from 127.0.0.`host`, and does not wait for its answer.
#[track_caller]
fn begin(client: &Client, host: u8, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let (method, target) = line.split_once(' ').expect("a method");
    let mut headers = headers.to_vec();
    if !body.is_empty() {
        headers.push(("Content-Type", "application/json"));
    }
    client.begin_from(host, method, target, &headers, body.as_bytes())
}

#[track_caller]
fn send(client: &Client, host: u8, line: &str, headers: &[(&str, &str)], body: &str) -> Response {
    Response::read(&mut begin(client, host, line, headers, body), false)
}

/// Reads articles with these credentials.
#[track_caller]
fn read(client: &Client, host: u8, authorization: &str) -> u16 {
    send(client, host, "GET /articles", &[("Authorization", authorization)], "").status
}

#[test]
fn a_guesser_has_few_tries_over_all_surfaces() {
    let process = start(&["--users-wrong-passwords-max", "7"]);
    let (client, place) = (process.client, Place(process.directory.path()));
    let token = place.token("alice --scope *");
    wait_until("the token", || read(&client, 9, &format!("Bearer {token}")) == 200);
    let guess = |number: usize| {
        let password = format!("guess-{number}");
        let authorization = basic("alice", &password);
        let devpi = authorization.strip_prefix("Basic ").expect("Basic").to_owned();
        let basic = [("Authorization", authorization.as_str())];
        let call = r#"{"actions": {"article.get_version": {"name": "x"}}}"#;
        match number % 7 {
            0 => send(&client, 2, "GET /articles", &basic, ""),
            1 => send(&client, 2, "POST /article/x/0", &basic, "{}"),
            2 => send(&client, 2, "PUT /alice/dev", &[("X-Devpi-Auth", devpi.as_str())], "{}"),
            3 => {
                let body = json!({"user": "alice", "password": password}).to_string();
                send(&client, 2, "POST /+login", &[], &body)
            }
            4 => send(&client, 2, "PATCH /alice", &basic, r#"{"password": "mine"}"#),
            5 => send(&client, 2, "GET /+tokens", &basic, ""),
            _ => send(&client, 2, "POST /actions", &basic, call),
        }
    };
    for number in 0..7 {
        let response = guess(number);
        assert!(matches!(response.status, 401 | 403 | 400), "{number}: {response:?}");
    }
    assert_eq!(client.metric("larder_login_failures_total{reason=\"wrong_password\"}"), 7.0);
    for number in 7..21 {
        // An action that fails among others says so in its own way.
        let response = guess(number).expect(429);
        assert!(response.header("retry-after").parse::<u64>().is_ok_and(|it| it > 0), "{number}");
    }
    assert_eq!(client.metric("larder_login_failures_total{reason=\"wrong_password\"}"), 7.0);
    assert_eq!(client.metric("larder_logins_throttled_total{by=\"client_and_account\"}"), 14.0);
    // The right one counts as one more try from there; known ones do not count.
    let alice = basic("alice", "staple");
    assert_eq!(read(&client, 2, &alice), 429);
    assert_eq!(read(&client, 2, &basic("alice", "guess-0")), 401);
    // Everybody else, and she herself from elsewhere or with a token, is served.
    assert_eq!(read(&client, 3, &alice), 200);
    assert_eq!(read(&client, 2, &format!("Bearer {token}")), 200);
    assert_eq!(read(&client, 2, &basic("alice", &token)), 200);
    assert_eq!(read(&client, 2, &basic("root", "horse")), 200);
    assert_eq!(read(&client, 2, &alice), 429, "that it is known elsewhere tells nothing here");
    // Guesses for a user who does not exist are treated in the same way.
    let status = |number: u32| read(&client, 4, &basic("nobody", &format!("guess-{number}")));
    assert_eq!(
        (0..9).map(status).collect::<Vec<_>>(),
        [401, 401, 401, 401, 401, 401, 401, 429, 429]
    );
}

#[test]
fn who_was_right_lately_passes_while_a_neighbour_guesses() {
    let process =
        start(&["--users-remember-seconds", "0", "--users-wrong-passwords-per-client-max", "20"]);
    let client = process.client;
    let alice = basic("alice", "staple");
    assert_eq!(read(&client, 2, &alice), 200);
    for number in 0..15 {
        read(&client, 2, &basic("alice", &format!("guess-{number}")));
    }
    assert_eq!(read(&client, 2, &basic("alice", "guess-99")), 429);
    assert_eq!(read(&client, 2, &alice), 200);
    for number in 0..15 {
        read(&client, 2, &basic(&format!("user-{number}"), "guess"));
    }
    assert_eq!(read(&client, 2, &basic("zoe", "guess")), 429);
    assert_eq!(read(&client, 2, &alice), 200);
    assert_eq!(read(&client, 3, &basic("root", "horse")), 200, "somebody new elsewhere");
}

/// More requests from two addresses than may wait, each with another wrong password, and no bound on guesses.
#[test]
fn a_flood_leaves_the_line_to_the_others() {
    let process = start(&[
        "--users-remember-seconds",
        "0",
        "--users-wrong-passwords-max",
        "0",
        "--users-wrong-passwords-per-client-max",
        "0",
        "--users-wrong-passwords-per-account-max",
        "0",
    ]);
    let (client, place) = (process.client, Place(process.directory.path()));
    let token = format!("Bearer {}", place.token("alice --scope *"));
    wait_until("the token", || read(&client, 9, &token) == 200);
    let (alice, root) = (basic("alice", "staple"), basic("root", "horse"));
    assert_eq!(read(&client, 2, &alice), 200, "she is known there, where the flood comes from");
    let flood: Vec<TcpStream> = (0..400)
        .map(|number| {
            let wrong = basic("alice", &format!("guess-{number}"));
            let host = 2 + u8::try_from(number % 2).expect("0 or 1");
            begin(&client, host, "GET /articles", &[("Authorization", &wrong)], "")
        })
        .collect();
    wait_until("a line", || client.metric("larder_passwords_waiting") > 0.0);
    for host in [2, 3, 4, 5] {
        assert_eq!(read(&client, host, &token), 200, "a token");
    }
    assert_eq!(read(&client, 2, &alice), 200, "who was right lately, from the same address");
    assert_eq!(read(&client, 10, &alice), 200, "the owner, from a new address");
    assert_eq!(read(&client, 20, &root), 200, "somebody else, for the first time");
    let answers: BTreeSet<u16> =
        flood.into_iter().map(|mut stream| Response::read(&mut stream, false).status).collect();
    assert_eq!(answers, BTreeSet::from([401, 503]), "the flood is what is refused");
}

/// Logs in as Alice and fails to in every way, and returns what nobody may read of it.
fn try_to_log_in(client: &Client) -> Vec<String> {
    let mut secrets = vec!["staple-secret".to_owned()];
    let mut log_in = |host: u8, user: &str, password: &str| {
        secrets.push(password.to_owned());
        let body = json!({"user": user, "password": password}).to_string();
        send(client, host, "POST /+login", &[], &body)
    };
    for number in 0..20 {
        log_in(2, "alice", &format!("guess-secret-{number}"));
    }
    log_in(2, "a\nb\u{1b}[0m", "strange-secret").expect(401);
    let login = log_in(3, "alice", "staple-secret").expect(200).json();
    secrets.push(login["result"]["password"].as_str().expect("a login").to_owned());
    // It looks like a token, but was never made here.
    let no_token = format!("Bearer larder_66687aadf862_{}", "0".repeat(64));
    send(client, 2, "GET /+tokens", &[("Authorization", &no_token)], "").expect(401);
    secrets.push("0".repeat(24));
    secrets
}

/// Changes accounts and rights in every way, and returns what nobody may read of it.
fn change_everything(client: &Client, place: &Place<'_>) -> Vec<String> {
    let done = |authorization: &str, line: &str, body: &str| {
        let headers = [("Authorization", authorization)];
        send(client, 4, line, &headers, body).expect_one_of([200, 201, 204])
    };
    let (root, alice) = (basic("root", "horse"), basic("alice", "staple-secret"));
    done(&root, "PUT /carol", r#"{"password": "carols-secret"}"#);
    done(&alice, "PUT /alice/dev", "{}");
    done(&alice, "PATCH /alice/dev", r#"{"acl_upload": ["alice", "carol"]}"#);
    let token = done(&alice, "POST /+tokens", r#"{"scopes": ["python:upload"]}"#).json();
    let (id, text) = (token["id"].as_str().expect("an id"), token["token"].as_str().expect("text"));
    done(&alice, &format!("DELETE /+tokens/{id}"), "");
    done(&alice, "PATCH /alice", r#"{"password": "changed-secret"}"#);
    done(&root, "DELETE /carol", "");
    place.run("user groups alice --add admin --log-format json --security-log security.log");
    place.run("user disable alice --log-format json --security-log security.log");
    let secret = text.rsplit('_').next().expect("a secret")[..12].to_owned();
    vec![secret, "changed-secret".to_owned(), "carols-secret".to_owned(), "horse".to_owned()]
}

#[test]
fn who_did_what_from_where_is_written_down_and_no_secret() {
    let arguments = [
        "--aur-enabled=false",
        "--security-log",
        "security.log",
        "--users-wrong-passwords-max",
        "3",
    ];
    let process = Process::start(&arguments, |directory| {
        prepare(directory).add("alice", "staple-secret");
    });
    let path = process.directory.path().join("security.log");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    let mut secrets = try_to_log_in(&process.client);
    let place = Place(process.directory.path());
    secrets.extend(change_everything(&process.client, &place));
    let text = process.security_log();
    let uid = format!("uid {}", rustix::process::getuid().as_raw());
    let lines = text.replace(&uid, "uid UID");
    // What is throttled is no line each, so there are three failed logins.
    assert_snapshot!("security_log", redacted(&lines));
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    text.lacks(&secrets[..]);
    process.log().lacks(&secrets[..]);
    // They have a file of their own.
    process.log().lacks("larder::security");
}

#[test]
fn a_security_log_that_was_moved_away_goes_on_in_a_new_file() {
    let arguments = ["--aur-enabled=false", "--security-log", "security.log"];
    let process = Process::start(&arguments, |directory| _ = prepare(directory));
    let (client, directory) = (process.client, process.directory.path());
    let path = directory.join("security.log");
    std::fs::rename(&path, directory.join("security.log.1")).expect("a rename");
    process.signal("HUP");
    wait_until("a new file", || path.exists());
    send(&client, 5, "POST /+login", &[], r#"{"user": "nobody", "password": "x"}"#);
    let text = process.security_log();
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn without_a_file_the_security_log_is_among_the_others() {
    let process = start(&[]);
    read(&process.client, 2, &basic("alice", "guess-secret"));
    process.wait_for_log("\"event\":\"login_failed\"");
    process.log().lacks("guess-secret");
}
