//! Servers that follow another one: their answers are the primary's, through cuts and kills of either, and writes go to the
//! primary.

mod absence;
mod backups;
mod downloads;
mod fleet;
mod forwarding;
mod history;
mod killed;
mod mirrors;
mod packages;
mod part;
mod promoted;
mod rights;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Wheel, make_stage};
use crate::asking::{Says as _, each};
use crate::client::{Client, Response};
use crate::line::Line;
use crate::process::{Done, Process, init, larder};
use crate::{is_long, wait_until};

/// A primary, and a token with which others follow it.
struct Primary {
    directory: Arc<TempDir>,
    server: Process,
    token: String,
}

/// The file with the token, in the directory of all servers of a test.
const TOKEN_FILE: &str = "follow-token";

impl Primary {
    /// A primary whose clients have to write something first.
    fn start() -> Primary {
        let directory = Arc::new(tempfile::tempdir().expect("a directory"));
        init(directory.path());
        Primary::start_in(directory)
    }

    fn start_in(directory: Arc<TempDir>) -> Primary {
        Primary::start_with(directory, &[])
    }

    fn start_with(directory: Arc<TempDir>, more: &[&str]) -> Primary {
        let arguments = [&["--aur-enabled=false"], more].concat();
        let server = Process::start_in(directory.clone(), "data", &arguments);
        let token = make_token(&server.client, &["server:follow"]);
        fs::write(directory.path().join(TOKEN_FILE), format!("{token}\n")).expect("a file");
        Primary { directory, server, token }
    }

    fn url(&self) -> String {
        url(&self.server.client)
    }

    /// Runs a command in the directory of the test.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Done {
        Done::of(larder(self.directory.path()).args(arguments), "")
    }

    /// A server that follows that URL, with its own data directory.
    fn follower(&self, data: &str, url: &str, more: &[&str]) -> Process {
        follower(&self.directory, data, url, more)
    }
}

fn url(client: &Client) -> String {
    format!("http://{}", client.address)
}

fn follower(directory: &Arc<TempDir>, data: &str, url: &str, more: &[&str]) -> Process {
    let mut arguments = vec!["--aur-enabled=false", "--follow", url];
    arguments.extend(["--follow-token-file", TOKEN_FILE]);
    arguments.extend(more);
    Process::start_in(directory.clone(), data, &arguments)
}

/// A token of `root`.
#[track_caller]
fn make_token(client: &Client, scopes: &[&str]) -> String {
    client.root().make_token(json!({"scopes": scopes, "expires": null}))
}

#[track_caller]
fn write(client: &Client, article: &str, base: u32, text: &str) -> Response {
    client.root().post(&format!("/article/{article}/{base}"), text.as_bytes()).expect(201)
}

#[track_caller]
fn upload(client: &Client, project: &str, version: &str) -> Wheel {
    let wheel = Wheel::new(project, version, project.as_bytes().repeat(50), 3);
    wheel.upload(client, "team/dev");
    wheel
}

/// The serial that a server shows.
fn serial(client: &Client) -> u64 {
    let status = client.get("/+status").expect(200).json();
    status["result"]["serial"].as_u64().expect("a number")
}

/// Waits until a follower shows what the primary shows now.
#[track_caller]
fn wait_until_equal(follower: &Client, primary: &Client) {
    let wanted = serial(primary);
    wait_until("the follower to catch up", || serial(follower) >= wanted);
}

/// What is asked on both sides, and must be answered alike.
const TARGETS: [(&str, &str); 14] = [
    ("/articles", "application/json"),
    ("/article/notes/one", "text/plain"),
    ("/article/notes/one/1", "text/plain"),
    ("/article/notes/one/history", "application/json"),
    ("/article/gone", "text/plain"),
    ("/", "application/json"),
    ("/team", "application/json"),
    ("/team/dev", "application/json"),
    ("/team/dev/+log", "application/json"),
    ("/team/dev/+simple/", "application/vnd.pypi.simple.v1+json"),
    ("/team/dev/+simple/pkg/", "application/vnd.pypi.simple.v1+json"),
    ("/team/dev/+simple/pkg/", "text/html"),
    ("/team/dev/pkg", "application/json"),
    ("/team/dev/pypi/pkg/json", "application/json"),
];

