//! Private names: no request sends them upstream.

use super::super::Upload;
use super::*;

#[test]
fn a_private_name_is_not_sent_upstream_by_an_inherited_link() {
    let upstream = upstream_of(&FILES);
    upstream.offer("/simple/", list(&["foo", "own"]));
    let index = mirror_of(fresh_for_long(), &upstream, json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/up"], "policy_cooldown_days": 1}));
    index.alice().upload("alice/dev", &Upload::of("own-1.0.zip", &sdist("one"))).expect(200);
    let target = format!("/alice/dev/+upstream/{}/files/own-2.0.zip", upstream.host());
    index.get(&target).expect(404);
    let target = path("alice/dev", "own-2.0.zip", b"another");
    index.get(&target).expect(404);
    assert_eq!(upstream.count("/simple/own/"), 0);
    // A file that is not on upstream's page is not fetched.
    let target = format!("/alice/dev/+upstream/{}/files/foo-9.0.tar.gz", upstream.host());
    index.get(&target).expect(404);
    // A user who may not read the mirror reads nothing of it through the stage.
    let patch = json!({"acl_read": ["alice"]});
    index.alice().patch("/alice/up", patch).expect(200);
    let target = format!("/alice/dev/+upstream/{}/files/foo-1.0.tar.gz", upstream.host());
    index.get(&target).expect(401);
    let answer = index.alice().get(&target).expect(200);
    answer.is("foo-1.0.tar.gz");
    answer.has("cache-control", "max-age=365000000, immutable, private");
}

/// Names that are private, in every spelling, and those that are pinned to a base.
const PRIVATE: [&str; 6] =
    ["secret-one", "Secret_One", "secret.one", "SECRET--ONE", "acme-two", "acme-three"];

/// A request that asks in some way for something of a private name.
fn hostile_request(host: &str, number: usize) -> (&'static str, String) {
    let name = PRIVATE[number % PRIVATE.len()];
    // The other index has no pin; there, a name that is on no list is not sent upstream.
    let is_pinned = !number.is_multiple_of(7) || name == "acme-two";
    let stage = if is_pinned { "alice/dev" } else { "alice/open" };
    let file = format!("{name}-{}.0", number / 13 % 9);
    let digest = Digest::of(b"x").to_string();
    let directory = format!("{}/{}", &digest[..3], &digest[3..16]);
    let target = match number / PRIVATE.len() % 10 {
        0 => format!("/{stage}/+simple/{name}/"),
        1 => format!("/{stage}/{name}"),
        2 => format!("/{stage}/{name}/{}.0", number / 13 % 9),
        3 => format!("/{stage}/+upstream/{host}/files/{file}.tar.gz"),
        4 => format!("/{stage}/+f/{directory}/{file}.tar.gz"),
        5 => format!("/{stage}/+e/http_{host}_files/{file}.tar.gz"),
        6 => format!("/{stage}/+f/{directory}/{file}-py3-none-any.whl.metadata"),
        7 => format!("/{stage}/+upstream/{host}/simple/{name}/{file}.zip"),
        8 => format!("/{stage}/+simple/{name}"),
        _ => return ("POST", format!("/{stage}/+simple/{name}/refresh")),
    };
    (["GET", "HEAD"][number % 2], target)
}

#[test]
fn ten_thousand_hostile_requests_send_no_private_name_upstream() {
    const THREADS: usize = 4;
    const REQUESTS: usize = 2_500;
    let upstream = upstream_of(&FILES);
    // A stranger has registered one of our names, and one that is pinned to a base.
    upstream.offer("/simple/", list(&["foo", "secret-one", "acme-two"]));
    let index = mirror_of(fresh_for_long(), &upstream, json!({"policy_cooldown_days": 1}));
    index.stage("alice/base", json!({}));
    index.upload("alice/base", "secret_one-1.0.zip", &sdist("one"));
    let config = json!({"bases": ["alice/base", "alice/up"], "base_pins": ["acme-*=alice/base"]});
    index.stage("alice/dev", config);
    index.stage("alice/open", json!({"bases": ["alice/base", "alice/up"]}));
    let (host, client) = (upstream.host(), index.client());
    let ask = &|number: usize| {
        let (method, target) = hostile_request(&host, number);
        let accept = [JSON_PAGE, JSON, ("Accept", "text/html")][number % 3];
        client.send(method, &target, &[accept], b"").status
    };
    let answered = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    (0..REQUESTS).filter(|at| ask(at * THREADS + thread) < 500).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("answers")).sum::<usize>()
    });
    assert_eq!(answered, THREADS * REQUESTS, "no request fails");
    let sent: BTreeSet<String> = upstream.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(sent, ["/simple/".to_owned()].into(), "only the list of names is asked for");
    // The upstream would see it.
    client.get("/alice/dev/+simple/foo/").expect(200);
    assert_eq!(upstream.count("/simple/foo/"), 1);
}
