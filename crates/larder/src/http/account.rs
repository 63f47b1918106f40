//! `/+account`: logging in with a browser, and what users keep of their own there: tokens, password, sessions.
//!
//! form -> [`forms`](super::forms), who sent it -> what programs call -> a page, or on to one. Answers are for nobody but the
//! browser that asked: none of them may be kept.

mod log_in;
mod own;

pub(super) use log_in::{log_in, log_out, show_log_in};
pub(super) use own::{
    SCOPES, change_password, create_token, revoke_token, show_account, token_wish,
};

/// Size of a form of these pages.
const FORM_BYTES_MAX: usize = 32 << 10;
