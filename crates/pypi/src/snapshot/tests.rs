//! Snapshots: the order of records and their division into batches do not change what a snapshot shows.

use proptest::prelude::*;
use record::Key;
use serde_json::json;

use super::*;
use crate::change;
use crate::change::remove::RemovalExtent;
use crate::testing::{World, project_name, stage_name};

/// Everything that a snapshot shows.
fn seen(snapshot: &Snapshot) -> String {
    snapshot.traces().for_each(|stage| check_names(stage));
    let mut text = String::new();
    for stage in snapshot.stages() {
        text += &format!("{} {:?} {}\n", stage.name(), stage.config(), stage.config_serial());
        for (name, project) in stage.projects() {
            text += &format!("  {name} {project:?}\n");
        }
    }
    text
}

/// Expects that the names beside the projects are those of the projects.
#[track_caller]
fn check_names(stage: &Stage) {
    let names = |is_wanted: &dyn Fn(&Project) -> bool| {
        let wanted = stage.project_traces().filter(|(_, project)| is_wanted(project));
        wanted.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let beside = |names: &mut dyn Iterator<Item = &ProjectName>| {
        names.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(stage.names().collect::<Vec<_>>(), names(&|project| !project.is_empty()));
    let is_held = |project: &Project| project.is_empty() && project.is_held();
    assert_eq!(beside(&mut stage.held_names()), names(&is_held));
    let is_quarantined = |project: &Project| !project.is_empty() && project.is_quarantined();
    assert_eq!(beside(&mut stage.quarantined_names()), names(&is_quarantined));
    let mut latest: Vec<(Serial, &ProjectName, bool)> = stage
        .project_traces()
        .map(|(name, project)| (project.serial(), name, !project.is_empty()))
        .collect();
    latest.sort_unstable_by(|one, other| other.cmp(one));
    latest.truncate(LATEST_MAX);
    latest.retain(|(_, _, has_content)| *has_content);
    let latest: Vec<&str> = latest.into_iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(stage.latest_projects().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), latest);
}

/// The kind of file at `path` below the stage: `found`, `metadata`, `gone` or `absent`.
fn lookup(snapshot: &Snapshot, stage: &str, path: &str) -> &'static str {
    let segments: Vec<&str> = path.split('/').collect();
    let ["+f", first, second, filename] = segments[..] else { panic!("not a path: {path}") };
    let directory = Directory::parse(first, second).expect("a directory");
    match snapshot.stage(stage).expect("a stage").file(directory, filename) {
        FileLookup::Found { .. } => "found",
        FileLookup::CoreMetadata { .. } => "metadata",
        FileLookup::Provenance { .. } => "provenance",
        FileLookup::Gone => "gone",
        FileLookup::Absent => "absent",
    }
}

fn path(content: &str, filename: &str) -> String {
    format!("+f/{}/{filename}", Directory::of(&record::Digest::of(content.as_bytes())))
}

#[test]
fn projects_are_found_by_the_start_of_their_names() {
    let mut world = World::new();
    world.create("alice/dev", json!({}));
    for filename in ["bar-1.0.tar.gz", "foo-1.0.tar.gz", "foobar-1.0.tar.gz", "zoo-1.0.tar.gz"] {
        world.upload("alice/dev", filename, "one");
    }
    let stage = world.snapshot.stage("alice/dev").expect("a stage");
    let from = |name: &str| stage.names_from(name).collect::<Vec<_>>();
    assert_eq!(from("fo"), ["foo", "foobar", "zoo"]);
    assert_eq!(from("foo"), ["foo", "foobar", "zoo"]);
    assert_eq!(from("zz"), [""; 0]);
    let with = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        stage.names_with(&words).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(with(&["oo", "f"]), "foo foobar");
    assert_eq!(with(&["bar"]), "bar foobar");
    assert_eq!(with(&["bar", "z"]), "");
    assert_eq!(with(&[]), "bar foo foobar zoo");
}

