//! Dumps for tests: a handful of packages whose answers are known, or many of one generation.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// One record of a dump; `extra` adds or replaces fields.
pub(crate) fn record(id: u32, name: &str, base: &str, extra: Value) -> Value {
    let mut record = json!({
        "ID": id, "Name": name, "PackageBaseID": 1000 + id, "PackageBase": base, "Version": "1.0-1",
        "Description": format!("the package {name}"), "URL": "https://example.org/", "NumVotes": 3,
        "Popularity": 0.5, "OutOfDate": null, "Maintainer": "anna", "Submitter": "bert",
        "FirstSubmitted": 1_500_000_000, "LastModified": 1_600_000_000,
        "URLPath": format!("/cgit/aur.git/snapshot/{name}.tar.gz"),
    });
    for (key, value) in extra.as_object().expect("an object") {
        record[key] = value.clone();
    }
    record
}

pub(crate) fn dump(records: impl IntoIterator<Item = Value>) -> Vec<u8> {
    let lines: Vec<String> = records.into_iter().map(|record| record.to_string()).collect();
    format!("[\n{}\n]", lines.join(",\n")).into_bytes()
}

/// Nine packages; each test says which it means.
pub(crate) fn small() -> Vec<u8> {
    dump([
        record(1, "attest", "attest", json!({"Keywords": ["proof", "a/b"], "License": ["MIT"]})),
        record(
            2,
            "attest-git",
            "attest",
            json!({"Provides": ["attest=2"], "Conflicts": ["attest"]}),
        ),
        record(3, "libstdc++5", "libstdc++5", json!({"Maintainer": null, "Groups": ["Old-Libs"]})),
        record(4, "Mixed-Case", "Mixed-Case", json!({"Depends": ["attest>=1", "glibc"]})),
        record(
            5,
            "yogurt",
            "yogurt",
            json!({"Description": "größer, 大きい \"quoted\" <b> & more"}),
        ),
        record(6, "split-a", "split", json!({"PackageBaseID": 2000, "CoMaintainers": ["carl"]})),
        record(7, "split-b", "split", json!({"PackageBaseID": 2000, "MakeDepends": ["cmake"]})),
        record(8, "two-words", "two-words", json!({"Description": "red apple, green pear"})),
        record(9, "one-word", "one-word", json!({"Description": "a green car", "Popularity": 0.0})),
    ])
}

/// The generation in every record's version, and where a search for `shared` finds all of them.
pub(crate) fn generation(number: u32, packages: u32) -> Vec<u8> {
    dump((0..packages).map(|at| {
        let name = format!("shared-{at:04}");
        record(
            at + 1,
            &name,
            &name,
            json!({"Version": format!("{number}-1"), "Provides": ["everything"], "Depends": ["glibc"]}),
        )
    }))
}

/// A generated catalogue of 6,000 packages, with the names in it.
pub(crate) fn large() -> &'static (Vec<u8>, Vec<String>) {
    static LARGE: OnceLock<(Vec<u8>, Vec<String>)> = OnceLock::new();
    LARGE.get_or_init(|| {
        let mut dump = Vec::new();
        let recipe = demo::Recipe { packages: 6_000, seed: 7 };
        demo::write_dump(&recipe, &mut dump, &mut |_| ()).expect("memory takes everything");
        let records: Vec<Value> = serde_json::from_slice(&dump).expect("JSON");
        let names =
            records.iter().map(|record| record["Name"].as_str().expect("a name").to_owned());
        let names = names.collect();
        (dump, names)
    })
}

/// A file of the repository's test data.
pub(crate) fn testdata(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/aur").join(name)
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

#[track_caller]
pub(crate) fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip");
    plain
}
