//! Changes of users and tokens: what each writes, and which are refused.

use record::{KeyState, Record};

use super::*;
use crate::testing::{at, limits as limits_of, name, user};
use crate::{Field, Password};

/// A store of one thread: a batch is written if it finds what it expects.
#[derive(Clone, Default)]
struct Store {
    snapshot: Snapshot,
    written: std::collections::BTreeMap<record::Key, KeyState>,
    serial: Serial,
}

impl Store {
    fn with(users: &[User]) -> Store {
        let mut store = Store::default();
        for user in users {
            let batch = create_user(&store.snapshot, user).expect("a new user");
            store.commit(batch).expect("a commit");
        }
        store
    }

    /// Its outcome, as text.
    fn commit(&mut self, batch: Batch) -> Result<(), String> {
        let never = KeyState { serial: Serial::ZERO, is_present: false };
        let writes = batch.writes.iter().map(|write| (&write.key, write.expected));
        for (key, expected) in writes.chain(batch.checks.iter().map(|(key, it)| (key, *it))) {
            let found = self.written.get(key).copied().unwrap_or(never);
            if !expected.holds(found) {
                return Err(format!("{key} is {found}"));
            }
        }
        assert_eq!(batch.key_written_twice(), None);
        self.serial = self.serial.next();
        let serial = self.serial;
        let records = batch.writes.into_iter().map(|write| {
            let found = KeyState { serial, is_present: write.body.is_some() };
            self.written.insert(write.key.clone(), found);
            Record { key: write.key, serial, body: write.body, blobs: write.blobs }
        });
        let (next, troubles) = self.snapshot.apply(&records.collect::<Vec<_>>());
        assert_eq!(troubles, []);
        self.snapshot = next;
        let rescued: Vec<Record> = self.snapshot.records().collect();
        assert_eq!(Snapshot::new().apply(&rescued), (self.snapshot.clone(), Vec::new()));
        Ok(())
    }

    fn user(&self, text: &str) -> User {
        User::clone(self.snapshot.user(&name(text)).expect("a user"))
    }
}

fn new_token(owner: &str) -> NewToken {
    let scopes = "python:upload".parse().expect("scopes");
    NewToken { user: name(owner), comment: "ci".into(), scopes, limits: None, expires_at: None }
}

fn create(store: &Store, new: NewToken, secret: u8) -> Result<(TokenText, Batch), String> {
    create_token(&store.snapshot, new, [secret; 32], at(5), Some(at(5)))
        .map(|(text, _, batch)| (text, batch))
        .map_err(|error| error.to_string())
}

#[test]
fn a_user_is_made_once() {
    let alice = user("alice", &["team"]);
    let store = Store::with(std::slice::from_ref(&alice));
    assert_eq!(store.user("alice"), User { serial: Serial(1), ..alice.clone() });
    assert_eq!(create_user(&store.snapshot, &alice), Err(CreateUserError::Exists));
    let error = create_user(&store.snapshot, &user("rpc", &[])).expect_err("reserved");
    assert_eq!(error.to_string(), "username 'rpc' is reserved: the server answers at /rpc itself");
}

#[test]
fn two_who_make_one_user_do_not_both() {
    let mut store = Store::default();
    let first = create_user(&store.snapshot, &user("alice", &[])).expect("a batch");
    let second = create_user(&store.snapshot, &user("alice", &["x"])).expect("a batch");
    assert_eq!(store.commit(first), Ok(()));
    assert_eq!(store.commit(second), Err("user/alice is present at serial 1".into()));
}

#[test]
fn the_first_administrator_is_root() {
    let mut store = Store::default();
    let empty = Password::new_or_empty("").expect("a password");
    let hash = empty.hash([0; 16]);
    let make = |store: &Store| create_first_administrator(&store.snapshot, hash.clone(), at(0));
    store.commit(make(&store).expect("a batch")).expect("a commit");
    assert!(store.user("root").is_administrator());
    assert!(store.user("root").password_hash.expect("a hash").verify(&empty));
    assert_eq!(make(&store), Err(CreateUserError::Exists));
}

