//! Uploads: which are accepted, which are refused with which message, and that refused ones leave nothing.

use insta::assert_snapshot;
use record::Digest;
use serde_json::{Value, json};

use super::{Index, PASSWORD, Response, Upload, basic, path, result, sdist, wheel, zip};
use crate::asking::{Says as _, each};
use crate::shown::{redacted, shown_json};

/// Refused with this status and text, in the body and as the reason; no blob is kept.
#[track_caller]
fn check_refused(index: &Index, upload: &Upload, status: u16, text: &str) {
    let kept = index.blobs();
    let json = index.alice().json().upload("alice/dev", upload).expect(status).json();
    let message = json["message"].as_str().expect("a message");
    assert_eq!(redacted(message), text);
    assert_eq!(json["code"], format!("{status} {message}"));
    assert_eq!(json["title"], message);
    assert_eq!(index.alice().upload_reason("alice/dev", upload), format!("{status} {message}"));
    assert_eq!(index.blobs(), kept, "{text}");
}

#[test]
fn forms_that_are_refused() {
    let index = Index::with_dev();
    let good = Upload::of("p-1.0.zip", &sdist("x"));
    let check = |upload: Upload, text: &str| check_refused(&index, &upload, 400, text);
    let rows = [
        (good.clone().without(":action"), ":action field not found"),
        (good.clone().set(":action", "shout"), "action 'shout' not supported"),
        (
            Upload::named("p", "2.0", "p-1.0.zip", b""),
            "filename 'p-1.0.zip' does not contain version '2.0'",
        ),
        (
            Upload::named("p", "1.0", "p-1.0.txt", b""),
            "'p-1.0.txt' is not a valid archive name: one that ends in .whl, .tar.gz, .zip, .tgz, .tar.bz2 or .egg was expected",
        ),
        (
            Upload::named("q", "1.0", "p-1.0.zip", b""),
            "filename 'p-1.0.zip' does not match project name 'q'",
        ),
        (
            good.clone().set("sha256_digest", &"0".repeat(64)),
            "sha256_digest of the form is DIGEST, but that of the file is DIGEST",
        ),
        (
            good.clone().set("md5_digest", "00000000000000000000000000000000"),
            "md5_digest of the form is 00000000000000000000000000000000, but that of the file is 60d921807600d6b41f8e7301d63544bf",
        ),
        (
            good.clone().set("blake2_256_digest", &"0".repeat(64)),
            "blake2_256_digest of the form is DIGEST, but that of the file is DIGEST",
        ),
        (
            good.clone().set("version", "1.0/2"),
            "invalid metadata: \"1.0/2\" is not a version: a slash cannot be in one",
        ),
        (
            good.clone().set("name", "../p"),
            "invalid metadata: \"../p\" is not a valid project name: ASCII letters, digits, `.`, `_` and `-` were expected, with a letter or digit at both ends",
        ),
    ];
    each(rows, |(upload, text)| check(upload, text));
    let named = [
        ("../p-1.0.zip", "filename \"../p-1.0.zip\" is refused: a leading dot cannot be in one"),
        (
            "p-1.0/../../x.zip",
            "filename \"p-1.0/../../x.zip\" is refused: a slash cannot be in one",
        ),
        (
            "p-1.0\\..\\x.zip",
            "filename \"p-1.0\\\\..\\\\x.zip\" is refused: a backslash cannot be in one",
        ),
        (".p-1.0.zip", "filename \".p-1.0.zip\" is refused: a leading dot cannot be in one"),
    ];
    each(named, |(filename, text)| check(Upload::named("p", "1.0", filename, &sdist("x")), text));
    index.anybody().get("/alice/dev/+simple/p/").expect(404);
    assert_eq!(index.blobs(), 0);
}

