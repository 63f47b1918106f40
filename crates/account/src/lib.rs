//! Users, groups, tokens, sessions and rights.
//!
//! ```text
//! header value -> Credentials ─┐
//! records ──apply──> Snapshot ─┴─ identify -> Principal, Object -> Acl::admits, UserPolicy -> yes or no
//! a decided change -> change::… -> Batch -> (the store) -> records
//! ```
//!
//! A request may do what both its user may do and its credentials may be used for: a token has [`Scopes`] and may have
//! [`Limits`], a password and a login are not restricted. Administrators are the user `root` and the members of the group
//! `admin`; other users have rights only to what belongs to them, and what an [`Acl`] gives them. A job of a CI system is no user: its
//! [`UploadToken`] has a [`CiIdentity`], and an index that names this identity lets it upload.
//!
//! Secrets are stored only as hashes: a password as its argon2 hash, a token and a session as the SHA-256 of their random part.
//! This crate does no I/O, reads no clock and makes no random numbers: time and randomness are arguments. Checking a password
//! takes tens of milliseconds of a core and tens of MiB; [`identify()`] says when that is needed, and the caller runs it.

mod acl;
pub mod change;
mod ci_identity;
mod credentials;
mod device;
mod edit;
mod group_map;
mod identify;
mod limits;
mod linked_identities;
mod login;
mod name;
mod password;
mod pending_log_in;
mod policy;
mod principal;
mod record;
mod scope;
mod session;
mod snapshot;
mod token;
mod upload_token;
mod user;

pub(crate) use self::record::{
    linked_key, session_key, token_key, token_use_key, upload_token_key,
};
pub use self::record::{login_secret_key, public_record, user_key};
pub use acl::{Acl, AclEntry, AclError};
pub use ci_identity::{CiIdentity, Claims, IssuerKind, IssuerKindError};
pub use credentials::{Credentials, CredentialsError};
pub use device::{DEVICE_LOG_IN_SECONDS, DeviceLogIn};
pub use edit::{EditError, EditRules, Field, ProfileEdit, UserEdit};
pub use group_map::{GroupLine, GroupLineError, GroupMap};
pub use identify::{
    Identification, PasswordCheck, Refusal, identify, identify_elsewhere, identify_session,
};
pub use limits::{IndexPattern, IndexPatternError, Limits, Object, Portion, Restriction};
pub use linked_identities::{
    LastLink, LinkError, LinkedIdentity, LinkedLogIn, LinkedLogInError, ProvedIdentity,
    identity_digest, link, log_in_linked, unlink,
};
pub use login::{LOGIN_LIFETIME, LoginSecret, LoginText, LoginTokenError};
pub use name::{GroupName, NameError, RESERVED, UserName, is_reserved};
pub use password::{Password, PasswordError, PasswordHash, PasswordHashError};
pub use pending_log_in::{OidcValue, PENDING_LOG_IN_SECONDS, PendingLogIn};
pub use policy::{Forbidden, UserPolicy};
pub use principal::{AuthMethod, Identity, Principal};
pub use scope::{Scope, ScopeError, Scopes};
pub use session::{Session, SessionText, SessionTextError, Sessions};
pub use snapshot::Snapshot;
pub use token::{Token, TokenId, TokenIdError, TokenText, TokenTextError};
pub use upload_token::{MintError, UploadToken, end as end_upload_token, mint};
pub use user::User;

#[cfg(test)]
mod testing;
