//! Followers with the token of a user who is no administrator: they have what that user may read, and nothing else.

use super::*;
use crate::process::{Done, init, larder};
use crate::server::ROOT_PASSWORD;

/// What no follower of a part may have, anywhere in its files.
const SECRETS: [&str; 9] = [
    "password_hash",
    "secret_sha256",
    "\"secret\":",
    "planted-login",
    "planted-word",
    "planted@mail.example",
    "planted-data",
    "planted-draft",
    "planted-index",
];

const DRAFT: &str = "---\ndraft: true\n---\n# planted-text\n";

/// A primary with something of each kind that the user `copier` may read, and something that they may not.
fn start() -> Primary {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    // Whoever may write articles reads drafts.
    let primary = Primary::start_with(directory, &["--article-acl-write", "team"]);
    let client = &primary.server.client;
    fill(client);
    client.add_user("copier", "password");
    let root = client.root();
    let profile = json!({"email": "planted@mail.example", "custom_data": "planted-data", "title": "The team"});
    root.patch("/team", profile).expect(200);
    let upstream = json!({"type": "mirror", "mirror_url": "http://planted-login:planted-word@127.0.0.1:9/simple/"});
    root.put("/team/upstream", upstream).expect(200);
    // An index that nobody but its user reads, and one for the user of the token.
    root.put("/team/planted-index", json!({"acl_read": ["team"]})).expect(200);
    root.put("/team/shared", json!({"acl_read": ["copier"]})).expect(200);
    let secret = Wheel::new("plantedproject", "1.0", b"planted-bytes".repeat(9), 3);
    for (stage, wheel) in [("team/planted-index", &secret), ("team/shared", &shared())] {
        wheel.upload(client, stage);
    }
    // A file says which indexes it came through.
    for (from, to) in [("team/shared", "team/planted-index"), ("team/planted-index", "team/dev")] {
        let order = json!({"name": "shared", "version": "1.0", "targetindex": to});
        root.post(&format!("/{from}"), order).expect(200);
    }
    write(client, "planted-draft", 0, DRAFT);
    write(client, "open", 0, "for everybody");
    primary.use_token(&copier(client));
    primary
}

fn shared() -> Wheel {
    Wheel::new("shared", "1.0", b"shared".repeat(50), 3)
}

/// A token with which others follow as `copier`.
#[track_caller]
fn copier(client: &Client) -> String {
    let scopes = ["server:follow", "python:read", "article:read"];
    client.user("copier", "password").make_token(json!({"scopes": scopes, "expires": null}))
}

impl Primary {
    fn use_token(&self, token: &str) {
        fs::write(self.directory.path().join(TOKEN_FILE), token).expect("a file");
    }

    /// The bytes of all files of a data directory, with the names of the files.
    fn bytes_in(&self, data: &str) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        let mut waiting = vec![self.directory.path().join(data)];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => waiting.push(path),
                    // A file may go meanwhile.
                    false => {
                        let bytes = fs::read(&path).unwrap_or_default();
                        all.push((path.display().to_string(), bytes));
                    }
                }
            }
        }
        all
    }

    #[track_caller]
    fn check_lacks(&self, data: &str, words: &[&str]) {
        for (file, bytes) in self.bytes_in(data) {
            for word in words {
                let is_there = bytes.windows(word.len()).any(|window| window == word.as_bytes());
                assert!(!is_there && !file.contains(word), "`{word}` is in {file}");
            }
        }
    }

    fn has(&self, data: &str, word: &str) -> bool {
        let contains = |bytes: &[u8]| bytes.windows(word.len()).any(|it| it == word.as_bytes());
        self.bytes_in(data).iter().any(|(_, bytes)| contains(bytes))
    }
}

/// Asks both without credentials, for the same state.
#[track_caller]
fn check_open(follower: &Client, primary: &Client) {
    let seen = serial(primary).to_string();
    for (target, accept) in targets().into_iter().chain([
        ("/article/open".to_owned(), "text/plain"),
        ("/team/shared/+simple/".to_owned(), "application/json"),
        ("/team/planted-index/+simple/".to_owned(), "application/json"),
        ("/article/planted-draft".to_owned(), "text/plain"),
    ]) {
        let target = target.as_str();
        let ask = |client: &Client| {
            client.anybody().accept(accept).with("X-Larder-Serial", &seen).get(target)
        };
        let (theirs, ours) = (ask(follower), ask(primary));
        if theirs.status == 307 {
            let location = format!("http://{}{target}", primary.address);
            assert_eq!(theirs.header("location"), location, "{target}");
            assert!(
                [401, 403, 404].contains(&ours.status) || target.ends_with("/+log"),
                "{target}"
            );
            continue;
        }
        let own = |text: String, client: &Client| {
            // The primary says that a mirror logs in, and the copy does not know.
            text.replace(&client.address.to_string(), "HOST").replace("***@", "")
        };
        assert_eq!(theirs.status, ours.status, "{target}: {}", theirs.text());
        assert_eq!(own(theirs.text(), follower), own(ours.text(), primary), "{target}");
        for name in ["x-larder-serial", "x-devpi-serial", "x-devpi-uuid", "content-type"] {
            assert_eq!(theirs.header(name), ours.header(name), "{target}: {name}");
        }
    }
}

