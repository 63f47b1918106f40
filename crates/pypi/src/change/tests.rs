//! Changes: the result of each write, the reasons for refusals, and which of two concurrent writes wins.

use account::UserName;
use record::{Batch, Digest, Expected, Key};
use serde_json::json;

use super::push::{Push, PushContent, PushOrder, PushTarget};
use super::retention::RetentionRule;
use super::upload::ToxUpload;
use super::*;
use crate::record::{read_stage, write_stage};
use crate::testing::{World, now, project_name, stage_name, time, user_name};
use crate::{
    ChangeError, ConfigEdit, Directory, FileRole, LogEntry, ProjectStatus, Refusal, ReleaseFile,
    StageConfig, StatusMarker,
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

#[track_caller]
fn commit(world: &mut World, batch: Result<Batch, ChangeError>) {
    world.commit(batch.expect("a decision")).expect("no conflict");
}

#[test]
fn an_upload_registers_its_release_and_names_its_blobs() {
    let world = world();
    let decision = world.decide("alice/dev", "foo-1.0-py3-none-any.whl", "one");
    let batch = decision.expect("an upload").batch().expect("a change");
    let keys: Vec<(&str, usize)> =
        batch.writes.iter().map(|write| (write.key.as_str(), write.blobs.len())).collect();
    let file = "python/file/alice/dev/foo/foo-1.0-py3-none-any.whl";
    assert_eq!(keys, [(file, 2), ("python/version/alice/dev/foo/1.0", 1)]);
    assert!(batch.writes.iter().all(|write| write.expected == Expected::Absent));
    let stage = world.snapshot.stage("alice/dev").expect("a stage").config_serial();
    let key = Key::new("python/stage/alice/dev").expect("a key");
    assert_eq!(batch.checks, [(key, Expected::At(stage))]);
    assert_eq!(
        std::str::from_utf8(batch.writes[0].body.as_ref().expect("a body")).expect("text"),
        format!(
            "{{\"v\":1,\"version\":\"1.0\",\"sha256\":\"{}\",\"size_bytes\":3,\
             \"uploaded_at_unix_microseconds\":1769862896789000,\"uploader\":\"alice\",\
             \"requires_python\":\">=3.9\",\"core_metadata_sha256\":\"{}\"}}",
            Digest::of(b"one"),
            Digest::of(b"METADATA")
        )
    );
}

#[test]
fn a_file_in_a_non_volatile_stage_is_not_replaced() {
    let mut world = world();
    world.upload("alice/prod", "foo-1.0.tar.gz", "one");
    let text = "foo-1.0.tar.gz already exists in non-volatile index";
    refused(world.decide("alice/prod", "foo-1.0.tar.gz", "two"), Refusal::Conflict, text);
    let same = world.decide("alice/prod", "foo-1.0.tar.gz", "one");
    assert_eq!(same, Ok(Decision::AlreadyThere));
    refused(
        world.decide("alice/none", "foo-1.0.tar.gz", "one"),
        Refusal::NotFound,
        "The stage alice/none could not be found.",
    );
    let mirror = json!({"type": "mirror", "mirror_url": "https://upstream.example/"});
    world.create("root/pypi", mirror);
    let upload = world.decide("root/pypi", "foo-1.0.tar.gz", "one");
    refused(upload, Refusal::NotFound, "cannot submit to mirror index");
}

#[test]
fn a_file_of_a_volatile_stage_is_replaced_and_that_is_logged() {
    let mut world = world();
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    assert_eq!(world.decide("alice/dev", "foo-1.0.tar.gz", "one"), Ok(Decision::AlreadyThere));
    world.upload("alice/dev", "foo-1.0.tar.gz", "two").upload(
        "alice/dev",
        "foo-1.0.tar.gz",
        "three",
    );
    let file = file(&world, "alice/dev", "foo-1.0.tar.gz");
    let (who, target) = (Some(user_name("alice")), stage_name("alice/dev"));
    let log =
        [LogEntry::Overwrite { at: now(), count: 2 }, LogEntry::Upload { who, at: now(), target }];
    assert_eq!(file.log(&stage_name("alice/dev")), log);
    let lay: Vec<Directory> =
        ["one", "two"].map(|content| Directory::of(&Digest::of(content.as_bytes()))).into();
    assert_eq!(file.gone(), lay);
}

#[test]
fn two_uploads_of_one_name_cannot_both_win() {
    let mut world = world();
    let one = world.decide("alice/prod", "foo-1.0.tar.gz", "one").expect("an upload").batch();
    let two = world.decide("alice/prod", "foo-1.0.tar.gz", "two").expect("an upload").batch();
    world.commit(two.expect("a change")).expect("no conflict");
    world.commit(one.expect("a change")).expect_err("a conflict");
    // Two files of a new release at once: one upload registers the release, the other one is decided again.
    let decide = |world: &World, filename| {
        let decision = world.decide("alice/prod", filename, "one").expect("an upload");
        decision.batch().expect("a change")
    };
    let (one, two) = (decide(&world, "bar-1.0.tar.gz"), decide(&world, "bar-1.0.zip"));
    world.commit(one).expect("no conflict");
    world.commit(two).expect_err("a conflict");
    // Concurrent uploads of different releases do not conflict.
    world.register("alice/prod", "bar", "2.0");
    let (one, two) = (decide(&world, "bar-1.0.zip"), decide(&world, "bar-2.0.zip"));
    world.commit(one).expect("no conflict");
    world.commit(two).expect("no conflict");
}

/// Decides two changes on one snapshot, in which foo 1.0 has a file and is registered; the second to be committed
/// must be refused, in either order.
#[track_caller]
fn of_two_one_is_decided_again(
    one: impl Fn(&World) -> Option<Batch>,
    two: impl Fn(&World) -> Option<Batch>,
) {
    for is_swapped in [false, true] {
        let mut world = world();
        world.upload("alice/dev", "foo-1.0.tar.gz", "one").upload(
            "alice/dev",
            "foo-1.0.zip",
            "zip",
        );
        world.upload("alice/prod", "foo-1.0.tar.gz", "one").register("alice/prod", "foo", "1.0");
        world.upload("alice/prod", "foo-2.0.zip", "two");
        let [first, second] = [one(&world), two(&world)].map(|it| it.expect("a change"));
        let (first, second) = if is_swapped { (second, first) } else { (first, second) };
        world.commit(first).expect("no conflict");
        world.commit(second).expect_err("a conflict");
    }
}

#[test]
fn a_file_never_comes_into_a_version_that_is_removed() {
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let foo = project_name("foo");
    let remove = |world: &World| remove::version(&world.snapshot, &prod, &foo, "1.0", true).ok();
    let upload = |world: &World| world.decide("alice/prod", "foo-1.0.zip", "zip").ok()?.batch();
    of_two_one_is_decided_again(remove, upload);
    let push = |world: &World| {
        push::push(&world.snapshot, &order(&dev, &prod, PushContent::Everything)).ok()?.0
    };
    of_two_one_is_decided_again(remove, push);
    let directory = Directory::of(&Digest::of(b"one"));
    let test = |world: &World| {
        let upload = ToxUpload {
            stage: &prod,
            directory,
            filename: "foo-1.0.tar.gz",
            name: None,
            digest: Digest::of(b"{}"),
            size_bytes: 2,
            who: None,
            at: now(),
            log: &[],
            is_bounded: true,
        };
        upload::tox_result(&world.snapshot, &upload).ok().map(|it| it.0)
    };
    of_two_one_is_decided_again(remove, test);
    let remove_last = |world: &World| {
        remove::file(&world.snapshot, &prod, directory, "foo-1.0.tar.gz", true).ok()
    };
    of_two_one_is_decided_again(remove_last, upload);
    // As long as the other file is there, neither of the two is the last one.
    let remove_of_two = |filename: &'static str, content: &'static str| {
        let (dev, directory) = (dev.clone(), Directory::of(&Digest::of(content.as_bytes())));
        move |world: &World| remove::file(&world.snapshot, &dev, directory, filename, true).ok()
    };
    of_two_one_is_decided_again(
        remove_of_two("foo-1.0.tar.gz", "one"),
        remove_of_two("foo-1.0.zip", "zip"),
    );
}

#[test]
fn an_upload_into_a_stage_that_was_deleted_or_changed_meanwhile_fails() {
    let mut world = world();
    let upload = |world: &World| {
        let decision = world.decide("alice/dev", "foo-1.0.tar.gz", "one").expect("an upload");
        decision.batch().expect("a change")
    };
    let batch = upload(&world);
    world.modify("alice/dev", json!(["volatile=no"]));
    world.commit(batch).expect_err("a conflict");
    let batch = upload(&world);
    commit_deletion(&mut world, "alice/dev", true);
    world.commit(batch).expect_err("a conflict");
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

#[test]
fn projects_versions_and_files_are_removed() {
    let mut world = world();
    for name in ["foo-1.0.tar.gz", "foo-1.0.zip", "foo-2.0.tar.gz", "foo-2.0.doc.zip"] {
        world.upload("alice/dev", name, name).upload("alice/prod", name, name);
    }
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let (foo, bar) = (project_name("foo"), project_name("bar"));

    let snapshot = world.snapshot.clone();
    let project = |stage, name, force| remove::project(&snapshot, stage, name, force);
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

    commit(&mut world, file("foo-1.0.zip", true));
    assert_eq!(
        content(&world, "alice/prod", "foo"),
        "foo-1.0.tar.gz foo-2.0.doc.zip foo-2.0.tar.gz | 1.0 2.0"
    );
    let again = remove::file(&world.snapshot, &prod, directory, "foo-1.0.zip", true);
    let text = format!("file '{path}' existed, deleted in later serial");
    refused(again, Refusal::Gone, &text);
    // Removing the last file of a version removes the version.
    let directory = Directory::of(&Digest::of(b"foo-1.0.tar.gz"));
    let last = remove::file(&world.snapshot, &prod, directory, "foo-1.0.tar.gz", true);
    commit(&mut world, last);
    assert_eq!(content(&world, "alice/prod", "foo"), "foo-2.0.doc.zip foo-2.0.tar.gz | 2.0");
    // Removing the last version removes the project.
    let last = remove::version(&world.snapshot, &prod, &foo, "2.0", true);
    commit(&mut world, last);
    assert_eq!(content(&world, "alice/prod", "foo"), "");

    // Removing the project's last file does so too, together with its status.
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
    assert_eq!(left, ["python/file/alice/dev/bar/bar-1.0.zip"], "the file's place alone is known");

    let whole = remove::project(&world.snapshot, &dev, &foo, false);
    commit(&mut world, whole);
    assert_eq!(content(&world, "alice/dev", "foo"), "");
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
        metadata: None,
        who: None,
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
fn a_test_result_from_elsewhere_keeps_its_name_and_its_history() {
    let mut world = world();
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    let stage = stage_name("alice/dev");
    let (at, target) = (time("2020-01-01T00:00:00Z"), stage_name("bob/old"));
    let log = [LogEntry::Upload { who: None, at, target }];
    let mut named = |name| {
        let upload = ToxUpload {
            stage: &stage,
            directory: Directory::of(&Digest::of(b"one")),
            filename: "foo-1.0.tar.gz",
            name: Some(name),
            digest: Digest::of(b"{}"),
            size_bytes: 2,
            who: None,
            at: now(),
            log: &log,
            is_bounded: true,
        };
        let (batch, path) = upload::tox_result(&world.snapshot, &upload).expect("a file");
        world.commit(batch).expect("no conflict");
        let name = path.rsplit('/').next().expect("a name").to_owned();
        assert_eq!(file(&world, "alice/dev", &name).log(&stage), log);
        name
    };
    let own = "foo-1.0.tar.gz.toxresult-20190101000000-7";
    assert_eq!(named(own), own);
    assert_eq!(named(own), "foo-1.0.tar.gz.toxresult-20260131123456-1", "it is taken");
    for (number, odd) in ["foo-1.0.tar.gz.toxresult-\u{7}", "bar.toxresult-1"].iter().enumerate() {
        assert_eq!(named(odd), format!("foo-1.0.tar.gz.toxresult-20260131123456-{}", number + 2));
    }
}

/// Adds a test result to a file of alice/dev and returns its path.
fn test(world: &mut World, filename: &str, content: &str) -> Result<String, ChangeError> {
    test_by(world, None, filename, content, 2)
}

fn test_by(
    world: &mut World,
    who: Option<&UserName>,
    filename: &str,
    content: &str,
    size_bytes: u64,
) -> Result<String, ChangeError> {
    let stage = stage_name("alice/dev");
    let upload = ToxUpload {
        stage: &stage,
        directory: Directory::of(&Digest::of(content.as_bytes())),
        filename,
        name: None,
        digest: Digest::of(b"{}"),
        size_bytes,
        who,
        at: now(),
        log: &[],
        is_bounded: true,
    };
    let (batch, path) = upload::tox_result(&world.snapshot, &upload)?;
    world.commit(batch).expect("no conflict");
    Ok(path)
}

#[test]
fn beyond_the_bounds_old_test_results_go_and_strangers_add_none() {
    let mut world = world();
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    let alice: UserName = "alice".parse().expect("a name");
    let mut add = |who, size_bytes| {
        let path = test_by(&mut world, who, "foo-1.0.tar.gz", "one", size_bytes)?;
        let project = world.snapshot.stage("alice/dev").and_then(|it| it.project("foo").cloned());
        let project = project.expect("a project");
        let sizes = project.tox_results_of("foo-1.0.tar.gz").map(|it| it.size_bytes());
        let mut sizes: Vec<u64> = sizes.collect();
        sizes.sort_unstable();
        Ok::<_, ChangeError>((path, sizes))
    };
    let strangers_most = upload::STRANGERS_TOX_RESULT_BYTES_MAX;
    let sizes = |added: Result<(String, Vec<u64>), ChangeError>| added.expect("room").1;
    assert_eq!(sizes(add(None, strangers_most - 1)), [strangers_most - 1]);
    assert!(matches!(add(None, 2), Err(ChangeError::TestResultsFull(_))));
    assert_eq!(sizes(add(None, 1)), [1, strangers_most - 1]);
    let half = upload::TOX_RESULT_BYTES_MAX / 2;
    // Strangers' results are removed before users', and older ones before newer ones.
    assert_eq!(sizes(add(Some(&alice), half - 2)), [1, strangers_most - 1, half - 2]);
    assert_eq!(sizes(add(Some(&alice), half - 1)), [1, half - 2, half - 1]);
    assert_eq!(sizes(add(Some(&alice), half)), [half - 1, half]);
    for _ in 0..upload::TOX_RESULTS_MAX {
        add(Some(&alice), 1).expect("room");
    }
    assert_eq!(sizes(add(Some(&alice), 2)).len(), upload::TOX_RESULTS_MAX);
}

#[test]
fn test_results_are_beside_their_file_and_are_removed_with_it() {
    let mut world = world();
    world.upload("alice/dev", "foo-1.0.tar.gz", "one").upload("alice/dev", "foo-1.0.zip", "zip");
    let beside = format!("alice/dev/+f/{}/", Directory::of(&Digest::of(b"one")));
    for number in 0..2 {
        let path = test(&mut world, "foo-1.0.tar.gz", "one");
        let name = format!("foo-1.0.tar.gz.toxresult-20260131123456-{number}");
        assert_eq!(path, Ok(format!("{beside}{name}")));
    }
    let text = format!("no release file found at {beside}foo-1.0.tgz");
    refused(test(&mut world, "foo-1.0.tgz", "one"), Refusal::NotFound, &text);
    assert_eq!(content(&world, "alice/dev", "foo").matches("toxresult").count(), 2);
    world.upload("alice/dev", "foo-1.0.tar.gz", "two");
    assert_eq!(content(&world, "alice/dev", "foo"), "foo-1.0.tar.gz foo-1.0.zip | 1.0");
    test(&mut world, "foo-1.0.zip", "zip").expect("a result");
    let directory = Directory::of(&Digest::of(b"zip"));
    let removal =
        remove::file(&world.snapshot, &stage_name("alice/dev"), directory, "foo-1.0.zip", false);
    commit(&mut world, removal);
    assert_eq!(content(&world, "alice/dev", "foo"), "foo-1.0.tar.gz | 1.0");
}

fn order<'text>(
    source: &'text crate::StageName,
    target: &'text crate::StageName,
    content: PushContent,
) -> Push<'text> {
    Push { source, target, name: "Foo", version: "1.0", content, who: None, at: now() }
}

#[test]
fn a_push_brings_files_results_documentation_and_logs() {
    let mut world = world();
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let nothing = push::push(&world.snapshot, &order(&dev, &prod, PushContent::Everything));
    let text = "there are no files for Foo 1.0 on stage alice/dev";
    refused(nothing, Refusal::Invalid, text);
    world.register("alice/dev", "foo", "1.0");
    let nothing = push::push(&world.snapshot, &order(&dev, &prod, PushContent::Everything));
    refused(nothing, Refusal::NotFound, "no release/files found for Foo 1.0");

    world.upload("alice/dev", "foo-1.0.tar.gz", "one").upload(
        "alice/dev",
        "foo-1.0.doc.zip",
        "doc",
    );
    world.upload("alice/dev", "foo-2.0.tar.gz", "later");
    test(&mut world, "foo-1.0.tar.gz", "one").expect("a result");
    let actions = |content| {
        let (_, actions) =
            push::push(&world.snapshot, &order(&dev, &prod, content)).expect("a push");
        serde_json::to_value(&actions).expect("JSON")
    };
    let register = json!([200, "register", "Foo", "1.0", "->", "alice/prod"]);
    let beside = format!("alice/prod/+f/{}/", Directory::of(&Digest::of(b"one")));
    let file = json!([200, "store_releasefile", format!("{beside}foo-1.0.tar.gz")]);
    let result = format!("{beside}foo-1.0.tar.gz.toxresult-20260131123456-0");
    let result = json!([200, "store_toxresult", result]);
    let docs = json!([200, "store_doczip", "Foo", "1.0", "->", "alice/prod"]);
    assert_eq!(actions(PushContent::NoDocs), json!([register, file, result]));
    assert_eq!(actions(PushContent::OnlyDocs), json!([register, docs]));
    assert_eq!(actions(PushContent::Everything), json!([register, file, result, docs]));

    let push = order(&dev, &prod, PushContent::Everything);
    let (batch, _) = push::push(&world.snapshot, &push).expect("a push");
    world.commit(batch.expect("a change")).expect("no conflict");
    let pushed = content(&world, "alice/prod", "foo");
    assert_eq!(
        pushed,
        content(&world, "alice/dev", "foo").replace(" foo-2.0.tar.gz", "").replace(" 2.0", "")
    );
    let log = self::file(&world, "alice/prod", "foo-1.0.tar.gz").log(&prod);
    let expected = [
        LogEntry::Upload { who: Some(user_name("alice")), at: now(), target: dev.clone() },
        LogEntry::Push { who: None, at: now(), source: dev.clone(), target: prod.clone() },
    ];
    assert_eq!(log, expected);
    // The same push again reports the same actions and has nothing to commit.
    let (batch, actions) = push::push(&world.snapshot, &push).expect("a push");
    assert_eq!((batch, actions.len()), (None, 4));
    // A different file of that name is not replaced in a stage that is not volatile.
    world.upload("alice/dev", "foo-1.0.tar.gz", "two");
    let text = "foo-1.0.tar.gz already exists in non-volatile index";
    refused(push::push(&world.snapshot, &push), Refusal::Conflict, text);
}

/// Why foo 1.0 in a stage is yanked, and the digest of its metadata.
fn said(world: &World, stage: &str) -> (Option<String>, Digest) {
    let stage = world.snapshot.stage(stage).expect("a stage");
    let release = stage.project("foo").and_then(|it| it.release("1.0")).expect("a release");
    (release.yanked.as_deref().map(str::to_owned), release.metadata)
}

#[test]
fn a_push_changes_no_release_in_a_non_volatile_stage() {
    let mut world = world();
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let (staging, foo) = (stage_name("alice/staging"), project_name("foo"));
    world.create("alice/staging", json!({})).upload("alice/dev", "foo-1.0.tar.gz", "one");
    let push = |world: &mut World, target| {
        let order = order(&dev, target, PushContent::Everything);
        let (batch, _) = push::push(&world.snapshot, &order).expect("a push");
        batch.map(|batch| world.commit(batch).expect("no conflict")).is_some()
    };
    let yanked = |world: &mut World, stage, reason| {
        let decision = yank::release(&world.snapshot, stage, &foo, "1.0", reason);
        world.commit(decision.expect("a release").batch().expect("a change")).expect("no conflict");
    };
    for target in [&prod, &staging] {
        assert!(push(&mut world, target));
        yanked(&mut world, target, Some("broken"));
    }
    let (_, first) = said(&world, "alice/prod");
    // The same push again: the release stays yanked.
    assert!(!push(&mut world, &prod));
    assert!(!push(&mut world, &staging));
    // With other metadata and another file, a stage that is not volatile takes only the file.
    let (version, other) = (crate::Version::parse("1.0").expect("a version"), Digest::of(b"{}"));
    let decision = upload::submit(&world.snapshot, &dev, &foo, &version, other);
    world.commit(decision.expect("a stage").batch().expect("a change")).expect("no conflict");
    for target in [&prod, &staging] {
        push(&mut world, target);
    }
    assert_eq!(said(&world, "alice/prod"), (Some("broken".to_owned()), first));
    assert_eq!(said(&world, "alice/staging"), (Some("broken".to_owned()), other));
    world.upload("alice/dev", "foo-1.0.zip", "zip");
    assert!(push(&mut world, &prod));
    assert_eq!(said(&world, "alice/prod"), (Some("broken".to_owned()), first));
    assert_eq!(content(&world, "alice/prod", "foo"), "foo-1.0.tar.gz foo-1.0.zip | 1.0");
    // If the release is yanked at the source, it arrives yanked, also in a stage whose files pushes replace.
    yanked(&mut world, &staging, None);
    yanked(&mut world, &dev, Some("leaked"));
    push(&mut world, &staging);
    assert_eq!(said(&world, "alice/staging").0.as_deref(), Some("leaked"));
}

#[test]
fn a_push_fails_if_its_files_are_removed_meanwhile() {
    let mut world = world();
    world.upload("alice/dev", "foo-1.0.tar.gz", "one");
    let (dev, prod) = (stage_name("alice/dev"), stage_name("alice/prod"));
    let push = order(&dev, &prod, PushContent::Everything);
    let (batch, _) = push::push(&world.snapshot, &push).expect("a push");
    let removal = remove::project(&world.snapshot, &dev, &project_name("foo"), false);
    commit(&mut world, removal);
    world.commit(batch.expect("a change")).expect_err("a conflict");
}

#[test]
fn a_pushs_body() {
    let source = stage_name("alice/dev");
    let parse = |json| {
        let order = PushOrder::parse(json, &source)?;
        Ok((order.name.clone(), order.version.clone(), order.content()?, order.target()?))
    };
    let parsed =
        parse(json!({"name": "Foo", "version": "1", "targetindex": "bob/x", "no_docs": true}));
    let target = PushTarget::Stage(stage_name("bob/x"));
    assert_eq!(parsed, Ok(("Foo".into(), "1".into(), PushContent::NoDocs, target)));
    let url = "https://upstream.example/";
    let external = |more: (&str, serde_json::Value)| {
        let mut order = json!({
            "name": "Foo", "version": "1", "posturl": url, "username": "u", "password": "p",
        });
        order[more.0] = more.1;
        let (_, _, content, target) = parse(order).expect("a push");
        (content, target)
    };
    let there = |register_project| PushTarget::External {
        url: url.into(),
        username: "u".into(),
        password: "p".into(),
        register_project,
    };
    for (key, value, content, registers) in [
        ("register_project", json!(true), PushContent::Everything, true),
        ("register_project", json!(""), PushContent::Everything, false),
        ("no_docs", json!(true), PushContent::NoDocs, false),
        ("only_docs", json!(1), PushContent::OnlyDocs, false),
        ("only_docs", json!([]), PushContent::Everything, false),
    ] {
        assert_eq!(external((key, value.clone())), (content, there(registers)), "{key} {value}");
    }
    let check = |json, text: &str| {
        let error: super::push::PushOrderError = parse(json).expect_err("a refusal");
        assert_eq!(error.to_string(), text);
    };
    check(json!({"name": "Foo"}), "there are no files for Foo  on stage alice/dev");
    check(
        json!({"name": "F", "version": "1", "targetindex": "b/x", "no_docs": true, "only_docs": true}),
        "can't use 'no_docs' and 'only_docs' together",
    );
    check(
        json!({"name": "F", "version": "1", "targetindex": "b", "y": 1, "x": 2}),
        "unknown additional options: x, y",
    );
    check(
        json!({"name": "F", "version": "1", "posturl": "https://h/", "x": 2}),
        "unknown additional options: x",
    );
    check(
        json!({"name": "F", "version": "1", "targetindex": "b"}),
        "targetindex not in format user/index",
    );
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
