//! What records say about files, and that new records count at once for everything that earlier ones decided.

use serde_json::{Value, json};

use crate::osv::{AdvisoriesBuilder, LiveAdvisories};
use crate::policy::{COOLDOWN_DAYS_MAX, FileRefusal, Judge};
use crate::testing::{World, now, project_name, stage_name};
use crate::upstream::UpstreamNames;
use crate::{Links, PageBudget, PageForm, PageRequest, Pages, ResolutionOrder};

/// Publishes records, each about these versions of a project; if there are none, about all versions.
pub(in crate::policy) fn publish(live: &LiveAdvisories, records: &[(&str, &str, &[&str])]) {
    let mut builder = AdvisoriesBuilder::default();
    for (place, (id, project, versions)) in (0..).zip(records) {
        let mut affected =
            json!({"package": {"ecosystem": "PyPI", "name": project}, "versions": versions});
        if versions.is_empty() {
            affected["ranges"] = json!([{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]);
        }
        let record = json!({"id": id, "modified": "2026-01-02T03:04:05Z", "affected": [affected]});
        builder.add(record.to_string().as_bytes(), place).expect("a record");
    }
    live.publish(builder.finish().into());
}

/// A world whose policies ask these records.
pub(in crate::policy) fn world(live: &std::sync::Arc<LiveAdvisories>) -> World {
    let mut world = World::new();
    world.snapshot = world.snapshot.clone().with_advisories(live.clone());
    world
}

/// The rule that refuses a file and the reason; empty if it is not refused.
fn refusal(world: &World, stage: &str, filename: &str) -> String {
    let stage = world.snapshot.stage(stage).expect("a stage");
    let project = project_name(filename.split('-').next().expect("a project"));
    let Some(judge) = Judge::between(stage, stage, &project, now()) else {
        return String::new();
    };
    let held = stage.project(project.as_str()).expect("a project");
    let file = held.file(filename).expect("a file");
    let refused = judge.refusal_of_own(stage.name(), file);
    let told = |it: FileRefusal| format!("{} | {}", it.rule.as_str(), it.reason);
    refused.map(told).unwrap_or_default()
}

#[test]
fn files_that_records_name_are_refused_with_their_identifiers() {
    let live = std::sync::Arc::default();
    let mut world = world(&live);
    world.create("alice/dev", json!({"policy_malware": "refuse"}));
    for filename in ["foo-1.0.tar.gz", "foo-2.0.tar.gz", "foo-2004d.tar.gz", "bar-1.0.tar.gz"] {
        world.upload("alice/dev", filename, filename);
    }
    let check = |world: &World, filename: &str, expected: &str| {
        assert_eq!(refusal(world, "alice/dev", filename), expected, "{filename}");
    };
    check(&world, "foo-1.0.tar.gz", "");
    publish(
        &live,
        &[
            ("MAL-1", "foo", &["1.0"]),
            ("MAL-2", "foo", &["1.0.0", "3"]),
            ("GHSA-1", "foo", &["2.0"]),
            ("GHSA-2", "bar", &[]),
        ],
    );
    let both = "malware | known malware: MAL-1, MAL-2";
    check(&world, "foo-1.0.tar.gz", both);
    check(&world, "foo-2.0.tar.gz", "");
    // A version that cannot be compared may be one of them.
    check(&world, "foo-2004d.tar.gz", both);
    check(&world, "bar-1.0.tar.gz", "");
    world
        .modify("alice/dev", json!({"policy_malware": "warn", "policy_vulnerabilities": "refuse"}));
    check(&world, "foo-1.0.tar.gz", "");
    check(&world, "foo-2.0.tar.gz", "vulnerabilities | known vulnerability: GHSA-1");
    check(&world, "bar-1.0.tar.gz", "vulnerabilities | known vulnerability: GHSA-2");
    let many = ["GHSA-1", "GHSA-2", "GHSA-3", "GHSA-4", "GHSA-5"].map(|id| (id, "foo", &[][..]));
    publish(&live, &many);
    let text = "vulnerabilities | known vulnerabilities: GHSA-1, GHSA-2, GHSA-3 and 2 more";
    check(&world, "foo-1.0.tar.gz", text);
    check(&world, "bar-1.0.tar.gz", "");
    // Something else that refuses for a time is less strict.
    world.modify("alice/dev", json!({"policy_cooldown_days": COOLDOWN_DAYS_MAX}));
    check(&world, "foo-1.0.tar.gz", text);
    let exception = "foo==1.0 until 2026-02-02T00:00:00Z examined, says alice";
    world.modify("alice/dev", json!({"policy_exceptions": [exception]}));
    check(&world, "foo-1.0.tar.gz", "");
    check(&world, "foo-2.0.tar.gz", text);
}

#[test]
fn a_warning_names_what_is_given_out() {
    let live = std::sync::Arc::default();
    let mut world = world(&live);
    world.create("alice/base", json!({"policy_malware": "warn"}));
    world.create("alice/dev", json!({"bases": "alice/base", "policy_deny": "bar"}));
    world.upload("alice/base", "foo-1.0.tar.gz", "one").upload("alice/base", "foo-2.0.tar.gz", "2");
    publish(&live, &[("MAL-1", "foo", &["1.0"])]);
    let warning = |world: &World, filename: &str| {
        let [asked, holder] = ["alice/dev", "alice/base"].map(|it| world.snapshot.stage(it));
        let (asked, holder) = (asked.expect("a stage"), holder.expect("a stage"));
        let project = project_name("foo");
        let judge = Judge::between(asked, holder, &project, now()).expect("a policy");
        let held = holder.project("foo").expect("a project");
        let file = judge.own(held.file(filename).expect("a file"));
        assert_eq!(judge.refusal(holder.name(), &file), None);
        let warned = judge.warning(holder.name(), &file);
        (judge.may_note(), warned.map(|it| (it.stage.to_string(), it.rule.as_str(), it.reason)))
    };
    let expected = ("alice/base".to_owned(), "malware", "known malware: MAL-1".to_owned());
    assert_eq!(warning(&world, "foo-1.0.tar.gz"), (true, Some(expected)));
    assert_eq!(warning(&world, "foo-2.0.tar.gz"), (true, None));
    // An explicit exception for a file overrides the records.
    let exception = "foo==1.0 until 2026-02-02T00:00:00Z examined, says alice";
    world.modify("alice/base", json!({"policy_exceptions": [exception]}));
    assert_eq!(warning(&world, "foo-1.0.tar.gz"), (true, None));
    world.modify("alice/base", json!({"policy_exceptions": [], "policy_malware": "off"}));
    assert_eq!(warning(&world, "foo-1.0.tar.gz"), (false, None));
}

#[test]
fn people_see_what_is_served_with_a_warning() {
    let live = std::sync::Arc::default();
    let mut world = world(&live);
    let mirror = json!({"type": "mirror", "mirror_url": "https://upstream.example/simple/"});
    world.create("root/pypi", mirror);
    world.create("alice/dev", json!({"policy_vulnerabilities": "warn"}));
    world.upload("alice/dev", "foo-1.0.tar.gz", "one").upload("alice/dev", "foo-2.0.tar.gz", "two");
    publish(&live, &[("PYSEC-1", "foo", &["1.0"])]);
    let expected = "<strong>WARNING:</strong> foo-1.0.tar.gz is served with a warning by the policy of alice/dev: \
        known vulnerability: PYSEC-1.";
    for bases in ["bases=", "bases=root/pypi"] {
        world.modify("alice/dev", json!([bases]));
        for form in [PageForm::Human, PageForm::Html, PageForm::Json] {
            let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
            let (name, links) = (project_name("foo"), Links::Depth(4));
            let page = match order.has_mirror() {
                false => crate::render(&world.snapshot, "alice/dev", "foo", form, links, now())
                    .expect("a page"),
                true => {
                    let own = order.project("foo");
                    let judge = Judge::of(&order, &name, now());
                    let (own, judge) = (own.as_ref(), judge.as_ref());
                    let merged = crate::MergedPage {
                        order: &order,
                        own,
                        upstream: &[],
                        blocked: &[],
                        apart: &[],
                        project: &name,
                        judge,
                    };
                    crate::merged_page(&merged, form, links)
                }
            };
            let text = String::from_utf8_lossy(&page.reply.body).into_owned();
            assert_eq!(
                text.contains(expected),
                form == PageForm::Human,
                "{bases} {form:?}: {text}"
            );
        }
    }
}

#[test]
fn finished_pages_and_lists_are_out_of_date_when_other_records_count() {
    let live = std::sync::Arc::default();
    let mut world = world(&live);
    world.create("alice/dev", json!({"policy_malware": "refuse"})).create("alice/open", json!({}));
    for stage in ["alice/dev", "alice/open"] {
        world.upload(stage, "foo-1.0.tar.gz", "one").upload(stage, "foo-2.0.tar.gz", "two");
    }
    let pages = Pages::new(PageBudget { page_bytes_max: 1 << 20, list_bytes_max: 1 << 20 }, now);
    let request = |stage: &'static str, project: &'static str| {
        let depth = if project.is_empty() { 3 } else { 4 };
        PageRequest { stage, project, form: PageForm::Json, depth }
    };
    let shown = |stage| {
        let page = pages.page(&world.snapshot, request(stage, "foo")).expect("a page");
        let json: Value = serde_json::from_slice(&page.reply().body).expect("JSON");
        let files = json["files"].as_array().map_or(0, Vec::len);
        let list = pages.page(&world.snapshot, request(stage, "")).expect("a list");
        let list: Value = serde_json::from_slice(&list.reply().body).expect("JSON");
        let listed = list["projects"].as_array().map_or(0, Vec::len);
        (files, listed, json["project-status"].clone())
    };
    let is_ready = |stage, project| pages.ready(&world.snapshot, request(stage, project)).is_some();
    for stage in ["alice/dev", "alice/open"] {
        assert_eq!(shown(stage), (2, 1, Value::Null));
        assert!(is_ready(stage, "foo") && is_ready(stage, ""));
    }
    publish(&live, &[("MAL-1", "foo", &["1.0"])]);
    for project in ["foo", ""] {
        assert!(!is_ready("alice/dev", project), "{project}");
        assert!(is_ready("alice/open", project), "nobody asked there");
    }
    assert_eq!(shown("alice/dev"), (1, 1, Value::Null));
    assert!(is_ready("alice/dev", "foo") && is_ready("alice/dev", ""));
    publish(&live, &[("MAL-1", "foo", &[])]);
    let status = json!({"status": "quarantined", "reason": "known malware: MAL-1"});
    assert_eq!(shown("alice/dev"), (0, 0, status));
    // A record that is gone affects nothing.
    publish(&live, &[("MAL-2", "bar", &[])]);
    assert_eq!(shown("alice/dev"), (2, 1, Value::Null));
    assert_eq!(shown("alice/open"), (2, 1, Value::Null));
}

#[test]
fn a_list_of_an_upstream_leaves_out_projects_that_are_malware_as_a_whole() {
    let live = std::sync::Arc::default();
    let mut world = world(&live);
    let mirror = json!({"type": "mirror", "mirror_url": "https://up.example/simple/", "policy_malware": "refuse"});
    world.create("alice/up", mirror).create("alice/dev", json!({"bases": ["alice/up"]}));
    let names = ["bad", "evil", "foo", "let"].map(|name| json!({"name": name}));
    let list = json!({"meta": {"api-version": "1.0"}, "projects": names}).to_string();
    let list = UpstreamNames::read("application/vnd.pypi.simple.v1+json", &mut list.as_bytes());
    let list = list.expect("a list");
    let listed = |world: &World| {
        let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
        let name = stage_name("alice/up");
        let lists = [(&name, &list)];
        let page = crate::merged_list(&order, &lists, PageForm::Json, Links::Depth(3), now());
        let json: Value = serde_json::from_slice(&page.reply.body).expect("JSON");
        let names = json["projects"].as_array().expect("projects").clone();
        let names: Vec<&str> = names.iter().filter_map(|it| it["name"].as_str()).collect();
        (names.join(" "), page.judged.is_some_and(|judged| judged.is_current()))
    };
    assert_eq!(listed(&world), ("bad evil foo let".to_owned(), true));
    publish(
        &live,
        &[
            ("GHSA-1", "bad", &[]),
            ("MAL-1", "evil", &[]),
            ("MAL-2", "foo", &["1.0"]),
            ("MAL-3", "let", &[]),
        ],
    );
    assert_eq!(listed(&world).0, "bad foo");
    let exception = "let==1.0 until 2026-02-02T00:00:00Z examined, says alice";
    world.modify("alice/up", json!({"policy_exceptions": [exception]}));
    assert_eq!(listed(&world).0, "bad foo let");
    world.modify("alice/dev", json!({"policy_vulnerabilities": "refuse"}));
    assert_eq!(listed(&world).0, "foo let");
}

#[test]
fn a_page_groups_what_it_hides_within_a_bound() {
    let mut hidden = crate::HiddenFiles::default();
    for _ in 0..2 {
        for number in 0..1000 {
            hidden.add(&FileRefusal {
                stage: stage_name("alice/dev"),
                rule: crate::policy::RuleName::Vulnerabilities,
                reason: format!("known vulnerability: GHSA-{number}"),
                until: None,
            });
        }
    }
    let files: Vec<u64> = hidden.groups().iter().map(|group| group.files).collect();
    assert_eq!((files.len(), files[0], files[100], hidden.files()), (101, 2, 1800, 2000));
    assert_eq!(hidden.groups()[100].reason, "other reasons");
}