#[test]
fn files_are_found_by_their_path_and_remembered_when_gone() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    world.upload("alice/dev", "foo-1.0-py3-none-any.whl", "wheel");
    let check = |world: &World, content: &str, filename: &str, expected: &str| {
        for snapshot in [&world.snapshot, &world.rebuilt()] {
            assert_eq!(lookup(snapshot, "alice/dev", &path(content, filename)), expected);
        }
    };
    check(&world, "one", "foo-1.0.tar.gz", "found");
    check(&world, "two", "foo-1.0.tar.gz", "absent");
    check(&world, "one", "foo-1.0.tar.gz.metadata", "absent");
    check(&world, "wheel", "foo-1.0-py3-none-any.whl.metadata", "metadata");
    check(&world, "one", "bar-1.0.tar.gz", "absent");

    world.upload("alice/dev", "foo-1.0.tar.gz", "two");
    check(&world, "one", "foo-1.0.tar.gz", "gone");
    check(&world, "two", "foo-1.0.tar.gz", "found");

    let (stage, foo) = (stage_name("alice/dev"), project_name("foo"));
    let batch =
        change::remove::project(&world.snapshot, &stage, &foo, RemovalExtent::Contents, false)
            .expect("a project");
    world.commit(batch).expect("no conflict");
    check(&world, "one", "foo-1.0.tar.gz", "gone");
    check(&world, "two", "foo-1.0.tar.gz", "gone");
    check(&world, "three", "foo-1.0.tar.gz", "absent");
    check(&world, "wheel", "foo-1.0-py3-none-any.whl.metadata", "gone");
    assert!(world.snapshot.stage("alice/dev").expect("a stage").project("foo").is_none());

    // The same bytes are uploaded again: their URL works again, the other one stays gone.
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    check(&world, "one", "foo-1.0.tar.gz", "found");
    check(&world, "two", "foo-1.0.tar.gz", "gone");
}

#[test]
fn a_file_is_found_with_any_separator_after_its_project() {
    let mut world = World::new();
    world.create("alice/dev", json!({}));
    let file = |world: &mut World, project: &str, filename: &str| {
        let sha256 = record::Digest::of(filename.as_bytes());
        let body = json!({
            "v": 1, "version": "1", "sha256": sha256.to_string(), "size_bytes": 1,
            "uploaded_at_unix_microseconds": 0,
        });
        let key = format!("python/file/alice/dev/{project}/{filename}");
        world.write(&key, Some(&body.to_string()));
        let path = path(filename, filename);
        assert_eq!(lookup(&world.snapshot, "alice/dev", &path), "found", "{filename}");
    };
    file(&mut world, "foo", "foo-1.zip");
    file(&mut world, "foo-bar", "foo_bar-1.zip");
    file(&mut world, "foo-bar", "Foo.Bar-1.zip");
    file(&mut world, "foo-bar-1", "foo-bar-1.zip");
    file(&mut world, "foo", "foobar-1.zip");
    file(&mut world, "foo", "foo1.zip");
}

#[test]
fn a_stage_made_again_starts_empty() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let stage = stage_name("alice/dev");
    let deletion = change::stage::delete(&world.snapshot, &stage, false).expect("a stage");
    // This commits after the deletion was decided and before it is committed.
    world.upload("alice/dev", "late-1.0.tar.gz", "two");
    world.commit(deletion).expect("no conflict");
    assert!(world.snapshot.stage("alice/dev").is_none());
    world.create("alice/dev", json!({}));
    for snapshot in [&world.snapshot, &world.rebuilt()] {
        let stage = snapshot.stage("alice/dev").expect("a stage");
        assert_eq!(stage.projects().count(), 0);
        assert_eq!(lookup(snapshot, "alice/dev", &path("two", "late-1.0.tar.gz")), "absent");
    }
    world.upload("alice/dev", "late-1.0.tar.gz", "three");
    assert_eq!(seen(&world.snapshot), seen(&world.rebuilt()));
}

