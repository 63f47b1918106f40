//! Pages for people of projects that only mirrors have.

use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::asking::{Ask, line};
use crate::browser::unescaped;
use crate::pages::check_harmless;
use crate::python::sdist;
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

#[test]
fn a_mirrored_project_has_a_page() {
    let upstream = upstream_of_versions();
    let index = mirror_of(start(), &upstream, json!({"policy_cutoff": "2050-01-01"}));
    let html = index.browse("/alice/up/foo").html();
    html.lacks("<script>alert");
    assert_snapshot!("mirrored_project", shown(&html));
    assert_snapshot!("mirrored_release", shown(&index.browse("/alice/up/foo/2.1").html()));
    // The description is that of the version, whichever files are chosen.
    let chosen = index.browse("/alice/up/foo?python=cp312").html();
    chosen.says(["It does *one* thing.", "1 of 2 files"]);
    // By the same number in other words.
    assert_eq!(
        shown(&index.browse("/alice/up/foo/2.1.0").html()),
        shown(&index.browse("/alice/up/foo/2.1").html())
    );
    index.browse("/alice/up/foo/4.0").expect(403);
    index.browse("/alice/up/foo/9").expect(404);
    index.browse("/alice/up/none").expect(404);
}

#[test]
fn a_page_shows_what_upstream_has_now() {
    let upstream = upstream_of_versions();
    let index = mirror_of(start(), &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let before = index.browse("/alice/dev/foo").html();
    assert_eq!(before, index.browse("/alice/dev/foo").html());
    upstream.offer("/simple/foo/", page("foo", json!([file(&upstream, "foo-7.0.tar.gz", b"7")])));
    let files = || files_of(&index.browse("/alice/dev/foo").html());
    assert_eq!(
        files(),
        "1 file\nfoo-7.0.tar.gz </alice/up/+upstream/127.0.0.1:PORT/files/foo-7.0.tar.gz> source, 1 B\nTIME, in alice/up\nSHA-256\n"
    );
    upstream.break_with(Some(500));
    assert_eq!(
        files(),
        "1 file\nfoo-7.0.tar.gz </alice/up/+upstream/127.0.0.1:PORT/files/foo-7.0.tar.gz> source, 1 B\nTIME, in alice/up\nSHA-256\n"
    );
}

#[test]
fn searches_find_the_names_that_upstreams_list() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/", list(&["foo", "food", "seafood", "soup"]));
    let index = start();
    index.stage("alice/dev", json!({}));
    index.upload("alice/dev", "food-2.0.zip", &sdist("x"));
    // Its list is not known.
    upstream.break_with(Some(503));
    mirror(&index, &upstream, json!({"acl_read": ["alice"], "policy_deny": ["soup"]}));
    upstream.break_with(None);
    let found = |ask: Ask, path: &str| -> Vec<String> {
        let answer = ask.json().get(path).expect(200).json();
        let projects = |group: &Value| group["title"] == "Python projects";
        let items = match answer["groups"].as_array() {
            Some(groups) => {
                groups.iter().find(|it| projects(it)).expect("a group")["items"].clone()
            }
            None => answer["result"]["items"].clone(),
        };
        let said = |item: &Value| {
            let version = item["version"].as_str().or(item["note"].as_str()).unwrap_or_default();
            let url = item["url"].as_str().expect("a URL");
            let path = url.find("/alice/").map_or(url, |at| &url[at..]);
            format!("{path} {version}").trim_end().to_owned()
        };
        items.as_array().expect("items").iter().map(said).collect()
    };
    // No search asks an upstream.
    assert_eq!(found(index.alice(), "/search/suggest?q=foo"), ["/alice/dev/food 2.0"]);
    index.alice().get("/alice/up/+simple/").expect(200);
    let asked = upstream.requests().len();
    let all = ["/alice/up/foo", "/alice/dev/food 2.0", "/alice/up/food", "/alice/up/seafood"];
    assert_eq!(found(index.alice(), "/search/suggest?q=foo"), all);
    let all = ["/alice/dev/food 2.0", "/alice/up/foo", "/alice/up/food", "/alice/up/seafood"];
    assert_eq!(found(index.alice(), "/+search?query=foo"), all);
    assert_eq!(found(index.alice(), "/+search?query=sea+food"), ["/alice/up/seafood"]);
    // Neither what a policy refuses nor what one may not read.
    assert!(found(index.alice(), "/+search?query=soup").is_empty());
    assert_eq!(found(index.anybody(), "/+search?query=foo"), ["/alice/dev/food 2.0"]);
    assert_eq!(found(index.anybody(), "/search/suggest?q=foo"), ["/alice/dev/food 2.0"]);
    assert_eq!(upstream.requests().len(), asked);
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
        let index = mirror_of(start(), &upstream, json!({}));
        let html = index.browse("/alice/up/foo/2.0").html();
        html.says("foo-2.0.tar.gz");
        html.lacks("Does ");
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
    let index = mirror_of(start(), &upstream, json!({}));
    let html = index.browse("/alice/up/foo").html();
    assert!(html.len() < 50_000, "{}", html.len());
    let all = "href=\"/alice/up/foo?versions=all#versions\">All 2000 versions";
    html.says(["foo-1.39.49.tar.gz", all]);
    let next = |html: &str| {
        let link = html.split("<a rel=\"next\" href=\"").nth(1)?.split('"').next()?;
        Some(unescaped(link).split('#').next()?.to_owned())
    };
    // Each version is on one of the pages, none of which is long, and the filter stays.
    let (mut at, mut found) = ("/alice/up/foo?platform=any&versions=all".to_owned(), 0);
    for part in 0..20 {
        let html = index.browse(&at).html();
        assert!(html.len() < 50_000, "{at}: {}", html.len());
        let (first, last) = (part * 100 + 1, part * 100 + 100);
        html.says(&format!("<p>{first} to {last} of 2000, the latest first</p>"));
        found += html.matches("<td>2 files</td>").count();
        match next(&html) {
            Some(link) => at = link,
            None => assert_eq!(part, 19, "{html}"),
        }
    }
    assert_eq!((found, &*at), (2_000, "/alice/up/foo?platform=any&versions=1900"));
    let beyond = index.browse("/alice/up/foo?versions=2000").html();
    beyond.says("The list of versions ends before here: it has 2000.");
    beyond.lacks("<td>2 files</td>");
}

