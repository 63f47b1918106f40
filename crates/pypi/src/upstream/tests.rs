//! Upstream's answers, read and passed on; places of files.

mod odd;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ProjectName;

const SHA256: &str = "aaaabbbbccccddddeeeeffff0000111122223333444455556666777788889999";

fn base() -> Url {
    Url::parse("https://index.example/simple/foo/").expect("a URL")
}

fn page(content_type: &str, body: &str) -> Result<UpstreamPage, PageError> {
    UpstreamPage::parse(content_type, body.as_bytes(), &base())
}

fn json_page(files: Value) -> UpstreamPage {
    let body = json!({"meta": {"api-version": "1.1"}, "name": "foo", "files": files});
    page("application/vnd.pypi.simple.v1+json", &body.to_string()).expect("a page")
}

#[test]
fn json_with_everything() {
    let page = json_page(json!([
        {
            "filename": "foo-1.0-py3-none-any.whl",
            "url": "https://user:secret@files.example/a/foo-1.0-py3-none-any.whl#frag",
            "hashes": {"sha256": SHA256.to_uppercase(), "blake2b": "00ff"},
            "requires-python": ">=3.9",
            "size": 12,
            "upload-time": "2026-01-31T12:00:00.000001Z",
            "yanked": "broken",
            "core-metadata": {"sha256": SHA256},
            "provenance": "https://index.example/integrity/foo",
            "gpg-sig": false,
        },
        {"filename": "foo-1.0.tar.gz", "url": "../../files/foo-1.0.tar.gz", "hashes": {}, "yanked": true,
         "dist-info-metadata": true, "size": null, "provenance": null},
        {"filename": "foo-2.0.tar.gz", "url": "foo-2.0.tar.gz", "hashes": {}, "yanked": false, "core-metadata": false},
        {"filename": "../foo.tar.gz", "url": "https://files.example/foo.tar.gz", "hashes": {}},
        {"filename": "foo-3.0.tar.gz", "url": "file:///etc/passwd", "hashes": {}},
    ]));
    let expected = UpstreamFile {
        filename: "foo-1.0-py3-none-any.whl".into(),
        url: "https://files.example/a/foo-1.0-py3-none-any.whl".into(),
        hashes: vec![("blake2b".into(), "00ff".into()), ("sha256".into(), SHA256.into())],
        size_bytes: Some(12),
        upload_time: Some("2026-01-31T12:00:00.000001Z".into()),
        first_seen: None,
        requires_python: Some(">=3.9".into()),
        yanked: Some("broken".into()),
        core_metadata: Some(CoreMetadata::Sha256(SHA256.into())),
        provenance: Some("https://index.example/integrity/foo".into()),
    };
    assert_eq!(page.files[0], expected);
    let second = &page.files[1];
    assert_eq!(&*second.url, "https://index.example/files/foo-1.0.tar.gz");
    assert_eq!(
        (second.yanked.as_deref(), &second.core_metadata),
        (Some(""), &Some(CoreMetadata::Unhashed))
    );
    let third = &page.files[2];
    assert_eq!(&*third.url, "https://index.example/simple/foo/foo-2.0.tar.gz");
    assert_eq!((&third.yanked, &third.core_metadata), (&None, &None));
    assert_eq!(page.files.len(), 3, "what cannot be served is left out");
}

