//! [`Principal`]: the sender of a request.

use std::sync::Arc;

use jiff::Timestamp;
use record::{Digest, Expected, Key, Serial};

use crate::identify::{admitted, by_session, upload_token};
use crate::{
    GroupName, Limits, LoginTokenError, Object, Refusal, Restriction, Scope, Scopes, Snapshot,
    TokenId, UploadToken, User, UserName, session_key, token_key, upload_token_key, user_key,
};

/// The sender of a request, while that is answered. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Principal {
    /// Somebody who did not say, or whose credentials did not hold.
    #[default]
    Anonymous,
    /// A user who proved it.
    User(Identity),
    /// A job of a CI system, with its upload token. It is no user: it may upload what an index names its identity for, and
    /// otherwise do what anonymous clients may.
    Publisher(Arc<UploadToken>),
}

/// A user who proved it, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user, as of the snapshot that was asked.
    pub user: Arc<User>,
    /// How the sender proved it.
    pub means: AuthMethod,
    /// What the credentials may be used for: [`Scopes::ALL`] except for tokens.
    pub scopes: Scopes,
    /// What the credentials are limited to; `None` except for limited tokens.
    pub limits: Option<Arc<Limits>>,
}

/// How a sender proved who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// Their password.
    Password,
    /// A login, which they got for their password a while ago.
    Login {
        /// When it expires.
        expires_at: Timestamp,
    },
    /// A token.
    Token(TokenId),
    /// The session of a browser.
    Session {
        /// The SHA-256 of its secret.
        secret_digest: Digest,
        /// The commit that wrote the user's sessions.
        serial: Serial,
    },
    /// Access to the machine: the command line.
    Machine,
}

impl Principal {
    /// `user` on their own behalf, with nothing to limit them: for the command line, and for tests.
    pub fn on_the_machine(user: Arc<User>) -> Principal {
        Principal::User(Identity {
            user,
            means: AuthMethod::Machine,
            scopes: Scopes::ALL,
            limits: None,
        })
    }

    /// This sender as of a later snapshot, at `now`. The credentials are not sent again, but they must still be valid: the user
    /// exists and is not disabled, the password or login is still the user's, the token exists and has not expired. Groups,
    /// scopes and limits are those of `snapshot`. This costs a few lookups: no password is hashed.
    ///
    /// # Errors
    /// [`Refusal`]: the credentials are no longer valid.
    pub fn as_of(&self, snapshot: &Snapshot, now: Timestamp) -> Result<Principal, Refusal> {
        let proved = match self {
            Principal::User(proved) => proved,
            Principal::Publisher(token) => {
                let found = snapshot.upload_token_of(&token.proof);
                let found = found.ok_or(Refusal::TokenUnknown { id: token.id })?;
                upload_token(found, &token.secret_digest, now)?;
                return Ok(Principal::Publisher(found.clone()));
            }
            Principal::Anonymous => return Ok(Principal::Anonymous),
        };
        let name = &proved.user.name;
        let found = snapshot.user(name).filter(|user| user.created_at == proved.user.created_at);
        let with_same_password =
            found.filter(|user| user.password_hash == proved.user.password_hash);
        let (user, scopes, limits) = match proved.means {
            AuthMethod::Password => (with_same_password, Scopes::ALL, None),
            AuthMethod::Machine => (found, Scopes::ALL, None),
            AuthMethod::Login { expires_at } if expires_at <= now => {
                let user = name.clone();
                return Err(LoginTokenError::Expired { user, expired_at: expires_at }.into());
            }
            AuthMethod::Login { .. } => {
                let ended = || LoginTokenError::Ended { user: name.clone() };
                (Some(with_same_password.ok_or_else(ended)?), Scopes::ALL, None)
            }
            AuthMethod::Session { secret_digest, .. } => {
                let ended = || Refusal::SessionEnded { user: name.clone() };
                let user = with_same_password.ok_or_else(ended)?;
                let identity = by_session(snapshot, &user.name, &secret_digest, now)?;
                return Ok(Principal::User(identity));
            }
            AuthMethod::Token(id) => {
                let token = snapshot.token(id);
                let token = token.filter(|token| found.is_some_and(|user| token.belongs_to(user)));
                let token = token.ok_or(Refusal::TokenUnknown { id })?;
                if let Some(expired_at) = token.expires_at.filter(|_| token.is_expired(now)) {
                    return Err(Refusal::TokenExpired { id, expired_at });
                }
                (found, token.scopes, token.limits.clone())
            }
        };
        let user = user.ok_or_else(|| Refusal::Password { user: name.clone() })?;
        admitted(user, proved.means.clone(), scopes, limits).map(Principal::User)
    }