#[test]
fn a_change_is_written_with_its_time() {
    let mut store = Store::with(&[user("alice", &[])]);
    let profile = ProfileEdit { title: Field::Set("T".into()), ..ProfileEdit::default() };
    let alice = name("alice");
    let modify = |store: &Store| {
        modify_user(&store.snapshot, &alice, &profile, Some(PasswordHash::dummy()), at(3))
    };
    let batch = modify(&store).expect("a user").expect("a change");
    let late = set_disabled(&store.snapshot, &alice, true, at(4)).expect("a user");
    store.commit(batch).expect("a commit");
    let found = store.user("alice");
    assert_eq!(found.title.as_deref(), Some("T"));
    assert_eq!(found.password_hash, Some(PasswordHash::dummy()));
    assert_eq!((found.created_at, found.modified_at), (at(0), Some(at(3))));
    assert_eq!(modify(&store), Ok(None));
    let late = store.commit(late.expect("a change"));
    assert_eq!(late, Err("user/alice is present at serial 2".into()));
}

#[test]
fn groups_state_and_password_are_set() {
    let mut store = Store::with(&[user("alice", &["a", "b"])]);
    let alice = name("alice");
    let groups = BTreeSet::from([GroupName::admin()]);
    let batch = set_groups(&store.snapshot, &alice, groups.clone(), at(1));
    store.commit(batch.expect("a user").expect("a change")).expect("a commit");
    let batch = set_disabled(&store.snapshot, &alice, true, at(2));
    store.commit(batch.expect("a user").expect("a change")).expect("a commit");
    let batch = set_password(&store.snapshot, &alice, Some(PasswordHash::dummy()), at(3));
    store.commit(batch.expect("a user").expect("a change")).expect("a commit");
    let found = store.user("alice");
    assert_eq!((found.groups, found.is_disabled), (groups, true));
    assert!(found.password_hash.is_some());
    let batch = set_password(&store.snapshot, &alice, None, at(4));
    store.commit(batch.expect("a user").expect("a change")).expect("a commit");
    assert_eq!(store.user("alice").password_hash, None);
    let nobody = set_groups(&store.snapshot, &name("bob"), BTreeSet::new(), at(5));
    assert_eq!(nobody.expect_err("nobody").to_string(), "user 'bob' does not exist");
}

#[test]
fn a_user_goes_with_their_tokens() {
    let mut store = Store::with(&[user("alice", &[]), user("bob", &[])]);
    for (owner, secret) in [("alice", 1), ("alice", 2), ("bob", 3)] {
        let (_, batch) = create(&store, new_token(owner), secret).expect("a token");
        store.commit(batch).expect("a commit");
    }
    let (_, late) = create(&store, new_token("alice"), 4).expect("a token");
    let batch = delete_user(&store.snapshot, &name("alice")).expect("a batch");
    store.commit(batch).expect("a commit");
    assert_eq!(store.snapshot.user(&name("alice")), None);
    assert_eq!(store.snapshot.tokens().len(), 1);
    assert_eq!(store.commit(late), Err("user/alice is absent at serial 6".into()));
    let again = delete_user(&store.snapshot, &name("alice"));
    assert_eq!(again.expect_err("gone").to_string(), "user 'alice' does not exist");
    assert_eq!(delete_user(&store.snapshot, &name("root")), Err(DeleteUserError::Root));
    let alice = User { created_at: at(9), ..user("alice", &[]) };
    let batch = create_user(&store.snapshot, &alice).expect("the name is free again");
    assert_eq!(store.commit(batch), Ok(()));
}

