//! The real binary copies, restores, checks and sweeps a store, with and without running servers.

mod upgrade;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use insta::assert_snapshot;
use record::{Batch, Digest, Expected, Key};
use serde_json::Value;
use store::{DatabaseLocation, Records, RecordsOptions};
use tempfile::TempDir;

use crate::SetAtEnd;
use crate::asking::Says as _;
use crate::client::Client;
use crate::process::{Done, larder};
use crate::python::{Upload, wheel};
use crate::server::{TestServer, wait_for};
use crate::shown::shown_json;
use testbed::Postgres;
use testbed::S3;
use testbed::SmallDisk;

/// A test's directory, and the commands in it.
struct Place {
    directory: Arc<TempDir>,
    variables: Vec<(&'static str, String)>,
}

impl Place {
    fn new() -> Place {
        Place {
            directory: Arc::new(tempfile::tempdir().expect("a directory")),
            variables: Vec::new(),
        }
    }

    /// A server on `data` in here; what it is configured with besides is for `change`.
    fn serve(&self, data: &str, change: impl FnOnce(&mut config::Config)) -> TestServer {
        TestServer::start_in(self.directory.clone(), |config, directory| {
            config.data_dir = directory.path().join(data);
            config.aur.enabled = false;
            change(config);
        })
        .ready()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file of a blob in a directory of blobs.
    fn blob(&self, blobs: &str, body: &[u8]) -> PathBuf {
        let digits = Digest::of(body).to_string();
        self.path(&format!("{blobs}/sha256/{}/{}/{digits}", &digits[..2], &digits[2..4]))
    }

    fn run(&self, line: &str) -> Done {
        let mut command = larder(self.directory.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Done::of(command.args(line.split(' ')), "")
    }

    /// Runs a command that says all of `expected`.
    #[track_caller]
    fn check(&self, line: &str, code: i32, expected: &[&str]) -> String {
        self.run(line).check(code, expected).said()
    }

    #[track_caller]
    fn check_json(&self, line: &str, code: i32) -> Value {
        let text = self.check(line, code, &[]);
        let mut values = serde_json::Deserializer::from_str(&text).into_iter();
        values.next().unwrap_or_else(|| panic!("{line}: {text}")).expect("JSON")
    }
}

#[track_caller]
fn put(client: &Client, name: &str, base: u32, body: &str) {
    let target = format!("/article/{name}/{base}");
    let response = client.root().typed("text/plain").post(&target, body.as_bytes());
    response.expect_one_of([200, 201]);
}

fn body_of(name: &str, revision: u32) -> String {
    format!("{name} at {revision}\n")
}

/// Looks whether the server has exactly `revisions` revisions of the article.
#[track_caller]
fn check_article(client: &Client, name: &str, revisions: u32) {
    for revision in 1..=revisions {
        client.get(&format!("/article/{name}/{revision}")).expect(200).is(body_of(name, revision));
    }
    client.get(&format!("/article/{name}/{}", revisions + 1)).expect(404);
}

fn revisions_of(client: &Client, name: &str) -> u32 {
    (1..)
        .find(|revision| client.get(&format!("/article/{name}/{revision}")).status != 200)
        .map_or(0, |it| it - 1)
}

/// Makes a file look untouched for a week.
fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(SystemTime::now() - Duration::from_secs(7 * 86_400)).expect("an age");
}

/// Puts bytes among the blobs behind everybody's back.
fn plant(path: &Path, body: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, body).expect("a blob");
}

/// While articles are written, backups are taken, again and again into one directory; each is a moment.
#[test]
fn a_backup_is_one_moment_of_a_busy_store() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    let client = server.client;
    let acknowledged = Mutex::new(0);
    let is_over = AtomicBool::new(false);
    put(&client, "a", 0, &body_of("a", 1));
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let _ending = SetAtEnd(&is_over);
        scope.spawn(|| {
            for revision in 1.. {
                if is_over.load(Relaxed) {
                    return;
                }
                // `b` always follows `a`, so that a moment between the two is known by them.
                put(&client, "b", revision - 1, &body_of("b", revision));
                put(&client, "a", revision, &body_of("a", revision + 1));
                *acknowledged.lock().expect("no panic") = revision;
            }
        });
        for _ in 0..3 {
            let before = *acknowledged.lock().expect("no panic");
            place.check("backup --data-dir data away/backup", 0, &["backed up", "of serial"]);
            let copy = place.serve("away/backup", |_| ());
            let (a, b) = (revisions_of(&copy.client, "a"), revisions_of(&copy.client, "b"));
            assert!(b == a || b + 1 == a, "a commit is there with all before it: {a} {b}");
            assert!(b >= before, "what was acknowledged before is there: {b} of {before}");
            check_article(&copy.client, "a", a);
            check_article(&copy.client, "b", b);
            copy.stop();
            place.check("verify --data-dir away/backup", 0, &["no faults"]);
            seen.push(b);
        }
    });
    assert!(seen.is_sorted(), "{seen:?}");
}

