//! Changes: the result of each write and the reasons for refusals. Uploads, pushes and results of test runs have files of their own.

mod pushes;
mod test_results;
mod uploads;

use record::{Batch, Digest, Key};
use serde_json::json;

use super::push::{Push, PushContent};
use super::remove::RemovalExtent;
use super::retention::RetentionRule;
use super::*;
use crate::record::{read_stage, write_stage};
use crate::testing::{World, now, project_name, stage_name, time, user_name};
use crate::{
    ChangeError, ConfigEdit, Directory, FileRole, LogEntry, ProjectStatus, Refusal, ReleaseFile,
    StageConfig, StageName, StatusMarker,
};

fn world() -> World {
    let mut world = World::new();
    world.create("alice/dev", json!({})).create("alice/prod", json!({"volatile": false}));
    world
}

/// Expects a refusal of this kind with this text.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ChangeError>, refusal: Refusal, text: &str) {
    let error = result.expect_err("a refusal");
    assert_eq!((error.refusal(), error.to_string()), (refusal, text.to_owned()));
}

fn file(world: &World, stage: &str, filename: &str) -> ReleaseFile {
    let project = filename.split('-').next().expect("a name");
    let stage = world.snapshot.stage(stage).expect("a stage");
    let project = stage.project(project).expect("a project");
    ReleaseFile::clone(project.file(filename).expect("a file"))
}

/// The names of a project's files, and its versions.
fn content(world: &World, stage: &str, project: &str) -> String {
    let stage = world.snapshot.stage(stage).expect("a stage");
    let Some(project) = stage.project(project) else { return String::new() };
    let names = project.files().iter().map(|file| file.filename());
    format!("{} | {}", names.collect::<Vec<_>>().join(" "), project.versions().join(" "))
}

fn order<'text>(
    source: &'text crate::StageName,
    target: &'text crate::StageName,
    content: PushContent,
) -> Push<'text> {
    Push { source, target, name: "Foo", version: "1.0", content, who: None, at: now() }
}

#[track_caller]
fn commit(world: &mut World, batch: Result<Batch, ChangeError>) {
    world.commit(batch.expect("a decision")).expect("no conflict");
}

fn commit_deletion(world: &mut World, stage: &str, force: bool) {
    let batch = stage::delete(&world.snapshot, &stage_name(stage), force);
    commit(world, batch);
}

#[test]
fn stages_are_made_once_for_users_that_exist() {
    let mut world = world();
    let nothing = ConfigEdit::nothing();
    let create =
        |world: &World, name: &str| stage::create(&world.snapshot, &stage_name(name), &nothing);
    refused(create(&world, "alice/dev"), Refusal::Conflict, "index 'alice/dev' exists");
    let (batch, config) = create(&world, "bob/x").expect("a stage");
    assert_eq!(StageConfig::create(&stage_name("bob/x"), &nothing, &|_| true), Ok(config));
    world.commit(batch.clone()).expect("no conflict");
    world.commit(batch).expect_err("a conflict");
    let (batch, _) = create(&world, "nobody/x").expect("a stage");
    world.commit(batch).expect_err("no such user");
}

