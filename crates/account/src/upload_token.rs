//! [`UploadToken`]: what a job of a CI system gets for its identity, and uploads with.
//!
//! [`CiIdentity`] -> [`mint`] -> a token of 15 minutes -> [`Principal::Publisher`](crate::Principal::Publisher)
//!
//! It has no user and no scope. It may upload where an index names its identity as a trusted publisher, as of the moment of the
//! upload, and otherwise do what anonymous clients may. Its text looks as that of any [`Token`](crate::Token). Its record has the
//! digest of the signed identity as its name, so that a second token for one identity is refused, by every process.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use record::{Batch, Digest, Expected, Serial};

use crate::record::write_upload_token;
use crate::{CiIdentity, Snapshot, TokenId, TokenText, upload_token_key};

/// How long a token is valid.
pub(crate) const UPLOAD_TOKEN_LIFETIME: Duration = Duration::from_secs(900);

/// Tokens that are remembered at a time at most; and those of one identity, by its issuer and name.
pub(crate) const UPLOAD_TOKENS_MAX: usize = 5_000;
const PER_IDENTITY_MAX: usize = 500;

/// Records that one mint removes at most.
const FORGOTTEN_AT_ONCE: usize = 100;

/// A token as it is stored: everything but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadToken {
    /// The SHA-256 of the signed part of the identity's token.
    pub proof: Digest,
    /// Its name in logs.
    pub id: TokenId,
    /// Who may use it.
    pub identity: CiIdentity,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Until when its identity could be shown again, and it is therefore remembered.
    pub kept_until: Timestamp,
    /// The SHA-256 of its secret.
    pub secret_digest: Digest,
    /// The commit that wrote this; [`Serial::ZERO`] before it is stored.
    pub serial: Serial,
}

/// Why no token is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// There was one for this identity.
    #[error("this identity was used already: ask the CI system for a new one")]
    Replayed,
    /// Too many.
    #[error("too many upload tokens were made lately: at most {0} are remembered at a time")]
    TooMany(usize),
    /// Its id is taken: try again with other random bytes.
    #[error("the token id '{0}' is taken")]
    Taken(TokenId),
}

impl UploadToken {
    /// Whether it has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}

/// Ends an upload token at `now`. Its record stays until its identity can be shown no more: a second token for it is still refused.
pub fn end(token: &UploadToken, now: Timestamp) -> Batch {
    let ended = UploadToken { expires_at: now.min(token.expires_at), ..token.clone() };
    let body = write_upload_token(&ended);
    Batch::new().put(upload_token_key(&token.proof), Expected::At(token.serial), body, Vec::new())
}

/// Makes a token of 32 random bytes, `secret`, for an identity whose signed part has the digest `proof` and that could be shown
/// until `proof_until`: the text to show once, the stored token, and the batch. The batch also removes tokens that are of no use
/// any more and whose identity cannot be shown again, as of `forget_before`; none if that is `None`, because the clock may be
/// wrong.
///
/// # Errors
/// [`MintError`].
pub fn mint(
    snapshot: &Snapshot,
    (identity, proof, proof_until): (&CiIdentity, Digest, Timestamp),
    secret: [u8; 32],
    now: Timestamp,
    forget_before: Option<Timestamp>,
) -> Result<(TokenText, UploadToken, Batch), MintError> {
    if snapshot.upload_token_of(&proof).is_some() {
        return Err(MintError::Replayed);
    }
    let called = identity.name();
    let (mut living, mut own, mut forgotten) = (0, 0, Vec::new());
    for token in snapshot.upload_tokens() {
        if forget_before.is_some_and(|before| token.kept_until <= before) {
            if forgotten.len() < FORGOTTEN_AT_ONCE {
                forgotten.push(token.proof);
            }
            continue;
        }
        living += 1;
        let of_same = token.identity.issuer == identity.issuer;
        own += usize::from(of_same && token.identity.name() == called);
    }
    if living >= UPLOAD_TOKENS_MAX {
        return Err(MintError::TooMany(UPLOAD_TOKENS_MAX));
    }
    if own >= PER_IDENTITY_MAX {
        return Err(MintError::TooMany(PER_IDENTITY_MAX));
    }
    let text = TokenText::from_secret(secret);
    let id = text.id();
    if snapshot.token(id).is_some() || snapshot.upload_token(id).is_some() {
        return Err(MintError::Taken(id));
    }
    let expires_at = now + UPLOAD_TOKEN_LIFETIME;
    let token = UploadToken {
        proof,
        id,
        identity: identity.clone(),
        created_at: now,
        expires_at,
        kept_until: expires_at.max(proof_until),
        secret_digest: text.secret_digest(),
        serial: Serial::ZERO,
    };
    let batch = Batch::new().put(
        upload_token_key(&proof),
        Expected::Absent,
        write_upload_token(&token),
        Vec::new(),
    );
    let batch = forgotten.into_iter().fold(batch, |batch, proof| {
        // What another write removes meanwhile is gone anyway.
        batch.delete(upload_token_key(&proof), Expected::Anything)
    });
    Ok((text, token, batch))
}

/// The stored tokens, by the digest of their identity and by their id.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UploadTokens {
    by_proof: imbl::HashMap<[u8; 32], Arc<UploadToken>>,
    by_id: imbl::HashMap<TokenId, Arc<UploadToken>>,
}

