//! Data that released versions wrote: `testdata/releases` keeps a directory of each, and this version serves them all.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use record::{Digest, Record, Serial};
use serde_json::Value;
use store::{DatabaseLocation, Records, RecordsOptions};
use tempfile::TempDir;

use crate::accounts::Place;
use crate::process::Process;
use crate::server::wait_for;

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/releases")
}

/// The versions that are kept.
fn versions() -> Vec<String> {
    let names = fs::read_dir(releases()).expect("a directory").flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(".tar.gz")?.to_owned())).collect()
}

/// A directory with the data of this version in `data`.
fn unpacked(version: &str) -> Arc<TempDir> {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    fs::create_dir(&data).expect("a directory");
    let archive = releases().join(format!("{version}.tar.gz"));
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(data).status();
    assert!(status.expect("it runs").success());
    Arc::new(directory)
}

#[test]
fn what_each_release_wrote_is_served() {
    for version in versions() {
        let directory = unpacked(&version);
        let done = Place(directory.path()).run_with("upgrade-check", "");
        assert!(matches!(done.code, Some(0 | 3)), "{version}: {done:?}");
        let mut process = Process::start_in(directory.clone(), "data", &[]);
        let answers = fs::read(releases().join(format!("{version}.json"))).expect("answers");
        let answers: Vec<Value> = serde_json::from_slice(&answers).expect("a list");
        assert!(answers.len() > 20, "{version}: {} answers", answers.len());
        for answer in &answers {
            let text = |name: &str| answer[name].as_str();
            let path = text("path").expect("a path");
            let authorization = text("authorization").map(|value| ("Authorization", value));
            let mut headers = vec![("Accept", text("accept").expect("a type"))];
            headers.extend(authorization);
            let response = process.get_with(path, &headers);
            let found = response.text();
            let status = Some(u64::from(response.status));
            assert_eq!(status, answer["status"].as_u64(), "{version}: {path}: {found}");
            for words in answer["says"].as_array().expect("a list") {
                let words = words.as_str().expect("a text");
                assert!(found.contains(words), "{version}: {path}: no {words} in: {found}");
            }
            if let Some(expected) = text("sha256") {
                assert_eq!(Digest::of(&response.body).to_string(), expected, "{version}: {path}");
            }
        }
        process.stop();
        Place(directory.path()).run("verify");
    }
}

/// What a record is: where its key is, its kind, and its form where that is not the first.
fn kind_of(record: &Record) -> Option<String> {
    let body: Value = serde_json::from_slice(record.body.as_ref()?).unwrap_or_default();
    let key: Vec<&str> = record.key.as_str().split('/').collect();
    let mut kind = match key[0] {
        "python" => format!("python/{}", key[1]),
        first => first.to_owned(),
    };
    if let Some(word) = body["kind"].as_str() {
        kind = format!("{kind} {word}");
    }
    if let Some(form @ 2..) = body["v"].as_u64() {
        kind = format!("{kind} of form {form}");
    }
    Some(kind)
}

/// The data of this version have records of every kind, so that each later version is tried with all of them.
#[test]
fn the_newest_release_has_every_kind_of_record() {
    let directory = unpacked(env!("CARGO_PKG_VERSION"));
    let location = DatabaseLocation::Sqlite(directory.path().join("data/records.db"));
    let found: BTreeSet<String> = wait_for(async {
        let options = RecordsOptions::default();
        let records = Records::open_at_rest(&location, options).await.expect("opened");
        let (found, _) = records.records_after(Serial::ZERO).await.expect("read");
        records.close().await;
        found.iter().filter_map(kind_of).collect()
    });
    let expected = [
        "article deleted",
        "article put",
        "article redirect",
        "article renamed",
        "article restored",
        "attachments",
        "identity",
        "python/file",
        "python/file docs",
        "python/file toxresult",
        "python/project",
        "python/stage",
        "python/version",
        "secret",
        "session",
        "store",
        "token",
        "token of form 2",
        "token-use",
        "upload-token github",
        "user",
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    for place in ["aur/packages-meta-ext-v1.json.gz", "aur-history.db", "audit", "mirrors", "osv"] {
        assert!(directory.path().join("data").join(place).exists(), "{place} is missing");
    }
}
