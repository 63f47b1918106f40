//! Identities that are forged, stolen, or of somebody else.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;

use super::issuer::{FakeIssuer, Key, unsigned};
use super::{NOT_NAMED, World, refusal, refused};

/// A token whose signature is an HMAC with these bytes.
pub(crate) fn by_hmac(secret: &[u8], header: &Value, claims: &Value) -> String {
    let signed = unsigned(header, claims);
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", BASE64.encode(mac.finalize().into_bytes()))
}

#[test]
fn forged_signatures() {
    for key in [Key::ec(), Key::rsa()] {
        let world = World::with_key(key);
        let (algorithm, claims) = (world.key.algorithm(), world.issuer.claims(&json!({})));
        let header = |algorithm: &str| json!({"alg": algorithm, "kid": "k1", "typ": "JWT"});
        let right = header(algorithm);
        let public = world.key.public("k1");
        let public_bytes =
            BASE64.decode(public["n"].as_str().or(public["x"].as_str()).expect("a text"));
        let mut with_own_key = header(algorithm);
        let attacker = Key::ec();
        with_own_key["jwk"] = attacker.public("k1");
        with_own_key["jku"] = json!("http://127.0.0.1:1/keys");
        let changed = world.issuer.claims(&json!({"repository_id": "8"}));
        let valid = world.key.token(&right, &claims);
        let signature = valid.rsplit('.').next().expect("a signature");
        let other = if algorithm == "RS256" { "ES256" } else { "RS256" };
        let forged = [
            ("none", format!("{}.", unsigned(&header("none"), &claims))),
            ("none, in capitals", format!("{}.", unsigned(&header("NONE"), &claims))),
            ("no algorithm", world.key.token(&json!({"kid": "k1"}), &claims)),
            (
                "HMAC with the public key",
                by_hmac(public.to_string().as_bytes(), &header("HS256"), &claims),
            ),
            (
                "HMAC with the key's bytes",
                by_hmac(&public_bytes.expect("base64"), &header("HS256"), &claims),
            ),
            ("no signature", format!("{}.", unsigned(&right, &claims))),
            ("another key", Key::ec().token(&right, &claims)),
            ("another key, with its own algorithm", attacker.token(&header("ES256"), &claims)),
            ("another key, brought along", attacker.token(&with_own_key, &claims)),
            ("another algorithm", world.key.token(&header(other), &claims)),
            ("a longer digest", world.key.token(&header("RS512"), &claims)),
            ("a signature of other claims", format!("{}.{signature}", unsigned(&right, &changed))),
            (
                "critical members",
                world.key.token(&json!({"alg": algorithm, "kid": "k1", "crit": ["exp"]}), &claims),
            ),
        ];
        for (what, token) in forged {
            let answer = world.mint(&token);
            assert_eq!(answer.status, 422, "{what}: {}", answer.text());
            assert_eq!(answer.json()["errors"][0]["code"], "invalid-token", "{what}");
        }
        world.mint(&valid).expect(200);
    }
}

/// A key is known by its id for its own issuer alone, and with the algorithm that it is for.
#[test]
fn keys_that_are_confused() {
    let (key, rsa, stranger) = (Key::ec(), Key::rsa(), Key::ec());
    let secret = json!({"kty": "oct", "kid": "k3", "k": BASE64.encode("secret"), "alg": "HS256"});
    let issuer = FakeIssuer::with_keys(json!([key.public("k1"), rsa.public("k2"), secret]));
    let other = FakeIssuer::with_keys(json!([stranger.public("k1")]));
    let named = format!("generic {}", other.url).parse().expect("an issuer");
    let world = World::of(issuer, key, |config| config.publishing.issuers.push(named));
    let claims = || world.issuer.claims(&json!({}));
    let header = |algorithm: &str, id: &str| json!({"alg": algorithm, "kid": id});
    for (what, token) in [
        ("the key of another id", world.key.token(&header("ES256", "k2"), &claims())),
        ("the key of another issuer", stranger.token(&header("ES256", "k1"), &claims())),
        ("a secret among the keys", by_hmac(b"secret", &header("HS256", "k3"), &claims())),
        ("no key", world.key.token(&json!({"alg": "ES256"}), &claims())),
        ("an unknown key", world.key.token(&header("ES256", "k9"), &claims())),
        ("a path for a key", world.key.token(&header("ES256", "../keys"), &claims())),
    ] {
        let answer = world.mint(&token);
        assert_eq!(answer.status, 422, "{what}: {}", answer.text());
        assert_eq!(answer.json()["errors"][0]["code"], "invalid-token", "{what}");
    }
    // An identity of the other issuer is valid, and nobody names it.
    let token =
        stranger.token(&header("ES256", "k1"), &world.issuer.claims(&json!({"iss": other.url})));
    refused(&world.mint(&token), 422, "invalid-publisher", NOT_NAMED);
    world.mint(&rsa.token(&header("RS256", "k2"), &claims())).expect(200);
}

