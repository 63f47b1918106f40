//! Sessions of browsers: opened by a password, and ended.

use account::change;
use account::{Forbidden, SessionText, UserName};
use record::Digest;

use crate::users::forbidden;
use crate::{Basis, Decided, Name, Operation, Refusal};

/// Opens a session for a sender who just gave the password, and ends the one that the browser sent: an attacker who planted or
/// saw that one cannot use the new one.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The user, who is the sender.
    pub name: UserName,
    /// Random bytes.
    pub secret: [u8; 32],
    /// The session that ends.
    pub replaced: Option<SessionText>,
}

impl Operation for OpenSession {
    const NAME: Name = Name::OpenSession;

    type Outcome = SessionText;

    fn decide(&self, basis: &Basis) -> Result<Decided<SessionText>, Refusal> {
        let identity = basis.valid_principal()?.identity();
        let identity = identity.filter(|identity| identity.user.name == self.name);
        let other = || forbidden(basis, Forbidden::ModifyUser(self.name.clone()));
        let user = &identity.ok_or_else(other)?.user;
        let (session, batch) = change::open_session(
            &basis.stored.accounts,
            user,
            self.secret,
            self.replaced.as_ref(),
            basis.now,
            basis.forget_before,
            basis.rules.login,
        );
        Ok(Decided::new(batch, session))
    }
}

/// Ends sessions of the sender. Whoever shows a session may end it, even if it holds no longer.
#[derive(Clone, Debug)]
pub struct CloseSession {
    /// The user.
    pub name: UserName,
    /// The digest of the session's secret; `None` for all sessions of the user.
    pub session: Option<Digest>,
}

impl Operation for CloseSession {
    const NAME: Name = Name::CloseSession;

    type Outcome = ();

    fn decide(&self, basis: &Basis) -> Result<Decided<()>, Refusal> {
        let accounts = &basis.stored.accounts;
        let batch = match &self.session {
            Some(session) => change::close_session(accounts, &self.name, session),
            None => change::close_sessions(accounts, &self.name),
        };
        Ok(Decided::new(batch, ()))
    }
}
