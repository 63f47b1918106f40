//! Webhooks: URLs that this server posts changes to, and the state of each.
//!
//! a file of the operator -> [`Webhooks::load`], checked -> [`Webhook`]s. A task for each ([`crate::tasks::webhooks`]) posts
//! what its feed has, signed, and notes here what fails. A webhook connects only where [`Egress`] allows it: the address of a
//! name is checked when the connection is made, and redirects are not followed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use account::UserName;
use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use config::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use net::Egress;
use pypi::ProjectName;
use record::{ChangeKind, Serial};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use sha2::Sha256;
use tokio::sync::Notify;

use super::purges::Cache;
use super::shapes::{Filter, WebhookShape};
use super::{Feed, FeedSurface};

/// Webhooks in a file.
const WEBHOOKS_MAX: usize = 64;

/// Bytes of a secret, at least.
const SECRET_BYTES_MIN: usize = 16;

/// Time to connect, and for the whole of a delivery.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// All webhooks of this server.
pub(crate) struct Webhooks {
    all: Vec<Arc<Webhook>>,
    egress: Egress,
    client: Client,
}

/// A URL that gets the changes of a surface.
pub(crate) struct Webhook {
    pub(crate) name: String,
    pub(crate) surface: FeedSurface,
    /// The user whose rights decide which changes are sent; without one, those that everybody may read.
    pub(crate) user: Option<UserName>,
    /// What it is sent.
    pub(crate) shape: WebhookShape,
    /// Which changes it is told of.
    pub(crate) filter: Filter,
    /// Whether a cache may answer once more with what it has while it asks again.
    is_soft: bool,
    url: Url,
    secret: Option<Secret>,
    /// Further headers, such as one with a key for the receiver's API.
    headers: HeaderMap,
    state: Mutex<WebhookState>,
    wake: Notify,
}

/// Deliveries of a webhook that are remembered, and bytes of one that can be sent again.
const DELIVERIES_MAX: usize = 20;
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What a webhook was sent.
#[derive(Clone, Debug)]
pub(crate) enum WebhookBody {
    /// A body.
    Body(Vec<u8>),
    /// The tags of what this cache had to drop.
    Keys(Cache, Vec<String>),
}

impl WebhookBody {
    fn size_bytes(&self) -> usize {
        match self {
            WebhookBody::Body(body) => body.len(),
            WebhookBody::Keys(_, keys) => keys.iter().map(String::len).sum(),
        }
    }
}

/// A delivery, in memory only.
#[derive(Debug)]
pub(crate) struct NotedDelivery {
    /// Counts from 1, in this process.
    pub(crate) number: u64,
    /// The last attempt.
    pub(crate) at: Timestamp,
    /// Its identifier for the receiver.
    pub(crate) name: String,
    pub(crate) size_bytes: usize,
    pub(crate) attempts: u32,
    /// Why it was not taken.
    pub(crate) failure: Option<String>,
    /// To send it again: only if it was taken, so that the receiver knows it already, and is not too long.
    pub(crate) sent: Option<WebhookBody>,
}

/// How a webhook fares.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookState {
    /// The last deliveries, the newest first.
    pub(crate) deliveries: VecDeque<Arc<NotedDelivery>>,
    /// Everything up to this position is delivered, or nothing that it may be told; None until its task has begun.
    pub(crate) position: Option<String>,
    /// Its serial.
    reached: Option<Serial>,
    /// When a delivery was last taken, since the start of the process.
    pub(crate) delivered_at: Option<Timestamp>,
    pub(crate) trouble: Option<DeliveryTrouble>,
}

/// Why nothing is delivered now.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryTrouble {
    pub(crate) since: Timestamp,
    pub(crate) attempts: u32,
    /// When the next attempt begins.
    pub(crate) next_at: Timestamp,
    pub(crate) failure: Failure,
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The public part, for `/readyz?verbose`: it names neither the receiver nor the user.
    pub(crate) shown: String,
    /// The whole failure, for the log and for administrators.
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(shown: &str, detail: impl std::fmt::Display) -> Failure {
        Failure { shown: shown.to_owned(), detail: format!("{shown}: {detail}") }
    }

    fn answered(text: String) -> Failure {
        Failure { shown: text.clone(), detail: text }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure::answered(text.to_owned())
    }
}

