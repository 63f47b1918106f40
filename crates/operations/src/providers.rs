//! Log-in at identity providers: an identity that a provider has verified opens a session, and is linked with a user.

use account::change::NoUser;
use account::{Forbidden, LinkedLogIn, SessionText, UserName, link, log_in_linked, unlink};
use issuers::VerifiedLogIn;
use record::Digest;

use crate::users::{admit_always, forbidden};
use crate::{Basis, Decided, Name, Operation, Refusal};

/// Opens a session for the user of an identity. The user is made if there is none and the provider's settings allow it, and the
/// groups that these settings map follow the provider. Nobody needs a right for it but that identity.
#[derive(Clone, Debug)]
pub struct OpenSessionByProvider {
    /// Who it is, as the provider has signed it.
    pub verified: VerifiedLogIn,
    /// Random bytes.
    pub secret: [u8; 32],
    /// The session that ends.
    pub replaced: Option<SessionText>,
}

impl Operation for OpenSessionByProvider {
    const NAME: Name = Name::OpenSessionByProvider;

    type Outcome = LinkedLogIn;

    fn decide(&self, basis: &Basis) -> Result<Decided<LinkedLogIn>, Refusal> {
        let (outcome, batch) = log_in_linked(
            &basis.stored.accounts,
            (self.verified.identity(), self.verified.makes_users()),
            self.secret,
            self.replaced.as_ref(),
            (basis.now, basis.forget_before),
            basis.rules.login,
        )?;
        Ok(Decided::new(batch, outcome))
    }
}

/// Links an identity at a provider with the sender, who logs in with it from then on.
#[derive(Clone, Debug)]
pub struct LinkIdentity {
    /// The user, who is the sender.
    pub name: UserName,
    /// Who they are at the provider, as it has signed it.
    pub verified: VerifiedLogIn,
}

impl Operation for LinkIdentity {
    const NAME: Name = Name::LinkIdentity;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        admit_always(basis, |policy, principal| policy.manage_tokens(principal, &self.name))?;
        // Not even an administrator links somebody else: only the owner of both proves both.
        let identity = basis.valid_principal()?.identity();
        let identity = identity.filter(|identity| identity.user.name == self.name);
        let other = || forbidden(basis, Forbidden::ModifyUser(self.name.clone()));
        let user = &identity.ok_or_else(other)?.user;
        let batch = link(&basis.stored.accounts, user, self.verified.identity(), basis.now)?;
        Ok(Decided::new(batch, ()))
    }
}

/// Removes the link of a user with an identity at a provider.
#[derive(Clone, Debug)]
pub struct UnlinkIdentity {
    /// The user.
    pub name: UserName,
    /// The digest of the identity.
    pub identity: Digest,
}

impl Operation for UnlinkIdentity {
    const NAME: Name = Name::UnlinkIdentity;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        admit_always(basis, |policy, principal| policy.manage_tokens(principal, &self.name))?;
        let accounts = &basis.stored.accounts;
        let user = accounts.user(&self.name).ok_or_else(|| NoUser(self.name.clone()))?;
        Ok(Decided::new(unlink(accounts, user, &self.identity)?, ()))
    }
}
