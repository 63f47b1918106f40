//! Packages of the AUR: a follower takes them from its primary, by itself and soon after each change.

use std::fs;

use super::*;
use crate::catalogue::{generation, gunzip, record};

/// The file that a primary has its packages from, in the directory of the test.
const SOURCE: &str = "dump.json";

const PACKAGES: u32 = 40;

/// Puts another dump there at once.
fn replace_source(directory: &TempDir, dump: &[u8]) {
    let aside = directory.path().join("next");
    fs::write(&aside, dump).expect("a file");
    fs::rename(aside, directory.path().join(SOURCE)).expect("renamed");
}

fn start_primary(directory: &Arc<TempDir>) -> Process {
    Process::start_in(directory.clone(), "data", &["--aur-source", SOURCE])
}

/// A directory with a token, and a primary in it that has this dump.
fn primary_with(dump: &[u8]) -> (Arc<TempDir>, Process) {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    replace_source(&directory, dump);
    let server = start_primary(&directory);
    let token = make_token(&server.client, &["server:follow"]);
    fs::write(directory.path().join(TOKEN_FILE), format!("{token}\n")).expect("a file");
    (directory, server)
}

/// A server that follows that URL, and has no source of its own.
fn copy(directory: &Arc<TempDir>, data: &str, url: &str, more: &[&str]) -> Process {
    let arguments = [&["--follow", url, "--follow-token-file", TOKEN_FILE], more].concat();
    Process::start_in(directory.clone(), data, &arguments)
}

/// The packages of a generation, and one that only it has.
fn dump_of(number: u32) -> Vec<u8> {
    let name = format!("only-{number}");
    let own = record(1_000, &name, &name, json!({"Maintainer": format!("carl{number}")}));
    let mut packages: Vec<Value> =
        serde_json::from_slice(&generation(0, PACKAGES)).expect("a dump");
    packages[number as usize]["Version"] = format!("{number}-9").into();
    packages.push(own);
    crate::catalogue::dump(packages)
}

const QUESTIONS: [&str; 13] = [
    "/rpc/v5/info?arg[]=shared-0001&arg[]=shared-0002&arg[]=only-1",
    "/rpc/v5/search/shared",
    "/rpc/v5/search/only",
    "/rpc/v5/search/everything?by=provides",
    "/rpc/v5/suggest/only",
    "/rpc/v5/suggest-pkgbase/sha",
    "/rpc?v=5&type=search&arg=zz",
    "/packages?names=shared-0001",
    "/packages.gz",
    "/pkgbase.gz",
    "/users.gz",
    "/packages-meta-v1.json.gz",
    "/packages-meta-ext-v1.json.gz.sha256",
];

const WHOLE: &str = "/packages-meta-ext-v1.json.gz";

fn has_dump(client: &Client, dump: &[u8]) -> bool {
    let answer = client.get(WHOLE);
    // While it is written, there is none.
    answer.status == 200 && gunzip(&answer.body) == dump
}

/// Waits until the follower has this dump, and expects all answers of the primary.
#[track_caller]
fn wait_until_same(follower: &Client, primary: &Client, dump: &[u8]) {
    wait_until("the primary's dump", || has_dump(primary, dump));
    wait_until("the follower's dump", || has_dump(follower, dump));
    for target in QUESTIONS.into_iter().chain([WHOLE, "/packages-meta-ext-v1.json.zst"]) {
        let (theirs, ours) = (follower.get(target), primary.get(target).expect(200));
        assert_eq!(theirs.status, ours.status, "{target}: {}", theirs.text());
        assert!(theirs.body == ours.body, "{target}: {}\n{}", theirs.text(), ours.text());
        assert_eq!(theirs.find("etag"), ours.find("etag"), "{target}");
        assert_eq!(theirs.find("last-modified"), ours.find("last-modified"), "{target}");
    }
}

#[test]
fn a_follower_has_the_packages_of_its_primary() {
    let first = dump_of(1);
    let (directory, server) = primary_with(&first);
    let second = copy(&directory, "second", &url(&server), &[]);
    // It is ready once they are there.
    second.get("/rpc/v5/info/only-1").expect(200).says("carl1");
    let third = copy(&directory, "third", &url(&second), &[]);
    wait_until_same(&third, &server, &first);
    for number in 2..6 {
        let next = dump_of(number);
        replace_source(&directory, &next);
        wait_until_same(&second, &server, &next);
        wait_until_same(&third, &server, &next);
    }
    // Only the first dump was fetched whole.
    for follower in [&second, &third] {
        follower.log().lacks("all of it is fetched");
        follower.get("/readyz?verbose").says(" from http://127.0.0.1:").lacks("[!] aur");
        follower.get("/status").says("from the primary");
        assert_eq!(follower.metric("larder_aur_enabled"), 1.0);
        wait_until("the same packages", || follower.metric("larder_follow_aur_lag_seconds") == 0.0);
    }
}

