//! `X-Larder-Serial` on every surface: requests wait for it, and are refused if it does not come, or is invalid.

use std::time::Duration;

use super::{Wheel, article_request, make_stage, send, try_exchange};
use crate::server::TestServer;

#[test]
fn every_surface_waits_for_what_was_seen() {
    let server = TestServer::without_aur(|config| {
        config.store.wait_for_serial = Duration::from_millis(200);
    });
    let client = server.client;
    make_stage(&client);
    let wheel = Wheel::new("pkg", "1.0", vec![1; 10], 1);
    assert_eq!(try_exchange(&client, &wheel.request("team/dev")).expect("an answer").0, 200);
    assert_eq!(try_exchange(&client, &article_request("a", 0, b"x")).expect("an answer").0, 201);
    let seen = send(&client, "GET", "/+tokens", "").header("x-larder-serial").to_owned();
    let later = (seen.parse::<u64>().expect("a number") + 1).to_string();
    let file = wheel.path("team/dev");
    let targets = [
        "/article/a",
        "/articles",
        "/+tokens",
        "/root",
        "/team/dev",
        "/team/dev/+simple/pkg/",
        "/team/dev/pkg",
        &file,
    ];
    for target in targets {
        let get = |serial: &str| client.root().with("X-Larder-Serial", serial).get(target);
        assert_eq!(get(&seen).status, 200, "{target}");
        for bad in ["x", "-1", "", "1.5", "99999999999999999999999"] {
            let response = get(bad);
            assert_eq!(response.status, 400, "{target} {bad}");
            response.says("X-Larder-Serial");
        }
        let response = get(&later);
        assert_eq!((response.status, response.header("retry-after")), (503, "1"), "{target}");
        response.says(&later);
    }
}