#[test]
fn a_configuration_that_could_not_be_read_back_is_refused() {
    let name = stage_name("alice/dev");
    let mut config = StageConfig::create(&name, &ConfigEdit::nothing(), &|_| true).expect("one");
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let mut check = |levels, expected: &str| {
        config.custom_data = Some(nested(levels));
        let found = match write_stage(&name, &config) {
            Ok(body) => format!("{:?}", read_stage(&name, &body).map(|read| read == config)),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{levels} levels");
    };
    check(125, "Ok(true)");
    check(
        126,
        "'custom_data' has a value with which the index could not be read back: its body is not JSON \
         (column 218)",
    );
}

#[test]
fn a_stage_is_changed_unless_nothing_changes() {
    let world = world();
    let name = stage_name("alice/dev");
    let modify = |json, is_noop_an_error| {
        let edit = ConfigEdit::parse(&json).expect("an edit");
        stage::modify(&world.snapshot, &name, &edit, is_noop_an_error)
    };
    assert!(modify(json!(["title=x"]), true).expect("a stage").0.is_some());
    assert_eq!(modify(json!(["volatile=yes"]), false).expect("a stage").0, None);
    let text = "The requested modifications resulted in no changes";
    refused(modify(json!(["volatile=yes"]), true), Refusal::Invalid, text);
    let text = "base index 'x/y' does not exist";
    refused(modify(json!(["bases=x/y"]), false), Refusal::Invalid, text);
    assert!(modify(json!(["bases=alice/dev"]), false).is_ok());
}

#[test]
fn a_non_volatile_stage_is_deleted_with_force_only() {
    let mut world = world();
    world.upload("alice/prod", "foo-1.0.tar.gz", "one");
    let name = stage_name("alice/prod");
    let deletion = stage::delete(&world.snapshot, &name, false);
    let text = "index alice/prod non-volatile, cannot delete";
    refused(deletion, Refusal::Forbidden, text);
    let of_user = stage::delete_of_user(&world.snapshot, &user_name("alice"), false);
    let text = "user 'alice' has non-volatile index: prod";
    refused(of_user, Refusal::Forbidden, text);
    let of_user = stage::delete_of_user(&world.snapshot, &user_name("alice"), true);
    commit(&mut world, of_user);
    let left =
        world.records.values().filter(|it| it.body.is_some() && it.key.after("python").is_some());
    assert_eq!(left.count(), 0);
    let of_nobody = stage::delete_of_user(&world.snapshot, &user_name("bob"), false);
    assert_eq!(of_nobody, Ok(Batch::new()));
}

/// Two versions of `foo` on both stages.
fn two_versions() -> World {
    let mut world = world();
    for name in ["foo-1.0.tar.gz", "foo-1.0.zip", "foo-2.0.tar.gz", "foo-2.0.doc.zip"] {
        world.upload("alice/dev", name, name).upload("alice/prod", name, name);
    }
    world
}

#[test]
fn what_is_not_there_or_not_volatile_is_not_removed() {
    let snapshot = two_versions().snapshot.clone();
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let (foo, bar) = (project_name("foo"), project_name("bar"));
    let project = |stage, name, force| {
        remove::project(&snapshot, stage, name, RemovalExtent::Contents, force)
    };
    let text = "project 'foo' is on non-volatile index alice/prod";
    refused(project(&prod, &foo, false), Refusal::Forbidden, text);
    refused(project(&dev, &bar, false), Refusal::NotFound, "project not found");
    let version = |version, force| remove::version(&snapshot, &prod, &foo, version, force);
    let text = "The version 3.0 of project foo does not exist.";
    refused(version("3.0", true), Refusal::NotFound, text);
    let text = "cannot delete version on non-volatile index";
    refused(version("1.0", false), Refusal::Forbidden, text);
    refused(version("3.0", false), Refusal::Forbidden, text);
    let directory = Directory::of(&Digest::of(b"foo-1.0.zip"));
    let path = format!("alice/prod/+f/{directory}/foo-1.0.zip");
    let file = |name, force| remove::file(&snapshot, &prod, directory, name, force);
    refused(file("foo-1.0.zip", false), Refusal::Forbidden, text);
    refused(file("foo-1.0.tgz", false), Refusal::Forbidden, text);
    let text = format!("package '{}' doesn't exist", path.replace(".zip", ".tgz"));
    refused(file("foo-1.0.tgz", true), Refusal::NotFound, &text);
}

/// With the last file of a version, the version is removed, and with the last version the project.
#[test]
fn projects_versions_and_files_are_removed() {
    let mut world = two_versions();
    let (dev, prod, foo) = (stage_name("alice/dev"), stage_name("alice/prod"), project_name("foo"));
    let directory = Directory::of(&Digest::of(b"foo-1.0.zip"));
    let file = remove::file(&world.snapshot, &prod, directory, "foo-1.0.zip", true);
    commit(&mut world, file);
    assert_eq!(
        content(&world, "alice/prod", "foo"),
        "foo-1.0.tar.gz foo-2.0.doc.zip foo-2.0.tar.gz | 1.0 2.0"
    );
    let again = remove::file(&world.snapshot, &prod, directory, "foo-1.0.zip", true);
    let path = format!("alice/prod/+f/{directory}/foo-1.0.zip");
    let text = format!("file '{path}' existed, deleted in later serial");
    refused(again, Refusal::Gone, &text);
    let directory = Directory::of(&Digest::of(b"foo-1.0.tar.gz"));
    let last = remove::file(&world.snapshot, &prod, directory, "foo-1.0.tar.gz", true);
    commit(&mut world, last);
    assert_eq!(content(&world, "alice/prod", "foo"), "foo-2.0.doc.zip foo-2.0.tar.gz | 2.0");
    let last = remove::version(&world.snapshot, &prod, &foo, "2.0", true);
    commit(&mut world, last);
    assert_eq!(content(&world, "alice/prod", "foo"), "");
    let whole = remove::project(&world.snapshot, &dev, &foo, RemovalExtent::Contents, false);
    commit(&mut world, whole);
    assert_eq!(content(&world, "alice/dev", "foo"), "");
}

/// Removing the project's last file removes its status, too.
#[test]
fn of_an_emptied_project_the_name_and_the_places_of_files_are_known() {
    let mut world = world();
    let (dev, bar) = (stage_name("alice/dev"), project_name("bar"));
    world.upload("alice/dev", "bar-1.0.zip", "bar");
    let archived = ProjectStatus { marker: StatusMarker::Archived, reason: None };
    let decision = yank::set_project_status(&world.snapshot, &dev, &bar, Some(&archived));
    world.commit(decision.expect("a project").batch().expect("a change")).expect("no conflict");
    let directory = Directory::of(&Digest::of(b"bar"));
    let last = remove::file(&world.snapshot, &dev, directory, "bar-1.0.zip", false);
    commit(&mut world, last);
    let left: Vec<&str> = world
        .records
        .values()
        .filter(|it| it.body.is_some() && it.key.as_str().contains("/bar"))
        .map(|it| it.key.as_str())
        .collect();
    let known = ["python/file/alice/dev/bar/bar-1.0.zip", "python/project/alice/dev/bar"];
    assert_eq!(left, known, "the file's place is known, and that the name is the stage's");
    let bar_left = world.snapshot.stage("alice/dev").expect("a stage");
    assert!(bar_left.owns_name("bar") && bar_left.project("bar").is_none());
}

/// Whether `foo` is the stage's own name, and all names that it keeps without a release.
fn kept(world: &World, stage: &str) -> (bool, String) {
    let stage = world.snapshot.stage(stage).expect("a stage");
    let held: Vec<String> = stage.held_names().map(ToString::to_string).collect();
    (stage.owns_name("foo"), held.join(" "))
}

fn remove_foo(
    world: &World,
    stage: &StageName,
    extent: RemovalExtent,
    force: bool,
) -> Result<Batch, ChangeError> {
    remove::project(&world.snapshot, stage, &project_name("foo"), extent, force)
}

/// A status stays with the project while it has a version.
#[test]
fn the_last_version_leaves_the_name() {
    let mut world = two_versions();
    let (dev, foo) = (stage_name("alice/dev"), project_name("foo"));
    let archived = ProjectStatus { marker: StatusMarker::Archived, reason: None };
    let decision = yank::set_project_status(&world.snapshot, &dev, &foo, Some(&archived));
    world.commit(decision.expect("a project").batch().expect("a change")).expect("no conflict");
    // Two requests remove the last two versions at once: one of them decides again.
    let [one, other] =
        ["1.0", "2.0"].map(|version| remove::version(&world.snapshot, &dev, &foo, version, false));
    commit(&mut world, one);
    assert!(world.commit(other.expect("a version")).is_err());
    let status = |world: &World| {
        let project = world.snapshot.stage("alice/dev")?.project("foo")?.clone();
        project.status().cloned()
    };
    assert_eq!(status(&world), Some(archived.clone()));
    let gone = yank::set_project_status(&world.snapshot, &dev, &foo, None);
    world.commit(gone.expect("a project").batch().expect("a change")).expect("no conflict");
    assert_eq!(status(&world), None);
    let last = remove::version(&world.snapshot, &dev, &foo, "2.0", false);
    commit(&mut world, last);
    assert_eq!(kept(&world, "alice/dev"), (true, "foo".to_owned()));
    // A backup has it, too.
    let records: Vec<record::Record> = world.snapshot.records().collect();
    let restored = crate::Snapshot::new().apply(&records).snapshot;
    assert!(restored.stage("alice/dev").expect("a stage").owns_name("foo"));
}

/// Whoever may remove a project may release its name, which is the stage's own until then.
#[test]
fn an_emptied_name_is_kept_until_it_is_released() {
    let mut world = two_versions();
    let dev = stage_name("alice/dev");
    let batch = remove_foo(&world, &dev, RemovalExtent::Contents, false);
    commit(&mut world, batch);
    let text = "project not found: nothing is left of it but its name";
    refused(remove_foo(&world, &dev, RemovalExtent::Contents, false), Refusal::NotFound, text);
    // Used again, it cannot be released alone.
    world.upload("alice/dev", "foo-3.0.zip", "three");
    let text = "project 'foo' has releases: only an unused name can be released alone";
    refused(remove_foo(&world, &dev, RemovalExtent::Name, false), Refusal::Conflict, text);
    let batch = remove_foo(&world, &dev, RemovalExtent::Contents, false);
    commit(&mut world, batch);
    let batch = remove_foo(&world, &dev, RemovalExtent::Name, false);
    commit(&mut world, batch);
    assert_eq!(kept(&world, "alice/dev"), (false, String::new()));
    refused(
        remove_foo(&world, &dev, RemovalExtent::Name, false),
        Refusal::NotFound,
        "project not found",
    );
}

/// Contents and name go at once, too.
#[test]
fn the_rules_for_removing_a_project_hold_for_its_name() {
    let mut world = two_versions();
    let prod = stage_name("alice/prod");
    let text = "project 'foo' is on non-volatile index alice/prod";
    refused(
        remove_foo(&world, &prod, RemovalExtent::ContentsAndName, false),
        Refusal::Forbidden,
        text,
    );
    let rule = RetentionRule { versions: Some(0), days: None };
    let plan = retention::plan(&world.snapshot, &prod, rule, now()).expect("a plan");
    world.commit(plan.batch.expect("something to remove")).expect("no conflict");
    assert_eq!(kept(&world, "alice/prod"), (true, "foo".to_owned()));
    refused(remove_foo(&world, &prod, RemovalExtent::Name, false), Refusal::Forbidden, text);
    let batch = remove_foo(&world, &prod, RemovalExtent::ContentsAndName, true);
    commit(&mut world, batch);
    assert_eq!(kept(&world, "alice/prod"), (false, String::new()));
}

#[test]
fn a_release_that_cannot_be_read_keeps_the_name() {
    let world = world();
    assert_eq!(kept(&world, "alice/prod"), (false, String::new()));
    let unreadable = record::Record {
        key: Key::new("python/version/alice/prod/foo/1.0").expect("a key"),
        serial: record::Serial(world.snapshot.serial().0 + 1),
        body: Some("{}".into()),
        blobs: Vec::new(),
    };
    let applied = world.snapshot.apply(&[unreadable]);
    assert_eq!(applied.troubles.len(), 1);
    assert!(applied.snapshot.stage("alice/prod").expect("a stage").owns_name("foo"));
}

#[test]
fn documentation_needs_a_registered_release() {
    let mut world = world();
    let version = crate::Version::parse("1.0").expect("a version");
    let name = crate::Filename::parse("foo-1.0.doc.zip").expect("a name");
    let (stage, foo) = (stage_name("alice/dev"), project_name("foo"));
    let upload = upload::FileUpload {
        stage: &stage,
        project: &foo,
        version: &version,
        filename: &name,
        role: FileRole::Docs,
        digest: Digest::of(b"zip"),
        size_bytes: 3,
        requires_python: None,
        core_metadata: None,
        provenance: None,
        is_attested: false,
        metadata: None,
        who: None,
        publisher: None,
        at: now(),
        log: &[],
    };
    let decision = upload::file(&world.snapshot, &upload);
    refused(decision, Refusal::Invalid, "foo-1.0 is not registered");
    world.register("alice/dev", "foo", "1.0");
    let decision = upload::file(&world.snapshot, &upload).expect("an upload");
    world.commit(decision.batch().expect("a change")).expect("no conflict");
    assert_eq!(content(&world, "alice/dev", "foo"), "foo-1.0.doc.zip | 1.0");
    // A file that arrives with a history keeps it.
    let (at, target) = (time("2020-01-01T00:00:00Z"), stage_name("bob/old"));
    let log = [LogEntry::Upload { who: None, at, target }];
    let upload = upload::FileUpload { digest: Digest::of(b"new"), log: &log, ..upload };
    let decision = upload::file(&world.snapshot, &upload).expect("an upload");
    world.commit(decision.batch().expect("a change")).expect("no conflict");
    let kept = file(&world, "alice/dev", "foo-1.0.doc.zip").log(&stage);
    let overwrite = LogEntry::Overwrite { at: now(), count: 1 };
    assert_eq!(kept, [overwrite, log[0].clone()]);
}

#[test]
fn yanking_and_taking_it_back() {
    let mut world = world();
    world.upload("alice/prod", "foo-1.0.tar.gz", "one").upload("alice/prod", "foo-1.0.zip", "two");
    let (stage, foo) = (stage_name("alice/prod"), project_name("foo"));
    let yanked = |world: &World| -> Vec<Option<String>> {
        let project = world.snapshot.stage("alice/prod").expect("a stage").project("foo");
        let project = project.expect("a project");
        project.files().iter().map(|it| project.yanked(it).map(str::to_owned)).collect()
    };
    let mut release = |reason| {
        let decision = yank::release(&world.snapshot, &stage, &foo, "1.0", reason);
        if let Some(batch) = decision.expect("a release").batch() {
            world.commit(batch).expect("no conflict");
        }
        yanked(&world)
    };
    assert_eq!(release(Some("bad")), [Some("bad".to_owned()), Some("bad".to_owned())]);
    assert_eq!(release(None), [None, None]);
    let decision = yank::file(&world.snapshot, &stage, &foo, "foo-1.0.zip", Some(""));
    world.commit(decision.expect("a file").batch().expect("a change")).expect("no conflict");
    assert_eq!(yanked(&world), [None, Some(String::new())]);
    let again = yank::file(&world.snapshot, &stage, &foo, "foo-1.0.zip", Some(""));
    assert_eq!(again, Ok(Decision::AlreadyThere));
    let text = "The version 2.0 of project foo does not exist.";
    refused(yank::release(&world.snapshot, &stage, &foo, "2.0", None), Refusal::NotFound, text);
}

/// The versions that `rule` removes: five were uploaded at [`now`], and one is registered without a file.
#[track_caller]
fn retained(versions: Option<u32>, days: Option<u32>, at: &str, removed: &str) {
    let mut world = world();
    for version in ["1.0", "1.9", "1.10", "2.0rc1", "2.0"] {
        world.upload("alice/prod", &format!("foo-{version}.tar.gz"), version);
    }
    world.register("alice/prod", "foo", "0.1").upload("alice/prod", "bar-1.0.tar.gz", "bar");
    let rule = RetentionRule { versions, days };
    let stage = stage_name("alice/prod");
    let plan = retention::plan(&world.snapshot, &stage, rule, time(at)).expect("a stage");
    let found: Vec<&str> = plan.removals.iter().map(|removal| removal.version.as_str()).collect();
    assert_eq!(found.join(" "), removed);
    assert_eq!(plan.batch.is_some(), !removed.is_empty());
    let Some(batch) = plan.batch else { return };
    world.commit(batch).expect("no conflict");
    let plan = retention::plan(&world.snapshot, &stage, rule, time(at)).expect("a stage");
    assert_eq!(plan.removals, []);
}

#[test]
fn a_rule_removes_old_versions() {
    let soon = "2026-02-01T00:00:00Z";
    retained(None, None, soon, "");
    retained(Some(2), None, soon, "0.1 1.0 1.9 1.10");
    retained(Some(9), None, soon, "");
    retained(None, Some(1), soon, "");
    retained(None, Some(1), "2026-02-02T00:00:00Z", "1.0 1.0 1.9 1.10 2.0rc1 2.0");
    retained(Some(3), Some(1), "2026-02-02T00:00:00Z", "1.0 1.9");
}

#[test]
fn a_rule_is_applied_to_forty_thousand_versions_at_once() {
    let mut world = world();
    let records: Vec<record::Record> = (0..40_000)
        .map(|number| {
            let body = json!({
                "v": 1, "version": format!("1.{number}"), "sha256": Digest::of(b"").to_string(),
                "size_bytes": 1, "uploaded_at_unix_microseconds": 0,
            });
            let key = format!("python/file/alice/prod/foo/foo-1.{number}.zip");
            record::Record {
                key: Key::new(&key).expect("a key"),
                serial: record::Serial(100),
                body: Some(body.to_string().into()),
                blobs: Vec::new(),
            }
        })
        .collect();
    world.snapshot = world.snapshot.apply(&records).snapshot;
    let rule = RetentionRule { versions: Some(1), days: Some(1) };
    let started = std::time::Instant::now();
    let plan = retention::plan(&world.snapshot, &stage_name("alice/prod"), rule, now());
    let removals = plan.expect("a stage").removals;
    // Looking at every file for every version would take minutes.
    let elapsed = started.elapsed();
    assert!(elapsed < std::time::Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(removals.len(), 39_999);
    assert!(removals.iter().all(|it| it.filenames == [format!("foo-{}.zip", it.version)]));
}

#[test]
fn the_last_version_takes_the_whole_project_along() {
    let mut world = world();
    let (stage, foo) = (stage_name("alice/prod"), project_name("foo"));
    for version in ["1.0", "2.0"] {
        world.upload("alice/prod", &format!("foo-{version}.tar.gz"), version);
    }
    let archived = ProjectStatus { marker: StatusMarker::Archived, reason: None };
    let decision = yank::set_project_status(&world.snapshot, &stage, &foo, Some(&archived));
    world.commit(decision.expect("a project").batch().expect("a change")).expect("no conflict");
    let rule = RetentionRule { versions: None, days: Some(1) };
    let at = time("2026-03-01T00:00:00Z");
    let plan = retention::plan(&world.snapshot, &stage, rule, at).expect("a stage");
    assert_eq!(plan.removals.len(), 2);
    world.commit(plan.batch.expect("a change")).expect("no conflict");
    assert_eq!(content(&world, "alice/prod", "foo"), "");
    world.upload("alice/prod", "foo-3.0.tar.gz", "three");
    let project = world.snapshot.stage("alice/prod").and_then(|stage| stage.project("foo"));
    assert_eq!(project.expect("a project").status(), None, "a new project is not archived");
}
