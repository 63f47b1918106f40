//! Mirrors whose upstream is not asked, by their own setting or by the server's.

use super::*;
use crate::asking::Says as _;

#[test]
fn an_offline_mirror_serves_what_is_known() {
    let upstream = upstream_of(b"content");
    let later = "foo-2.0.tar.gz";
    let files = json!([file(&upstream, WHEEL, b"content"), file(&upstream, later, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer(&format!("/files/{later}"), Offer::file("two"));
    // Whatever is known would have to be confirmed for each request.
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    let client = index.client();
    assert!(json_page(client, "alice/dev", "foo").find("warning").is_none());
    assert_eq!(client.get(&place_of(&upstream, WHEEL)).text(), "content");
    index.alice().patch("/alice/up", json!({"mirror_offline": true})).expect(200);
    let asked = upstream.requests().len();

    for stage in ["alice/up", "alice/dev"] {
        let known = json_page(client, stage, "foo").expect(200);
        assert_eq!(known.json()["files"][1]["filename"], later);
        assert!(known.header("warning").starts_with("112 "), "{:?}", known.headers);
        known.header("cache-control").says("no-store");
        let list = client.get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).expect(200);
        assert!(list.header("warning").starts_with("112 "), "{:?}", list.headers);
        // The list says that the project does not exist; of a project on the list, nothing is known.
        json_page(client, stage, "nowhere").expect(404);
        json_page(client, stage, "bar").expect(504).says("mirror_offline=true");
    }
    assert_eq!(client.get(&place_of(&upstream, WHEEL)).text(), "content");
    for answer in [
        client.get(&place_of(&upstream, later)),
        client.anybody().send("HEAD", &place_of(&upstream, later), ()),
    ] {
        answer.check_status(504);
    }
    let refused = index.alice().post("/alice/up/+simple/foo/refresh", json!({}));
    refused.expect(504).says("it is not asked (mirror_offline=true); the last good page");
    assert_eq!(upstream.requests().len(), asked, "upstream is not asked");

    index.alice().patch("/alice/up", json!({"mirror_offline": false})).expect(200);
    assert_eq!(client.get(&place_of(&upstream, later)).text(), "two");
    assert!(json_page(client, "alice/dev", "foo").find("warning").is_none());
    json_page(client, "alice/dev", "bar").expect(200);
}

#[test]
fn a_cache_is_served_offline_after_a_restart() {
    let upstream = upstream_of(b"content");
    let directory = start_with_root_pypi(&upstream).stop();
    let asked = upstream.requests().len();
    let server = start_in(directory, |config| config.python.mirrors_offline = true);
    let page = json_page(server.client, "root/pypi", "foo").expect(200);
    assert!(page.header("warning").starts_with("112 "), "{:?}", page.headers);
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    json_page(server.client, "root/pypi", "bar").expect(504).says("python.mirrors_offline=true");
    server.get("/readyz?verbose").says("no upstream is asked");
    assert_eq!(upstream.requests().len(), asked, "upstream is not asked");
}
