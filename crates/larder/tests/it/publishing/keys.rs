//! Issuers that are slow, down, or wrong, and what that costs others.

use serde_json::json;

use super::issuer::{FakeIssuer, Key};
use super::{NOT_NAMED, World, refused};
use crate::wait_until;

fn fetches(issuer: &FakeIssuer) -> usize {
    issuer.requests().iter().filter(|path| *path == "/keys").count()
}

/// Keys are fetched when a token needs them, once for all who wait, and kept.
#[test]
fn keys_are_fetched_once() {
    let world = World::start();
    assert_eq!(world.issuer.requests(), Vec::<String>::new(), "nobody has asked yet");
    world.issuer.hold(true);
    std::thread::scope(|scope| {
        let minting: Vec<_> =
            (0..8).map(|_| scope.spawn(|| world.mint(&world.token(&json!({}))).status)).collect();
        wait_until("the server to ask", || !world.issuer.requests().is_empty());
        // Others are answered meanwhile.
        world.server.get("/team/dev/+simple/").expect(200);
        world.server.get("/_/oidc/audience").expect(200);
        world.issuer.hold(false);
        for thread in minting {
            assert_eq!(thread.join().expect("an answer"), 200);
        }
    });
    assert_eq!(world.issuer.requests(), ["/.well-known/openid-configuration", "/keys"]);
}

/// A slow issuer: those who show its tokens get 503 in time, and nobody else notices.
#[test]
fn a_slow_issuer_holds_up_nobody() {
    let (key, other_key) = (Key::ec(), Key::ec());
    let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
    let other = FakeIssuer::with_keys(json!([other_key.public("k1")]));
    let named = format!("generic {}", other.url).parse().expect("an issuer");
    let world = World::of(issuer, key, |config| config.publishing.issuers.push(named));
    world.issuer.hold(true);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.mint(&world.token(&json!({}))));
        wait_until("the server to ask", || !world.issuer.requests().is_empty());
        let claims = world.issuer.claims(&json!({"iss": other.url}));
        let token = other_key.token(&json!({"alg": "ES256", "kid": "k1"}), &claims);
        refused(&world.mint(&token), 422, "invalid-publisher", NOT_NAMED);
        let answer = slow.join().expect("an answer");
        refused(
            &answer,
            503,
            "unavailable",
            "the keys of the issuer http://127.0.0.1:PORT cannot be fetched now",
        );
        assert!(!answer.header("retry-after").is_empty());
    });
    assert_eq!(world.metric("unavailable"), 1.0);
    world.issuer.hold(false);
    wait_until("the issuer to be asked again", || {
        world.mint(&world.token(&json!({}))).status == 200
    });
}

/// What an issuer may not send.
#[test]
fn answers_that_are_refused() {
    let key = Key::ec();
    let check = |script: &dyn Fn(&FakeIssuer)| {
        let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
        script(&issuer);
        let world = World::of(issuer, Key::ec(), |_| ());
        let token = world.token(&json!({}));
        refused(
            &world.mint(&token),
            503,
            "unavailable",
            "the keys of the issuer http://127.0.0.1:PORT cannot be fetched now",
        );
        let asked = world.issuer.requests().len();
        refused(
            &world.mint(&token),
            503,
            "unavailable",
            "the keys of the issuer http://127.0.0.1:PORT cannot be fetched now",
        );
        assert_eq!(world.issuer.requests().len(), asked, "it is left alone for some seconds");
        assert!(!world.issuer.requests().contains(&"/elsewhere".to_owned()));
    };
    let discovery = "/.well-known/openid-configuration";
    check(&|issuer| issuer.serve_status(discovery, "500 Internal Server Error"));
    check(&|issuer| issuer.serve_status(discovery, "302 Found"));
    check(&|issuer| issuer.serve_status("/keys", "302 Found"));
    check(&|issuer| issuer.serve_bytes(discovery, b"<html>".to_vec()));
    check(&|issuer| issuer.serve_bytes(discovery, vec![b' '; 70_000]));
    check(&|issuer| issuer.serve_bytes("/keys", vec![b' '; 300_000]));
    check(&|issuer| issuer.serve_bytes("/keys", b"{".to_vec()));
    check(&|issuer| issuer.serve("/keys", json!({"keys": vec![key.public("x"); 101]})));
    check(&|issuer| issuer.serve("/keys", json!({"keys": [key.public("x"), key.public("x")]})));
    check(&|issuer| issuer.serve(discovery, json!({"issuer": "https://other.example"})));
    check(&|issuer| {
        let elsewhere = json!({"issuer": issuer.url, "jwks_uri": "https://other.example/keys"});
        issuer.serve(discovery, elsewhere);
    });
}

/// A new key of the issuer is found, and tokens with unknown keys make the server ask rarely.
#[test]
fn keys_change() {
    let world = World::start();
    world.mint(&world.token(&json!({}))).expect(200);
    let next = Key::rsa();
    world.issuer.serve("/keys", json!({"keys": [next.public("k2")]}));
    let header = json!({"alg": "RS256", "kid": "k2"});
    let token = || next.token(&header, &world.issuer.claims(&json!({})));
    for _ in 0..20 {
        refused(
            &world.mint(&token()),
            422,
            "invalid-token",
            "the identity token is not valid: the issuer has no key `k2` (`kid`)",
        );
    }
    assert_eq!(fetches(&world.issuer), 1);
    wait_until("the new key to be found", || world.mint(&token()).status == 200);
    assert_eq!(fetches(&world.issuer), 2);
    refused(
        &world.mint(&world.token(&json!({}))),
        422,
        "invalid-token",
        "the identity token is not valid: the issuer has no key `k1` (`kid`)",
    );
}

/// Where the keys are on another host, the operator names it, and nothing else is asked.
#[test]
fn keys_at_another_place() {
    let key = Key::ec();
    let keys = FakeIssuer::with_keys(json!([key.public("k1")]));
    let issuer = FakeIssuer::with_keys(json!([]));
    let named = format!("github {} {}/keys", issuer.url, keys.url).parse().expect("an issuer");
    let world = World::of(issuer, key, |config| config.publishing.issuers = vec![named]);
    world.mint(&world.token(&json!({}))).expect(200);
    assert_eq!((keys.requests(), world.issuer.requests()), (vec!["/keys".to_owned()], vec![]));
}
