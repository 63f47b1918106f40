//! The stored form of users, tokens, sessions and the login secret: JSON bodies under their keys.
//!
//! `user/{name}`, `token/{id}`, `token-use/{id}`, `upload-token/{proof}`, `session/{user}`, `identity/{digest}` and `secret/login`. A
//! record that cannot be read counts as missing, so that it admits nobody.

mod linked;
mod upload_token;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use record::{Digest, Key, Record, Serial, UnreadableReason, check_form, read_body, write_body};
use serde::{Deserialize, Serialize};

use crate::{GroupName, Limits, LoginSecret, Session, Sessions, Token, TokenId, User, UserName};

pub(crate) use self::linked::{read_linked, write_linked};
pub(crate) use self::upload_token::{read_upload_token, write_upload_token};

/// The form of the bodies that this version writes, and the only one that it reads.
const FORM: u32 = 1;

/// The form of a token with limits. Versions without limits do not read it, so for them the token does not
/// exist: they must not accept it as an unlimited one.
const LIMITED_FORM: u32 = 2;

const USER: &str = "user";
const TOKEN: &str = "token";
const SECRET: &str = "secret";
const LOGIN: &str = "login";
const SESSION: &str = "session";
const UPLOAD_TOKEN: &str = "upload-token";
const TOKEN_USE: &str = "token-use";
const LINKED: &str = "identity";

/// The key of a user's record.
pub fn user_key(name: &UserName) -> Key {
    key(USER, name.as_str())
}

/// The key of a token's record.
pub(crate) fn token_key(id: TokenId) -> Key {
    key(TOKEN, &id.to_string())
}

/// The key of the record that says when a token was used last.
pub(crate) fn token_use_key(id: TokenId) -> Key {
    key(TOKEN_USE, &id.to_string())
}

/// The key of the record of an upload token whose identity has this digest.
pub(crate) fn upload_token_key(proof: &Digest) -> Key {
    key(UPLOAD_TOKEN, &proof.to_string())
}

/// The key of the record of a linked identity with this digest.
pub(crate) fn linked_key(digest: &Digest) -> Key {
    key(LINKED, &digest.to_string())
}

/// The key of the record with a user's sessions.
pub(crate) fn session_key(user: &UserName) -> Key {
    key(SESSION, user.as_str())
}

/// The key of the record with the login secret.
pub fn login_secret_key() -> Key {
    key(SECRET, LOGIN)
}

fn key(kind: &str, name: &str) -> Key {
    Key::new(&format!("{kind}/{name}"))
        .expect("names are short and have no control characters, so they fit into a key")
}

/// The subject of a record of accounts.
pub(crate) enum Subject {
    User(UserName),
    Token(TokenId),
    TokenUse(TokenId),
    LoginSecret,
    Sessions(UserName),
    UploadToken(Digest),
    Linked(Digest),
}

/// The subject of `key`; `None` for a record of something else.
pub(crate) fn subject(key: &Key) -> Option<Result<Subject, UnreadableReason>> {
    // Each has one key: a name that is not composed, or digits in upper case, would be a second one.
    if let Some(name) = key.after(USER) {
        let name = name.parse().ok().filter(|name| user_key(name) == *key);
        return Some(name.map(Subject::User).ok_or(UnreadableReason::Key));
    }
    if let Some(id) = key.after(TOKEN) {
        let id = id.parse().ok().filter(|id| token_key(*id) == *key);
        return Some(id.map(Subject::Token).ok_or(UnreadableReason::Key));
    }
    if let Some(id) = key.after(TOKEN_USE) {
        let id = id.parse().ok().filter(|id| token_use_key(*id) == *key);
        return Some(id.map(Subject::TokenUse).ok_or(UnreadableReason::Key));
    }
    if let Some(proof) = key.after(UPLOAD_TOKEN) {
        let proof = proof.parse().ok().filter(|proof| upload_token_key(proof) == *key);
        return Some(proof.map(Subject::UploadToken).ok_or(UnreadableReason::Key));
    }
    if let Some(digest) = key.after(LINKED) {
        let digest = digest.parse().ok().filter(|digest| linked_key(digest) == *key);
        return Some(digest.map(Subject::Linked).ok_or(UnreadableReason::Key));
    }
    if let Some(name) = key.after(SESSION) {
        let name = name.parse().ok().filter(|name| session_key(name) == *key);
        return Some(name.map(Subject::Sessions).ok_or(UnreadableReason::Key));
    }
    let secret = key.after(SECRET)?;
    (secret == LOGIN).then_some(Ok(Subject::LoginSecret))
}

