//! How often releases were downloaded: what counts, who may see it, and what becomes of it.

use insta::assert_snapshot;
use serde_json::{Value, json};
use testbed::{Offer, Upstream};

use super::mirrors::{allow_this_machine, file, list, mirror, page};
use super::{Index, path, result, sdist, wheel};
use crate::asking::{Ask, Says as _};
use crate::client::Client;
use crate::server::TestServer;
use crate::shown::shown;
use crate::wait_until;

/// What an index says of a project: all downloads together, and those of each release, the most first.
#[track_caller]
pub(crate) fn counted(asking: Ask, project: &str) -> (u64, Vec<(String, u64)>) {
    let found = result(&asking.json().get(&format!("/{project}/+downloads")), "downloads");
    let sum = |of: &Value| {
        let days = of["days"].as_object().expect("days");
        let first = found["from"].as_str().expect("a day");
        let last = found["to"].as_str().expect("a day");
        assert!(days.keys().all(|day| first <= day.as_str() && day.as_str() <= last), "{found}");
        let sum: u64 = days.values().map(|count| count.as_u64().expect("a number")).sum();
        assert_eq!(of["total"].as_u64(), Some(sum), "{found}");
        sum
    };
    let releases = found["releases"].as_array().expect("releases");
    let releases = releases
        .iter()
        .map(|release| (release["version"].as_str().expect("a version").to_owned(), sum(release)));
    (sum(&found), releases.collect())
}

/// What only an answer with counts has.
const NUMBERS: [&str; 2] = ["<polyline", "\"total\""];

/// The releases and their counts as [`counted`] has them.
fn releases(expected: &[(&str, u64)]) -> (u64, Vec<(String, u64)>) {
    let total = expected.iter().map(|(_, count)| count).sum();
    (total, expected.iter().map(|(version, count)| ((*version).to_owned(), *count)).collect())
}

/// Stops the server, which writes what it has counted, and starts it again.
fn restarted(index: Index) -> Index {
    Index { server: index.server.restarted() }
}

fn times(client: &Client, target: &str, count: usize) {
    for _ in 0..count {
        client.get(target).expect(200);
    }
}

/// An index with two releases of `p`.
fn started() -> Index {
    let index = Index::with_dev();
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    index.upload("alice/dev", "p-2.0.zip", &sdist("y"));
    index
}

fn first() -> String {
    path("alice/dev", "p-1.0.zip", &sdist("x"))
}

#[test]
fn files_that_are_sent_from_their_first_byte_count() {
    let index = started();
    let (content, _) = wheel("w", "1.0");
    index.upload("alice/dev", "w-1.0-py3-none-any.whl", &content);
    let client = index.client();
    times(&client, &first(), 3);
    times(&client, &path("alice/dev", "p-2.0.zip", &sdist("y")), 1);
    client.get_with(&first(), &[("Range", "bytes=0-3")]).expect(206);
    client.get_with(&first(), &[("Range", "bytes=4-")]).expect(206);
    client.get_with(&first(), &[("Range", "bytes=-4")]).expect(206);
    client.get_with(&first(), &[("Range", "bytes=900000-")]).expect(416);
    client.send("HEAD", &first(), &[], b"").expect(200);
    let tag = client.get_with(&first(), &[("Range", "bytes=5-")]).header("etag").to_owned();
    client.get_with(&first(), &[("If-None-Match", &tag)]).expect(304);
    index.anybody().json().get(&first()).expect(200);
    let wheel = path("alice/dev", "w-1.0-py3-none-any.whl", &content);
    client.get(&format!("{wheel}.metadata")).expect(200);
    client.get(&path("alice/dev", "p-9.0.zip", b"none")).expect(404);
    // A count is no commit.
    let serial = client.get(&first()).header("x-devpi-serial").to_owned();
    let index = restarted(index);
    assert_eq!(index.get("/alice/dev/p").header("x-devpi-serial"), serial);
    let of = |index: &Index, project| counted(index.anybody(), &format!("alice/dev/{project}"));
    assert_eq!(of(&index, "p"), releases(&[("1.0", 5), ("2.0", 1)]));
    assert_eq!(of(&index, "w"), releases(&[]));
    times(&index.client(), &path("alice/dev", "p-2.0.zip", &sdist("y")), 7);
    times(&index.client(), &wheel, 1);
    let index = restarted(index);
    assert_eq!(of(&index, "p"), releases(&[("2.0", 8), ("1.0", 5)]));
    assert_eq!(of(&index, "w"), releases(&[("1.0", 1)]));
}