#[test]
fn archives_that_are_refused() {
    let index = Index::with_dev();
    let (other, _) = wheel("other", "1.0");
    let forged = zip(&[
        ("p/__init__.py", b""),
        ("p-1.0.dist-info/METADATA", b"Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"),
        ("p-1.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n"),
        ("p-1.0.dist-info/RECORD", b""),
    ]);
    let info = b"Metadata-Version: 2.1\nName: p\nVersion: 1.0\n";
    let source = zip(&[("p-1.0/setup.py", b""), ("p-1.0/PKG-INFO", info)]);
    let of_wheel = |bytes: &[u8]| Upload::named("p", "1.0", "p-1.0-py3-none-any.whl", bytes);
    let two = zip(&[("p/setup.py", b""), ("q/x", b"")]);
    let longer = "filename 'p-1.0.1.zip' does not contain version '1.0'";
    let rows = [
        (
            of_wheel(b"no zip"),
            "the file is not a whole zip archive: Missing end of central directory",
        ),
        (
            of_wheel(&other),
            "the wheel has the directory \"other-1.0.dist-info\": one for p 1.0 was expected",
        ),
        (of_wheel(&forged), "METADATA says name \"other\", but the form says \"p\""),
        // Of another release than its name says, whatever its directory is called.
        (Upload::of("q-1.0.zip", &source), "PKG-INFO says name \"p\", but the form says \"q\""),
        (
            Upload::of("p-2.0.zip", &source),
            "PKG-INFO says version \"1.0\", but the form says \"2.0\"",
        ),
        (Upload::named("p", "1.0", "p-1.0.1.zip", &source), longer),
        (
            Upload::of("p-1.0.zip", &two),
            "the archive has no `setup.py` and no `pyproject.toml` where installers look: in its one top directory, or at its root if it has several",
        ),
        (
            Upload::of("p-1.0.zip", &zip(&[("../evil", b"")])),
            "the archive has a member \"../evil\", which has a path with `..`",
        ),
        (
            Upload::docs("p", "1.0", b"no zip"),
            "the file is not a whole zip archive: Missing end of central directory",
        ),
        (
            Upload::docs("p", "1.0", &zip(&[("/etc/passwd", b"")])),
            "the archive has a member \"/etc/passwd\", which has an absolute path",
        ),
    ];
    each(rows, |(upload, text)| check_refused(&index, &upload, 400, text));
    index.anybody().get("/alice/dev/+simple/p/").expect(404);
    assert_eq!(index.blobs(), 0);
}

#[test]
fn a_file_may_be_named_beyond_ascii_alone() {
    let index = Index::with_dev();
    let (content_type, body) = Upload::of("p-1.0.zip", &sdist("x")).form();
    let (plain, extended) = (&b"filename=\"p-1.0.zip\""[..], &b"filename*=utf-8''p%2D1.0.zip"[..]);
    let at = body.windows(plain.len()).position(|part| part == plain).expect("the name");
    let body = [&body[..at], extended, &body[at + plain.len()..]].concat();
    index.alice().with("Content-Type", &content_type).post("/alice/dev/", &body).expect(200).is("");
    assert_eq!(index.files("alice/dev", "p"), ["p-1.0.zip"]);
}

#[test]
fn a_refusal_is_no_page_unless_html_is_asked_for() {
    let index = Index::with_dev();
    let bad = Upload::named("p", "2.0", "p-1.0.zip", b"");
    let text = "filename 'p-1.0.zip' does not contain version '2.0'";
    let plain = format!("400 Bad Request\n\n{text}");
    let page = format!(
        "{text}\nSomething in the address or the form is not what is expected here. Change it, and try again.\n\
         What this server offers </>\nDocumentation </docs>\nStatus </status>"
    );
    for (accept, expected, text) in [
        ("*/*", "application/problem+json", text),
        ("application/problem+json", "application/problem+json", text),
        ("application/json", "application/json", text),
        ("text/plain", "text/plain; charset=UTF-8", &plain),
        ("text/html,*/*;q=0.8", "text/html; charset=UTF-8", &page),
    ] {
        let refused = index.alice().with("Accept", accept).upload("alice/dev", &bad);
        refused.tells(400, text).has("content-type", expected);
    }
    let refused = index.alice().with("Accept", "*/*").upload("alice/dev", &bad).json();
    assert_eq!((&refused["detail"], &refused["status"]), (&json!(text), &json!(400)));
    for path in
        ["/alice/none/", "/alice/dev/none/1.0", "/alice/dev/+simple/none/", "/alice/dev/+f/0/none"]
    {
        let refused = index.anybody().with("Accept", "*/*").get(path);
        assert!(refused.status >= 400, "{path}: {}", refused.status);
        refused.header("content-type").lacks("html");
    }
}

