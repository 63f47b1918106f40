//! Articles for people: browsers get pages, programs the bytes and the JSON that they always got.

use super::{store, wiki, wiki_with};
use crate::asking::Says as _;
use crate::browser::ACCEPT;
use crate::pages::check_harmless;
use crate::server::{ROOT, TestServer};
use crate::shown::shown;
use crate::wait_until;
use insta::assert_snapshot;

/// The article on a page, as HTML.
#[track_caller]
fn article(page: &str) -> &str {
    let (_, article) = page.split_once("<article").expect("an article");
    article.split_once('>').and_then(|(_, it)| it.split_once("</article>")).expect("its end").0
}

#[test]
fn browsers_get_a_page_and_programs_the_bytes() {
    let server = wiki();
    let text = b"# The *title*\n\nSome **text**.\n\n## Part\n";
    store(&server, "guide/a.md/0", text);
    let raw = server.get("/article/guide/a.md");
    assert_eq!((raw.status, raw.body.as_slice()), (200, &text[..]));
    for accept in ["*/*", "text/markdown", "text/markdown, text/html;q=0.5", "application/json"] {
        let same = server.client.get_with("/article/guide/a.md", &[("Accept", accept)]);
        assert_eq!(same.body, raw.body, "{accept}");
        same.has("content-type", raw.header("content-type")).has("etag", raw.header("etag"));
    }
    let shown = server.page("/article/guide/a.md");
    shown.says("<h1>The title</h1>");
    assert_snapshot!("article", article(&shown));
    assert_eq!(shown.matches("The title").count(), 2, "{shown}");
    // The bytes are there for people, too.
    for target in ["/article/guide/a.md/1", "/article/guide/a.md?raw"] {
        let response = server.browse(target);
        assert_eq!((response.status, &response.body), (200, &raw.body), "{target}");
    }
    // A client that has the bytes does not have the page.
    let known = [ACCEPT, ("If-None-Match", raw.header("etag"))];
    server.client.get_with("/article/guide/a.md", &known).html();
    let tag = server.browse("/article/guide/a.md").header("etag").to_owned();
    let known = [ACCEPT, ("If-None-Match", tag.as_str())];
    server.client.get_with("/article/guide/a.md", &known).expect(304);
    // Other contents are sent unchanged.
    server.root().typed("image/png").post("/article/p.png/0", b"\x89PNG");
    server.browse("/article/p.png").has("content-type", "image/png");
    server.browse("/article/none").expect(404);
}

#[test]
fn links_between_articles_are_told_apart() {
    let server = wiki();
    server.root().typed("image/png").post("/article/p.png/0", b"\x89PNG");
    store(&server, "guide/b/0", b"b");
    let links = b"[b](b) [up](../top) [docs](/docs) [[guide/b]] [new](new) ![picture](/article/p.png) [out](https://e.example/) \
                  [history](b/history) [deep](b#Some-Part)";
    store(&server, "guide/a/0", b"x");
    server.root().typed("text/markdown").post("/article/guide/a/1", links);
    assert_snapshot!("links", article(&server.page("/article/guide/a")));
    // A link is found as soon as its article is written.
    store(&server, "guide/new/0", b"now");
    let link = "<a href=\"/article/guide/new\" rel=\"nofollow noopener\">new</a> ";
    server.page("/article/guide/a").says(link);
}