#[test]
fn people_see_how_often_files_were_downloaded() {
    let index = started();
    let none = index.browse("/alice/dev/p").html();
    none.says("<a href=\"/alice/dev/p/+downloads\">0 downloads</a> in the last 30 days</p>");
    none.lacks("<svg class=\"chart\"");
    times(&index.client(), &first(), 3);
    times(&index.client(), &path("alice/dev", "p-2.0.zip", &sdist("y")), 10);
    let index = restarted(index);
    let project = index.browse("/alice/dev/p").html();
    project.says(["/+downloads\">13 downloads</a> in the last", "<polyline points=\"0,39.0 "]);
    let release = index.browse("/alice/dev/p/2.0").expect(200);
    release.says("How often it was downloaded").lacks("<polyline");
    let page = index.browse("/alice/dev/p/+downloads");
    assert_snapshot!("downloads", shown(&page.html()));
    page.says("<polyline points=\"0,39.0 ").lacks([" style=", "NaN"]);
    assert!(page.find("etag").is_some());
    index.browse("/alice/dev/P/+downloads").expect(302);
    for missing in ["/alice/dev/none/+downloads", "/alice/none/p/+downloads"] {
        index.anybody().json().get(missing).expect(404);
        index.browse(missing).expect(404);
    }
}

#[test]
fn counts_are_for_those_who_may_read_the_index() {
    let index = started();
    index.upload("alice/dev", "q-1.0.zip", &sdist("z"));
    index.stage("alice/open", json!({"bases": ["alice/dev"]}));
    times(&index.client(), &first(), 2);
    let index = restarted(index);
    for asked in ["alice/dev/p", "alice/open/p"] {
        assert_eq!(counted(index.anybody(), asked), releases(&[("1.0", 2)]));
    }
    index.alice().patch("/alice/dev", json!({"acl_read": ["alice"]})).expect(200);
    let wish = json!({"scopes": ["python:read"], "projects": ["q"], "expires": null});
    let token = &index.alice().make_token(wish);
    for target in ["/alice/dev/p/+downloads", "/alice/open/p/+downloads"] {
        for accept in ["application/json", "text/html"] {
            index.anybody().accept(accept).get(target).expect(401).lacks(NUMBERS);
            index.user("bob").accept(accept).get(target).expect(403).lacks(NUMBERS);
        }
        index.server.bearer(token).json().get(target).expect(403).lacks(NUMBERS);
        index.alice().json().get(target).expect(200);
    }
}

#[test]
fn the_counts_of_a_project_go_with_it() {
    let index = started();
    index.stage("alice/gone", json!({}));
    for stage in ["alice/dev", "alice/gone"] {
        index.upload(stage, "q-1.0.zip", &sdist("z"));
        times(&index.client(), &path(stage, "q-1.0.zip", &sdist("z")), 2);
    }
    times(&index.client(), &first(), 3);
    let index = restarted(index);
    for project in ["alice/dev/q", "alice/gone/q"] {
        assert_eq!(counted(index.anybody(), project), releases(&[("1.0", 2)]));
    }
    // What is not written yet goes, too.
    times(&index.client(), &path("alice/dev", "q-1.0.zip", &sdist("z")), 1);
    index.alice().delete("/alice/dev/q").expect(200);
    index.alice().delete("/alice/gone").expect(201);
    index.anybody().json().get("/alice/dev/q/+downloads").expect(404);
    index.stage("alice/gone", json!({}));
    for stage in ["alice/dev", "alice/gone"] {
        index.upload(stage, "q-1.0.zip", &sdist("z"));
        let project = format!("{stage}/q");
        wait_until("the counts to go", || counted(index.anybody(), &project) == releases(&[]));
    }
    let index = restarted(index);
    assert_eq!(counted(index.anybody(), "alice/dev/q"), releases(&[]));
    assert_eq!(counted(index.anybody(), "alice/dev/p"), releases(&[("1.0", 3)]));
}

