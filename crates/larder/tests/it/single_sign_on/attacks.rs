//! Log-ins that are forged, stolen, or of somebody else; and providers that are slow or send too much.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::provider::{FakeProvider, authorization};
use super::{SETTINGS, UNREACHABLE, World, refused};
use crate::asking::each;
use crate::browser::Browser;
use crate::client::Response;
use crate::publishing::attacks::by_hmac;
use crate::publishing::issuer::{FakeIssuer, Key, unsigned};
use crate::wait_until;

/// What a browser is told that comes back with what it has not begun.
const NOT_BEGUN: &str = "This browser has not begun this log-in at Acme, or has begun it more than ten minutes ago. Try it again.";

/// What comes before the reason why an identity token is refused.
const NOT_VALID: &str =
    "What Acme says of you is not valid, so it was not used: the identity token is not valid";

impl World {
    /// A browser goes to the provider, which gives this token for the code; the token may depend on the nonce.
    fn log_in_with(
        &self,
        browser: &mut Browser,
        token: impl FnOnce(&FakeProvider, &str) -> String,
    ) -> Response {
        let sent = browser.get("/+account/oidc/company").expect(303);
        let location = sent.header("location").to_owned();
        let token = token(&self.provider, &authorization(&location)["nonce"]);
        let back = self.provider.authorize_with(&location, &json!({"id_token": token}));
        browser.get(&back)
    }
}

type Forge = fn(&FakeProvider, &Value) -> String;

#[test]
fn forged_signatures() {
    let forged: [(&str, Forge); 10] = [
        ("none", |_, claims| {
            format!("{}.", unsigned(&json!({"alg": "none", "kid": "k1"}), claims))
        }),
        ("none in capitals", |_, claims| {
            format!("{}.", unsigned(&json!({"alg": "NONE", "kid": "k1"}), claims))
        }),
        ("no signature", |provider, claims| format!("{}.", unsigned(&provider.header(), claims))),
        ("HMAC with the public key", |provider, claims| {
            let public = provider.key.public("k1").to_string();
            by_hmac(public.as_bytes(), &json!({"alg": "HS256", "kid": "k1"}), claims)
        }),
        ("HMAC with the key's bytes", |provider, claims| {
            let public = provider.key.public("k1");
            let bytes = public["n"].as_str().or(public["x"].as_str()).expect("a text");
            let bytes = BASE64.decode(bytes).expect("base64");
            by_hmac(&bytes, &json!({"alg": "HS256", "kid": "k1"}), claims)
        }),
        ("HMAC with the client's secret", |_, claims| {
            by_hmac(b"s3cret", &json!({"alg": "HS256", "kid": "k1"}), claims)
        }),
        ("another key", |provider, claims| Key::ec().token(&provider.header(), claims)),
        ("another key, brought along", |_, claims| {
            let key = Key::ec();
            let header = json!({"alg": "ES256", "kid": "k1", "jwk": key.public("k1")});
            key.token(&header, claims)
        }),
        ("an unknown key", |provider, claims| {
            let header = json!({"alg": provider.key.algorithm(), "kid": "../keys"});
            provider.key.token(&header, claims)
        }),
        ("no key", |provider, claims| {
            provider.key.token(&json!({"alg": provider.key.algorithm()}), claims)
        }),
    ];
    for key in [Key::ec(), Key::rsa()] {
        let world = World::of(FakeProvider::new(key), SETTINGS, |_| ());
        for (what, forge) in forged {
            let mut browser = world.browser();
            let answer = world.log_in_with(&mut browser, |provider, nonce| {
                forge(provider, &provider.claims(nonce, &json!({})))
            });
            let told = answer.told();
            assert!(told.contains(&format!(". {NOT_VALID}: ")), "{what}: {told}");
            refused(&mut browser, &answer, 403, told.trim_start_matches("Not logged in. "));
        }
        world.logged_in(&json!({}));
    }
}