#[test]
fn a_token_is_made_and_revoked() {
    let mut store = Store::with(&[user("alice", &[])]);
    let (text, batch) = create(&store, new_token("alice"), 1).expect("a token");
    let stored = batch.writes[0].body.clone().expect("a body");
    let secret = "01".repeat(32);
    assert!(text.reveal().ends_with(&secret));
    assert!(!String::from_utf8_lossy(&stored).contains(&secret), "only the digest is stored");
    store.commit(batch).expect("a commit");
    let token = store.snapshot.token_by_text(&text).expect("the token");
    assert_eq!((token.serial, token.created_at), (Serial(2), at(5)));
    let taken = format!("the token id '{}' is taken", text.id());
    assert_eq!(create(&store, new_token("alice"), 1), Err(taken));
    let batch = revoke_token(&store.snapshot, text.id()).expect("a batch");
    store.commit(batch).expect("a commit");
    assert_eq!(store.snapshot.token_by_text(&text), None);
    assert_eq!(revoke_token(&store.snapshot, text.id()), Err(NoToken(text.id())));
}

#[test]
fn a_new_token_clears_dead_ones_away() {
    let mut store = Store::with(&[user("alice", &[]), user("bob", &[])]);
    let brief = |second| NewToken { expires_at: Some(at(second)), ..new_token("alice") };
    let news = [brief(10), brief(9), new_token("alice"), new_token("bob")];
    let batches =
        (1..).zip(news).map(|(secret, new)| create(&store, new, secret).expect("a token").1);
    for batch in batches.collect::<Vec<_>>() {
        store.commit(batch).expect("a commit");
    }
    let make_and_forget = |store: &mut Store, owner: &str, secret: u8, second, forget_before| {
        let new = new_token(owner);
        let made = create_token(&store.snapshot, new, [secret; 32], at(second), forget_before);
        let (_, _, batch) = made.expect("a token");
        store.commit(batch).expect("a commit");
        store.snapshot.tokens_of(&name(owner)).len()
    };
    let make = |store: &mut Store, owner: &str, secret: u8, second: i64| {
        make_and_forget(store, owner, secret, second, Some(at(second)))
    };
    // Not by a clock that may be wrong, and not at once.
    let mut other = store.clone();
    assert_eq!(make_and_forget(&mut other, "alice", 11, 99, None), 4);
    assert_eq!(make_and_forget(&mut other, "alice", 12, 99, Some(at(8))), 5);
    assert_eq!(make_and_forget(&mut other, "alice", 13, 99, Some(at(9))), 5);
    assert_eq!(make(&mut store, "alice", 5, 8), 4);
    assert_eq!(make(&mut store, "alice", 6, 9), 4);
    assert_eq!(make(&mut store, "alice", 7, 10), 4);
    // bob is deleted and made again while his token is made.
    let bob = User { created_at: at(8), ..user("bob", &[]) };
    let written =
        Batch::new().put(user_key(&bob.name), Expected::Present, write_user(&bob), Vec::new());
    store.commit(written).expect("a commit");
    assert_eq!(make(&mut store, "bob", 8, 10), 1);
}

#[test]
fn the_last_use_of_a_token_is_noted_to_the_day() {
    let mut store = Store::with(&[user("alice", &[])]);
    let (token, batch) = create(&store, new_token("alice"), 1).expect("a token");
    store.commit(batch).expect("a commit");
    let (id, day) = (token.id(), 24 * 60 * 60);
    let note = |store: &mut Store, second: i64| {
        let batch = note_token_uses(&store.snapshot, [(id, at(second))]);
        if let Some(batch) = batch {
            store.commit(batch).expect("a commit");
        }
        store.snapshot.token_used_at(id)
    };
    assert_eq!(store.snapshot.token_used_at(id), None);
    assert_eq!(note(&mut store, 10), Some(at(10)));
    assert_eq!(note(&mut store, 10 + day), Some(at(10)), "not again within a day");
    assert_eq!(note(&mut store, 9), Some(at(10)), "nor an earlier one");
    assert_eq!(note(&mut store, 11 + day), Some(at(11 + day)));
    let records: Vec<_> = store.snapshot.records().collect();
    assert_eq!(Snapshot::new().apply(&records).0.token_used_at(id), Some(at(11 + day)));

    let revoked = revoke_token(&store.snapshot, id).expect("the token");
    let late = note_token_uses(&store.snapshot, [(id, at(12 + 2 * day))]).expect("a use");
    store.commit(revoked).expect("a commit");
    assert_eq!(store.snapshot.token_used_at(id), None, "its use goes with it");
    assert!(store.commit(late).is_err(), "and no use of a token that is gone is noted");
    assert_eq!(note(&mut store, 13 + 2 * day), None);
}

