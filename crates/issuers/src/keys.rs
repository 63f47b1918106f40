//! [`Source`]: the keys of one issuer, fetched when a token needs them.
//!
//! id of a key -> those in memory -> (absent, or too old: one fetch for all who wait) discovery document -> JWKS -> [`Key`]
//!
//! A fetch is a task of its own: it goes on if the client leaves, and a slow issuer holds up nobody but those who show its
//! tokens, and these for [`PATIENCE`] at most. Bytes, time, keys and waiting requests are bounded. A token with an unknown key
//! makes the server ask at most once in [`UNKNOWN_KEY_INTERVAL`], a failure at most once in [`RETRY_INTERVAL`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use net::Egress;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::{Issuer, Refused, shown};

/// How long keys count before they are fetched again.
const FRESH_FOR: Duration = Duration::from_secs(3600);

/// The time between two fetches because of unknown keys, and after a failure.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long a request waits for keys: some clients give up after five seconds.
const PATIENCE: Duration = Duration::from_secs(4);

/// Requests that wait for the keys of one issuer.
const WAITING_MAX: usize = 64;

/// Time to connect, and for each of the two answers as a whole.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Size of a discovery document and of a set of keys, and keys in it.
const DISCOVERY_BYTES_MAX: usize = 64 << 10;
const KEYS_BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 100;

/// A public key, with the one algorithm that it is for.
pub(super) struct Key {
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

type Keys = HashMap<String, Arc<Key>>;

/// The keys of an issuer. Cheap to clone.
#[derive(Clone)]
pub(super) struct Source(Arc<Inner>);

struct Inner {
    issuer: String,
    place: Place,
    client: Client,
    state: Mutex<State>,
    waiting: Semaphore,
}

/// Where the keys are.
enum Place {
    /// The configuration says.
    Keys(Url),
    /// The discovery document at this URL says, within the same host.
    Discovery(Url),
}

#[derive(Default)]
struct State {
    keys: Option<(Arc<Keys>, Instant)>,
    /// The last failure since then.
    failure: Option<(String, Instant)>,
    /// The fetch that is under way; it is dropped when that ends.
    flight: Option<watch::Receiver<()>>,
}

/// What a request finds.
enum Found {
    Key(Arc<Key>),
    Wait(watch::Receiver<()>),
}

impl Source {
    pub(super) fn new(issuer: &Issuer, egress: &Egress) -> anyhow::Result<Source> {
        let url = |text: &str| Url::parse(text).with_context(|| format!("`{text}` is no URL"));
        let place = match &issuer.jwks_url {
            Some(text) => Place::Keys(url(text)?),
            None => {
                let base = issuer.url.trim_end_matches('/');
                Place::Discovery(url(&format!("{base}/.well-known/openid-configuration"))?)
            }
        };
        let (Place::Keys(named) | Place::Discovery(named)) = &place;
        // The operator names the host, so it may be a private one. The client follows no redirects.
        let egress = egress.clone().naming(named.host_str().unwrap_or_default());
        egress.check(named)?;
        let client = net::build_client(|| {
            egress.client().connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT)
        })?;
        Ok(Source(Arc::new(Inner {
            issuer: issuer.url.clone(),
            place,
            client,
            state: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
        })))
    }