    /// The records that this proof depends on, as of its snapshot: if one of them changes, [`Principal::as_of`] must be called
    /// again. Empty if anonymous.
    pub fn rests_on(&self) -> Vec<(Key, Expected)> {
        let identity = match self {
            Principal::User(identity) => identity,
            Principal::Publisher(token) => {
                return vec![(upload_token_key(&token.proof), Expected::Present)];
            }
            Principal::Anonymous => return Vec::new(),
        };
        let user = &identity.user;
        let mut records = vec![(user_key(&user.name), Expected::At(user.serial))];
        // A token is made and revoked, and never changed.
        if let AuthMethod::Token(id) = identity.means {
            records.push((token_key(id), Expected::Present));
        }
        if let AuthMethod::Session { serial, .. } = identity.means {
            records.push((session_key(&user.name), Expected::At(serial)));
        }
        records
    }

    /// The identity of a user; `None` for anybody else.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Principal::Anonymous | Principal::Publisher(_) => None,
            Principal::User(identity) => Some(identity),
        }
    }

    /// The upload token of a job of a CI system.
    pub fn publisher(&self) -> Option<&Arc<UploadToken>> {
        match self {
            Principal::Publisher(token) => Some(token),
            Principal::Anonymous | Principal::User(_) => None,
        }
    }

    /// What the sender is called in messages and logs: the user's name, or the identity of a job; `None` if anonymous.
    pub fn called(&self) -> Option<String> {
        match self {
            Principal::Anonymous => None,
            Principal::User(identity) => Some(identity.user.name.to_string()),
            Principal::Publisher(token) => Some(token.identity.name()),
        }
    }

    /// The user's name; `None` for anybody else.
    pub fn user_name(&self) -> Option<&UserName> {
        self.identity().map(|identity| &identity.user.name)
    }

    /// The user's groups, sorted; empty if anonymous.
    pub fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.identity().into_iter().flat_map(|identity| &identity.user.groups)
    }

    /// What the credentials are limited to; `None` if they are not limited.
    pub fn limits(&self) -> Option<&Arc<Limits>> {
        self.identity()?.limits.as_ref()
    }

    /// What the credentials lack for `scope` of `object`. It does not check the user's rights; `None` if anonymous.
    pub fn lack(&self, scope: Scope, object: Object<'_>) -> Option<Restriction> {
        let identity = match self {
            Principal::Anonymous => return None,
            Principal::User(identity) => identity,
            Principal::Publisher(token) => {
                return Some(Restriction::of_publisher(token.identity.name(), scope, object));
            }
        };
        if !identity.scopes.admit(scope) {
            return Some(Restriction::Scope(scope));
        }
        let limits = identity.limits.as_ref().filter(|limits| !limits.admit(object))?;
        Some(Restriction::beyond(limits, scope, object))
    }

    /// Whether this is a user whose credentials may be used for `scope` of `object`. Says nothing about rights.
    pub(crate) fn may_use(&self, scope: Scope, object: Object<'_>) -> bool {
        self.identity().is_some_and(|identity| {
            identity.scopes.admit(scope)
                && identity.limits.as_ref().is_none_or(|limits| limits.admit(object))
        })
    }

    /// Whether this is an administrator whose credentials may be used for `scope` of `object`.
    pub fn is_administrator(&self, scope: Scope, object: Object<'_>) -> bool {
        self.may_use(scope, object) && self.identity().is_some_and(|it| it.user.is_administrator())
    }

    /// Whether this is `owner` or an administrator, with credentials that may be used for `scope` of `object`: they may change
    /// what belongs to `owner`.
    pub fn acts_for(&self, owner: &UserName, scope: Scope, object: Object<'_>) -> bool {
        self.may_use(scope, object)
            && self.identity().is_some_and(|identity| {
                identity.user.name == *owner || identity.user.is_administrator()
            })
    }
}
