//! Policies: each rule, which of several counts, and that pages and JSON never disagree.

use std::cell::Cell;
use std::collections::BTreeSet;

use account::Principal;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::project_advisories::tests::{publish, world};
use super::*;
use crate::devpi::{self, MetadataBytes, View};
use crate::testing::{World, now, project_name, stage_name, time};
use crate::upstream::UpstreamNames;
use crate::{
    Decision, Links, PageBudget, PageForm, PageRequest, Pages, ProjectStatus, RenderedPage,
    ResolutionOrder, StageConfig, StatusMarker, change,
};

/// A policy with these settings.
fn policy(settings: Value) -> Policy {
    let edit = crate::ConfigEdit::parse(&settings).expect("settings");
    let config = StageConfig::create(&stage_name("alice/dev"), &edit, &|_| true);
    config.expect("a configuration").policy.map(|policy| *policy).unwrap_or_default()
}

/// The rule that refuses the file at the time of the tests, and until when; `""` if none does.
#[track_caller]
fn check(settings: Value, filename: &str, uploaded: &str, expected: &str) {
    let project = project_name(filename.split('-').next().expect("a project"));
    let candidate = Candidate {
        project: &project,
        filename,
        version: None,
        uploaded: match uploaded {
            "" => UploadTime::Unknown,
            text => UploadTime::Written(text),
        },
        first_seen: None,
    };
    let policy = policy(settings);
    let found = match policy.on(&project, now(), None).refusal(&candidate, now()) {
        None => String::new(),
        Some((rule, _, None)) => rule.as_str().to_owned(),
        Some((rule, _, Some(until))) => format!("{} until {until}", rule.as_str()),
    };
    assert_eq!(found, expected);
}

const OLD: &str = "2020-01-01T00:00:00Z";

#[test]
fn rules_mean_projects_versions_kinds_and_files() {
    let denied = |rule: &str, filename: &str, expected: bool| {
        let expected = if expected { "deny" } else { "" };
        check(json!({"policy_deny": [rule]}), filename, OLD, expected);
    };
    for (rule, filename, expected) in [
        ("foo", "foo-1.0.tar.gz", true),
        ("Foo", "foo-1.0.tar.gz", true),
        ("fo", "foo-1.0.tar.gz", false),
        ("fo*", "foo-1.0.tar.gz", true),
        ("*", "foo-1.0.tar.gz", true),
        ("oo*", "foo-1.0.tar.gz", false),
        ("foo>=1,<2", "foo-1.9.tar.gz", true),
        ("foo>=1,<2", "foo-2.0.tar.gz", false),
        ("foo==1.*", "foo-1.9-py3-none-any.whl", true),
        ("foo@sdist", "foo-1.0.tar.gz", true),
        ("foo@sdist", "foo-1.0-py3-none-any.whl", false),
        ("*@wheel", "foo-1.0-py3-none-any.whl", true),
        ("foo<2@wheel", "foo-1.0-py3-none-any.whl", true),
        ("foo<2@wheel", "foo-1.0.tar.gz", false),
        ("foo-1.0.tar.gz", "foo-1.0.tar.gz", true),
        ("foo-1.0.tar.gz", "foo-1.0.zip", false),
        ("foo@other", "foo-1.0.win32.exe", true),
        // A version that cannot be compared is refused, and is not allowed.
        ("foo<2", "foo-2004d.tar.gz", true),
    ] {
        denied(rule, filename, expected);
    }
    let allow = json!({"policy_allow": ["foo>=1", "acme-*"]});
    for (filename, expected) in [
        ("foo-1.0.tar.gz", ""),
        ("foo-0.9.tar.gz", "allow"),
        ("foo-2004d.tar.gz", "allow"),
        ("bar-1.0.tar.gz", "allow"),
    ] {
        check(allow.clone(), filename, OLD, expected);
    }
    let both = json!({"policy_allow": ["foo"], "policy_deny": ["foo==1.0"]});
    check(both, "foo-1.0.tar.gz", OLD, "deny");
}

