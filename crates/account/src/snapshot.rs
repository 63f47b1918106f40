//! [`Snapshot`]: every user and token as of one serial.
//!
//! Records go in, questions are answered; a snapshot never changes, and the next one shares with it what
//! did not change.

use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};
use jiff::Timestamp;
use record::{Digest, Key, Record, Serial, UnreadableReason, UnreadableRecord};

use crate::linked_identities::LinkedIdentities;
use crate::record::{
    Subject, linked_key, login_secret_key, read_linked, read_login_secret, read_sessions,
    read_token, read_token_use, read_upload_token, read_user, session_key, subject, token_key,
    token_use_key, upload_token_key, user_key, write_linked, write_login_secret, write_sessions,
    write_token, write_token_use, write_upload_token, write_user,
};
use crate::upload_token::UploadTokens;
use crate::{
    LinkedIdentity, LoginSecret, Sessions, Token, TokenId, TokenText, UploadToken, User, UserName,
};

/// Every user and token as of one serial. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    users: OrdMap<UserName, Arc<User>>,
    tokens: HashMap<TokenId, Arc<Token>>,
    tokens_by_user: OrdMap<UserName, OrdSet<TokenId>>,
    /// When each was used last, as far as it was noted, and the commit that noted it.
    token_uses: HashMap<TokenId, (Timestamp, Serial)>,
    login_secret: Option<LoginSecret>,
    sessions: OrdMap<UserName, Arc<Sessions>>,
    upload_tokens: UploadTokens,
    linked: LinkedIdentities,
}

impl Snapshot {
    /// A snapshot without users.
    pub fn new() -> Snapshot {
        Snapshot::default()
    }

    /// The snapshot after `records`, in the order of their serials, and what was wrong with some of them. Records of other
    /// surfaces are ignored; one that cannot be read counts as deleted.
    #[must_use]
    pub fn apply(&self, records: &[Record]) -> (Snapshot, Vec<UnreadableRecord>) {
        let mut next = self.clone();
        let mut troubles = Vec::new();
        for record in records {
            let applied = match subject(&record.key) {
                None => Ok(()),
                Some(Err(_)) if record.body.is_none() => Ok(()),
                Some(subject) => subject.and_then(|subject| next.apply_one(record, subject)),
            };
            troubles.extend(applied.err().map(|reason| UnreadableRecord::of(record, reason)));
        }
        (next, troubles)
    }

