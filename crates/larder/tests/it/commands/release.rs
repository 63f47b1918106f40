//! Releases listed, yanked, pushed and removed, both ways.

use std::sync::Arc;

use insta::assert_snapshot;
use serde_json::json;

use super::{Running, Way, both_ways};
use crate::asking::Says as _;
use crate::process::Process;
use crate::shown::{redacted, shown_json};
use crate::wait_until;

/// Two indexes, and a project with two releases in one.
fn released() -> Running {
    let running = Running::start();
    let store = running.store();
    store.run("index add team/dev").check(0, "made");
    store.run("index add team/prod volatile=false").check(0, "made");
    wait_until("the index", || running.get("/team/prod").status == 200);
    running.upload("team/dev", "my-lib-1.9.zip".replace("my-lib", "lib").as_str());
    running.upload("team/dev", "lib-1.10.zip");
    running
}

#[test]
fn a_release_is_listed_yanked_pushed_and_removed() {
    both_ways(released, "python:admin,python:upload", check_life);
}

/// The yanks of the project, as installers see them.
fn yanks(running: &Running, stage: &str) -> Vec<String> {
    let accept = [("Accept", "application/vnd.pypi.simple.v1+json")];
    let page = running.process.client.get_with(&format!("/{stage}/+simple/lib/"), &accept).json();
    let files = page["files"].as_array().cloned().unwrap_or_default();
    files.iter().map(|file| file["yanked"].to_string()).collect()
}

#[track_caller]
fn check_life(running: &Running, way: &Way<'_>) {
    assert_snapshot!("list", redacted(&way.run("release list team/dev").stdout));
    assert_snapshot!("list_as_json", shown_json(&way.json("release list team/dev lib")));

    way.prints("release yank team/dev lib 1.9 --reason=broken", "yanked lib 1.9 in team/dev");
    wait_until("the yank", || yanks(running, "team/dev").contains(&"\"broken\"".to_owned()));
    assert_eq!(way.json("release list team/dev lib")[1]["yanked"], "broken");
    let yanked = &way.json("release list team/dev lib")[1];
    assert!(yanked["yanked_at"].as_str().is_some_and(|at| at.contains('-')), "{yanked}");
    // A command on the machine is no user.
    let is_user = way.flags.iter().any(|flag| flag.starts_with("--server"));
    let (by, says) = match is_user {
        true => (json!("team"), "yes, by team: broken"),
        false => (json!(null), "yes: broken"),
    };
    assert_eq!(yanked["yanked_by"], by);
    way.run("release list team/dev").check(0, says);
    way.prints("release yank team/dev lib 1.9 --undo", "lib 1.9 in team/dev is no longer yanked");
    wait_until("no yank", || !yanks(running, "team/dev").contains(&"\"broken\"".to_owned()));
    way.prints("release yank team/dev lib 1.9", "yanked lib 1.9 in team/dev");
    way.prints("release unyank team/dev lib 1.9", "lib 1.9 in team/dev is no longer yanked");
    assert_eq!(way.json("release list team/dev lib")[1]["yanked"], json!(null));

    way.prints(
        "release push team/dev Lib 1.10 team/prod",
        "pushed lib 1.10 from team/dev to team/prod (files: 1)",
    );
    wait_until("the push", || running.get("/team/prod/lib/1.10").status == 200);
    let again = match is_user {
        true => "pushed lib 1.10 from team/dev to team/prod (files: 1)",
        false => "lib 1.10 is in team/prod already",
    };
    way.prints("release push team/dev lib 1.10 team/prod", again);

    way.fails("release list team/none", 1, "larder: The stage team/none could not be found; `larder index list` shows the existing ones");
    way.fails(
        "release yank team/dev lib 7",
        1,
        "larder: The version 7 of project lib does not exist.",
    );
    way.fails(
        "release push team/dev lib 7 team/prod",
        1,
        "larder: there are no files for lib 7 on stage team/dev",
    );
    let hinted = "larder: The stage team/none could not be found; `larder index list` shows the existing ones";
    way.fails("release push team/dev lib 1.9 team/none", 1, hinted);
    way.fails(
        "release push team/dev lib 1.9 prod",
        2,
        "larder: `prod`: USER/INDEX was expected, as team/prod, or an upload URL",
    );
    way.fails(
        "release push team/dev lib 1.9 team/prod --only-docs",
        1,
        "larder: no release/files found for lib 1.9",
    );
    way.fails(
        "release remove team/dev lib",
        2,
        "error: the following required arguments were not provided:\n  <VERSION>",
    );
    let hinted = "larder: cannot delete version on non-volatile index; --force removes it anyway";
    way.fails("release remove team/prod lib 1.10", 1, hinted);
    way.prints("release remove team/prod lib 1.10 --force", "removed lib 1.10 from team/prod");
    way.prints("release remove team/dev lib 1.9", "removed lib 1.9 from team/dev");
    wait_until("the version to be gone", || running.get("/team/dev/lib/1.9").status == 404);
    way.prints(
        "release remove team/dev lib --all-versions",
        "removed all of lib from team/dev, which keeps the name (--release-name releases it)",
    );
    wait_until("the project to be gone", || running.get("/team/dev/lib").status == 404);
    let again = way.run("release remove team/dev lib --all-versions");
    again.fails(1, "project not found: nothing is left of it but its name");
}

