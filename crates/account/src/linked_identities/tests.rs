//! Log-ins with identities of a provider: who is made, who is found, who is refused.

use record::Record;

use super::*;
use crate::change::{delete_user, set_disabled, set_groups};
use crate::testing::{at, name, snapshot_of, user};
use crate::{PasswordHash, identify_session};

const HOUR: Duration = Duration::from_secs(3_600);

fn group(text: &str) -> GroupName {
    text.parse().expect("a group")
}

fn proved(subject: &str, called: &str, groups: &[&str], not_groups: &[&str]) -> ProvedIdentity {
    ProvedIdentity {
        issuer: "https://id.example".to_owned(),
        subject: subject.to_owned(),
        name: Ok(name(called)),
        email: None,
        groups: groups.iter().copied().map(group).collect(),
        not_groups: not_groups.iter().copied().map(group).collect(),
    }
}

fn applied(snapshot: &Snapshot, serial: u64, batch: Batch) -> Snapshot {
    let records = batch.writes.into_iter().map(|it| Record {
        key: it.key,
        serial: Serial(serial),
        body: it.body,
        blobs: it.blobs,
    });
    let (next, troubles) = snapshot.apply(&records.collect::<Vec<_>>());
    assert_eq!(troubles, []);
    let rescued: Vec<Record> = next.records().collect();
    assert_eq!(Snapshot::new().apply(&rescued), (next.clone(), Vec::new()));
    next
}

fn log_in(
    snapshot: &Snapshot,
    proved: &ProvedIdentity,
    makes_users: bool,
) -> Result<(LinkedLogIn, Snapshot), LinkedLogInError> {
    let (now, secret) = ((at(10), None), [7; 32]);
    let (done, batch) = log_in_linked(snapshot, (proved, makes_users), secret, None, now, HOUR)?;
    let next = applied(snapshot, 20, batch);
    assert!(identify_session(&next, &done.session, at(11)).is_ok());
    Ok((done, next))
}

fn groups(snapshot: &Snapshot, called: &str) -> Vec<String> {
    let user = snapshot.user(&name(called)).expect(called);
    user.groups.iter().map(ToString::to_string).collect()
}

#[test]
fn a_user_is_made_once_and_found_by_the_subject() {
    let alice = proved("7", "alice", &[], &[]);
    assert_eq!(log_in(&Snapshot::new(), &alice, false), Err(LinkedLogInError::NotLinked));
    let (first, snapshot) = log_in(&Snapshot::new(), &alice, true).expect("a user");
    assert!(first.is_new);
    // The name may change at the provider; the subject is who they are.
    let renamed = ProvedIdentity { name: Err("no name".to_owned()), ..alice.clone() };
    let (again, _) = log_in(&snapshot, &renamed, false).expect("the same user");
    assert_eq!((again.is_new, again.session.user()), (false, &name("alice")));
    // Somebody else of that name is somebody else, and so is the subject at another issuer.
    let taken = Err(LinkedLogInError::NameTaken(name("alice")));
    assert_eq!(log_in(&snapshot, &proved("8", "alice", &[], &[]), true), taken);
    let elsewhere = ProvedIdentity { issuer: "https://other.example".to_owned(), ..alice };
    assert_eq!(log_in(&snapshot, &elsewhere, true), taken);
}

#[test]
fn no_account_is_taken_over() {
    let snapshot = snapshot_of(&[user("alice", &["admin"])]);
    for (called, why) in [
        ("alice", LinkedLogInError::NameTaken(name("alice"))),
        ("root", LinkedLogInError::Reserved(name("root"))),
        ("rpc", LinkedLogInError::Reserved(name("rpc"))),
    ] {
        assert_eq!(log_in(&snapshot, &proved("7", called, &[], &[]), true), Err(why));
    }
    let nameless = ProvedIdentity { name: Err("it is 7".to_owned()), ..proved("7", "x", &[], &[]) };
    let no_name = Err(LinkedLogInError::NoName("it is 7".to_owned()));
    assert_eq!(log_in(&snapshot, &nameless, true), no_name);
}

