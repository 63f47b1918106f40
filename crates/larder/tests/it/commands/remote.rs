//! The server and the credentials of a command, and the messages if something is wrong with them.

use super::Running;
use crate::asking::Says as _;
use crate::wait_until;

#[test]
fn a_token_without_the_scope_gets_the_servers_sentence() {
    let running = Running::start();
    running.store().run("index add team/dev").check(0, "made");
    wait_until("the index", || running.get("/team/dev").status == 200);
    running.upload("team/dev", "lib-1.0.zip");
    let way = running.server("team", "python:upload");
    for (line, what) in [
        ("index add team/prod", "no permission to create index team/prod"),
        ("index set team/dev volatile=false", "no permission to modify index team/dev"),
        ("index remove team/dev", "no permission to delete index team/dev"),
        (
            "release yank team/dev lib 1.0",
            "Unauthorized: yanking a release failed permission check",
        ),
        (
            "release remove team/dev lib 1.0",
            "Unauthorized: removing a version failed permission check",
        ),
    ] {
        let lacks = "this token lacks the scope `python:admin`";
        way.fails(line, 1, &format!("larder: {what}: {lacks}"));
    }
    let alice = running.server("alice", "python:admin,python:upload");
    alice.fails(
        "index set team/dev volatile=false",
        1,
        "larder: no permission to modify index team/dev: only `team` and administrators may",
    );
    alice.fails("release yank team/dev lib 1.0", 1, "larder: Unauthorized: yanking a release failed permission check: `alice` is not in `acl_upload` of team/dev");
    running.get("/team/prod").expect(404);
    running.get("/team/dev/lib/1.0").expect(200);
}

#[test]
fn credentials_come_from_flags_the_environment_standard_input_or_twines_file() {
    let running = Running::start();
    let token = running.place().token("team --scope python:admin");
    let url = running.url();
    let way = running.way(&["--server", &url]);
    let mut count = 0;
    let mut check = |line: &str, variables: &[(&str, &str)], input: &str, code: i32, says: &str| {
        count += 1;
        let line = format!("index add team/i{count} {line}");
        let done = way.run_with(&line, variables, input);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        done.said().says(says);
        done.stderr.lacks("unknown variable");
    };
    wait_until("the token", || {
        way.run_with("index list", &[("LARDER_TOKEN", &token)], "").code == Some(0)
    });
    check("", &[("LARDER_TOKEN", &token)], "", 0, "made");
    check("--token-stdin", &[], &format!("{token}\n"), 0, "made");
    check("--user team --password-stdin", &[], "pw\n", 0, "made");
    check("", &[], "", 1, "no credentials were sent: set LARDER_TOKEN");
    check(
        "",
        &[("LARDER_TOKEN", "larder_x")],
        "",
        1,
        "does not accept the token from LARDER_TOKEN",
    );
    check("--token -begins-with-a-dash", &[], "", 1, "does not accept the token from --token");
    let wrong = "does not accept the password from standard input: it is wrong, expired or revoked";
    check("--user team --password-stdin", &[], "no\n", 1, wrong);
    check(
        "--token-stdin",
        &[],
        "",
        2,
        "standard input is empty: a password or a token was expected",
    );
    check("--user team", &[], "", 2, "--password-stdin");
    let pypirc = running.process.directory.path().join(".pypirc");
    let section =
        format!("[team-dev]\nrepository = {url}/team/dev/\nusername = team\npassword = pw\n");
    std::fs::write(&pypirc, section).expect("a file");
    check("", &[], "", 0, "as the user of [team-dev]");
    std::fs::write(
        &pypirc,
        "[x]\nrepository = http://127.0.0.1:1/team/dev/\nusername = team\npassword = pw\n",
    )
    .expect("a file");
    check("", &[], "", 1, "no credentials were sent");
}

/// Typical first errors of a user: each answer says what to do.
#[test]
fn a_slip_is_answered_by_what_to_do() {
    let running = Running::start();
    let bare = running.way(&[]);
    bare.fails("user list --data-dir nope", 1, "larder: there are no users in sqlite:nope/records.db: is that the data directory that you mean (--data-dir, --config)? `larder init` makes the first");
    bare.fails("index list --data-dir nope", 1, "larder: there are no users in sqlite:nope/records.db: is that the data directory that you mean (--data-dir, --config)? `larder init` makes the first");
    bare.fails("verify --data-dir nope", 1, "larder: there is no store: `sqlite:nope/records.db` does not exist. Is that the one that you mean? `larder init` makes a new one");
    bare.fails("init --data-dir /proc/nope", 1, "larder: cannot create the data directory `/proc/nope`; --data-dir names another: No such file or directory (os error 2)");
    running.store().fails(
        "user show zoe",
        1,
        "larder: user 'zoe' does not exist; `larder user list` shows who does",
    );
    let free = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let port = free.expect("an address").port();
    let says = "does the server run, and is this its address?";
    bare.run(&format!("healthcheck --url http://127.0.0.1:{port}/readyz")).fails(1, says);
    bare.run(&format!("use http://127.0.0.1:{port}/team/dev --uv")).fails(1, says);
    let alone = bare.run("");
    assert_eq!(alone.code, Some(2), "{alone:?}");
    assert!(alone.stderr.starts_with("Larder is a server for packages and pages"), "{alone:?}");
}

#[test]
fn what_is_no_larder_is_told() {
    let running = Running::start();
    let check = |server: &str, code: i32, says: &str| {
        running.way(&["--server", server]).fails("index list", code, says);
    };
    // Bound but not listening, so that no other process gets the port meanwhile.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let port = free.expect("an address").port();
    check(
        &format!("http://127.0.0.1:{port}"),
        1,
        "larder: http://127.0.0.1:PORT/ cannot be reached: Connection refused (os error 111). Does the server run, and is this its address?",
    );
    check(
        "larder.example",
        2,
        "larder: `larder.example`: the URL of a server was expected, as https://larder.example or http://127.0.0.1:PORT",
    );
    check(
        &format!("{}/nowhere", running.url()),
        1,
        "larder: http://127.0.0.1:PORT/nowhere answers 404: no user 'nowhere'",
    );
    let both = running.way(&["--server", &running.url(), "--data-dir", "data"]);
    both.fails(
        "index list",
        2,
        "error: the argument '--server <URL>' cannot be used with '--data-dir <PATH>'",
    );
    running.way(&["--token", "x"]).fails(
        "index list",
        2,
        "error: the following required arguments were not provided:\n  --server <URL>",
    );
}
