//! The serial that upstream gives a page, on pages of the mirror itself.

use super::*;

const HTML_PAGE: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+html");

/// The page of `foo` with a serial in its `meta`, and one in a header.
fn page_of(upstream: &Upstream, in_meta: Option<u64>, in_header: Option<u64>) -> Offer {
    let mut meta = json!({"api-version": "1.1"});
    if let Some(serial) = in_meta {
        meta["_last-serial"] = serial.into();
    }
    let files = json!([file(upstream, WHEEL, b"content")]);
    let page = Offer::json(json!({"meta": meta, "name": "foo", "files": files}).to_string());
    match in_header {
        Some(serial) => page.with(&format!("X-PyPI-Last-Serial: {serial}")),
        None => page,
    }
}

/// The serial in `meta` and in the header; 0 if there is none.
fn serials(index: &Index, stage: &str) -> (u64, u64) {
    let answer = json_page(index.client(), stage, "foo");
    let header = |answer: &Response| {
        answer.find("x-pypi-last-serial").map_or(0, |text| text.parse().expect("a number"))
    };
    let html = index.client().get_with(&format!("/{stage}/+simple/foo/"), &[HTML_PAGE]);
    assert_eq!(header(&html), header(&answer));
    let condition = ("If-None-Match", answer.header("etag"));
    let path = format!("/{stage}/+simple/foo/");
    let confirmed = index.client().get_with(&path, &[JSON_PAGE, condition]);
    assert_eq!((confirmed.status, header(&confirmed)), (304, header(&answer)));
    let absolute = [JSON_PAGE, ("X-Devpi-Absolute-URLs", "1")];
    let absolute = index.client().get_with(&path, &absolute);
    let in_meta = |answer: &Response| answer.json()["meta"]["_last-serial"].as_u64().unwrap_or(0);
    assert_eq!((in_meta(&absolute), header(&absolute)), (in_meta(&answer), header(&answer)));
    (in_meta(&answer), header(&answer))
}

#[test]
fn a_mirrors_own_page_has_upstreams_serial() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    assert_eq!(serials(&index, "alice/up"), (0, 0));
    for (in_meta, in_header, expected) in
        [(Some(5), None, 5), (None, Some(7), 7), (Some(8), Some(9), 9), (Some(0), None, 0)]
    {
        upstream.offer("/simple/foo/", page_of(&upstream, in_meta, in_header));
        assert_eq!(serials(&index, "alice/up"), (expected, expected));
        // Its page changes without the mirror's upstream.
        assert_eq!(serials(&index, "alice/dev"), (0, 0));
    }
}

#[test]
fn a_confirmation_may_bring_a_newer_one() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/foo/", page_of(&upstream, None, Some(3)).tagged("\"foo\""));
    let index = mirror_of(start(), &upstream, json!({}));
    assert_eq!(serials(&index, "alice/up"), (3, 3));
    upstream.offer("/simple/foo/", page_of(&upstream, None, Some(4)).tagged("\"foo\""));
    assert_eq!(serials(&index, "alice/up"), (4, 4));
    let Index { server } = index;
    let index = Index { server: start_in(server.stop(), |_| ()) };
    upstream.break_with(Some(500));
    assert_eq!(serials(&index, "alice/up"), (4, 4), "it is kept with the page");
}

#[test]
fn a_page_whose_files_a_policy_judges_has_none() {
    let upstream = upstream_of(b"content");
    upstream.offer("/simple/foo/", page_of(&upstream, Some(5), None));
    let index = mirror_of(start(), &upstream, json!({"policy_cooldown_days": 7}));
    assert_eq!(serials(&index, "alice/up"), (0, 0));
}
