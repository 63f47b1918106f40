//! One answer in three encodings: the same content, each with its own tag, and 304 for each.

use bytes::Bytes;

use crate::asking::each;
use crate::catalogue::gunzip;
use crate::client::Response;
use crate::server::{large, small};

const QUESTION: &str = "/rpc?v=5&type=search&arg=python";

fn ask(accepted: &str) -> Response {
    large().client.get_with(QUESTION, &[("Accept-Encoding", accepted)])
}

#[track_caller]
fn check(accepted: &str, expected: Option<&str>) {
    let response = ask(accepted).expect(200);
    assert_eq!(response.find("content-encoding"), expected, "{accepted}");
    response.has("vary", "Accept-Encoding").has("content-type", "application/json");
}

#[test]
fn the_client_chooses() {
    let rows = [
        ("", None),
        ("identity", None),
        ("br", None),
        ("gzip", Some("gzip")),
        ("x-gzip", Some("gzip")),
        ("gzip, deflate, br", Some("gzip")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("zstd;q=0.5, gzip", Some("gzip")),
        ("gzip;q=0", None),
        ("*", Some("zstd")),
    ];
    each(rows, |(accepted, expected)| check(accepted, expected));
}

#[test]
fn the_content_is_the_same() {
    let plain = ask("identity");
    assert!(plain.json()["resultcount"].as_u64() > Some(20), "{}", plain.text());
    let gzip = ask("gzip");
    assert!(gzip.body.len() * 3 < plain.body.len());
    assert_eq!(gunzip(&gzip.body), plain.body);
    let zstd = ask("zstd");
    assert!(zstd.body.len() * 3 < plain.body.len());
    assert!(zstd.body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "the magic number of RFC 8878");
    // Other tests show that these bytes decode.
    let expected = reply::Encoding::Zstd.encode(&Bytes::from(plain.body));
    assert_eq!(zstd.body, expected);
}

#[test]
fn short_answers_are_sent_as_they_are() {
    let response =
        small().client.get_with("/rpc/v5/suggest/attest", &[("Accept-Encoding", "gzip")]);
    assert_eq!(response.text(), r#"["attest","attest-git"]"#);
    assert_eq!(response.find("content-encoding"), None);
    response.has("vary", "Accept-Encoding");
}

#[test]
fn every_encoding_has_its_tag_and_its_304() {
    let encodings = ["identity", "gzip", "zstd"];
    let tags = encodings.map(|encoding| ask(encoding).header("etag").to_owned());
    assert!(
        tags.iter().all(|tag| tag.starts_with('"') && tag.ends_with('"') && tag.len() > 30),
        "{tags:?}"
    );
    assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2], "{tags:?}");
    for (encoding, own) in encodings.iter().zip(&tags) {
        for tag in tags.iter().cloned().chain([
            format!("W/{own}"),
            format!("\"x\", {own}"),
            "*".to_owned(),
        ]) {
            let headers = [("Accept-Encoding", *encoding), ("If-None-Match", tag.as_str())];
            let response = large().client.get_with(QUESTION, &headers).expect(304);
            assert_eq!(response.body, b"");
            response.has("etag", own);
            assert_eq!(response.find("content-encoding"), None);
        }
    }
    let headers = [("If-None-Match", "\"0123456789abcdef0123456789abcdef\"")];
    large().client.get_with(QUESTION, &headers).expect(200);
}

#[test]
fn the_tag_is_of_the_data_alone() {
    let tag = |target: &str| large().get(target).header("etag").to_owned();
    assert_eq!(tag(QUESTION), tag("/rpc/v5/search/python"));
    assert_eq!(tag(QUESTION), tag("/rpc?v=5&type=search&arg=python&callback=f"));
    assert_ne!(tag(QUESTION), tag("/rpc/v5/search/python-"));
    let post = large().form("/rpc", "v=5&type=search&arg=python");
    post.has("etag", tag(QUESTION));
    let own = tag(QUESTION);
    let response = large()
        .anybody()
        .with("If-None-Match", own.as_str())
        .typed("application/x-www-form-urlencoded")
        .post("/rpc", "v=5&type=search&arg=python");
    // A condition on POST is no business of ours.
    response.expect(200);
}