impl UploadTokens {
    pub(crate) fn insert(&mut self, token: UploadToken) {
        let token = Arc::new(token);
        self.by_id.insert(token.id, token.clone());
        self.by_proof.insert(*token.proof.as_bytes(), token);
    }

    pub(crate) fn remove(&mut self, proof: &Digest) {
        if let Some(token) = self.by_proof.remove(proof.as_bytes()) {
            self.by_id.remove(&token.id);
        }
    }

    pub(crate) fn of_proof(&self, proof: &Digest) -> Option<&Arc<UploadToken>> {
        self.by_proof.get(proof.as_bytes())
    }

    pub(crate) fn of_id(&self, id: TokenId) -> Option<&Arc<UploadToken>> {
        self.by_id.get(&id)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<UploadToken>> {
        self.by_proof.values()
    }
}

#[cfg(test)]
mod tests {
    use record::Record;

    use super::*;
    use crate::testing::{at, ci_identity, name};
    use crate::{Credentials, Identification, identify};

    fn minted(snapshot: &Snapshot, number: u8, second: i64) -> Result<Snapshot, MintError> {
        let proof = Digest::of(&[number]);
        let identity = ci_identity(&[("repository", "org/repo")]);
        let before = Some(at(second - 60));
        let made =
            mint(snapshot, (&identity, proof, at(second + 60)), [number; 32], at(second), before)?;
        Ok(applied(snapshot, &made.2))
    }

    fn applied(snapshot: &Snapshot, batch: &Batch) -> Snapshot {
        let records = batch.writes.iter().map(|write| Record {
            key: write.key.clone(),
            serial: Serial(1),
            body: write.body.clone(),
            blobs: Vec::new(),
        });
        let (snapshot, troubles) = snapshot.apply(&records.collect::<Vec<_>>());
        assert_eq!(troubles, []);
        snapshot
    }

    #[test]
    fn an_identity_is_used_once() {
        let first = minted(&Snapshot::new(), 1, 0).expect("a token");
        assert_eq!(minted(&first, 1, 1), Err(MintError::Replayed));
        let second = minted(&first, 2, 1).expect("another identity");
        assert_eq!(second.upload_tokens().len(), 2);
    }

    /// Its token lives 15 minutes; a record is forgotten when neither the token nor the identity counts any more.
    #[test]
    fn what_has_ended_is_forgotten() {
        let first = minted(&Snapshot::new(), 1, 0).expect("a token");
        let later = minted(&first, 2, 900).expect("a token");
        assert_eq!(later.upload_tokens().len(), 2, "the clock may be a minute slow");
        let later = minted(&later, 3, 961).expect("a token");
        assert_eq!(later.upload_tokens().len(), 2);
        assert!(later.upload_token_of(&Digest::of(&[1])).is_none());
    }

    #[test]
    fn one_identity_takes_not_all_room() {
        let mut snapshot = Snapshot::new();
        let identity = ci_identity(&[("repository", "org/repo")]);
        for number in 0..PER_IDENTITY_MAX {
            let bytes = u32::try_from(number).expect("a small number").to_be_bytes();
            let secret = *Digest::of(&bytes).as_bytes();
            let made =
                mint(&snapshot, (&identity, Digest::of(&secret), at(9)), secret, at(0), None);
            snapshot = applied(&snapshot, &made.expect("a token").2);
        }
        assert_eq!(minted(&snapshot, 1, 0), Err(MintError::TooMany(PER_IDENTITY_MAX)));
        let other = ci_identity(&[("repository", "org/other")]);
        let made = mint(&snapshot, (&other, Digest::of(&[1]), at(9)), [1; 32], at(0), None);
        assert!(made.is_ok());
    }

    #[test]
    fn its_owner_is_no_user() {
        let snapshot = minted(&Snapshot::new(), 1, 0).expect("a token");
        let text = TokenText::from_secret([1; 32]);
        let found = |text: &str, second| {
            let credentials = Credentials::from_user_and_password("__token__", text);
            identify(&snapshot, &credentials.expect("credentials"), at(second))
        };
        let Identification::Known(principal) = found(&text.reveal(), 899) else {
            panic!("not known")
        };
        assert_eq!(principal.user_name(), None);
        assert_eq!(principal.identity(), None);
        assert_eq!(principal.called().as_deref(), Some("https://ci.example org/repo"));
        assert!(matches!(found(&text.reveal(), 900), Identification::Refused(_)), "it has expired");
        assert!(principal.as_of(&snapshot, at(899)).is_ok());
        assert!(principal.as_of(&snapshot, at(900)).is_err());
        assert!(principal.as_of(&Snapshot::new(), at(1)).is_err(), "its record is gone");
        assert_eq!(principal.rests_on().len(), 1);
        assert!(!principal.acts_for(
            &name("root"),
            crate::Scope::PythonAdmin,
            crate::Object::Server
        ));
    }

    #[test]
    fn a_record_makes_the_token_again() {
        let snapshot = minted(&Snapshot::new(), 1, 0).expect("a token");
        let records: Vec<Record> = snapshot.records().collect();
        let (again, troubles) = Snapshot::new().apply(&records);
        assert_eq!((again, troubles), (snapshot, vec![]));
    }
}
