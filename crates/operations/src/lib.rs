//! Operations: everything that anybody may ask this server to change, each as a value with a pure decision.
//!
//! a protocol's words -> an [`Operation`] -> [`carry_out()`] -> [`Done`], or a [`Refusal`] -> the protocol's words
//!
//! An operation says what is wished for. [`Operation::decide`] looks at one state, without waiting and without knowing a
//! protocol, and gives the batch to commit, what the audit log notes, and the outcome. [`carry_out()`] is the only loop that
//! commits: it decides again if another write came first, checks the sender's rights each time, and writes the security log and
//! the audit log. A [`Keeper`] is where it commits to: the server's live store, the data directory of a command, an import.
//!
//! A new operation is a struct here, its [`Name`], its case in the test of rights, and its doors in the table of doors among the
//! server's tests. A new door (a handler, a form, an action, a command) makes such a struct of its own words, and says the refusal
//! in them.

pub mod articles;
pub mod attachments;
mod audit_notes;
mod basis;
mod carry_out;
pub mod imports;
pub mod indexes;
pub mod log_ins;
mod name;
pub mod providers;
pub mod publishing;
pub mod pushes;
mod refusal;
pub mod releases;
pub mod rights;
mod rules;
pub mod sessions;
pub mod tokens;
pub mod uploads;
pub mod users;

pub use audit_notes::{Noter, ServedFile};
pub use basis::{Basis, Sender};
pub use carry_out::{
    ATTEMPTS_MAX, Decided, Done, Foreseen, Keeper, OldBlobs, Operation, carry_out, carry_out_long,
    carry_out_with,
};
pub use name::Name;
pub use refusal::{Denied, Kind, Refusal, Right, Rule};
pub use rules::Rules;
