//! Articles over real sockets: written by `root`, read by anybody, unless a test says otherwise.

mod actions;
mod attachment_troubles;
mod attachments;
mod bodies;
mod conflicts;
mod crash;
mod drafts;
mod editing;
mod folders;
mod names;
mod pages;
mod people;
mod reading;
mod renaming;
mod rights;
mod serials;
mod site;
mod tree;
mod trouble;
mod words;
mod writers;
mod writing;

use config::Config;

use crate::client::Response;
use crate::server::TestServer;

/// A server of articles alone, ready.
fn wiki() -> TestServer {
    wiki_with(|_| ())
}

/// A server of articles alone, with a changed configuration, ready.
fn wiki_with(change: impl FnOnce(&mut Config)) -> TestServer {
    TestServer::without_aur(change)
}

/// A server of articles for those who are logged in.
fn closed_wiki() -> TestServer {
    wiki_with(|config| config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list"))
}

/// Stores the next revision at `/article/{name}/{base}`, as Markdown.
#[track_caller]
fn store(server: &TestServer, name_and_base: &str, body: &[u8]) -> Response {
    let target = format!("/article/{name_and_base}");
    server.root().typed("text/markdown").post(&target, body).expect(201)
}

/// The code in a refusal.
#[track_caller]
fn code(response: &Response) -> String {
    response.has("content-type", "application/problem+json");
    assert_eq!(response.json()["status"], response.status, "{}", response.text());
    response.json()["code"].as_str().unwrap_or_else(|| panic!("{}", response.text())).to_owned()
}

/// Text of this many bytes in short lines that differ.
fn text(bytes: usize) -> Vec<u8> {
    let lines =
        (0_u32..).flat_map(|line| format!("{line:x} {}\n", line.pow(2) % 9_973).into_bytes());
    lines.take(bytes).collect()
}

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    crate::store::noise(0, bytes)
}
