//! Users whom a trusted proxy names in a header, and everybody else who sends that header.

use std::io::Write as _;

use config::Config;
use serde_json::json;

use crate::asking::{basic, each};
use crate::browser::Browser;
use crate::client::{Response, connect_from};
use crate::process::{self, Process};
use crate::server::{ROOT, ROOT_PASSWORD, TestServer};

/// A server that believes `X-Remote-User` from 127.0.0.1. Articles are for those who are logged in.
fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::without_aur(|config| {
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
        config.article.acl_write = ":crew".parse().expect("a list");
        config.trusted_proxies = vec!["127.0.0.1".parse().expect("a network")];
        let login = &mut config.proxy_login;
        login.header = Some("x-remote-user".parse().expect("a name"));
        login.groups_header = Some("x-remote-groups".parse().expect("a name"));
        login.groups = ["ops=crew", "*=sso-*"].map(|line| line.parse().expect(line)).into();
        change(config);
    })
}

/// Asks from 127.0.0.`host`, with these bytes as the lines of headers.
#[track_caller]
fn ask_from(server: &TestServer, host: u8, line: &str, headers: &[u8]) -> Response {
    let mut stream = connect_from(host, server.client.address);
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    stream.write_all(&[head.as_bytes(), headers, b"\r\n"].concat()).expect("the server reads");
    Response::read(&mut stream, false)
}

#[test]
fn a_trusted_proxy_says_who_it_is() {
    let server = start(|_| ());
    let ask = |groups: &str| {
        let headers = format!("X-Remote-User: alice\r\nX-Remote-Groups: {groups}\r\n");
        ask_from(&server, 1, "GET /articles", headers.as_bytes())
    };
    let answer = ask("").expect(200);
    // It is for this reader alone.
    assert!(!answer.header("cache-control").contains("public"), "{answer:?}");
    assert_eq!(server.groups("alice"), "");
    ask("ops, dev").expect(200);
    assert_eq!(server.groups("alice"), "crew sso-dev");
    let serial = server.stored().serial;
    for _ in 0..20 {
        ask("dev,ops").expect(200);
    }
    let now = server.stored().serial;
    assert_eq!(now, serial, "nothing is written for a user who is as the proxy says");
    ask("dev").expect(200);
    assert_eq!(server.groups("alice"), "sso-dev");
    ask(&vec!["g"; 1_001].join(",")).expect(401);
    // A user with a password here, too; and what a request says itself wins.
    server.add_user("local", "staple");
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: local\r\n").expect(200);
    let own = format!("X-Remote-User: alice\r\nAuthorization: {}\r\n", basic("local", "wrong"));
    ask_from(&server, 1, "GET /articles", own.as_bytes()).expect(401);
}

/// None of these says anything, from the proxy or from anybody else.
#[test]
fn nobody_else_says_who_it_is() {
    let server = start(|_| ());
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(200);
    for line in ["GET /articles", "GET /alice", "GET /+tokens", "POST /+tokens"] {
        let answer = ask_from(&server, 9, line, b"X-Remote-User: alice\r\n");
        assert!([401, 404].contains(&answer.status), "{line}: {answer:?}");
    }
    // Through the proxy's address as the client's, which is another matter.
    let forwarded = b"X-Forwarded-For: 127.0.0.1\r\nX-Remote-User: alice\r\n";
    ask_from(&server, 9, "GET /articles", forwarded).expect(401);
    each(
        [
            &b""[..],
            b"X-Remote-User:\r\n",
            b"X-Remote-User: \t \r\n",
            b"X-Remote-User: alice\r\nX-Remote-User: alice\r\n",
            b"X-Remote-User: mallory\r\nX-Remote-User: alice\r\n",
            b"X-Remote-User: \xff\r\n",
            b"X-Remote-User: a b\r\n",
            b"X-Remote-User: *\r\n",
            b"X-Remote-User: alice,bob\r\n",
            b"X-Remote-User: ../alice\r\n",
            b"X-Remote-User: root\r\n",
            b"X-Remote-User: __token__\r\n",
            b"X-Remote-User: rpc\r\n",
            b"X-Remote-User: alice\r\nX-Remote-Groups: a\r\nX-Remote-Groups: admin\r\n",
            b"X-Remote-User: alice\r\nX-Remote-Groups: \xff\r\n",
            b"X_Remote_User: alice\r\n",
            b"Authorization: Larder-Proxy x YWxpY2U\r\n",
            b"Authorization: Larder-Proxy  YWxpY2U\r\n",
            b"Authorization: Larder-Proxy \xff\r\n",
            b"Authorization: Larder-Proxy\r\n",
        ],
        |headers| {
            ask_from(&server, 1, "GET /articles", headers).expect(401);
        },
    );
    let long = format!("X-Remote-User: {}\r\n", "a".repeat(20_000));
    ask_from(&server, 1, "GET /articles", long.as_bytes()).expect(401);
    assert_eq!(server.groups("alice"), "");
}