/// How many there are of each kind of thing that [`mix`] changes.
const MIXED: usize = 4;

/// [`TARGETS`], and what [`mix`] changes.
fn targets() -> Vec<(String, &'static str)> {
    let mut targets: Vec<_> = TARGETS.map(|(target, accept)| (target.to_owned(), accept)).into();
    for at in 0..MIXED {
        let json = [
            format!("/article/mix/{at}/history"),
            format!("/+attachments/mix/{at}/"),
            format!("/user{at}"),
            format!("/team/index{at}"),
            format!("/team/dev/pkg{at}"),
            format!("/team/dev/pkg{at}/+status"),
        ];
        targets.extend(json.map(|target| (target, "application/json")));
        targets.push((format!("/article/mix/{at}"), "text/plain"));
        targets
            .push((format!("/team/dev/+simple/pkg{at}/"), "application/vnd.pypi.simple.v1+json"));
    }
    targets
}

/// Changes things by chance; what is not there, or there already, is refused.
fn mix(client: &Client, seed: u64, steps: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % below
    };
    for step in 0..steps {
        let (at, version) = (next(MIXED), next(3));
        let root = client.root();
        let (user, index) = (format!("/user{at}"), format!("/team/index{at}"));
        let release = format!("/team/dev/pkg{at}/{version}.0");
        let done = match next(13) {
            0..=2 => {
                let history = client.root().json().get(&format!("/article/mix/{at}/history"));
                let base =
                    if history.status == 200 { history.json()["latest"].as_u64() } else { None };
                root.write(&format!("mix/{at}/{}", base.unwrap_or(0)), format!("step {step}"))
            }
            3 => root.delete(&format!("/article/mix/{at}")),
            4 => root.put(&format!("/+attachments/mix/{at}/{version}.txt"), format!("step {step}")),
            5 => root.put(&user, json!({"password": "password"})),
            6 => root.delete(&user),
            7 => root.put(&index, json!({"bases": ["team/dev"]})),
            8 => root.patch(&index, json!({"volatile": version == 1})),
            9 => root.delete(&index),
            10 => root.post(&format!("{release}/+yank"), json!({"reason": "why"})),
            11 => root.delete(&release),
            _ => {
                let wheel =
                    Wheel::new(&format!("pkg{at}"), &format!("{version}.0"), vec![at as u8; 90], 2);
                let _ = client.try_exchange(&wheel.request("team/dev"));
                continue;
            }
        };
        assert!(done.status < 500, "{}: {}", done.asked, done.text());
    }
}

/// Asks both for everything, for the same state.
#[track_caller]
fn check_equal(follower: &Client, primary: &Client) {
    let seen = serial(primary).to_string();
    for (target, accept) in targets() {
        let target = target.as_str();
        let ask = |client: &Client| {
            client.root().accept(accept).with("X-Larder-Serial", &seen).get(target)
        };
        let (theirs, ours) = (ask(follower), ask(primary));
        let own = |text: String, client: &Client| text.replace(&client.address.to_string(), "HOST");
        assert_eq!(theirs.status, ours.status, "{target}: {}", theirs.text());
        assert_eq!(own(theirs.text(), follower), own(ours.text(), primary), "{target}");
        if !ours.text().contains(&primary.address.to_string()) {
            assert_eq!(theirs.header("etag"), ours.header("etag"), "{target}");
        }
        for name in ["x-larder-serial", "x-devpi-serial", "x-devpi-uuid", "content-type"] {
            assert_eq!(theirs.header(name), ours.header(name), "{target}: {name}");
        }
    }
}

/// Something of each kind.
#[track_caller]
fn fill(client: &Client) {
    make_stage(client);
    write(client, "notes/one", 0, "first");
    write(client, "notes/one", 1, "second");
    write(client, "gone", 0, "soon");
    client.root().delete("/article/gone");
    upload(client, "pkg", "1.0");
    upload(client, "pkg", "2.0");
}