#[test]
fn a_stage_with_an_unreadable_record_exists() {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let before = world.snapshot.clone();
    let unreadable = |body: &str| {
        let key = crate::record::stage_key(&stage_name("alice/dev"));
        Record { key, serial: Serial(99), body: Some(body.to_owned().into()), blobs: Vec::new() }
    };
    let snapshot = before.apply(&[unreadable(r#"{"v":2}"#)]).snapshot;
    assert!(snapshot.stage("alice/dev").is_none() && snapshot.stages().count() == 0);
    let name = stage_name("alice/dev");
    let nothing = crate::ConfigEdit::nothing();
    let refusals = [
        change::stage::create(&snapshot, &name, &nothing).map(|_| ()),
        change::stage::modify(&snapshot, &name, &nothing, false).map(|_| ()),
        change::stage::delete(&snapshot, &name, true).map(|_| ()),
        change::stage::delete_of_user(&snapshot, &name.user_name(), true).map(|_| ()),
        change::remove::project(
            &snapshot,
            &name,
            &project_name("foo"),
            RemovalExtent::Contents,
            true,
        )
        .map(|_| ()),
    ];
    for refusal in refusals {
        assert_eq!(refusal, Err(ChangeError::StageUnreadable(name.clone())));
    }
    assert_eq!(change::stage::sweep_leftovers(&snapshot), None, "its files belong to it");
    // If the record can be read again, as by the version that wrote it, the stage is as it was.
    let stored = world.records[&unreadable("").key].clone();
    let again = snapshot.apply(&[stored]).snapshot;
    assert_eq!(seen(&again), seen(&before));
    // Settings that a later version adds do not make a record unreadable.
    let later = unreadable(r#"{"v":1,"config":{"type":"stage","title":"x","later":[1]}}"#);
    let later = before.apply(&[later]);
    assert_eq!(later.troubles, []);
    let stage = later.snapshot.stage("alice/dev").expect("a stage");
    assert_eq!(stage.config().title.as_deref(), Some("x"));
}

#[test]
fn leftovers_of_a_deleted_stage_can_be_swept() {
    let mut world = World::new();
    world.create("alice/dev", json!({}));
    let stage = stage_name("alice/dev");
    let deletion = change::stage::delete(&world.snapshot, &stage, false).expect("a stage");
    world.upload("alice/dev", "late-1.0.tar.gz", "two");
    assert_eq!(change::stage::sweep_leftovers(&world.snapshot), None);
    world.commit(deletion).expect("no conflict");
    let sweep = change::stage::sweep_leftovers(&world.snapshot).expect("something is left");
    // The sweep is refused if the stage is made again before it.
    let mut again = World { records: world.records.clone(), serial: world.serial, ..World::new() };
    again.snapshot = again.rebuilt();
    again.create("alice/dev", json!({}));
    again.commit(sweep.clone()).expect_err("a conflict");
    world.commit(sweep).expect("no conflict");
    assert_eq!(change::stage::sweep_leftovers(&world.snapshot), None);
    let left =
        world.records.values().filter(|it| it.body.is_some() && it.key.after("python").is_some());
    assert_eq!(left.count(), 0);
}

/// Expects that a record of `key` with `body` is refused for this reason, and that the snapshot then shows what it
/// would show without it, and knows that something was there. A key that names nothing changes nothing.
#[track_caller]
fn trouble(key: &str, body: &str, reason: &str) {
    let mut world = World::new();
    world.create("alice/dev", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    world.write("python/project/alice/dev/foo", Some(r#"{"v":1,"status":"archived"}"#));
    let record = |body: Option<&str>| Record {
        key: Key::new(key).expect("a key"),
        serial: Serial(99),
        body: body.map(|body| body.to_owned().into()),
        blobs: Vec::new(),
    };
    let applied = world.snapshot.apply(&[record(Some(body))]);
    let deleted = world.snapshot.apply(&[record(None)]).snapshot;
    // Only the name stays the stage's own.
    let shown = seen(&applied.snapshot).replace("has_unreadable: true", "has_unreadable: false");
    assert_eq!(shown, seen(&deleted), "{key}");
    let is_known = Subject::of(&record(None).key).is_some_and(|subject| subject.is_ok())
        && world.records.contains_key(&record(None).key);
    assert_eq!(seen(&deleted) != seen(&world.snapshot), is_known, "{key}");
    let found: Vec<String> = applied.troubles.iter().map(|it| it.reason.to_string()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(reason), "{found:?}");
}

#[test]
fn unreadable_records_are_reported_and_left_out() {
    let file = "python/file/alice/dev/foo/foo-1.0.tar.gz";
    trouble(file, "", "is not JSON");
    trouble(file, r#"{"v":2,"shape":"new"}"#, "has the form 2, and this version reads the form 1");
    trouble(file, r#"{"v":1,"sha256":"abc","version":"1"}"#, "`uploaded_at_unix_microseconds`");
    trouble(file, r#"{"v":1,"gone":["abc"]}"#, "`gone`");
    trouble("python/file/alice/dev/Foo/foo-1.0.tar.gz", "{}", "its key names nothing");
    trouble("python/file/alice/dev/foo", "{}", "its key names nothing");
    trouble("python/file/alice/dev/foo/a/b", "{}", "its key names nothing");
    trouble("python/new/alice/dev", "{}", "its key names nothing");
    trouble("python/stage/alice", "{}", "its key names nothing");
    trouble("python/stage/a b/dev", "{}", "its key names nothing");
    trouble("python/stage/alice/dev", r#"{"v":1,"config":{"volatile":1}}"#, "`config`");
    trouble("python/version/alice/dev/foo/1.0", r#"{"v":1,"metadata":"x"}"#, "`metadata`");
    trouble("python/project/alice/dev/foo", r#"{"v":1,"status":"odd"}"#, "`status`");
}

#[test]
fn records_of_other_surfaces_are_ignored() {
    let mut world = World::new();
    let serial = world.snapshot.serial();
    world.write("article/0000000001/python", Some("{}"));
    assert_eq!(world.snapshot.serial(), serial);
}

#[test]
fn a_user_does_not_get_the_stages_of_a_longer_name() {
    let mut world = World::new();
    for user in ["al", "alice-b", "alice0", "alice"] {
        world.write(&format!("user/{user}"), Some("{}"));
        world.create(&format!("{user}/dev"), json!({}));
    }
    world.create("alice/a", json!({}));
    let names: Vec<&str> =
        world.snapshot.stages_of("alice").map(|stage| stage.name().as_str()).collect();
    assert_eq!(names, ["alice/a", "alice/dev"]);
}

/// A change that may be made in a world of few names.
#[derive(Clone, Debug)]
pub(crate) enum WorldChange {
    Create(usize),
    Bases(usize, Vec<usize>),
    DeleteStage(usize),
    Upload(usize, usize, u8),
    Register(usize, usize),
    RemoveProject(usize, usize),
    RemoveFile(usize, usize),
    YankRelease(usize, usize, bool),
    YankFile(usize, usize, bool),
    Push(usize, usize, usize),
    Title(usize, u8),
    Elsewhere,
}

pub(crate) const STAGES: [&str; 4] = ["alice/a", "alice/b", "bob/c", "bob/d"];
pub(crate) const FILES: [&str; 5] = [
    "foo-1.0.tar.gz",
    "foo-1.0-py3-none-any.whl",
    "foo-2.0.tar.gz",
    "foo-1.0.doc.zip",
    "bar-1.0.tar.gz",
];
pub(crate) const PROJECTS: [&str; 2] = ["foo", "bar"];

pub(crate) fn happenings() -> impl Strategy<Value = Vec<WorldChange>> {
    use WorldChange::*;
    let (stage, project, file) = (0..STAGES.len(), 0..PROJECTS.len(), 0..FILES.len());
    let one = prop_oneof![
        2 => stage.clone().prop_map(Create),
        2 => (stage.clone(), prop::collection::vec(stage.clone(), 0..3)).prop_map(|(a, b)| Bases(a, b)),
        1 => stage.clone().prop_map(DeleteStage),
        6 => (stage.clone(), file.clone(), 0..3_u8).prop_map(|(a, b, c)| Upload(a, b, c)),
        1 => (stage.clone(), project.clone()).prop_map(|(a, b)| Register(a, b)),
        1 => (stage.clone(), project.clone()).prop_map(|(a, b)| RemoveProject(a, b)),
        2 => (stage.clone(), file.clone()).prop_map(|(a, b)| RemoveFile(a, b)),
        1 => (stage.clone(), project.clone(), any::<bool>()).prop_map(|(a, b, c)| YankRelease(a, b, c)),
        1 => (stage.clone(), file, any::<bool>()).prop_map(|(a, b, c)| YankFile(a, b, c)),
        2 => (stage.clone(), stage.clone(), project).prop_map(|(a, b, c)| Push(a, b, c)),
        1 => (stage, 0..3_u8).prop_map(|(a, b)| Title(a, b)),
        1 => Just(Elsewhere),
    ];
    prop::collection::vec(one, 1..40)
}

/// Makes the change, if it is possible.
pub(crate) fn happen(world: &mut World, happening: &WorldChange) {
    use WorldChange::*;
    let snapshot = world.snapshot.clone();
    let stage = |at: &usize| stage_name(STAGES[*at]);
    let edit = |json| crate::ConfigEdit::parse(&json).expect("an edit");
    let modify =
        |at: &usize, json| change::stage::modify(&snapshot, &stage(at), &edit(json), false).ok()?.0;
    let project_of = |file: &usize| project_name(FILES[*file].split('-').next().expect("a name"));
    let batch = match happening {
        Create(at) => {
            change::stage::create(&snapshot, &stage(at), &edit(json!({}))).ok().map(|it| it.0)
        }
        Bases(at, bases) => {
            let bases: Vec<&str> = bases.iter().map(|&base| STAGES[base]).collect();
            modify(at, json!({"bases": bases}))
        }
        DeleteStage(at) => change::stage::delete(&snapshot, &stage(at), true).ok(),
        Upload(at, file, content) => {
            let decision = world.decide(STAGES[*at], FILES[*file], &content.to_string());
            decision.ok().and_then(|it| it.batch())
        }
        Register(at, project) => {
            world.register_if_possible(STAGES[*at], PROJECTS[*project], "3.0");
            return;
        }
        RemoveProject(at, project) => {
            let project = project_name(PROJECTS[*project]);
            change::remove::project(&snapshot, &stage(at), &project, RemovalExtent::Contents, true)
                .ok()
        }
        RemoveFile(at, file) => (|| {
            let found = snapshot.stage(STAGES[*at])?.project(project_of(file).as_str())?;
            let found = found.file(FILES[*file])?;
            let directory = found.directory();
            change::remove::file(&snapshot, &stage(at), directory, FILES[*file], true).ok()
        })(),
        YankRelease(at, project, is_yanked) => {
            let project = project_name(PROJECTS[*project]);
            let reason = is_yanked.then_some("broken");
            let decision = change::yank::release(&snapshot, &stage(at), &project, "1.0", reason);
            decision.ok().and_then(|it| it.batch())
        }
        YankFile(at, file, is_yanked) => {
            let reason = is_yanked.then_some("");
            let (project, filename) = (project_of(file), FILES[*file]);
            let decision = change::yank::file(&snapshot, &stage(at), &project, filename, reason);
            decision.ok().and_then(|it| it.batch())
        }
        Push(from, to, project) => {
            let push = change::push::Push {
                source: &stage(from),
                target: &stage(to),
                name: PROJECTS[*project],
                version: "1.0",
                content: Default::default(),
                who: None,
                at: crate::testing::now(),
            };
            change::push::push(&snapshot, &push).ok().and_then(|it| it.0)
        }
        Title(at, title) => modify(at, json!({"title": title.to_string()})),
        Elsewhere => return world.write("article/0000000001/x", Some("{}")),
    };
    if let Some(batch) = batch {
        world.commit(batch).expect("decided on what is there");
    }
}

proptest! {
    #[test]
    fn the_names_beside_the_projects_are_theirs(
        writes in prop::collection::vec((0..40_usize, 0..4_usize, 0..5_usize), 1..200),
    ) {
        let mut snapshot = Snapshot::new();
        for (at, (project, subject, body)) in writes.into_iter().enumerate() {
            let project = format!("project-{project}");
            let digest = Digest::of(b"x");
            let (key, bodies) = match subject {
                0 => (format!("python/project/alice/dev/{project}"), [
                    r#"{"v":1,"status":"quarantined"}"#.to_owned(),
                    r#"{"v":1,"status":"active","held":true}"#.to_owned(),
                    r#"{"v":1,"status":"quarantined","held":true}"#.to_owned(),
                ]),
                1 => (format!("python/version/alice/dev/{project}/1"), [
                    format!(r#"{{"v":1,"metadata":"{digest}"}}"#),
                    format!(r#"{{"v":1,"metadata":"{digest}","yanked":"no"}}"#),
                    r#"{"v":9}"#.to_owned(),
                ]),
                number => (format!("python/file/alice/dev/{project}/{project}-{number}.zip"), [
                    format!(
                        r#"{{"v":1,"version":"1","sha256":"{digest}","size_bytes":1,"uploaded_at_unix_microseconds":0}}"#
                    ),
                    r#"{"v":1,"gone":[]}"#.to_owned(),
                    "{}".to_owned(),
                ]),
            };
            let record = Record {
                key: Key::new(&key).expect("a key"),
                serial: Serial(at as u64 + 1),
                body: bodies.get(body).map(|body| body.clone().into()),
                blobs: Vec::new(),
            };
            snapshot = snapshot.after(&[record]).snapshot;
        }
        snapshot.traces().for_each(|stage| check_names(stage));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn in_portions_or_at_once_it_is_the_same(
        happenings in happenings(),
        portion in 1..5_usize,
        is_by_serial in any::<bool>(),
    ) {
        let mut world = World::new();
        for happening in &happenings {
            happen(&mut world, happening);
        }
        let mut records: Vec<Record> = world.records.values().cloned().collect();
        if is_by_serial {
            records.sort_by_key(|record| record.serial);
        }
        let (mut snapshot, mut in_place) = (Snapshot::new(), Snapshot::new());
        for records in records.chunks(portion) {
            let applied = snapshot.apply(records);
            prop_assert_eq!(applied.troubles, vec![]);
            snapshot = applied.snapshot;
            in_place = in_place.after(records).snapshot;
        }
        prop_assert_eq!(seen(&snapshot), seen(&in_place));
        prop_assert_eq!(seen(&world.snapshot), seen(&world.rebuilt()));
        prop_assert_eq!(seen(&world.snapshot), seen(&snapshot));
        prop_assert_eq!(world.snapshot.serial(), snapshot.serial());
        let rescued: Vec<Record> = world.snapshot.records().collect();
        let rescued = Snapshot::new().apply(&rescued);
        prop_assert_eq!(rescued.troubles, vec![]);
        prop_assert_eq!(seen(&world.snapshot), seen(&rescued.snapshot));
    }
}
