//! `X-Larder-Serial`: no answer is older than the state that the client has seen.

use std::time::Duration;

use super::{store, wiki_with};

#[test]
fn a_serial_that_was_seen_is_waited_for() {
    let server = wiki_with(|config| config.store.wait_for_serial = Duration::from_millis(300));
    let seen = store(&server, "a/0", b"text").header("x-larder-serial").to_owned();
    let later = (seen.parse::<u64>().expect("a number") + 1).to_string();
    let targets =
        ["/article/a", "/article/a/1", "/article/a/history", "/article/a/diff", "/articles"];
    for target in targets {
        let get = |serial: &str| server.client.get_with(target, &[("X-Larder-Serial", serial)]);
        let response = get(&seen).expect(200);
        response.has("x-larder-serial", &seen);
        get("0").expect(200);
        for bad in ["x", "-1", "", "1.5", "99999999999999999999999"] {
            let expected =
                "is not a serial: a whole number from 0 to 9223372036854775807 was expected";
            get(bad).tells(400, &format!("X-Larder-Serial: `{bad}` {expected}"));
        }
        let response = get(&later);
        response.has("retry-after", "1");
        let expected =
            format!("this process is at serial {seen}, and serial {later} was asked for");
        response.tells(503, &expected);
    }
    let write =
        |serial: &str| server.root().with("X-Larder-Serial", serial).post("/article/a/1", "x");
    write(&later).expect(503);
    write(&seen).expect(201);
    server.root().with("X-Larder-Serial", &later).get("/article/a").expect(200);
}

#[test]
fn a_request_waits_for_a_write_on_its_way() {
    let server = wiki_with(|config| config.store.wait_for_serial = Duration::from_secs(30));
    let seen =
        store(&server, "a/0", b"one").header("x-larder-serial").parse::<u64>().expect("a number");
    let client = server.client;
    let waiting = std::thread::spawn(move || {
        client.get_with("/article/a", &[("X-Larder-Serial", &(seen + 1).to_string())])
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    store(&server, "a/1", b"two");
    assert_eq!(waiting.join().expect("an answer").text(), "two");
}