#[test]
fn a_release_goes_to_a_server_elsewhere() {
    let running = Running::start_with(&["--egress-allow", "127.0.0.1"]);
    running.store().run("index add team/dev").check(0, "made");
    wait_until("the index", || running.get("/team/dev").status == 200);
    running.upload("team/dev", "lib-1.0.zip");
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    let prepared = crate::accounts::prepare(directory.path());
    let index = "root/up";
    prepared.run(&format!("index add {index}"));
    let other = Process::start_in(directory.clone(), "data", &["--aur-enabled=false"]);
    let url = format!("http://{}/{index}/", other.client.address);
    let line = format!("release push team/dev lib 1.0 {url} --to-user root --to-password-stdin");

    running.store().fails(&line, 2, "larder: `http://127.0.0.1:PORT/root/up/` is another server, and only a running server uploads there: add --server URL");
    let way = running.server("team", "python:upload,python:admin");
    way.fails(
        &format!("release push team/dev lib 1.0 {url}"),
        2,
        "larder: an upload URL needs --to-user NAME and --to-password-stdin",
    );
    let done = way.run_with(&line, &[], "wrong\n");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("upload team/dev/+f/"), "which file, and why: {done:?}");
    let done = way.run_with(&line, &[], "horse\n");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout.says("200 upload team/dev/+f/");
    let accept = [("Accept", "application/json")];
    other.client.get_with(&format!("/{index}/lib/1.0"), &accept).expect(200);
}

/// Not one that is missing is pushed, on the data directory as little as by a server.
#[test]
fn a_file_that_is_missing_is_not_pushed() {
    let running = released();
    let digest = record::Digest::of(&crate::python::sdist("lib-1.10.zip")).to_string();
    let blobs = running.process.directory.path().join("data/blobs/sha256");
    let mut gone = 0;
    for first in std::fs::read_dir(blobs).expect("blobs").flatten() {
        gone += remove_below(&first.path(), &digest);
    }
    assert_eq!(gone, 1);
    let line = "release push team/dev lib 1.10 team/prod";
    running.store().fails(line, 1, "larder: the file with the digest DIGEST is missing from the blobs: nothing was written; `larder verify` lists all that is missing");
    running
        .store()
        .prints("release list team/prod", "PROJECT  VERSION  FILES  BYTES  UPLOADED  YANKED");
    running.get("/team/prod/lib/1.10").expect(404);
}

fn remove_below(path: &std::path::Path, name: &str) -> usize {
    if path.is_file() {
        let is_it = path.file_name().is_some_and(|it| it == name);
        return usize::from(is_it && std::fs::remove_file(path).is_ok());
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| remove_below(&entry.path(), name)).sum()
}