#[test]
fn followers_answer_as_their_primary() {
    let primary = Primary::start();
    let first = &primary.server.client;
    fill(first);
    let second = primary.follower("second", &primary.url(), &[]);
    check_equal(&second, first);
    // A follower of the follower.
    let third = primary.follower("third", &url(&second), &[]);
    check_equal(&third, first);

    // Whoever has written at the primary reads that at once, wherever they ask.
    for round in 2..12 {
        let written = write(first, "notes/one", round, &format!("round {round}"));
        let serial = written.header("x-larder-serial").to_owned();
        for follower in [&second, &third] {
            let read = follower.get_with("/article/notes/one", &[("X-Larder-Serial", &serial)]);
            read.expect(200).is(format!("round {round}"));
        }
    }
    let wheel = upload(first, "pkg", "3.0");
    wait_until_equal(&third, first);
    // The file goes through both, and stays.
    wheel.check(&third, "team/dev", &[]);
    wheel.check(&second, "team/dev", &[]);
    check_equal(&third, first);
    assert!(second.metric("larder_follow_blobs_total") >= 2.0);
    assert_eq!(second.metric("larder_followers"), 1.0);
    // Writes are led to the primary, whichever follower gets them.
    for follower in [&second, &third] {
        check_led(&primary, follower, "POST", "/article/notes/one/12");
    }
}

#[track_caller]
fn check_led(primary: &Primary, follower: &Client, method: &str, target: &str) {
    let led = follower.root().send(method, target, ());
    led.has("location", format!("{}{target}", primary.url())).tells(307, "this server is a read-only copy of http://127.0.0.1:PORT: the same request there is answered, and this redirect leads to it");
}

#[test]
fn writes_are_sent_to_the_primary() {
    let primary = Primary::start();
    fill(&primary.server);
    let second = primary.follower("second", &primary.url(), &[]);
    let rows = [
        ("PUT", "/alice"),
        ("POST", "/team/dev/"),
        ("DELETE", "/team/dev/pkg"),
        ("POST", "/+tokens"),
        ("DELETE", "/article/notes/one"),
        ("GET", "/+account/login"),
    ];
    each(rows, |(method, target)| check_led(&primary, &second, method, target));
    // Of actions within one request, each says it for itself, and those that read are answered.
    let text = json!({"name": "notes/one", "version": 2, "text": "there"});
    let actions = json!({"article.get_version": {"name": "notes/one"}, "article.put": text});
    let said = second.root().post("/actions", json!({"actions": actions})).expect(200).json();
    assert_eq!(said["article.get_version"]["result"]["version"], 2, "{said}");
    let refused = &said["article.put"]["error"];
    assert_eq!(refused["status"], 503, "{said}");
    refused["detail"].as_str().expect("a text").says(primary.url().as_str());
    primary.server.get("/article/notes/one/3").expect(404);
    // A browser follows no redirect of a preflight.
    let preflight = second.anybody().with("Access-Control-Request-Method", "POST");
    preflight.send("OPTIONS", "/+tokens", ()).expect(204).header("allow").says("POST");
    // A login needs no write.
    let login = second.log_in("root", crate::server::ROOT_PASSWORD);
    primary.server.user("root", &login).get("/+tokens").expect(200);
}

#[test]
fn a_follower_says_whom_it_follows() {
    let primary = Primary::start();
    fill(&primary.server);
    let second = primary.follower("second", &primary.url(), &[]);
    wait_until_equal(&second, &primary.server);
    let status = second.root().json().get("/+status").expect(200).json();
    assert_eq!(status["result"]["role"], "REPLICA");
    assert_eq!(status["result"]["primary-url"], primary.url());
    assert_eq!(status["result"]["master-serial"], status["result"]["serial"]);
    second.get("/readyz?verbose").says(format!("[+] follow: {}", primary.url()).as_str());
    second.get("/status").says("with everything that is there");
}

