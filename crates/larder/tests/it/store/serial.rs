//! `X-Larder-Serial` on every surface: requests wait for it, and are refused if it does not come, or is invalid.

use std::time::Duration;

use super::{Wheel, article_request, make_stage};
use crate::server::TestServer;

#[test]
fn every_surface_waits_for_what_was_seen() {
    let server = TestServer::without_aur(|config| {
        config.store.wait_for_serial = Duration::from_millis(200);
    });
    let client = server.client;
    make_stage(&client);
    let wheel = Wheel::new("pkg", "1.0", vec![1; 10], 1);
    wheel.upload(&client, "team/dev");
    client.exchange(&article_request("a", 0, b"x"), false).expect(201);
    let seen = client.root().get("/+tokens").header("x-larder-serial").to_owned();
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
        get(&seen).expect(200);
        for bad in ["x", "-1", "", "1.5", "99999999999999999999999"] {
            get(bad).tells(400, &format!("X-Larder-Serial: `{bad}` is not a serial: a whole number from 0 to 9223372036854775807 was expected"));
        }
        let response = get(&later).expect(503);
        response.has("retry-after", "1");
        response.says(&later);
    }
}
