//! Two processes on one PostgreSQL and one bucket share what they mirror; neither serves an object that is damaged, cut or
//! another's.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

use record::Digest;
use serde_json::{Value, json};
use testbed::{Offer, S3, Upstream};

use super::{Place, make_stage, noise};
use crate::asking::Says as _;
use crate::client::{Client, Response};
use crate::process::Process;
use crate::python::mirrors::{self, list};
use crate::wait_until;

const PAGE: &str = "/team/up/+simple/foo/";

/// The files of the project `foo` at the upstream: small ones, and some that are uploaded in parts.
const SIZES: [usize; 4] = [10, 100_000, 9_000_000, 17_000_000];

pub(super) fn filename(number: usize) -> String {
    format!("foo-{number}.0.tar.gz")
}

pub(super) fn content(number: usize) -> Vec<u8> {
    noise(number as u64, SIZES[number])
}

pub(super) fn upstream() -> Upstream {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo", "bar"]));
    let files = (0..SIZES.len()).map(|number| {
        let (name, content) = (filename(number), content(number));
        upstream.offer(&format!("/files/{name}"), Offer::file(content.clone()));
        mirrors::file(&upstream, &name, &content)
    });
    for (project, files) in [("foo", files.collect()), ("bar", json!([]))] {
        let page = mirrors::page(project, files).tagged("\"tag\"");
        upstream.offer(&format!("/simple/{project}/"), page);
    }
    upstream
}

/// A process that may ask this machine.
fn start(place: &Place, data: &str, more: &[&str]) -> Process {
    let arguments = [&["--egress-allow", "127.0.0.0/8"], more].concat();
    place.start_with(data, &arguments)
}

/// [`start`], with a cache that processes share.
fn start_sharing(place: &Place, data: &str, more: &[&str]) -> Process {
    let arguments = [&["--python-mirror-shared-bytes-max", "1000000000"], more].concat();
    start(place, data, &arguments)
}

/// Makes the mirror `team/up`.
pub(super) fn make_mirror(client: &Client, upstream: &Upstream) {
    make_stage(client);
    let config = json!({"type": "mirror", "mirror_url": upstream.url("/simple/")});
    client.root().put("/team/up", config).expect(200);
}

pub(super) fn file(client: &Client, upstream: &Upstream, number: usize) -> Response {
    client.get(&format!("/team/up/+upstream/{}/files/{}", upstream.host(), filename(number)))
}

pub(super) fn page(client: &Client) -> Response {
    client.get_with(PAGE, &[("Accept", "application/vnd.pypi.simple.v1+json")])
}

/// The page and all files are there and right, as soon as the process knows the mirror and the object store answers in time.
pub(super) fn check_all(client: &Client, upstream: &Upstream) {
    wait_until("the page", || page(client).status == 200);
    let names = page(client).json()["files"].as_array().map(Vec::len);
    assert_eq!(names, Some(SIZES.len()));
    for number in 0..SIZES.len() {
        wait_until("a file", || file(client, upstream, number).status == 200);
        assert!(file(client, upstream, number).body == content(number), "{number}");
    }
}

fn below(directory: &Path) -> Vec<PathBuf> {
    fn add(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => add(&entry.path(), found),
                Ok(_) => found.push(entry.path()),
                // The file was just renamed.
                Err(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    add(directory, &mut found);
    found.sort();
    found
}

/// The directory of what mirrors have in the bucket.
fn shared(place: &Place, s3: &S3) -> PathBuf {
    let bucket = place.blobs.strip_prefix("s3://").expect("a bucket");
    let (bucket, prefix) = bucket.split_once('/').expect("a prefix");
    s3.path(bucket).join(prefix).join("mirrors")
}

/// The entries in the bucket.
fn entries(place: &Place, s3: &S3) -> Vec<PathBuf> {
    below(&shared(place, s3).join("1"))
}

/// The shared page with this many files, if it exists.
fn shared_page(place: &Place, s3: &S3, files: usize) -> Option<Value> {
    entries(place, s3).into_iter().find_map(|path| {
        let entry = fs::read(path).ok()?;
        let page: Value = serde_json::from_slice(entry.get(4096..)?).ok()?;
        let found = page["files"].as_array().is_some_and(|found| found.len() == files);
        found.then_some(page)
    })
}

/// A proxy between the processes and the object store: it forwards all bytes, or, when it hangs, accepts connections and sends
/// nothing.
struct Gate {
    address: SocketAddr,
    hangs: Arc<AtomicBool>,
}

impl Gate {
    fn before(s3: &S3) -> Gate {
        let variables = s3.variables();
        let (_, url) =
            variables.iter().find(|(name, _)| *name == "AWS_ENDPOINT_URL").expect("a URL");
        let to: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let gate =
            Gate { address: listener.local_addr().expect("an address"), hangs: Arc::default() };
        let hangs = gate.hangs.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone())
                else {
                    continue;
                };
                for (from, to) in [(from_client, server), (from_server, client)] {
                    let hangs = hangs.clone();
                    thread::spawn(move || _ = pass(from, to, &hangs));
                }
            }
        });
        gate
    }

    /// The place, whose processes go through this gate.
    fn of(&self, place: Place) -> Place {
        let mut variables = place.variables.clone();
        for (name, value) in &mut variables {
            if *name == "AWS_ENDPOINT_URL" {
                *value = format!("http://{}", self.address);
            }
        }
        Place { variables, ..place }
    }
}