#[test]
fn packages_stay_without_the_primary_and_follow_it_again() {
    let first = dump_of(1);
    let (directory, server) = primary_with(&first);
    let line = Line::to(server.client.address);
    let second = copy(&directory, "second", &line.url(), &[]);
    wait_until_same(&second, &server, &first);
    drop(server);
    wait_until("the end of the line", || second.metric("larder_follow_connected") == 0.0);
    second.get("/rpc/v5/info/only-1").expect(200).says("carl1");
    wait_until("its age", || {
        second.get("/readyz?verbose").text().contains("not compared with the primary's packages")
    });
    assert!(second.metric("larder_follow_aur_lag_seconds") > 0.0);
    drop(second);
    // Started without the primary, it has what it kept.
    let second = copy(&directory, "second", &line.url(), &[]);
    second.get("/rpc/v5/info/only-1").expect(200).says("carl1");
    assert!(second.metric("larder_follow_aur_lag_seconds") > 0.0);

    // The primary does not know any more how the dump of the follower leads to the next.
    let next = dump_of(2);
    replace_source(&directory, &next);
    fs::remove_dir_all(directory.path().join("data/aur")).expect("removed");
    let server = start_primary(&directory);
    line.leads_to(server.client.address);
    wait_until_same(&second, &server, &next);
    second.log().says("all of it is fetched");

    // Whatever is left of the kept dump, it comes again.
    drop(second);
    let kept = directory.path().join("second/aur/packages-meta-ext-v1.json.gz");
    let bytes = fs::read(&kept).expect("a dump");
    fs::write(&kept, &bytes[..bytes.len() / 2]).expect("a file");
    let second = copy(&directory, "second", &line.url(), &[]);
    wait_until_same(&second, &server, &next);
}

#[test]
fn cuts_do_no_harm_to_packages() {
    let mut dump = dump_of(1);
    let (directory, server) = primary_with(&dump);
    let line = Line::to(server.client.address);
    let second = copy(&directory, "second", &line.url(), &[]);
    let rounds = if is_long() { 150 } else { 8 };
    for round in 0..rounds {
        // From the first byte of the announcement up to the whole delta and beyond.
        line.cut_after(1 + round as usize * 173 % 1_500);
        dump = dump_of(2 + round % (PACKAGES - 2));
        replace_source(&directory, &dump);
        wait_until("the primary's dump", || has_dump(&server, &dump));
        if round % 3 == 2 {
            line.cut();
        }
    }
    wait_until_same(&second, &server, &dump);
}

#[test]
fn packages_that_the_primary_serves_later_are_served_then() {
    let primary = Primary::start();
    let line = Line::to(primary.server.client.address);
    let second = copy(&primary.directory, "second", &line.url(), &[]);
    let given = second.get("/rpc/v5/info/only-1");
    given.tells(404, "this server has no packages of the AUR: the primary that it follows has given it none; its operator can name a source for them with `--aur-source FILE|URL` (`aur.source` in the configuration)");
    second.get("/readyz?verbose").says("aur: not served, since the primary has given no packages");
    assert_eq!(second.metric("larder_aur_enabled"), 0.0);
    // One that is told not to serve them does not.
    let third = primary.follower("third", &line.url(), &[]);
    let Primary { directory, server, .. } = primary;
    drop(server);
    let dump = dump_of(1);
    replace_source(&directory, &dump);
    let server = start_primary(&directory);
    line.leads_to(server.client.address);
    wait_until_same(&second, &server, &dump);
    second.get("/readyz").expect(200);
    third.get("/rpc/v5/info/only-1").tells(404, "this server has no packages of the AUR: its operator has switched them off (`aur.enabled = false` in the configuration)");
}

#[test]
fn a_source_that_is_set_stays() {
    let (directory, server) = primary_with(&dump_of(1));
    fs::write(directory.path().join("own.json"), dump_of(2)).expect("a file");
    let second = copy(&directory, "second", &url(&server), &["--aur-source", "own.json"]);
    second.get("/rpc/v5/info/only-1").expect(200).says("\"resultcount\":0");
    second.get("/rpc/v5/info/only-2").expect(200).says("carl2");
    assert_eq!(second.find_metric("larder_follow_aur_lag_seconds"), Some(0.0));
    second.get("/status").lacks("from the primary");
}