#[test]
fn a_file_matures() {
    // The tests take place on 2026-01-31 at 12:34:56.789.
    let days = json!({"policy_cooldown_days": 7});
    let young = "2026-01-30T00:00:00Z";
    check(days.clone(), "foo-1.0.tar.gz", young, "cooldown until 2026-02-06T00:00:00Z");
    check(days.clone(), "foo-1.0.tar.gz", "2026-01-24T12:34:56.789Z", "");
    check(
        days.clone(),
        "foo-1.0.tar.gz",
        "2026-01-24T12:34:56.790Z",
        "cooldown until 2026-01-31T12:34:56.79Z",
    );
    // The file's age is not known.
    check(days, "foo-1.0.tar.gz", "", "cooldown");
    check(json!({"policy_cooldown_days": 7}), "foo-1.0.tar.gz", "yesterday", "cooldown");
    let excepted = json!({"policy_cooldown_days": 7, "policy_cutoff": "2020-01-01", "policy_cooldown_except": "fo*"});
    check(excepted.clone(), "foo-1.0.tar.gz", young, "");
    check(excepted, "bar-1.0.tar.gz", young, "cutoff");
    let cutoff = json!({"policy_cutoff": "2026-01-01"});
    check(cutoff.clone(), "foo-1.0.tar.gz", "2025-12-31T23:59:59Z", "");
    check(cutoff, "foo-1.0.tar.gz", "2026-01-01T00:00:00Z", "cutoff");
    let most = json!({"policy_cooldown_days": COOLDOWN_DAYS_MAX});
    check(most, "foo-1.0.tar.gz", young, "cooldown until 2126-01-06T00:00:00Z");
}

#[test]
fn the_policy_of_the_stage_asked_and_that_of_the_holder_count() {
    let mut world = World::new();
    world.create("alice/base", json!({"policy_cooldown_days": 2}));
    world.create("alice/other", json!({"policy_deny": "foo"}));
    world
        .create("alice/dev", json!({"bases": "alice/base,alice/other", "policy_cooldown_days": 5}));
    world.create("alice/open", json!({"bases": "alice/base"}));
    world.upload("alice/base", "foo-1.0.tar.gz", "one");
    let project = project_name("foo");
    let file =
        world.snapshot.stage("alice/base").expect("a stage").project("foo").expect("foo").clone();
    let refused = |stage: &str, days: i64| {
        let order = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
        let at = now() + SignedDuration::from_hours(24 * days);
        let judge = Judge::of(&order, &project, at).expect("a policy");
        let refused = judge.refusal_of_own(&stage_name("alice/base"), &file.files()[0]);
        refused.map(|refused| refused.to_string())
    };
    let two =
        "refused by the policy of alice/base: younger than 2 days, until 2026-02-02T12:34:57Z";
    let five =
        "refused by the policy of alice/dev: younger than 5 days, until 2026-02-05T12:34:57Z";
    assert_eq!(refused("alice/base", 0).as_deref(), Some(two));
    assert_eq!(refused("alice/open", 0).as_deref(), Some(two), "the holder's counts");
    assert_eq!(refused("alice/dev", 0).as_deref(), Some(five), "the stricter one counts");
    assert_eq!(refused("alice/dev", 3).as_deref(), Some(five));
    assert_eq!(refused("alice/dev", 5), None, "what the other base denies is not its file");
    assert_eq!(refused("alice/open", 2), None);
}

thread_local! {
    static CLOCK: Cell<Timestamp> = const { Cell::new(Timestamp::UNIX_EPOCH) };
}

fn clock() -> Timestamp {
    CLOCK.get()
}

