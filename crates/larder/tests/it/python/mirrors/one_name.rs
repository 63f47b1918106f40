//! Several mirrors that have the same name: whether what they have is one project decides, on every path.

use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::{JSON_PAGE, allow_this_machine, json_page, list, place_of};
use crate::asking::{Says as _, each, line, texts};
use crate::python::{Index, sdist};

const NEAR: &str = "foo-1.0-py3-none-any.whl";
const FAR: &str = "foo-99.0-py3-none-any.whl";

/// An upstream of the project `foo` with this file.
fn upstream_of(filename: &str) -> Upstream {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo"]));
    upstream.offer(&format!("/files/{filename}"), Offer::file(filename));
    say(&upstream, filename, json!([]), json!([]));
    upstream
}

/// The file as a page has it, with a provenance.
fn described(upstream: &Upstream, filename: &str) -> Value {
    let mut file = super::file(upstream, filename, filename.as_bytes());
    file["provenance"] = json!(upstream.url(&format!("/files/{filename}.provenance")));
    file
}

/// The status of the provenance of a file of the project `foo`, as the integrity API has it.
fn provenance(index: &Index, version: &str, filename: &str) -> u16 {
    let path = format!("/alice/dev/integrity/foo/{version}/{filename}/provenance");
    index.get(&path).status
}

/// Sets the other places on its page.
fn say(upstream: &Upstream, filename: &str, tracks: Value, alternates: Value) {
    let page = json!({
        "meta": {"api-version": "1.2", "tracks": tracks}, "name": "foo", "alternate-locations": alternates,
        "files": [described(upstream, filename)],
    });
    upstream.offer("/simple/foo/", Offer::json(page.to_string()));
}

/// The stage `alice/dev` with the mirrors `alice/up` and `alice/other`.
fn start(near: &Upstream, far: &Upstream) -> Index {
    let index = Index::start_with(allow_this_machine);
    for (name, upstream) in [("alice/up", near), ("alice/other", far)] {
        let url = upstream.url("/simple");
        index.stage(name, json!({"type": "mirror", "mirror_url": url}));
    }
    // With a policy, files of mirrors are linked below the stage.
    let config = json!({"bases": ["alice/up", "alice/other"], "policy_deny": ["bar"]});
    index.stage("alice/dev", config);
    index
}

/// The files that the page of the stage has, and how far ones answer: the file below the stage, and its provenance.
fn shown(index: &Index, far: &Upstream) -> (Vec<String>, u16, u16) {
    let page = json_page(index.client(), "alice/dev", "foo").expect(200);
    let names = texts(&page.json()["files"], "filename");
    let path = place_of(far, FAR).replace("/alice/up/", "/alice/dev/");
    (names, index.get(&path).status, provenance(index, "99.0", FAR))
}

#[test]
fn a_stranger_elsewhere_slips_in_nothing() {
    let (near, far) = (upstream_of(NEAR), upstream_of(FAR));
    let index = start(&near, &far);
    let apart = (vec![NEAR.to_owned()], 404, 404);
    assert_eq!(shown(&index, &far), apart);
    assert_eq!(provenance(&index, "1.0", NEAR), 302);
    assert_eq!(
        index.notes("alice/dev", "foo"),
        "INFO: No releases from alice/other are included: nothing says that its project of this name is the same (mirror_merge)."
    );
    let devpi = index.client().get_with("/alice/dev/foo", &[("Accept", "application/json")]);
    let versions =
        devpi.json()["result"].as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
    assert_eq!(versions, Some(vec!["1.0".to_owned()]), "{}", devpi.text());
    let near_place = place_of(&near, NEAR).replace("/alice/up/", "/alice/dev/");
    assert_eq!(index.client().get(&near_place).text(), NEAR);
    // The far mirror itself is what it was.
    let own = json_page(index.client(), "alice/other", "foo").json();
    assert_eq!(own["files"][0]["filename"], FAR);
    // The owner of the far project says that it is the same, but the nearest one does not.
    say(&far, FAR, json!([]), json!([near.url("/simple/foo/")]));
    assert_eq!(shown(&index, &far), apart);
}

