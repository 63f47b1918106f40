//! Upstreams that fail, hang, go back to an older state or are gone.

use super::*;
use crate::asking::each;

#[test]
fn what_is_known_is_served_while_upstream_fails() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    json_page(index.client(), "alice/dev", "foo").expect(200);
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    upstream.break_with(Some(503));
    let before = upstream.requests().len();
    for _ in 0..40 {
        let stale = json_page(index.client(), "alice/dev", "foo").expect(200);
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL);
        assert!(stale.header("warning").starts_with("110 "), "{:?}", stale.headers);
        stale.has("cache-control", "max-age=0, must-revalidate, no-cache, no-store");
    }
    // Each of these pages needs two answers. The pauses double, up to half a minute.
    let asked = upstream.requests().len() - before;
    assert!(asked < 40, "an upstream that fails again and again is left alone: {asked}");
    assert_eq!(index.client().get(&place_of(&upstream, WHEEL)).text(), "content");
    // It was never known.
    json_page(index.client(), "alice/dev", "bar").tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: it answered 503 Service Unavailable");
    let ready = index.get("/readyz?verbose").expect(200).line("[!] mirror");
    assert_eq!(
        ready,
        "[!] mirror alice/up: its upstream fails, what is known of it is served: 127.0.0.1:PORT: it answered 503 Service Unavailable"
    );
    assert_eq!(index.server.metric("larder_mirrors_failing"), 1.0);
    assert!(index.server.metric("larder_mirror_stale_total") >= 40.0);

    upstream.break_with(None);
    wait_until("the upstream to be asked again", || {
        let answer = json_page(index.client(), "alice/dev", "foo").expect(200);
        answer.find("warning").is_none()
    });
    // The list has pauses of its own.
    wait_until("nothing to fail", || {
        json_page(index.client(), "alice/dev", "bar").expect(200);
        index.server.metric("larder_mirrors_failing") == 0.0
    });
}

#[test]
fn an_answer_that_is_no_page_changes_nothing() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    json_page(index.client(), "alice/up", "foo").expect(200);
    let cut = "{\"meta\":{\"api-version\":\"1.0\"},\"files\":[";
    each(["", "gone fishing", "<html><h1>Login</h1></html>", cut], |garbage| {
        upstream.offer("/simple/foo/", Offer::of("text/html", garbage));
        let stale = json_page(index.client(), "alice/up", "foo");
        assert_eq!(stale.json()["files"][0]["filename"], WHEEL, "{garbage}");
    });
}