#[test]
fn a_finished_page_expires_when_a_file_has_matured() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let pages = Pages::new(PageBudget { page_bytes_max: 1 << 20, list_bytes_max: 1 << 20 }, clock);
    let request =
        PageRequest { stage: "alice/dev", project: "foo", form: PageForm::Json, depth: 4 };
    let shown = |world: &World| {
        let page = pages.page(&world.snapshot, request).expect("a page");
        let json: Value = serde_json::from_slice(&page.reply().body).expect("JSON");
        let tag = page.tag(reply::Encoding::Identity).to_owned();
        (json["files"].as_array().map(Vec::len), json["_hidden"].clone(), tag, page.may_expire())
    };
    CLOCK.set(now());
    let open = shown(&world);
    assert_eq!((open.0, &open.1, open.3), (Some(1), &Value::Null, false));
    world.modify("alice/dev", json!({"policy_cooldown_days": 7}));
    let hidden = shown(&world);
    let said = json!([{"files": 1, "index": "alice/dev", "reason": "younger than 7 days",
        "until": "2026-02-07T12:34:57Z"}]);
    assert_eq!((hidden.0, &hidden.1, hidden.3), (Some(0), &said, true));
    assert_ne!(hidden.2, open.2);
    let made = pages.counts().rendered;
    CLOCK.set(time("2026-02-07T12:34:56.788Z"));
    assert_eq!(shown(&world), hidden);
    assert_eq!(pages.counts().rendered, made, "it is not made again");
    assert!(pages.ready(&world.snapshot, request).is_some());
    CLOCK.set(time("2026-02-07T12:34:56.789Z"));
    assert!(pages.ready(&world.snapshot, request).is_none(), "it has expired");
    assert_eq!(shown(&world), open, "the tag is that of the same page");
    assert_eq!(pages.counts().hidden_files, 1);
}

#[test]
fn an_exception_gives_a_file_out_until_it_ends() {
    let mut world = World::new();
    let exceptions = ["foo==1.0 until 2026-02-02T00:00:00Z needed today, alice"];
    world.create("alice/dev", json!({"policy_quarantine": ["fo* why"], "policy_deny": ["bar"], "policy_exceptions": exceptions}));
    for filename in ["foo-1.0.tar.gz", "foo-2.0.tar.gz", "bar-1.0.tar.gz"] {
        world.upload("alice/dev", filename, filename);
    }
    let pages = Pages::new(PageBudget { page_bytes_max: 1 << 20, list_bytes_max: 1 << 20 }, clock);
    let page = |project, depth| {
        let request = PageRequest { stage: "alice/dev", project, form: PageForm::Json, depth };
        let page = pages.page(&world.snapshot, request).expect("a page");
        let json: Value = serde_json::from_slice(&page.reply().body).expect("JSON");
        let files = json["files"].as_array().cloned().unwrap_or_default();
        let names = files.iter().map(|file| file["filename"].clone()).collect::<Vec<_>>();
        (names, json["project-status"]["status"].clone(), json["projects"].clone())
    };
    CLOCK.set(now());
    assert_eq!(page("foo", 4), (vec![json!("foo-1.0.tar.gz")], Value::Null, Value::Null));
    assert_eq!(page("", 3).2, json!([{"name": "foo"}]));
    let stage = world.snapshot.stage("alice/dev").expect("a stage");
    let (project, name) = (project_name("foo"), stage_name("alice/dev"));
    let judge = Judge::between(stage, stage, &project, now()).expect("a policy");
    let files = stage.project("foo").expect("a project");
    let exception = |filename| {
        let file = files.file(filename).expect("a file");
        judge.exception(&name, &judge.own(file)).map(|it| (it.rule, it.exception))
    };
    let expected = Some((RuleName::Quarantine, exceptions[0].to_owned()));
    assert_eq!(exception("foo-1.0.tar.gz"), expected);
    assert_eq!(exception("foo-2.0.tar.gz"), None);
    // Pages and lists expire with it.
    CLOCK.set(time("2026-02-02T00:00:00Z"));
    assert_eq!(page("foo", 4), (Vec::new(), json!("quarantined"), Value::Null));
    assert_eq!(page("", 3).2, json!([]));
}

/// What a page says of what is hidden.
fn hidden(page: &str) -> Vec<&str> {
    let info = |line| str::strip_prefix(line, "<p><strong>INFO:</strong> ")?.strip_suffix("</p>");
    page.lines().filter_map(info).collect()
}

