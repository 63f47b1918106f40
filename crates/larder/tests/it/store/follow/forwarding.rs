//! What a follower passes on says nothing about its client that the client has made up, and goes round no circle.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use super::{Line, Primary, TOKEN_FILE, fill, make_token, url, write};
use crate::asking::{Says as _, basic};
use crate::process::{Process, init};

/// A primary that believes 127.0.0.1 who a client is and where it is.
fn trusting() -> Primary {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    let arguments = [
        "--aur-enabled=false",
        "--trusted-proxies=127.0.0.1",
        "--client-address-header=X-Client-IP",
        "--proxy-login-header=X-Remote-User",
        "--proxy-login-admits-root=true",
    ];
    let server = Process::start_in(directory.clone(), "data", &arguments);
    let token = make_token(&server.client, &["server:follow"]);
    fs::write(directory.path().join(TOKEN_FILE), &token).expect("a file");
    Primary { directory, server, token }
}

const FORWARDS: [&str; 2] = ["--follow-writes", "forward"];

#[test]
fn nobody_is_somebody_else_by_way_of_a_follower() {
    let primary = trusting();
    let second = primary.follower("second", &primary.url(), &FORWARDS);
    let third = primary.follower("third", &url(&second), &FORWARDS);
    let wish = json!({"scopes": ["*"], "expires": null});
    let named = |server: &Process| {
        let ask = server.anybody().with("X-Remote-User", "root").typed("application/json");
        ask.with("X-Client-IP", "203.0.113.9").with("X-Forwarded-User", "root")
    };
    // A proxy says so at the primary itself.
    named(&primary.server).post("/+tokens", wish.clone()).expect(201);
    for follower in [&second, &third] {
        named(follower).post("/+tokens", wish.clone()).expect(401);
        named(follower).with("X-Larder-Hops", "0").post("/+tokens", wish.clone()).expect(401);
        // Whoever says the truth is believed, from the address that the follower knows.
        write(follower, &format!("by/p{}", follower.id()), 0, "text");
        let wrong = named(follower).with("Authorization", &basic("root", "wrong"));
        wrong.post("/+tokens", wish.clone()).expect(401);
    }
    primary.server.wait_for_log("login_failed");
    let log = primary.server.log();
    let failed = log.lines().filter(|line| line.contains("login_failed"));
    failed.for_each(|line| line.lacks("203.0.113.9"));
}

#[test]
fn a_user_whom_a_followers_proxy_names_is_led_to_the_primary() {
    let primary = Primary::start();
    fill(&primary.server);
    let believes = ["--trusted-proxies=127.0.0.1", "--proxy-login-header=X-Remote-User"];
    let second = primary.follower("second", &primary.url(), &[&FORWARDS[..], &believes].concat());
    let named = second.anybody().with("X-Remote-User", "team").typed("text/plain");
    let led = named.post("/article/notes/one/2", "text").expect(307);
    assert_eq!(led.header("location"), format!("{}/article/notes/one/2", primary.url()));
    // Credentials of its own win, here as everywhere.
    second.root().with("X-Remote-User", "team").write("notes/one/2", "text").expect(201);
}

#[test]
fn a_circle_of_followers_ends() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let second = primary.follower("second", &line.url(), &FORWARDS);
    let third = primary.follower("third", &url(&second), &FORWARDS);
    write(&third, "notes/one", 2, "by way of both");
    line.leads_to(third.client.address);
    line.cut();
    for follower in [&second, &third] {
        let refused = follower.root().write("notes/one/3", "round and round");
        refused.tells(503, "this request was passed on 8 times, at most 8 were expected: the servers follow each other in a circle, and none of them is the primary");
        refused.has("content-type", "application/problem+json");
        let refused = follower.root().with("X-Larder-Hops", "x").write("notes/one/3", "text");
        refused.tells(400, "`X-Larder-Hops` is no whole number: expected one from a follower");
    }
}
