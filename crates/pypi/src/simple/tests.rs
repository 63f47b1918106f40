//! Simple pages in HTML and JSON, compared to the letter.

use serde_json::{Value, json};

use super::*;
use crate::change;
use crate::testing::{World, now, project_name, stage_name};

/// A stage over a base and a mirror; the base has the special cases.
fn world() -> World {
    let mut world = World::new();
    let mirror = json!({"type": "mirror", "mirror_url": "https://upstream.example/simple/"});
    world.create("root/pypi", mirror).create("bob/b@se", json!({}));
    world.create("alice/dev", json!({"bases": "bob/b@se,root/pypi"}));
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    world.upload("bob/b@se", "foo-1.0.tar.gz", "hidden");
    world.upload("bob/b@se", "foo-1.10+x-py3-none-any.whl", "wheel");
    world.upload("bob/b@se", "foo-1.9.tar.gz", "nine").upload("bob/b@se", "foo-1.9.doc.zip", "doc");
    world.upload("bob/b@se", "bar-1.0.tar.gz", "bar").register("bob/b@se", "empty", "1.0");
    let (stage, foo) = (stage_name("bob/b@se"), project_name("foo"));
    let reason = Some("it's <b>broken</b> & \"old\"");
    let yank = change::yank::release(&world.snapshot, &stage, &foo, "1.9", reason);
    world.commit(yank.expect("a release").batch().expect("a change")).expect("no conflict");
    world
}

fn page(world: &World, project: &str, form: PageForm, links: Links<'_>) -> String {
    let reply = crate::render(&world.snapshot, "alice/dev", project, form, links, now());
    let reply = reply.expect("a page").reply;
    assert_eq!(reply.content_type, form.content_type());
    String::from_utf8(reply.body.to_vec()).expect("text")
}

/// Expects this text of a page; the digests of test contents are replaced by names.
#[track_caller]
fn check(page: &str, expected: &str) {
    let mut page = page.to_owned();
    for content in ["one", "wheel", "nine", "METADATA"] {
        let digest = record::Digest::of(content.as_bytes()).to_string();
        page = page.replace(&digest, &format!("[{content}]"));
        let directory = format!("{}/{}", &digest[..3], &digest[3..16]);
        page = page.replace(&directory, &format!("({content})"));
    }
    assert_eq!(page, expected, "\n{page}");
}

#[test]
fn html_for_installers() {
    let expected = "<!DOCTYPE html><html lang=\"en\"><head>\
         <meta name=\"pypi:repository-version\" content=\"1.4\">\
         <title>alice/dev: links for foo</title></head><body><h1>alice/dev: links for foo</h1>\n\
         alice/dev <a href=\"../../+f/(one)/foo-1.0.tar.gz#sha256=[one]\">\
         foo-1.0.tar.gz</a><br>\n\
         bob/b@se <a href=\"../../../../bob/b@se/+f/(wheel)/foo-1.10+x-py3-none-any.whl#sha256=[wheel]\" \
         data-requires-python=\"&gt;=3.9\" data-core-metadata=\"sha256=[METADATA]\">\
         foo-1.10+x-py3-none-any.whl</a><br>\n\
         bob/b@se <a href=\"../../../../bob/b@se/+f/(nine)/foo-1.9.tar.gz#sha256=[nine]\" \
         data-yanked=\"it&#x27;s &lt;b&gt;broken&lt;/b&gt; &amp; &quot;old&quot;\">\
         foo-1.9.tar.gz</a><br>\n\
         </body></html>\n";
    check(&page(&world(), "foo", PageForm::Html, Links::Depth(4)), expected);
}

#[test]
fn html_for_people_is_sorted_and_notes_what_is_left_out() {
    let page = page(&world(), "foo", PageForm::Human, Links::Depth(4));
    let (_, body) = page.split_once("</h1>\n").expect("a heading");
    let lead = "<form action=\"../../+simple/foo/refresh\" method=\"post\">\
                <input name=\"refresh\" type=\"submit\" value=\"Refresh mirror links\"></form>\n\
                <p><strong>INFO:</strong> Because this project isn't in the \
                <code>mirror_whitelist</code>, no releases from <strong>root/pypi</strong> are \
                included.</p>\n";
    assert!(body.starts_with(lead), "{body}");
    let names: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_suffix("</a><br>")?.rsplit_once('>'))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(names, ["foo-1.10+x-py3-none-any.whl", "foo-1.9.tar.gz", "foo-1.0.tar.gz"]);
}

