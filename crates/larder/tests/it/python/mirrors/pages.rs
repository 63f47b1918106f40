//! Pages for people of projects that only mirrors have.

use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::python::people::page as page_of;
use crate::shown::shown;

const METADATA: &str = "Metadata-Version: 2.1\nName: foo\nVersion: 2.0\nSummary: Does <b>one</b> thing\nLicense: MIT\n\
    Requires-Dist: bar>=1\nProject-URL: Source, https://code.example/foo\nDescription-Content-Type: text/markdown\n\n\
    # Foo\n\n<script>alert(1)</script>It does *one* thing.\n";

/// `foo`: a yanked, a good and a withheld version, and a pre-release; and a `bar` that nothing is known of.
fn upstream_of_versions() -> Upstream {
    let upstream = upstream_of(b"content");
    let named = |filename: &str, time: &str| {
        let mut described = file(&upstream, filename, filename.as_bytes());
        described["upload-time"] = time.into();
        described
    };
    let mut wheel = named("foo-2.0-py3-none-any.whl", "2026-01-31T12:00:00Z");
    wheel["core-metadata"] = json!({"sha256": Digest::of(METADATA.as_bytes()).to_string()});
    wheel["requires-python"] = ">=3.9".into();
    let mut yanked = named("foo-2.1.tar.gz", "2026-02-01T12:00:00Z");
    yanked["yanked"] = "broken <i>".into();
    let files = json!([
        named("foo-1.0.tar.gz", "2025-01-31T12:00:00Z"),
        named("foo-1.0-py3-none-any.whl", "2025-01-31T12:00:00Z"),
        named("foo-2.0.tar.gz", "2026-01-31T12:00:00Z"),
        wheel,
        yanked,
        named("foo-3.0rc1.tar.gz", "2026-03-01T12:00:00Z"),
        named("foo-4.0.tar.gz", "2100-01-01T12:00:00Z"),
        {"filename": "README", "url": upstream.url("/README"), "hashes": {}},
    ]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer("/files/foo-2.0-py3-none-any.whl.metadata", Offer::file(METADATA));
    upstream
}

fn browse(index: &Index, path: &str) -> String {
    let answer = index.client().get_with(path, &[("Accept", "text/html,*/*;q=0.8")]);
    page_of(&answer)
}

#[test]
fn a_mirrored_project_has_a_page() {
    let upstream = upstream_of_versions();
    let index = start();
    mirror(&index, &upstream, json!({"policy_cutoff": "2050-01-01"}));
    let html = browse(&index, "/alice/up/foo");
    assert!(!html.contains("<script>alert"), "{html}");
    assert_snapshot!("mirrored_project", shown(&html));
    assert_snapshot!("mirrored_release", shown(&browse(&index, "/alice/up/foo/2.1")));
    // By the same number in other words.
    assert_eq!(
        shown(&browse(&index, "/alice/up/foo/2.1.0")),
        shown(&browse(&index, "/alice/up/foo/2.1"))
    );
    let refused = index.client().get_with("/alice/up/foo/4.0", &[("Accept", "text/html")]);
    assert_eq!(refused.status, 403, "{}", refused.text());
    for missing in ["/alice/up/foo/9", "/alice/up/none"] {
        let answer = index.client().get_with(missing, &[("Accept", "text/html")]);
        assert_eq!(answer.status, 404, "{missing}");
    }
}

#[test]
fn a_page_shows_what_upstream_has_now() {
    let upstream = upstream_of_versions();
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let before = browse(&index, "/alice/dev/foo");
    assert_eq!(before, browse(&index, "/alice/dev/foo"));
    upstream.offer("/simple/foo/", page("foo", json!([file(&upstream, "foo-7.0.tar.gz", b"7")])));
    let after = browse(&index, "/alice/dev/foo");
    assert!(after.contains("foo-7.0.tar.gz") && !after.contains("foo-2.0"), "{after}");
    upstream.break_with(Some(500));
    let kept = browse(&index, "/alice/dev/foo");
    assert!(kept.contains("foo-7.0.tar.gz"), "{kept}");
}

/// Metadata that does not come, or is too long, keeps nobody from the page.
#[test]
fn a_page_does_without_metadata() {
    let place = "/files/foo-2.0-py3-none-any.whl.metadata";
    for is_long in [false, true] {
        let upstream = upstream_of_versions();
        match is_long {
            true => upstream.offer(place, Offer::file("x".repeat(2 << 20))),
            false => upstream.hold(place),
        }
        let index = start();
        mirror(&index, &upstream, json!({}));
        let html = browse(&index, "/alice/up/foo/2.0");
        assert!(html.contains("foo-2.0.tar.gz") && !html.contains("Does "), "{html}");
        upstream.release(place);
    }
}

#[test]
fn four_thousand_files_are_a_short_page() {
    let upstream = upstream_of_versions();
    let files: Vec<Value> = (0..2_000)
        .flat_map(|at| {
            let version = format!("1.{}.{}", at / 50, at % 50);
            [format!("foo-{version}.tar.gz"), format!("foo-{version}-py3-none-any.whl")]
        })
        .map(|name| file(&upstream, &name, b"x"))
        .collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = start();
    mirror(&index, &upstream, json!({}));
    let html = browse(&index, "/alice/up/foo");
    assert!(html.len() < 50_000, "{}", html.len());
    assert!(html.contains("foo-1.39.49.tar.gz") && html.contains("All 2000 versions"), "{html}");
    let all = browse(&index, "/alice/up/foo?versions=all");
    assert_eq!(all.matches("<td>2 files</td>").count(), 2_000);
}

/// A version of many files shows the first ones; versions that PEP 440 counts as the same are one.
#[test]
fn a_version_of_many_files() {
    let upstream = upstream_of_versions();
    let named = (0..700).map(|at| format!("foo-1.0-cp3{at}-none-any.whl"));
    let named = named.chain(["foo-1.tar.gz".to_owned()]);
    let files: Vec<Value> = named.map(|name| file(&upstream, &name, b"x")).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = start();
    mirror(&index, &upstream, json!({}));
    for path in ["/alice/up/foo", "/alice/up/foo/1.0.0"] {
        let html = browse(&index, path);
        assert!(html.contains("<summary>701 files</summary>"), "{html}");
        assert_eq!(html.matches("wheel, 1 B").count() + html.matches("source, 1 B").count(), 500);
        assert!(html.contains("And 201 more"), "{html}");
    }
}
