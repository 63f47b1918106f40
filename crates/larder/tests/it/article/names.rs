//! Names in URLs: every spelling of a name is the same article, and no spelling is a way out.

use super::{store, wiki};
use crate::asking::each;

#[test]
fn names_have_spellings() {
    let server = wiki();
    let rows = [
        ("plain", "plain", &["pl%61in", "%70%6C%61%69%6e"][..]),
        ("a%20b/c%20d", "a b/c d", &["a%20b%2Fc%20d", "a%20b%2fc%20d"]),
        ("%E6%97%A5%E6%9C%AC/%F0%9F%98%80", "日本/😀", &["%e6%97%a5%e6%9c%ac%2F%F0%9F%98%80"]),
        // Composed or not, it is the same text.
        ("caf%C3%A9", "café", &["cafe%CC%81"]),
        ("100%25", "100%", &[]),
        ("a+b&c=d;e'f(g)", "a+b&c=d;e'f(g)", &["a%2Bb%26c%3Dd%3Be%27f%28g%29"]),
        ("a%3Fb%23c", "a?b#c", &[]),
        ("2024/may", "2024/may", &["2024%2Fmay"]),
    ];
    each(rows, |(target, name, spellings)| {
        let made = store(&server, &format!("{target}/0"), name.as_bytes());
        assert_eq!(made.json()["name"], name, "{target}");
        let location = made.header("location").to_owned();
        for spelling in spellings.iter().copied().chain([target]) {
            for _ in 0..2 {
                server.get(&format!("/article/{spelling}")).expect(200).is(name);
                server.get(&format!("/article/{spelling}/1")).expect(200).is(name);
            }
            let history = server.get(&format!("/article/{spelling}/history"));
            assert_eq!(
                (history.status, &history.json()["name"]),
                (200, &name.into()),
                "{spelling}"
            );
        }
        assert_eq!(server.get(&location).text(), name, "{location}");
    });
}

/// What no article can be called, as a URL spells it.
const BAD_NAMES: [&str; 44] = [
    "%2e%2e",
    "a/../b",
    "a/%2e%2e/b",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fetc",
    "a/./b",
    "a/.",
    "a//b",
    "a//",
    "a%2F",
    "%2Fa",
    "//a",
    "a%00",
    "a%00b",
    "%00",
    "a%0Ab",
    "a%0D%0Ab",
    "a%7F",
    "a%5Cb",
    "%5c..%5c",
    // Encoded twice.
    "%252e%252e%252f",
    "a%2520b",
    "a%252Fb",
    // Not UTF-8: overlong, a lone surrogate, cut, beyond Unicode.
    "%C0%AF",
    "%C0%AE%C0%AE/a",
    "%E0%80%AF",
    "%ED%A0%80",
    "%E2%82",
    "%F5%80%80%80",
    "%FF",
    // Invisible, or of another direction.
    "a%E2%80%8Bb",
    "a%E2%80%AEb",
    "%EF%BB%BFa",
    "a%C2%A0b",
    "%20a",
    "a%20",
    "a/%20",
    "history",
    "diff",
    "7",
    "a/history/7",
    "a/7/history",
    "a/07",
    "a/4294967296",
];

#[test]
fn what_is_no_name() {
    let server = wiki();
    store(&server, "a/0", b"text");
    each(BAD_NAMES, |bad| {
        let refused = server.get(&format!("/article/{bad}"));
        refused.expect(400).has("content-type", "application/problem+json");
        for (method, suffix) in [("PUT", ""), ("POST", "/0"), ("DELETE", "/1")] {
            let target = format!("/article/{bad}{suffix}");
            let response = server.root().with("If-None-Match", "*").send(method, &target, "x");
            // Some of these paths are a page of an article, which does not support the method.
            response.expect_one_of([400, 405]);
        }
        server.get(&format!("/article/{bad}/history")).expect(400);
    });
    let names = server.get("/articles").json();
    assert_eq!(names["articles"].as_array().map(Vec::len), Some(1), "{names}");
}

#[test]
fn a_name_has_at_most_512_bytes() {
    let server = wiki();
    let long = "x".repeat(513);
    server.get(&format!("/article/{long}")).expect(400);
    server.get(&format!("/article/{}", "%C3%A9".repeat(257))).expect(400);
    store(&server, &format!("{}/0", &long[1..]), b"longest");
    assert_eq!(server.get(&format!("/article/{}", &long[1..])).text(), "longest");
    server.get("/article/").expect(404);
    server.get("/article").expect(404);
    let names = server.get("/articles").json();
    assert_eq!(names["articles"].as_array().map(Vec::len), Some(1), "{names}");
}

/// Bytes that no URL has may be refused by the first parser, but do no harm.
#[test]
fn raw_bytes_in_a_path() {
    let server = wiki();
    for path in
        [&b"/article/caf\xc3\xa9"[..], b"/article/\xff", b"/article/a\x01", b"/article/a\x00b"]
    {
        let request =
            [b"GET ", path, b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"].concat();
        let response = server.exchange(&request, false);
        response.expect_one_of([400, 404]);
    }
    server.get("/articles").expect(200);
}
