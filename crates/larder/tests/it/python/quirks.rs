//! The details that some client or another depends on.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Index, Upload, basic, path, result, sdist};
use crate::described;
use crate::shown::shown_json;

#[test]
fn statuses_and_content_types() {
    let index = Index::start();
    let put = index.alice().put("/alice/dev", json!({})).expect(200);
    put.has("content-type", "application/json");
    index.root().put("/alice", json!({"password": "x"})).message(409, "user already exists");
    index.alice().put("/alice/dev", json!({})).message(409, "index 'alice/dev' exists");
    index.anybody().json().get("/nobody").message(404, "no user 'nobody'");
    index.root().put("/nobody/dev", json!({})).message(404, "no user 'nobody'");
    let empty = index.alice().upload("alice/dev", &Upload::of("p-1.0.zip", &sdist("x")));
    empty.expect(200).has("content-length", 0);
    index.alice().delete("/alice/dev").message(201, "index alice/dev deleted");
    index.anybody().send("BREW", "/alice/dev", b"").expect(405);
}

#[test]
fn every_answer_has_devpis_headers() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let names = [
        "x-devpi-api-version",
        "x-devpi-server-version",
        "x-devpi-uuid",
        "x-devpi-master-uuid",
        "x-devpi-primary-uuid",
        "x-devpi-serial",
        "x-larder-serial",
    ];
    let file = path("alice/dev", "p-1.0.zip", &sdist("x"));
    for target in [
        "/+api",
        "/",
        "//",
        "/alice",
        "/alice/dev/",
        "/alice/dev/p",
        "/alice/dev/+simple/",
        "/alice/dev/+simple/p/",
        "/alice/dev/+simple/none/",
        "/alice/dev/nothing",
        file.as_str(),
        "/+status",
        "/+nothing",
    ] {
        let response = index.anybody().json().get(target);
        for name in names {
            assert!(response.find(name).is_some(), "{target} has no {name}");
        }
    }
}

#[test]
fn projects_are_listed_unless_they_are_not_wanted() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let users = result(&index.anybody().json().get("/"), "list:userconfig");
    assert!(users["alice"]["indexes"]["dev"].is_object(), "{users}");
    let config = result(&index.anybody().json().get("/alice/dev"), "indexconfig");
    assert_eq!(config["projects"], json!(["p"]));
    for flag in ["no_projects", "no_projects=", "no_projects=0"] {
        let config =
            result(&index.anybody().json().get(&format!("/alice/dev?{flag}")), "indexconfig");
        assert_eq!(config.get("projects"), None, "{flag}");
    }
}

#[test]
fn paths() {
    let index = Index::with_dev();
    let content = sdist("x");
    let (content_type, body) = Upload::of("p-1.0.zip", &content).form();
    // twine posts with two slashes; others to no slash at the end.
    for (target, version) in
        [("//alice/dev/", "1.0"), ("/alice/dev", "1.1"), ("/%61lice/dev/", "1.2")]
    {
        let upload = Upload::of(&format!("p-{version}.zip"), &content);
        let (_, body) =
            if version == "1.0" { (String::new(), body.clone()) } else { upload.form() };
        index.alice().with("Content-Type", &content_type).post(target, &body).expect(200);
    }
    let page = index.anybody().get("/alice/dev/%2Bsimple/p/").expect(200);
    assert_eq!(index.anybody().get("//alice/dev/+simple/p/").body, page.body);
    let done = index.anybody().send("HEAD", "/alice/dev/+simple/p/", ());
    done.expect(200).has("content-length", page.header("content-length"));
    let pip = |target: &str| index.anybody().with("User-Agent", "pip/25.0 {}").get(target);
    pip("/alice/dev/p").expect(200);
    pip("/alice/dev").says("<a href=");
    // Every link leads to its file, from each URL of the page.
    for target in ["/alice/dev/+simple/p/", "/alice/dev/+simple/p", "/alice/dev/p/", "/alice/dev/p"]
    {
        let text = pip(target).text();
        let href =
            text.split("href=\"").nth(1).and_then(|it| it.split('"').next()).expect("a link");
        let href = href.split('#').next().expect("a path");
        let mut names: Vec<&str> = target.split('/').collect();
        names.pop();
        let mut rest = href;
        while let Some(shorter) = rest.strip_prefix("../") {
            names.pop();
            rest = shorter;
        }
        let found = index.anybody().get(&format!("{}/{rest}", names.join("/")));
        assert_eq!((found.status, found.body), (200, content.clone()), "{target}: {href}");
    }
    // People are sent to the page with a slash.
    let moved = index.anybody().with("Accept", "text/html").get("/alice/dev/+simple/p").expect(302);
    assert!(moved.header("location").ends_with("/alice/dev/+simple/p/"));
    moved.has("vary", "Accept, User-Agent, Accept-Encoding");
    index.anybody().get("/alice/dev/+simple/%C3%A4/").expect(400);
}