#[test]
fn a_restored_store_is_as_it_was() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    for revision in 0..3 {
        put(&server, "a", revision, &body_of("a", revision + 1));
    }
    server.stop();
    place.check("backup --data-dir data away/backup", 0, &[]);
    // Nothing new: nothing is copied.
    place.check("backup --data-dir data away/backup", 0, &["; 0 blobs (0 B) copied now"]);
    place.check("restore --data-dir elsewhere away/backup", 0, &["restored", "into sqlite:"]);
    place.check("verify --data-dir elsewhere", 0, &["no faults", "0 unnamed"]);
    let restored = place.serve("elsewhere", |_| ());
    check_article(&restored, "a", 3);
    let original = place.serve("data", |_| ());
    let serial = |server: &TestServer| server.app.live_store.snapshot().map(|stored| stored.serial);
    assert_eq!(serial(&restored), serial(&original));
    let tag = |server: &TestServer| server.get("/article/a").header("etag").to_owned();
    assert_eq!(tag(&restored), tag(&original));
    drop((restored, original));
    place.check(
        "restore --data-dir elsewhere away/backup",
        1,
        &["is not empty: it is at serial", "nothing was changed"],
    );
}

#[test]
fn a_backup_replaces_only_an_earlier_one_of_the_same_store() {
    let place = Place::new();
    place.check("init --data-dir data --root-password x", 0, &[]);
    place.check("init --data-dir other --root-password x", 0, &[]);
    place.check("backup --data-dir nowhere backup", 1, &["there is no store", "does not exist"]);
    assert!(!place.path("nowhere").exists() && !place.path("backup").exists());
    place.check("backup --data-dir data data", 1, &["is the store itself"]);
    place.check("backup --data-dir data --blobs third/blobs third", 1, &["does not exist"]);
    place.check("init --data-dir third --root-password x", 0, &[]);
    place.check("backup --data-dir data --blobs third/blobs third", 1, &["is the store itself"]);
    place.check("backup --data-dir data other", 1, &["records that are no backup"]);
    place.check("verify --data-dir other", 0, &["no faults"]);
    place.check("backup --data-dir data backup", 0, &[]);
    place.check("backup --data-dir other backup", 1, &["holds a backup of the store"]);
}

