//! Two processes on one database and one place of blobs: each takes writes, and each shows the other's.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use serde_json::{Value, json};

use super::{Place, Wheel, article_request, make_stage};
use crate::asking::Says as _;
use crate::asking::basic;
use crate::client::{Client, Response};
use crate::process::Process;
use crate::server::{ROOT, ROOT_PASSWORD};
use crate::wait_until;

const WRITERS: usize = 50;

/// Sends a GET with the serial that `seen` names, if it names one.
fn get_after(client: &Client, target: &str, seen: &Response) -> Response {
    client.get_with(target, &[("X-Larder-Serial", serial(seen))])
}

/// The serial of a response; the index names it as devpi does.
fn serial(response: &Response) -> &str {
    let serial =
        ["x-larder-serial", "x-devpi-serial"].into_iter().find_map(|name| response.find(name));
    serial.unwrap_or_else(|| panic!("no serial: {response:?}"))
}

#[track_caller]
fn put(
    client: &Client,
    name: &str,
    base: u32,
    authorization: &str,
    seen: Option<&Response>,
) -> Response {
    let serial = seen.map_or("0", serial);
    let body = format!("{name} {}", base + 1);
    client
        .authorized(authorization)
        .with("X-Larder-Serial", serial)
        .post(&format!("/article/{name}/{base}"), body.as_bytes())
}

#[test]
fn on_sqlite() {
    // Other processes ask every second: few rounds.
    let place = Place::sqlite();
    place.init();
    check(&place, 2, 3);
}

#[test]
fn on_postgres() {
    let Some(place) = Place::postgres() else { return };
    let [one, other] = start_both(&place);
    check_first_start(&one, &other);
    drop((one, other));
    set_root_password(&place);
    check(&place, 40, 8);
}

#[test]
fn on_postgres_and_s3() {
    let Some(place) = Place::postgres_and_s3() else { return };
    place.init();
    check(&place, 10, 3);
    place.check(&["verify"]);
}

#[test]
fn a_first_start_of_both_on_one_file() {
    for _ in 0..3 {
        let place = Place::sqlite();
        let [one, other] = start_both(&place);
        check_first_start(&one, &other);
    }
}

/// Gives the existing `root` the password that tests use.
fn set_root_password(place: &Place) {
    let mut command = place.command(&["user", "password", "root", "--password-stdin"]);
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(ROOT_PASSWORD.as_bytes()).expect("it reads");
    drop(stdin);
    assert!(child.wait().expect("it runs").success());
}

fn start_both(place: &Place) -> [Process; 2] {
    std::thread::scope(|scope| {
        let start = |data| scope.spawn(move || place.start(data));
        [start("one"), start("other")].map(|starting| starting.join().expect("it starts"))
    })
}

/// However close together they start, there is one `root`, one password for it, and one name of the store.
#[track_caller]
fn check_first_start(one: &Process, other: &Process) {
    let logs = one.log() + &other.log();
    assert_eq!(logs.matches("made the user `root` with the password in `").count(), 1, "{logs}");
    // The two data directories are in one directory.
    let paths = ["one", "other"].map(|data| one.directory.path().join(data).join("root-password"));
    let passwords: Vec<String> =
        paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let [password] = &passwords[..] else { panic!("{} passwords: {logs}", passwords.len()) };
    logs.lacks(password.as_str());
    let root = basic("root", password);
    for process in [one, other] {
        wait_until("root on both", || process.authorized(&root).get("/+tokens").status == 200);
    }
    let identity = |process: &Process| {
        let mut identity = String::new();
        wait_until("a name", || {
            identity = process.get("/+api").header("x-devpi-uuid").to_owned();
            !identity.is_empty()
        });
        identity
    };
    assert_eq!(identity(one), identity(other));
    // Both processes sign logins with the same secret.
    let login = one.log_in("root", password);
    other.user("root", &login).get("/+tokens").expect(200);
}

fn check(place: &Place, rounds: u32, contests: usize) {
    let [one, other] = start_both(place);
    let (one, other) = (&one.client, &other.client);
    check_articles(one, other, rounds);
    check_users(one, other);
    check_files(one, other);
    check_contests(one, other, contests);
}