#[derive(Serialize, Deserialize)]
struct UserBody {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password_hash: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    groups: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    custom_data: Option<serde_json::Value>,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_false")]
    is_disabled: bool,
}

#[derive(Serialize, Deserialize)]
struct TokenBody {
    v: u32,
    user: String,
    user_created_at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    comment: String,
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<LimitsBody>,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    secret_sha256: String,
}

#[derive(Serialize, Deserialize)]
struct TokenUseBody {
    v: u32,
    used_at: Timestamp,
}

/// An unknown member would be a limit of a later version, so the token is not read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsBody {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    projects: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<String>,
}

impl LimitsBody {
    fn of(limits: &Limits) -> LimitsBody {
        LimitsBody {
            indexes: limits.indexes().map(str::to_owned).collect(),
            projects: limits.projects().map(str::to_owned).collect(),
            prefixes: limits.kept_prefixes().map(str::to_owned).collect(),
        }
    }

    /// None if they limit to nothing, or to what cannot be.
    fn read(self) -> Option<Limits> {
        let indexes = self.indexes.iter().map(|index| index.parse().ok());
        let (projects, prefixes) = (self.projects.into_iter(), self.prefixes.into_iter());
        Limits::new(indexes.collect::<Option<_>>()?, projects.collect(), prefixes.collect())
    }
}

#[derive(Serialize, Deserialize)]
struct LoginSecretBody {
    v: u32,
    secret: String,
}

#[derive(Serialize, Deserialize)]
struct SessionsBody {
    v: u32,
    sessions: Vec<SessionBody>,
}

