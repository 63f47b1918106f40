//! Webhooks: signed deliveries, again until they are taken, across restarts, and never where they may not go.

use insta::assert_snapshot;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tempfile::TempDir;
use testbed::Receiver;

use super::*;
use crate::asking::Says as _;
use crate::browser::{Browser, encoded, form};
use crate::shown::{redacted, shown, shown_json};
use crate::wait_until;

const SECRET: &str = "a secret of both sides";

/// A server that accepts all POSTs, and answers them with one status.
struct Hook {
    receiver: Receiver,
    status: Arc<AtomicU16>,
    received: Arc<Mutex<Vec<Delivery>>>,
}

#[derive(Clone, Debug)]
struct Delivery {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Value,
}

impl Hook {
    fn start(status: u16, location: Option<String>) -> Hook {
        let (status, received) =
            (Arc::new(AtomicU16::new(status)), Arc::<Mutex<Vec<_>>>::default());
        let location = location.map_or_else(String::new, |to| format!("Location: {to}\r\n"));
        let (of_hook, deliveries) = (status.clone(), received.clone());
        let receiver = Receiver::start(move |request| {
            let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
            mac.update(&request.body);
            let digits = mac.finalize().into_bytes();
            let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(request.header("x-hub-signature-256"), format!("sha256={digits}"));
            let body = serde_json::from_slice(&request.body).expect("JSON");
            let (status, headers) =
                (of_hook.load(SeqCst), request.headers.iter().cloned().collect());
            deliveries.lock().expect("it").push(Delivery { status, headers, body });
            Receiver::answer(&format!("{status} Said"), &location, b"")
        });
        Hook { receiver, status, received }
    }

    fn received(&self) -> Vec<Delivery> {
        self.received.lock().expect("it").clone()
    }

    /// The changes that were taken.
    fn taken(&self) -> Vec<Value> {
        let taken = self.received().into_iter().filter(|delivery| delivery.status == 200);
        let changes = |delivery: Delivery| delivery.body["changes"].as_array().cloned();
        taken.flat_map(|delivery| changes(delivery).expect("a list")).collect()
    }

    #[track_caller]
    fn wait_for(&self, change: &str) {
        wait_until(change, || briefs(&self.taken()).iter().any(|brief| brief == change));
    }
}

/// Webhooks of these names, receivers and further lines of the file.
fn hooked(config: &mut Config, directory: &TempDir, hooks: &[(&str, String, &str)]) {
    let path = directory.path().join("webhooks.toml");
    let hook = |(name, url, more): &(&str, String, &str)| {
        let surface = if more.contains("surface") { "" } else { "surface = \"python\"" };
        format!(
            "[[webhook]]\nname = \"{name}\"\nurl = \"{url}\"\n{surface}\nsecret = \"{SECRET}\"\n{more}\n"
        )
    };
    std::fs::write(&path, hooks.iter().map(hook).collect::<String>()).expect("a file");
    config.changes.webhooks_file = Some(path);
}

/// Waits until the webhook misses no further change.
#[track_caller]
fn wait_until_begun(server: &TestServer, name: &str) {
    let path = server.app.config.data_dir.join(format!("webhooks/{name}.position"));
    wait_until("the first position to be kept", || path.exists());
}

fn of(hook: &Hook) -> String {
    hook.receiver.url("/hook?x=1")
}

/// A server with these webhooks to receivers on this machine, which miss no further change.
fn with_hooks(hooks: &[(&str, String, &str)]) -> TestServer {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(|config| {
        hooked(config, &directory, hooks);
        config.egress_allow = vec!["127.0.0.1".parse().expect("a network")];
    });
    hooks.iter().for_each(|(name, ..)| wait_until_begun(&server, name));
    server
}

#[track_caller]
fn wait_for_trouble(server: &TestServer, says: &str) {
    server.wait_for("/readyz?verbose", says);
}

