//! Rules of stages applied by themselves.

use std::time::Duration;

use larder::tasks::retention::apply;
use serde_json::json;

use super::{Index, path, sdist};
use crate::server::wait_for;
use crate::wait_until;

/// The versions of `p` that a stage shows, in the order of its page.
#[track_caller]
fn check(index: &Index, stage: &str, versions: &str) {
    let page = index.page(stage, "p");
    let names = page.split(">p-").skip(1).filter_map(|rest| rest.split(".zip<").next());
    assert_eq!(names.collect::<Vec<_>>().join(" "), versions, "{stage}: {page}");
}

fn upload_all(index: &Index, stage: &str, versions: &str) {
    for version in versions.split(' ') {
        index.upload(stage, &format!("p-{version}.zip"), &sdist(version));
    }
}

#[test]
fn rules_are_applied_by_themselves() {
    let index = Index::start_with(|config| {
        config.python.retention_interval = Duration::from_secs(1);
    });
    // The rule also applies to a stage that is not volatile: the owner has set it.
    index.stage("alice/dev", json!({"retention_versions": 1, "volatile": false}));
    index.stage("bob/all", json!({"bases": ["alice/dev"]}));
    upload_all(&index, "alice/dev", "1.0 1.10 1.9");
    // Between two uploads, or after the last one.
    wait_until("older versions to be removed", || {
        let page = index.page("bob/all", "p");
        ["p-1.0", "p-1.9"].iter().all(|version| !page.contains(version))
    });
    check(&index, "bob/all", "1.10");
    let removed = path("alice/dev", "p-1.9.zip", &sdist("1.9"));
    index.anybody().get(&removed).expect(410);
}

#[test]
fn only_what_a_rule_says_goes_and_it_goes_once() {
    let index = Index::start_with(|config| config.python.retention_interval = Duration::ZERO);
    let app = &index.server.app;
    index.stage("alice/two", json!({"retention_versions": 2}));
    index.stage("alice/both", json!({"retention_versions": 1, "retention_days": 1}));
    index.stage("alice/days", json!({"retention_days": 1}));
    index.stage("alice/slip", json!({"retention_versions": 0}));
    index.stage("alice/none", json!({}));
    let all = ["alice/two", "alice/both", "alice/days", "alice/slip", "alice/none"];
    for stage in all {
        upload_all(&index, stage, "1 2 3 4");
    }
    // Two processes may begin at the same moment.
    wait_for(async { tokio::join!(apply(app), apply(app)) });
    check(&index, "alice/two", "3 4");
    for stage in &all[1..] {
        check(&index, stage, "1 2 3 4");
    }
    let bytes = sdist("1").len() + sdist("2").len();
    assert_eq!(index.server.metric("larder_python_retention_versions_total"), 2.0);
    assert_eq!(index.server.metric("larder_python_retention_bytes_total"), bytes as f64);
    assert_eq!(index.server.metric("larder_python_retention_failures_total"), 0.0);
    let serial = app.metrics.store_serial.get();
    wait_for(apply(app));
    assert_eq!(app.metrics.store_serial.get(), serial, "nothing is written where nothing goes");
}
