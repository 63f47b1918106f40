//! Files that upstream replaces under their URLs, and mirrors that are made anew under their names.

use super::*;

/// A wheel with this content, metadata that names no digest, and a file without any digest.
fn offer(upstream: &Upstream, content: &str, has_digest: bool) {
    let mut wheel = file(upstream, WHEEL, content.as_bytes());
    wheel["core-metadata"] = json!(true);
    if !has_digest {
        wheel["hashes"] = json!({});
        wheel["size"] = json!(null);
    }
    upstream.offer("/simple/foo/", page("foo", json!([wheel])));
    let tag = format!("\"{content}\"");
    upstream.offer(&format!("/files/{WHEEL}"), Offer::file(content).tagged(&tag));
    let metadata = format!("Name: foo\nSummary: {content}\n");
    upstream.offer(&format!("/files/{WHEEL}.metadata"), Offer::file(metadata).tagged(&tag));
}

fn refresh(index: &Index) {
    index.alice().post("/alice/up/+simple/foo/refresh", json!({})).expect(302);
}

/// Whether the file and its metadata are those of `content`, for a direct link, and for one that a policy judges.
#[track_caller]
fn check(index: &Index, upstream: &Upstream, content: &str) {
    let place = place_of(upstream, WHEEL);
    for stage in ["alice/up", "alice/judged"] {
        let place = place.replace("alice/up", stage);
        index.get(&place).expect(200).is(content);
        let metadata = format!("Name: foo\nSummary: {content}\n");
        index.get(&format!("{place}.metadata")).expect(200).is(metadata);
    }
}

fn start_judged(upstream: &Upstream, settings: Value) -> Index {
    let index = mirror_of(fresh_for_long(), upstream, settings);
    index.stage("alice/judged", json!({"bases": ["alice/up"], "policy_deny": ["other"]}));
    index
}

#[test]
fn metadata_is_replaced_with_its_wheel() {
    let upstream = upstream_of(b"content");
    offer(&upstream, "one", true);
    let index = start_judged(&upstream, json!({}));
    check(&index, &upstream, "one");
    offer(&upstream, "two", true);
    check(&index, &upstream, "one");
    refresh(&index);
    check(&index, &upstream, "two");
    let metadata = format!("/files/{WHEEL}.metadata");
    let before = upstream.count(&metadata);
    refresh(&index);
    check(&index, &upstream, "two");
    assert_eq!(upstream.count(&metadata), before, "the wheel is still the same");
}

#[test]
fn what_has_no_digest_is_confirmed_with_its_page() {
    let upstream = upstream_of(b"content");
    offer(&upstream, "one", false);
    let index = start_judged(&upstream, json!({}));
    check(&index, &upstream, "one");
    let path = format!("/files/{WHEEL}");
    let before = upstream.count(&path);
    check(&index, &upstream, "one");
    assert_eq!(upstream.count(&path), before, "its page is fresh");
    refresh(&index);
    check(&index, &upstream, "one");
    assert_eq!(upstream.count(&path), before + 1);
    let asked = upstream.requests();
    let last = asked.iter().rfind(|request| request.path == path).expect("a request");
    assert_eq!(last.header("if-none-match"), "\"one\"");
    offer(&upstream, "two", false);
    refresh(&index);
    check(&index, &upstream, "two");
    // What cannot be confirmed now stays.
    refresh(&index);
    for status in [500, 404] {
        upstream.offer(&path, Offer::status(status));
        upstream.offer(&format!("{path}.metadata"), Offer::status(status));
        check(&index, &upstream, "two");
    }
    let offline = json!({"mirror_offline": true});
    index.alice().patch("/alice/up", offline).expect(200);
    check(&index, &upstream, "two");
}

#[test]
fn without_a_tag_the_date_confirms_it() {
    let upstream = upstream_of(b"content");
    let unhashed =
        json!({"filename": WHEEL, "url": upstream.url(&format!("/files/{WHEEL}")), "hashes": {}});
    upstream.offer("/simple/foo/", page("foo", json!([unhashed])));
    let path = format!("/files/{WHEEL}");
    let date = "Sat, 31 Jan 2026 12:00:00 GMT";
    upstream.offer(&path, Offer::file("one").with(&format!("Last-Modified: {date}")));
    let index = mirror_of(start(), &upstream, json!({}));
    let get = || index.get(&place_of(&upstream, WHEEL)).text();
    assert_eq!(get(), "one");
    upstream.offer(&path, Offer::file("two"));
    assert_eq!(get(), "two");
    let asked = upstream.requests();
    let last = asked.iter().rfind(|request| request.path == path).expect("a request");
    assert_eq!(last.header("if-modified-since"), date);
}

#[test]
fn a_file_with_another_digest_than_sha256_is_replaced_with_its_page() {
    let upstream = upstream_of(b"content");
    let offer = |content: &str, sha512: &str| {
        let url = upstream.url(&format!("/files/{WHEEL}"));
        let said = json!({"filename": WHEEL, "url": url, "hashes": {"sha512": sha512}});
        upstream.offer("/simple/foo/", page("foo", json!([said])));
        upstream.offer(&format!("/files/{WHEEL}"), Offer::file(content));
    };
    let index = mirror_of(fresh_for_long(), &upstream, json!({}));
    let get = || index.get(&place_of(&upstream, WHEEL)).text();
    offer("abc", ABC);
    assert_eq!(get(), "abc");
    offer("", EMPTY);
    assert_eq!(get(), "abc");
    refresh(&index);
    assert_eq!(get(), "");
}

const ABC: &str = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
    2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
const EMPTY: &str = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
    47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";

#[test]
fn a_mirror_that_is_made_anew_begins_empty() {
    let (upstream, index) = mirroring(b"content", fresh_for_long(), json!({}));
    json_page(index.client(), "alice/up", "foo").expect(200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    // A change of a setting keeps what is known.
    let patch = json!({"title": "another"});
    index.alice().patch("/alice/up", patch).expect(200);
    upstream.break_with(Some(500));
    json_page(index.client(), "alice/up", "foo").expect(200);
    for settings in [json!({}), json!({"title": "the third"})] {
        index.alice().delete("/alice/up").done();
        upstream.break_with(None);
        mirror(&index, &upstream, settings);
        upstream.break_with(Some(500));
        json_page(index.client(), "alice/up", "foo").expect(502);
        index.get(&place_of(&upstream, WHEEL)).expect(502);
        upstream.break_with(None);
        json_page(index.client(), "alice/up", "foo").expect(200);
        assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
        let patch = json!({"title": "kept"});
        index.alice().patch("/alice/up", patch).expect(200);
        upstream.break_with(Some(500));
        json_page(index.client(), "alice/up", "foo").expect(200);
    }
}