#[test]
fn other_places_of_a_project() {
    let read = |content_type: &str, body: &str| page(content_type, body).expect("a page").locations;
    let expected = Locations {
        tracks: vec!["https://up.example/simple/foo/".into()],
        alternates: vec![
            "https://one.example/foo/".into(),
            "https://index.example/simple/foo/".into(),
        ],
    };
    let said = json!({
        "meta": {"api-version": "1.2", "tracks": ["https://me:secret@UP.example:443/simple/foo#x", 7, "file:///x"]},
        "name": "foo", "files": [], "alternate-locations": ["https://one.example/foo", "../foo/", "../foo"],
    });
    assert_eq!(read("", &said.to_string()), expected);
    let html = "<meta name='pypi:repository-version' content=1.2><meta name='pypi:tracks' content='https://up.example/simple/foo/'>\
        <meta name='pypi:alternate-locations' content='https://one.example/foo'>\
        <meta name='pypi:alternate-locations' content='../foo/'><meta name='pypi:alternate-locations'>";
    assert_eq!(read("text/html", html), expected);
    // A value of another type is ignored; a value out of bounds is not kept.
    for other in [
        json!(null),
        json!("https://x.example/"),
        json!({"a": ["https://x.example/"]}),
        json!(7),
        json!([[]]),
    ] {
        let said = json!({"meta": {"api-version": "1.2", "tracks": other}, "files": [], "alternate-locations": other});
        assert!(read("", &said.to_string()).is_empty(), "{said}");
    }
    let many: Vec<String> = (0..1000).map(|at| format!("https://x.example/{at}/")).collect();
    let long = vec![format!("https://x.example/{}", "x".repeat(2000))];
    let said = json!({"meta": {"api-version": "1.2", "tracks": many}, "files": [], "alternate-locations": long});
    let places = read("", &said.to_string());
    assert_eq!((places.tracks.len(), places.alternates.len()), (32, 0));
    let html: String =
        many.iter().map(|url| format!("<meta name='pypi:tracks' content='{url}'>")).collect();
    assert_eq!(read("text/html", &format!("<a href=x.zip>x</a>{html}")).tracks.len(), 32);
}

#[test]
fn a_time_at_which_another_larder_first_saw_a_file_is_no_upload_time() {
    let upload_time = |mark: Value| {
        let page = json_page(json!([{
            "filename": "foo-1.0.tar.gz", "url": "foo-1.0.tar.gz", "hashes": {},
            "upload-time": "2026-01-31T12:00:00Z", "_upload-time-from": mark,
        }]));
        page.files[0].upload_time.clone()
    };
    assert_eq!(upload_time(json!("first-seen")), None);
    for other in [json!(null), json!("upstream"), json!(7), json!(["first-seen"])] {
        assert_eq!(upload_time(other.clone()).as_deref(), Some("2026-01-31T12:00:00Z"), "{other}");
    }
}

#[test]
fn what_is_of_another_kind_counts_as_not_said() {
    let page = json_page(json!([{
        "filename": "foo-1.0.tar.gz", "url": "foo-1.0.tar.gz",
        "hashes": {"md5": ["00"], "sha256": SHA256, "sha512": {"x": "00"}},
        "requires-python": [">=3"], "size": {"bytes": 1}, "upload-time": 7, "yanked": [{"why": "x"}],
        "core-metadata": [true], "provenance": {"": 0},
    }]));
    let expected = UpstreamFile {
        filename: "foo-1.0.tar.gz".into(),
        url: "https://index.example/simple/foo/foo-1.0.tar.gz".into(),
        hashes: vec![("sha256".into(), SHA256.into())],
        size_bytes: None,
        upload_time: None,
        first_seen: None,
        requires_python: None,
        yanked: None,
        core_metadata: None,
        provenance: None,
    };
    assert_eq!(page.files, [expected]);
}

