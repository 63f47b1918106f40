//! goaurrpc's version 6, under both of its prefixes.

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
    check("info/attest", "attest");
    check("info?arg=yogurt&arg=attest", "yogurt attest");
    check("info/name/attest", "attest");
    check("info/provides/attest", "attest attest-git");
    check("info?by=provides&arg=attest&arg=yogurt", "attest attest-git yogurt");
    check("search/name/starts-with/split", "split-a split-b");
    check("search/name/contains/plit", "split-a split-b");
    check("search?arg=green+word", "one-word two-words");
    check("search/green%20apple", "two-words");
    check("suggest/split", "split-a split-b");
    check("search/keywords/a%2Fb", "attest");
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
    assert_eq!(
        small().get("/rpc?v=6&type=info&arg=attest").names(),
        "error: Invalid version specified."
    );
    small().get("/rpc?v=6&type=info&arg=attest").expect(200);
    assert_eq!(small().get("/api?v=6&type=info&arg=attest").names(), "attest");
}
