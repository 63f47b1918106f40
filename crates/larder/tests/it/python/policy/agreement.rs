//! Every way to a file agrees: pages, JSON, metadata, the file and its direct link, for random policies.

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use super::super::advisories::{bundle, record, replace};
use super::super::wheel;
use super::*;

/// Settings of a policy, at random.
fn settings() -> impl Strategy<Value = Value> {
    let rules = || {
        let rule = prop::sample::select(vec![
            "foo",
            "f*",
            "own",
            "foo<2",
            "foo>=2,<4",
            "own==1.0",
            "*@sdist",
            "*@wheel",
            "foo-1.0.tar.gz",
            "own-2.0.zip",
        ]);
        prop::collection::vec(rule, 0..2)
    };
    let days = prop::option::of(prop::sample::select(vec![0, 1, 5, 50, 500]));
    let cutoff = prop::option::of(prop::sample::select(vec!["2020-01-01", "2100-01-01"]));
    let except = prop::collection::vec(prop::sample::select(vec!["foo", "o*"]), 0..2);
    let allow = prop_oneof![3 => Just(Vec::new()), 1 => rules()];
    let measure = || prop::option::of(prop::sample::select(vec!["refuse", "warn", "off"]));
    (days, cutoff, except, allow, rules(), rules(), measure(), measure()).prop_map(
        |(days, cutoff, except, allow, deny, quarantine, malware, vulnerabilities)| {
            json!({
                "policy_malware": malware, "policy_vulnerabilities": vulnerabilities,
                "policy_cooldown_days": days, "policy_cutoff": cutoff, "policy_cooldown_except": except,
                "policy_allow": allow, "policy_deny": deny, "policy_quarantine": quarantine,
            })
        },
    )
}

/// Expects a file, or its metadata, exactly if the page has it.
fn check_file(index: &Index, target: &str, is_shown: bool) -> Result<(), TestCaseError> {
    for method in ["GET", "HEAD"] {
        let answer = index.anybody().send(method, target, ());
        let expected = if is_shown { 200 } else { 403 };
        prop_assert_eq!(answer.status, expected, "{} {}: {}", method, target, answer.text());
    }
    Ok(())
}

/// Expects that lists, search and pages for people have the project `own` of this stage exactly if it shows one of its files, and
/// that a version can be pushed from it exactly if all its own files are shown.
fn check_lists(
    index: &Index,
    stage: &str,
    shown: &[String],
    own: &[&str],
) -> Result<(), TestCaseError> {
    let is_shown = !shown.is_empty();
    let has_own = own.iter().any(|name| shown.iter().any(|it| it == name));
    let list = index.client().get_with(&format!("/{stage}/+simple/"), &[JSON_PAGE]).json();
    let listed = list["projects"].as_array().expect("projects").contains(&json!({"name": "own"}));
    prop_assert_eq!(listed, is_shown, "{}", list);
    for agent in ["pip/25.0 {}", "a browser"] {
        let headers = [("Accept", "text/html"), ("User-Agent", agent)];
        let text = index.client().get_with(&format!("/{stage}/+simple/"), &headers).text();
        prop_assert_eq!(text.contains(">own</a>"), is_shown, "{}", text);
    }
    let config = index.anybody().json().get(&format!("/{stage}")).json();
    let projects = config["result"]["projects"].as_array().expect("projects");
    prop_assert_eq!(projects.contains(&json!("own")), has_own, "{}", config);
    let found = index.anybody().json().get("/+search?query=own").json();
    let items = found["result"]["items"].as_array().expect("items");
    let hit = items.iter().find(|item| item["index"] == stage);
    prop_assert_eq!(hit.is_some(), has_own, "{}", found);
    let newest = own.iter().filter(|name| shown.iter().any(|it| it == *name)).max();
    let newest = newest.map(|name| &name["own-".len().."own-1.0".len()]);
    prop_assert_eq!(hit.and_then(|hit| hit["version"].as_str()), newest, "{}", found);
    let suggested = index.get("/search/suggest?q=own").text();
    prop_assert_eq!(suggested.contains(&format!("{stage}/own")), has_own, "{}", suggested);
    let page = index.client().get_with(&format!("/{stage}"), &[("Accept", "text/html")]).text();
    prop_assert_eq!(page.contains(&format!("{stage}/own\"")), has_own, "{}", page);
    prop_assert_eq!(page.contains("hidden by a policy"), !own.is_empty() && !has_own, "{}", page);
    for name in own {
        let version = &name["own-".len().."own-1.0".len()];
        let order = json!({"name": "own", "version": version, "targetindex": "alice/target"});
        let pushed = index.alice().post(&format!("/{stage}"), order);
        let is_shown = shown.iter().any(|it| it == name);
        prop_assert_eq!(pushed.status, if is_shown { 200 } else { 403 }, "{}", pushed.text());
    }
    Ok(())
}

/// The address that a link on a page of a project means.
pub(super) fn resolved(link: &str, stage: &str, project: &str) -> String {
    let base = format!("http://h/{stage}/+simple/{project}/");
    let url = reqwest::Url::parse(&base).and_then(|base| base.join(link)).expect("a URL");
    url.path().to_owned()
}

/// A file of a project, and the index that holds it.
struct File {
    project: &'static str,
    holder: &'static str,
    name: String,
    content: Vec<u8>,
}

