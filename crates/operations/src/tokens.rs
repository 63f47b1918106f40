//! API tokens: made, revoked, found where everybody can read them, and noted as used.

use account::change::{self, NewToken, NoToken, NoUser};
use account::{Limits, Scopes, Token, TokenId, TokenText, UserName, end_upload_token};
use jiff::Timestamp;
use state::accounts::Expiry;

use crate::users::admit_always;
use crate::{Basis, Decided, Name, Operation, Refusal, Rule};

/// Refuses senders who may not list and revoke the tokens of that user.
///
/// # Errors
/// [`Refusal::Ended`], [`Refusal::Denied`].
pub fn admit(basis: &Basis, owner: &UserName) -> Result<(), Refusal> {
    admit_always(basis, |policy, principal| policy.manage_tokens(principal, owner))
}

/// Makes a token. The outcome is its text, which nobody gets to know again.
#[derive(Clone, Debug)]
pub struct CreateToken {
    /// The user whose rights it uses.
    pub user: UserName,
    /// The owner's note about it.
    pub comment: String,
    /// What it may be used for.
    pub scopes: Scopes,
    /// What it is limited to; `None` if it is not limited.
    pub limits: Option<Limits>,
    /// Until when it is valid; `None` for what `users.token_days` says.
    pub expires: Option<Expiry>,
    /// Random bytes.
    pub secret: [u8; 32],
}

impl Operation for CreateToken {
    const NAME: Name = Name::CreateToken;

    type Outcome = (TokenText, Token);

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let (accounts, user) = (&basis.stored.accounts, self.user.clone());
        admit_always(basis, |policy, principal| {
            policy.create_token(principal, &user, self.scopes)
        })?;
        if accounts.user(&user).is_none() {
            return Err(NoUser(user).into());
        }
        let expires_at = match self.expires {
            Some(expires) => expires.at(basis.now)?,
            None => basis.rules.token_end(basis.now),
        };
        let (comment, limits) = (self.comment.clone(), self.limits.clone());
        let token = NewToken { user, comment, scopes: self.scopes, limits, expires_at };
        let (text, token, batch) =
            change::create_token(accounts, token, self.secret, basis.now, basis.forget_before)?;
        Ok(Decided::new(batch, (text, token)))
    }
}

/// Revokes a token. Senders who may manage only their own tokens do not learn which others there are.
#[derive(Clone, Debug)]
pub struct RevokeToken {
    /// Which.
    pub id: TokenId,
}

impl Operation for RevokeToken {
    const NAME: Name = Name::RevokeToken;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let accounts = &basis.stored.accounts;
        if !basis.sender().is_on_the_machine() {
            if let Some(own) = basis.valid_principal()?.user_name() {
                admit(basis, own)?;
            }
            let token = accounts.token(self.id).ok_or(NoToken(self.id))?;
            admit(basis, &token.user).map_err(|_| NoToken(self.id))?;
        }
        Ok(Decided::new(change::revoke_token(accounts, self.id)?, ()))
    }
}

/// Revokes a token that was found where everybody can read it. Whoever shows the token may do so.
#[derive(Clone, Debug)]
pub struct RevokeFoundToken {
    /// The token.
    pub text: TokenText,
}

impl Operation for RevokeFoundToken {
    const NAME: Name = Name::RevokeFoundToken;

    /// Whose it was: a user, or a job of a CI system.
    type Outcome = String;

    fn decide(&self, basis: &Basis) -> Result<Decided<Self::Outcome>, Refusal> {
        let (accounts, id) = (&basis.stored.accounts, self.text.id());
        if let Some(token) = accounts.token_by_text(&self.text) {
            let batch = change::revoke_token(accounts, id)?;
            return Ok(Decided::new(batch, token.user.to_string()));
        }
        let valid = accounts.upload_token(id).filter(|token| {
            token.secret_digest == self.text.secret_digest() && !token.is_expired(basis.now)
        });
        let token = valid.ok_or(NoToken(id))?;
        let owner = token.identity.name().to_string();
        Ok(Decided::new(end_upload_token(token, basis.now), owner))
    }
}

/// Notes when tokens were used last. The server does, once a day for a token.
#[derive(Clone, Debug)]
pub struct NoteTokenUses {
    /// The tokens, and when.
    pub uses: Vec<(TokenId, Timestamp)>,
}

impl Operation for NoteTokenUses {
    const NAME: Name = Name::NoteTokenUses;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        if !basis.sender().is_on_the_machine() {
            return Err(Rule::OnlyTheServer.into());
        }
        let batch = change::note_token_uses(&basis.stored.accounts, self.uses.iter().copied());
        Ok(Decided::new(batch, ()))
    }
}
