//! What shared caches are told: tags and times, purges by webhooks, and a real Varnish that keeps pages until they change.

mod blocked;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::Config;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Receiver, Varnish};

use crate::asking::Ask;
use crate::catalogue::{dump, record};
use crate::client::{Client, Response};
use crate::line::Line;
use crate::server::TestServer;
use crate::{is_long, wait_until};

const TOLD: [&str; 5] =
    ["cdn-cache-control", "surrogate-control", "surrogate-key", "cache-tag", "cache-groups"];

fn told(config: &mut Config) {
    config.cdn.seconds = Duration::from_secs(3600);
    config.egress_allow = vec!["127.0.0.1".parse().expect("a network")];
}

/// A server whose articles everybody may read, with an index and what inherits from it.
fn start(change: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::without_aur(change);
    server.add_user("team", "pw");
    let owner = team(&server);
    owner.put("/team/dev", json!({})).expect(200);
    owner.put("/team/stable", json!({"bases": ["team/dev"]})).expect(200);
    owner.release("team/dev", "p-1.0.zip");
    owner.write("guide/one/0", "first").expect(201);
    server
}

/// The owner of all indexes.
fn team(server: &TestServer) -> Ask {
    server.user("team", "pw")
}

fn tags(response: &Response) -> Vec<String> {
    let text = response.find("surrogate-key").unwrap_or_default();
    text.split(' ').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

#[test]
fn without_the_setting_caches_are_told_nothing() {
    let server = start(|_| ());
    for path in ["/article/guide/one", "/team/dev/+simple/p/", "/articles", "/article/none"] {
        let response = server.get(path);
        let found: Vec<_> = TOLD.iter().filter(|name| response.find(name).is_some()).collect();
        assert!(found.is_empty(), "{path}: {found:?}");
    }
}

#[test]
fn answers_name_what_they_depend_on() {
    let server = start(told);
    let article = server.get("/article/guide/one").expect(200);
    article.has("cache-control", "no-cache");
    let policy = "max-age=3600, stale-while-revalidate=60, stale-if-error=86400";
    article.has("cdn-cache-control", policy).has("surrogate-control", policy);
    article.has("surrogate-key", "articles article:guide article:guide/one");
    article.has("cache-tag", "articles,article:guide,article:guide/one");
    article.has("cache-groups", r#""articles", "article:guide", "article:guide/one""#);
    let page = server.browse("/article/guide/one").expect(200);
    assert!(tags(&page).contains(&"article-lists".to_owned()), "a page shows its neighbours");
    let simple = server.get("/team/stable/+simple/p/").expect(200);
    simple.has("surrogate-key", "python index:team/stable project:team/stable/p");
    simple.has("cdn-cache-control", policy);
    server
        .get("/team/stable/+simple/")
        .expect(200)
        .has("surrogate-key", "python index:team/stable list:team/stable");

    // A file is kept by its digest as before; its tag is for its removal.
    let page = server.get("/team/dev/+simple/p/").text();
    let link = page.split("href=\"").nth(1).and_then(|rest| rest.split(['"', '#']).next());
    let link = link.expect("a link").trim_start_matches("../");
    let link = link.trim_start_matches("../");
    let file = server.get(&format!("/team/dev/{link}")).expect(200);
    file.has("surrogate-key", "python index:team/dev files:team/dev");
    assert_eq!(file.find("cdn-cache-control"), None);
    file.has("cache-control", "max-age=365000000, immutable, public");

    // 404 is no page to keep: it may be there the next moment.
    server.get("/team/stable/+simple/none/").expect(404).has("cache-control", "no-store");
}

#[test]
fn what_is_not_for_everybody_is_not_kept() {
    let server = start(told);
    let owner = team(&server);
    owner.put("/team/up", json!({"acl_read": ["team"]})).expect(200);
    owner.release("team/up", "q-1.0.zip");
    owner
        .put("/team/upstream", json!({"type": "mirror", "mirror_url": "http://127.0.0.1:9/"}))
        .expect(200);
    owner.put("/team/mixed", json!({"bases": ["team/upstream"]})).expect(200);
    owner.release("team/mixed", "r-1.0.zip");
    let lacks = |response: Response, names: &[&str]| {
        let found: Vec<_> = names.iter().filter(|name| response.find(name).is_some()).collect();
        assert!(found.is_empty(), "{found:?}: {}", response.header("cache-control"));
    };
    lacks(owner.get("/team/up/+simple/q/").expect(200), &TOLD);
    lacks(server.get("/team/up/+simple/q/"), &TOLD[..2]);
    lacks(owner.get("/article/guide/one").expect(200), &TOLD);
    lacks(server.anybody().with("Cookie", "a=b").get("/article/guide/one"), &TOLD);
    // A mirror changes by itself, so its pages have tags, and the time of clients.
    let mixed = server.get("/team/mixed/+simple/r/");
    assert_eq!(mixed.find("cdn-cache-control"), None);

    let private = start(|config| {
        told(config);
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    });
    lacks(team(&private).get("/article/guide/one").expect(200), &TOLD);
}

/// A receiver of the shape `keys`, which answers with one status.
struct Edge {
    receiver: Receiver,
    status: Arc<AtomicU16>,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Edge {
    fn start() -> Edge {
        let (status, taken) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Vec<_>>>::default());
        let (of_edge, bodies) = (status.clone(), taken.clone());
        let receiver = Receiver::start(move |request| {
            let has_key = request.header("x-api-key") == "s3cret";
            let status = if has_key { of_edge.load(SeqCst) } else { 401 };
            if status == 200 {
                let body = serde_json::from_slice(&request.body).expect("JSON");
                bodies.lock().expect("no panic").push(body);
            }
            Receiver::answer(&format!("{status} Said"), "", b"")
        });
        Edge { receiver, status, taken }
    }

    /// All keys that were taken, since this was asked last.
    fn keys(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.taken.lock().expect("no panic"));
        let keys =
            taken.iter().flat_map(|body| body["keys"].as_array().cloned().unwrap_or_default());
        keys.filter_map(|key| key.as_str().map(str::to_owned)).collect()
    }

    #[track_caller]
    fn wait_for(&self, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        wait_until(key, || {
            found.extend(self.keys());
            found.iter().any(|it| it == key)
        });
        found
    }
}

/// Caches of indexes and articles.
fn caching(config: &mut Config, directory: &TempDir, shape: &str, url: &str) {
    caching_of(&["python", "articles"], config, directory, shape, url);
}

/// Caches of these surfaces.
fn caching_of(surfaces: &[&str], config: &mut Config, directory: &TempDir, shape: &str, url: &str) {
    let entry = |surface: &str| {
        format!(
            "[[webhook]]\nname = \"{surface}-edge\"\nsurface = \"{surface}\"\nshape = \"{shape}\"\nurl = \"{url}\"\n\
             headers = {{\"X-Api-Key\" = \"s3cret\"}}\n"
        )
    };
    let path = directory.path().join("webhooks.toml");
    let entries: String = surfaces.iter().copied().map(entry).collect();
    std::fs::write(&path, entries).expect("a file");
    config.changes.webhooks_file = Some(path);
    told(config);
}

#[test]
fn a_change_purges_what_shows_it() {
    let (edge, hooks) = (Edge::start(), tempfile::tempdir().expect("a directory"));
    let url = edge.receiver.url("/");
    let server = start(|config| caching(config, &hooks, "keys", &url));
    // A cache that is new here may have anything.
    let mut first = edge.wait_for("python");
    if !first.contains(&"articles".to_owned()) {
        first = edge.wait_for("articles");
    }
    drop(first);
    let owner = team(&server);
    owner.release("team/dev", "p-2.0.zip");
    let keys = edge.wait_for("project:team/stable/p");
    assert!(keys.contains(&"project:team/dev/p".to_owned()), "{keys:?}");
    assert!(keys.contains(&"list:team/stable".to_owned()), "{keys:?}");
    owner.write("guide/one/1", "second").expect(201);
    edge.wait_for("article:guide/one");
    // What was there before it became a draft is in caches.
    server.get("/article/guide/one").expect(200);
    let draft = team(&server).typed("text/markdown");
    draft.post("/article/guide/one/2", "---\ndraft: true\n---\nsecret\n").expect(201);
    edge.wait_for("article:guide/one");
    server.get("/article/guide/one").expect(404).has("cache-control", "no-store");
    let read = owner.get("/article/guide/one").expect(200);
    assert!(TOLD[..2].iter().all(|name| read.find(name).is_none()));
    owner.patch("/team/dev", json!(["acl_read=team"])).expect(200);
    edge.wait_for("index:team/stable");
    // What nobody but its owner could read is no cache's business.
    owner.put("/team/up", json!({"acl_read": ["team"]})).expect(200);
    owner.release("team/up", "secret-1.0.zip");
    owner.delete("/team/stable/").expect(201);
    let keys = edge.wait_for("files:team/stable");
    assert!(!keys.iter().any(|key| key.contains("team/up")), "{keys:?}");
}

#[test]
fn packages_of_the_aur_are_kept_until_they_change() {
    let (edge, hooks) = (Edge::start(), tempfile::tempdir().expect("a directory"));
    let url = edge.receiver.url("/");
    let of = |version: &str| {
        let package = |id, name: &str, extra| record(id, name, name, extra);
        dump([package(1, "yay", json!({"Version": version})), package(2, "paru", json!({}))])
    };
    let server = TestServer::serving_with(&of("1.0-1"), |config| {
        caching_of(&["aur"], config, &hooks, "keys", &url);
    });
    edge.wait_for("aur");
    let policy = "max-age=300, stale-while-revalidate=60, stale-if-error=86400";
    for (path, tags) in [
        ("/rpc/v5/info/yay", "aur package:yay"),
        ("/rpc/v5/info/YAY", "aur package:yay"),
        ("/rpc?v=5&type=info&arg[]=yay", "aur aur-lists"),
        ("/rpc/v5/search/yay", "aur aur-lists"),
        ("/packages/yay", "aur aur-lists"),
        ("/packages.gz", "aur aur-lists"),
        ("/rss", "aur aur-lists"),
    ] {
        let answer = server.get(path).expect(200);
        answer.has("surrogate-key", tags).has("surrogate-control", policy);
    }
    server.get("/packages/none").expect(404).has("cache-control", "no-store");
    server.replace_source(&of("2.0-1"));
    let keys = edge.wait_for("package:yay");
    assert!(keys.contains(&"aur-lists".to_owned()), "{keys:?}");
    assert!(!keys.contains(&"package:paru".to_owned()), "{keys:?}");
    let info = server.get("/rpc/v5/info/yay").expect(200).json();
    assert_eq!(info["results"][0]["Version"], "2.0-1");
}

#[test]
fn a_purge_is_repeated_until_it_is_taken_also_after_a_restart() {
    let (edge, hooks) = (Edge::start(), tempfile::tempdir().expect("a directory"));
    let url = edge.receiver.url("/");
    let server = start(|config| caching(config, &hooks, "keys", &url));
    edge.wait_for("python");
    edge.wait_for("articles");
    // Kept once the cache was told twice.
    let kept = server.app.config.data_dir.join("webhooks/articles-edge.position");
    wait_until("the position to be kept", || kept.exists());
    edge.status.store(503, SeqCst);
    edge.keys();
    team(&server).write("guide/one/1", "second").expect(201);
    server.wait_for("/readyz?verbose", "[!] webhook articles-edge: ");
    let server = TestServer::start_in(server.stop(), |config, _| {
        config.aur.enabled = false;
        caching(config, &hooks, "keys", &url);
    })
    .ready();
    assert!(edge.keys().is_empty());
    edge.status.store(200, SeqCst);
    let keys = edge.wait_for("article:guide/one");
    assert!(!keys.contains(&"articles".to_owned()), "only what has changed: {keys:?}");
    server.wait_until_gone("/readyz?verbose", "webhook");

    // Pages that were made with other settings may be wrong, though nothing was written.
    let _server = TestServer::start_in(server.stop(), |config, _| {
        config.aur.enabled = false;
        caching(config, &hooks, "keys", &url);
        config.article.acl_read = ":AUTHENTICATED:".parse().expect("a list");
    })
    .ready();
    edge.wait_for("articles");
}

/// A server behind a Varnish, which it purges through a line; `None` if Varnish is not installed.
fn behind_varnish(hooks: &TempDir) -> Option<(Varnish, Line, TestServer)> {
    // The port of the cache is not known before the server's, and the other way round: a place for it is taken first.
    let place = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server_address = place.local_addr().expect("an address");
    let varnish = Varnish::start(&vcl(server_address))?;
    drop(place);
    let line = Line::to(varnish.address);
    let server = start(|config| {
        caching(config, hooks, "varnish", &line.url());
        config.listen = vec![server_address.to_string().parse().expect("an address")];
    });
    wait_until("the first purge", || {
        let first = ["python", "articles"].map(|surface| {
            let name = format!(
                "larder_webhook_deliveries_total{{result=\"ok\",webhook=\"{surface}-edge\"}}"
            );
            server.find_metric(&name).is_some_and(|count| count > 0.0)
        });
        first == [true, true]
    });
    Some((varnish, line, server))
}

/// The VCL that operators get, for a server at this address.
fn vcl(server: SocketAddr) -> String {
    let vcl = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/varnish/larder.vcl"),
    );
    vcl.expect("the VCL").replace("\"8080\"", &format!("\"{}\"", server.port()))
}

