//! Files of mirrors: requested once, passed on while they arrive, and kept only if they are what the page says.

use std::io::{Read as _, Write as _};

use super::*;

/// Expected where a file that was not checked may not be whole.
const LARGE: usize = 3 << 20;

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

/// Everything that comes for this request, whole or not.
fn raw(client: Client, target: &str, header: &str) -> Vec<u8> {
    let mut stream = client.connect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut bytes = Vec::new();
    // Bytes before a reset count.
    _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn many_clients_make_one_request() {
    let content = large();
    let (upstream, index) = mirroring(&content, fresh_for_long(), json!({}));
    let client = index.client();
    upstream.hold("/simple/foo/");
    let clients: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || json_page(client, "alice/up", "foo"))).collect();
    upstream.wait_for("/simple/foo/", 1);
    upstream.release("/simple/foo/");
    for client in clients {
        client.join().expect("an answer").expect(200);
    }
    assert_eq!((upstream.count("/simple/"), upstream.count("/simple/foo/")), (1, 1));

    let path = format!("/files/{WHEEL}");
    upstream.offer(&path, Offer::file(content.clone()).held_after(1 << 20));
    upstream.hold(&path);
    let target = place_of(&upstream, WHEEL);
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let target = target.clone();
            std::thread::spawn(move || client.get(&target))
        })
        .collect();
    upstream.wait_for(&path, 1);
    upstream.release(&path);
    for client in clients {
        let answer = client.join().expect("an answer").expect(200);
        assert!(answer.body == content, "the file is whole");
    }
    assert_eq!(upstream.count(&path), 1);
    assert!(client.get(&target).body == content);
    assert_eq!(upstream.count(&path), 1, "it is kept");
}

#[test]
fn the_first_client_reads_while_the_file_arrives() {
    let content = large();
    let upstream = upstream_of(&content);
    let path = format!("/files/{WHEEL}");
    upstream.offer(&path, Offer::file(content.clone()).held_after(2 << 20));
    upstream.hold(&path);
    let index = mirror_of(start(), &upstream, json!({}));
    let target = place_of(&upstream, WHEEL);
    let mut stream = index.connect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    // This many bytes arrive before upstream sends the rest.
    let mut first = vec![0; 1 << 20];
    stream.read_exact(&mut first).expect("bytes");
    let part = index.client().get_with(&target, &[("Range", "bytes=1000-1999")]).expect(206);
    part.has("content-range", &*format!("bytes 1000-1999/{LARGE}"));
    assert!(part.body == content[1000..2000], "a part is served as soon as its bytes are there");
    upstream.release(&path);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let answer = [first, rest].concat();
    assert!(answer.ends_with(&content), "it is whole");
    assert_eq!(upstream.count(&path), 1);
}

#[test]
fn what_is_not_right_is_neither_served_whole_nor_kept() {
    let content = large();
    let (upstream, index) = mirroring(&content, start(), json!({}));
    let (path, target) = (format!("/files/{WHEEL}"), place_of(&upstream, WHEEL));
    let mut wrong = content.clone();
    wrong[LARGE - 1] ^= 1;
    let longer = [&content[..], b"x"].concat();
    let encoded = Offer::file(content.clone()).with("Content-Encoding: br");
    let offers = [
        ("a wrong byte", Offer::file(wrong.clone())),
        ("cut off", Offer::file(content.clone()).cut(LARGE - 1)),
        ("shorter than the page says", Offer::file(&content[1..])),
        ("longer than the page says", Offer::file(longer.clone())),
        ("longer, without a length", Offer::file(longer).with("Transfer-Encoding: identity")),
        ("encoded", encoded),
        ("an error", Offer::status(500)),
    ];
    for (at, (what, offer)) in offers.into_iter().enumerate() {
        upstream.offer(&path, offer);
        let came = raw(index.client(), &target, "");
        let text = String::from_utf8_lossy(&came[..came.len().min(4000)]).into_owned();
        let is_refused = text.starts_with("HTTP/1.1 502");
        let end = came.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let body = came.len() - end - 4;
        assert!(
            is_refused || (text.starts_with("HTTP/1.1 200") && body < LARGE),
            "{what}: {body} bytes, {text}"
        );
        assert_eq!(upstream.count(&path), at + 1, "{what}: nothing was kept before");
    }
    upstream.offer(&path, Offer::file(content.clone()));
    assert!(index.client().get(&target).body == content, "nothing wrong stays");
}

