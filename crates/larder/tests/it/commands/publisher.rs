//! Trusted publishers listed, added and removed, both ways.

use serde_json::json;

use super::{Running, Way};

const ISSUERS: &str = "github https://ci.example";
const PUBLISHER: &str =
    "yourproject https://ci.example repository_id=7 repository_owner_id=3 workflow=release.yml";

fn start() -> Running {
    let running = Running::start_with(&["--publishing-issuers", ISSUERS]);
    running.store().run("index add team/dev").check(0, "made");
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
    way.prints(&format!("publisher add team/dev {PUBLISHER}"), "yourproject https://ci.example repository_id=7 repository_owner_id=3 workflow=release.yml may upload to team/dev");
    let listed = way.run("publisher list team/dev").stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.starts_with("yourproject https://ci.example repository_id=7 "), "{listed}");
    way.fails("publisher add team/dev p https://other.example sub=1", 1, "larder: the issuer `https://other.example` is not one of `publishing.issuers` in the configuration");
    way.fails("publisher add team/dev p https://ci.example repository=a/b", 1, "larder: the publisher `p https://ci.example repository=a/b` lacks `repository_id`: an issuer of the kind github needs it");
    way.fails("publisher add team/dev p ci.example sub=1", 2, "larder: `p ci.example sub=1` is no publisher: the URL of an issuer was expected, and not `ci.example`");
    way.fails("publisher add team/dev p https://ci.example sub", 2, "larder: `p https://ci.example sub` is no publisher: `PROJECT ISSUER CLAIM=VALUE …` was expected");
    way.fails(
        "publisher remove team/dev p https://ci.example sub=1",
        1,
        "larder: The 'trusted_publishers' setting doesn't have value 'p https://ci.example sub=1'",
    );
    way.prints(&format!("publisher remove team/dev {PUBLISHER}"), "yourproject https://ci.example repository_id=7 repository_owner_id=3 workflow=release.yml uploads no more to team/dev");
    assert_eq!(way.json("publisher list team/dev"), json!([]));
    way.fails("publisher list team/missing", 1, "larder: The stage team/missing could not be found; `larder index list` shows the existing ones");
}
