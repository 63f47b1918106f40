//! [`FakeProvider`]: a fake of an identity provider. It checks what a real one checks (client, PKCE, place to come back to, each
//! code once), and signs what the test wants, with real keys.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use url::Url;

use crate::asking::basic;
use crate::publishing::issuer::{FakeIssuer, Grant, Key, change};

pub(super) struct FakeProvider {
    pub(super) issuer: FakeIssuer,
    pub(super) key: Key,
}

/// The parameters of the URL that a browser is sent to.
pub(super) fn authorization(location: &str) -> HashMap<String, String> {
    let url: Url = location.parse().expect("a URL");
    assert_eq!(url.path(), "/authorize", "{location}");
    url.query_pairs().into_owned().collect()
}

impl FakeProvider {
    pub(super) fn new(key: Key) -> FakeProvider {
        let issuer = FakeIssuer::with_keys(json!([key.public("k1")]));
        let provider = FakeProvider { issuer, key };
        provider.describe(&json!({}));
        provider
    }

    /// Serves a discovery document with some members changed.
    pub(super) fn describe(&self, changes: &Value) {
        let url = &self.issuer.url;
        let mut document = json!({
            "issuer": url,
            "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
        });
        for (name, value) in changes.as_object().expect("an object") {
            document[name] = value.clone();
        }
        self.issuer.serve("/.well-known/openid-configuration", document);
    }

    /// The part of a file of providers that names it.
    pub(super) fn settings(&self, name: &str, further: &str) -> String {
        format!(
            "[[provider]]\nname = \"{name}\"\ntitle = \"Acme\"\nissuer = \"{}\"\nclient_id = \"larder\"\n\
             client_secret = \"s3cret\"\n{further}",
            self.issuer.url
        )
    }

    /// The claims of somebody, with some changed; null takes a claim away.
    pub(super) fn claims(&self, nonce: &str, changes: &Value) -> Value {
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": self.issuer.url, "aud": "larder", "sub": "7", "preferred_username": "alice",
            "nonce": nonce, "iat": now - 5, "exp": now + 300,
        });
        change(&mut claims, changes);
        claims
    }

    pub(super) fn header(&self) -> Value {
        json!({"alg": self.key.algorithm(), "kid": "k1", "typ": "JWT"})
    }

    /// Somebody with these claims logs in: where the browser goes then.
    pub(super) fn authorize(&self, location: &str, claims: &Value) -> String {
        let nonce = &authorization(location)["nonce"];
        let token = self.key.token(&self.header(), &self.claims(nonce, claims));
        self.authorize_with(location, &json!({"id_token": token}))
    }

    /// The same, with this answer for the code.
    pub(super) fn authorize_with(&self, location: &str, answer: &Value) -> String {
        let asked = authorization(location);
        let code = format!("code-{}", &asked["state"][..8]);
        let grant = Grant {
            redirect_uri: asked["redirect_uri"].clone(),
            challenge: asked["code_challenge"].clone(),
            authorization: basic("larder", "s3cret"),
            answer: answer.clone(),
        };
        self.issuer.grant(&code, grant);
        let back: Url = asked["redirect_uri"].parse().expect("a URL");
        let issuer = form_urlencoded::byte_serialize(self.issuer.url.as_bytes());
        let issuer: String = issuer.collect();
        format!("{}?code={code}&state={}&iss={issuer}", back.path(), asked["state"])
    }
}
