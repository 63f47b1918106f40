//! goaurrpc's version 6, under both of its prefixes.

use crate::asking::each;
use crate::server::small;

#[track_caller]
fn check(rest: &str, names: &str) {
    for prefix in ["/rpc", "/api"] {
        let response = small().get(&format!("{prefix}/v6/{rest}"));
        assert_eq!(response.names(), names, "{prefix}/v6/{rest}");
        let is_error = names.starts_with("error");
        assert_eq!(response.status, if is_error { 400 } else { 200 }, "{prefix}/v6/{rest}");
        assert!(response.text().starts_with('[') || response.json()["version"] == 6);
    }
}

#[test]
fn paths_and_queries() {
    let rows = [
        ("info/attest", "attest"),
        ("info?arg=yogurt&arg=attest", "yogurt attest"),
        ("info/name/attest", "attest"),
        ("info/provides/attest", "attest attest-git"),
        ("info?by=provides&arg=attest&arg=yogurt", "attest attest-git yogurt"),
        ("search/name/starts-with/split", "split-a split-b"),
        ("search/name/contains/plit", "split-a split-b"),
        ("search?arg=green+word", "one-word two-words"),
        ("search/green%20apple", "two-words"),
        ("suggest/split", "split-a split-b"),
        ("search/keywords/a%2Fb", "attest"),
    ];
    each(rows, |(rest, names)| check(rest, names));
}

#[test]
fn words_are_bounded_and_count_once() {
    check("search?arg=green+word+gr+e+green+d+or", "one-word two-words");
    check("search?arg=green+word+split", "");
    check("info?by=name-desc&arg=plit-a&arg=zz&arg=PLIT&arg=plit", "split-a split-b");
    let refusal = "error: Too many words specified: at most 32 different ones are searched for.";
    let words: Vec<String> = (0..33).map(|number| format!("w{number}")).collect();
    check(&format!("search?arg={}", words.join("+")), refusal);
    check(&format!("search?arg={}", words[1..].join("+")), "");
    check(&format!("search?by=provides&arg={}", words.join("+")), "");
    check(&format!("info?by=name-desc&arg={}", words.join("&arg=")), refusal);
    check(&format!("info?arg={}", words.join("&arg=")), "");
}

#[test]
fn errors_have_status_400() {
    check("info", "error: No request data specified.");
    check("nonsense/x", "error: Incorrect request type specified.");
    check("search/nonsense/xx", "error: Incorrect by field specified.");
    check("search/name/nonsense/xx", "error: Incorrect mode specified.");
    check("search/x", "error: Query arg too small.");
}

#[test]
fn records_hold_what_is_there() {
    let record = &small().get("/api/v6/search/name/attest").json()["results"][0];
    assert_eq!(record["Name"], "attest");
    assert_eq!(record["Keywords"], serde_json::json!(["proof", "a/b"]));
    assert!(record.get("OutOfDate").is_none() && record.get("ID").is_none(), "{record}");
}

#[test]
fn the_query_form_of_version_6_is_under_api_alone() {
    let refused = small().get("/rpc?v=6&type=info&arg=attest").names();
    assert_eq!(refused, "error: Invalid version specified.");
    small().get("/rpc?v=6&type=info&arg=attest").expect(200);
    assert_eq!(small().get("/api?v=6&type=info&arg=attest").names(), "attest");
}
