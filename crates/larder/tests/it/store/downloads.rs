//! Downloads that several processes count on one store are one sum; a process that is killed loses only what it has not written.

use std::fs;

use super::{Place, make_stage};
use crate::asking::Says as _;
use crate::process::Process;
use crate::python::counted;
use crate::python::{path, sdist};
use crate::wait_until;

const FILE: &str = "p-1.0.zip";

fn download(process: &Process, count: usize) {
    let target = path("team/dev", FILE, &sdist(FILE));
    for _ in 0..count {
        wait_until("the file", || process.client.get(&target).status == 200);
    }
}

fn total(process: &Process) -> u64 {
    counted(process.client.anybody(), "team/dev/p").0
}

fn check(place: &Place) {
    place.init();
    let (mut one, mut other) = (place.start("one"), place.start("other"));
    make_stage(&one.client);
    one.client.root().release("team/dev", FILE);
    download(&one, 3);
    download(&other, 4);
    one.stop();
    other.stop();
    let (mut one, other) = (place.start("one"), place.start("other"));
    assert_eq!((total(&one), total(&other)), (7, 7));
    download(&one, 2);
    download(&other, 1);
    one.signal("KILL");
    one.wait();
    drop(other);
    let third = place.start("third");
    let found = total(&third);
    // The one that was dropped may have been killed, too.
    assert!((7..=8).contains(&found), "{found}");
}

#[test]
fn on_sqlite() {
    check(&Place::sqlite());
}

#[test]
fn on_postgres() {
    let Some(place) = Place::postgres() else { return };
    check(&place);
}

/// A file of counts that is damaged is set aside and begun anew, and the rest goes on.
#[test]
fn a_damaged_file_is_begun_anew() {
    let place = Place::sqlite();
    place.init();
    let mut process = place.start("one");
    make_stage(&process.client);
    process.client.root().release("team/dev", FILE);
    download(&process, 3);
    process.stop();
    let file = place.directory.path().join("shared.db.downloads");
    fs::write(&file, "no database, whatever its name says; ".repeat(200)).expect("written");
    let mut process = place.start("one");
    wait_until("it to be set aside", || {
        process.client.get("/readyz?verbose").text().contains("[!] the counts of downloads: ")
    });
    assert!(fs::exists(file.with_extension("downloads.set-aside")).expect("a look"));
    download(&process, 2);
    process.stop();
    let process = place.start("one");
    assert_eq!(total(&process), 2);
}

/// The page of a project does not wait for a database that is slow; what it says too late is there for the next reader.
#[test]
fn what_is_read_too_late_is_for_the_next_reader() {
    let Some(place) = Place::postgres() else { return };
    place.init();
    let mut process = place.start("one");
    make_stage(&process.client);
    process.client.root().release("team/dev", FILE);
    download(&process, 3);
    process.stop();
    let process = place.start("one");
    let postgres = place.postgres.as_ref().expect("it was started");
    let page = || {
        let _frozen = postgres.freeze();
        process.client.root().accept("text/html").get("/team/dev/p").expect(200).text()
    };
    let first = page();
    first.says("/team/dev/p/+downloads");
    first.lacks("in the last 30 days");
    wait_until("the downloads", || page().contains("3 downloads</a> in the last 30 days"));
}