    /// Records that make this snapshot again: each user, each token of either kind, the last use of tokens, the login secret, the
    /// sessions, the linked identities. What was deleted is not among them, and the login secret has serial 1.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let record =
            |key: Key, serial, body| Record { key, serial, body: Some(body), blobs: Vec::new() };
        let users = self.users.values();
        let users =
            users.map(move |user| record(user_key(&user.name), user.serial, write_user(user)));
        let tokens = self.tokens.values();
        let tokens =
            tokens.map(move |token| record(token_key(token.id), token.serial, write_token(token)));
        let uses = self.token_uses.iter();
        let uses = uses.map(move |(id, (used_at, serial))| {
            record(token_use_key(*id), *serial, write_token_use(*used_at))
        });
        let secrets = self.login_secret.iter();
        let secrets = secrets
            .map(move |secret| record(login_secret_key(), Serial(1), write_login_secret(secret)));
        let sessions = self.sessions.iter().map(move |(name, stored)| {
            record(session_key(name), stored.serial, write_sessions(&stored.sessions))
        });
        let uploads = self.upload_tokens.iter().map(move |token| {
            record(upload_token_key(&token.proof), token.serial, write_upload_token(token))
        });
        let linked = self.linked.iter().map(move |linked| {
            record(linked_key(&linked.digest()), linked.serial, write_linked(linked))
        });
        users.chain(tokens).chain(uses).chain(secrets).chain(sessions).chain(uploads).chain(linked)
    }

    fn apply_one(&mut self, record: &Record, subject: Subject) -> Result<(), UnreadableReason> {
        // The old entry is removed first, so that it does not outlive a record that cannot be read.
        let body = record.body.as_deref();
        match subject {
            Subject::User(name) => {
                self.users.remove(&name);
                if let Some(body) = body {
                    let user = read_user(record, name.clone(), body)?;
                    self.users.insert(name, Arc::new(user));
                }
            }
            Subject::Token(id) => {
                self.remove_token(id);
                if let Some(body) = body {
                    let token = read_token(record, id, body)?;
                    self.tokens_by_user.entry(token.user.clone()).or_default().insert(id);
                    self.tokens.insert(id, Arc::new(token));
                }
            }
            Subject::TokenUse(id) => {
                self.token_uses.remove(&id);
                if let Some(body) = body {
                    self.token_uses.insert(id, (read_token_use(body)?, record.serial));
                }
            }
            Subject::Sessions(name) => {
                self.sessions.remove(&name);
                if let Some(body) = body {
                    self.sessions.insert(name, Arc::new(read_sessions(record, body)?));
                }
            }
            Subject::UploadToken(proof) => {
                self.upload_tokens.remove(&proof);
                if let Some(body) = body {
                    self.upload_tokens.insert(read_upload_token(record, proof, body)?);
                }
            }
            Subject::Linked(digest) => {
                self.linked.remove(&digest);
                if let Some(body) = body {
                    self.linked.insert(read_linked(record, digest, body)?);
                }
            }
            Subject::LoginSecret => {
                self.login_secret = None;
                if let Some(body) = body {
                    self.login_secret = Some(read_login_secret(body)?);
                }
            }
        }
        Ok(())
    }

    fn remove_token(&mut self, id: TokenId) {
        let Some(token) = self.tokens.remove(&id) else { return };
        if let Some(ids) = self.tokens_by_user.get_mut(&token.user) {
            ids.remove(&id);
            if ids.is_empty() {
                self.tokens_by_user.remove(&token.user);
            }
        }
    }

    /// The user of that name.
    pub fn user(&self, name: &UserName) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// Every user, by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// The token of that id, expired or not.
    pub fn token(&self, id: TokenId) -> Option<&Arc<Token>> {
        self.tokens.get(&id)
    }

    /// The token that `text` is, expired or not.
    pub fn token_by_text(&self, text: &TokenText) -> Option<&Arc<Token>> {
        self.token_by_secret(&text.secret_digest())
    }

    /// The token whose secret has this digest, expired or not.
    pub(crate) fn token_by_secret(&self, secret_digest: &Digest) -> Option<&Arc<Token>> {
        let token = self.tokens.get(&TokenId::of(secret_digest))?;
        (token.secret_digest == *secret_digest).then_some(token)
    }

    /// The tokens of that user, by time and then id; also those of an earlier user with that name, which [are not
    /// valid](Token::belongs_to).
    pub fn tokens_of(&self, name: &UserName) -> Vec<&Arc<Token>> {
        let ids = self.tokens_by_user.get(name).into_iter().flatten();
        let mut tokens: Vec<_> = ids.filter_map(|id| self.tokens.get(id)).collect();
        tokens.sort_by_key(|token| (token.created_at, token.id));
        tokens
    }

    /// Every token, in no order.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &Arc<Token>> {
        self.tokens.values()
    }

    /// When the token of that id was used last, to the [day](crate::change::USE_NOTED_AFTER); `None` if no use was noted.
    pub fn token_used_at(&self, id: TokenId) -> Option<Timestamp> {
        self.token_uses.get(&id).map(|(used_at, _)| *used_at)
    }

    /// Whether this user is linked with an identity at a provider.
    pub fn is_linked(&self, user: &User) -> bool {
        self.linked_of(&user.name).any(|linked| linked.belongs_to(user))
    }

    /// The upload token whose identity has this digest, expired or not.
    pub fn upload_token_of(&self, proof: &Digest) -> Option<&Arc<UploadToken>> {
        self.upload_tokens.of_proof(proof)
    }

    /// The upload token of that id, expired or not.
    pub fn upload_token(&self, id: TokenId) -> Option<&Arc<UploadToken>> {
        self.upload_tokens.of_id(id)
    }

    /// Every upload token that is remembered, in no order.
    pub fn upload_tokens(&self) -> impl ExactSizeIterator<Item = &Arc<UploadToken>> {
        self.upload_tokens.iter()
    }

    /// The linked identity with this digest; its user may be gone.
    pub fn linked(&self, digest: &Digest) -> Option<&Arc<LinkedIdentity>> {
        self.linked.get(digest)
    }

    /// The identities at providers that a user of that name is or was linked with.
    pub fn linked_of(&self, name: &UserName) -> impl Iterator<Item = &Arc<LinkedIdentity>> {
        self.linked.of_user(name)
    }

    /// The sessions of that user, if there are any; also those that have ended, or belong to an earlier user with that name.
    pub fn sessions_of(&self, name: &UserName) -> Option<&Sessions> {
        self.sessions.get(name).map(|sessions| &**sessions)
    }

    /// The secret that logins are signed with, if it was made.
    pub fn login_secret(&self) -> Option<&LoginSecret> {
        self.login_secret.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use record::{Key, Serial};

    use super::*;
    use crate::testing::{at, name, user};

    fn record(key: &str, serial: u64, body: Option<String>) -> Record {
        let key = Key::new(key).expect("a key");
        Record { key, serial: Serial(serial), body: body.map(Into::into), blobs: Vec::new() }
    }

    fn user_body(second: i64) -> String {
        String::from_utf8(
            crate::record::write_user(&User { created_at: at(second), ..user("any", &[]) })
                .to_vec(),
        )
        .expect("text")
    }

    fn token(secret: u8, owner: &str) -> (TokenText, String) {
        let text = TokenText::from_secret([secret; 32]);
        let token = Token {
            id: text.id(),
            user: name(owner),
            user_created_at: at(0),
            comment: String::new(),
            scopes: crate::Scopes::ALL,
            limits: None,
            created_at: at(i64::from(secret % 2)),
            expires_at: None,
            secret_digest: text.secret_digest(),
            serial: Serial::ZERO,
        };
        let body = crate::record::write_token(&token);
        (text, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[test]
    fn users_are_listed_by_name() {
        let records = ["bob", "Zoe", "alice"]
            .map(|name| record(&format!("user/{name}"), 1, Some(user_body(0))));
        let (snapshot, troubles) = Snapshot::new().apply(&records);
        assert_eq!(troubles, []);
        let names: Vec<&str> = snapshot.users().map(|user| user.name.as_str()).collect();
        assert_eq!(names, ["Zoe", "alice", "bob"]);
        assert_eq!(snapshot.user(&name("bob")).expect("bob").serial, Serial(1));
        assert_eq!(snapshot.user(&name("Bob")), None);
    }

    #[test]
    fn a_token_is_found_by_its_text_alone() {
        let (text, body) = token(1, "alice");
        let key = format!("token/{}", text.id());
        let (before, _) = Snapshot::new().apply(&[record(&key, 1, Some(body))]);
        assert_eq!(before.token_by_text(&text).expect("the token").user, name("alice"));
        assert_eq!(before.tokens_of(&name("alice")).len(), 1);
        assert_eq!(before.token_by_text(&TokenText::from_secret([2; 32])), None);
        let mut beginning = *text.secret_digest().as_bytes();
        beginning[31] ^= 1;
        assert_eq!(before.token_by_secret(&Digest::from_bytes(beginning)), None);
        let (after, _) = before.apply(&[record(&key, 2, None)]);
        assert_eq!(after, Snapshot::new());
        assert!(before.token_by_text(&text).is_some(), "the older snapshot stays as it was");
    }

    #[test]
    fn what_cannot_be_read_opens_nothing() {
        let good = record("user/alice", 1, Some(user_body(0)));
        let (snapshot, _) = Snapshot::new().apply(&[good]);
        let (snapshot, troubles) = snapshot.apply(&[
            record("user/alice", 2, Some("{}".into())),
            record("user/a b", 2, Some(user_body(0))),
            record("user/u\u{308}", 2, Some(user_body(0))),
            record("token/xyz", 2, Some("{}".into())),
            record("token/xyz", 3, None),
            record("secret/login", 2, Some("no".into())),
            record("secret/other", 2, Some("no".into())),
            record("article/guide", 2, Some("no".into())),
            record("users/x", 2, Some("no".into())),
        ]);
        assert_eq!(snapshot, Snapshot::new());
        let keys: Vec<&str> = troubles.iter().map(|trouble| trouble.key.as_str()).collect();
        let expected = ["user/alice", "user/a b", "user/u\u{308}", "token/xyz", "secret/login"];
        assert_eq!(keys, expected);
    }

    /// One of a few records: readable, unreadable or deleted, with few names, so that they collide.
    fn any_record() -> impl Strategy<Value = (String, Option<String>)> {
        let owner = prop_oneof![Just("alice"), Just("bob"), Just("carol")];
        (0..8u8, owner, 0..4u8).prop_map(|(what, owner, number)| match what {
            0 | 1 => (format!("user/{owner}"), Some(user_body(number.into()))),
            2 => (format!("user/{owner}"), None),
            3 => (format!("user/{owner}"), Some("{".into())),
            4 | 5 => {
                let (text, body) = token(number, owner);
                (format!("token/{}", text.id()), Some(body))
            }
            6 => (format!("token/{}", token(number, owner).0.id()), None),
            _ => {
                let secret = format!(r#"{{"v":1,"secret":"{}"}}"#, "0f".repeat(32));
                ("secret/login".into(), (number > 0).then_some(secret))
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_followed_equals_what_is_loaded(
            written in proptest::collection::vec(any_record(), 0..40),
            cuts in proptest::collection::vec(1..10usize, 0..10),
        ) {
            let records: Vec<Record> = (1..).zip(written)
                .map(|(serial, (key, body))| record(&key, serial, body))
                .collect();
            let mut followed = Snapshot::new();
            let mut rest = records.as_slice();
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (chunk, after) = rest.split_at(cut.min(rest.len()));
                followed = followed.apply(chunk).0;
                rest = after;
            }
            // The records that a fresh start reads: the latest one of each key.
            let latest: Vec<Record> = records.iter()
                .filter(|it| records.iter().all(|other| other.key != it.key || other.serial <= it.serial))
                .cloned()
                .collect();
            let (loaded, _) = Snapshot::new().apply(&latest);
            prop_assert_eq!(&followed, &loaded);
            let listed: usize = ["alice", "bob", "carol"].iter()
                .map(|owner| loaded.tokens_of(&name(owner)).len())
                .sum();
            prop_assert_eq!(listed, loaded.tokens().len());
        }
    }
}