#[test]
fn a_page_takes_bounded_memory() {
    let of = |count: usize, versions: usize| {
        let files = vec![r#"{"filename":"a","url":"b"}"#; count].join(",");
        let versions = vec!["0"; versions].join(",");
        format!(r#"{{"meta":{{"api-version":"1.1"}},"versions":[{versions}],"files":[{files}]}}"#)
    };
    let parse = |body: &str, base: &Url| UpstreamPage::parse("", body.as_bytes(), base);
    let links = |count: usize| "<a href=b-1.zip>b</a>".repeat(count);
    for page in [of(FILES_MAX, FILES_MAX), links(FILES_MAX)] {
        assert_eq!(parse(&page, &base()).expect("a page").files.len(), FILES_MAX);
    }
    for page in [of(FILES_MAX + 1, 0), of(190_000, 0), links(FILES_MAX + 1)] {
        let refused = parse(&page, &base()).expect_err("too many");
        let said = "the answer is no page of an index: it has more than 40000 files";
        assert!(refused.to_string().starts_with(said), "{refused}");
    }
    let refused = parse(&of(0, FILES_MAX + 1), &base()).expect_err("too many");
    assert!(refused.to_string().contains("at most 40000 versions"), "{refused}");
    // What is longer on a page counts, and so do versions.
    let yanked = format!(r#"{{"filename":"a","url":"b","yanked":"{}"}}"#, "'".repeat(9_000));
    for (files, is_read) in [(350, true), (400, false)] {
        let files = vec![yanked.as_str(); files].join(",");
        let body = format!(r#"{{"meta":{{"api-version":"1.1"}},"files":[{files}]}}"#);
        assert_eq!(parse(&body, &base()).is_ok(), is_read, "{} bytes", body.len());
    }
    let versions = vec![format!("\"{}\"", "1".repeat(1_000)); 2_100].join(",");
    let body = format!(r#"{{"meta":{{"api-version":"1.1"}},"versions":[{versions}],"files":[]}}"#);
    let refused = parse(&body, &base()).expect_err("too long").to_string();
    assert!(refused.contains("2097152 bytes"), "{refused}");
    // A body that comes piece by piece has no text that would take as much memory.
    let read = |body: String| UpstreamPage::read("", &mut body.as_bytes(), &base());
    let long = "x".repeat(2 << 20);
    let json = format!(r#"{{"meta":{{"api-version":"1.1"}},"x":"{long}","files":[]}}"#);
    let html = format!("<a href=b-1.zip title=\"{}\">b</a>", long.replace("xxx", "x>x"));
    for (body, bytes_max) in [(json, "1048576"), (html, "131072")] {
        let refused = read(body).expect_err("a long text").to_string();
        assert!(refused.contains(&format!("more than {bytes_max} bytes")), "{refused}");
    }
    let depths =
        format!(r#"{{"meta":{{"api-version":"1.1"}},"x":{},"files":[]}}"#, "[".repeat(200));
    assert!(read(depths).expect_err("deep").to_string().contains("deep"));
    // Each relative URL becomes as long as that of its page.
    let long =
        Url::parse(&format!("https://index.example/{}/", "x".repeat(16_000))).expect("a URL");
    let links = "<a href=b.zip>a</a>".repeat(9_000);
    for body in [of(9_000, 0), links] {
        let refused = parse(&body, &long).expect_err("it is too large");
        assert!(refused.to_string().contains("bytes of memory"), "{refused}");
    }
}

#[test]
fn html_with_everything() {
    let body = format!(
        r#"<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.4">
        <meta name="pypi:project-status" content="deprecated"><meta name="pypi:project-status-reason" content="use &lt;bar&gt;">
        <base href="https://files.example/dir/"><script>"<a href='foo-0.0.tar.gz'>"</script></head><body>
        <!-- <a href="foo-0.1.tar.gz">foo-0.1.tar.gz</a> -->
        <A HREF='foo-1.0-py3-none-any.whl#sha256={SHA256}' data-requires-python="&gt;=3.9" data-yanked
           data-core-metadata=sha256={SHA256} data-provenance="/p">foo <b>1.0</b></A>
        <a href="/x/foo-1.0%2Blocal.tar.gz?x=1&amp;y=2#md5=00112233445566778899aabbccddeeff">foo-1.0+local.tar.gz
        <a href="mailto:nobody@example.org">mail</a> <a name="top">no link</a>"#
    );
    let page = page("text/html; charset=utf-8", &body).expect("a page");
    assert_eq!(page.status, Some((StatusMarker::Deprecated, Some("use <bar>".into()))));
    let names: Vec<&str> = page.files.iter().map(|file| &*file.filename).collect();
    assert_eq!(names, ["foo-1.0-py3-none-any.whl", "foo-1.0+local.tar.gz"]);
    let [wheel, sdist] = &page.files[..] else { panic!("{page:?}") };
    assert_eq!(&*wheel.url, "https://files.example/dir/foo-1.0-py3-none-any.whl");
    assert_eq!(wheel.sha256(), Some(SHA256));
    assert_eq!(wheel.requires_python.as_deref(), Some(">=3.9"));
    assert_eq!(wheel.yanked.as_deref(), Some(""));
    assert_eq!(wheel.core_metadata, Some(CoreMetadata::Sha256(SHA256.into())));
    assert_eq!(wheel.provenance.as_deref(), Some("https://files.example/p"));
    assert_eq!(&*sdist.url, "https://files.example/x/foo-1.0%2Blocal.tar.gz?x=1&y=2");
    assert_eq!(sdist.hashes, [("md5".into(), "00112233445566778899aabbccddeeff".into())]);
}

#[test]
fn the_body_decides_what_it_is() {
    let json = r#"{"meta": {"api-version": "1.0"}, "name": "foo", "files": []}"#;
    assert!(page("text/html", json).is_ok());
    assert!(page("", &format!("\u{feff} {json}")).is_ok());
    assert!(page("application/json", "<a href='foo-1.0.tar.gz'>x</a>").is_ok());
    let refused = |body: &str, expected: &str| {
        let error = page("text/plain", body).expect_err(body).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused("", "neither JSON nor HTML");
    refused("gone fishing", "`text/plain`");
    refused("{\"meta\": {\"api-version\": \"1.0\"}, \"files\": [", "EOF");
    refused("{\"meta\": {\"api-version\": \"2.0\"}, \"files\": []}", "`2.0`");
    refused("<html><body><h1>Down for maintenance</h1></body></html>", "without a link");
    refused("<meta name='pypi:repository-version' content='2.0'><a href=x.whl>x</a>", "`2.0`");
    let empty = "<!DOCTYPE html><meta name='pypi:repository-version' content='1.0'>";
    assert_eq!(page("text/html", empty).expect("an empty page"), UpstreamPage::default());
}

#[test]
fn a_list_of_projects() {
    let json = br#"{"meta": {"api-version": "1.1", "_last-serial": 1},
        "projects": [{"_last-serial": 7, "name": "Zope.Interface"}, {"name": "a"}, {"name": "a"}, {"name": ""}, {"name": "n\u00e4me"}, {"name": "b\u002dc"}]}"#;
    let names = UpstreamNames::read("application/json", &mut json.as_slice()).expect("a list");
    assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b-c", "zope-interface"]);
    let html = "<a href='/simple/zope-interface/'>Zope.Interface</a><a href='a/'>a/</a><a href='b-c/'><img></a>";
    let of_html = UpstreamNames::read("text/html", &mut html.as_bytes()).expect("a list");
    assert_eq!(of_html, names);
    for (name, expected) in [
        ("a", true),
        ("b-c", true),
        ("zope-interface", true),
        ("b", false),
        ("", false),
        ("zz", false),
    ] {
        assert_eq!(names.contains(name), expected, "{name}");
    }
    let from = |text: &str| names.from(text).collect::<Vec<_>>();
    assert_eq!(from(""), ["a", "b-c", "zope-interface"]);
    assert_eq!((from("b"), from("b-d")), (vec!["b-c", "zope-interface"], vec!["zope-interface"]));
    for (words, expected) in [
        ("", "a b-c zope-interface"),
        ("a", "a zope-interface"),
        ("e - z", "zope-interface"),
        ("c", "b-c zope-interface"),
        // The end of one name and the start of the next.
        ("cz", ""),
        ("ab", ""),
        ("interfaces", ""),
    ] {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        assert_eq!(names.with(&words).collect::<Vec<_>>().join(" "), expected, "{words:?}");
    }
    assert_eq!(UpstreamNames::default().with(&[]).count(), 0);
    let mut lines = Vec::new();
    names.write_lines(&mut lines).expect("memory");
    assert_eq!(lines, b"a\nb-c\nzope-interface\n");
    assert_eq!(UpstreamNames::from_lines(lines.as_slice()).expect("a list"), names);
    assert_eq!((names.len(), UpstreamNames::default().is_empty()), (3, true));
}

#[test]
fn a_list_that_is_refused() {
    let check = |list: &str, expected: &str| {
        let refused = UpstreamNames::read("", &mut list.as_bytes()).expect_err(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
    };
    let json = |members: &str| format!("{{\"meta\":{{\"api-version\":\"1.0\"}}{members}}}");
    check(&json(""), "missing field `projects`");
    check("{\"projects\":[]}", "missing field `meta`");
    check("{\"meta\":{\"api-version\":\"2.0\"},\"projects\":[]}", "`2.0`");
    check(&json(",\"projects\":[{}]"), "missing field `name`");
    check(&json(",\"projects\":[],\"projects\":[]"), "duplicate field");
    check(&json(",\"projects\":[{\"name\":\"a\""), "EOF");
    check(&(json(",\"projects\":[]") + "x"), "trailing characters");
    check(
        &json(&format!(",\"x\":\"{}\",\"projects\":[]", "x".repeat(2 << 20))),
        "a text of it has",
    );
    // However short they are, and however often one is repeated.
    UpstreamNames::from_lines("a\n".repeat(3_300_000).as_bytes()).expect_err("too many");
}

fn path(text: &str) -> Vec<String> {
    text.split('/').map(str::to_owned).collect()
}

#[test]
fn places_of_files() {
    let page = json_page(json!([
        {"filename": "foo-1.0.tar.gz", "url": "https://files.example/pa%20th/foo-1.0.tar.gz", "hashes": {"sha256": SHA256},
         "core-metadata": true},
        {"filename": "foo-2.0.tar.gz", "url": "http://files.example:8080/x//foo-2.0.tar.gz", "hashes": {"sha256": SHA256}},
        {"filename": "foo-3.0.tar.gz", "url": "https://files.example/get?file=foo-3.0.tar.gz", "hashes": {}},
        {"filename": "foo-4.0.tar.gz", "url": "https://files.example/a+b/foo-4.0.tar.gz", "hashes": {"md5": "00ff"}},
    ]));
    let links: Vec<String> = page.files.iter().map(UpstreamFile::link).collect();
    let expected = [
        "+upstream/files.example/pa%20th/foo-1.0.tar.gz",
        "+f/aaa/abbbbccccdddd/foo-2.0.tar.gz",
        "+e/https_files.example/foo-3.0.tar.gz",
        "+upstream/files.example/a+b/foo-4.0.tar.gz",
    ];
    assert_eq!(links, expected);
    let found = |place: Option<MirrorPath<'_>>| {
        let (file, is_metadata) = page.file_at(&place?)?;
        Some(format!("{}{}", file.filename, if is_metadata { " metadata" } else { "" }))
    };
    let upstream = |text: &str| found(MirrorPath::of_upstream(&path(text)));
    let digest = |text: &str| found(MirrorPath::of_digest(&path(text)));
    let external = |text: &str| found(MirrorPath::of_external(&path(text)));
    assert_eq!(upstream("files.example/pa th/foo-1.0.tar.gz").as_deref(), Some("foo-1.0.tar.gz"));
    assert_eq!(
        upstream("files.example/pa th/foo-1.0.tar.gz.metadata").as_deref(),
        Some("foo-1.0.tar.gz metadata")
    );
    assert_eq!(upstream("other.example/pa th/foo-1.0.tar.gz"), None);
    assert_eq!(upstream("files.example/foo-1.0.tar.gz"), None);
    assert_eq!(digest("aaa/abbbbccccdddd/foo-1.0.tar.gz").as_deref(), Some("foo-1.0.tar.gz"));
    assert_eq!(digest("aaa/abbbbccccdddd/foo-2.0.tar.gz").as_deref(), Some("foo-2.0.tar.gz"));
    assert_eq!(digest("aaa/abbbbccccddde/foo-2.0.tar.gz"), None);
    assert_eq!(
        external("https_files.example_a_b/foo-4.0.tar.gz").as_deref(),
        Some("foo-4.0.tar.gz")
    );
    assert_eq!(external("https_files.example/foo-3.0.tar.gz").as_deref(), Some("foo-3.0.tar.gz"));
}

#[test]
fn few_files_of_one_name_are_looked_through() {
    let file = |at: usize| {
        let url = format!("https://files.example/{at}/foo-1.0.tar.gz");
        json!({"filename": "foo-1.0.tar.gz", "url": url, "hashes": {}})
    };
    let page = json_page((0..=SAME_NAME_MAX).map(file).collect());
    let is_found = |at: usize| {
        let path = path(&format!("files.example/{at}/foo-1.0.tar.gz"));
        page.file_at(&MirrorPath::of_upstream(&path).expect("a place")).is_some()
    };
    assert_eq!((is_found(SAME_NAME_MAX - 1), is_found(SAME_NAME_MAX)), (true, false));
}

#[test]
fn projects_of_filenames() {
    let check = |filename: &str, expected: &[&str]| {
        let found = projects_of(filename);
        assert_eq!(
            found.iter().map(ProjectName::as_str).collect::<Vec<_>>(),
            expected,
            "{filename}"
        );
    };
    check("Foo_Bar-1.0-py3-none-any.whl", &["foo-bar"]);
    check("foo-1.0.tar.gz", &["foo"]);
    check("foo-bar-1.0.tar.gz", &["foo-bar", "foo"]);
    check("foo-2-1.0.tar.gz", &["foo-2", "foo"]);
    check("no archive", &["no-archive"]);
    check(".hidden-1.0.zip", &[]);
    check("foo-bar-1.0.tar.xz", &["foo-bar", "foo"]);
    check("foo-1.0.tzst", &["foo"]);
    check("foo-1.0.unknown", &["foo"]);
    check("foo_bar_1.0.zip", &["foo-bar", "foo-bar-1", "foo", "foo-bar-1-0"]);
    check("foo1.0.zip", &["foo1-0", "foo1", "foo"]);
    check("foo.zip", &["foo"]);
    assert!(projects_of("a-b-c-d-e-f-g-h-i-j-k-l-1.tar.gz").len() <= 8);
}

#[test]
fn a_file_that_is_replaced_under_its_url_is_seen_for_the_first_time() {
    let page = |hashes: &[(&str, &str)], size_bytes| {
        let hashes = hashes.iter().map(|(name, hex)| ((*name).into(), (*hex).into()));
        let file = UpstreamFile {
            filename: "foo-1.0.tar.gz".into(),
            url: "https://files.example/foo-1.0.tar.gz".into(),
            hashes: hashes.collect(),
            size_bytes,
            upload_time: None,
            first_seen: None,
            requires_python: None,
            yanked: None,
            core_metadata: None,
            provenance: None,
        };
        UpstreamPage { files: vec![file], ..UpstreamPage::default() }
    };
    let at = |second| jiff::Timestamp::from_second(second).expect("a time");
    let seen = |before: &UpstreamPage, mut now: UpstreamPage| {
        let mut before = before.clone();
        before.note_first_seen(None, at(1));
        now.note_first_seen(Some(&before), at(2));
        now.files[0].first_seen
    };
    let (one, other) = ("a".repeat(64), "b".repeat(64));
    let known = page(&[("sha256", &one)], Some(7));
    assert_eq!(seen(&known, known.clone()), Some(at(1)));
    assert_eq!(seen(&known, page(&[("md5", "c"), ("sha256", &one)], None)), Some(at(1)));
    assert_eq!(seen(&known, page(&[("sha256", &other)], Some(7))), Some(at(2)));
    assert_eq!(seen(&known, page(&[("sha256", &one)], Some(8))), Some(at(2)));
    // Nothing says that it is still the same one.
    assert_eq!(seen(&known, page(&[], Some(7))), Some(at(2)));
    assert_eq!(seen(&known, page(&[("md5", "c")], Some(7))), Some(at(2)));
    assert_eq!(seen(&page(&[], None), page(&[], None)), Some(at(1)));
    // The same for another process's times; only older ones are taken.
    let older = |seconds: (i64, i64), mut ours: UpstreamPage, mut theirs: UpstreamPage| {
        ours.note_first_seen(None, at(seconds.0));
        theirs.note_first_seen(None, at(seconds.1));
        ours.take_older_first_seen(&theirs);
        ours.files[0].first_seen
    };
    assert_eq!(older((2, 1), known.clone(), known.clone()), Some(at(1)));
    assert_eq!(older((2, 3), known.clone(), known.clone()), Some(at(2)));
    assert_eq!(older((2, 1), known, page(&[("sha256", &other)], Some(7))), Some(at(2)));
}

proptest! {
    #[test]
    fn a_page_is_read_back_as_it_was(
        names in prop::collection::vec(("[a-z]{1,4}", any::<Option<u64>>(), any::<Option<String>>(), any::<bool>()), 0..6),
        reason in any::<Option<String>>(),
    ) {
        let files = names.iter().map(|(name, size_bytes, text, has_metadata)| UpstreamFile {
            filename: format!("{name}-1.tar.gz").into(),
            url: format!("https://files.example/{name}").into(),
            hashes: vec![("sha256".into(), SHA256.into())],
            size_bytes: *size_bytes,
            upload_time: text.is_some().then(|| "2026-01-31T12:00:00.5Z".into()),
            first_seen: text.is_none().then_some(jiff::Timestamp::UNIX_EPOCH),
            requires_python: text.is_some().then(|| ">=3.9, <4".into()),
            yanked: text.clone().map(Into::into),
            core_metadata: has_metadata.then(|| CoreMetadata::Sha256(SHA256.into())),
            provenance: has_metadata.then(|| "https://files.example/p".into()),
        });
        let page = UpstreamPage {
            status: Some((StatusMarker::Archived, reason.as_deref().and_then(one_line))),
            last_serial: files.len().try_into().ok().filter(|it| *it > 0),
            locations: Locations {
                tracks: names.iter().take(1).map(|it| format!("https://a.example/{}/", it.0).into()).collect(),
                alternates: names.iter().skip(1).take(1).map(|it| format!("https://b.example/{}/", it.0).into()).collect(),
            },
            versions: vec!["1".into()],
            files: files.collect(),
            ..UpstreamPage::default()
        };
        let json = page.to_json();
        let read = UpstreamPage::read("", &mut json.as_slice(), &base());
        prop_assert_eq!(UpstreamPage::parse("", &json, &base()), read.clone());
        prop_assert_eq!(read, Ok(page));
    }

    #[test]
    fn no_answer_breaks_the_reader(body in prop::collection::vec(any::<u8>(), 0..200), start in 0..4_usize) {
        let start = ["", "{\"meta\":{\"api-version\":\"1.0\"},", "<a href='", "<"][start];
        let body = [start.as_bytes(), &body].concat();
        _ = UpstreamPage::parse("", &body, &base());
        _ = UpstreamNames::read("", &mut body.as_slice());
    }
}