#[test]
fn changes_are_delivered_again_until_they_are_taken() {
    let (hook, hooks) = (Hook::start(200, None), tempfile::tempdir().expect("a directory"));
    let change = |config: &mut Config| {
        hooked(config, &hooks, &[("ci", of(&hook), "")]);
        config.egress_allow = vec!["127.0.0.1".parse().expect("a network")];
    };
    let server = start(change);
    wait_until_begun(&server, "ci");
    let begin = changes(&server.anybody(), "python", "").next;
    index(&server, "PUT", "alice/dev", &json!({}));
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    hook.wait_for("added release alice/dev p 1.0");
    let first = &hook.received()[0];
    assert_eq!(first.headers["content-type"], "application/json");
    assert_eq!(first.headers["x-larder-webhook"], "ci");
    let next = first.body["next"].as_str().expect("a position");
    assert_eq!(first.headers["x-larder-delivery"], format!("ci/{next}"));
    assert_eq!((&first.body["webhook"], &first.body["surface"]), (&json!("ci"), &json!("python")));
    assert_eq!(hook.taken(), changes(&server.anybody(), "python", &begin).changes);
    wait_until("deliveries to be counted", || {
        server.metric("larder_webhook_deliveries_total{result=\"ok\",webhook=\"ci\"}") > 0.0
    });

    // A receiver that fails is seen to, and gets the same again.
    hook.status.store(503, SeqCst);
    owner(&server, "alice/dev").release("alice/dev", "q-1.0.zip");
    wait_for_trouble(&server, "[!] webhook ci: ");
    server.get("/readyz?verbose").says("it answered 503");
    server.get("/readyz").expect(200);
    server.get("/status").says("Webhooks");
    assert!(
        server.metric("larder_webhook_deliveries_total{result=\"failed\",webhook=\"ci\"}") > 0.0
    );
    assert_eq!(server.metric("larder_webhooks_failing"), 1.0);
    let expected = briefs(&changes(&server.anybody(), "python", &begin).changes);
    let directory = server.stop();
    hook.status.store(200, SeqCst);
    let server = TestServer::start_in(directory, |config, _| {
        config.aur.enabled = false;
        change(config);
    });
    hook.wait_for("added release alice/dev q 1.0");
    let mut taken = briefs(&hook.taken());
    taken.dedup();
    assert_eq!(taken, expected);
    server.wait_until_gone("/readyz?verbose", "webhook");
}

/// A chat is told in words, of what it asked for.
#[test]
fn a_webhook_is_told_what_passes_its_filter() {
    let hook = Hook::start(200, None);
    let filter =
        "shape = \"slack\"\nkinds = [\"added\"]\ntypes = [\"release\"]\nindexes = [\"alice/dev\"]";
    let server = with_hooks(&[("chat", of(&hook), filter)]);
    index(&server, "PUT", "alice/other", &json!({}));
    index(&server, "PUT", "alice/dev", &json!({}));
    owner(&server, "alice/other").release("alice/other", "hidden-1.0.zip");
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    owner(&server, "alice/dev").release("alice/dev", "q-1.0.zip");
    let text = || {
        let bodies = hook.received().into_iter().map(|it| it.body["text"].clone());
        let texts: Vec<String> =
            bodies.map(|text| text.as_str().expect("a text").to_owned()).collect();
        texts.join("\n")
    };
    wait_until("the last release", || text().contains("q 1.0"));
    let expected = "release added p 1.0 in alice/dev\nrelease added q 1.0 in alice/dev";
    assert_eq!(text(), expected);
    let headers = &hook.received()[0].headers;
    assert!(headers["webhook-signature"].starts_with("v1,"), "{headers:?}");
    assert_eq!(headers["webhook-id"], headers["x-larder-delivery"]);
}

/// Each filter lets through what it names, and nothing else.
#[test]
fn every_filter_has_its_part() {
    let rows: [(&str, &str, &[&str]); 6] = [
        ("python", "types = [\"index\"]", &["added index alice/dev", "added index alice/other"]),
        (
            "articles",
            "surface = \"articles\"",
            &["added article guide/one", "added article guides"],
        ),
        ("prefix", "surface = \"articles\"\nprefixes = [\"guide/\"]", &["added article guide/one"]),
        (
            "index",
            "indexes = [\"alice/other\"]\ntypes = [\"index\", \"release\"]",
            &["added index alice/other", "added release alice/other p 1.0"],
        ),
        (
            "project",
            "projects = [\"P\"]\ntypes = [\"release\"]",
            &[
                "added release alice/dev p 1.0",
                "added release alice/other p 1.0",
                "removed release alice/dev p 1.0",
            ],
        ),
        (
            "kind",
            "kinds = [\"removed\"]\ntypes = [\"release\"]",
            &["removed release alice/dev p 1.0"],
        ),
    ];
    let receivers = rows.map(|_| Hook::start(200, None));
    let hooks = rows.iter().zip(&receivers);
    let hooks = hooks.map(|((name, filter, _), hook)| (*name, of(hook), *filter));
    let server = with_hooks(&hooks.collect::<Vec<_>>());
    for name in ["alice/dev", "alice/other"] {
        index(&server, "PUT", name, &json!({}));
        owner(&server, name).release(name, "p-1.0.zip");
    }
    owner(&server, "alice/dev").release("alice/dev", "q-1.0.zip");
    owner(&server, "alice/dev").delete("/alice/dev/p/1.0").done();
    for name in ["guide/one", "guides"] {
        server.root().write(&format!("{name}/0"), "text").expect(201);
    }
    for ((name, _, expected), hook) in rows.iter().zip(&receivers) {
        expected.iter().for_each(|change| hook.wait_for(change));
        let waiting = format!("larder_webhook_waiting{{webhook=\"{name}\"}}");
        wait_until("all to be told", || server.metric(&waiting) == 0.0);
        assert_eq!(briefs(&hook.taken()), *expected, "{name}");
    }
}