#[test]
fn what_was_removed_while_nothing_counted_is_forgotten_at_the_next_start() {
    let index = started();
    times(&index.client(), &first(), 3);
    let uncounted = |config: &mut config::Config| config.python.count_downloads = false;
    let server = TestServer::without_aur_in(index.server.stop(), uncounted);
    let index = Index { server };
    index.alice().delete("/alice/dev/p").expect(200);
    let index = restarted(index);
    // The next start may only now have looked: a project that is there again keeps its counts.
    let index = restarted(index);
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    assert_eq!(counted(index.anybody(), "alice/dev/p"), releases(&[]));
}

#[test]
fn counting_can_be_switched_off() {
    let index = Index::start_with(|config| config.python.count_downloads = false);
    index.stage("alice/dev", json!({}));
    index.upload("alice/dev", "p-1.0.zip", &sdist("x"));
    times(&index.client(), &first(), 2);
    index
        .anybody()
        .json()
        .get("/alice/dev/p/+downloads")
        .tells(404, "downloads are not counted here: `python.count_downloads` is off");
    let page = index.browse("/alice/dev/p").expect(200);
    page.lacks("+downloads");
    let file = index.app.config.data_dir.join("records.db.downloads");
    let index = restarted(index);
    assert_eq!(counted(index.anybody(), "alice/dev/p"), releases(&[]));
    assert!(!file.exists(), "nothing was counted");
    times(&index.client(), &first(), 1);
    let index = restarted(index);
    assert_eq!(counted(index.anybody(), "alice/dev/p"), releases(&[("1.0", 1)]));
    assert!(file.exists());
}

/// Files of a mirror count for the mirror, whichever index was asked; a file that upstream does not have counts nowhere.
#[test]
fn mirrored_files_count() {
    let upstream = Upstream::start();
    upstream.offer("/simple/", list(&["foo-bar"]));
    let names = ["foo_bar-1.0-py3-none-any.whl", "foo-bar-2.0.tar.gz"];
    let files: Vec<Value> = names.iter().map(|name| file(&upstream, name, b"content")).collect();
    upstream.offer("/simple/foo-bar/", page("foo-bar", json!(files)));
    for name in names {
        upstream.offer(&format!("/files/{name}"), Offer::file(b"content"));
    }
    let index = Index::start_with(allow_this_machine);
    mirror(&index, &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"], "policy_cooldown_days": 1}));
    let client = index.client();
    let place =
        |stage: &str, name: &str| format!("/{stage}/+upstream/{}/files/{name}", upstream.host());
    times(&client, &place("alice/up", names[0]), 2);
    times(&client, &place("alice/up", names[1]), 1);
    times(&client, &place("alice/dev", names[0]), 1);
    client.send("HEAD", &place("alice/up", names[0]), &[], b"").expect(200);
    client.get_with(&place("alice/up", names[0]), &[("Range", "bytes=2-")]).expect(206);
    client.get(&place("alice/up", "foo_bar-3.0-py3-none-any.whl")).expect(404);
    let server = TestServer::without_aur_in(index.server.stop(), allow_this_machine);
    let index = Index { server };
    for asked in ["alice/up/foo-bar", "alice/dev/foo-bar"] {
        assert_eq!(counted(index.anybody(), asked), releases(&[("1.0", 3), ("2.0", 1)]));
    }
    index.anybody().json().get("/alice/up/other/+downloads").expect(404);
    let page = index.browse("/alice/up/foo-bar").expect(200);
    page.says("href=\"/alice/up/foo-bar/+downloads\">4 downloads</a> in the last 30 days");
}