#[test]
fn mapped_groups_follow_the_provider_and_others_stay() {
    let (_, snapshot) =
        log_in(&Snapshot::new(), &proved("7", "alice", &["dev"], &["ops"]), true).expect("alice");
    assert_eq!(groups(&snapshot, "alice"), ["dev"]);
    let own = BTreeSet::from([group("dev"), group("ops"), group("own")]);
    let batch = set_groups(&snapshot, &name("alice"), own, at(1)).expect("alice");
    let snapshot = applied(&snapshot, 30, batch.expect("a change"));
    let (_, snapshot) =
        log_in(&snapshot, &proved("7", "alice", &["ops"], &["dev"]), false).expect("alice");
    assert_eq!(groups(&snapshot, "alice"), ["ops", "own"]);
    let (_, snapshot) =
        log_in(&snapshot, &proved("7", "alice", &[], &["dev", "ops"]), false).expect("alice");
    assert_eq!(groups(&snapshot, "alice"), ["own"]);
}

#[test]
fn a_disabled_user_is_refused_and_a_deleted_one_is_made_anew() {
    let alice = proved("7", "alice", &[], &[]);
    let (_, snapshot) = log_in(&Snapshot::new(), &alice, true).expect("alice");
    let off = set_disabled(&snapshot, &name("alice"), true, at(11)).expect("alice");
    let off = applied(&snapshot, 30, off.expect("a change"));
    assert_eq!(log_in(&off, &alice, true), Err(LinkedLogInError::Disabled(name("alice"))));
    let gone = applied(&snapshot, 30, delete_user(&snapshot, &name("alice")).expect("alice"));
    assert_eq!(gone.linked_of(&name("alice")).count(), 0);
    assert_eq!(log_in(&gone, &alice, false), Err(LinkedLogInError::NotLinked));
    assert!(log_in(&gone, &alice, true).expect("alice").0.is_new);
    // A link that stayed behind belongs to nobody.
    let records: Vec<Record> = snapshot.records().collect();
    let left: Vec<Record> =
        records.into_iter().filter(|it| it.key.as_str().starts_with("identity/")).collect();
    let (left, _) = snapshot_of(&[user("alice", &[])]).apply(&left);
    assert_eq!(log_in(&left, &alice, true), Err(LinkedLogInError::NameTaken(name("alice"))));
}

#[test]
fn a_user_links_an_identity_that_is_nobody_elses() {
    let snapshot = snapshot_of(&[user("alice", &[]), user("bob", &[])]);
    let identity = proved("7", "alice", &["dev"], &[]);
    let alice = snapshot.user(&name("alice")).expect("alice");
    let bob = snapshot.user(&name("bob")).expect("bob");
    let batch = link(&snapshot, alice, &identity, at(1)).expect("free").expect("a change");
    let linked = applied(&snapshot, 10, batch);
    assert_eq!(link(&linked, alice, &identity, at(2)), Ok(None));
    assert_eq!(link(&linked, bob, &identity, at(2)), Err(LinkError::Taken));
    let (done, _) = log_in(&linked, &identity, false).expect("alice");
    assert_eq!(done.session.user(), &name("alice"));
    let digest = identity.digest();
    let of = |called: &str| linked.user(&name(called)).expect("a user");
    assert_eq!(unlink(&linked, of("bob"), &digest), Ok(None));
    // Without a password it would be the last way in.
    assert_eq!(unlink(&linked, of("alice"), &digest), Err(LastLink));
    let with_password =
        User { password_hash: Some(PasswordHash::dummy()), ..User::clone(of("alice")) };
    let batch = unlink(&linked, &with_password, &digest).expect("another way").expect("a link");
    let unlinked = applied(&linked, 30, batch);
    assert_eq!(log_in(&unlinked, &identity, false), Err(LinkedLogInError::NotLinked));
    let mut full = snapshot.clone();
    for number in 0..LINKED_PER_USER_MAX {
        let identity = proved(&number.to_string(), "alice", &[], &[]);
        let batch = link(&full, alice, &identity, at(1)).expect("room").expect("a change");
        full = applied(&full, 40, batch);
    }
    let refused = link(&full, alice, &proved("x", "alice", &[], &[]), at(1));
    assert_eq!(refused, Err(LinkError::TooMany(name("alice"))));
}