    /// The key with this id.
    pub(super) async fn key(&self, id: &str) -> Result<Arc<Key>, Refused> {
        let mut flight = match self.look(id, true)? {
            Found::Key(key) => return Ok(key),
            Found::Wait(flight) => flight,
        };
        let Ok(_place) = self.0.waiting.try_acquire() else {
            return Err(self.unavailable("too many requests wait for them".to_owned(), 1));
        };
        // The sender is dropped when the fetch has ended.
        let ended = async { while flight.changed().await.is_ok() {} };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            return Err(self.unavailable("the issuer is slow".to_owned(), 5));
        }
        match self.look(id, false)? {
            Found::Key(key) => Ok(key),
            Found::Wait(_) => Err(self.unavailable("they are being fetched again".to_owned(), 1)),
        }
    }

    /// Fetches the keys, whatever is in memory, and counts them.
    pub(super) async fn try_keys(&self) -> anyhow::Result<usize> {
        Ok(self.0.fetch().await?.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key, or the fetch to wait for, which is begun if there is a reason and it `may_begin`.
    fn look(&self, id: &str, may_begin: bool) -> Result<Found, Refused> {
        let mut state = self.state();
        // A fetch that has panicked has not landed.
        state.flight.take_if(|flight| flight.has_changed().is_err());
        let fresh = state.keys.as_ref().filter(|(_, since)| since.elapsed() < FRESH_FOR);
        if let Some((keys, since)) = fresh {
            if let Some(key) = keys.get(id) {
                return Ok(Found::Key(key.clone()));
            }
            let is_asked_lately = since.elapsed() < UNKNOWN_KEY_INTERVAL || state.has_just_failed();
            if state.flight.is_none() && (is_asked_lately || !may_begin) {
                let text = format!("the issuer has no key `{}` (`kid`)", shown(id));
                return Err(Refused::Invalid(text));
            }
        } else if state.flight.is_none()
            && let Some((reason, since)) = &state.failure
            && (since.elapsed() < RETRY_INTERVAL || !may_begin)
        {
            let left = RETRY_INTERVAL.saturating_sub(since.elapsed()).as_secs();
            return Err(self.unavailable(reason.clone(), u32::try_from(left).unwrap_or(1).max(1)));
        }
        if let Some(flight) = &state.flight {
            return Ok(Found::Wait(flight.clone()));
        }
        let (landing, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        drop(state);
        let source = self.clone();
        tokio::spawn(async move {
            let outcome = source.0.fetch().await;
            source.landed(outcome);
            drop(landing);
        });
        Ok(Found::Wait(flight))
    }

    fn landed(&self, outcome: anyhow::Result<Keys>) {
        let mut state = self.state();
        state.flight = None;
        match outcome {
            Ok(keys) => {
                state.keys = Some((Arc::new(keys), Instant::now()));
                state.failure = None;
            }
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::warn!(
                    issuer = self.0.issuer,
                    reason,
                    "the keys of an issuer cannot be fetched"
                );
                state.failure = Some((reason, Instant::now()));
            }
        }
    }

    fn unavailable(&self, reason: String, retry_after_seconds: u32) -> Refused {
        Refused::Unavailable { issuer: self.0.issuer.clone(), reason, retry_after_seconds }
    }
}

impl State {
    fn has_just_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(_, since)| since.elapsed() < UNKNOWN_KEY_INTERVAL)
    }
}

impl Inner {
    async fn fetch(&self) -> anyhow::Result<Keys> {
        let url = match &self.place {
            Place::Keys(url) => url.clone(),
            Place::Discovery(url) => {
                let document = self.get(url, DISCOVERY_BYTES_MAX).await?;
                place_of_keys(&document, &self.issuer, url)?
            }
        };
        read_keys(self.get(&url, KEYS_BYTES_MAX).await?)
    }

    /// The JSON at a URL.
    async fn get(&self, url: &Url, bytes_max: usize) -> anyhow::Result<Value> {
        let told = |error: reqwest::Error| {
            let error = error.without_url();
            let causes: String = net::causes(&error).map(|cause| format!(": {cause}")).collect();
            anyhow::anyhow!("{url}: {error}{causes}")
        };
        let mut response = self.client.get(url.clone()).send().await.map_err(told)?;
        let status = response.status();
        ensure!(status == StatusCode::OK, "{url}: it answered {status}");
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            ensure!(
                body.len() + chunk.len() <= bytes_max,
                "{url}: it has more than {bytes_max} bytes"
            );
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body)
            .map_err(|error| anyhow::anyhow!("{url}: it is no JSON: {error}"))
    }
}

/// Where the keys are, by a discovery document: at the same scheme, host and port, as nothing else was named.
fn place_of_keys(document: &Value, issuer: &str, discovery: &Url) -> anyhow::Result<Url> {
    let named = document["issuer"].as_str().unwrap_or_default();
    ensure!(named == issuer, "its discovery document is of the issuer `{}`", shown(named));
    let text = document["jwks_uri"].as_str().unwrap_or_default();
    let Ok(url) = Url::parse(text) else { bail!("its `jwks_uri` is no URL: `{}`", shown(text)) };
    ensure!(
        url.origin() == discovery.origin() && url.username().is_empty(),
        "its keys are at another host (`{}`): name that URL in the configuration, after the issuer's",
        shown(text)
    );
    Ok(url)
}

