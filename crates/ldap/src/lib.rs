//! A directory that knows users, their passwords and their groups: an LDAP server (RFC 4511).
//!
//! name, password -> [`Directory::check`]: the user's DN, a bind with the password, the groups -> [`DirectoryUser`]
//!
//! The bind decides. An empty password is never sent, because directories answer it as they answer anonymous clients. Names are
//! put into filters and DNs as values, not as text. No referral is followed. Time, bytes, entries and groups are bounded; the
//! answers are read without recursion, since with StartTLS the first of them comes before any certificate.

mod ber;
mod connection;
mod dn;
mod filter;
mod message;
mod server_url;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use account::{GroupMap, GroupName, UserName};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use self::connection::{Connection, ConnectionError};
use self::filter::FilterValues;
use self::message::{Outcome, SIZE_LIMIT_EXCEEDED, SUCCESS, Search};

pub use self::dn::{DnTemplate, DnTemplateError};
pub use self::filter::{Filter, FilterError};
pub use self::message::Scope;
pub use self::server_url::{ServerUrl, ServerUrlError};

/// Most groups of one user.
pub const GROUPS_MAX: u32 = 1_000;

/// How long a directory that did not answer is not asked again.
const PAUSE: Duration = Duration::from_secs(5);

/// How to ask a directory.
pub struct Settings {
    /// Its servers; the first that answers is asked.
    pub servers: Vec<ServerUrl>,
    /// Whether `ldap://` is encrypted before anything else is said.
    pub start_tls: bool,
    /// The certificates that sign those of the servers, PEM; without it those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// DN and password that searches are made with; anonymously without.
    pub service: Option<(String, String)>,
    /// Where users are.
    pub users: Users,
    /// Where groups are; without it nobody's groups are asked for.
    pub groups: Option<Groups>,
    /// Time to connect, and for each answer.
    pub timeout: Duration,
}

/// How the DN of a user is found.
pub enum Users {
    /// It is made of the name.
    Template(DnTemplate),
    /// It is searched for.
    Search {
        /// Where.
        base: String,
        /// How deep.
        scope: Scope,
        /// Which entry.
        filter: Filter,
        /// The attribute with the name, which has to be equal to the one that the user gave.
        name_attribute: String,
    },
}

/// How the groups of a user are found.
pub struct Groups {
    /// Where.
    pub base: String,
    /// How deep.
    pub scope: Scope,
    /// Which entries.
    pub filter: Filter,
    /// The attribute with the group's name.
    pub attribute: String,
    /// What the groups mean here.
    pub map: GroupMap,
}

/// A directory, and whether its servers answered lately.
pub struct Directory {
    settings: Settings,
    tls: Option<Arc<ClientConfig>>,
    /// For each server, until when it is not asked.
    paused: Mutex<Vec<Option<Instant>>>,
}

/// A user whose password the directory has accepted. Only [`Directory::check`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUser {
    name: UserName,
    groups: Option<BTreeSet<GroupName>>,
}

/// Why a password could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No server answers.
    #[error("the directory does not answer: {reason}")]
    Unreachable {
        /// Which server, and why.
        reason: String,
        /// When another attempt makes sense.
        retry_after: Duration,
    },
    /// It answers, but not as the configuration expects.
    #[error("the directory's answer is of no use: {0}")]
    Unusable(String),
}

/// What cannot be used to ask a directory.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file with certificates.
    #[error("ldap.ca_file: `{}`: {problem}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The system trusts nobody.
    #[error("this system has no certificates of authorities; set ldap.ca_file: {0}")]
    NoAuthorities(String),
    /// TLS cannot be used at all.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl DirectoryUser {
    /// Somebody whom no directory knows, for tests of decisions: nothing else calls this.
    pub fn without_checking(name: UserName, groups: Option<BTreeSet<GroupName>>) -> DirectoryUser {
        DirectoryUser { name, groups }
    }

    /// Who it is.
    pub fn name(&self) -> &UserName {
        &self.name
    }

    /// The groups here that the directory's groups mean; `None` if it was not asked.
    pub fn groups(&self) -> Option<&BTreeSet<GroupName>> {
        self.groups.as_ref()
    }
}