#[test]
fn json() {
    let expected = r#"{"meta":{"api-version":"1.4"},"name":"foo","versions":["1.0","1.9","1.10+x"],"files":[
        {"filename":"foo-1.0.tar.gz","url":"../../+f/(one)/foo-1.0.tar.gz","hashes":{"sha256":"[one]"},
        "size":3,"upload-time":"2026-01-31T12:34:56.789000Z"},
        {"filename":"foo-1.10+x-py3-none-any.whl",
        "url":"../../../../bob/b@se/+f/(wheel)/foo-1.10+x-py3-none-any.whl",
        "hashes":{"sha256":"[wheel]"},"requires-python":">=3.9",
        "size":5,"upload-time":"2026-01-31T12:34:56.789000Z",
        "core-metadata":{"sha256":"[METADATA]"}},
        {"filename":"foo-1.9.tar.gz","url":"../../../../bob/b@se/+f/(nine)/foo-1.9.tar.gz",
        "hashes":{"sha256":"[nine]"},"size":4,"upload-time":"2026-01-31T12:34:56.789000Z",
        "yanked":"it's <b>broken</b> & \"old\""}]}"#;
    let page = page(&world(), "foo", PageForm::Json, Links::Depth(4));
    check(&page, &expected.replace("\n        ", ""));
    serde_json::from_str::<Value>(&page).expect("JSON");
}

#[test]
fn a_yank_without_a_reason_counts() {
    let mut world = world();
    let before = page(&world, "foo", PageForm::Html, Links::Depth(4));
    let (stage, foo) = (stage_name("alice/dev"), project_name("foo"));
    let yank = change::yank::file(&world.snapshot, &stage, &foo, "foo-1.0.tar.gz", Some(""));
    world.commit(yank.expect("a file").batch().expect("a change")).expect("no conflict");
    let json: Value =
        serde_json::from_str(&page(&world, "foo", PageForm::Json, Links::Depth(4))).expect("JSON");
    assert_eq!(json["files"][0]["yanked"], json!(true));
    let html = page(&world, "foo", PageForm::Html, Links::Depth(4));
    let name = "foo-1.0.tar.gz</a>";
    let yanked = format!("\" data-yanked=\"\">{name}");
    assert_eq!(html, before.replace(&format!("\">{name}"), &yanked));
}

