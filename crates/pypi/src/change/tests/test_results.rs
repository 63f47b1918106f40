//! Results of test runs: beside their file, bounded, and with their history.

use account::UserName;

use super::super::upload::ToxUpload;
use super::*;

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
pub(super) fn test(
    world: &mut World,
    filename: &str,
    content: &str,
) -> Result<String, ChangeError> {
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
