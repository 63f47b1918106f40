//! Queries as they are sent, and answers that do not fit into one.

use pypi::osv::AdvisoriesBuilder;
use serde_json::Value;

use super::*;

/// This many records of `foo` and of `bar`, with ascending identifiers.
fn known(of_foo: usize, of_bar: usize) -> Advisories {
    let mut builder = AdvisoriesBuilder::default();
    for (name, count) in [("foo", of_foo), ("bar", of_bar)] {
        for number in 0..count {
            let range =
                json!({"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2"}]});
            let record = json!({
                "id": format!("{name}-{number:05}"), "modified": "2026-01-01T00:00:00Z",
                "affected": [{"package": {"ecosystem": "PyPI", "name": name}, "ranges": [range]}],
            });
            builder.add(record.to_string().as_bytes(), 0).expect("a record");
        }
    }
    builder.finish()
}

fn sought(query: &Value) -> Result<Sought, String> {
    let text = query.to_string();
    let query = parsed(text.as_bytes()).and_then(Sought::of);
    query.map_err(|refusal| format!("{} {}", refusal.code, refusal.message))
}

/// What a query is about, or why it is refused.
#[track_caller]
fn check(query: Value, expected: &str) {
    let found = match sought(&query) {
        Ok(Sought { project: Some(project), version, .. }) => {
            format!("{project} {}", version.as_ref().map_or("*", Version::as_str))
        }
        Ok(_) => "nothing".to_owned(),
        Err(refusal) => refusal,
    };
    assert_eq!(found, expected, "{query}");
}

#[test]
fn queries() {
    let of = |name: &str, ecosystem: &str| json!({"name": name, "ecosystem": ecosystem});
    check(json!({"package": of("Foo_Bar", "PyPI"), "version": "1.0"}), "foo-bar 1.0");
    check(json!({"package": of("foo", "PyPI"), "other": [1]}), "foo *");
    check(json!({"package": of("foo", "PyPI:x"), "version": ""}), "foo *");
    check(json!({"package": of("foo", "npm"), "version": "1.0"}), "nothing");
    check(json!({"package": of("foo", "npm"), "version": "../1"}), "nothing");
    check(json!({"package": of("f\u{f6}", "PyPI"), "version": "1"}), "nothing");
    check(json!({"package": of("foo", "pypi"), "version": "1"}), "foo 1");
    check(json!({"commit": "6879efc2c1596d11a6a6ad296f80063b558d5e0f"}), "nothing");
    let purl = |purl: &str| json!({"package": {"purl": purl}});
    check(purl("pkg:pypi/foo@1.0"), "foo 1.0");
    check(purl("pkg:pypi/foo@1.0%2Blocal?arch=any#sub"), "foo 1.0+local");
    check(purl("pkg:pypi/foo"), "foo *");
    check(purl("pkg:npm/%40scope/foo@1.0"), "nothing");
    for (query, message) in [
        (json!({}), "3 Invalid query: a `package` was expected."),
        (json!({"package": {}}), "3 Invalid query: `name` is missing."),
        (json!({"package": {"name": "foo"}}), "3 Invalid query: `ecosystem` is missing."),
        (purl("foo"), "3 `purl` is no package URL; one such as pkg:pypi/name@1.0 was expected."),
        (
            json!({"package": {"name": "foo", "purl": "pkg:pypi/foo"}}),
            "3 `purl` was given with `name` or `ecosystem`; one of both was expected.",
        ),
        (
            json!({"package": {"purl": "pkg:pypi/foo@1"}, "version": "2"}),
            "3 There are two versions, one in the `purl`.",
        ),
        (
            json!({"package": of("foo", "PyPI"), "version": "1.0 "}),
            "3 `1.0 ` is no version; one such as 1.0 was expected.",
        ),
        (purl("pkg:pypi/foo@%2E1"), "3 `.1` is no version; one such as 1.0 was expected."),
        (
            json!({"package": of("foo", "PyPI"), "page_token": "after:\"}"}),
            "3 `page_token` is not one of this server.",
        ),
    ] {
        check(query, message);
    }
    assert!(sought(&json!([])).is_err() && sought(&json!({"package": 1})).is_err());
}

/// Sends the tokens of the answers until there are none, as clients do; returns the number of requests, and all identifiers.
fn all(known: &Advisories, queries: &[Value]) -> (usize, Vec<Vec<String>>) {
    let mut found = vec![Vec::new(); queries.len()];
    let mut pending: Vec<(usize, Value)> = queries.iter().cloned().enumerate().collect();
    let mut asked = 0;
    while !pending.is_empty() {
        asked += 1;
        let of: Vec<Sought> =
            pending.iter().map(|(_, query)| sought(query).expect("a query")).collect();
        let answer: Value = serde_json::from_str(&identifiers(known, &of)).expect("JSON");
        let results = answer["results"].as_array().expect("results");
        assert_eq!(results.len(), pending.len());
        let ids = |result: &Value| -> Vec<String> {
            let vulns = result["vulns"].as_array().cloned().unwrap_or_default();
            vulns.iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect()
        };
        assert!(results.iter().map(|result| ids(result).len()).sum::<usize>() <= BATCH_IDS_MAX);
        let mut next = Vec::new();
        for ((at, query), result) in pending.iter().zip(results) {
            found[*at].extend(ids(result));
            if let Some(token) = result["next_page_token"].as_str() {
                let mut query = query.clone();
                query["page_token"] = token.into();
                next.push((*at, query));
            }
        }
        pending = next;
    }
    (asked, found)
}

#[test]
fn an_answer_is_bounded_and_tokens_lead_to_the_rest() {
    let known = known(1001, 30);
    let query = |name: &str, version: &str| json!({"package": {"name": name, "ecosystem": "PyPI"}, "version": version});
    let (asked, found) = all(&known, &[query("none", "1"), query("bar", "1"), query("bar", "2")]);
    assert_eq!((asked, found[0].len(), found[1].len(), found[2].len()), (1, 0, 30, 0));
    let (asked, found) = all(&known, &[query("foo", "1")]);
    assert_eq!((asked, found[0].len()), (2, 1001));
    assert!(found[0].is_sorted());
    let many = vec![query("foo", "1"); 8];
    let (asked, found) = all(&known, &many);
    assert!(asked > 1 && found.iter().all(|ids| ids.len() == 1001), "{asked}");
    // No package is affected, but all have to be compared.
    let many = vec![query("foo", "2"); 120];
    let (asked, found) = all(&known, &many);
    assert!(asked > 1 && found.iter().all(Vec::is_empty), "{asked}");
}
