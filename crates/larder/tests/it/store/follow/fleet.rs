//! A follower of several processes on one PostgreSQL and object store: any of them is its primary.

use std::fs;

use super::super::Place;
use super::{
    Line, TOKEN_FILE, check_equal, fill, follower, make_token, upload, wait_until_equal, write,
};
use crate::asking::Says as _;

#[test]
fn a_follower_of_a_fleet_goes_over_to_another_process() {
    let Some(place) = Place::postgres_and_s3() else { return };
    place.init();
    let (one, other) = (place.start("one"), place.start("other"));
    let token = make_token(&one.client, &["server:follow"]);
    fs::write(place.directory.path().join(TOKEN_FILE), token).expect("a file");
    fill(&one);
    let line = Line::to(one.client.address);
    let second = follower(&place.directory, "second", &line.url(), &[]);
    check_equal(&second, &one);
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
