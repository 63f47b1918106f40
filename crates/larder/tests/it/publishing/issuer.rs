//! [`FakeIssuer`]: a fake of a CI system's issuer. It serves a discovery document and keys as the test scripts them, and signs
//! tokens with real keys, right or wrong ones.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::{Receiver, Request};

/// The audience of the servers of these tests.
pub(crate) const AUDIENCE: &str = "larder";

/// A key that signs.
pub(crate) enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// What the fake serves.
#[derive(Default)]
struct Script {
    pages: HashMap<String, Vec<u8>>,
    statuses: HashMap<String, &'static str>,
    /// Whether answers wait until this is false again.
    is_held: bool,
    requests: Vec<String>,
    /// What a code is redeemed for, once, at `/token`.
    codes: HashMap<String, Grant>,
}

/// A code that a provider gives a browser, and what it checks when a client redeems it.
pub(crate) struct Grant {
    pub(crate) redirect_uri: String,
    /// `code_challenge` of PKCE.
    pub(crate) challenge: String,
    /// The value of `Authorization`.
    pub(crate) authorization: String,
    pub(crate) answer: Value,
}

pub(crate) struct FakeIssuer {
    pub(crate) url: String,
    script: Arc<(Mutex<Script>, Condvar)>,
}

impl Key {
    pub(crate) fn rsa() -> Key {
        Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"))
    }

    pub(crate) fn ec() -> Key {
        Key::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    pub(crate) fn ed() -> Key {
        Key::Ed(Ed25519KeyPair::generate().expect("a key"))
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Key::Rsa(_) => "RS256",
            Key::Ec(_) => "ES256",
            Key::Ed(_) => "EdDSA",
        }
    }

    /// The public key, as a JWK.
    pub(crate) fn public(&self, id: &str) -> Value {
        let mut key = match self {
            Key::Rsa(pair) => {
                let public = pair.public_key();
                let n = public.modulus().big_endian_without_leading_zero();
                let e = public.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": BASE64.encode(n), "e": BASE64.encode(e)})
            }
            Key::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..65]));
                json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
            }
            Key::Ed(pair) => {
                let x = BASE64.encode(pair.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "x": x})
            }
        };
        key["kid"] = json!(id);
        key["alg"] = json!(self.algorithm());
        key["use"] = json!("sig");
        key
    }

    pub(crate) fn sign(&self, text: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Key::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let signed = pair.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature);
                signed.expect("a signature");
                signature
            }
            Key::Ec(pair) => {
                pair.sign(&random, text.as_bytes()).expect("a signature").as_ref().to_vec()
            }
            Key::Ed(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
        }
    }

    /// A token with this header and these claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        format!("{signed}.{}", BASE64.encode(self.sign(&signed)))
    }
}

/// The part of a token that is signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()))
}

impl FakeIssuer {
    /// A fake with these public keys.
    pub(crate) fn with_keys(keys: Value) -> FakeIssuer {
        let script = Arc::<(Mutex<Script>, Condvar)>::default();
        let answered = script.clone();
        let url = Receiver::start(move |request| answer(request, &answered)).url("");
        let issuer = FakeIssuer { url: url.clone(), script };
        issuer.serve(
            "/.well-known/openid-configuration",
            json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
        );
        issuer.serve("/keys", json!({"keys": keys}));
        issuer
    }

    pub(crate) fn serve(&self, path: &str, page: Value) {
        self.serve_bytes(path, page.to_string().into_bytes());
    }

    pub(crate) fn serve_bytes(&self, path: &str, page: Vec<u8>) {
        self.script.0.lock().expect("no panic").pages.insert(path.to_owned(), page);
    }

    pub(crate) fn serve_status(&self, path: &str, status: &'static str) {
        self.script.0.lock().expect("no panic").statuses.insert(path.to_owned(), status);
    }

    /// Gives a code.
    pub(crate) fn grant(&self, code: &str, grant: Grant) {
        self.script.0.lock().expect("no panic").codes.insert(code.to_owned(), grant);
    }

    /// Lets requests wait, or answers those that wait.
    pub(crate) fn hold(&self, is_held: bool) {
        self.script.0.lock().expect("no panic").is_held = is_held;
        self.script.1.notify_all();
    }

    /// The requested paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.script.0.lock().expect("no panic").requests.clone()
    }

    /// The claims of a job of the repository `org/repo`, for a tag, with some changed; null takes a claim away.
    pub(crate) fn claims(&self, changes: &Value) -> Value {
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": self.url,
            "aud": AUDIENCE,
            "iat": now - 5,
            "nbf": now - 5,
            "exp": now + 300,
            "jti": uuid(),
            "sub": "repo:org/repo:environment:release",
            "repository": "org/repo",
            "repository_id": "7",
            "repository_owner": "org",
            "repository_owner_id": "3",
            "job_workflow_ref": "org/repo/.github/workflows/release.yml@refs/tags/v1.0",
            "event_name": "push",
            "environment": "release",
            "ref": "refs/tags/v1.0",
        });
        change(&mut claims, changes);
        claims
    }
}

/// Changes claims; null takes a claim away.
pub(crate) fn change(claims: &mut Value, changes: &Value) {
    let members = claims.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
}

/// Something that no other token has.
fn uuid() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("random numbers");
    BASE64.encode(bytes)
}

/// The answer to a client that redeems a code; none if anything is not as it was granted.
fn redeemed(state: &mut Script, request: &Request) -> Option<Vec<u8>> {
    let form: HashMap<_, _> = form_urlencoded::parse(&request.body).into_owned().collect();
    let grant = state.codes.remove(form.get("code")?)?;
    let challenge = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        form.get("code_verifier")?.as_bytes(),
    );
    let is_granted = form.get("grant_type")? == "authorization_code"
        && *form.get("redirect_uri")? == grant.redirect_uri
        && BASE64.encode(challenge) == grant.challenge
        && request.header("authorization") == grant.authorization;
    is_granted.then(|| grant.answer.to_string().into_bytes())
}

fn answer(request: &Request, script: &(Mutex<Script>, Condvar)) -> Vec<u8> {
    let mut state = script.0.lock().expect("no panic");
    state.requests.push(request.path.clone());
    while state.is_held {
        state = script.1.wait(state).expect("no panic");
    }
    let path = request.path.split('?').next().unwrap_or_default();
    let status = state.statuses.get(path).copied();
    let page = match path {
        "/token" if !state.pages.contains_key(path) => redeemed(&mut state, request),
        path => state.pages.get(path).cloned(),
    };
    drop(state);
    let (usual, page) = match page {
        Some(page) => ("200 OK", page),
        None if path == "/token" => ("400 Bad Request", br#"{"error": "invalid_grant"}"#.to_vec()),
        None => ("404 Not Found", Vec::new()),
    };
    let status = status.unwrap_or(usual);
    Receiver::answer(status, "Location: /elsewhere\r\n", &page)
}