/// They count at once, on every path.
#[test]
fn the_settings_of_the_stage_say_what_is_merged() {
    let (near, far) = (upstream_of(NEAR), upstream_of(FAR));
    let index = start(&near, &far);
    let apart = (vec![NEAR.to_owned()], 404, 404);
    let both = (vec![NEAR.to_owned(), FAR.to_owned()], 200, 302);
    for (settings, expected) in [
        (json!({"mirror_merge": "all"}), &both),
        (json!({"mirror_merge": "connected"}), &apart),
        (json!({"mirror_whitelist": ["foo"]}), &both),
        (json!({"mirror_whitelist": []}), &apart),
        (json!({"base_pins": ["foo=alice/other", "foo=alice/up"]}), &both),
    ] {
        index.alice().patch("/alice/dev", settings.clone()).expect(200);
        assert_eq!(&shown(&index, &far), expected, "{settings}");
        // Merged releases may belong to another project, whose alternate locations are not this project's.
        let page = json_page(index.client(), "alice/dev", "foo").json();
        assert_eq!(page["alternate-locations"], Value::Null, "{settings}");
    }
    // A base merges for itself.
    index.stage("alice/heir", json!({"bases": ["alice/dev"]}));
    let config = json!({"mirror_merge": "all", "base_pins": []});
    index.alice().patch("/alice/dev", config).expect(200);
    assert_eq!(shown(&index, &far), both);
    let heirs = json_page(index.client(), "alice/heir", "foo").json();
    assert_eq!(heirs["files"].as_array().map(Vec::len), Some(1), "{heirs}");
}

#[test]
fn a_page_without_files_leaves_its_name_to_nobody() {
    let (near, far) = (upstream_of(NEAR), upstream_of(FAR));
    near.offer("/simple/foo/", super::page("foo", json!([])));
    say(&far, FAR, json!(["https://stranger.example/foo/"]), json!([]));
    let index = start(&near, &far);
    assert_eq!(shown(&index, &far), (vec![], 404, 404));
    let page = index.client().get_with("/alice/dev/+simple/foo/", &[JSON_PAGE]).json();
    assert_eq!(page["meta"]["tracks"], Value::Null, "{page}");
    let json = [("Accept", "application/json")];
    let devpi = index.client().get_with("/alice/dev/foo", &json);
    assert_eq!(devpi.json()["result"], json!({}), "{}", devpi.text());
    index.client().get_with("/alice/dev/foo/99.0", &json).expect(404);
    // The nearer upstream does not have the name.
    near.offer("/simple/", list(&["bar"]));
    assert_eq!(shown(&index, &far), (vec![FAR.to_owned()], 200, 302));
}

#[test]
fn what_pages_connect_is_merged_and_passed_on() {
    let (near, far) = (upstream_of(NEAR), upstream_of(FAR));
    let index = start(&near, &far);
    assert_eq!(shown(&index, &far).0, [NEAR]);
    // The page is finished already, and what it was made of changes.
    say(&far, FAR, json!([near.url("/simple/foo")]), json!([]));
    assert_eq!(shown(&index, &far), (vec![NEAR.to_owned(), FAR.to_owned()], 200, 302));
    let tracks = json!([near.url("/simple/foo/")]);
    for stage in ["alice/dev", "alice/other"] {
        let page = index.client().get_with(&format!("/{stage}/+simple/foo/"), &[JSON_PAGE]).json();
        assert_eq!(page["meta"]["tracks"], tracks, "{page}");
        let html = index.page(stage, "foo");
        let meta = format!("<meta name=\"pypi:tracks\" content=\"{}\">", near.url("/simple/foo/"));
        html.says(&meta);
    }
    let places = json!([near.url("/simple/foo/"), far.url("/simple/foo/")]);
    say(&near, NEAR, json!([]), places.clone());
    say(&far, FAR, json!([]), places.clone());
    assert_eq!(shown(&index, &far), (vec![NEAR.to_owned(), FAR.to_owned()], 200, 302));
    let page = json_page(index.client(), "alice/dev", "foo").json();
    assert_eq!((&page["alternate-locations"], &page["meta"]["tracks"]), (&places, &Value::Null));
}

#[test]
fn the_nearest_may_not_fail_for_another_to_count() {
    let (near, far) = (upstream_of(NEAR), upstream_of(FAR));
    let index = start(&near, &far);
    near.break_with(Some(500));
    json_page(index.client(), "alice/dev", "foo").expect(502);
    let path = place_of(&far, FAR).replace("/alice/up/", "/alice/dev/");
    index.get(&path).expect(502);
    assert_eq!(provenance(&index, "99.0", FAR), 502);
}

#[test]
fn owners_say_where_else_their_projects_are() {
    let index = Index::start();
    let config = json!({
        "project_tracks": ["Foo=https://me:secret@up.example/simple/foo"],
        "project_alternate_locations": ["foo=https://one.example/foo/", "bar=https://one.example/bar/"],
    });
    index.stage("alice/base", config);
    index.stage("alice/dev", json!({"bases": ["alice/base"]}));
    index.upload("alice/base", "foo-1.0.zip", &sdist("own"));
    for stage in ["alice/base", "alice/dev"] {
        let page = json_page(index.client(), stage, "foo").json();
        assert_eq!(page["meta"]["tracks"], json!(["https://up.example/simple/foo/"]), "{page}");
        assert_eq!(page["alternate-locations"], json!(["https://one.example/foo/"]), "{page}");
        let html = index.page(stage, "foo");
        html.says("<meta name=\"pypi:alternate-locations\" content=\"https://one.example/foo/\">");
        let human = crate::shown::shown(&index.browse(&format!("/{stage}/foo")).html());
        let [tracks, other] = ["https://up.example/simple/foo/", "https://one.example/foo/"];
        let said = "the project that this one extends or copies, as its owner says";
        assert_eq!(line(&human, tracks), format!("{tracks} <{tracks}> {said}"));
        let said = "another place of this project, as its owner says";
        assert_eq!(line(&human, other), format!("{other} <{other}> {said}"));
    }
    let shown = index.client().get_with("/alice/base", &[("Accept", "application/json")]);
    shown.lacks("secret");
    for wrong in ["foo", "foo=/simple/foo/", "foo=file:///etc", "=https://one.example/"] {
        index.alice().patch("/alice/base", json!({"project_tracks": [wrong]})).expect(400);
    }
    let merge = json!({"mirror_merge": "some"});
    index
        .alice()
        .patch("/alice/base", merge)
        .tells(400, "'mirror_merge' cannot be some: `connected` or `all` was expected");
}