#[test]
fn the_leftovers_of_a_killed_backup_do_not_matter() {
    let place = Place::new();
    place.check("init --data-dir data --root-password x", 0, &[]);
    place.check("backup --data-dir data backup", 0, &[]);
    fs::write(place.path("backup/records.db.new"), "torn").expect("a file");
    fs::write(place.path("backup/records.db.new-wal"), "torn").expect("a file");
    place.check("backup --data-dir data backup", 0, &[]);
    let mut names: Vec<_> = fs::read_dir(place.path("backup"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, ["backup.json", "blobs", "larder.lock", "records.db"]);
}

#[test]
fn a_backup_that_was_served_is_replaced_by_none() {
    let place = Place::new();
    place.check("init --data-dir data --root-password x", 0, &[]);
    place.check("backup --data-dir data backup", 0, &[]);
    let copy = place.serve("backup", |_| ());
    place.check("backup --data-dir data backup", 1, &["is in use"]);
    // The server has its own user `root`, so this is the first write.
    let original = place.serve("data", |_| ());
    put_as_x(&original.client, "x", "x");
    put_as_x(&copy.client, "y", "y");
    put_as_x(&copy.client, "z", "z");
    drop((copy, original));
    place.check("backup --data-dir data backup", 1, &["was written to since it was a backup"]);
    place.check("backup --data-dir data backup2", 0, &[]);
}

#[track_caller]
fn put_as_x(client: &Client, name: &str, body: &str) {
    client
        .authorized("Basic cm9vdDp4")
        .typed("text/plain")
        .post(&format!("/article/{name}/0"), body.as_bytes())
        .expect(201);
}

/// A store with four blobs, of which three are cut, flipped and gone, and a backup `good` from before.
fn with_damaged_blobs() -> Place {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    for name in ["cut", "flipped", "gone", "whole"] {
        put(&server.client, name, 0, &body_of(name, 1));
    }
    server.stop();
    place.check("backup --data-dir data good", 0, &["4 blobs"]);
    place.check("verify --data-dir data", 0, &["4 blobs named", "4 of them hashed", "no faults"]);
    let blob = |name: &str| place.blob("data/blobs", body_of(name, 1).as_bytes());
    fs::write(blob("flipped"), body_of("Flipped", 1)).expect("a write");
    fs::write(blob("cut"), "cut").expect("a write");
    fs::remove_file(blob("gone")).expect("it was there");
    place
}

/// What is said of the three.
const FLAWS: [&str; 3] = [
    "has 3 bytes, but 9 were expected; named by `article/0000000001/cut`",
    "is missing; named by `article/0000000001/gone`",
    "is damaged: its bytes have the digest",
];

#[test]
fn what_is_lost_is_named() {
    let place = with_damaged_blobs();
    let quick = place.check("verify --data-dir data --quick", 1, &FLAWS[..2]);
    quick.says(["2 faults", "0 of them hashed"]);
    place.check("verify --data-dir data", 1, &FLAWS).says("3 faults");
    let json = place.check_json("verify --data-dir data --json", 1);
    assert_snapshot!("faults", shown_json(&json));
    json.to_string().says(&Digest::of(body_of("gone", 1).as_bytes()).to_string());
}

/// A backup has everything else, and says so; one that has the bytes already is whole.
#[test]
fn a_damaged_store_is_backed_up_and_restored() {
    let place = with_damaged_blobs();
    place.check("backup --data-dir data bad", 1, &FLAWS).says(["1 blob (", "3 blobs lost"]);
    place.check("backup --data-dir data good", 0, &["4 blobs (", "0 blobs (0 B) copied now"]);
    place.check("restore --data-dir refused bad", 1, &["no record was restored", FLAWS[1]]);
    place.check(
        "restore --data-dir refused bad --allow-loss",
        1,
        &["everything else was restored"],
    );
    place.check("verify --data-dir refused", 1, &["3 faults"]);
}

/// A backup that rots is mended from the store, if asked.
#[test]
fn a_damaged_backup_is_mended() {
    let place = with_damaged_blobs();
    let whole = place.blob("good/blobs", body_of("whole", 1).as_bytes());
    fs::write(&whole, body_of("Whole", 1)).expect("a write");
    place.check("backup --data-dir data good", 0, &[]);
    place.check("verify --data-dir good", 1, &["1 fault", FLAWS[2]]);
    place.check("backup --data-dir data good --verify", 0, &["1 blob (11 B) copied now"]);
    place.check("verify --data-dir good", 0, &["no faults"]);
    place.check("restore --data-dir restored good", 0, &[]);
    place.check("verify --data-dir restored", 0, &["no faults"]);
}

/// Records that a surface cannot read, and bodies whose blobs nothing would keep alive.
#[test]
fn records_that_are_wrong_are_named() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    put(&server.client, "a", 0, &body_of("a", 1));
    server.stop();
    let location = DatabaseLocation::Sqlite(place.path("data/records.db"));
    let digest = Digest::of(body_of("a", 1).as_bytes());
    let key = |text: &str| Key::new(text).expect("a key");
    let article = format!(
        r#"{{"v":1,"kind":"put","base":2,"author":"a","at":"2026-01-02T03:04:05Z","size_bytes":7,"sha256":"{digest}","content_type":"text/plain"}}"#
    );
    let batch = Batch::new()
        .put(key("python/file/u/i/p/f.whl"), Expected::Absent, "{}", Vec::new())
        .put(key("user/bad"), Expected::Absent, "nonsense", Vec::new())
        .put(key("article/0000000003/a"), Expected::Absent, article, Vec::new());
    wait_for(async {
        let records = Records::open(&location, RecordsOptions::default()).await.expect("opened");
        records.commit(batch).await.expect("committed");
        records.close().await;
    });
    let said = place.check(
        "verify --data-dir data",
        1,
        &[
            "the record `python/file/u/i/p/f.whl` cannot be read",
            "the record `user/bad` cannot be read",
            "the article `a` lacks its revision 2",
            &format!(
                "the record `article/0000000003/a` has `sha256` {digest} in its body, but not"
            ),
        ],
    );
    said.says("4 faults");
}

