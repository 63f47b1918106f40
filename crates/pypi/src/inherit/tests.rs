//! Inheritance: the order of stages and the whitelists, compared with the rules written out.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::World;

/// Expects this resolution order of `stage`, by name, and these missing bases.
#[track_caller]
fn check(world: &World, stage: &str, order: &str, missing: &str) {
    let found = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
    let names: Vec<&str> = found.stages().iter().map(|stage| stage.name().as_str()).collect();
    assert_eq!(names.join(" "), order);
    let names: Vec<&str> = found.missing().iter().map(|name| name.as_str()).collect();
    assert_eq!(names.join(" "), missing);
}

const MIRROR: &str = "https://upstream.example/simple/";

fn mirror() -> serde_json::Value {
    json!({"type": "mirror", "mirror_url": MIRROR})
}

#[test]
fn bases_are_asked_breadth_first_and_mirrors_last() {
    let mut world = World::new();
    world.create("root/pypi", mirror()).create("root/m", mirror());
    world.create("alice/d", json!({}));
    world.create("alice/c", json!({"bases": "root/m,alice/d"}));
    world.create("alice/b", json!({"bases": "root/pypi,alice/d"}));
    world.create("alice/a", json!({"bases": "alice/b,alice/c"}));
    check(&world, "alice/a", "alice/a alice/b alice/c alice/d root/pypi root/m", "");
    check(&world, "alice/b", "alice/b alice/d root/pypi", "");
    check(&world, "root/pypi", "root/pypi", "");
}

#[test]
fn cycles_end_and_missing_bases_are_skipped() {
    let mut world = World::new();
    world.create("alice/a", json!({})).create("alice/b", json!({"bases": "alice/a"}));
    world.modify("alice/b", json!({"bases": "alice/a,alice/b"}));
    world.modify("alice/a", json!({"bases": "alice/b"}));
    check(&world, "alice/a", "alice/a alice/b", "");
    let (batch, name) = (&world.snapshot, crate::testing::stage_name("alice/b"));
    let batch = crate::change::stage::delete(batch, &name, false).expect("a stage");
    world.commit(batch).expect("no conflict");
    check(&world, "alice/a", "alice/a", "alice/b");
}

