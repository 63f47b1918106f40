//! The security log: who did what from where, for everything that concerns rights.
//!
//! [`of_request`] sets the origin of everything that a request does. A change of a right names its [`Actor`]. Events
//! go to [`tracing`] under [`TARGET`], and from there to standard error or to a file of their own (crate `logging`). No event
//! contains a secret or a part of one. Strangers can cause only a bounded number of lines: there is a maximum for each kind of
//! event and for each client. The next line of that kind says how many were left out.

mod changes;

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use account::{AuthMethod, Principal, TokenId};
use config::Config;
use net::{ClientAddress, ClientKey};
use passwords::{Budgets, Subject, ThrottlingEnded};

pub use changes::changes;

/// The target of events in the security log.
pub const TARGET: &str = "larder::security";

/// Most characters of a client's text that are shown.
const TEXT_CHARACTERS_MAX: usize = 80;

/// The window of the bounds on lines, in milliseconds.
const WINDOW_MILLISECONDS: u64 = 600_000;

/// Most lines about failed logins of one client in [`WINDOW_MILLISECONDS`].
const CLIENT_LINES: u32 = 20;

/// Most clients that are counted separately for that.
const CLIENTS_MAX: usize = 16_384;

/// The kinds of events that strangers can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LoginFailed,
    LoggedIn,
    ThrottlingBegan,
    ThrottlingEnded,
    MintRefused,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::LoginFailed,
        Kind::LoggedIn,
        Kind::ThrottlingBegan,
        Kind::ThrottlingEnded,
        Kind::MintRefused,
    ];

    /// Most lines of a kind in [`WINDOW_MILLISECONDS`].
    const LINES: u32 = 1_000;
}

/// Bounds the lines that strangers can cause in the log.
pub struct SecurityLog {
    epoch: Instant,
    hasher: RandomState,
    state: Mutex<LineBudgets>,
}

/// The lines written recently.
struct LineBudgets {
    kinds: [(Budgets, u64); Kind::ALL.len()],
    clients: Budgets,
}

impl LineBudgets {
    fn new() -> LineBudgets {
        let kind = |_| (Budgets::new(Kind::LINES, WINDOW_MILLISECONDS, 1), 0);
        let clients = Budgets::new(CLIENT_LINES, WINDOW_MILLISECONDS, CLIENTS_MAX);
        LineBudgets { kinds: Kind::ALL.map(kind), clients }
    }

    /// Whether a line of this kind may be written now; if so, how many were left out before it.
    fn line(&mut self, kind: Kind, client: Option<u64>, now: u64) -> Option<u64> {
        let (budget, left_out) = &mut self.kinds[kind as usize];
        let client_is_full = client.is_some_and(|client| self.clients.wait(client, now) > 0);
        if client_is_full || budget.wait(0, now) > 0 {
            *left_out += 1;
            return None;
        }
        budget.take(0, now);
        if let Some(client) = client {
            self.clients.take(client, now);
        }
        Some(std::mem::take(left_out))
    }
}

impl Default for SecurityLog {
    fn default() -> SecurityLog {
        let state = Mutex::new(LineBudgets::new());
        SecurityLog { epoch: Instant::now(), hasher: RandomState::new(), state }
    }
}

impl SecurityLog {
    fn line(&self, kind: Kind, client: Option<ClientKey>) -> Option<u64> {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let client = client.map(|client| self.hasher.hash_one(client));
        self.state.lock().unwrap_or_else(PoisonError::into_inner).line(kind, client, now)
    }

    /// Logs that credentials were refused. `account` is the account that they claim, as it was sent.
    pub fn login_failed(&self, account: Option<&str>, reason: &'static str) {
        let client = client();
        let Some(left_out) = self.line(Kind::LoginFailed, Some(client.key())) else { return };
        tracing::warn!(
            target: TARGET,
            event = "login_failed",
            account = account.map(shown),
            client = %client,
            reason,
            left_out = some(left_out),
            "a login failed"
        );
    }

    /// Logs that a user got a login for a password.
    pub fn logged_in(&self, account: &str) {
        let Some(left_out) = self.line(Kind::LoggedIn, None) else { return };
        tracing::info!(
            target: TARGET,
            event = "login",
            account = shown(account),
            client = %client(),
            left_out = some(left_out),
            "a user logged in"
        );
    }

