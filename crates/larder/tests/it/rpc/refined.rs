//! Parameters that aurweb does not have: sorted results in parts, chosen fields, words and regular expressions.

use crate::server::{busy, small};
use crate::wait_until;

/// Expects these names and this total, whether it is asked for in the path, in the query or in JSON.
#[track_caller]
fn check(needle: &str, options: &str, names: &str, total: usize) {
    let encoded: String = form_urlencoded::byte_serialize(needle.as_bytes()).collect();
    let encoded = encoded.replace('+', "%20");
    let query = format!("/rpc?v=5&type=search&arg={encoded}&{options}");
    for target in [format!("/rpc/v5/search/{encoded}?{options}"), query] {
        let response = small().get(&target);
        assert_eq!((response.status, &*response.names()), (200, names), "{target}");
        assert_eq!(response.json()["total"], total, "{target}");
    }
    let pairs = form_urlencoded::parse(options.as_bytes());
    let mut members: serde_json::Map<_, _> =
        pairs.map(|(key, value)| (key.into_owned(), value.into_owned().into())).collect();
    members.insert("arg".to_owned(), needle.into());
    let body = serde_json::Value::Object(members).to_string();
    let response = small().post("/rpc/v5/search", "application/json", body.as_bytes());
    assert_eq!(response.names(), names, "{body}");
}

#[test]
fn results_are_sorted_and_come_in_parts() {
    check("split", "by=name&sort=name&order=desc&limit=1", "split-b", 2);
    check("split", "by=name&sort=name&limit=5&offset=1", "split-b", 2);
    check("green word", "mode=words", "one-word two-words", 2);
    check("green -apple", "mode=words&sort=name", "one-word", 1);
    check("^split-[ab]$", "mode=regex&by=name", "split-a split-b", 2);
    check("proof", "keywords=1&sort=relevance&limit=1", "attest", 1);
    check("split", "by=pkgbase&limit=9", "split-a split-b", 2);
}

#[test]
fn bad_values_are_errors_as_others_are() {
    let text =
        "`sort` is `age`: expected one of name, votes, popularity, modified, submitted, relevance";
    for (prefix, status) in [("/rpc/v5", 200), ("/rpc/v6", 400), ("/api/v6", 400)] {
        let response = small().get(&format!("{prefix}/search/attest?sort=age")).expect(status);
        assert_eq!(response.json()["error"], text);
        assert_eq!(response.names(), format!("error: {text}"));
    }
}

#[test]
fn fields_are_chosen_and_tags_tell_answers_apart() {
    let client = small().client;
    let some = client.get("/rpc/v5/info/attest?fields=Name,RequiredBy");
    let records = some.json()["results"].to_string();
    assert!(records.starts_with(r#"[{"Name":"attest","RequiredBy":["#), "{records}");
    let other = client.get("/rpc/v5/info/attest?fields=Name");
    assert_ne!(some.header("etag"), other.header("etag"));
    let tag = some.header("etag").to_owned();
    client
        .get_with("/rpc/v5/info/attest?fields=Name,RequiredBy", &[("If-None-Match", tag.as_str())])
        .expect(304);
    let wrapped = client.get("/rpc/v5/info/attest?fields=Name&callback=f").text();
    assert!(wrapped.starts_with("/**/f({\"resultcount\":1,"), "{wrapped}");
}

#[test]
fn such_questions_wait_in_turn_and_others_do_not() {
    let (server, release) = busy(1);
    let client = server.client;
    let target = "/rpc/v5/search/split?mode=regex";
    let waiting = std::thread::spawn(move || client.get(target));
    wait_until("one to wait", || server.metric("larder_cpu_pool_queue_length") == 1.0);
    server.get(target).expect(503).has("retry-after", "1");
    assert_eq!(server.get("/rpc/v5/search/split?by=name").names(), "split-a split-b");
    drop(release);
    assert_eq!(waiting.join().expect("an answer").names(), "split-a split-b");
}

#[test]
fn such_questions_leave_room_for_other_computations() {
    let (server, release) = busy(4);
    let client = server.client;
    let target = "/rpc/v5/search/split?mode=regex";
    // One is in the queue, and two wait for their turn.
    let asked: Vec<_> = (0..8).map(|_| std::thread::spawn(move || client.get(target))).collect();
    wait_until("the others to be refused", || {
        server.metric("larder_cpu_pool_refused_total") == 5.0
    });
    wait_until("one to wait", || server.metric("larder_cpu_pool_queue_length") == 1.0);
    let page = std::thread::spawn(move || client.get("/packages"));
    wait_until("the page to wait", || server.metric("larder_cpu_pool_queue_length") == 2.0);
    drop(release);
    page.join().expect("an answer").expect(200);
    let statuses = asked.into_iter().map(|asked| asked.join().expect("an answer").status);
    let answered = statuses.filter(|status| *status == 200).count();
    assert_eq!(answered, 3);
}
