//! A real nginx in front, with the lines that the documentation gives, and clients that lie to it.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use config::{AurSource, Config};
use serde_json::{Value, json};
use testbed::Nginx;

use crate::asking::basic;
use crate::catalogue;
use crate::client::{Client, Response, connect_from};
use crate::python::{Upload, path};
use crate::server::{ROOT, TestServer};

/// All that a client may claim to be, or to have been asked under.
const LIES: [(&str, &str); 11] = [
    ("X-Forwarded-For", "192.0.2.9"),
    ("X-Real-IP", "192.0.2.9"),
    ("Forwarded", "for=192.0.2.9;proto=https;host=evil.example"),
    ("X-Client-IP", "192.0.2.9"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Outside-URL", "https://evil.example/alice"),
    ("X-Forwarded-Prefix", "/evil"),
    ("X-Original-URI", "/+api"),
    ("X-Accel-Redirect", "/larder-blobs/"),
    ("Via", "1.1 evil.example"),
];

/// The blocks for nginx in a page of the documentation.
fn snippets(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(&path).expect("a page of the documentation");
    let mut blocks = text.split("```nginx\n").skip(1);
    let found: Vec<String> = blocks
        .by_ref()
        .map(|rest| rest.split("```").next().expect("it has an end").to_owned())
        .collect();
    assert!(!found.is_empty(), "{page} has no lines for nginx");
    found
}

#[test]
fn every_page_with_lines_for_nginx_is_tried() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages: Vec<String> = fs::read_dir(docs)
        .expect("the documentation")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("proxy_pass")))
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    pages.sort();
    assert_eq!(pages, ["coming-from-devpi.md", "coming-from-goaurrpc.md", "operating.md"]);
}

/// A server behind a real nginx.
struct Fronted {
    server: TestServer,
    nginx: Nginx,
}

impl Fronted {
    /// With all lines of a documentation page; `None` if nginx is not installed.
    fn start(page: &str, change: impl FnOnce(&mut Config)) -> Option<Fronted> {
        let mut lines = snippets(page).concat();
        let server = TestServer::start_in(
            std::sync::Arc::new(tempfile::tempdir().expect("a directory")),
            |config, directory| {
                let source = directory.path().join("source.json");
                fs::write(&source, catalogue::small()).expect("a dump");
                config.aur.source = Some(AurSource::File(source));
                config.aur.rate_limit = 3;
                change(config);
            },
        );
        server.wait_until_ready();
        let blobs = server.app.config.data_dir.join("blobs");
        for (written, meant) in [
            ("127.0.0.1:8080", server.client.address.to_string()),
            ("/var/lib/larder/blobs", blobs.display().to_string()),
        ] {
            assert!(lines.contains(written) || page != "operating.md", "{written} in {page}");
            lines = lines.replace(written, &meant);
        }
        Some(Fronted { server, nginx: Nginx::start(&lines)? })
    }

    /// One request to nginx from the client at 127.0.0.`client`.
    fn send(
        &self,
        client: u8,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        assert_ne!(client, 1, "127.0.0.1 is trusted");
        let nginx = Client { address: self.nginx.address };
        Response::read(&mut nginx.begin_from(client, method, target, headers, body), false)
    }

    fn get(&self, client: u8, target: &str, headers: &[(&str, &str)]) -> Response {
        self.send(client, "GET", target, headers, b"")
    }