/// Files of a version are on pages; versions that PEP 440 counts as the same are one.
#[test]
fn a_version_of_many_files() {
    let upstream = upstream_of_versions();
    let named = (0..700).map(|at| format!("foo-1.0-cp3{at}-none-any.whl"));
    let named = named.chain(["foo-1.tar.gz".to_owned()]);
    let files: Vec<Value> = named.map(|name| file(&upstream, &name, b"x")).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = mirror_of(start(), &upstream, json!({}));
    let listed = |html: &str| html.matches(", 1 B</span>").count();
    for path in ["/alice/up/foo", "/alice/up/foo/1.0.0"] {
        let html = index.browse(path).html();
        html.says(["<summary>701 files, 1 to 40</summary>", "?files=40#files\">Next files"]);
        assert!(listed(&html) == 40 && html.len() < 50_000, "{}", html.len());
    }
    let last = index.browse("/alice/up/foo?files=700").html();
    last.says(["701 files, 701 to 701", "?files=660#files"]);
    assert_eq!(listed(&last), 1);
    let beyond = index.browse("/alice/up/foo?files=99999999999").html();
    beyond.says("The list of files ends before here: it has 701.");
    let one = index.browse("/alice/up/foo/1.0?python=cp3699").html();
    one.says(["<summary>2 of 701 files</summary>", "<option selected>cp3699</option>"]);
    assert_eq!(listed(&one), 2);
}

#[test]
fn files_are_chosen_by_python_and_platform() {
    let upstream = upstream_of_versions();
    let names = [
        "foo-1.0.tar.gz",
        "foo-1.0-cp39-cp39-win_amd64.whl",
        "foo-1.0-cp310-cp310-win_amd64.whl",
        "foo-1.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    ];
    let files: Vec<Value> = names.iter().map(|name| file(&upstream, name, b"x")).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = mirror_of(start(), &upstream, json!({}));
    let html = index.browse("/alice/up/foo?python=cp310&platform=manylinux2014_x86_64").html();
    assert_snapshot!("chosen_files", files_of(&html));
    assert_snapshot!(
        "no_chosen_files",
        files_of(&index.browse("/alice/up/foo/1.0?python=cp311").html())
    );
    let attack = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    for query in [format!("python={attack}"), format!("platform={attack}&versions={attack}")] {
        let html = index.browse(&format!("/alice/up/foo?{query}")).html();
        check_harmless(&html, &query);
        html.says("No wheel of this version is for “&#34;");
        assert_eq!(html.matches(", 1 B</span>").count(), 1);
    }
    let long = index.browse(&format!("/alice/up/foo?python={}", "x".repeat(5_000))).html();
    assert!(long.len() < 20_000, "{}", long.len());
}

/// The part of a page about its bases.
fn bases_of(html: &str) -> String {
    let text = shown(html);
    let bases = text.split("\nInherits from\n").nth(1).and_then(|it| it.split("\nRights").next());
    bases.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn an_index_says_how_its_mirrors_are() {
    let upstream = upstream_of_versions();
    let index = start();
    let policy = json!({"policy_cutoff": "2050-01-01", "policy_deny": ["leftpad", "*@egg"],
        "policy_exceptions": ["foo==4.0 until 2100-01-01 fixes <a hole>"]});
    mirror(&index, &upstream, policy);
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let page = || index.browse("/alice/dev").html();
    let before = "1 request in the last 24 hours, 0 failed; at most 1 in half an hour";
    assert_eq!(line(&bases_of(&page()), "1 request"), before);
    index.browse("/alice/dev/foo").html();
    let html = page();
    assert_snapshot!("inherits_from_a_mirror", bases_of(&html));
    html.lacks("failed\" p");
    upstream.break_with(Some(500));
    index.browse("/alice/dev/foo").html();
    // Only those who may change it read which host it is, and what that said.
    assert_snapshot!("inherits_from_one_in_trouble", bases_of(&page()));
    page().says("<polyline class=\"failed\" points=\"0,39.0");
    assert_eq!(
        line(&shown(&index.browse("/alice/up").html()), "Trouble:"),
        "Trouble: The upstream fails: what is known of it is served. It last answered TIME."
    );
    let own = index.alice().browser().get("/alice/dev").html();
    assert_snapshot!("inherits_from_ones_own_in_trouble", bases_of(&own));
    index.alice().patch("/alice/up", json!({"mirror_offline": true})).expect(200);
    assert_eq!(
        line(&shown(&index.browse("/alice/up").html()), "The upstream is not"),
        "The upstream is not asked, by a setting: what is known of it is served."
    );
}

/// The part of a page with the files, up to the last digest.
pub(crate) fn files_of(html: &str) -> String {
    let text = shown(html);
    let files = text.split("\nFiles\n").nth(1).unwrap_or_default();
    files.rsplit_once("DIGEST").map_or(files, |(files, _)| files).to_owned()
}