#[test]
fn a_refresh_says_that_upstream_has_not_answered() {
    let (upstream, index) = mirroring(b"content", fresh_for_long(), json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"]}));
    json_page(index.client(), "alice/dev", "foo").expect(200);
    let refreshed = |project: &str| {
        index.alice().post(&format!("/alice/dev/+simple/{project}/refresh"), json!({}))
    };
    refreshed("foo").expect(302);
    upstream.offer("/simple/foo/", Offer::status(500));
    refreshed("foo").tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: it answered 500 Internal Server Error; the last good page stays, as confirmed TIME");
    let stays = json_page(index.client(), "alice/dev", "foo");
    assert_eq!(stays.json()["files"][0]["filename"], WHEEL);
    upstream.offer("/simple/bar/", Offer::status(500));
    refreshed("bar").tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: it answered 500 Internal Server Error");
    upstream.offer("/simple/foo/", page("foo", json!([file(&upstream, WHEEL, b"content")])));
    refreshed("foo").expect(302);
}

#[test]
fn an_older_state_of_upstream_is_not_taken() {
    let upstream = upstream_of(b"content");
    let newer = |serial: &str, filename: &str| {
        let files = json!([file(&upstream, filename, b"x")]);
        page("foo", files).with(&format!("X-PyPI-Last-Serial: {serial}"))
    };
    let index = mirror_of(start(), &upstream, json!({}));
    let name =
        || json_page(index.client(), "alice/up", "foo").json()["files"][0]["filename"].clone();
    upstream.offer("/simple/foo/", newer("7", "foo-2.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("6", "foo-1.0.tar.gz"));
    assert_eq!(name(), "foo-2.0.tar.gz");
    upstream.offer("/simple/foo/", newer("8", "foo-3.0.tar.gz"));
    assert_eq!(name(), "foo-3.0.tar.gz");
    let patch = json!({"mirror_ignore_serial_header": true});
    index.alice().patch("/alice/up", patch).expect(200);
    upstream.offer("/simple/foo/", newer("1", "foo-0.1.tar.gz"));
    assert_eq!(name(), "foo-0.1.tar.gz");
}

#[test]
fn a_redirect_to_a_very_long_url_is_not_followed() {
    let (upstream, index) = mirroring(b"content", start(), json!({}));
    let leads_to = |path: &str| {
        let moved = Offer::status(302).with(&format!("Location: {path}"));
        upstream.offer("/simple/foo/", moved);
        json_page(index.client(), "alice/up", "foo")
    };
    leads_to(&format!("/moved/{}/", "x".repeat(8_000))).tells(502, "the mirror alice/up has no usable answer from its upstream: 127.0.0.1:PORT: it redirects to no URL that is followed");
    upstream.offer("/moved/foo/", page("foo", json!([])));
    leads_to("/moved/foo/").expect(200);
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
    let index = mirror_of(fresh_for_long(), &hanging, json!({}));
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
    json_page(client, "alice/other", "foo").expect(200);
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
    let index = mirror_of(start(), &upstream, json!({}));
    let check = |count: f64| {
        let ready = index.get("/readyz?verbose").text();
        assert_eq!(ready.contains("mirror alice/up"), count > 0.0, "{ready}");
        assert_eq!(index.server.metric("larder_mirrors_failing"), count);
    };
    json_page(index.client(), "alice/up", "foo").expect(502);
    check(1.0);
    // Nothing is known of its new upstream.
    let patch = json!({"mirror_url": upstream.url("/elsewhere/"), "mirror_offline": true});
    index.alice().patch("/alice/up", patch).expect(200);
    check(0.0);
    index.alice().patch("/alice/up", json!({"mirror_offline": false})).expect(200);
    check(1.0);
    index.alice().delete("/alice/up").done();
    check(0.0);
}

#[test]
fn one_project_does_not_close_the_mirror() {
    let upstream = upstream_of(b"content");
    let login = Offer::of("text/html", "<form><input type=password></form><a href=/x>Forgot?</a>");
    let nowhere = Offer::status(302).with("Location: ftp://x/");
    let mut offers: Vec<Offer> =
        [400, 401, 403, 418, 451, 500, 503].into_iter().map(Offer::status).collect();
    offers.extend([login, nowhere, page("bad", json!([])).cut(10)]);
    let names: Vec<String> = (0..offers.len()).map(|at| format!("bad{at}")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).chain(["foo", "bar"]).collect();
    upstream.offer("/simple/", list(&listed));
    let index = mirror_of(fresh_for_long(), &upstream, json!({}));
    let refresh = |project: &str| {
        index.alice().post(&format!("/alice/up/+simple/{project}/refresh"), json!({}))
    };
    for (name, offer) in names.iter().zip(offers) {
        let path = format!("/simple/{name}/");
        upstream.offer(&path, offer.clone());
        let mut is_left_alone = false;
        for _ in 0..30 {
            let failed = json_page(index.client(), "alice/up", name);
            assert_eq!(failed.status, 502, "{offer:?}");
            is_left_alone |= failed.text().contains(&format!("the page of {name} of alice/up"));
        }
        assert!(is_left_alone && upstream.count(&path) < 30, "{offer:?}");
        for project in ["foo", "bar"] {
            let done = refresh(project);
            assert_eq!(done.status, 302, "{offer:?}: {}", done.text());
            let answer = json_page(index.client(), "alice/up", project);
            assert_eq!((answer.status, answer.find("warning")), (200, None), "{offer:?}");
        }
        assert_eq!(index.server.metric("larder_mirrors_failing"), 0.0, "{offer:?}");
        upstream.offer(&path, page(name, json!([])));
        let done = refresh(name);
        assert_eq!(done.status, 302, "who refreshes it need not wait: {}", done.text());
        json_page(index.client(), "alice/up", name).expect(200);
    }
}

#[test]
fn several_projects_that_fail_close_the_mirror() {
    let upstream = upstream_of(b"content");
    let names: Vec<String> = (0..20).map(|at| format!("bad{at}")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).chain(["foo"]).collect();
    upstream.offer("/simple/", list(&listed));
    let index = mirror_of(fresh_for_long(), &upstream, json!({}));
    let mut is_closed = false;
    for name in &names {
        upstream.offer(&format!("/simple/{name}/"), Offer::status(500));
        let failed = json_page(index.client(), "alice/up", name).expect(502);
        is_closed |= failed.text().contains("the upstream of alice/up is left alone");
    }
    let asked = upstream.requests().iter().filter(|it| it.path.contains("/bad")).count();
    assert!(is_closed && asked < names.len(), "{asked}");
    // The next trial is for a project that has not failed.
    wait_until("the pause to end", || {
        json_page(index.client(), "alice/up", "bad0");
        json_page(index.client(), "alice/up", "foo").status == 200
    });
}

#[test]
fn a_new_project_is_found_by_a_refresh() {
    let (upstream, index) = mirroring(b"content", fresh_for_long(), json!({}));
    json_page(index.client(), "alice/up", "fresh").expect(404);
    upstream.offer("/simple/", list(&["foo", "fresh"]));
    upstream.offer("/simple/fresh/", page("fresh", json!([])));
    assert_eq!(json_page(index.client(), "alice/up", "fresh").status, 404, "the list is fresh");
    let refreshed = |project: &str| {
        index.alice().post(&format!("/alice/up/+simple/{project}/refresh"), json!({})).status
    };
    assert_eq!(refreshed("fresh"), 302);
    json_page(index.client(), "alice/up", "fresh").expect(200);
    let asked = upstream.count("/simple/");
    assert_eq!((refreshed("fresh"), upstream.count("/simple/")), (302, asked), "it is on the list");
    refreshed("secret");
    assert_eq!(upstream.count("/simple/secret/"), 0);
}

#[test]
fn an_upstream_without_projects_takes_no_project_of_others() {
    let (upstream, index) = mirroring(b"content", fresh_for_long(), json!({}));
    let title = "<title>Simple Index</title><h1>Simple Index</h1>";
    let empty = [
        ("empty", Offer::of("text/html", format!("<!DOCTYPE html><html>{title}</html>")), 404),
        ("json", list(&[]), 404),
        ("nolist", Offer::status(404), 502),
    ];
    for (name, offer, status) in empty {
        let company = Upstream::start();
        company.offer("/simple/", offer);
        let stage = format!("alice/{name}");
        index.stage(&stage, json!({"type": "mirror", "mirror_url": company.url("/simple/")}));
        let dev = format!("alice/dev-{name}");
        index.stage(&dev, json!({"bases": [stage, "alice/up"]}));
        let found = json_page(index.client(), &dev, "foo").expect(200);
        assert_eq!(found.json()["files"][0]["filename"], WHEEL, "{name}");
        json_page(index.client(), &dev, "nothere").expect(404);
        let place = place_of(&upstream, WHEEL).replace("alice/up", &dev);
        assert_eq!(index.client().get(&place).text(), "content", "{name}");
        let listed = index.client().get_with(&format!("/{dev}/+simple/"), &[JSON_PAGE]);
        assert_eq!(listed.json()["projects"], json!([{"name": "bar"}, {"name": "foo"}]), "{name}");
        json_page(index.client(), &stage, "foo").expect(status);
        // A list that fails is another matter: it may have the project.
        company.offer("/simple/", Offer::status(500));
        let failing = Upstream::start();
        failing.offer("/simple/", Offer::status(500));
        index.stage(
            &format!("alice/bad-{name}"),
            json!({"type": "mirror", "mirror_url": failing.url("/simple/")}),
        );
        index.stage(
            &format!("alice/x-{name}"),
            json!({"bases": [format!("alice/bad-{name}"), "alice/up"]}),
        );
        json_page(index.client(), &format!("alice/x-{name}"), "foo").expect(502);
    }
}

#[test]
fn when_to_ask_again_is_passed_on() {
    let (upstream, index) = mirroring(b"content", fresh_for_long(), json!({}));
    json_page(index.client(), "alice/up", "foo").expect(200);
    for (status, header, expected) in [
        (429, "Retry-After: 120", "120"),
        (503, "Retry-After: 7", "7"),
        (503, "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", "1"),
        (503, "Retry-After: soon", ""),
        (500, "Retry-After: 7", ""),
    ] {
        upstream.offer(&format!("/files/{WHEEL}"), Offer::status(status).with(header));
        index.get(&place_of(&upstream, WHEEL)).expect(502).has("retry-after", expected);
    }
    upstream.offer("/simple/bar/", Offer::status(429).with("Retry-After: 120"));
    for _ in 0..5 {
        json_page(index.client(), "alice/up", "bar").expect(502).has("retry-after", "120");
    }
}