#[test]
fn histories_and_differences_are_pages() {
    let server = wiki();
    store(&server, "a/0", b"one\ntwo\nthree <b>\n");
    store(&server, "a/1", b"one\n2\nthree <b>\nfour\n");
    assert_snapshot!("history", shown(&server.page("/article/a/history")));
    assert_snapshot!("old_version", shown(&server.page("/article/a?version=1")));
    for (target, name, new) in [
        ("/article/a/diff?from=1&to=2", "diff", "<td class=\"new\">"),
        ("/article/a/diff", "diff", "<td class=\"new\">"),
        ("/article/a/diff?view=inline", "diff_inline", "<tr class=\"new\">"),
    ] {
        let page = server.page(target);
        assert_snapshot!(name, shown(&page));
        page.says(new);
    }
    server.browse("/article/a/diff?view=x").expect(400);
    server.browse("/article/a?version=7").expect(404);
    server.browse("/article/a?x=1").expect(400);
    server.page("/article/a/diff?from=2&to=2").says("Both have the same text.");
    // What programs get is unchanged.
    assert!(server.get("/article/a/diff?from=1&to=2").text().starts_with("--- a\tversion 1"));
    server.get("/article/a/history").has("content-type", "application/json");
    server.get("/article/a?version=1").expect(400);
    server.root().delete("/article/a/2");
    server.browse("/article/a").expect(410);
    assert_snapshot!("history_of_a_deleted", shown(&server.page("/article/a/history")));
}

#[test]
fn lists_are_pages() {
    let server = wiki();
    for name in ["guide/a", "guide/b", "news"] {
        store(&server, &format!("{name}/0"), b"# A title <i>\n");
    }
    assert_snapshot!("list", shown(&server.page("/articles")));
    assert_snapshot!("list_below", shown(&server.page("/articles?prefix=guide/&limit=1")));
    assert_snapshot!("list_by_name", shown(&server.page("/articles?q=news")));
    server.get("/articles").has("content-type", "application/json");
}

/// The number of pages that were sent from the cache.
fn kept(server: &TestServer) -> f64 {
    server.metric("larder_pages_from_memory_total")
}

/// A server whose page of `guide/a`, which links to `guide/next`, is kept for the next visitor.
fn with_a_kept_page() -> TestServer {
    let server = wiki();
    store(&server, "guide/a/0", b"# Text 0\n\n[next](next)\n");
    // The index of links may be published a moment after the write; the page is then made again.
    wait_until("the page is kept", || {
        server.page(KEPT);
        kept(&server) > 0.0
    });
    server
}

const KEPT: &str = "/article/guide/a";

#[test]
fn a_kept_page_is_sent_as_it_is_in_every_encoding() {
    let server = with_a_kept_page();
    let target = KEPT;
    let ask_with = |header| server.client.get_with(target, &[ACCEPT, header]);
    let first = server.browse(target);
    let again = server.browse(target);
    assert_eq!((&again.body, again.header("etag")), (&first.body, first.header("etag")));
    again.has("cache-control", "no-cache");
    ask_with(("If-None-Match", first.header("etag"))).expect(304);
    for encoding in ["gzip", "zstd"] {
        let encoded = ask_with(("Accept-Encoding", encoding)).expect(200);
        encoded.has("content-encoding", encoding);
        assert!(encoded.body.len() < first.body.len(), "{}", encoded.body.len());
    }
    // The bytes for programs, and other versions, are not this page.
    assert!(server.get(target).text().starts_with("# Text 0"));
    // The links are those of the server that was asked.
    let below = ask_with(("X-Outside-URL", "https://e.example/pre"));
    below.html().says("href=\"/pre/article/guide/next\"");
    server.page(target).lacks("/pre/");
}

/// A page is kept only while it is true.
#[test]
fn a_kept_page_is_never_out_of_date() {
    let server = with_a_kept_page();
    let target = KEPT;
    let shown = || server.page(target);
    for number in 1..=5 {
        let text = format!("# Text {number}\n\n[next](next)\n");
        store(&server, &format!("guide/a/{number}"), text.as_bytes());
        shown().says(&format!("<h1>Text {number}</h1>"));
        server.page(&format!("{target}?version={number}")).says("This is version");
        assert_eq!(shown(), shown());
    }
    // The kept page also changes with others: the targets of its links, its files, and who links to it.
    shown().says("<sup>missing</sup>");
    store(&server, "guide/next/0", b"[back](a)");
    shown().lacks("<sup>missing</sup>");
    wait_until("the link back is known", || shown().contains("Linked from"));
    server.root().put("/+attachments/guide/a/x.png", b"\x89PNG").expect(201);
    shown().says("/+attachments/guide/a/x.png");
    server.root().post("/article/guide/a/6?rename=guide/b", ());
    server.browse(target).expect(308);
    server.page("/article/guide/b").says("<h1>Text 5</h1>");
    server.root().delete("/article/guide/b/7");
    server.browse("/article/guide/b").expect(410);
}