#[test]
fn a_user_has_so_many_living_tokens() {
    let mut store = Store::with(&[user("alice", &[])]);
    let make = |store: &mut Store, number: usize, expires_at, second| {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&number.to_be_bytes());
        let new = NewToken { expires_at, ..new_token("alice") };
        let now = at(second);
        let (_, _, batch) = create_token(&store.snapshot, new, secret, now, Some(now))
            .map_err(|error| error.to_string())?;
        store.commit(batch)
    };
    for number in 0..TOKENS_PER_USER_MAX {
        let expires_at = (number == 0).then(|| at(20));
        assert_eq!(make(&mut store, number, expires_at, 10), Ok(()));
    }
    let full = "user 'alice' has 1000 tokens, and may not have more: revoke some";
    assert_eq!(make(&mut store, 1_000, None, 19), Err(full.into()));
    assert_eq!(make(&mut store, 1_000, None, 20), Ok(()));
    assert_eq!(make(&mut store, 1_001, None, 20), Err(full.into()));
    assert_eq!(store.snapshot.tokens().len(), TOKENS_PER_USER_MAX);
}

#[test]
fn a_token_that_makes_no_sense_is_not_made() {
    let disabled = User { is_disabled: true, ..user("dora", &[]) };
    let store = Store::with(&[user("alice", &[]), disabled]);
    let alices = || new_token("alice");
    let check = |new: NewToken, error: &str| {
        assert_eq!(create(&store, new, 1).map(|_| ()), Err(error.to_owned()));
    };
    check(new_token("bob"), "user 'bob' does not exist");
    check(new_token("dora"), "user 'dora' is disabled");
    let none = NewToken { scopes: Scopes::NONE, ..alices() };
    let limited = |limits: &str, scopes: &str| NewToken {
        scopes: scopes.parse().expect("scopes"),
        limits: limits_of(limits),
        ..alices()
    };
    check(
        limited("index=team/dev", "python:upload,user:admin"),
        "the scope `user:admin` is of no use to a token that is limited to team/dev",
    );
    check(
        limited("prefix=docs", "python:read"),
        "the scope `python:read` is of no use to a token that is limited to articles below `/docs/`",
    );
    let many: String = (0..101).map(|number| format!("project=p{number} ")).collect();
    let too_many =
        "a token is limited to at most 100 indexes, projects and prefixes each, not to 101";
    check(limited(&many, "python:read"), too_many);
    assert!(
        create(&store, limited("project=foo prefix=docs", "python:upload,article:read"), 1).is_ok()
    );
    assert!(create(&store, limited("prefix=docs", "*"), 1).is_ok());
    check(none, "a token needs a scope: none was given");
    let expired = format!("a token that expires at {0} would be expired now, at {0}", at(5));
    check(NewToken { expires_at: Some(at(5)), ..alices() }, &expired);
    let lines = NewToken { comment: "a\nb".into(), ..alices() };
    check(lines, "the comment of a token is one line of text: `a\\nb` is not");
    let long = NewToken { comment: "x".repeat(257), ..alices() };
    check(long, "a comment of 257 bytes is too long: at most 256 were expected");
}

#[test]
fn the_login_secret_is_made_once() {
    let mut store = Store::default();
    let first = create_login_secret(&store.snapshot, [1; 32]).expect("a batch");
    let second = create_login_secret(&store.snapshot, [2; 32]).expect("a batch");
    store.commit(first).expect("a commit");
    assert_eq!(store.commit(second), Err("secret/login is present at serial 1".into()));
    assert_eq!(store.snapshot.login_secret(), Some(&LoginSecret::new([1; 32])));
    assert_eq!(create_login_secret(&store.snapshot, [3; 32]), None);
}
