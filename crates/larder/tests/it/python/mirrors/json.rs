//! Projects of mirrors as devpi's JSON, as `devpi list` asks for them.

use super::*;

#[test]
fn projects_of_mirrors_have_versions_and_links() {
    let upstream = upstream_of(b"content");
    let mut undigested = file(&upstream, "foo-2.0.tar.gz", b"two");
    undigested["hashes"] = json!({});
    undigested["yanked"] = json!("broken");
    let files = json!([file(&upstream, WHEEL, b"content"), undigested, {"filename": "no version",
        "url": upstream.url("/files/x"), "hashes": {}}]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer("/files/foo-2.0.tar.gz", Offer::file("two"));
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let client = index.client();
    let get = |target: &str| index.anybody().json().get(target);
    let sha256 = Digest::of(b"content").to_string();
    let root = format!("http://{}/alice/up", client.address);
    let place = upstream.host().replace(':', "_");
    for stage in ["alice/up", "alice/dev"] {
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
            assert_eq!(get(&format!("/{stage}/{missing}")).status, 404, "{stage} {missing}");
        }
    }
    // What a policy hides is hidden here, too.
    let denied = index.alice().send("PATCH", "/alice/dev", json!({"policy_deny": ["foo<2"]}));
    assert_eq!(denied.status, 200, "{}", denied.text());
    let left = result(&get("/alice/dev/foo"), "projectconfig");
    assert_eq!(left.as_object().expect("an object").keys().collect::<Vec<_>>(), ["2.0"]);
    let href = left["2.0"]["+links"][0]["href"].as_str().expect("a URL");
    assert!(href.contains("/alice/dev/+e/"), "the policy counts for the link: {href}");
    assert_eq!(get("/alice/dev/foo/1.0").status, 404);
    // Only what was never known is an error.
    upstream.break_with(Some(500));
    assert_eq!(get("/alice/up/foo").status, 200);
    let fresh = start();
    mirror(&fresh, &upstream, json!({}));
    let failed = fresh.anybody().json().get("/alice/up/foo");
    assert_eq!(failed.status, 502, "{}", failed.text());
}