/// A client that names the serial of a write never reads an older state, on either process; other clients read it soon.
fn check_articles(one: &Client, other: &Client, rounds: u32) {
    for round in 0..rounds {
        let (writer, reader) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let first = put(writer, "a", 2 * round, ROOT.1, None);
        // The other process may lag behind, and gets the serial.
        let seen = if first.status == 201 {
            first
        } else {
            first.check_status(409);
            let latest = reader.get("/article/a");
            put(writer, "a", 2 * round, ROOT.1, Some(&latest))
        };
        seen.check_status(201);
        let read = get_after(reader, "/article/a", &seen).expect(200);
        read.is(format!("a {}", 2 * round + 1));
        let number = |response| serial(response).parse::<u64>().expect("a number");
        assert!(number(&read) >= number(&seen));
        // A version that was read on one process can be the base of a write on the other.
        let next = put(reader, "a", 2 * round + 1, ROOT.1, Some(&read)).expect(201);
        assert_eq!(get_after(writer, "/article/a", &next).text(), format!("a {}", 2 * round + 2));
    }
    put(one, "b", 0, ROOT.1, None);
    wait_until("the other's article", || other.get("/article/b").text() == "b 1");
}

fn check_users(one: &Client, other: &Client) {
    let made = one.root().put("/alice", json!({"password": "first"})).expect(201);
    let first = basic("alice", "first");
    put(other, "alice", 0, &first, Some(&made)).expect(201);

    let wish = br#"{"scopes":["article:write"]}"#;
    let headers = [("Authorization", first.as_str()), ("Content-Type", "application/json")];
    let token = one.send("POST", "/+tokens", &headers, wish).expect(201);
    let made = token.json();
    let bearer = format!("Bearer {}", made["token"].as_str().expect("a token"));
    put(other, "alice", 1, &bearer, Some(&token)).expect(201);

    let target = format!("/+tokens/{}", made["id"].as_str().expect("an id"));
    let revoked = other.send("DELETE", &target, &headers, b"");
    assert!(matches!(revoked.status, 200 | 204), "{}: {}", revoked.status, revoked.text());
    put(one, "alice", 2, &bearer, Some(&revoked)).expect(401);

    // The other one remembers the password that it has verified, until it hears.
    let changed = one.root().patch("/alice", json!({"password": "second"})).expect(200);
    put(other, "alice", 2, &first, Some(&changed)).expect(401);
    let second = basic("alice", "second");
    put(other, "alice", 2, &second, Some(&changed)).expect(201);
}

fn check_files(one: &Client, other: &Client) {
    make_stage(one);
    // The last one is larger than an object that is uploaded in one piece.
    let wheels = [("1.0", 1), ("2.0", 1), ("3.0", 130)]
        .map(|(version, blocks)| Wheel::new("pkg", version, vec![7; 70_000], blocks));
    for (at, wheel) in wheels.iter().enumerate() {
        let (writer, reader) = if at % 2 == 0 { (one, other) } else { (other, one) };
        // No serial was named: wait until the index is there.
        wait_until("the index", || writer.get("/team/dev").status == 200);
        let uploaded = wheel.upload(writer, "team/dev");
        let seen = [("X-Larder-Serial", serial(&uploaded))];
        for wheel in &wheels[..=at] {
            wheel.check(reader, "team/dev", &seen);
            wheel.check(writer, "team/dev", &[]);
        }
    }
}

/// In each round all of them make the next revision of one article, half of them on either process.
fn check_contests(one: &Client, other: &Client, rounds: usize) {
    let barrier = Barrier::new(WRITERS);
    let seen = AtomicU64::new(0);
    let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (barrier, seen) = (&barrier, &seen);
                let client = if writer % 2 == 0 { one } else { other };
                let write = move |round| {
                    barrier.wait();
                    let serial = seen.load(SeqCst).to_string();
                    barrier.wait();
                    let target = format!("/article/contest/{round}");
                    let body = format!("round {round} of writer {writer}");
                    let response = client
                        .root()
                        .with("X-Larder-Serial", &serial)
                        .post(&target, body.as_bytes());
                    let status = response.status;
                    assert!(matches!(status, 201 | 409), "{status}: {}", response.text());
                    let made = self::serial(&response).parse().expect("a number");
                    seen.fetch_max(made, SeqCst);
                    status == 201
                };
                scope.spawn(move || (0..rounds).map(write).collect())
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    let last = seen.load(SeqCst).to_string();
    for client in [one, other] {
        let headers = [("X-Larder-Serial", last.as_str())];
        for round in 0..rounds {
            let winners = won.iter().enumerate().filter(|(_, rounds)| rounds[round]);
            let winners: Vec<usize> = winners.map(|(writer, _)| writer).collect();
            let [winner] = winners[..] else { panic!("round {round} has the winners {winners:?}") };
            let text = client.get_with(&format!("/article/contest/{}", round + 1), &headers).text();
            assert_eq!(text, format!("round {round} of writer {winner}"));
        }
        let history: Value = client.get_with("/article/contest/history", &headers).json();
        let versions = history["versions"].as_array().expect("versions").iter();
        let versions: Vec<_> =
            versions.map(|it| it["version"].as_u64().expect("a number")).collect();
        assert_eq!(versions, (1..=rounds as u64).rev().collect::<Vec<_>>());
    }
}

