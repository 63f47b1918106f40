//! Upstreams that fail, hang, go back to an older state or are gone.

use super::*;

#[test]
fn what_is_known_is_served_while_upstream_fails() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    assert_eq!(json_page(index.client(), "alice/dev", "foo").status, 200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    upstream.break_with(Some(503));
    let before = upstream.requests().len();
    for _ in 0..40 {
        let stale = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(stale.status, 200, "{}", stale.text());
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL);
        assert!(stale.header("warning").starts_with("110 "), "{:?}", stale.headers);
        assert!(stale.header("cache-control").contains("no-store"));
    }
    // Each of these pages needs two answers. The pauses double, up to half a minute.
    let asked = upstream.requests().len() - before;
    assert!(asked < 40, "an upstream that fails again and again is left alone: {asked}");
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    let unknown = json_page(index.client(), "alice/dev", "bar");
    assert_eq!(unknown.status, 502, "it was never known: {}", unknown.text());
    assert!(unknown.text().contains("alice/up"), "{}", unknown.text());
    let ready = index.client().get("/readyz?verbose");
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("[!] mirror alice/up: its upstream fails"), "{}", ready.text());
    assert_eq!(index.server.metric("larder_mirrors_failing"), 1.0);
    assert!(index.server.metric("larder_mirror_stale_total") >= 40.0);

    upstream.break_with(None);
    wait_until("the upstream to be asked again", || {
        let answer = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(answer.status, 200);
        answer.find("warning").is_none()
    });
    assert_eq!(json_page(index.client(), "alice/dev", "bar").status, 200);
    assert_eq!(index.server.metric("larder_mirrors_failing"), 0.0);
    // An answer that is no page changes nothing either.
    for garbage in [
        "",
        "gone fishing",
        "<html><h1>Login</h1></html>",
        "{\"meta\":{\"api-version\":\"1.0\"},\"files\":[",
    ] {
        upstream.offer("/simple/foo/", Offer::of("text/html", garbage));
        let stale = json_page(index.client(), "alice/dev", "foo");
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL, "{garbage}");
    }
}

#[test]
fn a_refresh_says_that_upstream_has_not_answered() {
    let upstream = upstream_of(b"content");
    let index = fresh_for_long();
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    assert_eq!(json_page(index.client(), "alice/dev", "foo").status, 200);
    let refreshed = |project: &str| {
        index.alice().send("POST", &format!("/alice/dev/+simple/{project}/refresh"), json!({}))
    };
    assert_eq!(refreshed("foo").status, 302);
    upstream.offer("/simple/foo/", Offer::status(500));
    let failed = refreshed("foo");
    assert_eq!(failed.status, 502, "{}", failed.text());
    for part in ["alice/up", "it answered 500", "the last good page stays, as confirmed "] {
        assert!(failed.text().contains(part), "{}", failed.text());
    }
    let stays = json_page(index.client(), "alice/dev", "foo");
    assert_eq!(stays.json()["files"][0]["filename"], WHEEL);
    upstream.offer("/simple/bar/", Offer::status(500));
    let unknown = refreshed("bar");
    assert_eq!(unknown.status, 502, "{}", unknown.text());
    assert!(!unknown.text().contains("stays"), "{}", unknown.text());
    upstream.offer("/simple/foo/", page("foo", json!([file(&upstream, WHEEL, b"content")])));
    assert_eq!(refreshed("foo").status, 302);
}

