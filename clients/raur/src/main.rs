//! raur 7, the library of paru, against a running server.
//!
//! cases.json (what to expect) -> raur's own requests -> an `assert` for each answer. It makes no request by itself.
//!
//! ```text
//! raur-against-larder http://127.0.0.1:8080/rpc clients/cases.json
//! ```

use raur::{Cache, Error, Handle, Package, Raur, SearchBy};

/// What clients/expect.py wrote.
#[derive(serde::Deserialize)]
struct Cases {
    search: Vec<SearchCase>,
    /// Records as `info` must show them; their names spread over the catalogue.
    info: Vec<Package>,
}

/// One search: either the names expected, or the error.
#[derive(serde::Deserialize)]
struct SearchCase {
    by: String,
    arg: String,
    names: Option<Vec<String>>,
    error: Option<String>,
}

const FIELDS: [SearchBy; 14] = [
    SearchBy::Name,
    SearchBy::NameDesc,
    SearchBy::Maintainer,
    SearchBy::Submitter,
    SearchBy::Depends,
    SearchBy::MakeDepends,
    SearchBy::OptDepends,
    SearchBy::CheckDepends,
    SearchBy::Provides,
    SearchBy::Conflicts,
    SearchBy::Replaces,
    SearchBy::Groups,
    SearchBy::Keywords,
    SearchBy::CoMaintainers,
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, cases_path] = &arguments[..] else {
        panic!("expected two arguments, the URL of the RPC and cases.json, found {arguments:?}")
    };
    let text = std::fs::read_to_string(cases_path).expect("cases.json can be read");
    let cases: Cases =
        serde_json::from_str(&text).expect("cases.json is as clients/expect.py writes it");
    // As paru does: compressed answers, its own name.
    let client = reqwest::Client::builder().user_agent("paru/2.1.0").gzip(true).build();
    let handle = Handle::new_with_settings(client.expect("a client without TLS"), url.as_str());

    for field in FIELDS {
        let of_field: Vec<_> =
            cases.search.iter().filter(|case| case.by == field.to_string()).collect();
        assert!(!of_field.is_empty(), "cases.json has no search by {field}");
        for case in of_field {
            check_search(&handle, field, case).await;
        }
    }
    check_info(&handle, &cases.info).await;
    check_cache(&handle, &cases.info).await;
    let orphans = cases.search.iter().find(|case| case.by == "maintainer" && case.arg.is_empty());
    check_outcome("orphans", handle.orphans().await, orphans.expect("cases.json asks for orphans"));
    println!(
        "raur: {} searches by 14 fields, info and cache_info of {} names",
        cases.search.len(),
        cases.info.len()
    );
}

async fn check_search(handle: &Handle, field: SearchBy, case: &SearchCase) {
    let outcome = handle.search_by(&case.arg, field).await;
    check_outcome(&format!("search by {field} for `{}`", case.arg), outcome, case);
    if field == SearchBy::NameDesc {
        check_outcome(&format!("search for `{}`", case.arg), handle.search(&case.arg).await, case);
    }
}

#[track_caller]
fn check_outcome(what: &str, outcome: Result<Vec<Package>, Error>, case: &SearchCase) {
    match outcome {
        Ok(packages) => {
            // raur promises no order.
            let mut found = names(&packages);
            found.sort();
            assert_eq!(Some(found), case.names, "{what}");
        }
        Err(Error::Aur(message)) => assert_eq!(Some(message), case.error, "{what}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// All names at once, with one that does not exist: the records are those of the dump, in every field raur knows.
async fn check_info(handle: &Handle, expected: &[Package]) {
    let mut asked = names(expected);
    asked.push("zzqqxx-nothing".into());
    let found = handle.info(&asked).await.expect("info is answered");
    assert_eq!(names(&found), names(expected));
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(fields(found), fields(expected));
    }
}

/// In batches of 100; what is in the cache is not asked for again, whatever the server would say.
async fn check_cache(handle: &Handle, expected: &[Package]) {
    let mut cache = Cache::new();
    let asked = names(expected);
    let first = handle.cache_info(&mut cache, &asked).await.expect("info is answered");
    assert_eq!((first.len(), cache.len()), (expected.len(), expected.len()));
    let nowhere = Handle::new_with_url("http://127.0.0.1:9/rpc");
    let second = nowhere.cache_info(&mut cache, &asked).await.expect("the cache holds all of them");
    assert_eq!(second.len(), expected.len());
}

fn names(packages: &[Package]) -> Vec<String> {
    packages.iter().map(|package| package.name.clone()).collect()
}

/// `Package` has no `==`; its own serialization shows every field.
fn fields(package: &Package) -> serde_json::Value {
    serde_json::to_value(package).expect("a package becomes JSON")
}
