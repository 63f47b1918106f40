//! The pages about the AUR's packages: what they say, what they link to, and that texts of strangers stay texts.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::asking::{Says as _, each};
use crate::catalogue;
use crate::server::{TestServer, small};
use crate::shown::{redacted, shown};
use crate::wait_until;

/// The names of the packages in the table of a page, in order.
fn listed(page: &str) -> Vec<String> {
    let rows = page.split("<tr><td><a href=\"").skip(1);
    let name = |row: &str| Some(row.split_once("\">")?.1.split_once("</a>")?.0.to_owned());
    rows.filter_map(name).collect()
}

/// A page is rendered once for all readers, and again when its packages have changed.
#[test]
fn a_page_is_kept_until_its_package_changes() {
    let dump = catalogue::small();
    let server = TestServer::serving(&dump);
    let shown = || server.page("/packages/attest");
    let kept = || server.metric("larder_pages_from_memory_total");
    // Once the history knows the packages.
    wait_until("the page is kept", || {
        shown();
        kept() > 0.0
    });
    assert_eq!(shown(), shown());
    let dump = String::from_utf8(dump).expect("JSON");
    dump.says("\"1.0-1\"");
    server.replace_source(dump.replace("\"1.0-1\"", "\"1.0-2\"").as_bytes());
    wait_until("the new version is shown", || shown().contains("1.0-2"));
}

/// The list without a search is kept like a package's page.
#[test]
fn the_list_is_kept_until_packages_change() {
    let dump = catalogue::small();
    let server = TestServer::serving(&dump);
    let kept = || server.metric("larder_pages_from_memory_total");
    let first = server.page("/packages/");
    assert_eq!((server.page("/packages/"), kept()), (first.clone(), 1.0));
    // A search has another list.
    assert_ne!(server.page("/packages/?K=attest"), first);
    assert_ne!(server.page("/packages/?K=attest"), first);
    assert_eq!(kept(), 1.0);
    let dump = String::from_utf8(dump).expect("JSON");
    server.replace_source(dump.replace("\"1.0-1\"", "\"1.0-2\"").as_bytes());
    wait_until("the new version is listed", || server.page("/packages/").contains("1.0-2"));
}

#[test]
fn a_package_with_what_is_known_of_it() {
    // The shared one may or may not have begun a history before its directory goes.
    let server = &TestServer::serving(&crate::catalogue::small());
    wait_until("a history", || server.get("/aur/history/attest").status == 200);
    let attest = server.page("/packages/attest");
    assert_snapshot!("package", shown(&attest));
    attest.says("href=\"https://example.org/\" rel=\"nofollow noopener noreferrer\"");
    // A package that does not exist here is no link.
    assert_snapshot!("package_with_dependencies", shown(&server.page("/packages/Mixed-Case")));
    assert_snapshot!("orphan", shown(&server.page("/packages/libstdc++5")));
    // Names are found as the RPC finds them.
    assert_eq!(shown(&server.page("/packages/ATTEST")), shown(&attest));
}

#[test]
fn a_base_and_a_maintainer() {
    let server = small();
    let split = server.page("/pkgbase/split");
    assert_eq!(listed(&split), ["split-a", "split-b"]);
    assert_snapshot!("base", shown(&split));
    let anna = server.page("/account/anna");
    assert_eq!(listed(&anna).len(), 8);
    assert_snapshot!("maintainer", shown(&anna));
    assert_snapshot!("co_maintainer", shown(&server.page("/account/CARL")));
    assert_snapshot!("submitter", shown(&server.page("/account/bert")));
}

#[test]
fn what_is_not_there() {
    let server = small();
    for (target, text) in [
        ("/packages/none", "there is no package `none` in the AUR, as of DATE"),
        (
            "/packages/split",
            "there is no package `split`; there is a package base of this name, at `/pkgbase/split`",
        ),
        ("/pkgbase/none", "there is no package base `none` in the AUR, as of DATE"),
        (
            "/account/nobody",
            "no package of the AUR names `nobody` as its maintainer, co-maintainer or submitter, as of DATE",
        ),
        ("/packages/%ff", "nothing is at `/packages/%ff`; `/docs` says what there is"),
    ] {
        server.get(target).tells(404, text);
    }
    server.anybody().post("/packages/attest", ()).expect(405);
}