#[test]
fn behind_a_prefix() {
    let index = Index::with_dev();
    let content = sdist("x");
    index.upload("alice/dev", "p-1.0.zip", &content);
    let outside = || index.anybody().json().with("X-Outside-URL", "https://h.example/pre");
    let api = result(&outside().get("/pre/alice/dev/+api"), "apiconfig");
    let expected = json!({
        "login": "https://h.example/pre/+login",
        "index": "https://h.example/pre/alice/dev",
        "simpleindex": "https://h.example/pre/alice/dev/+simple/",
        "pypisubmit": "https://h.example/pre/alice/dev/",
        "authstatus": ["noauth", "", []],
        "features": api["features"],
    });
    assert_eq!(api, expected);
    let page = index
        .anybody()
        .with("X-Outside-URL", "https://h.example/pre")
        .get("/pre/alice/dev/+simple/p/");
    let relative =
        format!("../..{}", &path("alice/dev", "p-1.0.zip", &content)["/alice/dev".len()..]);
    page.says(&relative);
    let absolute = format!("https://h.example/pre{}", path("alice/dev", "p-1.0.zip", &content));
    for accept in ["text/html", "application/vnd.pypi.simple.v1+json"] {
        let page = index
            .anybody()
            .with("Accept", accept)
            .with("X-Outside-URL", "https://h.example/pre")
            .with("X-Devpi-Absolute-URLs", "")
            .get("/pre/alice/dev/+simple/p/");
        page.says(&absolute);
        assert!(page.header("content-type").starts_with(accept), "{page:?}");
    }
    outside().get("/pre/alice/dev/P").has("location", "https://h.example/pre/alice/dev/p");
    let refused = index.anybody().json().get("/alice/none/+api");
    refused.message(404, "The stage alice/none could not be found.");
}

#[test]
fn negotiation() {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    let check = |accept: &str, expected: &str| {
        let page = index.anybody().with("Accept", accept).get("/alice/dev/+simple/p/").expect(200);
        page.has("content-type", expected);
        // If the client leaves the form to us, people and installers get different pages.
        let varies = match expected.starts_with("text/html") {
            true => "Accept, User-Agent, Accept-Encoding",
            false => "Accept, Accept-Encoding",
        };
        page.has("vary", varies);
        assert!(!page.header("etag").is_empty() && !page.header("content-length").is_empty());
        page.has("cache-control", "max-age=0, must-revalidate");
        let known =
            index.anybody().with("Accept", accept).with("If-None-Match", page.header("etag"));
        known.get("/alice/dev/+simple/p/").expect(304);
    };
    let (json, html) = ("application/vnd.pypi.simple.v1+json", "text/html; charset=UTF-8");
    check(
        "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01",
        json,
    );
    check("application/vnd.pypi.simple.v1+json, */*;q=0.1", json);
    check("text/html, application/vnd.pypi.simple.v1+json;q=0.5", html);
    check("application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.v1+html");
    check("*/*", html);
    check("image/png", html);
    let strict = index.anybody().with("Accept", "application/vnd.pypi.simple.v2+json");
    strict.get("/alice/dev/+simple/p/").expect(406);
    let list = index.anybody().with("Accept", json).get("/alice/dev");
    assert_eq!(list.json()["projects"], json!([{"name": "p"}]));
}