/// A follower with all blobs.
fn whole(primary: &Primary) -> Process {
    primary.follower("second", &primary.url(), &["--follow-blobs", "all"])
}

#[test]
fn a_token_of_a_user_opens_what_that_user_may_read() {
    let primary = start();
    let second = whole(&primary);
    check_open(&second, &primary.server);
    second.get("/article/open").expect(200).is("for everybody");
    second.get("/team/dev/+simple/pkg/").expect(200);
    let team = second.anybody().json().get("/team").expect(200);
    team.says("The team").lacks(["planted", "shared"]);
    // In what everybody reads, nothing is missing.
    second.get("/team/dev/+simple/nothing/").expect(404);
    second.get("/article/nothing").expect(404);
    second.get("/readyz").expect(200);
    // What the user may read is there, for nobody else; what the user may not read is not.
    assert!(primary.has("second", "team/shared"));
    primary.check_lacks("second", &SECRETS);
    primary.check_lacks("second", &["planted-text", "planted-bytes", "plantedproject"]);
    wait_until("all blobs", || primary.has("second", "shared-1.0.dist-info"));
    primary.check_lacks("second", &SECRETS);
}

#[test]
fn whoever_logs_in_is_sent_to_the_primary() {
    let primary = start();
    let second = whole(&primary);
    let rows = [
        ("GET", "/team/shared/+simple/"),
        ("GET", "/team/dev/+simple/"),
        ("GET", "/article/open"),
        ("GET", "/article/planted-draft"),
        ("POST", "/article/open/1"),
        ("POST", "/+login"),
        ("GET", "/+tokens"),
    ];
    each(rows, |(method, target)| check_led(&primary, &second, method, target));
    // What is not here may be there.
    let missing = [
        "/team/shared/+simple/",
        "/team/planted-index",
        "/nobody",
        "/team/dev/+log",
        "/changes?surface=articles",
    ];
    each(missing, |target| _ = second.get(target).expect(307));
}

/// It keeps itself current, with the primary's serials.
#[test]
fn what_a_user_may_read_of_later_changes_comes() {
    let primary = start();
    let first = &primary.server.client;
    let second = whole(&primary);
    let seen = write(first, "open", 1, "more").header("x-larder-serial").to_owned();
    second.get_with("/article/open", &[("X-Larder-Serial", &seen)]).expect(200).is("more");
    let wheel = upload(first, "pkg", "3.0");
    wait_until_equal(&second, first);
    wheel.check(&second, "team/dev", &[]);
    first.root().delete("/team/dev/pkg/1.0").expect(200);
    first.root().put("/team/later", "{}").expect(200);
    first.root().put("/team/planted-later", json!({"acl_read": ["team"]})).expect(200);
    write(first, "planted-draft", 1, DRAFT);
    write(first, "planted-draft-too", 0, DRAFT);
    wait_until_equal(&second, first);
    check_open(&second, first);
    second.get("/team/later").expect(200);
    second.log().lacks("the data is copied again");
    primary.check_lacks("second", &SECRETS);
    primary.check_lacks("second", &["planted-later"]);
    // Without a base, an index would show something else.
    let above = json!({"bases": ["team/planted-index", "team/dev"]});
    first.root().put("/team/above", above).expect(200);
    first.root().put("/team/beside", json!({"bases": ["team/dev"]})).expect(200);
    wait_until_equal(&second, first);
    second.get("/team/above/+simple/pkg/").expect(307);
    second.get("/team/beside/+simple/pkg/").expect(200);
    primary.check_lacks("second", &["team/above", "planted-index"]);
}