/// The page of webhooks.
const AT: &str = "/+manage/webhooks";

/// A receiver of two webhooks, and the browser of an administrator.
fn with_administrator() -> (Hook, TestServer, Browser) {
    let hook = Hook::start(200, None);
    let server = with_hooks(&[("ci", of(&hook), ""), ("other", of(&hook), "")]);
    let root = Browser::root(server.client);
    (hook, server, root)
}

/// A test is no delivery.
#[test]
fn administrators_see_webhooks_and_test_them() {
    let (hook, server, mut root) = with_administrator();
    let page = root.get(AT).text();
    // The path of its URL may be a secret, too.
    assert_snapshot!("webhooks", shown(&page));
    page.lacks(["/hook", SECRET]);
    let tested = root.submit(&page, "Webhook ci", &[("do", "test")]);
    tested.tells(200, "A test was posted to ci, and taken.");
    let test = hook.received().remove(0);
    assert!(test.headers["x-larder-delivery"].starts_with("ci/test-"), "{test:?}");
    assert_snapshot!("webhook_test", shown_json(&test.body));
    hook.status.store(503, SeqCst);
    root.submit(&page, "Webhook other", &[("do", "test")])
        .tells(422, "A test was not taken by other: it answered 503 Service Unavailable");
    server.get("/readyz?verbose").lacks("webhook");
}

#[test]
fn an_administrator_ends_the_pause_after_failures() {
    let (hook, server, mut root) = with_administrator();
    hook.status.store(503, SeqCst);
    index(&server, "PUT", "alice/dev", &json!({}));
    // Each pause is twice as long as the one before.
    wait_until("some attempts", || hook.received().len() >= 2 * 3);
    let page = root.get(AT).text();
    assert_eq!(page.matches("Nothing is delivered").count(), 2, "{page}");
    page.says(["it answered 503", "Try now"]);
    hook.status.store(200, SeqCst);
    for name in ["ci", "other"] {
        root.submit(&page, &format!("Webhook {name}"), &[("do", "try")]).expect(200);
    }
    wait_until("both are delivered to", || {
        let page = root.get(AT).text();
        !page.contains("Nothing is delivered") && !page.contains("nothing since the start")
    });
}

/// What was taken can be sent again, under its name; it moves nothing.
#[test]
fn a_delivery_is_sent_again() {
    let (hook, server, mut root) = with_administrator();
    index(&server, "PUT", "alice/dev", &json!({}));
    let mut page = String::new();
    wait_until("a delivery for each", || {
        page = root.get(AT).text();
        ["ci", "other"].iter().all(|name| page.contains(&format!(" of {name}\"")))
    });
    assert_snapshot!("webhook_deliveries", shown(&page));
    let deliveries = || hook.received().into_iter().map(|it| it.headers["webhook-id"].clone());
    let name = deliveries().find(|name| name.starts_with("ci/")).expect("a delivery");
    let mut labels = page.split("aria-label=\"").filter_map(|rest| rest.split('"').next());
    let is_of_ci = |label: &&str| label.starts_with("Delivery ") && label.ends_with(" of ci");
    let label = labels.find(is_of_ci).expect("a form");
    let again = root.submit(&page, label, &[("do", "again")]);
    again.tells(200, &redacted(&format!("{name} was sent again, and taken.")));
    assert_eq!(deliveries().next_back(), Some(name));
    assert_eq!(deliveries().count(), 3);
    root.submit(&page, label, &[("delivery", "0"), ("do", "again")]).expect(404);
    root.submit(&page, label, &[("delivery", "x"), ("do", "again")]).expect(400);
    hook.status.store(503, SeqCst);
    root.submit(&page, label, &[("do", "again")])
        .tells(422, "ci/POSITION was not taken: it answered 503 Service Unavailable");
}

