//! Indexes made, shown, changed and removed, both ways.

use insta::assert_snapshot;
use serde_json::json;

use super::{Running, Way, both_ways};
use crate::asking::Says as _;
use crate::shown::redacted;
use crate::wait_until;

#[test]
fn an_index_is_made_shown_changed_and_removed() {
    both_ways(Running::start, "python:admin", check_life);
}

/// The whole life of an index; the running server sees each step.
#[track_caller]
fn check_life(running: &Running, way: &Way<'_>) {
    way.prints("index add team/prod volatile=false", "made the index team/prod: acl_toxresult_upload=:AUTHENTICATED: acl_upload=team volatile=false");
    way.prints("index add team/dev bases=team/prod", "made the index team/dev: acl_toxresult_upload=:AUTHENTICATED: acl_upload=team bases=team/prod volatile=true");
    wait_until("the server's index", || running.get("/team/dev").status == 200);
    assert_eq!(running.get("/team/dev").json()["result"]["bases"], json!(["team/prod"]));
    assert_eq!(running.get("/team/prod").json()["result"]["volatile"], false);

    assert_snapshot!("list", way.run("index list").stdout);
    assert_eq!(way.json("index list")[1]["name"], "team/prod");
    assert_eq!(way.json("index list team").as_array().map(Vec::len), Some(2));

    way.prints("index set team/dev acl_upload+=alice title=nightly", "the index team/dev now has: acl_toxresult_upload=:AUTHENTICATED: acl_upload=team,alice bases=team/prod title=nightly volatile=true");
    wait_until("the server's list", || {
        let accept = ("Accept", "application/json");
        let root = ("Authorization", &*crate::asking::basic("root", "horse"));
        let shown = running.process.client.get_with("/team/dev", &[accept, root]).json();
        shown["result"]["acl_upload"] == json!(["team", "alice"])
    });
    assert_eq!(way.json("index show team/dev")["acl_upload"], json!(["team", "alice"]));
    assert_eq!(way.json("index show team/dev")["projects"], json!([]));

    // A right that nobody has is given, with a warning. Over HTTP `team`, who is no administrator, does not learn who is there.
    let given = way.run("index set team/dev acl_read=:nobody,alice,zoe");
    match way.flags.contains(&"--server".to_owned()) {
        true => given.check(0, "").stderr.lacks("warning"),
        false => assert_snapshot!("given_to_nobody", given.check(0, "").stderr),
    }
    way.run("index set team/dev acl_read=:ANONYMOUS:").check(0, "").stderr.lacks("warning");
    assert_snapshot!("show", redacted(&way.run("index show team/dev").stdout));

    way.fails("index add team/dev", 1, "larder: index 'team/dev' exists");
    way.fails(
        "index show team/x",
        1,
        "larder: The stage team/x could not be found; `larder index list` shows the existing ones",
    );
    way.fails("index set team/dev colour=red", 1, "larder: indexconfig got unexpected keyword arguments: colour=red; `larder index set --help` lists the settings");
    way.fails("index set team/dev volatile=perhaps", 1, "larder: Unknown boolean value 'perhaps'.");
    way.fails(
        "index set team/dev bases=team/none",
        1,
        "larder: base index 'team/none' does not exist",
    );
    way.fails("index set team/dev colour", 2, "error: invalid value 'colour' for '[KEY=VALUE]...': `colour` changes nothing: `key=value`, `key+=value`, `key-=value` or `key-=` was expected");
    way.fails(
        "index set team/dev",
        2,
        "larder: KEY=VALUE was expected: what is to be set, as volatile=false",
    );
    way.fails("index add nobody-here", 2, "error: invalid value 'nobody-here' for '<USER/INDEX>': `nobody-here` is not the name of an index: `user/index` was expected");
    way.fails(
        "index add team/pypi type=mirror",
        1,
        "larder: a mirror needs `mirror_url`: the URL of its upstream's list of projects",
    );
    let url = "mirror_url=http://me:s3cret@127.0.0.1:9/simple/";
    let made = way.run(&format!("index add team/pypi type=mirror {url}"));
    assert_snapshot!("made_a_mirror", made.check(0, "").said());
    let set = way.run("index set team/pypi mirror_cache_expiry=60");
    assert_eq!(set.check(0, "").stderr, made.stderr);
    let quiet = |line: &str| way.run(line).check(0, "").stderr.lacks("warning");
    quiet("index set team/pypi title=Theirs");
    quiet("index set team/pypi mirror_offline=true");
    // What inherits from an index, and mirrors by itself, is not covered by its policy.
    quiet("index set team/prod policy_cooldown_days=7");
    way.run("index set team/dev bases=team/prod,team/pypi").check(0, "");
    way.run("index set team/prod policy_cooldown_days=8").check(0, "").stderr.says(
        "warning: the policy of team/prod judges what is asked for there, and its own files; it does not judge what \
         team/dev shows",
    );
    quiet("index set team/prod title=Ours");
    way.run("index set team/dev policy_deny=leftpad").check(0, "");
    way.run("index set team/prod policy_cooldown_days=7")
        .check(0, "")
        .stderr
        .says("team/dev shows");
    way.run("index set team/dev policy_cooldown_days=7").check(0, "");
    quiet("index set team/prod policy_cooldown_days=9");
    way.run("index set team/dev bases=team/prod policy_cooldown_days-= policy_deny-=").check(0, "");
    let shown = way.run("index show team/pypi").stdout;
    shown.says("http://***@127.0.0.1:9/simple/");
    shown.lacks("s3cret");
    way.prints("index remove team/pypi", "removed the index team/pypi");
    way.fails(
        "index remove team/prod",
        1,
        "larder: index team/prod non-volatile, cannot delete; --force removes it anyway",
    );
    way.prints("index remove team/prod --force", "removed the index team/prod");
    way.prints("index remove team/dev", "removed the index team/dev");
    wait_until("the indexes to be gone", || running.get("/team/dev").status == 404);
    way.fails("index remove team/dev", 1, "larder: The stage team/dev could not be found; `larder index list` shows the existing ones");
}

#[test]
fn an_index_wants_a_user_and_is_listed_as_theirs() {
    let running = Running::start();
    running.store().run("index add team/dev").check(0, "made");
    let hers = running.store().run("index list alice").stdout;
    assert_eq!(hers.lines().count(), 1, "no index is hers: {hers}");
    running.store().fails(
        "index add zoe/dev",
        1,
        "larder: no user 'zoe'; `larder user add` makes users",
    );
    let root = running.server("root", "python:admin");
    root.fails("index add zoe/dev", 1, "larder: no user 'zoe'; `larder user add` makes users");
}

/// A change of rights on the data directory is in the security log, as if a server had made it.
#[test]
fn what_a_command_changes_of_rights_is_in_the_security_log() {
    let running = Running::start();
    let logged = running.way(&["--data-dir", "data", "--security-log", "security.log"]);
    logged.run("index add team/dev").check(0, "made");
    logged.run("index set team/dev acl_upload=alice").check(0, "alice");
    let path = running.process.directory.path().join("security.log");
    let log = std::fs::read_to_string(path).expect("a log");
    log.says(["team/dev", "alice"]);
}
