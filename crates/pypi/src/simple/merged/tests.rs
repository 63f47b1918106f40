//! Pages with files of upstreams.

use serde_json::json;
use url::Url;

use super::*;
use crate::StageName;
use crate::testing::{World, now, project_name, stage_name};
use crate::upstream::UpstreamPage;

const FORMS: [PageForm; 3] = [PageForm::Html, PageForm::Human, PageForm::Json];

fn world() -> World {
    let mut world = World::new();
    let mirror = json!({"type": "mirror", "mirror_url": "https://upstream.example/simple/"});
    world.create("root/pypi", mirror).create("bob/base", json!({}));
    world.create("alice/dev", json!({"bases": "bob/base,root/pypi"}));
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    world.upload("bob/base", "foo-1.0.tar.gz", "hidden");
    world.upload("bob/base", "foo-1.10+x-py3-none-any.whl", "wheel");
    world.upload("bob/base", "foo-1.9.tar.gz", "nine").register("bob/base", "empty", "1.0");
    world
}

fn upstream(body: &str) -> UpstreamPage {
    let base = Url::parse("https://upstream.example/simple/foo/").expect("a URL");
    UpstreamPage::parse("application/json", body.as_bytes(), &base).expect("a page")
}

fn merged(world: &World, project: &str, page: Option<&UpstreamPage>, form: PageForm) -> String {
    let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
    let own = order.project(project);
    let mirror = world.snapshot.stage("root/pypi").expect("a mirror");
    let upstream: Vec<_> = page.map(|page| UpstreamProject { mirror, page }).into_iter().collect();
    let blocked: Vec<&StageName> = order.mirrors_of(project).blocked;
    let project = project_name(project);
    let judge = Judge::of(&order, &project, now());
    let merged = MergedPage {
        order: &order,
        own: own.as_ref(),
        upstream: &upstream,
        blocked: &blocked,
        apart: &[],
        project: &project,
        judge: judge.as_ref(),
    };
    let reply = merged_page(&merged, form, Links::Depth(4)).reply;
    String::from_utf8(reply.body.to_vec()).expect("text")
}

#[test]
fn the_nearest_file_of_a_name_is_shown() {
    let world = world();
    let page = upstream(
        r#"{"meta": {"api-version": "1.4"}, "project-status": {"status": "archived", "reason": "done"},
        "versions": ["1.0.0", "1.9", "2.0", "3.0"], "files": [
        {"filename": "foo-1.0.tar.gz", "url": "https://files.example/evil/foo-1.0.tar.gz", "hashes": {}},
        {"filename": "foo-2.0.tar.gz", "url": "https://files.example/x/foo-2.0.tar.gz", "hashes": {"md5": "00112233445566778899aabbccddeeff"},
         "size": 7, "upload-time": "2026-01-01T00:00:00Z", "yanked": "it's \"broken\"", "core-metadata": true,
         "requires-python": ">=3", "provenance": "https://files.example/p"}]}"#,
    );
    let json = merged(&world, "foo", Some(&page), PageForm::Json);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["versions"], json!(["1.0", "1.9", "1.10+x", "2.0", "3.0"]));
    assert_eq!(json["project-status"], json!({"status": "archived", "reason": "done"}));
    let names: Vec<&str> = json["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|it| it["filename"].as_str())
        .collect();
    assert_eq!(
        names,
        ["foo-1.0.tar.gz", "foo-1.10+x-py3-none-any.whl", "foo-1.9.tar.gz", "foo-2.0.tar.gz"]
    );
    assert!(
        json["files"][0]["url"].as_str().is_some_and(|url| url.starts_with("../../+f/")),
        "{json}"
    );
    let expected = json!({
        "filename": "foo-2.0.tar.gz", "url": "../../../../root/pypi/+upstream/files.example/x/foo-2.0.tar.gz",
        "hashes": {"md5": "00112233445566778899aabbccddeeff"}, "requires-python": ">=3", "size": 7, "upload-time": "2026-01-01T00:00:00Z",
        "yanked": "it's \"broken\"", "core-metadata": true, "provenance": "https://files.example/p",
    });
    assert_eq!(json["files"][3], expected);
    let html = merged(&world, "foo", Some(&page), PageForm::Html);
    let expected = "root/pypi <a href=\"../../../../root/pypi/+upstream/files.example/x/foo-2.0.tar.gz#md5=00112233445566778899aabbccddeeff\" \
        data-requires-python=\"&gt;=3\" data-yanked=\"it&#x27;s &quot;broken&quot;\" data-core-metadata=\"true\" \
        data-provenance=\"https://files.example/p\">foo-2.0.tar.gz</a><br>\n";
    assert!(html.contains(expected) && !html.contains("evil"), "{html}");
    let human = merged(&world, "foo", Some(&page), PageForm::Human);
    assert!(human.find("foo-2.0.tar.gz") < human.find("foo-1.9.tar.gz"), "newest first: {human}");
}