#[test]
fn a_sweep_takes_what_is_old_and_unnamed() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    put(&server.client, "a", 0, &body_of("a", 1));
    let named = place.blob("data/blobs", body_of("a", 1).as_bytes());
    let old = place.blob("data/blobs", b"old");
    let young = place.blob("data/blobs", b"young");
    plant(&old, b"old");
    plant(&young, b"young");
    age(&old);
    age(&named);
    place.check("verify --data-dir data", 0, &["2 unnamed (8 B)", "no faults"]);
    let dry = "sweep --data-dir data --dry-run";
    let line = format!("{} 3\n", Digest::of(b"old"));
    place.check(dry, 0, &[&line, "would be deleted", "1 named", "1 unnamed but younger"]);
    assert!(old.exists());
    place.check("sweep --data-dir data --grace 5", 1, &["is in use"]);
    place.check("sweep --data-dir data --grace 9999999", 0, &["deleted 0 unnamed blobs"]);
    place.check("sweep --data-dir data", 0, &["deleted 1 unnamed blob (3 B)"]);
    assert!(!old.exists() && young.exists() && named.exists());

    // The server's own task does the same, and counts it.
    plant(&old, b"old");
    age(&old);
    wait_for(larder::tasks::blob_sweep::sweep(&server.app));
    assert!(!old.exists() && young.exists() && named.exists());
    assert_eq!(server.metric("larder_blobs_swept_total"), 1.0);
    assert_eq!(server.metric("larder_blobs_swept_bytes_total"), 3.0);
    check_article(&server.client, "a", 1);
    server.stop();
    place.check("sweep --data-dir data --grace 0", 0, &["deleted 1 unnamed blob (5 B)"]);
    assert!(!young.exists() && named.exists());
}

