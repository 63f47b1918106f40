//! Backups of a primary and of its follower while both change, and what becomes of them.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;
use crate::SetAtEnd;
use crate::process::{Done, larder};

#[test]
fn backups_under_writes_are_whole_on_both_sides() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let all = ["--follow-blobs", "all"];
    let mut second = primary.follower("second", &line.url(), &all);
    let (client, is_over) = (primary.server.client, AtomicBool::new(false));
    let of_copy = std::thread::scope(|scope| {
        let _ending = SetAtEnd(&is_over);
        let writing = scope.spawn(|| {
            let mut seed = 0;
            while !is_over.load(SeqCst) {
                mix(&client, seed, 20);
                seed += 1;
            }
        });
        primary.run(&["backup", "of-primary", "--data-dir", "data"]).check(0, "");
        // Of the newest files some may still be on their way.
        let of_copy = primary.run(&["backup", "of-copy", "--data-dir", "second"]);
        assert!(matches!(of_copy.code, Some(0 | 1)), "{}", of_copy.said());
        is_over.store(true, SeqCst);
        writing.join().expect("a writer");
        of_copy.code
    });
    wait_until_equal(&second, &primary.server);
    check_equal(&second, &primary.server);

    // The backup of the copy is a store of its own, as a backup of the primary is.
    primary.run(&["restore", "of-copy", "--data-dir", "third"]).check(0, "");
    if of_copy == Some(0) {
        primary.run(&["verify", "--data-dir", "third"]).check(0, "");
    }
    let third = Process::start_in(primary.directory.clone(), "third", &["--aur-enabled=false"]);
    third.get("/article/notes/one").expect(200).is("second");
    assert!(serial(&third) <= serial(&primary.server));
    drop(third);

    // That of the primary is whole, and a copy goes back to it.
    let Primary { mut server, directory, token } = primary;
    server.stop();
    let primary = |server| Primary { directory: directory.clone(), server, token: token.clone() };
    fs::rename(directory.path().join("data"), directory.path().join("old")).expect("renamed");
    let restored = |arguments: &[&str]| Done::of(larder(directory.path()).args(arguments), "");
    restored(&["restore", "of-primary", "--data-dir", "data"]).check(0, "");
    restored(&["verify", "--data-dir", "data"]).check(0, "");
    let server = Process::start_in(directory.clone(), "data", &["--aur-enabled=false"]);
    let primary = primary(server);
    line.leads_to(primary.server.client.address);
    write(&primary.server, "notes/two", 0, "after the restore");
    second.wait_for("/article/notes/two", "after the restore");
    check_equal(&second, &primary.server);
    second.log().says("another history");
    second.stop();
    primary.run(&["verify", "--data-dir", "second"]).check(0, "");
}
