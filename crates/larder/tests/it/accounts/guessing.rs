//! Guessing: only the guesser is throttled, and the log has no secret.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::json;
use socket2::{Domain, Socket, Type};

use super::{Place, prepare};
use crate::asking::{Says as _, basic};
use crate::client::{Client, Response};
use crate::process::Process;
use crate::shown::redacted;
use crate::{PATIENCE, wait_until};

/// A server on its own store, `root` with the password `horse`, and Alice with `staple`. Reading needs a user.
fn start(arguments: &[&str]) -> Process {
    let common = ["--aur-enabled=false", "--article-acl-read", ":AUTHENTICATED:"];
    let arguments: Vec<&str> = common.iter().chain(arguments).copied().collect();
    Process::start(&arguments, |directory| prepare(directory).add("alice", "staple"))
}

/// A connection from 127.0.0.`host`.
#[track_caller]
fn connect(client: &Client, host: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = std::net::SocketAddr::from(([127, 0, 0, host], 0));
    socket.bind(&from.into()).expect("an address of this machine");
    socket.connect(&client.address.into()).expect("the server listens");
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends a request from 127.0.0.`host`, and does not wait for its answer.
#[track_caller]
fn begin(client: &Client, host: u8, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str("Content-Type: application/json\r\n");
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let mut stream = connect(client, host);
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).expect("the server reads");
    stream
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

#[test]
fn who_did_what_from_where_is_written_down_and_no_secret() {
    let process = Process::start(
        &[
            "--aur-enabled=false",
            "--security-log",
            "security.log",
            "--users-wrong-passwords-max",
            "3",
        ],
        |directory| {
            prepare(directory).add("alice", "staple-secret");
        },
    );
    let (client, directory) = (process.client, process.directory.path());
    let place = Place(directory);
    let path = directory.join("security.log");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    let mut secrets: Vec<String> =
        ["staple-secret", "changed-secret", "carols-secret", "horse"].map(str::to_owned).into();
    for number in 0..20 {
        let body = json!({"user": "alice", "password": format!("guess-secret-{number}")});
        send(&client, 2, "POST /+login", &[], &body.to_string());
        secrets.push(format!("guess-secret-{number}"));
    }
    let strange = json!({"user": "a\nb\u{1b}[0m", "password": "strange-secret"}).to_string();
    send(&client, 2, "POST /+login", &[], &strange).expect(401);
    secrets.push("strange-secret".to_owned());
    let body = json!({"user": "alice", "password": "staple-secret"}).to_string();
    let login = send(&client, 3, "POST /+login", &[], &body).expect(200);
    secrets.push(login.json()["result"]["password"].as_str().expect("a login").to_owned());
    // It looks like a token, but was never made here.
    let no_token = format!("Bearer larder_66687aadf862_{}", "0".repeat(64));
    send(&client, 2, "GET /+tokens", &[("Authorization", &no_token)], "").expect(401);
    secrets.push("0".repeat(24));

    let (root, alice) = (basic("root", "horse"), basic("alice", "staple-secret"));
    let as_root = [("Authorization", root.as_str())];
    let as_alice = [("Authorization", alice.as_str())];
    let done = |response: Response| {
        assert!(response.status < 300, "{}", response.text());
        response
    };
    done(send(&client, 4, "PUT /carol", &as_root, r#"{"password": "carols-secret"}"#));
    done(send(&client, 4, "PUT /alice/dev", &as_alice, "{}"));
    done(send(&client, 4, "PATCH /alice/dev", &as_alice, r#"{"acl_upload": ["alice", "carol"]}"#));
    let wish = r#"{"scopes": ["python:upload"]}"#;
    let token = done(send(&client, 4, "POST /+tokens", &as_alice, wish)).json();
    let (id, text) = (token["id"].as_str().expect("an id"), token["token"].as_str().expect("text"));
    secrets.push(text.rsplit('_').next().expect("a secret")[..12].to_owned());
    done(send(&client, 4, &format!("DELETE /+tokens/{id}"), &as_alice, ""));
    done(send(&client, 4, "PATCH /alice", &as_alice, r#"{"password": "changed-secret"}"#));
    done(send(&client, 4, "DELETE /carol", &as_root, ""));
    place.run("user groups alice --add admin --log-format json --security-log security.log");
    place.run("user disable alice --log-format json --security-log security.log");

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
