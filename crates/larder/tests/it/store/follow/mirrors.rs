//! Mirrors of followers: the primary's cache is asked first, and upstream only while the primary is away.

use serde_json::json;

use super::*;
use crate::store::shared_mirrors::{
    check_all, content, file, filename, make_mirror, page, upstream,
};

const MAY_ASK: [&str; 2] = ["--egress-allow", "127.0.0.0/8"];
const ASKS_NOBODY_ELSE: [&str; 1] = ["--python-mirrors-offline=true"];

fn start() -> Primary {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    Primary::start_with(directory, &MAY_ASK)
}

fn connected(follower: Process) -> Process {
    wait_until("the connection", || follower.metric("larder_follow_connected") == 1.0);
    follower
}

#[test]
fn a_mirror_is_asked_once_for_all_copies() {
    let (primary, upstream) = (start(), upstream());
    make_mirror(&primary.server, &upstream);
    let private =
        json!({"type": "mirror", "mirror_url": upstream.url("/simple/"), "acl_read": ["team"]});
    primary.server.root().put("/team/own", private).expect(200);
    let asks_always = [&ASKS_NOBODY_ELSE[..], &["--python-mirror-cache-expiry-seconds=0"]].concat();
    let second = connected(primary.follower("second", &primary.url(), &asks_always));
    let third = connected(primary.follower("third", &url(&second), &ASKS_NOBODY_ELSE));
    for server in [&third, &second, &primary.server] {
        check_all(server, &upstream);
    }
    let asked = |path: &str| upstream.count(path);
    // Each of the two mirrors was tried when it was made.
    assert_eq!((asked("/simple/"), asked("/simple/foo/")), (2, 1));
    for number in 0..4 {
        assert_eq!(asked(&format!("/files/{}", filename(number))), 1, "{number}");
    }
    assert_eq!(second.metric("larder_mirror_requests_total"), 0.0);
    assert!(second.metric("larder_follow_mirrored_total") >= 6.0);

    // What a list does not have is asked of nobody.
    third.get("/team/up/+simple/nothing/").expect(404);
    assert_eq!(asked("/simple/nothing/"), 0);
    // A page that somebody wants anew comes from upstream, through all of them.
    third.root().post("/team/up/+simple/foo/refresh", json!({})).expect(302);
    assert_eq!(asked("/simple/foo/"), 2);

    // Each server judges its own readers; the primary, who follows.
    let target = "/team/own/+simple/foo/";
    third.user("team", "team").get(target).expect(200);
    for server in [&third, &second, &primary.server] {
        let stranger = server.get(target).status;
        assert!([401, 403, 404].contains(&stranger), "{stranger}");
    }
    let file = format!("+upstream/{}/files/{}", upstream.host(), filename(0));
    for path in ["+simple/", "+simple/foo", &file] {
        let target = format!("/+follow/mirrors/team/own/{path}");
        primary.server.get(&target).expect(401);
        primary.server.user("team", "team").get(&target).expect(403);
        primary.server.bearer(&primary.token).get(&target).expect(200);
    }
    let follower = primary.server.bearer(&primary.token);
    for target in [
        "team/dev/+simple/",
        "team/none/+simple/",
        "team/own/+simple/a/b",
        "team/own/x",
        "team/own/+simple/%ff",
    ] {
        follower.get(&format!("/+follow/mirrors/{target}")).expect(404);
    }
}

#[test]
fn upstream_is_asked_while_the_primary_is_away() {
    let (primary, upstream) = (start(), upstream());
    make_mirror(&primary.server, &upstream);
    let second = connected(primary.follower("second", &primary.url(), &MAY_ASK));
    let third = connected(primary.follower("third", &primary.url(), &ASKS_NOBODY_ELSE));
    let is_there = |server: &Process, number| {
        let found = file(server, &upstream, number);
        found.status == 200 && found.body == content(number)
    };
    assert!(is_there(&second, 0) && is_there(&third, 0));
    assert_eq!(upstream.count("/simple/foo/"), 1);
    let Primary { server, directory: _directory, .. } = primary;
    drop(server);
    for follower in [&second, &third] {
        wait_until("the end", || follower.metric("larder_follow_connected") == 0.0);
        page(follower).expect(200);
        assert!(is_there(follower, 0));
    }
    assert!(is_there(&second, 1));
    assert_eq!(upstream.count(&format!("/files/{}", filename(1))), 1);
    file(&third, &upstream, 1).tells(504, "the mirror team/up has no usable answer from its upstream: this was never fetched, and the upstream is not asked (python.mirrors_offline=true)");
}