#[test]
fn blobs_are_given_to_those_who_may_read_what_names_them() {
    let primary = start();
    let client = &primary.server.client;
    let token = copier(client);
    let blob =
        |wheel: &Wheel| client.bearer(&token).get(&format!("/+follow/blobs/{}", wheel.digest()));
    blob(&shared()).expect(200);
    blob(&Wheel::new("plantedproject", "1.0", b"planted-bytes".repeat(9), 3)).expect(404);
    let text = |text: &str| {
        let digest = record::Digest::of(text.as_bytes());
        client.bearer(&token).get(&format!("/+follow/blobs/{digest}"))
    };
    text("for everybody").expect(200);
    text(DRAFT).expect(404);
    client.bearer(&token).get("/+follow/mirrors/team/planted-index/+simple/").expect(404);
    // An earlier version does not know such copies.
    let refused = client.bearer(&token).get("/+follow/records?after=0");
    refused.tells(400, "the user of this token is no administrator, so it opens only what that user may read, and a follower says in `X-Larder-Part` that it knows such copies: expected a later version of Larder, or a token of an administrator");
    let held = |value: &str| {
        client.bearer(&token).with("X-Larder-Part", value).get("/+follow/records?after=0")
    };
    held("7")
        .tells(400, "`X-Larder-Part` was expected to be `none`, or a serial, a blank and a digest");
}

/// Waits until a follower is as it was told to be, after it has read everything anew.
#[track_caller]
fn wait_until_anew(primary: &Primary, data: &str, is_so: impl Fn() -> bool) {
    wait_until("the new copy", is_so);
    assert!(!primary.directory.path().join(data).join("records.db.before").exists());
}

#[test]
fn what_a_user_may_not_read_any_more_goes_and_what_they_may_comes() {
    let primary = start();
    let (first, root) = (&primary.server.client, primary.server.client.root());
    let second = whole(&primary);
    wait_until("all blobs", || primary.has("second", "shared-1.0.dist-info"));

    // An index that becomes private.
    root.patch("/team/dev", json!({"acl_read": ["team"]})).expect(200);
    wait_until_anew(&primary, "second", || {
        second.get("/team/dev/+simple/pkg/").status == 307 && !primary.has("second", "team/dev")
    });
    wait_until("the blobs to go", || !primary.has("second", "pkg-2.0.dist-info"));
    assert!(primary.has("second", "team/shared"));
    root.patch("/team/dev", json!({"acl_read": [":ANONYMOUS:"]})).expect(200);
    wait_until_anew(&primary, "second", || second.get("/team/dev/+simple/pkg/").status == 200);
    check_open(&second, first);

    // A group that the user is put into, and taken out of.
    root.patch("/team/planted-index", json!({"acl_read": [":readers"]})).expect(200);
    wait_until_equal(&second, first);
    primary.check_lacks("second", &["planted-index"]);
    for (change, is_there) in [("--add", true), ("--remove", false)] {
        let mut command = larder(primary.directory.path());
        command.args(["user", "groups", "copier", change, "readers", "--data-dir", "data"]);
        Done::of(&mut command, "").check(0, "");
        wait_until_anew(&primary, "second", || {
            let has = |word| primary.has("second", word);
            has("plantedproject") == is_there && has("team/planted-index") == is_there
        });
        wait_until("the blobs", || primary.has("second", "planted-bytes") == is_there);
    }
    wait_until_equal(&second, first);
    check_open(&second, first);
    primary.check_lacks("second", &SECRETS);
}

#[test]
fn a_draft_that_is_published_comes_with_all_its_versions() {
    let primary = start();
    let first = &primary.server.client;
    let second = primary.follower("second", &primary.url(), &[]);
    write(first, "planted-draft", 1, "published");
    wait_until_anew(&primary, "second", || {
        second.get("/article/planted-draft").text() == "published"
    });
    second.get("/article/planted-draft/1").expect(200).is(DRAFT);
    check_open(&second, first);
    write(first, "planted-draft", 2, DRAFT);
    wait_until_anew(&primary, "second", || second.get("/article/planted-draft").status == 404);
    wait_until("its name to go", || !primary.has("second", "planted-draft"));
}