#[derive(Serialize, Deserialize)]
struct SessionBody {
    secret_sha256: String,
    fingerprint: String,
    created_at: Timestamp,
    expires_at: Timestamp,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

pub(crate) fn write_user(user: &User) -> Bytes {
    write_body(&UserBody {
        v: FORM,
        password_hash: user.password_hash.as_ref().map(|hash| hash.as_str().to_owned()),
        groups: user.groups.iter().map(ToString::to_string).collect(),
        email: user.email.clone(),
        title: user.title.clone(),
        description: user.description.clone(),
        custom_data: user.custom_data.clone(),
        created_at: user.created_at,
        modified_at: user.modified_at,
        is_disabled: user.is_disabled,
    })
}

/// The record of a user with what everybody may know of them: name, title, description, and when they were made and changed.
pub fn public_record(user: &User, serial: Serial) -> Record {
    let shown = User {
        title: user.title.clone(),
        description: user.description.clone(),
        modified_at: user.modified_at,
        ..User::new(user.name.clone(), user.created_at)
    };
    let (key, body) = (user_key(&user.name), Some(write_user(&shown)));
    Record { key, serial, body, blobs: Vec::new() }
}

pub(crate) fn write_token(token: &Token) -> Bytes {
    write_body(&TokenBody {
        v: if token.limits.is_some() { LIMITED_FORM } else { FORM },
        user: token.user.to_string(),
        user_created_at: token.user_created_at,
        comment: token.comment.clone(),
        scopes: token.scopes.iter().map(|scope| scope.to_string()).collect(),
        limits: token.limits.as_deref().map(LimitsBody::of),
        created_at: token.created_at,
        expires_at: token.expires_at,
        secret_sha256: token.secret_digest.to_string(),
    })
}

pub(crate) fn write_token_use(used_at: Timestamp) -> Bytes {
    write_body(&TokenUseBody { v: FORM, used_at })
}

/// When the token was used last, by `body`.
pub(crate) fn read_token_use(body: &[u8]) -> Result<Timestamp, UnreadableReason> {
    let body: TokenUseBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    Ok(body.used_at)
}

pub(crate) fn write_login_secret(secret: &LoginSecret) -> Bytes {
    // A digest is written as 64 hexadecimal digits, and the secret has its length.
    let secret = Digest::from_bytes(*secret.as_bytes()).to_string();
    write_body(&LoginSecretBody { v: FORM, secret })
}

pub(crate) fn write_sessions(sessions: &[Session]) -> Bytes {
    let sessions = sessions.iter().map(|session| SessionBody {
        secret_sha256: session.secret_digest.to_string(),
        fingerprint: format!("{:032x}", u128::from_be_bytes(session.fingerprint)),
        created_at: session.created_at,
        expires_at: session.expires_at,
    });
    write_body(&SessionsBody { v: FORM, sessions: sessions.collect() })
}

/// The sessions in `body`.
pub(crate) fn read_sessions(record: &Record, body: &[u8]) -> Result<Sessions, UnreadableReason> {
    let body: SessionsBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let read = |body: SessionBody| {
        let secret_digest =
            body.secret_sha256.parse().map_err(|_| UnreadableReason::Member("secret_sha256"))?;
        let fingerprint = u128::from_str_radix(&body.fingerprint, 16)
            .map_err(|_| UnreadableReason::Member("fingerprint"))?
            .to_be_bytes();
        let (created_at, expires_at) = (body.created_at, body.expires_at);
        Ok(Session { secret_digest, fingerprint, created_at, expires_at })
    };
    let sessions = body.sessions.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(Sessions { sessions, serial: record.serial })
}

/// The user in `body`.
pub(crate) fn read_user(
    record: &Record,
    name: UserName,
    body: &[u8],
) -> Result<User, UnreadableReason> {
    let body: UserBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let password_hash = match body.password_hash {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| UnreadableReason::Member("password_hash"))?),
    };
    let groups = body.groups.iter().map(|group| group.parse::<GroupName>());
    let groups =
        groups.collect::<Result<_, _>>().map_err(|_| UnreadableReason::Member("groups"))?;
    Ok(User {
        name,
        password_hash,
        groups,
        email: body.email,
        title: body.title,
        description: body.description,
        custom_data: body.custom_data,
        created_at: body.created_at,
        modified_at: body.modified_at,
        is_disabled: body.is_disabled,
        serial: record.serial,
    })
}

/// The token in `body`.
pub(crate) fn read_token(
    record: &Record,
    id: TokenId,
    body: &[u8],
) -> Result<Token, UnreadableReason> {
    let body: TokenBody = read_body(body, FORM).or_else(|reason| match reason {
        UnreadableReason::Form { found: LIMITED_FORM, .. } => read_body(body, LIMITED_FORM),
        reason => Err(reason),
    })?;
    let limits = match (body.v, body.limits) {
        (FORM, None) => None,
        (LIMITED_FORM, Some(limits)) => {
            let limits = limits.read().ok_or(UnreadableReason::Member("limits"))?;
            Some(Arc::new(limits))
        }
        (FORM | LIMITED_FORM, _) => return Err(UnreadableReason::Member("limits")),
        (found, _) => return Err(UnreadableReason::Form { found, expected: LIMITED_FORM }),
    };
    let user = body.user.parse().map_err(|_| UnreadableReason::Member("user"))?;
    // An unknown scope, of a later version, gives nothing; the others still count.
    let scopes = body.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
    let secret_digest: Digest =
        body.secret_sha256.parse().map_err(|_| UnreadableReason::Member("secret_sha256"))?;
    // The id is the beginning of the digest.
    if TokenId::of(&secret_digest) != id {
        return Err(UnreadableReason::Member("secret_sha256"));
    }
    Ok(Token {
        id,
        user,
        user_created_at: body.user_created_at,
        comment: body.comment,
        scopes,
        limits,
        created_at: body.created_at,
        expires_at: body.expires_at,
        secret_digest,
        serial: record.serial,
    })
}