#[test]
fn an_older_state_of_upstream_is_not_taken() {
    let upstream = upstream_of(b"content");
    let newer = |serial: &str, filename: &str| {
        let files = json!([file(&upstream, filename, b"x")]);
        page("foo", files).with(&format!("X-PyPI-Last-Serial: {serial}"))
    };
    let index = start();
    mirror(&index, &upstream, json!({}));
    let name =
        || json_page(index.client(), "alice/up", "foo").json()["files"][0]["filename"].clone();
    upstream.offer("/simple/foo/", newer("7", "foo-2.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("6", "foo-1.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("8", "foo-3.0.tar.gz"));
    assert_eq!(name(), "foo-3.0.tar.gz");
    let patch = json!({"mirror_ignore_serial_header": true});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    upstream.offer("/simple/foo/", newer("1", "foo-0.1.tar.gz"));
    assert_eq!(name(), "foo-0.1.tar.gz");
}

#[test]
fn a_redirect_to_a_very_long_url_is_not_followed() {
    let upstream = upstream_of(b"content");
    let index = start();
    mirror(&index, &upstream, json!({}));
    let leads_to = |path: &str| {
        let moved = Offer::status(302).with(&format!("Location: {path}"));
        upstream.offer("/simple/foo/", moved);
        json_page(index.client(), "alice/up", "foo")
    };
    let refused = leads_to(&format!("/moved/{}/", "x".repeat(8_000)));
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(refused.text().contains("it redirects to no URL"), "{}", refused.text());
    upstream.offer("/moved/foo/", page("foo", json!([])));
    assert_eq!(leads_to("/moved/foo/").status, 200);
}

#[test]
fn an_upstream_that_hangs_delays_no_other() {
    let hanging = Upstream::start();
    let names: Vec<String> = (0..70).map(|at| format!("p{at}")).collect();
    let list_of: Vec<&str> = names.iter().map(String::as_str).collect();
    hanging.offer("/simple/", list(&list_of));
    let wheel = |name: &str| format!("{name}-1.0-py3-none-any.whl");
    for name in &names {
        let (page_path, file_path) =
            (format!("/simple/{name}/"), format!("/files/{}", wheel(name)));
        hanging.offer(&page_path, page(name, json!([file(&hanging, &wheel(name), b"content")])));
        hanging.offer(&file_path, Offer::file("content"));
        hanging.hold(&page_path);
        hanging.hold(&file_path);
    }
    let other = upstream_of(b"content");
    let index = fresh_for_long();
    mirror(&index, &hanging, json!({}));
    index.stage("alice/other", json!({"type": "mirror", "mirror_url": other.url("/simple")}));
    let client = index.client();

    let pages: Vec<_> = names
        .iter()
        .map(|name| {
            let name = name.clone();
            std::thread::spawn(move || json_page(client, "alice/up", &name).status)
        })
        .collect();
    let asked =
        |prefix: &str| hanging.requests().iter().filter(|it| it.path.starts_with(prefix)).count();
    // One upstream gets at most 16 such requests at a time.
    wait_until("the pages to be asked for", || asked("/simple/p") == 16);
    assert_eq!(json_page(client, "alice/other", "foo").status, 200);
    for name in &names {
        hanging.release(&format!("/simple/{name}/"));
    }
    for page in pages {
        assert_eq!(page.join().expect("an answer"), 200);
    }

    let files: Vec<_> = names
        .iter()
        .map(|name| {
            let target = place_of(&hanging, &wheel(name));
            std::thread::spawn(move || client.get(&target).text())
        })
        .collect();
    wait_until("the files to be asked for", || asked("/files/") == 32);
    let place = format!("/alice/other/+upstream/{}/files/{WHEEL}", other.host());
    assert_eq!(client.get(&place).text(), "content");
    for name in &names {
        hanging.release(&format!("/files/{}", wheel(name)));
    }
    for file in files {
        assert_eq!(file.join().expect("an answer"), "content");
    }
}

#[test]
fn a_mirror_that_is_gone_fails_no_longer() {
    let upstream = upstream_of(b"content");
    upstream.break_with(Some(500));
    let index = start();
    mirror(&index, &upstream, json!({}));
    let check = |count: f64| {
        let ready = index.client().get("/readyz?verbose").text();
        assert_eq!(ready.contains("mirror alice/up"), count > 0.0, "{ready}");
        assert_eq!(index.server.metric("larder_mirrors_failing"), count);
    };
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 502);
    check(1.0);
    // Nothing is known of its new upstream.
    let patch = json!({"mirror_url": upstream.url("/elsewhere/")});
    assert_eq!(index.alice().send("PATCH", "/alice/up", patch).status, 200);
    check(0.0);
    assert_eq!(json_page(index.client(), "alice/up", "foo").status, 502);
    check(1.0);
    let deleted = index.alice().send("DELETE", "/alice/up", json!({}));
    assert!(deleted.status < 300, "{}", deleted.text());
    check(0.0);
}
