//! Which mirrors count together.

use serde_json::{Value, json};

use super::*;
use crate::testing::{World, project_name};
use crate::upstream::UpstreamPage;

const MIRRORS: [&str; 3] = ["near", "far", "farther"];

fn world(settings: Value) -> World {
    let mut world = World::new();
    for name in MIRRORS {
        let url = format!("https://me:secret@{name}.example/simple");
        world.create(&format!("root/{name}"), json!({"type": "mirror", "mirror_url": url}));
    }
    world.create("alice/base", json!({"bases": MIRRORS.map(|name| format!("root/{name}"))}));
    let mut config = json!({"bases": ["alice/base"]});
    for (key, value) in settings.as_object().expect("an object") {
        config[key] = value.clone();
    }
    world.create("alice/dev", config);
    world
}

/// What a page says of other places: `tracks`, `alternate-locations`.
type OtherPlaces<'text> = (&'text [&'text str], &'text [&'text str]);

fn page((tracks, alternates): OtherPlaces<'_>) -> UpstreamPage {
    let body = json!({
        "meta": {"api-version": "1.2", "tracks": tracks}, "alternate-locations": alternates,
        "files": [{"filename": "foo-1.0.tar.gz", "url": "https://files.example/foo-1.0.tar.gz", "hashes": {}}],
    });
    let base = Url::parse("https://files.example/foo/").expect("a URL");
    UpstreamPage::parse("", body.to_string().as_bytes(), &base).expect("a page")
}

/// The mirrors that count, among those with these pages.
fn counting(world: &World, pages: &[UpstreamPage]) -> String {
    let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
    let upstream: Vec<_> = order
        .mirrors_of("foo")
        .asked
        .into_iter()
        .filter_map(|mirror| {
            let at = MIRRORS.iter().position(|name| *name == mirror.name().index())?;
            Some(UpstreamProject { mirror, page: pages.get(at)? })
        })
        .collect();
    let count = upstream.len();
    let are_silent = upstream.iter().all(says_nothing);
    let silent = upstream.iter().filter(|part| !are_silent && says_nothing(part)).count();
    let (one, apart) = of_one_project(&order, &project_name("foo"), upstream);
    assert_eq!(one.len() + apart.len() + silent, count);
    one.iter().map(|part| part.mirror.name().index()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(said: [OtherPlaces<'_>; 3], expected: &str) {
    assert_eq!(counting(&world(json!({})), &said.map(page)), expected);
}

const NEAR: &str = "https://near.example/simple/foo/";
const FAR: &str = "https://far.example/simple/foo/";
const FARTHER: &str = "https://farther.example/simple/foo/";
const NOTHING: OtherPlaces<'_> = (&[], &[]);

#[test]
fn the_nearest_counts_alone_unless_pages_connect_it_with_others() {
    check([NOTHING, NOTHING, NOTHING], "near");
    check([(&[FAR], &[]), NOTHING, NOTHING], "near far");
    check([NOTHING, NOTHING, (&[NEAR], &[])], "near farther");
    check([NOTHING, (&[FARTHER], &[]), (&[NEAR], &[])], "near far farther");
    check([NOTHING, (&[FARTHER], &[]), NOTHING], "near");
    let third: OtherPlaces<'_> = (&["https://origin.example/foo/"], &[]);
    check([third, NOTHING, third], "near farther");
    // A slash at the end, a port and the case of a host make no difference.
    check([(&["https://FAR.example:443/simple/foo"], &[]), NOTHING, NOTHING], "near far");
    check([(&["https://far.example/simple/bar/"], &[]), NOTHING, NOTHING], "near");
}

#[test]
fn other_places_count_if_all_of_them_say_the_same() {
    let all: OtherPlaces<'_> = (&[], &[NEAR, FAR]);
    check([all, all, NOTHING], "near far");
    check([(&[], &[FAR]), (&[], &[NEAR]), NOTHING], "near far");
    // A stranger's page that claims to be the same project has no effect alone.
    check([NOTHING, all, (&[], &[NEAR])], "near");
    check([(&[], &[FAR, FARTHER]), (&[], &[NEAR]), NOTHING], "near");
    check([all, (&[], &[NEAR, FAR, FARTHER]), NOTHING], "near");
    let three: OtherPlaces<'_> = (&[], &[NEAR, FAR, FARTHER]);
    check([three, three, three], "near far farther");
}

#[test]
fn a_page_without_files_has_the_name() {
    let none = UpstreamPage::default();
    let pages = [none.clone(), page(NOTHING), page(NOTHING)];
    assert_eq!(
        counting(&world(json!({})), &pages),
        "near",
        "the files were removed, or are hidden"
    );
    let pages = [page(NOTHING), none.clone(), page((&[FAR], &[]))];
    assert_eq!(counting(&world(json!({})), &pages), "near", "nor does it connect others");
    let pages = [none.clone(), page((&[NEAR], &[])), page(NOTHING)];
    assert_eq!(counting(&world(json!({})), &pages), "near far");
    let quarantined = UpstreamPage {
        status: Some((crate::StatusMarker::Quarantined, None)),
        ..UpstreamPage::default()
    };
    let pages = [quarantined, page(NOTHING), page(NOTHING)];
    assert_eq!(counting(&world(json!({})), &pages), "near", "the name is taken there");
}

#[test]
fn an_upstream_without_a_list_has_no_name_for_an_empty_page() {
    let mut world = world(json!({}));
    world.modify("root/near", json!({"mirror_no_project_list": true}));
    let none = UpstreamPage::default();
    let pages = |near: &UpstreamPage| [near.clone(), page(NOTHING), page(NOTHING)];
    assert_eq!(counting(&world, &pages(&none)), "far", "it answers every name like that");
    assert_eq!(counting(&world, &pages(&page(NOTHING))), "near");
    assert_eq!(
        counting(&world, &[none.clone(), none.clone(), page(NOTHING)]),
        "far",
        "it lists it"
    );
    // Whatever the page says of the project, the upstream knows it.
    let known = [
        UpstreamPage { status: Some((crate::StatusMarker::Active, None)), ..none.clone() },
        UpstreamPage { versions: vec!["1.0".into()], ..none.clone() },
        UpstreamPage { files: Vec::new(), ..page((&["https://origin.example/foo/"], &[])) },
    ];
    for near in known {
        assert_eq!(counting(&world, &pages(&near)), "near", "{near:?}");
    }
    for mirror in ["root/far", "root/farther"] {
        world.modify(mirror, json!({"mirror_no_project_list": true}));
    }
    assert_eq!(
        counting(&world, &[none.clone(), none.clone(), none]),
        "near",
        "one is as good as the other"
    );
}

#[test]
fn a_stage_says_that_all_count() {
    let pages = [NOTHING; 3].map(page);
    for (settings, expected) in [
        (json!({"mirror_merge": "all"}), "near far farther"),
        (json!({"mirror_merge": "connected"}), "near"),
        (json!({"mirror_whitelist": ["foo"]}), "near far farther"),
        (json!({"mirror_whitelist": "*"}), "near far farther"),
        (json!({"mirror_whitelist": ["bar"]}), "near"),
        (json!({"base_pins": "foo=root/far,foo=root/near"}), "near far"),
    ] {
        let world = world(settings.clone());
        assert_eq!(counting(&world, &pages), expected, "{settings}");
    }
    let mut world = world(json!({}));
    world.modify("alice/base", json!({"mirror_merge": "all"}));
    assert_eq!(counting(&world, &pages), "near", "a base says it of itself");
    world.modify("alice/base", json!({"mirror_merge": "connected"}));
    world.modify("alice/dev", json!({"mirror_merge": "all"}));
    assert_eq!(counting(&world, &pages), "near far farther");
    world.modify("alice/dev", json!({"mirror_merge": ""}));
    assert_eq!(counting(&world, &pages), "near");
}