/// Passes on what comes, while nothing hangs.
fn pass(mut from: TcpStream, mut to: TcpStream, hangs: &AtomicBool) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = io::Read::read(&mut from, &mut piece)?;
        while hangs.load(Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        if read == 0 {
            return to.shutdown(std::net::Shutdown::Write);
        }
        io::Write::write_all(&mut to, &piece[..read])?;
    }
}

/// Makes all that a process has in its own cache look as if it was used long ago.
fn age_cache(place: &Place, data: &str) {
    let directory = place.directory.path().join(data).join("mirrors");
    let found = below(&directory);
    assert!(!found.is_empty(), "{}", directory.display());
    for path in found {
        let file = File::options().write(true).open(path).expect("an entry");
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).expect("a time");
    }
}

/// A process that has shared all that the upstream has; `None` where there is no PostgreSQL or no object store.
fn sharing() -> Option<(Place, &'static S3, Upstream, Process)> {
    let (place, s3) = (Place::postgres_and_s3()?, S3::shared()?);
    place.init();
    let upstream = upstream();
    let one = start_sharing(&place, "one", &[]);
    make_mirror(&one.client, &upstream);
    check_all(&one.client, &upstream);
    wait_for_all(&place, s3);
    Some((place, s3, upstream, one))
}

/// Waits until the list, a page and all files are shared.
fn wait_for_all(place: &Place, s3: &S3) {
    wait_until("what is shared", || entries(place, s3).len() == 2 + SIZES.len());
}

#[test]
fn what_one_process_fetched_another_serves() {
    let Some((place, _, upstream, one)) = sharing() else { return };
    upstream.break_with(Some(500));
    drop(one);
    let other = start_sharing(&place, "other", &[]);
    check_all(&other.client, &upstream);
    assert_eq!(page(&other.client).find("warning"), None, "it is fresh");
    let range = [("Range", "bytes=5-8")];
    let target = format!("/team/up/+upstream/{}/files/{}", upstream.host(), filename(0));
    assert_eq!(other.client.get_with(&target, &range).body, content(0)[5..=8]);
    let metrics = other.client.get("/metrics").text();
    metrics.says("larder_mirror_shared_total 6");
    // A process that is offline has it, too.
    let offline = start_sharing(&place, "offline", &["--python-mirrors-offline=true"]);
    check_all(&offline.client, &upstream);
    assert_eq!(page(&offline.client).header("warning").get(..3), Some("112"));
    // For a HEAD, only the head of the entry is transferred.
    let head = start_sharing(&place, "head", &["--python-mirrors-offline=true"]);
    wait_until("the page", || page(&head.client).status == 200);
    let target = format!("/team/up/+upstream/{}/files/{}", upstream.host(), filename(3));
    let mut length = String::new();
    wait_until("the head of a file", || {
        let got = head.client.anybody().send("HEAD", &target, ());
        length = got.header("content-length").to_owned();
        got.status == 200
    });
    assert_eq!(length, SIZES[3].to_string());
    head.client.get("/metrics").says("larder_mirror_shared_total 2");
    // A process without the shared cache has nothing.
    let alone = start(&place, "alone", &[]);
    wait_until("the mirror", || alone.client.get("/team/up").status == 200);
    page(&alone.client).expect(502);
}

