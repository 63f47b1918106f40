//! Zips that are no bundle, and bundles with files that are no record.

use std::io::{Cursor, Write as _};

use rawzip::{CompressionMethod, ZipArchiveWriter};
use serde_json::json;

use super::*;

/// A deflated zip of these files.
fn zip(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = ZipArchiveWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let entry = archive.new_file(name).compression_method(CompressionMethod::DEFLATE);
        let (mut entry, config) = entry.start().expect("memory");
        let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
        let mut writer = config.wrap(encoder);
        writer.write_all(content).expect("memory");
        let (encoder, descriptor) = writer.finish().expect("memory");
        encoder.finish().expect("memory");
        entry.finish(descriptor).expect("memory");
    }
    archive.finish().expect("memory").into_inner()
}

fn record(id: &str) -> Vec<u8> {
    let affected = json!([{"package": {"ecosystem": "PyPI", "name": "foo"}, "versions": ["1"]}]);
    let record = json!({"id": id, "modified": "2026-01-01T00:00:00Z", "affected": affected});
    record.to_string().into_bytes()
}

fn read(zip: Vec<u8>) -> Result<Bundle<Vec<u8>>, BundleError> {
    let bytes = zip.len() as u64;
    Bundle::read(zip, bytes, |_, _| true)
}

#[test]
fn a_bundle_that_nobody_wants_is_not_read() {
    let zip = zip(&[("MAL-1.json", record("MAL-1"))]);
    let bytes = zip.len() as u64;
    let outcome = Bundle::read(zip, bytes, |done, all| {
        assert_eq!((done, all), (0, 1));
        false
    });
    assert!(matches!(outcome, Err(BundleError::Stopped)));
}

#[test]
fn what_is_no_record_is_left_out_counted_and_named() {
    let foreign = br#"{"id":"GO-1","modified":"2026-01-01T00:00:00Z","affected":[{"package":{"ecosystem":"Go","name":"x"}}]}"#;
    let mut large = record("MAL-9");
    large.resize(RECORD_BYTES_MAX as usize + 1, b' ');
    let affected = json!([
        {"package": {"ecosystem": "PyPI", "name": "f\u{f6}"}, "versions": ["1"]},
        {"package": {"ecosystem": "PyPI", "name": "foo"}, "versions": ["1"]},
    ]);
    let in_part = json!({"id": "MAL-2", "modified": "2026-01-01T00:00:00Z", "affected": affected});
    let in_part = in_part.to_string();
    let bundle = read(zip(&[
        ("MAL-1.json", record("MAL-1")),
        ("README", b"not a record".to_vec()),
        ("sub/GHSA-1.json", record("GHSA-1")),
        ("GO-1.json", foreign.to_vec()),
        ("bad.json", b"{".to_vec()),
        ("large.json", large),
        ("MAL-2.json", in_part.into_bytes()),
    ]))
    .expect("a bundle");
    assert_eq!((bundle.advisories.len(), bundle.advisories.malware()), (3, 2));
    assert_eq!((bundle.advisories.projects(), bundle.foreign), (1, 1));
    assert_eq!((bundle.unreadable, bundle.unreadable_named.len()), (3, 3));
    assert!(bundle.unreadable_named[0].starts_with("\"bad.json\": it is not an OSV record"));
    assert!(bundle.unreadable_named[1].contains("2097153 bytes in a record"));
    assert!(bundle.unreadable_named[2].starts_with("\"MAL-2.json\": a part of it does not count"));
    let known = bundle.advisories.by_id("GHSA-1").expect("it is known");
    assert_eq!(bundle.record(known.place()).expect("it is there"), record("GHSA-1"));
    assert_eq!(bundle.record_bytes(known), record("GHSA-1").len() as u64);
}

#[test]
fn what_is_no_bundle_is_refused() {
    let refused = |zip: Vec<u8>| read(zip).err().map(|error| error.to_string());
    let check = |zip: Vec<u8>, expected: &str| {
        let found = refused(zip).unwrap_or_default();
        assert!(found.contains(expected), "{found}");
    };
    check(Vec::new(), "it is no zip of OSV records");
    check(b"PK\x05\x06".to_vec(), "it is no zip of OSV records");
    // The writer refuses such a name, so it is patched in.
    let mut hostile = zip(&[("aa/aa/x.json", record("MAL-1"))]);
    for at in 0..hostile.len() - 6 {
        if hostile[at..].starts_with(b"aa/aa/") {
            hostile[at..at + 6].copy_from_slice(b"../../");
        }
    }
    check(hostile, "it is no zip of OSV records");
    check(zip(&[("a.txt", record("MAL-1"))]), "among 1 file;");
    check(
        zip(&[("a.json", b"[]".to_vec())]),
        "unreadable are 1, as \"a.json\": it is not an OSV record",
    );
    // This bundle unpacks to far more than its own size.
    let bomb = vec![b' '; 65 << 20];
    check(zip(&[("a.json", record("MAL-1")), ("b.json", bomb)]), "bytes when unpacked");
}
