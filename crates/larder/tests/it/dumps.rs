//! The five files for those who want everything, their digests, ranges and conditions.

use config::AurSource;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::catalogue::{self, gunzip};
use crate::client::Response;
use crate::server::{TestServer, large, small, source_path};

const STEMS: [&str; 5] =
    ["packages-meta-ext-v1.json", "packages-meta-v1.json", "packages", "pkgbase", "users"];

fn files() -> impl Iterator<Item = String> {
    STEMS.iter().flat_map(|stem| [format!("{stem}.gz"), format!("{stem}.zst")])
}

fn file(name: &str) -> Response {
    small().get(&format!("/{name}"))
}

fn with(name: &str, headers: &[(&str, &str)]) -> Response {
    small().client.get_with(&format!("/{name}"), headers)
}

fn lines(name: &str) -> String {
    String::from_utf8(gunzip(&file(name).body)).expect("UTF-8")
}

#[test]
fn names_of_packages_bases_and_users() {
    assert_eq!(
        lines("packages.gz"),
        "attest\nattest-git\nlibstdc++5\nMixed-Case\none-word\nsplit-a\nsplit-b\ntwo-words\nyogurt\n"
    );
    assert_eq!(
        lines("pkgbase.gz"),
        "attest\nlibstdc++5\nMixed-Case\none-word\nsplit\ntwo-words\nyogurt\n"
    );
    assert_eq!(lines("users.gz"), "anna\nbert\ncarl\n");
}

#[test]
fn every_record() {
    let read = |name: &str| -> Vec<Value> { serde_json::from_str(&lines(name)).expect("JSON") };
    let source: Vec<Value> = serde_json::from_slice(&catalogue::small()).expect("JSON");
    assert_eq!(read("packages-meta-ext-v1.json.gz"), source, "the dump as it came");
    let short = read("packages-meta-v1.json.gz");
    assert_eq!(short.len(), source.len());
    for record in &short {
        assert_eq!(record.as_object().expect("a record").len(), 15, "{record}");
    }
    let text = lines("packages-meta-v1.json.gz");
    assert!(text.starts_with("[\n{") && text.trim_end().ends_with("}\n]"), "one record a line");
}

#[test]
fn digests_are_those_of_the_files() {
    for name in files() {
        let name = &name;
        let digest = Sha256::digest(&file(name).body);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let response = file(&format!("{name}.sha256"));
        assert_eq!(response.text(), format!("SHA256 ({name}) = {digest}"));
    }
}

#[test]
fn files_are_sent_as_they_are() {
    for name in files() {
        let name = &name;
        let response = with(name, &[("Accept-Encoding", "gzip, zstd")]).expect(200);
        let (media_type, magic): (_, &[u8]) = match name.ends_with(".gz") {
            true => ("application/gzip", &[0x1f, 0x8b]),
            false => ("application/zstd", &[0x28, 0xb5, 0x2f, 0xfd]),
        };
        response.has("content-type", media_type);
        assert_eq!(response.find("content-encoding"), None, "{name}");
        assert!(response.body.starts_with(magic), "{name}");
    }
}

#[test]
fn conditions() {
    for name in files() {
        let name = &name;
        let first = file(name);
        let (etag, modified) = (first.header("etag"), first.header("last-modified"));
        assert!(httpdate::parse_http_date(modified).is_ok(), "{modified}");
        let check = |headers: &[(&str, &str)], status: u16| {
            let response = with(name, headers).expect(status);
            assert_eq!(response.body.is_empty(), status == 304, "{name} {headers:?}");
            response.has("etag", etag).has("last-modified", modified);
        };
        check(&[("If-None-Match", etag)], 304);
        check(&[("If-None-Match", &format!("\"x\", W/{etag}"))], 304);
        check(&[("If-None-Match", "\"x\"")], 200);
        check(&[("If-Modified-Since", modified)], 304);
        check(&[("If-Modified-Since", "Thu, 01 Jan 2015 00:00:00 GMT")], 200);
        check(&[("If-Modified-Since", "yesterday")], 200);
        // The tag counts more than the date.
        check(&[("If-None-Match", "\"x\""), ("If-Modified-Since", modified)], 200);
    }
}

#[test]
fn ranges() {
    for name in [
        "packages-meta-ext-v1.json.gz",
        "packages.gz",
        "packages-meta-ext-v1.json.zst",
        "packages.zst",
    ] {
        let whole = file(name);
        let (etag, modified) = (whole.header("etag"), whole.header("last-modified"));
        let size = whole.body.len();
        whole.has("accept-ranges", "bytes");
        let part = |headers: &[(&str, &str)], start: usize, end: usize| {
            let response = with(name, headers).expect(206);
            assert_eq!(response.body, whole.body[start..end], "{name} {headers:?}");
            let range = format!("bytes {start}-{}/{size}", end - 1);
            response.has("content-range", range).has("etag", etag);
        };
        part(&[("Range", "bytes=0-3")], 0, 4);
        part(&[("Range", "bytes=10-")], 10, size);
        part(&[("Range", "bytes=-5")], size - 5, size);
        part(&[("Range", "bytes=4-99999999")], 4, size);
        part(&[("Range", "bytes=0-3"), ("If-Range", etag)], 0, 4);
        part(&[("Range", "bytes=0-3"), ("If-Range", modified)], 0, 4);
        for headers in [
            [("Range", "bytes=0-3"), ("If-Range", "\"x\"")],
            [("Range", "bytes=0-3"), ("If-Range", "Thu, 01 Jan 2015 00:00:00 GMT")],
            [("Range", "bytes=0-1,3-4"), ("X", "")],
            [("Range", "lines=1-2"), ("X", "")],
        ] {
            let response = with(name, &headers);
            assert_eq!((response.status, response.body.len()), (200, size), "{name} {headers:?}");
        }
        with(name, &[("Range", "bytes=99999999-")])
            .expect(416)
            .has("content-range", format!("bytes */{size}"));
    }
}

/// More than one piece of the file, through one connection.
#[test]
fn a_large_dump_comes_whole() {
    let response = large().get("/packages-meta-ext-v1.json.gz");
    assert!(response.body.len() > 300_000, "{} bytes", response.body.len());
    assert!(gunzip(&response.body) == catalogue::large().0);
    let response = large().get("/packages-meta-ext-v1.json.zst");
    assert!(zstd::decode_all(&response.body[..]).expect("zstd") == catalogue::large().0);
    let names = String::from_utf8(gunzip(&large().get("/packages.gz").body)).expect("UTF-8");
    let mut expected = catalogue::large().1.clone();
    let mut found: Vec<&str> = names.lines().collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert!(found == expected);
}

#[test]
fn both_forms_say_the_same() {
    for stem in STEMS {
        let text = zstd::decode_all(&file(&format!("{stem}.zst")).body[..]).expect("zstd");
        assert!(text == gunzip(&file(&format!("{stem}.gz")).body), "{stem}");
    }
}

/// A server that is started again makes the same files.
#[test]
fn files_are_the_same_bytes_while_nothing_changes() {
    let server = TestServer::serving(&catalogue::small());
    let read = |server: &TestServer| -> Vec<Vec<u8>> {
        files().map(|name| server.get(&format!("/{name}")).body).collect()
    };
    let before = read(&server);
    let server = TestServer::start_in(server.stop(), |config, directory| {
        config.aur.source = Some(AurSource::File(source_path(directory)));
    })
    .ready();
    assert!(read(&server) == before);
}
