//! Every endpoint that strangers may GET, asked by many at once, on a store where most answers are large or take long to make: memory
//! and threads stay within bounds, and the server says at once that it is alive.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use larder::routes::{Place, Tree};
use serde_json::{Value, json};
use testbed::Upstream;

use super::memory::STRANGERS_BYTES_MAX;
use crate::process::{Process, init};
use crate::python::mirrors::{list, page};
use crate::python::{Upload, path, sdist, zip};
use crate::{SetAtEnd, catalogue, is_long};

/// Requests at once.
const AT_ONCE: usize = 300;

/// What the store has.
const PACKAGES: u32 = 4_000;
const VERSIONS: usize = 1_000;
const REVISIONS: usize = 150;
/// Without optimization, 300 pages of so many files, made one at a time, take half a minute.
const MIRRORED_FILES: usize = if cfg!(debug_assertions) { 5_100 } else { 10_000 };

/// Whose the indexes are.
const OWNER: &str = "root";

/// Memory that they may take. Without optimization, futures and stacks are larger, which no budget counts.
const BYTES_MAX: u64 = STRANGERS_BYTES_MAX + if cfg!(debug_assertions) { 16 << 20 } else { 0 };

/// Threads above rest: 64 for work that blocks and four of low priority, which stay for some seconds, and a few of databases.
const THREADS_MAX: u64 = 80;