#[test]
fn one_is_killed_and_the_other_goes_on() {
    let Some(place) = Place::postgres() else { return };
    check_killed(&place);
}

#[test]
fn one_is_killed_and_the_other_goes_on_with_s3() {
    let Some(place) = Place::postgres_and_s3() else { return };
    check_killed(&place);
    check_killed_uploading(&place);
}

/// Whether a write got no answer, as the server was gone; an answer must be a success.
#[track_caller]
fn is_unanswered(exchange: Option<(u16, String)>, success: u16) -> bool {
    let Some((status, text)) = exchange else { return true };
    assert_eq!(status, success, "{text}");
    false
}

/// Files that one process had accepted exist whole on the other after a kill.
fn check_killed_uploading(place: &Place) {
    let (one, other) = (place.start("one"), place.start("other"));
    make_stage(&other.client);
    wait_until("the index", || one.client.get("/team/dev").status == 200);
    let wheel = |number: u32| Wheel::new("pkg", &format!("{number}.0"), vec![7; 100_000], 90);
    let mut acknowledged = 0;
    std::thread::scope(|scope| {
        let client = one.client;
        let uploading = scope.spawn(move || {
            (0..)
                .find(|number| {
                    let request = wheel(*number).request("team/dev");
                    is_unanswered(client.try_exchange(&request), 200)
                })
                .expect("an end")
        });
        // The fourth is sent once the third was acknowledged.
        other.client.wait_for("/team/dev/+simple/pkg/", "pkg-3.0-");
        drop(one);
        acknowledged = uploading.join().expect("an uploader");
    });
    assert!(acknowledged >= 3, "{acknowledged}");
    let last = format!("pkg-{}.0-", acknowledged - 1);
    wait_until("the last file", || {
        other.client.get("/team/dev/+simple/pkg/").text().contains(&last)
    });
    (0..acknowledged).for_each(|number| wheel(number).check(&other.client, "team/dev", &[]));
    // The one under way may be there without a word: then it is whole, and is refused as there.
    let request = wheel(acknowledged).request("team/dev");
    other.exchange(&request, false).expect_one_of([200, 409]);
    wheel(acknowledged).check(&other.client, "team/dev", &[]);
    place.check(&["verify"]);
}

/// Writes that a killed process acknowledged survive; the other process goes on.
fn check_killed(place: &Place) {
    place.init();
    let (one, other) = (place.start("one"), place.start("other"));
    let mut acknowledged = 0;
    std::thread::scope(|scope| {
        let client = one.client;
        let writing = scope.spawn(move || {
            (0..)
                .find(|base| {
                    let request = article_request("a", *base, format!("a {base}").as_bytes());
                    is_unanswered(client.try_exchange(&request), 201)
                })
                .expect("an end")
        });
        wait_until("some writes", || other.client.get("/article/a/10").status == 200);
        drop(one);
        acknowledged = writing.join().expect("a writer");
    });
    wait_until("the last write", || {
        other.client.get(&format!("/article/a/{acknowledged}")).status == 200
    });
    // The one under way may have been written without a word.
    let latest =
        other.client.get("/article/a/history").json()["latest"].as_u64().expect("a number");
    let latest = u32::try_from(latest).expect("small");
    assert!((acknowledged..=acknowledged + 1).contains(&latest), "{latest}, {acknowledged}");
    for version in 1..=latest {
        let text = other.client.get(&format!("/article/a/{version}")).text();
        assert_eq!(text, format!("a {}", version - 1));
    }
    let mut next = put(&other.client, "a", latest, ROOT.1, None);
    if next.status == 409 && latest == acknowledged {
        // The database may finish it even later, for a client that is long gone.
        assert_eq!(get_after(&other.client, "/article/a", &next).text(), format!("a {latest}"));
        next = put(&other.client, "a", latest + 1, ROOT.1, Some(&next));
    }
    next.check_status(201);
}