impl Directory {
    /// A directory; nothing is sent yet.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(settings: Settings) -> Result<Directory, SetupError> {
        let needs_tls = settings.start_tls || settings.servers.iter().any(|it| it.is_ldaps);
        let tls = if needs_tls { Some(Arc::new(tls(&settings)?)) } else { None };
        let paused = Mutex::new(vec![None; settings.servers.len()]);
        Ok(Directory { settings, tls, paused })
    }

    /// Whether the directory knows this user with this password; `None` if not.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn check(
        &self,
        name: &UserName,
        password: &str,
    ) -> Result<Option<DirectoryUser>, Failure> {
        // A bind without a password is an anonymous one, and succeeds. A server in C may end the password at a NUL.
        if password.is_empty() || password.contains('\0') {
            return Ok(None);
        }
        let mut failed = None;
        for (at, server) in self.settings.servers.iter().enumerate() {
            if self.pause(at).is_some() {
                continue;
            }
            // Each step has its own limit; this one is for all of them.
            let limit = self.settings.timeout * 2;
            let asking = timeout(limit, self.ask(server, name, password));
            match asking.await.unwrap_or(Err(ServerFailure::Broken(ConnectionError::Silent(limit))))
            {
                Ok(found) => return Ok(found),
                Err(ServerFailure::Unusable(reason)) => {
                    return Err(Failure::Unusable(format!("{server}: {reason}")));
                }
                Err(ServerFailure::Broken(broken)) => {
                    self.paused()[at] = Some(Instant::now() + PAUSE);
                    failed = Some(format!("{server}: {broken}"));
                }
            }
        }
        let pauses = (0..self.settings.servers.len()).filter_map(|at| self.pause(at));
        let retry_after = pauses.min().unwrap_or(PAUSE);
        let reason = failed.unwrap_or_else(|| "it did not a moment ago".to_owned());
        Err(Failure::Unreachable { reason, retry_after })
    }

    /// How long a server is not asked from now on.
    fn pause(&self, server: usize) -> Option<Duration> {
        let until = self.paused()[server]?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn paused(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(
        &self,
        server: &ServerUrl,
        name: &UserName,
        password: &str,
    ) -> Result<Option<DirectoryUser>, ServerFailure> {
        let tls = self.tls.as_ref().filter(|_| server.is_ldaps || self.settings.start_tls);
        let opening = Connection::open(server, tls, self.settings.timeout);
        let mut connection = opening.await.map_err(ServerFailure::Broken)?;
        let found = self.log_in(&mut connection, name, password).await;
        if !matches!(found, Err(ServerFailure::Broken(_))) {
            connection.end().await;
        }
        found
    }

    async fn log_in(
        &self,
        connection: &mut Connection,
        name: &UserName,
        password: &str,
    ) -> Result<Option<DirectoryUser>, ServerFailure> {
        let Some(dn) = self.dn(connection, name.as_str()).await? else { return Ok(None) };
        let outcome = connection.bind(&dn, password).await?;
        if outcome.is_refusal() {
            tracing::debug!(user = %name, dn, %outcome, "the directory refuses a log-in");
            return Ok(None);
        }
        if outcome.code != SUCCESS {
            return Err(ServerFailure::Unusable(format!("the bind of `{dn}`: {outcome}")));
        }
        let groups = match &self.settings.groups {
            Some(groups) => Some(self.groups(connection, groups, name.as_str(), &dn).await?),
            None => None,
        };
        Ok(Some(DirectoryUser { name: name.clone(), groups }))
    }

    /// The DN of the user with this name; `None` if there is none.
    async fn dn(
        &self,
        connection: &mut Connection,
        name: &str,
    ) -> Result<Option<String>, ServerFailure> {
        let (base, scope, filter, name_attribute) = match &self.settings.users {
            // The directory does not distinguish capitals and other spellings. If it took several, each would be a user here.
            Users::Template(_) if !is_canonical(name) => {
                tracing::debug!(user = name, "with ldap.user_dn, names are in lower case");
                return Ok(None);
            }
            Users::Template(template) => return Ok(Some(template.fill(name))),
            Users::Search { base, scope, filter, name_attribute } => {
                (base, *scope, filter, name_attribute)
            }
        };
        self.bind_service(connection).await?;
        let search = Search {
            base,
            scope,
            filter: filter.encode(FilterValues { name, dn: None }),
            attribute: name_attribute,
            entries_max: 2,
            seconds_max: self.seconds_max(),
        };
        let (mut entries, outcome) = connection.search(&search).await?;
        if ![SUCCESS, SIZE_LIMIT_EXCEEDED].contains(&outcome.code) {
            return Err(ServerFailure::Unusable(format!(
                "the search for users in `{base}`: {outcome}"
            )));
        }
        let is_one = entries.len() == 1 && outcome.code == SUCCESS;
        let Some(entry) = entries.pop().filter(|_| is_one) else {
            tracing::debug!(user = name, "the directory does not have exactly one such user");
            return Ok(None);
        };
        // The name has one spelling here, and a bind without a DN would be an anonymous one.
        if entry.dn.is_empty() || entry.values(name_attribute) != [name] {
            let (dn, names) = (&entry.dn, entry.values(name_attribute));
            tracing::debug!(user = name, dn, ?names, "the directory spells this name differently");
            return Ok(None);
        }
        Ok(Some(entry.dn))
    }

    async fn bind_service(&self, connection: &mut Connection) -> Result<(), ServerFailure> {
        let Some((dn, password)) = &self.settings.service else { return Ok(()) };
        match connection.bind(dn, password).await? {
            Outcome { code: SUCCESS, .. } => Ok(()),
            outcome => {
                Err(ServerFailure::Unusable(format!("the bind of ldap.bind_dn, `{dn}`: {outcome}")))
            }
        }
    }

    async fn groups(
        &self,
        connection: &mut Connection,
        groups: &Groups,
        name: &str,
        dn: &str,
    ) -> Result<BTreeSet<GroupName>, ServerFailure> {
        self.bind_service(connection).await?;
        let Groups { base, scope, filter, attribute, map } = groups;
        let search = Search {
            base,
            scope: *scope,
            filter: filter.encode(FilterValues { name, dn: Some(dn) }),
            attribute,
            entries_max: GROUPS_MAX + 1,
            seconds_max: self.seconds_max(),
        };
        let (entries, outcome) = connection.search(&search).await?;
        let names: Vec<&str> = entries.iter().flat_map(|it| it.values(attribute)).collect();
        // To leave some out would take rights away by chance.
        if outcome.code == SIZE_LIMIT_EXCEEDED || names.len() > GROUPS_MAX as usize {
            let text =
                format!("`{dn}` has more than {GROUPS_MAX} groups: narrow ldap.group_filter");
            return Err(ServerFailure::Unusable(text));
        }
        if outcome.code != SUCCESS {
            return Err(ServerFailure::Unusable(format!(
                "the search for groups in `{base}`: {outcome}"
            )));
        }
        Ok(map.groups(names))
    }

    fn seconds_max(&self) -> u32 {
        u32::try_from(self.settings.timeout.as_secs()).unwrap_or(u32::MAX)
    }
}

/// Why a server could not say whether a password is right.
enum ServerFailure {
    Broken(ConnectionError),
    Unusable(String),
}

impl From<ConnectionError> for ServerFailure {
    fn from(broken: ConnectionError) -> ServerFailure {
        match broken {
            // The server is well; this entry is not. Others need not wait for their log-in because of it.
            ConnectionError::TooMuch => ServerFailure::Unusable(broken.to_string()),
            broken => ServerFailure::Broken(broken),
        }
    }
}

/// Whether a directory takes no other spelling for the same name, except one that is not canonical.
fn is_canonical(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._@".contains(&byte))
}

/// The client's side of TLS: servers have to show a certificate for their name, which a trusted authority has signed.
fn tls(settings: &Settings) -> Result<ClientConfig, SetupError> {
    let mut roots = RootCertStore::empty();
    match &settings.ca_file {
        Some(path) => {
            let error = |problem: String| SetupError::CaFile { path: path.clone(), problem };
            // The library shows the bytes of lines as numbers.
            let damaged = |it| match it {
                pem::Error::Io(it) => error(it.to_string()),
                _ => {
                    error("a certificate in it is cut off or damaged; PEM was expected".to_owned())
                }
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(damaged)? {
                let certificate = certificate.map_err(damaged)?;
                roots.add(certificate).map_err(|it| error(it.to_string()))?;
            }
            if roots.is_empty() {
                return Err(error("it holds no certificate; PEM was expected".to_owned()));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                return Err(SetupError::NoAuthorities(errors.join("; ")));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