/// The file, as the operator writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    webhook: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    url: String,
    surface: String,
    /// Checked later, so that a wrong type is reported together with the value.
    #[serde(default)]
    secret: Option<toml::Value>,
    #[serde(default)]
    shape: Option<String>,
    #[serde(default)]
    soft: bool,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    indexes: Vec<String>,
    #[serde(default)]
    projects: Vec<String>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    user: Option<String>,
}

impl Webhooks {
    /// Reads the file of webhooks; without one there are none.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is not what was expected.
    pub(crate) fn load(path: Option<&Path>, egress: Egress) -> anyhow::Result<Webhooks> {
        let all = match path {
            None => Vec::new(),
            Some(path) => {
                let named = || format!("changes.webhooks_file = {}", path.display());
                let text = std::fs::read_to_string(path).with_context(named)?;
                parse(&text).with_context(named)?
            }
        };
        let client = net::build_client(|| {
            egress.client().connect_timeout(CONNECT_TIMEOUT).timeout(DELIVERY_TIMEOUT)
        })?;
        Ok(Webhooks { all: all.into_iter().map(Into::into).collect(), egress, client })
    }

    pub(crate) fn all(&self) -> &[Arc<Webhook>] {
        &self.all
    }

    /// The webhooks that cannot be reached now, and why.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = (&str, DeliveryTrouble)> {
        self.all.iter().filter_map(|it| Some((it.name.as_str(), it.state().trouble?)))
    }

    /// Posts a body to a webhook. `delivery` is its identifier for the receiver.
    ///
    /// # Errors
    /// Why it did not arrive, or was refused, without the URL.
    pub(crate) async fn post(
        &self,
        webhook: &Webhook,
        delivery: &str,
        body: Vec<u8>,
    ) -> Result<(), Failure> {
        let mut request = self.client.post(webhook.url.clone());
        if let Some(secret) = &webhook.secret {
            let sent_at = Timestamp::now().as_second().to_string();
            request = request
                .header("x-hub-signature-256", signature(secret, &body))
                .header("webhook-id", delivery)
                .header("webhook-signature", dated_signature(secret, delivery, &sent_at, &body))
                .header("webhook-timestamp", sent_at);
        }
        let request = request
            .header("content-type", "application/json")
            .header("x-larder-delivery", delivery)
            .header("x-larder-webhook", &webhook.name)
            .body(body);
        self.send(webhook, request).await
    }

    /// Has a cache drop everything with one of these keys.
    ///
    /// # Errors
    /// As [`Webhooks::post`]; it may have dropped a part.
    pub(crate) async fn purge(
        &self,
        webhook: &Webhook,
        cache: Cache,
        keys: &[String],
    ) -> Result<(), Failure> {
        for purge in cache.requests(keys, webhook.is_soft) {
            let method = Method::from_bytes(purge.method.as_bytes())
                .map_err(|error| Failure::new("its method", error))?;
            let mut request = self.client.request(method, webhook.url.clone());
            for (name, value) in purge.headers {
                request = request.header(name, value);
            }
            if !purge.body.is_empty() {
                request = request.header("content-type", "application/json").body(purge.body);
            }
            self.send(webhook, request).await?;
        }
        Ok(())
    }

    async fn send(&self, webhook: &Webhook, request: RequestBuilder) -> Result<(), Failure> {
        let unreached = |error: String| Failure::new("its receiver cannot be reached", error);
        self.egress.check(&webhook.url).map_err(|error| unreached(error.to_string()))?;
        let request = request.headers(webhook.headers.clone());
        let response = request.send().await.map_err(|error| unreached(net::reason_of(error)))?;
        // The body of the answer is of no use, and may be long.
        match response.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => {
                Err(Failure::answered(format!("it answered {status}: redirects are not followed")))
            }
            status => Err(Failure::answered(format!("it answered {status}"))),
        }
    }
}