#[test]
fn a_follower_of_a_part_goes_on_where_it_was() {
    let primary = start();
    let (first, root) = (&primary.server.client, primary.server.client.root());
    let line = Line::to(first.address);
    // Its clients do not go through the line.
    let follow =
        || primary.follower("second", &line.url(), &["--follow-public-url", &primary.url()]);
    let mut second = follow();
    check_open(&second, first);
    for round in 0..4 {
        drop(second);
        // What everybody reads, and what is kept from the user.
        write(first, "open", round + 1, &format!("round {round}"));
        write(first, "planted-draft", round + 1, DRAFT);
        upload(first, "pkg", &format!("{}.0", round + 4));
        root.delete("/team/dev/pkg/2.0").expect_one_of([200, 404]);
        root.put(&format!("/team/planted-index{round}"), json!({"acl_read": ["team"]})).expect(200);
        root.put(&format!("/team/open{round}"), "{}").expect(200);
        second = follow();
        wait_until_equal(&second, first);
        check_open(&second, first);
        second.log().lacks("the data is copied again");
        primary.check_lacks("second", &SECRETS);
    }
    // What was taken and given while it was away.
    for (acl, status) in [(json!(["team"]), 307), (json!([":ANONYMOUS:"]), 200)] {
        drop(second);
        root.patch("/team/dev", json!({"acl_read": acl})).expect(200);
        second = follow();
        wait_until_anew(&primary, "second", || {
            second.get("/team/dev/+simple/pkg/").status == status
                && primary.has("second", "team/dev") == (status == 200)
        });
    }
    check_open(&second, first);
    // Cut again and again, while much changes.
    for round in 0..if is_long() { 300 } else { 30 } {
        mix(first, round, 8);
        line.cut_after(round as usize * 61 % 900);
    }
    let wanted = serial(first);
    wait_until("the follower to catch up", || {
        // It may read everything anew, and its primary answers meanwhile.
        second.get("/+status").status == 200 && serial(&second) >= wanted
    });
    check_open(&second, first);
    primary.check_lacks("second", &SECRETS);
}

#[test]
fn a_copy_of_a_part_is_no_store() {
    let primary = start();
    let mut second = primary.follower("second", &primary.url(), &[]);
    // Nobody follows it.
    let refused = second.bearer(&copier(&primary.server.client)).get("/+follow/records?after=0");
    refused.tells(409, "this server has a copy of what one token of http://127.0.0.1:PORT opens, and knows no other: it cannot be followed. Follow http://127.0.0.1:PORT");
    second.stop();
    let run = |arguments: &[&str]| {
        let mut command = larder(primary.directory.path());
        Done::of(command.args(arguments).args(["--data-dir", "second"]), "")
    };
    run(&["backup", "kept"]).fails(1, ["no whole store", "cannot be backed up"]);
    run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, "no whole store");
    let mut command = larder(primary.directory.path());
    Done::of(command.args(["promote", "second"]), "")
        .fails(1, ["no whole store", "become a primary"]);
    run(&["verify"]).check(1, "missing");
    // A token for everything makes no whole copy of it, and one for a part none of a whole copy.
    primary.use_token(&primary.token);
    let second = primary.follower("second", &primary.url(), &[]);
    second.wait_for("/readyz?verbose", "use another token, or begin with an empty data directory");
    primary.check_lacks("second", &SECRETS);
    let third = primary.follower("third", &primary.url(), &[]);
    third.user("root", ROOT_PASSWORD).get("/+tokens").expect(200);
    drop(third);
    primary.use_token(&copier(&primary.server.client));
    let third = primary.follower("third", &primary.url(), &[]);
    third.wait_for("/readyz?verbose", "use another token, or begin with an empty data directory");
    third.user("root", ROOT_PASSWORD).get("/+tokens").expect(200);
}

#[test]
fn requests_with_credentials_are_passed_on() {
    let primary = start();
    let forward = ["--follow-writes", "forward"];
    let second = primary.follower("second", &primary.url(), &forward);
    second.root().get("/team/shared/+simple/").expect(200).says("shared");
    second.user("copier", "password").get("/team/shared/+simple/").expect(200);
    second.user("copier", "wrong").get("/team/shared/+simple/").expect_one_of([401, 403]);
    second.get("/team/shared/+simple/").expect_one_of([401, 403]);
    second.root().get("/article/planted-draft").expect(200).is(DRAFT);
    second.get("/article/planted-draft").expect(404);
    write(&second, "open", 1, "through the follower");
    second.get("/article/open").expect(200).is("through the follower");
    let Primary { server, .. } = primary;
    drop(server);
    second.get("/article/open").expect(200);
    second.root().get("/team/shared/+simple/").tells(503, "this server is a copy of http://127.0.0.1:PORT, which cannot be reached now: Connection refused (os error 111)");
}

#[test]
fn the_articles_of_a_primary_that_not_everybody_reads_are_for_nobody_at_its_copy() {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    let primary = Primary::start_with(directory, &["--article-acl-read", "copier"]);
    let client = &primary.server.client;
    client.add_user("copier", "password");
    write(client, "open", 0, "for readers");
    primary.use_token(&copier(client));
    let second = primary.follower("second", &primary.url(), &[]);
    assert!(primary.has("second", "article/0000000001/open"));
    second.get("/article/open").expect(307);
    second.get("/articles").expect(307);
}