/// The files that a page shows: in each of its forms as many, and each of its links leads to one.
fn check_page(
    index: &Index,
    stage: &str,
    project: &str,
) -> Result<BTreeSet<String>, TestCaseError> {
    let page = json_page(index, stage, project);
    let shown = names(&page);
    let target = format!("/{stage}/+simple/{project}/");
    let human = index.client().get_with(&target, &[("Accept", "text/html")]);
    for text in [index.page(stage, project), human.text()] {
        prop_assert_eq!(text.matches("<a href=").count(), shown.len(), "{}", text);
    }
    for file in page["files"].as_array().expect("files") {
        let target = resolved(file["url"].as_str().expect("a URL"), stage, project);
        check_file(index, &target, true)?;
        if !file["core-metadata"].is_null() {
            check_file(index, &format!("{target}.metadata"), true)?;
        }
    }
    Ok(shown)
}

/// Every address of every file answers as the page shows.
fn check_addresses(
    index: &Index,
    host: &str,
    stage: &str,
    files: &[&File],
    shown: &BTreeSet<String>,
) -> Result<(), TestCaseError> {
    for File { holder, name, content, .. } in files {
        let is_shown = shown.contains(name);
        let mut targets = vec![path(stage, name, content)];
        if *holder == "alice/up" {
            targets.push(format!("/{stage}/+upstream/{host}/files/{name}"));
        }
        for target in targets {
            check_file(index, &target, is_shown)?;
            if name.ends_with(".whl") {
                check_file(index, &format!("{target}.metadata"), is_shown)?;
            }
            let meta = index.client().get_with(&target, &[JSON]).status;
            prop_assert_eq!(meta, if is_shown { 200 } else { 403 }, "{}", target);
        }
    }
    Ok(())
}

/// The JSON of the project and of its versions has what the page shows.
fn check_versions(
    index: &Index,
    stage: &str,
    files: &[&File],
    shown: &BTreeSet<String>,
) -> Result<(), TestCaseError> {
    let config = index.anybody().json().get(&format!("/{stage}/own")).json();
    let versions = config["result"].as_object().expect("versions");
    let linked: BTreeSet<String> = versions
        .values()
        .flat_map(|version| version["+links"].as_array().cloned().unwrap_or_default())
        .filter_map(|link| Some(link["href"].as_str()?.rsplit('/').next()?.to_owned()))
        .collect();
    prop_assert_eq!(&linked, shown);
    for file in files {
        let version = &file.name["own-".len().."own-1.0".len()];
        let is_shown = shown.contains(&file.name);
        let answer = index.anybody().json().get(&format!("/{stage}/own/{version}"));
        let status = if is_shown { 200 } else { 403 };
        prop_assert_eq!(answer.status, status, "{}", answer.text());
        prop_assert_eq!(versions.contains_key(version), is_shown);
    }
    Ok(())
}

/// Every way to the files of one project of an index.
fn check_project(
    index: &Index,
    host: &str,
    stage: &str,
    project: &str,
    files: &[File],
) -> Result<(), TestCaseError> {
    let is_there =
        |file: &&File| file.project == project && (file.holder == stage || stage == "alice/dev");
    let files: Vec<&File> = files.iter().filter(is_there).collect();
    if files.is_empty() {
        return Ok(());
    }
    let shown = check_page(index, stage, project)?;
    check_addresses(index, host, stage, &files, &shown)?;
    if project == "own" {
        let own = files.iter().filter(|file| file.holder == stage);
        let own: Vec<&str> = own.map(|file| &*file.name).collect();
        let names: Vec<String> = shown.iter().cloned().collect();
        check_lists(index, stage, &names, &own)?;
        check_versions(index, stage, &files, &shown)?;
    }
    Ok(())
}

/// The files of the mirror, and those of the indexes, which are uploaded.
fn files(index: &Index) -> Vec<File> {
    let own =
        |holder, name: &str, content| File { project: "own", holder, name: name.into(), content };
    let mut files = vec![
        own("alice/base", "own-1.0.zip", sdist("one")),
        own("alice/base", "own-2.0.zip", sdist("two")),
        own("alice/base", "own-3.0-py3-none-any.whl", wheel("own", "3.0").0),
        own("alice/dev", "own-4.0.zip", sdist("four")),
    ];
    for File { holder, name, content, .. } in &files {
        index.upload(holder, name, content);
    }
    files.extend(FILES.iter().map(|file| File {
        project: "foo",
        holder: "alice/up",
        name: file.0.into(),
        content: file.content(),
    }));
    files
}

#[test]
fn page_json_metadata_file_and_direct_link_agree() {
    let upstream = upstream_of(&FILES);
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("osv.zip");
    let records = [
        record("MAL-1", "own", &["2.0"]),
        record("MAL-2", "foo", &["3.0"]),
        record("GHSA-1", "own", &["3.0", "4.0"]),
        record("GHSA-2", "foo", &[]),
    ];
    replace(&source, &bundle(&records));
    let index = start_knowing(&source);
    mirror(&index, &upstream, json!({}));
    index.stage("alice/base", json!({}));
    index.stage("alice/dev", json!({"bases": ["alice/base", "alice/up"]}));
    index.stage("alice/target", json!({}));
    let files = files(&index);
    let mut runner = TestRunner::new_with_rng(
        Cases { cases: 12, failure_persistence: None, ..Cases::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let policies = (settings(), settings(), settings(), 0..4);
    let outcome = runner.run(&policies, |(up, base, dev, status)| {
        let status = if status == 0 { "quarantined" } else { "active" };
        let done = index.alice().put("/alice/base/own/+status", json!({"status": status}));
        prop_assert_eq!(done.status, 200, "{}", done.text());
        for (stage, policy) in [("alice/up", up), ("alice/base", base), ("alice/dev", dev)] {
            let done = index.alice().patch(&format!("/{stage}"), policy);
            prop_assert_eq!(done.status, 200, "{}", done.text());
        }
        for stage in ["alice/up", "alice/base", "alice/dev"] {
            for project in ["foo", "own"] {
                check_project(&index, &upstream.host(), stage, project, &files)?;
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
