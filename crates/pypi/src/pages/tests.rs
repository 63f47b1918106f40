//! Pages: none is ever out of date, and none is made again without a change.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::snapshot::tests::{PROJECTS, STAGES, WorldChange, happen, happenings};
use crate::testing::{World, now, principal};

fn pages() -> Pages {
    Pages::new(PageBudget { page_bytes_max: 16 << 20, list_bytes_max: 16 << 20 }, now)
}

fn request<'text>(stage: &'text str, project: &'text str) -> PageRequest<'text> {
    PageRequest { stage, project, form: PageForm::Html, depth: 4 }
}

/// How many pages and lists had to be made to answer these requests.
fn made(pages: &Pages, world: &World, requests: &[PageRequest<'_>]) -> (u64, u64) {
    let before = pages.counts();
    for request in requests {
        pages.page(&world.snapshot, *request).expect("a page");
    }
    let after = pages.counts();
    (after.rendered - before.rendered, after.rendered_lists - before.rendered_lists)
}

#[test]
fn a_page_is_made_once_per_change_of_what_it_shows() {
    let mut world = World::new();
    world.create("alice/base", json!({})).create("alice/dev", json!({"bases": "alice/base"}));
    world.create("alice/other", json!({}));
    for stage in ["alice/base", "alice/dev", "alice/other"] {
        world.upload(stage, "foo-1.0.tar.gz", "one").upload(stage, "bar-1.0.tar.gz", "one");
    }
    let pages = pages();
    let all = [
        request("alice/dev", "foo"),
        request("alice/dev", "bar"),
        request("alice/other", "foo"),
        request("alice/dev", ""),
        request("alice/other", ""),
    ];
    assert_eq!(made(&pages, &world, &all), (3, 2));
    assert_eq!(made(&pages, &world, &all), (0, 0));
    world.upload("alice/base", "foo-2.0.tar.gz", "two");
    assert_eq!(made(&pages, &world, &all), (1, 0));
    world.upload("alice/base", "new-1.0.tar.gz", "two");
    assert_eq!(made(&pages, &world, &all), (0, 1));
    world.modify("alice/dev", json!(["bases="]));
    assert_eq!(made(&pages, &world, &all), (2, 1));
    world.upload("alice/base", "foo-3.0.tar.gz", "three");
    assert_eq!(made(&pages, &world, &all), (0, 0));
    assert_eq!(pages.counts().pages, 3);
}

#[test]
fn missing_stages_and_projects_get_devpis_messages() {
    let mut world = World::new();
    world.create("alice/dev", json!({}));
    let error = |stage, project| {
        pages().page(&world.snapshot, request(stage, project)).expect_err("no page").to_string()
    };
    assert_eq!(error("alice/x", "foo"), "The stage alice/x could not be found.");
    assert_eq!(error("alice/dev", "foo"), "The project foo does not exist.");
}

#[test]
fn encodings_and_tags_belong_to_the_body() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let page = pages().page(&world.snapshot, request("alice/dev", "foo")).expect("a page");
    for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
        assert_eq!(page.body().form(encoding), &encoding.encode(&page.reply().body));
        let etag = page.reply().etag.expect("a tag").header_value(encoding);
        assert_eq!(page.tag(encoding), etag);
        assert!(page.reply().is_known_by(&etag));
    }
}

#[test]
fn reading_a_page_needs_the_right_to_read_every_stage_on_it() {
    let mut world = World::new();
    world.create("alice/dev", json!({"acl_read": "alice"}));
    world.create("bob/spy", json!({"bases": "alice/dev"})).upload("alice/dev", "foo-1.0.zip", "1");
    let pages = pages();
    let page = pages.page(&world.snapshot, request("bob/spy", "foo")).expect("a page");
    let admitted = ["alice", "bob", "root"]
        .map(|name| page.admits(&principal(name), request("bob/spy", "foo")));
    assert_eq!(admitted, [true, false, true]);
    assert!(!page.admits(&Principal::Anonymous, request("bob/spy", "foo")) && !page.is_public());
    world.modify("alice/dev", json!(["acl_read=:ANONYMOUS:"]));
    let page = pages.page(&world.snapshot, request("bob/spy", "foo")).expect("a page");
    assert!(page.admits(&Principal::Anonymous, request("bob/spy", "foo")) && page.is_public());
}

