//! Projects of mirrors as devpi's JSON, as `devpi list` asks for them.

use insta::assert_snapshot;

use super::*;
use crate::asking::{each, texts};
use crate::shown::shown_json;

/// The stage `alice/dev` on a mirror of a project that has a file with a digest and a yanked one without.
fn sample() -> (Upstream, Index) {
    let upstream = upstream_of(b"content");
    let mut undigested = file(&upstream, "foo-2.0.tar.gz", b"two");
    undigested["hashes"] = json!({});
    undigested["yanked"] = json!("broken");
    let files = json!([file(&upstream, WHEEL, b"content"), undigested, {"filename": "no version",
        "url": upstream.url("/files/x"), "hashes": {}}]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer("/files/foo-2.0.tar.gz", Offer::file("two"));
    let index = mirror_of(start(), &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    (upstream, index)
}

#[test]
fn projects_of_mirrors_have_versions_and_links() {
    let (upstream, index) = sample();
    let client = index.client();
    let get = |target: &str| index.anybody().json().get(target);
    let sha256 = Digest::of(b"content").to_string();
    let root = format!("http://{}/alice/up", client.address);
    let place = upstream.host().replace(':', "_");
    each(["alice/up", "alice/dev"], |stage| {
        let all = result(&get(&format!("/{stage}/foo")), "projectconfig");
        let versions: Vec<&String> = all.as_object().expect("an object").keys().collect();
        assert_eq!(versions, ["1.0", "2.0"], "{all}");
        let wheel = format!("{root}/+f/{}/{}/{WHEEL}", &sha256[..3], &sha256[3..16]);
        let expected = json!({
            "name": "foo",
            "version": "1.0",
            "+links": [{"rel": "releasefile", "href": wheel, "hash_spec": format!("sha256={sha256}"),
                "hashes": {"sha256": sha256}, "log": []}],
        });
        assert_eq!(all["1.0"], expected);
        let link = &all["2.0"]["+links"][0];
        let sdist = format!("{root}/+e/http_{place}_files/foo-2.0.tar.gz");
        assert_eq!((&link["href"], &link["yanked"]), (&json!(sdist), &json!("broken")));
        assert_eq!(result(&get(&format!("/{stage}/foo/1.0")), "versiondata"), expected);
        for (url, content) in [(&wheel, "content"), (&sdist, "two")] {
            let path = url.strip_prefix(&format!("http://{}", client.address)).expect("a URL");
            assert_eq!(client.get(path).text(), content);
        }
        assert_eq!(result(&get(&format!("/{stage}/bar")), "projectconfig"), json!({}));
        for missing in ["nowhere", "foo/3.0", "nowhere/1.0"] {
            get(&format!("/{stage}/{missing}")).expect(404);
        }
    });
}

#[test]
fn files_that_a_policy_hides_are_not_in_the_json_and_it_says_so() {
    let (_upstream, index) = sample();
    let get = |target: &str| index.anybody().json().get(target);
    index.alice().patch("/alice/dev", json!({"policy_deny": ["foo<2"]})).expect(200);
    // The policy counts for the link.
    assert_snapshot!("one_is_hidden", shown_json(&get("/alice/dev/foo").json()));
    get("/alice/dev/foo/1.0")
        .tells(403, "foo 1.0 is refused by the policy of alice/dev: denied by `foo<2`");
    let log = index.alice().json().get("/alice/dev/+audit").json();
    let noted = &log["result"]["items"][0];
    assert_eq!((&noted["what"], &noted["rule"]), (&json!("foo 1.0"), &json!("deny")), "{log}");
    index.alice().patch("/alice/dev", json!({"policy_deny": ["foo"]})).expect(200);
    assert_snapshot!("all_are_hidden", shown_json(&get("/alice/dev/foo").json()));
}

#[test]
fn only_a_project_that_was_never_known_is_an_error() {
    let (upstream, index) = sample();
    let get = |target: &str| index.anybody().json().get(target);
    get("/alice/up/foo").expect(200);
    upstream.break_with(Some(500));
    get("/alice/up/foo").expect(200);
    let fresh = start();
    mirror(&fresh, &upstream, json!({}));
    fresh.anybody().json().get("/alice/up/foo").expect(502);
}

#[test]
fn a_project_with_many_files_is_sent_in_portions() {
    let upstream = upstream_of(b"content");
    let name = |number: usize| match number {
        0..400 => format!("foo-1.0-{number}-py3-none-any.whl"),
        number => format!("foo-2.{number}.tar.gz"),
    };
    let files: Vec<Value> = (0..1000).map(|number| file(&upstream, &name(number), b"x")).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = mirror_of(start(), &upstream, json!({"policy_deny": ["foo==2.999"]}));
    let get = |target: &str| index.anybody().json().get(target);
    let links = |data: &Value| texts(&data["+links"], "href");
    let all = get("/alice/up/foo");
    let message = all.json()["message"].clone();
    assert_eq!(message, "1 file is hidden by the policy of alice/up: denied by `foo==2.999`");
    let all = result(&all, "projectconfig");
    let versions = all.as_object().expect("an object");
    assert_eq!(versions.len(), 1 + 599);
    let mut found: Vec<String> = versions.values().flat_map(links).collect();
    found.sort_unstable();
    let mut expected: Vec<String> = (0..999).map(name).collect();
    expected.sort_unstable();
    let names = found.iter().map(|href| href.rsplit('/').next().expect("a name"));
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let one = result(&get("/alice/up/foo/1.0"), "versiondata");
    assert_eq!(one, versions["1.0"]);
    assert_eq!(links(&one).len(), 400);
    assert_eq!((&one["name"], &one["version"]), (&json!("foo"), &json!("1.0")));
    assert_eq!(result(&get("/alice/up/foo/2.500"), "versiondata"), versions["2.500"]);
    get("/alice/up/foo/2.999").expect(403);
    get("/alice/up/foo/3.0").expect(404);
}

#[test]
fn a_version_is_found_however_its_file_writes_it() {
    let upstream = upstream_of(b"content");
    let names = [
        ("1.0+cpu.1", "foo-1.0_cpu.1-py3-none-any.whl"),
        ("1.0", "foo-1.0.tar.gz"),
        ("1.0.post1", "foo-1.0.post1-1-py3-none-any.whl"),
        ("2!1.0", "foo-2!1.0.zip"),
        ("11.0", "foo-11.0.zip"),
    ];
    let files: Vec<Value> = names.iter().map(|(_, name)| file(&upstream, name, b"x")).collect();
    upstream.offer("/simple/foo/", page("foo", json!(files)));
    let index = mirror_of(start(), &upstream, json!({}));
    for (version, name) in names {
        let path = format!("/alice/up/foo/{}", version.replace('+', "%2B"));
        let found = result(&index.anybody().json().get(&path), "versiondata");
        let links = found["+links"].as_array().expect("links");
        let href = links[0]["href"].as_str().expect("a URL");
        assert!(links.len() == 1 && href.replace("%21", "!").ends_with(name), "{found}");
    }
    index.anybody().json().get("/alice/up/foo/1").expect(200);
    index.anybody().json().get("/alice/up/foo/12").expect(404);
}