impl Webhook {
    fn place(&self) -> MutexGuard<'_, WebhookState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it fares.
    pub(crate) fn state(&self) -> WebhookState {
        self.place().clone()
    }

    /// Notes a failure; `pause` computes the pause from the number of failures in a row. Returns that number, the pause, and
    /// whether this failure differs from the last.
    pub(crate) fn failed(
        &self,
        failure: Failure,
        pause: impl FnOnce(u32) -> Duration,
    ) -> (u32, Duration, bool) {
        let now = Timestamp::now();
        let place = &mut self.place().trouble;
        let (since, before) = place.as_ref().map_or((now, 0), |last| (last.since, last.attempts));
        let attempts = before.saturating_add(1);
        let is_another = place.as_ref().is_none_or(|last| last.failure.shown != failure.shown);
        let pause = pause(attempts);
        let next_at = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        *place = Some(DeliveryTrouble { since, attempts, next_at, failure });
        (attempts, pause, is_another)
    }

    /// Notes that nothing is wrong, and answers whether something was.
    pub(crate) fn succeeded(&self) -> bool {
        self.place().trouble.take().is_some()
    }

    /// Notes that a delivery was taken.
    pub(crate) fn delivered(&self) {
        self.place().delivered_at = Some(Timestamp::now());
    }

    /// Notes an attempt to deliver this. Attempts in a row are one delivery.
    pub(crate) fn noted(&self, name: &str, sent: &WebhookBody, failure: Option<&Failure>) {
        let deliveries = &mut self.place().deliveries;
        let last = deliveries.front();
        let (number, mut attempts) = (last.map_or(0, |last| last.number) + 1, 1);
        if let Some(last) = last.filter(|last| last.failure.is_some() && last.name == name) {
            attempts = last.attempts.saturating_add(1);
            deliveries.pop_front();
        }
        let size_bytes = sent.size_bytes();
        let is_kept = failure.is_none() && size_bytes <= KEPT_BYTES_MAX;
        deliveries.push_front(Arc::new(NotedDelivery {
            number,
            at: Timestamp::now(),
            name: name.to_owned(),
            size_bytes,
            attempts,
            failure: failure.map(|failure| failure.detail.clone()),
            sent: is_kept.then(|| sent.clone()),
        }));
        deliveries.truncate(DELIVERIES_MAX);
    }

    /// Notes where it is.
    pub(crate) fn reached(&self, serial: Serial, position: String) {
        let mut state = self.place();
        (state.reached, state.position) = (Some(serial), Some(position));
    }

    /// How many changes of its feed it was not told of, and for how long: since the first of them, or since nothing can be
    /// delivered.
    pub(crate) fn backlog(&self, feed: &Feed) -> (usize, Duration) {
        let WebhookState { reached, trouble, .. } = self.state();
        let (waiting, first) = reached.map_or((0, None), |reached| feed.waiting(reached));
        let since = first.into_iter().chain(trouble.map(|trouble| trouble.since)).min();
        let lag = since.map(|since| Timestamp::now().duration_since(since));
        (waiting, lag.and_then(|lag| Duration::try_from(lag).ok()).unwrap_or_default())
    }

    /// Ends the pause before the next attempt, if there is one.
    pub(crate) fn try_now(&self) {
        self.wake.notify_waiters();
    }

    /// Waits until the pause is over, or somebody ends it.
    pub(crate) async fn pause(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wake.notified()).await;
    }

    /// The URL without parts that may be secret: scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// The webhooks of a file.
fn parse(text: &str) -> anyhow::Result<Vec<Webhook>> {
    let file: File = toml::from_str(text).map_err(|error| {
        // The text around it may be a secret.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        anyhow::anyhow!("line {line}: {}", error.message())
    })?;
    anyhow::ensure!(
        file.webhook.len() <= WEBHOOKS_MAX,
        "{} webhooks: expected at most {WEBHOOKS_MAX}",
        file.webhook.len()
    );
    let mut names = HashSet::new();
    file.webhook
        .into_iter()
        .map(|entry| {
            let name = entry.name.clone();
            anyhow::ensure!(names.insert(name.clone()), "the webhook `{name}` is there twice");
            checked(entry).with_context(|| format!("the webhook `{}`", name.escape_debug()))
        })
        .collect()
}