#[test]
fn direct_links_need_no_page() {
    let upstream = upstream_of(b"content");
    let digest = Digest::of(b"content").to_string();
    let unhashed = json!({"filename": "foo-2.0.tar.gz", "url": upstream.url("/files/foo-2.0.tar.gz"), "hashes": {}});
    let mut wheel = file(&upstream, WHEEL, b"content");
    wheel["core-metadata"] = json!({"sha256": Digest::of(b"Name: foo").to_string()});
    upstream.offer("/simple/foo/", page("foo", json!([wheel, unhashed])));
    upstream.offer(&format!("/files/{WHEEL}.metadata"), Offer::file("Name: foo"));
    upstream.offer("/files/foo-2.0.tar.gz", Offer::file("two"));
    upstream.offer("/files/foo-3.0.tar.gz", Offer::file("not on the page"));
    let external =
        format!("/alice/up/+e/http_{}_files/foo-2.0.tar.gz", upstream.host().replace(':', "_"));
    let by_digest = format!("/alice/up/+f/{}/{}/{WHEEL}", &digest[..3], &digest[3..16]);
    for (target, expected) in [
        (place_of(&upstream, WHEEL), "content"),
        (format!("{}.metadata", place_of(&upstream, WHEEL)), "Name: foo"),
        (by_digest, "content"),
        (external, "two"),
        (place_of(&upstream, "foo-2.0.tar.gz"), "two"),
    ] {
        // Each from an empty cache.
        let index = mirror_of(start(), &upstream, json!({}));
        index.anybody().send("HEAD", &target, ()).expect(200);
        let answer = index.get(&target).expect(200);
        answer.is(expected).has("content-length", expected.len().to_string());
        index.client().get_with(&target, &[("Range", "bytes=1-2")]).expect(206).is(&expected[1..3]);
        let kept = if expected == "two" {
            "max-age=0, must-revalidate"
        } else {
            "max-age=365000000, immutable, public"
        };
        answer.has("cache-control", kept);
    }
    let index = mirror_of(start(), &upstream, json!({}));
    let absent = [
        place_of(&upstream, "foo-3.0.tar.gz"),
        place_of(&upstream, "secret-1.0.tar.gz"),
        format!("/alice/up/+upstream/{}/etc/passwd", upstream.host()),
        format!("/alice/up/+upstream/other.example/files/{WHEEL}"),
        format!("/alice/none/+upstream/{}/files/{WHEEL}", upstream.host()),
    ];
    let before = upstream.requests().len();
    for target in absent {
        index.get(&target).expect(404);
    }
    let asked: Vec<String> =
        upstream.requests()[before..].iter().map(|it| it.path.clone()).collect();
    assert!(
        asked.iter().all(|path| path.starts_with("/simple/") && !path.contains("secret")),
        "{asked:?}"
    );
}

#[test]
fn files_may_be_redirected_to() {
    let (upstream, index) =
        mirroring(b"content", start(), json!({"mirror_use_external_urls": true}));
    let moved = index.get(&place_of(&upstream, WHEEL));
    moved.expect(302).has("location", upstream.url(&format!("/files/{WHEEL}")));
    assert_eq!(upstream.count(&format!("/files/{WHEEL}")), 0);
}