/// The login secret in `body`.
pub(crate) fn read_login_secret(body: &[u8]) -> Result<LoginSecret, UnreadableReason> {
    let body: LoginSecretBody = read_body(body, FORM)?;
    check_form(body.v, FORM)?;
    let secret: Digest = body.secret.parse().map_err(|_| UnreadableReason::Member("secret"))?;
    Ok(LoginSecret::new(*secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, limits, name, user};
    use crate::{PasswordHash, TokenText};

    fn record(key: &str, body: impl Into<Bytes>) -> Record {
        let key = Key::new(key).expect("a key");
        Record { key, serial: Serial(7), body: Some(body.into()), blobs: Vec::new() }
    }

    #[test]
    fn a_user_is_read_as_written() {
        let full = User {
            password_hash: Some(PasswordHash::dummy()),
            email: Some("alice@host.example".into()),
            title: Some("T".into()),
            description: Some("D".into()),
            custom_data: Some(serde_json::json!({"b": [1], "a": null})),
            modified_at: Some(at(3)),
            is_disabled: true,
            serial: Serial(7),
            ..user("alice", &["team", "ci"])
        };
        for it in [full, User { serial: Serial(7), ..user("alice", &[]) }] {
            let record = record("user/alice", write_user(&it));
            let body = record.body.clone().expect("a body");
            assert_eq!(read_user(&record, name("alice"), &body), Ok(it));
        }
    }

    #[test]
    fn what_everybody_may_know_of_a_user_has_no_secret() {
        let it = User {
            password_hash: Some(PasswordHash::dummy()),
            email: Some("alice@host.example".into()),
            custom_data: Some(serde_json::json!(["secret"])),
            title: Some("Alice".into()),
            ..user("alice", &["team"])
        };
        let record = public_record(&it, Serial(7));
        let body = r#"{"v":1,"title":"Alice","created_at":"2025-06-15T15:06:40Z"}"#;
        assert_eq!((record.key.as_str(), record.body), ("user/alice", Some(body.into())));
    }

    #[test]
    fn the_stored_form_of_a_user_stays() {
        let body = r#"{"v":1,"groups":["team"],"created_at":"2025-06-15T15:06:40Z"}"#;
        assert_eq!(write_user(&user("alice", &["team"])), body);
    }

    #[test]
    fn the_stored_form_of_a_token_stays() {
        let text = TokenText::from_secret([0; 32]);
        let token = Token {
            id: text.id(),
            user: name("alice"),
            user_created_at: at(0),
            comment: "ci".into(),
            scopes: "python:upload,article:read".parse().expect("scopes"),
            limits: None,
            created_at: at(1),
            expires_at: Some(at(2)),
            secret_digest: text.secret_digest(),
            serial: Serial(7),
        };
        let body = concat!(
            r#"{"v":1,"user":"alice","user_created_at":"2025-06-15T15:06:40Z","comment":"ci","#,
            r#""scopes":["article:read","python:upload"],"created_at":"2025-06-15T15:06:41Z","#,
            r#""expires_at":"2025-06-15T15:06:42Z","secret_sha256":"#,
            r#""66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"}"#
        );
        assert_eq!(write_token(&token), body);
        let stored = record("token/66687aadf862", body);
        assert_eq!(read_token(&stored, text.id(), body.as_bytes()), Ok(token.clone()));
        let later = body.replace("article:read", "moon:walk");
        let read = read_token(&stored, text.id(), later.as_bytes()).expect("a token");
        assert_eq!(read.scopes.to_string(), "python:upload");
        let other = TokenText::from_secret([1; 32]).id();
        assert!(read_token(&stored, other, body.as_bytes()).is_err());
    }

    /// An older version reads the first form alone: it must not take a limited token for one without limits.
    #[test]
    fn a_limited_token_has_a_form_of_its_own() {
        let text = TokenText::from_secret([0; 32]);
        let own = limits("index=team/dev index=team/* project=foo prefix=docs");
        let token = Token {
            id: text.id(),
            user: name("alice"),
            user_created_at: at(0),
            comment: String::new(),
            scopes: "python:upload".parse().expect("scopes"),
            limits: own.map(Arc::new),
            created_at: at(1),
            expires_at: None,
            secret_digest: text.secret_digest(),
            serial: Serial(7),
        };
        let body = concat!(
            r#"{"v":2,"user":"alice","user_created_at":"2025-06-15T15:06:40Z","scopes":["python:upload"],"#,
            r#""limits":{"indexes":["team/*","team/dev"],"projects":["foo"],"prefixes":["docs"]},"#,
            r#""created_at":"2025-06-15T15:06:41Z","secret_sha256":"#,
            r#""66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"}"#
        );
        assert_eq!(write_token(&token), body);
        let stored = record("token/66687aadf862", body);
        let read = |body: &str| read_token(&stored, text.id(), body.as_bytes());
        assert_eq!(read(body), Ok(token));
        let none = "`limits` in its body is missing or has an impossible value";
        let members = "its body has not the expected members";
        for (from, to, reason) in [
            // A limit is never passed over.
            (r#""v":2"#, r#""v":1"#, none),
            (r#""limits""#, r#""limit""#, none),
            (
                r#"{"indexes":["team/*","team/dev"],"projects":["foo"],"prefixes":["docs"]}"#,
                "{}",
                none,
            ),
            (r#""projects""#, r#""hours""#, members),
            (r#"["foo"]"#, r#""foo""#, members),
            ("team/*", "*", none),
            (r#""v":2"#, r#""v":3"#, "its body has the form 3, and this version reads the form 2"),
        ] {
            let changed = body.replace(from, to);
            assert_ne!(changed, body, "{from}");
            let found = read(&changed).expect_err(&changed).to_string();
            assert!(found.starts_with(reason), "{from}: {found}");
        }
    }

    #[test]
    fn the_stored_form_of_the_secret_stays() {
        let secret = LoginSecret::new([171; 32]);
        let body = write_login_secret(&secret);
        assert_eq!(body, format!(r#"{{"v":1,"secret":"{}"}}"#, "ab".repeat(32)));
        assert_eq!(read_login_secret(&body), Ok(secret));
    }

    #[test]
    fn the_stored_form_of_sessions_stays() {
        let session = Session {
            secret_digest: Digest::of(&[0; 32]),
            fingerprint: [171; 16],
            created_at: at(1),
            expires_at: at(2),
        };
        let body = concat!(
            r#"{"v":1,"sessions":[{"secret_sha256":"#,
            r#""66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925","#,
            r#""fingerprint":"abababababababababababababababab","#,
            r#""created_at":"2025-06-15T15:06:41Z","expires_at":"2025-06-15T15:06:42Z"}]}"#
        );
        assert_eq!(write_sessions(std::slice::from_ref(&session)), body);
        let stored = record("session/alice", body);
        let sessions = Sessions { sessions: vec![session], serial: Serial(7) };
        assert_eq!(read_sessions(&stored, body.as_bytes()), Ok(sessions));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_body() {
        let check = |body: &str, reason: &str| {
            let record = record("user/alice", body.to_owned());
            let found = read_user(&record, name("alice"), body.as_bytes()).expect_err("trouble");
            assert_eq!(found.to_string(), reason);
        };
        check("", "its body is not JSON (column 0)");
        check(
            r#"{"v":1,"password_hash":["x"]}"#,
            "its body has not the expected members (column 23)",
        );
        check(
            r#"{"v":2,"created_at":"2025-06-15T15:06:40Z"}"#,
            "its body has the form 2, and this version reads the form 1",
        );
        check(
            r#"{"v":1,"password_hash":"secret","created_at":"2025-06-15T15:06:40Z"}"#,
            "`password_hash` in its body is missing or has an impossible value",
        );
    }
}
