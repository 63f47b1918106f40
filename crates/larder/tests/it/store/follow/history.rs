//! A primary that is not what it was: restored from an older backup, replaced by another store, or succeeded by a follower.

use std::fs;
use std::io::{Read as _, Write as _};

use super::{
    Line, Primary, check_equal, fill, follower, serial, upload, url, wait_until_equal, write,
};
use crate::asking::Says as _;
use crate::process::Process;
use crate::wait_until;

#[test]
fn followers_of_a_primary_that_fell_back_start_over() {
    let mut primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let second = primary.follower("second", &line.url(), &[]);
    let third = primary.follower("third", &url(&second), &[]);
    primary.run(&["backup", "kept", "--data-dir", "data"]).check(0, "");
    // A follower has some blobs already, and keeps them.
    let wheel = upload(&primary.server, "pkg", "2.5");
    wait_until_equal(&second, &primary.server);
    wheel.check(&second, "team/dev", &[]);
    for round in 0..5 {
        write(&primary.server, "lost", round, &format!("lost {round}"));
    }
    wait_until_equal(&third, &primary.server);
    primary.server.stop();
    let directory = primary.directory.path();
    fs::rename(directory.join("data"), directory.join("old")).expect("renamed");
    primary.run(&["restore", "kept", "--data-dir", "data"]).check(0, "");
    let Primary { directory, .. } = primary;
    let server = Process::start_in(directory.clone(), "data", &["--aur-enabled=false"]);
    // It has gone further than before, in another way.
    for round in 0..9 {
        write(&server, "other", round, &format!("other {round}"));
    }
    line.leads_to(server.client.address);
    for follower in [&second, &third] {
        wait_until("the new history", || {
            follower.get("/article/other").text() == "other 8"
                && follower.get("/article/lost").status == 404
        });
        check_equal(follower, &server);
        follower.log().says("another history");
    }
    assert!(directory.path().join("second/records.db.before").exists());
    let wheel = upload(&server, "pkg", "7.0");
    wait_until_equal(&third, &server);
    wheel.check(&third, "team/dev", &[]);
}

#[test]
fn a_primary_that_is_behind_its_followers_is_noticed_at_once() {
    let mut primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let second = primary.follower("second", &line.url(), &[]);
    primary.run(&["backup", "kept", "--data-dir", "data"]).check(0, "");
    for round in 0..5 {
        write(&primary.server, "lost", round, &format!("lost {round}"));
    }
    wait_until_equal(&second, &primary.server);
    primary.server.stop();
    let directory = primary.directory.path();
    fs::rename(directory.join("data"), directory.join("old")).expect("renamed");
    primary.run(&["restore", "kept", "--data-dir", "data"]).check(0, "");
    // Nobody writes to it.
    let server = Process::start_in(primary.directory.clone(), "data", &["--aur-enabled=false"]);
    assert!(serial(&server) < serial(&second));
    line.leads_to(server.client.address);
    wait_until("the old state", || second.get("/article/lost").status == 404);
    second.log().says("it fell back to an older state");
    check_equal(&second, &server);
}

#[test]
fn another_store_at_the_same_place_is_read_anew() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let second = primary.follower("second", &line.url(), &[]);
    // Another store that accepts the same token is no accident: its administrator has given it to this follower.
    let other = Primary::start();
    write(&other.server, "notes/one", 0, "of another store");
    fs::write(primary.directory.path().join(super::TOKEN_FILE), &other.token).expect("a file");
    line.leads_to(other.server.client.address);
    line.cut();
    second.wait_for("/article/notes/one", "of another store");
    check_equal(&second, &other.server);
}

#[test]
fn a_follower_becomes_the_primary_with_its_name() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let mut second = primary.follower("second", &line.url(), &["--follow-blobs", "all"]);
    let third = primary.follower("third", &line.url(), &[]);
    primary.run(&["promote", "second"]).fails(1, "in use by process");
    let uuid = primary.server.get("/+api").header("x-devpi-uuid").to_owned();
    second.stop();
    primary.run(&["promote", "second"]).fails(1, "nothing was changed: `--yes`");
    primary.run(&["promote", "data"]).fails(1, "holds no copy");
    primary.run(&["promote", "second", "--yes"]).check(0, "of generation 1");
    let second = Process::start_in(primary.directory.clone(), "second", &["--aur-enabled=false"]);
    assert_eq!(second.get("/+api").header("x-devpi-uuid"), uuid);
    write(&second, "notes/one", 2, "by the new primary");
    // The other follower goes over to it.
    line.leads_to(second.client.address);
    line.cut();
    wait_until_equal(&third, &second);
    check_equal(&third, &second);
    // The old primary is still there: who has seen the new one does not go back, and it learns what has happened.
    line.leads_to(primary.server.client.address);
    line.cut();
    wait_until("the old primary to be known", || {
        third.get("/readyz?verbose").text().contains("was promoted since")
    });
    third.get("/article/notes/one").expect(200).is("by the new primary");
    let refused = primary.server.root().post("/article/notes/one/2", "by the old one".as_bytes());
    refused.tells(
        503,
        "a follower of this store was made its primary: nothing is written here any more",
    );
    primary
        .server
        .get("/readyz?verbose")
        .says("[!] follow: a follower of this store was made its primary");
    assert!(serial(&second) > serial(&primary.server));
}

#[test]
fn only_a_follower_of_this_store_says_that_it_was_left_behind() {
    let primary = Primary::start();
    fill(&primary.server);
    let second = primary.follower("second", &primary.url(), &[]);
    let own = primary.server.get("/+api").header("x-devpi-uuid").to_owned();
    let ask = |server: &Process, method: &str, identity: &str| {
        let target = format!("/+follow/records?after=0&generation=1&identity={identity}");
        // Some answers have no end.
        let mut stream = server.connect();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            primary.token
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    assert_eq!(ask(&primary.server, "GET", "another-store"), "200");
    assert_eq!(ask(&primary.server, "GET", ""), "200");
    assert_eq!(ask(&primary.server, "HEAD", &own), "409");
    assert_eq!(ask(&second, "GET", &own), "409");
    second.get("/readyz?verbose").lacks("was made its primary");
    write(&primary.server, "notes/one", 2, "it takes writes");
    assert_eq!(ask(&primary.server, "GET", &own), "409");
    let refused = primary.server.root().post("/article/notes/one/3", "too late".as_bytes());
    refused.tells(
        503,
        "a follower of this store was made its primary: nothing is written here any more",
    );
}

#[test]
fn a_promotion_says_what_is_lost() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let mut second = follower(&primary.directory, "second", &line.url(), &[]);
    upload(&primary.server, "pkg", "9.0");
    wait_until_equal(&second, &primary.server);
    second.stop();
    let said = primary.run(&["promote", "second"]);
    said.check(1, "nothing was changed");
    said.stdout.says(["no commit is known to be lost", "were never fetched"]);
}
