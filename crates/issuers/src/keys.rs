//! [`Source`]: the keys and the endpoints of one issuer, fetched when they are needed.
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

use super::endpoints::{Endpoints, Hosts};
use super::{TokenRefusal, shown};

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

/// What one fetch brings.
struct FetchedKeys {
    keys: Keys,
    /// What the discovery document says of log-ins; `None` if none was asked for.
    endpoints: Option<Arc<Endpoints>>,
}

/// What is needed of it.
#[derive(Clone, Copy)]
enum KeyNeed<'text> {
    /// The key with this id.
    Key(&'text str),
    /// The endpoints.
    Endpoints,
}

/// The keys of an issuer. Cheap to clone.
#[derive(Clone)]
pub(super) struct Source(Arc<Inner>);

struct Inner {
    issuer: String,
    place: KeyLocation,
    hosts: Hosts,
    client: Client,
    state: Mutex<CacheState>,
    waiting: Semaphore,
}

/// Where the keys are.
enum KeyLocation {
    /// The configuration says.
    Keys(Url),
    /// The discovery document at this URL says.
    Discovery(Url),
}

#[derive(Default)]
struct CacheState {
    fetched: Option<(Arc<FetchedKeys>, Instant)>,
    /// The last failure since then.
    failure: Option<(String, Instant)>,
    /// The fetch that is under way; it is dropped when that ends.
    flight: Option<watch::Receiver<()>>,
}

/// What a request finds.
enum KeyLookup {
    Here(Arc<FetchedKeys>),
    Wait(watch::Receiver<()>),
}

