//! Links of files are spelled as their upstream spells them, so that a lock file is rewritten in both directions.

use super::*;
use crate::asking::texts;

/// Paths of files, each in its own spelling, and another one with the same meaning.
const SPELLINGS: [[&str; 2]; 6] = [
    ["/files/foo-1.0%2Bcu118-py3-none-any.whl", "/files/foo-1.0+cu118-py3-none-any.whl"],
    ["/files/foo-2.0+cu118-py3-none-any.whl", "/files/foo-2.0%2bcu118-py3-none-any.whl"],
    ["/files/foo-3.0%2bcu118-py3-none-any.whl", "/files/foo-3.0%2Bcu118-py3-none-any.whl"],
    ["/%7Eme/a%20b/foo-4.0.tar.gz", "/~me/a%20b/foo-4.0.tar.gz"],
    ["/it's&that/%26/foo-5.0.tar.gz", "/it%27s%26that/&/foo-5.0.tar.gz"],
    ["/%C3%a4/(x)/foo-6.0.tar.gz", "/%c3%A4/%28x%29/foo-6.0.tar.gz"],
];

fn filename(path: &str) -> String {
    path.rsplit('/').next().expect("a name").replace("%2B", "+").replace("%2b", "+")
}

fn check(upstream: &Upstream, project: Offer) {
    upstream.offer("/simple/", list(&["foo"]));
    upstream.offer("/simple/foo/", project);
    for [path, _] in SPELLINGS {
        // No other spelling is known there.
        upstream.offer(path, Offer::file(path));
    }
    let index = mirror_of(super::fresh_for_long(), upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let start = "https://index.example/alice/up/+upstream/";
    let expected: Vec<String> = SPELLINGS.iter().map(|[path, _]| upstream.url(path)).collect();
    for stage in ["alice/up", "alice/dev"] {
        let page = format!("/{stage}/+simple/foo/");
        let headers =
            [JSON_PAGE, ("X-Devpi-Absolute-URLs", ""), ("X-Outside-URL", "https://index.example")];
        let answer = index.client().get_with(&page, &headers);
        let links = texts(&answer.json()["files"], "url");
        // A lock file is rewritten like this: another prefix, and nothing else changes.
        let rewritten: Vec<String> =
            links.iter().map(|link| link.replace(start, "http://")).collect();
        assert_eq!(rewritten, expected);
        let back: Vec<String> = rewritten.iter().map(|url| url.replace("http://", start)).collect();
        assert_eq!(back, links);
        let html = index.page(stage, "foo").replace("&amp;", "&").replace("&#x27;", "'");
        let relative = json_page(index.client(), stage, "foo").json();
        for ([path, other], file) in
            SPELLINGS.iter().zip(relative["files"].as_array().expect("files"))
        {
            let url = file["url"].as_str().expect("a URL");
            assert!(url.ends_with(&format!("/+upstream/{}{path}", upstream.host())), "{url}");
            assert!(html.contains(&format!("<a href=\"{url}")), "{url}: {html}");
            assert_eq!(file["filename"], filename(path));
            // Both spellings lead to it, and it is kept once.
            for spelled in [other, path] {
                let place = format!("/{stage}/+upstream/{}{spelled}", upstream.host());
                assert_eq!(index.client().get(&place).text(), *path, "{place}");
            }
            assert_eq!(upstream.count(path), 1, "{path}");
        }
    }
}

#[test]
fn of_a_json_page() {
    let upstream = Upstream::start();
    let files = SPELLINGS.map(|[path, _]| {
        let hashes = json!({"sha256": Digest::of(path.as_bytes()).to_string()});
        json!({"filename": filename(path), "url": upstream.url(path), "hashes": hashes})
    });
    check(&upstream, page("foo", json!(files)));
}

#[test]
fn of_an_html_page() {
    let upstream = Upstream::start();
    let links = SPELLINGS.map(|[path, _]| {
        format!("<a href=\"{}\">{}</a>", path.replace('&', "&amp;"), filename(path))
    });
    check(&upstream, Offer::of("text/html", links.concat()));
}