#[test]
fn a_list_leaves_out_what_is_hidden_and_expires_when_it_has_matured() {
    let mut world = World::new();
    world.create("alice/dev", json!({"policy_cooldown_days": 7}));
    world.upload("alice/dev", "foo-1.0.tar.gz", "one").upload("alice/dev", "bar-1.0.tar.gz", "bar");
    let pages = Pages::new(PageBudget { page_bytes_max: 1 << 20, list_bytes_max: 1 << 20 }, clock);
    let listed = |world: &World, form| {
        let request = PageRequest { stage: "alice/dev", project: "", form, depth: 3 };
        let page = pages.page(&world.snapshot, request).expect("a list");
        String::from_utf8(page.reply().body.to_vec()).expect("text")
    };
    let names = |world: &World| {
        let json: Value = serde_json::from_str(&listed(world, PageForm::Json)).expect("JSON");
        json["projects"].as_array().map(|names| names.iter().map(|it| it["name"].clone()).collect())
    };
    let all = Some(vec![json!("bar"), json!("foo")]);
    CLOCK.set(now());
    assert_eq!(names(&world), Some(Vec::new()));
    let human = listed(&world, PageForm::Human);
    assert_eq!(hidden(&human), ["2 projects are hidden by policies."]);
    assert!(!human.contains("foo"), "{human}");
    CLOCK.set(time("2026-02-07T12:34:56.789Z"));
    assert_eq!(names(&world), all);
    // A file of a project that was there before may be the first that is shown.
    world.modify("alice/dev", json!({"policy_cooldown_days": null, "policy_deny": ["foo<2"]}));
    assert_eq!(names(&world), Some(vec![json!("bar")]));
    world.upload("alice/dev", "foo-2.0.tar.gz", "two");
    assert_eq!(names(&world), all);
    // An owner's quarantine, without a policy.
    world.modify("alice/dev", json!({"policy_deny": []}));
    assert_eq!(names(&world), all);
    let status = ProjectStatus { marker: StatusMarker::Quarantined, reason: None };
    let (stage, project) = (stage_name("alice/dev"), project_name("foo"));
    let set = change::yank::set_project_status(&world.snapshot, &stage, &project, Some(&status));
    let Ok(Decision::Commit(batch)) = set else { panic!("{set:?}") };
    world.commit(batch).expect("no conflict");
    assert_eq!(names(&world), Some(vec![json!("bar")]));
}

#[test]
fn a_list_of_an_upstream_leaves_out_what_is_refused_by_name() {
    let mut world = World::new();
    world.create("alice/up", json!({"type": "mirror", "mirror_url": "https://up.example/simple/", "policy_deny": ["evil", "bad-*", "foo<2"]}));
    world.create(
        "alice/other",
        json!({"type": "mirror", "mirror_url": "https://other.example/simple/"}),
    );
    world.create("alice/dev", json!({"bases": ["alice/up", "alice/other"]}));
    let parse = |names: &str| {
        let projects: Vec<Value> = names.split(' ').map(|name| json!({"name": name})).collect();
        let text = json!({"meta": {"api-version": "1.0"}, "projects": projects}).to_string();
        UpstreamNames::read("application/vnd.pypi.simple.v1+json", &mut text.as_bytes())
            .expect("a list")
    };
    let up = parse("bad-one bad evil foo mine");
    let other = parse("bad-one zoo");
    let listed = |world: &World, form| {
        let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
        let names = ["alice/up", "alice/other"].map(stage_name);
        let lists = [(&names[0], &up), (&names[1], &other)];
        let page = crate::merged_list(&order, &lists, form, Links::Depth(3), now());
        String::from_utf8(page.reply.body.to_vec()).expect("text")
    };
    let names = |world: &World| {
        let json: Value = serde_json::from_str(&listed(world, PageForm::Json)).expect("JSON");
        let names = json["projects"].as_array().expect("projects").clone();
        names.iter().filter_map(|it| it["name"].as_str()).collect::<Vec<_>>().join(" ")
    };
    // The other mirror has no policy.
    assert_eq!(names(&world), "bad bad-one foo mine zoo");
    assert_eq!(hidden(&listed(&world, PageForm::Human)), ["2 projects are hidden by policies."]);
    world.modify("alice/dev", json!({"policy_allow": ["foo", "zoo>1", "bad-*"]}));
    assert_eq!(names(&world), "bad-one foo zoo");
    // A project of ours that is hidden is not listed because a stranger has one of the same name.
    world.modify("alice/dev", json!({"policy_allow": [], "policy_cooldown_days": 7}));
    world.upload("alice/dev", "mine-1.0.tar.gz", "mine");
    assert_eq!(names(&world), "bad bad-one foo zoo");
}