#[test]
fn a_time_that_upstream_does_not_say_is_when_a_file_was_first_seen_and_marked_so() {
    let world = world();
    let mut page = upstream(
        r#"{"meta": {"api-version": "1.4"}, "files": [
        {"filename": "bar-1.0.tar.gz", "url": "https://files.example/bar-1.0.tar.gz", "hashes": {},
         "upload-time": "2026-01-01T00:00:00Z"},
        {"filename": "bar-2.0.tar.gz", "url": "https://files.example/bar-2.0.tar.gz", "hashes": {}}]}"#,
    );
    page.note_first_seen(None, "2026-01-31T12:00:00.1234567Z".parse().expect("a time"));
    let json = merged(&world, "bar", Some(&page), PageForm::Json);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let said = |at: usize| {
        let file = &json["files"][at];
        (file["upload-time"].as_str(), file["_upload-time-from"].as_str())
    };
    assert_eq!(said(0), (Some("2026-01-01T00:00:00Z"), None));
    assert_eq!(said(1), (Some("2026-01-31T12:00:00.123456Z"), Some("first-seen")));
    let human = merged(&world, "bar", Some(&page), PageForm::Human);
    assert!(human.contains("Of 1 file upstream does not say when it was uploaded: "), "{human}");
    page.files.pop();
    let human = merged(&world, "bar", Some(&page), PageForm::Human);
    assert!(!human.contains("does not say when"), "{human}");
}

#[test]
fn versions_are_those_that_upstream_names_where_it_names_some() {
    let world = world();
    let mut page = upstream(
        r#"{"meta": {"api-version": "1.4"}, "versions": ["1.0", "2.0"], "files": [
        {"filename": "bar-1.0-3.src.rpm", "url": "https://files.example/bar-1.0-3.src.rpm", "hashes": {}},
        {"filename": "bar-1.0.0.tar.gz", "url": "https://files.example/bar-1.0.0.tar.gz", "hashes": {}}]}"#,
    );
    let versions = |page: &UpstreamPage| {
        let json = merged(&world, "bar", Some(page), PageForm::Json);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["versions"].clone()
    };
    assert_eq!(versions(&page), json!(["1.0", "2.0"]));
    // Two spellings of one version are two names for it.
    page.versions.push("1.0.0".into());
    page.versions.push("1.0.0".into());
    assert_eq!(versions(&page), json!(["1.0", "1.0.0", "2.0"]));
    // Neither a name that cannot be compared nor an empty list tells which versions exist.
    for named in [vec!["latest".into()], Vec::new()] {
        page.versions = named;
        let found = versions(&page);
        let has = |version: &str| found.as_array().is_some_and(|all| all.contains(&json!(version)));
        assert!(has("1.0.0") && has("1.0-3"), "{found}");
    }
}

#[test]
fn quarantined_files_are_left_out() {
    let world = world();
    let page = upstream(
        r#"{"meta": {"api-version": "1.4"}, "project-status": {"status": "quarantined"}, "files": [
        {"filename": "bar-2.0.tar.gz", "url": "https://files.example/bar-2.0.tar.gz", "hashes": {}}]}"#,
    );
    for form in FORMS {
        let text = merged(&world, "bar", Some(&page), form);
        assert!(text.contains("quarantined") || form == PageForm::Human, "{text}");
        assert!(!text.contains("bar-2.0"), "{text}");
    }
}

#[test]
fn a_name_of_ours_is_not_asked_upstream() {
    let mut world = world();
    let asked = |world: &World, stage: &str, project: &str| {
        let order = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
        let mirrors = order.mirrors_of(project);
        (mirrors.asked.len(), mirrors.blocked.len())
    };
    assert_eq!(asked(&world, "alice/dev", "foo"), (0, 1), "alice and bob have it");
    assert_eq!(asked(&world, "alice/dev", "bar"), (1, 0), "nobody has it");
    assert_eq!(asked(&world, "root/pypi", "foo"), (1, 0), "the mirror itself is asked");
    assert_eq!(asked(&world, "bob/base", "foo"), (0, 0), "it has no mirror");
    let mut edit = |stage: &str, settings: serde_json::Value| {
        let edit = crate::ConfigEdit::parse(&settings).expect("an edit");
        let changed =
            crate::change::stage::modify(&world.snapshot, &stage_name(stage), &edit, false);
        world.commit(changed.expect("a change").0.expect("a batch")).expect("no conflict");
    };
    edit("alice/dev", json!({"mirror_whitelist": ["foo"]}));
    assert_eq!(
        asked(&world, "alice/dev", "foo"),
        (1, 0),
        "it is on the list of the stage that was asked"
    );
}