#[test]
fn identities_for_others_or_for_another_time() {
    let world = World::start();
    let now = Timestamp::now().as_second();
    for (issuer, shown) in [
        ("https://evil.example".to_owned(), "https://evil.example"),
        (format!("{}/", world.issuer.url), "http://127.0.0.1:PORT/"),
        (world.issuer.url.to_uppercase(), "HTTP://127.0.0.1:PORT"),
    ] {
        let answer = world.mint(&world.token(&json!({"iss": issuer})));
        let expected = format!("the issuer `{shown}` is not one of `publishing.issuers`");
        refused(&answer, 422, "invalid-token", &expected);
    }
    for (claims, words) in [
        (json!({"iss": [world.issuer.url]}), "it names no issuer (`iss`)"),
        (json!({"iss": null}), "it names no issuer (`iss`)"),
        (json!({"aud": "pypi"}), "its audience (`aud`) is `pypi`, and `larder` alone was expected"),
        (
            json!({"aud": ["larder", "pypi"]}),
            "its audience (`aud`) is `[\"larder\",\"pypi\"]`, and `larder` alone was expected",
        ),
        (json!({"aud": null}), "its audience (`aud`) is missing, and `larder` alone was expected"),
        (json!({"exp": now - 31}), "it expired at TIME"),
        (json!({"exp": now + 90_000}), "it lives longer than 24 hours (`iat`, `exp`)"),
        (json!({"exp": null}), "`exp` is missing"),
        (json!({"exp": "tomorrow"}), "`exp` is no time"),
        (json!({"nbf": now + 60}), "it is not valid before TIME (`nbf`)"),
        (json!({"iat": now + 60}), "it was issued in the future, at TIME (`iat`)"),
        (json!({"iat": null}), "`iat` is missing"),
    ] {
        refused(
            &world.mint(&world.token(&claims)),
            422,
            "invalid-token",
            &format!("the identity token is not valid: {words}"),
        );
    }
}

/// Identities that the issuer signs, of jobs that the index does not name.
#[test]
fn jobs_that_are_not_named() {
    let world = World::start();
    for claims in [
        // Another repository; one made anew under the old name; one that was moved to another owner.
        json!({"repository": "evil/repo", "repository_id": "8", "repository_owner_id": "9"}),
        json!({"repository_id": "8"}),
        json!({"repository_owner_id": "9"}),
        // Another workflow, that of another repository, and a branch with the name of the file.
        json!({"job_workflow_ref": "org/repo/.github/workflows/test.yml@refs/tags/v1.0"}),
        json!({"job_workflow_ref": "evil/repo/.github/workflows/release.yml@refs/tags/v1.0"}),
        json!({"job_workflow_ref": "org/repo/.github/workflows/x.yml@refs/heads/release.yml@x"}),
        // A branch, no environment, a pull request, and one that makes the repository itself run its code.
        json!({"ref": "refs/heads/main"}),
        json!({"ref": "refs/pull/1/merge", "event_name": "pull_request"}),
        json!({"event_name": "pull_request"}),
        json!({"event_name": "pull_request_target"}),
        json!({"event_name": null}),
        json!({"environment": "staging"}),
        json!({"environment": null}),
        // Claims that are missing, or no texts.
        json!({"repository_id": null}),
        json!({"repository_id": 7}),
        json!({"repository_id": ["7"]}),
        json!({"repository_id": {"7": "7"}}),
        json!({"repository": ["org/repo"]}),
        json!({"job_workflow_ref": null}),
        json!({"ref": ["refs/tags/v1.0"]}),
    ] {
        let answer = world.mint(&world.token(&claims));
        let said = refusal(&answer, 422, "invalid-publisher");
        assert!(
            said.starts_with("no index names this identity as a trusted publisher: "),
            "{said}"
        );
        answer.lacks(["team", "yourproject"]);
    }
    // The repository was renamed: it is still the same, unless the publisher names it.
    world
        .mint(&world.token(&json!({
            "repository": "org/renamed",
            "job_workflow_ref": "org/renamed/.github/workflows/release.yml@refs/tags/v1.0",
        })))
        .expect(200);
}

#[test]
fn what_is_no_request() {
    let world = World::start();
    let send = |body: &[u8]| {
        world.server.client.anybody().typed("application/json").post("/_/oidc/mint-token", body)
    };
    for body in ["", "[]", "{}", "{\"token\": 1}", "{\"token\": [\"x\"]}", "token=x", "null"] {
        let said = refusal(&send(body.as_bytes()), 422, "invalid-payload");
        assert!(said.starts_with("`{\"token\": \"<JWT>\"}` was expected: "), "{said}");
    }
    let (parts, header) = (
        "it does not have three parts with dots between them",
        "its header is no JSON object in base64url",
    );
    for (token, what) in
        [("", parts), ("x", parts), ("a.b.c", header), ("...", parts), ("é.é.é", header)]
    {
        let body = json!({"token": token}).to_string();
        let expected = format!("the identity token is not valid: {what}");
        refused(&send(body.as_bytes()), 422, "invalid-token", &expected);
    }
    let long = "x".repeat(9_000);
    refused(
        &world.mint(&long),
        422,
        "invalid-token",
        "the identity token is not valid: it has 9000 bytes, and at most 8192 were expected",
    );
    refused(
        &world.mint(&"x".repeat(20_000)),
        413,
        "invalid-payload",
        "the body has more than 16384 bytes, the most that is accepted",
    );
    let many: serde_json::Map<String, Value> =
        (0..220).map(|number| (format!("c{number}"), json!("x"))).collect();
    refused(
        &world.mint(&world.token(&Value::Object(many))),
        422,
        "invalid-token",
        "the identity token is not valid: it has more than 200 claims",
    );
    world.server.get("/_/oidc/mint-token").expect(405);
    // Nothing of all this made the server ask the issuer more than once.
    assert!(world.issuer.requests().len() <= 2, "{:?}", world.issuer.requests());
}