#[test]
fn what_is_wrong_in_the_bucket_is_not_served() {
    let Some((place, s3, upstream, one)) = sharing() else { return };
    drop(one);
    let right: Vec<(PathBuf, Vec<u8>)> = entries(&place, s3)
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).expect("an entry")))
        .collect();
    for damage in ["swapped", "cut", "flipped", "head"] {
        for (at, (path, bytes)) in right.iter().enumerate() {
            let mut wrong = bytes.clone();
            match damage {
                // Each is whole, but another's.
                "swapped" => wrong = right[(at + 1) % right.len()].1.clone(),
                "cut" => wrong.truncate(bytes.len() - 1),
                "flipped" => wrong[bytes.len() - 1] ^= 1,
                _ => wrong[100] ^= 1,
            }
            fs::write(path, wrong).expect("an object");
        }
        let process = start_sharing(&place, damage, &[]);
        check_all(&process.client, &upstream);
        let metrics = process.get("/metrics").text();
        assert!(metrics.contains("larder_mirror_shared_total 0"), "{damage}: {metrics}");
        // The process replaces them by the right content.
        let content = |bytes: &[u8]| bytes.get(4096..).map(Digest::of);
        let is_right = |(path, bytes): &(PathBuf, Vec<u8>)| {
            fs::read(path).is_ok_and(|found| content(&found) == content(bytes))
        };
        wait_until("right entries", || right.iter().all(is_right));
    }
}

#[test]
fn a_process_that_is_killed_leaves_nothing_wrong() {
    let (Some(place), Some(s3)) = (Place::postgres_and_s3(), S3::shared()) else { return };
    place.init();
    let upstream = upstream();
    let last = SIZES.len() - 1;
    let held = format!("/files/{}", filename(last));
    upstream.offer(&held, Offer::file(content(last)).held_after(SIZES[last] / 2));
    upstream.hold(&held);
    let one = start_sharing(&place, "one", &[]);
    make_mirror(&one.client, &upstream);
    let other = start_sharing(&place, "other", &[]);
    wait_until("the mirror", || other.client.get("/team/up").status == 200);
    std::thread::scope(|scope| {
        let (client, asked) = (one.client, upstream.clone());
        scope.spawn(move || {
            // A body that ends with the process is not whole.
            let target = format!("/team/up/+upstream/{}{held}", asked.host());
            let got = client.try_exchange(&client.request("GET", &target, &[], b""));
            assert!(got.is_none_or(|(_, text)| text.len() < SIZES[last]));
        });
        upstream.wait_for(&format!("/files/{}", filename(last)), 1);
        for number in 0..last {
            assert!(file(&one.client, &upstream, number).body == content(number));
        }
        // A download is half done, and uploads are under way.
        drop(one);
    });
    let shared = entries(&place, s3).len();
    assert!(shared < 2 + SIZES.len(), "the last file never arrived");
    upstream.release(&format!("/files/{}", filename(last)));
    check_all(&other.client, &upstream);
    // The killed process's own cache is right as well, or empty.
    let again = start_sharing(&place, "one", &[]);
    check_all(&again.client, &upstream);
    wait_until("all is shared", || entries(&place, s3).len() >= SIZES.len());
    upstream.break_with(Some(500));
    wait_for_all(&place, s3);
    check_all(&start_sharing(&place, "third", &[]).client, &upstream);
}