#[test]
fn searches_by_aurwebs_parameters() {
    let server = small();
    let rows = [
        ("K=attest", &["attest", "attest-git"][..]),
        ("K=attest&SeB=N", &["attest"]),
        ("K=green+car", &["one-word"]),
        ("K=split&SeB=B", &["split-a", "split-b"]),
        ("K=proof&SeB=k", &["attest"]),
        ("K=carl&SeB=c", &["split-a"]),
        ("K=carl&SeB=M", &["split-a"]),
        ("K=attest&SeB=depends", &["Mixed-Case"]),
        ("K=cmake+attest&SeB=makedepends", &["split-b"]),
        ("K=attest&SeB=provides", &["attest", "attest-git"]),
        ("orphans=on", &["libstdc++5"]),
        ("submit=Orphans", &["libstdc++5"]),
        ("outdated=on", &[]),
        ("K=none-of-them", &[]),
        ("SB=n&SO=d&K=word&SeB=n", &["two-words", "one-word"]),
    ];
    each(rows, |(query, names)| {
        let page = server.page(&format!("/packages/?{query}"));
        assert_eq!(listed(&page), names, "{query}");
    });
    assert_snapshot!("list", shown(&server.page("/packages")));
    server.browse("/packages/?O=9").says("The list ends before here.");
}

#[test]
fn a_long_list_is_turned_over() {
    let server = crate::server::large();
    let first = server.page("/packages/?PP=50&SB=n");
    first
        .says(["<b>6,000</b> packages, 1 to 50", "rel=\"next\" href=\"/packages/?SB=n&#38;O=50\""]);
    let second = server.page("/packages/?SB=n&O=50");
    second.says(["51 to 100", "rel=\"prev\""]);
    let mut names = listed(&first);
    names.extend(listed(&second));
    assert_eq!(names.len(), 100);
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 100);
    server.page("/packages/?SB=n&O=5950").lacks("rel=\"next\"");
    // The most popular one is popular.
    let popular = listed(&server.page("/packages/"));
    let info = server.get(&format!("/rpc/v5/info/{}", popular[0])).json();
    let other = server.get(&format!("/rpc/v5/info/{}", popular[49])).json();
    let popularity = |info: &Value| info["results"][0]["Popularity"].as_f64().expect("a number");
    assert!(popularity(&info) >= popularity(&other), "{popular:?}");
}

#[test]
fn feeds_of_the_newest_and_the_latest() {
    let server = small();
    for (target, kind, name) in [
        ("/rss/", "rss", "rss"),
        ("/rss", "rss", "rss"),
        ("/rss/modified", "rss", "rss_modified"),
        ("/atom/", "atom", "atom"),
        ("/atom/modified", "atom", "atom_modified"),
    ] {
        let feed = server.get(target).expect(200);
        feed.has("content-type", format!("application/{kind}+xml; charset=utf-8"));
        assert_snapshot!(name, redacted(&feed.text()));
        server.client.get_with(target, &[("If-None-Match", feed.header("etag"))]).expect(304);
    }
}

/// A feed is rendered once for all readers, whatever their query, and again when packages have changed.
#[test]
fn a_feed_is_kept_until_packages_change() {
    let dump = catalogue::small();
    let server = TestServer::serving(&dump);
    let kept = || server.metric("larder_pages_from_memory_total");
    for target in ["/rss/", "/rss/modified", "/atom/", "/atom/modified"] {
        let before = kept();
        let first = server.get(target);
        assert_eq!(kept(), before, "{target}");
        let again = server.get(&format!("{target}?x={target}"));
        assert_eq!((&again.body, again.header("etag")), (&first.body, first.header("etag")));
        for name in ["content-type", "cache-control", "vary"] {
            again.has(name, first.header(name));
        }
        first.has("vary", "Accept-Encoding");
        let known = server.client.get_with(target, &[("If-None-Match", first.header("etag"))]);
        assert_eq!((known.status, kept()), (304, before + 2.0), "{target}");
        // Its links begin as the URL that was asked for.
        let other = server.client.get_with(target, &[("X-Outside-URL", "https://e.example/pre")]);
        other.says("https://e.example/pre/packages/");
    }
    let dump = String::from_utf8(dump).expect("JSON");
    server.replace_source(dump.replace("\"1.0-1\"", "\"1.0-2\"").as_bytes());
    server.wait_for("/atom/", "1.0-2");
    server.get("/atom/modified").says("1.0-2");
}