/// `alice/dev` on two indexes and two mirrors, with pins of a prefix, of a mirror's project, and of one that an index has as well.
fn pinned() -> World {
    let mut world = World::new();
    world.create("alice/one", json!({})).create("alice/two", json!({}));
    for name in ["up", "other"] {
        let url = format!("https://{name}.example/simple/");
        world.create(&format!("alice/{name}"), json!({"type": "mirror", "mirror_url": url}));
    }
    let bases = ["alice/one", "alice/two", "alice/up", "alice/other"];
    let pins = ["acme-*=alice/two", "theirs=alice/other", "mixed=alice/up"];
    world.create("alice/dev", json!({"bases": bases, "base_pins": pins}));
    for (stage, filename) in [
        ("alice/one", "acme_a-2.0.tar.gz"),
        ("alice/one", "acme_b-1.0.tar.gz"),
        ("alice/two", "acme_a-1.0.tar.gz"),
        ("alice/one", "free-1.0.tar.gz"),
        ("alice/one", "mixed-1.0.tar.gz"),
    ] {
        world.upload(stage, filename, filename);
    }
    world
}

/// For each project, the indexes that have it for `alice/dev`, and the mirrors that are asked for it.
fn order_of(world: &World) -> [String; 6] {
    let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
    ["acme-a", "acme-b", "free", "theirs", "mixed", "any"].map(|project| {
        let view = order.project(project);
        let parts = view.iter().flat_map(|view| view.parts());
        let own: Vec<&str> = parts.map(|part| part.stage.name().index()).collect();
        let mirrors = order.mirrors_of(project).asked;
        let asked: Vec<&str> = mirrors.iter().map(|mirror| mirror.name().index()).collect();
        format!("{project}: {} | {}", own.join(" "), asked.join(" "))
    })
}

#[test]
fn a_pinned_project_comes_from_its_base_alone() {
    let mut world = pinned();
    let expected = [
        "acme-a: two | ",
        "acme-b:  | ",
        "free: one | ",
        "theirs:  | other",
        // One of our stages has this project, so the whitelist blocks the mirror although the project is pinned to it.
        "mixed:  | ",
        "any:  | up other",
    ];
    assert_eq!(order_of(&world), expected);
    let list =
        crate::render(&world.snapshot, "alice/dev", "", PageForm::Json, Links::Depth(3), now());
    let list: Value = serde_json::from_slice(&list.expect("a list").reply.body).expect("JSON");
    assert_eq!(list["projects"], json!([{"name": "acme-a"}, {"name": "free"}]));
    // A pin never excludes the stage's own files.
    world.upload("alice/dev", "acme_a-3.0.tar.gz", "own");
    assert_eq!(order_of(&world)[0], "acme-a: dev two | ");
    // The pin does not apply to the base's own pages.
    let order = ResolutionOrder::of(&world.snapshot, "alice/one").expect("a stage");
    assert!(order.project("acme-b").is_some());
}