/// The filter of an entry.
fn filter(entry: &Entry, surface: FeedSurface) -> anyhow::Result<Filter> {
    let kinds = [ChangeKind::Added, ChangeKind::Changed, ChangeKind::Removed];
    let kind = |text: &String| {
        let found = kinds.into_iter().find(|kind| kind.as_str() == text);
        found.with_context(|| {
            format!("`kinds` has `{}`: expected added, changed or removed", text.escape_debug())
        })
    };
    let types: &[&str] = match surface {
        FeedSurface::Aur => &["package"],
        FeedSurface::Python => &["index", "project", "release", "file"],
        FeedSurface::Articles => &["article", "attachment"],
    };
    for text in &entry.types {
        let expected = types.join(", ");
        let problem = || format!("`types` has `{}`: expected {expected}", text.escape_debug());
        anyhow::ensure!(types.contains(&text.as_str()), problem());
    }
    for (name, list, of) in [
        ("indexes", &entry.indexes, FeedSurface::Python),
        ("projects", &entry.projects, FeedSurface::Python),
        ("prefixes", &entry.prefixes, FeedSurface::Articles),
        ("names", &entry.names, FeedSurface::Aur),
    ] {
        anyhow::ensure!(
            list.is_empty() || of == surface,
            "`{name}` is for the surface {}",
            of.name()
        );
    }
    let index = |text: &String| text.parse().with_context(|| "`indexes`".to_owned());
    let project =
        |text: &String| ProjectName::normalize(text).with_context(|| "`projects`".to_owned());
    Ok(Filter {
        indexes: entry.indexes.iter().map(index).collect::<anyhow::Result<_>>()?,
        projects: entry.projects.iter().map(project).collect::<anyhow::Result<_>>()?,
        prefixes: entry.prefixes.iter().map(|it| it.trim_start_matches('/').to_owned()).collect(),
        names: entry.names.clone(),
        types: entry.types.clone(),
        kinds: entry.kinds.iter().map(kind).collect::<anyhow::Result<_>>()?,
    })
}

fn checked(entry: Entry) -> anyhow::Result<Webhook> {
    let Entry { name, url, surface, .. } = &entry;
    let is_name = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    anyhow::ensure!(is_name, "its name: expected 1 to 64 letters, digits, `-` and `_`");
    let expected = "an http or https URL without user and password";
    let url =
        Url::parse(url).map_err(|error| anyhow::anyhow!("`url`: {error}; expected {expected}"))?;
    let is_usable = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some()
        && url.username().is_empty()
        && url.password().is_none();
    anyhow::ensure!(is_usable, "`url`: expected {expected}");
    let found = FeedSurface::ALL.into_iter().find(|known| known.name() == surface.as_str());
    let surface = found.with_context(|| {
        let names = FeedSurface::ALL.map(FeedSurface::name).join(", ");
        format!("`surface` is `{}`: expected one of {names}", surface.escape_debug())
    })?;
    let filter = filter(&entry, surface)?;
    let Entry { name, secret, shape, soft: is_soft, headers, user, .. } = entry;
    let shape = match shape {
        None => WebhookShape::default(),
        Some(text) => {
            let found = WebhookShape::ALL.into_iter().find(|(name, _)| *name == text);
            let (_, shape) = found.with_context(|| {
                let names = WebhookShape::ALL.map(|(name, _)| name).join(", ");
                format!("`shape` is `{}`: expected one of {names}", text.escape_debug())
            })?;
            shape
        }
    };
    if let WebhookShape::Cache(_) = shape {
        anyhow::ensure!(user.is_none(), "`user`: a cache keeps what everybody may read");
    } else {
        anyhow::ensure!(!is_soft, "`soft` is for the shape of a cache");
    }
    let secret = match secret {
        None if shape == WebhookShape::Changes => anyhow::bail!("missing field `secret`"),
        // The address of a chat is a secret itself.
        None => None,
        Some(toml::Value::String(secret)) => {
            anyhow::ensure!(
                secret.len() >= SECRET_BYTES_MIN,
                "`secret` has {} bytes: expected at least {SECRET_BYTES_MIN}",
                secret.len()
            );
            Some(Secret::new(secret))
        }
        Some(other) => {
            anyhow::bail!("`secret` has the type {}: expected a text in quotes", other.type_str())
        }
    };
    let headers = headers.into_iter().map(|(name, value)| {
        // The value may be a secret.
        let bad = || anyhow::anyhow!("`headers`: `{}` is no header", name.escape_debug());
        let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        Ok((HeaderName::try_from(&name).map_err(|_| bad())?, value))
    });
    let headers = headers.collect::<anyhow::Result<HeaderMap>>()?;
    let user = match user {
        Some(user) => {
            Some(user.parse().with_context(|| format!("`user` is `{}`", user.escape_debug()))?)
        }
        None => None,
    };
    let (state, wake) = (Mutex::default(), Notify::new());
    Ok(Webhook { name, surface, user, shape, filter, is_soft, url, secret, headers, state, wake })
}