#[test]
fn a_page_that_not_everybody_may_read_is_not_kept() {
    let server = wiki_with(|config| config.article.acl_read = account::Acl::nobody());
    store(&server, "hidden/0", b"# Quiet\n");
    for _ in 0..5 {
        let response = server.client.get_with("/article/hidden", &[ACCEPT, ROOT]);
        response.html().says("Quiet");
        server.browse("/article/hidden").expect(401);
    }
    assert_eq!(kept(&server), 0.0);
}

#[test]
fn pages_are_for_readers_only() {
    let server = wiki_with(|config| config.article.acl_read = account::Acl::nobody());
    store(&server, "hidden/0", b"# Quiet\n");
    for target in [
        "/article/hidden",
        "/article/hidden/history",
        "/article/hidden/diff",
        "/articles",
        "/article/none",
    ] {
        server.browse(target).expect(401).lacks("Quiet");
    }
    let response = server.client.get_with("/article/hidden", &[ACCEPT, ROOT]);
    response.has("cache-control", "private, no-cache").html().says("Quiet");
}

/// Stored attacks: texts in every format, titles, comments and names.
#[test]
fn what_strangers_write_does_nothing() {
    let server = wiki();
    let attacks = include_str!("../../../../../testdata/attacks.txt");
    let name = "%22%27%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let mut names = Vec::new();
    for (at, content_type) in
        ["text/markdown", "text/html", "text/plain", "text/x-rst"].iter().enumerate()
    {
        let target = format!("/article/evil{at}/0?comment={name}");
        let headers = [ROOT, ("Content-Type", *content_type)];
        let title = b"# \"><script>alert(1)</script>\n\n".iter().chain(attacks.as_bytes());
        let body: Vec<u8> = title.copied().collect();
        server.client.send("POST", &target, &headers, &body).expect(201);
        server
            .client
            .send("POST", &format!("/article/evil{at}/1"), &headers, attacks.as_bytes())
            .expect(201);
        names.push(format!("evil{at}"));
    }
    // A name may hold anything but what ends it.
    let odd = server.root().post(&format!("/article/{name}x/0"), "x");
    if odd.status == 201 {
        names.push(format!("{name}x"));
    }
    let mut targets = vec!["/articles".to_owned(), format!("/articles?q={name}&prefix={name}")];
    for name in names {
        let pages = ["", "?version=1", "/history", "/diff", "/diff?view=inline"];
        let exists = |page: &&str| !page.contains("version") || !name.contains('%');
        targets.extend(
            pages.iter().copied().filter(exists).map(|page| format!("/article/{name}{page}")),
        );
    }
    for target in targets {
        let shown = server.page(&target);
        check_harmless(&shown, &target);
    }
}

#[test]
fn a_page_names_the_feed_and_its_entries_have_titles() {
    let server = wiki();
    store(&server, "guide/a/0", b"# Plums & more\n");
    let link = "<link rel=\"alternate\" type=\"application/atom+xml\" title=\"Changes of articles\" href=\"/changes.atom?surface=articles\">";
    for target in ["/article/guide/a", "/article/guide/a/history", "/articles"] {
        server.page(target).says(link);
    }
    let feed = || server.get("/changes.atom?surface=articles").expect(200).text();
    wait_until("the feed has it", || feed().contains("article added: Plums &amp; more (guide/a)"));
    server.root().delete("/article/guide/a/1");
    wait_until("the feed has it", || feed().contains("article removed: guide/a"));
}