/// Unless it has its own pin for the name.
#[test]
fn an_index_keeps_to_the_pins_of_its_base() {
    let mut world = pinned();
    let bases = json!(["alice/dev", "alice/up"]);
    world.create("alice/derived", json!({"bases": bases}));
    world.create("alice/loose", json!({"bases": bases, "base_pins": ["acme-new=alice/up"]}));
    for (stage, expected) in [("alice/derived", ""), ("alice/loose", "up")] {
        let order = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
        let asked = |project: &str| -> Vec<&str> {
            order.mirrors_of(project).asked.iter().map(|mirror| mirror.name().index()).collect()
        };
        assert_eq!((asked("acme-new").join(" ").as_str(), asked("any").len()), (expected, 2));
        let up = "alice/up".parse().expect("a name");
        assert_eq!(order.is_elsewhere("acme-new", &up), expected.is_empty());
        assert!(order.has_pins() && !order.is_elsewhere("any", &up));
        let view = order.project("acme-a").expect("a project");
        assert_eq!(view.parts().len(), 1, "not what the other base has");
        assert!(order.project("acme-b").is_none());
    }
}

/// The page of a project, or the list of all for an empty name.
fn page(world: &World, stage: &str, project: &str, form: PageForm, at: Timestamp) -> RenderedPage {
    let links = Links::Depth(if project.is_empty() { 3 } else { 4 });
    crate::render(&world.snapshot, stage, project, form, links, at).expect("a page")
}

fn page_text(world: &World, stage: &str, project: &str, form: PageForm, at: Timestamp) -> String {
    let page = page(world, stage, project, form, at).reply.body.to_vec();
    String::from_utf8(page).expect("text")
}

fn page_json(world: &World, stage: &str, project: &str, at: Timestamp) -> Value {
    serde_json::from_str(&page_text(world, stage, project, PageForm::Json, at)).expect("JSON")
}

#[test]
fn a_page_says_what_it_hides() {
    let mut world = World::new();
    world.create(
        "alice/dev",
        json!({"policy_deny": "foo<2", "policy_quarantine": ["foo==3.0 stolen <token>"]}),
    );
    for version in ["1.0", "1.1", "2.0", "3.0"] {
        world.upload("alice/dev", &format!("foo-{version}.tar.gz"), version);
    }
    let human = page_text(&world, "alice/dev", "foo", PageForm::Human, now());
    let expected = [
        "2 files are hidden by the policy of alice/dev: denied by `foo&lt;2`.",
        "1 file is hidden by the policy of alice/dev: quarantined: stolen &lt;token&gt;.",
    ];
    assert_eq!(hidden(&human), expected);
    let json = page_json(&world, "alice/dev", "foo", now());
    assert_eq!(json["versions"], json!(["2.0"]));
    assert_eq!(json["project-status"], Value::Null);
    // The whole project.
    world.modify("alice/dev", json!(["policy_quarantine+=fo* under examination, see below"]));
    let json = page_json(&world, "alice/dev", "foo", now());
    let status = json!({"status": "quarantined", "reason": "under examination, see below"});
    assert_eq!((&json["project-status"], &json["files"]), (&status, &json!([])));
    let html = page_text(&world, "alice/dev", "foo", PageForm::Html, now());
    assert_eq!(
        html,
        "<!DOCTYPE html><html lang=\"en\"><head><meta name=\"pypi:repository-version\" content=\"1.4\"><meta name=\"pypi:project-status\" content=\"quarantined\"><meta name=\"pypi:project-status-reason\" content=\"under examination, see below\"><title>alice/dev: links for foo</title></head><body><h1>alice/dev: links for foo</h1>\n</body></html>\n"
    );
}

