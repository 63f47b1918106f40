//! `larder config check --online` beside things that work, and things that do not.

use serde_json::json;

use super::Running;
use crate::asking::Says as _;
use crate::process::{Done, larder};
use crate::publishing::issuer::{FakeIssuer, Key};

/// A place where nothing listens.
const NOWHERE: &str = "http://127.0.0.1:9";

#[test]
fn each_thing_that_is_somewhere_else_is_tried() {
    let running = Running::start();
    let issuer = FakeIssuer::with_keys(json!([Key::ec().public("k1"), Key::ec().public("k2")]));
    let place = running.place();
    place.run(&format!(
        "index add team/good type=mirror mirror_url={}/root/dev/+simple/",
        running.url()
    ));
    let check = |flags: &str| {
        let line = format!("config check --online --aur-enabled=false {flags}");
        place.run_with(&line, "")
    };
    let issuers = format!("--publishing-issuers=generic#{}", issuer.url).replace('#', " ");
    let with_issuer = |more: &[&str]| {
        let words = [&["config", "check", "--online", issuers.as_str()], more].concat();
        place.run_words(&words, "")
    };

    check("--egress-allow 127.0.0.1/32").check(
        0,
        [
            "the configuration is valid",
            "works: store.database",
            "works: store.blobs",
            "works: mirror_url of team/good",
        ],
    );
    with_issuer(&["--egress-allow", "127.0.0.1/32"]).check(0, "it has 2 keys");
    check("").fails(1, ["works: store.database", "fails: mirror_url of team/good", "egress_allow"]);

    // What fails does not hide what works.
    place.run(&format!("index add team/bad type=mirror mirror_url={NOWHERE}/secret/"));
    let source = format!("--aur-source={NOWHERE}/dump.gz");
    let flags = ["--egress-allow", "127.0.0.1/32", "--aur-enabled=true", &source];
    let done = with_issuer(&flags);
    done.fails(
        1,
        [
            "works: mirror_url of team/good",
            "fails: mirror_url of team/bad",
            "fails: aur.source",
            "it has 2 keys",
        ],
    );

    place.run_with("config check --aur-enabled=false", "").check(0, "").said().lacks("works");
}

#[test]
fn a_wrong_password_and_a_missing_store_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |flags: &[&str]| {
        let words = ["config", "check", "--online", "--data-dir", "data"];
        Done::of(larder(directory.path()).args(words).args(flags), "")
    };
    check(&[]).check(0, ["works: store.database", "the first start makes it"]);
    assert!(!directory.path().join("data").exists(), "and nothing is made");
    let database = "--database=postgres://larder:s3cret@127.0.0.1:9/larder";
    let done = check(&[database]);
    done.fails(1, "fails: store.database").said().lacks("s3cret");
}
