//! A database that falls back: the copy that takes over lagged behind, and lacks acknowledged commits. A process that has read
//! them goes on showing them and writes nothing; a new process accepts the store once an administrator has said so.

use super::{Place, article_request};
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::Process;
use crate::wait_until;

/// Writes the next revision after `base`, as soon as the database takes it.
#[track_caller]
fn write(client: &Client, base: u32, body: &str) {
    let request = article_request("a", base, body.as_bytes());
    wait_until("a write", || {
        client.exchange(&request, false).expect_one_of([201, 503]).status == 201
    });
}

#[track_caller]
fn check_refused(client: &Client, base: u32) {
    let request = article_request("a", base, b"never");
    let refused = client.exchange(&request, false).expect(503);
    refused.says(["has lost commits", "nothing was written"]);
    assert!(refused.find("retry-after").is_some(), "{refused:?}");
}

/// The latest revision, and how many there are.
#[track_caller]
fn check_article(client: &Client, body: &str, versions: u32) {
    client.get("/article/a").expect(200).is(body).has("x-article-version", versions);
}

fn is_rewound(process: &Process) -> bool {
    process.find_metric("larder_store_is_rewound").expect("a metric") == 1.0
}

/// A database whose copy lagged behind when it took over, and a process that has read what the copy lacks: the third version.
fn fallen_back() -> Option<(Place, Process)> {
    let place = Place::postgres()?;
    let postgres = place.postgres.as_ref().expect("it was started");
    place.init();
    let process = place.start("one");
    write(&process.client, 0, "one");
    write(&process.client, 1, "two");
    postgres.stop();
    postgres.keep_copy();
    postgres.resume();
    write(&process.client, 2, "three");
    assert!(!is_rewound(&process));
    wait_until("a connection", || connections(&process) == 1);
    postgres.crash();
    postgres.fall_back_to_copy();
    postgres.resume();
    process.client.wait_for("/readyz?verbose", "fell back");
    Some((place, process))
}

/// How often the process has connected again.
fn connections(process: &Process) -> usize {
    process.log().matches("announces commits again").count()
}

#[test]
fn what_a_lagging_copy_lacks_is_shown_on_and_nothing_is_written() {
    let Some((place, process)) = fallen_back() else { return };
    let client = &process.client;
    assert!(is_rewound(&process));
    client.get("/readyz").expect(200);
    check_refused(client, 3);
    check_article(client, "three", 3);
    place.run(&["serve", "--aur-enabled=false"]).fails(1, "are an older copy");
}

/// A new process goes on from the copy once that is wanted, past the serials that the first has seen.
#[test]
fn a_lagging_copy_takes_over() {
    let Some((place, process)) = fallen_back() else { return };
    let client = &process.client;
    wait_until("another connection", || connections(&process) == 2);
    let told = format!("in use by larder, process {} on ", process.id());
    place.run(&["adopt"]).fails(1, [&*told, "nothing was changed"]);
    place.check(&["adopt", "--while-others-run"]);
    let other = place.start("other");
    check_article(&other.client, "two", 2);
    write(&other.client, 2, "another three");
    for base in 3..6 {
        write(&other.client, base, "more");
    }
    check_refused(client, 3);
    check_article(client, "three", 3);
    // It is further than what was read, but goes on from elsewhere.
    client.wait_for("/readyz?verbose", "diverged");
    // An outage does not bring the lost commits back.
    let postgres = place.postgres.as_ref().expect("it was started");
    postgres.stop();
    client.wait_until_gone("/readyz?verbose", "diverged");
    assert!(is_rewound(&process));
    postgres.resume();
    client.wait_for("/readyz?verbose", "diverged");
    let told = "the store lacks commits that were read from it, or is damaged";
    assert_eq!(process.log().matches(told).count(), 1, "{}", process.log());

    drop(process);
    let process = place.start("one");
    check_article(&process.client, "more", 6);
    assert_eq!(process.client.get("/article/a/3").text(), "another three");
    assert!(!is_rewound(&process));
    write(&process.client, 6, "seven");
    wait_until("the other", || other.client.get("/article/a").text() == "seven");
    place.check(&["verify"]);
}

/// A standby is no database that has lost something: two processes that read it before it is promoted write on afterwards.
#[test]
fn a_standby_is_promoted_without_a_loss() {
    let Some(place) = Place::postgres() else { return };
    let postgres = place.postgres.as_ref().expect("it was started");
    place.init();
    let (process, other) = (place.start("one"), place.start("other"));
    write(&process.client, 0, "one");
    postgres.stop();
    postgres.keep_copy();
    postgres.resume();
    wait_until("the other", || other.client.get("/article/a").text() == "one");
    write(&other.client, 1, "two");
    wait_until("both", || process.get("/article/a").text() == "two");
    postgres.stop();
    postgres.become_standby_at_copy();
    postgres.resume();
    for process in [&process, &other] {
        let said = || process.get("/readyz?verbose").text();
        wait_until("the standby", || said().contains("is a standby in recovery"));
        said().says("goes on by itself");
        assert!(!is_rewound(process));
        process.exchange(&article_request("a", 2, b"early"), false).expect(503);
    }
    postgres.send_standby_the_rest();
    postgres.promote();
    write(&process.client, 2, "three");
    wait_until("the other", || other.client.get("/article/a").text() == "three");
    write(&other.client, 3, "four");
    wait_until("the first", || process.get("/article/a").text() == "four");
    process.wait_until_gone("/readyz?verbose", "it is not read on");
    for process in [&process, &other] {
        check_article(&process.client, "four", 4);
        assert!(!is_rewound(process));
    }
}

/// Another file is put in place of the one that is open: what would be written to that one would be lost.
#[test]
fn a_file_is_replaced() {
    let place = Place::sqlite();
    place.init();
    let process = place.start("one");
    let client = &process.client;
    write(client, 0, "one");
    let file = place.directory.path().join("shared.db");
    std::fs::copy(&file, file.with_extension("other")).expect("a copy");
    std::fs::rename(file.with_extension("other"), &file).expect("a rename");
    check_refused(client, 1);
    client.wait_for("/readyz?verbose", "was replaced");
    assert!(is_rewound(&process));
    client.get("/readyz").expect(200);
    check_article(client, "one", 1);
}
