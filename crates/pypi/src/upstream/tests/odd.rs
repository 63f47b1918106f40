//! What upstreams say wrongly, or in a way that few readers understand.

use super::*;

fn html_page(body: &str) -> UpstreamPage {
    page("text/html", body).expect(body)
}

#[test]
fn times_that_no_installer_reads_count_as_unknown() {
    let check = |text: Value, expected: Option<&str>| {
        let page = json_page(json!([
            {"filename": "foo-1.0.zip", "url": "foo-1.0.zip", "hashes": {}, "upload-time": text}
        ]));
        assert_eq!(page.files[0].upload_time.as_deref(), expected, "{text}");
        let Some(text) = text.as_str() else { return };
        let page = html_page(&format!("<a href=foo-1.0.zip data-upload-time='{text}'>foo</a>"));
        assert_eq!(page.files[0].upload_time.as_deref(), expected, "{text}");
    };
    for plain in ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.1Z", "2026-01-31T12:00:00.000001Z"] {
        check(json!(plain), Some(plain));
    }
    for (odd, repaired) in [
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000000Z"),
        ("2026-01-31 12:00:00z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456Z"),
        (" 2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
    ] {
        check(json!(odd), Some(repaired));
    }
    for bad in [
        "",
        "2026-01-31T12:00:00",
        "2026-01-31",
        "2026-13-02T00:00:00Z",
        "yesterday",
        "-001000-01-01T00:00:00Z",
    ] {
        check(json!(bad), None);
    }
    check(json!(1_700_000_000), None);
}

#[test]
fn only_digests_that_can_be_right_are_passed_on() {
    let page = json_page(json!([{"filename": "foo-1.0.zip", "url": "foo-1.0.zip", "hashes": {
        "sha256": "00ff", "md5": SHA256, "SHA512": "0f".repeat(64), "blake2b": "00F", "sha3_256": "zz",
        "blake2s": "00FF",
    }}]));
    let mut found = page.files[0].hashes.clone();
    found.sort();
    let expected = [("blake2s", "00ff"), ("sha512", &*"0f".repeat(64))];
    assert_eq!(found, expected.map(|(name, hex)| (name.into(), hex.into())));
    for (fragment, expected) in [
        (format!("sha256={SHA256}"), Some(SHA256)),
        (format!("sha256%3D{SHA256}"), Some(SHA256)),
        (format!("egg=foo-1.0&amp;SHA256={}", SHA256.to_uppercase()), Some(SHA256)),
        (format!("sha256={SHA256}0"), None),
        (format!("sha1={SHA256}"), None),
        ("sha256=".to_owned(), None),
    ] {
        let page = html_page(&format!("<a href='foo-1.0.zip#{fragment}'>foo</a>"));
        assert_eq!(page.files[0].sha256(), expected, "{fragment}");
        assert_eq!(page.files[0].hashes.is_empty(), expected.is_none(), "{fragment}");
    }
}

#[test]
fn mistakes_that_hide_a_file_from_installers_are_mended() {
    for (text, expected) in [
        (">=3.9,<4", ">=3.9,<4"),
        (" >=3.9 , <4", " >=3.9 , <4"),
        ("&gt;=3.9,&lt;4", ">=3.9,<4"),
        (">=3.9,", ">=3.9"),
        (",>=3.9,, !=3.10.*,", ">=3.9,!=3.10.*"),
    ] {
        let page = json_page(json!([
            {"filename": "foo-1.0.zip", "url": "foo-1.0.zip", "hashes": {}, "requires-python": text}
        ]));
        assert_eq!(page.files[0].requires_python.as_deref(), Some(expected), "{text}");
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let page =
            html_page(&format!("<a href=foo-1.0.zip data-requires-python='{escaped}'>foo</a>"));
        assert_eq!(page.files[0].requires_python.as_deref(), Some(expected), "{escaped}");
    }
}

