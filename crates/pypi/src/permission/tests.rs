//! The rights of a limited token for stages, above all for reading through bases.

use std::sync::Arc;

use account::{AuthMethod, Identity, Limits, Portion, Principal, Scopes, User};
use serde_json::json;

use crate::ResolutionOrder;
use crate::testing::{World, now, user_name};

/// The user alice, by a token that is limited to these indexes and projects.
fn alice(indexes: &[&str], projects: &[&str]) -> Principal {
    let indexes = indexes.iter().map(|index| index.parse().expect("an index")).collect();
    let projects = projects.iter().map(|project| (*project).to_owned()).collect();
    Principal::User(Identity {
        user: Arc::new(User::new(user_name("alice"), now())),
        means: AuthMethod::Token("0123456789ab".parse().expect("an id")),
        scopes: Scopes::ALL,
        limits: Limits::new(indexes, projects, Default::default()).map(Arc::new),
    })
}

/// `alice/dev` has `alice/base`, which has foo and bar, for a base; only alice may read them.
fn world() -> World {
    let mut world = World::new();
    for name in ["alice/base", "alice/other"] {
        world.create(name, json!({"acl_read": "alice"}));
    }
    world.create("alice/dev", json!({"acl_read": "alice", "bases": "alice/base"}));
    world.create("bob/dev", json!({"acl_read": "bob", "bases": "alice/base"}));
    world.upload("alice/base", "foo-1.0.zip", "1").upload("alice/base", "bar-1.0.zip", "2");
    world.upload("alice/other", "baz-1.0.zip", "3");
    world
}

const WHOLE: Portion<'_> = Portion::Whole;
const FOO: Portion<'_> = Portion::Project("foo");

/// Whether the pages of a stage can be read, and files that are stored in it.
#[track_caller]
fn check(principal: &Principal, stage: &str, portion: Portion<'_>, expected: [bool; 2]) {
    let world = world();
    let order = ResolutionOrder::of(&world.snapshot, stage).expect("a stage");
    let own = world.snapshot.stage(stage).expect("a stage");
    let files = own.may_read_file(&world.snapshot, principal, portion);
    assert_eq!([order.admits(principal, portion), files], expected, "{stage} {portion:?}");
}

#[test]
fn what_a_stage_shows_of_its_bases_is_read_through_it() {
    let dev = alice(&["alice/dev"], &[]);
    check(&dev, "alice/dev", WHOLE, [true, true]);
    check(&dev, "alice/dev", FOO, [true, true]);
    check(&dev, "alice/base", WHOLE, [false, true]);
    // The page of the base is not read, the file that the page of the stage leads to is.
    check(&dev, "alice/base", FOO, [false, true]);
    check(&dev, "alice/base", Portion::Project("none"), [false, false]);
    check(&dev, "alice/other", Portion::Project("baz"), [false, false]);
    // A base is no way in for a token that may not read the other stage.
    check(&alice(&["bob/dev"], &[]), "alice/base", FOO, [false, false]);
    check(&alice(&["bob/dev"], &[]), "bob/dev", FOO, [false, false]);
    check(&alice(&["alice/*"], &[]), "alice/other", WHOLE, [true, true]);
    check(&alice(&["alice/base"], &[]), "alice/dev", FOO, [false, false]);
}

#[test]
fn a_project_is_read_without_the_others() {
    for indexes in [&["alice/dev"][..], &[]] {
        let foo = alice(indexes, &["foo"]);
        check(&foo, "alice/dev", FOO, [true, true]);
        check(&foo, "alice/dev", Portion::Project("bar"), [false, false]);
        check(&foo, "alice/dev", WHOLE, [false, false]);
        let is_everywhere = indexes.is_empty();
        check(&foo, "alice/base", FOO, [is_everywhere, true]);
        check(&foo, "alice/base", Portion::Project("bar"), [false, false]);
    }
}

#[test]
fn a_project_is_changed_without_the_others() {
    let mut world = world();
    world.modify("alice/other", json!(["volatile=True"]));
    let may = |principal: &Principal, stage: &str, portion| {
        let stage = world.snapshot.stage(stage).expect("a stage");
        [
            stage.may_upload(principal, portion),
            stage.may_replace(principal, portion),
            stage.may_upload_tox_results(principal, portion),
            stage.may_remove(principal, portion),
            stage.may_modify(principal),
        ]
    };
    let foo = alice(&["alice/dev"], &["foo"]);
    assert_eq!(may(&foo, "alice/dev", FOO), [true, true, true, true, false]);
    for (stage, portion) in
        [("alice/dev", WHOLE), ("alice/dev", Portion::Project("bar")), ("alice/other", FOO)]
    {
        assert_eq!(may(&foo, stage, portion), [false; 5], "{stage} {portion:?}");
    }
    let dev = alice(&["alice/dev"], &[]);
    assert_eq!(may(&dev, "alice/dev", WHOLE), [true; 5]);
    assert_eq!(may(&dev, "alice/other", WHOLE), [false; 5]);
    assert_eq!(may(&alice(&[], &[]), "alice/other", WHOLE), [true; 5]);
}