    /// Logs that somebody showed a token that they had found, which revoked it. `url`: where, as they say.
    pub fn token_found(&self, token: TokenId, owner: &str, url: Option<&str>) {
        tracing::warn!(
            target: TARGET,
            event = "token_found",
            account = shown(owner),
            %token,
            url = url.map(shown),
            client = %client(),
            "a token was found where others can read it, and is revoked"
        );
    }

    /// Logs that somebody else has identified a user: the directory, or a proxy.
    pub fn identified_elsewhere(&self, account: &str, by: &'static str) {
        let Some(left_out) = self.line(Kind::LoggedIn, None) else { return };
        tracing::info!(
            target: TARGET,
            event = "identified",
            account = shown(account),
            by,
            client = %client(),
            left_out = some(left_out),
            "a user was identified elsewhere"
        );
    }

    /// Logs that a user logged in at an identity provider. `is_new`: the user was made by that.
    pub fn logged_in_at(&self, provider: &str, account: &str, is_new: bool) {
        let Some(left_out) = self.line(Kind::LoggedIn, None) else { return };
        tracing::info!(
            target: TARGET,
            event = "login",
            account = shown(account),
            provider,
            is_new,
            client = %client(),
            left_out = some(left_out),
            "a user logged in at an identity provider"
        );
    }

    /// Logs that somebody who came from an identity provider was not logged in. `identity`: who they are there, if it has signed it.
    pub fn provider_refused(&self, provider: &str, identity: Option<&str>, detail: &str) {
        let client = client();
        let Some(left_out) = self.line(Kind::LoginFailed, Some(client.key())) else { return };
        tracing::warn!(
            target: TARGET,
            event = "login_failed",
            provider,
            identity = identity.map(shown),
            client = %client,
            reason = "provider",
            detail,
            left_out = some(left_out),
            "a log-in at an identity provider failed"
        );
    }

    /// Logs that a CI job got no upload token. `called`: its identity, if an issuer has signed it; `nearest`: the publisher that
    /// is most like it, and in what they differ.
    pub fn mint_refused(&self, called: Option<&str>, reason: &str, nearest: Option<&str>) {
        let client = client();
        let Some(left_out) = self.line(Kind::MintRefused, Some(client.key())) else { return };
        tracing::warn!(
            target: TARGET,
            event = "mint_refused",
            identity = called,
            client = %client,
            reason,
            nearest,
            left_out = some(left_out),
            "a CI job got no upload token"
        );
    }

    /// Logs that throttling of a client or an account has begun.
    pub fn throttling_began(&self, subject: &Subject, wait_seconds: u64) {
        let Some(left_out) = self.line(Kind::ThrottlingBegan, None) else { return };
        tracing::warn!(
            target: TARGET,
            event = "throttling_began",
            by = subject.by.map_or("many", |bound| bound.name()),
            account = subject.account.as_deref().map(shown),
            client = subject.client,
            wait_seconds,
            left_out = some(left_out),
            "wrong passwords are throttled"
        );
    }

    /// Logs that throttling of a client or an account has ended.
    pub fn throttling_ended(&self, ended: &ThrottlingEnded) {
        let Some(left_out) = self.line(Kind::ThrottlingEnded, None) else { return };
        tracing::info!(
            target: TARGET,
            event = "throttling_ended",
            by = ended.subject.by.map_or("many", |bound| bound.name()),
            account = ended.subject.account.as_deref().map(shown),
            client = ended.subject.client,
            refused = ended.refused,
            seconds = ended.seconds,
            left_out = some(left_out),
            "wrong passwords are no longer throttled"
        );
    }
}

fn some(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// A client's text in the form that is logged: on one line, without invisible characters, and shortened.
fn shown(text: &str) -> String {
    record::shortened(text, TEXT_CHARACTERS_MAX).escape_debug().to_string()
}

/// Where the current request comes from.
#[derive(Clone)]
struct Origin {
    client: ClientAddress,
    is_identified: Arc<AtomicBool>,
}

tokio::task_local! {
    static ORIGIN: Origin;
}

/// Runs `answering`, which answers a request of `client`.
pub async fn of_request<T>(client: ClientAddress, answering: impl Future<Output = T>) -> T {
    ORIGIN.scope(Origin { client, is_identified: Arc::default() }, answering).await
}

/// Remembers that the sender of the request is known.
pub fn identified(principal: &Principal) {
    if principal.identity().is_some() {
        // Outside of a request there is nothing to remember.
        let _ = ORIGIN.try_with(|origin| origin.is_identified.store(true, Relaxed));
    }
}

/// Whether the sender of the request is known.
pub fn is_identified() -> bool {
    ORIGIN.try_with(|origin| origin.is_identified.load(Relaxed)).unwrap_or_default()
}

/// The client that sent the request; outside of a request, this machine.
pub fn client() -> ClientAddress {
    ORIGIN.try_with(|origin| origin.client).unwrap_or(ClientAddress::Unix)
}

/// Who did something, from where, and how the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    by: String,
    means: String,
    client: Option<String>,
}