/// Another store's database names none of the blobs.
#[test]
fn a_sweep_by_the_wrong_records_is_refused() {
    let place = Place::new();
    place.check("init --data-dir data --root-password x", 0, &[]);
    for number in 0..120 {
        let body = format!("blob {number}");
        let path = place.blob("data/blobs", body.as_bytes());
        plant(&path, body.as_bytes());
        age(&path);
    }
    let server = place.serve("data", |_| ());
    wait_for(larder::tasks::blob_sweep::sweep(&server.app));
    assert_eq!(server.metric("larder_blob_sweep_failures_total"), 1.0);
    assert_eq!(server.metric("larder_blobs_swept_total"), 0.0);
    place.check("sweep --data-dir data", 1, &["more than half, so nothing was deleted"]);
    place.check("sweep --data-dir data --force", 0, &["deleted 120 unnamed blobs"]);
}

#[test]
fn layouts_are_told() {
    let place = Place::new();
    place.check("migrate --data-dir data", 1, &["there is no store"]);
    place.check("migrate --data-dir data --check", 1, &["there is no store"]);
    place.check("init --data-dir data --root-password x", 0, &[]);
    place.check("migrate --data-dir data --check", 0, &["nothing to do"]);
    place.check("migrate --data-dir data", 0, &["nothing to do"]);
    fs::write(place.path("data/blobs/VERSION"), "larder blobs 9\n").expect("a write");
    place.check("migrate --data-dir data", 1, &["larder blobs 9", "larder blobs 1"]);
    place.check("backup --data-dir data backup", 1, &["larder blobs 9"]);
}

/// A slip in the place of the blobs is told, and nothing is made there.
#[test]
fn a_place_without_blobs_is_not_made_one() {
    let place = Place::new();
    place.check("init --data-dir data --root-password x", 0, &[]);
    fs::create_dir(place.path("empty")).expect("a directory");
    for command in
        ["verify", "backup away", "sweep", "sweep --dry-run", "migrate --check", "migrate"]
    {
        let line = format!("{command} --data-dir data --blobs empty");
        place.check(&line, 1, &["there are no blobs", "empty/VERSION` does not exist"]);
    }
    assert_eq!(fs::read_dir(place.path("empty")).expect("a directory").count(), 0);
}

/// A backup needs no other files, and can be used from a read-only disk.
#[test]
fn a_backup_is_read_from_a_read_only_disk() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    put(&server.client, "a", 0, &body_of("a", 1));
    server.stop();
    let Some(disk) = SmallDisk::mount(&place.path("disk"), "size=16m") else { return };
    for round in 0..2 {
        if round == 1 {
            // A second backup has the first one open to write, for a while.
            disk.remount("rw");
        }
        place.check("backup --data-dir data disk/backup", 0, &["backed up"]);
        let names =
            ["records.db-wal", "records.db-shm"].map(|name| disk.path().join("backup").join(name));
        assert_eq!(names.map(|name| name.exists()), [false, false]);
        disk.remount("ro");
        place.check("verify --data-dir disk/backup", 0, &["no faults"]);
        place.check(&format!("restore --data-dir new{round} disk/backup"), 0, &["restored"]);
        place.check(&format!("verify --data-dir new{round}"), 0, &["no faults"]);
    }
}