/// A key is known by its id with the algorithm that it is for, and for its own provider alone.
#[test]
fn keys_that_are_confused() {
    let (provider, other) = (FakeProvider::new(Key::ec()), FakeProvider::new(Key::ec()));
    let rsa = Key::rsa();
    let secret = json!({"kty": "oct", "kid": "k3", "k": BASE64.encode("secret"), "alg": "HS256"});
    let keys = json!([provider.key.public("k1"), rsa.public("k2"), secret]);
    provider.issuer.serve("/keys", json!({"keys": keys}));
    let world = World::of(provider, SETTINGS, |_| ());
    let header = |algorithm: &str, id: &str| json!({"alg": algorithm, "kid": id});
    type Make<'a> = Box<dyn Fn(&FakeProvider, &Value) -> String + 'a>;
    let rows: [(&str, Make<'_>); 3] = [
        (
            "the key of another id",
            Box::new(|it, claims| it.key.token(&header("ES256", "k2"), claims)),
        ),
        (
            "a secret among the keys",
            Box::new(|_, claims| by_hmac(b"secret", &header("HS256", "k3"), claims)),
        ),
        (
            "the key of another provider",
            Box::new(|_, claims| other.key.token(&header("ES256", "k1"), claims)),
        ),
    ];
    for (what, make) in rows {
        let mut browser = world.browser();
        let answer = world.log_in_with(&mut browser, |provider, nonce| {
            make(provider, &provider.claims(nonce, &json!({})))
        });
        assert_eq!(answer.status, 403, "{what}: {}", answer.text());
    }
    let mut browser = world.browser();
    let good = world.log_in_with(&mut browser, |provider, nonce| {
        rsa.token(&header("RS256", "k2"), &provider.claims(nonce, &json!({})))
    });
    good.expect(303);
}

#[test]
fn tokens_for_others_or_for_another_time() {
    let world = World::start();
    let now = Timestamp::now().as_second();
    for (claims, words) in [
        (json!({"iss": "https://evil.example"}), "its issuer (`iss`) is another"),
        (
            json!({"iss": format!("{}/", world.provider.issuer.url)}),
            "its issuer (`iss`) is another",
        ),
        (json!({"iss": null}), "it names no issuer (`iss`)"),
        (
            json!({"aud": "other"}),
            "its audience (`aud`) is `other`, and `larder` alone was expected",
        ),
        (
            json!({"aud": ["larder", "other"]}),
            "its audience (`aud`) is `[\"larder\",\"other\"]`, and `larder` alone was expected",
        ),
        (json!({"aud": null}), "its audience (`aud`) is missing, and `larder` alone was expected"),
        (json!({"azp": "other"}), "it was made for another client (`azp` is \"other\")"),
        (json!({"nonce": "other"}), "it was made for another log-in (`nonce`)"),
        (json!({"nonce": null}), "it was made for another log-in (`nonce`)"),
        (json!({"exp": now - 31}), "it expired at TIME"),
        (json!({"exp": null}), "`exp` is missing"),
        (json!({"iat": now + 60}), "it was issued in the future, at TIME (`iat`)"),
        (json!({"nbf": now + 60}), "it is not valid before TIME (`nbf`)"),
        (json!({"sub": null}), "its subject (`sub`) is no text of 1 to 255 bytes"),
        (
            json!({"sub": ["7"]}),
            "it cannot be verified with the key `k1`: JSON error: expected `,` or `}` at line 1 column 171",
        ),
        (json!({"sub": ""}), "its subject (`sub`) is no text of 1 to 255 bytes"),
        (json!({"groups": [7]}), "its groups (`groups`) are not all texts"),
        (json!({"groups": {"Admins": true}}), "its groups (`groups`) are no list of texts"),
        (
            json!({"groups": vec!["Admins"; 1_001]}),
            "it has 1001 groups (`groups`), and at most 1000 were expected",
        ),
        (
            json!({"groups": vec!["Admins"; 10_000]}),
            "it has 120386 bytes, and at most 65536 were expected",
        ),
    ] {
        let mut browser = world.browser();
        let answer = world.log_in(&mut browser, &claims);
        refused(&mut browser, &answer, 403, &format!("{NOT_VALID}: {words}"));
    }
    assert_eq!(world.metric("refused"), 20.0);
    world.logged_in(&json!({"aud": ["larder"], "azp": "larder"}));
}

/// A code is good once, in the browser that asked for it.
#[test]
fn codes_and_states_of_others() {
    let world = World::start();
    let mut victim = world.browser();
    let sent = victim.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    // An attacker's code in a browser that has not begun, or has begun another log-in: nobody is logged in as the attacker.
    for begins in [false, true] {
        let mut other = world.browser();
        if begins {
            other.get("/+account/oidc/company").expect(303);
        }
        let answer = other.get(&back);
        refused(&mut other, &answer, 403, NOT_BEGUN);
    }
    assert!(!world.provider.issuer.requests().contains(&"/token".to_owned()), "nobody is asked");
    let mut copy = victim.clone();
    victim.get(&back).expect(303);
    // The same again, and in a copy of the browser as it was before.
    let answer = victim.clone().get(&back);
    assert_eq!(answer.status, 403, "{}", answer.text());
    let answer = copy.get(&back);
    refused(
        &mut copy,
        &answer,
        403,
        "What Acme says of you is not valid, so it was not used: the provider's answer is not valid: its code is refused: invalid_grant",
    );
    let mut browser = world.browser();
    browser.cookies.insert("larder-pending".to_owned(), "AAAA".to_owned());
    let answer = browser.get(&back);
    refused(&mut browser, &answer, 403, NOT_BEGUN);
}

/// Changed, missing and doubled parameters, each in a browser that has begun.
#[test]
fn parameters_that_are_refused() {
    let world = World::start();
    let changes: [fn(&str, &str) -> String; 8] = [
        |back, state| back.replace(state, ""),
        |back, state| back.replace(state, &state[1..]),
        |back, state| back.replace(&format!("state={state}"), "x=y"),
        |back, state| format!("{back}&state={state}"),
        |back, _| format!("{back}&code=other"),
        |back, _| back.replace("code=", "xcode="),
        |back, _| back.replace("code=", &format!("code={}", "x".repeat(5_000))),
        |back, _| format!("{back}&iss=x"),
    ];
    each(changes, |change| {
        let mut browser = world.browser();
        let sent = browser.get("/+account/oidc/company").expect(303);
        let back = world.provider.authorize(sent.header("location"), &json!({}));
        let state = &authorization(sent.header("location"))["state"];
        browser.get(&change(&back, state)).expect(403);
        browser.get("/+account").says("<h1>Log in</h1>");
    });
}

/// Mix-up: an answer of one provider, where that of another is waited for.
#[test]
fn answers_of_another_provider() {
    let (provider, evil) = (FakeProvider::new(Key::ec()), FakeProvider::new(Key::ec()));
    let file = [provider.settings("company", SETTINGS), evil.settings("evil", SETTINGS)].join("\n");
    let world = World::with_file(&file, provider, |_| ());
    let mut browser = world.browser();
    // The browser begins at one, and an answer comes back to the place of the other.
    let sent = browser.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    let answer = browser.get(&back.replace("/company/", "/evil/"));
    refused(&mut browser, &answer, 403, NOT_BEGUN);
    assert!(!evil.issuer.requests().contains(&"/token".to_owned()), "no code goes to the other");
    // An answer that names the other, or none although the provider always does.
    let mut begin = |change: &dyn Fn(&str) -> String| {
        let sent = browser.get("/+account/oidc/company").expect(303);
        let back = world.provider.authorize(sent.header("location"), &json!({}));
        browser.get(&change(&back))
    };
    let without = |back: &str| back.split("&iss=").next().expect("a part").to_owned();
    let answer = begin(&|back| format!("{}&iss={}", without(back), evil.issuer.url));
    answer.tells(403, "Not logged in. What Acme says of you is not valid, so it was not used: the provider's answer is not valid: it is of the issuer `http://127.0.0.1:PORT` (`iss`)");
    begin(&|back| without(back)).expect(303);
    let provider = FakeProvider::new(Key::ec());
    provider.describe(&json!({"authorization_response_iss_parameter_supported": true}));
    let world = World::of(provider, SETTINGS, |_| ());
    let mut browser = world.browser();
    let sent = browser.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    let answer = browser.get(&without(&back));
    refused(
        &mut browser,
        &answer,
        403,
        "What Acme says of you is not valid, so it was not used: the provider's answer is not valid: it does not name its issuer (`iss`)",
    );
    world.logged_in(&json!({}));
}

/// After the log-in, a browser goes to paths of this server alone.
#[test]
fn no_open_redirect() {
    let world = World::start();
    for next in [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/%0d%0aSet-Cookie: a=b",
        "/a b",
        "",
    ] {
        let mut browser = world.browser();
        let encoded: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let sent = browser.get(&format!("/+account/oidc/company?next={encoded}")).expect(303);
        let location = sent.header("location").to_owned();
        assert!(location.starts_with(&format!("{}/authorize?", world.provider.issuer.url)));
        let answer = browser.get(&world.provider.authorize(&location, &json!({}))).expect(303);
        let went = answer.header("location").to_owned();
        assert!(went == "/+account" || went == "/%0d%0aSet-Cookie:", "{next}: {went}");
    }
}

/// What a provider may not send, and where its URLs may not be.
#[test]
fn answers_that_are_refused() {
    let discovery = "/.well-known/openid-configuration";
    let begins = |script: &dyn Fn(&FakeProvider)| {
        let provider = FakeProvider::new(Key::ec());
        script(&provider);
        let world = World::of(provider, SETTINGS, |_| ());
        let mut browser = world.browser();
        let answer = browser.get("/+account/oidc/company");
        refused(&mut browser, &answer, 503, UNREACHABLE);
        assert!(!world.provider.issuer.requests().contains(&"/elsewhere".to_owned()));
    };
    begins(&|it| it.issuer.serve_status(discovery, "302 Found"));
    begins(&|it| it.issuer.serve_bytes(discovery, vec![b' '; 70_000]));
    begins(&|it| it.issuer.serve_bytes("/keys", vec![b' '; 300_000]));
    begins(&|it| it.issuer.serve("/keys", json!({"keys": vec![it.key.public("x"); 101]})));
    begins(&|it| it.describe(&json!({"issuer": "https://evil.example"})));
    begins(&|it| it.describe(&json!({"jwks_uri": "https://evil.example/keys"})));
    begins(&|it| it.describe(&json!({"authorization_endpoint": "https://evil.example/authorize"})));
    begins(&|it| it.describe(&json!({"authorization_endpoint": null})));
    let returns = |script: &dyn Fn(&FakeProvider), status: u16, words: &str| {
        let provider = FakeProvider::new(Key::ec());
        script(&provider);
        let world = World::of(provider, SETTINGS, |_| ());
        let mut browser = world.browser();
        let answer = world.log_in(&mut browser, &json!({}));
        refused(&mut browser, &answer, status, words);
        assert!(!world.provider.issuer.requests().contains(&"/elsewhere".to_owned()));
    };
    let inside = json!({"token_endpoint": "http://169.254.169.254/token"});
    returns(&|it| it.describe(&inside), 503, UNREACHABLE);
    returns(&|it| it.issuer.serve_status("/token", "302 Found"), 503, UNREACHABLE);
    returns(&|it| it.issuer.serve_bytes("/token", vec![b' '; 300_000]), 503, UNREACHABLE);
    returns(&|it| it.issuer.serve_bytes("/token", b"<html>".to_vec()), 503, UNREACHABLE);
    returns(
        &|it| it.issuer.serve("/token", json!({"id_token": "x".repeat(70_000)})),
        403,
        &format!("{NOT_VALID}: it has 70000 bytes, and at most 65536 were expected"),
    );
    returns(
        &|it| it.issuer.serve("/token", json!({"id_token": 7})),
        403,
        "What Acme says of you is not valid, so it was not used: the provider's answer is not valid: it has no identity token",
    );
    returns(
        &|it| it.issuer.serve("/token", json!({})),
        403,
        "What Acme says of you is not valid, so it was not used: the provider's answer is not valid: it has no identity token",
    );
}

/// A provider that is slow holds up those who log in there, for some seconds, and nobody else.
/// Something beside the browser asks what is behind a link, with its cookies.
#[test]
fn a_look_at_the_way_back_uses_nothing_up() {
    let world = World::start();
    let mut browser = world.browser();
    let sent = browser.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    browser.send("HEAD", &back, &[], b"").expect(405).has("allow", "GET");
    assert!(!world.provider.issuer.requests().contains(&"/token".to_owned()));
    browser.get(&back).expect(303);
}

#[test]
fn a_slow_provider_holds_up_nobody() {
    let world = World::start();
    world.provider.issuer.hold(true);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| world.browser().get("/+account/oidc/company"));
        wait_until("the server to ask", || !world.provider.issuer.requests().is_empty());
        Browser::root(world.server.client).get("/+account").says("<h1>root</h1>");
        let answer = slow.join().expect("an answer");
        answer.tells(503, &format!("Not logged in. {UNREACHABLE}"));
    });
    world.provider.issuer.hold(false);
}

/// Not even keys at the right place are asked of a host that the provider's settings do not name.
#[test]
fn further_hosts_are_named() {
    let keys = FakeIssuer::with_keys(json!([]));
    let provider = FakeProvider::new(Key::ec());
    provider.describe(&json!({"jwks_uri": format!("{}/keys", keys.url)}));
    let world = World::of(provider, &format!("hosts = [\"keys.example\"]\n{SETTINGS}"), |_| ());
    let mut browser = world.browser();
    let answer = browser.get("/+account/oidc/company");
    refused(&mut browser, &answer, 503, UNREACHABLE);
    assert_eq!(keys.requests(), Vec::<String>::new());
}