/// The keys of a set by their ids. Keys of other kinds, and those for other uses, are left out; a set with two keys of one id is
/// refused.
fn read_keys(mut set: Value) -> anyhow::Result<Keys> {
    let Value::Array(items) = set["keys"].take() else { bail!("it has no list `keys`") };
    ensure!(
        items.len() <= KEYS_MAX,
        "it has {} keys: at most {KEYS_MAX} were expected",
        items.len()
    );
    let mut keys = Keys::new();
    for item in items {
        let Ok(jwk) = serde_json::from_value::<Jwk>(item) else { continue };
        let Some((id, key)) = read_key(&jwk) else { continue };
        ensure!(!keys.contains_key(&id), "it has two keys with the id `{}`", shown(&id));
        keys.insert(id, Arc::new(key));
    }
    Ok(keys)
}

/// A key with its id, if it is for one of the three algorithms.
fn read_key(jwk: &Jwk) -> Option<(String, Key)> {
    let id = jwk.common.key_id.clone().filter(|id| !id.is_empty())?;
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    // Symmetric keys are left out: with one, whoever can verify a token can sign one.
    let (algorithm, said) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(it) if it.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(it) if it.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|it| it != said) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(jwk).ok()?;
    Some((id, Key { algorithm, decoding }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_fetched_where_the_issuer_is() {
        let check = |document: Value, expected: Result<&str, &str>| {
            let discovery = Url::parse("https://ci.example/.well-known/openid-configuration");
            let found = place_of_keys(&document, "https://ci.example", &discovery.expect("a URL"));
            match (found, expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
                (Err(error), Err(reason)) => assert!(error.to_string().contains(reason), "{error}"),
                (found, _) => panic!("{found:?}"),
            }
        };
        let keys = |url: &str| json!({"issuer": "https://ci.example", "jwks_uri": url});
        check(keys("https://ci.example/keys"), Ok("https://ci.example/keys"));
        check(keys("https://ci.example:443/keys"), Ok("https://ci.example/keys"));
        check(keys("https://other.example/keys"), Err("another host"));
        check(keys("https://ci.example:8443/keys"), Err("another host"));
        check(keys("http://ci.example/keys"), Err("another host"));
        check(keys("https://user@ci.example/keys"), Err("another host"));
        check(keys("file:///etc/passwd"), Err("another host"));
        check(keys("keys"), Err("no URL"));
        check(json!({"issuer": "https://ci.example"}), Err("no URL"));
        let other = json!({"issuer": "https://ci.example/", "jwks_uri": "https://ci.example/keys"});
        check(other, Err("of the issuer"));
    }

    const X: &str = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";
    const Y: &str = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM";

    fn ids(keys: Value) -> String {
        let mut ids: Vec<String> = match read_keys(json!({"keys": keys})) {
            Ok(keys) => keys.iter().map(|(id, key)| format!("{id} {:?}", key.algorithm)).collect(),
            Err(error) => vec![error.to_string()],
        };
        ids.sort();
        ids.join(", ")
    }

    #[test]
    fn each_key_is_for_one_algorithm() {
        let ec = json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y});
        let with = |changes: Value| {
            let mut key = ec.clone();
            for (name, value) in changes.as_object().expect("an object") {
                key[name] = value.clone();
            }
            key
        };
        let rsa = json!({"kty": "RSA", "kid": "r", "n": X, "e": "AQAB"});
        let ed = json!({"kty": "OKP", "crv": "Ed25519", "kid": "d", "x": X});
        assert_eq!(ids(json!([with(json!({"kid": "e"})), rsa, ed])), "d EdDSA, e ES256, r RS256");
        assert_eq!(
            ids(json!([with(json!({"kid": "e", "alg": "ES256", "use": "sig"}))])),
            "e ES256"
        );
        for left_out in [
            json!({}),
            json!({"kid": ""}),
            json!({"kid": "e", "use": "enc"}),
            json!({"kid": "e", "alg": "RS256"}),
            json!({"kid": "e", "alg": "HS256"}),
            json!({"kid": "e", "crv": "P-384"}),
            json!({"kid": "e", "kty": "oct", "k": "c2VjcmV0"}),
            json!({"kid": "e", "kty": "moon"}),
            json!({"kid": "e", "x": 7}),
        ] {
            assert_eq!(ids(json!([with(left_out.clone())])), "", "{left_out}");
        }
        let twice = json!([with(json!({"kid": "e"})), with(json!({"kid": "e"}))]);
        assert_eq!(ids(twice), "it has two keys with the id `e`");
        let many = json!(vec![rsa; KEYS_MAX + 1]);
        assert_eq!(ids(many), "it has 101 keys: at most 100 were expected");
        assert_eq!(ids(json!({})), "it has no list `keys`");
    }
}