/// From a directory to PostgreSQL and an object store, and back again.
#[test]
fn a_store_moves_to_postgres_and_s3_and_back() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(s3) = S3::shared() else { return };
    let bucket = s3.make_bucket();
    let mut place = Place::new();
    place.variables = s3.variables();
    let server = place.serve("data", |_| ());
    for revision in 1..=7 {
        put(&server.client, "a", revision - 1, &body_of("a", revision));
    }
    let large = "large ".repeat(3_000_000);
    put(&server.client, "large", 0, &large);
    server.root().delete("/article/a/7").expect(200);
    server.stop();
    place.check("backup --data-dir data first", 0, &["8 blobs"]);

    let there =
        format!("--database {} --blobs s3://{bucket}/some/prefix --data-dir there", postgres.url());
    place.check(&format!("verify {there}"), 1, &["there are no records in postgres://"]);
    place.check(
        &format!("restore {there} first"),
        0,
        &["restored", "into postgres://", "8 blobs ("],
    );
    place.check(&format!("restore {there} first"), 1, &["is not empty: it is at serial"]);
    place.check(&format!("verify {there}"), 0, &["8 blobs named", "8 of them hashed", "no faults"]);
    place.check(&format!("migrate {there} --check"), 0, &["nothing to do"]);
    place.check(&format!("upgrade-check {there}"), 0, &["nothing would change"]);
    plant(&s3.path(&bucket).join("some/prefix/sha256/00/00").join("0".repeat(64)), b"x");
    place.check(&format!("sweep {there}"), 0, &["deleted 0 unnamed blobs"]);

    place.check(&format!("backup {there} second"), 0, &["8 blobs"]);
    place.check("verify --data-dir second", 0, &["no faults"]);
    let serial = |directory: &str| {
        place.check_json(&format!("verify --data-dir {directory} --json"), 0)["serial"].clone()
    };
    assert_eq!(serial("second"), serial("data"));
    let copy = place.serve("second", |_| ());
    for revision in 1..=7 {
        assert_eq!(copy.get(&format!("/article/a/{revision}")).text(), body_of("a", revision));
    }
    // Its deletion came along.
    copy.get("/article/a").expect(410);
    assert_eq!(copy.get("/article/large").text(), large);
}

/// Files, their metadata and that of releases are blobs that are copied and checked as well.
#[test]
fn the_python_index_comes_along() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    server.add_user("team", "team");
    server.root().put("/team/dev", "{}").expect(200);
    let (wheel, _) = wheel("p", "1.0");
    server.root().upload("team/dev", &Upload::of("p-1.0-py3-none-any.whl", &wheel)).expect(200);
    let page = |server: &TestServer| server.get("/team/dev/+simple/p/").text();
    let before = page(&server);
    before.says("p-1.0-py3-none-any.whl");
    server.stop();

    // Every blob of the bodies is one that the records keep alive, and a file, its metadata and that of its
    // release are three.
    let json = place.check_json("verify --data-dir data --json", 0);
    assert_eq!((&json["blobs_named"], &json["blobs_unnamed"]), (&3.into(), &0.into()), "{json}");
    place.check("backup --data-dir data backup", 0, &["3 blobs"]);
    let copy = place.serve("backup", |_| ());
    assert_eq!(page(&copy), before);
    copy.stop();
    fs::remove_file(place.blob("backup/blobs", &wheel)).expect("it was there");
    let named_by = "is missing; named by `python/file/team/dev/p/p-1.0-py3-none-any.whl`";
    place.check("verify --data-dir backup", 1, &["1 fault", named_by]);
    place.check("backup --data-dir data backup", 0, &["1 blob ("]);
    place.check("verify --data-dir backup", 0, &["no faults"]);
}

/// An interrupted restore has left blobs; the next one continues.
#[test]
fn a_restore_goes_on() {
    let place = Place::new();
    let server = place.serve("data", |_| ());
    for name in ["a", "b", "c"] {
        put(&server.client, name, 0, &body_of(name, 1));
    }
    server.stop();
    place.check("backup --data-dir data backup", 0, &[]);
    let arrived = place.blob("new/blobs", body_of("b", 1).as_bytes());
    plant(&arrived, body_of("b", 1).as_bytes());
    age(&arrived);
    let torn = place.blob("new/blobs", body_of("c", 1).as_bytes());
    plant(&torn, b"torn");
    place.check("restore --data-dir new backup", 0, &["3 blobs (21 B); 2 blobs (14 B) copied now"]);
    place.check("verify --data-dir new", 0, &["no faults"]);
    let modified = fs::metadata(&arrived).expect("it is there").modified().expect("an age");
    let since = SystemTime::now().duration_since(modified).unwrap_or_default();
    assert!(since < Duration::from_secs(86_400), "no sweep takes it now: {since:?}");
}
