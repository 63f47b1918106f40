//! The command line alone: what it makes, what it prints once, and what it refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Place, prepare};
use crate::asking::{Says as _, each};
use crate::process::larder;
use crate::shown::{redacted, shown_json};
use testbed::SmallDisk;

#[test]
fn a_store_is_prepared_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place(directory.path());
    place.check("user list", 1, "`larder init` makes the first");
    assert!(!directory.path().join("data").exists(), "asking makes nothing");

    let said = place.run("init");
    // Its output is no terminal here, so the password is in a file.
    let path = directory.path().join("data/root-password");
    let password = &fs::read_to_string(&path).expect("the file with the password");
    assert_eq!(password.len(), 17, "{said}");
    said.says("root-password");
    said.lacks(password);
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    said.says("larder user password root");
    let mode = fs::metadata(directory.path().join("data")).expect("made").permissions().mode();
    assert_eq!(mode & 0o007, 0, "others on the machine have no business in it: {mode:o}");

    place.run("init").says("initialized already: nothing was changed");
    let same = ["init", "--root-password", password];
    let done = place.run_words(&same, "");
    assert_eq!(done.code, Some(0), "the password that it has: {done:?}");
    place.check("init --root-password other", 1, "larder user password root");
    let users = place.json("user list --json");
    assert_eq!(users[0]["name"], "root");
    assert_eq!(users[0]["modified_at"], Value::Null, "nothing was changed");
}

#[test]
fn the_password_of_root_may_be_given() {
    let check = |words: &[&str], code: i32, says: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("one"), "horse\n").expect("a file");
        fs::write(directory.path().join("two"), "horse\nstaple\n").expect("a file");
        fs::write(directory.path().join("none"), "\n").expect("a file");
        let done = Place(directory.path()).run_words(words, "");
        done.check(code, says).said().lacks("horse");
        assert_eq!(directory.path().join("data/records.db").exists(), code == 0, "{words:?}");
    };
    let rows = [
        (&["init", "--root-password", ""][..], 0, "the password that was given"),
        (&["init", "--root-password", "horse"], 0, "the password that was given"),
        (&["init", "--root-password", "-horse"], 0, "the password that was given"),
        (&["init", "--root-password", "--horse"], 0, "the password that was given"),
        (&["init", "--admin-key", "-horse", "--root-password", "-"], 0, "that was given"),
        (&["init", "--python-devpi-defaults"], 0, "an empty password"),
        (&["init", "--root-password-file", "one"], 0, "the password that was given"),
        (&["init", "--root-password-file", "two"], 1, "has several lines"),
        (&["init", "--root-password-file", "none"], 1, "holds no password"),
        (&["init", "--root-password-file", "gone"], 1, "cannot be read"),
        (
            &["init", "--root-password", "x", "--root-password-file", "one"],
            2,
            "cannot be used with",
        ),
    ];
    each(rows, |(words, code, says)| check(words, code, says));
}

#[test]
fn users_come_change_and_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    let added =
        place.json("user add alice --groups docs,ci --email a@host.example --generate --json");
    assert_eq!(added["password"].as_str().map(str::len), Some(17));
    assert_eq!(place.run("user add ci --no-password"), "", "nothing to keep: nothing on stdout");

    let mut alice = place.json("user show alice --json");
    let fields = alice.as_object_mut().expect("an object");
    assert!(fields.remove("created_at").is_some_and(|time| time.is_string()));
    let expected = json!({
        "name": "alice", "groups": ["ci", "docs"], "email": "a@host.example", "title": null,
        "is_administrator": false, "is_disabled": false, "has_password": true, "tokens": 0,
        "modified_at": null,
    });
    assert_eq!(alice, expected);
    let list = place.run("user list");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "USER   GROUPS   TOKENS  STATE        EMAIL");
    assert_eq!(lines[1], "alice  ci,docs  0       active       a@host.example");
    assert_eq!(lines[2], "ci     -        0       no password  -");

    assert_eq!(place.run("user groups alice"), "ci\ndocs\n");
    assert_eq!(place.run("user groups alice --add admin --remove ci,none"), "admin\ndocs\n");
    assert_eq!(place.json("user show alice --json")["is_administrator"], true);
    assert_eq!(place.run("user groups alice --set a,b --add c"), "a\nb\nc\n");
    assert_eq!(place.run_words(&["user", "groups", "alice", "--set", ""], "").stdout, "");
    place.run("user disable alice");
    place.check("user disable alice", 0, "disabled already");
    assert_eq!(place.json("user show alice --json")["is_disabled"], true);
    place.check("token create alice --scope *", 1, "user 'alice' is disabled");
    place.run("user enable alice");
    place.token("alice --scope *");
    place.check("user remove alice", 0, "tokens: 1, indexes: 0");
    assert_eq!(place.json("token list --json"), json!([]));
    place.check("user remove alice", 1, "user 'alice' does not exist");
}

