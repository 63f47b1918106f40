//! [`Directory`]: the directory of `[ldap]`, what it said lately, and what is counted of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use account::{Password, UserName};
use anyhow::Context as _;
use config::Config;
use ldap::{DirectoryUser, Failure};
use net::ClientKey;
use passwords::{NotAsked, Passwords, RemotePasswords};
use prometheus::{Histogram, IntCounterVec};

use crate::metrics::Metrics;

/// Failures are logged at most this often: strangers can cause them.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// The directory that knows users.
pub(crate) struct Directory {
    asked: RemotePasswords<Arc<AcceptedPassword>, Failure>,
    line: Arc<DirectoryClient>,
}

/// A password that the directory has accepted. It is remembered from then on, even if the client leaves before its user and groups are
/// noted in the store; then the next log-in notes them.
pub(crate) struct AcceptedPassword {
    pub(crate) proof: DirectoryUser,
    is_noted: AtomicBool,
}

impl AcceptedPassword {
    pub(crate) fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_noted(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
    }
}

/// What a question needs while it is asked.
struct DirectoryClient {
    directory: ldap::Directory,
    logins: IntCounterVec,
    seconds: Histogram,
    logged_at: Mutex<Option<Instant>>,
}

impl Directory {
    /// The directory of this configuration; `None` if none is named. Nothing is sent yet.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub(crate) fn of(
        config: &Config,
        passwords: &Passwords,
        metrics: &Metrics,
    ) -> anyhow::Result<Option<Directory>> {
        let Some(settings) = config.ldap.directory() else { return Ok(None) };
        let ldap = &config.ldap;
        let asked = RemotePasswords::new(
            passwords,
            ldap.at_once_max,
            ldap.remember,
            ldap.timeout,
            metrics.ldap_waiting.clone(),
        );
        let line = DirectoryClient {
            directory: ldap::Directory::new(settings).context("the directory cannot be asked")?,
            logins: metrics.ldap_logins.clone(),
            seconds: metrics.ldap_seconds.clone(),
            logged_at: Mutex::default(),
        };
        Ok(Some(Directory { asked, line: Arc::new(line) }))
    }

    /// What the directory says of this password; `None` if it is wrong. It is asked if it did not say so a moment ago.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub(crate) async fn check(
        &self,
        user: &UserName,
        password: &Password,
        client: ClientKey,
    ) -> Result<Option<Arc<AcceptedPassword>>, NotAsked<Failure>> {
        let ask = || {
            let (line, user, password) = (self.line.clone(), user.clone(), password.clone());
            async move {
                let proof = line.ask(&user, &password).await?;
                let accepted = |proof| Arc::new(AcceptedPassword { proof, is_noted: false.into() });
                Ok(proof.map(accepted))
            }
        };
        self.asked.check(user, password, client, ask).await
    }
}

impl DirectoryClient {
    async fn ask(
        &self,
        user: &UserName,
        password: &Password,
    ) -> Result<Option<DirectoryUser>, Failure> {
        let timer = self.seconds.start_timer();
        let told = self.directory.check(user, password.reveal()).await;
        timer.observe_duration();
        let result = match &told {
            Ok(Some(_)) => "right",
            Ok(None) => "wrong",
            Err(_) => "failed",
        };
        self.logins.with_label_values(&[result]).inc();
        if let Err(failure) = &told
            && self.may_log()
        {
            tracing::warn!(%failure, "the directory could not check a password");
        }
        told
    }

    fn may_log(&self) -> bool {
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        let may_log = logged_at.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
        if may_log {
            *logged_at = Some(Instant::now());
        }
        may_log
    }
}