#[test]
fn forms_of_webhooks_are_for_administrators() {
    let (_hook, server, mut root) = with_administrator();
    let page = root.get(AT).text();
    root.submit(&page, "Webhook ci", &[("webhook", "none"), ("do", "test")]).expect(404);
    root.submit(&page, "Webhook ci", &[("do", "x")]).expect(400);
    root.submit(&page, "Webhook ci", &[("form", "x"), ("do", "test")]).expect(403);
    server.add_user("ada", "staple");
    let mut ada = Browser::of(server.client, "ada", "staple");
    ada.get(AT).expect(403);
    let (_, mut fields) = form(&ada.get("/+account").text(), "Log out");
    fields.extend([("webhook", "ci"), ("do", "test")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    ada.post(AT, &encoded(&fields)).expect(403);
    Browser::new(server.client).get(AT).expect(401);
}

#[test]
fn nothing_is_delivered_to_private_addresses() {
    let (hook, hooks) = (Hook::start(200, None), tempfile::tempdir().expect("a directory"));
    let port = hook.receiver.address.port();
    let server = start(|config| {
        let all = [
            ("address", of(&hook), ""),
            ("name", format!("http://localhost:{port}/"), ""),
            ("mapped", format!("http://[::ffff:127.0.0.1]:{port}/"), ""),
            ("decimal", format!("http://2130706433:{port}/"), ""),
        ];
        hooked(config, &hooks, &all);
    });
    for name in ["address", "name", "mapped", "decimal"] {
        wait_until_begun(&server, name);
    }
    index(&server, "PUT", "alice/dev", &json!({}));
    for name in ["address", "name", "mapped", "decimal"] {
        wait_for_trouble(&server, &format!("[!] webhook {name}: "));
    }
    server.get("/readyz?verbose").says("its receiver cannot be reached");
    assert_eq!(hook.received().len(), 0);
}

#[test]
fn redirects_are_not_followed() {
    let other = Hook::start(200, None);
    let hook = Hook::start(307, Some(of(&other)));
    let server = with_hooks(&[("ci", of(&hook), "")]);
    index(&server, "PUT", "alice/dev", &json!({}));
    wait_for_trouble(&server, "redirects are not followed");
    assert_eq!(other.received().len(), 0);
}

#[test]
fn a_webhook_is_told_what_its_user_may_read() {
    let receivers = [Hook::start(200, None), Hook::start(200, None)];
    let [open, hers] = receivers.each_ref().map(of);
    let server = with_hooks(&[("open", open, ""), ("hers", hers, "user = \"alice\"")]);
    index(&server, "PUT", "alice/secret", &json!({"acl_read": "alice"}));
    owner(&server, "alice/secret").release("alice/secret", "s-1.0.zip");
    index(&server, "PUT", "alice/open", &json!({}));
    let [open, hers] = &receivers;
    open.wait_for("added index alice/open");
    hers.wait_for("added index alice/open");
    assert_eq!(briefs(&open.taken()), ["added index alice/open"]);
    hers.wait_for("added release alice/secret s 1.0");
    // A deleted user may read nothing.
    server.root().delete("/alice/secret?force").expect(201);
    server.root().delete("/alice?force").expect(200);
    index(&server, "PUT", "bob/open", &json!({}));
    wait_for_trouble(&server, "its user is not there, or may not log in");
    open.wait_for("added index bob/open");
}

#[test]
fn a_webhook_that_has_missed_too_much_starts_over() {
    let (hook, hooks) = (Hook::start(200, None), tempfile::tempdir().expect("a directory"));
    let server = start(|config| {
        hooked(config, &hooks, &[("ci", of(&hook), "")]);
        config.egress_allow = vec!["127.0.0.1".parse().expect("a network")];
        config.changes.history_max = 1;
    });
    wait_until_begun(&server, "ci");
    index(&server, "PUT", "alice/dev", &json!({}));
    // More changes in one commit than the history has room for.
    owner(&server, "alice/dev").release("alice/dev", "p-1.0.zip");
    wait_until("the order to start over", || {
        let received = hook.received();
        received.iter().any(|delivery| delivery.body["start_over"] == json!(true))
    });
}

#[test]
fn a_file_that_is_wrong_stops_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("webhooks.toml");
    std::fs::write(&path, "[[webhook]]\nname = \"ci\"\n").expect("a file");
    let mut config = Config { data_dir: directory.path().join("data"), ..Config::default() };
    config.listen = vec!["127.0.0.1:0".parse().expect("an address")];
    config.aur.enabled = false;
    config.changes.webhooks_file = Some(path);
    let error = crate::server::wait_for(larder::start(config, Vec::new())).err().expect("an error");
    format!("{error:#}").says(["webhooks.toml", "line 1"]);
}
