//! Log-ins that are forged, stolen, or of somebody else; and providers that are slow or send too much.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::provider::{FakeProvider, authorization};
use super::{SETTINGS, World, refused};
use crate::asking::each;
use crate::browser::Browser;
use crate::client::Response;
use crate::publishing::attacks::by_hmac;
use crate::publishing::issuer::{FakeIssuer, Key, unsigned};
use crate::wait_until;

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
            assert_eq!(answer.status, 403, "{what}: {}", answer.text());
            refused(&mut browser, &answer, 403, "is not valid");
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
        (json!({"iss": "https://evil.example"}), "issuer"),
        (json!({"iss": format!("{}/", world.provider.issuer.url)}), "issuer"),
        (json!({"iss": null}), "issuer"),
        (json!({"aud": "other"}), "its audience"),
        (json!({"aud": ["larder", "other"]}), "its audience"),
        (json!({"aud": null}), "its audience"),
        (json!({"azp": "other"}), "another client"),
        (json!({"nonce": "other"}), "another log-in"),
        (json!({"nonce": null}), "another log-in"),
        (json!({"exp": now - 31}), "expired"),
        (json!({"exp": null}), "`exp` is missing"),
        (json!({"iat": now + 60}), "in the future"),
        (json!({"nbf": now + 60}), "not valid before"),
        (json!({"sub": null}), "its subject"),
        (json!({"sub": ["7"]}), "is not valid"),
        (json!({"sub": ""}), "its subject"),
        (json!({"groups": [7]}), "not all texts"),
        (json!({"groups": {"Admins": true}}), "no list of texts"),
        (json!({"groups": vec!["Admins"; 1_001]}), "1001 groups"),
        (json!({"groups": vec!["Admins"; 10_000]}), "bytes"),
    ] {
        let mut browser = world.browser();
        let answer = world.log_in(&mut browser, &claims);
        refused(&mut browser, &answer, 403, words);
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
        refused(&mut other, &answer, 403, "This browser has not begun");
    }
    assert!(!world.provider.issuer.requests().contains(&"/token".to_owned()), "nobody is asked");
    let mut copy = victim.clone();
    victim.get(&back).expect(303);
    // The same again, and in a copy of the browser as it was before.
    let answer = victim.clone().get(&back);
    assert_eq!(answer.status, 403, "{}", answer.text());
    let answer = copy.get(&back);
    refused(&mut copy, &answer, 403, "its code is refused: invalid_grant");
    let mut browser = world.browser();
    browser.cookies.insert("larder-pending".to_owned(), "AAAA".to_owned());
    let answer = browser.get(&back);
    refused(&mut browser, &answer, 403, "This browser has not begun");
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
    refused(&mut browser, &answer, 403, "This browser has not begun");
    assert!(!evil.issuer.requests().contains(&"/token".to_owned()), "no code goes to the other");
    // An answer that names the other, or none although the provider always does.
    let mut begin = |change: &dyn Fn(&str) -> String| {
        let sent = browser.get("/+account/oidc/company").expect(303);
        let back = world.provider.authorize(sent.header("location"), &json!({}));
        browser.get(&change(&back))
    };
    let without = |back: &str| back.split("&iss=").next().expect("a part").to_owned();
    let answer = begin(&|back| format!("{}&iss={}", without(back), evil.issuer.url));
    assert_eq!(answer.status, 403);
    answer.says("it is of the issuer");
    begin(&|back| without(back)).expect(303);
    let provider = FakeProvider::new(Key::ec());
    provider.describe(&json!({"authorization_response_iss_parameter_supported": true}));
    let world = World::of(provider, SETTINGS, |_| ());
    let mut browser = world.browser();
    let sent = browser.get("/+account/oidc/company").expect(303);
    let back = world.provider.authorize(sent.header("location"), &json!({}));
    let answer = browser.get(&without(&back));
    refused(&mut browser, &answer, 403, "it does not name its issuer");
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
        refused(&mut browser, &answer, 503, "Acme cannot be reached now");
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
    let returns = |script: &dyn Fn(&FakeProvider), status: u16| {
        let provider = FakeProvider::new(Key::ec());
        script(&provider);
        let world = World::of(provider, SETTINGS, |_| ());
        let mut browser = world.browser();
        let answer = world.log_in(&mut browser, &json!({}));
        refused(&mut browser, &answer, status, "Acme");
        assert!(!world.provider.issuer.requests().contains(&"/elsewhere".to_owned()));
    };
    let inside = json!({"token_endpoint": "http://169.254.169.254/token"});
    returns(&|it| it.describe(&inside), 503);
    returns(&|it| it.issuer.serve_status("/token", "302 Found"), 503);
    returns(&|it| it.issuer.serve_bytes("/token", vec![b' '; 300_000]), 503);
    returns(&|it| it.issuer.serve_bytes("/token", b"<html>".to_vec()), 503);
    returns(&|it| it.issuer.serve("/token", json!({"id_token": "x".repeat(70_000)})), 403);
    returns(&|it| it.issuer.serve("/token", json!({"id_token": 7})), 403);
    returns(&|it| it.issuer.serve("/token", json!({})), 403);
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
        answer.check_status(503);
        answer.says("cannot be reached now");
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
    refused(&mut browser, &answer, 503, "Acme cannot be reached now");
    assert_eq!(keys.requests(), Vec::<String>::new());
}
