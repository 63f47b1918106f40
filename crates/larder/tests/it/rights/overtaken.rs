//! A right that ends between the decision and the commit: the store refuses the write, and it is decided again.

use std::collections::BTreeSet;
use std::future::ready;

use account::change;
use account::{AuthMethod, Identity, Password, Principal, Scopes, TokenId};
use jiff::Timestamp;
use net::ClientAddress;
use operations::{Basis, Decided, Name, Operation, Refusal, Sender, carry_out_with};
use record::{Batch, Expected, Key};

use super::{Case, Role, World};
use crate::server::{commit, wait_for};

/// The proved sender.
fn proved(case: &Case<'_>, means: AuthMethod) -> Principal {
    let stored = case.world.stored();
    let user = stored.accounts.user(&case.name()).expect("the sender").clone();
    Principal::User(Identity { user, means, scopes: Scopes::ALL, limits: None })
}

/// A wish that no rule forbids.
struct Note(Option<Batch>);

impl Operation for Note {
    const NAME: Name = Name::ImportRecords;

    type Outcome = ();

    fn decide(&self, _: &Basis) -> Result<Decided<()>, Refusal> {
        Ok(Decided::new(self.0.clone(), ()))
    }
}

/// Another write that is committed meanwhile.
type Meanwhile = fn(&Case<'_>, TokenId) -> Batch;

/// Decides, and has `meanwhile` committed before the decision. The write is then decided again; `part` is in what that decision
/// finds.
#[track_caller]
fn check(world: &World, means: fn(TokenId) -> AuthMethod, meanwhile: Meanwhile, part: &str) {
    let case = world.case(Role::Administrator);
    let (token, _) = case.token(Scopes::ALL, None);
    let proved = proved(&case, means(token));
    let app = &world.server.app;
    let (address, path) = (ClientAddress::Unix, String::new());
    let sender = Sender::Client { proved, address, path };
    let mut decisions = Vec::new();
    let mut keeper = app.keeper();
    let deciding = carry_out_with(&mut keeper, &sender, |basis| {
        decisions.push(match basis.ended() {
            None => format!("in {} groups", basis.principal().groups().count()),
            Some(refusal) => refusal.to_string(),
        });
        if decisions.len() > 1 {
            return ready(Ok(Note(None)));
        }
        let batch = meanwhile(&case, token);
        // Another thread, for this one drives the decision.
        std::thread::scope(|scope| {
            scope.spawn(|| commit(&app.live_store, batch));
        });
        let key = Key::new("note/decided").expect("a key");
        let batch = Batch::new().put(key, Expected::Anything, "{}", Vec::new());
        ready(Ok(Note(Some(batch))))
    });
    let done = wait_for(deciding).expect("a decision");
    assert_eq!(done.serial, None, "nothing is written");
    assert_eq!((decisions.len(), decisions[0].as_str()), (2, "in 1 groups"));
    assert!(decisions[1].contains(part), "{}: {part}", decisions[1]);
}

fn revoked(case: &Case<'_>, id: TokenId) -> Batch {
    change::revoke_token(&case.world.stored().accounts, id).expect("a token")
}

fn disabled(case: &Case<'_>, _: TokenId) -> Batch {
    let (stored, now) = (case.world.stored(), Timestamp::now());
    let batch = change::set_disabled(&stored.accounts, &case.name(), true, now);
    batch.expect("a user").expect("a change")
}

fn changed(case: &Case<'_>, _: TokenId) -> Batch {
    let (stored, now) = (case.world.stored(), Timestamp::now());
    let hash = Some(Password::new("another").expect("a password").hash([1; 16]));
    let batch = change::set_password(&stored.accounts, &case.name(), hash, now);
    batch.expect("a user").expect("a change")
}

fn left(case: &Case<'_>, _: TokenId) -> Batch {
    let (stored, now) = (case.world.stored(), Timestamp::now());
    let none = BTreeSet::new();
    let batch = change::set_groups(&stored.accounts, &case.name(), none, now);
    batch.expect("a user").expect("a change")
}

fn deleted(case: &Case<'_>, _: TokenId) -> Batch {
    change::delete_user(&case.world.stored().accounts, &case.name()).expect("a user")
}

#[test]
fn what_a_right_rests_on_is_a_condition_of_the_commit() {
    let world = World::start();
    let by_token: fn(TokenId) -> AuthMethod = AuthMethod::Token;
    let by_password: fn(TokenId) -> AuthMethod = |_| AuthMethod::Password;
    let by_login: fn(TokenId) -> AuthMethod = |_| AuthMethod::Login { expires_at: Timestamp::MAX };
    let check = |means, meanwhile, part| check(&world, means, meanwhile, part);
    for means in [by_token, by_password, by_login] {
        check(means, left, "in 0 groups");
    }
    check(by_token, revoked, "is not known here");
    check(by_token, disabled, "is disabled");
    check(by_token, deleted, "is not known here");
    check(by_login, disabled, "is disabled");
    check(by_login, changed, "ended with their password");
    check(by_password, disabled, "could not be authenticated");
    check(by_password, changed, "could not be authenticated");
    check(by_password, deleted, "could not be authenticated");
}
