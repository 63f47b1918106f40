//! Clocks of another day: a process or a command whose clock is wrong deletes nothing by time, and says so.

use std::process::Command;
use std::sync::LazyLock;

use super::{Place, Wheel, make_stage};
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::{Done, Process};
use crate::wait_until;

/// How far a command and a process are ahead.
const DAYS: ((&str, &str), (&str, f64)) = (("+2d", "2 days"), ("+1d", 86_400.0));

/// The library that makes clocks wrong; `None` if it cannot be had.
///
/// The wrapper is asked for it once, and again where it fails: it names a semaphore by its process ID, and a killed process
/// of that ID has left one.
static LIBRARY: LazyLock<Option<String>> = LazyLock::new(|| {
    let mut said = "faketime is not installed (Debian package faketime)".to_owned();
    for _ in 0..10 {
        let Ok(output) =
            Command::new("faketime").args(["-f", "+1d", "printenv", "LD_PRELOAD"]).output()
        else {
            break;
        };
        if output.status.success() {
            return Some(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        said = format!("faketime failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    testbed::skipped(&said);
    None
});

/// The environment of a process whose clock is ahead by this; `None` if that cannot be had.
pub(crate) fn ahead(by: &str) -> Option<Vec<(&'static str, String)>> {
    Some(vec![
        ("LD_PRELOAD", LIBRARY.clone()?),
        ("FAKETIME", by.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ])
}

/// Uploads a file and removes it again: its blobs belong to nothing, and are young.
fn leave_blobs(client: &Client) {
    make_stage(client);
    let wheel = Wheel::new("pkg", "1.0", vec![7; 1000], 2);
    wheel.upload(client, "team/dev");
    client.root().delete("/team/dev/pkg").expect(200);
}

fn ahead_seconds(process: &Process) -> f64 {
    process.find_metric("larder_clock_ahead_seconds").expect("a metric")
}

fn blobs(place: &Place) -> usize {
    let done = place.run(&["sweep", "--dry-run", "--grace", "0"]);
    done.check(0, "").stdout.lines().count()
}

/// A command and a process are ahead by that; an object store accepts only requests that are nearly of its time.
#[track_caller]
fn check(place: &Place, (command, shown): (&str, &str), (server, seconds): (&str, f64)) {
    let (Some(command), Some(server)) = (ahead(command), ahead(server)) else { return };
    place.init();
    let process = place.start("one");
    leave_blobs(&process.client);
    let left = blobs(place);
    assert!(left > 0);
    let mut sweep = place.command(&["sweep"]);
    sweep.envs(command.iter().map(|(name, value)| (name, value)));
    let expected = format!("this machine's clock is {shown} ahead of that of");
    Done::of(&mut sweep, "").check(1, [&*expected, "nothing is deleted"]);
    assert_eq!(blobs(place), left);
    place.check(&["sweep"]);
    assert_eq!(blobs(place), left, "they are young");

    let wish = r#"{"scopes":["article:write"],"expires":"300s"}"#;
    let token = process.root().typed("application/json").post("/+tokens", wish).expect(201);
    let token = token.json()["token"].as_str().expect("a token").to_owned();
    let wrong = place.start_in("wrong", &server);
    wait_until("the trouble", || {
        let said = wrong.client.get("/readyz?verbose").text();
        said.contains("[!] clock: this machine's clock is ") && said.contains("ahead of that of")
    });
    wrong.client.get("/readyz").expect(200);
    assert!((ahead_seconds(&wrong) - seconds).abs() < 60.0, "{}", ahead_seconds(&wrong));
    wrong.log().says("nothing is deleted by time until");
    assert!(ahead_seconds(&process).abs() < 60.0, "{}", ahead_seconds(&process));
    let made = wrong.root().typed("application/json").post("/+tokens", wish).expect(201);
    let seen = made.header("x-larder-serial").to_owned();
    let bearer = format!("Bearer {token}");
    process
        .authorized(bearer.as_str())
        .with("X-Larder-Serial", &seen)
        .post("/article/a/0", "text")
        .expect(201);
}

#[test]
fn with_a_directory() {
    check(&Place::sqlite(), DAYS.0, DAYS.1);
}

#[test]
fn with_postgres() {
    let Some(place) = Place::postgres() else { return };
    check(&place, DAYS.0, DAYS.1);
}

#[test]
fn with_postgres_and_s3() {
    let Some(place) = Place::postgres_and_s3() else { return };
    check(&place, ("+12m", "12 minutes"), ("+10m", 600.0));
}
