//! The pages of the index for people: browsers get them where programs get JSON, and they reveal no more than that.

use std::ops::Range;

use insta::assert_snapshot;
use serde_json::json;

use super::mirrors::pages::files_of;
use super::{Index, Upload, sdist, wheel};
use crate::asking::Says as _;
use crate::pages::check_harmless;
use crate::shown::shown;
use crate::wait_until;

/// Without the tags, and with one blank between words.
fn words(page: &str) -> String {
    let text: String =
        page.split('<').map(|part| part.split_once('>').map_or(part, |it| it.1)).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn described(filename: &str, content: &[u8], description: &str, content_type: &str) -> Upload {
    Upload::of(filename, content)
        .set("description", description)
        .set("description_content_type", content_type)
}

fn sample() -> Index {
    let index = Index::start();
    index.stage("alice/base", json!({"title": "What <everybody> uses"}));
    index.stage("alice/dev", json!({"bases": ["alice/base"], "volatile": false}));
    let upload = |stage: &str, upload: &Upload| {
        index.alice().upload(stage, upload).expect(200);
    };
    upload("alice/base", &Upload::of("tool-1.0.zip", &sdist("one")));
    upload("alice/base", &Upload::of("lib-2.0.zip", &sdist("lib")));
    let newer =
        described("tool-1.1.zip", &sdist("two"), "# Tool\n\nIt *works*.\n", "text/markdown")
            .set("summary", "Does it")
            .set("home_page", "https://tool.example/")
            .set("requires_dist", "lib>=1")
            .set("requires_python", ">=3.9");
    upload("alice/dev", &newer);
    upload("alice/dev", &Upload::of("tool-1.0.zip", &sdist("another one")));
    upload("alice/dev", &Upload::of("tool-2.0a1.zip", &sdist("three")));
    index
}

/// A stranger does not learn who else may upload, but that others may.
#[test]
fn who_may_upload_is_said_as_far_as_the_reader_may_know() {
    let index = sample();
    let alice = index.alice();
    let check = |uploaders: serde_json::Value, stranger: &str, bob: &str| {
        let lists = json!({"acl_upload": uploaders, "acl_toxresult_upload": uploaders});
        alice.patch("/alice/dev", lists).expect(200);
        for (page, is) in [
            (words(&index.client().page("/alice/dev")), stranger),
            (words(&index.user("bob").browser().get("/alice/dev").html()), bob),
        ] {
            page.says([&format!("Uploads by{is} "), &format!("Test results by{is} ")]);
        }
    };
    check(json!(["alice"]), "alice and administrators", "alice and administrators");
    check(
        json!(["alice", "bob", ":ci"]),
        "alice, others and administrators",
        "alice, bob, the group ci and administrators",
    );
    check(json!(["bob"]), "others and administrators", "bob and administrators");
    check(json!([]), "administrators only", "administrators only");
    check(json!(["bob", ":AUTHENTICATED:"]), "every user", "bob and every user");
}

const PATHS: [&str; 4] = ["/alice", "/alice/dev", "/alice/dev/tool", "/alice/dev/tool/1.1"];

#[test]
fn programs_get_what_they_had() {
    let index = sample();
    for path in PATHS {
        let json = index.anybody().json().get(path);
        json.has("content-type", "application/json");
        for accept in ["*/*", "application/json, text/html", "application/json;q=0.9,*/*"] {
            let same = index.anybody().with("Accept", accept).get(path);
            assert_eq!((same.status, &same.body), (200, &json.body), "{path} {accept}");
        }
        index.browse(path).html();
    }
    // Installers of old named HTML first.
    let pip = index
        .anybody()
        .with("Accept", "text/html")
        .with("User-Agent", "pip/9.0.1")
        .get("/alice/dev/tool");
    pip.says("tool-1.1.zip#sha256=");
    let simple = index.browse("/alice/dev/+simple/tool/");
    simple.says("tool-1.1.zip</a>");
}

/// The names of the projects on the page of an index, and the link to the next page.
#[track_caller]
fn listed(index: &Index, page: &str) -> (Vec<String>, Option<String>) {
    let html = index.browse(page).html();
    let links = html.split("<td><a href=\"").skip(1).filter_map(|it| it.split('"').next());
    let names = links.filter_map(|it| Some(it.rsplit_once('/')?.1.to_owned())).collect();
    let next = html.split("<a href=\"?").nth(1).and_then(|rest| rest.split('"').next());
    (names, next.map(str::to_owned))
}

#[test]
fn an_index_says_what_it_inherits_and_how_to_use_it() {
    let index = sample();
    let text = index.browse("/alice/dev").html();
    assert_snapshot!("index", shown(&text));
    let names = |page: &str| listed(&index, page).0;
    assert_eq!(names("/alice/base"), ["lib", "tool"]);
    assert_eq!(names("/alice/base?q=OO"), ["tool"]);
    let user = index.browse("/alice").html();
    assert_snapshot!("user", shown(&user));
}

#[test]
fn an_index_of_many_projects_is_turned_page_by_page() {
    let index = Index::with_dev();
    for number in 0..103 {
        index.upload("alice/dev", &format!("p{number:03}-1.zip"), &sdist("x"));
    }
    let named = |numbers: Range<u32>| numbers.map(|at| format!("p{at:03}")).collect::<Vec<_>>();
    assert_eq!(listed(&index, "/alice/dev"), (named(0..100), Some("after=p099".to_owned())));
    assert_eq!(listed(&index, "/alice/dev?after=p099"), (named(100..103), None));
}

#[test]
fn a_project_says_what_it_is_and_where_it_comes_from() {
    let index = sample();
    index.alice().post("/alice/dev/tool/1.0/+yank", json!({"reason": "it <breaks>"})).expect(200);
    let text = index.browse("/alice/dev/tool").html();
    assert_snapshot!("project", shown(&text));
    text.says([
        "<h3 id=\"u-tool\">Tool</h3>\n<p>It <em>works</em>.</p>",
        "<a href=\"https://tool.example/\" rel=\"nofollow noopener\">Home page</a>",
    ]);
    let release = index.browse("/alice/dev/tool/1.0").html();
    assert_snapshot!("release_yanked", shown(&release));
    for missing in ["/alice/dev/none", "/alice/dev/tool/9", "/alice/none", "/nobody"] {
        let response = index.browse(missing).expect(404);
        assert!(response.header("content-type").starts_with("text/html"), "{missing}");
    }
    let moved = index.browse("/alice/dev/Tool").expect(302);
    assert!(moved.header("location").ends_with("/alice/dev/tool"));
}

/// As with mirrors, whose tests say more of it.
#[test]
fn own_files_are_chosen_by_their_tags() {
    let index = Index::with_dev();
    let (content, _) = wheel("tool", "1.0");
    for tags in ["py3-none-any", "cp312-abi3-win_amd64", "cp312-abi3-linux_x86_64"] {
        index.upload("alice/dev", &format!("tool-1.0-{tags}.whl"), &content);
    }
    index.upload("alice/dev", "tool-1.0.zip", &sdist("x"));
    assert_snapshot!("files", files_of(&index.browse("/alice/dev/tool").html()));
    let some = index.browse("/alice/dev/tool/1.0?platform=win_amd64").html();
    assert_snapshot!("chosen_files", files_of(&some));
    index.browse("/alice/dev/tool?python=").html().says("<summary>4 files</summary>");
    // A release with nothing to choose has no form.
    index.upload("alice/dev", "tool-2.0.zip", &sdist("y"));
    index.browse("/alice/dev/tool").html().lacks("<select name=\"python\"");
}

#[test]
fn private_names_appear_to_nobody_else() {
    let index = sample();
    index.stage("alice/hush", json!({"acl_read": ["alice"], "title": "quiet title"}));
    index.upload("alice/hush", "tool-0.1.zip", &sdist("hushed"));
    index.upload("alice/hush", "secretive-1.zip", &sdist("secret"));
    index.alice().put("/alice/open", json!({"bases": ["alice/hush", "alice/base"]})).expect(200);
    index.upload("alice/open", "shown-1.zip", &sdist("shown"));
    for path in [
        "/alice/hush",
        "/alice/hush/tool",
        "/alice/hush/tool/0.1",
        "/alice/open/shown",
        "/alice/hush/none",
    ] {
        index.browse(path).expect(401);
        index.user("bob").browser().get(path).expect(403);
    }
    for path in ["/alice", "/alice/open", "/alice/base", "/alice/dev", "/alice/dev/tool"] {
        for asker in [index.anybody(), index.user("bob")] {
            let text = asker.browser().get(path).html();
            text.lacks(["hush", "quiet", "secretive"]);
        }
    }
    let own = |path: &str| shown(&index.alice().browser().get(path).html());
    assert_snapshot!("user_for_herself", own("/alice"));
    assert_snapshot!("private_index", own("/alice/hush"));
    assert_snapshot!("project_of_a_private_base", own("/alice/open/tool"));
    index.alice().browser().get("/alice/hush").has("cache-control", "private, no-cache");
}

/// The page, once it has this text: what requires a project is read after the commit.
#[track_caller]
fn page_with(index: &Index, path: &str, text: &str) -> String {
    let mut found = String::new();
    crate::wait_until(&format!("`{text}` on {path}"), || {
        found = index.alice().browser().get(path).html();
        found.contains(text)
    });
    found
}

/// The section `Required by` of the page.
fn required_by(page: &str) -> String {
    let part = page.split("<h2 id=\"required-by\">").nth(1).unwrap_or_default();
    words(part.split("<h2").next().unwrap_or_default())
}

#[test]
fn a_project_says_what_requires_it() {
    let index = sample();
    index.stage("alice/hush", json!({"acl_read": ["alice"]}));
    let requiring = |stage: &str, filename: &str, requirement: &str| {
        let upload = Upload::of(filename, &sdist(filename)).set("requires_dist", requirement);
        index.alice().upload(stage, &upload).expect(200);
    };
    requiring("alice/base", "other-1.zip", "Lib[x] ~= 2.0; extra == 'all'");
    requiring("alice/hush", "secretive-1.zip", "lib");
    page_with(&index, "/alice/base/lib", "secretive");
    let own = required_by(&page_with(&index, "/alice/base/lib", ">other<"));
    let expected = "Required by other alice/base tool alice/dev secretive alice/hush";
    assert_eq!(own, expected);
    // Projects that the reader may not see are neither shown nor counted.
    for asker in [index.anybody(), index.user("bob")] {
        let text = asker.browser().get("/alice/base/lib").html();
        assert_eq!(required_by(&text), "Required by other alice/base tool alice/dev");
        check_harmless(&text, "/alice/base/lib");
    }
    // The newest version counts, and only if a policy shows it.
    requiring("alice/base", "other-2.zip", "tool");
    let text = page_with(&index, "/alice/base/tool", ">other<");
    assert_eq!(required_by(&text), "Required by other alice/base");
    let anybody = || index.browse("/alice/base/lib").html();
    assert_eq!(required_by(&anybody()), "Required by tool alice/dev");
    let patch = json!(["policy_quarantine+=tool==1.1 for a look"]);
    index.alice().patch("/alice/dev", patch).expect(200);
    assert_eq!(required_by(&anybody()), "");
    // A deleted project requires nothing.
    index.alice().delete("/alice/base/other/2?force").done();
    page_with(&index, "/alice/base/lib", ">other<");
    let text = index.browse("/alice/base/tool").html();
    assert_eq!(required_by(&text), "");
}

/// Stored attacks, in every place where a page shows texts of users.
#[test]
fn what_strangers_say_does_nothing() {
    let index = Index::start();
    let attack = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>";
    index.stage("alice/dev", json!({"title": attack, "description": attack}));
    index
        .alice()
        .patch("/alice", json!({"title": attack, "description": attack, "email": attack}))
        .expect(200);
    let attacks = include_str!("../../../../../testdata/attacks.txt");
    for (version, content_type) in [
        ("1", "text/markdown"),
        ("2", "text/x-rst"),
        ("3", "text/plain"),
        ("4", "text/html"),
        ("5", "x/y"),
        ("6", ""),
    ] {
        let filename = format!("evil-{version}.zip");
        let upload = described(&filename, &sdist(version), attacks, content_type);
        let upload = [
            "summary",
            "author",
            "author_email",
            "license",
            "keywords",
            "maintainer",
            "requires_python",
        ]
        .iter()
        .fold(upload, |upload, key| upload.set(key, attack))
        .set("home_page", "javascript:alert(1)")
        .set("download_url", " java\tscript:alert(1)")
        .set("project_urls", &format!("{attack}, data:text/html,{attack}"))
        .set("requires_dist", attack)
        .set("classifiers", attack)
        .set("provides_extras", attack);
        index.alice().upload("alice/dev", &upload).expect(200);
    }
    index.alice().post("/alice/dev/evil/6/+yank", json!({"reason": attack})).expect(200);
    let status = json!({"status": "deprecated", "reason": attack});
    index.alice().put("/alice/dev/evil/+status", status).expect(200);
    let mut paths =
        vec!["/alice".to_owned(), "/alice/dev".to_owned(), "/alice/dev/evil".to_owned()];
    paths.extend((1..=6).map(|version| format!("/alice/dev/evil/{version}")));
    paths.push("/alice/dev?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&after=%3Cb%3E".to_owned());
    for path in paths {
        let text = index.alice().browser().get(&path).html();
        check_harmless(&text, &path);
    }
}

/// A page is kept for the next visitor, but only while it is up to date, and only for visitors who may see it.
#[test]
fn a_kept_page_is_never_out_of_date() {
    let index = sample();
    let ask = || index.browse("/alice/dev/tool");
    // The index of requirements may be published a moment after the upload; the page is then made again.
    let kept = || index.server.metric("larder_pages_from_memory_total");
    let before = kept();
    wait_until("the page is kept", || {
        ask();
        kept() > before
    });
    let first = ask();
    let tag = first.header("etag").to_owned();
    let again = ask();
    assert_eq!((again.html(), again.header("etag")), (first.html(), &*tag));
    index.anybody().browser().with("If-None-Match", &tag).get("/alice/dev/tool").expect(304);
    for encoding in ["gzip", "zstd"] {
        let encoded = index.anybody().browser().with("Accept-Encoding", encoding);
        let encoded = encoded.get("/alice/dev/tool").expect(200);
        encoded.has("content-encoding", encoding);
        assert!(encoded.body.len() < first.body.len(), "{}", encoded.body.len());
    }
    index.upload("alice/dev", "tool-3.0.zip", &sdist("four"));
    ask().html().says("tool-3.0.zip");
    // The links are those of the server that was asked.
    let elsewhere = index.anybody().browser().with("X-Outside-URL", "https://packages.example");
    let elsewhere = elsewhere.get("/alice/dev/tool").html();
    elsewhere.says("https://packages.example/alice/dev/+simple/");
    ask().html().lacks("packages.example");
    index.alice().patch("/alice/dev", json!({"acl_read": ["alice"]})).expect(200);
    index.alice().browser().get("/alice/dev/tool").html().says("tool-3.0.zip");
    ask().expect_one_of([401, 403, 404]).lacks("tool-3.0.zip");
}