/// The signature that GitHub and others use, too: HMAC-SHA256 of the body, in hexadecimal digits.
fn signature(secret: &Secret, body: &[u8]) -> String {
    let key = secret.reveal().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// The signature of Standard Webhooks: of the identifier, the time and the body, in Base64. A secret that begins with `whsec_` is
/// the key in Base64.
fn dated_signature(secret: &Secret, id: &str, sent_at: &str, body: &[u8]) -> String {
    let text = secret.reveal();
    let decoded = text.strip_prefix("whsec_").and_then(|text| BASE64.decode(text).ok());
    let key = decoded.unwrap_or_else(|| text.as_bytes().to_vec());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    for part in [id.as_bytes(), b".", sent_at.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[webhook]]\nname = \"ci\"\nurl = \"https://ci.example/hook\"\nsurface = \"python\"\nsecret = \"0123456789abcdef\"\n";

    #[track_caller]
    fn check_refused(text: &str, says: &str) {
        let error = parse(text).err().expect("it is refused");
        let error = format!("{error:#}");
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("0123456789"), "the secret is not shown: {error}");
    }

    #[test]
    fn a_file_is_checked_before_the_server_starts() {
        let all = parse(GOOD).expect("a good file");
        assert_eq!(
            (all[0].name.as_str(), all[0].surface, &all[0].user),
            ("ci", FeedSurface::Python, &None)
        );
        assert_eq!(parse("").expect("no webhooks").len(), 0);
        check_refused(&format!("{GOOD}{GOOD}"), "`ci` is there twice");
        check_refused(&GOOD.replace("\"ci\"", "\"c/i\""), "its name: expected");
        check_refused(&GOOD.replace("https:", "ftp:"), "`url`: expected an http or https URL");
        check_refused(
            &GOOD.replace("https://", "https://user@"),
            "`url`: expected an http or https URL",
        );
        check_refused(
            &GOOD.replace("python", "pithon"),
            "`surface` is `pithon`: expected one of aur, python, articles",
        );
        check_refused(
            &GOOD.replace("0123456789abcdef", "short"),
            "`secret` has 5 bytes: expected at least 16",
        );
        check_refused(
            &GOOD.replace("\"0123456789abcdef\"", "1012345678901234567"),
            "`secret` has the type integer: expected a text in quotes",
        );
        check_refused(&GOOD.replace("secret =", "secrets ="), "line ");
        check_refused(&format!("{GOOD}user = \"a b\"\n"), "`user` is `a b`");
        check_refused(
            &GOOD.replace("secret = \"0123456789abcdef\"\n", ""),
            "missing field `secret`",
        );
        check_refused(
            &format!("{GOOD}shape = \"round\"\n"),
            "`shape` is `round`: expected one of changes, slack",
        );
        check_refused(&format!("{GOOD}soft = true\n"), "`soft` is for the shape of a cache");
        check_refused(&format!("{GOOD}headers = {{\"a b\" = \"x\"}}\n"), "`a b` is no header");
        let cache =
            format!("{}shape = \"varnish\"\n", GOOD.replace("secret = \"0123456789abcdef\"\n", ""));
        assert_eq!(parse(&cache).expect("a cache")[0].shape, WebhookShape::Cache(Cache::Varnish));
        check_refused(&format!("{cache}user = \"alice\"\n"), "what everybody may read");
    }

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn bodies_are_signed_with_their_time() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let found = dated_signature(&secret, id, "1614265330", body);
        assert_eq!(found, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_filter_fits_its_surface() {
        let with = |more: &str| format!("{GOOD}{more}\n");
        let all =
            parse(&with("indexes = [\"team/dev\"]\nprojects = [\"My.App\"]\nkinds = [\"added\"]"));
        let filter = &all.expect("a good file")[0].filter;
        assert_eq!(filter.projects[0].as_str(), "my-app");
        check_refused(&with("prefixes = [\"guide/\"]"), "`prefixes` is for the surface articles");
        check_refused(
            &with("types = [\"package\"]"),
            "`types` has `package`: expected index, project",
        );
        check_refused(&with("kinds = [\"new\"]"), "`kinds` has `new`: expected added, changed");
        check_refused(&with("indexes = [\"dev\"]"), "`indexes`");
    }

    /// The example of RFC 4231, 4.3, with the key that is too short for a file.
    #[test]
    fn bodies_are_signed_as_others_do() {
        let found = signature(&Secret::new("Jefe"), b"what do ya want for nothing?");
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(found, expected);
    }

    #[test]
    fn the_last_deliveries_are_remembered() {
        let webhook = parse(GOOD).expect("a good file").remove(0);
        let note = |name: &str, bytes: usize, failure: Option<Failure>| {
            webhook.noted(name, &WebhookBody::Body(vec![b'x'; bytes]), failure.as_ref());
        };
        let shown = || {
            let line = |it: &Arc<NotedDelivery>| {
                let again = if it.sent.is_some() { " again" } else { "" };
                format!("{} {}x{}{again}", it.name, it.attempts, it.size_bytes)
            };
            webhook.state().deliveries.iter().map(line).collect::<Vec<_>>().join(", ")
        };
        note("one", 3, None);
        note("two", 4, Some("no".into()));
        note("two", 4, Some("no".into()));
        assert_eq!(shown(), "two 2x4, one 1x3 again");
        note("three", KEPT_BYTES_MAX + 1, None);
        assert_eq!(shown(), "three 1x65537, two 2x4, one 1x3 again");
        note("three", KEPT_BYTES_MAX, None);
        assert!(shown().starts_with("three 1x65536 again, three 1x65537, "), "{}", shown());
        for _ in 0..30 {
            note("more", 1, None);
        }
        let all = webhook.state().deliveries;
        assert_eq!((all.len(), all[0].number > all[1].number), (DELIVERIES_MAX, true));
    }

    #[test]
    fn trouble_is_noted_from_its_beginning() {
        let webhook = parse(GOOD).expect("a good file").remove(0);
        assert!(!webhook.succeeded());
        let failed = |text: &str| {
            let pause = |attempts: u32| Duration::from_secs(attempts.into());
            let (attempts, pause, is_another) = webhook.failed(text.into(), pause);
            assert_eq!(pause, Duration::from_secs(attempts.into()));
            (attempts, is_another)
        };
        assert_eq!((failed("one"), failed("one")), ((1, true), (2, false)));
        // A new failure is reported, although the outage began earlier.
        assert_eq!(
            (failed("two"), failed("two"), failed("one")),
            ((3, true), (4, false), (5, true))
        );
        let trouble = webhook.state().trouble.expect("trouble");
        assert_eq!((trouble.attempts, trouble.failure.shown.as_str()), (5, "one"));
        assert!(trouble.next_at > trouble.since);
        assert!(webhook.succeeded() && webhook.state().trouble.is_none());
    }
}
