//! Uploads: what they write, what they replace, and which of two concurrent ones wins.

use record::{Expected, Key};

use super::*;

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
    let test = |world: &World| world.tox_result("alice/prod", "one", "foo-1.0.tar.gz");
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