/// After this, the server hangs. The promise is 100 ms, with optimization and on a machine that does nothing else; this one may do
/// much else.
const ALIVE_MAX: Duration = Duration::from_secs(20);
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// What a placeholder of the table stands for, in each of some paths.
struct Names(Vec<(&'static str, Vec<String>)>);

impl Names {
    /// The paths of this place: one with the first of the names of each placeholder, one with the second, and so on.
    fn paths(&self, place: &Place) -> BTreeSet<String> {
        (0..).map_while(|at| self.path(place, at)).take(4).collect()
    }

    fn path(&self, place: &Place, at: usize) -> Option<String> {
        let mut path = place.path.to_owned();
        let mut is_new = at == 0;
        for (placeholder, names) in &self.0 {
            if path.contains(placeholder) {
                is_new |= at < names.len();
                path = path.replace(placeholder, names.get(at).or(names.last())?);
            }
        }
        assert!(!path.contains('{'), "{}: a placeholder without a name in this test", place.path);
        is_new.then_some(path)
    }
}

/// Texts as the names of a placeholder.
fn names(placeholder: &'static str, names: &[&str]) -> (&'static str, Vec<String>) {
    (placeholder, names.iter().map(|name| (*name).to_owned()).collect())
}

/// What every one of the requests asks for, in all forms: `(path, headers)`.
fn questions(names: &Names, release: &str) -> Vec<(String, &'static str)> {
    const HTML: &str = "Accept: text/html\r\n";
    const JSON: &str = "Accept: application/json\r\n";
    const ABSOLUTE: &str =
        "Accept: application/vnd.pypi.simple.v1+json\r\nX-Devpi-Absolute-URLs: 1\r\n";
    let places = Place::all().iter().filter(|place| place.tree != Tree::Admin);
    let asked = places.filter(|place| place.endpoint(&Method::GET).is_some());
    let mut questions = Vec::new();
    for place in asked {
        for path in names.paths(place) {
            questions.push((path.clone(), HTML));
            if place.tree == Tree::Python {
                questions.push((path.clone(), JSON));
            }
            if path.contains("simple/") {
                questions.push((path, ABSOLUTE));
            }
        }
    }
    // What the query and the header select.
    let more = [
        "/rpc/?v=5&type=search&arg=shared&by=name-desc",
        "/rpc/?v=5&type=search&arg=shared&mode=regex",
        "/rpc/?v=5&type=search&arg=everything&by=provides&sort=popularity&limit=4000",
        "/rpc/?v=5&type=suggest&arg=",
        "/packages?names=shared-0001&by=prov",
        "/packages/?K=shared&PP=250",
        "/search?q=shared",
        "/search/suggest?q=sh",
        "/articles?text=word",
        "/article/long/diff?from=1&to=150",
        "/changes?surface=python&since=0&limit=10000",
        "/changes?surface=article&since=0&limit=10000",
        "/aur/history?name=shared-0001&name=shared-0002",
        "/root/dev/many/1.0/+compare?to=2.0",
        "/root/dev/+api?x=1",
        "/+search?q=many",
        release,
    ];
    questions.extend(more.map(|path| (path.to_owned(), HTML)));
    questions.extend(
        more.map(|path| (path.to_owned(), "Accept: application/json\r\nAccept-Encoding: gzip\r\n")),
    );
    questions
}

/// Sends this request on so many connections at once, and reads all answers. The statuses.
fn ask(process: &Process, request: &[u8], what: &str) -> BTreeSet<String> {
    let mut open: Vec<_> = (0..AT_ONCE).map(|_| process.connect()).collect();
    for stream in &mut open {
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a timeout");
        stream.write_all(request).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let readers = open.chunks_mut(AT_ONCE / 12);
    std::thread::scope(|scope| {
        let reading: Vec<_> = readers
            .map(|streams| {
                scope.spawn(move || {
                    let mut buffer = vec![0; 64 << 10];
                    streams
                        .iter_mut()
                        .map(|stream| status(stream, &mut buffer))
                        .collect::<BTreeSet<_>>()
                })
            })
            .collect();
        reading.into_iter().flat_map(|it| it.join().expect("no panic")).collect()
    })
}

/// The status of an answer that is read to its end.
fn status(stream: &mut impl Read, buffer: &mut [u8]) -> String {
    let mut status = String::new();
    loop {
        match stream.read(buffer) {
            Ok(0) => return status,
            Ok(_) if !status.is_empty() => {}
            Ok(bytes) => {
                let start = &buffer[..bytes.min(12)];
                status = String::from_utf8_lossy(start.get(9..).unwrap_or_default()).into_owned();
            }
            Err(error) => return format!("{status} {error}"),
        }
    }
}

/// Fills the store; the path of a release file.
fn fill(process: &Process, upstream: &Upstream) -> String {
    let client = &process.client;
    let put = |path: &str, body: Value| client.root().put(path, body).done();
    put("/root/dev", json!({}));
    let file = |version: usize| sdist(&format!("# {version}"));
    let upload = |upload: Upload| client.root().upload("root/dev", &upload).expect(200);
    // Several at once share a commit.
    std::thread::scope(|scope| {
        for of_thread in 0..16 {
            scope.spawn(move || {
                for version in (1..=VERSIONS).filter(|version| version % 16 == of_thread) {
                    upload(Upload::of(&format!("many-{version}.0.zip"), &file(version)));
                }
            });
        }
        scope.spawn(|| {
            let text = |revision: usize| {
                format!("# Revision {revision}\n\n{}", "a word and [a link](/x) ".repeat(2_000))
            };
            client
                .root()
                .typed("text/markdown")
                .with("If-None-Match", "*")
                .put("/article/long", text(1).as_bytes())
                .expect(201);
            for revision in 1..REVISIONS {
                let target = format!("/article/long/{revision}");
                let ask = client.root().typed("text/markdown");
                ask.post(&target, text(revision + 1)).expect(201);
            }
            client.root().put("/+attachments/long/a.txt", &[b'a'; 400_000]).expect(201);
        });
        scope.spawn(|| {
            for index in 0..60 {
                put(&format!("/{OWNER}/index-{index}"), json!({"bases": ["root/dev"]}));
            }
            for user in 0..5 {
                client.add_user(&format!("user-{user}"), "open-sesame");
            }
        });
    });
    let members: Vec<(String, Vec<u8>)> =
        (0..300).map(|at| (format!("page-{at}.html"), vec![b'a'; 2_000])).collect();
    let members: Vec<(&str, &[u8])> = members
        .iter()
        .map(|(name, bytes)| (name.as_str(), &bytes[..]))
        .chain([("index.html", &b"x"[..])])
        .collect();
    upload(Upload::docs("many", "1.0", &zip(&members)));
    let files: Vec<Value> = (0..MIRRORED_FILES).map(|at| mirrored_file(upstream, at)).collect();
    upstream.offer("/simple/large/", page("large", json!(files)));
    let projects = (0..5_000).map(|at| format!("project-{at}")).chain(["large".to_owned()]);
    let projects: Vec<String> = projects.collect();
    upstream.offer("/simple/", list(&projects.iter().map(String::as_str).collect::<Vec<_>>()));
    put("/root/up", json!({"type": "mirror", "mirror_url": upstream.url("/simple")}));
    path("root/dev", "many-1.0.zip", &file(1))
}

/// A file of a page of the upstream.
fn mirrored_file(upstream: &Upstream, at: usize) -> Value {
    let filename = format!("large-{}.{}.{}-py3-none-any.whl", at / 100, at / 10 % 10, at % 10);
    let url = upstream.url(&format!("/files/{filename}"));
    json!({
        "filename": filename, "url": url, "hashes": {"sha256": format!("{at:064x}")}, "requires-python": ">=3.9",
        "size": 1_000 + at, "upload-time": "2026-01-02T03:04:05Z", "core-metadata": true,
    })
}

impl Names {
    /// What each name of a path stands for; `release` is the path of a file.
    fn sample(release: &str) -> Names {
        let directories: Vec<&str> = release.split('/').skip(4).collect();
        let contents = "many-1.0.zip";
        Names(vec![
            names("{user}/{index}/{*}", &["root/up/+simple/large", "root/up/+simple/"]),
            names("{user}/{index}", &["root/dev", "root/up"]),
            names("{user}", &["root"]),
            names("{directory}/{subdirectory}/{filename}", &[&directories.join("/")]),
            names("/+e/{*}", &["/+e/none"]),
            names("/+f/{*}", &["/+f/none"]),
            names("{host}/{path}", &["example.org/x"]),
            names("/+upstream/{*}", &["/+upstream/none"]),
            names("{project}/{version}", &["many/1.0", "large/1.1.1"]),
            names("{project}", &["many", "large"]),
            names("{version}", &["1", "150"]),
            names("/+doc/{path}", &["/+doc/index.html", "/+doc/page-1.html"]),
            names("/{**}", &["/index.html"]),
            names("{filename}/{result}", &["many-1.0.zip/1"]),
            names("{filename}", &[contents]),
            names("{package}", &["shared-0001"]),
            names("{base}", &["shared-0001"]),
            names("{maintainer}", &["anna"]),
            names("{article}", &["long"]),
            names("{file}", &["a.txt"]),
            names("{id}", &["GHSA-1"]),
            names("{provider}", &["none"]),
            names(
                "{digest}",
                &["0000000000000000000000000000000000000000000000000000000000000000"],
            ),
            names("{type}/{by}/{mode}/{arg}", &["search/name/contains/shared"]),
            names("{type}/{by}/{arg}", &["search/name/shared"]),
            names(
                "{type}/{arg}",
                &["search/shared", "info/shared-0001", "suggest/sh", "suggest-pkgbase/sh"],
            ),
            names("{type}", &["search", "info"]),
            names("v{n}/…", &["v7/info"]),
        ])
    }
}

#[test]
fn every_endpoint_is_asked_by_many_at_once() {
    let upstream = Upstream::start();
    let arguments =
        ["--aur-source", "dump.json", "--egress-allow", "127.0.0.0/8", "--aur-rate-limit", "0"];
    let process = Process::start(&arguments, |directory| {
        fs::write(directory.join("dump.json"), catalogue::generation(1, PACKAGES)).expect("a dump");
        init(directory);
    });
    let (rest_threads, began) = (process.threads(), Instant::now());
    let release = fill(&process, &upstream);
    eprintln!("filled in {:?}", began.elapsed());
    let names = Names::sample(&release);
    // The first answers open what stays open.
    for (path, headers) in [("/", "Accept: text/html\r\n"), ("/root/up/+simple/large/", "")] {
        ask(&process, request(path, headers).as_bytes(), path);
    }
    let (mut failures, mut all_alive) = (Vec::new(), Vec::new());
    let questions = questions(&names, &release);
    let only = std::env::var("LARDER_TEST_PATH").unwrap_or_default();
    for (path, headers) in questions.iter().filter(|(path, _)| path.contains(&only)) {
        let what = format!("{path} {}", headers.trim().replace("\r\n", ", "));
        for _ in 0..if is_long() { 4 } else { 1 } {
            let asked = asked_at_once(&process, &request(path, headers), &what);
            let above = process.memory_peak_bytes().saturating_sub(asked.before_bytes);
            let threads = asked.threads.saturating_sub(rest_threads);
            let line = format!(
                "{what}: {:?}, {:?}, {} MiB, {threads} threads above rest, /livez {}",
                asked.statuses,
                asked.took,
                above >> 20,
                shown(&asked.alive)
            );
            eprintln!("{line}");
            let slowest = asked.alive.last().copied().unwrap_or_default();
            all_alive.extend(asked.alive);
            let is_answered = |status: &String| {
                matches!(status.as_str(), "503" | "501" | "502")
                    || status.len() == 3 && status < &"500".to_owned()
            };
            let is_well = above <= BYTES_MAX && threads <= THREADS_MAX && slowest <= ALIVE_MAX;
            if !is_well || !asked.statuses.iter().all(is_answered) {
                failures.push(line);
            }
        }
    }
    all_alive.sort_unstable();
    eprintln!("/livez under all of them: {}", shown(&all_alive));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Times, which ascend, by how many of them are shorter.
fn shown(times: &[Duration]) -> String {
    let at = |share: usize| times.get(times.len() * share / 1_000).copied().unwrap_or_default();
    format!(
        "{} times: median {:?}, 99 % {:?}, 99.9 % {:?}, at most {:?}",
        times.len(),
        at(500),
        at(990),
        at(999),
        times.last().copied().unwrap_or_default()
    )
}

fn request(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
}

/// What was seen while many asked.
struct Asked {
    /// Resident memory before: caches have what earlier questions left there.
    before_bytes: u64,
    statuses: BTreeSet<String>,
    took: Duration,
    threads: u64,
    /// How long the server took each time to say that it is alive, ascending.
    alive: Vec<Duration>,
}

fn asked_at_once(process: &Process, request: &str, what: &str) -> Asked {
    let before_bytes = process.memory_bytes();
    process.forget_memory_peak();
    let (is_over, threads) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let (statuses, mut alive) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut alive = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let began = Instant::now();
                assert_eq!(process.client.get("/livez").status, 200, "{what}");
                alive.push(began.elapsed());
                threads.fetch_max(process.threads(), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
            alive
        });
        let statuses = {
            let _over = SetAtEnd(&is_over);
            ask(process, request.as_bytes(), what)
        };
        (statuses, asking.join().expect("no panic"))
    });
    alive.sort_unstable();
    Asked { before_bytes, statuses, took: began.elapsed(), threads: threads.into_inner(), alive }
}
