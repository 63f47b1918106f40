//! Mirrors whose upstream is not asked, by their own setting or by the server's.

use super::*;

const LATER: &str = "foo-2.0.tar.gz";

/// A mirror that knows the page of `foo` and one of its two files, and is not asked any more; and how often it was.
fn offline() -> (Upstream, Index, usize) {
    let upstream = upstream_of(b"content");
    let files = json!([file(&upstream, WHEEL, b"content"), file(&upstream, LATER, b"two")]);
    upstream.offer("/simple/foo/", page("foo", files));
    upstream.offer(&format!("/files/{LATER}"), Offer::file("two"));
    // Whatever is known would have to be confirmed for each request.
    let index = mirror_of(start(), &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    json_page(index.client(), "alice/dev", "foo").expect(200).has("warning", "");
    index.get(&place_of(&upstream, WHEEL)).is("content");
    index.alice().patch("/alice/up", json!({"mirror_offline": true})).expect(200);
    let asked = upstream.requests().len();
    (upstream, index, asked)
}

#[track_caller]
fn check_stale(answer: &Response) {
    let warning = answer.header("warning");
    assert!(warning.starts_with("112 "), "{:?}", answer.headers);
}

#[test]
fn an_offline_mirror_serves_what_is_known() {
    let (upstream, index, asked) = offline();
    let client = index.client();
    for stage in ["alice/up", "alice/dev"] {
        let known = json_page(client, stage, "foo").expect(200);
        assert_eq!(known.json()["files"][1]["filename"], LATER);
        known.has("cache-control", "max-age=0, must-revalidate, no-cache, no-store");
        check_stale(&known);
        let list = client.get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).expect(200);
        check_stale(&list);
    }
    client.get(&place_of(&upstream, WHEEL)).is("content");
    assert_eq!(upstream.requests().len(), asked, "upstream is not asked");
}

/// The list says that a project does not exist; of a project on the list, nothing is known.
#[test]
fn an_offline_mirror_says_what_it_does_not_know() {
    let (upstream, index, asked) = offline();
    let client = index.client();
    for stage in ["alice/up", "alice/dev"] {
        json_page(client, stage, "nowhere").expect(404);
        json_page(client, stage, "bar").tells(504, "the mirror alice/up has no usable answer from its upstream: this was never fetched, and the upstream is not asked (mirror_offline=true)");
    }
    for method in ["GET", "HEAD"] {
        client.anybody().send(method, &place_of(&upstream, LATER), ()).expect(504);
    }
    let refused = index.alice().post("/alice/up/+simple/foo/refresh", json!({}));
    refused.tells(504, "the mirror alice/up has no usable answer from its upstream: it is not asked (mirror_offline=true); the last good page stays, as confirmed TIME");
    assert_eq!(upstream.requests().len(), asked, "upstream is not asked");
}

#[test]
fn a_mirror_that_was_offline_is_asked_again() {
    let (upstream, index, _) = offline();
    index.alice().patch("/alice/up", json!({"mirror_offline": false})).expect(200);
    index.get(&place_of(&upstream, LATER)).is("two");
    json_page(index.client(), "alice/dev", "foo").expect(200).has("warning", "");
    json_page(index.client(), "alice/dev", "bar").expect(200);
}

#[test]
fn a_cache_is_served_offline_after_a_restart() {
    let upstream = upstream_of(b"content");
    let directory = start_with_root_pypi(&upstream).stop();
    let asked = upstream.requests().len();
    let server = start_in(directory, |config| config.python.mirrors_offline = true);
    let page = json_page(server.client, "root/pypi", "foo").expect(200);
    check_stale(&page);
    assert_eq!(server.get(&root_place_of(&upstream, WHEEL)).text(), "content");
    json_page(server.client, "root/pypi", "bar").tells(504, "the mirror root/pypi has no usable answer from its upstream: this was never fetched, and the upstream is not asked (python.mirrors_offline=true)");
    assert_eq!(
        server.get("/readyz?verbose").line("[+] mirrors"),
        "[+] mirrors: no upstream is asked (python.mirrors_offline)"
    );
    assert_eq!(upstream.requests().len(), asked, "upstream is not asked");
}