#[test]
fn a_follower_goes_on_where_it_was_whoever_is_killed() {
    let primary = Primary::start();
    fill(&primary.server);
    let line = Line::to(primary.server.client.address);
    let second = primary.follower("second", &line.url(), &[]);
    // A follower that is killed again and again loses nothing, and takes only what it lacks.
    write(&primary.server, "notes/two", 0, "before the kill");
    drop(second);
    write(&primary.server, "notes/two", 1, "while it was gone");
    let second = primary.follower("second", &line.url(), &[]);
    wait_until_equal(&second, &primary.server);
    check_equal(&second, &primary.server);
    let taken = second.metric("larder_follow_records_total");
    assert!(taken <= 20.0, "{taken}");

    // Without the primary it answers on, and says so.
    let Primary { directory, server, .. } = primary;
    let seen = serial(&server);
    drop(server);
    wait_until("a line of trouble", || second.get("/readyz?verbose").text().contains("[!] follow"));
    assert_eq!(serial(&second), seen);
    second.get("/article/notes/two").expect(200).is("while it was gone");
    second.get("/readyz").expect(200);
    assert_eq!(second.metric("larder_follow_connected"), 0.0);
    // It starts without the primary, too.
    drop(second);
    let second = follower(&directory, "second", &line.url(), &[]);
    second.get("/article/notes/two").expect(200).is("while it was gone");
    // And goes on once the primary is there again.
    let primary = Primary::start_in(directory);
    line.leads_to(primary.server.client.address);
    write(&primary.server, "notes/two", 2, "after both");
    wait_until_equal(&second, &primary.server);
    check_equal(&second, &primary.server);
    second.get("/article/notes/two").expect(200).is("after both");
    wait_until("the connection", || second.metric("larder_follow_connected") == 1.0);
}

#[test]
fn cuts_and_delays_change_nothing() {
    let primary = Primary::start();
    fill(&primary.server);
    let (line, far) = (Line::to(primary.server.client.address), Line::new());
    let second = primary.follower("second", &line.url(), &[]);
    far.leads_to(second.client.address);
    let third = primary.follower("third", &far.url(), &[]);
    let rounds = if is_long() { 1_000 } else { 60 };
    for round in 0..rounds {
        write(&primary.server, "notes/cut", round, &format!("round {round}"));
        match round % 4 {
            0 => line.cut_after(round as usize * 37 % 700),
            1 => far.cut(),
            2 => line.cut(),
            _ => far.cut_after(round as usize * 53 % 900),
        }
        mix(&primary.server, round.into(), 5);
    }
    line.delay(std::time::Duration::from_millis(20));
    write(&primary.server, "notes/cut", rounds, "the last");
    for follower in [&second, &third] {
        wait_until_equal(follower, &primary.server);
        check_equal(follower, &primary.server);
        follower.get("/article/notes/cut").expect(200).is("the last");
    }
    assert!(second.metric("larder_follow_connections_total") > 3.0);
    let log = second.log() + &third.log();
    log.lacks("another history");
}

#[test]
fn writes_are_passed_on_if_that_is_wanted() {
    let primary = Primary::start();
    let second = primary.follower("second", &primary.url(), &["--follow-writes", "forward"]);
    fill(&second);
    check_equal(&second, &primary.server);
    // Whoever writes through a follower reads it there at once.
    for round in 2..8 {
        write(&second, "notes/one", round, &format!("round {round}"));
        second.get("/article/notes/one").expect(200).is(format!("round {round}"));
    }
    upload(&second, "pkg", "3.0").check(&second, "team/dev", &[]);
    // Refusals come from the primary, too, and pages of others are refused before.
    second.user("team", "wrong").put("/team/other", "{}").expect(403);
    second.root().post("/article/notes/one/1", "late".as_bytes()).expect(409);
    second.root().with("Origin", "https://elsewhere.example").put("/alice", json!({})).expect(403);
    second.get("/+account/login").expect(200).says("password");
    let Primary { server, .. } = primary;
    drop(server);
    let lost = second.root().post("/article/notes/one/8", "lost".as_bytes());
    lost.tells(503, "this server is a copy of http://127.0.0.1:PORT, which cannot be reached now: Connection refused (os error 111)");
}

