//! [`Sender`]: who asks; and [`Basis`]: the state that a decision is made on, with the sender as of that state.

use std::sync::Arc;

use account::Principal;
use jiff::Timestamp;
use net::ClientAddress;
use pypi::index_log::Doer;
use state::security::Actor;
use state::stored::Stored;

use crate::{Refusal, Rules};

/// Who asks for an operation, proved once, when the request came.
#[derive(Clone, Debug)]
pub enum Sender {
    /// A client of the server.
    Client {
        /// The owner of the credentials, as they were verified.
        proved: Principal,
        /// Where the request came from.
        address: ClientAddress,
        /// The path of the request, for the audit log.
        path: String,
    },
    /// Somebody who runs a command on the machine.
    Command,
    /// A task of the server itself.
    Server,
}

impl Sender {
    /// The credentials' owner; anonymous for what needs no right.
    pub fn proved(&self) -> &Principal {
        match self {
            Sender::Client { proved, .. } => proved,
            Sender::Command | Sender::Server => &Principal::Anonymous,
        }
    }

    /// Whether no right is asked for: who can write the data directory may do everything.
    pub(crate) fn is_on_the_machine(&self) -> bool {
        matches!(self, Sender::Command | Sender::Server)
    }

    /// The sender, as the log of an index names it.
    pub(crate) fn doer(&self) -> Doer {
        match self {
            Sender::Client { proved, .. } => {
                proved.user_name().map_or(Doer::Nobody, |name| Doer::User(name.clone()))
            }
            Sender::Command => Doer::Command,
            Sender::Server => Doer::Server,
        }
    }

    /// The sender, as the security log names it.
    pub(crate) fn actor(&self) -> Actor {
        match self {
            Sender::Client { proved, address, .. } => Actor::of_client(proved, *address),
            Sender::Command => Actor::of_command(),
            Sender::Server => Actor::of_server(),
        }
    }
}

/// What an operation is decided on: one state of the store, and the sender as of that state.
#[derive(Clone)]
pub struct Basis {
    /// The state.
    pub stored: Arc<Stored>,
    /// The settings.
    pub rules: Arc<Rules>,
    /// The time of the decision.
    pub now: Timestamp,
    /// Tokens and sessions that ended before this are removed; `None` while the clock is not to be trusted.
    pub forget_before: Option<Timestamp>,
    sender: Sender,
    principal: Principal,
    ended: Option<account::Refusal>,
}

impl Basis {
    /// The basis of a decision about a wish of `sender`, at `now`.
    pub fn new(
        stored: Arc<Stored>,
        rules: Arc<Rules>,
        sender: Sender,
        now: Timestamp,
        forget_before: Option<Timestamp>,
    ) -> Basis {
        let (principal, ended) = match sender.proved().as_of(&stored.accounts, now) {
            Ok(principal) => (principal, None),
            Err(refusal) => (Principal::Anonymous, Some(refusal)),
        };
        Basis { stored, rules, now, forget_before, sender, principal, ended }
    }

    /// The sender's rights as of this state; anonymous if the credentials no longer hold.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The same, for surfaces that refuse credentials which no longer hold.
    ///
    /// # Errors
    /// [`Refusal::Ended`].
    pub fn valid_principal(&self) -> Result<&Principal, Refusal> {
        match &self.ended {
            None => Ok(&self.principal),
            Some(refusal) => Err(Refusal::Ended(refusal.clone())),
        }
    }

    /// Why credentials that held when the request came hold no longer, if so.
    pub fn ended(&self) -> Option<&account::Refusal> {
        self.ended.as_ref()
    }

    /// Who asks.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }
}