#[test]
fn pages_stay_within_their_budget() {
    let mut world = World::new();
    world.create("alice/dev", json!({}));
    let names: Vec<String> = (0..300).map(|number| format!("p{number}")).collect();
    for name in &names {
        world.upload("alice/dev", &format!("{name}-1.0.tar.gz"), name);
    }
    let pages = Pages::new(PageBudget { page_bytes_max: 100_000, list_bytes_max: 1000 }, now);
    for name in &names {
        pages.page(&world.snapshot, request("alice/dev", name)).expect("a page");
        assert!(pages.counts().page_bytes <= 100_000);
    }
    assert!(pages.counts().pages > 10);
    // A list above its budget is returned but not stored.
    pages.page(&world.snapshot, request("alice/dev", "")).expect("a list");
    assert_eq!(pages.counts().lists, 0);
}

#[test]
fn concurrent_requests_make_a_page_once() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let pages = pages();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                pages.page(&world.snapshot, request("alice/dev", "foo")).expect("a page");
            });
        }
    });
    assert_eq!(pages.counts().rendered, 1);
}

#[test]
fn a_request_with_an_older_snapshot_does_not_bring_the_older_page_back() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let older = world.snapshot.clone();
    world.upload("alice/dev", "foo-2.0.tar.gz", "two");
    let pages = pages();
    let newer = pages.page(&world.snapshot, request("alice/dev", "foo")).expect("a page");
    let page = pages.page(&older, request("alice/dev", "foo")).expect("a page");
    assert!(Arc::ptr_eq(&newer, &page));
}

/// The page made without a cache, to compare cached pages with.
fn shown(snapshot: &Snapshot, request: PageRequest<'_>) -> Option<Bytes> {
    let PageRequest { stage, project, form, depth } = request;
    let rendered = render(snapshot, stage, project, form, Links::Depth(depth), now()).ok()?;
    Some(rendered.reply.body)
}

/// The stages that a change touches, and which project in them; `None` means everything.
fn touched(happening: &WorldChange) -> (Vec<usize>, Option<&'static str>) {
    use WorldChange::*;
    let project = |file: &usize| crate::snapshot::tests::FILES[*file].split('-').next();
    match happening {
        Create(at) | Bases(at, _) | DeleteStage(at) | Title(at, _) => (vec![*at], None),
        Upload(at, file, _) | RemoveFile(at, file) | YankFile(at, file, _) => {
            (vec![*at], project(file))
        }
        Register(at, project) | RemoveProject(at, project) | YankRelease(at, project, _) => {
            (vec![*at], Some(PROJECTS[*project]))
        }
        Push(_, to, project) => (vec![*to], Some(PROJECTS[*project])),
        Elsewhere => (vec![], None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_page_is_stale_and_none_is_made_without_need(happenings in happenings()) {
        let mut world = World::new();
        let pages = pages();
        let forms = [PageForm::Html, PageForm::Human, PageForm::Json];
        let requests: Vec<PageRequest<'_>> = STAGES
            .iter()
            .flat_map(|&stage| ["", "foo", "bar"].map(move |project| (stage, project)))
            .flat_map(|(stage, project)| {
                forms.map(|form| PageRequest { stage, project, form, depth: 4 })
            })
            .collect();
        let mut reach: HashMap<&str, Vec<String>> = HashMap::new();
        for happening in &happenings {
            happen(&mut world, happening);
            let (stages, project) = touched(happening);
            for &request in &requests {
                let before = pages.counts();
                let page = pages.page(&world.snapshot, request).ok();
                let after = pages.counts();
                let made = after.rendered + after.rendered_lists
                    - before.rendered - before.rendered_lists;
                let body = page.map(|page| page.reply().body.clone());
                prop_assert_eq!(body, shown(&world.snapshot, request));
                // A page is made again only if a stage changed that answers for it, or did before the change.
                let names = |order: ResolutionOrder<'_>| -> Vec<String> {
                    let stages = order.stages().iter().map(|it| it.name().to_string());
                    stages.chain(order.missing().iter().map(|it| it.to_string())).collect()
                };
                let now = ResolutionOrder::of(&world.snapshot, request.stage);
                let now = now.map(names).unwrap_or_default();
                let was = reach.get(request.stage).cloned().unwrap_or_default();
                let is_near = stages.iter().any(|&at| {
                    now.iter().chain(&was).any(|name| name == STAGES[at]) || STAGES[at] == request.stage
                });
                let is_about = project.is_none_or(|it| request.project.is_empty() || request.project == it);
                prop_assert!(made == 0 || is_near && is_about, "{happening:?} {request:?}");
            }
            for stage in STAGES {
                let order = ResolutionOrder::of(&world.snapshot, stage);
                let names = order.map(|order| {
                    let stages = order.stages().iter().map(|it| it.name().to_string());
                    stages.chain(order.missing().iter().map(|it| it.to_string())).collect()
                });
                reach.insert(stage, names.unwrap_or_default());
            }
        }
    }
}