#[test]
fn what_is_wrong_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    place.add("alice", "old");
    for (line, code, says) in [
        ("user add alice --generate", 1, "user 'alice' already exists"),
        ("user add rpc --generate", 1, "reserved"),
        ("user add a/b --generate", 2, "a/b"),
        ("user add bob --generate --groups a:b", 2, "a:b"),
        ("user add bob", 2, "--password-file"),
        ("user add bob --generate --no-password", 2, "cannot be used with"),
        ("user add bob --password-file gone", 1, "`gone` cannot be read"),
        ("user add bob --password-stdin", 1, "password needs to be set"),
        ("user show bob", 1, "user 'bob' does not exist"),
        ("user password bob --generate", 1, "user 'bob' does not exist"),
        ("user groups bob", 1, "user 'bob' does not exist"),
        ("user disable bob", 1, "user 'bob' does not exist"),
        ("user remove root", 1, "user 'root' cannot be deleted"),
        ("token create alice", 2, "--scope"),
        ("token create alice --scope article:eat", 2, "article:write"),
        ("token create alice --scope * --expires soon", 2, "`soon` is no time to expire at"),
        ("token create alice --scope * --expires 2020-01-01", 1, "would be expired now"),
        ("token create bob --scope *", 1, "user 'bob' does not exist"),
        ("token create alice --scope * --index dev", 2, "`dev` is not the name of an index"),
        ("token create alice --scope * --project a/b", 2, "not a valid project name"),
        (
            "token create alice --scope * --prefix a//b",
            2,
            "`a//b` is not a prefix of article names",
        ),
        ("token create root --scope user:admin --index a/b", 1, "`user:admin` is of no use"),
        ("token list bob", 1, "user 'bob' does not exist"),
        ("token revoke 12", 2, "12 hexadecimal digits"),
        ("token revoke 000000000000", 1, "token '000000000000' does not exist"),
        ("user list --config gone.toml", 78, "gone.toml"),
        ("user list --database nosuch:x", 2, "nosuch:x"),
        ("user list --database sqlite:elsewhere.db", 1, "larder init"),
        ("user", 2, "Usage"),
    ] {
        place.check(line, code, says);
    }
    assert!(!directory.path().join("elsewhere.db").exists());
    let names = place.json("user list --json");
    assert_eq!(names.as_array().map(Vec::len), Some(2), "nobody came of all this: {names}");
}

#[test]
fn a_token_is_shown_once_and_kept_nowhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    place.add("alice", "pw");
    let token =
        place.token("alice --scope article:write --scope python:read,user:admin --expires 90d");
    let secret = token.rsplit('_').next().expect("its last part");
    let created = place.json("token create alice --scope * --expires never --comment x --json");
    let second = created["token"].as_str().expect("the token");
    assert_eq!((&created["scopes"], &created["comment"]), (&json!(["*"]), &json!("x")));

    let list = place.json("token list alice --json");
    assert_snapshot!("tokens", shown_json(&list));
    assert_eq!(place.json("token list --json"), list, "nobody else has one");
    for line in ["token list", "token list --json", "user show alice --json"] {
        assert!(!place.run(line).contains(secret), "{line}");
    }
    for file in ["data/records.db", "data/records.db-wal"] {
        let bytes = fs::read(directory.path().join(file)).unwrap_or_default();
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "the secret is in {file}");
    }
    // A token is revoked by its id, or by its secret as somebody pasted it.
    let id = list[0]["id"].as_str().expect("an id");
    place.run(&format!("token revoke {id} {second}"));
    assert_eq!(place.json("token list --json"), json!([]));
}

#[test]
fn what_a_token_is_limited_to_is_listed() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    place
        .token("root --scope * --index team/dev --index /team/prod/ --project Foo --prefix /docs/");
    place.run("token add root --scope python:read");
    assert_snapshot!("limited_tokens_as_json", shown_json(&place.json("token list --json")));
    assert_snapshot!("limited_tokens", redacted(&place.run("token list")));
}

#[test]
fn changes_at_once_all_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    place.add("alice", "pw");
    std::thread::scope(|scope| {
        for at in 0..6 {
            let place = &place;
            scope.spawn(move || place.run(&format!("user groups alice --add g{at}")));
        }
    });
    assert_eq!(place.run("user groups alice"), "g0\ng1\ng2\ng3\ng4\ng5\n");
}

/// A store holds what passwords are checked against, also one that was restored, or that is in another directory.
#[test]
fn nobody_else_reads_a_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = prepare(directory.path());
    place.run("backup copy");
    let run = |line: &str| {
        let output = larder(directory.path()).args(line.split(' ')).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    };
    run("restore copy --data-dir restored");
    fs::create_dir(directory.path().join("open")).expect("a directory");
    run("init --data-dir other --database sqlite:open/records.db --root-password horse");
    let check = |path: &str| {
        let metadata = fs::metadata(directory.path().join(path)).expect(path);
        assert_eq!(metadata.permissions().mode() & 0o007, 0, "{path}");
    };
    for path in ["data", "copy", "restored", "other"] {
        check(path);
    }
    for path in ["data/records.db", "copy/records.db", "restored/records.db", "open/records.db"] {
        check(path);
    }
}

/// Not just that a file cannot be opened: why.
#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(disk) = SmallDisk::mount(&directory.path().join("data"), "size=8m") else { return };
    let place = prepare(directory.path());
    disk.remount("ro");
    let reason = "`data` must be writable, and is not (Read-only file system";
    for line in ["user list", "verify", "serve --aur-enabled=false --listen 127.0.0.1:0"] {
        place.check(line, 1, reason);
    }
}