#[test]
fn the_declared_charset_counts() {
    let check = |content_type: &str, head: &str, reason: &[u8], expected: &str| {
        let start = format!("<html><head>{head}</head><a href=foo-1.0.zip data-yanked='");
        let body = [start.as_bytes(), reason, b"'>foo</a>"].concat();
        let page = UpstreamPage::parse(content_type, &body, &base()).expect("a page");
        assert_eq!(page.files[0].yanked.as_deref(), Some(expected), "{content_type} {head}");
    };
    let (latin, utf_8) = (b"d\xe9fectueux", "défectueux".as_bytes());
    for (content_type, head) in [
        ("text/html; charset=iso-8859-1", ""),
        ("text/html; Charset=\"ISO-8859-1\"; x=y", ""),
        ("text/html", "<meta charset=latin1>"),
        ("text/html", "<META http-equiv=Content-Type content='text/html; charset=windows-1252'>"),
        ("text/html; charset=unknown", "<meta charset='iso-8859-1'>"),
    ] {
        check(content_type, head, latin, "défectueux");
    }
    for (content_type, head) in [
        ("text/html; charset=utf-8", "<meta charset=latin1>"),
        ("text/html", ""),
        ("text/html; charset=unknown", ""),
        ("text/html", "<meta charset=utf-16>"),
    ] {
        check(content_type, head, utf_8, "défectueux");
    }
}

#[test]
fn links_that_are_no_release_of_the_project_are_no_files() {
    let mut page = html_page(
        "<a href=foo-1.0.tar.xz>foo</a><a href=foo-1.0.tar.xz.asc>signature</a><a href=../>up</a>\
        <a href=https://x.example/foo-2.0.zip rel='homepage nofollow'>home</a><a href=bar-1.0.zip>bar</a>\
        <a href=foobar-1.0.zip>foobar</a><a href=https://x.example/>x</a><a href='?C=N'>Name</a>\
        <a href=foo-1.0-py3-none-any.whl rel=internal>foo</a><a href=FOO.zip>foo</a>",
    );
    page.keep_files_of(&"foo".parse().expect("a name"));
    let names: Vec<&str> = page.files.iter().map(|file| &*file.filename).collect();
    assert_eq!(names, ["foo-1.0.tar.xz", "foo-1.0-py3-none-any.whl", "FOO.zip"]);
}

#[test]
fn a_page_to_log_in_is_no_page() {
    let login = "<form action=/login><input name=user><input type=Password></form>\
        <a href=/forgot>Forgot?</a>";
    let single_sign_on = "<title>Sign in</title><a href=https://sso.example/start>Sign in</a>";
    let titled = format!("<title>Package Index</title>{login}");
    for body in [login, single_sign_on, &titled] {
        let refused = page("text/html", body).expect_err(body).to_string();
        assert_eq!(
            refused,
            "the answer is no page of an index: HTML without a link to a file, and without the `pypi:repository-version` of an empty page"
        );
    }
    for body in [login, &titled] {
        assert!(UpstreamNames::read("text/html", &mut body.as_bytes()).is_err(), "{body}");
    }
    let directory = "<html><title>Index of /simple/foo/</title><h1>Index</h1><a href='../'>../</a>";
    for body in [directory, "<h1>Links for foo</h1>"] {
        assert_eq!(html_page(body).files, []);
    }
}

#[test]
fn an_index_without_projects_has_a_list() {
    for body in [
        "<!DOCTYPE html><html><head><title>Simple Index</title></head><body><h1>Simple Index</h1></body></html>",
        "<html><head><title>Directory listing for /simple/</title></head><body><ul></ul></body></html>",
        "<meta name='pypi:repository-version' content=1.0>",
    ] {
        let names = UpstreamNames::read("text/html", &mut body.as_bytes()).expect(body);
        assert!(names.is_empty(), "{body}");
    }
    let down = b"<html><title>Maintenance</title><h1>We are back soon</h1></html>";
    assert!(UpstreamNames::read("text/html", &mut down.as_slice()).is_err());
}
