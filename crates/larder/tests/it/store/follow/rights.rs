//! Who may follow: tokens of administrators that are for it, as long as they hold.

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Primary, TOKEN_FILE, fill, make_token, write};
use crate::asking::{Says as _, basic};
use crate::process::Process;
use crate::server::ROOT;
use crate::wait_until;

#[test]
fn only_a_token_for_it_opens_the_records() {
    let primary = Primary::start();
    let client = &primary.server.client;
    client.add_user("alice", "password");
    let alice = basic("alice", "password");
    let wish = json!({"scopes": ["server:follow", "*"], "expires": null});
    let hers = format!("Bearer {}", client.authorized(&alice).make_token(wish));
    let other = format!("Bearer {}", make_token(client, &["server:admin", "user:admin"]));
    let blob = format!("/+follow/blobs/{}", "0".repeat(64));
    for target in ["/+follow/records?after=0", blob.as_str()] {
        client.get(target).expect(401);
        client.authorized("Bearer nonsense").get(target).expect(401);
        client.authorized(&alice).get(target).expect(403);
        client
            .authorized(&other)
            .get(target)
            .tells(403, "this token may not copy what is here: it lacks the scope `server:follow`");
        // A password gives it to nobody: it would have to be on another machine.
        client.authorized(ROOT.1).get(target).expect(403);
    }
    // Hers opens what she may read.
    client.authorized(&hers).get("/+follow/records?after=0").expect(400);
    client.authorized(&hers).get(&blob).expect(404);
    let follower = client.bearer(&primary.token);
    follower.get(&blob).expect(404);
    follower.get("/+follow/blobs/0").expect(400);
    for query in ["", "?after=x", "?after=-1", "?after=1&more=1", "?after=0&generation=x"] {
        follower.get(&format!("/+follow/records{query}")).expect(400);
    }
    follower.send("HEAD", "/+follow/records?after=0", ()).expect(200);
}

#[test]
fn a_revoked_token_ends_the_stream_within_a_second() {
    let primary = Primary::start();
    fill(&primary.server);
    let mut stream = primary.server.connect();
    let request = format!(
        "GET /+follow/records?after=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        primary.token
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut begin = [0; 200];
    stream.read_exact(&mut begin).expect("an answer");
    let id = &primary.token[7..19];
    let revoked_at = Instant::now();
    primary.server.root().delete(&format!("/+tokens/{id}")).expect(204);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let took = revoked_at.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    String::from_utf8_lossy(&rest).says("the token holds no longer");
}

#[test]
fn a_follower_without_a_token_serves_on_and_comes_back_with_another() {
    let primary = Primary::start();
    fill(&primary.server);
    let second = primary.follower("second", &primary.url(), &[]);
    // Its bytes come after its record, and a follower without a token gets none.
    second.wait_for("/article/notes/one", "second");
    primary.server.root().delete(&format!("/+tokens/{}", &primary.token[7..19])).expect(204);
    wait_until("a line of trouble", || {
        second.get("/readyz?verbose").text().contains("answered 401")
    });
    write(&primary.server, "notes/one", 2, "not for it");
    second.get("/article/notes/one").expect(200).is("second");
    let token = make_token(&primary.server, &["server:follow"]);
    fs::write(primary.directory.path().join(TOKEN_FILE), token).expect("a file");
    second.wait_for("/article/notes/one", "not for it");
}

#[test]
fn a_follower_that_is_refused_does_not_start() {
    let primary = Primary::start();
    fs::write(primary.directory.path().join(TOKEN_FILE), "larder_nonsense").expect("a file");
    let url = primary.url();
    let arguments = ["--aur-enabled=false", "--follow", &url, "--follow-token-file", TOKEN_FILE];
    let mut command = crate::process::larder(primary.directory.path());
    command.args(["serve", "--data-dir", "second", "--listen", "127.0.0.1:0"]).args(arguments);
    crate::process::Done::of(&mut command, "").fails(1, "answered 401");
    // A store of its own is no copy.
    let mut command = crate::process::larder(primary.directory.path());
    command.args(["init", "--data-dir", "third", "--root-password", "x-y-z-1-2-3"]);
    crate::process::Done::of(&mut command, "").check(0, "");
    let mut command = crate::process::larder(primary.directory.path());
    command.args(["serve", "--data-dir", "third", "--listen", "127.0.0.1:0"]).args(arguments);
    crate::process::Done::of(&mut command, "").fails(1, "holds a store that is no copy");
}

#[test]
fn nothing_else_writes_to_a_copy() {
    let primary = Primary::start();
    fill(&primary.server);
    let mut second = primary.follower("second", &primary.url(), &[]);
    let larder = |arguments: &[&str]| {
        let mut command = crate::process::larder(primary.directory.path());
        crate::process::Done::of(command.args(arguments).args(["--data-dir", "second"]), "")
    };
    let refused = larder(&["token", "create", "root", "--scope", "*"]);
    refused.fails(1, "larder promote");
    second.stop();
    larder(&["token", "create", "root", "--scope", "*"]).fails(1, "larder promote");
    larder(&["user", "list"]).check(0, "team");
    // Without `--follow` it would be a second primary.
    larder(&["serve", "--listen", "127.0.0.1:0"]).fails(1, "larder promote");
    drop(Process::start_in(
        primary.directory.clone(),
        "second",
        &["--aur-enabled=false", "--follow", &primary.url(), "--follow-token-file", TOKEN_FILE],
    ));
}