#[test]
fn what_has_no_end_is_refused() {
    let index = Index::with_dev();
    let check = |start: &str, text: &str| {
        let mut body = start.replace('|', "\r\n").into_bytes();
        body.resize(300 << 10, b'x');
        let ask = index.alice().json().with("Content-Type", "multipart/form-data; boundary=b");
        ask.post("/alice/dev/", &body).tells(400, text);
    };
    let bound =
        "the form has more than 65536 bytes before its first boundary, or in the head of a field";
    check("", bound);
    check("--b|Content-Disposition: form-data; name=", bound);
    check(
        "--b|Content-Disposition: form-data; name=\"a\"||",
        "the form did not arrive whole: field \"a\" received with incomplete data",
    );
}

#[test]
fn the_names_of_fields_count_as_their_texts_do() {
    let index = Index::with_dev();
    let field = |at: usize| {
        let name = format!("{at}{}", "x".repeat(63 << 10));
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n\r\n")
    };
    let form: String = (0..66).map(field).chain(["--b--\r\n".to_owned()]).collect();
    let ask = index.alice().json().with("Content-Type", "multipart/form-data; boundary=b");
    ask.post("/alice/dev/", form.as_bytes())
        .tells(400, "the fields of the form have more than 4194304 bytes together");
}

#[test]
fn metadata_that_nobody_could_read_back_is_refused() {
    let index = Index::with_dev();
    // As JSON, a control character takes six bytes.
    let form = |bytes: usize| {
        let description = "\u{1}".repeat(bytes);
        format!(":action=submit&name=p&version=1.0&description={description}").into_bytes()
    };
    let register = |form: &[u8]| {
        let ask = index.alice().json();
        let ask = ask.with("Content-Type", "application/x-www-form-urlencoded");
        ask.post("/alice/dev/", form)
    };
    register(&form(3 << 20)).tells(
        400,
        "the metadata of the release has 18874913 bytes as JSON: at most 16777216 were expected",
    );
    register(&form(2 << 20)).expect(200);
    let data = result(&index.anybody().json().get("/alice/dev/p/1.0"), "versiondata");
    assert_eq!(data["description"].as_str().map(str::len), Some(2 << 20));
    let found = result(&index.anybody().json().get("/+search?query=p"), "search");
    assert_eq!(found["items"][0]["name"], "p");
}

#[test]
fn a_form_with_too_many_fields_is_refused_in_either_encoding() {
    let index = Index::with_dev();
    let register = |count: usize| {
        let form =
            format!(":action=submit&name=p&version=1.0{}", "&classifier=a".repeat(count - 3));
        let ask = index.alice().json().with("Content-Type", "application/x-www-form-urlencoded");
        ask.post("/alice/dev/", form.as_bytes())
    };
    register(10_000).expect(200);
    let field = "--b\r\nContent-Disposition: form-data; name=\"classifier\"\r\n\r\na\r\n";
    let form = format!("{}--b--\r\n", field.repeat(10_001));
    let ask = index.alice().json().with("Content-Type", "multipart/form-data; boundary=b");
    for refused in [register(10_001), ask.post("/alice/dev/", form.as_bytes())] {
        refused.tells(400, "the form has more than 10000 fields");
    }
}

#[test]
fn what_became_of_a_stage_while_the_body_came_counts() {
    let index = Index::start();
    index.stage("alice/dev", json!({"volatile": false}));
    let content = sdist("x");
    index.upload("alice/dev", "p-1.0.zip", &content);
    let at = path("alice/dev", "p-1.0.zip", &content);
    // The same file again: it exists when the upload begins, and not when it ends.
    let (content_type, body) = Upload::of("p-1.0.zip", &content).form();
    // The server wants the body: so it has looked at the stage.
    let ask = index.alice().typed(&content_type).with("Connection", "close");
    let stream = ask.announce("POST", "/alice/dev/", body.len());
    index.alice().delete(&format!("{at}?force")).expect(200);
    index.anybody().get(&at).expect(410);
    Response::after(body, stream).expect(200);
    assert_eq!(index.anybody().get(&at).body, content);
}

