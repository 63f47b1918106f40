//! `kill -9` of the real binary under write load: every acknowledged revision and every acknowledged file of an article exists
//! with its bytes, nothing exists in part, and the next start needs no repair.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::noise;
use crate::client::Client;
use crate::process::{Process, init};
use crate::server::ROOT;
use crate::{is_long, wait_until};

const WRITERS: u32 = 6;

/// The last acknowledged version of a writer.
struct Written {
    acknowledged: u32,
}

/// The content of version `version` of a writer's article: small or large, text or not.
fn body(writer: u32, version: u32) -> Vec<u8> {
    let marker = format!("writer {writer}, version {version}\n").into_bytes();
    match (writer + version) % 5 {
        0 => [marker, noise(90_000)].concat(),
        1 => marker.repeat(700),
        _ => marker,
    }
}

fn name(writer: u32) -> String {
    format!("load/{writer}-x")
}

/// Sends one request and reads the answer; `None` if the server is gone.
fn try_send(
    client: &Client,
    (method, target): (&str, &str),
    condition: &[(&str, &str)],
    body: &[u8],
) -> Option<u16> {
    let headers = [&[ROOT], condition].concat();
    Some(client.try_exchange(&client.request(method, target, &headers, body))?.0)
}

/// Writes one version after the other until the server is gone.
fn write_on(client: Client, writer: u32, from: u32, total: &AtomicU32) -> Written {
    let mut version = from;
    loop {
        let target = format!("/article/{}/{version}", name(writer));
        match try_send(&client, ("POST", &target), &[], &body(writer, version + 1)) {
            Some(201) => {
                version += 1;
                total.fetch_add(1, Relaxed);
            }
            Some(status) => panic!("{target}: {status}"),
            None => return Written { acknowledged: version },
        }
    }
}

/// Every version of every article with its bytes; the latest of each writer.
fn check(client: &Client, written: &BTreeMap<u32, Written>) -> BTreeMap<u32, u32> {
    let mut latest_of = BTreeMap::new();
    for (writer, written) in written {
        let target = format!("/article/{}/history?limit=1000", name(*writer));
        let response = client.get(&target);
        if written.acknowledged == 0 && response.status == 404 {
            latest_of.insert(*writer, 0);
            continue;
        }
        let history = response.json();
        let latest = history["latest"].as_u64().expect("a number") as u32;
        // The one that was under way may have been committed without a word; no other may.
        let acknowledged = written.acknowledged;
        assert!(
            (acknowledged..=acknowledged + 1).contains(&latest),
            "{target}: {latest}, but {acknowledged} were acknowledged"
        );
        latest_of.insert(*writer, latest);
    }
    latest_of
}

fn check_bytes(client: &Client, latest_of: &BTreeMap<u32, u32>, from: &BTreeMap<u32, u32>) {
    for (writer, latest) in latest_of {
        let from = from.get(writer).copied().unwrap_or(0);
        for version in from + 1..=*latest {
            let response = client.get(&format!("/article/{}/{version}", name(*writer))).expect(200);
            assert!(response.body == body(*writer, version), "{writer} {version}");
        }
        if *latest > 0 {
            client.get(&format!("/article/{}", name(*writer))).has("x-article-version", latest);
        }
    }
}

/// How often the process is killed.
fn rounds() -> u32 {
    if is_long() { 200 } else { 5 }
}

/// A directory with the store of a server.
fn initialized() -> Arc<TempDir> {
    let directory = Arc::new(tempfile::tempdir().expect("a directory"));
    init(directory.path());
    directory
}

fn start(directory: &Arc<TempDir>) -> Process {
    Process::start_in(directory.clone(), "data", &["--aur-enabled=false"])
}

/// The bytes of an attempt to upload: sometimes one piece, sometimes many.
fn file(writer: u32, attempt: u32) -> Vec<u8> {
    let marker = format!("file {writer}, attempt {attempt}\n").into_bytes();
    match (writer + attempt) % 4 {
        0 => [marker, noise(400_000)].concat(),
        1 => [marker, noise(90_000)].concat(),
        2 => marker.repeat(700),
        _ => marker,
    }
}

/// A writer's files.
#[derive(Default)]
struct Files {
    attempts: u32,
    /// The attempt that was acknowledged last, by the path.
    there: BTreeMap<String, u32>,
    /// The attempt that was under way when the server went.
    open: Option<(String, u32)>,
}