/// `alice/dev` on the index `alice/base`, which removes its releases by a rule, and on a mirror that has `foo` as well.
fn with_an_own_name() -> (Upstream, Index) {
    let upstream = upstream_of(FAR);
    let index = Index::start_with(|config| {
        allow_this_machine(config);
        config.python.retention_interval = std::time::Duration::ZERO;
    });
    let url = upstream.url("/simple");
    index.stage("alice/up", json!({"type": "mirror", "mirror_url": url}));
    index.stage("alice/base", json!({"retention_versions": 0, "retention_days": 0}));
    index.stage("alice/dev", json!({"bases": ["alice/base", "alice/up"]}));
    (upstream, index)
}

/// The status of the project's page on a stage, and how many projects the stage lists.
fn seen(index: &Index, stage: &str) -> (u16, usize) {
    let page = json_page(index.client(), stage, "foo").status;
    let list = index.client().get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).json();
    (page, list["projects"].as_array().expect("a list").len())
}

/// A name stays an index's own after its last release went, by hand or by a rule. The index that has had it may be a base.
#[test]
fn an_emptied_name_is_not_the_mirrors() {
    let (upstream, index) = with_an_own_name();
    let empty_it: [(&str, &dyn Fn()); 4] = [
        ("by its version", &|| {
            index.alice().json().delete("/alice/base/foo/1.0").expect(200);
        }),
        ("by its file", &|| {
            let file = crate::python::path("alice/base", "foo-1.0.zip", &sdist("1"));
            index.alice().json().delete(&file).expect(200);
        }),
        ("whole", &|| {
            index.alice().json().delete("/alice/base/foo").expect(200);
        }),
        ("by a rule", &|| {
            crate::server::wait_for(larder::tasks::retention::apply(&index.server.app));
        }),
    ];
    let pages_asked = || upstream.count("/simple/foo/");
    each(empty_it, |(how, empty)| {
        index.upload("alice/base", "foo-1.0.zip", &sdist("1"));
        assert_eq!(seen(&index, "alice/dev"), (200, 1), "{how}");
        let before = pages_asked();
        empty();
        for stage in ["alice/base", "alice/dev"] {
            assert_eq!(seen(&index, stage), (404, 0), "{how}");
        }
        let far = place_of(&upstream, FAR).replace("/alice/up/", "/alice/dev/");
        assert_eq!(index.client().get(&far).status, 404, "{how}");
        assert_eq!(pages_asked(), before, "{how}: the name was sent upstream");
        index.alice().json().delete("/alice/base/foo").tells(404, "project not found: nothing is left of it but its name, which `release_name=1` releases");
        let kept = index.alice().json().get("/alice/base").json();
        assert_eq!(kept["result"]["held_names"], json!(["foo"]), "{how}");
    });
}

#[test]
fn a_name_is_the_mirrors_when_somebody_who_may_has_released_it() {
    let (_upstream, index) = with_an_own_name();
    let upload = || index.upload("alice/base", "foo-1.0.zip", &sdist("1"));
    upload();
    index.alice().json().delete("/alice/base/foo").expect(200);
    let release = |who: crate::python::Ask, wish: &str| {
        let answer = who.json().delete(&format!("/alice/base/foo?release_name={wish}"));
        answer.status
    };
    assert_eq!(release(index.user("bob"), "1"), 403);
    assert_eq!(release(index.alice(), "perhaps"), 400);
    assert_eq!(seen(&index, "alice/dev").0, 404);
    assert_eq!(release(index.alice(), "1"), 200);
    assert_eq!(seen(&index, "alice/dev"), (200, 1));
    json_page(index.client(), "alice/dev", "foo").says(FAR);
    // With a new release it is the index's own again, and can be removed with its name.
    upload();
    json_page(index.client(), "alice/dev", "foo").lacks(FAR);
    assert_eq!(release(index.alice(), "1"), 200);
    json_page(index.client(), "alice/dev", "foo").says(FAR);
}