#[test]
fn what_unpacks_to_far_more_is_refused() {
    let index = Index::with_dev();
    let mut tar = vec![0; 512];
    let size = 100 << 20;
    tar[..7].copy_from_slice(b"p-1.0/z");
    tar[100..107].copy_from_slice(b"0000644");
    let digits = format!("{size:011o}");
    tar[124..135].copy_from_slice(digits.as_bytes());
    tar[156] = b'0';
    tar[257..265].copy_from_slice(b"ustar\x0000");
    tar[148..156].copy_from_slice(b"        ");
    let sum: u32 = tar.iter().map(|byte| u32::from(*byte)).sum();
    tar[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar.resize(512 + size + 1024, 0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar).expect("memory");
    let bomb = gzip.finish().expect("memory");
    let upload = Upload::named("p", "1.0", "p-1.0.tar.gz", &bomb);
    // How much is unpacked before it is refused is up to the library.
    let bound = format!(" bytes when unpacked: at most {} were expected", bomb.len() * 100);
    index.alice().json().upload("alice/dev", &upload).expect(400).says(&bound);
    assert_eq!(index.blobs(), 0);
}

#[test]
fn an_upload_without_an_index_is_told_where_to_go() {
    let index = Index::with_dev();
    let (content_type, body) = Upload::of("p-1.0.zip", &sdist("x")).form();
    let user = "nothing can be uploaded to the user `alice`: uploads go to an index, at http://127.0.0.1:PORT/alice/INDEX/";
    for (target, text, allow) in [
        (
            "/",
            "nothing can be uploaded to `/`: uploads go to an index, at http://127.0.0.1:PORT/USER/INDEX/",
            "GET, HEAD",
        ),
        ("/alice", user, "GET, HEAD, PUT, PATCH, DELETE"),
        ("/alice/", user, "GET, HEAD, PUT, PATCH, DELETE"),
        (
            "/alice/dev/p/",
            "nothing can be uploaded to a project: uploads go to an index, at http://127.0.0.1:PORT/alice/dev/",
            "GET, HEAD, DELETE",
        ),
    ] {
        let ask = index.alice().json().with("Content-Type", &content_type);
        ask.post(target, &body).tells(405, text).has("allow", allow);
    }
    // A request without a body gets an error that names it.
    index.alice().json().put("/alice/more", ()).tells(
        400,
        "Bad request: could not decode json: there is no body, and JSON was expected, such as `{}`",
    );
}

#[test]
fn names_that_say_little_are_kept_where_devpi_kept_them() {
    let archive = sdist("x");
    let wheel = wheel("pkg", "1.1").0;
    let uploads = [
        Upload::named("pkg", "1.1", "pkg-1.1.whl", b"no wheel"),
        Upload::named("pkg", "1.1", "pkg-1.1-py3.whl", &wheel),
        Upload::named("pkg", "1.0", "pkgs-1.0.zip", &archive),
    ];
    let index = Index::with_dev();
    for upload in &uploads {
        index.alice().upload("alice/dev", upload).expect(400);
    }
    let index = Index::start_with(|config| config.python.devpi_defaults = true);
    index.stage("alice/dev", json!({}));
    for upload in &uploads {
        index.alice().upload("alice/dev", upload).expect(200);
        let at = path("alice/dev", &upload.filename, &upload.content);
        assert_eq!(index.anybody().get(&at).body, upload.content, "{}", upload.filename);
        index.page("alice/dev", "pkg").says(&upload.filename);
    }
    // Files of another project or version still are refused.
    for upload in [
        Upload::named("pkg", "2.0", "pkg-1.1.whl", b"no wheel"),
        Upload::named("kg", "1.1", "pkg-1.1.whl", b"no wheel"),
        Upload::named("pkg", "1.1", "pkg-1.1.txt", b"no wheel"),
        Upload::named("pkg", "1.1", "../pkg-1.1.whl", b"no wheel"),
    ] {
        index.alice().upload("alice/dev", &upload).expect(400);
    }
}

#[test]
fn documentation_with_an_empty_version_is_refused() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let docs = Upload::docs("p", "1.0", &zip(&[("index.html", b"<h1>p</h1>")]));
    index.alice().json().upload("alice/dev", &docs.clone().set("version", "")).expect(400);
    index.alice().upload("alice/dev", &docs.without("version")).expect(200);
}