#[test]
fn an_object_store_that_hangs_holds_nobody_up() {
    let (Some(place), Some(s3)) = (Place::postgres_and_s3(), S3::shared()) else { return };
    let gate = Gate::before(s3);
    let place = gate.of(place);
    place.init();
    // More than may wait for the object store at once, of pages and of files.
    const COUNT: usize = 80;
    let upstream = Upstream::start();
    let names: Vec<String> = (0..COUNT).map(|number| format!("p{number}")).collect();
    upstream.offer("/simple/", list(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    for name in &names {
        let filename = format!("{name}-1.0.tar.gz");
        upstream.offer(&format!("/files/{filename}"), Offer::file(name.clone()));
        let file = mirrors::file(&upstream, &filename, name.as_bytes());
        upstream.offer(&format!("/simple/{name}/"), mirrors::page(name, json!([file])));
    }
    let one = start_sharing(&place, "one", &[]);
    make_mirror(&one.client, &upstream);
    wait_until("the mirror", || one.client.get("/team/up/+simple/p0/").status == 200);
    gate.hangs.store(true, Relaxed);
    // Pages and files of all projects at once: each comes before its client gives up, however many wait for the object store.
    thread::scope(|scope| {
        for name in &names {
            let (page, file) = (
                format!("/team/up/+simple/{name}/"),
                format!("/team/up/+upstream/{}/files/{name}-1.0.tar.gz", upstream.host()),
            );
            let client = &one.client;
            scope.spawn(move || assert_eq!(client.get(&page).status, 200, "{page}"));
            scope.spawn(move || assert_eq!(client.get(&file).body, name.as_bytes(), "{file}"));
        }
    });
    gate.hangs.store(false, Relaxed);
}

#[test]
fn what_is_used_is_shared_again_and_noted() {
    let Some((place, s3, upstream, one)) = sharing() else { return };
    drop(one);
    // An entry that is missing in the shared cache is shared when it is used.
    let all = entries(&place, s3);
    for path in &all {
        fs::remove_file(path).expect("an entry");
    }
    _ = fs::remove_dir_all(shared(&place, s3).join("used"));
    age_cache(&place, "one");
    let one = start_sharing(&place, "one", &[]);
    check_all(&one.client, &upstream);
    wait_until("all is shared again", || entries(&place, s3) == all);
    assert!(
        below(&shared(&place, s3).join("used")).is_empty(),
        "their age says that they are used"
    );
    drop(one);
    // Existing entries are noted as used, including pages and the list.
    age_cache(&place, "one");
    let one = start_sharing(&place, "one", &[]);
    check_all(&one.client, &upstream);
    wait_until("notes", || below(&shared(&place, s3).join("used")).len() == all.len());
}

#[test]
fn times_of_first_seeing_get_no_younger() {
    let (Some(place), Some(s3)) = (Place::postgres_and_s3(), S3::shared()) else { return };
    place.init();
    let upstream = upstream();
    let offer = |count: usize| {
        let file = |number: usize| {
            json!({"filename": filename(number), "url": upstream.url(&format!("/files/{}", filename(number))),
                "hashes": {"sha256": Digest::of(&number.to_be_bytes()).to_string()}})
        };
        let page = mirrors::page("foo", (0..count).map(file).collect());
        upstream.offer("/simple/foo/", page);
    };
    // One process sees this many files and shares that page.
    let seen_by = |client: &Client, count: usize| {
        offer(count);
        let refreshed = client.root().post(&format!("{PAGE}refresh"), ());
        assert!(refreshed.status < 400, "{} {}", refreshed.status, refreshed.text());
        wait_until("the shared page", || shared_page(&place, s3, count).is_some());
        shared_page(&place, s3, count).expect("nobody writes another one")
    };
    offer(1);
    let one = start_sharing(&place, "one", &[]);
    make_mirror(&one.client, &upstream);
    let other = start_sharing(&place, "other", &[]);
    for process in [&one, &other] {
        wait_until("the page", || page(&process.client).status == 200);
    }
    let mut count = 1;
    // This may take several rounds, if the object store did not answer in time, or had no page a moment ago.
    wait_until("a time that is kept", || {
        let newest = count;
        count += 2;
        let before = seen_by(&one.client, newest + 1);
        let after = seen_by(&other.client, count);
        assert!(before["files"][newest]["_first-seen"].is_string(), "{before}");
        after["files"][newest] == before["files"][newest]
    });
}

#[test]
fn a_mirror_with_credentials_is_not_shared() {
    let (Some(place), Some(s3)) = (Place::postgres_and_s3(), S3::shared()) else { return };
    place.init();
    let upstream = upstream();
    let one = start_sharing(&place, "one", &[]);
    make_stage(&one.client);
    let url = upstream.url("/simple/").replace("http://", "http://me:secret@");
    let config = json!({"type": "mirror", "mirror_url": url});
    one.root().put("/team/up", &config).expect(200);
    check_all(&one.client, &upstream);
    // Later entries are shared, so the earlier one was not.
    let config = json!({"type": "mirror", "mirror_url": upstream.url("/simple/")});
    one.root().put("/team/open", config).expect(200);
    wait_until("a page", || one.client.get("/team/open/+simple/foo/").status == 200);
    wait_until("what is shared", || entries(&place, s3).len() >= 2);
    for path in entries(&place, s3) {
        let entry = fs::read(path).expect("an entry");
        let head = String::from_utf8_lossy(&entry[..4096]).into_owned();
        head.says("team/open ");
    }
}