/// Settings of a policy, at random.
fn settings() -> impl Strategy<Value = Value> {
    let rules = || {
        let rule = prop::sample::select(vec![
            "foo",
            "fo*",
            "bar",
            "*",
            "foo<2",
            "foo>=2,<3",
            "*@sdist",
            "foo@wheel",
            "foo!=2.0",
            "foo-1.0.tar.gz",
        ]);
        prop::collection::vec(rule, 0..3)
    };
    let days = prop::option::of(0_u32..5);
    let cutoff = prop::option::of(prop::sample::select(vec!["2020-01-01", "2027-01-01"]));
    let except = prop::collection::vec(prop::sample::select(vec!["foo", "b*"]), 0..2);
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

fn names(values: &Value, key: &str) -> BTreeSet<String> {
    let values = values.as_array().expect("a list").iter();
    values.map(|value| value[key].as_str().expect("a name").to_owned()).collect()
}

/// Every page has these files, and the list has the project if any part of it is visible.
fn check_pages(
    world: &World,
    stage: &str,
    project: &str,
    files: &BTreeSet<String>,
    at: Timestamp,
) -> Result<(), TestCaseError> {
    for form in [PageForm::Html, PageForm::Human] {
        let text = page_text(world, stage, project, form, at);
        prop_assert_eq!(text.matches("<a href=").count(), files.len());
        let is_linked = |name: &String| text.contains(&format!(">{name}</a>"));
        prop_assert!(files.iter().all(is_linked), "{}", text);
    }
    let listed = names(&page_json(world, stage, "", at)["projects"], "name").contains(project);
    prop_assert_eq!(listed, !files.is_empty());
    Ok(())
}

/// devpi's JSON has the versions and the files of the page, and the page counts what is hidden.
fn check_config(
    world: &World,
    stage: &str,
    project: &ProjectName,
    files: &BTreeSet<String>,
    at: Timestamp,
) -> Result<(), TestCaseError> {
    let order = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
    let judge = Judge::of(&order, project, at);
    let view = order.project(project.as_str()).expect("a project");
    let mut versions = view.versions();
    if let Some(judge) = &judge {
        let shown = RefusedFiles::of(&view, Some(judge)).expect("there is a policy");
        let hidden = page(world, stage, project.as_str(), PageForm::Json, at).hidden_files;
        prop_assert_eq!(shown.hidden().files(), hidden);
        versions.retain(|version| shown.refusal_of(version.version.as_str()).is_none());
    }
    let viewer =
        View { snapshot: &world.snapshot, principal: &Principal::Anonymous, shows_all: true };
    let (host, metadata) = ("http://h", MetadataBytes::new());
    let config = devpi::project_config(&versions, project, host, &metadata, viewer, judge.as_ref());
    let config = serde_json::to_value(config).expect("JSON");
    let config = config.as_object().expect("versions");
    let links = config.values().flat_map(|version| {
        let shadowed = version["+shadowing"].as_array().cloned().unwrap_or_default();
        let all = std::iter::once(version.clone()).chain(shadowed);
        all.flat_map(|it| it["+links"].as_array().cloned().unwrap_or_default()).collect::<Vec<_>>()
    });
    let linked: BTreeSet<String> = links
        .filter_map(|link| Some(link["href"].as_str()?.rsplit('/').next()?.to_owned()))
        .collect();
    prop_assert_eq!(&linked, files);
    let json = page_json(world, stage, project.as_str(), at);
    for version in json["versions"].as_array().expect("versions") {
        prop_assert!(config.contains_key(version.as_str().expect("a version")));
    }
    Ok(())
}

proptest! {
    #[test]
    fn pages_and_json_never_disagree(dev in settings(), base in settings(), days in 0_i64..6) {
        let live = Arc::default();
        let mut world = world(&live);
        publish(&live, &[("MAL-1", "bar", &[]), ("MAL-2", "foo", &["2.0"]), ("GHSA-1", "foo", &["1.0", "3.0"])]);
        world.create("alice/base", json!({})).create("alice/dev", json!({"bases": "alice/base"}));
        for filename in ["foo-1.0.tar.gz", "foo-1.0-py3-none-any.whl", "foo-2.0.tar.gz", "bar-1.0.tar.gz"] {
            world.upload("alice/base", filename, filename);
        }
        world.upload("alice/dev", "foo-3.0.tar.gz", "three").upload("alice/dev", "foo-1.0.tar.gz", "nearer");
        world.modify("alice/base", base).modify("alice/dev", dev);
        let at = now() + SignedDuration::from_hours(24 * days);
        for stage in ["alice/base", "alice/dev"] {
            for project in ["foo", "bar"] {
                let files = names(&page_json(&world, stage, project, at)["files"], "filename");
                check_pages(&world, stage, project, &files, at)?;
                check_config(&world, stage, &project_name(project), &files, at)?;
            }
        }
    }
}
