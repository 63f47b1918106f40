//! Records in every shape, and back.

use super::writer::popularity;
use super::*;
use crate::buffer::Buffer;
use crate::package;

const SPLIT: &str = r#"{"ID":7,"Name":"a-b","PackageBaseID":3,"PackageBase":"a","Version":"1-1",
    "Description":"\"q\" \u00e9 \\","URL":null,"NumVotes":0,"Popularity":0.0,"OutOfDate":null,"Maintainer":null,
    "Submitter":"who","FirstSubmitted":1,"LastModified":2,"URLPath":"/wrong","Depends":["b>=1","c"],"Groups":[]}"#;

#[track_caller]
fn check(package: &str, shape: RecordShape, expected: &str) {
    let others = package::others(package);
    let mut package: Package<'_> = serde_json::from_str(package).expect("a package");
    package.others = others.into();
    let mut writer = RecordWriter::default();
    let mut bytes = vec![0; writer.encode(&package)];
    writer.write_to(&mut bytes);
    let mut again = RecordWriter::default();
    let mut read_back = vec![0; again.encode(&Record::at(&bytes).package())];
    again.write_to(&mut read_back);
    assert_eq!(read_back, bytes);
    let mut dumped = Vec::new();
    Record::at(&bytes).write_dumped(&mut dumped);
    let dumped = std::str::from_utf8(&dumped).expect("UTF-8");
    let others = package::others(dumped);
    let mut package: Package<'_> = serde_json::from_str(dumped).expect("a package");
    package.others = others.into();
    let mut read_back = vec![0; again.encode(&package)];
    again.write_to(&mut read_back);
    assert_eq!(read_back, bytes, "{dumped}");
    let mut out = Buffer::default();
    Record::at(&bytes).render(shape, &mut out);
    assert_eq!(std::str::from_utf8(out.as_bytes()).expect("UTF-8"), expected);
    // Neither the bytes after a record nor the earlier contents of the buffer matter.
    bytes.extend_from_slice(&[0xff; 99]);
    out.clear();
    out.push(&[0xff; 2000]);
    out.clear();
    out.push(b"[");
    Record::at(&bytes).render(shape, &mut out);
    assert_eq!(std::str::from_utf8(&out.finish()).expect("UTF-8"), format!("[{expected}"));
}

#[test]
fn info() {
    check(
        SPLIT,
        RecordShape::Info,
        r#"{"Depends":["b>=1","c"],"Description":"\"q\" é \\","FirstSubmitted":1,"ID":7,"Keywords":[],"LastModified":2,"License":[],"Maintainer":null,"Name":"a-b","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"Submitter":"who","URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
    );
}

#[test]
fn search() {
    check(
        SPLIT,
        RecordShape::Search,
        r#"{"Description":"\"q\" é \\","FirstSubmitted":1,"ID":7,"LastModified":2,"Maintainer":null,"Name":"a-b","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
    );
}

#[test]
fn version_6_leaves_out_empty_and_zero_values() {
    check(
        SPLIT,
        RecordShape::Version6,
        r#"{"Depends":["b>=1","c"],"Description":"\"q\" é \\","FirstSubmitted":1,"LastModified":2,"Name":"a-b","PackageBase":"a","Submitter":"who","URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1-1"}"#,
    );
}

#[test]
fn what_is_not_known_passes_through() {
    const NEWER: &str = r#"{"Zebra":[1,
        2],"ID":7,"Name":"a","PackageBaseID":3,"PackageBase":"a","Version":"1","NumVotes":0,"Popularity":0,
        "FirstSubmitted":1,"LastModified":2,"FlaggedMalicious":true,"A \"b\"":"x, \\u00e9","Info":{"Name":1}}"#;
    check(
        NEWER,
        RecordShape::Info,
        r#"{"A \"b\"":"x, \\u00e9","Description":null,"FirstSubmitted":1,"FlaggedMalicious":true,"ID":7,"Info":{"Name":1},"Keywords":[],"LastModified":2,"License":[],"Maintainer":null,"Name":"a","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"Submitter":null,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1","Zebra":[1,2]}"#,
    );
    check(
        NEWER,
        RecordShape::Search,
        r#"{"Description":null,"FirstSubmitted":1,"ID":7,"LastModified":2,"Maintainer":null,"Name":"a","NumVotes":0,"OutOfDate":null,"PackageBase":"a","PackageBaseID":3,"Popularity":0,"URL":null,"URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1"}"#,
    );
    check(
        NEWER,
        RecordShape::Version6,
        r#"{"A \"b\"":"x, \\u00e9","FirstSubmitted":1,"FlaggedMalicious":true,"Info":{"Name":1},"LastModified":2,"Name":"a","PackageBase":"a","URLPath":"/cgit/aur.git/snapshot/a.tar.gz","Version":"1","Zebra":[1,2]}"#,
    );
}

#[test]
fn popularity_is_kept_as_written() {
    for (written, sent) in
        [("0.0", "0"), ("0", "0"), ("1e-6", "1e-6"), ("0.000044", "0.000044"), ("100.0", "100.0")]
    {
        assert_eq!(popularity(written.as_bytes()), sent.as_bytes());
    }
}
