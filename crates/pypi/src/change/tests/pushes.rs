//! Pushes: what comes along, what is refused, and what the body of a push may say.

use super::super::push::{PushOrder, PushTarget};
use super::test_results::test;
use super::*;

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
    (release.yanked().map(str::to_owned), release.metadata)
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
    let removal = remove::project(
        &world.snapshot,
        &dev,
        &project_name("foo"),
        RemovalExtent::Contents,
        false,
    );
    commit(&mut world, removal);
    world.commit(batch.expect("a change")).expect_err("a conflict");
}

#[test]
fn a_pushs_body() {
    let source = stage_name("alice/dev");
    let parse = |json| {
        let order = PushOrder::parse(json, &source)?;
        Ok((order.name, order.version, order.content?, order.target?))
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
