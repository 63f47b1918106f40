//! `/packages?names=…`, as aura asks a faur.

use insta::assert_snapshot;
use serde_json::Value;

use crate::client::Response;
use crate::server::small;
use crate::shown::shown_json;

/// The members that aura reads: it refuses records with fewer or more.
const MEMBERS: [&str; 24] = [
    "CheckDepends",
    "Conflicts",
    "Depends",
    "Description",
    "FirstSubmitted",
    "Groups",
    "ID",
    "Keywords",
    "LastModified",
    "License",
    "Maintainer",
    "MakeDepends",
    "Name",
    "NumVotes",
    "OptDepends",
    "OutOfDate",
    "PackageBase",
    "PackageBaseID",
    "Popularity",
    "Provides",
    "Replaces",
    "URL",
    "URLPath",
    "Version",
];

fn ask(query: &str) -> Response {
    small().get(&format!("/packages?{query}"))
}

/// The names of the packages in the answer.
#[track_caller]
fn check(query: &str, expected: &[&str]) {
    let response = ask(query).expect(200);
    response.has("content-type", "application/json");
    let packages = response.json();
    let packages = packages.as_array().expect("a bare array");
    let names: Vec<&str> = packages.iter().filter_map(|it| it["Name"].as_str()).collect();
    assert_eq!(names, expected, "{query}");
    for package in packages {
        let members: Vec<&str> =
            package.as_object().expect("a record").keys().map(String::as_str).collect();
        assert_eq!(members, MEMBERS);
    }
}

#[test]
fn names_are_those_of_packages() {
    check("names=yogurt,attest,none,yogurt", &["yogurt", "attest"]);
    check("names=", &[]);
    check("names=libstdc%2B%2B5", &["libstdc++5"]);
    // As aura sends it.
    check("names=libstdc++5", &["libstdc++5"]);
    assert_snapshot!("package", shown_json(&ask("names=split-a").json()));
    assert_eq!(ask("names=libstdc%2B%2B5").json()[0]["Maintainer"], Value::Null);
}

#[test]
fn what_provides_one_of_the_names() {
    check("names=attest&by=prov", &["attest", "attest-git"]);
    check("by=prov&names=attest,yogurt", &["attest", "attest-git", "yogurt"]);
}

#[test]
fn what_has_all_of_the_words() {
    check("names=green&by=desc", &["one-word", "two-words"]);
    check("names=GREEN,pear&by=desc", &["two-words"]);
    check("names=proof&by=desc", &["attest"]);
    check("names=two,words&by=desc", &["two-words"]);
    // Only whole words count.
    check("names=gree&by=desc", &[]);
    check("names=a&by=desc", &[]);
    check("names=green,nothing&by=desc", &[]);
}

/// Signs separate words of a query as they separate words of a package.
#[test]
fn words_with_signs() {
    check("names=two-words&by=desc", &["two-words"]);
    check("names=two-words,green&by=desc", &["two-words"]);
    check("names=two-nothing&by=desc", &[]);
    check("names=two+words&by=desc", &["two-words"]);
    check("names=%2B%2B&by=desc", &[]);
    check("names=&by=desc", &[]);
    // Nor does `null`, which is JSON for a missing description, count as a word.
    check("names=null&by=desc", &[]);
}

#[test]
fn questions_are_checked() {
    ask("names=x&by=name")
        .tells(400, "`name` is no value of the parameter `by`: expected prov or desc");
    let many: Vec<String> = (0..40).map(|number| format!("word{number}")).collect();
    ask(&format!("by=desc&names={}", many.join(",")))
        .tells(400, "Too many words specified: at most 32 different ones are searched for.");
    // People get a page.
    assert!(ask("K=names").header("content-type").starts_with("text/html"));
}