#[test]
fn refreshing_and_uploads_to_pages() {
    let index = Index::with_dev();
    for target in ["/alice/dev/+simple/P/refresh", "/alice/dev/p/refresh"] {
        let moved = index.anybody().json().post(target, ()).expect(302);
        assert!(moved.header("location").ends_with("/alice/dev/+simple/p/"), "{moved:?}");
    }
    let refused =
        index.alice().json().upload("alice/dev/+simple", &Upload::of("p-1.0.zip", &sdist("x")));
    refused.tells(404, "nothing can be uploaded to the pages of alice/dev: its uploads go to http://127.0.0.1:PORT/alice/dev/");
    assert_eq!(index.blobs(), 0);
}

#[test]
fn configuration_in_every_form() {
    let index = Index::start();
    index.stage("alice/base", json!({}));
    let made = index.alice().put(
        "/alice/dev",
        json!({"bases": "alice/base", "acl_upload": "alice, bob", "volatile": "no"}),
    );
    let made = result(&made, "indexconfig");
    assert_snapshot!("made_index", shown_json(&made));
    let whole = index.alice().json().get("/alice/dev").json();
    index.alice().patch("/alice/dev", whole.clone()).expect(200);
    let refused = index.alice().patch("/alice/dev?error_on_noop", whole);
    refused.message(400, "The requested modifications resulted in no changes");
    let list =
        index.alice().patch("/alice/dev", json!(["acl_upload-=bob", "volatile=True", "title=T"]));
    let list = result(&list, "indexconfig");
    assert_snapshot!("changed_index", shown_json(&list));
    // A client may send back the whole user that it got.
    let mut user = index.alice().json().get("/alice").json()["result"].clone();
    user["email"] = json!("a@example.org");
    let patched = index.alice().patch("/alice", user);
    assert_eq!((patched.status, patched.json()), (200, json!({"message": "user updated"})));
    let user = result(&index.alice().json().get("/alice"), "userconfig");
    assert_snapshot!("changed_user", shown_json(&user));
    index.root().put("/%C3%A4lice-1.x@y_z", json!({"password": "x"})).expect(201);
    index.root().put("/a%24b", json!({"password": "x"})).expect(400);
}