    /// Makes an index of Alice's, through nginx.
    fn make_index(&self, content: &[u8]) -> String {
        let json = [ROOT, ("Content-Type", "application/json")];
        let user = br#"{"password":"open-sesame"}"#;
        self.send(9, "PUT", "/alice", &json, user).expect(201);
        let alice = basic("alice", "open-sesame");
        let alice = ("Authorization", alice.as_str());
        for (name, config) in [("dev", "{}"), ("secret", r#"{"acl_read":["alice"]}"#)] {
            self.send(9, "PUT", &format!("/alice/{name}"), &[alice], config.as_bytes()).expect(200);
        }
        let (content_type, form) = Upload::of("p-1.0.zip", content).form();
        let headers = [alice, ("Content-Type", content_type.as_str())];
        self.send(9, "POST", "/alice/dev/", &headers, &form).expect(200);
        path("alice/dev", "p-1.0.zip", content)
    }
}

/// Each client has its own limit, whatever headers it sends.
fn check_limit(fronted: &Fronted) {
    const QUESTION: &str = "/rpc?v=5&type=info&arg=attest";
    for remaining in ["2", "1", "0"] {
        fronted.get(2, QUESTION, &[]).expect(200).has("ratelimit-remaining", remaining);
    }
    for (name, value) in LIES {
        fronted.get(2, QUESTION, &[(name, value)]).expect(429);
    }
    fronted.get(2, QUESTION, &LIES).expect(429);
    for attempt in 0..20 {
        let address = format!("198.51.100.{attempt}");
        let each = [("X-Forwarded-For", &*address), ("X-Real-IP", &address)];
        assert_eq!(fronted.get(2, QUESTION, &each).status, 429, "{address}");
    }
    fronted.get(3, QUESTION, &[]).has("ratelimit-remaining", "2");
    let limiter = fronted.server.metric("larder_rate_limit_clients");
    assert_eq!(limiter, 2.0, "two clients have asked");
}

/// Links begin with what nginx was asked for, whatever a client says.
fn check_urls(fronted: &Fronted) {
    let own = format!("http://{}", fronted.nginx.address);
    let json = ("Accept", "application/json");
    for lies in [&[][..], &LIES] {
        let headers: Vec<_> = [json].into_iter().chain(lies.iter().copied()).collect();
        let api: Value = fronted.get(4, "/alice/dev/+api", &headers).json();
        assert_eq!(api["result"]["index"], json!(format!("{own}/alice/dev")));
        assert_eq!(api["result"]["login"], json!(format!("{own}/+login")));
        fronted.get(4, "/alice/dev/P", &headers).has("location", format!("{own}/alice/dev/p"));
        fronted.get(4, "/alice/secret/+simple/", lies).expect(401);
    }
    let uri = ("X-Original-URI", "/alice/secret/+simple/");
    let outside = ("X-Outside-URL", "http://h/alice");
    fronted.get(4, "/+authcheck", &[uri, outside]).expect(401);
}

#[test]
fn as_operating_says() {
    let Some(fronted) = Fronted::start("operating.md", |config| {
        config.python.accel_redirect = Some("/larder-blobs".into());
    }) else {
        return;
    };
    check_limit(&fronted);
    // Too large to be kept in memory, so nginx sends it.
    let content = large_archive();
    let file = fronted.make_index(&content);
    check_urls(&fronted);
    let whole = fronted.get(5, &file, &[]);
    assert_eq!((whole.status, whole.body == content), (200, true), "{}", fronted.nginx.log());
    assert_eq!(whole.find("x-accel-redirect"), None, "nobody is told the place");
    let part = fronted.get(5, &file, &[("Range", "bytes=1000-1999")]);
    assert_eq!((part.status, part.body == content[1000..2000]), (206, true));
    let digest = record::Digest::of(&content).to_string();
    let place = format!("/larder-blobs/sha256/{}/{}/{digest}", &digest[..2], &digest[2..4]);
    // The location is internal.
    fronted.get(5, &place, &[]).expect(404);
    // nginx sent the bytes: Larder answers a trusted proxy with the place alone.
    let told = fronted.server.get(&file);
    assert_eq!((told.header("x-accel-redirect"), told.body.len()), (place.as_str(), 0));
    // An address that is not trusted gets the bytes.
    let mut stream = connect_from(6, fronted.server.client.address);
    let request = format!("GET {file} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let direct = Response::read(&mut stream, false);
    assert_eq!((direct.find("x-accel-redirect"), direct.body == content), (None, true));
    for path in ["/metrics", "/rpc/metrics", "//metrics", "/%6detrics"] {
        fronted.get(7, path, &[]).expect(404);
    }
}

#[test]
fn as_coming_from_devpi_says() {
    let Some(fronted) = Fronted::start("coming-from-devpi.md", |_| ()) else { return };
    check_limit(&fronted);
    let content = large_archive();
    let file = fronted.make_index(&content);
    check_urls(&fronted);
    assert!(fronted.get(5, &file, &[]).body == content);
}

#[test]
fn as_coming_from_goaurrpc_says() {
    let Some(fronted) = Fronted::start("coming-from-goaurrpc.md", |_| ()) else { return };
    check_limit(&fronted);
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let posted = fronted.send(8, "POST", "/rpc.php", &form, b"v=5&type=info&arg[]=attest");
    assert_eq!((posted.status, posted.names()), (200, "attest".to_owned()));
}

/// A source archive that is too large for memory: its content cannot be compressed.
fn large_archive() -> Vec<u8> {
    crate::python::zip(&[
        ("p-1.0/setup.py", b""),
        ("p-1.0/PKG-INFO", b"Metadata-Version: 2.1\nName: p\nVersion: 1.0\n"),
        ("p-1.0/noise", &crate::store::noise(0, 600_000)),
    ])
}
