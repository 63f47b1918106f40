//! The header of every page names the user who is logged in, and no cache gives such a page to anybody else.

use serde_json::json;

use crate::asking::Says as _;
use crate::browser::{ACCEPT, Browser};
use crate::catalogue;
use crate::client::Response;
use crate::python::{Upload, sdist};
use crate::server::TestServer;
use crate::wait_until;

const NAME: &str = "<span class=\"hidden\">Logged in as </span>ann</a>";

/// Pages of every kind, and those of errors.
const PAGES: [&str; 26] = [
    "/",
    "/docs",
    "/docs/aur",
    "/rpc",
    "/rpc/x",
    "/rpc/stats",
    "/status",
    "/search?q=x",
    "/packages/",
    "/packages/attest",
    "/packages/no-such-package",
    "/pkgbase/attest",
    "/articles",
    "/article/guide",
    "/article/guide/history",
    "/article/missing",
    "/article/guide?x=y",
    "/+search",
    "/+search?query=a",
    "/ann",
    "/ann/dev",
    "/ann/dev/attest",
    "/ann/dev/attest/1.0",
    "/ann/missing",
    "/nobody/none/+simple/",
    "/no/such/page/at/all",
];

fn start() -> TestServer {
    let server = TestServer::serving(&catalogue::small());
    server.add_user("ann", "staple");
    server.root().put("/ann/dev", json!({})).expect(200);
    let upload = Upload::of("attest-1.0.zip", &sdist("x"));
    server.root().upload("ann/dev", &upload).expect(200);
    server.root().typed("text/markdown").post("/article/guide/0", "# A guide").expect(201);
    server
}

/// Whether only the sender's browser may store an answer.
fn is_private(response: &Response) -> bool {
    let caching = response.find("cache-control").unwrap_or_default();
    ["private", "no-store"].iter().any(|it| caching.contains(it))
}

#[track_caller]
fn varies_by_cookie(response: &Response) -> bool {
    let mut lines = response.headers.iter().filter(|(name, _)| name == "vary");
    lines.any(|(_, by)| by.to_lowercase().contains("cookie"))
}

#[test]
fn every_page_names_who_is_logged_in_and_is_theirs_alone() {
    let server = start();
    let mut ann = Browser::of(server.client, "ann", "staple");
    // Neither gets the other's page, in whichever order they ask.
    for (target, is_first) in PAGES.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let of_stranger = || {
            let page = server.browse(target);
            let encoded: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
            page.says([">Log in</a>", &format!("/+account/login?next={encoded}\"")]);
            page.lacks("Logged in as");
            page
        };
        let before = is_first.then(of_stranger);
        let own = ann.get(target);
        own.says([NAME, "<a href=\"/+account\""]);
        assert!(is_private(&own), "{target}: {own:?}");
        let is_kept_nowhere = own.find("cache-control").is_some_and(|it| it.contains("no-store"));
        assert!(is_kept_nowhere || varies_by_cookie(&own), "{target}: {own:?}");
        let after = of_stranger();
        assert_eq!(after.status, own.status, "{target}");
        if let Some(tag) = own.find("etag") {
            assert_ne!(Some(tag), after.find("etag"), "{target}");
            // What a browser has from before it logged in, it does not take for the page of its user.
            let tag = after.header("etag").to_owned();
            let again = ann.send("GET", target, &[("If-None-Match", &tag)], b"");
            again.says(NAME);
        }
        // Other pages count requests, or show links that are found a moment later.
        if let Some(before) = before.filter(|_| ["/docs", "/packages/", "/ann"].contains(&target)) {
            assert_eq!(before.find("etag"), after.find("etag"), "{target}");
        }
    }
    for target in ["/+account", "/+manage", "/+edit/guide", "/+manage/indexes/ann/dev"] {
        let page = ann.get(target);
        page.has("cache-control", "no-store").says(NAME);
    }
}

#[test]
fn pages_for_everybody_stay_finished() {
    let server = start();
    let mut ann = Browser::of(server.client, "ann", "staple");
    let kept = || server.metric("larder_pages_from_memory_total");
    for target in ["/packages/", "/packages/attest", "/article/guide", "/ann/dev/attest"] {
        ann.get(target).expect(200);
        // What the page shows of other projects and articles is found a moment later; then it is made again.
        wait_until("the page is kept", || {
            let before = kept();
            server.browse(target).expect(200).lacks("Logged in as");
            kept() > before
        });
        let before = kept();
        ann.get(target).says(NAME);
        assert_eq!(kept(), before, "{target}");
        server.browse(target).expect(200).lacks("Logged in as");
        // A cookie of a session that has ended is a stranger's.
        let ended = ("Cookie", "larder-session=x.y.z; other=1");
        server.client.get_with(target, &[ACCEPT, ended]).expect(200).lacks("Logged in as");
    }
}

/// Credentials in a header win over the cookie: then nobody is logged in by a browser.
#[test]
fn nobody_is_named_who_did_not_ask() {
    let server = start();
    let ann = Browser::of(server.client, "ann", "staple");
    let cookie = ann.cookie();
    let cookie = ("Cookie", cookie.as_str());
    for target in ["/", "/docs", "/packages/", "/ann/dev/attest", "/missing"] {
        let both = [ACCEPT, cookie, crate::server::ROOT];
        server.client.get_with(target, &both).lacks("Logged in as");
        // What programs get is unchanged.
        let program = server.client.get_with(target, &[cookie, ("Accept", "*/*")]);
        program.lacks("Logged in as");
    }
}

#[test]
fn a_name_cannot_break_out_of_the_header() {
    let server = start();
    let name = "a".repeat(60);
    server.add_user(&name, "staple");
    let mut browser = Browser::of(server.client, &name, "staple");
    let page = browser.get("/docs").expect(200).text();
    crate::pages::check_harmless(&page, "a long name");
    page.says(&format!("</span>{name}</a>"));
    // The page after a form names its sender, too: also after the session was replaced.
    let page = browser.get("/+account").text();
    let values = [("old", "staple"), ("new", "horse"), ("again", "horse")];
    browser
        .submit(&page, "Change the password", &values)
        .expect(200)
        .says(&format!("</span>{name}</a>"));
}