#[test]
fn without_the_setting_the_header_says_nothing() {
    let server = start(|config| config.proxy_login.header = None);
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(401);
    ask_from(&server, 1, "GET /articles", b"Authorization: Larder-Proxy x YQ\r\n").expect(401);
}

#[test]
fn settings_say_who_may_be_named() {
    let server = start(|config| {
        config.proxy_login.admits_root = true;
        config.proxy_login.creates_users = false;
    });
    ask_from(&server, 1, "GET /+status", b"X-Remote-User: root\r\n").expect(200);
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: root\r\n").expect(200);
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(401);
    server.add_user("alice", "staple");
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(200);
    let wish = operations::users::SetDisabled {
        name: "alice".parse().expect("a name"),
        is_disabled: true,
    };
    crate::server::wait_for(async {
        let mut keeper = server.app.keeper();
        operations::carry_out(&mut keeper, &operations::Sender::Server, &wish).await
    })
    .expect("a commit");
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(401);
}

/// The proxy's word comes with every request of a browser, whichever page caused it.
#[test]
fn pages_of_other_origins_gain_nothing() {
    let server = start(|config| config.cors.origins = vec![config::PageOrigin::Any]);
    let member = "X-Remote-User: alice\r\nX-Remote-Groups: ops\r\nContent-Length: 0\r\n";
    let write = |more: &str| {
        let headers = format!("{member}If-None-Match: *\r\n{more}");
        ask_from(&server, 1, "PUT /article/a", headers.as_bytes())
    };
    write("Origin: https://evil.example\r\n").expect(403);
    write("Sec-Fetch-Site: cross-site\r\n").expect(403);
    server.root().get("/article/a").expect(404);
    write("Sec-Fetch-Site: same-origin\r\n").expect(201);
    write("Sec-Fetch-Site: same-origin\r\n").expect(412);
    write("Sec-Fetch-Site: cross-site\r\n").expect(403);
    let read = format!("{member}Origin: https://evil.example\r\n");
    let answer = ask_from(&server, 1, "GET /articles", read.as_bytes()).expect(200);
    assert_eq!(answer.find("access-control-allow-origin"), None);
}