/// Everything that strangers write into the AUR: as text, and nothing else.
#[test]
fn texts_of_strangers_stay_texts() {
    let evil = "\"><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}";
    let record = json!([{
        "ID": 1, "Name": "evil", "PackageBaseID": 1, "PackageBase": format!("b{evil}"),
        "Version": evil, "Description": evil, "URL": "javascript:alert(1)//https://", "NumVotes": 1,
        "Popularity": 1.0, "OutOfDate": 1, "Maintainer": evil, "Submitter": evil,
        "FirstSubmitted": i64::MAX, "LastModified": -1, "URLPath": "javascript:alert(1)",
        "Depends": [evil, "javascript:x"], "OptDepends": [format!("a: {evil}")], "Provides": [evil],
        "Conflicts": [evil], "Replaces": [evil], "Groups": [evil], "License": [evil],
        "Keywords": [evil], "CoMaintainers": [evil], evil: evil, "FlaggedMalicious": true,
    }, {
        "ID": 2, "Name": evil, "PackageBaseID": 2, "PackageBase": "b2", "Version": "1",
        "Description": "\u{1}\u{fffe}", "URL": "data:text/html,<script>alert(1)</script>", "NumVotes": 1,
        "Popularity": 1.0, "OutOfDate": null, "Maintainer": null, "Submitter": null,
        "FirstSubmitted": 1, "LastModified": 1, "URLPath": "", "Depends": ["evil"],
    }]);
    let server = TestServer::serving_with(record.to_string().as_bytes(), |config| {
        config.aur.web_url = Some("https://aur.example".to_owned());
    });
    let encoded: String = form_urlencoded::byte_serialize(evil.as_bytes()).collect();
    let in_path = encoded.replace('+', "%20");
    for target in [
        "/packages/evil".to_owned(),
        format!("/packages/{in_path}"),
        "/pkgbase/b2".to_owned(),
        format!("/pkgbase/b{in_path}"),
        format!("/account/{in_path}"),
        "/packages/".to_owned(),
        format!("/packages/?K={encoded}"),
        format!("/packages/?K={encoded}&SeB=m&SB={encoded}&O={encoded}"),
        format!("/search?q={encoded}"),
    ] {
        let page = server.page(&target);
        // The page's own script, and no other.
        assert_eq!(page.matches("<script").count(), 1, "{target}: {page}");
        assert!(!page.contains("<img"), "{target}: {page}");
        for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let is_own = link.starts_with('/') || link.starts_with('#');
            assert!(is_own || link.starts_with("https://aur.example/"), "{target}: {link}");
            assert!(!link.contains(['<', '>', ' ']) && !link.contains("&#60;"), "{target}: {link}");
        }
    }
    server.page("/packages/evil").says(["Flagged as malicious", "<b>Out of date.</b>"]);
    for target in ["/rss/", "/rss/modified", "/atom/", "/atom/modified"] {
        let text = server.get(target).text();
        assert!(!text.contains("<script") && !text.contains('\u{1}'), "{target}: {text}");
    }
    for target in [format!("/packages/no{in_path}"), format!("/account/no{in_path}")] {
        let missing = server.browse(&target).expect(404);
        assert_eq!(missing.text().matches("<script").count(), 1, "{}", missing.text());
    }
}

/// The page says where the sources are if that is known, and does not guess.
#[test]
fn sources_are_where_the_operator_says() {
    small().page("/packages/attest").lacks("git clone");
    let server = TestServer::serving_with(&crate::catalogue::small(), |config| {
        config.aur.web_url = Some("https://aur.example/".to_owned());
    });
    let clone = "git clone 'https://aur.example/attest.git'";
    server
        .page("/packages/attest-git")
        .says([clone, "href=\"https://aur.example/cgit/aur.git/snapshot/attest.tar.gz\""]);
    server.page("/pkgbase/attest").says(clone);
}

/// Users who were there before a page was stay where they are.
#[test]
fn without_packages_or_for_other_programs_nothing_is_in_the_way() {
    let server = TestServer::without_source(|_| ()).ready();
    server.get("/packages/").tells(404, "this server has no packages of the AUR: it was started without a source for them, and keeps no earlier dump; its operator can name one with `--aur-source FILE|URL` (`aur.source` in the configuration)");
    let made =
        server.root().typed("application/json").put("/account", "{\"password\": \"12345678901\"}");
    assert!(made.status >= 400, "the name is reserved: {}", made.text());
    // Paths below a package still belong to the Python index.
    server.get("/packages/dev/+simple/").expect(404);
    assert!(!server.get("/packages/dev/+simple/").header("x-devpi-api-version").is_empty());
}