#[test]
fn who_may_not_upload() {
    let index = Index::with_dev();
    index.stage("alice/open", json!({"acl_upload": [":ANONYMOUS:"]}));
    let upload = Upload::of("p-1.0.zip", &sdist("x"));
    let refused = index.user("bob").json().upload("alice/dev", &upload);
    assert_eq!(
        (refused.status, &refused.json()["message"]),
        (403, &json!("no permission to submit: `bob` is not in `acl_upload` of alice/dev"))
    );
    let wrong = basic("alice", "wrong");
    for ask in [index.anybody(), index.anybody().with("Authorization", &wrong)] {
        let refused = ask.upload("alice/dev", &upload).expect(401);
        refused.has("www-authenticate", "Basic realm=\"pypi\"");
        assert_eq!(refused.find("location"), None);
    }
    // hatch asks for credentials where it finds this word.
    let nobody = "401 Unauthorized: to upload, a user and a password or a token are needed";
    assert_eq!(index.anybody().upload_reason("alice/dev", &upload), nobody);
    let ask = index.anybody().with("Authorization", &wrong);
    let unknown = "401 Unauthorized: user 'alice' could not be authenticated";
    assert_eq!(ask.upload_reason("alice/dev", &upload), unknown);
    index.alice().json().upload("alice/none", &upload).expect(404);
    let cross_site = index.alice().with("Sec-Fetch-Site", "cross-site");
    cross_site.upload("alice/dev", &upload).expect(403);
    assert_eq!(index.blobs(), 0);
    // If everybody may upload, invalid credentials count as anonymous.
    index.anybody().with("Authorization", &wrong).upload("alice/open", &upload).expect(200);
    let data = result(&index.anybody().json().get("/alice/open/p/1.0"), "versiondata");
    assert_eq!(data["+links"][0]["log"][0]["who"], Value::Null);
    index.anybody().upload("alice/open", &Upload::of("p-1.1.zip", &sdist("y"))).expect(200);
}

#[test]
fn logins_and_tokens_upload_as_passwords_do() {
    let index = Index::with_dev();
    let login = index.anybody().post("/+login", json!({"user": "alice", "password": PASSWORD}));
    let login = result(&login, "proxyauth");
    assert_eq!(login["expiration"], 36000);
    let login = login["password"].as_str().expect("a login");
    let upload = |version: &str| Upload::of(&format!("p-{version}.zip"), &sdist(version));
    let with = |header: &str, value: &str| index.anybody().with(header, value);
    let devpi = basic("alice", login);
    let devpi = devpi.trim_start_matches("Basic ");
    // devpi's header wins, whatever credentials the proxy adds.
    let both = with("X-Devpi-Auth", devpi).with("Authorization", &basic("bob", PASSWORD));
    both.upload("alice/dev", &upload("1.0")).expect(200);
    with("Authorization", &basic("alice", login)).upload("alice/dev", &upload("1.1")).expect(200);
    // Its last digit may stand for nothing; one further in does not.
    let (start, rest) = login.split_at(login.len() - 8);
    let other = if rest.starts_with('A') { "B" } else { "A" };
    let expired = format!("{start}{other}{}", &rest[1..]);
    with("Authorization", &basic("alice", &expired))
        .upload("alice/dev", &upload("1.2"))
        .expect(401);
    // Invalid credentials count as anonymous: the page is for everybody.
    with("Authorization", &basic("alice", &expired)).get("/alice/dev/+simple/p/").expect(200);
    let api = with("X-Devpi-Auth", &basic("alice", &expired)[6..]).json().get("/+api");
    assert_eq!(result(&api, "apiconfig")["authstatus"], json!(["noauth", "", []]));
    let api = with("X-Devpi-Auth", devpi).json().get("/+api");
    assert_eq!(result(&api, "apiconfig")["authstatus"], json!(["ok", "alice", []]));
}