/// Articles and simple pages are answered from memory, before anything else is looked at.
#[test]
fn answers_from_memory_are_for_whom_the_proxy_names() {
    let server = start(|_| ());
    server.root().with("If-None-Match", "*").put("/article/a", "text").expect(201);
    server.add_user("team", "pw");
    server.root().put("/team/dev", json!({"acl_read": [":AUTHENTICATED:"]})).expect(200);
    server.root().release("team/dev", "ours-1.0.zip");
    for (number, line) in ["GET /article/a", "GET /team/dev/+simple/ours/"].iter().enumerate() {
        let said = format!("X-Remote-User: reader{number}\r\n");
        let ask = |host, headers: &str| ask_from(&server, host, line, headers.as_bytes());
        // A user who is not made yet, and then is.
        for _ in 0..2 {
            let answer = ask(1, &said).expect(200);
            let caching = answer.header("cache-control");
            assert!(caching.contains("private") && !caching.contains("public"), "{answer:?}");
        }
        ask(1, "").expect(401);
        ask(9, &said).expect(401);
        ask(1, "X-Remote-User: root\r\n").expect(401);
        ask(1, "Authorization: Larder-Proxy x cmVhZGVyMA\r\n").expect(401);
        ask(1, &format!("{said}Authorization: {}\r\n", basic("root", "wrong"))).expect(401);
        ask(9, &format!("{said}Authorization: {}\r\n", basic("root", ROOT_PASSWORD))).expect(200);
    }
}

/// A disabled user is refused, and nothing says that they were identified.
#[test]
fn who_is_disabled_is_not_identified() {
    let options = ["--proxy-login-header", "x-remote-user", "--security-log", "security.log"];
    let groups =
        ["--proxy-login-groups-header", "x-remote-groups", "--proxy-login-groups", "*=sso-*"];
    let more = ["--aur-enabled=false", "--trusted-proxies", "127.0.0.1"];
    let process = Process::start(&[&more[..], &options, &groups].concat(), process::init);
    let ask = |groups: &str| {
        let headers = [("X-Remote-User", "alice"), ("X-Remote-Groups", groups)];
        process.get_with("/+tokens", &headers)
    };
    ask("a").expect(200);
    let identified = || process.security_log().matches("\"identified\"").count();
    assert_eq!(identified(), 1);
    let mut root = Browser::root(*process);
    root.fill("/+manage/users/alice", "Disable", &[]).expect(200);
    ask("b").expect(401);
    assert_eq!(identified(), 1);
}

/// Forms need a session, which the page for logging in opens without asking.
#[test]
fn a_browser_gets_a_session() {
    let server = start(|_| ());
    let mut browser = Browser::new(server.client);
    let named = [("X-Remote-User", "alice"), ("X-Remote-Groups", "ops")];
    let answer = browser.send("GET", "/+account/login?next=%2Farticles", &named, b"");
    answer.expect(303).has("location", "/articles");
    let framed = [("X-Remote-User", "carol"), ("Sec-Fetch-Dest", "iframe")];
    Browser::new(server.client).send("GET", "/+account/login", &framed, b"").expect(200);
    browser.send("GET", "/+account", &named, b"").expect(200).says("alice");
    browser.get("/+account").expect(200);
    // Somebody else at the same browser.
    let other = [("X-Remote-User", "bob")];
    browser.send("GET", "/articles", &other, b"").expect(200);
    let answer = browser.send("GET", "/+account/login", &other, b"").expect(303);
    assert_eq!(answer.header("location"), "/+account");
    browser.get("/+account").expect(200).says("bob");
    // A form without its token is refused, header or not.
    let form = [("X-Remote-User", "bob"), ("Content-Type", "application/x-www-form-urlencoded")];
    browser.send("POST", "/+account/logout", &form, b"everywhere=1").expect(403);
}

/// Programs send their tokens through the same proxy.
#[test]
fn a_token_wins_over_the_header() {
    let server = start(|_| ());
    ask_from(&server, 1, "GET /articles", b"X-Remote-User: alice\r\n").expect(200);
    let made = server.root().typed("application/json");
    let made = made.post("/+tokens?user=alice", json!({"scopes": ["article:read"]})).expect(201);
    let token = made.json()["token"].as_str().expect("a token").to_owned();
    let bearer = format!("Authorization: Bearer {token}\r\nX-Remote-User: bob\r\n");
    ask_from(&server, 1, "GET /articles", bearer.as_bytes()).expect(200);
    server.client.get_with("/articles", &[ROOT]).expect(200);
}
