//! A follower counts what is downloaded from it, and the primary what is downloaded from the primary.

use super::*;
use crate::python::{counted, path, sdist};

#[test]
fn each_server_counts_its_own_downloads() {
    let primary = Primary::start();
    make_stage(&primary.server.client);
    primary.server.client.root().release("team/dev", "p-1.0.zip");
    let mut follower = primary.follower("second", &primary.url(), &[]);
    let target = path("team/dev", "p-1.0.zip", &sdist("p-1.0.zip"));
    for _ in 0..3 {
        wait_until("the file", || follower.client.get(&target).status == 200);
    }
    primary.server.client.get(&target).expect(200);
    follower.stop();
    let follower = primary.follower("second", &primary.url(), &[]);
    wait_until("the copy", || follower.client.get("/team/dev/p").status == 200);
    assert_eq!(counted(follower.client.anybody(), "team/dev/p").0, 3);
    let Primary { mut server, directory, .. } = primary;
    server.stop();
    drop(follower);
    let server = Process::start_in(directory, "data", &["--aur-enabled=false"]);
    assert_eq!(counted(server.client.anybody(), "team/dev/p").0, 1);
}