#[test]
fn varnish_keeps_pages_until_they_change() {
    let hooks = tempfile::tempdir().expect("a directory");
    let Some((varnish, _line, server)) = behind_varnish(&hooks) else { return };
    let (cache, owner) = (Client { address: varnish.address }, team(&server));

    // Clients are told what they are told without a cache, and nothing of the tags.
    let page = cache.get("/team/stable/+simple/p/").expect(200);
    page.has("cache-control", "max-age=0, must-revalidate");
    assert!(TOLD.iter().all(|name| page.find(name).is_none()));

    // Readers never see a version that is older than one that was there after its purge.
    let (is_over, versions) = (Arc::new(AtomicBool::new(false)), 12);
    let readers = [0, 1].map(|_| {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let (mut last, mut reads) = (0, 0);
            while !is_over.load(SeqCst) {
                let text = cache.get("/article/guide/one").expect(200).text();
                let version = text.strip_prefix("version ").and_then(|text| text.parse().ok());
                let version: u32 = version.unwrap_or(0);
                assert!(version >= last, "{version} after {last}");
                last = version;
                cache.get("/team/stable/+simple/p/").expect(200);
                reads += 2;
            }
            reads
        })
    });
    for version in 1..=versions {
        let text = format!("version {version}");
        owner.write(&format!("guide/one/{version}"), text.as_str()).expect(201);
        owner.release("team/dev", &format!("p-{}.0.zip", version + 1));
        wait_until("the cache to show the article", || {
            cache.get("/article/guide/one").text() == text
        });
        wait_until("the cache to show the release", || {
            cache
                .get("/team/stable/+simple/p/")
                .text()
                .contains(&format!("p-{}.0.zip", version + 1))
        });
    }
    is_over.store(true, SeqCst);
    let reads: u64 = readers.into_iter().map(|it| it.join().expect("a reader")).sum();
    let (hits, misses) = (varnish.counter("MAIN.cache_hit"), varnish.counter("MAIN.cache_miss"));
    // Each change may be missed a few times: both times it is purged, by each of its forms.
    assert!(misses <= 8 * versions as u64 + 20, "{hits} hits, {misses} misses of {reads} reads");
    assert!(hits > misses, "{hits} hits, {misses} misses of {reads} reads");

    // Who shows a token, or the serial of a write, does not get what the cache has.
    let passed = varnish.counter("MAIN.s_pass");
    cache.get_with("/article/guide/one", &[("X-Larder-Serial", "1")]).expect(200);
    cache.get_with("/article/guide/one", &[("Authorization", "Bearer larder_x")]);
    // A worker of Varnish counts after it has answered.
    wait_until("both to be passed on", || varnish.counter("MAIN.s_pass") >= passed + 2);
}