/// The blobs of a data directory.
fn blobs_in(directory: &Path) -> usize {
    let mut count = 0;
    let mut waiting = vec![directory.join("blobs/sha256")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("a type").is_dir() {
                true => waiting.push(entry.path()),
                false => count += usize::from(entry.file_name().len() == 64),
            }
        }
    }
    count
}

#[test]
fn blobs_come_when_somebody_asks_or_all_of_them() {
    let primary = Primary::start();
    let first = &primary.server.client;
    make_stage(first);
    // No text, so that no index of words asks for it.
    let wheels: Vec<Wheel> = (0..5).map(|at| upload(first, "pkg", &format!("{at}.0"))).collect();
    let all = primary.follower("all", &primary.url(), &["--follow-blobs", "all"]);
    let data = |name: &str| primary.directory.path().join(name);
    let wanted = blobs_in(&data("data"));
    wait_until("all blobs", || blobs_in(&data("all")) == wanted);
    let lazy = primary.follower("lazy", &primary.url(), &[]);
    let before = blobs_in(&data("lazy"));
    assert!(before < wanted, "{before} of {wanted}");
    // Many ask at once: one download.
    let wheel = &wheels[0];
    // The names that the latest release requires are read from its metadata.
    wait_until("the metadata", || lazy.metric("larder_follow_blobs_total") == 1.0);
    let taken = lazy.metric("larder_follow_blobs_total");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let file = lazy.get(&wheel.path("team/dev")).expect(200);
                assert!(file.body == wheel.bytes());
            });
        }
    });
    assert_eq!(lazy.metric("larder_follow_blobs_total"), taken + 1.0);
    // A damaged file is fetched again.
    let digest = wheels[1].digest().to_string();
    let path = format!("all/blobs/sha256/{}/{}/{digest}", &digest[..2], &digest[2..4]);
    let mut bytes = wheels[1].bytes();
    bytes[70] ^= 1;
    fs::remove_file(data(&path)).expect("it was fetched");
    fs::write(data(&path), bytes).expect("written");
    all.get(&wheels[1].path("team/dev")).expect(500);
    wheels[1].check(&all, "team/dev", &[]);
    // Without the primary, what was fetched is there; the rest comes later.
    let Primary { server, .. } = primary;
    drop(server);
    for wheel in &wheels {
        wheel.check(&all, "team/dev", &[]);
    }
    assert!(lazy.get(&wheel.path("team/dev")).expect(200).body == wheel.bytes());
    lazy.get(&wheels[1].path("team/dev")).expect(503);
    let damaged: Value = lazy.metric("larder_blobs_damaged").into();
    assert_eq!(damaged, 0.0);
}

#[test]
fn a_blob_that_the_primary_does_not_give_stops_no_other() {
    let primary = Primary::start();
    let first = &primary.server.client;
    make_stage(first);
    let wheels: Vec<Wheel> = (0..9).map(|at| upload(first, "pkg", &format!("{at}.0"))).collect();
    let data = |name: &str| primary.directory.path().join(name);
    let path = |data: &str, wheel: &Wheel| {
        let digest = wheel.digest().to_string();
        format!("{data}/blobs/sha256/{}/{}/{digest}", &digest[..2], &digest[2..4])
    };
    let (damaged, gone) = (data(&path("data", &wheels[0])), data(&path("data", &wheels[1])));
    fs::remove_file(&damaged).expect("it is there");
    fs::write(&damaged, [7_u8; 70]).expect("written");
    let away = data("away");
    fs::rename(&gone, &away).expect("renamed");
    let all = primary.follower("all", &primary.url(), &["--follow-blobs", "all"]);
    wait_until("all other blobs", || all.metric("larder_follow_blobs_missing") == 2.0);
    all.wait_for_log("blobs cannot be fetched");
    for wheel in &wheels[2..] {
        assert!(data(&path("all", wheel)).exists());
    }
    // News come all the same, and what the primary has again is fetched.
    fs::rename(&away, &gone).expect("renamed");
    let wheel = upload(first, "pkg", "9.0");
    wait_until("what is new", || data(&path("all", &wheel)).exists());
    wait_until("what came back", || all.metric("larder_follow_blobs_missing") == 1.0);
    assert!(data(&path("all", &wheels[1])).exists());
}
