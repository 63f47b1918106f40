//! Invalid requests of strangers: bad hosts, floods over HTTP/2, frames around pages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use larder::routes::{Place, Tree};
use serde_json::{Value, json};

use crate::asking::{Says as _, each};
use crate::attacks::frames::{frame, preface};
use crate::catalogue;
use crate::client::Response;
use crate::process::Process;
use crate::server::{TestServer, small, with_key};
use crate::wait_until;

/// The answer to exactly these bytes.
fn answer(request: &str) -> Response {
    small().exchange(request.as_bytes(), false)
}

#[test]
fn a_request_names_one_host() {
    let several = "the request has several `Host` lines: expected one";
    let no_host =
        "the request's `Host` is no host: expected a name or an address, and perhaps a port";
    for target in ["/rpc?v=5&type=info&arg=attest", "/livez", "/nothing/there", "/docs"] {
        for (hosts, text) in [
            ("", "the request names no host: expected one `Host` line"),
            ("Host: a\r\nHost: a\r\n", several),
            ("Host: a\r\nHost: b\r\n", several),
            ("Host: \r\n", no_host),
            ("Host: a, b\r\n", no_host),
            ("Host: a b\r\n", no_host),
            ("Host: a/b\r\n", no_host),
            ("Host: u@a\r\n", no_host),
            ("Host: a:b\r\n", no_host),
            ("Host: <script>\r\n", no_host),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
            answer(&request).tells(400, text).has("content-type", "text/plain; charset=utf-8");
        }
        let status = small().get(target).status;
        for hosts in ["Host: a\r\n", "Host: [::1]:80\r\n"] {
            answer(&format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"))
                .expect(status);
        }
    }
    // HTTP/1.0 knows no Host.
    answer("GET /livez HTTP/1.0\r\n\r\n").expect(200);
    answer("GET /livez HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n").expect(400);
    // A body does not make a difference.
    let posted = "POST /rpc HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nv=5";
    answer(posted).expect(400);
}

#[test]
fn the_host_of_the_target_wins() {
    let request = "GET http://outside.example:8080/+api HTTP/1.1\r\nHost: inside\r\n\
                   Accept: application/json\r\nConnection: close\r\n\r\n";
    let api = answer(request).json();
    assert_eq!(api["result"]["login"], json!("http://outside.example:8080/+login"));
    let both = request.replace("Host: inside\r\n", "");
    answer(&both).expect(400);
    answer(&request.replace("outside.example", "user@outside.example")).expect(400);
}

/// A connection's worth of requests that are taken back at once.
fn flood() -> Vec<u8> {
    let mut bytes = preface();
    // GET, http, /, and an authority of one letter.
    let request = [0x82, 0x86, 0x84, 0x41, 1, b'h'];
    for stream in (1..=401).step_by(2) {
        bytes.extend(frame(1, 0x05, stream, &request));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    bytes
}

#[test]
fn floods_of_resets_do_not_fill_the_log() {
    const CONNECTIONS: usize = 60;
    let process = Process::start(&["--aur-enabled=false"], |_| ());
    for _ in 0..CONNECTIONS {
        let mut stream: TcpStream = process.connect();
        // The server may close it before all is written, with a reset.
        let _ = stream.write_all(&flood());
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let floods = || process.find_metric("larder_http2_floods_total");
    wait_until("every flood to be counted", || floods() == Some(CONNECTIONS as f64));
    // Lines after this one are logged after the floods.
    process.signal("HUP");
    process.wait_for_log("reloading");
    let log = process.log();
    let warnings: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| matches!(line["level"].as_str(), Some("WARN" | "ERROR")))
        .collect();
    let of_floods =
        warnings.iter().filter(|line| line.to_string().contains("reset or broke too many streams"));
    assert_eq!(of_floods.count(), 1, "{log}");
    assert!(warnings.len() < 5, "{log}");
}

#[test]
fn pages_for_people_are_not_framed() {
    let server = small();
    let targets = [
        "/",
        "/search?q=a",
        "/status",
        "/docs",
        "/rpc",
        "/rpc/swagger",
        "/rpc/stats",
        "/+search?query=x",
    ];
    each(targets, |target| {
        for encoding in ["identity", "gzip"] {
            let browser = server.anybody().accept("text/html").with("Accept-Encoding", encoding);
            let page = browser.get(target).expect(200);
            assert!(page.header("content-type").starts_with("text/html"), "{target}");
            page.has("x-frame-options", "DENY")
                .has("x-content-type-options", "nosniff")
                .has("referrer-policy", "same-origin");
            let policy = page.header("content-security-policy");
            let (before, rest) = policy.split_once("script-src '").expect("a script");
            let (script, after) = rest.split_once('\'').expect("its digest");
            let expected = "default-src 'none'; style-src 'self'; script-src; connect-src 'self'; img-src 'self' data:; \
                            base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
            assert_eq!(format!("{before}script-src{after}"), expected, "{target}");
            // Its one script is the one that its policy names; it has no inline code or style.
            if encoding == "identity" {
                assert_eq!(page.text().matches("<script").count(), 1, "{target}");
                page.says(&format!("integrity=\"{script}\""));
                page.lacks(["<style", " style=", " onclick="]);
            }
        }
        let tag = server.get(target).header("etag").to_owned();
        // The status says what was just now.
        if !tag.is_empty() && target != "/status" {
            let known = server.client.get_with(target, &[("If-None-Match", &tag)]).expect(304);
            known.header("content-security-policy").says("frame-ancestors");
        }
    });
}

/// Whatever is asked, browsers are told not to guess what a body is, and HTML may not run anything that it brings.
#[test]
fn no_body_is_taken_for_something_else() {
    let server = TestServer::serving_with(&catalogue::small(), with_key);
    let client = &server.client;
    let root = |method: &str, target: &str, body: &str| {
        client.root().send(method, target, body).done();
    };
    root("PUT", "/team", r#"{"password": "x"}"#);
    root("PUT", "/team/dev", r#"{"acl_upload": ["root"]}"#);
    let (content_type, body) =
        crate::python::Upload::of("p-1.0.zip", &crate::python::sdist("1")).form();
    client.root().typed(&content_type).post("/team/dev/", &body).expect(200);
    let mut targets: Vec<String> = Place::all()
        .iter()
        .filter(|place| place.tree != Tree::Admin)
        .map(|place| place.path.replace("{**}", "a").replace("{*}", "a"))
        .map(|path| {
            let path = path.replace("{user}", "team").replace("{index}", "dev");
            let path = path.replace("{project}", "p").replace("{version}", "1.0");
            path.replace("{n}/…", "5/info").replace("{type}", "info").replace(['{', '}'], "")
        })
        .collect();
    // A slash at the end may make a difference.
    targets.extend(["/team/dev/+simple/".to_owned(), "/team/dev/+simple/p/".to_owned()]);
    let mut html = 0;
    for target in &targets {
        for headers in [
            &[("Accept", "*/*"), ("User-Agent", "pip/25.0")][..],
            &[("Accept", "text/html"), ("User-Agent", "Mozilla/5.0")],
            &[("Accept", "application/json")],
            &[("Accept", "application/vnd.pypi.simple.v1+html")],
            &[("Accept", "application/vnd.pypi.simple.v1+json"), ("X-Devpi-Absolute-URLs", "1")],
            &[("Accept", "text/html"), ("X-Devpi-Absolute-URLs", "1")],
        ] {
            let answer = client.get_with(target, headers);
            if answer.body.is_empty() {
                continue;
            }
            answer.has("x-content-type-options", "nosniff");
            if answer.header("content-type").contains("html") {
                let policy = answer.header("content-security-policy");
                let is_closed =
                    ["default-src 'none'", "sandbox"].iter().any(|it| policy.contains(it));
                assert!(is_closed && !policy.contains("unsafe"), "{target} {headers:?}: {policy}");
                html += 1;
            }
        }
    }
    assert!(html > 50, "{html}");
}
