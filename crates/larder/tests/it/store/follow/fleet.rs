//! A follower of several processes on one PostgreSQL and object store: any of them is its primary.

use std::fs;

use super::super::Place;
use super::{
    Line, TOKEN_FILE, check_equal, fill, follower, make_token, upload, wait_until_equal, write,
};
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::Process;
use crate::wait_until;

/// A follower of this process of a fleet, and the line between the two.
fn followed(place: &Place, one: &Process) -> (Line, Process) {
    let token = make_token(&one.client, &["server:follow"]);
    fs::write(place.directory.path().join(TOKEN_FILE), token).expect("a file");
    fill(one);
    let line = Line::to(one.client.address);
    let second = follower(&place.directory, "second", &line.url(), &[]);
    check_equal(&second, one);
    (line, second)
}

#[test]
fn a_follower_of_a_fleet_goes_over_to_another_process() {
    let Some(place) = Place::postgres_and_s3() else { return };
    place.init();
    let (one, other) = (place.start("one"), place.start("other"));
    let (line, second) = followed(&place, &one);
    // What another process of the fleet writes arrives as well.
    write(&other, "notes/one", 2, "by the other");
    wait_until_equal(&second, &other);
    second.get("/article/notes/one").expect(200).is("by the other");
    drop(one);
    line.leads_to(other.client.address);
    let wheel = upload(&other, "pkg", "4.0");
    wait_until_equal(&second, &other);
    check_equal(&second, &other);
    wheel.check(&second, "team/dev", &[]);
    second.log().lacks("another history");
}

/// Writes as soon as the database takes it.
#[track_caller]
fn write_in_time(client: &Client, article: &str, base: u32, text: &str) {
    let target = format!("/article/{article}/{base}");
    wait_until("a write", || client.root().post(&target, text.as_bytes()).status == 201);
}

#[test]
fn a_follower_outlives_the_database_of_its_fleet() {
    let Some(place) = Place::postgres() else { return };
    let postgres = place.postgres.as_ref().expect("it was started");
    place.init();
    let one = place.start("one");
    let (line, second) = followed(&place, &one);
    // The database is away, and comes back.
    postgres.stop();
    postgres.keep_copy();
    one.root().post("/article/notes/one/2", "nowhere".as_bytes()).expect(503);
    second.get("/article/notes/one").expect(200).is("second");
    second.get("/readyz").expect(200);
    postgres.resume();
    write_in_time(&one, "notes/one", 2, "after the outage");
    wait_until_equal(&second, &one);
    check_equal(&second, &one);
    second.log().lacks("another history");
    // It comes back as it was before, and an administrator goes on from there.
    postgres.crash();
    postgres.fall_back_to_copy();
    postgres.resume();
    one.wait_for("/readyz?verbose", "fell back");
    place.check(&["adopt", "--while-others-run"]);
    let other = place.start("other");
    write_in_time(&other, "notes/one", 2, "another way");
    line.leads_to(other.client.address);
    line.cut();
    second.wait_for("/article/notes/one", "another way");
    check_equal(&second, &other);
}
