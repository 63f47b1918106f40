//! Password checks by several clients, on a runtime.

use std::task::{Context, Poll, Waker};

use account::{Credentials, Identification, Snapshot, User, change, identify};
use jiff::Timestamp;
use record::{Record, Serial};

use super::fair_queue::PER_CLIENT_MAX;
use super::*;

const BOUNDS: Bounds = Bounds { pair: 3, client: 8, account: 12 };

fn passwords(remembered_for: Duration, at_once: usize) -> Passwords {
    Passwords::new(remembered_for, at_once, BOUNDS, Counters::unregistered()).expect("random")
}

fn client(number: u32) -> ClientKey {
    ClientKey::Ipv4(number)
}

/// Alice and Bob, with cheap hashes of the password `right`.
fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::new();
    for name in ["alice", "bob"] {
        let user = User::new(name.parse().expect("a name"), Timestamp::UNIX_EPOCH);
        let hash = Password::new("right").expect("a password").cheap_hash([1; 16]);
        let batch = change::create_user(&snapshot, &User { password_hash: Some(hash), ..user });
        let records = batch.expect("a new user").writes.into_iter().map(|write| Record {
            key: write.key,
            serial: Serial(1),
            body: write.body,
            blobs: write.blobs,
        });
        snapshot = snapshot.apply(&records.collect::<Vec<_>>()).0;
    }
    snapshot
}

fn check_of(user: &str, password: &str) -> PasswordCheck {
    let credentials = Credentials::from_user_and_password(user, password).expect("credentials");
    match identify(&snapshot(), &credentials, Timestamp::now()) {
        Identification::NeedsPasswordCheck(check) => check,
        other => panic!("{other:?}"),
    }
}

/// Tries a password: `right`, `wrong`, or the bound that throttled it.
async fn tried(passwords: &Passwords, user: &str, password: &str, number: u32) -> &'static str {
    match passwords.check(check_of(user, password), client(number)).await {
        Ok(Ok(_)) => "right",
        Ok(Err(_)) => "wrong",
        Err(CheckRefused::TooMany) => "too many",
        Err(CheckRefused::Throttled { throttled, .. }) => throttled.by.name(),
    }
}