#[test]
fn a_name_that_is_taken() {
    let index = Index::with_dev();
    index.stage("alice/final", json!({"volatile": false}));
    let (one, other) = (sdist("one"), sdist("other"));
    for stage in ["alice/dev", "alice/final"] {
        index.upload(stage, "p-1.0.zip", &one);
    }
    let same = Upload::of("p-1.0.zip", &one);
    let reason = index.alice().upload_reason("alice/final", &same);
    assert_eq!(reason, "200 Upload of identical file to non volatile index.");
    let kept = index.blobs();
    let text = "409 p-1.0.zip already exists in non-volatile index";
    let different = Upload::of("p-1.0.zip", &other);
    assert_eq!(index.alice().upload_reason("alice/final", &different), text);
    assert_eq!(index.alice().json().upload("alice/final", &different).json()["code"], text);
    assert_eq!(index.blobs(), kept);
    // A volatile stage accepts it, and the other one's URL is gone.
    index.upload("alice/dev", "p-1.0.zip", &other);
    index.anybody().get(&path("alice/dev", "p-1.0.zip", &one)).expect(410);
    assert_eq!(index.anybody().get(&path("alice/dev", "p-1.0.zip", &other)).body, other);
    let data = result(&index.anybody().json().get("/alice/dev/p/1.0"), "versiondata");
    assert_snapshot!("log_of_a_replaced", shown_json(&data["+links"][0]["log"]));
}

#[test]
fn of_many_at_once_one_wins() {
    let index = Index::start();
    index.stage("alice/final", json!({"volatile": false}));
    let contents: Vec<Vec<u8>> = (0..8).map(|number| sdist(&format!("content {number}"))).collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = contents
            .iter()
            .map(|content| {
                let index = &index;
                scope.spawn(move || {
                    index.alice().upload("alice/final", &Upload::of("p-1.0.zip", content)).status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let winners: Vec<usize> = (0..8).filter(|at| statuses[*at] == 200).collect();
    assert_eq!(winners.len(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let digest = Digest::of(&contents[winners[0]]).to_string();
    let page = index.page("alice/final", "p");
    assert_eq!(page.matches("<a ").count(), 1, "{page}");
    page.says(&digest);
}

#[test]
fn names_with_signs_and_versions_of_their_own() {
    let index = Index::with_dev();
    let content = sdist("local");
    let local = Upload::named("p", "1.0+local", "p-1.0+local.zip", &content);
    index.alice().upload("alice/dev", &local).expect(200);
    // Installers do not read `_` as `+`.
    let escaped = Upload::named("p", "1.0+local", "p-1.0_local.zip", &content);
    index.alice().upload("alice/dev", &escaped).expect(400);
    let data = result(&index.anybody().json().get("/alice/dev/p/1.0%2Blocal"), "versiondata");
    assert_eq!(data["version"], "1.0+local");
    let plus = Upload::named("p", "1.0+x", "p-1.0+x.zip", &content);
    index.alice().upload("alice/dev", &plus).expect(200);
    assert_eq!(index.anybody().get(&path("alice/dev", "p-1.0%2Bx.zip", &content)).body, content);
    assert_eq!(index.anybody().get(&path("alice/dev", "p-1.0+x.zip", &content)).body, content);
    // Any run of other signs is one dash.
    let odd = Upload::named("Foo._-Bar", "1", "Foo._-Bar-1.zip", &content);
    index.alice().upload("alice/dev", &odd).expect(200);
    assert_eq!(index.files("alice/dev", "foo-bar"), ["Foo._-Bar-1.zip"]);
    let moved = index.anybody().get("/alice/dev/+simple/Foo.BAR/").expect(302);
    assert!(moved.header("location").ends_with("/alice/dev/+simple/foo-bar/"), "{moved:?}");
}

#[test]
fn who_may_only_add_changes_nothing_that_installers_read() {
    let index = Index::start();
    index.stage("alice/dev", json!({"volatile": true}));
    let body = json!({"scopes": ["python:upload"], "comment": "adds"});
    let token = index.alice().make_token(body);
    let adds = |upload: &Upload| {
        let token = basic("__token__", &token);
        index.anybody().with("Authorization", &token).upload("alice/dev", upload)
    };
    let upload =
        |versions: &str| Upload::of("p-1.0.zip", &sdist("one")).set("requires_python", versions);
    for _ in 0..2 {
        adds(&upload(">=3.8")).expect(200);
    }
    // The same bytes, but no Python would install them any more.
    for versions in [">=99", ""] {
        adds(&upload(versions)).expect(403);
        index.page("alice/dev", "p").says("data-requires-python=\"&gt;=3.8\"");
    }
    index.alice().upload("alice/dev", &upload(">=3.9")).expect(200);
    index.page("alice/dev", "p").says("data-requires-python=\"&gt;=3.9\"");
}
