//! Trusted publishers listed, added and removed, both ways.

use serde_json::json;

use super::{Running, Way};

const ISSUERS: &str = "github https://ci.example";
const PUBLISHER: &str =
    "yourproject https://ci.example repository_id=7 repository_owner_id=3 workflow=release.yml";

fn start() -> Running {
    let running = Running::start_with(&["--publishing-issuers", ISSUERS]);
    running.store().prints("index add team/dev", "made");
    running
}

#[test]
fn a_publisher_is_added_listed_and_removed() {
    let running = start();
    check_life(&running.way(&["--data-dir", "data", "--publishing-issuers", ISSUERS]));
    let running = start();
    check_life(&running.server("team", "python:admin"));
}

#[track_caller]
fn check_life(way: &Way<'_>) {
    assert_eq!(way.json("publisher list team/dev"), json!([]));
    way.prints(&format!("publisher add team/dev {PUBLISHER}"), "may upload to team/dev");
    let listed = way.run("publisher list team/dev").stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.starts_with("yourproject https://ci.example repository_id=7 "), "{listed}");
    way.fails("publisher add team/dev p https://other.example sub=1", 1, "not one of");
    way.fails("publisher add team/dev p https://ci.example repository=a/b", 1, "repository_id");
    way.fails("publisher add team/dev p ci.example sub=1", 2, "the URL of an issuer");
    way.fails("publisher add team/dev p https://ci.example sub", 2, "is no publisher");
    way.fails("publisher remove team/dev p https://ci.example sub=1", 1, "doesn't have value");
    way.prints(&format!("publisher remove team/dev {PUBLISHER}"), "uploads no more to team/dev");
    assert_eq!(way.json("publisher list team/dev"), json!([]));
    way.fails("publisher list team/missing", 1, "could not be found");
}