#[test]
fn a_status_is_shown_and_a_quarantined_project_has_no_files() {
    let mut world = world();
    let pages = |world: &World| {
        [PageForm::Html, PageForm::Json].map(|form| page(world, "foo", form, Links::Depth(4)))
    };
    let [plain_html, plain_json] = pages(&world);
    let (stage, foo) = (stage_name("alice/dev"), project_name("foo"));
    let mut set = |marker, reason: Option<&str>| {
        let status = crate::ProjectStatus { marker, reason: reason.map(Into::into) };
        let decision =
            change::yank::set_project_status(&world.snapshot, &stage, &foo, Some(&status));
        world.commit(decision.expect("a project").batch().expect("a change")).expect("no conflict");
        pages(&world)
    };
    let [html, json] = set(crate::StatusMarker::Deprecated, Some("use \"bar\""));
    let meta = "<meta name=\"pypi:project-status\" content=\"deprecated\">\
                <meta name=\"pypi:project-status-reason\" content=\"use &quot;bar&quot;\">";
    assert_eq!(html, plain_html.replace("<title>", &format!("{meta}<title>")));
    let status = r#""project-status":{"status":"deprecated","reason":"use \"bar\""}"#;
    assert_eq!(json, plain_json.replace(r#""versions":"#, &format!(r#"{status},"versions":"#)));
    let [html, json] = set(crate::StatusMarker::Quarantined, None);
    // The stage's own file is quarantined. It still hides the file of that name in the base.
    let meta = "<meta name=\"pypi:project-status\" content=\"quarantined\">";
    let left: Vec<&str> =
        plain_html.lines().filter(|line| !line.contains("foo-1.0.tar.gz")).collect();
    assert_eq!(html.replace(meta, "").lines().collect::<Vec<_>>(), left);
    let (mut expected, found): (Value, Value) = (
        serde_json::from_str(&plain_json).expect("JSON"),
        serde_json::from_str(&json).expect("JSON"),
    );
    expected["files"].as_array_mut().expect("files").remove(0);
    expected["versions"].as_array_mut().expect("versions").remove(0);
    expected["project-status"] = json!({"status": "quarantined"});
    assert_eq!(found, expected);
}

#[test]
fn a_registered_project_without_files_is_an_empty_page() {
    let page = page(&world(), "empty", PageForm::Json, Links::Depth(4));
    assert_eq!(page, r#"{"meta":{"api-version":"1.4"},"name":"empty","versions":[],"files":[]}"#);
}

/// The targets of the first two links of the page, from `url`.
#[track_caller]
fn leads(links: Links<'_>, own: &str, base: &str) {
    let page = page(&world(), "foo", PageForm::Html, links);
    let hrefs: Vec<&str> = page.split("href=\"").skip(1).collect();
    assert!(hrefs[0].starts_with(own), "{}", hrefs[0]);
    assert!(hrefs[1].starts_with(base), "{}", hrefs[1]);
}

#[test]
fn links_fit_the_url_of_the_page() {
    leads(Links::Depth(4), "../../+f/", "../../../../bob/b@se/+f/");
    leads(Links::Depth(3), "../+f/", "../../../bob/b@se/+f/");
    leads(Links::Depth(2), "+f/", "../../bob/b@se/+f/");
    leads(Links::Depth(1), "dev/+f/", "../bob/b@se/+f/");
    let root = "https://index.example/sub";
    leads(
        Links::Absolute(root),
        "https://index.example/sub/alice/dev/+f/",
        "https://index.example/sub/bob/b@se/+f/",
    );
}

#[test]
fn the_list_of_projects() {
    let world = world();
    let head = "<!DOCTYPE html><html lang=\"en\"><head>\
                <meta name=\"pypi:repository-version\" content=\"1.4\">\
                <title>alice/dev: simple list (including inherited indices)</title></head><body>\
                <h1>alice/dev: simple list (including inherited indices)</h1>\n";
    let html = format!(
        "{head}<a href=\"bar/\">bar</a><br>\n<a href=\"empty/\">empty</a><br>\n\
         <a href=\"foo/\">foo</a><br>\n</body></html>\n"
    );
    assert_eq!(page(&world, "", PageForm::Html, Links::Depth(3)), html);
    let human = format!(
        "{head}<h2>alice/dev (bases: bob/b@se,root/pypi)</h2>\n<a href=\"foo/\">foo</a><br>\n\
         <h2>bob/b@se</h2>\n<a href=\"bar/\">bar</a><br>\n<a href=\"empty/\">empty</a><br>\n\
         <h2>root/pypi</h2>\n</body></html>\n"
    );
    assert_eq!(page(&world, "", PageForm::Human, Links::Depth(3)), human);
    assert_eq!(
        page(&world, "", PageForm::Json, Links::Depth(3)),
        r#"{"meta":{"api-version":"1.4"},"projects":[{"name":"bar"},{"name":"empty"},{"name":"foo"}]}"#
    );
    let elsewhere = [
        (Links::Depth(2), "+simple/foo/"),
        (Links::Depth(1), "dev/+simple/foo/"),
        (Links::Absolute("http://h"), "http://h/alice/dev/+simple/foo/"),
    ];
    for (links, href) in elsewhere {
        let page = page(&world, "", PageForm::Html, links);
        let prefix = href.strip_suffix("foo/").expect("it ends so");
        assert_eq!(page, html.replace("href=\"", &format!("href=\"{prefix}")));
    }
}
