//! Webhooks: URLs that this server posts changes to, and the state of each.
//!
//! a file of the operator -> [`Webhooks::load`], checked -> [`Webhook`]s. A task for each ([`crate::tasks::webhooks`]) posts
//! what its feed has, signed, and notes here what fails. A webhook connects only where [`Egress`] allows it: the address of a
//! name is checked when the connection is made, and redirects are not followed.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use account::UserName;
use anyhow::Context;
use config::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use net::Egress;
use reqwest::{Client, Url};
use serde::Deserialize;
use sha2::Sha256;
use tokio::sync::Notify;

use super::Followed;

/// Webhooks in a file.
const WEBHOOKS_MAX: usize = 64;

/// Bytes of a secret, at least.
const SECRET_BYTES_MIN: usize = 16;

/// Time to connect, and for the whole of a delivery.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// All webhooks of this server.
pub(crate) struct Webhooks {
    all: Vec<std::sync::Arc<Webhook>>,
    egress: Egress,
    client: Client,
}

/// A URL that gets the changes of a surface.
pub(crate) struct Webhook {
    pub(crate) name: String,
    pub(crate) surface: Followed,
    /// The user whose rights decide which changes are sent; without one, those that everybody may read.
    pub(crate) user: Option<UserName>,
    url: Url,
    secret: Secret,
    state: Mutex<State>,
    wake: Notify,
}

/// How a webhook fares.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Everything up to this position is delivered, or nothing that it may be told; None until its task has begun.
    pub(crate) position: Option<String>,
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
    secret: toml::Value,
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

    pub(crate) fn all(&self) -> &[std::sync::Arc<Webhook>] {
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
        let unreached = |error: String| Failure::new("its receiver cannot be reached", error);
        self.egress.check(&webhook.url).map_err(|error| unreached(error.to_string()))?;
        let request = self.client.post(webhook.url.clone());
        let request = request
            .header("content-type", "application/json")
            .header("x-hub-signature-256", signature(&webhook.secret, &body))
            .header("x-larder-delivery", delivery)
            .header("x-larder-webhook", &webhook.name)
            .body(body);
        let response = request.send().await.map_err(|error| unreached(told(error)))?;
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
    fn place(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it fares.
    pub(crate) fn state(&self) -> State {
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

    /// Notes where it is.
    pub(crate) fn reached(&self, position: String) {
        self.place().position = Some(position);
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

fn checked(entry: Entry) -> anyhow::Result<Webhook> {
    let Entry { name, url, surface, secret, user } = entry;
    let is_name = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    anyhow::ensure!(is_name, "its name: expected 1 to 64 letters, digits, `-` and `_`");
    let expected = "an http or https URL without user and password";
    let url =
        Url::parse(&url).map_err(|error| anyhow::anyhow!("`url`: {error}; expected {expected}"))?;
    let is_usable = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some()
        && url.username().is_empty()
        && url.password().is_none();
    anyhow::ensure!(is_usable, "`url`: expected {expected}");
    let found = Followed::ALL.into_iter().find(|known| known.name() == surface);
    let surface = found.with_context(|| {
        let names = Followed::ALL.map(Followed::name).join(", ");
        format!("`surface` is `{}`: expected one of {names}", surface.escape_debug())
    })?;
    let toml::Value::String(secret) = secret else {
        anyhow::bail!("`secret` has the type {}: expected a text in quotes", secret.type_str());
    };
    anyhow::ensure!(
        secret.len() >= SECRET_BYTES_MIN,
        "`secret` has {} bytes: expected at least {SECRET_BYTES_MIN}",
        secret.len()
    );
    let user = match user {
        Some(user) => {
            Some(user.parse().with_context(|| format!("`user` is `{}`", user.escape_debug()))?)
        }
        None => None,
    };
    let (secret, state, wake) = (Secret::new(secret), Mutex::default(), Notify::new());
    Ok(Webhook { name, surface, user, url, secret, state, wake })
}

/// The signature that GitHub and others use, too: HMAC-SHA256 of the body, in hexadecimal digits.
fn signature(secret: &Secret, body: &[u8]) -> String {
    let key = secret.reveal().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// The client's error with its causes, without the URL.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
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
            ("ci", Followed::Python, &None)
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
    }

    /// The example of RFC 4231, 4.3, with the key that is too short for a file.
    #[test]
    fn bodies_are_signed_as_others_do() {
        let found = signature(&Secret::new("Jefe"), b"what do ya want for nothing?");
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(found, expected);
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