#[test]
fn the_first_file_of_a_name_wins_and_later_versions_are_shadowed() {
    let mut world = World::new();
    world.create("alice/base", json!({})).create("alice/dev", json!({"bases": "alice/base"}));
    world.upload("alice/base", "foo-1.0.tar.gz", "base").upload(
        "alice/base",
        "foo-2.0.tar.gz",
        "2",
    );
    world.upload("alice/dev", "foo-1.0.tar.gz", "dev").upload(
        "alice/dev",
        "foo-1.0.doc.zip",
        "doc",
    );
    let order = ResolutionOrder::of(&world.snapshot, "alice/dev").expect("a stage");
    let view = order.project("foo").expect("a project");
    let files: Vec<String> = view
        .files()
        .iter()
        .map(|it| {
            format!("{} {} {}", it.part.stage.name(), it.file.filename(), it.file.size_bytes())
        })
        .collect();
    assert_eq!(files, ["alice/dev foo-1.0.tar.gz 3", "alice/base foo-2.0.tar.gz 1"]);
    let versions: Vec<String> = view
        .versions()
        .iter()
        .map(|view| {
            let stages = view.parts.iter().map(|part| part.stage.name().as_str());
            format!("{} {}", view.version, stages.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(versions, ["2.0 alice/base", "1.0 alice/dev alice/base"]);
    assert!(order.project("bar").is_none());
    let names: Vec<&str> = order.project_names().collect();
    assert_eq!(names, ["foo"]);
}

#[test]
fn the_right_to_read_a_stage_does_not_cover_its_bases() {
    let mut world = World::new();
    world.create("alice/secret", json!({"acl_read": "alice,:team"}));
    world.create("bob/spy", json!({"bases": "alice/secret"}));
    let order = ResolutionOrder::of(&world.snapshot, "bob/spy").expect("a stage");
    let readers: Vec<String> = order.readers().iter().map(ToString::to_string).collect();
    assert_eq!(readers, ["alice,:team"]);
}

/// A stage of a random world: its bases, its whitelist and how whitelists are combined, and whether it has the
/// project.
#[derive(Clone, Debug)]
struct RandomStage {
    is_mirror: bool,
    bases: Vec<usize>,
    whitelist: Vec<&'static str>,
    is_union: bool,
    has_project: bool,
}

fn drawn() -> impl Strategy<Value = Vec<RandomStage>> {
    let stage = (
        prop::bool::weighted(0.3),
        prop::collection::vec(0..7_usize, 0..4),
        prop::sample::subsequence(vec!["foo", "other", "*"], 0..=2),
        any::<bool>(),
        any::<bool>(),
    );
    let stage = stage.prop_map(|(is_mirror, bases, whitelist, is_union, has_project)| {
        RandomStage { is_mirror, bases, whitelist, is_union, has_project }
    });
    prop::collection::vec(stage, 1..7)
}

/// The pseudo-code of devpi's rules, word for word. Returns positions of stages: those that are asked, in the order
/// of their links, and those that are skipped. A base with a position beyond the end is missing.
fn literally(stages: &[RandomStage], queried: usize) -> (Vec<usize>, Vec<usize>) {
    // sro(self): BFS queue [self]; for each stage, its bases in order; skip seen; missing base ->
    // warn+skip; mirrors are appended to a tail list and come last, in discovery order.
    let mut queue = vec![queried];
    let mut seen = vec![queried];
    let (mut sro, mut tail) = (Vec::new(), Vec::new());
    while !queue.is_empty() {
        let s = queue.remove(0);
        if stages[s].is_mirror {
            tail.push(s)
        } else {
            sro.push(s)
        }
        if stages[s].is_mirror {
            continue;
        }
        for &base in &stages[s].bases {
            if seen.contains(&base) || base >= stages.len() {
                continue;
            }
            seen.push(base);
            queue.push(base);
        }
    }
    sro.extend(tail);
    let p = "foo";
    let is_union = !stages[queried].is_mirror && stages[queried].is_union;
    let mut wl: Option<Vec<&str>> = None;
    let (mut whitelisted, mut private_hit) = (false, false);
    let (mut links, mut skipped) = (Vec::new(), Vec::new());
    for s in sro {
        let stage = &stages[s];
        if stage.is_mirror {
            if private_hit && !whitelisted {
                skipped.push(s);
                continue;
            }
        } else {
            let w = stage.whitelist.clone();
            wl = Some(match wl {
                None => w,
                Some(wl) if is_union => wl.into_iter().chain(w).collect(),
                Some(wl) => wl.into_iter().filter(|name| w.contains(name)).collect(),
            });
            let wl = wl.as_ref().expect("just set");
            if wl.contains(&p) || wl.contains(&"*") {
                whitelisted = true;
            } else if stage.has_project {
                private_hit = true;
            }
        }
        if stage.has_project {
            links.push(s);
        }
    }
    (links, skipped)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_rules_are_the_pseudo_codes(stages in drawn(), queried in 0..7_usize) {
        let queried = queried % stages.len();
        let name = |at: usize| format!("alice/s{at}");
        let mut world = World::new();
        // All stages are made and then the last ones deleted, so that bases can be missing.
        for (at, stage) in stages.iter().enumerate() {
            world.create(&name(at), if stage.is_mirror { mirror() } else { json!({}) });
        }
        for at in stages.len()..7 {
            world.create(&name(at), json!({}));
        }
        for (at, stage) in stages.iter().enumerate() {
            if stage.has_project {
                // Mirrors take no uploads; the records of their projects are written directly.
                let key = format!("python/version/{}/foo/1.0", name(at));
                let metadata = record::Digest::of(b"");
                let body = json!({"v": 1, "metadata": metadata.to_string()});
                world.write(&key, Some(&body.to_string()));
            }
            if !stage.is_mirror {
                let bases: Vec<String> = stage.bases.iter().map(|&base| name(base)).collect();
                let inheritance = if stage.is_union { "union" } else { "intersection" };
                world.modify(&name(at), json!({
                    "bases": bases,
                    "mirror_whitelist": stage.whitelist,
                    "mirror_whitelist_inheritance": inheritance,
                }));
            }
        }
        for at in stages.len()..7 {
            let name = crate::testing::stage_name(&name(at));
            let batch = crate::change::stage::delete(&world.snapshot, &name, false);
            world.commit(batch.expect("a stage")).expect("no conflict");
        }
        let (links, skipped) = literally(&stages, queried);
        let order = ResolutionOrder::of(&world.snapshot, &name(queried)).expect("a stage");
        let view = order.project("foo");
        let parts = view.iter().flat_map(|view| view.parts());
        let parts: Vec<String> = parts.map(|part| part.stage.name().to_string()).collect();
        prop_assert_eq!(&parts, &links.iter().map(|&at| name(at)).collect::<Vec<_>>());
        if let Some(view) = &view {
            let blocked: Vec<String> =
                view.blocked_mirrors().iter().map(|name| name.to_string()).collect();
            prop_assert_eq!(blocked, skipped.iter().map(|&at| name(at)).collect::<Vec<_>>());
        }
    }
}