/// Uploads one file after the other until the server is gone: each twice, so that a new one or another content is under way.
fn upload_on(client: Client, writer: u32, mut files: Files, total: &AtomicU32) -> Files {
    loop {
        let attempt = files.attempts;
        files.attempts += 1;
        let path = format!("/+attachments/{}/{}.bin", name(writer), attempt / 2 % 40);
        let is_there = files.there.contains_key(&path);
        let condition = if is_there { ("If-Match", "*") } else { ("If-None-Match", "*") };
        let expected = if is_there { 200 } else { 201 };
        match try_send(&client, ("PUT", &path), &[condition], &file(writer, attempt)) {
            Some(status) => {
                assert_eq!(status, expected, "{path}");
                files.there.insert(path, attempt);
                total.fetch_add(1, Relaxed);
            }
            None => {
                files.open = Some((path, attempt));
                return files;
            }
        }
    }
}

/// Every acknowledged file exists whole; the unfinished one exists whole or not at all; and there is no other.
fn check_files(client: &Client, writer: u32, files: &mut Files) {
    if let Some((path, attempt)) = files.open.take() {
        let response = client.get(&path);
        let is_new = response.status == 200 && response.body == file(writer, attempt);
        let is_absent = response.status == 404 && !files.there.contains_key(&path);
        if is_new {
            files.there.insert(path, attempt);
        } else {
            assert!(is_absent || files.there.contains_key(&path), "{path}: {}", response.status);
        }
    }
    for (path, attempt) in &files.there {
        let response = client.get(path).expect(200);
        assert!(response.body == file(writer, *attempt), "{path}, attempt {attempt}");
    }
    let target = format!("/+attachments/{}/", name(writer));
    let list = client.get(&target).json();
    assert_eq!(list["attachments"].as_array().map(Vec::len), Some(files.there.len()), "{target}");
}

#[test]
fn killed_while_files_arrive() {
    let rounds = rounds();
    let directory = initialized();
    let mut process = start(&directory);
    let mut files: Vec<Files> = Vec::new();
    for writer in 0..WRITERS {
        let target = format!("/article/{}/0", name(writer));
        let made = try_send(&process.client, ("POST", &target), &[], b"# An article\n");
        assert_eq!(made, Some(201), "{target}");
        files.push(Files::default());
    }
    let mut all = 0;
    for round in 0..rounds {
        let client = process.client;
        let total = Arc::new(AtomicU32::new(0));
        let writers = (0..WRITERS).zip(files).map(|(writer, files)| {
            let total = total.clone();
            std::thread::spawn(move || upload_on(client, writer, files, &total))
        });
        let writers: Vec<_> = writers.collect();
        // At another moment of the work each time.
        let after = 5 + round * 7 % 40;
        wait_until("some files", || total.load(Relaxed) >= after);
        std::thread::sleep(Duration::from_micros(u64::from(round * 137 % 5_000)));
        drop(process);
        files = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        all += total.load(Relaxed);
        process = start(&directory);
        for (writer, files) in (0..WRITERS).zip(&mut files) {
            check_files(&process.client, writer, files);
        }
    }
    println!("{rounds} kills, {all} acknowledged files");
}

#[test]
fn killed_under_load() {
    let rounds = rounds();
    let directory = initialized();
    let mut latest_of: BTreeMap<u32, u32> = (0..WRITERS).map(|writer| (writer, 0)).collect();
    let mut all = 0;
    for round in 0..rounds {
        let process = start(&directory);
        let client = process.client;
        let total = Arc::new(AtomicU32::new(0));
        let writers: Vec<_> = latest_of
            .clone()
            .into_iter()
            .map(|(writer, from)| {
                let total = total.clone();
                std::thread::spawn(move || (writer, write_on(client, writer, from, &total)))
            })
            .collect();
        // At another moment of the work each time.
        let after = 5 + round * 7 % 40;
        wait_until("some writes", || total.load(Relaxed) >= after);
        std::thread::sleep(Duration::from_micros(u64::from(round * 137 % 5_000)));
        drop(process);
        let written: BTreeMap<u32, Written> =
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        all += total.load(Relaxed);

        let process = start(&directory);
        let next = check(&process.client, &written);
        check_bytes(&process.client, &next, &latest_of);
        latest_of = next;
    }
    // And once more everything, from the first version on.
    let process = start(&directory);
    check_bytes(&process.client, &latest_of, &BTreeMap::new());
    let list: Value = process.client.get("/articles?limit=1000").json();
    let count = list["articles"].as_array().expect("a list").len();
    assert_eq!(count, latest_of.values().filter(|latest| **latest > 0).count());
    println!("{rounds} kills, {all} acknowledged writes");
}