#[test]
fn a_small_file_that_is_wrong_is_refused_with_the_reason() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    let path = format!("/files/{WHEEL}");
    for (content, expected) in [
        (
            "kontent",
            "the mirror alice/up has no usable answer from its upstream: the file has the SHA-256 DIGEST; upstream's page says DIGEST",
        ),
        (
            "",
            "the mirror alice/up has no usable answer from its upstream: upstream sends 0 bytes; its page says 7",
        ),
    ] {
        upstream.offer(&path, Offer::file(content));
        index.get(&place_of(&upstream, WHEEL)).tells(502, expected);
    }
    let mut wheel = file(&upstream, WHEEL, b"content");
    wheel["core-metadata"] = json!({"sha256": "0".repeat(64)});
    upstream.offer("/simple/foo/", page("foo", json!([wheel])));
    upstream.offer(&format!("{path}.metadata"), Offer::file("Name: foo"));
    index.get(&format!("{}.metadata", place_of(&upstream, WHEEL))).tells(502, "the mirror alice/up has no usable answer from its upstream: the file has the SHA-256 DIGEST; upstream's page says DIGEST");
}

#[test]
fn every_file_that_a_page_lists_can_be_fetched() {
    let upstream = upstream_of(b"content");
    let names = [
        "foo-1.0.tar.xz",
        "foo-1.0.tar",
        "foo-1.0.tzst",
        "foo-1.0.odd",
        "foo_1.0.zip",
        "foo1.0.tgz",
        "Foo.zip",
    ];
    let mut files: Vec<Value> =
        names.iter().map(|name| file(&upstream, name, name.as_bytes())).collect();
    files.push(file(&upstream, "bar-1.0.zip", b"another project's"));
    upstream.offer("/simple/foo/", page("foo", files.into()));
    for name in names {
        upstream.offer(&format!("/files/{name}"), Offer::file(name));
    }
    let index = mirror_of(fresh_for_long(), &upstream, json!({}));
    let listed = json_page(index.client(), "alice/up", "foo").json()["files"].clone();
    let listed: Vec<&str> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["filename"].as_str())
        .collect();
    assert_eq!(listed, names);
    for name in names {
        index.get(&place_of(&upstream, name)).expect(200).is(name);
    }
}

#[test]
fn the_form_of_an_encoded_file_that_has_the_digest_is_given_on() {
    let gzip = |content: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(content).expect("memory");
        out.finish().expect("memory")
    };
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    let large = large();
    for label in ["gzip", "x-gzip"] {
        for (filename, expected, sent) in [
            (WHEEL, &b"content"[..], b"content".to_vec()),
            (WHEEL, &b"wheel"[..], gzip(b"wheel")),
            (WHEEL, &large[..], gzip(&large)),
            ("foo-1.0.tar.gz", &gzip(b"sdist")[..], gzip(b"sdist")),
            ("foo-1.0.tar.gz", &gzip(b"other")[..], gzip(&gzip(b"other"))),
        ] {
            let mut hashed = file(&upstream, filename, expected);
            let unhashed = json!({"filename": filename, "url": hashed["url"], "hashes": {}});
            hashed["size"] = json!(null);
            for said in [file(&upstream, filename, expected), hashed, unhashed] {
                upstream.offer("/simple/foo/", page("foo", json!([said])));
                let offer = Offer::file(sent.clone()).with(&format!("Content-Encoding: {label}"));
                upstream.offer(&format!("/files/{filename}"), offer);
                json_page(index.client(), "alice/up", "foo").expect(200);
                let answer = index.get(&place_of(&upstream, filename));
                assert_eq!(answer.status, 200, "{label} {said}: {}", answer.text());
                assert!(answer.body == expected, "{label} {said}");
                answer.has("content-encoding", "");
            }
        }
        let wrong = file(&upstream, WHEEL, b"neither");
        upstream.offer("/simple/foo/", page("foo", json!([wrong])));
        let offer = Offer::file(gzip(b"wheel")).with(&format!("Content-Encoding: {label}"));
        upstream.offer(&format!("/files/{WHEEL}"), offer);
        json_page(index.client(), "alice/up", "foo").expect(200);
        index.get(&place_of(&upstream, WHEEL)).expect(502);
    }
}