impl Actor {
    /// The sender of a request.
    pub fn of_client(proved: &Principal, client: ClientAddress) -> Actor {
        let (by, means) = match proved {
            Principal::User(identity) => (identity.user.name.to_string(), means(&identity.means)),
            Principal::Publisher(token) => {
                (token.identity.name(), format!("upload token {}", token.id))
            }
            Principal::Anonymous => ("anonymous".to_owned(), "none".to_owned()),
        };
        Actor { by, means, client: Some(client.to_string()) }
    }

    /// The user who runs this command.
    pub fn of_command() -> Actor {
        let by = format!("uid {}", rustix::process::getuid().as_raw());
        Actor { by, means: "command line".to_owned(), client: None }
    }

    /// The server itself.
    pub fn of_server() -> Actor {
        Actor { by: "server".to_owned(), means: "machine".to_owned(), client: None }
    }
}

fn means(means: &AuthMethod) -> String {
    match means {
        AuthMethod::Password => "password".to_owned(),
        AuthMethod::Login { .. } => "login".to_owned(),
        AuthMethod::Token(id) => format!("token {id}"),
        AuthMethod::Session { .. } => "session".to_owned(),
        AuthMethod::Machine => "machine".to_owned(),
    }
}

/// Logs the rights that the configuration grants.
pub fn configured(config: &Config) {
    tracing::info!(
        target: TARGET,
        event = "rights_configured",
        article_acl_read = %config.article.acl_read,
        article_acl_write = %config.article.acl_write,
        restrict_modify = %config.python.restrict_modify,
        acl_push_outside = %config.python.acl_push_outside,
        strangers_may_register = config.users.may_register,
        devpi_defaults = config.python.devpi_defaults,
        "rights by the configuration"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_and_a_client_have_so_many_lines() {
        let mut flow = LineBudgets::new();
        let mut lines = |kind, client, now, count: u32| {
            let lines = (0..count).filter_map(|_| flow.line(kind, client, now));
            let lines: Vec<u64> = lines.collect();
            (lines.len() as u32, lines.first().copied().unwrap_or_default())
        };
        assert_eq!(lines(Kind::LoginFailed, Some(1), 0, 100), (CLIENT_LINES, 0));
        assert_eq!(lines(Kind::LoginFailed, Some(2), 0, 5), (5, 80), "others have theirs");
        assert_eq!(lines(Kind::LoggedIn, None, 0, 5_000), (Kind::LINES, 0));
        let later = WINDOW_MILLISECONDS / u64::from(Kind::LINES);
        assert_eq!(lines(Kind::LoggedIn, None, later, 10), (1, 4_000), "what was left out is told");
        for client in 10..5_000 {
            lines(Kind::LoginFailed, Some(client), 0, 1);
        }
        assert_eq!(lines(Kind::LoginFailed, Some(9_999), 0, 1).0, 0);
        assert_eq!(lines(Kind::ThrottlingBegan, None, 0, 1), (1, 0), "other kinds have theirs");
    }

    #[test]
    fn texts_are_clean_and_short() {
        assert_eq!(shown("alice"), "alice");
        assert_eq!(shown("a\nb\u{1b}[0m\u{202e}c\0"), "a\\nb\\u{1b}[0m\\u{202e}c\\0");
        assert_eq!(shown(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
    }

    #[tokio::test]
    async fn a_request_has_an_origin() {
        let address = ClientAddress::Ip("192.0.2.1".parse().expect("an address"));
        let stranger = Actor::of_client(&Principal::Anonymous, address);
        assert_eq!((stranger.by.as_str(), stranger.means.as_str()), ("anonymous", "none"));
        of_request(address, async {
            assert!(!is_identified());
            let user = account::User::new("alice".parse().expect("a name"), jiff::Timestamp::now());
            let principal = Principal::on_the_machine(Arc::new(user));
            identified(&principal);
            assert!(is_identified());
            let doer = Actor::of_client(&principal, client());
            assert_eq!((doer.by.as_str(), doer.client.as_deref()), ("alice", Some("192.0.2.1")));
        })
        .await;
        assert!(!is_identified());
    }
}