#[test]
fn out_of_the_box_as_devpi() {
    // Without the test's own users, and with a root without a chosen password.
    let directory = tempfile::tempdir().expect("a directory");
    let config = config::Config {
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        data_dir: directory.path().join("data"),
        ..config::Config::default()
    };
    let mut config = config;
    config.aur.enabled = false;
    config.python.devpi_defaults = true;
    let running = crate::server::wait_for(larder::start(config, Vec::new())).expect("it starts");
    let net::ListenAddress::Tcp(address) = running.addresses[0].clone() else {
        panic!("TCP was asked for");
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let app = running.app.clone();
    let ended = crate::server::runtime().spawn(running.run_until(async move {
        let _ = stopped.await;
    }));
    crate::wait_until("the server to be ready", || app.obstacles().is_empty());
    let client = crate::client::Client { address };
    let login = client.anybody().post("/+login", r#"{"user": "root", "password": ""}"#);
    assert_eq!(login.json()["message"], "login successful", "{}", login.text());
    client.anybody().put("/carol", r#"{"password": "pw"}"#).expect(201);
    let auth = basic("carol", "pw");
    client.authorized(&auth).put("/carol/dev", "{}").expect(200);
    drop(stop);
    crate::server::wait_for(ended).expect("it ends");
}

#[test]
fn strangers_make_no_users_unless_it_is_allowed() {
    let index = Index::start();
    index.anybody().put("/mallory", json!({"password": "x"})).expect(403);
    let index = Index::start_with(|config| config.python.devpi_defaults = true);
    index.anybody().put("/carol", json!({"password": "x"})).expect(201);
}

#[test]
fn whoever_expects_to_continue_is_told_before_the_body_is_sent() {
    let index = Index::with_dev();
    let (content_type, body) = Upload::of("p-1.0.zip", &sdist("x")).form();
    let ask = index.alice().typed(&content_type).with("Connection", "close");
    let stream = ask.announce("POST", "/alice/dev/", body.len());
    super::Response::after(&body, stream).expect(200);
    let wrong = basic("alice", "wrong");
    let known = [("Authorization", &*wrong), ("Content-Type", &content_type)];
    let headers = [&known[..], &[("Expect", "100-continue")]].concat();
    let request = index.client().request("POST", "/alice/dev/", &headers, &body);
    index.client().exchange(&request[..request.len() - body.len()], false).expect(401);
}

/// Senders who may see an index learn that it exists before anything else.
#[test]
fn an_index_that_is_there_is_a_conflict_for_whoever_may_see_it() {
    let index = Index::with_dev();
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    let made = |ask: super::Ask, name: &str| ask.json().put(&format!("/{name}"), json!({}));
    for ask in [index.alice(), index.user("bob"), index.anybody()] {
        made(ask, "alice/dev").message(409, "index 'alice/dev' exists");
    }
    made(index.alice(), "alice/secret").message(409, "index 'alice/secret' exists");
    for name in ["alice/secret", "alice/new"] {
        let text = format!("no permission to create index {name}");
        let cause = "only `alice` and administrators may";
        made(index.user("bob"), name).message(403, &format!("{text}: {cause}"));
    }
}

/// Settings as `devpi index` sends them, and what it is shown.
#[test]
fn settings_are_kept_as_they_were_written() {
    let index = Index::with_dev();
    let set = |stage: &str, body: Value| index.alice().patch(&format!("/{stage}"), body);
    let next = result(&set("alice/dev", json!(["title=", "nothing-="])), "indexconfig");
    assert_eq!((&next["title"], next.get("nothing")), (&json!(""), None));
    let dropped = result(&set("alice/dev", json!(["title-="])), "indexconfig");
    assert_eq!(dropped.get("title"), None);
}

#[test]
fn refusals_say_why_to_those_who_accept_json() {
    let index = Index::start();
    index.stage("alice/secret", json!({"acl_read": ["alice"]}));
    let text = "to read this index, a user and a password or a token are needed";
    let refused = index.anybody().json().get("/alice/secret/p");
    refused.message(401, text);
    refused.has("www-authenticate", "Basic realm=\"pypi\"");
    // Nor do pages reveal which names exist.
    for page in ["/alice/secret/+simple/p/", "/alice/secret/+simple/"] {
        index.anybody().json().get(page).message(401, text);
    }
    let refused = index.user("bob").json().get("/alice/secret");
    let text = "user 'bob' may not read this index: `bob` is not in `acl_read` of alice/secret";
    refused.message(403, text);
    let refused = index.alice().json().put("/+login", ());
    refused.message(405, "`PUT` is not a method of `/+login`, expected one of: POST");
    refused.has("allow", "POST");
    index.anybody().get("/alice/secret/p").has("content-type", "application/problem+json");
}

/// Scopes of tokens: what each may do with alice's stage.
#[test]
fn tokens_do_what_their_scopes_say() {
    let index = Index::start();
    index.stage("alice/dev", json!({"acl_read": ["alice"]}));
    let token = |scope: &str| index.alice().make_token(json!({"scopes": [scope]}));
    let ask = |token: &str| index.anybody().with("Authorization", &basic("__token__", token));
    let (read, upload, admin) =
        (token("python:read"), token("python:upload"), token("python:admin"));
    let statuses = |version: &str, token: &str| {
        let form = Upload::of(&format!("p-{version}.zip"), &sdist(version));
        let uploaded = ask(token).upload("alice/dev", &form).status;
        let page = ask(token).get("/alice/dev/+simple/").status;
        index.upload("alice/dev", &format!("p-{version}.zip"), &sdist(version));
        let yanked = ask(token).post(&format!("/alice/dev/p/{version}/+yank"), ()).status;
        let removed = ask(token).delete(&format!("/alice/dev/p/{version}")).status;
        (uploaded, page, yanked, removed)
    };
    assert_eq!(statuses("1.0", &read), (403, 200, 403, 403));
    assert_eq!(statuses("1.1", &upload), (200, 200, 403, 403));
    assert_eq!(statuses("1.2", &admin), (200, 200, 200, 200));
    assert_eq!(statuses("1.3", "larder_nothing"), (401, 401, 403, 403));
    // A token says itself whose it is, so clients may send any name with it, or it alone.
    let unknown = account::TokenText::from_secret([7; 32]).reveal();
    let as_sent = |user: &str, password: &str| {
        let shown = basic(user, password);
        let by = |header: &str, shown: &str| {
            index.anybody().with(header, shown).get("/alice/dev/+simple/").status
        };
        let devpis = by("X-Devpi-Auth", shown.trim_start_matches("Basic "));
        assert_eq!(by("Authorization", &shown), devpis, "{user}");
        devpis
    };
    for user in ["__token__", "alice", "bob", "nobody", "", "x-access-token", "a b"] {
        assert_eq!((as_sent(user, &read), as_sent(user, &unknown)), (200, 401), "{user}");
    }
    assert_eq!((as_sent(&read, ""), as_sent(&unknown, "")), (200, 401));
}

/// Every path and method of the OpenAPI document is one of this surface, and no others are.
#[test]
fn the_openapi_document_lists_the_methods() {
    let index = Index::start();
    let mut asked = 0;
    for (path, item) in &described::operations(&index.client) {
        if !path.starts_with("/{user}") && !path.starts_with("/+") {
            continue;
        }
        let mut target = path.clone();
        for (name, value) in [
            ("user", "nobody"),
            ("index", "dev"),
            ("project", "p"),
            ("version", "1.0"),
            ("directory", "abc"),
            ("subdirectory", "0123456789abc"),
            ("filename", "p-1.0.zip"),
            ("path", "index.html"),
            ("result", "p-1.0.zip.toxresult-20260101000000-0"),
        ] {
            target = target.replace(&format!("{{{name}}}"), value);
        }
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            // HEAD is answered as GET is.
            let name = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
            let is_listed = item.get(name).is_some();
            let status = index.anybody().send(method, &target, ()).status;
            // nginx asks with whatever method it has.
            let is_any = path == "/+authcheck" || path.contains("/+simple/");
            assert!(is_any || is_listed == (status != 405), "{status} for {method} {path}");
            // A missing handler would be a panic.
            assert_ne!(status, 500, "{method} {path}");
            asked += 1;
        }
    }
    assert!(asked > 100, "{asked}");
}

#[test]
fn messages_repeat_only_so_much_of_what_came() {
    let index = Index::with_dev();
    let long = "x".repeat(100_000);
    let keys = |count: usize| -> Value {
        let keys = (0..count).map(|number| (format!("key-{number}"), json!(1)));
        keys.collect::<serde_json::Map<_, _>>().into()
    };
    let check = |response: &super::Response, status: u16, start: &str| {
        response.check_status(status);
        let json = response.json();
        let message = json["message"].as_str().expect("a message");
        assert!(message.starts_with(start), "{message}");
        assert!(message.chars().count() <= 1_001, "{} characters", message.len());
    };
    let login = json!({"user": long[..10_000], "password": "x"});
    check(&index.anybody().post("/+login", login), 401, "user 'xxx");
    let unknown = index.root().put("/carol", keys(9_000));
    check(&unknown, 400, "Unknown keys in user config: key-0, key-1, ");
    let changed = index.alice().patch("/alice/dev", keys(9_000));
    assert!(changed.text().len() < 5_000, "{} bytes", changed.text().len());
    let named = Upload::named(&long, "1.0", "p-1.0.zip", b"");
    let refused = index.alice().json().upload("alice/dev", &named);
    check(&refused, 400, "");
}