/// New passwords wait in the same queue as checks; when it is full, another one is refused.
#[test]
fn new_passwords_wait_in_the_queue() {
    let passwords = passwords(Duration::ZERO, 0);
    let hash = |number| {
        let password = Password::new("p").expect("a password");
        Box::pin(passwords.hash(password, [0; 16], client(number), Priority::Other))
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..PER_CLIENT_MAX).map(|_| hash(1)).collect();
    for waiting in &mut waiting {
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(hash(1).as_mut().poll(&mut context), Poll::Ready(Err(TooMany)));
    assert!(hash(2).as_mut().poll(&mut context).is_pending(), "somebody else has a place");
    waiting.pop();
    assert!(
        hash(1).as_mut().poll(&mut context).is_pending(),
        "a request that is dropped frees its place"
    );
    assert_eq!(passwords.hashed(), 0);
}

#[tokio::test]
async fn only_different_wrong_passwords_count() {
    let passwords = passwords(Duration::from_secs(60), 1);
    for _ in 0..20 {
        assert_eq!(tried(&passwords, "alice", "old", 1).await, "wrong");
    }
    assert_eq!(passwords.hashed(), 1, "it is known to be wrong");
    assert_eq!(tried(&passwords, "alice", "right", 1).await, "right");
    assert_eq!(tried(&passwords, "alice", "old", 1).await, "wrong");
}

#[tokio::test]
async fn a_guesser_is_throttled_and_nobody_else() {
    // Only Alice and Bob exist; the answers must be the same for everybody else.
    for user in ["alice", "nobody"] {
        let passwords = passwords(Duration::from_secs(60), 1);
        for password in ["1", "2", "3"] {
            assert_eq!(tried(&passwords, user, password, 1).await, "wrong");
        }
        assert_eq!(tried(&passwords, user, "4", 1).await, "client_and_account");
        assert_eq!(tried(&passwords, user, "right", 1).await, "client_and_account");
        assert_eq!(tried(&passwords, user, "1", 1).await, "wrong", "that is known, and no try");
        assert_eq!(passwords.hashed(), 3);
        assert_eq!(passwords.0.counters.wrong.get(), 3);
        assert_eq!(passwords.0.counters.throttled[0].get(), 2);
        assert_eq!(tried(&passwords, "bob", "right", 1).await, "right", "a neighbour");
        assert_eq!(tried(&passwords, "alice", "right", 2).await, "right", "from elsewhere");
        // The password is remembered as right now, but the guesser learns nothing about that.
        assert_eq!(tried(&passwords, user, "right", 1).await, "client_and_account");
    }
}

#[tokio::test]
async fn a_client_with_a_recent_right_password_passes() {
    for remembered_for in [Duration::from_secs(60), Duration::ZERO] {
        let passwords = passwords(remembered_for, 1);
        assert_eq!(tried(&passwords, "alice", "right", 1).await, "right");
        assert_eq!(tried(&passwords, "bob", "right", 1).await, "right");
        for number in 0..20 {
            tried(&passwords, "alice", &number.to_string(), 1).await;
            tried(&passwords, &format!("user-{number}"), "1", 1).await;
        }
        assert_eq!(tried(&passwords, "alice", "20", 1).await, "client_and_account");
        assert_eq!(tried(&passwords, "zoe", "1", 1).await, "client");
        assert_eq!(tried(&passwords, "alice", "right", 1).await, "right");
        assert_eq!(tried(&passwords, "bob", "right", 1).await, "right");
        // Guesses come from many clients: where she did not log in lately, her password is throttled; where she did,
        // it is not.
        for number in 10..40 {
            tried(&passwords, "alice", &number.to_string(), number).await;
        }
        assert_eq!(tried(&passwords, "alice", "50", 50).await, "account");
        assert_eq!(tried(&passwords, "alice", "right", 1).await, "right");
        assert_eq!(tried(&passwords, "bob", "right", 50).await, "right");
    }
}

/// Many clients that send the same right password for the first time are not guessers, and cost one hash.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_password_at_the_same_time_is_hashed_once() {
    let passwords = Arc::new(passwords(Duration::from_secs(60), 1));
    let crowd = (0..200).map(|number| {
        let passwords = passwords.clone();
        tokio::spawn(async move { tried(&passwords, "alice", "right", number % 20).await })
    });
    for one in crowd.collect::<Vec<_>>() {
        assert_eq!(one.await.expect("no panic"), "right");
    }
    assert_eq!(passwords.hashed(), 1);
    assert_eq!(tried(&passwords, "alice", "wrong", 1).await, "wrong", "nothing was used up");
}

#[tokio::test]
async fn an_aborted_check_counts_as_a_try() {
    let passwords = passwords(Duration::ZERO, 0);
    let mut context = Context::from_waker(Waker::noop());
    for number in 0..BOUNDS.pair {
        let check = passwords.check(check_of("alice", &number.to_string()), client(1));
        assert!(Box::pin(check).as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(tried(&passwords, "alice", "next", 1).await, "client_and_account");
}

#[tokio::test]
async fn keys_are_throttled_like_passwords() {
    let passwords = passwords(Duration::ZERO, 1);
    let tried =
        |given: &[u8], number| match passwords
            .check_key("admin key", given, client(number), || given == b"key")
        {
            Ok(is_right) => is_right.to_string(),
            Err(CheckRefused::Throttled { throttled, .. }) => throttled.by.name().to_owned(),
            Err(CheckRefused::TooMany) => "too many".to_owned(),
        };
    assert_eq!(tried(b"key", 2), "true");
    for given in [b"1", b"2", b"3"] {
        assert_eq!(tried(given, 1), "false");
        assert_eq!(tried(given, 2), "false");
    }
    assert_eq!(tried(b"1", 1), "false", "known to be wrong");
    assert_eq!(tried(b"4", 1), "client_and_account");
    assert_eq!(tried(b"key", 1), "client_and_account");
    assert_eq!(tried(b"key", 2), "true", "it was right here lately");
    assert_eq!(tried(b"key", 3), "true");
}