impl Source {
    /// The source of the issuer with this URL. Its keys are at `jwks_url`, else where its discovery document says: on its own
    /// host, or on one of `hosts`.
    pub(super) fn new(
        issuer: &str,
        jwks_url: Option<&str>,
        hosts: &[String],
        egress: &Egress,
    ) -> anyhow::Result<Source> {
        let url = |text: &str| Url::parse(text).with_context(|| format!("`{text}` is no URL"));
        let place = match jwks_url {
            Some(text) => KeyLocation::Keys(url(text)?),
            None => {
                let base = issuer.trim_end_matches('/');
                KeyLocation::Discovery(url(&format!("{base}/.well-known/openid-configuration"))?)
            }
        };
        let (KeyLocation::Keys(named) | KeyLocation::Discovery(named)) = &place;
        // The operator names the host, so it may be a private one. The client follows no redirects.
        let egress = egress.clone().naming(named.host_str().unwrap_or_default());
        egress.check(named)?;
        let hosts = Hosts::new(named, hosts);
        let client = net::build_client(|| {
            egress.client().connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT)
        })?;
        Ok(Source(Arc::new(Inner {
            issuer: issuer.to_owned(),
            place,
            hosts,
            client,
            state: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
        })))
    }

    /// The key with this id.
    pub(super) async fn key(&self, id: &str) -> Result<Arc<Key>, TokenRefusal> {
        let fetched = self.fetched(KeyNeed::Key(id)).await?;
        fetched.keys.get(id).cloned().ok_or_else(|| no_key(id))
    }

    /// The endpoints that the discovery document names.
    pub(super) async fn endpoints(&self) -> Result<Arc<Endpoints>, TokenRefusal> {
        let fetched = self.fetched(KeyNeed::Endpoints).await?;
        let none = || self.unavailable("no discovery document is asked".to_owned(), 60);
        fetched.endpoints.clone().ok_or_else(none)
    }

    /// The client that reaches the issuer, and nothing that is not public besides.
    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    async fn fetched(&self, need: KeyNeed<'_>) -> Result<Arc<FetchedKeys>, TokenRefusal> {
        let mut flight = match self.look(need, true)? {
            KeyLookup::Here(fetched) => return Ok(fetched),
            KeyLookup::Wait(flight) => flight,
        };
        let Ok(_place) = self.0.waiting.try_acquire() else {
            return Err(self.unavailable("too many requests wait for them".to_owned(), 1));
        };
        // The sender is dropped when the fetch has ended.
        let ended = async { while flight.changed().await.is_ok() {} };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            return Err(self.unavailable("the issuer is slow".to_owned(), 5));
        }
        match self.look(need, false)? {
            KeyLookup::Here(fetched) => Ok(fetched),
            KeyLookup::Wait(_) => {
                Err(self.unavailable("they are being fetched again".to_owned(), 1))
            }
        }
    }

    /// Fetches the keys, whatever is in memory, and counts them.
    pub(super) async fn try_keys(&self) -> anyhow::Result<usize> {
        Ok(self.0.fetch().await?.keys.len())
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was fetched, or the fetch to wait for, which is begun if there is a reason and it `may_begin`.
    fn look(&self, need: KeyNeed<'_>, may_begin: bool) -> Result<KeyLookup, TokenRefusal> {
        let mut state = self.state();
        // A fetch that has panicked has not landed.
        state.flight.take_if(|flight| flight.has_changed().is_err());
        let fresh = state.fetched.as_ref().filter(|(_, since)| since.elapsed() < FRESH_FOR);
        if let Some((fetched, since)) = fresh {
            let id = match need {
                KeyNeed::Key(id) if !fetched.keys.contains_key(id) => id,
                KeyNeed::Key(_) | KeyNeed::Endpoints => {
                    return Ok(KeyLookup::Here(fetched.clone()));
                }
            };
            let is_asked_lately = since.elapsed() < UNKNOWN_KEY_INTERVAL || state.has_just_failed();
            if state.flight.is_none() && (is_asked_lately || !may_begin) {
                return Err(no_key(id));
            }
        } else if state.flight.is_none()
            && let Some((reason, since)) = &state.failure
            && (since.elapsed() < RETRY_INTERVAL || !may_begin)
        {
            let left = RETRY_INTERVAL.saturating_sub(since.elapsed()).as_secs();
            return Err(self.unavailable(reason.clone(), u32::try_from(left).unwrap_or(1).max(1)));
        }
        if let Some(flight) = &state.flight {
            return Ok(KeyLookup::Wait(flight.clone()));
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
        Ok(KeyLookup::Wait(flight))
    }

    fn landed(&self, outcome: anyhow::Result<FetchedKeys>) {
        let mut state = self.state();
        state.flight = None;
        match outcome {
            Ok(fetched) => {
                state.fetched = Some((Arc::new(fetched), Instant::now()));
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

    pub(super) fn unavailable(&self, reason: String, retry_after_seconds: u32) -> TokenRefusal {
        TokenRefusal::Unavailable { issuer: self.0.issuer.clone(), reason, retry_after_seconds }
    }
}

impl CacheState {
    fn has_just_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(_, since)| since.elapsed() < UNKNOWN_KEY_INTERVAL)
    }
}

impl Inner {
    async fn fetch(&self) -> anyhow::Result<FetchedKeys> {
        let (url, endpoints) = match &self.place {
            KeyLocation::Keys(url) => (url.clone(), None),
            KeyLocation::Discovery(url) => {
                let document = self.get(url, DISCOVERY_BYTES_MAX).await?;
                let keys = place_of_keys(&document, &self.issuer, &self.hosts)?;
                (keys, Some(Arc::new(Endpoints::of(&document, &self.hosts))))
            }
        };
        let keys = read_keys(self.get(&url, KEYS_BYTES_MAX).await?)?;
        Ok(FetchedKeys { keys, endpoints })
    }

    /// The JSON at a URL.
    async fn get(&self, url: &Url, bytes_max: usize) -> anyhow::Result<Value> {
        let (status, value) = json_of(self.client.get(url.clone()), url, bytes_max).await?;
        ensure!(status == StatusCode::OK, "{url}: it answered {status}");
        value
    }
}

/// Sends a request: the status of the answer, and its JSON, of which at most so many bytes are read.
///
/// # Errors
/// There is no answer, or a larger one.
pub(super) async fn json_of(
    request: reqwest::RequestBuilder,
    url: &Url,
    bytes_max: usize,
) -> anyhow::Result<(StatusCode, anyhow::Result<Value>)> {
    let told = |error| anyhow::anyhow!("{url}: {}", net::reason_of(error));
    let mut response = request.send().await.map_err(told)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        ensure!(body.len() + chunk.len() <= bytes_max, "{url}: it has more than {bytes_max} bytes");
        body.extend_from_slice(&chunk);
    }
    let value = serde_json::from_slice(&body);
    Ok((status, value.map_err(|error| anyhow::anyhow!("{url}: it is no JSON: {error}"))))
}

fn no_key(id: &str) -> TokenRefusal {
    TokenRefusal::Invalid(format!("the issuer has no key `{}` (`kid`)", shown(id)))
}

/// Where the keys are, by a discovery document.
fn place_of_keys(document: &Value, issuer: &str, hosts: &Hosts) -> anyhow::Result<Url> {
    let named = document["issuer"].as_str().unwrap_or_default();
    ensure!(named == issuer, "its discovery document is of the issuer `{}`", shown(named));
    let text = document["jwks_uri"].as_str().unwrap_or_default();
    let Ok(url) = Url::parse(text) else { bail!("its `jwks_uri` is no URL: `{}`", shown(text)) };
    ensure!(
        hosts.admit(&url),
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
            let hosts = Hosts::new(&discovery.expect("a URL"), &["keys.example".to_owned()]);
            let found = place_of_keys(&document, "https://ci.example", &hosts);
            match (found, expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
                (Err(error), Err(reason)) => assert_eq!(error.to_string(), reason),
                (found, _) => panic!("{found:?}"),
            }
        };
        let keys = |url: &str| json!({"issuer": "https://ci.example", "jwks_uri": url});
        check(keys("https://ci.example/keys"), Ok("https://ci.example/keys"));
        check(keys("https://ci.example:443/keys"), Ok("https://ci.example/keys"));
        check(keys("https://keys.example/keys"), Ok("https://keys.example/keys"));
        let check_elsewhere = |url: &str| {
            let place = format!("its keys are at another host (`{url}`)");
            let advice = "name that URL in the configuration, after the issuer's";
            check(keys(url), Err(&format!("{place}: {advice}")));
        };
        check_elsewhere("https://keys.example:8443/keys");
        check_elsewhere("http://keys.example/keys");
        check_elsewhere("https://other.example/keys");
        check_elsewhere("https://ci.example:8443/keys");
        check_elsewhere("http://ci.example/keys");
        check_elsewhere("https://user@ci.example/keys");
        check_elsewhere("file:///etc/passwd");
        check(keys("keys"), Err("its `jwks_uri` is no URL: `keys`"));
        check(json!({"issuer": "https://ci.example"}), Err("its `jwks_uri` is no URL: ``"));
        let other = json!({"issuer": "https://ci.example/", "jwks_uri": "https://ci.example/keys"});
        check(other, Err("its discovery document is of the issuer `https://ci.example/`"));
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