/// The highest version of a release on a page of files of zip archives.
fn highest_version(page: &str) -> u32 {
    let versions = page.split("p-").skip(1).filter_map(|rest| rest.split('.').next());
    versions.filter_map(|text| text.parse().ok()).max().unwrap_or(0)
}

#[test]
fn purges_through_a_bad_line_arrive_and_most_reads_are_hits() {
    let (rounds, reads_per_project) = if is_long() { (120, 60) } else { (9, 5) };
    let hooks = tempfile::tempdir().expect("a directory");
    let Some((mut varnish, line, server)) = behind_varnish(&hooks) else { return };
    let owner = team(&server);
    let projects: Vec<String> = (0..20).map(|at| format!("x{at}p")).collect();
    for project in &projects {
        owner.release("team/dev", &format!("{project}-1.0.zip"));
    }
    // What a reader has seen of each project.
    let mut seen = vec![0; projects.len()];
    let (mut hits, mut misses) = (0, 0);
    let counted =
        |varnish: &Varnish| (varnish.counter("MAIN.cache_hit"), varnish.counter("MAIN.cache_miss"));
    for round in 0..rounds {
        let at = (round * 7) as usize % projects.len();
        let version = round + 2;
        match round % 4 {
            0 => line.block(),
            1 => line.cut(),
            2 => line.cut_after(30),
            _ => {}
        }
        owner.release("team/dev", &format!("{}-{version}.0.zip", projects[at]));
        if round % 4 == 0 {
            // Nobody has told the cache yet: what it has is what was there before.
            server.wait_for("/readyz?verbose", "[!] webhook python-edge: ");
            line.leads_to(varnish.address);
        }
        if round % 9 == 8 {
            // Another cache, empty and at another place, in the middle of it.
            let (more_hits, more_misses) = counted(&varnish);
            (hits, misses) = (hits + more_hits, misses + more_misses);
            varnish = Varnish::start(&vcl(server.client.address)).expect("it was there before");
            line.leads_to(varnish.address);
        }
        let cache = Client { address: varnish.address };
        let page =
            |at: usize| cache.get(&format!("/team/stable/+simple/{}/", projects[at])).expect(200);
        wait_until("the cache to show the release", || {
            highest_version(&page(at).text()) >= version
        });
        for read in 0..projects.len() * reads_per_project {
            let at = read % projects.len();
            let version = highest_version(&page(at).text());
            assert!(version >= seen[at], "{}: {version} after {}", projects[at], seen[at]);
            seen[at] = version;
        }
    }
    let (more_hits, more_misses) = counted(&varnish);
    (hits, misses) = (hits + more_hits, misses + more_misses);
    println!("{hits} hits, {misses} misses");
    let share = f64::from(u32::try_from(hits * 100 / (hits + misses)).expect("a share"));
    assert!(share >= if is_long() { 99.0 } else { 80.0 }, "{hits} hits, {misses} misses");
}
